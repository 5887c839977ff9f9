/* SPDX-License-Identifier: Apache-2.0 */
/** @file tensor.h
 *
 * Products of small matrices by a warp, and how their pieces come from shared
 * memory. All 32 lanes take part, on the same line. Which lane holds what: PTX
 * ISA, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
 */
#ifndef BT_TESTS_SIMT_TENSOR_H
#define BT_TESTS_SIMT_TENSOR_H

#include "tests/simt/machine.h"

namespace simt
{

/** d = a b + c of signed bytes: mma.m16n8k16.row.col.s32.s8.s8.s32. A sum that
 *  leaves 32 bits comes in again at the other end. */
void mma_s8(int32_t d[4], const uint32_t a[2], uint32_t b, const int32_t c[4],
            int line);

/** d = a b + c of bfloat16, summed as float: mma.m16n8k16.row.col.f32.bf16.
 *  bf16.f32. Here products are added to c one by one, k ascending, each sum
 *  rounded to the nearest. That is one device's order, not every device's: the
 *  manual leaves order and rounding open, and hardware adds several at once. So
 *  no kernel may be held to these bits. */
void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
              const float c[4], int line);

/** The same of binary16: mma.m16n8k16.row.col.f32.f16.f16.f32. */
void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2],
             const float c[4], int line);

/** ldmatrix of @a n (1, 2, 4) matrices of 8 rows of 8 halves: lane i brings the
 *  address of row i % 8 of matrix i / 8, a multiple of 16. */
void load_matrices(uint32_t *r, unsigned n, bool transposed, const void *row,
                   const Place &place);

} // namespace simt

#endif
