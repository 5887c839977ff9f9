/* SPDX-License-Identifier: Apache-2.0 */
/* config.json as the keys of an architecture. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/hf/hf_priv.h"

#define KEY_BYTES 128

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_LAYERS 4096u
#define MAX_WIDTH  (1u << 20)
#define MAX_HEADS  8192u
#define MAX_VOCAB  (1u << 24)

bt_status_t bt_hf_fail(const bt_hf_t *hf, bt_status_t status, const char *fmt,
                       ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(hf->why, hf->why_bytes, fmt, args);
    va_end(args);
    return status;
}

/* ---- settings by name ---- */

static const bt_json_node_t *not_null(const bt_json_node_t *node)
{
    return ((node != NULL) && (node->kind != BT_JSON_NULL)) ? node : NULL;
}

/* What is said of rotary positions: an object for all layers, or of those that
 * look at all positions. NULL: nothing. */
static const bt_json_node_t *rope_object(const bt_hf_t *hf)
{
    const bt_json_doc_t *const doc = hf->config.doc;
    const bt_json_node_t *rope =
        not_null(bt_json_get(doc, hf->config.root, "rope_parameters"));
    const bt_json_node_t *full;

    if (rope == NULL) {
        rope = not_null(bt_json_get(doc, hf->config.root, "rope_scaling"));
    }
    full = not_null(bt_json_get(doc, rope, "full_attention"));
    return (full != NULL) ? full : rope;
}

static const bt_json_node_t *one_setting(const bt_hf_t *hf, const char *name,
                                         size_t len)
{
    char text[KEY_BYTES];

    BT_ASSERT_ALWAYS(len < sizeof(text));
    memcpy(text, name, len);
    text[len] = '\0';
    if (text[0] == '.') {
        return not_null(bt_json_get(hf->config.doc, rope_object(hf), text + 1));
    }
    return not_null(bt_json_get(hf->config.doc, hf->config.root, text));
}

const bt_json_node_t *bt_hf_config(const bt_hf_t *hf, const char *names)
{
    const bt_json_node_t *node = NULL;

    while ((node == NULL) && (*names != '\0')) {
        const size_t n = strcspn(names, "|");

        node = one_setting(hf, names, n);
        names += n + ((names[n] == '|') ? 1 : 0);
    }
    return node;
}

static bt_status_t bad_number(const bt_hf_t *hf, const char *names,
                              const bt_json_node_t *node)
{
    const int n = (int)strcspn(names, "|");

    return bt_hf_fail(
        hf, BT_ERR_BAD_FILE, "config.json: %.*s is %s%s", n, names,
        (node->kind == BT_JSON_NUMBER) ? bt_shown(node->text, node->len).text
                                       : "not a number",
        (node->kind == BT_JSON_NUMBER) ? ", which is absurd" : "");
}

/* A whole number of min to max; missing: @a otherwise, unless it is NULL. */
static bt_status_t read_count(const bt_hf_t *hf, const char *names,
                              uint32_t min, uint32_t max,
                              const uint32_t *otherwise, uint32_t *value_p)
{
    const bt_json_node_t *const node = bt_hf_config(hf, names);
    uint64_t value;

    if (node == NULL) {
        if (otherwise == NULL) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "config.json: %.*s is missing",
                              (int)strcspn(names, "|"), names);
        }
        *value_p = *otherwise;
        return BT_OK;
    }
    if (!bt_json_as_u64(node, &value) || (value < min) || (value > max)) {
        return bad_number(hf, names, node);
    }
    *value_p = (uint32_t)value;
    return BT_OK;
}

static bt_status_t read_float(const bt_hf_t *hf, const char *names,
                              float otherwise, float *value_p)
{
    const bt_json_node_t *const node = bt_hf_config(hf, names);
    double value;

    if (node == NULL) {
        *value_p = otherwise;
        return BT_OK;
    }
    if (!bt_json_as_double(node, &value) || !isfinite((float)value)) {
        return bad_number(hf, names, node);
    }
    *value_p = (float)value;
    return BT_OK;
}

static void full_key(const bt_hf_t *hf, const char *key, char text[KEY_BYTES])
{
    snprintf(text, KEY_BYTES, "%s.%s", hf->family->arch, key);
}

static void put_u32(bt_hf_t *hf, const char *key, uint32_t value)
{
    char text[KEY_BYTES];

    full_key(hf, key, text);
    bt_gguf_meta_u32(&hf->meta, text, value);
}

static void put_f32(bt_hf_t *hf, const char *key, float value)
{
    char text[KEY_BYTES];

    full_key(hf, key, text);
    bt_gguf_meta_f32(&hf->meta, text, value);
}

static void put_str(bt_hf_t *hf, const char *key, const char *value)
{
    char text[KEY_BYTES];

    full_key(hf, key, text);
    bt_gguf_meta_str(&hf->meta, text, value, strlen(value));
}

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

    if ((act != NULL) && !is_one_of(act, hf->family->acts)) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "config.json: the activation %s is not supported "
                          "for %s models; supported: %s",
                          (act->kind == BT_JSON_STRING)
                              ? bt_shown(act->text, act->len).text
                              : "that is no name",
                          hf->family->model_type, hf->family->acts);
    }
    for (const char *const *c = hf->family->checks; *c != NULL; c++) {
        const size_t n = strcspn(*c, "=");
        const bt_json_node_t *const node = one_setting(hf, *c, n);

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
    char text[KEY_BYTES];

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
        status = read_count(hf, key->config, 0, INT32_MAX,
                            (key->otherwise != NULL) ? &count : NULL, &count);
        if (status == BT_OK) {
            put_u32(hf, key->key, count);
        }
        return status;
    case BT_HF_F32:
        if ((node == NULL) && key->needed) {
            return read_count(hf, key->config, 0, 0, NULL, &count);
        }
        status = read_float(
            hf, key->config,
            (key->otherwise != NULL) ? strtof(key->otherwise, NULL) : 0.0f,
            &number);
        if (status == BT_OK) {
            put_f32(hf, key->key, number);
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
        full_key(hf, key->key, text);
        bt_gguf_meta_bool(&hf->meta, text, truth);
        return BT_OK;
    }
}

static bool has_key(const bt_hf_key_t *keys, const char *key)
{
    for (; keys->key != NULL; keys++) {
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

    for (const bt_hf_key_t *k = own; (status == BT_OK) && (k->key != NULL);
         k++) {
        status = put_key(hf, k);
    }
    for (const bt_hf_key_t *k = bt_hf_common_keys;
         hf->family->common_keys && (status == BT_OK) && (k->key != NULL);
         k++) {
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
    bt_status_t status = read_count(hf, "num_hidden_layers|n_layer|n_layers", 1,
                                    MAX_LAYERS, NULL, &s->n_layers);

    if (status == BT_OK) {
        status =
            read_count(hf, "hidden_size|n_embd", 1, MAX_WIDTH, NULL, &s->dim);
    }
    if (status == BT_OK) {
        status = read_count(hf, "num_attention_heads|n_head|n_heads", 1,
                            MAX_HEADS, NULL, &s->n_heads);
    }
    if (status == BT_OK) {
        const uint32_t otherwise = one_kv ? 1 : s->n_heads;

        status = read_count(hf,
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
        status = read_count(hf, "head_dim", 1, MAX_WIDTH / 128, &split,
                            &s->head_dim);
    }
    if (status == BT_OK) {
        status = read_count(hf, "vocab_size", 1, MAX_VOCAB, &none, &s->n_vocab);
    }
    s->tied = (tied != NULL) ? tied->kind == BT_JSON_TRUE : hf->family->tied;
    return status;
}

/* ---- which layers have a window ---- */

static bt_status_t put_pattern(bt_hf_t *hf, const bt_json_node_t *types)
{
    const bt_json_node_t *at = bt_json_first(types);
    char key[KEY_BYTES];

    full_key(hf, "attention.sliding_window_pattern", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_META_BOOL, types->n);
    for (uint32_t i = 0; i < types->n; i++) {
        bt_gguf_meta_item_bool(&hf->meta, bt_json_is(at, "sliding_attention"));
        at = bt_json_next(hf->config.doc, at);
    }
    return BT_OK;
}

/* layer_types must be what readers of GGUF know of the architecture. */
static bt_status_t check_layers(bt_hf_t *hf)
{
    const bt_json_node_t *const types = bt_hf_config(hf, "layer_types");
    const int windows = hf->family->windows;
    const bt_json_node_t *at;
    bool first = false;

    if (types == NULL) {
        return BT_OK;
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
                                  ? bt_shown(at->text, at->len).text
                                  : "no name",
                              i, hf->family->model_type);
        }
        first = (i == 0) ? window : first;
        at = bt_json_next(hf->config.doc, at);
    }
    return (windows == BT_HF_ANY_WINDOW) ? put_pattern(hf, types) : BT_OK;
}

/* Layers without positions: every fourth, as readers of GGUF know it. */
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

/* ---- rotary positions ---- */

static bt_status_t put_optional(bt_hf_t *hf, const char *names, const char *key)
{
    float value = 0.0f;
    bt_status_t status;

    if (bt_hf_config(hf, names) == NULL) {
        return BT_OK;
    }
    status = read_float(hf, names, 0.0f, &value);
    if (status == BT_OK) {
        put_f32(hf, key, value);
    }
    return status;
}

static bt_status_t put_yarn(bt_hf_t *hf)
{
    static const char *const keys[][2] = {
        {".extrapolation_factor", "rope.scaling.yarn_ext_factor"},
        {".attention_factor|.attn_factor", "rope.scaling.yarn_attn_factor"},
        {".beta_fast", "rope.scaling.yarn_beta_fast"},
        {".beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    uint32_t original = 0;
    bt_status_t status = read_count(hf,
                                    ".original_max_position_embeddings|"
                                    "original_max_position_embeddings",
                                    1, INT32_MAX, NULL, &original);

    if (status == BT_OK) {
        put_str(hf, "rope.scaling.type", "yarn");
        put_u32(hf, "rope.scaling.original_context_length", original);
        status = put_optional(hf, ".factor", "rope.scaling.factor");
    }
    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(keys)); i++) {
        status = put_optional(hf, keys[i][0], keys[i][1]);
    }
    return status;
}

static bt_status_t put_rope_type(bt_hf_t *hf)
{
    const bt_json_node_t *const type = bt_hf_config(hf, ".rope_type|.type");

    if ((type == NULL) || bt_json_is(type, "default") ||
        bt_json_is(type, "llama3")) {
        return BT_OK;
    }
    if (bt_json_is(type, "linear")) {
        put_str(hf, "rope.scaling.type", "linear");
        return put_optional(hf, ".factor", "rope.scaling.factor");
    }
    if (bt_json_is(type, "yarn")) {
        return put_yarn(hf);
    }
    if (hf->family->long_factors &&
        (bt_json_is(type, "longrope") || bt_json_is(type, "su"))) {
        put_str(hf, "rope.scaling.type", "longrope");
        return BT_OK;
    }
    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      "config.json: positions of the type %s are not supported "
                      "for %s models",
                      (type->kind == BT_JSON_STRING)
                          ? bt_shown(type->text, type->len).text
                          : "that is no name",
                      hf->family->model_type);
}

/* The base of layers with a window, where it is another. */
static bt_status_t put_window_base(bt_hf_t *hf)
{
    const bt_json_node_t *const rope =
        bt_hf_config(hf, "rope_parameters|rope_scaling");
    const bt_json_node_t *node = not_null(bt_json_get(
        hf->config.doc, bt_json_get(hf->config.doc, rope, "sliding_attention"),
        "rope_theta"));
    double value;

    if (node == NULL) {
        node = bt_hf_config(hf, "rope_local_base_freq|local_rope_theta");
    }
    if (node == NULL) {
        return BT_OK;
    }
    if (!bt_json_as_double(node, &value) || !isfinite((float)value)) {
        return bad_number(hf, "rope_theta", node);
    }
    put_f32(hf, "rope.freq_base_swa", (float)value);
    return BT_OK;
}

static bt_status_t put_rope(bt_hf_t *hf)
{
    const bool none = strcmp(hf->family->arch, "gpt2") == 0;
    float part = 1.0f;
    bt_status_t status;

    if (none) {
        return BT_OK;
    }
    status = put_optional(hf, ".rope_theta|rope_theta|rotary_emb_base",
                          "rope.freq_base");
    if (status == BT_OK) {
        status = put_window_base(hf);
    }
    if (status == BT_OK) {
        status = put_rope_type(hf);
    }
    if (status == BT_OK) {
        status = read_float(
            hf, ".partial_rotary_factor|partial_rotary_factor|rotary_pct", 1.0f,
            &part);
    }
    if ((status == BT_OK) && (!(part > 0.0f) || (part > 1.0f))) {
        status = bt_hf_fail(hf, BT_ERR_BAD_FILE,
                            "config.json: the rotated part of a head is %g",
                            (double)part);
    }
    if (status == BT_OK) {
        put_u32(hf, "rope.dimension_count",
                (uint32_t)(part * (float)hf->shape.head_dim));
    }
    return status;
}

/* ---- factors of rotary frequencies ---- */

/* Frequencies of Llama 3.1 and later: long waves are stretched by the factor,
 * short ones are not, those between by a part of it. */
static bt_status_t llama3_factors(bt_hf_t *hf, uint32_t half, float *out)
{
    float base = 0.0f;
    float factor = 0.0f;
    float low = 0.0f;
    float high = 0.0f;
    float original = 0.0f;
    bt_status_t status =
        read_float(hf, ".rope_theta|rope_theta", 10000.0f, &base);

    if (status == BT_OK) {
        status = read_float(hf, ".factor", 8.0f, &factor);
    }
    if (status == BT_OK) {
        status = read_float(hf, ".low_freq_factor", 1.0f, &low);
    }
    if (status == BT_OK) {
        status = read_float(hf, ".high_freq_factor", 4.0f, &high);
    }
    if (status == BT_OK) {
        status = read_float(hf, ".original_max_position_embeddings", 8192.0f,
                            &original);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!(base > 0) || !(factor > 0) || !(low > 0) || !(high > low) ||
        !(original > 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: the numbers of rope_type llama3 are "
                          "not positive, or not in order");
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
    return BT_OK;
}

static bt_status_t read_list(const bt_hf_t *hf, const char *name, uint32_t n,
                             float *out)
{
    const bt_json_node_t *const list = bt_hf_config(hf, name);
    const bt_json_node_t *at;

    if ((list == NULL) || (list->kind != BT_JSON_ARRAY) || (list->n != n)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: %s is not a list of %u numbers",
                          name + 1, n);
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < n; i++) {
        double value;

        if (!bt_json_as_double(at, &value) || !(value > 0.0) ||
            !isfinite((float)value)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "config.json: number %u of %s is not positive", i,
                              name + 1);
        }
        out[i] = (float)value;
        at = bt_json_next(hf->config.doc, at);
    }
    return BT_OK;
}

/* How much queries grow with a longer context than that of the training. */
static bt_status_t put_long_scale(bt_hf_t *hf)
{
    const uint32_t one = 1;
    uint32_t context = 1;
    uint32_t original = 1;
    double scale;
    bt_status_t status =
        read_count(hf, "max_position_embeddings", 2, INT32_MAX, NULL, &context);

    if (status == BT_OK) {
        status = read_count(hf,
                            ".original_max_position_embeddings|"
                            "original_max_position_embeddings",
                            2, INT32_MAX, (context > 0) ? &context : &one,
                            &original);
    }
    if (status != BT_OK) {
        return status;
    }
    scale = (double)context / (double)original;
    put_f32(hf, "rope.scaling.attn_factor",
            (scale > 1.0)
                ? (float)sqrt(1.0 + log(scale) / log((double)original))
                : 1.0f);
    return BT_OK;
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

static bt_status_t new_factors(bt_hf_t *hf, uint32_t i, uint32_t n,
                               float **factors_p)
{
    float *const factors = bt_calloc(n, sizeof(*factors));

    if (factors == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    hf->store->rope_factors[i] = factors;
    *factors_p = factors;
    return BT_OK;
}

bt_status_t bt_hf_rope_factors(bt_hf_t *hf)
{
    static const char *const lists[][2] = {
        {".long_factor", "rope_factors_long.weight"},
        {".short_factor", "rope_factors_short.weight"},
    };
    const bt_json_node_t *const type = bt_hf_config(hf, ".rope_type|.type");
    const uint32_t half = hf->shape.head_dim / 2;
    float *factors = NULL;
    bt_status_t status = BT_OK;

    if (half == 0) {
        return BT_OK;
    }
    if ((type != NULL) && bt_json_is(type, "llama3")) {
        status = new_factors(hf, 0, half, &factors);
        if (status == BT_OK) {
            status = llama3_factors(hf, half, factors);
        }
        if (status == BT_OK) {
            add_factors(hf, "rope_freqs.weight", factors, half);
        }
        return status;
    }
    if (!hf->family->long_factors ||
        (bt_hf_config(hf, ".long_factor") == NULL)) {
        return BT_OK;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < 2); i++) {
        status = new_factors(hf, i, half, &factors);
        if (status == BT_OK) {
            status = read_list(hf, lists[i][0], half, factors);
        }
        if (status == BT_OK) {
            add_factors(hf, lists[i][1], factors, half);
        }
    }
    return (status == BT_OK) ? put_long_scale(hf) : status;
}

/* ---- the whole ---- */

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
                          bt_shown(type->text, type->len).text,
                          bt_hf_family_names());
    }
    return BT_OK;
}

/* Keys that a table has no line for. */
static void put_extras(bt_hf_t *hf)
{
    const char *const type = hf->family->model_type;

    if (strcmp(type, "falcon") == 0) {
        put_u32(hf, "attention.head_count_kv", hf->shape.n_kv_heads);
        put_str(hf, "tensor_data_layout", "jploski");
    }
    if (strcmp(type, "cohere2") == 0) {
        put_str(hf, "rope.scaling.type", "none");
    }
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
        status = check_no_rope(hf);
    }
    if (status == BT_OK) {
        status = put_rope(hf);
    }
    if (status == BT_OK) {
        put_extras(hf);
    }
    return status;
}
