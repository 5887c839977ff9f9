/* SPDX-License-Identifier: Apache-2.0 */
/** @file cpu.h
 *
 * Internals of the CPU back end: the arithmetic of its operations, and the
 * function table that each instruction set tier fills. pack.h describes the
 * weights.
 *
 * **Quantized weights times rows.** Every 16 values of a row become 8-bit codes
 * with a scale (bt_q8_group_t). Then, with g ascending and one accumulator per
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
 * Every tier computes exactly this, so all give the same bits.
 *
 * **BF16 weights times rows.** The AVX512_BF16 instruction (Intel SDM,
 * VDPBF16PS): a row is rounded to bf16, and with pairs of k ascending
 *
 *     acc = fma(w[k + 1], x[k + 1], acc); acc = fma(w[k], x[k], acc)
 *
 * where numbers below 2^-126, read or computed, are zeros.
 *
 * **Attention** uses the BF16 product too: pairs of dimensions of a query and a
 * key, then pairs of positions' weights and values, all rounded to bf16. This
 * costs a KL divergence of 0.00004 on our test text, and saves half the
 * instructions.
 */
#ifndef BT_KERNELS_CPU_CPU_H
#define BT_KERNELS_CPU_CPU_H

#include "common/base/status.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"
#include "kernels/pack/pack.h"

#define BT_TILE_ROWS     12u  /**< rows of a tile, summed together by AVX-512 */
#define BT_ATTN_TILE     32u  /**< positions of one online softmax step */
#define BT_ATTN_TOGETHER 4u   /**< pairs of one bt_attn_tile_t */
#define BT_ATTN_PAIRS    48u  /**< most (row, head) pairs of one work item */
#define BT_ATTN_AHEAD    512u /**< cache lines of keys and values of one step */
#define BT_MAX_HEAD_DIM  256u
#define BT_Q8_TILE_ROWS  6u /**< quantized rows that AVX-512 sums at a time */

/** Group of 32 quantized values of a row, in two halves: value = scale * code,
 *  code = value / scale to nearest (ties to even), scale = largest magnitude of
 *  the half / 127. Halves of zeros and of numbers below 2^-100 are zero; one
 *  with a NaN or an infinity is NaN. A row is n_in / 32 groups. */
typedef struct bt_q8_group {
    int8_t code[32]; /**< -127 .. 127 */
    float scale[2];
    float sum; /**< fma(scale[1], sum of codes[16..31], scale[0] * sum of
                    codes[0..15]) */
    union {
        /** Initial value of the integer sum of a half, for weights with a bias:
         *  -bias * sum of the half's codes. */
        int32_t start[2];
        /** scale * sum of the half's codes, for weights without a bias. */
        float sums[2];
    };
} bt_q8_group_t;

/** Returns the width of a register tile of rows. Tile t holds rows 12 t .. of
 *  the batch as [k][n], n = bt_tile_width(rows of the tile). Narrow tiles are
 *  padded with zero rows to a supported width. */
static inline uint32_t bt_tile_width(uint32_t n_rows)
{
    return (n_rows == 5) ? 6 : (n_rows == 7) ? 8 : n_rows;
}

/** Arguments of one matmul for the tiers. */
typedef struct bt_matmul_job {
    const bt_weight_t *w;
    const float *x;         /**< (n_rows, n_in) */
    const float *tiles;     /**< rows rearranged as tiles; = x for one row */
    const uint16_t *bf16;   /**< rows as bf16, n_in made even; if w is BF16 */
    const bt_q8_group_t *q; /**< quantized rows, if w is quantized */
    uint32_t n_rows;
    bool add; /**< out[i] = out[i] + sum, as add() computes it */
    float *out;
} bt_matmul_job_t;

/** Online softmax state of one (row, head) pair. */
typedef struct bt_attn_state {
    float max;
    float sum;
} bt_attn_state_t;

/** Most rows of a bt_lora_tile_t: each value of a matrix is read once for
 *  all of them. */
#define BT_LORA_TILE 4u

/** Neighbouring rows of one adapter. */
typedef struct bt_lora_tile {
    const bt_lora_rows_t *group;
    const bt_lora_step_t *step;
    const float *x; /**< first row, as the two below */
    float *down;
    float *y;
    uint32_t n_rows;     /**< 1 .. BT_LORA_TILE */
    uint32_t first, end; /**< outputs that lora_up() computes; first is a
                              multiple of BT_LORA_LANES */
    bool both;           /**< lora_up() follows lora_down() on this thread */
    const bt_lora_rows_t *next; /**< group that this thread computes behind
                                     lora_up(); NULL: none or the same */
} bt_lora_tile_t;

/** Element format of the keys and values of a bt_attn_tile_t. */
typedef enum bt_attn_elem {
    BT_ATTN_LOADED, /**< output of isa->load_keys and load_values */
    BT_ATTN_F16,    /**< F16 in the cache, read in place; isa->direct_kv() */
    BT_ATTN_BF16,   /**< BF16 in the cache, read in place */
    BT_ATTN_I8,     /**< INT8 in the cache, read in place, with scales */
    BT_ATTN_E4M3,   /**< FP8 in the cache, read in place, with scales */
} bt_attn_elem_t;

/** Up to 4 neighbouring pairs of an item, for 32 common positions. */
typedef struct bt_attn_tile {
    bt_attn_elem_t elem;
    /* LOADED: all in [0]. Else each 16 positions are separate; a missing second
     * half repeats the first. */
    const void *keys[2];        /**< (dim / 2, key_stride, 2) */
    const void *values[2];      /**< (8, dim, 2) */
    size_t key_stride;          /**< in positions; not for LOADED */
    const float *key_scales[2]; /**< scales of each 16 positions; NULL: none */
    const float *value_scales[2];
    uint32_t dim;
    float scale;
    float soft_cap;   /**< c, 0: none */
    float cap_factor; /**< 2 / c */
    bool sloped;      /**< slope[] and before[] */
    uint32_t n_pairs; /**< 1 .. BT_ATTN_TOGETHER */
    /** True when an attention window begins within the tile: LOADED, and only
     *  from from[] on. */
    bool cut;
    /* For each pair: */
    const uint16_t *q; /**< (n_pairs, dim) in bf16 */
    uint32_t from[4];  /**< first visible position, 0 unless cut */
    uint32_t n[4];     /**< end of the visible positions, from + 1 .. 32 */
    float slope[4];    /**< ALiBi slopes, from bt_attention_t.slopes */
    float before[4];   /**< first of the 32 positions minus the row's
                            position */
    bt_attn_state_t *state;
    float *acc; /**< (n_pairs, dim) */
    /* Cache lines of the next positions, to be prefetched between the sums: a
     * core can have some 20 misses in flight, and stalls with more at once. */
    const uint8_t *const *ahead;
    uint32_t n_ahead;
} bt_attn_tile_t;

/** True when vectors of the type have scales. Then their elements are bytes,
 *  else 16-bit words. */
static inline bool bt_cpu_kv_scaled(bt_kv_type_t type)
{
    return (type == BT_KV_INT8) || (type == BT_KV_FP8);
}

/** Results of one row's experts, to be added: kernels.h, combine(). */
typedef struct bt_expert_sum {
    uint32_t n;
    const float *x[BT_MAX_EXPERTS_USED]; /**< by ascending expert */
    float weight[BT_MAX_EXPERTS_USED];
    uint8_t leaf[BT_MAX_EXPERTS_USED]; /**< among those that are added */
    uint32_t n_leaves;                 /**< a power of two, at most
                                            BT_EXPERT_LEAVES */
} bt_expert_sum_t;

/** Functions of an instruction set tier. All tiers give the bits of the plain
 *  one. */
typedef struct bt_cpu_isa {
    bt_cpu_tier_t tier;
    const char *name;
    bool uses_tiles; /**< matmul reads bt_matmul_job_t.tiles */

    /** Computes the outputs of panels begin .. end-1 for all rows; F32 and F16
     *  weights. scratch: n_in * 32. */
    void (*matmul)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                   float *scratch);
    /** Computes the outputs of panels begin .. end-1 for all rows; BF16 weights
     *  and job->bf16. */
    void (*matmul_bf16)(const bt_matmul_job_t *job, uint32_t begin,
                        uint32_t end);
    /** Computes the outputs of panels begin .. end-1 for all rows; quantized
     *  weights and job->q. scratch: bt_pack_scratch_bytes(), 64-byte
     *  aligned. */
    void (*matmul_q8)(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                      uint8_t *scratch);
    /** Quantizes row x (n_in, a multiple of 32) to n_in / 32 groups, for
     *  weights packed with @a bias. */
    void (*quantize)(const float *x, uint32_t n_in, uint32_t bias,
                     bt_q8_group_t *groups);

    void (*rmsnorm)(const float *x, const float *weight, float eps,
                    uint32_t dim, float *out);

    void (*layer_norm)(const float *x, const float *weight, const float *bias,
                       float eps, uint32_t dim, float *out);

    /** Rotates one head in place; cs: (dim/2, 2). For pair (a, b):
     *  a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos). */
    void (*rope)(float *head, const float *cs, uint32_t dim, bool interleaved);

    /** Loads keys of n neighbouring positions of a block, (dim / 2, stride, 2),
     *  as bf16 into positions first .. first + n - 1 of (dim / 2, 32, 2). INT8
     *  and FP8: the codes. */
    void (*load_keys)(bt_kv_type_t type, const void *keys, size_t stride,
                      uint32_t first, uint32_t n, uint32_t dim, uint16_t *out);
    /** Loads values of n neighbouring positions of a block, (n / 2, dim, 2),
     *  into (16, dim, 2). first is even; after an odd n the neighbour of the
     *  last position is copied too, with any content. */
    void (*load_values)(bt_kv_type_t type, const void *values, uint32_t first,
                        uint32_t n, uint32_t dim, uint16_t *out);

    /** Returns the bt_kv_type_t types (bits) that attn_tile reads in place, if
     *  dim is a multiple of 16. NULL: none. */
    uint32_t (*direct_kv)(void);

    /** Computes one softmax step of up to 4 pairs; see attn_pair() in body.h
     *  for the order. Pairs do not change each other's bits. */
    void (*attn_tile)(const bt_attn_tile_t *tile);

    /** Applies an activation function.
     *  @param up  (n) factors; NULL: not gated */
    void (*activate)(bt_activation_t act, const float *x, const float *up,
                     uint32_t n, float *out);
    void (*add)(float *x, const float *y, size_t n);
    void (*scale)(float *x, float factor, size_t n);
    void (*soft_cap)(float *x, float cap, size_t n);
    void (*clamp)(float *x, float limit, size_t n);
    uint32_t (*argmax)(const float *x, uint32_t n);
    /** Chooses the experts of one row: z (E), ids and weights (k). */
    void (*route)(const bt_routing_t *routing, const float *z, uint32_t *ids,
                  float *weights);
    /** Adds the results of one row's experts; @a rows has each one's x. */
    void (*combine)(const bt_expert_sum_t *sum, uint32_t dim, float *out);
    void (*to_f16)(const float *x, uint32_t n, uint16_t *out);
    void (*to_bf16)(const float *x, uint32_t n, uint16_t *out);

    /** Quantizes one INT8 vector (bt_kv_view_t). @return its scale */
    float (*to_i8)(const float *x, uint32_t n, int8_t *out);
    /** Quantizes one FP8 vector. @return its scale */
    float (*to_e4m3)(const float *x, uint32_t n, uint8_t *out);

    /** Compute the two products of bt_kernels_ops_t.lora for some rows. */
    void (*lora_down)(const bt_lora_tile_t *tile);
    void (*lora_up)(const bt_lora_tile_t *tile);
} bt_cpu_isa_t;

extern const bt_cpu_isa_t bt_cpu_plain;
extern const bt_cpu_isa_t bt_cpu_avx2;   /**< only on x86-64 */
extern const bt_cpu_isa_t bt_cpu_avx512; /**< only on x86-64 */

/** Returns the table for a tier (capped by what was built); in
 *  kernels/dispatch.c. */
const bt_cpu_isa_t *bt_cpu_isa(bt_cpu_tier_t tier);

/** Opens a CPU back end with the functions of @a isa.
 *  @retval BT_ERR_INVALID_PARAM  a zero in the configuration
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_cpu_open(const bt_cpu_isa_t *isa,
                                      const bt_backend_config_t *config,
                                      bt_backend_t **be_p);

/* Addresses of vectors in the paged cache
 *  (docs/KV_LAYOUT.md). */

/** Address of one vector of the cache, or of the first of several in
 *  neighbouring slots. */
typedef struct kv_slot {
    void *elems;  /**< first element; see kv_slot() */
    float *scale; /* NULL: none */
} kv_slot_t;

static inline size_t kv_elem_bytes(const bt_kv_view_t *kv)
{
    return bt_cpu_kv_scaled(kv->type) ? 1 : 2;
}

/** Returns the start of head @a kv_head of @a position. Part 0 is keys, (dim /
 *  2, T, 2), with element d at offset d / 2 * 2 T + d % 2; part 1 is values, (T
 *  / 2, dim, 2), with element d at offset 2 d. */
static inline kv_slot_t kv_slot(const bt_kv_view_t *kv, uint32_t layer,
                                const bt_ragged_seq_t *seq, uint32_t part,
                                uint32_t kv_head, uint32_t position)
{
    const size_t t = kv->tokens_per_block;
    const size_t slot = position % t;
    const size_t first =
        (part == 0) ? 2 * slot : slot / 2 * 2 * kv->head_dim + slot % 2;
    const uint32_t id =
        seq->blocks[position / t * (1 + (size_t)kv->n_other_groups) +
                    kv->group];
    uint8_t *block = (uint8_t *)kv->base + id * kv->block_bytes;
    const size_t vectors =
        (((size_t)layer * 2 + part) * kv->n_kv_heads + kv_head) * t;
    kv_slot_t at;

    at.elems = block + (vectors * kv->head_dim + first) * kv_elem_bytes(kv);
    at.scale = NULL;
    if (bt_cpu_kv_scaled(kv->type)) {
        size_t n_vectors = (size_t)kv->n_layers * 2 * kv->n_kv_heads * t;

        at.scale = (float *)(void *)(block + n_vectors * kv->head_dim);
        at.scale += vectors + slot;
    }
    return at;
}

static inline void kv_check_view(const bt_backend_t *be, const bt_kv_view_t *kv)
{
    BT_ASSERT((be->caps->kv_types >> kv->type & 1u) != 0);
    BT_ASSERT(kv->head_dim <= BT_MAX_HEAD_DIM);
    BT_ASSERT(kv->head_dim % 2 == 0);
    BT_ASSERT(kv->tokens_per_block % 2 == 0);
    /* Scales follow an even number of vectors' elements, so they are aligned to
     * whole floats. */
    BT_ASSERT(!bt_cpu_kv_scaled(kv->type) || (kv->block_bytes % 4 == 0));
    (void)be;
    (void)kv;
}

#endif
