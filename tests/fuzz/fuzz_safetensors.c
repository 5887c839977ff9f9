/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "inference/hf/safetensors.h"

static volatile uint64_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_safetensors_t st = {0};
    char why[200];
    size_t covered = 0;

    memset(why, 'x', sizeof(why));
    if (bt_safetensors_parse(data, size, why, sizeof(why), &st) != BT_OK) {
        BT_ASSERT_ALWAYS((st.tensors == NULL) &&
                         (strnlen(why, sizeof(why)) > 0) &&
                         (strnlen(why, sizeof(why)) < sizeof(why)));
        return 0;
    }
    for (uint32_t i = 0; i < st.n; i++) {
        const bt_st_tensor_t *const t = &st.tensors[i];

        BT_ASSERT_ALWAYS((t->data >= data) && (t->data <= data + size) &&
                         (t->bytes <= (size_t)(data + size - t->data)));
        BT_ASSERT_ALWAYS((t->n_dims <= BT_ST_MAX_DIMS) && (t->name.len > 0));
        BT_ASSERT_ALWAYS(t->bytes == t->n_elems * bt_st_dtype_bytes(t->dtype));
        if (t->bytes > 0) {
            sink += t->data[0] + t->data[t->bytes - 1];
        }
        covered += t->bytes;
    }
    BT_ASSERT_ALWAYS(covered <= size);
    bt_safetensors_fini(&st);
    return 0;
}
