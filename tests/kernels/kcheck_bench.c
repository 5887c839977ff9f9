/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/clock.h"
#include "tests/kernels/kcheck.h"

#define BUDGET_NS 150000000u /* of one measurement */

/* Matrices of SmolLM2-135M: 30 layers and the output. */
typedef struct bench_shape {
    const char *name;
    bt_ktype_t type;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t count;
} bench_shape_t;

static const bench_shape_t shapes[] = {
    {"qkv", BT_KTYPE_Q4_1, 576, 960, 30},
    {"attention out", BT_KTYPE_Q4_1, 576, 576, 30},
    {"gate+up", BT_KTYPE_Q4_1, 576, 3072, 30},
    {"down", BT_KTYPE_Q4_1, 1536, 576, 30},
    {"output", BT_KTYPE_Q8_0, 576, 49152, 1},
};

#define MAX_COPIES 30u

/* Seconds per matmul; goes round `count` copies so that the weights come from
 * where they come from in a real pass. */
static double time_matmul(bt_backend_t *be, const bench_shape_t *s,
                          uint32_t n_rows)
{
    bt_weight_t *w[MAX_COPIES] = {NULL};
    uint32_t n_elems = 1;
    uint32_t n_bytes = 0;
    size_t bytes;
    uint8_t *data;
    float *x = kc_alloc((size_t)n_rows * s->n_in);
    float *out = kc_alloc((size_t)n_rows * s->n_out);
    double best = 1e9;
    uint64_t begin;

    (void)!bt_ktype_block(s->type, &n_elems, &n_bytes);
    bytes = (size_t)s->n_in * s->n_out / n_elems * n_bytes;
    data = bt_calloc(bytes, 1);
    if (data == NULL) {
        exit(2);
    }
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)kc_random();
    }
    for (size_t i = 0; i < bytes; i += n_bytes) {
        data[i + 1] = 0x20; /* ordinary scales */
        data[i + 3] = (s->type == BT_KTYPE_Q4_1) ? 0x20 : data[i + 3];
    }
    kc_fill(x, (size_t)n_rows * s->n_in, false);
    for (uint32_t i = 0; i < s->count; i++) {
        if (be->ops->weight_pack(be, s->type, s->n_out, s->n_in, data, &w[i]) !=
            BT_OK) {
            exit(2);
        }
    }
    begin = bt_now_ns();
    do {
        uint64_t start = bt_now_ns();
        double seconds;

        for (uint32_t i = 0; i < s->count; i++) {
            be->ops->matmul(be, w[i], x, n_rows, out);
        }
        seconds = (double)(bt_now_ns() - start) * 1e-9 / s->count;
        best = (seconds < best) ? seconds : best;
    } while (bt_now_ns() - begin < BUDGET_NS);
    for (uint32_t i = 0; i < s->count; i++) {
        be->ops->weight_free(be, w[i]);
    }
    bt_free(data);
    kc_free(x);
    kc_free(out);
    return best;
}

static void bench_rows(bt_backend_t *be, uint32_t n_rows)
{
    double pass = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(shapes); i++) {
        const bench_shape_t *s = &shapes[i];
        double t = time_matmul(be, s, n_rows);
        double flops = 2.0 * s->n_in * s->n_out * n_rows;
        double bytes =
            (double)be->ops->weight_bytes(s->type, s->n_out, s->n_in);

        printf("  %4u rows %-14s %9.1f us %7.1f GB/s %7.1f GFLOPS\n", n_rows,
               s->name, t * 1e6, bytes / t * 1e-9, flops / t * 1e-9);
        if ((i + 1 < BT_ARRAY_LEN(shapes)) || (n_rows <= 32)) {
            pass += t * s->count;
        }
    }
    printf("  %4u rows, whole pass%s: %.2f ms, %.0f tokens/s\n", n_rows,
           (n_rows <= 32) ? "" : " less the output", pass * 1e3, n_rows / pass);
}

static void bench_attention(bt_backend_t *be, bt_kv_type_t type,
                            uint32_t n_rows, uint32_t pos)
{
    enum { HEADS = 9, KV = 3, DIM = 64, T = 16 };
    const uint32_t n_blocks = (pos + n_rows) / T + 1;
    const bt_kv_type_info_t *info = bt_kv_type_info(type);
    const size_t block_bytes =
        (size_t)2 * KV * T * (DIM * info->elem_bytes + info->scale_bytes);
    uint32_t *ids = bt_calloc(n_blocks, sizeof(*ids));
    float *cache = kc_alloc(n_blocks * block_bytes / 4);
    float *qkv = kc_alloc((size_t)n_rows * (HEADS + 2 * KV) * DIM);
    float *out = kc_alloc((size_t)n_rows * HEADS * DIM);
    bt_ragged_seq_t seq = {.n_rows = n_rows, .pos = pos, .blocks = ids};
    bt_kv_view_t kv = {.base = cache,
                       .block_bytes = block_bytes,
                       .type = type,
                       .n_layers = 1,
                       .n_kv_heads = KV,
                       .head_dim = DIM,
                       .tokens_per_block = T};
    float *cos_sin = kc_alloc((size_t)(pos + n_rows) * DIM);
    uint64_t begin = bt_now_ns();
    double best = 1e9;
    double best_store = 1e9;
    double flops = 0;

    for (uint32_t i = 0; (ids != NULL) && (i < n_blocks); i++) {
        ids[i] = i;
    }
    memset(cache, 0x2c, n_blocks * block_bytes);
    kc_fill(qkv, (size_t)n_rows * (HEADS + 2 * KV) * DIM, false);
    for (size_t i = 0; i < (size_t)(pos + n_rows) * DIM; i++) {
        cos_sin[i] =
            (float)((i + 1) % 2); /* no rotation: values stay ordinary */
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        flops += 4.0 * HEADS * DIM * (pos + r + 1);
    }
    do {
        uint64_t start = bt_now_ns();
        double t;

        be->ops->rope_store(be, qkv, HEADS, cos_sin, true, &seq, 1, &kv, 0);
        t = (double)(bt_now_ns() - start) * 1e-9;
        best_store = (t < best_store) ? t : best_store;
        start = bt_now_ns();
        be->ops->attention(be, qkv, HEADS, &seq, 1, &kv, 0, out);
        t = (double)(bt_now_ns() - start) * 1e-9;
        best = (t < best) ? t : best;
    } while (bt_now_ns() - begin < BUDGET_NS);
    printf(
        "  %-4s attention %3u rows from %4u: %9.1f us %7.1f GFLOPS; rope_store "
        "%.1f us\n",
        info->name, n_rows, pos, best * 1e6, flops / best * 1e-9,
        best_store * 1e6);
    kc_free(cos_sin);
    bt_free(ids);
    kc_free(cache);
    kc_free(qkv);
    kc_free(out);
}

static void bench_small(bt_backend_t *be, uint32_t n_rows)
{
    enum { D = 576, FF = 1536, N = 200 };
    float *x = kc_alloc((size_t)n_rows * 2 * FF);
    float *out = kc_alloc((size_t)n_rows * 2 * FF);
    double best[3] = {1e9, 1e9, 1e9};

    kc_fill(x, (size_t)n_rows * 2 * FF, false);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t t[4];

        t[0] = bt_now_ns();
        be->ops->rmsnorm(be, x, x, 1e-5f, n_rows, D, out);
        t[1] = bt_now_ns();
        be->ops->silu_mul(be, x, n_rows, FF, out);
        t[2] = bt_now_ns();
        be->ops->add(be, out, x, (size_t)n_rows * D);
        t[3] = bt_now_ns();
        for (uint32_t k = 0; k < 3; k++) {
            double us = (double)(t[k + 1] - t[k]) * 1e-3;

            best[k] = (us < best[k]) ? us : best[k];
        }
    }
    printf("  %4u rows: rmsnorm %.1f us, silu_mul %.1f us, add %.1f us\n",
           n_rows, best[0], best[1], best[2]);
    kc_free(x);
    kc_free(out);
}

void kc_bench(uint32_t max_threads)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 64, 256};

    for (int tier = BT_CPU_AVX2; tier <= (int)bt_cpu_tier_detect(); tier++) {
        bt_cpu_tier_cap((bt_cpu_tier_t)tier);
        for (uint32_t n = 1; n <= max_threads; n++) {
            bt_backend_config_t config = {
                .n_threads = n, .max_rows = 512, .max_dim = KC_MAX_DIM};
            bt_backend_t *be = NULL;

            if (bt_backend_open("cpu", &config, &be) != BT_OK) {
                exit(2);
            }
            printf("%s, %u threads\n", be->caps->name, n);
            for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
                bench_rows(be, rows[i]);
            }
            for (uint32_t type = BT_KV_F16; type <= BT_KV_INT8; type++) {
                bench_attention(be, (bt_kv_type_t)type, 1, 1000);
                bench_attention(be, (bt_kv_type_t)type, 128, 1000);
            }
            bench_small(be, 1);
            bench_small(be, 128);
            bt_backend_close(be);
        }
    }
}
