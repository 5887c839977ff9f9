/* SPDX-License-Identifier: Apache-2.0 */
/* Baichuan: llama; the models of 40 layers (13B) have ALiBi instead of rotary
 * positions. Source: Yang et al., "Baichuan 2: Open Large-scale Language
 * Models". */
#include "inference/model/arch/family.h"

const bt_arch_t bt_arch_baichuan = {
    .name = "baichuan",
    BT_DECODER,
    .family =
        &(const bt_family_t){
            .alibi = 8.0f,
            .alibi_layers = 40,
            .takes = BT_TAKES_ALIBI,
        },
};
