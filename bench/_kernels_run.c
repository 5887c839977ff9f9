/* SPDX-License-Identifier: Apache-2.0 */
/* Runs single operations of the CPU back end, for bench/kernels.py.
 *
 *     kernels-run THREADS MAX_ROWS LIMIT_MIB
 *
 * Prints a line of JSON about the back end, then answers commands with
 * {"seconds": [of each call …]}; MS is the time for which each is repeated:
 *
 *     weight TYPE N_OUT N_IN COPIES   random matrices, for the next matmuls:
 *                                     {"bytes": in the file, "packed_bytes"}
 *     matmul ROWS MS                  the copies one after the other
 *     experts E USED ROWS MS          the matrix as those of E experts: rows go
 *                                     through USED of them each, drawn at
 * random kv TYPE HEADS KV_HEADS DIM ROWS POS SEQS   SEQS sequences with ROWS
 * new tokens from position POS each attention MS | rope_store MS    over the KV
 * cache rmsnorm|silu_mul|add DIM ROWS MS limit NAME MS                   see
 * _limits.h */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/_limits.h"
#include "bench/_ops.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define MAX_CALLS 4000u
#define MIN_CALLS 3u

static bt_limits_t *limits;
static float *cos_sin;
static bt_rotation_t rotation;
static uint32_t row_dim; /* of the operation on rows */

/* Repeats for about ms and prints the time of each call but the first. */
static void measure(bt_ops_run_t *r, bt_ops_call_t call,
                    const char *const *words)
{
    const uint32_t ms = bt_half_number(words[0], 1, 60000);
    const uint64_t end = bt_now_ns() + (uint64_t)ms * 1000000u;
    const char *between = "";
    uint64_t now;

    call(r);
    printf("{\"seconds\": [");
    now = bt_now_ns();
    for (uint32_t i = 0; (i < MIN_CALLS) || ((i < MAX_CALLS) && (now < end));
         i++) {
        const uint64_t start = bt_now_ns();

        call(r);
        now = bt_now_ns();
        printf("%s%.9f", between, (double)(now - start) * 1e-9);
        between = ", ";
    }
    printf("]}\n");
}

/* ---- the KV cache ---- */

static void call_rope_store(bt_ops_run_t *r)
{
    const bt_batch_t batch = bt_ops_batch(r);

    r->be->ops->rope_store(r->be, r->x, r->n_heads, &rotation, &batch, &r->kv,
                           0);
}

/* Ordinary keys and values at all positions before the new ones: stored by
 * rope_store itself, a piece at a time. */
static void fill_cache(bt_ops_run_t *r, uint32_t pos)
{
    const size_t heads = r->n_heads + (size_t)2 * r->kv.n_kv_heads;
    float *const x = bt_ops_floats(r, r->max_rows * heads * r->kv.head_dim);

    for (uint32_t s = 0; s < r->n_seqs; s++) {
        for (uint32_t p = 0; p < pos; p += r->max_rows) {
            const bt_ragged_seq_t seq = {
                .n_rows = (pos - p < r->max_rows) ? pos - p : r->max_rows,
                .pos = p,
                .blocks = r->seqs[s].blocks};
            bt_batch_t batch = bt_ops_batch(r);

            batch.seqs = &seq;
            batch.n_seqs = 1;
            batch.n_rows = seq.n_rows;
            r->be->ops->rope_store(r->be, x, r->n_heads, &rotation, &batch,
                                   &r->kv, 0);
        }
    }
    r->be->ops->buffer_free(r->be, x);
}

static void free_rotation(bt_ops_run_t *r)
{
    if (cos_sin != NULL) {
        r->be->ops->buffer_free(r->be, cos_sin);
    }
    cos_sin = NULL;
}

static void set_kv(bt_ops_run_t *r, const char *const *words)
{
    size_t n;

    free_rotation(r);
    bt_ops_kv(r, words, 1);
    n = (size_t)(r->seqs[0].pos + r->seqs[0].n_rows) * r->kv.head_dim;
    cos_sin = bt_ops_floats(r, n);
    for (size_t i = 0; i < n; i++) {
        cos_sin[i] = (i % 2 == 0) ? 0.8f : 0.6f; /* values keep their size */
    }
    rotation = (bt_rotation_t){
        .cos_sin = cos_sin, .dims = r->kv.head_dim, .interleaved = true};
    fill_cache(r, r->seqs[0].pos);
    printf("{\"kv_token_bytes\": %zu}\n",
           r->kv.block_bytes / BT_OPS_TOKENS_PER_BLOCK);
}

static void run_rope_store(bt_ops_run_t *r, const char *const *words)
{
    bt_ops_measure_kv(r, call_rope_store, words);
}

/* ---- operations on rows ---- */

static void call_rmsnorm(bt_ops_run_t *r)
{
    r->be->ops->rmsnorm(r->be, r->x, r->x, 1e-5f, r->n_rows, row_dim, r->out);
}

static void call_silu_mul(bt_ops_run_t *r)
{
    r->be->ops->activate(r->be, BT_ACT_SILU, true, r->x, r->n_rows, row_dim,
                         r->out);
}

static void call_add(bt_ops_run_t *r)
{
    r->be->ops->add(r->be, r->out, r->x, (size_t)r->n_rows * row_dim);
}

static void run_row_op(bt_ops_run_t *r, const char *const *words)
{
    row_dim = bt_half_number(words[1], 1, BT_OPS_MAX_COUNT);
    r->n_rows = bt_half_number(words[2], 1, r->max_rows);
    bt_ops_measure(r, (size_t)2 * r->n_rows * row_dim,
                   (size_t)r->n_rows * row_dim,
                   (strcmp(words[0], "rmsnorm") == 0)    ? call_rmsnorm
                   : (strcmp(words[0], "silu_mul") == 0) ? call_silu_mul
                                                         : call_add,
                   words + 3);
}

static void run_limit(bt_ops_run_t *r, const char *const *words)
{
    (void)r;
    bt_limits_command(limits, words);
}

int main(int argc, char **argv)
{
    static const bt_ops_command_t commands[] = {
        {"weight", bt_ops_weight},
        {"matmul", bt_ops_matmul},
        {"experts", bt_ops_experts},
        {"kv", set_kv},
        {"attention", bt_ops_attention},
        {"rope_store", run_rope_store},
        {"rmsnorm", run_row_op},
        {"silu_mul", run_row_op},
        {"add", run_row_op},
        {"limit", run_limit},
    };
    const char *words[BT_HALF_MAX_WORDS];
    bt_ops_run_t r = {.random = 1, .measure = measure};
    bt_backend_config_t config = {0};
    uint32_t mib;
    bt_status_t status;

    bt_log_init("kernels-run", BT_LOG_LEVEL_WARN);
    if (argc != 4) {
        bt_half_die(BT_OK, "it is run by bench/kernels.py");
    }
    config.n_threads = bt_half_number(argv[1], 1, 1024);
    r.max_rows = config.max_rows = bt_half_number(argv[2], 1, 65536);
    mib = bt_half_number(argv[3], 1, 65536);
    status = bt_limits_create(config.n_threads, (size_t)mib << 20, &limits);
    if (status == BT_OK) {
        status = bt_backend_open("cpu", &config, &r.be);
    }
    if (status != BT_OK) {
        bt_half_die(status, "%u threads", config.n_threads);
    }
    printf("{\"backend\": \"%s\", \"profile\": \"%s\", \"threads\": %u}\n",
           r.be->caps->name, r.be->caps->profile, config.n_threads);
    while (bt_half_command(words) > 0) {
        bt_ops_obey(&r, commands, BT_ARRAY_LEN(commands), words);
    }
    free_rotation(&r);
    bt_ops_fini(&r);
    bt_limits_destroy(limits);
    return 0;
}
