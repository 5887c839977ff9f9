/* SPDX-License-Identifier: Apache-2.0 */
/* Each loop keeps N_ACC sums in registers: more than latency times width of any
 * CPU with the instructions, so that throughput is measured. An empty asm that
 * "changes" them hides their values from the compiler. */
#include "bench/_limits.h"

#include <stdbool.h>
#include <string.h>

#define READ_STEP 512u /* bytes per iteration */
#define N_PLAIN   16u

static uint64_t read_plain(const bt_loop_work_t *work)
{
    const uint64_t *const p = work->data;
    uint64_t acc[8] = {0};

    for (size_t i = 0; i < work->n / 8; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            acc[k] |= p[i + k];
        }
    }
    return acc[0] | acc[1] | acc[2] | acc[3] | acc[4] | acc[5] | acc[6] |
           acc[7];
}

static uint64_t int8_plain(const bt_loop_work_t *work)
{
    int32_t acc[N_PLAIN] = {0};
    int8_t a[N_PLAIN];

    memset(a, 3, sizeof(a));
    for (size_t i = 0; i < work->n; i++) {
        for (size_t k = 0; k < N_PLAIN; k++) {
            acc[k] += a[k] * (int8_t)i;
        }
        __asm__ volatile("" : "+m"(a));
    }
    return (uint64_t)(uint32_t)(acc[0] ^ acc[N_PLAIN - 1]);
}

static uint64_t f32_plain(const bt_loop_work_t *work)
{
    float acc[N_PLAIN] = {0};
    float a[N_PLAIN] = {0};
    uint32_t bits;

    for (size_t i = 0; i < work->n; i++) {
        for (size_t k = 0; k < N_PLAIN; k++) {
            acc[k] = acc[k] * 0.5f + a[k];
        }
        __asm__ volatile("" : "+m"(a));
    }
    memcpy(&bits, &acc[N_PLAIN - 1], sizeof(bits));
    return bits;
}

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#define TARGET(features) __attribute__((target(features)))
#define N_ACC            12u

/* Iterates over the sums, unrolled, so that the array stays in registers. */
#define FOR_ACC(k) _Pragma("GCC unroll 12") for (uint32_t k = 0; k < N_ACC; k++)

TARGET("avx512f") static uint64_t read_avx512(const bt_loop_work_t *work)
{
    const char *p = work->data;
    const char *const end = p + work->n;
    __m512i acc[8];

    for (int k = 0; k < 8; k++) {
        acc[k] = _mm512_setzero_si512();
    }
    for (; p < end; p += READ_STEP) {
        _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++)
        {
            acc[k] = _mm512_or_si512(
                acc[k], _mm512_load_si512((const void *)(p + 64 * k)));
        }
    }
    for (int k = 1; k < 8; k++) {
        acc[0] = _mm512_or_si512(acc[0], acc[k]);
    }
    return (uint64_t)_mm512_reduce_or_epi64(acc[0]);
}

TARGET("avx2") static uint64_t read_avx2(const bt_loop_work_t *work)
{
    const char *p = work->data;
    const char *const end = p + work->n;
    __m256i acc[8];
    uint64_t words[4];

    for (int k = 0; k < 8; k++) {
        acc[k] = _mm256_setzero_si256();
    }
    for (; p < end; p += READ_STEP / 2) {
        _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++)
        {
            acc[k] = _mm256_or_si256(
                acc[k],
                _mm256_load_si256((const __m256i *)(const void *)(p + 32 * k)));
        }
    }
    for (int k = 1; k < 8; k++) {
        acc[0] = _mm256_or_si256(acc[0], acc[k]);
    }
    _mm256_storeu_si256((__m256i *)(void *)words, acc[0]);
    return words[0] | words[1] | words[2] | words[3];
}

static uint64_t fold(const void *sums, size_t bytes)
{
    const char *const p = sums;
    uint64_t all = 0;

    for (size_t at = 0; at < bytes; at += sizeof(all)) {
        uint64_t word;

        memcpy(&word, p + at, sizeof(word));
        all ^= word;
    }
    return all;
}

/* next(acc, a, b): the multiply-add. The copy of the sums has an address, so
 * that they need none. */
#define SUM_LOOP(name, features, sum_t, zero, factor_t, a_is, b_is, next) \
    TARGET(features) static uint64_t name(const bt_loop_work_t *work)     \
    {                                                                     \
        sum_t acc[N_ACC];                                                 \
        sum_t sums[N_ACC];                                                \
        factor_t a = a_is;                                                \
        factor_t b = b_is;                                                \
                                                                          \
        FOR_ACC(k)                                                        \
        {                                                                 \
            acc[k] = zero;                                                \
        }                                                                 \
        for (size_t i = 0; i < work->n; i++) {                            \
            FOR_ACC(k)                                                    \
            {                                                             \
                __asm__ volatile("" : "+v"(a), "+v"(b));                  \
                acc[k] = next(acc[k], a, b);                              \
                __asm__ volatile("" : "+v"(acc[k]));                      \
            }                                                             \
        }                                                                 \
        FOR_ACC(k)                                                        \
        {                                                                 \
            sums[k] = acc[k];                                             \
        }                                                                 \
        return fold(sums, sizeof(sums));                                  \
    }

/* Without VNNI: products to 16 bits, pairs to 32, sum. */
#define MADD_512(acc, a, b)                                             \
    _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), \
                                            _mm512_set1_epi16(1)))
#define MADD_256(acc, a, b)                                             \
    _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), \
                                            _mm256_set1_epi16(1)))
#define DPBF16(acc, a, b) _mm512_dpbf16_ps(acc, (__m512bh)(a), (__m512bh)(b))

SUM_LOOP(int8_avx512vnni, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(),
         __m512i, _mm512_set1_epi8(3), _mm512_set1_epi8(-2),
         _mm512_dpbusd_epi32)
SUM_LOOP(int8_avx512, "avx512f,avx512bw", __m512i, _mm512_setzero_si512(),
         __m512i, _mm512_set1_epi8(3), _mm512_set1_epi8(-2), MADD_512)
SUM_LOOP(int8_avxvnni, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), __m256i,
         _mm256_set1_epi8(3), _mm256_set1_epi8(-2), _mm256_dpbusd_avx_epi32)
SUM_LOOP(int8_avx2, "avx2", __m256i, _mm256_setzero_si256(), __m256i,
         _mm256_set1_epi8(3), _mm256_set1_epi8(-2), MADD_256)
SUM_LOOP(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(),
         __m512i, _mm512_set1_epi16(0x3f80), _mm512_set1_epi16(0x3f80), DPBF16)
SUM_LOOP(f32_avx512, "avx512f", __m512, _mm512_setzero_ps(), __m512,
         _mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f), _mm512_fmadd_ps)
SUM_LOOP(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), __m256,
         _mm256_set1_ps(0.5f), _mm256_set1_ps(0.25f), _mm256_fmadd_ps)

/* Leaf 7, subleaf 1: the names of these bits are newer than our compilers'
 * __builtin_cpu_supports(). Call only where AVX2 is usable. */
static bool leaf7_1_eax(uint32_t bit)
{
    uint32_t a = 0;
    uint32_t b;
    uint32_t c;
    uint32_t d;

    return (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) &&
           ((a >> bit & 1u) != 0);
}

static bt_loop_t int8_loop(void)
{
    if (__builtin_cpu_supports("avx512vnni")) {
        return (bt_loop_t){"avx512vnni", int8_avx512vnni, 128.0 * N_ACC};
    }
    if (__builtin_cpu_supports("avx512bw")) {
        return (bt_loop_t){"avx512", int8_avx512, 128.0 * N_ACC};
    }
    if (__builtin_cpu_supports("avx2") && leaf7_1_eax(4)) {
        return (bt_loop_t){"avxvnni", int8_avxvnni, 64.0 * N_ACC};
    }
    if (__builtin_cpu_supports("avx2")) {
        return (bt_loop_t){"avx2", int8_avx2, 64.0 * N_ACC};
    }
    return (bt_loop_t){"plain", int8_plain, 2.0 * N_PLAIN};
}

static bt_loop_t f32_loop(void)
{
    if (__builtin_cpu_supports("avx512f")) {
        return (bt_loop_t){"avx512", f32_avx512, 32.0 * N_ACC};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return (bt_loop_t){"avx2", f32_avx2, 16.0 * N_ACC};
    }
    return (bt_loop_t){"plain", f32_plain, 2.0 * N_PLAIN};
}

bt_loop_t bt_loop_for(bt_limit_t what)
{
    const bool avx512 = __builtin_cpu_supports("avx512f");

    switch (what) {
    case BT_LIMIT_READ:
        if (avx512) {
            return (bt_loop_t){"avx512", read_avx512, 1.0};
        }
        if (__builtin_cpu_supports("avx2")) {
            return (bt_loop_t){"avx2", read_avx2, 1.0};
        }
        return (bt_loop_t){"plain", read_plain, 1.0};
    case BT_LIMIT_INT8:
        return int8_loop();
    case BT_LIMIT_F32:
        return f32_loop();
    default:
        if (avx512 && leaf7_1_eax(5)) {
            return (bt_loop_t){"avx512bf16", bf16_avx512, 64.0 * N_ACC};
        }
        return (bt_loop_t){"none", NULL, 0.0};
    }
}

#else

bt_loop_t bt_loop_for(bt_limit_t what)
{
    switch (what) {
    case BT_LIMIT_READ:
        return (bt_loop_t){"plain", read_plain, 1.0};
    case BT_LIMIT_INT8:
        return (bt_loop_t){"plain", int8_plain, 2.0 * N_PLAIN};
    case BT_LIMIT_F32:
        return (bt_loop_t){"plain", f32_plain, 2.0 * N_PLAIN};
    default:
        return (bt_loop_t){"none", NULL, 0.0};
    }
}

#endif
