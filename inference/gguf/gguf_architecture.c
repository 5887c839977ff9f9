/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/printable.h"
#include "inference/gguf/architectures.h"

#define ENTRY(name) #name,
#define NAME(name)  ", " #name

static const char *const architectures[] = {BT_FAMILIES(ENTRY)};
static const char names[] = BT_FAMILIES(NAME);

bt_status_t bt_gguf_architecture(const bt_gguf_t *gguf, char *why,
                                 size_t why_bytes, bt_gguf_str_t *name_p)
{
    bt_gguf_str_t name;

    if (bt_gguf_get_str(gguf, "general.architecture", &name) != BT_OK) {
        snprintf(why, why_bytes,
                 "the file does not name its model's architecture (key "
                 "general.architecture)");
        return BT_ERR_BAD_FILE;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(architectures); i++) {
        if ((strlen(architectures[i]) == name.len) &&
            (memcmp(architectures[i], name.data, name.len) == 0)) {
            *name_p = name;
            return BT_OK;
        }
    }
    snprintf(why, why_bytes,
             "the model's architecture %s is not supported; supported: %s",
             bt_printable(name.data, name.len).text, names + strlen(", "));
    return BT_ERR_UNSUPPORTED;
}
