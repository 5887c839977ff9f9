/* SPDX-License-Identifier: Apache-2.0 */
/** @file tcp_peer.h
 *
 * Finds the owner of the other end of a TCP connection, if it is on this host.
 * The kernel is asked for the other socket (sock_diag(7); /proc/net/tcp as
 * fallback): it knows its user and its inode, whatever the peer claims.
 *
 *     ours 127.0.0.1:8000 <-> theirs 127.0.0.1:40112  ─▶ user 1000, inode 77
 *
 * Needs no privilege. A socket of another network namespace, or of another
 * host, is not found. IPv4-mapped addresses of an IPv6 socket (RFC 4291,
 * 2.5.5.2) are treated as IPv4 addresses, which the other socket has.
 *
 * Threads: any; these functions share nothing.
 */
#ifndef BT_COMMON_BASE_TCP_PEER_H
#define BT_COMMON_BASE_TCP_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/** Addresses of both ends of a connection. */
typedef struct bt_tcp_ends {
    struct sockaddr_storage ours, theirs;
} bt_tcp_ends_t;

/** Owner of the other end. */
typedef struct bt_tcp_peer {
    uint32_t uid;   /**< user that created the socket */
    uint64_t inode; /**< as in the links of /proc/PID/fd: "socket:[inode]" */
} bt_tcp_peer_t;

/** Returns the port in network byte order; 0: not an IP address. */
uint16_t bt_tcp_port(const struct sockaddr_storage *addr);
/** Reads the addresses of a connected socket. @return false: @a fd is no
 *  connected IP socket */
bool bt_tcp_ends_of(int fd, bt_tcp_ends_t *ends_p);
/** True when both ends have addresses of this host: loopback, or one and the
 *  same. */
bool bt_tcp_is_local(const bt_tcp_ends_t *ends);
/** Finds the other end. @return false: not on this host, not open any more,
 *  or unknown to the kernel */
bool bt_tcp_peer_find(const bt_tcp_ends_t *ends, bt_tcp_peer_t *peer_p);
/** True when the other end is a socket on this host, of this process'
 *  effective user or of root. */
bool bt_tcp_peer_is_own_or_root(int fd);

#endif
