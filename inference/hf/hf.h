/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf.h
 *
 * Models as folders in the layout of the Hugging Face Hub, read as a GGUF file
 * of the same model would be:
 *
 *     config.json               families.c, config.c    ARCH.* keys
 *     model*.safetensors        weights.c, names.c      tensors, GGUF's names
 *     tokenizer.json            tokenizer_*.c           tokenizer.ggml.* and
 *     tokenizer.model           sentencepiece.c         baton.tokenizer.* keys
 *     generation_config.json,
 *     tokenizer_config.json,
 *     chat_template.jinja       texts.c                 sampling, chat template
 *
 * The numbers stay in the mapped files. A matrix that GGUF has in another order
 * or type of numbers is made when it is loaded (recipe.h).
 *
 * A folder is as little trusted as a file: every name, size, offset and number
 * is checked before use, no file outside the folder is read, and what this
 * reader does not know is refused by name, for its effect would be missing.
 *
 * Source: the safetensors format and the files that the transformers and
 *         tokenizers libraries write; names of keys and tensors as the gguf
 *         package lists them (constants.py, tensor_mapping.py).
 */
#ifndef BT_INFERENCE_HF_HF_H
#define BT_INFERENCE_HF_HF_H

#include "inference/gguf/gguf.h"
#include "inference/hf/folder.h"

/**
 * @param [in]  path  The folder.
 * @param [out] why   On failure: a sentence that names file and reason.
 * @retval BT_ERR_NOT_FOUND    There is no such folder, or no config.json in it.
 * @retval BT_ERR_IO           A file cannot be read or mapped.
 * @retval BT_ERR_BAD_FILE     Not what it should be, or inconsistent.
 * @retval BT_ERR_UNSUPPORTED  Something this reader does not know (named).
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_hf_open(const char *path, char *why,
                                     size_t why_bytes, bt_gguf_t **gguf_p);

/** The same of files in memory, borrowed until close. */
BT_MUST_CHECK bt_status_t bt_hf_open_memory(const bt_folder_entry_t *entries,
                                            uint32_t n, char *why,
                                            size_t why_bytes,
                                            bt_gguf_t **gguf_p);

#endif
