/* SPDX-License-Identifier: Apache-2.0 */
/** @file cuda.h
 *
 * Interface of the plugin baton_cuda.so. kernels/dispatch.c opens it at run
 * time, so one build of Baton runs with and without a GPU driver: the plugin
 * links the CUDA run-time library statically and does not link the driver. On a
 * host without driver or device it returns BT_ERR_NO_DEVICE.
 *
 * Every operation has the bits of the CPU's reference (docs/GPU_STATUS.md),
 * except for those that BT_NUMERICS_TENSOR defines itself.
 */
#ifndef BT_KERNELS_CUDA_CUDA_H
#define BT_KERNELS_CUDA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "common/coll/coll.h"
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BT_CUDA_EXPORT __attribute__((visibility("default")))

/** Opens the CUDA back end; the symbol that bt_backend_open("cuda") looks up.
 *  @retval BT_ERR_NO_DEVICE  no driver, no device, or no such ordinal */
BT_CUDA_EXPORT bt_status_t
bt_cuda_backend_open(const bt_backend_config_t *config, bt_backend_t **be_p);

/** Implements copier_open and copier_close of bt_kernels_ops_t. */
bt_status_t bt_cuda_copier_open(bt_backend_t *be, uint32_t n_tickets,
                                bt_copier_t *copier_p);
void bt_cuda_copier_close(bt_copier_t *copier);

/** Implements returns_open and returns_close of bt_kernels_ops_t. */
bt_status_t bt_cuda_returns_open(bt_backend_t *be, uint32_t n_slots,
                                 size_t bytes, bt_returns_t *returns_p);
void bt_cuda_returns_close(bt_returns_t *returns);

/** Returns the CUDA stream (cudaStream_t) of a back end, with all operations so
 *  far submitted to it, and the ordinal of its device; for the plugin's own
 *  files. */
void *bt_cuda_stream(bt_backend_t *be);
int bt_cuda_device(bt_backend_t *be);
/** Returns the first error of the operations queued so far, once.
 *  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_cuda_take_error(bt_backend_t *be);
/** Returns the tables of the batch begun last, on the device; see
 *  bt_batch_layout(). */
uint32_t *bt_cuda_words(bt_backend_t *be);
/** Returns members of the configuration: host threads for the back end's own
 *  computations, at least 1; most rows of a product; numerics. */
uint32_t bt_cuda_threads(bt_backend_t *be);
uint32_t bt_cuda_max_rows(bt_backend_t *be);
bt_numerics_t bt_cuda_numerics(bt_backend_t *be);
/** Reserves device scratch for an operation, valid until the operation ends: at
 *  least as much as was reserved before. Growing waits for everything queued.
 *  @retval BT_ERR_NO_MEMORY  existing scratch is kept */
BT_MUST_CHECK bt_status_t bt_cuda_scratch_reserve(bt_backend_t *be,
                                                  size_t bytes);
void *bt_cuda_scratch(bt_backend_t *be);
size_t bt_cuda_scratch_bytes(bt_backend_t *be); /**< bytes of scratch */

/** Allocates a buffer with a copy of host memory, which may be pages of a file.
 *  The copy is queued; the host memory was read when the function returns.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_cuda_upload(bt_backend_t *be, const void *src,
                                         size_t bytes, void **ptr_p);

#define BT_CUDA_MAX_RANKS 16u /**< most ranks of an instance */
/** Bytes of each rank's part that are summed together in scratch. */
#define BT_CUDA_SUM_BYTES ((size_t)4 << 20)

/** Computes out[i] = the sum over r of parts[r * n_each + i], in the order of
 *  coll_shm.h; n_parts from 2 to BT_CUDA_MAX_RANKS, n_each > 0. */
void bt_cuda_sum_parts(bt_backend_t *be, const float *parts, uint32_t n_parts,
                       size_t n_each, float *out);

/** Sets the operations implemented by each file in the table. */
void bt_cuda_weights_ops(bt_kernels_ops_t *ops);
void bt_cuda_rows_ops(bt_kernels_ops_t *ops);
void bt_cuda_top_ops(bt_kernels_ops_t *ops);
void bt_cuda_draw_ops(bt_kernels_ops_t *ops);
void bt_cuda_experts_ops(bt_kernels_ops_t *ops);
void bt_cuda_matmul_experts_ops(bt_kernels_ops_t *ops);
void bt_cuda_score_ops(bt_kernels_ops_t *ops);
void bt_cuda_kv_ops(bt_kernels_ops_t *ops);
void bt_cuda_lora_ops(bt_kernels_ops_t *ops);
void bt_cuda_attention_ops(bt_kernels_ops_t *ops);
void bt_cuda_coll_ops(bt_kernels_ops_t *ops);
void bt_cuda_workload_ops(bt_kernels_ops_t *ops);

#ifdef __cplusplus
}
#endif

#endif
