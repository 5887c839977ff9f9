/* SPDX-License-Identifier: Apache-2.0 */
/* Passes that follow each other through the stages of a model: the tokens of
 * one stage, a stage that works while another one does, and what becomes of
 * passes that are under way. */
#include "tests/unit/inference/engine/bench.h"

#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/status.h"
#include "tests/support/rank_team.h"

#define N_SEQS 7u /* as many as have blocks of their own (bench.h) */
#define LAYERS 4u
#define BUDGET 64u

typedef struct layout {
    uint32_t tp, pp;
    uint32_t micro_rows; /* that a lot is worth, too */
} layout_t;

typedef struct stages {
    bt_rank_team_t team;
    bench_t bench; /* rank 0's model and pool */
} stages_t;

static int make_stage_model(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);

    (void)state;
    tiny.dim = 128;
    tiny.n_heads = 8;
    tiny.n_kv_heads = 4;
    tiny.n_layers = LAYERS;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, model_path) == BT_OK) ? 0 : -1;
}

static void open_stages(stages_t *s, const layout_t *layout)
{
    const uint32_t rows =
        bt_engine_max_rows(MAX_SEQS, BUDGET, T, BT_ENGINE_CPU_DRAFTS);
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = rows};
    const bt_model_config_t model_config = {
        .max_rows = rows,
        .max_logit_rows =
            bt_engine_max_logit_rows(MAX_SEQS, BT_ENGINE_CPU_DRAFTS),
        .context_tokens = 512,
        .tokens_per_block = T,
        .sum_parts = 2,
        .n_stages = layout->pp,
        .micro_rows = layout->micro_rows};
    bt_engine_config_t config = {.max_seqs = MAX_SEQS,
                                 .max_drafts = BT_ENGINE_CPU_DRAFTS,
                                 .fixed_drafts = BT_ENGINE_SEQ_DRAFTS,
                                 .token_budget = BUDGET};
    bt_gguf_t *gguf = NULL;
    char why[256] = "";

    memset(s, 0, sizeof(*s));
    assert_int_equal(bt_gguf_open(model_path, why, sizeof(why), &gguf), BT_OK);
    if (bt_rank_team_open(gguf, NULL, layout->tp * layout->pp, &be_config,
                          &model_config, BT_KV_F16, T, N_BLOCKS, why,
                          sizeof(why), &s->team) != BT_OK) {
        fail_msg("%ux%u: %s", layout->tp, layout->pp, why);
    }
    bt_gguf_close(gguf);
    config.model = s->team.ranks[0].model;
    config.kv = s->team.ranks[0].kv;
    assert_int_equal(bt_engine_create(&config, &s->bench.engine), BT_OK);
}

static void close_stages(stages_t *s, bt_status_t status)
{
    bt_engine_destroy(s->bench.engine);
    assert_int_equal(bt_rank_team_close(&s->team), status);
}

/* Some draw from few words, some from all, some take the best. */
static void make_seqs(bench_t *b, bt_seq_t **seqs)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i] = make_seq(b, i, (i % 3 == 0) ? 0.0f : 0.9f);
        seqs[i]->sampling.top_k = (i % 3 == 1) ? 5 : 0;
    }
}

static void submit_all(bench_t *b, bt_seq_t **seqs)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        assert_int_equal(bt_engine_submit(b->engine, seqs[i]), BT_OK);
    }
}

static void free_seqs(bt_seq_t **seqs)
{
    for (uint32_t i = 0; i < N_SEQS; i++) {
        free_seq(seqs[i]);
    }
}

/* ---- a stage that is held ---- */

/* Two lots of the seven, of 4 and 3, in one micro-batch each: so many calls of
 * attention has one in each stage. */
#define LOT_CALLS (LAYERS / 2)
/* Behind the prompt, which is one call, and a token of each. */
#define HOLD_AT (3 * LOT_CALLS)
#define LENT_NS 1000u /* that a call of the first stage would have saved */

static struct {
    sem_t arrived, passes;
    atomic_uint first; /* calls of attention of the first stage */
    unsigned last;     /* of the last one, whose thread's it is */
    const bt_kernels_ops_t *inner;
    bt_kernels_ops_t first_ops, last_ops;
} gate;

static void count_attention(bt_backend_t *be, const bt_attention_t *how,
                            const float *qkv, const bt_batch_t *batch,
                            const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    atomic_fetch_add(&gate.first, 1);
    gate.inner->attention(be, how, qkv, batch, kv, layer, out);
}

static void lent_stats(bt_backend_t *be, bt_lent_stats_t *out)
{
    (void)be;
    out->saved_ns = (uint64_t)LENT_NS * atomic_load(&gate.first);
}

static void hold_attention(bt_backend_t *be, const bt_attention_t *how,
                           const float *qkv, const bt_batch_t *batch,
                           const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    if (gate.last++ == HOLD_AT) {
        sem_post(&gate.arrived);
        while (sem_wait(&gate.passes) != 0) {
        }
    }
    gate.inner->attention(be, how, qkv, batch, kv, layer, out);
}

/* Two stages, of which the last one is held; the sequences have one prompt, so
 * that all begin to generate with one pass. */
static void open_held(stages_t *s, bt_seq_t **seqs)
{
    const layout_t two = {1, 2, 3};
    struct timespec end;

    open_stages(s, &two);
    assert_int_equal(sem_init(&gate.arrived, 0, 0), 0);
    assert_int_equal(sem_init(&gate.passes, 0, 0), 0);
    atomic_store(&gate.first, 0);
    gate.last = 0;
    gate.inner = s->team.ranks[0].be->ops;
    gate.first_ops = gate.last_ops = *gate.inner;
    gate.first_ops.attention = count_attention;
    gate.first_ops.lent_stats = lent_stats;
    gate.last_ops.attention = hold_attention;
    s->team.ranks[0].be->ops = &gate.first_ops; /* both stages sleep */
    s->team.ranks[1].be->ops = &gate.last_ops;
    for (uint32_t i = 0; i < N_SEQS; i++) {
        seqs[i] = make_seq(&s->bench, 0, 0.9f);
        seqs[i]->sampling.seed = i;
    }
    assert_int_equal(bt_engine_submit_fanout(s->bench.engine, seqs, N_SEQS),
                     BT_OK);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += (time_t)(DEADLINE_NS / 1000000000u);
    assert_int_equal(sem_timedwait(&gate.arrived, &end), 0);
}

static void close_held(stages_t *s, bt_seq_t **seqs, bt_status_t status)
{
    close_stages(s, status);
    free_seqs(seqs);
    sem_destroy(&gate.arrived);
    sem_destroy(&gate.passes);
}

/* ---- tests ---- */

/* The next one; the test's thread sleeps until it is there. */
static bt_report_t *wait_for_report(bench_t *b, uint64_t end)
{
    struct pollfd fd = {.fd = bt_engine_fd(b->engine), .events = POLLIN};
    bt_report_t *report;

    while ((report = bt_engine_next(b->engine)) == NULL) {
        assert_true(bt_now_ns() < end);
        if (bt_engine_sleep_prepare(b->engine)) {
            (void)poll(&fd, 1, 100);
        }
        bt_engine_sleep_done(b->engine);
    }
    return report;
}

/* The most sequences of a pass in which all generate. */
static uint32_t run_and_look(bench_t *b, uint64_t *lent_ns_p)
{
    const uint64_t end = bt_now_ns() + 4 * DEADLINE_NS; /* under valgrind */
    uint32_t n_left = 0;
    uint32_t most = 0;

    *lent_ns_p = 0;
    while (n_left < N_SEQS) {
        bt_report_t *report = wait_for_report(b, end);

        assert_int_equal(report->status, BT_OK);
        if ((report->n_context_seqs == 0) && (report->n_seqs > most)) {
            most = report->n_seqs;
        }
        *lent_ns_p += report->work.lent_ns;
        for (uint32_t i = 0; i < report->n_items; i++) {
            n_left += report->items[i].kind == BT_REPORT_LEFT;
        }
        bt_engine_recycle(b->engine, report);
    }
    return most;
}

static void microbatches_give_the_tokens_of_one_stage(void **state)
{
    /* Of seven sequences two lots have four at most, three have three; the last
     * five are one lot where it is worth three rows. */
    static const struct {
        layout_t layout;
        uint32_t most;
    } list[] = {{{1, 1, 0}, N_SEQS}, {{1, 2, 0}, N_SEQS}, {{1, 2, 2}, 4},
                {{1, 3, 2}, 3},      {{1, 3, 3}, 5},      {{2, 2, 1}, 4}};
    bt_seq_t *want[N_SEQS];

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(list); k++) {
        bt_seq_t *seqs[N_SEQS];
        uint64_t lent_ns;
        stages_t s;

        open_stages(&s, &list[k].layout);
        make_seqs(&s.bench, seqs);
        submit_all(&s.bench, seqs);
        assert_true(run_and_look(&s.bench, &lent_ns) <= list[k].most);
        assert_int_equal(lent_ns, 0);
        close_stages(&s, BT_OK);
        if (k == 0) {
            memcpy(want, seqs, sizeof(want));
            continue;
        }
        for (uint32_t i = 0; i < N_SEQS; i++) {
            assert_int_equal(seqs[i]->sched.n_tokens, want[i]->sched.n_tokens);
            assert_memory_equal(seqs[i]->tokens, want[i]->tokens,
                                seqs[i]->sched.n_tokens * sizeof(uint32_t));
        }
        free_seqs(seqs);
    }
    free_seqs(want);
}

/* Drafts are right; a sequence is asked for them once behind each number of
 * tokens. */
typedef struct oracle {
    const uint32_t *tokens;
    uint32_t last;
    uint32_t n_asked, n_repeated;
} oracle_t;

static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    oracle_t *o = ctx;

    (void)tokens;
    o->n_asked++;
    o->n_repeated += (o->last == n_tokens) ? 1 : 0;
    o->last = n_tokens;
    max = (max < 2) ? max : 2;
    memcpy(drafts, &o->tokens[n_tokens], max * sizeof(*drafts));
    return (bt_draft_t){.n = max};
}

static void only_sequences_of_the_microbatch_are_asked_for_drafts(void **state)
{
    static const layout_t alone = {1, 1, 0}, lots[] = {{1, 2, 2}, {1, 3, 2}};
    bt_seq_t *want[N_SEQS];
    uint64_t lent_ns;
    stages_t s;

    (void)state;
    open_stages(&s, &alone);
    make_seqs(&s.bench, want);
    submit_all(&s.bench, want);
    (void)run_and_look(&s.bench, &lent_ns);
    close_stages(&s, BT_OK);
    for (size_t k = 0; k < BT_ARRAY_LEN(lots); k++) {
        oracle_t oracles[N_SEQS];
        bt_seq_t *seqs[N_SEQS];

        open_stages(&s, &lots[k]);
        make_seqs(&s.bench, seqs);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            oracles[i] = (oracle_t){.tokens = want[i]->tokens};
            seqs[i]->drafter =
                (bt_drafter_t){.propose = guess, .ctx = &oracles[i]};
        }
        submit_all(&s.bench, seqs);
        (void)run_and_look(&s.bench, &lent_ns);
        close_stages(&s, BT_OK);
        for (uint32_t i = 0; i < N_SEQS; i++) {
            assert_int_equal(seqs[i]->sched.n_tokens, want[i]->sched.n_tokens);
            assert_memory_equal(seqs[i]->tokens, want[i]->tokens,
                                seqs[i]->sched.n_tokens * sizeof(uint32_t));
            assert_true(seqs[i]->n_accepted > 0);
            assert_true(oracles[i].n_asked > 0);
            assert_int_equal(oracles[i].n_repeated, 0);
        }
        free_seqs(seqs);
    }
    free_seqs(want);
}

/* While the last stage is held at the first layer of a lot, the first one
 * computes the other; passes one at a time would leave it with this one. */
static void pipeline_stages_compute_microbatches_concurrently(void **state)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    bt_seq_t *seqs[N_SEQS];
    stages_t s;

    (void)state;
    open_held(&s, seqs);
    while (atomic_load(&gate.first) < HOLD_AT + 2 * LOT_CALLS) {
        assert_true(bt_now_ns() < end);
    }
    sem_post(&gate.passes);
    assert_int_equal(run_until_left(&s.bench, N_SEQS), 0);
    close_held(&s, seqs, BT_OK);
}

/* Lots overlap, as the test before shows; what was lent to one is not what
 * another one would have taken, too. */
static void borrowed_time_of_a_microbatch_counts_once(void **state)
{
    bt_seq_t *seqs[N_SEQS];
    uint64_t lent_ns;
    stages_t s;

    (void)state;
    open_held(&s, seqs);
    sem_post(&gate.passes);
    (void)run_and_look(&s.bench, &lent_ns);
    assert_int_equal(lent_ns, (uint64_t)LENT_NS * atomic_load(&gate.first));
    close_held(&s, seqs, BT_OK);
}

/* Reports that are there. @return sequences that left */
static uint32_t look(bench_t *b, bt_status_t *status_p)
{
    bt_report_t *report;
    uint32_t n_left = 0;

    while ((report = bt_engine_next(b->engine)) != NULL) {
        for (uint32_t i = 0; i < report->n_items; i++) {
            n_left += report->items[i].kind == BT_REPORT_LEFT;
        }
        *status_p = (*status_p == BT_OK) ? report->status : *status_p;
        bt_engine_recycle(b->engine, report);
    }
    return n_left;
}

/* Its blocks are its own until all stages are through with it. */
static void canceled_sequence_leaves_after_its_pipelined_pass(void **state)
{
    bt_status_t status = BT_OK;
    bt_seq_t *seqs[N_SEQS];
    uint32_t n_left = 0;
    stages_t s;

    (void)state;
    open_held(&s, seqs);
    for (uint32_t i = 0; i < N_SEQS; i++) {
        bt_engine_cancel(seqs[i]);
    }
    /* Both lots are under way, or one is about to be: nobody may have left of
     * the one that is held. */
    for (int i = 0; i < 1000; i++) {
        n_left += look(&s.bench, &status);
    }
    assert_true(n_left <= 4);
    sem_post(&gate.passes);
    assert_int_equal(run_until_left(&s.bench, N_SEQS - n_left),
                     N_SEQS - n_left);
    assert_int_equal(status, BT_OK);
    close_held(&s, seqs, BT_OK);
}

static void stop_waits_for_passes_in_flight(void **state)
{
    bt_seq_t *seqs[N_SEQS];
    stages_t s;

    (void)state;
    open_held(&s, seqs);
    assert_false(bt_engine_stop(s.bench.engine, 0));
    sem_post(&gate.passes);
    assert_true(bt_engine_stop(s.bench.engine, DEADLINE_NS / 1000000));
    close_held(&s, seqs, BT_OK); /* the ranks were told, and agree */
}

static void lost_stage_fails_all_passes_in_flight(void **state)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;
    bt_status_t status = BT_OK;
    bt_seq_t *seqs[N_SEQS];
    uint32_t n_left = 0;
    stages_t s;

    (void)state;
    bt_test_expect_log_lines(1);
    open_held(&s, seqs);
    bt_coll_shm_break(s.team.ranks[0].shm);
    while (n_left < N_SEQS) {
        assert_true(bt_now_ns() < end);
        n_left += look(&s.bench, &status);
    }
    assert_int_equal(status, BT_ERR_PEER_LOST);
    sem_post(&gate.passes);
    close_held(&s, seqs, BT_ERR_PEER_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(microbatches_give_the_tokens_of_one_stage),
        BT_TEST(only_sequences_of_the_microbatch_are_asked_for_drafts),
        BT_TEST(pipeline_stages_compute_microbatches_concurrently),
        BT_TEST(borrowed_time_of_a_microbatch_counts_once),
        BT_TEST(canceled_sequence_leaves_after_its_pipelined_pass),
        BT_TEST(stop_waits_for_passes_in_flight),
        BT_TEST(lost_stage_fails_all_passes_in_flight),
    };

    return cmocka_run_group_tests(tests, make_stage_model, remove_model);
}
