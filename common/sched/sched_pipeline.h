/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_pipeline.h
 *
 * Splits sequences into microbatches for pipeline parallelism, so that no stage
 * idles while a token is still in another stage:
 *
 *     stage 0   A1 │ B1 │ A2 │ B2 │ A3 │
 *     stage 1      │ A1 │ B1 │ A2 │ B2 │ …
 *
 * A sequence is in one microbatch at a time, and in the next one once its token
 * is sampled. A microbatch costs a read of the weights, whatever its number of
 * rows: there are as many microbatches as stages if each has enough rows for
 * that, and otherwise fewer.
 *
 * Threads: pure.
 * Source:  Huang et al., "GPipe", NeurIPS 2019 (micro-batches); Agrawal et al.,
 *          "Sarathi-Serve", OSDI 2024 (bubbles of unequal ones).
 */
#ifndef BT_COMMON_SCHED_SCHED_PIPELINE_H
#define BT_COMMON_SCHED_SCHED_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** Work to compute, of in-flight sequences too. */
typedef struct bt_sched_ready {
    uint32_t n_generating; /**< generating sequences */
    uint32_t n_rows;       /**< rows of those and of the next chunks */
} bt_sched_ready_t;

/** Number and size of microbatches. */
typedef struct bt_sched_microbatches {
    uint32_t n;            /**< most microbatches in flight */
    uint32_t n_generating; /**< most generating sequences of one microbatch;
                                at least 1 */
} bt_sched_microbatches_t;

/**
 * Returns how to split the work.
 * @param [in] n_stages    at least 1
 * @param [in] least_rows  smallest number of rows worth a microbatch; at least
 *     1
 */
bt_sched_microbatches_t bt_sched_microbatches(const bt_sched_ready_t *ready,
                                              uint32_t n_stages,
                                              uint32_t least_rows);

/** True when another microbatch of @a n_rows rows should begin while @a
 *  n_under_way are in flight. A few rows wait for those of the next
 *  microbatch that ends. */
bool bt_sched_microbatch_begins(const bt_sched_microbatches_t *split,
                                uint32_t n_under_way, uint32_t n_rows,
                                uint32_t least_rows);

/**
 * Cuts a plan to the generating sequences of one microbatch. Items that are cut
 * off are moved behind what is left, in their order, for a later plan.
 *
 * @param [in,out] items  Of bt_sched_plan(), n_items of them.
 * @return number of items left
 */
uint32_t bt_sched_microbatch_cut(bt_sched_item_t *items, uint32_t n_items,
                                 uint32_t n_generating);

/*
 * Overlapped scheduling: decides whether the host prepares a step while the
 * device still computes the one before:
 *
 *     one by one   device   │ step 1 │       │ step 2 │
 *                  host              │ draw, │
 *                                    │ plan  │
 *     overlapped   device   │ step 1 │ step 2 │ step 3 │
 *                  host     │ plan 2 │ draw 1, plan 3 │ …
 *
 * The device then never waits for the host. But a request that arrives
 * meanwhile waits for one more step, and a sequence that turns out to have
 * ended is computed once in vain: so steps overlap only if the host's part of a
 * step is large enough.
 *
 * Threads: pure.
 * Source:  the overlapped schedulers of SGLang (2024) and TensorRT-LLM (2025),
 *          which do it always.
 */

typedef enum bt_sched_overlap_mode {
    BT_SCHED_OVERLAP_AUTO, /**< where it pays */
    BT_SCHED_OVERLAP_ON,   /**< wherever possible */
    BT_SCHED_OVERLAP_OFF,
} bt_sched_overlap_mode_t;

/** Reciprocal of the smallest host share of a step for which steps overlap. */
#define BT_SCHED_OVERLAP_SHARE 64u

/** Measured times. All zero at first. */
typedef struct bt_sched_overlap {
    uint64_t host_ns; /**< recent mean, from the end of one step until the
                           next step, planned after it, begins */
    uint64_t step_ns; /**< duration of the last step; 0: not known */
} bt_sched_overlap_t;

/** Learns the host time: how long after the end of a step the next one
 *  began, with nothing to wait for in between. */
void bt_sched_overlap_learn_host(bt_sched_overlap_t *ahead, uint64_t host_ns);
/** True when the next step should be prepared while the device is busy. */
bool bt_sched_overlap_pays(const bt_sched_overlap_t *ahead,
                           bt_sched_overlap_mode_t mode);

/*
 * Decides whether a sequence whose KV has just arrived may join the iteration
 * in flight. The sequence is then computed alone through the layers that are
 * done, and from there on with the others, so that its next token does not wait
 * for the end of two iterations:
 *
 *     layers   0 ────────────▶ l ────────────────▶ L
 *     others   ████████████████┊    wait   ┊███████
 *     joining                  ┊0 ──▶ l    ┊███████   a token for all
 *
 * The cost is a pass of few rows through l layers, for which the others wait.
 * So a sequence joins only while much of the iteration is left, and such passes
 * take at most a sixteenth of the time of iterations: at most two whole passes
 * in a row.
 *
 * Threads: pure; one thread owns it.
 */

/** Layers computed for each layer that may be spent on joining sequences. */
#define BT_SCHED_MIDSTEP_JOIN_SHARE 16u

/** Budget of mid-iteration joins. */
typedef struct bt_sched_midstep_join {
    uint32_t n_layers; /**< layers of the model */
    uint32_t credit;   /**< in layers / BT_SCHED_MIDSTEP_JOIN_SHARE */
} bt_sched_midstep_join_t;

/**
 * Initialises a full budget.
 * @param [in] n_layers  of the model, below 2^24
 */
void bt_sched_midstep_join_init(bt_sched_midstep_join_t *late,
                                uint32_t n_layers);
/** Adds an iteration's layers to the budget. Call when an iteration begins. */
void bt_sched_midstep_join_step(bt_sched_midstep_join_t *late);
/** True when sequences may join after @a n_done layers. */
bool bt_sched_midstep_join_may(const bt_sched_midstep_join_t *late,
                               uint32_t n_done);
/** Spends the budget of one join, of one or several sequences. */
void bt_sched_midstep_join_spend(bt_sched_midstep_join_t *late,
                                 uint32_t n_done);

/*
 * Decides when a generating worker donates its cores to other workers, though
 * it has work itself.
 *
 * Workers of one host compute on each other's idle cores (docs/adr/0015). That
 * keeps the cores busy, but does not bound queueing: between a stage that is
 * slightly too slow and one that is just fast enough, all requests queue at the
 * first. So a prompt that has waited BT_SCHED_DONATION_STRETCH times its own
 * compute time wants all cores, and the generating worker on that host then
 * sleeps after each iteration for as long as the iteration took:
 *
 *     waits      ······················▶ wanted ──────────▶ not any more
 *     generates  ████████████████████████▌    ▐████▌    ▐████████████████
 *     prompts    ██████ own core ████████ both █ own █ both █ own ████████
 *
 * So donation at most doubles inter-token latency, and never beyond its target;
 * where it exceeds the target already, no cores are donated. A sequence's own
 * target is for the mean of its answer, as it is measured: its slack is the
 * time left until its next token is due, and the smallest slack of all running
 * sequences decides. So a forecast promised before the donation (sched_slo.h)
 * holds. The wait is relative to the prompt's own length, like its ageing
 * (sched_queue.h): a long prompt that waits for short ones is no reason by
 * itself.
 *
 * Threads: pure.
 * Source:  M. Bender, S. Chakrabarti, S. Muthukrishnan, "Flow and Stretch
 *          Metrics for Scheduling Continuous Job Streams", SODA 1998 (waiting
 *          in multiples of the own length).
 */

#define BT_SCHED_DONATION_STRETCH BT_SCHED_STRETCH
/** Shortest wait of a prompt for which cores are donated. */
#define BT_SCHED_DONATION_LEAST_US 50000u

/** True when a prompt has waited long enough to want other workers' cores. */
bool bt_sched_wants_cores(const bt_sched_work_t *work, uint64_t now_us);

/** Reciprocal of the part of a sequence's target that is not donated: a
 *  reserve for later, longer steps. */
#define BT_SCHED_DONATION_MARGIN 8u

/** Progress of a sequence against its inter-token latency target. */
typedef struct bt_sched_itl_progress {
    uint64_t itl_us;   /**< target of the mean time between its tokens */
    uint64_t spent_us; /**< time since its first token */
    uint32_t n_tokens; /**< tokens after the first */
} bt_sched_itl_progress_t;

/**
 * Returns how long a sequence can wait before the next iteration, which takes
 * step_us.
 *
 * @return us; 0: no time, its next token is late
 */
uint64_t bt_sched_spare_us(const bt_sched_itl_progress_t *pace,
                           uint64_t step_us);

/**
 * Returns how long a generating worker whose cores are wanted sleeps before the
 * next iteration.
 *
 * @param [in] step_us   Duration of the last iteration.
 * @param [in] spare_us  Smallest slack of the running sequences.
 * @return us; 0: no sleep
 */
uint64_t bt_sched_donation_us(uint64_t step_us, uint64_t spare_us);

#endif
