/* SPDX-License-Identifier: Apache-2.0 */
/* What was recorded, on the same link, on another and after a restart; versions
 * that do not fit. */
#include "tests/unit/common/rpc/rpc_fake.h"

/* A worker made by hand, for a router that is driven. */
typedef struct puppet {
    int listener; /* its socket */
    int pub;
    int link;
    rpc_intro_t intro;
    uint8_t announce[RPC_MAX_INTRO];
    size_t announce_bytes;
    rpc_session_t session;
} puppet_t;

static void router_open(side_t *router)
{
    side_open(router, key_a, "r");
    assert_int_equal(
        bt_rpc_listen(router->rpc, fresh_url(false), url, sizeof(url)), BT_OK);
}

static void puppet_announce(puppet_t *p, uint64_t count)
{
    uint16_t port;

    memset(p, 0, sizeof(*p));
    p->listener = tcp_listen(&port);
    p->intro = (rpc_intro_t){
        .range = {3, 3}, .incarnation = 815, .count = count, .name = "puppet"};
    bt_key_random(p->intro.nonce, sizeof(p->intro.nonce));
    snprintf(p->intro.url, sizeof(p->intro.url), "tcp://127.0.0.1:%u", port);
    p->announce_bytes = bt_rpc_announce_put(&link_keys, &p->intro, p->announce);
    p->pub = announce_bytes(port_of(url), p->announce, p->announce_bytes);
}

/* The router dials and opens. */
static void puppet_accept(puppet_t *p, side_t *router)
{
    uint8_t open[RPC_MAX_INTRO];
    rpc_intro_t intro;
    size_t n;

    UNTIL(router, NULL, readable(p->listener));
    p->link = accept(p->listener, NULL, NULL);
    assert_true(p->link >= 0);
    sp_greet(p->link, PAIR);
    n = sp_recv(p->link, router, open, sizeof(open));
    assert_int_equal(bt_rpc_open_check(&link_keys, p->announce,
                                       p->announce_bytes, open, n, &intro),
                     BT_OK);
    assert_string_equal(intro.name, "r");
    bt_rpc_session_make(&link_keys, p->announce, p->announce_bytes, open, n,
                        &p->session);
}

static void puppet_close(puppet_t *p)
{
    close(p->link);
    close(p->pub);
    close(p->listener);
}

static void a_recorded_announcement_leads_to_no_link(void **state)
{
    puppet_t newer;
    puppet_t older;
    side_t router;
    int again;

    (void)state;
    bt_test_expect_log_lines(1);
    router_open(&router);
    puppet_announce(&newer, 7);
    puppet_accept(&newer, &router);
    send_sealed(newer.link, newer.session.to_router, RPC_ACCEPT, 1, "\3\0\0\0p",
                5);
    UNTIL(&router, NULL, router.n_up == 1);
    /* the same again, while its link is up */
    again = announce_bytes(port_of(url), newer.announce, newer.announce_bytes);
    /* an older socket of the same process */
    puppet_announce(&older, 6);
    for (int i = 0; i < 6; i++) {
        send_sealed(newer.link, newer.session.to_router, RPC_DATA,
                    2 + (uint64_t)i, "", 0);
        run_for(&router, NULL, DEAD_MS / 4);
    }
    assert_false(readable(older.listener));
    assert_false(readable(newer.listener));
    assert_int_equal(router.n_up - router.n_down, 1);
    close(again);

    /* After its link somebody else has its port, and the router forgot it. */
    close(newer.link);
    UNTIL(&router, NULL, router.n_down == 1);
    bt_rpc_close(router.rpc);
    router_open(&router);
    again = announce_bytes(port_of(url), newer.announce, newer.announce_bytes);
    puppet_accept(&newer, &router);
    send_sealed(newer.link, older.session.to_router, RPC_ACCEPT, 1, "\3\0\0\0p",
                5);
    UNTIL(&router, NULL, is_closed(newer.link));
    assert_int_equal(router.n_up, 0);
    /* and is left alone: a second, then longer */
    close(again);
    again = announce_bytes(port_of(url), newer.announce, newer.announce_bytes);
    run_for(&router, NULL, 300);
    assert_false(readable(newer.listener));
    close(again);
    newer.link = dup(newer.listener); /* closed above; puppet_close() has it */
    older.link = dup(older.listener);
    puppet_close(&newer);
    puppet_close(&older);
    bt_rpc_close(router.rpc);
}

static void a_recorded_accept_is_no_workers(void **state)
{
    uint8_t accepted[512];
    rpc_session_t first;
    puppet_t p;
    side_t router;

    (void)state;
    bt_test_expect_log_lines(1);
    router_open(&router);
    puppet_announce(&p, 1);
    puppet_accept(&p, &router);
    first = p.session;
    send_sealed(p.link, first.to_router, RPC_ACCEPT, 1, "\3\0\0\0p", 5);
    UNTIL(&router, NULL, router.n_up == 1);
    assert_true(sp_recv(p.link, &router, accepted, sizeof(accepted)) > 0);
    puppet_close(&p);
    UNTIL(&router, NULL, router.n_down == 1);
    puppet_announce(&p, 2); /* another socket of it */
    puppet_accept(&p, &router);
    send_sealed(p.link, first.to_router, RPC_ACCEPT, 1, "\3\0\0\0p", 5);
    UNTIL(&router, NULL, is_closed(p.link));
    puppet_close(&p);
    assert_int_equal(router.n_up, 1);
    bt_rpc_close(router.rpc);
}

/* OPEN, READY and DATA of a link, on the next one of the same worker and on one
 * of a worker that was started anew. */
static void recorded_frames_of_a_router_open_nothing(void **state)
{
    uint8_t open[RPC_MAX_INTRO];
    rpc_session_t session;
    side_t worker;
    fake_t fake;
    size_t n;

    (void)state;
    bt_test_expect_log_lines(4);
    fake_open(&fake, &worker);
    fake_link(&fake, &worker);
    memcpy(open, fake.open, fake.open_bytes);
    n = fake.open_bytes;
    session = fake.session;
    fake_send(&fake, RPC_DATA, 2, "\4\0\0\0\0\0\0\0", 8);
    UNTIL(&worker, NULL, worker.n_messages == 1);
    fake_unlink(&fake, &worker);
    for (int anew = 0; anew < 2; anew++) {
        const unsigned was = worker.n_up;

        fake_dial(&fake, &worker);
        sp_send(fake.pair, open, n);
        UNTIL(&worker, NULL, is_closed(fake.pair));
        close(fake.pair);
        assert_int_equal(worker.n_up, was);
        fake_link(&fake, &worker); /* recorded DATA on a link that is up */
        send_sealed(fake.pair, session.to_worker, RPC_DATA, 2,
                    "\4\0\0\0\1\0\0\0", 8);
        UNTIL(&worker, NULL, worker.n_down == was + 1);
        assert_string_equal(worker.reason, "frame without a right tag");
        close(fake.pair);
        fake_dial(&fake, &worker); /* recorded READY */
        fake_send_open(&fake, &link_keys);
        (void)sp_recv(fake.pair, &worker, fake.accept, sizeof(fake.accept));
        send_sealed(fake.pair, session.to_worker, RPC_READY, 1, "\3\0\0\0r", 5);
        UNTIL(&worker, NULL, is_closed(fake.pair));
        close(fake.pair);
        assert_int_equal(worker.n_up, was + 1);
        if (anew == 0) {
            fake_close(&fake, &worker);
            fake_open(&fake, &worker);
        }
    }
    fake_close(&fake, &worker);
}

/* The worker's ACCEPT is no router's READY. */
static void a_frame_sent_back_to_its_sender_is_nobodys(void **state)
{
    side_t worker;
    fake_t fake;

    (void)state;
    bt_test_expect_log_lines(1);
    fake_open(&fake, &worker);
    fake_dial(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake.accept_bytes =
        sp_recv(fake.pair, &worker, fake.accept, sizeof(fake.accept));
    sp_send(fake.pair, fake.accept, fake.accept_bytes);
    UNTIL(&worker, NULL, is_closed(fake.pair));
    close(fake.pair);
    assert_int_equal(worker.n_up, 0);
    fake_close(&fake, &worker);
}

/* A frame of many messages, numbered as side_t wants them.
 * @param [in] spoilt  a byte of it is another one; 0: none */
static void send_numbers(fake_t *fake, uint64_t sequence, uint32_t first,
                         uint32_t n, size_t spoilt)
{
    const size_t each = RPC_LENGTH_BYTES + sizeof(uint32_t);
    const size_t whole = bt_rpc_frame_bytes(n * each);
    uint8_t *frame = malloc(whole);

    assert_non_null(frame);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = frame + RPC_HEADER_BYTES + i * each;

        bt_rpc_put_le(at, sizeof(uint32_t), RPC_LENGTH_BYTES);
        bt_rpc_put_le(at + RPC_LENGTH_BYTES, first + i, sizeof(uint32_t));
    }
    bt_rpc_frame_seal(fake->session.to_worker, RPC_DATA, sequence, frame,
                      whole);
    frame[spoilt] ^= (spoilt > 0) ? 1 : 0;
    sp_send(fake->pair, frame, whole);
    free(frame);
}

/* Long frames are checked by nng's threads, short ones by the owner. */
static void frames_of_any_length_are_checked(void **state)
{
    const struct {
        uint32_t n;
        size_t spoilt; /* of 8: a byte of it */
    } rows[] = {{1, 7}, {1000, 4}, {RPC_TAG_THERE / 8 + 1, 8}, {60000, 3}};
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const size_t whole = bt_rpc_frame_bytes(8 * (size_t)rows[i].n);
        const unsigned was = worker.n_messages;
        const uint32_t n = rows[i].n;

        fake_link(&fake, &worker);
        send_numbers(&fake, 2, was, n, 0);
        send_numbers(&fake, 3, was + n, n, 0);
        UNTIL(&worker, NULL, worker.n_messages == was + 2 * n);
        send_numbers(&fake, 4, was + 2 * n, n, whole * rows[i].spoilt / 8 - 1);
        UNTIL(&worker, NULL, worker.n_down == i + 1);
        assert_string_equal(worker.reason, "frame without a right tag");
        assert_int_equal(worker.n_messages, was + 2 * n);
        close(fake.pair);
    }
    fake_close(&fake, &worker);
}

static void open_with(side_t *side, const char *name, bt_wire_range_t range)
{
    bt_rpc_config_t config = side_config(key_a, name);

    memset(side, 0, sizeof(*side));
    side->in_order = true;
    config.range = range;
    assert_int_equal(bt_rpc_open(&config, &side->rpc), BT_OK);
}

static void the_newest_common_version_is_said(void **state)
{
    const bt_wire_range_t ours = {3, 4};
    rpc_frame_t frame;
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    bt_rpc_close(worker.rpc);
    open_with(&worker, "w", ours);
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    close(fake.sub);
    UNTIL(&worker, NULL, readable(fake.listener));
    fake.sub = accept(fake.listener, NULL, NULL);
    sp_greet(fake.sub, SUB);
    fake.own.range = (bt_wire_range_t){3, 9};
    fake_dial(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake.accept_bytes =
        sp_recv(fake.pair, &worker, fake.accept, sizeof(fake.accept));
    assert_int_equal(bt_rpc_frame_open(fake.session.to_router, fake.accept,
                                       fake.accept_bytes, &frame),
                     BT_OK);
    assert_memory_equal(frame.body, "\4\0\0\0w", 5);
    /* a router that takes an older one than it could is none of ours */
    bt_test_expect_log_lines(1);
    fake_send(&fake, RPC_READY, 1, "\3\0\0\0r", 5);
    UNTIL(&worker, NULL, is_closed(fake.pair));
    close(fake.pair);
    assert_int_equal(worker.n_up, 0);
    fake_close(&fake, &worker);
}

static void versions_that_do_not_fit_are_refused_by_name(void **state)
{
    const bt_wire_range_t newer = {5, 6};
    rpc_frame_t frame;
    side_t router;
    side_t worker;
    fake_t fake;

    (void)state;
    bt_test_expect_log_lines(3);
    fake_open(&fake, &worker);
    fake.own.range = newer;
    fake_dial(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake.accept_bytes =
        sp_recv(fake.pair, &worker, fake.accept, sizeof(fake.accept));
    assert_int_equal(bt_rpc_frame_open(fake.session.to_router, fake.accept,
                                       fake.accept_bytes, &frame),
                     BT_OK);
    assert_int_equal(frame.kind, RPC_BYE);
    assert_int_equal(frame.bytes, 46);
    assert_memory_equal(frame.body,
                        "fake router speaks protocol 5 to 6, w speaks 3", 46);
    close(fake.pair);
    fake_close(&fake, &worker);

    /* two true ones: each says it once */
    open_with(&router, "r", newer);
    assert_int_equal(
        bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)), BT_OK);
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    run_for(&router, &worker, 1500);
    assert_int_equal(router.n_up + worker.n_up, 0);
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_recorded_announcement_leads_to_no_link),
        BT_TEST(a_recorded_accept_is_no_workers),
        BT_TEST(recorded_frames_of_a_router_open_nothing),
        BT_TEST(a_frame_sent_back_to_its_sender_is_nobodys),
        BT_TEST(frames_of_any_length_are_checked),
        BT_TEST(the_newest_common_version_is_said),
        BT_TEST(versions_that_do_not_fit_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_fakes(run);
}
