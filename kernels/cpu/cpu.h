/* SPDX-License-Identifier: Apache-2.0 */
/** @file cpu.h
 *
 * Inside of the CPU back end: the arithmetic of its operations, and the table
 * of functions that each instruction tier fills. pack.h has the weights.
 *
 * **Quantized weights times rows.** Each 16 values of a row become 8 bits with
 * a scale (bt_q8_group_t). Then, with g ascending and one accumulator per
 * output, i[h] = sum over half h of the group of code * row code (exact):
 *
 *     acc = fma(fma((float)i[1], scale_row[1], (float)i[0] * scale_row[0]),
 *               scale_w, acc)
 *
 * or, where each half has a scale_w of its own (Q6_K), for h = 0, 1
 *
 *     acc = fma((float)i[h] * scale_row[h], scale_w[h], acc)
 *
 * and then, where the type has a minimum,
 *
 *     acc = fma(min_w, sum_row, acc)
 *
 * or, where each half has a minimum of its own (Q2_K), for h = 0, 1
 *
 *     acc = fma(min_w[h], sum_row[h], acc)
 *
 * Every tier computes just that, so all give the same bits.
 *
 * **BF16 weights times rows.** What the instruction of AVX512_BF16 does (Intel
 * SDM, VDPBF16PS): a row becomes bf16, and with pairs of k ascending
 *
 *     acc = fma(w[k + 1], x[k + 1], acc); acc = fma(w[k], x[k], acc)
 *
 * where numbers below 2^-126, read or computed, are zeros.
 *
 * **Attention** multiplies in the same way: pairs of dimensions of a query and
 * a key, then pairs of positions' weights and values, all made bf16. It costs a
 * KL divergence of 0.00004 on our test text, and half the instructions.
 */
#ifndef BT_KERNELS_CPU_CPU_H
#define BT_KERNELS_CPU_CPU_H

#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"
#include "kernels/pack/pack.h"

#define BT_TILE_ROWS     12u /**< rows of a tile; AVX-512 sums them at a time */
#define BT_ATTN_TILE     32u /**< positions of one online softmax step */
#define BT_ATTN_TOGETHER 4u  /**< pairs of one bt_attn_tile_t */
#define BT_ATTN_PAIRS    48u /**< most (row, head) pairs of one work item */
#define BT_ATTN_AHEAD    512u /**< cache lines of keys and values of one step */
#define BT_MAX_HEAD_DIM  256u
#define BT_Q8_TILE_ROWS  6u /**< quantized rows that AVX-512 sums at a time */

/** A group of 32 values of a row, in two halves: value = scale * code, code =
 *  value / scale to nearest (ties to even), scale = largest magnitude of the
 *  half / 127. Halves of zeros and of numbers below 2^-100 are zero; one with a
 *  NaN or an infinity is NaN. A row is n_in / 32 groups. */
typedef struct bt_q8_group {
    int8_t code[32]; /**< -127 .. 127 */
    float scale[2];
    float sum; /**< fma(scale[1], sum of its codes, scale[0] * sum of its) */
    union {
        /** Where the weights have a bias: -bias * sum of the codes of a half,
         *  what an integer sum begins with. */
        int32_t start[2];
        /** Where they have none, scale * sum of the codes of a half. */
        float sums[2];
    };
} bt_q8_group_t;

/** How rows are laid out for the register tiles: tile t holds rows
 *  12 t .. of the batch as [k][n], n = bt_tile_width(rows of the tile). Tiles
 *  of a few rows are filled up with zero rows to a width that exists. */
static inline uint32_t bt_tile_width(uint32_t n_rows)
{
    return (n_rows == 5) ? 6 : (n_rows == 7) ? 8 : n_rows;
}

/** One matmul, as the tiers see it. */
typedef struct bt_matmul_job {
    const bt_weight_t *w;
    const float *x;         /**< (n_rows, n_in) */
    const float *tiles;     /**< the same rows as tiles; = x for one row */
    const uint16_t *bf16;   /**< the same rows, n_in made even; w is BF16 */
    const bt_q8_group_t *q; /**< the same rows, when w is quantized */
    uint32_t n_rows;
    bool add; /**< out[i] = out[i] + sum: what add() makes of it */
    float *out;
} bt_matmul_job_t;

/** One (row, head) pair of attention while it walks over the positions. */
typedef struct bt_attn_state {
    float max;
    float sum;
} bt_attn_state_t;

/** What the keys and values of a bt_attn_tile_t are. */
typedef enum bt_attn_elem {
    BT_ATTN_LOADED, /**< as isa->load_keys and load_values leave them */
    BT_ATTN_F16,    /**< as in the cache; isa->direct_kv() */
    BT_ATTN_BF16,   /**< the same */
    BT_ATTN_I8,     /**< the same, with scales */
    BT_ATTN_E4M3,   /**< the same, with scales */
} bt_attn_elem_t;

/** Up to 4 neighbouring pairs of an item before the same 32 positions. */
typedef struct bt_attn_tile {
    bt_attn_elem_t elem;
    /* LOADED: [0] has all of them. Else each 16 positions lie for themselves; a
     * second half that is not there is the first again. */
    const void *keys[2];        /**< (dim / 2, key_stride, 2) */
    const void *values[2];      /**< (8, dim, 2) */
    size_t key_stride;          /**< positions; not of LOADED */
    const float *key_scales[2]; /**< of each 16 positions; NULL: none */
    const float *value_scales[2];
    uint32_t dim;
    float scale;
    float soft_cap;   /**< c, 0: none */
    float cap_factor; /**< 2 / c */
    bool sloped;      /**< slope[] and before[] */
    uint32_t n_pairs; /**< 1 .. BT_ATTN_TOGETHER */
    /** A window begins within the tile: LOADED, and only from[] on. */
    bool cut;
    /* Of each pair: */
    const uint16_t *q; /**< (n_pairs, dim) in bf16 */
    uint32_t from[4];  /**< first position that it sees, 0 unless cut */
    uint32_t n[4];     /**< 1 behind the last, from + 1 .. 32 */
    float slope[4];    /**< of bt_attention_t.slopes */
    float before[4];   /**< the first of the 32 positions less the row's own */
    bt_attn_state_t *state;
    float *acc; /**< (n_pairs, dim) */
    /* Cache lines of the next positions, to be asked for between the sums: a
     * core has some 20 misses under way, with more at once it stands still. */
    const uint8_t *const *ahead;
    uint32_t n_ahead;
} bt_attn_tile_t;

/** Do vectors of the type have scales? Then their elements are bytes, else
 *  16-bit words. */
static inline bool bt_cpu_kv_scaled(bt_kv_type_t type)
{
    return (type == BT_KV_INT8) || (type == BT_KV_FP8);
}

/** What an instruction tier provides. All give the bits of the plain one. */
typedef struct bt_cpu_isa {
    bt_cpu_tier_t tier;
    const char *name;
    bool uses_tiles; /**< matmul reads bt_matmul_job_t.tiles */

    /** Outputs of panels begin .. end-1 for all rows; F32 and F16 weights.
     *  scratch: n_in * 32. */
    void (*matmul)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                   float *scratch);
    /** The same with BF16 weights and job->bf16. */
    void (*matmul_bf16)(const bt_matmul_job_t *job, uint32_t begin,
                        uint32_t end);
    /** The same with quantized weights and job->q.
     *  scratch: bt_pack_scratch_bytes(), on 64 bytes. */
    void (*matmul_q8)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                      uint8_t *scratch);
    /** Row x (n_in, a multiple of 32) to n_in / 32 groups, for weights packed
     *  with @a bias. */
    void (*quantize)(const float *x, uint32_t n_in, uint32_t bias,
                     bt_q8_group_t *groups);

    void (*rmsnorm)(const float *x, const float *weight, float eps,
                    uint32_t dim, float *out);

    void (*layer_norm)(const float *x, const float *weight, const float *bias,
                       float eps, uint32_t dim, float *out);

    /** Rotate one head in place; cs: (dim/2, 2). For pair (a, b):
     *  a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos). */
    void (*rope)(float *head, const float *cs, uint32_t dim, bool interleaved);

    /** Keys of n neighbouring positions of a block, (dim / 2, stride, 2), which
     *  are first .. first + n - 1 of 32, as bf16 to (dim / 2, 32, 2). INT8 and
     *  FP8: the codes. */
    void (*load_keys)(bt_kv_type_t type, const void *keys, size_t stride,
                      uint32_t first, uint32_t n, uint32_t dim, uint16_t *out);
    /** Their values, (n / 2, dim, 2), to (16, dim, 2). first is even; behind an
     *  odd n comes whatever lies beside the last position. */
    void (*load_values)(bt_kv_type_t type, const void *values, uint32_t first,
                        uint32_t n, uint32_t dim, uint16_t *out);

    /** Types of bt_kv_type_t (bits) that attn_tile takes as they are, where dim
     *  is a multiple of 16. NULL: none. */
    uint32_t (*direct_kv)(void);

    /** One softmax step of up to 4 pairs; see attn_pair() in body.h for the
     *  order. Pairs do not change each other's bits. */
    void (*attn_tile)(const bt_attn_tile_t *tile);

    void (*silu_mul)(const float *gate, const float *up, uint32_t n,
                     float *out);
    /** @param up  (n), NULL: not gated */
    void (*activate)(bt_activation_t act, const float *x, const float *up,
                     uint32_t n, float *out);
    void (*add)(float *x, const float *y, size_t n);
    void (*scale)(float *x, float factor, size_t n);
    void (*soft_cap)(float *x, float cap, size_t n);
    void (*clamp)(float *x, float limit, size_t n);
    uint32_t (*argmax)(const float *x, uint32_t n);
    void (*to_f16)(const float *x, uint32_t n, uint16_t *out);
    void (*to_bf16)(const float *x, uint32_t n, uint16_t *out);

    /** One INT8 vector (bt_kv_view_t). @return its scale */
    float (*to_i8)(const float *x, uint32_t n, int8_t *out);
    /** One FP8 vector. @return its scale */
    float (*to_e4m3)(const float *x, uint32_t n, uint8_t *out);
} bt_cpu_isa_t;

extern const bt_cpu_isa_t bt_cpu_plain;
extern const bt_cpu_isa_t bt_cpu_avx2;   /**< only on x86-64 */
extern const bt_cpu_isa_t bt_cpu_avx512; /**< only on x86-64 */

/** kernels/dispatch.c: the table for a tier (capped by what was built). */
const bt_cpu_isa_t *bt_cpu_isa(bt_cpu_tier_t tier);

/** @retval BT_ERR_INVALID_PARAM  a zero in the configuration
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_cpu_open(const bt_cpu_isa_t *isa,
                                      const bt_backend_config_t *config,
                                      bt_backend_t **be_p);

#endif
