/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_priv.h
 *
 * Shared by the model code and the dense decoder (arch/), whose families differ
 * only in a description (arch/family.h); arch/families.c lists them.
 */
#ifndef BT_INFERENCE_MODEL_MODEL_PRIV_H
#define BT_INFERENCE_MODEL_MODEL_PRIV_H

#include "inference/model/ahead.h"
#include "inference/model/model.h"
#include "inference/model/shard.h"
#include "inference/packed/packed.h"

#define BT_MAX_PARTS 3 /* matrices that read one input */

typedef struct bt_loader bt_loader_t;

/** Matrices that read one input: out row = [part 0 | part 1 | ...]. Packed as
 *  one weight when all parts have one type, otherwise one each. */
typedef struct bt_linear {
    uint32_t n_parts; /**< 1 when packed together */
    bt_weight_t *weights[BT_MAX_PARTS];
    uint32_t n_out[BT_MAX_PARTS];
} bt_linear_t;

/** Rows and columns of a tensor that a rank holds. */
typedef struct bt_cut {
    bt_share_t rows;
    bt_share_t columns; /**< whole blocks of the tensor's type */
} bt_cut_t;

/** Rows of a matrix, or of its bias, for a bt_linear_t. */
typedef struct bt_piece {
    const char *name; /**< tensor name, without "blk.N." and kind */
    uint32_t n_out;   /**< rows of the whole tensor */
    bt_share_t rows;  /**< rows that this rank holds */
} bt_piece_t;

typedef struct bt_ranks bt_ranks_t;   /* ranks.h */
typedef struct bt_family bt_family_t; /* arch/family.h */

/** State of one load, or (dry) of one count of the memory that a load would
 *  take. */
struct bt_loader {
    /** Packed file to take matrices from instead of the model file. NULL:
     *  matrices are packed here. Dry: only checks that every matrix is
     *  there. */
    const bt_packed_file_t *packed;
    /** Writer that receives packed matrices, whether dry or not. NULL: none. */
    bt_packed_writer_t *writer;
    const bt_gguf_t *gguf;
    const bt_family_t *family;
    bt_backend_t *be;
    const bt_hparams_t *hp;
    bt_shard_t shard; /**< this rank's shard of the model */
    bt_hparams_t own; /**< hyperparameters of the shard */
    const bt_model_config_t *config;
    bt_status_t status; /**< the first failure; its reason is in why */
    char *why;
    size_t why_bytes;
    bool dry;
    bool has_codes;      /**< a tensor was loaded as codes of its type */
    size_t bytes;        /**< back-end memory so far, without the matrices */
    size_t host_bytes;   /**< host memory so far, beside the back end's */
    size_t weight_bytes; /**< packed matrices so far */
    size_t max_piece;    /**< most bytes of temporary memory at a time */
    size_t max_weight;   /**< bytes of the largest packed matrix */
    uint32_t dense_n_in; /**< widest inputs of matrices: bt_workload_t */
    uint32_t quant_n_in;
    bool *used; /**< per tensor of the file */
};

/** Records a failure and its reason, if it is the first. After one the
 * functions below do nothing. @return the loader's status */
bt_status_t bt_loader_fail(bt_loader_t *loader, bt_status_t status,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** Allocates logits and ids, on the back end and on the host, and the tables of
 *  batches, after the load. NULL as model, when dry: only counts. */
void bt_loader_results(bt_loader_t *loader, bt_model_t *model);

/** Returns the KV cache of a layer.
 *  @param [out] index_p  layer index within the returned view */
bt_kv_view_t bt_model_layer_view(const bt_forward_t *fwd, uint32_t layer,
                                 uint32_t *index_p);

/** Returns the workload that the loaded, or counted, model will put on its back
 *  end. */
bt_workload_t bt_loader_workload(const bt_loader_t *loader);

/** Checks that the back end computes this attention. */
void bt_loader_check_attention(bt_loader_t *loader,
                               const bt_attention_t *attention);
/** Allocates back-end memory of rows * row_floats, zeroed. */
void bt_loader_buffer(bt_loader_t *loader, size_t rows, size_t row_floats,
                      float **ptr_p);
/** Copies n values computed by the host to back-end memory. @a what names them
 *  in errors.
 *  @param [in] values  Owned by the call; NULL: the caller's allocation failed.
 *          Not read where loader->dry. */
void bt_loader_table(bt_loader_t *loader, const char *what, float *values,
                     size_t n, float **ptr_p);
/** Loads a vector of n values, of any type, as f32 to back-end memory. */
void bt_loader_vector(bt_loader_t *loader, const char *name, uint32_t n,
                      float **ptr_p);
/** Loads a part of n_rows vectors of n values each, of any type, as f32 to
 *  back-end memory. */
void bt_loader_rows(bt_loader_t *loader, const char *name, uint32_t n_rows,
                    uint32_t n, const bt_cut_t *cut, float **ptr_p);
/** Loads some of a vector of n values, as f32 to back-end memory. */
void bt_loader_vector_part(bt_loader_t *loader, const char *name, uint32_t n,
                           bt_share_t part, float **ptr_p);
/** Loads a small tensor's n values to the host; freed with bt_free(). On
 * failure *values_p may be unchanged. */
void bt_loader_values(bt_loader_t *loader, const char *name, uint32_t n,
                      float **values_p);
/** Loads a vector of n different ids below @a n_ids to the host; freed with
 *  bt_free(). */
void bt_loader_ids(bt_loader_t *loader, const char *name, uint32_t n,
                   uint32_t n_ids, uint32_t **ids_p);
/** Loads columns of a matrix of n_out rows and n_in columns.
 *  @param [in] part  A distinct number for each cut of the matrix. */
void bt_loader_matrix(bt_loader_t *loader, const char *name, uint32_t n_out,
                      uint32_t n_in, bt_share_t columns, uint32_t part,
                      bt_weight_t **w_p);
/** Loads a matrix as f32, whatever its type in the file. */
void bt_loader_matrix_f32(bt_loader_t *loader, const char *name, uint32_t n_out,
                          uint32_t n_in, bt_weight_t **w_p);
/** Part of a tensor of n_mats matrices, of n_out rows and n_in columns each. */
typedef struct bt_stack {
    uint32_t n_mats;
    uint32_t n_out;
    uint32_t n_in;
    bt_share_t mats;    /**< matrices that are loaded */
    bt_share_t rows[2]; /**< rows of each matrix, one range behind the other;
                             the second may be empty */
    bt_share_t columns; /**< columns of each matrix */
} bt_stack_t;

/** Loads matrices of a tensor of three dimensions, one behind the other.
 *  @param [in] part  A distinct number for each part of the tensor. */
void bt_loader_stacked(bt_loader_t *loader, const char *name,
                       const bt_stack_t *stack, uint32_t part,
                       bt_weight_t **w_p);
/** Loads some of the first n_out rows of a matrix that may have more. */
void bt_loader_first_rows(bt_loader_t *loader, const char *name, uint32_t n_out,
                          uint32_t n_in, bt_share_t rows, bt_weight_t **w_p);
/** Skips a tensor that belongs to another pipeline stage; it may be missing. */
void bt_loader_leave(bt_loader_t *loader, const char *name);
/** True when the file has this tensor. */
bool bt_loader_has(const bt_loader_t *loader, const char *name);
/** Loads pieces of vectors "blk.LAYER.NAME.bias", side by side. */
void bt_loader_biases(bt_loader_t *loader, uint32_t layer,
                      const bt_piece_t *pieces, uint32_t n_pieces,
                      float **ptr_p);
/** Loads pieces of matrices "blk.LAYER.NAME.weight" with n_in inputs. */
void bt_loader_linear(bt_loader_t *loader, uint32_t layer,
                      const bt_piece_t *pieces, uint32_t n_pieces,
                      uint32_t n_in, bt_linear_t *linear);

/** Checks, after the load, that every tensor was used: an unused one would be
 *  ignored silently. Fails with BT_ERR_UNSUPPORTED and its name. */
void bt_loader_check_all_used(bt_loader_t *loader);

/** Announces the weight that is read after the next matmul or step, so that the
 *  back end can prefetch it. */
void bt_step_ahead(bt_backend_t *be, const bt_weight_t *w);

/** Normalization of rows of @a dim values. */
typedef struct bt_norm {
    const float *weight; /**< back end (dim); NULL: no weights */
    const float *bias;   /**< back end (dim), of a LayerNorm; NULL: no bias */
    float eps;
    uint32_t dim;
    bool layer; /**< LayerNorm, else RMSNorm */
} bt_norm_t;

/** Computes out = norm(x), which may be x itself; the norm must exist. */
void bt_step_norm(bt_backend_t *be, const float *x, const bt_norm_t *norm,
                  uint32_t n_rows, float *out);

/* Steps of a layer, by the back end's fused operation where it has one, else by
 * single operations, with equal bits. tmp: back end, n_rows for intermediate
 * results of the single operations. */

/** Computes out = W norm(x); tmp (n_rows, dim), not read where there is no
 *  norm. */
void bt_step_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows, float *tmp,
                         float *out);
/** Computes out = W norm(x) for all parts: out (n_rows, sum of n_out), side by
 *  side. part: back end (n_rows, the widest part's n_out), not read where there
 *  is only one part. @a next is the weight read after it: bt_step_ahead(). */
void bt_step_norm_linear(bt_backend_t *be, const bt_linear_t *linear,
                         float *part, const float *x, const bt_norm_t *norm,
                         uint32_t n_rows, const bt_weight_t *next, float *tmp,
                         float *out);
/** Computes x (n_rows, n_out) += W a; tmp (n_rows, n_out). */
void bt_step_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                        uint32_t n_rows, uint32_t n_out, float *tmp, float *x);
/** Computes x (n_rows, n_out) += W (silu(gate) * up); gate_up (n_rows, 2 n_in)
 *  may be overwritten; tmp (n_rows, n_in). */
void bt_step_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                             float *gate_up, uint32_t n_rows, uint32_t n_in,
                             uint32_t n_out, float *tmp, float *x);

/** Passes the tables of a batch to a back end that reads them in its own
 *  memory; where ranks shard the vocabulary, with tokens as this rank's rows.
 *  With several stages forward() calls it for each microbatch.
 *  @retval BT_ERR_DEVICE, BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_model_begin(bt_model_t *model,
                                         const bt_batch_t *batch);

/** True when the call is valid for the model, its configuration and its
 *  cache. */
bool bt_model_fits(const bt_model_t *model, const bt_forward_t *fwd);

/** Computes or queues the layers of this rank.
 *  @param [out] whole  the call, including sequences that joined mid-step
 *  @retval BT_ERR_DEVICE, BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_model_run_layers(bt_model_t *model,
                                              const bt_forward_t *fwd,
                                              bt_forward_t *whole);

/** True when only logits of its ids are wanted of this row. */
static inline bool bt_model_wants_ids(const bt_forward_t *fwd, uint32_t i)
{
    return (fwd->needs != NULL) && (fwd->needs[i] == BT_NEEDS_IDS);
}

/** Copies logits of rows i .. i + n - 1 to host memory, where the back end has
 *  memory of its own. */
BT_MUST_CHECK bt_status_t bt_model_fetch_logits(bt_model_t *model, uint32_t i,
                                                uint32_t n);

/* drawing.c */

/** Returns the batch of a call. */
bt_batch_t bt_model_batch(const bt_forward_t *fwd);
/** True when the back end can draw (bt_model_draws()), given whether the model
 *  is sharded over ranks. */
bool bt_drawn_by(const bt_backend_t *be, bool is_shared);
/** Returns the number of 32-bit words of drawn ids and scores of this many
 *  rows. */
size_t bt_drawn_words(size_t rows);
/** True when this model can execute the call's drawing. */
bool bt_drawn_fits(const bt_model_t *model, const bt_forward_t *fwd);
/** Queues the draws and scorings of the call; ids of draws go to
 *  model->drawn. */
void bt_drawn_ask(bt_model_t *model, const bt_forward_t *fwd);
/** Executes the draws and scorings and copies their results to the call's
 *  drawing.
 *  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_drawn_results(bt_model_t *model,
                                           const bt_forward_t *fwd);

/** Waits for the forward pass; then logits and ids are where bt_model_forward()
 *  promises them.
 *  @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_model_results(bt_model_t *model,
                                           const bt_forward_t *fwd);
/** Collects the results of the oldest started call, in the first of several
 *  stages. */
BT_MUST_CHECK bt_status_t bt_model_collect(bt_model_t *model,
                                           const bt_forward_t *fwd);
/** True when this rank is in the first of several stages, which receives the
 *  results. */
bool bt_model_takes_results(const bt_model_t *model);

/** Batch of rows that joined between two layers, on which the layers that they
 *  missed are computed. */
typedef struct bt_model_late {
    bt_batch_t batch; /**< views of `seqs` and of the call's arrays */
    uint32_t row;     /**< first row, within the whole batch */
    bt_ragged_seq_t seqs[BT_MODEL_MAX_LATE];
} bt_model_late_t;

/** Lets sequences join between two layers; called by forward(). Sequences that
 *  join are part of @a batch and @a fwd from then on.
 *  @return false: none joined */
bool bt_model_take_late(const bt_model_t *model, bt_forward_t *fwd,
                        uint32_t n_layers, bt_batch_t *batch,
                        bt_model_late_t *late_p);

/** Lets another call be made inside this one; called by forward() between two
 *  layers, when joined rows have caught up. */
void bt_model_between_layers(const bt_model_t *model, const bt_forward_t *fwd,
                             uint32_t n_layers);

/* Every function below allows NULL, or NULL inside. */
void bt_linear_free(bt_backend_t *be, bt_linear_t *linear);
/** Reports that K and V of layer n_layers - 1 are stored; called by
 *  forward(). */
void bt_model_layers_stored(const bt_model_t *model, const bt_forward_t *fwd,
                            uint32_t n_layers);

/** Advances the progress counter; called by forward() behind each operation
 *  that may take long. */
static inline void bt_model_got_on(const bt_forward_t *fwd)
{
    if (fwd->progress != NULL) { /* one thread writes it */
        atomic_store_explicit(
            fwd->progress,
            atomic_load_explicit(fwd->progress, memory_order_relaxed) + 1,
            memory_order_relaxed);
    }
}

void bt_model_weight_free(bt_backend_t *be, bt_weight_t *weight);
void bt_model_buffer_free(bt_backend_t *be, void *ptr);

struct bt_model {
    const bt_family_t *family;
    bt_backend_t *be;
    bt_hparams_t hp;  /**< hyperparameters of the whole model */
    bt_hparams_t own; /**< hyperparameters of this rank's shard:
                           bt_shard_hparams() */
    bt_shard_t shard;
    bt_model_config_t config;
    bt_ranks_t *ranks;        /**< NULL: the model is not sharded */
    void *state;              /**< the decoder's state */
    bt_packed_store_t *store; /**< NULL: the weights are private to the
                                   process, or in the back end's memory */
    bt_weight_source_t weight_source;
    float *logits; /**< back end (max_logit_rows, n_vocab) */
    /** Logits of this rank's words (max_logit_rows, own.n_vocab); equal to
     *  logits where the rank has all words. With stages, the last one has
     *  own_logits and the first one logits. */
    float *own_logits;
    float *some_logits; /**< (max_logit_rows, BT_MODEL_MAX_IDS): logits of the
                             ids of all rows, side by side; NULL: not
                             bt_model_computes_ids() */
    /* Used only where the back end has memory of its own: */
    uint32_t *best_ids;     /**< back end (max_logit_rows); NULL: with ranks */
    float *host_logits;     /**< logits in host memory; with ranks the only copy
                                 of them */
    float *host_own_logits; /**< own_logits of a rank, in host memory */
    /** Back end, of a rank: ids and, behind them, logits of the first
     *  candidates of each row among its own words (max_logit_rows, BT_TOP_MAX);
     *  NULL: the back end does not search them. */
    uint32_t *own_first;
    uint32_t *host_own_first; /**< own_first in host memory */
    uint32_t n_own_first; /**< candidates found of each row of the last call;
                               0: its rows are in host_own_logits */
    uint32_t *drawn;      /**< back end: ids of draws, from the first one on,
                               and scores (drawing.c); NULL: it cannot draw */
    uint32_t *host_drawn; /**< drawn in host memory */
    bt_ahead_t ahead;
};

#endif
