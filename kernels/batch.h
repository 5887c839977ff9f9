/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch.h
 *
 * Serialises the tables of a batch (bt_batch_t) into one run of 32-bit words,
 * for a back end that uploads them in one copy. A back end whose memory is the
 * host's reads the batch's own arrays and does not need this file.
 *
 *     token[n_rows]       as in the batch
 *     position[n_rows]    of each row in its sequence
 *     block[n_rows][n_groups]
 *                         ids of the blocks that hold this position; the row is
 *                         slot position % T of them
 *     row_seq[n_rows]     index of the sequence that a row belongs to
 *     logit_row[n_logit_rows]
 *     from_id[n_rows]     only if the batch has from_ids
 *     seq[n_seqs][4]      row, n_rows, pos, start of its ids in id[]
 *     draw[n_draws][13]   bt_draw_t; first_edit is an index into all words
 *     scoring[n_scorings][3]
 *                         bt_scoring_t
 *     id[...][n_groups]   block ids of all sequences, one after the other
 *     edit[n_edits][4]    bt_draw_edit_t
 *
 * Tables that grow with each step come last; the offsets of the others depend
 * only on the number of rows, sequences and draws.
 *
 * C and C++ alike. A plugin cannot link the library, so everything is inline.
 *
 * Threads: pure functions.
 */
#ifndef BT_KERNELS_BATCH_H
#define BT_KERNELS_BATCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define BT_BATCH_SEQ_WORDS     4u /**< words of one seq[] entry */
#define BT_BATCH_DRAW_WORDS    (sizeof(bt_draw_t) / sizeof(uint32_t))
#define BT_BATCH_EDIT_WORDS    (sizeof(bt_draw_edit_t) / sizeof(uint32_t))
#define BT_BATCH_SCORING_WORDS (sizeof(bt_scoring_t) / sizeof(uint32_t))

/** Offset of each table, in words from the first. */
typedef struct bt_batch_layout {
    size_t token;
    size_t position;
    size_t block;
    size_t row_seq;
    size_t logit_row;
    size_t from_id;
    size_t seq;
    size_t draw;
    size_t scoring;
    size_t id;
    size_t edit;
    size_t n_words; /**< total size */
} bt_batch_layout_t;

/** Returns the number of blocks of one group that the rows of a sequence read
 *  and write: the blocks of positions 0 .. pos + n_rows - 1. */
static inline size_t bt_batch_blocks(const bt_ragged_seq_t *seq,
                                     uint32_t tokens_per_block)
{
    return ((size_t)seq->pos + seq->n_rows + tokens_per_block - 1) /
           tokens_per_block;
}

static inline bt_batch_layout_t bt_batch_layout_of(const bt_batch_limits_t *n,
                                                   size_t n_from_ids)
{
    const size_t n_groups = (size_t)n->max_other_groups + 1;
    const size_t n_rows = n->max_rows;
    bt_batch_layout_t at;

    at.token = 0;
    at.position = n_rows;
    at.block = 2 * n_rows;
    at.row_seq = (2 + n_groups) * n_rows;
    at.logit_row = (3 + n_groups) * n_rows;
    at.from_id = at.logit_row + n->max_logit_rows;
    at.seq = at.from_id + n_from_ids;
    at.draw = at.seq + (size_t)BT_BATCH_SEQ_WORDS * n->max_seqs;
    at.scoring = at.draw + BT_BATCH_DRAW_WORDS * n->max_draws;
    at.id = at.scoring + BT_BATCH_SCORING_WORDS * n->max_scorings;
    at.edit = at.id + n->max_blocks;
    at.n_words = at.edit + BT_BATCH_EDIT_WORDS * n->max_edits;
    return at;
}

/** Returns the number of words of the largest batch. */
static inline size_t bt_batch_max_words(const bt_batch_limits_t *limits)
{
    return bt_batch_layout_of(limits, limits->max_rows).n_words;
}

/** Returns the offsets of the tables of @a batch. */
static inline bt_batch_layout_t bt_batch_layout(const bt_batch_t *batch)
{
    const size_t n_groups = (size_t)batch->n_other_groups + 1;
    bt_batch_limits_t n;
    size_t n_blocks = 0;

    for (uint32_t s = 0; s < batch->n_seqs; s++) {
        n_blocks += bt_batch_blocks(&batch->seqs[s], batch->tokens_per_block);
    }
    n.max_rows = batch->n_rows;
    n.max_seqs = batch->n_seqs;
    n.max_logit_rows = batch->n_logit_rows;
    n.max_draws = batch->n_draws;
    n.max_edits = batch->n_edits;
    n.max_scorings = batch->n_scorings;
    n.max_other_groups = batch->n_other_groups;
    n.max_blocks = n_groups * n_blocks;
    return bt_batch_layout_of(&n,
                              (batch->from_ids == NULL) ? 0 : batch->n_rows);
}

/** True when the batch is within the limits. Then bt_batch_layout().n_words is
 *  at most bt_batch_max_words(). */
static inline bool bt_batch_fits(const bt_batch_t *batch,
                                 const bt_batch_limits_t *limits)
{
    const bt_batch_layout_t at = bt_batch_layout(batch);

    return (batch->n_rows <= limits->max_rows) &&
           (batch->n_seqs <= limits->max_seqs) &&
           (batch->n_logit_rows <= limits->max_logit_rows) &&
           (batch->n_draws <= limits->max_draws) &&
           (batch->n_edits <= limits->max_edits) &&
           (batch->n_scorings <= limits->max_scorings) &&
           (batch->n_other_groups <= limits->max_other_groups) &&
           (at.edit - at.id <= limits->max_blocks);
}

static inline void bt_batch_pack_draws(const bt_batch_t *batch,
                                       const bt_batch_layout_t *at,
                                       uint32_t *words)
{
    for (uint32_t i = 0; i < batch->n_draws; i++) {
        bt_draw_t draw = batch->draws[i];

        draw.first_edit =
            (uint32_t)(at->edit + BT_BATCH_EDIT_WORDS * draw.first_edit);
        memcpy(words + at->draw + BT_BATCH_DRAW_WORDS * i, &draw, sizeof(draw));
    }
    if (batch->n_scorings > 0) {
        memcpy(words + at->scoring, batch->scorings,
               batch->n_scorings * sizeof(*batch->scorings));
    }
    if (batch->n_edits > 0) {
        memcpy(words + at->edit, batch->edits,
               batch->n_edits * sizeof(*batch->edits));
    }
}

/** Writes all tables.
 *  @param [out] words  (bt_batch_layout().n_words) */
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
    bt_batch_pack_draws(batch, &at, words);
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
