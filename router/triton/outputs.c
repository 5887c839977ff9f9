/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/outputs.h"

#include <string.h>

#include "common/base/status.h"
#include "router/api/perf_metrics.h"

/* Results of each row. */
static uint64_t beams_of(const bt_infer_shape_t *shape)
{
    return (shape->n_beams > 0) ? shape->n_beams : 1;
}

/* A list, of all beams of all rows too: clients read element 0 of it.
 * Source: postprocessing/1/model.py of TensorRT-LLM's backend. */
static bt_status_t make_text(const bt_infer_result_t *results, size_t n,
                             const char *name, bt_tensor_t *out)
{
    const uint64_t dims[] = {n};
    size_t bytes = 0;
    uint8_t *at;
    bt_status_t status;

    for (size_t i = 0; i < n; i++) {
        bytes += sizeof(uint32_t) + results[i].text_bytes;
    }
    status = bt_tensor_make(name, BT_DTYPE_BYTES, dims, 1, bytes, out);
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < n; i++) {
        at = bt_tensor_put_bytes(at, results[i].text, results[i].text_bytes);
    }
    return BT_OK;
}

static bt_status_t make_ids(const bt_infer_shape_t *shape,
                            const bt_infer_result_t *results, size_t n,
                            const char *name, bt_tensor_t *out)
{
    const uint64_t n_beams = beams_of(shape);
    uint64_t dims[] = {n / n_beams, n_beams, 0};
    uint32_t *at;
    bt_status_t status;

    for (size_t i = 0; i < n; i++) {
        const size_t length = results[i].n_prompt + results[i].n_ids;

        dims[2] = (length > dims[2]) ? length : dims[2];
    }
    status = bt_tensor_make(name, BT_DTYPE_INT32, dims, 3, 0, out);
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < n; i++) {
        const bt_infer_result_t *r = &results[i];

        for (uint64_t k = 0; k < dims[2]; k++) {
            if (k < r->n_prompt) {
                *at++ = r->prompt[k];
            } else if (k - r->n_prompt < r->n_ids) {
                *at++ = r->ids[k - r->n_prompt];
            } else {
                *at++ = shape->pad_id;
            }
        }
    }
    return BT_OK;
}

/* Makes a tensor of one element of four bytes for each result; the number of
 * a row is of its first one. */
static bt_status_t make_column(const bt_infer_shape_t *shape,
                               const bt_infer_result_t *results, size_t n,
                               const bt_model_tensor_t *output,
                               bt_tensor_t *out)
{
    const uint64_t n_beams = beams_of(shape);
    const bool of_row = output->what == BT_RESULT_BATCH_INDEX;
    const uint64_t dims[] = {n / n_beams, of_row ? 1 : n_beams};
    const size_t step = of_row ? (size_t)n_beams : 1;
    const bt_status_t status =
        bt_tensor_make(output->name, output->dtype, dims, 2, 0, out);

    for (size_t i = 0; (status == BT_OK) && (i < n / step); i++) {
        const bt_infer_result_t *r = &results[i * step];

        if (output->what == BT_RESULT_CUM_LOG_PROBS) {
            ((float *)out->owned)[i] = (float)r->cum_logprob;
        } else {
            ((uint32_t *)out->owned)[i] =
                (output->what == BT_RESULT_BATCH_INDEX)
                    ? r->row
                    : (uint32_t)(r->n_prompt + r->n_ids);
        }
    }
    return status;
}

static bt_status_t make_perf(const bt_infer_shape_t *shape,
                             const bt_infer_result_t *results, size_t n,
                             const bt_model_tensor_t *output, bt_tensor_t *out)
{
    const bt_perf_metric_t *metric = bt_perf_metric_named(output->name);
    const uint64_t n_beams = beams_of(shape);
    const bool of_row = metric->want != BT_WANT_N_OUTPUT;
    const uint64_t dims[] = {n / n_beams, of_row ? 1 : n_beams};
    const size_t step = of_row ? (size_t)n_beams : 1;
    const bt_status_t status =
        bt_tensor_make(output->name, output->dtype, dims, 2, 0, out);

    for (size_t i = 0; (status == BT_OK) && (i < n / step); i++) {
        const double value = metric->value(&results[i * step].perf);

        if (metric->type == BT_PERF_FP32) {
            ((float *)out->owned)[i] = (float)value;
        } else if (metric->type == BT_PERF_INT64) {
            ((int64_t *)out->owned)[i] = (int64_t)value;
        } else {
            ((int32_t *)out->owned)[i] = (int32_t)value;
        }
    }
    return status;
}

/* ---- log-probs ---- */

static bt_status_t make_log_probs(const bt_infer_shape_t *shape,
                                  const bt_infer_result_t *results, size_t n,
                                  const char *name, bt_tensor_t *out)
{
    const uint64_t n_beams = beams_of(shape);
    uint64_t dims[] = {n / n_beams, n_beams, 0};
    float *at;
    bt_status_t status;

    for (size_t i = 0; i < n; i++) {
        const uint32_t length = results[i].to - results[i].from;

        dims[2] = (length > dims[2]) ? length : dims[2];
    }
    status = bt_tensor_make(name, BT_DTYPE_FP32, dims, 3, 0, out);
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < n; i++) {
        const bt_infer_result_t *r = &results[i];

        for (uint32_t k = r->from; k < r->to; k++) {
            at[i * dims[2] + k - r->from] = (float)r->rows->scores.logprobs[k];
        }
    }
    return BT_OK;
}

/* ---- logits ---- */

static uint32_t n_logits(const bt_infer_result_t *r, bool of_context)
{
    if (r->rows == NULL) {
        return 0;
    }
    return of_context ? r->rows->n_context : r->rows->n_output;
}

/* @return the number of dims */
static uint32_t logits_dims(const bt_infer_result_t *results, size_t n,
                            bool of_context, uint64_t dims[4])
{
    uint64_t length = 0;
    uint64_t n_vocab = 0;
    uint32_t k = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t mine = n_logits(&results[i], of_context);

        length = (mine > length) ? mine : length;
        n_vocab = (mine > 0) ? results[i].rows->n_vocab : n_vocab;
    }
    dims[k++] = n;
    if (!of_context) {
        dims[k++] = 1; /* beams have no logits */
    }
    dims[k++] = length;
    dims[k++] = n_vocab;
    return k;
}

static void give_up_rows(void *rows)
{
    bt_gen_rows_unref(rows);
}

/* A single row's logits are not copied; those of several rows are
 * concatenated. */
static bt_status_t make_logits(const bt_infer_result_t *results, size_t n,
                               bool of_context, const char *name,
                               bt_tensor_t *out)
{
    uint64_t dims[4];
    const uint32_t n_dims = logits_dims(results, n, of_context, dims);
    uint64_t each;
    bt_status_t status;

    if ((n == 1) && (results->rows != NULL)) {
        bt_gen_rows_t *rows = results->rows;

        status = bt_tensor_hold(name, BT_DTYPE_FP32, dims, n_dims,
                                of_context ? rows->context_logits
                                           : rows->generation_logits,
                                rows, give_up_rows, out);
        if (status == BT_OK) {
            (void)bt_gen_rows_ref(rows);
        }
        return status;
    }
    status = bt_tensor_make(name, BT_DTYPE_FP32, dims, n_dims, 0, out);
    if (status != BT_OK) {
        return status;
    }
    each = dims[n_dims - 2] * dims[n_dims - 1];
    for (size_t i = 0; i < n; i++) {
        const bt_gen_rows_t *rows = results[i].rows;
        const uint32_t mine = n_logits(&results[i], of_context);

        if (mine > 0) {
            memcpy((float *)out->owned + i * each,
                   of_context ? rows->context_logits : rows->generation_logits,
                   (size_t)mine * rows->n_vocab * sizeof(float));
        }
    }
    return BT_OK;
}

uint32_t bt_infer_output_wants(const bt_model_tensor_t *output)
{
    const bt_perf_metric_t *metric;

    switch (output->what) {
    case BT_RESULT_PERF:
        metric = bt_perf_metric_named(output->name);
        return (metric != NULL) ? metric->want : 0;
    case BT_RESULT_CUM_LOG_PROBS:
    case BT_RESULT_LOG_PROBS:
        return BT_WANT_LOGPROBS;
    case BT_RESULT_CONTEXT_LOGITS:
        return BT_WANT_PROMPT_LOGITS;
    case BT_RESULT_GENERATION_LOGITS:
        return BT_WANT_LOGITS;
    default:
        return 0;
    }
}

/* True when returned to a client that names no outputs. */
static bool is_usual(const bt_infer_shape_t *shape,
                     const bt_model_tensor_t *output)
{
    if (output->what == BT_RESULT_BATCH_INDEX) {
        return shape->n_batch > 1;
    }
    return !output->hidden || (output->what == BT_RESULT_PERF);
}

/* An output that was not requested is absent, and so are logits before a row's
 * end. */
static bool is_here(const bt_infer_shape_t *shape,
                    const bt_infer_result_t *results, size_t n,
                    const bt_model_tensor_t *output)
{
    const uint32_t needs = bt_infer_output_wants(output);

    if ((output->what == BT_RESULT_NOT_GIVEN) ||
        ((needs & ~shape->wants) != 0)) {
        return false;
    }
    return ((needs & (BT_WANT_ANY_LOGITS | BT_WANT_ANY_PERF)) == 0) ||
           ((n > 0) && results[0].ends);
}

static bool is_wanted(const bt_infer_shape_t *shape,
                      const bt_infer_result_t *results, size_t n,
                      const bt_model_tensor_t *output)
{
    const bool asked =
        (shape->request->n_wanted > 0)
            ? bt_infer_wanted(shape->request, output->name) != NULL
            : is_usual(shape, output);

    return asked && is_here(shape, results, n, output);
}

static bool logits_fit(const bt_infer_shape_t *shape,
                       const bt_infer_result_t *results, size_t n)
{
    uint64_t floats = 0;

    for (size_t i = 0; i < shape->spec->n_outputs; i++) {
        const bt_model_tensor_t *output = &shape->spec->outputs[i];
        const uint32_t needs = bt_infer_output_wants(output);
        uint64_t dims[4];
        uint32_t n_dims;

        if (((needs & BT_WANT_ANY_LOGITS) != 0) &&
            is_wanted(shape, results, n, output)) {
            n_dims =
                logits_dims(results, n, needs == BT_WANT_PROMPT_LOGITS, dims);
            floats += n * dims[n_dims - 2] * dims[n_dims - 1];
        }
    }
    return floats <= shape->max_logits / sizeof(float);
}

static bt_status_t make_output(const bt_infer_shape_t *shape,
                               const bt_infer_result_t *results, size_t n,
                               const bt_model_tensor_t *output,
                               bt_tensor_t *out)
{
    switch (output->what) {
    case BT_RESULT_TEXT:
        return make_text(results, n, output->name, out);
    case BT_RESULT_IDS:
        return make_ids(shape, results, n, output->name, out);
    case BT_RESULT_LOG_PROBS:
        return make_log_probs(shape, results, n, output->name, out);
    case BT_RESULT_CONTEXT_LOGITS:
    case BT_RESULT_GENERATION_LOGITS:
        return make_logits(results, n, output->what == BT_RESULT_CONTEXT_LOGITS,
                           output->name, out);
    case BT_RESULT_PERF:
        return make_perf(shape, results, n, output, out);
    default:
        return make_column(shape, results, n, output, out);
    }
}

bt_status_t bt_infer_outputs(const bt_infer_shape_t *shape,
                             const bt_infer_result_t *results, size_t n,
                             bt_tensor_t *outputs_p, size_t *n_outputs_p)
{
    size_t made = 0;
    bt_status_t status = BT_OK;

    BT_ASSERT(shape->spec->n_outputs <= BT_INFER_MAX_OUTPUTS);
    if (((shape->wants & BT_WANT_ANY_LOGITS) != 0) &&
        !logits_fit(shape, results, n)) {
        return BT_ERR_TOO_LARGE;
    }
    for (size_t i = 0; (i < shape->spec->n_outputs) && (status == BT_OK); i++) {
        const bt_model_tensor_t *output = &shape->spec->outputs[i];

        if (is_wanted(shape, results, n, output)) {
            status = make_output(shape, results, n, output, &outputs_p[made]);
            made += (status == BT_OK) ? 1 : 0;
        }
    }
    if (status != BT_OK) {
        while (made > 0) {
            bt_tensor_fini(&outputs_p[--made]);
        }
        return BT_ERR_NO_MEMORY;
    }
    *n_outputs_p = made;
    return BT_OK;
}
