/* SPDX-License-Identifier: Apache-2.0 */
/** @file _gpu_copy.h
 *
 * What gpu-run measures of a back end's copier (kernels/copier.h), by commands:
 *
 *     pool BYTES                     memory of the device, for what follows:
 *                                    {"handle"}, empty where none can be had
 *     across HANDLE RECORD SAMPLES   all of it into another process' pool of as
 *                                    many bytes, with the hashes of it:
 *                                    {"seconds": [of all, in each sample],
 *                                    "right": there, too, by its hashes}
 *     checked RECORD SAMPLES         the hashes alone: {"seconds"}
 *     staged RECORD SAMPLES          to pinned memory and back: {"seconds"}
 *
 * In records of RECORD bytes, up to 16 at a time, as the transfers have it. */
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

/** @return false: it is none of these commands */
bool bt_gpu_copy_command(bt_gpu_copy_t *copy, const char *const *words);
void bt_gpu_copy_fini(bt_gpu_copy_t *copy);

#endif
