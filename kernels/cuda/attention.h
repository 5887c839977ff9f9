/* SPDX-License-Identifier: Apache-2.0 */
/** @file attention.h  Between the forms of attention. */
#ifndef BT_KERNELS_CUDA_ATTENTION_H
#define BT_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/attn_item.h"

/** Of the tensor profile: attention_tensor.cu. The batch has rows. */
void bt_cuda_attention_tensor(bt_backend_t *be, const bt_attn::Job &job,
                              bt_kv_type_t type, const bt_batch_t *batch);
/** Scratch with which all its sequences that decode are split into parts. */
size_t bt_cuda_attention_bytes(const bt_workload_t *workload);

#endif
