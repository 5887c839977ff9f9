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
#define BT_REGEX_MAX_PATTERNS 12u
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
 * Compiles @a n patterns over one alphabet.
 *
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

#endif
