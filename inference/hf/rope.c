/* SPDX-License-Identifier: Apache-2.0 */
/* Position settings of config.json: scaling, and factors of RoPE
 * frequencies. */
#include <math.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/hf_priv.h"

#define ORIGINAL                         \
    ".original_max_position_embeddings|" \
    "original_max_position_embeddings"

/* ---- RoPE ---- */

static void put_optional(bt_hf_t *hf, const char *names, const char *key)
{
    if (bt_hf_config(hf, names) != NULL) {
        bt_hf_put_f32(hf, key, bt_hf_float(hf, names, 0.0f));
    }
}

/* Writes the magnitude of queries and keys: the ratio of two weights where both
 * are given. */
static void put_yarn_scale(bt_hf_t *hf)
{
    const float scale = bt_hf_float(hf, ".mscale", 0.0f);
    const float all = bt_hf_float(hf, ".mscale_all_dim", 0.0f);
    const float factor = bt_hf_float(hf, ".factor", 1.0f);

    if ((scale == 0.0f) || (all == 0.0f) ||
        (bt_hf_config(hf, ".attention_factor|.attn_factor") != NULL)) {
        return;
    }
    if (scale == 1.0f) {
        bt_hf_put_f32(hf, "rope.scaling.yarn_log_multiplier", all);
    } else if (factor > 1.0f) {
        bt_hf_put_f32(hf, "rope.scaling.yarn_attn_factor",
                      (0.1f * scale * logf(factor) + 1.0f) /
                          (0.1f * all * logf(factor) + 1.0f));
    }
}

/* Dynamic NTK changes the base once a sequence is longer than
 * max_position_embeddings, when keys were stored with another one already. The
 * context ends there (context_length), so it is never used. */
static void check_dynamic(bt_hf_t *hf)
{
    const bt_json_node_t *const original =
        bt_hf_config(hf, ".original_max_position_embeddings");
    const uint32_t none = 0;
    const uint32_t context =
        bt_hf_count(hf, "max_position_embeddings", 0, INT32_MAX, &none);
    uint64_t n = 0;

    if ((original != NULL) &&
        (!bt_json_as_u64(original, &n) || (n != context))) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   "config.json: positions of the type dynamic whose "
                   "original_max_position_embeddings is not "
                   "max_position_embeddings are not supported");
    }
}

/* Writes whether the bounds of scaled pairs are rounded to whole pairs, for
 * which GGUF has no key. */
static void put_truncate(bt_hf_t *hf)
{
    const bt_json_node_t *const truncate = bt_hf_config(hf, ".truncate");

    if ((truncate == NULL) || (truncate->kind == BT_JSON_TRUE)) {
        return;
    }
    if (truncate->kind != BT_JSON_FALSE) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: truncate is not true or false");
    }
    bt_gguf_meta_bool(&hf->meta, "baton.rope.yarn_truncate", false);
}

static void put_yarn(bt_hf_t *hf)
{
    static const char *const keys[][2] = {
        {".factor", "rope.scaling.factor"},
        {".extrapolation_factor", "rope.scaling.yarn_ext_factor"},
        {".attention_factor|.attn_factor", "rope.scaling.yarn_attn_factor"},
        {".beta_fast", "rope.scaling.yarn_beta_fast"},
        {".beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    const uint32_t original = bt_hf_count(hf, ORIGINAL, 1, INT32_MAX, NULL);

    bt_hf_put_str(hf, "rope.scaling.type", "yarn");
    bt_hf_put_u32(hf, "rope.scaling.original_context_length", original);
    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        put_optional(hf, keys[i][0], keys[i][1]);
    }
    put_yarn_scale(hf);
    put_truncate(hf);
}

static void put_rope_type(bt_hf_t *hf)
{
    const bt_json_node_t *const type = bt_hf_config(hf, ".rope_type|.type");

    if ((type == NULL) || bt_json_is(type, "default") ||
        bt_json_is(type, "llama3")) {
        return;
    }
    if (bt_json_is(type, "linear")) {
        bt_hf_put_str(hf, "rope.scaling.type", "linear");
        put_optional(hf, ".factor", "rope.scaling.factor");
    } else if (bt_json_is(type, "yarn")) {
        put_yarn(hf);
    } else if (bt_json_is(type, "dynamic")) {
        check_dynamic(hf);
    } else if (hf->family->long_factors &&
               (bt_json_is(type, "longrope") || bt_json_is(type, "su"))) {
        bt_hf_put_str(hf, "rope.scaling.type", "longrope");
    } else {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   "config.json: positions of the type %s are not supported "
                   "for %s models",
                   bt_hf_printable(type).text, hf->family->model_type);
    }
}

/* Writes the RoPE base of layers with a window, where it differs. */
static void put_window_base(bt_hf_t *hf)
{
    const bt_json_node_t *const rope =
        bt_hf_config(hf, "rope_parameters|rope_scaling");
    const bt_json_node_t *node = bt_hf_not_null(bt_json_get(
        hf->config.doc, bt_json_get(hf->config.doc, rope, "sliding_attention"),
        "rope_theta"));
    double value;

    if (node == NULL) {
        node = bt_hf_config(hf, "rope_local_base_freq|local_rope_theta");
    }
    if (node == NULL) {
        return;
    }
    if (!bt_json_as_double(node, &value) || !isfinite((float)value)) {
        bt_hf_bad_number(hf, "rope_theta", node);
        return;
    }
    bt_hf_put_f32(hf, "rope.freq_base_swa", (float)value);
}

void bt_hf_put_rope(bt_hf_t *hf)
{
    float part;

    if (hf->family->no_rope) {
        return;
    }
    put_optional(hf, ".rope_theta|rope_theta|rotary_emb_base",
                 "rope.freq_base");
    put_window_base(hf);
    put_rope_type(hf);
    part = bt_hf_float(
        hf, ".partial_rotary_factor|partial_rotary_factor|rotary_pct", 1.0f);
    if (!(part > 0.0f) || (part > 1.0f)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: the rotated part of a head is %g",
                   (double)part);
        return;
    }
    bt_hf_put_u32(hf, "rope.dimension_count",
                  (uint32_t)(part * (float)hf->shape.head_dim));
}

/* ---- factors of RoPE frequencies ---- */

/* Computes the factors of Llama 3.1 and later: long wavelengths are stretched
 * by the factor, short ones are not, those between by interpolation. */
static void llama3_factors(bt_hf_t *hf, uint32_t half, float *out)
{
    const float base = bt_hf_float(hf, ".rope_theta|rope_theta", 10000.0f);
    const float factor = bt_hf_float(hf, ".factor", 8.0f);
    const float low = bt_hf_float(hf, ".low_freq_factor", 1.0f);
    const float high = bt_hf_float(hf, ".high_freq_factor", 4.0f);
    const float original =
        bt_hf_float(hf, ".original_max_position_embeddings", 8192.0f);

    if (!(base > 0) || !(factor > 0) || !(low > 0) || !(high > low) ||
        !(original > 0)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: the numbers of rope_type llama3 are not "
                   "positive, or not in order");
    }
    for (uint32_t i = 0; i < half; i++) {
        const double wave =
            2.0 * M_PI * pow((double)base, (double)i / (double)half);
        const double smooth = ((double)original / wave - (double)low) /
                              ((double)high - (double)low);

        out[i] =
            (wave < (double)(original / high)) ? 1.0f
            : (wave > (double)(original / low))
                ? factor
                : (float)(1.0 / ((1.0 - smooth) / (double)factor + smooth));
    }
}

static void read_list(bt_hf_t *hf, const char *name, uint32_t n, float *out)
{
    const bt_json_node_t *const list = bt_hf_config(hf, name);
    const bt_json_node_t *at;

    if (!bt_json_is_kind(list, BT_JSON_ARRAY) || (list->n != n)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: %s is not a list of %u numbers", name + 1, n);
        return;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < n; i++) {
        double value;

        if (!bt_json_as_double(at, &value) || !(value > 0.0) ||
            !isfinite((float)value)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       "config.json: number %u of %s is not positive", i,
                       name + 1);
            return;
        }
        out[i] = (float)value;
        at = bt_json_next(hf->config.doc, at);
    }
}

/* Writes the magnitude of queries for contexts longer than the trained one. */
static void put_long_scale(bt_hf_t *hf)
{
    const uint32_t context =
        bt_hf_count(hf, "max_position_embeddings", 2, INT32_MAX, NULL);
    const uint32_t original = bt_hf_count(hf, ORIGINAL, 2, INT32_MAX, &context);
    const double scale = (double)context / (double)original;

    if (bt_hf_config(hf, ".attention_factor") != NULL) {
        put_optional(hf, ".attention_factor", "rope.scaling.attn_factor");
        return;
    }
    bt_hf_put_f32(hf, "rope.scaling.attn_factor",
                  (scale > 1.0)
                      ? (float)sqrt(1.0 + log(scale) / log((double)original))
                      : 1.0f);
}

static void add_factors(bt_hf_t *hf, const char *name, float *factors,
                        uint32_t n)
{
    bt_hf_store_t *const store = hf->store;
    bt_gguf_tensor_t *const t = &store->tensors[store->n_tensors];
    char *const text = store->names[store->n_tensors];

    snprintf(text, BT_HF_NAME_BYTES, "%s", name);
    *t = (bt_gguf_tensor_t){.name = {.data = text, .len = strlen(text)},
                            .n_dims = 1,
                            .dims = {n, 1, 1, 1},
                            .type = 0, /* F32 */
                            .data = factors,
                            .bytes = n * sizeof(*factors)};
    store->n_tensors++;
    store->spans[store->n_spans++] =
        (bt_gguf_span_t){.data = factors, .bytes = n * sizeof(*factors)};
}

/* @return NULL: out of memory */
static float *new_factors(bt_hf_t *hf, uint32_t i, uint32_t n)
{
    hf->store->rope_factors[i] = bt_calloc(n, sizeof(float));
    if (hf->store->rope_factors[i] == NULL) {
        bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    return hf->store->rope_factors[i];
}

bt_status_t bt_hf_rope_factors(bt_hf_t *hf)
{
    static const char *const lists[][2] = {
        {".long_factor", "rope_factors_long.weight"},
        {".short_factor", "rope_factors_short.weight"},
    };
    const bt_json_node_t *const type = bt_hf_config(hf, ".rope_type|.type");
    const uint32_t half = hf->shape.head_dim / 2;
    float *factors;

    if (half == 0) {
        return hf->status;
    }
    if ((type != NULL) && bt_json_is(type, "llama3")) {
        factors = new_factors(hf, 0, half);
        if (factors != NULL) {
            llama3_factors(hf, half, factors);
            add_factors(hf, "rope_freqs.weight", factors, half);
        }
        return hf->status;
    }
    if (!hf->family->long_factors ||
        (bt_hf_config(hf, ".long_factor") == NULL)) {
        return hf->status;
    }
    for (uint32_t i = 0; i < 2; i++) {
        factors = new_factors(hf, i, half);
        if (factors != NULL) {
            read_list(hf, lists[i][0], half, factors);
            add_factors(hf, lists[i][1], factors, half);
        }
    }
    put_long_scale(hf);
    return hf->status;
}
