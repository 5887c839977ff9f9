/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/hf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "inference/hf/hf_priv.h"

/* Cuts the last path component, in place; false: there is none. */
static bool cut_last(char *path, const char **last_p)
{
    char *const slash = strrchr(path, '/');

    if ((slash == NULL) || (slash == path)) {
        return false;
    }
    *slash = '\0';
    *last_p = slash + 1;
    return true;
}

static void find_blobs(bt_folder_t *folder)
{
    char path[PATH_MAX];
    const char *last = "";
    int n;

    folder->blobs[0] = '\0';
    memcpy(path, folder->path, sizeof(path));
    if (!cut_last(path, &last) || !cut_last(path, &last) ||
        (strcmp(last, "snapshots") != 0)) {
        return;
    }
    n = snprintf(folder->blobs, sizeof(folder->blobs), "%.*s/blobs",
                 PATH_MAX - 8, path);
    if ((n < 0) || ((size_t)n >= sizeof(folder->blobs))) {
        folder->blobs[0] = '\0';
    }
}

bt_status_t bt_folder_init(bt_folder_t *folder, const char *path, char *why,
                           size_t why_bytes)
{
    if (realpath(path, folder->path) == NULL) {
        const int err = errno;

        snprintf(why, why_bytes, "%s: %m", path);
        return ((err == ENOENT) || (err == ENOTDIR)) ? BT_ERR_NOT_FOUND
                                                     : BT_ERR_IO;
    }
    find_blobs(folder);
    folder->entries = NULL;
    folder->n_entries = 0;
    return BT_OK;
}

void bt_folder_init_memory(bt_folder_t *folder,
                           const bt_folder_entry_t *entries, uint32_t n)
{
    folder->path[0] = '\0';
    folder->blobs[0] = '\0';
    folder->entries = entries;
    folder->n_entries = n;
}

static const bt_folder_entry_t *find_entry(const bt_folder_t *folder,
                                           const char *name)
{
    return BT_FIND_NAMED(folder->entries, folder->n_entries, name, name);
}

static bt_status_t join(const bt_folder_t *folder, const char *name,
                        char path[PATH_MAX], char *why, size_t why_bytes)
{
    const size_t n_dir = strlen(folder->path);
    const size_t n = strlen(name);

    if ((name[0] == '\0') || (strchr(name, '/') != NULL) ||
        (strcmp(name, ".") == 0) || (strcmp(name, "..") == 0)) {
        snprintf(why, why_bytes, "\"%s\" is not the name of a file in it",
                 bt_printable(name, strlen(name)).text);
        return BT_ERR_BAD_FILE;
    }
    if (n >= PATH_MAX - n_dir - 1) {
        snprintf(why, why_bytes, "the path of %s is too long",
                 bt_printable(name, n).text);
        return BT_ERR_IO;
    }
    memcpy(path, folder->path, n_dir);
    path[n_dir] = '/';
    memcpy(path + n_dir + 1, name, n + 1);
    return BT_OK;
}

bool bt_folder_has(const bt_folder_t *folder, const char *name)
{
    char path[PATH_MAX];
    char why[128];
    struct stat st;

    if (folder->entries != NULL) {
        return find_entry(folder, name) != NULL;
    }
    return (join(folder, name, path, why, sizeof(why)) == BT_OK) &&
           (lstat(path, &st) == 0);
}

static bool is_in(const char *path, const char *dir)
{
    const size_t n = strlen(dir);

    return (n > 0) && (strncmp(path, dir, n) == 0) &&
           ((path[n] == '/') || (strcmp(dir, "/") == 0));
}

/* Opens the resolved path, without links, so that nothing can change on the
 * way. */
static bt_status_t open_inside(const bt_folder_t *folder, const char *name,
                               char *why, size_t why_bytes, int *fd_p)
{
    char path[PATH_MAX];
    char real[PATH_MAX];
    bt_status_t status = join(folder, name, path, why, why_bytes);
    int fd;

    if (status != BT_OK) {
        return status;
    }
    if (realpath(path, real) == NULL) {
        const int err = errno;

        snprintf(why, why_bytes, "%s: %m", name);
        return (err == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    if (!is_in(real, folder->path) && !is_in(real, folder->blobs)) {
        snprintf(why, why_bytes,
                 "%s is a link to outside of the folder, which is not followed",
                 name);
        return BT_ERR_UNSUPPORTED;
    }
    /* O_NONBLOCK: a FIFO in place of the file must not hang us. */
    fd = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        snprintf(why, why_bytes, "%s: %m", name);
        return BT_ERR_IO;
    }
    *fd_p = fd;
    return BT_OK;
}

static bt_status_t map_entry(const bt_folder_t *folder, const char *name,
                             char *why, size_t why_bytes,
                             bt_folder_file_t *file_p)
{
    const bt_folder_entry_t *const entry = find_entry(folder, name);

    if (entry == NULL) {
        snprintf(why, why_bytes, "%s is not there",
                 bt_printable(name, strlen(name)).text);
        return BT_ERR_NOT_FOUND;
    }
    *file_p = (bt_folder_file_t){
        .base = entry->data, .bytes = entry->bytes, .fd = -1};
    return BT_OK;
}

static bt_status_t map_file(const bt_folder_t *folder, const char *name,
                            char *why, size_t why_bytes,
                            bt_folder_file_t *file_p)
{
    BT_CLEANUP(close) int fd = -1;
    bt_status_t status = open_inside(folder, name, why, why_bytes, &fd);
    void *map = NULL;
    struct stat st;

    if (status != BT_OK) {
        return status;
    }
    if (fstat(fd, &st) != 0) {
        snprintf(why, why_bytes, "%s: %m", name);
        return BT_ERR_IO;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, why_bytes, "%s is not a regular file", name);
        return BT_ERR_BAD_FILE;
    }
    if (st.st_size > 0) {
        map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED) {
            snprintf(why, why_bytes, "%s cannot be mapped: %m", name);
            return BT_ERR_IO;
        }
    }
    *file_p =
        (bt_folder_file_t){.base = map, .bytes = (size_t)st.st_size, .fd = fd};
    fd = -1;
    return BT_OK;
}

bt_status_t bt_folder_map(const bt_folder_t *folder, const char *name,
                          char *why, size_t why_bytes, bt_folder_file_t *file_p)
{
    return (folder->entries != NULL)
               ? map_entry(folder, name, why, why_bytes, file_p)
               : map_file(folder, name, why, why_bytes, file_p);
}

void bt_folder_unmap(bt_folder_file_t *file)
{
    if (file->fd >= 0) {
        if (file->base != NULL) {
            munmap((void *)(uintptr_t)file->base, file->bytes);
        }
        close(file->fd);
    }
    *file = (bt_folder_file_t){.fd = -1};
}

bt_status_t bt_folder_read_json(const bt_folder_t *folder, const char *name,
                                size_t max_bytes, char *why, size_t why_bytes,
                                bt_folder_json_t *json_p)
{
    bt_folder_json_t json = {.file = {.fd = -1}};
    char reason[160] = "";
    bt_status_t status;

    if (!bt_folder_has(folder, name)) {
        *json_p = (bt_folder_json_t){0};
        return BT_OK;
    }
    status = bt_folder_map(folder, name, why, why_bytes, &json.file);
    if (status != BT_OK) {
        return status;
    }
    if (json.file.bytes > max_bytes) {
        snprintf(why, why_bytes, "%s has %zu bytes; at most %zu are read", name,
                 json.file.bytes, max_bytes);
        status = BT_ERR_BAD_FILE;
        goto err_unmap;
    }
    status =
        bt_json_doc_parse((json.file.base != NULL) ? json.file.base : "",
                          json.file.bytes, reason, sizeof(reason), &json.doc);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s: %s", name, reason);
        goto err_unmap;
    }
    json.root = bt_json_doc_root(json.doc);
    if (json.root->kind != BT_JSON_OBJECT) {
        snprintf(why, why_bytes, "%s is not a JSON object", name);
        status = BT_ERR_BAD_FILE;
        goto err_doc;
    }
    *json_p = json;
    return BT_OK;

err_doc:
    bt_json_doc_free(json.doc);
err_unmap:
    bt_folder_unmap(&json.file);
    return status;
}

void bt_folder_json_fini(bt_folder_json_t *json)
{
    if (json->doc != NULL) {
        bt_json_doc_free(json->doc);
        bt_folder_unmap(&json->file);
    }
    *json = (bt_folder_json_t){0};
}

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
    static bt_status_t (*const readers[])(bt_hf_t *) = {
        read_settings,        bt_hf_read_config, bt_quant_read,
        bt_hf_read_tokenizer, bt_hf_read_texts,  bt_hf_map_weights,
        bt_hf_name_tensors};
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(readers)); i++) {
        /* A head has the tokens of its target. */
        const bool is_of_texts = (readers[i] == bt_hf_read_tokenizer) ||
                                 (readers[i] == bt_hf_read_texts);

        if (!is_of_texts || (hf->family != &bt_hf_family_eagle3)) {
            status = readers[i](hf);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    bt_gguf_meta_end(&hf->meta);
    status = bt_strbuf_status(&hf->store->meta);
    if (status != BT_OK) {
        bt_hf_fail(hf, status, "the tokenizer's files: %s",
                   bt_status_str(status));
    }
    return status;
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

bt_status_t bt_modelfile_open(const char *path, char *why, size_t why_bytes,
                              bt_gguf_t **gguf_p)
{
    struct stat st;
    bt_status_t status;

    if ((stat(path, &st) == 0) && S_ISDIR(st.st_mode)) {
        return bt_hf_open(path, why, why_bytes, gguf_p);
    }
    status = bt_gguf_open(path, why, why_bytes, gguf_p);
    if (status == BT_ERR_NOT_FOUND) {
        const size_t n = strlen(why);

        snprintf(why + n, why_bytes - n, "; ");
        bt_model_hint(path, why + strlen(why), why_bytes - strlen(why));
    }
    return status;
}
