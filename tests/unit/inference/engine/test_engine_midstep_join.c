/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that come into an iteration under way. It is held in the middle of
 * a layer, by an attention that waits, so nothing here is a race. The bytes of
 * single runs are the expected ones. */
#include "common/base/status.h"
#include "tests/unit/inference/engine/gate.h"

#define BUDGET 32u
#define MOST   3u /* that come in at a time, here */
#define N_NEWS 12u

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

static void
sequence_joining_between_layers_samples_in_this_iteration(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_BF16, BT_KV_F16, BT_KV_INT8,
                                         BT_KV_FP8};

    (void)state;
    for (size_t t = 0; t < BT_ARRAY_LEN(types); t++) {
        for (uint32_t n_done = 1; n_done < LAYERS; n_done++) {
            bench_t b;

            open_gated(&b, types[t], BUDGET);
            meet(&b, n_done, 1 + n_done % MOST, true);
            close_gated(&b);
        }
    }
}

static void
sequence_joining_in_the_last_layer_waits_for_the_next_iteration(void **state)
{
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
    meet(&b, LAYERS, 2, false);
    close_gated(&b);
}

/* A canceled one, and one with two tokens to compute, do not come in. */
static void
canceled_or_longer_sequences_wait_for_the_next_iteration(void **state)
{
    bt_seq_t *seqs[3];
    met_t met = {0};
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
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
        BT_TEST(sequence_joining_between_layers_samples_in_this_iteration),
        BT_TEST(
            sequence_joining_in_the_last_layer_waits_for_the_next_iteration),
        BT_TEST(canceled_or_longer_sequences_wait_for_the_next_iteration),
    };

    return cmocka_run_group_tests(tests, make_deep_model, remove_model);
}
