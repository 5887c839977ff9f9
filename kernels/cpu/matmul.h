/* SPDX-License-Identifier: Apache-2.0 */
/** @file matmul.h
 *
 * Parts of a matrix product on the CPU: rows are prepared for the kind of the
 * weights, then multiplied panel by panel. matmul.c runs them for one matrix,
 * experts.c for many.
 */
#ifndef BT_KERNELS_CPU_MATMUL_H
#define BT_KERNELS_CPU_MATMUL_H

#include "kernels/cpu/backend.h"

typedef enum bt_cpu_rows_kind {
    ROWS_AS_THEY_ARE,
    ROWS_NORM,
    ROWS_SILU,
} bt_cpu_rows_kind_t;

typedef struct bt_cpu_step {
    const cpu_backend_t *cpu;
    bt_matmul_job_t job; /**< w, n_rows, add, out, and data shared by all
                              threads */
    bt_cpu_rows_kind_t kind;
    const float *x;       /**< (n_rows, n_in); SILU: (n_rows, 2 n_in) */
    const uint32_t *rows; /**< (n_rows) rows of x; NULL: they are in order */
    const float *norm;    /**< NORM: weights (n_in) */
    float eps;
    bool own; /**< each thread prepares all rows for itself */
} bt_cpu_step_t;

/** Destination of prepared rows, from row 0 of a step on; of the kinds of rows
 *  only the weight's is used. */
typedef struct bt_cpu_prepared {
    float *tiles;
    uint16_t *bf16;
    bt_q8_group_t *q8;
} bt_cpu_prepared_t;

static inline size_t bt_cpu_even(size_t n)
{
    return n + n % 2;
}

/** True for weights whose rows are multiplied as floats: as tiles, where the
 *  tier has them. */
bool bt_cpu_is_dense(const bt_weight_t *w);
/** Returns the pieces in which rows are prepared: tiles, or rows. */
uint32_t bt_cpu_n_pieces(const bt_cpu_step_t *step);
/** Prepares pieces begin .. end - 1.
 *  @param line  scratch (n_in) */
void bt_cpu_prepare(const bt_cpu_step_t *step, uint32_t begin, uint32_t end,
                    float *line, const bt_cpu_prepared_t *prepared);
/** Multiplies panels of a job whose rows are prepared. */
void bt_cpu_multiply(const cpu_backend_t *cpu, const bt_matmul_job_t *job,
                     uint32_t begin, uint32_t end, uint32_t thread);
/** Ends the program unless the scratch holds the step's rows: past it, rows of
 *  other tenants would be overwritten. */
void bt_cpu_check_space(const cpu_backend_t *cpu, const bt_cpu_step_t *step);

/** Smallest multiply-adds of a piece of work that is worth waking a helper. */
#define BT_CPU_MIN_MACS 16384u

#endif
