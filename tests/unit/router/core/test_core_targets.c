/* SPDX-License-Identifier: Apache-2.0 */
/* Targets: who is taken, who is told to come later, and how many are sent. The
 * prefill worker takes 1 ms for a token, the decode worker 8 ms and 1 ms more
 * for each sequence; all times by hand. */
#include "tests/unit/router/core/core_fixture.h"

static void measured(world_t *w, bt_instance_t *worker)
{
    bt_msg_t stats = {.type = BT_MSG_STATS};

    stats.u.stats.max_requests = 4;
    if (worker->hello.role == BT_ROLE_PREFILL) {
        stats.u.stats.rates.prefill_token_ns = 1000000;
    } else {
        stats.u.stats.rates.decode_step_ns = 8000000;
        stats.u.stats.rates.decode_seq_ns = 1000000;
    }
    assert_int_equal(bt_core_message(w->core, worker, &stats, w->now), BT_OK);
}

static void start_measured(world_t *w, bt_sched_slo_t target,
                           bt_instance_t **p_p, bt_instance_t **d_p)
{
    core_target = target;
    start_pair(w, p_p, d_p);
    core_target = (bt_sched_slo_t){0};
    measured(w, *p_p);
    measured(w, *d_p);
}

/* @return what becomes of a request with a target of its own */
static bt_status_t ask(world_t *w, client_t *c, const char *prompt,
                       uint32_t max_new, bt_sched_slo_t target)
{
    const bt_gen_spec_t spec = {
        .prompt = prompt_of(prompt),
        .max_new = max_new,
        .sampling = bt_sampling_default(),
        .target = target,
        .parse_us = 10,
        .tokenize_us = 20,
    };
    bt_status_t status;

    memset(c, 0, sizeof(*c));
    status = submit_one(w->core, &spec, c, w->now, &c->gen);
    bt_prompt_unref(spec.prompt);
    return status;
}

static void late(const world_t *w, bool first, uint32_t target_ms,
                 uint64_t forecast_ms, uint32_t retry_s)
{
    const bt_core_late_t *why = bt_core_late(w->core);

    assert_int_equal(why->first, first);
    assert_int_equal(why->target_ms, target_ms);
    assert_int_equal(why->forecast_ms, forecast_ms);
    assert_int_equal(why->retry_s, retry_s);
}

/* First come first served: 8 ms and 8 ms are more than 10. */
static void request_forecast_to_miss_ttft_is_refused(void **state)
{
    static const bt_sched_slo_t none = {0};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t a, b;

    (void)state;
    start_measured(w, (bt_sched_slo_t){.ttft_ms = 10}, &p, &d);
    assert_int_equal(ask(w, &a, "eight to", 2, none), BT_OK);
    key = key_at(w, d);
    assert_int_equal(ask(w, &b, "eight to", 2, none), BT_ERR_TIMED_OUT);
    late(w, true, 10, 16, 1);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    /* Its own target is what counts, and a short prompt is in time. */
    assert_int_equal(ask(w, &b, "eight to", 2, (bt_sched_slo_t){.ttft_ms = 16}),
                     BT_OK);
    bt_core_cancel(w->core, b.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    assert_int_equal(ask(w, &b, "12", 2, none), BT_OK);
    bt_core_cancel(w->core, b.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    /* Once the first prompt is computed there is time again. */
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    prefilled(w, p, key);
    ended(w, p, key);
    assert_int_equal(ask(w, &b, "eight to", 2, none), BT_OK);
    bt_core_cancel(w->core, b.gen, w->now);
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    ended(w, d, key);
    end_world(w);
}

/* Four seats, and 12 ms for an iteration of all: answers of 20 tokens, of which
 * one ends every 60 ms. */
static void full_seats_wait_for_the_next_end(void **state)
{
    static const bt_sched_slo_t none = {0};
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c[5];

    (void)state;
    start_measured(w, (bt_sched_slo_t){.ttft_ms = 60}, &p, &d);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(w, &c[i], "a", 20, none), BT_OK);
    }
    assert_int_equal(ask(w, &c[4], "a", 20, none), BT_ERR_TIMED_OUT);
    late(w, true, 60, 61, 1);
    /* One token is the prefill worker's, who is in time. */
    assert_int_equal(ask(w, &c[4], "a", 1, none), BT_OK);
    bt_core_cancel(w->core, c[4].gen, w->now);
    ended(w, p, key_at(w, p));
    for (int i = 0; i < 4; i++) {
        bt_core_cancel(w->core, c[i].gen, w->now);
    }
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const sent_t s = w->sent[i];

        if ((s.msg.type == BT_MSG_CANCEL) &&
            ((s.to == d) || (s.msg.u.cancel.key.id < 5))) {
            ended(w, s.to, s.msg.u.cancel.key);
        }
    }
    end_world(w);
}

/* 8 ms and 1 for each: 11 ms are three at a time. The others wait here, where
 * they are not computed beside them. */
static void seats_are_limited_to_keep_the_itl_target(void **state)
{
    static const bt_sched_slo_t none = {0};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c[5];

    (void)state;
    start_measured(w, (bt_sched_slo_t){.itl_ms = 11}, &p, &d);
    assert_int_equal(d->sched.max_seats, 3);
    assert_int_equal(p->sched.max_seats, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(w, &c[i], "a", 2, none), BT_OK);
    }
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 3);
    assert_int_equal(n_waiting(w), 1);
    /* Who wants less than even three leave. */
    assert_int_equal(ask(w, &c[4], "a", 2, (bt_sched_slo_t){.itl_ms = 10}),
                     BT_ERR_TIMED_OUT);
    late(w, false, 10, 11, 1);
    /* The next is sent when one has ended. */
    key = (bt_req_key_t){.id = 1, .attempt = 1};
    bt_core_cancel(w->core, c[0].gen, w->now);
    ended(w, d, key);
    ended(w, p, key);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 4);
    for (int i = 1; i < 4; i++) {
        bt_core_cancel(w->core, c[i].gen, w->now);
    }
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const sent_t s = w->sent[i];

        if ((s.msg.type == BT_MSG_CANCEL) &&
            (s.msg.u.cancel.key.id != key.id)) {
            ended(w, s.to, s.msg.u.cancel.key);
        }
    }
    end_world(w);
}

/* A batch of its own takes 9 ms; beside one that is there it may wait for that
 * and then take as long again: 2 x 10. So 22 ms are seats for three, of 11. */
static void static_batch_wait_is_part_of_the_forecast(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b;

    (void)state;
    core_target = (bt_sched_slo_t){.itl_ms = 22};
    start(w, 10);
    core_target = (bt_sched_slo_t){0};
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_STATIC_BATCHES);
    measured(w, p);
    measured(w, d);
    assert_int_equal(d->sched.max_seats, 3);
    assert_int_equal(ask(w, &a, "a", 2, (bt_sched_slo_t){.itl_ms = 9}), BT_OK);
    assert_int_equal(ask(w, &b, "a", 2, (bt_sched_slo_t){.itl_ms = 19}),
                     BT_ERR_TIMED_OUT);
    late(w, false, 19, 20, 1);
    assert_int_equal(ask(w, &b, "a", 2, (bt_sched_slo_t){.itl_ms = 20}), BT_OK);
    bt_core_cancel(w->core, b.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, (bt_req_key_t){.id = 1, .attempt = 1});
    ended(w, d, (bt_req_key_t){.id = 1, .attempt = 1});
    end_world(w);
}

static void requests_are_admitted_before_any_measurement(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    core_target = (bt_sched_slo_t){.ttft_ms = 1, .itl_ms = 1};
    start_pair(w, &p, &d);
    core_target = (bt_sched_slo_t){0};
    assert_int_equal(ask(w, &c, "eight to", 2, (bt_sched_slo_t){.ttft_ms = 1}),
                     BT_OK);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    end_world(w);
}

/* Workers put prompts in order by what is left of it, and give no more time
 * away than the other leaves; who has no target has none. */
static void workers_are_told_the_targets(void **state)
{
    static const bt_sched_slo_t none = {0};
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b;

    (void)state;
    start_measured(w, none, &p, &d);
    assert_int_equal(ask(w, &a, "eight to", 2,
                         (bt_sched_slo_t){.ttft_ms = 250, .itl_ms = 40}),
                     BT_OK);
    assert_int_equal(w->sent[w->n_sent - 1].msg.type, BT_MSG_REQUEST);
    assert_int_equal(w->sent[w->n_sent - 1].msg.u.request.first_ms, 250);
    assert_int_equal(w->sent[w->n_sent - 2].msg.u.request.first_ms, 250);
    assert_int_equal(w->sent[w->n_sent - 1].msg.u.request.itl_ms, 40);
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    assert_int_equal(ask(w, &b, "eight to", 2, none), BT_OK);
    assert_int_equal(w->sent[w->n_sent - 1].msg.u.request.first_ms, 0);
    assert_int_equal(w->sent[w->n_sent - 1].msg.u.request.itl_ms, 0);
    bt_core_cancel(w->core, b.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    end_world(w);
}

/* Forecast for 8 ms, in time for 9, the answer's first token comes after 12:
 * the next forecast is a tenth longer, 8.8 ms; after another such answer 9.6,
 * which is too late. */
static void missed_forecasts_raise_the_safety_factor(void **state)
{
    static const bt_sched_slo_t target = {.ttft_ms = 9};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_measured(w, target, &p, &d);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(w, &c, "eight to", 2, target), BT_OK);
        key = key_at(w, d);
        w->now += 12000;
        tokens(w, p, key, 0, "x", BT_FINISH_NONE);
        prefilled(w, p, key);
        ended(w, p, key);
        tokens(w, d, key, 1, "y", BT_FINISH_LENGTH);
        ended(w, d, key);
    }
    assert_int_equal(ask(w, &c, "eight to", 2, target), BT_ERR_TIMED_OUT);
    late(w, true, 9, 9, 1);
    end_world(w);
}

/* A prompt that is forecast to take 8 ms, of a target of 4, at workers that do
 * nothing: the first a second after they had measured is a probe, at once, and
 * only that. */
static void idle_worker_takes_one_probe_per_second(void **state)
{
    static const bt_sched_slo_t target = {.ttft_ms = 4};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t first, a, b;

    (void)state;
    start_measured(w, target, &p, &d);
    w->now += 999 * MS;
    assert_int_equal(ask(w, &first, "eight to", 2, target), BT_ERR_TIMED_OUT);
    late(w, true, 4, 8, 1);
    w->now += MS;
    assert_int_equal(ask(w, &first, "eight to", 2, target), BT_OK);
    key = key_at(w, d);
    /* However long it takes: it has the worker, and others wait behind it. */
    w->now += 5000 * MS;
    assert_int_equal(ask(w, &b, "eight to", 2, target), BT_ERR_TIMED_OUT);
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    prefilled(w, p, key);
    ended(w, p, key);
    /* Over with its first token; then a second's rest, in which what is in time
     * is taken as ever. */
    w->now += 997 * MS;
    assert_int_equal(ask(w, &b, "eight to", 2, target), BT_ERR_TIMED_OUT);
    assert_int_equal(ask(w, &b, "1", 1, target), BT_OK);
    w->now += MS;
    assert_int_equal(ask(w, &a, "eight to", 2, target), BT_ERR_TIMED_OUT);
    bt_core_cancel(w->core, b.gen, w->now);
    ended(w, p, key_at(w, p));
    assert_int_equal(ask(w, &a, "eight to", 2, target), BT_OK);
    /* One that ends without a token is over, too. */
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    w->now += 997 * MS;
    assert_int_equal(ask(w, &a, "eight to", 2, target), BT_ERR_TIMED_OUT);
    w->now += MS;
    assert_int_equal(ask(w, &a, "eight to", 2, target), BT_OK);
    bt_core_cancel(w->core, a.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    bt_core_cancel(w->core, first.gen, w->now);
    ended(w, d, key);
    end_world(w);
}

/* 9 ms for a step of one, of a target of 5: one is taken where nobody else
 * generates, and its worker says what it took. */
static void slow_step_is_probed_again(void **state)
{
    static const bt_sched_slo_t target = {.itl_ms = 5};
    bt_msg_t stats = {.type = BT_MSG_STATS};
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b, c;

    (void)state;
    start_measured(w, target, &p, &d);
    assert_int_equal(ask(w, &a, "a", 20, target), BT_ERR_TIMED_OUT);
    late(w, false, 5, 9, 1);
    w->now += 1000 * MS;
    assert_int_equal(ask(w, &a, "a", 20, target), BT_OK);
    w->now += 2000 * MS;
    assert_int_equal(ask(w, &b, "a", 20, target), BT_ERR_TIMED_OUT);
    stats.u.stats.max_requests = 4;
    stats.u.stats.rates.decode_step_ns = 3000000;
    stats.u.stats.rates.decode_seq_ns = 500000;
    assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
    assert_int_equal(ask(w, &b, "a", 20, target), BT_OK);
    assert_int_equal(ask(w, &c, "a", 20, target), BT_OK);
    bt_core_cancel(w->core, a.gen, w->now);
    bt_core_cancel(w->core, b.gen, w->now);
    bt_core_cancel(w->core, c.gen, w->now);
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if (w->sent[i].msg.type == BT_MSG_CANCEL) {
            ended(w, w->sent[i].to, w->sent[i].msg.u.cancel.key);
        }
    }
    end_world(w);
}

/* 20 ms more for each sequence, as a neighbour made it look, of a target of 11:
 * one at a time, of which nobody learns what two take. After a minute with all
 * seats taken two are sent, until the worker says again what it measured.
 */
static void full_seats_are_exceeded_by_one_from_time_to_time(void **state)
{
    const bt_sched_slo_t loose = {.itl_ms = 1000};
    bt_msg_t stats = {.type = BT_MSG_STATS};
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c[3];

    (void)state;
    start_measured(w, (bt_sched_slo_t){.itl_ms = 11}, &p, &d);
    stats.u.stats.max_requests = 4;
    stats.u.stats.rates.decode_seq_ns = 20000000;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
        assert_int_equal(d->sched.max_seats, 1); /* nobody wants more */
        w->now += 80000 * MS;
    }
    assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
    assert_int_equal(ask(w, &c[0], "a", 20, loose), BT_OK);
    for (int i = 0; i < 29; i++) {
        w->now += 2000 * MS;
        assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
        assert_int_equal(d->sched.max_seats, 1);
        if (i == 15) { /* another has the seat from then on */
            assert_int_equal(ask(w, &c[1], "a", 20, loose), BT_OK);
            assert_int_equal(ask(w, &c[2], "a", 20, loose), BT_OK);
            bt_core_cancel(w->core, c[0].gen, w->now);
            ended(w, d, (bt_req_key_t){.id = 1, .attempt = 1});
            ended(w, p, (bt_req_key_t){.id = 1, .attempt = 1});
        }
        bt_core_tick(w->core, w->now);
    }
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);
    w->now += 1900 * MS;
    assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
    assert_int_equal(d->sched.max_seats, 1);
    w->now += 100 * MS;
    assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
    assert_int_equal(d->sched.max_seats, 2);
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 3);
    w->now += 1000 * MS;
    assert_int_equal(bt_core_message(w->core, d, &stats, w->now), BT_OK);
    assert_int_equal(d->sched.max_seats, 1);
    bt_core_cancel(w->core, c[1].gen, w->now);
    bt_core_cancel(w->core, c[2].gen, w->now);
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if ((w->sent[i].msg.type == BT_MSG_CANCEL) &&
            (w->sent[i].msg.u.cancel.key.id > 1)) {
            ended(w, w->sent[i].to, w->sent[i].msg.u.cancel.key);
        }
    }
    end_world(w);
}

/* An answer of 100 tokens, and a minute later two of 2: of a mean of all that
 * is forgotten, as of the tenant's. 8 ms for a prompt, and 60 ms for a seat
 * where answers have 20 tokens: 2 take 6. */
static void mean_lengths_of_long_ago_are_forgotten(void **state)
{
    static const bt_sched_slo_t none = {0};
    static const bt_sched_slo_t target = {.ttft_ms = 100};
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c, more[4];

    (void)state;
    start_measured(w, none, &p, &d);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(w, &c, "eight to", 200, none), BT_OK);
        key = key_at(w, d);
        tokens(w, p, key, 0, "x", BT_FINISH_NONE);
        prefilled(w, p, key);
        ended(w, p, key);
        for (uint32_t k = 1; k < ((i == 0) ? 100u : 2u); k++) {
            tokens(w, d, key, k, "y",
                   (k + 1 == ((i == 0) ? 100u : 2u)) ? BT_FINISH_STOP
                                                     : BT_FINISH_NONE);
        }
        ended(w, d, key);
        w->now += 60000 * MS;
    }
    /* 100, then 3/4 of the way to 2, then again: 2 + 98 / 16, some 8 tokens, of
     * each of which four seats make one in 3 ms: 24 ms, where it were 96 x 3.
     */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(w, &more[i], "a", 200, none), BT_OK);
    }
    assert_int_equal(ask(w, &c, "a", 200, target), BT_OK);
    bt_core_cancel(w->core, c.gen, w->now);
    for (int i = 0; i < 4; i++) {
        bt_core_cancel(w->core, more[i].gen, w->now);
    }
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if (w->sent[i].msg.type == BT_MSG_CANCEL) {
            ended(w, w->sent[i].to, w->sent[i].msg.u.cancel.key);
        }
    }
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_forecast_to_miss_ttft_is_refused),
        BT_TEST(full_seats_wait_for_the_next_end),
        BT_TEST(seats_are_limited_to_keep_the_itl_target),
        BT_TEST(static_batch_wait_is_part_of_the_forecast),
        BT_TEST(requests_are_admitted_before_any_measurement),
        BT_TEST(workers_are_told_the_targets),
        BT_TEST(missed_forecasts_raise_the_safety_factor),
        BT_TEST(idle_worker_takes_one_probe_per_second),
        BT_TEST(slow_step_is_probed_again),
        BT_TEST(full_seats_are_exceeded_by_one_from_time_to_time),
        BT_TEST(mean_lengths_of_long_ago_are_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
