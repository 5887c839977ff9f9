/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "tests/kernels/kcheck.h"

#define MAX_SEQS 14u
#define MAX_POS  150u /* before the new rows */
#define N_LAYERS 2u
#define LAYER    1u
#define WORD_NAN                                             \
    0x7fffu /* in slots that nobody may read: NaN in f16 and \
               bf16, and twice as an f32 scale */
#define MAX_DIM      256u
#define MAX_POSITION (MAX_POS + 64u)

typedef struct at_case {
    uint32_t n_heads;
    uint32_t n_kv;
    uint32_t dim;
    uint32_t block_tokens;
    bt_attention_t attention;
    float *sinks;  /* NULL: none */
    float *slopes; /* NULL: none */
    uint32_t n_seqs;
    bt_ragged_seq_t seqs[MAX_SEQS];
    uint32_t n_rows;
    size_t row_floats;
    uint32_t blocks_per_seq;
    uint32_t *block_ids;
    bt_kv_view_t kv;
    size_t cache_floats; /* the cache is a canary buffer of floats */
    float *cache;        /* before */
    float *qkv;
    float *cos_sin;
    bt_rotation_t rotation;
    char what[160];
} at_case_t;

static bt_batch_t batch_of(const at_case_t *c)
{
    return (bt_batch_t){.tokens = kc_tokens,
                        .seqs = c->seqs,
                        .n_seqs = c->n_seqs,
                        .n_rows = c->n_rows,
                        .tokens_per_block = c->block_tokens};
}

/* Results of one back end. */
typedef struct at_result {
    float *cache;
    float *qkv;
    float *out;
} at_result_t;

/* Which of a block's vectors head h of a position is; *block_p: its block. */
static size_t vector_of(const at_case_t *c, float *cache,
                        const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                        uint32_t pos, uint8_t **block_p)
{
    *block_p = (uint8_t *)cache +
               seq->blocks[pos / c->block_tokens] * c->kv.block_bytes;
    return ((size_t)(LAYER * 2 + part) * c->n_kv + h) * c->block_tokens +
           pos % c->block_tokens;
}

static size_t vector_bytes(const at_case_t *c)
{
    return (size_t)c->dim * bt_kv_type_info(c->kv.type)->elem_bytes;
}

/* Element d of a key (part 0) or a value: keys lie (dim / 2, slot, 2), values
 * (slot / 2, dim, 2). */
static void *elem_of(const at_case_t *c, float *cache,
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

static bool has_scales(const at_case_t *c)
{
    return bt_kv_type_info(c->kv.type)->scale_bytes != 0;
}

/* Behind all elements of the block, if there are any. */
static float *scale_of(const at_case_t *c, float *cache,
                       const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                       uint32_t pos)
{
    uint8_t *block;
    size_t vector = vector_of(c, cache, seq, part, h, pos, &block);
    size_t elems =
        (size_t)N_LAYERS * 2 * c->n_kv * c->block_tokens * vector_bytes(c);

    return (float *)(void *)(block + elems) + vector;
}

/* exact for numbers */
static double e4m3_value(uint8_t code)
{
    const int exponent = (code >> 3) & 15;
    const int fraction = code & 7;
    const double v = (exponent == 0) ? ldexp(fraction, -9)
                                     : ldexp(8 + fraction, exponent - 10);

    return ((code & 0x80u) != 0) ? -v : v;
}

/* exact for finite halves */
static double half_value(uint16_t h)
{
    int exponent = (h >> 10) & 31;
    int fraction = h & 1023;
    double v = (exponent == 0) ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);

    return (h & 0x8000u) ? -v : v;
}

/* exact for normal numbers and zero */
static double bf16_value(uint16_t b)
{
    int exponent = (b >> 7) & 255;
    double v = (exponent == 0) ? 0.0 : ldexp(128 + (b & 127), exponent - 134);

    return (b & 0x8000u) ? -v : v;
}

/* The values of a vector as stored. */
static void read_slot(const at_case_t *c, float *cache,
                      const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                      uint32_t pos, double *out)
{
    for (uint32_t d = 0; d < c->dim; d++) {
        const void *elem = elem_of(c, cache, seq, part, h, pos, d);
        uint16_t word;

        if (has_scales(c)) {
            out[d] = (c->kv.type == BT_KV_INT8)
                         ? *(const int8_t *)elem
                         : e4m3_value(*(const uint8_t *)elem);
            out[d] *= (double)*scale_of(c, cache, seq, part, h, pos);
            continue;
        }
        memcpy(&word, elem, sizeof(word));
        out[d] =
            (c->kv.type == BT_KV_F16) ? half_value(word) : bf16_value(word);
    }
}

/* Any sign, magnitude 2^-5 .. 2 (with scales: up to 2). */
static void fill_slot(const at_case_t *c, const bt_ragged_seq_t *seq,
                      uint32_t part, uint32_t h, uint32_t pos)
{
    for (uint32_t d = 0; d < c->dim; d++) {
        void *elem = elem_of(c, c->cache, seq, part, h, pos, d);
        uint32_t bits = (uint32_t)kc_random();
        uint16_t word;

        if (c->kv.type == BT_KV_INT8) {
            *(int8_t *)elem = (int8_t)((int)kc_below(255) - 127);
            continue;
        }
        if (c->kv.type == BT_KV_FP8) {
            *(uint8_t *)elem = (uint8_t)((bits & 0x80u) | kc_below(0x7f));
            continue;
        }
        word = (c->kv.type == BT_KV_F16)
                   ? (uint16_t)((bits & 0x83ffu) | ((10 + kc_below(6)) << 10))
                   : (uint16_t)((bits & 0x807fu) | ((122 + kc_below(6)) << 7));
        memcpy(elem, &word, sizeof(word));
    }
    if (has_scales(c)) {
        const float most = (c->kv.type == BT_KV_INT8) ? 127.0f : 448.0f;

        *scale_of(c, c->cache, seq, part, h, pos) =
            (kc_below(9) == 0) ? 0.0f : kc_uniform(0.0f, 2.0f / most);
    }
}

/* Block ids, none used twice, in random order. */
static void deal_blocks(at_case_t *c)
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

static void fill_cache(at_case_t *c)
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

static void set_view(at_case_t *c)
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
    snprintf(c->what, sizeof(c->what),
             "%s, %u/%u heads of %u, blocks of %u, %u seqs, %u rows%s, window "
             "%u, cap %g%s%s",
             info->name, c->n_heads, c->n_kv, c->dim, c->block_tokens,
             c->n_seqs, c->n_rows,
             c->rotation.interleaved ? ", interleaved" : "",
             c->attention.window, (double)c->attention.soft_cap,
             (c->sinks != NULL) ? ", sinks" : "",
             (c->slopes != NULL) ? ", slopes" : "");
}

/* Half of the cases are plain; the parts come alone and together. Scores are
 * some tens at most. */
static void choose_attention(at_case_t *c)
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
        c->attention.scale = kc_uniform(0.01f, 0.3f);
    }
    if (kc_below(2) == 0) {
        c->sinks = kc_alloc(c->n_heads);
        kc_fill(c->sinks, c->n_heads, false);
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
static void forget_unseen(at_case_t *c)
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
                        elem_of(c, c->cache, seq, ph % 2, ph / 2, pos, d);

                    memset(elem, has_scales(c) ? 0x7f : 0xff,
                           bt_kv_type_info(c->kv.type)->elem_bytes);
                }
                if (has_scales(c)) {
                    *scale_of(c, c->cache, seq, ph % 2, ph / 2, pos) = NAN;
                }
            }
        }
    }
}

static void make_case(at_case_t *c, bt_kv_type_t type)
{
    static const uint32_t all_dims[] = {2, 6, 16, 40, 48, 64, 80, 128, 256};
    static const uint32_t all_blocks[] = {2, 6, 16, 24, 32, 64};
    bool only_rows;

    memset(c, 0, sizeof(*c));
    c->kv.type = type;
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
    c->n_seqs = only_rows ? 1 + kc_below(MAX_SEQS) : kc_below(5);
    c->row_floats = (size_t)(c->n_heads + 2 * c->n_kv) * c->dim;
    c->blocks_per_seq = MAX_POSITION / c->block_tokens + 1;
    deal_blocks(c);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        c->seqs[s].row = c->n_rows;
        c->seqs[s].n_rows = 1;
        if (!only_rows && (kc_below(2) == 0)) {
            c->seqs[s].n_rows += kc_below(16);
        }
        c->seqs[s].pos = (kc_below(3) == 0) ? 0 : kc_below(MAX_POS);
        c->n_rows += c->seqs[s].n_rows;
    }
    set_view(c);
    c->cache = kc_alloc(c->cache_floats);
    fill_cache(c);
    forget_unseen(c);
    c->qkv = kc_alloc(c->n_rows * c->row_floats);
    kc_fill(c->qkv, c->n_rows * c->row_floats, false);
    c->cos_sin = kc_alloc((size_t)MAX_POSITION * c->dim);
    for (uint32_t i = 0; i < MAX_POSITION * c->dim / 2; i++) {
        float angle = kc_uniform(-3.14f, 3.14f);

        c->cos_sin[2 * i] = cosf(angle);
        c->cos_sin[2 * i + 1] = sinf(angle);
    }
    c->rotation.cos_sin = (c->rotation.dims == 0) ? NULL : c->cos_sin;
}

static void free_case(at_case_t *c)
{
    bt_free(c->block_ids);
    kc_free(c->cache);
    kc_free(c->qkv);
    kc_free(c->cos_sin);
    kc_free(c->sinks);
    kc_free(c->slopes);
}

static at_result_t run_backend(at_case_t *c, const kc_backend_t *b)
{
    const bt_batch_t batch = batch_of(c);
    at_result_t r;
    bt_kv_view_t kv = c->kv;

    r.cache = kc_alloc(c->cache_floats);
    r.qkv = kc_alloc(c->n_rows * c->row_floats);
    r.out = kc_alloc((size_t)c->n_rows * c->n_heads * c->dim);
    memcpy(r.cache, c->cache, c->cache_floats * sizeof(float));
    memcpy(r.qkv, c->qkv, c->n_rows * c->row_floats * sizeof(float));
    kv.base = r.cache;
    b->be->ops->rope_store(b->be, r.qkv, c->n_heads, &c->rotation, &batch, &kv,
                           LAYER);
    if (b->be->ops->attention != NULL) {
        b->be->ops->attention(b->be, &c->attention, r.qkv, &batch, &kv, LAYER,
                              r.out);
    }
    kc_check_canaries(r.cache, "cache");
    kc_check_canaries(r.qkv, "qkv");
    kc_check_canaries(r.out, "attention");
    return r;
}

static void free_result(at_result_t *r)
{
    kc_free(r->cache);
    kc_free(r->qkv);
    kc_free(r->out);
}

/* Every row as a call of its own, on the finished cache. */
static void check_alone(const at_case_t *c, const kc_backend_t *b,
                        const at_result_t *want)
{
    size_t out_floats = (size_t)c->n_heads * c->dim;
    float *alone = kc_alloc(out_floats);
    bt_kv_view_t kv = c->kv;

    kv.base = want->cache;
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t i = 0; i < c->seqs[s].n_rows; i++) {
            bt_ragged_seq_t seq = c->seqs[s];
            const bt_batch_t batch = {.tokens = kc_tokens,
                                      .seqs = &seq,
                                      .n_seqs = 1,
                                      .n_rows = 1,
                                      .tokens_per_block = c->block_tokens};
            size_t row = c->seqs[s].row + i;

            seq.row = 0;
            seq.n_rows = 1;
            seq.pos += i;
            kc_poison(alone);
            b->be->ops->attention(b->be, &c->attention,
                                  want->qkv + row * c->row_floats, &batch, &kv,
                                  LAYER, alone);
            kc_expect_equal(want->out + row * out_floats, alone, out_floats,
                            "attention of a row alone", b->name);
        }
    }
    kc_free(alone);
}

/* The same positions in blocks of another size: the same bits. */
static void check_other_blocks(at_case_t *c, const kc_backend_t *b,
                               const at_result_t *want)
{
    at_case_t other = *c;
    size_t out_floats = (size_t)c->n_rows * c->n_heads * c->dim;
    float *got = kc_alloc(out_floats);
    bt_batch_t batch;
    bt_kv_view_t kv;

    other.block_tokens = c->block_tokens + 6;
    other.blocks_per_seq = MAX_POSITION / other.block_tokens + 1;
    deal_blocks(&other);
    set_view(&other);
    other.cache = kc_alloc(other.cache_floats);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        uint32_t n = c->seqs[s].pos + c->seqs[s].n_rows;

        for (uint32_t i = 0; i < n * 2 * c->n_kv; i++) {
            uint32_t part = i % 2;
            uint32_t h = i / 2 % c->n_kv;
            uint32_t pos = i / 2 / c->n_kv;

            for (uint32_t d = 0; d < c->dim; d++) {
                memcpy(elem_of(&other, other.cache, &other.seqs[s], part, h,
                               pos, d),
                       elem_of(c, want->cache, &c->seqs[s], part, h, pos, d),
                       bt_kv_type_info(c->kv.type)->elem_bytes);
            }
            if (has_scales(c)) {
                *scale_of(&other, other.cache, &other.seqs[s], part, h, pos) =
                    *scale_of(c, want->cache, &c->seqs[s], part, h, pos);
            }
        }
    }
    kv = other.kv;
    kv.base = other.cache;
    batch = batch_of(&other);
    b->be->ops->attention(b->be, &c->attention, want->qkv, &batch, &kv, LAYER,
                          got);
    kc_expect_equal(want->out, got, out_floats, "attention, other block size",
                    b->name);
    kc_free(got);
    kc_free(other.cache);
    bt_free(other.block_ids);
}

/* The bf16 nearest to a normal x, ties to even. */
static double to_bf16(double x)
{
    const double unit = (x == 0) ? 1 : ldexp(1, ilogb(x) - 7);

    return nearbyint(x / unit) * unit;
}

/* Codes are multiplied exactly, their scales come behind. */
static double as_multiplied(const at_case_t *c, double stored)
{
    return has_scales(c) ? stored : to_bf16(stored);
}

/* One head of one row in double, from the cache as stored and made bf16. */
static void check_head(const at_case_t *c, const at_result_t *r, uint32_t s,
                       uint32_t row, uint32_t head)
{
    const bt_ragged_seq_t *seq = &c->seqs[s];
    const uint32_t n = seq->pos + row + 1;
    const uint32_t h = head * c->n_kv / c->n_heads;
    const float *q =
        r->qkv + (seq->row + row) * c->row_floats + (size_t)head * c->dim;
    const float *out =
        r->out + ((size_t)(seq->row + row) * c->n_heads + head) * c->dim;
    const double sink = (c->sinks != NULL) ? (double)c->sinks[head] : -INFINITY;
    const double cap = (double)c->attention.soft_cap;
    const uint32_t window = c->attention.window;
    const uint32_t first = ((window != 0) && (n > window)) ? n - window : 0;
    double scores[MAX_POSITION];
    double want[MAX_DIM] = {0};
    double size[MAX_DIM] = {0};
    double stored[MAX_DIM];
    double max = sink;
    double sum;
    double worst = 0;

    for (uint32_t pos = first; pos < n; pos++) {
        double dot = 0;

        read_slot(c, r->cache, seq, 0, h, pos, stored);
        for (uint32_t d = 0; d < c->dim; d++) {
            dot += to_bf16((double)q[d]) * as_multiplied(c, stored[d]);
        }
        scores[pos] = dot * (double)c->attention.scale;
        scores[pos] = (cap > 0) ? cap * tanh(scores[pos] / cap) : scores[pos];
        if (c->slopes != NULL) {
            scores[pos] -= (double)c->slopes[head] * (n - 1 - pos);
        }
        max = fmax(max, scores[pos]);
    }
    sum = exp(sink - max);
    for (uint32_t pos = first; pos < n; pos++) {
        scores[pos] = exp(scores[pos] - max);
        sum += scores[pos];
    }
    for (uint32_t pos = first; pos < n; pos++) {
        read_slot(c, r->cache, seq, 1, h, pos, stored);
        for (uint32_t d = 0; d < c->dim; d++) {
            want[d] += scores[pos] / sum * as_multiplied(c, stored[d]);
            size[d] += scores[pos] / sum * fabs(stored[d]);
        }
    }
    /* |v| <= 2, |score| below 100: its float error, some 1e-5, is the
     * relative error of the weights; and they are rounded to 8 bits. */
    for (uint32_t d = 0; d < c->dim; d++) {
        double error = fabs(want[d] - (double)out[d]) - size[d] * 0x1p-8;

        worst = !(error <= worst) ? error : worst;
    }
    kc_expect(worst < 1e-4, "attention %s: row %u head %u is off by %g",
              c->what, row, head, worst);
}

/* Half a step between neighbours of the type, at values of the magnitude of
 * @a max (keys up to 2.9, values up to 2), and what float adds to it. */
static double rounding(const at_case_t *c, double max)
{
    switch (c->kv.type) {
    case BT_KV_FP8: /* the upper codes are 32 steps apart */
        return max * 16 / 448 + 1e-5;
    case BT_KV_F16:
        return ldexp(1.0, ilogb(max) - 11) + 1e-5;
    case BT_KV_BF16:
        return ldexp(1.0, ilogb(max) - 8) + 1e-5;
    default:
        return max / 254 + 1e-5;
    }
}

/* The largest magnitude is the largest code, 127 or 448, and the scale that
 * part of it. */
static bool uses_all_codes(const at_case_t *c, const at_result_t *r,
                           const bt_ragged_seq_t *seq, uint32_t part,
                           uint32_t h, uint32_t pos, double max)
{
    const double scale = (double)*scale_of(c, r->cache, seq, part, h, pos);
    const double most = (c->kv.type == BT_KV_INT8) ? 127 : 448;
    double largest = 0;

    for (uint32_t d = 0; d < c->dim; d++) {
        const void *code = elem_of(c, r->cache, seq, part, h, pos, d);

        largest = fmax(largest, fabs((c->kv.type == BT_KV_INT8)
                                         ? *(const int8_t *)code
                                         : e4m3_value(*(const uint8_t *)code)));
    }
    return (largest == most) && (fabs(scale * most - max) <= max * 1e-6 + 1e-9);
}

/* Rotated and rounded keys, rounded values. */
static void check_stored(const at_case_t *c, const at_result_t *r, uint32_t s,
                         uint32_t row)
{
    const bt_ragged_seq_t *seq = &c->seqs[s];
    const uint32_t pos = seq->pos + row;
    const uint32_t turned = c->rotation.dims;

    for (uint32_t h = 0; h < c->n_kv; h++) {
        const float *key = c->qkv + (seq->row + row) * c->row_floats +
                           (size_t)(c->n_heads + h) * c->dim;
        const float *value = key + (size_t)c->n_kv * c->dim;
        double k[MAX_DIM], v[MAX_DIM];
        double want[MAX_DIM] = {0};
        double max_k = 0;
        double max_v = 0;
        bool ok = true;

        read_slot(c, r->cache, seq, 0, h, pos, k);
        read_slot(c, r->cache, seq, 1, h, pos, v);

        for (uint32_t d = 0; d < c->dim; d++) {
            want[d] = (double)key[d];
        }
        for (uint32_t i = 0; i < turned / 2; i++) {
            const float *pair =
                c->rotation.cos_sin + (size_t)pos * turned + (size_t)2 * i;
            uint32_t ia = c->rotation.interleaved ? 2 * i : i;
            uint32_t ib = c->rotation.interleaved ? 2 * i + 1 : i + turned / 2;
            double co = (double)pair[0];
            double si = (double)pair[1];
            double a = (double)key[ia] * co - (double)key[ib] * si;
            double b = (double)key[ia] * si + (double)key[ib] * co;

            want[ia] = a;
            want[ib] = b;
        }
        for (uint32_t d = 0; d < c->dim; d++) {
            max_k = fmax(max_k, fabs(want[d]));
            max_v = fmax(max_v, fabs((double)value[d]));
        }
        for (uint32_t d = 0; d < c->dim; d++) {
            ok = ok && (fabs(k[d] - want[d]) <= rounding(c, max_k)) &&
                 (fabs(v[d] - (double)value[d]) <= rounding(c, max_v));
        }
        if (has_scales(c)) {
            ok = ok && uses_all_codes(c, r, seq, 0, h, pos, max_k) &&
                 uses_all_codes(c, r, seq, 1, h, pos, max_v);
        }
        kc_expect(ok, "rope_store %s: row %u head %u", c->what, row, h);
    }
}

static void check_with_double(const at_case_t *c, const at_result_t *r)
{
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t row = 0; row < c->seqs[s].n_rows; row++) {
            check_stored(c, r, s, row);
            for (uint32_t h = 0; h < c->n_heads; h++) {
                check_head(c, r, s, row, h);
            }
        }
    }
}

void kc_test_attention(void)
{
    for (uint32_t round = 0; round < 160; round++) {
        at_case_t c;
        at_result_t want;

        make_case(&c, (bt_kv_type_t)(round % 4));
        want = run_backend(&c, &kc_backends[0]);
        check_with_double(&c, &want);
        for (uint32_t i = 0; i < kc_n_backends; i++) {
            const bt_kernels_ops_t *ops = kc_backends[i].be->ops;
            at_result_t got;

            if (kc_skips(&kc_backends[i], ops->rope_store != NULL, true,
                         "rope_store")) {
                continue;
            }
            got = run_backend(&c, &kc_backends[i]);

            kc_expect(memcmp(want.cache, got.cache,
                             c.cache_floats * sizeof(float)) == 0,
                      "rope_store, %s: cache differs, %s", kc_backends[i].name,
                      c.what);
            kc_expect_equal(want.qkv, got.qkv, c.n_rows * c.row_floats,
                            "rope_store", kc_backends[i].name);
            if (kc_skips(&kc_backends[i], ops->attention != NULL, false,
                         "attention")) {
                free_result(&got);
                continue;
            }
            kc_expect_equal(want.out, got.out,
                            (size_t)c.n_rows * c.n_heads * c.dim, c.what,
                            kc_backends[i].name);
            check_alone(&c, &kc_backends[i], &want);
            check_other_blocks(&c, &kc_backends[i], &want);
            free_result(&got);
        }
        free_result(&want);
        free_case(&c);
    }
}
