/* SPDX-License-Identifier: Apache-2.0 */
/** @file hash.h  The sum of kernels/device_hash.h on a device. */
#ifndef BT_KERNELS_CUDA_HASH_H
#define BT_KERNELS_CUDA_HASH_H

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/copier.h"

/** What one block of threads takes: each makes one of the sums. */
#define BT_CUDA_HASH_CHUNK (32u << 10)
#define BT_CUDA_HASH_SUMS  (BT_COPIER_MAX_BYTES / BT_CUDA_HASH_CHUNK)

/**
 * Queue the hash of @a bytes (1 ... BT_COPIER_MAX_BYTES) at @a from; with
 * @a to they are copied there as well, and read but once.
 *
 * @param [in]  to, from  Multiples of 4, of 16 for speed; apart from each
 * other. NULL @a to: nothing is copied.
 * @param [out] sums      On the device, BT_CUDA_HASH_SUMS of them.
 * @param [out] n_sums_p  How many of these there are; together they are the
 *                        hash.
 */
cudaError_t bt_cuda_hash(void *to, const void *from, size_t bytes,
                         uint64_t seed, cudaStream_t stream, uint64_t *sums,
                         uint32_t *n_sums_p);

#endif
