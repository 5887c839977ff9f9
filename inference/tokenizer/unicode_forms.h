/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_forms.h
 *
 * The tables behind Unicode's normal forms; Hangul is computed and not in them.
 *
 * Source: make_unicode_forms.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_FORMS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_FORMS_H

#include <stdint.h>

/** Code << 21 | number of parts << 16 | where they are in bt_unicode_parts, in
 *  rising order: whole canonical decompositions, and those compatible ones that
 *  are others. */
extern const uint32_t bt_unicode_n_canonical;
extern const uint64_t bt_unicode_canonical[];
extern const uint32_t bt_unicode_n_compatible;
extern const uint64_t bt_unicode_compatible[];
extern const uint32_t bt_unicode_n_parts;
extern const uint32_t bt_unicode_parts[];

/** Runs of codes, the first << 8 | the canonical combining class. */
extern const uint32_t bt_unicode_n_combining;
extern const uint32_t bt_unicode_combining[];

/** (First << 21 | second) << 21 | what they compose to, in rising order. */
extern const uint32_t bt_unicode_n_pairs;
extern const uint64_t bt_unicode_pairs[];

/** Runs, the first << 8 | 1 where form C leaves a character and its neighbours
 *  alone. */
extern const uint32_t bt_unicode_n_stable;
extern const uint32_t bt_unicode_stable[];

/** Code << 21 | its lower case, in rising order. */
extern const uint32_t bt_unicode_n_lower;
extern const uint64_t bt_unicode_lower[];

#endif
