/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_clusters.h
 *
 * Grapheme cluster properties, as far as they matter for clusters of a few
 * bytes: marks extend their base character, and a few characters belong to the
 * next one. Hangul syllables, flags and joined emoji are longer than that.
 *
 * Source: Unicode Standard Annex 29, section 3.1.1; make_unicode_clusters.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_CLUSTERS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_CLUSTERS_H

#include <stdint.h>

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
