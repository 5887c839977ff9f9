/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer.h"

#include <string.h>

#include "common/base/alloc.h"

static void params_fini(bt_infer_params_t *params)
{
    for (size_t i = 0; i < params->n; i++) {
        bt_free(params->list[i].text);
    }
    bt_free(params->list);
    params->list = NULL;
    params->n = 0;
}

void bt_infer_request_fini(bt_infer_request_t *request)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        bt_tensor_fini(&request->inputs[i].tensor);
    }
    bt_free(request->inputs);
    bt_free(request->wanted);
    params_fini(&request->params);
    bt_strbuf_fini(&request->body);
    memset(request, 0, sizeof(*request));
}

const bt_infer_param_t *bt_infer_param(const bt_infer_params_t *params,
                                       const char *name)
{
    for (size_t i = 0; i < params->n; i++) {
        if (strcmp(params->list[i].name, name) == 0) {
            return &params->list[i];
        }
    }
    return NULL;
}

static bt_infer_param_t *known(bt_infer_params_t *params, const char *name,
                               size_t bytes)
{
    for (size_t i = 0; i < params->n; i++) {
        if ((strlen(params->list[i].name) == bytes) &&
            (memcmp(params->list[i].name, name, bytes) == 0)) {
            return &params->list[i];
        }
    }
    return NULL;
}

bt_status_t bt_infer_param_add(bt_infer_params_t *params, const char *name,
                               size_t bytes, bt_infer_param_t **param_p)
{
    bt_infer_param_t *param = known(params, name, bytes);

    if (bytes >= sizeof(param->name)) {
        return BT_ERR_TOO_LARGE;
    }
    if (param == NULL) {
        if (params->n == BT_INFER_MAX_PARAMS) {
            return BT_ERR_TOO_LARGE;
        }
        param = bt_realloc_array(params->list, params->n + 1,
                                 sizeof(*params->list));
        if (param == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        params->list = param;
        param = &params->list[params->n++];
    } else {
        bt_free(param->text);
    }
    memset(param, 0, sizeof(*param));
    memcpy(param->name, name, bytes);
    *param_p = param;
    return BT_OK;
}

const bt_infer_input_t *bt_infer_input(const bt_infer_request_t *request,
                                       const char *name)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        if (strcmp(request->inputs[i].tensor.name, name) == 0) {
            return &request->inputs[i];
        }
    }
    return NULL;
}

const bt_infer_wanted_t *bt_infer_wanted(const bt_infer_request_t *request,
                                         const char *name)
{
    for (size_t i = 0; i < request->n_wanted; i++) {
        if (strcmp(request->wanted[i].name, name) == 0) {
            return &request->wanted[i];
        }
    }
    return NULL;
}

const bt_infer_region_t *bt_infer_place(const bt_infer_request_t *request,
                                        const char *name)
{
    const bt_infer_wanted_t *wanted = bt_infer_wanted(request, name);

    return ((wanted != NULL) && (wanted->region.name[0] != '\0'))
               ? &wanted->region
               : NULL;
}

bool bt_infer_is_raw(const bt_infer_request_t *request, const char *name)
{
    const bt_infer_wanted_t *wanted = bt_infer_wanted(request, name);

    if (bt_infer_place(request, name) != NULL) {
        return false;
    }
    return (wanted != NULL) ? wanted->binary : request->binary;
}
