/* SPDX-License-Identifier: Apache-2.0 */
/** @file blocks.h  Block readers, internal to kernels/quant. */
#ifndef BT_KERNELS_QUANT_BLOCKS_H
#define BT_KERNELS_QUANT_BLOCKS_H

#include "kernels/half.h"
#include "kernels/quant/quant.h"

static inline uint16_t bt_read_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (p[1] << 8));
}

static inline uint32_t bt_read_u32(const uint8_t *p)
{
    return (uint32_t)bt_read_u16(p) | ((uint32_t)bt_read_u16(p + 2) << 16);
}

static inline float bt_read_f16(const uint8_t *p)
{
    return bt_f16_to_f32(bt_read_u16(p));
}

/** Sets one scale for the whole group. */
static inline void bt_group_scale(bt_quant_group_t *group, float scale)
{
    group->scale[0] = scale;
    group->scale[1] = scale;
}

static inline void bt_group_min(bt_quant_group_t *group, float min)
{
    group->min[0] = min;
    group->min[1] = min;
}

/** Sets the scale of half @a h to the product of unit and step. */
static inline void bt_group_step(bt_quant_group_t *group, uint32_t h,
                                 float unit, int step)
{
    group->unit = unit;
    group->step[h] = (int8_t)step;
    group->scale[h] = unit * (float)step;
}

/** Sets the scale of both halves to the product of unit and step. */
static inline void bt_group_steps(bt_quant_group_t *group, float unit, int step)
{
    bt_group_step(group, 0, unit, step);
    bt_group_step(group, 1, unit, step);
}

/** Sets the minimum of half @a h to the product of unit and step. */
static inline void bt_group_min_step(bt_quant_group_t *group, uint32_t h,
                                     float unit, int step)
{
    group->min_unit = unit;
    group->min_step[h] = (int8_t)step;
    group->min[h] = unit * (float)step;
}

/** Reads group @a j of the block at @a block. The caller sets the minima in @a
 *  group to -0.0 first. */
typedef void bt_block_reader_t(const uint8_t *block, uint32_t j,
                               bt_quant_group_t *group);

/* kquants.c */
bt_block_reader_t bt_read_q4_0;
bt_block_reader_t bt_read_q4_1;
bt_block_reader_t bt_read_q5_0;
bt_block_reader_t bt_read_q5_1;
bt_block_reader_t bt_read_q8_0;
/* kquants.c */
bt_block_reader_t bt_read_q2_k;
bt_block_reader_t bt_read_q3_k;
bt_block_reader_t bt_read_q4_k;
bt_block_reader_t bt_read_q5_k;
bt_block_reader_t bt_read_q6_k;
/* books.c */
bt_block_reader_t bt_read_iq4_nl;
bt_block_reader_t bt_read_iq4_xs;
bt_block_reader_t bt_read_mxfp4;
bt_block_reader_t bt_read_nvfp4;
extern const int8_t bt_book_iq4[BT_QUANT_BOOK];
extern const int8_t bt_book_fp4[BT_QUANT_BOOK];
extern const int8_t bt_book_q3_k[BT_QUANT_BOOK];
extern const int8_t bt_book_iq1[BT_QUANT_BOOK];
extern const int8_t bt_book_iq2[BT_QUANT_BOOK];
extern const int8_t bt_book_iq3_xxs[BT_QUANT_BOOK];
extern const int8_t bt_book_iq3_s[BT_QUANT_BOOK];
/* kquants.c */
bt_block_reader_t bt_read_iq1_s;
bt_block_reader_t bt_read_iq1_m;
bt_block_reader_t bt_read_iq2_xxs;
bt_block_reader_t bt_read_iq2_xs;
bt_block_reader_t bt_read_iq2_s;
bt_block_reader_t bt_read_iq3_xxs;
bt_block_reader_t bt_read_iq3_s;
/* kquants.c */
bt_block_reader_t bt_read_tq1_0;
bt_block_reader_t bt_read_tq2_0;

#endif
