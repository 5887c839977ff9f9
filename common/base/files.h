/* SPDX-License-Identifier: Apache-2.0 */
/** @file files.h
 *
 * Private directories, and whole files of bounded size.
 */
#ifndef BT_COMMON_BASE_FILES_H
#define BT_COMMON_BASE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/*
 * Private directory (mode 0700) of a process. If the process dies without
 * removing it, the next process does. Its name is `baton-` and six letters or
 * digits, which any directory may have, so the directory itself shows its
 * owner:
 *
 *     created     mode 01700: no other program makes such a directory
 *     locked      the file `lock` in it, held (flock) by the process that
 *                 created it; names the directory by device and inode: a
 *                 copy, or another folder with such a name, does not match
 *     in use      mode 0700
 *
 * A process killed in between leaves a directory that can be identified as
 * well. Only files that Baton's processes create in it are removed, by name and
 * kind; anything else stays.
 */

#define BT_OWN_DIR_BYTES 96 /**< a socket's whole path has only 108 */

/** Private directory. */
typedef struct bt_own_dir {
    char path[BT_OWN_DIR_BYTES];
    int lock_fd; /**< owned; -1: the file system has no locks */
    int dir_fd; /**< owned; locked (shared), which keeps systemd-tmpfiles out */
} bt_own_dir_t;

/**
 * Creates a directory in @a parent.
 * @retval BT_ERR_TOO_LARGE  the path exceeds BT_OWN_DIR_BYTES
 * @retval BT_ERR_IO         errno has the reason
 */
BT_MUST_CHECK bt_status_t bt_own_dir_create(const char *parent,
                                            bt_own_dir_t *dir);

/** True when the directory is still where it was created, with its lock. */
bool bt_own_dir_is_whole(const bt_own_dir_t *dir);

/**
 * Creates the directory again, under its old path, after it or its lock was
 * removed.
 * @retval BT_ERR_IO  errno has the reason; @a dir is unchanged
 */
BT_MUST_CHECK bt_status_t bt_own_dir_restore(bt_own_dir_t *dir);

/**
 * Removes the files that Baton's processes create in the directory (key, lock,
 * cores, sockets, directories of sockets), then the directory. If anything else
 * is in it, that and the directory stay, and a warning is logged. A missing
 * directory is no failure.
 */
void bt_own_dir_remove(bt_own_dir_t *dir);

/**
 * Callback for a directory.
 * @param [in] path  A directory that may be a private one.
 */
typedef void (*bt_own_dir_fn)(void *arg, const char *path);

/** Calls @a fn for each directory of this user in @a parent with such a
 *  name; also for those left by killed processes. */
void bt_own_dir_each(const char *parent, bt_own_dir_fn fn, void *arg);

/** Removes private directories in @a parent that dead processes of this user
 *  left behind. Logs the removals. */
void bt_own_dir_remove_dead(const char *parent);

/*
 * Reads whole files of bounded size.
 */

/** Reads the beginning of a small file, such as one of /proc, and ends it with
 *  a zero. @return false: there is none, or it is empty */
bool bt_read_text(const char *path, char *text, size_t bytes);

/**
 * Reads the rest of a file that does not block, whatever size is reported for
 * it.
 *
 * @param [out] data  Capacity of max_bytes + 1; partly written on failure.
 * @param [out] n_p   Bytes; max_bytes + 1 when there are more than max_bytes.
 * @retval BT_ERR_IO  errno has the reason
 */
BT_MUST_CHECK bt_status_t bt_read_file(int fd, void *data, size_t max_bytes,
                                       size_t *n_p);

/** Reads bytes at an offset of a file.
 *  @retval BT_ERR_CORRUPT  it ends before; some may be read
 *  @retval BT_ERR_IO       errno has the reason */
BT_MUST_CHECK bt_status_t bt_pread_all(int fd, uint64_t offset, void *data,
                                       size_t bytes);
/** Writes all of the data to a file that blocks.
 *  @retval BT_ERR_IO  errno has the reason; some may be written */
BT_MUST_CHECK bt_status_t bt_write_all(int fd, const void *data, size_t bytes);

#endif
