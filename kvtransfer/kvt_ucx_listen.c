/* SPDX-License-Identifier: Apache-2.0 */
/* Listening, accepting, and closing the listener. */
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define MUTE_LIMIT_MS 100u
/* Between two rounds of progress. All are accepted, and then the oldest ones
 * beyond the limit closed: a new connection is never locked out. */
#define REQUESTS_MAX 1024u

typedef struct accept {
    bt_list_t link;
    ucp_conn_request_h request;
} accept_t;

/* From within progress, where no endpoint may be made. */
static void on_connection(ucp_conn_request_h request, void *arg)
{
    ucx_t *ucx = arg;
    accept_t *accept = NULL;

    if (ucx->n_requests < REQUESTS_MAX) {
        accept = bt_calloc(1, sizeof(*accept));
    }
    if (accept == NULL) {
        (void)!ucp_listener_reject(ucx->listener, request);
        return;
    }
    accept->request = request;
    bt_list_push_back(&ucx->requests, &accept->link);
    ucx->n_requests++;
}

static void accept_end(ucx_t *ucx, accept_t *accept)
{
    bt_list_remove(&accept->link);
    ucx->n_requests--;
    bt_free(accept);
}

void bt_kvt_ucx_requests_accept(ucx_t *ucx)
{
    while (!ucx->closing && !bt_list_empty(&ucx->requests)) {
        accept_t *accept = BT_CONTAINER_OF(ucx->requests.next, accept_t, link);
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                  .conn_request = accept->request};
        ucx_link_t *ul = NULL;

        /* Another failure has ended the request: the peer sees that. */
        if (bt_kvt_ucx_connection_create(ucx, &params, false, &ul) ==
            BT_ERR_NO_MEMORY) {
            (void)!ucp_listener_reject(ucx->listener, accept->request);
        }
        accept_end(ucx, accept);
        if (ucx->n_unproven > UNPROVEN_MAX) {
            bt_kvt_ucx_unproven_end(ucx);
        }
    }
}

static void requests_reject(ucx_t *ucx)
{
    BT_LIST_FOR_EACH_ENTRY(accept_t, accept, &ucx->requests, link) {
        (void)!ucp_listener_reject(ucx->listener, accept->request);
        accept_end(ucx, accept);
    }
}

bt_status_t bt_kvt_ucx_own_addr_read(ucx_t *ucx)
{
    const struct ifaddrs *found = NULL;
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0) {
        return BT_ERR_IO;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if ((i->ifa_addr == NULL) ||
            (strcmp(i->ifa_name, ucx->interface) != 0)) {
            continue;
        }
        if (i->ifa_addr->sa_family == AF_INET) {
            found = i;
            break;
        }
        if ((i->ifa_addr->sa_family == AF_INET6) && (found == NULL)) {
            found = i;
        }
    }
    if (found != NULL) {
        ucx->own_addr_bytes = (found->ifa_addr->sa_family == AF_INET)
                                  ? sizeof(struct sockaddr_in)
                                  : sizeof(struct sockaddr_in6);
        memcpy(&ucx->own_addr, found->ifa_addr, ucx->own_addr_bytes);
    }
    freeifaddrs(all);
    return (found != NULL) ? BT_OK : BT_ERR_UNSUPPORTED;
}

/* ---- ports ---- */

static struct sockaddr_storage own_addr_at(const ucx_t *ucx, uint16_t port)
{
    struct sockaddr_storage addr = ucx->own_addr;

    /* Both have their port in the same place. */
    ((struct sockaddr_in *)&addr)->sin_port = htons(port);
    return addr;
}

static bool is_free(const ucx_t *ucx, uint16_t port)
{
    const struct sockaddr_storage addr = own_addr_at(ucx, port);
    const int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    bool free;

    if (fd < 0) {
        return false;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    free = bind(fd, (const struct sockaddr *)&addr, ucx->own_addr_bytes) == 0;
    close(fd);
    return free;
}

ucx_ports_t bt_kvt_ucx_ports(const ucx_t *ucx)
{
    const bt_kvt_config_t *config = &ucx->kvt->config;
    ucx_ports_t ports = {.n = 1, .first = config->first_port};

    if (config->first_port != 0) {
        ports.n = 1u + config->last_port - config->first_port;
        bt_key_random(&ports.begin, sizeof(ports.begin));
    }
    return ports;
}

bool bt_kvt_ucx_ports_next(const ucx_t *ucx, ucx_ports_t *ports,
                           uint16_t *port_p)
{
    while (ports->tried < ports->n) {
        const uint32_t at =
            (uint32_t)(((uint64_t)ports->begin + ports->tried++) % ports->n);

        if (ports->first == 0) {
            *port_p = 0;
            return true;
        }
        if (is_free(ucx, (uint16_t)(ports->first + at))) {
            *port_p = (uint16_t)(ports->first + at);
            return true;
        }
    }
    return false;
}

bt_status_t bt_kvt_ucx_listener_open(ucx_t *ucx)
{
    ucp_listener_params_t params = {.field_mask =
                                        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .conn_handler.cb = on_connection,
                                    .conn_handler.arg = ucx};
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucx_ports_t ports = bt_kvt_ucx_ports(ucx);
    struct sockaddr_storage addr;
    uint16_t port = 0;

    while ((ucx->listener == NULL) &&
           bt_kvt_ucx_ports_next(ucx, &ports, &port)) {
        addr = own_addr_at(ucx, port);
        params.sockaddr.addr = (const struct sockaddr *)&addr;
        params.sockaddr.addrlen = ucx->own_addr_bytes;
        if (ucp_listener_create(ucx->net, &params, &ucx->listener) != UCS_OK) {
            ucx->listener = NULL;
        }
    }
    if ((ucx->listener == NULL) ||
        (ucp_listener_query(ucx->listener, &attr) != UCS_OK)) {
        return BT_ERR_UNSUPPORTED;
    }
    ucx->net_addr = attr.sockaddr;
    return BT_OK;
}

/* ---- closing the listener ---- */

static bool same_address(const struct sockaddr_storage *a,
                         const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in *b4 = (const struct sockaddr_in *)b;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a;
    const struct sockaddr_in6 *b6 = (const struct sockaddr_in6 *)b;

    if (a->ss_family != b->ss_family) {
        return false;
    }
    if (a->ss_family == AF_INET) {
        return (a4->sin_port == b4->sin_port) &&
               (a4->sin_addr.s_addr == b4->sin_addr.s_addr);
    }
    return (a->ss_family == AF_INET6) && (a6->sin6_port == b6->sin6_port) &&
           (memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0);
}

/** Stops input at the listener: new connections, and bytes of those that UCX
 *  has accepted. @return sockets with unread bytes */
static unsigned door_mute(const struct sockaddr_storage *door)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog filter = {.len = 1, .filter = &drop};
    BT_CLEANUP(closedir) DIR *const dir = opendir("/proc/self/fd");
    const struct dirent *entry;
    unsigned n_readable = 0;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        struct sockaddr_storage addr = {0};
        socklen_t bytes = sizeof(addr);
        struct pollfd ready = {.fd = (int)strtol(entry->d_name, NULL, 10),
                               .events = POLLIN};

        if ((entry->d_name[0] == '.') ||
            (getsockname(ready.fd, (struct sockaddr *)&addr, &bytes) != 0) ||
            !same_address(&addr, door)) {
            continue;
        }
        (void)setsockopt(ready.fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter,
                         sizeof(filter));
        n_readable += poll(&ready, 1, 0) > 0;
    }
    return n_readable;
}

static void guard(const ucx_t *ucx, bt_kvt_ucx_guard_t guard)
{
    for (uint32_t i = 0; i < ucx->door.n_fds; i++) {
        bt_kvt_ucx_accept_set(ucx->door.ports[i], guard);
    }
}

/* UCX 1.13.1 frees the listener while connections that it accepted have not yet
 * sent their request; when they then do, its own thread uses the freed
 * listener, and the process dies (the call of conn_request_cb in
 * tcp_sockcm_ep.c). So their input is stopped first, and received requests are
 * handled. No connection is rejected while new ones can still come: a
 * connection that reuses the descriptor number of a rejected one gets its
 * events, and an assertion of tcp_sockcm_ep.c ends the process. */
void bt_kvt_ucx_listener_close(ucx_t *ucx)
{
    const uint64_t until_ms = bt_now_ms() + MUTE_LIMIT_MS;
    /* Twice: the first round may miss one that is just being accepted. */
    unsigned n_quiet = 0;

    if (ucx->listener == NULL) {
        return;
    }
    guard(ucx, BT_KVT_UCX_CLOSING);
    ucx->door.closed = false; /* its ports may soon be used by others */
    while ((n_quiet < 2) && (bt_now_ms() < until_ms)) {
        n_quiet =
            (bt_kvt_ucx_accept_is_idle() && (door_mute(&ucx->net_addr) == 0))
                ? n_quiet + 1
                : 0;
        (void)ucp_worker_progress(ucx->net);
    }
    requests_reject(ucx);
    ucp_listener_destroy(ucx->listener);
    ucx->listener = NULL;
}
