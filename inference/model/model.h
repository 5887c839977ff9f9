/* SPDX-License-Identifier: Apache-2.0 */
/** @file model.h
 *
 * A model loaded from GGUF onto a back end, and its forward pass over a ragged
 * batch with a paged KV cache. The architectures are in arch/.
 *
 * Threads: one thread drives a model (the one that drives its back end).
 */
#ifndef BT_INFERENCE_MODEL_MODEL_H
#define BT_INFERENCE_MODEL_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/coll/coll.h"
#include "common/kv/kv_groups.h"
#include "common/wire/request.h"
#include "inference/gguf/gguf.h"
#include "inference/model/processors.h"
#include "kernels/kernels.h"

#define BT_MAX_LAYERS 4096u

/** Set of layers of a model, one bit each. */
typedef struct bt_layer_set {
    uint64_t words[BT_MAX_LAYERS / 64];
} bt_layer_set_t;

static inline bool bt_layer_in(const bt_layer_set_t *set, uint32_t layer)
{
    return (set->words[layer / 64] >> (layer % 64) & 1u) != 0;
}

static inline void bt_layer_add(bt_layer_set_t *set, uint32_t layer)
{
    set->words[layer / 64] |= 1ull << (layer % 64);
}

/** Rotary position embedding (RoPE): at position p, pair i of a head is rotated
 *  by p * base^(-2i / dims) * scale. */
typedef struct bt_rope {
    uint32_t dims; /**< dimensions of a head that are rotated, even; 0: none */
    float base;
    float scale;     /**< factor on positions; 1 = unscaled */
    float magnitude; /**< factor on cosines and sines */
    /** YaRN: pairs that rotate more than fast times in trained_tokens are
     *  not scaled, those below slow are scaled fully, those between by
     *  interpolation; the scaling is weighted by mix. 0: all pairs are
     *  scaled. */
    float mix;
    float fast;
    float slow;
    bool untruncated;        /**< YaRN: the two bounds are not rounded to whole
                                  pairs */
    uint32_t trained_tokens; /**< trained context length before positions
                                  were scaled */
    /** LongRoPE: other frequencies apply when the configured context is longer
     *  than trained_tokens (bt_hparams_long_context()). */
    bool by_context;
} bt_rope_t;

/** Most layers whose inputs a call copies out: bt_taps_t. */
#define BT_MODEL_MAX_TAPS 3u

/** Draft heads (head.h): small models that draft tokens for a target from
 *  its hidden states. */
typedef enum bt_head_kind {
    BT_HEAD_NONE,   /**< a model */
    BT_HEAD_EAGLE3, /**< a file of architecture eagle3 */
    BT_HEAD_NEXTN,  /**< the first layer of multi-token prediction in the
                         target's own file */
} bt_head_kind_t;

/** Hyperparameters that only draft heads have. */
typedef struct bt_head_hparams {
    bt_head_kind_t kind;
    uint32_t target_dim; /**< width of the target's hidden states */
    uint32_t n_taps;     /**< hidden states of a token that are read, beside
                              the normed last one of BT_HEAD_NEXTN */
    uint32_t taps[BT_MODEL_MAX_TAPS]; /**< bt_taps_t.layers */
    bool norm_before_residual;        /**< the residual stream begins with the
                                           normed hidden state */
    bool norm_before_fc; /**< the concatenated hidden states are normed */
    bool norm_output;    /**< a draft behind another is computed from the output
                              behind the output norm, not before it; so with
                              BT_HEAD_NEXTN */
} bt_head_hparams_t;

/** Mixture of experts: the feed-forward of some layers. */
typedef struct bt_expert_hparams {
    uint32_t n;      /**< experts of a layer; 0: no layer has any */
    uint32_t n_used; /**< experts of a row */
    uint32_t dim;    /**< width of an expert's feed-forward */
    /** width of the shared expert, which all rows go through; 0: none */
    uint32_t shared_dim;
    bt_gating_t gating;
    bool normed;      /**< weights are divided by their sum */
    float scale;      /**< factor on weights */
    uint32_t n_dense; /**< first layers, which have one feed-forward */
} bt_expert_hparams_t;

typedef struct bt_hparams {
    uint32_t n_layers;
    uint32_t n_nextn; /**< layers behind them that predict further tokens
                           (multi-token prediction): not computed */
    uint32_t dim;     /**< model width */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t ffn_dim;
    /** vocabulary size (bt_gguf_n_vocab()): further rows of the file's matrices
     *  are left out, so that no id beyond it is computed, drawn or counted */
    uint32_t n_vocab;
    uint32_t n_words;        /**< ids that tokens may have: n_vocab, but for a
                                  draft head those of its target */
    uint32_t context_tokens; /**< trained context length */
    bt_rope_t rope;
    bt_rope_t window_rope; /**< RoPE of layers with an attention window */
    bt_layer_set_t turned; /**< layers that rotate queries and keys */
    float norm_eps;
    float attn_scale;        /**< factor on the product of query and key */
    uint32_t attn_window;    /**< bt_attention_t.window */
    bt_layer_set_t windowed; /**< layers with attn_window; none if it is 0 */
    float attn_soft_cap;     /**< bt_attention_t.soft_cap */
    bool learned_positions;  /**< positions are rows of position_embd instead
                                  of RoPE */
    float alibi;             /**< ALiBi instead of RoPE: largest exponent of
                                  a slope (decoder.h); 0: none */
    float slope_scale;       /**< factor on the ALiBi slopes */
    float temperature;       /**< queries at position p are multiplied by 1 +
                                  temperature ln(1 + floor(p /
                                  temperature_tokens)); 0: not */
    uint32_t temperature_tokens;
    float clamp_qkv;       /**< queries, keys and values are clamped to ±
                                this; 0: not */
    bool parallel;         /**< bt_family_t.parallel */
    float embedding_scale; /**< factor on the embedding */
    float residual_scale;  /**< factor on what is added to the residual
                                stream */
    float logit_scale;
    float
        logit_soft_cap; /**< c: a logit l becomes c tanh(l / c); 0: unchanged */
    bt_expert_hparams_t experts;
    bt_layer_set_t sparse;  /**< layers with experts */
    bt_head_hparams_t head; /**< a draft head's; all 0 for a model */
} bt_hparams_t;

/** Returns the width of the target's hidden states of a token that a draft head
 *  reads. */
static inline uint32_t bt_head_width(const bt_head_hparams_t *head)
{
    return (head->n_taps + (head->kind == BT_HEAD_NEXTN ? 1 : 0)) *
           head->target_dim;
}

/**
 * Reads and checks the hyperparameters; needs no back end. (The router, which
 * links no model, reads the context length from the file itself.)
 *
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  Architecture, named in why.
 * @retval BT_ERR_BAD_FILE     A value is missing or absurd.
 */
BT_MUST_CHECK bt_status_t bt_hparams_read(const bt_gguf_t *gguf, char *why,
                                          size_t why_bytes, bt_hparams_t *hp_p);

/** True when a model loaded for this many tokens uses other RoPE frequencies
 *  than for few tokens. All workers of a model must agree, since KV computed
 *  with one set is of no use with the other. */
static inline bool bt_hparams_long_context(const bt_hparams_t *hp,
                                           uint32_t context_tokens)
{
    return hp->rope.by_context && (context_tokens > hp->rope.trained_tokens);
}

/** Returns the attention parameters of a layer. */
bt_attention_t bt_hparams_attention(const bt_hparams_t *hp, uint32_t layer);

typedef struct bt_model bt_model_t;
typedef struct bt_lora bt_lora_t; /**< adapter of a model: lora.h */

/** Target of a draft head. */
typedef struct bt_head_target {
    bt_head_kind_t kind;         /**< BT_HEAD_NONE: a model is loaded */
    const bt_hparams_t *hparams; /**< target's; borrowed for the call */
} bt_head_target_t;

/**
 * Reads and checks the hyperparameters of a draft head.
 *
 * @param [in]  gguf  The head's file; for BT_HEAD_NEXTN the target's.
 * @param [out] why   On failure the reason, for the user.
 * @retval BT_ERR_MISMATCH     it belongs to a target of another shape
 * @retval BT_ERR_UNSUPPORTED  no head of this kind is in the file, or it needs
 *                             what is not computed
 * @retval BT_ERR_BAD_FILE     a value is missing or absurd
 */
BT_MUST_CHECK bt_status_t bt_head_hparams_read(const bt_gguf_t *gguf,
                                               bt_head_kind_t kind,
                                               const bt_hparams_t *target,
                                               char *why, size_t why_bytes,
                                               bt_hparams_t *hp_p);

typedef struct bt_model_config {
    bt_head_target_t head;     /**< kind BT_HEAD_NONE: a model, not a head */
    uint32_t max_rows;         /**< most rows (tokens) of one forward call */
    uint32_t max_seqs;         /**< most sequences of one call; 0: max_rows */
    uint32_t max_logit_rows;   /**< most rows whose logits are asked for */
    uint32_t context_tokens;   /**< most positions of a sequence, <= hparams'
                                    context_tokens */
    uint32_t tokens_per_block; /**< block size of the KV cache; 0: not known
                                    yet, any */
    uint32_t n_other_groups;   /**< layer groups in the KV cache beside the
                                    first one */

    /** Folder of packed weights (inference/packed): they are mapped from there,
     *  one copy for all processes of the host, and built there when it has none
     *  for this model and back end. Where that does not work, one line of the
     *  log says so and the process packs for itself. NULL or "": each process
     *  always packs for itself. */
    const char *weight_dir;
    bool drops_packed;      /**< removes that file with the model */
    uint32_t n_threads;     /**< threads that verify the packed file; 0 = 1 */
    bt_numerics_t numerics; /**< numerics profile of the back end that
                                 bt_model_memory() opens */

    /** Called in bt_model_load() for each matrix of the file that is loaded,
     *  with the packed weight that holds it; several matrices that read one
     *  input share a weight. NULL: no callback. */
    void (*on_weight)(void *ctx, const char *name, const bt_weight_t *weight);
    void *on_weight_ctx;

    /** Collectives over host memory of the ranks that compute the model
     *  together, each a shard (shard.h); borrowed. A back end with memory of
     *  its own opens further collectives over that memory, set up through these
     *  (ranks.h). NULL: this process alone. */
    const bt_collectives_t *host_coll;
    /** Pipeline stages, each of an equal number of ranks, one behind the other;
     *  0 is 1. With more than one, there are no mid-step joins and no
     *  calls inside another (bt_forward_t), and layers count as stored when the
     *  call ends. */
    uint32_t n_stages;
    /** Collectives of the ranks of this rank's stage, borrowed; NULL: it is
     *  alone there. Ignored where there is one stage, which contains all
     *  ranks. */
    const bt_collectives_t *host_stage;
    /** Fewest rows of a microbatch (ahead.h); 0: BT_MICRO_ROWS. */
    uint32_t micro_rows;
    /** Model whose other ranks execute this one's calls, too: the target of a
     *  draft model on the same ranks, which are one stage. Borrowed; it must
     *  outlive the model. A draft head borrows the embedding and output from
     *  it that its own file lacks; bt_model_memory() needs no target. NULL: the
     *  model has ranks of its own, or none. */
    const bt_model_t *target;
    /** Largest rank of adapters (lora.h); 0: calls have none. */
    uint32_t max_lora_rank;
    /** Number of parts in which sums of products across ranks are added
     *  (shard.h): models with equal numbers give equal bits on any number of
     *  ranks. 0: as many as ranks. */
    uint32_t sum_parts;
    /** Ranks of a stage among which the experts are dealt (shard.h); 0 is 1:
     *  each rank has all experts, and a part of their widths. */
    uint32_t ep;
    /** Number of parts in which sums over an expert's width are added, as
     *  sum_parts. 0: as many as ranks of an expert, those of a stage / ep. */
    uint32_t expert_parts;
} bt_model_config_t;

/** Memory use of a model on a back end, in bytes. */
typedef struct bt_model_memory {
    /** Packed matrices: private to the process, or with weight_dir pages of a
     *  file that all processes of the host share. The system counts such pages
     *  as available, so a check whether they fit adds them for every process,
     *  yet counts them once. 0 where the back end has memory of its own. */
    size_t weight_bytes;
    size_t private_bytes; /**< activations, tables, logits: the part in host
                               memory */
    size_t load_bytes;    /**< most additional memory while loading */
    size_t device_bytes;  /**< in the back end's own memory, while it serves */
    size_t scratch_bytes; /**< part of device_bytes used as workspace of
                               operations */
    size_t later_bytes;   /**< device memory kept free for libraries and
                               graphs */
    size_t pinned_bytes;  /**< part of private_bytes pinned for copies */
    uint64_t device_left_bytes; /**< device memory that can be allocated now */
    bool own_memory; /**< bt_backend_owns_memory(); false: there is no device */
} bt_model_memory_t;

/** Returns the bytes of host memory of all parts. */
static inline size_t bt_model_memory_host(const bt_model_memory_t *memory)
{
    return memory->weight_bytes + memory->private_bytes + memory->load_bytes;
}

/**
 * Computes the memory that bt_model_load() will take, so that the caller can
 * refuse before any of it is taken. Opens the back end for a moment.
 *
 * @param [in]  backend  Name, as for bt_backend_open().
 * @param [out] why      On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_INVALID_PARAM
 *         bt_model_load() will fail with this status.
 * @retval BT_ERR_NO_MEMORY
 * @retval any of bt_backend_open()
 */
BT_MUST_CHECK bt_status_t bt_model_memory(const bt_gguf_t *gguf,
                                          const char *backend,
                                          const bt_model_config_t *config,
                                          char *why, size_t why_bytes,
                                          bt_model_memory_t *memory_p);

/** Computes the memory that bt_model_load() will take, as bt_model_memory()
 *  does, on an open back end. */
BT_MUST_CHECK bt_status_t bt_model_memory_on(const bt_gguf_t *gguf,
                                             bt_backend_t *be,
                                             const bt_model_config_t *config,
                                             char *why, size_t why_bytes,
                                             bt_model_memory_t *memory_p);

/**
 * Loads a model: packs the weights onto @a be and allocates activations.
 *
 * @param [in]  gguf  May be closed afterwards.
 * @param [in]  be    Borrowed; must outlive the model.
 * @param [out] why   On failure the reason, for the user (which tensor …).
 * @retval BT_ERR_INVALID_PARAM  A value of the configuration.
 * @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_model_load(const bt_gguf_t *gguf, bt_backend_t *be,
                                        const bt_model_config_t *config,
                                        char *why, size_t why_bytes,
                                        bt_model_t **model_p);
void bt_model_destroy(bt_model_t *model); /**< NULL is allowed. */

const bt_hparams_t *bt_model_hparams(const bt_model_t *model);

/** Location of the packed weights of a model. */
typedef enum bt_weight_source {
    BT_WEIGHTS_PRIVATE, /**< in private memory of this process */
    BT_WEIGHTS_BUILT,   /**< in the shared file, which this load wrote */
    BT_WEIGHTS_FOUND,   /**< in the shared file, which existed before */
} bt_weight_source_t;

bt_weight_source_t bt_model_weight_source(const bt_model_t *model);
/** Returns bt_lent_stats_t.saved_ns of the model's back end, the time saved by
 *  borrowed cores; 0 where cores are never borrowed. */
uint64_t bt_model_lent_ns(const bt_model_t *model);

/** Value of bt_forward_t.needs: the host needs nothing of the row. */
#define BT_NEEDS_NOTHING UINT32_MAX
/** Value of bt_forward_t.needs: only logits of the row's ids (first_ids). */
#define BT_NEEDS_IDS (UINT32_MAX - 1)
/** Most ids of one row. */
#define BT_MODEL_MAX_IDS BT_TOKEN_MASK_FEW

/** True when the model's back end can draw and score (bt_forward_t.drawing):
 *  where it has memory of its own and the model is not sharded. */
bool bt_model_draws(const bt_model_t *model);

/** True when calls can copy out hidden states (bt_forward_t.taps): on the CPU,
 *  where the model is not sharded. */
bool bt_model_taps(const bt_model_t *model);

/** True when calls can compute the logits of a row's ids without the others
 *  (BT_NEEDS_IDS): on the CPU, where the model is not sharded. */
bool bt_model_computes_ids(const bt_model_t *model);

/** True when calls can have embeddings of the caller's
 *  (bt_forward_t.embeddings): of a model, not a draft head, on the CPU. Rank 0
 *  alone is given them. */
bool bt_model_takes_rows(const bt_model_t *model);

/** Hidden states that a call copies out, of its logit rows in their order, with
 *  those of rows that joined mid-step. */
typedef struct bt_taps {
    uint32_t n; /**< entries of layers */
    /** The residual stream before each of these layers; before n_layers: behind
     *  the last one. */
    uint32_t layers[BT_MODEL_MAX_TAPS];
    bool normed; /**< further, behind the last layer and the output norm: what
                      the logits are computed from */
    /** Out (max_logit_rows, (n + normed) * dim): side by side for each row. */
    float *hidden;
} bt_taps_t;

/** Most sequences that join a call between two layers at a time. */
#define BT_MODEL_MAX_LATE 8

/** One forward call. Arrays are host memory, borrowed for the call. */
typedef struct bt_forward {
    const bt_ragged_seq_t *seqs; /**< rows contiguous and ascending from 0 */
    uint32_t n_seqs;
    /** Adapter of each sequence, NULL: none; only with max_lora_rank.
     * take_late() appends to it, as to seqs. NULL: no sequence has one. */
    const bt_lora_t *const *loras;
    const uint32_t *tokens; /**< n_rows token ids, each < n_vocab, or
                                 BT_NO_TOKEN (embeddings) */
    uint32_t n_rows;        /**< <= max_rows - first_row */
    /** Embeddings of rows whose token is BT_NO_TOKEN, where
     *  bt_model_takes_rows(): of each row dim floats, as they stand behind the
     *  embedding's scale; entries of other rows are not used. NULL: each row
     * has a token. */
    const float *const *embeddings;
    /** Source of the token of each row, where it is not known yet: index of the
     *  logit row of the previously started call whose best id it is, or of the
     *  draw of that call, where it has draws; only where bt_model_chains().
     *  UINT32_MAX: the token is in tokens. NULL: all are. */
    const uint32_t *from_ids;
    /** First row of activations to use: those of earlier rows belong to another
     *  call, inside which this one is made (between_layers). 0 elsewhere. */
    uint32_t first_row;
    const uint32_t *logit_rows; /**< rows whose logits are wanted; ascending
                                     where the model has several stages */
    uint32_t n_logit_rows;      /**< <= max_logit_rows; 0 is allowed */
    /** How much of each logit row is needed (bt_sampler_needs()). 0: all
     *  logits. 1: only the id of its best logit; then its logits stay in the
     *  back end. n: the n first candidates; the others may be -infinity.
     *  BT_NEEDS_NOTHING: only what is drawn and scored. BT_NEEDS_IDS: only
     *  those of its ids; the others are -infinity, and without ids the row is
     *  undefined. NULL: all logits of all rows. */
    const uint32_t *needs;
    /** Ids of the rows that need BT_NEEDS_IDS, where bt_model_computes_ids():
     *  ids[first_ids[i]] to ids[first_ids[i + 1] - 1] of logit row i, ascending
     *  and at most BT_MODEL_MAX_IDS; other rows have none. first_ids
     *  (n_logit_rows + 1), from 0. Not used where no row needs them. */
    const uint32_t *first_ids;
    const uint32_t *ids;
    /** Out (n_logit_rows): ids of the best logits (bt_sampler_best()) of the
     *  rows that need 1; entries of other rows are left unchanged. Not used
     *  without needs. */
    uint32_t *best_ids;
    /** In and out: draws from the rows and scores of them, where
     *  bt_model_draws(). Where a score's sum is not a number, because a logit
     *  is NaN or infinite, the row's logits are provided whatever it needs.
     *  NULL: no draws. */
    struct bt_drawing *drawing; /**< drawing.h */
    /** Hidden states to copy out, where bt_model_taps(). NULL: none. */
    const bt_taps_t *taps;
    /** Input of a draft head (n_rows, dim): of each row the hidden state that
     *  belongs to its token (bt_model_fuse_hidden(), or a tap of an earlier
     *  call of the head). NULL for a model. */
    const float *hidden;
    /** KV cache. Blocks must exist for all positions that are written or
     *  read. */
    bt_kv_view_t kv;
    /** Layer groups of the KV cache (bt_model_check_groups()); then only base,
     *  page size and type of kv count. NULL: all layers are one group, kv's. */
    const bt_kv_groups_t *groups;
    /** Called during the call, by the calling thread, when K and V of all rows
     *  are in the cache (of all ranks) for layers 0 .. n_layers - 1. NULL: no
     *  callback. A back end that runs asynchronously does not call it. */
    void (*on_layers)(void *ctx, uint32_t n_layers);
    void *on_layers_ctx;
    /**
     * Called between two layers, by the calling thread: sequences of one row
     * and one logit row each may join the call. They are appended to seqs,
     * tokens, logit_rows and needs, which need the capacity for them. They are
     * computed alone through the finished layers, and then with the others:
     * results are bit-identical to a call that had them from the beginning. Not
     * called by a back end that takes its tables at the beginning.
     *
     * @param n_layers  finished layers, at least 1 and fewer than all
     * @return number of sequences added, 0 to BT_MODEL_MAX_LATE
     */
    uint32_t (*take_late)(void *ctx, uint32_t n_layers); /**< may be NULL */
    void *take_late_ctx;
    /**
     * Called between two layers, by the calling thread, after take_late(): may
     * call bt_model_forward() for other sequences, with first_row behind all
     * rows of this call. The logits of that inner call are valid until this
     * callback returns, or makes another call. Not called inside an inner call,
     * nor by a back end that takes its tables at the beginning. NULL: no
     * callback.
     */
    void (*between_layers)(void *ctx, uint32_t n_layers);
    void *between_layers_ctx;
    /** Progress counter for health checks: incremented with every operation of
     *  a layer that has ended. On a back end that runs asynchronously it is
     *  incremented once, after the wait for all of them. NULL: not counted. */
    _Atomic uint64_t *progress;
} bt_forward_t;

/**
 * Runs the batch: K and V of all rows are written into the cache, and logits
 * (n_logit_rows, n_vocab) are left in host memory owned by the model until the
 * next call (NULL when none are wanted); the caller may write to them. Rows of
 * take_late() come behind the others. Logits of rows that need only the best id
 * are undefined. Allocates nothing.
 *
 * @retval BT_ERR_INVALID_PARAM  Counts exceed the configuration, a token is out
 *         of range, a position is too large, or the back end cannot read the
 *         cache.
 * @retval BT_ERR_DEVICE
 */
BT_MUST_CHECK bt_status_t bt_model_forward(bt_model_t *model,
                                           const bt_forward_t *fwd,
                                           float **logits_p);

/**
 * Computes what a draft head reads of the target's hidden states, for
 * bt_forward_t.hidden.
 *
 * @param [in]  hidden  (n_rows, n_taps * target_dim), or (n_rows, target_dim)
 *         for BT_HEAD_NEXTN: as a tap of the target left them
 * @param [in]  n_rows  at most max_rows
 * @param [out] out     (n_rows, dim)
 */
void bt_model_fuse_hidden(bt_model_t *head, const float *hidden,
                          uint32_t n_rows, float *out);
/** Returns the target's id of each id of a draft head (n_vocab), distinct and
 *  below n_words. NULL: they are the same. */
const uint32_t *bt_model_target_ids(const bt_model_t *head);

/**
 * Returns how many calls can be started and not finished at a time.
 *
 * *Pipeline parallelism.* bt_model_start() computes the layers of this rank's
 * stage and returns while the other stages still compute theirs;
 * bt_model_finish() waits for the results of the oldest started call, which are
 * as bt_model_forward() leaves them. So stages work at several calls at a time.
 * In between blocks may be copied and cleared, in the order of the calls; no
 * bt_model_forward(). No two calls have a sequence in common.
 *
 * *Overlapped calls on a device* (bt_model_chains()). bt_model_start() queues
 * the call, two at most, and the second one's rows may be the next positions of
 * the first one's sequences, whose tokens are not known yet: from_ids. The
 * first may want only ids: best ones (needs of 1) or drawn ones
 * (BT_NEEDS_NOTHING, and no scores).
 *
 * Elsewhere bt_model_max_started() is 1: use bt_model_forward().
 */
uint32_t bt_model_max_started(const bt_model_t *model);
bool bt_model_chains(const bt_model_t *model);
/** True when a call that takes this one's ids may begin before this one is
 *  finished. */
bool bt_model_is_followed(const bt_forward_t *fwd);
/** Returns the number of rows below which a call costs the reading of its
 *  weights, however few rows it has: smaller calls are not split in two. */
uint32_t bt_model_least_rows(const bt_model_t *model);
/** Starts a call.
 *  @param [in] fwd  Its arrays are borrowed until bt_model_finish().
 *  @retval BT_ERR_INVALID_PARAM  as for bt_model_forward(), or
 *          bt_model_max_started() calls are started, or a started one wants
 *          more than ids
 *  @retval any of bt_model_forward() */
BT_MUST_CHECK bt_status_t bt_model_start(bt_model_t *model,
                                         const bt_forward_t *fwd);
/** Finishes the oldest started call.
 *  @param [in] fwd  The oldest call. After a failure of a start or finish all
 *          started calls are abandoned, and the instance has to end.
 *  @retval BT_ERR_INVALID_PARAM  none is started */
BT_MUST_CHECK bt_status_t bt_model_finish(bt_model_t *model,
                                          const bt_forward_t *fwd,
                                          float **logits_p);

/**
 * Serves a rank other than 0: does what rank 0 requests of its model, in the
 * cache of this rank's heads, whose blocks have equal ids, until
 * bt_model_end_ranks().
 *
 * @param [in] draft  Model whose target this is (bt_model_config_t.target) and
 *         which uses the same cache; NULL: none.
 * @retval BT_OK             rank 0 has ended
 * @retval BT_ERR_PEER_LOST  and others: the ranks are out of step, the instance
 *         has to end
 */
BT_MUST_CHECK bt_status_t bt_model_follow(bt_model_t *model, bt_model_t *draft,
                                          const bt_kv_view_t *kv,
                                          const bt_kv_groups_t *groups);
/** Makes bt_model_follow() of the other ranks return; for rank 0. Does nothing
 *  where there are no others. */
void bt_model_end_ranks(bt_model_t *model);

/**
 * Checks that the model can compute with its cache in these groups.
 *
 * @param [out] why  On failure the obstacle, by name.
 * @retval BT_ERR_INVALID_PARAM  layers, heads or their dimensions are not the
 *         model's, or a group keeps fewer positions than one of its layers
 *         reads
 * @retval BT_ERR_UNSUPPORTED    a state
 */
BT_MUST_CHECK bt_status_t bt_model_check_groups(const bt_model_t *model,
                                                const bt_kv_groups_t *groups,
                                                char *why, size_t why_bytes);

/** Copies the content of block @a from into block @a to, on the back end,
 *  before any later call. A failure shows in the next bt_model_forward(). */
void bt_model_copy_block(bt_model_t *model, const bt_kv_view_t *kv,
                         uint32_t from, uint32_t to);
/** Zeroes the content of block @a id, on the back end, before any later call. A
 *  failure shows in the next bt_model_forward(). */
void bt_model_clear_block(bt_model_t *model, const bt_kv_view_t *kv,
                          uint32_t id);

/*
 * Logits processors, which change a sequence's logits before a token is drawn:
 * a bias, a mask, a grammar. Processors run in their order on the model's
 * logits, and the sampler's own steps (sampler.h) follow: so a banned word
 * stays banned, whatever a processor adds.
 *
 * Threads: the compute thread. No allocation, lock or system call.
 */

typedef struct bt_logits_processor {
    /** Applies the processor to one row of logits.
     *  @param [in]     tokens  Prompt and generated tokens so far, n_tokens.
     *  @param [in,out] logits  n_vocab; -INFINITY: cannot be drawn. The result
     *          must depend on ctx and tokens alone, because a row is processed
     *          again when drafts before it were wrong. */
    void (*apply)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                  float *logits, uint32_t n_vocab);
    void *ctx; /**< owner's context */
} bt_logits_processor_t;

/** Returns a processor that adds the logit biases of a request; ids that the
 *  model does not have are ignored.
 *  @param [in] sampling  Outlives the processor. */
bt_logits_processor_t bt_logit_bias_processor(bt_sampling_t *sampling);
/** Returns the request whose biases the processor adds.
 *  @return NULL: it is of another kind */
const bt_sampling_t *bt_logit_biases_of(const bt_logits_processor_t *processor);

#endif
