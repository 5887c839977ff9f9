/* SPDX-License-Identifier: Apache-2.0 */
/** @file process.h
 *
 * Facts about this process: its resource use so far (one or two system calls:
 * once per heartbeat, not per request), and its parent.
 */
#ifndef BT_COMMON_BASE_PROCESS_H
#define BT_COMMON_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Resource use of a process. */
typedef struct bt_process_use {
    uint64_t cpu_ms; /**< user and system time of all threads */
    uint64_t resident_bytes;
} bt_process_use_t;

/** Returns the resource use; a value that the system does not report is 0. */
bt_process_use_t bt_process_use(void);

/** Returns resident memory that is anonymous and not shared; 0: unknown.
 *  Takes some microseconds. */
uint64_t bt_process_private_bytes(void);

/** True when an MPI launcher (mpirun, srun --mpi=pmix) started this process. */
bool bt_process_is_of_mpi(void);

/** Longest host name with which UCX 1.13 loads: with a name of the maximum
 *  length that Linux allows it aborts every process that is linked with it,
 *  before main(). */
#define BT_PROCESS_HOST_NAME_MOST 63u

/**
 * True when this host's name is no longer than that. For programs that start
 * workers, and are not linked with UCX themselves.
 * @param [out] why  only if the name is longer: a sentence with the remedy
 */
bool bt_process_host_name_fits(char *why, size_t why_bytes);

/** Returns the command that a user types to run Baton: "./baton" if this
 *  program is in a build tree, otherwise "baton". */
const char *bt_process_command(void);

#endif
