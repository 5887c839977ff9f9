/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_store.h
 *
 * Packed weights in a folder: built by the first process of a host that needs
 * them, mapped read-only by all of them (the page cache holds the one copy),
 * and found again at the next start.
 *
 *     DIR/NAME.packed       a whole file, read-only; NAME is a hash of its key
 *     DIR/NAME.packed.new   being written, locked (flock) by its writer
 *
 * Readers need no lock: the name appears by rename(), after fsync(), and a file
 * that has it is never written again. (While one process arranges its pages,
 * the next one waits: packed_pages.h.) A process that finds no file locks
 * NAME.packed.new; one builds, the others wait and find the result. A builder
 * that dies releases the lock and leaves a partial file, which the next one
 * overwrites.
 *
 * A file is used when
 *     - it is a regular file of this user or of root that only its owner can
 *       write,
 *     - head and table are intact (packed_file.h), and the key is the wanted
 *       one,
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
#ifndef BT_INFERENCE_PACKED_PACKED_STORE_H
#define BT_INFERENCE_PACKED_PACKED_STORE_H

#include "inference/gguf/gguf.h"
#include "inference/packed/packed_file.h"

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

#endif
