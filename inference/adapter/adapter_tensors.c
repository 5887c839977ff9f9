/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/adapter/adapter_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "inference/adapter/adapter_priv.h"

#define MAX_PARTS 3u

/* Numbers of modules. */
enum {
    ATTN_QKV = 0,
    ATTN_Q = 1,
    ATTN_K = 2,
    ATTN_V = 3,
    ATTN_DENSE = 4,
    MLP_H_TO_4H = 5,
    MLP_4H_TO_H = 6,
    MLP_GATE = 7,
    MLP_GATE_UP = 18,
};

static const char *const module_names[] = {
    "attn_qkv",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_dense",
    "mlp_h_to_4h",
    "mlp_4h_to_h",
    "mlp_gate",
    "cross_attn_qkv",
    "cross_attn_q",
    "cross_attn_k",
    "cross_attn_v",
    "cross_attn_dense",
    "moe_h_to_4h",
    "moe_4h_to_h",
    "moe_gate",
    "moe_router",
    "mlp_router",
    "mlp_gate_up",
    "shared_expert_h_to_4h",
    "shared_expert_4h_to_h",
    "shared_expert_gate",
    "mamba_in_proj",
    "mamba_out_proj",
    "moe_latent_fc1",
    "moe_latent_fc2",
};

bt_status_t bt_adapter_tensors_create(const bt_adapter_tensors_t *shape,
                                      const void *config, const void *weights,
                                      bt_adapter_tensors_t **tensors_p)
{
    const size_t config_bytes =
        (size_t)shape->n_rows * shape->n_columns * sizeof(int32_t);
    bt_adapter_tensors_t *const t =
        bt_calloc(1, sizeof(*t) + config_bytes + shape->weights_bytes);
    uint8_t *data;

    if (t == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *t = *shape;
    data = (uint8_t *)(t + 1);
    memcpy(data, config, config_bytes);
    memcpy(data + config_bytes, weights, shape->weights_bytes);
    t->config = (const int32_t *)(const void *)data;
    t->weights = data + config_bytes;
    t->hash = bt_hash128(data, config_bytes + shape->weights_bytes,
                         (uint64_t)shape->n_rows << 32 | shape->n_columns << 8 |
                             shape->type);
    *tensors_p = t;
    return BT_OK;
}

/* ---- a row ---- */

/* Rows of B for one product. */
typedef struct target {
    const char *product;
    uint64_t first, n_out;   /* rows of B; their own order, without `order` */
    bt_recipe_order_t order; /* of all rows of B, if it has segments */
} target_t;

/* Module of a row. */
typedef struct module {
    uint64_t n_in, n_out;
    target_t targets[MAX_PARTS];
    uint32_t n_targets;
} module_t;

/* Order of n heads from @a first on, of @a n_all. */
static bt_recipe_order_t heads_of(const bt_hf_modules_t *m, uint32_t n,
                                  uint32_t first, uint32_t n_all, bool turns)
{
    return (bt_recipe_order_t){.head_dim = m->head_dim,
                               .group_heads = n_all,
                               .n_segments = 1,
                               .segments = {{n, n, first}},
                               .halves = turns && bt_hf_modules_turn(m)};
}

static void set_heads(const bt_hf_modules_t *m, const char *product, uint32_t n,
                      bool turns, module_t *out)
{
    out->n_in = m->dim;
    out->n_out = (uint64_t)n * m->head_dim;
    out->targets[0] = (target_t){.product = product,
                                 .n_out = out->n_out,
                                 .order = heads_of(m, n, 0, n, turns)};
    out->n_targets = 1;
}

static void set_qkv(const bt_hf_modules_t *m, module_t *out)
{
    const uint32_t q = m->n_heads;
    const uint32_t kv = m->n_kv_heads;
    const uint32_t all = q + 2 * kv;

    out->n_in = m->dim;
    out->n_out = (uint64_t)all * m->head_dim;
    out->targets[0] = (target_t){.product = "attn_q",
                                 .n_out = out->n_out,
                                 .order = heads_of(m, q, 0, all, true)};
    out->targets[1] = (target_t){.product = "attn_k",
                                 .n_out = out->n_out,
                                 .order = heads_of(m, kv, q, all, true)};
    out->targets[2] = (target_t){.product = "attn_v",
                                 .n_out = out->n_out,
                                 .order = heads_of(m, kv, q + kv, all, false)};
    out->n_targets = 3;
}

static void set_plain(const char *product, uint64_t n_in, uint64_t n_out,
                      module_t *out)
{
    out->n_in = n_in;
    out->n_out = n_out;
    out->targets[0] = (target_t){.product = product, .n_out = n_out};
    out->n_targets = 1;
}

/* Rows of up, then those of gate. */
static void set_gate_up(const bt_hf_modules_t *m, module_t *out)
{
    set_plain("ffn_up", m->dim, 2 * (uint64_t)m->ffn_dim, out);
    out->targets[0].n_out = m->ffn_dim;
    out->targets[1] = (target_t){
        .product = "ffn_gate", .first = m->ffn_dim, .n_out = m->ffn_dim};
    out->n_targets = 2;
}

/* @return false: the model has no such module */
static bool find_module(const bt_hf_modules_t *m, int32_t id, module_t *out)
{
    const bool has_ffn = m->ffn != BT_HF_FFN_NONE;
    const bool is_gated =
        (m->ffn == BT_HF_FFN_GATED) || (m->ffn == BT_HF_FFN_FUSED);

    switch (id) {
    case ATTN_QKV:
        set_qkv(m, out);
        return true;
    case ATTN_Q:
        set_heads(m, "attn_q", m->n_heads, true, out);
        return true;
    case ATTN_K:
        set_heads(m, "attn_k", m->n_kv_heads, true, out);
        return true;
    case ATTN_V:
        set_heads(m, "attn_v", m->n_kv_heads, false, out);
        return true;
    case ATTN_DENSE:
        set_plain("attn_output", (uint64_t)m->n_heads * m->head_dim, m->dim,
                  out);
        return true;
    case MLP_H_TO_4H:
        if (m->ffn == BT_HF_FFN_FUSED) {
            set_gate_up(m, out);
        } else {
            set_plain(is_gated ? "ffn_gate" : "ffn_up", m->dim, m->ffn_dim,
                      out);
        }
        return has_ffn;
    case MLP_4H_TO_H:
        set_plain("ffn_down", m->ffn_dim, m->dim, out);
        return has_ffn;
    case MLP_GATE:
        set_plain("ffn_up", m->dim, m->ffn_dim, out);
        return m->ffn == BT_HF_FFN_GATED;
    case MLP_GATE_UP:
        set_gate_up(m, out);
        return is_gated;
    default:
        return false;
    }
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Checks a row of the configuration.
 * @param [out] module  what it is of */
static bt_status_t check_row(bt_adapter_build_t *build, const int32_t *row,
                             uint32_t i, uint32_t n_columns, uint32_t max_rank,
                             module_t *module)
{
    const int32_t id = row[0];
    const int32_t layer = row[1];
    const int32_t rank = row[2];

    if ((id < 0) || (id >= (int32_t)BT_ARRAY_LEN(module_names))) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "row %u of lora_config has the module id "
                               "%" PRId32 ", which no module has",
                               i, id);
    }
    if ((layer < 0) || ((uint32_t)layer >= build->model.n_layers)) {
        return bt_adapter_fail(build, BT_ERR_MISMATCH,
                               "Expected layerId to be in the range [0, "
                               "numModelLayers): row %u of lora_config has "
                               "layer %" PRId32 ", the model has %u layers",
                               i, layer, build->model.n_layers);
    }
    if (rank <= 0) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "Expected adapterSize to be > 0: row %u of "
                               "lora_config has %" PRId32,
                               i, rank);
    }
    if (!find_module(&build->model, id, module)) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "lora module %s not enabled for this model",
                               module_names[id]);
    }
    if (((uint32_t)rank > max_rank) || ((uint32_t)rank > BT_ADAPTER_MAX_RANK)) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "Invalid low_rank (%" PRId32 "). low_rank must "
                               "be smaller than mMaxLowRank (%u)",
                               rank, max_rank);
    }
    if ((n_columns > 3) && (row[3] != 0)) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "row %u of lora_config is of DoRA, which is not "
                               "computed",
                               i);
    }
    return BT_OK;
}

static bt_status_t add_row(bt_adapter_build_t *build,
                           const bt_adapter_tensors_t *t, uint32_t i,
                           uint32_t max_rank)
{
    const int32_t *const row = t->config + (size_t)i * t->n_columns;
    const size_t elem = (t->type == BT_ADAPTER_F32) ? 4 : 2;
    const uint8_t *const at = t->weights + (size_t)i * t->width * elem;
    module_t module = {0};
    bt_adapter_source_t source;
    uint64_t n;
    bt_status_t status =
        check_row(build, row, i, t->n_columns, max_rank, &module);

    if (status != BT_OK) {
        return status;
    }
    n = (uint64_t)row[2] * (module.n_in + module.n_out);
    if (n > t->width) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "lora_weights has to few values for %s: "
                               "%" PRIu64 " a row, and rank %" PRId32
                               " needs %" PRIu64,
                               module_names[row[0]], t->width, row[2], n);
    }
    if (!is_zero(at + n * elem, (size_t)(t->width - n) * elem)) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "row %u of lora_weights has numbers behind both "
                               "matrices of %s with rank %" PRId32,
                               i, module_names[row[0]], row[2]);
    }
    source = (bt_adapter_source_t){
        .name = module_names[row[0]],
        .len = strlen(module_names[row[0]]),
        .a = at,
        .a_type = t->type,
        .b_type = t->type,
        .rank = (uint64_t)row[2],
        .n_in = module.n_in,
        .scale = 1.0f,
    };
    for (uint32_t k = 0; (status == BT_OK) && (k < module.n_targets); k++) {
        const target_t *const target = &module.targets[k];
        bt_hf_module_part_t part = {.layer = (uint32_t)row[1],
                                    .order = target->order};

        snprintf(part.product, sizeof(part.product), "%s", target->product);
        source.b = at + source.rank * (module.n_in + target->first) * elem;
        source.n_out = target->n_out;
        status = bt_adapter_add(build, &source, &part);
    }
    return status;
}

bt_status_t bt_adapter_open_tensors(const bt_adapter_tensors_t *t,
                                    const bt_hf_modules_t *model,
                                    uint32_t max_rank, char *why,
                                    size_t why_bytes, bt_adapter_t **adapter_p)
{
    bt_adapter_build_t build = {
        .model = *model, .why = why, .why_bytes = why_bytes};
    bt_status_t status = bt_adapter_begin(&build);

    for (uint32_t i = 0; (status == BT_OK) && (i < t->n_rows); i++) {
        status = add_row(&build, t, i, max_rank);
    }
    return bt_adapter_end(&build, status, adapter_p);
}

/* ---- between processes ---- */

/* Numbers before a part's matrices. */
enum {
    LAYER,
    PRODUCT,
    RANK,
    N_IN,
    N_OUT,
    TYPE,
    SCALE,
    N_NUMBERS,
};

static size_t matrix_bytes(const bt_adapter_part_t *p, uint32_t n)
{
    return (size_t)p->rank * n * ((p->type == BT_ADAPTER_F32) ? 4 : 2);
}

size_t bt_adapter_packed_bytes(const bt_adapter_t *adapter)
{
    return sizeof(uint32_t) +
           adapter->n_parts * (N_NUMBERS * sizeof(uint32_t)) + adapter->bytes;
}

void bt_adapter_pack(const bt_adapter_t *adapter, uint8_t *data)
{
    memcpy(data, &adapter->n_parts, sizeof(adapter->n_parts));
    data += sizeof(adapter->n_parts);
    for (uint32_t i = 0; i < adapter->n_parts; i++) {
        const bt_adapter_part_t *const p = &adapter->parts[i];
        const size_t a = matrix_bytes(p, p->n_in);
        const size_t b = matrix_bytes(p, p->n_out);
        uint32_t head[N_NUMBERS] = {
            [LAYER] = p->layer, [PRODUCT] = p->product, [RANK] = p->rank,
            [N_IN] = p->n_in,   [N_OUT] = p->n_out,     [TYPE] = p->type};

        memcpy(&head[SCALE], &p->scale, sizeof(p->scale));
        memcpy(data, head, sizeof(head));
        memcpy(data + sizeof(head), p->a, a);
        memcpy(data + sizeof(head) + a, p->b, b);
        data += sizeof(head) + a + b;
    }
}

static bt_status_t unpack_part(bt_adapter_build_t *build,
                               const uint8_t **data_io, size_t *left_io)
{
    uint32_t head[N_NUMBERS];
    bt_hf_module_part_t part = {0};
    bt_adapter_part_t p;
    bt_adapter_source_t source;
    size_t bytes;

    if (*left_io < sizeof(head)) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE, "it is cut off");
    }
    memcpy(head, *data_io, sizeof(head));
    p = (bt_adapter_part_t){.rank = head[RANK], .type = head[TYPE]};
    /* With these bounds no product below is larger than 2^40. */
    if ((head[PRODUCT] >= BT_ADAPTER_N_PRODUCTS) ||
        (p.rank > BT_ADAPTER_MAX_RANK) || (head[N_IN] > UINT32_MAX / 8) ||
        (head[N_OUT] > UINT32_MAX / 8) ||
        ((p.type != BT_ADAPTER_F32) && (p.type != BT_ADAPTER_F16) &&
         (p.type != BT_ADAPTER_BF16))) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "it has a part that cannot be");
    }
    bytes = sizeof(head) + matrix_bytes(&p, head[N_IN]) +
            matrix_bytes(&p, head[N_OUT]);
    if (bytes > *left_io) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE, "it is cut off");
    }
    part.layer = head[LAYER];
    snprintf(part.product, sizeof(part.product), "%s",
             bt_adapter_product_name((bt_adapter_product_t)head[PRODUCT]));
    source = (bt_adapter_source_t){
        .name = part.product,
        .len = strlen(part.product),
        .a = *data_io + sizeof(head),
        .b = *data_io + sizeof(head) + matrix_bytes(&p, head[N_IN]),
        .a_type = p.type,
        .b_type = p.type,
        .rank = p.rank,
        .n_in = head[N_IN],
        .n_out = head[N_OUT],
    };
    memcpy(&source.scale, &head[SCALE], sizeof(source.scale));
    *data_io += bytes;
    *left_io -= bytes;
    return bt_adapter_add_product(build, &source, &part,
                                  (bt_adapter_product_t)head[PRODUCT]);
}

bt_status_t bt_adapter_unpack(const uint8_t *data, size_t bytes,
                              const bt_hf_modules_t *model, char *why,
                              size_t why_bytes, bt_adapter_t **adapter_p)
{
    bt_adapter_build_t build = {
        .model = *model, .why = why, .why_bytes = why_bytes};
    bt_status_t status = bt_adapter_begin(&build);
    uint32_t n = 0;

    if ((status == BT_OK) && (bytes >= sizeof(n))) {
        memcpy(&n, data, sizeof(n));
        data += sizeof(n);
        bytes -= sizeof(n);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        status = unpack_part(&build, &data, &bytes);
    }
    if ((status == BT_OK) && (bytes > 0)) {
        status = bt_adapter_fail(&build, BT_ERR_BAD_FILE,
                                 "it has %zu bytes too many", bytes);
    }
    return bt_adapter_end(&build, status, adapter_p);
}
