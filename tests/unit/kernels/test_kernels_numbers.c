/* SPDX-License-Identifier: Apache-2.0 */
/* Dequantizers, floats of 16 and 8 bits, and exp. */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "kernels/cpu/body.h"
#include "kernels/kernels.h"

static uint32_t hex_digit(char c)
{
    return (uint32_t)((c <= '9') ? c - '0' : c - 'a' + 10);
}

/* @return bytes read from the hex digits at *text, which moves past them */
static size_t read_hex(const char **text, uint8_t *out)
{
    const char *p = *text;
    size_t n = 0;

    while ((p[0] != ' ') && (p[0] != '\n') && (p[0] != '\0')) {
        out[n++] = (uint8_t)(hex_digit(p[0]) << 4 | hex_digit(p[1]));
        p += 2;
    }
    *text = p;
    return n;
}

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static uint64_t fnv(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void check_values(uint32_t type, const float *got, size_t n,
                         const char *text)
{
    float *want;

    if (strncmp(text, "fnv ", 4) == 0) {
        if (fnv(got, n * sizeof(*got)) != strtoull(text + 4, NULL, 16)) {
            fail_msg("%s: other values", bt_ktype_name(type));
        }
        return;
    }
    want = bt_calloc(n, sizeof(*want));
    assert_non_null(want);
    assert_int_equal(strlen(text), n * sizeof(*want) * 2 + 1);
    assert_int_equal(read_hex(&text, (uint8_t *)want), n * sizeof(*want));
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof(*got)) != 0) {
            fail_msg("%s element %zu: %a, not %a", bt_ktype_name(type), i,
                     (double)got[i], (double)want[i]);
        }
    }
    bt_free(want);
}

/* @return the type */
static uint32_t check_golden_line(const char *line)
{
    size_t len = strlen(line);
    uint8_t *data = bt_calloc(len, 1);
    float *got;
    char *end = NULL;
    uint32_t type = (uint32_t)strtoul(line, &end, 10);
    size_t n = strtoul(end, &end, 10);
    const char *text = end + 1;
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    size_t data_bytes;

    assert_non_null(data);
    got = bt_calloc(n, sizeof(*got));
    assert_non_null(got);
    data_bytes = read_hex(&text, data);
    assert_int_equal(bt_ktype_block(type, &n_elems, &n_bytes), BT_OK);
    assert_int_equal(data_bytes, n / n_elems * n_bytes);
    assert_int_equal(bt_dequantize((bt_ktype_t)type, data, n, got), BT_OK);
    check_values(type, got, n, text + 1);
    bt_free(data);
    bt_free(got);
    return type;
}

/* Values: the Python package gguf, by tests/golden/make_dequant_golden.py. */
static void every_type_dequantizes_to_the_bits_of_the_gguf_package(void **state)
{
    FILE *file = fopen(bt_test_path("golden/dequant.txt"), "r");
    char *line = NULL;
    size_t cap = 0;
    uint64_t types = 0;

    (void)state;
    assert_non_null(file);
    while (getline(&line, &cap, file) > 0) {
        if (line[0] != '#') {
            types |= 1ull << check_golden_line(line);
        }
    }
    for (uint32_t type = 0; type < BT_KTYPE_E4M3; type++) {
        uint32_t n_elems;
        uint32_t n_bytes;
        const bool known = bt_ktype_block(type, &n_elems, &n_bytes) == BT_OK;

        assert_int_equal((types >> type) & 1u, known);
    }
    assert_int_equal(__builtin_popcountll(types), 26);
    free(line); /* getline's own */
    fclose(file);
}

static void unknown_types_and_partial_blocks_are_refused(void **state)
{
    static const uint8_t data[64];
    float out[64] = {7.0f};
    uint32_t n_elems = 5;
    uint32_t n_bytes = 6;

    (void)state;
    assert_int_equal(bt_ktype_block(4, &n_elems, &n_bytes), BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_ktype_block(UINT32_MAX, &n_elems, &n_bytes),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(n_elems, 5); /* outputs only on success */
    assert_int_equal(n_bytes, 6);
    assert_string_equal(bt_ktype_name(4), "unknown");
    assert_string_equal(bt_ktype_name(BT_KTYPE_Q6_K), "Q6_K");
    assert_int_equal(bt_dequantize(BT_KTYPE_Q8_0, data, 33, out),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(bt_dequantize((bt_ktype_t)99, data, 32, out),
                     BT_ERR_UNSUPPORTED);
    assert_true(out[0] == 7.0f);
    assert_int_equal(bt_dequantize(BT_KTYPE_Q8_0, data, 0, out), BT_OK);
}

/* Value of a half by the formula of IEEE 754-2008, section 3.4. */
static double half_value(uint32_t half)
{
    uint32_t exponent = (half >> 10) & 31u;
    double fraction = half & 1023u;
    double v = (exponent == 0) ? ldexp(fraction, -24)
                               : ldexp(1024.0 + fraction, (int)exponent - 25);

    return ((half & 0x8000u) != 0) ? -v : v;
}

static void all_halves_round_trip(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000u; half++) {
        float value = bt_f16_to_f32((uint16_t)half);

        if ((half & 0x7fffu) > 0x7c00u) {
            assert_true(isnan(value));
            assert_int_equal(bt_f32_to_f16(value), half | 0x200u);
            continue;
        }
        if ((half & 0x7fffu) == 0x7c00u) {
            assert_true(isinf(value));
        } else {
            assert_true((double)value == half_value(half));
        }
        assert_int_equal(bt_f32_to_f16(value), half);
    }
}

/* Half way between neighbours goes to the even one, a hair off it to the
 * nearer one; 65520 is half way to what would be 65536. */
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7bffu; half++) {
        float low = bt_f16_to_f32((uint16_t)half);
        float high = bt_f16_to_f32((uint16_t)(half + 1));
        float middle = low + (high - low) / 2;
        uint32_t even = (half % 2 == 0) ? half : half + 1;

        assert_int_equal(bt_f32_to_f16(middle), even);
        assert_int_equal(bt_f32_to_f16(-middle), even | 0x8000u);
        assert_int_equal(bt_f32_to_f16(nextafterf(middle, 0.0f)), half);
        assert_int_equal(bt_f32_to_f16(nextafterf(middle, 1e9f)), half + 1);
    }
    assert_int_equal(bt_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(bt_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(bt_f32_to_f16(-1e38f), 0xfc00);
    assert_int_equal(bt_f32_to_f16(1e-45f), 0);
    assert_int_equal(bt_f32_to_f16(-1e-45f), 0x8000);
}

/* bfloat16 by its definition: 8 bits of exponent, 7 of fraction. */
static double bf16_value(uint32_t bf16)
{
    uint32_t exponent = (bf16 >> 7) & 255u;
    double fraction = bf16 & 127u;
    double v = (exponent == 0) ? ldexp(fraction, -133)
                               : ldexp(128.0 + fraction, (int)exponent - 134);

    return ((bf16 & 0x8000u) != 0) ? -v : v;
}

/* Every finite bf16 comes back; half way to the next goes to the even one, a
 * hair off it to the nearer one; NaNs stay NaNs, with their sign. */
static void floats_round_to_the_nearest_bf16(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x7f80u; b++) {
        double low = bf16_value(b);
        double high = bf16_value(b + 1); /* 2^128 after the last */
        float middle = (float)((low + high) / 2);
        uint32_t even = (b % 2 == 0) ? b : b + 1;

        assert_true((double)bt_bf16_to_f32((uint16_t)b) == low);
        assert_int_equal(bt_f32_to_bf16((float)low), b);
        assert_int_equal(bt_f32_to_bf16(-(float)low), b | 0x8000u);
        assert_int_equal(bt_f32_to_bf16(middle), even);
        assert_int_equal(bt_f32_to_bf16(-middle), even | 0x8000u);
        assert_int_equal(bt_f32_to_bf16(nextafterf(middle, 0.0f)), b);
        assert_int_equal(bt_f32_to_bf16(nextafterf(middle, INFINITY)), b + 1);
    }
    assert_int_equal(bt_f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(bt_f32_to_bf16(-INFINITY), 0xff80);
    for (uint32_t fraction = 1; fraction < 0x800000u; fraction += 12345) {
        assert_true(isnan(bt_bf16_to_f32(
            bt_f32_to_bf16(bt_f32_from_bits(0x7f800000u | fraction)))));
        assert_true(bt_f32_to_bf16(bt_f32_from_bits(0xff800000u | fraction)) >
                    0xff80u);
    }
    /* the one that adding a half would turn into minus zero */
    assert_int_equal(bt_f32_to_bf16(bt_f32_from_bits(0x7fffffffu)), 0x7fff);
}

/* Worked by hand: the largest magnitude is 127 steps. */
static void int8_codes_are_scaled_by_the_largest_value(void **state)
{
    static const float x[] = {-254.0f, 1.0f, 3.0f, 5.0f, -1.0f, 0.0f, 253.1f};
    static const int8_t want[] = {-127, 0, 2, 2, 0, 0, 127};
    static const float not_finite[] = {1.0f, INFINITY, -2.0f};
    static const float nan_first[] = {NAN, INFINITY, -2.0f};
    static const float zeros[] = {0.0f, -0.0f, 0.0f};
    /* 126 and 127 of the smallest steps that count */
    static const float tiny[] = {126 * 0x1p-126f, -127 * 0x1p-126f};
    static const float too_tiny[] = {126 * 0x1p-126f, -126.9f * 0x1p-126f};
    int8_t out[7];

    (void)state;
    /* 1 / 2 and 5 / 2 are half way between codes, so is 3 / 2 */
    assert_true(body_to_i8(x, 7, out) == 2.0f);
    assert_memory_equal(out, want, sizeof(want));
    assert_true(isnan(body_to_i8(not_finite, 3, out)));
    assert_true((out[0] == 0) && (out[1] == 0) && (out[2] == 0));
    assert_true(isnan(body_to_i8(nan_first, 3, out)));
    assert_int_equal(bt_f32_bits(body_to_i8(zeros, 3, out)), 0);
    assert_true(body_to_i8(tiny, 2, out) == 0x1p-126f);
    assert_true((out[0] == 126) && (out[1] == -127));
    assert_int_equal(bt_f32_bits(body_to_i8(too_tiny, 2, out)), 0);
    assert_true((out[0] == 0) && (out[1] == 0));
}

/* Codes and floats: PyTorch, by tests/golden/make_e4m3_golden.py. */
static void e4m3_equals_torch(void **state)
{
    FILE *file = fopen(bt_test_path("golden/e4m3.txt"), "r");
    uint32_t n_codes = 0;
    uint32_t n_rounded = 0;
    char line[80];

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        char *end = NULL;
        const uint32_t first = (uint32_t)strtoul(line + 1, &end, 16);
        const uint32_t second = (uint32_t)strtoul(end, NULL, 16);

        if (line[0] == 'c') {
            const uint16_t bf16 = bt_e4m3_to_bf16((uint8_t)first);

            n_codes++;
            if (isnan(bt_f32_from_bits(second))) {
                assert_int_equal(first & 0x7fu, 0x7f);
                assert_true(isnan(bt_bf16_to_f32(bf16)));
                assert_true(fabsf(bt_e4m3_weight(first)) == 480.0f);
            } else {
                assert_int_equal((uint32_t)bf16 << 16, second);
                assert_int_equal(bt_f32_bits(bt_e4m3_weight(first)), second);
            }
        } else if (line[0] == 'r') {
            n_rounded++;
            assert_int_equal(bt_f32_to_e4m3(bt_f32_from_bits(first)), second);
        }
    }
    fclose(file);
    assert_int_equal(n_codes, 256);
    assert_int_equal(n_rounded, 1832);
}

/* Worked by hand: the largest magnitude is 448, here 448 steps of a half. */
static void fp8_codes_are_scaled_by_the_largest_value(void **state)
{
    static const float x[] = {-224.0f,  0.5f,      8.5f, 9.5f,
                              0x1p-10f, -0x1p-11f, 0.0f};
    /* 448; 1; 17 and 19 are half way between 16, 18 and 20; 2^-9; the middle
     * of 0 and 2^-9 */
    static const uint8_t want[] = {0xfe, 0x38, 0x58, 0x5a, 0x01, 0x80, 0x00};
    static const float not_finite[] = {1.0f, NAN, -2.0f};
    static const float zeros[] = {0.0f, -0.0f, 0.0f};
    static const float tiny[] = {-448 * 0x1p-126f, 0x1p-126f};
    static const float too_tiny[] = {-447.9f * 0x1p-126f, 0x1p-126f};
    uint8_t out[7];

    (void)state;
    assert_true(body_to_e4m3(x, 7, out) == 0.5f);
    assert_memory_equal(out, want, sizeof(want));
    assert_true(isnan(body_to_e4m3(not_finite, 3, out)));
    assert_true((out[0] == 0) && (out[1] == 0) && (out[2] == 0));
    assert_int_equal(bt_f32_bits(body_to_e4m3(zeros, 3, out)), 0);
    assert_true((out[0] == 0) && (out[1] == 0) && (out[2] == 0));
    assert_true(body_to_e4m3(tiny, 2, out) == 0x1p-126f);
    assert_true((out[0] == 0xfe) && (out[1] == 0x38));
    assert_int_equal(bt_f32_bits(body_to_e4m3(too_tiny, 2, out)), 0);
    assert_true((out[0] == 0) && (out[1] == 0));
}

/* Against the C library's exp in double. */
static void exp_is_within_one_and_a_half_ulps(void **state)
{
    double worst = 0;

    (void)state;
    for (int i = -870000; i <= 880000; i++) {
        float x = (float)i * 1e-4f;
        double want = exp((double)x);
        double ulp = ldexp(1.0, ilogb(want) - 23);
        double error = fabs((double)bt_expf(x) - want) / ulp;

        worst = (error > worst) ? error : worst;
    }
    if (worst > 1.5) {
        fail_msg("off by %g ulps", worst);
    }
    assert_true(bt_expf(0.0f) == 1.0f);
    assert_true(bt_expf(-0.0f) == 1.0f);
}

static void exp_saturates_at_both_ends(void **state)
{
    (void)state;
    assert_true(bt_expf(-87.01f) == 0.0f);
    assert_true(bt_expf(-3e38f) == 0.0f);
    assert_true(bt_expf(-INFINITY) == 0.0f);
    assert_true(bt_expf(-87.0f) > 0.0f);
    assert_true(isinf(bt_expf(88.01f)));
    assert_true(isinf(bt_expf(INFINITY)));
    assert_true(isfinite(bt_expf(88.0f)));
    assert_true(isnan(bt_expf(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_type_dequantizes_to_the_bits_of_the_gguf_package),
        BT_TEST(unknown_types_and_partial_blocks_are_refused),
        BT_TEST(all_halves_round_trip),
        BT_TEST(floats_round_to_the_nearest_half),
        BT_TEST(floats_round_to_the_nearest_bf16),
        BT_TEST(int8_codes_are_scaled_by_the_largest_value),
        BT_TEST(e4m3_equals_torch),
        BT_TEST(fp8_codes_are_scaled_by_the_largest_value),
        BT_TEST(exp_is_within_one_and_a_half_ulps),
        BT_TEST(exp_saturates_at_both_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
