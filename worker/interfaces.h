/* SPDX-License-Identifier: Apache-2.0 */
/** @file interfaces.h  Over which network interface the KV of a rank goes. */
#ifndef BT_WORKER_INTERFACES_H
#define BT_WORKER_INTERFACES_H

#include <stdint.h>

#include "common/base/status.h"

/** Of a name with its end; an interface's, or an RDMA device's and port. */
#define BT_INTERFACE_BYTES 64u

/**
 * Ranks take the interfaces of a list in turn: of two, those of an even number
 * the first one. So what the ranks of two instances hand over rank to rank goes
 * over all of them at a time.
 *
 * @param [in]  list   Names with commas between.
 * @param [out] name   That of the rank.
 * @param [out] n_p    How many the list has; NULL: nobody asks.
 * @retval BT_ERR_INVALID_PARAM  a name is empty or too long; logged
 */
BT_MUST_CHECK bt_status_t bt_interface_of(const char *list, uint32_t rank,
                                          char name[BT_INTERFACE_BYTES],
                                          uint32_t *n_p);

#endif
