/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster_priv.h  What the files of this module share. */
#ifndef BT_COMMON_CLUSTER_CLUSTER_PRIV_H
#define BT_COMMON_CLUSTER_CLUSTER_PRIV_H

#include <stdbool.h>

#include <mpi.h>

#include "common/base/status.h"

/** What a process sends to who started it: its pid, an int32_t, and at its end
 *  a byte. */
#define BT_CLUSTER_HELLO_TAG   1
#define BT_CLUSTER_GOODBYE_TAG 2

/** MPI's answer to @a what as a status, logged. */
BT_MUST_CHECK bt_status_t bt_cluster_check(int rv, const char *what);

/** Before MPI_Init: settings that the operator has not chosen.
 *  @param [in] meets_others  This world will be connected to another one, for
 *                            which Open MPI's shared memory is not. */
void bt_cluster_prepare_environment(bool meets_others);

#endif
