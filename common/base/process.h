/* SPDX-License-Identifier: Apache-2.0 */
/** @file process.h
 *
 * What this process knows of itself: what it has used of the machine so far
 * (one or two system calls: once per heartbeat, not per request), and who
 * started it.
 */
#ifndef BT_COMMON_BASE_PROCESS_H
#define BT_COMMON_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_process_use {
    uint64_t cpu_ms; /**< user and system time of all threads */
    uint64_t resident_bytes;
} bt_process_use_t;

/** A figure that the system does not tell is 0. */
bt_process_use_t bt_process_use(void);

/** Resident memory that is no file's and shared with nobody; 0: not known. Some
 *  microseconds. */
uint64_t bt_process_private_bytes(void);

/** Did a launcher of MPI (mpirun, srun --mpi=pmix) start this process? */
bool bt_process_is_of_mpi(void);

/** The longest name of a host on which UCX 1.13 loads: it aborts every process
 *  that is linked with it, before main(), where the name is as long as Linux
 *  allows. */
#define BT_PROCESS_HOST_NAME_MOST 63u

/** Is the name of this host no longer than that? For programs that start
 *  workers, and are not linked with UCX themselves.
 *  @param [out] why  only where it is longer: a sentence with the cure */
bool bt_process_host_name_fits(char *why, size_t why_bytes);

/** @return what a person types to give one of Baton's commands: "./baton" where
 *  this program lies in a build tree, otherwise "baton" */
const char *bt_process_command(void);

#endif
