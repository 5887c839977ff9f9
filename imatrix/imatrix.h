/* SPDX-License-Identifier: Apache-2.0 */
/** @file imatrix.h
 *
 * An importance matrix: for each matrix of a model, and each of its columns,
 * the mean square of the input that the column is multiplied with when the
 * model reads a text. A quantizer weighs the errors of a column's numbers by
 * it, for that much of them comes out of the matrix.
 *
 * In memory and in files there are sums and counts. Files are llama.cpp's:
 *
 *     GGUF   general.type "imatrix"; imatrix.datasets (strings),
 *            imatrix.chunk_count, imatrix.chunk_size; for each matrix NAME the
 *            F32 tensors NAME.in_sum2 (n_in, n_mats), sums of squares, and
 *            NAME.counts (1, n_mats), of rows; n_mats is 1 but of experts
 *     .dat   older, read only: i32 n, n × { i32 len, name, i32 n_calls, i32 n,
 *            f32 sums[n] }, i32 n_chunks, i32 len, the text's name
 *
 * Threads: a matrix belongs to one; reading it is any number's.
 * Source:  llama.cpp, tools/imatrix/README.md (the formats).
 */
#ifndef BT_IMATRIX_IMATRIX_H
#define BT_IMATRIX_IMATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"

/** What one matrix, or several of one tensor, were given. */
typedef struct bt_imatrix_entry {
    char *name;      /**< owned, of the matrix: "blk.0.attn_q.weight" */
    uint32_t n;      /**< sums: columns, of all its matrices */
    uint32_t n_mats; /**< counts; divides n */
    float *sums;     /**< owned, (n) at least 0 */
    float *counts;   /**< owned, (n_mats) rows; 0: nothing came there */
} bt_imatrix_entry_t;

typedef struct bt_imatrix {
    bt_imatrix_entry_t *entries; /**< owned */
    uint32_t n_entries;
    uint32_t cap;
    uint32_t n_windows; /**< of the text that were read */
    uint32_t window;    /**< tokens of each */
    char *text;         /**< owned: the file's name, or NULL */
    char *source;       /**< owned: what it was made of (collect.h), or NULL */
} bt_imatrix_t;

/** Zeroed before; ended by bt_imatrix_fini(), whatever came out. */
void bt_imatrix_fini(bt_imatrix_t *m);

/** @return NULL: it has none of the name */
const bt_imatrix_entry_t *bt_imatrix_find(const bt_imatrix_t *m,
                                          bt_gguf_str_t name);

/** Add an entry of zeros. @param [out] i_p  which it is
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_imatrix_add(bt_imatrix_t *m, const char *name,
                                         size_t name_len, uint32_t n,
                                         uint32_t n_mats, uint32_t *i_p);

/**
 * Every entry that names a tensor of the model must have its columns.
 *
 * @param [out] n_p   tensors of the model that it has
 * @param [out] why   On failure the tensor and both numbers.
 * @retval BT_ERR_MISMATCH  it is another model's
 */
BT_MUST_CHECK bt_status_t bt_imatrix_check(const bt_imatrix_t *m,
                                           const bt_gguf_t *gguf, uint64_t *n_p,
                                           char *why, size_t why_bytes);

/**
 * Weights of the columns of one matrix of a tensor, that @a entry fits: of a
 * mean of 1, and none below a thousandth, for a column that this text never
 * used another one may.
 *
 * @param [in]  mat      of those of the tensor, from 0
 * @param [out] weights  (n_in)
 */
void bt_imatrix_weights(const bt_imatrix_entry_t *entry, uint64_t mat,
                        uint32_t n_in, float *weights);

/** Of all that weighs. */
bt_hash128_t bt_imatrix_hash(const bt_imatrix_t *m);

/**
 * @param [out] m    Zeroed before; ended by the caller, also on failure.
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_NOT_FOUND  there is no such file
 * @retval BT_ERR_BAD_FILE   neither of the formats, truncated, or with sums or
 *                           counts that are none; named
 * @retval BT_ERR_IO, BT_ERR_TOO_LARGE, BT_ERR_UNSUPPORTED, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_imatrix_read(const char *path, char *why,
                                          size_t why_bytes, bt_imatrix_t *m);
/** The older format, of bytes in memory. */
BT_MUST_CHECK bt_status_t bt_imatrix_parse_dat(const void *data, size_t bytes,
                                               char *why, size_t why_bytes,
                                               bt_imatrix_t *m);

/** As GGUF: to PATH.new and the disk, and then under its name.
 *  @param [out] why  On failure the reason, for the user.
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_imatrix_write(const bt_imatrix_t *m,
                                           const char *path, char *why,
                                           size_t why_bytes);

#define BT_IMATRIX_KEY_SOURCE "baton.imatrix.source"

#endif
