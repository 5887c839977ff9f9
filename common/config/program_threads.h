/* SPDX-License-Identifier: Apache-2.0 */
/** @file program_threads.h
 *
 * How many threads the programs have, so that where too few are left that is
 * said before nng, UCX or MPI find out, which hang or crash then. The launcher
 * adds up those of a launch (launcher/needs.h); a program that nobody started
 * looks for itself.
 */
#ifndef BT_COMMON_CONFIG_PROGRAM_THREADS_H
#define BT_COMMON_CONFIG_PROGRAM_THREADS_H

#include "common/base/status.h"
#include "common/config/config.h"

/** Threads of a router that read requests: --parse-threads, or 2 to 8 by the
 *  CPUs that may compute. */
uint32_t bt_parse_threads(const bt_config_t *config, uint32_t n_cpus);

/** All threads of a router of which @a n_parse read requests, at most, where
 *  @a n_online CPUs are online, whoever may use them. */
uint64_t bt_router_threads(uint32_t n_online, uint64_t n_parse);

/** All threads of a worker, or of one rank of it, with @a n_compute that
 *  compute, on lent cores too, at most. */
uint64_t bt_worker_threads(uint32_t n_online, uint64_t n_compute);

/** CPUs that are online. */
uint32_t bt_online_cpus(void);

/** Are so many left to this process? @retval BT_ERR_NO_MEMORY  No; logged. */
BT_MUST_CHECK bt_status_t bt_program_threads_check(uint64_t n);

#endif
