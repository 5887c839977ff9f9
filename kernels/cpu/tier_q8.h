/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_q8.h  Matmul of quantized weights: the packs as constants, for
 * the panels() of the tier whose file includes it. */
#ifndef BT_KERNELS_CPU_TIER_Q8_H
#define BT_KERNELS_CPU_TIER_Q8_H

#include "kernels/cpu/simd.h"

/** The tier's own: all rows times panels begin .. end - 1. */
SPECIALIZE void panels(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end);

void TIER(matmul_q8)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end)
{
    switch (job->w->pack) {
    case BT_PACK_Q4_0:
        panels(BT_PACK_Q4_0, job, begin, end);
        break;
    case BT_PACK_Q4_1:
        panels(BT_PACK_Q4_1, job, begin, end);
        break;
    case BT_PACK_Q4_F32:
        panels(BT_PACK_Q4_F32, job, begin, end);
        break;
    case BT_PACK_Q2:
        panels(BT_PACK_Q2, job, begin, end);
        break;
    case BT_PACK_Q2_TWO_MIN:
        panels(BT_PACK_Q2_TWO_MIN, job, begin, end);
        break;
    case BT_PACK_BOOK:
        panels(BT_PACK_BOOK, job, begin, end);
        break;
    case BT_PACK_BOOK_TWO:
        panels(BT_PACK_BOOK_TWO, job, begin, end);
        break;
    case BT_PACK_BOOK_F32:
        panels(BT_PACK_BOOK_F32, job, begin, end);
        break;
    case BT_PACK_BOOK_TWO_F32:
        panels(BT_PACK_BOOK_TWO_F32, job, begin, end);
        break;
    case BT_PACK_Q8_MIN:
        panels(BT_PACK_Q8_MIN, job, begin, end);
        break;
    case BT_PACK_Q8_TWO:
        panels(BT_PACK_Q8_TWO, job, begin, end);
        break;
    default:
        panels(BT_PACK_Q8, job, begin, end);
        break;
    }
}

#endif
