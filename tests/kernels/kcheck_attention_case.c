/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kcheck_attention_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define N_LAYERS 2u
#define WORD_NAN                                             \
    0x7fffu /* in slots that nobody may read: NaN in f16 and \
               bf16, and twice as an f32 scale */

bt_batch_t kc_at_batch(const kc_at_case_t *c)
{
    return (bt_batch_t){.tokens = kc_tokens,
                        .seqs = c->seqs,
                        .n_seqs = c->n_seqs,
                        .n_rows = c->n_rows,
                        .tokens_per_block = c->block_tokens};
}

/* Which of a block's vectors head h of a position is; *block_p: its block. */
static size_t vector_of(const kc_at_case_t *c, float *cache,
                        const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                        uint32_t pos, uint8_t **block_p)
{
    *block_p = (uint8_t *)cache +
               seq->blocks[pos / c->block_tokens] * c->kv.block_bytes;
    return ((size_t)(KC_AT_LAYER * 2 + part) * c->n_kv + h) * c->block_tokens +
           pos % c->block_tokens;
}

static size_t vector_bytes(const kc_at_case_t *c)
{
    return (size_t)c->dim * bt_kv_type_info(c->kv.type)->elem_bytes;
}

/* Element d of a key (part 0) or a value: keys lie (dim / 2, slot, 2), values
 * (slot / 2, dim, 2). */
void *kc_at_elem(const kc_at_case_t *c, float *cache,
                 const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                 uint32_t pos, uint32_t d)
{
    const uint32_t slot = pos % c->block_tokens;
    const size_t elem_bytes = bt_kv_type_info(c->kv.type)->elem_bytes;
    uint8_t *block;
    size_t vector = vector_of(c, cache, seq, part, h, pos, &block);
    size_t first = (vector - slot) * c->dim;

    first += (part == 0)
                 ? ((size_t)(d / 2) * c->block_tokens + slot) * 2 + d % 2
                 : ((size_t)(slot / 2) * c->dim + d) * 2 + slot % 2;
    return block + first * elem_bytes;
}

bool kc_at_has_scales(const kc_at_case_t *c)
{
    return bt_kv_type_info(c->kv.type)->scale_bytes != 0;
}

/* Behind all elements of the block, if there are any. */
float *kc_at_scale(const kc_at_case_t *c, float *cache,
                   const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                   uint32_t pos)
{
    uint8_t *block;
    size_t vector = vector_of(c, cache, seq, part, h, pos, &block);
    size_t elems =
        (size_t)N_LAYERS * 2 * c->n_kv * c->block_tokens * vector_bytes(c);

    return (float *)(void *)(block + elems) + vector;
}

/* A 16-bit element of any sign, magnitude 2^-5 .. 2; or what the kind wants. */
static uint16_t random_word(const kc_at_case_t *c)
{
    const uint32_t bits = (uint32_t)kc_random();
    const bool is_f16 = c->kv.type == BT_KV_F16;

    switch (c->kind) {
    case KC_AT_TINY: /* f16 has its smallest at 2^-24: any of them */
        return (uint16_t)(is_f16 ? bits & 0xbfffu
                                 : (bits & 0x807fu) | (kc_below(30) << 7));
    case KC_AT_TINIER:
        return (uint16_t)(is_f16 ? bits & 0x87ffu
                                 : (bits & 0x807fu) | (kc_below(3) << 7));
    case KC_AT_BITS: /* of every kind, few infinite: else all is NaN */
        return (uint16_t)((kc_below(500) == 0) ? bits : bits & 0xbfffu);
    default:
        return (uint16_t)(is_f16
                              ? (bits & 0x83ffu) | ((10 + kc_below(6)) << 10)
                              : (bits & 0x807fu) | ((122 + kc_below(6)) << 7));
    }
}

/* Of a vector whose codes are up to @a most: values up to 2; or what the kind
 * wants, of what rope_store() may leave: 0, 2^-126 and more, NaN. */
static float random_scale(const kc_at_case_t *c)
{
    const float most = (c->kv.type == BT_KV_INT8) ? 127.0f : 448.0f;
    float scale = kc_uniform(0.0f, 2.0f / most);

    if (kc_below(9) == 0) {
        return 0.0f;
    }
    switch (c->kind) {
    case KC_AT_TINY:
        scale *= exp2f(-(float)kc_below(125));
        return (scale < 0x1p-126f) ? 0.0f : scale;
    case KC_AT_TINIER:
        return 0x1p-126f * (1.0f + scale);
    case KC_AT_BITS:
        scale = (1.0f + scale) * exp2f((float)kc_below(119));
        return (kc_below(200) == 0) ? NAN : scale;
    default:
        return scale;
    }
}

static void fill_slot(const kc_at_case_t *c, const bt_ragged_seq_t *seq,
                      uint32_t part, uint32_t h, uint32_t pos)
{
    for (uint32_t d = 0; d < c->dim; d++) {
        void *elem = kc_at_elem(c, c->cache, seq, part, h, pos, d);
        const uint32_t bits = (uint32_t)kc_random();
        const uint16_t word = random_word(c);

        if (c->kv.type == BT_KV_INT8) {
            *(int8_t *)elem = (int8_t)((int)kc_below(255) - 127);
        } else if (c->kv.type == BT_KV_FP8) {
            *(uint8_t *)elem = (uint8_t)((bits & 0x80u) | kc_below(0x7f));
        } else {
            memcpy(elem, &word, sizeof(word));
        }
    }
    if (kc_at_has_scales(c)) {
        *kc_at_scale(c, c->cache, seq, part, h, pos) = random_scale(c);
    }
}

/* Block ids, none used twice, in random order. */
void kc_at_deal_blocks(kc_at_case_t *c)
{
    uint32_t n = c->n_seqs * c->blocks_per_seq;

    c->block_ids = bt_calloc(n + 1, sizeof(*c->block_ids));
    for (uint32_t i = 0; (c->block_ids != NULL) && (i < n); i++) {
        uint32_t j = kc_below(i + 1);

        c->block_ids[i] = c->block_ids[j];
        c->block_ids[j] = i;
    }
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        c->seqs[s].blocks = c->block_ids + (size_t)s * c->blocks_per_seq;
    }
}

static void fill_cache(kc_at_case_t *c)
{
    uint16_t *all = (uint16_t *)(void *)c->cache;

    for (size_t i = 0; i < c->cache_floats * 2; i++) {
        all[i] = WORD_NAN;
    }
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t pos = 0; pos < c->seqs[s].pos; pos++) {
            for (uint32_t ph = 0; ph < 2 * c->n_kv; ph++) {
                fill_slot(c, &c->seqs[s], ph % 2, ph / 2, pos);
            }
        }
    }
}

void kc_at_set_view(kc_at_case_t *c)
{
    size_t n_blocks = (size_t)c->n_seqs * c->blocks_per_seq;

    const bt_kv_type_info_t *info = bt_kv_type_info(c->kv.type);

    c->kv.block_bytes = (size_t)N_LAYERS * 2 * c->n_kv * c->block_tokens *
                        ((size_t)c->dim * info->elem_bytes + info->scale_bytes);
    c->kv.n_layers = N_LAYERS;
    c->kv.n_kv_heads = c->n_kv;
    c->kv.head_dim = c->dim;
    c->kv.tokens_per_block = c->block_tokens;
    c->cache_floats = n_blocks * c->kv.block_bytes / sizeof(float);
    snprintf(
        c->what, sizeof(c->what),
        "%s, kind %d, %u/%u heads of %u, blocks of %u, %u seqs, %u rows%s, window "
        "%u, cap %g%s%s",
        info->name, (int)c->kind, c->n_heads, c->n_kv, c->dim, c->block_tokens,
        c->n_seqs, c->n_rows, c->rotation.interleaved ? ", interleaved" : "",
        c->attention.window, (double)c->attention.soft_cap,
        (c->sinks != NULL) ? ", sinks" : "",
        (c->slopes != NULL) ? ", slopes" : "");
}

/* Half of the cases are plain; the parts come alone and together. Scores are
 * some tens at most. */
static void choose_attention(kc_at_case_t *c)
{
    static const uint32_t windows[] = {1, 2, 5, 16, 31, 32, 33, 64, 100, 500};
    static const float caps[] = {0.5f, 5.0f, 50.0f};

    c->attention = (bt_attention_t){.n_heads = c->n_heads,
                                    .key_dim = c->dim,
                                    .value_dim = c->dim,
                                    .scale = 1.0f / sqrtf((float)c->dim)};
    if (kc_below(2) == 0) {
        return;
    }
    if (kc_below(2) == 0) {
        c->attention.window = windows[kc_below(BT_ARRAY_LEN(windows))];
    }
    if (kc_below(2) == 0) {
        c->attention.soft_cap = caps[kc_below(BT_ARRAY_LEN(caps))];
    }
    if (kc_below(2) == 0) {
        c->attention.scale = ((c->kind == KC_AT_ORDINARY) || (kc_below(2) == 0))
                                 ? kc_uniform(0.01f, 0.3f)
                                 : exp2f((float)kc_below(60));
    }
    if (kc_below(2) == 0) {
        c->sinks = kc_alloc(c->n_heads);
        kc_fill(c->sinks, c->n_heads, c->kind != KC_AT_ORDINARY);
        c->attention.sinks = c->sinks;
    }
    if (kc_below(2) == 0) {
        c->slopes = kc_alloc(c->n_heads);
        for (uint32_t h = 0; h < c->n_heads; h++) {
            c->slopes[h] = exp2f(-kc_uniform(1.0f, 8.0f));
        }
        c->attention.slopes = c->slopes;
    }
}

/* Positions that no row of a sequence sees any more become what nobody may
 * read. */
static void forget_unseen(kc_at_case_t *c)
{
    const uint32_t window = c->attention.window;

    for (uint32_t s = 0; (window != 0) && (s < c->n_seqs); s++) {
        const bt_ragged_seq_t *seq = &c->seqs[s];
        const uint32_t first =
            (seq->pos + 1 > window) ? seq->pos + 1 - window : 0;

        for (uint32_t pos = 0; (pos < first) && (pos < seq->pos); pos++) {
            for (uint32_t ph = 0; ph < 2 * c->n_kv; ph++) {
                for (uint32_t d = 0; d < c->dim; d++) {
                    void *elem =
                        kc_at_elem(c, c->cache, seq, ph % 2, ph / 2, pos, d);

                    memset(elem, kc_at_has_scales(c) ? 0x7f : 0xff,
                           bt_kv_type_info(c->kv.type)->elem_bytes);
                }
                if (kc_at_has_scales(c)) {
                    *kc_at_scale(c, c->cache, seq, ph % 2, ph / 2, pos) = NAN;
                }
            }
        }
    }
}

/* Extremes of both sides together leave little but NaN, and so does each row
 * with an infinity: half of the cases have ordinary rows or small ones, most of
 * the others nothing above 2. */
static void fill_rows(const kc_at_case_t *c)
{
    const size_t n = c->n_rows * c->row_floats;
    const bool is_ordinary = c->kind == KC_AT_ORDINARY;
    const bool is_extreme = !is_ordinary && (kc_below(2) == 0);
    const float most = (kc_below(4) == 0) ? INFINITY : 2.0f;

    kc_fill(c->qkv, n, is_extreme);
    for (size_t i = 0; is_extreme && (i < n); i++) {
        if (fabsf(c->qkv[i]) > most) {
            c->qkv[i] = 1.0f;
        }
    }
    if (!is_ordinary && (kc_below(2) == 0)) {
        const float tiny = exp2f(-(float)kc_below(140));

        for (size_t i = 0; i < n; i++) {
            c->qkv[i] *= tiny;
        }
    }
}

void kc_at_make(kc_at_case_t *c, bt_kv_type_t type, kc_at_kind_t kind,
                uint32_t max_pos)
{
    static const uint32_t all_dims[] = {2, 6, 16, 40, 48, 64, 80, 128, 256};
    static const uint32_t all_blocks[] = {2, 6, 16, 24, 32, 64};
    bool only_rows;

    memset(c, 0, sizeof(*c));
    c->kv.type = type;
    c->kind = kind;
    c->max_position = max_pos + 64;
    c->dim = all_dims[kc_below(BT_ARRAY_LEN(all_dims))];
    c->block_tokens = all_blocks[kc_below(BT_ARRAY_LEN(all_blocks))];
    c->n_kv = 1 + kc_below(3);
    c->n_heads = (kc_below(4) == 0) ? c->n_kv + kc_below(5)
                                    : c->n_kv * (1 + kc_below(4));
    c->rotation.interleaved = kc_below(2) == 0;
    /* All of a head, a part of it, or nothing. */
    c->rotation.dims =
        (kc_below(2) == 0) ? c->dim : kc_below(c->dim / 2 + 1) * 2;
    choose_attention(c);
    /* A third of them one row each, of enough sequences for three threads. */
    only_rows = kc_below(3) == 0;
    c->n_seqs = only_rows ? 1 + kc_below(KC_AT_MAX_SEQS) : kc_below(5);
    c->row_floats = (size_t)(c->n_heads + 2 * c->n_kv) * c->dim;
    c->blocks_per_seq = c->max_position / c->block_tokens + 1;
    kc_at_deal_blocks(c);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        c->seqs[s].row = c->n_rows;
        c->seqs[s].n_rows = 1;
        if (!only_rows && (kc_below(2) == 0)) {
            c->seqs[s].n_rows += kc_below(16);
        }
        c->seqs[s].pos = (kc_below(3) == 0) ? 0 : kc_below(max_pos);
        c->n_rows += c->seqs[s].n_rows;
    }
    kc_at_set_view(c);
    c->cache = kc_alloc(c->cache_floats);
    fill_cache(c);
    forget_unseen(c);
    c->qkv = kc_alloc(c->n_rows * c->row_floats);
    fill_rows(c);
    c->cos_sin = kc_alloc((size_t)c->max_position * c->dim);
    for (uint32_t i = 0; i < c->max_position * c->dim / 2; i++) {
        float angle = kc_uniform(-3.14f, 3.14f);

        c->cos_sin[2 * i] = cosf(angle);
        c->cos_sin[2 * i + 1] = sinf(angle);
    }
    c->rotation.cos_sin = (c->rotation.dims == 0) ? NULL : c->cos_sin;
}

void kc_at_free(kc_at_case_t *c)
{
    bt_free(c->block_ids);
    kc_free(c->cache);
    kc_free(c->qkv);
    kc_free(c->cos_sin);
    kc_free(c->sinks);
    kc_free(c->slopes);
}
