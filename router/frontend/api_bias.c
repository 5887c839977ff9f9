/* SPDX-License-Identifier: Apache-2.0 */
/* generate: words whose tokens get a bias, and their weights. */
#include <math.h>

#include "common/base/alloc.h"
#include "router/frontend/api_priv.h"

/* Room for words and weights, whichever comes first. */
static bt_status_t make_room(bt_api_parse_t *parse)
{
    bt_api_request_t *request = parse->request;

    if (request->bias_words == NULL) {
        request->bias_words =
            bt_calloc(BT_API_MAX_BIAS_WORDS, sizeof(*request->bias_words));
    }
    return (request->bias_words != NULL) ? BT_OK : bt_api_no_memory(parse);
}

/* A list, or one by itself. */
static const json_t *element(const json_t *value, size_t i)
{
    return json_is_array(value) ? json_array_get(value, i) : value;
}

static bt_status_t begin_list(bt_api_parse_t *parse,
                              const bt_api_field_t *field, const json_t *value,
                              size_t *n_p)
{
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;

    if (n > BT_API_MAX_BIAS_WORDS) {
        return bt_api_refuse(parse, field->name, "%s has more than %d words",
                             field->name, BT_API_MAX_BIAS_WORDS);
    }
    *n_p = n;
    return make_room(parse);
}

bt_status_t bt_api_read_bias_words(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value)
{
    bt_api_request_t *request = parse->request;
    size_t n = 0;
    bt_status_t status;

    while (request->n_bias_words > 0) { /* "parameters" may have set some */
        bt_free(request->bias_words[--request->n_bias_words].text);
        request->bias_words[request->n_bias_words].text = NULL;
    }
    if (json_is_string(value) && (json_string_length(value) == 0)) {
        return BT_OK; /* Triton's way to say none */
    }
    status = begin_list(parse, field, value, &n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        status =
            bt_api_string(parse, field->name, element(value, i),
                          BT_API_MAX_STOP_BYTES, &request->bias_words[i].text);
        request->n_bias_words += (status == BT_OK) ? 1 : 0;
    }
    return status;
}

bt_status_t bt_api_read_bias_weights(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const json_t *value)
{
    size_t n = 0;
    bt_status_t status;

    parse->n_bias_weights = 0;
    if (json_is_string(value) && (json_string_length(value) == 0)) {
        return BT_OK;
    }
    status = begin_list(parse, field, value, &n);
    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        const json_t *weight = element(value, i);
        const double real = json_number_value(weight);

        if (!json_is_number(weight) || !(fabs(real) <= BT_MAX_LOGIT_BIAS)) {
            return bt_api_refuse(parse, field->name,
                                 "%s must be numbers from -100 to 100",
                                 field->name);
        }
        parse->request->bias_words[i].bias = (float)real;
        parse->n_bias_weights++;
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
