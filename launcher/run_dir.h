/* SPDX-License-Identifier: Apache-2.0 */
/** @file run_dir.h
 *
 * A private directory for one run (common/base/own_dir.h): the processes'
 * sockets, and the file with the random cluster key (mode 0600).
 */
#ifndef BT_LAUNCHER_RUN_DIR_H
#define BT_LAUNCHER_RUN_DIR_H

#include <stdbool.h>

#include "common/base/own_dir.h"
#include "common/base/status.h"

#define BT_RUN_DIR_BYTES 64 /**< a socket's whole path has only 108 */

typedef struct bt_run_dir {
    char path[BT_RUN_DIR_BYTES];
    char key_file[BT_RUN_DIR_BYTES + 16];
    bt_own_dir_t own;
    bool is_broken; /**< it cannot be restored, which was said */
    int key_fd; /**< owned; of the key file: what is in it outlives its name */
} bt_run_dir_t;

/** Under $XDG_RUNTIME_DIR or $TMPDIR where that is short enough, writable and
 *  without control characters in its name, else under /tmp.
 *  @retval BT_ERR_IO  Logged. */
BT_MUST_CHECK bt_status_t bt_run_dir_create(bt_run_dir_t *dir);

/** Where somebody removed the directory, its lock or the key file (a logout
 * ends $XDG_RUNTIME_DIR), make that again, with the same path and key, so that
 * processes can start. Says so, once.
 *  @retval BT_ERR_IO  It cannot be made now; logged, once. */
BT_MUST_CHECK bt_status_t bt_run_dir_restore(bt_run_dir_t *dir);

/** Does it end with the session of its user, who may not stay when nobody is
 *  logged in (loginctl enable-linger)? */
bool bt_run_dir_ends_with_session(const bt_run_dir_t *dir);

/** Call @a fn for each directory of this user where bt_run_dir_create() makes
 *  them; also for those that a killed launcher left behind. */
void bt_run_dir_each(bt_own_dir_fn fn, void *arg);

/** Remove those that launchers, or workers without one, left behind that are
 *  dead. Says so. */
void bt_run_dir_remove_dead(void);

/** bt_own_dir_remove() */
void bt_run_dir_remove(bt_run_dir_t *dir);

#endif
