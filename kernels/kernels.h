/* SPDX-License-Identifier: Apache-2.0 */
/** @file kernels.h
 *
 * The whole interface to a back end (CPU, CUDA): buffers, packed weights and a
 * table of operations over ragged batches.
 *
 * A *ragged batch* is a list of sequences, each with some new tokens; the new
 * tokens of all sequences are laid one after the other as *rows*. A prefill
 * chunk (many rows of one sequence) and a decode step (one row of each of many
 * sequences) are the same call. No padding anywhere.
 *
 *     batch_reserve(limits)      once
 *     a step:  batch_begin(batch)             all tables cross over, in one
 * copy embed, { norm_matmul, rope_store, attention, … } of each layer,
 *              gather_rows, matmul, draw, score, …   read them where they are
 *
 * Numeric rules (invariant I1): the value of a row never depends on the other
 * rows of the batch, on how many threads run, or on the tier of instruction
 * set. Each output is accumulated in one fixed order that is written beside
 * the operation; the plain C reference is the specification and every other
 * tier gives the same bits.
 *
 * Threads: one thread drives a back end. An operation returns when it is done
 * (CPU) or queued (CUDA; bt_kernels_ops.sync waits). Operations cannot fail on
 * valid arguments; device errors surface at sync. They allocate nothing.
 */
#ifndef BT_KERNELS_KERNELS_H
#define BT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "kernels/copier.h"
#include "kernels/draw.h"
#include "kernels/returns.h"
#include "kernels/workload.h"

/** Tensor types as GGUF numbers them (ggml_type), and two that it has not: a
 *  block of E4M3 is a scale (f32) and 64 codes of kernels/e4m3.h, where 0x7f is
 *  480 and no NaN; a value is a code times its scale, in f32. They differ in
 *  how products are computed: as with F32 weights, or as with BF16 ones, whose
 *  values are exact as bf16. */
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
    BT_KV_INT8 = 2, /**< with a scale per token, head, layer and key or value */
    BT_KV_FP8 = 3,  /**< E4M3, with scales as INT8 has them */
} bt_kv_type_t;

/** Facts of an element type of the KV cache. */
typedef struct bt_kv_type_info {
    const char *name;     /**< as in --kv-type: "f16", "bf16", "int8", "fp8"
                           */
    uint32_t elem_bytes;  /**< of one element */
    uint32_t scale_bytes; /**< of one vector's scale (f32), 0: there are none */
} bt_kv_type_info_t;

/** @return NULL for a number that is none of bt_kv_type_t. */
const bt_kv_type_info_t *bt_kv_type_info(uint32_t type);
/** @retval BT_ERR_NOT_FOUND  no type of that name */
BT_MUST_CHECK bt_status_t bt_kv_type_parse(const char *name,
                                           bt_kv_type_t *type_p);

struct bt_collectives; /* common/coll/coll.h */

typedef struct bt_backend bt_backend_t; /**< one device or thread group */
typedef struct bt_weight bt_weight_t;   /**< a packed matrix, opaque */

/** New tokens of one sequence. */
typedef struct bt_ragged_seq {
    uint32_t row;    /**< first row of this sequence in the batch */
    uint32_t n_rows; /**< new tokens, at least 1 */
    uint32_t pos;    /**< position of the first new token, from 0 */
    /** Block ids; position p is in blocks[p / T]. Where the model's layers are
     *  in several groups, in blocks[p / T * groups + group]: a block of each.
     *  Of positions before all that a layer's rows see, any number: what that
     *  would be the id of is somebody else's. */
    const uint32_t *blocks;
} bt_ragged_seq_t;

/** One step: everything that its operations need to know of rows, sequences
 *  and blocks. All arrays are host memory; from batch_begin() on they stay as
 *  they are until the step's last operation returned. kernels/batch.h lays them
 *  out for an upload. */
typedef struct bt_batch {
    const uint32_t *tokens;       /**< (n_rows) token of each row */
    const bt_ragged_seq_t *seqs;  /**< (n_seqs) rows contiguous from 0 on */
    const uint32_t *logit_rows;   /**< (n_logit_rows) rows that go on to the
                                       output */
    const bt_draw_t *draws;       /**< (n_draws) those of a row together */
    bt_draw_edit_t *edits;        /**< (n_edits) of all draws */
    const bt_scoring_t *scorings; /**< (n_scorings) */
    uint32_t n_rows;
    uint32_t n_seqs;
    uint32_t n_logit_rows;
    uint32_t n_draws;
    uint32_t n_edits;
    uint32_t n_scorings;
    uint32_t tokens_per_block; /**< T, which tells how many blocks of a sequence
                                    are read */
    uint32_t n_other_groups;   /**< of layers, besides one: as in the views */
    /** (n_rows) of each row which of take_tokens()'s ids is its token;
     *  UINT32_MAX: tokens has it. NULL: tokens has all. */
    const uint32_t *from_ids;
} bt_batch_t;

/** The most that a batch has. */
typedef struct bt_batch_limits {
    uint32_t max_rows;
    uint32_t max_seqs;
    uint32_t max_logit_rows;
    uint32_t max_draws;    /**< 0: nothing is drawn */
    uint32_t max_edits;    /**< of all of them */
    uint32_t max_scorings; /**< 0: nothing is scored */
    uint32_t max_other_groups;
    size_t max_blocks; /**< ids of all sequences and groups together */
} bt_batch_limits_t;

/** Where the paged KV cache is; one rank's heads. Block b starts at base + b *
 *  block_bytes. Row-major, it holds
 *
 *      elem[layer][0][kv_head][dim / 2][slot][2]   keys: two elements of a slot
 *                                                  side by side
 *      elem[layer][1][kv_head][slot / 2][dim][2]   values: one element of two
 *                                                  slots side by side
 *      scale[layer][0 or 1][kv_head][slot]         behind all elements; INT8
 * and FP8 alone, f32
 *
 *  with slot < T; head_dim and T are even (docs/KV_LAYOUT.md). A vector of an
 *  INT8 cache, x[D] of one token and head:
 *
 *      amax = max |x_i|; scale = amax / 127
 *      code_i = x_i / scale to the nearest integer, ties to even
 *      value_i = code_i * scale
 *
 *  Of an FP8 cache scale = amax / 448, and code_i is the E4M3 number nearest to
 *  x_i / scale, ties to the even code, no further than 448.
 *
 *  A scale below 2^-126 is 0, and so are its codes. A vector with an infinity
 *  or a NaN has the scale NaN, and so reads as NaN throughout. */
typedef struct bt_kv_view {
    void *base;
    size_t block_bytes;
    bt_kv_type_t type;
    uint32_t n_layers;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t tokens_per_block; /**< T */
    /** Where layers need different things they are in groups, each a view of
     *  its own over the same blocks: n_layers, n_kv_heads and head_dim are the
     *  group's, and `layer` of an operation counts in it. */
    uint32_t n_other_groups;
    uint32_t group; /**< which one this is, at most n_other_groups */
} bt_kv_view_t;

/** Number of the order above, the one of bt_kernels_caps_t.kv_layout: raise it
 *  with every change of it. Both ends of a transfer compare it. */
#define BT_KV_LAYOUT_PAIRS 3u

/** How rope_store() turns queries and keys. */
typedef struct bt_rotation {
    const float *cos_sin; /**< back end [position][dims / 2][2], host-made */
    uint32_t dims;    /**< of a head that turn, its first; even. 0: none do, and
                           there is no table */
    bool interleaved; /**< pairs (2i, 2i + 1), else (i, i + dims / 2) */
} bt_rotation_t;

/** What activate() makes of its input. */
typedef enum bt_activation {
    BT_ACT_SILU,      /**< x / (1 + exp(-x)) */
    BT_ACT_GELU_TANH, /**< x / (1 + exp(-k)), k = x (G1 + G2 x^2): GELU with
                           tanh, G1 = sqrt(8 / pi), G2 = 0.044715 G1 */
    BT_ACT_GELU_ERF,  /**< x Phi(x), Phi the normal distribution's function */
    BT_ACT_RELU2,     /**< max(x, 0)^2 */
} bt_activation_t;

/** How attention is computed; the same for all rows of a call. */
typedef struct bt_attention {
    uint32_t n_heads;   /**< query heads */
    uint32_t key_dim;   /**< of a head's query and key */
    uint32_t value_dim; /**< of a head's value and output */
    float scale;        /**< of a product of query and key */
    /** A row at position p sees max(0, p + 1 - window) .. p; 0: all of 0 .. p.
     *  Blocks that lie before it wholly are not read. */
    uint32_t window;
    float soft_cap; /**< c: a score s becomes c tanh(s / c); 0: it stays */
    /** Back end (n_heads): a score of each query head that takes part in the
     *  softmax and has no value. NULL: none. */
    const float *sinks;
    /** Back end (n_heads): a score loses this of each query head for each
     *  position that its key lies before the row. NULL: nothing. */
    const float *slopes;
} bt_attention_t;

/** What of bt_attention_t a back end may not have, bits of
 *  bt_kernels_caps_t.attention. */
typedef enum bt_attention_part {
    BT_ATTENTION_WINDOW = 1u << 0,
    BT_ATTENTION_SOFT_CAP = 1u << 1,
    BT_ATTENTION_SINKS = 1u << 2,
    BT_ATTENTION_VALUE_DIM = 1u << 3, /**< another one than key_dim */
    BT_ATTENTION_SLOPES = 1u << 4,
} bt_attention_part_t;

/** Whose numbers a back end computes. */
typedef enum bt_numerics {
    BT_NUMERICS_EXACT, /**< the reference's bits: BT_PROFILE_EXACT */
    /** Products with F16, BF16 and E4M3 weights and attention by tensor cores,
     *  whose sums are a device's own; all else exact: BT_PROFILE_TENSOR. */
    BT_NUMERICS_TENSOR,
} bt_numerics_t;

typedef struct bt_backend_config {
    uint32_t n_threads;    /**< CPU: threads, the caller's own counted in */
    const uint32_t *cores; /**< CPU: n_threads core ids to pin to, or NULL */
    const uint32_t *lent_cores; /**< CPU: n_lent cores of others, that it may
                                     compute on while they are idle */
    uint32_t n_lent;            /**< 0: none */
    uint32_t device;            /**< CUDA: ordinal */
    uint32_t max_rows;          /**< most rows of one matmul, for scratch */
    uint32_t max_dim;       /**< widest row of any operation, for scratch; the
                                 CPU goes by the matrices it packs instead */
    bt_numerics_t numerics; /**< another one than a back end has:
                                 BT_ERR_UNSUPPORTED */
    char *why;        /**< what is wrong, where opening fails; NULL: not asked
                           for */
    size_t why_bytes; /**< of it */
} bt_backend_config_t;

/** What threads on lent cores did since the back end was opened. */
typedef struct bt_lent_stats {
    uint64_t pieces;   /**< of operations that they computed */
    uint64_t busy_ns;  /**< that they were at it */
    uint64_t saved_ns; /**< that own threads would have taken for it, all of
                            them at once */
    uint64_t again;    /**< pieces that were done twice: the core was taken back
                            in the middle */
} bt_lent_stats_t;

/** What names a table of collectives before it is open. */
#define BT_COLLECTIVES_ID_BYTES 128u

/** The numeric profile of the rules above and beside the operations: back ends
 *  with it give the same bytes, those of the plain C reference. */
#define BT_PROFILE_EXACT "q8-bf16"
/** The one of BT_NUMERICS_TENSOR (docs/adr/0019-tensor-profile.md). */
#define BT_PROFILE_TENSOR "q8-bf16-tensor"

/** What a back end can do; unsupported combinations are found here, never by
 *  an abort. */
typedef struct bt_kernels_caps {
    const char *name;      /**< "cpu/avx512", "cuda/sm_90" */
    const char *profile;   /**< numeric profile, equal = same bytes */
    uint64_t weight_types; /**< bit 1 << bt_ktype_t */
    uint32_t kv_types;     /**< bit 1 << bt_kv_type_t */
    uint32_t max_head_dim;
    uint32_t pack_version; /**< layout of weight_data(), whatever the profile;
                                0: there is none */
    uint32_t attention;    /**< bits of bt_attention_part_t */
    uint32_t kv_layout;    /**< order of a block's bytes: BT_KV_LAYOUT_PAIRS */
    uint32_t kv_align_bytes;   /**< of a pool's begin and of a block's size */
    uint32_t kv_block_tokens;  /**< tokens_per_block is a multiple of it */
    uint32_t max_block_tokens; /**< and at most this; 0: any */
    bool runs_ahead;  /**< operations return before they are done: sync() */
    bool takes_codes; /**< BT_KTYPE_E4M3 and its like are worth it: read from
                           memory as codes. Else they cost time, and a model has
                           the type that they stand for. */
} bt_kernels_caps_t;

/** Can it work on this cache? @a kv may have no base yet.
 *  @param [out] why  On failure what it lacks, by name.
 *  @retval BT_ERR_UNSUPPORTED */
BT_MUST_CHECK bt_status_t bt_kernels_check_kv(const bt_kernels_caps_t *caps,
                                              const bt_kv_view_t *kv, char *why,
                                              size_t why_bytes);
/** Can it compute this attention? As above. */
BT_MUST_CHECK bt_status_t bt_kernels_check_attention(
    const bt_kernels_caps_t *caps, const bt_attention_t *attention, char *why,
    size_t why_bytes);

#define BT_TOP_MAX 512u /**< most that top() finds of a row */

/**
 * Operations. Pointers are back-end memory unless "host" is said. Row-major;
 * x of shape (R, D) has its row r at x + r * D. F32 unless said otherwise.
 */
typedef struct bt_kernels_ops {
    /** Back-end memory, 64-byte aligned, zeroed. @retval BT_ERR_NO_MEMORY */
    bt_status_t (*buffer_alloc)(bt_backend_t *be, size_t bytes, void **ptr_p);
    void (*buffer_free)(bt_backend_t *be, void *ptr);
    bt_status_t (*copy_in)(bt_backend_t *be, void *dst, const void *host_src,
                           size_t bytes);
    bt_status_t (*copy_out)(bt_backend_t *be, void *host_dst, const void *src,
                            size_t bytes);
    /** @a bytes at @a ptr become 0, in the order of the operations. */
    void (*clear)(bt_backend_t *be, void *ptr, size_t bytes);
    /** Wait for everything queued. @retval BT_ERR_DEVICE */
    bt_status_t (*sync)(bt_backend_t *be);
    /** Bytes of the back end's own memory that can still be taken. NULL: it has
     *  none of its own. @retval BT_ERR_DEVICE */
    bt_status_t (*memory_left)(bt_backend_t *be, uint64_t *bytes_p);

    /** What a workload takes of memory, with these numerics; a pure function.
     *  NULL, as workload_reserve(): nothing, or not known beforehand. */
    void (*workload_memory)(const bt_workload_t *workload,
                            bt_numerics_t numerics,
                            bt_workload_memory_t *memory_p);
    /** Take the scratch for it, all of it. Without, operations on weights have
     *  what those need, and others do without: slower, the same bits.
     *  @retval BT_ERR_NO_MEMORY  what there was stays */
    bt_status_t (*workload_reserve)(bt_backend_t *be,
                                    const bt_workload_t *workload);

    /** Take the memory for the tables of batches: bt_batch_max_words() in host
     *  and in back-end memory, in place of what an earlier call took. NULL, as
     *  batch_begin(): operations read the host's arrays.
     *  @retval BT_ERR_NO_MEMORY  what an earlier call took stays */
    bt_status_t (*batch_reserve)(bt_backend_t *be,
                                 const bt_batch_limits_t *limits);
    /** Begin a step: upload its tables. Operations that take a batch are given
     *  the one that was begun last. Within the limits it cannot fail but by the
     *  device. @retval BT_ERR_INVALID_PARAM  beyond the limits
     *  @retval BT_ERR_DEVICE */
    bt_status_t (*batch_begin)(bt_backend_t *be, const bt_batch_t *batch);

    /** Rows of the batch whose token is one of @a ids, as from_ids says, get
     *  it: before any operation that reads tokens. ids: what argmax() left of
     *  an earlier step. NULL: not in this back end. */
    void (*take_tokens)(bt_backend_t *be, const bt_batch_t *batch,
                        const uint32_t *ids);

    /** Pack a matrix of @a n_out rows of @a n_in elements in GGUF layout at
     *  host memory @a data (borrowed for the call only). The value of every
     *  element is that of the type's dequantizer in f32, exactly.
     *  @retval BT_ERR_UNSUPPORTED  type or shape (n_in not a whole number of
     *                              the type's blocks)
     *  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*weight_pack)(bt_backend_t *be, bt_ktype_t type,
                               uint32_t n_out, uint32_t n_in, const void *data,
                               bt_weight_t **weight_p);
    /** The same, whose bytes are in the host's memory: for weight_data(), not
     * to compute with. NULL: those of weight_pack() are there. */
    bt_status_t (*weight_pack_here)(bt_backend_t *be, bt_ktype_t type,
                                    uint32_t n_out, uint32_t n_in,
                                    const void *data, bt_weight_t **weight_p);
    /** The packed bytes, weight_bytes() of them: equal for equal input, and all
     *  that there is to a weight, so that they can be kept in a file and mapped
     *  by several processes. Of weight_pack_here(), where there is one. NULL,
     * as weight_adopt(): not in this back end. */
    const void *(*weight_data)(const bt_weight_t *weight);
    /** A weight over bytes of weight_data() of the same type and shape, from
     * any back end with the same pack_version; they are borrowed, only read,
     * and must outlive the weight, unless the back end has memory of its own:
     * then they were copied there. Any bytes are safe: altered ones give other
     * numbers, nothing else.
     *  @retval BT_ERR_UNSUPPORTED    as weight_pack()
     *  @retval BT_ERR_INVALID_PARAM  another number of bytes than
     *                                weight_bytes(), or not on 64 bytes
     *  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*weight_adopt)(bt_backend_t *be, bt_ktype_t type,
                                uint32_t n_out, uint32_t n_in, const void *data,
                                size_t bytes, bt_weight_t **weight_p);
    void (*weight_free)(bt_backend_t *be, bt_weight_t *weight);
    /** Bytes that weight_pack() would take; 0 for an unsupported shape. */
    size_t (*weight_bytes)(bt_ktype_t type, uint32_t n_out, uint32_t n_in);

    /** out[r][:] = row tokens[r] of w (dequantized), of all rows of the batch;
     *  each token < the matrix's n_out. out (R, n_in). */
    void (*embed)(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out);

    /** out[r][o] = sum over k of w[o][k] * x[r][k].
     *  x (R, n_in), out (R, n_out); must not overlap.
     *
     *  F32 and F16 weights: one accumulator per output, k ascending, each step
     *  one fused multiply-add (fmaf).
     *
     *  BF16 weights: the row too becomes bf16 (to nearest, ties to even). One
     *  accumulator, pairs k, k + 1 ascending, first k + 1 (0 at an odd end),
     *  then k: acc = fmaf(w, x, acc), where numbers below 2^-126, read or
     *  computed, are zeros.
     *
     *  E4M3 weights: of their values as with F32 ones, or BF16 ones.
     *
     *  Quantized weights: the row too becomes 8 bits, in halves h = 0, 1 of
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
     *  (where halves have minima of their own, for h = 0, 1: acc =
     *  fmaf(weight min[h], scale[h] * sum of its codes, acc)).
     *  Halves with m < 2^-100 are zeros; one with a NaN or an infinity makes
     * the output NaN. (16 and not 32 values to a scale: the KL divergence from
     *  float rows is 0.0015 and not 0.0027 on our test text.) */
    void (*matmul)(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out);

    /** out[r][i] = x[r][i] * (1 / sqrt(mean(x[r]^2) + eps)) * weight[i].
     *  In place (out == x) is allowed. Sum of squares: 16 lanes, lane i % 16,
     *  fmaf ascending, then the pairwise tree 8, 4, 2, 1.
     *  Source: Zhang & Sennrich, "Root Mean Square Layer Normalization". */
    void (*rmsnorm)(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out);

    /** out[r][i] = (x[r][i] - m) * (1 / sqrt(v + eps)) * weight[i], and then
     *  + bias[i] unless bias is NULL; m the mean of x[r], v that of the squares
     *  of what x[r] has above m. In place is allowed. Sums as in rmsnorm(),
     * that of m by additions. Source: Ba et al., "Layer Normalization". */
    void (*layer_norm)(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out);
    /** rmsnorm() in place of n_heads vectors of dim values in each row of
     *  row_floats, which lie side by side from column @a at on. weight (dim).
     *  Source: Henry et al., "Query-Key Normalization for Transformers". */
    void (*head_norm)(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim);

    /** Rotate q and k by the row's position, then store k and v into the
     *  cache. qkv row r: [n_heads * D query | n_kv_heads * D key | the same
     *  value]; the query part is rotated in place, as @a rotation says.
     *  Pair (a, b): a' = fma(a, cos, -(b * sin)), b' = fma(a, sin, b * cos);
     *  stored to nearest, ties to even: what is too large becomes infinite in
     *  F16 and BF16, a NaN stays one. INT8 and FP8: see bt_kv_view_t.
     *  Source: Su et al., RoFormer. */
    void (*rope_store)(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer);
    /** x[r][:] += row p of w (dequantized), p the position of row r, which is
     *  below the matrix's n_out: learned positions. x (R, n_in). */
    void (*add_positions)(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x);

    /** out[r][h] = softmax(q . K * scale) V over positions 0 .. the row's own,
     *  or those of the window, causal, grouped queries (head h reads KV head
     *  h * n_kv / n_heads), K and V as stored, D even. Online softmax over
     * tiles of 32 positions in ascending order, which begin at multiples of 32,
     *  whatever the size of cache blocks:
     *      s_j = (q . k_j) * scale, q and k_j rounded to bf16 and summed as in
     *            matmul() with BF16 weights, pairs of d ascending
     *      with a soft cap c: s_j = c * (1 - 2 / (exp(s_j * (2 / c)) + 1))
     *      with a slope: s_j = fma(slope, j - p, s_j), p the row's position
     *      m' = max(m, s); p_j = exp(s_j - m'); corr = exp(m - m')
     *      l' = fma(l, corr, sum of p)
     *      acc = acc * corr, then acc += p_j v_j, both rounded to bf16 and
     *            summed likewise, pairs of j ascending, one beside what is not
     *            seen beside 0
     *  and out = acc * (1 / l); m begins as -infinity and l as 0, or with a
     * sink as it and 1. INT8 and FP8: codes are multiplied, those of FP8 as
     * the numbers that they are; s_j is the product times
     * the key's scale, and the weight p_j times the value's. The sum of p is
     * summed as in rmsnorm(); exp is the polynomial of kernels/formula.h. q is
     * the qkv array of rope_store (row stride (n_heads + 2 n_kv_heads) * D);
     * out (R, n_heads * D). Source: Milakov & Gimelshein, "Online normalizer
     * calculation for softmax"; Kwon et al., PagedAttention; window: Beltagy et
     * al., "Longformer"; soft cap: "Gemma 2"; sinks: Xiao et al., "Efficient
     *  Streaming Language Models with Attention Sinks"; slopes: Press et al.,
     *  "Train Short, Test Long: Attention with Linear Biases". */
    void (*attention)(bt_backend_t *be, const bt_attention_t *attention,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out);

    /** gate_up (R, 2 D): out[r][i] = silu(gate[i]) * up[i], gate first:
     *  gate / (1 + exp(-gate)) * up, left to right. */
    void (*silu_mul)(bt_backend_t *be, const float *gate_up, uint32_t n_rows,
                     uint32_t dim, float *out);

    /** out[r][i] = act(x[r][i]), x (R, D); or, @a gated, act(gate[i]) * up[i],
     *  x (R, 2 D), gate first. In the order that bt_activation_t has; x^2 is
     *  rounded, then one fused multiply-add makes it G1 + G2 x^2. Phi by a
     *  polynomial: kernels/formula.h. Source: Hendrycks & Gimpel, "Gaussian
     *  Error Linear Units"; Shazeer, "GLU Variants Improve Transformer". */
    void (*activate)(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out);

    /** x[r][i] += bias[i]. x (R, dim). */
    void (*add_bias)(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim);
    /** x[i] *= factor. */
    void (*scale)(bt_backend_t *be, float *x, float factor, size_t n);
    /** x[i] = c tanh(x[i] / c), computed as in attention(). */
    void (*soft_cap)(bt_backend_t *be, float *x, float cap, size_t n);
    /** x[i] becomes -limit where it is below that, limit where it is above; a
     *  NaN stays. limit > 0. */
    void (*clamp)(bt_backend_t *be, float *x, float limit, size_t n);
    /** x[r][i] *= factors[p] for i < dim, p the position of row r: queries
     *  whose temperature grows with the position. x (R, row_floats), factors
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

    /** ids[r] = index of the largest x[r][i], the lowest where several are; NaN
     *  is never the largest; 0 of a row with nothing above -infinity. x (R,
     * dim), ids (R). NULL: not in this back end. */
    void (*argmax)(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids);

    /** ids[r][j] = index of the j-th in the order of x[r]: the largest first,
     *  of equals (0 and -0 are) the lowest index; values[r][j] = what is there.
     *  NaN and -infinity are not in it; behind the last of a row are ids
     *  UINT32_MAX and values -infinity. x (R, dim), dim < UINT32_MAX; ids and
     *  values (R, k), 1 <= k <= BT_TOP_MAX. NULL: not in this back end. */
    void (*top)(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
                uint32_t k, uint32_t *ids, float *values);

    /** ids[i] = the token that the batch's draw i draws (draw.h). logits
     *  (n_logit_rows, dim) are as they were when it is done; ids (n_draws).
     *  NULL, as score(): not in this back end. */
    void (*draw)(bt_backend_t *be, float *logits, const bt_batch_t *batch,
                 uint32_t dim, uint32_t *ids);
    /** out[i] = what the batch's scoring i takes; @a ids are what draw() of the
     *  same batch left. The sum: exp(x[k] - best) + 0 * (x[k] - best) in float
     *  (kernels/exp_negative.h) goes to lane k % 16; a lane sums 16 of its own,
     *  of 256 values of the row, in float from 0 on, and such sums in double;
     *  the last dim % 16 values are sums by themselves; then lane by lane. A
     *  NaN where a value is not finite. out (n_scorings). */
    void (*score)(bt_backend_t *be, const float *logits,
                  const bt_batch_t *batch, uint32_t dim, const uint32_t *ids,
                  bt_scored_t *out);

    /** Steps of a layer: the bits of the operations that they name, one after
     *  the other, without what lies between them. x, a and gate_up must not
     *  overlap what is written. NULL, all three: not in this back end, the
     *  caller runs the single operations (which in one that has them are the
     *  specification of these, and serve matrices in parts).
     *
     *  rmsnorm(x, norm, eps) and matmul: x (R, n_in), norm (n_in),
     *  out (R, n_out). */
    void (*norm_matmul)(bt_backend_t *be, const bt_weight_t *w, const float *x,
                        const float *norm, float eps, uint32_t n_rows,
                        float *out);
    /** matmul and add: x[r][o] = x[r][o] + (the sum for a[r]); a (R, n_in),
     *  x (R, n_out). */
    void (*matmul_add)(bt_backend_t *be, const bt_weight_t *w, const float *a,
                       uint32_t n_rows, float *x);
    /** silu_mul, matmul and add: gate_up (R, 2 n_in), x (R, n_out). */
    void (*silu_matmul_add)(bt_backend_t *be, const bt_weight_t *w,
                            const float *gate_up, uint32_t n_rows, float *x);

    /** A hint, before a matmul: @a w will be read after it. Changes no result;
     *  w may be freed at any time. NULL: of no use in this back end. */
    void (*ahead)(bt_backend_t *be, const bt_weight_t *w);

    /** What was done on lent cores; any thread may ask. NULL: nothing ever. */
    void (*lent_stats)(bt_backend_t *be, bt_lent_stats_t *stats_p);

    /** End the back end; called by bt_backend_close() only. */
    void (*close)(bt_backend_t *be);

    /** Copies beside the operations, on streams of their own: sync() before
     *  one reads what an operation wrote. NULL: there are none, the back end's
     *  memory is the host's (CPU). Where there are, the host reaches buffers by
     *  them, copy_in() and copy_out() alone, the KV cache among these.
     *  @param [out] copier_p  End it with copier_close(), before the back end.
     *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
    bt_status_t (*copier_open)(bt_backend_t *be, uint32_t n_tickets,
                               bt_copier_t *copier_p);
    /** Nothing is under way; memory of host_alloc() was freed. */
    void (*copier_close)(bt_copier_t *copier);

    /** Words that come to the host behind the operations (returns.h), in slots
     *  of so many bytes. NULL: operations return when they are done.
     *  @param [out] returns_p  End it with returns_close(), before the back end
     *  @retval BT_ERR_NO_MEMORY  @retval BT_ERR_DEVICE */
    bt_status_t (*returns_open)(bt_backend_t *be, uint32_t n_slots,
                                size_t bytes, bt_returns_t *returns_p);
    /** Waits for what is on its way. All zeros are allowed. */
    void (*returns_close)(bt_returns_t *returns);

    /** Sums and what else ranks do with each other's buffers, as coll.h has it:
     *  calls are queued among the operations, in their order, from the same
     *  thread; what fails later surfaces at sync(). NULL, all three: the memory
     *  is the host's, whose tables do, or ranks cannot share a model here.
     *
     *  One rank makes an id, which its caller brings to the others; then all
     *  open the table, which is collective, and waits for them.
     *  @retval BT_ERR_DEVICE  @retval BT_ERR_NO_MEMORY */
    bt_status_t (*collectives_id)(bt_backend_t *be,
                                  uint8_t id[BT_COLLECTIVES_ID_BYTES]);
    bt_status_t (*collectives_open)(bt_backend_t *be, uint32_t rank,
                                    uint32_t size,
                                    const uint8_t id[BT_COLLECTIVES_ID_BYTES],
                                    struct bt_collectives **coll_p);
    /** NULL is allowed. Waits for no other rank. */
    void (*collectives_close)(struct bt_collectives *coll);
} bt_kernels_ops_t;

/** Every back end's object begins with this. */
struct bt_backend {
    const bt_kernels_ops_t *ops;
    const bt_kernels_caps_t *caps;
};

/** Has it memory of its own, which the host reaches by copies alone? */
static inline bool bt_backend_owns_memory(const bt_backend_t *be)
{
    return be->ops->copier_open != NULL;
}

/** What a plugin exports. */
typedef bt_status_t (*bt_backend_open_fn)(const bt_backend_config_t *config,
                                          bt_backend_t **be_p);

/**
 * Open a back end by name.
 *
 * @param [in]  name  "cpu", or that of a plugin, of letters, digits and "_":
 *                    baton_NAME.so in the folder that the environment variable
 *                    BATON_PLUGIN_DIR names, beside the program, or
 *                    where a build tree has it, is opened at run time and has
 *                    bt_NAME_backend_open(), a bt_backend_open_fn. "cuda" is
 * one.
 * @retval BT_OK
 * @retval BT_ERR_NOT_FOUND    Unknown name, or the plugin is not installed.
 * @retval BT_ERR_NO_DEVICE    The plugin found no device or no driver.
 * @retval BT_ERR_UNSUPPORTED  It does not have these numerics.
 * @retval BT_ERR_INVALID_PARAM  n_threads or max_rows is 0.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_backend_open(const char *name,
                                          const bt_backend_config_t *config,
                                          bt_backend_t **be_p);

/** NULL is allowed. All weights and buffers must have been freed. */
void bt_backend_close(bt_backend_t *be);

/** CPU instruction tiers. Each is a superset of the ones before. */
typedef enum bt_cpu_tier {
    BT_CPU_PLAIN = 0,
    BT_CPU_AVX2 = 1,   /**< AVX2 + FMA + F16C */
    BT_CPU_AVX512 = 2, /**< F, BW, DQ, VL, VNNI; BF16 where there is one */
} bt_cpu_tier_t;

/** Best tier of this machine, which bt_backend_open("cpu") takes unless the
 *  environment variable BATON_CPU_TIER (plain, avx2, avx512) names a lower one.
 */
bt_cpu_tier_t bt_cpu_tier_detect(void);

/** Dequantize @a n elements (a whole number of blocks) to f32: the reference.
 *  @retval BT_ERR_UNSUPPORTED  unknown type or partial block */
BT_MUST_CHECK bt_status_t bt_dequantize(bt_ktype_t type, const void *data,
                                        size_t n, float *out);

/** Elements and bytes per quantization block; BT_ERR_UNSUPPORTED for unknown
 *  types. F32, F16 and BF16 have blocks of one element. */
BT_MUST_CHECK bt_status_t bt_ktype_block(uint32_t type, uint32_t *n_elems_p,
                                         uint32_t *n_bytes_p);
/** Are its numbers floats, each by itself, that rows are multiplied by as they
 *  are? Else rows become 8 bits for it (matmul()). */
bool bt_ktype_is_dense(uint32_t type);
const char *bt_ktype_name(uint32_t type); /**< never NULL */

#endif
