/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/pre_postprocessing.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/task.h"
#include "inference/tokenizer/tokenizer.h"

typedef struct process {
    const bt_served_t *served;
    uint32_t context_tokens;
    const bt_infer_request_t *request;
    const bt_tensor_requests_t *lowered;
    bt_api_error_t *error;
    bt_token_vec_t *prompts; /* one per row */
    bt_token_vec_t *decoder; /* one per row, in the same allocation */
} process_t;

static bt_status_t tokenize(process_t *p, const char *name, const char *text,
                            size_t bytes, unsigned flags, bt_token_vec_t *out)
{
    const bt_status_t status =
        bt_tokenize(p->served->tok, text, bytes, flags, p->context_tokens, out);

    switch (status) {
    case BT_OK:
        return BT_OK;
    case BT_ERR_INVALID_PARAM:
        bt_api_error_set(p->error, 400, NULL, "input '%s' is not valid UTF-8",
                         name);
        return status;
    case BT_ERR_TOO_LARGE:
        bt_api_error_set(p->error, 400, NULL,
                         "input '%s' has more than the %u tokens of the "
                         "context",
                         name, p->context_tokens);
        return status;
    default:
        return bt_api_error_no_memory(p->error);
    }
}

static uint32_t own_end_id(const bt_served_t *served)
{
    uint32_t id = 0;

    return (bt_tokenizer_end_ids(served->tok, &id, 1) == 1) ? id : 0;
}

uint32_t bt_infer_pad_id(const bt_served_t *served,
                         const bt_tensor_requests_t *lowered)
{
    if (lowered->pad_id >= 0) {
        return (uint32_t)lowered->pad_id;
    }
    return (lowered->end_id >= 0) ? (uint32_t)lowered->end_id
                                  : own_end_id(served);
}

/* ---- preprocessing: each of its outputs ---- */

static bt_status_t make(process_t *p, const bt_model_tensor_t *output,
                        const uint64_t *dims, uint32_t n_dims, bt_tensor_t *out)
{
    return (bt_tensor_make(output->name, output->dtype, dims, n_dims, 0, out) ==
            BT_OK)
               ? BT_OK
               : bt_api_error_no_memory(p->error);
}

static bt_status_t put_rows(process_t *p, const bt_model_tensor_t *output,
                            const bt_token_vec_t *rows, bt_tensor_t *out)
{
    const uint32_t pad_id = bt_infer_pad_id(p->served, p->lowered);
    uint64_t dims[] = {p->lowered->n_rows, 0};
    uint32_t *at;
    bt_status_t status;

    for (size_t i = 0; i < dims[0]; i++) {
        dims[1] = (rows[i].n > dims[1]) ? rows[i].n : dims[1];
    }
    status = make(p, output, dims, 2, out);
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < dims[0]; i++) {
        for (uint64_t k = 0; k < dims[1]; k++) {
            *at++ = (k < rows[i].n) ? rows[i].ids[k] : pad_id;
        }
    }
    return BT_OK;
}

/* Returns the single integer of a row. */
static int32_t value_of(const process_t *p, bt_model_result_t what, size_t row)
{
    const bt_api_request_t *request = &p->lowered->rows[row];
    const bt_sampling_t *sampling = &request->sampling;

    switch (what) {
    case BT_RESULT_N_IDS:
        return (int32_t)p->prompts[row].n;
    case BT_RESULT_N_DECODER_IDS:
        return (int32_t)p->decoder[row].n;
    case BT_RESULT_MAX_TOKENS:
        return (int32_t)request->max_tokens;
    case BT_RESULT_END_ID:
        return (int32_t)((sampling->n_end_ids > 0) ? sampling->end_ids[0]
                                                   : own_end_id(p->served));
    default: /* BT_RESULT_PAD_ID */
        return (int32_t)bt_infer_pad_id(p->served, p->lowered);
    }
}

static bt_status_t put_column(process_t *p, const bt_model_tensor_t *output,
                              bt_tensor_t *out)
{
    const uint64_t dims[] = {p->lowered->n_rows, 1};
    const bt_status_t status = make(p, output, dims, 2, out);
    int32_t *at = out->owned;

    for (size_t i = 0; (status == BT_OK) && (i < dims[0]); i++) {
        at[i] = value_of(p, (bt_model_result_t)output->what, i);
    }
    return status;
}

/* ---- lists of words: ids, and the end of each word ---- */

/* Ids of a row's words, and the end of each word; a word without tokens is
 * left out. */
typedef struct flat {
    bt_token_vec_t ids;
    uint32_t ends[BT_MAX_BAD_WORDS];
    uint32_t n_ends;
} flat_t;

_Static_assert(BT_API_MAX_STOPS <= BT_MAX_BAD_WORDS, "flat_t fits");

static bt_status_t flatten(process_t *p, const char *name, char *const *words,
                           uint32_t n, flat_t *flat)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < n) && (status == BT_OK); i++) {
        const size_t before = flat->ids.n;
        bt_token_vec_t ids = {0};

        status = tokenize(p, name, words[i], strlen(words[i]), 0, &ids);
        if ((status == BT_OK) && (ids.n > 0)) {
            uint32_t *grown = bt_realloc_array(flat->ids.ids, before + ids.n,
                                               sizeof(*flat->ids.ids));

            if (grown == NULL) {
                status = bt_api_error_no_memory(p->error);
            } else {
                memcpy(grown + before, ids.ids, ids.n * sizeof(*ids.ids));
                flat->ids.ids = grown;
                flat->ids.n = before + ids.n;
                flat->ends[flat->n_ends++] = (uint32_t)flat->ids.n;
            }
        }
        bt_free(ids.ids);
    }
    return status;
}

static void put_flat(const flat_t *flat, uint64_t width, int32_t *at)
{
    for (uint64_t k = 0; k < width; k++) {
        at[k] = (k < flat->ids.n) ? (int32_t)flat->ids.ids[k] : 0;
        at[width + k] = (k < flat->n_ends) ? (int32_t)flat->ends[k] : -1;
    }
}

static bt_status_t put_words(process_t *p, const bt_model_tensor_t *output,
                             bt_tensor_t *out)
{
    uint64_t dims[] = {p->lowered->n_rows, 2, 1}; /* at least one wide */
    flat_t *flats = bt_calloc(dims[0], sizeof(*flats));
    bt_status_t status =
        (flats != NULL) ? BT_OK : bt_api_error_no_memory(p->error);

    for (size_t i = 0; (i < dims[0]) && (status == BT_OK); i++) {
        const bt_api_request_t *row = &p->lowered->rows[i];

        status =
            (output->what == BT_RESULT_BAD_WORD_IDS)
                ? flatten(p, output->name, row->bad_words, row->n_bad_words,
                          &flats[i])
                : flatten(p, output->name, row->stops, row->n_stops, &flats[i]);
        dims[2] = (flats[i].ids.n > dims[2]) ? flats[i].ids.n : dims[2];
    }
    if (status == BT_OK) {
        status = make(p, output, dims, 3, out);
    }
    for (size_t i = 0; (flats != NULL) && (i < dims[0]); i++) {
        if (status == BT_OK) {
            put_flat(&flats[i], dims[2],
                     (int32_t *)out->owned + i * 2 * dims[2]);
        }
        bt_free(flats[i].ids.ids);
    }
    bt_free(flats);
    return status;
}

/* ---- biases: one per token of the vocabulary, or none ---- */

static bt_status_t add_biases(process_t *p, const bt_api_request_t *row,
                              float *biases)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (i < row->n_bias_words) && (status == BT_OK); i++) {
        bt_token_vec_t ids = {0};

        status = tokenize(p, "EMBEDDING_BIAS_WORDS", row->bias_words[i].text,
                          strlen(row->bias_words[i].text), 0, &ids);
        for (size_t k = 0; (k < ids.n) && (status == BT_OK); k++) {
            biases[ids.ids[k]] += row->bias_words[i].bias;
        }
        bt_free(ids.ids);
    }
    return status;
}

static bt_status_t put_bias(process_t *p, const bt_model_tensor_t *output,
                            bt_tensor_t *out)
{
    uint64_t dims[] = {p->lowered->n_rows, 0};
    bt_status_t status;

    for (size_t i = 0; i < dims[0]; i++) {
        if (p->lowered->rows[i].n_bias_words > 0) {
            dims[1] = bt_tokenizer_n_vocab(p->served->tok);
        }
    }
    status = make(p, output, dims, 2, out);
    for (size_t i = 0; (status == BT_OK) && (dims[1] > 0) && (i < dims[0]);
         i++) {
        status = add_biases(p, &p->lowered->rows[i],
                            (float *)out->owned + i * dims[1]);
        if (status != BT_OK) {
            bt_tensor_fini(out);
        }
    }
    return status;
}

static bt_status_t put_output(process_t *p, const bt_model_tensor_t *output,
                              bt_tensor_t *out)
{
    switch (output->what) {
    case BT_RESULT_IDS:
        return put_rows(p, output, p->prompts, out);
    case BT_RESULT_DECODER_IDS:
        return put_rows(p, output, p->decoder, out);
    case BT_RESULT_BAD_WORD_IDS:
    case BT_RESULT_STOP_WORD_IDS:
        return put_words(p, output, out);
    case BT_RESULT_BIAS:
        return put_bias(p, output, out);
    default:
        return put_column(p, output, out);
    }
}

/* Makes the initial decoder ids of an encoder-decoder model: the text given
 * for it, else one padding id, as in TensorRT-LLM's preprocessing. */
static bt_status_t make_decoder_ids(process_t *p, size_t row)
{
    const char *text = (p->lowered->decoder_texts != NULL)
                           ? p->lowered->decoder_texts[row]
                           : NULL;
    bt_token_vec_t *ids = &p->decoder[row];

    if (text != NULL) {
        return tokenize(p, "DECODER_QUERY", text, strlen(text),
                        BT_TOK_ADD_BOS | BT_TOK_PARSE_SPECIAL, ids);
    }
    ids->ids = bt_calloc(1, sizeof(*ids->ids));
    if (ids->ids == NULL) {
        return bt_api_error_no_memory(p->error);
    }
    ids->ids[0] = bt_infer_pad_id(p->served, p->lowered);
    ids->n = 1;
    return BT_OK;
}

static bt_status_t preprocess(process_t *p, const bt_model_spec_t *spec,
                              bt_tensor_t *outputs, size_t *n_p)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < p->lowered->n_rows) && (status == BT_OK); i++) {
        status =
            tokenize(p, "QUERY", p->lowered->rows[i].prompts[0].text,
                     p->lowered->rows[i].prompts[0].text_bytes,
                     BT_TOK_ADD_BOS | BT_TOK_PARSE_SPECIAL, &p->prompts[i]);
        status = (status == BT_OK) ? make_decoder_ids(p, i) : status;
    }
    for (size_t i = 0; (i < spec->n_outputs) && (status == BT_OK); i++) {
        const bt_model_tensor_t *output = &spec->outputs[i];

        if ((output->what != BT_RESULT_NOT_GIVEN) &&
            ((p->request->n_wanted == 0) ||
             (bt_infer_wanted(p->request, output->name) != NULL))) {
            status = put_output(p, output, &outputs[*n_p]);
            *n_p += (status == BT_OK) ? 1 : 0;
        }
    }
    return status;
}

static bt_status_t run_preprocess(process_t *p, const bt_model_spec_t *spec,
                                  bt_tensor_t *outputs, size_t *n_p)
{
    const size_t n = p->lowered->n_rows;
    bt_status_t status;

    p->prompts = bt_calloc(n, 2 * sizeof(*p->prompts));
    if (p->prompts == NULL) {
        return bt_api_error_no_memory(p->error);
    }
    p->decoder = p->prompts + n;
    status = preprocess(p, spec, outputs, n_p);
    for (size_t i = 0; i < 2 * n; i++) {
        bt_free(p->prompts[i].ids);
    }
    bt_free(p->prompts);
    return status;
}

/* ---- postprocessing ---- */

static bt_status_t refuse(process_t *p, const char *name, const char *why)
{
    return BT_API_INVALID(p->error, "input '%s' %s", name, why);
}

/* Detokenizes one sequence: @a n ids from element @a from on. */
static bt_status_t detokenize(process_t *p, const bt_tensor_t *tokens,
                              uint64_t from, uint64_t n, bt_strbuf_t *out)
{
    bt_detok_t detok;
    unsigned steps = 0;

    bt_detok_init(&detok, p->served->tok);
    for (uint64_t i = 0; i < n; i++) {
        int64_t id = 0;

        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        if (bt_tensor_i64(tokens, from + i, &id) != BT_OK) {
            return refuse(p, tokens->name, "must hold integers");
        }
        if ((id < 0) || (id >= bt_tokenizer_n_vocab(p->served->tok))) {
            return refuse(p, tokens->name,
                          "has a token id that the model does not");
        }
        bt_detok_push(&detok, (uint32_t)id, out);
    }
    bt_detok_finish(&detok, out);
    return BT_OK;
}

/* Writes each sequence's text as an element of BYTES. */
static bt_status_t put_texts(process_t *p, const bt_tensor_t *tokens,
                             const bt_tensor_t *lengths, uint64_t n,
                             uint64_t width, bt_strbuf_t *out)
{
    for (uint64_t i = 0; i < n; i++) {
        const size_t at = out->len;
        int64_t length = (int64_t)width;
        uint32_t bytes = 0;
        bt_status_t status;

        if ((lengths != NULL) &&
            ((bt_tensor_i64(lengths, i, &length) != BT_OK) || (length < 0) ||
             (length > (int64_t)width))) {
            return refuse(p, lengths->name,
                          "must be from 0 to the ids of a sequence");
        }
        bt_strbuf_append(out, &bytes, sizeof(bytes));
        status = detokenize(p, tokens, i * width, (uint64_t)length, out);
        if (status != BT_OK) {
            return status;
        }
        if (bt_strbuf_status(out) != BT_OK) {
            return bt_api_error_no_memory(p->error);
        }
        bytes = (uint32_t)(out->len - at - sizeof(bytes));
        memcpy(out->data + at, &bytes, sizeof(bytes));
    }
    return BT_OK;
}

static const bt_tensor_t *tensor_of(const process_t *p, const char *name)
{
    const bt_infer_input_t *input = bt_infer_input(p->request, name);

    return (input != NULL) ? &input->tensor : NULL;
}

static bt_status_t run_postprocess(process_t *p, const bt_model_spec_t *spec,
                                   bt_tensor_t *outputs, size_t *n_p)
{
    const bt_tensor_t *tokens = tensor_of(p, "TOKENS_BATCH");
    const bt_tensor_t *lengths = tensor_of(p, "SEQUENCE_LENGTH");
    uint64_t dims[1] = {1};
    bt_tensor_t out;
    bt_strbuf_t text;
    bt_status_t status;

    if (tokens == NULL) {
        return refuse(p, "TOKENS_BATCH", "is missing");
    }
    if ((tokens->n_dims == 0) || !bt_dtype_is_integer(tokens->dtype)) {
        return refuse(p, tokens->name, "must be ids of shape [n, beams, ids]");
    }
    for (uint32_t i = 0; i + 1 < tokens->n_dims; i++) {
        dims[0] *= tokens->dims[i];
    }
    if (dims[0] > BT_API_MAX_PROMPTS) {
        return refuse(p, tokens->name, "has too many sequences");
    }
    if ((lengths != NULL) && (bt_tensor_elements(lengths) != dims[0])) {
        return refuse(p, lengths->name, "must have one length a sequence");
    }
    bt_strbuf_init(&text, BT_ANSWER_LIMIT);
    status = put_texts(p, tokens, lengths, dims[0],
                       tokens->dims[tokens->n_dims - 1], &text);
    if (status == BT_OK) {
        status = (bt_tensor_make(spec->outputs[0].name, BT_DTYPE_BYTES, dims, 1,
                                 text.len, &out) == BT_OK)
                     ? BT_OK
                     : bt_api_error_no_memory(p->error);
    }
    if (status == BT_OK) {
        if (text.len > 0) {
            memcpy(out.owned, text.data, text.len);
        }
        outputs[(*n_p)++] = out;
    }
    bt_strbuf_fini(&text);
    return status;
}

bt_status_t bt_infer_process(const bt_served_t *served, uint32_t context_tokens,
                             const bt_model_spec_t *spec,
                             const bt_infer_request_t *request,
                             const bt_tensor_requests_t *lowered,
                             bt_tensor_t *outputs_p, size_t *n_outputs_p,
                             bt_api_error_t *error_p)
{
    process_t p = {
        .served = served,
        .context_tokens = context_tokens,
        .request = request,
        .lowered = lowered,
        .error = error_p,
    };
    size_t n = 0;
    const bt_status_t status = (spec->role == BT_ROLE_PREPROCESS)
                                   ? run_preprocess(&p, spec, outputs_p, &n)
                                   : run_postprocess(&p, spec, outputs_p, &n);

    if (status != BT_OK) {
        while (n > 0) {
            bt_tensor_fini(&outputs_p[--n]);
        }
        return status;
    }
    *n_outputs_p = n;
    return BT_OK;
}
