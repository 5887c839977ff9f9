/* SPDX-License-Identifier: Apache-2.0 */
/* Products of adapters, on every back end against the reference, each row alone
 * too: equal bits. The reference against a sum in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/half.h"
#include "tests/kernels/kcheck.h"

#define MAX_RANK 64u
#define GROUPS   5u
#define AT       3u /* columns before the product's, and behind */

typedef struct lora_case {
    bt_ktype_t type;
    uint32_t n_in, n_out, n_rows;
    uint32_t n_groups;
    bt_lora_rows_t groups[GROUPS];
    float *a[GROUPS], *b[GROUPS]; /* as floats, (n_in, rank), (rank, n_out) */
    float *x, *start, *want, *got, *down;
    char what[96];
} lora_case_t;

static uint16_t half_of(bt_ktype_t type, float value)
{
    return (type == BT_KTYPE_F16) ? bt_f32_to_f16(value)
                                  : bt_f32_to_bf16(value);
}

static float value_of(bt_ktype_t type, uint16_t half)
{
    return (type == BT_KTYPE_F16) ? bt_f16_to_f32(half) : bt_bf16_to_f32(half);
}

/* A matrix with padded rows, aligned to 64 bytes; *values_p is what it
 * holds. */
static void *make_matrix(bt_ktype_t type, uint32_t n_rows, size_t padded_rows,
                         uint32_t n, size_t lanes, float **values_p)
{
    const size_t elem = (type == BT_KTYPE_F32) ? 4 : 2;
    const size_t bytes = (padded_rows * lanes * elem + 63) / 64 * 64;
    uint8_t *data = aligned_alloc(64, bytes);
    float *values = kc_alloc((size_t)n_rows * n);

    kc_expect(data != NULL, "memory of a matrix");
    memset(data, 0, bytes);
    for (size_t i = 0; i < (size_t)n_rows * n; i++) {
        const size_t at = i / n * lanes + i % n;
        float value = kc_uniform(-1.0f, 1.0f);

        if (type == BT_KTYPE_F32) {
            memcpy(data + at * elem, &value, elem);
        } else {
            const uint16_t half = half_of(type, value);

            memcpy(data + at * elem, &half, elem);
            value = value_of(type, half);
        }
        values[i] = value;
    }
    *values_p = values;
    return data;
}

/* Some rows have no adapter: those between groups. */
static void make_case(lora_case_t *c)
{
    static const uint32_t ranks[] = {1, 8, 9, 16, 33, MAX_RANK};
    const size_t width = c->n_out + 2 * AT;

    for (uint32_t row = kc_below(2);
         (row < c->n_rows) && (c->n_groups < GROUPS); row += kc_below(2)) {
        bt_lora_rows_t *g = &c->groups[c->n_groups];
        const uint32_t n = 1 + kc_below(6);

        g->type = c->type;
        g->rank = ranks[kc_below(6)];
        g->scale = kc_uniform(-2.0f, 2.0f);
        g->row = row;
        g->n_rows = (row + n <= c->n_rows) ? n : c->n_rows - row;
        g->a = make_matrix(c->type, c->n_in, bt_lora_rows_in(c->n_in), g->rank,
                           bt_lora_rank_lanes(g->rank), &c->a[c->n_groups]);
        g->b = make_matrix(c->type, g->rank, g->rank, c->n_out,
                           bt_lora_lanes(c->n_out), &c->b[c->n_groups]);
        c->n_groups++;
        row += g->n_rows;
    }
    c->x = kc_alloc((size_t)c->n_rows * c->n_in);
    c->start = kc_alloc(c->n_rows * width);
    c->want = kc_alloc(c->n_rows * width);
    c->got = kc_alloc(c->n_rows * width);
    c->down = kc_alloc((size_t)c->n_rows * MAX_RANK);
    kc_fill(c->x, (size_t)c->n_rows * c->n_in, false);
    kc_fill(c->start, c->n_rows * width, false);
    snprintf(c->what, sizeof(c->what), "lora %s %u x %u, %u rows, %u adapters",
             bt_ktype_name(c->type), c->n_out, c->n_in, c->n_rows, c->n_groups);
}

static void free_case(lora_case_t *c)
{
    for (uint32_t g = 0; g < c->n_groups; g++) {
        free((void *)(uintptr_t)c->groups[g].a);
        free((void *)(uintptr_t)c->groups[g].b);
        kc_free(c->a[g]);
        kc_free(c->b[g]);
    }
    kc_free(c->x);
    kc_free(c->start);
    kc_free(c->want);
    kc_free(c->got);
    kc_free(c->down);
}

static void run(const lora_case_t *c, bt_backend_t *be,
                const bt_lora_rows_t *groups, uint32_t n_groups, float *y)
{
    const size_t width = c->n_out + 2 * AT;
    const bt_lora_step_t step = {
        .groups = groups,
        .n_groups = n_groups,
        .x = c->x,
        .n_in = c->n_in,
        .down = c->down,
        .max_rank = MAX_RANK,
        .y = y,
        .row_floats = width,
        .at = AT,
        .n_out = c->n_out,
    };

    kc_poison(y);
    kc_poison(c->down);
    memcpy(y, c->start, c->n_rows * width * sizeof(float));
    be->ops->lora(be, &step);
    kc_check_canaries(y, c->what);
    kc_check_canaries(c->down, c->what);
}

/* Each row in a group of its own, and the groups one at a time. */
static void check_alone(const lora_case_t *c, const kc_backend_t *b)
{
    const size_t width = c->n_out + 2 * AT;

    for (uint32_t g = 0; g < c->n_groups; g++) {
        bt_lora_rows_t one = c->groups[g];

        one.row += kc_below(one.n_rows);
        one.n_rows = 1;
        run(c, b->be, &one, 1, c->got);
        kc_expect(kc_first_difference(c->want + one.row * width,
                                      c->got + one.row * width, width) == width,
                  "%s: row %u alone differs on %s", c->what, one.row, b->name);
    }
}

static double sum_in_double(const lora_case_t *c, uint32_t g, uint32_t row,
                            uint32_t o, double *bound)
{
    const uint32_t rank = c->groups[g].rank;
    double sum = 0.0;

    *bound = 0.0;
    for (uint32_t j = 0; j < rank; j++) {
        double a = 0.0;
        double size = 0.0;

        for (uint32_t k = 0; k < c->n_in; k++) {
            const double t = (double)c->x[(size_t)row * c->n_in + k] *
                             c->a[g][(size_t)k * rank + j];

            a += t;
            size += fabs(t);
        }
        sum += a * c->b[g][(size_t)j * c->n_out + o];
        *bound += size * fabs((double)c->b[g][(size_t)j * c->n_out + o]);
    }
    return sum;
}

static void compare_with_double(const lora_case_t *c)
{
    const size_t width = c->n_out + 2 * AT;

    for (uint32_t g = 0; g < c->n_groups; g++) {
        const uint32_t row = c->groups[g].row;

        for (uint32_t o = 0; o < c->n_out; o++) {
            const size_t at = row * width + AT + o;
            double bound;
            const double want =
                c->start[at] + (double)c->groups[g].scale *
                                   sum_in_double(c, g, row, o, &bound);
            const double off = fabs(c->want[at] - want);

            bound = (bound * fabs((double)c->groups[g].scale) +
                     fabs((double)c->start[at])) *
                    (c->n_in + MAX_RANK + 2) * 0x1p-24;
            kc_expect(off <= bound, "%s: row %u output %u is off by %g",
                      c->what, row, o, off);
        }
    }
}

static void run_case(bt_ktype_t type, uint32_t n_in, uint32_t n_out,
                     uint32_t n_rows)
{
    lora_case_t c = {
        .type = type, .n_in = n_in, .n_out = n_out, .n_rows = n_rows};

    make_case(&c);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->lora != NULL, true, "lora")) {
            continue;
        }
        run(&c, b->be, c.groups, c.n_groups, (i == 0) ? c.want : c.got);
        if (i > 0) {
            kc_expect_equal(c.want, c.got,
                            (size_t)n_rows * (n_out + 2 * (size_t)AT), c.what,
                            b->name);
        }
        check_alone(&c, b);
    }
    compare_with_double(&c);
    free_case(&c);
}

void kc_test_lora(void)
{
    static const bt_ktype_t types[] = {BT_KTYPE_F32, BT_KTYPE_F16,
                                       BT_KTYPE_BF16};
    static const uint32_t outs[] = {1, 7, 16, 17, 40, 96, 256, 300};

    for (size_t t = 0; t < BT_ARRAY_LEN(types); t++) {
        for (size_t o = 0; o < BT_ARRAY_LEN(outs); o++) {
            run_case(types[t], 1 + kc_below(200), outs[o], 1 + kc_below(24));
        }
        run_case(types[t], 576, 1536, 33);
    }
}
