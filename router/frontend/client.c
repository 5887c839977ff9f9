/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a client: several choices, each a generation of the core. A call
 * lives while its exchange is open or one of its generations runs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/frontend/prepare.h"
#include "router/frontend/router.h"

#define ID_BYTES 64

typedef struct bt_call bt_call_t;

typedef struct bt_choice {
    bt_call_t *call;
    bt_gen_t *gen; /* NULL: not begun, or ended */
    uint32_t index;
    bool first; /* nothing was streamed of it yet */
    bt_finish_t finish;
    uint32_t n_prompt, n_output;
    bt_strbuf_t text; /* not streamed: the answer so far */
    uint32_t *ids;    /* owned: n_output token ids, when asked for */
} bt_choice_t;

struct bt_call {
    bt_router_t *router;
    bt_exchange_t *ex; /* NULL: answered, or the client left */
    bt_api_answer_t answer;
    char id[ID_BYTES];
    char *given_id; /* of a generate call; owned or NULL */
    char *model;    /* as printed; owned */
    char *echo;     /* prompt to print before the text; owned or NULL */
    bool stream;
    bool want_ids; /* the answer lists token ids */
    bool began;    /* the head went out */
    bool pinned;   /* a function of this file uses it: do not free */
    uint64_t n_prompt_tokens;
    uint32_t n_choices, n_open;
    bt_choice_t *choices; /* owned */
};

static const char *error_type(int http_status)
{
    if (http_status == 429) {
        return "rate_limit_error";
    }
    return (http_status >= 500) ? "server_error" : "invalid_request_error";
}

static void call_free(bt_call_t *call)
{
    for (uint32_t i = 0; (call->choices != NULL) && (i < call->n_choices);
         i++) {
        bt_strbuf_fini(&call->choices[i].text);
        bt_free(call->choices[i].ids);
    }
    bt_free(call->choices);
    bt_free(call->echo);
    bt_free(call->given_id);
    bt_free(call->model);
    bt_free(call);
}

/* Frees the call once nothing leads to it any more. */
static void call_release(bt_call_t *call)
{
    if (!call->pinned && (call->ex == NULL) && (call->n_open == 0)) {
        call_free(call);
    }
}

/* Gives up what still runs. */
static void cancel_rest(bt_call_t *call)
{
    for (uint32_t i = 0; i < call->n_choices; i++) {
        bt_choice_t *choice = &call->choices[i];
        bt_gen_t *gen = choice->gen;

        if (gen != NULL) {
            choice->gen = NULL;
            call->n_open--;
            bt_router_metrics_end(call->router->model_metrics, false, 0, 0);
            bt_core_cancel(call->router->core, gen, bt_now_us());
        }
    }
}

void bt_client_gone(void *router, bt_exchange_t *ex)
{
    bt_call_t *call = bt_exchange_user(ex);

    (void)router;
    if (call != NULL) {
        call->ex = NULL;
        cancel_rest(call);
        call_release(call);
    }
}

/* ---- writing ---- */

/* For the last word to a client. */
static bt_exchange_t *take_exchange(bt_call_t *call)
{
    bt_exchange_t *ex = call->ex;

    call->ex = NULL;
    bt_exchange_set_user(ex, NULL);
    return ex;
}

static bt_api_usage_t usage_of(const bt_call_t *call)
{
    bt_api_usage_t usage = {.prompt_tokens = (uint32_t)call->n_prompt_tokens};

    for (uint32_t i = 0; i < call->n_choices; i++) {
        usage.completion_tokens += call->choices[i].n_output;
    }
    return usage;
}

static const char *text_of(const bt_strbuf_t *buf)
{
    return (buf->len > 0) ? buf->data : "";
}

static void fail(bt_call_t *call, int http_status, const char *message)
{
    bt_router_t *router = call->router;
    bt_api_error_t error = {0};

    cancel_rest(call);
    if (call->ex == NULL) {
        return;
    }
    bt_api_error_set(&error, http_status, error_type(http_status), NULL, "%s",
                     message);
    if (!call->began) {
        bt_respond_error(router, take_exchange(call), call->answer.dialect,
                         &error);
        return;
    }
    bt_strbuf_reset(&router->out);
    bt_api_write_error_event(call->answer.dialect, &error, &router->out);
    bt_exchange_stream_end(take_exchange(call), text_of(&router->out),
                           router->out.len);
}

static void fail_for_memory(bt_call_t *call)
{
    fail(call, 503, "out of memory for this answer");
}

/* One event into router->out. @return false when memory is short. */
static bool make_event(bt_call_t *call, bt_choice_t *choice, const char *text,
                       size_t bytes)
{
    bt_router_t *router = call->router;
    const bt_api_usage_t usage = usage_of(call);
    bt_api_choice_t piece = {
        .index = choice->index,
        .text = text,
        .text_bytes = bytes,
        .finish = choice->finish,
    };

    if (choice->first && (call->echo != NULL)) {
        bt_strbuf_puts(&choice->text, call->echo);
        bt_strbuf_append(&choice->text, text, bytes);
        if (bt_strbuf_status(&choice->text) != BT_OK) {
            return false;
        }
        piece.text = text_of(&choice->text);
        piece.text_bytes = choice->text.len;
    }
    bt_strbuf_reset(&router->out);
    bt_api_write_event(&call->answer, &piece, choice->first, &usage,
                       &router->out);
    choice->first = false;
    return bt_strbuf_status(&router->out) == BT_OK;
}

static void begin_stream(bt_call_t *call)
{
    if (!call->began) {
        call->began = true;
        bt_exchange_stream_begin(
            call->ex, bt_api_stream_content_type(call->answer.dialect));
    }
}

static void write_text(bt_call_t *call, bt_choice_t *choice, const char *text,
                       size_t bytes)
{
    bt_router_t *router = call->router;

    if (call->ex == NULL) {
        return;
    }
    if (!call->stream) {
        bt_strbuf_append(&choice->text, text, bytes);
        if (bt_strbuf_status(&choice->text) != BT_OK) {
            fail_for_memory(call);
        }
        return;
    }
    if (!make_event(call, choice, text, bytes)) {
        fail_for_memory(call);
        return;
    }
    begin_stream(call);
    /* On false the client is gone, and bt_client_gone() was called. */
    (void)bt_exchange_stream_write(call->ex, router->out.data, router->out.len);
}

void bt_client_on_text(void *router_ctx, void *choice_p, const char *text,
                       size_t bytes, uint32_t n_output)
{
    const uint64_t start_us = bt_now_us();
    bt_router_t *router = router_ctx;
    bt_choice_t *choice = choice_p;
    bt_call_t *call = choice->call;

    call->pinned = true;
    choice->n_output = n_output;
    write_text(call, choice, text, bytes);
    call->pinned = false;
    bt_router_metrics_output(router->model_metrics, bt_now_us() - start_us);
    call_release(call);
}

/* ---- the end of a choice, and of the call ---- */

static void write_answer(bt_call_t *call)
{
    bt_router_t *router = call->router;
    const bt_api_usage_t usage = usage_of(call);
    bt_api_choice_t *choices = bt_calloc(call->n_choices, sizeof(*choices));

    if (choices == NULL) {
        fail_for_memory(call);
        return;
    }
    for (uint32_t i = 0; i < call->n_choices; i++) {
        const bt_choice_t *choice = &call->choices[i];

        choices[i].index = choice->index;
        choices[i].text = text_of(&choice->text);
        choices[i].text_bytes = choice->text.len;
        choices[i].finish = choice->finish;
        choices[i].token_ids = choice->ids;
        choices[i].n_token_ids = choice->n_output;
    }
    bt_strbuf_reset(&router->out);
    bt_api_write_answer(&call->answer, choices, call->n_choices, &usage,
                        &router->out);
    bt_free(choices);
    if (bt_strbuf_status(&router->out) != BT_OK) {
        fail_for_memory(call);
        return;
    }
    bt_exchange_respond(take_exchange(call), 200, "application/json",
                        text_of(&router->out), router->out.len);
}

/* The stream of a whole call ends: usage and "[DONE]" where the dialect has
 * them, in one write with the end of the chunks. */
static void end_stream(bt_call_t *call)
{
    bt_router_t *router = call->router;
    const bt_api_usage_t usage = usage_of(call);

    bt_strbuf_reset(&router->out);
    bt_api_write_end(&call->answer, &usage, &router->out);
    bt_exchange_stream_end(take_exchange(call), text_of(&router->out),
                           router->out.len);
}

static void end_choice(bt_call_t *call, bt_choice_t *choice, const char *text,
                       size_t bytes)
{
    const bool is_generate = call->answer.dialect == BT_API_GENERATE;

    if (call->ex == NULL) {
        return;
    }
    if (!call->stream) {
        write_text(call, choice, text, bytes);
        if ((call->ex != NULL) && (call->n_open == 0)) {
            write_answer(call);
        }
        return;
    }
    /* generate has no field for the reason, so an empty last event would say
     * nothing; OpenAI's last event of a choice carries it. */
    if (!is_generate || (bytes > 0) || choice->first) {
        write_text(call, choice, text, bytes);
    }
    if ((call->ex != NULL) && (call->n_open == 0)) {
        end_stream(call);
    }
}

void bt_client_on_end(void *router_ctx, void *choice_p, const bt_gen_end_t *end)
{
    const uint64_t start_us = bt_now_us();
    bt_router_t *router = router_ctx;
    bt_choice_t *choice = choice_p;
    bt_call_t *call = choice->call;
    const bool ok = end->finish != BT_FINISH_ERROR;

    call->pinned = true;
    choice->gen = NULL;
    choice->finish = end->finish;
    choice->n_output = end->n_output;
    call->n_open--;
    bt_router_metrics_end(router->model_metrics, ok, end->n_prompt,
                          end->n_output);
    if (ok && call->want_ids) {
        choice->ids = bt_memdup(end->ids, end->n_output * sizeof(*end->ids));
    }
    if (ok && call->want_ids && (choice->ids == NULL)) {
        fail_for_memory(call);
    } else if (ok) {
        end_choice(call, choice, end->text, end->text_bytes);
    } else {
        fail(call, end->http_status, end->message);
    }
    call->pinned = false;
    bt_router_metrics_output(router->model_metrics, bt_now_us() - start_us);
    call_release(call);
}

/* ---- the beginning ---- */

static bool copy_text(const char *text, char **copy_p)
{
    *copy_p = bt_strdup(text);
    return (text == NULL) || (*copy_p != NULL);
}

static void fill_answer(bt_call_t *call, const bt_api_request_t *request)
{
    static const char *const prefixes[] = {"", "cmpl-", "chatcmpl-"};
    bt_router_t *router = call->router;
    bt_api_answer_t *answer = &call->answer;

    snprintf(call->id, sizeof(call->id), "%s%016" PRIx64 "%08" PRIx64,
             prefixes[request->dialect], router->id_start,
             ++router->n_calls & UINT32_MAX);
    answer->dialect = request->dialect;
    answer->id =
        (request->dialect == BT_API_GENERATE) ? call->given_id : call->id;
    answer->model = call->model;
    answer->created = (int64_t)time(NULL);
    answer->sequence_id = request->sequence_id;
    answer->sequence_start = request->sequence_start;
    answer->sequence_end = request->sequence_end;
    answer->include_usage = request->include_usage;
    answer->continuous_usage = request->continuous_usage;
}

/* @return NULL when memory is short. */
static bt_call_t *call_new(bt_router_t *router, bt_exchange_t *ex,
                           const bt_api_request_t *request, const char *model,
                           uint32_t n_choices)
{
    const bool echo = (request->dialect == BT_API_GENERATE) &&
                      !request->exclude_input_in_output;
    bt_call_t *call = bt_calloc(1, sizeof(*call));

    if (call == NULL) {
        return NULL;
    }
    call->router = router;
    call->stream = request->stream;
    call->want_ids = request->return_token_ids;
    call->choices = bt_calloc(n_choices, sizeof(*call->choices));
    if ((call->choices == NULL) || !copy_text(model, &call->model) ||
        !copy_text(request->id, &call->given_id) ||
        (echo && !copy_text(request->prompts[0].text, &call->echo))) {
        call_free(call);
        return NULL;
    }
    call->n_choices = n_choices;
    for (uint32_t i = 0; i < n_choices; i++) {
        bt_choice_t *choice = &call->choices[i];

        choice->call = call;
        choice->index = i;
        choice->first = true;
        bt_strbuf_init(&choice->text, BT_ANSWER_LIMIT);
        if ((call->echo != NULL) && !call->stream) {
            bt_strbuf_puts(&choice->text, call->echo);
        }
    }
    fill_answer(call, request);
    call->ex = ex;
    bt_exchange_set_user(ex, call);
    return call;
}

/* Where the spans of this call belong: under the client's, if it named one. */
static void fill_origin(const bt_call_t *call, bt_gen_origin_t *origin)
{
    bt_trace_t *trace = call->router->trace;
    const char *parent;

    if (trace == NULL) {
        return;
    }
    parent = bt_exchange_header(call->ex, "traceparent");
    if ((parent == NULL) || !bt_trace_parse_parent(parent, origin)) {
        bt_trace_new_id(trace, origin->trace_id);
    }
    origin->chat = call->answer.dialect == BT_API_CHAT;
    origin->stream = call->stream;
    snprintf(origin->answer_id, sizeof(origin->answer_id), "%s", call->id);
}

/* Choice i is answer i % n of prompt i / n, with the seed's i-th successor. */
static bt_status_t submit_all(bt_call_t *call, const bt_api_request_t *request,
                              const bt_prepared_t *prepared, uint64_t parse_us,
                              uint64_t tokenize_us)
{
    const uint64_t now_us = bt_now_us();
    bt_gen_origin_t origin = {0};
    bt_status_t status = BT_OK;

    fill_origin(call, &origin);
    for (uint32_t i = 0; (i < call->n_choices) && (status == BT_OK); i++) {
        const bt_prepared_prompt_t *prompt = &prepared->prompts[i / request->n];
        bt_choice_t *choice = &call->choices[i];
        bt_gen_spec_t spec = {
            .tokens = prompt->tokens.ids,
            .n_prompt = (uint32_t)prompt->tokens.n,
            .max_new = prompt->max_new,
            .sampling = prepared->sampling,
            .stops = (const char *const *)request->stops,
            .n_stops = request->n_stops,
            .priority = request->priority,
            .timeout_ms = request->timeout_ms,
            .parse_us = parse_us,
            .tokenize_us = tokenize_us,
            .origin = origin,
        };

        spec.origin.choice = i;
        spec.sampling.seed += i;
        choice->n_prompt = spec.n_prompt;
        status = bt_core_submit(call->router->core, &spec, choice, now_us,
                                &choice->gen);
        if (status == BT_OK) {
            call->n_open++;
            bt_router_metrics_prompt(call->router->model_metrics,
                                     spec.n_prompt);
        }
    }
    for (size_t k = 0; k < prepared->n_prompts; k++) {
        call->n_prompt_tokens += prepared->prompts[k].tokens.n;
    }
    return status;
}

static void check_model(const bt_router_t *router, const char *model,
                        bt_api_error_t *error)
{
    if (!bt_served_is_named(router->served, model)) {
        bt_api_error_set(error, 404, "invalid_request_error", "model",
                         "model '%.200s' is not served here; this is '%s'",
                         model, router->served->name);
    }
}

static void check_capacity(const bt_router_t *router, size_t n_choices,
                           bt_api_error_t *error)
{
    const uint32_t in_flight = bt_core_n_in_flight(router->core);

    if (router->draining) {
        bt_api_error_set(error, 503, "server_error", NULL,
                         "the server is stopping");
    } else if (n_choices > BT_API_MAX_PROMPTS) {
        bt_api_error_set(error, 400, "invalid_request_error", "n",
                         "prompts times n is %zu answers, more than the limit "
                         "of %d",
                         n_choices, BT_API_MAX_PROMPTS);
    } else if (in_flight + n_choices > router->config->max_queue) {
        bt_api_error_set(error, 429, "rate_limit_error", NULL,
                         "%u requests are in flight and the limit is %u, try "
                         "again later",
                         in_flight, router->config->max_queue);
    }
}

uint32_t bt_router_context_tokens(const bt_router_t *router)
{
    const uint32_t workers =
        bt_table_context_tokens(bt_core_table(router->core));
    const uint32_t model = router->served->context_tokens;

    return (workers < model) ? workers : model;
}

static void start(bt_router_t *router, bt_exchange_t *ex,
                  const bt_api_request_t *request, const char *model,
                  const bt_prepared_t *prepared, uint64_t parse_us,
                  uint64_t tokenize_us)
{
    const uint32_t n_choices = (uint32_t)(prepared->n_prompts * request->n);
    bt_call_t *call = call_new(router, ex, request, model, n_choices);
    bt_api_error_t error = {0};
    bt_status_t status;

    if (call == NULL) {
        bt_api_error_set(&error, 503, "server_error", NULL,
                         "out of memory for this request, try again later");
        bt_router_metrics_refused(router->metrics, router->model_metrics,
                                  error.http_status);
        bt_respond_error(router, ex, request->dialect, &error);
        return;
    }
    call->pinned = true;
    status = submit_all(call, request, prepared, parse_us, tokenize_us);
    if (status == BT_ERR_INVALID_PARAM) {
        bt_router_metrics_refused(router->metrics, router->model_metrics, 400);
        fail(call, 400, "a stop word is empty or longer than 1024 bytes");
    } else if (status != BT_OK) {
        bt_router_metrics_refused(router->metrics, router->model_metrics, 503);
        fail(call, 503, "no room for this request, try again later");
    }
    call->pinned = false;
    call_release(call);
}

void bt_client_call(bt_router_t *router, bt_exchange_t *ex,
                    bt_api_dialect_t dialect, const char *model, bool stream)
{
    const uint64_t start_us = bt_now_us();
    bt_api_request_t request = {0};
    bt_prepared_t prepared = {0};
    bt_api_error_t error = {0};
    uint64_t parsed_us;
    size_t bytes = 0;
    const void *body = bt_exchange_body(ex, &bytes);

    if (bt_api_parse(dialect, body, bytes, &request, &error) != BT_OK) {
        goto refuse;
    }
    parsed_us = bt_now_us();
    if (request.n == 0) {
        request.n = 1;
    }
    if (dialect == BT_API_GENERATE) {
        request.stream = stream;
    }
    if (model == NULL) {
        model = (request.model != NULL) ? request.model : router->served->name;
    }
    check_model(router, model, &error);
    if (error.http_status == 0) {
        const size_t n_prompts =
            (dialect == BT_API_CHAT) ? 1 : request.n_prompts;

        check_capacity(router, n_prompts * request.n, &error);
    }
    if ((error.http_status != 0) ||
        (bt_prepare(router->served, bt_router_context_tokens(router), &request,
                    &prepared, &error) != BT_OK)) {
        goto refuse;
    }
    start(router, ex, &request, model, &prepared, parsed_us - start_us,
          bt_now_us() - parsed_us);
    goto end;

refuse:
    bt_router_metrics_refused(router->metrics, router->model_metrics,
                              error.http_status);
    bt_respond_error(router, ex, dialect, &error);
end:
    bt_prepared_fini(&prepared);
    bt_api_request_fini(&request);
}
