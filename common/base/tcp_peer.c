/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/tcp_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"

/* ---- addresses ---- */

uint16_t bt_tcp_port(const struct sockaddr_storage *addr)
{
    switch (addr->ss_family) {
    case AF_INET:
        return ((const struct sockaddr_in *)addr)->sin_port;
    case AF_INET6:
        return ((const struct sockaddr_in6 *)addr)->sin6_port;
    default:
        return 0;
    }
}

static void unmap(struct sockaddr_storage *addr)
{
    const struct sockaddr_in6 six = *(const struct sockaddr_in6 *)addr;
    struct sockaddr_in *four = (struct sockaddr_in *)addr;

    if ((addr->ss_family != AF_INET6) ||
        !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) {
        return;
    }
    memset(addr, 0, sizeof(*addr));
    four->sin_family = AF_INET;
    four->sin_port = six.sin6_port;
    memcpy(&four->sin_addr, six.sin6_addr.s6_addr + 12, sizeof(four->sin_addr));
}

bool bt_tcp_ends_of(int fd, bt_tcp_ends_t *ends_p)
{
    bt_tcp_ends_t ends = {0};
    socklen_t ours = sizeof(ends.ours);
    socklen_t theirs = sizeof(ends.theirs);

    if ((getsockname(fd, (struct sockaddr *)&ends.ours, &ours) != 0) ||
        (bt_tcp_port(&ends.ours) == 0) ||
        (getpeername(fd, (struct sockaddr *)&ends.theirs, &theirs) != 0)) {
        return false;
    }
    unmap(&ends.ours);
    unmap(&ends.theirs);
    *ends_p = ends;
    return true;
}

bool bt_tcp_is_local(const bt_tcp_ends_t *ends)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)&ends->theirs;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)&ends->ours;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)&ends->theirs;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)&ends->ours;

    if (ends->theirs.ss_family == AF_INET) {
        return ((ntohl(a4->sin_addr.s_addr) >> 24) == 127) ||
               (a4->sin_addr.s_addr == b4->sin_addr.s_addr);
    }
    return memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

/* ---- the other socket ---- */

/* As in /proc/net/tcp: the words of the address as they are in memory. */
static void print_end(const struct sockaddr_storage *addr, char out[64])
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)addr;
    uint32_t words[4];

    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)addr;

        snprintf(out, 64, "%08X:%04X", four->sin_addr.s_addr,
                 ntohs(four->sin_port));
        return;
    }
    memcpy(words, &six->sin6_addr, sizeof(words));
    snprintf(out, 64, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2],
             words[3], ntohs(six->sin6_port));
}

static void put_address(const struct sockaddr_storage *addr, __be32 out[4],
                        __be16 *port_p)
{
    *port_p = bt_tcp_port(addr);
    if (addr->ss_family == AF_INET) {
        out[0] = ((const struct sockaddr_in *)addr)->sin_addr.s_addr;
    } else {
        memcpy(out, &((const struct sockaddr_in6 *)addr)->sin6_addr,
               4 * sizeof(out[0]));
    }
}

/* The kernel's answer about one socket (sock_diag(7)). */
typedef union answer {
    struct nlmsghdr head;
    uint8_t bytes[4096];
} answer_t;

/* @return bytes of the answer, or less than 1 */
static ssize_t ask_kernel(const bt_tcp_ends_t *ends, answer_t *answer)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } ask = {
        .head = {.nlmsg_len = sizeof(ask),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = (uint8_t)ends->theirs.ss_family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    const int fd =
        socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    ssize_t n = -1;

    put_address(&ends->theirs, ask.body.id.idiag_src, &ask.body.id.idiag_sport);
    put_address(&ends->ours, ask.body.id.idiag_dst, &ask.body.id.idiag_dport);
    if ((fd >= 0) && (send(fd, &ask, sizeof(ask), 0) == sizeof(ask))) {
        n = recv(fd, answer, sizeof(*answer), 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return n;
}

/* @return false: the kernel does not say; *found_p otherwise */
static bool ask_for_peer(const bt_tcp_ends_t *ends, bt_tcp_peer_t *peer_p,
                         bool *found_p)
{
    answer_t answer;
    const struct inet_diag_msg *msg = NLMSG_DATA(&answer.head);
    const struct nlmsgerr *error = NLMSG_DATA(&answer.head);
    const ssize_t n = ask_kernel(ends, &answer);

    if (n < (ssize_t)NLMSG_LENGTH(sizeof(*error))) {
        return false;
    }
    if (answer.head.nlmsg_type == NLMSG_ERROR) {
        *found_p = false;
        return error->error == -ENOENT;
    }
    if ((answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY) ||
        (n < (ssize_t)NLMSG_LENGTH(sizeof(*msg)))) {
        return false;
    }
    *peer_p = (bt_tcp_peer_t){.uid = msg->idiag_uid, .inode = msg->idiag_inode};
    *found_p = msg->idiag_inode != 0; /* 0: no longer open in any process */
    return true;
}

/* Finds the peer in /proc/net/tcp, if sock_diag is unavailable. @return
 * false: not on this host, or just closed */
static bool look_for_peer(const bt_tcp_ends_t *ends, bt_tcp_peer_t *peer_p)
{
    const char *path = (ends->theirs.ss_family == AF_INET)
                           ? "/proc/self/net/tcp"
                           : "/proc/self/net/tcp6";
    BT_CLEANUP(fclose) FILE *const file = fopen(path, "re");
    char ours[64], theirs[64], local[64], remote[64];
    char line[512];
    bool found = false;

    if (file == NULL) {
        return false;
    }
    print_end(&ends->ours, ours);
    print_end(&ends->theirs, theirs);
    while (!found && (fgets(line, sizeof(line), file) != NULL)) {
        unsigned long uid, inode;

        found =
            (sscanf(line, " %*d: %63s %63s %*x %*x:%*x %*x:%*x %*x %lu %*d %lu",
                    local, remote, &uid, &inode) == 4) &&
            (strcmp(local, theirs) == 0) && (strcmp(remote, ours) == 0) &&
            (inode != 0);
        if (found) {
            *peer_p = (bt_tcp_peer_t){.uid = (uint32_t)uid, .inode = inode};
        }
    }
    return found;
}

bool bt_tcp_peer_find(const bt_tcp_ends_t *ends, bt_tcp_peer_t *peer_p)
{
    bool found = false;

    return ask_for_peer(ends, peer_p, &found) ? found
                                              : look_for_peer(ends, peer_p);
}

bool bt_tcp_peer_is_own_or_root(int fd)
{
    bt_tcp_ends_t ends;
    bt_tcp_peer_t peer;

    return bt_tcp_ends_of(fd, &ends) && bt_tcp_is_local(&ends) &&
           bt_tcp_peer_find(&ends, &peer) &&
           ((peer.uid == geteuid()) || (peer.uid == 0));
}
