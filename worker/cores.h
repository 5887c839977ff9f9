/* SPDX-License-Identifier: Apache-2.0 */
/** @file cores.h  Cores and number of threads that a worker computes with. */
#ifndef BT_WORKER_CORES_H
#define BT_WORKER_CORES_H

#include <stdint.h>

#include "common/base/status.h"

#define BT_MAX_CORES 1024

/** Parses a list like "0-3,8". Empty text gives 0 cores: do not pin.
 *  @retval BT_ERR_INVALID_PARAM  malformed, or a core this process may not use
 *                                (logged) */
BT_MUST_CHECK bt_status_t bt_cores_parse(const char *text,
                                         uint32_t cores[BT_MAX_CORES],
                                         uint32_t *n_p);

/** Returns the number of threads to use: @a asked, else one per core given,
 *  else one per CPU that this process may compute on (limits.h). With a cgroup
 *  quota the default is at most the quota's whole CPUs, which is logged. */
uint32_t bt_cores_threads(uint32_t asked, uint32_t n_cores);

/** Returns how many of @a n_lent borrowed cores to compute on beside
 *  @a n_threads threads. With a cgroup quota it is at most what the quota
 *  leaves, since time on borrowed cores counts against this process. */
uint32_t bt_cores_lent(uint32_t n_threads, uint32_t n_lent);

#endif
