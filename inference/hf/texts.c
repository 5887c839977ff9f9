/* SPDX-License-Identifier: Apache-2.0 */
/* Writes generation_config.json as general.sampling.*, and the chat
 * template. */
#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "inference/hf/hf_priv.h"

#define TEMPLATE_BYTES (1u << 20)
#define WHY_BYTES      400
#define KEY_TEMPLATE   "tokenizer.chat_template"

/* ---- sampling ---- */

/* Without do_sample the file's sampling numbers are unused by transformers. */
static bt_status_t put_sampling(bt_hf_t *hf)
{
    static const struct {
        const char *name;
        const char *key;
        bool whole;
    } settings[] = {
        {"temperature", "general.sampling.temp", false},
        {"top_p", "general.sampling.top_p", false},
        {"min_p", "general.sampling.min_p", false},
        {"repetition_penalty", "general.sampling.penalty_repeat", false},
        {"top_k", "general.sampling.top_k", true},
    };
    const bt_folder_json_t *const g = &hf->generation;
    const bt_json_node_t *const sample =
        bt_json_get(g->doc, g->root, "do_sample");

    if ((sample == NULL) || (sample->kind != BT_JSON_TRUE)) {
        return BT_OK;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(settings); i++) {
        const bt_json_node_t *const node =
            bt_json_get(g->doc, g->root, settings[i].name);
        double value = 0.0;
        uint64_t count = 0;

        if ((node == NULL) || (node->kind == BT_JSON_NULL)) {
            continue;
        }
        if (settings[i].whole
                ? (!bt_json_as_u64(node, &count) || (count > INT32_MAX))
                : (!bt_json_as_double(node, &value) ||
                   !isfinite((float)value))) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "generation_config.json: %s is not a number "
                              "that it can be",
                              settings[i].name);
        }
        if (settings[i].whole) {
            bt_gguf_meta_u32(&hf->meta, settings[i].key, (uint32_t)count);
        } else {
            bt_gguf_meta_f32(&hf->meta, settings[i].key, (float)value);
        }
    }
    return BT_OK;
}

/* ---- chat template ---- */

/*
 * Reads chat_template.jinja.
 * @param [out] found_p  whether it exists
 */
static bt_status_t put_template_file(bt_hf_t *hf, bool *found_p)
{
    static const char *const name = "chat_template.jinja";
    bt_folder_file_t file = {.fd = -1};
    char reason[WHY_BYTES] = "";
    bt_status_t status = BT_OK;

    *found_p = bt_folder_has(&hf->folder, name);
    if (!*found_p) {
        return BT_OK;
    }
    status = bt_folder_map(&hf->folder, name, reason, sizeof(reason), &file);
    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (file.bytes > TEMPLATE_BYTES) {
        status = bt_hf_fail(hf, BT_ERR_BAD_FILE,
                            "%s has %zu bytes; at most %u are read", name,
                            file.bytes, TEMPLATE_BYTES);
    } else {
        bt_gguf_meta_str(&hf->meta, KEY_TEMPLATE, file.base, file.bytes);
    }
    bt_folder_unmap(&file);
    return status;
}

/* Reads a list of templates by name: the default one, and that for tools. */
static void put_named(bt_hf_t *hf, const bt_json_doc_t *doc,
                      const bt_json_node_t *list)
{
    static const char *const names[][2] = {
        {"default", KEY_TEMPLATE}, {"tool_use", KEY_TEMPLATE ".tool_use"}};

    for (size_t k = 0; k < BT_ARRAY_LEN(names); k++) {
        const bt_json_node_t *at = bt_json_first(list);

        for (uint32_t i = 0; i < list->n; i++) {
            const bt_json_node_t *const text = bt_json_get(doc, at, "template");

            if ((text != NULL) && (text->kind == BT_JSON_STRING) &&
                bt_json_is(bt_json_get(doc, at, "name"), names[k][0])) {
                bt_gguf_meta_str(&hf->meta, names[k][1], text->text, text->len);
                break;
            }
            at = bt_json_next(doc, at);
        }
    }
}

static bool put_template_of(bt_hf_t *hf, const bt_folder_json_t *json)
{
    const bt_json_node_t *const node =
        bt_json_get(json->doc, json->root, "chat_template");

    if ((node == NULL) || (node->kind == BT_JSON_NULL)) {
        return false;
    }
    if (node->kind == BT_JSON_STRING) {
        bt_gguf_meta_str(&hf->meta, KEY_TEMPLATE, node->text, node->len);
    } else if (node->kind == BT_JSON_ARRAY) {
        put_named(hf, json->doc, node);
    }
    return true;
}

/* Uses the lookup order of transformers: the separate file first. */
static bt_status_t put_template(bt_hf_t *hf)
{
    bt_folder_json_t json = {0};
    char reason[WHY_BYTES] = "";
    bool found = false;
    bt_status_t status = put_template_file(hf, &found);

    if ((status != BT_OK) || found) {
        return status;
    }
    status =
        bt_folder_read_json(&hf->folder, "chat_template.json",
                            BT_HF_CONFIG_BYTES, reason, sizeof(reason), &json);
    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (!put_template_of(hf, &json)) {
        (void)put_template_of(hf, &hf->tok_config);
    }
    bt_folder_json_fini(&json);
    return BT_OK;
}

bt_status_t bt_hf_read_texts(bt_hf_t *hf)
{
    const bt_status_t status = put_sampling(hf);

    return (status == BT_OK) ? put_template(hf) : status;
}
