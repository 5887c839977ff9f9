/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/kernels/kcheck.h"

static const uint32_t dims[] = {1,  2,  7,  15,  16,  17,   31,  32,
                                33, 48, 64, 100, 576, 1536, 2048};

/* got within `ulps` float ulps of the double (or 1e-37, where flushed). */
static bool close_to(double want, float got, double ulps)
{
    double bound = fabs(want) * ulps * 0x1p-23 + 1e-37;

    return fabs(want - (double)got) <= bound;
}

static void check_rmsnorm(uint32_t dim, uint32_t n_rows, bool extreme)
{
    size_t n = (size_t)dim * n_rows;
    float *x = kc_alloc(n);
    float *weight = kc_alloc(dim);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);
    const float eps = 1e-5f;

    kc_fill(x, n, extreme);
    kc_fill(weight, dim, false);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? want : got;

        if (kc_skips(b, b->be->ops->rmsnorm != NULL, true, "rmsnorm")) {
            continue;
        }
        kc_poison(out);
        b->be->ops->rmsnorm(b->be, x, weight, eps, n_rows, dim, out);
        kc_expect_equal(want, out, n, "rmsnorm", b->name);
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->rmsnorm(b->be, got, weight, eps, n_rows, dim, got);
        kc_expect_equal(want, got, n, "rmsnorm in place", b->name);
    }
    for (size_t r = 0; !extreme && (r < n_rows); r++) {
        double sum = 0;

        for (uint32_t i = 0; i < dim; i++) {
            sum += (double)x[r * dim + i] * (double)x[r * dim + i];
        }
        for (uint32_t i = 0; i < dim; i++) {
            double y = (double)x[r * dim + i] / sqrt(sum / dim + (double)eps) *
                       (double)weight[i];

            /* 2048 / 16 additions a lane, halved by the square root. */
            kc_expect(close_to(y, want[r * dim + i], 64), "rmsnorm value");
        }
    }
    kc_free(x);
    kc_free(weight);
    kc_free(want);
    kc_free(got);
}

static void check_silu(uint32_t dim, uint32_t n_rows, bool extreme)
{
    size_t n = (size_t)dim * n_rows;
    float *x = kc_alloc(2 * n);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, 2 * n, extreme);
    for (size_t i = 0; i < 2 * n; i += 5) {
        x[i] *= 60.0f; /* both ends of exp */
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? want : got;

        if (kc_skips(b, b->be->ops->activate != NULL, true, "silu_mul")) {
            continue;
        }
        kc_poison(out);
        b->be->ops->activate(b->be, BT_ACT_SILU, true, x, n_rows, dim, out);
        kc_expect_equal(want, out, n, "silu_mul", b->name);
    }
    for (size_t r = 0; !extreme && (r < n_rows); r++) {
        for (uint32_t i = 0; i < dim; i++) {
            double gate = (double)x[r * 2 * dim + i];
            double up = (double)x[r * 2 * dim + dim + i];
            double y = gate / (1.0 + exp(-gate)) * up;
            float out = want[r * dim + i];

            /* Below -88, exp(-gate) is taken as infinite. */
            kc_expect(close_to(y, out, 5) || (gate < -87.9 && fabsf(out) <= 0),
                      "silu(%g) * %g is %g, not %g", gate, up, (double)out, y);
        }
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

static void check_add(size_t n, bool extreme)
{
    float *x = kc_alloc(n);
    float *y = kc_alloc(n);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, extreme);
    kc_fill(y, n, extreme);
    for (size_t i = 0; i < n; i++) {
        want[i] = x[i] + y[i];
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->add != NULL, true, "add")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->add(b->be, got, y, n);
        kc_expect_equal(want, got, n, "add", b->name);
    }
    kc_free(x);
    kc_free(y);
    kc_free(want);
    kc_free(got);
}

static void check_gather(uint32_t dim)
{
    const uint32_t rows[] = {4, 0, 4, 2};
    const uint32_t n_rows = BT_ARRAY_LEN(rows);
    const bt_batch_t batch = {.tokens = kc_tokens,
                              .n_rows = 5,
                              .logit_rows = rows,
                              .n_logit_rows = n_rows};
    float *x = kc_alloc((size_t)5 * dim);
    float *want = kc_alloc((size_t)n_rows * dim);
    float *got = kc_alloc((size_t)n_rows * dim);

    kc_fill(x, (size_t)5 * dim, true);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(want + (size_t)r * dim, x + (size_t)rows[r] * dim,
               dim * sizeof(*x));
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->gather_rows != NULL, true, "gather_rows")) {
            continue;
        }
        kc_poison(got);
        b->be->ops->gather_rows(b->be, x, &batch, dim, got);
        kc_expect_equal(want, got, (size_t)n_rows * dim, "gather", b->name);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* Three rows put between columns that stay as they are. */
static void check_copy_columns(uint32_t dim)
{
    const uint32_t before = kc_below(40);
    const uint32_t out_dim = before + dim + kc_below(40);
    const size_t n_out = (size_t)3 * out_dim;
    float *x = kc_alloc((size_t)3 * dim);
    float *want = kc_alloc(n_out);
    float *got = kc_alloc(n_out);

    kc_fill(x, (size_t)3 * dim, true);
    for (uint32_t r = 0; r < 3; r++) {
        memcpy(want + (size_t)r * out_dim + before, x + (size_t)r * dim,
               dim * sizeof(*x));
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->copy_columns != NULL, true,
                     "copy_columns")) {
            continue;
        }
        kc_poison(got);
        b->be->ops->copy_columns(b->be, x, 3, dim, got, out_dim, before);
        kc_expect_equal(want, got, n_out, "copy_columns", b->name);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* Of three rows columns between others. */
static void check_cut_columns(uint32_t dim)
{
    const uint32_t before = kc_below(40);
    const uint32_t x_dim = before + dim + kc_below(40);
    const size_t n_out = (size_t)3 * dim;
    float *x = kc_alloc((size_t)3 * x_dim);
    float *want = kc_alloc(n_out);
    float *got = kc_alloc(n_out);

    kc_fill(x, (size_t)3 * x_dim, true);
    for (uint32_t r = 0; r < 3; r++) {
        memcpy(want + (size_t)r * dim, x + (size_t)r * x_dim + before,
               dim * sizeof(*x));
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->cut_columns != NULL, true, "cut_columns")) {
            continue;
        }
        kc_poison(got);
        b->be->ops->cut_columns(b->be, x, 3, x_dim, before, dim, got);
        kc_expect_equal(want, got, n_out, "cut_columns", b->name);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* By the definition in kernels.h. */
static uint32_t first_largest(const float *x, uint32_t n)
{
    uint32_t best = 0;
    float largest = -INFINITY;

    for (uint32_t i = 0; i < n; i++) {
        if (x[i] > largest) {
            largest = x[i];
            best = i;
        }
    }
    return best;
}

/* Rows with ties, with NaN, with nothing to choose. */
static void check_argmax(uint32_t dim, uint32_t n_rows)
{
    const size_t n = (size_t)dim * n_rows;
    float *x = kc_alloc(n);
    float *ids = kc_alloc(n_rows);
    uint32_t *const got = (uint32_t *)(void *)ids;

    kc_fill(x, n, kc_below(2) == 0);
    for (size_t i = 0; i < n; i++) {
        const uint32_t row_kind = (uint32_t)(i / dim) % 4;

        if ((row_kind == 1) && (kc_below(3) > 0)) {
            x[i] = floorf(x[i]); /* few different ones: ties */
        } else if ((row_kind == 2) && (kc_below(3) == 0)) {
            x[i] = NAN;
        } else if (row_kind == 3) {
            x[i] = (kc_below(2) == 0) ? -INFINITY : NAN;
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->argmax != NULL, true, "argmax")) {
            continue;
        }
        kc_poison(ids);
        b->be->ops->argmax(b->be, x, n_rows, dim, got);
        for (uint32_t r = 0; r < n_rows; r++) {
            const uint32_t want = first_largest(x + (size_t)r * dim, dim);

            kc_expect(got[r] == want, "argmax of %u, %s: row %u is %u, not %u",
                      dim, b->name, r, got[r], want);
        }
        kc_check_canaries(ids, "argmax");
    }
    kc_free(x);
    kc_free(ids);
}

void kc_test_ops(void)
{
    static const uint32_t rows[] = {0, 1, 3, 17, 40};

    for (size_t d = 0; d < BT_ARRAY_LEN(dims); d++) {
        for (size_t r = 0; r < BT_ARRAY_LEN(rows); r++) {
            check_rmsnorm(dims[d], rows[r], r % 2 == 1);
            check_silu(dims[d], rows[r], r % 2 == 1);
            check_argmax(dims[d], rows[r]);
        }
        check_add(dims[d], d % 2 == 1);
        check_gather(dims[d]);
        check_copy_columns(dims[d]);
        check_cut_columns(dims[d]);
    }
    check_add(0, false);
    check_add(123457, true);
    check_argmax(49152, 5);
}
