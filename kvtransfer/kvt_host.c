/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_host.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/text.h"

#define STAT_TEXT_BYTES 1024
#define START_TIME_AT   22 /* field of /proc/PID/stat, from 1; proc(5) */

static bt_status_t start_time_read(uint32_t pid, uint64_t *ticks_p)
{
    char path[64];
    char text[STAT_TEXT_BYTES];
    char *at;

    snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    if (!bt_read_text(path, text, sizeof(text))) {
        return BT_ERR_UNSUPPORTED;
    }
    /* Field 2 is the name in parentheses and may hold anything. */
    at = strrchr(text, ')');
    for (int field = 2; (at != NULL) && (field < START_TIME_AT); field++) {
        at = strchr(at + 1, ' ');
    }
    if (at == NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    *ticks_p = strtoull(at + 1, NULL, 10);
    return BT_OK;
}

static bt_status_t boot_id_read(uint8_t id[16])
{
    char text[64] = {0};
    size_t n = 0;

    if (!bt_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text))) {
        return BT_ERR_UNSUPPORTED;
    }
    for (const char *p = text; (*p != '\0') && (n < 32); p++) {
        const int digit = bt_hex_digit(*p);

        if (digit >= 0) {
            id[n / 2] =
                (uint8_t)((n % 2 == 0) ? digit << 4 : id[n / 2] | digit);
            n++;
        }
    }
    return (n == 32) ? BT_OK : BT_ERR_UNSUPPORTED;
}

bt_status_t bt_kvt_host_read(bt_kvt_host_t *host_p)
{
    bt_kvt_host_t host = {.pid = (uint32_t)getpid(),
                          .uid = (uint32_t)geteuid()};
    struct stat st;

    if ((boot_id_read(host.boot_id) != BT_OK) ||
        (start_time_read(host.pid, &host.start_time) != BT_OK)) {
        return BT_ERR_UNSUPPORTED;
    }
    if (stat("/proc/self/ns/ipc", &st) != 0) {
        return BT_ERR_UNSUPPORTED;
    }
    host.ipc_ns = st.st_ino;
    if (stat("/proc/self/ns/pid", &st) != 0) {
        return BT_ERR_UNSUPPORTED;
    }
    host.pid_ns = st.st_ino;
    *host_p = host;
    return BT_OK;
}

bool bt_kvt_host_same(const bt_kvt_host_t *a, const bt_kvt_host_t *b)
{
    return (memcmp(a->boot_id, b->boot_id, sizeof(a->boot_id)) == 0) &&
           (a->ipc_ns == b->ipc_ns) && (a->pid_ns == b->pid_ns) &&
           (a->uid == b->uid);
}

bt_status_t bt_kvt_host_watch(const bt_kvt_host_t *host, int *fd_p)
{
    uint64_t start_time = 0;
    int fd;

    if ((host->pid == 0) || (host->pid > INT32_MAX)) {
        return BT_ERR_UNSUPPORTED;
    }
    fd = (int)syscall(SYS_pidfd_open, (int)host->pid, 0);
    if (fd < 0) {
        return (errno == ESRCH) ? BT_ERR_PEER_LOST : BT_ERR_UNSUPPORTED;
    }
    /* After opening: from now on the id cannot be reused unnoticed. */
    if ((start_time_read(host->pid, &start_time) != BT_OK) ||
        (start_time != host->start_time)) {
        close(fd);
        return BT_ERR_PEER_LOST;
    }
    *fd_p = fd;
    return BT_OK;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
    }
    return (a->sa_family == AF_INET6) &&
           (memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr,
                   sizeof(struct in6_addr)) == 0);
}

/* Finds the interface that has an address. */
static bt_status_t owner_of(const struct sockaddr *own, char name[IF_NAMESIZE])
{
    bt_status_t status = BT_ERR_NOT_FOUND;
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0) {
        return BT_ERR_NOT_FOUND;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if ((status != BT_OK) && (i->ifa_addr != NULL) &&
            same_host(i->ifa_addr, own)) {
            /* For an address with a label it is "eth0:1". */
            snprintf(name, IF_NAMESIZE, "%.*s", (int)strcspn(i->ifa_name, ":"),
                     i->ifa_name);
            status = BT_OK;
        }
    }
    freeifaddrs(all);
    return status;
}

bt_status_t bt_kvt_route_to(const struct sockaddr *addr, socklen_t bytes,
                            char name[IF_NAMESIZE])
{
    struct sockaddr_storage own = {0};
    socklen_t own_bytes = sizeof(own);
    bt_status_t status = BT_ERR_NOT_FOUND;
    /* A connected datagram socket knows its own address, and has sent nothing.
     */
    const int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return BT_ERR_NOT_FOUND;
    }
    if ((connect(fd, addr, bytes) == 0) &&
        (getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0)) {
        status = owner_of((const struct sockaddr *)&own, name);
    }
    close(fd);
    return status;
}
