/* SPDX-License-Identifier: Apache-2.0 */
/* What was recorded, on the same link, on another and after a restart; versions
 * that do not fit. */
#include "tests/unit/common/link/link_fake.h"

/* A worker made by hand, for a router that is driven. */
typedef struct puppet {
    int link;
    link_intro_t intro;
    uint8_t join[LINK_MAX_INTRO];
    size_t join_bytes;
    uint8_t open[LINK_MAX_INTRO];
    size_t open_bytes;
    link_session_t session;
} puppet_t;

static void router_open(side_t *router)
{
    side_open(router, key_a, "r");
    assert_int_equal(
        bt_control_listen(router->control, fresh_url(false), url, sizeof(url)),
        BT_OK);
}

static void puppet_init(puppet_t *p)
{
    memset(p, 0, sizeof(*p));
    p->intro =
        (link_intro_t){.range = {4, 4}, .incarnation = 815, .name = "puppet"};
    bt_key_random(p->intro.nonce, sizeof(p->intro.nonce));
    p->join_bytes = bt_link_join_put(&link_keys, &p->intro, p->join);
}

/* Says its JOIN, recorded or not, and takes OPEN. */
static void puppet_join(puppet_t *p, side_t *router)
{
    link_intro_t intro;

    p->link = tcp_connect(port_of(url));
    frame_send(p->link, p->join, p->join_bytes);
    p->open_bytes = frame_recv(p->link, router, p->open, sizeof(p->open));
    assert_int_equal(bt_link_open_check(&link_keys, p->join, p->join_bytes,
                                        p->open, p->open_bytes, &intro),
                     BT_OK);
    assert_string_equal(intro.name, "r");
    bt_link_session_make(&link_keys, p->join, p->join_bytes, p->open,
                         p->open_bytes, &p->session);
}

static void puppet_accept(puppet_t *p, const link_session_t *session)
{
    send_sealed(p->link, session->to_router, LINK_FRAME_ACCEPT, 1, "\4\0\0\0p",
                5);
}

/* A recorded JOIN is answered with another OPEN, so nothing else that was
 * recorded fits. */
static void a_recorded_join_and_accept_make_no_link(void **state)
{
    link_session_t first;
    puppet_t live;
    puppet_t recorded;
    side_t router;

    (void)state;
    bt_test_expect_log_lines(1);
    router_open(&router);
    puppet_init(&live);
    puppet_join(&live, &router);
    first = live.session;
    puppet_accept(&live, &first);
    UNTIL(&router, NULL, router.n_up == 1);
    /* again, while its link is up, and when it is not */
    for (int i = 0; i < 2; i++) {
        recorded = live;
        puppet_join(&recorded, &router);
        assert_memory_not_equal(&recorded.session, &first, sizeof(first));
        puppet_accept(&recorded, &first);
        UNTIL(&router, NULL, is_closed(recorded.link));
        close(recorded.link);
        assert_int_equal(router.n_up, 1);
        if (i == 0) {
            assert_int_equal(router.n_down, 0);
            close(live.link);
            UNTIL(&router, NULL, router.n_down == 1);
        }
    }
    bt_control_close(router.control);
}

/* A process that links up again has lost its former link. */
static void a_second_link_of_a_process_replaces_the_first(void **state)
{
    puppet_t first;
    puppet_t second;
    side_t router;

    (void)state;
    router_open(&router);
    puppet_init(&first);
    puppet_join(&first, &router);
    puppet_accept(&first, &first.session);
    UNTIL(&router, NULL, router.n_up == 1);
    puppet_init(&second);
    puppet_join(&second, &router);
    assert_int_equal(router.n_down, 0); /* nothing is proven */
    puppet_accept(&second, &second.session);
    UNTIL(&router, NULL, router.n_up == 2);
    assert_int_equal(router.n_down, 1);
    assert_string_equal(router.reason, "replaced by a newer link of the peer");
    close(first.link);
    close(second.link);
    bt_control_close(router.control);
}

/* OPEN, READY and DATA of a link, on the next one of the same worker and on one
 * of a worker that was started anew. */
static void recorded_frames_of_a_router_open_nothing(void **state)
{
    uint8_t open[LINK_MAX_INTRO];
    link_session_t session;
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
    fake_send(&fake, LINK_FRAME_DATA, 2, "\4\0\0\0\0\0\0\0", 8);
    UNTIL(&worker, NULL, worker.n_messages == 1);
    fake_unlink(&fake, &worker);
    for (int anew = 0; anew < 2; anew++) {
        const unsigned was = worker.n_up;

        fake_accept(&fake, &worker);
        frame_send(fake.link, open, n);
        UNTIL(&worker, NULL, is_closed(fake.link));
        close(fake.link);
        assert_int_equal(worker.n_up, was);
        fake_link(&fake, &worker); /* recorded DATA on a link that is up */
        send_sealed(fake.link, session.to_worker, LINK_FRAME_DATA, 2,
                    "\4\0\0\0\1\0\0\0", 8);
        UNTIL(&worker, NULL, worker.n_down == was + 1);
        assert_string_equal(worker.reason, "frame without a right tag");
        close(fake.link);
        fake_accept(&fake, &worker); /* recorded READY */
        fake_send_open(&fake, &link_keys);
        (void)frame_recv(fake.link, &worker, fake.accept, sizeof(fake.accept));
        send_sealed(fake.link, session.to_worker, LINK_FRAME_READY, 1,
                    "\4\0\0\0r", 5);
        UNTIL(&worker, NULL, is_closed(fake.link));
        close(fake.link);
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
    fake_accept(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake.accept_bytes =
        frame_recv(fake.link, &worker, fake.accept, sizeof(fake.accept));
    frame_send(fake.link, fake.accept, fake.accept_bytes);
    UNTIL(&worker, NULL, is_closed(fake.link));
    close(fake.link);
    assert_int_equal(worker.n_up, 0);
    fake_close(&fake, &worker);
}

/* A frame of many messages, numbered as side_t wants them.
 * @param [in] spoilt  a byte of it is another one; 0: none */
static void send_numbers(fake_t *fake, uint64_t sequence, uint32_t first,
                         uint32_t n, size_t spoilt)
{
    const size_t each = LINK_LENGTH_BYTES + sizeof(uint32_t);
    const size_t whole = bt_link_frame_bytes(n * each);
    uint8_t *frame = malloc(whole);

    assert_non_null(frame);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *at = frame + LINK_HEADER_BYTES + i * each;

        bt_link_put_le(at, sizeof(uint32_t), LINK_LENGTH_BYTES);
        bt_link_put_le(at + LINK_LENGTH_BYTES, first + i, sizeof(uint32_t));
    }
    bt_link_frame_seal(fake->session.to_worker, LINK_FRAME_DATA, sequence,
                       frame, whole);
    frame[spoilt] ^= (spoilt > 0) ? 1 : 0;
    frame_send(fake->link, frame, whole);
    free(frame);
}

/* Long frames are checked by nng's threads, short ones by the owner. */
static void frames_of_any_length_are_checked(void **state)
{
    const struct {
        uint32_t n;
        size_t spoilt; /* of 8: a byte of it */
    } rows[] = {{1, 7}, {1000, 4}, {LINK_TAG_THERE / 8 + 1, 8}, {60000, 3}};
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        const size_t whole = bt_link_frame_bytes(8 * (size_t)rows[i].n);
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
        close(fake.link);
    }
    fake_close(&fake, &worker);
}

static void open_with(side_t *side, const char *name, bt_wire_range_t range)
{
    bt_control_config_t config = side_config(key_a, name);

    memset(side, 0, sizeof(*side));
    side->in_order = true;
    config.range = range;
    assert_int_equal(bt_control_open(&config, &side->control), BT_OK);
}

static void the_newest_common_version_is_said(void **state)
{
    const bt_wire_range_t ours = {4, 5};
    link_frame_t frame;
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open_for(&fake, &worker, ours);
    fake.own.range = (bt_wire_range_t){4, 9};
    fake_accept(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake_recv_accept(&fake, &worker, &frame);
    assert_memory_equal(frame.body, "\5\0\0\0w", 5);
    /* a router that takes an older one than it could is none of ours */
    bt_test_expect_log_lines(1);
    fake_send(&fake, LINK_FRAME_READY, 1, "\4\0\0\0r", 5);
    UNTIL(&worker, NULL, is_closed(fake.link));
    close(fake.link);
    assert_int_equal(worker.n_up, 0);
    fake_close(&fake, &worker);
}

static void versions_that_do_not_fit_are_refused_by_name(void **state)
{
    const bt_wire_range_t newer = {5, 6};
    link_frame_t frame;
    side_t router;
    side_t worker;
    fake_t fake;

    (void)state;
    bt_test_expect_log_lines(3);
    fake_open(&fake, &worker);
    fake.own.range = newer;
    fake_accept(&fake, &worker);
    fake_send_open(&fake, &link_keys);
    fake_recv_accept(&fake, &worker, &frame);
    assert_int_equal(frame.kind, LINK_FRAME_BYE);
    assert_int_equal(frame.bytes, 46);
    assert_memory_equal(frame.body,
                        "fake router speaks protocol 5 to 6, w speaks 4", 46);
    close(fake.link);
    fake_close(&fake, &worker);

    /* two true ones: each says it once */
    open_with(&router, "r", newer);
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(false), url, sizeof(url)),
        BT_OK);
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    run_for(&router, &worker, 1500);
    assert_int_equal(router.n_up + worker.n_up, 0);
    bt_control_close(worker.control);
    bt_control_close(router.control);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_recorded_join_and_accept_make_no_link),
        BT_TEST(a_second_link_of_a_process_replaces_the_first),
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
