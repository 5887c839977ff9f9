/* SPDX-License-Identifier: Apache-2.0 */
/* KV links: which pairs requests are given to, and what a model's readiness
 * waits for. */
#include "router/core/kv_links.h"
#include "tests/unit/router/core/core_fixture.h"

static bt_instance_t *join_telling(world_t *w, const char *name)
{
    return join_flags(w, name, BT_ROLE_PREFILL, BT_HELLO_KV_LINKS);
}

static void tell(world_t *w, bt_instance_t *prefill,
                 const bt_instance_t *decode, bt_kv_link_state_t state,
                 const char *why)
{
    bt_msg_t msg = {.type = BT_MSG_KV_LINK,
                    .u.kv_link = {.instance = decode->hello.instance,
                                  .state = (uint32_t)state}};

    if (state == BT_KV_LINK_FAILED) {
        snprintf(msg.u.kv_link.at, sizeof(msg.u.kv_link.at),
                 "10.0.0.2:7 on e0");
        snprintf(msg.u.kv_link.why, sizeof(msg.u.kv_link.why), "%s", why);
    }
    say(w, prefill, &msg);
}

static void proven(world_t *w, bt_instance_t *prefill,
                   const bt_instance_t *decode)
{
    tell(w, prefill, decode, BT_KV_LINK_PROVEN, NULL);
}

static void cut(world_t *w, bt_instance_t *prefill, const bt_instance_t *decode)
{
    tell(w, prefill, decode, BT_KV_LINK_FAILED, "no answer");
}

static bool is_ready(const world_t *w)
{
    return bt_table_ready(bt_core_table(w->core));
}

static unsigned n_requests(const world_t *w, const bt_instance_t *worker)
{
    return count(w, worker, BT_MSG_REQUEST);
}

static void request_waits_for_a_proven_kv_link(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, one;

    (void)state;
    start(w, 10);
    p = join_telling(w, "prefill-0");
    d = join(w, "decode-0", BT_ROLE_DECODE);
    assert_false(is_ready(w));
    submit(w, &a, "A", 8, NULL);
    assert_int_equal(n_requests(w, p) + n_requests(w, d), 0);
    submit(w, &one, "B", 1, NULL); /* no KV has to go anywhere */
    assert_int_equal(n_requests(w, p), 1);
    proven(w, p, d);
    assert_true(is_ready(w));
    assert_int_equal(n_requests(w, p), 2);
    assert_int_equal(n_requests(w, d), 1);
    bt_core_destroy(w->core);
}

static void request_without_kv_link_fails_naming_the_workers(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    char text[BT_CUT_TEXT];
    client_t a;

    (void)state;
    bt_test_expect_log_lines(1);
    start(w, 10);
    p = join_telling(w, "prefill-0");
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &a, "A", 8, NULL);
    cut(w, p, d);
    tell(w, p, d, BT_KV_LINK_FAILED, "no answer"); /* no news, no line */
    bt_cut_print(bt_kv_links_first_cut(bt_core_table(w->core)), text);
    assert_string_equal(
        text, "prefill-0 cannot reach decode-0 at 10.0.0.2:7 on e0: no answer");
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    assert_string_equal(a.message, "no prefill and decode worker came within "
                                   "3000 ms; prefill-0 cannot reach decode-0: "
                                   "no answer");
    bt_core_destroy(w->core);
}

static void pair_is_avoided_when_its_kv_link_fails(void **state)
{
    world_t *w = &world;
    bt_instance_t *p0, *p1, *d;
    bt_req_key_t key;
    client_t a, b;

    (void)state;
    bt_test_expect_log_lines(2);
    start(w, 10);
    p0 = join_telling(w, "prefill-0");
    p1 = join_telling(w, "prefill-1");
    d = join(w, "decode-0", BT_ROLE_DECODE);
    proven(w, p0, d);
    assert_true(is_ready(w));
    submit(w, &a, "A", 8, NULL);
    assert_int_equal(n_requests(w, p0), 1);
    proven(w, p1, d);

    /* First the link, then the requests that it fails: they run again, at the
     * one that reaches. */
    cut(w, p0, d);
    key = key_at(w, p0);
    failed(w, p0, key, BT_ERR_PEER_LOST, "the decode worker is gone");
    ended(w, p0, key);
    ended(w, d, key);
    w->now += BT_CORE_HOLD_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(n_requests(w, p0), 1);
    assert_int_equal(n_requests(w, p1), 1);
    assert_true(is_ready(w));
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(n_requests(w, p0), 1);
    assert_int_equal(n_requests(w, p1), 2);
    cut(w, p1, d);
    assert_false(is_ready(w));
    proven(w, p0, d);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);
}

/* A prefill worker reports the loss of its peer long before the peer's own
 * connection to the router ends: on a machine with too much to do. */
static void retry_wait_begins_when_the_worker_is_known_lost(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t a;

    (void)state;
    bt_test_expect_log_lines(3);
    start(w, 10);
    p = join_telling(w, "prefill-0");
    d = join(w, "decode-0", BT_ROLE_DECODE);
    proven(w, p, d);
    submit(w, &a, "A", 8, NULL);
    key = key_at(w, p);
    cut(w, p, d);
    failed(w, p, key, BT_ERR_PEER_LOST, "peer lost");
    ended(w, p, key);
    w->now += (WAIT_MS - 100) * MS;
    bt_core_tick(w->core, w->now);
    bt_core_worker_suspect(w->core, d, true, w->now);
    for (uint32_t i = 0; i < 10; i++) {
        w->now += WAIT_MS / 2 * MS;
        bt_core_tick(w->core, w->now);
    }
    assert_int_equal(a.n_ends, 0);
    bt_core_worker_down(w->core, d, "connection lost", w->now);
    w->now += (WAIT_MS - 1) * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 0);
    w->now += 1 * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    bt_core_destroy(w->core);
}

static void readiness_waits_for_each_earlier_decode_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d0, *d1, *d2;

    (void)state;
    bt_test_expect_log_lines(3);
    start(w, 10);
    d0 = join(w, "decode-0", BT_ROLE_DECODE);
    p = join_telling(w, "prefill-0");
    d1 = join(w, "decode-1", BT_ROLE_DECODE);
    proven(w, p, d0);
    assert_false(is_ready(w)); /* decode-1 has none yet */
    proven(w, p, d1);
    assert_true(is_ready(w));

    /* What is ready stays so: one that comes later is not waited for, nor one
     * whose link is lost, while another pair can be used. */
    d2 = join(w, "decode-2", BT_ROLE_DECODE);
    assert_true(is_ready(w));
    cut(w, p, d2);
    cut(w, p, d1);
    assert_true(is_ready(w));
    cut(w, p, d0);
    assert_false(is_ready(w));
    proven(w, p, d2);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);
}

static void readiness_ignores_unneeded_kv_links(void **state)
{
    world_t *w = &world;
    const bt_msg_t drain = {.type = BT_MSG_DRAIN};
    bt_instance_t *p, *d;

    (void)state;
    start(w, 10); /* it prefills itself */
    (void)join_telling(w, "prefill-0");
    (void)join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);

    start(w, 10); /* there is no prefill worker */
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    assert_false(is_ready(w));
    (void)join_flags(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);

    start(w, 10); /* an older build's does not tell */
    (void)join(w, "prefill-0", BT_ROLE_PREFILL);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);

    start(w, 10); /* one that is on its way out */
    p = join_telling(w, "prefill-0");
    d = join(w, "decode-0", BT_ROLE_DECODE);
    say(w, d, &drain);
    d = join(w, "decode-1", BT_ROLE_DECODE);
    proven(w, p, d);
    assert_true(is_ready(w));
    bt_core_destroy(w->core);
}

static void lost_worker_takes_its_kv_links_along(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d0, *d1;
    bt_table_t *table;
    client_t a;

    (void)state;
    bt_test_expect_log_lines(3);
    start(w, 10);
    table = bt_core_table(w->core);
    p = join_telling(w, "prefill-0");
    d0 = join(w, "decode-0", BT_ROLE_DECODE);
    proven(w, p, d0);
    bt_core_worker_down(w->core, d0, "killed", w->now);
    d1 =
        join(w, "decode-1", BT_ROLE_DECODE); /* in its place, with its number */
    assert_int_equal(d1->sched.number, 1);
    submit(w, &a, "A", 8, NULL);
    assert_int_equal(n_requests(w, p), 0);
    cut(w, p, d1);
    assert_int_equal(bt_kv_links_count(table).n_failed, 1);
    bt_core_worker_down(w->core, d1, "killed", w->now);
    assert_null(bt_kv_links_first_cut(table));
    assert_int_equal(bt_kv_links_count(table).n_failed, 0);
    bt_core_destroy(w->core);
}

static void kv_links_are_counted_and_first_failures_named(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *all[BT_TABLE_MAX_CUTS + 3];
    bt_kv_link_counts_t counts;
    char name[32];

    (void)state;
    start(w, 10);
    p = join_telling(w, "prefill-0");
    for (uint32_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        snprintf(name, sizeof(name), "decode-%u", i);
        all[i] = join(w, name, BT_ROLE_DECODE);
    }
    bt_test_expect_log_lines(BT_TABLE_MAX_CUTS);
    for (uint32_t i = 0; i + 1 < BT_ARRAY_LEN(all); i++) {
        tell(w, p, all[i], BT_KV_LINK_FAILED, "no answer");
    }
    counts = bt_kv_links_count(bt_core_table(w->core));
    assert_int_equal(counts.n_failed, BT_TABLE_MAX_CUTS + 2);
    assert_int_equal(counts.n_unproven, 1);
    assert_int_equal(bt_core_table(w->core)->n_cuts, BT_TABLE_MAX_CUTS);
    proven(w, p, all[0]);
    counts = bt_kv_links_count(bt_core_table(w->core));
    assert_int_equal(counts.n_proven, 1);
    assert_int_equal(counts.n_failed, BT_TABLE_MAX_CUTS + 1);
    assert_int_equal(bt_core_table(w->core)->n_cuts, BT_TABLE_MAX_CUTS - 1);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_waits_for_a_proven_kv_link),
        BT_TEST(request_without_kv_link_fails_naming_the_workers),
        BT_TEST(pair_is_avoided_when_its_kv_link_fails),
        BT_TEST(retry_wait_begins_when_the_worker_is_known_lost),
        BT_TEST(readiness_waits_for_each_earlier_decode_worker),
        BT_TEST(readiness_ignores_unneeded_kv_links),
        BT_TEST(lost_worker_takes_its_kv_links_along),
        BT_TEST(kv_links_are_counted_and_first_failures_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
