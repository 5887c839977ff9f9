/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that come into an iteration under way. It is held in the middle of
 * a layer, by an attention that waits, so nothing here is a race. The bytes of
 * single runs are the expected ones. */
#include "common/base/assert.h"
#include "tests/unit/engine/bench.h"

#include <semaphore.h>
#include <time.h>

#define LAYERS  6u
#define BUDGET  32u
#define MOST    3u /* that come in at a time, here */
#define N_NEWS  12u
#define NO_GATE UINT32_MAX

typedef struct gate {
    sem_t arrived, passes;
    uint32_t calls_left; /* of attention until it holds; compute thread's */
    bt_kernels_ops_t ops;
    const bt_kernels_ops_t *inner;
} gate_t;

static gate_t gate;

static void attention(bt_backend_t *be, const bt_attention_t *how,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    if (gate.calls_left != NO_GATE) {
        if (gate.calls_left == 0) {
            gate.calls_left = NO_GATE;
            sem_post(&gate.arrived);
            while (sem_wait(&gate.passes) != 0) {
            }
        } else {
            gate.calls_left--;
        }
    }
    gate.inner->attention(be, how, qkv, batch, kv, layer, out);
}

static void wait_for_arrival(void)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(DEADLINE_NS / 1000000000u);
    assert_int_equal(sem_timedwait(&gate.arrived, &end), 0);
}

static int make_deep_model(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);

    (void)state;
    tiny.n_layers = LAYERS;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, model_path) == BT_OK) ? 0 : -1;
}

static void open_gated(bench_t *b, bt_kv_type_t type)
{
    open_bench(b, type, BUDGET);
    /* Not a number, in every type: what is read before it is written shows. */
    memset(b->pool, 0xff, N_BLOCKS * b->kv.block_bytes);
    assert_int_equal(sem_init(&gate.arrived, 0, 0), 0);
    assert_int_equal(sem_init(&gate.passes, 0, 0), 0);
    gate.calls_left = NO_GATE;
    gate.inner = b->be->ops;
    gate.ops = *b->be->ops;
    gate.ops.attention = attention;
    b->be->ops = &gate.ops; /* the compute thread sleeps */
}

static void close_gated(bench_t *b)
{
    bt_engine_destroy(b->engine);
    b->engine = NULL;
    b->be->ops = gate.inner;
    close_bench(b);
    sem_destroy(&gate.arrived);
    sem_destroy(&gate.passes);
}

/* Runs the context phase, as a prefill worker does, and makes it what a decode
 * worker gets: one token whose K and V are to be computed. */
static bt_seq_t *make_handed_over(bench_t *b, uint32_t i, float temperature)
{
    bt_seq_t *seq = make_seq(b, i, temperature);

    seq->leave_after_first = true;
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    assert_int_equal(run_until_left(b, 1), 0);
    assert_int_equal(seq->n_drawn, 1);
    seq->leave_after_first = false;
    seq->sched.n_computed = seq->n_prompt;
    seq->first_index = 1;
    seq->max_new = N_NEWS;
    seq->n_drawn = 0;
    seq->n_iterations = 0;
    return seq;
}

/* Each by itself: what they must draw, too, when they meet. */
static void draw_alone(bench_t *b, uint32_t i, float temperature,
                       uint32_t tokens[N_NEWS + 1])
{
    bt_seq_t *seq = make_handed_over(b, i, temperature);

    tokens[0] = seq->tokens[seq->n_prompt];
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    assert_int_equal(run_until_left(b, 1), 0);
    memcpy(tokens + 1, seq->tokens + seq->n_prompt + 1,
           N_NEWS * sizeof(*tokens));
    free_seq(seq);
}

/* Iteration of the first TOKEN of each, and when that iteration began and
 * ended. */
typedef struct met {
    uint64_t first[MOST + 1];
    uint64_t start_ns[MOST + 1], end_ns[MOST + 1];
    uint32_t n_left, n_canceled;
} met_t;

static void watch(bench_t *b, bt_seq_t *const *seqs, uint32_t n, uint32_t until,
                  met_t *met)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;

    while (met->n_left < until) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        assert_int_equal(report->status, BT_OK);
        /* Drawing tokens is work, too. */
        assert_true(report->work_ns >= report->end_ns - report->start_ns);
        for (uint32_t k = 0; k < report->n_items; k++) {
            const bt_report_item_t *item = &report->items[k];

            for (uint32_t i = 0; i < n; i++) {
                if ((item->seq == seqs[i]) && (met->first[i] == 0) &&
                    (item->kind == BT_REPORT_TOKEN)) {
                    met->first[i] = report->iteration;
                    met->start_ns[i] = report->start_ns;
                    met->end_ns[i] = report->end_ns;
                }
            }
            if (item->kind == BT_REPORT_LEFT) {
                met->n_left++;
                met->n_canceled += (item->finish == BT_FINISH_CANCELED) ? 1 : 0;
            }
        }
        bt_engine_recycle(b->engine, report);
    }
}

static void assert_drew(const bt_seq_t *seq, const uint32_t want[N_NEWS + 1])
{
    assert_int_equal(seq->n_drawn, N_NEWS);
    assert_memory_equal(seq->tokens + seq->n_prompt, want,
                        (N_NEWS + 1) * sizeof(*want));
}

/* One runs; in its first iteration, when so many layers are done, the others
 * come. */
static void meet(bench_t *b, uint32_t n_done, uint32_t n_late, bool may)
{
    uint32_t want[MOST + 1][N_NEWS + 1];
    bt_seq_t *seqs[MOST + 1];
    met_t met = {0};

    for (uint32_t i = 0; i <= n_late; i++) {
        draw_alone(b, i, (i == 2) ? 1.2f : 0.0f, want[i]);
    }
    for (uint32_t i = 0; i <= n_late; i++) {
        seqs[i] = make_handed_over(b, i, (i == 2) ? 1.2f : 0.0f);
    }
    gate.calls_left = n_done - 1; /* in the layer after which they come in */
    assert_int_equal(bt_engine_submit(b->engine, seqs[0]), BT_OK);
    wait_for_arrival();
    for (uint32_t i = 1; i <= n_late; i++) {
        assert_int_equal(bt_engine_submit(b->engine, seqs[i]), BT_OK);
    }
    sem_post(&gate.passes);
    watch(b, seqs, n_late + 1, n_late + 1, &met);
    for (uint32_t i = 0; i <= n_late; i++) {
        assert_drew(seqs[i], want[i]);
        if (i > 0) {
            assert_int_equal(met.first[i], met.first[0] + (may ? 0 : 1));
            assert_true((seqs[i]->first_start_ns >= met.start_ns[i]) &&
                        (seqs[i]->first_start_ns <= met.end_ns[i]));
            assert_int_equal(seqs[i]->first_start_ns > met.start_ns[i], may);
            assert_int_equal(seqs[i]->n_iterations, N_NEWS);
        }
        free_seq(seqs[i]);
    }
}

static void who_comes_between_two_layers_draws_with_the_others(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_BF16, BT_KV_F16, BT_KV_INT8};

    (void)state;
    for (size_t t = 0; t < BT_ARRAY_LEN(types); t++) {
        for (uint32_t n_done = 1; n_done < LAYERS; n_done++) {
            bench_t b;

            open_gated(&b, types[t]);
            meet(&b, n_done, 1 + n_done % MOST, true);
            close_gated(&b);
        }
    }
}

static void who_comes_in_the_last_layer_is_in_the_next_iteration(void **state)
{
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16);
    meet(&b, LAYERS, 2, false);
    close_gated(&b);
}

/* A canceled one, and one with two tokens to compute, do not come in. */
static void others_wait_for_the_next_iteration(void **state)
{
    bt_seq_t *seqs[3];
    met_t met = {0};
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16);
    for (uint32_t i = 0; i < 3; i++) {
        seqs[i] = make_handed_over(&b, i, 0.0f);
    }
    seqs[2]->sched.n_computed--;
    gate.calls_left = 1;
    assert_int_equal(bt_engine_submit(b.engine, seqs[0]), BT_OK);
    wait_for_arrival();
    assert_int_equal(bt_engine_submit(b.engine, seqs[1]), BT_OK);
    bt_engine_cancel(seqs[1]);
    assert_int_equal(bt_engine_submit(b.engine, seqs[2]), BT_OK);
    sem_post(&gate.passes);
    watch(&b, seqs, 3, 3, &met);
    assert_int_equal(met.n_canceled, 1);
    assert_int_equal(seqs[1]->n_drawn, 0);
    assert_int_equal(met.first[2], met.first[0] + 1);
    assert_int_equal(seqs[2]->n_drawn, N_NEWS);
    for (uint32_t i = 0; i < 3; i++) {
        free_seq(seqs[i]);
    }
    close_gated(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(who_comes_between_two_layers_draws_with_the_others),
        BT_TEST(who_comes_in_the_last_layer_is_in_the_next_iteration),
        BT_TEST(others_wait_for_the_next_iteration),
    };

    return cmocka_run_group_tests(tests, make_deep_model, remove_model);
}
