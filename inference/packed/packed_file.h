/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_file.h
 *
 * Format of a file of packed weights in memory, and its checks (no file is
 * opened here).
 *
 *     0          bt_packed_head_t, zeros up to BT_PACKED_DATA_AT
 *     4096       the pieces' bytes, each on 64 bytes, zeros between them
 *     table_at   bt_packed_entry_t[n_pieces] | sums[n_chunks] | names
 *     end of the file
 *
 * Numbers are in the machine's byte order (a file of another byte order has
 * another magic). A *chunk* is BT_PACKED_CHUNK_BYTES of the file from its
 * start, less any part that is not data; its sum is XXH3-128. The head has the
 * sum of itself and that of the table, the table the chunks': every byte is
 * under one sum.
 *
 * bt_packed_check() checks every offset and count, and the sums of head and
 * table, before any other access; bt_packed_verify() checks the sums of all
 * chunks. Sums detect accidents: a process that may write the file can make
 * matching ones, so packed_store.h checks the file's owner. Altered weights
 * that pass are numbers and nothing more: no offset comes from the data.
 *
 * Threads: immutable after bt_packed_check(); any number of readers.
 * Source: this page is the format.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_FILE_H
#define BT_INFERENCE_PACKED_PACKED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

#define BT_PACKED_MAGIC         UINT64_C(0x3154475750544142) /* "BATPWGT1" */
#define BT_PACKED_FORMAT        1u
#define BT_PACKED_DATA_AT       4096u
#define BT_PACKED_ALIGN         64u
#define BT_PACKED_CHUNK_BYTES   ((size_t)4 << 20)
#define BT_PACKED_PROFILE_BYTES 32u
#define BT_PACKED_MAX_NAME      255u

/** Key of a file's content: files with equal keys are interchangeable. */
typedef struct bt_packed_key {
    char profile[BT_PACKED_PROFILE_BYTES]; /**< profile of the packing back
                                                end, zero padded */
    uint32_t pack_version;                 /**< pack_version of
                                                bt_kernels_caps_t */
    uint32_t unused;                       /**< 0 */
    uint64_t model_bytes;                  /**< size of the model file */
    bt_hash128_t model_id;                 /**< bt_gguf_identity() */
} bt_packed_key_t;

/** Model file that a packed file was made of. */
typedef struct bt_packed_origin {
    bt_hash128_t content; /**< XXH3-128 of the whole file */
    uint64_t inode;       /**< inode at that time, as the times below; all 0:
                               not to be relied on */
    int64_t mtime_ns;
    int64_t ctime_ns;
} bt_packed_origin_t;

typedef struct bt_packed_head {
    uint64_t magic;
    uint32_t format;
    uint32_t n_pieces;
    bt_packed_key_t key;
    bt_packed_origin_t origin;
    uint64_t table_at; /**< a multiple of BT_PACKED_ALIGN */
    uint64_t table_bytes;
    bt_hash128_t table_sum;
    bt_hash128_t head_sum; /**< sum of [0, BT_PACKED_DATA_AT), with head_sum
                                as zeros */
} bt_packed_head_t;

typedef struct bt_packed_entry {
    uint64_t at; /**< offset in the file */
    uint64_t bytes;
    uint32_t type; /**< bt_ktype_t */
    uint32_t n_out;
    uint32_t n_in;
    uint32_t name_at; /**< offset in the names */
    uint32_t name_len;
    uint32_t unused; /**< 0 */
} bt_packed_entry_t;

/** Checked file. All pointers point into it. */
typedef struct bt_packed_file {
    const uint8_t *base;
    size_t bytes;
    const bt_packed_head_t *head;
    const bt_packed_entry_t *entries; /**< head->n_pieces */
    const bt_hash128_t *sums;         /**< n_chunks */
    uint64_t n_chunks;
    const char *names;
    size_t names_bytes;
} bt_packed_file_t;

/**
 * Checks the structure of a file of any origin.
 *
 * @param [in]  base    8-byte aligned; borrowed for as long as *file_p is used.
 * @param [out] why     On failure the problem, without the file's name.
 * @retval BT_ERR_BAD_FILE  Too short or long, another format, an offset out of
 *         range, or head or table do not match their sums.
 */
BT_MUST_CHECK bt_status_t bt_packed_check(const void *base, size_t bytes,
                                          char *why, size_t why_bytes,
                                          bt_packed_file_t *file_p);

/** Checks the sums of all chunks, on @a n_threads threads (the caller's
 *  included); reads the whole file once.
 *  @retval BT_ERR_CORRUPT  At least one chunk was altered. */
BT_MUST_CHECK bt_status_t bt_packed_verify(const bt_packed_file_t *file,
                                           uint32_t n_threads);

/** Finds the piece of this name, type and shape.
 *  @return its bytes, *bytes_p of them on 64 bytes, or NULL */
const void *bt_packed_find(const bt_packed_file_t *file, const char *name,
                           uint32_t type, uint32_t n_out, uint32_t n_in,
                           size_t *bytes_p);

bool bt_packed_key_equal(const bt_packed_key_t *a, const bt_packed_key_t *b);

/** Computes the head's own sum for the writer, as bt_packed_check() expects it.
 *  @a page: BT_PACKED_DATA_AT bytes that begin with the head. */
bt_hash128_t bt_packed_head_sum(const void *page);

#endif
