/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/prepare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "common/wire/wire.h"
#include "router/frontend/frontend.h"
#include "router/frontend/prepare_priv.h"
#include "router/frontend/space.h"

#define CHAT_TEXT_LIMIT (64u << 20)
#define UNUSED_LIMIT    4096u /* names of ignored members */
#define OPENING_TOKENS  32u   /* more than a mark at a prompt's end takes */

#define WHY_BYTES        128
#define COUNTED_CONTEXTS 4u /* beyond: a lower bound */
/* Bytes of JSON for a byte of logits: "-1.17549435e-38," for four at most. */
#define TEXT_OF_LOGITS 4u

/* Returns why the context is less than the model's, if it is. */
static const char *why_less(const bt_served_t *served, uint32_t context,
                            char why[WHY_BYTES])
{
    why[0] = '\0';
    if (context < served->context_tokens) {
        snprintf(why, WHY_BYTES,
                 " (the model has %u; the workers' kv-memory or "
                 "max-seq-len allow fewer)",
                 served->context_tokens);
    }
    return why;
}

/* ---- what the fields are called ---- */

/* Returns the field names for errors, the request's own where it has them. */
bt_api_names_t bt_prepare_names(const bt_api_request_t *request)
{
    const bt_api_names_t names = {
        .prompt = "prompt",
        .max_tokens = "max_tokens",
        .bad_words = "bad_words",
        .biases = "logit_bias",
    };

    return (request->names != NULL) ? *request->names : names;
}

/* Returns the field that the prompt comes from. */
static const char *prompt_name(const bt_api_request_t *request)
{
    if (request->names != NULL) {
        return request->names->prompt;
    }
    return bt_api_is_chat(request)                 ? "messages"
           : (request->dialect == BT_API_GENERATE) ? "text_input"
                                                   : "prompt";
}

/* ---- prompts ---- */

/* Turns the result of tokenizing into an error for the client. */
static bt_status_t tell_tokenized(uint32_t most, bt_status_t status,
                                  const char *param, bt_api_error_t *error)
{
    switch (status) {
    case BT_OK:
        return BT_OK;
    case BT_ERR_INVALID_PARAM:
        bt_api_error_set(error, 400, param, "%s is not valid UTF-8", param);
        return status;
    case BT_ERR_TOO_LARGE:
        bt_api_error_set(error, 400, param, "%s has more than %u tokens", param,
                         most);
        return status;
    default:
        return bt_api_error_no_memory(error);
    }
}

/* Stops as soon as a text is known to be too long. */
bt_status_t bt_prepare_tokenize(const bt_served_t *served, uint32_t most,
                                const char *text, size_t bytes, unsigned flags,
                                const char *param, bt_token_vec_t *out,
                                bt_api_error_t *error)
{
    return tell_tokenized(
        most, bt_tokenize(served->tok, text, bytes, flags, most, out), param,
        error);
}

/* A prompt's text. In quotes, the spelling of a special token is plain text. */
typedef struct prompt_text {
    const char *text;
    size_t bytes;
    unsigned flags;
    const bt_quotes_t *quotes; /* NULL unless from a chat's messages */
    const char *name;
} prompt_text_t;

static bt_status_t tokenize_text(const bt_served_t *served,
                                 const prompt_text_t *prompt, size_t most,
                                 bt_token_vec_t *out)
{
    return (prompt->quotes != NULL)
               ? bt_tokenize_quoting(served->tok, prompt->text, prompt->bytes,
                                     prompt->quotes, most, out)
               : bt_tokenize(served->tok, prompt->text, prompt->bytes,
                             prompt->flags, most, out);
}

/* Refuses a prompt that is too long, in the words that OpenAI's clients look
 * for. The length is counted up to COUNTED_CONTEXTS contexts, so that the
 * client knows how much to shorten. */
static bt_status_t refuse_length(const bt_served_t *served, uint32_t context,
                                 const prompt_text_t *prompt,
                                 bt_api_error_t *error)
{
    const size_t most = (size_t)context * COUNTED_CONTEXTS;
    bt_token_vec_t tokens = {0};
    const bt_status_t status = tokenize_text(served, prompt, most, &tokens);
    const bool more = status == BT_ERR_TOO_LARGE;
    char why[WHY_BYTES];

    if ((status != BT_OK) && !more) {
        return bt_api_error_no_memory(error);
    }
    bt_api_error_set(error, 400, prompt->name,
                     "This model's maximum context length is %u tokens%s. "
                     "However, you requested %s%zu tokens in the %s. Please "
                     "reduce its length.",
                     context, why_less(served, context, why),
                     more ? "more than " : "", more ? most : tokens.n,
                     prompt->name);
    error->code = BT_API_CONTEXT_LENGTH;
    bt_free(tokens.ids);
    return BT_ERR_TOO_LARGE;
}

static bt_status_t tokenize_prompt(const bt_served_t *served, uint32_t context,
                                   const prompt_text_t *prompt,
                                   bt_token_vec_t *out, bt_api_error_t *error)
{
    const bt_status_t status = tokenize_text(served, prompt, context, out);

    /* tokenize allows more, for no answer has to fit. */
    if ((status == BT_ERR_TOO_LARGE) && (context <= served->context_tokens)) {
        return refuse_length(served, context, prompt, error);
    }
    return tell_tokenized(context, status, prompt->name, error);
}

#define FOLD_HINT " (--out-of-vocabulary-ids modulo takes others)"

/* @param hint  appended to the refusal of an unknown id; NULL: such ids count
 *   modulo the vocabulary */
static bt_status_t copy_ids(const bt_served_t *served,
                            const bt_api_prompt_t *prompt, const char *name,
                            const char *hint, bt_token_vec_t *out,
                            bt_api_error_t *error)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(served->tok);

    for (size_t i = 0; (i < prompt->n_ids) && (hint != NULL); i++) {
        if (prompt->ids[i] >= n_vocab) {
            return bt_api_error_invalid(
                error, name, "%s has token id %u; this model has ids 0 to %u%s",
                name, prompt->ids[i], n_vocab - 1, hint);
        }
    }
    if (prompt->n_ids == 0) {
        return BT_OK; /* refused as empty later */
    }
    out->ids = bt_memdup(prompt->ids, prompt->n_ids * sizeof(*prompt->ids));
    if (out->ids == NULL) {
        return bt_api_error_no_memory(error);
    }
    out->n = out->cap = prompt->n_ids;
    if (hint == NULL) {
        bt_served_fold_ids(served, out->ids, out->n);
    }
    return BT_OK;
}

/* Checks that the model supports tools, and that its calls can be parsed. */
static bt_status_t check_tools(const bt_served_t *served, bt_api_error_t *error)
{
    if (!served->takes_tools) {
        bt_api_error_set(error, 400, "tools",
                         "tools: the chat template of model %s shows no tools; "
                         "start the server with --chat-template FILE, one that "
                         "does",
                         served->name);
        return BT_ERR_UNSUPPORTED;
    }
    if (served->tools == NULL) {
        bt_api_error_set(error, 400, "tools",
                         "tools: how model %s writes calls is not known from "
                         "its chat template, or off; start the server with "
                         "--tool-call-parser",
                         served->name);
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/* Checks that the request can be rendered. */
static bt_status_t check_chat(const bt_served_t *served,
                              const bt_api_request_t *request,
                              bt_api_error_t *error)
{
    if (served->chat == NULL) {
        bt_api_error_set(error, 400, "messages",
                         "%s; start the server with --chat-template FILE or "
                         "NAME (%s)",
                         served->chat_why, bt_chat_family_names());
        return BT_ERR_UNSUPPORTED;
    }
    return (request->tools.json != NULL) ? check_tools(served, error) : BT_OK;
}

static bt_status_t render_chat(const bt_served_t *served,
                               bt_api_request_t *request, bt_strbuf_t *text,
                               bt_quotes_t *quotes, bt_api_error_t *error)
{
    bt_chat_request_t chat = {.messages_json = request->messages.json,
                              .no_generation_prompt =
                                  request->no_generation_prompt ||
                                  request->continues_final,
                              .documents_json = request->documents_json,
                              .kwargs_json = request->kwargs_json,
                              .tools_json = request->tools.json,
                              .now_s = (int64_t)time(NULL)};
    bt_status_t status = check_chat(served, request, error);
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t unused;

    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_init(&unused, UNUSED_LIMIT);
    chat.unused = &unused;
    status =
        bt_chat_render(served->chat, &chat, text, quotes, why, sizeof(why));
    if ((status == BT_OK) && (unused.len > 0)) {
        bt_api_note_unused(request, unused.data);
    }
    bt_strbuf_fini(&unused);
    if ((status != BT_OK) && (status != BT_ERR_NO_MEMORY)) {
        bt_api_error_set(error, 400, "messages", "messages: %s", why);
        return status;
    }
    return (status == BT_OK) ? BT_OK : bt_api_error_no_memory(error);
}

/* True when these words are in the last message's content, or contain its last
 * part. */
static bool ends_with(const bt_api_messages_t *messages, const char *words,
                      size_t bytes)
{
    const char *part =
        messages->final + messages->final_bytes - messages->final_part_bytes;

    return (memmem(messages->final, messages->final_bytes, words, bytes) !=
            NULL) ||
           ((messages->final_part_bytes < messages->final_bytes) &&
            (messages->final_part_bytes > 0) &&
            (memmem(words, bytes, part, messages->final_part_bytes) != NULL));
}

/* Ends the prompt at the end of the last message's content, so that the answer
 * continues it. The template may have changed the content. */
static bt_status_t cut_behind_final(const bt_api_request_t *request,
                                    bt_strbuf_t *text, bt_quotes_t *quotes,
                                    bt_api_error_t *error)
{
    const bt_quote_t *last =
        (quotes->n > 0) ? &quotes->list[quotes->n - 1] : NULL;

    if ((last == NULL) ||
        !ends_with(&request->messages, text->data + last->begin,
                   last->end - last->begin)) {
        bt_api_error_set(error, 400, "continue_final_message",
                         "continue_final_message: this model's chat template "
                         "does not show the last message's content");
        return BT_ERR_UNSUPPORTED;
    }
    text->len = last->end;
    bt_quotes_cut(quotes, last->end);
    return BT_OK;
}

/* tool_choice: ends the prompt with the beginning of a call, which counts as
 * part of the answer. Reasoning is over then. */
static bt_status_t open_call(const bt_served_t *served,
                             const bt_api_request_t *request, bt_strbuf_t *text,
                             bt_quotes_t *quotes, bt_api_error_t *error)
{
    const bt_reason_marks_t *reason = served->reason;
    const char *forced = request->tools.forced;
    bt_status_t status = BT_OK;
    size_t begin;

    if ((reason != NULL) && (text->len > 0) &&
        bt_reason_is_opened(reason, text->data, text->len)) {
        bt_strbuf_puts(text, "\n");
        bt_strbuf_puts(text, reason->close);
        bt_strbuf_puts(text, "\n\n");
    }
    begin = text->len;
    bt_tool_format_open(served->tools, forced, text);
    if ((forced != NULL) && (bt_strbuf_status(text) == BT_OK)) {
        const char *at = memmem(text->data + begin, text->len - begin, forced,
                                strlen(forced));

        begin = (at != NULL) ? (size_t)(at - text->data) : text->len;
        status = bt_quotes_add(quotes, begin, begin + strlen(forced));
    }
    return ((status == BT_OK) && (bt_strbuf_status(text) == BT_OK))
               ? BT_OK
               : bt_api_error_no_memory(error);
}

static bt_status_t chat_prompt(const bt_served_t *served, uint32_t context,
                               bt_api_request_t *request, bt_token_vec_t *out,
                               bt_api_error_t *error)
{
    bt_quotes_t quotes = {0};
    bt_strbuf_t text;
    bt_status_t status;

    bt_strbuf_init(&text, CHAT_TEXT_LIMIT);
    status = render_chat(served, request, &text, &quotes, error);
    if ((status == BT_OK) && request->continues_final) {
        status = cut_behind_final(request, &text, &quotes, error);
    }
    if ((status == BT_OK) && request->tools.required) {
        status = open_call(served, request, &text, &quotes, error);
    }
    if (status == BT_OK) {
        const prompt_text_t prompt = {.text = (text.len > 0) ? text.data : "",
                                      .bytes = text.len,
                                      .quotes = &quotes,
                                      .name = prompt_name(request)};

        status = tokenize_prompt(served, context, &prompt, out, error);
    }
    bt_quotes_fini(&quotes);
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t one_prompt(const bt_served_t *served, uint32_t context,
                              bt_api_request_t *request, size_t i,
                              bt_token_vec_t *out, bt_api_error_t *error)
{
    const bt_api_prompt_t *prompt;
    prompt_text_t text;

    if (bt_api_is_chat(request)) {
        return chat_prompt(served, context, request, out, error);
    }
    prompt = &request->prompts[i];
    if (prompt->text == NULL) {
        return copy_ids(served, prompt, bt_prepare_names(request).prompt,
                        bt_served_folds_ids(served) ? NULL : FOLD_HINT, out,
                        error);
    }
    text = (prompt_text_t){.text = prompt->text,
                           .bytes = prompt->text_bytes,
                           .flags = (request->no_bos ? 0 : BT_TOK_ADD_BOS) |
                                    BT_TOK_PARSE_SPECIAL,
                           .name = prompt_name(request)};
    return tokenize_prompt(served, context, &text, out, error);
}

/* Releases the unused capacity. */
static void shrink(bt_token_vec_t *tokens)
{
    uint32_t *ids =
        (tokens->n < tokens->cap)
            ? bt_realloc_array(tokens->ids, tokens->n + 1, sizeof(*tokens->ids))
            : NULL;

    if (ids != NULL) {
        tokens->ids = ids;
        tokens->cap = tokens->n + 1;
    }
}

/* Stores the tokens in their final form. */
static bt_status_t hold_prompt(const bt_served_t *served, uint32_t context,
                               bt_api_request_t *request, size_t i,
                               bt_prompt_t **prompt_p, bt_api_error_t *error)
{
    bt_token_vec_t tokens = {0};
    bt_status_t status =
        one_prompt(served, context, request, i, &tokens, error);

    shrink(&tokens);
    if ((status == BT_OK) &&
        (bt_prompt_create(tokens.ids, (uint32_t)tokens.n, prompt_p) != BT_OK)) {
        status = bt_api_error_no_memory(error);
    }
    if (status != BT_OK) {
        bt_free(tokens.ids);
    }
    return status;
}

/* ---- lengths ---- */

static bt_status_t check_length(const bt_served_t *served,
                                const bt_api_request_t *request,
                                uint32_t context, bt_prepared_prompt_t *prompt,
                                bt_api_error_t *error)
{
    const size_t n = prompt->prompt->n;
    const bt_api_names_t names = bt_prepare_names(request);
    const char *name = prompt_name(request);
    char why[WHY_BYTES];
    uint32_t fits;

    if (n == 0) {
        return bt_api_error_invalid(error, name, "%s is empty", name);
    }
    if (request->has_max_tokens && (n + request->max_tokens > context)) {
        bt_api_error_set(error, 400, names.max_tokens,
                         "This model's maximum context length is %u tokens%s. "
                         "However, you requested %zu tokens (%zu in the %s, %u "
                         "in the completion, %s). Please reduce either.",
                         context, why_less(served, context, why),
                         n + request->max_tokens, n, name, request->max_tokens,
                         names.max_tokens);
        error->code = BT_API_CONTEXT_LENGTH;
        return BT_ERR_INVALID_PARAM;
    }
    if (n >= context) {
        bt_api_error_set(error, 400, name,
                         "This model's maximum context length is %u tokens%s. "
                         "However, you requested %zu tokens in the %s, which "
                         "leave no room for a completion. Please reduce its "
                         "length.",
                         context, why_less(served, context, why), n, name);
        error->code = BT_API_CONTEXT_LENGTH;
        return BT_ERR_INVALID_PARAM;
    }
    fits = context - (uint32_t)n;
    prompt->max_new = bt_api_is_chat(request) ? BT_DEFAULT_CHAT_MAX_TOKENS
                                              : BT_DEFAULT_MAX_TOKENS;
    if (request->has_max_tokens) { /* max_tokens 0: one token is generated and
                                      not returned */
        prompt->max_new = (request->max_tokens > 0) ? request->max_tokens : 1;
    }
    if (prompt->max_new > fits) {
        prompt->max_new = fits;
    }
    return BT_OK;
}

/* ---- logits ---- */

static bt_status_t check_logits(const bt_served_t *served,
                                const bt_api_request_t *request,
                                const bt_prepared_prompt_t *prompt,
                                bt_api_error_t *error)
{
    const uint64_t most = served->front->config->max_logits_bytes;
    const uint32_t client_buffer = served->front->config->client_buffer_bytes;
    const uint64_t bytes = bt_gen_rows_logits_bytes(
        &request->wants, prompt->prompt->n, prompt->max_new,
        bt_tokenizer_n_vocab(served->tok));

    const uint64_t fits = (request->whole_logits > 0)
                              ? request->whole_logits
                              : BT_ANSWER_LOGITS / TEXT_OF_LOGITS;
    const char *field = ((request->wants.what & BT_WANT_LOGITS) != 0)
                            ? "return_generation_logits"
                            : "return_context_logits";

    if ((request->stream_logits > 0) && (bytes > request->stream_logits)) {
        bt_api_error_set(error, 400, NULL,
                         "the logits of a row are up to %" PRIu64
                         " bytes, more than the %" PRIu64
                         " that each row of this batch has of the server's "
                         "option client-buffer-bytes (%u); ask "
                         "return_context_logits and return_generation_logits "
                         "of one row alone",
                         bytes, request->stream_logits, client_buffer);
        return BT_ERR_TOO_LARGE;
    }
    if (request->stream && (request->stream_logits == 0) &&
        (bytes > client_buffer / TEXT_OF_LOGITS)) {
        bt_api_error_set(error, 400, "stream",
                         "the logits of this request are too long for the last "
                         "piece of a stream: with up to %u bytes for one of "
                         "theirs, more than the server's option "
                         "client-buffer-bytes (%u)",
                         TEXT_OF_LOGITS, client_buffer);
        return BT_ERR_TOO_LARGE;
    }
    if (bytes > most) {
        bt_api_error_set(error, 400, field,
                         "the logits of this request are %" PRIu64
                         " bytes, more than the %" PRIu64
                         " of the server's option max-logits-bytes",
                         bytes, most);
        return BT_ERR_TOO_LARGE;
    }
    if (!request->stream && (request->stream_logits == 0) && (bytes > fits)) {
        bt_api_error_set(error, 400, field,
                         "the logits of this request are up to %" PRIu64
                         " bytes, and its answer in the form asked for has "
                         "room for %" PRIu64
                         " of them; ask for fewer tokens or rows, or by infer "
                         "with the parameter binary_data",
                         bytes, fits);
        return BT_ERR_TOO_LARGE;
    }
    return BT_OK;
}

/* Bytes of JSON for a log-prob with its token: chat spells each byte of it. */
#define TEXT_OF_CHAT_LOGPROB 128u
#define TEXT_OF_LOGPROB      64u

/* Log-probs are kept until the last token: limits them to what an answer can
 * hold as JSON. */
static bt_status_t check_logprobs(const bt_api_request_t *request,
                                  const bt_prepared_t *p, bt_api_error_t *error)
{
    const uint64_t each =
        (uint64_t)(bt_api_is_chat(request) ? TEXT_OF_CHAT_LOGPROB
                                           : TEXT_OF_LOGPROB) *
        (1 + request->wants.n_top);
    uint64_t n_tokens = 0;

    if ((request->wants.what & BT_WANT_ANY_LOGPROBS) == 0) {
        return BT_OK;
    }
    for (size_t i = 0; i < p->n_prompts; i++) {
        n_tokens += p->prompts[i].max_new;
        n_tokens += request->echo ? p->prompts[i].prompt->n : 0;
    }
    if (n_tokens * request->n * each <= BT_ANSWER_LIMIT) {
        return BT_OK;
    }
    bt_api_error_set(error, 400, "logprobs",
                     "logprobs of %" PRIu64 " tokens with %u alternatives each "
                     "are more than an answer can have; ask for fewer, for "
                     "fewer choices or for a smaller max_tokens",
                     n_tokens * request->n, request->wants.n_top);
    return BT_ERR_TOO_LARGE;
}

/* ---- all ---- */

/* Appends the model's end ids to the client's, as far as there is space. */
static void add_end_ids(const bt_served_t *served, bt_sampling_t *sampling)
{
    uint32_t ids[BT_MAX_END_IDS];
    const uint32_t n = bt_tokenizer_end_ids(served->tok, ids, BT_MAX_END_IDS);

    for (uint32_t i = 0; i < n; i++) {
        bool known = false;

        for (uint32_t k = 0; k < sampling->n_end_ids; k++) {
            known = known || (sampling->end_ids[k] == ids[i]);
        }
        if (!known && (sampling->n_end_ids < BT_MAX_END_IDS)) {
            sampling->end_ids[sampling->n_end_ids++] = ids[i];
        }
    }
}

/* Some model families open the reasoning in the prompt. */
static bt_status_t find_opening(const bt_served_t *served, bt_prepared_t *p,
                                bt_api_error_t *error)
{
    const bt_prompt_t *prompt = p->prompts[0].prompt;
    const uint32_t first =
        (prompt->n > OPENING_TOKENS) ? prompt->n - OPENING_TOKENS : 0;
    bt_strbuf_t text;
    bt_detok_t detok;
    bool ok;

    bt_strbuf_init(&text, CHAT_TEXT_LIMIT);
    bt_detok_init(&detok, served->tok);
    detok.shows_special = true;
    for (uint32_t i = first; i < prompt->n; i++) {
        bt_detok_push(&detok, prompt->tokens[i], &text);
    }
    ok = bt_strbuf_status(&text) == BT_OK;
    p->opens_reasoning =
        ok && (text.len > 0) &&
        bt_reason_is_opened(served->reason, text.data, text.len);
    bt_strbuf_fini(&text);
    return ok ? BT_OK : bt_api_error_no_memory(error);
}

/* Selects the format of tool calls in the answers. */
static bt_status_t find_calls(const bt_served_t *served,
                              const bt_api_request_t *request, bt_prepared_t *p,
                              bt_api_error_t *error)
{
    p->tools = served->tools;
    bt_strbuf_init(&p->tool_opening, CHAT_TEXT_LIMIT);
    if (request->tools.required) {
        bt_tool_format_open(p->tools, request->tools.forced, &p->tool_opening);
    }
    return (bt_strbuf_status(&p->tool_opening) == BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(error);
}

static bt_status_t prepare_prompts(const bt_served_t *served, uint32_t context,
                                   bt_api_request_t *request, bt_prepared_t *p,
                                   bt_api_error_t *error)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < p->n_prompts) && (status == BT_OK); i++) {
        status = hold_prompt(served, context, request, i, &p->prompts[i].prompt,
                             error);
        if (status == BT_OK) {
            status =
                check_length(served, request, context, &p->prompts[i], error);
        }
        if (status == BT_OK) {
            status = check_logits(served, request, &p->prompts[i], error);
        }
    }
    if ((status == BT_OK) && bt_api_is_chat(request) &&
        (served->reason != NULL)) {
        status = find_opening(served, p, error);
    }
    if ((status == BT_OK) && (request->tools.json != NULL)) {
        status = find_calls(served, request, p, error);
    }
    return status;
}

static bt_status_t prepare(const bt_served_t *served, uint32_t context,
                           bt_api_request_t *request, bt_prepared_t *p,
                           bt_api_error_t *error)
{
    bt_status_t status;

    p->n_prompts = bt_api_is_chat(request) ? 1 : request->n_prompts;
    p->prompts = bt_calloc(p->n_prompts + 1, sizeof(*p->prompts));
    if (p->prompts == NULL) {
        return bt_api_error_no_memory(error);
    }
    status = prepare_prompts(served, context, request, p, error);
    if (status != BT_OK) {
        return status;
    }
    p->sampling = request->sampling;
    if (request->dialect != BT_API_GENERATE) {
        bt_sampling_defaults_apply(&served->sampling, request->given,
                                   &p->sampling);
    }
    status = check_logprobs(request, p, error);
    if (status == BT_OK) {
        status = bt_prepare_check_biases(
            served, &p->sampling, bt_prepare_names(request).biases, error);
    }
    if (status == BT_OK) {
        status = bt_prepare_bias_words(served, request, p, error);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!request->ignore_eos) {
        add_end_ids(served, &p->sampling);
    }
    if (!request->has_seed &&
        (getrandom(&p->sampling.seed, sizeof(p->sampling.seed), 0) < 0)) {
        bt_api_error_set(error, 500, NULL, "no random numbers from the system");
        return BT_ERR_IO;
    }
    if (request->cache_salt != NULL) {
        p->space =
            bt_space_of_salt(served->front->space_key, request->cache_salt);
    }
    return bt_prepare_bad_words(served, request, p, error);
}

/* ---- tokens alone ---- */

static bt_status_t detokenize(const bt_served_t *served,
                              const bt_api_request_t *request, bt_prepared_t *p,
                              bt_api_error_t *error)
{
    const bt_status_t status =
        copy_ids(served, &request->prompts[0], "tokens", "", &p->tokens, error);
    bt_detok_t detok;
    unsigned steps = 0;

    bt_strbuf_init(&p->text, BT_ANSWER_LIMIT);
    if (status != BT_OK) {
        return status;
    }
    bt_detok_init(&detok, served->tok);
    detok.shows_special = true;
    for (size_t i = 0; i < p->tokens.n; i++) {
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        bt_detok_push(&detok, p->tokens.ids[i], &p->text);
    }
    bt_detok_finish(&detok, &p->text);
    return (bt_strbuf_status(&p->text) == BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(error);
}

static bt_status_t prepare_any(const bt_served_t *served, uint32_t context,
                               bt_api_request_t *request, bt_prepared_t *p,
                               bt_api_error_t *error)
{
    switch (request->dialect) {
    case BT_API_TOKENIZE: /* no answer has to fit behind it */
        return one_prompt(served, BT_WIRE_MAX_TOKENS, request, 0, &p->tokens,
                          error);
    case BT_API_DETOKENIZE:
        return detokenize(served, request, p, error);
    default:
        return prepare(served, context, request, p, error);
    }
}

bt_status_t bt_prepare(const bt_served_t *served, uint32_t context_tokens,
                       bt_api_request_t *request, bt_prepared_t *prepared_p,
                       bt_api_error_t *error_p)
{
    bt_prepared_t made = {0};
    const bt_status_t status =
        prepare_any(served, context_tokens, request, &made, error_p);

    if (status != BT_OK) {
        bt_prepared_fini(&made);
        return status;
    }
    *prepared_p = made;
    return BT_OK;
}

void bt_prepared_fini(bt_prepared_t *prepared)
{
    for (size_t i = 0; (prepared->prompts != NULL) && (i < prepared->n_prompts);
         i++) {
        bt_prompt_unref(prepared->prompts[i].prompt);
    }
    bt_free(prepared->prompts);
    bt_free(prepared->bad_words);
    bt_free(prepared->biases);
    bt_free(prepared->tokens.ids);
    bt_strbuf_fini(&prepared->text);
    bt_strbuf_fini(&prepared->tool_opening);
    memset(prepared, 0, sizeof(*prepared));
}
