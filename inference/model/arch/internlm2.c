/* SPDX-License-Identifier: Apache-2.0 */
/* InternLM 2: llama under a name of its own. Source: Cai et al., "InternLM2
 * Technical Report". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_internlm2 = {
    .name = "internlm2",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .maybe_biases = BT_BIAS_QKV | BT_BIAS_ATTN_OUTPUT,
        },
};
