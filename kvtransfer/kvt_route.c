/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_route.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
