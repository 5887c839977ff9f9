/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/peft_modules.h"

#include <stdio.h>
#include <string.h>

#include "inference/hf/hf_priv.h"

#define NAME_BYTES 512

static bt_status_t read_number(const bt_gguf_t *gguf,
                               const bt_hf_modules_t *modules, const char *key,
                               uint32_t otherwise, uint32_t *value_p)
{
    char name[BT_HF_KEY_BYTES];
    bt_status_t status;

    snprintf(name, sizeof(name), "%s.%s", modules->arch, key);
    status = bt_gguf_get_u32(gguf, name, value_p);
    if (((status == BT_ERR_NOT_FOUND) || (*value_p == 0)) && (otherwise != 0)) {
        *value_p = otherwise;
        status = BT_OK;
    }
    return ((status == BT_OK) && (*value_p > 0)) ? BT_OK : BT_ERR_BAD_FILE;
}

static bt_hf_ffn_t ffn_of(const bt_gguf_t *gguf, uint32_t ffn_dim)
{
    const bt_gguf_tensor_t *const up =
        bt_gguf_tensor(gguf, "blk.0.ffn_up.weight");

    if (up == NULL) {
        return BT_HF_FFN_NONE;
    }
    if (bt_gguf_tensor(gguf, "blk.0.ffn_gate.weight") != NULL) {
        return BT_HF_FFN_GATED;
    }
    return (up->dims[1] == 2 * (uint64_t)ffn_dim) ? BT_HF_FFN_FUSED
                                                  : BT_HF_FFN_PLAIN;
}

bt_status_t bt_hf_modules_read(const bt_gguf_t *gguf, char *why,
                               size_t why_bytes, bt_hf_modules_t *modules_p)
{
    bt_hf_modules_t m = {0};
    bt_gguf_str_t arch = {0};
    bt_status_t status = bt_gguf_get_str(gguf, "general.architecture", &arch);

    if ((status == BT_OK) && (arch.len < sizeof(m.arch))) {
        memcpy(m.arch, arch.data, arch.len);
        status = read_number(gguf, &m, "block_count", 0, &m.n_layers);
    }
    if (status == BT_OK) {
        status = read_number(gguf, &m, "embedding_length", 0, &m.dim);
    }
    if (status == BT_OK) {
        status = read_number(gguf, &m, "attention.head_count", 0, &m.n_heads);
    }
    if (status == BT_OK) {
        status = read_number(gguf, &m, "attention.head_count_kv", m.n_heads,
                             &m.n_kv_heads);
    }
    if (status == BT_OK) {
        status = read_number(gguf, &m, "attention.key_length",
                             m.dim / m.n_heads, &m.head_dim);
    }
    if (status == BT_OK) {
        status = read_number(gguf, &m, "feed_forward_length", 0, &m.ffn_dim);
    }
    if ((status != BT_OK) || (m.n_heads % m.n_kv_heads != 0)) {
        snprintf(why, why_bytes,
                 "the model's file does not give the sizes of one kind of "
                 "layer, which adapters need");
        return BT_ERR_BAD_FILE;
    }
    m.ffn = ffn_of(gguf, m.ffn_dim);
    *modules_p = m;
    return BT_OK;
}

bool bt_hf_modules_turn(const bt_hf_modules_t *modules)
{
    const bt_hf_family_t *const family =
        bt_hf_family_of_arch(modules->arch, strlen(modules->arch), 0);

    return (family != NULL) && family->turns;
}

/* Writes a part named by GGUF's tensor or product. */
static void put(bt_hf_module_part_t *part, uint32_t layer, const char *name,
                size_t len, bt_recipe_order_t order)
{
    const size_t n_tail = strlen(".weight");

    if ((len > n_tail) &&
        (memcmp(name + len - n_tail, ".weight", n_tail) == 0)) {
        len -= n_tail;
    }
    *part = (bt_hf_module_part_t){.layer = layer, .order = order};
    len = (len < sizeof(part->product)) ? len : 0;
    memcpy(part->product, name, len);
}

/* @return number of parts */
static uint32_t put_all(bt_hf_module_part_t *parts, uint32_t layer,
                        const char *names, const bt_recipe_order_t *all,
                        bool turns)
{
    uint32_t n = 0;

    for (; n < BT_HF_MODULE_PARTS; n++) {
        const size_t len = strcspn(names, "|");
        const bt_recipe_order_t order = {
            .head_dim = all->head_dim,
            .group_heads = all->group_heads,
            .n_segments = 1,
            .segments = {all->segments[n]},
            .halves = turns && (n < 2),
        };

        put(&parts[n], layer, names, len, order);
        names += len + ((names[len] == '|') ? 1 : 0);
    }
    return n;
}

static bt_recipe_order_t turned(const bt_hf_t *hf, uint32_t n_heads)
{
    return hf->family->turns ? bt_hf_halves_order(hf, n_heads)
                             : (bt_recipe_order_t){0};
}

/* True for the router and for shared experts, of which no adapter is computed,
 * as of experts. */
static bool is_beside_experts(const char *gguf)
{
    return (strncmp(gguf, "ffn_gate_inp", strlen("ffn_gate_inp")) == 0) ||
           (strstr(gguf, "_shexp") != NULL);
}

static uint32_t parts_of(const bt_hf_t *hf, const bt_hf_name_t *line,
                         uint32_t layer, bt_hf_module_part_t *parts)
{
    static const char qkv[] = "attn_q|attn_k|attn_v";
    const size_t len = strlen(line->gguf);
    bt_recipe_order_t order = {0};

    if (is_beside_experts(line->gguf)) {
        return 0;
    }
    switch (line->how) {
    case BT_HF_QUERY:
        order = turned(hf, hf->shape.n_heads);
        break;
    case BT_HF_KEY:
        order = turned(hf, hf->shape.n_kv_heads);
        break;
    case BT_HF_FUSED:
        order = bt_hf_fused_order(hf);
        return put_all(parts, layer, qkv, &order, false);
    case BT_HF_SPLIT:
        order = bt_hf_fused_order(hf);
        return put_all(parts, layer, line->gguf, &order, hf->family->turns);
    case BT_HF_PACK:
        order = bt_hf_packed_order(hf);
        return put_all(parts, layer, line->gguf, &order, hf->family->turns);
    case BT_HF_AS_IS:
    case BT_HF_TRANSPOSE: /* adapters' matrices are not transposed */
        if (strncmp(line->gguf, "attn_qkv", strlen("attn_qkv")) == 0) {
            order = bt_hf_packed_order(hf);
            return put_all(parts, layer, qkv, &order, false);
        }
        break;
    default:
        return 0;
    }
    put(&parts[0], layer, line->gguf, len, order);
    return (parts[0].product[0] != '\0') ? 1 : 0;
}

uint32_t bt_hf_module_find(const bt_hf_modules_t *modules, const char *name,
                           size_t len, bt_hf_module_part_t *parts)
{
    static const bt_json_node_t inner = {0};
    char tensor[NAME_BYTES];
    const bt_hf_family_t *family;

    if ((len + sizeof(".weight") > sizeof(tensor)) ||
        (memchr(name, '\0', len) != NULL)) {
        return 0;
    }
    snprintf(tensor, sizeof(tensor), "%.*s.weight", (int)len, name);
    for (uint32_t i = 0; (family = bt_hf_family_of_arch(
                              modules->arch, strlen(modules->arch), i)) != NULL;
         i++) {
        const bt_hf_t hf = {
            .family = family,
            .text = (family->inner != NULL) ? &inner : NULL,
            .shape = {.n_layers = modules->n_layers,
                      .dim = modules->dim,
                      .n_heads = modules->n_heads,
                      .n_kv_heads = modules->n_kv_heads,
                      .head_dim = modules->head_dim},
        };
        bt_hf_match_t match;
        const bt_hf_name_t *const line = bt_hf_line_of(&hf, tensor, &match);
        const uint32_t n =
            ((line != NULL) && match.of_layer && (line->gguf != NULL))
                ? parts_of(&hf, line, match.layer, parts)
                : 0;

        if (n > 0) {
            return n;
        }
    }
    return 0;
}
