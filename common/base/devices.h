/* SPDX-License-Identifier: Apache-2.0 */
/** @file devices.h
 *
 * The GPUs of this machine: the launcher deals them out among its workers, and
 * what a worker got its ranks share. Names are those of CUDA_VISIBLE_DEVICES:
 * numbers, "GPU-…", or "MIG-…" of a part of one; nothing but CUDA reads them.
 *
 * Source: NVIDIA, "CUDA C++ Programming Guide", Environment Variables;
 *         "MIG User Guide", Device Enumeration.
 */
#ifndef BT_COMMON_BASE_DEVICES_H
#define BT_COMMON_BASE_DEVICES_H

#include <stdint.h>

#include "common/base/strbuf.h"

/** Where Linux has a file for each GPU: nvidia0, nvidia1 … */
#define BT_DEVICES_DIR "/dev"

typedef struct bt_devices {
    bt_strbuf_t names; /**< owned; each with its zero */
    uint32_t n;
} bt_devices_t;

/**
 * @param [in] asked    The operator's list; "": none.
 * @param [in] visible  CUDA_VISIBLE_DEVICES, or NULL; read where nothing is
 *                      asked for. As CUDA does, up to the first that is none.
 * @param [in] dir      Counted where neither says anything.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_devices_find(const char *asked,
                                          const char *visible, const char *dir,
                                          bt_devices_t *devices_p);
void bt_devices_fini(bt_devices_t *devices);

/** Append @a n of them (there is at least one), from number @a first on, with
 *  commas; behind the last one comes the first again. */
void bt_devices_deal(const bt_devices_t *devices, uint32_t first, uint32_t n,
                     bt_strbuf_t *out);

#endif
