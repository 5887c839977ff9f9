/* SPDX-License-Identifier: Apache-2.0 */
/* The file of an object: a header, and chunks that are sealed or summed.
 *
 *     "BTSTORE" version │ sealed │ zeros      16 bytes
 *     length u32 │ flags u32 │ nonce │ tag │ data       chunk 0: description
 *     length u32 │ flags u32 │ nonce │ tag │ data …     65536 bytes, but the
 *                                                       last
 *
 * Numbers are little endian.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "router/store/store_priv.h"

#define MAGIC       "BTSTORE\1"
#define MAGIC_BYTES 8
#define ID_RANDOM   16 /* bytes, two digits each */
#define FLAG_LAST   1u

static const char *const prefixes[BT_STORE_N_KINDS] = {
    [BT_STORE_FILE] = "file-",
    [BT_STORE_BATCH] = "batch_",
    [BT_STORE_RESPONSE] = "resp_",
};

/* ---- numbers ---- */

static void put_number(uint8_t *at, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint64_t get_number(const uint8_t *at, size_t n)
{
    uint64_t value = 0;

    for (size_t i = 0; i < n; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/* ---- ids ---- */

const char *bt_store_prefix(bt_store_kind_t kind)
{
    return prefixes[kind];
}

bool bt_store_id_kind(const char *id, bt_store_kind_t *kind_p)
{
    for (int kind = 0; kind < BT_STORE_N_KINDS; kind++) {
        const size_t n = strlen(prefixes[kind]);

        if ((strncmp(id, prefixes[kind], n) == 0) &&
            (strlen(id + n) == 2 * (size_t)ID_RANDOM) &&
            (strspn(id + n, "0123456789abcdef") == 2 * (size_t)ID_RANDOM)) {
            *kind_p = (bt_store_kind_t)kind;
            return true;
        }
    }
    return false;
}

void bt_store_id_make(bt_store_kind_t kind, char id[BT_STORE_ID_BYTES])
{
    const size_t n = strlen(prefixes[kind]);

    memcpy(id, prefixes[kind], n);
    bt_key_random_hex(ID_RANDOM, id + n);
}

/* ---- chunks ---- */

void bt_store_header_make(const bt_store_folder_t *folder,
                          uint8_t header[BT_STORE_HEADER_BYTES])
{
    memset(header, 0, BT_STORE_HEADER_BYTES);
    memcpy(header, MAGIC, MAGIC_BYTES);
    header[MAGIC_BYTES] = folder->has_key ? 1 : 0;
}

/* What a chunk is bound to: id, index, length and flags. */
typedef struct bound {
    uint8_t data[BT_STORE_ID_BYTES + 16];
} bound_t;

static bound_t bound_of(const char *id, uint64_t index, const uint8_t *frame)
{
    bound_t bound = {{0}};

    memcpy(bound.data, id, strnlen(id, BT_STORE_ID_BYTES - 1));
    put_number(bound.data + BT_STORE_ID_BYTES, index, 8);
    memcpy(bound.data + BT_STORE_ID_BYTES + 8, frame, 8);
    return bound;
}

static void sum_of(const bound_t *bound, const void *data, size_t bytes,
                   uint8_t tag[BT_SEAL_TAG_BYTES])
{
    const uint64_t seed = bt_hash64(bound->data, sizeof(bound->data), 0);
    const bt_hash128_t sum = bt_hash128(data, bytes, seed);

    put_number(tag, sum.lo, 8);
    put_number(tag + 8, sum.hi, 8);
}

bt_status_t bt_store_chunk_write(const bt_store_folder_t *folder,
                                 const char *id, uint64_t index,
                                 bt_store_chunk_t *chunk, int fd)
{
    uint8_t *nonce = chunk->frame + 8;
    uint8_t *tag = nonce + BT_SEAL_NONCE_BYTES;
    bt_status_t status;
    bound_t bound;

    put_number(chunk->frame, chunk->bytes, 4);
    put_number(chunk->frame + 4, chunk->is_last ? FLAG_LAST : 0, 4);
    bound = bound_of(id, index, chunk->frame);
    if (folder->has_key) {
        const bt_key_part_t part = {bound.data, sizeof(bound.data)};

        bt_key_seal(folder->key, &part, chunk->data, chunk->bytes, nonce, tag);
    } else {
        memset(nonce, 0, BT_SEAL_NONCE_BYTES);
        sum_of(&bound, chunk->data, chunk->bytes, tag);
    }
    status = bt_write_all(fd, chunk->frame, BT_STORE_FRAME_BYTES);
    return (status == BT_OK) ? bt_write_all(fd, chunk->data, chunk->bytes)
                             : status;
}

static bool is_summed(const bound_t *bound, const bt_store_chunk_t *chunk,
                      const uint8_t *nonce, const uint8_t *tag)
{
    static const uint8_t no_nonce[BT_SEAL_NONCE_BYTES];
    uint8_t sum[BT_SEAL_TAG_BYTES];

    sum_of(bound, chunk->data, chunk->bytes, sum);
    return (memcmp(sum, tag, sizeof(sum)) == 0) &&
           (memcmp(nonce, no_nonce, sizeof(no_nonce)) == 0);
}

bt_status_t bt_store_chunk_read(const bt_store_folder_t *folder, const char *id,
                                uint64_t index, int fd, uint64_t offset,
                                bt_store_chunk_t *chunk)
{
    const uint8_t *nonce = chunk->frame + 8;
    const uint8_t *tag = nonce + BT_SEAL_NONCE_BYTES;
    bt_status_t status =
        bt_pread_all(fd, offset, chunk->frame, BT_STORE_FRAME_BYTES);
    uint64_t flags;
    bound_t bound;

    if (status != BT_OK) {
        return status;
    }
    chunk->bytes = (size_t)get_number(chunk->frame, 4);
    flags = get_number(chunk->frame + 4, 4);
    if ((chunk->bytes > BT_STORE_CHUNK_BYTES) || (flags > FLAG_LAST)) {
        return BT_ERR_CORRUPT;
    }
    chunk->is_last = flags == FLAG_LAST;
    status = bt_pread_all(fd, offset + BT_STORE_FRAME_BYTES, chunk->data,
                          chunk->bytes);
    if (status != BT_OK) {
        return status;
    }
    bound = bound_of(id, index, chunk->frame);
    if (folder->has_key) {
        const bt_key_part_t part = {bound.data, sizeof(bound.data)};

        return bt_key_unseal(folder->key, &part, chunk->data, chunk->bytes,
                             nonce, tag);
    }
    return is_summed(&bound, chunk, nonce, tag) ? BT_OK : BT_ERR_CORRUPT;
}

/* ---- the description ---- */

void bt_store_about_encode(const bt_stored_t *object, const char *space,
                           bt_store_chunk_t *chunk)
{
    const size_t space_bytes = strlen(space);
    uint8_t *at = chunk->data;

    BT_ASSERT(space_bytes < BT_STORE_SPACE_BYTES);
    BT_ASSERT(object->label_bytes <= BT_STORE_LABEL_BYTES);
    put_number(at, object->kind, 1);
    put_number(at + 1, object->created_us, 8);
    put_number(at + 9, object->expires_s, 8);
    put_number(at + 17, space_bytes, 1);
    put_number(at + 18, object->label_bytes, 2);
    at += 20;
    memcpy(at, space, space_bytes);
    at += space_bytes;
    if (object->label_bytes > 0) {
        memcpy(at, object->label, object->label_bytes);
    }
    chunk->bytes = 20 + space_bytes + object->label_bytes;
    chunk->is_last = false;
}

/* @retval BT_ERR_CORRUPT, BT_ERR_NO_MEMORY */
static bt_status_t decode_about(const bt_store_chunk_t *chunk,
                                bt_stored_t *object,
                                char space[BT_STORE_SPACE_BYTES])
{
    const uint8_t *at = chunk->data;
    size_t space_bytes, label_bytes;

    if (chunk->is_last || (chunk->bytes < 20)) {
        return BT_ERR_CORRUPT;
    }
    space_bytes = (size_t)get_number(at + 17, 1);
    label_bytes = (size_t)get_number(at + 18, 2);
    if ((get_number(at, 1) != (uint64_t)object->kind) ||
        (space_bytes >= BT_STORE_SPACE_BYTES) ||
        (label_bytes > BT_STORE_LABEL_BYTES) ||
        (chunk->bytes != 20 + space_bytes + label_bytes) ||
        (memchr(at + 20, '\0', space_bytes) != NULL)) {
        return BT_ERR_CORRUPT;
    }
    object->created_us = get_number(at + 1, 8);
    object->expires_s = get_number(at + 9, 8);
    object->label = bt_memdup(at + 20 + space_bytes, label_bytes);
    if (object->label == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    object->label_bytes = (uint32_t)label_bytes;
    memcpy(space, at + 20, space_bytes);
    space[space_bytes] = '\0';
    return BT_OK;
}

/* Computes an object's bytes from those of its chunks. @return false: no file
 * has so many */
static bool find_bytes(uint64_t chunks_bytes, uint64_t *bytes_p)
{
    const uint64_t whole = BT_STORE_CHUNK_BYTES + BT_STORE_FRAME_BYTES;
    const uint64_t rest = chunks_bytes % whole;

    if ((chunks_bytes == 0) || ((rest > 0) && (rest < BT_STORE_FRAME_BYTES))) {
        return false;
    }
    *bytes_p = chunks_bytes / whole * BT_STORE_CHUNK_BYTES +
               ((rest > 0) ? rest - BT_STORE_FRAME_BYTES : 0);
    return true;
}

static bt_status_t read_head(const bt_store_folder_t *folder, const char *id,
                             int fd, bt_stored_t *object,
                             char space[BT_STORE_SPACE_BYTES],
                             bt_store_chunk_t *chunk)
{
    uint8_t header[BT_STORE_HEADER_BYTES], ours[BT_STORE_HEADER_BYTES];
    struct stat info;
    bt_status_t status;

    if (fstat(fd, &info) != 0) {
        return BT_ERR_IO;
    }
    if (!S_ISREG(info.st_mode) || !bt_store_id_kind(id, &object->kind)) {
        return BT_ERR_CORRUPT;
    }
    bt_store_header_make(folder, ours);
    if ((status = bt_pread_all(fd, 0, header, sizeof(header))) != BT_OK) {
        return status;
    }
    if (memcmp(header, ours, sizeof(ours)) != 0) {
        return BT_ERR_CORRUPT;
    }
    status =
        bt_store_chunk_read(folder, id, 0, fd, BT_STORE_HEADER_BYTES, chunk);
    if (status != BT_OK) {
        return status;
    }
    object->head_bytes =
        BT_STORE_HEADER_BYTES + BT_STORE_FRAME_BYTES + chunk->bytes;
    if (((uint64_t)info.st_size < object->head_bytes) ||
        !find_bytes((uint64_t)info.st_size - object->head_bytes,
                    &object->bytes)) {
        return BT_ERR_CORRUPT;
    }
    return decode_about(chunk, object, space);
}

bt_status_t bt_store_file_open(const bt_store_folder_t *folder, int dir_fd,
                               const char *id, int *fd_p, bt_stored_t *object,
                               char space[BT_STORE_SPACE_BYTES],
                               bt_store_chunk_t *chunk)
{
    /* Not blocking: a pipe of this name has no writer. */
    const int fd =
        openat(dir_fd, id, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bt_status_t status;

    if (fd < 0) {
        return (errno == ENOENT)  ? BT_ERR_NOT_FOUND
               : (errno == ELOOP) ? BT_ERR_CORRUPT
                                  : BT_ERR_IO;
    }
    status = read_head(folder, id, fd, object, space, chunk);
    if (status != BT_OK) {
        close(fd);
        return status;
    }
    *fd_p = fd;
    return BT_OK;
}
