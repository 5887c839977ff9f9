/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/outputs.h"

#include <string.h>

#include "common/base/assert.h"

typedef bt_status_t (*make_t)(const bt_infer_shape_t *shape,
                              const bt_infer_result_t *results, size_t n,
                              const char *name, bt_tensor_t *out);

static bt_status_t make_text(const bt_infer_shape_t *shape,
                             const bt_infer_result_t *results, size_t n,
                             const char *name, bt_tensor_t *out)
{
    const uint64_t dims[] = {n};
    size_t bytes = 0;
    uint8_t *at;
    bt_status_t status;

    (void)shape;
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
    uint64_t dims[] = {n, 1, 0}; /* one beam */
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

static bt_status_t make_n_ids(const bt_infer_shape_t *shape,
                              const bt_infer_result_t *results, size_t n,
                              const char *name, bt_tensor_t *out)
{
    const uint64_t dims[] = {n, 1};
    uint32_t *at;
    const bt_status_t status =
        bt_tensor_make(name, BT_DTYPE_INT32, dims, 2, 0, out);

    (void)shape;
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < n; i++) {
        at[i] = (uint32_t)(results[i].n_prompt + results[i].n_ids);
    }
    return BT_OK;
}

static bt_status_t make_batch_index(const bt_infer_shape_t *shape,
                                    const bt_infer_result_t *results, size_t n,
                                    const char *name, bt_tensor_t *out)
{
    const uint64_t dims[] = {n, 1};
    uint32_t *at;
    const bt_status_t status =
        bt_tensor_make(name, BT_DTYPE_INT32, dims, 2, 0, out);

    (void)shape;
    if (status != BT_OK) {
        return status;
    }
    at = out->owned;
    for (size_t i = 0; i < n; i++) {
        at[i] = results[i].row;
    }
    return BT_OK;
}

/* Those that generating gives; what is not here was refused. */
static const make_t makes[BT_N_RESULTS] = {
    [BT_RESULT_TEXT] = make_text,
    [BT_RESULT_IDS] = make_ids,
    [BT_RESULT_N_IDS] = make_n_ids,
    [BT_RESULT_BATCH_INDEX] = make_batch_index,
};

/* Is it given to a client that names none? */
static bool is_usual(const bt_infer_shape_t *shape,
                     const bt_model_tensor_t *output)
{
    if (output->what == BT_RESULT_BATCH_INDEX) {
        return shape->n_batch > 1;
    }
    return !output->hidden && (makes[output->what] != NULL);
}

bt_status_t bt_infer_outputs(const bt_infer_shape_t *shape,
                             const bt_infer_result_t *results, size_t n,
                             bt_tensor_t *outputs_p, size_t *n_outputs_p)
{
    size_t made = 0;
    bt_status_t status = BT_OK;

    BT_ASSERT(shape->spec->n_outputs <= BT_INFER_MAX_OUTPUTS);
    for (size_t i = 0; (i < shape->spec->n_outputs) && (status == BT_OK); i++) {
        const bt_model_tensor_t *output = &shape->spec->outputs[i];
        const bool wanted =
            (shape->request->n_wanted > 0)
                ? (bt_infer_wanted(shape->request, output->name) != NULL) &&
                      (makes[output->what] != NULL)
                : is_usual(shape, output);

        if (wanted) {
            status = makes[output->what](shape, results, n, output->name,
                                         &outputs_p[made]);
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
