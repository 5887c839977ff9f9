/* SPDX-License-Identifier: Apache-2.0 */
/* A compute thread that hangs ends its worker; one that is slow does not, nor
 * does time in which nobody looked. */
#include "tests/unit/worker/sim.h"

#include "worker/cores.h"

#define LIMIT_MS 800u /* an eighth of it is 100 */

/* Looks every @a every_ms, from @a *now_p on, with marks that stay.
 * @return ms until the verdict; @a most_ms when there is none by then */
static uint64_t still_for(bt_compute_watchdog_t *stuck, uint64_t *now_p,
                          uint64_t every_ms, uint64_t most_ms)
{
    const uint64_t from = *now_p;

    while (*now_p < from + most_ms) {
        *now_p += every_ms;
        if (bt_compute_watchdog_check(stuck, true, 7, *now_p, LIMIT_MS)) {
            return *now_p - from;
        }
    }
    return most_ms;
}

static void watchdog_limit_counts_from_the_last_mark(void **state)
{
    bt_compute_watchdog_t stuck = {0};
    uint64_t now = 1000000; /* the first look is long after 0 */

    (void)state;
    assert_false(bt_compute_watchdog_check(&stuck, true, 7, now, LIMIT_MS));
    assert_int_equal(still_for(&stuck, &now, 20, 5000), LIMIT_MS);

    /* Slow, for an hour: a mark just before the limit, each time. */
    stuck = (bt_compute_watchdog_t){0};
    for (uint64_t marks = 0; marks < 4500; marks++) {
        for (uint32_t t = 0; t < LIMIT_MS; t += 20) {
            now += 20;
            assert_false(
                bt_compute_watchdog_check(&stuck, true, marks, now, LIMIT_MS));
        }
    }
    assert_false(bt_compute_watchdog_check(&stuck, true, 7, now, LIMIT_MS));
    assert_int_equal(still_for(&stuck, &now, 20, 5000), LIMIT_MS);
}

static void watchdog_ignores_an_idle_thread(void **state)
{
    bt_compute_watchdog_t stuck = {0};

    (void)state;
    for (uint64_t now = 0; now < 100ull * LIMIT_MS; now += 20) {
        assert_false(
            bt_compute_watchdog_check(&stuck, false, 7, now, LIMIT_MS));
    }
    /* It begins with the mark that it stopped at: that time does not count. */
    for (uint64_t t = 20; t < LIMIT_MS; t += 20) {
        assert_false(bt_compute_watchdog_check(
            &stuck, true, 7, 100ull * LIMIT_MS + t, LIMIT_MS));
    }
}

static void watchdog_discounts_time_without_checks(void **state)
{
    bt_compute_watchdog_t stuck = {0};
    uint64_t now = 5000;

    (void)state;
    assert_false(bt_compute_watchdog_check(&stuck, true, 7, now, LIMIT_MS));
    now += 3600000; /* stopped for an hour, within an operation */
    assert_false(bt_compute_watchdog_check(&stuck, true, 7, now, LIMIT_MS));
    assert_int_equal(still_for(&stuck, &now, 20, 5000), LIMIT_MS - 100);

    /* A control thread that seldom gets a turn takes that many of them. */
    stuck = (bt_compute_watchdog_t){.busy = true, .marks = 7, .looked_ms = now};
    assert_int_equal(still_for(&stuck, &now, 10000, 1000000),
                     10000 * BT_STUCK_LOOKS);
}

/* The first worker's engine has work. */
static bt_engine_t *busy_engine(void)
{
    sim_open(1, 8, 32, BT_KVT_PATH_AUTO);
    sim.nodes[0].config.compute_watchdog_ms = LIMIT_MS;
    sim.nodes[0].engine.busy = true;
    return &sim.nodes[0].engine;
}

static void watchdog_does_not_count_a_slow_step_as_a_hang(void **state)
{
    bt_engine_t *engine;

    (void)state;
    engine = busy_engine();
    for (uint32_t operation = 0; operation < 20; operation++) {
        sim_rounds(LIMIT_MS - 100);
        engine->marks++;
    }
    assert_false(sim.nodes[0].over);
    engine->busy = false;
    sim_rounds(2 * LIMIT_MS);
    assert_false(sim.nodes[0].over);
    sim_close();
}

static void worker_continues_after_sigstop_and_sigcont(void **state)
{
    bt_engine_t *engine;

    (void)state;
    engine = busy_engine();
    sim_rounds(10);
    sim_stop(0, true);
    sim_rounds(10 * LIMIT_MS);
    sim_stop(0, false);
    sim_rounds(10);
    engine->marks++;
    sim_rounds(LIMIT_MS - 100);
    assert_false(sim.nodes[0].over);
    engine->busy = false;
    sim_close();
}

static void hung_step_ends_the_worker(void **state)
{
    (void)state;
    sim_expect_failures();
    (void)busy_engine();
    sim_rounds(LIMIT_MS - 10);
    assert_false(sim.nodes[0].over);
    sim_rounds(20);
    assert_true(sim.nodes[0].over);
    assert_int_equal(sim.nodes[0].code, 70);
    assert_true(sim.nodes[0].w.hung);
    sim_expected();
    sim_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(watchdog_limit_counts_from_the_last_mark),
        BT_TEST(watchdog_ignores_an_idle_thread),
        BT_TEST(watchdog_discounts_time_without_checks),
        BT_TEST(watchdog_does_not_count_a_slow_step_as_a_hang),
        BT_TEST(worker_continues_after_sigstop_and_sigcont),
        BT_TEST(hung_step_ends_the_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
