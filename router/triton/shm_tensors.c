/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/shm_tensors.h"

#include <inttypes.h>

#include "common/base/alloc.h"

_Static_assert(BT_TENSOR_NAME_BYTES == BT_REGION_NAME_BYTES,
               "what a tensor can name can be registered");

struct bt_shm_tensors {
    bt_regions_t *regions;
    uint64_t input_bytes, held;
    bool writes;
    /* References, in the request's order; NULL: not in shared memory. */
    bt_region_t *inputs[BT_INFER_MAX_INPUTS];
    bt_region_t *wanted[BT_INFER_MAX_OUTPUTS];
};

/* Returns the name of the first tensor in shared memory, or NULL. */
static const char *first_of(const bt_infer_request_t *request)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (request->inputs[i].region.name[0] != '\0') {
            return request->inputs[i].tensor.name;
        }
    }
    for (size_t i = 0; i < request->n_wanted; i++) {
        if (request->wanted[i].region.name[0] != '\0') {
            return request->wanted[i].name;
        }
    }
    return NULL;
}

bool bt_shm_tensors_any(const bt_infer_request_t *request)
{
    return first_of(request) != NULL;
}

/* ---- references ---- */

/* Adds the tensor's name to a region's error. */
static void name_it(bt_api_error_t *error, const char *what, const char *name)
{
    const bt_api_error_t why = *error;

    bt_api_error_set(error, why.http_status, NULL, "%s '%s': %s", what, name,
                     why.message);
}

static bt_status_t refer(const bt_regions_t *regions, const char *what,
                         const char *name, const bt_infer_region_t *at,
                         bt_region_t **region_p, bt_api_error_t *error)
{
    bt_region_t *region;
    bt_status_t status;

    if (at->name[0] == '\0') {
        return BT_OK;
    }
    region = bt_regions_find(regions, at->name);
    if (region == NULL) {
        return BT_API_INVALID(
            error, "%s '%s': unable to find shared memory region '%s'", what,
            name, at->name);
    }
    status = bt_region_check(region, at->offset, at->bytes, error);
    if (status != BT_OK) {
        name_it(error, what, name);
        bt_region_unref(region);
        return status;
    }
    *region_p = region;
    return BT_OK;
}

static bt_status_t refer_to_all(bt_shm_tensors_t *uses,
                                const bt_infer_request_t *request,
                                bt_api_error_t *error)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < request->n_inputs) && (status == BT_OK); i++) {
        const bt_infer_input_t *input = &request->inputs[i];

        status = refer(uses->regions, "input", input->tensor.name,
                       &input->region, &uses->inputs[i], error);
        if (uses->inputs[i] != NULL) {
            uses->input_bytes += input->region.bytes; /* regions are bounded */
        }
    }
    for (size_t i = 0; (i < request->n_wanted) && (status == BT_OK); i++) {
        const bt_infer_wanted_t *wanted = &request->wanted[i];

        status = refer(uses->regions, "output", wanted->name, &wanted->region,
                       &uses->wanted[i], error);
        uses->writes = uses->writes || (uses->wanted[i] != NULL);
    }
    return status;
}

static bt_status_t hold(bt_shm_tensors_t *uses, uint64_t max_bytes,
                        bt_api_error_t *error)
{
    if (uses->input_bytes > max_bytes) {
        bt_api_error_set(error, 413, NULL,
                         "the inputs in shared memory are %" PRIu64
                         " bytes, over the "
                         "limit of %" PRIu64 " (--max-body-bytes)",
                         uses->input_bytes, max_bytes);
        return BT_ERR_INVALID_PARAM;
    }
    if (!bt_regions_hold(uses->regions, uses->input_bytes)) {
        bt_api_error_set(error, 503, NULL,
                         "the server has no room for the inputs in shared "
                         "memory now, try again later");
        return BT_ERR_BUSY;
    }
    uses->held = uses->input_bytes;
    return BT_OK;
}

bt_status_t bt_shm_tensors_begin(bt_regions_t *regions,
                                 const bt_infer_request_t *request,
                                 uint64_t max_bytes, bt_shm_tensors_t **uses_p,
                                 bt_api_error_t *error_p)
{
    bt_shm_tensors_t *uses;
    bt_status_t status;

    if (regions == NULL) {
        return BT_API_INVALID(
            error_p,
            "%s: shared_memory_region: this server takes no "
            "tensors in shared memory (--shared-memory off): send "
            "the tensors themselves",
            first_of(request));
    }
    uses = bt_calloc(1, sizeof(*uses));
    if (uses == NULL) {
        return bt_api_error_no_memory(error_p);
    }
    uses->regions = regions;
    status = refer_to_all(uses, request, error_p);
    if (status == BT_OK) {
        status = hold(uses, max_bytes, error_p);
    }
    if (status != BT_OK) {
        bt_shm_tensors_end(uses);
        return status;
    }
    *uses_p = uses;
    return BT_OK;
}

uint64_t bt_shm_tensors_input_bytes(const bt_shm_tensors_t *uses)
{
    return uses->input_bytes;
}

bool bt_shm_tensors_writes(const bt_shm_tensors_t *uses)
{
    return (uses != NULL) && uses->writes;
}

void bt_shm_tensors_give_back(bt_shm_tensors_t *uses)
{
    if (uses != NULL) {
        bt_regions_give_back(uses->regions, uses->held);
        uses->held = 0;
    }
}

void bt_shm_tensors_end(bt_shm_tensors_t *uses)
{
    if (uses == NULL) {
        return;
    }
    bt_shm_tensors_give_back(uses);
    for (size_t i = 0; i < BT_INFER_MAX_INPUTS; i++) {
        bt_region_unref(uses->inputs[i]);
    }
    for (size_t i = 0; i < BT_INFER_MAX_OUTPUTS; i++) {
        bt_region_unref(uses->wanted[i]);
    }
    bt_free(uses);
}

/* ---- reading ---- */

static bt_status_t read_input(const bt_region_t *region,
                              bt_infer_input_t *input, bt_api_error_t *error)
{
    bt_tensor_t *tensor = &input->tensor;
    const size_t bytes = (size_t)input->region.bytes;
    char why[BT_TENSOR_WHY_BYTES];
    bt_status_t status = BT_OK;

    if (bytes > 0) {
        tensor->owned = bt_realloc_array(NULL, bytes, 1);
        if (tensor->owned == NULL) {
            return bt_api_error_no_memory(error);
        }
        status = bt_region_read(region, input->region.offset, tensor->owned,
                                bytes, error);
        tensor->data = tensor->owned;
        tensor->bytes = bytes;
    }
    if (status != BT_OK) {
        name_it(error, "input", tensor->name);
        return status;
    }
    if (bt_tensor_check(tensor, why) != BT_OK) {
        return BT_API_INVALID(error, "input '%s' %s", tensor->name, why);
    }
    return BT_OK;
}

bt_status_t bt_shm_tensors_read(const bt_shm_tensors_t *uses,
                                bt_infer_request_t *request,
                                bt_api_error_t *error_p)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < request->n_inputs) && (status == BT_OK); i++) {
        if (uses->inputs[i] != NULL) {
            status = read_input(uses->inputs[i], &request->inputs[i], error_p);
        }
    }
    return status;
}

/* ---- writing ---- */

static void drop_data(bt_tensor_t *tensor)
{
    const size_t bytes = tensor->bytes;

    bt_tensor_fini(tensor);
    tensor->data = NULL;
    tensor->bytes = bytes;
}

/* @return index in uses->wanted; n_wanted: none */
static size_t wanted_of(const bt_shm_tensors_t *uses,
                        const bt_infer_request_t *request, const char *name)
{
    const bt_infer_wanted_t *wanted = bt_infer_wanted(request, name);
    const size_t i = (wanted != NULL) ? (size_t)(wanted - request->wanted)
                                      : request->n_wanted;

    return ((i < request->n_wanted) && (uses->wanted[i] != NULL))
               ? i
               : request->n_wanted;
}

static bt_status_t write_output(const bt_region_t *region,
                                const bt_infer_region_t *at,
                                bt_tensor_t *output, bt_api_error_t *error)
{
    bt_status_t status;

    if (output->bytes > at->bytes) {
        return BT_API_INVALID(
            error,
            "output '%s' has %zu bytes, more than the %" PRIu64 " that "
            "it was given in shared memory region '%s'",
            output->name, output->bytes, at->bytes, at->name);
    }
    status =
        bt_region_write(region, at->offset, output->data, output->bytes, error);
    if (status != BT_OK) {
        name_it(error, "output", output->name);
        return status;
    }
    drop_data(output);
    return BT_OK;
}

bt_status_t bt_shm_tensors_write(const bt_shm_tensors_t *uses,
                                 const bt_infer_request_t *request,
                                 bt_tensor_t *outputs, size_t n,
                                 uint64_t max_bytes, bt_api_error_t *error_p)
{
    uint64_t left = max_bytes;
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < n) && (status == BT_OK); i++) {
        const size_t at = wanted_of(uses, request, outputs[i].name);

        if (at == request->n_wanted) {
            continue;
        }
        if (outputs[i].bytes > left) {
            return BT_API_INVALID(
                error_p,
                "output '%s': responses of a stream have at most "
                "%" PRIu64 " bytes in shared memory, and it has %zu",
                outputs[i].name, max_bytes, outputs[i].bytes);
        }
        left -= outputs[i].bytes;
        status = write_output(uses->wanted[at], &request->wanted[at].region,
                              &outputs[i], error_p);
    }
    return status;
}
