/* SPDX-License-Identifier: Apache-2.0 */
/** @file devices.h  GPUs visible to a rank. */
#ifndef BT_WORKER_DEVICES_H
#define BT_WORKER_DEVICES_H

#include <stdint.h>

#include "common/base/status.h"

/**
 * Sets CUDA_VISIBLE_DEVICES to this rank's share of a list, before any back end
 * is opened. The back end numbers the devices 0, 1 and so on.
 *
 * @param [in] list  Comma-separated names; "": nothing changes.
 * @param [in] rank  One of @a size ranks.
 * @retval BT_ERR_INVALID_PARAM  more ranks than devices; logged
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_worker_use_devices(const char *list, uint32_t rank,
                                                uint32_t size);

#endif
