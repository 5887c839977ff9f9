/* SPDX-License-Identifier: Apache-2.0 */
/** @file standby.h
 *
 * Standby process: has its model loaded and its weights mapped, but no KV
 * pool, no name and no role, until the launcher gives it the name and role of
 * a worker to replace:
 *
 *     launcher ──"decode-0 decode\n"──▶ --assignment-fd
 *              ◀──"ready\n"── first as a standby; again when it serves
 */
#ifndef BT_WORKER_STANDBY_H
#define BT_WORKER_STANDBY_H

#include "common/coll/coll.h"
#include "worker/worker.h"

/**
 * Rank 0: waits for the name and role of the worker to replace, sets w->name
 * and w->roles, and passes them to the other ranks. Closes the descriptor of
 * --assignment-fd.
 *
 * @param [in] coll       Collectives of the instance; NULL: it is one rank.
 * @param [in] signal_fd  See bt_stop_open().
 * @retval BT_ERR_CANCELED     stopped, or the launcher is gone
 * @retval BT_ERR_BAD_MESSAGE  the line is malformed; logged
 * @retval BT_ERR_IO           logged
 */
BT_MUST_CHECK bt_status_t bt_worker_stand_by(bt_worker_t *w,
                                             const bt_collectives_t *coll,
                                             int signal_fd);

/** Another rank: waits for the name and role from rank 0; w->name becomes that
 *  name with this rank's number.
 *  @retval BT_ERR_CANCELED  rank 0 has none, and ends
 *  @retval any error of the collective; logged */
BT_MUST_CHECK bt_status_t bt_worker_stand_by_rank(bt_worker_t *w,
                                                  const bt_collectives_t *coll);

/** Parses a line "NAME ROLE" without its newline.
 *  @param [out] name  [BT_WIRE_MAX_NAME] */
BT_MUST_CHECK bt_status_t bt_standby_read_assignment(const char *line,
                                                     char *name,
                                                     uint32_t *roles_p);

#endif
