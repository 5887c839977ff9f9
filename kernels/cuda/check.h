/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h  Status of CUDA run-time calls. */
#ifndef BT_KERNELS_CUDA_CHECK_H
#define BT_KERNELS_CUDA_CHECK_H

#include <cuda_runtime.h>

#include "common/base/status.h"

/** Converts a CUDA error to a status and clears CUDA's sticky last error, so
 *  that a later call does not report it. @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_DEVICE */
static inline bt_status_t bt_cuda_check(cudaError_t error)
{
    if (error == cudaSuccess) {
        return BT_OK;
    }
    (void)cudaGetLastError();
    return (error == cudaErrorMemoryAllocation) ? BT_ERR_NO_MEMORY
                                                : BT_ERR_DEVICE;
}

#endif
