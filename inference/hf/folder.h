/* SPDX-License-Identifier: Apache-2.0 */
/** @file folder.h
 *
 * Access to the files of one folder, and to no others. A name may be a symbolic
 * link within the folder, or, in the Hub's own cache, from snapshots/REVISION/
 * to blobs/:
 *
 *     models--OWNER--NAME/snapshots/0123abcd/config.json ─▶ ../../blobs/4567…
 *
 * Any other link is refused: a downloaded folder must not make a server read
 * its host's files.
 *
 * Threads: a folder belongs to one thread.
 */
#ifndef BT_INFERENCE_HF_FOLDER_H
#define BT_INFERENCE_HF_FOLDER_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"

/** File in memory, borrowed. */
typedef struct bt_folder_entry {
    const char *name;
    const void *data;
    size_t bytes;
} bt_folder_entry_t;

typedef struct bt_folder {
    char path[PATH_MAX];              /**< resolved path of the folder */
    char blobs[PATH_MAX];             /**< folder of blobs; "": not in a
                                           cache of the Hub */
    const bt_folder_entry_t *entries; /**< files of a folder in memory; or
                                           NULL */
    uint32_t n_entries;
} bt_folder_t;

typedef struct bt_folder_file {
    const void *base; /**< NULL: the file is empty */
    size_t bytes;
    int fd; /**< -1: memory */
} bt_folder_file_t;

/** Opens a folder.
 *  @retval BT_ERR_NOT_FOUND  no such folder
 *  @retval BT_ERR_IO         it cannot be used; the reason is in why */
BT_MUST_CHECK bt_status_t bt_folder_init(bt_folder_t *folder, const char *path,
                                         char *why, size_t why_bytes);

/** Opens a folder in memory; @a entries are borrowed as long as its files
 *  are. */
void bt_folder_init_memory(bt_folder_t *folder,
                           const bt_folder_entry_t *entries, uint32_t n);

/** Looks up a name in the folder. @return whether it exists, of any kind */
bool bt_folder_has(const bt_folder_t *folder, const char *name);

/** Maps a file, read-only.
 *  @param [in] name  One name, without a slash.
 *  @retval BT_ERR_NOT_FOUND    It is not there; the reason is in why.
 *  @retval BT_ERR_UNSUPPORTED  It is a link out of the folder.
 *  @retval BT_ERR_BAD_FILE     The name has a slash, or is no regular file.
 *  @retval BT_ERR_IO           The reason is in why. */
BT_MUST_CHECK bt_status_t bt_folder_map(const bt_folder_t *folder,
                                        const char *name, char *why,
                                        size_t why_bytes,
                                        bt_folder_file_t *file_p);
void bt_folder_unmap(bt_folder_file_t *file); /**< Zeroed is not allowed. */

/** JSON file and its parsed document, whose strings lie in the map. */
typedef struct bt_folder_json {
    bt_folder_file_t file;
    bt_json_doc_t *doc;         /**< NULL: there is no such file */
    const bt_json_node_t *root; /**< an object; NULL: there is no such file */
} bt_folder_json_t;

/** Reads a JSON file whose value is an object. A missing file is no failure.
 *  @retval any of bt_folder_map(), bt_json_doc_parse() */
BT_MUST_CHECK bt_status_t bt_folder_read_json(const bt_folder_t *folder,
                                              const char *name,
                                              size_t max_bytes, char *why,
                                              size_t why_bytes,
                                              bt_folder_json_t *json_p);
void bt_folder_json_fini(bt_folder_json_t *json); /**< Zeroed is allowed. */

#endif
