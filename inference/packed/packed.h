/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed.h
 *
 * Packed weights in a file that the workers of a host share: its format, its
 * writer, its large pages, and the folder of such files.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_H
#define BT_INFERENCE_PACKED_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"

/*
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
 * matching ones, so packed_store.c checks the file's owner. Altered weights
 * that pass are numbers and nothing more: no offset comes from the data.
 *
 * Threads: immutable after bt_packed_check(); any number of readers.
 * Source: this page is the format.
 */

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

/*
 * Large pages for a mapped file. The kernels read all weights for each token:
 * with pages of 4 KiB a decode step of one sequence takes 12 % longer, because
 * the processor's prefetcher stops at each page and each needs an address
 * translation.
 *
 * A file is mapped with large pages where the page cache has them: if the file
 * system supports them (ext4 since Linux 6.16, XFS since 5.18, tmpfs) and the
 * mapping that first read the file had asked for them. Data that was written,
 * or read by others, is in small pages. MADV_COLLAPSE (Linux 6.1) joins them on
 * tmpfs and a few more; elsewhere they are dropped from the cache and read
 * again.
 */

/**
 * Maps a file read-only at an address where large pages are possible.
 *
 * @param bytes  bytes of the file, not 0
 * @return pointer for munmap(), with @a bytes; NULL: the reason is in errno
 */
void *bt_packed_pages_map(int fd, size_t bytes);

/**
 * Moves the cached parts of the file to large pages, where possible; the rest
 * is read into large pages later. Best effort: contents and addresses stay, and
 * pages that another process has mapped stay as they are. Processes that do it
 * to one file wait for each other.
 *
 * @param map      Of bt_packed_pages_map(), nothing of it read yet.
 * @param fd       The mapped file, without unwritten data in its cache.
 * @param wait_ms  Most time to wait for other processes (they hold the file's
 *         flock): one of them may be stopped.
 * @return false: that time has passed, and nothing was done
 */
bool bt_packed_pages_settle(void *map, int fd, size_t bytes, uint64_t wait_ms);

/*
 * Packed weights in a folder: built by the first process of a host that needs
 * them, mapped read-only by all of them (the page cache holds the one copy),
 * and found again at the next start.
 *
 *     DIR/NAME.packed       a whole file, read-only; NAME is a hash of its key
 *     DIR/NAME.packed.new   being written, locked (flock) by its writer
 *
 * Readers need no lock: the name appears by rename(), after fsync(), and a file
 * that has it is never written again. (While one process arranges its pages,
 * the next one waits.) A process that finds no file locks NAME.packed.new; one
 * builds, the others wait and find the result. A builder that dies releases the
 * lock and leaves a partial file, which the next one overwrites.
 *
 * A file is used when
 *     - it is a regular file of this user or of root that only its owner can
 *       write,
 *     - head and table are intact, and the key is the one that is asked for,
 *     - its model file is this one: inode, size, mtime and ctime are those of
 *       the build, or else the XXH3-128 of all bytes is,
 *     - every chunk matches its sum,
 *     - it has every piece that the caller asks for.
 * Any other file is rebuilt and replaced, with one line in the log.
 *
 * Files that no process has opened for 30 days are removed when another one is
 * built. Removing any of these files by hand is safe at any time; changing or
 * truncating one in place while it is mapped is not.
 *
 * Threads: open and close from any thread; the file is immutable in between.
 */

typedef struct bt_packed_store bt_packed_store_t;
typedef struct bt_packed_writer bt_packed_writer_t;

typedef struct bt_packed_config {
    const char *dir;       /**< created where it is missing */
    const bt_gguf_t *gguf; /**< the model file, borrowed for the call */
    const char *profile;   /**< name of packed content and layout: other
                                names use other files */
    uint32_t pack_version; /**< pack_version of bt_kernels_caps_t, not 0 */
    uint32_t n_threads;    /**< threads that verify sums */
    uint64_t expect_bytes; /**< approximate number of bytes to be written */
    /** Time in ms after which a builder without progress is no longer waited
     *  for; also one that holds the lock of a whole file, with 5 s more for
     *  each GB; 0: 30 s */
    uint32_t stuck_ms;
    /** Removes the file when the store is closed: weights that others replace
     *  would fill the folder. Other processes that have it keep it. */
    bool is_temporary;
    void *ctx;
    /** Adds all pieces, always in one order.
     *  @return result of bt_packed_writer_add(), or the caller's own failure */
    bt_status_t (*build)(void *ctx, bt_packed_writer_t *writer);
    /** True when the file has all pieces that will be asked for. */
    bool (*complete)(void *ctx, const bt_packed_file_t *file);
    /** Hook of tests: called between the steps of a build. NULL: none. */
    void (*on_step)(void *ctx);
} bt_packed_config_t;

/**
 * Maps the file for this model and layout, building it where needed.
 *
 * Logs one line that says whether the file was found or built, or why neither
 * was possible; then the caller packs into memory of its own.
 *
 * @param [out] store_p  Close it when nothing points into the file any more.
 * @retval BT_ERR_IO         The folder cannot be used: read-only, full …
 * @retval BT_ERR_TIMED_OUT  Another process builds it and makes no progress.
 * @retval BT_ERR_NO_MEMORY
 * @retval others            Whatever build() returned.
 */
BT_MUST_CHECK bt_status_t bt_packed_store_open(const bt_packed_config_t *config,
                                               bt_packed_store_t **store_p);
void bt_packed_store_close(bt_packed_store_t *store); /**< NULL is allowed. */

const bt_packed_file_t *bt_packed_store_file(const bt_packed_store_t *store);
/** True when this call of open wrote the file. */
bool bt_packed_store_built(const bt_packed_store_t *store);

/** Appends a piece; the bytes are copied.
 *  @retval BT_ERR_IO             Cannot be written (no space …); logged at the
 *          end of bt_packed_store_open().
 *  @retval BT_ERR_INVALID_PARAM  The name is too long or empty, or no bytes.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_packed_writer_add(bt_packed_writer_t *writer,
                                               const char *name, uint32_t type,
                                               uint32_t n_out, uint32_t n_in,
                                               const void *data, size_t bytes);

/**
 * Resolves the folder of an option: "off" is "", "auto" is
 * $XDG_CACHE_HOME/baton/weights or $HOME/.cache/baton/weights (a variable that
 * is no absolute path is ignored), any other value is the folder itself.
 *
 * @retval BT_ERR_NOT_FOUND  "auto", and neither variable is set.
 * @retval BT_ERR_TOO_LARGE
 */
BT_MUST_CHECK bt_status_t bt_packed_dir(const char *option, char *dir,
                                        size_t dir_bytes);

/*
 * Writer of a packed file, front to back.
 */

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

/*
 * Mark of a temporary file: .NAME.temporary beside it, which each process that
 * uses it has locked. A file whose mark nobody has locked was left by killed
 * processes.
 */

/** Marks a file as temporary, until its last user has unmarked it.
 *  @return descriptor of the mark; -1: the file stays after a kill */
int bt_packed_mark(const char *dir, const char *name);
/** Gives the mark back. @param fd  of bt_packed_mark() */
void bt_packed_unmark(const char *dir, const char *name, int fd);
/** Removes the mark of a file that is to stay. */
void bt_packed_keep(const char *dir, const char *name);
/** Removes temporary files that killed processes have left. */
void bt_packed_dir_sweep(const char *dir);

#endif
