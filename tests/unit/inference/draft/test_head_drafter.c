/* SPDX-License-Identifier: Apache-2.0 */
/* Drafts of a head, called as the engine calls it. Expected drafts are those of
 * a second call of the head that computes all positions anew, from the target's
 * hidden states and, for a draft behind others, its own output. */
#include "inference/draft/head_drafter.h"

#include "tests/unit/inference/model/heads.h"

#define MAX_SEQS 3u
#define FIRST    20u /* position of the first hidden state */

typedef struct drafting {
    pair_t pair;
    head_case_t head_case;
    bt_head_drafter_t *drafter;
    bt_batch_drafter_t hook;
    bt_sampler_t *sampler;
    uint32_t tokens[N_TOKENS];
    float *hidden; /* (N_TOKENS, width) of the target */
    uint32_t dim;
} drafting_t;

static bt_draft_cache_config_t cache_of(const pair_t *pair, uint32_t n_blocks)
{
    return (bt_draft_cache_config_t){
        .shape = {.n_layers = 1,
                  .n_kv_heads = pair->kv.n_kv_heads,
                  .tokens_per_block = T,
                  .head_dim = pair->kv.head_dim,
                  .elem_bytes = sizeof(uint16_t)},
        .type = pair->kv.type,
        .n_slots = MAX_SEQS,
        .n_blocks = n_blocks,
        .context_tokens = 256};
}

static drafting_t open_drafting(head_case_t c, uint32_t n_blocks)
{
    drafting_t d = {.pair = make_pair(&c), .head_case = c};
    const bt_draft_cache_config_t cache = cache_of(&d.pair, n_blocks);
    const bt_head_drafter_config_t config = {.model = d.pair.head,
                                             .n_vocab = d.pair.target.n_vocab,
                                             .max_seqs = MAX_SEQS,
                                             .cache = &cache};
    const size_t bytes = (size_t)N_TOKENS * d.pair.width * sizeof(float);

    d.dim = bt_model_hparams(d.pair.head)->dim;
    fill_tokens(d.tokens, N_TOKENS, d.pair.target.n_vocab);
    run_target(&d.pair, d.tokens, 0, N_TOKENS);
    d.hidden = bt_calloc(1, bytes);
    assert_non_null(d.hidden);
    memcpy(d.hidden, d.pair.taps.hidden, bytes);
    assert_int_equal(bt_head_drafter_create(&config, &d.drafter), BT_OK);
    assert_int_equal(bt_sampler_create(d.pair.target.n_vocab, &d.sampler),
                     BT_OK);
    d.hook = bt_head_drafter_hook(d.drafter);
    assert_int_equal(d.hook.taps.n, d.pair.taps.n);
    assert_int_equal(d.hook.taps.normed, d.pair.taps.normed);
    return d;
}

static void close_drafting(drafting_t *d)
{
    bt_sampler_destroy(d->sampler);
    bt_head_drafter_destroy(d->drafter);
    bt_free(d->hidden);
    free_pair(&d->pair);
}

/* A sequence of n of the tokens, with room for drafts. */
static bt_seq_t *make_seq(const drafting_t *d, uint32_t n, float temperature)
{
    bt_seq_t *seq = bt_calloc(1, sizeof(*seq));

    assert_non_null(seq);
    seq->tokens = bt_calloc(N_TOKENS + BT_ENGINE_SEQ_DRAFTS, sizeof(uint32_t));
    assert_non_null(seq->tokens);
    memcpy(seq->tokens, d->tokens, sizeof(d->tokens));
    seq->sched.n_tokens = n;
    seq->n_prompt = FIRST;
    seq->sampling = (bt_sampling_t){.temperature = temperature,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .seed = 11};
    return seq;
}

static void free_seq(bt_seq_t *seq)
{
    bt_free(seq->tokens);
    bt_free(seq);
}

/* An iteration computed up to the last known token but one. */
static void tell(const drafting_t *d, bt_seq_t *seq, uint32_t pos, uint32_t n)
{
    seq->sched.n_tokens = pos + n + 1;
    d->hook.computed(d->hook.ctx, seq, pos, n,
                     d->hidden + (size_t)pos * d->pair.width);
}

static uint32_t look_at(const drafting_t *d, bt_seq_t *seq)
{
    bt_next_draft_t next = {.seq = seq};

    d->hook.count_rows(d->hook.ctx, &next, 1);
    return next.n_rows;
}

/* Computes all positions from first on, and n_drafts behind the known tokens.
 * @return the next draft */
static uint32_t reference(const drafting_t *d, bt_seq_t *seq, uint32_t first,
                          uint32_t n_drafts)
{
    const pair_t *p = &d->pair;
    const uint32_t n_known = seq->sched.n_tokens - 1 - first;
    const uint32_t *ids = bt_model_target_ids(p->head);
    const uint32_t n_vocab = p->target.n_vocab;
    float *in = bt_calloc((size_t)MAX_ROWS * d->dim, sizeof(float));
    float *next = bt_calloc((size_t)MAX_ROWS * d->dim, sizeof(float));
    float *row = bt_calloc(n_vocab, sizeof(float));
    float *logits;
    uint32_t id;

    assert_true((in != NULL) && (next != NULL) && (row != NULL));
    bt_model_fuse_hidden(p->head, d->hidden + (size_t)first * p->width, n_known,
                         in);
    logits = run_head(p, seq->tokens + first + 1, 0, n_known, 1, in, next);
    for (uint32_t i = 0; i < n_drafts; i++) {
        memcpy(in, next, d->dim * sizeof(float));
        logits = run_head(p, seq->tokens + seq->sched.n_tokens + i, n_known + i,
                          1, 1, in, next);
    }
    for (uint32_t i = 0; i < n_vocab; i++) {
        row[i] = -INFINITY;
    }
    for (uint32_t i = 0; i < p->n_vocab; i++) {
        row[(ids != NULL) ? ids[i] : i] = logits[i];
    }
    id = bt_seq_draw(seq, d->sampler, seq->sched.n_tokens + n_drafts, row,
                     n_vocab);
    bt_free(in);
    bt_free(next);
    bt_free(row);
    return id;
}

/* Drafts n_drafts tokens, and holds each against the reference. */
static void expect_drafts(const drafting_t *d, bt_seq_t *seq, uint32_t first,
                          uint32_t n_drafts)
{
    const uint32_t n = seq->sched.n_tokens;

    assert_in_range(look_at(d, seq), 1, BT_ENGINE_ROUND_ROWS);
    for (uint32_t i = 0; i < n_drafts; i++) {
        bt_next_draft_t next = {.seq = seq, .n_drafts = i};

        assert_int_equal(d->hook.draft(d->hook.ctx, &next, 1), BT_OK);
        assert_int_equal(next.id, reference(d, seq, first, i));
        assert_true((next.probability > 0) && (next.probability <= 1));
        seq->tokens[n + i] = next.id;
    }
    /* The target's draws: here its own tokens, mostly others. */
    memcpy(seq->tokens + n, d->tokens + n,
           (N_TOKENS - n) * sizeof(*seq->tokens));
}

/* After drafts one token is drawn, or as many as if all had been right: what
 * the head computed from its own output is replaced. */
static void drafts_are_those_of_all_hidden_states(void **state)
{
    const head_case_t cases[] = {eagle3_case(false), eagle3_case(true),
                                 nextn_case(false), nextn_case(true)};
    static const uint32_t n_drawn[] = {1, 1, 4, 1, 5, 2, 1, 3};
    static const float temperatures[] = {0, 0.9f};

    (void)state;
    for (size_t k = 0; k < BT_ARRAY_LEN(cases); k++) {
        drafting_t d = open_drafting(cases[k], 16);

        for (size_t t = 0; t < BT_ARRAY_LEN(temperatures); t++) {
            bt_seq_t *seq = make_seq(&d, FIRST + 1, temperatures[t]);
            uint32_t pos = FIRST;

            assert_int_equal(look_at(&d, seq), 0); /* no hidden state yet */
            for (size_t i = 0; i < BT_ARRAY_LEN(n_drawn); i++) {
                tell(&d, seq, pos, n_drawn[i]);
                pos += n_drawn[i];
                expect_drafts(&d, seq, FIRST, 4);
            }
            free_seq(seq);
        }
        close_drafting(&d);
    }
}

/* Several sequences in one call have the drafts that each has alone. */
static void sequences_of_one_call_do_not_differ_from_one_alone(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_next_draft_t next[MAX_SEQS];
    bt_seq_t *seqs[MAX_SEQS];

    (void)state;
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        seqs[i] = make_seq(&d, 1, 0.5f * (float)i);
        tell(&d, seqs[i], FIRST + i, 2 + i);
        next[i] = (bt_next_draft_t){.seq = seqs[i]};
    }
    d.hook.count_rows(d.hook.ctx, next, MAX_SEQS);
    for (uint32_t round = 0; round < 3; round++) {
        assert_int_equal(d.hook.draft(d.hook.ctx, next, MAX_SEQS), BT_OK);
        for (uint32_t i = 0; i < MAX_SEQS; i++) {
            assert_int_equal(next[i].id,
                             reference(&d, seqs[i], FIRST + i, round));
            seqs[i]->tokens[seqs[i]->sched.n_tokens + round] = next[i].id;
            next[i].n_drafts++;
        }
    }
    for (uint32_t i = 0; i < MAX_SEQS; i++) {
        free_seq(seqs[i]);
    }
    close_drafting(&d);
}

/* 17 tokens at a time are more than the rows of a round, and go on at once. */
static void all_drafts_of_an_iteration_may_be_right(void **state)
{
    drafting_t d = open_drafting(nextn_case(false), 16);
    bt_seq_t *seq = make_seq(&d, 1, 0);

    (void)state;
    tell(&d, seq, FIRST, 1);
    expect_drafts(&d, seq, FIRST, 2);
    tell(&d, seq, FIRST + 1, 17);
    expect_drafts(&d, seq, FIRST, 2);
    tell(&d, seq, FIRST + 18, 17);
    expect_drafts(&d, seq, FIRST, 2);
    free_seq(seq);
    close_drafting(&d);
}

/* 17 + 8 are kept: a sequence that lags catches up, and one of which more came
 * begins anew. */
static void sequence_without_drafts_for_long_goes_on(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seq = make_seq(&d, 1, 0.8f);
    uint32_t pos = FIRST;
    uint32_t n;

    (void)state;
    for (; pos < FIRST + 20; pos++) {
        tell(&d, seq, pos, 1);
    }
    assert_int_equal(look_at(&d, seq), 20);
    assert_int_equal(d.hook.catch_up(d.hook.ctx, seq, 7, &n), BT_OK);
    assert_int_equal(n, 7);
    assert_int_equal(look_at(&d, seq), 13);
    assert_int_equal(d.hook.catch_up(d.hook.ctx, seq, 100, &n), BT_OK);
    assert_int_equal(n, 12); /* all but the last */
    assert_int_equal(d.hook.catch_up(d.hook.ctx, seq, 100, &n), BT_OK);
    assert_int_equal(n, 0);
    expect_drafts(&d, seq, FIRST, 3);
    for (; pos < FIRST + 50; pos++) { /* 30 more */
        tell(&d, seq, pos, 1);
    }
    assert_int_equal(look_at(&d, seq), 1); /* the others were computed */
    expect_drafts(&d, seq, pos - 25, 3);
    free_seq(seq);
    close_drafting(&d);
}

/* A gap, and other tokens: nothing of before is used. */
static void sequence_that_is_run_again_begins_anew(void **state)
{
    drafting_t d = open_drafting(eagle3_case(true), 16);
    bt_seq_t *seq = make_seq(&d, 1, 0);

    (void)state;
    tell(&d, seq, FIRST, 2);
    expect_drafts(&d, seq, FIRST, 2);
    tell(&d, seq, FIRST + 10, 2); /* it went on at another worker meanwhile */
    expect_drafts(&d, seq, FIRST + 10, 2);
    seq->sched.n_tokens--;
    assert_int_equal(look_at(&d, seq), 0);
    seq->sched.n_tokens++;
    tell(&d, seq, FIRST + 12, 1);
    seq->tokens[FIRST + 13]++; /* another token than was told */
    assert_int_equal(look_at(&d, seq), 0);
    free_seq(seq);
    close_drafting(&d);
}

/* Slots of two others have its first tokens, and end before what is kept: K and
 * V of neither can be gone on from. */
static void gap_behind_slots_of_equal_sequences_begins_anew(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seqs[3];
    bt_next_draft_t next[2];

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        seqs[i] = make_seq(&d, 1, 0);
    }
    for (uint32_t i = 0; i < 2; i++) {
        tell(&d, seqs[i], FIRST, 1);
        next[i] = (bt_next_draft_t){.seq = seqs[i]};
    }
    d.hook.count_rows(d.hook.ctx, next, 2);
    assert_int_equal(d.hook.draft(d.hook.ctx, next, 2), BT_OK);
    tell(&d, seqs[2], FIRST + 4, 2);
    assert_int_equal(look_at(&d, seqs[2]), 2);
    expect_drafts(&d, seqs[2], FIRST + 4, 2);
    for (uint32_t i = 0; i < 3; i++) {
        free_seq(seqs[i]);
    }
    close_drafting(&d);
}

/* A second sequence of the same tokens takes over K and V of the first one's 5
 * positions, and keeps them from turn to turn. */
static void
slot_taken_over_goes_on_from_the_hidden_states_of_another(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seqs[2] = {make_seq(&d, 1, 0), make_seq(&d, 1, 0)};

    (void)state;
    tell(&d, seqs[0], FIRST, 5);
    expect_drafts(&d, seqs[0], FIRST, 1);
    tell(&d, seqs[1], FIRST, 7);
    assert_int_equal(look_at(&d, seqs[1]), 2);
    assert_int_equal(look_at(&d, seqs[1]), 2); /* no draft was asked for */
    expect_drafts(&d, seqs[1], FIRST, 3);
    free_seq(seqs[0]);
    free_seq(seqs[1]);
    close_drafting(&d);
}

/* Neither the slot nor hidden states of a sequence at the same address, whose
 * tokens this one goes on with. */
static void nothing_of_another_namespace_is_used(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seqs[2] = {make_seq(&d, 1, 0), make_seq(&d, 1, 0)};

    (void)state;
    tell(&d, seqs[0], FIRST, 5);
    expect_drafts(&d, seqs[0], FIRST, 1);
    seqs[1]->space = (bt_hash128_t){0, 1};
    tell(&d, seqs[1], FIRST, 7);
    assert_int_equal(look_at(&d, seqs[1]), 7);
    expect_drafts(&d, seqs[1], FIRST, 3);
    tell(&d, seqs[1], FIRST + 7, 2);
    seqs[1]->space = (bt_hash128_t){0, 2};
    assert_int_equal(look_at(&d, seqs[1]), 0);
    tell(&d, seqs[1], FIRST + 9, 2);
    assert_int_equal(look_at(&d, seqs[1]), 2);
    expect_drafts(&d, seqs[1], FIRST + 9, 3);
    free_seq(seqs[0]);
    free_seq(seqs[1]);
    close_drafting(&d);
}

/* The drafts of the first one are the tokens of the second one: K and V behind
 * its known tokens are of the head's own output, whoever takes them over. */
static void slot_taken_over_has_nothing_of_the_heads_own_output(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seqs[2] = {make_seq(&d, 1, 0), make_seq(&d, 1, 0)};

    (void)state;
    tell(&d, seqs[0], FIRST, 5);
    assert_int_equal(look_at(&d, seqs[0]), 5);
    for (uint32_t i = 0; i < 4; i++) {
        bt_next_draft_t next = {.seq = seqs[0], .n_drafts = i};

        assert_int_equal(d.hook.draft(d.hook.ctx, &next, 1), BT_OK);
        seqs[0]->tokens[FIRST + 6 + i] = next.id;
    }
    memcpy(seqs[1]->tokens, seqs[0]->tokens, sizeof(d.tokens));
    tell(&d, seqs[1], FIRST, 10);
    assert_int_equal(look_at(&d, seqs[1]), 5);
    expect_drafts(&d, seqs[1], FIRST, 3);
    free_seq(seqs[0]);
    free_seq(seqs[1]);
    close_drafting(&d);
}

/* The cache has blocks for one sequence of up to 32 positions. */
static void sequence_without_room_has_no_drafts(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 2);
    bt_seq_t *seqs[2] = {make_seq(&d, 1, 0), make_seq(&d, 1, 0)};
    bt_next_draft_t next[2] = {{.seq = seqs[0]}, {.seq = seqs[1]}};

    (void)state;
    tell(&d, seqs[0], FIRST, 17);
    tell(&d, seqs[1], FIRST, 1);
    d.hook.count_rows(d.hook.ctx, next, 2);
    assert_int_equal(next[0].n_rows, 17);
    assert_int_equal(next[1].n_rows, 0);
    next[1].n_drafts = 0;
    assert_int_equal(d.hook.draft(d.hook.ctx, &next[1], 1), BT_OK);
    assert_int_equal(next[1].id, UINT32_MAX);
    free_seq(seqs[0]);
    free_seq(seqs[1]);
    close_drafting(&d);
}

/* Of more sequences than seats the first ones keep theirs while they run. */
static void further_sequences_have_no_drafts(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seqs[MAX_SEQS + 1];

    (void)state;
    for (uint32_t i = 0; i <= MAX_SEQS; i++) {
        seqs[i] = make_seq(&d, 1, 0);
        tell(&d, seqs[i], FIRST, 1);
    }
    for (uint32_t i = 0; i <= MAX_SEQS; i++) {
        bt_next_draft_t next = {.seq = seqs[i]};

        d.hook.count_rows(d.hook.ctx, &next, 1);
        assert_int_equal(next.n_rows, (i < MAX_SEQS) ? 1 : 0);
    }
    /* The others are idle for two turns. */
    tell(&d, seqs[MAX_SEQS], FIRST + 1, 1);
    assert_int_equal(look_at(&d, seqs[MAX_SEQS]), 1);
    for (uint32_t i = 0; i <= MAX_SEQS; i++) {
        free_seq(seqs[i]);
    }
    close_drafting(&d);
}

static void ban_all(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                    float *logits, uint32_t n_vocab)
{
    const uint32_t *const ids = ctx;

    (void)tokens;
    (void)n_tokens;
    (void)n_vocab;
    for (uint32_t i = 0; i < 96; i++) {
        logits[ids[i]] = -INFINITY;
    }
}

static void no_draft_is_made_where_all_that_the_head_has_is_banned(void **state)
{
    drafting_t d = open_drafting(eagle3_case(false), 16);
    bt_seq_t *seq = make_seq(&d, 1, 0);
    const bt_logits_processor_t ban = {
        .apply = ban_all,
        .ctx = (void *)(uintptr_t)bt_model_target_ids(d.pair.head)};
    bt_next_draft_t next = {.seq = seq};

    (void)state;
    seq->processors = &ban;
    seq->n_processors = 1;
    tell(&d, seq, FIRST, 1);
    assert_int_equal(look_at(&d, seq), 1);
    assert_int_equal(d.hook.draft(d.hook.ctx, &next, 1), BT_OK);
    assert_int_equal(next.id, UINT32_MAX);
    free_seq(seq);
    close_drafting(&d);
}

static void head_drafter_survives_every_failed_allocation(void **state)
{
    head_case_t c = eagle3_case(false);
    pair_t pair = make_pair(&c);
    const bt_draft_cache_config_t cache = cache_of(&pair, 4);
    const bt_head_drafter_config_t config = {.model = pair.head,
                                             .n_vocab = pair.target.n_vocab,
                                             .max_seqs = MAX_SEQS,
                                             .cache = &cache};
    bt_head_drafter_t *drafter = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_head_drafter_create(&config, &drafter);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 15);
    bt_head_drafter_destroy(drafter);
    bt_head_drafter_destroy(NULL);
    free_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(drafts_are_those_of_all_hidden_states),
        BT_TEST(sequences_of_one_call_do_not_differ_from_one_alone),
        BT_TEST(all_drafts_of_an_iteration_may_be_right),
        BT_TEST(sequence_without_drafts_for_long_goes_on),
        BT_TEST(sequence_that_is_run_again_begins_anew),
        BT_TEST(gap_behind_slots_of_equal_sequences_begins_anew),
        BT_TEST(slot_taken_over_goes_on_from_the_hidden_states_of_another),
        BT_TEST(slot_taken_over_has_nothing_of_the_heads_own_output),
        BT_TEST(nothing_of_another_namespace_is_used),
        BT_TEST(sequence_without_room_has_no_drafts),
        BT_TEST(further_sequences_have_no_drafts),
        BT_TEST(no_draft_is_made_where_all_that_the_head_has_is_banned),
        BT_TEST(head_drafter_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
