/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster_priv.h
 *
 * Declarations shared by the files of this module.
 */
#ifndef BT_COMMON_CLUSTER_CLUSTER_PRIV_H
#define BT_COMMON_CLUSTER_CLUSTER_PRIV_H

#include <stdbool.h>

#include <mpi.h>

#include "common/base/status.h"

/** Messages of a process to its parent: its pid, an int32_t, at the start
 *  and a byte at the end. */
#define BT_CLUSTER_HELLO_TAG   1
#define BT_CLUSTER_GOODBYE_TAG 2

/** Converts MPI's return value of @a what to a status; errors are logged. */
BT_MUST_CHECK bt_status_t bt_cluster_check(int rv, const char *what);

/**
 * Sets MPI's environment variables that the operator has not set, before
 * MPI_Init.
 * @param [in] meets_others  This world will be connected to another one, which
 *                           Open MPI's shared memory does not support.
 */
void bt_cluster_prepare_environment(bool meets_others);

#endif
