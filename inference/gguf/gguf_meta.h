/* SPDX-License-Identifier: Apache-2.0 */
/** @file gguf_meta.h
 *
 * Writes the metadata of a GGUF v3 file: its header, with or without tensors.
 *
 *     bt_gguf_meta_init(&meta, &buf);
 *     bt_gguf_meta_str(&meta, "general.architecture", "llama", 5);
 *     bt_gguf_meta_array(&meta, "tokenizer.ggml.tokens", BT_GGUF_STRING, 2);
 *     bt_gguf_meta_item_str(&meta, "a", 1);
 *     bt_gguf_meta_item_str(&meta, "b", 1);
 *     bt_gguf_meta_end(&meta);
 *
 * Errors are kept in the buffer (text.h). Duplicate keys are detected by the
 * parser, as in any file.
 *
 * Threads: a writer belongs to one thread.
 * Source: the GGUF specification (ggml project, docs/gguf.md).
 */
#ifndef BT_INFERENCE_GGUF_GGUF_META_H
#define BT_INFERENCE_GGUF_GGUF_META_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "inference/gguf/gguf.h"

typedef struct bt_gguf_meta {
    bt_strbuf_t *out; /**< borrowed */
    uint64_t n_keys;
    uint64_t n_tensors;
} bt_gguf_meta_t;

void bt_gguf_meta_init(bt_gguf_meta_t *meta, bt_strbuf_t *out);
/** Completes the buffer to a whole file, unless it has an error. */
void bt_gguf_meta_end(bt_gguf_meta_t *meta);

void bt_gguf_meta_u32(bt_gguf_meta_t *meta, const char *key, uint32_t value);
void bt_gguf_meta_f32(bt_gguf_meta_t *meta, const char *key, float value);
void bt_gguf_meta_bool(bt_gguf_meta_t *meta, const char *key, bool value);
void bt_gguf_meta_str(bt_gguf_meta_t *meta, const char *key, const char *text,
                      size_t bytes);

/** Writes a pair of another file, as it is. */
void bt_gguf_meta_pair(bt_gguf_meta_t *meta, const bt_gguf_pair_t *pair);

/** Begins an array; exactly @a n items of the type, BT_GGUF_U8 …, must follow.
 */
void bt_gguf_meta_array(bt_gguf_meta_t *meta, const char *key, uint32_t type,
                        uint64_t n);
void bt_gguf_meta_item_u8(bt_gguf_meta_t *meta, uint8_t value);
void bt_gguf_meta_item_i32(bt_gguf_meta_t *meta, int32_t value);
void bt_gguf_meta_item_f32(bt_gguf_meta_t *meta, float value);
void bt_gguf_meta_item_f64(bt_gguf_meta_t *meta, double value);
void bt_gguf_meta_item_bool(bt_gguf_meta_t *meta, bool value);
void bt_gguf_meta_item_str(bt_gguf_meta_t *meta, const char *text,
                           size_t bytes);

/** Appends a tensor of the file, after all keys; its data is @a at bytes behind
 *  the first tensor's.
 *  @param dims  (n_dims), dims[0] contiguous */
void bt_gguf_meta_tensor(bt_gguf_meta_t *meta, const char *name,
                         uint32_t n_dims, const uint64_t *dims, uint32_t type,
                         uint64_t at);

/*
 * Assembles a model of another format so that it is read like a GGUF file:
 *
 *     metadata written as above            parsed and checked as a file's
 *     tensors: data in a mapped file, or a recipe that makes it
 *     files that are mapped                for identity, content and stamp
 *
 * Threads: see gguf.h.
 */

typedef struct bt_gguf_file {
    const void *base;
    size_t bytes;
    int fd; /**< file descriptor of the map; -1: memory */
} bt_gguf_file_t;

typedef struct bt_gguf_parts {
    const void *meta; /**< a GGUF file without tensors */
    size_t meta_bytes;
    const bt_gguf_tensor_t *tensors; /**< copied; data that they point to is
                                          not */
    uint64_t n_tensors;
    const bt_gguf_file_t *files; /**< at least one; none where made_of is set */
    uint32_t n_files;
    const bt_gguf_span_t *spans; /**< ranges of bytes that tensor data comes
                                      from, sampled for the identity */
    uint64_t n_spans;
    /** Model that the tensors are made of, in place of files: its identity,
     *  content and stamp are part of this one's. Borrowed until the close.
     *  NULL: none. */
    const bt_gguf_t *made_of;
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
