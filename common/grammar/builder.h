/* SPDX-License-Identifier: Apache-2.0 */
/** @file builder.h
 *
 * Builds the program of a grammar (grammar.h) from expressions.
 *
 *     bt_expr_*()  ─▶ tree ─ bt_builder_define() ─▶ rule … ─ finish ─▶ program
 *
 * Expressions are values of the compiler's arena and may be used more than
 * once. The builder makes each rule a minimal deterministic automaton, removes
 * empty derivations, shares equal rules, merges small rules into their callers,
 * and writes repetitions with large bounds as counting rules.
 *
 * The language of a program is exactly that of its expressions; what cannot be
 * held exactly (left recursion, for one) fails with BT_ERR_UNSUPPORTED.
 *
 * After a failure (compiler.h) functions return NULL or 0.
 */
#ifndef BT_COMMON_GRAMMAR_BUILDER_H
#define BT_COMMON_GRAMMAR_BUILDER_H

#include <stddef.h>
#include <stdint.h>

#include "common/grammar/automaton.h"
#include "common/grammar/compiler.h"
#include "common/grammar/grammar.h"

#define BT_REPEAT_NO_LIMIT UINT32_MAX

typedef struct bt_grammar_builder bt_grammar_builder_t;
typedef struct bt_expr bt_expr_t;

bt_grammar_builder_t *bt_builder_create(bt_grammar_compiler_t *c);

/** Returns an expression of no text at all, not even the empty one. */
const bt_expr_t *bt_expr_nothing(bt_grammar_builder_t *b);
/** Returns an expression of the empty text. */
const bt_expr_t *bt_expr_empty(bt_grammar_builder_t *b);
/** @param [in] bytes  Copied. */
const bt_expr_t *bt_expr_literal(bt_grammar_builder_t *b, const void *bytes,
                                 size_t n);
/** Returns an expression of one byte of lo to hi, inclusive. */
const bt_expr_t *bt_expr_bytes(bt_grammar_builder_t *b, uint8_t lo, uint8_t hi);
/** @param [in] dfa  Over bytes alone. */
const bt_expr_t *bt_expr_dfa(bt_grammar_builder_t *b, const bt_dfa_t *dfa);
/** Returns an expression of the texts of an automaton which, read by code
 *  points, have at least min and at most max of them. With @a spell_json each
 *  code point is spelled as in a JSON string, in one canonical way: \" \\ \b \f
 *  \n \r \t, other controls as \u00XX with lower-case digits, everything else
 *  by itself.
 *  BT_ERR_UNSUPPORTED: lengths of the automaton are not the whole range from
 *  the shortest on, and the product with the bounds is too large. */
const bt_expr_t *bt_expr_text(bt_grammar_builder_t *b, const bt_dfa_t *dfa,
                              uint32_t min, uint32_t max, bool spell_json);
/** Sets whether expressions of bytes that are made from here on spell them as
 * in a JSON string, as bt_expr_text() does: a literal, bytes, an automaton. Not
 *  for bt_expr_text() itself. */
void bt_builder_spell_json(bt_grammar_builder_t *b, bool spells);
const bt_expr_t *bt_expr_seq(bt_grammar_builder_t *b,
                             const bt_expr_t *const *parts, uint32_t n);
const bt_expr_t *bt_expr_alt(bt_grammar_builder_t *b,
                             const bt_expr_t *const *parts, uint32_t n);
/** Returns an expression of min to max texts of x, one after the other.
 *  @param [in] max  BT_REPEAT_NO_LIMIT: no limit */
const bt_expr_t *bt_expr_repeat(bt_grammar_builder_t *b, const bt_expr_t *x,
                                uint32_t min, uint32_t max);
/** Way of a graph: from node to node by the texts of an expression; NULL: by
 *  the empty text. */
typedef struct bt_expr_way {
    uint32_t from, to;
    const bt_expr_t *x;
} bt_expr_way_t;

/** Returns an expression of the texts of all paths from node 0 to node 1. For
 *  lists whose parts depend on what came before, which as a tree would repeat
 *  themselves.
 *  @param [in] ways  n_ways; copied */
const bt_expr_t *bt_expr_graph(bt_grammar_builder_t *b, uint32_t n_nodes,
                               const bt_expr_way_t *ways, uint32_t n_ways);
/** Returns an expression of one token by its id. */
const bt_expr_t *bt_expr_token(bt_grammar_builder_t *b, uint32_t id);
/** Returns an expression of one token of first to last, inclusive. */
const bt_expr_t *bt_expr_tokens(bt_grammar_builder_t *b, uint32_t first,
                                uint32_t last);
/** Returns an expression of a rule's texts; the rule may be defined later. */
const bt_expr_t *bt_expr_rule(bt_grammar_builder_t *b, uint32_t rule);

/** Adds a rule that has no definition yet.
 *  @param [in] name  For messages; borrowed until bt_builder_finish(). */
uint32_t bt_builder_rule(bt_grammar_builder_t *b, const char *name);
void bt_builder_define(bt_grammar_builder_t *b, uint32_t rule,
                       const bt_expr_t *x);

/**
 * Writes the program.
 *
 * @param [out] program_p  Owned by the compiler's arena.
 * @return the compiler's status: BT_ERR_UNSUPPORTED: left recursion, by the
 *         name of its rule; BT_ERR_INVALID_PARAM: a rule without definition, or
 *         the language is empty; BT_ERR_TOO_LARGE: over a limit of grammar.h
 */
BT_MUST_CHECK bt_status_t bt_builder_finish(bt_grammar_builder_t *b,
                                            uint32_t root,
                                            const uint8_t **program_p,
                                            size_t *bytes_p);

#endif
