/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer_call_priv.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "router/frontend/call.h"
#include "router/frontend/limits.h"
#include "router/frontend/watching.h"
#include "router/triton/metadata.h"
#include "router/triton/pre_postprocessing.h"

/* ---- memory ---- */

/* Frees everything that refers to the body. */
static void let_go(bt_infer_call_t *call)
{
    bt_shm_tensors_give_back(call->uses);
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
        bt_call_unref(call->rows[i].answered);
    }
    bt_free(call->rows);
    bt_infer_call_free_outputs(call);
    bt_tensor_requests_fini(&call->lowered);
    bt_infer_request_fini(&call->request);
    bt_strbuf_fini(&call->body);
    bt_free(call->client);
    bt_free(call->traceparent);
    bt_tenant_unref(call->tenant);
    let_go(call);
    bt_shm_tensors_end(call->uses);
    bt_account_unref(call->account);
    bt_free(call);
}

/* Frees the call when nothing refers to it any more. */
static void call_release(bt_infer_call_t *call)
{
    if (!call->pinned && !call->posted && (call->reply == NULL) &&
        (call->n_refs == 0)) {
        call_free(call);
    }
}

bt_infer_call_t *bt_infer_ref(bt_infer_call_t *call)
{
    call->n_refs++;
    return call;
}

void bt_infer_unref(bt_infer_call_t *call)
{
    call->n_refs--;
    call_release(call);
}

/* The outermost pin frees an ended call on unpin. */
bool bt_infer_call_pin(bt_infer_call_t *call)
{
    const bool was_pinned = call->pinned;

    call->pinned = true;
    return was_pinned;
}

void bt_infer_call_unpin(bt_infer_call_t *call, bool was_pinned)
{
    call->pinned = was_pinned;
    call_release(call);
}

void bt_infer_call_post(bt_infer_call_t *call, void (*run)(bt_pool_job_t *),
                        void (*done)(bt_pool_job_t *))
{
    call->work.job.run = run;
    call->work.job.done = done;
    call->work.job.account = call->account;
    if (call->is_inline) {
        run(&call->work.job);
        call->work.job.ran = true;
        done(&call->work.job);
    } else {
        call->posted = true;
        bt_work_post(&call->work, call->front->pool, call->lane,
                     call->work_bytes);
    }
}

/* ---- a row ---- */

static void on_row_piece(bt_reply_t *reply, const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage)
{
    bt_infer_row_t *row = (bt_infer_row_t *)reply;
    bt_infer_call_t *call = row->call;
    const bt_infer_result_t result = bt_infer_call_result_of(row, choice);
    const bool adds =
        (choice->rows != NULL) && ((choice->to > choice->from) || result.ends);
    const bool empty =
        !adds && ((call->spec->role == BT_ROLE_IDS) ? result.n_ids == 0
                                                    : choice->no_new_text);
    bool was_pinned;

    (void)answer;
    (void)first;
    (void)usage;
    /* An empty end of a row is not delivered, unless it is all there is or
     * ends the request. */
    if ((call->reply == NULL) ||
        (empty && row->told && !bt_infer_call_is_final(call, result.ends))) {
        return;
    }
    row->told = true;
    row->cum_logprob = choice->cum_logprob;
    was_pinned = bt_infer_call_pin(call);
    bt_infer_call_tell_piece(call, &result, result.ends);
    bt_infer_call_unpin(call, was_pinned);
}

/* Counts a row as ended. */
static void row_ended(bt_infer_call_t *call, bt_infer_row_t *row)
{
    call->n_open--;
    if (call->row_by_row) {
        const bt_infer_result_t result =
            bt_infer_call_result_of(row, row->choice);

        bt_infer_call_tell_piece(call, &result, true);
    }
    if ((call->reply == NULL) || (call->n_open > 0)) {
        return;
    }
    if (call->stream && !call->final_told && !call->empty_final) {
        /* Stopped: the last response still has outputs. */
        const bt_infer_result_t result = bt_infer_call_result_of(row, NULL);

        bt_infer_call_tell_piece(call, &result, true);
        if (call->reply == NULL) {
            return;
        }
    }
    if (call->stream || call->row_by_row) {
        bt_infer_call_free_outputs(call);
        bt_infer_call_finish(call);
    } else {
        bt_infer_call_tell_whole(call);
    }
}

static void on_row_finish(bt_reply_t *reply, bt_call_t *answered,
                          const bt_api_answer_t *answer,
                          const bt_api_choice_t *choices, size_t n,
                          const bt_api_usage_t *usage)
{
    bt_infer_row_t *row = (bt_infer_row_t *)reply;
    bt_infer_call_t *call = row->call;

    bool was_pinned;

    (void)answer;
    (void)usage;
    if (call->reply == NULL) {
        return; /* failed: the rows' results are not needed */
    }
    was_pinned = bt_infer_call_pin(call);
    bt_infer_call_add_facts(call, row);
    if (n > 0) {
        row->answered = bt_call_ref(answered);
        row->choice = &choices[0];
    }
    row_ended(call, row);
    bt_infer_call_unpin(call, was_pinned);
}

static void on_row_error(bt_reply_t *reply, const bt_api_error_t *error)
{
    bt_infer_row_t *row = (bt_infer_row_t *)reply;
    bt_infer_call_t *call = row->call;
    bool was_pinned;

    if (call->reply == NULL) {
        return;
    }
    was_pinned = bt_infer_call_pin(call);
    bt_infer_call_add_facts(call, row);
    bt_infer_call_fail(call, error);
    bt_infer_call_unpin(call, was_pinned);
}

static const bt_reply_ops_t row_ops = {
    .piece = on_row_piece,
    .finish = on_row_finish,
    .error = on_row_error,
};

/* ---- rows begin ---- */

/* Most bytes of logits of a row in a response of all rows. As JSON, a float
 * takes four times as many. Outputs that are not requested have no
 * encoding. */
static uint64_t whole_logits(const bt_infer_call_t *call)
{
    uint64_t bytes = BT_ANSWER_LOGITS / call->n_rows;

    for (size_t i = 0; i < call->spec->n_outputs; i++) {
        const bt_model_tensor_t *output = &call->spec->outputs[i];
        const uint32_t needs = bt_infer_result_wants(output->what);

        if ((call->request.n_wanted > 0) &&
            (bt_infer_wanted(&call->request, output->name) == NULL)) {
            continue;
        }
        if (((needs & call->lowered.wants & BT_WANT_ANY_LOGITS) != 0) &&
            !bt_infer_is_raw(&call->request, output->name) &&
            (bt_infer_place(&call->request, output->name) == NULL)) {
            return bytes / 4;
        }
    }
    return bytes;
}

/* Moves a row's prompt ids into its call; ids to be returned before the output
 * are kept here. */
static bool make_row(bt_infer_call_t *call, size_t i)
{
    bt_api_request_t *request = &call->lowered.rows[i];
    const bt_api_prompt_t *prompt = &request->prompts[0];
    bt_infer_row_t *row = &call->rows[i];

    row->reply.ops = &row_ops;
    row->reply.request_id = call->reply->request_id;
    row->call = call;
    row->index = (uint32_t)i;
    request->stream = call->stream;
    if (call->may_stream) {
        request->stream_logits =
            (call->n_rows == 1)
                ? UINT64_MAX
                : call->front->config->client_buffer_bytes / call->n_rows;
    }
    request->whole_logits = whole_logits(call);
    request->return_token_ids = call->spec->role == BT_ROLE_IDS;
    if (call->stream) {
        request->exclude_input_in_output = true; /* pieces have new text only */
    } else if (!request->says_exclude_input) {
        request->exclude_input_in_output =
            call->front->config->exclude_input_in_output;
    }
    request->says_exclude_input = true;
    if (!request->exclude_input_in_output && (prompt->ids != NULL)) {
        row->prompt =
            bt_memdup(prompt->ids, prompt->n_ids * sizeof(*prompt->ids));
        row->n_prompt = prompt->n_ids;
        if (row->prompt == NULL) {
            return false;
        }
        bt_served_fold_ids(call->served, row->prompt, row->n_prompt);
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
        .tenant = call->tenant,
        .client = call->who,
        .request = &call->lowered.rows[i],
        .parse_us = call->parse_us,
        .tally = &call->tally,
        .account = call->account,
    };

    bt_call_request(call->front, &call->rows[i].reply, &source);
}

static void begin_rows(bt_infer_call_t *call)
{
    bt_status_t status;

    call->stream = call->may_stream && call->lowered.stream;
    call->row_by_row =
        call->may_stream && !call->stream && (call->lowered.n_rows > 1);
    if (!make_rows(call)) {
        bt_infer_call_fail_for_memory(call);
        return;
    }
    status = bt_frontend_check_room(call->front, call->tenant, call->n_rows, 1,
                                    &call->error);
    give_place(call);
    if (status != BT_OK) {
        bt_infer_call_refuse(call);
        return;
    }
    if ((call->request.id[0] != '\0') && (call->client != NULL)) {
        bt_list_push_back(&call->front->stoppable, &call->stoppable);
    }
    call->n_open = call->n_rows;
    call->tally.n = (uint32_t)call->n_rows;
    for (size_t i = 0; (i < call->n_rows) && (call->reply != NULL); i++) {
        begin_row(call, i);
    }
    let_go(call);
}

/* ---- stopping a request ---- */

static void stop_rows(bt_infer_call_t *call)
{
    const bool was_pinned = bt_infer_call_pin(call);

    for (size_t i = 0; (i < call->n_rows) && (call->reply != NULL); i++) {
        bt_infer_row_t *row = &call->rows[i];

        if ((row->reply.call == NULL) || bt_call_stop(row->reply.call)) {
            continue;
        }
        /* Not running yet: there is no output. */
        call->tally.n--;
        bt_call_gone(row->reply.call);
        bt_infer_call_add_facts(call, row);
        row_ended(call, row);
    }
    bt_infer_call_unpin(call, was_pinned);
}

static void stop_other(bt_infer_call_t *call)
{
    bt_list_t *list = &call->front->stoppable;

    for (bt_list_t *at = list->next; at != list; at = at->next) {
        bt_infer_call_t *other =
            BT_CONTAINER_OF(at, bt_infer_call_t, stoppable);

        if ((strcmp(other->request.id, call->request.id) == 0) &&
            (other->tenant == call->tenant) && (call->client != NULL) &&
            (strcmp(other->client, call->client) == 0)) {
            stop_rows(other);
            break;
        }
    }
    if (call->reply != NULL) { /* one client may have cancelled both */
        bt_infer_call_finish(call);
    }
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

static void lower(bt_infer_call_t *call)
{
    bt_infer_request_t *request = &call->request;

    call->spec = bt_model_spec(request->model);
    call->status = bt_infer_check_outputs(call->spec, request, &call->error);
    if (call->status != BT_OK) {
        return;
    }
    if (call->spec->role == BT_ROLE_POSTPROCESS) {
        call->status = bt_infer_check_inputs(call->spec, request, &call->error);
        return;
    }
    call->status = bt_tensors_to_requests(call->spec, request, &call->lowered,
                                          &call->error);
    if (call->status == BT_OK) {
        forget_inputs(request);
    }
}

static void run_parse(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    char model[BT_INFER_NAME_BYTES];
    char version[BT_INFER_NAME_BYTES];

    memcpy(model, call->request.model, sizeof(model));
    memcpy(version, call->request.version, sizeof(version));
    call->status =
        call->parse(call->parse_ctx, &call->body, &call->request, &call->error);
    bt_strbuf_fini(&call->body);
    if (call->status != BT_OK) {
        return;
    }
    if (model[0] != '\0') {
        memcpy(call->request.model, model, sizeof(model));
        memcpy(call->request.version, version, sizeof(version));
    }
    if (!bt_shm_tensors_any(&call->request)) {
        lower(call);
    }
}

/* Reads the tensors in shared memory, which have been looked up. */
static void run_read(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);

    call->status =
        bt_shm_tensors_read(call->uses, &call->request, &call->error);
    if (call->status == BT_OK) {
        lower(call);
    }
}

static void run_process(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);

    call->status = bt_infer_process(
        call->served, call->context_tokens, call->spec, &call->request,
        &call->lowered, call->outputs, &call->n_outputs, &call->error);
    if ((call->status == BT_OK) && bt_shm_tensors_writes(call->uses)) {
        call->status =
            bt_shm_tensors_write(call->uses, &call->request, call->outputs,
                                 call->n_outputs, UINT64_MAX, &call->error);
    }
}

/* @return true: the call goes on; false: it has ended, and the reply was
 * called. */
static bool step_ended(bt_infer_call_t *call)
{
    const uint64_t now_us = bt_now_us();

    call->posted = false;
    call->parse_us += now_us - call->step_us;
    call->step_us = now_us;
    if (!call->work.job.ran) {
        bt_api_error_set(&call->error, 503, "server_error", NULL,
                         "the server is stopping");
        call->status = BT_ERR_CANCELED;
    } else if (call->status != BT_OK) {
        (void)bt_work_refuse(call->account, &call->error);
    }
    if (call->reply == NULL) {
        return false;
    }
    if (call->status != BT_OK) {
        bt_infer_call_refuse(call);
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

static bool asks_for_empty_final(const bt_infer_call_t *call)
{
    const bt_infer_param_t *param =
        bt_infer_param(&call->request.params, BT_INFER_EMPTY_FINAL);

    return (param != NULL) && (param->kind == BT_INFER_BOOL) && param->boolean;
}

/* Checks the limits of the model's configuration. @return false: call->error
 * is set */
static bool check_config(bt_infer_call_t *call)
{
    const char *model = call->request.model;
    const uint32_t most = bt_describe_max_batch(call->front, model);
    bool decoupled;

    if ((call->lowered.n_rows > most) && (call->lowered.n_rows > 1)) {
        bt_api_error_set(&call->error, 400, "invalid_request_error", NULL,
                         "inference request batch-size must be <= %u for "
                         "'%.200s'",
                         most, model);
        return false;
    }
    if (!call->may_stream) {
        return true;
    }
    decoupled = bt_describe_is_decoupled(call->front, model);
    call->empty_final = decoupled && asks_for_empty_final(call);
    if (call->lowered.stream && !decoupled) {
        bt_api_error_set(&call->error, 400, "invalid_request_error", NULL,
                         "Streaming is only supported if model is deployed "
                         "using decoupled mode");
        return false;
    }
    return true;
}

static uint64_t n_ids_in(const bt_tensor_t *tensor, const char *name)
{
    return (strcmp(tensor->name, name) == 0) ? tensor->bytes / sizeof(int32_t)
                                             : 0;
}

/* Charges the tenant for the tokens of pre- and postprocessing; an overdraft
 * is a debt. */
static void charge_tokens(bt_infer_call_t *call)
{
    uint64_t n = 0;

    for (size_t i = 0; i < call->n_outputs; i++) {
        n += n_ids_in(&call->outputs[i], "INPUT_ID");
    }
    for (size_t i = 0; i < call->request.n_inputs; i++) {
        n += n_ids_in(&call->request.inputs[i].tensor, "TOKENS_BATCH");
    }
    if (call->tenant != NULL) {
        bt_sched_bucket_take(&call->tenant->bucket, n, call->step_us);
    }
}

/* @return false: the tenant has used up its tokens; call->error is set */
static bool has_tokens(bt_infer_call_t *call)
{
    bt_tenant_denial_t denial;

    if ((call->tenant == NULL) ||
        (bt_tenant_check_tokens(call->tenant, 1, call->step_us, &denial) ==
         BT_OK)) {
        return true;
    }
    bt_limits_deny(&denial, &call->error);
    return false;
}

static void on_processed(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    const bool was_pinned = bt_infer_call_pin(call);
    const uint64_t start_us = call->step_us;

    if (step_ended(call)) {
        charge_tokens(call);
        bt_names_part(&call->front->names,
                      bt_name_of(call->front, call->request.model), true, 1, 0,
                      call->step_us - start_us);
        bt_infer_call_finish(call);
    }
    bt_infer_call_unpin(call, was_pinned);
}

static void go_on(bt_infer_call_t *call)
{
    if (!find_model(call) || !check_config(call)) {
        bt_infer_call_refuse(call);
    } else if (call->lowered.stop && (call->request.id[0] == '\0')) {
        /* The text of TensorRT-LLM's backend. */
        bt_api_error_set(&call->error, 400, "invalid_request_error", NULL,
                         "Trying to stop a request but request ID is not "
                         "provided");
        bt_infer_call_refuse(call);
    } else if (call->lowered.stop) {
        stop_other(call);
    } else if ((call->spec->role == BT_ROLE_TEXT) ||
               (call->spec->role == BT_ROLE_IDS)) {
        begin_rows(call);
    } else if (!has_tokens(call)) {
        bt_infer_call_refuse(call);
    } else {
        bt_infer_call_post(call, run_process, on_processed);
    }
}

static void on_read(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    const bool was_pinned = bt_infer_call_pin(call);

    if (step_ended(call)) {
        go_on(call);
    }
    bt_infer_call_unpin(call, was_pinned);
}

/* Opens the account for the memory of the pool's work. */
static bt_status_t open_account(bt_infer_call_t *call, size_t bytes)
{
    if (call->is_inline || (call->account != NULL)) {
        return BT_OK;
    }
    call->account =
        bt_work_account(&call->front->requests, call->tenant, &call->who);
    return bt_work_admit(call->account, bytes, &call->error);
}

/* A short body may refer to long tensors. */
static void begin_read(bt_infer_call_t *call)
{
    uint64_t bytes;

    call->status = bt_shm_tensors_begin(call->front->regions, &call->request,
                                        call->front->config->max_body_bytes,
                                        &call->uses, &call->error);
    if (call->status != BT_OK) {
        bt_infer_call_refuse(call);
        return;
    }
    bytes = bt_shm_tensors_input_bytes(call->uses);
    call->is_inline = call->is_inline && (bytes <= BT_INTAKE_INLINE_BYTES) &&
                      !bt_shm_tensors_writes(call->uses);
    call->work_bytes += bytes;
    call->lane = bt_work_lane(call->work_bytes);
    call->status = open_account(call, 0);
    if (call->status != BT_OK) {
        bt_infer_call_refuse(call);
        return;
    }
    bt_infer_call_post(call, run_read, on_read);
}

static void on_parsed(bt_pool_job_t *job)
{
    bt_infer_call_t *call = BT_CONTAINER_OF(job, bt_infer_call_t, work.job);
    const bool was_pinned = bt_infer_call_pin(call);

    if (step_ended(call)) {
        if (bt_shm_tensors_any(&call->request)) {
            begin_read(call);
        } else {
            go_on(call);
        }
    }
    bt_infer_call_unpin(call, was_pinned);
}

/* ---- creation and destruction ---- */

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

/* @return NULL: out of memory; the caller still owns the body. */
static bt_infer_call_t *call_new(bt_frontend_t *front,
                                 const bt_infer_source_t *source)
{
    bt_infer_call_t *call = bt_calloc(1, sizeof(*call));

    if (call == NULL) {
        return NULL;
    }
    call->front = front;
    bt_list_init(&call->stoppable);
    call->step_us = bt_now_us();
    call->parse = source->parse;
    BT_ASSERT(source->parse_ctx_bytes <= sizeof(call->parse_ctx));
    if (source->parse_ctx_bytes > 0) {
        memcpy(call->parse_ctx, source->parse_ctx, source->parse_ctx_bytes);
    }
    call->may_stream = source->may_stream;
    call->tenant =
        (source->tenant != NULL) ? bt_tenant_ref(source->tenant) : NULL;
    call->who = source->who;
    bt_work_init(&call->work, call->tenant, &call->who);
    return call;
}

static void out_of_memory(bt_frontend_t *front, bt_infer_reply_t *reply)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this request, try again later");
    bt_watching_refused(front, NULL, error.http_status);
    reply->call = NULL;
    reply->ops->error(reply, &error);
}

/* Checks before the pool gets the call. */
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
    if (bt_frontend_check_room(call->front, call->tenant, 1, 0, &call->error) !=
        BT_OK) {
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
    source->body_freed(source->ctx, source->body_bytes);
    call->work_bytes = call->body.len;
    call->is_inline = call->body.len <= BT_INTAKE_INLINE_BYTES;
    call->lane = bt_work_lane(call->work_bytes);
    if ((open_account(call, call->body.cap) != BT_OK) || !enter(call, source)) {
        bt_infer_call_refuse(call);
        call_release(call);
        return;
    }
    bt_infer_call_post(call, run_parse, on_parsed);
}

void bt_infer_gone(bt_infer_call_t *call)
{
    const bool was_pinned = bt_infer_call_pin(call);

    bt_infer_call_cancel_rows(call);
    (void)bt_infer_call_take_reply(call);
    if (call->posted) {
        bt_pool_cancel(call->front->pool, &call->work.job);
    }
    bt_infer_call_unpin(call, was_pinned);
}
