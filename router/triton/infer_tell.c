/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer_call_priv.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/frontend/call.h"
#include "router/frontend/watching.h"

/* Most bytes that a piece of a stream writes to shared memory on the event
 * loop. */
#define MAX_WRITTEN (8u << 20)

void bt_infer_call_free_outputs(bt_infer_call_t *call)
{
    for (size_t i = 0; i < call->n_outputs; i++) {
        bt_tensor_fini(&call->outputs[i]);
    }
    call->n_outputs = 0;
}

bt_infer_reply_t *bt_infer_call_take_reply(bt_infer_call_t *call)
{
    bt_infer_reply_t *reply = call->reply;

    /* The response may still be written for some time: the id must not find
     * this call. */
    bt_list_remove(&call->stoppable);
    call->reply = NULL;
    reply->call = NULL;
    return reply;
}

/* Adds the facts of a row to those of the reply, for the log. */
void bt_infer_call_add_facts(bt_infer_call_t *call, const bt_infer_row_t *row)
{
    bt_reply_facts_t *facts = &call->reply->facts;
    const bt_reply_facts_t *more = &row->reply.facts;

    facts->n_prompt += more->n_prompt;
    facts->n_output += more->n_output;
    if ((facts->first_token_us == 0) ||
        ((more->first_token_us != 0) &&
         (more->first_token_us < facts->first_token_us))) {
        facts->first_token_us = more->first_token_us;
    }
    facts->finish = more->finish;
    memcpy(facts->prefill, more->prefill, sizeof(facts->prefill));
    memcpy(facts->decode, more->decode, sizeof(facts->decode));
    memcpy(facts->answer_id, more->answer_id, sizeof(facts->answer_id));
    memcpy(facts->tenant, more->tenant, sizeof(facts->tenant));
    memcpy(facts->trace_id, more->trace_id, sizeof(facts->trace_id));
}

/* Cancels the rows that still run. */
void bt_infer_call_cancel_rows(bt_infer_call_t *call)
{
    for (size_t i = 0; i < call->n_rows; i++) {
        bt_infer_row_t *row = &call->rows[i];

        if (row->reply.call != NULL) {
            bt_call_gone(row->reply.call);
            bt_infer_call_add_facts(call, row);
        }
    }
    call->n_open = 0;
}

void bt_infer_call_fail(bt_infer_call_t *call, const bt_api_error_t *error)
{
    const bt_api_error_t copy = *error;
    bt_infer_reply_t *reply;

    if (call->reply == NULL) {
        return;
    }
    bt_infer_call_cancel_rows(call);
    reply = bt_infer_call_take_reply(call);
    reply->ops->error(reply, &copy);
}

void bt_infer_call_fail_for_memory(bt_infer_call_t *call)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this answer");
    bt_infer_call_fail(call, &error);
}

/* Fails a call rejected before it ran, and counts the rejection. */
void bt_infer_call_refuse(bt_infer_call_t *call)
{
    bt_watching_refused(call->front, call->served, call->error.http_status);
    if (call->served != NULL) {
        bt_names_refused(&call->front->names,
                         bt_name_of(call->front, call->request.model),
                         call->error.http_status);
    }
    bt_infer_call_fail(call, &call->error);
}

static bt_infer_response_t response_of(bt_infer_call_t *call)
{
    return (bt_infer_response_t){
        .model = call->request.model,
        .version = call->served->version,
        .id = call->request.id,
        .request = &call->request,
        .outputs = call->outputs,
        .n_outputs = call->n_outputs,
        .empty_final = call->empty_final,
    };
}

/* Finishes a successful call with call->outputs. */
void bt_infer_call_finish(bt_infer_call_t *call)
{
    const bt_infer_response_t whole = response_of(call);
    bt_infer_reply_t *reply = bt_infer_call_take_reply(call);

    reply->ops->finish(reply, call, &whole);
}

static uint32_t pad_id(const bt_infer_call_t *call)
{
    uint32_t id = 0;

    if (call->lowered.pad_id >= 0) {
        return (uint32_t)call->lowered.pad_id;
    }
    if (call->lowered.end_id >= 0) {
        return (uint32_t)call->lowered.end_id;
    }
    return (bt_tokenizer_end_ids(call->served->tok, &id, 1) == 1) ? id : 0;
}

/* @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE  see bt_infer_outputs() @retval
 * others  call->error is set */
static bt_status_t make(bt_infer_call_t *call, const bt_infer_result_t *results,
                        size_t n, uint64_t max_written)
{
    const bt_infer_shape_t shape = {
        .spec = call->spec,
        .request = &call->request,
        .n_batch = call->n_rows,
        .pad_id = pad_id(call),
        .wants = call->lowered.wants,
        .max_logits = BT_ANSWER_LOGITS,
    };

    bt_status_t status;

    bt_infer_call_free_outputs(call);
    status =
        bt_infer_outputs(&shape, results, n, call->outputs, &call->n_outputs);
    if ((status == BT_OK) && bt_shm_tensors_writes(call->uses)) {
        status =
            bt_shm_tensors_write(call->uses, &call->request, call->outputs,
                                 call->n_outputs, max_written, &call->error);
    }
    return status;
}

static void fail_to_make(bt_infer_call_t *call, bt_status_t status)
{
    bt_api_error_t error = {0};

    if (status == BT_ERR_NO_MEMORY) {
        bt_infer_call_fail_for_memory(call);
        return;
    }
    if (status != BT_ERR_TOO_LARGE) {
        bt_infer_call_fail(call, &call->error);
        return;
    }
    bt_api_error_set(&error, 400, "invalid_request_error", NULL,
                     "the logits of this batch are more than the %u bytes that "
                     "an answer has room for: ask return_context_logits and "
                     "return_generation_logits of fewer rows at a time",
                     BT_ANSWER_LOGITS);
    bt_infer_call_fail(call, &error);
}

/* @return false: the call failed, and the reply was called. */
static bool make_outputs(bt_infer_call_t *call,
                         const bt_infer_result_t *results, size_t n)
{
    const bt_status_t status = make(call, results, n, MAX_WRITTEN);

    if (status != BT_OK) {
        fail_to_make(call, status);
    }
    return status == BT_OK;
}

bool bt_infer_call_is_final(const bt_infer_call_t *call, bool ends_row)
{
    /* After its last piece, a row counts as open until its call ends. */
    return ends_row && !call->empty_final &&
           (call->n_open <= (call->row_by_row ? 0 : 1));
}

void bt_infer_call_tell_piece(bt_infer_call_t *call,
                              const bt_infer_result_t *result, bool ends_row)
{
    bt_infer_response_t piece;

    if (make_outputs(call, result, 1)) {
        piece = response_of(call);
        piece.row = result->row;
        piece.ends_row = ends_row;
        piece.final = bt_infer_call_is_final(call, ends_row);
        call->final_told = piece.final;
        /* The client may be gone afterwards: check call->reply. */
        call->reply->ops->piece(call->reply, &piece);
    }
}

/* ---- whole rows ---- */

/* Number of ids to return: without the end id. */
static size_t n_ids_of(const bt_api_choice_t *choice)
{
    const bool drop = choice->by_end_id && (choice->n_token_ids > 0);

    return choice->n_token_ids - (drop ? 1 : 0);
}

bt_infer_result_t bt_infer_call_result_of(const bt_infer_row_t *row,
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
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    bt_infer_result_t results[BT_API_MAX_PROMPTS];

    BT_ASSERT(call->n_rows <= BT_API_MAX_PROMPTS);
    for (size_t i = 0; i < call->n_rows; i++) {
        results[i] =
            bt_infer_call_result_of(&call->rows[i], call->rows[i].choice);
    }
    call->status = make(call, results, call->n_rows, UINT64_MAX);
}

static void on_whole(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    const bool was_pinned = bt_infer_call_pin(call);

    call->posted = false;
    call->front->n_answers -= call->is_inline ? 0 : 1;
    if (call->reply != NULL) {
        if (!call->work.job.ran) {
            run_whole(job); /* the server is stopping: the rows are done */
        }
        if (call->status == BT_OK) {
            bt_infer_call_finish(call);
        } else {
            fail_to_make(call, call->status);
        }
    }
    bt_infer_call_unpin(call, was_pinned);
}

void bt_infer_call_tell_whole(bt_infer_call_t *call)
{
    const bool copies = bt_shm_tensors_writes(call->uses) ||
                        ((call->n_rows > 1) &&
                         ((call->lowered.wants & BT_WANT_ANY_LOGITS) != 0));

    call->is_inline = !copies;
    call->front->n_answers += copies ? 1 : 0;
    bt_infer_call_post(call, run_whole, on_whole);
}
