/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/api_priv.h"

__attribute__((format(printf, 4, 0))) static void
set_error(bt_api_error_t *error, int http_status, const char *param,
          const char *fmt, va_list args)
{
    *error = (bt_api_error_t){
        .http_status = http_status,
        .type = (http_status >= 500)   ? "server_error"
                : (http_status == 429) ? "rate_limit_error"
                                       : "invalid_request_error",
        .param = param,
    };
    vsnprintf(error->message, sizeof(error->message), fmt, args);
}

void bt_api_error_set(bt_api_error_t *error, int http_status, const char *param,
                      const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(error, http_status, param, fmt, args);
    va_end(args);
}

bt_status_t bt_api_error_invalid(bt_api_error_t *error, const char *param,
                                 const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(error, 400, param, fmt, args);
    va_end(args);
    return BT_ERR_INVALID_PARAM;
}

bt_status_t bt_api_error_no_memory(bt_api_error_t *error)
{
    bt_api_error_set(error, 503, NULL,
                     "out of memory for this request, try again later");
    return BT_ERR_NO_MEMORY;
}

/* Returns the longest prefix of at most @a n bytes that splits no character. */
static size_t cut(const char *text, size_t bytes, size_t n)
{
    if (bytes <= n) {
        return bytes;
    }
    while ((n > 0) && (((unsigned char)text[n] & 0xC0) == 0x80)) {
        n--;
    }
    return n;
}

static const char *show_text(const bt_json_node_t *value,
                             char shown[BT_API_SHOWN_BYTES])
{
    static const char zero[] = "\\u0000"; /* the form in which it can be sent */
    const bool quoted = value->kind == BT_JSON_STRING;
    const size_t n = cut(value->text, value->len, 64);
    size_t at = 0;
    size_t i = 0;

    if (quoted) {
        shown[at++] = '"';
    }
    for (; (i < n) && (at + sizeof(zero) < 72); i++) {
        if (value->text[i] == '\0') {
            memcpy(shown + at, zero, sizeof(zero) - 1);
            at += sizeof(zero) - 1;
        } else {
            shown[at++] = value->text[i];
        }
    }
    snprintf(shown + at, BT_API_SHOWN_BYTES - at, "%s%s",
             (i < value->len) ? "..." : "", quoted ? "\"" : "");
    return shown;
}

const char *bt_api_show(const bt_json_node_t *value,
                        char shown[BT_API_SHOWN_BYTES])
{
    if (value == NULL) {
        return "nothing";
    }
    switch ((bt_json_kind_t)value->kind) {
    case BT_JSON_OBJECT:
        return "an object";
    case BT_JSON_ARRAY:
        return "an array";
    case BT_JSON_NULL:
        return "null";
    case BT_JSON_TRUE:
        return "true";
    case BT_JSON_FALSE:
        return "false";
    default:
        return show_text(value, shown);
    }
}

bt_status_t bt_api_refuse_kind(bt_api_parse_t *parse, const char *param,
                               const char *kind, const bt_json_node_t *value)
{
    return bt_api_refuse(parse, param, "%s must be %s, got %s", param, kind,
                         BT_API_SHOW(value));
}

/* ---- numbers ---- */

bool bt_api_real(const bt_json_node_t *value, double *real_p)
{
    if (!bt_json_is_kind(value, BT_JSON_NUMBER)) {
        return false;
    }
    if (!bt_json_as_double(value, real_p)) {
        *real_p = (value->text[0] == '-') ? -INFINITY : INFINITY;
    }
    return true;
}

bt_status_t bt_api_integer(bt_api_parse_t *parse, const char *name,
                           const bt_json_node_t *value, int64_t min,
                           int64_t max, int64_t *number_p)
{
    bt_json_whole_t whole;
    int64_t number = 0;
    bool fits;

    if (!bt_json_as_whole(value, &whole)) {
        return bt_api_refuse_kind(parse, name, "an integer", value);
    }
    fits = whole.fits && (whole.magnitude <= (uint64_t)INT64_MAX);
    if (fits) {
        number = whole.negative ? -(int64_t)whole.magnitude
                                : (int64_t)whole.magnitude;
    }
    if (!fits || (number < min) || (number > max)) {
        return bt_api_refuse(
            parse, name, "%s must be from %" PRId64 " to %" PRId64 ", got %s",
            name, min, max, BT_API_SHOW(value));
    }
    *number_p = number;
    return BT_OK;
}

bt_status_t bt_api_integer_mod_2_64(bt_api_parse_t *parse, const char *name,
                                    const bt_json_node_t *value,
                                    uint64_t *number_p)
{
    bt_json_whole_t whole;

    if (!bt_json_as_whole(value, &whole)) {
        return bt_api_refuse_kind(parse, name, "an integer", value);
    }
    *number_p = whole.negative ? 0 - whole.magnitude : whole.magnitude;
    return BT_OK;
}

/* ---- texts ---- */

bt_status_t bt_api_raw(bt_api_parse_t *parse, const bt_json_node_t *value,
                       char **text_p)
{
    char *text = bt_memdup(value->text, value->len);
    bool in_string = false;
    size_t n = 0;

    if (text == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    for (size_t i = 0; i < value->len; i++) {
        const char c = value->text[i];

        if (in_string && (c == '\\')) {
            text[n++] = c;
            text[n++] = value->text[++i];
            continue;
        }
        in_string = in_string != (c == '"');
        if (in_string || (strchr(" \t\r\n", c) == NULL)) {
            text[n++] = c;
        }
    }
    text[n] = '\0';
    *text_p = text;
    return BT_OK;
}

void bt_api_put_value(bt_json_t *json, const char *key,
                      const bt_json_node_t *value)
{
    switch ((bt_json_kind_t)value->kind) {
    case BT_JSON_STRING:
        bt_json_strn(json, key, value->text, value->len);
        break;
    case BT_JSON_NULL:
        bt_json_null(json, key);
        break;
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        bt_json_bool(json, key, value->kind == BT_JSON_TRUE);
        break;
    default:
        bt_json_rawn(json, key, value->text, value->len);
        break;
    }
}

bt_status_t bt_api_string(bt_api_parse_t *parse, const char *name,
                          const bt_json_node_t *value, size_t max_bytes,
                          char **text_p)
{
    char *text;

    if (!bt_json_is_kind(value, BT_JSON_STRING)) {
        return bt_api_refuse_kind(parse, name, "a string", value);
    }
    if (value->len > max_bytes) {
        return bt_api_refuse(parse, name,
                             "%s is longer than %zu bytes: it has %u", name,
                             max_bytes, value->len);
    }
    if (memchr(value->text, '\0', value->len) != NULL) {
        return bt_api_refuse(parse, name,
                             "%s has a zero character (\\u0000), which is not "
                             "supported here",
                             name);
    }
    text = bt_memdup(value->text, value->len);
    if (text == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    *text_p = text;
    return BT_OK;
}

/* ---- readers for the table ---- */

static void *member(bt_api_parse_t *parse, const bt_api_field_t *field)
{
    return (char *)parse->request + field->offset;
}

bt_status_t bt_api_read_bool(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    if (!bt_json_is_bool(value)) {
        return bt_api_refuse_kind(parse, field->name, "true or false", value);
    }
    *(bool *)member(parse, field) = value->kind == BT_JSON_TRUE;
    parse->request->given |= field->given;
    return BT_OK;
}

bt_status_t bt_api_read_not(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *value)
{
    const bt_status_t status = bt_api_read_bool(parse, field, value);
    bool *const flag = member(parse, field);

    if (status == BT_OK) {
        *flag = !*flag;
    }
    return status;
}

bt_status_t bt_api_read_ignored(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const bt_json_node_t *value)
{
    (void)parse;
    (void)field;
    (void)value;
    return BT_OK;
}

bt_status_t bt_api_read_u32(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *value)
{
    int64_t number = 0;
    const bt_status_t status =
        bt_api_integer(parse, field->name, value, (int64_t)field->min,
                       (int64_t)field->max, &number);

    if (status == BT_OK) {
        *(uint32_t *)member(parse, field) = (uint32_t)number;
    }
    return status;
}

bt_status_t bt_api_read_float(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value)
{
    double real = 0.0;

    if (!bt_api_real(value, &real)) {
        return bt_api_refuse_kind(parse, field->name, "a number", value);
    }
    if (!(real >= field->min) || !(real <= field->max)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be from %g to %g, got %s", field->name,
                             field->min, field->max, BT_API_SHOW(value));
    }
    *(float *)member(parse, field) = (float)real;
    parse->request->given |= field->given;
    return BT_OK;
}

bt_status_t bt_api_read_name(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    char **const text_p = member(parse, field);
    char *text = NULL;
    const bt_status_t status =
        bt_api_string(parse, field->name, value, BT_API_MAX_NAME_BYTES, &text);

    if (status == BT_OK) {
        bt_free(*text_p); /* "parameters" may have set it */
        *text_p = text;
    }
    return status;
}

bt_status_t bt_api_read_json(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value)
{
    char **const text_p = member(parse, field);
    const bt_json_kind_t kind = (bt_json_kind_t)field->min;

    if (!bt_json_is_kind(value, kind)) {
        return bt_api_refuse_kind(
            parse, field->name,
            (kind == BT_JSON_ARRAY) ? "a list" : "an object", value);
    }
    bt_free(*text_p);
    *text_p = NULL;
    return (value->n == 0) ? BT_OK : bt_api_raw(parse, value, text_p);
}

/* Reads a key of logit_bias. Only one spelling is valid, so no id appears
 * twice. */
static bool is_token_id(const bt_json_node_t *key, uint32_t *id_p)
{
    uint64_t id = 0;
    size_t n = 0;

    for (; (n < key->len) && (key->text[n] >= '0') && (key->text[n] <= '9') &&
           (n < 10);
         n++) {
        id = 10 * id + (uint64_t)(key->text[n] - '0');
    }
    *id_p = (uint32_t)id;
    return (n > 0) && (n == key->len) && ((n == 1) || (key->text[0] != '0')) &&
           (id <= UINT32_MAX);
}

static bt_status_t read_biases(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value,
                               bt_logit_bias_t *biases, uint32_t *n_p)
{
    const bt_json_node_t *key = bt_json_first(value);
    uint32_t n = 0;

    for (uint32_t i = 0; i < value->n;
         i++, key = bt_json_next(parse->doc, key + 1)) {
        double real = 0.0;

        if (!bt_json_counts(key)) {
            continue;
        }
        if (!is_token_id(key, &biases[n].id)) {
            return bt_api_refuse(parse, field->name,
                                 "the keys of %s must be token ids, as \"5\", "
                                 "got %s",
                                 field->name, BT_API_SHOW(key));
        }
        if (!bt_api_real(key + 1, &real) ||
            !(fabs(real) <= BT_MAX_LOGIT_BIAS)) {
            return bt_api_refuse(parse, field->name,
                                 "%s of token %u must be a number from -100 to "
                                 "100, got %s",
                                 field->name, biases[n].id,
                                 BT_API_SHOW(key + 1));
        }
        biases[n++].bias = (float)real;
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_api_read_logit_bias(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    bt_logit_bias_t *biases;
    uint32_t n = 0;
    bt_status_t status;

    if (!bt_json_is_kind(value, BT_JSON_OBJECT)) {
        return bt_api_refuse_kind(parse, field->name, "an object", value);
    }
    if (value->n > BT_MAX_LOGIT_BIASES) {
        return bt_api_refuse(parse, field->name,
                             "%s has %u tokens, at most %d are allowed",
                             field->name, value->n, BT_MAX_LOGIT_BIASES);
    }
    if (value->n == 0) {
        return BT_OK;
    }
    biases = bt_calloc(value->n, sizeof(*biases));
    if (biases == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    status = read_biases(parse, field, value, biases, &n);
    if (status != BT_OK) {
        bt_free(biases);
        return status;
    }
    parse->request->logit_biases = biases;
    parse->request->sampling.logit_biases = biases;
    parse->request->sampling.n_logit_biases = n;
    return BT_OK;
}

bt_status_t bt_api_read_unsupported(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value)
{
    double real = 1.0;

    if ((value->kind == BT_JSON_FALSE) ||
        (bt_api_real(value, &real) && (fpclassify(real) == FP_ZERO)) ||
        ((value->kind == BT_JSON_STRING) && (value->len == 0)) ||
        ((value->kind >= BT_JSON_ARRAY) && (value->n == 0))) {
        return BT_OK;
    }
    return bt_api_refuse(parse, field->name, "%s is not supported yet, got %s",
                         field->name, BT_API_SHOW(value));
}

/* ---- generate: words whose tokens get a bias, and their weights ---- */

/* Reserves space for words and weights, whichever come first. */
static bt_status_t reserve_words(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;

    if (request->bias_words == NULL) {
        request->bias_words =
            bt_calloc(BT_API_MAX_BIAS_WORDS, sizeof(*request->bias_words));
    }
    return (request->bias_words != NULL) ? BT_OK
                                         : bt_api_error_no_memory(parse->error);
}

/* Accepts a list, or a single element. */
static bt_status_t begin_list(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value,
                              const bt_json_node_t **first_p, size_t *n_p)
{
    const bool list = bt_json_is_kind(value, BT_JSON_ARRAY);
    const size_t n = list ? value->n : 1;

    if (n > BT_API_MAX_BIAS_WORDS) {
        return bt_api_refuse(parse, field->name,
                             "%s has %zu words, at most %d are allowed",
                             field->name, n, BT_API_MAX_BIAS_WORDS);
    }
    *first_p = list ? bt_json_first(value) : value;
    *n_p = n;
    return reserve_words(parse);
}

bt_status_t bt_api_read_bias_words(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value)
{
    bt_api_request_t *request = parse->request;
    const bt_json_node_t *word = NULL;
    size_t n = 0;
    bt_status_t status;

    while (request->n_bias_words > 0) { /* "parameters" may have set some */
        bt_free(request->bias_words[--request->n_bias_words].text);
        request->bias_words[request->n_bias_words].text = NULL;
    }
    if (bt_json_is(value, "")) {
        return BT_OK; /* Triton's way to say none */
    }
    status = begin_list(parse, field, value, &word, &n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status = bt_api_string(parse, field->name, word, BT_API_MAX_STOP_BYTES,
                               &request->bias_words[i].text);
        request->n_bias_words += (status == BT_OK) ? 1 : 0;
        word = bt_json_next(parse->doc, word);
    }
    return status;
}

bt_status_t bt_api_read_bias_weights(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value)
{
    const bt_json_node_t *weight = NULL;
    size_t n = 0;
    bt_status_t status;

    parse->n_bias_weights = 0;
    if (bt_json_is(value, "")) {
        return BT_OK;
    }
    status = begin_list(parse, field, value, &weight, &n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        double real = 0.0;

        if (!bt_api_real(weight, &real) || !(fabs(real) <= BT_MAX_LOGIT_BIAS)) {
            return bt_api_refuse_kind(parse, field->name,
                                      "numbers from -100 to 100", weight);
        }
        parse->request->bias_words[i].bias = (float)real;
        parse->n_bias_weights++;
        weight = bt_json_next(parse->doc, weight);
    }
    return status;
}

bt_status_t bt_api_check_biases(bt_api_parse_t *parse)
{
    const uint32_t n_words = parse->request->n_bias_words;

    if (n_words != parse->n_bias_weights) {
        return bt_api_refuse(parse, "embedding_bias_weights",
                             "embedding_bias_words has %u words and "
                             "embedding_bias_weights %u weights: each word "
                             "needs one",
                             n_words, parse->n_bias_weights);
    }
    return BT_OK;
}

/* ---- token ids ---- */

bt_status_t bt_api_ids(bt_api_parse_t *parse, const char *name,
                       const bt_json_node_t *value, uint32_t **ids_p,
                       uint32_t *n_p)
{
    const bool is_list = bt_json_is_kind(value, BT_JSON_ARRAY);
    const uint32_t n = is_list ? value->n : 1;
    const bt_json_node_t *item = is_list ? bt_json_first(value) : value;
    bt_status_t status = BT_OK;
    uint32_t *ids;

    if (!is_list && (parse->request->dialect != BT_API_GENERATE)) {
        return bt_api_refuse_kind(parse, name, "a list of token ids", value);
    }
    ids = bt_calloc((size_t)n + 1, sizeof(*ids));
    if (ids == NULL) {
        return bt_api_error_no_memory(parse->error);
    }
    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        int64_t id = 0;

        status = bt_api_integer(parse, name, item, 0, INT32_MAX, &id);
        ids[i] = (uint32_t)id;
        item = is_list ? bt_json_next(parse->doc, item) : item;
    }
    if ((status != BT_OK) || (n == 0)) {
        bt_free(ids);
        ids = NULL;
    }
    if (status == BT_OK) {
        bt_free(*ids_p); /* "parameters" may have set some */
        *ids_p = ids;
        *n_p = n;
    }
    return status;
}
