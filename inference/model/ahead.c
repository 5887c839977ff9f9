/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/ahead.h"

#include <string.h>

#include "inference/model/drawing.h"
#include "inference/model/model_priv.h"
#include "inference/model/sampler.h"

static bool draws(const bt_forward_t *fwd)
{
    return (fwd->drawing != NULL) && (fwd->drawing->n_draws > 0);
}

/* True when only draws, or the best of each row, are needed; scores might make
 * the host read a row again. */
bool bt_model_is_followed(const bt_forward_t *fwd)
{
    const uint32_t need = draws(fwd) ? BT_NEEDS_NOTHING : 1;

    for (uint32_t i = 0; i < fwd->n_logit_rows; i++) {
        if ((fwd->needs == NULL) || (fwd->needs[i] != need)) {
            return false;
        }
    }
    return (fwd->drawing == NULL) || (fwd->drawing->n_scorings == 0);
}

/* Ranks have words of their own, and exchange results. */
static bool can(const bt_backend_t *be, const bt_model_config_t *config)
{
    return (config->host_coll == NULL) && bt_backend_owns_memory(be) &&
           (be->ops->returns_open != NULL) && (be->ops->take_tokens != NULL) &&
           (be->ops->argmax != NULL);
}

/* Returns the size of a slot. */
static size_t ids_bytes(const bt_model_config_t *config)
{
    return config->max_logit_rows * sizeof(uint32_t);
}

size_t bt_ahead_bytes(const bt_backend_t *be, const bt_model_config_t *config)
{
    return can(be, config) ? BT_AHEAD_MAX * ids_bytes(config) : 0;
}

bt_status_t bt_ahead_open(bt_model_t *model)
{
    return can(model->be, &model->config)
               ? model->be->ops->returns_open(model->be, BT_AHEAD_MAX,
                                              ids_bytes(&model->config),
                                              &model->ahead.returns)
               : BT_OK;
}

void bt_ahead_close(bt_model_t *model)
{
    if (model->ahead.returns.user != NULL) {
        model->be->ops->returns_close(&model->ahead.returns);
    }
}

bool bt_model_chains(const bt_model_t *model)
{
    return model->ahead.returns.user != NULL;
}

bool bt_ahead_fits(const bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_ahead_t *const a = &model->ahead;
    const uint32_t last = (a->first + a->n + BT_AHEAD_MAX - 1) % BT_AHEAD_MAX;

    if (a->n == 0) {
        return fwd->from_ids == NULL;
    }
    if ((a->n == BT_AHEAD_MAX) || !a->only_ids[last]) {
        return false;
    }
    for (uint32_t r = 0; (fwd->from_ids != NULL) && (r < fwd->n_rows); r++) {
        if ((fwd->from_ids[r] != UINT32_MAX) &&
            (fwd->from_ids[r] >= a->n_ids[last])) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_ahead_start(bt_model_t *model, const bt_forward_t *fwd)
{
    bt_ahead_t *const a = &model->ahead;
    const uint32_t slot = (a->first + a->n) % BT_AHEAD_MAX;
    const uint32_t n = fwd->n_logit_rows;
    bt_forward_t whole;
    const bt_status_t status = bt_model_run_layers(model, fwd, &whole);

    if (status != BT_OK) {
        a->n = (status == BT_ERR_INVALID_PARAM) ? a->n : 0;
        return status;
    }
    a->only_ids[slot] = bt_model_is_followed(fwd);
    a->n_ids[slot] = draws(fwd) ? fwd->drawing->n_draws : n;
    a->n++;
    if (!a->only_ids[slot]) {
        return BT_OK; /* bt_ahead_finish() fetches the results */
    }
    a->ids = draws(fwd) ? model->drawn : model->best_ids;
    if (draws(fwd)) {
        bt_drawn_ask(model, fwd);
    } else if (n > 0) {
        model->be->ops->argmax(model->be, model->logits, n, model->hp.n_vocab,
                               model->best_ids);
    }
    a->returns.send(a->returns.user, slot, a->ids,
                    a->n_ids[slot] * sizeof(*a->ids));
    return BT_OK;
}

bt_status_t bt_ahead_finish(bt_model_t *model, const bt_forward_t *fwd)
{
    bt_ahead_t *const a = &model->ahead;
    const uint32_t slot = a->first;
    const void *ids = NULL;
    bt_status_t status;

    a->first = (a->first + 1) % BT_AHEAD_MAX;
    a->n--;
    if (!a->only_ids[slot]) {
        return bt_model_results(model, fwd);
    }
    status = a->returns.wait(a->returns.user, slot, &ids);
    if (status != BT_OK) {
        a->n = 0; /* the call started behind it is abandoned */
    }
    if ((status == BT_OK) && (a->n_ids[slot] > 0)) {
        memcpy(draws(fwd) ? fwd->drawing->ids : fwd->best_ids, ids,
               a->n_ids[slot] * sizeof(uint32_t));
    }
    return status;
}

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
