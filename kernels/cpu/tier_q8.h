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
    case BT_PACK_TERNARY:
        panels(BT_PACK_TERNARY, job, begin, end);
        break;
    case BT_PACK_Q2_K:
        panels(BT_PACK_Q2_K, job, begin, end);
        break;
    case BT_PACK_Q4_0:
        panels(BT_PACK_Q4_0, job, begin, end);
        break;
    case BT_PACK_Q4_1:
        panels(BT_PACK_Q4_1, job, begin, end);
        break;
    case BT_PACK_Q4_K:
        panels(BT_PACK_Q4_K, job, begin, end);
        break;
    case BT_PACK_Q5_0:
        panels(BT_PACK_Q5_0, job, begin, end);
        break;
    case BT_PACK_Q5_1:
        panels(BT_PACK_Q5_1, job, begin, end);
        break;
    case BT_PACK_Q5_K:
        panels(BT_PACK_Q5_K, job, begin, end);
        break;
    case BT_PACK_Q6_K:
        panels(BT_PACK_Q6_K, job, begin, end);
        break;
    case BT_PACK_BOOK:
        panels(BT_PACK_BOOK, job, begin, end);
        break;
    case BT_PACK_BOOK_BF16:
        panels(BT_PACK_BOOK_BF16, job, begin, end);
        break;
    case BT_PACK_BOOK_TWO:
        panels(BT_PACK_BOOK_TWO, job, begin, end);
        break;
    case BT_PACK_BOOK_STEPS:
        panels(BT_PACK_BOOK_STEPS, job, begin, end);
        break;
    case BT_PACK_BOOK_TWO_STEPS:
        panels(BT_PACK_BOOK_TWO_STEPS, job, begin, end);
        break;
    default:
        panels(BT_PACK_Q8_0, job, begin, end);
        break;
    }
}

#endif
