/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/positions.h"

#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/model/arch/rope.h"

/* ---- keys ---- */

static bt_status_t read_alibi(const bt_keys_t *keys, const bt_family_t *family,
                              bt_hparams_t *hp)
{
    const bool has =
        (family->alibi_layers == 0) || (family->alibi_layers == hp->n_layers);

    hp->alibi = has ? family->alibi : 0.0f;
    hp->slope_scale = family->alibi_scaled ? hp->attn_scale : 1.0f;
    return bt_keys_positive_if(keys, "attention.max_alibi_bias", &hp->alibi);
}

/* Reads the scaling of queries by the logarithm of the position in units of the
 * trained context. */
static bt_status_t read_temperature(const bt_keys_t *keys, bt_hparams_t *hp)
{
    hp->temperature_tokens = hp->rope.trained_tokens;
    return bt_keys_positive_if(keys, "attention.temperature_scale",
                               &hp->temperature);
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

bt_status_t bt_positions_read(const bt_keys_t *keys, const bt_family_t *family,
                              bt_hparams_t *hp)
{
    bt_status_t status = read_alibi(keys, family, hp);

    hp->learned_positions = family->learned_positions && (hp->alibi == 0.0f);
    if ((status != BT_OK) || hp->learned_positions || (hp->alibi > 0.0f)) {
        return status;
    }
    set_turned(family, hp);
    status = bt_rope_read(keys, hp->head_dim, hp->context_tokens, &hp->rope);
    if (status != BT_OK) {
        return status;
    }
    hp->window_rope = hp->rope;
    if (family->window_rope_unscaled) {
        bt_rope_unscale(&hp->window_rope);
    }
    if (family->window_rope_base > 0.0f) {
        hp->window_rope.base = family->window_rope_base;
    }
    status =
        bt_keys_positive_if(keys, "rope.freq_base_swa", &hp->window_rope.base);
    return (status == BT_OK) ? read_temperature(keys, hp) : status;
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

static bt_status_t load_slopes(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const bt_share_t own = ld->shard.heads;
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(hp, 0);
    float *values;
    bt_status_t status;

    attention.slopes = &there;
    status = bt_kernels_check_attention(ld->be->caps, &attention, ld->why,
                                        ld->why_bytes);
    if (status != BT_OK) {
        return status;
    }
    values = bt_calloc(hp->n_heads, sizeof(*values));
    if (values != NULL) {
        bt_positions_slopes(hp->n_heads, hp->alibi, hp->slope_scale, values);
        memmove(values, values + own.first, own.n * sizeof(*values));
    }
    return bt_loader_table(ld, "the slopes of heads", values, own.n,
                           &d->slopes);
}

static bt_status_t load_temperatures(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t n = ld->config->context_tokens;
    float *const values = bt_calloc(n, sizeof(*values));

    for (uint32_t p = 0; (values != NULL) && (p < n); p++) {
        values[p] = (float)(1.0 + (double)hp->temperature *
                                      log(1.0 + p / hp->temperature_tokens));
    }
    return bt_loader_table(ld, "temperatures of positions", values, n,
                           &d->temperatures);
}

static bool same_rope(const bt_rope_t *a, const bt_rope_t *b)
{
    return (a->base == b->base) && (a->scale == b->scale) &&
           (a->magnitude == b->magnitude) && (a->mix == b->mix);
}

bt_status_t bt_positions_load(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_hparams_t *const hp = ld->hp;
    bt_status_t status;

    if (hp->alibi > 0.0f) {
        return load_slopes(ld, d);
    }
    if (hp->learned_positions && !bt_shard_is_first(&ld->shard)) {
        bt_loader_leave(ld, "position_embd.weight");
        return BT_OK;
    }
    if (hp->learned_positions) {
        return bt_loader_first_rows(
            ld, "position_embd.weight", hp->context_tokens, hp->dim,
            (bt_share_t){0, hp->context_tokens}, &d->positions);
    }
    status = bt_rope_load(ld, &hp->rope, &d->cos_sin);
    if ((status == BT_OK) && (hp->attn_window != 0) &&
        !same_rope(&hp->rope, &hp->window_rope)) {
        status = bt_rope_load(ld, &hp->window_rope, &d->window_cos_sin);
    }
    return ((status == BT_OK) && (hp->temperature > 0.0f))
               ? load_temperatures(ld, d)
               : status;
}
