/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/record.h"

const char *bt_finish_name(bt_finish_t finish)
{
    static const char *const names[] = {
        [BT_FINISH_NONE] = "none",     [BT_FINISH_STOP] = "stop",
        [BT_FINISH_LENGTH] = "length", [BT_FINISH_CANCELED] = "canceled",
        [BT_FINISH_ERROR] = "error",
    };

    return names[finish];
}
