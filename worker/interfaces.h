/* SPDX-License-Identifier: Apache-2.0 */
/** @file interfaces.h  Network interface for the KV traffic of a rank. */
#ifndef BT_WORKER_INTERFACES_H
#define BT_WORKER_INTERFACES_H

#include <stdint.h>

#include "common/base/status.h"

/** Size of an interface name with its zero byte; also of an RDMA device's name
 *  and port. */
#define BT_INTERFACE_BYTES 64u

/**
 * Returns the network interface of a rank.
 *
 * Ranks take the interfaces of a list in turn: with two, even ranks take the
 * first one. So rank-to-rank transfers between two instances use all interfaces
 * at a time.
 *
 * @param [in]  list   Comma-separated names.
 * @param [out] name   Interface of the rank.
 * @param [out] n_p    Number of names in the list; NULL: not wanted.
 * @retval BT_ERR_INVALID_PARAM  a name is empty or too long; logged
 */
BT_MUST_CHECK bt_status_t bt_interface_of(const char *list, uint32_t rank,
                                          char name[BT_INTERFACE_BYTES],
                                          uint32_t *n_p);

#endif
