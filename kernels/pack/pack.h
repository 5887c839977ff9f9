/* SPDX-License-Identifier: Apache-2.0 */
/** @file pack.h
 *
 * Packed weights, in the layout of every back end, both in memory and in the
 * file that the workers of a host share.
 *
 * A lane is an output. 32 outputs form a *panel*; inside a panel everything is
 * k-major, so one load reads the same k of neighbouring outputs and each lane
 * sums its own output with k ascending:
 *
 *     F32, F16                elem[k][32]
 *     BF16    pairs of k      elem[k / 2][32][k % 2], a last k without a
 *                             partner has 0
 *     E4M3    blocks of 64 k  f32 scale[32], u8 code[4][4][32][4]: of 16 k at a
 *                             time, bt_e4m3_at()
 *     quantized               blocks of 1, 2 or 8 groups of 32 k: see
 *                             bt_pack_format_t
 *
 * Codes are unsigned, as the dot product instructions require: the pack's bias
 * (bt_pack_format()) is added. Codes with a *codebook* are indices of its 16
 * codes, which are in bt_weight.book with the bias added. The last panel and
 * the last block are zero-padded. Every piece is 64-byte aligned.
 *
 * **Tight and wide.** With few rows, memory bandwidth is the limit, so packs
 * are hardly larger than the file: codes of 5 and 6 bits, scales that are small
 * integers times a number per 256 weights. Decoding them costs instructions and
 * registers, which a tile of many rows cannot spare. For many rows, the tight
 * parts of a panel are first *widened* into scratch, once for all rows: codes
 * of 5 and 6 bits become 8, each scale a float (bt_pack_wide()). Both forms
 * have the same values, so the sums have the same bits.
 *
 * Threads: immutable once made.
 */
#ifndef BT_KERNELS_PACK_PACK_H
#define BT_KERNELS_PACK_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/kernels.h"
#include "kernels/pack/format.h"
#include "kernels/quant/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Matrix types that have a packed layout: bt_kernels_caps_t. */
#define BT_PACK_TYPE(name) (1ull << BT_KTYPE_##name)
#define BT_PACK_TYPES                                                     \
    (BT_PACK_TYPE(F32) | BT_PACK_TYPE(F16) | BT_PACK_TYPE(BF16) |         \
     BT_PACK_TYPE(Q4_0) | BT_PACK_TYPE(Q4_1) | BT_PACK_TYPE(Q5_0) |       \
     BT_PACK_TYPE(Q5_1) | BT_PACK_TYPE(Q8_0) | BT_PACK_TYPE(Q2_K) |       \
     BT_PACK_TYPE(Q3_K) | BT_PACK_TYPE(Q4_K) | BT_PACK_TYPE(Q5_K) |       \
     BT_PACK_TYPE(Q6_K) | BT_PACK_TYPE(IQ1_S) | BT_PACK_TYPE(IQ1_M) |     \
     BT_PACK_TYPE(IQ2_XXS) | BT_PACK_TYPE(IQ2_XS) | BT_PACK_TYPE(IQ2_S) | \
     BT_PACK_TYPE(IQ3_XXS) | BT_PACK_TYPE(IQ3_S) | BT_PACK_TYPE(IQ4_NL) | \
     BT_PACK_TYPE(IQ4_XS) | BT_PACK_TYPE(TQ1_0) | BT_PACK_TYPE(TQ2_0) |   \
     BT_PACK_TYPE(MXFP4) | BT_PACK_TYPE(NVFP4) | BT_PACK_TYPE(E4M3) |     \
     BT_PACK_TYPE(E4M3_BF16))

/** Version of the layout that bt_pack_create() writes, for every tier. Raise it
 *  with every change of a byte of the layout, or old files are taken for new
 *  ones (kernels.h, pack_version). */
#define BT_PACK_VERSION 6u

struct bt_weight {
    bt_pack_t pack;
    bt_ktype_t type;
    uint32_t n_out;
    uint32_t n_in;
    uint32_t n_panels;
    size_t panel_bytes;
    const uint8_t *data; /**< n_panels * panel_bytes, 64-byte aligned */
    uint8_t *own;        /**< data if owned; NULL: borrowed (bt_pack_adopt()) */
    float unit;          /**< factor of the stored units of steps */
    uint8_t book[BT_QUANT_BOOK]; /**< codes + bias, for packs with a codebook */
};

/** Returns the format of a widened panel; a format that is wide already is
 *  unchanged. */
static inline bt_pack_format_t bt_pack_wide(bt_pack_format_t f)
{
    f.bits = (f.bits > 4) ? 8 : f.bits;
    f.factor = (f.factor == BT_FACTOR_F16) ? BT_FACTOR_F16 : BT_FACTOR_F32;
    return f;
}

/** Scratch layout of a widened group: the codes, the factors, or both. Parts
 *  that are wide already are read in place. */
typedef struct bt_pack_scratch {
    bool has_codes; /**< at offset 0 */
    bool has_factors;
    uint32_t scale_at;
    uint32_t min_at;
    uint32_t bytes; /**< bytes per group; 0: everything is wide already */
} bt_pack_scratch_t;

static inline bt_pack_scratch_t bt_pack_scratch_at(bt_pack_format_t format)
{
    const bt_pack_format_t wide = bt_pack_wide(format);
    bt_pack_scratch_t at;

    at.has_codes = (wide.bits != format.bits);
    at.has_factors = (wide.factor != format.factor);
    at.scale_at = at.has_codes ? bt_pack_code_bytes(wide) : 0;
    at.min_at = at.scale_at + bt_pack_factor_bytes(wide);
    at.bytes = at.scale_at + (at.has_factors ? bt_pack_factors_bytes(wide) : 0);
    return at;
}

/** Pointers to the pieces of one group of a quantized panel. */
typedef struct bt_pack_group {
    const uint8_t *codes;
    const uint8_t *scales;
    const uint8_t *mins;
} bt_pack_group_t;

/** Returns the pieces of group @a i of the block at @a block. */
static inline bt_pack_group_t bt_pack_group_at(bt_pack_format_t format,
                                               const uint8_t *block, uint32_t i)
{
    const bt_pack_offsets_t at = bt_pack_offsets_of(format, i);

    const bt_pack_group_t group = {block + at.codes, block + at.scales,
                                   block + at.mins};

    return group;
}

/** Returns the groups of a block when @a n_left groups are left of a row: a
 *  full block except in the last one. */
static inline uint32_t bt_pack_groups_left(bt_pack_format_t format,
                                           uint32_t n_left)
{
    return (n_left < format.n_groups) ? n_left : format.n_groups;
}

/** Reads the values of group @a g (32 k, fewer at the end of a dense row) of @a
 *  panel: out[k][32]. The specification of the packed formats. */
void bt_pack_read_group(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        float *out);

/** Reads codes without bias, scales and minima (-0.0: none) of one lane of a
 *  group of a quantized panel. */
void bt_pack_read_codes(const bt_weight_t *w, uint32_t panel, uint32_t g,
                        uint32_t lane, bt_quant_group_t *group);

/** Reads the values k of output @a row: out (n_in). */
void bt_pack_read_row(const bt_weight_t *w, uint32_t row, float *out);

/** Decodes a panel of E4M3 codes to the type that the codes stand for: out
 *  (bt_pack_scratch_bytes()). */
void bt_pack_decode(const bt_weight_t *w, uint32_t panel, void *out);

/** Allocates a weight, to be filled by bt_pack_panels().
 *  @retval BT_ERR_UNSUPPORTED  type or shape
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pack_create(bt_ktype_t type, uint32_t n_out,
                                         uint32_t n_in, bt_weight_t **weight_p);
/** Fills panels begin .. end - 1; other threads may fill other panels.
 *  @param data  A tensor of the weight's type and shape, rows one after the
 *      other. */
void bt_pack_panels(const bt_weight_t *weight, const void *data, uint32_t begin,
                    uint32_t end);
/** Moves the weight to a borrowed copy of its bytes at @a data, such as device
 *  memory, and frees the bytes of bt_pack_create(). */
void bt_pack_move(bt_weight_t *weight, const void *data);
void bt_pack_destroy(bt_weight_t *weight); /**< Frees a weight. NULL is
                                                allowed. */
/** Returns the packed bytes of a matrix.
 *  @return 0: unsupported type or shape */
size_t bt_pack_bytes(bt_ktype_t type, uint32_t n_out, uint32_t n_in);

/** Returns the bytes of a widened panel of the type, 0 if none is needed; for
 *  E4M3 the bytes of a panel of F32 or BF16 (bt_pack_decode()). */
size_t bt_pack_scratch_bytes(bt_ktype_t type, uint32_t n_in);

/** Creates a weight over bytes that bt_pack_create() made for the same type and
 *  shape, in this process or another. Any bytes are safe, as they are only
 *  numbers. Borrowed until bt_pack_destroy().
 *  @retval BT_ERR_UNSUPPORTED    type or shape
 *  @retval BT_ERR_INVALID_PARAM  wrong number of bytes, or not aligned
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_pack_adopt(bt_ktype_t type, uint32_t n_out,
                                        uint32_t n_in, const void *data,
                                        size_t bytes, bt_weight_t **weight_p);

#ifdef __cplusplus
}
#endif

#endif
