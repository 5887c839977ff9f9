/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_writer.h  Writes the format of packed_file.h, front to back. */
#ifndef BT_INFERENCE_PACKED_PACKED_WRITER_H
#define BT_INFERENCE_PACKED_PACKED_WRITER_H

#include "common/base/strbuf.h"
#include "inference/packed/packed_store.h"

struct bt_packed_writer {
    int fd;
    int error;           /**< errno of what failed, 0: not by the system */
    uint8_t *chunk;      /**< BT_PACKED_CHUNK_BYTES, what is not written yet */
    size_t fill;         /**< bytes of it */
    uint64_t chunk_at;   /**< its place in the file */
    bt_strbuf_t entries; /**< bt_packed_entry_t */
    bt_strbuf_t sums;    /**< bt_hash128_t */
    bt_strbuf_t names;
    uint32_t n_pieces;
    void (*on_step)(void *ctx);
    void *ctx;
};

/** @param [in] fd  Empty, borrowed. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_packed_writer_init(bt_packed_writer_t *writer,
                                                int fd);
/** Ask the file system for room, where it can tell. @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_packed_writer_reserve(bt_packed_writer_t *writer,
                                                   uint64_t bytes);
void bt_packed_writer_fini(bt_packed_writer_t *writer);

/** The rest: last chunk, table, head. @retval BT_ERR_IO, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_packed_writer_finish(bt_packed_writer_t *writer, const bt_packed_key_t *key,
                        const bt_packed_origin_t *origin);

/** Tests look on, and end the process here. */
static inline void bt_packed_writer_step(const bt_packed_writer_t *writer)
{
    if (writer->on_step != NULL) {
        writer->on_step(writer->ctx);
    }
}

#endif
