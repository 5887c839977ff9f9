/* SPDX-License-Identifier: Apache-2.0 */
/* Row by row, without saved state. */
#include "tests/support/reference_draw.h"

#include <math.h>

#include "kernels/draw.h"
#include "kernels/rank.h"

/* Candidates still kept. */
typedef struct kept {
    const float *x;
    uint32_t dim;
    float best;
    double temperature;
    uint64_t least; /* weight */
    uint64_t last;  /* rank */
} kept_t;

static uint32_t best_of(const float *x, uint32_t dim)
{
    uint64_t first = BT_RANK_NONE;

    for (uint32_t i = 0; i < dim; i++) {
        const uint64_t rank = bt_rank_of(x[i], i);

        first = (rank > first) ? rank : first;
    }
    return (first == BT_RANK_NONE) ? 0 : bt_rank_id(first);
}

static uint64_t weight_at(const kept_t *kept, uint32_t i)
{
    const float x = kept->x[i];
    uint64_t weight;

    if (bt_rank_of(x, i) < kept->last) {
        return 0;
    }
    weight = bt_draw_weight(x, kept->best, kept->temperature);
    return (weight < kept->least) ? 0 : weight;
}

/* Sum of the kept candidates' weights, or their number. */
static uint64_t sum_of(const kept_t *kept, bool counts)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < kept->dim; i++) {
        sum += counts ? (bt_rank_of(kept->x[i], i) >= kept->last)
                      : weight_at(kept, i);
    }
    return sum;
}

/* Moves `last` to the candidate where the sum reaches @a need: the highest rank
 * from which on the sum is at least that, searched bit by bit. */
static void keep_until(kept_t *kept, bool counts, uint64_t need)
{
    const uint64_t least = kept->last;

    kept->last = 0;
    for (uint64_t bit = 1ull << 63; bit > 0; bit >>= 1) {
        const uint64_t low = kept->last;

        kept->last |= bit;
        if (sum_of(kept, counts) < need) {
            kept->last = low;
        }
    }
    kept->last = (kept->last > least) ? kept->last : least;
}

static uint32_t draw_row(const float *x, uint32_t dim, const bt_draw_t *draw)
{
    const uint32_t best = best_of(x, dim);
    const uint64_t seed = ((uint64_t)draw->seed_high << 32) | draw->seed_low;
    kept_t kept = {.x = x,
                   .dim = dim,
                   .best = x[best],
                   .temperature = (double)draw->temperature,
                   .least = bt_draw_least(draw->min_p),
                   .last = BT_RANK_NONE + 1};
    uint64_t goal;
    uint64_t sum = 0;
    uint32_t id = 0;

    if ((draw->temperature == 0.0f) || (draw->top_k == 1) ||
        !isfinite(kept.best)) {
        return best;
    }
    if ((draw->top_k > 0) && (draw->top_k < dim)) {
        keep_until(&kept, true, draw->top_k);
    }
    if (draw->top_p < 1.0f) {
        keep_until(&kept, false,
                   bt_draw_need(draw->top_p, sum_of(&kept, false)));
    }
    goal =
        bt_draw_goal(bt_draw_bits(seed, draw->position), sum_of(&kept, false));
    for (; id < dim; id++) {
        sum += weight_at(&kept, id);
        if (sum > goal) {
            break;
        }
    }
    return id;
}

void bt_reference_draw(float *logits, const bt_batch_t *batch, uint32_t dim,
                       uint32_t *ids)
{
    for (uint32_t i = 0; i < batch->n_draws; i++) {
        const bt_draw_t *const draw = &batch->draws[i];
        bt_draw_edit_t *const edits = batch->edits + draw->first_edit;
        float *const x = logits + (size_t)draw->logit_row * dim;

        for (uint32_t e = 0; e < draw->n_edits; e++) {
            edits[e].was = x[edits[e].id];
            x[edits[e].id] =
                bt_draw_edited(edits[e].was, edits[e].what, edits[e].bias,
                               draw->repetition_penalty, draw->presence_penalty,
                               draw->frequency_penalty);
        }
        ids[i] = draw_row(x, dim, draw);
        for (uint32_t e = 0; e < draw->n_edits; e++) {
            x[edits[e].id] = edits[e].was;
        }
    }
}

#define LANES 16u
#define BLOCK 256u /* partial sums in float, then double */

static double exp_sum(const float *x, uint32_t dim, float best)
{
    const uint32_t whole = dim - dim % LANES;
    double lanes[LANES] = {0.0};
    double sum = 0.0;

    for (uint32_t begin = 0; begin < whole; begin += BLOCK) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            float part = 0.0f;

            for (uint32_t i = begin + lane; (i < begin + BLOCK) && (i < whole);
                 i += LANES) {
                part += bt_scored_term(x[i], best);
            }
            lanes[lane] += (double)part;
        }
    }
    for (uint32_t i = whole; i < dim; i++) {
        lanes[i - whole] += (double)bt_scored_term(x[i], best);
    }
    for (uint32_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

void bt_reference_score(const float *logits, const bt_batch_t *batch,
                        uint32_t dim, const uint32_t *ids, bt_scored_t *out)
{
    for (uint32_t s = 0; s < batch->n_scorings; s++) {
        const bt_scoring_t *const scoring = &batch->scorings[s];
        const float *const x = logits + (size_t)scoring->logit_row * dim;
        const uint32_t id = (scoring->draw == BT_SCORING_NO_DRAW)
                                ? scoring->id
                                : ids[scoring->draw];
        float best = x[0];

        for (uint32_t i = 1; i < dim; i++) {
            best = (x[i] > best) ? x[i] : best;
        }
        out[s] = (bt_scored_t){
            .best = best, .logit = x[id], .sum = exp_sum(x, dim, best)};
    }
}

/* Top k of a row: a heap of the k best so far, with the last of them as its
 * root, is kept in the outputs. O(dim) where few values enter once k are
 * there. */

typedef struct heap {
    uint32_t *ids;
    float *values;
    uint32_t n;
} heap_t;

static bool precedes(float x, uint32_t i, float y, uint32_t j)
{
    return (x > y) || ((x == y) && (i < j));
}

/* Puts (value, id) at position @a at, or below it. */
static void sift_down(heap_t heap, uint32_t at, float value, uint32_t id)
{
    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= heap.n) {
            break;
        }
        if ((child + 1 < heap.n) &&
            precedes(heap.values[child], heap.ids[child],
                     heap.values[child + 1], heap.ids[child + 1])) {
            child++;
        }
        if (precedes(heap.values[child], heap.ids[child], value, id)) {
            break;
        }
        heap.values[at] = heap.values[child];
        heap.ids[at] = heap.ids[child];
        at = child;
    }
    heap.values[at] = value;
    heap.ids[at] = id;
}

/* Builds a heap from any order. */
static void heapify(heap_t heap)
{
    for (uint32_t i = heap.n / 2; i > 0; i--) {
        sift_down(heap, i - 1, heap.values[i - 1], heap.ids[i - 1]);
    }
}

/* Sorts a heap: each removed entry goes to its end. */
static void put_in_order(heap_t heap)
{
    while (heap.n > 1) {
        const uint32_t last = --heap.n;
        const float value = heap.values[last];
        const uint32_t id = heap.ids[last];

        heap.values[last] = heap.values[0];
        heap.ids[last] = heap.ids[0];
        sift_down(heap, 0, value, id);
    }
}

static void top_of_row(const float *x, uint32_t dim, uint32_t k, uint32_t *ids,
                       float *values)
{
    heap_t heap = {.ids = ids, .values = values};

    for (uint32_t i = 0; i < dim; i++) {
        const float value = x[i];

        if (!(value > -INFINITY)) {
            continue;
        }
        if (heap.n < k) {
            ids[heap.n] = i;
            values[heap.n++] = value;
            if (heap.n == k) {
                heapify(heap);
            }
        } else if (value > values[0]) { /* on ties the earlier one stays */
            sift_down(heap, 0, value, i);
        }
    }
    if (heap.n < k) {
        heapify(heap);
    }
    put_in_order(heap);
    for (uint32_t j = heap.n; j < k; j++) {
        ids[j] = UINT32_MAX;
        values[j] = -INFINITY;
    }
}

void bt_reference_top(const float *x, uint32_t n_rows, uint32_t dim, uint32_t k,
                      uint32_t *ids, float *values)
{
    for (size_t r = 0; r < n_rows; r++) {
        top_of_row(x + r * dim, dim, k, ids + r * k, values + r * k);
    }
}
