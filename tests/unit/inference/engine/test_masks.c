/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences with a grammar. Tokens are one letter, or two, so most texts can be
 * written in several ways; what an answer spells is checked by hand. */
#include <stdio.h>

#include "common/grammar/compile.h"
#include "inference/engine/engine_priv.h"
#include "tests/support/draw.h"
#include "tests/unit/inference/engine/bench.h"

#define END_ID  250u /* of the model; no text */
#define LETTERS 26u

static const char *const words[] = {"cab", "catalog", "dog", "abracadabra"};
#define WORDS "[\"cab\",\"catalog\",\"dog\",\"abracadabra\"]"

static size_t spell(uint32_t id, uint8_t text[2])
{
    if (id == END_ID) {
        return 0;
    }
    if (id < LETTERS) {
        text[0] = (uint8_t)('a' + id);
        return 1;
    }
    text[0] = (uint8_t)('a' + id / LETTERS);
    text[1] = (uint8_t)('a' + id % LETTERS);
    return 2;
}

static const uint8_t *bytes_of(void *ctx, uint32_t id, size_t *n_p)
{
    *n_p = spell(id, ctx);
    return ctx;
}

typedef struct rules {
    bt_token_trie_t *trie;
    bt_grammar_t *grammar;
    bt_matcher_t *matcher;
} rules_t;

static rules_t rules_of(bt_grammar_kind_t kind, const char *text,
                        uint32_t max_mask_steps)
{
    const bt_grammar_source_t source = {
        .kind = kind, .text = text, .bytes = strlen(text)};
    const uint32_t end_id = END_ID;
    const char *load_why = "";
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    uint8_t letters[2];
    uint8_t *program = NULL;
    size_t bytes = 0;
    rules_t r;
    bt_matcher_config_t config = {.max_bytes = 1 << 20,
                                  .max_mask_steps = max_mask_steps};

    assert_int_equal(bt_token_trie_create(bt_tiny_model_default().n_vocab,
                                          bytes_of, letters, &end_id, 1,
                                          &r.trie),
                     BT_OK);
    if (bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)) !=
        BT_OK) {
        fail_msg("%s", why);
    }
    assert_int_equal(bt_grammar_load(program, bytes, &load_why, &r.grammar),
                     BT_OK);
    bt_free(program);
    config.grammar = r.grammar;
    config.trie = r.trie;
    assert_int_equal(bt_matcher_create(&config, &r.matcher), BT_OK);
    return r;
}

static void rules_fini(rules_t *r)
{
    bt_matcher_destroy(r->matcher);
    bt_grammar_free(r->grammar);
    bt_token_trie_destroy(r->trie);
}

static bt_seq_t *make_ruled(bench_t *b, const rules_t *r, uint32_t i)
{
    bt_seq_t *seq = make_seq(b, i, (i % 2 == 0) ? 0.0f : 1.5f);

    seq->sampling.n_end_ids = 1;
    seq->sampling.end_ids[0] = END_ID;
    seq->grammar.matcher = r->matcher;
    seq->grammar.trie = r->trie;
    return seq;
}

/* Spells the answer, without an end id. */
static const char *answer_of(const bt_seq_t *seq, char text[2 * MAX_NEW + 1])
{
    size_t n = 0;

    for (uint32_t i = seq->n_prompt; i < seq->sched.n_tokens; i++) {
        n += spell(seq->tokens[i], (uint8_t *)text + n);
    }
    text[n] = '\0';
    return text;
}

static void assert_is_word(const bt_seq_t *seq)
{
    char text[2 * MAX_NEW + 1];
    bool is_word = false;

    (void)answer_of(seq, text);
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        is_word = is_word || (strcmp(text, words[i]) == 0);
    }
    if (!is_word) {
        fail_msg("%s is no word", text);
    }
    assert_int_equal(seq->tokens[seq->sched.n_tokens - 1], END_ID);
    assert_false(seq->grammar.has_failed);
    assert_true(seq->grammar.counts.n_masks >= seq->n_drawn);
}

#define N_CASES 6u

/* Each answer that may be cut is whole where it must be, however few tokens it
 * may have. */
static void answers_are_whole_within_their_tokens(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_REGEX, "[a-h]{2,}(xy)?z", 0);
    uint32_t n_cut = 0;

    (void)state;
    assert_int_equal(bt_matcher_know_distances(r.matcher), BT_OK);
    for (uint32_t most = 3; most <= 9; most++) {
        for (uint32_t completes = 0; completes < 2; completes++) {
            bt_seq_t *seqs[N_CASES];
            bench_t b;

            open_bench(&b, BT_KV_F16, 32);
            for (uint32_t i = 0; i < N_CASES; i++) {
                seqs[i] = make_ruled(&b, &r, i);
                seqs[i]->max_new = most;
                seqs[i]->grammar.max_tokens = (completes != 0) ? most : 0;
                assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
            }
            run_until_left(&b, N_CASES);
            for (uint32_t i = 0; i < N_CASES; i++) {
                char text[2 * MAX_NEW + 1];
                const bool is_whole =
                    strchr(answer_of(seqs[i], text), 'z') != NULL;

                assert_false(seqs[i]->grammar.has_failed);
                assert_true((completes == 0) || is_whole);
                n_cut += ((completes == 0) && !is_whole) ? 1 : 0;
                free_seq(seqs[i]);
            }
            close_bench(&b);
        }
    }
    assert_true(n_cut > 0);
    rules_fini(&r);
}

/* All at a time, with one matcher. */
static void answers_follow_their_grammar(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
    bt_seq_t *seqs[N_CASES];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < N_CASES; i++) {
        seqs[i] = make_ruled(&b, &r, i);
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    run_until_left(&b, N_CASES);
    for (uint32_t i = 0; i < N_CASES; i++) {
        assert_is_word(seqs[i]);
        free_seq(seqs[i]);
    }
    close_bench(&b);
    rules_fini(&r);
}

/* Drafts that are right, wrong, of no word, and end ids. */
typedef struct guesser {
    const uint32_t *tokens;
    uint32_t n;
    uint64_t rng;
    uint32_t most_asked;
} guesser_t;

static bt_draft_t guess(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts)
{
    static const uint32_t odd[] = {END_ID, 25, 1u << 20, 0, 3};
    guesser_t *g = ctx;

    (void)tokens;
    g->most_asked = (max > g->most_asked) ? max : g->most_asked;
    for (uint32_t i = 0; i < max; i++) {
        const uint32_t at = n_tokens + i;

        drafts[i] = (at < g->n) ? g->tokens[at] : END_ID;
        if (draw_below(&g->rng, 6) == 0) {
            drafts[i] = odd[draw_below(&g->rng, BT_ARRAY_LEN(odd))];
        }
    }
    return (bt_draft_t){.n = max};
}

static void drafts_change_no_token_of_a_grammar(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
    uint32_t n_accepted = 0;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < 3 * N_CASES; i++) {
        bt_seq_t *alone = make_ruled(&b, &r, i % N_CASES);
        bt_seq_t *seq = make_ruled(&b, &r, i % N_CASES);
        guesser_t g = {.rng = i + 1};

        assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
        run_until_left(&b, 1);
        g.tokens = alone->tokens;
        g.n = alone->sched.n_tokens;
        seq->drafter = (bt_drafter_t){.propose = guess, .ctx = &g};
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        run_until_left(&b, 1);
        assert_is_word(seq);
        assert_int_equal(seq->sched.n_tokens, alone->sched.n_tokens);
        assert_memory_equal(seq->tokens, alone->tokens,
                            alone->sched.n_tokens * sizeof(uint32_t));
        assert_true(g.most_asked > 0);
        n_accepted += seq->n_accepted;
        free_seq(seq);
        free_seq(alone);
        b.next_block = 0;
    }
    assert_true(n_accepted > N_CASES);
    close_bench(&b);
    rules_fini(&r);
}

static void drafts_by(const rules_t *r, bt_seq_t *seq, uint32_t max,
                      const uint32_t *want, const uint8_t *want_matches,
                      uint32_t n)
{
    uint8_t matches[BT_ENGINE_SEQ_DRAFTS] = {0};

    seq->grammar.matcher = r->matcher;
    seq->grammar.trie = r->trie;
    seq->grammar.cursor = (bt_matcher_cursor_t){0};
    assert_int_equal(bt_engine_draft_by_grammar(seq, max, matches), n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(seq->tokens[seq->sched.n_tokens + i], want[i]);
        assert_int_equal(matches[i], want_matches[i]);
    }
}

#define LONGER BT_SCHED_DRAFT_LONGER
#define FIRST  BT_SCHED_DRAFT_FIRST
#define INNER  BT_SCHED_DRAFT_INNER
#define ONLY   BT_SCHED_DRAFT_ONLY

/* By hand. Tokens of two letters begin with b to j: 26 * first + second, with a
 * as 0, so "ca" is 52, "br" 43, "da" 78. */
static void grammar_drafts_where_it_leaves_no_choice(void **state)
{
    static const uint32_t ids[] = {0, 43, 0, 52, 78, 43, 0, END_ID};
    static const uint8_t matches[] = {ONLY,  INNER, ONLY, INNER,
                                      INNER, INNER, ONLY, ONLY};
    static const uint32_t cab[] = {52, 1};
    static const uint8_t may_be_longer[] = {FIRST, LONGER};
    static const uint32_t by_id[] = {7, 1, END_ID};
    static const uint8_t of_ids[] = {ONLY, INNER, ONLY};
    rules_t one = rules_of(BT_GRAMMAR_CHOICE, "[\"abracadabra\"]", 0);
    rules_t takes = rules_of(BT_GRAMMAR_EBNF, "root ::= <[7]> \"b\"", 0);
    rules_t open = rules_of(BT_GRAMMAR_REGEX, "cab[a-z]", 0);
    rules_t two = rules_of(BT_GRAMMAR_CHOICE, "[\"cab\",\"catalog\"]", 0);
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    seq = make_ruled(&b, &one, 0);
    drafts_by(&one, seq, 16, ids, matches, 8);
    drafts_by(&one, seq, 3, ids, matches, 3);
    drafts_by(&open, seq, 16, cab, may_be_longer, 2);
    drafts_by(&two, seq, 16, cab, may_be_longer, 1);
    drafts_by(&takes, seq, 16, by_id, of_ids, 3);
    seq->sampling.n_end_ids = 0; /* whatever the model's */
    drafts_by(&one, seq, 16, ids, matches, 7);
    seq->sampling.n_end_ids = 2;
    seq->sampling.end_ids[1] = 3; /* either may end it */
    drafts_by(&one, seq, 16, ids, matches, 7);
    seq->sampling.end_ids[1] = 52; /* ends it where it stands */
    drafts_by(&one, seq, 16, ids, matches, 4);
    seq->tokens[seq->sched.n_tokens++] = 0;
    drafts_by(&one, seq, 1, ids + 1, (const uint8_t[]){FIRST}, 1);
    seq->tokens[seq->sched.n_tokens - 1] = 3; /* of no text */
    drafts_by(&one, seq, 16, NULL, NULL, 0);
    free_seq(seq);
    close_bench(&b);
    rules_fini(&one);
    rules_fini(&takes);
    rules_fini(&open);
    rules_fini(&two);
}

/* Beside a drafter that is wrong, too. */
static void drafts_by_a_grammar_change_no_token_and_save_iterations(void **s)
{
    rules_t r = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
    uint32_t n_iterations[2] = {0};
    uint32_t n_accepted = 0;
    bench_t b;

    (void)s;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < 2 * N_CASES; i++) {
        bt_seq_t *alone = make_ruled(&b, &r, i % N_CASES);
        bt_seq_t *seq = make_ruled(&b, &r, i % N_CASES);
        guesser_t g = {.rng = i + 1};

        assert_int_equal(bt_engine_submit(b.engine, alone), BT_OK);
        run_until_left(&b, 1);
        assert_int_equal(alone->n_drafted, 0);
        seq->grammar_drafts = true;
        if (i >= N_CASES) {
            seq->drafter = (bt_drafter_t){.propose = guess, .ctx = &g};
        }
        assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
        run_until_left(&b, 1);
        assert_is_word(seq);
        assert_int_equal(seq->sched.n_tokens, alone->sched.n_tokens);
        assert_memory_equal(seq->tokens, alone->tokens,
                            alone->sched.n_tokens * sizeof(uint32_t));
        n_accepted += seq->n_accepted;
        n_iterations[0] += alone->n_iterations;
        n_iterations[1] += seq->n_iterations;
        assert_true(seq->n_accepted <= seq->n_drafted);
        free_seq(seq);
        free_seq(alone);
        b.next_block = 0;
    }
    assert_true(n_accepted >= 2 * N_CASES);
    /* All answers end with a draft, behind which nothing is drawn. */
    assert_int_equal(n_iterations[1],
                     n_iterations[0] - n_accepted + 2 * N_CASES);
    close_bench(&b);
    rules_fini(&r);
}

/* Products with the output for some ids of rows. */
static bt_kernels_ops_t counting_ops;
static const bt_kernels_ops_t *own_ops;
static uint32_t n_id_products;
static uint32_t n_ids_computed;

static void count_ids(bt_backend_t *be, const bt_weight_t *w, const float *x,
                      uint32_t n_rows, const uint32_t *first,
                      const uint32_t *ids, float *out)
{
    n_id_products++;
    n_ids_computed += first[n_rows];
    own_ops->matmul_ids(be, w, x, n_rows, first, ids, out);
}

static void count_products(bench_t *b, bt_engine_config_t *config)
{
    (void)config;
    own_ops = b->be->ops;
    counting_ops = *own_ops;
    counting_ops.matmul_ids = count_ids;
    b->be->ops = &counting_ops;
    n_id_products = n_ids_computed = 0;
}

static void change_logits(bt_seq_t *seq, uint32_t i)
{
    bt_sampling_t *const s = &seq->sampling;

    s->repetition_penalty = (i % 3 == 1) ? 1.3f : 1.0f;
    s->frequency_penalty = (i % 4 == 1) ? 0.4f : 0.0f;
    s->top_p = (i % 3 == 2) ? 0.8f : 1.0f;
    s->top_k = (i % 5 == 3) ? 5 : 0;
    s->processors.top_n_sigma = (i % 5 == 4) ? 1.5f : 0.0f;
    s->processors.dry_multiplier = (i % 7 == 5) ? 0.8f : 0.0f;
    s->processors.dry_base = 1.75f;
    s->processors.dry_allowed_length = 2;
}

/* Runs a sequence with a grammar beside one without; with its log-probs wanted
 * all logits are computed. */
static bt_seq_t *run_beside(bench_t *b, const rules_t *r, uint32_t i,
                            const bt_seq_rows_t *rows, bool drafts)
{
    bt_seq_t *const seq = make_ruled(b, r, i % N_CASES);
    bt_seq_t *const free = make_seq(b, i % N_CASES, 1.0f);

    change_logits(seq, i);
    seq->rows = rows;
    seq->grammar_drafts = drafts;
    assert_int_equal(bt_engine_submit(b->engine, free), BT_OK);
    assert_int_equal(bt_engine_submit(b->engine, seq), BT_OK);
    run_until_left(b, 2);
    assert_false(seq->grammar.has_failed);
    assert_int_equal(free->n_drawn, MAX_NEW);
    free_seq(free);
    b->next_block = 0;
    return seq;
}

static void answers_are_those_of_all_logits(const char *regex, bool drafts)
{
    rules_t r = rules_of(BT_GRAMMAR_REGEX, regex, 0);
    uint32_t n_accepted = 0;
    bench_t b;

    configure_bench = count_products;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < 3 * N_CASES; i++) {
        double logprobs[MAX_NEW];
        const bt_seq_rows_t rows = {
            .from = 4 + 23 * (i % N_CASES), .n = MAX_NEW, .logprobs = logprobs};
        bt_seq_t *all;
        bt_seq_t *some;

        n_id_products = 0;
        all = run_beside(&b, &r, i, &rows, false);
        assert_int_equal(n_id_products, 0);
        some = run_beside(&b, &r, i, NULL, drafts);
        assert_int_equal(some->sched.n_tokens, all->sched.n_tokens);
        assert_memory_equal(some->tokens, all->tokens,
                            all->sched.n_tokens * sizeof(uint32_t));
        n_accepted += some->n_accepted;
        assert_true(all->grammar.counts.n_masks >= all->n_drawn);
        assert_true(some->grammar.counts.n_masks >= some->n_drawn);
        free_seq(all);
        free_seq(some);
    }
    assert_int_equal(n_accepted > 0, drafts);
    close_bench(&b);
    configure_bench = NULL;
    rules_fini(&r);
}

static void logits_of_a_mask_alone_give_the_tokens_of_all(void **state)
{
    (void)state;
    answers_are_those_of_all_logits("[a-h]{2,}(xy)?z", false);
    assert_true(n_ids_computed > 0);
    answers_are_those_of_all_logits("([a-d]{2}stone)*", true);
    assert_true(n_ids_computed > 0);
    /* Of m no longer token begins: there is one at a time. */
    answers_are_those_of_all_logits("mmmmmmmmm", true);
    assert_int_equal(n_ids_computed, 0);
}

/* Its tokens tell where the answer is in the grammar: what another worker, or
 * an earlier submit, has drawn is part of them. */
static void answer_goes_on_from_any_of_its_tokens(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
    bt_seq_t *whole;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    whole = make_ruled(&b, &r, 1);
    assert_int_equal(bt_engine_submit(b.engine, whole), BT_OK);
    run_until_left(&b, 1);
    assert_true(whole->n_drawn > 2);
    for (uint32_t n = 1; n < whole->n_drawn; n++) {
        rules_t other = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
        bt_seq_t *rest;

        b.next_block = 1;
        rest = make_ruled(&b, &other, 1);
        rest->sampling = whole->sampling;
        memcpy(rest->tokens, whole->tokens,
               (whole->n_prompt + n) * sizeof(*rest->tokens));
        rest->sched.n_tokens += n;
        rest->max_new -= n;
        assert_int_equal(bt_engine_submit(b.engine, rest), BT_OK);
        run_until_left(&b, 1);
        assert_int_equal(rest->sched.n_tokens, whole->sched.n_tokens);
        assert_memory_equal(rest->tokens, whole->tokens,
                            whole->sched.n_tokens * sizeof(*rest->tokens));
        free_seq(rest);
        rules_fini(&other);
    }
    free_seq(whole);
    close_bench(&b);
    rules_fini(&r);
}

static void followers_of_a_fanout_follow_the_grammar_each(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_REGEX, "[a-z]{12}", 0);
    bt_seq_t *seqs[3];
    char texts[3][2 * MAX_NEW + 1];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    for (uint32_t i = 0; i < 3; i++) {
        seqs[i] = make_ruled(&b, &r, 1);
        seqs[i]->sampling.seed = i;
    }
    for (uint32_t i = 1; i < 3; i++) { /* the first block is full */
        ((uint32_t *)(uintptr_t)seqs[i]->blocks)[0] = seqs[0]->blocks[0];
    }
    assert_int_equal(bt_engine_submit_fanout(b.engine, seqs, 3), BT_OK);
    run_until_left(&b, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(strlen(answer_of(seqs[i], texts[i])), 12);
        assert_int_equal(seqs[i]->tokens[seqs[i]->sched.n_tokens - 1], END_ID);
        free_seq(seqs[i]);
    }
    assert_string_not_equal(texts[0], texts[1]);
    assert_string_not_equal(texts[1], texts[2]);
    close_bench(&b);
    rules_fini(&r);
}

static bt_finish_t finish_of(bench_t *b, const bt_seq_t *seq)
{
    bt_finish_t finish = BT_FINISH_NONE;
    bool left = false;

    while (!left) {
        bt_report_t *report = bt_engine_next(b->engine);

        for (uint32_t i = 0; (report != NULL) && (i < report->n_items); i++) {
            if ((report->items[i].kind == BT_REPORT_LEFT) &&
                (report->items[i].seq == seq)) {
                left = true;
                finish = report->items[i].finish;
            }
        }
        if (report != NULL) {
            assert_int_equal(report->status, BT_OK);
            bt_engine_recycle(b->engine, report);
        }
    }
    return finish;
}

/* A mask that may look at one byte is none. */
static void
grammar_that_cannot_be_followed_ends_its_sequence_alone(void **state)
{
    rules_t bad = rules_of(BT_GRAMMAR_REGEX, "[a-z]{12}", 1);
    rules_t good = rules_of(BT_GRAMMAR_CHOICE, WORDS, 0);
    bt_seq_t *seqs[3];
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    seqs[0] = make_ruled(&b, &bad, 0);
    seqs[1] = make_ruled(&b, &good, 0);
    seqs[2] = make_seq(&b, 0, 0.0f);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(bt_engine_submit(b.engine, seqs[i]), BT_OK);
    }
    assert_int_equal(finish_of(&b, seqs[0]), BT_FINISH_ERROR);
    run_until_left(&b, 2);
    assert_true(seqs[0]->grammar.has_failed);
    assert_int_equal(seqs[0]->n_drawn, 0);
    assert_is_word(seqs[1]);
    assert_int_equal(seqs[2]->n_drawn, MAX_NEW);
    for (uint32_t i = 0; i < 3; i++) {
        free_seq(seqs[i]);
    }
    close_bench(&b);
    rules_fini(&bad);
    rules_fini(&good);
}

/* The model's end id ends an answer only as one of the request's. */
static void end_ids_are_those_of_the_request(void **state)
{
    rules_t r = rules_of(BT_GRAMMAR_CHOICE, "[\"abc\"]", 0);
    char text[2 * MAX_NEW + 1];
    bt_seq_t *seq;
    bench_t b;

    (void)state;
    open_bench(&b, BT_KV_F16, 32);
    seq = make_ruled(&b, &r, 0);
    seq->sampling.end_ids[0] = 220; /* "im" */
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    assert_int_equal(finish_of(&b, seq), BT_FINISH_STOP);
    assert_string_equal(answer_of(seq, text), "abcim");
    free_seq(seq);

    seq = make_ruled(&b, &r, 0); /* bans yield, and so do tokens to come */
    seq->sampling.min_tokens = 15;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    assert_int_equal(finish_of(&b, seq), BT_FINISH_STOP);
    assert_string_equal(answer_of(seq, text), "abc");
    free_seq(seq);

    seq = make_ruled(&b, &r, 0); /* nothing can come, and nothing ends it */
    seq->sampling.n_end_ids = 0;
    assert_int_equal(bt_engine_submit(b.engine, seq), BT_OK);
    assert_int_equal(finish_of(&b, seq), BT_FINISH_ERROR);
    assert_true(seq->grammar.has_failed);
    free_seq(seq);
    close_bench(&b);
    rules_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(answers_follow_their_grammar),
        BT_TEST(answers_are_whole_within_their_tokens),
        BT_TEST(drafts_change_no_token_of_a_grammar),
        BT_TEST(grammar_drafts_where_it_leaves_no_choice),
        BT_TEST(drafts_by_a_grammar_change_no_token_and_save_iterations),
        BT_TEST(logits_of_a_mask_alone_give_the_tokens_of_all),
        BT_TEST(answer_goes_on_from_any_of_its_tokens),
        BT_TEST(followers_of_a_fanout_follow_the_grammar_each),
        BT_TEST(grammar_that_cannot_be_followed_ends_its_sequence_alone),
        BT_TEST(end_ids_are_those_of_the_request),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
