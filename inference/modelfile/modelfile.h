/* SPDX-License-Identifier: Apache-2.0 */
/** @file modelfile.h
 *
 * What --model names, opened: a GGUF file, or a folder in the layout of the
 * Hugging Face Hub (inference/hf). Whatever it is, it is read as GGUF
 * (inference/gguf). */
#ifndef BT_INFERENCE_MODELFILE_MODELFILE_H
#define BT_INFERENCE_MODELFILE_MODELFILE_H

#include "inference/gguf/gguf.h"

/**
 * @param [in]  path  File or folder.
 * @param [out] why   On failure: a sentence for the user; of a name that is no
 *                    path, with what it may have meant.
 * @retval as bt_gguf_open(), bt_hf_open()
 */
BT_MUST_CHECK bt_status_t bt_modelfile_open(const char *path, char *why,
                                            size_t why_bytes,
                                            bt_gguf_t **gguf_p);

#endif
