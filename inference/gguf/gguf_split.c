/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf_meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/gguf/gguf_priv.h"

/* Models in several files, as ggml's gguf-split writes them: each is a GGUF
 * file of its own, numbered in its name and by three keys; the first has the
 * metadata, each its tensors.
 * Source: llama.cpp, "tools/gguf-split" and llama_split_path(). */

#define MAX_SUFFIX 64 /* most bytes of a name's suffix */

/* Reads a numeric key, or returns its default where it is missing. */
static bt_status_t read_number(const bt_gguf_t *gguf, const char *key,
                               uint64_t otherwise, char *why, size_t why_bytes,
                               uint64_t *value_p)
{
    uint64_t value = otherwise;

    if (bt_gguf_has(gguf, key) &&
        (bt_gguf_get_u64(gguf, key, &value) != BT_OK)) {
        snprintf(why, why_bytes, "key %s is not a number", key);
        return BT_ERR_BAD_FILE;
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_gguf_split_read(const bt_gguf_t *gguf, char *why,
                               size_t why_bytes, bt_gguf_split_t *split_p)
{
    uint64_t no;
    uint64_t count;
    uint64_t n_tensors;
    bt_status_t status;

    status = read_number(gguf, "split.no", 0, why, why_bytes, &no);
    if (status == BT_OK) {
        status = read_number(gguf, "split.count", 1, why, why_bytes, &count);
    }
    if (status == BT_OK) {
        status =
            read_number(gguf, "split.tensors.count", bt_gguf_n_tensors(gguf),
                        why, why_bytes, &n_tensors);
    }
    if (status != BT_OK) {
        return status;
    }
    if ((count == 0) || (count > BT_GGUF_MAX_PARTS) || (no >= count)) {
        snprintf(why, why_bytes,
                 "this is part %" PRIu64 " of %" PRIu64
                 " (keys split.no, from 0, and "
                 "split.count); a model has 1 to %u",
                 no, count, BT_GGUF_MAX_PARTS);
        return BT_ERR_BAD_FILE;
    }
    *split_p = (bt_gguf_split_t){
        .no = (uint32_t)no, .count = (uint32_t)count, .n_tensors = n_tensors};
    return BT_OK;
}

/* Formats the suffix of the name of part i (from 0) of n. */
static int suffix_of(uint32_t i, uint32_t n, char suffix[MAX_SUFFIX])
{
    return snprintf(suffix, MAX_SUFFIX, "-%05u-of-%05u.gguf", i + 1, n);
}

bt_status_t bt_gguf_split_stem(const char *path, const bt_gguf_split_t *split,
                               char *why, size_t why_bytes, size_t *stem_p)
{
    char suffix[MAX_SUFFIX];
    const size_t len = strlen(path);
    const size_t n = (size_t)suffix_of(split->no, split->count, suffix);

    if ((len < n) || (strcmp(path + len - n, suffix) != 0)) {
        snprintf(why, why_bytes,
                 "this is part %u of a model in %u files; so that the others "
                 "are found, its name must end in %s",
                 split->no + 1, split->count, suffix);
        return BT_ERR_BAD_FILE;
    }
    *stem_p = len - n;
    return BT_OK;
}

bt_status_t bt_gguf_split_path(const char *path, size_t stem, uint32_t i,
                               uint32_t n, char *out, size_t out_bytes)
{
    char suffix[MAX_SUFFIX];
    int len;

    (void)suffix_of(i, n, suffix);
    len = snprintf(out, out_bytes, "%.*s%s", (int)stem, path, suffix);
    return ((len < 0) || ((size_t)len >= out_bytes)) ? BT_ERR_INVALID_PARAM
                                                     : BT_OK;
}

/* Checks that a part has its number, and belongs to the model of part 0. */
static bt_status_t check_part(bt_gguf_t *const *parts, uint32_t i, uint32_t n,
                              char *why, size_t why_bytes)
{
    char reason[256] = "";
    bt_gguf_split_t first = {0};
    bt_gguf_split_t part = {0};
    bt_status_t status =
        bt_gguf_split_read(parts[0], reason, sizeof(reason), &first);

    if (status == BT_OK) {
        status = bt_gguf_split_read(parts[i], reason, sizeof(reason), &part);
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "part %u of %u: %s", i + 1, n, reason);
        return status;
    }
    if ((part.no != i) || (part.count != n)) {
        snprintf(why, why_bytes, "part %u of %u says that it is part %u of %u",
                 i + 1, n, part.no + 1, part.count);
        return BT_ERR_BAD_FILE;
    }
    if (part.n_tensors != first.n_tensors) {
        snprintf(why, why_bytes,
                 "part %u of %u is of another model: of one with %" PRIu64
                 " tensors, "
                 "not %" PRIu64,
                 i + 1, n, part.n_tensors, first.n_tensors);
        return BT_ERR_BAD_FILE;
    }
    if ((n > 1) && !bt_gguf_has(parts[i], "split.tensors.count")) {
        snprintf(why, why_bytes, "part %u of %u has no key split.tensors.count",
                 i + 1, n);
        return BT_ERR_BAD_FILE;
    }
    return BT_OK;
}

/* @return BT_OK if the parts have as many tensors as the first one states */
static bt_status_t count_tensors(bt_gguf_t *const *parts, uint32_t n, char *why,
                                 size_t why_bytes, uint64_t *total_p)
{
    uint64_t total = 0;
    bt_gguf_split_t split = {0};
    bt_status_t status = bt_gguf_split_read(parts[0], why, why_bytes, &split);

    for (uint32_t i = 0; i < n; i++) {
        total += parts[i]->n_tensors; /* each bounded by its file's size */
    }
    if (status != BT_OK) {
        return status;
    }
    if (total != split.n_tensors) {
        snprintf(why, why_bytes,
                 "there are %" PRIu64 " tensors in %u files, but key "
                 "split.tensors.count is %" PRIu64,
                 total, n, split.n_tensors);
        return BT_ERR_BAD_FILE;
    }
    *total_p = total;
    return BT_OK;
}

/* Collects all tensors, @a total of them, in the first part's list. */
static bt_status_t merge_tensors(bt_gguf_t *const *parts, uint32_t n,
                                 uint64_t total, char *why, size_t why_bytes)
{
    bt_gguf_t *const first = parts[0];
    bt_gguf_tensor_t *tensors;
    const bt_gguf_tensor_t **by_name;

    if (total == 0) {
        return BT_OK;
    }
    tensors = bt_calloc((size_t)total, sizeof(*tensors));
    by_name = bt_calloc((size_t)total, sizeof(*by_name));
    if ((tensors == NULL) || (by_name == NULL)) {
        bt_free(tensors);
        bt_free(by_name);
        snprintf(why, why_bytes, "out of memory for %" PRIu64 " tensors",
                 total);
        return BT_ERR_NO_MEMORY;
    }
    total = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t k = 0; k < parts[i]->n_tensors; k++) {
            tensors[total] = parts[i]->tensors[k];
            by_name[total] = &tensors[total];
            total++;
        }
    }
    bt_free(first->tensors);
    bt_free(first->by_name);
    first->tensors = tensors;
    first->by_name = by_name;
    first->n_tensors = total;
    return bt_gguf_index_names(first, why, why_bytes);
}

bt_status_t bt_gguf_split_join(bt_gguf_t **parts, uint32_t n, char *why,
                               size_t why_bytes)
{
    bt_gguf_t **more = NULL;
    uint64_t total = 0;
    bt_status_t status;

    for (uint32_t i = 0; i < n; i++) {
        status = check_part(parts, i, n, why, why_bytes);
        if (status != BT_OK) {
            return status;
        }
    }
    status = count_tensors(parts, n, why, why_bytes, &total);
    if ((status != BT_OK) || (n == 1)) {
        return status;
    }
    more = bt_calloc(n - 1, sizeof(*more));
    if (more == NULL) {
        snprintf(why, why_bytes, "out of memory for %u parts", n);
        return BT_ERR_NO_MEMORY;
    }
    status = merge_tensors(parts, n, total, why, why_bytes);
    if (status != BT_OK) {
        bt_free(more);
        return status;
    }
    for (uint32_t i = 1; i < n; i++) {
        more[i - 1] = parts[i];
        parts[i] = NULL;
    }
    parts[0]->more = more;
    parts[0]->n_more = n - 1;
    return BT_OK;
}

static bt_status_t take_tensors(bt_gguf_t *gguf, const bt_gguf_parts_t *parts,
                                char *why, size_t why_bytes)
{
    const size_t n = (size_t)parts->n_tensors;

    if (n == 0) {
        return BT_OK;
    }
    gguf->tensors = bt_calloc(n, sizeof(*gguf->tensors));
    gguf->by_name = bt_calloc(n, sizeof(*gguf->by_name));
    if ((gguf->tensors == NULL) || (gguf->by_name == NULL)) {
        snprintf(why, why_bytes, "out of memory for %zu tensors", n);
        return BT_ERR_NO_MEMORY;
    }
    memcpy(gguf->tensors, parts->tensors, n * sizeof(*gguf->tensors));
    gguf->n_tensors = n;
    for (size_t i = 0; i < n; i++) {
        gguf->by_name[i] = &gguf->tensors[i];
    }
    return bt_gguf_index_names(gguf, why, why_bytes);
}

bt_status_t bt_gguf_assemble(const bt_gguf_parts_t *parts, char *why,
                             size_t why_bytes, bt_gguf_t **gguf_p)
{
    bt_gguf_t *gguf = NULL;
    bt_status_t status = bt_gguf_open_memory(parts->meta, parts->meta_bytes,
                                             why, why_bytes, &gguf);

    if (status != BT_OK) {
        return status;
    }
    status = take_tensors(gguf, parts, why, why_bytes);
    if (status != BT_OK) {
        bt_gguf_close(gguf);
        return status;
    }
    gguf->data_start = parts->meta_bytes;
    gguf->files = parts->files;
    gguf->n_files = parts->n_files;
    gguf->spans = parts->spans;
    gguf->n_spans = parts->n_spans;
    gguf->made_of = parts->made_of;
    for (uint32_t i = 0; i < parts->n_files; i++) {
        gguf->bytes += parts->files[i].bytes; /* all are mapped: no overflow */
    }
    gguf->owner = parts->owner;
    gguf->free_owner = parts->free_owner;
    *gguf_p = gguf;
    return BT_OK;
}

void bt_gguf_chain_head(const bt_gguf_t *gguf, bt_hash128_t *hash)
{
    bt_gguf_chain(hash, gguf->base, gguf->data_start);
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        const bt_gguf_tensor_t *const t = &gguf->tensors[i];

        bt_gguf_chain(hash, t->name.data, t->name.len);
        bt_gguf_chain(hash, t->dims, sizeof(t->dims));
        bt_gguf_chain(hash, &t->type, sizeof(t->type));
    }
}

bt_hash128_t bt_gguf_files_identity(const bt_gguf_t *gguf)
{
    const uint64_t bytes = gguf->bytes;
    bt_hash128_t hash = bt_hash128(&bytes, sizeof(bytes), 0);

    bt_gguf_chain_head(gguf, &hash);
    for (uint64_t i = 0; i < gguf->n_spans; i++) {
        bt_gguf_chain_samples(&hash, gguf->spans[i].data, gguf->spans[i].bytes);
    }
    return hash;
}

bt_hash128_t bt_gguf_files_content(const bt_gguf_t *gguf)
{
    bt_hash128_t hash = {0};

    bt_gguf_chain_head(gguf, &hash);
    for (uint32_t i = 0; i < gguf->n_files; i++) {
        bt_gguf_chain(&hash, gguf->files[i].base, gguf->files[i].bytes);
    }
    return hash;
}
