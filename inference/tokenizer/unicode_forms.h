/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_forms.h
 *
 * Tables of Unicode's normal forms; Hangul is computed and not included.
 *
 * Source: make_unicode_forms.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_FORMS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_FORMS_H

#include <stdint.h>

/** Decompositions: code point << 21 | number of parts << 16 | index in
 *  bt_unicode_parts, ascending: complete canonical decompositions, and those
 *  compatible ones that differ. */
extern const uint32_t bt_unicode_n_canonical;
extern const uint64_t bt_unicode_canonical[];
extern const uint32_t bt_unicode_n_compatible;
extern const uint64_t bt_unicode_compatible[];
extern const uint32_t bt_unicode_n_parts;
extern const uint32_t bt_unicode_parts[];

/** Runs of code points: the first << 8 | canonical combining class. */
extern const uint32_t bt_unicode_n_combining;
extern const uint32_t bt_unicode_combining[];

/** Compositions: (first << 21 | second) << 21 | composed code point,
 *  ascending. */
extern const uint32_t bt_unicode_n_pairs;
extern const uint64_t bt_unicode_pairs[];

/** Runs of code points: the first << 8 | 1 where form C leaves a character and
 *  its neighbours unchanged. */
extern const uint32_t bt_unicode_n_stable;
extern const uint32_t bt_unicode_stable[];

/** Lower case: code point << 21 | its lower case, ascending. */
extern const uint32_t bt_unicode_n_lower;
extern const uint64_t bt_unicode_lower[];

#endif
