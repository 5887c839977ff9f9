/* SPDX-License-Identifier: Apache-2.0 */
/* From a body to tokenized prompts: parsing, model lookup, chat template,
 * tokenizing, all checks. Long work runs on the frontend's pool, so that no
 * client's body blocks the event loop; short work is done at once.
 *
 *     begin ─▶ parse ─▶ model, space in the queue ─▶ tokenize ─▶ ready
 *                │              │                       │
 *                └── refused ───┴───────────────────────┘
 *              (pool)        (event loop)             (pool)
 *
 * Meanwhile the input holds slots in the queue (max_queue), which bounds the
 * pool's work.
 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/frontend/lora_tasks.h"
#include "router/frontend/priority.h"
#include "router/frontend/space.h"
#include "router/request/request_priv.h"

static bt_input_t *input_of(bt_pool_job_t *job)
{
    return BT_REQUEST_JOB_OF(job, bt_input_t, job);
}

/* ---- checks ---- */

/* Checks that queue and tenant have slots for @a n answers. */
static bt_status_t check_slots(const bt_request_t *r, size_t n,
                               bt_api_error_t *error)
{
    bt_tenant_denial_t denial;
    bt_status_t status = bt_frontend_check_slots(r->front, r->tenant, n, error);

    if (status != BT_OK) {
        if (error->http_status != 400) {
            bt_tenant_metrics_add(r->tenant->metrics, BT_TC_REFUSED_SERVER, 1);
        }
        return status;
    }
    status = bt_tenant_check_requests(r->tenant, (uint32_t)n, 0, &denial);
    if (status != BT_OK) {
        bt_request_deny(&denial, error);
    }
    return status;
}

/* Checks whether the tenant may use @a n more tokens. */
static bt_status_t check_tokens(const bt_request_t *r, uint64_t n,
                                uint64_t now_us, bt_api_error_t *error)
{
    bt_tenant_denial_t denial;

    if (bt_tenant_check_tokens(r->tenant, n, now_us, &denial) == BT_OK) {
        return BT_OK;
    }
    bt_request_deny(&denial, error);
    return BT_ERR_BUSY;
}

bt_status_t bt_input_check_tokens(bt_input_t *in)
{
    uint64_t n = 0;

    for (size_t k = 0; k < in->prepared.n_prompts; k++) {
        n += bt_input_tokens(in, k);
    }
    return check_tokens(in->job.request, n, bt_now_us(), &in->error);
}

uint64_t bt_input_tokens(const bt_input_t *in, size_t k)
{
    const bt_prepared_prompt_t *prompt = &in->prepared.prompts[k];

    const uint32_t width = in->api.beams.params.width; /* 0: no beams */
    const uint64_t n = (width > in->api.n) ? width : in->api.n;

    return prompt->prompt->n + n * prompt->max_new;
}

/* ---- the steps; those of the pool first ---- */

static bool is_word(const char *option, const char *word)
{
    return (option != NULL) && (strcmp(option, word) == 0);
}

/* Refuses unknown fields, if the operator wants that. */
static bt_status_t judge_ignored(bt_input_t *in)
{
    const char *option = in->job.request->front->config->unknown_fields;

    if (is_word(option, "error") &&
        bt_api_refuse_ignored(&in->api, &in->error)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (is_word(option, "ignore")) {
        in->api.ignored[0] = '\0';
    }
    return BT_OK;
}

/* Returns the cache namespace of the request, but for its adapter. */
static bt_hash128_t space_of_tenant(const bt_input_t *in)
{
    const bt_request_t *r = in->job.request;
    const uint8_t *key = r->front->space_key;
    const char *salt = in->api.cache_salt;

    if (r->tenant->is_named) {
        return bt_space_of_tenant(key, r->tenant->name, salt);
    }
    return (salt != NULL) ? bt_space_of_salt(key, salt) : (bt_hash128_t){0, 0};
}

static bt_hash128_t space_of(const bt_input_t *in)
{
    const bt_request_t *r = in->job.request;
    const bt_hash128_t space = space_of_tenant(in);
    const bt_hash128_t adapter = bt_input_adapter(in);

    return ((adapter.lo | adapter.hi) == 0)
               ? space
               : bt_space_of_adapter(r->front->space_key, space, adapter);
}

/* Moves a prompt with rows of a table to the table's namespace. */
static void add_table(bt_input_t *in)
{
    const bt_api_table_t *table = &in->api.table;
    bool is_used = false;

    for (size_t i = 0; (in->status == BT_OK) && (i < in->prepared.n_prompts);
         i++) {
        is_used = is_used || (in->prepared.prompts[i].prompt->table != NULL);
    }
    if (is_used) {
        in->prepared.space = bt_space_of_table(
            in->job.request->front->space_key, in->prepared.space,
            &table->rows->rows, table->extra_ids, table->n_extra_ids);
    }
}

static void request_tokenize(bt_pool_job_t *job)
{
    bt_input_t *in = input_of(job);
    const bt_request_t *r = in->job.request;

    in->status = bt_prepare(r->served, r->context_tokens, &in->api,
                            &in->prepared, &in->error);
    if (in->status == BT_OK) {
        in->status = judge_ignored(in);
        if (in->status != BT_OK) {
            bt_prepared_fini(&in->prepared);
        }
    }
    if ((in->status == BT_OK) && !in->api.counts_only) {
        in->prepared.space = space_of(in);
        in->prepared.tenant = r->tenant;
        in->status =
            bt_prepare_grammar(r->front->grammars, r->served, &in->api,
                               &in->prepared, &in->grammar, &in->error);
        add_table(in);
        if (in->status != BT_OK) {
            bt_prepared_fini(&in->prepared);
        }
    }
}

/* Time-limited work on the event loop. */
typedef struct brief {
    bt_task_t task;
    uint64_t until_us;
} brief_t;

static void look_at_clock(void *ctx)
{
    brief_t *brief = ctx;

    if (bt_now_us() >= brief->until_us) {
        bt_task_cancel(&brief->task);
    }
}

/* Tokenizes on the event loop. A chat template may run long however short the
 * request is. @return false: the time was over, and nothing has changed */
static bool tokenize_briefly(bt_input_t *in)
{
    const size_t n_ignored = strlen(in->api.ignored);
    brief_t brief = {.until_us =
                         bt_now_us() + in->job.request->front->inline_us};
    bt_task_t *before;

    bt_task_init(&brief.task);
    brief.task.yield = look_at_clock;
    brief.task.ctx = &brief;
    before = bt_task_enter(&brief.task);
    request_tokenize(&in->job.work.job);
    bt_task_leave(before);
    if ((in->status == BT_OK) || !bt_task_is_canceled(&brief.task)) {
        return true;
    }
    in->status = BT_OK;
    in->error = (bt_api_error_t){0};
    in->api.ignored[n_ignored] = '\0';
    return false;
}

/* Hands the input to its row, or refuses it. */
static void input_done(bt_input_t *in)
{
    bt_request_t *r = in->job.request;
    bt_row_t *row = in->row;

    bt_request_hold_slots(r, &in->n_slots, 0);
    if (row == NULL) {
        bt_input_free(in);
        return;
    }
    memcpy(r->facts.ignored, in->api.ignored, sizeof(r->facts.ignored));
    if (in->status == BT_OK) {
        bt_row_ready(row);
        return;
    }
    row->input = NULL;
    r->error = in->error;
    bt_request_refuse(r);
    bt_input_free(in);
}

/* Any client could put itself first, so priorities count only if the operator
 * allows them. Otherwise values are not checked either, and all requests of
 * clients have the default level, above those of batches. */
static bt_status_t set_priority(bt_input_t *in)
{
    const bt_request_t *r = in->job.request;
    bt_frontend_t *front = r->front;
    const bt_priority_scale_t scale = bt_priority_scale(front->config);
    uint32_t level = 0;

    if (r->is_background) {
        in->priority = 0;
        return BT_OK;
    }
    in->priority = bt_priority_default(&scale);
    if (front->config->client_priority) {
        const uint32_t most =
            bt_priority_default(&scale) + r->tenant->limits.max_priority;

        if (bt_priority_level(&scale, &in->api, &level, &in->error) != BT_OK) {
            return BT_ERR_INVALID_PARAM;
        }
        in->priority = (level < most) ? level : most;
    } else if ((in->api.priority.kind != BT_API_PRIORITY_NONE) &&
               !front->logged_priority) {
        front->logged_priority = true;
        BT_LOG_INFO(
            "priorities of requests are ignored without --client-priority");
    }
    return BT_OK;
}

/* As in TensorRT-LLM: the operator's default applies if the client does not set
 * it, and stream pieces have new text only, in any case. */
static void set_exclude_input(bt_input_t *in)
{
    bt_api_request_t *api = &in->api;

    if ((api->given & BT_GIVEN_EXCLUDE_INPUT) == 0) {
        api->exclude_input_in_output =
            in->job.request->front->config->exclude_input_in_output;
    }
    if (api->stream) {
        api->exclude_input_in_output = true;
    }
}

static bt_status_t check_beams(bt_input_t *in)
{
    const uint32_t most = in->job.request->front->config->max_beam_width;
    const uint32_t width = in->api.beams.params.width;
    const char *name =
        (in->api.dialect == BT_API_GENERATE) ? "beam_width" : "n";

    return (width <= most)
               ? BT_OK
               : bt_api_error_invalid(&in->error, name,
                                      "%s asks for %u beams, more than the %u "
                                      "that this server allows "
                                      "(max-beam-width)",
                                      name, width, most);
}

static void count_grammar(const bt_input_t *in)
{
    const bt_grammar_made_t *made = &in->grammar;

    _Static_assert((uint32_t)BT_GRAMMAR_STRUCTURAL_TAG + 1 ==
                       BT_METRICS_GRAMMAR_KINDS,
                   "each kind has its counters");
    if (made->was_known || (made->us > 0)) {
        bt_router_metrics_grammar(in->job.request->served->metrics,
                                  (uint32_t)made->kind, made->why[0] == '\0',
                                  made->was_known, made->us);
    }
    bt_tenant_metrics_add(in->job.request->tenant->metrics,
                          BT_TC_GRAMMAR_SECONDS, (double)made->cpu_us / 1e6);
}

static void tokenized(bt_pool_job_t *job)
{
    bt_input_t *in = input_of(job);
    const uint64_t now_us = bt_now_us();

    in->tokenize_us = now_us - in->step_us;
    count_grammar(in);
    if (in->job.work.job.ran && (in->status == BT_ERR_BUSY)) {
        bt_tenant_denial_t denial;

        bt_tenant_deny_compile(in->job.request->tenant, now_us, &denial);
        bt_request_deny(&denial, &in->error);
    }
    in->status = bt_request_step_status(&in->job, in->status, &in->error);
    input_done(in);
}

/* Sets the queue class by the bytes to tokenize, or to look up a grammar by. */
static void set_queue(bt_input_t *in)
{
    in->text_bytes = in->api.grammar.bytes;
    for (size_t i = 0; i < in->api.n_prompts; i++) {
        const bt_api_prompt_t *prompt = &in->api.prompts[i];

        in->text_bytes += (prompt->text != NULL)
                              ? prompt->text_bytes
                              : prompt->n_ids * sizeof(*prompt->ids);
    }
    in->is_inline = in->text_bytes <= BT_REQUEST_INLINE_BYTES;
    in->queue = bt_work_queue(in->text_bytes);
}

/* True where the request has a grammar that is not known yet, or may not be: of
 * chats it depends on the prompt and the tools. */
static bool compiles_long(const bt_input_t *in)
{
    const bt_request_t *r = in->job.request;
    const bt_grammar_source_t source = bt_prepare_grammar_source(&in->api);

    if (in->api.counts_only || !bt_prepare_has_grammar(r->served, &in->api)) {
        return false;
    }
    return (bt_api_is_chat(&in->api) &&
            ((r->served->reason != NULL) || (in->api.tools.json != NULL))) ||
           !bt_grammar_cache_has(r->front->grammars, space_of(in), &source);
}

/* Tokenizes a row that is parsed, once there is space for its choices. */
static void row_tokenize(bt_input_t *in)
{
    bt_request_t *r = in->job.request;
    const size_t n_choices =
        (bt_api_is_chat(&in->api) ? 1 : in->api.n_prompts) * in->api.n;
    bool compiles;

    in->status = set_priority(in);
    if (in->status == BT_OK) {
        in->status = check_beams(in);
    }
    if (in->status == BT_OK) {
        in->status = check_slots(r, n_choices, &in->error);
    }
    if ((in->status == BT_OK) && !in->is_inline) {
        in->status = bt_request_open_account(r, 0, &in->error);
    }
    if (in->status != BT_OK) {
        input_done(in);
        return;
    }
    bt_request_move(r, BT_REQUEST_TOKENIZE);
    bt_request_hold_slots(r, &in->n_slots, (uint32_t)n_choices);
    set_exclude_input(in);
    compiles = compiles_long(in);
    if (in->is_inline && !compiles && tokenize_briefly(in)) {
        in->job.work.job.ran = true;
        tokenized(&in->job.work.job);
        return;
    }
    if (in->is_inline || (compiles && (in->queue == BT_POOL_SHORT))) {
        in->queue = BT_POOL_LONG;
    }
    if (in->is_inline) {
        in->is_inline = false;
        in->status = bt_request_open_account(r, in->text_bytes, &in->error);
        if (in->status != BT_OK) {
            input_done(in);
            return;
        }
    }
    in->text_bytes += compiles ? BT_WORK_COMPILE_BYTES : 0;
    bt_request_post(&in->job, false, request_tokenize, tokenized, in->queue,
                    in->text_bytes);
}

/* ---- the adapter of lora_task_id ---- */

/* Row that waits for its adapter; its request is kept. */
typedef struct adapter_wait {
    bt_lora_waiter_t waiter;
    bt_row_t *row;
} adapter_wait_t;

static void use_adapter(bt_input_t *in, bt_hash128_t digest,
                        bt_adapter_metrics_t *metrics)
{
    in->adapter = digest;
    in->row->adapter_metrics = metrics;
    in->row->kept_adapter =
        bt_core_adapter_ref(in->job.request->served->core, digest);
    in->step_us = bt_now_us();
    row_tokenize(in);
}

static void adapter_done(bt_lora_waiter_t *waiter, bt_hash128_t digest,
                         const bt_api_error_t *error)
{
    adapter_wait_t *const wait =
        BT_CONTAINER_OF(waiter, adapter_wait_t, waiter);
    bt_row_t *const row = wait->row;
    bt_request_t *const r = row->request;
    bt_input_t *const in = row->input; /* NULL: it was closed */
    bt_adapter_metrics_t *const metrics = waiter->metrics;

    bt_free(wait);
    if ((in != NULL) && (error != NULL)) {
        in->error = *error;
        in->status = BT_ERR_NOT_FOUND;
        input_done(in);
    } else if (in != NULL) {
        use_adapter(in, digest, metrics);
    }
    bt_request_unref(r);
}

/* @retval BT_ERR_BUSY  adapter_done() is called later */
static bt_status_t find_adapter(bt_input_t *in, bt_hash128_t *digest_p,
                                bt_adapter_metrics_t **metrics_p)
{
    bt_request_t *const r = in->job.request;
    adapter_wait_t *wait;
    bt_status_t status;

    if ((r->adapter.lo | r->adapter.hi) != 0) {
        return bt_api_error_invalid(&in->error, "lora_task_id",
                                    "input 'lora_task_id': '%.200s' is a LoRA "
                                    "adapter itself",
                                    r->model);
    }
    wait = bt_calloc(1, sizeof(*wait));
    if (wait == NULL) {
        return bt_api_error_no_memory(&in->error);
    }
    wait->waiter.done = adapter_done;
    wait->row = in->row;
    status = bt_lora_task_find(r->served, r->tenant, &in->api.lora,
                               &wait->waiter, digest_p, &in->error);
    if (status == BT_ERR_BUSY) {
        bt_request_ref(r);
    } else {
        *metrics_p = wait->waiter.metrics;
        bt_free(wait);
    }
    return status;
}

/* Tokenizes a row once its adapter is there. */
static void row_adapt(bt_input_t *in)
{
    const bt_api_lora_t *const lora = &in->api.lora;
    bt_adapter_metrics_t *metrics = NULL;
    bt_hash128_t digest;

    if (!lora->has_task ||
        (lora->is_blank &&
         (in->job.request->front->config->lora_cache_host_bytes == 0))) {
        row_tokenize(in);
        return;
    }
    in->status = find_adapter(in, &digest, &metrics);
    if (in->status == BT_OK) {
        use_adapter(in, digest, metrics);
    } else if (in->status != BT_ERR_BUSY) {
        input_done(in);
    }
}

/* ---- the beginning of a row ---- */

/* @return false: no memory */
static bool make_input(bt_row_t *row)
{
    bt_input_t *in = bt_calloc(1, sizeof(*in));

    row->input = in;
    if (in != NULL) {
        in->row = row;
        in->job.request = row->request;
        in->is_inline = row->request->is_inline;
        in->start_us = in->step_us = bt_now_us();
    }
    return in != NULL;
}

void bt_row_begin(bt_row_t *row, bt_api_request_t *api)
{
    bt_request_t *r = row->request;
    bt_input_t *in;

    if (!make_input(row)) {
        bt_request_refuse_for_memory(r);
        return;
    }
    in = row->input;
    row->is_open = true;
    in->api = *api;
    memset(api, 0, sizeof(*api));
    set_queue(in);
    in->status = check_tokens(r, 1, in->start_us, &in->error);
    if (in->status == BT_OK) {
        row_adapt(in);
    } else {
        input_done(in);
    }
}

/* ---- requests of text: one row, whose body is JSON ---- */

/* A tenant over its token limit is refused before its body is parsed. */
bt_status_t bt_text_admit(bt_request_t *r)
{
    bt_status_t status;

    if (!bt_request_make_rows(r, 1) || !make_input(&r->rows[0])) {
        return bt_api_error_no_memory(&r->error);
    }
    status = check_slots(r, 1, &r->error);
    return (status == BT_OK) ? check_tokens(r, 1, r->step_us, &r->error)
                             : status;
}

bt_status_t bt_text_parse(bt_request_t *r)
{
    bt_input_t *in = r->rows[0].input;
    bt_api_request_t *api = &in->api;
    const bool is_stored =
        (r->dialect == BT_API_RESPONSES) && (r->front->responses != NULL);
    bt_status_t status =
        is_stored ? bt_history_parse(r, api, &in->error)
                  : bt_api_parse(r->dialect,
                                 (r->body.data != NULL) ? r->body.data : "",
                                 r->body.len, api, &in->error);

    if (!is_stored || (api->previous_id == NULL)) {
        bt_strbuf_fini(&r->body); /* else it is parsed again */
    }
    if (status == BT_OK) {
        status = judge_ignored(in);
    }
    if (status != BT_OK) {
        r->error = in->error;
        return status;
    }
    return bt_text_settle(r, api);
}

bt_status_t bt_text_settle(bt_request_t *r, bt_api_request_t *api)
{
    api->n = (api->n > 0) ? api->n : 1;
    api->stream = (api->dialect == BT_API_GENERATE) ? r->stream : api->stream;
    api->counts_only = api->counts_only || r->counts_only;
    api->stream = api->stream && !api->counts_only;
    if (api->stream && (api->beams.params.width > 0)) {
        return bt_api_refuse_beam_stream(api, "generate_stream", &r->error);
    }
    return BT_OK;
}

void bt_text_parsed(bt_request_t *r)
{
    bt_input_t *in = r->rows[0].input;

    if ((in->api.previous_id != NULL) && bt_history_begin(r)) {
        return;
    }
    r->rows[0].is_open = true;
    bt_request_hold_slots(r, &r->n_slots, 0);
    memcpy(r->facts.ignored, in->api.ignored, sizeof(r->facts.ignored));
    if ((r->model == NULL) &&
        !bt_arena_strdup(&r->arena, in->api.model, &r->model)) {
        r->status = bt_api_error_no_memory(&r->error);
    } else {
        r->status = bt_request_find_model(r, r->model, NULL);
    }
    if (r->status == BT_OK) {
        r->status = bt_history_settle(r, &in->api);
    }
    if (r->status != BT_OK) {
        bt_request_refuse(r);
        return;
    }
    in->step_us = r->step_us;
    in->queue = r->queue;
    in->text_bytes = r->work_bytes;
    row_adapt(in);
}

/* ---- the end ---- */

static void drop(bt_pool_job_t *job)
{
    bt_input_t *in = input_of(job);

    bt_prepared_fini(&in->prepared);
    bt_api_request_fini(&in->api);
}

static void dropped(bt_pool_job_t *job)
{
    if (!job->ran) {
        drop(job);
    }
    bt_free(input_of(job));
}

void bt_input_free(bt_input_t *in)
{
    if (in->row != NULL) {
        in->row->input = NULL;
        in->row = NULL;
    }
    /* Freeing megabytes takes some time, so the pool does it, first in its
     * queue. */
    bt_request_post(&in->job, in->is_inline, drop, dropped, BT_POOL_FIRST,
                    in->text_bytes);
}

void bt_input_leave(bt_input_t *in)
{
    in->row->input = NULL;
    in->row = NULL;
    if (in->job.posted) {
        bt_pool_cancel(in->job.request->front->pool, &in->job.work.job);
    } else { /* ready, and held */
        bt_input_free(in);
    }
}
