/* SPDX-License-Identifier: Apache-2.0 */
/* Who is believed: what has the key of the KV plane, and says its own, now, to
 * this process, on the connection of its own link. */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "common/base/hash.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "kvtransfer/kvt_ucx_priv.h"
#include "tests/unit/kvtransfer/each_kind.h"

#define N_SILENT  80u    /* more than may be there at once, */
#define N_AT_ONCE 64u    /* as are these: UNPROVEN_MAX of kvt_ucx_priv.h */
#define PAUSE_MS  10000u /* ten times the dead_ms of pair.h */
#define TAIL      (BT_TAG_BYTES + 8u)

/* ---- bytes ---- */

/* Of every message but its sum, by Python: struct.pack() of the fields of
 * kvt_wire.h, and hashlib.blake2b(body, key=K, digest_size=16); key
 * bytes(range(32)), random bytes(range(0x40, 0x50)), and for CANCEL and PART
 * K = blake2b(b"baton 3 kv says\0" + pack("<QQQ", 11, 22, 5) + random,
 * key=key, digest_size=32). */
static const char golden_hello[] =
    "424b564d03000000670000003800000001000000010000000b00000000000000"
    "0500000000000000160000000000000000000000000000004041424344454647"
    "48494a4b4c4d4e4f030000006162638bfe6ed2792d2f24b64658eed66b0958";
static const char golden_ack[] =
    "424b564d03000000600000003800000002000000000000001600000000000000"
    "09000000000000000b0000000000000005000000000000004041424344454647"
    "48494a4b4c4d4e4fda9cc36d4bc0a8d37d3ea4d5eb9fd8c0";
static const char golden_cancel[] =
    "424b564d03000000600000003800000007000000000000000b00000000000000"
    "05000000000000004d0000000000000001000000000000000300000000000000"
    "02000000000000005c91bdd28fa2727c6052979ce57e08c4";
static const char golden_part[] =
    "424b564d030000008e0000004800000005000000030000000b00000000000000"
    "05000000000000004d0000000000000001000000000000000300000000000000"
    "0200000000000000040000000100000058020000000000000200000068690800"
    "0000000000001000000000000000efcdab0000000000f5d048aad4f8e61afcca"
    "d1f807f74852";

static void check_golden(const bt_kvt_msg_t *msg,
                         const uint8_t key[BT_KEY_BYTES], const char *expected)
{
    uint8_t buf[1024];
    char hex[2 * sizeof(buf) + 1];
    bt_kvt_msg_t again;
    size_t n = 0;

    assert_int_equal(bt_kvt_msg_encode(msg, key, buf, sizeof(buf), &n), BT_OK);
    for (size_t i = 0; i < n - 8; i++) {
        snprintf(hex + 2 * i, 3, "%02x", buf[i]);
    }
    assert_string_equal(hex, expected);
    assert_int_equal(bt_kvt_msg_decode(buf, n, &again), BT_OK);
    assert_int_equal(again.type, msg->type);
    assert_true(bt_kvt_msg_is_proven(buf, n, key));
    for (size_t bit = 0; bit < 8 * (n - 8); bit++) {
        buf[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        /* Where its length stands it is that of the frame, not what it says */
        assert_true((bit / 32 == 2) || !bt_kvt_msg_is_proven(buf, n, key));
        buf[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

static void kvt_messages_have_the_documented_bytes(void **state)
{
    static const bt_kvt_record_t record = {8, 16, 0xabcdef};
    bt_kvt_msg_t msg = {.type = BT_KVT_MSG_HELLO,
                        .from = 11,
                        .nonce = 5,
                        .direct = true,
                        .to = 22,
                        .export = {"abc", 3}};
    uint8_t key[BT_KEY_BYTES], link_key[BT_KEY_BYTES];

    (void)state;
    for (uint8_t i = 0; i < sizeof(key); i++) {
        key[i] = i;
    }
    for (uint8_t i = 0; i < sizeof(msg.random); i++) {
        msg.random[i] = (uint8_t)(0x40 + i);
    }
    bt_kvt_link_key(key, 11, 22, 5, msg.random, link_key);
    check_golden(&msg, key, golden_hello);
    msg.type = BT_KVT_MSG_HELLO_ACK;
    msg.direct = false;
    msg.from = 22;
    msg.nonce = 9;
    msg.to = 11;
    msg.echo = 5;
    check_golden(&msg, key, golden_ack);
    msg = (bt_kvt_msg_t){.type = BT_KVT_MSG_CANCEL,
                         .from = 11,
                         .nonce = 5,
                         .lease = {.id = 77, .generation = 1, .grant = 3},
                         .floor = 2};
    check_golden(&msg, link_key, golden_cancel);
    msg.type = BT_KVT_MSG_PART;
    msg.direct = msg.last = true;
    msg.first_record = 4;
    msg.n_records = 1;
    msg.records = &record;
    msg.elapsed_us = 600;
    msg.note = (bt_kvt_blob_t){"hi", 2};
    check_golden(&msg, link_key, golden_part);
}

/* Eight bytes that only a later build knows, at the end of the fixed part. */
static void fields_of_later_kvt_versions_are_ignored(void **state)
{
    const bt_kvt_msg_t msg = {.type = BT_KVT_MSG_PING, .from = 11, .nonce = 5};
    const uint8_t key[BT_KEY_BYTES] = {1};
    uint8_t buf[256], longer[256];
    bt_kvt_msg_t again;
    size_t n = 0;
    uint64_t sum;

    (void)state;
    assert_int_equal(bt_kvt_msg_encode(&msg, key, buf, sizeof(buf), &n), BT_OK);
    memcpy(longer, buf, n - TAIL);
    memset(longer + n - TAIL, 0xee, 8 + TAIL);
    n += 8;
    longer[8] = (uint8_t)n;
    longer[12] = (uint8_t)(longer[12] + 8);
    bt_key_tag(key, &(bt_key_part_t){longer, n - TAIL}, 1, longer + n - TAIL);
    sum = bt_hash64(longer, n - 8, 0);
    memcpy(longer + n - 8, &sum, sizeof(sum));
    assert_int_equal(bt_kvt_msg_decode(longer, n, &again), BT_OK);
    assert_true(bt_kvt_msg_is_proven(longer, n, key));
    assert_int_equal(again.type, BT_KVT_MSG_PING);
    assert_int_equal(again.nonce, 5);
}

/* ---- processes ---- */

/** What @a from says to @a to, who takes it as come over @a over. */
static bt_kvt_link_t *tell(bt_kvt_t *to, bt_kvt_link_t *over,
                           const bt_kvt_msg_t *msg,
                           const uint8_t key[BT_KEY_BYTES])
{
    static uint8_t buf[BT_KVT_MAX_MSG];
    size_t n = 0;

    assert_int_equal(bt_kvt_msg_encode(msg, key, buf, sizeof(buf), &n), BT_OK);
    return bt_kvt_take_message(to, over, buf, n);
}

static void hello_fill(const pair_t *pair, uint64_t nonce, bt_kvt_msg_t *msg_p)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    size_t n = 0;

    assert_int_equal(bt_kvt_export(pair->sender, blob, sizeof(blob), &n),
                     BT_OK);
    *msg_p = (bt_kvt_msg_t){.type = BT_KVT_MSG_HELLO,
                            .from = PAIR_SENDER,
                            .to = PAIR_RECEIVER,
                            .nonce = nonce,
                            .export = {blob, (uint32_t)n}};
}

static uint64_t n_foreign(const bt_kvt_t *kvt)
{
    return counters(kvt).foreign_pieces;
}

static void hello_needs_the_key_and_the_receivers_name(void **state)
{
    const uint8_t other[BT_KEY_BYTES] = {1};
    const uint8_t *key;
    bt_kvt_msg_t hello;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    key = pair.receiver->config.key;
    hello_fill(&pair, 5, &hello);
    assert_null(tell(pair.receiver, NULL, &hello, other));
    assert_int_equal(n_foreign(pair.receiver), 1);
    hello.to = PAIR_RECEIVER + 1; /* it was said to somebody else */
    assert_null(tell(pair.receiver, NULL, &hello, key));
    assert_null(bt_kvt_link_find(pair.receiver, PAIR_SENDER));
    hello.to = PAIR_RECEIVER;
    assert_non_null(tell(pair.receiver, NULL, &hello, key));
    bt_test_expect_log_lines(1);
    pair_close(&pair);
}

/* Somebody who saw it may say it again, but to no end. */
static void replayed_hello_is_refused(void **state)
{
    const uint8_t *key;
    bt_kvt_link_t *link;
    bt_kvt_msg_t hello;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    key = pair.receiver->config.key;
    hello_fill(&pair, 5, &hello);
    link = tell(pair.receiver, NULL, &hello, key);
    assert_non_null(link);
    assert_null(tell(pair.receiver, NULL, &hello, key));
    assert_ptr_equal(tell(pair.receiver, link, &hello, key), link);
    hello.nonce = 4;
    assert_null(tell(pair.receiver, NULL, &hello, key));
    assert_null(tell(pair.receiver, link, &hello, key));
    assert_false(bt_kvt_link_is_lost(link->state));

    bt_kvt_link_lost(link, false, "test");
    hello.nonce = 5;
    assert_null(tell(pair.receiver, NULL, &hello, key));
    assert_null(tell(pair.receiver, link, &hello, key));
    (void)bt_kvt_progress(pair.receiver, ++pair.now_ms, MIB); /* forgotten */
    assert_null(tell(pair.receiver, NULL, &hello, key));
    hello.nonce = 6; /* it connects anew */
    assert_non_null(tell(pair.receiver, NULL, &hello, key));
    pair_close(&pair);
}

/* The memory of who said hello is bounded, and of those who are there. */
static void many_departed_peers_leave_little_memory(void **state)
{
    const uint8_t *key;
    bt_kvt_msg_t hello;
    bt_kvt_export_info_t info;
    pair_t pair;
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    size_t n = 0;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    key = pair.receiver->config.key;
    hello_fill(&pair, 1, &hello);
    assert_int_equal(
        bt_kvt_export_decode(hello.export.data, hello.export.bytes, &info),
        BT_OK);
    for (uint64_t i = 0; i < 2 * BT_KVT_MAX_SEEN; i++) {
        info.instance = 1000 + i; /* the transport knows none of them */
        assert_int_equal(bt_kvt_export_encode(&info, blob, sizeof(blob), &n),
                         BT_OK);
        hello.export = (bt_kvt_blob_t){blob, (uint32_t)n};
        hello.from = info.instance;
        assert_null(tell(pair.receiver, NULL, &hello, key));
    }
    assert_int_equal(pair.receiver->n_seen, BT_KVT_MAX_SEEN);
    bt_test_expect_log_lines(2 * BT_KVT_MAX_SEEN);
    pair_close(&pair);
}

/* Of whoever sees the ids, or guesses them. */
static void message_of_another_link_is_refused(void **state)
{
    const uint8_t *plane_key;
    bt_kvt_msg_t cancel = {.type = BT_KVT_MSG_CANCEL, .from = PAIR_SENDER};
    bt_kvt_link_t *link, other = {0};
    bt_kvt_desc_t desc = {0};
    uint64_t before;
    pair_t pair;
    track_t *t;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    pair_import(&pair);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, 4096, 8192, 2);
    prep(&pair, t);
    PAIR_UNTIL(&pair, bt_kvt_link_find(pair.sender, PAIR_RECEIVER)->state ==
                          BT_KVT_LINK_IS_OPEN);
    link = bt_kvt_link_find(pair.receiver, PAIR_SENDER);
    plane_key = pair.receiver->config.key;
    assert_int_equal(bt_kvt_desc_decode(t->desc, t->desc_bytes, &desc), BT_OK);
    cancel.lease = desc.lease;
    cancel.nonce = link->peer_nonce;
    bt_free(desc.extents);

    /* On a connection of nobody, and on that of another peer. */
    assert_null(tell(pair.receiver, NULL, &cancel, link->peer_key));
    other = *link;
    other.instance = PAIR_SENDER + 1;
    assert_null(tell(pair.receiver, &other, &cancel, link->peer_key));
    /* On its own, with a key that is not that of its writer. */
    before = n_foreign(pair.receiver);
    assert_null(tell(pair.receiver, link, &cancel, plane_key));
    assert_null(tell(pair.receiver, link, &cancel, link->key));
    assert_int_equal(n_foreign(pair.receiver), before + 2);
    /* Of an earlier incarnation. */
    cancel.nonce--;
    assert_null((cancel.nonce == 0)
                    ? NULL
                    : tell(pair.receiver, link, &cancel, link->peer_key));
    assert_int_equal(t->failed + t->done, 0);

    post(t, 0, t->bytes);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    bt_test_expect_log_lines(2);
    pair_close(&pair);
}

/* That the receiver is there is said by itself, of this hello. */
static void acknowledgement_of_another_hello_is_refused(void **state)
{
    const uint8_t other[BT_KEY_BYTES] = {1};
    bt_kvt_msg_t ack = {.type = BT_KVT_MSG_HELLO_ACK,
                        .from = PAIR_RECEIVER,
                        .to = PAIR_SENDER,
                        .nonce = 3};
    bt_kvt_link_t *link;
    const uint8_t *key;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    pair_import(&pair);
    key = pair.sender->config.key;
    link = bt_kvt_link_find(pair.sender, PAIR_RECEIVER);
    ack.echo = link->nonce + 1;
    assert_null(tell(pair.sender, link, &ack, key));
    ack.echo = link->nonce;
    assert_null(tell(pair.sender, link, &ack, other));
    assert_null(tell(pair.sender, NULL, &ack, key));
    assert_int_equal(link->state, BT_KVT_LINK_IS_GREETING);
    assert_ptr_equal(tell(pair.sender, link, &ack, key), link);
    assert_int_equal(link->state, BT_KVT_LINK_IS_OPEN);
    bt_test_expect_log_lines(1);
    pair_close(&pair);
}

/* Through real connections. */
static void who_has_another_key_is_nobodys_peer(const pair_kind_t *kind)
{
    const unsigned long warned = bt_log_count(BT_LOG_LEVEL_WARN);
    bt_kvt_config_t config;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, MIB);
    bt_kvt_close(pair.sender);
    config = pair_config(&pair, PAIR_SENDER);
    config.key[0] ^= 1;
    if (kind->transport == &bt_kvt_transport_mem) { /* one for each name */
        bt_kvt_close(pair.receiver);
        pair.receiver = NULL;
        bt_kvt_mem_net_destroy(pair.net);
        assert_int_equal(bt_kvt_mem_net_create(&pair.net), BT_OK);
        config.transport_arg = pair.net;
        assert_int_equal(pair_kvt_open(&pair, PAIR_RECEIVER, &pair.receiver),
                         BT_OK);
    }
    pair_at(&pair, PAIR_SENDER);
    host_devices_show();
    assert_int_equal(bt_kvt_open(&config, &pair.sender), BT_OK);
    host_devices_hide();

    pair_import(&pair);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, 4096, 8192, 2);
    prep(&pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    PAIR_UNTIL(&pair, (pair.peers_lost == 1) && (t->xfer == NULL));
    assert_int_equal(t->xfer_status, BT_ERR_PEER_LOST);
    assert_int_equal(t->done + t->failed, 0);
    assert_true(n_foreign(pair.receiver) >= 1);
    assert_null(bt_kvt_link_find(pair.receiver, PAIR_SENDER));
    t->closing = true;
    bt_kvt_region_close(t->region);
    PAIR_UNTIL(&pair, t->closed);
    bt_test_expect_log_lines(bt_log_count(BT_LOG_LEVEL_WARN) - warned);
    pair_close(&pair);
}
EACH_KIND(who_has_another_key_is_nobodys_peer)

/* A stranger who opens connections of UCX and says nothing on them. */
static void silent_connections_end_and_block_nobody(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    static bt_kvt_link_t silent[N_SILENT];
    bt_kvt_export_info_t info;
    pair_t pair;
    size_t n = 0;
    track_t *t;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_UCX_NETWORK], MIB);
    pair.now_ms = pair_clock_ms(&pair);
    pair.still = true; /* so the newest one is not among the late ones */
    assert_int_equal(bt_kvt_export(pair.receiver, blob, sizeof(blob), &n),
                     BT_OK);
    assert_int_equal(bt_kvt_export_decode(blob, n, &info), BT_OK);
    for (uint32_t i = 0; i < N_SILENT; i++) {
        silent[i] =
            (bt_kvt_link_t){.kvt = pair.sender, .state = BT_KVT_LINK_IS_LOST};
        assert_int_equal(pair.sender->ops->connect(&silent[i], &info), BT_OK);
    }
    /* All have come, in whatever order UCX hands them out, so that the next one
     * is the newest for certain. */
    PAIR_UNTIL(&pair, n_foreign(pair.receiver) == N_SILENT - N_AT_ONCE);
    pair_import(&pair);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, 4096, 8192, 2);
    prep(&pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    pair.still = false;
    PAIR_UNTIL(&pair, n_foreign(pair.receiver) == N_SILENT);
    for (uint32_t i = 0; i < N_SILENT; i++) {
        pair.sender->ops->disconnect(&silent[i]);
        pair.sender->ops->forget(&silent[i]);
    }
    pair_close(&pair);
}

/* Who stood still for longer than that between two steps has not heard what was
 * said meanwhile: the sender is no stranger for it. */
static void own_stall_ends_no_connection(void **state)
{
    const ucx_t *receiver;
    bt_kvt_link_t *link;
    uint64_t start_ms, now_ms;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_UCX_NETWORK], MIB);
    pair_import(&pair);
    receiver = pair.receiver->transport;
    link = bt_kvt_link_find(pair.sender, PAIR_RECEIVER);
    PAIR_UNTIL(&pair, receiver->n_unproven == 1);
    start_ms = now_ms = bt_now_ms();
    while ((link->state < BT_KVT_LINK_IS_OPEN) &&
           (now_ms - start_ms < pair_patience_ms(&pair))) {
        now_ms = bt_now_ms();
        (void)bt_kvt_progress(pair.receiver, now_ms + PAUSE_MS, MIB);
        (void)bt_kvt_progress(pair.sender, now_ms + PAUSE_MS, MIB);
    }
    assert_int_equal(link->state, BT_KVT_LINK_IS_OPEN);
    assert_int_equal(n_foreign(pair.receiver), 0);
    pair_close(&pair);
}

/* A loaded machine can take seconds to run the sender. */
static void slow_peer_has_dead_ms_to_authenticate(void **state)
{
    const ucx_t *receiver;
    bt_kvt_link_t *link;
    uint64_t start_ms, now_ms;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_UCX_NETWORK], MIB);
    pair.receiver->config.dead_ms = PAUSE_MS;
    pair_import(&pair);
    receiver = pair.receiver->transport;
    link = bt_kvt_link_find(pair.sender, PAIR_RECEIVER);
    PAIR_UNTIL(&pair, receiver->n_unproven == 1);
    start_ms = now_ms = bt_now_ms();
    for (uint64_t ms = 0; ms < PAUSE_MS - 1000; ms += 50) {
        (void)bt_kvt_progress(pair.receiver, start_ms + ms, MIB);
    }
    assert_int_equal(receiver->n_unproven, 1);
    while ((link->state < BT_KVT_LINK_IS_OPEN) &&
           (now_ms - start_ms < pair_patience_ms(&pair))) {
        now_ms = bt_now_ms();
        (void)bt_kvt_progress(pair.receiver, start_ms + PAUSE_MS - 1000, MIB);
        (void)bt_kvt_progress(pair.sender, now_ms, MIB);
    }
    assert_int_equal(link->state, BT_KVT_LINK_IS_OPEN);
    assert_int_equal(n_foreign(pair.receiver), 0);
    pair_close(&pair);
}

/* The rounds of an idle process are 20 ms apart, longer than a part of a short
 * dead_ms. */
static void silent_connection_ends_after_a_short_dead_ms(void **state)
{
    const ucx_t *receiver;
    uint64_t start_ms;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_UCX_NETWORK], MIB);
    pair.receiver->config.dead_ms = PAUSE_MS;
    pair_import(&pair);
    receiver = pair.receiver->transport;
    PAIR_UNTIL(&pair, receiver->n_unproven == 1);
    pair.receiver->config.dead_ms = 100;
    start_ms = bt_now_ms();
    for (uint64_t ms = 0; ms <= 140; ms += 20) {
        (void)bt_kvt_progress(pair.receiver, start_ms + ms, MIB);
    }
    assert_int_equal(receiver->n_unproven, 0);
    pair_close(&pair);
}

/* ---- a new key ---- */

static void hand_over(pair_t *pair, uint64_t id)
{
    track_t *t = pair_region(pair, id, PAIR_SENDER, 16384 * id, 4096, 8192, 2);

    prep(pair, t);
    post(t, 0, t->bytes);
    finish(t, "");
    PAIR_UNTIL(pair, over(t));
    assert_int_equal(t->done, 1);
}

/* What is there goes on; what is new needs a key that both know. */
static void a_new_key_is_learnt_one_after_the_other(const pair_kind_t *kind,
                                                    bool sender_first)
{
    const unsigned long warned = bt_log_count(BT_LOG_LEVEL_WARN);
    const uint8_t fresh[BT_KEY_BYTES] = {9};
    pair_t pair;

    pair_open(&pair, kind, MIB);
    pair_import(&pair);
    hand_over(&pair, 1);
    bt_kvt_rekey(sender_first ? pair.sender : pair.receiver, fresh,
                 pair.now_ms);
    hand_over(&pair, 2);

    bt_kvt_peer_release(pair.peer);
    bt_kvt_link_lost(bt_kvt_link_find(pair.sender, PAIR_RECEIVER), false,
                     "test");
    bt_kvt_link_lost(bt_kvt_link_find(pair.receiver, PAIR_SENDER), false,
                     "test");
    for (int i = 0; i < 10; i++) { /* each hears that the other did */
        (void)pair_pump(&pair);
    }
    pair_import(&pair);
    hand_over(&pair, 3);
    assert_int_equal(pair.peers_lost, 0);
    bt_kvt_rekey(sender_first ? pair.receiver : pair.sender, fresh,
                 pair.now_ms);
    hand_over(&pair, 4);
    bt_test_expect_log_lines(bt_log_count(BT_LOG_LEVEL_WARN) - warned);
    pair_close(&pair);
}

static void senders_may_learn_a_new_key_first(const pair_kind_t *kind)
{
    a_new_key_is_learnt_one_after_the_other(kind, true);
}
EACH_KIND(senders_may_learn_a_new_key_first)

static void receivers_may_learn_a_new_key_first(const pair_kind_t *kind)
{
    a_new_key_is_learnt_one_after_the_other(kind, false);
}
EACH_KIND(receivers_may_learn_a_new_key_first)

/* Whoever has it after ten minutes is a stranger. */
static void previous_key_expires(void **state)
{
    const uint8_t fresh[BT_KEY_BYTES] = {9};
    uint8_t old[BT_KEY_BYTES];
    bt_kvt_msg_t hello;
    pair_t pair;

    (void)state;
    pair_open(&pair, &pair_kinds[PAIR_MEM_NETWORK], MIB);
    memcpy(old, pair.receiver->config.key, sizeof(old));
    (void)bt_kvt_progress(pair.receiver, pair.now_ms, MIB);
    bt_kvt_rekey(pair.receiver, fresh, pair.now_ms);
    hello_fill(&pair, 5, &hello);
    assert_non_null(tell(pair.receiver, NULL, &hello, old));
    (void)bt_kvt_progress(pair.receiver, pair.now_ms + 599999, MIB);
    hello.nonce = 6;
    assert_non_null(tell(pair.receiver, NULL, &hello, old));
    (void)bt_kvt_progress(pair.receiver, pair.now_ms + 600000, MIB);
    hello.nonce = 7;
    assert_null(tell(pair.receiver, NULL, &hello, old));
    assert_non_null(tell(pair.receiver, NULL, &hello, fresh));
    bt_test_expect_log_lines(1);
    pair_close(&pair);
}

/* ---- who may connect at all ---- */

/** A connection from @a host to where the receiver listens, under way. */
static int knock(const pair_t *pair, int host)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    struct sockaddr_in addr;
    bt_kvt_export_info_t info;
    size_t n = 0;
    int fd;

    assert_int_equal(bt_kvt_export(pair->receiver, blob, sizeof(blob), &n),
                     BT_OK);
    assert_int_equal(bt_kvt_export_decode(blob, n, &info), BT_OK);
    assert_int_equal(info.net_addr.bytes, sizeof(addr));
    memcpy(&addr, info.net_addr.data, sizeof(addr));
    host_enter(host);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    (void)!connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    return fd;
}

/** On a cable, that is decided when connect() returns. */
static bool is_in(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return (poll(&p, 1, timeout_ms) == 1) && ((p.revents & POLLERR) == 0);
}

static void address_filter_refuses_non_peers(void **state)
{
    const pair_kind_t *kind = &pair_kinds[PAIR_UCX_HOSTS];
    bt_kvt_t *observer;
    pair_t pair;
    int before, after, own;

    (void)state;
    if (!hosts_up()) {
        skip();
    }
    observer = pair_observer(kind);
    pair_open(&pair, kind, MIB);
    before = knock(&pair, HOST_1);
    own = knock(&pair, HOST_2); /* nobody's, but for those who know of it */
    assert_false(is_in(before, 0));
    assert_false(is_in(own, 0));
    pair_import(&pair);
    after = knock(&pair, HOST_1);
    assert_true(is_in(after, 10000));
    assert_true(is_in(before, 60000)); /* it knocks again after a second */
    assert_false(is_in(own, 0));
    close(before);
    close(after);
    close(own);
    pair_close(&pair);
    bt_kvt_close(observer);
}

/** Let @a n made-up addresses in, from number @a first on, of both kinds. */
static void admit_many(const pair_t *pair, uint32_t first, uint32_t n)
{
    static uint8_t sources[BT_KVT_MAX_SOURCES][BT_KVT_SOURCE_BYTES];
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_export_info_t info = {.oldest = BT_KVT_WIRE_OLDEST,
                                 .newest = BT_KVT_WIRE_VERSION,
                                 .transport = BT_KVT_TRANSPORT_UCX,
                                 .instance = 3,
                                 .sources = {sources, sizeof(sources)}};
    size_t bytes = 0;

    for (uint32_t at = first; at < first + n; at++) {
        uint8_t *source = sources[at % BT_KVT_MAX_SOURCES];

        memset(source, 0, BT_KVT_SOURCE_BYTES);
        source[0] = (at % 2 == 0) ? 0 : 0x20;
        source[10] = source[11] = (at % 2 == 0) ? 0xff : 0;
        source[14] = (uint8_t)(at >> 8);
        source[15] = (uint8_t)at;
        if ((at + 1) % BT_KVT_MAX_SOURCES == 0) {
            assert_int_equal(
                bt_kvt_export_encode(&info, blob, sizeof(blob), &bytes), BT_OK);
            assert_int_equal(bt_kvt_admit(pair->receiver, blob, bytes), BT_OK);
        }
    }
}

/* And where they are too many for a filter, peers are not kept out. */
static void address_filter_holds_many_peers(void **state)
{
    const pair_kind_t *kind = &pair_kinds[PAIR_UCX_HOSTS];
    bt_kvt_t *observer;
    pair_t pair;
    int fd;

    (void)state;
    if (!hosts_up()) {
        skip();
    }
    observer = pair_observer(kind);
    pair_open(&pair, kind, MIB);
    admit_many(&pair, 0, 128);
    fd = knock(&pair, HOST_1);
    assert_false(is_in(fd, 0));
    close(fd);
    pair_import(&pair); /* the last of them */
    fd = knock(&pair, HOST_1);
    assert_true(is_in(fd, 10000));
    close(fd);

    fd = knock(&pair, HOST_2);
    assert_false(is_in(fd, 0));
    close(fd);
    bt_test_expect_log_lines(1);
    admit_many(&pair, 128, 4096);
    fd = knock(&pair, HOST_2);
    assert_true(is_in(fd, 10000));
    close(fd);
    pair_close(&pair);
    bt_kvt_close(observer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(kvt_messages_have_the_documented_bytes),
        BT_TEST(fields_of_later_kvt_versions_are_ignored),
        BT_TEST(hello_needs_the_key_and_the_receivers_name),
        BT_TEST(replayed_hello_is_refused),
        BT_TEST(many_departed_peers_leave_little_memory),
        BT_TEST(message_of_another_link_is_refused),
        BT_TEST(acknowledgement_of_another_hello_is_refused),
        TEST_EACH(who_has_another_key_is_nobodys_peer),
        BT_TEST(silent_connections_end_and_block_nobody),
        BT_TEST(own_stall_ends_no_connection),
        BT_TEST(slow_peer_has_dead_ms_to_authenticate),
        BT_TEST(silent_connection_ends_after_a_short_dead_ms),
        TEST_EACH(senders_may_learn_a_new_key_first),
        TEST_EACH(receivers_may_learn_a_new_key_first),
        BT_TEST(previous_key_expires),
        BT_TEST(address_filter_refuses_non_peers),
        BT_TEST(address_filter_holds_many_peers),
    };

    bt_log_init("test_kvt_proof", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
