/* SPDX-License-Identifier: Apache-2.0 */
/* Input: chunks, each a length, u16 little-endian, and that many bytes; the
 * last may be cut short. An empty chunk lets half a second pass.
 *
 * Every chunk goes through every decoder of kvt_wire.h as it is, and once more
 * sealed (version, length, tag, secret and checksum made right, so that what is
 * behind them is reached). The sealed one is then given to a process in the
 * middle of two receptions and a transfer, by the way such bytes come: export
 * blobs from the control plane, descriptors, messages, headers of data. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_core.h"
#include "tests/support/kvt_mem.h"

#define US         22u
#define THEM       11u
#define POOL_BYTES 8192u
#define N_REGIONS  2
#define N_XFERS    4
#define SUM_BYTES  8
/* Of an export: record_runs, shared and handle. */
#define SINCE_BYTES (8 + BT_COPIER_HANDLE_BYTES)
#define TAIL_BYTES  (BT_TAG_BYTES + SUM_BYTES)
#define HALF_MS     500

typedef struct session {
    bt_kvt_mem_net_t *net;
    bt_kvt_t *us, *them;
    bt_kvt_peer_t *peer;
    bt_kvt_region_t *regions[N_REGIONS]; /* NULL: closed and told */
    bool result[N_REGIONS], closing[N_REGIONS];
    bt_kvt_xfer_t *xfers[N_XFERS]; /* NULL: free */
    uint64_t now_ms;
    uint8_t blob[BT_KVT_MAX_EXPORT];
} session_t;

static uint8_t source[POOL_BYTES];

/* ---- decoders ---- */

static const uint8_t some_key[BT_KEY_BYTES];
static volatile uint64_t sink;

static void touch(const bt_kvt_blob_t *blob)
{
    BT_ASSERT_ALWAYS((blob->bytes == 0) || (blob->data != NULL));
    for (uint32_t i = 0; i < blob->bytes; i++) {
        sink += ((const uint8_t *)blob->data)[i];
    }
}

/** What was taken, encoded again, is the same bytes; but for those at the end
 * of the fixed part that only later builds know, or that it has not since it is
 * of an earlier one, and the tag. */
static void check_same(const uint8_t *data, size_t size, bt_status_t status,
                       const uint8_t *again, size_t bytes, size_t tail)
{
    BT_ASSERT_ALWAYS(status == BT_OK);
    BT_ASSERT_ALWAYS(bytes <= size + SINCE_BYTES);
    if (bytes == size) {
        BT_ASSERT_ALWAYS(memcmp(data, again, size - tail) == 0);
    }
}

static void decode_export(const uint8_t *data, size_t size, uint8_t *again)
{
    bt_kvt_export_info_t info;
    size_t bytes = 0;
    bt_status_t status;

    if (bt_kvt_export_decode(data, size, &info) == BT_OK) {
        touch(&info.net_addr);
        touch(&info.shm_file);
        touch(&info.sources);
        status = bt_kvt_export_encode(&info, again, size + SINCE_BYTES, &bytes);
        check_same(data, size, status, again, bytes, SUM_BYTES);
    }
}

static void decode_desc(const uint8_t *data, size_t size, uint8_t *again)
{
    bt_kvt_desc_t desc = {0};
    bt_kvt_map_t map = {0};
    size_t bytes = 0;
    bt_status_t status;

    if (bt_kvt_desc_decode(data, size, &desc) != BT_OK) {
        return;
    }
    status = bt_kvt_desc_encode(&desc, again, size, &bytes);
    check_same(data, size, status, again, bytes, SUM_BYTES);
    if (bt_kvt_map_init(desc.extents, desc.n_extents, POOL_BYTES, &map) ==
        BT_OK) {
        uint64_t offset = 0;

        for (uint64_t at = 0; at < map.bytes;) {
            const uint64_t n =
                bt_kvt_map_find(&map, at, map.bytes - at, &offset);

            BT_ASSERT_ALWAYS((n > 0) && (offset <= POOL_BYTES) &&
                             (n <= POOL_BYTES - offset));
            at += n;
        }
    }
    bt_kvt_map_fini(&map);
    bt_free(desc.extents);
}

static void decode_msg(const uint8_t *data, size_t size, uint8_t *again)
{
    bt_kvt_record_t *records = NULL;
    bt_kvt_msg_t msg;
    size_t bytes = 0;
    bt_status_t status;

    if (bt_kvt_msg_decode(data, size, &msg) != BT_OK) {
        return;
    }
    touch(&msg.export);
    touch(&msg.note);
    if (msg.n_records > 0) {
        records = bt_calloc(msg.n_records, sizeof(*records));
        BT_ASSERT_ALWAYS(records != NULL);
    }
    for (uint32_t i = 0; i < msg.n_records; i++) {
        records[i] = bt_kvt_record_get(&msg, i);
    }
    msg.records = records;
    status = bt_kvt_msg_encode(&msg, some_key, again, size, &bytes);
    check_same(data, size, status, again, bytes, TAIL_BYTES);
    bt_free(records);
}

static void decode_piece(const uint8_t *data, size_t size)
{
    uint8_t again[BT_KVT_PIECE_BYTES];
    bt_kvt_piece_t piece;

    if (bt_kvt_piece_decode(data, size, &piece) == BT_OK) {
        bt_kvt_piece_encode(&piece, again);
        check_same(data, size, BT_OK, again, sizeof(again), 0);
    }
}

static void decode_all(const uint8_t *data, size_t size)
{
    uint8_t *again = bt_calloc(1, size + SINCE_BYTES + 1);

    BT_ASSERT_ALWAYS(again != NULL);
    decode_export(data, size, again);
    decode_desc(data, size, again);
    decode_msg(data, size, again);
    decode_piece(data, size);
    bt_free(again);
}

/* ---- a process that is talked to ---- */

static void region_open(session_t *s, size_t i, uint64_t id, uint64_t sender)
{
    const bt_kvt_extent_t extents[] = {
        {.offset = 4096 * i, .bytes = 512},
        {.offset = 4096 * i + 1024, .bytes = 512}};
    uint8_t desc[BT_KVT_DESC_BYTES(2)];
    size_t bytes;

    BT_ASSERT_ALWAYS(bt_kvt_region_open(s->us, id, 1, sender, extents, 2, NULL,
                                        desc, sizeof(desc), &bytes,
                                        &s->regions[i]) == BT_OK);
}

static void session_open(session_t *s)
{
    bt_kvt_config_t config = {.transport = &bt_kvt_transport_mem,
                              .path = BT_KVT_PATH_AUTO,
                              .pool_bytes = POOL_BYTES,
                              .instance = THEM,
                              .keepalive_ms = 100,
                              .dead_ms = 2 * HALF_MS,
                              .quarantine_ms = 2 * HALF_MS};
    size_t bytes = 0;

    BT_ASSERT_ALWAYS(bt_kvt_mem_net_create(&s->net) == BT_OK);
    config.transport_arg = s->net;
    BT_ASSERT_ALWAYS(bt_kvt_open(&config, &s->them) == BT_OK);
    config.instance = US;
    BT_ASSERT_ALWAYS(bt_kvt_open(&config, &s->us) == BT_OK);
    s->now_ms = 1;
    (void)bt_kvt_progress(s->us, s->now_ms, POOL_BYTES);
    BT_ASSERT_ALWAYS(bt_kvt_export(s->them, s->blob, sizeof(s->blob), &bytes) ==
                     BT_OK);
    BT_ASSERT_ALWAYS(bt_kvt_import(s->us, s->blob, bytes, NULL, &s->peer) ==
                     BT_OK);
    region_open(s, 0, 7, THEM);
    region_open(s, 1, 8, 0);
}

static size_t region_of(const session_t *s, const bt_kvt_event_t *event)
{
    for (size_t i = 0; i < N_REGIONS; i++) {
        if (s->regions[i] == event->region) {
            return i;
        }
    }
    BT_ASSERT_ALWAYS(false && "an event of a region that is gone");
    return 0;
}

static void region_close(session_t *s, size_t i)
{
    if ((s->regions[i] != NULL) && !s->closing[i]) {
        s->closing[i] = true;
        bt_kvt_region_close(s->regions[i]);
    }
}

static void xfer_done(session_t *s, bt_kvt_xfer_t *xfer)
{
    for (size_t i = 0; i < N_XFERS; i++) {
        if (s->xfers[i] == xfer) {
            s->xfers[i] = NULL;
            bt_kvt_release(xfer);
            return;
        }
    }
    BT_ASSERT_ALWAYS(false && "an event of a transfer that is gone");
}

static void events_take(session_t *s)
{
    bt_kvt_event_t event;
    size_t i;

    while (bt_kvt_poll(s->us, &event)) {
        switch (event.type) {
        case BT_KVT_REGION_DONE:
        case BT_KVT_REGION_FAILED:
            i = region_of(s, &event);
            BT_ASSERT_ALWAYS(!s->result[i] && !s->closing[i]);
            s->result[i] = true;
            region_close(s, i);
            break;
        case BT_KVT_REGION_CLOSED:
            i = region_of(s, &event);
            BT_ASSERT_ALWAYS(s->closing[i]);
            s->regions[i] = NULL;
            break;
        case BT_KVT_QUARANTINE_STUCK:
            BT_ASSERT_ALWAYS(s->closing[region_of(s, &event)]);
            break;
        case BT_KVT_XFER_DONE:
            xfer_done(s, event.xfer);
            break;
        case BT_KVT_PEER_UP:
        case BT_KVT_PEER_LOST:
            break;
        }
    }
}

static void progress(session_t *s, uint64_t ms)
{
    s->now_ms += ms;
    (void)bt_kvt_progress(s->us, s->now_ms, POOL_BYTES);
    events_take(s);
}

/** One that may move all of its bytes at once when it may move any. */
static void give_desc(session_t *s, const uint8_t *data, size_t size)
{
    uint64_t bytes;
    size_t i = 0;

    while ((i < N_XFERS) && (s->xfers[i] != NULL)) {
        i++;
    }
    if ((i == N_XFERS) ||
        (bt_kvt_prep(s->peer, data, size, NULL, &s->xfers[i]) != BT_OK)) {
        return;
    }
    bytes = bt_kvt_xfer_region_bytes(s->xfers[i]);
    BT_ASSERT_ALWAYS((bytes > 0) && (bytes <= POOL_BYTES));
    BT_ASSERT_ALWAYS(bt_kvt_post(s->xfers[i], source, 0, bytes) == BT_OK);
    if (bytes % 2 == 0) {
        BT_ASSERT_ALWAYS(bt_kvt_finish(s->xfers[i], "n", 1) == BT_OK);
    }
}

static void give_piece(session_t *s, const uint8_t *data, size_t size)
{
    bt_kvt_region_t *region = NULL;
    bt_kvt_piece_t piece;
    uint64_t bytes;
    uint8_t *dst;

    if (bt_kvt_piece_decode(data, size, &piece) != BT_OK) {
        return;
    }
    bytes = piece.bytes;
    dst = bt_kvt_region_take(s->us, data, size, bytes, &piece, &region);
    if (dst != NULL) {
        memset(dst, 0x11, bytes);
        bt_kvt_region_landed(region, piece.offset, bytes, true);
    }
}

static void give_export(session_t *s, const uint8_t *data, size_t size)
{
    bt_kvt_peer_t *peer = NULL;
    bt_kvt_export_info_t info;

    /* How large their pool is must be believed: kvt.h, see the probe. */
    if ((bt_kvt_export_decode(data, size, &info) != BT_OK) ||
        (info.pool_bytes > POOL_BYTES)) {
        return;
    }
    if (bt_kvt_import(s->us, data, size, NULL, &peer) == BT_OK) {
        progress(s, 1);
        bt_kvt_peer_release(peer);
    }
}

static bool is_hello_of_a_large_pool(const uint8_t *data, size_t size)
{
    bt_kvt_export_info_t info;
    bt_kvt_msg_t msg;

    return (bt_kvt_msg_decode(data, size, &msg) == BT_OK) &&
           (msg.type == BT_KVT_MSG_HELLO) &&
           (bt_kvt_export_decode(msg.export.data, msg.export.bytes, &info) ==
            BT_OK) &&
           (info.pool_bytes > POOL_BYTES);
}

static void put_sum(uint8_t *data, size_t size)
{
    const uint64_t sum = bt_hash64(data, size - SUM_BYTES, 0);

    for (size_t i = 0; i < SUM_BYTES; i++) {
        data[size - SUM_BYTES + i] = (uint8_t)(sum >> (8 * i));
    }
}

/** Of a message, the tag of whom it claims to be from. */
static void put_tag(const session_t *s, uint8_t *data, size_t size)
{
    const bt_kvt_link_t *link;
    const uint8_t *key = s->us->config.key;
    bt_key_part_t part = {.data = data, .bytes = size - TAIL_BYTES};
    bt_kvt_msg_t msg;

    if (bt_kvt_msg_decode(data, size, &msg) != BT_OK) {
        return;
    }
    link = bt_kvt_link_find(s->us, msg.from);
    if ((link != NULL) && (msg.type > BT_KVT_MSG_HELLO_ACK)) {
        key = link->peer_key;
    }
    bt_key_tag(key, &part, 1, data + size - TAIL_BYTES);
    put_sum(data, size);
}

/** Of a piece, the secret of the region that it is for. */
static void put_secret(const session_t *s, uint8_t *data, size_t size)
{
    const bt_kvt_region_t *w = NULL;
    bt_kvt_piece_t piece;

    if (bt_kvt_piece_decode(data, size, &piece) == BT_OK) {
        w = bt_kvt_region_find(s->us, &piece.lease);
    }
    if (w != NULL) {
        memcpy(piece.secret, w->secret, sizeof(piece.secret));
        bt_kvt_piece_encode(&piece, data);
    }
}

/** Version, length and checksum as they must be, and the proofs. */
static void seal(const session_t *s, uint8_t *data, size_t size)
{
    const uint32_t head[2] = {BT_KVT_WIRE_VERSION, (uint32_t)size};

    if (size < 4 + sizeof(head) + TAIL_BYTES) {
        return;
    }
    for (size_t i = 0; i < sizeof(head); i++) {
        data[4 + i] = (uint8_t)(head[i / 4] >> (8 * (i % 4)));
    }
    put_sum(data, size);
    put_tag(s, data, size);
    put_secret(s, data, size);
}

static void give_message(session_t *s, const uint8_t *data, size_t size)
{
    bt_kvt_link_t *link = NULL;
    bt_kvt_msg_t msg;

    if (bt_kvt_msg_decode(data, size, &msg) == BT_OK) {
        link = bt_kvt_link_find(s->us, msg.from);
    }
    (void)bt_kvt_take_message(s->us, link, data, size);
}

static void give(session_t *s, const uint8_t *data, size_t size)
{
    uint8_t *sealed;

    decode_all(data, size);
    sealed = bt_memdup(data, size);
    BT_ASSERT_ALWAYS(sealed != NULL);
    seal(s, sealed, size);
    decode_all(sealed, size);
    if (!is_hello_of_a_large_pool(sealed, size)) {
        give_export(s, sealed, size);
        give_desc(s, sealed, size);
        give_piece(s, sealed, size);
        give_message(s, sealed, size);
    }
    progress(s, 1);
    bt_free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    session_t *s = bt_calloc(1, sizeof(*s));
    size_t at = 0;

    BT_ASSERT_ALWAYS(s != NULL);
    bt_log_init("fuzz_kvt", BT_LOG_LEVEL_ERROR);
    session_open(s);
    while (size - at >= 2) {
        size_t n = (size_t)data[at] | ((size_t)data[at + 1] << 8);

        at += 2;
        n = (n < size - at) ? n : size - at;
        if (n == 0) {
            progress(s, HALF_MS);
        } else {
            give(s, data + at, n);
        }
        at += n;
    }
    for (size_t i = 0; i < N_REGIONS; i++) {
        region_close(s, i);
    }
    progress(s, 1);
    /* Whoever may write to us has said so: the regions of others are free. */
    bt_kvt_peer_release(s->peer);
    progress(s, 1);
    bt_kvt_close(s->us);
    bt_kvt_close(s->them);
    bt_kvt_mem_net_destroy(s->net);
    bt_free(s);
    return 0;
}
