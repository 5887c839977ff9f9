/* SPDX-License-Identifier: Apache-2.0 */
/** @file kernels.h
 *
 * Interface to a compute back end (CPU, CUDA): buffers, packed weights and a
 * table of operations over ragged batches.
 *
 * A *ragged batch* is a list of sequences, each with some new tokens. The new
 * tokens of all sequences are concatenated as *rows*, without padding. A
 * prefill chunk (many rows of one sequence) and a decode step (one row of each
 * of many sequences) are the same call.
 *
 *     batch_reserve(limits)      once
 *     a step:  batch_begin(batch)             uploads all tables in one copy
 *              embed, { norm_matmul, rope_store, attention, … } of each layer,
 *              gather_rows, matmul, draw, score, …   read the uploaded tables
 *
 * Numeric rules (invariant I1): the value of a row never depends on the other
 * rows of the batch, on the number of threads, or on the instruction set tier.
 * Each output is accumulated in one fixed order, which is documented at the
 * operation. The plain C reference is the specification; every other tier gives
 * the same bits.
 *
 * Threads: one thread drives a back end. An operation returns when it is done
 * (CPU) or queued (CUDA; bt_kernels_ops.sync waits). Operations cannot fail on
 * valid arguments; device errors surface at sync. Operations allocate nothing.
 */
#ifndef BT_KERNELS_KERNELS_H
#define BT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/copier.h"
#include "kernels/draw.h"
#include "kernels/experts.h"
#include "kernels/lora_pack.h"
#include "kernels/returns.h"
#include "kernels/workload.h"

/** Tensor types, numbered as in GGUF (ggml_type), and two more for E4M3. An
 *  E4M3 block is a scale (f32) and 64 codes of kernels/half.h, in which 0x7f is
 *  480 instead of NaN; a value is its code times the scale, in f32. The two
 *  E4M3 types differ in how products are computed: as with F32 weights, or as
 *  with BF16 weights, whose values are exact as bf16. */
typedef enum bt_ktype {
    BT_KTYPE_F32 = 0,
    BT_KTYPE_F16 = 1,
    BT_KTYPE_Q4_0 = 2,
    BT_KTYPE_Q4_1 = 3,
    BT_KTYPE_Q5_0 = 6,
    BT_KTYPE_Q5_1 = 7,
    BT_KTYPE_Q8_0 = 8,
    BT_KTYPE_Q2_K = 10,
    BT_KTYPE_Q3_K = 11,
    BT_KTYPE_Q4_K = 12,
    BT_KTYPE_Q5_K = 13,
    BT_KTYPE_Q6_K = 14,
    BT_KTYPE_IQ2_XXS = 16,
    BT_KTYPE_IQ2_XS = 17,
    BT_KTYPE_IQ3_XXS = 18,
    BT_KTYPE_IQ1_S = 19,
    BT_KTYPE_IQ4_NL = 20,
    BT_KTYPE_IQ3_S = 21,
    BT_KTYPE_IQ2_S = 22,
    BT_KTYPE_IQ4_XS = 23,
    BT_KTYPE_IQ1_M = 29,
    BT_KTYPE_BF16 = 30,
    BT_KTYPE_TQ1_0 = 34,
    BT_KTYPE_TQ2_0 = 35,
    BT_KTYPE_MXFP4 = 39,
    BT_KTYPE_NVFP4 = 40,
    BT_KTYPE_E4M3 = 60,
    BT_KTYPE_E4M3_BF16 = 61,
} bt_ktype_t;

/** Element types of the KV cache. */
typedef enum bt_kv_type {
    BT_KV_F16 = 0,
    BT_KV_BF16 = 1,
    BT_KV_INT8 = 2, /**< one scale per token, head, layer and key or value */
    BT_KV_FP8 = 3,  /**< E4M3, with scales as for INT8 */
} bt_kv_type_t;

/** Properties of a KV cache element type. */
typedef struct bt_kv_type_info {
    const char *name;     /**< --kv-dtype: "f16", "bf16", "int8", "fp8" */
    uint32_t elem_bytes;  /**< bytes of one element */
    uint32_t scale_bytes; /**< bytes of a vector's scale (f32); 0: no scales */
} bt_kv_type_info_t;

/** Returns the properties of a KV cache element type.
 *  @return NULL when @a type is not a bt_kv_type_t. */
const bt_kv_type_info_t *bt_kv_type_info(uint32_t type);
/** Parses the name of a KV cache element type.
 *  @retval BT_ERR_NOT_FOUND  no type has this name */
BT_MUST_CHECK bt_status_t bt_kv_type_parse(const char *name,
                                           bt_kv_type_t *type_p);

struct bt_collectives; /* common/coll/coll.h */

typedef struct bt_backend bt_backend_t; /**< one device or thread pool */
typedef struct bt_weight bt_weight_t;   /**< packed matrix, opaque */

/** New tokens of one sequence. */
typedef struct bt_ragged_seq {
    uint32_t row;    /**< first row of this sequence in the batch */
    uint32_t n_rows; /**< new tokens, at least 1 */
    uint32_t pos;    /**< position of the first new token, from 0 */
    /** Block ids: position p is in blocks[p / T]. With several layer groups,
     *  each with its own blocks, position p is in blocks[p / T * groups +
     *  group]. Entries before all positions that the layer's rows see are not
     *  used and may hold any number, such as the id of another sequence's
     *  block. */
    const uint32_t *blocks;
} bt_ragged_seq_t;

/** One step: the rows, sequences and blocks that its operations read. All
 *  arrays are host memory and must not change from batch_begin() until the last
 *  operation of the step has returned. kernels/batch.h lays them out for an
 *  upload. */
typedef struct bt_batch {
    const uint32_t *tokens;       /**< (n_rows) token of each row */
    const bt_ragged_seq_t *seqs;  /**< (n_seqs) with contiguous rows from 0 */
    const uint32_t *logit_rows;   /**< (n_logit_rows) rows that reach the LM
                                       head */
    const bt_draw_t *draws;       /**< (n_draws) draws of one row are
                                       adjacent */
    bt_draw_edit_t *edits;        /**< (n_edits) edits of all draws */
    const bt_scoring_t *scorings; /**< (n_scorings) */
    uint32_t n_rows;
    uint32_t n_seqs;
    uint32_t n_logit_rows;
    uint32_t n_draws;
    uint32_t n_edits;
    uint32_t n_scorings;
    uint32_t tokens_per_block; /**< T, from which the number of blocks to read
                                    of a sequence follows */
    uint32_t n_other_groups;   /**< layer groups besides the first, as in
                                    bt_kv_view_t */
    /** (n_rows) index into take_tokens()'s ids for the token of each row;
     *  UINT32_MAX: use `tokens`. NULL: all tokens are in `tokens`. */
    const uint32_t *from_ids;
} bt_batch_t;

/** Upper bounds of a batch. */
typedef struct bt_batch_limits {
    uint32_t max_rows;
    uint32_t max_seqs;
    uint32_t max_logit_rows;
    uint32_t max_draws;    /**< 0: nothing is drawn */
    uint32_t max_edits;    /**< edits of all draws together */
    uint32_t max_scorings; /**< 0: nothing is scored */
    uint32_t max_other_groups;
    size_t max_blocks; /**< block ids of all sequences and groups together */
} bt_batch_limits_t;

/** Layout of the paged KV cache of one rank's heads. Block b starts at base + b
 *  * block_bytes. A block is row-major:
 *
 *      elem[layer][0][kv_head][dim / 2][slot][2]   keys: two elements of a slot
 *                                                  side by side
 *      elem[layer][1][kv_head][slot / 2][dim][2]   values: one element of two
 *                                                  slots side by side
 *      scale[layer][0 or 1][kv_head][slot]         f32, only for INT8 and FP8;
 *                                                  after all elements
 *
 *  with slot < T; head_dim and T are even (docs/KV_LAYOUT.md). A vector of an
 *  INT8 cache, x[D] of one token and head:
 *
 *      amax = max |x_i|; scale = amax / 127
 *      code_i = x_i / scale to the nearest integer, ties to even
 *      value_i = code_i * scale
 *
 *  For an FP8 cache scale = amax / 448, and code_i is the E4M3 number nearest
 *  to x_i / scale, ties to the even code, clamped to 448.
 *
 *  A scale below 2^-126 is 0, and so are its codes. A vector with an infinity
 *  or a NaN has the scale NaN and reads as NaN throughout. */
typedef struct bt_kv_view {
    void *base;
    size_t block_bytes;
    bt_kv_type_t type;
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t tokens_per_block; /**< T */
    /** Number of layer groups besides the first. Layers with different KV
     *  shapes or windows form groups; each group has its own view over the same
     *  blocks, with its own n_layers, n_kv_heads and head_dim. The `layer`
     *  argument of an operation counts within the group. */
    uint32_t n_other_groups;
    uint32_t group; /**< index of this group, ≤ n_other_groups */
} bt_kv_view_t;

/** Version of the block layout above, reported as
 *  bt_kernels_caps_t.kv_layout and compared by both ends of a transfer.
 *  Raise it with every layout change. */
#define BT_KV_LAYOUT_PAIRS 3u

/** Rotary position embedding (RoPE) parameters of rope_store(). */
typedef struct bt_rotation {
    const float *cos_sin; /**< back-end memory [position][dims / 2][2], computed
                               by the host */
    uint32_t dims;    /**< first dimensions of a head that are rotated; even. 0:
                           no rotation and no table */
    bool interleaved; /**< pairs (2i, 2i + 1), else (i, i + dims / 2) */
} bt_rotation_t;

/** Activation functions of activate(). */
typedef enum bt_activation {
    BT_ACT_SILU,      /**< x / (1 + exp(-x)) */
    BT_ACT_GELU_TANH, /**< x / (1 + exp(-k)), k = x (G1 + G2 x^2): GELU with
                           tanh, G1 = sqrt(8 / pi), G2 = 0.044715 G1 */
    BT_ACT_GELU_ERF,  /**< x Phi(x), Phi the normal distribution's CDF */
    BT_ACT_RELU2,     /**< max(x, 0)^2 */
    /** g / (1 + exp(-1.702 g)), g = min(x, 7); gated, it is multiplied by u + 1
     *  instead of u, with u clamped to -7 .. 7: gpt-oss */
    BT_ACT_SWIGLU_OAI,
} bt_activation_t;

/** Attention parameters, equal for all rows of a call. */
typedef struct bt_attention {
    uint32_t n_heads;   /**< query heads */
    uint32_t key_dim;   /**< dimensions of a head's query and key */
    uint32_t value_dim; /**< dimensions of a head's value and output */
    float scale;        /**< factor of each query-key product */
    /** Sliding window in tokens: a row at position p attends to max(0, p + 1 -
     *  window) .. p; 0: to all of 0 .. p. Blocks entirely before the window are
     *  not read. */
    uint32_t window;
    float soft_cap; /**< c: a score s becomes c tanh(s / c); 0: none */
    /** Attention sinks, back-end memory (n_heads): a score per query head that
     *  takes part in the softmax and has no value. NULL: none. */
    const float *sinks;
    /** ALiBi slopes, back-end memory (n_heads): a query head's score is reduced
     *  by its slope times the distance from key to row. NULL: none. */
    const float *slopes;
} bt_attention_t;

/** Optional features of bt_attention_t, bits of bt_kernels_caps_t.attention. */
typedef enum bt_attention_part {
    BT_ATTENTION_WINDOW = 1u << 0,
    BT_ATTENTION_SOFT_CAP = 1u << 1,
    BT_ATTENTION_SINKS = 1u << 2,
    BT_ATTENTION_VALUE_DIM = 1u << 3, /**< value_dim differs from key_dim */
    BT_ATTENTION_SLOPES = 1u << 4,
} bt_attention_part_t;

/** Numeric profile that a back end computes with. */
typedef enum bt_numerics {
    BT_NUMERICS_EXACT, /**< bits of the reference: BT_PROFILE_EXACT */
    /** Tensor cores for products with F16, BF16 and E4M3 weights and for
     *  attention, with the device's own summation order; everything else exact:
     *  BT_PROFILE_TENSOR. */
    BT_NUMERICS_TENSOR,
} bt_numerics_t;

typedef struct bt_backend_config {
    uint32_t n_threads;    /**< CPU: threads, including the caller's */
    const uint32_t *cores; /**< CPU: n_threads core ids to pin to, or NULL */
    const uint32_t *lent_cores; /**< CPU: n_lent borrowed core ids, owned by
                                     other threads or processes, used while they
                                     are idle */
    uint32_t n_lent;            /**< 0: none */
    uint32_t device;            /**< CUDA: ordinal */
    uint32_t max_rows;          /**< most rows of one matmul, for scratch */
    bt_numerics_t numerics; /**< BT_ERR_UNSUPPORTED if the back end lacks it */
    char *why;        /**< buffer for the reason when opening fails; NULL: not
                           wanted */
    size_t why_bytes; /**< size of `why` */
} bt_backend_config_t;

/** Work done on borrowed cores since the back end was opened. */
typedef struct bt_lent_stats {
    uint64_t pieces;   /**< pieces of operations computed there */
    uint64_t busy_ns;  /**< time spent computing, ns */
    uint64_t saved_ns; /**< time all own threads together would have needed for
                            the work, ns */
    uint64_t again;    /**< pieces computed twice because the owner took the
                            core back */
} bt_lent_stats_t;

/** Bytes of the id that identifies a table of collectives before it is open. */
#define BT_COLLECTIVES_ID_BYTES 128u

/** Numeric profile of the exact rules of this file. All back ends with it give
 *  the same bytes as the plain C reference. */
#define BT_PROFILE_EXACT "q8-bf16"
/** Numeric profile of BT_NUMERICS_TENSOR (docs/adr/0019-tensor-profile.md). */
#define BT_PROFILE_TENSOR "q8-bf16-tensor"

/** Capabilities of a back end. Unsupported combinations are detected with them,
 *  never by an abort. */
typedef struct bt_kernels_caps {
    const char *name;      /**< "cpu/avx512", "cuda/sm_90" */
    const char *profile;   /**< numeric profile; equal profiles give equal
                                bytes */
    uint64_t weight_types; /**< bit 1 << bt_ktype_t */
    uint32_t kv_types;     /**< bit 1 << bt_kv_type_t */
    uint32_t max_head_dim;
    uint32_t pack_version;     /**< version of the weight_data() layout in every
                                    profile; 0: none */
    uint32_t attention;        /**< bits of bt_attention_part_t */
    uint32_t kv_layout;        /**< version of the block layout:
                                    BT_KV_LAYOUT_PAIRS */
    uint32_t kv_align_bytes;   /**< alignment of a pool's start and of
                                    block_bytes */
    uint32_t kv_block_tokens;  /**< tokens_per_block must be a multiple of
                                    this */
    uint32_t max_block_tokens; /**< upper bound of tokens_per_block; 0: none */
    bool runs_ahead;           /**< operations are asynchronous: see sync() */
    bool takes_codes; /**< BT_KTYPE_E4M3 and BT_KTYPE_E4M3_BF16 pay off, as
                           codes are read from memory directly. Otherwise they
                           cost time, and models use the type that the codes
                           stand for. */
} bt_kernels_caps_t;

/** Checks that the back end supports this KV cache. @a kv may have no base yet.
 *  @param [out] why  On failure the missing feature, by name.
 *  @retval BT_ERR_UNSUPPORTED */
BT_MUST_CHECK bt_status_t bt_kernels_check_kv(const bt_kernels_caps_t *caps,
                                              const bt_kv_view_t *kv, char *why,
                                              size_t why_bytes);
/** Checks that the back end supports this attention.
 *  @param [out] why  On failure the missing feature, by name.
 *  @retval BT_ERR_UNSUPPORTED */
BT_MUST_CHECK bt_status_t bt_kernels_check_attention(
    const bt_kernels_caps_t *caps, const bt_attention_t *attention, char *why,
    size_t why_bytes);

/** Low-rank matrices of one adapter (LoRA), and the rows that they apply to.
 *  Both matrices are transposed, aligned to 64 bytes, and padded with zeros:
 *  A to (bt_lora_rows_in(n_in), bt_lora_rank_lanes(rank)), B to (rank,
 *  bt_lora_lanes(n_out)). */
typedef struct bt_lora_rows {
    const void *a;   /**< back end (n_in, rank) */
    const void *b;   /**< back end (rank, n_out) */
    bt_ktype_t type; /**< both matrices' type: F32, F16 or BF16 */
    uint32_t rank;   /**< at least 1 */
    float scale;
    uint32_t row; /**< first row */
    uint32_t n_rows;
} bt_lora_rows_t;

/** Arguments of bt_kernels_ops_t.lora: the adapters of one product. */
typedef struct bt_lora_step {
    const bt_lora_rows_t *groups; /**< host; no row is in two of them */
    uint32_t n_groups;
    const float *x; /**< (R, n_in): input of the product */
    uint32_t n_in;
    float *down;           /**< scratch (R, max_rank) */
    uint32_t max_rank;     /**< multiple of BT_LORA_LANES, at least each rank */
    float *y;              /**< (R, row_floats): output of the product */
    size_t row_floats, at; /**< outputs are columns at .. at + n_out - 1 */
    uint32_t n_out;
} bt_lora_step_t;

#define BT_TOP_MAX 512u /**< most entries that top() returns per row */

/**
 * Operations. Pointers are back-end memory unless marked "host". Arrays are
 * row-major: row r of x of shape (R, D) is at x + r * D. Elements are F32
 * unless noted.
 */
typedef struct bt_kernels_ops {
    /** Allocates back-end memory, 64-byte aligned and zeroed.
     *  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*buffer_alloc)(bt_backend_t *be, size_t bytes, void **ptr_p);
    void (*buffer_free)(bt_backend_t *be, void *ptr);
    bt_status_t (*copy_in)(bt_backend_t *be, void *dst, const void *host_src,
                           size_t bytes);
    bt_status_t (*copy_out)(bt_backend_t *be, void *host_dst, const void *src,
                            size_t bytes);
    /** Zeroes @a bytes at @a ptr, in the order of the operations. */
    void (*clear)(bt_backend_t *be, void *ptr, size_t bytes);
    /** Waits for everything queued. @retval BT_ERR_DEVICE */
    bt_status_t (*sync)(bt_backend_t *be);
    /** Returns the free bytes of the back end's own memory. NULL: the back end
     *  has no memory of its own. @retval BT_ERR_DEVICE */
    bt_status_t (*memory_left)(bt_backend_t *be, uint64_t *bytes_p);

    /** Computes the memory that a workload takes with these numerics; a pure
     *  function. NULL, like workload_reserve(): nothing, or unknown in
     *  advance. */
    void (*workload_memory)(const bt_workload_t *workload,
                            bt_numerics_t numerics,
                            bt_workload_memory_t *memory_p);
    /** Reserves all scratch for the workload. Without it, operations on weights
     *  allocate only what they must have, and the others run without scratch:
     *  slower, with the same bits.
     *  @retval BT_ERR_NO_MEMORY  existing scratch is kept */
    bt_status_t (*workload_reserve)(bt_backend_t *be,
                                    const bt_workload_t *workload);

    /** Allocates the memory for batch tables, bt_batch_max_words() in host and
     *  in back-end memory, and replaces an earlier allocation. NULL, like
     *  batch_begin(): operations read the host's arrays.
     *  @retval BT_ERR_NO_MEMORY  the earlier allocation is kept */
    bt_status_t (*batch_reserve)(bt_backend_t *be,
                                 const bt_batch_limits_t *limits);
    /** Begins a step: uploads its tables. Operations that take a batch get the
     *  one that was begun last. Within the limits only the device can make it
     *  fail.
     *  @retval BT_ERR_INVALID_PARAM  beyond the limits
     *  @retval BT_ERR_DEVICE */
    bt_status_t (*batch_begin)(bt_backend_t *be, const bt_batch_t *batch);

    /** Sets the tokens of the rows that from_ids maps to an entry of @a ids,
     *  before any operation that reads tokens. @a ids is the output of argmax()
     *  or draw() of an earlier step. NULL: not in this back end. */
    void (*take_tokens)(bt_backend_t *be, const bt_batch_t *batch,
                        const uint32_t *ids);

    /** Packs a matrix of @a n_out rows of @a n_in elements in GGUF layout from
     *  host memory @a data (borrowed for the call only). Every element has
     *  exactly the f32 value of the type's dequantizer.
     *  @retval BT_ERR_UNSUPPORTED  type or shape (n_in not a whole number of
     *      the type's blocks)
     *  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*weight_pack)(bt_backend_t *be, bt_ktype_t type,
                               uint32_t n_out, uint32_t n_in, const void *data,
                               bt_weight_t **weight_p);
    /** Packs a matrix like weight_pack(), with the bytes in host memory: for
     *  weight_data(), not for computing. NULL: weight_pack() already packs into
     *  host memory. */
    bt_status_t (*weight_pack_here)(bt_backend_t *be, bt_ktype_t type,
                                    uint32_t n_out, uint32_t n_in,
                                    const void *data, bt_weight_t **weight_p);
    /** Returns the packed bytes, weight_bytes() of them. Equal input gives
     *  equal bytes, and they are all there is to a weight, so they can be kept
     *  in a file and mapped by several processes. Takes weights of
     *  weight_pack_here() where that exists. NULL, like weight_adopt(): not in
     *  this back end. */
    const void *(*weight_data)(const bt_weight_t *weight);
    /** Creates a weight over weight_data() bytes of the same type and shape,
     *  from any back end with the same pack_version. The bytes are borrowed,
     *  only read, and must outlive the weight, unless the back end has memory
     *  of its own: then they are copied there. Any bytes are safe: altered ones
     *  only give other numbers.
     *  @retval BT_ERR_UNSUPPORTED    as weight_pack()
     *  @retval BT_ERR_INVALID_PARAM  @a bytes differs from weight_bytes(), or
     *      @a data is not 64-byte aligned
     *  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*weight_adopt)(bt_backend_t *be, bt_ktype_t type,
                                uint32_t n_out, uint32_t n_in, const void *data,
                                size_t bytes, bt_weight_t **weight_p);
    void (*weight_free)(bt_backend_t *be, bt_weight_t *weight);
    /** Returns the bytes that weight_pack() would take; 0 for an unsupported
     *  shape. */
    size_t (*weight_bytes)(bt_ktype_t type, uint32_t n_out, uint32_t n_in);

    /** out[r][:] = row tokens[r] of w (dequantized), for all rows of the batch;
     *  each token < the matrix's n_out. out (R, n_in). */
    void (*embed)(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out);

    /** out[r][o] = sum over k of w[o][k] * x[r][k].
     *  x (R, n_in), out (R, n_out); must not overlap.
     *
     *  F32 and F16 weights: one accumulator per output, k ascending, each step
     *  one fused multiply-add (fmaf).
     *
     *  BF16 weights: the row is rounded to bf16 too (to nearest, ties to even).
     *  One accumulator, pairs k, k + 1 ascending, first k + 1 (0 at an odd
     *  end), then k: acc = fmaf(w, x, acc), where numbers below 2^-126, read or
     *  computed, are zeros.
     *
     *  E4M3 weights: their values, as with F32 or BF16 weights.
     *
     *  Quantized weights: the row is quantized to 8 bits, in halves h = 0, 1 of
     *  groups g of 32: with m the largest magnitude of the 16 values, code[k] =
     *  x[k] * (127 / m) to nearest, ties to even, scale[h] = m / 127. Then, one
     *  accumulator, g ascending:
     *      i[h] = sum over the half of weight code * code      (exact)
     *      acc = fmaf(fmaf(i[1], scale[1], i[0] * scale[0]), weight scale, acc)
     *  (where halves have weight scales of their own, for h = 0, 1: acc =
     *  fmaf(i[h] * scale[h], weight scale[h], acc)), and then, if the type has
     *  a minimum:
     *      acc = fmaf(weight min, fmaf(scale[1], sum of its codes,
     *                                  scale[0] * sum of its codes), acc)
     *  (where halves have minima of their own, for h = 0, 1: acc = fmaf(weight
     *  min[h], scale[h] * sum of its codes, acc)).
     *  Halves with m < 2^-100 are zeros; one with a NaN or an infinity makes
     *  the output NaN. (One scale per 16 instead of 32 values: the KL
     *  divergence from float rows is 0.0015 instead of 0.0027 on our test
     *  text.) */
    void (*matmul)(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out);
    /** Computes some outputs of matmul(), with its bits and without the others:
     *  out[i] = output ids[i] of row r, for i from first[r] to first[r + 1]
     * - 1. first (n_rows + 1), ascending from 0; ids (first[n_rows]), below
     * n_out and ascending for each row; both host. x (n_rows, n_in), out
     *  (first[n_rows]). NULL: not in this back end. */
    void (*matmul_ids)(bt_backend_t *be, const bt_weight_t *w, const float *x,
                       uint32_t n_rows, const uint32_t *first,
                       const uint32_t *ids, float *out);
    /** Adds the low-rank products of adapters to the rows of its groups, and
     *  leaves other rows as they are:
     *      s[i] = sum of x[r][k] A[j][k] over k with k % 4 = i, ascending
     *      a[j] = (s[0] + s[2]) + (s[1] + s[3])
     *      b[o] = sum of a[j] B[o][j], j ascending
     *      y[r][at + o] = fmaf(scale, b[o], y[r][at + o])
     *  with one accumulator for each s and b, from 0 on, by fmaf; where n_in is
     *  no multiple of 4, x and A are 0 up to the next. A row's result
     *  depends on neither the other rows nor their groups. NULL: not in this
     *  back end. Source: Hu et al., "LoRA: Low-Rank Adaptation of Large
     *  Language Models". */
    void (*lora)(bt_backend_t *be, const bt_lora_step_t *step);

    /** Chooses the experts of each row by its scores z, (R, E), and sorts the
     *  rows by own expert into @a rows.
     *
     *  Softmax: m = max z, p_e = exp(z_e - m) / (sum of all exp), summed as in
     *  rmsnorm() by additions; exp is the polynomial of kernels/formula.h. The
     *  k experts with the largest g_e + bias_e are chosen, the lowest number on
     *  ties. A NaN is chosen only when nothing else is left. Their weights, in
     *  ascending order of the experts' numbers: g_e, or for BT_GATING_CHOSEN
     *  exp(z_e - max) over the sum of the chosen; normed: w_e / (sum of w +
     *  least); then w_e * scale. Sums over the chosen: additions, ascending,
     *  from 0. A row with a NaN has the weight NaN at each of its experts, so
     *  that its output is NaN. NULL, like matmul_experts(), add_expert_bias(),
     *  gate_rows() and combine(): not in this back end.
     *  Source: Shazeer et al., "Outrageously Large Neural Networks: The
     *  Sparsely-Gated Mixture-of-Experts Layer"; Jiang et al., "Mixtral of
     *  Experts"; bias and sigmoid: DeepSeek-AI, "DeepSeek-V3 Technical
     *  Report". */
    void (*route)(bt_backend_t *be, const bt_routing_t *routing, const float *z,
                  uint32_t n_rows, const bt_expert_rows_t *rows);
    /** Multiplies each slot's row by its expert's matrices: out[s] = [W_0 x |
     *  W_1 x | ...], each with the bits of matmul(). weights: n_weights (1 or
     *  2) matrices of all own experts, those of one behind those of the one
     *  before: matrix W_i of own expert e is rows e * n_out .. (e + 1) * n_out
     *  - 1 of weights[i]. All have equal n_in and n_out, n_out a multiple of
     *  32. x: (R k, n_in), by slot, or else @a by_row (R, n_in). out (R k,
     *  n_weights * n_out), of which rows without a slot are left as they are.
     *  An expert without rows is not read. */
    void (*matmul_experts)(bt_backend_t *be, const bt_weight_t *const *weights,
                           uint32_t n_weights, const bt_expert_rows_t *rows,
                           uint32_t n_rows, const float *x, bool by_row,
                           float *out);
    /** x[s][:] += bias[e][:], e the own expert of slot s. x (R k, dim), by
     *  slot; bias (own experts, dim). */
    void (*add_expert_bias)(bt_backend_t *be, const bt_expert_rows_t *rows,
                            uint32_t n_rows, const float *bias, uint32_t dim,
                            float *x);
    /** x[r][:] *= 1 / (1 + exp(-z[r])). x (R, dim), z (R). */
    void (*gate_rows)(bt_backend_t *be, float *x, const float *z,
                      uint32_t n_rows, uint32_t dim);
    /** out[r] = sum of w_e * x[slot of e] over the experts e of row r. Leaf p
     *  of 16 has experts floor(p E / 16) .. floor((p + 1) E / 16) - 1,
     *  ascending: acc = fmaf(w_e, x, acc) from 0; then the leaves are added by
     *  the tree of common/coll/coll_shm.h, those without an expert as 0. x (R
     *  k, dim), by slot; out (R, dim). With some of the leaves: the sum of
     *  those, a node of the tree, so that an all-reduce of the ranks' results
     *  gives the bits of one that has all. */
    void (*combine)(bt_backend_t *be, const bt_expert_rows_t *rows,
                    uint32_t n_rows, const float *x, uint32_t dim, float *out);

    /** out[r][i] = x[r][i] * (1 / sqrt(mean(x[r]^2) + eps)) * weight[i].
     *  In place (out == x) is allowed. Sum of squares: 16 lanes, lane i % 16,
     *  fmaf ascending, then the pairwise tree 8, 4, 2, 1.
     *  Source: Zhang & Sennrich, "Root Mean Square Layer Normalization". */
    void (*rmsnorm)(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out);

    /** out[r][i] = (x[r][i] - m) * (1 / sqrt(v + eps)) * weight[i], then +
     *  bias[i] unless bias is NULL; m is the mean of x[r], v the mean of
     *  (x[r][i] - m)^2. In place is allowed. Sums as in rmsnorm(), the sum of m
     *  by additions. Source: Ba et al., "Layer Normalization". */
    void (*layer_norm)(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out);
    /** Applies rmsnorm() in place to n_heads adjacent vectors of dim values,
     *  from column @a at on, in each row of row_floats. weight (dim). Source:
     *  Henry et al., "Query-Key Normalization for Transformers". */
    void (*head_norm)(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim);

    /** Rotates q and k by the row's position, then stores k and v into the
     *  cache. qkv row r: [n_heads * D query | n_kv_heads * D key | n_kv_heads *
     *  D value]; the query part is rotated in place, as @a rotation says. Pair
     *  (a, b): a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos); stored
     *  to nearest, ties to even: overflow becomes infinite in F16 and BF16, a
     *  NaN stays one. INT8 and FP8: see bt_kv_view_t. Source: Su et al.,
     *  RoFormer. */
    void (*rope_store)(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer);
    /** x[r][:] += row p of w (dequantized): learned position embeddings. p is
     *  the position of row r, below the matrix's n_out. x (R, n_in). */
    void (*add_positions)(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x);

    /** out[r][h] = softmax(q . K * scale) V over positions 0 .. the row's own,
     *  or those of the window: causal, with grouped queries (head h reads KV
     *  head h * n_kv / n_heads), K and V as stored, D even. Online softmax over
     *  tiles of 32 positions in ascending order, which begin at multiples of 32
     *  for any cache block size:
     *      s_j = (q . k_j) * scale, q and k_j rounded to bf16 and summed as in
     *            matmul() with BF16 weights, pairs of d ascending
     *      with a soft cap c: s_j = c * (1 - 2 / (exp(s_j * (2 / c)) + 1))
     *      with a slope: s_j = fma(slope, j - p, s_j), p the row's position
     *      m' = max(m, s); p_j = exp(s_j - m'); corr = exp(m - m')
     *      l' = fma(l, corr, sum of p)
     *      acc = acc * corr, then acc += p_j v_j, both rounded to bf16 and
     *            summed as the scores are, pairs of j ascending; a position
     *            beside a masked one is paired with 0
     *  and out = acc * (1 / l). m begins as -infinity and l as 0, or with a
     *  sink as its score and 1. INT8 and FP8: the codes are multiplied, FP8
     *  codes as the numbers they encode; s_j is the product times the key's
     *  scale, and the weight p_j is multiplied by the value's scale. The sum of
     *  p is summed as in rmsnorm(); exp is the polynomial of kernels/formula.h.
     *  q is the qkv array of rope_store(), with row stride (n_heads + 2
     *  n_kv_heads) * D; out (R, n_heads * D).
     *  Source: Milakov & Gimelshein, "Online normalizer calculation for
     *  softmax"; Kwon et al., PagedAttention; window: Beltagy et al.,
     *  "Longformer"; soft cap: "Gemma 2"; sinks: Xiao et al., "Efficient
     *  Streaming Language Models with Attention Sinks"; slopes: Press et al.,
     *  "Train Short, Test Long: Attention with Linear Biases". */
    void (*attention)(bt_backend_t *be, const bt_attention_t *attention,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out);

    /** out[r][i] = act(x[r][i]), x (R, D); or, @a gated, act(gate[i]) * up[i],
     *  x (R, 2 D), gate first. Evaluated in the order written at
     *  bt_activation_t; x^2 is rounded, then one fused multiply-add computes G1
     *  + G2 x^2. Phi by a polynomial: kernels/formula.h. Source: Hendrycks &
     *  Gimpel, "Gaussian Error Linear Units"; Shazeer, "GLU Variants Improve
     *  Transformer". */
    void (*activate)(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out);

    /** x[r][i] += bias[i]. x (R, dim). */
    void (*add_bias)(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim);
    /** x[i] *= factor. */
    void (*scale)(bt_backend_t *be, float *x, float factor, size_t n);
    /** x[i] = c tanh(x[i] / c), computed as in attention(). */
    void (*soft_cap)(bt_backend_t *be, float *x, float cap, size_t n);
    /** Clamps x[i] to -limit .. limit; a NaN stays. limit > 0. */
    void (*clamp)(bt_backend_t *be, float *x, float limit, size_t n);
    /** x[r][i] *= factors[p] for i < dim, p the position of row r: attention
     *  temperature that grows with the position. x (R, row_floats), factors
     *  (positions). */
    void (*scale_positions)(bt_backend_t *be, float *x, const float *factors,
                            const bt_batch_t *batch, size_t row_floats,
                            uint32_t dim);

    /** x[i] += y[i]. */
    void (*add)(bt_backend_t *be, float *x, const float *y, size_t n);

    /** out row i = x row logit_rows[i] of the batch. x (R, dim). */
    void (*gather_rows)(bt_backend_t *be, const float *x,
                        const bt_batch_t *batch, uint32_t dim, float *out);

    /** Columns at .. at + dim - 1 of out become x: x (R, dim),
     *  out (R, out_dim), at + dim <= out_dim. */
    void (*copy_columns)(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at);
    /** out = columns at .. at + dim - 1 of x: x (R, x_dim), out (R, dim),
     *  at + dim <= x_dim. */
    void (*cut_columns)(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out);

    /** ids[r] = index of the largest x[r][i], the lowest index on ties. NaN is
     *  never the largest; 0 for a row with nothing above -infinity. x (R, dim),
     *  ids (R). NULL: not in this back end. */
    void (*argmax)(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids);

    /** ids[r][j] = index of the j-th largest value of x[r], ties (0 and -0 too)
     *  by ascending index; values[r][j] = the value. NaN and -infinity are
     *  skipped; past the last candidate of a row ids are UINT32_MAX and values
     *  -infinity. x (R, dim), dim < UINT32_MAX; ids and values (R, k), 1 <= k
     *  <= BT_TOP_MAX. NULL: not in this back end. */
    void (*top)(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
                uint32_t k, uint32_t *ids, float *values);

    /** ids[i] = token sampled for draw i of the batch (draw.h). logits
     *  (n_logit_rows, dim) are restored before it ends; ids (n_draws). NULL,
     *  like score(): not in this back end. */
    void (*draw)(bt_backend_t *be, float *logits, const bt_batch_t *batch,
                 uint32_t dim, uint32_t *ids);
    /** out[i] = result of scoring i of the batch; @a ids is the output of
     *  draw() for the same batch. The sum: exp(x[k] - best) + 0 * (x[k] - best)
     *  in float (kernels/draw.h) goes to lane k % 16. A lane adds its
     *  16 values out of 256 of the row in float from 0, and those partial sums
     *  in double; the last dim % 16 values are partial sums by themselves; then
     *  the lanes are added in order. A NaN where a value is not finite. out
     *  (n_scorings). */
    void (*score)(bt_backend_t *be, const float *logits,
                  const bt_batch_t *batch, uint32_t dim, const uint32_t *ids,
                  bt_scored_t *out);

    /** Fused steps of a layer, with the bits of the named operations in
     *  sequence and without the intermediate arrays. x, a and gate_up must not
     *  overlap the output. NULL, all three: not in this back end, and the
     *  caller runs the single operations, which also specify the fused ones and
     *  serve matrices in parts.
     *
     *  rmsnorm(x, norm, eps) and matmul: x (R, n_in), norm (n_in), out (R,
     *  n_out). */
    void (*norm_matmul)(bt_backend_t *be, const bt_weight_t *w, const float *x,
                        const float *norm, float eps, uint32_t n_rows,
                        float *out);
    /** matmul and add: x[r][o] = x[r][o] + (the sum for a[r]); a (R, n_in),
     *  x (R, n_out). */
    void (*matmul_add)(bt_backend_t *be, const bt_weight_t *w, const float *a,
                       uint32_t n_rows, float *x);
    /** activate() with gated SILU, matmul and add: gate_up (R, 2 n_in),
     *  x (R, n_out). */
    void (*silu_matmul_add)(bt_backend_t *be, const bt_weight_t *w,
                            const float *gate_up, uint32_t n_rows, float *x);

    /** Hints, before a matmul, that @a w will be read after it. Changes no
     *  result; w may be freed at any time. NULL: of no use in this back end. */
    void (*ahead)(bt_backend_t *be, const bt_weight_t *w);

    /** Reports the work done on borrowed cores; any thread may call it. NULL:
     *  none ever. */
    void (*lent_stats)(bt_backend_t *be, bt_lent_stats_t *stats_p);

    /** Closes the back end; called by bt_backend_close() only. */
    void (*close)(bt_backend_t *be);

    /** Opens a copier: copies beside the operations, on streams of their own.
     *  Call sync() before a copy reads what an operation wrote. NULL: none, the
     *  back end's memory is the host's (CPU). Where copiers exist, the host
     *  reaches buffers and the KV cache only through them, copy_in() and
     *  copy_out().
     *  @param [out] copier_p  End it with copier_close(), before the back end.
     *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
    bt_status_t (*copier_open)(bt_backend_t *be, uint32_t n_tickets,
                               bt_copier_t *copier_p);
    /** Closes a copier. No copy may be in flight, and memory of host_alloc()
     *  must have been freed. */
    void (*copier_close)(bt_copier_t *copier);

    /** Opens asynchronous result copies to the host (returns.h), with @a
     *  n_slots slots of @a bytes. NULL: operations return when they are done.
     *  @param [out] returns_p  End it with returns_close(), before the back end
     *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
    bt_status_t (*returns_open)(bt_backend_t *be, uint32_t n_slots,
                                size_t bytes, bt_returns_t *returns_p);
    /** Waits for copies in flight and closes. All zeros are allowed. */
    void (*returns_close)(bt_returns_t *returns);

    /** Collectives between ranks on the device, as defined in coll.h. Calls are
     *  queued among the operations, in order, from the same thread; later
     *  errors surface at sync(). NULL, all three: the memory is the host's and
     *  the host's tables are used, or ranks cannot share a model on this back
     *  end.
     *
     *  One rank creates an id, and its caller distributes it to the other
     *  ranks. Then all ranks open the table; opening is collective and waits
     *  for them.
     *  @retval BT_ERR_DEVICE  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*collectives_id)(bt_backend_t *be,
                                  uint8_t id[BT_COLLECTIVES_ID_BYTES]);
    bt_status_t (*collectives_open)(bt_backend_t *be, uint32_t rank,
                                    uint32_t size,
                                    const uint8_t id[BT_COLLECTIVES_ID_BYTES],
                                    struct bt_collectives **coll_p);
    /** Closes the table without waiting for other ranks. NULL is allowed. */
    void (*collectives_close)(struct bt_collectives *coll);
} bt_kernels_ops_t;

/** Common first members of every back end's object. */
struct bt_backend {
    const bt_kernels_ops_t *ops;
    const bt_kernels_caps_t *caps;
};

/** True when the back end has memory of its own, which the host reaches only by
 *  copies. */
static inline bool bt_backend_owns_memory(const bt_backend_t *be)
{
    return be->ops->copier_open != NULL;
}

/** Signature of the function that a plugin exports. */
typedef bt_status_t (*bt_backend_open_fn)(const bt_backend_config_t *config,
                                          bt_backend_t **be_p);

/**
 * Opens a back end by name.
 *
 * @param [in]  name  "cpu", or the name of a plugin, of letters, digits and
 *     "_". baton_NAME.so is opened at run time from the folder in the
 *     environment variable BATON_PLUGIN_DIR, from the program's folder, or from
 *     its place in a build tree, and exports bt_NAME_backend_open(), a
 *     bt_backend_open_fn. "cuda" is a plugin.
 * @retval BT_OK
 * @retval BT_ERR_NOT_FOUND    Unknown name, or the plugin is not installed.
 * @retval BT_ERR_NO_DEVICE    The plugin found no device or no driver.
 * @retval BT_ERR_UNSUPPORTED  The back end does not have these numerics.
 * @retval BT_ERR_INVALID_PARAM  n_threads or max_rows is 0.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_backend_open(const char *name,
                                          const bt_backend_config_t *config,
                                          bt_backend_t **be_p);

/** Closes a back end. NULL is allowed. All weights and buffers must have been
 *  freed. */
void bt_backend_close(bt_backend_t *be);

/** CPU instruction tiers. Each is a superset of the ones before. */
typedef enum bt_cpu_tier {
    BT_CPU_PLAIN = 0,
    BT_CPU_AVX2 = 1,   /**< AVX2 + FMA + F16C */
    BT_CPU_AVX512 = 2, /**< F, BW, DQ, VL, VNNI; BF16 where there is one */
} bt_cpu_tier_t;

/** Returns the best tier of this machine. bt_backend_open("cpu") uses it unless
 *  the environment variable BATON_CPU_TIER (plain, avx2, avx512) names a lower
 *  one. */
bt_cpu_tier_t bt_cpu_tier_detect(void);

/** Dequantizes @a n elements (a whole number of blocks) to f32; the reference
 *  implementation.
 *  @retval BT_ERR_UNSUPPORTED  unknown type or partial block */
BT_MUST_CHECK bt_status_t bt_dequantize(bt_ktype_t type, const void *data,
                                        size_t n, float *out);

/** Returns elements and bytes per quantization block. F32, F16 and BF16 have
 *  blocks of one element.
 *  @retval BT_ERR_UNSUPPORTED  unknown type */
BT_MUST_CHECK bt_status_t bt_ktype_block(uint32_t type, uint32_t *n_elems_p,
                                         uint32_t *n_bytes_p);
/** True when matmul() multiplies elements of the type with unquantized rows.
 *  With other types matmul() quantizes rows to 8 bits. */
bool bt_ktype_is_dense(uint32_t type);
const char *bt_ktype_name(uint32_t type); /**< Name of the type, never NULL. */

#endif
