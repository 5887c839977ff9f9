/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/decoder.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"

#define DEFAULT_BASE 10000.0f
#define DEFAULT_FAST 32.0f
#define DEFAULT_SLOW 1.0f

#define LONG_FACTORS "rope_factors_long.weight"

/* ---- keys ---- */

/* How much larger YaRN makes queries and keys: Peng et al., equation 22. */
static float yarn_magnitude(float factor, float weight)
{
    return (factor <= 1.0f) ? 1.0f : 0.1f * weight * logf(factor) + 1.0f;
}

static void read_yarn(bt_keys_t *keys, float factor, bt_rope_t *rope)
{
    float weight = 0.0f;
    bool truncate = true;

    rope->mix = 1.0f;
    rope->fast = DEFAULT_FAST;
    rope->slow = DEFAULT_SLOW;
    bt_keys_positive_if(keys, "rope.scaling.yarn_ext_factor", &rope->mix);
    bt_keys_positive_if(keys, "rope.scaling.yarn_beta_fast", &rope->fast);
    bt_keys_positive_if(keys, "rope.scaling.yarn_beta_slow", &rope->slow);
    bt_keys_positive_if(keys, "rope.scaling.yarn_log_multiplier", &weight);
    rope->magnitude = yarn_magnitude(factor, 1.0f);
    if (weight > 0.0f) {
        rope->magnitude /= yarn_magnitude(factor, weight);
    }
    bt_keys_positive_if(keys, "rope.scaling.yarn_attn_factor",
                        &rope->magnitude);
    if ((bt_gguf_get_bool(keys->gguf, "baton.rope.yarn_truncate", &truncate) ==
         BT_OK) &&
        !truncate) {
        rope->untruncated = true;
    }
}

static void read_scaling(bt_keys_t *keys, bt_rope_t *rope)
{
    bt_gguf_str_t type = {.data = "linear", .len = 6};
    float factor = 1.0f;
    float magnitude = 1.0f;
    char key[BT_KEY_BYTES];

    bt_key_name(keys, "rope.scaling.type", key);
    if (bt_gguf_has(keys->gguf, key) &&
        (bt_gguf_get_str(keys->gguf, key, &type) != BT_OK)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not a text", key);
    } else if (!bt_gguf_str_is(type, "none") &&
               !bt_gguf_str_is(type, "linear") &&
               !bt_gguf_str_is(type, "yarn") &&
               !bt_gguf_str_is(type, "longrope")) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "the model's positions are scaled in the way %.*s; "
                       "none, linear, yarn and longrope are supported",
                       (type.len > 64) ? 64 : (int)type.len, type.data);
    }
    /* An old name, then the one of today. */
    bt_keys_positive_if(keys, "rope.scale_linear", &factor);
    bt_keys_positive_if(keys, "rope.scaling.factor", &factor);
    bt_keys_positive_if(keys, "rope.scaling.attn_factor", &magnitude);
    bt_keys_number_if(keys, "rope.scaling.original_context_length", 1,
                      UINT32_MAX, &rope->trained_tokens);
    if (bt_gguf_str_is(type, "yarn")) {
        read_yarn(keys, factor, rope);
    }
    rope->scale = bt_gguf_str_is(type, "none") ? 1.0f : 1.0f / factor;
    rope->magnitude *= magnitude;
}

/* Reads the keys "rope.*": dimensions, base, and scaling of the types none,
 * linear, yarn and longrope. (NTK-aware scaling is a larger base. The factors
 * of Llama 3 and LongRoPE are tensors: load_rope().) */
static void read_rope(bt_keys_t *keys, uint32_t head_dim,
                      uint32_t context_tokens, bt_rope_t *rope_p)
{
    bt_rope_t rope = {.dims = head_dim,
                      .base = DEFAULT_BASE,
                      .scale = 1.0f,
                      .magnitude = 1.0f,
                      .trained_tokens = context_tokens};
    uint32_t window_dims;

    bt_keys_positive_if(keys, "rope.freq_base", &rope.base);
    bt_keys_number_if(keys, "rope.dimension_count", 0, UINT32_MAX, &rope.dims);
    window_dims = rope.dims;
    bt_keys_number_if(keys, "rope.dimension_count_swa", 0, UINT32_MAX,
                      &window_dims);
    if ((rope.dims == 0) || (rope.dims > head_dim) || (rope.dims % 2 != 0) ||
        (window_dims != rope.dims)) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "the model rotates %u of %u dimensions of a head, %u "
                       "where a layer has a window; an even number, the same "
                       "in all layers, is supported",
                       rope.dims, head_dim, window_dims);
    }
    read_scaling(keys, &rope);
    rope.by_context = (bt_gguf_tensor(keys->gguf, LONG_FACTORS) != NULL) &&
                      (bt_gguf_tensor(keys->gguf, "rope_freqs.weight") == NULL);
    *rope_p = rope;
}

/* Removes the position scaling; the base stays. */
static void unscale(bt_rope_t *rope)
{
    rope->scale = 1.0f;
    rope->magnitude = 1.0f;
    rope->mix = 0.0f;
}

/* ---- the table ---- */

/* Returns the pair that rotates n times in the trained context. */
static double pair_of_turns(const bt_rope_t *rope, double n)
{
    return rope->dims * log(rope->trained_tokens / (n * 2.0 * M_PI)) /
           (2.0 * log((double)rope->base));
}

/* Returns the scaled part of a pair's frequency: Peng et al., section 3.2, with
 * the two bounds rounded outwards to whole pairs as its authors do, unless the
 * model says otherwise. */
static double scaled_part(const bt_rope_t *rope, uint32_t i)
{
    double low;
    double high;
    double ramp;

    if (!(rope->mix > 0.0f)) {
        return 1.0;
    }
    low = pair_of_turns(rope, (double)rope->fast);
    high = pair_of_turns(rope, (double)rope->slow);
    if (!rope->untruncated) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(0.0, low);
    high = fmin(rope->dims - 1.0, high);
    ramp = (i - low) / fmax(0.001, high - low);
    return 1.0 - (double)rope->mix * (1.0 - fmin(1.0, fmax(0.0, ramp)));
}

/* Computes cos and sin of position * frequency, in double. */
static void fill(const bt_rope_t *rope, uint32_t n_positions,
                 const float *factors, float *table)
{
    const uint32_t half = rope->dims / 2;
    const double magnitude = (double)rope->magnitude;

    for (uint32_t i = 0; i < half; i++) {
        const double exponent = -2.0 * i / (double)rope->dims;
        const double part = scaled_part(rope, i);
        double frequency = pow((double)rope->base, exponent);

        if (part < 1.0) {
            frequency *= part * (double)rope->scale + (1.0 - part);
        } else {
            frequency *= (double)rope->scale;
        }
        if (factors != NULL) {
            frequency /= (double)factors[i];
        }
        for (uint32_t p = 0; p < n_positions; p++) {
            float *const pair = &table[((size_t)p * half + i) * 2];

            pair[0] = (float)(cos(p * frequency) * magnitude);
            pair[1] = (float)(sin(p * frequency) * magnitude);
        }
    }
}

/* Returns the tensor of the factors. @return NULL: there is none */
static const char *factors_name(const bt_loader_t *loader,
                                const bt_rope_t *rope)
{
    static const char *const freqs = "rope_freqs.weight";
    static const char *const is_long = LONG_FACTORS;
    static const char *const is_short = "rope_factors_short.weight";

    if (bt_loader_has(loader, freqs)) {
        return freqs;
    }
    if (!bt_loader_has(loader, is_long) && !bt_loader_has(loader, is_short)) {
        return NULL;
    }
    return (loader->config->context_tokens > rope->trained_tokens) ? is_long
                                                                   : is_short;
}

/* Both lists of factors are read, so that none counts as unknown. */
static void read_factors(bt_loader_t *loader, const bt_rope_t *rope,
                         float **factors_p)
{
    static const char *const all[] = {"rope_freqs.weight", LONG_FACTORS,
                                      "rope_factors_short.weight"};
    const char *const used = factors_name(loader, rope);

    for (size_t i = 0; (used != NULL) && (i < BT_ARRAY_LEN(all)); i++) {
        float *factors = NULL;

        if (!bt_loader_has(loader, all[i]) && (all[i] != used)) {
            continue;
        }
        bt_loader_values(loader, all[i], rope->dims / 2, &factors);
        for (uint32_t j = 0; (factors != NULL) && (j < rope->dims / 2); j++) {
            if (!(factors[j] > 0.0f) || !isfinite(factors[j])) {
                bt_loader_fail(loader, BT_ERR_BAD_FILE,
                               "factor %u of tensor %s is %g", j, all[i],
                               (double)factors[j]);
            }
        }
        if (strcmp(all[i], used) == 0) {
            *factors_p = factors;
        } else {
            bt_free(factors);
        }
    }
}

/* Computes the rotation table (context_tokens, dims / 2, 2) of rope_store().
 *
 * Frequencies are divided by factors, if there are any: those of
 * rope_freqs.weight, or (LongRoPE) of rope_factors_long.weight where the
 * configured context is longer than the trained one, else of
 * rope_factors_short.weight. A sequence is computed with one of the two from
 * its first token to its last, since keys of both kinds do not match; so
 * workers of one model must have contexts on the same side of the trained one.
 *
 * Source: Su et al., RoFormer; Peng et al., "YaRN"; Ding et al., "LongRoPE". */
static void load_rope(bt_loader_t *loader, const bt_rope_t *rope, float **ptr_p)
{
    const uint32_t n_positions = loader->config->context_tokens;
    const size_t n = (size_t)n_positions * rope->dims;
    float *factors = NULL;
    float *table = NULL;

    read_factors(loader, rope, &factors);
    if ((loader->status == BT_OK) && !loader->dry) {
        table = bt_calloc(n, sizeof(*table));
        if (table != NULL) {
            fill(rope, n_positions, factors, table);
        }
    }
    bt_free(factors);
    bt_loader_table(loader, "the position table", table, n, ptr_p);
}

/* ---- keys ---- */

static void read_alibi(bt_keys_t *keys, const bt_family_t *family,
                       bt_hparams_t *hp)
{
    const bool has =
        (family->alibi_layers == 0) || (family->alibi_layers == hp->n_layers);

    hp->alibi = has ? family->alibi : 0.0f;
    hp->slope_scale = family->alibi_scaled ? hp->attn_scale : 1.0f;
    bt_keys_positive_if(keys, "attention.max_alibi_bias", &hp->alibi);
}

static void set_turned(const bt_family_t *family, bt_hparams_t *hp)
{
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        const bool skipped = (family->unturned_period != 0) &&
                             ((i + 1) % family->unturned_period == 0);
        const bool unseen =
            family->window_turns && !bt_layer_in(&hp->windowed, i);

        if (!skipped && !unseen) {
            bt_layer_add(&hp->turned, i);
        }
    }
}

void bt_positions_read(bt_keys_t *keys, const bt_family_t *family,
                       bt_hparams_t *hp)
{
    read_alibi(keys, family, hp);
    hp->learned_positions = family->learned_positions && (hp->alibi == 0.0f);
    if (hp->learned_positions || (hp->alibi > 0.0f)) {
        return;
    }
    set_turned(family, hp);
    read_rope(keys, hp->head_dim, hp->context_tokens, &hp->rope);
    hp->window_rope = hp->rope;
    if (family->window_rope_unscaled) {
        unscale(&hp->window_rope);
    }
    if (family->window_rope_base > 0.0f) {
        hp->window_rope.base = family->window_rope_base;
    }
    bt_keys_positive_if(keys, "rope.freq_base_swa", &hp->window_rope.base);
    /* Queries are scaled by the logarithm of the position in units of the
     * trained context. */
    hp->temperature_tokens = hp->rope.trained_tokens;
    bt_keys_positive_if(keys, "attention.temperature_scale", &hp->temperature);
}

/* ---- tables ---- */

void bt_positions_slopes(uint32_t n_heads, float max_bias, float scale,
                         float *slopes)
{
    uint32_t n = 1;

    while (2 * n <= n_heads) {
        n *= 2;
    }
    for (uint32_t h = 0; h < n_heads; h++) {
        const double step = (h < n) ? (h + 1.0) / n : (h - n + 0.5) / n;

        slopes[h] = (float)exp2(-(double)max_bias * step) * scale;
    }
}

static void load_slopes(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const bt_share_t own = ld->shard.heads;
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(hp, 0);
    float *values;

    attention.slopes = &there;
    bt_loader_check_attention(ld, &attention);
    values = bt_calloc(hp->n_heads, sizeof(*values));
    if (values != NULL) {
        bt_positions_slopes(hp->n_heads, hp->alibi, hp->slope_scale, values);
        memmove(values, values + own.first, own.n * sizeof(*values));
    }
    bt_loader_table(ld, "the slopes of heads", values, own.n, &d->slopes);
}

static void load_temperatures(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t n = ld->config->context_tokens;
    float *const values = bt_calloc(n, sizeof(*values));

    for (uint32_t p = 0; (values != NULL) && (p < n); p++) {
        values[p] = (float)(1.0 + (double)hp->temperature *
                                      log(1.0 + p / hp->temperature_tokens));
    }
    bt_loader_table(ld, "temperatures of positions", values, n,
                    &d->temperatures);
}

static bool same_rope(const bt_rope_t *a, const bt_rope_t *b)
{
    return (a->base == b->base) && (a->scale == b->scale) &&
           (a->magnitude == b->magnitude) && (a->mix == b->mix);
}

void bt_positions_load(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;

    if (hp->alibi > 0.0f) {
        load_slopes(ld, d);
        return;
    }
    if (hp->learned_positions && !bt_shard_is_first(&ld->shard)) {
        bt_loader_leave(ld, "position_embd.weight");
        return;
    }
    if (hp->learned_positions) {
        bt_loader_first_rows(ld, "position_embd.weight", hp->context_tokens,
                             hp->dim, (bt_share_t){0, hp->context_tokens},
                             &d->positions);
        return;
    }
    load_rope(ld, &hp->rope, &d->cos_sin);
    if ((hp->attn_window != 0) && !same_rope(&hp->rope, &hp->window_rope)) {
        load_rope(ld, &hp->window_rope, &d->window_cos_sin);
    }
    if (hp->temperature > 0.0f) {
        load_temperatures(ld, d);
    }
}
