/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
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

void bt_step_ahead(bt_backend_t *be, const bt_weight_t *w)
{
    if (be->ops->ahead != NULL) {
        be->ops->ahead(be, w);
    }
}

/* Computes each part as a matrix of its own (n_rows, n_out[i]), then places it
 * beside the previous ones. */
static void run_parts(bt_backend_t *be, const bt_linear_t *linear, float *part,
                      const float *x, uint32_t n_rows, const bt_weight_t *next,
                      float *out)
{
    uint32_t width = 0;
    uint32_t at = 0;

    BT_ASSERT(part != NULL);
    for (uint32_t i = 0; i < linear->n_parts; i++) {
        width += linear->n_out[i];
    }
    for (uint32_t i = 0; i < linear->n_parts; i++) {
        bt_step_ahead(be, (i + 1 < linear->n_parts) ? linear->weights[i + 1]
                                                    : next);
        be->ops->matmul(be, linear->weights[i], x, n_rows, part);
        be->ops->copy_columns(be, part, n_rows, linear->n_out[i], out, width,
                              at);
        at += linear->n_out[i];
    }
}

void bt_step_norm(bt_backend_t *be, const float *x, const bt_norm_t *norm,
                  uint32_t n_rows, float *out)
{
    if (norm->layer) {
        be->ops->layer_norm(be, x, norm->weight, norm->bias, norm->eps, n_rows,
                            norm->dim, out);
    } else {
        be->ops->rmsnorm(be, x, norm->weight, norm->eps, n_rows, norm->dim,
                         out);
    }
}

void bt_step_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows, float *tmp,
                         float *out)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (norm->weight == NULL) {
        ops->matmul(be, w, x, n_rows, out);
        return;
    }
    if (!norm->layer && (ops->norm_matmul != NULL)) {
        ops->norm_matmul(be, w, x, norm->weight, norm->eps, n_rows, out);
        return;
    }
    bt_step_norm(be, x, norm, n_rows, tmp);
    ops->matmul(be, w, tmp, n_rows, out);
}

/* Computes several parts that share one norm. */
void bt_step_norm_linear(bt_backend_t *be, const bt_linear_t *linear,
                         float *part, const float *x, const bt_norm_t *norm,
                         uint32_t n_rows, const bt_weight_t *next, float *tmp,
                         float *out)
{
    if (linear->n_parts == 1) {
        bt_step_ahead(be, next);
        bt_step_norm_matmul(be, linear->weights[0], x, norm, n_rows, tmp, out);
        return;
    }
    if (norm->weight != NULL) {
        bt_step_norm(be, x, norm, n_rows, tmp);
        x = tmp;
    }
    run_parts(be, linear, part, x, n_rows, next, out);
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
