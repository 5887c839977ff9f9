/* SPDX-License-Identifier: Apache-2.0 */
/** @file merge.h
 *
 * Merging of byte-pair encoding: as long as some neighbours have an entry in
 * the pair table, joins the pair of the lowest rank, the leftmost of equal
 * ones.
 *
 * Source: R. Sennrich et al., "Neural Machine Translation of Rare Words with
 *         Subword Units", ACL 2016, section 3.2; for SentencePiece likewise,
 *         where the rank is the position of the piece's score.
 */
#ifndef BT_INFERENCE_TOKENIZER_MERGE_H
#define BT_INFERENCE_TOKENIZER_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/tables.h"

/** Memory that one call of bt_tokenize() reuses for each word.
 *  Zero-initialise. */
typedef struct bt_merge_work {
    uint32_t *syms; /**< owned; symbols of the word, then its tokens */
    size_t syms_cap;
    struct bt_merge_node *nodes; /**< owned; long words only */
    uint64_t *heap;              /**< owned; 3 entries per node */
    size_t nodes_cap;
    uint64_t n_steps; /**< for long words: pairs looked up, entries moved */
} bt_merge_work_t;

void bt_merge_fini(bt_merge_work_t *work);

/** Reserves space for @a n symbols in work->syms. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_merge_reserve(bt_merge_work_t *work, size_t n);

#define BT_MERGE_SHORT 32u

/**
 * Merges syms[0 .. n-1] in place, searching all pairs for each merge: the
 * fastest way for few symbols, and it needs no memory.
 *
 * @param [in] n  At most BT_MERGE_SHORT.
 * @return symbols left
 */
size_t bt_merge_short(const bt_pair_table_t *pairs, uint32_t *syms, size_t n);

/**
 * Merges work->syms[0 .. n-1] in place. Cost O(n log n), and no allocation for
 * words of up to BT_MERGE_SHORT symbols.
 *
 * @param [in]  n    Below 2^31.
 * @param [out] n_p  Symbols left.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_merge(bt_merge_work_t *work,
                                   const bt_pair_table_t *pairs, size_t n,
                                   size_t *n_p);

#endif
