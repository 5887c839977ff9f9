/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_clusters.h
 *
 * Which characters belong together, as far as it matters for those of a few
 * bytes: marks to what they stand on, and the few characters that belong to
 * what follows them. Syllables of Hangul, flags and emoji that are joined are
 * longer than that.
 *
 * Source: Unicode Standard Annex 29, section 3.1.1; make_unicode_clusters.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_CLUSTERS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_CLUSTERS_H

#include <stdint.h>

typedef enum bt_unicode_cluster {
    BT_UNICODE_STANDS,  /**< begins a cluster */
    BT_UNICODE_JOINS,   /**< belongs to what is before it */
    BT_UNICODE_CONTROL, /**< nothing belongs to it */
    BT_UNICODE_PREPEND, /**< belongs to what is behind it */
} bt_unicode_cluster_t;

extern const uint32_t bt_unicode_n_cluster_runs;
/** The first code point of a run << 2 | bt_unicode_cluster_t of all in it. */
extern const uint32_t bt_unicode_cluster_runs[];

#endif
