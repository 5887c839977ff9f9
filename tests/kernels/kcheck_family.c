/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that llama does without, on every back end against the reference,
 * and that against double. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/kernels/kcheck.h"

#define EPS 1e-5f

static const uint32_t dims[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 576};
static const uint32_t rows[] = {0, 1, 3, 17, 40};

static bool near(double want, double got, double bound)
{
    return fabs(want - got) <= bound;
}

static void check_layer_norm(uint32_t dim, uint32_t n_rows, bool extreme)
{
    const size_t n = (size_t)dim * n_rows;
    float *x = kc_alloc(n);
    float *weight = kc_alloc(dim);
    float *bias = kc_alloc(dim);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);
    const float *const use = (kc_below(3) == 0) ? NULL : bias;

    kc_fill(x, n, extreme);
    kc_fill(weight, dim, false);
    kc_fill(bias, dim, false);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? want : got;

        if (kc_skips(b, b->be->ops->layer_norm != NULL, true, "layer_norm")) {
            continue;
        }
        kc_poison(out);
        b->be->ops->layer_norm(b->be, x, weight, use, EPS, n_rows, dim, out);
        kc_expect_equal(want, out, n, "layer_norm", b->name);
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->layer_norm(b->be, got, weight, use, EPS, n_rows, dim, got);
        kc_expect_equal(want, got, n, "layer_norm in place", b->name);
    }
    for (size_t r = 0; !extreme && (r < n_rows); r++) {
        double mean = 0;
        double var = 0;

        for (uint32_t i = 0; i < dim; i++) {
            mean += (double)x[r * dim + i] / dim;
        }
        for (uint32_t i = 0; i < dim; i++) {
            const double d = (double)x[r * dim + i] - mean;

            var += d * d / dim;
        }
        for (uint32_t i = 0; i < dim; i++) {
            const double y = ((double)x[r * dim + i] - mean) /
                                 sqrt(var + (double)EPS) * (double)weight[i] +
                             ((use == NULL) ? 0.0 : (double)use[i]);

            /* of one value the mean is the value, which rounds nothing */
            kc_expect(
                near(y, (double)want[r * dim + i], 1e-5 * (1.0 + fabs(y))),
                "layer_norm value of %u: %g, not %g", dim,
                (double)want[r * dim + i], y);
        }
    }
    kc_free(x);
    kc_free(weight);
    kc_free(bias);
    kc_free(want);
    kc_free(got);
}

/* What lies beside the heads stays; each head is what rmsnorm() makes of it. */
static void check_head_norm(uint32_t dim, uint32_t n_rows)
{
    const uint32_t n_heads = 1 + kc_below(4);
    const size_t at = kc_below(20);
    const size_t row = at + (size_t)n_heads * dim + kc_below(20);
    const size_t n = row * n_rows;
    bt_backend_t *const ref = kc_backends[0].be;
    float *x = kc_alloc(n);
    float *weight = kc_alloc(dim);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, true);
    kc_fill(weight, dim, false);
    memcpy(want, x, n * sizeof(*x));
    for (size_t r = 0; r < n_rows; r++) {
        for (uint32_t h = 0; h < n_heads; h++) {
            float *head = want + r * row + at + (size_t)h * dim;

            ref->ops->rmsnorm(ref, head, weight, EPS, 1, dim, head);
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->head_norm != NULL, true, "head_norm")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->head_norm(b->be, got, weight, EPS, n_rows, row, at, n_heads,
                              dim);
        kc_expect_equal(want, got, n, "head_norm", b->name);
    }
    kc_free(x);
    kc_free(weight);
    kc_free(want);
    kc_free(got);
}

/* By the functions' definitions; erfc() keeps the tail's precision. */
static double activation(bt_activation_t act, double x)
{
    switch (act) {
    case BT_ACT_SILU:
        return x / (1.0 + exp(-x));
    case BT_ACT_GELU_TANH:
        return 0.5 * x *
               (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case BT_ACT_GELU_ERF:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case BT_ACT_RELU2:
        return (x > 0) ? x * x : 0.0;
    case BT_ACT_SWIGLU_OAI:
        x = (x > 7.0) ? 7.0 : x;
        return x / (1.0 + exp(-1.702 * x));
    }
    return NAN;
}

static void check_activate(bt_activation_t act, bool gated, uint32_t dim,
                           uint32_t n_rows, bool extreme)
{
    const size_t n = (size_t)dim * n_rows;
    const size_t row = gated ? 2 * (size_t)dim : dim;
    float *x = kc_alloc(row * n_rows);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, row * n_rows, extreme);
    for (size_t i = 0; i < row * n_rows; i += 5) {
        x[i] *= (i % 2 == 0) ? 60.0f : 4.0f; /* both ends of exp */
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? want : got;

        if (kc_skips(b, b->be->ops->activate != NULL, true, "activate")) {
            continue;
        }
        kc_poison(out);
        b->be->ops->activate(b->be, act, gated, x, n_rows, dim, out);
        kc_expect_equal(want, out, n, "activate", b->name);
    }
    for (size_t r = 0; !extreme && (r < n_rows); r++) {
        for (uint32_t i = 0; i < dim; i++) {
            const double gate = (double)x[r * row + i];
            double up = gated ? (double)x[r * row + dim + i] : 1.0;
            const double out = (double)want[r * dim + i];
            double y;

            if (gated && (act == BT_ACT_SWIGLU_OAI)) {
                up = fmin(fmax(up, -7.0), 7.0) + 1.0;
            }
            y = activation(act, gate) * up;

            kc_expect(near(y, out, 4e-7 * (fabs(y) + fabs(gate * up)) + 1e-30),
                      "activation %d of %g (* %g) is %g, not %g", (int)act,
                      gate, up, out, y);
        }
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

static void check_bias(uint32_t dim, uint32_t n_rows)
{
    const size_t n = (size_t)dim * n_rows;
    float *x = kc_alloc(n);
    float *bias = kc_alloc(dim);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, true);
    kc_fill(bias, dim, true);
    for (size_t i = 0; i < n; i++) {
        want[i] = x[i] + bias[i % dim];
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->add_bias != NULL, true, "add_bias")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->add_bias(b->be, got, bias, n_rows, dim);
        kc_expect_equal(want, got, n, "add_bias", b->name);
    }
    kc_free(x);
    kc_free(bias);
    kc_free(want);
    kc_free(got);
}

static void check_scale(size_t n)
{
    const float factor = kc_uniform(0.01f, 90.0f);
    float *x = kc_alloc(n);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, true);
    for (size_t i = 0; i < n; i++) {
        want[i] = x[i] * factor;
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->scale != NULL, true, "scale")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->scale(b->be, got, factor, n);
        kc_expect_equal(want, got, n, "scale", b->name);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

static void check_clamp(size_t n)
{
    const float limit = kc_uniform(0.1f, 3.0f);
    float *x = kc_alloc(n);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, true);
    for (size_t i = 0; i < n; i++) {
        x[i] = (i % 7 == 3) ? NAN : x[i];
        want[i] = (fabsf(x[i]) > limit) ? copysignf(limit, x[i]) : x[i];
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->clamp != NULL, true, "clamp")) {
            continue;
        }
        memcpy(got, x, n * sizeof(*x));
        b->be->ops->clamp(b->be, got, limit, n);
        kc_expect_equal(want, got, n, "clamp", b->name);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

static void check_soft_cap(size_t n, bool extreme)
{
    const float cap = kc_uniform(0.5f, 50.0f);
    float *x = kc_alloc(n);
    float *want = kc_alloc(n);
    float *got = kc_alloc(n);

    kc_fill(x, n, extreme);
    for (size_t i = 0; i < n; i += 3) {
        x[i] *= 40.0f;
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? want : got;

        if (kc_skips(b, b->be->ops->soft_cap != NULL, true, "soft_cap")) {
            continue;
        }
        memcpy(out, x, n * sizeof(*x));
        b->be->ops->soft_cap(b->be, out, cap, n);
        kc_expect_equal(want, out, n, "soft_cap", b->name);
    }
    for (size_t i = 0; !extreme && (i < n); i++) {
        const double y = (double)cap * tanh((double)x[i] / (double)cap);

        kc_expect(near(y, (double)want[i], 4e-7 * (double)cap),
                  "%g capped at %g is %g, not %g", (double)x[i], (double)cap,
                  (double)want[i], y);
    }
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* The first values of each row, by the factor of the row's position. */
static void check_scale_positions(uint32_t dim, size_t row_floats)
{
    static const uint32_t block = 0;
    static const uint32_t positions[] = {7, 8, 0, 39};
    const bt_ragged_seq_t seqs[] = {
        {.row = 0, .n_rows = 2, .pos = 7, .blocks = &block},
        {.row = 2, .n_rows = 1, .pos = 0, .blocks = &block},
        {.row = 3, .n_rows = 1, .pos = 39, .blocks = &block}};
    const bt_batch_t batch = {.tokens = kc_tokens,
                              .seqs = seqs,
                              .n_rows = 4,
                              .n_seqs = 3,
                              .tokens_per_block = 64};
    float *factors = kc_alloc(40);
    float *x = kc_alloc(4 * row_floats);
    float *want = kc_alloc(4 * row_floats);
    float *got = kc_alloc(4 * row_floats);

    kc_fill(factors, 40, false);
    kc_fill(x, 4 * row_floats, true);
    memcpy(want, x, 4 * row_floats * sizeof(*x));
    for (size_t r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < dim; i++) {
            want[r * row_floats + i] *= factors[positions[r]];
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        if (kc_skips(b, b->be->ops->scale_positions != NULL, true,
                     "scale_positions")) {
            continue;
        }
        memcpy(got, x, 4 * row_floats * sizeof(*x));
        b->be->ops->scale_positions(b->be, got, factors, &batch, row_floats,
                                    dim);
        kc_expect_equal(want, got, 4 * row_floats, "scale_positions", b->name);
    }
    kc_free(factors);
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* Rows of two sequences get those of their positions, from packed weights. */
static void check_positions(const kc_type_t *type)
{
    static const uint32_t block =
        0; /* there is no cache, but a batch names it */
    const bt_ragged_seq_t seqs[] = {
        {.row = 0, .n_rows = 3, .pos = 4, .blocks = &block},
        {.row = 3, .n_rows = 1, .pos = 36, .blocks = &block}};
    const bt_batch_t batch = {.tokens = kc_tokens,
                              .seqs = seqs,
                              .n_rows = 4,
                              .n_seqs = 2,
                              .tokens_per_block = 64};
    static const uint32_t positions[] = {4, 5, 6, 36};
    const uint32_t n_out = 37;
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    uint32_t dim;
    size_t n_blocks;
    uint8_t *data;
    float *x;
    float *want;
    float *got;

    kc_expect(bt_ktype_block(type->type, &n_elems, &n_bytes) == BT_OK,
              "block size of type %d", (int)type->type);
    dim = (n_elems == 1) ? 33 : n_elems;
    n_blocks = (size_t)n_out * (dim / n_elems);
    data = (uint8_t *)kc_alloc(n_blocks * n_bytes / 4 + 1);
    kc_fill_weights(type, data, n_blocks, n_bytes);
    x = kc_alloc((size_t)4 * dim);
    want = kc_alloc((size_t)4 * dim);
    got = kc_alloc((size_t)4 * dim);
    kc_fill(x, (size_t)4 * dim, false);
    for (size_t r = 0; r < 4; r++) {
        const size_t row_bytes = (size_t)dim / n_elems * n_bytes;

        kc_expect(bt_dequantize(type->type, data + positions[r] * row_bytes,
                                dim, want + r * dim) == BT_OK,
                  "dequantize");
        for (uint32_t i = 0; i < dim; i++) {
            want[r * dim + i] = x[r * dim + i] + want[r * dim + i];
        }
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        bt_weight_t *w;

        if (kc_skips(b, b->be->ops->add_positions != NULL, true,
                     "add_positions")) {
            continue;
        }
        w = kc_pack(b, type, n_out, dim, data, "positions");
        if (w == NULL) {
            continue;
        }
        memcpy(got, x, (size_t)4 * dim * sizeof(*x));
        b->be->ops->add_positions(b->be, w, &batch, got);
        kc_expect_equal(want, got, (size_t)4 * dim, "add_positions", b->name);
        b->be->ops->weight_free(b->be, w);
    }
    kc_free((float *)(void *)data);
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

void kc_test_family(void)
{
    for (size_t d = 0; d < BT_ARRAY_LEN(dims); d++) {
        for (size_t r = 0; r < BT_ARRAY_LEN(rows); r++) {
            const bool extreme = r % 2 == 1;

            check_layer_norm(dims[d], rows[r], extreme);
            check_head_norm(dims[d], rows[r]);
            check_bias(dims[d], rows[r]);
            for (uint32_t act = 0; act <= BT_ACT_SWIGLU_OAI; act++) {
                check_activate((bt_activation_t)act, r % 2 == d % 2, dims[d],
                               rows[r], extreme);
            }
        }
        check_scale(dims[d]);
        check_soft_cap(dims[d], d % 2 == 1);
        check_clamp(dims[d]);
        check_scale_positions(dims[d], dims[d] + 5);
    }
    check_activate(BT_ACT_GELU_ERF, false, 2048, 40, false);
    check_scale(123457);
    check_soft_cap(123457, false);
    check_clamp(123457);
    check_scale_positions(20000, 30000);
    for (size_t t = 0; t < KC_N_TYPES; t++) {
        check_positions(&kc_types[t]);
    }
}
