/* SPDX-License-Identifier: Apache-2.0 */
/** @file imatrix.h
 *
 * Importance matrix: for each column of each matrix of a model, the mean square
 * of the column's input when the model reads a text. A quantizer weights the
 * errors of a column's numbers by it, since it is the share of them that
 * reaches the output.
 *
 * Memory and files hold sums and counts. The file formats are llama.cpp's:
 *
 *     GGUF   general.type "imatrix"; imatrix.datasets (strings),
 *            imatrix.chunk_count, imatrix.chunk_size; for each matrix NAME the
 *            F32 tensors NAME.in_sum2 (n_in, n_mats), sums of squares, and
 *            NAME.counts (1, n_mats), of rows; n_mats is 1 except for experts
 *     .dat   older, read only: i32 n, n × { i32 len, name, i32 n_calls, i32 n,
 *            f32 sums[n] }, i32 n_chunks, i32 len, the text's name
 *
 * Threads: one thread modifies a matrix; any number may read it.
 * Source:  llama.cpp, tools/imatrix/README.md (the formats).
 */
#ifndef BT_TOOLS_IMATRIX_IMATRIX_H
#define BT_TOOLS_IMATRIX_IMATRIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"

/** Input statistics of one matrix, or of several matrices of one tensor. */
typedef struct bt_imatrix_entry {
    char *name;      /**< owned; name of the matrix: "blk.0.attn_q.weight" */
    uint32_t n;      /**< number of sums: columns of all its matrices */
    uint32_t n_mats; /**< number of counts; divides n */
    float *sums;     /**< owned, (n) sums of squares, at least 0 */
    /** owned, (n_mats) rows; 0: the matrix had no input. As in the file, so
     * that a continued run has the same bits: from 2^24 on counts are rounded,
     * and rows are added call by call, since one alone would be lost. */
    float *counts;
} bt_imatrix_entry_t;

typedef struct bt_imatrix {
    bt_imatrix_entry_t *entries; /**< owned */
    uint32_t n_entries;
    uint32_t cap;
    uint32_t n_windows; /**< windows of the text that were read */
    uint32_t window;    /**< tokens per window */
    char *text;         /**< owned; name of the text file, or NULL */
    char *source;       /**< owned; source id, or NULL */
} bt_imatrix_t;

/** Frees a matrix. Zero-initialise a matrix before use; call this in any
 *  case. */
void bt_imatrix_fini(bt_imatrix_t *m);

/** Finds an entry by name. @return NULL: none */
const bt_imatrix_entry_t *bt_imatrix_find(const bt_imatrix_t *m,
                                          bt_gguf_str_t name);

/** Adds an entry of zeros. @param [out] i_p  index of the entry
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_imatrix_add(bt_imatrix_t *m, const char *name,
                                         size_t name_len, uint32_t n,
                                         uint32_t n_mats, uint32_t *i_p);

/**
 * Checks that every entry that names a tensor of the model has the tensor's
 * number of columns.
 *
 * @param [out] n_p   tensors of the model that have an entry
 * @param [out] why   On failure the tensor and both numbers.
 * @retval BT_ERR_MISMATCH  the matrix belongs to another model
 */
BT_MUST_CHECK bt_status_t bt_imatrix_check(const bt_imatrix_t *m,
                                           const bt_gguf_t *gguf, uint64_t *n_p,
                                           char *why, size_t why_bytes);

/**
 * Computes weights for the columns of one matrix of a tensor that @a entry
 * fits: with a mean of 1, and none below a thousandth, since another text may
 * use a column that this text never used.
 *
 * @param [in]  mat      index among the matrices of the tensor, from 0
 * @param [out] weights  (n_in)
 */
void bt_imatrix_weights(const bt_imatrix_entry_t *entry, uint64_t mat,
                        uint32_t n_in, float *weights);

/** Returns the hash of all data that affects weights. */
bt_hash128_t bt_imatrix_hash(const bt_imatrix_t *m);

/**
 * Reads a matrix file in either format.
 *
 * @param [out] m    Zeroed before; ended by the caller, also on failure.
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_NOT_FOUND  there is no such file
 * @retval BT_ERR_BAD_FILE   unknown format, truncated, or with invalid sums or
 *     counts; named
 * @retval BT_ERR_IO, BT_ERR_TOO_LARGE, BT_ERR_UNSUPPORTED, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_imatrix_read(const char *path, char *why,
                                          size_t why_bytes, bt_imatrix_t *m);
/** Parses the older .dat format from bytes in memory. */
BT_MUST_CHECK bt_status_t bt_imatrix_parse_dat(const void *data, size_t bytes,
                                               char *why, size_t why_bytes,
                                               bt_imatrix_t *m);

/** Writes the matrix as GGUF: to PATH.new, synced to disk and then renamed.
 *  @param [out] why  On failure the reason, for the user.
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_imatrix_write(const bt_imatrix_t *m,
                                           const char *path, char *why,
                                           size_t why_bytes);

#define BT_IMATRIX_KEY_SOURCE "baton.imatrix.source"

/*
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
