/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a row's generations: text, pieces, and the end. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/request/request_priv.h"
#include "router/text/prediction.h"

#define MAX_OPENING_BYTES 4096

/* Counts an ended sequence, successful or not, and possibly its request. */
static void count_end(const bt_row_t *row, bool ok, uint32_t n_prompt,
                      uint32_t n_output)
{
    bt_request_t *r = row->request;
    const bt_names_t *names = &r->front->names;

    if (ok) {
        bt_router_metrics_end(r->served->metrics, n_prompt, n_output);
        r->n_ok++;
    }
    bt_names_end(names, r->name, ok, n_prompt, n_output);
    if (!r->failed && (!ok || (r->n_ok == r->n_sequences))) {
        r->failed = !ok;
        bt_router_metrics_request(r->served->metrics, ok);
        bt_names_request(names, r->name, ok);
    }
}

/* @param start_us when processing of its text began */
static void count_output(const bt_row_t *row, uint64_t start_us)
{
    const uint64_t us = bt_now_us() - start_us;

    bt_router_metrics_output(row->request->served->metrics, us);
    bt_names_output(&row->request->front->names, row->request->name, us);
}

static void count_piece(bt_row_t *row)
{
    const uint64_t now_us = bt_now_us();
    const uint64_t us = now_us - row->piece_us;

    bt_router_metrics_response(row->request->served->metrics, row->n_pieces,
                               us);
    bt_names_response(&row->request->front->names, row->request->name,
                      row->n_pieces, us);
    row->n_pieces++;
    row->piece_us = now_us;
}

/* Counts new tokens of a choice. */
static void count_tokens(bt_row_t *row, bt_choice_t *choice, uint32_t n)
{
    if (n > choice->n_used) {
        bt_tenant_metrics_add(row->request->tenant->metrics,
                              BT_TC_GENERATION_TOKENS, n - choice->n_used);
        bt_adapter_metrics_add(bt_row_adapter_metrics(row),
                               BT_AC_GENERATION_TOKENS, n - choice->n_used);
        choice->n_used = n;
    }
}

/* Choices that end with this one: the beams of its prompt, or itself. */
static uint32_t n_ending(const bt_row_t *row)
{
    return row->has_beams ? row->n_of_prompt : 1;
}

/* Ends a choice: unused tokens are refunded to its tenant. */
static void close_choice(bt_row_t *row, const bt_choice_t *choice)
{
    row->n_open--;
    bt_tenant_leave(row->request->tenant, 1);
    bt_adapter_metrics_add(bt_row_adapter_metrics(row), BT_AC_RUNNING, -1);
    for (uint32_t i = 0; i < n_ending(row); i++) {
        if (choice[i].max_new > choice[i].n_used) {
            bt_sched_bucket_give(&row->request->tenant->bucket,
                                 choice[i].max_new - choice[i].n_used,
                                 bt_now_us());
        }
    }
}

void bt_row_cancel(bt_row_t *row)
{
    for (uint32_t i = 0; i < row->n_choices; i++) {
        bt_choice_t *choice = &row->choices[i];
        bt_gen_t *gen = choice->gen;

        if (gen != NULL) {
            choice->gen = NULL;
            close_choice(row, choice);
            count_end(row, false, 0, 0);
            bt_core_cancel(row->request->served->core, gen, bt_now_us());
        }
    }
}

static bt_api_usage_t usage_of(const bt_row_t *row)
{
    bt_api_usage_t usage = {.prompt_tokens = (uint32_t)row->n_prompt_tokens};

    for (uint32_t i = 0; i < row->n_choices; i += row->n_of_prompt) {
        uint32_t n_cached = 0;
        uint32_t n_kept = 0;

        for (uint32_t k = i; k < i + row->n_of_prompt; k++) {
            const bt_choice_t *choice = &row->choices[k];

            usage.completion_tokens += choice->n_output;
            usage.thought_tokens += choice->n_thought;
            usage.predicted_tokens += choice->n_predicted;
            usage.accepted_tokens += choice->n_accepted;
            n_cached =
                (choice->n_cached > n_cached) ? choice->n_cached : n_cached;
            n_kept = (choice->n_kept > n_kept) ? choice->n_kept : n_kept;
        }
        usage.cached_tokens += n_cached; /* a prompt is computed once */
        usage.kept_tokens += n_kept;
    }
    return usage;
}

void bt_row_add_facts(bt_row_t *row)
{
    bt_request_facts_t *facts = &row->request->facts;
    const bt_api_usage_t usage = usage_of(row);
    const uint64_t first_us = row->first_token_us;

    facts->n_prompt += usage.prompt_tokens;
    facts->n_output += usage.completion_tokens;
    if ((first_us > 0) &&
        ((facts->first_token_us == 0) || (first_us < facts->first_token_us))) {
        facts->first_token_us = first_us;
    }
}

/* ---- pieces ---- */

static const char *text_of(const bt_strbuf_t *buf)
{
    return (buf->len > 0) ? buf->data : "";
}

/* Without memory each event writes its own opening. */
static void make_opening(bt_row_t *row)
{
    bt_api_answer_t *answer = &row->answer;

    if ((answer->dialect == BT_API_GENERATE) ||
        (answer->dialect == BT_API_RESPONSES) ||
        (answer->dialect == BT_API_ANTHROPIC) ||
        (answer->dialect == BT_API_GENERATE_TOKENS) ||
        bt_api_is_ollama(answer->dialect)) {
        return;
    }
    bt_strbuf_init(&row->opening, MAX_OPENING_BYTES);
    bt_api_write_opening(answer, &row->opening);
    if (bt_strbuf_status(&row->opening) == BT_OK) {
        answer->opening = row->opening.data;
        answer->opening_bytes = row->opening.len;
    }
}

/* Adds log-probs and logits of the piece or the whole choice. */
static void add_rows(const bt_row_t *row, const bt_choice_t *choice,
                     uint32_t from, bt_api_choice_t *out)
{
    uint32_t front;

    if (choice->rows == NULL) {
        return;
    }
    if (row->has_prompt_logprobs) {
        out->prompt_rows = choice->rows;
        out->n_prompt_top = row->n_prompt_top;
    }
    if (row->hides_logprobs) {
        return;
    }
    front = row->skips_front ? choice->rows->n_front : 0;
    out->rows = choice->rows;
    out->n_hidden_top = row->n_hidden_top;
    out->from = (from > front) ? from : front;
    out->to = row->is_echo ? choice->rows->n_front : choice->walk.n;
    out->offsets = choice->walk.offsets;
    out->cum_logprob = choice->walk.cum_logprob;
}

/* Adds tool calls, and marks those that were sent. */
static void add_calls(bt_choice_t *choice, bt_api_choice_t *out)
{
    const uint32_t n = choice->tools.n_calls;

    out->calls = choice->tools.calls;
    out->n_calls = n;
    out->n_calls_sent = choice->n_calls_sent;
    out->args_sent = choice->args_sent;
    out->is_cut_call =
        (choice->finish != BT_FINISH_NONE) && bt_tools_is_cut(&choice->tools);
    if (n > 0) {
        choice->n_calls_sent = n;
        choice->args_sent = choice->tools.calls[n - 1].arguments.len;
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

static void send_piece(bt_row_t *row, bt_choice_t *choice, const char *text,
                       size_t bytes, const bt_strbuf_t *thought)
{
    const bt_api_usage_t usage = usage_of(row);
    const bool first = choice->first;
    bt_api_choice_t piece = {
        .index = choice->index,
        .text = text,
        .text_bytes = bytes,
        .no_new_text = (bytes == 0) && (!first || (choice->echo == NULL)),
        .thought = (thought != NULL) ? text_of(thought) : "",
        .thought_bytes = (thought != NULL) ? thought->len : 0,
        .finish = choice->finish,
        .stop_word = choice->stop_word,
        .perf_wants = row->perf_wants,
        .perf = row->perf,
    };

    if (!bt_list_empty(&row->unbegun)) {
        bt_row_begin_stream(row);
        if (!row->is_open) {
            return;
        }
    }
    add_rows(row, choice, choice->n_scored, &piece);
    choice->n_scored = piece.to;
    add_calls(choice, &piece);
    if (choice->sent_ids != NULL) {
        piece.token_ids = choice->sent_ids + choice->n_ids_sent;
        piece.n_token_ids = choice->n_output - choice->n_ids_sent;
        piece.by_end_id = choice->by_end_id;
        choice->n_ids_sent = choice->n_output;
    }
    if ((first && (choice->echo != NULL)) || row->accumulates) {
        if (first && (choice->echo != NULL)) {
            bt_strbuf_append(&choice->text, choice->echo, choice->echo_bytes);
        }
        bt_strbuf_append(&choice->text, text, bytes);
        if (bt_strbuf_status(&choice->text) != BT_OK) {
            bt_request_fail_for_memory(row->request);
            return;
        }
        piece.text = text_of(&choice->text);
        piece.text_bytes = choice->text.len;
    }
    if ((row->answer.dialect == BT_API_RESPONSES) &&
        !add_whole(choice, &piece)) {
        bt_request_fail_for_memory(row->request);
        return;
    }
    choice->first = false;
    count_piece(row);
    if (row->answer.opening == NULL) {
        make_opening(row);
    }
    /* The client may be gone afterwards: check row->is_open. */
    row->request->ops->piece(row, &piece, first, &usage);
}

/* True when tool calls, or more of their arguments, were not sent yet. */
static bool has_more_calls(const bt_choice_t *choice)
{
    const uint32_t n = choice->tools.n_calls;

    return (n > choice->n_calls_sent) ||
           ((n > 0) &&
            (choice->tools.calls[n - 1].arguments.len > choice->args_sent));
}

/* Reasoning of one part begins the answer; messages of reasoning may also stand
 * behind others. */
static void count_thought(bt_choice_t *choice)
{
    if (choice->is_harmony && bt_harmony_is_thinking(&choice->harmony)) {
        choice->n_thought += choice->n_output - choice->n_sorted;
    } else if (!choice->is_harmony && bt_reason_is_thinking(&choice->reason)) {
        choice->n_thought = choice->n_output;
    }
    choice->n_sorted = choice->n_output;
}

/* Separates reasoning and tool calls from the text. Text that is held back is
 * sent with the next piece, and so are its tokens' ids and log-probs. */
static void sort_text(bt_row_t *row, bt_choice_t *choice, const char *text,
                      size_t bytes)
{
    const bool last = choice->finish != BT_FINISH_NONE;
    bt_strbuf_t answer_text;
    bt_strbuf_t content;

    bt_strbuf_init(&answer_text, BT_ANSWER_LIMIT);
    bt_strbuf_init(&content, BT_ANSWER_LIMIT);
    if (choice->is_harmony) {
        bt_harmony_push(&choice->harmony, text, bytes, last, &choice->thought,
                        &answer_text, &choice->tools);
    } else {
        bt_reason_push(&choice->reason, text, bytes, last, &choice->thought,
                       &answer_text);
    }
    count_thought(choice);
    if (bt_tool_format_is_harmony(choice->tools.spec.format)) {
        bt_strbuf_append(row->stream ? &content : &choice->text,
                         text_of(&answer_text), answer_text.len);
    } else {
        bt_tools_push(&choice->tools, text_of(&answer_text), answer_text.len,
                      last, row->stream ? &content : &choice->text);
    }
    if ((bt_strbuf_status(&choice->thought) != BT_OK) ||
        (bt_strbuf_status(&choice->text) != BT_OK) ||
        (bt_strbuf_status(&answer_text) != BT_OK) ||
        (bt_strbuf_status(&content) != BT_OK)) {
        bt_request_fail_for_memory(row->request);
    } else if (row->stream &&
               (last || (content.len > 0) || (choice->thought.len > 0) ||
                has_more_calls(choice) || (choice->sent_ids != NULL))) {
        send_piece(row, choice, text_of(&content), content.len,
                   &choice->thought);
        bt_strbuf_reset(&choice->thought);
    }
    bt_strbuf_fini(&answer_text);
    bt_strbuf_fini(&content);
}

static void add_text(bt_row_t *row, bt_choice_t *choice, const char *text,
                     size_t bytes)
{
    if (!row->is_open) {
        return;
    }
    if (choice->is_harmony || (choice->reason.marks != NULL) ||
        (choice->tools.spec.format != NULL)) {
        sort_text(row, choice, text, bytes);
        return;
    }
    if (row->stream) {
        send_piece(row, choice, text, bytes, NULL);
        return;
    }
    bt_strbuf_append(&choice->text, text, bytes);
    if (bt_strbuf_status(&choice->text) != BT_OK) {
        bt_request_fail_for_memory(row->request);
    }
}

/* Adds log-probs of new tokens. @return false: the row has failed */
static bool add_logprobs(bt_row_t *row, bt_choice_t *choice,
                         bt_gen_rows_t *rows)
{
    if (rows == NULL) {
        return true;
    }
    if (choice->rows == NULL) {
        choice->rows = bt_gen_rows_ref(rows);
    }
    if (bt_score_walk_on(&choice->walk, rows) != BT_OK) {
        bt_request_fail_for_memory(row->request);
        return false;
    }
    return true;
}

static void set_weights(bt_row_t *row, const bt_gen_weights_t *weights)
{
    bt_request_t *r = row->request;

    if (r->weights.version[0] == '\0') {
        r->weights = *weights;
    }
    if (r->front->config->allow_weight_updates[0] != '\0') {
        row->answer.weight_version = r->weights.version;
    }
}

/* All tokens of a request are of the weights of its first one.
 * @return false: they are not, and the request has failed */
static bool is_of_one_version(bt_row_t *row, const bt_gen_weights_t *weights)
{
    bt_request_t *r = row->request;

    set_weights(row, weights);
    if (r->weights.update != weights->update) {
        bt_api_error_set(&r->error, 503, NULL,
                         "weights %s were replaced by %s between answers of "
                         "this request, try again",
                         r->weights.version, weights->version);
        bt_request_fail(r);
        return false;
    }
    return true;
}

void bt_row_on_text(void *ctx, void *choice_p, const char *text, size_t bytes,
                    uint32_t n_output)
{
    bt_choice_t *choice = choice_p;
    bt_row_t *row = choice->row;
    bt_request_t *r = bt_request_ref(row->request);

    (void)ctx;
    choice->n_output = n_output;
    count_tokens(row, choice, n_output);
    choice->n_cached = bt_core_n_cached(choice->gen);
    choice->n_kept = bt_core_n_kept(choice->gen);
    if (row->want_ids && row->stream) {
        choice->sent_ids = bt_core_output(choice->gen, &n_output);
    }
    if (is_of_one_version(row, bt_core_weights_of(choice->gen)) &&
        add_logprobs(row, choice, bt_core_rows(choice->gen))) {
        add_text(row, choice, text, bytes);
    }
    choice->sent_ids = NULL;
    bt_request_unref(r);
}

/* ---- the end of a choice, and of the row ---- */

static void note_end(bt_row_t *row, const bt_gen_end_t *end)
{
    bt_request_facts_t *facts = &row->request->facts;

    facts->finish = end->finish;
    if (row->first_token_us == 0) {
        row->first_token_us = end->first_token_us;
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
static uint32_t rank_of(const bt_row_t *row, uint32_t i)
{
    const uint32_t first = i - i % row->n_of_prompt;
    const double mine = goodness(&row->choices[i]);
    uint32_t rank = 0;

    for (uint32_t k = first; k < first + row->n_of_prompt; k++) {
        const double theirs = goodness(&row->choices[k]);

        rank += ((theirs > mine) || ((theirs == mine) && (k < i))) ? 1 : 0;
    }
    return rank;
}

static void fill_choice(const bt_row_t *row, bt_choice_t *choice,
                        uint32_t index, bt_api_choice_t *out)
{
    out->index = index;
    out->text = text_of(&choice->text);
    out->text_bytes = choice->text.len;
    out->thought = text_of(&choice->thought);
    out->thought_bytes = choice->thought.len;
    out->finish = choice->finish;
    out->perf_wants = row->perf_wants;
    out->perf = row->perf;
    out->token_ids = choice->ids;
    out->n_token_ids = choice->n_output;
    out->by_end_id = choice->by_end_id;
    out->stop_word = choice->stop_word;
    add_calls(choice, out);
    add_rows(row, choice, 0, out);
}

static void row_end(bt_row_t *row)
{
    row->is_open = false;
    bt_row_add_facts(row);
    bt_list_remove(&row->unbegun);
}

static void finish_whole(bt_row_t *row)
{
    const bt_api_usage_t usage = usage_of(row);
    const uint32_t n_returned =
        row->n_choices / row->n_of_prompt * row->n_returned;
    bt_api_choice_t *choices =
        bt_arena_alloc(&row->request->arena, n_returned * sizeof(*choices));

    if (choices == NULL) {
        bt_request_fail_for_memory(row->request);
        return;
    }
    for (uint32_t i = 0; i < row->n_choices; i++) {
        const bool all = row->n_returned == row->n_of_prompt;
        const uint32_t rank = all ? i % row->n_returned : rank_of(row, i);
        const uint32_t at = i / row->n_of_prompt * row->n_returned + rank;

        if (rank < row->n_returned) {
            fill_choice(row, &row->choices[i], at, &choices[at]);
        }
    }
    if (row->has_beams && (row->answer.dialect == BT_API_GENERATE)) {
        row->answer.n_beams = n_returned;
        for (uint32_t i = 0; i < n_returned; i++) {
            const uint32_t length = choices[i].to - choices[i].from;

            if (length > row->answer.beam_tokens) {
                row->answer.beam_tokens = length;
            }
        }
    }
    row_end(row);
    row->request->ops->finish(row, choices, n_returned, &usage);
}

static void request_respond(bt_row_t *row)
{
    if (row->stream) {
        const bt_api_usage_t usage = usage_of(row);

        row_end(row);
        row->request->ops->finish(row, NULL, 0, &usage);
    } else {
        finish_whole(row);
    }
}

/* Fails the request of a generation that failed. */
static void fail(bt_row_t *row, const bt_gen_end_t *end)
{
    bt_api_error_t *const error = &row->request->error;

    if (end->is_ambiguous) { /* the client's own: no words about workers */
        bt_api_error_set(error, end->http_status, row->grammar_field,
                         "%s: the answer cannot be followed further: its "
                         "grammar is ambiguous in more than %u ways, or the "
                         "next token takes too many steps to find",
                         row->grammar_field, BT_GRAMMAR_MAX_WAYS);
    } else {
        bt_api_error_set(error, end->http_status, NULL, "%s", end->message);
    }
    row->request->is_exhausted = end->is_exhausted;
    bt_request_fail(row->request);
}

static void end_choice(bt_row_t *row, bt_choice_t *choice, const char *text,
                       size_t bytes)
{
    add_text(row, choice, text, bytes);
    if (row->is_open && (row->n_open == 0)) {
        request_respond(row);
    }
}

/* Fills the choices behind the best one of a beam search.
 * @return false: the row has failed */
static bool take_beams(bt_row_t *row, bt_choice_t *best,
                       const bt_gen_end_t *end)
{
    for (uint32_t i = 0; i < end->n_others; i++) {
        const bt_gen_beam_t *beam = &end->others[i];
        bt_choice_t *choice = best + 1 + i;

        choice->finish = beam->finish;
        choice->n_output = beam->n;
        choice->by_end_id = beam->by_end_id;
        if (row->want_ids) {
            choice->ids = bt_memdup(beam->ids, beam->n * sizeof(*beam->ids));
            if (choice->ids == NULL) {
                bt_request_fail_for_memory(row->request);
                return false;
            }
        }
        if (!add_logprobs(row, choice, beam->rows)) {
            return false;
        }
        add_text(row, choice, beam->text, beam->text_bytes);
    }
    return true;
}

/* Keeps ids and the stop word for the answer.
 * @return false: memory is short */
static bool keep_end(bt_row_t *row, bt_choice_t *choice,
                     const bt_gen_end_t *end)
{
    if (row->want_ids) {
        choice->ids = bt_memdup(end->ids, end->n_output * sizeof(*end->ids));
        choice->sent_ids = row->stream ? choice->ids : NULL;
        if (choice->ids == NULL) {
            return false;
        }
    }
    return bt_arena_strdup(&row->request->arena, end->stop_word,
                           &choice->stop_word);
}

/* Adds all that a choice has at its end but its text.
 * @return false: the request has failed */
static bool take_end(bt_row_t *row, bt_choice_t *choice,
                     const bt_gen_end_t *end)
{
    return is_of_one_version(row, &end->weights) &&
           add_logprobs(row, choice, end->rows) && take_beams(row, choice, end);
}

void bt_row_on_end(void *ctx, void *choice_p, const bt_gen_end_t *end)
{
    const uint64_t start_us = bt_now_us();
    bt_choice_t *choice = choice_p;
    bt_row_t *row = choice->row;
    const bool ok = end->finish != BT_FINISH_ERROR;
    const bool is_echo = row->is_echo && ok;
    bt_request_t *r = bt_request_ref(row->request);

    (void)ctx;
    choice->gen = NULL;
    choice->finish = is_echo ? BT_FINISH_LENGTH : end->finish;
    choice->n_output = is_echo ? 0 : end->n_output;
    choice->by_end_id = end->by_end_id;
    choice->n_cached = end->n_cached;
    choice->n_kept = end->n_kept;
    row->perf = end->perf;
    count_tokens(row, choice, end->n_output);
    for (uint32_t i = 0; i < end->n_others; i++) { /* before it is closed */
        count_tokens(row, choice + 1 + i, end->others[i].n);
    }
    close_choice(row, choice);
    if (ok) {
        bt_tenant_note_end(row->request->tenant, start_us);
    }
    if (row->is_open) {
        note_end(row, end);
    }
    count_end(row, ok, end->n_prompt, end->n_output);
    if (ok && (end->prompt->n_draft_ids > 0)) {
        choice->n_predicted = end->prompt->n_draft_ids;
        choice->n_accepted =
            bt_prediction_accepted(end->prompt->draft_ids, choice->n_predicted,
                                   end->ids, end->n_output);
    }
    if (ok && !keep_end(row, choice, end)) {
        bt_request_fail_for_memory(row->request);
    } else if (ok) {
        if (take_end(row, choice, end)) {
            end_choice(row, choice, end->text, is_echo ? 0 : end->text_bytes);
        }
    } else {
        fail(row, end);
    }
    if (ok) {
        count_output(row, start_us);
    }
    bt_request_unref(r);
}

/* ---- an end that the client asks for ---- */

/* Ends a choice as served, with its tokens so far. @return false if memory is
 * short. */
static bool stop_choice(bt_row_t *row, bt_choice_t *choice)
{
    bt_gen_t *gen = choice->gen;
    const uint32_t *ids = bt_core_output(gen, &choice->n_output);
    bt_strbuf_t rest;
    bool ok;

    if (row->want_ids) {
        choice->ids = bt_memdup(ids, choice->n_output * sizeof(*ids));
    }
    bt_strbuf_init(&rest, BT_ANSWER_LIMIT);
    bt_core_end_text(row->request->served->core, gen, &rest);
    ok = (bt_strbuf_status(&rest) == BT_OK) &&
         (!row->want_ids || (choice->ids != NULL));
    if (choice->n_output > 0) {
        set_weights(row, bt_core_weights_of(gen));
    }
    for (uint32_t i = 0; i < n_ending(row); i++) {
        choice[i].finish = BT_FINISH_STOP; /* beams: without any token */
    }
    choice->gen = NULL;
    count_tokens(row, choice, choice->n_output);
    close_choice(row, choice);
    count_end(row, true, choice->n_prompt, choice->n_output);
    bt_core_cancel(row->request->served->core, gen, bt_now_us());
    if (ok && (rest.len > 0)) {
        choice->sent_ids = row->stream ? choice->ids : NULL;
        add_text(row, choice, rest.data, rest.len);
        choice->sent_ids = NULL;
    }
    bt_strbuf_fini(&rest);
    return ok;
}

bool bt_row_stop(bt_row_t *row)
{
    bt_request_t *r = row->request;
    bool ok = true;

    if (row->n_open == 0) {
        return false;
    }
    bt_request_ref(r);
    for (uint32_t i = 0; i < row->n_choices; i++) {
        if (row->choices[i].gen != NULL) {
            ok = stop_choice(row, &row->choices[i]) && ok;
        }
    }
    if (!ok) {
        bt_request_fail_for_memory(r);
    } else if (row->is_open) {
        /* Else the client left, or was answered, with the rest of a text. */
        request_respond(row);
    }
    bt_request_unref(r);
    return true;
}
