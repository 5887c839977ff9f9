/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_lora.h
 *
 * Products of adapters (bt_kernels_ops_t.lora) of a vector tier: lanes are
 * neighbouring outputs, so each sum has the order of body_lora_down() and
 * body_lora_up(). A tier's file includes this header once, after the tier's
 * header.
 */
#ifndef BT_KERNELS_CPU_TIER_LORA_H
#define BT_KERNELS_CPU_TIER_LORA_H

#include <string.h>

/** Registers of outputs computed together; BT_LORA_LANES is a multiple of
 *  their lanes. */
#define LORA_REGS (BT_LORA_LANES / VEC)

/* Loads VEC values of a matrix, from value i on. */
SPECIALIZE vec_t lora_load(bt_ktype_t type, const void *matrix, size_t i)
{
    switch (type) {
    case BT_KTYPE_F16:
        return vec_load_f16((const uint16_t *)matrix + i);
    case BT_KTYPE_BF16:
        return vec_load_bf16((const uint16_t *)matrix + i);
    default:
        return vec_load((const float *)matrix + i);
    }
}

/* Adds to sums (n_rows, LORA_REGS): n products of a row's factors and the 16
 * values of a matrix's rows, which begin at column @a at. */
SPECIALIZE void lora_sums(bt_ktype_t type, const void *matrix, size_t lanes,
                          size_t at, const float *factors, size_t row_factors,
                          size_t n, uint32_t n_rows,
                          vec_t sums[BT_LORA_TILE][LORA_REGS])
{
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t v = 0; v < LORA_REGS; v++) {
            sums[r][v] = vec_zero();
        }
    }
    for (size_t k = 0; k < n; k++) {
        vec_t m[LORA_REGS];

        for (uint32_t v = 0; v < LORA_REGS; v++) {
            m[v] = lora_load(type, matrix, k * lanes + at + v * VEC);
        }
        for (uint32_t r = 0; r < n_rows; r++) {
            const vec_t factor = vec_all(factors[r * row_factors + k]);

            for (uint32_t v = 0; v < LORA_REGS; v++) {
                sums[r][v] = vec_fma(factor, m[v], sums[r][v]);
            }
        }
    }
}

/* lora_sums(), with constants for what the compiler must know to keep sums in
 * registers. */
static void lora_sums_of(bt_ktype_t type, const void *matrix, size_t lanes,
                         size_t at, const float *factors, size_t row_factors,
                         size_t n, uint32_t n_rows,
                         vec_t sums[BT_LORA_TILE][LORA_REGS])
{
#define SUMS(t)                                                    \
    (n_rows == BT_LORA_TILE)                                       \
        ? lora_sums(t, matrix, lanes, at, factors, row_factors, n, \
                    BT_LORA_TILE, sums)                            \
        : lora_sums(t, matrix, lanes, at, factors, row_factors, n, 1, sums)

    if (type == BT_KTYPE_F16) {
        SUMS(BT_KTYPE_F16);
    } else if (type == BT_KTYPE_BF16) {
        SUMS(BT_KTYPE_BF16);
    } else {
        SUMS(BT_KTYPE_F32);
    }
#undef SUMS
}

/* Rows of a tile that are computed together from row r on. */
static uint32_t lora_together(const bt_lora_tile_t *tile, uint32_t r)
{
    return (tile->n_rows - r >= BT_LORA_TILE) ? BT_LORA_TILE : 1;
}

static void lora_down(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const group = tile->group;
    const bt_lora_step_t *const step = tile->step;
    const size_t lanes = bt_lora_lanes(group->rank);
    vec_t sums[BT_LORA_TILE][LORA_REGS];
    uint32_t n;

    for (uint32_t r = 0; r < tile->n_rows; r += n) {
        n = lora_together(tile, r);
        for (size_t j = 0; j < lanes; j += BT_LORA_LANES) {
            lora_sums_of(group->type, group->a, lanes, j,
                         tile->x + (size_t)r * step->n_in, step->n_in,
                         step->n_in, n, sums);
            for (uint32_t i = 0; i < n; i++) {
                float *const at =
                    tile->down + (size_t)(r + i) * step->max_rank + j;

                for (uint32_t v = 0; v < LORA_REGS; v++) {
                    vec_storeu(at + v * VEC, sums[i][v]);
                }
            }
        }
    }
}

/* Adds 16 sums, times the scale, to the first n of 16 values. */
static void lora_add(float *y, uint32_t n, float scale, const vec_t *sums)
{
    float buffer[BT_LORA_LANES] = {0};
    float *const at = (n >= BT_LORA_LANES) ? y : buffer;

    if (at == buffer) {
        memcpy(buffer, y, n * sizeof(*y));
    }
    for (uint32_t v = 0; v < LORA_REGS; v++) {
        vec_storeu(at + v * VEC,
                   vec_fma(vec_all(scale), sums[v], vec_loadu(at + v * VEC)));
    }
    if (at == buffer) {
        memcpy(y, buffer, n * sizeof(*y));
    }
}

static void lora_up(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const group = tile->group;
    const bt_lora_step_t *const step = tile->step;
    const size_t lanes = bt_lora_lanes(step->n_out);
    vec_t sums[BT_LORA_TILE][LORA_REGS];
    uint32_t n;

    for (uint32_t r = 0; r < tile->n_rows; r += n) {
        n = lora_together(tile, r);
        for (uint32_t o = tile->first; o < tile->end; o += BT_LORA_LANES) {
            lora_sums_of(group->type, group->b, lanes, o,
                         tile->down + (size_t)r * step->max_rank,
                         step->max_rank, group->rank, n, sums);
            for (uint32_t i = 0; i < n; i++) {
                lora_add(tile->y + (size_t)(r + i) * step->row_floats +
                             step->at + o,
                         tile->end - o, group->scale, sums[i]);
            }
        }
    }
}

#endif
