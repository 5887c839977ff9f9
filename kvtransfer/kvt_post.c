/* SPDX-License-Identifier: Apache-2.0 */
/* Posting: the pieces of a transfer, cut into records. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "kvtransfer/kvt_core.h"

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
    uint32_t cap;
    bt_kvt_record_t *records;
    bt_kvt_move_t *moves;

    if (need <= x->records_cap) {
        return BT_OK;
    }
    if (need > UINT32_MAX / 2) {
        return BT_ERR_TOO_LARGE;
    }
    cap = (need < 64) ? 64 : (uint32_t)need;
    cap = (cap < x->records_cap * 2) ? x->records_cap * 2 : cap;
    records = bt_realloc_array(x->records, cap, sizeof(*records));
    if (records == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    x->records = records;
    moves = bt_realloc_array(x->moves, cap, sizeof(*moves));
    if (moves == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    x->moves = moves;
    x->records_cap = cap;
    return BT_OK;
}

bt_status_t bt_kvt_post(bt_kvt_xfer_t *x, const void *src, uint64_t offset,
                        uint64_t bytes)
{
    const uint64_t end = offset + bytes;
    uint64_t n_cuts = 1;
    uint64_t first_place = 0, place = 0;
    uint64_t first, n;
    bt_status_t status = may(x, BT_KVT_XFER_ON_POST);

    if (status != BT_OK) {
        return status;
    }
    if ((bytes == 0) || (bytes > x->map.bytes) ||
        (offset > x->map.bytes - bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    first = cut(x, offset, bytes, &first_place);
    for (uint64_t at = offset + first; at < end; at += n) {
        n = cut(x, at, end - at, &place);
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
    place = first_place;
    for (uint64_t at = offset; at < end; at += n) {
        if (at > offset) {
            n = cut(x, at, end - at, &place);
        }
        x->records[x->n_records] = (bt_kvt_record_t){.offset = at, .bytes = n};
        x->moves[x->n_records].src = (const uint8_t *)src + (at - offset);
        x->moves[x->n_records].pool_offset = place;
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
