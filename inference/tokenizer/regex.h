/* SPDX-License-Identifier: Apache-2.0 */
/** @file regex.h
 *
 * Regular expressions of pre-tokenizers, compiled to automata that read each
 * character once.
 *
 *     patterns ─parse→ trees ─→ programs ─→ one automaton each
 *                  └─ sets of characters ─→ classes (one alphabet for all)
 *
 * Semantics are those of Oniguruma, the engine of the reference tokenizers: of
 * several ways to match, the first that its alternatives and greedy quantifiers
 * try, not the longest. Supported syntax:
 *
 *     a  \n \r \t \x41 \u{1F600}  .  \s \S \d \D \w \W \p{Lu} \p{Han} \P{L}
 *     [a-z…]  [^…]  [a[bc]]  [a&&[^b]]  (…)  (?:…)  (?i:…)  (?i)
 *     x* x+ x? x{2} x{2,} x{,3} x{2,3}   $ \z  (?!x) (?=x)
 *
 * where x in (?!x) and (?=x) is one character, and also x*+ x++ x?+ where they
 * are equivalent to x* x+ x?. All other syntax is refused by name: \b, back
 * references, lazy quantifiers, patterns that match an empty text.
 *
 * Cost: a match reads at most as many characters beyond its end as the pattern
 * has states, except in runs of one class of characters, and runs that led to
 * no match are remembered. Patterns that could look ahead further in other ways
 * ("(ab)*c") are refused. So the cost of any text is linear in its bytes.
 *
 * Threads: constant once compiled; each scan has its own bt_regex_runs_t.
 * Source: K. Thompson, "Regular expression search algorithm", CACM 11, 1968; R.
 *         Cox, "Regular Expression Matching in the Wild", 2010, for priorities
 *         in ordered sets of threads; T. Reps, "Maximal-munch tokenization in
 *         linear time", TOPLAS 20, 1998, for the memory.
 */
#ifndef BT_INFERENCE_TOKENIZER_REGEX_H
#define BT_INFERENCE_TOKENIZER_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

#define BT_REGEX_MAX_BYTES    4096u /**< most bytes of a pattern */
#define BT_REGEX_MAX_RUNS     16u
#define BT_REGEX_MAX_PATTERNS 8u
#define BT_REGEX_STATE_MASK   0x3FFFu
#define BT_REGEX_LOOP         0x4000u /**< stay in this state, and no match */
#define BT_REGEX_MATCH        0x8000u /**< matched, before this character */

/** Alphabet of character classes: characters that no pattern distinguishes are
 *  one class. */
typedef struct bt_alphabet {
    uint8_t ascii[128];
    uint8_t *classes; /**< owned; pages of 256 code points */
    uint16_t *pages;  /**< owned; page index of each 256 code points */
    uint32_t n;       /**< number of classes; n itself is the end of the text */
} bt_alphabet_t;

static inline uint8_t bt_alphabet_class(const bt_alphabet_t *alphabet,
                                        uint32_t cp)
{
    return alphabet
        ->classes[(size_t)alphabet->pages[cp >> 8] << 8 | (cp & 0xFF)];
}

/** One compiled pattern. State 0 is the end, 1 the start. */
typedef struct bt_regex {
    uint16_t *next;  /**< owned; [state][class or end]: state and flags */
    uint8_t *run_of; /**< owned; index of a looping state in bt_regex_runs_t,
                          else BT_REGEX_MAX_RUNS */
    uint32_t n_states;
    uint32_t n_columns; /**< alphabet.n + 1 */
    uint32_t n_runs;
} bt_regex_t;

/** Per looping state, a run of characters that is known to lead to no match.
 *  Valid for one text with one end; zero-initialise for another. */
typedef struct bt_regex_runs {
    struct {
        size_t begin, end;
    } runs[BT_REGEX_MAX_RUNS];
    uint64_t n_steps; /**< characters read, by all matches */
} bt_regex_runs_t;

/**
 * Compiles patterns over one alphabet.
 *
 * @param [in] n  at most BT_REGEX_MAX_PATTERNS
 * @param [out] regexes_p  Each to be freed with bt_regex_fini(), as the
 *         alphabet with bt_alphabet_fini().
 * @param [out] why        On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  unsupported syntax, named
 * @retval BT_ERR_BAD_FILE     no regular expression
 * @retval BT_ERR_TOO_LARGE    too many states, classes or sets, named in why
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_regex_compile(const char *const *patterns,
                                           size_t n, char *why,
                                           size_t why_bytes,
                                           bt_alphabet_t *alphabet_p,
                                           bt_regex_t *regexes_p);
void bt_regex_fini(bt_regex_t *regex);
void bt_alphabet_fini(bt_alphabet_t *alphabet);

/**
 * Matches at position @a at.
 *
 * @param [in] text    Valid UTF-8.
 * @param [in] mapped  NULL, or the class of each byte: then bytes are the
 *         characters.
 * @param [in,out] runs  of this text
 * @return end of the match, or @a at: there is none
 */
size_t bt_regex_match(const bt_regex_t *regex, const bt_alphabet_t *alphabet,
                      const uint8_t *mapped, const uint8_t *text, size_t at,
                      size_t end, bt_regex_runs_t *runs);

/*
 * Shared by the steps from patterns to automata.
 */

#define BT_RX_MAX_SETS  256u
#define BT_RX_MAX_OPS   2048u
#define BT_RX_MAX_NODES 8192u
#define BT_RX_NONE      UINT32_MAX

/* A set of characters is an expression in postfix order. */
typedef enum bt_rx_op_kind {
    BT_RX_RANGE,      /* from a to b */
    BT_RX_CATEGORIES, /* bit c of a: category c */
    BT_RX_PROPERTY,   /* bits a of bt_unicode_prop_t */
    BT_RX_NOTHING,
    BT_RX_NOT,
    BT_RX_OR,
    BT_RX_AND,
} bt_rx_op_kind_t;

typedef struct bt_rx_op {
    uint32_t kind, a, b;
} bt_rx_op_t;

typedef struct bt_rx_set {
    uint32_t first, n; /* range in ops */
} bt_rx_set_t;

typedef enum bt_rx_node_kind {
    BT_RX_EMPTY,
    BT_RX_SET,      /* a character of set a */
    BT_RX_NEXT_IS,  /* and the next character is one of set a */
    BT_RX_NEXT_NOT, /* or the text ends */
    BT_RX_LINE_END, /* the text ends, or the next character is one of set a */
    BT_RX_TEXT_END,
    BT_RX_CAT,        /* a, then b */
    BT_RX_ALT,        /* a, or else b */
    BT_RX_REPEAT,     /* a, from min to max times, greedy */
    BT_RX_POSSESSIVE, /* a, from min to max times, possessive */
} bt_rx_node_kind_t;

typedef struct bt_rx_node {
    uint32_t kind, a, b;
    uint32_t min, max; /* BT_RX_NONE: any number */
} bt_rx_node_t;

/** State of one bt_regex_compile(). */
typedef struct bt_rx {
    bt_rx_op_t ops[BT_RX_MAX_OPS];
    uint32_t n_ops;
    bt_rx_set_t sets[BT_RX_MAX_SETS];
    uint32_t n_sets;
    bt_rx_node_t nodes[BT_RX_MAX_NODES];
    uint32_t n_nodes;
    /* for each class the sets that contain it: bit s of members[class] */
    uint64_t members[256][BT_RX_MAX_SETS / 64];
    char *why;
    size_t why_bytes;
} bt_rx_t;

static inline bool bt_rx_member(const bt_rx_t *rx, uint32_t class_index,
                                uint32_t set)
{
    return (rx->members[class_index][set / 64] >> set % 64 & 1) != 0;
}

/** Parses a pattern (regex_parse.c).
 *  @param [out] root_p  root node */
BT_MUST_CHECK bt_status_t bt_rx_parse(bt_rx_t *rx, const char *pattern,
                                      uint32_t *root_p);

/** Computes the classes that the sets distinguish, and their members
 *  (regex_set.c). */
BT_MUST_CHECK bt_status_t bt_rx_classify(bt_rx_t *rx,
                                         bt_alphabet_t *alphabet_p);

#endif
