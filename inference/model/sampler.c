/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/sampler.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/exp_negative.h"
#include "inference/model/philox.h"
#include "inference/model/select.h"

/* Candidates so many nats below the best are only looked at when the others did
 * not decide: an ordinary distribution has a few hundred above and tens of
 * thousands below. */
#define LIGHT_NATS 10.0

/* So many are kept by a heap, which hardly any id enters; more by selecting
 * the last of them. */
#define HEAP_TOP_K 256
_Static_assert(HEAP_TOP_K <= BT_SAMPLER_MAX_NEEDS, "how many are kept");

#define LANES 8 /* of the sum over all weights, and of the best logit */

struct bt_sampler {
    uint32_t n_vocab;
    bt_candidate_t *list;    /* n_vocab */
    bt_candidate_t *ordered; /* BT_SAMPLER_MAX_NEEDS; best first */
    uint32_t n_ordered;      /* of a draw from candidates */
    double *weights;         /* n_vocab, by id: exp((logit - best) / T) */
    uint32_t *counts;        /* n_vocab, all zero between calls */
};

bt_status_t bt_sampler_create(uint32_t n_vocab, bt_sampler_t **sampler_p)
{
    bt_sampler_t *sampler;

    if (n_vocab == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    sampler = bt_calloc(1, sizeof(*sampler));
    if (sampler == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    sampler->n_vocab = n_vocab;
    sampler->list = bt_calloc(n_vocab, sizeof(*sampler->list));
    sampler->ordered =
        bt_calloc(BT_SAMPLER_MAX_NEEDS, sizeof(*sampler->ordered));
    sampler->weights = bt_calloc(n_vocab, sizeof(*sampler->weights));
    sampler->counts = bt_calloc(n_vocab, sizeof(*sampler->counts));
    if ((sampler->list == NULL) || (sampler->ordered == NULL) ||
        (sampler->weights == NULL) || (sampler->counts == NULL)) {
        bt_sampler_destroy(sampler);
        return BT_ERR_NO_MEMORY;
    }
    *sampler_p = sampler;
    return BT_OK;
}

void bt_sampler_destroy(bt_sampler_t *sampler)
{
    if (sampler == NULL) {
        return;
    }
    bt_free(sampler->list);
    bt_free(sampler->ordered);
    bt_free(sampler->weights);
    bt_free(sampler->counts);
    bt_free(sampler);
}

double bt_sampler_uniform(uint64_t seed, uint64_t position)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};

    bt_philox4x32_10(key, ctr);
    return (double)((((uint64_t)ctr[0] << 32) | ctr[1]) >> 11) * 0x1p-53;
}

static bool penalizes(const bt_sampling_t *params)
{
    return (params->repetition_penalty != 1.0f) ||
           (params->presence_penalty != 0.0f) ||
           (params->frequency_penalty != 0.0f);
}

/* The logit of a token of the history, which was generated @a n times. */
static float penalized(const bt_sampling_t *params, float logit, uint32_t n)
{
    const float repetition = params->repetition_penalty;

    logit = (logit > 0.0f) ? logit / repetition : logit * repetition;
    if (n > 0) {
        logit -=
            params->presence_penalty + params->frequency_penalty * (float)n;
    }
    return logit;
}

/* counts[id] of each token of the history: 1 and how often it was generated. */
static void count_history(bt_sampler_t *sampler, const uint32_t *history,
                          uint32_t n_history, uint32_t n_prompt)
{
    uint32_t *const counts = sampler->counts;

    for (uint32_t i = 0; i < n_history; i++) {
        const uint32_t id = history[i];

        if (id < sampler->n_vocab) {
            counts[id] += (counts[id] == 0) ? 1 : 0;
            counts[id] += (i >= n_prompt) ? 1 : 0;
        }
    }
}

/* Each distinct token of the history once, which clears the counts again. */
static void apply_penalties(bt_sampler_t *sampler, const bt_sampling_t *params,
                            float *logits, const uint32_t *history,
                            uint32_t n_history, uint32_t n_prompt)
{
    uint32_t *const counts = sampler->counts;

    if (!penalizes(params)) {
        return;
    }
    count_history(sampler, history, n_history, n_prompt);
    for (uint32_t i = 0; i < n_history; i++) {
        const uint32_t id = history[i];

        if ((id < sampler->n_vocab) && (counts[id] > 0)) {
            logits[id] = penalized(params, logits[id], counts[id] - 1);
            counts[id] = 0;
        }
    }
}

/* The token that a bad word ends with, where all before it is there; else
 * UINT32_MAX. */
static uint32_t banned_by(const bt_bad_word_t *word, const uint32_t *history,
                          uint32_t n_history)
{
    if ((word->n == 0) || (word->n - 1 > n_history)) {
        return UINT32_MAX;
    }
    if ((word->n > 1) && (memcmp(&history[n_history - (word->n - 1)], word->ids,
                                 (word->n - 1) * sizeof(*history)) != 0)) {
        return UINT32_MAX;
    }
    return word->ids[word->n - 1];
}

/* Takes a token out of what can be drawn. */
typedef void (*ban_fn_t)(bt_sampler_t *sampler, float *logits, uint32_t id);

static void ban_logit(bt_sampler_t *sampler, float *logits, uint32_t id)
{
    if (id < sampler->n_vocab) {
        logits[id] = -INFINITY;
    }
}

static void apply_bans(bt_sampler_t *sampler, const bt_sampling_t *params,
                       ban_fn_t ban, float *logits, const uint32_t *history,
                       uint32_t n_history, uint32_t n_prompt)
{
    for (uint32_t i = 0; i < params->n_bad_words; i++) {
        ban(sampler, logits,
            banned_by(&params->bad_words[i], history, n_history));
    }
    if (n_history - n_prompt < params->min_tokens) {
        for (uint32_t i = 0; i < params->n_end_ids; i++) {
            ban(sampler, logits, params->end_ids[i]);
        }
    }
}

/* How many of the first candidates penalties may move, at most; UINT32_MAX: any
 * that comes later may be raised. */
static uint32_t may_fall(const bt_sampling_t *params, uint32_t n_prompt,
                         uint32_t n_drawn)
{
    if (!penalizes(params)) {
        return 0;
    }
    if (!(params->repetition_penalty >= 1.0f) ||
        !(params->presence_penalty >= 0.0f) ||
        !(params->frequency_penalty >= 0.0f) ||
        (n_prompt > UINT32_MAX - n_drawn)) {
        return UINT32_MAX;
    }
    return (params->repetition_penalty > 1.0f) ? n_prompt + n_drawn : n_drawn;
}

uint32_t bt_sampler_needs(const bt_sampling_t *params, uint32_t n_prompt,
                          uint32_t n_drawn)
{
    /* Of those that come first so many may be banned, and so many fall behind
     * others, which all keep their order. */
    const uint64_t n_gone =
        (uint64_t)params->n_bad_words +
        ((n_drawn < params->min_tokens) ? params->n_end_ids : 0) +
        may_fall(params, n_prompt, n_drawn);
    uint32_t kept = params->top_k;

    if (params->temperature == 0.0f) {
        kept = 1;
    }
    if ((kept == 0) || (kept > HEAP_TOP_K) ||
        (n_gone > BT_SAMPLER_MAX_NEEDS - kept)) {
        return 0;
    }
    return kept + (uint32_t)n_gone;
}

/* Lanes, because a single running maximum waits for itself: 55 us for 50,000
 * logits, which were 3 % of a decode step of 28 sequences. */
uint32_t bt_sampler_best(const float *logits, uint32_t n)
{
    float best[LANES];
    uint32_t id = 0;
    uint32_t i;

    for (uint32_t lane = 0; lane < LANES; lane++) {
        best[lane] = -INFINITY;
    }
    for (i = 0; n - i >= LANES; i += LANES) {
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const float x = logits[i + lane];

            best[lane] = (x > best[lane]) ? x : best[lane];
        }
    }
    for (; i < n; i++) {
        best[0] = (logits[i] > best[0]) ? logits[i] : best[0];
    }
    for (uint32_t lane = 1; lane < LANES; lane++) {
        best[0] = (best[lane] > best[0]) ? best[lane] : best[0];
    }
    /* Nothing but -INFINITY and NaN: as if the first were the best. */
    while ((best[0] > -INFINITY) && (logits[id] != best[0])) {
        id++;
    }
    return id;
}

/* ordered[0 .. result) = the k first candidates. */
static uint32_t order_top_k(bt_sampler_t *sampler, const float *logits,
                            uint32_t k)
{
    uint32_t n = bt_select_first(logits, sampler->n_vocab, k, sampler->list);
    const uint32_t n_kept = n;

    while (n > 0) {
        const uint32_t at = n - 1;

        sampler->ordered[at] = bt_select_pop_last(sampler->list, &n);
    }
    return n_kept;
}

static double weigh(float logit, float best, double temperature)
{
    return bt_exp_negative(((double)logit - (double)best) / temperature);
}

/* Weights by id and their sum, in lanes of i % LANES, then lane by lane. */
static double weigh_all(bt_sampler_t *sampler, const float *logits, float best,
                        double temperature)
{
    const uint32_t n = sampler->n_vocab;
    double *const weights = sampler->weights;
    double lanes[LANES] = {0.0};
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        weights[i] = weigh(logits[i], best, temperature);
    }
    for (uint32_t i = 0; i < n; i++) {
        lanes[i % LANES] += weights[i];
    }
    for (uint32_t i = 0; i < LANES; i++) {
        sum += lanes[i];
    }
    return sum;
}

/* The first of ordered[0 .. n) at which the running sum passes u times the
 * mass of all of them. */
static uint32_t draw_ordered(const bt_sampler_t *sampler, uint32_t n,
                             double mass, double u)
{
    const bt_candidate_t *const ordered = sampler->ordered;
    double sum = 0.0;

    for (uint32_t i = 0; i + 1 < n; i++) {
        sum += sampler->weights[ordered[i].id];
        if (sum > u * mass) {
            return ordered[i].id;
        }
    }
    return ordered[n - 1].id;
}

/* How many of ordered[0 .. n) hold the mass @a need; *mass_p is theirs. */
static uint32_t prefix_with_mass(const bt_sampler_t *sampler, uint32_t n,
                                 double need, double *mass_p)
{
    double sum = 0.0;
    uint32_t kept = 0;

    while (kept < n) {
        sum += sampler->weights[sampler->ordered[kept++].id];
        if (sum >= need) {
            break;
        }
    }
    *mass_p = sum;
    return kept;
}

/* Those that can be drawn and do not come behind *limit: the heavy ones, or the
 * others.
 * @param [in,out] sum_p  grows by their weights
 * @return how many are in the list */
static uint32_t collect(bt_sampler_t *sampler, const float *logits,
                        double light, bool heavy, const bt_candidate_t *limit,
                        double *sum_p)
{
    const bt_candidate_t last =
        (limit != NULL)
            ? *limit
            : (bt_candidate_t){.logit = -INFINITY, .id = UINT32_MAX};
    double sum = *sum_p;
    uint32_t n = 0;

    for (uint32_t id = 0; id < sampler->n_vocab; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        const double weight = sampler->weights[id];
        const bool counts = (weight > 0.0) &
                            (((double)c.logit >= light) == heavy) &
                            !bt_candidate_precedes(last, c);

        sampler->list[n] = c; /* no branch: it would be guessed wrong */
        n += counts;
        sum += counts ? weight : 0.0;
    }
    *sum_p = sum;
    return n;
}

/* The candidate at which the running sum of all weights passes the goal.
 * @param [in]  light  logits from here on are heavy
 * @param [out] sum_p  the sum with it */
static bt_candidate_t find(bt_sampler_t *sampler, const float *logits,
                           double light, const bt_candidate_t *limit,
                           bt_select_goal_t goal, double *sum_p)
{
    double before = 0.0;
    double sum = 0.0;
    uint32_t n = collect(sampler, logits, light, true, limit, &sum);

    if (!bt_select_passes(goal, sum)) {
        const double heavy = sum;
        const uint32_t n_light =
            collect(sampler, logits, light, false, limit, &sum);

        if (n_light > 0) {
            n = n_light;
            before = heavy;
        } else { /* rounding: it is the last of the heavy ones */
            n = collect(sampler, logits, light, true, limit, &sum);
        }
    }
    return bt_select(sampler->list, n, sampler->weights, before, goal, sum_p);
}

/* Draw from all whose weight is above 0; their sum is @a mass. */
static uint32_t draw_weighted(bt_sampler_t *sampler,
                              const bt_sampling_t *params, const float *logits,
                              float best, double mass, double u)
{
    const double light =
        (double)best - LIGHT_NATS * (double)params->temperature;
    bt_select_goal_t goal = {.need = (double)params->top_p * mass,
                             .reach = true};
    const bt_candidate_t *limit = NULL;
    bt_candidate_t last;
    double sum;

    if (params->top_p < 1.0f) {
        last = find(sampler, logits, light, NULL, goal, &mass);
        limit = &last;
    }
    goal = (bt_select_goal_t){.need = u * mass};
    return find(sampler, logits, light, limit, goal, &sum).id;
}

/* Of ordered[0 .. n), the top_k. */
static uint32_t draw_few(bt_sampler_t *sampler, const bt_sampling_t *params,
                         uint32_t n, double u)
{
    const float best = sampler->ordered[0].logit;
    double mass = 0.0;
    uint32_t kept = 0;

    /* min_p and top_k keep the first ones each: whichever is applied first. */
    for (; kept < n; kept++) {
        const bt_candidate_t c = sampler->ordered[kept];
        const double weight = weigh(c.logit, best, (double)params->temperature);

        if (weight < (double)params->min_p) {
            break;
        }
        sampler->weights[c.id] = weight;
        mass += weight;
    }
    if (params->top_p < 1.0f) {
        kept = prefix_with_mass(sampler, kept, (double)params->top_p * mass,
                                &mass);
    }
    return draw_ordered(sampler, kept, mass, u);
}

/* Take the weight from all that have less than the best one's, which is 1,
 * times min_p. @return what is left, in the lanes of weigh_all() */
static double drop_light(bt_sampler_t *sampler, double min_p)
{
    const uint32_t n = sampler->n_vocab;
    double *const weights = sampler->weights;
    double lanes[LANES] = {0.0};
    double sum = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        weights[i] = (weights[i] >= min_p) ? weights[i] : 0.0;
        lanes[i % LANES] += weights[i];
    }
    for (uint32_t i = 0; i < LANES; i++) {
        sum += lanes[i];
    }
    return sum;
}

/* Take the weight from all behind the k-th candidate. @return what is left */
static double weigh_top_k(bt_sampler_t *sampler, const float *logits,
                          uint32_t k, double mass)
{
    const bt_select_goal_t goal = {.need = (double)k, .reach = true};
    const uint32_t n_vocab = sampler->n_vocab;
    bt_candidate_t last;
    uint32_t n = 0;
    double sum;

    for (uint32_t id = 0; id < n_vocab; id++) {
        if (sampler->weights[id] > 0.0) {
            sampler->list[n++] =
                (bt_candidate_t){.logit = logits[id], .id = id};
        }
    }
    if (n <= k) {
        return mass;
    }
    last = bt_select(sampler->list, n, NULL, 0.0, goal, &sum);
    sum = 0.0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        if (bt_candidate_precedes(last, c)) {
            sampler->weights[id] = 0.0;
        }
        sum += sampler->weights[id];
    }
    return sum;
}

static uint32_t draw_all(bt_sampler_t *sampler, const bt_sampling_t *params,
                         const float *logits, float best, double u)
{
    double mass = weigh_all(sampler, logits, best, (double)params->temperature);

    if (params->min_p > 0.0f) {
        mass = drop_light(sampler, (double)params->min_p);
    }
    if ((params->top_k > 0) && (params->top_k < sampler->n_vocab)) {
        mass = weigh_top_k(sampler, logits, params->top_k, mass);
    }
    return draw_weighted(sampler, params, logits, best, mass, u);
}

uint32_t bt_sampler_draw(bt_sampler_t *sampler, const bt_sampling_t *params,
                         float *logits, const uint32_t *history,
                         uint32_t n_history, uint32_t n_prompt,
                         uint32_t position)
{
    uint32_t best;
    double u;

    apply_penalties(sampler, params, logits, history, n_history, n_prompt);
    apply_bans(sampler, params, ban_logit, logits, history, n_history,
               n_prompt);
    best = bt_sampler_best(logits, sampler->n_vocab);
    /* An infinite best logit leaves nothing to draw. */
    if ((params->temperature == 0.0f) || (params->top_k == 1) ||
        !isfinite(logits[best])) {
        return best;
    }
    u = bt_sampler_uniform(params->seed, position);
    if ((params->top_k > 0) && (params->top_k <= HEAP_TOP_K) &&
        (params->top_k < sampler->n_vocab)) {
        return draw_few(sampler, params,
                        order_top_k(sampler, logits, params->top_k), u);
    }
    return draw_all(sampler, params, logits, logits[best], u);
}

/* ---- from candidates alone ---- */

static void ban_candidate(bt_sampler_t *sampler, float *logits, uint32_t id)
{
    (void)logits;
    for (uint32_t i = 0; i < sampler->n_ordered; i++) {
        if (sampler->ordered[i].id == id) {
            sampler->ordered[i].logit = -INFINITY;
        }
    }
}

static void penalize_candidates(bt_sampler_t *sampler,
                                const bt_sampling_t *params,
                                const uint32_t *history, uint32_t n_history,
                                uint32_t n_prompt)
{
    uint32_t *const counts = sampler->counts;

    if (!penalizes(params)) {
        return;
    }
    count_history(sampler, history, n_history, n_prompt);
    for (uint32_t i = 0; i < sampler->n_ordered; i++) {
        bt_candidate_t *const c = &sampler->ordered[i];

        if (counts[c->id] > 0) {
            c->logit = penalized(params, c->logit, counts[c->id] - 1);
        }
    }
    for (uint32_t i = 0; i < n_history; i++) {
        if (history[i] < sampler->n_vocab) {
            counts[history[i]] = 0;
        }
    }
}

static void take_first(bt_sampler_t *sampler, const bt_first_t *first)
{
    uint32_t n = 0;

    for (uint32_t i = 0; (i < first->n) && (n < BT_SAMPLER_MAX_NEEDS); i++) {
        if (first->ids[i] < sampler->n_vocab) {
            sampler->ordered[n++] = (bt_candidate_t){.logit = first->logits[i],
                                                     .id = first->ids[i]};
        }
    }
    sampler->n_ordered = n;
}

uint32_t bt_sampler_draw_first(bt_sampler_t *sampler,
                               const bt_sampling_t *params,
                               const bt_first_t *first, const uint32_t *history,
                               uint32_t n_history, uint32_t n_prompt,
                               uint32_t position)
{
    const bt_candidate_t *const ordered = sampler->ordered;
    uint32_t n;

    take_first(sampler, first);
    penalize_candidates(sampler, params, history, n_history, n_prompt);
    apply_bans(sampler, params, ban_candidate, NULL, history, n_history,
               n_prompt);
    n = bt_select_order(sampler->ordered, sampler->n_ordered);
    if (n == 0) {
        return 0; /* bt_sampler_best() of a row without any */
    }
    if ((params->temperature == 0.0f) || (params->top_k == 1) ||
        !isfinite(ordered[0].logit)) {
        return ordered[0].id;
    }
    n = (n < params->top_k) ? n : params->top_k;
    return draw_few(sampler, params, n,
                    bt_sampler_uniform(params->seed, position));
}
