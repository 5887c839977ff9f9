/* SPDX-License-Identifier: Apache-2.0 */
/** @file devices.h
 *
 * GPUs of this machine: the launcher assigns them to its workers, and a worker
 * to its ranks. Names are those of CUDA_VISIBLE_DEVICES: numbers, "GPU-…", or
 * "MIG-…" for a part of one; only CUDA interprets them.
 *
 * Source: NVIDIA, "CUDA C++ Programming Guide", Environment Variables; "MIG
 *          User Guide", Device Enumeration.
 */
#ifndef BT_COMMON_BASE_DEVICES_H
#define BT_COMMON_BASE_DEVICES_H

#include <stdint.h>

#include "common/base/strbuf.h"

/** Directory in which Linux has a file for each GPU: nvidia0, nvidia1 … */
#define BT_DEVICES_DIR "/dev"

/** List of GPUs. */
typedef struct bt_devices {
    bt_strbuf_t names; /**< owned; each with its zero */
    uint32_t n;
} bt_devices_t;

/**
 * Lists the GPUs.
 *
 * @param [in] asked    The operator's list; "": none.
 * @param [in] visible  CUDA_VISIBLE_DEVICES, or NULL; used if @a asked is
 *                      empty. As in CUDA, entries count up to the first invalid
 *                      one.
 * @param [in] dir      Directory whose GPUs are counted if neither is given.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_devices_find(const char *asked,
                                          const char *visible, const char *dir,
                                          bt_devices_t *devices_p);
void bt_devices_fini(bt_devices_t *devices);

/** Appends @a n names (the list is not empty), from number @a first on,
 *  comma-separated, wrapping around at the end of the list. */
void bt_devices_deal(const bt_devices_t *devices, uint32_t first, uint32_t n,
                     bt_strbuf_t *out);

#endif
