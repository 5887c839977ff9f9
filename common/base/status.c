/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"

const char *bt_status_str(bt_status_t status)
{
    switch (status) {
#define BT_STATUS_CASE(name, value, text) \
    case BT_##name:                       \
        return text;
        BT_STATUS_MAP(BT_STATUS_CASE)
#undef BT_STATUS_CASE
    }
    return "unknown status";
}
