/* SPDX-License-Identifier: Apache-2.0 */
/* StarCoder 2. Source: Lozhkov et al., "StarCoder 2 and The Stack v2". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_starcoder2 = {
    .name = "starcoder2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .layer_norm = true,
            .biases = BT_BIAS_NORM,
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP |
                            BT_BIAS_FFN_DOWN,
            .plain_ffn = true,
            .act = BT_ACT_GELU_TANH,
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW,
        },
};
