/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/logits.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "common/base/ln.h"
#include "inference/model/model.h"

#define BUCKETS 256
#define FEW     24 /* at most this many are sorted by insertion */

static uint64_t weight_of(const uint64_t *weights, uint32_t id)
{
    return (weights == NULL) ? 1 : weights[id];
}

/* Buckets ascend as logits fall: the best is in 0, the last in 254 or 255. */
typedef struct spread {
    double best;
    double per_unit; /* buckets */
} spread_t;

/* @return false when all logits are equal */
static bool spread_over(const bt_candidate_t *list, uint32_t n,
                        spread_t *spread_p)
{
    float best = list[0].logit;
    float last = list[0].logit;

    for (uint32_t i = 1; i < n; i++) {
        best = (list[i].logit > best) ? list[i].logit : best;
        last = (list[i].logit < last) ? list[i].logit : last;
    }
    spread_p->best = (double)best;
    spread_p->per_unit = (BUCKETS - 1) / ((double)best - (double)last);
    return best > last;
}

static uint32_t bucket_of(spread_t spread, float logit)
{
    return (uint32_t)((spread.best - (double)logit) * spread.per_unit);
}

/*
 * Finds the bucket in which the sum reaches the need.
 * @param [in,out] need_p  becomes less the sum before the bucket
 */
static uint32_t find_bucket(const bt_candidate_t *list, uint32_t n,
                            const uint64_t *weights, spread_t spread,
                            uint64_t *need_p)
{
    uint64_t sums[BUCKETS] = {0};
    uint32_t b = 0;

    for (uint32_t i = 0; i < n; i++) {
        sums[bucket_of(spread, list[i].logit)] +=
            weight_of(weights, list[i].id);
    }
    while ((b < BUCKETS - 1) && (sums[b] < *need_p)) {
        *need_p -= sums[b++];
    }
    return b;
}

/* Keeps the candidates of one bucket, in their order. @return number kept */
static uint32_t keep(bt_candidate_t *list, uint32_t n, spread_t spread,
                     uint32_t bucket)
{
    uint32_t n_kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        const bt_candidate_t c = list[i];

        list[n_kept] = c; /* overwrites one already read */
        n_kept += (bucket_of(spread, c.logit) == bucket);
    }
    return n_kept;
}

static void order_few(bt_candidate_t *list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const bt_candidate_t c = list[i];
        uint32_t at = i;

        for (; (at > 0) && bt_candidate_precedes(c, list[at - 1]); at--) {
            list[at] = list[at - 1];
        }
        list[at] = c;
    }
}

bt_candidate_t bt_select(bt_candidate_t *list, uint32_t n,
                         const uint64_t *weights, uint64_t need)
{
    spread_t spread;
    uint32_t i = 0;

    while ((n > FEW) && spread_over(list, n, &spread)) {
        n = keep(list, n, spread, find_bucket(list, n, weights, spread, &need));
    }
    if (n <= FEW) {
        order_few(list, n);
    } /* else all are equal, and ordered by id */
    while ((i + 1 < n) && (weight_of(weights, list[i].id) < need)) {
        need -= weight_of(weights, list[i++].id);
    }
    return list[i];
}

/* ---- the first k ---- */

/* Restores a heap whose root is the last candidate. */
static void sift_down(bt_candidate_t *heap, uint32_t n, uint32_t at)
{
    const bt_candidate_t moved = heap[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= n) {
            break;
        }
        if ((child + 1 < n) &&
            bt_candidate_precedes(heap[child], heap[child + 1])) {
            child++;
        }
        if (bt_candidate_precedes(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void heapify(bt_candidate_t *heap, uint32_t n)
{
    for (uint32_t i = n / 2; i > 0; i--) {
        sift_down(heap, n, i - 1);
    }
}

bt_candidate_t bt_select_pop_last(bt_candidate_t *heap, uint32_t *n_p)
{
    const bt_candidate_t top = heap[0];

    heap[0] = heap[--*n_p];
    if (*n_p > 1) {
        sift_down(heap, *n_p, 0);
    }
    return top;
}

uint32_t bt_select_first(const float *logits, uint32_t n_logits, uint32_t k,
                         bt_candidate_t *list)
{
    uint32_t n = 0;

    for (uint32_t id = 0; id < n_logits; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        if (!(c.logit > -INFINITY)) {
            continue;
        }
        if (n < k) {
            list[n++] = c;
            if (n == k) {
                heapify(list, n);
            }
        } else if (bt_candidate_precedes(c, list[0])) {
            list[0] = c;
            sift_down(list, n, 0);
        }
    }
    if (n < k) {
        heapify(list, n);
    }
    return n;
}

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
    return (double)best + bt_ln(sum);
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
    return (double)logit - ((double)scored->best + bt_ln(scored->sum));
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

static void add_biases(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                       float *logits, uint32_t n_vocab)
{
    const bt_sampling_t *sampling = ctx;

    (void)tokens;
    (void)n_tokens;
    for (uint32_t i = 0; i < sampling->n_logit_biases; i++) {
        const bt_logit_bias_t *bias = &sampling->logit_biases[i];

        if (bias->id < n_vocab) {
            logits[bias->id] += bias->bias;
        }
    }
}

bt_logits_processor_t bt_logit_bias_processor(bt_sampling_t *sampling)
{
    return (bt_logits_processor_t){.apply = add_biases, .ctx = sampling};
}

const bt_sampling_t *bt_logit_biases_of(const bt_logits_processor_t *processor)
{
    return (processor->apply == add_biases) ? processor->ctx : NULL;
}
