/* SPDX-License-Identifier: Apache-2.0 */
/** @file format.h
 *
 * Layouts of packed weights (described in pack.h) as numbers: C and CUDA C++
 * alike, in CUDA C++ as compile-time constants.
 */
#ifndef BT_KERNELS_PACK_FORMAT_H
#define BT_KERNELS_PACK_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define BT_PACK_NUMBER static constexpr __host__ __device__
#elif defined(__cplusplus)
#define BT_PACK_NUMBER static constexpr
#else
#define BT_PACK_NUMBER static inline
#endif

#define BT_PANEL      32u /**< outputs of a panel */
#define BT_PACK_GROUP 32u /**< k of a group */

typedef enum bt_pack {
    BT_PACK_F32,
    BT_PACK_F16,
    BT_PACK_BF16,
    BT_PACK_E4M3,      /**< multiplied as F32 */
    BT_PACK_E4M3_BF16, /**< bytes of E4M3, multiplied as BF16 */
    BT_PACK_TERNARY,   /**< TQ1_0, TQ2_0 */
    BT_PACK_Q2_K,
    BT_PACK_Q4_0,
    BT_PACK_Q4_1,
    BT_PACK_Q4_K,
    BT_PACK_Q5_0,
    BT_PACK_Q5_1,
    BT_PACK_Q5_K,
    BT_PACK_Q6_K,
    BT_PACK_Q8_0,
    BT_PACK_BOOK,           /**< IQ4_NL */
    BT_PACK_BOOK_E8M0,      /**< MXFP4 */
    BT_PACK_BOOK_TWO,       /**< NVFP4 */
    BT_PACK_BOOK_STEPS,     /**< IQ1_S, IQ2_XXS, IQ3_XXS, IQ3_S, IQ4_XS */
    BT_PACK_BOOK_TWO_STEPS, /**< Q3_K, IQ1_M, IQ2_XS, IQ2_S */
} bt_pack_t;

/** Encoding of a scale or minimum of a lane. */
typedef enum bt_pack_factor {
    BT_FACTOR_F16,
    BT_FACTOR_F32,   /**< only in wide panels */
    BT_FACTOR_E8M0,  /**< u8: bt_quant_e8m0_half() */
    BT_FACTOR_STEPS, /**< i8, times the f16 unit of 8 groups * weight.unit */
} bt_pack_factor_t;

/**
 * Format of a pack, and the positions of the pieces in a block of a quantized
 * panel. With f16 or f32 factors a block is one group:
 *
 *     u8 code[bits][32][4], scale[1 or 2][32] (, min[1 or 2][32])
 *
 * With E8M0 factors it is a *pair* of groups, with steps four pairs after their
 * units. A pair has its factors before its codes, so that everything is read in
 * one direction and is 64-byte aligned:
 *
 *     steps  f16 unit[32] (, min_unit[32]), pair[4]
 *     pair   scale[2][1 or 2][32] (, min[2][1 or 2][32]),
 *            u8 code[2][bits][32][4]
 *
 * With 2, 4 or 8 bits, byte (i, o, j) has k = 32i/bits + 4c + j in its bits
 * from bits * c on, c = 0 .. 8/bits - 1. With 5 or 6 bits the first four lines
 * have the lower 4 bits in this order, and the other lines the upper bits, in
 * the order of 1 or 2 bits.
 */
typedef struct bt_pack_format {
    uint32_t bits;     /**< bits of a code, or of a dense element */
    uint32_t bias;     /**< added to codes, which makes them unsigned */
    uint32_t n_groups; /**< groups of a block; 0: dense */
    uint32_t bytes;    /**< bytes of a block */
    bt_pack_factor_t factor;
    bool two;  /**< separate factors for k 0 .. 15 and 16 .. 31 */
    bool min;  /**< has minima */
    bool book; /**< codes are indices of bt_weight.book */
} bt_pack_format_t;

/** Returns the bytes of the scales, or minima, of one half of a group. */
BT_PACK_NUMBER uint32_t bt_pack_half_bytes(bt_pack_format_t format)
{
    return BT_PANEL * ((format.factor == BT_FACTOR_F32)   ? 4u
                       : (format.factor == BT_FACTOR_F16) ? 2u
                                                          : 1u);
}

/** Returns the bytes of the scales, or minima, of a group. */
BT_PACK_NUMBER uint32_t bt_pack_factor_bytes(bt_pack_format_t format)
{
    return bt_pack_half_bytes(format) * (format.two ? 2u : 1u);
}

/** Returns the bytes of the codes of a group. */
BT_PACK_NUMBER uint32_t bt_pack_code_bytes(bt_pack_format_t format)
{
    return format.bits * (BT_PACK_GROUP / 8) * BT_PANEL;
}

/** Returns the bytes of all factors of a group. */
BT_PACK_NUMBER uint32_t bt_pack_factors_bytes(bt_pack_format_t format)
{
    return bt_pack_factor_bytes(format) * (format.min ? 2u : 1u);
}

/** Returns the bytes of the units at a block's start; the units of the minima
 *  are the second half. */
BT_PACK_NUMBER uint32_t bt_pack_unit_bytes(bt_pack_format_t format)
{
    return (format.factor == BT_FACTOR_STEPS)
               ? 2u * BT_PANEL * (format.min ? 2u : 1u)
               : 0;
}

/** Completes a format of codes with the sizes of its block. */
BT_PACK_NUMBER bt_pack_format_t bt_pack_sized(bt_pack_format_t f)
{
    f.n_groups = (f.factor == BT_FACTOR_STEPS)  ? 8
                 : (f.factor == BT_FACTOR_E8M0) ? 2
                                                : 1;
    f.bytes = bt_pack_unit_bytes(f) +
              f.n_groups * (bt_pack_factors_bytes(f) + bt_pack_code_bytes(f));
    return f;
}

/** Returns a format with one scale per group, or (@a two) per half group, and
 *  with minima if @a min. */
BT_PACK_NUMBER bt_pack_format_t bt_pack_codes_of(uint32_t bits, uint32_t bias,
                                                 bt_pack_factor_t factor,
                                                 bool two, bool min)
{
    const bt_pack_format_t f = {bits, bias, 0, 0, factor, two, min, false};

    return bt_pack_sized(f);
}

BT_PACK_NUMBER bt_pack_format_t bt_pack_book_of(bt_pack_factor_t factor,
                                                bool two)
{
    const bt_pack_format_t f = {4, 128, 0, 0, factor, two, false, true};

    return bt_pack_sized(f);
}

BT_PACK_NUMBER bt_pack_format_t bt_pack_dense_of(uint32_t bits)
{
    const bt_pack_format_t f = {bits,          0,     0,     0,
                                BT_FACTOR_F16, false, false, false};

    return f;
}

/** Returns the format of a pack. A constant @a pack makes it a compile-time
 *  constant: the functions of the tiers are specialized. */
BT_PACK_NUMBER bt_pack_format_t bt_pack_format(bt_pack_t pack)
{
    switch (pack) {
    case BT_PACK_F16:
    case BT_PACK_BF16:
        return bt_pack_dense_of(16);
    case BT_PACK_E4M3:
    case BT_PACK_E4M3_BF16:
        return bt_pack_dense_of(8);
    case BT_PACK_TERNARY:
        return bt_pack_codes_of(2, 1, BT_FACTOR_F16, false, false);
    case BT_PACK_Q2_K:
        return bt_pack_codes_of(2, 0, BT_FACTOR_STEPS, true, true);
    case BT_PACK_Q4_0:
        return bt_pack_codes_of(4, 8, BT_FACTOR_F16, false, false);
    case BT_PACK_Q4_1:
        return bt_pack_codes_of(4, 0, BT_FACTOR_F16, false, true);
    case BT_PACK_Q4_K:
        return bt_pack_codes_of(4, 0, BT_FACTOR_STEPS, false, true);
    case BT_PACK_Q5_0:
        return bt_pack_codes_of(5, 16, BT_FACTOR_F16, false, false);
    case BT_PACK_Q5_1:
        return bt_pack_codes_of(5, 0, BT_FACTOR_F16, false, true);
    case BT_PACK_Q5_K:
        return bt_pack_codes_of(5, 0, BT_FACTOR_STEPS, false, true);
    case BT_PACK_Q6_K:
        return bt_pack_codes_of(6, 32, BT_FACTOR_STEPS, true, false);
    case BT_PACK_Q8_0:
        return bt_pack_codes_of(8, 128, BT_FACTOR_F16, false, false);
    case BT_PACK_BOOK:
        return bt_pack_book_of(BT_FACTOR_F16, false);
    case BT_PACK_BOOK_E8M0:
        return bt_pack_book_of(BT_FACTOR_E8M0, false);
    case BT_PACK_BOOK_TWO:
        return bt_pack_book_of(BT_FACTOR_F16, true);
    case BT_PACK_BOOK_STEPS:
        return bt_pack_book_of(BT_FACTOR_STEPS, false);
    case BT_PACK_BOOK_TWO_STEPS:
        return bt_pack_book_of(BT_FACTOR_STEPS, true);
    case BT_PACK_F32:
    default:
        return bt_pack_dense_of(32);
    }
}

/** True when elements are individual numbers and not codes. */
BT_PACK_NUMBER bool bt_pack_is_dense(bt_pack_t pack)
{
    return bt_pack_format(pack).n_groups == 0;
}

/** True for E4M3 codes with one scale per block of an output. */
BT_PACK_NUMBER bool bt_pack_is_e4m3(bt_pack_t pack)
{
    return (pack == BT_PACK_E4M3) || (pack == BT_PACK_E4M3_BF16);
}

/** Lines of 32 words in an E4M3 block: scales, then 16 lines of codes. */
#define BT_E4M3_LINES 17u
#define BT_E4M3_BYTES (BT_E4M3_LINES * BT_PANEL * 4u)

/** Returns the position of code k of a lane in its block, in bytes from the
 *  block's start. A word has k, k + 1, k + 8 and k + 9, the operands of one
 *  lane in a product of 16 k, ordered so that bytes 0 and 2, 1 and 3 are
 *  pairs. */
BT_PACK_NUMBER uint32_t bt_e4m3_at(uint32_t k, uint32_t lane)
{
    return ((1u + k / 16u * 4u + k % 8u / 2u) * BT_PANEL + lane) * 4u +
           k % 2u * 2u + k / 8u % 2u;
}

/** Positions of the pieces of a group in its block, in bytes. */
typedef struct bt_pack_offsets {
    size_t codes;
    size_t scales;
    size_t mins;
} bt_pack_offsets_t;

/** Returns the positions for group @a i of a block. */
BT_PACK_NUMBER bt_pack_offsets_t bt_pack_offsets_of(bt_pack_format_t format,
                                                    uint32_t i)
{
    const size_t codes = bt_pack_code_bytes(format);
    const size_t scales = bt_pack_factor_bytes(format);
    const size_t factors = bt_pack_factors_bytes(format);
    const size_t pair =
        bt_pack_unit_bytes(format) + (size_t)(i / 2) * 2 * (factors + codes);
    const bt_pack_offsets_t alone = {0, codes, codes + scales};
    const bt_pack_offsets_t paired = {pair + 2 * factors + i % 2 * codes,
                                      pair + i % 2 * scales,
                                      pair + 2 * scales + i % 2 * scales};

    return (format.n_groups == 1) ? alone : paired;
}

#endif
