/* SPDX-License-Identifier: Apache-2.0 */
/* Address filter of the listener. UCX's listener reads and trusts the first
 * bytes of a connection, and garbage has ended processes (1.13.1). So the
 * kernel drops connections from addresses that no peer has: a filter at the
 * listening sockets (SO_ATTACH_FILTER, socket(7); classic BPF), before they are
 * accepted. Accepted sockets inherit the filter, which passes their packets:
 * only packets with SYN are checked. All processes of this host have the same
 * address: for them kvt_ucx_accept.c checks the process. */
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_ucx_priv.h"

/* Offsets in the packet, which begins with TCP's header. */
#define TCP_FLAGS 13
#define TCP_SYN   0x02
#define IP4_FROM  (SKF_NET_OFF + 12)
#define IP6_FROM  (SKF_NET_OFF + 8)

#define PASS UINT32_MAX /* bytes of the packet to keep */
#define DROP 0

#define IP4_STEPS   2u /* steps of the program per address */
#define IP6_STEPS   9u
#define OTHER_STEPS 10u

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static bool is_ip4(const uint8_t source[BT_KVT_SOURCE_BYTES])
{
    return memcmp(source, mapped, sizeof(mapped)) == 0;
}

static uint32_t word_at(const uint8_t *p)
{
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) |
           ((uint32_t)p[2] << 8) | p[3];
}

/* ---- the program ---- */

typedef struct program {
    struct sock_filter steps[BPF_MAXINSNS];
    uint32_t n;
} program_t;

static void add(program_t *p, int code, uint32_t k, uint8_t jt, uint8_t jf)
{
    p->steps[p->n++] = (struct sock_filter){
        .code = (uint16_t)code, .k = k, .jt = jt, .jf = jf};
}

static void add_ip6(program_t *p, const uint8_t source[BT_KVT_SOURCE_BYTES])
{
    for (uint32_t i = 0; i < 4; i++) {
        add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)IP6_FROM + 4 * i, 0, 0);
        add(p, BPF_JMP | BPF_JEQ | BPF_K, word_at(source + (size_t)4 * i), 0,
            (uint8_t)(7 - 2 * i)); /* to the next address */
    }
    add(p, BPF_RET | BPF_K, PASS, 0, 0);
}

/** Builds the filter program. @return false: too many addresses */
static bool program_make(const ucx_door_t *door, program_t *p)
{
    uint32_t n_ip4 = 0, n_ip6;

    for (uint32_t i = 0; i < door->n_sources; i++) {
        n_ip4 += is_ip4(door->sources[i]) ? 1 : 0;
    }
    n_ip6 = door->n_sources - n_ip4;
    if (OTHER_STEPS + IP4_STEPS * n_ip4 + IP6_STEPS * n_ip6 > BPF_MAXINSNS) {
        return false;
    }

    p->n = 0;
    add(p, BPF_LD | BPF_B | BPF_ABS, TCP_FLAGS, 0, 0);
    add(p, BPF_JMP | BPF_JSET | BPF_K, TCP_SYN, 1, 0);
    add(p, BPF_RET | BPF_K, PASS, 0, 0);
    add(p, BPF_LD | BPF_B | BPF_ABS, (uint32_t)SKF_NET_OFF, 0, 0);
    add(p, BPF_ALU | BPF_RSH | BPF_K, 4, 0, 0); /* the version */
    add(p, BPF_JMP | BPF_JEQ | BPF_K, 4, 0, 1);
    add(p, BPF_JMP | BPF_JA, IP6_STEPS * n_ip6 + 1, 0, 0);
    for (uint32_t i = 0; i < door->n_sources; i++) {
        if (!is_ip4(door->sources[i])) {
            add_ip6(p, door->sources[i]);
        }
    }
    add(p, BPF_RET | BPF_K, DROP, 0, 0);
    add(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)IP4_FROM, 0, 0);
    for (uint32_t i = 0; i < door->n_sources; i++) {
        if (is_ip4(door->sources[i])) {
            add(p, BPF_JMP | BPF_JEQ | BPF_K,
                word_at(door->sources[i] + sizeof(mapped)), 0, 1);
            add(p, BPF_RET | BPF_K, PASS, 0, 0);
        }
    }
    add(p, BPF_RET | BPF_K, DROP, 0, 0);
    return true;
}

static bool program_attach(const ucx_door_t *door, program_t *p)
{
    const struct sock_fprog filter = {.len = (uint16_t)p->n,
                                      .filter = p->steps};

    for (uint32_t i = 0; i < door->n_fds; i++) {
        if (setsockopt(door->fds[i], SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                       sizeof(filter)) != 0) {
            return false;
        }
    }
    return true;
}

/** Removes the filters. Locking peers out is worse than letting unknown
 *  processes connect: the later handshake rejects these. */
static void door_open(ucx_door_t *door)
{
    const int none = 0;

    door->closed = false;
    for (uint32_t i = 0; i < door->n_fds; i++) {
        (void)setsockopt(door->fds[i], SOL_SOCKET, SO_DETACH_FILTER, &none,
                         sizeof(none));
    }
}

/** Builds and attaches the filter. @return false: this system has no such
 *  filters or no space for this one (usually limited by net.core.optmem_max),
 *  or there is no memory */
static bool filter_set(const ucx_door_t *door)
{
    program_t *p = bt_calloc(1, sizeof(*p));
    const bool done =
        (p != NULL) && program_make(door, p) && program_attach(door, p);

    bt_free(p);
    return done;
}

/* ---- which sockets ---- */

static bool option_is(int fd, int option, int expected)
{
    socklen_t bytes = sizeof(int);
    int value = 0;

    return (getsockopt(fd, SOL_SOCKET, option, &value, &bytes) == 0) &&
           (value == expected);
}

/** Lists the listening TCP sockets. @return how many there are, perhaps more
 *  than @a cap */
static uint32_t listening(int *fds, uint32_t cap)
{
    BT_CLEANUP(closedir) DIR *const dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    uint32_t n = 0;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const int fd = (int)strtol(entry->d_name, NULL, 10);

        if ((entry->d_name[0] != '.') &&
            option_is(fd, SO_PROTOCOL, IPPROTO_TCP) &&
            option_is(fd, SO_ACCEPTCONN, 1)) {
            if (n < cap) {
                fds[n] = fd;
            }
            n++;
        }
    }
    return n;
}

void bt_kvt_ucx_door_before(ucx_door_t *door)
{
    door->n_before = listening(door->before, BT_ARRAY_LEN(door->before));
}

static bool was_before(const ucx_door_t *door, int fd)
{
    for (uint32_t i = 0; i < door->n_before; i++) {
        if (door->before[i] == fd) {
            return true;
        }
    }
    return false;
}

/** Finds the listening sockets of UCX. @return false: there are more than
 *  expected, or none: the listener is not a socket of this process, as with
 *  RDMA */
static bool fds_find(ucx_door_t *door)
{
    int all[2 * BT_ARRAY_LEN(door->before)];
    const uint32_t n = listening(all, BT_ARRAY_LEN(all));

    if ((n > BT_ARRAY_LEN(all)) ||
        (door->n_before > BT_ARRAY_LEN(door->before))) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (was_before(door, all[i])) {
            continue;
        }
        if (door->n_fds == BT_ARRAY_LEN(door->fds)) {
            return false;
        }
        door->fds[door->n_fds++] = all[i];
    }
    return door->n_fds > 0;
}

/* ---- addresses ---- */

static bool source_of(const struct sockaddr *addr,
                      uint8_t source[BT_KVT_SOURCE_BYTES])
{
    if ((addr != NULL) && (addr->sa_family == AF_INET)) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)addr;

        memcpy(source, mapped, sizeof(mapped));
        memcpy(source + sizeof(mapped), &a->sin_addr, sizeof(a->sin_addr));
        return true;
    }
    if ((addr != NULL) && (addr->sa_family == AF_INET6)) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)addr;

        memcpy(source, &a->sin6_addr, BT_KVT_SOURCE_BYTES);
        return true;
    }
    return false;
}

/** Lists the addresses of this host, those of the interface first: a connection
 *  to some hosts comes from another interface. @return whether the interface is
 *  loopback */
static bool own_find(ucx_door_t *door, const char *interface)
{
    struct ifaddrs *all = NULL;
    bool is_loopback = false;

    if (getifaddrs(&all) != 0) {
        return false;
    }
    for (int others = 0; others < 2; others++) {
        for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
            const bool is_it = strcmp(i->ifa_name, interface) == 0;
            const bool is_lo = (i->ifa_flags & IFF_LOOPBACK) != 0;

            is_loopback = is_loopback || (is_it && is_lo);
            if ((is_it != (others == 0)) || is_lo ||
                (door->n_own == BT_KVT_MAX_SOURCES)) {
                continue;
            }
            if (source_of(i->ifa_addr, door->own[door->n_own])) {
                door->n_own++;
            }
        }
    }
    freeifaddrs(all);
    return is_loopback;
}

void bt_kvt_ucx_door_close(ucx_door_t *door, const char *interface)
{
    const bool is_loopback = own_find(door, interface);
    const bool found = fds_find(door);

    for (uint32_t i = 0; i < door->n_fds; i++) {
        door->ports[i] = bt_kvt_ucx_port_of(door->fds[i]);
        bt_kvt_ucx_accept_set(door->ports[i], BT_KVT_UCX_GUARDED);
    }
    if (is_loopback) {
        return;
    }
    door->closed = found && filter_set(door);
    if (!door->closed) {
        door_open(door);
        BT_LOG_WARN(
            "kv transfer: connections to %s cannot be filtered on this host; use a firewall",
            interface);
    }
}

static bool is_known(const ucx_door_t *door,
                     const uint8_t source[BT_KVT_SOURCE_BYTES])
{
    for (uint32_t i = 0; i < door->n_sources; i++) {
        if (memcmp(door->sources[i], source, BT_KVT_SOURCE_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

/** Adds an address. @return false: no memory */
static bool source_add(ucx_door_t *door,
                       const uint8_t source[BT_KVT_SOURCE_BYTES])
{
    if (!bt_array_grow(&door->sources, &door->sources_cap, door->n_sources + 1,
                       sizeof(*door->sources))) {
        return false;
    }
    memcpy(door->sources[door->n_sources++], source, BT_KVT_SOURCE_BYTES);
    return true;
}

void bt_kvt_ucx_admit(bt_kvt_t *kvt, const bt_kvt_export_info_t *info)
{
    ucx_t *ucx = kvt->transport;
    ucx_door_t *door = &ucx->door;
    const uint8_t *sources = info->sources.data;
    const uint32_t before = door->n_sources;
    bool done = true;

    if (!door->closed) {
        return;
    }
    for (uint32_t at = 0; done && (at < info->sources.bytes);
         at += BT_KVT_SOURCE_BYTES) {
        done = is_known(door, sources + at) || source_add(door, sources + at);
    }
    if ((door->n_sources > before) || !done) {
        done = filter_set(door) && done;
    }
    if (!done) {
        door_open(door);
        BT_LOG_WARN(
            "kv transfer: the connection filter has no space for %u addresses: connections are accepted from everywhere; use a firewall",
            door->n_sources);
    }
}

void bt_kvt_ucx_door_fini(ucx_door_t *door)
{
    for (uint32_t i = 0; i < door->n_fds; i++) {
        bt_kvt_ucx_accept_set(door->ports[i], BT_KVT_UCX_OPEN);
    }
    bt_free(door->sources);
    door->sources = NULL;
    door->n_sources = door->sources_cap = 0;
    door->n_fds = 0;
}
