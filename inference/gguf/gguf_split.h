/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf_split.h
 *
 * Assembles a model of another format so that it is read like a GGUF file:
 *
 *     metadata written by gguf_meta.h      parsed and checked as a file's
 *     tensors: data in a mapped file, or a recipe that makes it
 *     files that are mapped                for identity, content and stamp
 *
 * Threads: see gguf.h.
 */
#ifndef BT_INFERENCE_GGUF_GGUF_SPLIT_H
#define BT_INFERENCE_GGUF_GGUF_SPLIT_H

#include "inference/gguf/gguf.h"

typedef struct bt_gguf_file {
    const void *base;
    size_t bytes;
    int fd; /**< file descriptor of the map; -1: memory */
} bt_gguf_file_t;

/** Range of bytes that tensor data comes from, to be sampled for the model's
 *  identity. */
typedef struct bt_gguf_span {
    const void *data;
    size_t bytes;
} bt_gguf_span_t;

typedef struct bt_gguf_parts {
    const void *meta; /**< a GGUF file without tensors */
    size_t meta_bytes;
    const bt_gguf_tensor_t *tensors; /**< copied; data that they point to is
                                          not */
    uint64_t n_tensors;
    const bt_gguf_file_t *files; /**< at least one */
    uint32_t n_files;
    const bt_gguf_span_t *spans;
    uint64_t n_spans;
    void *owner; /**< owner of all pointers above */
    void (*free_owner)(void *owner);
} bt_gguf_parts_t;

/**
 * Assembles a model. All pointers of @a parts stay valid until the owner is
 * freed, which bt_gguf_close() does. On failure it stays the caller's.
 *
 * @retval BT_ERR_BAD_FILE    The metadata, or two tensors of one name.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_gguf_assemble(const bt_gguf_parts_t *parts,
                                           char *why, size_t why_bytes,
                                           bt_gguf_t **gguf_p);

#endif
