/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/hf.h"

#include <stdio.h>

#include "common/base/alloc.h"
#include "inference/hf/hf_priv.h"

#define META_BYTES (1u << 30)
#define WHY_BYTES  400

static bt_status_t read_settings(bt_hf_t *hf)
{
    const struct {
        const char *name;
        bt_folder_json_t *json;
    } files[] = {
        {"config.json", &hf->config},
        {"generation_config.json", &hf->generation},
        {"tokenizer_config.json", &hf->tok_config},
    };
    char reason[WHY_BYTES] = "";

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const bt_status_t status =
            bt_folder_read_json(&hf->folder, files[i].name, BT_HF_CONFIG_BYTES,
                                reason, sizeof(reason), files[i].json);

        if (status != BT_OK) {
            return bt_hf_fail(hf, status, "%s", reason);
        }
    }
    if (hf->config.root == NULL) {
        return bt_hf_fail(hf, BT_ERR_NOT_FOUND,
                          "the folder has no config.json, so it is not a "
                          "model's");
    }
    return BT_OK;
}

static bt_status_t read_all(bt_hf_t *hf)
{
    bt_status_t status = read_settings(hf);

    if (status == BT_OK) {
        status = bt_hf_read_config(hf);
    }
    if (status == BT_OK) {
        status = bt_quant_read(hf);
    }
    if (status == BT_OK) {
        status = bt_hf_read_tokenizer(hf);
    }
    if (status == BT_OK) {
        status = bt_hf_read_texts(hf);
    }
    if (status == BT_OK) {
        status = bt_hf_map_weights(hf);
    }
    if (status == BT_OK) {
        status = bt_hf_name_tensors(hf);
    }
    if (status != BT_OK) {
        return status;
    }
    bt_gguf_meta_end(&hf->meta);
    status = bt_strbuf_status(&hf->store->meta);
    return (status == BT_OK)
               ? BT_OK
               : bt_hf_fail(hf, status, "the tokenizer's files: %s",
                            bt_status_str(status));
}

static bt_status_t assemble(const bt_hf_t *hf, bt_gguf_t **gguf_p)
{
    bt_hf_store_t *const store = hf->store;
    const bt_gguf_parts_t parts = {
        .meta = store->meta.data,
        .meta_bytes = store->meta.len,
        .tensors = store->tensors,
        .n_tensors = store->n_tensors,
        .files = store->files,
        .n_files = store->n_shards,
        .spans = store->spans,
        .n_spans = store->n_spans,
        .owner = store,
        .free_owner = bt_hf_store_free,
    };

    return bt_gguf_assemble(&parts, hf->why, hf->why_bytes, gguf_p);
}

static bt_status_t open_folder(bt_hf_t *hf, bt_gguf_t **gguf_p)
{
    bt_status_t status;

    hf->store = bt_calloc(1, sizeof(*hf->store));
    if (hf->store == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    bt_strbuf_init(&hf->store->meta, META_BYTES);
    bt_gguf_meta_init(&hf->meta, &hf->store->meta);
    status = read_all(hf);
    if (status == BT_OK) {
        status = assemble(hf, gguf_p);
    }
    if (status != BT_OK) {
        bt_hf_store_free(hf->store);
    }
    bt_folder_json_fini(&hf->tok_config);
    bt_folder_json_fini(&hf->generation);
    bt_folder_json_fini(&hf->config);
    return status;
}

/* Opens a folder by its path, or by its files: the one that is not NULL. */
static bt_status_t open_any(const char *path, const bt_folder_entry_t *entries,
                            uint32_t n, char *why, size_t why_bytes,
                            bt_gguf_t **gguf_p)
{
    bt_hf_t *const hf = bt_calloc(1, sizeof(*hf));
    bt_status_t status = BT_OK;

    if (hf == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    hf->why = why;
    hf->why_bytes = why_bytes;
    if (path != NULL) {
        status = bt_folder_init(&hf->folder, path, why, why_bytes);
    } else {
        bt_folder_init_memory(&hf->folder, entries, n);
    }
    if (status == BT_OK) {
        status = open_folder(hf, gguf_p);
    }
    bt_free(hf);
    return status;
}

bt_status_t bt_hf_open(const char *path, char *why, size_t why_bytes,
                       bt_gguf_t **gguf_p)
{
    return open_any(path, NULL, 0, why, why_bytes, gguf_p);
}

bt_status_t bt_hf_open_memory(const bt_folder_entry_t *entries, uint32_t n,
                              char *why, size_t why_bytes, bt_gguf_t **gguf_p)
{
    return open_any(NULL, entries, n, why, why_bytes, gguf_p);
}
