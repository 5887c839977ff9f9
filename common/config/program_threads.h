/* SPDX-License-Identifier: Apache-2.0 */
/** @file program_threads.h
 *
 * Number of threads of each program, so that too low a limit is reported before
 * nng, UCX or MPI hit it, which then hang or crash. The launcher adds up those
 * of a launch (launcher/preflight.h); a program without a launcher
 * checks by itself.
 */
#ifndef BT_COMMON_CONFIG_PROGRAM_THREADS_H
#define BT_COMMON_CONFIG_PROGRAM_THREADS_H

#include "common/base/status.h"
#include "common/config/config.h"

/** Returns the threads of a router that parse requests: --tokenizer-threads, or
 *  2 to 8 by the CPUs that may compute. */
uint32_t bt_parse_threads(const bt_config_t *config, uint32_t n_cpus);

/** Returns the most threads of a router of which @a n_parse parse requests,
 *  where @a n_online CPUs are online, whether usable by it or not. */
uint64_t bt_router_threads(uint32_t n_online, uint64_t n_parse);

/** Returns the most threads of a worker, or of one rank of it, with @a
 *  n_compute compute threads, those on borrowed cores included. */
uint64_t bt_worker_threads(uint32_t n_online, uint64_t n_compute);

/** Returns the CPUs that are online. */
uint32_t bt_online_cpus(void);

/** Checks that this process may start this many threads. @retval
 *  BT_ERR_NO_MEMORY  No; logged. */
BT_MUST_CHECK bt_status_t bt_program_threads_check(uint64_t n);

#endif
