/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/wire.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

bt_wire_range_t bt_wire_range_ours(void)
{
    const bt_wire_range_t ours = {.oldest = BT_WIRE_PROTOCOL_MIN,
                                  .newest = BT_WIRE_PROTOCOL};

    return ours;
}

bt_wire_range_t bt_wire_range_of(const bt_msg_hello_t *hello)
{
    const bt_wire_range_t theirs = {.oldest = hello->protocol_min,
                                    .newest = hello->protocol};

    return theirs;
}

uint32_t bt_wire_common(bt_wire_range_t mine, bt_wire_range_t theirs)
{
    const uint32_t newest =
        (mine.newest < theirs.newest) ? mine.newest : theirs.newest;

    return ((newest >= mine.oldest) && (newest >= theirs.oldest)) ? newest : 0;
}

void bt_wire_range_print(bt_wire_range_t range, char out[BT_WIRE_RANGE_BYTES])
{
    if (range.oldest == range.newest) {
        snprintf(out, BT_WIRE_RANGE_BYTES, "%u", range.newest);
    } else {
        snprintf(out, BT_WIRE_RANGE_BYTES, "%u to %u", range.oldest,
                 range.newest);
    }
}

const char *bt_role_name(uint32_t roles)
{
    static const char *const names[] = {"router", "prefill", "decode", "both"};

    return (roles < BT_ARRAY_LEN(names)) ? names[roles] : "unknown";
}

bool bt_role_named(const char *name, uint32_t *roles_p)
{
    for (uint32_t roles = BT_ROLE_PREFILL; roles <= BT_ROLES_BOTH; roles++) {
        if (strcmp(name, bt_role_name(roles)) == 0) {
            *roles_p = roles;
            return true;
        }
    }
    return false;
}

const char *bt_duty_name(uint32_t duty)
{
    static const char *const names[] = {"on", "on", "off", "end"};

    return (duty < BT_ARRAY_LEN(names)) ? names[duty] : "unknown";
}

/* Blobs are placed after their list. */
static const uint8_t *put(uint8_t **end, const uint8_t *blob, uint32_t bytes)
{
    uint8_t *at = *end;

    if (bytes > 0) {
        memcpy(at, blob, bytes);
    }
    *end += bytes;
    return at;
}

bt_status_t bt_wire_ranks_copy(const bt_wire_rank_t *ranks, uint32_t n,
                               bt_wire_rank_t **copy_p)
{
    size_t bytes = n * sizeof(*ranks);
    bt_wire_rank_t *copy = NULL;

    for (uint32_t i = 0; i < n; i++) {
        bytes += ranks[i].kvt_bytes;
    }
    if (n > 0) {
        uint8_t *end;

        copy = bt_calloc(1, bytes);
        if (copy == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        end = (uint8_t *)(copy + n);
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = ranks[i];
            copy[i].kvt = put(&end, ranks[i].kvt, ranks[i].kvt_bytes);
        }
    }
    *copy_p = copy;
    return BT_OK;
}

bt_status_t bt_wire_regions_copy(const bt_wire_region_t *regions, uint32_t n,
                                 bt_wire_region_t **copy_p)
{
    size_t bytes = n * sizeof(*regions);
    bt_wire_region_t *copy = NULL;

    for (uint32_t i = 0; i < n; i++) {
        bytes += regions[i].blob_bytes;
    }
    if (n > 0) {
        uint8_t *end;

        copy = bt_calloc(1, bytes);
        if (copy == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        end = (uint8_t *)(copy + n);
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = regions[i];
            copy[i].blob = put(&end, regions[i].blob, regions[i].blob_bytes);
        }
    }
    *copy_p = copy;
    return BT_OK;
}

/* The first thing wrong, or NULL. Written so that a NaN fails every test. */
static const char *first_bias_fault(const bt_sampling_t *s)
{
    if (s->n_logit_biases > BT_MAX_DENSE_BIASES) {
        return "too many logit biases";
    }
    if ((s->n_logit_biases > 0) && (s->logit_biases == NULL)) {
        return "logit biases are counted but not given";
    }
    for (uint32_t i = 0; i < s->n_logit_biases; i++) {
        if (!(fabsf(s->logit_biases[i].bias) <= BT_MAX_LOGIT_BIAS)) {
            return "a logit bias must be from -100 to 100";
        }
    }
    return NULL;
}

/* Written as first_bias_fault(). */
static const char *first_processor_fault(const bt_processor_options_t *o)
{
    const uint64_t n = (uint64_t)o->n_allowed_ids + o->n_dry_breakers +
                       o->n_think_open + o->n_think_close;
    const struct {
        float value, max;
        const char *why;
    } values[] = {
        {o->top_p_decay, 1.0f, "top_p_decay must be from 0 to 1"},
        {o->top_p_min, 1.0f, "top_p_min must be from 0 to 1"},
        {o->top_n_sigma, FLT_MAX, "top_n_sigma must not be negative"},
        {o->typical_p, 1.0f, "typical_p must be from 0 to 1"},
        {o->xtc_probability, 1.0f, "xtc_probability must be from 0 to 1"},
        {o->xtc_threshold, 1.0f, "xtc_threshold must be from 0 to 1"},
        {o->dry_multiplier, FLT_MAX, "dry_multiplier must not be negative"},
        {o->dry_base, FLT_MAX, "dry_base must not be negative"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(values); i++) {
        if (!(values[i].value >= 0.0f) || !(values[i].value <= values[i].max)) {
            return values[i].why;
        }
    }
    if (o->no_repeat_ngram_size > BT_MAX_NGRAM) {
        return "no_repeat_ngram_size must be at most 1024";
    }
    return ((n != o->n_ids) || ((n > 0) && (o->ids == NULL)))
               ? "ids of logits processors are not as many as counted"
               : NULL;
}

static const char *first_fault(const bt_sampling_t *s)
{
    if (!(s->temperature >= 0.0f) || !isfinite(s->temperature)) {
        return "temperature must be a number and not negative";
    }
    if (!(s->top_p > 0.0f) || !(s->top_p <= 1.0f)) {
        return "top_p must be above 0 and at most 1";
    }
    if (!(s->repetition_penalty > 0.0f) || !isfinite(s->repetition_penalty)) {
        return "repetition_penalty must be above 0";
    }
    if (!isfinite(s->presence_penalty)) {
        return "presence_penalty must be a finite number";
    }
    if (!isfinite(s->frequency_penalty)) {
        return "frequency_penalty must be a finite number";
    }
    if (!(s->min_p >= 0.0f) || !(s->min_p <= 1.0f)) {
        return "min_p must be from 0 to 1";
    }
    if (s->n_end_ids > BT_MAX_END_IDS) {
        return "too many end ids";
    }
    if (s->n_bad_words > BT_MAX_BAD_WORDS) {
        return "too many bad words";
    }
    if ((s->n_bad_words > 0) && (s->bad_words == NULL)) {
        return "bad words are counted but not given";
    }
    for (uint32_t i = 0; i < s->n_bad_words; i++) {
        if ((s->bad_words[i].n == 0) ||
            (s->bad_words[i].n > BT_MAX_BAD_WORD_TOKENS)) {
            return "a bad word is empty or has too many tokens";
        }
    }
    if (first_processor_fault(&s->processors) != NULL) {
        return first_processor_fault(&s->processors);
    }
    return first_bias_fault(s);
}

bt_status_t bt_sampling_check(const bt_sampling_t *sampling, const char **why_p)
{
    const char *fault = first_fault(sampling);

    if (fault == NULL) {
        return BT_OK;
    }
    *why_p = fault;
    return BT_ERR_INVALID_PARAM;
}

/* Log-prob, then id and log-prob of each alternative, in the memory layout
 * of a little-endian machine (wire_encode.c checks that it is one). */

void bt_score_put(const bt_score_t *score, uint8_t *bytes)
{
    memcpy(bytes, &score->logprob, sizeof(double));
    bytes += sizeof(double);
    for (uint32_t i = 0; i < score->n_top; i++) {
        memcpy(bytes, &score->top_ids[i], sizeof(uint32_t));
        memcpy(bytes + sizeof(uint32_t), &score->top_logprobs[i],
               sizeof(double));
        bytes += sizeof(uint32_t) + sizeof(double);
    }
}

void bt_score_get(const uint8_t *bytes, uint32_t n_top, bt_score_t *score_p)
{
    memcpy(&score_p->logprob, bytes, sizeof(double));
    bytes += sizeof(double);
    for (uint32_t i = 0; i < n_top; i++) {
        memcpy(&score_p->top_ids[i], bytes, sizeof(uint32_t));
        memcpy(&score_p->top_logprobs[i], bytes + sizeof(uint32_t),
               sizeof(double));
        bytes += sizeof(uint32_t) + sizeof(double);
    }
    score_p->n_top = n_top;
}
