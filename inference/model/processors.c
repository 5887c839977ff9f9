/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/processors.h"

#include <math.h>
#include <string.h>

#include "kernels/draw.h"

/* Returns the bits of a word of a mask that stand for tokens. */
static uint64_t word_of(bt_token_mask_t mask, uint32_t i, uint32_t n_vocab)
{
    const uint32_t left = n_vocab - 64 * i;

    return (left < 64) ? mask[i] & ((1ull << left) - 1) : mask[i];
}

uint32_t bt_token_mask_list(bt_token_mask_t mask, uint32_t n_vocab,
                            uint32_t most, uint32_t *ids)
{
    const uint32_t n_words = (n_vocab + 63) / 64;
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_words; i++) {
        n += (uint32_t)__builtin_popcountll(word_of(mask, i, n_vocab));
    }
    if (n > most) {
        return 0;
    }
    n = 0;
    for (uint32_t i = 0; i < n_words; i++) {
        for (uint64_t word = word_of(mask, i, n_vocab); word != 0;
             word &= word - 1) {
            ids[n++] = 64 * i + (uint32_t)__builtin_ctzll(word);
        }
    }
    return n;
}

/* ---- thinking budget ---- */

/* The opening mark of an answer is among its first tokens: others may be white
 * space. */
#define OPENING_TOKENS 3

typedef struct mark {
    const uint32_t *ids;
    uint32_t n;
} mark_t;

/* Returns the position behind the first mark that begins in [from, to), or
 * UINT32_MAX. */
static uint32_t end_of_mark(const mark_t *mark, const bt_history_t *history,
                            uint32_t from, uint32_t to)
{
    for (uint32_t i = from;
         (i < to) && (mark->n > 0) && (mark->n <= history->n) &&
         (i <= history->n - mark->n);
         i++) {
        if (memcmp(&history->tokens[i], mark->ids,
                   mark->n * sizeof(*mark->ids)) == 0) {
            return i + mark->n;
        }
    }
    return UINT32_MAX;
}

/* Returns how many tokens of the closing mark the thinking part ends with, when
 * the mark may begin at `from` or later. */
static uint32_t closing_tail(const mark_t *mark, const bt_history_t *history,
                             uint32_t from)
{
    const uint32_t behind = history->n - from;
    uint32_t n = (behind < mark->n - 1) ? behind : mark->n - 1;

    while ((n > 0) && (memcmp(&history->tokens[history->n - n], mark->ids,
                              n * sizeof(*mark->ids)) != 0)) {
        n--;
    }
    return n;
}

uint32_t bt_processors_forced(const bt_processor_options_t *options,
                              const bt_history_t *history)
{
    mark_t open = {.n = options->n_think_open};
    mark_t close = {.n = options->n_think_close};
    uint32_t from = history->n_prompt;

    if (close.n == 0) {
        return BT_NO_TOKEN;
    }
    open.ids = options->ids + options->n_allowed_ids + options->n_dry_breakers;
    close.ids = open.ids + open.n;
    if (options->is_thinking == 0) {
        from = end_of_mark(&open, history, from, from + OPENING_TOKENS);
    }
    if ((from == UINT32_MAX) ||
        (history->n - from < options->thinking_budget) ||
        (end_of_mark(&close, history, from, history->n) != UINT32_MAX)) {
        return BT_NO_TOKEN;
    }
    return close.ids[closing_tail(&close, history, from)];
}

/* ---- decay of top_p ---- */

float bt_processors_top_p(const bt_sampling_t *sampling,
                          const bt_history_t *history)
{
    const bt_processor_options_t *const o = &sampling->processors;
    uint32_t n = 0; /* tokens since the last reset */
    float top_p = sampling->top_p;

    if (!(o->top_p_decay > 0.0f)) {
        return top_p;
    }
    while ((n < history->n - history->n_prompt) &&
           (history->tokens[history->n - 1 - n] != o->top_p_reset_id)) {
        n++;
    }
    for (float before = -1.0f; (n > 0) && (before != top_p); n--) {
        before = top_p;
        top_p *= o->top_p_decay;
        top_p = (top_p > o->top_p_min) ? top_p : o->top_p_min;
    }
    return top_p;
}

/* ---- repeated sequences ---- */

/* Sets borders[i] to the length of the longest proper prefix of the pattern
 * that ends at i: the failure function of Knuth, Morris and Pratt. */
static void find_borders(const uint32_t *pattern, uint32_t n, uint32_t *borders)
{
    uint32_t k = 0;

    borders[0] = 0;
    for (uint32_t i = 1; i < n; i++) {
        while ((k > 0) && (pattern[i] != pattern[k])) {
            k = borders[k - 1];
        }
        k += (pattern[i] == pattern[k]) ? 1 : 0;
        borders[i] = k;
    }
}

void bt_processors_ban_ngrams(const bt_processor_options_t *options,
                              uint32_t n_vocab, const bt_history_t *history,
                              void (*ban)(void *ctx, uint32_t id), void *ctx)
{
    const uint32_t before = options->no_repeat_ngram_size - 1;
    const uint32_t *const tokens = history->tokens;
    const uint32_t *pattern;
    uint32_t borders[BT_MAX_NGRAM];
    uint32_t k = 0; /* tokens of the pattern that end here */

    if ((options->no_repeat_ngram_size == 0) ||
        (options->no_repeat_ngram_size > BT_MAX_NGRAM) ||
        (history->n <= before)) {
        return;
    }
    pattern = tokens + (history->n - before);
    find_borders(pattern, before, borders);
    for (uint32_t i = 0; i < history->n; i++) {
        if ((k == before) && (tokens[i] < n_vocab)) {
            ban(ctx, tokens[i]);
        }
        while ((k > 0) && ((k == before) || (tokens[i] != pattern[k]))) {
            k = borders[k - 1];
        }
        k += ((k < before) && (tokens[i] == pattern[k])) ? 1 : 0;
    }
}

/* Returns the i-th last token, from 0. */
static uint32_t last_token(const bt_history_t *history, uint32_t i)
{
    return history->tokens[history->n - 1 - i];
}

/* Sets lengths[i], 0 < i < n, to the number of tokens before the i last ones
 * that equal the last tokens, at most `limit`: the Z-function of the reversed
 * tokens. */
static void repeated_lengths(const bt_history_t *history, uint32_t n,
                             uint32_t limit, uint32_t *lengths)
{
    uint32_t from = 0; /* [from, to) equals the beginning, reversed */
    uint32_t to = 0;

    for (uint32_t i = 1; i < n; i++) {
        uint32_t k = 0;

        if (i < to) {
            k = (lengths[i - from] < to - i) ? lengths[i - from] : to - i;
        }
        while ((i + k < n) &&
               (last_token(history, k) == last_token(history, i + k))) {
            k++;
        }
        if (i + k > to) {
            from = i;
            to = i + k;
        }
        lengths[i] = k;
    }
    for (uint32_t i = 1; i < n; i++) {
        lengths[i] = (lengths[i] < limit) ? lengths[i] : limit;
    }
}

/* Returns the number of last tokens behind the last breaker, at most n. */
static uint32_t unbroken(const bt_processor_options_t *o, uint32_t n_vocab,
                         const bt_history_t *history, uint32_t n,
                         uint32_t *counts)
{
    const uint32_t *const breakers =
        (o->n_dry_breakers > 0) ? o->ids + o->n_allowed_ids : NULL;
    uint32_t length = 0;

    for (uint32_t i = 0; i < o->n_dry_breakers; i++) {
        if (breakers[i] < n_vocab) {
            counts[breakers[i]] = 1;
        }
    }
    while ((length < n) && ((last_token(history, length) >= n_vocab) ||
                            (counts[last_token(history, length)] == 0))) {
        length++;
    }
    for (uint32_t i = 0; i < o->n_dry_breakers; i++) {
        if (breakers[i] < n_vocab) {
            counts[breakers[i]] = 0;
        }
    }
    return length;
}

/* Returns multiplier * base^(length - allowed_length), at most FLT_MAX. */
static float dry_penalty(const bt_processor_options_t *o, uint32_t length)
{
    double penalty = (double)o->dry_multiplier;

    for (uint32_t n = length - o->dry_allowed_length;
         (n > 0) && (penalty < 1e38) && (o->dry_base > 1.0f); n--) {
        penalty *= (double)o->dry_base;
    }
    return (float)((penalty < 1e38) ? penalty : 1e38);
}

void bt_processors_dry(const bt_processor_options_t *options, float *logits,
                       uint32_t n_vocab, const bt_history_t *history,
                       uint32_t *lengths, uint32_t n_lengths, uint32_t *counts)
{
    uint32_t n =
        (options->dry_last_n < history->n) ? options->dry_last_n : history->n;
    uint32_t limit;

    if (!(options->dry_multiplier > 0.0f)) {
        return;
    }
    n = (n < n_lengths) ? n : n_lengths;
    limit = unbroken(options, n_vocab, history, n, counts);
    if ((n <= options->dry_allowed_length) ||
        (limit < options->dry_allowed_length)) {
        return;
    }
    repeated_lengths(history, n, limit, lengths);
    for (uint32_t i = 1; i < n; i++) { /* the longest of each next token */
        const uint32_t next = last_token(history, i - 1);

        if ((next < n_vocab) && (lengths[i] >= options->dry_allowed_length) &&
            (lengths[i] + 1 > counts[next])) {
            counts[next] = lengths[i] + 1;
        }
    }
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t next = last_token(history, i - 1);

        if ((next < n_vocab) && (counts[next] > 0)) {
            logits[next] -= dry_penalty(options, counts[next] - 1);
            counts[next] = 0;
        }
    }
}

/* ---- allowed tokens ---- */

void bt_processors_allow(const bt_processor_options_t *options, float *logits,
                         uint32_t n_vocab, uint32_t *counts)
{
    if (options->n_allowed_ids == 0) {
        return;
    }
    for (uint32_t i = 0; i < options->n_allowed_ids; i++) {
        if (options->ids[i] < n_vocab) {
            counts[options->ids[i]] = 1;
        }
    }
    for (uint32_t id = 0; id < n_vocab; id++) {
        logits[id] = (counts[id] != 0) ? logits[id] : -INFINITY;
        counts[id] = 0;
    }
}

void bt_processors_mask(bt_token_mask_t mask, float *logits, uint32_t n_vocab)
{
    if (mask == NULL) {
        return;
    }
    for (uint32_t first = 0; first < n_vocab; first += 64) {
        const uint64_t word = mask[first / 64];
        const uint32_t n = (n_vocab - first < 64) ? n_vocab - first : 64;

        if (word == 0) { /* most words of most masks */
            for (uint32_t i = 0; i < n; i++) {
                logits[first + i] = -INFINITY;
            }
            continue;
        }
        for (uint32_t i = 0; i < n; i++) {
            logits[first + i] =
                ((word >> i & 1u) != 0) ? logits[first + i] : -INFINITY;
        }
    }
}

uint32_t bt_processors_fallback(const bt_processor_options_t *options,
                                bt_token_mask_t mask, uint32_t n_vocab)
{
    uint32_t lowest = n_vocab;

    for (uint32_t i = 0; (mask != NULL) && (64 * i < lowest); i++) {
        lowest = (mask[i] != 0) ? 64 * i + (uint32_t)__builtin_ctzll(mask[i])
                                : lowest;
    }
    if (lowest < n_vocab) {
        return lowest;
    }
    for (uint32_t i = 0; i < options->n_allowed_ids; i++) {
        lowest = (options->ids[i] < lowest) ? options->ids[i] : lowest;
    }
    return (lowest < n_vocab) ? lowest : 0;
}

/* ---- filters ---- */

uint64_t bt_processors_top_n_sigma(float top_n_sigma, const float *logits,
                                   uint32_t n_vocab, uint64_t *weights)
{
    double best = -INFINITY;
    double sum = 0.0;
    double squares = 0.0;
    double least;
    uint64_t mass = 0;
    uint32_t n = 0;

    for (uint32_t id = 0; id < n_vocab; id++) {
        if (isfinite(logits[id])) {
            sum += (double)logits[id];
            best = ((double)logits[id] > best) ? (double)logits[id] : best;
            n++;
        }
    }
    for (uint32_t id = 0; id < n_vocab; id++) {
        const double off = (double)logits[id] - sum / n;

        squares += isfinite(logits[id]) ? off * off : 0.0;
    }
    least = best - (double)top_n_sigma * sqrt(squares / n);
    for (uint32_t id = 0; id < n_vocab; id++) {
        weights[id] = ((double)logits[id] >= least) ? weights[id] : 0;
        mass += weights[id];
    }
    return mass;
}

uint64_t bt_processors_typical(float typical_p, const float *logits, float best,
                               double temperature, uint32_t n_vocab,
                               uint64_t *weights, uint64_t mass,
                               bt_candidate_t *list)
{
    double mean = 0.0;
    bt_candidate_t last;
    uint32_t n = 0;

    for (uint32_t id = 0; id < n_vocab; id++) {
        if (weights[id] > 0) {
            mean += (double)weights[id] *
                    (((double)logits[id] - (double)best) / temperature);
        }
    }
    mean /= (double)mass;
    for (uint32_t id = 0; id < n_vocab; id++) {
        if (weights[id] > 0) {
            const double x = ((double)logits[id] - (double)best) / temperature;

            list[n++] =
                (bt_candidate_t){.logit = -(float)fabs(mean - x), .id = id};
        }
    }
    last = bt_select(list, n, weights, bt_draw_need(typical_p, mass));
    mass = 0;
    for (uint32_t id = 0; id < n_vocab; id++) {
        const double x = ((double)logits[id] - (double)best) / temperature;
        const bt_candidate_t c = {.logit = -(float)fabs(mean - x), .id = id};

        if ((weights[id] > 0) && bt_candidate_precedes(last, c)) {
            weights[id] = 0;
        }
        mass += weights[id];
    }
    return mass;
}

uint64_t bt_processors_xtc(const bt_processor_options_t *options, uint64_t seed,
                           uint32_t position, const float *logits,
                           uint32_t n_vocab, uint64_t *weights, uint64_t mass)
{
    const double least = (double)options->xtc_threshold * (double)mass;
    const double u = (double)bt_draw_bits_of(seed, position, 1) * 0x1p-64;
    bt_candidate_t last = {.logit = INFINITY, .id = 0};
    uint32_t n = 0;

    if (!(u < (double)options->xtc_probability)) {
        return mass;
    }
    for (uint32_t id = 0; id < n_vocab; id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        if ((weights[id] > 0) && ((double)weights[id] >= least)) {
            last = ((n == 0) || bt_candidate_precedes(last, c)) ? c : last;
            n++;
        }
    }
    for (uint32_t id = 0; (id < n_vocab) && (n > 1); id++) {
        const bt_candidate_t c = {.logit = logits[id], .id = id};

        if ((weights[id] > 0) && bt_candidate_precedes(c, last)) {
            mass -= weights[id];
            weights[id] = 0;
        }
    }
    return mass;
}
