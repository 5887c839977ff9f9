/* SPDX-License-Identifier: Apache-2.0 */
/** @file run_dir.h
 *
 * Private directory of one run (common/base/files.h): the processes'
 * sockets, and the file with the random cluster key (mode 0600).
 *
 * Shared port: one for all routers of a launch (--reuse-http-port); the kernel
 * distributes connections over all listeners of the port, including those of
 * another launch.
 */
#ifndef BT_LAUNCHER_RUN_DIR_H
#define BT_LAUNCHER_RUN_DIR_H

#include <stdbool.h>

#include "common/base/files.h"
#include "common/base/status.h"
#include "common/config/config.h"

#define BT_RUN_DIR_BYTES 64 /**< a whole socket path has 108 bytes */

typedef struct bt_run_dir {
    char path[BT_RUN_DIR_BYTES];
    char key_file[BT_RUN_DIR_BYTES + 16];
    bt_own_dir_t own;
    bool is_broken; /**< cannot be restored, which was logged */
    int key_fd; /**< owned; descriptor of the key file, whose contents outlive
                   its name */
} bt_run_dir_t;

/** Creates the directory under $XDG_RUNTIME_DIR or $TMPDIR if that is short
 *  enough, writable and without control characters in its name, else under
 *  /tmp.
 *  @retval BT_ERR_IO  Logged. */
BT_MUST_CHECK bt_status_t bt_run_dir_create(bt_run_dir_t *dir);

/** Restores the directory, its lock or the key file if one was removed (a
 *  logout removes $XDG_RUNTIME_DIR), with the old path and key, so that
 *  processes can start. Logs that, once.
 *  @retval BT_ERR_IO  It cannot be made now; logged, once. */
BT_MUST_CHECK bt_status_t bt_run_dir_restore(bt_run_dir_t *dir);

/** True when the directory is removed at the end of the user's session, and the
 *  user may not run processes while logged out (loginctl enable-linger). */
bool bt_run_dir_ends_with_session(const bt_run_dir_t *dir);

/** Calls @a fn for each directory of this user made by bt_run_dir_create(),
 *  including those that killed launchers left behind. */
void bt_run_dir_each(bt_own_dir_fn fn, void *arg);

/** Removes, and logs, directories left behind by dead launchers, or by dead
 *  workers without a launcher. */
void bt_run_dir_remove_dead(void);

/** Removes the directory by bt_own_dir_remove(). */
void bt_run_dir_remove(bt_run_dir_t *dir);

/** Checks that no process listens at the port of --http yet, if it is to be
 *  shared. Call before our own routers start. @retval any of
 *  bt_status_of_bind() logged */
BT_MUST_CHECK bt_status_t bt_reuseport_check(const bt_config_t *config);

#endif
