/* SPDX-License-Identifier: Apache-2.0 */
/** @file collect.h
 *
 * An importance matrix made by a model that reads a text: its own forward pass,
 * whose products of matrices are looked at. Windows of the text are read one by
 * one, each from an empty cache; a last one that is not full is left out unless
 * it is the first.
 *
 *     PATH is there, of the same model, text and window    it is read
 *     PATH.part is, of the same                            gone on with
 *     else                                                 begun
 *
 * PATH.part is written every few windows and when the caller stops.
 *
 * Left out are matrices that are not multiplied but looked up in: token_embd,
 * where there is no output matrix too, whose rows both do.
 *
 * Threads: the caller's, and those of the CPU back end.
 */
#ifndef BT_IMATRIX_COLLECT_H
#define BT_IMATRIX_COLLECT_H

#include <stdbool.h>

#include "imatrix/imatrix.h"

#define BT_IMATRIX_WINDOW 512u /**< tokens, where nobody says; llama.cpp's */

typedef struct bt_imatrix_collect {
    const char *text; /**< file, UTF-8 */
    const char *path; /**< of the matrix */
    uint32_t window;  /**< tokens, 2 to BT_READER_MAX_WINDOW and the model's
                           context */
    uint32_t n_threads;
    /** After each window, and before the first. @return false: end here */
    bool (*on_progress)(void *ctx, uint32_t n_done, uint32_t n_windows);
    void *ctx;
} bt_imatrix_collect_t;

/**
 * @param [out] m    Zeroed before; ended by the caller, also on failure.
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_CANCELED       on_progress() said so; PATH.part stays
 * @retval BT_ERR_EXISTS         PATH is there and of something else
 * @retval BT_ERR_INVALID_PARAM  the text or the window
 * @retval BT_ERR_BAD_FILE       what the matrices were given is not finite
 * @retval any of bt_reader_open(), bt_reader_tokens(), bt_imatrix_write()
 */
BT_MUST_CHECK bt_status_t bt_imatrix_make(const bt_gguf_t *gguf,
                                          const bt_imatrix_collect_t *c,
                                          char *why, size_t why_bytes,
                                          bt_imatrix_t *m);

#endif
