/* SPDX-License-Identifier: Apache-2.0 */
/* Where and when a request is run again. */
#include "tests/unit/router/core/core_fixture.h"

/* Of a killed decode worker the prefill worker may know first. */
static void peer_reported_lost_is_not_retried_at_once(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
    failed(w, p, key, BT_ERR_PEER_LOST, "transfer: peer lost");
    ended(w, p, key);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    bt_core_tick(w->core, w->now + 100 * MS);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "connection lost", w->now);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    key = key_at(w, d2);
    assert_int_equal(key.attempt, 2);
    assert_int_equal(key_at(w, p).attempt, 2);

    /* It is there all the same, and alone: tried again after a while. */
    failed(w, p, key, BT_ERR_PEER_LOST, "transfer: peer lost");
    ended(w, p, key);
    ended(w, d2, key);
    w->now += (BT_CORE_HOLD_MS - 4) * MS; /* 2 ms passed with the two ends */
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    w->now += 4 * MS;
    bt_core_tick(w->core, w->now);
    key = key_at(w, d2);
    assert_int_equal(key.attempt, 3);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, p, key);
    ended(w, d2, key);
    end_world(w);
}

/* A pair with three requests: idle workers that come are chosen before it. */
static void start_busy_pair(world_t *w, const char *prefill,
                            bt_instance_t **p_p, bt_instance_t **d_p)
{
    static client_t others[3];

    start(w, 10);
    *p_p = join(w, prefill, BT_ROLE_PREFILL);
    *d_p = join(w, "decode-1", BT_ROLE_DECODE);
    for (unsigned i = 0; i < BT_ARRAY_LEN(others); i++) {
        submit(w, &others[i], "The", 8, NULL);
    }
}

static void retry_avoids_the_worker_at_fault(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c, other;

    (void)state;
    start_busy_pair(w, "prefill-0", &p, &d2);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    failed(w, d, key, BT_ERR_CORRUPT, "checksum of extent 3");
    assert_int_equal(key_at(w, d2).id, key.id);
    assert_int_equal(key_at(w, d2).attempt, 2);
    ended(w, d, key);
    ended(w, p, key);
    submit(w, &other, "The", 8, NULL); /* another is welcome there */
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);
    bt_core_destroy(w->core);
}

/* A prefill worker whose own network is broken calls everybody lost. */
static void retry_avoids_both_workers_of_a_broken_pair(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *p2, *d, *d2;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_busy_pair(w, "prefill-1", &p2, &d2);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, p);
    assert_int_equal(key_at(w, d).id, key.id);
    failed(w, p, key, BT_ERR_PEER_LOST, "transfer: peer lost");
    ended(w, p, key);
    ended(w, d, key);
    assert_int_equal(key_at(w, p2).id, key.id); /* and at once */
    assert_int_equal(key_at(w, p2).attempt, 2);
    assert_int_equal(key_at(w, d2).id, key.id);
    bt_core_destroy(w->core);
}

/* Idle workers take turns: the second prefill worker is next, whatever a
 * request that waits would like. */
static void request_on_hold_takes_no_turn_of_others(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *p2, *d;
    bt_req_key_t key;
    client_t c, other;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
    p2 = join(w, "prefill-1", BT_ROLE_PREFILL);
    failed(w, p, key, BT_ERR_PEER_LOST, "transfer: peer lost");
    ended(w, p, key);
    ended(w, d, key);
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, p2, BT_MSG_REQUEST), 0); /* on hold */
    submit(w, &other, "The", 8, NULL); /* nor waits it for a tick */
    assert_int_equal(count(w, p2, BT_MSG_REQUEST), 1);
    bt_core_destroy(w->core);
}

static void pass(world_t *w, unsigned ms)
{
    for (unsigned i = 0; i < ms / 50; i++) {
        w->now += 50 * MS;
        bt_core_tick(w->core, w->now);
    }
}

static void says(world_t *w, bt_instance_t *worker, uint64_t still_ms)
{
    const bt_msg_t msg = {.type = BT_MSG_STATS,
                          .u.stats = {.max_requests = 8,
                                      .blocks_max = 100,
                                      .still_ms = still_ms}};

    assert_int_equal(bt_core_message(w->core, worker, &msg, w->now), BT_OK);
}

/* As one that is silent, and it takes both to be well again. */
static void stalled_worker_is_avoided(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    start_pair(w, &p, &d);
    bt_test_expect_log_lines(2);
    says(w, d, STILL_MS - 1);
    assert_int_equal(d->sched.health, BT_SCHED_UP);
    says(w, d, STILL_MS);
    submit(w, &c, "The", 8, NULL);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    bt_core_worker_suspect(w->core, d, true, w->now);
    says(w, d, 0);
    assert_int_equal(d->sched.health, BT_SCHED_SUSPECT);
    bt_core_worker_suspect(w->core, d, false, w->now);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    says(w, p, STILL_MS);
    bt_core_worker_suspect(w->core, p, true, w->now);
    bt_core_worker_suspect(w->core, p, false, w->now);
    assert_int_equal(p->sched.health, BT_SCHED_SUSPECT);
    bt_core_destroy(w->core);
}

/* It gets a core, if late: it keeps what it has, and gets nothing new where
 * others can take it. */
static void starved_worker_keeps_its_requests_and_gets_none(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c, c2;

    (void)state;
    start_pair(w, &p, &d);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    bt_test_expect_log_lines(
        1); /* the first silence; why it is is no trouble */
    bt_core_worker_suspect(w->core, d, true, w->now);
    assert_false(d->is_starved);
    bt_core_worker_starved(w->core, d, w->now);
    assert_true(d->is_starved);
    assert_int_equal(d->sched.health, BT_SCHED_SUSPECT);
    pass(w, 2 * WAIT_MS);
    assert_int_equal(c.n_ends, 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);

    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    submit(w, &c2, "The", 8, NULL);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    bt_core_worker_suspect(w->core, d, false, w->now);
    assert_false(d->is_starved);
    assert_int_equal(d->sched.health, BT_SCHED_UP);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, d, key);
    ended(w, p, key);
    bt_core_destroy(w->core);
}

static void silent_worker_gets_no_attempt(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c, c2;

    (void)state;
    start_pair(w, &p, &d);
    bt_test_expect_log_lines(4); /* two silences, two losses */
    bt_core_worker_suspect(w->core, d, true, w->now);
    submit(w, &c, "The", 8, NULL);
    pass(w, 2 * WAIT_MS);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    assert_int_equal(c.n_ends, 0);
    bt_core_worker_suspect(w->core, d, false, w->now);
    key = key_at(w, d);
    assert_int_equal(key.attempt, 1);

    /* The same for a re-run, whose time begins when the last hope is gone. */
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    bt_core_worker_suspect(w->core, d2, true, w->now);
    bt_core_worker_down(w->core, d, "killed", w->now);
    pass(w, 2 * WAIT_MS);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 0);
    submit(w, &c2, "The", 8, NULL);
    bt_core_worker_down(w->core, d2, "silent", w->now);
    pass(w, WAIT_MS - 50);
    assert_int_equal(c.n_ends, 0);
    pass(w, 50);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_int_equal(c2.n_ends, 1); /* that has just come waits no longer */
    assert_int_equal(c2.http_status, 503);
    ended(w, p, key);
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(peer_reported_lost_is_not_retried_at_once),
        BT_TEST(retry_avoids_the_worker_at_fault),
        BT_TEST(retry_avoids_both_workers_of_a_broken_pair),
        BT_TEST(request_on_hold_takes_no_turn_of_others),
        BT_TEST(stalled_worker_is_avoided),
        BT_TEST(silent_worker_gets_no_attempt),
        BT_TEST(starved_worker_keeps_its_requests_and_gets_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
