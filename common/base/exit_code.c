/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/exit_code.h"

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
