/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf.h
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
#ifndef BT_INFERENCE_HF_HF_H
#define BT_INFERENCE_HF_HF_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"

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

/*
 * Reads model folders in the layout of the Hugging Face Hub through the
 * interface of GGUF files:
 *
 *     config.json               families.c, config.c    ARCH.* keys
 *     model*.safetensors        weights.c, names.c      tensors, GGUF's names
 *     tokenizer.json            tokenizer_*.c           tokenizer.ggml.* and
 *     tokenizer.model           sentencepiece.c         baton.tokenizer.* keys
 *     generation_config.json,
 *     tokenizer_config.json,
 *     chat_template.jinja       vocab.c                 sampling, chat template
 *
 * Tensor data stays in the mapped files. A matrix that GGUF stores in another
 * order or type is converted when it is loaded (quant_rows.h).
 *
 * A folder is trusted as little as a file: every name, size, offset and number
 * is checked before use, no file outside the folder is read, and any setting
 * that this reader does not know is refused by name, since its effect would be
 * missing.
 *
 * Source: the safetensors format and the files that the transformers and
 *         tokenizers libraries write; names of keys and tensors as the gguf
 *         package lists them (constants.py, tensor_mapping.py).
 */

/**
 * Opens a model folder.
 *
 * @param [in]  path  The folder.
 * @param [out] why   On failure: a sentence that names file and reason.
 * @retval BT_ERR_NOT_FOUND    There is no such folder, or no config.json in it.
 * @retval BT_ERR_IO           A file cannot be read or mapped.
 * @retval BT_ERR_BAD_FILE     A file is malformed or inconsistent.
 * @retval BT_ERR_UNSUPPORTED  Something this reader does not know (named).
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_hf_open(const char *path, char *why,
                                     size_t why_bytes, bt_gguf_t **gguf_p);

/** Opens a model folder whose files are in memory, borrowed until close. */
BT_MUST_CHECK bt_status_t bt_hf_open_memory(const bt_folder_entry_t *entries,
                                            uint32_t n, char *why,
                                            size_t why_bytes,
                                            bt_gguf_t **gguf_p);

#endif
