/* SPDX-License-Identifier: Apache-2.0 */
/* A step shows that it gets on with every operation of a layer, and that it
 * does not when one hangs. */
#include "tests/unit/inference/engine/device.h"

#include <semaphore.h>
#include <time.h>

#define LAYERS   2u
#define N_TOKENS 20u
/* Products of a step: four in each layer, and the output. */
#define PRODUCTS (LAYERS * 4 + 1)

/* Each product waits until it is let through. */
typedef struct gate {
    sem_t arrived;
    sem_t passes;
} gate_t;

static void wait_at_gate(void *ctx)
{
    gate_t *gate = ctx;

    sem_post(&gate->arrived);
    while (sem_wait(&gate->passes) != 0) {
    }
}

static void wait_for_arrival(gate_t *gate)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(DEADLINE_NS / 1000000000u);
    assert_int_equal(sem_timedwait(&gate->arrived, &end), 0);
}

static void open_gated(bench_t *b, gate_t *gate)
{
    const bt_engine_config_t config = open_device(b, 32);

    assert_int_equal(bt_model_hparams(b->model)->n_layers, LAYERS);
    assert_int_equal(sem_init(&gate->arrived, 0, 0), 0);
    assert_int_equal(sem_init(&gate->passes, 0, 0), 0);
    bt_trap_before_matmul(b->be, wait_at_gate, gate);
    assert_int_equal(bt_engine_create(&config, &b->engine), BT_OK);
}

static void close_gated(bench_t *b, gate_t *gate)
{
    close_device(b);
    sem_destroy(&gate->arrived);
    sem_destroy(&gate->passes);
}

static void every_operation_beats_the_compute_watchdog(void **state)
{
    const uint32_t blocks[] = {3, 1, 2};
    uint32_t tokens[N_TOKENS + 2];
    bt_seq_t seq = {.tokens = tokens,
                    .blocks = blocks,
                    .sched.n_tokens = N_TOKENS,
                    .n_prompt = N_TOKENS,
                    .max_new = 2,
                    .sampling = bt_sampling_default()};
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    uint64_t before = 0;
    uint64_t marks = 0;
    gate_t gate;
    bench_t b;

    (void)state;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = 10 + i;
    }
    open_gated(&b, &gate);
    assert_int_equal(bt_engine_submit(b.engine, &seq), BT_OK);
    for (uint32_t product = 0; product < 2 * PRODUCTS; product++) {
        wait_for_arrival(&gate);
        assert_true(bt_engine_progress(b.engine, &marks));
        assert_true(marks > before);
        before = marks;
        /* It hangs: nothing more is to be seen, however often one looks. */
        for (int i = 0; i < 1000; i++) {
            assert_true(bt_engine_progress(b.engine, &marks));
            assert_int_equal(marks, before);
        }
        sem_post(&gate.passes);
    }
    run_until_left(&b, 1);
    while (bt_engine_progress(b.engine, &marks)) { /* until it is idle */
        assert_true(bt_now_ns() < end);
    }
    assert_true(marks > before);
    close_gated(&b, &gate);
}

/* Whoever ends the process learns that it must not wait or free. */
static void stop_does_not_wait_for_a_hung_step(void **state)
{
    const uint32_t blocks[] = {3, 1, 2};
    uint32_t tokens[N_TOKENS + 1];
    bt_seq_t seq = {.tokens = tokens,
                    .blocks = blocks,
                    .sched.n_tokens = N_TOKENS,
                    .n_prompt = N_TOKENS,
                    .max_new = 1,
                    .sampling = bt_sampling_default()};
    gate_t gate;
    bench_t b;

    (void)state;
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = 10 + i;
    }
    open_gated(&b, &gate);
    assert_int_equal(bt_engine_submit(b.engine, &seq), BT_OK);
    wait_for_arrival(&gate);
    assert_false(bt_engine_stop(b.engine, 0));
    assert_false(bt_engine_stop(b.engine, 1001));
    for (uint32_t product = 0; product < PRODUCTS; product++) {
        sem_post(&gate.passes);
    }
    assert_true(bt_engine_stop(b.engine, (uint32_t)(DEADLINE_NS / 1000000)));
    assert_true(bt_engine_stop(b.engine, 0)); /* harmless when repeated */
    close_gated(&b, &gate);

    open_gated(&b, &gate); /* one that is idle */
    assert_true(bt_engine_stop(b.engine, (uint32_t)(DEADLINE_NS / 1000000)));
    close_gated(&b, &gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_operation_beats_the_compute_watchdog),
        BT_TEST(stop_does_not_wait_for_a_hung_step),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
