/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/sampler.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/logits.h"
#include "inference/model/processors.h"
#include "kernels/draw.h"

/* Candidates this many nats below the best are only read when the others did
 * not decide: an ordinary distribution has a few hundred above and tens of
 * thousands below. */
#define LIGHT_NATS 10.0

/* This many are kept in a heap, which hardly any id enters; more are found by
 * selecting the last of them. */
#define HEAP_TOP_K 256
_Static_assert(HEAP_TOP_K <= BT_SAMPLER_MAX_NEEDS, "how many are kept");

#define LANES 8 /* lanes of the search for the best logit */

struct bt_sampler {
    uint32_t n_vocab;
    bt_candidate_t *list;    /* n_vocab */
    bt_candidate_t *ordered; /* HEAP_TOP_K; best first */
    uint64_t *weights;       /* n_vocab, by id (draw.h) */
    uint32_t *counts;        /* n_vocab, all zero between calls */
    uint64_t *mask;          /* n_vocab bits */
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
    sampler->ordered = bt_calloc(HEAP_TOP_K, sizeof(*sampler->ordered));
    sampler->weights = bt_calloc(n_vocab, sizeof(*sampler->weights));
    sampler->counts = bt_calloc(n_vocab, sizeof(*sampler->counts));
    sampler->mask =
        bt_calloc(((size_t)n_vocab + 63) / 64, sizeof(*sampler->mask));
    if ((sampler->mask == NULL) || (sampler->list == NULL) ||
        (sampler->ordered == NULL) || (sampler->weights == NULL) ||
        (sampler->counts == NULL)) {
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
    bt_free(sampler->mask);
    bt_free(sampler);
}

uint64_t *bt_sampler_mask(bt_sampler_t *sampler)
{
    return sampler->mask;
}

bool bt_sampling_reads_tokens(const bt_sampling_t *params)
{
    bool reads =
        bt_sampler_penalizes(params) || bt_sampling_has_processors(params);

    for (uint32_t i = 0; i < params->n_bad_words; i++) {
        reads = reads || (params->bad_words[i].n > 1);
    }
    return reads;
}

uint32_t bt_sampler_counts_from(const bt_sampling_t *params, uint32_t n_prompt)
{
    const uint32_t n = params->processors.n_penalized_prompt;

    return (n < n_prompt) ? n_prompt - n : 0;
}

/* Sets counts[id] of each token of the history: 1 and how often it counts for
 * the presence and the frequency penalty. */
static void count_history(bt_sampler_t *sampler, const bt_sampling_t *params,
                          const bt_history_t *history)
{
    const uint32_t from = bt_sampler_counts_from(params, history->n_prompt);
    uint32_t *const counts = sampler->counts;

    for (uint32_t i = 0; i < history->n; i++) {
        const uint32_t id = history->tokens[i];

        if (id < sampler->n_vocab) {
            counts[id] += (counts[id] == 0) ? 1 : 0;
            counts[id] += (i >= from) ? 1 : 0;
        }
    }
}

/* Visits each distinct token of the history once, which clears the counts. */
static void apply_penalties(bt_sampler_t *sampler, const bt_sampling_t *params,
                            float *logits, const bt_history_t *history)
{
    uint32_t *const counts = sampler->counts;

    if (!bt_sampler_penalizes(params)) {
        return;
    }
    count_history(sampler, params, history);
    for (uint32_t i = 0; i < history->n; i++) {
        const uint32_t id = history->tokens[i];

        if ((id < sampler->n_vocab) && (counts[id] > 0)) {
            logits[id] = bt_draw_penalized(
                logits[id], counts[id] - 1, params->repetition_penalty,
                params->presence_penalty, params->frequency_penalty);
            counts[id] = 0;
        }
    }
}

static void ban_token(void *logits, uint32_t id)
{
    ((float *)logits)[id] = -INFINITY;
}

/* Returns how many of the first candidates penalties may move, at most;
 * UINT32_MAX: any later one may be raised. */
static uint32_t may_fall(const bt_sampling_t *params, uint32_t n_prompt,
                         uint32_t n_drawn)
{
    if (!bt_sampler_penalizes(params)) {
        return 0;
    }
    if (!(params->repetition_penalty >= 1.0f) ||
        !(params->presence_penalty >= 0.0f) ||
        !(params->frequency_penalty >= 0.0f) ||
        (n_prompt > UINT32_MAX - n_drawn)) {
        return UINT32_MAX;
    }
    return ((params->repetition_penalty > 1.0f) ||
            (params->processors.n_penalized_prompt > 0))
               ? n_prompt + n_drawn
               : n_drawn;
}

/* True when processors may move or remove any number of candidates. */
static bool moves_many(const bt_processor_options_t *o)
{
    return (o->no_repeat_ngram_size > 0) || (o->dry_multiplier > 0.0f) ||
           (o->n_ids > 0) || bt_processors_filter(o);
}

uint32_t bt_sampler_needs(const bt_sampling_t *params, uint32_t n_prompt,
                          uint32_t n_drawn)
{
    /* Among the first candidates at most this many are banned, and this many
     * fall behind others, which all keep their order. */
    const uint64_t n_gone =
        (uint64_t)params->n_bad_words +
        ((n_drawn < params->min_tokens) ? params->n_end_ids : 0) +
        may_fall(params, n_prompt, n_drawn);
    uint32_t kept = params->top_k;

    if (params->temperature == 0.0f) {
        kept = 1;
    }
    if ((kept == 0) || (kept > HEAP_TOP_K) ||
        (n_gone > BT_SAMPLER_MAX_NEEDS - kept) ||
        moves_many(&params->processors)) {
        return 0;
    }
    return kept + (uint32_t)n_gone;
}

/* Uses lanes, because a single running maximum is bound by its own latency: 55
 * us for 50,000 logits, which were 3 % of a decode step of 28 sequences. */
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
    /* Only -INFINITY and NaN: as if the first were the best. */
    while ((best[0] > -INFINITY) && (logits[id] != best[0])) {
        id++;
    }
    return id;
}

/* Fills ordered[0 .. result) with the k first candidates. */
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

static uint64_t weigh(float logit, float best, const bt_sampling_t *params)
{
    return bt_draw_weight(logit, best, (double)params->temperature);
}

/* Computes weights by id, 0 for those below @a least. @return their sum */
static uint64_t weigh_all(bt_sampler_t *sampler, const float *logits,
                          float best, const bt_sampling_t *params)
{
    const uint64_t least = bt_draw_least(params->min_p);
    const double temperature = (double)params->temperature;
    const uint32_t n = sampler->n_vocab;
    uint64_t *const weights = sampler->weights;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        weights[i] = bt_draw_weight(logits[i], best, temperature);
    }
    for (uint32_t i = 0; i < n; i++) {
        weights[i] = (weights[i] >= least) ? weights[i] : 0;
        sum += weights[i];
    }
    return sum;
}

/* The heavy ones, or the others, of those that have a weight.
 * @param [in]     light  logits from here on are heavy
 * @param [in,out] sum_p  grows by their weights
 * @return how many are in the list */
static uint32_t collect(bt_sampler_t *sampler, const float *logits,
                        double light, bool heavy, uint64_t *sum_p)
{
    uint64_t sum = *sum_p;
    uint32_t n = 0;

    for (uint32_t id = 0; id < sampler->n_vocab; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};
        const uint64_t weight = sampler->weights[id];
        const bool counts =
            (weight > 0) & (((double)c.logit >= light) == heavy);

        sampler->list[n] = c; /* branchless: a branch would be mispredicted */
        n += counts;
        sum += counts ? weight : 0;
    }
    *sum_p = sum;
    return n;
}

/* Returns the candidate at which the running sum of all weights reaches @a
 * need. */
static bt_candidate_t find(bt_sampler_t *sampler, const float *logits,
                           double light, uint64_t need)
{
    uint64_t before = 0;
    uint64_t sum = 0;
    uint32_t n = collect(sampler, logits, light, true, &sum);

    if (sum < need) {
        before = sum;
        n = collect(sampler, logits, light, false, &sum);
    }
    return bt_select(sampler->list, n, sampler->weights, need - before);
}

/* Removes the weight of all candidates behind @a last.
 * @return the remaining weight */
static uint64_t keep_until(bt_sampler_t *sampler, const float *logits,
                           bt_candidate_t last)
{
    uint64_t *const weights = sampler->weights;
    uint64_t sum = 0;

    for (uint32_t id = 0; id < sampler->n_vocab; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        weights[id] = bt_candidate_precedes(last, c) ? 0 : weights[id];
        sum += weights[id];
    }
    return sum;
}

/* Keeps the first k candidates with a weight. @return the remaining weight */
static uint64_t keep_top_k(bt_sampler_t *sampler, const float *logits,
                           uint32_t k, uint64_t mass)
{
    uint32_t n = 0;

    for (uint32_t id = 0; id < sampler->n_vocab; id++) {
        sampler->list[n] = (bt_candidate_t){.logit = logits[id], .id = id};
        n += (sampler->weights[id] > 0);
    }
    return (n <= k) ? mass
                    : keep_until(sampler, logits,
                                 bt_select(sampler->list, n, NULL, k));
}

/* Draws from the candidates with a weight, after all filters. */
static uint32_t draw_all(bt_sampler_t *sampler, const bt_sampling_t *params,
                         const float *logits, float best, float top_p,
                         uint32_t position)
{
    const bt_processor_options_t *const o = &params->processors;
    const double temperature = (double)params->temperature;
    const double light = (double)best - LIGHT_NATS * temperature;
    const uint32_t n_vocab = sampler->n_vocab;
    uint64_t *const weights = sampler->weights;
    uint64_t mass = weigh_all(sampler, logits, best, params);
    uint64_t sum = 0;
    uint64_t goal;
    uint32_t id = 0;

    if (o->top_n_sigma > 0.0f) {
        mass =
            bt_processors_top_n_sigma(o->top_n_sigma, logits, n_vocab, weights);
    }
    if ((params->top_k > 0) && (params->top_k < n_vocab)) {
        mass = keep_top_k(sampler, logits, params->top_k, mass);
    }
    if (o->typical_p > 0.0f) {
        mass = bt_processors_typical(o->typical_p, logits, best, temperature,
                                     n_vocab, weights, mass, sampler->list);
    }
    if (top_p < 1.0f) {
        mass =
            keep_until(sampler, logits,
                       find(sampler, logits, light, bt_draw_need(top_p, mass)));
    }
    if (o->xtc_probability > 0.0f) {
        mass = bt_processors_xtc(o, params->seed, position, logits, n_vocab,
                                 weights, mass);
    }
    goal = bt_draw_goal(bt_draw_bits(params->seed, position), mass);
    while ((sum += sampler->weights[id]) <= goal) {
        id++;
    }
    return id;
}

/* Sorts a few candidates by ascending id. */
static void order_by_id(bt_candidate_t *list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const bt_candidate_t c = list[i];
        uint32_t at = i;

        for (; (at > 0) && (c.id < list[at - 1].id); at--) {
            list[at] = list[at - 1];
        }
        list[at] = c;
    }
}

/* Draws from ordered[0 .. n), the top_k. */
static uint32_t draw_few(bt_sampler_t *sampler, const bt_sampling_t *params,
                         uint32_t n, float top_p, uint64_t bits)
{
    bt_candidate_t *const ordered = sampler->ordered;
    const uint64_t least = bt_draw_least(params->min_p);
    uint64_t mass = 0;
    uint64_t sum = 0;
    uint64_t goal;
    uint32_t i;

    for (i = 0; i < n; i++) {
        const uint64_t weight =
            weigh(ordered[i].logit, ordered[0].logit, params);

        sampler->weights[ordered[i].id] = (weight >= least) ? weight : 0;
        mass += sampler->weights[ordered[i].id];
    }
    if (top_p < 1.0f) {
        const uint64_t need = bt_draw_need(top_p, mass);

        for (mass = 0, n = 0; mass < need; n++) {
            mass += sampler->weights[ordered[n].id];
        }
    }
    order_by_id(ordered, n);
    goal = bt_draw_goal(bits, mass);
    for (i = 0; (sum += sampler->weights[ordered[i].id]) <= goal; i++) {
    }
    return ordered[i].id;
}

/* Applies everything that changes logits. */
static void edit(bt_sampler_t *sampler, const bt_sampling_t *params,
                 float *logits, const bt_history_t *history,
                 bt_token_mask_t mask)
{
    const uint64_t n_lengths = (uint64_t)sampler->n_vocab *
                               sizeof(*sampler->weights) / sizeof(uint32_t);

    apply_penalties(sampler, params, logits, history);
    bt_processors_dry(&params->processors, logits, sampler->n_vocab, history,
                      (uint32_t *)(void *)sampler->weights,
                      (n_lengths < UINT32_MAX) ? (uint32_t)n_lengths
                                               : UINT32_MAX,
                      sampler->counts);
    bt_processors_mask(mask, logits, sampler->n_vocab);
}

/* Removes what the request does not allow. */
static void edit_bans(bt_sampler_t *sampler, const bt_sampling_t *params,
                      float *logits, const bt_history_t *history)
{
    bt_processors_allow(&params->processors, logits, sampler->n_vocab,
                        sampler->counts);
    bt_sampler_bans(params, sampler->n_vocab, history, ban_token, logits);
}

/* Tokens of a mask that has few, ascending. */
typedef struct few {
    uint32_t n; /* 0: the mask has more, or there is none */
    uint32_t ids[BT_TOKEN_MASK_FEW];
} few_t;

static void find_few(bt_token_mask_t mask, uint32_t n_vocab, few_t *few)
{
    few->n = (mask != NULL) ? bt_token_mask_list(mask, n_vocab,
                                                 BT_TOKEN_MASK_FEW, few->ids)
                            : 0;
}

/* Returns the id of the largest logit; all but those of few, if there are any,
 * are -INFINITY. */
static uint32_t best_of(const bt_sampler_t *sampler, const float *logits,
                        const few_t *few)
{
    uint32_t best;

    if (few->n == 0) {
        return bt_sampler_best(logits, sampler->n_vocab);
    }
    best = few->ids[0];
    for (uint32_t i = 0; i < few->n; i++) {
        const float logit = logits[few->ids[i]];

        if ((logit > logits[best]) || !(logits[best] > -INFINITY)) {
            best = few->ids[i];
        }
    }
    return best;
}

/* @return the most probable token; its logit is -INFINITY where none is left */
static uint32_t edit_all(bt_sampler_t *sampler, const bt_sampling_t *params,
                         float *logits, const bt_history_t *history,
                         bt_token_mask_t mask, const few_t *few)
{
    uint32_t kept = 0;
    float logit = -INFINITY;
    uint32_t best;

    edit(sampler, params, logits, history, mask);
    if (mask != NULL) {
        kept = best_of(sampler, logits, few);
        logit = logits[kept];
    }
    edit_bans(sampler, params, logits, history);
    best = best_of(sampler, logits, few);
    if ((logit > -INFINITY) && !(logits[best] > -INFINITY)) {
        logits[kept] = logit;
        best = kept;
    }
    return best;
}

void bt_sampler_change(bt_sampler_t *sampler, const bt_sampling_t *params,
                       float *logits, const bt_history_t *history,
                       bt_token_mask_t mask)
{
    few_t few;

    find_few(mask, sampler->n_vocab, &few);
    (void)edit_all(sampler, params, logits, history, mask, &few);
}

/* Draws from edited logits whose best is above -INFINITY and finite. */
static uint32_t draw_edited(bt_sampler_t *sampler, const bt_sampling_t *params,
                            const float *logits, float best, float top_p,
                            uint32_t position)
{
    if ((params->top_k > 0) && (params->top_k <= HEAP_TOP_K) &&
        (params->top_k < sampler->n_vocab) &&
        !bt_processors_filter(&params->processors)) {
        return draw_few(sampler, params,
                        order_top_k(sampler, logits, params->top_k), top_p,
                        bt_draw_bits(params->seed, position));
    }
    return draw_all(sampler, params, logits, best, top_p, position);
}

/* As draw_edited(), of a mask's tokens alone: a vocabulary that has only them,
 * in their order, gives the token that all would, since no other has a
 * weight. */
static uint32_t draw_of_few(const bt_sampler_t *sampler,
                            const bt_sampling_t *params, const float *logits,
                            float best, float top_p, uint32_t position,
                            const few_t *few)
{
    bt_sampler_t alone = *sampler;
    float some[BT_TOKEN_MASK_FEW];

    alone.n_vocab = few->n;
    for (uint32_t i = 0; i < few->n; i++) {
        some[i] = logits[few->ids[i]];
    }
    return few->ids[draw_edited(&alone, params, some, best, top_p, position)];
}

uint32_t bt_sampler_draw_masked(bt_sampler_t *sampler,
                                const bt_sampling_t *params, float *logits,
                                const bt_history_t *history, uint32_t position,
                                bt_token_mask_t mask)
{
    const bt_processor_options_t *const o = &params->processors;
    const uint32_t forced = bt_processors_forced(o, history);
    few_t few;
    float top_p;
    uint32_t best;

    if ((forced < sampler->n_vocab) && bt_token_mask_has(mask, forced)) {
        return forced;
    }
    find_few(mask, sampler->n_vocab, &few);
    best = edit_all(sampler, params, logits, history, mask, &few);
    if (!(logits[best] > -INFINITY)) {
        return bt_processors_fallback(o, mask, sampler->n_vocab);
    }
    /* An infinite best logit leaves nothing to draw. */
    if ((params->temperature == 0.0f) || (params->top_k == 1) ||
        !isfinite(logits[best])) {
        return best;
    }
    top_p = bt_processors_top_p(params, history);
    return (few.n > 0) ? draw_of_few(sampler, params, logits, logits[best],
                                     top_p, position, &few)
                       : draw_edited(sampler, params, logits, logits[best],
                                     top_p, position);
}

uint32_t bt_sampler_draw(bt_sampler_t *sampler, const bt_sampling_t *params,
                         float *logits, const uint32_t *tokens,
                         uint32_t n_tokens, uint32_t n_prompt,
                         uint32_t position)
{
    const bt_history_t history = {
        .tokens = tokens, .n = n_tokens, .n_prompt = n_prompt};

    return bt_sampler_draw_masked(sampler, params, logits, &history, position,
                                  NULL);
}

/* Returns the last token of a bad word whose other tokens precede; else
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

void bt_sampler_bans(const bt_sampling_t *params, uint32_t n_vocab,
                     const bt_history_t *history,
                     void (*ban)(void *ctx, uint32_t id), void *ctx)
{
    bt_processors_ban_ngrams(&params->processors, n_vocab, history, ban, ctx);
    for (uint32_t i = 0; i < params->n_bad_words; i++) {
        const uint32_t id =
            banned_by(&params->bad_words[i], history->tokens, history->n);

        if (id < n_vocab) {
            ban(ctx, id);
        }
    }
    if (history->n - history->n_prompt < params->min_tokens) {
        for (uint32_t i = 0; i < params->n_end_ids; i++) {
            if (params->end_ids[i] < n_vocab) {
                ban(ctx, params->end_ids[i]);
            }
        }
    }
}
