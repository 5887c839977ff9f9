/* SPDX-License-Identifier: Apache-2.0 */
/** @file unpack.h
 *
 * Packed weights (kernels/pack/format.h) as the lanes of a warp read them: lane
 * o has output o of a panel, so that each line of codes is one request of 128
 * bytes. Format properties are compile-time constants of the pack.
 */
#ifndef BT_KERNELS_CUDA_UNPACK_H
#define BT_KERNELS_CUDA_UNPACK_H

#include "kernels/cuda/device.h"
#include "kernels/half.h"
#include "kernels/pack/pack.h"

/** Weight in the form that kernels receive. */
struct BtMatrix {
    const uint8_t *data; /* on the device */
    size_t panel_bytes;
    uint32_t n_out, n_in, n_panels;
    float unit;
    uint32_t book[BT_QUANT_BOOK / 4]; /* signed codes */
};

static inline BtMatrix bt_matrix_of(const bt_weight_t *w)
{
    BtMatrix m = {w->data,     w->panel_bytes, w->n_out, w->n_in,
                  w->n_panels, w->unit,        {0}};

    for (uint32_t i = 0; i < BT_QUANT_BOOK; i++) {
        m.book[i / 4] |= static_cast<uint32_t>(w->book[i] ^ 0x80u)
                         << (i % 4 * 8);
    }
    return m;
}

/** Constants of a quantized pack. */
template <bt_pack_t P> struct BtPack {
    static constexpr bt_pack_format_t format = bt_pack_format(P);
    /** Bits of a code in the first lines, and in the lines after them. */
    static constexpr uint32_t low =
        ((format.bits == 5) || (format.bits == 6)) ? 4 : format.bits;
    static constexpr uint32_t high = format.bits - low;
    static constexpr uint32_t halves = format.two ? 2 : 1; /* scales per
                                                            * group */
    /** Bias of codes that are stored with a bias and multiplied unsigned. */
    static constexpr uint32_t bias =
        (format.book || (format.bias == 128)) ? 0 : format.bias;
};

/** Codes of one lane and group, as stored. */
template <bt_pack_t P> struct BtCodes {
    uint32_t low[BtPack<P>::low];
    uint32_t high[(BtPack<P>::high > 0) ? BtPack<P>::high : 1];
};

template <bt_pack_t P>
__device__ __forceinline__ BtCodes<P> bt_load_codes(const uint8_t *codes,
                                                    uint32_t lane)
{
    const uint32_t *words = reinterpret_cast<const uint32_t *>(codes) + lane;
    BtCodes<P> c;

    BT_UNROLL
    for (uint32_t i = 0; i < BtPack<P>::low; i++) {
        c.low[i] = bt_load(words + i * BT_PANEL);
    }
    c.high[0] = 0;
    if constexpr (BtPack<P>::high > 0) {
        BT_UNROLL
        for (uint32_t i = 0; i < BtPack<P>::high; i++) {
            c.high[i] = bt_load(words + (4 + i) * BT_PANEL);
        }
    }
    return c;
}

/** Returns four codes of a codebook by their indices, one byte each. */
__device__ __forceinline__ uint32_t bt_from_book(const uint32_t book[4],
                                                 uint32_t indices)
{
    uint32_t select = indices & 0x07070707u;
    const uint32_t upper = (indices >> 3 & 0x01010101u) * 0xffu;

    select = (select | select >> 4) & 0x00ff00ffu;
    select = (select | select >> 8) & 0xffffu;
    return (__byte_perm(book[0], book[1], select) & ~upper) |
           (__byte_perm(book[2], book[3], select) & upper);
}

/** Returns the lines with the low and the high bits of codes k = 4 @a quad .. +
 *  3 of a group. */
template <bt_pack_t P>
__device__ __forceinline__ uint32_t bt_low_line(uint32_t quad)
{
    return quad / (8 / BtPack<P>::low);
}

template <bt_pack_t P>
__device__ __forceinline__ uint32_t bt_high_line(uint32_t quad)
{
    if constexpr (BtPack<P>::high > 0) {
        return quad / (8 / BtPack<P>::high);
    }
    return 0;
}

/** Extracts the codes of @a quad, one byte each, from the words of their lines:
 *  signed except for BtPack::bias. */
template <bt_pack_t P>
__device__ __forceinline__ uint32_t bt_codes_of(const BtMatrix &m, uint32_t low,
                                                uint32_t high, uint32_t quad)
{
    constexpr uint32_t n_low = BtPack<P>::low;
    constexpr uint32_t n_high = BtPack<P>::high;
    uint32_t code =
        low >> (quad % (8 / n_low) * n_low) & 0x01010101u * ((1u << n_low) - 1);

    if constexpr (n_high > 0) {
        code |= (high >> (quad % (8 / n_high) * n_high) &
                 0x01010101u * ((1u << n_high) - 1))
                << 4;
    }
    if (BtPack<P>::format.book) {
        return bt_from_book(m.book, code);
    }
    return (BtPack<P>::format.bias == 128) ? code ^ 0x80808080u : code;
}

template <bt_pack_t P>
__device__ __forceinline__ uint32_t bt_quad(const BtMatrix &m,
                                            const BtCodes<P> &c, uint32_t quad)
{
    return bt_codes_of<P>(m, c.low[bt_low_line<P>(quad)],
                          c.high[bt_high_line<P>(quad)], quad);
}

/** Returns the unit of a lane's steps in a block; @a half 0: for scales, 1: for
 *  minima. */
template <bt_pack_t P>
__device__ __forceinline__ float
bt_unit(const BtMatrix &m, const uint8_t *block, uint32_t half, uint32_t lane)
{
    if (BtPack<P>::format.factor != BT_FACTOR_STEPS) {
        return 0.0f;
    }
    return bt_half_to_float(bt_load(reinterpret_cast<const uint16_t *>(block) +
                                    half * BT_PANEL + lane)) *
           m.unit;
}

/** Decodes a scale or minimum from its bits. */
template <bt_pack_t P>
__device__ __forceinline__ float bt_factor_of(uint32_t bits, float unit)
{
    if (BtPack<P>::format.factor == BT_FACTOR_F16) {
        return bt_half_to_float(static_cast<uint16_t>(bits));
    }
    if (BtPack<P>::format.factor == BT_FACTOR_E8M0) {
        return bt_quant_e8m0_half(bits & 0xffu);
    }
    return unit * static_cast<float>(static_cast<int8_t>(bits));
}

/** Returns a lane's scale or minimum; @a at points to the factors of all
 *  lanes. */
template <bt_pack_t P>
__device__ __forceinline__ float bt_factor(const uint8_t *at, float unit,
                                           uint32_t lane)
{
    return bt_factor_of<P>(
        (BtPack<P>::format.factor == BT_FACTOR_F16)
            ? bt_load(reinterpret_cast<const uint16_t *>(at) + lane)
            : bt_load(at + lane),
        unit);
}

/** Expands CALL(P) for the constant P equal to @a pack, a quantized one. */
#define BT_CUDA_EACH_PACK(pack, CALL) \
    switch (pack) {                   \
    case BT_PACK_TERNARY:             \
        CALL(BT_PACK_TERNARY);        \
        break;                        \
    case BT_PACK_Q2_K:                \
        CALL(BT_PACK_Q2_K);           \
        break;                        \
    case BT_PACK_Q4_0:                \
        CALL(BT_PACK_Q4_0);           \
        break;                        \
    case BT_PACK_Q4_1:                \
        CALL(BT_PACK_Q4_1);           \
        break;                        \
    case BT_PACK_Q4_K:                \
        CALL(BT_PACK_Q4_K);           \
        break;                        \
    case BT_PACK_Q5_0:                \
        CALL(BT_PACK_Q5_0);           \
        break;                        \
    case BT_PACK_Q5_1:                \
        CALL(BT_PACK_Q5_1);           \
        break;                        \
    case BT_PACK_Q5_K:                \
        CALL(BT_PACK_Q5_K);           \
        break;                        \
    case BT_PACK_Q6_K:                \
        CALL(BT_PACK_Q6_K);           \
        break;                        \
    case BT_PACK_Q8_0:                \
        CALL(BT_PACK_Q8_0);           \
        break;                        \
    case BT_PACK_BOOK:                \
        CALL(BT_PACK_BOOK);           \
        break;                        \
    case BT_PACK_BOOK_E8M0:           \
        CALL(BT_PACK_BOOK_E8M0);      \
        break;                        \
    case BT_PACK_BOOK_TWO:            \
        CALL(BT_PACK_BOOK_TWO);       \
        break;                        \
    case BT_PACK_BOOK_STEPS:          \
        CALL(BT_PACK_BOOK_STEPS);     \
        break;                        \
    case BT_PACK_BOOK_TWO_STEPS:      \
        CALL(BT_PACK_BOOK_TWO_STEPS); \
        break;                        \
    default:                          \
        break;                        \
    }

#endif
