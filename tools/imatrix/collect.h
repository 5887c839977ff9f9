/* SPDX-License-Identifier: Apache-2.0 */
/** @file collect.h
 *
 * Computes an importance matrix by running the model on a text and recording
 * the inputs of its matrix products. The text is read in windows, each with an
 * empty KV cache; a last partial window is skipped unless it is the only one.
 *
 *     PATH exists, with the same model, text and window    it is read
 *     PATH.part exists, with the same source               it is continued
 *     else                                                 a new run begins
 *
 * PATH.part is written every few windows and when the caller stops.
 *
 * Matrices that are used as lookup tables are left out: token_embd, also where
 * it serves as the output matrix.
 *
 * Threads: the caller's, and those of the CPU back end.
 */
#ifndef BT_IMATRIX_COLLECT_H
#define BT_IMATRIX_COLLECT_H

#include <stdbool.h>

#include "tools/imatrix/imatrix.h"

#define BT_IMATRIX_WINDOW 512u /**< default tokens, as in llama.cpp */

typedef struct bt_imatrix_collect {
    const char *text; /**< file, UTF-8 */
    const char *path; /**< path of the matrix file */
    uint32_t window;  /**< tokens per window, 2 to BT_READER_MAX_WINDOW and the
                           model's context */
    uint32_t n_threads;
    /** Called after each window, and before the first. @return false: stop
     *  here */
    bool (*on_progress)(void *ctx, uint32_t n_done, uint32_t n_windows);
    void *ctx;
} bt_imatrix_collect_t;

/**
 * Computes, continues or reads the matrix.
 *
 * @param [out] m    Zeroed before; ended by the caller, also on failure.
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_CANCELED       on_progress() returned false; PATH.part stays
 * @retval BT_ERR_EXISTS         PATH exists and has another source
 * @retval BT_ERR_INVALID_PARAM  the text or the window
 * @retval BT_ERR_BAD_FILE       inputs of the matrices are not finite
 * @retval any of bt_reader_open(), bt_reader_tokens(), bt_imatrix_write()
 */
BT_MUST_CHECK bt_status_t bt_imatrix_make(const bt_gguf_t *gguf,
                                          const bt_imatrix_collect_t *c,
                                          char *why, size_t why_bytes,
                                          bt_imatrix_t *m);

#endif
