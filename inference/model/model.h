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
#include "inference/gguf/gguf.h"
#include "kernels/kernels.h"

#define BT_MAX_LAYERS 4096u

/** Layers of a model, a bit each. */
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

/** Rotary positions: pair i of a head turns by p * base^(-2i / dims) * scale
 *  at position p. */
typedef struct bt_rope {
    uint32_t dims; /**< of a head that turn, even; 0: none */
    float base;
    float scale;     /**< positions are multiplied by it; 1 = as they are */
    float magnitude; /**< cosines and sines are multiplied by it */
    /** YaRN: pairs that turn more than fast times in trained_tokens are not
     *  scaled, those below slow wholly, those between by parts; all this with
     *  the weight mix. 0: all pairs are scaled. */
    float mix;
    float fast;
    float slow;
    uint32_t trained_tokens; /**< before positions were scaled */
    /** LongRoPE: other frequencies where the configured context is longer than
     *  trained_tokens (bt_hparams_long_context()). */
    bool by_context;
} bt_rope_t;

typedef struct bt_hparams {
    uint32_t n_layers;
    uint32_t dim; /**< model width */
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t ffn_dim;
    uint32_t n_vocab;        /**< bt_gguf_n_vocab(): further rows of the file's
                                  matrices are left out, so that no id beyond
                                  it is computed, drawn or counted */
    uint32_t context_tokens; /**< trained context length */
    bt_rope_t rope;
    bt_rope_t window_rope; /**< of layers with a window */
    bt_layer_set_t turned; /**< layers in which queries and keys turn */
    float norm_eps;
    float attn_scale;        /**< of a query times a key */
    uint32_t attn_window;    /**< bt_attention_t.window */
    bt_layer_set_t windowed; /**< layers that have it; none if it is 0 */
    float attn_soft_cap;     /**< bt_attention_t.soft_cap */
    bool learned_positions;  /**< rows of position_embd, and nothing turns */
    float alibi;             /**< the largest exponent of a slope of scores
                                  (positions.h), and nothing turns; 0: none */
    float slope_scale;       /**< of these slopes */
    float temperature;       /**< queries at position p are multiplied by 1 +
                                  temperature ln(1 + floor(p / tokens)); 0: not */
    uint32_t temperature_tokens;
    float clamp_qkv;       /**< the most that queries, keys and values are, and
                                the least less 0; 0: any */
    bool parallel;         /**< bt_family_t.parallel */
    float embedding_scale; /**< of what x begins with */
    float residual_scale;  /**< of what is added to x */
    float logit_scale;
    float
        logit_soft_cap; /**< c: a logit l becomes c tanh(l / c); 0: it stays */
} bt_hparams_t;

/**
 * Read and check the hyper-parameters; needs no back end. (The router,
 * which links no model, reads the context length from the file itself.)
 *
 * @param [out] why  On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED  Architecture, named in why.
 * @retval BT_ERR_BAD_FILE     A value is missing or absurd.
 */
BT_MUST_CHECK bt_status_t bt_hparams_read(const bt_gguf_t *gguf, char *why,
                                          size_t why_bytes, bt_hparams_t *hp_p);

/** Is a model, loaded for so many tokens, another one than for few? All workers
 *  of a model must agree, since KV of one is of no use to the other. */
static inline bool bt_hparams_long_context(const bt_hparams_t *hp,
                                           uint32_t context_tokens)
{
    return hp->rope.by_context && (context_tokens > hp->rope.trained_tokens);
}

/** Widest row of any operation of the forward pass: for max_dim of
 *  bt_backend_config_t. */
uint32_t bt_hparams_max_dim(const bt_hparams_t *hp);

/** The attention of a layer. */
bt_attention_t bt_hparams_attention(const bt_hparams_t *hp, uint32_t layer);

typedef struct bt_model bt_model_t;

typedef struct bt_model_config {
    uint32_t max_rows;         /**< most rows (tokens) of one forward call */
    uint32_t max_seqs;         /**< most sequences of one; 0: max_rows */
    uint32_t max_logit_rows;   /**< most rows whose logits are asked for */
    uint32_t context_tokens;   /**< positions that may occur, <= hparams' */
    uint32_t tokens_per_block; /**< of the cache; 0: not known yet, any */
    uint32_t n_other_groups;   /**< of layers, besides one, in the cache */

    /** Folder of packed weights (inference/packed): they are mapped from there,
     *  one copy for all processes of the host, and built there when it has none
     *  for this model and back end. Where that does not work, one line of the
     *  log says so and the process packs for itself. NULL or "": always. */
    const char *weight_dir;
    uint32_t n_threads;     /**< that check the packed file; 0 = 1 */
    bt_numerics_t numerics; /**< that the back end is opened with, for what
                                 bt_model_memory() counts */

    /** Called in bt_model_load() for each matrix of the file that is loaded,
     *  with the weight that it became; several have one where they read the
     *  same input. NULL: nobody asks. */
    void (*on_weight)(void *ctx, const char *name, const bt_weight_t *weight);
    void *on_weight_ctx;

    /** Of the ranks that compute it together, each a share (shard.h), over the
     *  host's memory; borrowed. A back end with memory of its own opens tables
     *  over that besides, by these (rank_tables.h). NULL: this process alone.
     */
    const bt_collectives_t *host_coll;
    /** Stages of layers, each of as many ranks, one behind the other; 0 is 1.
     *  With more, rows do not come in late and no call is made inside another
     *  (bt_forward_t), and layers count as stored when the call is over. */
    uint32_t n_stages;
    /** Of the ranks of this one's stage, borrowed; NULL: it is alone there. Not
     *  read where there is one stage, whose ranks are all. */
    const bt_collectives_t *host_stage;
    /** Rows that a micro-batch has at least (micro.h); 0: BT_MICRO_ROWS. */
    uint32_t micro_rows;
    /** Parts in which products are summed that ranks share (shard.h): models of
     *  the same number give the same bits on any number of ranks. 0: as many as
     *  ranks. */
    uint32_t sum_parts;
} bt_model_config_t;

/** Where the memory of a model on a back end goes. */
typedef struct bt_model_memory {
    /** Packed matrices: of this process, or with weight_dir pages of a file
     *  that all processes of the host share. The system counts such pages as
     *  available, so that who asks whether they fit adds them for every process
     *  and yet counts them once. 0 where the back end has memory of its own. */
    size_t weight_bytes;
    size_t private_bytes; /**< activations, tables, logits: what of them is in
                               the host's memory */
    size_t load_bytes;    /**< most that is needed besides, while loading */
    size_t device_bytes;  /**< in the back end's own memory, while it serves */
    size_t scratch_bytes; /**< of them, for the work of operations */
    size_t later_bytes;   /**< of that memory left for libraries and graphs */
    size_t pinned_bytes;  /**< of private_bytes, for copies */
    uint64_t device_left_bytes; /**< that can be taken there now */
    bool own_memory; /**< bt_backend_owns_memory(): else there is no device */
} bt_model_memory_t;

/** Bytes of the host's memory, all parts. */
static inline size_t bt_model_memory_host(const bt_model_memory_t *memory)
{
    return memory->weight_bytes + memory->private_bytes + memory->load_bytes;
}

/**
 * Memory that bt_model_load() will take, so that the caller can refuse before
 * any of it is taken. Opens the back end for a moment.
 *
 * @param [in]  backend  Name, as for bt_backend_open().
 * @param [out] why      On failure the reason, for the user.
 * @retval BT_ERR_UNSUPPORTED, BT_ERR_BAD_FILE, BT_ERR_INVALID_PARAM
 *                           As bt_model_load() will say.
 * @retval BT_ERR_NO_MEMORY
 * @retval  any of bt_backend_open()
 */
BT_MUST_CHECK bt_status_t bt_model_memory(const bt_gguf_t *gguf,
                                          const char *backend,
                                          const bt_model_config_t *config,
                                          char *why, size_t why_bytes,
                                          bt_model_memory_t *memory_p);

/** The same on a back end that is open. */
BT_MUST_CHECK bt_status_t bt_model_memory_on(const bt_gguf_t *gguf,
                                             bt_backend_t *be,
                                             const bt_model_config_t *config,
                                             char *why, size_t why_bytes,
                                             bt_model_memory_t *memory_p);

/**
 * Pack the weights onto @a be and allocate activations.
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

/** Where the packed weights of a model are. */
typedef enum bt_weight_source {
    BT_WEIGHTS_PRIVATE, /**< in memory of this process */
    BT_WEIGHTS_BUILT,   /**< in the shared file, which this load wrote */
    BT_WEIGHTS_FOUND,   /**< in the shared file, which was there */
} bt_weight_source_t;

bt_weight_source_t bt_model_weight_source(const bt_model_t *model);
/** bt_lent_stats_t.saved_ns of its back end; 0 where nothing is ever lent. */
uint64_t bt_model_lent_ns(const bt_model_t *model);

/** bt_forward_t.needs */
#define BT_NEEDS_NOTHING UINT32_MAX

/** Can its back end draw and score (bt_forward_t.drawing)? So where it has
 *  memory of its own and the model is not shared. */
bool bt_model_draws(const bt_model_t *model);

/** Sequences that come in together between two layers, at most. */
#define BT_MODEL_MAX_LATE 8

/** One forward call. Arrays are host memory, borrowed for the call. */
typedef struct bt_forward {
    const bt_ragged_seq_t *seqs; /**< rows contiguous and ascending from 0 */
    uint32_t n_seqs;
    const uint32_t *tokens; /**< n_rows token ids, each < n_vocab */
    uint32_t n_rows;        /**< <= max_rows - first_row */
    /** Of each row which logit row of the call started before this one has its
     *  token, as that row's best id, or which draw of that call, where it has
     *  draws: bt_model_chains() says where. UINT32_MAX: tokens has it. NULL:
     *  tokens has all. */
    const uint32_t *from_ids;
    /** Activations of rows before it are another call's, inside which this one
     *  is made (between_layers). 0 elsewhere. */
    uint32_t first_row;
    const uint32_t *logit_rows; /**< rows whose logits are wanted; ascending
                                     where the model has several stages */
    uint32_t n_logit_rows;      /**< <= max_logit_rows; 0 is allowed */
    /** Of each logit row how much of it is wanted, as bt_sampler_needs() says.
     *  0: all. 1: the id of its best logit alone; then its logits stay in the
     *  back end. n: so many of its first candidates; the others may be
     *  -infinity. BT_NEEDS_NOTHING: what is drawn and scored. NULL: all of
     *  all. */
    const uint32_t *needs;
    /** Out (n_logit_rows): these ids, bt_sampler_best() of the logits; those of
     *  other rows are left alone. Not used without needs. */
    uint32_t *best_ids;
    /** In and out: what is drawn from the rows and scored, where
     *  bt_model_draws(). Where a sum is no number the row's logits are there,
     *  whatever it needs: a value in them is none, or infinite. NULL: nothing.
     */
    struct bt_drawing *drawing; /**< drawing.h */
    /** Blocks must exist for all positions that are written or seen. */
    bt_kv_view_t kv;
    /** Of the model's layers, bt_model_check_groups(); then of kv the base, the
     *  size of a page and the type count. NULL: all layers are one group, kv's.
     */
    const bt_kv_groups_t *groups;
    /** Called during the call, by the same thread, when K and V of all rows are
     *  in the cache (of all ranks) for layers 0 .. n_layers - 1. NULL: nobody
     * asks. A back end that runs ahead of its caller does not call it. */
    void (*on_layers)(void *ctx, uint32_t n_layers);
    void *on_layers_ctx;
    /**
     * Called between two layers, by the same thread: sequences of one row and
     * one logit row each may be added to the call. They stand behind what seqs,
     * tokens, logit_rows and needs have, which need the room for them. They
     * are computed alone through the layers that are done, and then with the
     * others: the bits are those of a call that had them from the beginning.
     * Not called by a back end that takes its tables at the beginning.
     *
     * @param n_layers  that are done, at least 1; one at least is not
     * @return how many were added, 0 to BT_MODEL_MAX_LATE
     */
    uint32_t (*take_late)(void *ctx, uint32_t n_layers); /**< may be NULL */
    void *take_late_ctx;
    /**
     * Called between two layers, by the same thread, after take_late(): it may
     * call bt_model_forward() for other sequences, with first_row behind all
     * rows of this call. The logits of that one are there until this one
     * returns, or another is made. Not called inside such a call, nor by a back
     * end that takes its tables at the beginning. NULL: nobody asks.
     */
    void (*between_layers)(void *ctx, uint32_t n_layers);
    void *between_layers_ctx;
    /** Grows with every operation of a layer that has ended, for who asks
     *  whether the call gets on. Of a back end that runs ahead the wait for all
     *  of them is one. NULL: nobody asks. */
    _Atomic uint64_t *progress;
} bt_forward_t;

/**
 * Run the batch: K and V of all rows are written into the cache, and
 * logits (n_logit_rows, n_vocab) are left in host memory owned by the model
 * until the next call (NULL when none are wanted); the caller may write to
 * them. Rows of take_late() come behind the others.
 * Those of rows that need the best one alone are anything. Allocates nothing.
 *
 * @retval BT_ERR_INVALID_PARAM  Counts exceed the configuration, a token is
 *                               out of range, a position is too large, or the
                               cache is not one that the back end reads.
 * @retval BT_ERR_DEVICE
 */
BT_MUST_CHECK bt_status_t bt_model_forward(bt_model_t *model,
                                           const bt_forward_t *fwd,
                                           float **logits_p);

/**
 * Calls that follow each other.
 *
 * *Through the stages of a model.* bt_model_start() computes the layers of this
 * rank's stage and returns while the others are still at theirs;
 * bt_model_finish() waits for the results of the oldest call that was started,
 * which are as bt_model_forward() leaves them. So stages work at several calls
 * at a time. In between blocks may be copied and cleared, in the order of the
 * calls; no bt_model_forward(). No two calls have a sequence in common.
 *
 * *On a device, one behind the other* (bt_model_chains()). bt_model_start()
 * queues the call, two at most, and the second one's rows may be the next
 * positions of the first one's sequences, whose tokens nobody knows yet:
 * from_ids. The first has to want nothing but ids: best ones (needs of 1) or
 * what is drawn (BT_NEEDS_NOTHING, and no scores).
 *
 * Elsewhere bt_model_max_started() is 1: use bt_model_forward().
 */
uint32_t bt_model_max_started(const bt_model_t *model);
bool bt_model_chains(const bt_model_t *model);
/** May a call that takes this one's ids begin before it is finished? */
bool bt_model_is_followed(const bt_forward_t *fwd);
/** Rows below which a call costs the reading of its weights, whatever they are:
 *  of fewer none is cut in two. */
uint32_t bt_model_least_rows(const bt_model_t *model);
/** @param [in] fwd  Its arrays are borrowed until bt_model_finish().
 *  @retval BT_ERR_INVALID_PARAM  so many are started, or one of which more than
 *                                ids is wanted, or as bt_model_forward()
 *  @retval any of bt_model_forward() */
BT_MUST_CHECK bt_status_t bt_model_start(bt_model_t *model,
                                         const bt_forward_t *fwd);
/** @param [in] fwd  Of the oldest call. After a failure of either all that were
 *                   started are over, and the instance has to end.
 *  @retval BT_ERR_INVALID_PARAM  none is started */
BT_MUST_CHECK bt_status_t bt_model_finish(bt_model_t *model,
                                          const bt_forward_t *fwd,
                                          float **logits_p);

/**
 * A rank other than 0: do what rank 0 asks of its model, in the cache of this
 * rank's heads, whose blocks have the same ids, until bt_model_end_ranks().
 *
 * @retval BT_OK             rank 0 has ended
 * @retval BT_ERR_PEER_LOST  and others: the ranks are apart, the instance has
 *                           to end
 */
BT_MUST_CHECK bt_status_t bt_model_follow(bt_model_t *model,
                                          const bt_kv_view_t *kv,
                                          const bt_kv_groups_t *groups);
/** Rank 0: the others return. Nothing where there are none. */
void bt_model_end_ranks(bt_model_t *model);

/** The cache of one group of layers, over the pages of @a kv. */
bt_kv_view_t bt_model_group_view(const bt_kv_view_t *kv,
                                 const bt_kv_groups_t *groups, uint32_t group);

/**
 * Can this model compute with its cache in these groups?
 *
 * @param [out] why  On failure what stands against it, by name.
 * @retval BT_ERR_INVALID_PARAM  layers, heads or their dimensions are not the
 *                               model's, or a group keeps less than what one of
 *                               its layers sees
 * @retval BT_ERR_UNSUPPORTED    a state
 */
BT_MUST_CHECK bt_status_t bt_model_check_groups(const bt_model_t *model,
                                                const bt_kv_groups_t *groups,
                                                char *why, size_t why_bytes);

/** Copy the content of block @a from into block @a to, on the back end, before
 *  what is called next. What fails shows in the next bt_model_forward(). */
void bt_model_copy_block(bt_model_t *model, const bt_kv_view_t *kv,
                         uint32_t from, uint32_t to);
/** Zero the content of block @a id; likewise. */
void bt_model_clear_block(bt_model_t *model, const bt_kv_view_t *kv,
                          uint32_t id);

#endif
