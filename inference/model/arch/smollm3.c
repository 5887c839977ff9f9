/* SPDX-License-Identifier: Apache-2.0 */
/* SmolLM3: llama, each fourth layer without positions. Source: Bakouch et al.,
 * "SmolLM3"; Yang et al., "Rope to Nope and Back Again". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_smollm3 = {
    .name = "smollm3",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .unturned_period = 4,
        },
};
