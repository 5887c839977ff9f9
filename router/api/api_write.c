/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/text.h"
#include "router/api/api_priv.h"
#include "router/api/perf_metrics.h"

void bt_api_put_weights(const bt_api_answer_t *answer, bt_json_t *json)
{
    if (answer->weight_version != NULL) {
        bt_json_str(json, "weight_version", answer->weight_version);
    }
}

/* ---- texts of tokens ---- */

/* Bytes of a token that is not valid text, with 4 characters per byte. */
#define MAX_NO_TEXT 64u

typedef struct token_text {
    const char *text;
    size_t bytes;
    char buf[sizeof("bytes:") +
             4 * MAX_NO_TEXT]; /* for a token that is not text */
} token_text_t;

static bool is_text(const uint8_t *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const int len = bt_utf8_scan(bytes + at, n - at);

        if (len <= 0) {
            return false;
        }
        at += (size_t)len;
    }
    return true;
}

/* Spells a token as OpenAI's completions do: a partial character is
 * "bytes:\xe2\x80", so that no two tokens of a vocabulary look alike. */
static void spell(const bt_tokenizer_t *tok, uint32_t id, token_text_t *out)
{
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes = bt_token_bytes(tok, id, &n, &is_special);
    size_t at = 0;

    out->text = (const char *)bytes;
    out->bytes = n;
    if (is_text(bytes, n)) {
        return;
    }
    at += (size_t)snprintf(out->buf, sizeof(out->buf), "bytes:");
    for (size_t i = 0; (i < n) && (i < MAX_NO_TEXT); i++) {
        at += (size_t)snprintf(out->buf + at, sizeof(out->buf) - at, "\\x%02x",
                               bytes[i]);
    }
    out->text = out->buf;
    out->bytes = at;
}

/* ---- log-probs of completions ---- */

/* Writers of list items, for token i of a choice. */

static void put_offset(bt_json_t *json, const void *tok, const void *choice_p,
                       size_t i)
{
    const bt_api_choice_t *choice = choice_p;

    (void)tok;
    bt_json_u64(json, NULL, choice->offsets[i]);
}

static void put_logprob(bt_json_t *json, const void *tok, const void *choice_p,
                        size_t i)
{
    const bt_api_choice_t *choice = choice_p;

    (void)tok;
    bt_json_double(json, NULL, choice->rows->scores.logprobs[i]);
}

static void put_token(bt_json_t *json, const void *tok, const void *choice_p,
                      size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    token_text_t text;

    spell(tok, choice->rows->scores.ids[i], &text);
    bt_json_strn(json, NULL, text.text, text.bytes);
}

static bool same_text(const bt_tokenizer_t *tok, uint32_t a, uint32_t b)
{
    bool is_special = false;
    size_t n_a = 0, n_b = 0;
    const uint8_t *bytes_a = bt_token_bytes(tok, a, &n_a, &is_special);
    const uint8_t *bytes_b = bt_token_bytes(tok, b, &n_b, &is_special);

    return (n_a == n_b) && ((n_a == 0) || (memcmp(bytes_a, bytes_b, n_a) == 0));
}

/* JSON readers keep only one of several equal keys, which may not be the best.
 */
static bool was_before(const bt_tokenizer_t *tok, const uint32_t *ids,
                       uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        if (same_text(tok, ids[i], ids[k])) {
            return true;
        }
    }
    return false;
}

static void put_pair(const bt_tokenizer_t *tok, uint32_t id, double logprob,
                     bt_json_t *json)
{
    token_text_t text;

    spell(tok, id, &text);
    bt_json_key(json, text.text, text.bytes);
    bt_json_double(json, NULL, logprob);
}

/* Writes the best ids of a token, and the token itself if it is not among them.
 */
static void put_top_of(const bt_tokenizer_t *tok, const bt_scores_t *scores,
                       uint32_t n_top, uint32_t i, bt_json_t *json)
{
    const size_t first = (size_t)i * scores->n_top;
    uint32_t ids[BT_MAX_TOP_LOGPROBS + 1];

    for (uint32_t k = 0; k < n_top; k++) {
        ids[k] = scores->top_ids[first + k];
    }
    ids[n_top] = scores->ids[i];
    bt_json_object(json, NULL);
    for (uint32_t k = 0; k <= n_top; k++) {
        if (!was_before(tok, ids, k)) {
            put_pair(tok, ids[k],
                     (k < n_top) ? scores->top_logprobs[first + k]
                                 : scores->logprobs[i],
                     json);
        }
    }
    bt_json_end_object(json);
}

static void put_top(bt_json_t *json, const void *tok, const void *choice_p,
                    size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    const bt_scores_t *scores = &choice->rows->scores;

    if (isnan(scores->logprobs[i])) { /* the first of a prompt */
        bt_json_null(json, NULL);
    } else {
        put_top_of(tok, scores, scores->n_top - choice->n_hidden_top,
                   (uint32_t)i, json);
    }
}

static void put_completions(const bt_tokenizer_t *tok,
                            const bt_api_choice_t *choice, bt_json_t *json)
{
    const uint32_t from = choice->from;
    const uint32_t to = choice->to;

    bt_json_object(json, "logprobs");
    bt_json_array_of(json, "text_offset", from, to, put_offset, tok, choice);
    bt_json_array_of(json, "token_logprobs", from, to, put_logprob, tok,
                     choice);
    bt_json_array_of(json, "tokens", from, to, put_token, tok, choice);
    bt_json_array_of(json, "top_logprobs", from, to, put_top, tok, choice);
    bt_json_end_object(json);
}

/* ---- log-probs of chats ---- */

static void open_chat_token(const bt_tokenizer_t *tok, uint32_t id,
                            double logprob, bt_json_t *json)
{
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes = bt_token_bytes(tok, id, &n, &is_special);

    bt_json_object(json, NULL);
    bt_json_strn(json, "token", (const char *)bytes, n);
    bt_json_double(json, "logprob", logprob);
    bt_json_array(json, "bytes");
    for (size_t i = 0; i < n; i++) {
        bt_json_u64(json, NULL, bytes[i]);
    }
    bt_json_end_array(json);
}

static void put_chat_token(bt_json_t *json, const void *tok,
                           const void *choice_p, size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    const bt_scores_t *scores = &choice->rows->scores;
    const size_t first = i * scores->n_top;

    open_chat_token(tok, scores->ids[i], scores->logprobs[i], json);
    bt_json_array(json, "top_logprobs");
    for (uint32_t k = 0; k < scores->n_top - choice->n_hidden_top; k++) {
        open_chat_token(tok, scores->top_ids[first + k],
                        scores->top_logprobs[first + k], json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

void bt_api_put_token_list(const bt_api_answer_t *answer,
                           const bt_api_choice_t *choice, const char *key,
                           bt_json_t *json)
{
    bt_json_array_of(json, key, choice->from, choice->to, put_chat_token,
                     answer->tok, choice);
}

static void put_chat(const bt_api_answer_t *answer,
                     const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, "logprobs");
    bt_api_put_token_list(answer, choice, "content", json);
    bt_json_null(json, "refusal");
    bt_json_end_object(json);
}

/* Writes the member "logprobs" of a choice in its dialect, null where not
 * requested. */
static void put_logprobs(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    if ((choice->rows == NULL) ||
        ((choice->rows->wants.what & BT_WANT_ANY_LOGPROBS) == 0)) {
        bt_json_null(json, "logprobs");
    } else if (answer->dialect == BT_API_CHAT) {
        put_chat(answer, choice, json);
    } else {
        put_completions(answer->tok, choice, json);
    }
}

/* ---- log-probs and logits of generate ---- */

/* A tensor is one list, row by row. */
static void put_float(bt_json_t *json, const void *floats_p, const void *none,
                      size_t i)
{
    const float *floats = floats_p;

    (void)none;
    bt_json_float(json, NULL, floats[i]);
}

/* Writes the log-probs and logits of generate under Triton's names; nothing
 * where not requested. */
static void put_rows(const bt_api_choice_t *choice, bt_json_t *json)
{
    const bt_gen_rows_t *rows = choice->rows;
    const bool is_over = choice->finish != BT_FINISH_NONE;

    if (rows == NULL) {
        return;
    }
    if ((rows->wants.what & BT_WANT_LOGPROBS) != 0) {
        bt_json_double(json, "cum_log_probs", choice->cum_logprob);
        bt_json_array_of(json, "output_log_probs", choice->from, choice->to,
                         put_logprob, NULL, choice);
    }
    if ((rows->context_logits != NULL) && is_over) {
        bt_json_array_of(json, "context_logits", 0,
                         (size_t)rows->n_prompt * rows->n_vocab, put_float,
                         rows->context_logits, NULL);
    }
    if ((rows->generation_logits != NULL) && is_over) {
        bt_json_array_of(json, "generation_logits", 0,
                         (size_t)rows->n_output * rows->n_vocab, put_float,
                         rows->generation_logits, NULL);
    }
}

/* Writes the requested numbers about a choice that has finished, but not those
 * of BT_WANT_* @a except. */
static void put_perf(const bt_api_choice_t *choice, uint32_t except,
                     bt_json_t *json)
{
    for (unsigned i = 0; i < BT_N_PERF_METRICS; i++) {
        const bt_perf_metric_t *metric = &bt_perf_metrics[i];

        if ((choice->finish == BT_FINISH_NONE) ||
            ((metric->want & choice->perf_wants & ~except) == 0)) {
            continue;
        }
        if (metric->type == BT_PERF_FP32) {
            bt_json_double(json, metric->name, metric->value(&choice->perf));
        } else {
            bt_json_i64(json, metric->name,
                        (int64_t)metric->value(&choice->perf));
        }
    }
}

/* ---- generate ---- */

static void put_beam_text(bt_json_t *json, const void *choices_p,
                          const void *none, size_t i)
{
    const bt_api_choice_t *choices = choices_p;

    (void)none;
    bt_json_strn(json, NULL, choices[i].text, choices[i].text_bytes);
}

static void put_beam_sum(bt_json_t *json, const void *choices_p,
                         const void *none, size_t i)
{
    const bt_api_choice_t *choices = choices_p;

    (void)none;
    bt_json_double(json, NULL, choices[i].cum_logprob);
}

static void put_beam_length(bt_json_t *json, const void *choices_p,
                            const void *none, size_t i)
{
    const bt_api_choice_t *choices = choices_p;

    (void)none;
    bt_json_i64(json, NULL, (int64_t)choices[i].n_token_ids);
}

/* Log-prob i of a tensor with a row for each beam, padded with 0. */
static void put_beam_logprob(bt_json_t *json, const void *choices_p,
                             const void *answer_p, size_t i)
{
    const size_t length = ((const bt_api_answer_t *)answer_p)->beam_tokens;
    const bt_api_choice_t *choices = choices_p;
    const bt_api_choice_t *choice = &choices[i / length];
    const size_t at = choice->from + i % length;

    bt_json_double(json, NULL,
                   (at < choice->to) ? choice->rows->scores.logprobs[at] : 0.0);
}

/* Writes the outputs of a beam search: lists with an element for each beam. */
static void put_beams(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choices, bt_json_t *json)
{
    const size_t n = answer->n_beams;

    bt_json_array_of(json, "text_output", 0, n, put_beam_text, choices, NULL);
    if ((choices->perf_wants & BT_WANT_N_OUTPUT) != 0) {
        bt_json_array_of(json, "num_output_tokens", 0, n, put_beam_length,
                         choices, NULL);
    }
    if (choices->rows == NULL) {
        return;
    }
    bt_json_array_of(json, "cum_log_probs", 0, n, put_beam_sum, choices, NULL);
    bt_json_array_of(json, "output_log_probs", 0, n * answer->beam_tokens,
                     put_beam_logprob, choices, answer);
}

static void put_generate(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    if ((answer->id != NULL) && (answer->id[0] != '\0')) {
        bt_json_str(json, "id", answer->id);
    }
    bt_json_str(json, "model_name", answer->model);
    bt_json_str(json, "model_version", answer->version);
    bt_api_put_weights(answer, json);
    bt_json_bool(json, "sequence_end", answer->sequence_end);
    bt_json_i64(json, "sequence_id", answer->sequence_id);
    bt_json_bool(json, "sequence_start", answer->sequence_start);
    if (answer->n_beams > 0) {
        put_beams(answer, choice, json);
    } else {
        bt_json_strn(json, "text_output", choice->text, choice->text_bytes);
        put_rows(choice, json);
    }
    put_perf(choice, (answer->n_beams > 0) ? BT_WANT_N_OUTPUT : 0, json);
    bt_json_end_object(json);
}

/* ---- tokens ---- */

static void put_token_id(bt_json_t *json, const void *choice_p,
                         const void *none, size_t i)
{
    const bt_api_choice_t *choice = choice_p;

    (void)none;
    bt_json_u64(json, NULL, choice->token_ids[i]);
}

static void put_token_text(bt_json_t *json, const void *choice_p,
                           const void *tok, size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes =
        bt_token_bytes(tok, choice->token_ids[i], &n, &is_special);

    bt_json_strn(json, NULL, (const char *)bytes, n);
}

/* Writes the answers of tokenize and detokenize, as vLLM has them, and of
 * Anthropic's count_tokens. */
static void put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    if (answer->dialect == BT_API_ANTHROPIC_COUNT) {
        bt_json_u64(json, "input_tokens", choice->n_token_ids);
    } else if (answer->dialect == BT_API_DETOKENIZE) {
        bt_json_strn(json, "prompt", choice->text, choice->text_bytes);
    } else {
        bt_json_u64(json, "count", choice->n_token_ids);
        bt_json_u64(json, "max_model_len", answer->context_tokens);
        bt_json_array_of(json, "tokens", 0, choice->n_token_ids, put_token_id,
                         choice, NULL);
        if (answer->token_texts) {
            bt_json_array_of(json, "token_strs", 0, choice->n_token_ids,
                             put_token_text, choice, answer->tok);
        } else {
            bt_json_null(json, "token_strs");
        }
    }
    bt_json_end_object(json);
}

/* ---- OpenAI ---- */

static void open_openai(const bt_api_answer_t *answer, const char *object,
                        bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "id", answer->id);
    bt_json_str(json, "object", object);
    bt_json_i64(json, "created", answer->created);
    bt_json_str(json, "model", answer->model);
    bt_json_null(json, "system_fingerprint");
    bt_api_put_weights(answer, json);
    bt_json_array(json, "choices");
}

void bt_api_put_usage(const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, "usage");
    bt_json_u64(json, "prompt_tokens", usage->prompt_tokens);
    bt_json_u64(json, "completion_tokens", usage->completion_tokens);
    bt_json_u64(json, "total_tokens",
                (uint64_t)usage->prompt_tokens + usage->completion_tokens);
    bt_json_object(json, "prompt_tokens_details");
    bt_json_u64(json, "cached_tokens", usage->cached_tokens);
    bt_json_u64(json, "cache_write_tokens", usage->kept_tokens);
    bt_json_end_object(json);
    bt_json_object(json, "completion_tokens_details");
    bt_json_u64(json, "reasoning_tokens", usage->thought_tokens);
    if (usage->predicted_tokens > 0) {
        bt_json_u64(json, "accepted_prediction_tokens", usage->accepted_tokens);
        bt_json_u64(json, "rejected_prediction_tokens",
                    usage->predicted_tokens - usage->accepted_tokens);
    }
    bt_json_end_object(json);
    bt_json_end_object(json);
}

const char *bt_api_finish_reason(const bt_api_choice_t *choice)
{
    switch (choice->finish) {
    case BT_FINISH_NONE:
        return NULL;
    case BT_FINISH_STOP:
        return ((choice->n_calls > 0) && !choice->is_cut_call) ? "tool_calls"
                                                               : "stop";
    case BT_FINISH_LENGTH:
        return "length";
    case BT_FINISH_REPETITION:
        return "repetition";
    case BT_FINISH_CANCELED:
        return "abort";
    default:
        return "error";
    }
}

static void close_choice(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    put_logprobs(answer, choice, json);
    bt_json_str(json, "finish_reason", bt_api_finish_reason(choice));
    bt_json_end_object(json);
}

void bt_api_put_token_ids(const bt_api_choice_t *choice, bt_json_t *json)
{
    if (choice->token_ids == NULL) {
        return;
    }
    bt_json_array_of(json, "token_ids", 0, choice->n_token_ids, put_token_id,
                     choice, NULL);
}

static void put_thought(const bt_api_choice_t *choice, bt_json_t *json)
{
    if (choice->thought_bytes > 0) {
        bt_json_strn(json, "reasoning_content", choice->thought,
                     choice->thought_bytes);
    }
}

/* A message with calls and no text has null content. */
static void put_content(const bt_api_choice_t *choice, bt_json_t *json)
{
    if ((choice->n_calls > 0) && (choice->text_bytes == 0)) {
        bt_json_null(json, "content");
    } else {
        bt_json_strn(json, "content", choice->text, choice->text_bytes);
    }
}

static void put_choice(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_u64(json, "index", choice->index);
    if (answer->dialect == BT_API_CHAT) {
        bt_json_object(json, "message");
        bt_json_str(json, "role", "assistant");
        put_content(choice, json);
        put_thought(choice, json);
        bt_api_put_calls(answer, choice, false, json);
        bt_json_null(json, "refusal");
        bt_json_end_object(json);
    } else {
        bt_json_strn(json, "text", choice->text, choice->text_bytes);
    }
    bt_api_put_token_ids(choice, json);
    if (answer->dialect == BT_API_COMPLETIONS) {
        bt_api_put_prompt_logprobs(answer->tok, choice, json);
    }
    close_choice(answer, choice, json);
}

void bt_api_put_answer(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json)
{
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, &choices[0], json);
        return;
    }
    if (bt_api_is_ollama(answer->dialect)) {
        bt_api_put_ollama(answer, &choices[0], usage, json);
        return;
    }
    if (answer->counts_only) {
        bt_api_put_input_tokens(choices[0].n_token_ids, json);
        return;
    }
    if (answer->dialect == BT_API_RESPONSES) {
        bt_api_put_response(answer, NULL, &choices[0], usage, json);
        return;
    }
    if (answer->dialect == BT_API_ANTHROPIC) {
        bt_api_put_anthropic(answer, &choices[0], usage, json);
        return;
    }
    if (answer->dialect == BT_API_GENERATE_TOKENS) {
        bt_api_put_tokens(answer, choices, n_choices, usage, json);
        return;
    }
    if ((answer->dialect == BT_API_TOKENIZE) ||
        (answer->dialect == BT_API_DETOKENIZE) ||
        (answer->dialect == BT_API_ANTHROPIC_COUNT)) {
        put_tokens(answer, &choices[0], json);
        return;
    }
    open_openai(answer,
                (answer->dialect == BT_API_CHAT) ? "chat.completion"
                                                 : "text_completion",
                json);
    for (size_t i = 0; i < n_choices; i++) {
        put_choice(answer, &choices[i], json);
    }
    bt_json_end_array(json);
    if (answer->dialect == BT_API_CHAT) {
        bt_api_put_prompt_logprobs(answer->tok, &choices[0], json);
    }
    bt_api_put_usage(usage, json);
    bt_json_end_object(json);
}

void bt_api_write_answer(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choices, size_t n_choices,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_api_put_answer(answer, choices, n_choices, usage, &json);
}

static const char *event_object(bt_api_dialect_t dialect)
{
    return (dialect == BT_API_CHAT) ? "chat.completion.chunk"
                                    : "text_completion";
}

void bt_api_write_opening(const bt_api_answer_t *answer, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    open_openai(answer, event_object(answer->dialect), &json);
}

/* ---- the events of a stream ---- */

/* The part of a piece that an event carries. */
typedef enum part {
    ROLE, /* chat: first event of a choice */
    SAID, /* its text, calls, ids and log-probs */
    END,  /* chat: finish reason */
    ALL,  /* other dialects: everything */
} part_t;

static void put_delta(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, part_t part,
                      bt_json_t *json)
{
    bt_json_object(json, "delta");
    if (part == ROLE) {
        bt_json_str(json, "role", "assistant");
        bt_json_str(json, "content", "");
    } else if (part == SAID) {
        if (choice->text_bytes > 0) {
            bt_json_strn(json, "content", choice->text, choice->text_bytes);
        }
        put_thought(choice, json);
        bt_api_put_calls(answer, choice, true, json);
    }
    bt_json_end_object(json);
}

static void put_choice_part(const bt_api_answer_t *answer,
                            const bt_api_choice_t *piece, part_t part,
                            bt_json_t *json)
{
    bt_api_choice_t choice = *piece;

    if ((part == ROLE) || (part == END)) { /* no content */
        choice.rows = NULL;
        choice.n_token_ids = 0;
    }
    if ((part == ROLE) || (part == SAID)) {
        choice.finish = BT_FINISH_NONE;
    }
    bt_json_object(json, NULL);
    bt_json_u64(json, "index", choice.index);
    if (part == ALL) {
        bt_json_strn(json, "text", choice.text, choice.text_bytes);
    } else {
        put_delta(answer, &choice, part, json);
    }
    bt_api_put_token_ids(&choice, json);
    close_choice(answer, &choice, json);
}

static void put_chunk(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, part_t part,
                      const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_strbuf_puts(out, "data: ");
    bt_json_init(&json, out);
    if (answer->dialect == BT_API_GENERATE) {
        put_generate(answer, choice, &json);
    } else if (answer->dialect == BT_API_GENERATE_TOKENS) {
        bt_api_put_tokens_event(answer, choice, usage, &json);
    } else {
        if (answer->opening != NULL) {
            bt_strbuf_append(out, answer->opening, answer->opening_bytes);
        } else {
            open_openai(answer, event_object(answer->dialect), &json);
        }
        put_choice_part(answer, choice, part, &json);
        bt_json_end_array(&json);
        if (answer->continuous_usage && (usage != NULL)) {
            bt_api_put_usage(usage, &json);
        } else if (answer->include_usage) {
            /* Every chunk but the last has the field, as null. */
            bt_json_null(&json, "usage");
        }
        bt_json_end_object(&json);
    }
    bt_strbuf_puts(out, "\n\n");
}

static bool says_something(const bt_api_choice_t *choice)
{
    return (choice->text_bytes > 0) || (choice->thought_bytes > 0) ||
           bt_api_has_new_calls(choice) ||
           ((choice->token_ids != NULL) && (choice->n_token_ids > 0)) ||
           ((choice->rows != NULL) && (choice->to > choice->from));
}

void bt_api_write_chunks(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bool first,
                         const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    if (answer->dialect != BT_API_CHAT) {
        put_chunk(answer, choice, ALL, usage, out);
        return;
    }
    if (first) {
        put_chunk(answer, choice, ROLE, usage, out);
    }
    if (says_something(choice)) {
        put_chunk(answer, choice, SAID, usage, out);
    }
    if (choice->finish != BT_FINISH_NONE) {
        put_chunk(answer, choice, END, usage, out);
    }
}

void bt_api_write_usage(const bt_api_answer_t *answer,
                        const bt_api_usage_t *usage, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    if (answer->dialect == BT_API_GENERATE_TOKENS) {
        bt_api_put_tokens_event(answer, NULL, usage, &json);
        return;
    }
    open_openai(answer, event_object(answer->dialect), &json);
    bt_json_end_array(&json);
    bt_api_put_usage(usage, &json);
    bt_json_end_object(&json);
}

/* ---- errors and the rest ---- */

static const char *error_code(const bt_api_error_t *error)
{
    const bool of_model =
        (error->param != NULL) && (strcmp(error->param, "model") == 0);

    if (error->code != NULL) {
        return error->code;
    }
    switch (error->http_status) {
    case 401:
        return "invalid_api_key";
    case 404:
        return of_model ? "model_not_found" : NULL;
    case 429:
        return "rate_limit_exceeded";
    default:
        return NULL;
    }
}

void bt_api_write_error(bt_api_dialect_t dialect, const bt_api_error_t *error,
                        bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    if ((dialect == BT_API_GENERATE) || bt_api_is_ollama(dialect)) {
        bt_json_str(&json, "error", error->message);
    } else if ((dialect == BT_API_ANTHROPIC) ||
               (dialect == BT_API_ANTHROPIC_COUNT)) {
        bt_api_put_anthropic_error(error, &json);
    } else {
        bt_json_object(&json, "error");
        bt_json_str(&json, "message", error->message);
        bt_json_str(&json, "type", error->type);
        bt_json_str(&json, "param", error->param);
        bt_json_str(&json, "code", error_code(error));
        bt_json_end_object(&json);
    }
    bt_json_end_object(&json);
}

static void put_sampling(const bt_sampling_defaults_t *sampling,
                         bt_json_t *json)
{
    static const char *const sources[] = {
        [BT_SAMPLING_OF_SERVER] = "server",
        [BT_SAMPLING_OF_FILE] = "file",
        [BT_SAMPLING_OF_OPTION] = "option",
    };

    bt_json_object(json, "default_sampling");
    bt_json_str(json, "from", sources[sampling->source]);
    bt_json_float(json, "temperature", sampling->temperature);
    bt_json_float(json, "top_p", sampling->top_p);
    bt_json_u64(json, "top_k", sampling->top_k);
    bt_json_float(json, "min_p", sampling->min_p);
    bt_json_float(json, "repetition_penalty", sampling->repetition_penalty);
    bt_json_end_object(json);
}

static void put_model(const bt_api_model_t *model, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "id", model->name);
    bt_json_str(json, "object", "model");
    bt_json_i64(json, "created", model->created);
    bt_json_str(json, "owned_by", "baton");
    bt_json_str(json, "root",
                (model->root != NULL) ? model->root : model->name);
    bt_json_str(json, "parent", model->parent); /* NULL is null */
    bt_json_u64(json, "max_model_len", model->context_tokens);
    bt_json_str(json, "chat_template", model->chat_template);
    put_sampling(&model->sampling, json);
    bt_json_end_object(json);
}

void bt_api_write_model(const bt_api_model_t *model, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    put_model(model, &json);
}

void bt_api_write_models(const bt_api_model_t *models, size_t n,
                         bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "object", "list");
    bt_json_array(&json, "data");
    for (size_t i = 0; i < n; i++) {
        put_model(&models[i], &json);
    }
    bt_json_end_array(&json);
    bt_json_end_object(&json);
}
