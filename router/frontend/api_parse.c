/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/api_priv.h"
#include "router/frontend/sampling.h"

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
    bt_free(request->instructions);
    bt_free(request->metadata_json);
    bt_free(request->documents_json);
    bt_free(request->kwargs_json);
    bt_api_tools_fini(&request->tools);
    bt_free(request->logit_biases);
    memset(request, 0, sizeof(*request));
}

/* Reads all fields of one object. */
static bt_status_t read_fields(bt_api_parse_t *parse, const char *path,
                               const bt_json_node_t *object)
{
    const bool generate = (parse->request->dialect == BT_API_GENERATE);
    const uint32_t dialect = bt_api_dialect_bit(parse->request->dialect);
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
            bt_api_note_at(parse->request, path, key);
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
    const uint32_t n = (parse->best_of != 0) ? parse->best_of : request->n;

    if (request->n_prompts * n > BT_API_MAX_PROMPTS) {
        return bt_api_refuse(parse, (parse->best_of != 0) ? "best_of" : "n",
                             "%zu prompts times %s %u are more than %d choices",
                             request->n_prompts,
                             (parse->best_of != 0) ? "best_of" : "n", n,
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
    if (parse->has_top_logprobs && !wants) {
        return bt_api_refuse(parse, "top_logprobs",
                             "top_logprobs needs logprobs to be true");
    }
    if (request->echo && wants) {
        request->wants.what |= BT_WANT_PROMPT_LOGPROBS;
    }
    return BT_OK;
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

    switch (request->dialect) {
    case BT_API_RESPONSES:
        return bt_api_check_responses(parse);
    case BT_API_CHAT:
        if (request->messages.n == 0) {
            return bt_api_refuse(parse, "messages", "messages is missing");
        }
        return request->continues_final ? check_continued(parse) : BT_OK;
    case BT_API_COMPLETIONS:
        return (request->n_prompts > 0)
                   ? BT_OK
                   : bt_api_refuse(parse, "prompt", "prompt is missing");
    default:
        return (request->n_prompts > 0)
                   ? BT_OK
                   : bt_api_refuse(parse, "text_input",
                                   "text_input is missing");
    }
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
        status = check_rows(parse);
    }
    return (status == BT_OK) ? check_choices(parse) : status;
}

static bt_status_t read_body(bt_api_parse_t *parse, const bt_json_node_t *root)
{
    const bt_json_node_t *parameters =
        bt_json_get(parse->doc, root, "parameters");
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        return bt_api_refuse(parse, NULL,
                             "the body must be a JSON object, got %s",
                             BT_API_SHOW(root));
    }
    if ((parse->request->dialect == BT_API_GENERATE) &&
        bt_json_is_kind(parameters, BT_JSON_OBJECT)) {
        /* Fields beside "parameters" come later and take precedence. */
        status = read_fields(parse, "parameters.", parameters);
    }
    if (status == BT_OK) {
        status = read_fields(parse, "", root);
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
        bt_api_find_field(bt_api_dialect_bit(parse->request->dialect),
                          fault->member, strlen(fault->member));
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
    request->sampling = bt_sampling_default();
    if (dialect == BT_API_RESPONSES) {
        static const bt_api_names_t names = {
            .prompt = "input",
            .max_tokens = "max_output_tokens",
            .bad_words = "bad_words",
            .biases = "logit_bias",
        };

        request->names = &names;
    }
}

bt_status_t bt_api_parse(bt_api_dialect_t dialect, const void *body,
                         size_t bytes, bt_api_request_t *request_p,
                         bt_api_error_t *error_p)
{
    bt_api_request_t request;
    bt_api_parse_t parse = {.request = &request, .error = error_p};
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
