/* SPDX-License-Identifier: Apache-2.0 */
/** @file tiles.h
 *
 * Rows of a product as its blocks see them. A *tile* is adjacent rows with one
 * matrix, as many as the form of a kernel takes at most. A kernel is compiled
 * for both: all rows with one matrix, and the slots of a mixture of experts
 * (kernels.h), each with the matrix of its expert. A row's sums are the same in
 * both, and in every tile.
 */
#ifndef BT_KERNELS_CUDA_TILES_H
#define BT_KERNELS_CUDA_TILES_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/unpack.h"

/** Rows @a first .. @a end - 1, of which a block takes as many as its form has,
 *  and the first panel of their matrix. */
struct BtTile {
    uint32_t first, end;
    uint32_t panel;
};

/** All rows, with one matrix: matmul(). */
struct BtAllRows {
    uint32_t n_rows;

    __device__ __forceinline__ uint32_t n_tiles(uint32_t tile_rows) const
    {
        return (n_rows + tile_rows - 1) / tile_rows;
    }

    __device__ __forceinline__ BtTile tile(uint32_t i, uint32_t tile_rows,
                                           const BtMatrix &) const
    {
        return {i * tile_rows, n_rows, 0};
    }

    __device__ __forceinline__ size_t from(uint32_t row) const
    {
        return row;
    }

    __device__ __forceinline__ float *to(float *out, uint32_t row,
                                         const BtMatrix &m) const
    {
        return out + static_cast<size_t>(row) * m.n_out;
    }
};

/** Slots, each with its expert's matrix: matmul_experts(). */
struct BtSlotRows {
    const uint4 *tiles;   /* (all_tiles): first, end, expert, 0; equal ends
                           * where there is none */
    const uint32_t *rows; /* input row of each slot; NULL: by slot */
    uint32_t first;       /* slot of the first input row, where by slot */
    uint32_t all_tiles;
    size_t row_floats; /* from one output row to the next */

    __device__ __forceinline__ uint32_t n_tiles(uint32_t) const
    {
        return all_tiles;
    }

    __device__ __forceinline__ BtTile tile(uint32_t i, uint32_t,
                                           const BtMatrix &m) const
    {
        const uint4 found = bt_load(tiles + i);

        return {found.x, found.y, found.z * m.n_panels};
    }

    __device__ __forceinline__ size_t from(uint32_t slot) const
    {
        return (rows == nullptr) ? slot - first : bt_load(rows + slot);
    }

    __device__ __forceinline__ float *to(float *out, uint32_t slot,
                                         const BtMatrix &) const
    {
        return out + slot * row_floats;
    }
};

/** Slots of a product, cut into tiles of tile_rows at most. */
struct BtSlotTiles {
    BtSlotRows rows;
    uint32_t tile_rows; /* bt_cuda_tile_rows() */
    uint32_t n_out;     /* of one expert, a multiple of BT_PANEL */
};

/** Returns one expert's matrix of a stacked one: its data is the first's. */
static inline BtMatrix bt_expert_matrix_of(const bt_weight_t *w,
                                           const BtSlotTiles &slots)
{
    BtMatrix m = bt_matrix_of(w);

    m.n_out = slots.n_out;
    m.n_panels = slots.n_out / BT_PANEL;
    return m;
}

#endif
