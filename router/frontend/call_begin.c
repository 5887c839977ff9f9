/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an intake into choices and their generations. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/frontend/call_priv.h"
#include "router/frontend/limits.h"

static bool copy_text(const char *text, char **copy_p)
{
    *copy_p = bt_strdup(text);
    return (text == NULL) || (*copy_p != NULL);
}

void bt_call_fill_answer(bt_call_t *call, const bt_api_request_t *request)
{
    static const char *const prefixes[] = {
        [BT_API_GENERATE] = "",      [BT_API_COMPLETIONS] = "cmpl-",
        [BT_API_CHAT] = "chatcmpl-", [BT_API_TOKENIZE] = "",
        [BT_API_DETOKENIZE] = "",    [BT_API_RESPONSES] = "resp_",
    };
    bt_frontend_t *front = call->front;
    bt_api_answer_t *answer = &call->answer;

    snprintf(call->id, sizeof(call->id), "%s%016" PRIx64 "%08" PRIx64,
             prefixes[request->dialect], front->id_start,
             ++front->n_calls & UINT32_MAX);
    answer->dialect = request->dialect;
    answer->id =
        (request->dialect == BT_API_GENERATE) ? call->given_id : call->id;
    answer->model = call->model;
    answer->version = call->served->version;
    answer->tok = call->served->tok;
    answer->created = (int64_t)time(NULL);
    answer->sequence_id = request->sequence_id;
    answer->sequence_start = request->sequence_start;
    answer->sequence_end = request->sequence_end;
    answer->include_usage = request->include_usage;
    answer->continuous_usage = request->continuous_usage;
    answer->instructions = call->instructions;
    answer->metadata = call->metadata;
    answer->max_tokens = request->has_max_tokens ? request->max_tokens : 0;
    answer->token_texts = request->token_texts;
    answer->context_tokens = bt_served_context_tokens(call->served);
}

/* Stores the prompt as its client wrote it, or the text of its token ids.
 * @return false when memory is short. */
static bool make_echo(bt_choice_t *choice, const bt_intake_t *in, uint32_t i)
{
    const bt_api_request_t *request = &in->request;
    const bt_api_prompt_t *prompt;
    const bool echo = (request->dialect == BT_API_GENERATE)
                          ? !request->exclude_input_in_output
                          : request->echo;
    bt_strbuf_t text;

    if (!echo) {
        return true;
    }
    prompt = &request->prompts[i / request->n];
    /* Triton's models that take ids return no text. */
    if ((prompt->text == NULL) && (request->dialect == BT_API_GENERATE)) {
        return true;
    }
    if (prompt->text != NULL) {
        choice->echo = bt_memdup(prompt->text, prompt->text_bytes);
        choice->echo_bytes = prompt->text_bytes;
        return choice->echo != NULL;
    }
    bt_strbuf_init(&text, BT_ANSWER_LIMIT);
    bt_echo_ids(in->served->tok, prompt->ids, (uint32_t)prompt->n_ids, &text);
    if (bt_strbuf_status(&text) == BT_OK) { /* a BOS alone is no text */
        choice->echo = bt_memdup((text.len > 0) ? text.data : "", text.len);
        choice->echo_bytes = text.len;
    }
    bt_strbuf_fini(&text);
    return choice->echo != NULL;
}

/* Initializes the search for tool calls in an answer. The beginning of a call
 * at the prompt's end counts as part of the answer. @return false when memory
 * is short. */
static bool init_tools(bt_choice_t *choice, const bt_intake_t *in)
{
    const bt_prepared_t *prepared = &in->prepared;
    const bt_api_tools_t *tools = &in->request.tools;
    const bt_tools_spec_t spec = {
        .format = prepared->tools,
        .names = choice->call->tool_names,
        .names_bytes = tools->names_bytes,
        .max_calls = tools->only_one ? 1 : 0,
    };

    bt_tools_init(&choice->tools, &spec);
    if (prepared->tool_opening.len > 0) {
        bt_tools_open(&choice->tools, prepared->tool_opening.data,
                      prepared->tool_opening.len, &choice->text);
    }
    return bt_strbuf_status(&choice->text) == BT_OK;
}

/* Creates the choices of the call.
 * @return false when memory is short. */
bool bt_call_make_choices(bt_call_t *call, const bt_intake_t *in)
{
    const bt_api_request_t *request = &in->request;
    const uint32_t n = (uint32_t)(in->prepared.n_prompts * request->n);

    call->served = in->served;
    call->tenant = bt_tenant_ref(in->tenant);
    call->name = bt_name_of(call->front, in->model);
    call->piece_us = in->start_us;
    call->accumulates =
        (call->name == BT_NAME_BLS) && call->front->config->accumulate_tokens;
    call->stream = request->stream;
    call->want_ids = request->return_token_ids;
    call->is_echo = request->has_max_tokens && (request->max_tokens == 0);
    call->choices = bt_calloc(n, sizeof(*call->choices));
    if ((call->choices == NULL) || !copy_text(in->model, &call->model) ||
        !copy_text(request->id, &call->given_id) ||
        !copy_text(request->instructions, &call->instructions) ||
        !copy_text(request->metadata_json, &call->metadata)) {
        return false;
    }
    if (request->tools.names != NULL) {
        call->tool_names =
            bt_memdup(request->tools.names, request->tools.names_bytes);
        if (call->tool_names == NULL) {
            return false;
        }
    }
    call->n_choices = n;
    call->n_of_prompt = request->n;
    call->own_tally.n = n;
    call->n_told = (request->n_told > 0) ? request->n_told : request->n;
    call->hides_logprobs = request->hides_logprobs;
    for (uint32_t i = 0; i < n; i++) {
        bt_choice_t *choice = &call->choices[i];

        choice->call = call;
        choice->index = i;
        choice->first = true;
        bt_strbuf_init(&choice->text, BT_ANSWER_LIMIT);
        bt_strbuf_init(&choice->thought, BT_ANSWER_LIMIT);
        bt_strbuf_init(&choice->thoughts, BT_ANSWER_LIMIT);
        bt_reason_init(&choice->reason,
                       (bt_api_is_chat(request) && !request->keeps_reasoning)
                           ? in->served->reason
                           : NULL,
                       in->prepared.opens_reasoning);
        bt_score_walk_init(&choice->walk, in->served->tok,
                           request->dialect == BT_API_COMPLETIONS,
                           request->shows_special);
        if (!init_tools(choice, in) || !make_echo(choice, in, i)) {
            return false;
        }
        if ((choice->echo != NULL) && !call->stream) {
            bt_strbuf_append(&choice->text, choice->echo, choice->echo_bytes);
        }
    }
    bt_call_fill_answer(call, request);
    if (in->prepared.tools != NULL) {
        call->answer.call_id_bytes =
            bt_tool_format_id_bytes(in->prepared.tools);
    }
    call->answer.temperature = in->prepared.sampling.temperature;
    call->answer.top_p = in->prepared.sampling.top_p;
    return true;
}

void bt_call_free_parts(bt_call_t *call)
{
    for (uint32_t i = 0; (call->choices != NULL) && (i < call->n_choices);
         i++) {
        bt_strbuf_fini(&call->choices[i].text);
        bt_strbuf_fini(&call->choices[i].thought);
        bt_strbuf_fini(&call->choices[i].thoughts);
        bt_reason_fini(&call->choices[i].reason);
        bt_tools_fini(&call->choices[i].tools);
        bt_free(call->choices[i].ids);
        bt_free(call->choices[i].echo);
        bt_gen_rows_unref(call->choices[i].rows);
        bt_score_walk_fini(&call->choices[i].walk);
    }
    bt_free(call->choices);
    bt_free(call->whole);
    bt_strbuf_fini(&call->text);
    bt_free(call->tokens.ids);
    bt_strbuf_fini(&call->opening);
    bt_free(call->given_id);
    bt_free(call->instructions);
    bt_free(call->tool_names);
    bt_free(call->metadata);
    bt_free(call->model);
    call->choices = NULL;
    call->whole = NULL;
    call->n_choices = 0;
    call->given_id = call->instructions = call->tool_names = NULL;
    call->metadata = call->model = NULL;
}

/* Fills tenant, ids and the parent span: the client's, if it sent one. */
static void fill_origin(bt_call_t *call, const char *traceparent,
                        bt_gen_origin_t *origin)
{
    bt_trace_t *trace = call->front->trace;
    bt_reply_t *reply = call->reply;
    const bool has_parent =
        (traceparent != NULL) && bt_trace_parse_parent(traceparent, origin);

    if (!has_parent && (trace != NULL)) {
        bt_trace_new_id(trace, origin->trace_id);
    }
    snprintf(origin->tenant, sizeof(origin->tenant), "%s", call->tenant->name);
    origin->chat = (call->answer.dialect == BT_API_CHAT) ||
                   (call->answer.dialect == BT_API_RESPONSES);
    origin->stream = call->stream;
    snprintf(origin->answer_id, sizeof(origin->answer_id), "%s", call->id);
    if (reply == NULL) {
        return;
    }
    snprintf(origin->request_id, sizeof(origin->request_id), "%s",
             (reply->request_id != NULL) ? reply->request_id : "");
    /* Fields that access log and trace share. */
    memcpy(reply->facts.answer_id, origin->answer_id,
           sizeof(origin->answer_id));
    memcpy(reply->facts.tenant, origin->tenant, sizeof(origin->tenant));
    memcpy(reply->facts.trace_id, origin->trace_id, sizeof(origin->trace_id));
}

/* Returns the request's targets, else its tenant's; the core has the model's.
 */
static bt_sched_slo_t target_of(const bt_api_request_t *request,
                                const bt_tenant_t *tenant)
{
    const bt_sched_slo_t *own = &request->target;
    const bt_tenant_limits_t *its = &tenant->limits;

    return (bt_sched_slo_t){
        .ttft_ms = (own->ttft_ms > 0) ? own->ttft_ms : its->ttft_target_ms,
        .itl_ms = (own->itl_ms > 0) ? own->itl_ms : its->itl_target_ms,
    };
}

/* Control tokens that mark reasoning or tool calls are kept in the text, so
 * that marks are found whether they are single tokens or not. */
static const bt_token_set_t *shown_of(const bt_intake_t *in)
{
    if (!bt_api_is_chat(&in->request)) {
        return NULL;
    }
    return (in->prepared.tools != NULL) ? &in->served->all_marks
                                        : &in->served->reason_marks;
}

/* Choice i is answer i % n of prompt i / n, with the seed incremented i times.
 */
static bt_gen_spec_t spec_of(const bt_intake_t *in,
                             const bt_gen_origin_t *origin, uint32_t i,
                             uint32_t n_of_request)
{
    const bt_api_request_t *request = &in->request;
    const bt_prepared_prompt_t *prompt = &in->prepared.prompts[i / request->n];
    bt_gen_spec_t spec = {
        .prompt = prompt->prompt,
        .max_new = prompt->max_new,
        .sampling = in->prepared.sampling,
        .space = in->prepared.space,
        .wants = request->wants,
        .stops = (const char *const *)request->stops,
        .n_stops = request->n_stops,
        .stop_ids = request->stop_ids,
        .n_stop_ids = request->n_stop_ids,
        .every_token = request->return_token_ids && request->stream,
        .keeps_stop = request->keeps_stop,
        .shows_special = request->shows_special,
        .shown = shown_of(in),
        .tenant = {.id = in->tenant->id,
                   .weight = in->tenant->limits.weight,
                   .kv_percent = in->tenant->limits.kv_percent},
        .priority = in->priority,
        .timeout_ms = request->timeout_ms,
        .target = target_of(request, in->tenant),
        .parse_us = in->parse_us,
        .tokenize_us = in->tokenize_us,
        .n_of_request = n_of_request,
        .origin = *origin,
    };

    spec.origin.choice = i;
    spec.sampling.seed += i;
    return spec;
}

/* Arguments and results of bt_core_submit_group(), for the n choices of a
 * prompt. */
typedef struct batch {
    bt_gen_spec_t *specs; /* n of them */
    void *users[BT_API_MAX_PROMPTS];
    bt_gen_t *gens[BT_API_MAX_PROMPTS];
} batch_t;

/* Submits the choices from @a first on: those of one prompt. */
static bt_status_t submit_prompt(bt_call_t *call, const bt_intake_t *in,
                                 const bt_gen_origin_t *origin, uint32_t first,
                                 batch_t *batch)
{
    const uint64_t held_us =
        (call->front->hold_end != NULL) ? bt_now_us() - call->ready_us : 0;
    const uint32_t n = in->request.n;
    bt_status_t status;

    for (uint32_t i = 0; i < n; i++) {
        batch->specs[i] = spec_of(in, origin, first + i, call->tally->n);
        batch->specs[i].held_us = held_us;
        batch->specs[i].origin.number = ++call->front->n_generations;
        batch->users[i] = &call->choices[first + i];
        call->choices[first + i].n_prompt = batch->specs[i].prompt->n;
    }
    status = bt_core_submit_group(in->served->core, batch->specs, batch->users,
                                  n, bt_now_us(), batch->gens);
    if (status != BT_OK) {
        return status;
    }
    bt_tenant_begin(call->tenant, n);
    bt_sched_bucket_take(&call->tenant->bucket, bt_limits_tokens(in, first / n),
                         bt_now_us());
    for (uint32_t i = 0; i < n; i++) {
        call->choices[first + i].gen = batch->gens[i];
        call->choices[first + i].max_new = batch->specs[i].max_new;
        call->n_open++;
        bt_tenant_metrics_prompt(call->tenant->metrics,
                                 batch->specs[i].prompt->n);
        bt_router_metrics_prompt(in->served->metrics,
                                 batch->specs[i].prompt->n);
        bt_series_begun(in->served->series, batch->specs[i].prompt->n);
    }
    return BT_OK;
}

bt_status_t bt_call_submit_all(bt_call_t *call, const bt_intake_t *in)
{
    batch_t batch;
    bt_gen_origin_t origin = {0};
    bt_status_t status;

    batch.specs = bt_calloc(in->request.n, sizeof(*batch.specs));
    status = (batch.specs != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    origin.name = (uint8_t)call->name;
    fill_origin(call, in->traceparent, &origin);
    for (uint32_t i = 0; (i < call->n_choices) && (status == BT_OK);
         i += in->request.n) {
        status = submit_prompt(call, in, &origin, i, &batch);
    }
    bt_free(batch.specs);
    for (size_t k = 0; k < in->prepared.n_prompts; k++) {
        call->n_prompt_tokens += in->prepared.prompts[k].prompt->n;
    }
    return status;
}

/* ---- the begin of a stream ---- */

void bt_call_begin_now(bt_call_t *call)
{
    bt_list_remove(&call->unbegun);
    call->reply->ops->begin(call->reply, &call->answer);
}

static void tell_begin(bt_call_t *call)
{
    call->pinned = true;
    bt_call_begin_now(call);
    call->pinned = false;
    bt_call_release(call);
}

void bt_call_on_placed(void *ctx, void *choice_p)
{
    bt_call_t *call = ((bt_choice_t *)choice_p)->call;

    (void)ctx;
    call->is_placed = true;
    if (!bt_list_empty(&call->unbegun)) {
        bt_list_remove(&call->unbegun);
        bt_list_push_back(&call->front->placed, &call->unbegun);
    }
}

void bt_call_begin_stream(bt_call_t *call)
{
    if ((call->reply == NULL) || (call->reply->ops->begin == NULL)) {
        return;
    }
    if (call->is_placed) {
        bt_call_begin_now(call);
    } else {
        bt_list_push_back(&call->front->waiting, &call->unbegun);
    }
}

void bt_call_begin_placed(bt_frontend_t *front)
{
    while (!bt_list_empty(&front->placed)) {
        tell_begin(BT_CONTAINER_OF(front->placed.next, bt_call_t, unbegun));
    }
}

void bt_call_begin_waiting(bt_frontend_t *front, uint64_t now_us)
{
    const uint64_t silent_us =
        (uint64_t)front->config->sse_keepalive_s * 1000000;
    bt_list_t due, *pos, *tmp;

    if (silent_us == 0) {
        return;
    }
    bt_list_init(&due);
    BT_LIST_FOR_EACH(pos, tmp, &front->waiting)
    {
        const bt_call_t *call = BT_CONTAINER_OF(pos, bt_call_t, unbegun);

        if (now_us < call->ready_us + silent_us) {
            break;
        }
        if (bt_served_ready(call->served)) {
            bt_list_remove(pos);
            bt_list_push_back(&due, pos);
        }
    }
    /* Beginning one call may remove others from the list. */
    while (!bt_list_empty(&due)) {
        tell_begin(BT_CONTAINER_OF(due.next, bt_call_t, unbegun));
    }
}
