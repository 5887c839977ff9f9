/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3 and 4: fused matrices, and LongRoPE for long contexts. Source: Abdin et
 * al., "Phi-3 Technical Report". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_phi3 = {
    .name = "phi3",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .pairs_apart = true,
            .takes = BT_TAKES_WINDOW,
        },
};
