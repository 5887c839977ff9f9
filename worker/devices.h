/* SPDX-License-Identifier: Apache-2.0 */
/** @file devices.h  Which GPUs a rank sees. */
#ifndef BT_WORKER_DEVICES_H
#define BT_WORKER_DEVICES_H

#include <stdint.h>

#include "common/base/status.h"

/**
 * This rank's share of a list becomes CUDA_VISIBLE_DEVICES, before any back end
 * is opened: it sees them as 0, 1 and so on.
 *
 * @param [in] list  Names with commas between; "": nothing changes.
 * @param [in] rank  Of @a size ranks.
 * @retval BT_ERR_INVALID_PARAM  more ranks than devices; logged
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_worker_use_devices(const char *list, uint32_t rank,
                                                uint32_t size);

#endif
