/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/quant/quant.h"

static bt_pack_t pack_of_type(bt_ktype_t type)
{
    switch (type) {
    case BT_KTYPE_F16:
        return BT_PACK_F16;
    case BT_KTYPE_BF16:
        return BT_PACK_BF16;
    case BT_KTYPE_Q4_0:
        return BT_PACK_Q4_0;
    case BT_KTYPE_Q4_1:
        return BT_PACK_Q4_1;
    case BT_KTYPE_Q4_K:
        return BT_PACK_Q4_F32;
    case BT_KTYPE_TQ1_0:
    case BT_KTYPE_TQ2_0:
        return BT_PACK_Q2;
    case BT_KTYPE_Q2_K:
        return BT_PACK_Q2_TWO_MIN;
    case BT_KTYPE_IQ4_NL:
        return BT_PACK_BOOK;
    case BT_KTYPE_NVFP4:
        return BT_PACK_BOOK_TWO;
    case BT_KTYPE_IQ1_S:
    case BT_KTYPE_IQ2_XXS:
    case BT_KTYPE_IQ3_XXS:
    case BT_KTYPE_IQ3_S:
    case BT_KTYPE_IQ4_XS:
    case BT_KTYPE_MXFP4:
        return BT_PACK_BOOK_F32;
    case BT_KTYPE_Q3_K:
    case BT_KTYPE_IQ1_M:
    case BT_KTYPE_IQ2_XS:
    case BT_KTYPE_IQ2_S:
        return BT_PACK_BOOK_TWO_F32;
    case BT_KTYPE_Q5_0:
    case BT_KTYPE_Q8_0:
        return BT_PACK_Q8;
    case BT_KTYPE_Q5_1:
    case BT_KTYPE_Q5_K:
        return BT_PACK_Q8_MIN;
    case BT_KTYPE_Q6_K:
        return BT_PACK_Q8_TWO;
    case BT_KTYPE_F32:
    default:
        return BT_PACK_F32;
    }
}

static size_t panel_bytes(bt_pack_t pack, uint32_t n_in)
{
    const bt_pack_format_t format = bt_pack_format(pack);

    /* A dense row may end inside a group, but inside no pair. */
    return (format.scale_at == 0)
               ? (n_in + (size_t)(pack == BT_PACK_BF16) * (n_in % 2)) *
                     BT_PANEL * format.bits / 8
               : (size_t)n_in / BT_QUANT_GROUP * format.bytes;
}

size_t bt_pack_bytes(bt_ktype_t type, uint32_t n_out, uint32_t n_in)
{
    uint32_t n_elems;
    uint32_t n_bytes;
    uint32_t n_panels = n_out / BT_PANEL + (n_out % BT_PANEL != 0);
    size_t bytes;

    if ((bt_ktype_block(type, &n_elems, &n_bytes) != BT_OK) || (n_out == 0) ||
        (n_in == 0) || (n_in % n_elems != 0) ||
        __builtin_mul_overflow(panel_bytes(pack_of_type(type), n_in), n_panels,
                               &bytes)) {
        return 0;
    }
    return bytes;
}

typedef struct pack_job {
    const bt_weight_t *w;
    uint8_t *out;
    const uint8_t *data;
    size_t row_bytes;
} pack_job_t;

/* Which element of a dense panel is k of @a lane. */
static size_t dense_index(bt_pack_t pack, size_t k, uint32_t lane)
{
    return (pack == BT_PACK_BF16) ? (k / 2 * BT_PANEL + lane) * 2 + k % 2
                                  : k * BT_PANEL + lane;
}

/* Lane @a lane of a panel from one row of 16- or 32-bit elements. */
static void pack_dense_row(const bt_weight_t *w, const uint8_t *row,
                           uint8_t *panel, uint32_t lane)
{
    const size_t size = bt_pack_format(w->pack).bits / 8;

    for (size_t k = 0; k < w->n_in; k++) {
        memcpy(panel + dense_index(w->pack, k, lane) * size, row + k * size,
               size);
    }
}

/* The bits of k of a group: the byte that they are in, of @a lane, and from
 * which bit on. */
typedef struct place {
    size_t byte;
    uint32_t shift;
} place_t;

static place_t place_of(const bt_pack_format_t *format, uint32_t k,
                        uint32_t lane)
{
    const uint32_t per_line = 32 / format->bits; /* k of one line of bytes */

    return (place_t){
        .byte = ((size_t)(k / per_line) * BT_PANEL + lane) * 4 + k % 4,
        .shift = k % per_line / 4 * format->bits,
    };
}

/* dst is zero where @a lane has its codes. */
static void pack_codes(const bt_pack_format_t *format, const uint8_t *indices,
                       const bt_quant_group_t *group, uint8_t *dst,
                       uint32_t lane)
{
    for (uint32_t k = 0; k < BT_QUANT_GROUP; k++) {
        const place_t place = place_of(format, k, lane);
        const uint8_t code =
            (uint8_t)((uint32_t)(int32_t)group->code[k] + format->bias);

        dst[place.byte] |=
            (uint8_t)((format->book ? indices[code] : code) << place.shift);
    }
}

/* Where each code + bias is in a weight's book. */
static void invert_book(const uint8_t *book, uint8_t *indices)
{
    memset(indices, 0, 256);
    for (uint32_t i = BT_QUANT_BOOK; i-- > 0;) {
        indices[book[i]] = (uint8_t)i;
    }
}

/* A lane's scales or minima of both halves; f16 where they came as such. */
static void pack_factors(const bt_pack_format_t *format, const float *factors,
                         uint8_t *dst, uint32_t lane)
{
    for (uint32_t h = 0; h < (format->two ? 2u : 1u); h++) {
        const uint16_t half = bt_f32_to_f16(factors[h]);
        uint8_t *at = dst + (size_t)h * bt_pack_half_bytes(*format);

        if (format->f16) {
            memcpy(at + (size_t)lane * 2, &half, sizeof(half));
        } else {
            memcpy(at + (size_t)lane * 4, &factors[h], sizeof(*factors));
        }
    }
}

static void pack_quant_row(const bt_weight_t *w, const uint8_t *row,
                           uint8_t *panel, uint32_t lane)
{
    const bt_pack_format_t format = bt_pack_format(w->pack);
    bt_quant_group_t group;
    uint8_t indices[256];

    invert_book(w->book, indices);
    for (uint32_t g = 0; g < w->n_in / BT_QUANT_GROUP; g++) {
        uint8_t *dst = panel + (size_t)g * format.bytes;

        bt_quant_group_read(w->type, row, g, &group);
        pack_codes(&format, indices, &group, dst, lane);
        pack_factors(&format, group.scale, dst + format.scale_at, lane);
        if (format.min_at != 0) {
            pack_factors(&format, group.min, dst + format.min_at, lane);
        }
    }
}

static void pack_panels(void *ctx, uint32_t thread, uint32_t begin,
                        uint32_t end)
{
    const pack_job_t *job = ctx;
    const bt_weight_t *w = job->w;

    (void)thread;
    for (uint32_t p = begin; p < end; p++) {
        uint8_t *panel = job->out + p * w->panel_bytes;

        for (uint32_t lane = 0; lane < BT_PANEL; lane++) {
            uint32_t o = p * BT_PANEL + lane;
            const uint8_t *row = job->data + o * job->row_bytes;

            if (o >= w->n_out) {
                break;
            }
            if (bt_pack_format(w->pack).scale_at == 0) {
                pack_dense_row(w, row, panel, lane);
            } else {
                pack_quant_row(w, row, panel, lane);
            }
        }
    }
}

/* Shape alone; data is the caller's to set. */
static bt_weight_t *weight_new(bt_ktype_t type, uint32_t n_out, uint32_t n_in)
{
    const int8_t *book = bt_quant_book(type);
    bt_weight_t *w = bt_calloc(1, sizeof(*w));

    if (w == NULL) {
        return NULL;
    }
    w->type = type;
    w->pack = pack_of_type(type);
    w->n_out = n_out;
    w->n_in = n_in;
    w->n_panels = n_out / BT_PANEL + (n_out % BT_PANEL != 0);
    w->panel_bytes = panel_bytes(w->pack, n_in);
    if (book != NULL) {
        for (uint32_t i = 0; i < BT_QUANT_BOOK; i++) {
            w->book[i] = (uint8_t)(book[i] + (int)bt_pack_format(w->pack).bias);
        }
    }
    return w;
}

bt_status_t bt_pack_create(bt_cpu_pool_t *pool, bt_ktype_t type, uint32_t n_out,
                           uint32_t n_in, const void *data,
                           bt_weight_t **weight_p)
{
    size_t bytes = bt_pack_bytes(type, n_out, n_in);
    bt_weight_t *w;
    pack_job_t job;
    uint32_t n_elems;
    uint32_t n_bytes;

    if ((bytes == 0) || (bt_ktype_block(type, &n_elems, &n_bytes) != BT_OK)) {
        return BT_ERR_UNSUPPORTED;
    }
    w = weight_new(type, n_out, n_in);
    if (w == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    w->own = bt_calloc_aligned(bytes, 1);
    if (w->own == NULL) {
        bt_free(w);
        return BT_ERR_NO_MEMORY;
    }
    w->data = w->own;

    job.w = w;
    job.out = w->own;
    job.data = data;
    job.row_bytes = (size_t)(n_in / n_elems) * n_bytes;
    bt_cpu_pool_run(pool, w->n_panels, 1, pack_panels, &job);
    *weight_p = w;
    return BT_OK;
}

bt_status_t bt_pack_adopt(bt_ktype_t type, uint32_t n_out, uint32_t n_in,
                          const void *data, size_t bytes,
                          bt_weight_t **weight_p)
{
    const size_t wanted = bt_pack_bytes(type, n_out, n_in);
    bt_weight_t *w;

    if (wanted == 0) {
        return BT_ERR_UNSUPPORTED;
    }
    if ((data == NULL) || (bytes != wanted) || ((uintptr_t)data % 64 != 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    w = weight_new(type, n_out, n_in);
    if (w == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    w->data = data;
    *weight_p = w;
    return BT_OK;
}

void bt_pack_destroy(bt_weight_t *weight)
{
    if (weight != NULL) {
        bt_free(weight->own);
        bt_free(weight);
    }
}

static float load_f32(const uint8_t *p, uint32_t index)
{
    float value;

    memcpy(&value, p + (size_t)index * 4, sizeof(value));
    return value;
}

static uint16_t load_u16(const uint8_t *p, uint32_t index)
{
    uint16_t value;

    memcpy(&value, p + (size_t)index * 2, sizeof(value));
    return value;
}

static float read_dense(bt_pack_t pack, const uint8_t *panel, size_t k,
                        uint32_t lane)
{
    const size_t index = dense_index(pack, k, lane);
    uint16_t half;
    float value;

    if (pack == BT_PACK_F32) {
        memcpy(&value, panel + index * 4, sizeof(value));
        return value;
    }
    memcpy(&half, panel + index * 2, sizeof(half));
    return (pack == BT_PACK_F16) ? bt_f16_to_f32(half) : bt_bf16_to_f32(half);
}

static float read_factor(const bt_pack_format_t *format, const uint8_t *p,
                         uint32_t lane)
{
    return format->f16 ? bt_f16_to_f32(load_u16(p, lane)) : load_f32(p, lane);
}

void bt_pack_read_codes(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        uint32_t lane, bt_quant_group_t *group)
{
    const bt_pack_format_t format = bt_pack_format(w->pack);
    const uint8_t *src =
        w->data + panel * w->panel_bytes + (size_t)g * format.bytes;

    for (uint32_t k = 0; k < BT_QUANT_GROUP; k++) {
        const place_t place = place_of(&format, k, lane);
        uint32_t code = ((uint32_t)src[place.byte] >> place.shift) &
                        (255u >> (8 - format.bits));

        code = format.book ? w->book[code] : code;
        group->code[k] = (int8_t)((int)code - (int)format.bias);
    }
    for (uint32_t h = 0; h < 2; h++) {
        const size_t half =
            format.two ? (size_t)h * bt_pack_half_bytes(format) : 0;

        group->scale[h] =
            read_factor(&format, src + format.scale_at + half, lane);
        group->min[h] =
            (format.min_at == 0)
                ? -0.0f
                : read_factor(&format, src + format.min_at + half, lane);
    }
}

/* 32 values of one lane of a group, `stride` floats apart. */
static void read_quant_lane(const bt_weight_t *w, uint32_t panel, uint32_t g,
                            uint32_t lane, float *out, size_t stride)
{
    bt_quant_group_t group;

    bt_pack_read_codes(w, panel, g, lane, &group);
    for (uint32_t k = 0; k < BT_QUANT_GROUP; k++) {
        out[k * stride] =
            group.scale[k / 16] * (float)group.code[k] + group.min[k / 16];
    }
}

void bt_pack_read_group(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        float *out)
{
    const uint8_t *data = w->data + panel * w->panel_bytes;

    if (bt_pack_format(w->pack).scale_at == 0) {
        uint32_t first = g * BT_QUANT_GROUP;
        uint32_t n = w->n_in - first;

        n = ((n > BT_QUANT_GROUP) ? BT_QUANT_GROUP : n) * BT_PANEL;
        for (uint32_t i = 0; i < n; i++) {
            out[i] =
                read_dense(w->pack, data, first + i / BT_PANEL, i % BT_PANEL);
        }
        return;
    }
    for (uint32_t lane = 0; lane < BT_PANEL; lane++) {
        read_quant_lane(w, panel, g, lane, out + lane, BT_PANEL);
    }
}

void bt_pack_read_row(const bt_weight_t *w, uint32_t row, float *out)
{
    const uint8_t *data = w->data + row / BT_PANEL * w->panel_bytes;
    uint32_t lane = row % BT_PANEL;

    if (bt_pack_format(w->pack).scale_at == 0) {
        for (size_t k = 0; k < w->n_in; k++) {
            out[k] = read_dense(w->pack, data, k, lane);
        }
        return;
    }
    for (uint32_t g = 0; g < w->n_in / BT_QUANT_GROUP; g++) {
        read_quant_lane(w, row / BT_PANEL, g, lane,
                        out + (size_t)g * BT_QUANT_GROUP, 1);
    }
}
