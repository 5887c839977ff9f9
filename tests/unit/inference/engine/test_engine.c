/* SPDX-License-Identifier: Apache-2.0 */
/* The compute thread over a tiny model: in-flight batching does not change a
 * token (I1), canceled sequences leave at once, nothing is lost. */
#include "tests/unit/inference/engine/bench.h"

#define N_PROMPTS 6u
#define N_REPORTS 16u /* that an engine has */

static void chunks_and_company(bt_kv_type_t type)
{
    static const uint32_t budgets[] = {16, 64, 512};
    bt_seq_t *alone[N_PROMPTS];

    for (uint32_t round = 0; round < 3; round++) {
        bench_t b;
        bt_seq_t *together[N_PROMPTS];

        open_bench(&b, type, budgets[round]);
        for (uint32_t i = 0; (round == 0) && (i < N_PROMPTS); i++) {
            b.next_block = 0;
            alone[i] = make_seq(&b, i, (i % 2 == 0) ? 0.0f : 0.8f);
            assert_int_equal(bt_engine_submit(b.engine, alone[i]), BT_OK);
            run_until_left(&b, 1);
            assert_int_equal(alone[i]->n_drawn, MAX_NEW);
        }
        b.next_block = 0;
        for (uint32_t i = 0; i < N_PROMPTS; i++) {
            together[i] = make_seq(&b, i, (i % 2 == 0) ? 0.0f : 0.8f);
            assert_int_equal(bt_engine_submit(b.engine, together[i]), BT_OK);
        }
        run_until_left(&b, N_PROMPTS);
        for (uint32_t i = 0; i < N_PROMPTS; i++) {
            assert_int_equal(together[i]->sched.n_tokens,
                             alone[i]->sched.n_tokens);
            assert_memory_equal(together[i]->tokens, alone[i]->tokens,
                                alone[i]->sched.n_tokens * sizeof(uint32_t));
            free_seq(together[i]);
        }
        close_bench(&b);
    }
    for (uint32_t i = 0; i < N_PROMPTS; i++) {
        free_seq(alone[i]);
    }
}

static void tokens_do_not_depend_on_chunks_or_batch(void **state)
{
    (void)state;
    chunks_and_company(BT_KV_F16);
    chunks_and_company(BT_KV_BF16);
    chunks_and_company(BT_KV_INT8);
    chunks_and_company(BT_KV_FP8);
}

/* As many reports as there are, not given back: the compute thread waits. */
static void hold_reports(bench_t *b, bt_report_t *held[N_REPORTS])
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;

    for (uint32_t i = 0; i < N_REPORTS;) {
        held[i] = bt_engine_next(b->engine);
        i += (held[i] != NULL) ? 1 : 0;
        assert_true(bt_now_ns() < end);
    }
}

/* A budget of one block: of 120 tokens, and 97 that came later, none of the
 * ones before 6 blocks of the others are computed.
 * @param priority    of the 97; that of the 120 is 0
 * @param later_us    that the 97 came
 * @param long_first  which are the others */
static void compute_in_order(uint32_t priority, uint64_t later_us,
                             bool long_first)
{
    bt_report_t *held[N_REPORTS];
    bt_report_t *report;
    uint32_t first_computed = 0;
    uint32_t n_second = 0;
    const bt_seq_t *first, *second;
    uint64_t end;
    bt_seq_t *decoy;
    bt_seq_t *low;
    bt_seq_t *high;
    bench_t b;

    open_bench(&b, BT_KV_F16, T);
    decoy = make_seq(&b, 0, 0.0f);
    low = make_seq(&b, 5, 0.0f);
    high = make_seq(&b, 4, 0.0f);
    first = long_first ? low : high;
    second = long_first ? high : low;
    bt_sched_turn_init(&low->sched.turn, 0, 1000);
    bt_sched_turn_init(&high->sched.turn, priority, 1000 + later_us);
    assert_int_equal(bt_engine_submit(b.engine, decoy), BT_OK);
    hold_reports(&b, held); /* so that it sees both at once */
    assert_int_equal(bt_engine_submit(b.engine, low), BT_OK);
    assert_int_equal(bt_engine_submit(b.engine, high), BT_OK);
    for (uint32_t i = 0; i < N_REPORTS; i++) {
        bt_engine_recycle(b.engine, held[i]);
    }
    end = bt_now_ns() + DEADLINE_NS;
    while (n_second < 6) { /* chunks of 97 tokens at least */
        assert_true(bt_now_ns() < end);
        report = bt_engine_next(b.engine);
        if (report == NULL) {
            continue;
        }
        for (uint32_t i = 0; i < report->n_items; i++) {
            const bt_report_item_t *item = &report->items[i];

            if ((item->kind == BT_REPORT_CHUNK) && (item->seq == first)) {
                first_computed = item->n_computed;
            } else if ((item->kind == BT_REPORT_CHUNK) &&
                       (item->seq == second)) {
                assert_true(first_computed >= 96);
                n_second++;
            }
        }
        bt_engine_recycle(b.engine, report);
    }
    bt_engine_destroy(b.engine);
    b.engine = NULL;
    free_seq(decoy);
    free_seq(low);
    free_seq(high);
    close_bench(&b);
}

static void chunks_are_computed_by_priority(void **state)
{
    (void)state;
    compute_in_order(1, 1000, false);
}

/* ...but not by one that comes more than two minutes later. */
static void shorter_prompt_is_computed_first(void **state)
{
    (void)state;
    compute_in_order(0, 1, false);
    compute_in_order(0, 121000000, true);
}

/* The bytes of a sequence's blocks, elements and scales, move to other blocks,
 * and ff fills where they were: as a transfer does that moves whole blocks. */
static void move_blocks(bench_t *b, bt_seq_t *seq, uint32_t n_blocks)
{
    uint32_t *blocks = (uint32_t *)(uintptr_t)seq->blocks;
    uint8_t *const pool = b->pool;

    for (uint32_t i = 0; i < n_blocks; i++) {
        uint8_t *const from = pool + blocks[i] * b->kv.block_bytes;

        blocks[i] = (blocks[i] + N_BLOCKS / 2) % N_BLOCKS;
        memcpy(pool + blocks[i] * b->kv.block_bytes, from, b->kv.block_bytes);
        memset(from, 0xff, b->kv.block_bytes);
    }
}

/* What a prefill worker and a decode worker do, with one pool: the context
 * phase leaves after token #1, its K and V move to other blocks, and
 * generation goes on from there. */
static void hand_over(bt_kv_type_t type)
{
    bench_t b;
    bt_seq_t *whole;
    bt_seq_t *part;

    open_bench(&b, type, 32);
    whole = make_seq(&b, 3, 0.7f);
    assert_int_equal(bt_engine_submit(b.engine, whole), BT_OK);
    run_until_left(&b, 1);

    part = make_seq(&b, 3, 0.7f);
    part->leave_after_first = true;
    assert_int_equal(bt_engine_submit(b.engine, part), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(part->n_drawn, 1);
    assert_int_equal(part->sched.n_computed, part->n_prompt);
    move_blocks(&b, part, bt_kv_blocks_for(part->n_prompt + MAX_NEW, T));
    part->leave_after_first = false;
    part->max_new = MAX_NEW - 1;
    part->n_drawn = 0;
    part->first_index = 1;
    assert_int_equal(bt_engine_submit(b.engine, part), BT_OK);
    run_until_left(&b, 1);
    assert_memory_equal(part->tokens, whole->tokens,
                        whole->sched.n_tokens * sizeof(uint32_t));
    free_seq(whole);
    free_seq(part);
    close_bench(&b);
}

static void sequence_continues_from_transferred_kv(void **state)
{
    (void)state;
    hand_over(BT_KV_F16);
    hand_over(BT_KV_BF16);
    hand_over(BT_KV_INT8);
    hand_over(BT_KV_FP8);
}

typedef struct layer_copies {
    const bt_kv_view_t *kv;
    size_t layer_bytes;
    uint32_t n_told;
    uint8_t *copies; /* block 0, each layer as it was when it was told of */
} layer_copies_t;

static void copy_layer(void *ctx, uint32_t n_layers)
{
    layer_copies_t *c = ctx;
    const size_t at = (n_layers - 1) * c->layer_bytes;

    assert_int_equal(n_layers, ++c->n_told);
    memcpy(c->copies + at, (uint8_t *)c->kv->base + at, c->layer_bytes);
}

/* A layer that was told of does not change any more, and was empty before. */
static void layer_callback_runs_when_the_layer_is_complete(void **state)
{
    static const uint32_t tokens[T] = {3, 9, 4, 77, 5, 6, 7, 8,
                                       9, 1, 2, 3,  4, 5, 6, 7};
    static const uint32_t blocks[] = {0};
    const bt_ragged_seq_t seq = {.n_rows = T, .blocks = blocks};
    const uint32_t logit_rows[] = {T - 1};
    layer_copies_t copies = {0};
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = tokens,
                        .n_rows = T,
                        .logit_rows = logit_rows,
                        .n_logit_rows = 1,
                        .on_layers = copy_layer,
                        .on_layers_ctx = &copies};
    float *logits = NULL;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    fwd.kv = b.kv;
    copies.kv = &b.kv;
    copies.layer_bytes = b.kv.block_bytes / b.kv.n_layers;
    copies.copies = bt_calloc(1, b.kv.block_bytes);
    assert_non_null(copies.copies);
    assert_int_equal(bt_model_forward(b.model, &fwd, &logits), BT_OK);
    assert_int_equal(copies.n_told, b.kv.n_layers);
    assert_memory_equal(copies.copies, b.pool, b.kv.block_bytes);
    for (uint32_t i = 0; i < b.kv.n_layers; i++) {
        const uint8_t *layer = copies.copies + i * copies.layer_bytes;
        size_t n = 0;

        for (size_t k = 0; k < copies.layer_bytes; k++) {
            n += layer[k] != 0;
        }
        assert_true(n > copies.layer_bytes / 2);
    }
    bt_free(copies.copies);
    close_bench(&b);
}

static void layer_callback_runs_only_for_sequences_that_ask(void **state)
{
    bench_t b;
    bt_seq_t *seqs[2];

    (void)state;
    open_bench(&b, BT_KV_F16, 32); /* three chunks */
    for (uint32_t i = 0; i < 2; i++) {
        seqs[i] = make_seq(&b, 3, 0.0f);
        seqs[i]->leave_after_first = true;
        seqs[i]->tell_layers = i == 1;
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, 2);
    assert_int_equal(bt_seq_layers(seqs[0]), 0);
    assert_int_equal(bt_seq_layers(seqs[1]), b.kv.n_layers);
    for (uint32_t i = 0; i < 2; i++) {
        free_seq(seqs[i]);
    }
    close_bench(&b);
}

/* The elements of one place of a block of 16-bit numbers, as kernels.h orders
 * them, are all @a want. */
static bool place_holds(const bench_t *b, uint32_t block, uint32_t slot,
                        uint16_t want)
{
    const uint16_t *elems =
        (const uint16_t *)(const void *)((const uint8_t *)b->pool +
                                         block * b->kv.block_bytes);
    const size_t dim = b->kv.head_dim;

    for (size_t row = 0; row < 2u * b->kv.n_layers * b->kv.n_kv_heads; row++) {
        const bool values = row / b->kv.n_kv_heads % 2 == 1;

        for (size_t d = 0; d < dim; d++) {
            const size_t at = values ? slot / 2 * dim * 2 + d * 2 + slot % 2
                                     : d / 2 * T * 2 + slot * 2 + d % 2;

            if (elems[row * T * dim + at] != want) {
                return false;
            }
        }
    }
    return true;
}

/* 28 tokens: of the second block 12 places are taken and 4 are free, which
 * hold what was there before, or zeros where that is wanted. */
static void old_block_contents_are_cleared_on_request(void **state)
{
    bench_t b;
    bt_seq_t *seqs[2];

    (void)state;
    open_bench(&b, BT_KV_F16, 16);
    memset(b.pool, 0xee, N_BLOCKS * b.kv.block_bytes);
    for (uint32_t i = 0; i < 2; i++) {
        seqs[i] = make_seq(&b, 1, 0.0f);
        seqs[i]->leave_after_first = true;
        seqs[i]->clear_tail = i == 1;
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, 2);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t slot = 0; slot < T; slot++) {
            assert_false(place_holds(&b, seqs[i]->blocks[0], slot, 0));
            assert_false(place_holds(&b, seqs[i]->blocks[0], slot, 0xeeee));
            assert_int_equal(place_holds(&b, seqs[i]->blocks[1], slot, 0xeeee),
                             (i == 0) && (slot >= 12));
            assert_int_equal(place_holds(&b, seqs[i]->blocks[1], slot, 0),
                             (i == 1) && (slot >= 12));
        }
        free_seq(seqs[i]);
    }
    close_bench(&b);
}

static void end_id_ends_the_sequence(void **state)
{
    bench_t b;
    bt_seq_t *free_run;
    bt_seq_t *seq;
    uint32_t at = 0;

    (void)state;
    open_bench(&b, BT_KV_F16, 64);
    free_run = make_seq(&b, 1, 0.0f);
    assert_int_equal(bt_engine_submit(b.engine, free_run), BT_OK);
    run_until_left(&b, 1);

    seq = make_seq(&b, 1, 0.0f);
    seq->sampling.n_end_ids = 1;
    seq->sampling.end_ids[0] = free_run->tokens[seq->n_prompt + 4];
    while (free_run->tokens[seq->n_prompt + at] != seq->sampling.end_ids[0]) {
        at++; /* it may come earlier as well */
    }
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    run_until_left(&b, 1);
    assert_int_equal(seq->n_drawn, at + 1);
    free_seq(seq);
    free_seq(free_run);
    close_bench(&b);
}

static void canceled_sequence_leaves_and_others_continue(void **state)
{
    bench_t b;
    bt_seq_t *seqs[3];
    uint32_t n_canceled;

    (void)state;
    open_bench(&b, BT_KV_F16, 16);
    for (uint32_t i = 0; i < 3; i++) {
        seqs[i] = make_seq(&b, 5, 0.0f);
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    bt_engine_cancel(seqs[1]);
    n_canceled = run_until_left(&b, 3);
    assert_true(n_canceled <= 1); /* 0: it had finished before it was seen */
    assert_int_equal(seqs[0]->n_drawn, MAX_NEW);
    assert_int_equal(seqs[2]->n_drawn, MAX_NEW);
    for (uint32_t i = 0; i < 3; i++) {
        free_seq(seqs[i]);
    }
    close_bench(&b);
}

static void sequences_over_max_seqs_are_refused(void **state)
{
    bench_t b;
    bt_seq_t *seqs[MAX_SEQS + 1];

    (void)state;
    open_bench(&b, BT_KV_F16, 16);
    for (uint32_t i = 0; i <= MAX_SEQS; i++) {
        b.next_block = i;
        seqs[i] = make_seq(&b, 0, 0.0f);
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]),
                         (i < MAX_SEQS) ? BT_OK : BT_ERR_BUSY);
    }
    run_until_left(&b, MAX_SEQS);
    assert_int_equal(bt_engine_submit(b.engine, seqs[MAX_SEQS]), BT_OK);
    run_until_left(&b, 1);
    for (uint32_t i = 0; i <= MAX_SEQS; i++) {
        free_seq(seqs[i]);
    }
    close_bench(&b);
}

static void token_budget_below_one_block_is_refused(void **state)
{
    const bt_engine_config_t config = {
        .kv = {.tokens_per_block = 16}, .max_seqs = 1, .token_budget = 15};
    bt_engine_t *engine = NULL;

    (void)state;
    assert_int_equal(bt_engine_create(&config, &engine), BT_ERR_INVALID_PARAM);
    assert_null(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tokens_do_not_depend_on_chunks_or_batch),
        BT_TEST(chunks_are_computed_by_priority),
        BT_TEST(shorter_prompt_is_computed_first),
        BT_TEST(sequence_continues_from_transferred_kv),
        BT_TEST(layer_callback_runs_when_the_layer_is_complete),
        BT_TEST(layer_callback_runs_only_for_sequences_that_ask),
        BT_TEST(old_block_contents_are_cleared_on_request),
        BT_TEST(end_id_ends_the_sequence),
        BT_TEST(canceled_sequence_leaves_and_others_continue),
        BT_TEST(sequences_over_max_seqs_are_refused),
        BT_TEST(token_budget_below_one_block_is_refused),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
