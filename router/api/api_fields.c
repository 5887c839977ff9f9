/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/api/api_priv.h"
#include "router/api/perf_metrics.h"

/* ---- lists of words ---- */

static bt_status_t add_word(bt_api_parse_t *parse, const char *name,
                            const bt_json_node_t *value, char **words,
                            uint32_t *n_p, uint32_t max)
{
    bt_status_t status;

    if (bt_json_is(value, "")) {
        return BT_OK; /* Triton's way to say none */
    }
    if (*n_p == max) {
        return bt_api_refuse(parse, name, "%s has more than %u words", name,
                             max);
    }
    status =
        bt_api_string(parse, name, value, BT_API_MAX_STOP_BYTES, &words[*n_p]);
    if (status == BT_OK) {
        (*n_p)++;
    }
    return status;
}

bt_status_t bt_api_words(bt_api_parse_t *parse, const char *name,
                         const bt_json_node_t *value, char **words,
                         uint32_t *n_p, uint32_t max)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *word = bt_json_first(value);
    bt_status_t status = BT_OK;

    while (*n_p > 0) { /* "parameters" may have set some */
        bt_free(words[--*n_p]);
        words[*n_p] = NULL;
    }
    if (bt_json_is_kind(value, BT_JSON_STRING)) {
        return add_word(parse, name, value, words, n_p, max);
    }
    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return bt_api_refuse_kind(parse, name, "a string or a list of strings",
                                  value);
    }
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = add_word(parse, name, word, words, n_p, max);
        word = bt_json_next(parse->doc, word);
    }
    return status;
}

static bt_status_t read_stops(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    return bt_api_words(parse, field->name, value, parse->request->stops,
                        &parse->request->n_stops, BT_API_MAX_STOPS);
}

static bt_status_t read_bad_words(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value)
{
    return bt_api_words(parse, field->name, value, parse->request->bad_words,
                        &parse->request->n_bad_words, BT_MAX_BAD_WORDS);
}

/* ---- numbers with a meaning of their own ---- */

static bt_status_t read_max_tokens(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    const bool newer = (strcmp(field->name, "max_completion_tokens") == 0);
    /* An empty completion is for a prompt that is echoed: check_whole(). */
    double real = 1.0;
    const bool none = (parse->request->dialect == BT_API_COMPLETIONS) &&
                      bt_api_real(value, &real) &&
                      (fpclassify(real) == FP_ZERO);
    int64_t number = 0;
    const bt_status_t status = bt_api_integer(parse, field->name, value,
                                              none ? 0 : 1, INT32_MAX, &number);

    if (status != BT_OK) {
        return status;
    }
    /* OpenAI's newer name wins, whatever the order. */
    if (newer || !parse->has_max_completion_tokens) {
        parse->request->max_tokens = (uint32_t)number;
    }
    parse->request->has_max_tokens = true;
    parse->has_max_completion_tokens |= newer;
    return BT_OK;
}

static bt_status_t read_temperature(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    const bt_status_t status = bt_api_read_float(parse, field, value);
    float *const temperature = &parse->request->sampling.temperature;

    if (status == BT_OK) {
        *temperature = bt_sampling_temperature(*temperature);
    }
    return status;
}

static bt_status_t read_top_p(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    float *const top_p = &parse->request->sampling.top_p;
    double real = 0.0;
    bt_status_t status;

    parse->request->given |= BT_GIVEN_TOP_P;
    parse->only_the_best = false;
    status = bt_api_read_float(parse, field, value);
    if ((status != BT_OK) || !bt_api_real(value, &real)) {
        return status;
    }
    if (fpclassify(real) == FP_ZERO) {
        *top_p = 1.0f;
        if (parse->request->dialect == BT_API_GENERATE) {
            parse->request->given &=
                ~BT_GIVEN_TOP_P; /* Triton's clients' off */
        } else {
            parse->only_the_best = true;
        }
    } else if (*top_p < FLT_MIN) {
        *top_p = FLT_MIN; /* a value below a float's range is not 0 */
    }
    return BT_OK;
}

static bt_status_t read_top_k(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, -1, INT32_MAX, &number);

    if (status == BT_OK) {
        parse->request->given |= BT_GIVEN_TOP_K;
        parse->request->sampling.top_k = (number < 0) ? 0 : (uint32_t)number;
    }
    return status;
}

static bt_status_t read_seed(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    uint64_t seed = 0;
    const bt_status_t status =
        bt_api_integer_mod_2_64(parse, field->name, value, &seed);

    if (status == BT_OK) {
        parse->request->sampling.seed = seed;
        parse->request->has_seed = true;
    }
    return status;
}

static bt_status_t read_lora_task(bt_api_parse_t *parse,
                                  const bt_api_field_t *field,
                                  const bt_json_node_t *value)
{
    bt_api_lora_t *const lora = &parse->request->lora;
    const bt_status_t status =
        bt_api_integer_mod_2_64(parse, field->name, value, &lora->task_id);

    lora->has_task = status == BT_OK;
    lora->is_blank = lora->task_id == 0;
    return status;
}

static bt_status_t read_sequence_id(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    return bt_api_integer(parse, field->name, value, 0, INT64_MAX,
                          &parse->request->sequence_id);
}

/* Microseconds, as Triton's request parameter. */
static bt_status_t read_timeout_us(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status = bt_api_integer(
        parse, field->name, value, 0, (int64_t)1000 * UINT32_MAX, &number);

    if (status == BT_OK) {
        parse->request->timeout_ms = (uint32_t)((number + 999) / 1000);
    }
    return status;
}

/* Accepts any value: without --client-priority it is ignored. */
static bt_status_t read_priority(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    bt_api_priority_t *priority = &parse->request->priority;

    (void)field;
    *priority = (bt_api_priority_t){.kind = BT_API_PRIORITY_OTHER};
    if (!bt_json_is_kind(value, BT_JSON_NUMBER)) {
        return BT_OK;
    }
    if (bt_json_is_fraction(value)) {
        priority->kind = BT_API_PRIORITY_REAL;
        (void)bt_api_real(value, &priority->real);
        return BT_OK;
    }
    priority->kind = BT_API_PRIORITY_INTEGER;
    if (!bt_json_as_i64(value, &priority->integer)) {
        priority->integer = (value->text[0] == '-') ? INT64_MIN : INT64_MAX;
    }
    return BT_OK;
}

/* ---- end tokens ---- */

static bt_status_t add_end_id(bt_api_parse_t *parse, const char *name,
                              const bt_json_node_t *value)
{
    bt_sampling_t *const sampling = &parse->request->sampling;
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, name, value, -1, INT32_MAX, &number);

    if ((status != BT_OK) || (number < 0)) {
        return status; /* -1: Triton's "not given" */
    }
    /* The remaining entries are reserved for the model's own. */
    if (sampling->n_end_ids == BT_MAX_GIVEN_END_IDS) {
        return bt_api_refuse(parse, name, "%s has more than %d ids", name,
                             BT_MAX_GIVEN_END_IDS);
    }
    sampling->end_ids[sampling->n_end_ids++] = (uint32_t)number;
    return BT_OK;
}

static bt_status_t read_end_id(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value)
{
    const uint32_t n = bt_json_size(value, BT_JSON_ARRAY);
    const bt_json_node_t *id = bt_json_first(value);
    bt_status_t status = BT_OK;

    parse->request->sampling.n_end_ids = 0;
    if (!bt_json_is_kind(value, BT_JSON_ARRAY)) {
        return add_end_id(parse, field->name, value);
    }
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = add_end_id(parse, field->name, id);
        id = bt_json_next(parse->doc, id);
    }
    return status;
}

/* ---- OpenAI's objects ---- */

static bt_status_t read_stream_options(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    static const bt_api_field_t options[] = {
        {"stream_options.include_usage", BT_API_O, bt_api_read_bool,
         offsetof(bt_api_request_t, include_usage), 0, 0, 0},
        {"stream_options.continuous_usage_stats", BT_API_O, bt_api_read_bool,
         offsetof(bt_api_request_t, continuous_usage), 0, 0, 0},
    };
    static const char *const known[] = {"include_usage",
                                        "continuous_usage_stats", NULL};

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    bt_api_note_members(parse, field->name, value, known);
    for (size_t i = 0; i < BT_ARRAY_LEN(options); i++) {
        const char *name = strchr(options[i].name, '.') + 1;
        const bt_json_node_t *option = bt_json_get(parse->doc, value, name);

        if (!bt_api_is_none(option)) {
            const bt_status_t status =
                options[i].read(parse, &options[i], option);

            if (status != BT_OK) {
                return status;
            }
        }
    }
    return BT_OK;
}

static bt_status_t read_function_call(bt_api_parse_t *parse,
                                      const bt_api_field_t *field,
                                      const bt_json_node_t *value)
{
    if (bt_json_is(value, "none") || bt_json_is(value, "auto")) {
        return BT_OK; /* without functions, both mean none */
    }
    return bt_api_refuse(parse, field->name, "%s is not supported yet, got %s",
                         field->name, BT_API_SHOW(value));
}

static bt_status_t read_modalities(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    if ((bt_json_size(value, BT_JSON_ARRAY) == 1) &&
        bt_json_is(bt_json_first(value), "text")) {
        return BT_OK;
    }
    return bt_api_refuse(parse, field->name,
                         "modalities other than [\"text\"] are not supported "
                         "yet, got %s",
                         BT_API_SHOW(value));
}

/* For completions even 0 asks for log-probs: those of the drawn tokens. */
static bt_status_t read_logprobs(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value)
{
    int64_t number = 0;
    bt_status_t status;

    if (bt_json_is_kind(value, BT_JSON_FALSE)) {
        return BT_OK;
    }
    status = bt_api_integer(parse, field->name, value, 0, BT_MAX_TOP_LOGPROBS,
                            &number);
    if (status == BT_OK) {
        parse->request->wants.what |= BT_WANT_LOGPROBS;
        parse->request->wants.n_top = (uint32_t)number;
    }
    return status;
}

/* Reads a bool that requests what field->min says. */
static bt_status_t read_want(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    const uint32_t what = (uint32_t)field->min;
    uint32_t *wants = &parse->request->wants.what;

    if (!bt_json_is_bool(value)) {
        return bt_api_refuse_kind(parse, field->name, "true or false", value);
    }
    *wants = (value->kind == BT_JSON_TRUE) ? *wants | what : *wants & ~what;
    return BT_OK;
}

/* An empty salt would look like a secret without being one. */
static bt_status_t read_cache_salt(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    if (bt_json_is(value, "")) {
        return bt_api_refuse(parse, field->name, "%s is empty", field->name);
    }
    return bt_api_read_name(parse, field, value);
}

/* ---- the table ---- */

#define AT(member) offsetof(bt_api_request_t, member)
#define BOOL(name, who, where)                          \
    {                                                   \
        name, who, bt_api_read_bool, AT(where), 0, 0, 0 \
    }
#define U32(name, who, where, min, max)                    \
    {                                                      \
        name, who, bt_api_read_u32, AT(where), min, max, 0 \
    }
#define FLOAT(name, who, where, min, max)                    \
    {                                                        \
        name, who, bt_api_read_float, AT(where), min, max, 0 \
    }
#define NOT(name, who, where)                          \
    {                                                  \
        name, who, bt_api_read_not, AT(where), 0, 0, 0 \
    }
#define IGNORED(name, who)                         \
    {                                              \
        name, who, bt_api_read_ignored, 0, 0, 0, 0 \
    }
#define OWN(name, who, reader)        \
    {                                 \
        name, who, reader, 0, 0, 0, 0 \
    }
#define NOT_YET(name, who)                             \
    {                                                  \
        name, who, bt_api_read_unsupported, 0, 0, 0, 0 \
    }

#define PROCESSORS sampling.processors

/* clang-format off */
/* Ollama's options. Those that load its models have no effect here, and neither
 * has what shifts a context, which is never shifted. */
static const bt_api_field_t ollama_options[] = {
    OWN("options.num_predict", BT_API_L, bt_api_read_num_predict),
    OWN("options.stop", BT_API_L, read_stops),
    OWN("options.seed", BT_API_L, bt_api_read_ollama_seed),
    {"options.temperature", BT_API_L, read_temperature, AT(sampling.temperature), 0, 100, BT_GIVEN_TEMPERATURE},
    OWN("options.top_k", BT_API_L, read_top_k),
    {"options.top_p", BT_API_L, read_top_p, AT(sampling.top_p), 0, 1, 0},
    {"options.min_p", BT_API_L, bt_api_read_float, AT(sampling.min_p), 0, 1, BT_GIVEN_MIN_P},
    {"options.typical_p", BT_API_L, bt_api_read_float, AT(PROCESSORS.typical_p), 0, 1, BT_GIVEN_FILTER},
    {"options.repeat_penalty", BT_API_L, bt_api_read_float, AT(sampling.repetition_penalty), 0.01, 100, BT_GIVEN_REPETITION_PENALTY},
    OWN("options.repeat_last_n", BT_API_L, bt_api_read_repeat_last_n),
    FLOAT("options.presence_penalty", BT_API_L, sampling.presence_penalty, -2, 2),
    FLOAT("options.frequency_penalty", BT_API_L, sampling.frequency_penalty, -2, 2),
    OWN("options.mirostat", BT_API_L, bt_api_read_mirostat),
    IGNORED("options.mirostat_tau", BT_API_L),
    IGNORED("options.mirostat_eta", BT_API_L),
    IGNORED("options.num_keep", BT_API_L),
    IGNORED("options.num_ctx", BT_API_L),
    IGNORED("options.num_batch", BT_API_L),
    IGNORED("options.num_gpu", BT_API_L),
    IGNORED("options.main_gpu", BT_API_L),
    IGNORED("options.num_thread", BT_API_L),
    IGNORED("options.numa", BT_API_L),
    IGNORED("options.low_vram", BT_API_L),
    IGNORED("options.f16_kv", BT_API_L),
    IGNORED("options.use_mmap", BT_API_L),
    IGNORED("options.use_mlock", BT_API_L),
};
/* clang-format on */

static bt_status_t read_ollama_options(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    const char *known[BT_ARRAY_LEN(ollama_options) + 1] = {NULL};
    bt_status_t status = BT_OK;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    for (size_t i = 0; (i < BT_ARRAY_LEN(ollama_options)) && (status == BT_OK);
         i++) {
        const bt_api_field_t *option = &ollama_options[i];
        const bt_json_node_t *given;

        known[i] = strchr(option->name, '.') + 1;
        given = bt_json_get(parse->doc, value, known[i]);
        if (!bt_api_is_none(given)) {
            status = option->read(parse, option, given);
        }
    }
    if (status == BT_OK) {
        bt_api_note_members(parse, field->name, value, known);
    }
    return status;
}

/* clang-format off */
static const bt_api_field_t fields[] = {
    /* what to generate from */
    OWN("text_input", BT_API_G, bt_api_read_text_input),
    OWN("prompt", BT_API_C | BT_API_T, bt_api_read_prompt),
    OWN("input", BT_API_R, bt_api_read_input),
    OWN("instructions", BT_API_R, bt_api_read_instructions),
    OWN("messages", BT_API_H | BT_API_T, bt_api_read_messages),
    OWN("messages", BT_API_M, bt_api_read_anthropic_messages),
    OWN("system", BT_API_M, bt_api_read_system),
    OWN("messages", BT_API_LC, bt_api_read_ollama_messages),
    OWN("prompt", BT_API_LG, bt_api_read_ollama_prompt),
    OWN("system", BT_API_LG, bt_api_read_instructions),
    BOOL("raw", BT_API_LG, raw),
    OWN("tokens", BT_API_D, bt_api_read_prompt),
    {"model", BT_API_O | BT_API_T | BT_API_D | BT_API_R | BT_API_M | BT_API_I | BT_API_L, bt_api_read_name, AT(model), 0, 0, 0},
    {"id", BT_API_G, bt_api_read_name, AT(id), 0, 0, 0},
    {"request_id", BT_API_I, bt_api_read_name, AT(id), 0, 0, 0},
    OWN("token_ids", BT_API_I, bt_api_read_token_ids),
    OWN("sampling_params", BT_API_I, bt_api_read_sampling_params),

    /* how much */
    OWN("max_tokens", BT_API_A | BT_API_M | BT_API_S, read_max_tokens),
    OWN("max_completion_tokens", BT_API_O, read_max_tokens),
    OWN("max_output_tokens", BT_API_R, read_max_tokens),
    U32("min_tokens", BT_API_A | BT_API_R | BT_API_M | BT_API_S | BT_API_L, sampling.min_tokens, 0, INT32_MAX),
    U32("min_length", BT_API_G, sampling.min_tokens, 0, INT32_MAX),
    U32("n", BT_API_O | BT_API_S, n, 1, BT_API_MAX_PROMPTS),
    U32("best_of", BT_API_C, best_of, 1, BT_API_MAX_PROMPTS),

    /* when to end */
    OWN("stop_words", BT_API_G, read_stops),
    OWN("stop", BT_API_O | BT_API_R | BT_API_S, read_stops),
    OWN("stop_sequences", BT_API_M, read_stops),
    OWN("bad_words", BT_API_A | BT_API_S, read_bad_words),
    OWN("end_id", BT_API_G, read_end_id),
    OWN("stop_token_ids", BT_API_O | BT_API_R | BT_API_S, read_end_id),
    BOOL("ignore_eos", BT_API_A | BT_API_R | BT_API_M | BT_API_S | BT_API_L, ignore_eos),
    BOOL("return_token_ids", BT_API_O, return_token_ids),
    BOOL("include_stop_str_in_output", BT_API_O | BT_API_S, keeps_stop),
    NOT("skip_special_tokens", BT_API_O | BT_API_S, shows_special),
    {"add_special_tokens", BT_API_C | BT_API_T, bt_api_read_not, AT(no_bos), 0, 0, BT_GIVEN_SPECIAL_TOKENS},
    {"add_generation_prompt", BT_API_H | BT_API_T, bt_api_read_not, AT(no_generation_prompt), 0, 0, BT_GIVEN_GENERATION_PROMPT},
    BOOL("continue_final_message", BT_API_H | BT_API_T, continues_final),
    BOOL("return_token_strs", BT_API_T, token_texts),
    {"documents", BT_API_H | BT_API_T, bt_api_read_json, AT(documents_json), BT_JSON_ARRAY, 0, 0},
    {"chat_template_kwargs", BT_API_H | BT_API_T | BT_API_R, bt_api_read_json, AT(kwargs_json), BT_JSON_OBJECT, 0, 0},
    NOT("separate_reasoning", BT_API_H | BT_API_R, keeps_reasoning),

    /* data beside the tokens */
    OWN("logprobs", BT_API_C | BT_API_S, read_logprobs),
    {"logprobs", BT_API_H | BT_API_L, read_want, 0, BT_WANT_LOGPROBS, 0, 0},
    U32("top_logprobs", BT_API_H | BT_API_L, wants.n_top, 0, BT_MAX_TOP_LOGPROBS),
    BOOL("echo", BT_API_C, echo),
    OWN("prompt_logprobs", BT_API_O | BT_API_S, bt_api_read_prompt_logprobs),
    {"return_log_probs", BT_API_G, read_want, 0, BT_WANT_LOGPROBS, 0, 0},
    {"return_context_logits", BT_API_G, read_want, 0, BT_WANT_PROMPT_LOGITS, 0, 0},
    {"return_generation_logits", BT_API_G, read_want, 0, BT_WANT_LOGITS, 0, 0},
    {"return_perf_metrics", BT_API_G, read_want, 0, BT_WANT_PERF_METRICS | BT_WANT_KV_REUSE, 0, 0},
    {"return_kv_cache_reuse_stats", BT_API_G, read_want, 0, BT_WANT_KV_REUSE, 0, 0},
    {"return_num_input_tokens", BT_API_G, read_want, 0, BT_WANT_N_INPUT, 0, 0},
    {"return_num_output_tokens", BT_API_G, read_want, 0, BT_WANT_N_OUTPUT, 0, 0},

    /* sampling */
    {"temperature", BT_API_A | BT_API_R | BT_API_M | BT_API_S, read_temperature, AT(sampling.temperature), 0, 100, BT_GIVEN_TEMPERATURE},
    {"top_p", BT_API_A | BT_API_R | BT_API_M | BT_API_S, read_top_p, AT(sampling.top_p), 0, 1, 0},
    OWN("top_k", BT_API_A | BT_API_R | BT_API_M | BT_API_S, read_top_k),
    {"min_p", BT_API_A | BT_API_R | BT_API_M | BT_API_S, bt_api_read_float, AT(sampling.min_p), 0, 1, BT_GIVEN_MIN_P},
    OWN("random_seed", BT_API_G, read_seed),
    OWN("seed", BT_API_A | BT_API_R | BT_API_M | BT_API_S, read_seed),
    {"repetition_penalty", BT_API_A | BT_API_R | BT_API_M | BT_API_S, bt_api_read_float, AT(sampling.repetition_penalty), 0.01, 100, BT_GIVEN_REPETITION_PENALTY},
    FLOAT("presence_penalty", BT_API_O | BT_API_R | BT_API_S, sampling.presence_penalty, -2, 2),
    FLOAT("frequency_penalty", BT_API_O | BT_API_R | BT_API_S, sampling.frequency_penalty, -2, 2),
    FLOAT("presence_penalty", BT_API_G, sampling.presence_penalty, -100, 100),
    FLOAT("frequency_penalty", BT_API_G, sampling.frequency_penalty, -100, 100),
    OWN("logit_bias", BT_API_O | BT_API_R | BT_API_S, bt_api_read_logit_bias),
    OWN("embedding_bias_words", BT_API_G, bt_api_read_bias_words),
    OWN("embedding_bias_weights", BT_API_G, bt_api_read_bias_weights),

    OWN("options", BT_API_L, read_ollama_options),

    /* beam search */
    U32("beam_width", BT_API_G, beams.width, 1, BT_SCHED_MAX_BEAMS),
    U32("num_return_sequences", BT_API_G, beams.n_sequences, 1, BT_SCHED_MAX_BEAMS),
    BOOL("use_beam_search", BT_API_O, beams.is_asked),
    {"len_penalty", BT_API_G, bt_api_read_length_penalty, AT(beams.length_penalty), -16, 16, 0},
    {"length_penalty", BT_API_G | BT_API_O, bt_api_read_length_penalty, AT(beams.length_penalty), -16, 16, 0},
    OWN("early_stopping", BT_API_G | BT_API_O, bt_api_read_early_stopping),
    NOT_YET("beam_search_diversity_rate", BT_API_G),

    /* logits processors */
    U32("no_repeat_ngram_size", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.no_repeat_ngram_size, 0, BT_MAX_NGRAM),
    FLOAT("top_p_decay", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.top_p_decay, 0, 1),
    FLOAT("top_p_min", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.top_p_min, 0, 1),
    {"top_p_reset_ids", BT_API_A | BT_API_R | BT_API_S, bt_api_read_u32_or_none, AT(PROCESSORS.top_p_reset_id), -1, INT32_MAX, 0},
    FLOAT("runtime_top_p_decay", BT_API_G, PROCESSORS.top_p_decay, 0, 1),
    FLOAT("runtime_top_p_min", BT_API_G, PROCESSORS.top_p_min, 0, 1),
    {"runtime_top_p_reset_ids", BT_API_G, bt_api_read_u32_or_none, AT(PROCESSORS.top_p_reset_id), -1, INT32_MAX, 0},
    U32("prompt_ignore_length", BT_API_G, prompt_ignore_length, 0, INT32_MAX),
    {"top_n_sigma", BT_API_A | BT_API_R | BT_API_S, bt_api_read_float, AT(PROCESSORS.top_n_sigma), -1, 1000, BT_GIVEN_FILTER},
    {"typical_p", BT_API_A | BT_API_R | BT_API_S, bt_api_read_float, AT(PROCESSORS.typical_p), 0, 1, BT_GIVEN_FILTER},
    {"xtc_probability", BT_API_A | BT_API_R | BT_API_S, bt_api_read_float, AT(PROCESSORS.xtc_probability), 0, 1, BT_GIVEN_FILTER},
    FLOAT("xtc_threshold", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.xtc_threshold, 0, 1),
    FLOAT("dry_multiplier", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.dry_multiplier, 0, 1000),
    FLOAT("dry_base", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.dry_base, 0, 1000),
    U32("dry_allowed_length", BT_API_A | BT_API_R | BT_API_S, PROCESSORS.dry_allowed_length, 0, INT32_MAX),
    {"dry_penalty_last_n", BT_API_A | BT_API_R | BT_API_S, bt_api_read_u32_or_none, AT(PROCESSORS.dry_last_n), -1, INT32_MAX, 0},
    OWN("dry_sequence_breakers", BT_API_A | BT_API_R | BT_API_S, bt_api_read_dry_breakers),
    OWN("allowed_token_ids", BT_API_A | BT_API_R | BT_API_S, bt_api_read_allowed_ids),
    OWN("thinking_token_budget", BT_API_A | BT_API_R | BT_API_S, bt_api_read_thinking_budget),
    OWN("thinking_budget_tokens", BT_API_A | BT_API_R | BT_API_S, bt_api_read_thinking_budget),
    OWN("repetition_detection", BT_API_A | BT_API_R | BT_API_S, bt_api_read_repetition),
    OWN("thinking", BT_API_M, bt_api_read_thinking),
    OWN("think", BT_API_L, bt_api_read_think),
    OWN("mirostat", BT_API_A | BT_API_R | BT_API_S, bt_api_read_mirostat),

    /* structured output */
    OWN("response_format", BT_API_O, bt_api_read_response_format),
    OWN("text", BT_API_R, bt_api_read_text),
    OWN("output_config", BT_API_M, bt_api_read_output_config),
    OWN("output_format", BT_API_M, bt_api_read_output_format),
    OWN("structured_outputs", BT_API_O | BT_API_R | BT_API_S, bt_api_read_structured_outputs),
    OWN("guided_json", BT_API_O | BT_API_R, bt_api_read_schema),
    OWN("guided_regex", BT_API_O | BT_API_R, bt_api_read_regex),
    OWN("guided_choice", BT_API_O | BT_API_R, bt_api_read_choice),
    OWN("guided_grammar", BT_API_O | BT_API_R, bt_api_read_grammar),
    OWN("guided_decoding_backend", BT_API_O | BT_API_R, bt_api_read_guided_backend),
    OWN("guided_whitespace_pattern", BT_API_O | BT_API_R, bt_api_read_whitespace_pattern),
    OWN("json_schema", BT_API_O | BT_API_R, bt_api_read_schema),
    OWN("regex", BT_API_O | BT_API_R, bt_api_read_regex),
    OWN("ebnf", BT_API_O | BT_API_R, bt_api_read_ebnf),
    OWN("grammar", BT_API_O | BT_API_R, bt_api_read_grammar),
    OWN("structural_tag", BT_API_O | BT_API_R, bt_api_read_structural_tag),
    OWN("format", BT_API_L, bt_api_read_ollama_format),
    BOOL("complete_in_max_tokens", BT_API_O | BT_API_R | BT_API_M | BT_API_S | BT_API_L, grammar.completes),
    {"guided_decoding_guide_type", BT_API_G, bt_api_read_guide, AT(grammar.guide_type), 0, 0, 0},
    {"guided_decoding_guide", BT_API_G, bt_api_read_guide, AT(grammar.guide), 0, 0, 0},

    /* how to answer */
    BOOL("stream", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, stream),
    BOOL("streaming", BT_API_G, stream),
    OWN("stream_options", BT_API_O | BT_API_I, read_stream_options),
    {"exclude_input_in_output", BT_API_G, bt_api_read_bool, AT(exclude_input_in_output), 0, 0, BT_GIVEN_EXCLUDE_INPUT},
    {"exclude_input_from_output", BT_API_G, bt_api_read_bool, AT(exclude_input_in_output), 0, 0, BT_GIVEN_EXCLUDE_INPUT},
    OWN("sequence_id", BT_API_G, read_sequence_id),
    BOOL("sequence_start", BT_API_G, sequence_start),
    BOOL("sequence_end", BT_API_G, sequence_end),
    {"cache_salt", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, read_cache_salt, AT(cache_salt), 0, 0, 0},
    OWN("priority", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, read_priority),
    U32("timeout_ms", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, timeout_ms, 0, UINT32_MAX),
    OWN("timeout", BT_API_G, read_timeout_us),
    U32("ttft_target_ms", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, target.ttft_ms, 0, INT32_MAX),
    U32("itl_target_ms", BT_API_A | BT_API_R | BT_API_M | BT_API_I | BT_API_L, target.itl_ms, 0, INT32_MAX),
    OWN("modalities", BT_API_H, read_modalities),
    OWN("tools", BT_API_H | BT_API_T | BT_API_LC, bt_api_read_tools),
    OWN("tool_choice", BT_API_H | BT_API_T | BT_API_LC, bt_api_read_tool_choice),
    OWN("tools", BT_API_M, bt_api_read_anthropic_tools),
    OWN("tool_choice", BT_API_M, bt_api_read_anthropic_tool_choice),
    NOT("parallel_tool_calls", BT_API_H | BT_API_R | BT_API_LC, tools.only_one),
    OWN("tools", BT_API_R, bt_api_read_response_tools),
    OWN("tool_choice", BT_API_R, bt_api_read_response_tool_choice),
    OWN("function_call", BT_API_H, read_function_call),
    OWN("reasoning_effort", BT_API_H, bt_api_read_effort),
    OWN("reasoning", BT_API_R, bt_api_read_reasoning),
    OWN("include", BT_API_R, bt_api_read_include),

    /* speculative decoding */
    OWN("prediction", BT_API_A | BT_API_R, bt_api_read_prediction),
    OWN("draft_input_ids", BT_API_A | BT_API_R, bt_api_read_draft_ids),
    U32("num_draft_tokens", BT_API_A | BT_API_R, max_drafts, 0, INT32_MAX),
    OWN("use_draft_logits", BT_API_G, bt_api_read_use_draft_logits),

    /* known but not supported yet: refused instead of ignored */
    {"metadata", BT_API_R, bt_api_read_metadata, AT(metadata_json), BT_JSON_OBJECT, 0, 0},
    OWN("store", BT_API_R, bt_api_read_store),
    OWN("truncation", BT_API_R, bt_api_read_truncation),
    OWN("previous_response_id", BT_API_R, bt_api_read_previous),
    NOT_YET("conversation", BT_API_R),
    NOT_YET("background", BT_API_R),
    NOT_YET("prompt", BT_API_R),
    NOT_YET("top_logprobs", BT_API_R),
    NOT_YET("echo", BT_API_H),
    NOT_YET("suffix", BT_API_C),
    NOT_YET("prompt_embeds", BT_API_C),
    NOT_YET("functions", BT_API_H),
    NOT_YET("audio", BT_API_H),
    NOT_YET("web_search_options", BT_API_H),
    NOT_YET("truncate_prompt_tokens", BT_API_O | BT_API_S),
    NOT_YET("add_special_tokens", BT_API_H),
    NOT_YET("chat_template", BT_API_H | BT_API_T),
    NOT_YET("container", BT_API_M),
    NOT_YET("mcp_servers", BT_API_M),
    NOT_YET("template", BT_API_LG),
    NOT_YET("suffix", BT_API_LG),
    NOT_YET("context", BT_API_LG),
    NOT_YET("images", BT_API_LG),
    NOT_YET("width", BT_API_LG),
    NOT_YET("height", BT_API_LG),
    NOT_YET("steps", BT_API_LG),
    NOT_YET("prompt_embedding_table", BT_API_G),
    NOT_YET("prompt_vocab_size", BT_API_G),
    OWN("lora_task_id", BT_API_G, read_lora_task),
    NOT_YET("lora_weights", BT_API_G),
    NOT_YET("lora_config", BT_API_G),
    NOT_YET("decoder_text_input", BT_API_G),
    NOT_YET("prompt_table_extra_id", BT_API_G),
    NOT_YET("image_input", BT_API_G),
    NOT_YET("image_bytes_input", BT_API_G),
    NOT_YET("image_url_input", BT_API_G),
    NOT_YET("video_bytes_input", BT_API_G),
    NOT_YET("features", BT_API_I),
    NOT_YET("kv_transfer_params", BT_API_I),
    NOT_YET("ec_transfer_params", BT_API_I),
    NOT_YET("content_parts", BT_API_I),
    NOT_YET("logprob_token_ids", BT_API_S),
    NOT_YET("skip_reading_prefix_cache", BT_API_S),
    NOT_YET("extra_args", BT_API_S),

    /* OpenAI's and Anthropic's fields for their own billing and infrastructure,
     * and for a cache that prompts share here by themselves; vLLM's for
     * tokenizers not used here, for how it holds an answer, and what it says of
     * a prompt that it rendered; Triton's, without meaning here because nothing
     * is padded. */
    IGNORED("user", BT_API_O | BT_API_R),
    IGNORED("metadata", BT_API_O | BT_API_M),
    IGNORED("cache_control", BT_API_M),
    IGNORED("keep_alive", BT_API_L),
    IGNORED("store", BT_API_O),
    IGNORED("service_tier", BT_API_O | BT_API_R | BT_API_M),
    IGNORED("safety_identifier", BT_API_O | BT_API_R),
    IGNORED("prompt_cache_key", BT_API_O | BT_API_R),
    IGNORED("prompt_cache_retention", BT_API_O | BT_API_R),
    IGNORED("spaces_between_special_tokens", BT_API_O | BT_API_S),
    IGNORED("stream_options", BT_API_R),
    IGNORED("max_tool_calls", BT_API_R),
    IGNORED("client_metadata", BT_API_R),
    IGNORED("assistant_tokens_mask", BT_API_I),
    IGNORED("token_offsets", BT_API_I),
    IGNORED("detokenize", BT_API_S),
    IGNORED("flat_logprobs", BT_API_S),
    IGNORED("output_kind", BT_API_S),
    IGNORED("skip_clone", BT_API_S),
    IGNORED("pad_id", BT_API_G),
    IGNORED("parameters", BT_API_G),
};
/* clang-format on */

const char *bt_api_nearest_field(uint32_t dialect, const char *name, size_t n)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;

    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        const char *field = fields[i].name;
        const size_t distance =
            bt_fuzzy_distance(name, n, field, strlen(field));

        if (((fields[i].dialects & dialect) != 0) &&
            (distance < best_distance)) {
            best = field;
            best_distance = distance;
        }
    }
    return best;
}

const bt_api_field_t *bt_api_find_field(uint32_t dialect, const char *name,
                                        size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        if (((fields[i].dialects & dialect) != 0) &&
            (strlen(fields[i].name) == n) &&
            (memcmp(fields[i].name, name, n) == 0)) {
            return &fields[i];
        }
    }
    return NULL;
}
