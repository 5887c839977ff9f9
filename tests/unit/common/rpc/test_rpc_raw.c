/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile and broken peers, made by hand on plain sockets. */
#include "tests/unit/common/rpc/rpc_fake.h"

/* Nobody learns a thing before the proof: not even that a worker is there. */
static void refused_in_silence(fake_t *fake, side_t *worker)
{
    const uint64_t count = fake->worker.count;

    UNTIL(worker, NULL, readable(fake->pair));
    assert_true(is_closed(fake->pair));
    close(fake->pair);
    fake_learn(fake, worker); /* and the socket is another one */
    assert_true(fake->worker.count > count);
    fake->worker.count = 0;
}

static void whoever_cannot_prove_the_key_gets_no_link(void **state)
{
    static const uint8_t no_data[] = "\1\0\0\0x";
    rpc_keys_t other;
    side_t worker;
    fake_t fake;

    (void)state;
    bt_rpc_keys_make(key_b, sizeof(key_b), &other);
    bt_test_expect_log_lines(1); /* once, whatever else it tries */
    fake_open(&fake, &worker);

    fake_dial(&fake, &worker);
    fake_send_open(&fake, &other); /* another key */
    refused_in_silence(&fake, &worker);

    fake_dial(&fake, &worker);
    memcpy(other.id, link_keys.id, sizeof(other.id)); /* that is not said */
    fake_send_open(&fake, &other);
    refused_in_silence(&fake, &worker);

    fake_dial(&fake, &worker); /* messages without a proof */
    bt_key_random(&fake.session, sizeof(fake.session));
    fake_send(&fake, RPC_DATA, 1, no_data, 5);
    refused_in_silence(&fake, &worker);

    fake_dial(&fake, &worker); /* not our protocol */
    sp_send(fake.pair, "GET / HTTP/1.1\r\n\r\n", 18);
    refused_in_silence(&fake, &worker);

    fake_dial(&fake, &worker); /* nothing at all */
    refused_in_silence(&fake, &worker);

    assert_int_equal(worker.n_up + worker.n_down + worker.n_messages, 0);
    fake_link(&fake, &worker); /* the true one is let in after all that */
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

static void a_frame_that_is_not_the_next_ends_the_link(void **state)
{
    static const struct {
        uint64_t second;
        uint8_t kind;
        bool of_worker; /* under its key: sent back to it */
        const char *body;
        size_t n;
        const char *reason;
        uint32_t n_messages;
    } cases[] = {
        {3, RPC_DATA, false, "\4\0\0\0\1\0\0\0", 8, NULL, 2},
        {3, 200, false, "of a later version", 18, NULL, 1},
        {4, RPC_DATA, false, "\4\0\0\0\1\0\0\0", 8, "lost or repeated", 1},
        {2, RPC_DATA, false, "\4\0\0\0\0\0\0\0", 8, "lost or repeated", 1},
        {3, RPC_DATA, true, "\4\0\0\0\1\0\0\0", 8, "right tag", 1},
        {3, RPC_DATA, false, "\1\0\0\1", 4, "malformed", 1}, /* 16 MiB + 1 */
        {3, RPC_READY, false, "\3\0\0\0r", 5, "malformed", 1},
        {3, RPC_OPEN, false, "", 0, "malformed", 1},
        {3, RPC_BYE, false, "so long", 7, "so long", 1},
    };
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const unsigned was = worker.n_down;

        worker.n_messages = 0;
        fake_link(&fake, &worker);
        fake_send(&fake, RPC_DATA, 2, "\4\0\0\0\0\0\0\0", 8);
        send_sealed(fake.pair,
                    cases[i].of_worker ? fake.session.to_router
                                       : fake.session.to_worker,
                    cases[i].kind, cases[i].second, cases[i].body, cases[i].n);
        if (cases[i].reason != NULL) {
            UNTIL(&worker, NULL, worker.n_down == was + 1);
            assert_non_null(strstr(worker.reason, cases[i].reason));
            close(fake.pair);
        } else {
            UNTIL(&worker, NULL, worker.n_messages == cases[i].n_messages);
            /* and the link goes on */
            fake_send(&fake, RPC_BYE, 4, "enough", 6);
            UNTIL(&worker, NULL, worker.n_down == was + 1);
            assert_string_equal(worker.reason, "enough");
            close(fake.pair);
        }
        assert_int_equal(worker.n_messages, cases[i].n_messages);
        assert_true(worker.in_order);
    }
    fake_close(&fake, &worker);
}

static void an_oversized_frame_ends_the_link(void **state)
{
    static const uint64_t claims[] = {RPC_MAX_FRAME + 1, 1ull << 40,
                                      UINT64_MAX};
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(claims); i++) {
        fake_link(&fake, &worker);
        sp_send_claiming(fake.pair, claims[i], "BTN3", 4);
        UNTIL(&worker, NULL, worker.n_down == i + 1);
        close(fake.pair);
    }
    fake_close(&fake, &worker);
}

/* The worker's link socket: one that speaks no SP, another protocol of SP,
 * only half of the greeting, or no more than a whole one. */
static void
garbage_at_the_workers_socket_does_not_keep_it_from_linking(void **state)
{
    static const char junk[4096] = "\x16\x03\x01 junk";
    side_t worker;
    fake_t fake;
    int held[4];
    uint16_t port;

    (void)state;
    bt_test_expect_log_lines(1);
    fake_open(&fake, &worker);
    fake_learn(&fake, &worker);
    port = port_of(fake.worker.url);
    held[0] = tcp_connect(port);
    write_all(held[0], junk, sizeof(junk));
    held[1] = tcp_connect(port);
    write_all(held[1], "\0SP", 3);
    held[2] = tcp_connect(port);
    sp_say_hello(held[2], PUB); /* it may be refused before it is greeted */
    sp_send(held[2], junk, sizeof(junk));
    run_for(&worker, NULL, 200);
    held[3] = sp_connect(port, PAIR); /* greets, says nothing, stays */
    fake_link(&fake, &worker);
    assert_int_equal(worker.n_messages, 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(held); i++) {
        close(held[i]);
    }
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

/* One is let go of while the next two are there already. */
static void strangers_who_call_one_after_the_other_end_no_worker(void **state)
{
    side_t worker;
    fake_t fake;
    uint16_t port;
    int silent;

    (void)state;
    bt_test_expect_log_lines(1);
    fake_open(&fake, &worker);
    fake_learn(&fake, &worker);
    port = port_of(fake.worker.url);
    for (unsigned round = 0; round < 100; round++) {
        int fds[6];

        for (size_t i = 0; i < BT_ARRAY_LEN(fds); i++) {
            fds[i] = tcp_connect(port);
            write_all(fds[i], (i % 2 == 0) ? "junk at once" : "\0SP",
                      (i % 2 == 0) ? 12 : 3);
        }
        for (size_t i = 0; i < BT_ARRAY_LEN(fds); i++) {
            close(fds[i]);
        }
    }
    silent = sp_connect(port, PAIR); /* it is heard, and gives the port up */
    fake_link(&fake, &worker);
    close(silent);
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

static void announce(uint16_t port, const char *where)
{
    rpc_intro_t intro = {.range = {3, 3}, .incarnation = 99, .count = 1};
    uint8_t frame[RPC_MAX_INTRO];
    int fd;

    snprintf(intro.url, sizeof(intro.url), "%s", where);
    fd = announce_bytes(port, frame,
                        bt_rpc_announce_put(&link_keys, &intro, frame));
    usleep(1000); /* the close may overtake the message: then it says less */
    close(fd);
}

static void garbage_at_the_routers_socket_harms_nobody(void **state)
{
    static const char junk[4096] = "\x16\x03\x01 junk";
    side_t router;
    side_t worker;
    uint16_t port;
    int held[4];

    (void)state;
    bt_test_expect_log_lines(1);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)), BT_OK);
    port = port_of(url);
    held[0] = tcp_connect(port);
    write_all(held[0], junk, sizeof(junk));
    held[1] = sp_connect(port, PAIR); /* not a push socket */
    held[2] = sp_connect(port, PUB);
    sp_send(held[2], junk, 300); /* fits, and is nonsense: one line */
    held[3] = sp_connect(port, PUB);
    sp_send_claiming(held[3], 1ull << 40, junk, sizeof(junk));
    run_for(&router, NULL, 200);
    announce(port, "http://127.0.0.1:1/x"); /* no more lines */
    announce(port, "tcp://");
    run_for(&router, NULL, 100);

    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 1));
    assert_int_equal(router.n_down, 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(held); i++) {
        close(held[i]);
    }
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
}

/* The time in which a process does not run is not its peer's delay. */
static void a_handshake_outlasts_our_own_sleep(void **state)
{
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    fake_link_asleep(&fake, &worker, 100 * DEAD_MS);
    assert_int_equal(worker.n_down, 0);
    fake_unlink(&fake, &worker);
    fake_close(&fake, &worker);
}

/* An announcement that leads nowhere is given up silently. */
static void an_announced_address_that_nobody_has_is_given_up(void **state)
{
    side_t router;
    uint16_t dead;
    char where[64];
    const int fd = tcp_listen(&dead);

    (void)state;
    close(fd);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_rpc_listen(router.rpc, fresh_url(false), url, sizeof(url)), BT_OK);
    snprintf(where, sizeof(where), "tcp://127.0.0.1:%u", dead);
    for (int i = 0; i < 3; i++) {
        announce(port_of(url), where);
        run_for(&router, NULL, DEAD_MS / 2);
    }
    run_for(&router, NULL, DEAD_MS + 100);
    assert_int_equal(router.n_up + router.n_down, 0);
    bt_rpc_close(router.rpc);
}

#define HANG_UPS 25

/* A router that dies takes connections which it never answers. */
static void a_router_that_hangs_up_at_the_greeting_is_found_again(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const uint8_t greeting[8] = {0, 'S', 'P', 0, 0, SUB, 0, 0};
    side_t worker;
    side_t router;
    int listener;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/hang-up.ipc",
             getenv("RPC_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(
        bind(listener, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 4), 0);
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    for (int i = 0; i < 2 * HANG_UPS; i++) {
        uint8_t theirs[8];
        int fd;

        UNTIL(&worker, NULL, readable(listener));
        fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (i >= HANG_UPS) {
            read_all(fd, theirs, sizeof(theirs));
            write_all(fd, greeting, sizeof(greeting));
        }
        close(fd);
    }
    close(listener);
    assert_int_equal(unlink(addr.sun_path), 0);

    side_open(&router, key_a, "r");
    assert_int_equal(bt_rpc_listen(router.rpc, url, url, sizeof(url)), BT_OK);
    UNTIL(&worker, &router, (worker.n_up == 1) && (router.n_up == 1));
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
}

static int connect_to(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&addr, sizeof(addr)),
                     0);
    return fd;
}

/* A listener of nng 1.5 takes a peer that hangs up in the greeting for its own
 * end and accepts nobody any more: one port scan, and no worker joined. */
static void strangers_do_not_make_a_router_deaf(void **state)
{
    static const struct {
        const char *text;
        size_t n;
    } openings[] = {
        {"", 0},
        {"\0SP", 3},
        {"\0SP\0\0\x20\0\0", 8},
        {"\0SP\0\0\x10\0\0", 8}, /* another protocol */
        {"GET / HTTP/1.1\r\n\r\n", 18},
        /* a message that is too long, one that is cut, a wrong mark */
        {"\0SP\0\0\x20\0\0\1\0\0\0\1\0\0\0\0", 17},
        {"\0SP\0\0\x20\0\0\1\0\0\0\0\0\0\0\7abc", 20},
        {"\0SP\0\0\x20\0\0\2\0\0\0\0\0\0\0\1a", 18},
    };
    side_t worker;
    side_t router;
    int silent;

    (void)state;
    snprintf(url, sizeof(url), "ipc://%s/deaf.ipc", getenv("RPC_TEST_DIR"));
    side_open(&router, key_a, "r");
    assert_int_equal(bt_rpc_listen(router.rpc, url, url, sizeof(url)), BT_OK);
    silent = connect_to(url + 6);
    for (size_t i = 0; i < HANG_UPS * sizeof(openings) / sizeof(openings[0]);
         i++) {
        const size_t k = i % (sizeof(openings) / sizeof(openings[0]));
        const int fd = connect_to(url + 6);

        write_all(fd, openings[k].text, openings[k].n);
        close(fd);
    }
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_rpc_join(worker.rpc, url), BT_OK);
    UNTIL(&worker, &router, (worker.n_up == 1) && (router.n_up == 1));
    bt_rpc_close(worker.rpc);
    bt_rpc_close(router.rpc);
    close(silent);
}

/* What a killed router left is taken over; what another one uses is not. */
static void a_socket_that_is_left_over_is_taken_over(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    side_t first;
    side_t second;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/left.ipc",
             getenv("RPC_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    side_open(&first, key_a, "r");
    assert_int_equal(bt_rpc_listen(first.rpc, url, url, sizeof(url)), BT_OK);
    side_open(&second, key_a, "s");
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_rpc_listen(second.rpc, url, url, sizeof(url)),
                     BT_ERR_EXISTS);
    bt_rpc_close(second.rpc);
    close(connect_to(addr.sun_path)); /* still there */
    bt_rpc_close(first.rpc);
    assert_int_equal(access(addr.sun_path, F_OK), -1);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(whoever_cannot_prove_the_key_gets_no_link),
        BT_TEST(a_frame_that_is_not_the_next_ends_the_link),
        BT_TEST(an_oversized_frame_ends_the_link),
        BT_TEST(garbage_at_the_workers_socket_does_not_keep_it_from_linking),
        BT_TEST(strangers_who_call_one_after_the_other_end_no_worker),
        BT_TEST(garbage_at_the_routers_socket_harms_nobody),
        BT_TEST(a_handshake_outlasts_our_own_sleep),
        BT_TEST(an_announced_address_that_nobody_has_is_given_up),
        BT_TEST(a_router_that_hangs_up_at_the_greeting_is_found_again),
        BT_TEST(strangers_do_not_make_a_router_deaf),
        BT_TEST(a_socket_that_is_left_over_is_taken_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_fakes(run);
}
