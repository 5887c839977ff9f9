/* SPDX-License-Identifier: Apache-2.0 */
/** @file _gpu_copy.h
 *
 * Measurements of gpu-run on a back end's copier (kernels/copier.h), by
 * commands:
 *
 *     pool BYTES                     allocates device memory for the others:
 *                                    {"handle"}, empty if it cannot be shared
 *     across HANDLE RECORD SAMPLES   copies the pool to another process' pool
 *                                    of as many bytes, with hashes: {"seconds":
 *                                    [one per sample], "right": hashes match}
 *     checked RECORD SAMPLES         computes the hashes alone: {"seconds"}
 *     staged RECORD SAMPLES          copies to pinned memory and back:
 *                                    {"seconds"}
 *
 * Copies are records of RECORD bytes, up to 16 in flight, as in KV transfers.
 */
#ifndef BT_BENCH_GPU_COPY_H
#define BT_BENCH_GPU_COPY_H

#include <stdbool.h>

#include "kernels/kernels.h"

typedef struct bt_gpu_copy {
    bt_backend_t *be;
    bt_copier_t copier; /**< open once there is a pool */
    uint8_t *pool;
    uint32_t bytes;
} bt_gpu_copy_t;

/** Runs a command. @return false: not one of these commands */
bool bt_gpu_copy_command(bt_gpu_copy_t *copy, const char *const *words);
void bt_gpu_copy_fini(bt_gpu_copy_t *copy);

#endif
