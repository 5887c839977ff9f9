/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters against models into whose weights scale B A was added, and rows of
 * many adapters in one batch against each of them alone. */
#include "inference/model/lora.h"
#include "tests/unit/inference/model/rig.h"

#include <stdio.h>

#include "common/base/status.h"

#define N_ADAPTERS 4u
#define MAX_PARTS  14u /* two layers of seven products */
#define ROWS       24u /* of each sequence */

/* Both ways sum in float32, but attention multiplies bf16, to which a number
 * that lies near half way is rounded one way or the other: few logits differ,
 * and by little. */
#define TOLERANCE 0.05
#define MEAN      0.001

/* An adapter of some products of the tiny model's layers. */
typedef struct made {
    bt_adapter_t adapter;
    bt_adapter_part_t parts[MAX_PARTS];
    float *data[MAX_PARTS];
} made_t;

/* Multiples of 2^-10 below 0.25, by a linear congruence. */
static float next_number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int32_t)(*seed >> 23) - 256) / 1024.0f;
}

static void add_part(made_t *made, const bt_hparams_t *hp, uint32_t layer,
                     bt_adapter_product_t product, uint32_t rank,
                     uint32_t *seed)
{
    const uint32_t q = hp->n_heads * hp->head_dim;
    const uint32_t kv = hp->n_kv_heads * hp->head_dim;
    const uint32_t sizes[BT_ADAPTER_N_PRODUCTS][2] = {
        {hp->dim, q},          {hp->dim, kv},          {hp->dim, kv},
        {q, hp->dim},          {hp->dim, hp->ffn_dim}, {hp->dim, hp->ffn_dim},
        {hp->ffn_dim, hp->dim}};
    bt_adapter_part_t *const part = &made->parts[made->adapter.n_parts];
    const size_t n_in = sizes[product][0];
    const size_t n_out = sizes[product][1];
    float *const data = bt_calloc(rank * (n_in + n_out), sizeof(*data));

    assert_non_null(data);
    for (size_t i = 0; i < rank * (n_in + n_out); i++) {
        data[i] = next_number(seed);
    }
    *part = (bt_adapter_part_t){.layer = layer,
                                .product = product,
                                .rank = rank,
                                .n_in = (uint32_t)n_in,
                                .n_out = (uint32_t)n_out,
                                .type = BT_ADAPTER_F32,
                                .scale = 0.5f,
                                .a = data,
                                .b = data + rank * n_in};
    made->data[made->adapter.n_parts++] = data;
}

/* @param products  bits */
static void make_adapter(made_t *made, const bt_hparams_t *hp, uint32_t rank,
                         uint32_t products, uint32_t seed)
{
    *made = (made_t){.adapter = {.max_rank = rank}};
    made->adapter.parts = made->parts;
    for (uint32_t layer = 0; layer < hp->n_layers; layer++) {
        for (uint32_t p = 0; p < BT_ADAPTER_N_PRODUCTS; p++) {
            if ((products >> p & 1u) != 0) {
                add_part(made, hp, layer, (bt_adapter_product_t)p, rank, &seed);
            }
        }
    }
}

static void free_adapter(made_t *made)
{
    for (uint32_t i = 0; i < made->adapter.n_parts; i++) {
        bt_free(made->data[i]);
    }
}

static bt_lora_t *load(rig_t *rig, const made_t *made)
{
    bt_lora_t *lora = NULL;

    assert_int_equal(
        bt_lora_load(rig->model, &made->adapter, why, sizeof(why), &lora),
        BT_OK);
    assert_true(bt_lora_bytes(lora) > 0);
    return lora;
}

/* A rig of a file in memory. */
static rig_t rig_of(const void *file, size_t bytes)
{
    bt_model_config_t config = default_config;
    bt_gguf_t *gguf = NULL;
    rig_t rig = {.be = open_backend(2)};
    const bt_hparams_t *hp;

    config.max_lora_rank = 64;
    assert_int_equal(bt_gguf_open_memory(file, bytes, why, sizeof(why), &gguf),
                     BT_OK);
    assert_int_equal(
        bt_model_load(gguf, rig.be, &config, why, sizeof(why), &rig.model),
        BT_OK);
    bt_gguf_close(gguf);
    hp = bt_model_hparams(rig.model);
    rig.n_vocab = hp->n_vocab;
    rig.kv =
        (bt_kv_view_t){.type = BT_KV_F16,
                       .n_layers = hp->n_layers,
                       .n_kv_heads = hp->n_kv_heads,
                       .head_dim = hp->head_dim,
                       .tokens_per_block = T,
                       .block_bytes = (size_t)hp->n_layers * 2 *
                                      hp->n_kv_heads * T * hp->head_dim * 2};
    rig.kv.base = bt_calloc_aligned(N_BLOCKS, rig.kv.block_bytes);
    assert_non_null(rig.kv.base);
    return rig;
}

static void *read_tiny(const bt_tiny_model_t *tiny, size_t *bytes_p)
{
    char path[] = "/tmp/baton-test-lora-XXXXXX";
    const int fd = mkstemp(path);
    void *data;
    FILE *file;
    long n;

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    n = ftell(file);
    rewind(file);
    data = bt_calloc_aligned(1, (size_t)n);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)n, file), n);
    fclose(file);
    unlink(path);
    *bytes_p = (size_t)n;
    return data;
}

/* Adds scale B A to rows of a F32 matrix of the file, which is writable. */
static void merge_part(const bt_gguf_t *gguf, const bt_hparams_t *hp,
                       const bt_adapter_part_t *p)
{
    const uint32_t q = hp->n_heads * hp->head_dim;
    const uint32_t kv = hp->n_kv_heads * hp->head_dim;
    const uint32_t rows_before[BT_ADAPTER_N_PRODUCTS] = {
        0, q, q + kv, 0, 0, hp->ffn_dim, 0};
    const float *const a = p->a;
    const float *const b = p->b;
    const bt_gguf_tensor_t *t;
    char name[64];
    size_t first = 0;
    float *w;

    snprintf(name, sizeof(name), "blk.%u.%s.weight", p->layer,
             bt_adapter_product_name(p->product));
    t = bt_gguf_tensor(gguf, name);
    if ((t == NULL) || (t->dims[1] == 2 * (uint64_t)hp->ffn_dim)) { /* fused */
        snprintf(name, sizeof(name), "blk.%u.%s.weight", p->layer,
                 (p->product <= BT_ADAPTER_V) ? "attn_qkv" : "ffn_up");
        t = bt_gguf_tensor(gguf, name);
        first = rows_before[p->product];
    }
    assert_non_null(t);
    assert_int_equal(t->dims[0], p->n_in);
    w = (float *)(uintptr_t)t->data + first * p->n_in;
    for (size_t o = 0; o < p->n_out; o++) {
        for (size_t k = 0; k < p->n_in; k++) {
            double sum = 0.0;

            for (size_t j = 0; j < p->rank; j++) {
                sum += (double)b[o * p->rank + j] * a[j * p->n_in + k];
            }
            w[o * p->n_in + k] += (float)(p->scale * sum);
        }
    }
}

/* Logits of all rows of a batch: sequence i has ROWS tokens from a place of its
 * own, and adapter i. */
static void forward_all(rig_t *rig, const bt_lora_t *const *loras, uint32_t n,
                        const uint32_t *which, float *out)
{
    bt_ragged_seq_t seqs[N_ADAPTERS + 1];
    uint32_t blocks[N_ADAPTERS + 1][2];
    uint32_t tokens[MAX_ROWS];
    uint32_t rows[MAX_ROWS];
    uint32_t text[MAX_ROWS];
    float *logits = NULL;
    bt_forward_t fwd = {.seqs = seqs,
                        .n_seqs = n,
                        .loras = loras,
                        .tokens = tokens,
                        .n_rows = n * ROWS,
                        .logit_rows = rows,
                        .n_logit_rows = n * ROWS,
                        .kv = rig->kv};

    fill_tokens(text, MAX_ROWS, rig->n_vocab);
    for (uint32_t i = 0; i < n; i++) {
        seqs[i] = (bt_ragged_seq_t){
            .row = i * ROWS, .n_rows = ROWS, .blocks = blocks[i]};
        blocks[i][0] = 2 * i + 1;
        blocks[i][1] = 2 * i;
        memcpy(tokens + (size_t)i * ROWS, text + which[i],
               ROWS * sizeof(*tokens));
    }
    for (uint32_t i = 0; i < n * ROWS; i++) {
        rows[i] = i;
    }
    assert_int_equal(bt_model_forward(rig->model, &fwd, &logits), BT_OK);
    memcpy(out, logits, (size_t)n * ROWS * rig->n_vocab * sizeof(*out));
}

static void check_merged(const bt_tiny_model_t *tiny, uint32_t products)
{
    static const uint32_t which[] = {3};
    const bt_lora_t *const none = NULL;
    size_t bytes;
    void *const file = read_tiny(tiny, &bytes);
    rig_t rig = rig_of(file, bytes);
    const bt_hparams_t *const hp = bt_model_hparams(rig.model);
    const size_t n = (size_t)ROWS * rig.n_vocab;
    float *const got = bt_calloc(3 * n, sizeof(*got));
    double worst = 0.0;
    double moved = 0.0;
    double sum = 0.0;
    bt_gguf_t *gguf = NULL;
    const bt_lora_t *lora;
    bt_lora_t *own;
    made_t made;
    rig_t merged;

    assert_non_null(got);
    make_adapter(&made, hp, 13, products, 7);
    own = load(&rig, &made);
    lora = own;
    forward_all(&rig, &lora, 1, which, got);
    forward_all(&rig, &none, 1, which, got + n);
    assert_int_equal(bt_gguf_open_memory(file, bytes, why, sizeof(why), &gguf),
                     BT_OK);
    for (uint32_t i = 0; i < made.adapter.n_parts; i++) {
        merge_part(gguf, hp, &made.parts[i]);
    }
    bt_gguf_close(gguf);
    merged = rig_of(file, bytes);
    forward_all(&merged, &none, 1, which, got + 2 * n);
    for (size_t i = 0; i < n; i++) {
        const double diff = fabs((double)got[i] - (double)got[2 * n + i]);
        const double by = fabs((double)got[i] - (double)got[n + i]);

        worst = (diff > worst) ? diff : worst;
        sum += diff;
        moved = (by > moved) ? by : moved;
    }
    print_message("%s, products %x: off by %.6f, %.6f on average, moved by "
                  "%.2f\n",
                  tiny->architecture, products, worst, sum / (double)n, moved);
    assert_true(worst < TOLERANCE);
    assert_true(sum / (double)n < MEAN);
    assert_true(moved > 0.1);
    bt_lora_free(rig.model, own);
    free_adapter(&made);
    free_rig(&rig);
    free_rig(&merged);
    bt_free(got);
    bt_free(file);
}

static void adapter_is_its_weights_merged(void **state)
{
    static const char *const families[] = {"llama",  "qwen2",  "gemma",
                                           "phi3",   "olmo2",  "gpt2",
                                           "falcon", "cohere2"};
    bt_tiny_model_t tiny = bt_tiny_model_default();

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(families); i++) {
        const bool plain = (strcmp(families[i], "gpt2") == 0) ||
                           (strcmp(families[i], "falcon") == 0);

        tiny.architecture = families[i];
        check_merged(&tiny, plain ? 0x6f : 0x7f); /* without a gate */
    }
    tiny.architecture = "llama";
    for (uint32_t p = 0; p < BT_ADAPTER_N_PRODUCTS; p++) {
        check_merged(&tiny, 1u << p);
    }
}

/* Two rigs, so that nothing of a batch is left where the other looks. */
static void rows_have_their_bits_in_any_company(void **state)
{
    static const uint32_t ranks[N_ADAPTERS] = {1, 8, 13, 64};
    static const uint32_t which[N_ADAPTERS + 1] = {9, 3, 3, 14, 0};
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    size_t bytes;
    void *const file = read_tiny(&tiny, &bytes);
    rig_t rig = rig_of(file, bytes);
    rig_t plain = make_rig(&tiny, 1);
    const bt_hparams_t *const hp = bt_model_hparams(rig.model);
    const size_t n = (size_t)ROWS * rig.n_vocab;
    float *const all = bt_calloc((N_ADAPTERS + 2) * n, sizeof(*all));
    float *const one = all + (N_ADAPTERS + 1) * n;
    const bt_lora_t *loras[N_ADAPTERS + 1];
    bt_lora_t *own[N_ADAPTERS];
    made_t made[N_ADAPTERS];

    (void)state;
    assert_non_null(all);
    for (uint32_t i = 0; i < N_ADAPTERS; i++) {
        make_adapter(&made[i], hp, ranks[i], (i % 2 == 0) ? 0x7f : 0x2d,
                     20 + i);
        own[i] = load(&rig, &made[i]);
    }
    loras[0] = own[1];
    loras[1] = own[0];
    loras[2] = NULL;
    loras[3] = own[3];
    loras[4] = own[2];
    forward_all(&rig, loras, N_ADAPTERS + 1, which, all);
    for (uint32_t i = 0; i <= N_ADAPTERS; i++) {
        forward_all(&rig, &loras[i], 1, &which[i], one);
        assert_memory_equal(one, all + i * n, n * sizeof(*one));
    }
    forward_all(&plain, NULL, 1, &which[2], one); /* the base has no adapters */
    assert_memory_equal(one, all + 2 * n, n * sizeof(*one));
    for (uint32_t i = 0; i < N_ADAPTERS; i++) {
        bt_lora_free(rig.model, own[i]);
        free_adapter(&made[i]);
    }
    free_rig(&rig);
    free_rig(&plain);
    bt_free(all);
    bt_free(file);
}

static void expect_refused(rig_t *rig, const made_t *made, bt_status_t status,
                           const char *reason)
{
    bt_lora_t *lora = NULL;

    assert_int_equal(
        bt_lora_load(rig->model, &made->adapter, why, sizeof(why), &lora),
        status);
    assert_null(lora);
    assert_string_equal(why, reason);
}

static void adapter_of_another_shape_is_refused(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    size_t bytes;
    void *const file = read_tiny(&tiny, &bytes);
    rig_t rig = rig_of(file, bytes);
    rig_t plain = make_rig(&tiny, 1);
    const bt_hparams_t *const hp = bt_model_hparams(rig.model);
    made_t made;

    (void)state;
    make_adapter(&made, hp, 65, 1, 1);
    expect_refused(&rig, &made, BT_ERR_UNSUPPORTED,
                   "it has rank 65, and adapters of at most 64 are taken "
                   "(--max-lora-rank)");
    free_adapter(&made);
    make_adapter(&made, hp, 8, 1, 1);
    expect_refused(&plain, &made, BT_ERR_UNSUPPORTED,
                   "this model was loaded without room for adapters");
    made.parts[1].n_out = 48;
    expect_refused(&rig, &made, BT_ERR_MISMATCH,
                   "attn_q of layer 1 is of a 48 x 64 matrix, the model's is "
                   "64 x 64");
    made.parts[1].n_out = 64;
    made.parts[1].layer = 2;
    expect_refused(&rig, &made, BT_ERR_MISMATCH,
                   "attn_q of layer 2 is of a 64 x 64 matrix, the model's is "
                   "64 x 64");
    free_adapter(&made);
    free_rig(&rig);
    free_rig(&plain);
    bt_free(file);
}

/* The products of a feed-forward are those of each expert there. */
static void adapter_of_experts_is_refused_by_name(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    size_t bytes;
    made_t made;
    void *file;
    rig_t rig;

    (void)state;
    tiny.n_experts = 4;
    tiny.n_experts_used = 2;
    file = read_tiny(&tiny, &bytes);
    rig = rig_of(file, bytes);
    make_adapter(&made, bt_model_hparams(rig.model), 8, 1u << BT_ADAPTER_DOWN,
                 1);
    expect_refused(&rig, &made, BT_ERR_UNSUPPORTED,
                   "ffn_down of layer 0: the layer has experts, of which "
                   "adapters are not computed");
    free_adapter(&made);
    make_adapter(&made, bt_model_hparams(rig.model), 8, 1u << BT_ADAPTER_Q, 1);
    bt_lora_free(rig.model, load(&rig, &made));
    free_adapter(&made);
    free_rig(&rig);
    bt_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapter_is_its_weights_merged),
        BT_TEST(rows_have_their_bits_in_any_company),
        BT_TEST(adapter_of_another_shape_is_refused),
        BT_TEST(adapter_of_experts_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
