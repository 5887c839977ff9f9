/* SPDX-License-Identifier: Apache-2.0 */
/* draw() and score() (kernels.h) implemented directly from the definition,
 * row by row without saved state: the reference for back ends with memory of
 * their own. The CPU's engine samples by inference/model/sampler.c, which is
 * faster. */
#include <math.h>

#include "kernels/cpu/backend.h"
#include "kernels/draw_formula.h"
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

void bt_cpu_draw(bt_backend_t *be, float *logits, const bt_batch_t *batch,
                 uint32_t dim, uint32_t *ids)
{
    (void)be;
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

void bt_cpu_score(bt_backend_t *be, const float *logits,
                  const bt_batch_t *batch, uint32_t dim, const uint32_t *ids,
                  bt_scored_t *out)
{
    (void)be;
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
