/* SPDX-License-Identifier: Apache-2.0 */
/* Peers of protocol 2, made by hand in its frames: refused by name, each way.
 */
#include "tests/unit/common/rpc/rpc_fake.h"

#include "common/rpc/rpc_old.h"

static void send_old(int fd, rpc_old_kind_t kind, uint64_t sequence,
                     const void *body, size_t n)
{
    uint8_t frame[512];

    assert_true(RPC_OLD_HEADER_BYTES + n <= sizeof(frame));
    bt_rpc_old_put_header(frame, kind, 4711, sequence);
    memcpy(frame + RPC_OLD_HEADER_BYTES, body, n);
    sp_send(fd, frame, RPC_OLD_HEADER_BYTES + n);
}

static rpc_old_frame_t recv_old(int fd, side_t *side, uint8_t data[512])
{
    const size_t n = sp_recv(fd, side, data, 512);
    rpc_old_frame_t frame;

    assert_int_equal(bt_rpc_old_parse(data, n, &frame), BT_OK);
    return frame;
}

/* Hello and proof both ways, as protocol 2 has them. */
static void old_handshake(int fd, side_t *side, bool dialer, const char *hello,
                          const char *expected)
{
    rpc_old_side_t own = {.incarnation = 4711, .nonce = {7}};
    uint8_t said[RPC_OLD_NONCE_BYTES + 64];
    uint8_t proof[BT_PROOF_BYTES];
    rpc_old_side_t theirs;
    uint8_t data[512];
    rpc_old_frame_t frame;

    memcpy(said, own.nonce, RPC_OLD_NONCE_BYTES);
    memcpy(said + RPC_OLD_NONCE_BYTES, hello, strlen(hello));
    bt_key_proof(link_keys.old, BT_KEY_BYTES, hello, strlen(hello),
                 own.payload_hash);
    send_old(fd, RPC_OLD_HELLO, 0, said, RPC_OLD_NONCE_BYTES + strlen(hello));
    frame = recv_old(fd, side, data);
    assert_int_equal(frame.kind, RPC_OLD_HELLO);
    assert_int_equal(frame.bytes, RPC_OLD_NONCE_BYTES + strlen(expected));
    assert_memory_equal(frame.body + RPC_OLD_NONCE_BYTES, expected,
                        strlen(expected));
    theirs.incarnation = frame.incarnation;
    memcpy(theirs.nonce, frame.body, RPC_OLD_NONCE_BYTES);
    bt_key_proof(link_keys.old, BT_KEY_BYTES, expected, strlen(expected),
                 theirs.payload_hash);
    frame = recv_old(fd, side, data);
    assert_int_equal(frame.kind, RPC_OLD_PROOF);
    bt_rpc_old_proof(link_keys.old, !dialer, &theirs, &own, proof);
    assert_memory_equal(frame.body, proof, sizeof(proof));
    bt_rpc_old_proof(link_keys.old, dialer, &own, &theirs, proof);
    send_old(fd, RPC_OLD_PROOF, 0, proof, sizeof(proof));
}

static void recv_bye(int fd, side_t *side, const char *reason)
{
    uint8_t data[512];
    const rpc_old_frame_t frame = recv_old(fd, side, data);

    assert_int_equal(frame.kind, RPC_OLD_BYE);
    assert_int_equal(frame.sequence, 1);
    assert_int_equal(frame.bytes, strlen(reason));
    assert_memory_equal(frame.body, reason, strlen(reason));
}

static void an_old_worker_is_refused_by_name_and_once(void **state)
{
    static const char *const reasons[] = {
        "prefill-1 speaks protocol 2, this router speaks 3", NULL};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        uint8_t frame[RPC_OLD_MAX_ANNOUNCE];
        char where[64];
        side_t router;
        uint16_t port;
        int listener;
        int link;
        int pub;
        size_t n;

        side_open(&router, key_a, "r");
        router.refuse = reasons[i];
        assert_int_equal(
            bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)),
            BT_OK);
        listener = tcp_listen(&port);
        snprintf(where, sizeof(where), "tcp://127.0.0.1:%u", port);
        n = bt_rpc_old_announce_put(link_keys.old, 4711, where, frame);
        pub = announce_bytes(port_of(url), frame, n);
        UNTIL(&router, NULL, readable(listener));
        link = accept(listener, NULL, NULL);
        sp_greet(link, PAIR);
        old_handshake(link, &router, false, "prefill-1", "r");
        UNTIL(&router, NULL, router.n_down == 1);
        assert_int_equal(router.n_up, 1);
        assert_string_equal(router.hello, "prefill-1");
        recv_bye(link, &router,
                 (reasons[i] != NULL) ? reasons[i]
                                      : "it speaks the frames of protocol 2");
        close(link);
        /* not again before a minute is over */
        sp_send(pub, frame, n);
        run_for(&router, NULL, 300);
        assert_false(readable(listener));
        assert_int_equal(router.n_up, 1);
        close(pub);
        close(listener);
        bt_rpc_close(router.rpc);
    }
}

/* No message of it is taken, and none goes to it. */
static void an_old_peer_exchanges_no_message(void **state)
{
    side_t worker;
    fake_t fake;
    uint8_t data[RPC_MAX_INTRO];
    rpc_intro_t intro;
    char where[RPC_MAX_URL];
    uint64_t incarnation;
    uint64_t since_ms;
    size_t n;

    (void)state;
    bt_test_expect_log_lines(1); /* that nobody answers */
    fake_open(&fake, &worker);
    since_ms = bt_now_ms();
    do { /* it announces itself as protocol 2 does when nobody opens */
        n = sp_recv(fake.sub, &worker, data, sizeof(data));
    } while (bt_rpc_announce_check(&link_keys, data, n, &intro) == BT_OK);
    assert_true(bt_now_ms() - since_ms >= 2500);
    assert_int_equal(
        bt_rpc_old_announce_check(link_keys.old, data, n, &incarnation, where),
        BT_OK);
    assert_string_equal(where, intro.url);
    assert_int_equal(incarnation, intro.incarnation);
    fake.pair = sp_connect(port_of(where), PAIR);
    old_handshake(fake.pair, &worker, true, "router-0", "w");
    send_old(fake.pair, RPC_OLD_DATA, 1, "\4\0\0\0\0\0\0\0", 8);
    send_old(fake.pair, RPC_OLD_BYE, 2,
             "w speaks protocol 3, this router speaks 2", 41);
    UNTIL(&worker, NULL, worker.n_down == 1);
    assert_int_equal(worker.n_up, 1);
    assert_string_equal(worker.hello, "router-0");
    assert_int_equal(worker.n_messages, 0);
    close(fake.pair);
    fake_close(&fake, &worker);
}

/* A stranger who speaks protocol 2 learns nothing of a worker that has not
 * offered it. */
static void protocol_2_is_not_answered_unasked(void **state)
{
    const uint8_t said[RPC_OLD_NONCE_BYTES + 1] = {1};
    side_t worker;
    fake_t fake;

    (void)state;
    bt_test_expect_log_lines(1);
    fake_open(&fake, &worker);
    fake_dial(&fake, &worker);
    send_old(fake.pair, RPC_OLD_HELLO, 0, said, sizeof(said));
    UNTIL(&worker, NULL, readable(fake.pair));
    assert_true(is_closed(fake.pair));
    close(fake.pair);
    fake_close(&fake, &worker);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(an_old_worker_is_refused_by_name_and_once),
        BT_TEST(an_old_peer_exchanges_no_message),
        BT_TEST(protocol_2_is_not_answered_unasked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_fakes(run);
}
