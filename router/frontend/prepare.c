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
#include "router/text/tools_grammar.h"

#define CHAT_TEXT_LIMIT (64u << 20)
#define UNUSED_LIMIT    4096u /* names of ignored members */
#define EFFORT_BYTES    128u  /* variables of reasoning_effort */
#define OPENING_TOKENS  32u   /* more than a mark at a prompt's end takes */

#define WHY_BYTES        128
#define COUNTED_CONTEXTS 4u /* beyond: a lower bound */
/* Bytes of JSON for a byte of logits: "-1.17549435e-38," for four at most. */
#define TEXT_OF_LOGITS 4u

/* Returns why the context is less than the model's, if it is. */
static const char *why_less(bt_prepare_t *w, char why[WHY_BYTES])
{
    why[0] = '\0';
    if (w->context < w->served->context_tokens) {
        snprintf(why, WHY_BYTES,
                 " (the model has %u; the workers' kv-memory or "
                 "max-seq-len allow fewer)",
                 w->served->context_tokens);
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
static bt_status_t explain_tokenized(uint32_t most, bt_status_t status,
                                     const char *param, bt_api_error_t *error)
{
    switch (status) {
    case BT_OK:
        return BT_OK;
    case BT_ERR_INVALID_PARAM:
        return bt_api_error_invalid(error, param, "%s is not valid UTF-8",
                                    param);
    case BT_ERR_TOO_LARGE:
        return bt_api_error_invalid(error, param, "%s has more than %u tokens",
                                    param, most);
    default:
        return bt_api_error_no_memory(error);
    }
}

/* Stops as soon as a text is known to be too long. */
bt_status_t bt_prepare_tokenize(bt_prepare_t *w, uint32_t most,
                                const char *text, size_t bytes, unsigned flags,
                                const char *param, bt_token_vec_t *out)
{
    return explain_tokenized(
        most, bt_tokenize(w->served->tok, text, bytes, flags, most, out), param,
        w->error);
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
static bt_status_t refuse_length(bt_prepare_t *w, const prompt_text_t *prompt)
{
    const size_t most = (size_t)w->context * COUNTED_CONTEXTS;
    bt_token_vec_t tokens = {0};
    const bt_status_t status = tokenize_text(w->served, prompt, most, &tokens);
    const bool more = status == BT_ERR_TOO_LARGE;
    char why[WHY_BYTES];

    if ((status != BT_OK) && !more) {
        return bt_api_error_no_memory(w->error);
    }
    bt_api_error_set(w->error, 400, prompt->name,
                     "This model's maximum context length is %u tokens%s. "
                     "However, you requested %s%zu tokens in the %s. Please "
                     "reduce its length.",
                     w->context, why_less(w, why), more ? "more than " : "",
                     more ? most : tokens.n, prompt->name);
    w->error->code = BT_API_CONTEXT_LENGTH;
    bt_free(tokens.ids);
    return BT_ERR_TOO_LARGE;
}

static bt_status_t tokenize_prompt(bt_prepare_t *w, const prompt_text_t *prompt,
                                   bt_token_vec_t *out)
{
    const bt_status_t status =
        tokenize_text(w->served, prompt, w->context, out);

    /* tokenize allows more, for no answer has to fit. */
    if ((status == BT_ERR_TOO_LARGE) &&
        (w->context <= w->served->context_tokens)) {
        return refuse_length(w, prompt);
    }
    return explain_tokenized(w->context, status, prompt->name, w->error);
}

#define FOLD_HINT " (--out-of-vocabulary-ids modulo takes others)"

/* Checks that the model's calls can be parsed, and that it is shown tools. */
static bt_status_t check_tools(bt_prepare_t *w)
{
    if (w->served->tools == NULL) {
        return bt_api_error_invalid(
            w->error, "tools",
            "tools: calls of model %s are not parsed; start the server without "
            "--tool-call-parser off",
            w->served->name);
    }
    if (!w->served->shows_tools && !w->served->tools_as_text) {
        return bt_api_error_invalid(
            w->error, "tools",
            "tools: the chat template of model %s shows no tools, and their "
            "text in the messages asks for calls of hermes; start the server "
            "with --tool-call-parser auto, or with --chat-template FILE, one "
            "that shows them",
            w->served->name);
    }
    if (w->request->tools.needs_grammar &&
        !bt_tool_format_has_grammar(w->served->tools)) {
        return bt_api_error_invalid(
            w->error, "tools",
            "tools: allowed_tools and custom tools are not supported with "
            "calls as model %s writes them",
            w->served->name);
    }
    return BT_OK;
}

/* Checks that the request can be rendered. */
static bt_status_t check_chat(bt_prepare_t *w)
{
    if (w->served->chat == NULL) {
        return bt_api_error_invalid(
            w->error, "messages",
            "%s; start the server with --chat-template FILE or "
            "NAME (%s)",
            w->served->chat_why, bt_chat_family_names());
    }
    return (w->request->tools.json != NULL) ? check_tools(w) : BT_OK;
}

/* Returns the field that asks for an effort. */
static const char *effort_field(const bt_api_request_t *request)
{
    switch (request->dialect) {
    case BT_API_RESPONSES:
        return "reasoning.effort\n";
    case BT_API_ANTHROPIC:
    case BT_API_ANTHROPIC_COUNT:
        return "output_config.effort\n";
    case BT_API_OLLAMA_CHAT:
    case BT_API_OLLAMA_GENERATE:
        return "think\n";
    default:
        return "reasoning_effort\n";
    }
}

/* Writes the variables by which chat templates know whether and how much to
 * think: Qwen's and GLM's, DeepSeek's and Granite's, gpt-oss'. An effort of
 * which a template knows nothing is reported to the client. */
static void write_thinking(bt_prepare_t *w, bt_strbuf_t *out)
{
    static const char *const flags[] = {"enable_thinking", "thinking"};
    static const char name[] = "reasoning_effort";
    const bt_api_request_t *request = w->request;
    const bool tools =
        (request->tools.json != NULL) && !w->served->tools_as_text;
    const bool has_flag = request->thinking != BT_API_THINKING_DEFAULT;
    const bool is_on = has_flag ? (request->thinking == BT_API_THINKING_ON)
                                : (strcmp(request->effort, "none") != 0);
    uint32_t n = 0;
    bool shows_effort = request->effort == NULL;
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    for (size_t i = 0; i < BT_ARRAY_LEN(flags); i++) {
        if (bt_chat_template_has_name(w->served->chat, tools, flags[i])) {
            bt_json_bool(&json, flags[i], is_on);
            shows_effort = shows_effort || !has_flag;
            n++;
        }
    }
    if ((request->effort != NULL) &&
        bt_chat_template_has_name(w->served->chat, tools, name)) {
        bt_json_str(&json, name, request->effort);
        shows_effort = true;
        n++;
    }
    bt_json_end_object(&json);
    if (n == 0) {
        bt_strbuf_reset(out);
    }
    if (!shows_effort) {
        bt_api_note_unused(w->request, effort_field(request));
    }
}

static bt_status_t render_chat(bt_prepare_t *w, bt_strbuf_t *text,
                               bt_quotes_t *quotes)
{
    bt_chat_request_t chat = {.messages_json = w->request->messages.json,
                              .no_generation_prompt =
                                  w->request->no_generation_prompt ||
                                  w->request->continues_final,
                              .documents_json = w->request->documents_json,
                              .kwargs_json = w->request->kwargs_json,
                              .tools_json = w->request->tools.json,
                              .tools_as_text = w->served->tools_as_text,
                              .now_s = (int64_t)time(NULL)};
    bt_status_t status = check_chat(w);
    char why[BT_CHAT_WHY_BYTES], variables[EFFORT_BYTES];
    bt_strbuf_t unused, effort;

    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_init(&unused, UNUSED_LIMIT);
    bt_strbuf_init_fixed(&effort, variables, sizeof(variables));
    chat.unused = &unused;
    if ((w->request->effort != NULL) ||
        (w->request->thinking != BT_API_THINKING_DEFAULT)) {
        write_thinking(w, &effort);
        chat.defaults_json = (effort.len > 0) ? effort.data : NULL;
    }
    status =
        bt_chat_render(w->served->chat, &chat, text, quotes, why, sizeof(why));
    if ((status == BT_OK) && (unused.len > 0)) {
        bt_api_note_unused(w->request, unused.data);
    }
    bt_strbuf_fini(&unused);
    if (status == BT_ERR_CANCELED) {
        return status;
    }
    if ((status != BT_OK) && (status != BT_ERR_NO_MEMORY)) {
        return bt_api_error_invalid(w->error, "messages", "messages: %s", why);
    }
    return (status == BT_OK) ? BT_OK : bt_api_error_no_memory(w->error);
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
static bt_status_t cut_behind_final(bt_prepare_t *w, bt_strbuf_t *text,
                                    bt_quotes_t *quotes)
{
    const bt_quote_t *last =
        (quotes->n > 0) ? &quotes->list[quotes->n - 1] : NULL;

    if ((last == NULL) ||
        !ends_with(&w->request->messages, text->data + last->begin,
                   last->end - last->begin)) {
        return bt_api_error_invalid(
            w->error, "continue_final_message",
            "continue_final_message: this model's chat template "
            "does not show the last message's content");
    }
    text->len = last->end;
    bt_quotes_cut(quotes, last->end);
    return BT_OK;
}

/* tool_choice: ends the prompt with the beginning of a call, which counts as
 * part of the answer. Reasoning is over then. */
static bt_status_t open_call(bt_prepare_t *w, bt_strbuf_t *text,
                             bt_quotes_t *quotes)
{
    const bt_reason_marks_t *reason = w->served->reason;
    const char *forced = w->request->tools.forced;
    bt_status_t status = BT_OK;
    size_t begin;

    if ((reason != NULL) && (text->len > 0) &&
        bt_reason_is_opened(reason, text->data, text->len)) {
        bt_reason_put_end(reason, text);
    }
    begin = bt_tool_format_open(w->served->tools, forced, text);
    if ((forced != NULL) && (bt_strbuf_status(text) == BT_OK)) {
        status = bt_quotes_add(quotes, begin, begin + strlen(forced));
    }
    return ((status == BT_OK) && (bt_strbuf_status(text) == BT_OK))
               ? BT_OK
               : bt_api_error_no_memory(w->error);
}

static bt_status_t chat_prompt(bt_prepare_t *w, bt_token_vec_t *out)
{
    bt_quotes_t quotes = {0};
    bt_strbuf_t text;
    bt_status_t status;

    bt_strbuf_init(&text, CHAT_TEXT_LIMIT);
    status = render_chat(w, &text, &quotes);
    if ((status == BT_OK) && w->request->continues_final) {
        status = cut_behind_final(w, &text, &quotes);
    }
    if ((status == BT_OK) && w->request->tools.required) {
        status = open_call(w, &text, &quotes);
    }
    if (status == BT_OK) {
        const prompt_text_t prompt = {.text = (text.len > 0) ? text.data : "",
                                      .bytes = text.len,
                                      .quotes = &quotes,
                                      .name = prompt_name(w->request)};

        status = tokenize_prompt(w, &prompt, out);
    }
    bt_quotes_fini(&quotes);
    bt_strbuf_fini(&text);
    return status;
}

static bt_status_t one_prompt(bt_prepare_t *w, size_t i, bt_token_vec_t *out)
{
    const bt_api_prompt_t *prompt;
    prompt_text_t text;

    if (bt_api_is_chat(w->request)) {
        return chat_prompt(w, out);
    }
    prompt = &w->request->prompts[i];
    if (prompt->text == NULL) {
        return bt_prepare_ids(w, prompt, bt_prepare_names(w->request).prompt,
                              bt_served_folds_ids(w->served) ? NULL : FOLD_HINT,
                              out);
    }
    text = (prompt_text_t){.text = prompt->text,
                           .bytes = prompt->text_bytes,
                           .flags = (w->request->no_bos ? 0 : BT_TOK_ADD_BOS) |
                                    BT_TOK_PARSE_SPECIAL,
                           .name = prompt_name(w->request)};
    return tokenize_prompt(w, &text, out);
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
static bt_status_t hold_prompt(bt_prepare_t *w, size_t i,
                               bt_prompt_t **prompt_p)
{
    bt_token_vec_t tokens = {0};
    bt_status_t status = one_prompt(w, i, &tokens);

    shrink(&tokens);
    if ((status == BT_OK) &&
        (bt_prompt_create(tokens.ids, (uint32_t)tokens.n, prompt_p) != BT_OK)) {
        status = bt_api_error_no_memory(w->error);
    }
    if (status == BT_OK) {
        bt_prepare_hold_table(w->request, *prompt_p);
    }
    if (status != BT_OK) {
        bt_free(tokens.ids);
    }
    return status;
}

/* Makes the ids of the answer that the client expects. Ids that are not of the
 * vocabulary are never drawn: a drafter ignores them. */
static bt_status_t expected_ids(bt_prepare_t *w, bt_token_vec_t *out)
{
    const bt_api_request_t *request = w->request;
    const size_t n =
        (request->n_draft_ids < w->context) ? request->n_draft_ids : w->context;

    if (request->n_draft_ids == 0) {
        return (request->draft_text == NULL)
                   ? BT_OK
                   : bt_prepare_tokenize(w, w->context, request->draft_text,
                                         request->draft_text_bytes, 0,
                                         "prediction", out);
    }
    out->ids = bt_memdup(request->draft_ids, n * sizeof(*out->ids));
    out->n = out->cap = n;
    return (out->ids != NULL) ? BT_OK : bt_api_error_no_memory(w->error);
}

/* Gives each prompt the answer that the client expects. */
static bt_status_t add_drafts(bt_prepare_t *w)
{
    bt_token_vec_t tokens = {0};
    bt_status_t status = expected_ids(w, &tokens);

    for (size_t i = 0;
         (i < w->out->n_prompts) && (status == BT_OK) && (tokens.n > 0); i++) {
        bt_prompt_t *prompt = w->out->prompts[i].prompt;

        prompt->draft_ids = bt_memdup(tokens.ids, tokens.n * sizeof(uint32_t));
        prompt->n_draft_ids =
            (prompt->draft_ids != NULL) ? (uint32_t)tokens.n : 0;
        status = (prompt->draft_ids != NULL) ? BT_OK
                                             : bt_api_error_no_memory(w->error);
    }
    bt_free(tokens.ids);
    return status;
}

/* ---- lengths ---- */

static bt_status_t check_length(bt_prepare_t *w, bt_prepared_prompt_t *prompt)
{
    const size_t n = prompt->prompt->n;
    const bt_api_names_t names = bt_prepare_names(w->request);
    const char *name = prompt_name(w->request);
    char why[WHY_BYTES];
    uint32_t fits;

    if (n == 0) {
        return bt_api_error_invalid(w->error, name, "%s is empty", name);
    }
    if (w->request->has_max_tokens &&
        (n + w->request->max_tokens > w->context)) {
        bt_api_error_set(w->error, 400, names.max_tokens,
                         "This model's maximum context length is %u tokens%s. "
                         "However, you requested %zu tokens (%zu in the %s, %u "
                         "in the completion, %s). Please reduce either.",
                         w->context, why_less(w, why),
                         n + w->request->max_tokens, n, name,
                         w->request->max_tokens, names.max_tokens);
        w->error->code = BT_API_CONTEXT_LENGTH;
        return BT_ERR_INVALID_PARAM;
    }
    if (n >= w->context) {
        bt_api_error_set(w->error, 400, name,
                         "This model's maximum context length is %u tokens%s. "
                         "However, you requested %zu tokens in the %s, which "
                         "leave no room for a completion. Please reduce its "
                         "length.",
                         w->context, why_less(w, why), n, name);
        w->error->code = BT_API_CONTEXT_LENGTH;
        return BT_ERR_INVALID_PARAM;
    }
    fits = w->context - (uint32_t)n;
    prompt->max_new = (bt_api_is_chat(w->request) ||
                       (w->request->dialect == BT_API_GENERATE_TOKENS))
                          ? BT_DEFAULT_CHAT_MAX_TOKENS
                          : BT_DEFAULT_MAX_TOKENS;
    if (w->request->fills_context) {
        prompt->max_new = fits;
    }
    if (w->request->has_max_tokens) { /* max_tokens 0: one token is generated
                                      and not returned */
        prompt->max_new =
            (w->request->max_tokens > 0) ? w->request->max_tokens : 1;
    }
    if (prompt->max_new > fits) {
        prompt->max_new = fits;
    }
    return BT_OK;
}

/* ---- logits ---- */

static bt_status_t check_logits(bt_prepare_t *w,
                                const bt_prepared_prompt_t *prompt)
{
    const uint64_t most = w->served->front->config->max_logits_bytes;
    const uint32_t client_buffer =
        w->served->front->config->client_buffer_bytes;
    const uint64_t bytes = bt_gen_rows_logits_bytes(
        &w->request->wants, prompt->prompt->n, prompt->max_new,
        bt_tokenizer_n_vocab(w->served->tok));

    const uint64_t fits = (w->request->whole_logits > 0)
                              ? w->request->whole_logits
                              : BT_ANSWER_LOGITS / TEXT_OF_LOGITS;
    const char *field = ((w->request->wants.what & BT_WANT_LOGITS) != 0)
                            ? "return_generation_logits"
                            : "return_context_logits";

    if ((w->request->stream_logits > 0) &&
        (bytes > w->request->stream_logits)) {
        return bt_api_error_invalid(
            w->error, NULL,
            "the logits of a row are up to %" PRIu64
            " bytes, more than the %" PRIu64
            " that each row of this batch has of the server's "
            "option client-buffer-bytes (%u); ask "
            "return_context_logits and return_generation_logits "
            "of one row alone",
            bytes, w->request->stream_logits, client_buffer);
    }
    if (w->request->stream && (w->request->stream_logits == 0) &&
        (bytes > client_buffer / TEXT_OF_LOGITS)) {
        return bt_api_error_invalid(
            w->error, "stream",
            "the logits of this request are too long for the last "
            "piece of a stream: with up to %u bytes for one of "
            "theirs, more than the server's option "
            "client-buffer-bytes (%u)",
            TEXT_OF_LOGITS, client_buffer);
    }
    if (bytes > most) {
        return bt_api_error_invalid(w->error, field,
                                    "the logits of this request are %" PRIu64
                                    " bytes, more than the %" PRIu64
                                    " of the server's option max-logits-bytes",
                                    bytes, most);
    }
    if (!w->request->stream && (w->request->stream_logits == 0) &&
        (bytes > fits)) {
        return bt_api_error_invalid(
            w->error, field,
            "the logits of this request are up to %" PRIu64
            " bytes, and its answer in the form asked for has "
            "room for %" PRIu64
            " of them; ask for fewer tokens or rows, or by infer "
            "with the parameter binary_data",
            bytes, fits);
    }
    return BT_OK;
}

/* Bytes of JSON for a log-prob with its token: chat spells each byte of it. */
#define TEXT_OF_CHAT_LOGPROB 128u
#define TEXT_OF_LOGPROB      64u

/* Log-probs are kept until the last token: limits them to what an answer can
 * hold as JSON. */
static bt_status_t check_logprobs(bt_prepare_t *w)
{
    const bool of_prompt = w->request->has_prompt_logprobs;
    const bool is_long = bt_api_is_chat(w->request) || of_prompt ||
                         (w->request->dialect == BT_API_GENERATE_TOKENS);
    const uint64_t each =
        (uint64_t)(is_long ? TEXT_OF_CHAT_LOGPROB : TEXT_OF_LOGPROB) *
        (1 + w->request->wants.n_top);
    const char *name = of_prompt ? "prompt_logprobs" : "logprobs";
    uint64_t n_tokens = 0;

    if ((w->request->wants.what & BT_WANT_ANY_LOGPROBS) == 0) {
        return BT_OK;
    }
    for (size_t i = 0; i < w->out->n_prompts; i++) {
        n_tokens += w->out->prompts[i].max_new;
        n_tokens += w->request->echo ? w->out->prompts[i].prompt->n : 0;
        n_tokens += of_prompt ? w->out->prompts[i].prompt->n : 0;
    }
    if (n_tokens * w->request->n * each <= BT_ANSWER_LIMIT) {
        return BT_OK;
    }
    return bt_api_error_invalid(
        w->error, name,
        "%s of %" PRIu64 " tokens with %u alternatives each "
        "are more than an answer can have; ask for fewer, for "
        "fewer choices or for a smaller max_tokens",
        name, n_tokens * w->request->n, w->request->wants.n_top);
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
static bt_status_t find_opening(bt_prepare_t *w)
{
    const bt_prompt_t *prompt = w->out->prompts[0].prompt;
    const uint32_t first =
        (prompt->n > OPENING_TOKENS) ? prompt->n - OPENING_TOKENS : 0;
    bt_strbuf_t text;
    bt_detok_t detok;
    bool ok;

    bt_strbuf_init(&text, CHAT_TEXT_LIMIT);
    bt_detok_init(&detok, w->served->tok);
    detok.shows_special = true;
    for (uint32_t i = first; i < prompt->n; i++) {
        bt_detok_push(&detok, prompt->tokens[i], &text);
    }
    ok = bt_strbuf_status(&text) == BT_OK;
    w->out->opens_reasoning =
        ok && (text.len > 0) &&
        bt_reason_is_opened(w->served->reason, text.data, text.len);
    w->out->may_reason =
        ok && !w->out->opens_reasoning && !w->request->continues_final &&
        !w->request->tools.required && (text.len > 0) &&
        !bt_reason_is_closed(w->served->reason, text.data, text.len);
    bt_strbuf_fini(&text);
    return ok ? BT_OK : bt_api_error_no_memory(w->error);
}

/* Selects the format of tool calls in the answers. */
static bt_status_t find_calls(bt_prepare_t *w)
{
    w->out->tools = w->served->tools;
    if (w->request->tools.strict &&
        !bt_tool_format_has_grammar(w->served->tools)) {
        bt_api_note_unused(w->request, "tools.function.strict\n");
    }
    bt_strbuf_init(&w->out->tool_opening, CHAT_TEXT_LIMIT);
    if (w->request->tools.required) {
        (void)bt_tool_format_open(w->out->tools, w->request->tools.forced,
                                  &w->out->tool_opening);
    }
    return (bt_strbuf_status(&w->out->tool_opening) == BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(w->error);
}

static bt_status_t prepare_prompts(bt_prepare_t *w)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < w->out->n_prompts) && (status == BT_OK); i++) {
        status = hold_prompt(w, i, &w->out->prompts[i].prompt);
        if (status == BT_OK) {
            status = check_length(w, &w->out->prompts[i]);
            w->out->prompts[i].n_penalized =
                bt_prepare_penalized(w->request, w->out->prompts[i].prompt->n);
        }
        if (status == BT_OK) {
            status = check_logits(w, &w->out->prompts[i]);
        }
    }
    if (status == BT_OK) {
        status = add_drafts(w);
    }
    if ((status == BT_OK) && bt_api_is_chat(w->request) &&
        (w->served->reason != NULL)) {
        status = find_opening(w);
    }
    if ((status == BT_OK) && (w->request->tools.json != NULL)) {
        status = find_calls(w);
    }
    return status;
}

/* Clients of Anthropic and Ollama ask any model to think: one that cannot
 * answers without, and says so; of an effort of Ollama's write_thinking() does.
 */
static void settle_thinking(bt_prepare_t *w)
{
    const bool is_ollama = bt_api_is_ollama(w->request->dialect);

    if ((w->request->thinking == BT_API_THINKING_ON) &&
        (w->served->reason == NULL)) {
        w->request->thinking_budget = -1;
        if (!is_ollama || (w->request->effort == NULL)) {
            bt_api_note_unused(w->request,
                               is_ollama ? "think\n" : "thinking\n");
        }
    }
}

static bt_status_t prepare(bt_prepare_t *w)
{
    bt_status_t status;

    settle_thinking(w);
    w->out->n_prompts = bt_api_is_chat(w->request) ? 1 : w->request->n_prompts;
    w->out->prompts =
        bt_calloc(w->out->n_prompts + 1, sizeof(*w->out->prompts));
    if (w->out->prompts == NULL) {
        return bt_api_error_no_memory(w->error);
    }
    status = prepare_prompts(w);
    if (status != BT_OK) {
        return status;
    }
    w->out->sampling = w->request->sampling;
    if (w->request->dialect != BT_API_GENERATE) {
        bt_sampling_defaults_apply(&w->served->sampling, w->request->given,
                                   &w->out->sampling);
    }
    status = check_logprobs(w);
    if (status == BT_OK) {
        status = bt_prepare_check_biases(w, &w->out->sampling,
                                         bt_prepare_names(w->request).biases);
    }
    if (status == BT_OK) {
        status = bt_prepare_bias_words(w);
    }
    if (status == BT_OK) {
        status = bt_prepare_processors(w);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!w->request->ignore_eos ||
        bt_prepare_has_grammar(w->served, w->request)) {
        add_end_ids(w->served, &w->out->sampling);
    }
    if (!w->request->has_seed &&
        (getrandom(&w->out->sampling.seed, sizeof(w->out->sampling.seed), 0) <
         0)) {
        bt_api_error_set(w->error, 500, NULL,
                         "no random numbers from the system");
        return BT_ERR_IO;
    }
    return bt_prepare_bad_words(w);
}

/* ---- tokens alone ---- */

static bt_status_t detokenize(bt_prepare_t *w)
{
    const bt_status_t status = bt_prepare_ids(w, &w->request->prompts[0],
                                              "tokens", "", &w->out->tokens);
    bt_detok_t detok;
    unsigned steps = 0;

    bt_strbuf_init(&w->out->text, BT_ANSWER_LIMIT);
    if (status != BT_OK) {
        return status;
    }
    bt_detok_init(&detok, w->served->tok);
    detok.shows_special = true;
    for (size_t i = 0; i < w->out->tokens.n; i++) {
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        bt_detok_push(&detok, w->out->tokens.ids[i], &w->out->text);
    }
    bt_detok_finish(&detok, &w->out->text);
    return (bt_strbuf_status(&w->out->text) == BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(w->error);
}

bt_status_t bt_prepare(const bt_served_t *served, uint32_t context_tokens,
                       bt_api_request_t *request, bt_prepared_t *prepared_p,
                       bt_api_error_t *error_p)
{
    bt_prepared_t made = {0};
    bt_prepare_t w = {.served = served,
                      .context = context_tokens,
                      .request = request,
                      .out = &made,
                      .error = error_p};
    bt_status_t status;

    switch (request->counts_only ? BT_API_TOKENIZE : request->dialect) {
    case BT_API_TOKENIZE: /* no answer has to fit behind it */
    case BT_API_ANTHROPIC_COUNT:
        w.context = BT_WIRE_MAX_TOKENS;
        status = one_prompt(&w, 0, &made.tokens);
        break;
    case BT_API_DETOKENIZE:
        status = detokenize(&w);
        break;
    default:
        status = prepare(&w);
        break;
    }
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
