/* SPDX-License-Identifier: Apache-2.0 */
/* rope_store() and attention(): every back end against the reference, and that
 * of ordinary numbers against double. Attention of BT_NUMERICS_TENSOR: against
 * double within the same bound, each row the same alone and in a batch. */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/kernels/kcheck_attention_case.h"

#define N_ORDINARY 160u
#define N_EXTREME  40u
#define N_SHORT    40u
#define N_LONG     8u

/* Results of one back end. */
typedef struct at_result {
    float *cache;
    float *qkv;
    float *out;
} at_result_t;

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
static void read_slot(const kc_at_case_t *c, float *cache,
                      const bt_ragged_seq_t *seq, uint32_t part, uint32_t h,
                      uint32_t pos, double *out)
{
    for (uint32_t d = 0; d < c->dim; d++) {
        const void *elem = kc_at_elem(c, cache, seq, part, h, pos, d);
        uint16_t word;

        if (kc_at_has_scales(c)) {
            out[d] = (c->kv.type == BT_KV_INT8)
                         ? *(const int8_t *)elem
                         : e4m3_value(*(const uint8_t *)elem);
            out[d] *= (double)*kc_at_scale(c, cache, seq, part, h, pos);
            continue;
        }
        memcpy(&word, elem, sizeof(word));
        out[d] =
            (c->kv.type == BT_KV_F16) ? half_value(word) : bf16_value(word);
    }
}

static at_result_t run_backend(kc_at_case_t *c, const kc_backend_t *b)
{
    const bt_batch_t batch = kc_at_batch(c);
    at_result_t r;
    bt_kv_view_t kv = c->kv;

    r.cache = kc_alloc(c->cache_floats);
    r.qkv = kc_alloc(c->n_rows * c->row_floats);
    r.out = kc_alloc((size_t)c->n_rows * c->n_heads * c->dim);
    memcpy(r.cache, c->cache, c->cache_floats * sizeof(float));
    memcpy(r.qkv, c->qkv, c->n_rows * c->row_floats * sizeof(float));
    kv.base = r.cache;
    b->be->ops->rope_store(b->be, r.qkv, c->n_heads, &c->rotation, &batch, &kv,
                           KC_AT_LAYER);
    if (b->be->ops->attention != NULL) {
        b->be->ops->attention(b->be, &c->attention, r.qkv, &batch, &kv,
                              KC_AT_LAYER, r.out);
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
static void check_alone(const kc_at_case_t *c, const kc_backend_t *b,
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
                                  KC_AT_LAYER, alone);
            kc_expect_equal(want->out + row * out_floats, alone, out_floats,
                            "attention of a row alone", b->name);
        }
    }
    kc_free(alone);
}

/* The same positions in blocks of another size: the same bits. */
static void check_other_blocks(kc_at_case_t *c, const kc_backend_t *b,
                               const at_result_t *want)
{
    kc_at_case_t other = *c;
    size_t out_floats = (size_t)c->n_rows * c->n_heads * c->dim;
    float *got = kc_alloc(out_floats);
    bt_batch_t batch;
    bt_kv_view_t kv;

    other.block_tokens = c->block_tokens + 6;
    other.blocks_per_seq = c->max_position / other.block_tokens + 1;
    kc_at_deal_blocks(&other);
    kc_at_set_view(&other);
    other.cache = kc_alloc(other.cache_floats);
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        uint32_t n = c->seqs[s].pos + c->seqs[s].n_rows;

        for (uint32_t i = 0; i < n * 2 * c->n_kv; i++) {
            uint32_t part = i % 2;
            uint32_t h = i / 2 % c->n_kv;
            uint32_t pos = i / 2 / c->n_kv;

            for (uint32_t d = 0; d < c->dim; d++) {
                memcpy(kc_at_elem(&other, other.cache, &other.seqs[s], part, h,
                                  pos, d),
                       kc_at_elem(c, want->cache, &c->seqs[s], part, h, pos, d),
                       bt_kv_type_info(c->kv.type)->elem_bytes);
            }
            if (kc_at_has_scales(c)) {
                *kc_at_scale(&other, other.cache, &other.seqs[s], part, h,
                             pos) =
                    *kc_at_scale(c, want->cache, &c->seqs[s], part, h, pos);
            }
        }
    }
    kv = other.kv;
    kv.base = other.cache;
    batch = kc_at_batch(&other);
    b->be->ops->attention(b->be, &c->attention, want->qkv, &batch, &kv,
                          KC_AT_LAYER, got);
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

/* Codes are multiplied exactly, their scales come behind. Tensor cores take f16
 * as they are. */
static double as_multiplied(const kc_at_case_t *c, double stored, bool tensor)
{
    return kc_at_has_scales(c) || (tensor && (c->kv.type == BT_KV_F16))
               ? stored
               : to_bf16(stored);
}

/* Such a query is f16 of itself times a power of two: 11 bits. What is smaller
 * than 2^-28 of its largest element is not in it, and not in the bound. */
static double query_as_multiplied(const kc_at_case_t *c, double q, bool tensor)
{
    double unit;

    if (!tensor || (c->kv.type != BT_KV_F16) || (q == 0)) {
        return to_bf16(q);
    }
    unit = ldexp(1, ilogb(q) - 10);
    return nearbyint(q / unit) * unit;
}

/* One head of one row in double, from the cache as stored and made bf16. */
static void check_head(const kc_at_case_t *c, const at_result_t *r, uint32_t s,
                       uint32_t row, uint32_t head, bool tensor)
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
    double scores[KC_AT_MAX_POSITION];
    double want[KC_AT_MAX_DIM] = {0};
    double size[KC_AT_MAX_DIM] = {0};
    double stored[KC_AT_MAX_DIM];
    double max = sink;
    double sum;
    double worst = 0;

    for (uint32_t pos = first; pos < n; pos++) {
        double dot = 0;

        read_slot(c, r->cache, seq, 0, h, pos, stored);
        for (uint32_t d = 0; d < c->dim; d++) {
            dot += query_as_multiplied(c, (double)q[d], tensor) *
                   as_multiplied(c, stored[d], tensor);
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
            want[d] += scores[pos] / sum * as_multiplied(c, stored[d], tensor);
            size[d] += scores[pos] / sum * fabs(stored[d]);
        }
    }
    /* |v| <= 2, |score| below 100: its float error, some 1e-5, is the
     * relative error of the weights; and they are rounded to 8 bits. (By tensor
     * cores: 3 * 256 * 2^-24 of the sum of the magnitudes of a score's
     * products, and of the values': docs/adr/0019.) */
    for (uint32_t d = 0; d < c->dim; d++) {
        double error = fabs(want[d] - (double)out[d]) - size[d] * 0x1p-8;

        worst = !(error <= worst) ? error : worst;
    }
    kc_expect(worst < 1e-4, "attention %s: row %u head %u is off by %g",
              c->what, row, head, worst);
}

/* Half a step between neighbours of the type, at values of the magnitude of
 * @a max (keys up to 2.9, values up to 2), and what float adds to it. */
static double rounding(const kc_at_case_t *c, double max)
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
static bool uses_all_codes(const kc_at_case_t *c, const at_result_t *r,
                           const bt_ragged_seq_t *seq, uint32_t part,
                           uint32_t h, uint32_t pos, double max)
{
    const double scale = (double)*kc_at_scale(c, r->cache, seq, part, h, pos);
    const double most = (c->kv.type == BT_KV_INT8) ? 127 : 448;
    double largest = 0;

    for (uint32_t d = 0; d < c->dim; d++) {
        const void *code = kc_at_elem(c, r->cache, seq, part, h, pos, d);

        largest = fmax(largest, fabs((c->kv.type == BT_KV_INT8)
                                         ? *(const int8_t *)code
                                         : e4m3_value(*(const uint8_t *)code)));
    }
    return (largest == most) && (fabs(scale * most - max) <= max * 1e-6 + 1e-9);
}

/* Rotated and rounded keys, rounded values. */
static void check_stored(const kc_at_case_t *c, const at_result_t *r,
                         uint32_t s, uint32_t row)
{
    const bt_ragged_seq_t *seq = &c->seqs[s];
    const uint32_t pos = seq->pos + row;
    const uint32_t turned = c->rotation.dims;

    for (uint32_t h = 0; h < c->n_kv; h++) {
        const float *key = c->qkv + (seq->row + row) * c->row_floats +
                           (size_t)(c->n_heads + h) * c->dim;
        const float *value = key + (size_t)c->n_kv * c->dim;
        double k[KC_AT_MAX_DIM], v[KC_AT_MAX_DIM];
        double want[KC_AT_MAX_DIM] = {0};
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
        if (kc_at_has_scales(c)) {
            ok = ok && uses_all_codes(c, r, seq, 0, h, pos, max_k) &&
                 uses_all_codes(c, r, seq, 1, h, pos, max_v);
        }
        kc_expect(ok, "rope_store %s: row %u head %u", c->what, row, h);
    }
}

static void check_with_double(const kc_at_case_t *c, const at_result_t *r)
{
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t row = 0; row < c->seqs[s].n_rows; row++) {
            check_stored(c, r, s, row);
            for (uint32_t h = 0; h < c->n_heads; h++) {
                check_head(c, r, s, row, h, false);
            }
        }
    }
}

/* A NaN that a row sees is in what comes of it: in all of it, if it is in a
 * key, a query or a scale; else in that dimension. */
static void check_nan(const kc_at_case_t *c, const at_result_t *r, uint32_t s,
                      uint32_t row, uint32_t head)
{
    const bt_ragged_seq_t *seq = &c->seqs[s];
    const uint32_t n = seq->pos + row + 1;
    const uint32_t h = head * c->n_kv / c->n_heads;
    const uint32_t window = c->attention.window;
    const float *q =
        r->qkv + (seq->row + row) * c->row_floats + (size_t)head * c->dim;
    const float *out =
        r->out + ((size_t)(seq->row + row) * c->n_heads + head) * c->dim;
    bool is_nan[KC_AT_MAX_DIM] = {false};
    bool all = false;
    bool ok = true;
    double stored[KC_AT_MAX_DIM];

    for (uint32_t pos = ((window != 0) && (n > window)) ? n - window : 0;
         pos < n; pos++) {
        read_slot(c, r->cache, seq, 0, h, pos, stored);
        for (uint32_t d = 0; d < c->dim; d++) {
            all = all || isnan(stored[d]) || isnan(q[d]);
        }
        read_slot(c, r->cache, seq, 1, h, pos, stored);
        for (uint32_t d = 0; d < c->dim; d++) {
            is_nan[d] = is_nan[d] || isnan(stored[d]);
        }
    }
    for (uint32_t d = 0; d < c->dim; d++) {
        ok = ok && (isnan(out[d]) || !(all || is_nan[d]));
    }
    kc_expect(ok, "attention %s: row %u head %u has lost a NaN", c->what, row,
              head);
}

/* Of BT_NUMERICS_TENSOR. */
static void check_tensor(kc_at_case_t *c, const kc_backend_t *b,
                         const at_result_t *got)
{
    for (uint32_t s = 0; s < c->n_seqs; s++) {
        for (uint32_t row = 0; row < c->seqs[s].n_rows; row++) {
            for (uint32_t h = 0; h < c->n_heads; h++) {
                if (c->kind == KC_AT_ORDINARY) {
                    check_head(c, got, s, row, h, true);
                } else {
                    check_nan(c, got, s, row, h);
                }
            }
        }
    }
    check_alone(c, b, got);
    check_other_blocks(c, b, got);
}

/* One back end against the reference's results. */
static void check_backend(kc_at_case_t *c, const kc_backend_t *b,
                          const at_result_t *want)
{
    at_result_t got;

    if (kc_skips(b, b->be->ops->rope_store != NULL, true, "rope_store")) {
        return;
    }
    got = run_backend(c, b);
    kc_expect(memcmp(want->cache, got.cache, c->cache_floats * sizeof(float)) ==
                  0,
              "rope_store, %s: cache differs, %s", b->name, c->what);
    kc_expect_equal(want->qkv, got.qkv, c->n_rows * c->row_floats, "rope_store",
                    b->name);
    if (kc_is_tensor(b)) {
        check_tensor(c, b, &got);
    } else if (!kc_skips(b, b->be->ops->attention != NULL, false,
                         "attention")) {
        kc_expect_equal(want->out, got.out,
                        (size_t)c->n_rows * c->n_heads * c->dim, c->what,
                        b->name);
        check_alone(c, b, want);
        check_other_blocks(c, b, want);
    }
    free_result(&got);
}

static void check_case(bt_kv_type_t type, kc_at_kind_t kind, uint32_t max_pos)
{
    kc_at_case_t c;
    at_result_t want;

    if (!kc_takes()) {
        return;
    }
    kc_at_make(&c, type, kind, max_pos);
    want = run_backend(&c, &kc_backends[0]);
    if (kind == KC_AT_ORDINARY) {
        check_with_double(&c, &want);
    }
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        check_backend(&c, &kc_backends[i], &want);
    }
    free_result(&want);
    kc_at_free(&c);
}

void kc_test_attention(void)
{
    for (uint32_t round = 0; round < N_ORDINARY; round++) {
        check_case((bt_kv_type_t)(round % 4), KC_AT_ORDINARY, KC_AT_MAX_POS);
    }
    for (uint32_t round = 0; round < N_EXTREME; round++) {
        const uint32_t kind = 1 + round / 4 % (KC_AT_N_KINDS - 1);

        check_case((bt_kv_type_t)(round % 4), (kc_at_kind_t)kind,
                   KC_AT_MAX_POS);
    }
}

void kc_test_tensor_attention(void)
{
    bool any = false;

    for (uint32_t i = 0; i < kc_n_backends; i++) {
        any = any || kc_is_tensor(&kc_backends[i]);
    }
    for (uint32_t round = 0; any && (round < N_SHORT + N_LONG); round++) {
        const uint32_t kind =
            (round / 4 % 3 == 0) ? 1 + round / 12 % (KC_AT_N_KINDS - 1) : 0;

        /* The long ones are of several parts (attention_tensor.cu). */
        check_case((bt_kv_type_t)(round % 4), (kc_at_kind_t)kind,
                   (round < N_SHORT) ? KC_AT_MAX_POS : KC_AT_LONG_POS);
    }
}
