/* SPDX-License-Identifier: Apache-2.0 */
/* Data on the network: messages in order, pieces of regions. UCX keeps no order
 * between active messages (seen: a short one overtakes a longer one sent before
 * the connection was up; fragments of a long one are overtaken when the socket
 * is full). Messages are numbered per connection and put in order here; pieces
 * need no order. */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define AM_MESSAGE 1u
#define AM_PIECE   2u

#define SMALL_BYTES  512u /* most messages */
#define NUMBER_BYTES 8u
/* Far more than a full socket lets overtake. */
#define MAX_EARLY       1024u
#define MAX_EARLY_BYTES (8u << 20)

typedef struct inbox_entry {
    ucp_ep_h ep; /* endpoint that it came on, and is answered on */
    uint64_t number;
    size_t bytes;
} inbox_entry_t;

/* A message that arrived out of order. */
typedef struct early {
    bt_list_t link;
    uint64_t number;
    size_t bytes;
    uint8_t data[];
} early_t;

/* A send in flight: UCX reads header and message until it completes. */
typedef struct outgoing {
    bt_list_t link;
    ucx_t *ucx;
    bt_kvt_xfer_t *xfer; /* of a piece */
    bt_kvt_slot_t *slot; /* ...and its slot */
    uint64_t piece_bytes;
    uint64_t number; /* of a message: its header, little-endian */
    bt_list_t *home;
    size_t cap;
    uint8_t data[];
} outgoing_t;

/* A rendezvous into the pool, or into a slot first, in flight. */
typedef struct landing {
    bt_list_t link; /* first; see ucx_close() */
    ucx_t *ucx;
    bt_kvt_region_t *region;
    bt_kvt_slot_t *slot;
    uint8_t *dst; /* in the pool */
    void *data;   /* UCX's handle to begin it with */
    uint64_t offset, bytes;
    bool waits; /* for a slot; counted */
} landing_t;

/* ---- sending ---- */

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
    out->slot = NULL;
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
        bt_kvt_xfer_sent(xfer, out->piece_bytes, out->slot);
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
                        UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .flags = flags,
        .memory_type = (id == AM_PIECE) ? bt_kvt_ucx_memory_type(ul->ucx)
                                        : UCS_MEMORY_TYPE_HOST,
        .cb.send = on_sent,
        .user_data = out};
    ucs_status_ptr_t request =
        ucp_am_send_nbx(ul->ep, id, header, header_bytes, data, bytes, &param);

    if (!UCS_PTR_IS_PTR(request)) {
        outgoing_done(out); /* completed, or failed with its endpoint */
    }
}

bt_status_t bt_kvt_ucx_send(bt_kvt_link_t *link, const void *msg, size_t bytes)
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

bt_status_t bt_kvt_ucx_send_data(bt_kvt_xfer_t *xfer,
                                 const uint8_t header[BT_KVT_PIECE_BYTES],
                                 const void *src, size_t bytes,
                                 bt_kvt_slot_t *slot)
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
    out->slot = slot;
    out->piece_bytes = bytes;
    memcpy(out->data, header, BT_KVT_PIECE_BYTES);
    am_send(ul, AM_PIECE, out, out->data, BT_KVT_PIECE_BYTES, src, bytes,
            (bytes <= ul->ucx->eager_bytes) ? UCP_AM_SEND_FLAG_EAGER : 0);
    return BT_OK;
}

/* ---- receiving ---- */

/** Limits the bytes accepted from a connection that is not authenticated yet.
 */
static bool may_come(ucx_link_t *ul, size_t bytes)
{
    if (ul->failed) {
        return ul->proven; /* a peer that is closing */
    }
    ul->inbox_bytes += bytes;
    return ul->proven || (ul->inbox_bytes <= UNPROVEN_BYTES);
}

/* Messages are kept until the worker's progress has returned: answering one
 * may create or close endpoints, which a callback must not. */
static ucs_status_t on_message(void *arg, const void *header,
                               size_t header_bytes, void *data, size_t bytes,
                               const ucp_am_recv_param_t *param)
{
    ucx_t *ucx = arg;
    inbox_entry_t entry = {.ep = param->reply_ep, .bytes = bytes};
    const size_t need = ucx->inbox_bytes + sizeof(entry) + bytes;
    ucx_link_t *ul;

    if ((header_bytes != NUMBER_BYTES) || (bytes > BT_KVT_MAX_MSG) ||
        ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) ||
        ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0)) {
        ucx->n_bad_messages++;
        return UCS_OK;
    }
    ul = bt_kvt_ucx_connection_find(ucx, entry.ep);
    if (ul == NULL) {
        return UCS_OK; /* closed meanwhile */
    }
    if (!may_come(ul, bytes)) {
        bt_kvt_ucx_connection_fail(ul);
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
    if (ucx->kvt->closing) {
        return;
    }
    if (landing->slot != NULL) {
        bt_kvt_stage_filled(landing->slot, landing->region, landing->dst,
                            landing->offset, landing->bytes, ok);
    } else {
        bt_kvt_region_landed(landing->region, landing->offset, landing->bytes,
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

/** Receives the bytes of a rendezvous, which may be complete on return. */
static void landing_begin(landing_t *landing)
{
    ucx_t *ucx = landing->ucx;
    ucp_request_param_t recv = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                UCP_OP_ATTR_FIELD_USER_DATA |
                                                UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                .memory_type = bt_kvt_ucx_memory_type(ucx),
                                .user_data = landing,
                                .cb.recv_am = on_landed};
    uint8_t *to = (landing->slot == NULL) ? landing->dst : landing->slot->bytes;
    ucs_status_ptr_t request = ucp_am_recv_data_nbx(ucx->net, landing->data, to,
                                                    landing->bytes, &recv);

    if (!UCS_PTR_IS_PTR(request)) {
        landing_done(landing, request == NULL);
    }
}

void bt_kvt_ucx_pieces_take(ucx_t *ucx)
{
    while (!bt_list_empty(&ucx->asked)) {
        landing_t *landing = BT_CONTAINER_OF(ucx->asked.next, landing_t, link);

        landing->slot = bt_kvt_stage_slot(ucx->kvt);
        if (landing->slot == NULL) {
            ucx->kvt->counters.stage_waits += landing->waits ? 0 : 1;
            landing->waits = true;
            return;
        }
        bt_list_remove(&landing->link);
        landing_begin(landing);
    }
}

void bt_kvt_ucx_pieces_drop(ucx_t *ucx)
{
    BT_LIST_FOR_EACH_ENTRY(landing_t, landing, &ucx->asked, link) {
        bt_list_remove(&landing->link);
        ucp_am_data_release(ucx->net, landing->data);
        bt_list_push_back(&ucx->landing_free, &landing->link);
    }
}

static ucs_status_t on_piece(void *arg, const void *header, size_t header_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param)
{
    ucx_t *ucx = arg;
    bt_kvt_region_t *region = NULL;
    bt_kvt_piece_t piece;
    landing_t *landing;
    uint8_t *dst;

    if (ucx->kvt->closing) {
        return UCS_OK;
    }
    dst = bt_kvt_region_take(ucx->kvt, header, header_bytes, bytes, &piece,
                             &region);
    if (dst == NULL) {
        return UCS_OK;
    }
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
        bt_kvt_region_put(region, dst, data, piece.offset, bytes);
        return UCS_OK;
    }

    landing = landing_get(ucx);
    if (landing == NULL) {
        bt_kvt_region_landed(region, piece.offset, bytes, false);
        return UCS_ERR_NO_MEMORY;
    }
    landing->region = region;
    landing->slot = NULL;
    landing->waits = false;
    landing->dst = dst;
    landing->data = data;
    landing->offset = piece.offset;
    landing->bytes = bytes;
    if (ucx->kvt->stage == NULL) {
        landing_begin(landing);
        return UCS_OK;
    }
    bt_list_push_back(&ucx->asked, &landing->link);
    return UCS_INPROGRESS; /* from now on the data is ours: see `asked` */
}

bt_status_t bt_kvt_ucx_handlers_set(ucx_t *ucx)
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

/* ---- in order ---- */

static void message_take(ucx_link_t *ul, const void *data, size_t bytes)
{
    ucx_t *ucx = ul->ucx;
    bt_kvt_link_t *link;

    ul->n_taken++;
    ucx->speaking = ul;
    link = bt_kvt_take_message(ucx->kvt, ul->owner, data, bytes);
    ucx->speaking = NULL;
    if (ul->owner != NULL) {
        return;
    }
    if ((link == NULL) || bt_kvt_link_is_lost(link->state)) {
        if (ul->n_taken >= UNPROVEN_MESSAGES) {
            bt_kvt_ucx_connection_fail(ul);
        }
        return; /* altered in transit: the peer repeats it */
    }
    /* When both connected at once, the second connection belongs to the link
     * too: its end is the link's end. */
    bt_kvt_ucx_connection_own(ul, link);
}

static void early_keep(ucx_link_t *ul, uint64_t number, const void *data,
                       size_t bytes)
{
    const uint32_t max = ul->proven ? MAX_EARLY : UNPROVEN_MESSAGES;
    const size_t max_bytes = ul->proven ? MAX_EARLY_BYTES : UNPROVEN_BYTES;
    early_t *e = NULL;

    if ((number > ul->n_taken) && (ul->n_early < max) &&
        (bytes <= max_bytes - ul->early_bytes)) {
        e = bt_calloc(1, sizeof(*e) + bytes);
    }
    if (e == NULL) {
        /* Later messages cannot be handled without this one. */
        ul->garbled = true;
        bt_kvt_ucx_connection_fail(ul);
        return;
    }
    e->number = number;
    e->bytes = bytes;
    memcpy(e->data, data, bytes);
    bt_list_push_back(&ul->early, &e->link);
    ul->n_early++;
    ul->early_bytes += bytes;
}

static early_t *early_next(ucx_link_t *ul)
{
    BT_LIST_FOR_EACH_ENTRY(early_t, e, &ul->early, link) {
        if (e->number == ul->n_taken) {
            bt_list_remove(&e->link);
            ul->n_early--;
            ul->early_bytes -= e->bytes;
            return e;
        }
    }
    return NULL;
}

void bt_kvt_ucx_early_drop(ucx_link_t *ul)
{
    BT_LIST_FOR_EACH_ENTRY(early_t, e, &ul->early, link) {
        bt_list_remove(&e->link);
        bt_free(e);
    }
}

void bt_kvt_ucx_inbox_take(ucx_t *ucx)
{
    size_t at = 0;

    if (ucx->n_bad_messages > 0) {
        BT_LOG_WARN("kv transfer: %" PRIu64 " messages dropped, too long or no "
                    "memory",
                    ucx->n_bad_messages);
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
        ul = bt_kvt_ucx_connection_find(ucx, entry.ep);
        if ((ul == NULL) || ul->garbled || (ul->failed && !ul->proven)) {
            continue; /* a peer that failed may have left its last messages here
                       */
        }
        if (entry.number != ul->n_taken) {
            early_keep(ul, entry.number, data, entry.bytes);
            continue;
        }
        message_take(ul, data, entry.bytes);
        while ((ul->ep != NULL) && ul->proven &&
               ((e = early_next(ul)) != NULL)) {
            message_take(ul, e->data, e->bytes);
            bt_free(e);
        }
    }
    ucx->inbox_bytes = 0;
}
