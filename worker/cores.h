/* SPDX-License-Identifier: Apache-2.0 */
/** @file cores.h  Which cores a worker computes on, and with how many threads.
 */
#ifndef BT_WORKER_CORES_H
#define BT_WORKER_CORES_H

#include <stdint.h>

#include "common/base/status.h"

#define BT_MAX_CORES 1024

/** Parse a list like "0-3,8". Empty text gives 0 cores: do not pin.
 *  @retval BT_ERR_INVALID_PARAM  malformed, or a core this process may not
 *                                use (logged) */
BT_MUST_CHECK bt_status_t bt_cores_parse(const char *text,
                                         uint32_t cores[BT_MAX_CORES],
                                         uint32_t *n_p);

/** Threads to use: what was asked for, else one per core given, else one per
 *  CPU that this process may compute on (limits.h); where a cgroup has a quota
 *  not more than it has whole CPUs, and that is logged. */
uint32_t bt_cores_threads(uint32_t asked, uint32_t n_cores);

/** How many of @a n_lent cores of others to compute on beside @a n_threads
 *  threads: with a cgroup quota not more than it leaves, since what runs there
 *  is on our account. */
uint32_t bt_cores_lent(uint32_t n_threads, uint32_t n_lent);

#endif
