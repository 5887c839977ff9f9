/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/inference/model/rig.h"

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/model/model.h"
#include "tests/support/tiny_model.h"

#define N_RIGS (N_VARIANTS + 3)

/* Every variant with f16 KV, then the third with the other types. */
static rig_t make_rig_number(int i, uint32_t n_threads)
{
    const bt_tiny_model_t tiny = variant((i < N_VARIANTS) ? i : 2);

    return make_rig_of(&tiny, n_threads,
                       (i < N_VARIANTS)        ? BT_KV_F16
                       : (i == N_VARIANTS)     ? BT_KV_BF16
                       : (i == N_VARIANTS + 1) ? BT_KV_INT8
                                               : BT_KV_FP8);
}

static void chunks_give_the_bits_of_one_call(void **state)
{
    static const uint32_t chunks[] = {16, 1, 7, 64};

    (void)state;
    for (int v = 0; v < N_RIGS; v++) {
        rig_t rig = make_rig_number(v, 1);
        logits_of_prompt_t p = run_whole(&rig);
        uint32_t blocks[N_BLOCKS / 8];

        for (size_t c = 0; c < sizeof(chunks) / sizeof(chunks[0]); c++) {
            memset(p.other, 0, p.bytes);
            fill_blocks(blocks, 8 + 8 * (uint32_t)c);
            for (uint32_t at = 0; at < N_TOKENS; at += chunks[c]) {
                const uint32_t left = N_TOKENS - at;

                forward_range(&rig, p.tokens, at,
                              (left < chunks[c]) ? left : chunks[c], blocks,
                              p.other + (size_t)at * rig.n_vocab);
            }
            assert_memory_equal(p.other, p.whole, p.bytes);
        }
        free_logits(&p);
        free_rig(&rig);
    }
}

/* As a back end is that has no fused steps. */
static void single_operations_give_the_bits_of_fused_steps(void **state)
{
    (void)state;
    for (int v = 0; v < N_RIGS; v++) {
        rig_t rig = make_rig_number(v, 2);
        logits_of_prompt_t p = run_whole(&rig);
        const bt_kernels_ops_t *const whole = rig.be->ops;
        bt_kernels_ops_t single = *whole;
        uint32_t blocks[N_BLOCKS / 8];

        assert_non_null(single.norm_matmul);
        single.norm_matmul = NULL;
        single.matmul_add = NULL;
        single.silu_matmul_add = NULL;
        single.ahead = NULL;
        rig.be->ops = &single;
        fill_blocks(blocks, 8);
        forward_range(&rig, p.tokens, 0, N_TOKENS - 1, blocks, p.other);
        forward_range(&rig, p.tokens, N_TOKENS - 1, 1, blocks,
                      p.other + (size_t)(N_TOKENS - 1) * rig.n_vocab);
        assert_memory_equal(p.other, p.whole, p.bytes);
        rig.be->ops = whole;
        free_logits(&p);
        free_rig(&rig);
    }
}

/* A decoding sequence, the prompt in two chunks, and a third sequence share
 * each batch; then the same with a rest of a different length. */
static void other_sequences_in_the_batch_change_no_bit(void **state)
{
    (void)state;
    for (int v = 0; v < N_RIGS; v++) {
        rig_t rig = make_rig_number(v, 2);
        logits_of_prompt_t p = run_whole(&rig);
        uint32_t blocks[3][N_BLOCKS / 8];
        const uint32_t first = 16;

        for (uint32_t s = 0; s < 3; s++) {
            fill_blocks(blocks[s], 8 + 8 * s);
        }
        for (uint32_t step = 0; step < 2; step++) {
            const uint32_t from = (step == 0) ? 0 : first;
            const uint32_t n = (step == 0) ? first : N_TOKENS - first;
            const uint32_t before = 1 + 20 * step; /* rows of the others */
            const uint32_t after = 9 - step;
            const bt_ragged_seq_t seqs[] = {
                {0, before, step, blocks[1]},
                {before, n, from, blocks[0]},
                {before + n, after, 9 * step, blocks[2]},
            };
            uint32_t tokens[MAX_ROWS];
            uint32_t rows[MAX_ROWS];
            bt_forward_t fwd = {.seqs = seqs,
                                .n_seqs = 3,
                                .tokens = tokens,
                                .n_rows = before + n + after,
                                .logit_rows = rows,
                                .n_logit_rows = n,
                                .kv = rig.kv};
            float *logits = NULL;

            fill_tokens(tokens, fwd.n_rows, 200);
            memcpy(tokens + before, p.tokens + from, n * sizeof(*tokens));
            for (uint32_t i = 0; i < n; i++) {
                rows[i] = before + i;
            }
            assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
            memcpy(p.other + (size_t)from * rig.n_vocab, logits,
                   (size_t)n * rig.n_vocab * sizeof(float));
        }
        assert_memory_equal(p.other, p.whole, p.bytes);
        free_logits(&p);
        free_rig(&rig);
    }
}

/* Rows without logits stop after the last layer's cache entry; what they left
 * there, and the logits asked for later, must not differ. */
static void omitted_logits_change_no_bit(void **state)
{
    const bt_tiny_model_t tiny = variant(2);
    rig_t rig = make_rig(&tiny, 1);
    logits_of_prompt_t p = run_whole(&rig);
    uint32_t blocks[N_BLOCKS / 8];
    const uint32_t wanted[] = {58, 3}; /* rows of the second chunk */
    bt_ragged_seq_t seq = {.n_rows = 16, .blocks = blocks};
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = p.tokens,
                        .n_rows = 16,
                        .kv = rig.kv};
    float *logits = p.other;
    const size_t row = rig.n_vocab;

    (void)state;
    fill_blocks(blocks, 8);
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
    assert_null(logits);
    seq.pos = 16;
    seq.n_rows = N_TOKENS - 16;
    fwd.tokens = p.tokens + 16;
    fwd.n_rows = N_TOKENS - 16;
    fwd.logit_rows = wanted;
    fwd.n_logit_rows = 2;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
    assert_memory_equal(logits, p.whole + 74 * row, row * sizeof(float));
    assert_memory_equal(logits + row, p.whole + 19 * row, row * sizeof(float));
    free_logits(&p);
    free_rig(&rig);
}

/* Every block of the cache but the sequence's own is poisoned with NaN. */
static void own_blocks_alone(int number)
{
    rig_t rig = make_rig_number(number, 1);
    logits_of_prompt_t p = run_whole(&rig);
    uint32_t blocks[N_BLOCKS / 8];

    memset(rig.kv.base, 0xFF, N_BLOCKS * rig.kv.block_bytes);
    fill_blocks(blocks, 40);
    forward_range(&rig, p.tokens, 0, 40, blocks, p.other);
    forward_range(&rig, p.tokens, 40, N_TOKENS - 40, blocks,
                  p.other + 40 * (size_t)rig.n_vocab);
    assert_memory_equal(p.other, p.whole, p.bytes);
    free_logits(&p);
    free_rig(&rig);
}

static void forward_reads_only_blocks_of_its_sequences(void **state)
{
    (void)state;
    own_blocks_alone(0);
    own_blocks_alone(N_VARIANTS);
    own_blocks_alone(N_VARIANTS + 1);
}

/* What --kv-dtype chooses is used: each type gives numbers of its own, near
 * those of f16 (logits of this model are some tenths). */
static void other_kv_types_give_close_and_stable_logits(void **state)
{
    rig_t f16 = make_rig_number(2, 1);
    logits_of_prompt_t want = run_whole(&f16);

    (void)state;
    for (int number = N_VARIANTS; number < N_RIGS; number++) {
        rig_t rig = make_rig_number(number, 1);
        logits_of_prompt_t got = run_whole(&rig);
        double error = 0;
        double size = 0;

        for (size_t i = 0; i < want.bytes / sizeof(float); i++) {
            const double a = (double)want.whole[i];
            const double b = (double)got.whole[i];

            error += (a - b) * (a - b);
            size += a * a;
        }
        error = sqrt(error / size);
        print_message("%s: relative difference %.6f\n",
                      bt_kv_type_info(rig.kv.type)->name, error);
        /* Steps of fp8 are a sixteenth of a number, those of int8 some
         * hundredth of a vector's largest. */
        assert_true((error > 1e-6) &&
                    (error < ((rig.kv.type == BT_KV_FP8) ? 0.15 : 0.05)));
        free_logits(&got);
        free_rig(&rig);
    }
    free_logits(&want);
    free_rig(&f16);
}

static void forward_refuses_out_of_range_arguments(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    rig_t rig = make_rig(&tiny, 1);
    const uint32_t blocks[N_BLOCKS] = {0};
    const uint32_t good_tokens[4] = {1, 2, 3, 4};
    const uint32_t bad_tokens[4] = {1, 2, 288, 4};
    const uint32_t good_rows[1] = {3};
    const uint32_t bad_rows[1] = {4};
    bt_ragged_seq_t seq = {.n_rows = 4, .blocks = blocks};
    static const struct {
        uint32_t first[2];
        uint32_t ids[2];
    } bad_ids[] = {
        {{1, 2}, {1, 2}},   /* not from 0 */
        {{0, 1}, {288}},    /* beyond the vocabulary */
        {{0, 2}, {5, 5}},   /* twice */
        {{0, 2}, {5, 4}},   /* not ascending */
        {{0, 257}, {0, 1}}, /* too many */
    };
    const bt_forward_t good = {.seqs = &seq,
                               .n_seqs = 1,
                               .tokens = good_tokens,
                               .n_rows = 4,
                               .logit_rows = good_rows,
                               .n_logit_rows = 1,
                               .kv = rig.kv};
    bt_forward_t fwd = good;
    float marker = 0.0f;
    float *logits = &marker;

    (void)state;
    fwd.tokens = bad_tokens;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd = good;
    fwd.logit_rows = bad_rows;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd = good;
    fwd.n_rows = 3; /* the sequence has four */
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd = good;
    fwd.kv.n_layers = 3;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd = good;
    fwd.kv.type = (bt_kv_type_t)4;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    fwd = good;
    fwd.n_logit_rows = MAX_ROWS + 1;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    for (size_t i = 0; i <= BT_ARRAY_LEN(bad_ids); i++) {
        const uint32_t only_ids = BT_NEEDS_IDS;

        fwd = good;
        fwd.needs = &only_ids;
        fwd.first_ids = (i > 0) ? bad_ids[i - 1].first : NULL;
        fwd.ids = (i > 0) ? bad_ids[i - 1].ids : NULL;
        assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                         BT_ERR_INVALID_PARAM);
    }
    seq.pos = 253; /* 253 .. 256, the context has 0 .. 255 */
    fwd = good;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    seq.pos = UINT32_MAX;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    seq.pos = 0;
    seq.row = 1;
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    seq.row = 0;
    assert_ptr_equal(logits, &marker);
    assert_int_equal(bt_model_forward(rig.model, &good, &logits), BT_OK);
    free_rig(&rig);
}

static void hparams_are_read_from_the_file(void **state)
{
    bt_tiny_model_t tiny = variant(2);
    bt_gguf_t *gguf;
    bt_hparams_t hp;

    (void)state;
    tiny.rope_base = 500000.0f;
    gguf = open_tiny(&tiny);
    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), BT_OK);
    assert_int_equal(hp.n_layers, 2);
    assert_int_equal(hp.dim, 288);
    assert_int_equal(hp.n_heads, 9);
    assert_int_equal(hp.n_kv_heads, 3);
    assert_int_equal(hp.head_dim, 32);
    assert_int_equal(hp.ffn_dim, 96);
    assert_int_equal(hp.n_vocab, 288);
    assert_int_equal(hp.context_tokens, 512);
    assert_true(hp.rope.base == 500000.0f);
    assert_true(hp.rope.scale == 1.0f);
    assert_true(hp.norm_eps == 1e-5f);
    bt_gguf_close(gguf);
}

/* Rows that no token stands for: the model is the one without them, in numbers
 * and in memory. */
static void vocabulary_rows_without_a_token_are_omitted(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++) {
        bt_tiny_model_t tiny = variant(i);
        bt_model_memory_t memory[2];
        logits_of_prompt_t prompt[2];

        for (int padded = 0; padded < 2; padded++) {
            bt_gguf_t *gguf;
            rig_t rig;

            tiny.n_unused = (padded == 0) ? 0 : 5;
            tiny.n_padding = (padded == 0) ? 0 : 27;
            gguf = open_tiny(&tiny);
            assert_int_equal(bt_model_memory(gguf, "cpu", &default_config, why,
                                             sizeof(why), &memory[padded]),
                             BT_OK);
            bt_gguf_close(gguf);
            rig = make_rig(&tiny, 1);
            assert_int_equal(rig.n_vocab, tiny.n_vocab);
            prompt[padded] = run_whole(&rig);
            free_rig(&rig);
        }
        assert_memory_equal(prompt[1].whole, prompt[0].whole, prompt[0].bytes);
        assert_int_equal(memory[1].weight_bytes, memory[0].weight_bytes);
        assert_int_equal(memory[1].private_bytes, memory[0].private_bytes);
        free_logits(&prompt[0]);
        free_logits(&prompt[1]);
    }
}

/* A vocabulary of a number that no vector divides: its logits are the first
 * ones of the model in which the other rows are tokens, too. */
static void vocabulary_size_may_be_any_number(void **state)
{
    static const uint32_t n_fewer[] = {1, 5, 12};
    uint32_t tokens[N_TOKENS];
    uint32_t blocks[N_BLOCKS / 8];

    (void)state;
    fill_blocks(blocks, 16);
    for (int i = 0; i < N_VARIANTS; i++) {
        const uint32_t fewer = n_fewer[i % 3];
        bt_tiny_model_t tiny = variant(i);
        rig_t all = make_rig(&tiny, 1);
        rig_t some;
        float *wide;
        float *narrow;

        tiny.n_vocab -= fewer;
        tiny.n_padding = fewer;
        some = make_rig(&tiny, 2);
        wide = bt_calloc((size_t)N_TOKENS * all.n_vocab, sizeof(*wide));
        narrow = bt_calloc((size_t)N_TOKENS * some.n_vocab, sizeof(*narrow));
        assert_true((wide != NULL) && (narrow != NULL));
        fill_tokens(tokens, N_TOKENS, some.n_vocab);
        forward_range(&all, tokens, 0, N_TOKENS, blocks, wide);
        forward_range(&some, tokens, 0, N_TOKENS, blocks, narrow);
        for (uint32_t row = 0; row < N_TOKENS; row++) {
            assert_memory_equal(narrow + (size_t)row * some.n_vocab,
                                wide + (size_t)row * all.n_vocab,
                                some.n_vocab * sizeof(*narrow));
        }
        bt_free(wide);
        bt_free(narrow);
        free_rig(&all);
        free_rig(&some);
    }
}

static void assert_refused(const bt_tiny_model_t *tiny, bt_status_t status,
                           const char *reason)
{
    bt_gguf_t *const gguf = open_tiny(tiny);
    bt_hparams_t hp;

    assert_int_equal(bt_hparams_read(gguf, why, sizeof(why), &hp), status);
    if (strstr(why, reason) == NULL) {
        print_error("\"%s\" does not say \"%s\"\n", why, reason);
        fail();
    }
    bt_gguf_close(gguf);
}

static void unsupported_architecture_features_are_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    tiny.architecture = "mamba";
    assert_refused(&tiny, BT_ERR_UNSUPPORTED,
                   "architecture mamba is not supported; supported: llama");
    tiny = bt_tiny_model_default();
    tiny.rope_scaling = "dynamic";
    assert_refused(&tiny, BT_ERR_UNSUPPORTED, "in the way dynamic");
}

/* The bytes of a tiny model, to be altered. */
static uint8_t *tiny_bytes(const bt_tiny_model_t *tiny, size_t *bytes_p)
{
    char path[] = "/tmp/baton-test-model-XXXXXX";
    const int fd = mkstemp(path);
    uint8_t *data;
    FILE *file;

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *bytes_p = (size_t)ftell(file);
    rewind(file);
    data = bt_calloc_aligned(*bytes_p, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, *bytes_p, 1, file), 1);
    fclose(file);
    unlink(path);
    return data;
}

/* Replace the first occurrence of @a from by the equally long @a to, and try
 * to load the result. */
static bt_status_t load_altered(const char *from, const char *to)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    size_t bytes = 0;
    uint8_t *data;
    uint8_t *at;
    bt_gguf_t *gguf = NULL;
    bt_backend_t *const be = open_backend(1);
    bt_model_t *model = NULL;
    bt_status_t status;

    tiny.rope_factors = true;
    data = tiny_bytes(&tiny, &bytes);
    at = memmem(data, bytes, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    assert_int_equal(bt_gguf_open_memory(data, bytes, why, sizeof(why), &gguf),
                     BT_OK);
    status = bt_model_load(gguf, be, &default_config, why, sizeof(why), &model);
    assert_null(model);
    bt_gguf_close(gguf);
    bt_backend_close(be);
    bt_free(data);
    return status;
}

static void altered_model_files_are_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(load_altered("blk.1.ffn_up.weight", "blk.1.ffn_op.weight"),
                     BT_ERR_BAD_FILE);
    assert_string_equal(why,
                        "tensor blk.1.ffn_up.weight is missing from the file");
    assert_int_equal(load_altered("rope_freqs.weight", "rope_freqz.weight"),
                     BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "tensor rope_freqz.weight has no place"));
    assert_int_equal(load_altered("llama.block_count", "llama.block_caunt"),
                     BT_ERR_BAD_FILE);
    assert_string_equal(why, "key llama.block_count is missing from the file");
}

static void context_over_the_models_maximum_is_refused(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_backend_t *const be = open_backend(1);
    bt_model_config_t config = default_config;
    bt_model_t *model = NULL;
    bt_model_memory_t memory;

    (void)state;
    config.context_tokens = 513;
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_ERR_INVALID_PARAM);
    assert_string_equal(why, "a context of 513 tokens is asked for; this model "
                             "has 1 to 512");
    assert_int_equal(
        bt_model_memory(gguf, "cpu", &config, why, sizeof(why), &memory),
        BT_ERR_INVALID_PARAM);
    config = default_config;
    config.max_rows = 0;
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_ERR_INVALID_PARAM);
    assert_null(model);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

static void predicted_memory_equals_allocated_memory(void **state)
{
    (void)state;
    if (heap_bytes() == 0) {
        skip(); /* a sanitizer's allocator does not tell */
    }
    for (int v = 0; v <= N_VARIANTS; v++) { /* the last one with experts */
        bt_tiny_model_t tiny = variant((v < N_VARIANTS) ? v : 0);
        bt_gguf_t *gguf;
        bt_backend_t *const be = open_backend(1);
        bt_model_t *model = NULL;
        bt_model_memory_t memory;
        size_t foretold;
        size_t before;
        size_t taken;

        tiny.n_layers = 8; /* so that no single buffer decides */
        tiny.n_experts = (v < N_VARIANTS) ? 0 : 6;
        tiny.n_experts_used = 2;
        if (v == N_VARIANTS) {
            tiny.architecture = "qwen2moe";
            tiny.shared_dim = 192;
        }
        gguf = open_tiny(&tiny);
        assert_int_equal(bt_model_memory(gguf, "cpu", &default_config, why,
                                         sizeof(why), &memory),
                         BT_OK);
        foretold = bt_model_memory_host(&memory);
        assert_false(memory.own_memory);
        assert_int_equal(memory.device_bytes, 0);
        /* Once before: the back end grows its own scratch by the first. */
        assert_int_equal(
            bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
            BT_OK);
        bt_model_destroy(model);
        before = heap_bytes();
        assert_int_equal(
            bt_model_load(gguf, be, &default_config, why, sizeof(why), &model),
            BT_OK);
        taken = heap_bytes() - before;
        assert_in_range(foretold, taken - taken / 20, taken + taken / 20);
        bt_model_destroy(model);
        bt_backend_close(be);
        bt_gguf_close(gguf);
    }
}

static void model_load_survives_every_failed_allocation(void **state)
{
    bt_tiny_model_t tiny = variant(2);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_backend_t *const be = open_backend(1);
    bt_model_t *model = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status =
            bt_model_load(gguf, be, &default_config, why, sizeof(why), &model);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_true(strlen(why) > 0);
            assert_null(model);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 30);
    bt_model_destroy(model);
    bt_model_destroy(NULL);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

/* The model's own embeddings: rows of F32 in its file. */
static const float *own_rows(const bt_gguf_t *gguf)
{
    const bt_gguf_tensor_t *tensor = bt_gguf_tensor(gguf, "token_embd.weight");

    assert_non_null(tensor);
    assert_int_equal(tensor->type, 0);
    return tensor->data;
}

/* A prompt of which the tokens of every third place, and the last, are given
 * as embeddings. */
typedef struct given {
    uint32_t tokens[N_TOKENS];
    const float *rows[N_TOKENS];
    uint32_t blocks[N_BLOCKS / 8];
    bt_ragged_seq_t seqs[2];
    uint32_t logit_rows[2];
} given_t;

static void give(given_t *g, const bt_gguf_t *gguf, const uint32_t *tokens,
                 uint32_t dim)
{
    memset(g, 0, sizeof(*g));
    fill_blocks(g->blocks, N_BLOCKS / 8);
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        g->tokens[i] = tokens[i];
        if ((i % 3 == 0) || (i + 1 == N_TOKENS)) {
            g->tokens[i] = BT_NO_TOKEN;
            g->rows[i] = own_rows(gguf) + (size_t)tokens[i] * dim;
        }
    }
}

static void embeddings_of_tokens_give_the_bits_of_the_tokens(void **state)
{
    bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    rig_t rig = make_rig(&tiny, 2);
    logits_of_prompt_t p = run_whole(&rig);
    const uint32_t chunks[] = {1, 7, 50, N_TOKENS - 58};
    uint32_t at = 0;
    given_t g;

    (void)state;
    give(&g, gguf, p.tokens, tiny.dim);
    for (size_t i = 0; i < BT_ARRAY_LEN(chunks); at += chunks[i++]) {
        const uint32_t last = chunks[i] - 1;
        const bt_ragged_seq_t seq = {
            .n_rows = chunks[i], .pos = at, .blocks = g.blocks};
        const bt_forward_t fwd = {.seqs = &seq,
                                  .n_seqs = 1,
                                  .tokens = g.tokens + at,
                                  .embeddings = g.rows + at,
                                  .n_rows = chunks[i],
                                  .logit_rows = &last,
                                  .n_logit_rows = 1,
                                  .kv = rig.kv};
        bt_forward_t without = fwd;
        float *logits = NULL;

        assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
        assert_memory_equal(logits, p.whole + (size_t)(at + last) * rig.n_vocab,
                            rig.n_vocab * sizeof(*logits));
        without.embeddings = NULL; /* each chunk has some */
        assert_int_equal(bt_model_forward(rig.model, &without, &logits),
                         BT_ERR_INVALID_PARAM);
    }
    assert_int_equal(at, N_TOKENS);
    free_logits(&p);
    free_rig(&rig);
    bt_gguf_close(gguf);
}

/* Adds the last token, a row, as the second sequence. */
static uint32_t last_comes_late(void *ctx, uint32_t n_layers)
{
    given_t *g = ctx;

    if ((n_layers != 1) || (g->seqs[1].n_rows != 0)) {
        return 0;
    }
    g->seqs[1] = (bt_ragged_seq_t){
        .row = 5, .n_rows = 1, .pos = N_TOKENS - 1, .blocks = g->blocks};
    g->logit_rows[1] = 5;
    return 1;
}

static void embedding_that_joins_mid_step_gives_the_same_bits(void **state)
{
    bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    rig_t rig = make_rig(&tiny, 1);
    logits_of_prompt_t p = run_whole(&rig);
    uint32_t tokens[6], blocks[N_BLOCKS / 8];
    const float *rows[6] = {NULL};
    float *logits = NULL;
    bt_forward_t fwd;
    given_t g;

    (void)state;
    give(&g, gguf, p.tokens, tiny.dim);
    forward_range(&rig, p.tokens, 0, N_TOKENS - 1, g.blocks, p.other);
    fill_blocks(blocks, 0);
    memcpy(tokens, p.tokens, 5 * sizeof(*tokens));
    tokens[5] = g.tokens[N_TOKENS - 1];
    rows[5] = g.rows[N_TOKENS - 1];
    g.seqs[0] = (bt_ragged_seq_t){.n_rows = 5, .blocks = blocks};
    g.logit_rows[0] = 4;
    fwd = (bt_forward_t){.seqs = g.seqs,
                         .n_seqs = 1,
                         .tokens = tokens,
                         .embeddings = rows,
                         .n_rows = 5,
                         .logit_rows = g.logit_rows,
                         .n_logit_rows = 1,
                         .kv = rig.kv,
                         .take_late = last_comes_late,
                         .take_late_ctx = &g};
    assert_int_equal(bt_model_forward(rig.model, &fwd, &logits), BT_OK);
    assert_int_equal(g.seqs[1].n_rows, 1);
    assert_memory_equal(logits, p.whole + (size_t)4 * rig.n_vocab,
                        rig.n_vocab * sizeof(*logits));
    assert_memory_equal(logits + rig.n_vocab,
                        p.whole + (size_t)(N_TOKENS - 1) * rig.n_vocab,
                        rig.n_vocab * sizeof(*logits));
    free_logits(&p);
    free_rig(&rig);
    bt_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(chunks_give_the_bits_of_one_call),
        BT_TEST(single_operations_give_the_bits_of_fused_steps),
        BT_TEST(other_sequences_in_the_batch_change_no_bit),
        BT_TEST(omitted_logits_change_no_bit),
        BT_TEST(embeddings_of_tokens_give_the_bits_of_the_tokens),
        BT_TEST(embedding_that_joins_mid_step_gives_the_same_bits),
        BT_TEST(forward_reads_only_blocks_of_its_sequences),
        BT_TEST(other_kv_types_give_close_and_stable_logits),
        BT_TEST(forward_refuses_out_of_range_arguments),
        BT_TEST(hparams_are_read_from_the_file),
        BT_TEST(vocabulary_rows_without_a_token_are_omitted),
        BT_TEST(vocabulary_size_may_be_any_number),
        BT_TEST(unsupported_architecture_features_are_refused_by_name),
        BT_TEST(altered_model_files_are_refused_by_name),
        BT_TEST(context_over_the_models_maximum_is_refused),
        BT_TEST(predicted_memory_equals_allocated_memory),
        BT_TEST(model_load_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
