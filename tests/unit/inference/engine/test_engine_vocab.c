/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a model's matrices that no token of the tokenizer stands for are
 * never drawn, in no way of drawing. The expected tokens are those of the same
 * model without these rows; with them, one would be drawn almost always
 * (tiny_model.h). */
#include "tests/unit/inference/engine/bench.h"

#include "common/base/status.h"
#include "inference/model/model.h"

#define N_WAYS   8u
#define N_GROUP  3u
#define N_TOP    4u
#define N_TOKENS 24u /* of a prompt here, and T does not divide it */

/* All that was drawn, in every way. */
typedef struct drawn {
    uint32_t n_vocab;
    uint32_t ways[N_WAYS][N_TOKENS + MAX_NEW];
    double logprobs[MAX_NEW];
    uint32_t top_ids[MAX_NEW * N_TOP];
    uint32_t group[N_GROUP];
} drawn_t;

static void describe(bt_seq_t *seq, uint32_t *tokens, const uint32_t *blocks)
{
    memset(seq, 0, sizeof(*seq));
    for (uint32_t t = 0; t < N_TOKENS; t++) {
        tokens[t] = 3 + (t * 7) % 250;
    }
    seq->tokens = tokens;
    seq->blocks = blocks;
    seq->sched.n_tokens = N_TOKENS;
    seq->n_prompt = N_TOKENS;
    seq->max_new = MAX_NEW;
    seq->sampling = bt_sampling_default();
    seq->sampling.temperature = 1.5f;
    seq->sampling.seed = 7;
}

/* Guesses at rows that are there, in the file, and have no token. */
static bt_draft_t guess_rows(void *ctx, const uint32_t *tokens,
                             uint32_t n_tokens, uint32_t max, uint32_t *drafts)
{
    (void)ctx;
    (void)tokens;
    (void)n_tokens;
    for (uint32_t i = 0; i < max; i++) {
        drafts[i] = 288 + i;
    }
    return (bt_draft_t){.n = max};
}

static void set_way(uint32_t way, bt_seq_t *seq, bt_logits_processor_t *bias,
                    bt_sampling_t *biased)
{
    static bt_logit_bias_t biases[] = {{.id = 20, .bias = 3.0f},
                                       {.id = 288, .bias = 100.0f},
                                       {.id = 300, .bias = 100.0f}};
    bt_sampling_t *const s = &seq->sampling;

    switch (way) {
    case 0: /* by the back end's argmax() */
        s->temperature = 0.0f;
        break;
    case 1: /* everything is weighed */
        break;
    case 2:
        s->top_k = 40;
        break;
    case 3:
        s->top_p = 0.9f;
        break;
    case 4: /* the best one of altered logits */
        s->temperature = 0.0f;
        s->repetition_penalty = 1.3f;
        break;
    case 5: /* more than there are */
        s->top_k = 300;
        s->top_p = 0.5f;
        break;
    case 6:
        *biased = seq->sampling;
        biased->logit_biases = biases;
        biased->n_logit_biases = BT_ARRAY_LEN(biases);
        *bias = bt_logit_bias_processor(biased);
        seq->processors = bias;
        seq->n_processors = 1;
        break;
    default:
        s->temperature = 0.0f;
        seq->drafter = (bt_drafter_t){.propose = guess_rows};
        break;
    }
}

static void draw_alone(bench_t *b, uint32_t way, drawn_t *drawn)
{
    const uint32_t blocks[] = {9, 2, 5, 7};
    const bt_seq_rows_t rows = {.from = N_TOKENS - 1,
                                .n = MAX_NEW,
                                .logprobs = drawn->logprobs,
                                .n_top = N_TOP,
                                .top_ids = drawn->top_ids};
    bt_logits_processor_t bias;
    bt_sampling_t biased;
    bt_seq_t seq;

    describe(&seq, drawn->ways[way], blocks);
    set_way(way, &seq, &bias, &biased);
    seq.rows = (way == 1) ? &rows : NULL;
    assert_int_equal(bt_engine_submit(b->engine, &seq), BT_OK);
    run_until_left(b, 1);
    assert_int_equal(seq.n_drawn, MAX_NEW);
}

static void draw_group(bench_t *b, drawn_t *drawn)
{
    const uint32_t blocks[] = {9, 2};
    uint32_t tokens[N_GROUP][N_TOKENS + MAX_NEW];
    bt_seq_t seqs[N_GROUP];
    bt_seq_t *group[N_GROUP];

    for (uint32_t i = 0; i < N_GROUP; i++) {
        describe(&seqs[i], tokens[i], blocks);
        seqs[i].sampling.seed += i;
        seqs[i].leave_after_first = true;
        group[i] = &seqs[i];
    }
    assert_int_equal(bt_engine_submit_fanout(b->engine, group, N_GROUP), BT_OK);
    run_until_left(b, N_GROUP);
    for (uint32_t i = 0; i < N_GROUP; i++) {
        drawn->group[i] = tokens[i][N_TOKENS];
    }
}

static void draw_with(const bt_tiny_model_t *tiny, drawn_t *drawn)
{
    bench_t b;

    memset(drawn, 0, sizeof(*drawn));
    assert_int_equal(bt_tiny_model_write(tiny, model_path), BT_OK);
    open_bench(&b, BT_KV_F16, 32);
    drawn->n_vocab = bt_model_hparams(b.model)->n_vocab;
    for (uint32_t way = 0; way < N_WAYS; way++) {
        draw_alone(&b, way, drawn);
    }
    draw_group(&b, drawn);
    close_bench(&b);
}

static void rows_without_a_token_are_never_sampled(void **state)
{
    static const struct {
        uint32_t n_unused, n_padding;
        bool tied;
    } cases[] = {{0, 32, false},
                 {0, 1, false},
                 {17, 0, false},
                 {9, 23, false},
                 {9, 23, true}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_tiny_model_t tiny = bt_tiny_model_default();
        drawn_t plain;
        drawn_t padded;

        tiny.tied = cases[i].tied;
        draw_with(&tiny, &plain);
        tiny.n_unused = cases[i].n_unused;
        tiny.n_padding = cases[i].n_padding;
        draw_with(&tiny, &padded);
        assert_memory_equal(padded.ways, plain.ways, sizeof(plain.ways));
        assert_memory_equal(padded.group, plain.group, sizeof(plain.group));
        assert_memory_equal(padded.logprobs, plain.logprobs,
                            sizeof(plain.logprobs));
        assert_memory_equal(padded.top_ids, plain.top_ids,
                            sizeof(plain.top_ids));
        assert_int_equal(padded.n_vocab, tiny.n_vocab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(rows_without_a_token_are_never_sampled),
    };

    return cmocka_run_group_tests(tests, make_model, remove_model);
}
