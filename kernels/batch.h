/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch.h
 *
 * The tables of a batch (bt_batch_t) as one run of 32-bit words, for a back end
 * that uploads them in one copy; one whose memory is the host's reads the
 * batch's own arrays and needs none of this.
 *
 *     token[n_rows]       as in the batch
 *     position[n_rows]    of each row in its sequence
 *     block[n_rows][n_groups]
 *                         ids of the blocks that hold this position; in them
 *                         the row is slot position % T
 *     row_seq[n_rows]     which sequence a row belongs to
 *     logit_row[n_logit_rows]
 *     from_id[n_rows]     where the batch has from_ids
 *     seq[n_seqs][4]      row, n_rows, pos, where its ids begin in ids[]
 *     id[...][n_groups]   block ids of all sequences, one after the other
 *
 * C and C++ alike: a plugin cannot link the library, so this is all of it.
 *
 * Threads: pure functions.
 */
#ifndef BT_KERNELS_BATCH_H
#define BT_KERNELS_BATCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define BT_BATCH_SEQ_WORDS 4u /**< of seq[] */

/** Where each table begins, in words from the first. */
typedef struct bt_batch_layout {
    size_t token;
    size_t position;
    size_t block;
    size_t row_seq;
    size_t logit_row;
    size_t from_id;
    size_t seq;
    size_t id;
    size_t n_words; /**< of all together */
} bt_batch_layout_t;

/** Blocks of a group that a sequence's rows read and write: those of positions
 *  0 .. pos + n_rows - 1. */
static inline size_t bt_batch_blocks(const bt_ragged_seq_t *seq,
                                     uint32_t tokens_per_block)
{
    return ((size_t)seq->pos + seq->n_rows + tokens_per_block - 1) /
           tokens_per_block;
}

static inline bt_batch_layout_t
bt_batch_layout_of(size_t n_rows, size_t n_logit_rows, size_t n_from_ids,
                   size_t n_seqs, size_t n_groups, size_t n_ids)
{
    bt_batch_layout_t at;

    at.token = 0;
    at.position = n_rows;
    at.block = 2 * n_rows;
    at.row_seq = (2 + n_groups) * n_rows;
    at.logit_row = (3 + n_groups) * n_rows;
    at.from_id = at.logit_row + n_logit_rows;
    at.seq = at.from_id + n_from_ids;
    at.id = at.seq + BT_BATCH_SEQ_WORDS * n_seqs;
    at.n_words = at.id + n_ids;
    return at;
}

/** Words of the largest batch. */
static inline size_t bt_batch_max_words(const bt_batch_limits_t *limits)
{
    return bt_batch_layout_of(limits->max_rows, limits->max_logit_rows,
                              limits->max_rows, limits->max_seqs,
                              (size_t)limits->max_other_groups + 1,
                              limits->max_blocks)
        .n_words;
}

/** Where the tables of @a batch lie. */
static inline bt_batch_layout_t bt_batch_layout(const bt_batch_t *batch)
{
    const size_t n_groups = (size_t)batch->n_other_groups + 1;
    size_t n_blocks = 0;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        n_blocks += bt_batch_blocks(&batch->seqs[s], batch->tokens_per_block);
    }
    return bt_batch_layout_of(batch->n_rows, batch->n_logit_rows,
                              (batch->from_ids == NULL) ? 0 : batch->n_rows,
                              batch->n_seqs, n_groups, n_groups * n_blocks);
}

/** Does it keep to the limits? Then bt_batch_layout().n_words is at most
 *  bt_batch_max_words(). */
static inline bool bt_batch_fits(const bt_batch_t *batch,
                                 const bt_batch_limits_t *limits)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);

    return (batch->n_rows <= limits->max_rows) &&
           (batch->n_seqs <= limits->max_seqs) &&
           (batch->n_logit_rows <= limits->max_logit_rows) &&
           (batch->n_other_groups <= limits->max_other_groups) &&
           (at.n_words - at.id <= limits->max_blocks);
}

/** Write all tables. @param [out] words  bt_batch_layout().n_words of them */
static inline void bt_batch_pack(const bt_batch_t *batch, uint32_t *words)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);
    const size_t n_groups = (size_t)batch->n_other_groups + 1;
    const uint32_t t = batch->tokens_per_block;
    size_t id = 0;

    if (batch->n_rows > 0) {
        memcpy(words + at.token, batch->tokens, batch->n_rows * sizeof(*words));
    }
    if (batch->n_logit_rows > 0) {
        memcpy(words + at.logit_row, batch->logit_rows,
               batch->n_logit_rows * sizeof(*words));
    }
    if (batch->from_ids != NULL) {
        memcpy(words + at.from_id, batch->from_ids,
               batch->n_rows * sizeof(*words));
    }
    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        const bt_ragged_seq_t *const seq = &batch->seqs[s];
        const size_t n_ids = n_groups * bt_batch_blocks(seq, t);
        uint32_t *const head = words + at.seq + (size_t)BT_BATCH_SEQ_WORDS * s;

        head[0] = seq->row;
        head[1] = seq->n_rows;
        head[2] = seq->pos;
        head[3] = (uint32_t)id;
        memcpy(words + at.id + id, seq->blocks, n_ids * sizeof(*words));
        id += n_ids;
        for (uint32_t i = 0; i < seq->n_rows; i++) {
            const size_t row = (size_t)seq->row + i;
            const uint32_t position = seq->pos + i;

            words[at.position + row] = position;
            memcpy(words + at.block + row * n_groups,
                   seq->blocks + position / t * n_groups,
                   n_groups * sizeof(*words));
            words[at.row_seq + row] = s;
        }
    }
}

#endif
