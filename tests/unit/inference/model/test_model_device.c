/* SPDX-License-Identifier: Apache-2.0 */
/* A model on a back end with memory of its own, and what a back end is asked
 * for: sizes, ids instead of logits, parts of attention that it may lack. */
#include "tests/unit/inference/model/families.h"

#include "inference/model/drawing.h"
#include "inference/model/logits.h"
#include "inference/model/sampler.h"
#include "kernels/batch.h"
#include "tests/support/trap_backend.h"

#define LAYERS 2 /* of every tiny model here */

/* As make_rig_of(), all in memory that traps. */
static rig_t make_trap_rig_with(const bt_tiny_model_t *tiny, bt_kv_type_t type,
                                const bt_model_config_t *model_config)
{
    const bt_backend_config_t config = {.n_threads = 2, .max_rows = MAX_ROWS};
    bt_gguf_t *const gguf = open_tiny(tiny);
    rig_t host = make_rig_of(tiny, 1, type);
    rig_t rig = {.kv = host.kv, .n_vocab = host.n_vocab};

    free_rig(&host);
    assert_int_equal(bt_trap_backend_open(&config, &rig.be), BT_OK);
    assert_int_equal(
        bt_model_load(gguf, rig.be, model_config, why, sizeof(why), &rig.model),
        BT_OK);
    bt_gguf_close(gguf);
    assert_int_equal(rig.be->ops->buffer_alloc(
                         rig.be, N_BLOCKS * rig.kv.block_bytes, &rig.kv.base),
                     BT_OK);
    return rig;
}

static rig_t make_trap_rig(const bt_tiny_model_t *tiny, bt_kv_type_t type)
{
    return make_trap_rig_with(tiny, type, &default_config);
}

static void free_trap_rig(rig_t *rig)
{
    bt_model_destroy(rig->model);
    rig->be->ops->buffer_free(rig->be, rig->kv.base);
    bt_backend_close(rig->be);
}

static void
device_memory_gives_the_hosts_bits_with_one_upload_a_step(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_F16, BT_KV_BF16, BT_KV_INT8,
                                         BT_KV_FP8};

    (void)state;
    for (int i = 0; i < N_VARIANTS; i++) {
        const bt_tiny_model_t tiny = variant(i);
        const bt_kv_type_t type = types[i % 4];
        rig_t host = make_rig_of(&tiny, 1, type);
        rig_t trap = make_trap_rig(&tiny, type);
        logits_of_prompt_t p = run_whole(&host);
        uint32_t blocks[N_BLOCKS / 8];
        uint64_t n_steps = 0;

        assert_int_equal(bt_model_hparams(trap.model)->n_layers, LAYERS);
        fill_blocks(blocks, 16);
        for (uint32_t at = 0; at < N_TOKENS; at += 32) {
            const uint32_t left = N_TOKENS - at;

            forward_range(&trap, p.tokens, at, (left < 32) ? left : 32, blocks,
                          p.other + (size_t)at * trap.n_vocab);
            n_steps++;
        }
        assert_memory_equal(p.other, p.whole, p.bytes);
        assert_int_equal(bt_trap_uploads(trap.be), n_steps);
        /* embed; rope_store and attention of each layer; two gathers */
        assert_int_equal(bt_trap_batch_operations(trap.be),
                         n_steps * (1 + 2 * LAYERS + 2));
        free_logits(&p);
        free_rig(&host);
        free_trap_rig(&trap);
    }
}

static void families_give_the_hosts_bits_in_device_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        const bt_tiny_model_t tiny = family_tiny(&family_cases[i]);
        rig_t host = make_rig(&tiny, 1);
        rig_t trap = make_trap_rig(&tiny, BT_KV_F16);
        logits_of_prompt_t p = run_whole(&host);
        uint32_t blocks[N_BLOCKS / 8];

        fill_blocks(blocks, 16);
        forward_range(&trap, p.tokens, 0, 33, blocks, p.other);
        forward_range(&trap, p.tokens, 33, N_TOKENS - 33, blocks,
                      p.other + (size_t)33 * trap.n_vocab);
        assert_memory_equal(p.other, p.whole, p.bytes);
        free_logits(&p);
        free_rig(&host);
        free_trap_rig(&trap);
    }
}

/* Columns of activations are cut out there as well. */
static void partial_sums_give_the_hosts_bits_in_device_memory(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    rig_t host = make_rig(&tiny, 1);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_model_config_t config = default_config;
    uint32_t blocks[N_BLOCKS / 8];
    logits_of_prompt_t p;
    rig_t trap;

    (void)state;
    config.sum_parts = 2;
    bt_model_destroy(host.model);
    assert_int_equal(
        bt_model_load(gguf, host.be, &config, why, sizeof(why), &host.model),
        BT_OK);
    bt_gguf_close(gguf);
    trap = make_trap_rig_with(&tiny, BT_KV_F16, &config);
    p = run_whole(&host);
    fill_blocks(blocks, 16);
    forward_range(&trap, p.tokens, 0, 33, blocks, p.other);
    forward_range(&trap, p.tokens, 33, N_TOKENS - 33, blocks,
                  p.other + (size_t)33 * trap.n_vocab);
    assert_memory_equal(p.other, p.whole, p.bytes);
    free_logits(&p);
    free_rig(&host);
    free_trap_rig(&trap);
}

static void ranks_without_device_collectives_are_refused_by_name(void **state)
{
    const bt_backend_config_t be_config = {.n_threads = 1,
                                           .max_rows = MAX_ROWS};
    const bt_collectives_t coll = {.rank = 1, .size = 2}; /* not called */
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_model_config_t config = default_config;
    bt_model_memory_t memory;
    bt_model_t *model = NULL;
    bt_backend_t *be;

    (void)state;
    config.host_coll = &coll;
    assert_int_equal(bt_trap_backend_open(&be_config, &be), BT_OK);
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_ERR_UNSUPPORTED);
    assert_null(model);
    assert_non_null(
        strstr(why, "ranks of one instance: the test/trap back end"));
    assert_non_null(strstr(why, "memory of its own, which no sum here "
                                "reaches"));
    assert_int_equal(
        bt_model_memory_on(gguf, be, &config, why, sizeof(why), &memory),
        BT_ERR_UNSUPPORTED);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

/* Ids of some rows, logits of the others; the same call on any back end. */
static void check_ids(rig_t *rig, const logits_of_prompt_t *p)
{
    const bt_sampling_t greedy = {.repetition_penalty = 1.0f, .top_p = 1.0f};
    const size_t row_bytes = rig->n_vocab * sizeof(float);
    uint32_t blocks[N_BLOCKS / 8];
    const bt_ragged_seq_t seq = {.n_rows = N_TOKENS, .blocks = blocks};
    uint32_t rows[N_TOKENS];
    uint32_t needs[N_TOKENS];
    uint32_t ids[N_TOKENS];
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = p->tokens,
                              .n_rows = N_TOKENS,
                              .logit_rows = rows,
                              .n_logit_rows = N_TOKENS,
                              .needs = needs,
                              .best_ids = ids,
                              .kv = rig->kv};
    bt_sampler_t *sampler = NULL;
    float *logits = NULL;

    fill_blocks(blocks, 24);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        rows[i] = i;
        needs[i] = ((i % 3 != 1) || (i > 60)) ? 1 : 0;
        ids[i] = 12345;
    }
    assert_int_equal(bt_sampler_create(rig->n_vocab, &sampler), BT_OK);
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        const float *want = p->whole + (size_t)i * rig->n_vocab;

        if (needs[i] == 1) {
            float *scratch = p->other;

            memcpy(scratch, want, row_bytes);
            assert_int_equal(ids[i],
                             bt_sampler_draw(sampler, &greedy, scratch,
                                             p->tokens, i + 1, i + 1, i + 1));
        } else {
            assert_int_equal(ids[i], 12345);
            assert_memory_equal(logits + (size_t)i * rig->n_vocab, want,
                                row_bytes);
        }
    }
    bt_sampler_destroy(sampler);
}

static void device_argmax_ids_equal_host_sampling(void **state)
{
    const bt_tiny_model_t tiny = variant(2);
    rig_t host = make_rig(&tiny, 2);
    rig_t trap = make_trap_rig(&tiny, BT_KV_F16);
    logits_of_prompt_t p = run_whole(&host);
    const bt_kernels_ops_t *const ops = trap.be->ops;
    bt_kernels_ops_t without = *ops;

    (void)state;
    without.argmax = NULL;
    check_ids(&host, &p);
    check_ids(&trap, &p);
    trap.be->ops = &without; /* logits come, ids are found here */
    check_ids(&trap, &p);
    trap.be->ops = ops;
    free_logits(&p);
    free_rig(&host);
    free_trap_rig(&trap);
}

/* Draws of several kinds, some rows with two, and scores of drawn tokens and of
 * those that follow in the prompt. */
static void lay_drawing(bt_drawing_t *d, const bt_sampling_t *params,
                        const logits_of_prompt_t *p)
{
    bt_drawing_clear(d);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        const bt_drawn_from_t from = {.sampling = &params[i % 3],
                                      .tokens = p->tokens,
                                      .n_tokens = i + 1,
                                      .n_prompt = i / 2};
        const bt_scoring_t of_drawn = {.logit_row = i, .draw = d->n_draws};
        const bt_scoring_t of_next = {
            .logit_row = i, .draw = BT_SCORING_NO_DRAW, .id = p->tokens[i]};

        assert_true((i % 5 == 4) || bt_drawing_add(d, i, &from));
        assert_true((i % 7 != 1) || bt_drawing_add(d, i, &from));
        if (i % 5 == 4) {
            assert_true(bt_drawing_score(d, &of_next, 3));
        } else if (i % 4 == 0) {
            assert_true(bt_drawing_score(d, &of_drawn, 5));
        }
    }
}

static bt_status_t forward_drawing(rig_t *rig, const logits_of_prompt_t *p,
                                   bt_drawing_t *drawing, float **logits_p)
{
    uint32_t blocks[N_BLOCKS / 8];
    const bt_ragged_seq_t seq = {.n_rows = N_TOKENS, .blocks = blocks};
    uint32_t rows[N_TOKENS], needs[N_TOKENS], ids[N_TOKENS];
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = p->tokens,
                              .n_rows = N_TOKENS,
                              .logit_rows = rows,
                              .n_logit_rows = N_TOKENS,
                              .needs = needs,
                              .best_ids = ids,
                              .drawing = drawing,
                              .kv = rig->kv};

    fill_blocks(blocks, 24);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        rows[i] = i;
        needs[i] = BT_NEEDS_NOTHING;
    }
    return bt_model_forward(rig->model, &fwd, logits_p);
}

static void check_drawn(const bt_drawing_t *d, const bt_sampling_t *params,
                        const logits_of_prompt_t *p, uint32_t n_vocab)
{
    bt_sampler_t *sampler = NULL;

    assert_int_equal(bt_sampler_create(n_vocab, &sampler), BT_OK);
    for (uint32_t k = 0; k < d->n_draws; k++) {
        const uint32_t i = d->draws[k].logit_row;

        memcpy(p->other, p->whole + (size_t)i * n_vocab,
               n_vocab * sizeof(float));
        assert_int_equal(d->ids[k],
                         bt_sampler_draw(sampler, &params[i % 3], p->other,
                                         p->tokens, i + 1, i / 2, i + 1));
    }
    for (uint32_t k = 0; k < d->n_scorings; k++) {
        const bt_scoring_t *const s = &d->scorings[k];
        const float *row = p->whole + (size_t)s->logit_row * n_vocab;
        const uint32_t id =
            (s->draw == BT_SCORING_NO_DRAW) ? s->id : d->ids[s->draw];
        uint32_t top[5];

        assert_true(bt_logprob_of(&d->scored[k]) ==
                    (double)row[id] - bt_logprob_sum(row, n_vocab));
        assert_int_equal(d->tops[k].n, 8);
        bt_logprob_top(row, n_vocab, 5, top);
        assert_memory_equal(d->tops[k].ids, top, sizeof(top));
        assert_true(d->tops[k].logits[4] == row[top[4]]);
    }
    bt_sampler_destroy(sampler);
}

static void device_sampled_ids_take_one_copy_without_logits(void **state)
{
    const bt_tiny_model_t tiny = variant(2);
    rig_t host = make_rig(&tiny, 2);
    rig_t trap = make_trap_rig(&tiny, BT_KV_F16);
    logits_of_prompt_t p = run_whole(&host);
    const uint64_t n_copies = bt_trap_copies_out(trap.be);
    const uint64_t bytes = bt_trap_bytes_out(trap.be);
    bt_sampling_t params[3] = {bt_sampling_default(), bt_sampling_default(),
                               bt_sampling_default()};
    bt_drawing_t *drawing = NULL;
    float *logits = NULL;

    (void)state;
    params[1].temperature = 0.9f;
    params[1].repetition_penalty = 1.2f;
    params[2].temperature = 1.1f;
    params[2].top_k = 20;
    params[2].top_p = 0.8f;
    assert_int_equal(bt_drawing_create(trap.n_vocab, 2 * N_TOKENS, &drawing),
                     BT_OK);
    lay_drawing(drawing, params, &p);
    assert_true(bt_model_draws(trap.model));
    assert_int_equal(forward_drawing(&trap, &p, drawing, &logits), BT_OK);
    assert_int_equal(bt_trap_copies_out(trap.be) - n_copies, 1);
    /* ids, scores of 16 bytes, and 8 of each row, an id and a logit each */
    assert_int_equal(bt_trap_bytes_out(trap.be) - bytes,
                     (drawing->n_draws + 1) / 2 * 8 + drawing->n_scorings * 16 +
                         N_TOKENS * 8 * 8);
    check_drawn(drawing, params, &p, trap.n_vocab);
    assert_false(bt_model_draws(host.model)); /* whose memory is the host's */
    assert_int_equal(forward_drawing(&host, &p, drawing, &logits),
                     BT_ERR_INVALID_PARAM);
    bt_drawing_destroy(drawing);
    free_logits(&p);
    free_rig(&host);
    free_trap_rig(&trap);
}

static void sampling_results_of_another_call_are_refused(void **state)
{
    const bt_tiny_model_t tiny = variant(2);
    rig_t host = make_rig(&tiny, 2);
    rig_t trap = make_trap_rig(&tiny, BT_KV_F16);
    logits_of_prompt_t p = run_whole(&host);
    bt_sampling_t params[3] = {bt_sampling_default(), bt_sampling_default(),
                               bt_sampling_default()};
    bt_drawing_t *drawing = NULL;
    float *logits = NULL;

    (void)state;
    assert_int_equal(bt_drawing_create(trap.n_vocab, 2 * N_TOKENS, &drawing),
                     BT_OK);
    for (uint32_t round = 0; round < 4; round++) {
        lay_drawing(drawing, params, &p);
        if (round == 0) {
            drawing->draws[3].logit_row = N_TOKENS;
        } else if (round == 1) {
            drawing->scorings[1].logit_row = N_TOKENS;
        } else if (round == 2) {
            drawing->scorings[0].draw = drawing->n_draws;
        } else {
            drawing->scorings[1].draw = BT_SCORING_NO_DRAW;
            drawing->scorings[1].id = trap.n_vocab;
        }
        assert_int_equal(forward_drawing(&trap, &p, drawing, &logits),
                         BT_ERR_INVALID_PARAM);
    }
    bt_drawing_destroy(drawing);
    free_logits(&p);
    free_rig(&host);
    free_trap_rig(&trap);
}

static void argmax_is_used_only_for_greedy_rows(void **state)
{
    static const uint32_t end_ids[] = {2};
    static const bt_bad_word_t word = {.n = 1};
    bt_sampling_t s = bt_sampling_default();

    (void)state;
    s.temperature = 0.0f;
    assert_int_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.temperature = 0.7f;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.top_k = 1;
    assert_int_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.repetition_penalty = 1.1f;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.repetition_penalty = 1.0f;
    s.presence_penalty = 0.1f;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.presence_penalty = 0.0f;
    s.frequency_penalty = -0.1f;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.frequency_penalty = 0.0f;
    s.bad_words = &word;
    s.n_bad_words = 1;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 1), 1);
    s.n_bad_words = 0;
    s.min_tokens = 3;
    assert_int_equal(bt_sampler_needs(&s, 5, 1),
                     1); /* nothing that could end it */
    memcpy(s.end_ids, end_ids, sizeof(end_ids));
    s.n_end_ids = 1;
    assert_int_not_equal(bt_sampler_needs(&s, 5, 2), 1);
    assert_int_equal(bt_sampler_needs(&s, 5, 3), 1);
}

static void device_and_host_memory_are_reported_separately(void **state)
{
    const bt_backend_config_t be_config = {.n_threads = 1,
                                           .max_rows = MAX_ROWS};
    const bt_tiny_model_t tiny = variant(2);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_model_config_t config = default_config;
    /* 3 sequences of at most 256 / 16 blocks */
    const bt_batch_limits_t limits = {.max_rows = MAX_ROWS,
                                      .max_seqs = 3,
                                      .max_logit_rows = MAX_ROWS,
                                      .max_draws = MAX_ROWS,
                                      .max_edits = BT_DRAWING_EDITS,
                                      .max_scorings = MAX_ROWS,
                                      .max_blocks = 48};
    const size_t words = bt_batch_max_words(&limits) * sizeof(uint32_t);
    bt_backend_t *be = NULL;
    bt_model_memory_t host;
    bt_model_memory_t device;
    bt_model_t *model = NULL;
    uint64_t before = 0;
    uint64_t after = 0;
    size_t buffers;

    (void)state;
    config.max_seqs = 3;
    config.tokens_per_block = 16;
    assert_int_equal(bt_trap_backend_open(&be_config, &be), BT_OK);
    assert_int_equal(
        bt_model_memory(gguf, "cpu", &config, why, sizeof(why), &host), BT_OK);
    assert_int_equal(
        bt_model_memory_on(gguf, be, &config, why, sizeof(why), &device),
        BT_OK);
    assert_true(device.own_memory);
    assert_int_equal(device.weight_bytes, 0);
    /* Logits to look at, of each row what is drawn, scored and the best 32, and
     * the words before they are uploaded; ids of two calls under way. */
    assert_int_equal(device.private_bytes, MAX_ROWS * 288 * 4 +
                                               MAX_ROWS * (8 + 16 + 32 * 8) +
                                               2 * MAX_ROWS * 4 + words);
    assert_int_equal(device.device_left_bytes, BT_TRAP_MEMORY_BYTES);
    /* All that the host had but logits of single ids, the words, the ids and
     * what is drawn. */
    assert_int_equal(device.device_bytes,
                     host.weight_bytes + host.private_bytes -
                         MAX_ROWS * BT_MODEL_MAX_IDS * sizeof(float) + words +
                         MAX_ROWS * 4 + MAX_ROWS * (8 + 16 + 32 * 8));
    /* And so much is taken, but for the weights, which this device leaves with
     * the CPU, and 128 bytes at most about a buffer. */
    assert_int_equal(be->ops->memory_left(be, &before), BT_OK);
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_OK);
    assert_int_equal(be->ops->memory_left(be, &after), BT_OK);
    buffers = device.device_bytes - host.weight_bytes;
    assert_in_range(before - after, buffers, buffers + 20 * 128);
    bt_model_destroy(model);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

static void missing_back_end_is_refused_by_name(void **state)
{
    const bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_model_memory_t memory;

    (void)state;
    assert_int_equal(bt_model_memory(gguf, "tpu", &default_config, why,
                                     sizeof(why), &memory),
                     BT_ERR_NOT_FOUND);
    assert_non_null(strstr(why, "the back end tpu cannot be opened"));
    bt_gguf_close(gguf);
}

/* What a call may not bring, once it is said what the most is. */
static void batch_over_the_reserved_size_is_refused(void **state)
{
    static const uint32_t tokens[] = {1, 2};
    static const uint32_t blocks[] = {0};
    const bt_ragged_seq_t seqs[] = {{0, 1, 0, blocks}, {1, 1, 0, blocks}};
    const bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    rig_t rig = make_rig(&tiny, 1);
    bt_model_config_t config = default_config;
    bt_forward_t fwd = {
        .seqs = seqs, .n_seqs = 1, .tokens = tokens, .n_rows = 1, .kv = rig.kv};
    bt_model_t *model = NULL;
    float *logits = NULL;

    (void)state;
    config.max_seqs = 1;
    config.tokens_per_block = 16;
    assert_int_equal(
        bt_model_load(gguf, rig.be, &config, why, sizeof(why), &model), BT_OK);
    assert_int_equal(bt_model_forward(model, &fwd, &logits), BT_OK);
    fwd.n_seqs = 2;
    fwd.n_rows = 2;
    assert_int_equal(bt_model_forward(model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd.n_seqs = 1;
    fwd.n_rows = 1;
    fwd.kv.tokens_per_block = 32;
    assert_int_equal(bt_model_forward(model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    bt_model_destroy(model);
    free_rig(&rig);
    bt_gguf_close(gguf);
}

static void missing_attention_parts_are_named(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_backend_t *const be = open_backend(1);
    const bt_kernels_caps_t *const caps = be->caps;
    bt_kernels_caps_t poor = *caps;
    bt_model_memory_t memory;
    bt_model_t *model = NULL;
    bt_gguf_t *gguf;

    (void)state;
    poor.name = "cpu/poor";
    poor.attention = BT_ATTENTION_SOFT_CAP;
    be->caps = &poor;
    tiny.sliding_window = 24;
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        BT_ERR_UNSUPPORTED);
    assert_null(model);
    assert_string_equal(why, "the cpu/poor back end does not compute attention "
                             "with a sliding window");
    assert_int_equal(bt_model_memory_on(gguf, be, &default_config, why,
                                        sizeof(why), &memory),
                     BT_ERR_UNSUPPORTED);
    bt_gguf_close(gguf);
    poor.attention = BT_ATTENTION_WINDOW;
    tiny.attn_soft_cap = 20.0f;
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "with a soft cap of its scores"));
    poor.attention = caps->attention & ~(uint32_t)BT_ATTENTION_SINKS;
    tiny.attn_sinks = true;
    bt_gguf_close(gguf);
    gguf = open_tiny(&tiny);
    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "does not compute attention with sinks"));
    be->caps = caps;
    assert_int_equal(
        bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
        BT_OK);
    bt_model_destroy(model);
    bt_gguf_close(gguf);
    bt_backend_close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(device_memory_gives_the_hosts_bits_with_one_upload_a_step),
        BT_TEST(families_give_the_hosts_bits_in_device_memory),
        BT_TEST(partial_sums_give_the_hosts_bits_in_device_memory),
        BT_TEST(ranks_without_device_collectives_are_refused_by_name),
        BT_TEST(device_argmax_ids_equal_host_sampling),
        BT_TEST(device_sampled_ids_take_one_copy_without_logits),
        BT_TEST(sampling_results_of_another_call_are_refused),
        BT_TEST(argmax_is_used_only_for_greedy_rows),
        BT_TEST(device_and_host_memory_are_reported_separately),
        BT_TEST(missing_back_end_is_refused_by_name),
        BT_TEST(batch_over_the_reserved_size_is_refused),
        BT_TEST(missing_attention_parts_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
