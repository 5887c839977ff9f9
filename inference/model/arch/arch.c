/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/status.h"
#include "inference/model/arch/family.h"

#define ENTRY(name) &bt_arch_##name,

static const bt_arch_t *const archs[] = {BT_FAMILIES(ENTRY)};

const bt_arch_t *bt_arch_find(bt_gguf_str_t name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(archs); i++) {
        if ((strlen(archs[i]->name) == name.len) &&
            (memcmp(archs[i]->name, name.data, name.len) == 0)) {
            return archs[i];
        }
    }
    return NULL;
}
