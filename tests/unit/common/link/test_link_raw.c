/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile and broken peers, made by hand on plain sockets. */
#define SUSPECT_MS 200
#define DEAD_MS    500
#include "tests/unit/common/link/link_fake.h"

/* Whoever proves nothing hears no more, and the worker dials again. */
static void refused_in_silence(fake_t *fake, side_t *worker)
{
    UNTIL(worker, NULL, readable(fake->link));
    assert_true(is_closed(fake->link));
    close(fake->link);
}

static void whoever_cannot_prove_the_key_gets_no_link(void **state)
{
    static const uint8_t no_data[] = "\1\0\0\0x";
    link_keys_t other;
    side_t worker;
    fake_t fake;

    (void)state;
    bt_link_keys_make(key_b, sizeof(key_b), &other);
    bt_test_expect_log_lines(1); /* once, whatever else it tries */
    fake_open(&fake, &worker);

    fake_accept(&fake, &worker);
    fake_send_open(&fake, &other); /* another key */
    refused_in_silence(&fake, &worker);

    fake_accept(&fake, &worker);
    memcpy(other.id, link_keys.id, sizeof(other.id)); /* that is not said */
    fake_send_open(&fake, &other);
    refused_in_silence(&fake, &worker);

    fake_accept(&fake, &worker); /* messages without a proof */
    bt_key_random(&fake.session, sizeof(fake.session));
    fake_send(&fake, LINK_FRAME_DATA, 1, no_data, 5);
    refused_in_silence(&fake, &worker);

    fake_accept(&fake, &worker); /* not our protocol */
    write_all(fake.link, "GET / HTTP/1.1\r\n\r\n", 18);
    refused_in_silence(&fake, &worker);

    fake_accept(&fake, &worker); /* nothing at all */
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
        {3, LINK_FRAME_DATA, false, "\4\0\0\0\1\0\0\0", 8, NULL, 2},
        {3, 200, false, "of a later version", 18, NULL, 1},
        {4, LINK_FRAME_DATA, false, "\4\0\0\0\1\0\0\0", 8, "lost or repeated",
         1},
        {2, LINK_FRAME_DATA, false, "\4\0\0\0\0\0\0\0", 8, "lost or repeated",
         1},
        {3, LINK_FRAME_DATA, true, "\4\0\0\0\1\0\0\0", 8, "right tag", 1},
        {3, LINK_FRAME_DATA, false, "\1\0\0\1", 4, "malformed",
         1}, /* 16 MiB + 1 */
        {3, LINK_FRAME_READY, false, "\4\0\0\0r", 5, "malformed", 1},
        {3, LINK_FRAME_OPEN, false, "", 0, "malformed", 1},
        {3, LINK_FRAME_BYE, false, "so long", 7, "so long", 1},
    };
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const unsigned was = worker.n_down;

        worker.n_messages = 0;
        fake_link(&fake, &worker);
        fake_send(&fake, LINK_FRAME_DATA, 2, "\4\0\0\0\0\0\0\0", 8);
        send_sealed(fake.link,
                    cases[i].of_worker ? fake.session.to_router
                                       : fake.session.to_worker,
                    cases[i].kind, cases[i].second, cases[i].body, cases[i].n);
        if (cases[i].reason != NULL) {
            UNTIL(&worker, NULL, worker.n_down == was + 1);
            assert_non_null(strstr(worker.reason, cases[i].reason));
            close(fake.link);
        } else {
            UNTIL(&worker, NULL, worker.n_messages == cases[i].n_messages);
            /* and the link goes on */
            fake_send(&fake, LINK_FRAME_BYE, 4, "enough", 6);
            UNTIL(&worker, NULL, worker.n_down == was + 1);
            assert_string_equal(worker.reason, "enough");
            close(fake.link);
        }
        assert_int_equal(worker.n_messages, cases[i].n_messages);
        assert_true(worker.in_order);
    }
    fake_close(&fake, &worker);
}

static void an_oversized_frame_ends_the_link(void **state)
{
    static const uint32_t claims[] = {LINK_MAX_FRAME + 1, UINT32_MAX, 0};
    side_t worker;
    fake_t fake;

    (void)state;
    fake_open(&fake, &worker);
    for (size_t i = 0; i < BT_ARRAY_LEN(claims); i++) {
        fake_link(&fake, &worker);
        frame_send_claiming(fake.link, claims[i], "BTN4", 4);
        UNTIL(&worker, NULL, worker.n_down == i + 1);
        close(fake.link);
    }
    fake_close(&fake, &worker);
}

/* ---- strangers at a router ---- */

static void router_open(side_t *router, bool ipc)
{
    side_open(router, key_a, "r");
    assert_int_equal(
        bt_control_listen(router->control, fresh_url(ipc), url, sizeof(url)),
        BT_OK);
}

static size_t join_make(const link_keys_t *keys, uint8_t frame[LINK_MAX_INTRO])
{
    link_intro_t intro = {.range = {4, 4}, .incarnation = 99, .name = "x"};

    bt_key_random(intro.nonce, sizeof(intro.nonce));
    return bt_link_join_put(keys, &intro, frame);
}

/* A worker joins, whatever is there already. */
static void worker_joins(side_t *router)
{
    side_t worker;

    side_open(&worker, key_a, "w");
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    UNTIL(router, &worker, (router->n_up == 1) && (worker.n_up == 1));
    assert_int_equal(router->n_down, 0);
    bt_control_close(worker.control);
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

static int dial_router(void)
{
    return bt_control_is_ipc(url) ? connect_to(url + 6)
                                  : tcp_connect(port_of(url));
}

#define HANG_UPS 25

/* Openings of strangers, each of which is followed by a hang-up. */
static void a_router_outlives_strangers_that_hang_up(void **state)
{
    static const bool ipc[] = {false, true};
    static const struct {
        const char *text;
        size_t n;
    } openings[] = {
        {"", 0},
        {"\0", 1},
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\x16\x03\x01\2\0\1\0\1\xfc\3\3", 11}, /* TLS */
        {"\0SP\0\0\x20\0\0", 8},                /* a socket of nng */
        {"\0\0\0\0", 4},                        /* an empty frame */
        {"\xff\xff\xff\xff", 4},
        {"\x68\0\0\0BTN4", 8}, /* a JOIN that is cut */
    };

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(ipc); k++) {
        side_t router;
        int silent;

        router_open(&router, ipc[k]);
        silent = dial_router();
        for (size_t i = 0; i < HANG_UPS * BT_ARRAY_LEN(openings); i++) {
            const size_t at = i % BT_ARRAY_LEN(openings);
            const int fd = dial_router();

            write_all(fd, openings[at].text, openings[at].n);
            if (i % 2 == 0) {
                run_for(&router, NULL, 2); /* the kernel's backlog is short */
            }
            close(fd);
        }
        worker_joins(&router);
        close(silent);
        bt_control_close(router.control);
    }
}

/* Frames of the right form whose sender has no key, or no frame at all: one
 * line for each kind, at most one in a second. */
static void strangers_are_said_once_and_hear_nothing(void **state)
{
    uint8_t frame[LINK_MAX_INTRO] = "junk";
    link_keys_t other;
    side_t router;

    (void)state;
    bt_link_keys_make(key_b, sizeof(key_b), &other);
    bt_test_expect_log_lines(2);
    router_open(&router, false);
    for (int i = 0; i < 6; i++) {
        const int fd = dial_router();
        const size_t n = (i < 3) ? 64 : join_make(&other, frame);

        frame_send(fd, frame, n);
        UNTIL(&router, NULL, readable(fd));
        assert_true(is_closed(fd));
        close(fd);
        if (i == 2) {
            run_for(&router, NULL, 1100);
        }
    }
    worker_joins(&router);
    bt_control_close(router.control);
}

/* Connections that prove nothing: their number and their time are bounded. */
static void silent_strangers_are_few_and_do_not_stay(void **state)
{
    enum { MANY = 3 * LINK_UNPROVEN };
    side_t router;
    int fds[MANY];
    unsigned n_open = 0;
    uint64_t start_ms;

    (void)state;
    router_open(&router, false);
    for (size_t i = 0; i < MANY; i++) {
        fds[i] = dial_router();
        run_for(&router, NULL, 2); /* the kernel's backlog is short */
    }
    /* the oldest have gone */
    UNTIL(&router, NULL, is_closed(fds[MANY - LINK_UNPROVEN - 1]));
    for (size_t i = 0; i < MANY; i++) {
        n_open += !readable(fds[i]);
    }
    assert_true(n_open <= LINK_UNPROVEN);
    worker_joins(&router); /* in spite of them */
    start_ms = bt_now_ms();
    UNTIL(&router, NULL, is_closed(fds[MANY - 1]));
    assert_true(bt_now_ms() - start_ms < 20 * DEAD_MS);
    for (size_t i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    bt_control_close(router.control);
}

/* A peer that sends its first frame byte by byte gains no time by that. */
static void a_dripping_handshake_ends_in_time(void **state)
{
    uint8_t frame[LINK_MAX_INTRO];
    uint64_t start_ms;
    side_t router;
    size_t n;
    int fd;

    (void)state;
    router_open(&router, false);
    n = join_make(&link_keys, frame);
    fd = dial_router();
    start_ms = bt_now_ms();
    frame_send_claiming(fd, (uint32_t)n, NULL, 0);
    for (size_t i = 0; (i < n) && !readable(fd); i++) {
        write_all(fd, frame + i, 1);
        run_for(&router, NULL, DEAD_MS / 10);
    }
    assert_true(is_closed(fd));
    assert_in_range(bt_now_ms() - start_ms, DEAD_MS, 20 * DEAD_MS);
    close(fd);
    bt_control_close(router.control);
}

/* A peer with the key that does not finish, nor read. */
static void a_worker_that_stops_in_the_handshake_ends_in_time(void **state)
{
    uint8_t frame[LINK_MAX_INTRO];
    uint64_t start_ms;
    side_t router;
    size_t n;
    int fd;

    (void)state;
    bt_test_expect_log_lines(1);
    router_open(&router, false);
    n = join_make(&link_keys, frame);
    fd = dial_router();
    start_ms = bt_now_ms();
    frame_send(fd, frame, n);
    assert_true(frame_recv(fd, &router, frame, sizeof(frame)) > 0); /* OPEN */
    UNTIL(&router, NULL, is_closed(fd));
    assert_in_range(bt_now_ms() - start_ms, DEAD_MS, 20 * DEAD_MS);
    close(fd);
    worker_joins(&router);
    bt_control_close(router.control);
}

static uint32_t n_unread(side_t *side)
{
    uint32_t n = 0;
    bt_list_t *pos;
    bt_list_t *tmp;

    pthread_mutex_lock(&side->control->mutex);
    BT_LIST_FOR_EACH(pos, tmp, &side->control->links)
    {
        n += BT_CONTAINER_OF(pos, bt_link_t, in_all)->inbox_n;
    }
    pthread_mutex_unlock(&side->control->mutex);
    return n;
}

/* Its frames may be long from then on, while the router's thread is busy. */
static void a_peer_in_the_handshake_has_one_unread_frame_at_most(void **state)
{
    static const uint8_t junk[4096] = {1};
    uint8_t frame[LINK_MAX_INTRO];
    uint64_t end_ms;
    side_t router;
    size_t n;
    int fd;

    (void)state;
    bt_test_expect_log_lines(1);
    router_open(&router, false);
    n = join_make(&link_keys, frame);
    fd = dial_router();
    frame_send(fd, frame, n);
    assert_true(frame_recv(fd, &router, frame, sizeof(frame)) > 0); /* OPEN */
    for (uint32_t i = 0; i < 64; i++) {
        frame_send(fd, junk, sizeof(junk));
    }
    end_ms = bt_now_ms() + 300; /* a network thread takes no time for so much */
    while (bt_now_ms() < end_ms) {
        assert_true(n_unread(&router) <= 1);
    }
    UNTIL(&router, NULL, is_closed(fd));
    close(fd);
    worker_joins(&router);
    bt_control_close(router.control);
}

/* A peer that proves the key and gives a reason that is no text. */
static void a_peers_reason_is_logged_without_control_characters(void **state)
{
    char reason[LINK_MAX_REASON];

    (void)state;
    bt_link_reason_print(reason,
                         "a\x1b[2J\n\x7f"
                         "b",
                         8);
    assert_string_equal(reason, "a [2J  b");
    memset(reason, 0, sizeof(reason));
    bt_link_reason_print(reason, (char[2 * LINK_MAX_REASON]){0},
                         2 * LINK_MAX_REASON);
    assert_int_equal(strlen(reason), LINK_MAX_REASON - 1);
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

/* A router that dies takes connections which it never answers. */
static void a_router_that_hangs_up_is_found_again(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    bt_control_config_t config = side_config(key_a, "w");
    side_t worker;
    side_t router;
    int listener;

    (void)state;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/hang-up.ipc",
             getenv("LINK_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(
        bind(listener, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(listener, 4), 0);
    config.dead_ms = 10 * PATIENCE_MS; /* nothing is long without an answer */
    memset(&worker, 0, sizeof(worker));
    assert_int_equal(bt_control_open(&config, &worker.control), BT_OK);
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    for (int i = 0; i < 4; i++) {
        uint8_t frame[LINK_MAX_INTRO];
        int fd;

        UNTIL(&worker, NULL, readable(listener));
        fd = accept(listener, NULL, NULL);
        assert_true(fd >= 0);
        if (i % 2 == 0) {
            (void)frame_recv(fd, &worker, frame, sizeof(frame));
        }
        close(fd);
    }
    close(listener);
    assert_int_equal(unlink(addr.sun_path), 0);
    side_open(&router, key_a, "r");
    assert_int_equal(bt_control_listen(router.control, url, url, sizeof(url)),
                     BT_OK);
    UNTIL(&worker, &router, (worker.n_up == 1) && (router.n_up == 1));
    bt_control_close(worker.control);
    bt_control_close(router.control);
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
             getenv("LINK_TEST_DIR"));
    snprintf(url, sizeof(url), "ipc://%s", addr.sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    side_open(&first, key_a, "r");
    assert_int_equal(bt_control_listen(first.control, url, url, sizeof(url)),
                     BT_OK);
    side_open(&second, key_a, "s");
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_control_listen(second.control, url, url, sizeof(url)),
                     BT_ERR_EXISTS);
    bt_control_close(second.control);
    close(connect_to(addr.sun_path)); /* still there */
    bt_control_close(first.control);
    assert_int_equal(access(addr.sun_path, F_OK), -1);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(whoever_cannot_prove_the_key_gets_no_link),
        BT_TEST(a_frame_that_is_not_the_next_ends_the_link),
        BT_TEST(an_oversized_frame_ends_the_link),
        BT_TEST(a_router_outlives_strangers_that_hang_up),
        BT_TEST(strangers_are_said_once_and_hear_nothing),
        BT_TEST(silent_strangers_are_few_and_do_not_stay),
        BT_TEST(a_dripping_handshake_ends_in_time),
        BT_TEST(a_worker_that_stops_in_the_handshake_ends_in_time),
        BT_TEST(a_peer_in_the_handshake_has_one_unread_frame_at_most),
        BT_TEST(a_peers_reason_is_logged_without_control_characters),
        BT_TEST(a_handshake_outlasts_our_own_sleep),
        BT_TEST(a_router_that_hangs_up_is_found_again),
        BT_TEST(a_socket_that_is_left_over_is_taken_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_fakes(run);
}
