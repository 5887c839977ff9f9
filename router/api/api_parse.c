/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/api_priv.h"
#include "router/api/sampling.h"

void bt_api_request_fini(bt_api_request_t *request)
{
    if (request == NULL) {
        return;
    }
    bt_api_prompts_fini(request);
    for (uint32_t i = 0; i < request->n_stops; i++) {
        bt_free(request->stops[i]);
    }
    for (uint32_t i = 0; i < request->n_bad_words; i++) {
        bt_free(request->bad_words[i]);
    }
    for (uint32_t i = 0; i < request->n_bias_words; i++) {
        bt_free(request->bias_words[i].text);
    }
    bt_free(request->bias_words);
    bt_free(request->bad_ids);
    bt_free(request->stop_ids);
    bt_free(request->model);
    bt_free(request->id);
    bt_free(request->cache_salt);
    bt_free(request->draft_text);
    bt_free(request->draft_ids);
    bt_api_processors_fini(request);
    bt_free(request->effort);
    bt_free(request->instructions);
    bt_free(request->tools_json);
    bt_free(request->choice_json);
    bt_free(request->metadata_json);
    bt_free(request->previous_id);
    bt_free(request->input_json);
    bt_free(request->documents_json);
    bt_free(request->kwargs_json);
    bt_api_tools_fini(&request->tools);
    bt_api_grammar_fini(&request->grammar);
    bt_prompt_table_unref(request->table.rows);
    bt_free(request->table.extra_ids);
    bt_free(request->lora.tensors);
    bt_free(request->logit_biases);
    memset(request, 0, sizeof(*request));
}

#define NAME_BYTES 96 /* reported name with its path */

/* Returns BT_API_G ... of a dialect. */
static uint32_t dialect_bit(bt_api_dialect_t dialect)
{
    static const uint32_t bits[] = {
        [BT_API_GENERATE] = BT_API_G,
        [BT_API_COMPLETIONS] = BT_API_C,
        [BT_API_CHAT] = BT_API_H,
        [BT_API_TOKENIZE] = BT_API_T,
        [BT_API_DETOKENIZE] = BT_API_D,
        [BT_API_RESPONSES] = BT_API_R,
        [BT_API_ANTHROPIC] = BT_API_M,
        [BT_API_ANTHROPIC_COUNT] = BT_API_M,
        [BT_API_GENERATE_TOKENS] = BT_API_I,
        [BT_API_OLLAMA_CHAT] = BT_API_LC,
        [BT_API_OLLAMA_GENERATE] = BT_API_LG,
    };

    return bits[dialect];
}

/* Notes a member of an object as ignored. path: prefix of the key. */
static void note_at(bt_api_request_t *request, const char *path,
                    const bt_json_node_t *key)
{
    char name[2 * NAME_BYTES];
    size_t n = strlen(path);

    memcpy(name, path, n);
    for (uint32_t i = 0; (i < key->len) && (n < sizeof(name)); i++) {
        name[n++] = key->text[i];
    }
    bt_api_note_unknown(request, name, n);
}

bt_status_t bt_api_read_fields(bt_api_parse_t *parse, uint32_t dialect,
                               const char *path, const bt_json_node_t *object)
{
    const bool generate = (dialect == BT_API_G);
    const bt_json_node_t *key = bt_json_first(object);

    for (uint32_t i = 0; i < object->n;
         i++, key = bt_json_next(parse->doc, key + 1)) {
        const bt_api_field_t *field =
            bt_api_find_field(dialect, key->text, key->len);
        const bt_json_node_t *given = key + 1;
        bt_status_t status;

        if (!bt_json_counts(key)) {
            continue;
        }
        if (field == NULL) {
            note_at(parse->request, path, key);
            continue;
        }
        /* Triton's tensors of one element, also of shape [1, 1]. */
        for (int k = 0;
             generate && (k < 2) && (bt_json_size(given, BT_JSON_ARRAY) == 1);
             k++) {
            given = bt_json_first(given);
        }
        if (given->kind == BT_JSON_NULL) {
            continue;
        }
        status = field->read(parse, field, given);
        if (status != BT_OK) {
            return status;
        }
    }
    return BT_OK;
}

static bt_status_t check_choices(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    const uint32_t n = (request->best_of != 0) ? request->best_of : request->n;

    if (request->beams.is_on) { /* whose answers come in order */
        return BT_OK;
    }
    if (request->n_prompts * n > BT_API_MAX_PROMPTS) {
        return bt_api_refuse(parse, (request->best_of != 0) ? "best_of" : "n",
                             "%zu prompts times %s %u are more than %d choices",
                             request->n_prompts,
                             (request->best_of != 0) ? "best_of" : "n", n,
                             BT_API_MAX_PROMPTS);
    }
    if (n == request->n) {
        return BT_OK;
    }
    if (n < request->n) {
        return bt_api_refuse(parse, "best_of", "best_of %u is below n %u", n,
                             request->n);
    }
    if (request->stream) {
        return bt_api_refuse(parse, "best_of",
                             "best_of above n cannot be streamed: which are "
                             "the best is known at the end");
    }
    /* best_of ranks choices by their tokens' log-probs. */
    request->hides_logprobs = (request->wants.what & BT_WANT_LOGPROBS) == 0;
    request->wants.what |= BT_WANT_LOGPROBS;
    request->n_returned = request->n;
    request->n = n;
    return BT_OK;
}

/* Checks log-probs and echo. */
static bt_status_t check_rows(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    const bool wants = (request->wants.what & BT_WANT_LOGPROBS) != 0;

    if (request->has_max_tokens && (request->max_tokens == 0) &&
        !request->echo) {
        return bt_api_refuse(parse, "max_tokens",
                             "max_tokens must be from 1 to %d, got 0 (0 is "
                             "for a prompt with echo)",
                             INT32_MAX);
    }
    if ((request->wants.n_top > 0) && !wants) {
        return bt_api_refuse(parse, "top_logprobs",
                             "top_logprobs needs logprobs to be true");
    }
    if (request->echo && wants) {
        request->wants.what |= BT_WANT_PROMPT_LOGPROBS;
    }
    return bt_api_check_prompt_logprobs(parse);
}

/* Checks continue_final_message: is there a message to continue? */
static bt_status_t check_continued(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;

    if (((request->given & BT_GIVEN_GENERATION_PROMPT) != 0) &&
        !request->no_generation_prompt) {
        return bt_api_refuse(parse, "continue_final_message",
                             "continue_final_message and add_generation_prompt "
                             "cannot both be true");
    }
    if (request->messages.final == NULL) {
        return bt_api_refuse(parse, "continue_final_message",
                             "continue_final_message needs a last message of "
                             "the assistant, with content");
    }
    return BT_OK;
}

/* Checks for one prompt, as a text or as messages. */
static bt_status_t check_tokenize(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;

    if ((request->n_prompts == 0) == (request->messages.n == 0)) {
        return bt_api_refuse(parse, "prompt",
                             "either prompt or messages must be given");
    }
    if ((request->n_prompts > 1) ||
        ((request->n_prompts == 1) && (request->prompts[0].text == NULL))) {
        return bt_api_refuse(parse, "prompt", "prompt must be one string");
    }
    if ((request->messages.n > 0) &&
        ((request->given & BT_GIVEN_SPECIAL_TOKENS) != 0) && !request->no_bos) {
        return bt_api_refuse(parse, "add_special_tokens",
                             "add_special_tokens is for a prompt: those of "
                             "messages come from the chat template");
    }
    return request->continues_final ? check_continued(parse) : BT_OK;
}

static bt_status_t check_detokenize(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;

    if ((request->n_prompts != 1) || (request->prompts[0].ids == NULL)) {
        return bt_api_refuse(parse, "tokens",
                             "tokens must be a list of token ids");
    }
    return BT_OK;
}

/* Checks that there is a prompt. */
static bt_status_t check_prompt(bt_api_parse_t *parse)
{
    const bt_api_request_t *request = parse->request;
    const char *name = (request->dialect == BT_API_GENERATE) ? "text_input"
                       : (request->dialect == BT_API_GENERATE_TOKENS)
                           ? "token_ids"
                           : "prompt";

    switch (request->dialect) {
    case BT_API_RESPONSES:
        return bt_api_check_responses(parse);
    case BT_API_ANTHROPIC:
    case BT_API_ANTHROPIC_COUNT:
        return bt_api_check_anthropic(parse);
    case BT_API_OLLAMA_CHAT:
    case BT_API_OLLAMA_GENERATE:
        return bt_api_check_ollama(parse);
    case BT_API_CHAT:
        if (request->messages.n == 0) {
            return bt_api_refuse(parse, "messages", "messages is missing");
        }
        return request->continues_final ? check_continued(parse) : BT_OK;
    default:
        return (request->n_prompts > 0)
                   ? BT_OK
                   : bt_api_refuse(parse, name, "%s is missing", name);
    }
}

static bt_status_t settle_beams(bt_api_parse_t *parse)
{
    static const bt_api_beam_names_t generate = {
        "stop_words", "top_k", "top_p", "runtime_top_p_decay", "stream"};
    static const bt_api_beam_names_t openai = {"stop", "top_k", "top_p",
                                               "top_p_decay", "stream"};
    const bt_api_request_t *request = parse->request;
    const bt_status_t status = bt_api_settle_beams(
        parse->request,
        (request->dialect == BT_API_GENERATE) ? &generate : &openai,
        parse->error);
    const uint32_t width = request->beams.params.width;

    if ((status == BT_OK) &&
        (request->n_prompts * width > BT_API_MAX_PROMPTS)) {
        return bt_api_refuse(parse, "n",
                             "%zu prompts times %u beams are more than %d",
                             request->n_prompts, width, BT_API_MAX_PROMPTS);
    }
    return status;
}

/* Checks that need the whole body. */
static bt_status_t check_whole(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;
    bt_sampling_t *sampling = &request->sampling;
    bt_status_t status;

    if (request->dialect == BT_API_TOKENIZE) {
        status = check_tokenize(parse);
        return (status == BT_OK) ? bt_api_check_tools(parse) : status;
    }
    if (request->dialect == BT_API_DETOKENIZE) {
        return check_detokenize(parse);
    }
    if (request->dialect == BT_API_ANTHROPIC_COUNT) {
        status = check_prompt(parse);
        return (status == BT_OK) ? bt_api_check_tools(parse) : status;
    }
    status = check_prompt(parse);
    if (status == BT_OK) {
        status = bt_api_check_tools(parse);
    }
    if (status != BT_OK) {
        return status;
    }
    if (request->has_max_tokens &&
        (sampling->min_tokens > request->max_tokens)) {
        return bt_api_refuse(parse, "min_tokens",
                             "min_tokens %u is above max_tokens %u",
                             sampling->min_tokens, request->max_tokens);
    }
    bt_api_processors_turn_off(request);
    if (parse->only_the_best) {
        sampling->temperature = 0.0f;
        request->given |= BT_GIVEN_TEMPERATURE;
    } else if (request->dialect == BT_API_GENERATE) {
        bt_sampling_apply_triton(request->given, sampling);
    } else if ((request->given & BT_GIVEN_TEMPERATURE) == 0) {
        sampling->temperature = 1.0f;
    }
    status = bt_api_check_biases(parse);
    if (status == BT_OK) {
        status = bt_api_settle_guide(request, parse->error);
    }
    if (status == BT_OK) {
        status = check_rows(parse);
    }
    if (status == BT_OK) {
        status = settle_beams(parse);
    }
    return (status == BT_OK) ? check_choices(parse) : status;
}

static bt_status_t read_body(bt_api_parse_t *parse, const bt_json_node_t *root)
{
    const bt_json_node_t *parameters =
        bt_json_get(parse->doc, root, "parameters");
    const uint32_t dialect = dialect_bit(parse->request->dialect);
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, NULL,
                             "the body must be a JSON object, got %s",
                             BT_API_SHOW(root));
    }
    if ((parse->request->dialect == BT_API_GENERATE) &&
        bt_json_is_kind(parameters, BT_JSON_OBJECT)) {
        /* Fields beside "parameters" come later and take precedence. */
        status = bt_api_read_fields(parse, dialect, "parameters.", parameters);
    }
    if (status == BT_OK) {
        status = bt_api_read_fields(parse, dialect, "", root);
    }
    if (status == BT_OK) {
        status = check_whole(parse);
    }
    return status;
}

#define BOM       "\xEF\xBB\xBF"
#define BOM_BYTES 3u

/* Fills the error for a body that is refused as a whole. A limit is reported
 * for the field in which it is exceeded. */
static bt_status_t not_read(bt_api_parse_t *parse, const char *text,
                            bt_status_t status, const bt_json_fault_t *fault)
{
    const bt_api_field_t *field =
        bt_api_find_field(dialect_bit(parse->request->dialect), fault->member,
                          strlen(fault->member));
    const char *line = text;
    unsigned n_lines = 1;

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(parse->error);
    }
    if (status == BT_ERR_TOO_LARGE) {
        return bt_api_refuse(
            parse, (field != NULL) ? field->name : NULL,
            "%s%s%s at byte %zu: a body may have %d values, "
            "nested %d deep",
            fault->member, (fault->member[0] != '\0') ? ": " : "", fault->what,
            fault->at, BT_API_MAX_VALUES, BT_JSON_DOC_DEPTH);
    }
    for (const char *at = text; at < text + fault->at; at++) {
        if (*at == '\n') {
            n_lines++;
            line = at + 1;
        }
    }
    return bt_api_refuse(parse, NULL,
                         "the body is not valid JSON at line %u column %zu "
                         "(byte %zu): %s",
                         n_lines, (size_t)(text + fault->at - line) + 1,
                         fault->at, fault->what);
}

static bt_status_t parse_text(bt_api_parse_t *parse, const char *text,
                              size_t bytes)
{
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    bt_status_t status =
        bt_json_doc_parse_client(text, bytes, BT_API_MAX_VALUES, &fault, &doc);

    if (status != BT_OK) {
        return not_read(parse, text, status, &fault);
    }
    parse->doc = doc;
    status = read_body(parse, bt_json_doc_root(doc));
    parse->doc = NULL;
    bt_json_doc_free(doc);
    return status;
}

void bt_api_request_init(bt_api_dialect_t dialect, bt_api_request_t *request)
{
    memset(request, 0, sizeof(*request));
    request->dialect = dialect;
    request->n = 1;
    request->max_drafts = UINT32_MAX;
    request->sampling = bt_sampling_default();
    bt_api_processors_init(request);
    if ((dialect == BT_API_ANTHROPIC) || (dialect == BT_API_ANTHROPIC_COUNT)) {
        request->thinking = BT_API_THINKING_OFF; /* unless it is asked for */
    }
    if (dialect == BT_API_GENERATE_TOKENS) {
        request->names = &bt_api_tokens_names;
        request->return_token_ids = true;
    }
    if (dialect == BT_API_RESPONSES) {
        static const bt_api_names_t names = {
            .prompt = "input",
            .max_tokens = "max_output_tokens",
            .bad_words = "bad_words",
            .biases = "logit_bias",
        };

        request->names = &names;
    }
    if (bt_api_is_ollama(dialect)) {
        static const bt_api_names_t names[] = {
            {"messages", "options.num_predict", "bad_words", "logit_bias"},
            {"prompt", "options.num_predict", "bad_words", "logit_bias"},
        };

        request->names = &names[dialect == BT_API_OLLAMA_GENERATE];
        request->stream = true;
        request->fills_context = true;
    }
}

/* @param can_store, history  as in bt_api_parse_t */
static bt_status_t parse_any(bt_api_dialect_t dialect, bool can_store,
                             const bt_strbuf_t *history, const void *body,
                             size_t bytes, bt_api_request_t *request_p,
                             bt_api_error_t *error_p)
{
    bt_api_request_t request;
    bt_api_parse_t parse = {.request = &request,
                            .error = error_p,
                            .can_store = can_store,
                            .history = history};
    const char *text = body;
    bt_status_t status;

    bt_api_request_init(dialect, &request);
    if ((bytes >= BOM_BYTES) && (memcmp(text, BOM, BOM_BYTES) == 0)) {
        text += BOM_BYTES;
        bytes -= BOM_BYTES;
    }
    if (bytes == 0) {
        return bt_api_refuse(&parse, NULL, "the body is empty");
    }
    status = parse_text(&parse, text, bytes);
    if (status != BT_OK) {
        bt_api_request_fini(&request);
        return status;
    }
    *request_p = request;
    return BT_OK;
}

bt_status_t bt_api_parse(bt_api_dialect_t dialect, const void *body,
                         size_t bytes, bt_api_request_t *request_p,
                         bt_api_error_t *error_p)
{
    return parse_any(dialect, false, NULL, body, bytes, request_p, error_p);
}

bt_status_t bt_api_parse_stored(const void *body, size_t bytes,
                                const bt_strbuf_t *history,
                                bt_api_request_t *request_p,
                                bt_api_error_t *error_p)
{
    return parse_any(BT_API_RESPONSES, true, history, body, bytes, request_p,
                     error_p);
}

/* ---- unknown fields ---- */

#define SEPARATOR ", "
#define MORE      "..."

/* The name is sanitized because it becomes part of a header line. */
static size_t clean(const char *name, size_t bytes, char out[NAME_BYTES + 1])
{
    size_t n = 0;

    for (; (n < bytes) && (n < NAME_BYTES); n++) {
        const char c = name[n];

        out[n] = ((c > ' ') && (c <= '~') && (c != ',')) ? c : '?';
    }
    out[n] = '\0';
    return n;
}

/* True when it ends with "...": no space is left. */
static bool is_full(const char *ignored, size_t len)
{
    const size_t n = strlen(MORE);

    return (len >= n) && (strcmp(ignored + len - n, MORE) == 0);
}

void bt_api_note_unknown(bt_api_request_t *request, const char *name,
                         size_t bytes)
{
    char *const ignored = request->ignored;
    const size_t len = strlen(ignored);
    const char *separator = (len > 0) ? SEPARATOR : "";
    const size_t left = sizeof(request->ignored) - len;
    const size_t reserve = strlen(SEPARATOR) + strlen(MORE) + 1;
    char text[NAME_BYTES + 1];
    const size_t n = clean(name, bytes, text);

    if (is_full(ignored, len) || (n == 0)) {
        return;
    }
    snprintf(ignored + len, left, "%s%s", separator,
             (strlen(separator) + n + reserve <= left) ? text : MORE);
}

void bt_api_note_members(bt_api_parse_t *parse, const char *path,
                         const bt_json_node_t *object, const char *const *known)
{
    const uint32_t n = bt_json_size(object, BT_JSON_OBJECT);
    const bt_json_node_t *key = (n > 0) ? bt_json_first(object) : NULL;
    char prefix[NAME_BYTES];

    snprintf(prefix, sizeof(prefix), "%s.", path);
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = (key + 1)->kind == BT_JSON_NULL;

        for (size_t k = 0; (known[k] != NULL) && !is_known; k++) {
            is_known = bt_json_is(key, known[k]);
        }
        if (!is_known) {
            note_at(parse->request, prefix, key);
        }
        key = bt_json_next(parse->doc, key + 1);
    }
}

/* Reports messages[2].x as input[1].x, or messages[1].x, if that is what it was
 * made of. */
static void note_message(bt_api_request_t *request, const char *path, size_t n)
{
    const bool is_response = request->dialect == BT_API_RESPONSES;
    const uint16_t *items = request->messages.items;
    char name[2 * NAME_BYTES];
    char *rest;
    unsigned long at;

    if (items == NULL) {
        bt_api_note_unknown(request, path, n);
        return;
    }
    at = strtoul(path + strlen("messages["), &rest, 10);
    if ((at < request->messages.n) && (items[at] == BT_API_OLD_ITEM)) {
        return; /* it was reported with its own response */
    }
    if ((at < request->messages.n) && (items[at] != BT_API_NO_ITEM)) {
        snprintf(name, sizeof(name), "%s[%u%.*s",
                 is_response ? "input" : "messages", (unsigned)items[at],
                 (int)((size_t)(path + n - rest) % sizeof(name)), rest);
    } else {
        snprintf(name, sizeof(name), "%s",
                 is_response ? "instructions" : "system");
    }
    bt_api_note_unknown(request, name, strlen(name));
}

void bt_api_note_unused(bt_api_request_t *request, const char *paths)
{
    static const char messages[] = "messages[";
    const char *end;

    for (const char *at = paths; *at != '\0'; at = end + 1) {
        end = strchr(at, '\n');
        if (end == NULL) {
            return; /* cut off */
        }
        if (strncmp(at, messages, strlen(messages)) == 0) {
            note_message(request, at, (size_t)(end - at));
        } else {
            bt_api_note_unknown(request, at, (size_t)(end - at));
        }
    }
}

static void name_one(uint32_t dialect, const char *name, size_t n,
                     bt_strbuf_t *out)
{
    static const char *const inside[] = {"parameters.",
                                         BT_API_SAMPLING_PARAMS "."};
    size_t skipped = 0;
    const char *near;

    for (size_t i = 0; i < BT_ARRAY_LEN(inside); i++) {
        if (strncmp(name, inside[i], strlen(inside[i])) == 0) {
            skipped = strlen(inside[i]);
            dialect = (dialect == BT_API_I) ? BT_API_S : dialect;
        }
    }
    near = bt_api_nearest_field(dialect, name + skipped, n - skipped);

    bt_strbuf_append(out, name, n);
    if (near != NULL) {
        bt_strbuf_printf(out, " (did you mean %s?)", near);
    }
}

bool bt_api_refuse_ignored(const bt_api_request_t *request,
                           bt_api_error_t *error_p)
{
    const uint32_t dialect = dialect_bit(request->dialect);
    const char *at = request->ignored;
    bt_strbuf_t names;

    if (*at == '\0') {
        return false;
    }
    bt_strbuf_init(&names, 64 * BT_API_IGNORED_BYTES);
    while (*at != '\0') {
        const char *end = strstr(at, SEPARATOR);
        const size_t n = (end != NULL) ? (size_t)(end - at) : strlen(at);

        name_one(dialect, at, n, &names);
        at += n;
        if (end != NULL) {
            bt_strbuf_puts(&names, SEPARATOR);
            at += strlen(SEPARATOR);
        }
    }
    bt_api_error_set(error_p, 400, NULL, "not known here: %s",
                     (bt_strbuf_status(&names) == BT_OK) ? names.data
                                                         : request->ignored);
    bt_strbuf_fini(&names);
    return true;
}
