/* SPDX-License-Identifier: Apache-2.0 */
/** @file run_dir.h
 *
 * A private directory for one run (common/base/own_dir.h): the processes'
 * sockets, and the file with the random cluster key (mode 0600).
 */
#ifndef BT_LAUNCHER_RUN_DIR_H
#define BT_LAUNCHER_RUN_DIR_H

#include "common/base/own_dir.h"
#include "common/base/status.h"

#define BT_RUN_DIR_BYTES 64 /**< a socket's whole path has only 108 */

typedef struct bt_run_dir {
    char path[BT_RUN_DIR_BYTES];
    char key_file[BT_RUN_DIR_BYTES + 16];
    bt_own_dir_t own;
} bt_run_dir_t;

/** Under $XDG_RUNTIME_DIR or $TMPDIR where that is short enough and writable,
 *  else under /tmp.
 *  @retval BT_ERR_IO  Logged. */
BT_MUST_CHECK bt_status_t bt_run_dir_create(bt_run_dir_t *dir);

/** Call @a fn for each directory of this user where bt_run_dir_create() makes
 *  them; also for those that a killed launcher left behind. */
void bt_run_dir_each(bt_own_dir_fn fn, void *arg);

/** Remove those that launchers, or workers without one, left behind that are
 *  dead. Says so. */
void bt_run_dir_remove_dead(void);

/** bt_own_dir_remove() */
void bt_run_dir_remove(bt_run_dir_t *dir);

#endif
