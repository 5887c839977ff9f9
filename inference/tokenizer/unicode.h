/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode.h
 *
 * Unicode: normalization forms, clusters, and quick look-ups of properties
 * (common/base/unicode.h).
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_H
#define BT_INFERENCE_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/unicode.h"

/*
 * Runs as those of bt_unicode_merged, with one for each character of upper and
 * lower case by turns. Filled before main() (pretok.c).
 */

#define BT_UNICODE_N_RUNS 4126u
extern uint32_t bt_unicode_runs[BT_UNICODE_N_RUNS];

/** Returns the bits of one character. Cost: a binary search in the runs. */
static inline uint32_t bt_unicode_props(uint32_t cp)
{
    return bt_unicode_run(bt_unicode_runs, BT_UNICODE_N_RUNS,
                          BT_UNICODE_RUN_BITS, cp);
}

/** Character classes of the pre-tokenizers: letters (\p{L}), numbers (\p{N})
 *  and white space (\s). */
typedef enum bt_unicode_class {
    BT_UNICODE_OTHER = 0,
    BT_UNICODE_LETTER = 1,
    BT_UNICODE_NUMBER = 2,
    BT_UNICODE_SPACE = 3,
} bt_unicode_class_t;

/* The class of code point c in bits 2 * (c % 32) of word c / 32; behind the
 * last word all are BT_UNICODE_OTHER. Filled from the runs before main()
 * (pretok.c). */
#define BT_UNICODE_N_CLASSED 0x32400u
extern uint64_t bt_unicode_classes[BT_UNICODE_N_CLASSED / 32];

/** Returns the class of any value; BT_UNICODE_OTHER outside Unicode. */
static inline bt_unicode_class_t bt_unicode_class(uint32_t cp)
{
    if (cp >= BT_UNICODE_N_CLASSED) {
        return BT_UNICODE_OTHER;
    }
    return (bt_unicode_class_t)(bt_unicode_classes[cp / 32] >> cp % 32 * 2 & 3);
}

/*
 * Tables of Unicode's normal forms; Hangul is computed and not included.
 *
 * Source: make_unicode_forms.py.
 */

/** Runs of characters with a decomposition other than those of
 *  bt_unicode_pairs: the first code point << 22 | 1 << 21 where it is a
 *  compatible one | number of parts of each << 16 | index of the first one's
 *  in bt_unicode_parts, where those of the next ones follow. No parts: nothing
 *  up to the next run is decomposed. */
extern const uint32_t bt_unicode_n_mapped;
extern const uint64_t bt_unicode_mapped[];
extern const uint32_t bt_unicode_parts[];

/** Runs of code points: the first << 8 | canonical combining class. */
extern const uint32_t bt_unicode_n_combining;
extern const uint32_t bt_unicode_combining[];

/** Compositions, which are canonical decompositions, too: (first << 21 |
 *  second) << 21 | composed code point, ascending. */
#define BT_UNICODE_N_COMPOSED 0x11600u /* no composed code point is higher */
extern const uint32_t bt_unicode_n_pairs;
extern const uint64_t bt_unicode_pairs[];

/** Runs of code points: the first << 8 | 1 where form C leaves a character and
 *  its neighbours unchanged. */
extern const uint32_t bt_unicode_n_stable;
extern const uint32_t bt_unicode_stable[];

/** Runs of characters whose lower case is as far away: (first << 21 | lower
 *  case of the first) << 21 | (last - first) << 1 | 1 where only every second
 *  one is meant, ascending. */
extern const uint32_t bt_unicode_n_lower;
extern const uint64_t bt_unicode_lower[];

/*
 * Grapheme cluster properties, as far as they matter for clusters of a few
 * bytes: marks extend their base character, and a few characters belong to the
 * next one. Hangul syllables, flags and joined emoji are longer than that.
 *
 * Source: Unicode Standard Annex 29, section 3.1.1; make_unicode_clusters.py.
 */

typedef enum bt_unicode_cluster {
    BT_UNICODE_STANDS,  /**< begins a cluster */
    BT_UNICODE_JOINS,   /**< belongs to the previous character */
    BT_UNICODE_CONTROL, /**< always alone */
    BT_UNICODE_PREPEND, /**< belongs to the next character */
} bt_unicode_cluster_t;

extern const uint32_t bt_unicode_n_cluster_runs;
/** Runs: first code point << 2 | bt_unicode_cluster_t of all in the run. */
extern const uint32_t bt_unicode_cluster_runs[];

#endif
