/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"

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

/* Returns the index of the parameter of this name, or n. */
static size_t index_of(const bt_infer_params_t *params, const char *name,
                       size_t bytes)
{
    size_t i = 0;

    while ((i < params->n) &&
           ((strlen(params->list[i].name) != bytes) ||
            (memcmp(params->list[i].name, name, bytes) != 0))) {
        i++;
    }
    return i;
}

const bt_infer_param_t *bt_infer_param(const bt_infer_params_t *params,
                                       const char *name)
{
    const size_t i = index_of(params, name, strlen(name));

    return (i < params->n) ? &params->list[i] : NULL;
}

bool bt_infer_flag(const bt_infer_params_t *params, const char *name)
{
    const bt_infer_param_t *param = bt_infer_param(params, name);

    return (param != NULL) && (param->kind == BT_INFER_BOOL) && param->boolean;
}

bt_status_t bt_infer_param_add(bt_infer_params_t *params, const char *name,
                               size_t bytes, bt_infer_param_t **param_p)
{
    const size_t i = index_of(params, name, bytes);
    bt_infer_param_t *list = params->list;

    if ((bytes >= sizeof(list->name)) || (i == BT_INFER_MAX_PARAMS)) {
        return BT_ERR_TOO_LARGE;
    }
    if (i == params->n) {
        list = bt_realloc_array(list, i + 1, sizeof(*list));
        if (list == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        params->list = list;
        params->n++;
    } else {
        bt_free(list[i].text);
    }
    memset(&list[i], 0, sizeof(list[i]));
    memcpy(list[i].name, name, bytes);
    *param_p = &list[i];
    return BT_OK;
}

const bt_infer_input_t *bt_infer_input(const bt_infer_request_t *request,
                                       const char *name)
{
    return BT_FIND_NAMED(request->inputs, request->n_inputs, tensor.name, name);
}

const bt_infer_wanted_t *bt_infer_wanted(const bt_infer_request_t *request,
                                         const char *name)
{
    return BT_FIND_NAMED(request->wanted, request->n_wanted, name, name);
}

const bt_infer_region_t *
bt_infer_output_region(const bt_infer_request_t *request, const char *name)
{
    const bt_infer_wanted_t *wanted = bt_infer_wanted(request, name);

    return ((wanted != NULL) && (wanted->region.name[0] != '\0'))
               ? &wanted->region
               : NULL;
}

bool bt_infer_is_raw(const bt_infer_request_t *request, const char *name)
{
    const bt_infer_wanted_t *wanted = bt_infer_wanted(request, name);

    if (bt_infer_output_region(request, name) != NULL) {
        return false;
    }
    return (wanted != NULL) ? wanted->binary : request->binary;
}
