/* SPDX-License-Identifier: Apache-2.0 */
/* Writes config.json as the keys of an architecture: the family's table, its
 * shape and which layers have a window. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inference/hf/hf_priv.h"

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_LAYERS 4096u
#define MAX_WIDTH  (1u << 20)
#define MAX_HEADS  8192u
#define MAX_VOCAB  (1u << 24)

/* ---- the family's table ---- */

/* @return whether @a word is one of "a|b|c" */
static bool is_one_of(const bt_json_node_t *word, const char *words)
{
    if (word->kind != BT_JSON_STRING) {
        return false;
    }
    while (*words != '\0') {
        const size_t n = strcspn(words, "|");

        if ((n == word->len) && (memcmp(words, word->text, n) == 0)) {
            return true;
        }
        words += n + ((words[n] == '|') ? 1 : 0);
    }
    return false;
}

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
static bt_status_t check_settings(const bt_hf_t *hf)
{
    const bt_json_node_t *const act = bt_hf_config(
        hf, "hidden_activation|hidden_act|activation_function|activation");
    const char *const acts =
        (hf->family->acts != NULL) ? hf->family->acts : SILU;

    if ((act != NULL) && !is_one_of(act, acts)) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "config.json: the activation %s is not supported "
                          "for %s models; supported: %s",
                          (act->kind == BT_JSON_STRING)
                              ? bt_printable(act->text, act->len).text
                              : "that is no name",
                          hf->family->model_type, acts);
    }
    for (const char *const *c = hf->family->checks; (c != NULL) && (*c != NULL);
         c++) {
        const size_t n = strcspn(*c, "=");
        const bt_json_node_t *const node = bt_hf_setting(hf, *c, n);

        if ((node != NULL) && !value_is(node, *c + n + 1)) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              "config.json: %.*s is not %s, which is not "
                              "supported",
                              (int)n, *c, *c + n + 1);
        }
    }
    return BT_OK;
}

static bt_status_t put_key(bt_hf_t *hf, const bt_hf_key_t *key)
{
    const bt_json_node_t *const node = bt_hf_config(hf, key->config);
    const bool truth =
        (node != NULL)
            ? node->kind == BT_JSON_TRUE
            : (key->otherwise != NULL) && (strcmp(key->otherwise, "true") == 0);
    uint32_t count = 0;
    float number = 0.0f;
    bt_status_t status = BT_OK;
    char text[BT_HF_KEY_BYTES];

    if ((node == NULL) && (key->otherwise == NULL) && !key->needed) {
        return BT_OK;
    }
    switch (key->kind) {
    case BT_HF_U32:
        if (key->otherwise != NULL) {
            count = (strcmp(key->otherwise, "4x") == 0)
                        ? 4 * hf->shape.dim
                        : (uint32_t)strtoul(key->otherwise, NULL, 10);
        }
        status = bt_hf_count(hf, key->config, 0, INT32_MAX,
                             (key->otherwise != NULL) ? &count : NULL, &count);
        if (status == BT_OK) {
            bt_hf_put_u32(hf, key->key, count);
        }
        return status;
    case BT_HF_F32:
        if ((node == NULL) && key->needed) {
            return bt_hf_count(hf, key->config, 0, 0, NULL, &count);
        }
        status = bt_hf_float(
            hf, key->config,
            (key->otherwise != NULL) ? strtof(key->otherwise, NULL) : 0.0f,
            &number);
        if (status == BT_OK) {
            bt_hf_put_f32(hf, key->key, number);
        }
        return status;
    case BT_HF_BOOL:
    default:
        if ((node != NULL) && (node->kind != BT_JSON_TRUE) &&
            (node->kind != BT_JSON_FALSE)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "config.json: %s is not true or false",
                              key->config);
        }
        bt_hf_key_name(hf, key->key, text);
        bt_gguf_meta_bool(&hf->meta, text, truth);
        return BT_OK;
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
static bt_status_t put_keys(bt_hf_t *hf)
{
    const bt_hf_key_t *const own = hf->family->keys;
    bt_status_t status = BT_OK;

    for (const bt_hf_key_t *k = own;
         (status == BT_OK) && (k != NULL) && (k->key != NULL); k++) {
        status = put_key(hf, k);
    }
    for (const bt_hf_key_t *k = bt_hf_common_keys;
         !hf->family->own_keys && (status == BT_OK) && (k->key != NULL); k++) {
        if (!has_key(own, k->key)) {
            status = put_key(hf, k);
        }
    }
    return status;
}

/* ---- shape ---- */

static bt_status_t read_shape(bt_hf_t *hf)
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
    uint32_t split;
    bt_status_t status = bt_hf_count(hf, "num_hidden_layers|n_layer|n_layers",
                                     1, MAX_LAYERS, NULL, &s->n_layers);

    if (status == BT_OK) {
        status = bt_hf_count(hf, "hidden_size|n_embd|n_embed|d_model", 1,
                             MAX_WIDTH, NULL, &s->dim);
    }
    if (status == BT_OK) {
        status = bt_hf_count(hf, "num_attention_heads|n_head|n_heads", 1,
                             MAX_HEADS, NULL, &s->n_heads);
    }
    if (status == BT_OK) {
        const uint32_t otherwise = one_kv ? 1 : s->n_heads;

        status = bt_hf_count(hf,
                             falcon ? "num_kv_heads|n_head_kv"
                                    : "num_key_value_heads|n_kv_heads",
                             1, MAX_HEADS, &otherwise, &s->n_kv_heads);
        if (one_kv) {
            s->n_kv_heads = 1;
        }
    }
    if ((status == BT_OK) && (s->n_heads % s->n_kv_heads != 0)) {
        status = bt_hf_fail(hf, BT_ERR_BAD_FILE,
                            "config.json: %u query heads cannot share %u key "
                            "and value heads",
                            s->n_heads, s->n_kv_heads);
    }
    if (status == BT_OK) {
        split = s->dim / s->n_heads;
        status = bt_hf_count(hf, "head_dim", 1, MAX_WIDTH / 128, &split,
                             &s->head_dim);
    }
    if (status == BT_OK) {
        status =
            bt_hf_count(hf, "vocab_size", 1, MAX_VOCAB, &none, &s->n_vocab);
    }
    s->tied = (tied != NULL) ? tied->kind == BT_JSON_TRUE : hf->family->tied;
    return status;
}

/* ---- which layers have a window ---- */

static bt_status_t put_pattern(bt_hf_t *hf, const bt_json_node_t *types)
{
    const bt_json_node_t *at = bt_json_first(types);
    char key[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, "attention.sliding_window_pattern", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_META_BOOL, types->n);
    for (uint32_t i = 0; i < types->n; i++) {
        bt_gguf_meta_item_bool(&hf->meta, bt_json_is(at, "sliding_attention"));
        at = bt_json_next(hf->config.doc, at);
    }
    return BT_OK;
}

static bool late_windows(const bt_hf_t *hf)
{
    const bt_json_node_t *const use = bt_hf_config(hf, "use_sliding_window");

    return hf->family->late_windows && (use != NULL) &&
           (use->kind == BT_JSON_TRUE) &&
           (bt_hf_config(hf, "sliding_window") != NULL);
}

static int windows_of(const bt_hf_t *hf)
{
    return late_windows(hf) ? (int)BT_HF_ANY_WINDOW : hf->family->windows;
}

/* Writes the windows of layers from max_window_layers on, where there are no
 * layer_types. */
static bt_status_t put_late_windows(bt_hf_t *hf)
{
    const uint32_t n = hf->shape.n_layers;
    const uint32_t usual = 28; /* default of the family's configuration class */
    uint32_t first = 0;
    char key[BT_HF_KEY_BYTES];
    const bt_status_t status =
        bt_hf_count(hf, "max_window_layers", 0, MAX_LAYERS, &usual, &first);

    if (status != BT_OK) {
        return status;
    }
    bt_hf_key_name(hf, "attention.sliding_window_pattern", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_META_BOOL, n);
    for (uint32_t i = 0; i < n; i++) {
        bt_gguf_meta_item_bool(&hf->meta, i >= first);
    }
    return BT_OK;
}

static bt_status_t put_window(bt_hf_t *hf)
{
    uint32_t window = 0;
    const uint32_t none = 0;
    const bt_status_t status =
        bt_hf_count(hf, "sliding_window", 0, INT32_MAX, &none, &window);

    if ((status == BT_OK) && late_windows(hf)) {
        bt_hf_put_u32(hf, "attention.sliding_window", window);
    }
    return status;
}

/* layer_types must match the fixed pattern that GGUF readers apply to the
 * architecture. */
static bt_status_t check_layers(bt_hf_t *hf)
{
    const bt_json_node_t *const types = bt_hf_config(hf, "layer_types");
    const int windows = windows_of(hf);
    const bt_json_node_t *at;
    bool first = false;

    if (types == NULL) {
        return late_windows(hf) ? put_late_windows(hf) : BT_OK;
    }
    if ((types->kind != BT_JSON_ARRAY) || (types->n != hf->shape.n_layers)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: layer_types is not a list of the %u "
                          "layers' types",
                          hf->shape.n_layers);
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
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              "config.json: layer_types has %s for layer %u; "
                              "%s models with that are not supported",
                              (at->kind == BT_JSON_STRING)
                                  ? bt_printable(at->text, at->len).text
                                  : "no name",
                              i, hf->family->model_type);
        }
        first = (i == 0) ? window : first;
        at = bt_json_next(hf->config.doc, at);
    }
    return (windows == BT_HF_ANY_WINDOW) ? put_pattern(hf, types) : BT_OK;
}

/* Layers without positions: every fourth, the pattern that GGUF readers
 * apply. */
static bt_status_t check_no_rope(const bt_hf_t *hf)
{
    const bt_json_node_t *const list = bt_hf_config(hf, "no_rope_layers");
    const bt_json_node_t *at;

    if ((list == NULL) || (strcmp(hf->family->arch, "smollm3") != 0)) {
        return BT_OK;
    }
    if ((list->kind != BT_JSON_ARRAY) || (list->n != hf->shape.n_layers)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: no_rope_layers is not a list of the "
                          "%u layers",
                          hf->shape.n_layers);
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t rotates;

        if (!bt_json_as_u64(at, &rotates) ||
            ((rotates != 0) != ((i + 1) % 4 != 0))) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              "config.json: no_rope_layers is not every "
                              "fourth layer, which is not supported");
        }
        at = bt_json_next(hf->config.doc, at);
    }
    return BT_OK;
}

/* ---- all of config.json ---- */

/* A multimodal model has the language model's settings in an object of their
 * own. */
static bt_status_t find_text(bt_hf_t *hf)
{
    const char *const inner = hf->family->inner;
    const bt_json_node_t *const text =
        bt_json_get(hf->config.doc, hf->config.root, "text_config");
    const bt_json_node_t *type;

    if (inner == NULL) {
        return BT_OK;
    }
    if ((text == NULL) || (text->kind != BT_JSON_OBJECT)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: text_config, which models of the type "
                          "%s have, is missing",
                          hf->family->model_type);
    }
    type = bt_json_get(hf->config.doc, text, "model_type");
    if ((type != NULL) && !is_one_of(type, inner)) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "config.json: a %s model with a text_config of the "
                          "type %s is not supported; supported: %s",
                          hf->family->model_type,
                          (type->kind == BT_JSON_STRING)
                              ? bt_printable(type->text, type->len).text
                              : "that is no name",
                          inner);
    }
    hf->text = text;
    return BT_OK;
}

static bt_status_t find_family(bt_hf_t *hf)
{
    const bt_json_node_t *const type =
        bt_json_get(hf->config.doc, hf->config.root, "model_type");

    if ((type == NULL) || (type->kind != BT_JSON_STRING)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json does not name its model_type");
    }
    hf->family = bt_hf_family_of(type->text, type->len);
    if (hf->family == NULL) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "config.json: models of the type %s are not "
                          "supported; supported: %s",
                          bt_printable(type->text, type->len).text,
                          bt_hf_family_names());
    }
    return find_text(hf);
}

/* Gemma scales attention scores by a width of its own. */
static bt_status_t put_score_width(bt_hf_t *hf)
{
    float width = 0.0f;
    bt_status_t status;

    if (bt_hf_config(hf, "query_pre_attn_scalar") == NULL) {
        return BT_OK;
    }
    status = bt_hf_float(hf, "query_pre_attn_scalar", 0.0f, &width);
    if ((status == BT_OK) && !(width > 0.0f)) {
        status = bt_hf_fail(hf, BT_ERR_BAD_FILE,
                            "config.json: query_pre_attn_scalar is not "
                            "positive");
    }
    if (status == BT_OK) {
        bt_hf_put_f32(hf, "attention.scale", 1.0f / sqrtf(width));
    }
    return status;
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

/* Writes keys that no table line covers. */
static bt_status_t put_extras(bt_hf_t *hf)
{
    const char *const arch = hf->family->arch;

    if (strcmp(arch, "falcon") == 0) {
        put_falcon(hf);
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
    return ((strcmp(arch, "gemma2") == 0) || (strcmp(arch, "gemma3") == 0))
               ? put_score_width(hf)
               : BT_OK;
}

bt_status_t bt_hf_read_config(bt_hf_t *hf)
{
    bt_status_t status = find_family(hf);

    if (status == BT_OK) {
        bt_gguf_meta_str(&hf->meta, "general.architecture", hf->family->arch,
                         strlen(hf->family->arch));
        status = check_settings(hf);
    }
    if (status == BT_OK) {
        status = read_shape(hf);
    }
    if (status == BT_OK) {
        status = put_keys(hf);
    }
    if (status == BT_OK) {
        status = check_layers(hf);
    }
    if (status == BT_OK) {
        status = put_window(hf);
    }
    if (status == BT_OK) {
        status = check_no_rope(hf);
    }
    if (status == BT_OK) {
        status = bt_hf_put_rope(hf);
    }
    return (status == BT_OK) ? put_extras(hf) : status;
}
