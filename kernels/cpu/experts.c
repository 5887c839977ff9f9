/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: routing, the products of many experts, and their sum.
 *
 * The slots of a product are taken in slices that the scratch of prepared rows
 * holds. A slice is cut into parts, the slots of one expert each; work items
 * are the panels of all parts, so that threads share an expert with many rows
 * as well as many experts with few. */
#include <string.h>

#include "common/base/status.h"
#include "kernels/cpu/matmul.h"
#include "kernels/formula.h"

/* Most parts of a slice; what is left is in the next one. */
#define MAX_PARTS BT_MAX_EXPERTS

/* Adjacent slots of one expert. */
typedef struct part {
    uint32_t expert;
    uint32_t slot; /* first one */
    uint32_t n;
    uint32_t at; /* its first prepared row */
} part_t;

typedef struct product {
    const cpu_backend_t *cpu;
    const bt_weight_t *const *weights;
    uint32_t n_weights;
    uint32_t n_out;    /* of one expert and one weight */
    uint32_t n_panels; /* of one expert and all weights */
    const uint32_t *rows;
    const float *x;
    bool by_row;
    bool tiles; /* rows are prepared as tiles */
    bool own;   /* each thread prepares all rows for itself */
    float *out;
    uint32_t n_parts;
    uint32_t n_rows; /* prepared rows of the slice */
    part_t parts[MAX_PARTS];
} product_t;

/* ---- routing ---- */

typedef struct route_job {
    cpu_backend_t *cpu;
    const bt_routing_t *routing;
    const float *z;
    const bt_expert_rows_t *rows;
} route_job_t;

static void route_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const route_job_t *job = ctx;
    const size_t k = job->routing->n_used;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->cpu->isa->route(job->routing, job->z + r * job->routing->n_experts,
                             job->rows->ids + r * k,
                             job->rows->weights + r * k);
    }
}

static uint32_t n_slots_of(const bt_expert_rows_t *rows)
{
    return rows->first[bt_own_experts(rows)];
}

/* Counting sort by own expert; rows stay in order. */
static void number_slots(const bt_expert_rows_t *rows, uint32_t n_rows)
{
    const uint32_t k = rows->n_used;
    const uint32_t begin = bt_own_experts_first(rows);
    const uint32_t n = bt_own_experts(rows);
    uint32_t *const first = rows->first;
    uint32_t next[BT_MAX_EXPERTS];

    memset(first, 0, ((size_t)n + 1) * sizeof(*first));
    for (size_t i = 0; i < (size_t)n_rows * k; i++) {
        if (rows->ids[i] - begin < n) { /* else below 0, which is huge */
            first[rows->ids[i] - begin + 1]++;
        }
    }
    for (uint32_t e = 0; e < n; e++) {
        next[e] = first[e];
        first[e + 1] += first[e];
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t j = 0; j < k; j++) {
            const size_t i = (size_t)r * k + j;
            const uint32_t own = rows->ids[i] - begin;

            rows->slots[i] = (own < n) ? next[own]++ : BT_NO_SLOT;
            if (own < n) {
                rows->rows[rows->slots[i]] = r;
            }
        }
    }
}

void bt_cpu_route(bt_backend_t *be, const bt_routing_t *routing, const float *z,
                  uint32_t n_rows, const bt_expert_rows_t *rows)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    route_job_t job = {.cpu = cpu, .routing = routing, .z = z, .rows = rows};

    BT_ASSERT_ALWAYS((routing->n_experts <= BT_MAX_EXPERTS) &&
                     (routing->n_used <= BT_MAX_EXPERTS_USED));
    bt_cpu_run(cpu, n_rows,
               (uint64_t)routing->n_experts * (routing->n_used + 4),
               BT_CPU_MIN_ELEMS, route_rows, &job);
    number_slots(rows, n_rows);
}

/* ---- products ---- */

/* Rows of scratch for n rows as tiles: narrow tiles are padded. */
static uint32_t tile_rows(uint32_t n)
{
    return n / BT_TILE_ROWS * BT_TILE_ROWS + bt_tile_width(n % BT_TILE_ROWS);
}

static bt_cpu_step_t step_of(const product_t *p, const part_t *part,
                             const bt_weight_t *w)
{
    const size_t n_in = w->n_in;

    return (bt_cpu_step_t){
        .cpu = p->cpu,
        .job = {.w = w, .n_rows = part->n},
        .x = p->by_row ? p->x : p->x + part->slot * n_in,
        .rows = p->by_row ? p->rows + part->slot : NULL,
    };
}

static bt_cpu_prepared_t prepared_of(const product_t *p, const part_t *part,
                                     uint32_t thread)
{
    const cpu_backend_t *const cpu = p->cpu;
    const size_t n_in = p->weights[0]->n_in;
    const size_t first =
        p->own ? cpu->max_rows + (size_t)thread * BT_CPU_OWN_ROWS : 0;
    const bt_cpu_prepared_t base = {
        .tiles = bt_cpu_scratch_row(&cpu->tiles,
                                    first + (p->own ? BT_TILE_ROWS : 0)),
        .bf16 = bt_cpu_scratch_row(&cpu->bf16, first),
        .q8 = bt_cpu_scratch_row(&cpu->q8, first)};

    return (bt_cpu_prepared_t){
        .tiles = (base.tiles == NULL) ? NULL : base.tiles + part->at * n_in,
        .bf16 = (base.bf16 == NULL) ? NULL
                                    : base.bf16 + part->at * bt_cpu_even(n_in),
        .q8 = (base.q8 == NULL) ? NULL : base.q8 + part->at * (n_in / 32)};
}

/* Prepares pieces of one part. */
static void prepare_part(const product_t *p, const part_t *part,
                         uint32_t thread, uint32_t begin, uint32_t end)
{
    const bt_cpu_step_t step = step_of(p, part, p->weights[0]);
    const bt_cpu_prepared_t prepared = prepared_of(p, part, thread);

    bt_cpu_prepare(&step, begin, end,
                   bt_cpu_scratch_row(&p->cpu->lines, thread), &prepared);
}

static void prepare_all_of(const product_t *p, const part_t *part,
                           uint32_t thread)
{
    const bt_cpu_step_t step = step_of(p, part, p->weights[0]);

    prepare_part(p, part, thread, 0, bt_cpu_n_pieces(&step));
}

static void prepare_own(void *ctx, uint32_t thread)
{
    const product_t *p = ctx;

    for (uint32_t i = 0; i < p->n_parts; i++) {
        prepare_all_of(p, &p->parts[i], thread);
    }
}

/* Items are parts where rows are prepared as tiles, else rows. */
static void prepare_items(void *ctx, uint32_t thread, uint32_t begin,
                          uint32_t end)
{
    const product_t *p = ctx;

    for (uint32_t i = 0; i < p->n_parts; i++) {
        const part_t *const part = &p->parts[i];
        const uint32_t first = (part->at > begin) ? part->at : begin;
        const uint32_t last =
            (part->at + part->n < end) ? part->at + part->n : end;

        if (p->tiles) {
            if ((i >= begin) && (i < end)) {
                prepare_all_of(p, part, thread);
            }
        } else if (first < last) {
            prepare_part(p, part, thread, first - part->at, last - part->at);
        }
    }
}

/* One expert's matrix. Its outputs are stored in rows as wide as those of all
 * weights side by side. */
static bt_weight_t weight_of(const product_t *p, const bt_weight_t *stacked,
                             uint32_t expert)
{
    bt_weight_t w = *stacked;

    w.n_out = p->n_out * p->n_weights;
    w.n_panels = p->n_out / BT_PANEL;
    w.data += (size_t)expert * w.n_panels * w.panel_bytes;
    return w;
}

/* Panels begin .. end - 1 of weight i of one part. */
static void multiply_part(const product_t *p, const part_t *part, uint32_t i,
                          uint32_t thread, uint32_t begin, uint32_t end)
{
    const bt_cpu_prepared_t prepared = prepared_of(p, part, thread);
    const bt_weight_t w = weight_of(p, p->weights[i], part->expert);
    const bt_matmul_job_t job = {
        .w = &w,
        .x = prepared.tiles,
        .tiles = prepared.tiles,
        .bf16 = prepared.bf16,
        .q = prepared.q8,
        .n_rows = part->n,
        .out = p->out + (size_t)part->slot * w.n_out + (size_t)i * p->n_out,
    };

    bt_cpu_multiply(p->cpu, &job, begin, end, thread);
}

/* Items are the panels of all parts. */
static void run_items(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const product_t *p = ctx;
    const uint32_t each = p->n_out / BT_PANEL;

    while (begin < end) {
        const uint32_t part = begin / p->n_panels;
        const uint32_t panel = begin % p->n_panels;
        const uint32_t first = panel % each; /* of its weight */
        const uint32_t left = each - first;
        const uint32_t n = (end - begin < left) ? end - begin : left;

        multiply_part(p, &p->parts[part], panel / each, thread, first,
                      first + n);
        begin += n;
    }
}

/* Cuts the next slice, from slot @a begin on, into parts. The slots of its last
 * expert are two parts where all of them, padded, have no room.
 * @return its end */
static uint32_t cut_slice(product_t *p, const bt_expert_rows_t *rows,
                          uint32_t *expert_p, uint32_t begin, uint32_t end)
{
    const uint32_t space = p->cpu->max_rows + (p->tiles ? BT_TILE_ROWS : 0);
    uint32_t left = space;

    p->n_parts = 0;
    while ((begin < end) && (left > 0) && (p->n_parts < MAX_PARTS)) {
        uint32_t n;

        while (rows->first[*expert_p + 1] <= begin) {
            (*expert_p)++;
        }
        n = rows->first[*expert_p + 1] - begin;
        n = (n > left) ? left : n;
        n = (n > p->cpu->max_rows) ? p->cpu->max_rows : n;
        while ((n > 0) && p->tiles && (tile_rows(n) > left)) {
            n--;
        }
        if (n == 0) {
            break;
        }
        p->parts[p->n_parts++] = (part_t){
            .expert = *expert_p, .slot = begin, .n = n, .at = space - left};
        left -= p->tiles ? tile_rows(n) : n;
        begin += n;
    }
    p->n_rows = space - left;
    return begin;
}

static void run_slice(cpu_backend_t *cpu, product_t *p)
{
    const uint32_t n_in = p->weights[0]->n_in;
    const uint32_t n_items = p->n_parts * p->n_panels;
    const uint64_t macs =
        (uint64_t)n_in * BT_PANEL * (p->n_rows / p->n_parts + 1);
    bt_cpu_job_t job = {
        .fn = run_items,
        .ctx = p,
        .n_items = n_items,
        .grain = bt_cpu_grain(cpu, n_items, macs, BT_CPU_MIN_MACS),
        .lend = true,
    };

    p->own = p->n_rows <= BT_CPU_OWN_ROWS;
    if (p->own) {
        job.prepare = prepare_own;
    } else {
        const uint32_t n = p->tiles ? p->n_parts : p->n_rows;

        bt_cpu_pool_run_lent(cpu->pool, n,
                             bt_cpu_grain(cpu, n, n_in, BT_CPU_MIN_ELEMS),
                             prepare_items, p);
    }
    bt_cpu_pool_run_job(cpu->pool, &job);
}

/* Products of weights that take rows prepared alike. */
static void run_product(cpu_backend_t *cpu, product_t *p,
                        const bt_expert_rows_t *rows, uint32_t n_slots)
{
    uint32_t expert = 0;
    uint32_t begin = 0;

    while (begin < n_slots) {
        begin = cut_slice(p, rows, &expert, begin, n_slots);
        for (uint32_t i = 0; i < p->n_parts; i++) {
            const bt_cpu_step_t step = step_of(p, &p->parts[i], p->weights[0]);

            bt_cpu_check_space(cpu, &step);
        }
        run_slice(cpu, p);
    }
}

void bt_cpu_matmul_experts(bt_backend_t *be, const bt_weight_t *const *weights,
                           uint32_t n_weights, const bt_expert_rows_t *rows,
                           uint32_t n_rows, const float *x, bool by_row,
                           float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    const bt_weight_t *const w = weights[0];
    product_t p = {.cpu = cpu,
                   .weights = weights,
                   .n_weights = n_weights,
                   .n_out = w->n_out / bt_own_experts(rows),
                   .rows = rows->rows,
                   .x = x,
                   .by_row = by_row,
                   .tiles = bt_cpu_is_dense(w) && cpu->isa->uses_tiles,
                   .out = out};

    BT_ASSERT_ALWAYS((p.n_out % BT_PANEL == 0) &&
                     (p.n_out * bt_own_experts(rows) == w->n_out));
    for (uint32_t i = 1; i < n_weights; i++) {
        BT_ASSERT_ALWAYS((weights[i]->type == w->type) &&
                         (weights[i]->n_out == w->n_out) &&
                         (weights[i]->n_in == w->n_in));
    }
    p.n_panels = p.n_out / BT_PANEL * n_weights;
    cpu->ahead = NULL;
    (void)n_rows;
    run_product(cpu, &p, rows, n_slots_of(rows));
}

/* ---- between the products ---- */

typedef struct rows_job {
    const cpu_backend_t *cpu;
    const bt_expert_rows_t *rows;
    const float *bias, *z;
    uint32_t dim;
    float *x;
} rows_job_t;

/* Items are slots. */
static void bias_slots(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const rows_job_t *job = ctx;
    const size_t dim = job->dim;
    uint32_t expert = 0;

    (void)thread;
    for (size_t s = begin; s < end; s++) {
        while (job->rows->first[expert + 1] <= s) {
            expert++;
        }
        job->cpu->isa->add(job->x + s * dim, job->bias + expert * dim, dim);
    }
}

void bt_cpu_add_expert_bias(bt_backend_t *be, const bt_expert_rows_t *rows,
                            uint32_t n_rows, const float *bias, uint32_t dim,
                            float *x)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    rows_job_t job = {
        .cpu = cpu, .rows = rows, .bias = bias, .dim = dim, .x = x};

    (void)n_rows;
    bt_cpu_run(cpu, n_slots_of(rows), dim, BT_CPU_MIN_ELEMS * 2, bias_slots,
               &job);
}

static void gate(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const rows_job_t *job = ctx;

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        job->cpu->isa->scale(job->x + r * job->dim,
                             1.0f / (1.0f + bt_expf(-job->z[r])), job->dim);
    }
}

void bt_cpu_gate_rows(bt_backend_t *be, float *x, const float *z,
                      uint32_t n_rows, uint32_t dim)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    rows_job_t job = {.cpu = cpu, .z = z, .dim = dim, .x = x};

    bt_cpu_run(cpu, n_rows, dim, BT_CPU_MIN_ELEMS * 2, gate, &job);
}

/* ---- sums ---- */

typedef struct combine_job {
    const cpu_backend_t *cpu;
    const bt_expert_rows_t *rows;
    const float *x;
    uint32_t dim;
    float *out;
} combine_job_t;

/* Returns the leaf p with floor(p E / 16) <= expert < floor((p + 1) E / 16). */
static uint8_t leaf_of(uint32_t expert, uint32_t n_experts)
{
    return (uint8_t)((BT_EXPERT_LEAVES * (expert + 1) - 1) / n_experts);
}

static void combine_rows(void *ctx, uint32_t thread, uint32_t begin,
                         uint32_t end)
{
    const combine_job_t *job = ctx;
    const bt_expert_rows_t *const rows = job->rows;
    bt_expert_sum_t sum = {.n_leaves = bt_expert_leaves(rows)};

    (void)thread;
    for (size_t r = begin; r < end; r++) {
        sum.n = 0;
        for (uint32_t j = 0; j < rows->n_used; j++) {
            const size_t i = r * rows->n_used + j;

            if (rows->slots[i] == BT_NO_SLOT) {
                continue;
            }
            sum.x[sum.n] = job->x + (size_t)rows->slots[i] * job->dim;
            sum.weight[sum.n] = rows->weights[i];
            sum.leaf[sum.n] = (uint8_t)(leaf_of(rows->ids[i], rows->n_experts) -
                                        rows->first_leaf);
            sum.n++;
        }
        job->cpu->isa->combine(&sum, job->dim, job->out + r * job->dim);
    }
}

void bt_cpu_combine(bt_backend_t *be, const bt_expert_rows_t *rows,
                    uint32_t n_rows, const float *x, uint32_t dim, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    combine_job_t job = {
        .cpu = cpu, .rows = rows, .x = x, .dim = dim, .out = out};

    bt_cpu_run(cpu, n_rows, (uint64_t)dim * (rows->n_used + 4),
               BT_CPU_MIN_ELEMS * 2, combine_rows, &job);
}
