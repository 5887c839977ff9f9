/* SPDX-License-Identifier: Apache-2.0 */
/** @file rendezvous.h
 *
 * Router discovery through a shared directory (--join-dir): each router has a
 * file there with the URL of its control port.
 *
 *     router ── publish ─▶ DIR/<hash of the URL>.router ─▶ scan ── worker
 *            ── withdraw (removes it)
 *
 * A file appears atomically. One URL has one file name, so a router that was
 * killed and restarts at its address overwrites its old file; stale files of
 * others are harmless: nothing answers there, and a new listener must prove the
 * cluster key. Other files are skipped.
 *
 * Threads: any; a call may block for as long as the file system does
 *          (bt_rendezvous_watch_open() has a thread of its own).
 */
#ifndef BT_COMMON_RENDEZVOUS_RENDEZVOUS_H
#define BT_COMMON_RENDEZVOUS_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_RENDEZVOUS_URL_BYTES  512 /**< with the zero byte */
#define BT_RENDEZVOUS_MAX        64  /**< routers of one directory */
#define BT_RENDEZVOUS_PATH_BYTES 4096

/** File of this router. All zero: none. */
typedef struct bt_rendezvous {
    char path[BT_RENDEZVOUS_PATH_BYTES];
    char url[BT_RENDEZVOUS_URL_BYTES];
} bt_rendezvous_t;

/** Routers found, by ascending URL. */
typedef struct bt_rendezvous_list {
    uint32_t n;
    uint32_t n_passed; /**< skipped: router files without a URL, or too many */
    char urls[BT_RENDEZVOUS_MAX][BT_RENDEZVOUS_URL_BYTES];
} bt_rendezvous_list_t;

/** True when peers can use the URL: not an address of all interfaces, nor
 *  port 0. */
bool bt_rendezvous_is_url(const char *url);

/**
 * Publishes this router's URL.
 * @param [in] url  see bt_rendezvous_is_url()
 * @retval BT_ERR_INVALID_PARAM  not such a URL, or a path is too long
 * @retval BT_ERR_IO             errno has the reason
 */
BT_MUST_CHECK bt_status_t bt_rendezvous_publish(const char *dir,
                                                const char *url,
                                                bt_rendezvous_t *entry_p);
/** Removes the file. Call while the port is still ours, because the next
 *  router there writes the file with this name. No effect when repeated, or
 *  when all zero. */
void bt_rendezvous_withdraw(bt_rendezvous_t *entry);

/** Lists the routers of a directory. @retval BT_ERR_IO  the directory cannot
 *  be read; errno has the reason */
BT_MUST_CHECK bt_status_t bt_rendezvous_scan(const char *dir,
                                             bt_rendezvous_list_t *list_p);

/*
 * Polls a directory of routers, from its own thread: a file system that hangs
 * (an unreachable NFS server) must not block the caller.
 *
 *     thread: scan ─▶ differs from the last? ─▶ kept ─▶ take (owner's thread)
 *                ▲ every BT_WATCH_MS
 *
 * An unreadable directory leaves the known list unchanged; that is logged once,
 * until it is readable again.
 */

#define BT_WATCH_MS 500

typedef struct bt_rendezvous_watch bt_rendezvous_watch_t;

/**
 * Starts polling a directory.
 * @param [in] dir  copied.
 * @retval BT_ERR_NO_MEMORY  also for a thread
 */
BT_MUST_CHECK bt_status_t
bt_rendezvous_watch_open(const char *dir, bt_rendezvous_watch_t **watch_p);
/**
 * Takes the list if it has changed. Never blocks. @return false: unchanged, and
 * @a list_p is untouched
 */
bool bt_rendezvous_watch_take(bt_rendezvous_watch_t *watch,
                              bt_rendezvous_list_t *list_p);
/** Stops polling. Waits a second at most for a file system that hangs. NULL
 *  is allowed. */
void bt_rendezvous_watch_close(bt_rendezvous_watch_t *watch);

#endif
