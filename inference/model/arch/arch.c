/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/assert.h"
#include "inference/model/arch/family.h"

#define ENTRY(name) &bt_arch_##name,
#define NAME(name)  ", " #name

static const bt_arch_t *const archs[] = {BT_FAMILIES(ENTRY)};
static const char names[] = BT_FAMILIES(NAME);

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

const char *bt_arch_names(void)
{
    return names + strlen(", ");
}
