/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/micro.h"

#define PER_STAGE 2u /* a stage is idle for 1 of 3 microbatches at most */

uint32_t bt_micro_count(uint32_t n_rows, uint32_t n_stages, uint32_t min_rows)
{
    const uint32_t least = bt_micro_least(min_rows);
    const uint32_t n = n_rows / least;
    const uint32_t most = (n_stages > 1) ? PER_STAGE * n_stages : 1;

    return (n == 0) ? 1 : (n < most) ? n : most;
}

/* Returns the first row of microbatch i. */
static uint32_t row_of(const bt_micro_t *micro, uint32_t i)
{
    return (uint32_t)((uint64_t)micro->whole->n_rows * i / micro->n);
}

/* Finds the parts of sequences in rows [row, end). @return how many */
static uint32_t cut_seqs(bt_micro_t *micro, uint32_t row, uint32_t end)
{
    uint32_t n = 0;
    uint32_t at = row;

    while (at < end) {
        const bt_ragged_seq_t *const seq = &micro->whole->seqs[micro->seq];
        const uint32_t seq_end = seq->row + seq->n_rows;
        const uint32_t until = (seq_end < end) ? seq_end : end;

        micro->seqs[n] = *seq;
        micro->seqs[n].row = at - row;
        micro->seqs[n].n_rows = until - at;
        micro->seqs[n].pos = seq->pos + (at - seq->row);
        n++;
        micro->seq += (until == seq_end);
        at = until;
    }
    return n;
}

bool bt_micro_next(bt_micro_t *micro, bt_batch_t *batch_p)
{
    const bt_batch_t *const whole = micro->whole;
    const uint32_t row = row_of(micro, micro->next);
    const uint32_t end = row_of(micro, micro->next + 1);
    uint32_t n_logits = 0;

    if (micro->next == micro->n) {
        return false;
    }
    micro->next++;
    micro->first_logit = micro->end_logit;
    while ((micro->end_logit < whole->n_logit_rows) &&
           (whole->logit_rows[micro->end_logit] < end)) {
        micro->logit_rows[n_logits++] =
            whole->logit_rows[micro->end_logit++] - row;
    }
    *batch_p = *whole;
    batch_p->tokens = whole->tokens + row;
    batch_p->seqs = micro->seqs;
    batch_p->logit_rows = micro->logit_rows;
    batch_p->n_rows = end - row;
    batch_p->n_seqs = cut_seqs(micro, row, end);
    batch_p->n_logit_rows = n_logits;
    return true;
}
