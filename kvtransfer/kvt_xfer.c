/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"

/** Number of records after which the receiver is notified at once. */
#define PART_RECORDS 256u
/** Largest joined record: pieces are joined up to this size, so that the
 *  receiver checks one and not thirty, but the last check stays short. */
#define JOINED_BYTES (256u << 10)
/** Bytes left to copy from which on the sender's processor is reported
 *  (kvt_pages.h). */
#define AHEAD_BYTES (2u << 20)
/** Bytes after which the receiver is notified, or a share of the region: it
 *  verifies while more comes, and has at most that much left after the last
 *  byte. A PART costs a message. */
#define PART_MIN_BYTES (512u << 10)
#define PART_MAX_BYTES (4u << 20)
#define PART_SHARE     16u

static bt_kvt_xfer_t *xfer_find(bt_kvt_link_t *link,
                                const bt_kvt_lease_t *lease)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, x, &link->xfers, of_link) {
        if ((x->lease.grant == lease->grant) && (x->lease.id == lease->id) &&
            (x->lease.generation == lease->generation)) {
            return x;
        }
    }
    return NULL;
}

/** Creates a transfer, reusing the memory of an ended one if possible. */
static bt_kvt_xfer_t *xfer_get(bt_kvt_t *kvt)
{
    bt_kvt_xfer_t *x;

    if (bt_list_empty(&kvt->spare_xfers)) {
        x = bt_calloc(1, sizeof(*x));
        if (x == NULL) {
            return NULL;
        }
    } else {
        bt_kvt_xfer_t kept;

        x = BT_CONTAINER_OF(kvt->spare_xfers.next, bt_kvt_xfer_t, all);
        bt_list_remove(&x->all);
        kvt->n_spare_xfers--;
        kept = *x;
        memset(x, 0, sizeof(*x));
        x->map = kept.map;
        x->posted = kept.posted;
        bt_kvt_ranges_clear(&x->posted);
        x->records = kept.records;
        x->moves = kept.moves;
        x->records_cap = kept.records_cap;
    }
    x->kvt = kvt;
    bt_list_init(&x->all);
    bt_list_init(&x->of_link);
    bt_list_init(&x->done.link);
    bt_list_init(&x->busy);
    bt_list_init(&x->slots);
    bt_list_init(&x->waiting);
    return x;
}

bt_status_t bt_kvt_prep(bt_kvt_peer_t *peer, const void *desc,
                        size_t desc_bytes, void *user, bt_kvt_xfer_t **xfer_p)
{
    bt_kvt_link_t *link = peer->link;
    bt_kvt_desc_t *d = &link->kvt->desc;
    bt_kvt_xfer_t *x;
    bt_status_t status;

    if (bt_kvt_link_is_lost(link->state)) {
        return BT_ERR_PEER_LOST;
    }
    status = bt_kvt_desc_decode(desc, desc_bytes, d);
    if (status != BT_OK) {
        return status;
    }
    if (d->receiver != link->instance) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (bt_kvt_link_over_has(link, d->lease.grant)) {
        return BT_ERR_STALE;
    }
    if (xfer_find(link, &d->lease) != NULL) {
        return BT_ERR_EXISTS;
    }
    x = xfer_get(link->kvt);
    if (x == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status =
        bt_kvt_map_init(d->extents, d->n_extents, link->pool_bytes, &x->map);
    if (status != BT_OK) {
        bt_kvt_xfer_free(x);
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_BAD_MESSAGE;
    }

    x->link = link;
    x->peer = peer;
    x->user = user;
    x->lease = d->lease;
    memcpy(x->secret, d->secret, sizeof(x->secret));
    x->session = d->session;
    x->done.type = BT_KVT_XFER_DONE;
    x->done.owner = x;
    bt_list_push_back(&link->xfers, &x->of_link);
    bt_list_push_back(&x->kvt->xfers, &x->all);
    x->kvt->counters.xfers_open++;
    *xfer_p = x;
    return BT_OK;
}

uint64_t bt_kvt_xfer_region_bytes(const bt_kvt_xfer_t *x)
{
    return x->map.bytes;
}

void bt_kvt_xfer_free(bt_kvt_xfer_t *x)
{
    bt_kvt_t *kvt = x->kvt;

    bt_list_remove(&x->all);
    bt_list_remove(&x->busy);
    bt_list_remove(&x->of_link);
    bt_list_remove(&x->done.link);
    bt_list_remove(&x->waiting);
    if (!kvt->closing && (kvt->n_spare_xfers + 1 <= BT_KVT_MAX_SPARE)) {
        kvt->n_spare_xfers++;
        bt_list_push_back(&kvt->spare_xfers, &x->all);
        return;
    }
    bt_kvt_map_fini(&x->map);
    bt_kvt_ranges_fini(&x->posted);
    bt_free(x->records);
    bt_free(x->moves);
    bt_free(x);
}

/** Ends a transfer once no one reads the source bytes. */
static void xfer_settle(bt_kvt_xfer_t *x)
{
    if ((x->state == BT_KVT_XFER_IS_ENDING) && (x->n_flying == 0) &&
        (x->n_fetching == 0)) {
        if (x->owes_cancel) {
            bt_kvt_link_send_lease(x->link, BT_KVT_MSG_CANCEL, &x->lease,
                                   BT_OK);
        }
        if (x->owes_confirm) {
            bt_kvt_link_send_lease(x->link, BT_KVT_MSG_CONFIRM, &x->lease,
                                   BT_OK);
        }
        bt_kvt_xfer_move(x, BT_KVT_XFER_ON_RETURNED);
    }
}

/** Starts the actions of the state that a transfer has entered. */
static void xfer_entered(bt_kvt_xfer_t *x)
{
    switch (x->state) {
    case BT_KVT_XFER_IS_ENDING:
        bt_list_remove(&x->busy);
        if (x->kvt->stage != NULL) {
            bt_kvt_stage_drop(x);
        }
        if (x->link->map != NULL) {
            bt_kvt_link_over_add(x->link, x->lease.grant);
        }
        xfer_settle(x);
        break;
    case BT_KVT_XFER_IS_ENDED:
        bt_list_remove(&x->of_link);
        x->link = NULL;
        x->kvt->counters.xfers_open--;
        bt_kvt_event_push(x->kvt, &x->done);
        break;
    case BT_KVT_XFER_IS_POSTING:
    case BT_KVT_XFER_IS_FINISHED:
    case BT_KVT_XFER_IS_LISTED:
    case BT_KVT_XFER_N_STATES:
        break;
    }
}

void bt_kvt_xfer_move(bt_kvt_xfer_t *x, bt_kvt_xfer_input_t input)
{
    const bt_kvt_xfer_state_t from = x->state;
    const bt_status_t status = bt_kvt_xfer_next(from, input, &x->state);

    /* A wrong step could give back bytes that the network still reads. */
    BT_ASSERT_ALWAYS(status == BT_OK);
    if (x->state != from) {
        xfer_entered(x);
    }
}

void bt_kvt_xfer_end(bt_kvt_xfer_t *x, bt_status_t outcome)
{
    if (bt_kvt_xfer_is_live(x)) {
        x->outcome = outcome;
        bt_kvt_xfer_move(x, (outcome == BT_OK) ? BT_KVT_XFER_ON_PROVEN
                                               : BT_KVT_XFER_ON_END);
    }
}

static bool has_work(const bt_kvt_xfer_t *x)
{
    return bt_kvt_xfer_is_live(x) && (x->link->state == BT_KVT_LINK_IS_OPEN) &&
           ((x->n_moved < x->n_records) || (x->n_listed < x->n_joined) ||
            (x->state == BT_KVT_XFER_IS_FINISHED));
}

void bt_kvt_xfer_wake(bt_kvt_xfer_t *x)
{
    if (has_work(x) && bt_list_empty(&x->busy)) {
        bt_list_push_back(&x->kvt->busy, &x->busy);
    }
}

void bt_kvt_xfers_wake(bt_kvt_link_t *link)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, xfer, &link->xfers, of_link) {
        bt_kvt_xfer_wake(xfer);
    }
}

/** Notifies the receiver that a transfer ends. Copies into the receiver's
 *  memory are made within progress only, so none is in flight here; except the
 *  device's, and then the message is sent later. */
static void xfer_give_up(bt_kvt_xfer_t *x, bt_status_t why)
{
    if (bt_kvt_share_writes(x)) {
        x->owes_cancel = true;
    } else {
        bt_kvt_link_send_lease(x->link, BT_KVT_MSG_CANCEL, &x->lease, BT_OK);
    }
    bt_kvt_xfer_end(x, why);
}

void bt_kvt_cancel(bt_kvt_xfer_t *x)
{
    if ((x != NULL) && bt_kvt_xfer_is_live(x)) {
        xfer_give_up(x, BT_ERR_CANCELED);
    }
}

void bt_kvt_release(bt_kvt_xfer_t *x)
{
    if (x == NULL) {
        return;
    }
    /* Else the network may still read its bytes. */
    BT_ASSERT_ALWAYS(x->state == BT_KVT_XFER_IS_ENDED);
    bt_kvt_xfer_free(x);
}

/** Records that everything posted so far was sent: the time until the next post
 *  is the sender's own. */
static void note_idle(bt_kvt_xfer_t *x)
{
    if (x->busy_us != 0) {
        x->moved_us += bt_now_us() - x->busy_us;
        x->busy_us = 0;
    }
}

/** Calls note_idle() when that is the case; a finished transfer gets there with
 *  the last PART. */
static void idle_check(bt_kvt_xfer_t *x)
{
    if ((x->n_flying == 0) && (x->n_moved == x->n_records) &&
        (x->state == BT_KVT_XFER_IS_POSTING)) {
        note_idle(x);
    }
}

void bt_kvt_xfer_fetched(bt_kvt_xfer_t *x, bt_status_t status)
{
    if (!bt_kvt_xfer_is_live(x)) {
        xfer_settle(x);
    } else if (status != BT_OK) {
        xfer_give_up(x, status);
    } else {
        bt_kvt_xfer_wake(x);
    }
}

void bt_kvt_xfer_sent(bt_kvt_xfer_t *x, uint64_t bytes, bt_kvt_slot_t *slot)
{
    bt_kvt_link_t *link = x->link;

    x->n_flying--;
    bt_kvt_slot_unref(slot);
    idle_check(x);
    link->inflight_bytes -= bytes;
    link->last_heard_ms = x->kvt->now_ms;
    if (link->stalled &&
        (link->inflight_bytes <= BT_KVT_MAX_INFLIGHT_BYTES / 2)) {
        link->stalled = false;
        bt_kvt_xfers_wake(link);
    }
    xfer_settle(x);
}

/** True when @a status is a valid RESULT in this state. */
static bool is_result(const bt_kvt_xfer_t *x, bt_status_t status)
{
    bt_kvt_xfer_state_t next;

    switch (status) {
    case BT_OK:
        return bt_kvt_xfer_next(x->state, BT_KVT_XFER_ON_PROVEN, &next) ==
               BT_OK;
    case BT_ERR_CORRUPT:
    case BT_ERR_BAD_MESSAGE:
    case BT_ERR_STALE:
    case BT_ERR_CANCELED:
    case BT_ERR_NO_MEMORY:
    case BT_ERR_DEVICE:
        return true;
    default:
        return false;
    }
}

void bt_kvt_xfer_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg)
{
    bt_kvt_xfer_t *x = xfer_find(link, &msg->lease);
    const bool writes = (x != NULL) && bt_kvt_share_writes(x);
    bt_status_t status = msg->status;

    switch (msg->type) {
    case BT_KVT_MSG_BEGIN_ACK:
        if ((x == NULL) || (x->leave != BT_KVT_LEAVE_ASKED)) {
            return; /* it was asked again before it answered */
        }
        if (status == BT_OK) {
            x->leave = BT_KVT_LEAVE_GIVEN;
            bt_kvt_xfer_wake(x);
        } else {
            bt_kvt_xfer_end(x, BT_ERR_STALE);
        }
        break;
    case BT_KVT_MSG_RESULT:
        if (x != NULL) {
            bt_kvt_xfer_end(x,
                            is_result(x, status) ? status : BT_ERR_BAD_MESSAGE);
        }
        bt_kvt_link_over_trim(link, msg->floor);
        break;
    case BT_KVT_MSG_REVOKE:
        if (x != NULL) {
            bt_kvt_xfer_end(x, BT_ERR_STALE);
        } else if (link->map != NULL) {
            bt_kvt_link_over_add(link, msg->lease.grant);
        }
        bt_kvt_link_over_trim(link, msg->floor);
        if (writes) {
            x->owes_confirm = true;
        } else {
            bt_kvt_link_send_lease(link, BT_KVT_MSG_CONFIRM, &msg->lease,
                                   BT_OK);
        }
        break;
    default:
        break;
    }
}

/** True when we may write into the region directly. Asks the receiver if that
 *  is not known. */
static bool direct_begin(bt_kvt_xfer_t *x)
{
    bt_kvt_link_t *link = x->link;

    if ((x->leave != BT_KVT_LEAVE_GIVEN) && (x->session == link->peer_nonce) &&
        !link->over_lost) {
        x->leave = BT_KVT_LEAVE_GIVEN;
    }
    if (x->leave == BT_KVT_LEAVE_NONE) {
        x->leave = BT_KVT_LEAVE_ASKED;
        x->begin_ms = x->kvt->now_ms;
        bt_kvt_link_send_lease(link, BT_KVT_MSG_BEGIN, &x->lease, BT_OK);
    }
    return x->leave == BT_KVT_LEAVE_GIVEN;
}

/** True when posted piece i may join the record of the pieces before it, from
 *  n_moved on. */
static bool may_join(const bt_kvt_xfer_t *x, uint32_t i, uint64_t bytes,
                     uint32_t *n_runs)
{
    const bt_kvt_record_t *before = &x->records[i - 1];
    const bt_kvt_record_t *r = &x->records[i];

    if ((r->offset != before->offset + before->bytes) ||
        (bytes + r->bytes > JOINED_BYTES)) {
        return false;
    }
    if (x->moves[i].pool_offset !=
        x->moves[i - 1].pool_offset + before->bytes) {
        (*n_runs)++;
    }
    return *n_runs <= x->link->max_record_runs;
}

static void pieces_copy(bt_kvt_xfer_t *x, const bt_hash_piece_t *pieces,
                        uint32_t n, bt_kvt_record_t *r)
{
    if (!x->kvt->unhashed) {
        r->hash = x->kvt->ops->copy(
            x->link, pieces, n,
            bt_kvt_record_seed(&x->lease, r->offset, r->bytes));
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_copy_shared(pieces[i].dst, pieces[i].src, pieces[i].n);
    }
}

/** Writes the next piece, and small ones after it, directly as one record. */
static const bt_kvt_record_t *record_copy(bt_kvt_xfer_t *x)
{
    bt_kvt_link_t *link = x->link;
    bt_hash_piece_t pieces[BT_KVT_MAX_RECORD_RUNS];
    bt_kvt_record_t joined = {.offset = x->records[x->n_moved].offset};
    uint32_t n_runs = 1;
    uint32_t n = 0;

    do {
        const uint32_t i = x->n_moved + n;

        pieces[n++] =
            (bt_hash_piece_t){.src = x->moves[i].src,
                              .dst = link->map + x->moves[i].pool_offset,
                              .n = (size_t)x->records[i].bytes};
        joined.bytes += x->records[i].bytes;
    } while ((n < BT_ARRAY_LEN(pieces)) && (x->n_moved + n < x->n_records) &&
             may_join(x, x->n_moved + n, joined.bytes, &n_runs));
    pieces_copy(x, pieces, n, &joined);
    x->records[x->n_joined] = joined;
    x->n_moved += n;
    return &x->records[x->n_joined++];
}

/** Hands a record to the network, in pieces of the transport's size. */
static bt_status_t pieces_send(bt_kvt_xfer_t *x, const bt_kvt_record_t *r,
                               const uint8_t *src, bt_kvt_slot_t *slot)
{
    bt_kvt_link_t *link = x->link;
    bt_kvt_piece_t piece = {.from = x->kvt->config.instance, .lease = x->lease};
    uint8_t header[BT_KVT_PIECE_BYTES];
    bt_status_t status;

    memcpy(piece.secret, x->secret, sizeof(piece.secret));
    for (uint64_t at = 0; at < r->bytes; at += piece.bytes) {
        piece.offset = r->offset + at;
        piece.bytes = r->bytes - at;
        if (piece.bytes > x->kvt->net_piece_bytes) {
            piece.bytes = x->kvt->net_piece_bytes;
        }
        bt_kvt_piece_encode(&piece, header);
        x->n_flying++;
        link->inflight_bytes += piece.bytes;
        bt_kvt_slot_ref(slot);
        status = x->kvt->ops->send_data(x, header, src + at,
                                        (size_t)piece.bytes, slot);
        if (status != BT_OK) {
            bt_kvt_slot_unref(slot);
            x->n_flying--;
            link->inflight_bytes -= piece.bytes;
            return status;
        }
    }
    return BT_OK;
}

/** Sends a record. @return false when the network has enough for now. */
static bool record_send(bt_kvt_xfer_t *x, bt_kvt_record_t *r,
                        const uint8_t *src, bt_kvt_slot_t *slot)
{
    bt_kvt_link_t *link = x->link;
    bt_status_t status;

    if ((link->inflight_bytes > 0) &&
        (link->inflight_bytes + r->bytes > BT_KVT_MAX_INFLIGHT_BYTES)) {
        link->stalled = true;
        return false;
    }
    status = bt_kvt_memory_hash(
        x->kvt, &(bt_hash_piece_t){.src = src, .n = (size_t)r->bytes}, 1,
        bt_kvt_record_seed(&x->lease, r->offset, r->bytes), &r->hash);
    if (status != BT_OK) {
        xfer_give_up(x, status);
        return false;
    }
    if (pieces_send(x, r, src, slot) != BT_OK) {
        (void)bt_kvt_link_move(link, BT_KVT_LINK_ON_SEND_FAILED);
        return false;
    }
    return true;
}

/** Sends the next piece as a record of its own: over the network, or from a
 *  slot.
 *  @return NULL: not yet */
static const bt_kvt_record_t *record_away(bt_kvt_xfer_t *x, bool direct)
{
    bt_kvt_record_t *r = &x->records[x->n_moved];
    const uint8_t *src = x->moves[x->n_moved].src;
    bt_kvt_slot_t *slot = NULL;

    if (x->kvt->stage != NULL) {
        slot = bt_kvt_stage_next(x);
        if (slot == NULL) {
            return NULL;
        }
        src = slot->bytes;
    }
    if (direct) {
        pieces_copy(x,
                    &(bt_hash_piece_t){.src = src,
                                       .dst = x->link->map +
                                              x->moves[x->n_moved].pool_offset,
                                       .n = (size_t)r->bytes},
                    1, r);
    } else if (!record_send(x, r, src, slot)) {
        return NULL;
    }
    if (slot != NULL) {
        bt_kvt_stage_moved(x);
    }
    x->records[x->n_joined] = *r;
    x->n_moved++;
    return &x->records[x->n_joined++];
}

/** Takes the record of the next pieces, which the device has copied.
 *  @return NULL: not yet */
static const bt_kvt_record_t *record_shared(bt_kvt_xfer_t *x)
{
    const bt_kvt_slot_t *slot = bt_kvt_stage_next(x);

    if (slot == NULL) {
        return NULL;
    }
    x->records[x->n_joined] = (bt_kvt_record_t){
        .offset = slot->offset, .bytes = slot->n_bytes, .hash = slot->hash};
    x->n_moved += slot->n_records;
    bt_kvt_stage_moved(x);
    return &x->records[x->n_joined++];
}

static void part_send(bt_kvt_xfer_t *x)
{
    const uint32_t rest = x->n_joined - x->n_listed;
    bt_kvt_msg_t msg = {.type = BT_KVT_MSG_PART,
                        .lease = x->lease,
                        .direct = x->link->map != NULL,
                        .first_record = x->n_listed};

    msg.n_records =
        (rest < BT_KVT_MAX_PART_RECORDS) ? rest : BT_KVT_MAX_PART_RECORDS;
    msg.records = x->records + x->n_listed;
    x->n_listed += msg.n_records;
    x->bytes_listed = x->bytes_moved;
    if ((x->state == BT_KVT_XFER_IS_FINISHED) && (x->n_moved == x->n_records) &&
        (x->n_listed == x->n_joined)) {
        msg.last = true;
        note_idle(x);
        msg.elapsed_us = x->moved_us;
        msg.note.data = x->note;
        msg.note.bytes = x->note_bytes;
        bt_kvt_xfer_move(x, BT_KVT_XFER_ON_LISTED);
    }
    if (msg.direct && !x->link->by_device &&
        (x->posted.bytes - x->bytes_moved >= AHEAD_BYTES)) {
        msg.cpu = bt_kvt_aside_here();
    }
    if (msg.direct) {
        /* The bytes must be visible before the message about them. */
        atomic_thread_fence(memory_order_release);
    }
    bt_kvt_link_send(x->link, &msg);
}

static bool part_due(const bt_kvt_xfer_t *x)
{
    uint64_t bytes = x->map.bytes / PART_SHARE;

    bytes = (bytes < PART_MIN_BYTES) ? PART_MIN_BYTES : bytes;
    bytes = (bytes > PART_MAX_BYTES) ? PART_MAX_BYTES : bytes;
    return (x->n_moved == x->n_records) ||
           (x->n_joined - x->n_listed >= PART_RECORDS) ||
           (x->bytes_moved - x->bytes_listed >= bytes);
}

/** Begins the copies of the next records while this one is sent. @return false:
 *  failed, the transfer is over */
static bool records_fetch(bt_kvt_xfer_t *x)
{
    bt_status_t status = BT_OK;

    if (x->kvt->stage != NULL) {
        status = bt_kvt_stage_fetch(x);
    }
    if (status != BT_OK) {
        xfer_give_up(x, status);
    }
    return status == BT_OK;
}

/** Takes one step. @return false when it must wait for something. */
static bool xfer_step(bt_kvt_xfer_t *x, size_t *budget_p)
{
    const bool direct = (x->link != NULL) && (x->link->map != NULL);
    const bt_kvt_record_t *r;

    if (!has_work(x) || (direct && !direct_begin(x)) || !records_fetch(x)) {
        return false;
    }
    if (part_due(x)) {
        part_send(x);
        return has_work(x);
    }

    if (direct && (x->kvt->stage == NULL)) {
        r = record_copy(x);
    } else {
        r = x->link->by_device ? record_shared(x) : record_away(x, direct);
    }
    if (r == NULL) {
        return false;
    }
    x->bytes_moved += r->bytes;
    x->kvt->counters.bytes_sent += r->bytes;
    x->kvt->counters.descriptors++;
    idle_check(x);
    *budget_p -= (r->bytes < *budget_p) ? (size_t)r->bytes : *budget_p;
    return has_work(x);
}

void bt_kvt_xfers_move(bt_kvt_t *kvt, size_t *budget_p)
{
    /* One record each in turn, so that a long transfer does not hold up a
     * short one. */
    while ((*budget_p > 0) && !bt_list_empty(&kvt->busy)) {
        bt_kvt_xfer_t *x = BT_CONTAINER_OF(kvt->busy.next, bt_kvt_xfer_t, busy);
        bool more;

        bt_list_remove(&x->busy);
        more = xfer_step(x, budget_p);
        if (more && bt_list_empty(&x->busy)) {
            bt_list_push_back(&kvt->busy, &x->busy);
        }
    }
}

void bt_kvt_xfers_tick(bt_kvt_t *kvt)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, x, &kvt->xfers, all) {
        if (bt_kvt_xfer_is_live(x) && (x->leave == BT_KVT_LEAVE_ASKED) &&
            (kvt->now_ms - x->begin_ms >= kvt->config.keepalive_ms)) {
            x->begin_ms = kvt->now_ms;
            bt_kvt_link_send_lease(x->link, BT_KVT_MSG_BEGIN, &x->lease, BT_OK);
        }
    }
}
