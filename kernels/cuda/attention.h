/* SPDX-License-Identifier: Apache-2.0 */
/** @file attention.h  Interface between the attention variants. */
#ifndef BT_KERNELS_CUDA_ATTENTION_H
#define BT_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/attn_item.h"

/** Computes attention in the tensor profile: attention_tensor.cu. The batch has
 *  rows. */
void bt_cuda_attention_tensor(bt_backend_t *be, const bt_attn::Job &job,
                              bt_kv_type_t type, const bt_batch_t *batch);
/** Returns the scratch bytes to split all decoding sequences of a workload into
 *  parts. */
size_t bt_cuda_attention_bytes(const bt_workload_t *workload);

#endif
