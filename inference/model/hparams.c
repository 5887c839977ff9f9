/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "common/base/shown.h"
#include "inference/model/model_priv.h"

bt_status_t bt_hparams_read(const bt_gguf_t *gguf, char *why, size_t why_bytes,
                            bt_hparams_t *hp_p)
{
    const bt_arch_t *arch;
    bt_gguf_str_t name;

    if (bt_gguf_get_str(gguf, "general.architecture", &name) != BT_OK) {
        snprintf(why, why_bytes,
                 "the file does not name its model's architecture (key "
                 "general.architecture)");
        return BT_ERR_BAD_FILE;
    }
    arch = bt_arch_find(name);
    if (arch == NULL) {
        snprintf(why, why_bytes,
                 "the model's architecture %s is not supported; supported: "
                 "%s",
                 bt_shown(name.data, name.len).text, bt_arch_names());
        return BT_ERR_UNSUPPORTED;
    }
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
