/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h  What a call of the CUDA run time came to. */
#ifndef BT_KERNELS_CUDA_CHECK_H
#define BT_KERNELS_CUDA_CHECK_H

#include <cuda_runtime.h>

#include "common/base/status.h"

/** Also clears CUDA's sticky last error, so that it is not blamed on a later
 *  call. @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
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
