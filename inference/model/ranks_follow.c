/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that execute orders of rank 0: orders are validated and become
 * calls. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/ranks_priv.h"

/* Receives from rank 0 of this stage, or from the previous stage. */
static void hear_part(bt_ranks_t *ranks, void *data, size_t bytes)
{
    if (ranks->stage == 0) {
        bt_ranks_share(ranks, ranks->tables.host_stage, data, bytes);
    } else {
        bt_ranks_receive(ranks, ranks->tables.host, data, bytes);
    }
}

static bool hear(bt_ranks_t *ranks, bt_rank_order_t *order_p)
{
    if (ranks->next.kind != 0) {
        *order_p = ranks->next;
        ranks->next.kind = 0;
        return true;
    }
    hear_part(ranks, order_p, sizeof(*order_p));
    if ((ranks->status == BT_OK) && (order_p->n_words > ranks->max_words)) {
        ranks->status = BT_ERR_BAD_MESSAGE; /* another configuration */
    }
    if (ranks->status == BT_OK) {
        hear_part(ranks, ranks->words,
                  order_p->n_words * sizeof(*ranks->words));
    }
    if ((ranks->stage + 1 < ranks->n_stages) &&
        (order_p->kind != BT_RANK_RESULTS)) {
        bt_ranks_pass_order(ranks, order_p);
    }
    return ranks->status == BT_OK;
}

/* Reader of an order's words. Rank 0 has an equal configuration; an order that
 * still does not fit comes from one with another. */
typedef struct cursor {
    const uint32_t *at;
    size_t left;
} cursor_t;

/* @return NULL: not enough words */
static const uint32_t *take(cursor_t *c, size_t n)
{
    const uint32_t *words = c->at;

    if (n > c->left) {
        return NULL;
    }
    c->at += n;
    c->left -= n;
    return words;
}

static bool take_tokens(const bt_ranks_t *ranks, bt_rank_call_t *call,
                        cursor_t *c, uint32_t first, uint32_t n)
{
    const uint32_t *tokens = take(c, n);

    if ((tokens == NULL) || (first > ranks->max_rows) ||
        (n > ranks->max_rows - first)) {
        return false;
    }
    memcpy(call->tokens + first, tokens, n * sizeof(*tokens));
    return true;
}

static bool take_seqs(const bt_ranks_t *ranks, bt_rank_call_t *call,
                      cursor_t *c, uint32_t first, uint32_t n)
{
    if ((first > ranks->max_seqs) || (n > ranks->max_seqs - first)) {
        return false;
    }
    for (uint32_t i = first; i < first + n; i++) {
        const uint32_t *head = take(c, 4);
        const uint32_t *blocks = (head == NULL) ? NULL : take(c, head[3]);

        if ((blocks == NULL) ||
            (head[3] > ranks->max_blocks - call->n_blocks)) {
            return false;
        }
        call->seqs[i] =
            (bt_ragged_seq_t){.row = head[0],
                              .n_rows = head[1],
                              .pos = head[2],
                              .blocks = call->blocks + call->n_blocks};
        memcpy(call->blocks + call->n_blocks, blocks,
               head[3] * sizeof(*blocks));
        call->n_blocks += head[3];
    }
    return true;
}

static bool take_logit_rows(const bt_ranks_t *ranks, bt_rank_call_t *call,
                            cursor_t *c, uint32_t first, uint32_t n)
{
    const uint32_t *words = take(c, 2 * (size_t)n);

    if ((words == NULL) || (first > ranks->max_logit_rows) ||
        (n > ranks->max_logit_rows - first)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        call->logit_rows[first + i] = words[2 * i];
        call->needs[first + i] = words[2 * i + 1];
        if (call->needs[first + i] > BT_SAMPLER_MAX_NEEDS) {
            return false;
        }
    }
    return true;
}

static void fail_order(bt_ranks_t *ranks)
{
    bt_ranks_fail(ranks, BT_ERR_BAD_MESSAGE);
}

static void follow_step(bt_model_t *model, const bt_kv_view_t *kv,
                        const bt_kv_groups_t *groups, uint32_t n_words);

/* Executes an order about blocks. @return false: it is another order */
static bool follow_block(bt_model_t *model, const bt_kv_view_t *kv,
                         const bt_rank_order_t *order)
{
    if (order->kind == BT_RANK_COPY) {
        bt_model_copy_block(model, kv, order->a, order->b);
    } else if (order->kind == BT_RANK_CLEAR) {
        bt_model_clear_block(model, kv, order->a);
    } else {
        return false;
    }
    return true;
}

/* Receives the next order within a call that is not about blocks. */
static bool hear_within(bt_model_t *model, const bt_rank_call_t *call,
                        bt_rank_order_t *order_p)
{
    bool is_heard;

    do {
        is_heard = hear(model->ranks, order_p);
    } while (is_heard && follow_block(model, &call->fwd.kv, order_p));
    return is_heard;
}

static uint32_t follow_late(void *ctx, uint32_t n_layers)
{
    bt_model_t *model = ctx;
    bt_ranks_t *ranks = model->ranks;
    bt_rank_call_t *call = &ranks->calls[0];
    bt_rank_order_t order;
    cursor_t c;

    (void)n_layers;
    if (!hear_within(model, call, &order)) {
        return 0;
    }
    if (order.kind != BT_RANK_LATE) {
        ranks->next = order;
        return 0;
    }
    c = (cursor_t){.at = ranks->words, .left = order.n_words};
    if (!take_tokens(ranks, call, &c, call->fwd.n_rows, order.a) ||
        !take_seqs(ranks, call, &c, call->fwd.n_seqs, order.a) ||
        !take_logit_rows(ranks, call, &c, call->fwd.n_logit_rows, order.a)) {
        fail_order(ranks);
        return 0;
    }
    call->fwd.n_rows += order.a;
    call->fwd.n_seqs += order.a;
    call->fwd.n_logit_rows += order.a;
    return order.a;
}

static void follow_between(void *ctx, uint32_t n_layers)
{
    bt_model_t *model = ctx;
    bt_ranks_t *ranks = model->ranks;
    const bt_rank_call_t *call = &ranks->calls[0];
    bt_rank_order_t order;

    (void)n_layers;
    while (hear_within(model, call, &order) && (order.kind == BT_RANK_STEP)) {
        ranks->depth = 1;
        follow_step(model, &call->fwd.kv, call->fwd.groups, order.n_words);
        ranks->depth = 0;
    }
    if ((ranks->status == BT_OK) && (order.kind != BT_RANK_GO_ON)) {
        ranks->status = BT_ERR_BAD_MESSAGE;
    }
}

static void follow_step(bt_model_t *model, const bt_kv_view_t *kv,
                        const bt_kv_groups_t *groups, uint32_t n_words)
{
    bt_ranks_t *ranks = model->ranks;
    bt_rank_call_t *call = &ranks->calls[ranks->depth];
    cursor_t c = {.at = ranks->words, .left = n_words};
    const uint32_t *head = take(&c, BT_RANK_STEP_WORDS);
    const bool talks = (head != NULL) && (head[4] != 0);
    float *logits;
    bt_status_t status;

    if (head == NULL) {
        fail_order(ranks);
        return;
    }
    call->n_blocks = 0;
    call->fwd = (bt_forward_t){
        .seqs = call->seqs,
        .n_seqs = head[1],
        .tokens = call->tokens,
        .n_rows = head[0],
        .first_row = head[3],
        .logit_rows = call->logit_rows,
        .n_logit_rows = head[2],
        .needs = call->needs,
        .best_ids = call->best_ids,
        .kv = *kv,
        .groups = groups,
        .take_late = talks ? follow_late : NULL,
        .take_late_ctx = model,
        .between_layers = talks ? follow_between : NULL,
        .between_layers_ctx = model,
    };
    if (!take_tokens(ranks, call, &c, 0, head[0]) ||
        !take_seqs(ranks, call, &c, 0, head[1]) ||
        !take_logit_rows(ranks, call, &c, 0, head[2])) {
        fail_order(ranks);
        return;
    }
    status = bt_model_takes_results(model)
                 ? bt_model_start(model, &call->fwd)
                 : bt_model_forward(model, &call->fwd, &logits);
    if (status != BT_OK) {
        bt_ranks_fail(ranks, status);
    }
}

/* Finishes the oldest step, whose results the last stage sends. */
static void follow_results(bt_model_t *model)
{
    float *logits;
    const bt_status_t status =
        bt_model_finish(model, &model->ranks->calls[0].fwd, &logits);

    if (status != BT_OK) {
        bt_ranks_fail(model->ranks, status);
    }
}

/* Executes the next call of the draft model. */
static void follow_draft(bt_ranks_t *ranks, bt_model_t *draft,
                         const bt_kv_view_t *kv, const bt_kv_groups_t *groups)
{
    bt_rank_order_t order = {0};

    if (draft == NULL) {
        fail_order(ranks);
        return;
    }
    if (hear(draft->ranks, &order)) {
        if (order.kind == BT_RANK_STEP) {
            follow_step(draft, kv, groups, order.n_words);
        } else {
            fail_order(draft->ranks);
        }
    }
    if (draft->ranks->status != BT_OK) {
        bt_ranks_fail(ranks, draft->ranks->status);
    }
}

bt_status_t bt_model_follow(bt_model_t *model, bt_model_t *draft,
                            const bt_kv_view_t *kv,
                            const bt_kv_groups_t *groups)
{
    bt_ranks_t *ranks = model->ranks;
    bt_rank_order_t order = {0};

    while (hear(ranks, &order) && (order.kind != BT_RANK_END)) {
        if (order.kind == BT_RANK_STEP) {
            follow_step(model, kv, groups, order.n_words);
        } else if (order.kind == BT_RANK_RESULTS) {
            follow_results(model);
        } else if (order.kind == BT_RANK_DRAFT) {
            follow_draft(ranks, draft, kv, groups);
        } else if (!follow_block(model, kv, &order)) {
            ranks->status = BT_ERR_BAD_MESSAGE;
        }
    }
    return ranks->status;
}

/* ---- calls ---- */

bt_status_t bt_rank_call_init(bt_rank_call_t *call, const bt_ranks_t *ranks)
{
    const size_t n_logit_rows = ranks->max_logit_rows;

    call->seqs = bt_calloc(ranks->max_seqs, sizeof(*call->seqs));
    call->tokens = bt_calloc(ranks->max_rows, sizeof(*call->tokens));
    call->logit_rows = bt_calloc(n_logit_rows, sizeof(*call->logit_rows));
    call->needs = bt_calloc(n_logit_rows, sizeof(*call->needs));
    call->best_ids = bt_calloc(n_logit_rows, sizeof(*call->best_ids));
    call->blocks = bt_calloc(ranks->max_blocks, sizeof(*call->blocks));
    return ((call->seqs != NULL) && (call->tokens != NULL) &&
            (call->logit_rows != NULL) && (call->needs != NULL) &&
            (call->best_ids != NULL) && (call->blocks != NULL))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

void bt_rank_call_fini(bt_rank_call_t *call)
{
    bt_free(call->seqs);
    bt_free(call->tokens);
    bt_free(call->logit_rows);
    bt_free(call->needs);
    bt_free(call->best_ids);
    bt_free(call->blocks);
}
