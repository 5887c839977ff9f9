/* SPDX-License-Identifier: Apache-2.0 */
/** @file engine_priv.h
 *
 * Shared by engine.c (the thread and its rings), iteration.c (one iteration,
 * and requested logits), passes.c (passes in flight, microbatches, mid-step
 * joins, layer-boundary preemption, simulated latency), sampling.c (tokens from
 * logits, draws on the back end), masks.c (grammars), drafts.c (speculative
 * decoding) and core_donation.c.
 */
#ifndef BT_INFERENCE_ENGINE_ENGINE_PRIV_H
#define BT_INFERENCE_ENGINE_ENGINE_PRIV_H

#include <pthread.h>

#include "common/base/containers.h"
#include "common/base/status.h"
#include "common/sched/sched_catch_up.h"
#include "common/sched/sched_chunk.h"
#include "common/sched/sched_pipeline.h"
#include "inference/engine/engine.h"
#include "inference/model/drawing.h"
#include "inference/model/sampler.h"

/** Most reports that the owner has not yet recycled. */
#define BT_ENGINE_N_REPORTS 16
/** Most items of one sequence in a report, beside those of drafts: CHUNK,
 * TOKEN, LEFT. */
#define BT_ENGINE_SEQ_ITEMS 3

/** Input and output arrays of one forward call. */
typedef struct bt_pass {
    bt_sched_item_t *plan;
    uint32_t n_planned; /**< items of plan; grows when a sequence joins
                             mid-step */
    uint32_t n_rows, n_logit_rows; /**< rows in the arrays below */
    bt_ragged_seq_t *seqs;
    const bt_lora_t **loras; /* of each entry of seqs */
    uint32_t n_ragged; /**< entries of seqs: one for each item of the plan, or
                            for each of its beams */
    uint32_t *rows_tokens;
    const float **embeddings; /**< bt_forward_t.embeddings, of each row; NULL:
                                   not bt_model_takes_rows() */
    uint32_t *from_ids;       /**< bt_forward_t.from_ids, of each row */
    bool takes_ids;           /**< some from_ids are not UINT32_MAX */
    uint32_t *logit_rows;
    uint32_t *needs;       /**< bt_forward_t.needs, of each logit row */
    uint32_t *best_ids;    /**< bt_forward_t.best_ids, of each logit row */
    uint32_t *first_ids;   /**< bt_forward_t.first_ids; NULL: not
                                bt_model_computes_ids() */
    uint32_t *ids;         /**< bt_forward_t.ids */
    bt_drawing_t *drawing; /**< bt_forward_t.drawing; NULL: the host draws */
    uint32_t *draw_of;     /**< index of the first draw of each logit row, if
                                the back end draws from it */
    uint32_t *score_of;    /**< index of the first scoring of each logit row,
                                if the back end scores it */
    float *logits;         /**< logits of the finished call, from its row 0
                                on */
    uint64_t start_ns;
    uint64_t drafting_ns; /**< time of the draft model, before it */
    /** Borrowed-core time (bt_model_lent_ns()) added during its own call: other
     *  passes may begin before this one ends. */
    uint64_t lent_ns;
} bt_pass_t;

/** One in-flight pass. */
typedef struct bt_inflight_pass {
    bt_pass_t pass;
    bt_forward_t fwd;
    /** Sequences of the pass that are not in engine->running meanwhile: all
     *  of a microbatch, or those that do not continue before it ends. */
    bt_list_t seqs;
    uint32_t n_context_tokens;
    bool is_advanced;   /**< sequences have their state after the pass */
    bool is_overlapped; /**< began while another pass was in flight */
} bt_inflight_pass_t;

struct bt_engine {
    bt_engine_config_t config;
    bt_sampler_t *sampler;
    pthread_t thread;
    bool joined; /* the owner's: the thread is joined */
    atomic_bool stop;
    atomic_bool busy;
    _Atomic uint64_t progress; /* written by the compute thread alone */
    bt_ring_t *inbox;   /* bt_seq_t, owner → compute; the engine itself is a
                           wake-up */
    atomic_bool woken;  /* the wake-up is in inbox */
    bt_ring_t *reports; /* bt_report_t, compute → owner */
    bt_ring_t *spare;   /* bt_report_t, owner → compute */
    bt_report_t report_store[BT_ENGINE_N_REPORTS];
    uint32_t n_submitted; /* owner's count of submitted, not LEFT */

    /* compute thread only */
    bt_list_t running;
    uint32_t n_vocab;
    uint32_t n_layers;
    uint64_t iteration;
    bt_pass_t whole;      /* pass of an iteration */
    bt_pass_t preempting; /* pass of one sequence that preempts it */
    bt_pass_t *pass;      /* the pass being computed */
    /* Ring of in-flight passes, the oldest at first_inflight; for a
     * pipeline-parallel model and on a device. max_inflight 1: none, passes run
     * one at a time. */
    bt_inflight_pass_t *inflight;
    uint32_t first_inflight, n_inflight, max_inflight;
    bt_sched_overlap_t overlap;
    uint64_t ended_ns;  /* end of the pass that ended last */
    uint64_t landed_ns; /* as ended_ns; 0: a pass has begun since, or the
                           thread has slept */
    /* Totals of passes that preempted the running iteration. */
    uint64_t preempting_ns, preempting_lent_ns;
    bt_status_t preempting_status;
    bt_sched_midstep_join_t late;
    bt_sched_cost_t cost; /* measured costs of iterations so far */
    bt_sched_chunk_t chunk;
    bt_sched_row_times_t row_times;   /* of iterations without chunks */
    bt_sched_acceptance_t acceptance; /* of drafts */
    bt_sched_draft_offer_t *offers;   /* [max_seqs] of one iteration */
    bt_sched_rounds_t rounds;         /* of the draft model */
    double postponed_rounds; /* goodput, or trial, of rounds that wait for the
                                pass in flight; 0: none */
    bt_sched_catch_up_t catch_up; /* of the draft model */
    struct bt_drafting *drafting; /* NULL: there is no draft model */
    uint64_t last_step_ns;        /* duration of the last iteration */
    float *row; /* n_vocab: copy of the model's logits, where a draw
                   overwrites them */
};

static inline void bt_engine_reset_report(bt_report_t *report)
{
    *report = (bt_report_t){.items = report->items};
}

static inline void bt_engine_push_report(bt_engine_t *engine,
                                         bt_report_t *report)
{
    /* There are as many slots as reports: never full. */
    BT_ASSERT_ALWAYS(bt_ring_push(engine->reports, report) == BT_OK);
}

static inline bt_seq_t *bt_engine_seq_of(bt_sched_seq_t *sched)
{
    return BT_CONTAINER_OF(sched, bt_seq_t, sched);
}

/** Returns the sequence of a link in a running or follower list. */
static inline bt_seq_t *bt_engine_seq_at(bt_list_t *link)
{
    return bt_engine_seq_of(BT_CONTAINER_OF(link, bt_sched_seq_t, turn.link));
}

static inline uint32_t bt_engine_n_groups(const bt_engine_t *engine)
{
    const bt_kv_groups_t *groups = engine->config.groups;

    return (groups == NULL) ? 1 : groups->n;
}

/** Returns the block table row for the span of this position: a block of each
 *  group. */
static inline const uint32_t *bt_engine_row_of(const bt_engine_t *engine,
                                               const bt_seq_t *seq,
                                               uint32_t position)
{
    return seq->blocks +
           (size_t)(position / engine->config.kv.tokens_per_block) *
               bt_engine_n_groups(engine);
}

static inline bool bt_engine_is_canceled(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->cancel, memory_order_acquire);
}

/** Advances the progress counter of health checks. */
static inline void bt_engine_mark(bt_engine_t *engine)
{
    atomic_store_explicit(
        &engine->progress,
        atomic_load_explicit(&engine->progress, memory_order_relaxed) + 1,
        memory_order_relaxed);
}

/** Takes in submitted sequences and removes canceled ones. */
void bt_engine_take_changes(bt_engine_t *engine, bt_report_t *report);

/** Pops a sequence from the inbox, or NULL. */
bt_seq_t *bt_engine_pop(bt_engine_t *engine);
/** True when a sequence can compute. Reads the KV limits of all sequences. */
bool bt_engine_has_work(bt_engine_t *engine);

/** Adds a sequence from the inbox to the running queue. */
void bt_engine_take_in(bt_engine_t *engine, bt_seq_t *seq);
/** Allocates the arrays of a pass for this many sequences and rows. Free it
 *  with bt_engine_free_pass(), also after a failure.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_engine_alloc_pass(const bt_model_t *model,
                                               bt_pass_t *pass, uint32_t n_seqs,
                                               uint32_t max_drafts,
                                               uint32_t rows);
void bt_engine_free_pass(bt_pass_t *pass);
/** Appends the rows of item i of the plan to the arrays of engine->pass. */
void bt_engine_lay_item(bt_engine_t *engine, uint32_t i);

/** Runs one iteration: plan, forward, sample. */
void bt_engine_iterate(bt_engine_t *engine, bt_report_t *report);
/** Runs what is planned in engine->pass: forward, sample. */
void bt_engine_run_pass(bt_engine_t *engine, bt_report_t *report);
/* Parts of bt_engine_iterate() and bt_engine_run_pass(): */
/** Plans the next pass, with drafts for the first n_drafting sequences that
 *  generate. @return number of items of pass->plan */
uint32_t bt_engine_plan(bt_engine_t *engine, bt_pass_t *pass,
                        uint32_t n_drafting, uint32_t *n_context_p);
/** Fills the arrays of one forward call from the plan of engine->pass. */
void bt_engine_lay_rows(bt_engine_t *engine);
bt_forward_t bt_engine_forward_of(bt_engine_t *engine);
/** Completes engine->pass: draws tokens after a successful call, or reports the
 *  failure. */
void bt_engine_settle(bt_engine_t *engine, bt_report_t *report,
                      bt_status_t status, float *logits);
/** Removes all running sequences after a failure. */
void bt_engine_fail_all(bt_engine_t *engine, bt_report_t *report);

/* passes.c */

/** Allocates the in-flight passes, as many as the model can have started.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_engine_alloc_inflight(bt_engine_t *engine);
void bt_engine_free_inflight(bt_engine_t *engine);
/** Waits for all passes in flight without reading their results, since other
 *  ranks may still compute them. */
void bt_engine_drain(bt_engine_t *engine);
/** Overlapped scheduling on a device: starts a pass, and the next one behind it
 *  where that is possible and worthwhile; completes the oldest. */
void bt_engine_run_overlapped(bt_engine_t *engine, bt_report_t *report);

/** Starts passes while another pipeline stage is idle, and completes the oldest
 *  pass in flight, if there is one. */
void bt_engine_run_microbatches(bt_engine_t *engine, bt_report_t *report);

/* sampling.c */

/** Appends an event of a sequence to the report; @a token and @a finish are
 *  those of a TOKEN. */
void bt_engine_report(bt_report_t *report, bt_report_kind_t kind, bt_seq_t *seq,
                      uint32_t token, bt_finish_t finish);
/** Removes the sequence from its list and returns it to its owner: at once, or
 *  when the in-flight pass that still computes it ends. */
void bt_engine_leave(bt_report_t *report, bt_seq_t *seq, bt_finish_t finish);
/** Returns the first position of an item to draw from; behind its last position
 *  if it is not a last chunk. */
uint32_t bt_engine_draws_from(const bt_sched_item_t *item);
/** True when the token ends the sequence. */
bool bt_engine_is_end_id(const bt_sampling_t *sampling, uint32_t id);
/** Returns how much of this position's row of logits is needed by all that read
 *  it; see bt_forward_t.needs. The position is one to draw from. */
uint32_t bt_engine_needs(const bt_seq_t *seq, uint32_t position);
/** Hands the rows of logits of an item to the owner, or draws a token from
 *  each; @a first is the position of the item's first row.
 *  @return pointer behind the last row of the item */
float *bt_engine_use_logits(bt_engine_t *engine, bt_report_t *report,
                            const bt_sched_item_t *item, uint32_t first,
                            float *logits);

/* sampling.c */

/** Assigns the draws from the next logit row, of the sequence and all its
 *  followers (@a draws), or its scoring where the owner wants that, to the back
 *  end.
 *  @return false: the host has to do it */
bool bt_engine_tell(bt_pass_t *pass, bt_seq_t *seq, uint32_t position,
                    bool draws);

/** Adds sequences to the running pass: bt_forward_t.take_late; @a engine is a
 *  bt_engine_t. */
uint32_t bt_engine_take_late(void *engine, uint32_t n_layers);

/** Waits until the pass may have computed this many layers by
 *  bt_engine_min_latency_t; all layers include the work after them. */
void bt_engine_wait_for_latency(const bt_engine_t *engine, uint32_t n_layers);

/** Runs a preempting pass if one is due: bt_forward_t.between_layers; @a engine
 *  is a bt_engine_t. */
void bt_engine_preempt_at_layer(void *engine, uint32_t n_layers);

/** Draws the next token of a sequence whose known tokens are all computed, and
 *  reports it. @a k is the number of draws from the row so far. */
void bt_engine_draw(bt_engine_t *engine, bt_report_t *report, bt_seq_t *seq,
                    uint32_t k, float *logits);
/** True when the sequence is still in a list after a draw. */
static inline bool bt_engine_goes_on(const bt_seq_t *seq)
{
    return !bt_list_empty(&seq->sched.turn.link);
}

/* masks.c */

/** True when the sequence's answer follows a grammar. */
static inline bool bt_seq_has_grammar(const bt_seq_t *seq)
{
    return seq->grammar.matcher != NULL;
}

/** Makes the mask of the token behind the first @a n_tokens of a sequence with
 *  a grammar.
 *  @param [out] mask  bt_sampler_mask()
 *  @return number of its tokens; 0: the grammar cannot be followed */
uint32_t bt_seq_mask(bt_seq_t *seq, uint32_t n_tokens, uint64_t *mask);
/** Lists the tokens that a grammar allows behind a position, for the next logit
 *  row of the pass, where the draw reads only their logits and they are few. Of
 *  a single one no logit is read.
 *  @return false: none are listed */
bool bt_engine_list_ids(bt_engine_t *engine, bt_seq_t *seq, uint32_t position);
/** Returns how many of the n drafts behind the known tokens a grammar allows,
 *  until the answer ends with one. */
uint32_t bt_engine_allowed_drafts(bt_seq_t *seq, uint32_t n);
/** Drafts the tokens behind the known ones about which the grammar of a
 *  sequence leaves no choice: of bytes that every continuation begins with, and
 *  those that alone are allowed. Where text can be cut into tokens in several
 *  ways, the longest are drafted.
 *  @param [out] matches  [max] their match lengths (sched_draft.h)
 *  @return their number, in seq->tokens behind the known ones */
uint32_t bt_engine_draft_by_grammar(bt_seq_t *seq, uint32_t max,
                                    uint8_t *matches);

/* drafts.c */

/** Appends drafts to the known tokens of the first n_most sequences that
 *  generate, for the iteration that is planned. @return number of drafts */
uint32_t bt_engine_add_drafts(bt_engine_t *engine, uint32_t n_most);
/** Takes the drafts of a sequence back that is not in the pass after all. */
void bt_engine_drop_drafts(bt_seq_t *seq);
/** Draws at each draft until one is wrong, and once behind the last; positions
 *  behind a wrong draft are rolled back.
 *  @param [in] logits  (1 + n_drafts, n_vocab) */
void bt_engine_draw_drafts(bt_engine_t *engine, bt_report_t *report,
                           bt_seq_t *seq, float *logits);

/** True when the sequence generates, and may do so in the next iteration. */
bool bt_engine_generates(const bt_seq_t *seq);
/** Returns how many drafts the next iteration may have of a sequence. */
uint32_t bt_engine_most_drafts(const bt_engine_t *engine, const bt_seq_t *seq);

/* draft_rounds.c */

/** Makes drafts with the draft model before the iteration, in rounds, where
 *  that is expected to pay; adds their time to the step's.
 *  @param [in] offers  [n] other drafts, and how many of them are taken
 *  @return whether there are rounds: then offers have changed */
bool bt_engine_run_rounds(bt_engine_t *engine, bt_sched_draft_step_t *step,
                          const bt_sched_draft_offer_t *offers, uint32_t n);
/** Gives the drafter the hidden states of positions from @a pos on whose next
 *  tokens are known now; @a logits are the first one's. */
void bt_engine_tell_computed(bt_engine_t *engine, bt_seq_t *seq, uint32_t pos,
                             const float *logits);
/** Allocates what drafting with the configured model needs.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_engine_alloc_rounds(bt_engine_t *engine);
void bt_engine_free_rounds(bt_engine_t *engine);
/** Returns what the drafter reads of an iteration's hidden states; NULL: it
 *  reads none. */
const bt_taps_t *bt_engine_taps(const bt_engine_t *engine);

/** True when the id ends an answer. */
bool bt_engine_is_end_id(const bt_sampling_t *sampling, uint32_t id);

/* beams_steps.c; seq->beams is not NULL unless a function says otherwise */

/** True when the sequence has beams that go on behind its prompt; beams may be
 *  NULL. */
bool bt_engine_has_beams(const bt_seq_t *seq);
/** Returns the rows of the next iteration in which the sequence draws. */
uint32_t bt_engine_n_beams(const bt_seq_t *seq);
/** Return the block table of a beam, and the token that it computes next. */
const uint32_t *bt_engine_beam_blocks(const bt_seq_t *seq, uint32_t beam);
uint32_t bt_engine_beam_token(const bt_seq_t *seq, uint32_t beam);
/** Returns the sequence to its prompt. The answers stay. */
void bt_engine_forget_beams(bt_seq_t *seq);
/** Chooses the next beams from a row of logits for each, or ends the search.
 *  @return pointer behind the last row */
float *bt_engine_step_beams(bt_engine_t *engine, bt_report_t *report,
                            bt_seq_t *seq, float *logits);

/* core_donation.c */

/** Publishes whether prompts here want to borrow the cores of other workers:
 *  before each iteration, and before a sleep. */
void bt_engine_want_cores(bt_engine_t *engine);
/** Donates cores between iterations: sleeps while other workers want them, and
 *  records in the report for how long. */
void bt_engine_give_way(bt_engine_t *engine, bt_report_t *report);
/** Records that a token was drawn: the mean time between tokens counts from the
 *  first one. */
void bt_engine_pace(bt_seq_t *seq);

/* iteration.c */

/** True when the owner wants the row of logits of this position. */
bool bt_engine_wants_row(const bt_seq_t *seq, uint32_t position);
/** Stores what the owner wants of this position, from the back end's scores. */
void bt_engine_store_scored(const bt_seq_t *seq, uint32_t position,
                            const bt_scored_t *scored, const bt_first_t *top);
/** Stores what the owner wants of this position, from its row of logits. The
 *  token behind it is known, or drawn. */
void bt_engine_store_row(const bt_seq_t *seq, uint32_t position,
                         const float *logits, uint32_t n_vocab);

#endif
