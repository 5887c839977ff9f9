/* SPDX-License-Identifier: Apache-2.0 */
/** @file hosts.h
 *
 * Checks the host names and origins of requests. A foreign web page can make a
 * browser send requests to any address, loopback included; if its name then
 * resolves to that address (DNS rebinding) it can read the answers too. Such a
 * request shows its source: its Host or its Origin is the page's name. Accepted
 * are:
 *
 *     Host    (:authority) a literal address, localhost, *.localhost, this
 *             machine's name, a name that the server was bound to, or one of
 *             --allowed-hosts
 *     Origin  as Host, but of literal addresses only loopback ones, the Host
 *             itself, and --allowed-hosts; "null" is refused
 *
 * Programs other than browsers send no Origin; a request of HTTP/1.0 may have
 * no Host.
 *
 * Threads: pure functions, but for bt_hosts_init().
 * Source:  RFC 6454, 6.2 (serialised origins), RFC 6761, 6.3 (localhost).
 */
#ifndef BT_ROUTER_NET_HOSTS_H
#define BT_ROUTER_NET_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#define BT_HOSTS_NAME_BYTES 256 /**< bytes of a name, with the zero byte */
#define BT_HOSTS_MAX_OWN    5   /**< this machine's (2) and three ports' */

typedef struct bt_hosts {
    /** Allowed names, comma separated, borrowed: names, "*.name" for all below
     *  it, "*" for anything. */
    const char *allowed;
    char own[BT_HOSTS_MAX_OWN][BT_HOSTS_NAME_BYTES];
    uint32_t n_own;
} bt_hosts_t;

/** Sets the allowed names and this machine's name, also without its domain. */
void bt_hosts_init(bt_hosts_t *hosts, const char *allowed);
/** Adds an own name of the server: a name that it was bound to. */
void bt_hosts_add_own(bt_hosts_t *hosts, const char *name);
/** True when this is a valid list for bt_hosts_check().
 *  @param [out] bad  the invalid entry, on failure */
bool bt_hosts_are_valid(const char *allowed, char bad[BT_HOSTS_NAME_BYTES]);

/** Checks the host name of a request. @param [in] host  NULL: the client sends
 *  none
 *  @return NULL, or why the request is refused: one sentence, static. */
const char *bt_hosts_check(const bt_hosts_t *hosts, const char *host);
/** Checks the page that a request comes from. @param [in] host  accepted by
 *  bt_hosts_check(), or NULL
 *  @return NULL, or why the request is refused: one sentence, static. */
const char *bt_hosts_check_origin(const bt_hosts_t *hosts, const char *origin,
                                  const char *host);
/** Checks a request without an Origin: browsers send such requests for
 *  pictures, scripts and frames of any page, and mark them in other headers.
 *  @param [in] site  Sec-Fetch-Site, or NULL
 *  @param [in] dest  Sec-Fetch-Dest, or NULL
 *  @return NULL, or why the request is refused: one sentence, static. */
const char *bt_hosts_check_fetch(const bt_hosts_t *hosts, const char *site,
                                 const char *dest);

#endif
