/* SPDX-License-Identifier: Apache-2.0 */
/* Passes that take as long as another machine's would; never less, and with
 * the tokens that they have without. */
#include "common/base/status.h"
#include "tests/unit/inference/engine/bench.h"

#define BUDGET  32u
#define PASS_US 3000u
#define ROW_US  200u
#define N_DRAWN 4u

/* The prompt of sequence 3: 74 tokens in chunks of 32, 32 and 10. */
#define PROMPT 3u
#define N_LONG 74u

/** @return rows of all passes */
static uint32_t run(bench_t *b, bt_engine_min_latency_t as, bt_seq_t *seq)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    uint32_t n_rows = 0;

    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    for (bool left = false; !left;) {
        bt_report_t *report = bt_engine_next(b->engine);
        uint32_t rows;

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        assert_int_equal(report->status, BT_OK);
        rows = report->n_context_tokens + report->n_generation_seqs;
        if (report->n_seqs > 0) {
            assert_true(report->work_ns >=
                        1000ull * (as.pass_us + as.row_us * rows));
            n_rows += rows;
        }
        for (uint32_t k = 0; k < report->n_items; k++) {
            left = left || (report->items[k].kind == BT_REPORT_LEFT);
        }
        bt_engine_recycle(b->engine, report);
    }
    return n_rows;
}

static void simulated_passes_take_their_configured_time(void **state)
{
    static const bt_engine_min_latency_t latencies[] = {
        {0, 0}, {PASS_US, 0}, {0, ROW_US}, {PASS_US, ROW_US}};
    uint32_t first[N_DRAWN] = {0};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(latencies); i++) {
        bench_t b;
        bt_seq_t *seq;

        open_bench_with_latency(&b, BT_KV_F16, BUDGET, NULL, latencies[i]);
        seq = make_seq(&b, PROMPT, 0.8f);
        seq->max_new = N_DRAWN;
        assert_int_equal(run(&b, latencies[i], seq), N_LONG + N_DRAWN - 1);
        if (i == 0) {
            memcpy(first, seq->tokens + seq->n_prompt, sizeof(first));
        }
        assert_memory_equal(seq->tokens + seq->n_prompt, first, sizeof(first));
        free_seq(seq);
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(simulated_passes_take_their_configured_time),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
