/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/frontend/call_priv.h"
#include "router/frontend/limits.h"
#include "router/frontend/watching.h"

#define MAX_OPENING_BYTES 4096

static const char *error_type(int http_status)
{
    if (http_status == 429) {
        return "rate_limit_error";
    }
    return (http_status >= 500) ? "server_error" : "invalid_request_error";
}

static void call_free(bt_call_t *call)
{
    bt_call_free_parts(call);
    bt_free(call->refusal);
    bt_account_unref(call->account);
    bt_tenant_unref(call->tenant);
    bt_free(call);
}

void bt_call_release(bt_call_t *call)
{
    if (!call->pinned && (call->reply == NULL) && (call->n_open == 0) &&
        (call->n_refs == 0)) {
        call_free(call);
    }
}

bt_call_t *bt_call_ref(bt_call_t *call)
{
    call->n_refs++;
    return call;
}

void bt_call_unref(bt_call_t *call)
{
    if (call != NULL) {
        call->n_refs--;
        bt_call_release(call);
    }
}

static bool is_failure(int http_status)
{
    return (http_status == 429) || (http_status >= 500);
}

static void count_request(const bt_call_t *call, bool ok)
{
    bt_router_metrics_request(call->served->metrics, ok);
    bt_names_request(&call->front->names, call->name, ok);
}

/* Counts an ended sequence, successful or not, and possibly its request. The
 * call was open, so the reply was not answered yet and the tally exists. */
static void count_end(const bt_call_t *call, bool ok, uint32_t n_prompt,
                      uint32_t n_output)
{
    bt_call_tally_t *tally = call->tally;

    if (ok) {
        bt_router_metrics_end(call->served->metrics, n_prompt, n_output);
        tally->n_ok++;
    }
    bt_names_end(&call->front->names, call->name, ok, n_prompt, n_output);
    if (!tally->failed && (!ok || (tally->n_ok == tally->n))) {
        tally->failed = !ok;
        count_request(call, ok);
    }
}

/* @param start_us when processing of its text began */
static void count_output(const bt_call_t *call, uint64_t start_us)
{
    const uint64_t us = bt_now_us() - start_us;

    bt_router_metrics_output(call->served->metrics, us);
    bt_names_output(&call->front->names, call->name, us);
}

static void count_piece(bt_call_t *call)
{
    const uint64_t now_us = bt_now_us();
    const uint64_t us = now_us - call->piece_us;

    bt_router_metrics_response(call->served->metrics, call->n_pieces, us);
    bt_names_response(&call->front->names, call->name, call->n_pieces, us);
    call->n_pieces++;
    call->piece_us = now_us;
}

/* Counts new tokens of a choice. */
static void count_tokens(bt_call_t *call, bt_choice_t *choice, uint32_t n)
{
    if (n > choice->n_used) {
        bt_tenant_metrics_output(call->tenant->metrics, n - choice->n_used);
        choice->n_used = n;
    }
}

/* Ends a choice: unused tokens are refunded to its tenant. */
static void close_choice(bt_call_t *call, const bt_choice_t *choice)
{
    call->n_open--;
    bt_tenant_leave(call->tenant, 1);
    if (choice->max_new > choice->n_used) {
        bt_sched_bucket_give(&call->tenant->bucket,
                             choice->max_new - choice->n_used, bt_now_us());
    }
}

/* Cancels generations that still run. */
static void cancel_rest(bt_call_t *call)
{
    for (uint32_t i = 0; i < call->n_choices; i++) {
        bt_choice_t *choice = &call->choices[i];
        bt_gen_t *gen = choice->gen;

        if (gen != NULL) {
            choice->gen = NULL;
            close_choice(call, choice);
            count_end(call, false, 0, 0);
            bt_core_cancel(call->served->core, gen, bt_now_us());
        }
    }
}

static bt_api_usage_t usage_of(const bt_call_t *call)
{
    bt_api_usage_t usage = {.prompt_tokens = (uint32_t)call->n_prompt_tokens};

    for (uint32_t i = 0; i < call->n_choices; i += call->n_of_prompt) {
        uint32_t n_cached = 0;
        uint32_t n_kept = 0;

        for (uint32_t k = i; k < i + call->n_of_prompt; k++) {
            const bt_choice_t *choice = &call->choices[k];

            usage.completion_tokens += choice->n_output;
            usage.thought_tokens += choice->n_thought;
            n_cached =
                (choice->n_cached > n_cached) ? choice->n_cached : n_cached;
            n_kept = (choice->n_kept > n_kept) ? choice->n_kept : n_kept;
        }
        usage.cached_tokens += n_cached; /* a prompt is computed once */
        usage.kept_tokens += n_kept;
    }
    return usage;
}

bt_reply_t *bt_call_take_reply(bt_call_t *call)
{
    const bt_api_usage_t usage = usage_of(call);
    bt_reply_t *reply = call->reply;

    reply->facts.n_prompt = usage.prompt_tokens;
    reply->facts.n_output = usage.completion_tokens;
    reply->call = NULL;
    call->reply = NULL;
    bt_list_remove(&call->unbegun);
    return reply;
}

/* Stops waiting for other calls. */
static void let_go(bt_call_t *call)
{
    bt_list_remove(&call->held);
    call->front->n_held--;
}

void bt_call_gone(bt_call_t *call)
{
    (void)bt_call_take_reply(call);
    if (!bt_list_empty(&call->held)) {
        let_go(call);
        bt_intake_free(call->intake);
    } else if (call->intake != NULL) {
        bt_intake_leave(call->intake);
    }
    call->intake = NULL;
    bt_list_remove(&call->paced);
    cancel_rest(call);
    bt_call_release(call);
}

/* ---- telling ---- */

static const char *text_of(const bt_strbuf_t *buf)
{
    return (buf->len > 0) ? buf->data : "";
}

static void fail(bt_call_t *call, int http_status, const char *message)
{
    bt_api_error_t error = {0};
    bt_reply_t *reply;

    cancel_rest(call);
    if (call->reply == NULL) {
        return;
    }
    bt_api_error_set(&error, http_status, error_type(http_status), NULL, "%s",
                     message);
    reply = bt_call_take_reply(call);
    reply->ops->error(reply, &error);
}

/* Fails the call because its latency targets cannot be met. */
static void fail_late(bt_call_t *call)
{
    const bt_core_late_t *late = bt_core_late(call->served->core);
    bt_api_error_t error = {0};
    bt_reply_t *reply;

    cancel_rest(call);
    bt_api_error_set(&error, 429, error_type(429),
                     late->first ? "ttft_target_ms" : "itl_target_ms",
                     "the %s would be %" PRIu64
                     " ms, more than the target of %u ms; try again in %u s",
                     late->first ? "time to the first token"
                                 : "time between tokens",
                     late->forecast_ms, late->target_ms, late->retry_s);
    error.retry_after_s = late->retry_s;
    if (bt_call_hold_refusal(call, call->tenant, &error)) {
        return;
    }
    reply = bt_call_take_reply(call);
    reply->ops->error(reply, &error);
}

static void fail_for_memory(bt_call_t *call)
{
    fail(call, 503, "out of memory for this answer");
}

/* Without memory each event writes its own opening. */
static void make_opening(bt_call_t *call)
{
    bt_api_answer_t *answer = &call->answer;

    if ((answer->dialect == BT_API_GENERATE) ||
        (answer->dialect == BT_API_RESPONSES)) {
        return;
    }
    bt_strbuf_init(&call->opening, MAX_OPENING_BYTES);
    bt_api_write_opening(answer, &call->opening);
    if (bt_strbuf_status(&call->opening) == BT_OK) {
        answer->opening = call->opening.data;
        answer->opening_bytes = call->opening.len;
    }
}

/* Adds log-probs and logits of the piece or the whole choice. */
static void add_rows(const bt_call_t *call, const bt_choice_t *choice,
                     uint32_t from, bt_api_choice_t *out)
{
    if ((choice->rows == NULL) || call->hides_logprobs) {
        return;
    }
    out->rows = choice->rows;
    out->from = from;
    out->to = call->is_echo ? choice->rows->n_front : choice->walk.n;
    out->offsets = choice->walk.offsets;
    out->cum_logprob = choice->walk.cum_logprob;
}

/* Adds tool calls, and marks those that were sent. */
static void add_calls(bt_choice_t *choice, bt_api_choice_t *out)
{
    const uint32_t n = choice->tools.n_calls;

    out->calls = choice->tools.calls;
    out->n_calls = n;
    out->n_calls_told = choice->n_calls_told;
    out->args_told = choice->args_told;
    out->is_cut_call =
        (choice->finish != BT_FINISH_NONE) && bt_tools_is_cut(&choice->tools);
    if (n > 0) {
        choice->n_calls_told = n;
        choice->args_told = choice->tools.calls[n - 1].arguments.len;
    }
}

/* Adds all text so far, which the last events of a response repeat.
 * @return false: memory is short */
static bool add_whole(bt_choice_t *choice, bt_api_choice_t *piece)
{
    bt_strbuf_append(&choice->text, piece->text, piece->text_bytes);
    bt_strbuf_append(&choice->thoughts, piece->thought, piece->thought_bytes);
    piece->whole = text_of(&choice->text);
    piece->whole_bytes = choice->text.len;
    piece->whole_thought = text_of(&choice->thoughts);
    piece->whole_thought_bytes = choice->thoughts.len;
    return (bt_strbuf_status(&choice->text) == BT_OK) &&
           (bt_strbuf_status(&choice->thoughts) == BT_OK);
}

static void tell_piece(bt_call_t *call, bt_choice_t *choice, const char *text,
                       size_t bytes, const bt_strbuf_t *thought)
{
    const bt_api_usage_t usage = usage_of(call);
    const bool first = choice->first;
    bt_api_choice_t piece = {
        .index = choice->index,
        .text = text,
        .text_bytes = bytes,
        .no_new_text = (bytes == 0) && (!first || (choice->echo == NULL)),
        .thought = (thought != NULL) ? text_of(thought) : "",
        .thought_bytes = (thought != NULL) ? thought->len : 0,
        .finish = choice->finish,
    };

    if (!bt_list_empty(&call->unbegun)) {
        bt_call_begin_now(call);
        if (call->reply == NULL) {
            return;
        }
    }
    add_rows(call, choice, choice->n_scored, &piece);
    choice->n_scored = piece.to;
    add_calls(choice, &piece);
    if (choice->told_from != NULL) {
        piece.token_ids = choice->told_from + choice->n_told;
        piece.n_token_ids = choice->n_output - choice->n_told;
        piece.by_end_id = choice->by_end_id;
        choice->n_told = choice->n_output;
    }
    if ((first && (choice->echo != NULL)) || call->accumulates) {
        if (first && (choice->echo != NULL)) {
            bt_strbuf_append(&choice->text, choice->echo, choice->echo_bytes);
        }
        bt_strbuf_append(&choice->text, text, bytes);
        if (bt_strbuf_status(&choice->text) != BT_OK) {
            fail_for_memory(call);
            return;
        }
        piece.text = text_of(&choice->text);
        piece.text_bytes = choice->text.len;
    }
    if ((call->answer.dialect == BT_API_RESPONSES) &&
        !add_whole(choice, &piece)) {
        fail_for_memory(call);
        return;
    }
    choice->first = false;
    count_piece(call);
    if (call->answer.opening == NULL) {
        make_opening(call);
    }
    /* The client may be gone afterwards: check call->reply. */
    call->reply->ops->piece(call->reply, &call->answer, &piece, first, &usage);
}

/* True when tool calls, or more of their arguments, were not sent yet. */
static bool has_more_calls(const bt_choice_t *choice)
{
    const uint32_t n = choice->tools.n_calls;

    return (n > choice->n_calls_told) ||
           ((n > 0) &&
            (choice->tools.calls[n - 1].arguments.len > choice->args_told));
}

/* Separates reasoning and tool calls from the text. Text that is held back is
 * sent with the next piece, and so are its tokens' ids and log-probs. */
static void sort_text(bt_call_t *call, bt_choice_t *choice, const char *text,
                      size_t bytes)
{
    const bool last = choice->finish != BT_FINISH_NONE;
    bt_strbuf_t said;
    bt_strbuf_t content;

    bt_strbuf_init(&said, BT_ANSWER_LIMIT);
    bt_strbuf_init(&content, BT_ANSWER_LIMIT);
    bt_reason_push(&choice->reason, text, bytes, last, &choice->thought, &said);
    if (bt_reason_is_thinking(&choice->reason)) {
        choice->n_thought = choice->n_output;
    }
    bt_tools_push(&choice->tools, text_of(&said), said.len, last,
                  call->stream ? &content : &choice->text);
    if ((bt_strbuf_status(&choice->thought) != BT_OK) ||
        (bt_strbuf_status(&choice->text) != BT_OK) ||
        (bt_strbuf_status(&said) != BT_OK) ||
        (bt_strbuf_status(&content) != BT_OK)) {
        fail_for_memory(call);
    } else if (call->stream &&
               (last || (content.len > 0) || (choice->thought.len > 0) ||
                has_more_calls(choice) || (choice->told_from != NULL))) {
        tell_piece(call, choice, text_of(&content), content.len,
                   &choice->thought);
        bt_strbuf_reset(&choice->thought);
    }
    bt_strbuf_fini(&said);
    bt_strbuf_fini(&content);
}

static void add_text(bt_call_t *call, bt_choice_t *choice, const char *text,
                     size_t bytes)
{
    if (call->reply == NULL) {
        return;
    }
    if ((choice->reason.marks != NULL) || (choice->tools.spec.format != NULL)) {
        sort_text(call, choice, text, bytes);
        return;
    }
    if (call->stream) {
        tell_piece(call, choice, text, bytes, NULL);
        return;
    }
    bt_strbuf_append(&choice->text, text, bytes);
    if (bt_strbuf_status(&choice->text) != BT_OK) {
        fail_for_memory(call);
    }
}

/* Adds log-probs of new tokens. @return false: the call has failed */
static bool hear_rows(bt_call_t *call, bt_choice_t *choice, bt_gen_rows_t *rows)
{
    if (rows == NULL) {
        return true;
    }
    if (choice->rows == NULL) {
        choice->rows = bt_gen_rows_ref(rows);
    }
    if (bt_score_walk_on(&choice->walk, rows) != BT_OK) {
        fail_for_memory(call);
        return false;
    }
    return true;
}

void bt_call_on_text(void *ctx, void *choice_p, const char *text, size_t bytes,
                     uint32_t n_output)
{
    bt_choice_t *choice = choice_p;
    bt_call_t *call = choice->call;

    (void)ctx;
    call->pinned = true;
    choice->n_output = n_output;
    count_tokens(call, choice, n_output);
    choice->n_cached = bt_core_n_cached(choice->gen);
    choice->n_kept = bt_core_n_kept(choice->gen);
    if (call->want_ids && call->stream) {
        choice->told_from = bt_core_output(choice->gen, &n_output);
    }
    if (hear_rows(call, choice, bt_core_rows(choice->gen))) {
        add_text(call, choice, text, bytes);
    }
    choice->told_from = NULL;
    call->pinned = false;
    bt_call_release(call);
}

/* ---- the end of a choice, and of the call ---- */

static void note_end(bt_reply_facts_t *facts, const bt_gen_end_t *end)
{
    facts->finish = end->finish;
    if (facts->first_token_us == 0) {
        facts->first_token_us = end->first_token_us;
    }
    if (end->attempt != NULL) {
        memcpy(facts->prefill, end->attempt->prefill, sizeof(facts->prefill));
        memcpy(facts->decode, end->attempt->decode, sizeof(facts->decode));
    }
}

/* Returns the mean log-prob of the choice's tokens. */
static double goodness(const bt_choice_t *choice)
{
    const uint32_t n_front = (choice->rows != NULL) ? choice->rows->n_front : 0;
    const uint32_t n = choice->walk.n;

    return (n > n_front) ? choice->walk.cum_logprob / (double)(n - n_front)
                         : 0.0;
}

/* Returns how many choices of the prompt are better. */
static uint32_t rank_of(const bt_call_t *call, uint32_t i)
{
    const uint32_t first = i - i % call->n_of_prompt;
    const double mine = goodness(&call->choices[i]);
    uint32_t rank = 0;

    for (uint32_t k = first; k < first + call->n_of_prompt; k++) {
        const double theirs = goodness(&call->choices[k]);

        rank += ((theirs > mine) || ((theirs == mine) && (k < i))) ? 1 : 0;
    }
    return rank;
}

static void fill_choice(const bt_call_t *call, bt_choice_t *choice,
                        uint32_t index, bt_api_choice_t *out)
{
    out->index = index;
    out->text = text_of(&choice->text);
    out->text_bytes = choice->text.len;
    out->thought = text_of(&choice->thought);
    out->thought_bytes = choice->thought.len;
    out->finish = choice->finish;
    out->token_ids = choice->ids;
    out->n_token_ids = choice->n_output;
    out->by_end_id = choice->by_end_id;
    add_calls(choice, out);
    add_rows(call, choice, 0, out);
}

static void finish_whole(bt_call_t *call)
{
    const bt_api_usage_t usage = usage_of(call);
    const uint32_t n_told = call->n_choices / call->n_of_prompt * call->n_told;
    bt_api_choice_t *choices = bt_calloc(n_told, sizeof(*choices));
    bt_reply_t *reply;

    if (choices == NULL) {
        fail_for_memory(call);
        return;
    }
    call->whole = choices;
    for (uint32_t i = 0; i < call->n_choices; i++) {
        const bool all = call->n_told == call->n_of_prompt;
        const uint32_t rank = all ? i % call->n_told : rank_of(call, i);
        const uint32_t at = i / call->n_of_prompt * call->n_told + rank;

        if (rank < call->n_told) {
            fill_choice(call, &call->choices[i], at, &choices[at]);
        }
    }
    reply = bt_call_take_reply(call);
    reply->ops->finish(reply, call, &call->answer, choices, n_told, &usage);
}

static void finish_stream(bt_call_t *call)
{
    const bt_api_usage_t usage = usage_of(call);
    bt_reply_t *reply = bt_call_take_reply(call);

    reply->ops->finish(reply, call, &call->answer, NULL, 0, &usage);
}

static void end_choice(bt_call_t *call, bt_choice_t *choice, const char *text,
                       size_t bytes)
{
    add_text(call, choice, text, bytes);
    if ((call->reply == NULL) || (call->n_open > 0)) {
        return;
    }
    if (call->stream) {
        finish_stream(call);
    } else {
        finish_whole(call);
    }
}

void bt_call_on_end(void *ctx, void *choice_p, const bt_gen_end_t *end)
{
    const uint64_t start_us = bt_now_us();
    bt_choice_t *choice = choice_p;
    bt_call_t *call = choice->call;
    const bool ok = end->finish != BT_FINISH_ERROR;
    const bool is_echo = call->is_echo && ok;

    (void)ctx;
    call->pinned = true;
    choice->gen = NULL;
    choice->finish = is_echo ? BT_FINISH_LENGTH : end->finish;
    choice->n_output = is_echo ? 0 : end->n_output;
    choice->by_end_id = end->by_end_id;
    choice->n_cached = end->n_cached;
    choice->n_kept = end->n_kept;
    count_tokens(call, choice, end->n_output);
    close_choice(call, choice);
    if (ok) {
        bt_tenant_note_end(call->tenant, start_us);
    }
    if (call->reply != NULL) {
        note_end(&call->reply->facts, end);
    }
    count_end(call, ok, end->n_prompt, end->n_output);
    if (ok && call->want_ids) {
        choice->ids = bt_memdup(end->ids, end->n_output * sizeof(*end->ids));
        choice->told_from = call->stream ? choice->ids : NULL;
    }
    if (ok && call->want_ids && (choice->ids == NULL)) {
        fail_for_memory(call);
    } else if (ok) {
        if (hear_rows(call, choice, end->rows)) {
            end_choice(call, choice, end->text, is_echo ? 0 : end->text_bytes);
        }
    } else {
        fail(call, end->http_status, end->message);
    }
    call->pinned = false;
    if (ok) {
        count_output(call, start_us);
    }
    bt_call_release(call);
}

/* ---- the beginning ---- */

/* Refuses a call before it runs. The call may be freed. */
static void refuse(bt_call_t *call, const bt_intake_t *in,
                   const bt_api_error_t *error)
{
    bt_served_t *served = (in != NULL) ? in->served : NULL;
    bt_reply_t *reply;

    /* Other calls of the request, canceled because of this one, do not count it
     * again. */
    call->tally->failed = call->tally->failed || is_failure(error->http_status);
    if (served != NULL) {
        bt_names_refused(&call->front->names,
                         bt_name_of(call->front, in->model),
                         error->http_status);
    }
    bt_watching_refused(call->front, served, error->http_status);
    if ((in != NULL) && bt_call_hold_refusal(call, in->tenant, error)) {
        return;
    }
    reply = bt_call_take_reply(call);
    bt_call_release(call);
    reply->ops->error(reply, error);
}

static void refuse_for_memory(bt_call_t *call, const bt_intake_t *in)
{
    bt_api_error_t error = {0};

    bt_api_error_set(&error, 503, "server_error", NULL,
                     "out of memory for this request, try again later");
    refuse(call, in, &error);
}

static void start(bt_call_t *call, const bt_intake_t *in)
{
    bt_api_error_t error = {0};
    bt_status_t status;

    if (bt_limits_check(in, bt_now_us(), &error) != BT_OK) {
        refuse(call, in, &error);
        return;
    }
    if (!bt_call_make_choices(call, in)) {
        refuse_for_memory(call, in);
        return;
    }
    call->pinned = true;
    status = bt_call_submit_all(call, in);
    if (status == BT_ERR_INVALID_PARAM) {
        bt_watching_refused(call->front, in->served, 400);
        fail(call, 400, "a stop word is empty or longer than 1024 bytes");
    } else if (status == BT_ERR_TIMED_OUT) {
        bt_watching_refused(call->front, in->served, 429);
        bt_router_metrics_late(in->served->metrics,
                               bt_core_late(in->served->core)->first,
                               call->n_choices);
        bt_names_refused(&call->front->names, call->name, 429);
        call->tally->failed = true;
        fail_late(call);
    } else if (status == BT_ERR_TOO_LARGE) {
        bt_watching_refused(call->front, in->served, 503);
        call->tally->failed = true;
        fail(call, 503,
             "the logits of requests in flight leave no room for "
             "those of this one (max-logits-bytes), try again later");
    } else if (status != BT_OK) {
        bt_watching_refused(call->front, in->served, 503);
        bt_names_refused(&call->front->names, call->name, 503);
        bt_tenant_metrics_refused(call->tenant->metrics,
                                  BT_TENANT_REFUSED_SERVER);
        call->tally->failed = true;
        fail(call, 503, "no room for this request, try again later");
    } else if (call->stream) {
        bt_call_begin_stream(call);
    }
    call->pinned = false;
    bt_call_release(call);
}

/* Answers a request for tokens or text only. The call takes both from the
 * intake, since the answer may be written after the intake is freed. */
static void tell_tokens(bt_call_t *call, bt_intake_t *in)
{
    const bt_api_usage_t usage = {0};
    bt_api_choice_t *choice = bt_calloc(1, sizeof(*choice));
    bt_reply_t *reply;

    if (choice == NULL) {
        refuse_for_memory(call, in);
        return;
    }
    call->served = in->served;
    call->text = in->prepared.text;
    call->tokens = in->prepared.tokens;
    bt_strbuf_init(&in->prepared.text, 0);
    in->prepared.tokens = (bt_token_vec_t){0};
    choice->text = text_of(&call->text);
    choice->text_bytes = call->text.len;
    choice->token_ids = call->tokens.ids;
    choice->n_token_ids = (uint32_t)call->tokens.n;
    call->whole = choice;
    bt_call_fill_answer(call, &in->request);
    call->pinned = true;
    reply = bt_call_take_reply(call);
    reply->ops->finish(reply, call, &call->answer, choice, 1, &usage);
    call->pinned = false;
    bt_call_release(call);
}

static void begin_running(bt_call_t *call, bt_intake_t *in)
{
    call->account =
        bt_account_ref(in->account); /* prompts outlive the intake */
    if ((in->request.dialect == BT_API_TOKENIZE) ||
        (in->request.dialect == BT_API_DETOKENIZE)) {
        /* The number is known only now; tokens over the limit become a debt. */
        bt_sched_bucket_take(&in->tenant->bucket, in->prepared.tokens.n,
                             bt_now_us());
        tell_tokens(call, in);
    } else {
        start(call, in);
    }
}

/* --max-queue-delay-us: the first call starts the delay, and all calls that
 * arrive meanwhile begin with it. */
static void hold(bt_call_t *call)
{
    bt_frontend_t *front = call->front;

    if (bt_list_empty(&front->held)) {
        front->hold_end(front->hold_ctx, front->config->max_queue_delay_us);
    }
    bt_list_push_back(&front->held, &call->held);
    front->n_held++;
}

void bt_call_begin_held(bt_frontend_t *front)
{
    while (!bt_list_empty(&front->held)) {
        bt_call_t *call = BT_CONTAINER_OF(front->held.next, bt_call_t, held);
        bt_intake_t *in = call->intake;

        let_go(call);
        call->intake = NULL;
        begin_running(call, in);
        bt_intake_free(in);
    }
}

static void on_intake(void *user)
{
    bt_call_t *call = user;
    bt_intake_t *in = call->intake;

    call->ready_us = bt_now_us();
    memcpy(call->reply->facts.ignored, in->request.ignored,
           sizeof(call->reply->facts.ignored));
    if (in->served != NULL) {
        memcpy(call->reply->facts.model, in->served->name,
               sizeof(call->reply->facts.model));
    }
    if ((in->status == BT_OK) && (call->front->hold_end != NULL)) {
        hold(call);
        return;
    }
    call->intake = NULL;
    if (in->status == BT_OK) {
        begin_running(call, in);
    } else {
        refuse(call, in, &in->error);
    }
    bt_intake_free(in);
}

static void begin(bt_frontend_t *front, bt_reply_t *reply,
                  const bt_call_source_t *source, bt_strbuf_t *body)
{
    bt_call_t *call = bt_calloc(1, sizeof(*call));

    if (call == NULL) {
        bt_api_error_t error = {0};

        bt_api_error_set(&error, 503, "server_error", NULL,
                         "out of memory for this request, try again later");
        if (body != NULL) {
            bt_strbuf_fini(body);
        }
        bt_api_request_fini(source->request);
        if (source->body_freed != NULL) {
            source->body_freed(source->ctx, source->body_bytes);
        }
        bt_watching_refused(front, NULL, error.http_status);
        reply->ops->error(reply, &error);
        return;
    }
    bt_list_init(&call->held);
    bt_list_init(&call->unbegun);
    bt_list_init(&call->paced);
    call->tally = (source->tally != NULL) ? source->tally : &call->own_tally;
    call->front = front;
    call->reply = reply;
    reply->call = call;
    if (bt_intake_begin(front, source, body, on_intake, call, &call->intake) !=
        BT_OK) {
        refuse_for_memory(call, NULL);
    }
}

void bt_call_json(bt_frontend_t *front, bt_reply_t *reply,
                  const bt_call_source_t *source, bt_strbuf_t *body)
{
    begin(front, reply, source, body);
}

void bt_call_request(bt_frontend_t *front, bt_reply_t *reply,
                     const bt_call_source_t *source)
{
    begin(front, reply, source, NULL);
}

/* ---- an end that the client asks for ---- */

/* Ends a choice as served, with its tokens so far. @return false if memory is
 * short. */
static bool stop_choice(bt_call_t *call, bt_choice_t *choice)
{
    bt_gen_t *gen = choice->gen;
    const uint32_t *ids = bt_core_output(gen, &choice->n_output);
    bt_strbuf_t rest;
    bool ok;

    if (call->want_ids) {
        choice->ids = bt_memdup(ids, choice->n_output * sizeof(*ids));
    }
    bt_strbuf_init(&rest, BT_ANSWER_LIMIT);
    bt_core_end_text(call->served->core, gen, &rest);
    ok = (bt_strbuf_status(&rest) == BT_OK) &&
         (!call->want_ids || (choice->ids != NULL));
    choice->finish = BT_FINISH_STOP;
    choice->gen = NULL;
    count_tokens(call, choice, choice->n_output);
    close_choice(call, choice);
    count_end(call, true, choice->n_prompt, choice->n_output);
    bt_core_cancel(call->served->core, gen, bt_now_us());
    if (ok && (rest.len > 0)) {
        choice->told_from = call->stream ? choice->ids : NULL;
        add_text(call, choice, rest.data, rest.len);
        choice->told_from = NULL;
    }
    bt_strbuf_fini(&rest);
    return ok;
}

bool bt_call_stop(bt_call_t *call)
{
    bool ok = true;

    if (call->n_open == 0) {
        return false;
    }
    call->pinned = true;
    for (uint32_t i = 0; i < call->n_choices; i++) {
        if (call->choices[i].gen != NULL) {
            ok = stop_choice(call, &call->choices[i]) && ok;
        }
    }
    if (!ok) {
        fail_for_memory(call);
    } else if (call->reply == NULL) {
        /* The client left, or was answered, with the rest of a text. */
    } else if (call->stream) {
        finish_stream(call);
    } else {
        finish_whole(call);
    }
    call->pinned = false;
    bt_call_release(call);
    return true;
}
