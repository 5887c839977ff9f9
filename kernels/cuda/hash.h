/* SPDX-License-Identifier: Apache-2.0 */
/** @file hash.h  Device implementation of the sum of kernels/device_hash.h. */
#ifndef BT_KERNELS_CUDA_HASH_H
#define BT_KERNELS_CUDA_HASH_H

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/copier.h"

/** Bytes per thread block, each of which computes one of the sums. */
#define BT_CUDA_HASH_CHUNK (32u << 10)
#define BT_CUDA_HASH_SUMS  (BT_COPIER_MAX_BYTES / BT_CUDA_HASH_CHUNK)

/**
 * Queues the hash of @a bytes (1 ... BT_COPIER_MAX_BYTES) at @a from. With @a
 * to the bytes are also copied there, with a single read.
 *
 * @param [in]  to, from  Multiples of 4, of 16 for speed; must not overlap.
 *     NULL @a to: nothing is copied.
 * @param [out] sums      On the device, (BT_CUDA_HASH_SUMS).
 * @param [out] n_sums_p  Number of sums written; the hash is their total.
 */
cudaError_t bt_cuda_hash(void *to, const void *from, size_t bytes,
                         uint64_t seed, cudaStream_t stream, uint64_t *sums,
                         uint32_t *n_sums_p);

#endif
