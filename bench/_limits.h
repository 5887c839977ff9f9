/* SPDX-License-Identifier: Apache-2.0 */
/** @file _limits.h
 *
 * What this machine can do at most: loops that do nothing but read memory, or
 * nothing but multiply and add in registers. Benchmarks measure them in the
 * same run as what they hold against them.
 *
 * The loops are our own and use the widest instructions that the CPU has,
 * whatever BATON_CPU_TIER says: the limit is the machine's.
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

/** As in the commands and in JSON: "read", "int8", "bf16", "f32". */
extern const char *const bt_limit_names[BT_LIMIT_COUNT];

typedef struct bt_limit_rate {
    const char *isa; /**< "avx512vnni", "avx2", "plain" … */
    double best;     /**< bytes or operations (a multiply and an add are two)
                          per second, all threads together */
    double median;
} bt_limit_rate_t;

typedef struct bt_limits bt_limits_t;

/**
 * @param [in] n_threads   1 to 1024, one core each as far as there are so many.
 * @param [in] read_bytes  What a pass of the stream reads in all, at least
 *                         64 KiB a thread; many times the caches. Taken when
 *                         the stream is first measured, from huge pages where
 *                         the kernel gives them.
 * @retval BT_ERR_INVALID_PARAM
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_limits_create(uint32_t n_threads,
                                           size_t read_bytes,
                                           bt_limits_t **limits_p);
void bt_limits_destroy(bt_limits_t *limits); /**< NULL is allowed. */

/**
 * @param [in] ms  About how long. At least three passes are made.
 * @retval BT_ERR_UNSUPPORTED  This CPU has no such instructions (bf16).
 * @retval BT_ERR_NO_MEMORY    for the stream's buffer
 * @retval BT_ERR_IO           A thread could not be started.
 */
BT_MUST_CHECK bt_status_t bt_limits_measure(bt_limits_t *limits,
                                            bt_limit_t what, uint32_t ms,
                                            bt_limit_rate_t *rate_p);

#endif
