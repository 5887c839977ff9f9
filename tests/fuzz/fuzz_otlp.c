/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON body of an OTLP receiver's response. */
#include "tests/fuzz/fuzz.h"

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/otlp/client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = bt_memdup(data, size); /* bounds are checked exactly */
    bt_otlp_result_t result;

    if (copy == NULL) {
        return 0;
    }
    bt_otlp_parse_body(copy, size, &result);
    BT_ASSERT_ALWAYS(result.is_partial || (result.n_rejected == 0));
    bt_free(copy);
    return 0;
}
