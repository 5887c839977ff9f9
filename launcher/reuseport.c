/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/reuseport.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"

/* Binds without SO_REUSEPORT, which fails if any process uses the port.
 * @return 0, or the error of the bind */
static int try_to_bind(const struct addrinfo *ai)
{
    static const int on = 1;
    const int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = 0;

    if (fd < 0) {
        return errno;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
        error = errno;
    }
    close(fd);
    return error;
}

bt_status_t bt_reuseport_check(const bt_config_t *config)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256];
    char service[8];
    uint16_t port = 0;
    int error;

    if (!config->reuse_http_port || (config->routers == 1) ||
        (bt_config_split_address(config->http, host, sizeof(host), &port) !=
         BT_OK)) {
        return BT_OK; /* the router reports the problem */
    }
    snprintf(service, sizeof(service), "%u", port);
    if (getaddrinfo(host, service, &hints, &found) != 0) {
        return BT_OK; /* the router reports the problem */
    }
    error = try_to_bind(found);
    freeaddrinfo(found);
    if (error != 0) {
        BT_LOG_ERROR("cannot serve at %s: %s; choose another address with "
                     "--http",
                     config->http, strerrordesc_np(error));
        return bt_status_of_bind(error);
    }
    return BT_OK;
}
