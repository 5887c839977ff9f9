/* SPDX-License-Identifier: Apache-2.0 */
/** @file cuda.h
 *
 * What the plugin baton_cuda.so exports. It is opened at run time by
 * kernels/dispatch.c, so one build of Baton runs with and without a GPU driver:
 * the plugin links the CUDA run-time library statically and the driver not at
 * all. On a host without driver or device it answers BT_ERR_NO_DEVICE.
 *
 * Every operation has the bits of the CPU's reference (docs/GPU_STATUS.md), but
 * for what BT_NUMERICS_TENSOR has of its own.
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

/** What bt_backend_open("cuda") looks up.
 *  @retval BT_ERR_NO_DEVICE  no driver, no device, or no such ordinal */
BT_CUDA_EXPORT bt_status_t
bt_cuda_backend_open(const bt_backend_config_t *config, bt_backend_t **be_p);

/** copier_open and copier_close of the table of operations. */
bt_status_t bt_cuda_copier_open(bt_backend_t *be, uint32_t n_tickets,
                                bt_copier_t *copier_p);
void bt_cuda_copier_close(bt_copier_t *copier);

/** returns_open and returns_close of the same. */
bt_status_t bt_cuda_returns_open(bt_backend_t *be, uint32_t n_slots,
                                 size_t bytes, bt_returns_t *returns_p);
void bt_cuda_returns_close(bt_returns_t *returns);

/** CUDA stream of a back end (cudaStream_t), to which all operations so far are
 *  handed over, and its device's ordinal, for the plugin's own files. */
void *bt_cuda_stream(bt_backend_t *be);
int bt_cuda_device(bt_backend_t *be);
/** The first error of what was queued so far, once. @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_cuda_take_error(bt_backend_t *be);
/** The tables of the batch begun last, on the device; bt_batch_layout(). */
uint32_t *bt_cuda_words(bt_backend_t *be);
/** Of the configuration: threads of the host for what it computes, at least 1,
 *  and most rows of a product. */
uint32_t bt_cuda_threads(bt_backend_t *be);
uint32_t bt_cuda_max_rows(bt_backend_t *be);
bt_numerics_t bt_cuda_numerics(bt_backend_t *be);
/** Memory of the device for an operation's own use, until its end: at least as
 *  much as was reserved. Growing waits for all that is queued.
 *  @retval BT_ERR_NO_MEMORY  what there was stays */
BT_MUST_CHECK bt_status_t bt_cuda_scratch_reserve(bt_backend_t *be,
                                                  size_t bytes);
void *bt_cuda_scratch(bt_backend_t *be);
size_t bt_cuda_scratch_bytes(bt_backend_t *be); /**< of it */

/** A buffer with a copy of host memory, pages of a file perhaps, which was read
 *  when it returns. The copy is queued; it waits for none.
 *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_cuda_upload(bt_backend_t *be, const void *src,
                                         size_t bytes, void **ptr_p);

#define BT_CUDA_MAX_RANKS 16u /**< of an instance */
/** Of each rank's part of a sum that come together at a time, in scratch. */
#define BT_CUDA_SUM_BYTES ((size_t)4 << 20)

/** out[i] = the sum over r of parts[r * n_each + i], in the order of
 *  coll_tree.h; n_parts from 2 to BT_CUDA_MAX_RANKS, n_each > 0. */
void bt_cuda_sum_parts(bt_backend_t *be, const float *parts, uint32_t n_parts,
                       size_t n_each, float *out);

/** What these files have, into the table. */
void bt_cuda_weights_ops(bt_kernels_ops_t *ops);
void bt_cuda_rows_ops(bt_kernels_ops_t *ops);
void bt_cuda_top_ops(bt_kernels_ops_t *ops);
void bt_cuda_draw_ops(bt_kernels_ops_t *ops);
void bt_cuda_score_ops(bt_kernels_ops_t *ops);
void bt_cuda_kv_ops(bt_kernels_ops_t *ops);
void bt_cuda_attention_ops(bt_kernels_ops_t *ops);
void bt_cuda_coll_ops(bt_kernels_ops_t *ops);
void bt_cuda_workload_ops(bt_kernels_ops_t *ops);

#ifdef __cplusplus
}
#endif

#endif
