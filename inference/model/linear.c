/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/model/model_priv.h"

void bt_model_weight_free(bt_backend_t *be, bt_weight_t *weight)
{
    if (weight != NULL) {
        be->ops->weight_free(be, weight);
    }
}

void bt_model_buffer_free(bt_backend_t *be, void *ptr)
{
    if (ptr != NULL) {
        be->ops->buffer_free(be, ptr);
    }
}

void bt_linear_free(bt_backend_t *be, bt_linear_t *linear)
{
    for (uint32_t i = 0; i < BT_MAX_PARTS; i++) {
        bt_model_weight_free(be, linear->weights[i]);
    }
}

void bt_linear_scratch_free(bt_backend_t *be, bt_linear_scratch_t *scratch)
{
    bt_model_buffer_free(be, scratch->parts);
    bt_free(scratch->index);
}

void bt_step_ahead(bt_backend_t *be, const bt_weight_t *w)
{
    if (be->ops->ahead != NULL) {
        be->ops->ahead(be, w);
    }
}

/* The parts are computed one after the other as (n_rows, n_out[i]) matrices;
 * seen as rows of `unit` values, row r of the result is the units index[] of
 * them: gathering with it interleaves without an operation of its own. */
static void run_parts(bt_backend_t *be, const bt_linear_t *linear,
                      const bt_linear_scratch_t *scratch, const float *x,
                      uint32_t n_rows, const bt_weight_t *next, float *out)
{
    const uint32_t unit = linear->unit;
    float *part_out = scratch->parts;
    uint32_t n_units = 0;
    uint32_t base = 0;

    BT_ASSERT((scratch->parts != NULL) && (scratch->index != NULL));
    for (uint32_t i = 0; i < linear->n_parts; i++) {
        bt_step_ahead(be, (i + 1 < linear->n_parts) ? linear->weights[i + 1]
                                                    : next);
        be->ops->matmul(be, linear->weights[i], x, n_rows, part_out);
        part_out += (size_t)n_rows * linear->n_out[i];
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        base = 0;
        for (uint32_t i = 0; i < linear->n_parts; i++) {
            const uint32_t units = linear->n_out[i] / unit;

            for (uint32_t u = 0; u < units; u++) {
                scratch->index[n_units++] = base + r * units + u;
            }
            base += n_rows * units;
        }
    }
    be->ops->gather_rows(be, scratch->parts, scratch->index, n_units, unit,
                         out);
}

void bt_step_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows, float *tmp,
                         float *out)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (ops->norm_matmul != NULL) {
        ops->norm_matmul(be, w, x, norm->weight, norm->eps, n_rows, out);
        return;
    }
    ops->rmsnorm(be, x, norm->weight, norm->eps, n_rows, norm->dim, tmp);
    ops->matmul(be, w, tmp, n_rows, out);
}

/* Several parts share one norm. */
void bt_step_norm_linear(bt_backend_t *be, const bt_linear_t *linear,
                         const bt_linear_scratch_t *scratch, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows,
                         const bt_weight_t *next, float *tmp, float *out)
{
    if (linear->n_parts == 1) {
        bt_step_ahead(be, next);
        bt_step_norm_matmul(be, linear->weights[0], x, norm, n_rows, tmp, out);
        return;
    }
    be->ops->rmsnorm(be, x, norm->weight, norm->eps, n_rows, norm->dim, tmp);
    run_parts(be, linear, scratch, tmp, n_rows, next, out);
}

void bt_step_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                        uint32_t n_rows, uint32_t n_out, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (ops->matmul_add != NULL) {
        ops->matmul_add(be, w, a, n_rows, x);
        return;
    }
    ops->matmul(be, w, a, n_rows, tmp);
    ops->add(be, x, tmp, (size_t)n_rows * n_out);
}

void bt_step_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                             float *gate_up, uint32_t n_rows, uint32_t n_in,
                             uint32_t n_out, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (ops->silu_matmul_add != NULL) {
        ops->silu_matmul_add(be, w, gate_up, n_rows, x);
        return;
    }
    ops->silu_mul(be, gate_up, n_rows, n_in, tmp);
    bt_step_matmul_add(be, w, tmp, n_rows, n_out, gate_up, x);
}
