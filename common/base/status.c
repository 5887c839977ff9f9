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

int bt_exit_of_start(bt_status_t status)
{
    switch (status) {
    case BT_OK:
    case BT_ERR_CANCELED:
        return BT_EXIT_OK;
    case BT_ERR_INVALID_PARAM:
        return BT_EXIT_USAGE;
    case BT_ERR_NOT_FOUND:
    case BT_ERR_UNSUPPORTED:
    case BT_ERR_TOO_LARGE:
    case BT_ERR_OVERFLOW:
    case BT_ERR_EXISTS:
    case BT_ERR_UNAUTHORIZED:
    case BT_ERR_NO_MEMORY:
    case BT_ERR_NO_DEVICE:
    case BT_ERR_BAD_FILE:
        return BT_EXIT_CONFIG;
    default:
        return BT_EXIT_FAILURE;
    }
}

bool bt_exit_is_final(int code)
{
    return (code == BT_EXIT_USAGE) || (code == BT_EXIT_CONFIG) ||
           (code == BT_EXIT_CANNOT_EXECUTE) ||
           (code == BT_EXIT_NO_SUCH_PROGRAM);
}
