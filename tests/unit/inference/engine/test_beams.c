/* SPDX-License-Identifier: Apache-2.0 */
/* Beams on the engine: their answers are those of a search that knows nothing
 * of KV, which asks the engine for the logits behind each of its sequences
 * anew; in company, with cancels, and submitted again. */
#include <math.h>

#include "inference/engine/beams.h"
#include "inference/model/logits.h"
#include "tests/unit/inference/engine/bench.h"

#define MAX_WIDTH 6u
#define LENGTH    9u

/* ---- a search by single sequences ---- */

typedef struct path {
    uint32_t ids[LENGTH];
    double sum;
} path_t;

/* Logits behind a prompt and these ids, by a sequence of its own. */
static void logits_behind(bench_t *b, uint32_t prompt, const uint32_t *ids,
                          uint32_t n, float *logits)
{
    bt_seq_t *seq = make_seq(b, prompt, 0.0f);
    const bt_seq_rows_t rows = {
        .from = seq->n_prompt + n - 1, .n = 1, .logits = logits};

    memcpy(seq->tokens + seq->n_prompt, ids, n * sizeof(*ids));
    seq->sched.n_tokens += n;
    seq->max_new = 1;
    seq->rows = &rows;
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    run_until_left(b, 1);
    free_seq(seq);
    b->next_block = 0;
}

/* The best ids of a row, by looking for each among all; of equal ones the
 * lower. */
static uint32_t best_but(const float *logits, uint32_t n_vocab,
                         const bool *taken)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t id = 0; id < n_vocab; id++) {
        if (!taken[id] &&
            ((best == UINT32_MAX) || (logits[id] > logits[best]))) {
            best = id;
        }
    }
    return best;
}

/* Keeps the `width` best paths of each length, none of which ends. */
static void plain_search(bench_t *b, uint32_t prompt, uint32_t width,
                         path_t *paths)
{
    const uint32_t n_vocab = bt_model_hparams(b->model)->n_vocab;
    float *logits = bt_calloc(n_vocab, sizeof(*logits));
    bool *taken = bt_calloc(n_vocab, sizeof(*taken));
    path_t found[MAX_WIDTH * MAX_WIDTH];
    uint32_t n_paths = 1;

    memset(paths, 0, width * sizeof(*paths));
    for (uint32_t n = 0; n < LENGTH; n++) {
        uint32_t n_found = 0;

        for (uint32_t k = 0; k < n_paths; k++) {
            double sum;

            logits_behind(b, prompt, paths[k].ids, n, logits);
            sum = bt_logprob_sum(logits, n_vocab);
            memset(taken, 0, n_vocab * sizeof(*taken));
            for (uint32_t i = 0; i < width; i++) {
                const uint32_t id = best_but(logits, n_vocab, taken);

                taken[id] = true;
                found[n_found] = paths[k];
                found[n_found].ids[n] = id;
                found[n_found++].sum += (double)logits[id] - sum;
            }
        }
        n_paths = width;
        for (uint32_t k = 0; k < width; k++) {
            uint32_t best = 0;

            for (uint32_t i = 1; i < n_found; i++) {
                best = (found[i].sum > found[best].sum) ? i : best;
            }
            paths[k] = found[best];
            found[best].sum = -INFINITY;
        }
    }
    bt_free(logits);
    bt_free(taken);
}

/* ---- beams ---- */

/* A sequence with beams of prompt i, whose blocks lie anywhere. */
static bt_seq_t *make_beams(bench_t *b, uint32_t i, uint32_t width,
                            uint32_t max_new)
{
    bt_seq_t *seq = make_seq(b, i, 0.0f);
    const bt_beams_config_t config = {
        .params = {.width = width,
                   .n_returned = width,
                   .length_penalty = 1.0f,
                   .early_stopping = BT_SCHED_BEAM_STOP_NEVER},
        .tokens = seq->tokens,
        .n_tokens = seq->n_prompt,
        .max_new = max_new,
        .tokens_per_block = T,
        .n_vocab = bt_model_hparams(b->model)->n_vocab,
    };
    const uint32_t n =
        (uint32_t)bt_beams_n_blocks(width, seq->n_prompt, max_new, T);
    uint32_t *blocks = bt_calloc(n, sizeof(*blocks));

    assert_non_null(blocks);
    for (uint32_t k = 0; k < n; k++) {
        blocks[k] = (5 * (b->next_block + k)) % N_BLOCKS;
    }
    b->next_block += n;
    bt_free((uint32_t *)(uintptr_t)seq->blocks);
    seq->blocks = blocks;
    seq->max_new = max_new;
    assert_int_equal(bt_beams_create(&config, &seq->beams), BT_OK);
    return seq;
}

static void free_beams(bt_seq_t *seq)
{
    bt_beams_destroy(seq->beams);
    free_seq(seq);
}

static void assert_answers(const bt_seq_t *seq, const path_t *paths,
                           uint32_t width)
{
    assert_int_equal(bt_beams_n_answers(seq->beams), width);
    for (uint32_t k = 0; k < width; k++) {
        const bt_beams_answer_t answer = bt_beams_answer(seq->beams, k);
        double sum = 0.0;

        assert_int_equal(answer.n, LENGTH);
        assert_memory_equal(answer.ids, paths[k].ids, sizeof(paths[k].ids));
        for (uint32_t i = 0; i < LENGTH; i++) {
            sum += answer.logprobs[i];
        }
        assert_true(sum == paths[k].sum); /* added in one order: bit for bit */
    }
}

/* Fills the blocks of the prompt, of which beams have written over the last. */
static void prefill(bench_t *b, uint32_t i, const bt_seq_t *of)
{
    bt_seq_t *seq = make_seq(b, i, 0.0f);

    bt_free((uint32_t *)(uintptr_t)seq->blocks);
    seq->blocks = of->blocks;
    seq->leave_after_first = true;
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    run_until_left(b, 1);
    seq->blocks = NULL;
    free_seq(seq);
}

/* Prompts of 5, 28 and 97 tokens: less than a block, a part of one, and one
 * that the search crosses at once. */
static void answers_are_those_of_a_search_without_kv(void **state)
{
    static const uint32_t budgets[] = {16, 64};
    static const uint32_t prompts[] = {0, 1, 4};
    bench_t b;

    (void)state;
    for (uint32_t round = 0; round < 6; round++) {
        const uint32_t i = prompts[round % 3];
        const uint32_t width = 2 + round % 5;
        path_t paths[MAX_WIDTH];
        bt_seq_t *seq;

        open_bench(&b, BT_KV_BF16, budgets[round / 3]);
        plain_search(&b, i, width, paths);
        seq = make_beams(&b, i, width, LENGTH);
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        assert_int_equal(run_until_left(&b, 1), 0);
        assert_int_equal(seq->n_drawn, LENGTH);
        assert_int_equal(seq->sched.n_tokens, seq->n_prompt);
        assert_answers(seq, paths, width);

        /* Again, from the last token of the prompt on, as behind a transfer. */
        prefill(&b, i, seq);
        seq->sched.n_computed = seq->n_prompt - 1;
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        assert_int_equal(run_until_left(&b, 1), 0);
        assert_answers(seq, paths, width);
        free_beams(seq);
        close_bench(&b);
    }
}

/* Each block belongs to one of the sequences. */
static void assert_blocks_are_disjoint(bt_seq_t *const *seqs, uint32_t n)
{
    bool taken[N_BLOCKS] = {false};

    for (uint32_t i = 0; i < n; i++) {
        const bt_seq_t *seq = seqs[i];
        const uint32_t n_blocks =
            (seq->beams == NULL)
                ? bt_kv_blocks_for(seq->n_prompt + seq->max_new, T)
                : (uint32_t)bt_beams_n_blocks(bt_beams_width(seq->beams),
                                              seq->n_prompt, seq->max_new, T);

        for (uint32_t k = 0; k < n_blocks; k++) {
            assert_false(taken[seq->blocks[k]]);
            taken[seq->blocks[k]] = true;
        }
    }
}

/* A search beside sequences that draw, one that is canceled, and another
 * search. */
static void answers_do_not_depend_on_company(void **state)
{
    path_t paths[MAX_WIDTH];
    bt_seq_t *seqs[4];
    uint32_t n_canceled;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    plain_search(&b, 1, 4, paths);
    seqs[0] = make_beams(&b, 1, 4, LENGTH);
    seqs[1] = make_beams(&b, 4, 2, 40);
    b.next_block = 101; /* behind those of the searches */
    seqs[2] = make_seq(&b, 2, 0.9f);
    seqs[3] = make_beams(&b, 3, 2, 30); /* one seat too many */
    assert_blocks_are_disjoint(seqs, 4);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    assert_int_equal(bt_engine_submit(b.engine, seqs[3]), BT_ERR_BUSY);
    bt_engine_cancel(seqs[1]);
    n_canceled = run_until_left(&b, 3);
    assert_true(n_canceled <= 1);
    assert_answers(seqs[0], paths, 4);
    assert_int_equal(bt_engine_submit(b.engine, seqs[3]), BT_OK);
    assert_int_equal(run_until_left(&b, 1), 0);
    assert_int_equal(bt_beams_n_answers(seqs[3]->beams), 2);
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2) {
            free_seq(seqs[i]);
        } else {
            free_beams(seqs[i]);
        }
    }
    close_bench(&b);
}

/* Wherever the search is canceled, a second one gives all answers. */
static void canceled_search_begins_again_at_the_prompt(void **state)
{
    path_t paths[MAX_WIDTH];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_BF16, 16);
    plain_search(&b, 1, 3, paths);
    for (uint32_t at = 1; at < 8; at++) {
        bt_seq_t *seq = make_beams(&b, 1, 3, LENGTH);
        bool has_left = false;
        uint32_t n_reports = 0;

        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        while (!has_left) {
            bt_report_t *report = bt_engine_next(b.engine);

            if (report == NULL) {
                continue;
            }
            n_reports++;
            if (n_reports == at) {
                bt_engine_cancel(seq);
            }
            for (uint32_t i = 0; i < report->n_items; i++) {
                has_left =
                    has_left || (report->items[i].kind == BT_REPORT_LEFT);
            }
            bt_engine_recycle(b.engine, report);
        }
        assert_int_equal(seq->sched.n_tokens, seq->n_prompt);
        assert_true(seq->sched.n_computed <= seq->n_prompt);
        atomic_store(&seq->cancel, false);
        seq->sched.n_computed = 0;
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        assert_int_equal(run_until_left(&b, 1), 0);
        assert_answers(seq, paths, 3);
        free_beams(seq);
        b.next_block = 0;
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(answers_are_those_of_a_search_without_kv),
        BT_TEST(answers_do_not_depend_on_company),
        BT_TEST(canceled_search_begins_again_at_the_prompt),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
