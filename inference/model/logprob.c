/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/logprob.h"

#include <math.h>
#include <string.h>

#define LANES 16
#define BLOCK (16u * LANES) /* summed in float, before double takes it */

typedef float floats_t __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t marks_t __attribute__((vector_size(LANES * sizeof(uint32_t))));

/* exp(x) for x <= 0, of each lane: 0 below -87 and for NaN, else within 3 units
 * in the last place. Not the C library's, whose last bit depends on the
 * machine's instructions; these operations give the same bits whatever the
 * width of its vectors.
 * exp(x) = 2^n e^r, n = round(x / ln 2), |r| <= ln(2) / 2, e^r by its Taylor
 * series to r^7 (remainder below 2^-27). */
static inline __attribute__((always_inline)) void exp_negative(floats_t *x)
{
    const float shift = 0x1.8p23f; /* adding it rounds to an integer */
    const marks_t above = (marks_t)(*x > -87.0f);
    const floats_t clamped = (floats_t)(above & (marks_t)*x);
    const floats_t t = clamped * 0x1.715476p0f + shift; /* 1 / ln 2 */
    const floats_t n = t - shift;
    /* ln 2 in two parts; the first has trailing zeros: n * it is exact. */
    const floats_t r = (clamped - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    floats_t p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;

    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* The low bits of t hold n in two's complement. */
    *x = p * (floats_t)((((marks_t)t + 127u) << 23) & above);
}

static inline __attribute__((always_inline)) float best_of(const float *logits,
                                                           uint32_t n)
{
    float best = logits[0];
    floats_t bests = (floats_t){0} + best;
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        marks_t more;
        floats_t v;

        memcpy(&v, logits + i, sizeof(v));
        more = (marks_t)(v > bests);
        bests = (floats_t)((more & (marks_t)v) | (~more & (marks_t)bests));
    }
    for (; i < n; i++) {
        best = (logits[i] > best) ? logits[i] : best;
    }
    for (i = 0; i < LANES; i++) {
        best = (bests[i] > best) ? bests[i] : best;
    }
    return best;
}

static inline __attribute__((always_inline)) void
add(const float *logits, float best, floats_t *sums)
{
    floats_t x;
    floats_t e;

    memcpy(&x, logits, sizeof(x));
    x -= best;
    e = x;
    exp_negative(&e);
    /* exp_negative() makes nothing of a NaN, here it must show. */
    *sums += e + 0.0f * x;
}

static inline __attribute__((always_inline)) double sum_of(const float *logits,
                                                           uint32_t n)
{
    const float best = best_of(logits, n);
    const uint32_t n_whole = n - n % LANES;
    double lanes[LANES] = {0.0};
    double sum = 0.0;
    floats_t rest = (floats_t){0} + best;
    floats_t sums;

    for (uint32_t i = 0; i < n_whole;) {
        const uint32_t end = (n_whole - i < BLOCK) ? n_whole : i + BLOCK;

        for (sums = (floats_t){0}; i < end; i += LANES) {
            add(logits + i, best, &sums);
        }
        for (uint32_t lane = 0; lane < LANES; lane++) {
            lanes[lane] += (double)sums[lane];
        }
    }
    memcpy(&rest, logits + n_whole, (n - n_whole) * sizeof(*logits));
    sums = (floats_t){0};
    add((const float *)&rest, best, &sums);
    for (uint32_t lane = 0; lane < n - n_whole; lane++) {
        lanes[lane] += (double)sums[lane];
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return (double)best + log(sum);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq,avx512vl"))) static double
sum_avx512(const float *logits, uint32_t n)
{
    return sum_of(logits, n);
}

__attribute__((target("avx2"))) static double sum_avx2(const float *logits,
                                                       uint32_t n)
{
    return sum_of(logits, n);
}
#endif

/* The exp() of a vocabulary is most of what a log-prob costs. */
double bt_logprob_sum(const float *logits, uint32_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return sum_avx512(logits, n);
    }
    if (__builtin_cpu_supports("avx2")) {
        return sum_avx2(logits, n);
    }
#endif
    return sum_of(logits, n);
}

double bt_logprob_of_logit(const bt_scored_t *scored, float logit)
{
    return (double)logit - ((double)scored->best + log(scored->sum));
}

double bt_logprob_of(const bt_scored_t *scored)
{
    return bt_logprob_of_logit(scored, scored->logit);
}

void bt_logprob_top(const float *logits, uint32_t n, uint32_t k, uint32_t *ids)
{
    uint32_t kept = 0;

    if (k == 0) {
        return;
    }
    for (uint32_t id = 0; id < n; id++) {
        uint32_t at = kept;

        if ((kept == k) && !(logits[id] > logits[ids[k - 1]])) {
            continue;
        }
        at -= (kept == k) ? 1 : 0;
        kept += (kept < k) ? 1 : 0;
        for (; (at > 0) && (logits[id] > logits[ids[at - 1]]); at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = id;
    }
}
