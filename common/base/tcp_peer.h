/* SPDX-License-Identifier: Apache-2.0 */
/** @file tcp_peer.h
 *
 * Whose the other end of a TCP connection is, where that is on this host. The
 * kernel is asked for the other socket (sock_diag(7); /proc/net/tcp where it
 * cannot be): it knows its user and its inode, whatever the peer says.
 *
 *     ours 127.0.0.1:8000 <-> theirs 127.0.0.1:40112  ─▶ user 1000, inode 77
 *
 * Needs no privilege. A socket of another network namespace, or of another
 * host, is not found. Addresses of IPv4 that a socket of IPv6 shows (RFC 4291,
 * 2.5.5.2) are taken as those of IPv4, which the other socket has.
 *
 * Threads: any; these functions share nothing.
 */
#ifndef BT_COMMON_BASE_TCP_PEER_H
#define BT_COMMON_BASE_TCP_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct bt_tcp_ends {
    struct sockaddr_storage ours, theirs;
} bt_tcp_ends_t;

typedef struct bt_tcp_peer {
    uint32_t uid;   /**< who made the socket */
    uint64_t inode; /**< as in the links of /proc/PID/fd: "socket:[inode]" */
} bt_tcp_peer_t;

/** In the order of the network; 0: it is no address of IP. */
uint16_t bt_tcp_port(const struct sockaddr_storage *addr);
/** @return false: @a fd is no connected socket of IP */
bool bt_tcp_ends_of(int fd, bt_tcp_ends_t *ends_p);
/** Both ends have addresses of this host: loopback, or the same one. */
bool bt_tcp_is_local(const bt_tcp_ends_t *ends);
/** @return false: it is not on this host, nobody has it open any more, or the
 *  kernel does not say */
bool bt_tcp_peer_find(const bt_tcp_ends_t *ends, bt_tcp_peer_t *peer_p);
/** Is the other end a socket on this host, of this process' effective user or
 *  of root? */
bool bt_tcp_peer_is_own_or_root(int fd);

#endif
