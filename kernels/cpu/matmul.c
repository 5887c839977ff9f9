/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul and the steps that are fused with it. A step is rows (unchanged,
 * normalized, or silu(gate) * up), *prepared* for the weights' kind (quantized,
 * bf16, or tiles of f32), times panels, stored or added to the output. A row in
 * f32 is never more than one line of scratch.
 *
 * Few rows: each thread prepares all of them for itself and continues with its
 * panels, one job with one barrier, and at its end threads prefetch the next
 * matrix. Many: preparation is a job of its own, with rows as its items. */
#include <string.h>

#include "common/base/status.h"
#include "kernels/cpu/matmul.h"

/* Below this many elements to prepare, or multiply-adds, waking a helper costs
 * more than it saves. */
#define MIN_ELEMS      8192u
#define MIN_SILU_ELEMS 2048u

/* The pack whose product rule applies. */
static bt_pack_t rule_of(const bt_weight_t *w)
{
    switch (w->pack) {
    case BT_PACK_E4M3:
        return BT_PACK_F32;
    case BT_PACK_E4M3_BF16:
        return BT_PACK_BF16;
    default:
        return w->pack;
    }
}

static bt_cpu_prepared_t prepared_of(const bt_cpu_step_t *step, uint32_t thread)
{
    const cpu_backend_t *cpu = step->cpu;
    const size_t first =
        step->own ? cpu->max_rows + (size_t)thread * BT_CPU_OWN_ROWS : 0;

    return (bt_cpu_prepared_t){
        .tiles = bt_cpu_scratch_row(&cpu->tiles,
                                    first + (step->own ? BT_TILE_ROWS : 0)),
        .bf16 = bt_cpu_scratch_row(&cpu->bf16, first),
        .q8 = bt_cpu_scratch_row(&cpu->q8, first)};
}

/* Row r in f32: in line (n_in), or in place. */
static const float *make_row(const bt_cpu_step_t *step, size_t r, float *line)
{
    const bt_cpu_isa_t *isa = step->cpu->isa;
    const size_t n_in = step->job.w->n_in;
    const float *x =
        step->x + ((step->rows != NULL) ? step->rows[r] : r) * n_in;

    switch (step->kind) {
    case ROWS_NORM:
        isa->rmsnorm(x, step->norm, step->eps, (uint32_t)n_in, line);
        return line;
    case ROWS_SILU:
        x += r * n_in;
        isa->activate(BT_ACT_SILU, x, x + n_in, (uint32_t)n_in, line);
        return line;
    default:
        return x;
    }
}

/* Prepares tile t, padded with zero rows. */
static void make_tile(const bt_cpu_step_t *step, uint32_t t, float *line,
                      float *tile)
{
    const size_t n_in = step->job.w->n_in;
    const uint32_t first = t * BT_TILE_ROWS;
    uint32_t n = step->job.n_rows - first;
    uint32_t width;

    n = (n > BT_TILE_ROWS) ? BT_TILE_ROWS : n;
    width = bt_tile_width(n);
    for (uint32_t r = 0; r < width; r++) {
        const float *x =
            (r < n) ? make_row(step, first + (size_t)r, line) : NULL;

        for (size_t k = 0; k < n_in; k++) {
            tile[k * width + r] = (x != NULL) ? x[k] : 0.0f;
        }
    }
}

/* Items are tiles, or rows where the kernel reads rows. */
static void prepare_dense(const bt_cpu_step_t *step, uint32_t begin,
                          uint32_t end, float *line, float *tiles)
{
    const size_t n_in = step->job.w->n_in;

    for (uint32_t i = begin; i < end; i++) {
        if (step->cpu->isa->uses_tiles) {
            make_tile(step, i, line, tiles + i * n_in * BT_TILE_ROWS);
        } else {
            float *const out = tiles + i * n_in;
            const float *const x = make_row(step, i, out);

            if (x != out) {
                memcpy(out, x, n_in * sizeof(*out));
            }
        }
    }
}

/* The last k of an odd number is paired with 0. */
static void prepare_bf16(const bt_cpu_step_t *step, uint32_t begin,
                         uint32_t end, float *line, uint16_t *bf16)
{
    const uint32_t n_in = step->job.w->n_in;
    const size_t stride = bt_cpu_even(n_in);

    for (size_t r = begin; r < end; r++) {
        uint16_t *out = bf16 + r * stride;

        out[stride - 1] = 0;
        step->cpu->isa->to_bf16(make_row(step, r, line), n_in, out);
    }
}

static void prepare_q8(const bt_cpu_step_t *step, uint32_t begin, uint32_t end,
                       float *line, bt_q8_group_t *q8)
{
    const bt_weight_t *w = step->job.w;

    for (size_t r = begin; r < end; r++) {
        step->cpu->isa->quantize(make_row(step, r, line), w->n_in,
                                 bt_pack_format(w->pack).bias,
                                 q8 + r * (w->n_in / 32));
    }
}

void bt_cpu_prepare(const bt_cpu_step_t *step, uint32_t begin, uint32_t end,
                    float *line, const bt_cpu_prepared_t *prepared)
{
    switch (rule_of(step->job.w)) {
    case BT_PACK_F32:
    case BT_PACK_F16:
        prepare_dense(step, begin, end, line, prepared->tiles);
        break;
    case BT_PACK_BF16:
        prepare_bf16(step, begin, end, line, prepared->bf16);
        break;
    default:
        prepare_q8(step, begin, end, line, prepared->q8);
        break;
    }
}

static void prepare(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const bt_cpu_step_t *step = ctx;
    const bt_cpu_prepared_t prepared = prepared_of(step, thread);

    bt_cpu_prepare(step, begin, end,
                   bt_cpu_scratch_row(&step->cpu->lines, thread), &prepared);
}

bool bt_cpu_is_dense(const bt_weight_t *w)
{
    return (rule_of(w) == BT_PACK_F32) || (w->pack == BT_PACK_F16);
}

/* The kernels for F32 and F16 weights read rows directly where they take rows,
 * or where a tile has only one. */
static bool is_prepared(const bt_cpu_step_t *step)
{
    return (step->kind == ROWS_AS_THEY_ARE) && bt_cpu_is_dense(step->job.w) &&
           (!step->cpu->isa->uses_tiles || (step->job.n_rows == 1));
}

uint32_t bt_cpu_n_pieces(const bt_cpu_step_t *step)
{
    const uint32_t n_rows = step->job.n_rows;

    return (bt_cpu_is_dense(step->job.w) && step->cpu->isa->uses_tiles)
               ? (n_rows + BT_TILE_ROWS - 1) / BT_TILE_ROWS
               : n_rows;
}

static void prepare_own(void *ctx, uint32_t thread)
{
    prepare(ctx, thread, 0, bt_cpu_n_pieces(ctx));
}

/* Panels of codes, each decoded to the type that they stand for. The panel
 * stride is 0: every panel is at the first one's address. */
static void run_decoded(const cpu_backend_t *cpu, const bt_matmul_job_t *job,
                        uint32_t begin, uint32_t end, uint32_t thread)
{
    uint8_t *scratch = bt_cpu_scratch_row(&cpu->wide, thread);
    bt_weight_t w = *job->w;
    bt_matmul_job_t one = *job;

    w.pack = rule_of(job->w);
    w.type = (w.pack == BT_PACK_F32) ? BT_KTYPE_F32 : BT_KTYPE_BF16;
    w.data = scratch;
    w.panel_bytes = 0;
    one.w = &w;
    for (uint32_t p = begin; p < end; p++) {
        bt_pack_decode(job->w, p, scratch);
        if (w.pack == BT_PACK_F32) {
            cpu->isa->matmul(&one, p, p + 1,
                             bt_cpu_scratch_row(&cpu->panels, thread));
        } else {
            cpu->isa->matmul_bf16(&one, p, p + 1);
        }
    }
}

void bt_cpu_multiply(const cpu_backend_t *cpu, const bt_matmul_job_t *job,
                     uint32_t begin, uint32_t end, uint32_t thread)
{
    if (bt_pack_is_e4m3(job->w->pack)) {
        run_decoded(cpu, job, begin, end, thread);
        return;
    }
    switch (job->w->pack) {
    case BT_PACK_F32:
    case BT_PACK_F16:
        cpu->isa->matmul(job, begin, end,
                         bt_cpu_scratch_row(&cpu->panels, thread));
        break;
    case BT_PACK_BF16:
        cpu->isa->matmul_bf16(job, begin, end);
        break;
    default:
        cpu->isa->matmul_q8(job, begin, end,
                            bt_cpu_scratch_row(&cpu->wide, thread));
        break;
    }
}

static void run_panels(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const bt_cpu_step_t *step = ctx;
    const bt_cpu_prepared_t prepared = prepared_of(step, thread);
    bt_matmul_job_t job = step->job;

    job.bf16 = prepared.bf16;
    job.q = prepared.q8;
    job.x = is_prepared(step) ? step->x : prepared.tiles;
    job.tiles = job.x;
    bt_cpu_multiply(step->cpu, &job, begin, end, thread);
}

/* Output lines of panels begin .. end - 1 that sums are added to. */
static void keep_outputs(void *ctx, uint32_t begin, uint32_t end, void *copy,
                         bool back)
{
    const bt_cpu_step_t *step = ctx;
    const size_t n_out = step->job.w->n_out;
    const size_t first = (size_t)begin * BT_PANEL;
    const size_t last = (size_t)end * BT_PANEL;
    const size_t n = ((last < n_out) ? last : n_out) - first;
    float *kept = copy;

    for (size_t r = 0; r < step->job.n_rows; r++) {
        float *const out = step->job.out + r * n_out + first;

        memcpy(back ? out : kept, back ? kept : out, n * sizeof(*out));
        kept += n;
    }
}

/* True when a prepared row for this weight has space. */
static bool has_rows_for(const cpu_backend_t *cpu, const bt_weight_t *w)
{
    const size_t n_in = w->n_in;

    return bt_cpu_is_dense(w) ? n_in * sizeof(float) <= cpu->tiles.row_bytes
           : (rule_of(w) == BT_PACK_BF16)
               ? n_in * sizeof(uint16_t) <= cpu->bf16.row_bytes
               : n_in / 32 * sizeof(bt_q8_group_t) <= cpu->q8.row_bytes;
}

void bt_cpu_check_space(const cpu_backend_t *cpu, const bt_cpu_step_t *step)
{
    const bt_weight_t *w = step->job.w;

    BT_ASSERT_ALWAYS((step->job.n_rows <= cpu->max_rows) &&
                     (w->n_in * sizeof(float) <= cpu->lines.row_bytes));
    BT_ASSERT_ALWAYS(has_rows_for(cpu, w));
    BT_ASSERT_ALWAYS(bt_pack_scratch_bytes(w->type, w->n_in) <=
                     cpu->wide.row_bytes);
}

/* Prepares the rows, or lets the threads of the job do it. */
static void begin_rows(const cpu_backend_t *cpu, bt_cpu_step_t *step,
                       bt_cpu_job_t *job)
{
    const uint32_t n_rows = step->job.n_rows;
    const uint32_t n = bt_cpu_n_pieces(step);
    const uint32_t grain =
        bt_cpu_grain(cpu, n, (uint64_t)step->job.w->n_in * (n_rows / n),
                     (step->kind == ROWS_SILU) ? MIN_SILU_ELEMS : MIN_ELEMS);

    step->own = (n_rows <= BT_CPU_OWN_ROWS) && (grain >= n);
    if (step->own) {
        job->prepare = prepare_own;
    } else {
        bt_cpu_pool_run_lent(cpu->pool, n, grain, prepare, step);
    }
}

static void run_step(bt_backend_t *be, bt_cpu_step_t *step)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    const bt_weight_t *w = step->job.w;
    const uint32_t n_rows = step->job.n_rows;
    const uint64_t macs = (uint64_t)w->n_in * BT_PANEL * n_rows;
    bt_cpu_job_t job = {
        .fn = run_panels,
        .ctx = step,
        .n_items = w->n_panels,
        .grain = bt_cpu_grain(cpu, w->n_panels, macs, BT_CPU_MIN_MACS),
        .lend = true,
    };

    if (n_rows == 0) {
        return;
    }
    bt_cpu_check_space(cpu, step);
    step->cpu = cpu;
    if (step->job.add) {
        job.keep = keep_outputs;
        job.keep_bytes = (size_t)n_rows * BT_PANEL * sizeof(float);
    }
    if (!is_prepared(step)) {
        begin_rows(cpu, step, &job);
    }
    if ((cpu->ahead != NULL) && (n_rows <= BT_CPU_OWN_ROWS)) {
        job.ahead = (bt_cpu_ahead_t){.data = cpu->ahead->data,
                                     .item_bytes = cpu->ahead->panel_bytes,
                                     .n_items = cpu->ahead->n_panels};
    }
    cpu->ahead = NULL;
    bt_cpu_pool_run_job(cpu->pool, &job);
}

/* ---- some outputs of each row ---- */

typedef struct some_step {
    bt_cpu_step_t step;
    const uint32_t *first;
    const uint32_t *ids;
    float *out;
} some_step_t;

/* Computes the sums of one panel and one row. */
static void sum_panel(const bt_cpu_step_t *step, uint32_t row, uint32_t panel,
                      uint32_t thread, float sums[BT_PANEL])
{
    const bt_cpu_prepared_t prepared = prepared_of(step, thread);
    const size_t n_in = step->job.w->n_in;
    bt_weight_t w = *step->job.w;
    bt_matmul_job_t job = step->job;

    w.data += panel * w.panel_bytes;
    w.n_out = BT_PANEL;
    w.n_panels = 1;
    job.w = &w;
    job.n_rows = 1;
    job.out = sums;
    if (bt_cpu_is_dense(&w)) { /* one row is read where it is */
        job.x = job.tiles = step->x + row * n_in;
    } else if (rule_of(&w) == BT_PACK_BF16) {
        job.bf16 = prepared.bf16 + row * bt_cpu_even(n_in);
    } else {
        job.q = prepared.q8 + row * (n_in / 32);
    }
    bt_cpu_multiply(step->cpu, &job, 0, 1, thread);
}

/* Items are ids; the first one of a panel computes those of the whole panel. */
static void run_ids(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const some_step_t *some = ctx;
    uint32_t row = 0;
    uint32_t i = begin;

    while (i < end) {
        const uint32_t panel = some->ids[i] / BT_PANEL;
        float sums[BT_PANEL];
        uint32_t k = i;

        while (some->first[row + 1] <= i) {
            row++;
        }
        if ((i == some->first[row]) || (some->ids[i - 1] / BT_PANEL != panel)) {
            sum_panel(&some->step, row, panel, thread, sums);
            for (; (k < some->first[row + 1]) &&
                   (some->ids[k] / BT_PANEL == panel);
                 k++) {
                some->out[k] = sums[some->ids[k] % BT_PANEL];
            }
        }
        i = (k > i) ? k : i + 1;
    }
}

void bt_cpu_matmul_ids(bt_backend_t *be, const bt_weight_t *w, const float *x,
                       uint32_t n_rows, const uint32_t *first,
                       const uint32_t *ids, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    some_step_t some = {
        .step = {.cpu = cpu, .job = {.w = w, .n_rows = n_rows}, .x = x},
        .first = first,
        .ids = ids,
        .out = out,
    };
    bt_cpu_job_t job = {.fn = run_ids, .ctx = &some};

    cpu->ahead = NULL;
    if ((n_rows == 0) || (first[n_rows] == 0)) {
        return;
    }
    bt_cpu_check_space(cpu, &some.step);
    job.n_items = first[n_rows];
    job.grain = bt_cpu_grain(cpu, job.n_items, (uint64_t)w->n_in * BT_PANEL,
                             BT_CPU_MIN_MACS);
    if (!bt_cpu_is_dense(w)) {
        begin_rows(cpu, &some.step, &job);
    }
    bt_cpu_pool_run_job(cpu->pool, &job);
}

void bt_cpu_ahead(bt_backend_t *be, const bt_weight_t *w)
{
    bt_cpu_of(be)->ahead = w;
}

void bt_cpu_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out)
{
    bt_cpu_step_t step = {
        .job = {.w = w, .n_rows = n_rows, .out = out},
        .x = x,
    };

    run_step(be, &step);
}

void bt_cpu_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                        const float *norm, float eps, uint32_t n_rows,
                        float *out)
{
    bt_cpu_step_t step = {
        .job = {.w = w, .n_rows = n_rows, .out = out},
        .kind = ROWS_NORM,
        .x = x,
        .norm = norm,
        .eps = eps,
    };

    run_step(be, &step);
}

void bt_cpu_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                       uint32_t n_rows, float *x)
{
    bt_cpu_step_t step = {
        .job = {.w = w, .n_rows = n_rows, .add = true, .out = x},
        .x = a,
    };

    run_step(be, &step);
}

void bt_cpu_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                            const float *gate_up, uint32_t n_rows, float *x)
{
    bt_cpu_step_t step = {
        .job = {.w = w, .n_rows = n_rows, .add = true, .out = x},
        .kind = ROWS_SILU,
        .x = gate_up,
    };

    run_step(be, &step);
}
