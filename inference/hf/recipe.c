/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/recipe.h"

#include <math.h>
#include <string.h>

#include "inference/hf/floats.h"

uint64_t bt_recipe_stored_row(const bt_recipe_order_t *order, uint64_t r)
{
    const uint32_t dim = order->head_dim;
    uint64_t head;
    uint64_t at;

    if (order->n_segments == 0) {
        return r;
    }
    head = r / dim;
    at = r % dim;
    if (order->halves) {
        at = at / 2 + (at % 2) * (dim / 2);
    }
    for (uint32_t i = 0; i < order->n_segments; i++) {
        const bt_recipe_segment_t *const s = &order->segments[i];

        if (head < s->n_heads) {
            head =
                head / s->take * order->group_heads + s->first + head % s->take;
            break;
        }
        head -= s->n_heads;
    }
    return head * dim + at;
}

uint64_t bt_recipe_order_rows(const bt_recipe_order_t *order)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < order->n_segments; i++) {
        n += order->segments[i].n_heads;
    }
    return n * order->head_dim;
}

uint64_t bt_recipe_order_stored(const bt_recipe_order_t *order)
{
    const bt_recipe_segment_t *const s = &order->segments[0];

    return (uint64_t)(s->n_heads / s->take) * order->group_heads *
           order->head_dim;
}

float bt_recipe_number(const bt_st_tensor_t *tensor, uint64_t i)
{
    switch (tensor->dtype) {
    case BT_ST_F32:
        return bt_read_f32(tensor->data + 4 * i);
    case BT_ST_F16:
        return bt_read_f16(tensor->data + 2 * i);
    case BT_ST_F8_E8M0:
        return bt_read_e8m0(tensor->data + i);
    default: /* BF16 */
        return bt_read_bf16(tensor->data + 2 * i);
    }
}

void bt_recipe_row_plain(const bt_recipe_t *recipe, uint64_t row, uint8_t *out)
{
    memcpy(out, recipe->data->data + row * recipe->row_bytes,
           recipe->row_bytes);
}

void bt_recipe_row_transposed(const bt_recipe_t *recipe, uint64_t row,
                              uint8_t *out)
{
    const uint32_t size = bt_st_dtype_bytes(recipe->data->dtype);
    const uint64_t width = recipe->data->dims[1];

    for (uint64_t i = 0; i < recipe->n_in; i++) {
        memcpy(out + i * size, recipe->data->data + (i * width + row) * size,
               size);
    }
}

void bt_recipe_row_plus_one(const bt_recipe_t *recipe, uint64_t row,
                            uint8_t *out)
{
    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const float value =
            bt_recipe_number(recipe->data, row * recipe->n_in + i) + 1.0f;

        memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
}

void bt_recipe_row_unit(const bt_recipe_t *recipe, uint64_t row, uint8_t *out)
{
    const uint64_t first = row * recipe->n_in;
    double sum = 0.0;

    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const double x = (double)bt_recipe_number(recipe->data, first + i);

        sum += x * x;
    }
    sum = fmax(sqrt(sum), 1e-12); /* as torch.nn.functional.normalize() does */
    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const float value =
            (float)((double)bt_recipe_number(recipe->data, first + i) / sum);

        memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
}

bt_status_t bt_recipe_make(const void *recipe, void *out)
{
    const bt_recipe_t *const r = recipe;

    for (uint64_t i = 0; i < r->n_out; i++) {
        r->row(r, bt_recipe_stored_row(&r->order, i),
               (uint8_t *)out + i * r->row_bytes);
    }
    return BT_OK;
}
