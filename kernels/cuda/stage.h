/* SPDX-License-Identifier: Apache-2.0 */
/** @file stage.h
 *
 * Large copies from pageable host memory to the device, through pinned slots in
 * turn: one slot is filled, possibly from pages of a file, while the other is
 * being copied.
 *
 * Threads: the thread that drives the back end.
 */
#ifndef BT_KERNELS_CUDA_STAGE_H
#define BT_KERNELS_CUDA_STAGE_H

#include <cuda_runtime.h>

#include "common/base/status.h"

#define BT_STAGE_SLOTS      2u
#define BT_STAGE_SLOT_BYTES (size_t(4) << 20)

struct BtStage;

/** Creates the pinned slots.
 *  @return NULL: no memory; copies work without it */
BtStage *bt_stage_create();
void bt_stage_destroy(BtStage *stage); /**< Frees the slots. NULL is allowed. No
                                            copy may be in flight. */
/** Queues a copy on @a stream. @a src has been read on return.
 *  @retval BT_ERR_DEVICE */
bt_status_t bt_stage_copy(BtStage *stage, cudaStream_t stream, void *dst,
                          const void *src, size_t bytes);

#endif
