/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizes words that a request bans, gives a bias, or has for its logits
 * processors. */
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "common/wire/wire.h"
#include "router/frontend/frontend.h"
#include "router/frontend/prepare_priv.h"

#define MAX_MARK_TOKENS 16u
#define WORD_LIMIT      (64u << 20)

/* ---- bad words ---- */

static bool same_word(const bt_bad_word_t *a, const bt_token_vec_t *b)
{
    return (a->n == b->n) &&
           (memcmp(a->ids, b->ids, b->n * sizeof(*b->ids)) == 0);
}

/* Adds the tokens of one spelling, unless they are in the list. */
static bt_status_t add_spelling(bt_prepare_t *w, const char *text)
{
    bt_token_vec_t tokens = {0};
    bt_status_t status = bt_prepare_tokenize(
        w, BT_WIRE_MAX_TOKENS, text, strlen(text), 0, "bad_words", &tokens);
    uint32_t n = w->out->sampling.n_bad_words;

    if ((status != BT_OK) || (tokens.n == 0)) {
        goto end;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (same_word(&w->out->bad_words[i], &tokens)) {
            goto end;
        }
    }
    if ((n == BT_MAX_BAD_WORDS) || (tokens.n > BT_MAX_BAD_WORD_TOKENS)) {
        status = bt_api_error_invalid(
            w->error, "bad_words",
            "bad_words: at most %d spellings (a word counts with "
            "and without a space in front) of %d tokens each",
            BT_MAX_BAD_WORDS, BT_MAX_BAD_WORD_TOKENS);
        goto end;
    }
    w->out->bad_words[n].n = (uint32_t)tokens.n;
    memcpy(w->out->bad_words[n].ids, tokens.ids,
           tokens.n * sizeof(*tokens.ids));
    w->out->sampling.n_bad_words = n + 1;

end:
    bt_free(tokens.ids);
    return status;
}

/* True when end ids of the model end an answer only where its grammar leaves
 * nothing else: then they are words that are banned. */
static bool bans_end_ids(const bt_prepare_t *w)
{
    return w->request->ignore_eos &&
           bt_prepare_has_grammar(w->served, w->request);
}

static bool is_given(const bt_sampling_t *sampling, uint32_t id)
{
    bool given = false;

    for (uint32_t i = 0; i < sampling->n_end_ids; i++) {
        given = given || (sampling->end_ids[i] == id);
    }
    return given;
}

static bt_status_t ban_end_ids(bt_prepare_t *w)
{
    uint32_t ids[BT_MAX_END_IDS];
    const uint32_t n =
        bt_tokenizer_end_ids(w->served->tok, ids, BT_MAX_END_IDS);
    uint32_t *const n_words = &w->out->sampling.n_bad_words;

    for (uint32_t i = 0; i < n; i++) {
        if (is_given(&w->request->sampling, ids[i])) {
            continue; /* by the client, which ignore_eos leaves */
        }
        if (*n_words == BT_MAX_BAD_WORDS) {
            return bt_api_error_invalid(
                w->error, "bad_words",
                "bad_words: too many spellings beside ignore_eos and %s",
                (w->request->grammar.field != NULL) ? w->request->grammar.field
                                                    : "tools");
        }
        w->out->bad_words[(*n_words)++] =
            (bt_bad_word_t){.n = 1, .ids = {ids[i]}};
    }
    return BT_OK;
}

bt_status_t bt_prepare_bad_words(bt_prepare_t *w)
{
    bt_status_t status = BT_OK;

    w->out->sampling.n_bad_words = 0;
    w->out->sampling.bad_words = NULL;
    if ((w->request->n_bad_words == 0) && (w->request->n_bad_ids == 0) &&
        !bans_end_ids(w)) {
        return BT_OK;
    }
    w->out->bad_words = bt_calloc(BT_MAX_BAD_WORDS, sizeof(*w->out->bad_words));
    if (w->out->bad_words == NULL) {
        return bt_api_error_no_memory(w->error);
    }
    w->out->sampling.bad_words = w->out->bad_words;
    w->out->sampling.n_bad_words = w->request->n_bad_ids;
    if (w->request->n_bad_ids > 0) {
        memcpy(w->out->bad_words, w->request->bad_ids,
               w->request->n_bad_ids * sizeof(*w->request->bad_ids));
    }
    for (uint32_t i = 0; (i < w->request->n_bad_words) && (status == BT_OK);
         i++) {
        const char *word = w->request->bad_words[i];
        bt_strbuf_t spaced;

        status = add_spelling(w, word);
        if ((status != BT_OK) || (word[0] == ' ')) {
            continue;
        }
        bt_strbuf_init(&spaced, WORD_LIMIT);
        bt_strbuf_printf(&spaced, " %s", word);
        status = (bt_strbuf_status(&spaced) == BT_OK)
                     ? add_spelling(w, spaced.data)
                     : bt_api_error_no_memory(w->error);
        bt_strbuf_fini(&spaced);
    }
    return ((status == BT_OK) && bans_end_ids(w)) ? ban_end_ids(w) : status;
}

/* ---- logit biases ---- */

bt_status_t bt_prepare_check_biases(bt_prepare_t *w,
                                    const bt_sampling_t *sampling,
                                    const char *name)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);

    for (uint32_t i = 0; i < sampling->n_logit_biases; i++) {
        if (sampling->logit_biases[i].id >= n_vocab) {
            return bt_api_error_invalid(
                w->error, name,
                "%s has token id %u; this model has ids 0 to %u", name,
                sampling->logit_biases[i].id, n_vocab - 1);
        }
    }
    return BT_OK;
}

static bt_status_t add_bias(bt_prepare_t *w, const char *name, uint32_t id,
                            float bias)
{
    uint32_t n = w->out->sampling.n_logit_biases;
    uint32_t i = 0;

    while ((i < n) && (w->out->biases[i].id != id)) {
        i++;
    }
    if (i == BT_MAX_LOGIT_BIASES) {
        return bt_api_error_invalid(
            w->error, name, "%s has words of more than %d different tokens",
            name, BT_MAX_LOGIT_BIASES);
    }
    w->out->biases[i].id = id;
    w->out->biases[i].bias += bias;
    if (!(w->out->biases[i].bias <= BT_MAX_LOGIT_BIAS) ||
        !(w->out->biases[i].bias >= -BT_MAX_LOGIT_BIAS)) {
        return bt_api_error_invalid(
            w->error, name,
            "%s: the weights of token %u are together beyond "
            "-100 to 100",
            name, id);
    }
    w->out->sampling.n_logit_biases = (i == n) ? n + 1 : n;
    return BT_OK;
}

/* Each token of each word gets the word's bias; repeated tokens add up. */
bt_status_t bt_prepare_bias_words(bt_prepare_t *w)
{
    const char *name = bt_prepare_names(w->request).biases;
    bt_status_t status = BT_OK;

    if (w->request->n_bias_words == 0) {
        return BT_OK;
    }
    w->out->biases = bt_calloc(BT_MAX_LOGIT_BIASES, sizeof(*w->out->biases));
    if (w->out->biases == NULL) {
        return bt_api_error_no_memory(w->error);
    }
    w->out->sampling.logit_biases = w->out->biases;
    w->out->sampling.n_logit_biases = 0;
    for (uint32_t i = 0; (i < w->request->n_bias_words) && (status == BT_OK);
         i++) {
        const bt_api_bias_word_t *word = &w->request->bias_words[i];
        bt_token_vec_t tokens = {0};

        status = bt_prepare_tokenize(w, BT_MAX_LOGIT_BIASES, word->text,
                                     strlen(word->text), 0, name, &tokens);
        for (size_t k = 0; (k < tokens.n) && (status == BT_OK); k++) {
            status = add_bias(w, name, tokens.ids[k], word->bias);
        }
        bt_free(tokens.ids);
    }
    return status;
}

/* ---- lists of logits processors ---- */

typedef struct ids {
    uint32_t *data; /* owned */
    uint32_t n, cap;
} ids_t;

static bt_status_t add_id(bt_prepare_t *w, ids_t *ids, uint32_t id)
{
    if (!bt_array_grow(&ids->data, &ids->cap, ids->n + 1, sizeof(id))) {
        return bt_api_error_no_memory(w->error);
    }
    ids->data[ids->n++] = id;
    return BT_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Adds the allowed tokens once each, in ascending order. */
static bt_status_t add_allowed(bt_prepare_t *w, ids_t *ids)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);
    uint32_t *const allowed = w->request->allowed_ids;
    bt_status_t status = BT_OK;

    if (allowed == NULL) {
        return BT_OK;
    }
    qsort(allowed, w->request->n_allowed_ids, sizeof(*allowed), compare_ids);
    for (uint32_t i = 0; (i < w->request->n_allowed_ids) && (status == BT_OK);
         i++) {
        if (allowed[i] >= n_vocab) {
            return bt_api_error_invalid(
                w->error, "allowed_token_ids",
                "allowed_token_ids: token id %u is not in the vocabulary, "
                "which ends at %u",
                allowed[i], n_vocab - 1);
        }
        if ((i == 0) || (allowed[i] != allowed[i - 1])) {
            status = add_id(w, ids, allowed[i]);
        }
    }
    return status;
}

/* Words that end a sequence for DRY. */
typedef struct breakers {
    const char *const *words;
    uint32_t n;
    bool begins[256]; /* bytes with which one begins */
    bool found[BT_API_MAX_DRY_BREAKERS];
} breakers_t;

static bool has_breaker(breakers_t *b, const uint8_t *text, size_t bytes)
{
    bool any = false;

    for (size_t at = 0; at < bytes; at++) {
        for (uint32_t i = 0; b->begins[text[at]] && (i < b->n); i++) {
            const size_t n = strlen(b->words[i]);

            if ((n <= bytes - at) && (memcmp(text + at, b->words[i], n) == 0)) {
                b->found[i] = any = true;
            }
        }
    }
    return any;
}

static bt_status_t refuse_absent(bt_prepare_t *w, const breakers_t *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        if (!b->found[i]) {
            return bt_api_error_invalid(
                w->error, "dry_sequence_breakers",
                "dry_sequence_breakers: no token of this model contains the "
                "text of number %u; only texts within one token are supported",
                i);
        }
    }
    return BT_OK;
}

/* Adds all tokens whose text contains a sequence breaker. */
static bt_status_t add_breakers(bt_prepare_t *w, ids_t *ids)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"}; /* llama.cpp's */
    const bool own = w->request->has_dry_breakers;
    breakers_t b = {
        .words = own ? (const char *const *)w->request->dry_breakers : usual,
        .n = own ? w->request->n_dry_breakers : (uint32_t)BT_ARRAY_LEN(usual)};
    const uint32_t n_vocab = bt_tokenizer_n_vocab(w->served->tok);
    bt_status_t status = BT_OK;
    unsigned steps = 0;

    for (uint32_t i = 0; i < b.n; i++) {
        b.begins[(uint8_t)b.words[i][0]] = true;
    }
    for (uint32_t id = 0; (id < n_vocab) && (status == BT_OK); id++) {
        bool special = false;
        size_t bytes = 0;
        const uint8_t *text =
            bt_token_bytes(w->served->tok, id, &bytes, &special);

        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        if ((text != NULL) && has_breaker(&b, text, bytes)) {
            status = add_id(w, ids, id);
        }
    }
    return ((status == BT_OK) && own) ? refuse_absent(w, &b) : status;
}

/* Adds the tokens of a mark of the thinking part: one, since a mark of several
 * may be drawn as others, which then were not found; in the Harmony format the
 * tokens of the marks and a channel's name.
 * @param [out] n_p  how many */
static bt_status_t add_mark(bt_prepare_t *w, const char *mark, ids_t *ids,
                            uint32_t *n_p)
{
    const size_t most = w->served->is_harmony ? MAX_MARK_TOKENS : 1;
    bt_token_vec_t tokens = {0};
    bt_status_t status = bt_prepare_tokenize(w, w->context, mark, strlen(mark),
                                             BT_TOK_PARSE_SPECIAL,
                                             "thinking_token_budget", &tokens);

    if ((status == BT_OK) && ((tokens.n == 0) || (tokens.n > most))) {
        status = bt_api_error_invalid(
            w->error, "thinking_token_budget",
            "thinking_token_budget: this model's vocabulary has no token %s",
            mark);
    }
    *n_p = (uint32_t)tokens.n;
    for (size_t i = 0; (i < tokens.n) && (status == BT_OK); i++) {
        status = add_id(w, ids, tokens.ids[i]);
    }
    bt_free(tokens.ids);
    return status;
}

/* True when a mark ends at a position of the prompt. */
static bool ends_at(const bt_prompt_t *prompt, uint32_t end,
                    const uint32_t *mark, uint32_t n)
{
    return (end >= n) &&
           (memcmp(&prompt->tokens[end - n], mark, n * sizeof(*mark)) == 0);
}

/* True when the prompt's last mark opens the thinking part. */
static bool is_opened(const bt_prompt_t *prompt, const uint32_t *open,
                      uint32_t n_open, uint32_t n_close)
{
    for (uint32_t end = prompt->n; end > 0; end--) {
        if (ends_at(prompt, end, open, n_open)) {
            return true;
        }
        if (ends_at(prompt, end, open + n_open, n_close)) {
            return false;
        }
    }
    return false;
}

static bt_status_t add_thinking(bt_prepare_t *w, ids_t *ids)
{
    bt_processor_options_t *const o = &w->out->sampling.processors;
    const bt_reason_marks_t *const marks = w->served->reason;
    bt_status_t status;

    if (marks == NULL) {
        return bt_api_error_invalid(
            w->error, "thinking_token_budget",
            "thinking_token_budget: this model has no marks of a thinking "
            "part (--reasoning-parser)");
    }
    o->thinking_budget = (uint32_t)w->request->thinking_budget;
    status = add_mark(w, marks->open, ids, &o->n_think_open);
    if (status == BT_OK) {
        status = add_mark(w, marks->close, ids, &o->n_think_close);
    }
    for (size_t i = 0; (i < w->out->n_prompts) && (status == BT_OK); i++) {
        w->out->prompts[i].is_thinking =
            is_opened(w->out->prompts[i].prompt,
                      ids->data + (ids->n - o->n_think_open - o->n_think_close),
                      o->n_think_open, o->n_think_close);
    }
    return status;
}

static bt_status_t add_all(bt_prepare_t *w, ids_t *ids)
{
    bt_processor_options_t *const o = &w->out->sampling.processors;
    bt_status_t status = add_allowed(w, ids);

    o->n_allowed_ids = ids->n;
    if ((status == BT_OK) && (o->dry_multiplier > 0.0f)) {
        status = add_breakers(w, ids);
        o->n_dry_breakers = ids->n - o->n_allowed_ids;
    }
    if ((status == BT_OK) && (w->request->thinking_budget >= 0)) {
        status = add_thinking(w, ids);
    }
    o->n_ids = ids->n;
    return status;
}

bt_status_t bt_prepare_processors(bt_prepare_t *w)
{
    ids_t ids = {0};
    bt_status_t status = add_all(w, &ids);

    for (size_t i = 0;
         (i < w->out->n_prompts) && (status == BT_OK) && (ids.n > 0); i++) {
        bt_prompt_t *prompt = w->out->prompts[i].prompt;

        prompt->processor_ids = bt_memdup(ids.data, ids.n * sizeof(*ids.data));
        status = (prompt->processor_ids != NULL)
                     ? BT_OK
                     : bt_api_error_no_memory(w->error);
    }
    bt_free(ids.data);
    return status;
}

uint32_t bt_prepare_penalized(const bt_api_request_t *request,
                              uint32_t n_prompt)
{
    const bool penalizes = (request->sampling.presence_penalty != 0.0f) ||
                           (request->sampling.frequency_penalty != 0.0f);

    if ((request->dialect != BT_API_GENERATE) || !penalizes ||
        (request->prompt_ignore_length >= n_prompt)) {
        return 0;
    }
    return n_prompt - request->prompt_ignore_length;
}
