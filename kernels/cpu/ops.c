/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/cpu/backend.h"

/* Splits each operation into items for the thread pool. */

#define CHUNKS_PER_THREAD 16u

uint32_t bt_cpu_grain(const cpu_backend_t *cpu, uint32_t n_items,
                      uint64_t work_per_item, uint64_t min_work)
{
    const uint32_t n_threads = bt_cpu_pool_slots(cpu->pool);
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

/* An operation in progress: each uses the fields that it needs. */
typedef struct op_job {
    cpu_backend_t *cpu;
    const bt_weight_t *w; /* of a lookup */
    const bt_batch_t *batch;
    const float *x, *weight, *bias, *factors;
    float *out; /* also the rows of an operation in place */
    uint32_t *ids;
    void (*fn)(float *x, float factor, size_t n);
    float eps, factor;
    size_t n, row_floats;
    uint32_t dim, n_heads;
    bt_activation_t act;
    bool gated;
} op_job_t;

static void embed_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        bt_pack_read_row(job->w, job->batch->tokens[r],
                         job->out + (size_t)r * job->w->n_in);
    }
}

void bt_cpu_embed(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out)
{
    op_job_t job = {.w = w, .batch = batch, .out = out};

    bt_cpu_run(bt_cpu_of(be), batch->n_rows, w->n_in, BT_CPU_MIN_ELEMS / 4,
               embed_rows, &job);
}

/* n_heads adjacent vectors in each row. */
static void rmsnorm_rows(void *ctx, uint32_t thread, uint32_t begin,
                         uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        for (uint32_t h = 0; h < job->n_heads; h++) {
            const size_t at = r * job->row_floats + (size_t)h * job->dim;

            job->cpu->isa->rmsnorm(job->x + at, job->weight, job->eps, job->dim,
                                   job->out + at);
        }
    }
}

void bt_cpu_rmsnorm(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu,
                    .x = x,
                    .weight = weight,
                    .out = out,
                    .eps = eps,
                    .row_floats = dim,
                    .n_heads = 1,
                    .dim = dim};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS, rmsnorm_rows, &job);
}

void bt_cpu_head_norm(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu,
                    .x = x + at,
                    .weight = weight,
                    .out = x + at,
                    .eps = eps,
                    .row_floats = row_floats,
                    .n_heads = n_heads,
                    .dim = dim};

    bt_cpu_run(cpu, n_rows, (uint64_t)n_heads * dim, BT_CPU_MIN_ELEMS,
               rmsnorm_rows, &job);
}

static void add_pieces(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const op_job_t *job = ctx;
    size_t first = (size_t)begin * BT_CPU_PIECE;
    size_t last = (size_t)end * BT_CPU_PIECE;

    (void)thread;
    last = (last > job->n) ? job->n : last;
    job->cpu->isa->add(job->out + first, job->x + first, last - first);
}

void bt_cpu_add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu, .x = y, .out = x, .n = n};

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

static void copy_rows(const float *x, size_t x_dim, uint32_t n_rows,
                      uint32_t dim, float *out, size_t out_dim)
{
    for (size_t r = 0; (dim > 0) && (r < n_rows); r++) {
        memcpy(out + r * out_dim, x + r * x_dim, dim * sizeof(*out));
    }
}

void bt_cpu_copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at)
{
    (void)be;
    copy_rows(x, dim, n_rows, dim, out + at, out_dim);
}

void bt_cpu_cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out)
{
    (void)be;
    copy_rows(x + at, x_dim, n_rows, dim, out, dim);
}

static void argmax_rows(void *ctx, uint32_t thread, uint32_t begin,
                        uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->ids[r] = job->cpu->isa->argmax(job->x + r * job->dim, job->dim);
    }
}

void bt_cpu_argmax(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu, .x = x, .dim = dim, .ids = ids};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS, argmax_rows, &job);
}

/* Operations that Llama models do not use: other norms and activations, biases,
 * learned positions, scales and caps. */

static void layer_norm_rows(void *ctx, uint32_t thread, uint32_t begin,
                            uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->cpu->isa->layer_norm(job->x + r * job->dim, job->weight, job->bias,
                                  job->eps, job->dim, job->out + r * job->dim);
    }
}

void bt_cpu_layer_norm(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu,
                    .x = x,
                    .weight = weight,
                    .bias = bias,
                    .eps = eps,
                    .dim = dim,
                    .out = out};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS, layer_norm_rows, &job);
}

/* Items are rows of the batch in the order of the sequences. */
static void add_positions_rows(void *ctx, uint32_t thread, uint32_t begin,
                               uint32_t end)
{
    const op_job_t *job = ctx;
    const uint32_t dim = job->w->n_in;
    float *const line = bt_cpu_scratch_row(&job->cpu->lines, thread);

    for (uint32_t s = 0; s < job->batch->n_seqs; s++) {
        const bt_ragged_seq_t *seq = &job->batch->seqs[s];
        const bt_cpu_rows_t rows = bt_cpu_rows_in(seq, begin, end);

        for (uint32_t r = rows.first; r < rows.end; r++) {
            bt_pack_read_row(job->w, seq->pos + (r - seq->row), line);
            job->cpu->isa->add(job->out + (size_t)r * dim, line, dim);
        }
    }
}

void bt_cpu_add_positions(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu, .w = w, .batch = batch, .out = x};

    bt_cpu_run(cpu, batch->n_rows, w->n_in, BT_CPU_MIN_ELEMS / 4,
               add_positions_rows, &job);
}

/* Items are rows of the batch in the order of the sequences. */
static void scale_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (uint32_t s = 0; s < job->batch->n_seqs; s++) {
        const bt_ragged_seq_t *seq = &job->batch->seqs[s];
        const bt_cpu_rows_t rows = bt_cpu_rows_in(seq, begin, end);

        for (uint32_t r = rows.first; r < rows.end; r++) {
            job->cpu->isa->scale(job->out + r * job->row_floats,
                                 job->factors[seq->pos + (r - seq->row)],
                                 job->dim);
        }
    }
}

void bt_cpu_scale_positions(bt_backend_t *be, float *x, const float *factors,
                            const bt_batch_t *batch, size_t row_floats,
                            uint32_t dim)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu,
                    .batch = batch,
                    .factors = factors,
                    .out = x,
                    .row_floats = row_floats,
                    .dim = dim};

    bt_cpu_run(cpu, batch->n_rows, dim, BT_CPU_MIN_ELEMS * 2, scale_rows, &job);
}

static void activate_rows(void *ctx, uint32_t thread, uint32_t begin,
                          uint32_t end)
{
    const op_job_t *job = ctx;
    const size_t dim = job->dim;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        const float *const x = job->x + r * (job->gated ? 2 * dim : dim);

        job->cpu->isa->activate(job->act, x, job->gated ? x + dim : NULL,
                                job->dim, job->out + r * dim);
    }
}

void bt_cpu_activate(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {
        .cpu = cpu, .act = act, .gated = gated, .x = x, .dim = dim, .out = out};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS / 4, activate_rows, &job);
}

static void bias_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const op_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->cpu->isa->add(job->out + r * job->dim, job->bias, job->dim);
    }
}

void bt_cpu_add_bias(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.cpu = cpu, .out = x, .bias = bias, .dim = dim};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS * 2, bias_rows, &job);
}

static void factor_pieces(void *ctx, uint32_t thread, uint32_t begin,
                          uint32_t end)
{
    const op_job_t *job = ctx;
    const size_t first = (size_t)begin * BT_CPU_PIECE;
    size_t last = (size_t)end * BT_CPU_PIECE;

    (void)thread;
    last = (last > job->n) ? job->n : last;
    job->fn(job->out + first, job->factor, last - first);
}

static void run_factor(cpu_backend_t *cpu, op_job_t *job, uint64_t min_work)
{
    bt_cpu_run(cpu, (uint32_t)((job->n + BT_CPU_PIECE - 1) / BT_CPU_PIECE),
               BT_CPU_PIECE, min_work, factor_pieces, job);
}

void bt_cpu_scale(bt_backend_t *be, float *x, float factor, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.fn = cpu->isa->scale, .out = x, .factor = factor, .n = n};

    run_factor(cpu, &job, BT_CPU_MIN_ELEMS * 2);
}

void bt_cpu_soft_cap(bt_backend_t *be, float *x, float cap, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.fn = cpu->isa->soft_cap, .out = x, .factor = cap, .n = n};

    run_factor(cpu, &job, BT_CPU_MIN_ELEMS / 4);
}

void bt_cpu_clamp(bt_backend_t *be, float *x, float limit, size_t n)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    op_job_t job = {.fn = cpu->isa->clamp, .out = x, .factor = limit, .n = n};

    run_factor(cpu, &job, BT_CPU_MIN_ELEMS * 2);
}

/* ---- lora ---- */

#define LORA_OUTPUTS 256u /* of an item of the second product */

/* An item is a tile of rows of one group; of the second product, a part of
 * their outputs. */
typedef struct lora_job {
    const cpu_backend_t *cpu;
    const bt_lora_step_t *step;
    uint32_t n_parts;   /* items of one tile */
    uint32_t n_outputs; /* outputs of an item of the second product */
    void (*fn)(const bt_lora_tile_t *tile); /* NULL: both products */
} lora_job_t;

static uint32_t lora_tiles(const bt_lora_rows_t *group)
{
    return (group->n_rows + BT_LORA_TILE - 1) / BT_LORA_TILE;
}

/* Computes part @a part of a group's tile i. @a last: the thread has no item
 * behind it. */
static void run_lora_tile(const lora_job_t *job, const bt_lora_rows_t *group,
                          uint32_t i, uint32_t part, bool last)
{
    const bt_lora_step_t *const step = job->step;
    const size_t row = group->row + (size_t)i * BT_LORA_TILE;
    const uint32_t left = group->n_rows - i * BT_LORA_TILE;
    const uint32_t first = part * job->n_outputs;
    const bt_lora_tile_t tile = {
        .group = group,
        .step = step,
        .x = step->x + row * step->n_in,
        .down = step->down + row * step->max_rank,
        .y = step->y + row * step->row_floats,
        .n_rows = (left < BT_LORA_TILE) ? left : BT_LORA_TILE,
        .first = first,
        .end = (step->n_out - first < job->n_outputs) ? step->n_out
                                                      : first + job->n_outputs,
        .both = job->fn == NULL,
        .next = ((job->fn == NULL) && !last && (left <= BT_LORA_TILE))
                    ? group + 1
                    : NULL,
    };

    if (job->fn == NULL) {
        job->cpu->isa->lora_down(&tile);
        job->cpu->isa->lora_up(&tile);
    } else {
        job->fn(&tile);
    }
}

static void run_lora_items(void *ctx, uint32_t thread, uint32_t begin,
                           uint32_t end)
{
    const lora_job_t *job = ctx;
    const bt_lora_rows_t *group = job->step->groups;
    uint32_t before = 0; /* items of earlier groups */

    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        while (i - before >= lora_tiles(group) * job->n_parts) {
            before += lora_tiles(group) * job->n_parts;
            group++;
        }
        run_lora_tile(job, group, (i - before) / job->n_parts,
                      (i - before) % job->n_parts, i + 1 == end);
    }
}

static void run_lora(cpu_backend_t *cpu, lora_job_t *job, uint32_t n_tiles,
                     uint64_t work)
{
    bt_cpu_run(cpu, n_tiles * job->n_parts, work, BT_CPU_MIN_ELEMS,
               run_lora_items, job);
}

/* Many tiles are an item each, of both products; few ones are cut for the
 * second, so that each thread has something to do. */
void bt_cpu_lora(bt_backend_t *be, const bt_lora_step_t *step)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    lora_job_t job = {
        .cpu = cpu, .step = step, .n_parts = 1, .n_outputs = step->n_out};
    uint32_t n_tiles = 0;

    for (uint32_t g = 0; g < step->n_groups; g++) {
        n_tiles += lora_tiles(&step->groups[g]);
    }
    if (n_tiles == 0) {
        return;
    }
    if (n_tiles >= 2 * bt_cpu_pool_slots(cpu->pool)) {
        run_lora(cpu, &job, n_tiles,
                 ((uint64_t)step->n_in + step->n_out) * BT_LORA_LANES);
        return;
    }
    job.fn = cpu->isa->lora_down;
    run_lora(cpu, &job, n_tiles, (uint64_t)step->n_in * BT_LORA_LANES);
    job.fn = cpu->isa->lora_up;
    job.n_outputs = LORA_OUTPUTS;
    job.n_parts = (step->n_out + LORA_OUTPUTS - 1) / LORA_OUTPUTS;
    run_lora(cpu, &job, n_tiles, (uint64_t)LORA_OUTPUTS * BT_LORA_LANES);
}
