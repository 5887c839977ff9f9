/* SPDX-License-Identifier: Apache-2.0 */
/** @file standby.h
 *
 * A process that has its model loaded, weights mapped, and no KV pool, no name
 * and no role, until the launcher tells it whose place it takes:
 *
 *     launcher ──"decode-0 decode\n"──▶ --place-from
 *              ◀──"ready\n"── before, as one that waits; and when it serves
 */
#ifndef BT_WORKER_STANDBY_H
#define BT_WORKER_STANDBY_H

#include "common/coll/coll.h"
#include "worker/worker.h"

/**
 * Rank 0: wait for a place, which becomes w->name and w->roles, and tell the
 * other ranks. Closes the descriptor of --place-from.
 *
 * @param [in] coll       Of the instance; NULL: it is one rank.
 * @param [in] signal_fd  As of bt_stop_open().
 * @retval BT_ERR_CANCELED     told to stop, or the launcher is gone
 * @retval BT_ERR_BAD_MESSAGE  what it was told is no place; logged
 * @retval BT_ERR_IO           logged
 */
BT_MUST_CHECK bt_status_t bt_worker_stand_by(bt_worker_t *w,
                                             const bt_collectives_t *coll,
                                             int signal_fd);

/** Another rank: wait for the place that rank 0 was told; w->name is its name
 *  with this rank's number.
 *  @retval BT_ERR_CANCELED  rank 0 has none, and ends
 *  @retval what the collective says; logged */
BT_MUST_CHECK bt_status_t bt_worker_stand_by_rank(bt_worker_t *w,
                                                  const bt_collectives_t *coll);

/** Take a line "NAME ROLE" without its end apart.
 *  @param [out] name  [BT_WIRE_MAX_NAME] */
BT_MUST_CHECK bt_status_t bt_standby_read_place(const char *line, char *name,
                                                uint32_t *roles_p);

#endif
