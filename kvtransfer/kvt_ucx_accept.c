/* SPDX-License-Identifier: Apache-2.0 */
/* Who of this host may connect. UCX 1.13.1 believes the first bytes that come
 * over a connection: 300 of 0xff end the process (an assertion of
 * tcp_sockcm_ep.c). From other hosts only peers get in (kvt_ucx_door.c). Of
 * this host everybody has the same address, but each process has a user and a
 * program: whoever is of another user, or runs another program than Baton's,
 * is disconnected before UCX reads anything.
 *
 * UCX has no place to ask for that, so accept() of this file stands in front
 * of libc's: the linker takes it for all that is loaded. It does what libc's
 * does for every socket that is not UCX's. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define PROGRAMS "baton-" /* what their names begin with */

#define GUARDED_MAX 64u

/* Ports of UCX's listeners, in the order of the network; 0: none. */
static _Atomic uint32_t guarded[GUARDED_MAX];
#define PORT    0xffffu
#define CLOSING 0x10000u /* nobody comes in there any more */

static _Atomic uint32_t n_accepting; /* calls, of all sockets */

/* Processes that a connection came from: a peer has several. */
#define KNOWN_MAX 64u
static _Atomic int32_t known[KNOWN_MAX];
static _Atomic uint32_t n_known;

/* accept(2). It has another name in C, since libc's declaration has a type of
 * its own for the address. */
int bt_kvt_ucx_accept(int fd, struct sockaddr *addr,
                      socklen_t *len) __asm__("accept")
    __attribute__((visibility("default"), used));

typedef struct ends {
    struct sockaddr_storage ours, theirs;
} ends_t;

static uint16_t port_of(const struct sockaddr_storage *addr)
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

/* @return what is guarded at the port of the socket; 0: nothing */
static uint32_t guard_of(int fd, ends_t *ends_p)
{
    socklen_t ours = sizeof(ends_p->ours);
    socklen_t theirs = sizeof(ends_p->theirs);
    uint16_t port;

    memset(ends_p, 0, sizeof(*ends_p));
    if ((getsockname(fd, (struct sockaddr *)&ends_p->ours, &ours) != 0) ||
        ((port = port_of(&ends_p->ours)) == 0)) {
        return 0;
    }
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        const uint32_t guard = atomic_load(&guarded[i]);

        if ((guard & PORT) == port) {
            return (getpeername(fd, (struct sockaddr *)&ends_p->theirs,
                                &theirs) == 0)
                       ? guard
                       : 0;
        }
    }
    return 0;
}

uint16_t bt_kvt_ucx_port_of(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t bytes = sizeof(addr);

    return (getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0)
               ? port_of(&addr)
               : 0;
}

void bt_kvt_ucx_accept_set(uint16_t port, bt_kvt_ucx_guard_t guard)
{
    if (port == 0) {
        return;
    }
    for (size_t i = 0; i < GUARDED_MAX; i++) {
        uint32_t was = atomic_load(&guarded[i]);
        const bool is_it =
            (guard == BT_KVT_UCX_GUARDED) ? (was == 0) : ((was & PORT) == port);

        if (is_it &&
            atomic_compare_exchange_strong(
                &guarded[i], &was,
                (guard == BT_KVT_UCX_OPEN)
                    ? 0
                    : port | ((guard == BT_KVT_UCX_CLOSING) ? CLOSING : 0))) {
            return;
        }
    }
}

bool bt_kvt_ucx_accept_is_idle(void)
{
    return atomic_load(&n_accepting) == 0;
}

/* ---- the other end, if it is on this host ---- */

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

typedef struct other_end {
    unsigned long uid, inode;
} other_end_t;

static void put_address(const struct sockaddr_storage *addr, __be32 out[4],
                        __be16 *port_p)
{
    *port_p = port_of(addr);
    if (addr->ss_family == AF_INET) {
        out[0] = ((const struct sockaddr_in *)addr)->sin_addr.s_addr;
    } else {
        memcpy(out, &((const struct sockaddr_in6 *)addr)->sin6_addr,
               4 * sizeof(out[0]));
    }
}

/* What the kernel answers when it is asked for one socket (sock_diag(7)). */
typedef union answer {
    struct nlmsghdr head;
    uint8_t bytes[4096];
} answer_t;

/* @return bytes of the answer, or less than 1 */
static ssize_t ask_kernel(const ends_t *ends, answer_t *answer)
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
static bool ask_for_other_end(const ends_t *ends, other_end_t *end_p,
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
    *end_p = (other_end_t){.uid = msg->idiag_uid, .inode = msg->idiag_inode};
    *found_p = msg->idiag_inode != 0; /* 0: nobody has it any more */
    return true;
}

/* The same where the kernel cannot be asked.
 * @return false: it is not on this host, or has just been closed */
static bool look_for_other_end(const ends_t *ends, other_end_t *end_p)
{
    const char *path = (ends->theirs.ss_family == AF_INET)
                           ? "/proc/self/net/tcp"
                           : "/proc/self/net/tcp6";
    FILE *file = fopen(path, "re");
    char ours[64], theirs[64], local[64], remote[64];
    char line[512];
    bool found = false;

    if (file == NULL) {
        return false;
    }
    print_end(&ends->ours, ours);
    print_end(&ends->theirs, theirs);
    while (!found && (fgets(line, sizeof(line), file) != NULL)) {
        other_end_t end;

        found =
            (sscanf(line, " %*d: %63s %63s %*x %*x:%*x %*x:%*x %*x %lu %*d %lu",
                    local, remote, &end.uid, &end.inode) == 4) &&
            (strcmp(local, theirs) == 0) && (strcmp(remote, ours) == 0) &&
            (end.inode != 0);
        if (found) {
            *end_p = end;
        }
    }
    fclose(file);
    return found;
}

static bool is_local(const ends_t *ends)
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

/* ---- whose it is ---- */

/* @return false: there is none, or it cannot be looked at */
static bool program_of(const char *pid, char *out, size_t bytes)
{
    char path[64];
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%.20s/exe", pid);
    n = readlink(path, out, bytes - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    return true;
}

static bool has_socket(const char *pid, const char *socket)
{
    char path[64];
    char link[64];
    const struct dirent *entry;
    bool has = false;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    dir = opendir(path);
    while (!has && (dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const ssize_t n =
            readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

        link[(n > 0) ? n : 0] = '\0';
        has = strcmp(link, socket) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return has;
}

/* This program, or another one of Baton's. */
static bool is_program(const char *pid, const char *own)
{
    char program[512];
    const char *name;

    if (!program_of(pid, program, sizeof(program))) {
        return false;
    }
    name = strrchr(program, '/');
    name = (name == NULL) ? program : name + 1;
    return (strcmp(program, own) == 0) ||
           (strncmp(name, PROGRAMS, strlen(PROGRAMS)) == 0);
}

/* The number of one that ended may be another's by now. */
static bool is_known(const char *socket, const char *own)
{
    for (size_t i = 0; i < KNOWN_MAX; i++) {
        const int32_t pid = atomic_load(&known[i]);
        char name[16];

        snprintf(name, sizeof(name), "%d", pid);
        if ((pid != 0) && is_program(name, own) && has_socket(name, socket)) {
            return true;
        }
    }
    return false;
}

/* @param own  NULL: processes of any program
 * @return whether one of them has the socket */
static bool is_held(const char *socket, const char *own)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    bool is = false;

    while (!is && (dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        is = (entry->d_name[0] >= '1') && (entry->d_name[0] <= '9') &&
             ((own == NULL) || is_program(entry->d_name, own)) &&
             has_socket(entry->d_name, socket);
        if (is && (own != NULL)) {
            atomic_store(&known[atomic_fetch_add(&n_known, 1) % KNOWN_MAX],
                         (int32_t)strtol(entry->d_name, NULL, 10));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return is;
}

/* @return false: it is not on this host, or has just been closed */
static bool find_other_end(const ends_t *ends, other_end_t *end_p)
{
    bool found = false;

    return ask_for_other_end(ends, end_p, &found)
               ? found
               : look_for_other_end(ends, end_p);
}

/* Nearly all who come are Baton's: their programs are looked at before
 * anybody's descriptors. A socket that nobody has here, and that is still open
 * then, is in another PID namespace: a container of the same user. */
static bool may_connect(const ends_t *ends)
{
    other_end_t end = {0};
    char socket[64], own[512];

    if (!is_local(ends)) {
        return true; /* the filter let it pass */
    }
    if (!find_other_end(ends, &end) || (end.uid != (unsigned long)geteuid())) {
        return false;
    }
    snprintf(socket, sizeof(socket), "socket:[%lu]", end.inode);
    return !program_of("self", own, sizeof(own)) || is_known(socket, own) ||
           is_held(socket, own) ||
           (!is_held(socket, NULL) && find_other_end(ends, &end));
}

int bt_kvt_ucx_accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    ends_t ends;
    uint32_t guard;
    int got;

    atomic_fetch_add(&n_accepting, 1);
    got = (int)syscall(SYS_accept4, fd, addr, len, 0);
    guard = (got >= 0) ? guard_of(got, &ends) : 0;
    if (((guard & CLOSING) != 0) || ((guard != 0) && !may_connect(&ends))) {
        close(got);
        errno = EAGAIN; /* as where a client has gone before it was accepted */
        got = -1;
    }
    atomic_fetch_sub(&n_accepting, 1);
    return got;
}
