/* SPDX-License-Identifier: Apache-2.0 */
/** @file pack.h
 *
 * Packed weights of the CPU back end: what lies in memory, and in the file that
 * the workers of a host share.
 *
 * A lane is an output. 32 outputs form a *panel*; inside a panel everything is
 * k-major, so one load brings the same k of neighbouring outputs and each lane
 * sums its own output with k ascending:
 *
 *     F32, F16                elem[k][32]
 *     BF16    pairs of k      elem[k / 2][32][k % 2], a last k without a
 *                             partner has 0
 *     quantized               blocks of 1, 2 or 8 groups of 32 k: see
 *                             bt_pack_format_t
 *
 * Codes are unsigned, as the dot product instructions want them: the pack's
 * bias (bt_pack_format()) is added. Those of a *book* are indices of 16 codes,
 * which bt_weight.book has with the bias. The last panel is filled up with
 * zeros, and so is a last block. Every piece begins on 64 bytes.
 *
 * **Tight and wide.** Memory is what limits a few rows, so packs are hardly
 * larger than the file: codes of 5 and 6 bits, scales that are small integers
 * times a number of 256 weights. To take that apart costs instructions and
 * registers, which a tile of many rows does not have. For these what is tight
 * in a panel is first *widened* into scratch, once for all rows: codes of 5 and
 * 6 bits become 8, each scale a float (bt_pack_wide()). Both have the same
 * values, so the sums have the same bits.
 *
 * Threads: immutable once made.
 */
#ifndef BT_KERNELS_CPU_PACK_H
#define BT_KERNELS_CPU_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/cpu/pool.h"
#include "kernels/cpu/quant/quant.h"
#include "kernels/kernels.h"

#define BT_PANEL 32u /**< outputs of a panel */

/** Number of the layout that bt_pack_create() writes, whatever the tier. Raise
 *  it with every change of a byte of it, or old files are taken for new ones
 *  (kernels.h, pack_version). */
#define BT_PACK_VERSION 6u

typedef enum bt_pack {
    BT_PACK_F32,
    BT_PACK_F16,
    BT_PACK_BF16,
    BT_PACK_TERNARY, /**< TQ1_0, TQ2_0 */
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

struct bt_weight {
    bt_pack_t pack;
    bt_ktype_t type;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_panels;
    size_t panel_bytes;
    const uint8_t *data; /**< n_panels * panel_bytes, 64-byte aligned */
    uint8_t *own;        /**< the same, NULL: borrowed (bt_pack_adopt()) */
    float unit;          /**< of steps: what the stored units are times */
    uint8_t book[BT_QUANT_BOOK]; /**< codes + bias; of packs with a book */
};

/** What a scale or minimum of a lane is. */
typedef enum bt_pack_factor {
    BT_FACTOR_F16,
    BT_FACTOR_F32,   /**< of wide panels only */
    BT_FACTOR_E8M0,  /**< u8: bt_quant_e8m0_half() */
    BT_FACTOR_STEPS, /**< i8, times the f16 unit of 8 groups * weight.unit */
} bt_pack_factor_t;

/**
 * What a pack is, and where the pieces of a block of a quantized panel are.
 * With f16 or f32 for factors a block is one group:
 *
 *     u8 code[bits][32][4], scale[1 or 2][32] (, min[1 or 2][32])
 *
 * With E8M0 it is a *pair* of groups, with steps four pairs behind their units.
 * A pair has its factors before its codes, so that all is read in one direction
 * and begins on 64 bytes:
 *
 *     steps  f16 unit[32] (, min_unit[32]), pair[4]
 *     pair   scale[2][1 or 2][32] (, min[2][1 or 2][32]), u8
 * code[2][bits][32][4]
 *
 * With 2, 4 or 8 bits, byte (i, o, j) has k = 32i/bits + 4c + j in its bits
 * from bits * c on, c = 0 .. 8/bits - 1. With 5 or 6 the first four lines have
 * their lower 4 bits so, and the others, as with 1 or 2 bits, the upper ones.
 */
typedef struct bt_pack_format {
    uint32_t bits;     /**< of a code, or of a dense element */
    uint32_t bias;     /**< added to codes, which makes them unsigned */
    uint32_t n_groups; /**< of a block; 0: dense */
    uint32_t bytes;    /**< of a block */
    bt_pack_factor_t factor;
    bool two;  /**< factors of k 0 .. 15, then of 16 .. 31 */
    bool min;  /**< there are minima */
    bool book; /**< codes are indices of bt_weight.book */
} bt_pack_format_t;

/** Bytes of the scales, or minima, of one half of a group. */
static inline uint32_t bt_pack_half_bytes(bt_pack_format_t format)
{
    return BT_PANEL * ((format.factor == BT_FACTOR_F32)   ? 4u
                       : (format.factor == BT_FACTOR_F16) ? 2u
                                                          : 1u);
}

/** Bytes of the scales, or minima, of a group. */
static inline uint32_t bt_pack_factor_bytes(bt_pack_format_t format)
{
    return bt_pack_half_bytes(format) * (format.two ? 2u : 1u);
}

/** Bytes of the codes of a group. */
static inline uint32_t bt_pack_code_bytes(bt_pack_format_t format)
{
    return format.bits * (BT_QUANT_GROUP / 8) * BT_PANEL;
}

/** Bytes of all factors of a group. */
static inline uint32_t bt_pack_factors_bytes(bt_pack_format_t format)
{
    return bt_pack_factor_bytes(format) * (format.min ? 2u : 1u);
}

/** Bytes of the units at a block's start; those of the minima are the second
 *  half. */
static inline uint32_t bt_pack_unit_bytes(bt_pack_format_t format)
{
    return (format.factor == BT_FACTOR_STEPS)
               ? 2u * BT_PANEL * (format.min ? 2u : 1u)
               : 0;
}

/** The format whose block is not sized yet, with its sizes. */
static inline bt_pack_format_t bt_pack_sized(bt_pack_format_t f)
{
    f.n_groups = (f.factor == BT_FACTOR_STEPS)  ? 8
                 : (f.factor == BT_FACTOR_E8M0) ? 2
                                                : 1;
    f.bytes = bt_pack_unit_bytes(f) +
              f.n_groups * (bt_pack_factors_bytes(f) + bt_pack_code_bytes(f));
    return f;
}

#define BT_PACK_QUANT(...) bt_pack_sized((bt_pack_format_t){__VA_ARGS__})
#define BT_PACK_STEPS(...) BT_PACK_QUANT(.factor = BT_FACTOR_STEPS, __VA_ARGS__)
#define BT_PACK_OF_BOOK(...) \
    BT_PACK_QUANT(.bits = 4, .bias = 128, .book = true, __VA_ARGS__)

/** With a constant pack it vanishes: the tiers' functions are specialized. */
static inline bt_pack_format_t bt_pack_format(bt_pack_t pack)
{
    switch (pack) {
    case BT_PACK_F16:
    case BT_PACK_BF16:
        return (bt_pack_format_t){.bits = 16};
    case BT_PACK_TERNARY:
        return BT_PACK_QUANT(.bits = 2, .bias = 1);
    case BT_PACK_Q2_K:
        return BT_PACK_STEPS(.bits = 2, .two = true, .min = true);
    case BT_PACK_Q4_0:
        return BT_PACK_QUANT(.bits = 4, .bias = 8);
    case BT_PACK_Q4_1:
        return BT_PACK_QUANT(.bits = 4, .min = true);
    case BT_PACK_Q4_K:
        return BT_PACK_STEPS(.bits = 4, .min = true);
    case BT_PACK_Q5_0:
        return BT_PACK_QUANT(.bits = 5, .bias = 16);
    case BT_PACK_Q5_1:
        return BT_PACK_QUANT(.bits = 5, .min = true);
    case BT_PACK_Q5_K:
        return BT_PACK_STEPS(.bits = 5, .min = true);
    case BT_PACK_Q6_K:
        return BT_PACK_STEPS(.bits = 6, .bias = 32, .two = true);
    case BT_PACK_Q8_0:
        return BT_PACK_QUANT(.bits = 8, .bias = 128);
    case BT_PACK_BOOK:
        return BT_PACK_OF_BOOK(.factor = BT_FACTOR_F16);
    case BT_PACK_BOOK_E8M0:
        return BT_PACK_OF_BOOK(.factor = BT_FACTOR_E8M0);
    case BT_PACK_BOOK_TWO:
        return BT_PACK_OF_BOOK(.two = true);
    case BT_PACK_BOOK_STEPS:
        return BT_PACK_OF_BOOK(.factor = BT_FACTOR_STEPS);
    case BT_PACK_BOOK_TWO_STEPS:
        return BT_PACK_OF_BOOK(.factor = BT_FACTOR_STEPS, .two = true);
    case BT_PACK_F32:
    default:
        return (bt_pack_format_t){.bits = 32};
    }
}

/** What the kernels see of a widened panel; a wide one's is its own. */
static inline bt_pack_format_t bt_pack_wide(bt_pack_format_t f)
{
    f.bits = (f.bits > 4) ? 8 : f.bits;
    f.factor = (f.factor == BT_FACTOR_F16) ? BT_FACTOR_F16 : BT_FACTOR_F32;
    return f;
}

/** What is made of each group when a panel is widened: the codes, the factors,
 *  or both. What is wide already is read where it lies. */
typedef struct bt_pack_scratch {
    bool has_codes; /**< at 0 */
    bool has_factors;
    uint32_t scale_at;
    uint32_t min_at;
    uint32_t bytes; /**< of a group; 0: all is wide */
} bt_pack_scratch_t;

static inline bt_pack_scratch_t bt_pack_scratch_at(bt_pack_format_t format)
{
    const bt_pack_format_t wide = bt_pack_wide(format);
    bt_pack_scratch_t at = {
        .has_codes = (wide.bits != format.bits),
        .has_factors = (wide.factor != format.factor),
    };

    at.scale_at = at.has_codes ? bt_pack_code_bytes(wide) : 0;
    at.min_at = at.scale_at + bt_pack_factor_bytes(wide);
    at.bytes = at.scale_at + (at.has_factors ? bt_pack_factors_bytes(wide) : 0);
    return at;
}

/** One group of a quantized panel: where its pieces are. */
typedef struct bt_pack_group {
    const uint8_t *codes;
    const uint8_t *scales;
    const uint8_t *mins;
} bt_pack_group_t;

/** Group @a i of the block at @a block. */
static inline bt_pack_group_t bt_pack_group_at(bt_pack_format_t format,
                                               const uint8_t *block, uint32_t i)
{
    const size_t codes = bt_pack_code_bytes(format);
    const size_t scales = bt_pack_factor_bytes(format);
    const size_t factors = bt_pack_factors_bytes(format);
    const uint8_t *pair = block + bt_pack_unit_bytes(format) +
                          (size_t)(i / 2) * 2 * (factors + codes);

    if (format.n_groups == 1) {
        return (bt_pack_group_t){.codes = block,
                                 .scales = block + codes,
                                 .mins = block + codes + scales};
    }
    return (bt_pack_group_t){
        .codes = pair + 2 * factors + i % 2 * codes,
        .scales = pair + i % 2 * scales,
        .mins = pair + 2 * scales + i % 2 * scales,
    };
}

/** Groups of a block, of which so many are left of a row: all but in a last
 * one.
 */
static inline uint32_t bt_pack_groups_left(bt_pack_format_t format,
                                           uint32_t n_left)
{
    return (n_left < format.n_groups) ? n_left : format.n_groups;
}

/** Values of group @a g (32 k, fewer at the end of a dense row) of @a panel:
 *  out[k][32]. The specification of the packed formats. */
void bt_pack_read_group(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        float *out);

/** Codes without bias, scales and minima (-0.0: none) of one lane of a group
 *  of a quantized panel. */
void bt_pack_read_codes(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        uint32_t lane, bt_quant_group_t *group);

/** Values k of output @a row: out (n_in). */
void bt_pack_read_row(const bt_weight_t *w, uint32_t row, float *out);

/** @param data  Of a tensor of that type and shape, rows one after the other.
 *  @retval BT_ERR_UNSUPPORTED  type or shape
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pack_create(bt_cpu_pool_t *pool, bt_ktype_t type,
                                         uint32_t n_out, uint32_t n_in,
                                         const void *data,
                                         bt_weight_t **weight_p);
void bt_pack_destroy(bt_weight_t *weight); /**< NULL is allowed. */
/** @return 0: no such type or shape */
size_t bt_pack_bytes(bt_ktype_t type, uint32_t n_out, uint32_t n_in);

/** Bytes that a panel of the type takes when it is widened, 0 where none is. */
size_t bt_pack_scratch_bytes(bt_ktype_t type, uint32_t n_in);

/** A weight over the bytes of one that bt_pack_create() made of the same type
 *  and shape, in this process or another. Any bytes are safe: they are numbers
 *  only. Borrowed until bt_pack_destroy().
 *  @retval BT_ERR_UNSUPPORTED    type or shape
 *  @retval BT_ERR_INVALID_PARAM  another number of bytes, or not aligned
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pack_adopt(bt_ktype_t type, uint32_t n_out,
                                        uint32_t n_in, const void *data,
                                        size_t bytes, bt_weight_t **weight_p);

#endif
