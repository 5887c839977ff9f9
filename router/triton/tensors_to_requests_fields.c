/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/api/perf_metrics.h"
#include "router/api/sampling.h"
#include "router/triton/tensors_to_requests_priv.h"

bt_status_t bt_lower_refuse(bt_lower_t *l, const char *name, const char *fmt,
                            ...)
{
    char text[sizeof(l->error->message) - BT_TENSOR_NAME_BYTES - 16];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return BT_API_INVALID(l->error, "input '%s' %s", name, text);
}

/* ---- single values ---- */

static bt_status_t one_value(bt_lower_t *l, const bt_slice_t *s)
{
    return (s->n == 1)
               ? BT_OK
               : bt_lower_refuse(
                     l, s->name,
                     "must have one element for each row of the batch, got "
                     "%" PRIu64,
                     s->n);
}

#define SHOWN_BYTES 32

/* Prints a value of a tensor for an error, with full precision. */
static const char *show_at(const bt_tensor_t *tensor, uint64_t i,
                           char shown[SHOWN_BYTES])
{
    uint64_t bits = 0;
    int64_t integer = 0;
    double real = 0.0;

    if (bt_dtype_is_float(tensor->dtype) &&
        (bt_tensor_f64(tensor, i, &real) == BT_OK)) {
        snprintf(shown, SHOWN_BYTES, "%.*g",
                 (tensor->dtype == BT_DTYPE_FP64) ? 17 : 9, real);
    } else if (bt_tensor_i64(tensor, i, &integer) == BT_OK) {
        snprintf(shown, SHOWN_BYTES, "%" PRId64, integer);
    } else if (bt_tensor_u64(tensor, i, &bits) == BT_OK) {
        snprintf(shown, SHOWN_BYTES, "%" PRIu64, bits);
    } else {
        snprintf(shown, SHOWN_BYTES, "%s", bt_dtype_name(tensor->dtype));
    }
    return shown;
}

static bt_status_t integer_at(bt_lower_t *l, const bt_slice_t *s, uint64_t i,
                              int64_t min, int64_t max, int64_t *value_p)
{
    int64_t value = 0;
    const bt_status_t status = bt_tensor_i64(s->tensor, s->from + i, &value);

    if (status == BT_ERR_INVALID_PARAM) {
        return bt_lower_refuse(l, s->name,
                               "must be an integer, got a value of %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    if ((status != BT_OK) || (value < min) || (value > max)) {
        return bt_lower_refuse(
            l, s->name, "must be from %" PRId64 " to %" PRId64 ", got %s", min,
            max, show_at(s->tensor, s->from + i, (char[SHOWN_BYTES]){0}));
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_lower_integer(bt_lower_t *l, const bt_slice_t *s, int64_t min,
                             int64_t max, int64_t *value_p)
{
    const bt_status_t status = one_value(l, s);

    return (status == BT_OK) ? integer_at(l, s, 0, min, max, value_p) : status;
}

static bt_status_t real_at(bt_lower_t *l, const bt_slice_t *s, uint64_t i,
                           double min, double max, float *value_p)
{
    double value = 0.0;

    if (bt_tensor_f64(s->tensor, s->from + i, &value) != BT_OK) {
        return bt_lower_refuse(l, s->name, "must be a number, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    if (!(value >= min) || !(value <= max)) {
        return bt_lower_refuse(
            l, s->name, "must be from %g to %g, got %s", min, max,
            show_at(s->tensor, s->from + i, (char[SHOWN_BYTES]){0}));
    }
    *value_p = (float)value;
    return BT_OK;
}

static bt_status_t real_of(bt_lower_t *l, const bt_slice_t *s, double min,
                           double max, float *value_p)
{
    const bt_status_t status = one_value(l, s);

    return (status == BT_OK) ? real_at(l, s, 0, min, max, value_p) : status;
}

static bt_status_t bool_of(bt_lower_t *l, const bt_slice_t *s, bool *value_p)
{
    const bt_status_t status = one_value(l, s);

    if (status != BT_OK) {
        return status;
    }
    if (bt_tensor_bool(s->tensor, s->from, value_p) != BT_OK) {
        return bt_lower_refuse(l, s->name, "must be BOOL, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    return BT_OK;
}

/* ---- strings ---- */

/* Iterates over the strings of a slice; @return false: there are no more. */
typedef struct strings {
    const bt_slice_t *slice;
    size_t at;
    uint64_t i;
} strings_t;

static bt_status_t strings_begin(bt_lower_t *l, const bt_slice_t *s,
                                 strings_t *w)
{
    const char *text;
    size_t bytes;

    if (s->tensor->dtype != BT_DTYPE_BYTES) {
        return bt_lower_refuse(l, s->name, "must be BYTES, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    *w = (strings_t){.slice = s};
    for (uint64_t i = 0; i < s->from; i++) {
        (void)bt_tensor_next_bytes(s->tensor, &w->at, &text, &bytes);
    }
    return BT_OK;
}

static bool strings_next(strings_t *w, const char **text_p, size_t *bytes_p)
{
    return (w->i++ < w->slice->n) &&
           bt_tensor_next_bytes(w->slice->tensor, &w->at, text_p, bytes_p);
}

static bt_status_t copy_string(bt_lower_t *l, const bt_slice_t *s,
                               const char *text, size_t bytes, size_t max_bytes,
                               char **copy_p)
{
    char *copy;

    if (bytes > max_bytes) {
        return bt_lower_refuse(l, s->name,
                               "is longer than %zu bytes: it has %zu",
                               max_bytes, bytes);
    }
    if (memchr(text, '\0', bytes) != NULL) {
        return bt_lower_refuse(l, s->name, "holds a zero character");
    }
    copy = bt_memdup(text, bytes);
    if (copy == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    *copy_p = copy;
    return BT_OK;
}

static bt_status_t read_words(bt_lower_t *l, const bt_slice_t *s, char **words,
                              uint32_t *n_p, uint32_t max)
{
    strings_t w;
    const char *text;
    size_t bytes;
    bt_status_t status = strings_begin(l, s, &w);

    while ((status == BT_OK) && strings_next(&w, &text, &bytes)) {
        if (bytes == 0) {
            continue; /* Triton's notation for none */
        }
        if (*n_p == max) {
            return bt_lower_refuse(l, s->name, "has more than %u words", max);
        }
        status =
            copy_string(l, s, text, bytes, BT_API_MAX_STOP_BYTES, &words[*n_p]);
        *n_p += (status == BT_OK) ? 1 : 0;
    }
    return status;
}

/* ---- prompts ---- */

/* Reads the single string of a slice; an empty slice has no bytes. */
static bt_status_t one_string(bt_lower_t *l, const bt_slice_t *s,
                              const char **text_p, size_t *bytes_p)
{
    strings_t w;
    bt_status_t status = one_value(l, s);

    if (status == BT_OK) {
        status = strings_begin(l, s, &w);
    }
    if ((status == BT_OK) && !strings_next(&w, text_p, bytes_p)) {
        *bytes_p = 0;
    }
    return status;
}

/* Zero characters are valid text. */
static bt_status_t take_text(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_prompt_t *prompt = &l->row->prompts[0];
    const char *text = NULL;
    size_t bytes = 0;
    const bt_status_t status = one_string(l, s, &text, &bytes);

    if (status != BT_OK) {
        return status;
    }
    if (bytes == 0) {
        return bt_lower_refuse(l, s->name, "is empty");
    }
    prompt->text = bt_memdup(text, bytes);
    prompt->text_bytes = bytes;
    return (prompt->text != NULL) ? BT_OK : bt_api_error_no_memory(l->error);
}

static bt_status_t take_decoder_text(bt_lower_t *l, const bt_slice_t *s)
{
    const char *text = NULL;
    size_t bytes = 0;
    const bt_status_t status = one_string(l, s, &text, &bytes);

    if ((status != BT_OK) || (bytes == 0)) {
        return status;
    }
    return copy_string(l, s, text, bytes, s->tensor->bytes,
                       &l->out->decoder_texts[l->row - l->out->rows]);
}

static bt_status_t take_ids(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_prompt_t *prompt = &l->row->prompts[0];
    uint64_t n = s->n;
    bt_status_t status = BT_OK;

    if (l->has_n_ids && (l->n_ids > n)) {
        return bt_lower_refuse(
            l, s->name,
            "has %" PRIu64 " ids a row, fewer than the %" PRIu64 " that count",
            n, l->n_ids);
    }
    n = l->has_n_ids ? l->n_ids : n;
    if (n == 0) {
        return bt_lower_refuse(l, s->name, "is empty");
    }
    prompt->ids = bt_calloc((size_t)n, sizeof(*prompt->ids));
    if (prompt->ids == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    prompt->n_ids = (size_t)n;
    for (uint64_t i = 0; (i < n) && (status == BT_OK); i++) {
        int64_t id = 0;

        status = integer_at(l, s, i, 0, INT32_MAX, &id);
        prompt->ids[i] = (uint32_t)id;
    }
    return status;
}

/* The answer that a client expects, up to the first id below 0. */
static bt_status_t take_draft_ids(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_request_t *row = l->row;

    if (s->n == 0) {
        return BT_OK;
    }
    row->draft_ids = bt_calloc((size_t)s->n, sizeof(*row->draft_ids));
    if (row->draft_ids == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    for (uint64_t i = 0; i < s->n; i++) {
        int64_t id = 0;
        const bt_status_t status =
            integer_at(l, s, i, INT32_MIN, INT32_MAX, &id);

        if (status != BT_OK) {
            return status;
        }
        if (id < 0) {
            break;
        }
        row->draft_ids[row->n_draft_ids++] = (uint32_t)id;
    }
    return BT_OK;
}

/* Drafts are accepted where they equal the sampled token: 1. A lower threshold
 * would change the answer. */
static bt_status_t take_draft_threshold(bt_lower_t *l, const bt_slice_t *s)
{
    float threshold = 0;
    const bt_status_t status = real_of(l, s, 0, 1, &threshold);

    if ((status == BT_OK) && (threshold > 0) && (threshold < 1)) {
        return bt_lower_refuse(l, s->name,
                               "below 1 would change the answer, got %g",
                               (double)threshold);
    }
    return status;
}

/* ---- words as ids ---- */

/*
 * ids      5  6  7  0      [5, 6] and [7]: where each ends
 * ends     2  3 -1 -1
 */
static bt_status_t read_word_ids(bt_lower_t *l, const bt_slice_t *s,
                                 bt_bad_word_t **words_p, uint32_t *n_p,
                                 uint32_t max)
{
    const uint64_t width = s->n / 2;
    bt_bad_word_t *words;
    int64_t from = 0;

    if ((s->n_dims < 2) || (s->dims[s->n_dims - 2] != 2) ||
        (s->n != 2 * s->dims[s->n_dims - 1])) {
        return bt_lower_refuse(
            l, s->name,
            "must have the shape [2, n]: ids, and where each word of "
            "them ends");
    }
    words = bt_calloc(max, sizeof(*words));
    if (words == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    bt_free(*words_p);
    *words_p = words;
    *n_p = 0;
    for (uint64_t k = 0; k < width; k++) {
        int64_t end = 0;
        bt_status_t status =
            integer_at(l, s, width + k, -1, (int64_t)width, &end);

        if ((status != BT_OK) || (end < 0)) {
            return status;
        }
        if ((end <= from) || (end - from > BT_MAX_BAD_WORD_TOKENS) ||
            (*n_p == max)) {
            return bt_lower_refuse(
                l, s->name, "may have up to %u words of 1 to %d ids each", max,
                BT_MAX_BAD_WORD_TOKENS);
        }
        for (int64_t i = from; (i < end) && (status == BT_OK); i++) {
            int64_t id = 0;

            status = integer_at(l, s, (uint64_t)i, 0, INT32_MAX, &id);
            words[*n_p].ids[i - from] = (uint32_t)id;
        }
        if (status != BT_OK) {
            return status;
        }
        words[(*n_p)++].n = (uint32_t)(end - from);
        from = end;
    }
    return BT_OK;
}

static bt_status_t take_bad_ids(bt_lower_t *l, const bt_slice_t *s)
{
    return read_word_ids(l, s, &l->row->bad_ids, &l->row->n_bad_ids,
                         BT_MAX_BAD_WORDS);
}

static bt_status_t take_stop_ids(bt_lower_t *l, const bt_slice_t *s)
{
    return read_word_ids(l, s, &l->row->stop_ids, &l->row->n_stop_ids,
                         BT_API_MAX_BIAS_WORDS);
}

static bt_status_t take_bad_words(bt_lower_t *l, const bt_slice_t *s)
{
    return read_words(l, s, l->row->bad_words, &l->row->n_bad_words,
                      BT_MAX_BAD_WORDS);
}

static bt_status_t take_stop_words(bt_lower_t *l, const bt_slice_t *s)
{
    return read_words(l, s, l->row->stops, &l->row->n_stops, BT_API_MAX_STOPS);
}

/* ---- biases ---- */

/* One bias for each token of the vocabulary. */
static bt_status_t take_bias(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_request_t *row = l->row;
    uint32_t n = 0;

    if (s->n > BT_MAX_DENSE_BIASES) {
        return bt_lower_refuse(l, s->name, "has more than %u values",
                               BT_MAX_DENSE_BIASES);
    }
    bt_free(row->logit_biases);
    row->logit_biases = bt_calloc((size_t)s->n + 1, sizeof(bt_logit_bias_t));
    if (row->logit_biases == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    for (uint64_t i = 0; i < s->n; i++) {
        float bias = 0.0f;
        const bt_status_t status = real_at(l, s, i, -(double)BT_MAX_LOGIT_BIAS,
                                           (double)BT_MAX_LOGIT_BIAS, &bias);

        if (status != BT_OK) {
            return status;
        }
        if (fpclassify(bias) != FP_ZERO) {
            row->logit_biases[n].id = (uint32_t)i;
            row->logit_biases[n++].bias = bias;
        }
    }
    row->sampling.logit_biases = row->logit_biases;
    row->sampling.n_logit_biases = n;
    return BT_OK;
}

static bt_status_t note_bias_words(bt_lower_t *l, const bt_slice_t *s)
{
    l->bias_words = *s;
    return BT_OK;
}

static bt_status_t note_bias_weights(bt_lower_t *l, const bt_slice_t *s)
{
    l->bias_weights = *s;
    return BT_OK;
}

/* An empty word has no tokens: its weight is ignored. */
bt_status_t bt_lower_join_biases(bt_lower_t *l)
{
    const bt_slice_t *s = &l->bias_words;
    bt_api_request_t *row = l->row;
    strings_t w;
    const char *text;
    size_t bytes;
    bt_status_t status;

    if (s->n != l->bias_weights.n) {
        return bt_lower_refuse(
            l, (s->name != NULL) ? s->name : l->bias_weights.name,
            "needs a weight for each word: there are %" PRIu64 " words and "
            "%" PRIu64 " weights",
            s->n, l->bias_weights.n);
    }
    if (s->n == 0) {
        return BT_OK;
    }
    if (s->n > BT_API_MAX_BIAS_WORDS) {
        return bt_lower_refuse(l, s->name, "has more than %d words",
                               BT_API_MAX_BIAS_WORDS);
    }
    row->bias_words = bt_calloc((size_t)s->n, sizeof(*row->bias_words));
    if (row->bias_words == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    status = strings_begin(l, s, &w);
    for (uint64_t i = 0; (status == BT_OK) && strings_next(&w, &text, &bytes);
         i++) {
        bt_api_bias_word_t *word = &row->bias_words[i];

        status = real_at(l, &l->bias_weights, i, -(double)BT_MAX_LOGIT_BIAS,
                         (double)BT_MAX_LOGIT_BIAS, &word->bias);
        if (status == BT_OK) {
            status = copy_string(l, s, text, bytes, BT_API_MAX_STOP_BYTES,
                                 &word->text);
        }
        row->n_bias_words += (status == BT_OK) ? 1 : 0;
    }
    return status;
}

/* ---- sampling ---- */

static bt_status_t take_max_tokens(bt_lower_t *l, const bt_slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = bt_lower_integer(l, s, 1, INT32_MAX, &value);

    l->row->max_tokens = (uint32_t)value;
    l->row->has_max_tokens = true;
    return status;
}

static bt_status_t take_end_id(bt_lower_t *l, const bt_slice_t *s)
{
    bt_sampling_t *sampling = &l->row->sampling;

    if (s->n > BT_MAX_GIVEN_END_IDS) {
        return bt_lower_refuse(l, s->name, "has more than %d ids a row",
                               BT_MAX_GIVEN_END_IDS);
    }
    sampling->n_end_ids = 0;
    for (uint64_t i = 0; i < s->n; i++) {
        int64_t id = -1;
        const bt_status_t status = integer_at(l, s, i, -1, INT32_MAX, &id);

        if (status != BT_OK) {
            return status;
        }
        if (id >= 0) { /* -1: not given */
            sampling->end_ids[sampling->n_end_ids++] = (uint32_t)id;
        }
    }
    if ((l->row == l->out->rows) && (sampling->n_end_ids > 0)) {
        l->out->end_id = (int32_t)sampling->end_ids[0];
    }
    return BT_OK;
}

static bt_status_t take_pad_id(bt_lower_t *l, const bt_slice_t *s)
{
    int64_t id = -1;
    const bt_status_t status = bt_lower_integer(l, s, -1, INT32_MAX, &id);

    if (l->row == l->out->rows) {
        l->out->pad_id = (int32_t)id;
    }
    return status;
}

static bt_status_t take_top_k(bt_lower_t *l, const bt_slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = bt_lower_integer(l, s, -1, INT32_MAX, &value);

    l->row->sampling.top_k = (value < 0) ? 0 : (uint32_t)value;
    return status;
}

static bt_status_t take_top_p(bt_lower_t *l, const bt_slice_t *s)
{
    float *top_p = &l->row->sampling.top_p;
    const bt_status_t status = real_of(l, s, 0, 1, top_p);

    if (*top_p > 0.0f) {
        l->row->given |= BT_GIVEN_TOP_P;
    } else {
        *top_p = 1.0f; /* Triton's clients send 0 for off */
    }
    return status;
}

static bt_status_t take_temperature(bt_lower_t *l, const bt_slice_t *s)
{
    float *temperature = &l->row->sampling.temperature;
    const bt_status_t status = real_of(l, s, 0, 100, temperature);

    *temperature = bt_sampling_temperature(*temperature);
    l->row->given |= BT_GIVEN_TEMPERATURE;
    return status;
}

static bt_status_t take_seed(bt_lower_t *l, const bt_slice_t *s)
{
    const bt_status_t status = one_value(l, s);

    if (status != BT_OK) {
        return status;
    }
    if (bt_tensor_u64(s->tensor, s->from, &l->row->sampling.seed) != BT_OK) {
        return bt_lower_refuse(l, s->name, "must be an integer");
    }
    l->row->has_seed = true;
    return BT_OK;
}

/* ---- form of the output ---- */

static bt_status_t take_stream(bt_lower_t *l, const bt_slice_t *s)
{
    bool on = false;
    const bt_status_t status = bool_of(l, s, &on);

    l->out->stream = l->out->stream || on;
    return status;
}

bt_status_t bt_lower_take_stop(bt_lower_t *l, const bt_slice_t *s)
{
    bool on = false;
    const bt_status_t status = bool_of(l, s, &on);

    l->out->stop = l->out->stop || on;
    return status;
}

/* ---- beam search ---- */

static bt_status_t take_length_penalty(bt_lower_t *l, const bt_slice_t *s)
{
    l->row->beams.has_length_penalty = true;
    return real_of(l, s, -(double)BT_SCHED_MAX_LENGTH_PENALTY,
                   (double)BT_SCHED_MAX_LENGTH_PENALTY,
                   &l->row->beams.length_penalty);
}

static bt_status_t take_reset_id(bt_lower_t *l, const bt_slice_t *s)
{
    int64_t id = -1;
    const bt_status_t status = bt_lower_integer(l, s, -1, INT32_MAX, &id);

    l->row->sampling.processors.top_p_reset_id =
        (id < 0) ? BT_NO_TOKEN : (uint32_t)id;
    return status;
}

/* A BOOL; or TensorRT-LLM's number, of which there are three kinds. */
static bt_status_t take_early_stopping(bt_lower_t *l, const bt_slice_t *s)
{
    const bt_status_t status = one_value(l, s);
    double number = 0.0;

    if (status != BT_OK) {
        return status;
    }
    if (bt_tensor_f64(s->tensor, s->from, &number) != BT_OK) {
        return bt_lower_refuse(l, s->name, "must be BOOL or a number, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    l->row->beams.has_early_stopping = true;
    l->row->beams.early_stopping = bt_api_early_stopping(number);
    return BT_OK;
}

/* ---- structured output ---- */

static bt_status_t take_string(bt_lower_t *l, const bt_slice_t *s,
                               char **text_p)
{
    const char *text = NULL;
    size_t bytes = 0;
    const bt_status_t status = one_string(l, s, &text, &bytes);

    if ((status != BT_OK) || (bytes == 0)) {
        return status;
    }
    return copy_string(l, s, text, bytes, BT_GRAMMAR_TEXT_BYTES, text_p);
}

static bt_status_t take_guide_type(bt_lower_t *l, const bt_slice_t *s)
{
    return take_string(l, s, &l->row->grammar.guide_type);
}

static bt_status_t take_guide(bt_lower_t *l, const bt_slice_t *s)
{
    return take_string(l, s, &l->row->grammar.guide);
}

/* ---- unsupported inputs ---- */

static bt_status_t take_neutral(bt_lower_t *l, const bt_slice_t *s)
{
    (void)l;
    (void)s;
    return BT_OK;
}

static bool changes_nothing(const bt_slice_t *s)
{
    for (uint64_t i = 0; i < s->n; i++) {
        double value = 0.0;

        if ((bt_tensor_f64(s->tensor, s->from + i, &value) != BT_OK) ||
            (fpclassify(value) != FP_ZERO)) {
            return false;
        }
    }
    return true;
}

static bt_status_t take_not_yet(bt_lower_t *l, const bt_slice_t *s)
{
    strings_t w;
    const char *text;
    size_t bytes;

    if (s->tensor->dtype != BT_DTYPE_BYTES) {
        return changes_nothing(s)
                   ? BT_OK
                   : bt_lower_refuse(l, s->name, "is not supported yet");
    }
    (void)strings_begin(l, s, &w);
    while (strings_next(&w, &text, &bytes)) {
        if (bytes > 0) {
            return bt_lower_refuse(l, s->name, "is not supported yet");
        }
    }
    return BT_OK;
}

#define AT(member) offsetof(bt_api_request_t, member)
#define FLOAT(where, min, max)                   \
    {                                            \
        NULL, TYPE_FLOAT, AT(where), min, max, 0 \
    }
#define WANT(bits)                                   \
    {                                                \
        NULL, TYPE_WANT, AT(wants.what), 0, 0, bits, \
    }

/* Converters of inputs to fields of a row's request. */
static const struct {
    bt_status_t (*take)(bt_lower_t *l, const bt_slice_t *s); /* TYPE_OWN */
    enum { TYPE_OWN, TYPE_U32, TYPE_FLOAT, TYPE_BOOL, TYPE_WANT } type;
    size_t offset; /* in bt_api_request_t */
    double min, max;
    uint32_t bits; /* BT_WANT_* of TYPE_WANT, else BT_GIVEN_* */
} fields[BT_N_FIELDS] = {
    [BT_FIELD_TEXT] = {.take = take_text},
    [BT_FIELD_DECODER_TEXT] = {.take = take_decoder_text},
    [BT_FIELD_IDS] = {.take = take_ids},
    [BT_FIELD_N_IDS] = {.take = take_neutral}, /* read_n_ids() */
    [BT_FIELD_MAX_TOKENS] = {.take = take_max_tokens},
    [BT_FIELD_BAD_WORDS] = {.take = take_bad_words},
    [BT_FIELD_STOP_WORDS] = {.take = take_stop_words},
    [BT_FIELD_BAD_WORD_IDS] = {.take = take_bad_ids},
    [BT_FIELD_STOP_WORD_IDS] = {.take = take_stop_ids},
    [BT_FIELD_BIAS_WORDS] = {.take = note_bias_words},
    [BT_FIELD_BIAS_WEIGHTS] = {.take = note_bias_weights},
    [BT_FIELD_BIAS] = {.take = take_bias},
    [BT_FIELD_END_ID] = {.take = take_end_id},
    [BT_FIELD_PAD_ID] = {.take = take_pad_id},
    [BT_FIELD_TOP_K] = {.take = take_top_k},
    [BT_FIELD_TOP_P] = {.take = take_top_p},
    [BT_FIELD_TEMPERATURE] = {.take = take_temperature},
    [BT_FIELD_REPETITION_PENALTY] =
        FLOAT(sampling.repetition_penalty, 0.01, 100),
    [BT_FIELD_PRESENCE_PENALTY] = FLOAT(sampling.presence_penalty, -100, 100),
    [BT_FIELD_FREQUENCY_PENALTY] = FLOAT(sampling.frequency_penalty, -100, 100),
    [BT_FIELD_MIN_LENGTH] = {NULL, TYPE_U32, AT(sampling.min_tokens), 0,
                             INT32_MAX, 0},
    [BT_FIELD_SEED] = {.take = take_seed},
    [BT_FIELD_STREAM] = {.take = take_stream},
    [BT_FIELD_STOP] = {.take = bt_lower_take_stop},
    [BT_FIELD_EXCLUDE_INPUT] = {NULL, TYPE_BOOL, AT(exclude_input_in_output), 0,
                                0, BT_GIVEN_EXCLUDE_INPUT},
    [BT_FIELD_LOG_PROBS] = WANT(BT_WANT_LOGPROBS),
    [BT_FIELD_CONTEXT_LOGITS] = WANT(BT_WANT_PROMPT_LOGITS),
    [BT_FIELD_GENERATION_LOGITS] = WANT(BT_WANT_LOGITS),
    [BT_FIELD_DRAFT_IDS] = {.take = take_draft_ids},
    [BT_FIELD_MAX_DRAFTS] = {NULL, TYPE_U32, AT(max_drafts), 0, INT32_MAX, 0},
    [BT_FIELD_DRAFT_THRESHOLD] = {.take = take_draft_threshold},
    [BT_FIELD_TOP_P_DECAY] = FLOAT(sampling.processors.top_p_decay, 0, 1),
    [BT_FIELD_TOP_P_MIN] = FLOAT(sampling.processors.top_p_min, 0, 1),
    [BT_FIELD_TOP_P_RESET_ID] = {.take = take_reset_id},
    [BT_FIELD_NO_REPEAT_NGRAM] = {NULL, TYPE_U32,
                                  AT(sampling.processors.no_repeat_ngram_size),
                                  0, BT_MAX_NGRAM, 0},
    [BT_FIELD_PROMPT_IGNORE] = {NULL, TYPE_U32, AT(prompt_ignore_length), 0,
                                INT32_MAX, 0},
    [BT_FIELD_PERF] = WANT(BT_WANT_PERF_METRICS | BT_WANT_KV_REUSE),
    [BT_FIELD_KV_REUSE] = WANT(BT_WANT_KV_REUSE),
    [BT_FIELD_N_INPUT] = WANT(BT_WANT_N_INPUT),
    [BT_FIELD_N_OUTPUT] = WANT(BT_WANT_N_OUTPUT),
    [BT_FIELD_BEAM_WIDTH] = {NULL, TYPE_U32, AT(beams.width), 0,
                             BT_SCHED_MAX_BEAMS, 0},
    [BT_FIELD_N_SEQUENCES] = {NULL, TYPE_U32, AT(beams.n_sequences), 0,
                              BT_SCHED_MAX_BEAMS, 0},
    [BT_FIELD_LENGTH_PENALTY] = {.take = take_length_penalty},
    [BT_FIELD_EARLY_STOPPING] = {.take = take_early_stopping},
    [BT_FIELD_GUIDE_TYPE] = {.take = take_guide_type},
    [BT_FIELD_GUIDE] = {.take = take_guide},
    [BT_FIELD_TABLE] = {.take = bt_lower_take_table},
    [BT_FIELD_TABLE_SIZE] = {.take = bt_lower_take_table_size},
    [BT_FIELD_TABLE_EXTRA_IDS] = {.take = bt_lower_take_extra_ids},
    [BT_FIELD_LORA_TASK] = {.take = bt_lower_take_lora_task},
    [BT_FIELD_LORA_WEIGHTS] = {.take = bt_lower_take_lora_weights},
    [BT_FIELD_LORA_CONFIG] = {.take = bt_lower_take_lora_config},
    [BT_FIELD_NEUTRAL] = {.take = take_neutral},
    [BT_FIELD_NOT_YET] = {.take = take_not_yet},
    [BT_FIELD_TOKENS] = {.take = take_neutral},
};

bt_status_t bt_lower_take(bt_lower_t *l, int field, const bt_slice_t *s)
{
    void *at = (char *)l->row + fields[field].offset;
    const double min = fields[field].min;
    const double max = fields[field].max;
    int64_t number = 0;
    bool on = false;
    bt_status_t status;

    switch (fields[field].type) {
    case TYPE_U32:
        status = bt_lower_integer(l, s, (int64_t)min, (int64_t)max, &number);
        *(uint32_t *)at = (uint32_t)number;
        return status;
    case TYPE_FLOAT:
        return real_of(l, s, min, max, at);
    case TYPE_BOOL:
        l->row->given |= fields[field].bits;
        return bool_of(l, s, at);
    case TYPE_WANT:
        status = bool_of(l, s, &on);
        *(uint32_t *)at |= on ? fields[field].bits : 0;
        return status;
    default:
        return fields[field].take(l, s);
    }
}
