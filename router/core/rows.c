/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/rows.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"

/* ---- the prompt ---- */

bt_status_t bt_prompt_create(uint32_t *tokens, uint32_t n,
                             bt_prompt_t **prompt_p)
{
    bt_prompt_t *prompt = bt_calloc(1, sizeof(*prompt));

    if (prompt == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    atomic_init(&prompt->n_refs, 1);
    prompt->n = n;
    prompt->tokens = tokens;
    *prompt_p = prompt;
    return BT_OK;
}

bt_prompt_t *bt_prompt_ref(bt_prompt_t *prompt)
{
    atomic_fetch_add_explicit(&prompt->n_refs, 1, memory_order_relaxed);
    return prompt;
}

void bt_prompt_unref(bt_prompt_t *prompt)
{
    /* Reads by other owners happen before the free. */
    if ((prompt != NULL) &&
        (atomic_fetch_sub_explicit(&prompt->n_refs, 1, memory_order_acq_rel) ==
         1)) {
        bt_free(prompt->tokens);
        bt_free(prompt->draft_ids);
        bt_free(prompt->processor_ids);
        bt_free(prompt->grammar);
        bt_prompt_table_unref(prompt->table);
        bt_free(prompt);
    }
}

/* ---- rows ---- */

static bool wants(const bt_gen_rows_t *rows, uint32_t what)
{
    return (rows->wants.what & what) != 0;
}

/* ---- birth ---- */

static bool alloc_logits(uint32_t n_rows, uint32_t n_vocab, float **logits_p,
                         uint32_t **filled_p)
{
    *logits_p = bt_calloc((size_t)n_rows * n_vocab, sizeof(**logits_p));
    *filled_p = bt_calloc(n_rows, sizeof(**filled_p));
    return (*logits_p != NULL) && (*filled_p != NULL);
}

/* Reserves space for @a n tokens, and some more. */
static bt_status_t reserve_scores(bt_scores_t *scores, uint32_t n)
{
    const size_t n_top = scores->n_top;
    const struct {
        void *array_p;
        size_t size;
    } arrays[] = {
        {&scores->top_ids, n_top * sizeof(*scores->top_ids)},
        {&scores->top_logprobs, n_top * sizeof(*scores->top_logprobs)},
        {&scores->ids, sizeof(*scores->ids)},
        {&scores->logprobs, sizeof(*scores->logprobs)},
    };
    uint32_t cap = scores->cap;

    /* Each array stays valid if a later allocation fails. */
    for (size_t i = 0; i < BT_ARRAY_LEN(arrays); i++) {
        cap = scores->cap;
        if ((arrays[i].size > 0) &&
            !bt_array_grow(arrays[i].array_p, &cap, n, arrays[i].size)) {
            return BT_ERR_NO_MEMORY;
        }
    }
    for (uint32_t i = scores->cap; i < cap; i++) {
        scores->logprobs[i] = NAN;
    }
    scores->cap = cap;
    return BT_OK;
}

static bt_status_t alloc_all(bt_gen_rows_t *rows, const bt_prompt_t *prompt)
{
    bt_status_t status = BT_OK;

    if (wants(rows, BT_WANT_PROMPT_LOGITS) &&
        !alloc_logits(rows->n_prompt, rows->n_vocab, &rows->context_logits,
                      &rows->context_filled)) {
        return BT_ERR_NO_MEMORY;
    }
    if (wants(rows, BT_WANT_LOGITS) &&
        !alloc_logits(rows->max_new, rows->n_vocab, &rows->generation_logits,
                      &rows->generation_filled)) {
        return BT_ERR_NO_MEMORY;
    }
    if (wants(rows, BT_WANT_PROMPT_LOGPROBS)) {
        status = reserve_scores(&rows->scores, rows->n_prompt);
        if (status == BT_OK) {
            memcpy(rows->scores.ids, prompt->tokens,
                   prompt->n * sizeof(*prompt->tokens));
            if (rows->scores.n_top > 0) { /* the first token has none */
                memset(rows->scores.top_ids, 0,
                       rows->scores.n_top * sizeof(*rows->scores.top_ids));
                memset(rows->scores.top_logprobs, 0,
                       rows->scores.n_top * sizeof(*rows->scores.top_logprobs));
            }
            rows->n_front = rows->n_prompt;
            rows->scores.n = rows->n_prompt;
        }
    }
    return status;
}

bt_status_t bt_gen_rows_create(const bt_wants_t *asked,
                               const bt_prompt_t *prompt, uint32_t max_new,
                               uint32_t n_vocab, bt_gen_rows_t **rows_p)
{
    bt_gen_rows_t *rows = bt_calloc(1, sizeof(*rows));

    BT_ASSERT(asked->n_top <= BT_MAX_TOP_LOGPROBS);
    if (rows == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    atomic_init(&rows->n_refs, 1);
    rows->wants = *asked;
    rows->n_vocab = n_vocab;
    rows->n_prompt = prompt->n;
    rows->max_new = max_new;
    rows->n_scored = 1;
    rows->scores.n_top = asked->n_top;
    if (alloc_all(rows, prompt) != BT_OK) {
        bt_gen_rows_unref(rows);
        return BT_ERR_NO_MEMORY;
    }
    *rows_p = rows;
    return BT_OK;
}

void bt_gen_rows_hold(bt_gen_rows_t *rows, bt_gen_rows_held_t *held,
                      uint64_t bytes)
{
    rows->held = held;
    rows->held_bytes = bytes;
    atomic_fetch_add_explicit(held, bytes, memory_order_relaxed);
}

bt_gen_rows_t *bt_gen_rows_ref(bt_gen_rows_t *rows)
{
    atomic_fetch_add_explicit(&rows->n_refs, 1, memory_order_relaxed);
    return rows;
}

void bt_gen_rows_unref(bt_gen_rows_t *rows)
{
    if ((rows == NULL) || (atomic_fetch_sub_explicit(
                               &rows->n_refs, 1, memory_order_acq_rel) > 1)) {
        return;
    }
    if (rows->held != NULL) {
        atomic_fetch_sub_explicit(rows->held, rows->held_bytes,
                                  memory_order_relaxed);
    }
    bt_free(rows->scores.ids);
    bt_free(rows->scores.logprobs);
    bt_free(rows->scores.top_ids);
    bt_free(rows->scores.top_logprobs);
    bt_free(rows->context_logits);
    bt_free(rows->context_filled);
    bt_free(rows->generation_logits);
    bt_free(rows->generation_filled);
    bt_free(rows);
}

uint64_t bt_gen_rows_logits_bytes(const bt_wants_t *asked, uint32_t n_prompt,
                                  uint32_t max_new, uint32_t n_vocab)
{
    uint64_t n = 0;

    /* A worker stores the logits as one array, from the first requested row to
     * the last. */
    if ((asked->what & BT_WANT_ANY_LOGITS) == 0) {
        return 0;
    }
    if ((asked->what & BT_WANT_ANY_OF_PROMPT) != 0) {
        n += n_prompt;
    }
    if ((asked->what & ~BT_WANT_ANY_OF_PROMPT) != 0) {
        n += max_new;
    }
    return n * n_vocab * sizeof(float);
}

/* ---- log-probs ---- */

static void put_score(bt_scores_t *scores, uint32_t at, const bt_score_t *score)
{
    scores->logprobs[at] = score->logprob;
    for (uint32_t k = 0; k < scores->n_top; k++) {
        scores->top_ids[(size_t)at * scores->n_top + k] = score->top_ids[k];
        scores->top_logprobs[(size_t)at * scores->n_top + k] =
            score->top_logprobs[k];
    }
}

/* True when all ids are in the vocabulary, and as many as requested. */
static bool is_sound(const bt_gen_rows_t *rows, const bt_score_t *score)
{
    if (score->n_top != rows->scores.n_top) {
        return false;
    }
    for (uint32_t k = 0; k < score->n_top; k++) {
        if (score->top_ids[k] >= rows->n_vocab) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_gen_rows_score(bt_gen_rows_t *rows, uint32_t index,
                              const bt_score_t *score)
{
    bt_status_t status;

    if ((index >= rows->max_new) || !is_sound(rows, score)) {
        return BT_ERR_BAD_MESSAGE;
    }
    status = reserve_scores(&rows->scores, rows->n_front + index + 1);
    if (status == BT_OK) {
        put_score(&rows->scores, rows->n_front + index, score);
    }
    return status;
}

static bt_status_t take_prompt(bt_gen_rows_t *rows, const bt_msg_rows_t *msg)
{
    const uint32_t each = BT_SCORE_BYTES(rows->scores.n_top);
    uint32_t n;

    if (!wants(rows, BT_WANT_PROMPT_LOGPROBS) ||
        (msg->n_top != rows->scores.n_top) || (msg->data_bytes % each != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = msg->data_bytes / each;
    if ((msg->from > rows->n_scored) || (n > rows->n_prompt - msg->from)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_score_t score;

        bt_score_get(msg->data + (size_t)i * each, msg->n_top, &score);
        if (!is_sound(rows, &score)) {
            return BT_ERR_BAD_MESSAGE;
        }
        if (msg->from + i == rows->n_scored) {
            put_score(&rows->scores, rows->n_scored, &score);
            rows->n_scored++;
        }
    }
    return BT_OK;
}

/* ---- logits ---- */

/* Stores a piece of one row, in order within the row. */
static bt_status_t fill(const bt_gen_rows_t *rows, const bt_msg_rows_t *msg,
                        uint32_t n_rows, float *logits, uint32_t *filled)
{
    const uint32_t n = msg->data_bytes / (uint32_t)sizeof(float);

    if ((logits == NULL) || (msg->data_bytes % sizeof(float) != 0) ||
        (msg->from >= n_rows) || (msg->offset > rows->n_vocab) ||
        (n > rows->n_vocab - msg->offset) ||
        (msg->offset > filled[msg->from])) {
        return BT_ERR_BAD_MESSAGE;
    }
    if ((n > 0) && (msg->offset + n > filled[msg->from])) {
        memcpy(logits + (size_t)msg->from * rows->n_vocab + msg->offset,
               msg->data, msg->data_bytes);
        filled[msg->from] = msg->offset + n;
    }
    return BT_OK;
}

bt_status_t bt_gen_rows_take(bt_gen_rows_t *rows, const bt_msg_rows_t *msg)
{
    bt_status_t status;

    switch (msg->kind) {
    case BT_ROWS_PROMPT_LOGPROBS:
        return take_prompt(rows, msg);
    case BT_ROWS_PROMPT_LOGITS:
        status = fill(rows, msg, rows->n_prompt, rows->context_logits,
                      rows->context_filled);
        while ((status == BT_OK) && (rows->n_context < rows->n_prompt) &&
               (rows->context_filled[rows->n_context] == rows->n_vocab)) {
            rows->n_context++;
        }
        return status;
    case BT_ROWS_LOGITS:
        return fill(rows, msg, rows->max_new, rows->generation_logits,
                    rows->generation_filled);
    default:
        return BT_OK; /* kind of a newer worker */
    }
}

/* ---- in order ---- */

bool bt_gen_rows_has_logits(const bt_gen_rows_t *rows, uint32_t index)
{
    return !wants(rows, BT_WANT_LOGITS) ||
           (rows->generation_filled[index] == rows->n_vocab);
}

bt_wants_t bt_gen_rows_missing(const bt_gen_rows_t *rows)
{
    bt_wants_t missing = rows->wants;

    if (rows->n_scored >= rows->n_prompt) {
        missing.what &= ~BT_WANT_PROMPT_LOGPROBS;
    }
    if (rows->n_context == rows->n_prompt) {
        missing.what &= ~BT_WANT_PROMPT_LOGITS;
    }
    return missing;
}

bool bt_gen_rows_ready(const bt_gen_rows_t *rows, uint32_t index)
{
    if (wants(rows, BT_WANT_PROMPT_LOGPROBS) &&
        (rows->n_scored < rows->n_prompt)) {
        return false;
    }
    if (wants(rows, BT_WANT_PROMPT_LOGITS) &&
        (rows->n_context < rows->n_prompt)) {
        return false;
    }
    return bt_gen_rows_has_logits(rows, index);
}

void bt_gen_rows_append(bt_gen_rows_t *rows, uint32_t index, uint32_t id)
{
    rows->n_output = index + 1;
    if (wants(rows, BT_WANT_LOGPROBS) &&
        (rows->n_front + index < rows->scores.cap)) {
        rows->scores.ids[rows->n_front + index] = id;
        rows->scores.n = rows->n_front + index + 1;
    }
}
