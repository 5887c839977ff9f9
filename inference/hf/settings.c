/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/hf_priv.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"

bt_status_t bt_hf_fail(bt_hf_t *hf, bt_status_t status, const char *fmt, ...)
{
    va_list args;

    if (hf->status == BT_OK) {
        hf->status = status;
        va_start(args, fmt);
        vsnprintf(hf->why, hf->why_bytes, fmt, args);
        va_end(args);
    }
    return hf->status;
}

const bt_json_node_t *bt_hf_not_null(const bt_json_node_t *node)
{
    return ((node != NULL) && (node->kind != BT_JSON_NULL)) ? node : NULL;
}

/* Returns a setting of the language model, else of the file. */
static const bt_json_node_t *of_either(const bt_hf_t *hf, const char *name)
{
    const bt_json_doc_t *const doc = hf->config.doc;
    const bt_json_node_t *const own =
        bt_hf_not_null(bt_json_get(doc, hf->text, name));

    return (own != NULL)
               ? own
               : bt_hf_not_null(bt_json_get(doc, hf->config.root, name));
}

/* Returns the RoPE settings: one object for all layers, or that of layers with
 * full attention. NULL: none. */
static const bt_json_node_t *rope_object(const bt_hf_t *hf)
{
    const bt_json_doc_t *const doc = hf->config.doc;
    const bt_json_node_t *rope = of_either(hf, "rope_parameters");
    const bt_json_node_t *full;

    if (rope == NULL) {
        rope = of_either(hf, "rope_scaling");
    }
    full = bt_hf_not_null(bt_json_get(doc, rope, "full_attention"));
    return (full != NULL) ? full : rope;
}

const bt_json_node_t *bt_hf_setting(const bt_hf_t *hf, const char *name,
                                    size_t len)
{
    char text[BT_HF_KEY_BYTES];
    char *dot;

    BT_ASSERT_ALWAYS(len < sizeof(text));
    memcpy(text, name, len);
    text[len] = '\0';
    if (text[0] == '.') {
        return bt_hf_not_null(
            bt_json_get(hf->config.doc, rope_object(hf), text + 1));
    }
    dot = strchr(text, '.');
    if (dot == NULL) {
        return of_either(hf, text);
    }
    *dot = '\0';
    return bt_hf_not_null(
        bt_json_get(hf->config.doc, of_either(hf, text), dot + 1));
}

/* Returns whether a word is one of "a|b|c". */
static bool has_word(const char *words, const char *word, size_t len)
{
    while (*words != '\0') {
        const size_t n = strcspn(words, "|");

        if ((n == len) && (memcmp(words, word, n) == 0)) {
            return true;
        }
        words += n + ((words[n] == '|') ? 1 : 0);
    }
    return false;
}

bool bt_hf_is_one_of(const bt_json_node_t *node, const char *words)
{
    return (node->kind == BT_JSON_STRING) &&
           has_word(words, node->text, node->len);
}

bt_printable_t bt_hf_printable(const bt_json_node_t *node)
{
    return (node->kind == BT_JSON_STRING) ? bt_printable(node->text, node->len)
                                          : (bt_printable_t){"that is no name"};
}

/* Returns the family's default of the first name that has one. */
static const bt_json_node_t *default_of(const bt_hf_t *hf, const char *names)
{
    const bt_hf_default_t *d =
        (hf->family != NULL) ? hf->family->defaults : NULL;

    while ((d != NULL) && (d->name != NULL) &&
           !has_word(names, d->name, strlen(d->name))) {
        d++;
    }
    return ((d != NULL) && (d->name != NULL)) ? &d->value : NULL;
}

const bt_json_node_t *bt_hf_config(const bt_hf_t *hf, const char *names)
{
    const char *const all = names;
    const bt_json_node_t *node = NULL;

    while ((node == NULL) && (*names != '\0')) {
        const size_t n = strcspn(names, "|");

        node = bt_hf_setting(hf, names, n);
        names += n + ((names[n] == '|') ? 1 : 0);
    }
    return (node != NULL) ? node : default_of(hf, all);
}

void bt_hf_bad_number(bt_hf_t *hf, const char *names,
                      const bt_json_node_t *node)
{
    const int n = (int)strcspn(names, "|");

    bt_hf_fail(hf, BT_ERR_BAD_FILE, "config.json: %.*s is %s%s", n, names,
               (node->kind == BT_JSON_NUMBER)
                   ? bt_printable(node->text, node->len).text
                   : "not a number",
               (node->kind == BT_JSON_NUMBER) ? ", which is absurd" : "");
}

uint32_t bt_hf_count(bt_hf_t *hf, const char *names, uint32_t min, uint32_t max,
                     const uint32_t *otherwise)
{
    const bt_json_node_t *const node = bt_hf_config(hf, names);
    uint64_t value;

    if ((node == NULL) && (otherwise != NULL)) {
        return *otherwise;
    }
    if (node == NULL) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE, "config.json: %.*s is missing",
                   (int)strcspn(names, "|"), names);
    } else if (!bt_json_as_u64(node, &value) || (value < min) ||
               (value > max)) {
        bt_hf_bad_number(hf, names, node);
    } else {
        return (uint32_t)value;
    }
    return min;
}

float bt_hf_float(bt_hf_t *hf, const char *names, float otherwise)
{
    const bt_json_node_t *const node = bt_hf_config(hf, names);
    double value;

    if (node == NULL) {
        return otherwise;
    }
    if (!bt_json_as_double(node, &value) || !isfinite((float)value)) {
        bt_hf_bad_number(hf, names, node);
        return otherwise;
    }
    return (float)value;
}

void bt_hf_key_name(const bt_hf_t *hf, const char *key,
                    char text[BT_HF_KEY_BYTES])
{
    snprintf(text, BT_HF_KEY_BYTES, "%s.%s", hf->family->arch, key);
}

void bt_hf_put_u32(bt_hf_t *hf, const char *key, uint32_t value)
{
    char text[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, key, text);
    bt_gguf_meta_u32(&hf->meta, text, value);
}

void bt_hf_put_f32(bt_hf_t *hf, const char *key, float value)
{
    char text[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, key, text);
    bt_gguf_meta_f32(&hf->meta, text, value);
}

void bt_hf_put_str(bt_hf_t *hf, const char *key, const char *value)
{
    char text[BT_HF_KEY_BYTES];

    bt_hf_key_name(hf, key, text);
    bt_gguf_meta_str(&hf->meta, text, value, strlen(value));
}
