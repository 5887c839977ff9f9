/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of draft heads: EAGLE-3, and those that are refused by name.
 * Source: config.json and tensors of SafeAILab's, AngelSlim's and speculators'
 *         published heads, as vLLM (llama_eagle3.py; ids of layers as they
 *         are), SGLang (set_eagle3_layers_to_capture() adds 1 to those of
 *         eagle_config) and llama.cpp's converter (conversion/llama.py) read
 *         them. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/hf/hf_priv.h"

static const bt_json_node_t *root_setting(const bt_hf_t *hf, const char *name)
{
    return bt_hf_not_null(bt_json_get(hf->config.doc, hf->config.root, name));
}

static bool contains(const bt_json_node_t *node, const char *word)
{
    return bt_json_is_kind(node, BT_JSON_STRING) &&
           (memmem(node->text, node->len, word, strlen(word)) != NULL);
}

/* True where the type or one of the architectures contains the word. */
static bool is_named(const bt_hf_t *hf, const char *word)
{
    const bt_json_node_t *const list = root_setting(hf, "architectures");
    const bt_json_node_t *at;

    if (contains(root_setting(hf, "model_type"), word)) {
        return true;
    }
    if (!bt_json_is_kind(list, BT_JSON_ARRAY)) {
        return false;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        if (contains(at, word)) {
            return true;
        }
        at = bt_json_next(hf->config.doc, at);
    }
    return false;
}

bool bt_hf_is_eagle3(const bt_hf_t *hf)
{
    return is_named(hf, "Eagle3") || is_named(hf, "eagle3") ||
           (root_setting(hf, "draft_vocab_size") != NULL);
}

bt_status_t bt_hf_refuse_heads(bt_hf_t *hf)
{
    static const struct {
        const char *word, *name;
    } heads[] = {
        {"medusa", "Medusa"},
        {"Medusa", "Medusa"},
        {"hydra", "Hydra"},
        {"Hydra", "Hydra"},
        {"recurrent_draft", "ReDrafter"},
        {"ReDrafter", "ReDrafter"},
        {"mlp_speculator", "MLP"},
        {"MLPSpeculator", "MLP"},
        {"eagle", "EAGLE"},
        {"Eagle", "EAGLE"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(heads); i++) {
        if (is_named(hf, heads[i].word)) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              "config.json: %s heads are not supported; an "
                              "EAGLE-3 head of the same model is, and "
                              "docs/SPECULATIVE_DECODING.md says what else "
                              "drafts",
                              heads[i].name);
        }
    }
    return BT_OK;
}

/* The setting at the top names layers by what they get, that inside of
 * eagle_config by what they leave. */
void bt_hf_put_eagle3(bt_hf_t *hf)
{
    const bt_json_node_t *const top =
        bt_hf_config(hf, "eagle_aux_hidden_state_layer_ids");
    const bt_json_node_t *const list =
        (top != NULL)
            ? top
            : bt_hf_config(hf, "eagle_config.eagle_aux_hidden_state_layer_ids");
    const uint64_t next = (top != NULL) ? 0 : 1;
    const bt_json_node_t *at;
    char key[BT_HF_KEY_BYTES];

    if ((list == NULL) || ((list->kind == BT_JSON_ARRAY) && (list->n == 0))) {
        return; /* those that all use: head.c */
    }
    if (list->kind != BT_JSON_ARRAY) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: eagle_aux_hidden_state_layer_ids is no list");
        return;
    }
    bt_hf_key_name(hf, "target_layers", key);
    bt_gguf_meta_array(&hf->meta, key, BT_GGUF_I32, list->n);
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t layer = 0;

        if (!bt_json_as_u64(at, &layer) || (layer > INT32_MAX - next)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       "config.json: eagle_aux_hidden_state_layer_ids has an "
                       "entry that is no layer");
            layer = 0;
        }
        bt_gguf_meta_item_i32(&hf->meta, (int32_t)(layer + next));
        at = bt_json_next(hf->config.doc, at);
    }
}

bt_status_t bt_hf_add_target_ids(bt_hf_t *hf, const bt_st_tensor_t *stored)
{
    bt_hf_store_t *const store = hf->store;
    bt_gguf_tensor_t *const t = &store->tensors[store->n_tensors];
    char *const name = store->names[store->n_tensors];
    const uint64_t n = stored->n_elems;

    if ((stored->dtype != BT_ST_I64) || (stored->n_dims != 1) || (n == 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "tensor d2t is no vector of 64-bit numbers");
    }
    store->target_ids = bt_calloc((size_t)n, sizeof(*store->target_ids));
    if (store->target_ids == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    for (uint64_t i = 0; i < n; i++) {
        int64_t offset;

        memcpy(&offset, (const uint8_t *)stored->data + i * sizeof(offset),
               sizeof(offset));
        /* Wraps at most to an id that the loader refuses. */
        store->target_ids[i] = (int64_t)((uint64_t)offset + i);
    }
    memcpy(name, "d2t", sizeof("d2t"));
    *t = (bt_gguf_tensor_t){.name = {.data = name, .len = strlen(name)},
                            .n_dims = 1,
                            .dims = {n, 1, 1, 1},
                            .type = BT_GGUF_TENSOR_I64,
                            .data = store->target_ids,
                            .bytes = (size_t)n * sizeof(*store->target_ids)};
    store->n_tensors++;
    return BT_OK;
}
