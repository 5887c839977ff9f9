/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/common/link/link_side.h"

#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"

static char url[256];

/* A router and a worker that wants to join it. */
static void open_pair(side_t *router, side_t *worker, bool ipc)
{
    side_open(router, key_a, "i am the router");
    assert_int_equal(
        bt_control_listen(router->control, fresh_url(ipc), url, sizeof(url)),
        BT_OK);
    side_open(worker, key_a, "i am a worker");
    assert_int_equal(bt_control_join(worker->control, url), BT_OK);
}

static void link_up(side_t *router, side_t *worker, bool ipc)
{
    open_pair(router, worker, ipc);
    UNTIL(router, worker,
          (router->link != NULL) && (worker->link != NULL) &&
              is_settled(router->link) && is_settled(worker->link));
}

static void close_pair(side_t *router, side_t *worker)
{
    bt_control_close(worker->control);
    bt_control_close(router->control);
}

static void post_number(side_t *side, uint32_t number)
{
    assert_int_equal(bt_link_post(side->link, &number, sizeof(number)), BT_OK);
}

static void links_come_up(bool ipc)
{
    side_t router;
    side_t worker;
    int mark;

    link_up(&router, &worker, ipc);
    assert_string_equal(router.hello, "i am a worker");
    assert_string_equal(worker.hello, "i am the router");
    assert_int_not_equal(router.incarnation, worker.incarnation);
    assert_null(bt_link_user(router.link));
    bt_link_set_user(router.link, &mark);
    assert_ptr_equal(bt_link_user(router.link), &mark);

    run_for(&router, &worker, DEAD_MS + SUSPECT_MS); /* by heartbeats alone */
    assert_int_equal(router.n_up, 1);
    assert_int_equal(worker.n_up, 1);
    assert_int_equal(router.n_down + worker.n_down, 0);
    assert_int_equal(router.n_suspect + worker.n_suspect, 0);
    assert_int_equal(router.n_messages + worker.n_messages, 0);
    close_pair(&router, &worker);
}

static void links_come_up_over_tcp(void **state)
{
    (void)state;
    links_come_up(false);
}

static void links_come_up_over_ipc(void **state)
{
    (void)state;
    links_come_up(true);
}

/* A rolling upgrade: either side may be the newer one. */
static void builds_of_two_versions_link_and_speak_the_older_one(void **state)
{
    static const struct {
        bt_wire_range_t router, worker;
        uint32_t spoken;
    } cases[] = {{{4, 5}, {4, 4}, 4}, {{4, 4}, {4, 5}, 4}, {{4, 5}, {4, 5}, 5}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_control_config_t config = side_config(key_a, "r");
        side_t router = {.in_order = true};
        side_t worker = {.in_order = true};

        config.range = cases[i].router;
        assert_int_equal(bt_control_open(&config, &router.control), BT_OK);
        assert_int_equal(bt_control_listen(router.control, fresh_url(true), url,
                                           sizeof(url)),
                         BT_OK);
        config = side_config(key_a, "w");
        config.range = cases[i].worker;
        assert_int_equal(bt_control_open(&config, &worker.control), BT_OK);
        assert_int_equal(bt_control_join(worker.control, url), BT_OK);
        UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 1));
        assert_int_equal(router.link->version, cases[i].spoken);
        assert_int_equal(worker.link->version, cases[i].spoken);
        post_number(&worker, 0);
        post_number(&router, 0);
        UNTIL(&router, &worker,
              (router.n_messages == 1) && (worker.n_messages == 1));
        close_pair(&router, &worker);
    }
}

static void messages_stay_in_order_both_ways(void **state)
{
    static const bool ipc[] = {false, true};

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(ipc); k++) {
        side_t router;
        side_t worker;

        link_up(&router, &worker, ipc[k]);
        for (uint32_t i = 0; i < 10000; i++) {
            post_number(&router, i);
            post_number(&worker, i);
            if (i % 7 == 0) {
                bt_control_flush(router.control);
                bt_control_flush(worker.control);
            }
        }
        UNTIL(&router, &worker,
              (router.n_messages == 10000) && (worker.n_messages == 10000));
        assert_true(router.in_order && worker.in_order);
        assert_int_equal(router.n_down + worker.n_down, 0);
        close_pair(&router, &worker);
    }
}

static void empty_and_large_messages_pass(void **state)
{
    const size_t limit = BT_LINK_MAX_MESSAGE;
    char *large = bt_calloc(limit + 1, 1);
    side_t router;
    side_t worker;

    (void)state;
    assert_non_null(large);
    link_up(&router, &worker, false);
    assert_int_equal(bt_link_post(worker.link, large, limit + 1),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(bt_link_post(worker.link, "", 0), BT_OK);
    UNTIL(&router, &worker, router.n_messages == 1);
    assert_int_equal(router.last_bytes, 0);
    large[0] = 1; /* its number */
    assert_int_equal(bt_link_post(worker.link, large, limit), BT_OK);
    large[0] = 2;
    assert_int_equal(bt_link_post(worker.link, large, limit), BT_OK);
    post_number(&worker, 3);
    UNTIL(&router, &worker, router.n_messages == 4);
    assert_int_equal(router.most_bytes, limit);
    assert_true(router.in_order);
    close_pair(&router, &worker);
    bt_free(large);
}

/* Without an answer it gives up soon. */
static void open_brief(side_t *side, const uint8_t *key, const char *hello)
{
    bt_control_config_t config = side_config(key, hello);

    config.suspect_ms = 200;
    config.dead_ms = 500;
    memset(side, 0, sizeof(*side));
    assert_int_equal(bt_control_open(&config, &side->control), BT_OK);
}

static unsigned long n_warnings(void)
{
    return bt_log_count(BT_LOG_LEVEL_WARN) + bt_log_count(BT_LOG_LEVEL_ERROR);
}

/* However often the worker tries. */
static void another_key_gives_no_link_and_one_line_on_each_side(void **state)
{
    const unsigned long before = n_warnings();
    side_t router;
    side_t worker;

    (void)state;
    bt_test_expect_log_lines(2);
    open_brief(&router, key_a, "r");
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(false), url, sizeof(url)),
        BT_OK);
    open_brief(&worker, key_b, "w");
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    UNTIL(&router, &worker, n_warnings() == before + 2);
    run_for(&router, &worker, 2500);
    assert_int_equal(router.n_up + router.n_down, 0);
    assert_int_equal(worker.n_up + worker.n_down, 0);
    close_pair(&router, &worker);
}

static void a_worker_may_come_first_and_serve_two_routers(void **state)
{
    side_t first;
    side_t second;
    side_t worker;
    char first_url[256];

    (void)state;
    side_open(&first, key_a, "first");
    assert_int_equal(bt_control_listen(first.control, fresh_url(true),
                                       first_url, sizeof(first_url)),
                     BT_OK);
    side_open(&worker, key_a, "w");
    snprintf(url, sizeof(url), "%s", fresh_url(true));
    assert_int_equal(bt_control_join(worker.control, first_url), BT_OK);
    assert_int_equal(bt_control_join(worker.control, first_url), BT_ERR_EXISTS);
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    UNTIL(&first, &worker, (first.n_up == 1) && (worker.n_up == 1));

    side_open(&second, key_a, "second");
    assert_int_equal(bt_control_listen(second.control, url, first_url, 256),
                     BT_OK);
    UNTIL(&second, &worker, (second.n_up == 1) && (worker.n_up == 2));
    assert_string_equal(worker.hello, "second");
    bt_control_close(second.control);
    close_pair(&first, &worker);
}

/* One that is not there can be left, one whose link is up when that is down. */
static void a_router_is_left_when_its_link_is_down(void **state)
{
    side_t router;
    side_t worker;
    char bound[256];

    (void)state;
    side_open(&worker, key_a, "w");
    snprintf(url, sizeof(url), "%s", fresh_url(true));
    assert_true(bt_control_leave(worker.control, url)); /* never joined */
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    assert_true(bt_control_leave(worker.control, url));
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    side_open(&router, key_a, "router");
    assert_int_equal(
        bt_control_listen(router.control, url, bound, sizeof(bound)), BT_OK);
    UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 1));
    assert_false(bt_control_leave(worker.control, url));
    post_number(&worker, 0);
    UNTIL(&router, &worker, router.n_messages == 1);
    bt_control_close(router.control);
    for (int i = 0; (i < PATIENCE_MS) && (worker.n_down == 0); i++) {
        struct pollfd wait = {.fd = bt_control_fd(worker.control),
                              .events = POLLIN};

        (void)poll(&wait, 1, 1);
        side_turn_at(&worker, bt_now_ms());
    }
    assert_int_equal(worker.n_down, 1);
    assert_true(bt_control_leave(worker.control, url));
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    bt_control_close(worker.control);
}

/* The clock of each side is ours here: real time does not matter. */
static void silence_is_suspect_then_healthy_or_dead(void **state)
{
    side_t router;
    side_t worker;
    uint64_t now;
    unsigned was;

    (void)state;
    link_up(&router, &worker, true);
    now = bt_now_ms();
    side_turn_at(&router, now);
    was = router.n_suspect;
    while (router.n_suspect == was) { /* the worker does nothing meanwhile */
        now += 10;
        side_turn_at(&router, now);
        assert_true(now - router.link->heard_ms <= SUSPECT_MS + 10);
    }
    assert_true(now - router.link->heard_ms >= SUSPECT_MS);
    assert_int_equal(router.n_healthy, 0);

    side_turn_at(&worker, bt_now_ms() + 2 * HEARTBEAT_MS); /* its heartbeat */
    for (int i = 0; (i < PATIENCE_MS) && (router.n_healthy == 0); i++) {
        struct pollfd wait = {.fd = bt_control_fd(router.control),
                              .events = POLLIN};

        (void)poll(&wait, 1, 1);
        side_turn_at(&router, now);
    }
    assert_int_equal(router.n_healthy, 1);
    assert_int_equal(router.n_down, 0);

    while (router.n_down == 0) {
        const uint64_t heard = router.link->heard_ms;

        now += 10;
        side_turn_at(&router, now);
        assert_true((router.n_down == 0) || (now - heard >= DEAD_MS));
        assert_true(now - heard <= DEAD_MS + 10);
    }
    assert_int_equal(router.n_suspect, was + 2);
    assert_non_null(strstr(router.reason, "silent for "));
    close_pair(&router, &worker);
}

/* A process that was stopped itself must not take that for its peers' death. */
static void our_own_sleep_is_not_the_peers_silence(void **state)
{
    side_t router;
    side_t worker;
    uint64_t now;

    (void)state;
    link_up(&router, &worker, true);
    now = bt_now_ms();
    side_turn_at(&router, now);
    bt_control_tick(router.control, now + 100 * DEAD_MS);
    side_turn_at(&router, now + 100 * DEAD_MS);
    assert_int_equal(router.n_suspect + router.n_down, 0);
    close_pair(&router, &worker);
}

static void a_reason_reaches_the_other_side_and_pauses_grow(void **state)
{
    uint64_t downs[4];
    side_t router;
    side_t worker;

    (void)state;
    link_up(&router, &worker, true);
    for (unsigned i = 0; i < BT_ARRAY_LEN(downs); i++) {
        UNTIL(&router, &worker,
              (router.n_up == i + 1) && (worker.n_up == i + 1));
        bt_link_close(router.link, "model mismatch:\nabc");
        assert_int_equal(bt_link_post(router.link, "x", 1), BT_ERR_BUSY);
        UNTIL(&router, &worker,
              (router.n_down == i + 1) && (worker.n_down == i + 1));
        assert_string_equal(worker.reason, "model mismatch: abc");
        downs[i] = worker.down_ms;
    }
    /* 250, 500, 1000 ms; the worker's own clock */
    assert_true(downs[1] - downs[0] >= 250);
    assert_true(downs[2] - downs[1] >= 500);
    assert_true(downs[3] - downs[2] >= 1000);
    close_pair(&router, &worker);
}

static void what_was_posted_before_a_close_arrives(void **state)
{
    side_t router;
    side_t worker;

    (void)state;
    link_up(&router, &worker, false);
    for (uint32_t i = 0; i < 1000; i++) {
        post_number(&worker, i);
    }
    bt_control_close(worker.control); /* no flush before */
    UNTIL(&router, NULL, router.n_down == 1);
    assert_int_equal(router.n_messages, 1000);
    assert_true(router.in_order);
    assert_string_equal(router.reason, "the peer shut down");
    bt_control_close(router.control);
}

static void a_peer_that_takes_nothing_loses_its_link(void **state)
{
    const size_t bytes = 1u << 20;
    char *data = bt_calloc(bytes, 1);
    bt_status_t status = BT_OK;
    side_t router;
    side_t worker;
    unsigned n = 0;

    (void)state;
    assert_non_null(data);
    bt_test_expect_log_lines(1);
    link_up(&router, &worker, true);
    while (status == BT_OK) { /* the worker's loop is not run */
        status = bt_link_post(router.link, data, bytes);
        bt_control_flush(router.control);
        assert_true(++n < 1000);
    }
    assert_int_equal(status, BT_ERR_BUSY);
    UNTIL(&router, NULL, router.n_down == 1);
    assert_string_equal(router.reason, "the peer does not take its messages");
    close_pair(&router, &worker);
    bt_free(data);
}

/* What waits goes in frames of 512 KiB, wherever messages end; a sender that
 * waits for room is told once. */
static void a_queue_tells_its_bytes_and_when_there_is_room(void **state)
{
    enum { MESSAGES = 64, BYTES = 100000, LEFT = 1000000 };
    char *data = bt_calloc(BYTES, 1);
    size_t sent;
    side_t router;
    side_t worker;
    side_t *const only_router[] = {&router};

    (void)state;
    assert_non_null(data);
    link_up(&router, &worker, false);
    assert_int_equal(bt_link_queued(router.link), 0);
    bt_link_want_writable(router.link, 0); /* at once, and once */
    UNTIL(&router, &worker, router.n_writable > 0);
    run_for(&router, &worker, 4 * HEARTBEAT_MS);
    assert_int_equal(router.n_writable, 1);
    assert_int_equal(router.queued, 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        memcpy(data, &i, sizeof(i));
        assert_int_equal(bt_link_post(router.link, data, BYTES), BT_OK);
        assert_int_equal(bt_link_queued(router.link),
                         (i + 1) * ((size_t)BYTES + 4));
    }
    bt_link_want_writable(router.link, LEFT);
    bt_control_flush(router.control);
    do { /* a heartbeat may be on its way yet */
        sent = MESSAGES * ((size_t)BYTES + 4) - bt_link_queued(router.link);
    } while ((sent == 0) && (sides_turn(only_router, 1), true));
    /* in frames of 512 KiB, but the last */
    assert_true((sent % (512u << 10) == 0) ||
                (bt_link_queued(router.link) == 0));
    assert_true((router.n_writable == 1) || (router.queued <= LEFT));
    UNTIL(&router, &worker, worker.n_messages == MESSAGES);
    UNTIL(&router, &worker, router.n_writable == 2);
    assert_in_range(router.queued, 0, LEFT);
    assert_int_equal(bt_link_queued(router.link), 0);
    assert_true(worker.in_order);
    close_pair(&router, &worker);
    bt_free(data);
}

static void a_router_that_comes_back_gets_its_worker_back(void **state)
{
    static const bool ipc[] = {false, true};

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(ipc); k++) {
        side_t router;
        side_t worker;
        char bound[256];

        link_up(&router, &worker, ipc[k]);
        bt_control_close(router.control);
        UNTIL(&worker, NULL, worker.n_down == 1);
        side_open(&router, key_a, "the next router");
        assert_int_equal(
            bt_control_listen(router.control, url, bound, sizeof(bound)),
            BT_OK);
        assert_string_equal(bound, url);
        UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 2));
        assert_string_equal(worker.hello, "the next router");
        close_pair(&router, &worker);
    }
}

static void the_socket_of_a_router_is_private_and_removed(void **state)
{
    struct stat st;
    side_t router;
    mode_t was;

    (void)state;
    was = umask(0);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(true), url, sizeof(url)),
        BT_OK);
    umask(was);
    assert_int_equal(stat(url + 6, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    bt_control_close(router.control);
    assert_int_equal(stat(url + 6, &st), -1);
}

static void a_socket_whose_name_was_removed_is_made_again(void **state)
{
    side_t router;
    side_t worker;

    (void)state;
    bt_test_expect_log_lines(1);
    side_open(&router, key_a, "r");
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(true), url, sizeof(url)),
        BT_OK);
    assert_int_equal(unlink(url + 6), 0);
    side_open(&worker, key_a, "w");
    assert_int_equal(bt_control_join(worker.control, url), BT_OK);
    UNTIL(&router, &worker, (router.n_up == 1) && (worker.n_up == 1));
    close_pair(&router, &worker);
}

static void faulty_configurations_and_addresses_are_refused(void **state)
{
    bt_control_config_t cases[8];
    bt_control_t *control = NULL;
    side_t side;
    side_t other;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        cases[i] = side_config(key_a, "h");
    }
    cases[0].key_bytes = 15;
    cases[1].key = NULL;
    cases[2].heartbeat_ms = 0;
    cases[3].suspect_ms = HEARTBEAT_MS;
    cases[4].dead_ms = SUSPECT_MS;
    cases[5].max_queue_bytes = 0;
    cases[6].hello_bytes = BT_LINK_MAX_PAYLOAD + 1;
    cases[7].range.oldest = 3;
    bt_test_expect_log_lines(BT_ARRAY_LEN(cases) + 6);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_control_open(&cases[i], &control),
                         BT_ERR_INVALID_PARAM);
        assert_null(control);
    }
    side_open(&side, key_a, "h");
    assert_int_equal(
        bt_control_listen(side.control, "http://x:1", url, sizeof(url)),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(
        bt_control_listen(side.control, "tcp://nocolon", url, sizeof(url)),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_control_join(side.control, "/a/path"),
                     BT_ERR_INVALID_PARAM);
    /* an address of a documentation network (RFC 5737) is not ours */
    assert_int_equal(
        bt_control_listen(side.control, "tcp://192.0.2.1:0", url, sizeof(url)),
        BT_ERR_NOT_FOUND);
    assert_int_equal(bt_control_listen(side.control, "ipc:///nonexistent/dir/x",
                                       url, sizeof(url)),
                     BT_ERR_IO);
    assert_int_equal(
        bt_control_listen(side.control, "tcp://127.0.0.1:0", url, sizeof(url)),
        BT_OK);
    side_open(&other, key_a, "h"); /* the port is taken */
    assert_int_equal(bt_control_listen(other.control, url, url, sizeof(url)),
                     BT_ERR_EXISTS);
    bt_control_close(other.control);
    bt_control_close(side.control);
    bt_control_close(NULL);
}

static void urls_of_a_list_end_where_another_one_begins(void **state)
{
    static const struct {
        const char *list;
        const char *urls[4];
    } cases[] = {
        {"tcp://h:1,tcp://h:2", {"tcp://h:1", "tcp://h:2"}},
        {"ipc:///a b,c/r,ipc:///a b,c/s", {"ipc:///a b,c/r", "ipc:///a b,c/s"}},
        {",ipc:///a,,b,tcp://h:1,", {"ipc:///a,,b", "tcp://h:1"}},
        {"ipc:///a,", {"ipc:///a"}},
        {"h:1,x,ipc:///a", {"h:1", "x", "ipc:///a"}},
        {",,", {NULL}},
        {"", {NULL}},
    };
    char text[64];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        char *rest = text;

        snprintf(text, sizeof(text), "%s", cases[i].list);
        for (const char *const *want = cases[i].urls; *want != NULL; want++) {
            const char *const found = bt_control_url_take(&rest);

            assert_non_null(found);
            assert_string_equal(found, *want);
        }
        assert_null(bt_control_url_take(&rest));
    }
}

static void addresses_are_paths_without_controls_or_plain_hosts(void **state)
{
    static const char *const good[] = {"ipc:///a b", "ipc:///\xc3\xa9,%20=~",
                                       "ipc:///\xff", "tcp://h:1"};
    static const char *const bad[] = {
        "ipc://",     "ipc:///a\tb",      "ipc:///a\n", "ipc:///\x7f",
        "tcp://h :1", "tcp://\xc3\xa9:1", "udp://h:1"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        assert_true(
            bt_control_is_url((const uint8_t *)good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_false(
            bt_control_is_url((const uint8_t *)bad[i], strlen(bad[i])));
    }
}

static void memory_that_is_short_is_said_and_nothing_leaks(void **state)
{
    const bt_control_config_t config = side_config(key_a, "h");
    bt_control_t *control = NULL;
    bt_status_t status;
    unsigned failures = 0;

    (void)state;
    for (int nth = 1; control == NULL; nth++) {
        bt_alloc_fail_at(nth);
        status = bt_control_open(&config, &control);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        failures += status == BT_ERR_NO_MEMORY;
    }
    assert_int_equal(failures, 3); /* the object, its scratch, the hello */
    for (int nth = 1;; nth++) {
        bt_alloc_fail_at(nth);
        status =
            bt_control_listen(control, "tcp://127.0.0.1:0", url, sizeof(url));
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    for (int nth = 1;; nth++) {
        bt_alloc_fail_at(nth);
        status = bt_control_join(control, fresh_url(true));
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    bt_control_close(control);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(links_come_up_over_tcp),
        BT_TEST(links_come_up_over_ipc),
        BT_TEST(builds_of_two_versions_link_and_speak_the_older_one),
        BT_TEST(messages_stay_in_order_both_ways),
        BT_TEST(empty_and_large_messages_pass),
        BT_TEST(another_key_gives_no_link_and_one_line_on_each_side),
        BT_TEST(a_worker_may_come_first_and_serve_two_routers),
        BT_TEST(a_router_is_left_when_its_link_is_down),
        BT_TEST(silence_is_suspect_then_healthy_or_dead),
        BT_TEST(our_own_sleep_is_not_the_peers_silence),
        BT_TEST(a_reason_reaches_the_other_side_and_pauses_grow),
        BT_TEST(what_was_posted_before_a_close_arrives),
        BT_TEST(a_peer_that_takes_nothing_loses_its_link),
        BT_TEST(a_queue_tells_its_bytes_and_when_there_is_room),
        BT_TEST(a_router_that_comes_back_gets_its_worker_back),
        BT_TEST(the_socket_of_a_router_is_private_and_removed),
        BT_TEST(a_socket_whose_name_was_removed_is_made_again),
        BT_TEST(faulty_configurations_and_addresses_are_refused),
        BT_TEST(urls_of_a_list_end_where_another_one_begins),
        BT_TEST(addresses_are_paths_without_controls_or_plain_hosts),
        BT_TEST(memory_that_is_short_is_said_and_nothing_leaks),
    };
    int failed;

    if (test_dir_make() != 0) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove();
    return failed;
}
