/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/triton/infer_request.h"
#include "router/triton/metadata.h"
#include "router/triton/outputs.h"
#include "router/triton/pre_postprocessing.h"
#include "router/triton/shm_tensors.h"
#include "router/triton/tensors_to_requests.h"

/* Tensors of a request; in its arena. */
struct bt_tensors {
    bt_request_t *request;
    bt_infer_source_t source; /* its context and peer are copied */
    const bt_request_ops_t *door;
    uint8_t parse_ctx[BT_INFER_CTX_BYTES];
    uint64_t process_us; /* when pre- or postprocessing began */
    bt_infer_request_t api;
    bt_shm_tensors_t *uses; /* owned; NULL: no tensor is in shared memory */
    const bt_model_spec_t *spec;
    bt_tensor_requests_t lowered;
    bool stream;      /* delivers pieces of a row as they come */
    bool row_by_row;  /* delivers each row when it is complete */
    bool empty_final; /* bt_infer_response_t.empty_final */
    bool final_sent;  /* the last response of the stream was delivered */
    size_t n_open;    /* rows */
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- results of the rows, as tensors ---- */

/* Most bytes that a piece of a stream writes to shared memory on the event
 * loop. */
#define MAX_WRITTEN (8u << 20)

static void free_outputs(bt_tensors_t *t)
{
    for (size_t i = 0; i < t->n_outputs; i++) {
        bt_tensor_fini(&t->outputs[i]);
    }
    t->n_outputs = 0;
}

/* @return NULL: it has no tokens of the model, or they are not told */
static const char *weight_version_of(const bt_request_t *r)
{
    return ((r->front->config->allow_weight_updates[0] != '\0') &&
            (r->weights.version[0] != '\0'))
               ? r->weights.version
               : NULL;
}

static bt_infer_response_t response_of(bt_tensors_t *t)
{
    return (bt_infer_response_t){
        .model = t->api.model,
        .version = t->request->served->version,
        .weight_version = weight_version_of(t->request),
        .id = t->api.id,
        .request = &t->api,
        .outputs = t->outputs,
        .n_outputs = t->n_outputs,
        .empty_final = t->empty_final,
    };
}

static void finish(bt_tensors_t *t)
{
    const bt_infer_response_t whole = response_of(t);

    bt_request_close(t->request);
    t->source.ops->finish(t->request, &whole);
}

/* Writes the outputs that the client has in shared memory. */
static bt_status_t write_shared(bt_tensors_t *t, uint64_t max_written)
{
    return bt_shm_tensors_writes(t->uses)
               ? bt_shm_tensors_write(t->uses, &t->api, t->outputs,
                                      t->n_outputs, max_written,
                                      &t->request->error)
               : BT_OK;
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
        .n_beams = t->lowered.n_beams,
        .pad_id = bt_infer_pad_id(t->request->served, &t->lowered),
        .wants = t->lowered.wants,
        .max_logits = BT_ANSWER_LOGITS,
    };
    bt_status_t status;

    free_outputs(t);
    status = bt_infer_outputs(&shape, results, n, t->outputs, &t->n_outputs);
    return (status == BT_OK) ? write_shared(t, max_written) : status;
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

/* Responds with a piece of a row, or with all results of one. The client may be
 * gone afterwards. */
static void respond_piece(bt_tensors_t *t, const bt_infer_result_t *result,
                          size_t n, bool ends_row)
{
    const bt_status_t status = make(t, result, n, MAX_WRITTEN);
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
    t->source.ops->piece(t->request, &piece);
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
    const bool is_whole =
        (choice >= row->choice) && (choice < row->choice + row->n_answers);

    if (choice == NULL) {
        return (bt_infer_result_t){
            .row = row->index,
            .text = "",
            .prompt = row->prompt,
            .n_prompt = row->n_prompt,
            .cum_logprob = row->cum_logprob,
            .perf = row->perf,
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
        .perf = row->perf,
        .ends = choice->finish != BT_FINISH_NONE,
    };
}

/* Results of each row: its beams, or one. */
static size_t n_results(const bt_tensors_t *t)
{
    return (t->lowered.n_beams > 0) ? t->lowered.n_beams : 1;
}

/* Writes the n_results() of a row. */
static void results_of(const bt_row_t *row, bt_infer_result_t *results)
{
    for (size_t i = 0; i < n_results(row->request->tensors); i++) {
        results[i] =
            result_of(row, (row->choice != NULL) ? row->choice + i : NULL);
        if ((row->choice != NULL) && row->has_beams) {
            results[i].perf.n_output = (uint32_t)row->choice[i].n_token_ids;
        }
    }
}

/* Makes one response of all rows; on the pool if logits are copied into it, or
 * outputs into shared memory. */
static void run_whole(bt_pool_job_t *job)
{
    bt_request_t *r = BT_REQUEST_JOB_OF(job, bt_request_t, job);
    const size_t n_each = n_results(r->tensors);
    bt_infer_result_t *results =
        bt_calloc(r->n_rows * n_each, sizeof(*results));

    if (results == NULL) {
        r->status = BT_ERR_NO_MEMORY;
        return;
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        results_of(&r->rows[i], results + i * n_each);
    }
    r->status = make(r->tensors, results, r->n_rows * n_each, UINT64_MAX);
    bt_free(results);
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
        finish(t);
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

static void on_piece(bt_row_t *row, const bt_api_choice_t *choice, bool first,
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
        respond_piece(t, &result, 1, result.ends);
    }
}

static void row_ended(bt_row_t *row)
{
    bt_request_t *r = row->request;
    bt_tensors_t *t = r->tensors;

    t->n_open--;
    if (t->row_by_row) {
        bt_infer_result_t results[BT_SCHED_MAX_BEAMS];

        results_of(row, results);
        respond_piece(t, results, n_results(t), true);
    }
    if (bt_request_is_open(r) && (t->n_open == 0) && t->stream &&
        !t->final_sent && !t->empty_final) {
        /* Stopped: the last response still has outputs. */
        const bt_infer_result_t result = result_of(row, NULL);

        respond_piece(t, &result, 1, true);
    }
    if (!bt_request_is_open(r) || (t->n_open > 0)) {
        return;
    }
    if (t->stream || t->row_by_row) {
        free_outputs(t);
        finish(t);
    } else {
        respond_whole(t);
    }
}

static void on_finish(bt_row_t *row, const bt_api_choice_t *choices, size_t n,
                      const bt_api_usage_t *usage)
{
    (void)usage;
    row->choice = (n > 0) ? &choices[0] : NULL;
    row->n_answers = n;
    row_ended(row);
}

static void destroy(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;

    free_outputs(t);
    bt_tensor_requests_fini(&t->lowered);
    bt_infer_request_fini(&t->api);
    bt_shm_tensors_end(t->uses);
    if (t->door->destroy != NULL) {
        t->door->destroy(r);
    }
}

/* ---- rows begin ---- */

/* Most bytes of logits of a row in a response of all rows. As JSON, a float
 * takes four times as many. Outputs that are not requested have no
 * encoding. */
static uint64_t whole_logits(const bt_tensors_t *t)
{
    uint64_t bytes = BT_ANSWER_LOGITS / t->lowered.n_rows;

    for (size_t i = 0; i < t->spec->n_outputs; i++) {
        const bt_model_tensor_t *output = &t->spec->outputs[i];
        const uint32_t needs = bt_infer_output_wants(output);

        if ((t->api.n_wanted > 0) &&
            (bt_infer_wanted(&t->api, output->name) == NULL)) {
            continue;
        }
        if (((needs & t->lowered.wants & BT_WANT_ANY_LOGITS) != 0) &&
            !bt_infer_is_raw(&t->api, output->name) &&
            (bt_infer_output_region(&t->api, output->name) == NULL)) {
            return bytes / 4;
        }
    }
    return bytes;
}

/* Moves a row's prompt ids into its request; ids to be returned before the
 * output are kept here. */
static bool make_row(bt_tensors_t *t, bt_row_t *row)
{
    bt_request_t *r = t->request;
    bt_api_request_t *api = &t->lowered.rows[row->index];
    const bt_api_prompt_t *prompt = &api->prompts[0];

    api->stream = t->stream;
    if (t->source.may_stream) {
        api->stream_logits =
            (r->n_rows == 1)
                ? UINT64_MAX
                : r->front->config->client_buffer_bytes / r->n_rows;
    }
    api->whole_logits = whole_logits(t);
    api->return_token_ids = t->spec->role == BT_ROLE_IDS;
    if (t->stream) {
        api->exclude_input_in_output = true; /* pieces have new text only */
    } else if ((api->given & BT_GIVEN_EXCLUDE_INPUT) == 0) {
        api->exclude_input_in_output =
            r->front->config->exclude_input_in_output;
    }
    api->given |= BT_GIVEN_EXCLUDE_INPUT;
    if (!api->exclude_input_in_output && (prompt->ids != NULL)) {
        row->n_prompt = prompt->n_ids;
        row->prompt = bt_arena_dup(&r->arena, prompt->ids,
                                   prompt->n_ids * sizeof(*prompt->ids));
        if (row->prompt == NULL) {
            return false;
        }
        if (api->table.rows == NULL) {
            bt_served_fold_ids(r->served, row->prompt, row->n_prompt);
        }
    }
    return true;
}

static bool make_rows(bt_tensors_t *t)
{
    bt_request_t *r = t->request;
    bool ok = bt_request_make_rows(r, t->lowered.n_rows);

    for (size_t i = 0; ok && (i < r->n_rows); i++) {
        ok = make_row(t, &r->rows[i]);
    }
    return ok;
}

static void begin_rows(bt_tensors_t *t)
{
    bt_request_t *r = t->request;
    const size_t n = t->lowered.n_rows;

    bt_request_hold_slots(r, &r->n_slots, 0);
    r->status = bt_frontend_check_slots(r->front, r->tenant, n, &r->error);
    if (r->status != BT_OK) {
        bt_request_refuse(r);
        return;
    }
    t->stream = t->source.may_stream && t->lowered.stream;
    t->row_by_row = t->source.may_stream && !t->stream && (n > 1);
    if (!make_rows(t)) {
        bt_request_fail_for_memory(r);
        return;
    }
    if ((t->api.id[0] != '\0') && (t->source.peer[0] != '\0')) {
        bt_list_push_back(&r->front->stoppable, &r->stoppable);
    }
    t->n_open = n;
    r->n_sequences = (uint32_t)n;
    for (size_t i = 0; (i < n) && bt_request_is_open(r); i++) {
        bt_row_begin(&r->rows[i], &t->lowered.rows[i]);
    }
    bt_shm_tensors_give_back(t->uses); /* nothing refers to the inputs now */
}

/* ---- stopping a request ---- */

static void stop_rows(bt_request_t *r)
{
    bt_request_ref(r);
    for (size_t i = 0; (i < r->n_rows) && bt_request_is_open(r); i++) {
        bt_row_t *row = &r->rows[i];

        if (row->is_open && !bt_row_stop(row)) {
            /* Not running yet: there is no output. */
            r->n_sequences--;
            bt_row_close(row);
            row_ended(row);
        }
    }
    bt_request_unref(r);
}

static void stop_other(bt_tensors_t *t)
{
    const bt_request_t *r = t->request;
    bt_list_t *list = &r->front->stoppable;

    for (bt_list_t *at = list->next; at != list; at = at->next) {
        bt_request_t *other = BT_CONTAINER_OF(at, bt_request_t, stoppable);

        if ((strcmp(other->tensors->api.id, t->api.id) == 0) &&
            (other->tenant == r->tenant) && (t->source.peer[0] != '\0') &&
            (strcmp(other->tensors->source.peer, t->source.peer) == 0)) {
            stop_rows(other);
            break;
        }
    }
    if (bt_request_is_open(r)) { /* one client may have cancelled both */
        finish(t);
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

static bt_status_t lower(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;
    bt_status_t status;

    t->spec = bt_model_spec(t->api.model);
    status = bt_infer_check_outputs(t->spec, &t->api, &r->error);
    if (status != BT_OK) {
        return status;
    }
    if (t->spec->role == BT_ROLE_POSTPROCESS) {
        return bt_infer_check_inputs(t->spec, &t->api, &r->error);
    }
    status = bt_tensors_to_requests(t->spec, &t->api, &t->lowered, &r->error);
    if (status == BT_OK) {
        forget_inputs(&t->api);
    }
    return status;
}

/* @return false: it is too long */
static bool copy_name(const char *text, char out[BT_INFER_NAME_BYTES])
{
    const size_t bytes = (text != NULL) ? strlen(text) : 0;

    if (bytes >= BT_INFER_NAME_BYTES) {
        return false;
    }
    memset(out, 0, BT_INFER_NAME_BYTES);
    memcpy(out, (text != NULL) ? text : "", bytes);
    return true;
}

static bt_status_t parse(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;
    bt_status_t status =
        t->source.parse(t->source.parse_ctx, &r->body, &t->api, &r->error);

    bt_strbuf_fini(&r->body);
    if (status != BT_OK) {
        return status;
    }
    if (r->model != NULL) { /* the path's; their lengths were checked */
        (void)copy_name(r->model, t->api.model);
        (void)copy_name(r->version, t->api.version);
    }
    return bt_shm_tensors_any(&t->api) ? BT_OK : lower(r);
}

/* Reads the tensors in shared memory, which have been looked up. */
static bt_status_t read_shared(bt_request_t *r)
{
    const bt_status_t status =
        bt_shm_tensors_read(r->tensors->uses, &r->tensors->api, &r->error);

    return (status == BT_OK) ? lower(r) : status;
}

static bt_status_t process(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;
    const bt_status_t status =
        bt_infer_process(r->served, r->context_tokens, t->spec, &t->api,
                         &t->lowered, t->outputs, &t->n_outputs, &r->error);

    return (status == BT_OK) ? write_shared(t, UINT64_MAX) : status;
}

/* Checks the limits of the model's configuration. @return false: the
 * error is set */
static bool check_config(bt_tensors_t *t)
{
    const char *model = t->api.model;
    const uint32_t most = bt_describe_max_batch(t->request->front, model);
    bool decoupled;

    if ((t->lowered.n_rows > most) && (t->lowered.n_rows > 1)) {
        bt_api_error_set(&t->request->error, 400, NULL,
                         "inference request batch-size must be <= %u for "
                         "'%.200s'",
                         most, model);
        return false;
    }
    if (!t->source.may_stream) {
        return true;
    }
    decoupled = bt_describe_is_decoupled(t->request->front, model);
    t->empty_final =
        decoupled && bt_infer_flag(&t->api.params, BT_INFER_EMPTY_FINAL);
    if (t->lowered.stream && !decoupled) {
        bt_api_error_set(&t->request->error, 400, NULL,
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
static void processed(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;
    uint64_t n = 0;

    for (size_t i = 0; i < t->n_outputs; i++) {
        n += n_ids_in(&t->outputs[i], "INPUT_ID");
    }
    for (size_t i = 0; i < t->api.n_inputs; i++) {
        n += n_ids_in(&t->api.inputs[i].tensor, "TOKENS_BATCH");
    }
    bt_sched_bucket_take(&r->tenant->bucket, n, r->step_us);
    bt_names_part(&r->front->names, bt_name_of(r->front, r->model),
                  r->step_us - t->process_us);
    finish(t);
}

static void begin_process(bt_tensors_t *t)
{
    bt_request_t *r = t->request;
    bt_tenant_denial_t denial;

    if (bt_tenant_check_tokens(r->tenant, 1, r->step_us, &denial) != BT_OK) {
        bt_request_deny(&denial, &r->error);
        bt_request_refuse(r);
        return;
    }
    t->process_us = r->step_us;
    bt_request_step(r, process, processed);
}

static void go_on(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;

    if ((bt_request_find_model(r, t->api.model, t->api.version) != BT_OK) ||
        !check_config(t)) {
        bt_request_refuse(r);
    } else if (t->lowered.stop && (t->api.id[0] == '\0')) {
        /* The text of TensorRT-LLM's backend. */
        bt_api_error_set(&r->error, 400, NULL,
                         "Trying to stop a request but request ID is not "
                         "provided");
        bt_request_refuse(r);
    } else if (t->lowered.stop) {
        stop_other(t);
    } else if ((t->spec->role == BT_ROLE_TEXT) ||
               (t->spec->role == BT_ROLE_IDS)) {
        begin_rows(t);
    } else {
        begin_process(t);
    }
}

/* Looks up tensors in shared memory: a short body may refer to long ones. */
static void parsed(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;
    uint64_t bytes;

    if (!bt_shm_tensors_any(&t->api)) {
        go_on(r);
        return;
    }
    r->status = bt_shm_tensors_begin(r->front->regions, &t->api,
                                     r->front->config->max_body_bytes, &t->uses,
                                     &r->error);
    if (r->status == BT_OK) {
        bytes = bt_shm_tensors_input_bytes(t->uses);
        r->is_inline = r->is_inline && (bytes <= BT_REQUEST_INLINE_BYTES) &&
                       !bt_shm_tensors_writes(t->uses);
        r->work_bytes += bytes;
        r->queue = bt_work_queue(r->work_bytes);
        r->status =
            r->is_inline ? BT_OK : bt_request_open_account(r, 0, &r->error);
    }
    if (r->status == BT_OK) {
        bt_request_step(r, read_shared, go_on);
    } else {
        bt_request_refuse(r);
    }
}

/* ---- the beginning ---- */

static bt_status_t admit(bt_request_t *r)
{
    bt_tensors_t *t = r->tensors;

    if (!copy_name(r->model, t->api.model) ||
        !copy_name(r->version, t->api.version)) {
        bt_api_error_set(&r->error, 404, "model",
                         "no model has a name or version of more than %d "
                         "bytes",
                         BT_INFER_NAME_BYTES - 1);
        return BT_ERR_NOT_FOUND;
    }
    return bt_frontend_check_slots(r->front, r->tenant, 1, &r->error);
}

static void on_error(bt_request_t *r, const bt_api_error_t *error)
{
    r->tensors->door->error(r, error);
}

static const bt_request_ops_t infer_ops = {
    .admit = admit,
    .parse = parse,
    .parsed = parsed,
    .piece = on_piece,
    .finish = on_finish,
    .error = on_error,
    .destroy = destroy,
};

void bt_infer_begin(bt_request_t *r, const bt_infer_source_t *source,
                    bt_strbuf_t *body)
{
    bt_tensors_t *t = bt_arena_alloc(&r->arena, sizeof(*t));

    r->dialect = BT_API_GENERATE;
    if (t != NULL) {
        t->source = *source;
    }
    if ((t == NULL) ||
        !bt_arena_strdup(&r->arena, source->peer, &t->source.peer)) {
        bt_strbuf_fini(body);
        bt_request_refuse_for_memory(r);
        return;
    }
    t->request = r;
    t->door = r->ops;
    BT_ASSERT(source->parse_ctx_bytes <= sizeof(t->parse_ctx));
    memcpy(t->parse_ctx, source->parse_ctx, source->parse_ctx_bytes);
    t->source.parse_ctx = t->parse_ctx;
    r->tensors = t;
    r->ops = &infer_ops;
    bt_request_begin(r, body);
}
