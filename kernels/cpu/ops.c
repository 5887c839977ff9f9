/* SPDX-License-Identifier: Apache-2.0 */
/* Splits each operation into items for the thread pool. */
#include <string.h>

#include "kernels/cpu/backend.h"

#define CHUNKS_PER_THREAD 16u

uint32_t bt_cpu_grain(const cpu_backend_t *cpu, uint32_t n_items,
                      uint64_t work_per_item, uint64_t min_work)
{
    const uint32_t n_threads = bt_cpu_pool_places(cpu->pool);
    uint64_t grain = n_items / (n_threads * CHUNKS_PER_THREAD);
    uint64_t least = (work_per_item == 0) ? n_items : min_work / work_per_item;

    grain = (grain < least) ? least : grain;
    grain = (grain == 0) ? 1 : grain;
    return (grain > n_items) ? n_items : (uint32_t)grain;
}

void bt_cpu_run(cpu_backend_t *cpu, uint32_t n_items, uint64_t work_per_item,
                uint64_t min_work, bt_cpu_job_fn fn, void *ctx)
{
    bt_cpu_pool_run(cpu->pool, n_items,
                    bt_cpu_grain(cpu, n_items, work_per_item, min_work), fn,
                    ctx);
}

typedef struct embed_job {
    const bt_weight_t *w;
    const uint32_t *tokens;
    float *out;
} embed_job_t;

static void embed_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const embed_job_t *job = ctx;

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        bt_pack_read_row(job->w, job->tokens[r],
                         job->out + (size_t)r * job->w->n_in);
    }
}

void bt_cpu_embed(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out)
{
    embed_job_t job = {.w = w, .tokens = batch->tokens, .out = out};

    bt_cpu_run(bt_cpu_of(be), batch->n_rows, w->n_in, BT_CPU_MIN_ELEMS / 4,
               embed_rows, &job);
}

typedef struct rows_job {
    const bt_cpu_isa_t *isa;
    const float *x;
    const float *weight;
    float *out;
    float eps;
    uint32_t dim;
} rows_job_t;

static void rmsnorm_rows(void *ctx, uint32_t thread, uint32_t begin,
                         uint32_t end)
{
    const rows_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->isa->rmsnorm(job->x + r * job->dim, job->weight, job->eps,
                          job->dim, job->out + r * job->dim);
    }
}

void bt_cpu_rmsnorm(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    rows_job_t job = {.isa = cpu->isa,
                      .x = x,
                      .weight = weight,
                      .out = out,
                      .eps = eps,
                      .dim = dim};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS, rmsnorm_rows, &job);
}

static void silu_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const rows_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *gate = job->x + r * 2 * job->dim;

        job->isa->silu_mul(gate, gate + job->dim, job->dim,
                           job->out + r * job->dim);
    }
}

void bt_cpu_silu_mul(bt_backend_t *be, const float *gate_up, uint32_t n_rows,
                     uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    rows_job_t job = {.isa = cpu->isa, .x = gate_up, .out = out, .dim = dim};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS / 4, silu_rows, &job);
}

typedef struct add_job {
    const bt_cpu_isa_t *isa;
    float *x;
    const float *y;
    size_t n;
} add_job_t;

static void add_pieces(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const add_job_t *job = ctx;
    size_t first = (size_t)begin * BT_CPU_PIECE;
    size_t last = (size_t)end * BT_CPU_PIECE;

    (void)thread;
    last = (last > job->n) ? job->n : last;
    job->isa->add(job->x + first, job->y + first, last - first);
}

void bt_cpu_add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    add_job_t job = {.isa = cpu->isa, .x = x, .y = y, .n = n};

    bt_cpu_run(cpu, (uint32_t)((n + BT_CPU_PIECE - 1) / BT_CPU_PIECE),
               BT_CPU_PIECE, BT_CPU_MIN_ELEMS * 2, add_pieces, &job);
}

void bt_cpu_gather_rows(bt_backend_t *be, const float *x,
                        const bt_batch_t *batch, uint32_t dim, float *out)
{
    (void)be;
    for (size_t r = 0; r < batch->n_logit_rows; r++) {
        if (dim > 0) {
            memcpy(out + r * dim, x + (size_t)batch->logit_rows[r] * dim,
                   dim * sizeof(*out));
        }
    }
}

void bt_cpu_copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at)
{
    (void)be;
    for (size_t r = 0; r < n_rows; r++) {
        if (dim > 0) {
            memcpy(out + r * out_dim + at, x + r * dim, dim * sizeof(*out));
        }
    }
}

void bt_cpu_cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out)
{
    (void)be;
    for (size_t r = 0; r < n_rows; r++) {
        if (dim > 0) {
            memcpy(out + r * dim, x + r * x_dim + at, dim * sizeof(*out));
        }
    }
}

typedef struct argmax_job {
    const bt_cpu_isa_t *isa;
    const float *x;
    uint32_t dim;
    uint32_t *ids;
} argmax_job_t;

static void argmax_rows(void *ctx, uint32_t thread, uint32_t begin,
                        uint32_t end)
{
    const argmax_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->ids[r] = job->isa->argmax(job->x + r * job->dim, job->dim);
    }
}

void bt_cpu_argmax(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    argmax_job_t job = {.isa = cpu->isa, .x = x, .dim = dim, .ids = ids};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS, argmax_rows, &job);
}
