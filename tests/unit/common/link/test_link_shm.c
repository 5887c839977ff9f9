/* SPDX-License-Identifier: Apache-2.0 */
/* Links whose messages go through shared memory: how they change over, and what
 * an end that lies or dies does to the other one. */
#include "tests/unit/common/link/link_side.h"

#include "common/base/process.h"
#include "common/base/status.h"

static char url[256];

static void open_ends(side_t *router, bool router_shares, side_t *worker,
                      bool worker_shares)
{
    bt_control_config_t config = side_config(key_a, "i am the router");

    memset(router, 0, sizeof(*router));
    memset(worker, 0, sizeof(*worker));
    router->in_order = worker->in_order = true;
    config.share_memory = router_shares;
    assert_int_equal(bt_control_open(&config, &router->control), BT_OK);
    assert_int_equal(
        bt_control_listen(router->control, fresh_url(true), url, sizeof(url)),
        BT_OK);
    config = side_config(key_a, "i am a worker");
    config.share_memory = worker_shares;
    assert_int_equal(bt_control_open(&config, &worker->control), BT_OK);
    assert_int_equal(bt_control_join(worker->control, url), BT_OK);
    UNTIL(router, worker, (router->link != NULL) && (worker->link != NULL));
}

static void close_ends(side_t *router, side_t *worker)
{
    bt_control_close(worker->control);
    bt_control_close(router->control);
}

static bool shares(const side_t *side)
{
    return side->link->shm.state == LINK_SHM_OPEN;
}

static void share(side_t *router, side_t *worker)
{
    open_ends(router, true, worker, true);
    UNTIL(router, worker, shares(router) && shares(worker));
}

/* Into the memory, as if the end at @a side had; the other one is woken. */
static void smuggle(side_t *side, const void *data, size_t bytes)
{
    link_shm_t *shm = &side->link->shm;
    size_t n = 0;

    assert_int_equal(bt_shm_ring_write(&shm->out, data, bytes, &n), BT_OK);
    assert_int_equal(n, bytes);
    bt_shm_ring(shm->segment.bells[(side->link->join != NULL) ? 0 : 1]);
}

static void say(side_t *side, link_kind_t kind, const void *body, size_t bytes)
{
    bt_link_send_own(side->link,
                     bt_link_seal(side->link, kind, NULL, 0, body, bytes));
}

/* It ends the link for @a reason, at the side that looks. */
static void expect_end(side_t *looks, side_t *other, const char *reason)
{
    UNTIL(looks, other, looks->n_down == 1);
    assert_string_equal(looks->reason, reason);
}

static void messages_keep_their_order_while_the_way_changes(void **state)
{
    side_t router, worker;
    uint32_t sent = 0;

    (void)state;
    open_ends(&router, true, &worker, true);
    while (!shares(&router) || !shares(&worker) || (sent < 5000)) {
        side_t *const sides[] = {&router, &worker};

        for (int i = 0; i < 3; i++, sent++) {
            assert_int_equal(bt_link_post(router.link, &sent, sizeof(sent)),
                             BT_OK);
            assert_int_equal(bt_link_post(worker.link, &sent, sizeof(sent)),
                             BT_OK);
        }
        sides_turn(sides, 2);
    }
    UNTIL(&router, &worker,
          (router.n_messages == sent) && (worker.n_messages == sent));
    assert_true(router.in_order && worker.in_order);
    assert_int_equal(router.n_down + worker.n_down, 0);
    close_ends(&router, &worker);
}

/* Longer than the memory, both ways at once. */
static void long_messages_pass_in_pieces(void **state)
{
    const size_t bytes = 10 * BT_SHM_RING_BYTES + 77;
    uint8_t *message = calloc(1, bytes);
    side_t router, worker;

    (void)state;
    share(&router, &worker);
    for (uint32_t i = 0; i < 3; i++) {
        memcpy(message, &i, sizeof(i));
        assert_int_equal(bt_link_post(router.link, message, bytes), BT_OK);
        assert_int_equal(bt_link_post(worker.link, message, bytes), BT_OK);
    }
    UNTIL(&router, &worker,
          (router.n_messages == 3) && (worker.n_messages == 3));
    assert_int_equal(router.last_bytes, bytes);
    assert_int_equal(worker.last_bytes, bytes);
    assert_true(router.in_order && worker.in_order);
    free(message);
    close_ends(&router, &worker);
}

/* One bell says both that something came and that there is room. It rings for
 * room after our last attempt to write, and we silence it because nothing
 * came. */
static void room_that_comes_while_nothing_else_does_is_used(void **state)
{
    const size_t bytes = 3 * BT_SHM_RING_BYTES;
    uint8_t *message = calloc(1, bytes);
    side_t router, worker;
    link_shm_t *in;
    size_t n = 0;

    (void)state;
    share(&router, &worker);
    in = &worker.link->shm;
    assert_int_equal(bt_link_post(router.link, message, bytes), BT_OK);
    bt_control_flush(
        router.control); /* the ring is full, and the writer waits */
    assert_int_equal(
        bt_shm_ring_read(&in->in, message, BT_SHM_RING_BYTES / 2, &n), BT_OK);
    assert_int_equal(n, BT_SHM_RING_BYTES / 2);
    assert_true(bt_shm_ring_wakes_writer(&in->in));
    bt_shm_ring(in->segment.bells[0]);
    router.link->shm.bell_rings =
        true; /* for something that was read already */
    assert_false(bt_link_shm_read(router.link));
    assert_int_equal(bt_shm_ring_read(&in->in, message, bytes, &n), BT_OK);
    assert_int_equal(n, BT_SHM_RING_BYTES);
    free(message);
    close_ends(&router, &worker);
}

static void an_end_that_does_not_share_is_served_without(void **state)
{
    static const bool router_shares[] = {true, false};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const uint32_t number = 0;
        side_t router, worker;

        open_ends(&router, router_shares[i], &worker, !router_shares[i]);
        assert_int_equal(bt_link_post(router.link, &number, 4), BT_OK);
        assert_int_equal(bt_link_post(worker.link, &number, 4), BT_OK);
        UNTIL(&router, &worker,
              (router.n_messages == 1) && (worker.n_messages == 1));
        /* what was held for it is given back */
        UNTIL(&router, &worker,
              (router.link->shm.socket < 0) &&
                  (router.link->shm.segment.memory == NULL));
        assert_false(shares(&router) || shares(&worker));
        close_ends(&router, &worker);
    }
}

static void nothing_of_it_is_left_behind(void **state)
{
    enum { ROUNDS = 10 };
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;
    side_t router, worker;
    uint32_t before;

    (void)state;
    share(&router, &worker); /* nng's own descriptors are there from here on */
    close_ends(&router, &worker);
    before = bt_count_open_fds();
    for (int i = 0; i < ROUNDS; i++) {
        share(&router, &worker);
        close_ends(&router, &worker);
    }
    /* nng closes its own later; one of ours a round would be more. */
    while (bt_count_open_fds() > before + ROUNDS / 2) {
        assert_true(bt_now_ms() < end_ms);
    }
}

static void positions_that_lie_end_the_link(void **state)
{
    side_t router, worker;

    (void)state;
    share(&router, &worker);
    atomic_store(&worker.link->shm.out.memory->head, UINT64_MAX / 3);
    bt_shm_ring(worker.link->shm.segment.bells[0]);
    expect_end(&router, &worker, "its shared memory makes no sense");
    close_ends(&router, &worker);

    share(&router, &worker);
    atomic_store(&router.link->shm.in.memory->tail, UINT64_MAX / 3);
    assert_int_equal(bt_link_post(worker.link, "\0\0\0", 4), BT_OK);
    expect_end(&worker, &router, "its shared memory makes no sense");
    close_ends(&router, &worker);
}

static void lengths_that_lie_end_the_link(void **state)
{
    static const uint8_t length[] = {0xff, 0xff, 0xff, 0x7f};
    side_t router, worker;

    (void)state;
    share(&router, &worker);
    smuggle(&worker, length, sizeof(length));
    expect_end(&router, &worker, "malformed frame");
    close_ends(&router, &worker);
}

static void frames_out_of_place_end_the_link(void **state)
{
    static const uint8_t secret[BT_SHM_SECRET_BYTES];
    static const struct {
        link_kind_t kind;
        size_t bytes;
        bool of_router, shared;
    } cases[] = {
        {LINK_FRAME_RING, 0, false, true},
        {LINK_FRAME_RING, 0, true, true},
        {LINK_FRAME_GIVEN, 16, false, true},
        {LINK_FRAME_GIVEN, 16, true, true},
        {LINK_FRAME_OFFER, 6, false, true},
        {LINK_FRAME_OFFER, 6, true, true},
        {LINK_FRAME_DATA, 6, false, true},
        {LINK_FRAME_DATA, 6, true, true},
        {LINK_FRAME_RING, 0, false, false},
        {LINK_FRAME_RING, 0, true, false},
        {LINK_FRAME_GIVEN, 16, false, false},
        {LINK_FRAME_GIVEN, 16, true, false},
        {LINK_FRAME_OFFER, 6, false, false},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        side_t router, worker;
        side_t *const says = cases[i].of_router ? &router : &worker;
        side_t *const looks = cases[i].of_router ? &worker : &router;

        if (cases[i].shared) {
            share(&router, &worker);
        } else {
            open_ends(&router, false, &worker, false);
        }
        say(says, cases[i].kind, secret, cases[i].bytes);
        expect_end(looks, says, "malformed frame");
        close_ends(&router, &worker);
    }
}

/* The memory is not the worker's before it names what stands in it. */
static void a_wrong_secret_ends_the_link(void **state)
{
    static const uint8_t wrong[BT_SHM_SECRET_BYTES] = {1};
    side_t router, worker;

    (void)state;
    open_ends(&router, true, &worker, false);
    say(&worker, LINK_FRAME_GIVEN, wrong, sizeof(wrong));
    expect_end(&router, &worker, "malformed frame");
    close_ends(&router, &worker);
}

/* All that was whole is told, and nothing of the rest. */
static void an_end_that_dies_in_the_middle_of_a_message(void **state)
{
    static const uint8_t half[] = {8, 0, 0, 0, 2, 0, 0};
    side_t router, worker;
    uint32_t number;

    (void)state;
    share(&router, &worker);
    for (number = 0; number < 2; number++) {
        assert_int_equal(bt_link_post(worker.link, &number, 4), BT_OK);
    }
    bt_control_flush(worker.control);
    smuggle(&worker, half, sizeof(half));
    bt_control_close(worker.control);
    UNTIL(&router, NULL, router.n_down == 1);
    assert_int_equal(router.n_messages, 2);
    assert_true(router.in_order);
    assert_string_equal(router.reason, "the peer shut down");
    bt_control_close(router.control);
}

/* What an end that said good-bye still writes is not read for ever. */
static void last_words_are_no_longer_than_the_memory(void **state)
{
    uint8_t *zeros = calloc(1, BT_SHM_RING_BYTES); /* messages of no bytes */
    side_t router, worker;
    uint32_t most;

    (void)state;
    share(&router, &worker);
    smuggle(&worker, zeros, BT_SHM_RING_BYTES);
    say(&worker, LINK_FRAME_BYE, "enough", 6);
    UNTIL(&router, &worker,
          (router.n_down == 1) ||
              (router.link->shm.state == LINK_SHM_DRAINING));
    while (router.n_down == 0) {
        side_t *const sides[] = {&router};
        size_t n = 0;

        if (worker.link != NULL) {
            (void)!bt_shm_ring_write(&worker.link->shm.out, zeros, 40000, &n);
        }
        sides_turn(sides, 1);
    }
    most = 2 * BT_SHM_RING_BYTES / LINK_LENGTH_BYTES;
    assert_true(router.n_messages <= most);
    assert_string_equal(router.reason, "enough");
    free(zeros);
    close_ends(&router, &worker);
}

/* Who rings for nothing wakes us, and that is all. */
static void rings_for_nothing_fall_silent(void **state)
{
    struct pollfd wait = {.events = POLLIN};
    side_t router, worker;
    bt_link_event_t event;

    (void)state;
    share(&router, &worker);
    run_for(&router, &worker, HEARTBEAT_MS);
    for (int i = 0; i < 3; i++) {
        const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

        bt_shm_ring(worker.link->shm.segment.bells[0]);
        do { /* frames of the worker may be on their way still */
            assert_true(bt_now_ms() < end_ms);
            assert_false(bt_control_next(router.control, bt_now_ms(), &event));
            wait.fd = bt_control_fd(router.control);
        } while (poll(&wait, 1, 0) != 0);
    }
    close_ends(&router, &worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(messages_keep_their_order_while_the_way_changes),
        BT_TEST(long_messages_pass_in_pieces),
        BT_TEST(room_that_comes_while_nothing_else_does_is_used),
        BT_TEST(an_end_that_does_not_share_is_served_without),
        BT_TEST(nothing_of_it_is_left_behind),
        BT_TEST(positions_that_lie_end_the_link),
        BT_TEST(lengths_that_lie_end_the_link),
        BT_TEST(frames_out_of_place_end_the_link),
        BT_TEST(a_wrong_secret_ends_the_link),
        BT_TEST(an_end_that_dies_in_the_middle_of_a_message),
        BT_TEST(last_words_are_no_longer_than_the_memory),
        BT_TEST(rings_for_nothing_fall_silent),
    };
    int failed;

    if (test_dir_make() != 0) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove();
    return failed;
}
