/* SPDX-License-Identifier: Apache-2.0 */
/* Writes config.json as the keys of an architecture: the family's table, its
 * shape and which layers have a window. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inference/hf/hf_priv.h"

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_LAYERS  4096u
#define MAX_WIDTH   (1u << 20)
#define MAX_HEADS   8192u
#define MAX_VOCAB   (1u << 24)
#define MAX_EXPERTS 4096u

/* ---- the family's table ---- */

static bool value_is(const bt_json_node_t *node, const char *text)
{
    switch (node->kind) {
    case BT_JSON_NULL:
        return strcmp(text, "null") == 0;
    case BT_JSON_TRUE:
        return strcmp(text, "true") == 0;
    case BT_JSON_FALSE:
        return strcmp(text, "false") == 0;
    case BT_JSON_NUMBER:
    case BT_JSON_STRING:
        return (strlen(text) == node->len) &&
               (memcmp(text, node->text, node->len) == 0);
    default:
        return false;
    }
}

/* Settings that change the mathematics in ways GGUF has no key for. */
static void check_settings(bt_hf_t *hf)
{
    const bt_json_node_t *const act = bt_hf_config(
        hf, "hidden_activation|hidden_act|activation_function|activation");
    const char *const acts =
        (hf->family->acts != NULL) ? hf->family->acts : SILU;

    if ((act != NULL) && !bt_hf_is_one_of(act, acts)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   "config.json: the activation %s is not supported "
                   "for %s models; supported: %s",
                   bt_hf_printable(act).text, hf->family->model_type, acts);
    }
    for (const char *const *c = hf->family->checks; (c != NULL) && (*c != NULL);
         c++) {
        const size_t n = strcspn(*c, "=");
        const bt_json_node_t *const node = bt_hf_setting(hf, *c, n);

        if ((node != NULL) && !value_is(node, *c + n + 1)) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       "config.json: %.*s is not %s, which is not "
                       "supported",
                       (int)n, *c, *c + n + 1);
        }
    }
}

static void put_key(bt_hf_t *hf, const bt_hf_key_t *key)
{
    const bt_json_node_t *const node = bt_hf_config(hf, key->config);
    const char *const otherwise = key->otherwise;
    uint32_t count = 0;
    char text[BT_HF_KEY_BYTES];

    if ((node == NULL) && (otherwise == NULL) && !key->needed) {
        return;
    }
    switch (key->kind) {
    case BT_HF_U32:
        if (otherwise != NULL) {
            count = (strcmp(otherwise, "4x") == 0)
                        ? 4 * hf->shape.dim
                        : (uint32_t)strtoul(otherwise, NULL, 10);
        }
        count = bt_hf_count(hf, key->config, 0, INT32_MAX,
                            (otherwise != NULL) ? &count : NULL);
        bt_hf_put_u32(hf, key->key, count);
        break;
    case BT_HF_F32:
        if ((node == NULL) && key->needed) { /* reported as missing */
            (void)bt_hf_count(hf, key->config, 0, 0, NULL);
        }
        bt_hf_put_f32(
            hf, key->key,
            bt_hf_float(hf, key->config,
                        (otherwise != NULL) ? strtof(otherwise, NULL) : 0.0f));
        break;
    case BT_HF_BOOL:
    default:
        if ((node != NULL) && (node->kind != BT_JSON_TRUE) &&
            (node->kind != BT_JSON_FALSE)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       "config.json: %s is not true or false", key->config);
        }
        bt_hf_key_name(hf, key->key, text);
        bt_gguf_meta_bool(&hf->meta, text,
                          (node != NULL)
                              ? node->kind == BT_JSON_TRUE
                              : (otherwise != NULL) &&
                                    (strcmp(otherwise, "true") == 0));
    }
}

static bool has_key(const bt_hf_key_t *keys, const char *key)
{
    for (; (keys != NULL) && (keys->key != NULL); keys++) {
        if (strcmp(keys->key, key) == 0) {
            return true;
        }
    }
    return false;
}

/* The family's own line stands before a common one of the same key. */
static void put_keys(bt_hf_t *hf)
{
    const bt_hf_key_t *const own = hf->family->keys;

    for (const bt_hf_key_t *k = own; (k != NULL) && (k->key != NULL); k++) {
        put_key(hf, k);
    }
    for (const bt_hf_key_t *k = bt_hf_common_keys;
         !hf->family->own_keys && (k->key != NULL); k++) {
        if (!has_key(own, k->key)) {
            put_key(hf, k);
        }
    }
}

/* ---- shape ---- */

static void read_shape(bt_hf_t *hf)
{
    const bt_json_node_t *const tied = bt_hf_config(hf, "tie_word_embeddings");
    bt_hf_shape_t *const s = &hf->shape;
    const bool falcon = strcmp(hf->family->model_type, "falcon") == 0;
    const bool one_kv =
        falcon &&
        value_is((bt_hf_config(hf, "multi_query") != NULL)
                     ? bt_hf_config(hf, "multi_query")
                     : &(bt_json_node_t){.kind = BT_JSON_TRUE},
                 "true") &&
        ((bt_hf_config(hf, "new_decoder_architecture") == NULL) ||
         (bt_hf_config(hf, "new_decoder_architecture")->kind != BT_JSON_TRUE));
    const uint32_t none = 0;
    uint32_t otherwise;

    s->n_layers = bt_hf_count(hf, LAYERS, 1, MAX_LAYERS, NULL);
    s->dim = bt_hf_count(hf, WIDTH, 1, MAX_WIDTH, NULL);
    s->n_heads = bt_hf_count(hf, HEADS, 1, MAX_HEADS, NULL);
    otherwise = one_kv ? 1 : s->n_heads;
    s->n_kv_heads = bt_hf_count(hf,
                                falcon ? "num_kv_heads|n_head_kv"
                                       : "num_key_value_heads|n_kv_heads",
                                1, MAX_HEADS, &otherwise);
    if (one_kv) {
        s->n_kv_heads = 1;
    }
    if (s->n_heads % s->n_kv_heads != 0) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: %u query heads cannot share %u key and value "
                   "heads",
                   s->n_heads, s->n_kv_heads);
    }
    otherwise = s->dim / s->n_heads;
    s->head_dim = bt_hf_count(hf, "head_dim", 1, MAX_WIDTH / 128, &otherwise);
    if (hf->family->experts) {
        s->n_experts = bt_hf_count(hf, EXPERTS, 1, MAX_EXPERTS, NULL);
        s->n_nextn =
            bt_hf_count(hf, "num_nextn_predict_layers", 0, MAX_LAYERS, &none);
    }
    s->n_vocab = bt_hf_count(hf, "vocab_size", 1, MAX_VOCAB, &none);
    s->tied = (tied != NULL) ? tied->kind == BT_JSON_TRUE : hf->family->tied;
}

/* ---- which layers have a window ---- */

static void put_pattern(bt_hf_t *hf, const bt_json_node_t *types)
{
    const bt_json_node_t *at = bt_json_first(types);
    char key[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, "attention.sliding_window_pattern", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_BOOL, types->n);
    for (uint32_t i = 0; i < types->n; i++) {
        bt_gguf_meta_item_bool(&hf->meta, bt_json_is(at, "sliding_attention"));
        at = bt_json_next(hf->config.doc, at);
    }
}

static bool late_windows(const bt_hf_t *hf)
{
    const bt_json_node_t *const use = bt_hf_config(hf, "use_sliding_window");

    return hf->family->late_windows && bt_json_is_kind(use, BT_JSON_TRUE) &&
           (bt_hf_config(hf, "sliding_window") != NULL);
}

static int windows_of(const bt_hf_t *hf)
{
    return late_windows(hf) ? (int)BT_HF_ANY_WINDOW : hf->family->windows;
}

/* Writes the windows of layers from max_window_layers on, where there are no
 * layer_types. */
static void put_late_windows(bt_hf_t *hf)
{
    const uint32_t n = hf->shape.n_layers;
    const uint32_t usual = 28; /* default of the family's configuration class */
    const uint32_t first =
        bt_hf_count(hf, "max_window_layers", 0, MAX_LAYERS, &usual);
    char key[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, "attention.sliding_window_pattern", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_BOOL, n);
    for (uint32_t i = 0; i < n; i++) {
        bt_gguf_meta_item_bool(&hf->meta, i >= first);
    }
}

static void put_window(bt_hf_t *hf)
{
    const uint32_t none = 0;
    const uint32_t window =
        bt_hf_count(hf, "sliding_window", 0, INT32_MAX, &none);

    if (late_windows(hf)) {
        bt_hf_put_u32(hf, "attention.sliding_window", window);
    }
}

/* layer_types must match the fixed pattern that GGUF readers apply to the
 * architecture. */
static void check_layers(bt_hf_t *hf)
{
    const bt_json_node_t *const types = bt_hf_config(hf, "layer_types");
    const int windows = windows_of(hf);
    const bt_json_node_t *at;
    bool first = false;

    if (types == NULL) {
        if (late_windows(hf)) {
            put_late_windows(hf);
        }
        return;
    }
    if ((types->kind != BT_JSON_ARRAY) || (types->n != hf->shape.n_layers)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: layer_types is not a list of the %u "
                   "layers' types",
                   hf->shape.n_layers);
        return;
    }
    at = bt_json_first(types);
    for (uint32_t i = 0; i < types->n; i++) {
        const bool window = bt_json_is(at, "sliding_attention");
        const bool want = (windows > 0) ? ((i + 1) % (uint32_t)windows != 0)
                          : (windows == BT_HF_ONE_WINDOW) && (i > 0) ? first
                          : (windows == BT_HF_NO_WINDOW)             ? false
                                                                     : window;

        if ((!window && !bt_json_is(at, "full_attention")) ||
            (window != want)) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       "config.json: layer_types has %s for layer %u; "
                       "%s models with that are not supported",
                       (at->kind == BT_JSON_STRING)
                           ? bt_printable(at->text, at->len).text
                           : "no name",
                       i, hf->family->model_type);
            return;
        }
        first = (i == 0) ? window : first;
        at = bt_json_next(hf->config.doc, at);
    }
    if (windows == BT_HF_ANY_WINDOW) {
        put_pattern(hf, types);
    }
}

/* Layers without positions: every fourth, the pattern that GGUF readers
 * apply. */
static void check_no_rope(bt_hf_t *hf)
{
    const bt_json_node_t *const list = bt_hf_config(hf, "no_rope_layers");
    const bt_json_node_t *at;

    if ((list == NULL) || (strcmp(hf->family->arch, "smollm3") != 0)) {
        return;
    }
    if ((list->kind != BT_JSON_ARRAY) || (list->n != hf->shape.n_layers)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: no_rope_layers is not a list of the "
                   "%u layers",
                   hf->shape.n_layers);
        return;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t rotates;

        if (!bt_json_as_u64(at, &rotates) ||
            ((rotates != 0) != ((i + 1) % 4 != 0))) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       "config.json: no_rope_layers is not every "
                       "fourth layer, which is not supported");
            return;
        }
        at = bt_json_next(hf->config.doc, at);
    }
}

/* ---- all of config.json ---- */

/* A multimodal model has the language model's settings in an object of their
 * own. */
static void find_text(bt_hf_t *hf)
{
    const char *const inner = hf->family->inner;
    const bt_json_node_t *const text =
        bt_json_get(hf->config.doc, hf->config.root, "text_config");
    const bt_json_node_t *type;

    if (inner == NULL) {
        return;
    }
    if (!bt_json_is_kind(text, BT_JSON_OBJECT)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: text_config, which models of the type "
                   "%s have, is missing",
                   hf->family->model_type);
        return;
    }
    type = bt_json_get(hf->config.doc, text, "model_type");
    if ((type != NULL) && !bt_hf_is_one_of(type, inner)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   "config.json: a %s model with a text_config of the "
                   "type %s is not supported; supported: %s",
                   hf->family->model_type, bt_hf_printable(type).text, inner);
        return;
    }
    hf->text = text;
}

static void find_family(bt_hf_t *hf)
{
    const bt_json_node_t *const type =
        bt_json_get(hf->config.doc, hf->config.root, "model_type");

    if (bt_hf_is_eagle3(hf)) {
        hf->family = &bt_hf_family_eagle3;
        hf->text = bt_hf_not_null(bt_json_get(hf->config.doc, hf->config.root,
                                              "transformer_layer_config"));
        return;
    }
    if (bt_hf_refuse_heads(hf) != BT_OK) {
        return;
    }
    if (!bt_json_is_kind(type, BT_JSON_STRING)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json does not name its model_type");
        return;
    }
    hf->family = bt_hf_family_of(type->text, type->len);
    if (hf->family == NULL) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   "config.json: models of the type %s are not "
                   "supported; supported: %s",
                   bt_hf_printable(type).text, bt_hf_family_names());
        return;
    }
    find_text(hf);
}

/* Gemma scales attention scores by a width of its own. */
static void put_score_width(bt_hf_t *hf)
{
    const float width = bt_hf_float(hf, "query_pre_attn_scalar", 0.0f);

    if (bt_hf_config(hf, "query_pre_attn_scalar") == NULL) {
        return;
    }
    if (!(width > 0.0f)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: query_pre_attn_scalar is not positive");
    }
    bt_hf_put_f32(hf, "attention.scale", 1.0f / sqrtf(width));
}

static bool is_true(const bt_hf_t *hf, const char *name, bool otherwise)
{
    const bt_json_node_t *const node = bt_hf_config(hf, name);

    return (node != NULL) ? node->kind == BT_JSON_TRUE : otherwise;
}

/* Settings of RefinedWeb, for which llama.cpp has no keys under this name. */
static void put_falcon(bt_hf_t *hf)
{
    char key[BT_HF_KEY_BYTES];

    bt_hf_put_u32(hf, "attention.head_count_kv", hf->shape.n_kv_heads);
    bt_hf_put_str(hf, "tensor_data_layout", "jploski");
    if (is_true(hf, "alibi", false)) {
        bt_hf_put_f32(hf, "attention.max_alibi_bias", 8.0f);
    }
    if (!is_true(hf, "parallel_attn", true)) {
        bt_hf_key_name(hf, "use_parallel_residual", key);
        bt_gguf_meta_bool(&hf->meta, key, false);
    }
}

/* Writes how many layers have no experts; a list of them must be the first
 * ones. */
static void put_dense_layers(bt_hf_t *hf)
{
    const bt_json_node_t *const list = bt_hf_config(hf, "mlp_only_layers");
    const bt_json_node_t *at;

    if (!hf->family->experts || (list == NULL)) {
        return;
    }
    if ((list->kind != BT_JSON_ARRAY) || (list->n > hf->shape.n_layers)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: mlp_only_layers is not a list of layers");
        return;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t layer;

        if (!bt_json_as_u64(at, &layer) || (layer != i)) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       "config.json: mlp_only_layers are not the first ones, "
                       "which is not supported");
            return;
        }
        at = bt_json_next(hf->config.doc, at);
    }
    if (list->n > 0) {
        bt_hf_put_u32(hf, "leading_dense_block_count", list->n);
    }
}

/* Writes keys that no table line covers. */
static void put_extras(bt_hf_t *hf)
{
    const char *const arch = hf->family->arch;

    put_dense_layers(hf);
    if (strcmp(arch, "falcon") == 0) {
        put_falcon(hf);
    }
    if (strcmp(arch, "eagle3") == 0) {
        bt_hf_put_eagle3(hf);
    }
    if (strcmp(arch, "bloom") == 0) {
        bt_hf_put_u32(hf, "attention.head_count_kv", hf->shape.n_kv_heads);
    }
    if (strcmp(arch, "baichuan") == 0) {
        bt_hf_put_str(hf, "tensor_data_layout", "Meta AI original pth");
    }
    if (strcmp(arch, "olmo") == 0) {
        bt_hf_put_f32(hf, "attention.layer_norm_epsilon", 1e-5f);
    }
    if (strcmp(arch, "cohere2") == 0) {
        bt_hf_put_str(hf, "rope.scaling.type", "none");
    }
    if ((strcmp(arch, "gemma2") == 0) || (strcmp(arch, "gemma3") == 0)) {
        put_score_width(hf);
    }
}

bt_status_t bt_hf_read_config(bt_hf_t *hf)
{
    find_family(hf);
    if (hf->status != BT_OK) {
        return hf->status;
    }
    bt_gguf_meta_str(&hf->meta, "general.architecture", hf->family->arch,
                     strlen(hf->family->arch));
    check_settings(hf);
    read_shape(hf);
    put_keys(hf);
    check_layers(hf);
    put_window(hf);
    check_no_rope(hf);
    bt_hf_put_rope(hf);
    put_extras(hf);
    return hf->status;
}
