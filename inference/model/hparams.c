/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/status.h"
#include "inference/gguf/architectures.h"
#include "inference/model/model_priv.h"

bt_status_t bt_hparams_read(const bt_gguf_t *gguf, char *why, size_t why_bytes,
                            bt_hparams_t *hp_p)
{
    const bt_arch_t *arch;
    bt_gguf_str_t name;
    const bt_status_t status =
        bt_gguf_architecture(gguf, why, why_bytes, &name);

    if (status != BT_OK) {
        return status;
    }
    arch = bt_arch_find(name);
    BT_ASSERT(arch != NULL); /* both are generated from one list */
    return arch->hparams(arch, gguf, why, why_bytes, hp_p);
}

bt_attention_t bt_hparams_attention(const bt_hparams_t *hp, uint32_t layer)
{
    return (bt_attention_t){
        .n_heads = hp->n_heads,
        .key_dim = hp->head_dim,
        .value_dim = hp->head_dim,
        .scale = hp->attn_scale,
        .window = bt_layer_in(&hp->windowed, layer) ? hp->attn_window : 0,
        .soft_cap = hp->attn_soft_cap,
    };
}

uint32_t bt_hparams_max_dim(const bt_hparams_t *hp)
{
    const uint32_t widths[] = {
        hp->dim, (hp->n_heads + 2 * hp->n_kv_heads) * hp->head_dim,
        2 * hp->ffn_dim, hp->n_vocab};
    uint32_t widest = 0;

    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        widest = (widths[i] > widest) ? widths[i] : widest;
    }
    return widest;
}
