/* SPDX-License-Identifier: Apache-2.0 */
/** @file own_dir.h
 *
 * A private directory (mode 0700) that does not outlive its process for long:
 * whatever ends that, the next one removes it. Its name is `baton-` and six
 * letters or digits, which may be anybody's, so the directory itself says whose
 * it is:
 *
 *     made        mode 01700: nobody else makes such a one
 *     locked      the file `lock` in it, held (flock) by the process that made
 *                 it; says which directory it belongs to, by device and inode:
 *                 a copy, or another folder with such a name, is none
 *     own         mode 0700
 *
 * Whoever is killed in between leaves one that can be told as well. Removed is
 * what Baton's processes make in there, by name and kind; anything else stays.
 */
#ifndef BT_BASE_OWN_DIR_H
#define BT_BASE_OWN_DIR_H

#include <stdbool.h>

#include "common/base/status.h"

#define BT_OWN_DIR_BYTES 96 /**< a socket's whole path has only 108 */

typedef struct bt_own_dir {
    char path[BT_OWN_DIR_BYTES];
    int lock_fd; /**< owned; -1: the file system has no locks */
    int dir_fd; /**< owned; locked (shared), which keeps systemd-tmpfiles out */
} bt_own_dir_t;

/** Make one in @a parent.
 *  @retval BT_ERR_TOO_LARGE  its path has no room in BT_OWN_DIR_BYTES
 *  @retval BT_ERR_IO         errno says why */
BT_MUST_CHECK bt_status_t bt_own_dir_create(const char *parent,
                                            bt_own_dir_t *dir);

/** Is it still where it was made, with its lock? */
bool bt_own_dir_is_whole(const bt_own_dir_t *dir);

/** Somebody removed it, or its lock: make it again, under the same path.
 *  @retval BT_ERR_IO  errno says why; @a dir is as before */
BT_MUST_CHECK bt_status_t bt_own_dir_restore(bt_own_dir_t *dir);

/** Remove what Baton's processes make in it (key, lock, cores, sockets,
 *  directories of sockets), then the directory. Where anything else is in it,
 *  that and the directory stay, and a warning says so. One that is gone already
 *  is no failure. */
void bt_own_dir_remove(bt_own_dir_t *dir);

/** @param [in] path  A directory that may be one of these. */
typedef void (*bt_own_dir_fn)(void *arg, const char *path);

/** Call @a fn for each directory of this user in @a parent with such a name;
 *  also for those that killed processes left behind. */
void bt_own_dir_each(const char *parent, bt_own_dir_fn fn, void *arg);

/** Remove those in @a parent that dead processes of this user left behind. Says
 *  so. */
void bt_own_dir_remove_dead(const char *parent);

#endif
