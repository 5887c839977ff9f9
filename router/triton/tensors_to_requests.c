/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/tensors_to_requests.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/api/sampling.h"
#include "router/triton/outputs.h"
#include "router/triton/tensors_to_requests_priv.h"

/* ---- rows ---- */

/* Row @a row of @a n_rows of an input. */
static bt_status_t slice_of(bt_lower_t *l, const bt_tensor_t *tensor,
                            size_t row, size_t n_rows, bt_slice_t *s)
{
    const uint64_t n = bt_tensor_elements(tensor);
    const bool has_rows = (tensor->n_dims > 0) && (tensor->dims[0] == n_rows);

    *s = (bt_slice_t){
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
    /* One row for all prompts. */
    if ((n == 1) || ((tensor->n_dims > 1) && (tensor->dims[0] == 1))) {
        return BT_OK;
    }
    return bt_lower_refuse(
        l, tensor->name,
        "has a first dimension of %" PRIu64 ", but the batch has %zu rows",
        ((tensor->n_dims > 0) ? tensor->dims[0] : 1), n_rows);
}

static const bt_tensor_t *find_field(const bt_lower_t *l,
                                     bt_model_field_t field)
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

/* Reads the number of valid ids of a row, before the ids. */
static bt_status_t read_n_ids(bt_lower_t *l, size_t row, size_t n_rows)
{
    const bt_tensor_t *tensor = find_field(l, BT_FIELD_N_IDS);
    bt_slice_t s;
    int64_t n = 0;
    bt_status_t status;

    l->has_n_ids = tensor != NULL;
    if (tensor == NULL) {
        return BT_OK;
    }
    status = slice_of(l, tensor, row, n_rows, &s);
    if (status == BT_OK) {
        status = bt_lower_integer(l, &s, 1, INT32_MAX, &n);
    }
    l->n_ids = (uint64_t)n;
    return status;
}

static const bt_api_beam_names_t beam_names[] = {
    [BT_ROLE_TEXT] = {"stop_words", "top_k", "top_p", "runtime_top_p_decay",
                      "stream"},
    [BT_ROLE_IDS] = {"stop_words_list", "runtime_top_k", "runtime_top_p",
                     "runtime_top_p_decay", "streaming"},
    [BT_ROLE_PREPROCESS] = {"STOP_WORDS_DICT", "top_k", "top_p",
                            "runtime_top_p_decay", "stream"},
};

/* Checks that need the whole row. */
static bt_status_t check_row(bt_lower_t *l)
{
    bt_sampling_t *sampling = &l->row->sampling;
    bt_status_t status;

    if (l->row->has_max_tokens && (sampling->min_tokens > l->row->max_tokens)) {
        return bt_lower_refuse(l, "min_length",
                               "%u is above the %u tokens asked for",
                               sampling->min_tokens, l->row->max_tokens);
    }
    bt_api_processors_turn_off(l->row);
    bt_sampling_apply_triton(l->row->given, sampling);
    status = bt_lower_check_table(l);
    if (status == BT_OK) {
        status = bt_lower_join_lora(l);
    }
    if (status == BT_OK) {
        status = bt_api_settle_guide(l->row, l->error);
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_api_settle_beams(l->row, &beam_names[l->spec->role], l->error);
    return (status == BT_OK) ? bt_lower_join_biases(l) : status;
}

static const bt_api_names_t names[] = {
    [BT_ROLE_TEXT] = {"text_input", "max_tokens", "bad_words",
                      "embedding_bias_words"},
    [BT_ROLE_IDS] = {"input_ids", "request_output_len", "bad_words_list",
                     "embedding_bias"},
    [BT_ROLE_PREPROCESS] = {"QUERY", "REQUEST_OUTPUT_LEN", "BAD_WORDS_DICT",
                            "EMBEDDING_BIAS_WORDS"},
};

static bt_status_t fill_row(bt_lower_t *l, size_t row, size_t n_rows)
{
    const bt_infer_request_t *request = l->request;
    bt_status_t status;

    l->row = &l->out->rows[row];
    l->bias_words = l->bias_weights = (bt_slice_t){0};
    l->lora_weights = l->lora_config = (bt_slice_t){0};
    l->n_rows = n_rows;
    bt_api_request_init(BT_API_GENERATE, l->row);
    l->out->n_rows = row + 1; /* must be freed from here on */
    l->row->names = &names[l->spec->role];
    /* Models of ids stop at the client's end_id, not at the vocabulary's. */
    l->row->ignore_eos = l->spec->role == BT_ROLE_IDS;
    l->row->prompts = bt_calloc(1, sizeof(*l->row->prompts));
    if (l->row->prompts == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    l->row->n_prompts = 1;
    status = read_n_ids(l, row, n_rows);
    for (size_t i = 0; (i < request->n_inputs) && (status == BT_OK); i++) {
        const bt_tensor_t *tensor = &request->inputs[i].tensor;
        const bt_model_tensor_t *input = bt_model_input(l->spec, tensor->name);
        bt_slice_t s;

        status = slice_of(l, tensor, row, n_rows, &s);
        if (status == BT_OK) {
            status = bt_lower_take(l, input->what, &s);
        }
    }
    return (status == BT_OK) ? check_row(l) : status;
}

/* ---- the whole ---- */

bt_status_t bt_infer_check_inputs(const bt_model_spec_t *spec,
                                  const bt_infer_request_t *request,
                                  bt_api_error_t *error_p)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        const char *name = request->inputs[i].tensor.name;

        if (bt_model_input(spec, name) == NULL) {
            return BT_API_INVALID(
                error_p, "unexpected inference input '%s' for model '%s'", name,
                request->model);
        }
        if (bt_infer_input(request, name) != &request->inputs[i]) {
            return BT_API_INVALID(error_p, "input '%s' is there twice", name);
        }
    }
    return BT_OK;
}

static bt_status_t check_missing(bt_lower_t *l)
{
    for (size_t i = 0; i < l->spec->n_inputs; i++) {
        const bt_model_tensor_t *input = &l->spec->inputs[i];

        if (!input->optional &&
            (bt_infer_input(l->request, input->name) == NULL) &&
            /* Text models have a default length. */
            (input->what != BT_FIELD_MAX_TOKENS)) {
            return BT_API_INVALID(
                l->error, "expected inference input '%s' for model '%s'",
                input->name, l->request->model);
        }
    }
    return BT_OK;
}

static bt_status_t count_rows(bt_lower_t *l, size_t *n_rows_p)
{
    const bt_tensor_t *text = find_field(l, BT_FIELD_TEXT);
    const bt_tensor_t *prompt =
        (text != NULL) ? text : find_field(l, BT_FIELD_IDS);
    uint64_t n = 1;

    BT_ASSERT(prompt != NULL); /* check_missing() */
    /* One row of ids may lack the first dimension. */
    if (prompt->n_dims > ((text != NULL) ? 0u : 1u)) {
        n = prompt->dims[0];
    }
    if ((n == 0) || (n > BT_API_MAX_PROMPTS)) {
        return bt_lower_refuse(l, prompt->name,
                               "has a batch of %" PRIu64
                               "; it may be from 1 to %d",
                               n, BT_API_MAX_PROMPTS);
    }
    *n_rows_p = (size_t)n;
    return BT_OK;
}

/* A stop request needs no other inputs. */
static bt_status_t find_stop(bt_lower_t *l)
{
    const bt_tensor_t *tensor = find_field(l, BT_FIELD_STOP);
    bt_slice_t s;
    bt_status_t status;

    if (tensor == NULL) {
        return BT_OK;
    }
    status = slice_of(l, tensor, 0, 1, &s);
    return (status == BT_OK) ? bt_lower_take_stop(l, &s) : status;
}

static bt_status_t fill_rows(bt_lower_t *l)
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
        return bt_api_error_no_memory(l->error);
    }
    if (find_field(l, BT_FIELD_DECODER_TEXT) != NULL) {
        l->out->decoder_texts = bt_calloc(n_rows, sizeof(char *));
        if (l->out->decoder_texts == NULL) {
            return bt_api_error_no_memory(l->error);
        }
    }
    for (size_t i = 0; (i < n_rows) && (status == BT_OK); i++) {
        status = fill_row(l, i, n_rows);
    }
    return status;
}

/* All rows are searched alike, since a tensor has equally many beams of each.
 */
static bt_status_t check_beams(bt_lower_t *l)
{
    const bt_api_request_t *first = &l->out->rows[0];

    for (size_t i = 1; i < l->out->n_rows; i++) {
        const bt_sched_beam_params_t *beams = &l->out->rows[i].beams.params;

        if ((beams->width != first->beams.params.width) ||
            (beams->n_returned != first->beams.params.n_returned)) {
            return bt_lower_refuse(l, "beam_width",
                                   "and num_return_sequences must be equal for "
                                   "all rows of the batch");
        }
    }
    if (first->beams.params.width * l->out->n_rows > BT_API_MAX_PROMPTS) {
        return bt_lower_refuse(l, "beam_width",
                               "%u of %zu rows are more than %u beams in one "
                               "request",
                               first->beams.params.width, l->out->n_rows,
                               BT_API_MAX_PROMPTS);
    }
    l->out->n_beams = first->beams.params.n_returned;
    if ((l->out->n_beams > 0) && l->out->stream) {
        return bt_api_refuse_beam_stream(first, first->beams.names->stream,
                                         l->error);
    }
    return BT_OK;
}

/* Log-probs or logits that one row wants are computed for all rows, so that a
 * tensor has all of them. If outputs are named, only the named ones are
 * computed. A named output that no input enables is not computed, and left
 * out, as in TensorRT-LLM's backend. */
static void join_wants(bt_lower_t *l)
{
    const bt_infer_request_t *request = l->request;
    uint32_t what = 0;
    uint32_t named = 0;

    for (size_t i = 0; i < l->out->n_rows; i++) {
        what |= l->out->rows[i].wants.what;
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        const bt_model_tensor_t *output =
            bt_model_output(l->spec, request->wanted[i].name);

        named |= (output != NULL) ? bt_infer_output_wants(output) : 0;
    }
    what &= (request->n_wanted > 0) ? named : UINT32_MAX;
    l->out->wants = what;
    for (size_t i = 0; i < l->out->n_rows; i++) {
        l->out->rows[i].wants.what = what;
    }
}

static bt_api_priority_t priority_of(const bt_infer_param_t *param)
{
    switch ((param != NULL) ? param->kind : BT_INFER_STRING) {
    case BT_INFER_INT:
        return (bt_api_priority_t){.kind = BT_API_PRIORITY_INTEGER,
                                   .integer = param->integer};
    case BT_INFER_DOUBLE:
        return (bt_api_priority_t){.kind = BT_API_PRIORITY_REAL,
                                   .real = param->real};
    default:
        return (bt_api_priority_t){.kind = (param == NULL)
                                               ? BT_API_PRIORITY_NONE
                                               : BT_API_PRIORITY_OTHER};
    }
}

/* Reads Triton's request parameters that are supported. */
static void read_params(bt_lower_t *l)
{
    const bt_api_priority_t priority =
        priority_of(bt_infer_param(&l->request->params, "priority"));
    const bt_infer_param_t *timeout =
        bt_infer_param(&l->request->params, "timeout");

    for (size_t i = 0; i < l->out->n_rows; i++) {
        bt_api_request_t *row = &l->out->rows[i];

        row->priority = priority;
        if ((timeout != NULL) && (timeout->kind == BT_INFER_INT) &&
            (timeout->integer > 0) && /* microseconds */
            (timeout->integer / 1000 < UINT32_MAX)) {
            row->timeout_ms = (uint32_t)((timeout->integer + 999) / 1000);
        }
    }
}

bt_status_t bt_tensors_to_requests(const bt_model_spec_t *spec,
                                   const bt_infer_request_t *request,
                                   bt_tensor_requests_t *lowered_p,
                                   bt_api_error_t *error_p)
{
    bt_tensor_requests_t out = {.pad_id = -1, .end_id = -1};
    bt_lower_t l = {
        .request = request, .spec = spec, .out = &out, .error = error_p};
    bt_status_t status = bt_infer_check_inputs(spec, request, error_p);

    if (status == BT_OK) {
        status = find_stop(&l);
    }
    if ((status == BT_OK) && !out.stop) {
        status = fill_rows(&l);
    }
    if ((status == BT_OK) && !out.stop) {
        status = check_beams(&l);
    }
    if (status != BT_OK) {
        bt_tensor_requests_fini(&out);
        return status;
    }
    join_wants(&l);
    read_params(&l);
    *lowered_p = out;
    return BT_OK;
}

bt_status_t bt_infer_check_outputs(const bt_model_spec_t *spec,
                                   const bt_infer_request_t *request,
                                   bt_api_error_t *error_p)
{
    for (size_t i = 0; i < request->n_wanted; i++) {
        const char *name = request->wanted[i].name;

        if (bt_model_output(spec, name) == NULL) {
            return BT_API_INVALID(
                error_p, "unexpected inference output '%s' for model '%s'",
                name, request->model);
        }
    }
    return BT_OK;
}

void bt_tensor_requests_fini(bt_tensor_requests_t *lowered)
{
    for (size_t i = 0; i < lowered->n_rows; i++) {
        bt_api_request_fini(&lowered->rows[i]);
    }
    for (size_t i = 0;
         (lowered->decoder_texts != NULL) && (i < lowered->n_rows); i++) {
        bt_free(lowered->decoder_texts[i]);
    }
    bt_free(lowered->decoder_texts);
    bt_free(lowered->rows);
    memset(lowered, 0, sizeof(*lowered));
}
