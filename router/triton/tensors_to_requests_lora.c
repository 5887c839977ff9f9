/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA adapter of a request by tensors: lora_task_id, lora_weights and
 * lora_config (inference/adapter/adapter_tensors.h). Error texts are those of
 * TensorRT-LLM, where it has some. */
#include <inttypes.h>

#include "common/base/alloc.h"
#include "inference/adapter/adapter_tensors.h"
#include "router/triton/tensors_to_requests_priv.h"

static const char task_name[] = "lora_task_id";
static const char weights_name[] = "lora_weights";
static const char config_name[] = "lora_config";

bt_status_t bt_lower_take_lora_task(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_lora_t *const lora = &l->row->lora;

    if (s->n == 0) {
        return BT_OK;
    }
    if (s->n != 1) {
        return bt_lower_refuse(l, s->name, "must have one value, got %" PRIu64,
                               s->n);
    }
    if (bt_tensor_u64(s->tensor, s->from, &lora->task_id) != BT_OK) {
        return bt_lower_refuse(l, s->name, "must be an integer, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    lora->has_task = true;
    return BT_OK;
}

bt_status_t bt_lower_take_lora_weights(bt_lower_t *l, const bt_slice_t *s)
{
    l->lora_weights = *s;
    return BT_OK;
}

bt_status_t bt_lower_take_lora_config(bt_lower_t *l, const bt_slice_t *s)
{
    l->lora_config = *s;
    return BT_OK;
}

/* Finds the type of weights. @return false: there is none */
static bool weights_type(bt_dtype_t dtype, uint32_t *type_p)
{
    switch (dtype) {
    case BT_DTYPE_FP32:
        *type_p = BT_ADAPTER_F32;
        return true;
    case BT_DTYPE_FP16:
        *type_p = BT_ADAPTER_F16;
        return true;
    case BT_DTYPE_BF16:
        *type_p = BT_ADAPTER_BF16;
        return true;
    default:
        return false;
    }
}

/* Finds both dimensions of a matrix, which may stand in a batch of one. */
static bt_status_t matrix_of(bt_lower_t *l, const bt_slice_t *s,
                             const char *shape, uint64_t *n_p,
                             uint64_t *width_p)
{
    const uint64_t n = (s->n_dims < 2) ? 0 : s->dims[s->n_dims - 2];
    const uint64_t width = (s->n_dims < 2) ? 0 : s->dims[s->n_dims - 1];

    if ((n == 0) || (width == 0) || (s->n % n != 0) || (s->n / n != width)) {
        return bt_lower_refuse(l, s->name, "must have the shape %s", shape);
    }
    *n_p = n;
    *width_p = width;
    return BT_OK;
}

static bt_status_t copy(bt_lower_t *l, const bt_adapter_tensors_t *shape)
{
    const bt_slice_t *const weights = &l->lora_weights;
    const bt_slice_t *const config = &l->lora_config;
    const uint64_t size = bt_dtype_bytes(weights->tensor->dtype);
    bt_adapter_tensors_t *tensors = NULL;

    if (bt_adapter_tensors_create(shape,
                                  (const uint8_t *)config->tensor->data +
                                      config->from * sizeof(int32_t),
                                  (const uint8_t *)weights->tensor->data +
                                      weights->from * size,
                                  &tensors) != BT_OK) {
        return bt_api_error_no_memory(l->error);
    }
    l->row->lora.tensors = tensors;
    return BT_OK;
}

/* Compares both, which are there. */
static bt_status_t join(bt_lower_t *l)
{
    const bt_slice_t *const weights = &l->lora_weights;
    const bt_slice_t *const config = &l->lora_config;
    bt_adapter_tensors_t shape = {0};
    uint64_t n = 0;
    uint64_t n_keys = 0;
    uint64_t n_columns = 0;
    bt_status_t status =
        matrix_of(l, weights, "[modules and layers, width]", &n, &shape.width);

    if (status == BT_OK) {
        status = matrix_of(l, config, "[modules and layers, 3]", &n_keys,
                           &n_columns);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!weights_type(weights->tensor->dtype, &shape.type)) {
        return bt_lower_refuse(l, weights_name,
                               "must be FP16, BF16 or FP32, got %s",
                               bt_dtype_name(weights->tensor->dtype));
    }
    if (config->tensor->dtype != BT_DTYPE_INT32) {
        return bt_lower_refuse(l, config_name, "must be INT32, got %s",
                               bt_dtype_name(config->tensor->dtype));
    }
    if ((n_columns != 3) && (n_columns != 4)) {
        return BT_API_INVALID(l->error,
                              "Expected dim2 of lora_keys to have a size in "
                              "[3, 4]: lora_config has %" PRIu64,
                              n_columns);
    }
    if (n != n_keys) {
        return BT_API_INVALID(l->error,
                              "Expected dim1 lora_weights and lora_keys to "
                              "have the same size: lora_weights has %" PRIu64
                              " rows, lora_config %" PRIu64,
                              n, n_keys);
    }
    if (n > BT_ADAPTER_MAX_TENSOR_ROWS) {
        return bt_lower_refuse(l, weights_name,
                               "has %" PRIu64 " rows; there may be up to %u", n,
                               BT_ADAPTER_MAX_TENSOR_ROWS);
    }
    shape.n_rows = (uint32_t)n;
    shape.n_columns = (uint32_t)n_columns;
    shape.weights_bytes =
        (size_t)(weights->n * bt_dtype_bytes(weights->tensor->dtype));
    return copy(l, &shape);
}

static bool is_zeros(const bt_slice_t *s)
{
    const uint64_t size =
        (s->n > 0) ? bt_dtype_bytes(s->tensor->dtype) : 0; /* 0: texts */
    const uint8_t *const data =
        (s->n > 0) ? (const uint8_t *)s->tensor->data + s->from * size : NULL;

    for (uint64_t i = 0; i < s->n * size; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return (s->n == 0) || (size > 0);
}

/* Zeros without a partner are there as Triton's clients fill in inputs of which
 * they make no use. */
bt_status_t bt_lower_join_lora(bt_lower_t *l)
{
    bt_api_lora_t *const lora = &l->row->lora;
    const bool zero_weights = is_zeros(&l->lora_weights);
    const bool zero_config = is_zeros(&l->lora_config);
    const bool has_both = (l->lora_weights.n > 0) && (l->lora_config.n > 0);

    lora->is_blank = (lora->task_id == 0) && zero_weights && zero_config;
    if (!lora->has_task) {
        return (zero_weights && zero_config)
                   ? BT_OK
                   : bt_lower_refuse(l,
                                     zero_weights ? config_name : weights_name,
                                     "is of no use alone: %s must be set for "
                                     "LoRA inference",
                                     task_name);
    }
    if (!has_both) {
        return (zero_weights && zero_config)
                   ? BT_OK
                   : bt_lower_refuse(l,
                                     zero_weights ? config_name : weights_name,
                                     "needs the input '%s'",
                                     zero_weights ? weights_name : config_name);
    }
    if (l->n_rows != 1) {
        return bt_lower_refuse(l, weights_name,
                               "must come in a batch of one row; others name "
                               "%s alone",
                               task_name);
    }
    return join(l);
}
