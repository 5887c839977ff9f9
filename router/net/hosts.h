/* SPDX-License-Identifier: Apache-2.0 */
/** @file hosts.h
 *
 * Under which names clients may speak to the server. A page of somebody else's
 * can make a browser send requests to any address, loopback included; when its
 * name then resolves to that address (DNS rebinding) it can read the answers
 * too. Such a request says where it comes from: its Host is the page's name,
 * or its Origin is.
 *
 *     Host    (:authority) a literal address, localhost, *.localhost, this
 * machine's name, a name that a server was bound to, one of --allowed-hosts
 *     Origin  the same, but of literal addresses only those of loopback, the
 *             Host itself, and those of --allowed-hosts; "null" is none
 *
 * Programs that are no browsers send no Origin; a request of HTTP/1.0 may have
 * no Host.
 *
 * Threads: pure functions, but for bt_hosts_init().
 * Source: RFC 6454, 6.2 (serialised origins), RFC 6761, 6.3 (localhost).
 */
#ifndef BT_ROUTER_NET_HOSTS_H
#define BT_ROUTER_NET_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define BT_HOSTS_NAME_BYTES 256 /**< of a name, with the zero byte */
#define BT_HOSTS_MAX_OWN    5   /**< of this machine (2) and of three ports */

typedef struct bt_hosts {
    /** Comma separated, borrowed: names, "*.name" for all below it, "*" for
     *  anything. */
    const char *allowed;
    char own[BT_HOSTS_MAX_OWN][BT_HOSTS_NAME_BYTES];
    uint32_t n_own;
} bt_hosts_t;

/** The names that are given, and this machine's, also without its domain. */
void bt_hosts_init(bt_hosts_t *hosts, const char *allowed);
/** One more of the server's own: a name that it was bound to. */
void bt_hosts_add_own(bt_hosts_t *hosts, const char *name);
/** Is this a list that bt_hosts_check() understands?
 *  @param [out] bad  the entry that is none, on failure */
bool bt_hosts_are_valid(const char *allowed, char bad[BT_HOSTS_NAME_BYTES]);

/** By which name it is called. @param [in] host  NULL: the client says none
 *  @return NULL, or why the request is refused: one sentence, static. */
const char *bt_hosts_check(const bt_hosts_t *hosts, const char *host);
/** Whose page it comes from. @param [in] host  that passes, or NULL
 *  @return the same */
const char *bt_hosts_check_origin(const bt_hosts_t *hosts, const char *origin,
                                  const char *host);
/** A request without an Origin: browsers send such for pictures, scripts and
 *  frames of any page, and say so in other headers.
 *  @param [in] site  Sec-Fetch-Site, or NULL
 *  @param [in] dest  Sec-Fetch-Dest, or NULL
 *  @return the same */
const char *bt_hosts_check_fetch(const bt_hosts_t *hosts, const char *site,
                                 const char *dest);

#endif
