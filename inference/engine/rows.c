/* SPDX-License-Identifier: Apache-2.0 */
/* Stores logits of positions for their owner. */
#include <string.h>

#include "inference/engine/engine_priv.h"
#include "inference/model/logprob.h"

bool bt_engine_wants_row(const bt_seq_t *seq, uint32_t position)
{
    const bt_seq_rows_t *rows = seq->rows;

    return (rows != NULL) && (position >= rows->from) &&
           (position >= rows->done) && (position - rows->from < rows->n);
}

void bt_engine_store_row(const bt_seq_t *seq, uint32_t position,
                         const float *logits, uint32_t n_vocab)
{
    const bt_seq_rows_t *rows = seq->rows;
    const size_t i = position - rows->from;
    uint32_t *ids =
        (rows->top_ids == NULL) ? NULL : rows->top_ids + i * rows->n_top;
    double sum;

    if (rows->logits != NULL) {
        memcpy(rows->logits + i * n_vocab, logits, n_vocab * sizeof(*logits));
    }
    if (ids != NULL) {
        bt_logprob_top(logits, n_vocab, rows->n_top, ids);
    }
    if (rows->logprobs == NULL) {
        return;
    }
    sum = bt_logprob_sum(logits, n_vocab);
    rows->logprobs[i] = (double)logits[seq->tokens[position + 1]] - sum;
    for (uint32_t k = 0;
         (ids != NULL) && (rows->top_logprobs != NULL) && (k < rows->n_top);
         k++) {
        rows->top_logprobs[i * rows->n_top + k] = (double)logits[ids[k]] - sum;
    }
}

void bt_engine_store_scored(const bt_seq_t *seq, uint32_t position,
                            const bt_scored_t *scored, const bt_first_t *top)
{
    const bt_seq_rows_t *rows = seq->rows;
    const size_t i = position - rows->from;

    if (rows->logprobs != NULL) {
        rows->logprobs[i] = bt_logprob_of(scored);
    }
    for (uint32_t k = 0; (rows->top_ids != NULL) && (k < rows->n_top); k++) {
        const size_t at = i * rows->n_top + k;

        rows->top_ids[at] = top->ids[k];
        if ((rows->logprobs != NULL) && (rows->top_logprobs != NULL)) {
            rows->top_logprobs[at] =
                bt_logprob_of_logit(scored, top->logits[k]);
        }
    }
}
