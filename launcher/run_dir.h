/* SPDX-License-Identifier: Apache-2.0 */
/** @file run_dir.h
 *
 * A private directory (mode 0700) for one run: the processes' sockets, the file
 * with the random cluster key (mode 0600), and `lock`, which the launcher holds
 * (flock) for as long as it lives. The lock says which directory it belongs to,
 * by device and inode: a copy of a run directory, or another folder with such a
 * name, is none.
 */
#ifndef BT_LAUNCHER_RUN_DIR_H
#define BT_LAUNCHER_RUN_DIR_H

#include "common/base/status.h"

#define BT_RUN_DIR_BYTES 64 /**< a socket's whole path has only 108 */

typedef struct bt_run_dir {
    char path[BT_RUN_DIR_BYTES];
    char key_file[BT_RUN_DIR_BYTES + 16];
    int lock_fd; /**< owned; -1: the file system has no locks */
} bt_run_dir_t;

/** Under $XDG_RUNTIME_DIR or $TMPDIR where that is short enough and writable,
 *  else under /tmp.
 *  @retval BT_ERR_IO  Logged. */
BT_MUST_CHECK bt_status_t bt_run_dir_create(bt_run_dir_t *dir);

/** @param [in] path  A directory that may be one of a run. */
typedef void (*bt_run_dir_fn)(void *arg, const char *path);

/** Call @a fn for each directory of this user where bt_run_dir_create() makes
 *  them; also for those that a killed launcher left behind. */
void bt_run_dir_each(bt_run_dir_fn fn, void *arg);

/** Remove those that launchers left behind that are dead: of this user, with
 *  their own `lock` that nobody holds. Says so. */
void bt_run_dir_remove_dead(void);

/** Remove what a launcher and its processes make in the directory (key, lock,
 *  cores, sockets, directories of sockets), then the directory. Where anything
 *  else is in it, that and the directory stay, and a warning says so. */
void bt_run_dir_remove(bt_run_dir_t *dir);

#endif
