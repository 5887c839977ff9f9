/* SPDX-License-Identifier: Apache-2.0 */
/* Maps the shards of a model, and lists their tensors. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/hf/hf_priv.h"

#define INDEX_NAME  "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define INDEX_BYTES (64u << 20)
#define NAME_BYTES  256
#define WHY_BYTES   400

static int compare_text(bt_gguf_str_t a, bt_gguf_str_t b)
{
    const size_t n = (a.len < b.len) ? a.len : b.len;
    const int order = (n == 0) ? 0 : memcmp(a.data, b.data, n);

    return (order != 0) ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_stored(const void *a, const void *b)
{
    return compare_text((*(const bt_st_tensor_t *const *)a)->name,
                        (*(const bt_st_tensor_t *const *)b)->name);
}

static int compare_name(const void *want, const void *stored)
{
    return compare_text(*(const bt_gguf_str_t *)want,
                        (*(const bt_st_tensor_t *const *)stored)->name);
}

const bt_st_tensor_t *bt_hf_stored(const bt_hf_store_t *store, const char *name,
                                   size_t len)
{
    const bt_gguf_str_t want = {.data = name, .len = len};
    const bt_st_tensor_t **const found =
        (store->n_stored > 0)
            ? bsearch(&want, store->stored, store->n_stored,
                      sizeof(const bt_st_tensor_t *), compare_name)
            : NULL;

    return (found != NULL) ? *found : NULL;
}

static bt_status_t map_shard(bt_hf_t *hf, const char *name)
{
    bt_hf_store_t *const store = hf->store;
    bt_hf_shard_t *const shard = &store->shards[store->n_shards];
    char reason[WHY_BYTES] = "";
    bt_status_t status =
        bt_folder_map(&hf->folder, name, reason, sizeof(reason), &shard->file);

    if (status == BT_ERR_NOT_FOUND) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "the shard %s is missing from the folder",
                          bt_printable(name, strlen(name)).text);
    }
    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    store->n_shards++;
    status = bt_safetensors_parse(
        (shard->file.base != NULL) ? shard->file.base : "", shard->file.bytes,
        reason, sizeof(reason), &shard->st);
    return (status == BT_OK)
               ? BT_OK
               : bt_hf_fail(hf, status, "%s: %s",
                            bt_printable(name, strlen(name)).text, reason);
}

static bt_status_t reserve(bt_hf_t *hf, uint32_t n)
{
    if (n > BT_HF_MAX_SHARDS) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE, "%u shards are too many", n);
    }
    hf->store->shards = bt_calloc(n, sizeof(*hf->store->shards));
    hf->store->files = bt_calloc(n, sizeof(*hf->store->files));
    return ((hf->store->shards != NULL) && (hf->store->files != NULL))
               ? BT_OK
               : bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
}

/* ---- which files there are ---- */

static int compare_nodes(const void *a, const void *b)
{
    const bt_json_node_t *const x = *(const bt_json_node_t *const *)a;
    const bt_json_node_t *const y = *(const bt_json_node_t *const *)b;

    return compare_text((bt_gguf_str_t){x->text, x->len},
                        (bt_gguf_str_t){y->text, y->len});
}

/* Collects the files' names, each once, in order; *n_p of the n that the list
 * has. */
static bt_status_t list_files(bt_hf_t *hf, const bt_json_doc_t *doc,
                              const bt_json_node_t *map,
                              const bt_json_node_t **list, uint32_t *n_p)
{
    const bt_json_node_t *key = bt_json_first(map);
    uint32_t n = 0;

    for (uint32_t i = 0; i < map->n; i++) {
        const bt_json_node_t *const file = key + 1;

        if ((file->kind != BT_JSON_STRING) || (file->len >= NAME_BYTES) ||
            (memchr(file->text, '\0', file->len) != NULL)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "%s: the place of %s is not the name of a file",
                              INDEX_NAME,
                              bt_printable(key->text, key->len).text);
        }
        list[i] = file;
        key = bt_json_next(doc, file);
    }
    qsort(list, map->n, sizeof(const bt_json_node_t *), compare_nodes);
    for (uint32_t i = 0; i < map->n; i++) {
        if ((n == 0) || (compare_nodes(&list[n - 1], &list[i]) != 0)) {
            list[n++] = list[i];
        }
    }
    *n_p = n;
    return BT_OK;
}

static bt_status_t map_listed(bt_hf_t *hf, const bt_json_doc_t *doc,
                              const bt_json_node_t *map)
{
    const bt_json_node_t **list = bt_calloc(map->n, sizeof(*list));
    uint32_t n = 0;
    bt_status_t status;

    if (list == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    status = list_files(hf, doc, map, list, &n);
    if (status == BT_OK) {
        status = reserve(hf, n);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        char name[NAME_BYTES];

        memcpy(name, list[i]->text, list[i]->len);
        name[list[i]->len] = '\0';
        status = map_shard(hf, name);
    }
    bt_free(list);
    return status;
}

static bt_status_t map_by_index(bt_hf_t *hf, const bt_folder_json_t *index)
{
    const bt_json_node_t *const map =
        bt_json_get(index->doc, index->root, "weight_map");

    if (!bt_json_is_kind(map, BT_JSON_OBJECT) || (map->n == 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE, "%s has no weight_map",
                          INDEX_NAME);
    }
    return map_listed(hf, index->doc, map);
}

/* Every tensor of the index must be in its shard: a shard of another model
 * would leave some out. */
static bt_status_t check_index(bt_hf_t *hf, const bt_folder_json_t *index)
{
    const bt_json_node_t *const map =
        bt_json_get(index->doc, index->root, "weight_map");
    const bt_json_node_t *key = bt_json_first(map);

    for (uint32_t i = 0; i < map->n; i++) {
        if (bt_hf_stored(hf->store, key->text, key->len) == NULL) {
            return bt_hf_fail(
                hf, BT_ERR_BAD_FILE, "tensor %s of %s is in none of the shards",
                bt_printable(key->text, key->len).text, INDEX_NAME);
        }
        key = bt_json_next(index->doc, key + 1);
    }
    return BT_OK;
}

/* Looks at the other files of the folder, to explain the error. */
static bt_status_t no_weights(bt_hf_t *hf)
{
    bool shards = false;
    bool pickles = false;
    DIR *const dir =
        (hf->folder.entries == NULL) ? opendir(hf->folder.path) : NULL;
    const struct dirent *entry;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const size_t n = strlen(entry->d_name);

        shards =
            shards ||
            ((n > 12) && (strcmp(entry->d_name + n - 12, ".safetensors") == 0));
        pickles = pickles ||
                  ((n > 4) && (strcmp(entry->d_name + n - 4, ".bin") == 0)) ||
                  ((n > 4) && (strcmp(entry->d_name + n - 4, ".pth") == 0));
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (shards) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "the folder has shards of a model but not the list "
                          "of them, " INDEX_NAME);
    }
    if (pickles) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "the weights are pickled (.bin, .pth), which is code "
                          "that would have to be run; save them as "
                          "safetensors");
    }
    return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                      "the folder has no weights: neither " SINGLE_NAME
                      " nor " INDEX_NAME);
}

/* ---- all of them ---- */

static bt_status_t index_stored(bt_hf_t *hf)
{
    bt_hf_store_t *const store = hf->store;
    uint64_t n = 0;

    for (uint32_t i = 0; i < store->n_shards; i++) {
        n += store->shards[i].st.n;
        store->files[i] = (bt_gguf_file_t){.base = store->shards[i].file.base,
                                           .bytes = store->shards[i].file.bytes,
                                           .fd = store->shards[i].file.fd};
    }
    if (n == 0) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE, "the shards have no tensors");
    }
    store->stored = bt_calloc((size_t)n, sizeof(*store->stored));
    if (store->stored == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < store->n_shards; i++) {
        for (uint32_t k = 0; k < store->shards[i].st.n; k++) {
            store->stored[store->n_stored++] = &store->shards[i].st.tensors[k];
        }
    }
    qsort(store->stored, (size_t)n, sizeof(*store->stored), compare_stored);
    for (uint64_t i = 1; i < n; i++) {
        if (compare_stored(&store->stored[i - 1], &store->stored[i]) == 0) {
            const bt_gguf_str_t name = store->stored[i]->name;

            return bt_hf_fail(hf, BT_ERR_BAD_FILE, "tensor %s is in two shards",
                              bt_printable(name.data, name.len).text);
        }
    }
    return BT_OK;
}

bt_status_t bt_hf_map_weights(bt_hf_t *hf)
{
    bt_folder_json_t index = {0};
    char reason[WHY_BYTES] = "";
    bt_status_t status = bt_folder_read_json(
        &hf->folder, INDEX_NAME, INDEX_BYTES, reason, sizeof(reason), &index);

    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (index.root != NULL) {
        status = map_by_index(hf, &index);
    } else if (bt_folder_has(&hf->folder, SINGLE_NAME)) {
        status = reserve(hf, 1);
        if (status == BT_OK) {
            status = map_shard(hf, SINGLE_NAME);
        }
    } else {
        status = no_weights(hf);
    }
    if (status == BT_OK) {
        status = index_stored(hf);
    }
    if ((status == BT_OK) && (index.root != NULL)) {
        status = check_index(hf, &index);
    }
    bt_folder_json_fini(&index);
    return status;
}

void bt_hf_store_free(void *ptr)
{
    bt_hf_store_t *const store = ptr;

    if (store == NULL) {
        return;
    }
    for (uint32_t i = 0; i < store->n_shards; i++) {
        bt_safetensors_fini(&store->shards[i].st);
        bt_folder_unmap(&store->shards[i].file);
    }
    for (uint64_t i = 0; i < store->n_groups; i++) {
        bt_free(store->groups[i]);
    }
    bt_free(store->groups);
    bt_free(store->rope_factors[0]);
    bt_free(store->rope_factors[1]);
    bt_free(store->target_ids);
    bt_free(store->stacks);
    bt_free(store->parts);
    bt_free(store->code_parts);
    bt_free(store->spans);
    bt_free(store->recipes);
    bt_free(store->codes);
    bt_free(store->code_recipes);
    bt_free(store->names);
    bt_free(store->tensors);
    bt_free(store->stored);
    bt_free(store->files);
    bt_free(store->shards);
    bt_strbuf_fini(&store->meta);
    bt_free(store);
}
