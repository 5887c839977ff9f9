/* SPDX-License-Identifier: Apache-2.0 */
/** @file code_set.h
 *
 * Sets of code points, as the character classes of patterns have them: ranges
 * in the arena of a compilation.
 *
 * After a failure (compiler.h) functions do nothing and return false.
 */
#ifndef BT_COMMON_GRAMMAR_CODE_SET_H
#define BT_COMMON_GRAMMAR_CODE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/compiler.h"

#define BT_CODE_POINT_MAX 0x10FFFFu

typedef struct bt_code_range {
    uint32_t lo, hi; /**< inclusive */
} bt_code_range_t;

/** Set of code points; zeroed: empty. Ranges are in any order and may overlap
 *  until bt_code_set_normalize(). */
typedef struct bt_code_set {
    bt_code_range_t *ranges;
    uint32_t n, cap;
} bt_code_set_t;

void bt_code_set_add(bt_grammar_compiler_t *c, bt_code_set_t *set, uint32_t lo,
                     uint32_t hi);
void bt_code_set_add_all(bt_grammar_compiler_t *c, bt_code_set_t *set,
                         const bt_code_set_t *others);
/** Adds the code points with a property, by the names of ECMA-262 for \p{…}:
 *  a general category (`Lu`, `Uppercase_Letter`, `gc=Lu`), a script
 *  (`Script=Han`, `sc=Hani`, `Han`), `Any`, `ASCII`, `Assigned` and
 *  `White_Space`.
 *  @return false: not known, or the compilation has failed */
bool bt_code_set_add_property(bt_grammar_compiler_t *c, bt_code_set_t *set,
                              const char *name, size_t n);
/** Adds the characters of \d, \w or \s, about whose characters beyond ASCII
 *  readers of patterns (ECMA-262, Python's re, Rust's regex) differ.
 *  @param [in] letter  d, w or s
 *  @param [in] widest  All that one of them has, or more; false: what each of
 *          them has */
void bt_code_set_add_escape(bt_grammar_compiler_t *c, bt_code_set_t *set,
                            int letter, bool widest);
/** Sorts the ranges, and joins those that touch. */
void bt_code_set_normalize(bt_grammar_compiler_t *c, bt_code_set_t *set);
/** Replaces a set by the code points that are not in it; normalizes. */
void bt_code_set_negate(bt_grammar_compiler_t *c, bt_code_set_t *set);

/** True when two normalized sets have a code point in common. */
bool bt_code_set_intersects(const bt_code_set_t *a, const bt_code_set_t *b);

#endif
