/* SPDX-License-Identifier: Apache-2.0 */
/* Products of BT_NUMERICS_TENSOR: within a tolerance of a computation in
 * double, and of the reference; each row's bits the same in any company.
 *
 * The tolerance (docs/adr/0019-tensor-profile.md): products of 16-bit numbers
 * are exact in 24 bits. A tensor core adds some j >= 4 of them and the sum so
 * far at a time, aligned to the largest and cut off to 24 bits, and cuts the
 * result: at most j + 2 times 2^-23 of the sum of magnitudes S. So k of them
 * are within k (1 + 2 / j) 2^-23 S, at most 3 k 2^-24 S. Of E4M3 blocks of 64
 * are sums of their own, each times its scale: 3 * 64 2^-24 S, and 2^-24 S for
 * each block that is added and for each value that the dequantizer rounds. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/half.h"
#include "tests/kernels/kcheck.h"

#define EPS 1e-5f

typedef struct tensor_case {
    const kc_type_t *type;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_rows;
    uint8_t *data;
    float *values;  /* (n_out, n_in) */
    double *halves; /* (n_rows, n_in): what rows become */
    float *x;       /* (n_rows, n_in) */
    float *want;    /* the reference's */
    float *got;
    char what[96];
} tensor_case_t;

static bool is_coded(const tensor_case_t *c)
{
    return (c->type->type == BT_KTYPE_E4M3) ||
           (c->type->type == BT_KTYPE_E4M3_BF16);
}

/* To nearest, ties to even, with so many bits of fraction, the hidden one too,
 * and no smaller unit than 2^least; above @a most it is infinite. */
static double rounded(double x, int bits, int least, double most)
{
    double unit;
    double y;

    if ((x == 0) || !isfinite(x)) {
        return x;
    }
    unit =
        ldexp(1, (ilogb(x) + 1 - bits > least) ? ilogb(x) + 1 - bits : least);
    y = nearbyint(x / unit) * unit;
    return (fabs(y) > most) ? copysign(INFINITY, x) : y;
}

/* A row as it is multiplied. */
static void halve(const tensor_case_t *c, const float *x, double *halves)
{
    double most = 0;
    int exponent;

    for (uint32_t k = 0; k < c->n_in; k++) {
        halves[k] = rounded((double)x[k], 8, -133, (double)FLT_MAX);
        most = isfinite(x[k]) ? fmax(most, fabs((double)x[k])) : most;
    }
    if (c->type->type != BT_KTYPE_F16) {
        return;
    }
    exponent = (most == 0) ? 0 : 14 - ilogb(most);
    exponent = (exponent > 126) ? 126 : exponent;
    for (uint32_t k = 0; k < c->n_in; k++) {
        halves[k] = ldexp(
            rounded(ldexp((double)x[k], exponent), 11, -24, 65504), -exponent);
    }
}

static void make_case(tensor_case_t *c, uint32_t n_in, bool extreme)
{
    uint32_t n_elems = 1;
    uint32_t n_bytes = 2;
    const size_t n = (size_t)c->n_out * n_in;
    const size_t n_x = (size_t)c->n_rows * n_in;

    (void)!bt_ktype_block(c->type->type, &n_elems, &n_bytes);
    c->n_in = n_in;
    c->data = (uint8_t *)kc_alloc(n / n_elems * n_bytes / 4 + 1);
    c->values = kc_alloc(n);
    c->halves = (double *)(void *)kc_alloc(2 * n_x);
    c->x = kc_alloc(n_x);
    c->want = kc_alloc((size_t)c->n_rows * c->n_out);
    c->got = kc_alloc((size_t)c->n_rows * c->n_out);
    kc_fill_weights(c->type, c->data, n / n_elems, n_bytes);
    if (extreme && is_coded(c)) { /* what a NaN in the file becomes */
        const float nan = NAN;

        memcpy(c->data + (size_t)kc_below((uint32_t)(n / n_elems)) * n_bytes,
               &nan, sizeof(nan));
    }
    kc_fill(c->x, n_x, extreme);
    for (uint32_t r = kc_below(3); extreme && (r < c->n_rows); r += 3) {
        for (uint32_t k = 0; k < n_in; k++) { /* rows that stay finite */
            float *x = &c->x[(size_t)r * n_in + k];

            *x = (fabsf(*x) < 1e31f) ? *x : -1.5f;
        }
    }
    if (extreme && (n_x > 0)) {
        c->x[kc_below((uint32_t)n_x)] = NAN;
    }
    for (uint32_t r = 0; r < c->n_rows; r++) {
        halve(c, c->x + (size_t)r * n_in, c->halves + (size_t)r * n_in);
    }
    kc_expect(bt_dequantize(c->type->type, c->data, n, c->values) == BT_OK,
              "dequantize type %d", (int)c->type->type);
    snprintf(c->what, sizeof(c->what), "tensor %s %u x %u, %u rows%s",
             bt_ktype_name(c->type->type), c->n_out, n_in, c->n_rows,
             extreme ? ", extreme" : "");
}

static void free_case(tensor_case_t *c)
{
    kc_free((float *)(void *)c->data);
    kc_free(c->values);
    kc_free((float *)(void *)c->halves);
    kc_free(c->x);
    kc_free(c->want);
    kc_free(c->got);
}

/* What products of weight k of an output are times after they were added. */
static double scale_of(const tensor_case_t *c, uint32_t o, uint32_t k)
{
    float scale = 1;

    if (is_coded(c)) {
        memcpy(&scale, c->data + ((size_t)o * c->n_in + k) / 64 * 68, 4);
    }
    return (double)scale;
}

/* What numbers below 2^-126 may be, as they are or zeros. */
static double lost(double w, double x)
{
    return ((fabs(w) < 0x1p-126) || (fabs(x) < 0x1p-126)) ? fabs(w * x)
                                                          : 0x1p-126;
}

/* In units of 2^-24 of the sum of magnitudes. */
static double units(const tensor_case_t *c)
{
    return is_coded(c) ? 3 * 64 + (double)c->n_in / 64 + 1
                       : 3 * (double)c->n_in;
}

/* One output. @return as a part of the tolerance; NaN: not a number, or not
 * infinite, where it must be */
static double error_of(const tensor_case_t *c, uint32_t r, uint32_t o)
{
    const float got = c->got[(size_t)r * c->n_out + o];
    const float want = c->want[(size_t)r * c->n_out + o];
    double sum = 0;
    double size = 0;
    double own = 0; /* of the reference, which has other rows for F16 */
    double slack = 0;
    double most = 0; /* of a sum before it is scaled, as far as it is finite */
    double bound;

    for (uint32_t k = 0; k < c->n_in; k++) {
        const double w = (double)c->values[(size_t)o * c->n_in + k];
        const double x = c->halves[(size_t)r * c->n_in + k];
        const double scale = scale_of(c, o, k);

        sum += w * x;
        size += fabs(w * x);
        most += isfinite(w / scale * x) ? fabs(w / scale * x) : 0;
        slack += lost(w / scale, x) * fabs(scale);
        if ((c->type->type == BT_KTYPE_F16) ||
            (c->type->type == BT_KTYPE_E4M3)) {
            own += fabs(w * (x - (double)c->x[(size_t)r * c->n_in + k]));
        }
    }
    if (isnan(sum)) {
        return isnan(got) ? 0 : NAN;
    }
    if (most > (double)FLT_MAX / 2) {
        return 0; /* sums so far may be infinite */
    }
    if (isinf(sum)) {
        return ((double)got == sum) ? 0 : NAN;
    }
    if (size > (double)FLT_MAX / 2) {
        return 0;
    }
    bound = units(c) * 0x1p-24 * size + slack;
    own = isfinite(want) ? fabs((double)got - (double)want) /
                               (bound + c->n_in * 0x1p-24 * size + own)
                         : 0;
    return fmax(fabs((double)got - sum) / bound, own);
}

static void check_tolerance(const tensor_case_t *c)
{
    double worst = 0;

    for (uint32_t r = 0; r < c->n_rows; r++) {
        for (uint32_t o = 0; o < c->n_out; o++) {
            const double error = error_of(c, r, o);

            worst = !(error <= worst) ? error : worst; /* keeps a NaN */
        }
    }
    kc_expect(worst <= 1, "%s: error %g of the tolerance", c->what, worst);
}

/* Rows of the case, in any order and some of them twice: each has the bits that
 * it has among all. */
static void check_company(const tensor_case_t *c, const kc_backend_t *b,
                          const bt_weight_t *w, uint32_t n)
{
    float *x = kc_alloc((size_t)n * c->n_in);
    float *want = kc_alloc((size_t)n * c->n_out);
    float *got = kc_alloc((size_t)n * c->n_out);

    for (uint32_t i = 0; i < n; i++) {
        const size_t r = kc_below(c->n_rows);

        memcpy(x + (size_t)i * c->n_in, c->x + r * c->n_in,
               c->n_in * sizeof(float));
        memcpy(want + (size_t)i * c->n_out, c->got + r * c->n_out,
               c->n_out * sizeof(float));
    }
    b->be->ops->matmul(b->be, w, x, n, got);
    kc_expect_equal(want, got, (size_t)n * c->n_out, c->what, b->name);
    kc_free(x);
    kc_free(want);
    kc_free(got);
}

/* @param n_in  rounded up to whole blocks of the type */
static void run_case(const kc_backend_t *b, const kc_type_t *type,
                     uint32_t n_out, uint32_t n_in, uint32_t n_rows,
                     const uint32_t companies[2], bool extreme)
{
    const kc_backend_t *reference = &kc_backends[0];
    tensor_case_t c = {.type = type, .n_out = n_out, .n_rows = n_rows};
    bt_weight_t *theirs, *w;

    if (is_coded(&c)) {
        n_in = (n_in + 63) / 64 * 64;
    }
    make_case(&c, n_in, extreme);
    theirs = kc_pack(reference, type, n_out, n_in, c.data, c.what);
    w = kc_pack(b, type, n_out, n_in, c.data, c.what);
    if ((theirs != NULL) && (w != NULL)) {
        for (uint32_t r = 0; r < n_rows; r += KC_MAX_ROWS) {
            const uint32_t n =
                (n_rows - r < KC_MAX_ROWS) ? n_rows - r : KC_MAX_ROWS;

            reference->be->ops->matmul(reference->be, theirs,
                                       c.x + (size_t)r * n_in, n,
                                       c.want + (size_t)r * n_out);
        }
        b->be->ops->matmul(b->be, w, c.x, n_rows, c.got);
        kc_check_canaries(c.got, c.what);
        check_tolerance(&c);
        for (uint32_t i = 0; (i < 2) && (n_rows > 0); i++) {
            check_company(&c, b, w, companies[i]);
        }
    }
    reference->be->ops->weight_free(reference->be, theirs);
    b->be->ops->weight_free(b->be, w);
    free_case(&c);
}

/* ---- steps of a layer: the bits of the operations that they name ---- */

typedef struct fused_case {
    float *x, *norm, *made, *out, *want, *got;
    uint32_t n_in, n_out, n_rows;
} fused_case_t;

static void check_norm(const fused_case_t *c, const kc_backend_t *b,
                       const bt_weight_t *w)
{
    const bt_kernels_ops_t *ops = b->be->ops;

    ops->rmsnorm(b->be, c->x, c->norm, EPS, c->n_rows, c->n_in, c->made);
    ops->matmul(b->be, w, c->made, c->n_rows, c->want);
    kc_poison(c->got);
    ops->norm_matmul(b->be, w, c->x, c->norm, EPS, c->n_rows, c->got);
    kc_expect_equal(c->want, c->got, (size_t)c->n_rows * c->n_out,
                    "tensor norm_matmul", b->name);
}

static void check_sums(const fused_case_t *c, const kc_backend_t *b,
                       const bt_weight_t *w, bool gated)
{
    const bt_kernels_ops_t *ops = b->be->ops;
    const size_t n = (size_t)c->n_rows * c->n_out;

    if (gated) {
        ops->activate(b->be, BT_ACT_SILU, true, c->x, c->n_rows, c->n_in,
                      c->made);
    }
    ops->matmul(b->be, w, gated ? c->made : c->x, c->n_rows, c->got);
    memcpy(c->want, c->out, n * sizeof(float));
    ops->add(b->be, c->want, c->got, n);
    memcpy(c->got, c->out, n * sizeof(float));
    if (gated) {
        ops->silu_matmul_add(b->be, w, c->x, c->n_rows, c->got);
    } else {
        ops->matmul_add(b->be, w, c->x, c->n_rows, c->got);
    }
    kc_expect_equal(c->want, c->got, n, "tensor matmul_add", b->name);
}

static void run_fused(const kc_backend_t *b, const kc_type_t *type,
                      uint32_t n_out, uint32_t n_in, uint32_t n_rows)
{
    const size_t n = (size_t)n_rows * n_out;
    fused_case_t c = {.n_in = n_in, .n_out = n_out, .n_rows = n_rows};
    uint32_t n_elems = 1;
    uint32_t n_bytes = 2;
    uint8_t *data = (uint8_t *)kc_alloc((size_t)n_out * n_in / 2 + 1);
    bt_weight_t *w;

    (void)!bt_ktype_block(type->type, &n_elems, &n_bytes);
    kc_fill_weights(type, data, (size_t)n_out * n_in / n_elems, n_bytes);
    c.x = kc_alloc((size_t)2 * n_rows * n_in);
    c.norm = kc_alloc(n_in);
    c.made = kc_alloc((size_t)n_rows * n_in);
    c.out = kc_alloc(n);
    c.want = kc_alloc(n);
    c.got = kc_alloc(n);
    kc_fill(c.x, (size_t)2 * n_rows * n_in, false);
    kc_fill(c.norm, n_in, false);
    kc_fill(c.out, n, true);
    w = kc_pack(b, type, n_out, n_in, data, "tensor fused");
    if (w != NULL) {
        check_norm(&c, b, w);
        check_sums(&c, b, w, false);
        check_sums(&c, b, w, true);
    }
    b->be->ops->weight_free(b->be, w);
    kc_free((float *)(void *)data);
    kc_free(c.x);
    kc_free(c.norm);
    kc_free(c.made);
    kc_free(c.out);
    kc_free(c.want);
    kc_free(c.got);
}

void kc_test_tensor(void)
{
    static const kc_type_t types[] = {{BT_KTYPE_F16, {0, 255}},
                                      {BT_KTYPE_BF16, {255, 255}},
                                      {BT_KTYPE_E4M3, {255, 255}},
                                      {BT_KTYPE_E4M3_BF16, {255, 255}}};
    static const struct {
        uint32_t n_out, n_in, n_rows;
        uint32_t companies[2]; /* of all forms: up to 8, 64, more */
    } shapes[] = {
        {1, 1, 1, {2, 9}},       {33, 15, 3, {1, 65}},
        {31, 64, 8, {9, 1}},     {32, 65, 9, {8, 66}},
        {96, 63, 12, {1, 7}},    {7, 130, 5, {10, 64}},
        {130, 33, 64, {5, 100}}, {40, 200, 20, {3, 129}},
        {64, 450, 2, {1, 17}},   {129, 32, 130, {1, 8}},
        {17, 31, 66, {64, 2}},   {132, 100, 3, {70, 16}},
        {16, 16, 0, {1, 1}},
    };

    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];

        for (size_t t = 0; kc_is_tensor(b) && (t < BT_ARRAY_LEN(types)); t++) {
            const bool coded = t >= 2;

            for (size_t s = 0; s < BT_ARRAY_LEN(shapes); s++) {
                run_case(b, &types[t], shapes[s].n_out, shapes[s].n_in,
                         shapes[s].n_rows, shapes[s].companies, s % 2 == 1);
                run_case(b, &types[t], 1 + kc_below(40), 1 + kc_below(150),
                         1 + kc_below(12), shapes[s].companies, false);
            }
            run_fused(b, &types[t], 33, coded ? 128 : 70, 3);
            run_fused(b, &types[t], 64, 64, 70);
            run_fused(b, &types[t], 5, coded ? 192 : 31, 10);
        }
    }
}
