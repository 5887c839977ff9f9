/* SPDX-License-Identifier: Apache-2.0 */
/* Llama and what differs from it in sizes alone: Mistral, Yi and many others.
 * Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language
 *         Models", section 2.2. */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_llama = {
    .name = "llama",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT | BT_BIAS_FFN_UP |
                            BT_BIAS_FFN_DOWN,
            .takes = BT_TAKES_WINDOW,
        },
};
