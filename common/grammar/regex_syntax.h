/* SPDX-License-Identifier: Apache-2.0 */
/** @file regex_syntax.h
 *
 * Regular expressions as finite automata over the UTF-8 of a text: those of
 * clients (`guided_regex`) and of JSON Schema's `pattern`.
 *
 * Syntax is the part of ECMA-262 (flag u) that describes a regular language,
 * and what Python's `re` and Rust's `regex` write for it:
 *
 *     a . \d \D \w \W \s \S \t \n \r \f \v \0 \cA \x41 \u0041 \u{1F600} \\
 *     \p{L} \P{Lu} \p{gc=Nd} \p{Script=Han}
 *     [a-z] [^a-z] [] [^] (x) (?:x) (?<name>x) (?P<name>x) x|y
 *     x* x+ x? x{2} x{2,} x{2,3}, lazy too      ^ $ \A \z at any place
 *
 * \d \w \s are ECMA's: ASCII digits; ASCII letters, digits and _; and Unicode's
 * white space. `.` is any character but a line terminator. ^ and $ are the ends
 * of the text, not of a line. A { that begins no count, a } and a ] are
 * characters, as is a - beside a set in a class.
 *
 * \b \B, look-around, back references, atomic parentheses, possessive
 * quantifiers and inline flags are refused by name: BT_ERR_UNSUPPORTED. So is
 * what dialects read differently: {,n} and \Z.
 */
#ifndef BT_COMMON_GRAMMAR_REGEX_SYNTAX_H
#define BT_COMMON_GRAMMAR_REGEX_SYNTAX_H

#include <stddef.h>

#include "common/grammar/automaton.h"
#include "common/grammar/builder.h"
#include "common/grammar/compiler.h"

#define BT_GRAMMAR_REGEX_BYTES 4096u /**< most bytes of a pattern */

typedef enum bt_regex_match {
    BT_REGEX_WHOLE,  /**< the whole text matches */
    BT_REGEX_SEARCH, /**< a part of the text matches, as JSON Schema has it */
} bt_regex_match_t;

/**
 * Returns the automaton of the texts that match.
 *
 * @param [in] pattern  UTF-8, n bytes.
 * @return NULL: the compiler has failed; its sentence has the byte offset
 */
const bt_dfa_t *bt_regex_dfa(bt_grammar_compiler_t *c, const char *pattern,
                             size_t n, bt_regex_match_t match);

/** Returns an expression of the texts that match as a whole: an automaton;
 *  repetitions with large bounds become counting rules, so `[a-z]{1,100000}` is
 *  small. Where a text has several counts, as in `a{1,300}a{1,300}`, an
 *  automaton is tried first. */
const bt_expr_t *bt_regex_expr(bt_grammar_builder_t *b,
                               bt_grammar_compiler_t *c, const char *pattern,
                               size_t n);

/** How a pattern is read, where it is not as above. */
typedef enum bt_regex_flags {
    BT_REGEX_IGNORE_CASE = 1u, /**< ASCII letters in both cases; other
                                    characters that are given, and properties,
                                    are refused */
    BT_REGEX_DOT_ALL = 2u,     /**< `.` is any character */
    /** A terminal of Lark, of which readers agree (Python's re, Rust's regex):
     *  `.` is any character but \n. \d \w \s are ASCII's; \D \W \S, and \d \w
     *  \s in a negated class, leave out what any reader has in its \d \w \s.
     *  ^ $ \A \z and lazy quantifiers are refused. */
    BT_REGEX_LARK = 4u,
} bt_regex_flags_t;

/** As bt_regex_expr().
 *  @param [in] flags  bt_regex_flags_t, or several of them */
const bt_expr_t *bt_regex_expr_flags(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c,
                                     const char *pattern, size_t n,
                                     unsigned flags);

#endif
