/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a request's rows, as tensors. */
#include "common/base/status.h"
#include "router/triton/infer_request_priv.h"

/* Most bytes that a piece of a stream writes to shared memory on the event
 * loop. */
#define MAX_WRITTEN (8u << 20)

void bt_infer_free_outputs(bt_tensors_t *t)
{
    for (size_t i = 0; i < t->n_outputs; i++) {
        bt_tensor_fini(&t->outputs[i]);
    }
    t->n_outputs = 0;
}

static bt_infer_response_t response_of(bt_tensors_t *t)
{
    return (bt_infer_response_t){
        .model = t->api.model,
        .version = t->request->served->version,
        .id = t->api.id,
        .request = &t->api,
        .outputs = t->outputs,
        .n_outputs = t->n_outputs,
        .empty_final = t->empty_final,
    };
}

void bt_infer_finish(bt_tensors_t *t)
{
    const bt_infer_response_t whole = response_of(t);

    bt_request_close(t->request);
    t->ops->finish(t->request, &whole);
}

static uint32_t pad_id(const bt_tensors_t *t)
{
    uint32_t id = 0;

    if (t->lowered.pad_id >= 0) {
        return (uint32_t)t->lowered.pad_id;
    }
    if (t->lowered.end_id >= 0) {
        return (uint32_t)t->lowered.end_id;
    }
    return (bt_tokenizer_end_ids(t->request->served->tok, &id, 1) == 1) ? id
                                                                        : 0;
}

/* @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  see bt_infer_outputs()
 * @retval others  the request's error is set */
static bt_status_t make(bt_tensors_t *t, const bt_infer_result_t *results,
                        size_t n, uint64_t max_written)
{
    const bt_infer_shape_t shape = {
        .spec = t->spec,
        .request = &t->api,
        .n_batch = t->request->n_rows,
        .pad_id = pad_id(t),
        .wants = t->lowered.wants,
        .max_logits = BT_ANSWER_LOGITS,
    };
    bt_status_t status;

    bt_infer_free_outputs(t);
    status = bt_infer_outputs(&shape, results, n, t->outputs, &t->n_outputs);
    if ((status == BT_OK) && bt_shm_tensors_writes(t->uses)) {
        status =
            bt_shm_tensors_write(t->uses, &t->api, t->outputs, t->n_outputs,
                                 max_written, &t->request->error);
    }
    return status;
}

static void fail_to_make(bt_tensors_t *t, bt_status_t status)
{
    if (status == BT_ERR_NO_MEMORY) {
        bt_request_fail_for_memory(t->request);
        return;
    }
    if (status == BT_ERR_TOO_LARGE) {
        bt_api_error_set(
            &t->request->error, 400, NULL,
            "the logits of this batch are more than the %u bytes that "
            "an answer has room for: ask return_context_logits and "
            "return_generation_logits of fewer rows at a time",
            BT_ANSWER_LOGITS);
    }
    bt_request_fail(t->request);
}

/* True when the request has no response after this piece of a row. */
static bool is_final(const bt_tensors_t *t, bool ends_row)
{
    /* After its last piece, a row counts as open until it has finished. */
    return ends_row && !t->empty_final &&
           (t->n_open <= (t->row_by_row ? 0 : 1));
}

/* The client may be gone afterwards. */
static void respond_piece(bt_tensors_t *t, const bt_infer_result_t *result,
                          bool ends_row)
{
    const bt_status_t status = make(t, result, 1, MAX_WRITTEN);
    bt_infer_response_t piece;

    if (status != BT_OK) {
        fail_to_make(t, status);
        return;
    }
    piece = response_of(t);
    piece.row = result->row;
    piece.ends_row = ends_row;
    piece.final = is_final(t, ends_row);
    t->final_sent = piece.final;
    t->ops->piece(t->request, &piece);
}

/* ---- results of a row ---- */

/* Number of ids to return: without the end id. */
static size_t n_ids_of(const bt_api_choice_t *choice)
{
    const bool drop = choice->by_end_id && (choice->n_token_ids > 0);

    return choice->n_token_ids - (drop ? 1 : 0);
}

/* Returns a view of @a choice, a piece or the whole answer of the row; all
 * pointers are borrowed.
 * @param choice  NULL: the row ends without an answer, or without more of it */
static bt_infer_result_t result_of(const bt_row_t *row,
                                   const bt_api_choice_t *choice)
{
    const bool is_whole = choice == row->choice;

    if (choice == NULL) {
        return (bt_infer_result_t){
            .row = row->index,
            .text = "",
            .prompt = row->prompt,
            .n_prompt = row->n_prompt,
            .cum_logprob = row->cum_logprob,
            .ends = true,
        };
    }
    return (bt_infer_result_t){
        .row = row->index,
        .text = choice->text,
        .text_bytes = choice->text_bytes,
        .prompt = is_whole ? row->prompt : NULL,
        .n_prompt = is_whole ? row->n_prompt : 0,
        .ids = choice->token_ids,
        .n_ids = (choice->token_ids != NULL) ? n_ids_of(choice) : 0,
        .rows = choice->rows,
        .from = choice->from,
        .to = choice->to,
        .cum_logprob = choice->cum_logprob,
        .ends = choice->finish != BT_FINISH_NONE,
    };
}

/* Makes one response of all rows; on the pool if logits are copied into it, or
 * outputs into shared memory. */
static void run_whole(bt_pool_job_t *job)
{
    bt_request_t *r = BT_REQUEST_JOB_OF(job, bt_request_t, job);
    bt_infer_result_t results[BT_API_MAX_PROMPTS];

    BT_ASSERT(r->n_rows <= BT_API_MAX_PROMPTS);
    for (size_t i = 0; i < r->n_rows; i++) {
        results[i] = result_of(&r->rows[i], r->rows[i].choice);
    }
    r->status = make(r->tensors, results, r->n_rows, UINT64_MAX);
}

static void made_whole(bt_pool_job_t *job)
{
    bt_request_t *r = BT_REQUEST_JOB_OF(job, bt_request_t, job);
    bt_tensors_t *t = r->tensors;

    r->front->n_answers -= r->is_inline ? 0 : 1;
    if (!bt_request_is_open(r)) {
        return;
    }
    if (!job->ran) {
        run_whole(job); /* the server is stopping: the rows are done */
    }
    if (r->status == BT_OK) {
        bt_infer_finish(t);
    } else {
        fail_to_make(t, r->status);
    }
}

static void respond_whole(bt_tensors_t *t)
{
    bt_request_t *r = t->request;

    r->is_inline =
        !bt_shm_tensors_writes(t->uses) &&
        ((r->n_rows == 1) || ((t->lowered.wants & BT_WANT_ANY_LOGITS) == 0));
    r->front->n_answers += r->is_inline ? 0 : 1;
    bt_request_post(&r->job, r->is_inline, run_whole, made_whole, r->queue,
                    r->work_bytes);
}

/* ---- events of a row ---- */

void bt_infer_on_piece(bt_row_t *row, const bt_api_choice_t *choice, bool first,
                       const bt_api_usage_t *usage)
{
    bt_tensors_t *t = row->request->tensors;
    const bt_infer_result_t result = result_of(row, choice);
    const bool adds =
        (choice->rows != NULL) && ((choice->to > choice->from) || result.ends);
    const bool empty =
        !adds && ((t->spec->role == BT_ROLE_IDS) ? result.n_ids == 0
                                                 : choice->no_new_text);

    (void)first;
    (void)usage;
    /* An empty end of a row is not delivered, unless it is all there is or ends
     * the request. */
    if (!empty || !row->has_sent || is_final(t, result.ends)) {
        row->has_sent = true;
        row->cum_logprob = choice->cum_logprob;
        respond_piece(t, &result, result.ends);
    }
}

void bt_infer_row_ended(bt_row_t *row)
{
    bt_request_t *r = row->request;
    bt_tensors_t *t = r->tensors;

    t->n_open--;
    if (t->row_by_row) {
        const bt_infer_result_t result = result_of(row, row->choice);

        respond_piece(t, &result, true);
    }
    if (bt_request_is_open(r) && (t->n_open == 0) && t->stream &&
        !t->final_sent && !t->empty_final) {
        /* Stopped: the last response still has outputs. */
        const bt_infer_result_t result = result_of(row, NULL);

        respond_piece(t, &result, true);
    }
    if (!bt_request_is_open(r) || (t->n_open > 0)) {
        return;
    }
    if (t->stream || t->row_by_row) {
        bt_infer_free_outputs(t);
        bt_infer_finish(t);
    } else {
        respond_whole(t);
    }
}

void bt_infer_on_finish(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                        const bt_api_usage_t *usage)
{
    (void)usage;
    row->choice = (n > 0) ? &choices[0] : NULL;
    bt_infer_row_ended(row);
}
