/* SPDX-License-Identifier: Apache-2.0 */
/* Filter for processes of this host. UCX 1.13.1 trusts the first bytes of a
 * connection: 300 of 0xff end the process (an assertion of tcp_sockcm_ep.c).
 * From other hosts only peers can connect (kvt_ucx_door.c). All processes of
 * this host have the same address, but each has a user and a program: a process
 * of another user, or of a program other than Baton's, is disconnected before
 * UCX reads anything.
 *
 * UCX has no hook for that, so accept() of this file replaces libc's: the
 * linker uses it for all loaded libraries. For every socket that is not UCX's
 * it does what libc's does. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/tcp_peer.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define PROGRAMS "baton-" /* prefix of their names */

#define GUARDED_MAX 64u

/* Ports of UCX's listeners, in network byte order; 0: none. */
static _Atomic uint32_t guarded[GUARDED_MAX];
#define PORT    0xffffu
#define CLOSING 0x10000u /* no process may connect any more */

static _Atomic uint32_t n_accepting; /* calls in progress, of all sockets */

/* Processes that have connected: a peer has several. */
#define KNOWN_MAX 64u
static _Atomic int32_t known[KNOWN_MAX];
static _Atomic uint32_t n_known;

/* accept(2). The name in C differs, since libc's declaration has a type of its
 * own for the address. */
int bt_kvt_ucx_accept(int fd, struct sockaddr *addr,
                      socklen_t *len) __asm__("accept")
    __attribute__((visibility("default"), used));

uint16_t bt_kvt_ucx_port_of(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t bytes = sizeof(addr);

    return (getsockname(fd, (struct sockaddr *)&addr, &bytes) == 0)
               ? bt_tcp_port(&addr)
               : 0;
}

/* @return the guard at the port of the socket; 0: none */
static uint32_t guard_of(int fd, bt_tcp_ends_t *ends_p)
{
    const uint16_t port = bt_kvt_ucx_port_of(fd);

    for (size_t i = 0; (port != 0) && (i < GUARDED_MAX); i++) {
        const uint32_t guard = atomic_load(&guarded[i]);

        if ((guard & PORT) == port) {
            return bt_tcp_ends_of(fd, ends_p) ? guard : 0;
        }
    }
    return 0;
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

/* ---- whose it is ---- */

/* @return false: there is no such process, or it cannot be inspected */
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
    BT_CLEANUP(closedir) DIR *dir = NULL;
    char path[64];
    char link[64];
    const struct dirent *entry;
    bool has = false;

    snprintf(path, sizeof(path), "/proc/%.20s/fd", pid);
    dir = opendir(path);
    while (!has && (dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const ssize_t n =
            readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

        link[(n > 0) ? n : 0] = '\0';
        has = strcmp(link, socket) == 0;
    }
    return has;
}

/* True for this program, or another one of Baton's. */
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

/* The id of a process that ended may be reused by now. */
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
    BT_CLEANUP(closedir) DIR *const dir = opendir("/proc");
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
    return is;
}

/* Nearly all connections are from Baton's processes: they are checked before
 * the descriptors of all others. A socket that no process here has, and that is
 * still open then, is in another PID namespace: a container of the same user.
 */
static bool may_connect(const bt_tcp_ends_t *ends)
{
    bt_tcp_peer_t peer = {0};
    char socket[64], own[512];

    if (!bt_tcp_is_local(ends)) {
        return true; /* the filter let it pass */
    }
    if (!bt_tcp_peer_find(ends, &peer) || (peer.uid != geteuid())) {
        return false;
    }
    snprintf(socket, sizeof(socket), "socket:[%" PRIu64 "]", peer.inode);
    return !program_of("self", own, sizeof(own)) || is_known(socket, own) ||
           is_held(socket, own) ||
           (!is_held(socket, NULL) && bt_tcp_peer_find(ends, &peer));
}

int bt_kvt_ucx_accept(int fd, struct sockaddr *addr, socklen_t *len)
{
    bt_tcp_ends_t ends;
    uint32_t guard;
    int got;

    atomic_fetch_add(&n_accepting, 1);
    got = (int)syscall(SYS_accept4, fd, addr, len, 0);
    guard = (got >= 0) ? guard_of(got, &ends) : 0;
    if (((guard & CLOSING) != 0) || ((guard != 0) && !may_connect(&ends))) {
        close(got);
        errno = EAGAIN; /* as when a client has disconnected before it was
                         * accepted */
        got = -1;
    }
    atomic_fetch_sub(&n_accepting, 1);
    return got;
}
