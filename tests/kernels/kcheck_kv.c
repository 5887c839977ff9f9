/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of the KV cache: every tier against the plain one, bit by bit. */
#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "kernels/cpu/cpu.h"
#include "tests/kernels/kcheck.h"

#define MAX_N    2100u
#define MAX_ROWS 5u

typedef enum kind {
    KIND_ORDINARY,
    KIND_EXTREME, /* huge, tiny, infinite among the ordinary */
    KIND_FINITE,  /* huge and tiny, nothing infinite */
    KIND_BITS,    /* any 32 bits: NaNs of both kinds, subnormals */
    KIND_TINY,    /* about the smallest scale */
    KIND_ZERO,
    KIND_TIES, /* half way between codes, and one float beside */
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
        default:
            break;
        }
    }
}

/* Same 16-bit words from every tier, and back, all between canaries. */
static void check_words(const bt_cpu_isa_t *isa, const float *x, uint32_t n,
                        uint32_t skew)
{
    const bt_cpu_isa_t *plain = bt_cpu_isa(BT_CPU_PLAIN);
    float *want = kc_alloc(n / 2 + 1);
    float *got = kc_alloc(n / 2 + 1);
    float *want_back = kc_alloc(n);
    float *got_back = kc_alloc(n);

    x += skew;
    n -= skew;
    plain->to_bf16(x, n, (void *)want);
    isa->to_bf16(x, n, (void *)got);
    kc_expect(memcmp(want, got, (size_t)n / 2 * 4 + 4) == 0,
              "to_bf16, %s: %u values differ", isa->name, n);
    plain->from_bf16((void *)want, n, want_back);
    isa->from_bf16((void *)want, n, got_back);
    kc_expect(memcmp(want_back, got_back, (size_t)n * 4) == 0,
              "from_bf16, %s: %u values differ", isa->name, n);
    for (uint32_t i = 0; i < n; i++) {
        kc_expect(!isnan(x[i]) == !isnan(got_back[i]),
                  "bf16, %s: %a becomes %a", isa->name, (double)x[i],
                  (double)got_back[i]);
    }
    kc_poison(got);
    kc_poison(want);
    plain->to_f16(x, n, (void *)want);
    isa->to_f16(x, n, (void *)got);
    kc_expect(memcmp(want, got, (size_t)n / 2 * 4 + 4) == 0,
              "to_f16, %s: %u values differ", isa->name, n);
    kc_check_canaries(got, "to words");
    kc_check_canaries(got_back, "from words");
    kc_free(want);
    kc_free(got);
    kc_free(want_back);
    kc_free(got_back);
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
    float *want_back = kc_alloc(n);
    float *got_back = kc_alloc(n);
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
    plain->from_i8((void *)want, want_scales, n_rows, dim, want_back);
    isa->from_i8((void *)want, want_scales, n_rows, dim, got_back);
    kc_expect_equal(want_back, got_back, n, "from_i8", isa->name);
    for (size_t i = 0; i < n; i++) {
        float scale = want_scales[i / dim];
        float value = (float)((int8_t *)(void *)want)[i] * scale;

        kc_expect(isnan(scale)
                      ? isnan(want_back[i])
                      : !(want_back[i] < value) && !(want_back[i] > value),
                  "from_i8: element %zu is %a", i, (double)want_back[i]);
    }
    kc_check_canaries(got, "to_i8");
    kc_free(want);
    kc_free(got);
    kc_free(want_back);
    kc_free(got_back);
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
            }
        }
    }
    kc_free(x);
}
