/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that are computed inside an iteration under way. It is held in the
 * middle of a layer, so nothing here is a race. The bytes of single runs are
 * the expected ones. */
#include "common/base/status.h"
#include "tests/unit/inference/engine/gate.h"

#define BUDGET  64u
#define LONG    6u /* 143 tokens: three chunks */
#define N_DRAWN 6u

typedef struct happened {
    const bt_seq_t *seq;
    bt_report_kind_t kind;
    uint32_t n_computed;
    bt_finish_t finish;
} happened_t;

typedef struct story {
    happened_t items[128];
    uint32_t n, n_left;
    uint64_t last_iteration;
} story_t;

static bt_seq_t *make_prompt(bench_t *b, uint32_t i, uint32_t priority)
{
    bt_seq_t *seq = make_seq(b, i, (i == 2) ? 1.2f : 0.0f);

    seq->sched.turn.priority = priority;
    seq->max_new = N_DRAWN;
    return seq;
}

static void draw_alone(bench_t *b, uint32_t i, uint32_t tokens[N_DRAWN])
{
    bt_seq_t *seq = make_prompt(b, i, 0);

    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    assert_int_equal(run_until_left(b, 1), 0);
    memcpy(tokens, seq->tokens + seq->n_prompt, N_DRAWN * sizeof(*tokens));
    free_seq(seq);
}

static void assert_drew(bench_t *b, uint32_t i, const bt_seq_t *seq)
{
    uint32_t want[N_DRAWN];

    draw_alone(b, i, want);
    assert_int_equal(seq->n_drawn, N_DRAWN);
    assert_memory_equal(seq->tokens + seq->n_prompt, want, sizeof(want));
}

static void watch(bench_t *b, uint32_t until, story_t *story)
{
    const uint64_t end = bt_now_ns() + DEADLINE_NS;

    while (story->n_left < until) {
        bt_report_t *report = bt_engine_next(b->engine);

        assert_true(bt_now_ns() < end);
        if (report == NULL) {
            continue;
        }
        assert_int_equal(report->status, BT_OK);
        assert_true(report->iteration > story->last_iteration);
        assert_true(report->end_ns - report->start_ns >= report->preempting_ns);
        story->last_iteration = report->iteration;
        for (uint32_t k = 0; k < report->n_items; k++) {
            const bt_report_item_t *item = &report->items[k];

            BT_ASSERT_ALWAYS(story->n < BT_ARRAY_LEN(story->items));
            story->items[story->n++] = (happened_t){
                item->seq, item->kind, item->n_computed, item->finish};
            story->n_left += (item->kind == BT_REPORT_LEFT) ? 1 : 0;
        }
        bt_engine_recycle(b->engine, report);
    }
}

static uint32_t first_of(const story_t *story, const bt_seq_t *seq,
                         bt_report_kind_t kind)
{
    for (uint32_t i = 0; i < story->n; i++) {
        if ((story->items[i].seq == seq) && (story->items[i].kind == kind)) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* A long prompt begins; when n_done layers of its first chunk are done,
 * somebody comes. */
static bt_seq_t *hold_long(bench_t *b, uint32_t n_done)
{
    bt_seq_t *seq = make_prompt(b, LONG, 0);

    gate.calls_left = n_done - 1;
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    wait_for_arrival();
    return seq;
}

/* 28 tokens at once, or 51 in two passes, in one layer and the next. */
static void meet(bench_t *b, uint32_t n_done, uint32_t i, bool may)
{
    bt_seq_t *longer = hold_long(b, n_done);
    bt_seq_t *shorter = make_prompt(b, i, 1);
    story_t story = {0};

    assert_int_equal(bt_engine_submit(b->engine, shorter), BT_OK);
    sem_post(&gate.passes);
    watch(b, 2, &story);
    assert_int_equal(first_of(&story, shorter, BT_REPORT_TOKEN) <
                         first_of(&story, longer, BT_REPORT_CHUNK),
                     may);
    assert_int_equal(
        story.items[first_of(&story, longer, BT_REPORT_CHUNK)].n_computed,
        BUDGET);
    assert_drew(b, LONG, longer);
    assert_drew(b, i, shorter);
    free_seq(longer);
    free_seq(shorter);
}

static void higher_ordered_prompt_runs_at_the_next_layer_boundary(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_BF16, BT_KV_F16, BT_KV_INT8,
                                         BT_KV_FP8};

    (void)state;
    for (size_t t = 0; t < BT_ARRAY_LEN(types); t++) {
        for (uint32_t n_done = 1; n_done < LAYERS; n_done++) {
            bench_t b;

            open_gated(&b, types[t], BUDGET);
            meet(&b, n_done, 1, true);
            close_gated(&b);
        }
    }
}

static void preempting_prompt_of_two_chunks_takes_two_layers(void **state)
{
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
    meet(&b, 1, 2, true);
    /* Two would be needed, and one layer is left. */
    meet(&b, LAYERS - 1, 2, false);
    close_gated(&b);
}

static void
prompt_arriving_in_the_last_layer_waits_for_the_iteration(void **state)
{
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
    meet(&b, LAYERS, 1, false);
    close_gated(&b);
}

/* Behind the long one in the order, or canceled: nothing is computed inside. */
static void lower_ordered_prompts_wait_for_the_next_iteration(void **state)
{
    bt_seq_t *longer;
    bt_seq_t *later;
    bt_seq_t *canceled;
    story_t story = {0};
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
    longer = hold_long(&b, 2);
    later = make_prompt(&b, 1, 0);
    later->sched.turn.since_us = 1000000;
    canceled = make_prompt(&b, 0, 1);
    assert_int_equal(bt_engine_submit(b.engine, later), BT_OK);
    bt_engine_cancel(canceled);
    assert_int_equal(bt_engine_submit(b.engine, canceled), BT_OK);
    sem_post(&gate.passes);
    watch(&b, 3, &story);
    assert_ptr_equal(story.items[0].seq, longer);
    assert_int_equal(story.items[0].kind, BT_REPORT_CHUNK);
    assert_int_equal(canceled->n_drawn, 0);
    assert_int_equal(
        story.items[first_of(&story, canceled, BT_REPORT_LEFT)].finish,
        BT_FINISH_CANCELED);
    assert_drew(&b, LONG, longer);
    assert_drew(&b, 1, later);
    free_seq(longer);
    free_seq(later);
    free_seq(canceled);
    close_gated(&b);
}

/* A group of three, and a leader that leaves with its first token, as at a
 * prefill worker. */
static void all_choices_sample_at_a_layer_boundary(void **state)
{
    bt_seq_t *group[3];
    bt_seq_t *longer;
    story_t story = {0};
    bench_t b;

    (void)state;
    open_gated(&b, BT_KV_BF16, BUDGET);
    longer = hold_long(&b, 3);
    for (uint32_t i = 0; i < 3; i++) {
        group[i] = make_prompt(&b, 1, 1);
        group[i]->leave_after_first = true;
        if (i > 0) { /* one table: whoever leaves at once shares it */
            bt_free((void *)(uintptr_t)group[i]->blocks);
            group[i]->blocks = group[0]->blocks;
        }
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, group, 3), BT_OK);
    sem_post(&gate.passes);
    watch(&b, 4, &story);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t want[N_DRAWN];

        assert_true(first_of(&story, group[i], BT_REPORT_LEFT) <
                    first_of(&story, longer, BT_REPORT_CHUNK));
        draw_alone(&b, 1, want);
        assert_int_equal(group[i]->tokens[group[i]->n_prompt], want[0]);
        assert_int_equal(group[i]->n_chunks, 1);
    }
    assert_drew(&b, LONG, longer);
    for (uint32_t i = 0; i < 3; i++) {
        if (i > 0) {
            group[i]->blocks = NULL;
        }
        free_seq(group[i]);
    }
    free_seq(longer);
    close_gated(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(higher_ordered_prompt_runs_at_the_next_layer_boundary),
        BT_TEST(preempting_prompt_of_two_chunks_takes_two_layers),
        BT_TEST(prompt_arriving_in_the_last_layer_waits_for_the_iteration),
        BT_TEST(lower_ordered_prompts_wait_for_the_next_iteration),
        BT_TEST(all_choices_sample_at_a_layer_boundary),
    };

    return cmocka_run_group_tests(tests, make_deep_model, remove_model);
}
