/* SPDX-License-Identifier: Apache-2.0 */
/** @file grids.h
 *
 * Grid points of the IQ types: short vectors of small numbers, chosen by the
 * authors of the types and not given by a formula. A point is 16 bits, four
 * points a word: eight numbers of 2 bits, or (IQ3) four of 4 bits, the first in
 * the lowest bits. kquants.c has the meaning of the numbers.
 * Source: ggml, "ggml-common.h" (iq2xxs_grid and the others).
 */
#ifndef BT_KERNELS_QUANT_GRIDS_H
#define BT_KERNELS_QUANT_GRIDS_H

#include <stdint.h>

extern const uint64_t bt_grid_iq2_xxs[64]; /**< 256 points of 8 */
extern const uint64_t bt_grid_iq2_xs[128]; /**< 512 points of 8 */
extern const uint64_t bt_grid_iq2_s[256];  /**< 1024 points of 8 */
extern const uint64_t bt_grid_iq3_xxs[64]; /**< 256 points of 4 */
extern const uint64_t bt_grid_iq3_s[128];  /**< 512 points of 4 */
extern const uint64_t bt_grid_iq1[512];    /**< 2048 points of 8 */

/** Returns point @a i; the caller keeps i within the grid. */
static inline uint32_t bt_grid_point(const uint64_t *grid, uint32_t i)
{
    return (uint32_t)(grid[i / 4] >> (i % 4 * 16)) & 0xffffu;
}

#endif
