/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in folders, as PEFT saves them. */
#include "common/base/text.h"
#include "inference/adapter/adapter_priv.h"
#include "inference/hf/peft.h"

static uint32_t type_of(const bt_st_tensor_t *tensor)
{
    return (tensor->dtype == BT_ST_F16)    ? BT_ADAPTER_F16
           : (tensor->dtype == BT_ST_BF16) ? BT_ADAPTER_BF16
                                           : BT_ADAPTER_F32;
}

static bt_status_t add_module(bt_adapter_build_t *build,
                              const bt_peft_module_t *module)
{
    const bt_adapter_source_t source = {
        .name = module->name.data,
        .len = module->name.len,
        .a = module->a->data,
        .b = module->b->data,
        .a_type = type_of(module->a),
        .b_type = type_of(module->b),
        .rank = module->a->dims[0],
        .n_in = module->a->dims[1],
        .n_out = module->b->dims[0],
        .scale = module->scale,
    };
    bt_hf_module_part_t parts[BT_HF_MODULE_PARTS];
    const uint32_t n = bt_hf_module_find(&build->model, module->name.data,
                                         module->name.len, parts);
    bt_status_t status = BT_OK;

    if (n == 0) {
        return bt_adapter_fail(
            build, BT_ERR_UNSUPPORTED,
            "module %s has no place in a %s model of %u layers",
            bt_printable(module->name.data, module->name.len).text,
            build->model.arch, build->model.n_layers);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        status = bt_adapter_add(build, &source, &parts[i]);
    }
    return status;
}

bt_status_t bt_adapter_read_peft(bt_adapter_build_t *build, const char *path)
{
    const bt_peft_module_t *modules;
    bt_peft_t *peft = NULL;
    uint32_t n;
    bt_status_t status =
        bt_peft_open(path, build->why, build->why_bytes, &peft);

    if (status != BT_OK) {
        return status;
    }
    modules = bt_peft_modules(peft, &n);
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        status = add_module(build, &modules[i]);
    }
    bt_peft_close(peft);
    return status;
}
