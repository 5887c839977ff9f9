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
 *     experts E USED ROWS CALLS SAMPLES
 *                                     the matrices as those of E experts: rows
 *                                     go through USED of them each
 *     kv TYPE HEADS KV_HEADS DIM ROWS POS SEQS LAYERS
 *                                     SEQS sequences with ROWS new tokens from
 *                                     position POS each: {"kv_token_bytes"}, of
 *                                     one layer
 *     attention CALLS SAMPLES         over the KV cache, layer by layer
 *     step LAYERS SAMPLES             {"seconds": [of a layer in each sample]}:
 *                                     a norm, a product and an addition of one
 *                                     row, with the weight, which is square
 *     pool, across, checked, staged   _gpu_copy.h
 *
 * A sample is CALLS calls followed by a wait. Without samples a command is one
 * untimed call: for the simulator of the tests, which counts accesses. */
#include <stdio.h>
#include <string.h>

#include "bench/_gpu_copy.h"
#include "bench/_ops.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define WARM_UP 3u /* warm-up samples, not reported; graphs are made */

static void sample(bt_ops_run_t *r, bt_ops_call_t call, uint32_t n_calls)
{
    r->at = 0; /* the same calls each time: they become a graph */
    for (uint32_t i = 0; i < n_calls; i++) {
        call(r);
    }
    bt_half_must(r->be->ops->sync(r->be), "a wait");
}

static void measure(bt_ops_run_t *r, bt_ops_call_t call,
                    const char *const *words)
{
    const uint32_t n_calls = bt_half_number(words[0], 1, BT_OPS_MAX_COUNT);
    const uint32_t n_samples = bt_half_number(words[1], 0, BT_OPS_MAX_COUNT);

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

/* ---- a layer ---- */

/* Measures launch overhead, with little other work. */
static void call_layer(bt_ops_run_t *r)
{
    const bt_kernels_ops_t *ops = r->be->ops;
    float *const row = r->x + r->n_in;

    ops->rmsnorm(r->be, r->x, r->x, 1e-5f, 1, r->n_in, row);
    ops->matmul(r->be, r->weights[0], row, 1, r->out);
    ops->add(r->be, row, r->out, r->n_in);
}

static void run_step(bt_ops_run_t *r, const char *const *words)
{
    if ((r->n_copies == 0) || (r->n_out != r->n_in)) {
        bt_half_die(BT_OK, "a step without a square weight");
    }
    bt_ops_measure(r, (size_t)2 * r->n_in, r->n_out, call_layer, words + 1);
}

/* ---- the KV cache ---- */

/* Ordinary numbers throughout a block: elements between a half and 2, scales of
 * 2^-7. */
static uint8_t *block_bits(bt_ops_run_t *r)
{
    const bt_kv_type_info_t *info = bt_kv_type_info(r->kv.type);
    const size_t vectors =
        (size_t)r->kv.n_layers * 2 * r->kv.n_kv_heads * r->kv.tokens_per_block;
    const size_t bytes = vectors * r->kv.head_dim * info->elem_bytes;
    const float scale = 0x1p-7f;
    uint8_t *data = bt_half_zeros(r->kv.block_bytes, 1);

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

static void fill_blocks(bt_ops_run_t *r)
{
    uint8_t *data = block_bits(r);

    for (uint32_t i = 0; i < r->n_blocks; i++) {
        bt_half_must(r->be->ops->copy_in(
                         r->be, (uint8_t *)r->kv.base + i * r->kv.block_bytes,
                         data, r->kv.block_bytes),
                     "a copy");
    }
    bt_free(data);
}

static void begin_batch(const bt_ops_run_t *r)
{
    const bt_batch_t batch = bt_ops_batch(r);
    const bt_batch_limits_t limits = {.max_rows = r->n_rows,
                                      .max_seqs = r->n_seqs,
                                      .max_logit_rows = 1,
                                      .max_blocks = r->n_blocks};

    if (r->be->ops->batch_reserve != NULL) {
        bt_half_must(r->be->ops->batch_reserve(r->be, &limits),
                     "batch_reserve");
    }
    if (r->be->ops->batch_begin != NULL) {
        bt_half_must(r->be->ops->batch_begin(r->be, &batch), "batch_begin");
    }
}

/* Workload memory of a model with these heads. */
static void reserve(const bt_ops_run_t *r, uint32_t tokens)
{
    const bt_workload_t workload = {.max_rows = r->n_rows,
                                    .max_seqs = r->n_seqs,
                                    .context_tokens = tokens,
                                    .n_heads = r->n_heads,
                                    .n_kv_heads = r->kv.n_kv_heads,
                                    .head_dim = r->kv.head_dim};

    if (r->be->ops->workload_reserve != NULL) {
        bt_half_must(r->be->ops->workload_reserve(r->be, &workload), "scratch");
    }
}

static void set_kv(bt_ops_run_t *r, const char *const *words)
{
    const uint32_t n_layers = bt_half_number(words[8], 1, BT_OPS_MAX_COUNT);

    bt_ops_kv(r, words, n_layers);
    reserve(r, r->seqs[0].pos + r->seqs[0].n_rows);
    fill_blocks(r);
    begin_batch(r);
    printf("{\"kv_token_bytes\": %zu}\n",
           r->kv.block_bytes / BT_OPS_TOKENS_PER_BLOCK / n_layers);
}

int main(int argc, char **argv)
{
    static const bt_ops_command_t commands[] = {
        {"weight", bt_ops_weight},
        {"matmul", bt_ops_matmul},
        {"experts", bt_ops_experts},
        {"step", run_step},
        {"kv", set_kv},
        {"attention", bt_ops_attention},
    };
    const char *words[BT_HALF_MAX_WORDS];
    bt_gpu_copy_t copy = {0};
    bt_ops_run_t r = {.random = 1, .measure = measure};
    bt_backend_config_t config = {.n_threads = 2};
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
        if (!bt_gpu_copy_command(&copy, words)) {
            bt_ops_obey(&r, commands, BT_ARRAY_LEN(commands), words);
        }
    }
    bt_gpu_copy_fini(&copy);
    bt_ops_fini(&r);
    return 0;
}
