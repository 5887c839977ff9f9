/* SPDX-License-Identifier: Apache-2.0 */
/* Ollama's answers: an object, or the lines of a stream. Source: Ollama's API
 * reference, "Generate a chat completion" and "Generate a completion". */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/status.h"
#include "router/api/api_priv.h"

#define MAX_YEAR 9999

const char *bt_api_format_time(int64_t seconds, char text[BT_API_TIME_BYTES])
{
    const time_t time = (time_t)seconds;
    const time_t epoch = 0;
    struct tm tm;

    if ((gmtime_r(&time, &tm) == NULL) || (tm.tm_year + 1900 < 0) ||
        (tm.tm_year + 1900 > MAX_YEAR)) {
        (void)gmtime_r(&epoch, &tm);
    }
    snprintf(text, BT_API_TIME_BYTES, "%04d-%02d-%02dT%02d:%02d:%02dZ",
             tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
             tm.tm_min, tm.tm_sec);
    return text;
}

/* ---- members ---- */

static void put_head(const bt_api_answer_t *answer, bt_json_t *json)
{
    char time[BT_API_TIME_BYTES];

    bt_json_object(json, NULL);
    bt_json_str(json, "model", answer->model);
    bt_json_str(json, "created_at", bt_api_format_time(answer->created, time));
}

/* Writes the arguments of a call on one line: line ends are white space between
 * the tokens of JSON. */
static void put_arguments(const bt_strbuf_t *arguments, bt_json_t *json)
{
    bt_strbuf_t *out = json->out;
    const size_t from = out->len;

    bt_api_put_arguments(json, "arguments", arguments);
    for (size_t i = from; (bt_strbuf_status(out) == BT_OK) && (i < out->len);
         i++) {
        if ((out->data[i] == '\n') || (out->data[i] == '\r')) {
            out->data[i] = ' ';
        }
    }
}

static void put_calls(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, uint32_t from, uint32_t to,
                      bt_json_t *json)
{
    if (from >= to) {
        return;
    }
    bt_json_array(json, "tool_calls");
    for (uint32_t i = from; i < to; i++) {
        bt_json_object(json, NULL);
        bt_api_put_call_id(answer, choice->index, i, "id", json);
        bt_json_object(json, "function");
        bt_json_u64(json, "index", i);
        bt_json_str(json, "name", choice->calls[i].name);
        put_arguments(&choice->calls[i].arguments, json);
        bt_json_end_object(json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

static bool has_logprobs(const bt_api_choice_t *choice)
{
    return (choice->rows != NULL) && (choice->to > choice->from) &&
           ((choice->rows->wants.what & BT_WANT_ANY_LOGPROBS) != 0);
}

/* Writes what a choice or a piece says: its text, reasoning, the calls of this
 * range and the log-probs. */
static void put_said(const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, uint32_t from, uint32_t to,
                     bt_json_t *json)
{
    const bool is_chat = answer->dialect == BT_API_OLLAMA_CHAT;

    if (is_chat) {
        bt_json_object(json, "message");
        bt_json_str(json, "role", "assistant");
    }
    bt_json_strn(json, is_chat ? "content" : "response", choice->text,
                 choice->text_bytes);
    if (choice->thought_bytes > 0) {
        bt_json_strn(json, "thinking", choice->thought, choice->thought_bytes);
    }
    if (is_chat) {
        put_calls(answer, choice, from, to, json);
        bt_json_end_object(json);
    }
    if (has_logprobs(choice)) {
        bt_api_put_token_list(answer, choice, "logprobs", json);
    }
}

/* Returns nanoseconds between two times in microseconds; 0: one is not known.
 */
static uint64_t ns_between(uint64_t from_us, uint64_t to_us)
{
    return ((from_us > 0) && (to_us > from_us)) ? (to_us - from_us) * 1000 : 0;
}

/* The time until workers had the request is the one to load. */
static void put_end(const bt_api_choice_t *choice, const bt_api_usage_t *usage,
                    bt_json_t *json)
{
    const bt_gen_perf_t *perf = &choice->perf;

    bt_json_bool(json, "done", true);
    bt_json_str(json, "done_reason",
                (choice->finish == BT_FINISH_LENGTH) ? "length" : "stop");
    bt_json_u64(json, "total_duration",
                ns_between(perf->arrival_us, perf->last_token_us));
    bt_json_u64(json, "load_duration",
                ns_between(perf->arrival_us, perf->first_scheduled_us));
    bt_json_u64(json, "prompt_eval_count", usage->prompt_tokens);
    bt_json_u64(json, "prompt_eval_duration",
                ns_between(perf->first_scheduled_us, perf->first_token_us));
    bt_json_u64(json, "eval_count", usage->completion_tokens);
    bt_json_u64(json, "eval_duration",
                ns_between(perf->first_token_us, perf->last_token_us));
    bt_json_end_object(json);
}

/* Returns the number of calls that are whole: all but the last while the choice
 * goes on, and all but one that its end has cut. */
static uint32_t n_whole(const bt_api_choice_t *choice)
{
    const bool is_open =
        (choice->finish == BT_FINISH_NONE) || choice->is_cut_call;

    return choice->n_calls - ((is_open && (choice->n_calls > 0)) ? 1 : 0);
}

/* ---- answers ---- */

void bt_api_put_ollama(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice,
                       const bt_api_usage_t *usage, bt_json_t *json)
{
    put_head(answer, json);
    if (answer->counts_only) {
        const bt_api_choice_t empty = {.text = ""};

        put_said(answer, &empty, 0, 0, json);
        bt_json_bool(json, "done", true);
        bt_json_str(json, "done_reason", "load");
        bt_json_end_object(json);
        return;
    }
    put_said(answer, choice, 0, n_whole(choice), json);
    put_end(choice, usage, json);
}

void bt_api_write_ollama_lines(const bt_api_answer_t *answer,
                               const bt_api_choice_t *piece,
                               const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    const uint32_t from =
        (piece->n_calls_sent > 0) ? piece->n_calls_sent - 1 : 0;
    const uint32_t to = n_whole(piece);
    bt_json_t json;

    if ((piece->text_bytes > 0) || (piece->thought_bytes > 0) || (from < to) ||
        has_logprobs(piece)) {
        bt_json_init(&json, out);
        put_head(answer, &json);
        put_said(answer, piece, from, to, &json);
        bt_json_bool(&json, "done", false);
        bt_json_end_object(&json);
        bt_strbuf_puts(out, "\n");
    }
    if (piece->finish != BT_FINISH_NONE) {
        const bt_api_choice_t empty = {.text = ""};

        bt_json_init(&json, out);
        put_head(answer, &json);
        put_said(answer, &empty, 0, 0, &json);
        put_end(piece, usage, &json);
        bt_strbuf_puts(out, "\n");
    }
}

void bt_api_write_ollama_error_line(const bt_api_error_t *error,
                                    bt_strbuf_t *out)
{
    bt_api_write_error(BT_API_OLLAMA_CHAT, error, out);
    bt_strbuf_puts(out, "\n");
}
