/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "kernels/half.h"
#include "kernels/pack/pack.h"
#include "kernels/quant/quant.h"

static bt_pack_t pack_of_type(bt_ktype_t type)
{
    switch (type) {
    case BT_KTYPE_F16:
        return BT_PACK_F16;
    case BT_KTYPE_BF16:
        return BT_PACK_BF16;
    case BT_KTYPE_E4M3:
        return BT_PACK_E4M3;
    case BT_KTYPE_E4M3_BF16:
        return BT_PACK_E4M3_BF16;
    case BT_KTYPE_TQ1_0:
    case BT_KTYPE_TQ2_0:
        return BT_PACK_TERNARY;
    case BT_KTYPE_Q2_K:
        return BT_PACK_Q2_K;
    case BT_KTYPE_Q4_0:
        return BT_PACK_Q4_0;
    case BT_KTYPE_Q4_1:
        return BT_PACK_Q4_1;
    case BT_KTYPE_Q4_K:
        return BT_PACK_Q4_K;
    case BT_KTYPE_Q5_0:
        return BT_PACK_Q5_0;
    case BT_KTYPE_Q5_1:
        return BT_PACK_Q5_1;
    case BT_KTYPE_Q5_K:
        return BT_PACK_Q5_K;
    case BT_KTYPE_Q6_K:
        return BT_PACK_Q6_K;
    case BT_KTYPE_Q8_0:
        return BT_PACK_Q8_0;
    case BT_KTYPE_IQ4_NL:
        return BT_PACK_BOOK;
    case BT_KTYPE_MXFP4:
        return BT_PACK_BOOK_E8M0;
    case BT_KTYPE_NVFP4:
        return BT_PACK_BOOK_TWO;
    case BT_KTYPE_IQ1_S:
    case BT_KTYPE_IQ2_XXS:
    case BT_KTYPE_IQ3_XXS:
    case BT_KTYPE_IQ3_S:
    case BT_KTYPE_IQ4_XS:
        return BT_PACK_BOOK_STEPS;
    case BT_KTYPE_Q3_K:
    case BT_KTYPE_IQ1_M:
    case BT_KTYPE_IQ2_XS:
    case BT_KTYPE_IQ2_S:
        return BT_PACK_BOOK_TWO_STEPS;
    case BT_KTYPE_F32:
    default:
        return BT_PACK_F32;
    }
}

static size_t panel_bytes(bt_pack_t pack, uint32_t n_in)
{
    const bt_pack_format_t format = bt_pack_format(pack);

    if (bt_pack_is_e4m3(pack)) {
        return (size_t)n_in / BT_E4M3_BLOCK * BT_E4M3_BYTES;
    }
    /* A dense row may end inside a group, but not inside a pair. */
    return bt_pack_is_dense(pack)
               ? (n_in + (size_t)(pack == BT_PACK_BF16) * (n_in % 2)) *
                     BT_PANEL * format.bits / 8
               : ((size_t)n_in / BT_QUANT_GROUP + format.n_groups - 1) /
                     format.n_groups * format.bytes;
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

size_t bt_pack_scratch_bytes(bt_ktype_t type, uint32_t n_in)
{
    const bt_pack_t pack = pack_of_type(type);

    if (bt_pack_is_e4m3(pack)) {
        return (size_t)n_in * BT_PANEL * ((pack == BT_PACK_E4M3) ? 4 : 2);
    }
    return bt_pack_is_dense(pack)
               ? 0
               : (size_t)n_in / BT_QUANT_GROUP *
                     bt_pack_scratch_at(bt_pack_format(pack)).bytes;
}

/* Index of the element with k of @a lane in a dense panel. */
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

/* Lane @a lane of a panel from one row of blocks. */
static void pack_e4m3_row(const bt_weight_t *w, const uint8_t *row,
                          uint8_t *panel, uint32_t lane)
{
    for (uint32_t k = 0; k < w->n_in; k += BT_E4M3_BLOCK) {
        memcpy(panel + (size_t)lane * 4, row, 4);
        row += 4;
        for (uint32_t i = 0; i < BT_E4M3_BLOCK; i++) {
            panel[bt_e4m3_at(i, lane)] = *row++;
        }
        panel += BT_E4M3_BYTES;
    }
}

/* Position of the bits of k in a group: the byte of @a lane, and the first
 * bit. */
typedef struct bits_at {
    size_t byte;
    uint32_t shift;
} bits_at_t;

/* Stores a code's lower bits (@a high: the bits from the fifth on): @a bits in
 * the lines from @a first on. */
static bits_at_t bits_in_lines(uint32_t first, uint32_t bits, uint32_t k,
                               uint32_t lane)
{
    const uint32_t per_line = 32 / bits; /* k of one line of bytes */

    return (bits_at_t){
        .byte = ((size_t)(first + k / per_line) * BT_PANEL + lane) * 4 + k % 4,
        .shift = k % per_line / 4 * bits,
    };
}

static uint32_t low_bits(const bt_pack_format_t *format)
{
    return ((format->bits == 5) || (format->bits == 6)) ? 4 : format->bits;
}

static void write_code(const bt_pack_format_t *format, uint8_t *codes,
                       uint32_t k, uint32_t lane, uint32_t code)
{
    const uint32_t low = low_bits(format);
    const bits_at_t at = bits_in_lines(0, low, k, lane);

    codes[at.byte] |= (uint8_t)((code & ((1u << low) - 1)) << at.shift);
    if (low < format->bits) {
        const bits_at_t high = bits_in_lines(4, format->bits - 4, k, lane);

        codes[high.byte] |= (uint8_t)(code >> 4 << high.shift);
    }
}

static uint32_t read_code(const bt_pack_format_t *format, const uint8_t *codes,
                          uint32_t k, uint32_t lane)
{
    const uint32_t low = low_bits(format);
    const bits_at_t at = bits_in_lines(0, low, k, lane);
    uint32_t code = ((uint32_t)codes[at.byte] >> at.shift) & ((1u << low) - 1);

    if (low < format->bits) {
        const uint32_t n_high = format->bits - 4;
        const bits_at_t high = bits_in_lines(4, n_high, k, lane);

        code |=
            (((uint32_t)codes[high.byte] >> high.shift) & ((1u << n_high) - 1))
            << 4;
    }
    return code;
}

/* codes is zero where @a lane has its own. */
static void pack_codes(const bt_pack_format_t *format, const uint8_t *indices,
                       const bt_quant_group_t *group, uint8_t *codes,
                       uint32_t lane)
{
    for (uint32_t k = 0; k < BT_QUANT_GROUP; k++) {
        const uint8_t code =
            (uint8_t)((uint32_t)(int32_t)group->code[k] + format->bias);

        write_code(format, codes, k, lane, format->book ? indices[code] : code);
    }
}

/* Index of each code + bias in a weight's codebook. */
static void invert_book(const uint8_t *book, uint8_t *indices)
{
    memset(indices, 0, 256);
    for (uint32_t i = BT_QUANT_BOOK; i-- > 0;) {
        indices[book[i]] = (uint8_t)i;
    }
}

/* A lane's scales or minima of both halves, unchanged, so that nothing is
 * rounded. */
static void pack_factors(const bt_pack_format_t *format, const float *factors,
                         const int8_t *steps, uint8_t *dst, uint32_t lane)
{
    for (uint32_t h = 0; h < (format->two ? 2u : 1u); h++) {
        const uint16_t half = bt_f32_to_f16(factors[h]);
        uint8_t *at = dst + (size_t)h * bt_pack_half_bytes(*format);

        if (format->factor == BT_FACTOR_F16) {
            memcpy(at + (size_t)lane * 2, &half, sizeof(half));
        } else {
            at[lane] = (uint8_t)steps[h];
        }
    }
}

/* A lane's units, equal in all groups of a block. weight.unit is a power of
 * two. */
static void pack_units(const bt_weight_t *w, const bt_quant_group_t *group,
                       uint8_t *block, uint32_t lane)
{
    const bt_pack_format_t format = bt_pack_format(w->pack);
    const uint16_t unit = bt_f32_to_f16(group->unit / w->unit);

    memcpy(block + (size_t)lane * 2, &unit, sizeof(unit));
    if (format.min) { /* else there is none, not even a number */
        const uint16_t min_unit = bt_f32_to_f16(group->min_unit / w->unit);

        memcpy(block + 2 * BT_PANEL + (size_t)lane * 2, &min_unit,
               sizeof(min_unit));
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
        uint8_t *block = panel + (size_t)(g / format.n_groups) * format.bytes;
        const bt_pack_group_t at =
            bt_pack_group_at(format, block, g % format.n_groups);

        bt_quant_group_read(w->type, row, g, &group);
        pack_codes(&format, indices, &group, block + (at.codes - block), lane);
        pack_factors(&format, group.scale, group.step,
                     block + (at.scales - block), lane);
        if (format.min) {
            pack_factors(&format, group.min, group.min_step,
                         block + (at.mins - block), lane);
        }
        if (format.factor == BT_FACTOR_STEPS) {
            pack_units(w, &group, block, lane);
        }
    }
}

void bt_pack_panels(const bt_weight_t *w, const void *data, uint32_t begin,
                    uint32_t end)
{
    uint32_t n_elems = 1;
    uint32_t n_bytes = 0;
    size_t row_bytes;

    BT_ASSERT_ALWAYS(bt_ktype_block(w->type, &n_elems, &n_bytes) == BT_OK);
    row_bytes = (size_t)(w->n_in / n_elems) * n_bytes;
    for (uint32_t p = begin; p < end; p++) {
        uint8_t *panel = w->own + p * w->panel_bytes;

        for (uint32_t lane = 0; lane < BT_PANEL; lane++) {
            uint32_t o = p * BT_PANEL + lane;
            const uint8_t *row = (const uint8_t *)data + o * row_bytes;

            if (o >= w->n_out) {
                break;
            }
            if (bt_pack_is_e4m3(w->pack)) {
                pack_e4m3_row(w, row, panel, lane);
            } else if (bt_pack_is_dense(w->pack)) {
                pack_dense_row(w, row, panel, lane);
            } else {
                pack_quant_row(w, row, panel, lane);
            }
        }
    }
}

/* Factor of a unit that is not in the f16 of the file: it would not fit into
 * one where the type's own scales are steps of eighths or quarters. */
static float unit_of_type(bt_ktype_t type)
{
    switch (type) {
    case BT_KTYPE_IQ1_S:
    case BT_KTYPE_IQ1_M:
    case BT_KTYPE_IQ2_XXS:
    case BT_KTYPE_IQ2_XS:
    case BT_KTYPE_IQ2_S:
        return 0.125f;
    case BT_KTYPE_IQ3_XXS:
        return 0.25f;
    default:
        return 1.0f;
    }
}

/* Sets the shape only; the caller sets data. */
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
    w->unit = unit_of_type(type);
    if (book != NULL) {
        for (uint32_t i = 0; i < BT_QUANT_BOOK; i++) {
            w->book[i] = (uint8_t)(book[i] + (int)bt_pack_format(w->pack).bias);
        }
    }
    return w;
}

bt_status_t bt_pack_create(bt_ktype_t type, uint32_t n_out, uint32_t n_in,
                           bt_weight_t **weight_p)
{
    const size_t bytes = bt_pack_bytes(type, n_out, n_in);
    bt_weight_t *w;

    if (bytes == 0) {
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

void bt_pack_move(bt_weight_t *weight, const void *data)
{
    bt_free(weight->own);
    weight->own = NULL;
    weight->data = data;
}

void bt_pack_destroy(bt_weight_t *weight)
{
    if (weight != NULL) {
        bt_free(weight->own);
        bt_free(weight);
    }
}

static uint16_t load_u16(const uint8_t *p, uint32_t index)
{
    uint16_t value;

    memcpy(&value, p + (size_t)index * 2, sizeof(value));
    return value;
}

static float read_e4m3(const uint8_t *panel, size_t k, uint32_t lane)
{
    const uint8_t *block = panel + k / BT_E4M3_BLOCK * BT_E4M3_BYTES;
    float scale;

    memcpy(&scale, block + (size_t)lane * 4, sizeof(scale));
    return bt_e4m3_weight(block[bt_e4m3_at(k % BT_E4M3_BLOCK, lane)]) * scale;
}

static float read_dense(bt_pack_t pack, const uint8_t *panel, size_t k,
                        uint32_t lane)
{
    const size_t index = dense_index(pack, k, lane);
    uint16_t half;
    float value;

    if (bt_pack_is_e4m3(pack)) {
        return read_e4m3(panel, k, lane);
    }
    if (pack == BT_PACK_F32) {
        memcpy(&value, panel + index * 4, sizeof(value));
        return value;
    }
    memcpy(&half, panel + index * 2, sizeof(half));
    return (pack == BT_PACK_F16) ? bt_f16_to_f32(half) : bt_bf16_to_f32(half);
}

static float read_factor(bt_pack_format_t format, const uint8_t *p, float unit,
                         uint32_t lane)
{
    switch (format.factor) {
    case BT_FACTOR_F16:
        return bt_f16_to_f32(load_u16(p, lane));
    case BT_FACTOR_E8M0:
        return bt_quant_e8m0_half(p[lane]);
    default:
        return unit * (float)(int8_t)p[lane];
    }
}

void bt_pack_read_codes(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        uint32_t lane, bt_quant_group_t *group)
{
    const bt_pack_format_t format = bt_pack_format(w->pack);
    const uint8_t *block = w->data + panel * w->panel_bytes +
                           (size_t)(g / format.n_groups) * format.bytes;
    const bt_pack_group_t at =
        bt_pack_group_at(format, block, g % format.n_groups);
    const bool steps = (format.factor == BT_FACTOR_STEPS);
    const float unit =
        steps ? bt_f16_to_f32(load_u16(block, lane)) * w->unit : 0.0f;
    const float min_unit =
        (steps && format.min)
            ? bt_f16_to_f32(load_u16(block + 2 * BT_PANEL, lane)) * w->unit
            : 0.0f;

    for (uint32_t k = 0; k < BT_QUANT_GROUP; k++) {
        uint32_t code = read_code(&format, at.codes, k, lane);

        code = format.book ? w->book[code] : code;
        group->code[k] = (int8_t)((int)code - (int)format.bias);
    }
    for (uint32_t h = 0; h < 2; h++) {
        const size_t half =
            format.two ? (size_t)h * bt_pack_half_bytes(format) : 0;

        group->scale[h] = read_factor(format, at.scales + half, unit, lane);
        group->min[h] =
            format.min ? read_factor(format, at.mins + half, min_unit, lane)
                       : -0.0f;
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

    if (bt_pack_is_dense(w->pack)) {
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

    if (bt_pack_is_dense(w->pack)) {
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

void bt_pack_decode(const bt_weight_t *w, uint32_t panel, void *out)
{
    const uint8_t *data = w->data + panel * w->panel_bytes;
    uint8_t *at = out;

    for (size_t k = 0; k < w->n_in; k++) {
        for (uint32_t lane = 0; lane < BT_PANEL; lane++) {
            const float value = read_e4m3(data, k, lane);
            const uint16_t half = (uint16_t)(bt_f32_bits(value) >> 16);

            if (w->pack == BT_PACK_E4M3) {
                memcpy(at + dense_index(BT_PACK_F32, k, lane) * 4, &value, 4);
            } else { /* exact: the truncated bits are zeros */
                memcpy(at + dense_index(BT_PACK_BF16, k, lane) * 2, &half, 2);
            }
        }
    }
}
