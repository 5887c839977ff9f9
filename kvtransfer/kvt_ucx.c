/* SPDX-License-Identifier: Apache-2.0 */
/* UCX under kvtransfer, in two contexts, because shared memory and peer error
 * handling exclude each other in one:
 *
 *     net    active messages over TCP (or RDMA): all control messages, also on
 *            one host, and data where memory is not shared; reports the death
 *            of a peer
 *     shm    allocates the pool and maps those of others; carries no message
 *
 * Endpoints of `net` are made by socket address and listener, not by worker
 * address: UCX 1.13.1 aborts the *surviving* process (assertion in
 * ucp_request_send_state_ff) when a peer dies while the wire-up messages of a
 * worker-address endpoint are under way.
 *
 * UCX keeps no order between active messages (seen: a short one overtakes a
 * longer one sent before the connection stood; fragments of a long one are
 * overtaken when the socket is full). Messages are numbered per connection and
 * put in order here; pieces need no order.
 */
#include <dirent.h>
#include <endian.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <ucp/api/ucp.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "kvtransfer/kvt_host.h"

#define AM_MESSAGE 1u
#define AM_PIECE   2u

#define SMALL_BYTES      512u /* most messages */
#define PROGRESS_ROUNDS  64
#define CLOSE_LIMIT_MS   20u
#define MAX_EPOLL_EVENTS 16
#define NO_FD            (-1)
#define NUMBER_BYTES     8u
/* Far more than a full socket lets overtake. */
#define MAX_EARLY 1024u

typedef struct ucx {
    bt_kvt_t *kvt;
    ucp_context_h net_context, shm_context;
    ucp_worker_h net, shm;
    ucp_mem_h shm_mem;   /* the pool; NULL: it is anonymous memory */
    size_t mapped_bytes; /* of the pool with the probe */
    ucp_listener_h listener;
    struct sockaddr_storage net_addr; /* where it listens */
    ucp_address_t *shm_addr;
    size_t shm_addr_bytes;
    void *rkey;
    size_t rkey_bytes;
    bt_kvt_host_t host;
    bool host_known;
    uint8_t probe[16];
    int epoll_fd, net_fd;
    uint64_t watched_ms;
    bool some_failed;
    bool closing;
    uint32_t n_flying; /* sends not completed */
    bt_list_t links;
    bt_list_t requests;        /* connections to accept */
    struct ucx_link *speaking; /* sent the message that is being taken */
    bt_list_t small_free, large_free, landing_free;
    uint8_t *inbox; /* inbox_entry_t, bytes, inbox_entry_t ... */
    size_t inbox_bytes, inbox_cap;
    uint64_t n_bad_messages;
} ucx_t;

typedef struct inbox_entry {
    ucp_ep_h ep; /* it came over, and is answered over */
    uint64_t number;
    size_t bytes;
} inbox_entry_t;

/* A message that came before its turn. */
typedef struct early {
    bt_list_t link;
    uint64_t number;
    size_t bytes;
    uint8_t data[];
} early_t;

/* One connection. A link has one; two when both sides connected at once. */
typedef struct ucx_link {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_link_t *owner; /* NULL: accepted, no hello yet; or forgotten */
    ucp_ep_h ep, shm_ep;
    ucp_rkey_h rkey;
    uint64_t n_sent, n_taken; /* messages: the numbers */
    bt_list_t early;
    uint32_t n_early;
    int pidfd;
    bool failed;  /* nothing can be sent any more */
    bool garbled; /* a message is missing: nothing is taken any more */
    bool closing; /* a close of ep has not completed */
} ucx_link_t;

typedef struct accept {
    bt_list_t link;
    ucp_conn_request_h request;
} accept_t;

/* A send under way: UCX reads header and message until it completes. */
typedef struct outgoing {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_xfer_t *xfer; /* of a piece */
    uint64_t piece_bytes;
    uint64_t number; /* of a message: its header, little-endian */
    bt_list_t *home;
    size_t cap;
    uint8_t data[];
} outgoing_t;

/* A rendezvous into the pool under way. */
typedef struct landing {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_window_t *window;
    uint64_t offset, bytes;
} landing_t;

/* ---- network: sending ---- */

static outgoing_t *outgoing_get(ucx_t *ucx, size_t bytes)
{
    bt_list_t *home =
        (bytes <= SMALL_BYTES) ? &ucx->small_free : &ucx->large_free;
    const size_t cap = (bytes <= SMALL_BYTES) ? SMALL_BYTES : BT_KVT_MAX_MSG;
    outgoing_t *out;

    if (!bt_list_empty(home)) {
        out = BT_CONTAINER_OF(home->next, outgoing_t, link);
        bt_list_remove(&out->link);
    } else {
        out = bt_calloc(1, sizeof(*out) + cap);
        if (out == NULL) {
            return NULL;
        }
        bt_list_init(&out->link);
    }
    out->ucx = ucx;
    out->xfer = NULL;
    out->home = home;
    out->cap = cap;
    ucx->n_flying++;
    return out;
}

static void outgoing_done(outgoing_t *out)
{
    ucx_t *ucx = out->ucx;
    bt_kvt_xfer_t *xfer = out->xfer;

    ucx->n_flying--;
    bt_list_push_back(out->home, &out->link);
    if ((xfer != NULL) && !ucx->kvt->closing) {
        bt_kvt_xfer_sent(xfer, out->piece_bytes);
    }
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    (void)status; /* a failure is the endpoint's: see on_ep_error() */
    ucp_request_free(request);
    outgoing_done(user);
}

static void am_send(const ucx_link_t *ul, unsigned id, outgoing_t *out,
                    const void *header, size_t header_bytes, const void *data,
                    size_t bytes, uint32_t flags)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = flags,
        .cb.send = on_sent,
        .user_data = out};
    ucs_status_ptr_t request =
        ucp_am_send_nbx(ul->ep, id, header, header_bytes, data, bytes, &param);

    if (!UCS_PTR_IS_PTR(request)) {
        outgoing_done(out); /* completed, or failed with its endpoint */
    }
}

static bt_status_t ucx_send(bt_kvt_link_t *link, const void *msg, size_t bytes)
{
    ucx_link_t *ul = link->transport;
    outgoing_t *out;

    if (ul->failed) {
        return BT_OK; /* the loss is reported at the next progress */
    }
    out = outgoing_get(ul->ucx, bytes);
    if (out == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    BT_ASSERT(bytes <= out->cap);
    memcpy(out->data, msg, bytes);
    out->number = htole64(ul->n_sent++);
    am_send(ul, AM_MESSAGE, out, &out->number, NUMBER_BYTES, out->data, bytes,
            UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY);
    return BT_OK;
}

static bt_status_t ucx_send_data(bt_kvt_xfer_t *xfer,
                                 const uint8_t header[BT_KVT_PIECE_BYTES],
                                 const void *src, size_t bytes)
{
    ucx_link_t *ul = xfer->link->transport;
    outgoing_t *out;

    if (ul->failed) {
        return BT_ERR_PEER_LOST;
    }
    out = outgoing_get(ul->ucx, BT_KVT_PIECE_BYTES);
    if (out == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->xfer = xfer;
    out->piece_bytes = bytes;
    memcpy(out->data, header, BT_KVT_PIECE_BYTES);
    am_send(ul, AM_PIECE, out, out->data, BT_KVT_PIECE_BYTES, src, bytes, 0);
    return BT_OK;
}

/* ---- network: receiving ---- */

/* Messages are kept until the worker's progress has returned: answering one
 * may create or close endpoints, which a callback must not. */
static ucs_status_t on_message(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    ucx_t *ucx = arg;
    inbox_entry_t entry = {.ep = param->reply_ep, .bytes = bytes};
    const size_t need = ucx->inbox_bytes + sizeof(entry) + bytes;

    if ((header_bytes != NUMBER_BYTES) || (bytes > BT_KVT_MAX_MSG) ||
        ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) ||
        ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0)) {
        ucx->n_bad_messages++;
        return UCS_OK;
    }
    if (need > ucx->inbox_cap) {
        const size_t cap = (need < 4096) ? 4096 : need * 2;
        uint8_t *grown = bt_realloc_array(ucx->inbox, cap, 1);

        if (grown == NULL) {
            ucx->n_bad_messages++;
            return UCS_OK;
        }
        ucx->inbox = grown;
        ucx->inbox_cap = cap;
    }
    memcpy(&entry.number, header, NUMBER_BYTES);
    entry.number = le64toh(entry.number);
    memcpy(ucx->inbox + ucx->inbox_bytes, &entry, sizeof(entry));
    if (bytes > 0) {
        memcpy(ucx->inbox + ucx->inbox_bytes + sizeof(entry), data, bytes);
    }
    ucx->inbox_bytes = need;
    return UCS_OK;
}

static void landing_done(landing_t *landing, bool ok)
{
    ucx_t *ucx = landing->ucx;

    bt_list_push_back(&ucx->landing_free, &landing->link);
    if (!ucx->kvt->closing) {
        bt_kvt_window_landed(landing->window, landing->offset, landing->bytes,
                             ok);
    }
}

static void on_landed(void *request, ucs_status_t status, size_t length,
                      void *user)
{
    landing_t *landing = user;

    ucp_request_free(request);
    landing_done(landing, (status == UCS_OK) && (length == landing->bytes));
}

static landing_t *landing_get(ucx_t *ucx)
{
    landing_t *landing;

    if (!bt_list_empty(&ucx->landing_free)) {
        landing = BT_CONTAINER_OF(ucx->landing_free.next, landing_t, link);
        bt_list_remove(&landing->link);
        return landing;
    }
    landing = bt_calloc(1, sizeof(*landing));
    if (landing != NULL) {
        bt_list_init(&landing->link);
        landing->ucx = ucx;
    }
    return landing;
}

static ucs_status_t on_piece(void *arg, const void *header, size_t header_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param)
{
    ucx_t *ucx = arg;
    ucp_request_param_t recv = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                UCP_OP_ATTR_FIELD_USER_DATA,
                                .cb.recv_am = on_landed};
    bt_kvt_window_t *window = NULL;
    bt_kvt_piece_t piece;
    landing_t *landing;
    ucs_status_ptr_t request;
    uint8_t *dst;

    if (ucx->kvt->closing) {
        return UCS_OK;
    }
    dst = bt_kvt_window_take(ucx->kvt, header, header_bytes, bytes, &piece,
                             &window);
    if (dst == NULL) {
        return UCS_OK;
    }
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        memcpy(dst, data, bytes);
        bt_kvt_window_landed(window, piece.offset, bytes, true);
        return UCS_OK;
    }

    landing = landing_get(ucx);
    if (landing == NULL) {
        bt_kvt_window_landed(window, piece.offset, bytes, false);
        return UCS_ERR_NO_MEMORY;
    }
    landing->window = window;
    landing->offset = piece.offset;
    landing->bytes = bytes;
    recv.user_data = landing;
    request = ucp_am_recv_data_nbx(ucx->net, data, dst, bytes, &recv);
    if (!UCS_PTR_IS_PTR(request)) {
        landing_done(landing, request == NULL);
    }
    return UCS_OK;
}

static bt_status_t handlers_set(ucx_t *ucx)
{
    ucp_am_handler_param_t param = {
        .field_mask =
            UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
            UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        .id = AM_MESSAGE,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = ucx};

    if (ucp_worker_set_am_recv_handler(ucx->net, &param) != UCS_OK) {
        return BT_ERR_IO;
    }
    param.id = AM_PIECE;
    param.cb = on_piece;
    if (ucp_worker_set_am_recv_handler(ucx->net, &param) != UCS_OK) {
        return BT_ERR_IO;
    }
    return BT_OK;
}

/* ---- links ---- */

static void on_ep_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    ucx_link_t *ul = arg;

    (void)ep;
    (void)status;
    ul->failed = true;
    ul->ucx->some_failed = true;
}

static bt_status_t connection_create(ucx_t *ucx, ucp_ep_params_t *params,
                                     ucx_link_t **ul_p)
{
    ucx_link_t *ul = bt_calloc(1, sizeof(*ul));
    ucs_status_t rc;

    if (ul == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    ul->ucx = ucx;
    ul->pidfd = NO_FD;
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
    *ul_p = ul;
    return BT_OK;
}

/* From within progress, where no endpoint may be made. */
static void on_connection(ucp_conn_request_h request, void *arg)
{
    ucx_t *ucx = arg;
    accept_t *accept = ucx->closing ? NULL : bt_calloc(1, sizeof(*accept));

    if (accept == NULL) {
        (void)!ucp_listener_reject(ucx->listener, request);
        return;
    }
    accept->request = request;
    bt_list_push_back(&ucx->requests, &accept->link);
}

static void requests_accept(ucx_t *ucx)
{
    while (!bt_list_empty(&ucx->requests)) {
        accept_t *accept = BT_CONTAINER_OF(ucx->requests.next, accept_t, link);
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                                  .conn_request = accept->request};
        ucx_link_t *ul = NULL;

        /* Another failure has ended the request: the peer sees that. */
        if (ucx->closing ||
            (connection_create(ucx, &params, &ul) == BT_ERR_NO_MEMORY)) {
            (void)!ucp_listener_reject(ucx->listener, accept->request);
        }
        bt_list_remove(&accept->link);
        bt_free(accept);
    }
}

static bt_status_t ucx_connect(bt_kvt_link_t *link,
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
        /* Answering a hello: over the connection that it came on. */
        ul->owner = link;
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
    status = connection_create(ucx, &params, &ul);
    if (status != BT_OK) {
        return status;
    }
    ul->owner = link;
    link->transport = ul;
    return BT_OK;
}

static void connection_free(ucx_link_t *ul)
{
    while (!bt_list_empty(&ul->early)) {
        early_t *e = BT_CONTAINER_OF(ul->early.next, early_t, link);

        bt_list_remove(&e->link);
        bt_free(e);
    }
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

/** @a force: at once. Otherwise what was sent is delivered first, for which
 *  progress is needed. */
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

static void ucx_disconnect(bt_kvt_link_t *link)
{
    ucx_t *ucx = link->kvt->transport;
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
    {
        ucx_link_t *ul = BT_CONTAINER_OF(pos, ucx_link_t, link);

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

static void ucx_forget(bt_kvt_link_t *link)
{
    ucx_t *ucx = link->kvt->transport;
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
    {
        ucx_link_t *ul = BT_CONTAINER_OF(pos, ucx_link_t, link);

        if (ul->owner == link) {
            pidfd_close(ul);
            ul->owner = NULL;
            link_reap(ul);
        }
    }
    link->transport = NULL;
}

static bt_status_t ucx_watch(bt_kvt_link_t *link,
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

/* ---- shared memory ---- */

static void shm_unmap(ucx_link_t *ul)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request;

    if (ul->rkey != NULL) {
        ucp_rkey_destroy(ul->rkey);
        ul->rkey = NULL;
    }
    if (ul->shm_ep != NULL) {
        request = ucp_ep_close_nbx(ul->shm_ep, &param);
        ul->shm_ep = NULL;
        if (UCS_PTR_IS_PTR(request)) {
            /* Nothing was ever sent on it, so this ends at once; the worker
             * would finish it in any case. */
            while (ucp_worker_progress(ul->ucx->shm) != 0) {
            }
            ucp_request_free(request);
        }
    }
}

static void ucx_unmap(bt_kvt_link_t *link)
{
    shm_unmap(link->transport);
}

static bt_status_t ucx_map(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info)
{
    ucx_link_t *ul = link->transport;
    ucx_t *ucx = ul->ucx;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = info->shm_addr.data};
    void *base = NULL;

    if ((ucx->shm == NULL) || (info->shm_base == 0) ||
        (info->shm_addr.bytes == 0) || (info->shm_rkey.bytes == 0) ||
        !ucx->host_known || !bt_kvt_host_same(&ucx->host, &info->host) ||
        (info->probe_offset < info->pool_bytes)) {
        return BT_ERR_UNSUPPORTED;
    }
    if (ucp_ep_create(ucx->shm, &params, &ul->shm_ep) != UCS_OK) {
        ul->shm_ep = NULL;
        return BT_ERR_UNSUPPORTED;
    }
    if (ucp_ep_rkey_unpack(ul->shm_ep, info->shm_rkey.data, &ul->rkey) !=
        UCS_OK) {
        ul->rkey = NULL;
        goto err;
    }
    if (ucp_rkey_ptr(ul->rkey, info->shm_base, &base) != UCS_OK) {
        goto err;
    }
    /* Identifiers can lie (a copied /etc, a nested container); bytes that the
     * other side wrote cannot. */
    if (memcmp((const uint8_t *)base + info->probe_offset, info->probe,
               sizeof(info->probe)) != 0) {
        goto err;
    }
    link->map = base;
    return BT_OK;

err:
    ucx_unmap(link);
    return BT_ERR_UNSUPPORTED;
}

static uint64_t ucx_copy(bt_kvt_link_t *link, uint64_t pool_offset,
                         const void *src, size_t bytes, uint64_t seed)
{
    return bt_hash64_copy(link->map + pool_offset, src, bytes, seed);
}

/** Is there room for the pool in the file system behind POSIX shared memory?
 *  Memory from there is promised only on first touch, with SIGBUS. */
static bool shm_has_room(size_t bytes)
{
    struct statvfs fs;

    return (statvfs("/dev/shm", &fs) == 0) &&
           ((uint64_t)fs.f_bavail * fs.f_frsize >= bytes);
}

static bt_status_t pool_make_anonymous(ucx_t *ucx)
{
    void *p = mmap(NULL, ucx->mapped_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return BT_ERR_NO_MEMORY;
    }
    ucx->kvt->pool = p;
    return BT_OK;
}

static bt_status_t pool_make_shared(ucx_t *ucx)
{
    const ucp_mem_map_params_t params = {.field_mask =
                                             UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                             UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                         .length = ucx->mapped_bytes,
                                         .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};

    if (!shm_has_room(ucx->mapped_bytes)) {
        return BT_ERR_NO_MEMORY;
    }
    if (ucp_mem_map(ucx->shm_context, &params, &ucx->shm_mem) != UCS_OK) {
        ucx->shm_mem = NULL;
        return BT_ERR_NO_MEMORY;
    }
    if ((ucp_mem_query(ucx->shm_mem, &attr) != UCS_OK) ||
        (ucp_rkey_pack(ucx->shm_context, ucx->shm_mem, &ucx->rkey,
                       &ucx->rkey_bytes) != UCS_OK) ||
        (getrandom(ucx->probe, sizeof(ucx->probe), 0) !=
         (ssize_t)sizeof(ucx->probe))) {
        ucp_mem_unmap(ucx->shm_context, ucx->shm_mem);
        ucx->shm_mem = NULL;
        return BT_ERR_UNSUPPORTED;
    }
    ucx->kvt->pool = attr.address;
    memcpy(ucx->kvt->pool + ucx->kvt->config.pool_bytes, ucx->probe,
           sizeof(ucx->probe));
    return BT_OK;
}

/* ---- open and close ---- */

static bt_status_t context_open(const char *name, const char *tls,
                                const char *device, uint64_t features,
                                ucp_context_h *context_p)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                               UCP_PARAM_FIELD_NAME,
                                 .features = features,
                                 .name = name};
    ucp_config_t *config;
    ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

    if (rc != UCS_OK) {
        return BT_ERR_UNSUPPORTED;
    }
    rc = ucp_config_modify(config, "TLS", tls);
    if ((rc == UCS_OK) && (device != NULL)) {
        rc = ucp_config_modify(config, "NET_DEVICES", device);
    }
    if (rc == UCS_OK) {
        rc = ucp_init(&params, config, context_p);
    }
    ucp_config_release(config);
    return (rc == UCS_OK) ? BT_OK : BT_ERR_UNSUPPORTED;
}

static bt_status_t worker_open(ucp_context_h context, ucp_worker_h *worker_p)
{
    const ucp_worker_params_t params = {.field_mask =
                                            UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};

    if (ucp_worker_create(context, &params, worker_p) != UCS_OK) {
        *worker_p = NULL;
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/** The network interface of an RDMA device ("mlx5_0:1"): the one entry of its
 *  net folder. @return false when @a device is none */
static bool rdma_interface(const char *device, char *name, size_t cap)
{
    char path[128];
    const int n =
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/device/net",
                 (int)strcspn(device, ":"), device);
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    if ((n < 0) || ((size_t)n >= sizeof(path))) {
        return false;
    }
    dir = opendir(path);
    if (dir == NULL) {
        return false;
    }
    while (!found && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            snprintf(name, cap, "%.*s", (int)cap - 1, entry->d_name);
            found = true;
        }
    }
    closedir(dir);
    return found;
}

/** Listen on the interface's first address, IPv4 before IPv6, any port. */
static bt_status_t listener_open(ucx_t *ucx, const char *interface)
{
    ucp_listener_params_t params = {.field_mask =
                                        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
                                        UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
                                    .conn_handler.cb = on_connection,
                                    .conn_handler.arg = ucx};
    ucp_listener_attr_t attr = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    struct ifaddrs *all = NULL;
    bt_status_t status = BT_ERR_UNSUPPORTED;

    if (getifaddrs(&all) != 0) {
        return BT_ERR_IO;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        if ((i->ifa_addr == NULL) || (strcmp(i->ifa_name, interface) != 0)) {
            continue;
        }
        if (i->ifa_addr->sa_family == AF_INET) {
            params.sockaddr.addr = i->ifa_addr;
            params.sockaddr.addrlen = sizeof(struct sockaddr_in);
            break;
        }
        if ((i->ifa_addr->sa_family == AF_INET6) &&
            (params.sockaddr.addr == NULL)) {
            params.sockaddr.addr = i->ifa_addr;
            params.sockaddr.addrlen = sizeof(struct sockaddr_in6);
        }
    }
    if ((params.sockaddr.addr != NULL) &&
        (ucp_listener_create(ucx->net, &params, &ucx->listener) == UCS_OK) &&
        (ucp_listener_query(ucx->listener, &attr) == UCS_OK)) {
        ucx->net_addr = attr.sockaddr;
        status = BT_OK;
    }
    freeifaddrs(all);
    return status;
}

static bt_status_t net_open(ucx_t *ucx, const char *device)
{
    char interface[IF_NAMESIZE] = "";
    const bool rdma = rdma_interface(device, interface, sizeof(interface));
    bt_status_t status;

    if (!rdma) {
        snprintf(interface, sizeof(interface), "%s", device);
    }
    if (if_nametoindex(interface) == 0) {
        BT_LOG_ERROR("kv transfer: no network device %s: %m", device);
        return BT_ERR_UNSUPPORTED;
    }
    status =
        context_open("baton-kv-net", rdma ? "rc,ud,self" : "tcp,self", device,
                     UCP_FEATURE_AM | UCP_FEATURE_WAKEUP, &ucx->net_context);
    if (status == BT_OK) {
        status = worker_open(ucx->net_context, &ucx->net);
    }
    if (status == BT_OK) {
        status = handlers_set(ucx);
    }
    if (status == BT_OK) {
        status = listener_open(ucx, interface);
    }
    if ((status == BT_OK) &&
        (ucp_worker_get_efd(ucx->net, &ucx->net_fd) != UCS_OK)) {
        status = BT_ERR_UNSUPPORTED;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("kv transfer: UCX cannot use network device %s", device);
    }
    return status;
}

/** The shared pool, or at least none of it half open. */
static bt_status_t shm_open_all(ucx_t *ucx)
{
    static const char *const tls[] = {"posix,self", "sysv,self"};
    bt_status_t status = BT_ERR_UNSUPPORTED;

    if (!ucx->host_known) {
        return status;
    }
    for (size_t i = 0; (i < BT_ARRAY_LEN(tls)) && (status != BT_OK); i++) {
        status = context_open("baton-kv-shm", tls[i], NULL, UCP_FEATURE_RMA,
                              &ucx->shm_context);
    }
    if (status == BT_OK) {
        status = worker_open(ucx->shm_context, &ucx->shm);
    }
    if ((status == BT_OK) &&
        (ucp_worker_get_address(ucx->shm, &ucx->shm_addr,
                                &ucx->shm_addr_bytes) != UCS_OK)) {
        ucx->shm_addr = NULL;
        status = BT_ERR_UNSUPPORTED;
    }
    if (status == BT_OK) {
        status = pool_make_shared(ucx);
    }
    return status;
}

static void shm_close_all(ucx_t *ucx)
{
    if (ucx->rkey != NULL) {
        ucp_rkey_buffer_release(ucx->rkey);
        ucx->rkey = NULL;
    }
    if (ucx->shm_addr != NULL) {
        ucp_worker_release_address(ucx->shm, ucx->shm_addr);
        ucx->shm_addr = NULL;
    }
    if (ucx->shm_mem != NULL) {
        ucp_mem_unmap(ucx->shm_context, ucx->shm_mem);
        ucx->shm_mem = NULL;
        ucx->kvt->pool = NULL;
    }
    if (ucx->shm != NULL) {
        ucp_worker_destroy(ucx->shm);
        ucx->shm = NULL;
    }
    if (ucx->shm_context != NULL) {
        ucp_cleanup(ucx->shm_context);
        ucx->shm_context = NULL;
    }
}

static bt_status_t epoll_open(ucx_t *ucx)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    ucx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if ((ucx->epoll_fd < 0) ||
        (epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, ucx->net_fd, &event) != 0)) {
        BT_LOG_ERROR("kv transfer: no descriptor to wait with: %m");
        return BT_ERR_IO;
    }
    return BT_OK;
}

static bt_status_t ucx_open(bt_kvt_t *kvt)
{
    const bt_kvt_config_t *config = &kvt->config;
    ucx_t *ucx = bt_calloc(1, sizeof(*ucx));
    bt_status_t status;

    if (ucx == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    kvt->transport = ucx;
    ucx->kvt = kvt;
    ucx->epoll_fd = NO_FD;
    ucx->net_fd = NO_FD;
    ucx->mapped_bytes = config->pool_bytes + BT_KVT_PROBE_BYTES;
    bt_list_init(&ucx->links);
    bt_list_init(&ucx->requests);
    bt_list_init(&ucx->small_free);
    bt_list_init(&ucx->large_free);
    bt_list_init(&ucx->landing_free);
    ucx->host_known = bt_kvt_host_read(&ucx->host) == BT_OK;

    status =
        net_open(ucx, (config->net_device == NULL) ? "lo" : config->net_device);
    if (status == BT_OK) {
        status = epoll_open(ucx);
    }
    if (status != BT_OK) {
        return status;
    }
    if (config->path == BT_KVT_PATH_NETWORK) {
        return pool_make_anonymous(ucx);
    }

    status = shm_open_all(ucx);
    if (status == BT_OK) {
        return BT_OK;
    }
    shm_close_all(ucx);
    if (config->path == BT_KVT_PATH_SHM) {
        BT_LOG_ERROR("kv transfer: no shared memory for a pool of %zu bytes",
                     config->pool_bytes);
        return status;
    }
    BT_LOG_WARN("kv transfer: no shared memory for a pool of %zu bytes; "
                "transfers on this host use the network",
                config->pool_bytes);
    return pool_make_anonymous(ucx);
}

static void free_list_drop(bt_list_t *head)
{
    while (!bt_list_empty(head)) {
        bt_list_t *first = head->next;

        bt_list_remove(first);
        /* The link is the first member of everything listed here. */
        bt_free(first);
    }
}

/** Give the last words a chance to leave; never waits for anybody long. */
static void net_drain(ucx_t *ucx)
{
    const uint64_t until_ms = bt_now_ms() + CLOSE_LIMIT_MS;
    bool closing = true;

    while (((ucx->n_flying > 0) || closing) && (bt_now_ms() < until_ms)) {
        bt_list_t *pos, *tmp;

        if (ucp_worker_progress(ucx->net) == 0) {
            closing = false;
        }
        BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
        {
            closing =
                closing || BT_CONTAINER_OF(pos, ucx_link_t, link)->closing;
        }
    }
}

static void links_close(ucx_t *ucx)
{
    bt_list_t *pos, *tmp;

    ucx->closing = true;
    requests_accept(ucx); /* rejects them */
    net_drain(ucx);
    BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
    {
        ucx_link_t *ul = BT_CONTAINER_OF(pos, ucx_link_t, link);

        shm_unmap(ul);
        connection_close(ul, true);
    }
    net_drain(ucx);
    if (ucx->listener != NULL) {
        ucp_listener_destroy(ucx->listener);
    }
}

static void ucx_close(bt_kvt_t *kvt)
{
    ucx_t *ucx = kvt->transport;

    if (ucx == NULL) {
        return;
    }
    kvt->closing = true;
    if (ucx->net != NULL) {
        links_close(ucx);
        ucp_worker_destroy(ucx->net);
    }
    if (ucx->net_context != NULL) {
        ucp_cleanup(ucx->net_context);
    }
    while (!bt_list_empty(&ucx->links)) {
        ucx_link_t *ul = BT_CONTAINER_OF(ucx->links.next, ucx_link_t, link);

        pidfd_close(ul);
        connection_free(ul);
    }
    shm_close_all(ucx);
    if (kvt->pool != NULL) {
        munmap(kvt->pool, ucx->mapped_bytes);
        kvt->pool = NULL;
    }
    if (ucx->epoll_fd >= 0) {
        close(ucx->epoll_fd);
    }
    free_list_drop(&ucx->small_free);
    free_list_drop(&ucx->large_free);
    free_list_drop(&ucx->landing_free);
    bt_free(ucx->inbox);
    bt_free(ucx);
    kvt->transport = NULL;
}

static void ucx_describe(bt_kvt_t *kvt, bt_kvt_export_info_t *info_p)
{
    const ucx_t *ucx = kvt->transport;

    info_p->host = ucx->host;
    info_p->net_addr.data = &ucx->net_addr;
    info_p->net_addr.bytes = (ucx->net_addr.ss_family == AF_INET)
                                 ? sizeof(struct sockaddr_in)
                                 : sizeof(struct sockaddr_in6);
    if (ucx->shm_mem == NULL) {
        return;
    }
    info_p->shm_base = (uint64_t)(uintptr_t)kvt->pool;
    info_p->probe_offset = kvt->config.pool_bytes;
    memcpy(info_p->probe, ucx->probe, sizeof(ucx->probe));
    info_p->shm_addr = (bt_kvt_blob_t){.data = ucx->shm_addr,
                                       .bytes = (uint32_t)ucx->shm_addr_bytes};
    info_p->shm_rkey =
        (bt_kvt_blob_t){.data = ucx->rkey, .bytes = (uint32_t)ucx->rkey_bytes};
}

/* ---- progress ---- */

static ucx_link_t *connection_find(ucx_t *ucx, ucp_ep_h ep)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
    {
        ucx_link_t *ul = BT_CONTAINER_OF(pos, ucx_link_t, link);

        if (ul->ep == ep) {
            return ul;
        }
    }
    return NULL;
}

static void message_take(ucx_link_t *ul, const void *data, size_t bytes)
{
    ucx_t *ucx = ul->ucx;
    bt_kvt_link_t *link;

    ul->n_taken++;
    ucx->speaking = ul;
    link = bt_kvt_take_message(ucx->kvt, data, bytes);
    ucx->speaking = NULL;
    /* When both connected at once, the second connection is the link's too:
     * its end is the link's end. */
    if ((link != NULL) && !link->lost && (ul->owner == NULL)) {
        ul->owner = link;
    }
}

static void early_keep(ucx_link_t *ul, uint64_t number, const void *data,
                       size_t bytes)
{
    early_t *e = NULL;

    if ((number > ul->n_taken) && (ul->n_early < MAX_EARLY)) {
        e = bt_calloc(1, sizeof(*e) + bytes);
    }
    if (e == NULL) {
        /* Without it nothing more can be understood. */
        ul->garbled = true;
        ul->failed = true;
        ul->ucx->some_failed = true;
        return;
    }
    e->number = number;
    e->bytes = bytes;
    memcpy(e->data, data, bytes);
    bt_list_push_back(&ul->early, &e->link);
    ul->n_early++;
}

static early_t *early_next(ucx_link_t *ul)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &ul->early)
    {
        early_t *e = BT_CONTAINER_OF(pos, early_t, link);

        if (e->number == ul->n_taken) {
            bt_list_remove(&e->link);
            ul->n_early--;
            return e;
        }
    }
    return NULL;
}

static void inbox_take(ucx_t *ucx)
{
    size_t at = 0;

    if (ucx->n_bad_messages > 0) {
        BT_LOG_WARN("kv transfer: %llu messages dropped, too long or no "
                    "memory",
                    (unsigned long long)ucx->n_bad_messages);
        ucx->n_bad_messages = 0;
    }
    while (at < ucx->inbox_bytes) {
        const uint8_t *data;
        inbox_entry_t entry;
        ucx_link_t *ul;
        early_t *e;

        memcpy(&entry, ucx->inbox + at, sizeof(entry));
        data = ucx->inbox + at + sizeof(entry);
        at += sizeof(entry) + entry.bytes;
        ul = connection_find(ucx, entry.ep);
        if ((ul == NULL) || ul->garbled) {
            continue; /* one that failed may have left last words here */
        }
        if (entry.number != ul->n_taken) {
            early_keep(ul, entry.number, data, entry.bytes);
            continue;
        }
        message_take(ul, data, entry.bytes);
        while ((ul->ep != NULL) && ((e = early_next(ul)) != NULL)) {
            message_take(ul, e->data, e->bytes);
            bt_free(e);
        }
    }
    ucx->inbox_bytes = 0;
}

static void failed_links_report(ucx_t *ucx)
{
    bt_list_t *pos, *tmp;

    ucx->some_failed = false;
    BT_LIST_FOR_EACH(pos, tmp, &ucx->links)
    {
        ucx_link_t *ul = BT_CONTAINER_OF(pos, ucx_link_t, link);

        if (!ul->failed || (ul->ep == NULL)) {
            continue;
        }
        if (ul->owner == NULL) { /* accepted, and never said hello */
            connection_close(ul, true);
            link_reap(ul);
        } else if (!ul->owner->lost) {
            bt_kvt_link_lost(ul->owner, false, "its connection ended");
        }
    }
}

static void ended_processes_report(ucx_t *ucx)
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

static bool ucx_progress(bt_kvt_t *kvt, uint64_t now_ms)
{
    ucx_t *ucx = kvt->transport;
    unsigned more = 1;

    for (int i = 0; (i < PROGRESS_ROUNDS) && (more != 0); i++) {
        more = ucp_worker_progress(ucx->net);
    }
    requests_accept(ucx);
    inbox_take(ucx);
    if (ucx->some_failed) {
        failed_links_report(ucx);
    }
    if (now_ms != ucx->watched_ms) { /* a system call: not in every round */
        ucx->watched_ms = now_ms;
        ended_processes_report(ucx);
    }
    return more != 0;
}

static int ucx_fd(const bt_kvt_t *kvt)
{
    const ucx_t *ucx = kvt->transport;

    return ucx->epoll_fd;
}

static bt_status_t ucx_arm(bt_kvt_t *kvt)
{
    ucx_t *ucx = kvt->transport;

    if (ucx->some_failed || (ucx->inbox_bytes > 0) ||
        !bt_list_empty(&ucx->requests)) {
        return BT_INPROGRESS;
    }
    return (ucp_worker_arm(ucx->net) == UCS_OK) ? BT_OK : BT_INPROGRESS;
}

const bt_kvt_transport_t bt_kvt_transport_ucx = {
    .name = "ucx",
    .id = BT_KVT_TRANSPORT_UCX,
    .open = ucx_open,
    .close = ucx_close,
    .describe = ucx_describe,
    .connect = ucx_connect,
    .disconnect = ucx_disconnect,
    .forget = ucx_forget,
    .map = ucx_map,
    .unmap = ucx_unmap,
    .watch = ucx_watch,
    .send = ucx_send,
    .send_data = ucx_send_data,
    .copy = ucx_copy,
    .progress = ucx_progress,
    .fd = ucx_fd,
    .arm = ucx_arm,
};
