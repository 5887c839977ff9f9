/* SPDX-License-Identifier: Apache-2.0 */
/* An answer of an OTLP receiver: whatever it is, what is read of it lies within
 * it, and it is never whole before more of it is. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "router/otlp/answer.h"
#include "router/otlp/retry.h"

static void check(const uint8_t *data, size_t size, bool ended)
{
    char *copy = bt_memdup(data, size);
    bt_otlp_reading_t reading;
    bt_otlp_answer_t answer;
    bt_otlp_told_t told;

    if (copy == NULL) {
        return;
    }
    reading = bt_otlp_answer_read(copy, size, ended, &answer);
    if (reading == BT_OTLP_WHOLE) {
        BT_ASSERT_ALWAYS((answer.http_status >= 200) &&
                         (answer.http_status < 600));
        BT_ASSERT_ALWAYS((answer.body >= copy) &&
                         (answer.body + answer.body_bytes <= copy + size));
        bt_otlp_answer_tell(&answer, &told);
        BT_ASSERT_ALWAYS(told.is_partial || (told.n_rejected == 0));
        (void)bt_otlp_retry_after_ms(answer.retry_after, 1700000000);
    }
    bt_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t n = (size > 64) ? size - 64 : 0; n <= size; n++) {
        check(data, n, false);
    }
    check(data, size, true);
    return 0;
}
