/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a transfer, on both sides: the sender cuts pieces into them, the
 * receiver takes what arrives for its regions. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/crypt/key.h"
#include "kvtransfer/kvt_core.h"
#include "kvtransfer/kvt_stage.h"

uint8_t *bt_kvt_region_take(bt_kvt_t *kvt, const void *header,
                            size_t header_bytes, uint64_t data_bytes,
                            bt_kvt_piece_t *piece_p, bt_kvt_region_t **region_p)
{
    uint64_t pool_offset = 0;
    bt_kvt_piece_t piece;
    bt_kvt_region_t *w;
    bt_status_t status;

    if ((bt_kvt_piece_decode(header, header_bytes, &piece) != BT_OK) ||
        (piece.bytes != data_bytes)) {
        goto discard;
    }
    w = bt_kvt_region_find(kvt, &piece.lease);
    if ((w != NULL) &&
        !bt_key_equal(w->secret, piece.secret, sizeof(w->secret))) {
        kvt->counters.foreign_pieces++; /* no answer reveals a wrong guess */
        return NULL;
    }
    if ((w == NULL) || !bt_kvt_region_is_live(w) ||
        ((w->sender_instance != 0) && (w->sender_instance != piece.from)) ||
        ((w->link != NULL) && (w->link->instance != piece.from))) {
        goto discard;
    }
    if ((piece.bytes == 0) ||
        (bt_kvt_map_find(&w->map, piece.offset, piece.bytes, &pool_offset) !=
         piece.bytes)) {
        goto discard;
    }
    if ((kvt->stage != NULL) && (piece.bytes > BT_KVT_STAGE_SLOT_BYTES)) {
        bt_kvt_region_fail(w, BT_ERR_BAD_MESSAGE); /* our export states the
                                                    * limit */
        goto discard;
    }
    status = bt_kvt_ranges_add(&w->given, piece.offset, piece.bytes);
    if (status == BT_ERR_NO_MEMORY) {
        bt_kvt_region_fail(w, status);
    }
    if (status != BT_OK) {
        goto discard;
    }

    if (w->link != NULL) {
        w->link->last_heard_ms = kvt->now_ms;
    }
    w->n_receiving++;
    *piece_p = piece;
    *region_p = w;
    return kvt->pool + pool_offset;

discard:
    kvt->counters.stale_discarded++;
    return NULL;
}

static void verify_later(bt_kvt_region_t *w)
{
    if (bt_list_empty(&w->todo) && bt_kvt_region_is_live(w)) {
        bt_list_push_back(&w->kvt->verify, &w->todo);
    }
}

void bt_kvt_region_landed(bt_kvt_region_t *w, uint64_t offset, uint64_t bytes,
                          bool ok)
{
    w->n_receiving--;
    if (bt_kvt_region_is_closing(w->state)) {
        bt_kvt_region_settle(w);
        return;
    }
    if (w->link != NULL) {
        w->link->last_heard_ms = w->kvt->now_ms;
    }
    w->arrived_us = bt_now_us();
    if (!ok) {
        /* The link is failing; missing data keeps the region open. */
        return;
    }
    if (bt_kvt_ranges_add(&w->landed, offset, bytes) != BT_OK) {
        bt_kvt_region_fail(w, BT_ERR_NO_MEMORY);
        return;
    }
    if (w->n_verified < w->n_records) {
        verify_later(w);
    }
}

void bt_kvt_region_put(bt_kvt_region_t *w, uint8_t *dst, const void *src,
                       uint64_t offset, uint64_t bytes)
{
    const bt_kvt_t *kvt = w->kvt;
    bt_status_t status = BT_OK;

    if (kvt->stage != NULL) {
        bt_kvt_stage_put(w, dst, src, offset, bytes);
        return;
    }
    if (kvt->bounce == NULL) {
        memcpy(dst, src, bytes);
    } else {
        status =
            kvt->config.device.write(kvt->config.device.user, dst, src, bytes);
    }
    bt_kvt_region_landed(w, offset, bytes, status == BT_OK);
    if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
    }
}

static void on_begin(bt_kvt_link_t *link, bt_kvt_region_t *w,
                     const bt_kvt_msg_t *msg)
{
    bt_status_t status = BT_ERR_STALE;

    if ((w != NULL) && (link->remote == BT_KVT_REMOTE_WRITES) &&
        bt_kvt_region_move(w, BT_KVT_REGION_ON_BEGIN, BT_OK)) {
        status = BT_OK;
    }
    bt_kvt_link_send_lease(link, BT_KVT_MSG_BEGIN_ACK, &msg->lease, status);
}

static bt_status_t records_append(bt_kvt_region_t *w, const bt_kvt_msg_t *msg)
{
    if (!bt_array_grow(&w->records, &w->records_cap,
                       w->n_records + msg->n_records, sizeof(*w->records))) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < msg->n_records; i++) {
        const bt_kvt_record_t record = bt_kvt_record_get(msg, i);

        /* Together at most the region, each at least a byte: this bounds the
         * memory that a sender can make us keep. */
        if ((record.bytes == 0) ||
            (record.bytes > w->map.bytes - w->record_bytes)) {
            return BT_ERR_BAD_MESSAGE;
        }
        w->record_bytes += record.bytes;
        w->records[w->n_records++] = record;
    }
    return BT_OK;
}

static void on_part(bt_kvt_region_t *w, const bt_kvt_msg_t *msg)
{
    bt_status_t status;

    if (!bt_kvt_region_takes(w, BT_KVT_REGION_ON_PART) ||
        (msg->first_record < w->n_records) ||
        ((msg->n_records == 0) && !msg->last)) {
        w->kvt->counters.stale_discarded++; /* arrived twice */
        return;
    }
    if ((msg->first_record > w->n_records) ||
        (msg->direct && (w->state != BT_KVT_REGION_IS_DIRECT)) ||
        ((w->n_records > 0) && (w->direct != msg->direct))) {
        bt_kvt_region_fail(w, BT_ERR_BAD_MESSAGE);
        return;
    }
    w->direct = msg->direct;
    bt_kvt_aside_note(&w->kvt->aside, &w->writer, msg->direct ? msg->cpu : 0);
    w->kvt->counters.descriptors += msg->n_records;
    status = records_append(w, msg);
    if (status != BT_OK) {
        bt_kvt_region_fail(w, status);
        return;
    }
    (void)bt_kvt_region_move(
        w, msg->last ? BT_KVT_REGION_ON_LAST : BT_KVT_REGION_ON_PART, BT_OK);
    if (msg->last) {
        w->sender_us = msg->elapsed_us;
        if (msg->direct || (w->arrived_us == 0)) {
            w->arrived_us = bt_now_us();
        }
        w->note_bytes = msg->note.bytes;
        if (msg->note.bytes > 0) {
            memcpy(w->note, msg->note.data, msg->note.bytes);
        }
    }
    verify_later(w);
}

void bt_kvt_region_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg)
{
    bt_kvt_region_t *w = bt_kvt_region_find(link->kvt, &msg->lease);

    if ((w != NULL) && (w->link == NULL) &&
        ((w->sender_instance == 0) || (w->sender_instance == link->instance))) {
        bt_kvt_region_bind(w, link);
    }
    if ((w != NULL) && (w->link != link)) {
        w = NULL; /* of another sender */
    }

    switch (msg->type) {
    case BT_KVT_MSG_BEGIN:
        on_begin(link, w, msg);
        break;
    case BT_KVT_MSG_PART:
        if ((w != NULL) && bt_kvt_region_is_live(w)) {
            on_part(w, msg);
        } else if ((w == NULL) || bt_kvt_region_is_closing(w->state)) {
            link->kvt->counters.stale_discarded++;
            bt_kvt_link_send_lease(link, BT_KVT_MSG_RESULT, &msg->lease,
                                   BT_ERR_STALE);
        }
        break;
    case BT_KVT_MSG_CANCEL:
        if (w != NULL) {
            (void)bt_kvt_region_move(w, BT_KVT_REGION_ON_STOP, BT_ERR_CANCELED);
        }
        break;
    case BT_KVT_MSG_CONFIRM:
        if ((w != NULL) &&
            !bt_kvt_region_move(w, BT_KVT_REGION_ON_CONFIRM, BT_OK)) {
            link->kvt->counters.stale_discarded++; /* nothing was revoked */
        }
        break;
    default:
        break;
    }
}

/* Posting: the pieces of a transfer, cut into records. */

/** Checks that a transfer accepts @a input.
 *  @retval BT_ERR_CANCELED, BT_ERR_PEER_LOST  it is over
 *  @retval BT_ERR_INVALID_PARAM  after bt_kvt_finish() */
static bt_status_t may(const bt_kvt_xfer_t *x, bt_kvt_xfer_input_t input)
{
    bt_kvt_xfer_state_t next;

    if (!bt_kvt_xfer_is_live(x)) {
        return (x->outcome == BT_ERR_PEER_LOST) ? BT_ERR_PEER_LOST
                                                : BT_ERR_CANCELED;
    }
    return bt_kvt_xfer_next(x->state, input, &next);
}

/** Returns the length of the next record of a range: within one run, and at
 *  most the largest record. */
static uint64_t cut(const bt_kvt_xfer_t *x, uint64_t offset, uint64_t bytes,
                    uint64_t *pool_offset_p)
{
    const uint64_t n = bt_kvt_map_find(&x->map, offset, bytes, pool_offset_p);

    return (n < x->link->max_record_bytes) ? n : x->link->max_record_bytes;
}

static bt_status_t records_reserve(bt_kvt_xfer_t *x, uint64_t n_more)
{
    const uint64_t need = x->n_records + n_more;
    uint32_t cap = x->records_cap;

    if (need > UINT32_MAX / 2) {
        return BT_ERR_TOO_LARGE;
    }
    return bt_array_grow(&x->moves, &cap, (uint32_t)need, sizeof(*x->moves)) &&
                   bt_array_grow(&x->records, &x->records_cap, (uint32_t)need,
                                 sizeof(*x->records))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

bt_status_t bt_kvt_post(bt_kvt_xfer_t *x, const void *src, uint64_t offset,
                        uint64_t bytes)
{
    const uint64_t end = offset + bytes;
    uint64_t n_cuts = 1;
    uint64_t first_pool_offset = 0, pool_offset = 0;
    uint64_t first, n;
    bt_status_t status = may(x, BT_KVT_XFER_ON_POST);

    if (status != BT_OK) {
        return status;
    }
    if ((bytes == 0) || (bytes > x->map.bytes) ||
        (offset > x->map.bytes - bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    first = cut(x, offset, bytes, &first_pool_offset);
    for (uint64_t at = offset + first; at < end; at += n) {
        n = cut(x, at, end - at, &pool_offset);
        n_cuts++;
    }
    status = records_reserve(x, n_cuts);
    if (status != BT_OK) {
        return status;
    }
    status = bt_kvt_ranges_add(&x->posted, offset, bytes);
    if (status != BT_OK) {
        return (status == BT_ERR_EXISTS) ? BT_ERR_INVALID_PARAM : status;
    }

    if (x->busy_us == 0) {
        x->busy_us = bt_now_us();
    }
    n = first;
    pool_offset = first_pool_offset;
    for (uint64_t at = offset; at < end; at += n) {
        if (at > offset) {
            n = cut(x, at, end - at, &pool_offset);
        }
        x->records[x->n_records] = (bt_kvt_record_t){.offset = at, .bytes = n};
        x->moves[x->n_records].src = (const uint8_t *)src + (at - offset);
        x->moves[x->n_records].pool_offset = pool_offset;
        x->n_records++;
    }
    bt_kvt_xfer_wake(x);
    return BT_OK;
}

bt_status_t bt_kvt_finish(bt_kvt_xfer_t *x, const void *note, size_t note_bytes)
{
    const bt_status_t status = may(x, BT_KVT_XFER_ON_FINISH);

    if (status != BT_OK) {
        return status;
    }
    if (note_bytes > BT_KVT_MAX_NOTE) {
        return BT_ERR_TOO_LARGE;
    }
    if (note_bytes > 0) {
        memcpy(x->note, note, note_bytes);
    }
    x->note_bytes = (uint32_t)note_bytes;
    bt_kvt_xfer_move(x, BT_KVT_XFER_ON_FINISH);
    bt_kvt_xfer_wake(x);
    return BT_OK;
}
