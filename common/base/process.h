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

/** @return what a person types to give one of Baton's commands: "./baton" where
 *  this program lies in a build tree, otherwise "baton" */
const char *bt_process_command(void);

#endif
