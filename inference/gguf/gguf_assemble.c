/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf_assemble.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/gguf/gguf_priv.h"

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
    for (uint32_t i = 0; i < parts->n_files; i++) {
        gguf->bytes += parts->files[i].bytes; /* all are mapped: no overflow */
    }
    gguf->owner = parts->owner;
    gguf->free_owner = parts->free_owner;
    *gguf_p = gguf;
    return BT_OK;
}

/* Mixes in all parts of the model but the bulk of its tensor data. */
static void chain_head(const bt_gguf_t *gguf, bt_hash128_t *hash)
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

    chain_head(gguf, &hash);
    for (uint64_t i = 0; i < gguf->n_spans; i++) {
        bt_gguf_chain_samples(&hash, gguf->spans[i].data, gguf->spans[i].bytes);
    }
    return hash;
}

bt_hash128_t bt_gguf_files_content(const bt_gguf_t *gguf)
{
    bt_hash128_t hash = {0};

    chain_head(gguf, &hash);
    for (uint32_t i = 0; i < gguf->n_files; i++) {
        bt_gguf_chain(&hash, gguf->files[i].base, gguf->files[i].bytes);
    }
    return hash;
}
