/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/logprob.h"

#include <math.h>
#include <string.h>

#include "inference/model/exp_negative.h"

#define LANES 8
#define HALF  4 /* of the lanes, in one vector */

typedef float floats_t __attribute__((vector_size(HALF * sizeof(float))));
typedef uint32_t marks_t __attribute__((vector_size(HALF * sizeof(uint32_t))));
typedef double doubles_t __attribute__((vector_size(HALF * sizeof(double))));
typedef uint64_t words_t __attribute__((vector_size(HALF * sizeof(uint64_t))));

/* bt_exp_negative() of four: the same operations in the same order, so the
 * same bits, whatever the width of the machine's vectors. */
static inline __attribute__((always_inline)) void exp_negative(doubles_t *x)
{
    const double shift = 0x1.8p52;
    const words_t above = (words_t)(*x > -700.0);
    const doubles_t least = {-700.0, -700.0, -700.0, -700.0};
    const doubles_t clamped =
        (doubles_t)((above & (words_t)*x) | (~above & (words_t)least));
    const doubles_t t = clamped * 0x1.71547652b82fep0 + shift;
    const doubles_t n = t - shift;
    const doubles_t r =
        (clamped - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b39p-40;
    doubles_t p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;

    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    *x = p * (doubles_t)((((words_t)t + 1023u) << 52) & above);
}

static inline __attribute__((always_inline)) float best_of(const float *logits,
                                                           uint32_t n)
{
    float best = logits[0];
    floats_t bests = {best, best, best, best};
    uint32_t i = 0;

    for (; i + HALF <= n; i += HALF) {
        marks_t more;
        floats_t v;

        memcpy(&v, logits + i, sizeof(v));
        more = (marks_t)(v > bests);
        bests = (floats_t)((more & (marks_t)v) | (~more & (marks_t)bests));
    }
    for (; i < n; i++) {
        best = (logits[i] > best) ? logits[i] : best;
    }
    for (i = 0; i < HALF; i++) {
        best = (bests[i] > best) ? bests[i] : best;
    }
    return best;
}

/* Four of a row, into their lanes. */
static inline __attribute__((always_inline)) void
add(const float *logits, double best, doubles_t *lanes)
{
    doubles_t x;
    doubles_t e;
    floats_t v;

    memcpy(&v, logits, sizeof(v));
    x = __builtin_convertvector(v, doubles_t) - best;
    e = x;
    exp_negative(&e);
    /* exp_negative() makes nothing of a NaN, here it must show. */
    *lanes += e + 0.0 * x;
}

static inline __attribute__((always_inline)) double sum_of(const float *logits,
                                                           uint32_t n)
{
    const double best = (double)best_of(logits, n);
    doubles_t halves[2] = {{0.0}, {0.0}};
    double lanes[LANES];
    double sum = 0.0;
    uint32_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        add(logits + i, best, &halves[0]);
        add(logits + i + HALF, best, &halves[1]);
    }
    memcpy(lanes, halves, sizeof(lanes));
    for (; i < n; i++) {
        const double x = (double)logits[i] - best;

        lanes[i % LANES] += bt_exp_negative(x) + 0.0 * x;
    }
    for (i = 0; i < LANES; i++) {
        sum += lanes[i];
    }
    return best + log(sum);
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
