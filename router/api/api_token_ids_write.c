/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of token ids, whole and as events, and log-probs of prompts, in the
 * forms of vLLM. Source: vLLM, GenerateResponse, GenerateStreamResponse and
 * Logprob. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "router/api/api_priv.h"

/* ---- log-probs of a prompt ---- */

#define LEAST_LOGPROB (-9999.0) /* vLLM's number for minus infinity */

static double clamped(double logprob)
{
    return isinf(logprob) ? LEAST_LOGPROB : logprob;
}

/* Writes a token by its id. The rank is known of the best tokens alone. */
static void put_entry(const bt_tokenizer_t *tok, uint32_t id, double logprob,
                      uint32_t rank, bt_json_t *json)
{
    char key[16];
    const int n = snprintf(key, sizeof(key), "%" PRIu32, id);
    bool is_special = false;
    size_t n_bytes = 0;
    const uint8_t *bytes = bt_token_bytes(tok, id, &n_bytes, &is_special);

    bt_json_key(json, key, (size_t)n);
    bt_json_object(json, NULL);
    bt_json_double(json, "logprob", clamped(logprob));
    if (rank > 0) {
        bt_json_u64(json, "rank", rank);
    } else {
        bt_json_null(json, "rank");
    }
    bt_json_strn(json, "decoded_token", (const char *)bytes, n_bytes);
    bt_json_end_object(json);
}

/* Returns the place of a token among the best ones, from 1 on; 0: it is not one
 * of them. */
static uint32_t rank_of(const bt_scores_t *scores, size_t i)
{
    const uint32_t *ids = &scores->top_ids[i * scores->n_top];

    for (uint32_t k = 0; k < scores->n_top; k++) {
        if (ids[k] == scores->ids[i]) {
            return k + 1;
        }
    }
    return 0;
}

/* Writes token i of the prompt, and then the others of the best. */
static void put_prompt_token(bt_json_t *json, const void *tok,
                             const void *choice_p, size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    const bt_scores_t *scores = &choice->prompt_rows->scores;
    const size_t first = i * scores->n_top;

    if (isnan(scores->logprobs[i])) { /* the first */
        bt_json_null(json, NULL);
        return;
    }
    bt_json_object(json, NULL);
    put_entry(tok, scores->ids[i], scores->logprobs[i],
              (scores->n_top > 0) ? rank_of(scores, i) : 0, json);
    for (uint32_t k = 0; k < choice->n_prompt_top; k++) {
        if (scores->top_ids[first + k] != scores->ids[i]) {
            put_entry(tok, scores->top_ids[first + k],
                      scores->top_logprobs[first + k], k + 1, json);
        }
    }
    bt_json_end_object(json);
}

void bt_api_put_prompt_logprobs(const bt_tokenizer_t *tok,
                                const bt_api_choice_t *choice, bt_json_t *json)
{
    if (choice->prompt_rows != NULL) {
        bt_json_array_of(json, "prompt_logprobs", 0,
                         choice->prompt_rows->n_front, put_prompt_token, tok,
                         choice);
    }
}

/* ---- the answer ---- */

/* Opens a token of the answer, which is named by its id. */
static void open_token(uint32_t id, double logprob, bt_json_t *json)
{
    char token[32];

    snprintf(token, sizeof(token), "token_id:%" PRIu32, id);
    bt_json_object(json, NULL);
    bt_json_str(json, "token", token);
    bt_json_double(json, "logprob", clamped(logprob));
    bt_json_null(json, "bytes");
}

static void put_token(bt_json_t *json, const void *choice_p, const void *none,
                      size_t i)
{
    const bt_api_choice_t *choice = choice_p;
    const bt_scores_t *scores = &choice->rows->scores;
    const size_t first = i * scores->n_top;

    (void)none;
    open_token(scores->ids[i], scores->logprobs[i], json);
    bt_json_array(json, "top_logprobs");
    for (uint32_t k = 0; k < scores->n_top - choice->n_hidden_top; k++) {
        open_token(scores->top_ids[first + k], scores->top_logprobs[first + k],
                   json);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}

static void put_choice(const bt_api_choice_t *choice, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_u64(json, "index", choice->index);
    if (choice->rows != NULL) {
        bt_json_object(json, "logprobs");
        bt_json_array_of(json, "content", choice->from, choice->to, put_token,
                         choice, NULL);
        bt_json_end_object(json);
    } else {
        bt_json_null(json, "logprobs");
    }
    bt_json_str(json, "finish_reason", bt_api_finish_reason(choice));
    bt_api_put_token_ids(choice, json);
    bt_json_end_object(json);
}

void bt_api_put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choices, size_t n_choices,
                       const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "request_id", answer->id);
    bt_json_str(json, "model", answer->model);
    bt_json_i64(json, "created", answer->created);
    bt_json_array(json, "choices");
    for (size_t i = 0; i < n_choices; i++) {
        put_choice(&choices[i], json);
    }
    bt_json_end_array(json);
    bt_api_put_usage(usage, json);
    if (choices[0].prompt_rows != NULL) {
        bt_api_put_prompt_logprobs(answer->tok, &choices[0], json);
    } else {
        bt_json_null(json, "prompt_logprobs");
    }
    bt_json_null(json, "kv_transfer_params");
    bt_json_end_object(json);
}

/* ---- the events of a stream ---- */

void bt_api_put_tokens_event(const bt_api_answer_t *answer,
                             const bt_api_choice_t *piece,
                             const bt_api_usage_t *usage, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "request_id", answer->id);
    bt_json_array(json, "choices");
    if (piece != NULL) {
        put_choice(piece, json);
    }
    bt_json_end_array(json);
    if ((piece == NULL) || (answer->continuous_usage && (usage != NULL))) {
        bt_api_put_usage(usage, json);
    } else {
        bt_json_null(json, "usage");
    }
    bt_json_end_object(json);
}
