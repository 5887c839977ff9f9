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
 * A reader needs no lock for what it reads: the name appears by rename(), after
 * fsync(), and a file that has it is never written again. (While one process
 * sees to its pages, the next one waits: packed_pages.h.) Who finds none locks
 * NAME.packed.new; one builds, the others wait and find the result. A builder
 * that dies leaves the lock, and a rest that the next one overwrites.
 *
 * A file is used when
 *   - it is a regular file of this user or of root that nobody else can write,
 *   - head and table are whole (packed_file.h), and the key is the wanted one,
 *   - its model file is this one: the same inode, size, mtime and ctime as when
 *     it was built, or else the same XXH3-128 of all bytes,
 *   - every chunk matches its sum,
 *   - it has every piece that the caller asks for.
 * Any other file is built again over it, with one line in the log.
 *
 * Files that no process has opened for 30 days are removed when another one is
 * built. Removing any of them by hand is safe at any time; changing or
 * truncating one in place while it is mapped is not.
 *
 * Threads: open and close from any one; the file is immutable in between.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_STORE_H
#define BT_INFERENCE_PACKED_PACKED_STORE_H

#include "inference/gguf/gguf.h"
#include "inference/packed/packed_file.h"

typedef struct bt_packed_store bt_packed_store_t;
typedef struct bt_packed_writer bt_packed_writer_t;

typedef struct bt_packed_config {
    const char *dir;       /**< made where it is missing */
    const bt_gguf_t *gguf; /**< the model file, borrowed for the call */
    const char *profile;   /**< what is packed of it, and how: other files for
                                other names */
    uint32_t pack_version; /**< of bt_kernels_caps_t, not 0 */
    uint32_t n_threads;    /**< that check sums */
    uint64_t expect_bytes; /**< about so much is going to be written */
    uint32_t stuck_ms;     /**< a builder without progress for so long, or one
                                that holds the lock of a whole file for so long
                                and 5 s for each GB, is not waited for any more;
                                0: 30 s */
    void *ctx;
    /** Add all pieces, in the same order every time.
     *  @return what bt_packed_writer_add() did, or the caller's own failure */
    bt_status_t (*build)(void *ctx, bt_packed_writer_t *writer);
    /** Has the file all pieces that will be asked for? */
    bool (*complete)(void *ctx, const bt_packed_file_t *file);
    /** Tests: called between the steps of a build. NULL: nobody asks. */
    void (*on_step)(void *ctx);
} bt_packed_config_t;

/**
 * Map the file for this model and layout, building it where needed.
 *
 * Says in one line of the log whether it was found or built, or why neither was
 * possible; then the caller packs into memory of its own.
 *
 * @param [out] store_p  Close it when nothing points into the file any more.
 * @retval BT_ERR_IO         The folder cannot be used: read-only, full …
 * @retval BT_ERR_TIMED_OUT  Another process builds it and does not get on.
 * @retval BT_ERR_NO_MEMORY
 * @retval others            Whatever build() returned.
 */
BT_MUST_CHECK bt_status_t bt_packed_store_open(const bt_packed_config_t *config,
                                               bt_packed_store_t **store_p);
void bt_packed_store_close(bt_packed_store_t *store); /**< NULL is allowed. */

const bt_packed_file_t *bt_packed_store_file(const bt_packed_store_t *store);
/** @return whether this call of open wrote the file. */
bool bt_packed_store_built(const bt_packed_store_t *store);

/** Append a piece; the bytes are copied.
 *  @retval BT_ERR_IO             Cannot be written (no room …); logged at the
 *                                end of bt_packed_store_open().
 *  @retval BT_ERR_INVALID_PARAM  The name is too long or empty, or no bytes.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_packed_writer_add(bt_packed_writer_t *writer,
                                               const char *name, uint32_t type,
                                               uint32_t n_out, uint32_t n_in,
                                               const void *data, size_t bytes);

/**
 * The folder that an option means: "off" is "", "auto" is
 * $XDG_CACHE_HOME/baton/weights or $HOME/.cache/baton/weights (a variable that
 * is no absolute path does not count), all else is itself.
 *
 * @retval BT_ERR_NOT_FOUND  "auto", and neither variable is set.
 * @retval BT_ERR_TOO_LARGE
 */
BT_MUST_CHECK bt_status_t bt_packed_dir(const char *option, char *dir,
                                        size_t dir_bytes);

#endif
