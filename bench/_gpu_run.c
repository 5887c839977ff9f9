/* SPDX-License-Identifier: Apache-2.0 */
/* Runs single operations of a back end with memory of its own, for
 * bench/_gpu.py.
 *
 *     gpu-run BACKEND MAX_ROWS [tensor]   the numerics, if not exact
 *
 * Prints a line of JSON about the back end, then answers commands:
 *
 *     weight TYPE N_OUT N_IN COPIES   random matrices, for the next matmuls:
 *                                     {"bytes": in the file, "packed_bytes"}
 *     matmul ROWS CALLS SAMPLES       {"seconds": [of a call in each sample]};
 *                                     the copies one after the other
 *     kv TYPE HEADS KV_HEADS DIM ROWS POS SEQS LAYERS
 *                                     SEQS sequences with ROWS new tokens from
 *                                     position POS each: {"kv_token_bytes"}, of
 *                                     one layer
 *     attention CALLS SAMPLES         over the KV cache, a layer after the
 * other step LAYERS SAMPLES             {"seconds": [of a layer in each
 * sample]}: a norm, a product and an addition of one row, with the weight,
 * which is square pool, across, checked, staged   _gpu_copy.h
 *
 * A sample is CALLS calls followed by a wait. Without samples a command is one
 * untimed call: for the simulator of the tests, which counts accesses. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/_gpu_copy.h"
#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"

#define TOKENS_PER_BLOCK 16u
#define MAX_COUNT        (1u << 20)
#define MAX_COPIES       1024u
#define WARM_UP          3u /* warm-up samples, not reported; graphs are made */

typedef struct run {
    bt_backend_t *be;
    uint32_t max_rows;
    uint64_t random;

    bt_weight_t *weights[MAX_COPIES];
    uint32_t n_copies;
    uint32_t at; /* which copy, or layer, comes next */
    uint32_t n_out;
    uint32_t n_in;

    bt_kv_view_t kv;
    uint32_t n_heads;
    uint32_t n_seqs;
    bt_ragged_seq_t *seqs;
    uint32_t *ids;
    uint32_t *tokens; /* arbitrary token ids */

    float *x; /* input and output of the current operation */
    float *out;
    uint32_t n_rows;
} run_t;

typedef void (*call_t)(run_t *r);

static void must(bt_status_t status, const char *what)
{
    if (status != BT_OK) {
        bt_half_die(status, "%s", what);
    }
}

static void *host_zeros(size_t n, size_t bytes)
{
    void *ptr = bt_calloc(n, bytes);

    if (ptr == NULL) {
        bt_half_die(BT_ERR_NO_MEMORY, "%zu x %zu bytes", n, bytes);
    }
    return ptr;
}

static float *floats(run_t *r, size_t n)
{
    float *host = host_zeros(n, sizeof(*host));
    void *ptr = NULL;

    for (size_t i = 0; i < n; i++) {
        host[i] = (float)bt_half_random(&r->random, 4096) / 1024.0f - 2.0f;
    }
    must(r->be->ops->buffer_alloc(r->be, n * sizeof(*host), &ptr), "memory");
    must(r->be->ops->copy_in(r->be, ptr, host, n * sizeof(*host)), "a copy");
    bt_free(host);
    return ptr;
}

static void sample(run_t *r, call_t call, uint32_t n_calls)
{
    r->at = 0; /* the same calls each time: they become a graph */
    for (uint32_t i = 0; i < n_calls; i++) {
        call(r);
    }
    must(r->be->ops->sync(r->be), "a wait");
}

static void measure(run_t *r, call_t call, const char *const *words)
{
    const uint32_t n_calls = bt_half_number(words[0], 1, MAX_COUNT);
    const uint32_t n_samples = bt_half_number(words[1], 0, MAX_COUNT);

    for (uint32_t i = 0; i < ((n_samples == 0) ? 1 : WARM_UP); i++) {
        sample(r, call, (n_samples == 0) ? 1 : n_calls);
    }
    printf("{\"seconds\": [");
    for (uint32_t i = 0; i < n_samples; i++) {
        const uint64_t start = bt_now_ns();

        sample(r, call, n_calls);
        printf("%s%.9f", (i == 0) ? "" : ", ",
               (double)(bt_now_ns() - start) * 1e-9 / n_calls);
    }
    printf("]}\n");
}

static void with_buffers(run_t *r, size_t n_x, size_t n_out, call_t call,
                         const char *const *words)
{
    r->x = floats(r, n_x);
    r->out = floats(r, n_out);
    measure(r, call, words);
    r->be->ops->buffer_free(r->be, r->x);
    r->be->ops->buffer_free(r->be, r->out);
}

/* ---- products ---- */

static void free_weights(run_t *r)
{
    for (uint32_t i = 0; i < r->n_copies; i++) {
        r->be->ops->weight_free(r->be, r->weights[i]);
    }
    r->n_copies = 0;
}

static uint32_t type_named(const char *name)
{
    uint32_t n_elems;
    uint32_t n_bytes;

    for (uint32_t type = 0; type < 64; type++) {
        if ((bt_ktype_block(type, &n_elems, &n_bytes) == BT_OK) &&
            (strcmp(bt_ktype_name(type), name) == 0)) {
            return type;
        }
    }
    bt_half_die(BT_OK, "no weight type is called %s", name);
}

/* Bits whose 16- and 32-bit floats are ordinary numbers wherever a block may
 * have one: the second byte of each pair loses its high exponent bit. */
static uint8_t *weight_bits(run_t *r, size_t bytes)
{
    uint8_t *data = host_zeros(bytes, 1);

    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)bt_half_random(&r->random, 256);
        data[i] = (i % 2 == 1) ? (data[i] & 0xbfu) : data[i];
    }
    return data;
}

static void set_weight(run_t *r, const char *const *words)
{
    const uint32_t type = type_named(words[1]);
    const uint32_t n_copies = bt_half_number(words[4], 1, MAX_COPIES);
    uint32_t n_elems = 1;
    uint32_t n_bytes = 1;
    uint8_t *data;
    size_t bytes;

    free_weights(r);
    must(bt_ktype_block(type, &n_elems, &n_bytes), words[1]);
    r->n_out = bt_half_number(words[2], 1, MAX_COUNT);
    r->n_in = bt_half_number(words[3], 1, MAX_COUNT);
    bytes = (size_t)r->n_out * r->n_in / n_elems * n_bytes;
    data = weight_bits(r, bytes);
    while (r->n_copies < n_copies) {
        must(r->be->ops->weight_pack(r->be, (bt_ktype_t)type, r->n_out, r->n_in,
                                     data, &r->weights[r->n_copies]),
             words[1]);
        r->n_copies++;
    }
    bt_free(data);
    printf("{\"bytes\": %zu, \"packed_bytes\": %zu}\n", bytes,
           r->be->ops->weight_bytes((bt_ktype_t)type, r->n_out, r->n_in));
}

static void call_matmul(run_t *r)
{
    r->be->ops->matmul(r->be, r->weights[r->at++ % r->n_copies], r->x,
                       r->n_rows, r->out);
}

static void run_matmul(run_t *r, const char *const *words)
{
    if (r->n_copies == 0) {
        bt_half_die(BT_OK, "a matmul before a weight");
    }
    r->n_rows = bt_half_number(words[1], 1, r->max_rows);
    with_buffers(r, (size_t)r->n_rows * r->n_in, (size_t)r->n_rows * r->n_out,
                 call_matmul, words + 2);
}

/* Measures launch overhead, with little other work. */
static void call_layer(run_t *r)
{
    const bt_kernels_ops_t *ops = r->be->ops;
    float *const row = r->x + r->n_in;

    ops->rmsnorm(r->be, r->x, r->x, 1e-5f, 1, r->n_in, row);
    ops->matmul(r->be, r->weights[0], row, 1, r->out);
    ops->add(r->be, row, r->out, r->n_in);
}

static void run_step(run_t *r, const char *const *words)
{
    if ((r->n_copies == 0) || (r->n_out != r->n_in)) {
        bt_half_die(BT_OK, "a step without a square weight");
    }
    with_buffers(r, (size_t)2 * r->n_in, r->n_out, call_layer, words + 1);
}

/* ---- attention ---- */

static void free_kv(run_t *r)
{
    if (r->kv.base != NULL) {
        r->be->ops->buffer_free(r->be, r->kv.base);
    }
    r->kv.base = NULL;
    bt_free(r->seqs);
    bt_free(r->ids);
    bt_free(r->tokens);
    r->seqs = NULL;
    r->ids = NULL;
    r->tokens = NULL;
}

static bt_batch_t batch_of(const run_t *r)
{
    return (bt_batch_t){.tokens = r->tokens,
                        .seqs = r->seqs,
                        .n_seqs = r->n_seqs,
                        .n_rows = r->n_rows,
                        .tokens_per_block = TOKENS_PER_BLOCK};
}

static void call_attention(run_t *r)
{
    const bt_batch_t batch = batch_of(r);
    const bt_attention_t attention = {.n_heads = r->n_heads,
                                      .key_dim = r->kv.head_dim,
                                      .value_dim = r->kv.head_dim,
                                      .scale =
                                          1.0f / sqrtf((float)r->kv.head_dim)};

    r->be->ops->attention(r->be, &attention, r->x, &batch, &r->kv,
                          r->at++ % r->kv.n_layers, r->out);
}

/* Ordinary numbers throughout a block: elements between a half and 2, scales of
 * 2^-7. */
static uint8_t *block_bits(run_t *r)
{
    const bt_kv_type_info_t *info = bt_kv_type_info(r->kv.type);
    const size_t vectors =
        (size_t)r->kv.n_layers * 2 * r->kv.n_kv_heads * r->kv.tokens_per_block;
    const size_t bytes = vectors * r->kv.head_dim * info->elem_bytes;
    const float scale = 0x1p-7f;
    uint8_t *data = host_zeros(r->kv.block_bytes, 1);

    for (size_t i = 0; i < bytes; i++) {
        const uint8_t bits = (uint8_t)bt_half_random(&r->random, 256);
        const uint8_t upper = (r->kv.type == BT_KV_F16)
                                  ? (bits & 0x83u) | 0x38u
                                  : (bits & 0x80u) | 0x3fu;

        data[i] = bits;
        if ((info->elem_bytes == 2) && (i % 2 == 1)) {
            data[i] = upper;
        } else if (r->kv.type == BT_KV_FP8) {
            data[i] = (bits & 0x87u) | 0x38u;
        }
    }
    for (size_t i = 0; i < vectors * (info->scale_bytes / sizeof(scale)); i++) {
        memcpy(data + bytes + i * sizeof(scale), &scale, sizeof(scale));
    }
    return data;
}

static void fill_blocks(run_t *r, uint32_t n_blocks)
{
    uint8_t *data = block_bits(r);

    for (uint32_t i = 0; i < n_blocks; i++) {
        must(r->be->ops->copy_in(r->be,
                                 (uint8_t *)r->kv.base + i * r->kv.block_bytes,
                                 data, r->kv.block_bytes),
             "a copy");
    }
    bt_free(data);
}

/* Blocks of the sequences alternate, as in serving. */
static void place_seqs(run_t *r, uint32_t rows, uint32_t pos, uint32_t per_seq)
{
    r->seqs = host_zeros(r->n_seqs, sizeof(*r->seqs));
    r->ids = host_zeros((size_t)r->n_seqs * per_seq, sizeof(*r->ids));
    r->tokens = host_zeros(r->n_rows, sizeof(*r->tokens));
    for (uint32_t s = 0; s < r->n_seqs; s++) {
        uint32_t *ids = r->ids + (size_t)s * per_seq;

        r->seqs[s] = (bt_ragged_seq_t){
            .row = s * rows, .n_rows = rows, .pos = pos, .blocks = ids};
        for (uint32_t b = 0; b < per_seq; b++) {
            ids[b] = b * r->n_seqs + s;
        }
    }
}

static void begin_batch(run_t *r, uint32_t n_blocks)
{
    const bt_batch_t batch = batch_of(r);
    const bt_batch_limits_t limits = {.max_rows = r->n_rows,
                                      .max_seqs = r->n_seqs,
                                      .max_logit_rows = 1,
                                      .max_blocks = n_blocks};

    if (r->be->ops->batch_reserve != NULL) {
        must(r->be->ops->batch_reserve(r->be, &limits), "batch_reserve");
    }
    if (r->be->ops->batch_begin != NULL) {
        must(r->be->ops->batch_begin(r->be, &batch), "batch_begin");
    }
}

/* Workload memory of a model with these heads. */
static void reserve(const run_t *r, uint32_t tokens)
{
    const bt_workload_t workload = {.max_rows = r->n_rows,
                                    .max_seqs = r->n_seqs,
                                    .context_tokens = tokens,
                                    .n_heads = r->n_heads,
                                    .n_kv_heads = r->kv.n_kv_heads,
                                    .head_dim = r->kv.head_dim};

    if (r->be->ops->workload_reserve != NULL) {
        must(r->be->ops->workload_reserve(r->be, &workload), "scratch");
    }
}

static void set_kv(run_t *r, const char *const *words)
{
    const uint32_t n_kv = bt_half_number(words[3], 1, MAX_COUNT);
    const uint32_t dim = bt_half_number(words[4], 2, 1024);
    const uint32_t rows = bt_half_number(words[5], 1, r->max_rows);
    const uint32_t pos = bt_half_number(words[6], 0, MAX_COUNT);
    const uint32_t n_layers = bt_half_number(words[8], 1, MAX_COUNT);
    const uint32_t per_seq = bt_kv_blocks_for(pos + rows, TOKENS_PER_BLOCK);
    bt_kv_type_t type = BT_KV_F16;

    free_kv(r);
    must(bt_kv_type_parse(words[1], &type), words[1]);
    r->n_heads = bt_half_number(words[2], 1, MAX_COUNT);
    r->n_seqs = bt_half_number(words[7], 1, r->max_rows / rows);
    r->n_rows = rows * r->n_seqs;
    r->kv = bt_half_kv(r->be, type, n_layers, n_kv, dim, TOKENS_PER_BLOCK,
                       per_seq * r->n_seqs);
    reserve(r, pos + rows);
    fill_blocks(r, per_seq * r->n_seqs);
    place_seqs(r, rows, pos, per_seq);
    begin_batch(r, per_seq * r->n_seqs);
    printf("{\"kv_token_bytes\": %zu}\n",
           r->kv.block_bytes / TOKENS_PER_BLOCK / n_layers);
}

static void run_attention(run_t *r, const char *const *words)
{
    const size_t heads = r->n_heads + (size_t)2 * r->kv.n_kv_heads;

    if (r->seqs == NULL) {
        bt_half_die(BT_OK, "attention before a cache");
    }
    with_buffers(r, r->n_rows * heads * r->kv.head_dim,
                 (size_t)r->n_rows * r->n_heads * r->kv.head_dim,
                 call_attention, words + 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(run_t *r, const char *const *words);
    } commands[] = {{"weight", set_weight},
                    {"matmul", run_matmul},
                    {"step", run_step},
                    {"kv", set_kv},
                    {"attention", run_attention}};
    const char *words[BT_HALF_MAX_WORDS];
    bt_gpu_copy_t copy = {0};
    run_t r = {.random = 1};
    bt_backend_config_t config = {.n_threads = 2, .max_dim = MAX_COUNT / 8};
    bt_status_t status;

    bt_log_init("gpu-run", BT_LOG_LEVEL_WARN);
    if ((argc == 4) && (strcmp(argv[3], "tensor") == 0)) {
        config.numerics = BT_NUMERICS_TENSOR;
    } else if (argc != 3) {
        bt_half_die(BT_OK, "it is run by bench/_gpu.py");
    }
    r.max_rows = config.max_rows = bt_half_number(argv[2], 1, 65536);
    status = bt_backend_open(argv[1], &config, &r.be);
    if (status != BT_OK) {
        bt_half_die(status, "back end %s", argv[1]);
    }
    printf("{\"backend\": \"%s\", \"profile\": \"%s\"}\n", r.be->caps->name,
           r.be->caps->profile);
    copy.be = r.be;
    while (bt_half_command(words) > 0) {
        size_t i = 0;

        if (bt_gpu_copy_command(&copy, words)) {
            continue;
        }
        while ((i < BT_ARRAY_LEN(commands)) &&
               (strcmp(words[0], commands[i].name) != 0)) {
            i++;
        }
        if (i == BT_ARRAY_LEN(commands)) {
            bt_half_die(BT_OK, "no command %s here", words[0]);
        }
        commands[i].run(&r, words);
    }
    free_weights(&r);
    free_kv(&r);
    bt_gpu_copy_fini(&copy);
    bt_backend_close(r.be);
    return 0;
}
