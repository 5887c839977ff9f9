/* SPDX-License-Identifier: Apache-2.0 */
/** @file stage.h
 *
 * Large copies of any memory of the host to the device: by pinned slots in
 * turn, so that one is filled, from pages of a file perhaps, while the other is
 * on its way.
 *
 * Threads: the one that drives the back end.
 */
#ifndef BT_KERNELS_CUDA_STAGE_H
#define BT_KERNELS_CUDA_STAGE_H

#include <cuda_runtime.h>

#include "common/base/status.h"

#define BT_STAGE_SLOTS      2u
#define BT_STAGE_SLOT_BYTES (size_t(4) << 20)

struct BtStage;

/** @return NULL: no memory for it, which a copy can do without */
BtStage *bt_stage_create();
void bt_stage_destroy(BtStage *stage); /**< NULL is allowed. Nothing is under
                                            way. */
/** Queue a copy on @a stream. @a src was read when it returns.
 *  @retval BT_ERR_DEVICE */
bt_status_t bt_stage_copy(BtStage *stage, cudaStream_t stream, void *dst,
                          const void *src, size_t bytes);

#endif
