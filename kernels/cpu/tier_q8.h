/* SPDX-License-Identifier: Apache-2.0 */
/** @file tier_q8.h  Matmul of quantized weights, the common part of both vector
 *  tiers: scales and minima as floats, widening of tight panels, and packs as
 *  constants. The tier's file defines codes_t (a register of bytes) before it,
 *  and stored_codes(), panel_few() and panel_many(). */
#ifndef BT_KERNELS_CPU_TIER_Q8_H
#define BT_KERNELS_CPU_TIER_Q8_H

#include "kernels/cpu/tiers.h"

/* Up to this many rows read a panel in place, since memory is their limit: see
 * pack.h. */
#define FEW_ROWS 4u

/* Units of a block of steps, converted to floats once for its groups. */
typedef struct units {
    _Alignas(64) float scale[BT_PANEL];
    _Alignas(64) float min[BT_PANEL];
} units_t;

SPECIALIZE void load_units(bt_pack_format_t format, const bt_weight_t *w,
                           const uint8_t *block, units_t *units)
{
    if (format.factor != BT_FACTOR_STEPS) {
        return;
    }
    UNROLL
    for (uint32_t v = 0; v < BT_PANEL / VEC; v++) {
        vec_store(units->scale + (size_t)v * VEC,
                  vec_mul(vec_load_f16(block + (size_t)2 * VEC * v),
                          vec_all(w->unit)));
        if (format.min) {
            vec_store(units->min + (size_t)v * VEC,
                      vec_mul(vec_load_f16(block + 2 * BT_PANEL +
                                           (size_t)2 * VEC * v),
                              vec_all(w->unit)));
        }
    }
}

/* Register v of the scales or minima at src. */
SPECIALIZE vec_t factors(bt_pack_format_t format, const uint8_t *src,
                         const float *unit, uint32_t v)
{
    switch (format.factor) {
    case BT_FACTOR_F16:
        return vec_load_f16(src + (size_t)2 * VEC * v);
    case BT_FACTOR_F32:
        return vec_load(src + (size_t)4 * VEC * v);
    case BT_FACTOR_E8M0:
        return vec_load_e8m0(src + (size_t)VEC * v);
    default:
        return vec_mul(vec_load_i8(src + (size_t)VEC * v),
                       vec_load(unit + (size_t)VEC * v));
    }
}

/** Loads register v of the codes of the 4 k of a step, or of their codebook
 *  indices; 8 steps are a group. Defined by the tier. */
SPECIALIZE codes_t stored_codes(bt_pack_format_t format, const uint8_t *codes,
                                uint32_t step, uint32_t v);

SPECIALIZE void widen_codes(bt_pack_format_t format, const uint8_t *codes,
                            uint8_t *out)
{
    UNROLL
    for (uint32_t step = 0; step < 8; step++) {
        UNROLL
        for (uint32_t v = 0; v < BT_PANEL / VEC; v++) {
            const codes_t x = stored_codes(format, codes, step, v);

            memcpy(out + step * 128 + (size_t)4 * VEC * v, &x, sizeof(x));
        }
    }
}

SPECIALIZE void widen_half(bt_pack_format_t format, const uint8_t *src,
                           const float *unit, uint8_t *out)
{
    UNROLL
    for (uint32_t v = 0; v < BT_PANEL / VEC; v++) {
        const vec_t x = factors(format, src, unit, v);

        memcpy(out + (size_t)4 * VEC * v, &x, sizeof(x));
    }
}

/* The scales or minima of a group as floats. */
SPECIALIZE void widen_factors(bt_pack_format_t format, const uint8_t *src,
                              const float *unit, uint8_t *out)
{
    widen_half(format, src, unit, out);
    if (format.two) {
        widen_half(format, src + bt_pack_half_bytes(format), unit,
                   out + (size_t)4 * BT_PANEL);
    }
}

/* Widens the tight parts of a panel into @a out: see bt_pack_scratch_at(). */
SPECIALIZE void widen(bt_pack_format_t format, const bt_weight_t *w,
                      const uint8_t *block, uint8_t *out)
{
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    units_t units;

    for (uint32_t g = 0; g < n_groups; g += format.n_groups) {
        const uint32_t n = bt_pack_groups_left(format, n_groups - g);

        load_units(format, w, block, &units);
        for (uint32_t i = 0; i < n; i++) {
            const bt_pack_group_t group = bt_pack_group_at(format, block, i);
            const bt_pack_scratch_t at = bt_pack_scratch_at(format);

            if (at.has_codes) {
                widen_codes(format, group.codes, out);
            }
            if (at.has_factors) {
                widen_factors(format, group.scales, units.scale,
                              out + at.scale_at);
            }
            if (at.has_factors && format.min) {
                widen_factors(format, group.mins, units.min, out + at.min_at);
            }
            out += at.bytes;
        }
        block += format.bytes;
    }
}

/* Group i of a block: in place, or its widened form at @a scratch. */
SPECIALIZE bt_pack_group_t group_at(bt_pack_format_t format, bool wide,
                                    const uint8_t *block, uint32_t i,
                                    const uint8_t *scratch)
{
    const bt_pack_scratch_t at = bt_pack_scratch_at(format);
    bt_pack_group_t group = bt_pack_group_at(format, block, i);

    if (wide && at.has_codes) {
        group.codes = scratch;
    }
    if (wide && at.has_factors) {
        group.scales = scratch + at.scale_at;
        group.mins = scratch + at.min_at;
    }
    return group;
}

/** Multiplies 1 .. FEW_ROWS rows with a panel in place; defined by the tier. */
SPECIALIZE void panel_few(bt_pack_format_t format, const bt_matmul_job_t *job,
                          uint32_t panel);

/** Multiplies more rows with a panel that widen() has processed; defined by the
 *  tier. */
SPECIALIZE void panel_many(bt_pack_format_t format, const bt_matmul_job_t *job,
                           uint32_t panel, const uint8_t *scratch);

SPECIALIZE void panels(bt_pack_t pack, const bt_matmul_job_t *job,
                       uint32_t begin, uint32_t end, uint8_t *scratch)
{
    const bt_pack_format_t format = bt_pack_format(pack);
    const bt_weight_t *w = job->w;

    for (uint32_t p = begin; p < end; p++) {
        if (job->n_rows <= FEW_ROWS) {
            panel_few(format, job, p);
            continue;
        }
        if (bt_pack_scratch_at(format).bytes > 0) {
            widen(format, w, w->data + p * w->panel_bytes, scratch);
        }
        panel_many(format, job, p, scratch);
    }
}

/* One function per pack: in a single function the compiler gives up on
 * registers. */
#define OF_PACK(pack)                                             \
    static __attribute__((noinline)) void panels_of_##pack(       \
        const bt_matmul_job_t *job, uint32_t begin, uint32_t end, \
        uint8_t *scratch)                                         \
    {                                                             \
        panels(BT_PACK_##pack, job, begin, end, scratch);         \
    }

OF_PACK(TERNARY)
OF_PACK(Q2_K)
OF_PACK(Q4_0)
OF_PACK(Q4_1)
OF_PACK(Q4_K)
OF_PACK(Q5_0)
OF_PACK(Q5_1)
OF_PACK(Q5_K)
OF_PACK(Q6_K)
OF_PACK(Q8_0)
OF_PACK(BOOK)
OF_PACK(BOOK_E8M0)
OF_PACK(BOOK_TWO)
OF_PACK(BOOK_STEPS)
OF_PACK(BOOK_TWO_STEPS)
#undef OF_PACK

void TIER(matmul_q8)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                     uint8_t *scratch)
{
    static void (*const of_pack[])(const bt_matmul_job_t *, uint32_t, uint32_t,
                                   uint8_t *) = {
        [BT_PACK_TERNARY] = panels_of_TERNARY,
        [BT_PACK_Q2_K] = panels_of_Q2_K,
        [BT_PACK_Q4_0] = panels_of_Q4_0,
        [BT_PACK_Q4_1] = panels_of_Q4_1,
        [BT_PACK_Q4_K] = panels_of_Q4_K,
        [BT_PACK_Q5_0] = panels_of_Q5_0,
        [BT_PACK_Q5_1] = panels_of_Q5_1,
        [BT_PACK_Q5_K] = panels_of_Q5_K,
        [BT_PACK_Q6_K] = panels_of_Q6_K,
        [BT_PACK_Q8_0] = panels_of_Q8_0,
        [BT_PACK_BOOK] = panels_of_BOOK,
        [BT_PACK_BOOK_E8M0] = panels_of_BOOK_E8M0,
        [BT_PACK_BOOK_TWO] = panels_of_BOOK_TWO,
        [BT_PACK_BOOK_STEPS] = panels_of_BOOK_STEPS,
        [BT_PACK_BOOK_TWO_STEPS] = panels_of_BOOK_TWO_STEPS,
    };

    of_pack[job->w->pack](job, begin, end, scratch);
}

#endif
