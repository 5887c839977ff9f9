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
/** Registers of four rows of A, where a row has 8 values. */
#define LORA_NARROW (BT_LORA_SUMS * 8 / VEC)
/** Rows of x whose four accumulators are in registers together. */
#define LORA_DOWN_ROWS (VEC / 4)

/* Prefetches a matrix while another one is multiplied, evenly over @a n_asks
 * calls of bt_ahead_ask(): matrices are a few pages each, and the processor's
 * own prefetch begins anew in each page. */
static inline bt_ahead_t lora_ahead(bt_ktype_t type, const void *matrix,
                                    size_t values, size_t n_asks)
{
    const size_t all = values * ((type == BT_KTYPE_F32) ? 4 : 2);
    const size_t bytes = (all < BT_AHEAD_BYTES) ? all : BT_AHEAD_BYTES;
    const uint8_t *const next = matrix;

    return (bt_ahead_t){
        .next = next,
        .end = next + bytes,
        .n_lines = (uint32_t)(((bytes + 63) / 64 + n_asks - 1) / n_asks),
    };
}

/* B of the tile, while A is multiplied. */
static inline bt_ahead_t lora_b_ahead(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const group = tile->group;

    if (!tile->both) {
        return (bt_ahead_t){0};
    }
    return lora_ahead(group->type, group->b,
                      group->rank * bt_lora_lanes(tile->step->n_out),
                      tile->step->n_in / BT_LORA_SUMS + 1);
}

/* A of the next tile, while B is multiplied. */
static inline bt_ahead_t lora_a_ahead(const bt_lora_tile_t *tile)
{
    const bt_lora_rows_t *const next = tile->next;

    if (next == NULL) {
        return (bt_ahead_t){0};
    }
    return lora_ahead(next->type, next->a,
                      bt_lora_rows_in(tile->step->n_in) *
                          bt_lora_rank_lanes(next->rank),
                      (tile->end - tile->first) / BT_LORA_LANES + 1);
}

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

/* Adds to sums (n_rows, BT_LORA_SUMS, or for narrow rows LORA_NARROW): four
 * inputs of each row times four rows of A, VEC of their values from `at` on, or
 * the whole rows of 8 values. */
SPECIALIZE void lora_down_step(bt_ktype_t type, const void *a, size_t lanes,
                               size_t at, bool narrow, const float *x,
                               size_t row_floats, uint32_t n_rows,
                               vec_t sums[LORA_DOWN_ROWS][BT_LORA_SUMS])
{
    const uint32_t n = narrow ? LORA_NARROW : BT_LORA_SUMS;
    vec_t m[BT_LORA_SUMS];

    for (uint32_t i = 0; i < n; i++) {
        m[i] = lora_load(type, a, narrow ? at + i * VEC : at + i * lanes);
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < n; i++) {
            const float *const from = x + r * row_floats;
            const vec_t factor =
                narrow ? vec_each8(from + i * (VEC / 8)) : vec_all(from[i]);

            sums[r][i] = vec_fma(factor, m[i], sums[r][i]);
        }
    }
}

/* Adds the accumulators, and stores VEC values, or of narrow rows 8. */
SPECIALIZE void lora_down_store(bool narrow, const vec_t sums[BT_LORA_SUMS],
                                float *down)
{
    if (narrow && (LORA_NARROW == 2)) {
        vec_store_sum8(down, vec_add(sums[0], sums[1]));
    } else {
        vec_storeu(down, vec_add(vec_add(sums[0], sums[2]),
                                 vec_add(sums[1], sums[3])));
    }
}

/* Computes VEC values of A x from value j on, of n_rows rows. */
SPECIALIZE void lora_down_values(bt_ktype_t type, const bt_lora_tile_t *tile,
                                 uint32_t row, uint32_t n_rows, size_t lanes,
                                 size_t j, bool narrow)
{
    const bt_lora_step_t *const step = tile->step;
    const size_t n_in = step->n_in;
    const size_t whole = n_in / BT_LORA_SUMS * BT_LORA_SUMS;
    const float *const x = tile->x + row * n_in;
    vec_t sums[LORA_DOWN_ROWS][BT_LORA_SUMS];
    bt_ahead_t ahead =
        ((row == 0) && (j == 0)) ? lora_b_ahead(tile) : (bt_ahead_t){0};

    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t i = 0; i < BT_LORA_SUMS; i++) {
            sums[r][i] = vec_zero();
        }
    }
    for (size_t k = 0; k < whole; k += BT_LORA_SUMS) {
        bt_ahead_ask(&ahead);
        lora_down_step(type, tile->group->a, lanes, k * lanes + j, narrow,
                       x + k, n_in, n_rows, sums);
    }
    if (whole < n_in) {
        float last[LORA_DOWN_ROWS][BT_LORA_SUMS] = {{0}};

        for (uint32_t r = 0; r < n_rows; r++) {
            memcpy(last[r], x + r * n_in + whole,
                   (n_in - whole) * sizeof(float));
        }
        lora_down_step(type, tile->group->a, lanes, whole * lanes + j, narrow,
                       last[0], BT_LORA_SUMS, n_rows, sums);
    }
    for (uint32_t r = 0; r < n_rows; r++) {
        lora_down_store(narrow, sums[r],
                        tile->down + (row + r) * step->max_rank + j);
    }
}

/* lora_down_values(), with constants for what the compiler must know to keep
 * sums in registers. */
SPECIALIZE void lora_down_rows(bt_ktype_t type, const bt_lora_tile_t *tile,
                               uint32_t row, uint32_t n_rows)
{
    const size_t lanes = bt_lora_rank_lanes(tile->group->rank);

    if ((lanes == 8) && (n_rows == LORA_DOWN_ROWS)) {
        lora_down_values(type, tile, row, LORA_DOWN_ROWS, 8, 0, true);
    } else if (lanes == 8) {
        lora_down_values(type, tile, row, 1, 8, 0, true);
    } else {
        for (size_t j = 0; j < lanes; j += VEC) {
            if (n_rows == LORA_DOWN_ROWS) {
                lora_down_values(type, tile, row, LORA_DOWN_ROWS, lanes, j,
                                 false);
            } else {
                lora_down_values(type, tile, row, 1, lanes, j, false);
            }
        }
    }
}

static void lora_down(const bt_lora_tile_t *tile)
{
    uint32_t n;

    for (uint32_t r = 0; r < tile->n_rows; r += n) {
        n = (tile->n_rows - r >= LORA_DOWN_ROWS) ? LORA_DOWN_ROWS : 1;
        if (tile->group->type == BT_KTYPE_F16) {
            lora_down_rows(BT_KTYPE_F16, tile, r, n);
        } else if (tile->group->type == BT_KTYPE_BF16) {
            lora_down_rows(BT_KTYPE_BF16, tile, r, n);
        } else {
            lora_down_rows(BT_KTYPE_F32, tile, r, n);
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
    bt_ahead_t ahead = lora_a_ahead(tile);
    uint32_t n;

    for (uint32_t r = 0; r < tile->n_rows; r += n) {
        n = lora_together(tile, r);
        for (uint32_t o = tile->first; o < tile->end; o += BT_LORA_LANES) {
            bt_ahead_ask(&ahead);
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
