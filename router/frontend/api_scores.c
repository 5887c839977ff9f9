/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs and logits in the forms of the dialects. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "router/frontend/api_priv.h"

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

/* ---- completions ---- */

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
                       uint32_t i, bt_json_t *json)
{
    const size_t first = (size_t)i * scores->n_top;
    uint32_t ids[BT_MAX_TOP_LOGPROBS + 1];

    for (uint32_t k = 0; k < scores->n_top; k++) {
        ids[k] = scores->top_ids[first + k];
    }
    ids[scores->n_top] = scores->ids[i];
    bt_json_object(json, NULL);
    for (uint32_t k = 0; k <= scores->n_top; k++) {
        if (!was_before(tok, ids, k)) {
            put_pair(tok, ids[k],
                     (k < scores->n_top) ? scores->top_logprobs[first + k]
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
        put_top_of(tok, scores, (uint32_t)i, json);
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

/* ---- chat ---- */

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
    for (uint32_t k = 0; k < scores->n_top; k++) {
        open_chat_token(tok, scores->top_ids[first + k],
                        scores->top_logprobs[first + k], json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void put_chat(const bt_tokenizer_t *tok, const bt_api_choice_t *choice,
                     bt_json_t *json)
{
    bt_json_object(json, "logprobs");
    bt_json_array_of(json, "content", choice->from, choice->to, put_chat_token,
                     tok, choice);
    bt_json_null(json, "refusal");
    bt_json_end_object(json);
}

void bt_api_put_logprobs(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json)
{
    if ((choice->rows == NULL) ||
        ((choice->rows->wants.what & BT_WANT_ANY_LOGPROBS) == 0)) {
        bt_json_null(json, "logprobs");
    } else if (answer->dialect == BT_API_CHAT) {
        put_chat(answer->tok, choice, json);
    } else {
        put_completions(answer->tok, choice, json);
    }
}

/* ---- generate ---- */

static void put_float(bt_json_t *json, const void *floats_p, const void *none,
                      size_t i)
{
    const float *floats = floats_p;

    (void)none;
    bt_json_float(json, NULL, floats[i]);
}

/* Writes a tensor as one list, row by row. */
static void put_floats(const char *name, const float *floats, size_t n,
                       bt_json_t *json)
{
    bt_json_array_of(json, name, 0, n, put_float, floats, NULL);
}

void bt_api_put_rows(const bt_api_choice_t *choice, bt_json_t *json)
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
        put_floats("context_logits", rows->context_logits,
                   (size_t)rows->n_prompt * rows->n_vocab, json);
    }
    if ((rows->generation_logits != NULL) && is_over) {
        put_floats("generation_logits", rows->generation_logits,
                   (size_t)rows->n_output * rows->n_vocab, json);
    }
}
