/* SPDX-License-Identifier: Apache-2.0 */
/** @file modelfile.h
 *
 * Opens the model of --model: a GGUF file, or a folder in the layout of the
 * Hugging Face Hub (inference/hf). Both are read as GGUF (inference/gguf).
 */
#ifndef BT_INFERENCE_MODELFILE_MODELFILE_H
#define BT_INFERENCE_MODELFILE_MODELFILE_H

#include "inference/gguf/gguf.h"

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

#endif
