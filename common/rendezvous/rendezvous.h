/* SPDX-License-Identifier: Apache-2.0 */
/** @file rendezvous.h
 *
 * How workers find routers by a directory that all of them see (--join-dir):
 * each router has a file there with the URL of its control port.
 *
 *     router ── publish ─▶ DIR/<hash of the URL>.router ─▶ scan ── worker
 *            ── withdraw (removes it)
 *
 * A file appears whole or not at all. One URL has one name, so a router that
 * was killed and comes back at its place writes over what it left; what is left
 * of others does no harm: nobody answers there, and who does must prove the
 * cluster key. What is no file of ours is passed over.
 *
 * Threads: any; a call may wait for the file system as long as that likes
 * (watch.h looks from a thread of its own).
 */
#ifndef BT_COMMON_RENDEZVOUS_RENDEZVOUS_H
#define BT_COMMON_RENDEZVOUS_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_RENDEZVOUS_URL_BYTES  512 /**< with the zero byte */
#define BT_RENDEZVOUS_MAX        64  /**< routers of one directory */
#define BT_RENDEZVOUS_PATH_BYTES 4096

/** A router's own file. All zero: none. */
typedef struct bt_rendezvous {
    char path[BT_RENDEZVOUS_PATH_BYTES];
    char url[BT_RENDEZVOUS_URL_BYTES];
} bt_rendezvous_t;

/** Routers that were found, by ascending URL. */
typedef struct bt_rendezvous_list {
    uint32_t n;
    uint32_t n_passed; /**< files of this kind that say no URL, or too many */
    char urls[BT_RENDEZVOUS_MAX][BT_RENDEZVOUS_URL_BYTES];
} bt_rendezvous_list_t;

/** Can who is elsewhere use it? Not an address of all interfaces, nor port 0.
 */
bool bt_rendezvous_is_url(const char *url);

/**
 * @param [in] url  as bt_rendezvous_is_url() has it
 * @retval BT_ERR_INVALID_PARAM  it is not, or a path is too long
 * @retval BT_ERR_IO             errno says why
 */
BT_MUST_CHECK bt_status_t bt_rendezvous_publish(const char *dir,
                                                const char *url,
                                                bt_rendezvous_t *place_p);
/** Remove it: while the port is still ours, for the next one there writes the
 *  same file. Again, or of one all zero: nothing. */
void bt_rendezvous_withdraw(bt_rendezvous_t *place);

/** @retval BT_ERR_IO  the directory cannot be read; errno says why */
BT_MUST_CHECK bt_status_t bt_rendezvous_scan(const char *dir,
                                             bt_rendezvous_list_t *list_p);

#endif
