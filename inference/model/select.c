/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/select.h"

#include <math.h>
#include <stddef.h>

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
