/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf.h
 *
 * Opens the model of --model, a GGUF file or a folder in the layout of the
 * Hugging Face Hub, and reads such folders through the interface of GGUF files:
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
#ifndef BT_INFERENCE_HF_HF_H
#define BT_INFERENCE_HF_HF_H

#include "common/base/status.h"
#include "inference/gguf/gguf.h"

/** File in memory, borrowed. */
typedef struct bt_folder_entry {
    const char *name;
    const void *data;
    size_t bytes;
} bt_folder_entry_t;

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

/**
 * Opens a model file or folder.
 *
 * @param [in]  path  File or folder.
 * @param [out] why   On failure: a sentence for the user; for a name that is no
 *         path, with a suggestion.
 * @retval any of bt_gguf_open(), bt_hf_open()
 */
BT_MUST_CHECK bt_status_t bt_modelfile_open(const char *path, char *why,
                                            size_t why_bytes,
                                            bt_gguf_t **gguf_p);

/** Opens a model folder whose files are in memory, borrowed until close. */
BT_MUST_CHECK bt_status_t bt_hf_open_memory(const bt_folder_entry_t *entries,
                                            uint32_t n, char *why,
                                            size_t why_bytes,
                                            bt_gguf_t **gguf_p);

#endif
