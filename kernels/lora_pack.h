/* SPDX-License-Identifier: Apache-2.0 */
/** @file lora_pack.h
 *
 * Sizes of the packed matrices of LoRA adapters (bt_lora_rows_t).
 */
#ifndef BT_KERNELS_LORA_PACK_H
#define BT_KERNELS_LORA_PACK_H

#include <stddef.h>
#include <stdint.h>

/** Values to a multiple of which the rows of bt_lora_rows_t's matrices are
 *  padded with zeros. */
#define BT_LORA_LANES 16u
/** Accumulators of an element of A x, to a multiple of which A has rows. */
#define BT_LORA_SUMS 4u

/** Returns the number of values in a row of a transposed matrix B of n outputs,
 *  and the most that a row of A^T of rank n has. */
static inline size_t bt_lora_lanes(uint32_t n)
{
    return ((size_t)n + BT_LORA_LANES - 1) / BT_LORA_LANES * BT_LORA_LANES;
}

/** Returns the number of values in a row of a transposed matrix A: small ranks
 *  are padded to 8, for the reads of A are what an adapter costs. */
static inline size_t bt_lora_rank_lanes(uint32_t rank)
{
    return (rank <= BT_LORA_LANES / 2) ? BT_LORA_LANES / 2
                                       : bt_lora_lanes(rank);
}

/** Returns the number of rows of a transposed matrix A of n_in inputs. */
static inline size_t bt_lora_rows_in(uint32_t n_in)
{
    return ((size_t)n_in + BT_LORA_SUMS - 1) / BT_LORA_SUMS * BT_LORA_SUMS;
}

#endif
