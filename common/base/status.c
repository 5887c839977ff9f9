/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"

#include <errno.h>

bt_status_t bt_status_of_bind(int error_number)
{
    switch (error_number) {
    case EADDRINUSE:
        return BT_ERR_EXISTS;
    case EADDRNOTAVAIL:
        return BT_ERR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return BT_ERR_UNAUTHORIZED;
    default:
        return BT_ERR_IO;
    }
}

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
