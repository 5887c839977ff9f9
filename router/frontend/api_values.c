/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/api_priv.h"

#define INVALID "invalid_request_error"

static void set_error(bt_api_error_t *error, int http_status, const char *type,
                      const char *param, const char *fmt, va_list args)
    __attribute__((format(printf, 5, 0)));

static void set_error(bt_api_error_t *error, int http_status, const char *type,
                      const char *param, const char *fmt, va_list args)
{
    error->http_status = http_status;
    error->type = type;
    error->param = param;
    error->retry_after_s = 0;
    vsnprintf(error->message, sizeof(error->message), fmt, args);
}

void bt_api_error_set(bt_api_error_t *error, int http_status, const char *type,
                      const char *param, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(error, http_status, type, param, fmt, args);
    va_end(args);
}

bt_status_t bt_api_refuse(bt_api_parse_t *parse, const char *param,
                          const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    set_error(parse->error, 400, INVALID, param, fmt, args);
    va_end(args);
    return BT_ERR_INVALID_PARAM;
}

bt_status_t bt_api_no_memory(bt_api_parse_t *parse)
{
    bt_api_error_set(parse->error, 503, "server_error", NULL,
                     "the server is short of memory, try again later");
    return BT_ERR_NO_MEMORY;
}

const char *bt_api_type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

bt_status_t bt_api_integer(bt_api_parse_t *parse, const char *name,
                           const json_t *value, double min, double max,
                           int64_t *number_p)
{
    const double real = json_number_value(value);

    if (json_is_real(value) ? (real != floor(real)) : !json_is_integer(value)) {
        return bt_api_refuse(parse, name, "%s must be an integer, got %s", name,
                             bt_api_type_of(value));
    }
    if ((real < min) || (real > max)) {
        return bt_api_refuse(parse, name,
                             "%s must be from %.0f to %.0f, got %.15g", name,
                             min, max, real);
    }
    /* |real| is at most 2^63 here; the cast of exactly 2^63 would overflow. */
    if (json_is_real(value) && (fabs(real) >= 9223372036854775808.0)) {
        return bt_api_refuse(parse, name, "%s is too large", name);
    }
    *number_p = json_is_real(value) ? (int64_t)real
                                    : (int64_t)json_integer_value(value);
    return BT_OK;
}

bt_status_t bt_api_string(bt_api_parse_t *parse, const char *name,
                          const json_t *value, size_t max_bytes, char **text_p)
{
    char *text;

    if (!json_is_string(value)) {
        return bt_api_refuse(parse, name, "%s must be a string, got %s", name,
                             bt_api_type_of(value));
    }
    if (json_string_length(value) > max_bytes) {
        return bt_api_refuse(parse, name,
                             "%s is longer than %zu bytes: it has %zu", name,
                             max_bytes, json_string_length(value));
    }
    text = bt_memdup(json_string_value(value), json_string_length(value));
    if (text == NULL) {
        return bt_api_no_memory(parse);
    }
    *text_p = text;
    return BT_OK;
}

static void *member(bt_api_parse_t *parse, const bt_api_field_t *field)
{
    return (char *)parse->request + field->offset;
}

bt_status_t bt_api_read_bool(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const json_t *value)
{
    if (!json_is_boolean(value)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be true or false, got %s", field->name,
                             bt_api_type_of(value));
    }
    *(bool *)member(parse, field) = json_is_true(value);
    return BT_OK;
}

bt_status_t bt_api_read_not(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value)
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
                                const json_t *value)
{
    (void)parse;
    (void)field;
    (void)value;
    return BT_OK;
}

bt_status_t bt_api_read_u32(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value)
{
    int64_t number = 0;
    const bt_status_t status = bt_api_integer(parse, field->name, value,
                                              field->min, field->max, &number);

    if (status == BT_OK) {
        *(uint32_t *)member(parse, field) = (uint32_t)number;
    }
    return status;
}

bt_status_t bt_api_read_i64(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value)
{
    return bt_api_integer(parse, field->name, value, field->min, field->max,
                          (int64_t *)member(parse, field));
}

bt_status_t bt_api_read_float(bt_api_parse_t *parse,
                              const bt_api_field_t *field, const json_t *value)
{
    const double real = json_number_value(value);

    if (!json_is_number(value)) {
        return bt_api_refuse(parse, field->name, "%s must be a number, got %s",
                             field->name, bt_api_type_of(value));
    }
    if (!(real >= field->min) || !(real <= field->max)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be from %g to %g, got %g", field->name,
                             field->min, field->max, real);
    }
    *(float *)member(parse, field) = (float)real;
    return BT_OK;
}

bt_status_t bt_api_read_name(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const json_t *value)
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
                             const json_t *value)
{
    char **const text_p = member(parse, field);
    const bool list = field->min == (double)JSON_ARRAY;
    char *dumped;

    if (list ? !json_is_array(value) : !json_is_object(value)) {
        return bt_api_refuse(parse, field->name, "%s must be %s, got %s",
                             field->name, list ? "a list" : "an object",
                             bt_api_type_of(value));
    }
    bt_free(*text_p);
    *text_p = NULL;
    if ((json_array_size(value) == 0) && (json_object_size(value) == 0)) {
        return BT_OK;
    }
    dumped = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
    *text_p = bt_strdup(dumped);
    free(dumped);
    return (*text_p == NULL) ? bt_api_no_memory(parse) : BT_OK;
}

/* A key of logit_bias. Written in one way only, so that no id comes twice. */
static bool is_token_id(const char *text, uint32_t *id_p)
{
    uint64_t id = 0;
    size_t n = 0;

    for (; (text[n] >= '0') && (text[n] <= '9') && (n < 10); n++) {
        id = 10 * id + (uint64_t)(text[n] - '0');
    }
    *id_p = (uint32_t)id;
    return (n > 0) && (text[n] == '\0') && ((n == 1) || (text[0] != '0')) &&
           (id <= UINT32_MAX);
}

static bt_status_t read_biases(bt_api_parse_t *parse,
                               const bt_api_field_t *field, json_t *value,
                               bt_logit_bias_t *biases)
{
    const char *key;
    json_t *bias;
    uint32_t n = 0;

    json_object_foreach(value, key, bias)
    {
        const double real = json_number_value(bias);

        if (!is_token_id(key, &biases[n].id)) {
            return bt_api_refuse(parse, field->name,
                                 "the keys of %s must be token ids, as \"5\"",
                                 field->name);
        }
        if (!json_is_number(bias) || !(fabs(real) <= BT_MAX_LOGIT_BIAS)) {
            return bt_api_refuse(parse, field->name,
                                 "%s of token %s must be a number from -100 to "
                                 "100",
                                 field->name, key);
        }
        biases[n++].bias = (float)real;
    }
    return BT_OK;
}

bt_status_t bt_api_read_logit_bias(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value)
{
    const size_t n = json_object_size(value);
    bt_logit_bias_t *biases = NULL;
    json_t *copy = NULL; /* jansson walks through no const object */
    bt_status_t status;

    if (!json_is_object(value)) {
        return bt_api_refuse(parse, field->name, "%s must be an object, got %s",
                             field->name, bt_api_type_of(value));
    }
    if (n > BT_MAX_LOGIT_BIASES) {
        return bt_api_refuse(parse, field->name, "%s has more than %d tokens",
                             field->name, BT_MAX_LOGIT_BIASES);
    }
    if (n == 0) {
        return BT_OK;
    }
    copy = json_deep_copy(value);
    biases = bt_calloc(n, sizeof(*biases));
    if ((copy == NULL) || (biases == NULL)) {
        status = bt_api_no_memory(parse);
        goto err_biases;
    }
    status = read_biases(parse, field, copy, biases);
    if (status != BT_OK) {
        goto err_biases;
    }
    json_decref(copy);
    parse->request->logit_biases = biases;
    parse->request->sampling.logit_biases = biases;
    parse->request->sampling.n_logit_biases = (uint32_t)n;
    return BT_OK;

err_biases:
    bt_free(biases);
    json_decref(copy);
    return status;
}

bt_status_t bt_api_read_unsupported(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const json_t *value)
{
    if (json_is_false(value) ||
        (json_is_number(value) && (json_number_value(value) == 0.0)) ||
        (json_is_string(value) && (json_string_length(value) == 0)) ||
        (json_is_array(value) && (json_array_size(value) == 0)) ||
        (json_is_object(value) && (json_object_size(value) == 0))) {
        return BT_OK;
    }
    return bt_api_refuse(parse, field->name, "%s is not supported yet",
                         field->name);
}
