/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_priv.h
 *
 * What an architecture fills in and what it may use. Those of dense decoders
 * are in arch/, and share all but a description (arch/family.h); arch/arch.c
 * has the list.
 */
#ifndef BT_INFERENCE_MODEL_MODEL_PRIV_H
#define BT_INFERENCE_MODEL_MODEL_PRIV_H

#include "inference/model/ahead.h"
#include "inference/model/model.h"
#include "inference/model/shard.h"
#include "inference/packed/packed_store.h"

#define BT_MAX_PARTS 3 /* matrices that read the same input */

typedef struct bt_loader bt_loader_t;

/** Matrices side by side: out row = [part 0 | part 1 | ...]. Packed as one
 *  weight when all parts have the same type, otherwise one each. */
typedef struct bt_linear {
    uint32_t n_parts; /**< 1 when packed together */
    bt_weight_t *weights[BT_MAX_PARTS];
    uint32_t n_out[BT_MAX_PARTS];
} bt_linear_t;

/** Rows and columns of a tensor that a rank has. */
typedef struct bt_cut {
    bt_share_t rows;
    bt_share_t columns; /**< whole blocks of the type */
} bt_cut_t;

/** Rows of a matrix, or of its bias, for a bt_linear_t. */
typedef struct bt_piece {
    const char *name; /**< of the tensor, without "blk.N." and kind */
    uint32_t n_out;   /**< that the tensor has */
    bt_share_t rows;  /**< of them */
} bt_piece_t;

typedef struct bt_ranks bt_ranks_t; /* ranks.h */
typedef struct bt_arch bt_arch_t;
typedef struct bt_family bt_family_t; /* arch/family.h */

struct bt_arch {
    const char *name; /**< general.architecture, and the prefix of its keys */
    const bt_family_t *family; /**< what a dense decoder differs in */

    /** Fill hp, refusing by name what forward() does not compute. */
    bt_status_t (*hparams)(const bt_arch_t *arch, const bt_gguf_t *gguf,
                           char *why, size_t why_bytes, bt_hparams_t *hp_p);

    /** Load every tensor and buffer through the loader (which also serves to
     *  count memory, leaving pointers NULL). *state_p is owned by the caller,
     *  also on failure. */
    bt_status_t (*load)(bt_loader_t *loader, void **state_p);

    /** Queue the pass over @a batch, which was begun; logits (n_logit_rows,
     *  n_vocab) go to model->logits. Between layers it asks
     *  bt_model_take_late(), which lets the batch and the call grow, and then
     *  bt_model_between_layers(), in which this is called again: what lasts
     *  from layer to layer lies in rows from fwd->first_row on. */
    void (*forward)(bt_model_t *model, bt_batch_t *batch, bt_forward_t *fwd);

    /** NULL and half-loaded states are allowed. */
    void (*free_state)(bt_backend_t *be, void *state);
};

/** The architecture of this name, or NULL. */
const bt_arch_t *bt_arch_find(bt_gguf_str_t name);

/** One load, or (dry) one count of what a load would take. */
struct bt_loader {
    /** Matrices come from here instead of the model file. NULL: packed. Dry:
     *  is every matrix there? */
    const bt_packed_file_t *packed;
    /** Matrices are packed and go here, whether dry or not. NULL: none. */
    bt_packed_writer_t *writer;
    const bt_gguf_t *gguf;
    const bt_arch_t *arch;
    bt_backend_t *be;
    const bt_hparams_t *hp;
    bt_shard_t shard; /**< of the model that is loaded */
    bt_hparams_t own; /**< its numbers */
    const bt_model_config_t *config;
    char *why;
    size_t why_bytes;
    bool dry;
    bool has_codes;      /**< a tensor was taken by its codes */
    size_t bytes;        /**< of back-end memory so far, without the matrices */
    size_t host_bytes;   /**< of host memory beside it */
    size_t weight_bytes; /**< packed matrices so far */
    size_t max_piece;    /**< most bytes of temporary memory at once */
    size_t max_weight;   /**< bytes of the largest packed matrix */
    uint32_t dense_n_in; /**< widest inputs of matrices: bt_workload_t */
    uint32_t quant_n_in;
    bool *used; /**< per tensor of the file */
};

/** Write the reason and return @a status. */
bt_status_t bt_loader_fail(const bt_loader_t *loader, bt_status_t status,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/** Go through the whole load and count; with packed or writer set also look
 *  for every matrix or write it. Takes no memory that lasts. */
BT_MUST_CHECK bt_status_t bt_loader_rehearse(bt_loader_t *loader);

/** After the load: room for logits and ids, on the back end and on the host,
 *  and for the tables of batches. NULL as model, when dry: counted alone. */
BT_MUST_CHECK bt_status_t bt_loader_results(bt_loader_t *loader,
                                            bt_model_t *model);

/** The cache of a layer. @param [out] index_p  which of its view's layers */
bt_kv_view_t bt_model_layer_view(const bt_forward_t *fwd, uint32_t layer,
                                 uint32_t *index_p);

/** What the model that was loaded, or counted, will ask of its back end. */
bt_workload_t bt_loader_workload(const bt_loader_t *loader);

/** Set loader->packed and *store_p, where the configuration asks for it and it
 *  works; else everything stays, and what the user should know was logged. */
void bt_loader_share(bt_loader_t *loader, bt_packed_store_t **store_p);

/** Back-end memory of rows * row_floats, zeroed. */
BT_MUST_CHECK bt_status_t bt_loader_buffer(bt_loader_t *loader, size_t rows,
                                           size_t row_floats, float **ptr_p);
/** n values that the host made, in back-end memory. @a what names them.
 *  @param [in] values  Owned by the call; NULL: there was no memory. Not read
 *                      where loader->dry. */
BT_MUST_CHECK bt_status_t bt_loader_table(bt_loader_t *loader, const char *what,
                                          float *values, size_t n,
                                          float **ptr_p);
/** A vector of n values, of any type, as f32 in back-end memory. */
BT_MUST_CHECK bt_status_t bt_loader_vector(bt_loader_t *loader,
                                           const char *name, uint32_t n,
                                           float **ptr_p);
/** Some of a vector of n values. */
BT_MUST_CHECK bt_status_t bt_loader_vector_part(bt_loader_t *loader,
                                                const char *name, uint32_t n,
                                                bt_share_t part, float **ptr_p);
/** A small tensor's n values on the host; freed with bt_free(). */
BT_MUST_CHECK bt_status_t bt_loader_values(bt_loader_t *loader,
                                           const char *name, uint32_t n,
                                           float **values_p);
/** Columns of a matrix of n_out rows and n_in columns.
 *  @param [in] part  Another number for each cut of it. */
BT_MUST_CHECK bt_status_t bt_loader_matrix(bt_loader_t *loader,
                                           const char *name, uint32_t n_out,
                                           uint32_t n_in, bt_share_t columns,
                                           uint32_t part, bt_weight_t **w_p);
/** Some of the first n_out rows of a matrix that may have more. */
BT_MUST_CHECK bt_status_t bt_loader_first_rows(bt_loader_t *loader,
                                               const char *name, uint32_t n_out,
                                               uint32_t n_in, bt_share_t rows,
                                               bt_weight_t **w_p);
/** A tensor that another stage has; it may not be there. */
void bt_loader_leave(bt_loader_t *loader, const char *name);
/** Is there such a tensor? */
bool bt_loader_has(const bt_loader_t *loader, const char *name);
/** Pieces of vectors "blk.LAYER.NAME.bias", side by side. */
BT_MUST_CHECK bt_status_t bt_loader_biases(bt_loader_t *loader, uint32_t layer,
                                           const bt_piece_t *pieces,
                                           uint32_t n_pieces, float **ptr_p);
/** Pieces of matrices "blk.LAYER.NAME.weight" with n_in inputs. */
BT_MUST_CHECK bt_status_t bt_loader_linear(bt_loader_t *loader, uint32_t layer,
                                           const bt_piece_t *pieces,
                                           uint32_t n_pieces, uint32_t n_in,
                                           bt_linear_t *linear);

/** After the load: a tensor that nobody asked for would be ignored silently.
 *  @retval BT_ERR_UNSUPPORTED  There is one; it is named. */
BT_MUST_CHECK bt_status_t bt_loader_check_all_used(bt_loader_t *loader);

/** The weight that is read after the next matmul or step, which ask for it if
 *  the back end can. */
void bt_step_ahead(bt_backend_t *be, const bt_weight_t *w);

/** A norm of rows of @a dim values. */
typedef struct bt_norm {
    const float *weight; /**< back end (dim); NULL: there is none */
    const float *bias;   /**< the same, of a layer norm */
    float eps;
    uint32_t dim;
    bool layer; /**< LayerNorm, else RMSNorm */
} bt_norm_t;

/** out = norm(x), which may be x itself; there is one. */
void bt_step_norm(bt_backend_t *be, const float *x, const bt_norm_t *norm,
                  uint32_t n_rows, float *out);

/* Steps of a layer, by the back end's fused operation where it has one, else by
 * the single ones: the same bits. tmp: back end, n_rows of what the single
 * operations put between. */

/** out = W norm(x); tmp (n_rows, dim), not read where there is no norm. */
void bt_step_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows, float *tmp,
                         float *out);
/** The same of all parts: out (n_rows, sum of n_out), side by side. part:
 *  back end (n_rows, the widest part's n_out), not read where there is one part
 *  alone. @a next is read after it: bt_step_ahead(). */
void bt_step_norm_linear(bt_backend_t *be, const bt_linear_t *linear,
                         float *part, const float *x, const bt_norm_t *norm,
                         uint32_t n_rows, const bt_weight_t *next, float *tmp,
                         float *out);
/** x (n_rows, n_out) += W a; tmp (n_rows, n_out). */
void bt_step_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                        uint32_t n_rows, uint32_t n_out, float *tmp, float *x);
/** x (n_rows, n_out) += W (silu(gate) * up); gate_up (n_rows, 2 n_in) may be
 *  overwritten; tmp (n_rows, n_in). */
void bt_step_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                             float *gate_up, uint32_t n_rows, uint32_t n_in,
                             uint32_t n_out, float *tmp, float *x);

/** Tables of a batch, to a back end that reads them in its own memory; where
 *  ranks share the words, with tokens as this rank's. With several stages
 *  forward() calls it for each micro-batch.
 *  @retval BT_ERR_DEVICE, BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_model_begin(bt_model_t *model,
                                         const bt_batch_t *batch);

/** Does the call keep to the model, its configuration and its cache? */
bool bt_model_fits(const bt_model_t *model, const bt_forward_t *fwd);

/** The layers of this rank, queued or computed. @param [out] whole  the call
 *  with those that came in late
 *  @retval BT_ERR_DEVICE, BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_model_run_layers(bt_model_t *model,
                                              const bt_forward_t *fwd,
                                              bt_forward_t *whole);

/** Logits of rows i .. i + n - 1, where they are not the host's. */
BT_MUST_CHECK bt_status_t bt_model_fetch_logits(bt_model_t *model, uint32_t i,
                                                uint32_t n);

/* drawn.c */

/** The batch that a call is. */
bt_batch_t bt_model_batch(const bt_forward_t *fwd);
/** bt_model_draws(), of a model that is shared by ranks or not. */
bool bt_drawn_by(const bt_backend_t *be, bool is_shared);
/** Words of what so many rows are drawn from and scored. */
size_t bt_drawn_words(size_t rows);
/** Is the call's drawing one that this model can do? */
bool bt_drawn_fits(const bt_model_t *model, const bt_forward_t *fwd);
/** Queue what the call draws and scores; ids of draws go to model->drawn. */
void bt_drawn_ask(bt_model_t *model, const bt_forward_t *fwd);
/** Draw, score and bring what comes of it. @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_drawn_results(bt_model_t *model,
                                           const bt_forward_t *fwd);

/** After the forward pass: wait for it, then logits and ids are where
 *  bt_model_forward() promises them. @retval BT_ERR_DEVICE */
BT_MUST_CHECK bt_status_t bt_model_results(bt_model_t *model,
                                           const bt_forward_t *fwd);
/** Of the first of several stages: of the oldest call that was started. */
BT_MUST_CHECK bt_status_t bt_model_collect(bt_model_t *model,
                                           const bt_forward_t *fwd);
/** Is this rank in the first of several stages, to which results come? */
bool bt_model_takes_results(const bt_model_t *model);

/** Rows that came in between two layers, as a batch of their own: what they
 *  have missed is computed on it. */
typedef struct bt_model_late {
    bt_batch_t batch; /**< its arrays are `seqs` and the call's */
    uint32_t row;     /**< of the whole batch, its first one */
    bt_ragged_seq_t seqs[BT_MODEL_MAX_LATE];
} bt_model_late_t;

/** To be called by forward() between two layers: whoever comes in is part of
 *  @a batch and @a fwd from now on.
 *  @return false: nobody */
bool bt_model_take_late(const bt_model_t *model, bt_forward_t *fwd,
                        uint32_t n_layers, bt_batch_t *batch,
                        bt_model_late_t *late_p);

/** To be called by forward() between two layers, when the rows that came in
 *  late have caught up: another call may be made inside. */
void bt_model_between_layers(const bt_model_t *model, const bt_forward_t *fwd,
                             uint32_t n_layers);

/* All of them allow NULL, or NULL inside. */
void bt_linear_free(bt_backend_t *be, bt_linear_t *linear);
/** To be called by forward() after the K and V of layer n_layers - 1. */
void bt_model_layers_stored(const bt_model_t *model, const bt_forward_t *fwd,
                            uint32_t n_layers);

/** To be called by forward() behind each operation that may take long. */
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
    const bt_arch_t *arch;
    bt_backend_t *be;
    bt_hparams_t hp;  /**< of the whole model */
    bt_hparams_t own; /**< what this rank computes: bt_shard_hparams() */
    bt_shard_t shard;
    bt_model_config_t config;
    bt_ranks_t *ranks;        /**< NULL: the only one */
    void *state;              /**< the architecture's */
    bt_packed_store_t *store; /**< NULL: the weights are of this process, or in
                                   the back end's memory */
    bt_weight_source_t weight_source;
    float *logits; /**< back end (max_logit_rows, n_vocab) */
    /** Of this rank's words (max_logit_rows, own.n_vocab); where it has all,
     *  logits. Of stages the last one has this, the first one logits. */
    float *own_logits;
    /* All only where the back end has memory of its own: */
    uint32_t *best_ids; /**< back end (max_logit_rows); NULL: with ranks */
    float *host_logits; /**< logits in host memory; with ranks there alone */
    float *host_own_logits; /**< own_logits of a rank, in host memory */
    /** Back end: of a rank, ids and, behind them, logits of the first of each
     *  row's own words (max_logit_rows, BT_TOP_MAX); NULL: it finds none. */
    uint32_t *own_first;
    uint32_t *host_own_first; /**< the same in host memory */
    uint32_t n_own_first; /**< found of each row of the last call; 0: its rows
                               are in host_own_logits */
    uint32_t *drawn;      /**< back end: ids of draws, from the first one on,
                               and what was scored (drawn.c); NULL: it cannot
                               draw */
    uint32_t *host_drawn; /**< the same in host memory */
    bt_ahead_t ahead;
};

#endif
