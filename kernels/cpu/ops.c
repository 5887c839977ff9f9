/* SPDX-License-Identifier: Apache-2.0 */
/* Splits each operation into items for the thread group. */
#include <string.h>

#include "common/base/assert.h"
#include "kernels/cpu/backend.h"

/* Below this many elements (of cheap operations) or multiply-adds, waking a
 * helper costs more than it saves. */
#define MIN_ELEMS_PER_THREAD 8192u
#define MIN_MACS             16384u
#define CHUNKS_PER_THREAD    16u

/* A grain that makes chunks of at least @a min_work units of work. */
static uint32_t grain_of(uint32_t n_items, uint64_t work_per_item,
                         uint64_t min_work, uint32_t n_threads)
{
    uint64_t grain = n_items / (n_threads * CHUNKS_PER_THREAD);
    uint64_t least = (work_per_item == 0) ? n_items : min_work / work_per_item;

    grain = (grain < least) ? least : grain;
    grain = (grain == 0) ? 1 : grain;
    return (grain > n_items) ? n_items : (uint32_t)grain;
}

static void run(cpu_backend_t *cpu, uint32_t n_items, uint64_t work_per_item,
                uint64_t min_work, bt_cpu_job_fn fn, void *ctx)
{
    bt_cpu_pool_run(cpu->pool, n_items,
                    grain_of(n_items, work_per_item, min_work,
                             bt_cpu_pool_threads(cpu->pool)),
                    fn, ctx);
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
                  const uint32_t *tokens, uint32_t n_rows, float *out)
{
    embed_job_t job = {.w = w, .tokens = tokens, .out = out};

    run(bt_cpu_of(be), n_rows, w->n_in, MIN_ELEMS_PER_THREAD / 4, embed_rows,
        &job);
}

typedef struct matmul_ctx {
    const cpu_backend_t *cpu;
    bt_matmul_job_t job;
    float *tiles;
} matmul_ctx_t;

static void make_tiles(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const matmul_ctx_t *mm = ctx;
    const size_t n_in = mm->job.w->n_in;

    (void)thread;
    for (uint32_t t = begin; t < end; t++) {
        uint32_t first = t * BT_TILE_ROWS;
        uint32_t n = mm->job.n_rows - first;
        uint32_t width;
        float *tile = mm->tiles + first * n_in;

        n = (n > BT_TILE_ROWS) ? BT_TILE_ROWS : n;
        width = bt_tile_width(n);
        for (uint32_t r = 0; r < width; r++) {
            const float *x = mm->job.x + (first + r) * n_in;

            for (size_t k = 0; k < n_in; k++) {
                tile[k * width + r] = (r < n) ? x[k] : 0.0f;
            }
        }
    }
}

static void matmul_panels(void *ctx, uint32_t thread, uint32_t begin,
                          uint32_t end)
{
    const matmul_ctx_t *mm = ctx;
    const cpu_backend_t *cpu = mm->cpu;

    cpu->isa->matmul(&mm->job, begin, end,
                     cpu->panels + thread * cpu->panel_floats);
}

static void quantize_rows(void *ctx, uint32_t thread, uint32_t begin,
                          uint32_t end)
{
    const matmul_ctx_t *mm = ctx;
    const bt_matmul_job_t *job = &mm->job;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        mm->cpu->isa->quantize(job->x + r * job->w->n_in, job->w->n_in,
                               bt_pack_format(job->w->pack).bias,
                               mm->cpu->q8 + r * (job->w->n_in / 32));
    }
}

/* The last k of an odd number has a 0 beside it. */
static void bf16_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const matmul_ctx_t *mm = ctx;
    const bt_matmul_job_t *job = &mm->job;
    const uint32_t n_in = job->w->n_in;
    const size_t stride = (size_t)n_in + n_in % 2;
    uint16_t *out = mm->cpu->bf16 + begin * stride;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        out[stride - 1] = 0;
        mm->cpu->isa->to_bf16(job->x + r * n_in, n_in, out);
        out += stride;
    }
}

static void matmul_bf16_panels(void *ctx, uint32_t thread, uint32_t begin,
                               uint32_t end)
{
    const matmul_ctx_t *mm = ctx;

    (void)thread;
    mm->cpu->isa->matmul_bf16(&mm->job, begin, end);
}

static void matmul_q8_panels(void *ctx, uint32_t thread, uint32_t begin,
                             uint32_t end)
{
    const matmul_ctx_t *mm = ctx;

    (void)thread;
    mm->cpu->isa->matmul_q8(&mm->job, begin, end);
}

/* Rows as the kernel for F32 and F16 weights reads them. */
static void prepare_dense(cpu_backend_t *cpu, matmul_ctx_t *mm)
{
    const uint32_t n_rows = mm->job.n_rows;

    if (cpu->isa->uses_tiles && (n_rows > 1)) {
        mm->job.tiles = cpu->tiles;
        run(cpu, (n_rows + BT_TILE_ROWS - 1) / BT_TILE_ROWS,
            (uint64_t)mm->job.w->n_in * BT_TILE_ROWS, MIN_ELEMS_PER_THREAD,
            make_tiles, mm);
    }
}

void bt_cpu_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    bt_cpu_job_fn panels = matmul_q8_panels;
    matmul_ctx_t mm = {
        .cpu = cpu,
        .job = {.w = w,
                .x = x,
                .tiles = x,
                .bf16 = cpu->bf16,
                .q = cpu->q8,
                .n_rows = n_rows,
                .out = out},
        .tiles = cpu->tiles,
    };

    if (n_rows == 0) {
        return;
    }
    /* Past these, rows of other tenants would be overwritten. */
    BT_ASSERT_ALWAYS(n_rows <= cpu->max_rows);
    switch (w->pack) {
    case BT_PACK_F32:
    case BT_PACK_F16:
        BT_ASSERT_ALWAYS(w->n_in <= cpu->dense_n_in);
        prepare_dense(cpu, &mm);
        panels = matmul_panels;
        break;
    case BT_PACK_BF16:
        BT_ASSERT_ALWAYS(w->n_in <= cpu->bf16_n_in);
        run(cpu, n_rows, w->n_in, MIN_ELEMS_PER_THREAD, bf16_rows, &mm);
        panels = matmul_bf16_panels;
        break;
    default:
        BT_ASSERT_ALWAYS(w->n_in <= cpu->q8_n_in);
        run(cpu, n_rows, w->n_in, MIN_ELEMS_PER_THREAD, quantize_rows, &mm);
        break;
    }
    run(cpu, w->n_panels, (uint64_t)w->n_in * BT_PANEL * n_rows, MIN_MACS,
        panels, &mm);
}

typedef struct rows_job {
    const bt_cpu_isa_t *isa;
    const float *x;
    const float *weight;
    const uint32_t *rows;
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

    run(cpu, n_rows, dim, MIN_ELEMS_PER_THREAD, rmsnorm_rows, &job);
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

    run(cpu, n_rows, dim, MIN_ELEMS_PER_THREAD / 4, silu_rows, &job);
}

/* Additions are split into pieces of this many elements. */
#define ADD_PIECE 4096u

typedef struct add_job {
    const bt_cpu_isa_t *isa;
    float *x;
    const float *y;
    size_t n;
} add_job_t;

static void add_pieces(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const add_job_t *job = ctx;
    size_t first = (size_t)begin * ADD_PIECE;
    size_t last = (size_t)end * ADD_PIECE;

    (void)thread;
    last = (last > job->n) ? job->n : last;
    job->isa->add(job->x + first, job->y + first, last - first);
}

void bt_cpu_add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    add_job_t job = {.isa = cpu->isa, .x = x, .y = y, .n = n};

    run(cpu, (uint32_t)((n + ADD_PIECE - 1) / ADD_PIECE), ADD_PIECE,
        MIN_ELEMS_PER_THREAD * 2, add_pieces, &job);
}

void bt_cpu_gather_rows(bt_backend_t *be, const float *x, const uint32_t *rows,
                        uint32_t n_rows, uint32_t dim, float *out)
{
    (void)be;
    for (size_t r = 0; r < n_rows; r++) {
        if (dim > 0) {
            memcpy(out + r * dim, x + (size_t)rows[r] * dim,
                   dim * sizeof(*out));
        }
    }
}
