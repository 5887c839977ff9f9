/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: made by socket address and listener, not by worker address: UCX
 * 1.13.1 aborts the *surviving* process (assertion in
 * ucp_request_send_state_ff) when a peer dies while the wire-up messages of a
 * worker-address endpoint are in flight. */
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_host.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define CLOSE_LIMIT_MS   20u
#define MAX_EPOLL_EVENTS 16

/* ---- connecting ---- */

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ucx_link_t *ul = arg;

    (void)ep;
    ul->error = status;
    bt_kvt_ucx_connection_fail(ul);
}

void bt_kvt_ucx_connection_fail(ucx_link_t *ul)
{
    ul->failed = true;
    ul->ucx->some_failed = true;
}

static void unproven_leave(ucx_link_t *ul)
{
    if (!ul->proven) {
        ul->proven = true;
        ul->ucx->n_unproven--;
    }
}

void bt_kvt_ucx_connection_own(ucx_link_t *ul, bt_kvt_link_t *link)
{
    unproven_leave(ul);
    ul->owner = link;
}

bt_status_t bt_kvt_ucx_connection_create(ucx_t *ucx, ucp_ep_params_t *params,
                                         bool proven, ucx_link_t **ul_p)
{
    ucx_link_t *ul = bt_calloc(1, sizeof(*ul));
    ucs_status_t rc;

    if (ul == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    ul->ucx = ucx;
    ul->pidfd = NO_FD;
    ul->proven = proven;
    ul->since_ms = ucx->ran_ms;
    bt_list_init(&ul->early);
    params->field_mask |=
        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb = on_ep_error;
    params->err_handler.arg = ul;
    rc = ucp_ep_create(ucx->net, params, &ul->ep);
    if (rc != UCS_OK) {
        BT_LOG_INFO("kv transfer: no endpoint: %s", ucs_status_string(rc));
        bt_free(ul);
        return BT_ERR_PEER_LOST;
    }
    bt_list_push_back(&ucx->links, &ul->link);
    ucx->n_unproven += proven ? 0 : 1;
    *ul_p = ul;
    return BT_OK;
}

/* UCX makes no connection over another interface than its own, and does not say
 * why. */
static void check_way(const ucx_t *ucx, const struct sockaddr *addr,
                      socklen_t bytes)
{
    char name[IF_NAMESIZE];

    if ((bt_kvt_route_to(addr, bytes, name) == BT_OK) &&
        (strcmp(name, ucx->interface) != 0) && (strcmp(name, "lo") != 0)) {
        BT_LOG_WARN(
            "kv transfer: this process uses interface %s, but its peer is reached over %s: see --kv-net-devices",
            ucx->interface, name);
    }
}

bt_status_t bt_kvt_ucx_connect(bt_kvt_link_t *link,
                               const bt_kvt_export_info_t *info)
{
    ucx_t *ucx = link->kvt->transport;
    struct sockaddr_storage addr = {0};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS |
                                            UCP_EP_PARAM_FIELD_SOCK_ADDR,
                              .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
                              .sockaddr.addr = (const struct sockaddr *)&addr};
    ucx_link_t *ul = ucx->speaking;
    bt_status_t status;

    if ((ul != NULL) && (ul->owner == NULL) && !ul->failed) {
        /* Answering a HELLO: over the connection that it came on. */
        bt_kvt_ucx_connection_own(ul, link);
        link->transport = ul;
        return BT_OK;
    }
    if (info->net_addr.bytes > sizeof(addr)) {
        return BT_ERR_BAD_MESSAGE;
    }
    memcpy(&addr, info->net_addr.data, info->net_addr.bytes);
    if ((addr.ss_family == AF_INET) &&
        (info->net_addr.bytes == sizeof(struct sockaddr_in))) {
        params.sockaddr.addrlen = sizeof(struct sockaddr_in);
    } else if ((addr.ss_family == AF_INET6) &&
               (info->net_addr.bytes == sizeof(struct sockaddr_in6))) {
        params.sockaddr.addrlen = sizeof(struct sockaddr_in6);
    } else {
        return BT_ERR_BAD_MESSAGE;
    }
    check_way(ucx, params.sockaddr.addr, params.sockaddr.addrlen);
    status = bt_kvt_ucx_connection_create(ucx, &params, true, &ul);
    if (status != BT_OK) {
        return status;
    }
    ul->owner = link;
    link->transport = ul;
    return BT_OK;
}

void bt_kvt_ucx_locate(const bt_kvt_t *kvt, const bt_kvt_export_info_t *info,
                       char at[BT_KVT_AT_BYTES])
{
    const ucx_t *ucx = kvt->transport;
    struct sockaddr_storage addr = {0};
    char host[INET6_ADDRSTRLEN] = "", port[8] = "";

    if (info->net_addr.bytes <= sizeof(addr)) {
        memcpy(&addr, info->net_addr.data, info->net_addr.bytes);
    }
    if (((addr.ss_family == AF_INET) || (addr.ss_family == AF_INET6)) &&
        (getnameinfo((const struct sockaddr *)&addr, info->net_addr.bytes, host,
                     sizeof(host), port, sizeof(port),
                     NI_NUMERICHOST | NI_NUMERICSERV) == 0)) {
        snprintf(at, BT_KVT_AT_BYTES,
                 (addr.ss_family == AF_INET) ? "%s:%s on %s" : "[%s]:%s on %s",
                 host, port, ucx->interface);
    }
}

/* ---- closing ---- */

static void connection_free(ucx_link_t *ul)
{
    unproven_leave(ul);
    bt_kvt_ucx_early_drop(ul);
    bt_list_remove(&ul->link);
    bt_free(ul);
}

static void link_reap(ucx_link_t *ul)
{
    if ((ul->owner == NULL) && !ul->closing && (ul->ep == NULL) &&
        !ul->ucx->kvt->closing) {
        connection_free(ul);
    }
}

static void on_ep_closed(void *request, ucs_status_t status, void *user)
{
    ucx_link_t *ul = user;

    (void)status;
    ucp_request_free(request);
    ul->closing = false;
    link_reap(ul);
}

/** Closes a connection. @a force: at once. Otherwise queued messages are
 *  delivered first, which needs progress. */
static void connection_close(ucx_link_t *ul, bool force)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0,
        .cb.send = on_ep_closed,
        .user_data = ul};
    ucs_status_ptr_t request;

    if (ul->ep == NULL) {
        return;
    }
    ul->failed = true;
    ul->closing = true;
    request = ucp_ep_close_nbx(ul->ep, &param);
    ul->ep = NULL;
    if (!UCS_PTR_IS_PTR(request)) {
        ul->closing = false;
    }
}

void bt_kvt_ucx_disconnect(bt_kvt_link_t *link)
{
    ucx_t *ucx = link->kvt->transport;

    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        if (ul->owner == link) {
            connection_close(ul, true);
        }
    }
}

static void pidfd_close(ucx_link_t *ul)
{
    if (ul->pidfd != NO_FD) {
        (void)epoll_ctl(ul->ucx->epoll_fd, EPOLL_CTL_DEL, ul->pidfd, NULL);
        close(ul->pidfd);
        ul->pidfd = NO_FD;
    }
}

void bt_kvt_ucx_forget(bt_kvt_link_t *link)
{
    ucx_t *ucx = link->kvt->transport;

    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        if (ul->owner == link) {
            pidfd_close(ul);
            ul->owner = NULL;
            link_reap(ul);
        }
    }
    link->transport = NULL;
}

/** Lets the last messages be sent; waits for a bounded time. */
static void net_drain(ucx_t *ucx)
{
    const uint64_t until_ms = bt_now_ms() + CLOSE_LIMIT_MS;
    bool closing = true;

    while (((ucx->n_flying > 0) || closing) && (bt_now_ms() < until_ms)) {
        if (ucp_worker_progress(ucx->net) == 0) {
            closing = false;
        }
        BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
            closing = closing || ul->closing;
        }
    }
}

void bt_kvt_ucx_links_close(ucx_t *ucx)
{
    ucx->closing = true;
    net_drain(ucx);
    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        bt_kvt_ucx_shm_unmap(ul);
        connection_close(ul, true);
    }
    net_drain(ucx);
    bt_kvt_ucx_listener_close(ucx);
}

void bt_kvt_ucx_links_free(ucx_t *ucx)
{
    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        pidfd_close(ul);
        connection_free(ul);
    }
}

/* ---- connections and processes ---- */

ucx_link_t *bt_kvt_ucx_connection_find(ucx_t *ucx, ucp_ep_h ep)
{
    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        if (ul->ep == ep) {
            return ul;
        }
    }
    return NULL;
}

bt_status_t bt_kvt_ucx_watch(bt_kvt_link_t *link,
                             const bt_kvt_export_info_t *info)
{
    ucx_link_t *ul = link->transport;
    ucx_t *ucx = ul->ucx;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = ul};
    int fd = NO_FD;
    bt_status_t status;

    if (!ucx->host_known || !bt_kvt_host_same(&ucx->host, &info->host)) {
        return BT_ERR_UNSUPPORTED;
    }
    if (ul->pidfd != NO_FD) {
        return BT_OK;
    }
    status = bt_kvt_host_watch(&info->host, &fd);
    if (status != BT_OK) {
        return status;
    }
    if (epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        close(fd);
        return BT_ERR_UNSUPPORTED;
    }
    ul->pidfd = fd;
    link->pid = (int32_t)info->host.pid;
    return BT_OK;
}

static void lose(ucx_link_t *ul)
{
    const bool said = (ul->error != UCS_OK) && (ul->owner->peer_nonce == 0);
    char why[BT_KVT_WHY_BYTES];

    snprintf(why, sizeof(why), "%s%s%s",
             (ul->owner->peer_nonce != 0) ? "its connection ended"
                                          : "no connection",
             said ? ": " : "", said ? ucs_status_string(ul->error) : "");
    bt_kvt_link_lost(ul->owner, false, why);
}

void bt_kvt_ucx_failed_report(ucx_t *ucx)
{
    ucx->some_failed = false;
    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links, link) {
        if (!ul->failed || (ul->ep == NULL)) {
            continue;
        }
        if (ul->owner == NULL) { /* accepted, and no authenticated HELLO */
            connection_close(ul, true);
            link_reap(ul);
        } else if (!bt_kvt_link_is_lost(ul->owner->state)) {
            lose(ul);
        }
    }
}

void bt_kvt_ucx_unproven_end(ucx_t *ucx)
{
    uint32_t too_many =
        (ucx->n_unproven > UNPROVEN_MAX) ? ucx->n_unproven - UNPROVEN_MAX : 0;

    if (ucx->n_unproven == 0) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(ucx_link_t, ul, &ucx->links,
                           link) { /* the oldest first */
        if (ul->proven || (ul->ep == NULL)) {
            continue;
        }
        if (!ul->failed && ((too_many > 0) || (ucx->ran_ms - ul->since_ms >=
                                               ucx->kvt->config.dead_ms))) {
            BT_LOG_INFO("kv transfer: connection closed: no hello received");
            ucx->kvt->counters.foreign_pieces++;
            bt_kvt_ucx_connection_fail(ul);
        }
        too_many -= (too_many > 0) ? 1 : 0;
    }
}

void bt_kvt_ucx_ended_report(ucx_t *ucx)
{
    struct epoll_event events[MAX_EPOLL_EVENTS];
    const int n = epoll_wait(ucx->epoll_fd, events, MAX_EPOLL_EVENTS, 0);

    for (int i = 0; i < n; i++) {
        ucx_link_t *ul = events[i].data.ptr;

        if (ul != NULL) {
            pidfd_close(ul);
            bt_kvt_link_lost(ul->owner, true, "its process ended");
        }
    }
}
