/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/model/model_priv.h"

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

/* The parts are computed one after the other as (n_rows, n_out[i]) matrices;
 * seen as rows of `unit` values, row r of the result is the units index[] of
 * them: gathering with it interleaves without an operation of its own. */
void bt_linear_run(bt_backend_t *be, const bt_linear_t *linear,
                   const bt_linear_scratch_t *scratch, const float *x,
                   uint32_t n_rows, float *out)
{
    const uint32_t unit = linear->unit;
    float *part_out = scratch->parts;
    uint32_t n_units = 0;
    uint32_t base = 0;

    if (linear->n_parts == 1) {
        be->ops->matmul(be, linear->weights[0], x, n_rows, out);
        return;
    }
    BT_ASSERT((scratch->parts != NULL) && (scratch->index != NULL));
    for (uint32_t i = 0; i < linear->n_parts; i++) {
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
