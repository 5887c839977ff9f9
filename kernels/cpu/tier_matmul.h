/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_matmul.h
 *
 * Matmul of F32 and F16 weights. A vector tier's file includes this header
 * once, after the tier's header and these definitions:
 *
 *     DIRECT_ROWS  up to this many rows, weights are converted in registers and
 *                  used at once; with more, a panel is converted to scratch and
 *                  register tiles run over it
 *     TILE_ROWS    the largest tile
 *
 * A register tile is n_rows x two registers of outputs. Every output is summed
 * with k ascending, one FMA each.
 */
#ifndef BT_KERNELS_CPU_TIER_MATMUL_H
#define BT_KERNELS_CPU_TIER_MATMUL_H

#include "kernels/cpu/tiers.h"

/** Multiplies all rows of the batch with panels begin .. end - 1; defined by
 *  the tier. */
SPECIALIZE void direct(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end);
/** Multiplies all rows with a converted panel; defined by the tier. */
static void tiles(const bt_matmul_job_t *job, uint32_t panel,
                  const float *weights);

/* Weights of one k of a dense panel; v counts registers of the panel. */
SPECIALIZE vec_t load_dense(bt_pack_t pack, const uint8_t *panel, size_t k,
                            uint32_t v)
{
    switch (pack) {
    case BT_PACK_F16:
        return vec_load_f16(panel + k * 64 + (size_t)2 * VEC * v);
    default:
        return vec_load(panel + k * 128 + (size_t)4 * VEC * v);
    }
}

/* acc[r][v] += w[v] * x[r] */
SPECIALIZE void tile_step(uint32_t n_rows, vec_t w0, vec_t w1, const float *x,
                          vec_t (*acc)[2])
{
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        vec_t xr = vec_all(x[r]);

        acc[r][0] = vec_fma(w0, xr, acc[r][0]);
        acc[r][1] = vec_fma(w1, xr, acc[r][1]);
    }
}

/* n_rows (constant) rows; x is (n_in, x_stride). */
SPECIALIZE void tile(uint32_t n_rows, const float *weights, const float *x,
                     uint32_t x_stride, uint32_t n_in, bool add, float *out,
                     size_t out_stride, uint32_t n)
{
    vec_t acc[TILE_ROWS][2];

    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        acc[r][0] = vec_zero();
        acc[r][1] = vec_zero();
    }
    for (uint32_t k = 0; k < n_in; k++) {
        tile_step(n_rows, vec_load(weights), vec_load(weights + VEC), x, acc);
        weights += BT_PANEL;
        x += x_stride;
    }
    UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        store_sums(out + r * out_stride, n, add, acc[r]);
    }
}

/* Convert a whole panel to (n_in, 32). */
SPECIALIZE void unpack(bt_pack_t pack, const bt_weight_t *w, const uint8_t *src,
                       float *out)
{
    for (size_t k = 0; k < w->n_in; k++) {
        UNROLL
        for (uint32_t v = 0; v < BT_PANEL / VEC; v++) {
            vec_store(out + k * BT_PANEL + (size_t)VEC * v,
                      load_dense(pack, src, k, v));
        }
    }
}

SPECIALIZE void matmul_pack(bt_pack_t pack, const bt_matmul_job_t *job,
                            uint32_t begin, uint32_t end, float *scratch)
{
    if (job->n_rows <= DIRECT_ROWS) {
        direct(pack, job, begin, end);
        return;
    }
    for (uint32_t p = begin; p < end; p++) {
        const uint8_t *src = job->w->data + p * job->w->panel_bytes;

        if (pack == BT_PACK_F32) {
            tiles(job, p, (const float *)(const void *)src);
        } else {
            unpack(pack, job->w, src, scratch);
            tiles(job, p, scratch);
        }
    }
}

void TIER(matmul)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                  float *scratch)
{
    switch (job->w->pack) {
    case BT_PACK_F16:
        matmul_pack(BT_PACK_F16, job, begin, end, scratch);
        break;
    default:
        matmul_pack(BT_PACK_F32, job, begin, end, scratch);
        break;
    }
}

#endif
