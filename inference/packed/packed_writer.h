/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_writer.h
 *
 * Writes the format of packed_file.h, front to back.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_WRITER_H
#define BT_INFERENCE_PACKED_PACKED_WRITER_H

#include <stdint.h>

#include "common/base/text.h"
#include "inference/packed/packed_store.h"

struct bt_packed_writer {
    int fd;
    int error;           /**< errno of a failure, 0: not from the system */
    uint8_t *chunk;      /**< BT_PACKED_CHUNK_BYTES, data not written yet */
    size_t fill;         /**< bytes used in chunk */
    uint64_t chunk_at;   /**< offset of chunk in the file */
    bt_strbuf_t entries; /**< bt_packed_entry_t */
    bt_strbuf_t sums;    /**< bt_hash128_t */
    bt_strbuf_t names;
    uint32_t n_pieces;
    void (*on_step)(void *ctx);
    void *ctx;
};

/** Initializes a writer.
 *  @param [in] fd  Empty, borrowed.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_packed_writer_init(bt_packed_writer_t *writer,
                                                int fd);
/** Reserves space in the file system, where it supports that.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_packed_writer_reserve(bt_packed_writer_t *writer,
                                                   uint64_t bytes);
void bt_packed_writer_fini(bt_packed_writer_t *writer);

/** Writes the rest: last chunk, table, head.
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_packed_writer_finish(bt_packed_writer_t *writer, const bt_packed_key_t *key,
                        const bt_packed_origin_t *origin);

/** Calls the hook of tests, which may end the process here. */
static inline void bt_packed_writer_step(const bt_packed_writer_t *writer)
{
    if (writer->on_step != NULL) {
        writer->on_step(writer->ctx);
    }
}

/*
 * Folder of packed weights: creates it, and removes files that are no longer
 * used.
 */

#define BT_PACKED_UNUSED_S (INT64_C(30) * 86400)

/** Creates @a dir and its missing parents, for this user alone.
 *  @return 0 or an errno */
int bt_packed_dir_make(const char *dir);

/** Removes files of this format that no process has opened for
 *  BT_PACKED_UNUSED_S before @a now_s (seconds since 1970). @a keep: a name
 *  that stays. */
void bt_packed_dir_clear(const char *dir, const char *keep, int64_t now_s);

#endif
