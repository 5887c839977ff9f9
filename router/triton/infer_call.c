/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer_call.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "router/frontend/call.h"
#include "router/triton/describe.h"
#include "router/triton/lower.h"
#include "router/triton/outputs.h"
#include "router/triton/process.h"

/* Bytes of logits in one response, beside all else that is in it. */
#define MAX_LOGITS (BT_ANSWER_LIMIT - (1u << 20))

/* The memory of a body and what was made of it, until the last of them is
 * free: rows may outlive their call at the pool. */
typedef struct held {
    uint32_t refs;
    void (*body_freed)(void *ctx, size_t bytes);
    void *ctx;
    size_t bytes;
} held_t;

/* One row of the batch; its call's reply. */
typedef struct row {
    bt_reply_t reply; /* first: a call knows only this */
    bt_infer_call_t *call;
    uint32_t index;
    bool told;        /* a stream: a piece of it was */
    uint32_t *prompt; /* owned: ids in front of the answer's, or NULL */
    size_t n_prompt;
    char *text; /* owned, as is ids: of a whole answer */
    size_t text_bytes;
    uint32_t *ids;
    size_t n_ids;
    bt_gen_rows_t *rows; /* a reference, or NULL: log-probs and logits */
    uint32_t n_scores;
    double cum_logprob;
} row_t;

struct bt_infer_call {
    bt_pool_job_t job;
    bool posted; /* the job is not done */
    bool pinned; /* a function of this file uses it: do not free */
    bool is_inline;
    bool holds_place; /* of the queue, until its rows have their own */
    bt_pool_lane_t lane;
    bt_frontend_t *front;
    bt_infer_reply_t *reply; /* NULL: it had its last word, or nobody waits */
    held_t *held;
    bt_list_t stoppable; /* in front->stoppable, or by itself */
    uint64_t step_us, parse_us;

    bt_infer_parse_t parse;
    uint8_t parse_ctx[BT_INFER_CTX_BYTES];
    bool may_stream;
    char *client, *traceparent; /* owned, or NULL */
    bt_strbuf_t body;

    bt_status_t status; /* of the last step */
    bt_api_error_t error;
    bt_infer_request_t request;
    const bt_model_spec_t *spec;
    bt_served_t *served;
    uint32_t context_tokens;
    bt_lowered_t lowered;
    bool stream;     /* tells pieces of a row as they come */
    bool row_by_row; /* tells each row when it is whole */
    row_t *rows;     /* owned */
    size_t n_rows, n_open;
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- memory ---- */

static void held_unref(held_t *held)
{
    if (--held->refs == 0) {
        held->body_freed(held->ctx, held->bytes);
        bt_free(held);
    }
}

/* The call has nothing of the body any more. */
static void let_go(bt_infer_call_t *call)
{
    if (call->held != NULL) {
        held_unref(call->held);
        call->held = NULL;
    }
}

static void on_row_freed(void *ctx, size_t bytes)
{
    (void)bytes;
    held_unref(ctx);
}

static void free_outputs(bt_infer_call_t *call)
{
    for (size_t i = 0; i < call->n_outputs; i++) {
        bt_tensor_fini(&call->outputs[i]);
    }
    call->n_outputs = 0;
}

static void give_place(bt_infer_call_t *call)
{
    call->front->n_arriving -= call->holds_place ? 1 : 0;
    call->holds_place = false;
}

static void call_free(bt_infer_call_t *call)
{
    give_place(call);
    bt_list_remove(&call->stoppable);
    for (size_t i = 0; i < call->n_rows; i++) {
        bt_free(call->rows[i].prompt);
        bt_free(call->rows[i].text);
        bt_free(call->rows[i].ids);
        bt_gen_rows_unref(call->rows[i].rows);
    }
    bt_free(call->rows);
    free_outputs(call);
    bt_lowered_fini(&call->lowered);
    bt_infer_request_fini(&call->request);
    bt_strbuf_fini(&call->body);
    bt_free(call->client);
    bt_free(call->traceparent);
    let_go(call);
    bt_free(call);
}

/* Frees the call once nothing leads to it any more. */
static void call_release(bt_infer_call_t *call)
{
    if (!call->pinned && !call->posted && (call->reply == NULL)) {
        call_free(call);
    }
}

/* Whoever pins it frees it, unless somebody further up does. */
static bool pin(bt_infer_call_t *call)
{
    const bool was_pinned = call->pinned;

    call->pinned = true;
    return was_pinned;
}

static void unpin(bt_infer_call_t *call, bool was_pinned)
{
    call->pinned = was_pinned;
    call_release(call);
}

static void post(bt_infer_call_t *call, void (*run)(bt_pool_job_t *),
                 void (*done)(bt_pool_job_t *))
{
    call->posted = true;
    call->job.run = run;
    call->job.done = done;
    if (call->is_inline) {
        run(&call->job);
        call->job.ran = true;
        done(&call->job);
    } else {
        bt_pool_post(call->front->pool, &call->job, call->lane);
    }
}

/* ---- telling ---- */

static bt_infer_reply_t *take_reply(bt_infer_call_t *call)
{
    bt_infer_reply_t *reply = call->reply;

    call->reply = NULL;
    reply->call = NULL;
    return reply;
}

/* What a row came to, for the door's books. */
static void add_facts(bt_infer_call_t *call, const row_t *row)
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
}

/* Gives up what still runs. */
static void cancel_rows(bt_infer_call_t *call)
{
    for (size_t i = 0; i < call->n_rows; i++) {
        row_t *row = &call->rows[i];

        if (row->reply.call != NULL) {
            bt_call_gone(row->reply.call);
            add_facts(call, row);
        }
    }
    call->n_open = 0;
}

static void fail(bt_infer_call_t *call, const bt_api_error_t *error)
{
    const bt_api_error_t copy = *error;
    bt_infer_reply_t *reply;

    if (call->reply == NULL) {
        return;
    }
    cancel_rows(call);
    reply = take_reply(call);
    reply->ops->error(reply, &copy);
}

static void fail_for_memory(bt_infer_call_t *call)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this answer");
    fail(call, &error);
}

/* Refused before it ran: that is counted here. */
static void refuse(bt_infer_call_t *call)
{
    bt_router_metrics_refused(call->front->metrics,
                              (call->served != NULL) ? call->served->metrics
                                                     : NULL,
                              call->error.http_status);
    if (call->served != NULL) {
        bt_names_refused(&call->front->names,
                         bt_name_of(call->front, call->request.model),
                         call->error.http_status);
    }
    fail(call, &call->error);
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
    };
}

/* All went well: what call->outputs has is the last word. */
static void finish(bt_infer_call_t *call)
{
    const bt_infer_response_t whole = response_of(call);
    bt_infer_reply_t *reply = take_reply(call);

    reply->ops->finish(reply, &whole);
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

static bt_status_t make(bt_infer_call_t *call, const bt_infer_result_t *results,
                        size_t n)
{
    const bt_infer_shape_t shape = {
        .spec = call->spec,
        .request = &call->request,
        .n_batch = call->n_rows,
        .pad_id = pad_id(call),
        .wants = call->lowered.wants,
        .max_logits = MAX_LOGITS,
    };

    free_outputs(call);
    return bt_infer_outputs(&shape, results, n, call->outputs,
                            &call->n_outputs);
}

static void fail_to_make(bt_infer_call_t *call, bt_status_t status)
{
    bt_api_error_t error = {0};

    if (status != BT_ERR_TOO_LARGE) {
        fail_for_memory(call);
        return;
    }
    bt_api_error_set(&error, 400, "invalid_request_error", NULL,
                     "the logits of this batch are more than the %u bytes that "
                     "an answer has room for: ask return_context_logits and "
                     "return_generation_logits of fewer rows at a time",
                     MAX_LOGITS);
    fail(call, &error);
}

/* @return false: it failed, and was told. */
static bool make_outputs(bt_infer_call_t *call,
                         const bt_infer_result_t *results, size_t n)
{
    const bt_status_t status = make(call, results, n);

    if (status != BT_OK) {
        fail_to_make(call, status);
    }
    return status == BT_OK;
}

static void tell_piece(bt_infer_call_t *call, const bt_infer_result_t *result,
                       bool ends_row)
{
    bt_infer_response_t piece;

    if (make_outputs(call, result, 1)) {
        piece = response_of(call);
        piece.row = result->row;
        piece.ends_row = ends_row;
        /* The client may be gone afterwards: call->reply tells. */
        call->reply->ops->piece(call->reply, &piece);
    }
}

/* ---- a row ---- */

static bt_infer_result_t result_of(const row_t *row)
{
    return (bt_infer_result_t){
        .row = row->index,
        .text = row->text,
        .text_bytes = row->text_bytes,
        .prompt = row->prompt,
        .n_prompt = row->n_prompt,
        .ids = row->ids,
        .n_ids = row->n_ids,
        .rows = row->rows,
        .to = row->n_scores,
        .cum_logprob = row->cum_logprob,
        .ends = true,
    };
}

/* All rows are one response; on the pool where logits are copied into it. */
static void run_whole(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);
    bt_infer_result_t results[BT_API_MAX_PROMPTS];

    BT_ASSERT(call->n_rows <= BT_API_MAX_PROMPTS);
    for (size_t i = 0; i < call->n_rows; i++) {
        results[i] = result_of(&call->rows[i]);
    }
    call->status = make(call, results, call->n_rows);
}

static void on_whole(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);
    const bool was_pinned = pin(call);

    call->posted = false;
    call->front->n_answers -= call->is_inline ? 0 : 1;
    if (call->reply != NULL) {
        if (!call->job.ran) {
            run_whole(job); /* the server stops: its rows were finished */
        }
        if (call->status == BT_OK) {
            finish(call);
        } else {
            fail_to_make(call, call->status);
        }
    }
    unpin(call, was_pinned);
}

static void tell_whole(bt_infer_call_t *call)
{
    const bool copies =
        (call->n_rows > 1) && ((call->lowered.wants & BT_WANT_ANY_LOGITS) != 0);

    call->is_inline = !copies;
    call->front->n_answers += copies ? 1 : 0;
    post(call, run_whole, on_whole);
}

/* Its end id is no token of the answer. */
static size_t n_ids_of(const bt_api_choice_t *choice)
{
    const bool drop = choice->by_end_id && (choice->n_token_ids > 0);

    return choice->n_token_ids - (drop ? 1 : 0);
}

static void on_row_piece(bt_reply_t *reply, const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage)
{
    row_t *row = (row_t *)reply;
    bt_infer_call_t *call = row->call;
    const bt_infer_result_t result = {
        .row = row->index,
        .text = choice->text,
        .text_bytes = choice->text_bytes,
        .ids = choice->token_ids,
        .n_ids = n_ids_of(choice),
        .rows = choice->rows,
        .from = choice->from,
        .to = choice->to,
        .cum_logprob = choice->cum_logprob,
        .ends = choice->finish != BT_FINISH_NONE,
    };
    const bool adds =
        (choice->rows != NULL) && ((choice->to > choice->from) || result.ends);
    const bool empty =
        !adds && ((call->spec->role == BT_ROLE_IDS) ? result.n_ids == 0
                                                    : result.text_bytes == 0);
    bool was_pinned;

    (void)answer;
    (void)first;
    (void)usage;
    /* The end of a row without more of it says nothing, unless it was all. */
    if ((call->reply == NULL) || (empty && row->told)) {
        return;
    }
    row->told = true;
    was_pinned = pin(call);
    tell_piece(call, &result, result.ends);
    unpin(call, was_pinned);
}

static bool keep_whole(row_t *row, const bt_api_choice_t *choice)
{
    row->text = bt_memdup(choice->text, choice->text_bytes);
    row->text_bytes = choice->text_bytes;
    if (choice->rows != NULL) {
        row->rows = bt_gen_rows_ref(choice->rows);
        row->n_scores = choice->to;
        row->cum_logprob = choice->cum_logprob;
    }
    if (choice->token_ids != NULL) {
        row->n_ids = n_ids_of(choice);
        row->ids = bt_memdup(choice->token_ids,
                             choice->n_token_ids * sizeof(*row->ids));
    }
    return (row->text != NULL) &&
           ((choice->token_ids == NULL) || (row->ids != NULL));
}

/* One less runs. */
static void row_ended(bt_infer_call_t *call, row_t *row)
{
    call->n_open--;
    if (call->row_by_row) {
        const bt_infer_result_t result = result_of(row);

        tell_piece(call, &result, true);
    }
    if ((call->reply == NULL) || (call->n_open > 0)) {
        return;
    }
    if (call->stream || call->row_by_row) {
        free_outputs(call);
        finish(call);
    } else {
        tell_whole(call);
    }
}

static void on_row_finish(bt_reply_t *reply, const bt_api_answer_t *answer,
                          const bt_api_choice_t *choices, size_t n,
                          const bt_api_usage_t *usage)
{
    row_t *row = (row_t *)reply;
    bt_infer_call_t *call = row->call;

    bool was_pinned;

    (void)answer;
    (void)usage;
    if (call->reply == NULL) {
        return;
    }
    was_pinned = pin(call);
    add_facts(call, row);
    if ((n > 0) && !keep_whole(row, &choices[0])) {
        fail_for_memory(call);
    } else {
        row_ended(call, row);
    }
    unpin(call, was_pinned);
}

static void on_row_error(bt_reply_t *reply, const bt_api_error_t *error)
{
    row_t *row = (row_t *)reply;
    bt_infer_call_t *call = row->call;
    bool was_pinned;

    if (call->reply == NULL) {
        return;
    }
    was_pinned = pin(call);
    add_facts(call, row);
    fail(call, error);
    unpin(call, was_pinned);
}

static const bt_reply_ops_t row_ops = {
    .piece = on_row_piece,
    .finish = on_row_finish,
    .error = on_row_error,
};

/* ---- rows begin ---- */

/* The ids of a prompt go into the call of its row: those that stand before the
 * answer are kept here. */
static bool make_row(bt_infer_call_t *call, size_t i)
{
    bt_api_request_t *request = &call->lowered.rows[i];
    const bt_api_prompt_t *prompt = &request->prompts[0];
    const char *word = call->front->config->exclude_input_in_output;
    row_t *row = &call->rows[i];

    row->reply.ops = &row_ops;
    row->call = call;
    row->index = (uint32_t)i;
    request->stream = call->stream;
    if (call->may_stream) {
        request->stream_logits =
            (call->n_rows == 1)
                ? UINT64_MAX
                : call->front->config->client_buffer_bytes / call->n_rows;
    }
    request->return_token_ids = call->spec->role == BT_ROLE_IDS;
    if (call->stream) {
        request->exclude_input_in_output = true; /* pieces have new text only */
    } else if (!request->says_exclude_input && (strcmp(word, "auto") != 0)) {
        request->exclude_input_in_output = strcmp(word, "yes") == 0;
    }
    request->says_exclude_input = true;
    if (!request->exclude_input_in_output && (prompt->ids != NULL)) {
        row->prompt =
            bt_memdup(prompt->ids, prompt->n_ids * sizeof(*prompt->ids));
        row->n_prompt = prompt->n_ids;
        return row->prompt != NULL;
    }
    return true;
}

static bool make_rows(bt_infer_call_t *call)
{
    const size_t n = call->lowered.n_rows;

    call->rows = bt_calloc(n, sizeof(*call->rows));
    if (call->rows == NULL) {
        return false;
    }
    call->n_rows = n;
    for (size_t i = 0; i < n; i++) {
        if (!make_row(call, i)) {
            return false;
        }
    }
    return true;
}

static void begin_row(bt_infer_call_t *call, size_t i)
{
    const bt_call_source_t source = {
        .dialect = BT_API_GENERATE,
        .model = call->request.model,
        .traceparent = call->traceparent,
        .request = &call->lowered.rows[i],
        .parse_us = call->parse_us,
        .body_freed = on_row_freed,
        .ctx = call->held,
    };

    call->held->refs++;
    bt_call_request(call->front, &call->rows[i].reply, &source);
}

static void begin_rows(bt_infer_call_t *call)
{
    bt_status_t status;

    call->stream = call->may_stream && call->lowered.stream;
    call->row_by_row =
        call->may_stream && !call->stream && (call->lowered.n_rows > 1);
    if (!make_rows(call)) {
        fail_for_memory(call);
        return;
    }
    status = bt_frontend_check_room(call->front, call->n_rows, 1, &call->error);
    give_place(call);
    if (status != BT_OK) {
        refuse(call);
        return;
    }
    if ((call->request.id[0] != '\0') && (call->client != NULL)) {
        bt_list_push_back(&call->front->stoppable, &call->stoppable);
    }
    call->n_open = call->n_rows;
    for (size_t i = 0; (i < call->n_rows) && (call->reply != NULL); i++) {
        begin_row(call, i);
    }
    let_go(call);
}

/* ---- an end that a client asks for ---- */

static void stop_rows(bt_infer_call_t *call)
{
    const bool was_pinned = pin(call);

    for (size_t i = 0; (i < call->n_rows) && (call->reply != NULL); i++) {
        row_t *row = &call->rows[i];

        if ((row->reply.call == NULL) || bt_call_stop(row->reply.call)) {
            continue;
        }
        /* It does not run yet: nothing is its answer. */
        bt_call_gone(row->reply.call);
        add_facts(call, row);
        row_ended(call, row);
    }
    unpin(call, was_pinned);
}

static void stop_other(bt_infer_call_t *call)
{
    bt_list_t *list = &call->front->stoppable;

    for (bt_list_t *at = list->next; at != list; at = at->next) {
        bt_infer_call_t *other =
            BT_CONTAINER_OF(at, bt_infer_call_t, stoppable);

        if ((strcmp(other->request.id, call->request.id) == 0) &&
            (call->client != NULL) &&
            (strcmp(other->client, call->client) == 0)) {
            stop_rows(other);
            break;
        }
    }
    finish(call);
}

/* ---- the steps; those of the pool first ---- */

static void forget_inputs(bt_infer_request_t *request)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        bt_tensor_fini(&request->inputs[i].tensor);
    }
    request->n_inputs = 0;
    bt_strbuf_fini(&request->body);
}

static void run_lower(bt_infer_call_t *call)
{
    const bt_infer_request_t *request = &call->request;

    call->spec = bt_model_spec(request->model);
    call->status = bt_infer_check_outputs(call->spec, request, &call->error);
    if (call->status != BT_OK) {
        return;
    }
    call->status =
        (call->spec->role == BT_ROLE_POSTPROCESS)
            ? bt_infer_check_inputs(call->spec, request, &call->error)
            : bt_infer_lower(call->spec, request, &call->lowered, &call->error);
}

static void run_parse(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);
    char model[BT_INFER_NAME_BYTES];
    char version[BT_INFER_NAME_BYTES];

    memcpy(model, call->request.model, sizeof(model));
    memcpy(version, call->request.version, sizeof(version));
    call->status =
        call->parse(call->parse_ctx, &call->body, &call->request, &call->error);
    bt_strbuf_fini(&call->body);
    if (call->status == BT_OK) {
        call->status = bt_infer_refuse_regions(&call->request, &call->error);
    }
    if (call->status != BT_OK) {
        return;
    }
    if (model[0] != '\0') {
        memcpy(call->request.model, model, sizeof(model));
        memcpy(call->request.version, version, sizeof(version));
    }
    run_lower(call);
    if ((call->status == BT_OK) && (call->spec->role != BT_ROLE_POSTPROCESS)) {
        forget_inputs(&call->request);
    }
}

static void run_process(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);

    call->status = bt_infer_process(
        call->served, call->context_tokens, call->spec, &call->request,
        &call->lowered, call->outputs, &call->n_outputs, &call->error);
}

/* @return whether it goes on; else it was told. */
static bool step_ended(bt_infer_call_t *call)
{
    const uint64_t now_us = bt_now_us();

    call->posted = false;
    call->parse_us += now_us - call->step_us;
    call->step_us = now_us;
    if (!call->job.ran) {
        bt_api_error_set(&call->error, 503, "server_error", NULL,
                         "the server is stopping");
        call->status = BT_ERR_CANCELED;
    }
    if (call->reply == NULL) {
        return false;
    }
    if (call->status != BT_OK) {
        refuse(call);
        return false;
    }
    return true;
}

static bool find_model(bt_infer_call_t *call)
{
    bt_infer_request_t *request = &call->request;

    call->served = bt_registry_find(&call->front->models, request->model);
    if (call->served == NULL) {
        bt_registry_refuse(&call->front->models, request->model, &call->error);
        return false;
    }
    if ((request->version[0] != '\0') &&
        (strcmp(request->version, call->served->version) != 0)) {
        bt_api_error_set(&call->error, 404, "invalid_request_error", "model",
                         "model '%.200s' has version " BT_SERVED_VERSION
                         " only",
                         request->model);
        return false;
    }
    if (call->served->unloaded) {
        bt_api_error_set(&call->error, 503, "server_error", "model",
                         "model '%s' is unloaded", call->served->name);
        return false;
    }
    memcpy(call->reply->facts.model, call->served->name,
           sizeof(call->reply->facts.model));
    call->context_tokens = bt_served_context_tokens(call->served);
    return true;
}

/* What the model's configuration allows.
 * @return false: call->error says it */
static bool check_config(bt_infer_call_t *call)
{
    const char *model = call->request.model;
    const uint32_t most = bt_describe_max_batch(call->front, model);

    if ((call->lowered.n_rows > most) && (call->lowered.n_rows > 1)) {
        bt_api_error_set(&call->error, 400, "invalid_request_error", NULL,
                         "inference request batch-size must be <= %u for "
                         "'%.200s'",
                         most, model);
        return false;
    }
    if (call->may_stream && call->lowered.stream &&
        !bt_describe_is_decoupled(call->front, model)) {
        bt_api_error_set(&call->error, 400, "invalid_request_error", NULL,
                         "Streaming is only supported if model is deployed "
                         "using decoupled mode");
        return false;
    }
    return true;
}

static void on_processed(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);
    const bool was_pinned = pin(call);
    const uint64_t start_us = call->step_us;

    if (step_ended(call)) {
        bt_names_part(&call->front->names,
                      bt_name_of(call->front, call->request.model), true, 1, 0,
                      call->step_us - start_us);
        finish(call);
    }
    unpin(call, was_pinned);
}

static void on_parsed(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, job);
    const bool was_pinned = pin(call);

    if (step_ended(call)) {
        if (!find_model(call) || !check_config(call)) {
            refuse(call);
        } else if (call->lowered.stop) {
            stop_other(call);
        } else if ((call->spec->role == BT_ROLE_TEXT) ||
                   (call->spec->role == BT_ROLE_IDS)) {
            begin_rows(call);
        } else {
            post(call, run_process, on_processed);
        }
    }
    unpin(call, was_pinned);
}

/* ---- birth and end ---- */

static bool copy_text(const char *text, char **copy_p)
{
    *copy_p = bt_strdup(text);
    return (text == NULL) || (*copy_p != NULL);
}

static bool copy_name(const char *text, char out[BT_INFER_NAME_BYTES])
{
    const size_t bytes = (text != NULL) ? strlen(text) : 0;

    if (bytes >= BT_INFER_NAME_BYTES) {
        return false;
    }
    memset(out, 0, BT_INFER_NAME_BYTES);
    if (bytes > 0) {
        memcpy(out, text, bytes);
    }
    return true;
}

/* @return NULL for want of memory: the body is still the caller's. */
static bt_infer_call_t *call_new(bt_frontend_t *front,
                                 const bt_infer_source_t *source)
{
    bt_infer_call_t *call = bt_calloc(1, sizeof(*call));
    held_t *held = bt_calloc(1, sizeof(*held));

    if ((call == NULL) || (held == NULL)) {
        bt_free(call);
        bt_free(held);
        return NULL;
    }
    *held = (held_t){.refs = 1,
                     .body_freed = source->body_freed,
                     .ctx = source->ctx,
                     .bytes = source->body_bytes};
    call->held = held;
    call->front = front;
    bt_list_init(&call->stoppable);
    call->step_us = bt_now_us();
    call->parse = source->parse;
    BT_ASSERT(source->parse_ctx_bytes <= sizeof(call->parse_ctx));
    if (source->parse_ctx_bytes > 0) {
        memcpy(call->parse_ctx, source->parse_ctx, source->parse_ctx_bytes);
    }
    call->may_stream = source->may_stream;
    return call;
}

static void out_of_memory(bt_frontend_t *front, bt_infer_reply_t *reply)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this request, try again later");
    bt_router_metrics_refused(front->metrics, NULL, error.http_status);
    reply->call = NULL;
    reply->ops->error(reply, &error);
}

/* Before the pool has it. */
static bool enter(bt_infer_call_t *call, const bt_infer_source_t *source)
{
    if (!copy_name(source->model, call->request.model) ||
        !copy_name(source->version, call->request.version)) {
        bt_api_error_set(&call->error, 404, "invalid_request_error", "model",
                         "no model has a name or version of more than %d "
                         "bytes",
                         BT_INFER_NAME_BYTES - 1);
        return false;
    }
    if (!copy_text(source->client, &call->client) ||
        !copy_text(source->traceparent, &call->traceparent)) {
        bt_api_error_set(&call->error, 503, "server_error", NULL,
                         "out of memory for this request, try again later");
        return false;
    }
    if (bt_frontend_check_room(call->front, 1, 0, &call->error) != BT_OK) {
        return false;
    }
    call->holds_place = true;
    call->front->n_arriving++;
    return true;
}

void bt_infer_begin(bt_frontend_t *front, bt_infer_reply_t *reply,
                    const bt_infer_source_t *source, bt_strbuf_t *body)
{
    bt_infer_call_t *call = call_new(front, source);

    if (call == NULL) {
        bt_strbuf_fini(body);
        source->body_freed(source->ctx, source->body_bytes);
        out_of_memory(front, reply);
        return;
    }
    call->reply = reply;
    reply->call = call;
    call->body = *body;
    bt_strbuf_init(body, body->limit);
    call->is_inline = call->body.len <= BT_INTAKE_INLINE_BYTES;
    call->lane =
        (call->body.len < BT_INTAKE_LONG_BYTES) ? BT_POOL_SHORT : BT_POOL_LONG;
    if (!enter(call, source)) {
        refuse(call);
        call_release(call);
        return;
    }
    post(call, run_parse, on_parsed);
}

void bt_infer_gone(bt_infer_call_t *call)
{
    const bool was_pinned = pin(call);

    cancel_rows(call);
    (void)take_reply(call);
    unpin(call, was_pinned);
}
