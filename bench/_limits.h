/* SPDX-License-Identifier: Apache-2.0 */
/** @file _limits.h
 *
 * Upper limits of this machine: loops that only read memory, or only multiply
 * and add in registers. Benchmarks measure them in the same run as the code
 * that is compared with them.
 *
 * The loops use the widest instructions of the CPU, regardless of
 * BATON_CPU_TIER: the limit is the machine's.
 * Threads: one caller; each measurement starts and ends threads of its own.
 */
#ifndef BT_BENCH_LIMITS_H
#define BT_BENCH_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef enum bt_limit {
    BT_LIMIT_READ, /**< read-only stream, bytes per second */
    BT_LIMIT_INT8, /**< 8-bit multiply-add, operations per second */
    BT_LIMIT_BF16, /**< bf16 multiply-add into f32 */
    BT_LIMIT_F32,  /**< f32 fused multiply-add */
    BT_LIMIT_COUNT,
} bt_limit_t;

typedef struct bt_limit_rate {
    const char *isa; /**< "avx512vnni", "avx2", "plain" … */
    double best;     /**< bytes or operations (a multiply and an add are two)
                          per second, all threads together */
    double median;
} bt_limit_rate_t;

typedef struct bt_limits bt_limits_t;

/**
 * Creates the measurement.
 *
 * @param [in] n_threads   1 to 1024, one core each as far as there are enough.
 * @param [in] read_bytes  Total bytes of a pass of the read stream, at least 64
 *     KiB per thread; many times the caches. Allocated when the stream is first
 *     measured, from huge pages if the kernel provides them.
 * @retval BT_ERR_INVALID_PARAM
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_limits_create(uint32_t n_threads,
                                           size_t read_bytes,
                                           bt_limits_t **limits_p);
void bt_limits_destroy(bt_limits_t *limits); /**< NULL is allowed. */

/**
 * Measures one limit.
 *
 * @param [in] ms  Approximate duration. At least three passes are made.
 * @retval BT_ERR_UNSUPPORTED  This CPU has no such instructions (bf16).
 * @retval BT_ERR_NO_MEMORY    for the stream's buffer
 * @retval BT_ERR_IO           A thread could not be started.
 */
BT_MUST_CHECK bt_status_t bt_limits_measure(bt_limits_t *limits,
                                            bt_limit_t what, uint32_t ms,
                                            bt_limit_rate_t *rate_p);

/** Runs the command `limit NAME MS`, NAME "read", "int8", "bf16" or "f32":
 *  measures and prints {"limit", "isa", "best", "median"}; isa is null if the
 *  CPU lacks the instructions. */
void bt_limits_command(bt_limits_t *limits, const char *const *words);

/* ---- loops, _limits_loops.c ---- */

/** Input of a loop: one thread's part of the stream. */
typedef struct bt_loop_work {
    const void *data; /**< 64-byte aligned; the stream only */
    size_t n;         /**< bytes, a multiple of 512; otherwise loop
                           iterations */
} bt_loop_work_t;

typedef struct bt_loop {
    const char *isa;
    /** Runs the loop. @return an arbitrary value that keeps the work from being
     *  optimised away */
    uint64_t (*run)(const bt_loop_work_t *work);
    double per_n; /**< bytes or operations per unit of n */
} bt_loop_t;

/** Returns the widest loop that this CPU supports; run is NULL: none. */
bt_loop_t bt_loop_for(bt_limit_t what);

#endif
