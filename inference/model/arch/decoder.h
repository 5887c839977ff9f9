/* SPDX-License-Identifier: Apache-2.0 */
/** @file decoder.h
 *
 * Decoder of all families: keys of its hyper-parameters, positions, weights.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_DECODER_H
#define BT_INFERENCE_MODEL_ARCH_DECODER_H

#include "inference/gguf/gguf.h"
#include "inference/model/arch/family.h"
#include "inference/model/model_priv.h"

/*
 * Keys "ARCHITECTURE.name" of a model file, read and checked, with a reason for
 * the user where a value is refused.
 */

typedef struct bt_keys {
    const bt_gguf_t *gguf;
    const char *prefix; /**< architecture name */
    bt_status_t status; /**< the first refusal; its reason is in why */
    char *why;
    size_t why_bytes;
} bt_keys_t;

#define BT_KEY_BYTES 96 /* of a whole key */

/** Writes "PREFIX.name".
 *  @param key  buffer of BT_KEY_BYTES
 *  @return key */
const char *bt_key_name(const bt_keys_t *keys, const char *name, char *key);

/** Refuses the file, unless it is refused already. */
void bt_keys_refuse(bt_keys_t *keys, bt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** Reads a whole number from @a min to @a max, which the file must have. */
void bt_keys_number(bt_keys_t *keys, const char *name, uint32_t min,
                    uint32_t max, uint32_t *value_p);
/** Reads a whole number from @a min to @a max; where there is no such key, or
 * it is refused, *value_p is unchanged. */
void bt_keys_number_if(bt_keys_t *keys, const char *name, uint32_t min,
                       uint32_t max, uint32_t *value_p);
/** Reads a finite number above 0; where there is no such key, it is 0, which
 *  means unused, or it is refused, *value_p is unchanged. */
void bt_keys_positive_if(bt_keys_t *keys, const char *name, float *value_p);

/*
 * State of a dense decoder, shared by its loader and its forward pass. All of
 * it is in back-end memory.
 */

#define BT_SUM_DEPTH 4u /* of BT_MAX_SUM_PARTS */

/** Weights of a norm, (dim) each; NULL as weight: there is no norm. */
typedef struct bt_norm_weights {
    float *weight;
    float *bias; /**< NULL: none */
} bt_norm_weights_t;

/** Ranges of bt_shard_t by which the columns of a matrix are cut. */
typedef enum bt_sum_cut {
    BT_SUM_HEADS, /**< part_heads, of head_dim columns each */
    BT_SUM_FFN,   /**< part_ffn */
    BT_SUM_SHARED /**< part_shared */
} bt_sum_cut_t;

/** Matrix whose product is summed over parts of its columns (shard.h). */
typedef struct bt_sum_weight {
    bt_weight_t *first;
    bt_weight_t **others; /**< owned: parts behind the first; NULL: none */
    uint32_t n_others;
    bt_sum_cut_t cut_as;
} bt_sum_weight_t;

typedef struct bt_experts bt_experts_t; /* experts.h */
typedef struct bt_expert_buffers bt_expert_buffers_t;

typedef struct bt_layer {
    bt_norm_weights_t attn_norm;
    bt_norm_weights_t attn_post_norm;
    bt_norm_weights_t ffn_norm;
    bt_norm_weights_t ffn_post_norm;
    bt_linear_t qkv;
    float *q_norm; /**< (head_dim, or all heads); NULL: none */
    float *k_norm;
    float *attn_sinks; /**< (n_heads), NULL: none */
    bt_sum_weight_t attn_output;
    bt_experts_t *experts; /**< owned; NULL: one feed-forward, up and
                                ffn_down */
    bt_linear_t up;        /**< gate and up, or only up */
    bt_sum_weight_t ffn_down;
    /* NULL: none */
    float *qkv_bias;
    float *attn_output_bias;
    float *up_bias;
    float *ffn_down_bias;
} bt_layer_t;

typedef struct bt_head bt_head_t;           /* head.h */
typedef struct bt_lora_pass bt_lora_pass_t; /* lora_pass.h */

typedef struct bt_decoder {
    bt_head_t *head;   /**< NULL: a model, not a draft head */
    uint32_t n_layers; /**< layers of this rank's stage, as all indices here */
    bt_layer_t *layers;
    bt_weight_t *embedding; /**< NULL where a stage needs no words */
    bt_weight_t *positions; /**< NULL: positions are not learned */
    bt_weight_t *output;    /**< NULL: the embedding's matrix (tied) */
    float *output_bias;     /**< (n_vocab), NULL: none */
    bt_norm_weights_t embedding_norm;
    bt_norm_weights_t output_norm;
    float *cos_sin;        /**< rotation table of hp->rope, NULL: no RoPE */
    float *window_cos_sin; /**< rotation table of hp->window_rope; NULL:
                                cos_sin is used */
    float *slopes;         /**< (n_heads) ALiBi slopes; NULL: none */
    float *temperatures;   /**< factors on queries, by position; NULL: none */

    /* Activations, rows of the batch. Between two layers all but x are free. */
    float *x;      /**< dim: residual stream */
    float *x_last; /**< dim: rows of x whose logits are wanted */
    float *a;      /**< dim, all heads, or ffn_dim */
    float *b;      /**< dim, query + key + value, or gate + up */
    float *c;      /**< dim: input of the feed-forward; NULL: not in parallel */
    float *part;   /**< one part of a linear of several parts; NULL: none has
                        several */
    bt_lora_pass_t *lora;         /**< owned; NULL: calls have no adapters */
    bt_expert_buffers_t *experts; /**< owned; NULL: no layer has experts */
    /* Used where sums have several parts on this rank, else NULL. */
    float *cut;                /**< columns of one part */
    float *sums[BT_SUM_DEPTH]; /**< dim: second halves, of each depth */
} bt_decoder_t;

/** Returns a norm of the decoder's width. */
static inline bt_norm_t bt_decoder_norm(const bt_model_t *model,
                                        const bt_norm_weights_t *weights)
{
    return (bt_norm_t){.weight = weights->weight,
                       .bias = weights->bias,
                       .eps = model->own.norm_eps,
                       .dim = model->own.dim,
                       .layer = model->family->layer_norm};
}

/** Computes x += scale * norm(tmp), as of a layer's attention or feed-forward;
 *  tmp (n_rows, dim) is overwritten. */
void bt_decoder_add_result(bt_model_t *model, const bt_norm_weights_t *after,
                           uint32_t n_rows, float *tmp, float *x);

/** Loads a matrix whose product is summed, of n_in columns.
 *  @param [in] columns  of each part, as w->cut_as says */
void bt_decoder_load_sum(bt_loader_t *ld, const char *name, uint32_t n_in,
                         const bt_share_t *columns, bt_sum_weight_t *w);

/** Computes out = W in of this rank's columns, part by part. out (n_rows,
 *  dim). */
void bt_decoder_sum_parts(bt_model_t *model, const bt_sum_weight_t *w,
                          const float *in, uint32_t n_rows, float *out);

/** Returns the outputs of a layer's first feed-forward matrix. */
static inline uint32_t bt_decoder_up_dim(const bt_family_t *family,
                                         const bt_hparams_t *hp)
{
    return family->plain_ffn ? hp->ffn_dim : 2 * hp->ffn_dim;
}

/*
 * Position encodings of a decoder: RoPE of queries and keys, learned
 * rows added to x, or a slope times the distance subtracted from scores (ALiBi:
 * Press et al., "Train Short, Test Long"). In addition, queries may be scaled
 * by position.
 */

/** Fills rope, window_rope, turned, learned_positions, alibi, slope_scale and
 *  temperature of *hp, whose other sizes and attention are filled in. */
void bt_positions_read(bt_keys_t *keys, const bt_family_t *family,
                       bt_hparams_t *hp);

/** Loads or computes the position tables of @a d, which its free function
 *  frees. */
void bt_positions_load(bt_loader_t *ld, bt_decoder_t *d);

/** Computes the ALiBi slopes of @a n_heads heads, the steepest 2^(-max_bias /
 *  n) for n heads: for n = 2^k its powers 1 .. n; for another n those of the
 *  next smaller 2^k, then each second one of twice as many, as the paper's
 *  authors do.
 *  @param [out] slopes  (n_heads) */
void bt_positions_slopes(uint32_t n_heads, float max_bias, float scale,
                         float *slopes);

#endif
