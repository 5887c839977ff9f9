/* SPDX-License-Identifier: Apache-2.0 */
/** @file builder_priv.h
 *
 * Parts of builder.h that its source files share:
 *
 *     builder.c        expressions, rules and symbols
 *     builder_text.c   texts with bounds, and spelled as JSON
 *     builder_rules.c  automata of rules
 *     builder_link.c   all rules: left recursion, equal ones, small ones
 *     program.c        the bytes
 *
 * Symbols of a rule's automaton are bytes; bytes that count; and calls and
 * tokens, each with a number of its own.
 */
#ifndef BT_COMMON_GRAMMAR_BUILDER_PRIV_H
#define BT_COMMON_GRAMMAR_BUILDER_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/builder.h"

/* With space between them, so that no range of symbols has two kinds. */
#define BT_SYMBOL_COUNTING 512u  /**< + byte */
#define BT_SYMBOL_OTHER    1024u /**< + index of a bt_builder_symbol_t */

#define BT_UNROLL_STATES 64u /**< largest repetition that is written out */

/** Call of a rule, or a range of tokens. */
typedef struct bt_builder_symbol {
    uint32_t arg, last; /**< rule; or tokens, inclusive */
    bool is_token;
    bool counts;
} bt_builder_symbol_t;

typedef enum bt_expr_kind {
    BT_EXPR_NOTHING,
    BT_EXPR_EMPTY,
    BT_EXPR_LITERAL,
    BT_EXPR_BYTES,
    BT_EXPR_DFA,
    BT_EXPR_COUNTED, /**< rule that counts, of an automaton with its symbols */
    BT_EXPR_SEQ,
    BT_EXPR_ALT,
    BT_EXPR_REPEAT,
    BT_EXPR_TOKENS,
    BT_EXPR_RULE,
} bt_expr_kind_t;

/* Which texts an expression has. */
#define BT_HAS_EMPTY 1u /**< the empty one */
#define BT_HAS_MORE  2u /**< others */

struct bt_expr {
    bt_expr_kind_t kind;
    uint8_t lo, hi;
    uint8_t has;     /**< found by bt_builder_find_texts() */
    bool unrolls;    /**< a part is a repetition that is written out */
    uint32_t index;  /**< in builder->exprs, behind those of its parts */
    uint32_t n_uses; /**< as a part of others */
    uint32_t size;   /**< states of its automaton, about; saturating */
    uint32_t min, max;
    uint32_t arg, last; /**< tokens; rule */
    uint32_t rule;      /**< that counts for it, + 1; 0: none yet */
    uint32_t n;         /**< bytes, or parts */
    const void *bytes;
    const bt_expr_t *const *parts;
    const bt_dfa_t *dfa;
};

typedef struct bt_builder_rule {
    const char *name;      /**< NULL: made by the builder */
    const bt_expr_t *expr; /**< NULL: not defined */
    const bt_dfa_t *dfa;   /**< NULL: not made yet. Without the empty text, but
                                for the root */
    uint32_t min, max;     /**< bounds of the count */
    /* builder_link.c: rules called by `listed`, one for each symbol of an edge;
     * first those of the start */
    const bt_dfa_t *listed;
    uint32_t *calls;
    uint32_t n_calls, n_first;
} bt_builder_rule_t;

/** Automata of a text (builder_text.c). */
typedef struct bt_spelled_text {
    const bt_dfa_t *text;
    bool spell_json, counts;
    const bt_dfa_t *dfa;
} bt_spelled_text_t;

struct bt_grammar_builder {
    bt_grammar_compiler_t *c;
    bt_builder_rule_t *rules;
    uint32_t n_rules, cap_rules;
    bt_builder_symbol_t *symbols;
    uint32_t n_symbols, cap_symbols;
    uint32_t *table; /**< hash table of symbols: index, + 1 */
    uint32_t table_mask;
    bt_expr_t **exprs;
    uint32_t n_exprs, cap_exprs;
    bt_spelled_text_t *texts;
    uint32_t n_texts, cap_texts;
    const bt_dfa_t *empty;
    bool spells_json; /**< leaves that are made now are spelled */
};

static inline bool bt_rule_has_bounds(const bt_builder_rule_t *rule)
{
    return (rule->min > 0) || (rule->max != BT_REPEAT_NO_LIMIT);
}

static inline bool bt_symbol_is_call(const bt_grammar_builder_t *b,
                                     uint32_t symbol)
{
    return (symbol >= BT_SYMBOL_OTHER) &&
           !b->symbols[symbol - BT_SYMBOL_OTHER].is_token;
}

/* builder.c */

bt_expr_t *bt_expr_create(bt_grammar_builder_t *b, bt_expr_kind_t kind);
/** Returns the symbol of a call or of tokens, which may be new. */
uint32_t bt_builder_symbol(bt_grammar_builder_t *b, bt_builder_symbol_t symbol);
/** Returns a rule that has bounds for its count. */
uint32_t bt_builder_counting_rule(bt_grammar_builder_t *b, uint32_t min,
                                  uint32_t max);
/** Returns an automaton without the empty text. */
const bt_dfa_t *bt_builder_without_empty(bt_grammar_builder_t *b,
                                         const bt_dfa_t *dfa);

/* builder_text.c */

/** Returns the automaton of a text as a JSON string spells it. */
const bt_dfa_t *bt_builder_spelled(bt_grammar_builder_t *b,
                                   const bt_dfa_t *text);

/* builder_rules.c */

/** Finds which texts each expression has. */
void bt_builder_find_texts(bt_grammar_builder_t *b);
/** Makes the automaton of a rule, unless it has one. Other rules may be added
 *  for repetitions. */
void bt_builder_compile(bt_grammar_builder_t *b, uint32_t rule);
/** Returns the automaton of an expression. */
const bt_dfa_t *bt_builder_dfa(bt_grammar_builder_t *b, const bt_expr_t *x);
/** True when a state reads a byte in two ways: it counts, and does not. */
bool bt_dfa_reads_twice(const bt_dfa_t *dfa);

/* A step that may take too much, and is then not done. */
typedef struct bt_attempt {
    bt_grammar_compiler_t c; /**< scratch of the step */
    uint64_t fuel;
} bt_attempt_t;

/** Begins a step with at most a part of the budget. */
void bt_attempt_begin(bt_attempt_t *attempt, bt_grammar_compiler_t *c,
                      uint64_t fuel);
/** Ends a step. @return its automaton, copied; NULL: it took too much, or the
 *  compilation has failed */
const bt_dfa_t *bt_attempt_end(bt_attempt_t *attempt, bt_grammar_compiler_t *c,
                               const bt_dfa_t *dfa);

/* program.c */

/** Rules of a program, in their order. */
typedef struct bt_rules {
    const bt_builder_rule_t *const *list;
    uint32_t n;
    const uint32_t *number_of; /**< index in the list, by rule that is called */
    const bt_builder_symbol_t *symbols;
} bt_rules_t;

/** Returns the states and edges of rules, in the compiler's arena. */
bt_grammar_t *bt_program_lay_out(bt_grammar_compiler_t *c,
                                 const bt_rules_t *rules);
/** Gives states `otherwise` where that saves edges. */
void bt_program_compress(bt_grammar_compiler_t *c, bt_grammar_t *g);
/** Writes a program.
 *  @param [in]  g          States of a rule are a range, and the first one is
 *                          its start.
 *  @param [out] program_p  In the compiler's arena.
 *  @return the compiler's status */
bt_status_t bt_program_write(bt_grammar_compiler_t *c, const bt_grammar_t *g,
                             const uint8_t **program_p, size_t *bytes_p);

#endif
