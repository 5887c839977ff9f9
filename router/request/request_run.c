/* SPDX-License-Identifier: Apache-2.0 */
/* A row runs: its choices become generations of the core, and its stream
 * begins. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/api/perf_metrics.h"
#include "router/request/request_priv.h"

/* Fills the properties that the writers need. @return false: no memory */
static bool fill_answer(bt_row_t *row, const bt_input_t *in)
{
    static const char *const prefixes[] = {
        [BT_API_GENERATE] = "",
        [BT_API_COMPLETIONS] = "cmpl-",
        [BT_API_CHAT] = "chatcmpl-",
        [BT_API_TOKENIZE] = "",
        [BT_API_DETOKENIZE] = "",
        [BT_API_RESPONSES] = "resp_",
        [BT_API_ANTHROPIC] = "msg_",
        [BT_API_ANTHROPIC_COUNT] = "",
        [BT_API_GENERATE_TOKENS] = "generate-tokens-",
        [BT_API_OLLAMA_CHAT] = "",
        [BT_API_OLLAMA_GENERATE] = "",
    };
    bt_request_t *r = row->request;
    const bt_api_request_t *api = &in->api;
    bt_api_answer_t *answer = &row->answer;

    snprintf(row->id, sizeof(row->id), "%s%016" PRIx64 "%08" PRIx64,
             prefixes[api->dialect], r->front->id_start,
             ++r->front->n_answers_begun & UINT32_MAX);
    if (r->kept_items != NULL) { /* nobody else can guess it */
        bt_store_id_make(BT_STORE_RESPONSE, row->id);
    }
    *answer = (bt_api_answer_t){
        .dialect = api->dialect,
        .id = row->id,
        .model = r->model,
        .version = r->served->version,
        .tok = r->served->tok,
        .created = (int64_t)time(NULL),
        .sequence_id = api->sequence_id,
        .sequence_start = api->sequence_start,
        .sequence_end = api->sequence_end,
        .include_usage = api->include_usage,
        .continuous_usage = api->continuous_usage,
        .max_tokens = api->has_max_tokens ? api->max_tokens : 0,
        .token_texts = api->token_texts,
        .context_tokens = bt_served_context_tokens(r->served),
        .only_one_call = api->tools.only_one,
        .counts_only = api->counts_only,
        .is_stored = r->kept_items != NULL,
        .special_bytes = api->tools.special_bytes,
        .temperature = in->prepared.sampling.temperature,
        .top_p = in->prepared.sampling.top_p,
    };
    if (in->prepared.n_prompts > 0) {
        answer->prompt_tokens = in->prepared.prompts[0].prompt->n;
    }
    if (in->prepared.tools != NULL) {
        answer->call_id_bytes = bt_tool_format_id_bytes(in->prepared.tools);
    }
    if (api->tools.special != NULL) {
        answer->special = bt_arena_dup(&r->arena, api->tools.special,
                                       api->tools.special_bytes);
        if (answer->special == NULL) {
            return false;
        }
    }
    return (((api->dialect != BT_API_GENERATE) &&
             ((api->dialect != BT_API_GENERATE_TOKENS) || (api->id == NULL))) ||
            bt_arena_strdup(&r->arena, api->id, &answer->id)) &&
           bt_arena_strdup(&r->arena, api->tools_json, &answer->tools) &&
           bt_arena_strdup(&r->arena, api->choice_json, &answer->choice) &&
           bt_arena_strdup(&r->arena, api->effort, &answer->effort) &&
           bt_arena_strdup(&r->arena, api->instructions,
                           &answer->instructions) &&
           bt_arena_strdup(&r->arena, api->previous_id, &answer->previous_id) &&
           bt_arena_strdup(&r->arena, api->metadata_json, &answer->metadata) &&
           bt_arena_strdup(&r->arena, api->grammar.format_json,
                           &answer->format);
}

/* Stores the prompt as its client wrote it, or the text of its token ids.
 * @return false when memory is short. */
static bool make_echo(bt_choice_t *choice, const bt_input_t *in, uint32_t i)
{
    bt_request_t *r = in->job.request;
    const bt_api_request_t *api = &in->api;
    const bt_api_prompt_t *prompt = &api->prompts[i / api->n];
    const bool echo = (api->dialect == BT_API_GENERATE)
                          ? !api->exclude_input_in_output
                          : api->echo;
    bt_strbuf_t text;

    /* Triton's models that take ids return no text. */
    if (!echo ||
        ((prompt->text == NULL) && (api->dialect == BT_API_GENERATE))) {
        return true;
    }
    if (prompt->text != NULL) {
        choice->echo =
            bt_arena_dup(&r->arena, prompt->text, prompt->text_bytes);
        choice->echo_bytes = prompt->text_bytes;
        return choice->echo != NULL;
    }
    bt_strbuf_init(&text, BT_ANSWER_LIMIT);
    bt_echo_ids(r->served->tok, prompt->ids, (uint32_t)prompt->n_ids, &text);
    if (bt_strbuf_status(&text) == BT_OK) { /* a BOS alone is no text */
        choice->echo = bt_arena_dup(&r->arena, text.data, text.len);
        choice->echo_bytes = text.len;
    }
    bt_strbuf_fini(&text);
    return choice->echo != NULL;
}

static void push_harmony(bt_choice_t *choice, const char *text, size_t bytes)
{
    bt_harmony_push(&choice->harmony, text, bytes, false, &choice->thought,
                    &choice->text, &choice->tools);
}

/* Initializes the search for tool calls in an answer. The beginning of a call
 * at the prompt's end counts as part of the answer. @return false when memory
 * is short. */
static bool init_tools(bt_choice_t *choice, const bt_input_t *in)
{
    const bt_prepared_t *prepared = &in->prepared;
    const bt_api_tools_t *tools = &in->api.tools;
    const bt_tools_spec_t spec = {
        .format = prepared->tools,
        .names = choice->row->tool_names,
        .names_bytes = tools->names_bytes,
        .max_calls = tools->only_one ? 1 : 0,
    };

    bt_tools_init(&choice->tools, &spec);
    if (choice->is_harmony && prepared->opens_reasoning) {
        const char *open = choice->row->request->served->reason->open;

        push_harmony(choice, open, strlen(open));
    }
    if ((prepared->tool_opening.len > 0) &&
        bt_tool_format_is_harmony(prepared->tools)) {
        push_harmony(choice, prepared->tool_opening.data,
                     prepared->tool_opening.len);
    } else if (prepared->tool_opening.len > 0) {
        bt_tools_open(&choice->tools, prepared->tool_opening.data,
                      prepared->tool_opening.len, &choice->text);
    }
    return bt_strbuf_status(&choice->text) == BT_OK;
}

/* Items of a response and blocks of a message have an order of their own, in
 * which reasoning comes first. */
static void init_harmony(bt_choice_t *choice, const bt_input_t *in)
{
    const bt_served_t *served = choice->row->request->served;
    const bt_api_request_t *api = &in->api;
    const bt_harmony_spec_t spec = {
        .keeps_reasoning = api->keeps_reasoning || (served->reason == NULL),
        .reasoning_first = (api->dialect == BT_API_RESPONSES) ||
                           (api->dialect == BT_API_ANTHROPIC),
        .is_continued = api->continues_final,
    };

    bt_harmony_init(&choice->harmony, &spec);
}

static bool choice_init(bt_choice_t *choice, bt_row_t *row, uint32_t index)
{
    const bt_input_t *in = row->input;
    const bt_served_t *served = row->request->served;
    const bt_api_request_t *api = &in->api;

    choice->row = row;
    choice->index = index;
    choice->first = true;
    bt_strbuf_init(&choice->text, BT_ANSWER_LIMIT);
    bt_strbuf_init(&choice->thought, BT_ANSWER_LIMIT);
    bt_strbuf_init(&choice->thoughts, BT_ANSWER_LIMIT);
    choice->is_harmony = bt_api_is_chat(api) && served->is_harmony;
    init_harmony(choice, in);
    bt_reason_init(
        &choice->reason,
        (bt_api_is_chat(api) && !api->keeps_reasoning && !choice->is_harmony)
            ? served->reason
            : NULL,
        in->prepared.opens_reasoning);
    bt_score_walk_init(&choice->walk, served->tok,
                       api->dialect == BT_API_COMPLETIONS, api->shows_special);
    choice->walk.skips_front = !api->echo;
    if (!init_tools(choice, in) || !make_echo(choice, in, index)) {
        return false;
    }
    if ((choice->echo != NULL) && !row->stream) {
        bt_strbuf_append(&choice->text, choice->echo, choice->echo_bytes);
    }
    return true;
}

/* Creates the choices of the row. @return false when memory is short. */
static bool make_choices(bt_row_t *row)
{
    const bt_input_t *in = row->input;
    const bt_api_request_t *api = &in->api;
    const uint32_t n = (uint32_t)(in->prepared.n_prompts * api->n);
    const uint32_t n_gens =
        (api->beams.params.width > 0) ? (uint32_t)in->prepared.n_prompts : n;
    bt_request_t *r = row->request;

    r->name = bt_name_of(r->front, r->model);
    row->piece_us = in->start_us;
    row->accumulates =
        (r->name == BT_NAME_BLS) && r->front->config->accumulate_tokens;
    row->stream = api->stream;
    row->want_ids = api->return_token_ids;
    row->is_echo = api->has_max_tokens && (api->max_tokens == 0);
    row->n_of_prompt = api->n;
    row->n_returned = (api->n_returned > 0) ? api->n_returned : api->n;
    row->hides_logprobs = api->hides_logprobs;
    row->skips_front = !api->echo;
    row->has_prompt_logprobs = api->has_prompt_logprobs;
    row->n_prompt_top = api->n_prompt_top;
    row->n_hidden_top = api->n_hidden_top;
    row->grammar_field =
        (api->grammar.field != NULL) ? api->grammar.field : "tools";
    row->perf_wants = api->wants.what & BT_WANT_ANY_PERF;
    row->has_beams = api->beams.params.width > 0;
    r->n_sequences = (r->n_sequences > 0) ? r->n_sequences : n_gens;
    row->choices = bt_arena_alloc(&r->arena, n * sizeof(*row->choices));
    if (api->tools.names != NULL) {
        row->tool_names =
            bt_arena_dup(&r->arena, api->tools.names, api->tools.names_bytes);
    }
    if ((row->choices == NULL) ||
        ((api->tools.names != NULL) && (row->tool_names == NULL)) ||
        !fill_answer(row, in)) {
        return false;
    }
    for (row->n_choices = 0; row->n_choices < n;) {
        const uint32_t i = row->n_choices++;

        if (!choice_init(&row->choices[i], row, i)) {
            return false;
        }
    }
    return true;
}

void bt_row_free_parts(bt_row_t *row)
{
    for (uint32_t i = 0; i < row->n_choices; i++) {
        bt_choice_t *choice = &row->choices[i];

        bt_strbuf_fini(&choice->text);
        bt_strbuf_fini(&choice->thought);
        bt_strbuf_fini(&choice->thoughts);
        bt_reason_fini(&choice->reason);
        bt_harmony_fini(&choice->harmony);
        bt_tools_fini(&choice->tools);
        bt_free(choice->ids);
        bt_gen_rows_unref(choice->rows);
        bt_score_walk_fini(&choice->walk);
    }
    row->n_choices = 0;
    bt_strbuf_fini(&row->text);
    bt_free(row->tokens.ids);
    row->tokens.ids = NULL;
    bt_strbuf_fini(&row->opening);
    if (row->kept_adapter != NULL) {
        bt_core_adapter_unref(row->request->served->core, row->kept_adapter);
        row->kept_adapter = NULL;
    }
}

/* Fills tenant, ids and the parent span: the client's, if it sent one. */
static void fill_origin(const bt_row_t *row, bt_gen_origin_t *origin)
{
    bt_request_t *r = row->request;
    const bool has_parent = (r->traceparent != NULL) &&
                            bt_trace_parse_parent(r->traceparent, origin);

    if (!has_parent && (r->front->trace != NULL)) {
        bt_trace_new_id(r->front->trace, origin->trace_id);
    }
    origin->name = (uint8_t)r->name;
    origin->chat = (row->answer.dialect == BT_API_CHAT) ||
                   (row->answer.dialect == BT_API_RESPONSES) ||
                   (row->answer.dialect == BT_API_ANTHROPIC) ||
                   (row->answer.dialect == BT_API_OLLAMA_CHAT);
    origin->stream = row->stream;
    snprintf(origin->tenant, sizeof(origin->tenant), "%s", r->tenant->name);
    snprintf(origin->answer_id, sizeof(origin->answer_id), "%s", row->id);
    snprintf(origin->request_id, sizeof(origin->request_id), "%s",
             (r->request_id != NULL) ? r->request_id : "");
    /* Fields that access log and trace share. */
    memcpy(r->facts.answer_id, origin->answer_id, sizeof(origin->answer_id));
    memcpy(r->facts.trace_id, origin->trace_id, sizeof(origin->trace_id));
}

/* Control tokens that mark reasoning or tool calls are kept in the text, so
 * that marks are found whether they are single tokens or not. */
static const bt_token_set_t *shown_of(const bt_input_t *in)
{
    if (!bt_api_is_chat(&in->api)) {
        return NULL;
    }
    return (in->prepared.tools != NULL)
               ? &in->job.request->served->all_marks
               : &in->job.request->served->reason_marks;
}

/* Choice i is answer i % n of prompt i / n, with the seed incremented i times.
 */
static bt_gen_spec_t spec_of(const bt_input_t *in,
                             const bt_gen_origin_t *origin, uint32_t i)
{
    bt_request_t *r = in->job.request;
    const bt_api_request_t *api = &in->api;
    const bt_prepared_prompt_t *prompt = &in->prepared.prompts[i / api->n];
    const bt_tenant_limits_t *limits = &r->tenant->limits;
    bt_gen_spec_t spec = {
        .prompt = prompt->prompt,
        .max_new = prompt->max_new,
        .sampling = in->prepared.sampling,
        .space = in->prepared.space,
        .adapter = bt_input_adapter(in),
        .max_drafts = api->max_drafts,
        .beams = api->beams.params,
        .wants = {.what = api->wants.what & ~BT_WANT_ANY_PERF,
                  .n_top = api->wants.n_top},
        .stops = (const char *const *)api->stops,
        .n_stops = api->n_stops,
        .stop_ids = api->stop_ids,
        .n_stop_ids = api->n_stop_ids,
        .every_token = api->return_token_ids && api->stream,
        .keeps_stop = api->keeps_stop,
        .repetition = api->repetition,
        .shows_special = api->shows_special,
        .shown = shown_of(in),
        .tenant = {.id = r->tenant->id,
                   .weight = limits->weight,
                   .kv_percent = limits->kv_percent},
        .priority = in->priority,
        .timeout_ms = api->timeout_ms,
        /* The request's, else its tenant's; the core has the model's. */
        .target = bt_sched_slo_or(
            api->target,
            (bt_sched_slo_t){limits->ttft_target_ms, limits->itl_target_ms}),
        .parse_us = r->parse_us,
        .tokenize_us = in->tokenize_us,
        .n_of_request = r->n_sequences,
        .held_us =
            (r->front->hold_end != NULL) ? bt_now_us() - in->row->ready_us : 0,
        .origin = *origin,
    };

    spec.origin.choice = i;
    spec.origin.number = ++r->front->n_generations;
    spec.sampling.seed += i;
    spec.sampling.processors.n_penalized_prompt = prompt->n_penalized;
    spec.sampling.processors.is_thinking = prompt->is_thinking ? 1 : 0;
    spec.sampling.processors.ids = prompt->prompt->processor_ids;
    return spec;
}

/* Submits the choices from @a first on: those of one prompt.
 * @param [out] specs  n of them */
static bt_status_t submit_prompt(bt_row_t *row, const bt_gen_origin_t *origin,
                                 uint32_t first, bt_gen_spec_t *specs)
{
    const bt_input_t *in = row->input;
    bt_request_t *r = row->request;
    const bt_prepared_prompt_t *prompt =
        &in->prepared.prompts[first / in->api.n];
    const uint32_t n = row->has_beams ? 1 : in->api.n;
    bt_choice_t *choices = &row->choices[first];
    void *users[BT_API_MAX_PROMPTS];
    bt_gen_t *gens[BT_API_MAX_PROMPTS];
    bt_status_t status;

    for (uint32_t i = 0; i < n; i++) {
        specs[i] = spec_of(in, origin, first + i);
        users[i] = &choices[i];
        choices[i].n_prompt = prompt->prompt->n;
    }
    status =
        bt_core_submit(r->served->core, specs, users, n, bt_now_us(), gens);
    if (status != BT_OK) {
        return status;
    }
    bt_tenant_begin(r->tenant, n);
    bt_sched_bucket_take(&r->tenant->bucket,
                         bt_input_tokens(in, first / in->api.n), bt_now_us());
    bt_adapter_metrics_add(bt_row_adapter_metrics(row), BT_AC_RUNNING, n);
    row->n_open += n;
    for (uint32_t i = n; i < in->api.n; i++) { /* beams */
        choices[i].n_prompt = prompt->prompt->n;
        choices[i].max_new = prompt->max_new;
    }
    for (uint32_t i = 0; i < n; i++) {
        choices[i].gen = gens[i];
        choices[i].max_new = prompt->max_new;
        bt_tenant_metrics_add(r->tenant->metrics, BT_TC_REQUESTS, 1);
        bt_tenant_metrics_add(r->tenant->metrics, BT_TC_PROMPT_TOKENS,
                              prompt->prompt->n);
        bt_adapter_metrics_add(bt_row_adapter_metrics(row), BT_AC_REQUESTS, 1);
        bt_adapter_metrics_add(bt_row_adapter_metrics(row), BT_AC_PROMPT_TOKENS,
                               prompt->prompt->n);
        bt_router_metrics_prompt(r->served->metrics, prompt->prompt->n);
        bt_series_begun(r->served->series, prompt->prompt->n);
    }
    return BT_OK;
}

/* Submits all generations of the row, or as many as possible; then it fails. */
static bt_status_t request_queue(bt_row_t *row)
{
    const bt_input_t *in = row->input;
    bt_gen_spec_t *specs = bt_calloc(in->api.n, sizeof(*specs));
    bt_status_t status = (specs != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    bt_gen_origin_t origin = {0};

    bt_request_move(row->request, BT_REQUEST_QUEUE);
    fill_origin(row, &origin);
    for (uint32_t i = 0; (i < row->n_choices) && (status == BT_OK);
         i += in->api.n) {
        status = submit_prompt(row, &origin, i, specs);
    }
    bt_free(specs);
    for (size_t k = 0; k < in->prepared.n_prompts; k++) {
        row->n_prompt_tokens += in->prepared.prompts[k].prompt->n;
    }
    return status;
}

/* ---- a row runs ---- */

static void refuse(bt_row_t *row, int http_status, const char *why)
{
    bt_api_error_set(&row->request->error, http_status, NULL, "%s", why);
    bt_request_refuse(row->request);
}

/* Refuses a row whose latency targets cannot be met. */
static void refuse_late(bt_row_t *row)
{
    bt_request_t *r = row->request;
    const bt_core_late_t *late = bt_core_late(r->served->core);

    bt_router_metrics_late(r->served->metrics, late->first, row->n_choices);
    bt_api_error_set(
        &r->error, 429, late->first ? "ttft_target_ms" : "itl_target_ms",
        "the %s would be %" PRIu64
        " ms, more than the target of %u ms; try again in %u s",
        late->first ? "time to the first token" : "time between tokens",
        late->forecast_ms, late->target_ms, late->retry_s);
    r->error.retry_after_s = late->retry_s;
    bt_request_refuse(r);
}

static void refuse_beams(bt_row_t *row)
{
    static const char *const names[] = {"use_beam_search", "beam_width"};
    const char *name = names[row->input->api.dialect == BT_API_GENERATE];

    bt_api_error_set(
        &row->request->error, 400, name,
        "%s: the workers of this model do not search with beams; "
        "those of models with attention windows or a state cannot, "
        "nor can those of an earlier version",
        name);
    bt_request_refuse(row->request);
}

static void generate(bt_row_t *row)
{
    if (bt_input_check_tokens(row->input) != BT_OK) {
        row->request->error = row->input->error;
        bt_request_refuse(row->request);
        return;
    }
    if (!make_choices(row)) {
        bt_request_refuse_for_memory(row->request);
        return;
    }
    switch (request_queue(row)) {
    case BT_OK:
        if (row->stream && (row->request->ops->begin != NULL)) {
            if (row->is_placed) {
                row->request->ops->begin(row);
            } else {
                bt_list_push_back(&row->request->front->waiting, &row->unbegun);
            }
        }
        break;
    case BT_ERR_INVALID_PARAM:
        refuse(row, 400, "a stop word is empty or longer than 1024 bytes");
        break;
    case BT_ERR_TIMED_OUT:
        refuse_late(row);
        break;
    case BT_ERR_UNSUPPORTED:
        refuse_beams(row);
        break;
    case BT_ERR_TOO_LARGE:
        refuse(row, 503,
               "the logits of requests in flight leave no room for those of "
               "this one (max-logits-bytes), try again later");
        break;
    default:
        bt_tenant_metrics_add(row->request->tenant->metrics,
                              BT_TC_REFUSED_SERVER, 1);
        refuse(row, 503, "no room for this request, try again later");
    }
}

/* Answers a request for tokens or text only. The row takes both from its input,
 * since the answer may be written after the input is freed. */
static void respond_tokens(bt_row_t *row)
{
    bt_input_t *in = row->input;
    bt_request_t *r = row->request;
    bt_api_choice_t *choice = bt_arena_alloc(&r->arena, sizeof(*choice));
    const bt_api_usage_t usage = {0};

    /* The number is known only now; tokens over the limit become a debt. */
    bt_sched_bucket_take(&r->tenant->bucket, in->prepared.tokens.n,
                         bt_now_us());
    if ((choice == NULL) || !fill_answer(row, in)) {
        bt_request_refuse_for_memory(r);
        return;
    }
    row->text = in->prepared.text;
    row->tokens = in->prepared.tokens;
    bt_strbuf_init(&in->prepared.text, 0);
    in->prepared.tokens = (bt_token_vec_t){0};
    choice->text = (row->text.len > 0) ? row->text.data : "";
    choice->text_bytes = row->text.len;
    choice->token_ids = row->tokens.ids;
    choice->n_token_ids = (uint32_t)row->tokens.n;
    row->is_open = false;
    r->ops->finish(row, choice, 1, &usage);
}

static void request_run(bt_row_t *row)
{
    const bt_api_dialect_t dialect = row->input->api.dialect;
    bt_request_t *r = bt_request_ref(row->request);

    if ((dialect == BT_API_TOKENIZE) || (dialect == BT_API_DETOKENIZE) ||
        (dialect == BT_API_ANTHROPIC_COUNT) || row->input->api.counts_only) {
        respond_tokens(row);
    } else {
        generate(row);
    }
    if (row->input != NULL) {
        bt_input_free(row->input);
    }
    bt_request_unref(r);
}

/* --max-queue-delay-us: the first row starts the delay, and all rows that
 * arrive meanwhile begin with it. */
void bt_row_ready(bt_row_t *row)
{
    bt_frontend_t *front = row->request->front;

    row->ready_us = bt_now_us();
    if (front->hold_end == NULL) {
        request_run(row);
        return;
    }
    if (bt_list_empty(&front->held)) {
        front->hold_end(front->hold_ctx, front->config->max_queue_delay_us);
    }
    bt_list_push_back(&front->held, &row->held);
    front->n_held++;
}

static void unhold(bt_row_t *row)
{
    row->request->front->n_held -= bt_list_empty(&row->held) ? 0 : 1;
    bt_list_remove(&row->held);
}

void bt_request_begin_held(bt_frontend_t *front)
{
    while (!bt_list_empty(&front->held)) {
        bt_row_t *row = BT_CONTAINER_OF(front->held.next, bt_row_t, held);

        unhold(row);
        request_run(row);
    }
}

void bt_row_close(bt_row_t *row)
{
    if (!row->is_open) {
        return;
    }
    row->is_open = false;
    bt_row_add_facts(row);
    bt_list_remove(&row->unbegun);
    unhold(row);
    if (row->input != NULL) {
        bt_input_leave(row->input);
    }
    bt_row_cancel(row);
}

/* ---- the begin of a stream ---- */

void bt_row_begin_stream(bt_row_t *row)
{
    bt_list_remove(&row->unbegun);
    row->request->ops->begin(row);
}

static void begin_all(bt_list_t *due)
{
    /* Beginning one row may remove others from the list. */
    while (!bt_list_empty(due)) {
        bt_row_t *row = BT_CONTAINER_OF(due->next, bt_row_t, unbegun);
        bt_request_t *r = bt_request_ref(row->request);

        bt_row_begin_stream(row);
        bt_request_unref(r);
    }
}

static void on_placed(void *ctx, void *choice_p)
{
    bt_row_t *row = ((bt_choice_t *)choice_p)->row;

    (void)ctx;
    row->is_placed = true;
    bt_request_move(row->request, BT_REQUEST_RUN);
    if (!bt_list_empty(&row->unbegun)) {
        bt_list_remove(&row->unbegun);
        bt_list_push_back(&row->request->front->placed, &row->unbegun);
    }
}

/* Begins streams whose rows were placed, at the end of each callback of the
 * event loop. */
static void begin_placed(bt_frontend_t *front)
{
    begin_all(&front->placed);
}

/* Begins streams that have waited for busy workers for as long as a stream may
 * be silent (--sse-keepalive-s): a 503 can only be a failure then. */
static void begin_waiting(bt_frontend_t *front, uint64_t now_us)
{
    const uint64_t silent_us =
        (uint64_t)front->config->sse_keepalive_s * 1000000;
    bt_list_t due;

    if (silent_us == 0) {
        return;
    }
    bt_list_init(&due);
    BT_LIST_FOR_EACH_ENTRY(bt_row_t, row, &front->waiting, unbegun) {
        if (now_us < row->ready_us + silent_us) {
            break;
        }
        if (bt_served_ready(row->request->served)) {
            bt_list_remove(&row->unbegun);
            bt_list_push_back(&due, &row->unbegun);
        }
    }
    begin_all(&due);
}

static void tick(bt_frontend_t *front, uint64_t now_us)
{
    begin_waiting(front, now_us);
    bt_request_send_refused(front, now_us);
}

const bt_frontend_ops_t bt_request_frontend_ops = {
    .on_placed = on_placed,
    .on_text = bt_row_on_text,
    .on_end = bt_row_on_end,
    .turn = begin_placed,
    .tick = tick,
};
