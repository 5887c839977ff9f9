/* SPDX-License-Identifier: Apache-2.0 */
/* generate: words whose tokens get a bias, and their weights. */
#include <math.h>

#include "common/base/alloc.h"
#include "router/frontend/api_priv.h"

/* Reserves space for words and weights, whichever come first. */
static bt_status_t make_room(bt_api_parse_t *parse)
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
    return make_room(parse);
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
            return bt_api_refuse(parse, field->name,
                                 "%s must be numbers from -100 to 100, got %s",
                                 field->name, BT_API_SHOW(weight));
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
