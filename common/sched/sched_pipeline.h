/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_pipeline.h
 *
 * Decisions about the iterations of one worker, in four parts:
 *
 *     microbatches           how to split the batch over pipeline stages
 *     overlapped scheduling  whether the host plans while the device computes
 *     mid-step join          whether a sequence enters the running iteration
 *     core donation          when a generating worker sleeps for others
 *
 * The engine (inference/engine) carries them out.
 *
 * Microbatches: a batch is split for pipeline parallelism, so that no stage
 * idles while a token is in another stage. A and B are microbatches, the
 * numbers are iterations:
 *
 *     stage 0   A1 │ B1 │ A2 │ B2 │ A3 │
 *     stage 1      │ A1 │ B1 │ A2 │ B2 │ …
 *
 * A sequence is in one microbatch at a time. It may be in another one as soon
 * as its token is sampled. Each microbatch reads all weights of its stage,
 * however few rows (tokens) it has. So there are as many microbatches as
 * stages only if each has enough rows, otherwise fewer.
 *
 * Threads: pure functions.
 * Source:  Huang et al., "GPipe", NeurIPS 2019 (micro-batches); Agrawal et al.,
 *          "Sarathi-Serve", OSDI 2024 (pipeline bubbles of unequal
 *          micro-batches).
 */
#ifndef BT_COMMON_SCHED_SCHED_PIPELINE_H
#define BT_COMMON_SCHED_SCHED_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** Work that can be computed, sequences in flight included. */
typedef struct bt_sched_ready {
    uint32_t n_generating; /**< generating sequences */
    uint32_t n_rows;       /**< rows (tokens) of these sequences and of the next
                                prefill chunks */
} bt_sched_ready_t;

/** How to split the work into microbatches. */
typedef struct bt_sched_microbatches {
    uint32_t n;            /**< most microbatches in flight, at least 1 */
    uint32_t n_generating; /**< most generating sequences of one microbatch, at
                                least 1 */
} bt_sched_microbatches_t;

/**
 * Computes how to split the work into microbatches.
 * @param [in] n_stages    Number of pipeline stages, at least 1.
 * @param [in] least_rows  Fewest rows that are worth a microbatch, at least 1.
 */
bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows);

/** True when a microbatch of @a n_rows rows should begin while @a n_under_way
 *  microbatches are in flight. With none in flight any row begins at once;
 *  otherwise fewer than @a least_rows rows wait for the rows of the next
 *  microbatch that ends. */
bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *split,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows);

/**
 * Limits a plan to @a n_generating generating sequences, which come first in
 * it. Items that are cut off are moved behind the remaining ones, in their
 * order, for a later plan.
 *
 * @param [in,out] items  [n_items] plan of bt_sched_plan().
 * @return number of remaining items
 */
uint32_t bt_sched_microbatch_cut(bt_sched_item_t *items, uint32_t n_items,
                                 uint32_t n_generating);

/*
 * Overlapped scheduling: the host prepares the next step while the device still
 * computes the current one. A step is one pass of the model.
 *
 *     one by one   device   │ step 1 │       │ step 2 │
 *                  host              │ draw, │
 *                                    │ plan  │
 *     overlapped   device   │ step 1 │ step 2 │ step 3 │
 *                  host     │ plan 2 │ draw 1, plan 3 │ …
 *
 * Gain: the device does not wait for the host to draw tokens and plan. Cost: a
 * request that arrives meanwhile waits for one more step, and a sequence that
 * turns out to have ended is computed once more in vain. So steps overlap only
 * if the host's part of a step is large enough.
 *
 * Threads: pure functions.
 * Source:  the overlapped schedulers of SGLang (2024) and TensorRT-LLM (2025),
 *          which always overlap.
 */

/** When steps overlap. */
typedef enum bt_sched_overlap_mode {
    BT_SCHED_OVERLAP_AUTO, /**< when the host's share of a step is large */
    BT_SCHED_OVERLAP_ON,   /**< whenever possible */
    BT_SCHED_OVERLAP_OFF,  /**< never */
} bt_sched_overlap_mode_t;

/** Steps overlap if the host takes at least 1 / 64 of the time of a step. */
#define BT_SCHED_OVERLAP_SHARE 64u

/** Measured times of host and device. All zero at first. */
typedef struct bt_sched_overlap {
    uint64_t host_ns; /**< moving mean of the host time between two steps that
                           did not overlap, ns; 0: not measured */
    uint64_t step_ns; /**< duration of the last step, ns; 0: not measured */
} bt_sched_overlap_t;

/** Adds a measurement of the host time: @a host_ns passed from the end of a
 *  step to the begin of the next one, and there was nothing else to wait for.
 */
void bt_sched_overlap_learn_host(bt_sched_overlap_t *ahead, uint64_t host_ns);
/** True when the host should prepare the next step while the device is busy.
 *  In AUTO mode false until both times are measured. */
bool bt_sched_overlap_pays(const bt_sched_overlap_t *ahead,
                           bt_sched_overlap_mode_t mode);

/*
 * Mid-step join: a sequence whose KV has just arrived enters the running
 * iteration between two layers. The first l layers, which are done, are
 * computed for this sequence alone, the rest together with the others. So its
 * next token does not wait for the end of two iterations:
 *
 *     layers   0 ────────────▶ l ────────────────▶ L
 *     others   ████████████████┊    wait   ┊███████
 *     joining                  ┊0 ──▶ l    ┊███████   a token for all
 *
 * The others wait while l layers are computed for a few rows. So a sequence
 * does not join in the last eighth of the layers, and a budget limits joins to
 * a sixteenth of the layers computed: at most two whole passes in a row.
 *
 * Threads: pure functions; one thread owns the budget.
 */

/** Each iteration earns a sixteenth of its layers for mid-step joins. */
#define BT_SCHED_MIDSTEP_JOIN_SHARE 16u

/** Budget of mid-step joins. */
typedef struct bt_sched_midstep_join {
    uint32_t n_layers; /**< layers of the model */
    uint32_t credit;   /**< unit: 1 / BT_SCHED_MIDSTEP_JOIN_SHARE layer */
} bt_sched_midstep_join_t;

/**
 * Initialises a full budget, of two whole passes.
 * @param [in] n_layers  Layers of the model, below 2^24.
 */
void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers);
/** Adds the share of one iteration to the budget. Call when an iteration
 *  begins. */
void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late);
/** True when sequences may join the iteration of which @a n_done layers are
 *  computed. */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done);
/** Takes the cost of one join from the budget: @a n_done layers, for one
 *  sequence or several that join together. Call only after
 *  bt_sched_midstep_join_may() was true. */
void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late,
                                 uint32_t n_done);

/*
 * Core donation: a generating worker sleeps between its iterations, so that
 * prompts on other workers of the host can use its cores.
 *
 * Workers of one host compute on each other's idle cores (docs/adr/0015). That
 * alone does not bound queueing: if prefill is slightly too slow and generation
 * just fast enough, the cores are always busy, and all requests queue for
 * prefill. So a prompt that has waited BT_SCHED_DONATION_STRETCH times its own
 * compute time (and at least BT_SCHED_DONATION_LEAST_US) wants all cores. The
 * generating worker then sleeps after each iteration for as long as the
 * iteration took:
 *
 *     waits      ······················▶ wanted ──────────▶ not any more
 *     generates  ████████████████████████▌    ▐████▌    ▐████████████████
 *     prompts    ██████ own core ████████ both █ own █ both █ own ████████
 *
 * Bounds: donation at most doubles inter-token latency (ITL), and never beyond
 * the target. If ITL exceeds the target already, no cores are donated. The ITL
 * target of a sequence is for the mean of its answer; its slack is the time
 * left until its next token is due. The smallest slack of all running sequences
 * decides. So an ITL that was promised by a forecast (sched_slo.h) is kept.
 *
 * The wait of a prompt is compared with its own length, as in ageing
 * (sched_queue.h), so a long prompt that waits for short ones does not start a
 * donation by that alone.
 *
 * Threads: pure functions.
 * Source:  M. Bender, S. Chakrabarti, S. Muthukrishnan, "Flow and Stretch
 *          Metrics for Scheduling Continuous Job Streams", SODA 1998 (waiting
 *          in multiples of the own length).
 */

/** A prompt wants the cores of others when it has waited this many times its
 *  own compute time. */
#define BT_SCHED_DONATION_STRETCH BT_SCHED_STRETCH
/** Shortest wait in us after which a prompt wants the cores of others. */
#define BT_SCHED_DONATION_LEAST_US 50000u

/** True when a prompt has waited so long that it wants the cores of other
 *  workers. @a now_us is of the clock of work->since_us. */
bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us);

/** An eighth of a sequence's ITL target is never donated: a reserve for later,
 *  longer steps. */
#define BT_SCHED_DONATION_MARGIN 8u

/** Progress of a sequence, to compare with its inter-token latency target. */
typedef struct bt_sched_itl_progress {
    uint64_t itl_us;   /**< target for the mean time between its tokens, us */
    uint64_t spent_us; /**< time since its first token, us */
    uint32_t n_tokens; /**< tokens after the first */
} bt_sched_itl_progress_t;

/**
 * Returns the slack of a sequence: how long it can wait before the next
 * iteration and still meet its target.
 *
 * @param [in] step_us  Expected duration of the next iteration.
 * @return us; 0: none, the next token will be late
 */
uint64_t bt_sched_spare_us(const bt_sched_itl_progress_t *pace,
                           uint64_t step_us);

/**
 * Returns how long a generating worker whose cores are wanted sleeps before the
 * next iteration: as long as the last one took, at most the slack.
 *
 * @param [in] step_us   Duration of the last iteration.
 * @param [in] spare_us  Smallest slack of the running sequences.
 * @return us; 0: no sleep
 */
uint64_t bt_sched_donation_us(uint64_t step_us, uint64_t spare_us);

#endif
