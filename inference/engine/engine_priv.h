/* SPDX-License-Identifier: Apache-2.0 */
/** @file engine_priv.h  Between engine.c (the thread and its rings), step.c
 *  (what it does in an iteration), flight.c (passes that are under way while
 *  others begin), lots.c (those of a model in stages), ahead.c (those on a
 *  device), draw.c (tokens from logits), late.c (who comes into one), inside.c
 *  (who is computed while one waits), rehearse.c (how long it is to take),
 *  yield.c (whose cores they are), tell.c (what a back end draws) and rows.c
 *  only.
 */
#ifndef BT_INFERENCE_ENGINE_ENGINE_PRIV_H
#define BT_INFERENCE_ENGINE_ENGINE_PRIV_H

#include <pthread.h>

#include "common/base/assert.h"
#include "common/base/ring.h"
#include "common/sched/sched_chunk.h"
#include "common/sched/sched_midstep_join.h"
#include "common/sched/sched_overlap.h"
#include "inference/engine/engine.h"
#include "inference/model/drawing.h"
#include "inference/model/sampler.h"

#define BT_ENGINE_N_REPORTS 16 /**< the compute thread's lead at most */
#define BT_ENGINE_SEQ_ITEMS 3  /**< of one in a report: CHUNK, TOKEN, LEFT */

/** What one forward call computes, and its arrays. */
typedef struct bt_pass {
    bt_sched_item_t *plan;
    uint32_t n_planned; /**< items of plan; grows when somebody comes in late */
    uint32_t n_rows, n_logit_rows; /**< of them, in the arrays below */
    bt_ragged_seq_t *seqs;
    uint32_t *rows_tokens;
    uint32_t *from_ids; /**< bt_forward_t, of each row */
    bool takes_ids;     /**< some of them are not UINT32_MAX */
    uint32_t *logit_rows;
    uint32_t *needs;       /**< bt_forward_t, of each logit row */
    uint32_t *best_ids;    /**< the same */
    bt_drawing_t *drawing; /**< the same; NULL: the host draws */
    uint32_t *draw_of;     /**< the first of each logit row, where it is told */
    uint32_t *score_of;    /**< likewise */
    float *logits;         /**< row 0 of what the call left */
    uint64_t start_ns;
    /** What bt_model_lent_ns() rose by in its own call: others may begin before
     *  it ends. */
    uint64_t lent_ns;
} bt_pass_t;

/** A pass that is under way while others begin. */
typedef struct bt_flight {
    bt_pass_t pass;
    bt_forward_t fwd;
    /** Of it, all (lots.c) or those that do not go on before it is over
     *  (ahead.c); they are not in engine->running meanwhile. */
    bt_list_t seqs;
    uint32_t n_context_tokens;
    bool is_ahead;  /**< its sequences are as they are when it is over */
    bool is_behind; /**< it began while another one was under way */
} bt_flight_t;

struct bt_engine {
    bt_engine_config_t config;
    bt_sampler_t *sampler;
    pthread_t thread;
    bool joined; /* the owner's: the thread is gone */
    atomic_bool stop;
    atomic_bool busy;
    _Atomic uint64_t progress; /* written by the compute thread alone */
    bt_ring_t *inbox; /* bt_seq_t, owner → compute; the engine itself: look */
    atomic_bool woken;  /* that is in it */
    bt_ring_t *reports; /* bt_report_t, compute → owner */
    bt_ring_t *spare;   /* bt_report_t, owner → compute */
    bt_report_t report_store[BT_ENGINE_N_REPORTS];
    uint32_t n_inside; /* owner's count of submitted, not LEFT */

    /* compute thread only */
    bt_list_t running;
    uint32_t n_vocab;
    uint32_t n_layers;
    uint64_t iteration;
    bt_pass_t whole;  /* an iteration's */
    bt_pass_t inside; /* one sequence's, for which that one waits */
    bt_pass_t *pass;  /* the one that is computed */
    /* Of a model in stages, and on a device: a ring, the oldest at
     * first_flight. max_flights 1: there are none, passes are made one at a
     * time. */
    bt_flight_t *flights;
    uint32_t first_flight, n_flights, max_flights;
    bt_sched_overlap_t ahead;
    uint64_t ended_ns;  /* end of the pass that landed last */
    uint64_t landed_ns; /* the same; 0: one has begun since, or the thread has
                           slept */
    /* Of the iteration under way: all that was computed inside it. */
    uint64_t inside_ns, inside_lent_ns;
    bt_status_t inside_status;
    bt_sched_midstep_join_t late;
    bt_sched_cost_t cost; /* what iterations took so far */
    bt_sched_chunk_t chunk;
    uint64_t last_step_ns; /* what the last iteration took */
    float *row; /* n_vocab: what the model said, where a draw is not its end */
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

/** Of a list of those that run, or of followers. */
static inline bt_seq_t *bt_engine_seq_at(bt_list_t *link)
{
    return bt_engine_seq_of(BT_CONTAINER_OF(link, bt_sched_seq_t, turn.link));
}

static inline uint32_t bt_engine_n_groups(const bt_engine_t *engine)
{
    const bt_kv_groups_t *groups = engine->config.groups;

    return (groups == NULL) ? 1 : groups->n;
}

/** A block of each group, for the span of this position. */
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

/** A sign of life. */
static inline void bt_engine_mark(bt_engine_t *engine)
{
    atomic_store_explicit(
        &engine->progress,
        atomic_load_explicit(&engine->progress, memory_order_relaxed) + 1,
        memory_order_relaxed);
}

/** Take in what was submitted and let canceled sequences go. */
void bt_engine_take_changes(bt_engine_t *engine, bt_report_t *report);

/** Out of the inbox, or NULL. */
bt_seq_t *bt_engine_pop(bt_engine_t *engine);
/** Is there anything to compute? Looks at all rooms. */
bool bt_engine_has_work(bt_engine_t *engine);

/** Put what came out of the inbox among those that run. */
void bt_engine_take_in(bt_engine_t *engine, bt_seq_t *seq);
/** Room for so many sequences and rows. Free it, also after a failure.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_engine_alloc_pass(const bt_model_t *model,
                                               bt_pass_t *pass, uint32_t n_seqs,
                                               uint32_t rows);
void bt_engine_free_pass(bt_pass_t *pass);
/** Item i of the plan: its rows go behind those that are there. */
void bt_engine_lay_item(bt_engine_t *engine, uint32_t i);

/** One iteration: plan, forward, sample. */
void bt_engine_iterate(bt_engine_t *engine, bt_report_t *report);
/** What is planned in engine->pass: forward, sample. */
void bt_engine_run_pass(bt_engine_t *engine, bt_report_t *report);
/* Its parts. */
/** Plan the next pass. @return items of pass->plan */
uint32_t bt_engine_plan(bt_engine_t *engine, bt_pass_t *pass,
                        uint32_t *n_context_p);
/** From the plan of engine->pass to the arrays of one forward call. */
void bt_engine_lay_rows(bt_engine_t *engine);
bt_forward_t bt_engine_forward_of(bt_engine_t *engine);
/** What the call of engine->pass came to: tokens are drawn, or it is said that
 *  it failed. */
void bt_engine_settle(bt_engine_t *engine, bt_report_t *report,
                      bt_status_t status, float *logits);
/** All that run leave. */
void bt_engine_fail_all(bt_engine_t *engine, bt_report_t *report);

/* flight.c: a ring of passes, the oldest at 0 */

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_engine_alloc_flights(bt_engine_t *engine);
void bt_engine_free_flights(bt_engine_t *engine);
bt_flight_t *bt_engine_flight(bt_engine_t *engine, uint32_t i);
/** What is planned in the flight behind the last one begins: it is under way
 *  then, after a failure too. @retval any of bt_model_start() */
BT_MUST_CHECK bt_status_t bt_engine_take_off(bt_engine_t *engine);
/** Wait for the oldest, and settle it; its sequences are in the queue again. */
void bt_engine_land(bt_engine_t *engine, bt_report_t *report);
/** A flight's own sequences, back to the queue, in their places. */
void bt_engine_unload(bt_engine_t *engine, bt_flight_t *flight);
/** A rank is lost, or the device: what is under way ends nowhere. */
void bt_engine_crash(bt_engine_t *engine, bt_report_t *report,
                     bt_status_t status);
/** The others may be at a pass still: wait for all, and look at none. */
void bt_engine_ground(bt_engine_t *engine);

/* ahead.c */

/** On a device: begin a pass, and the next one behind it where that can be and
 *  is worth it; end the oldest. */
void bt_engine_run_ahead(bt_engine_t *engine, bt_report_t *report);

/* lots.c */

/** Begin passes while another stage has nothing to do, and end the oldest that
 *  is under way, if there is one. */
void bt_engine_run_lots(bt_engine_t *engine, bt_report_t *report);

/* draw.c */

/** Add what happened to a sequence; @a token and @a finish of a TOKEN. */
void bt_engine_report(bt_report_t *report, bt_report_kind_t kind, bt_seq_t *seq,
                      uint32_t token, bt_finish_t finish);
/** It is in no list any more, and its owner's again: at once, or when the pass
 *  that still computes it is over. */
void bt_engine_leave(bt_report_t *report, bt_seq_t *seq, bt_finish_t finish);
/** Of an item, the first position to draw from; behind its last one if it is
 *  not a last chunk. */
uint32_t bt_engine_draws_from(const bt_sched_item_t *item);
/** How much of this position's row, which is drawn from, is needed by all who
 *  ask for it; bt_forward_t.needs. */
uint32_t bt_engine_needs(const bt_seq_t *seq, uint32_t position);
/** Rows of logits of an item, of which @a first is the first position: to their
 *  owner, or a token from each.
 *  @return behind the last of them */
float *bt_engine_use_logits(bt_engine_t *engine, bt_report_t *report,
                            const bt_sched_item_t *item, uint32_t first,
                            float *logits);

/* tell.c */

/** Have the back end draw what is drawn from the next logit row, for all who do
 *  (@a draws), or score it, where its owner wants that.
 *  @return false: the host has to */
bool bt_engine_tell(bt_pass_t *pass, bt_seq_t *seq, uint32_t position,
                    bool draws);
bool bt_engine_is_told(const bt_pass_t *pass, uint32_t row);
/** Draw k from this row. */
uint32_t bt_engine_told_id(const bt_pass_t *pass, uint32_t row, uint32_t k);
/** bt_engine_store_row() of a row that is told, of draw k or a known token. */
void bt_engine_store_told(const bt_pass_t *pass, uint32_t row, uint32_t k,
                          const bt_seq_t *seq, uint32_t position,
                          uint32_t n_vocab);

/* late.c */

/** bt_forward_t.take_late; @a engine is a bt_engine_t. */
uint32_t bt_engine_take_late(void *engine, uint32_t n_layers);

/* rehearse.c */

/** Waits until the pass may be through with so many layers, all of them: with
 *  what comes after them (bt_engine_rehearsal_t). */
void bt_engine_rehearse(const bt_engine_t *engine, uint32_t n_layers);

/* inside.c */

/** bt_forward_t.between_layers; @a engine is a bt_engine_t. */
void bt_engine_look_inside(void *engine, uint32_t n_layers);

/* yield.c */

/** Say whether prompts here want the cores of others: before each iteration,
 *  and before a sleep. */
void bt_engine_want_cores(bt_engine_t *engine);
/** Between iterations: sleep where others want the cores of this one, and note
 *  in the report for how long. */
void bt_engine_give_way(bt_engine_t *engine, bt_report_t *report);
/** A token was drawn: the times between count from the first on. */
void bt_engine_pace(bt_seq_t *seq);

/* rows.c */

/** Does the owner want the row of logits of this position? */
bool bt_engine_wants_row(const bt_seq_t *seq, uint32_t position);
/** The same by what a back end said of it. */
void bt_engine_store_scored(const bt_seq_t *seq, uint32_t position,
                            const bt_scored_t *scored, const bt_first_t *top);
/** Fill what the owner wants of it. The token behind it is known, or drawn. */
void bt_engine_store_row(const bt_seq_t *seq, uint32_t position,
                         const float *logits, uint32_t n_vocab);

#endif
