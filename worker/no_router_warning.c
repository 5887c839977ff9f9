/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/no_router_warning.h"

uint64_t bt_no_router_warning_check(bt_no_router_warning_t *alone,
                                    bool has_router, uint64_t now_ms)
{
    if (has_router || !alone->is_alone) {
        *alone = (bt_no_router_warning_t){.is_alone = !has_router,
                                          .since_ms = now_ms};
        return 0;
    }
    if ((alone->said_ms == 0) ? (now_ms - alone->since_ms < BT_ALONE_FIRST_MS)
                              : (now_ms - alone->said_ms < BT_ALONE_AGAIN_MS)) {
        return 0;
    }
    alone->said_ms = now_ms;
    return (now_ms - alone->since_ms) / 1000;
}
