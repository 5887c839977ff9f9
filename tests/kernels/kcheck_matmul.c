/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "kernels/half.h"
#include "kernels/quant/quant.h"
#include "tests/kernels/kcheck.h"

const kc_type_t kc_types[KC_N_TYPES] = {
    {BT_KTYPE_F32, {255, 255}},   {BT_KTYPE_F16, {0, 255}},
    {BT_KTYPE_BF16, {255, 255}},  {BT_KTYPE_Q4_0, {0, 255}},
    {BT_KTYPE_Q4_1, {0, 2}},      {BT_KTYPE_Q5_0, {0, 255}},
    {BT_KTYPE_Q5_1, {0, 2}},      {BT_KTYPE_Q8_0, {0, 255}},
    {BT_KTYPE_Q2_K, {80, 82}},    {BT_KTYPE_Q3_K, {108, 255}},
    {BT_KTYPE_Q4_K, {0, 2}},      {BT_KTYPE_Q5_K, {0, 2}},
    {BT_KTYPE_Q6_K, {208, 255}},  {BT_KTYPE_IQ1_S, {0, 255}},
    {BT_KTYPE_IQ1_M, {255, 255}}, {BT_KTYPE_IQ2_XXS, {0, 255}},
    {BT_KTYPE_IQ2_XS, {0, 255}},  {BT_KTYPE_IQ2_S, {0, 255}},
    {BT_KTYPE_IQ3_XXS, {0, 255}}, {BT_KTYPE_IQ3_S, {0, 255}},
    {BT_KTYPE_IQ4_NL, {0, 255}},  {BT_KTYPE_IQ4_XS, {0, 255}},
    {BT_KTYPE_TQ1_0, {52, 255}},  {BT_KTYPE_TQ2_0, {64, 255}},
    {BT_KTYPE_MXFP4, {255, 255}}, {BT_KTYPE_NVFP4, {255, 255}},
    {BT_KTYPE_E4M3, {255, 255}},  {BT_KTYPE_E4M3_BF16, {255, 255}},
};

typedef enum numbers {
    ORDINARY,
    EXTREME, /* huge, tiny and infinite ones in the rows */
    TINY,    /* products about 2^-126, where AVX512_BF16 begins to see zeros */
} numbers_t;

typedef struct mm_case {
    const kc_type_t *type;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_rows;
    uint8_t *data;
    float *values; /* (n_out, n_in) */
    float *x;
    float *want;
    float *got;
    char what[96];
} mm_case_t;

/* Becomes a row bf16? */
static bool is_by_bf16(bt_ktype_t type)
{
    return (type == BT_KTYPE_BF16) || (type == BT_KTYPE_E4M3_BF16);
}

/* Of E4M3: one whose products with any code are exact as bf16, or one of any
 * fraction; of any size where products stay finite. */
static float scale_of_codes(bt_ktype_t type)
{
    const float scale = (type == BT_KTYPE_E4M3)
                            ? kc_uniform(0.5f, 1.0f)
                            : 0.0625f * (float)(8 + kc_below(8));

    return ldexpf((kc_below(2) == 0) ? scale : -scale, (int)kc_below(40) - 30);
}

/* Products of two of these are 2^-126 and about what is lost beside it: a sum
 * of 2^-126 and -2^-150 is below 2^-126 with 24 bits of fraction, but rounds up
 * to it as a subnormal number. */
static float tiny(void)
{
    static const float powers[] = {0x1p-63f, 0x1p-75f, 0x1p-76f, 0x1.8p-63f};
    const float value = powers[kc_below(BT_ARRAY_LEN(powers))];

    return (kc_below(2) == 0) ? value : -value;
}

void kc_fill_weights(const kc_type_t *type, uint8_t *data, size_t n_blocks,
                     uint32_t n_bytes)
{
    for (size_t b = 0; b < n_blocks; b++) {
        uint8_t *block = data + b * n_bytes;
        float value = kc_uniform(-1.0f, 1.0f);

        for (uint32_t i = 0; i < n_bytes; i++) {
            block[i] = (uint8_t)kc_random();
        }
        if (type->type == BT_KTYPE_F32) {
            memcpy(block, &value, 4);
        } else if ((type->type == BT_KTYPE_E4M3) ||
                   (type->type == BT_KTYPE_E4M3_BF16)) {
            value = scale_of_codes(type->type);
            memcpy(block, &value, 4);
        } else if (type->type == BT_KTYPE_BF16) {
            block[1] &= 0xbf; /* below 2: no infinity */
        } else if (type->type == BT_KTYPE_IQ1_M) {
            block[55] &= 0xbf; /* the upper bits of a f16: the same */
        } else if (type->type == BT_KTYPE_MXFP4) {
            block[0] = (uint8_t)(90 + kc_below(60)); /* products are finite */
        }
        for (uint32_t i = 0; i < 2; i++) {
            uint16_t half = kc_half();

            if (type->half_at[i] != 255) {
                memcpy(block + type->half_at[i], &half, 2);
            }
        }
    }
}

bt_weight_t *kc_pack(const kc_backend_t *b, const kc_type_t *type,
                     uint32_t n_out, uint32_t n_in, const uint8_t *data,
                     const char *what)
{
    bt_weight_t *w = NULL;

    kc_expect(b->be->ops->weight_pack(b->be, type->type, n_out, n_in, data,
                                      &w) == BT_OK,
              "pack %s", what);
    return w;
}

static void make_case(mm_case_t *c, numbers_t numbers)
{
    static const char *const names[] = {"", ", extreme", ", tiny"};
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    size_t n;

    kc_expect(bt_ktype_block(c->type->type, &n_elems, &n_bytes) == BT_OK,
              "block size of type %d", (int)c->type->type);
    c->n_in = n_elems * (1 + kc_below((n_elems == 1) ? 200 : 512 / n_elems));
    n = (size_t)c->n_out * c->n_in;
    c->data = (uint8_t *)kc_alloc(n / n_elems * n_bytes / 4 + 1);
    c->values = kc_alloc(n);
    c->x = kc_alloc((size_t)c->n_rows * c->n_in);
    c->want = kc_alloc((size_t)c->n_rows * c->n_out);
    c->got = kc_alloc((size_t)c->n_rows * c->n_out);
    kc_fill_weights(c->type, c->data, n / n_elems, n_bytes);
    for (size_t i = 0; (numbers == TINY) && (i < n); i++) {
        const uint16_t bf16 = bt_f32_to_bf16(tiny());

        memcpy(c->data + 2 * i, &bf16, 2);
    }
    kc_fill(c->x, (size_t)c->n_rows * c->n_in, numbers == EXTREME);
    for (size_t i = 0; (numbers == TINY) && (i < (size_t)c->n_rows * c->n_in);
         i++) {
        c->x[i] = tiny();
    }
    kc_expect(bt_dequantize(c->type->type, c->data, n, c->values) == BT_OK,
              "dequantize type %d", (int)c->type->type);
    snprintf(c->what, sizeof(c->what), "matmul %s %u x %u, %u rows%s",
             bt_ktype_name(c->type->type), c->n_out, c->n_in, c->n_rows,
             names[numbers]);
}

static void free_case(mm_case_t *c)
{
    kc_free((float *)(void *)c->data);
    kc_free(c->values);
    kc_free(c->x);
    kc_free(c->want);
    kc_free(c->got);
}

/* What of a row's value counts: all of it, or for BF16 weights its nearest
 * bf16 (ties to even). */
static double counted(const mm_case_t *c, float x)
{
    int exponent;

    if (!is_by_bf16(c->type->type) || (x == 0.0f)) {
        return (double)x;
    }
    frexpf(x, &exponent); /* 8 bits of fraction, the hidden one too */
    return ldexp(nearbyint(ldexp((double)x, 8 - exponent)), exponent - 8);
}

/* Sequential float sums of n products are within n 2^-24 (1 + small) of the
 * exact one, relative to the sum of magnitudes (Higham, section 3.1). */
static void compare_with_double(const mm_case_t *c)
{
    double worst = 0;

    for (uint32_t r = 0; r < c->n_rows; r++) {
        for (uint32_t o = 0; o < c->n_out; o++) {
            double sum = 0;
            double magnitude = 1e-30;
            double error;

            for (uint32_t k = 0; k < c->n_in; k++) {
                double term = (double)c->values[(size_t)o * c->n_in + k] *
                              counted(c, c->x[(size_t)r * c->n_in + k]);

                sum += term;
                magnitude += fabs(term);
            }
            error = fabs(sum - (double)c->want[(size_t)r * c->n_out + o]);
            error /= magnitude * c->n_in * 0x1p-24;
            worst = !(error <= worst) ? error : worst; /* keeps a NaN */
        }
    }
    kc_expect(worst <= 1.01, "%s: error %g of the bound", c->what, worst);
}

/* The row as 8-bit integers, by the text of kernels.h: codes (n_in) and the
 * scale of each group of 32. */
static void quantize_naively(const float *x, uint32_t n_in, int *codes,
                             double *scales)
{
    for (uint32_t g = 0; g < n_in / 16; g++) {
        float max = 0;

        for (uint32_t k = 0; k < 16; k++) {
            max = fmaxf(max, fabsf(x[g * 16 + k]));
        }
        scales[g] = (double)(max / 127.0f);
        for (uint32_t k = 0; k < 16; k++) {
            codes[g * 16 + k] =
                (max == 0.0f) ? 0
                              : (int)nearbyintf(x[g * 16 + k] * (127.0f / max));
        }
    }
}

/* Error of one output, as a part of the bound: each group adds three rounded
 * products to a sum of its steps (Higham, section 3.1). */
static double quantized_error(const mm_case_t *c, uint32_t r, uint32_t o,
                              const int *codes, const double *scales)
{
    const uint32_t n_groups = c->n_in / 32;
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    double sum = 0;
    double magnitude = 1e-30;

    (void)!bt_ktype_block(c->type->type, &n_elems, &n_bytes);
    for (uint32_t g = 0; g < n_groups; g++) {
        const uint8_t *row =
            c->data + (size_t)o * (c->n_in / n_elems) * n_bytes;
        bt_quant_group_t group;

        bt_quant_group_read(c->type->type, row, g, &group);
        for (uint32_t k = 0; k < 32; k++) {
            const double x = scales[g * 2 + k / 16] * codes[g * 32 + k];
            const double scaled = (double)group.scale[k / 16] * group.code[k];

            sum += (scaled + (double)group.min[k / 16]) * x;
            magnitude += fabs(scaled * x) + fabs((double)group.min[k / 16] * x);
        }
    }
    return fabs(sum - (double)c->want[(size_t)r * c->n_out + o]) /
           (magnitude * (3 * n_groups + 4) * 0x1p-24);
}

static void compare_quantized(const mm_case_t *c)
{
    int *codes = bt_calloc(c->n_in, sizeof(*codes));
    double *scales = bt_calloc(c->n_in / 16, sizeof(*scales));
    double worst = 0;

    if ((codes == NULL) || (scales == NULL)) {
        exit(2);
    }
    for (uint32_t r = 0; r < c->n_rows; r++) {
        quantize_naively(c->x + (size_t)r * c->n_in, c->n_in, codes, scales);
        for (uint32_t o = 0; o < c->n_out; o++) {
            const double error = quantized_error(c, r, o, codes, scales);

            worst = !(error <= worst) ? error : worst; /* keeps a NaN */
        }
    }
    kc_expect(worst <= 1.0, "%s: error %g of the bound", c->what, worst);
    bt_free(codes);
    bt_free(scales);
}

/* @a taken: the tokens of two rows are ids of an earlier step. */
static void check_embed(const mm_case_t *c, const kc_backend_t *b,
                        const bt_weight_t *w, bool taken)
{
    static const uint32_t from_ids[3] = {2, UINT32_MAX, 1};
    const uint32_t tokens[3] = {c->n_out - 1, 0, c->n_out / 2};
    const uint32_t ids[3] = {c->n_out, c->n_out / 2, c->n_out - 1};
    const uint32_t given[3] = {c->n_out, 0, c->n_out}; /* beyond the last */
    const bt_batch_t batch = {.tokens = taken ? given : tokens,
                              .from_ids = taken ? from_ids : NULL,
                              .n_rows = 3};
    float *got = kc_alloc((size_t)3 * c->n_in);

    if (taken) {
        b->be->ops->take_tokens(b->be, &batch, ids);
    }
    b->be->ops->embed(b->be, w, &batch, got);
    for (uint32_t i = 0; i < 3; i++) {
        size_t at = kc_first_difference(c->values + (size_t)tokens[i] * c->n_in,
                                        got + (size_t)i * c->n_in, c->n_in);

        kc_expect(at == c->n_in, "embed %s, %s: element %zu",
                  bt_ktype_name(c->type->type), b->name, at);
    }
    kc_check_canaries(got, "embed");
    kc_free(got);
}

/* Rows one by one must equal the same rows in company. */
static void check_alone(const mm_case_t *c, const kc_backend_t *b,
                        const bt_weight_t *w)
{
    float *alone = kc_alloc(c->n_out);

    for (uint32_t r = 0; r < c->n_rows; r++) {
        kc_poison(alone);
        b->be->ops->matmul(b->be, w, c->x + (size_t)r * c->n_in, 1, alone);
        kc_expect_equal(c->want + (size_t)r * c->n_out, alone, c->n_out,
                        c->what, b->name);
    }
    kc_free(alone);
}

/* Some outputs of each row: none, all, or some, as matmul() has them. */
static void check_ids(const mm_case_t *c, const kc_backend_t *b,
                      const bt_weight_t *w)
{
    uint32_t *first = bt_calloc(c->n_rows + 1u, sizeof(*first));
    uint32_t *ids = bt_calloc((size_t)c->n_rows * c->n_out + 1, sizeof(*ids));
    float *want = kc_alloc((size_t)c->n_rows * c->n_out);
    float *got;
    uint32_t n = 0;

    if ((first == NULL) || (ids == NULL)) {
        exit(2);
    }
    for (uint32_t r = 0; r < c->n_rows; r++) {
        const uint32_t one_in = (uint32_t[]){1, 2, 9, 1000}[kc_below(4)];

        first[r] = n;
        for (uint32_t o = 0; o < c->n_out; o++) {
            if (kc_below(one_in) == 0) {
                want[n] = c->want[(size_t)r * c->n_out + o];
                ids[n++] = o;
            }
        }
    }
    first[c->n_rows] = n;
    got = kc_alloc(n);
    b->be->ops->matmul_ids(b->be, w, c->x, c->n_rows, first, ids, got);
    kc_expect_equal(want, got, n, c->what, b->name);
    kc_free(got);
    kc_free(want);
    bt_free(ids);
    bt_free(first);
}

static void run_case(const kc_type_t *type, uint32_t n_out, uint32_t n_rows,
                     numbers_t numbers)
{
    mm_case_t c = {.type = type, .n_out = n_out, .n_rows = n_rows};

    if (!kc_takes()) {
        return;
    }
    make_case(&c, numbers);
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        const kc_backend_t *b = &kc_backends[i];
        float *out = (i == 0) ? c.want : c.got;
        bt_weight_t *w;

        if (kc_skips(b, b->be->ops->matmul != NULL, false, "matmul") ||
            kc_type_is_tensor(b, type->type)) {
            continue;
        }
        w = kc_pack(b, type, c.n_out, c.n_in, c.data, c.what);
        if (w == NULL) {
            continue;
        }
        kc_poison(out);
        b->be->ops->matmul(b->be, w, c.x, c.n_rows, out);
        kc_expect_equal(c.want, out, (size_t)c.n_rows * c.n_out, c.what,
                        b->name);
        check_alone(&c, b, w);
        if (!kc_skips(b, b->be->ops->matmul_ids != NULL, false, "matmul_ids")) {
            check_ids(&c, b, w);
        }
        check_embed(&c, b, w, false);
        if (b->be->ops->take_tokens != NULL) {
            check_embed(&c, b, w, true);
        }
        b->be->ops->weight_free(b->be, w);
    }
    if ((numbers == ORDINARY) && bt_ktype_is_dense(type->type)) {
        compare_with_double(&c);
    } else if (numbers == ORDINARY) {
        compare_quantized(&c);
    }
    free_case(&c);
}

void kc_test_matmul(void)
{
    static const kc_type_t bf16 = {BT_KTYPE_BF16, {255, 255}};
    static const uint32_t outs[] = {1, 7, 8, 15, 16, 17, 31, 32, 33, 40, 96};
    /* Every width of a register tile, and more than two tiles. */
    static const uint32_t rows[] = {0, 1,  2,  3,  4,  5,  6,  7,  8,
                                    9, 10, 11, 12, 13, 17, 23, 25, 31};

    for (size_t t = 0; t < KC_N_TYPES; t++) {
        for (size_t r = 0; r < BT_ARRAY_LEN(rows); r++) {
            uint32_t n_out = outs[kc_below(BT_ARRAY_LEN(outs))];

            run_case(&kc_types[t], n_out, rows[r],
                     (r % 3 == 2) ? EXTREME : ORDINARY);
        }
        for (size_t o = 0; o < BT_ARRAY_LEN(outs); o++) {
            run_case(&kc_types[t], outs[o], rows[kc_below(BT_ARRAY_LEN(rows))],
                     (o % 3 == 2) ? EXTREME : ORDINARY);
        }
    }
    for (uint32_t i = 0; i < 10; i++) {
        run_case(&bf16, 96, 31, TINY);
    }
}
