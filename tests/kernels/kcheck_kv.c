/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of the KV cache: every tier against the plain one, bit by bit. */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/cpu/cpu.h"
#include "tests/kernels/kcheck.h"

#define MAX_N    2100u
#define MAX_ROWS 5u

/* The number of a code below 0x7f, of which there are 16 exponents. */
static double e4m3_value(uint32_t code)
{
    return (code < 8) ? ldexp(code, -9)
                      : ldexp(8 + code % 8, (int)(code / 8) - 10);
}

typedef enum kind {
    KIND_ORDINARY,
    KIND_EXTREME, /* huge, tiny, infinite among the ordinary */
    KIND_FINITE,  /* huge and tiny, nothing infinite */
    KIND_BITS,    /* any 32 bits: NaNs of both kinds, subnormals */
    KIND_TINY,    /* about the smallest scale */
    KIND_ZERO,
    KIND_TIES,     /* half way between codes, and one float beside */
    KIND_TIES_FP8, /* the same of FP8 */
    N_KINDS
} kind_t;

static void fill(float *x, size_t n, kind_t kind)
{
    const float step = kc_uniform(0.5f, 4.0f);

    kc_fill(x, n, kind == KIND_EXTREME);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)kc_random();

        switch (kind) {
        case KIND_BITS:
            memcpy(&x[i], &bits, sizeof(bits));
            break;
        case KIND_FINITE:
            x[i] = ldexpf(x[i], (int)kc_below(276) - 149);
            break;
        case KIND_TINY:
            x[i] *= 0x1p-120f;
            break;
        case KIND_ZERO:
            x[i] = (bits & 1u) ? 0.0f : -0.0f;
            break;
        case KIND_TIES:
            /* every vector is to have the largest code */
            x[i] = (i % 2 == 0) ? 127.0f : (float)kc_below(126) + 0.5f;
            x[i] *= (bits & 1u) ? step : -step;
            x[i] = (bits & 6u) ? x[i] : nextafterf(x[i], 0.0f);
            break;
        case KIND_TIES_FP8: {
            const uint32_t code = kc_below(0x7e);

            x[i] = (i % 2 == 0)
                       ? 448.0f
                       : (float)((e4m3_value(code) + e4m3_value(code + 1)) / 2);
            x[i] *= (bits & 1u) ? 0.25f : -0.25f;
            x[i] = (bits & 2u)   ? x[i]
                   : (bits & 4u) ? nextafterf(x[i], 0.0f)
                                 : nextafterf(x[i], 2 * x[i]);
            break;
        }
        default:
            break;
        }
    }
}

/* The bf16 nearest to x, ties to even; subnormal ones too. */
static uint16_t bf16_of(double x)
{
    const uint16_t sign = (signbit(x) != 0) ? 0x8000u : 0;
    int exponent;
    double units;

    if (isnan(x)) {
        return 0x7fc0u;
    }
    if (isinf(x)) {
        return sign | 0x7f80u;
    }
    exponent = ((x == 0) || (fabs(x) < 0x1p-126)) ? -126 : ilogb(x);
    units = nearbyint(ldexp(fabs(x), 7 - exponent)); /* 128 .. 256 */
    /* A carry becomes the next exponent, or infinity, by itself. */
    return (uint16_t)(sign + (uint16_t)units +
                      (uint16_t)((exponent + 126) * 128));
}

static bool is_nan(uint16_t bf16)
{
    return (bf16 & 0x7fffu) > 0x7f80u;
}

static bool same_bf16(uint16_t a, uint16_t b)
{
    return (a == b) || (is_nan(a) && is_nan(b));
}

/* What element i of a cache is, by the definition of its type. */
static uint16_t elem_as_bf16(bt_kv_type_t type, const void *elems, size_t i)
{
    uint16_t word;
    int exponent;
    double v;

    if (type == BT_KV_INT8) {
        return bf16_of(((const int8_t *)elems)[i]);
    }
    if (type == BT_KV_FP8) {
        const uint8_t code = ((const uint8_t *)elems)[i];

        v = ((code & 0x7fu) == 0x7fu) ? (double)NAN : e4m3_value(code & 0x7fu);
        return bf16_of(((code & 0x80u) != 0) ? -v : v);
    }
    word = ((const uint16_t *)elems)[i];
    if (type == BT_KV_BF16) {
        return word;
    }
    exponent = (word >> 10) & 31;
    v = (exponent == 0) ? ldexp(word & 1023, -24)
                        : ldexp(1024 + (word & 1023), exponent - 25);
    if (exponent == 31) {
        v = ((word & 1023) == 0) ? (double)INFINITY : (double)NAN;
    }
    return bf16_of(((word & 0x8000u) != 0) ? -v : v);
}

#define MAX_STRIDE   40u
#define MAX_LOAD_DIM 256u

/* load_keys and load_values of any bits, everything else left alone. */
static void check_loads(const bt_cpu_isa_t *isa, bt_kv_type_t type,
                        uint32_t dim)
{
    static uint16_t cache[MAX_STRIDE * MAX_LOAD_DIM];
    const uint32_t first = kc_below(BT_ATTN_TILE / 2) * 2;
    const uint32_t n = 1 + kc_below(BT_ATTN_TILE - first);
    const size_t stride = n + kc_below(MAX_STRIDE - n + 1);
    const size_t words = (size_t)BT_ATTN_TILE * dim;
    float *buffers[2] = {kc_alloc(words / 2), kc_alloc(words / 2)};
    float *before = kc_alloc(words / 2);
    uint16_t *keys = (uint16_t *)(void *)buffers[0];
    uint16_t *values = (uint16_t *)(void *)buffers[1];
    const uint16_t *untouched = (const uint16_t *)(const void *)before;

    for (size_t i = 0; i < BT_ARRAY_LEN(cache); i++) {
        cache[i] = (uint16_t)kc_random();
    }
    isa->load_keys(type, cache, stride, first, n, dim, keys);
    isa->load_values(type, cache, first, n, dim, values);
    for (uint32_t d = 0; d < dim; d++) {
        for (uint32_t j = 0; j < BT_ATTN_TILE; j++) {
            const size_t k = ((size_t)(d / 2) * BT_ATTN_TILE + j) * 2 + d % 2;
            const size_t v = ((size_t)(j / 2) * dim + d) * 2 + j % 2;
            const size_t row = (size_t)(j - first) / 2; /* of values */
            uint16_t key = untouched[k];
            uint16_t value = untouched[v];

            if ((j >= first) && (j < first + n)) {
                key = elem_as_bf16(type, cache,
                                   (d / 2 * stride + j - first) * 2 + d % 2);
            }
            /* The one beside an odd last position comes along. */
            if ((j >= first) && (j < first + n + n % 2)) {
                value = elem_as_bf16(type, cache, (row * dim + d) * 2 + j % 2);
            }
            kc_expect(same_bf16(keys[k], key) && same_bf16(values[v], value),
                      "load, %s, type %d: %u dimensions, positions %u + %u: "
                      "%04x %04x, not %04x %04x",
                      isa->name, (int)type, dim, first, n, keys[k], values[v],
                      key, value);
        }
    }
    kc_check_canaries(buffers[0], "load_keys");
    kc_check_canaries(buffers[1], "load_values");
    kc_free(buffers[0]);
    kc_free(buffers[1]);
    kc_free(before);
}

/* Same 16-bit words from every tier, between canaries. */
static void check_words(const bt_cpu_isa_t *isa, const float *x, uint32_t n,
                        uint32_t skew)
{
    const bt_cpu_isa_t *plain = bt_cpu_isa(BT_CPU_PLAIN);
    float *want = kc_alloc(n / 2 + 1);
    float *got = kc_alloc(n / 2 + 1);

    x += skew;
    n -= skew;
    plain->to_bf16(x, n, (void *)want);
    isa->to_bf16(x, n, (void *)got);
    kc_expect(memcmp(want, got, (size_t)n / 2 * 4 + 4) == 0,
              "to_bf16, %s: %u values differ", isa->name, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint16_t word = ((const uint16_t *)(const void *)got)[i];

        kc_expect(same_bf16(word, bf16_of((double)x[i])),
                  "to_bf16, %s: %a becomes %04x", isa->name, (double)x[i],
                  word);
    }
    kc_poison(got);
    kc_poison(want);
    plain->to_f16(x, n, (void *)want);
    isa->to_f16(x, n, (void *)got);
    kc_expect(memcmp(want, got, (size_t)n / 2 * 4 + 4) == 0,
              "to_f16, %s: %u values differ", isa->name, n);
    kc_check_canaries(got, "to words");
    kc_free(want);
    kc_free(got);
}

/* A vector's codes and scale by the definition, in double. */
static void check_codes(const float *x, uint32_t n, const int8_t *codes,
                        float scale, const char *name)
{
    double amax = 0;
    bool finite = true;

    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmax(amax, fabs((double)x[i]));
    }
    if (!finite) {
        kc_expect(isnan(scale), "to_i8, %s: scale %a of what is not finite",
                  name, (double)scale);
        return;
    }
    kc_expect((scale > 0) ? (fabs(scale - amax / 127) <= amax / 127 * 0x1p-24)
                          : (amax / 127 < 0x1p-126),
              "to_i8, %s: scale %a of %a", name, (double)scale, amax);
    for (uint32_t i = 0; i < n; i++) {
        /* A quotient's rounding to float may carry it over a middle. */
        kc_expect((codes[i] >= -127) &&
                      (fabs((double)x[i] - codes[i] * (double)scale) <=
                       ((scale > 0) ? (double)scale * 0.50001 : amax)),
                  "to_i8, %s: %a is %d of %a", name, (double)x[i], codes[i],
                  (double)scale);
    }
}

static void check_i8(const bt_cpu_isa_t *isa, const float *x, uint32_t n_rows,
                     uint32_t dim)
{
    const bt_cpu_isa_t *plain = bt_cpu_isa(BT_CPU_PLAIN);
    const size_t n = (size_t)n_rows * dim;
    float *want = kc_alloc(n / 4 + 1);
    float *got = kc_alloc(n / 4 + 1);
    float want_scales[MAX_ROWS];
    float got_scales[MAX_ROWS];

    for (uint32_t r = 0; r < n_rows; r++) {
        int8_t *codes = (int8_t *)(void *)want + (size_t)r * dim;

        want_scales[r] = plain->to_i8(x + (size_t)r * dim, dim, codes);
        got_scales[r] = isa->to_i8(x + (size_t)r * dim, dim,
                                   (int8_t *)(void *)got + (size_t)r * dim);
        check_codes(x + (size_t)r * dim, dim, codes, want_scales[r], isa->name);
    }
    kc_expect(
        (memcmp(want, got, n / 4 * 4 + 4) == 0) &&
            (memcmp(want_scales, got_scales, n_rows * sizeof(float)) == 0),
        "to_i8, %s: %u x %u differ", isa->name, n_rows, dim);
    kc_check_canaries(got, "to_i8");
    kc_free(want);
    kc_free(got);
}

/* The code nearest to x, of all; of two the even one. */
static uint8_t nearest_e4m3(float x)
{
    const double size = fabs((double)x);
    uint32_t best = 0;

    for (uint32_t code = 1; code < 0x7f; code++) {
        const double error = fabs(e4m3_value(code) - size);
        const double least = fabs(e4m3_value(best) - size);

        if ((error < least) || ((error == least) && (code % 2 == 0))) {
            best = code;
        }
    }
    return (uint8_t)(best | ((signbit(x) != 0) ? 0x80u : 0));
}

/* The scale in double, the codes by their definition from it. */
static void check_e4m3(const bt_cpu_isa_t *isa, const float *x, uint32_t n)
{
    const bt_cpu_isa_t *plain = bt_cpu_isa(BT_CPU_PLAIN);
    float *buffers[2] = {kc_alloc(n / 4 + 1), kc_alloc(n / 4 + 1)};
    uint8_t *codes = (uint8_t *)(void *)buffers[0];
    const float scale = isa->to_e4m3(x, n, codes);
    const float same = plain->to_e4m3(x, n, (uint8_t *)(void *)buffers[1]);
    double amax = 0;
    bool finite = true;

    for (uint32_t i = 0; i < n; i++) {
        finite = finite && isfinite(x[i]);
        amax = fmax(amax, fabs((double)x[i]));
    }
    if (!finite) {
        kc_expect(isnan(scale), "to_e4m3, %s: scale %a of what is not finite",
                  isa->name, (double)scale);
    } else {
        kc_expect(
            (scale > 0) ? (fabs(scale - amax / 448) <= amax / 448 * 0x1p-24)
                        : (amax / 448 < 0x1p-126),
            "to_e4m3, %s: scale %a of %a", isa->name, (double)scale, amax);
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t want = (scale > 0) ? nearest_e4m3(x[i] / scale) : 0;

        kc_expect(codes[i] == want, "to_e4m3, %s: %a is %02x of %a, not %02x",
                  isa->name, (double)x[i], codes[i], (double)scale, want);
    }
    kc_expect((memcmp(&scale, &same, sizeof(scale)) == 0) &&
                  (memcmp(buffers[0], buffers[1], n / 4 * 4 + 4) == 0),
              "to_e4m3, %s: %u differ", isa->name, n);
    kc_check_canaries(buffers[0], "to_e4m3");
    kc_free(buffers[0]);
    kc_free(buffers[1]);
}

void kc_test_kv(void)
{
    static const uint32_t dims[] = {1,  2,  7,  8,  9,  15,  16,  17,  31,
                                    32, 33, 48, 64, 80, 100, 128, 255, 256};
    float *x = kc_alloc(MAX_N);

    for (int tier = 0; tier <= (int)bt_cpu_tier_detect(); tier++) {
        const bt_cpu_isa_t *isa = bt_cpu_isa((bt_cpu_tier_t)tier);

        for (int kind = 0; kind < N_KINDS; kind++) {
            for (size_t d = 0; d < BT_ARRAY_LEN(dims); d++) {
                uint32_t n_rows = 1 + kc_below(MAX_ROWS);

                fill(x, MAX_N, (kind_t)kind);
                check_words(isa, x, dims[d] * n_rows, kc_below(2));
                check_i8(isa, x, n_rows, dims[d]);
                check_e4m3(isa, x, dims[d]);
            }
        }
        for (uint32_t round = 0; round < 80; round++) {
            const uint32_t dim = dims[kc_below(BT_ARRAY_LEN(dims))];

            check_loads(isa, (bt_kv_type_t)(round % 4), dim + dim % 2);
        }
    }
    kc_free(x);
}
