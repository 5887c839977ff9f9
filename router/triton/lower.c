/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/lower.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"

#define INVALID "invalid_request_error"

/* What one row of the batch has of an input. */
typedef struct slice {
    const bt_tensor_t *tensor;
    const char *name;
    uint64_t from, n; /* elements */
    uint32_t n_dims;  /* of the row by itself */
    const uint64_t *dims;
} slice_t;

typedef struct lower {
    const bt_infer_request_t *request;
    const bt_model_spec_t *spec;
    bt_lowered_t *out;
    bt_api_error_t *error;
    bt_api_request_t *row; /* the one that is being filled */
    bool has_temperature;
    uint64_t n_ids; /* of a row that says how many count */
    bool has_n_ids;
    slice_t bias_words, bias_weights; /* they go together */
} lower_t;

static bt_status_t refuse(lower_t *l, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static bt_status_t refuse(lower_t *l, const char *name, const char *fmt, ...)
{
    char text[sizeof(l->error->message) - BT_TENSOR_NAME_BYTES - 16];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    bt_api_error_set(l->error, 400, INVALID, NULL, "input '%s' %s", name, text);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t no_memory(lower_t *l)
{
    bt_api_error_set(l->error, 503, "server_error", NULL,
                     "out of memory for this request, try again later");
    return BT_ERR_NO_MEMORY;
}

/* ---- single values ---- */

static bt_status_t one_value(lower_t *l, const slice_t *s)
{
    return (s->n == 1)
               ? BT_OK
               : refuse(l, s->name,
                        "must have one element for each row of the batch, got "
                        "%llu",
                        (unsigned long long)s->n);
}

static bt_status_t integer_at(lower_t *l, const slice_t *s, uint64_t i,
                              int64_t min, int64_t max, int64_t *value_p)
{
    int64_t value = 0;
    const bt_status_t status = bt_tensor_i64(s->tensor, s->from + i, &value);

    if (status == BT_ERR_INVALID_PARAM) {
        return refuse(l, s->name, "must be an integer, got a value of %s",
                      bt_dtype_name(s->tensor->dtype));
    }
    if ((status != BT_OK) || (value < min) || (value > max)) {
        return refuse(l, s->name, "must be from %lld to %lld, got %lld",
                      (long long)min, (long long)max, (long long)value);
    }
    *value_p = value;
    return BT_OK;
}

static bt_status_t integer_of(lower_t *l, const slice_t *s, int64_t min,
                              int64_t max, int64_t *value_p)
{
    const bt_status_t status = one_value(l, s);

    return (status == BT_OK) ? integer_at(l, s, 0, min, max, value_p) : status;
}

static bt_status_t real_at(lower_t *l, const slice_t *s, uint64_t i, double min,
                           double max, float *value_p)
{
    double value = 0.0;

    if (bt_tensor_f64(s->tensor, s->from + i, &value) != BT_OK) {
        return refuse(l, s->name, "must be a number, got %s",
                      bt_dtype_name(s->tensor->dtype));
    }
    if (!(value >= min) || !(value <= max)) {
        return refuse(l, s->name, "must be from %g to %g, got %g", min, max,
                      value);
    }
    *value_p = (float)value;
    return BT_OK;
}

static bt_status_t real_of(lower_t *l, const slice_t *s, double min, double max,
                           float *value_p)
{
    const bt_status_t status = one_value(l, s);

    return (status == BT_OK) ? real_at(l, s, 0, min, max, value_p) : status;
}

static bt_status_t bool_of(lower_t *l, const slice_t *s, bool *value_p)
{
    const bt_status_t status = one_value(l, s);

    if (status != BT_OK) {
        return status;
    }
    if (bt_tensor_bool(s->tensor, s->from, value_p) != BT_OK) {
        return refuse(l, s->name, "must be BOOL, got %s",
                      bt_dtype_name(s->tensor->dtype));
    }
    return BT_OK;
}

/* ---- strings ---- */

/* Walks the strings of a slice; @return false: there is no more. */
typedef struct strings {
    const slice_t *slice;
    size_t at;
    uint64_t i;
} strings_t;

static bt_status_t strings_begin(lower_t *l, const slice_t *s, strings_t *w)
{
    const char *text;
    size_t bytes;

    if (s->tensor->dtype != BT_DTYPE_BYTES) {
        return refuse(l, s->name, "must be BYTES, got %s",
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

static bt_status_t copy_string(lower_t *l, const slice_t *s, const char *text,
                               size_t bytes, size_t max_bytes, char **copy_p)
{
    char *copy;

    if (bytes > max_bytes) {
        return refuse(l, s->name, "is longer than %zu bytes: it has %zu",
                      max_bytes, bytes);
    }
    if (memchr(text, '\0', bytes) != NULL) {
        return refuse(l, s->name, "holds a zero character");
    }
    copy = bt_memdup(text, bytes);
    if (copy == NULL) {
        return no_memory(l);
    }
    *copy_p = copy;
    return BT_OK;
}

static bt_status_t read_words(lower_t *l, const slice_t *s, char **words,
                              uint32_t *n_p, uint32_t max)
{
    strings_t w;
    const char *text;
    size_t bytes;
    bt_status_t status = strings_begin(l, s, &w);

    while ((status == BT_OK) && strings_next(&w, &text, &bytes)) {
        if (bytes == 0) {
            continue; /* Triton's way to say none */
        }
        if (*n_p == max) {
            return refuse(l, s->name, "has more than %u words", max);
        }
        status =
            copy_string(l, s, text, bytes, BT_API_MAX_STOP_BYTES, &words[*n_p]);
        *n_p += (status == BT_OK) ? 1 : 0;
    }
    return status;
}

/* ---- prompts ---- */

static bt_status_t take_text(lower_t *l, const slice_t *s)
{
    strings_t w;
    const char *text;
    size_t bytes;
    bt_status_t status = one_value(l, s);

    if (status == BT_OK) {
        status = strings_begin(l, s, &w);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!strings_next(&w, &text, &bytes) || (bytes == 0)) {
        return refuse(l, s->name, "is empty");
    }
    return copy_string(l, s, text, bytes, s->tensor->bytes,
                       &l->row->prompts[0].text);
}

static bt_status_t take_ids(lower_t *l, const slice_t *s)
{
    bt_api_prompt_t *prompt = &l->row->prompts[0];
    uint64_t n = s->n;
    bt_status_t status = BT_OK;

    if (l->has_n_ids && (l->n_ids > n)) {
        return refuse(l, s->name,
                      "has %llu ids a row, fewer than the %llu that count",
                      (unsigned long long)n, (unsigned long long)l->n_ids);
    }
    n = l->has_n_ids ? l->n_ids : n;
    if (n == 0) {
        return refuse(l, s->name, "is empty");
    }
    prompt->ids = bt_calloc((size_t)n, sizeof(*prompt->ids));
    if (prompt->ids == NULL) {
        return no_memory(l);
    }
    prompt->n_ids = (size_t)n;
    for (uint64_t i = 0; (i < n) && (status == BT_OK); i++) {
        int64_t id = 0;

        status = integer_at(l, s, i, 0, INT32_MAX, &id);
        prompt->ids[i] = (uint32_t)id;
    }
    return status;
}

static bt_status_t take_n_ids(lower_t *l, const slice_t *s)
{
    (void)l;
    (void)s;
    return BT_OK; /* before all others: read_n_ids() */
}

/* ---- words as ids ---- */

/*
 * ids      5  6  7  0      [5, 6] and [7]: where each ends
 * ends     2  3 -1 -1
 */
static bt_status_t read_word_ids(lower_t *l, const slice_t *s,
                                 bt_bad_word_t **words_p, uint32_t *n_p,
                                 uint32_t max)
{
    const uint64_t width = s->n / 2;
    bt_bad_word_t *words;
    int64_t from = 0;

    if ((s->n_dims < 2) || (s->dims[s->n_dims - 2] != 2) ||
        (s->n != 2 * s->dims[s->n_dims - 1])) {
        return refuse(l, s->name,
                      "must have the shape [2, n]: ids, and where each word of "
                      "them ends");
    }
    words = bt_calloc(max, sizeof(*words));
    if (words == NULL) {
        return no_memory(l);
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
            return refuse(l, s->name,
                          "may have up to %u words of 1 to %d ids each", max,
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

static bt_status_t take_bad_ids(lower_t *l, const slice_t *s)
{
    return read_word_ids(l, s, &l->row->bad_ids, &l->row->n_bad_ids,
                         BT_MAX_BAD_WORDS);
}

static bt_status_t take_stop_ids(lower_t *l, const slice_t *s)
{
    return read_word_ids(l, s, &l->row->stop_ids, &l->row->n_stop_ids,
                         BT_API_MAX_BIAS_WORDS);
}

static bt_status_t take_bad_words(lower_t *l, const slice_t *s)
{
    return read_words(l, s, l->row->bad_words, &l->row->n_bad_words,
                      BT_MAX_BAD_WORDS);
}

static bt_status_t take_stop_words(lower_t *l, const slice_t *s)
{
    return read_words(l, s, l->row->stops, &l->row->n_stops, BT_API_MAX_STOPS);
}

/* ---- biases ---- */

static bt_status_t take_bias(lower_t *l, const slice_t *s)
{
    bt_api_request_t *row = l->row;
    uint32_t n = 0;

    bt_free(row->logit_biases);
    row->logit_biases = bt_calloc(BT_MAX_LOGIT_BIASES, sizeof(bt_logit_bias_t));
    if (row->logit_biases == NULL) {
        return no_memory(l);
    }
    for (uint64_t i = 0; i < s->n; i++) {
        float bias = 0.0f;
        const bt_status_t status = real_at(l, s, i, -(double)BT_MAX_LOGIT_BIAS,
                                           (double)BT_MAX_LOGIT_BIAS, &bias);

        if (status != BT_OK) {
            return status;
        }
        if (fpclassify(bias) == FP_ZERO) {
            continue;
        }
        if ((n == BT_MAX_LOGIT_BIASES) || (i > UINT32_MAX)) {
            return refuse(l, s->name, "has more than %d values that are not 0",
                          BT_MAX_LOGIT_BIASES);
        }
        row->logit_biases[n].id = (uint32_t)i;
        row->logit_biases[n++].bias = bias;
    }
    row->sampling.logit_biases = row->logit_biases;
    row->sampling.n_logit_biases = n;
    return BT_OK;
}

static bt_status_t note_bias_words(lower_t *l, const slice_t *s)
{
    l->bias_words = *s;
    return BT_OK;
}

static bt_status_t note_bias_weights(lower_t *l, const slice_t *s)
{
    l->bias_weights = *s;
    return BT_OK;
}

/* An empty word has no tokens: its weight counts for nothing. */
static bt_status_t join_bias_words(lower_t *l)
{
    const slice_t *s = &l->bias_words;
    bt_api_request_t *row = l->row;
    strings_t w;
    const char *text;
    size_t bytes;
    bt_status_t status;

    if (s->n != l->bias_weights.n) {
        return refuse(l, (s->name != NULL) ? s->name : l->bias_weights.name,
                      "needs a weight for each word: there are %llu words and "
                      "%llu weights",
                      (unsigned long long)s->n,
                      (unsigned long long)l->bias_weights.n);
    }
    if (s->n == 0) {
        return BT_OK;
    }
    if (s->n > BT_API_MAX_BIAS_WORDS) {
        return refuse(l, s->name, "has more than %d words",
                      BT_API_MAX_BIAS_WORDS);
    }
    row->bias_words = bt_calloc((size_t)s->n, sizeof(*row->bias_words));
    if (row->bias_words == NULL) {
        return no_memory(l);
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

static bt_status_t take_max_tokens(lower_t *l, const slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = integer_of(l, s, 1, INT32_MAX, &value);

    l->row->max_tokens = (uint32_t)value;
    l->row->has_max_tokens = true;
    return status;
}

static bt_status_t take_end_id(lower_t *l, const slice_t *s)
{
    bt_sampling_t *sampling = &l->row->sampling;

    if (s->n > BT_MAX_END_IDS / 2) {
        return refuse(l, s->name, "has more than %d ids a row",
                      BT_MAX_END_IDS / 2);
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

static bt_status_t take_pad_id(lower_t *l, const slice_t *s)
{
    int64_t id = -1;
    const bt_status_t status = integer_of(l, s, -1, INT32_MAX, &id);

    if (l->row == l->out->rows) {
        l->out->pad_id = (int32_t)id;
    }
    return status;
}

static bt_status_t take_top_k(lower_t *l, const slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = integer_of(l, s, -1, INT32_MAX, &value);

    l->row->sampling.top_k = (value < 0) ? 0 : (uint32_t)value;
    return status;
}

static bt_status_t take_top_p(lower_t *l, const slice_t *s)
{
    float *top_p = &l->row->sampling.top_p;
    const bt_status_t status = real_of(l, s, 0, 1, top_p);

    if ((status == BT_OK) && (*top_p <= 0.0f)) {
        *top_p = 1.0f; /* Triton's clients send 0 for off */
    }
    return status;
}

static bt_status_t take_temperature(lower_t *l, const slice_t *s)
{
    float *temperature = &l->row->sampling.temperature;
    const bt_status_t status = real_of(l, s, 0, 100, temperature);

    if (*temperature < 1e-5f) {
        *temperature = 0.0f; /* a division by less would overflow */
    }
    l->has_temperature = true;
    return status;
}

static bt_status_t take_repetition(lower_t *l, const slice_t *s)
{
    return real_of(l, s, 0.01, 100, &l->row->sampling.repetition_penalty);
}

static bt_status_t take_presence(lower_t *l, const slice_t *s)
{
    return real_of(l, s, -100, 100, &l->row->sampling.presence_penalty);
}

static bt_status_t take_frequency(lower_t *l, const slice_t *s)
{
    return real_of(l, s, -100, 100, &l->row->sampling.frequency_penalty);
}

static bt_status_t take_min_length(lower_t *l, const slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = integer_of(l, s, 0, INT32_MAX, &value);

    l->row->sampling.min_tokens = (uint32_t)value;
    return status;
}

static bt_status_t take_seed(lower_t *l, const slice_t *s)
{
    const bt_status_t status = one_value(l, s);

    if (status != BT_OK) {
        return status;
    }
    if (bt_tensor_u64(s->tensor, s->from, &l->row->sampling.seed) != BT_OK) {
        return refuse(l, s->name, "must be an integer");
    }
    l->row->has_seed = true;
    return BT_OK;
}

/* ---- how to answer ---- */

static bt_status_t take_stream(lower_t *l, const slice_t *s)
{
    bool on = false;
    const bt_status_t status = bool_of(l, s, &on);

    l->out->stream = l->out->stream || on;
    return status;
}

static bt_status_t take_stop(lower_t *l, const slice_t *s)
{
    bool on = false;
    const bt_status_t status = bool_of(l, s, &on);

    l->out->stop = l->out->stop || on;
    return status;
}

static bt_status_t take_exclude(lower_t *l, const slice_t *s)
{
    bool on = false;
    const bt_status_t status = bool_of(l, s, &on);

    l->row->exclude_input_in_output = on;
    l->row->says_exclude_input = true;
    return status;
}

/* ---- what is not there ---- */

static bt_status_t take_one(lower_t *l, const slice_t *s)
{
    int64_t value = 0;
    const bt_status_t status = integer_of(l, s, 0, INT32_MAX, &value);

    if ((status == BT_OK) && (value > 1)) {
        return refuse(l, s->name, "above 1 is not supported yet, got %lld",
                      (long long)value);
    }
    return status;
}

static bt_status_t take_neutral(lower_t *l, const slice_t *s)
{
    (void)l;
    (void)s;
    return BT_OK;
}

static bool changes_nothing(const slice_t *s)
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

static bt_status_t take_not_yet(lower_t *l, const slice_t *s)
{
    strings_t w;
    const char *text;
    size_t bytes;

    if (s->tensor->dtype != BT_DTYPE_BYTES) {
        return changes_nothing(s) ? BT_OK
                                  : refuse(l, s->name, "is not supported yet");
    }
    (void)strings_begin(l, s, &w);
    while (strings_next(&w, &text, &bytes)) {
        if (bytes > 0) {
            return refuse(l, s->name, "is not supported yet");
        }
    }
    return BT_OK;
}

/* Log-probs and logits: here alone it is said that there are none. */
static bt_status_t take_log_probs(lower_t *l, const slice_t *s)
{
    return take_not_yet(l, s);
}

typedef bt_status_t (*take_t)(lower_t *l, const slice_t *s);

static const take_t takes[BT_N_FIELDS] = {
    [BT_FIELD_TEXT] = take_text,
    [BT_FIELD_IDS] = take_ids,
    [BT_FIELD_N_IDS] = take_n_ids,
    [BT_FIELD_MAX_TOKENS] = take_max_tokens,
    [BT_FIELD_BAD_WORDS] = take_bad_words,
    [BT_FIELD_STOP_WORDS] = take_stop_words,
    [BT_FIELD_BAD_WORD_IDS] = take_bad_ids,
    [BT_FIELD_STOP_WORD_IDS] = take_stop_ids,
    [BT_FIELD_BIAS_WORDS] = note_bias_words,
    [BT_FIELD_BIAS_WEIGHTS] = note_bias_weights,
    [BT_FIELD_BIAS] = take_bias,
    [BT_FIELD_END_ID] = take_end_id,
    [BT_FIELD_PAD_ID] = take_pad_id,
    [BT_FIELD_TOP_K] = take_top_k,
    [BT_FIELD_TOP_P] = take_top_p,
    [BT_FIELD_TEMPERATURE] = take_temperature,
    [BT_FIELD_REPETITION_PENALTY] = take_repetition,
    [BT_FIELD_PRESENCE_PENALTY] = take_presence,
    [BT_FIELD_FREQUENCY_PENALTY] = take_frequency,
    [BT_FIELD_MIN_LENGTH] = take_min_length,
    [BT_FIELD_SEED] = take_seed,
    [BT_FIELD_STREAM] = take_stream,
    [BT_FIELD_STOP] = take_stop,
    [BT_FIELD_EXCLUDE_INPUT] = take_exclude,
    [BT_FIELD_LOG_PROBS] = take_log_probs,
    [BT_FIELD_CONTEXT_LOGITS] = take_log_probs,
    [BT_FIELD_GENERATION_LOGITS] = take_log_probs,
    [BT_FIELD_ONE] = take_one,
    [BT_FIELD_NEUTRAL] = take_neutral,
    [BT_FIELD_NOT_YET] = take_not_yet,
    [BT_FIELD_TOKENS] = take_neutral,
};

/* ---- rows ---- */

/* Row @a row of @a n_rows of an input. */
static bt_status_t slice_of(lower_t *l, const bt_tensor_t *tensor, size_t row,
                            size_t n_rows, slice_t *s)
{
    const uint64_t n = bt_tensor_elements(tensor);
    const bool has_rows = (tensor->n_dims > 0) && (tensor->dims[0] == n_rows);

    *s = (slice_t){
        .tensor = tensor,
        .name = tensor->name,
        .n = n,
        .n_dims = tensor->n_dims,
        .dims = tensor->dims,
    };
    if (n_rows == 1) {
        return BT_OK;
    }
    if (has_rows) {
        s->n = n / n_rows;
        s->from = row * s->n;
        s->n_dims--;
        s->dims++;
        return BT_OK;
    }
    /* One for all of them. */
    if ((n == 1) || ((tensor->n_dims > 1) && (tensor->dims[0] == 1))) {
        return BT_OK;
    }
    return refuse(
        l, tensor->name,
        "has a first dimension of %llu, but the batch has %zu rows",
        (unsigned long long)((tensor->n_dims > 0) ? tensor->dims[0] : 1),
        n_rows);
}

static const bt_tensor_t *find_field(const lower_t *l, bt_model_field_t field)
{
    for (size_t i = 0; i < l->request->n_inputs; i++) {
        const bt_tensor_t *tensor = &l->request->inputs[i].tensor;
        const bt_model_tensor_t *input = bt_model_input(l->spec, tensor->name);

        if ((input != NULL) && (input->what == (int)field)) {
            return tensor;
        }
    }
    return NULL;
}

/* How many ids of a row count: before the ids are read. */
static bt_status_t read_n_ids(lower_t *l, size_t row, size_t n_rows)
{
    const bt_tensor_t *tensor = find_field(l, BT_FIELD_N_IDS);
    slice_t s;
    int64_t n = 0;
    bt_status_t status;

    l->has_n_ids = tensor != NULL;
    if (tensor == NULL) {
        return BT_OK;
    }
    status = slice_of(l, tensor, row, n_rows, &s);
    if (status == BT_OK) {
        status = integer_of(l, &s, 1, INT32_MAX, &n);
    }
    l->n_ids = (uint64_t)n;
    return status;
}

/* What only the whole row can tell. */
static bt_status_t check_row(lower_t *l)
{
    bt_sampling_t *sampling = &l->row->sampling;

    if (l->row->has_max_tokens && (sampling->min_tokens > l->row->max_tokens)) {
        return refuse(l, "min_length", "%u is above the %u tokens asked for",
                      sampling->min_tokens, l->row->max_tokens);
    }
    if (!l->has_temperature &&
        ((sampling->top_k > 1) || (sampling->top_p < 1.0f))) {
        sampling->temperature = 1.0f;
    }
    return join_bias_words(l);
}

static const bt_api_names_t *names_of(bt_model_role_t role)
{
    static const bt_api_names_t text = {"text_input", "max_tokens", "bad_words",
                                        "embedding_bias_words"};
    static const bt_api_names_t ids = {"input_ids", "request_output_len",
                                       "bad_words_list", "embedding_bias"};
    static const bt_api_names_t before = {"QUERY", "REQUEST_OUTPUT_LEN",
                                          "BAD_WORDS_DICT",
                                          "EMBEDDING_BIAS_WORDS"};

    switch (role) {
    case BT_ROLE_IDS:
        return &ids;
    case BT_ROLE_PREPROCESS:
        return &before;
    default:
        return &text;
    }
}

static bt_status_t fill_row(lower_t *l, size_t row, size_t n_rows)
{
    const bt_infer_request_t *request = l->request;
    bt_status_t status;

    l->row = &l->out->rows[row];
    l->has_temperature = false;
    l->bias_words = l->bias_weights = (slice_t){0};
    bt_api_request_init(BT_API_GENERATE, l->row);
    l->out->n_rows = row + 1; /* it is to be freed from here on */
    l->row->names = names_of(l->spec->role);
    l->row->exclude_input_in_output = false; /* as these models have it */
    /* Ids end where the client says, not where the vocabulary does. */
    l->row->ignore_eos = l->spec->role == BT_ROLE_IDS;
    l->row->prompts = bt_calloc(1, sizeof(*l->row->prompts));
    if (l->row->prompts == NULL) {
        return no_memory(l);
    }
    l->row->n_prompts = 1;
    status = read_n_ids(l, row, n_rows);
    for (size_t i = 0; (i < request->n_inputs) && (status == BT_OK); i++) {
        const bt_tensor_t *tensor = &request->inputs[i].tensor;
        const bt_model_tensor_t *input = bt_model_input(l->spec, tensor->name);
        slice_t s;

        status = slice_of(l, tensor, row, n_rows, &s);
        if (status == BT_OK) {
            status = takes[input->what](l, &s);
        }
    }
    return (status == BT_OK) ? check_row(l) : status;
}

/* ---- the whole ---- */

/* All are known, and none comes twice. */
static bt_status_t check_inputs(lower_t *l)
{
    const bt_infer_request_t *request = l->request;

    for (size_t i = 0; i < request->n_inputs; i++) {
        const char *name = request->inputs[i].tensor.name;

        if (bt_model_input(l->spec, name) == NULL) {
            bt_api_error_set(l->error, 400, INVALID, NULL,
                             "unexpected inference input '%s' for model '%s'",
                             name, request->model);
            return BT_ERR_INVALID_PARAM;
        }
        if (bt_infer_input(request, name) != &request->inputs[i]) {
            return refuse(l, name, "is there twice");
        }
        if (request->inputs[i].region.name[0] != '\0') {
            return refuse(l, name,
                          "is in shared memory region '%s', which is "
                          "not registered",
                          request->inputs[i].region.name);
        }
    }
    return BT_OK;
}

bt_status_t bt_infer_check_inputs(const bt_model_spec_t *spec,
                                  const bt_infer_request_t *request,
                                  bt_api_error_t *error_p)
{
    lower_t l = {.request = request, .spec = spec, .error = error_p};

    return check_inputs(&l);
}

static bt_status_t check_missing(lower_t *l)
{
    for (size_t i = 0; i < l->spec->n_inputs; i++) {
        const bt_model_tensor_t *input = &l->spec->inputs[i];

        if (!input->optional &&
            (bt_infer_input(l->request, input->name) == NULL) &&
            /* Text models have a length to fall back on. */
            (input->what != BT_FIELD_MAX_TOKENS)) {
            bt_api_error_set(l->error, 400, INVALID, NULL,
                             "expected inference input '%s' for model '%s'",
                             input->name, l->request->model);
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

static bt_status_t count_rows(lower_t *l, size_t *n_rows_p)
{
    const bt_tensor_t *text = find_field(l, BT_FIELD_TEXT);
    const bt_tensor_t *prompt =
        (text != NULL) ? text : find_field(l, BT_FIELD_IDS);
    uint64_t n = 1;

    BT_ASSERT(prompt != NULL); /* check_missing() */
    /* One row of ids needs no first dimension. */
    if (prompt->n_dims > ((text != NULL) ? 0u : 1u)) {
        n = prompt->dims[0];
    }
    if ((n == 0) || (n > BT_API_MAX_PROMPTS)) {
        return refuse(l, prompt->name,
                      "has a batch of %llu; it may be from 1 to %d",
                      (unsigned long long)n, BT_API_MAX_PROMPTS);
    }
    *n_rows_p = (size_t)n;
    return BT_OK;
}

/* A request to end another one needs nothing else. */
static bt_status_t find_stop(lower_t *l)
{
    const bt_tensor_t *tensor = find_field(l, BT_FIELD_STOP);
    slice_t s;
    bt_status_t status;

    if (tensor == NULL) {
        return BT_OK;
    }
    status = slice_of(l, tensor, 0, 1, &s);
    return (status == BT_OK) ? take_stop(l, &s) : status;
}

static bt_status_t fill_rows(lower_t *l)
{
    size_t n_rows = 0;
    bt_status_t status = check_missing(l);

    if (status == BT_OK) {
        status = count_rows(l, &n_rows);
    }
    if (status != BT_OK) {
        return status;
    }
    l->out->rows = bt_calloc(n_rows, sizeof(*l->out->rows));
    if (l->out->rows == NULL) {
        return no_memory(l);
    }
    for (size_t i = 0; (i < n_rows) && (status == BT_OK); i++) {
        status = fill_row(l, i, n_rows);
    }
    return status;
}

/* Request parameters of Triton that mean something here. */
static void read_params(lower_t *l)
{
    const bt_infer_param_t *priority =
        bt_infer_param(&l->request->params, "priority");
    const bt_infer_param_t *timeout =
        bt_infer_param(&l->request->params, "timeout");

    for (size_t i = 0; i < l->out->n_rows; i++) {
        bt_api_request_t *row = &l->out->rows[i];

        if ((priority != NULL) && (priority->kind == BT_INFER_INT) &&
            (priority->integer > 0)) {
            row->priority = (priority->integer > INT32_MAX)
                                ? (uint32_t)INT32_MAX
                                : (uint32_t)priority->integer;
        }
        if ((timeout != NULL) && (timeout->kind == BT_INFER_INT) &&
            (timeout->integer > 0) && /* microseconds */
            (timeout->integer / 1000 < UINT32_MAX)) {
            row->timeout_ms = (uint32_t)((timeout->integer + 999) / 1000);
        }
    }
}

bt_status_t bt_infer_lower(const bt_model_spec_t *spec,
                           const bt_infer_request_t *request,
                           bt_lowered_t *lowered_p, bt_api_error_t *error_p)
{
    bt_lowered_t out = {.pad_id = -1, .end_id = -1};
    lower_t l = {
        .request = request, .spec = spec, .out = &out, .error = error_p};
    bt_status_t status = check_inputs(&l);

    if (status == BT_OK) {
        status = find_stop(&l);
    }
    if ((status == BT_OK) && !out.stop) {
        status = fill_rows(&l);
    }
    if (status != BT_OK) {
        bt_lowered_fini(&out);
        return status;
    }
    read_params(&l);
    *lowered_p = out;
    return BT_OK;
}

/* As take_log_probs() says of the inputs; and there is no decoder input. */
static bool is_not_yet(int result)
{
    switch (result) {
    case BT_RESULT_CUM_LOG_PROBS:
    case BT_RESULT_LOG_PROBS:
    case BT_RESULT_CONTEXT_LOGITS:
    case BT_RESULT_GENERATION_LOGITS:
    case BT_RESULT_DECODER_IDS:
    case BT_RESULT_N_DECODER_IDS:
        return true;
    default:
        return false;
    }
}

bt_status_t bt_infer_check_outputs(const bt_model_spec_t *spec,
                                   const bt_infer_request_t *request,
                                   bt_api_error_t *error_p)
{
    for (size_t i = 0; i < request->n_wanted; i++) {
        const char *name = request->wanted[i].name;

        if (bt_model_output(spec, name) == NULL) {
            bt_api_error_set(error_p, 400, INVALID, NULL,
                             "unexpected inference output '%s' for model '%s'",
                             name, request->model);
            return BT_ERR_INVALID_PARAM;
        }
        if (is_not_yet(bt_model_output(spec, name)->what)) {
            bt_api_error_set(error_p, 400, INVALID, NULL,
                             "output '%s' is not supported yet", name);
            return BT_ERR_INVALID_PARAM;
        }
        if (bt_infer_wanted(request, name) != &request->wanted[i]) {
            bt_api_error_set(error_p, 400, INVALID, NULL,
                             "output '%s' is asked for twice", name);
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

void bt_lowered_fini(bt_lowered_t *lowered)
{
    for (size_t i = 0; i < lowered->n_rows; i++) {
        bt_api_request_fini(&lowered->rows[i]);
    }
    bt_free(lowered->rows);
    memset(lowered, 0, sizeof(*lowered));
}
