/* SPDX-License-Identifier: Apache-2.0 */
/* A decode worker that computes prompts where that costs less
 * (--local-prefill auto). The prefill worker takes 1 ms for a token, a transfer
 * 1 ms; the decode worker 8 ms for a step and 1 ms more for each sequence. All
 * times by hand. */
#include "tests/unit/router/core/core_fixture.h"

#include "router/core/core_priv.h"

#define AUTO (BT_HELLO_LOCAL_PREFILL | BT_HELLO_LOCAL_WEIGHED)

static void measured(world_t *w, bt_instance_t *p, bt_instance_t *d)
{
    bt_msg_t stats = {.type = BT_MSG_STATS};

    stats.u.stats.rates.prefill_token_ns = 1000000;
    stats.u.stats.rates.transfer_start_ns = 1000000;
    say(w, p, &stats);
    memset(&stats.u.stats.rates, 0, sizeof(stats.u.stats.rates));
    stats.u.stats.rates.decode_step_ns = 8000000;
    stats.u.stats.rates.decode_seq_ns = 1000000;
    say(w, d, &stats);
}

static void start_auto(world_t *w, uint32_t flags, bt_instance_t **p_p,
                       bt_instance_t **d_p)
{
    start(w, 64);
    *p_p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, flags);
    *d_p = join_flags(w, "decode-0", BT_ROLE_DECODE, AUTO | flags);
}

static uint32_t kind_at(const world_t *w, const bt_instance_t *worker)
{
    return last(w, worker, BT_MSG_REQUEST)->msg.u.request.kind;
}

/* @return its key; where it went is checked */
static bt_req_key_t ask(world_t *w, client_t *c, const char *prompt,
                        uint32_t max_new, bt_instance_t *d, bool here)
{
    const uint32_t before = w->n_sent_so[BT_SCHED_WEIGHED_SO];

    submit(w, c, prompt, max_new, NULL);
    assert_int_equal(w->n_sent_so[BT_SCHED_WEIGHED_SO] - before, here ? 1 : 0);
    assert_int_equal(kind_at(w, d),
                     here ? BT_REQUEST_LOCAL : BT_REQUEST_GENERATE);
    return key_at(w, d);
}

/* Both phases are over, and it generates: one token of several is here. */
static void run_here(world_t *w, bt_instance_t *d, bt_req_key_t key)
{
    tokens(w, d, key, 0, "a", BT_FINISH_NONE);
    prefilled(w, d, key);
}

static void run_away(world_t *w, bt_instance_t *p, bt_instance_t *d,
                     bt_req_key_t key)
{
    grant(w, d, key);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    prefilled(w, p, key);
    joined(w, d, key, 5);
    ended(w, p, key);
}

static void give_up(world_t *w, client_t *c, bt_instance_t *p, bt_instance_t *d,
                    bt_req_key_t key)
{
    bt_core_cancel(w->core, c->gen, w->now);
    if (p != NULL) {
        ended(w, p, key);
    }
    ended(w, d, key);
}

static void prompts_are_disaggregated_before_any_measurement(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_auto(w, 0, &p, &d);
    key = ask(w, &c, "eight to", 4, d, false);
    give_up(w, &c, p, d, key);
    measured(w, p, d);
    key = ask(w, &c, "eight to", 4, d, true);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    assert_string_equal(c.gen->attempts[0].cause, "costs less");
    assert_string_equal(c.gen->attempts[0].decode, "decode-0");
    give_up(w, &c, NULL, d, key);
    end_world(w);
}

/* Idle: 8 + 1 away, 8 here. Behind that one here: 8 + 8. With one that
 * generates: 8 + a step of 9 here, and 8 that it loses, 25 in all; away 8 + 1,
 * 16 + 1, 24 + 1, 32 + 1. */
static void work_ahead_at_each_worker_decides_the_prefill_site(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key[6];
    client_t c[6];

    (void)state;
    start_auto(w, 0, &p, &d);
    measured(w, p, d);
    key[0] = ask(w, &c[0], "eight to", 9, d, true);
    key[1] = ask(w, &c[1], "eight to", 9, d, false);
    give_up(w, &c[1], p, d, key[1]);
    run_here(w, d, key[0]);
    key[1] = ask(w, &c[1], "eight to", 9, d, false);
    key[2] = ask(w, &c[2], "eight to", 9, d, false);
    key[3] = ask(w, &c[3], "eight to", 9, d, false);
    key[4] = ask(w, &c[4], "eight to", 9, d, true);
    /* A short one: 1 ms + 9 + 1 here behind those 8; away 24 + 1 + 1. */
    key[5] = ask(w, &c[5], "1", 9, d, true);
    give_up(w, &c[5], NULL, d, key[5]);
    give_up(w, &c[4], NULL, d, key[4]);
    for (int i = 1; i < 4; i++) {
        give_up(w, &c[i], p, d, key[i]);
    }
    /* As it ends the batch is empty, whatever the last STATS said. */
    give_up(w, &c[0], NULL, d, key[0]);
    key[0] = ask(w, &c[0], "eight to", 9, d, true);
    give_up(w, &c[0], NULL, d, key[0]);
    end_world(w);
}

/* Four of another router generate there: 8 + 12 here, and 32. */
static void generations_of_other_routers_count_in_the_batch(void **state)
{
    world_t *w = &world;
    bt_msg_t stats = {.type = BT_MSG_STATS};
    bt_instance_t *p, *d;
    bt_req_key_t key, own;
    client_t c, mine;

    (void)state;
    start_auto(w, 0, &p, &d);
    measured(w, p, d);
    own = ask(w, &mine, "eight to", 9, d, true);
    run_here(w, d, own);
    stats.u.stats = d->stats;
    stats.u.stats.generation_requests = 1; /* that is ours */
    say(w, d, &stats);
    assert_int_equal(d->n_others, 0);
    stats.u.stats.generation_requests = 3;
    say(w, d, &stats);
    assert_int_equal(d->n_others, 2);
    stats.u.stats.generation_requests = UINT32_MAX;
    say(w, d, &stats);
    assert_int_equal(d->n_others, 4); /* as many as it has seats */
    give_up(w, &mine, NULL, d, own);
    key = ask(w, &c, "eight to", 9, d, false);
    give_up(w, &c, p, d, key);
    stats.u.stats.generation_requests = 0;
    say(w, d, &stats);
    key = ask(w, &c, "eight to", 9, d, true);
    give_up(w, &c, NULL, d, key);
    end_world(w);
}

/* One generates here, with such a target, and three of another router: 16
 * letters are 16 + 12 here, and 64 that the four lose, 92 in all. Away it is 65
 * behind three others, and 81 behind four, four times its own. */
static void the_fifth_of_sixteen(uint32_t flags, uint32_t itl_ms, bool here)
{
    const bt_gen_spec_t spec = {.prompt = prompt_of("eight to"),
                                .max_new = 9,
                                .sampling = bt_sampling_default(),
                                .target = {.itl_ms = itl_ms}};
    world_t *w = &world;
    bt_msg_t stats = {.type = BT_MSG_STATS};
    bt_instance_t *p, *d;
    bt_req_key_t key[5], own;
    client_t c[5], first = {0};

    start_auto(w, flags, &p, &d);
    measured(w, p, d);
    assert_int_equal(submit_one(w->core, &spec, &first, w->now, &first.gen),
                     BT_OK);
    bt_prompt_unref(spec.prompt);
    own = key_at(w, d);
    run_here(w, d, own);
    stats.u.stats = d->stats;
    stats.u.stats.generation_requests = 4;
    say(w, d, &stats);
    for (int i = 0; i < 5; i++) {
        key[i] = ask(w, &c[i], "sixteen letters.", 9, d, (i == 4) && here);
    }
    for (int i = 4; i >= 0; i--) {
        give_up(w, &c[i], ((i == 4) && here) ? NULL : p, d, key[i]);
    }
    give_up(w, &first, NULL, d, own);
    end_world(w);
}

static void overdue_prompt_is_tried_at_either_site(void **state)
{
    (void)state;
    the_fifth_of_sixteen(0, 0, true);
}

static void batch_with_itl_target_keeps_its_time(void **state)
{
    (void)state;
    the_fifth_of_sixteen(0, 20, false);
}

static void static_batch_computes_no_prompts_of_others(void **state)
{
    (void)state;
    the_fifth_of_sixteen(BT_HELLO_STATIC_BATCHES, 0, false);
}

/* 33 tokens, two blocks of which came with the first answer's KV; one that
 * generates. Here 33 + 9 + 33, or 1 + 9 + 1 where 32 are there. */
static void cached_prefix_at_decode_worker_needs_no_computing(void **state)
{
    static const char text[] = "a prompt of thirty-three letters.";
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t first, key;
    client_t a, b;

    (void)state;
    assert_int_equal(strlen(text), 33);
    start_auto(w, BT_HELLO_KEEPS_PROMPTS, &p, &d);
    first = ask(w, &a, text, 9, d, false); /* nothing is measured */
    measured(w, p, d);
    run_away(w, p, d, first);
    /* The prefill worker has it as well, but from there it would travel: 1 + 1
     * away. From one that has nothing: 33. */
    key = ask(w, &b, text, 9, d, false);
    give_up(w, &b, p, d, key);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, p, "killed", w->now);
    p = join(w, "prefill-1", BT_ROLE_PREFILL);
    measured(w, p, d);
    key = ask(w, &b, text, 9, d, true);
    assert_int_equal(b.gen->legs[0].prefill_us, 1000);
    /* It has let go of it, and says so: that is no longer thought. */
    run_here(w, d, key);
    give_up(w, &b, NULL, d, key);
    assert_int_equal(d->n_forgot, 1);
    key = ask(w, &b, text, 9, d, true); /* it computed it just now */
    give_up(w, &b, NULL, d, key);
    d->n_forgot++;
    key = ask(w, &b, text, 9, d, false);
    give_up(w, &b, p, d, key);
    give_up(w, &a, NULL, d, first);
    end_world(w);
}

/* No cache there: the same, and every prompt is computed. */
static void worker_without_prefix_cache_has_no_estimate(void **state)
{
    static const char text[] = "a prompt of thirty-three letters.";
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t first, key;
    client_t a, b;

    (void)state;
    start_auto(w, 0, &p, &d);
    first = ask(w, &a, text, 9, d, false);
    measured(w, p, d);
    run_away(w, p, d, first);
    key = ask(w, &b, text, 9, d, false);
    give_up(w, &b, p, d, key);
    give_up(w, &a, NULL, d, first);
    end_world(w);
}

/* Without a prefill worker the decode worker has it all, as a re-run too; one
 * that failed there is not sent there by choice. */
static void lost_worker_is_replaced_by_local_prefill(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_auto(w, 0, &p, &d);
    measured(w, p, d);
    key = ask(w, &c, "eight to", 3, d, true);
    failed(w, d, key, BT_ERR_BUSY, "no");
    assert_int_equal(kind_at(w, d), BT_REQUEST_GENERATE);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    ended(w, d, key);
    key = key_at(w, d);
    assert_int_equal(key.attempt, 2);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, p, "killed", w->now);
    assert_int_equal(kind_at(w, d), BT_REQUEST_LOCAL);
    assert_int_equal(w->n_sent_so[BT_SCHED_NO_PREFILL], 1);
    ended(w, d, key);
    key = key_at(w, d);
    assert_int_equal(key.attempt, 3);
    tokens(w, d, key, 0, "abc", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abc");
    prefilled(w, d, key);
    ended(w, d, key);
    end_world(w);
}

/* A prefill worker that is full is waited for where the batch would lose more;
 * an empty batch loses nothing. */
static void full_prefill_worker_is_compared_too(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t own, key;
    client_t mine, c;

    (void)state;
    start_auto(w, 0, &p, &d);
    measured(w, p, d);
    bt_core_worker_behind(w->core, p, true, w->now);
    own = ask(w, &mine, "eight to", 9, d, true);
    run_here(w, d, own);
    submit(w, &c, "eight to", 9, NULL);
    assert_int_equal(n_waiting(w), 1);
    bt_core_worker_behind(w->core, p, false, w->now);
    assert_int_equal(n_waiting(w), 0);
    key = key_at(w, d);
    assert_int_equal(kind_at(w, d), BT_REQUEST_GENERATE);
    give_up(w, &c, p, d, key);
    give_up(w, &mine, NULL, d, own);
    end_world(w);
}

/* Nothing of it travels: 8 either way; behind 8 others, 16 and 8. */
static void one_token_request_is_compared_without_transfer(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t a_key, b_key;
    client_t a, b;

    (void)state;
    start_auto(w, 0, &p, &d);
    measured(w, p, d);
    submit(w, &a, "eight to", 1, NULL);
    assert_int_equal(w->n_sent_so[BT_SCHED_ONE_TOKEN], 1);
    a_key = key_at(w, p);
    b_key = ask(w, &b, "eight to", 1, d, true);
    give_up(w, &b, NULL, d, b_key);
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, a_key);
    end_world(w);
}

/* It is a prefill worker as well then, and the usual rules are for it. */
static void worker_of_both_roles_compares_nothing(void **state)
{
    bt_msg_t stats = {.type = BT_MSG_STATS};
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    start_auto(w, 0, &p, &d);
    assert_true((d->sched.roles & BT_SCHED_WEIGHED) != 0);
    assert_true((p->sched.roles & BT_SCHED_WEIGHED) == 0);
    stats.u.stats.roles = BT_ROLES_BOTH;
    say(w, d, &stats);
    assert_true((d->sched.roles & BT_SCHED_WEIGHED) == 0);
    assert_true((d->sched.roles & BT_SCHED_LOCAL) != 0);
    stats.u.stats.roles = BT_ROLE_DECODE;
    say(w, d, &stats);
    assert_true((d->sched.roles & BT_SCHED_WEIGHED) != 0);
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prompts_are_disaggregated_before_any_measurement),
        BT_TEST(work_ahead_at_each_worker_decides_the_prefill_site),
        BT_TEST(generations_of_other_routers_count_in_the_batch),
        BT_TEST(overdue_prompt_is_tried_at_either_site),
        BT_TEST(batch_with_itl_target_keeps_its_time),
        BT_TEST(static_batch_computes_no_prompts_of_others),
        BT_TEST(cached_prefix_at_decode_worker_needs_no_computing),
        BT_TEST(worker_without_prefix_cache_has_no_estimate),
        BT_TEST(lost_worker_is_replaced_by_local_prefill),
        BT_TEST(full_prefill_worker_is_compared_too),
        BT_TEST(one_token_request_is_compared_without_transfer),
        BT_TEST(worker_of_both_roles_compares_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
