/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_preempt.h
 *
 * Who of those that generate gets more blocks, and who gives its blocks up when
 * there are none: MAX_UTILIZATION. Pure: counts in, one decision out; the
 * worker carries it out, tells what became of it, and asks again.
 *
 *     running, in order       A ── B ── C ── D
 *     lacks blocks                 B
 *     free?                   GROW B
 *     else, D's come back     AWAIT
 *     else                    PAUSE D, the last one: its blocks come back, and
 *                             it begins again, in its order, where it was
 *
 * A sequence begins with blocks for the tokens that it has and some ahead; all
 * that it may ever need (GUARANTEED_NO_EVICT) it never has to hold. Whoever has
 * less than that ahead lacks blocks. One that has none left at all sits out:
 * its worker computes the others meanwhile.
 *
 * All get on. The order is that of every queue (sched_queue.h), it is strict,
 * and that of two never changes. Let F be the first of those that run. It is
 * the first to grow, by whatever is free. Where that is too little, all others
 * that run are paused before it has to wait for anything else; nobody begins
 * while one lacks blocks (bt_sched_preempt_lacks()); and F itself is nobody's
 * victim, since only those behind a sequence make room for it. What is left is
 * held by those who have not come to run: they end by themselves or are given
 * up (sched_admit.h). A sequence of which all blocks fit the pool therefore
 * ends once it is F, after the tokens that it may draw at most. A paused one
 * waits in its place, where no later one of its rank overtakes it; those before
 * it are finitely many, as ageing lets nobody pass that came more than
 * BT_SCHED_MAX_WAIT_MS later. So it is F in the end: no deadlock, no livelock.
 *
 * Against thrashing: who begins leaves a span for each that runs
 * (bt_sched_preempt_spare()), and who begins again takes twice as much ahead as
 * the time before. So a sequence is paused, while it holds less than all that
 * it may need, as often as the logarithm of that, and the tokens that are
 * computed again are at most so many times its own.
 *
 * Spans are of tokens_per_block, with a block in each group of layers.
 *
 * Threads: one thread owns it.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.5
 *          (preemption, all blocks or none, recomputation).
 */
#ifndef BT_COMMON_SCHED_PAUSE_H
#define BT_COMMON_SCHED_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** What a sequence has ahead of the token that it draws: many iterations, and
 *  one of BT_ENGINE_MAX_DRAFTS drafts. */
#define BT_SCHED_PREEMPT_AHEAD_TOKENS 20u

/** A sequence that holds blocks as it grows; embedded in the worker's. */
typedef struct bt_sched_kv_demand {
    bt_sched_turn_t turn; /**< in bt_sched_preempt_t.running, or in none */
    uint32_t n_known;     /**< tokens that it has, as far as its owner knows */
    uint32_t n_most;      /**< spans for all that it may ever compute */
    uint32_t n_held;      /**< spans that it holds */
    uint32_t n_pauses;
    bool leaves; /**< its spans come back */
} bt_sched_kv_demand_t;

typedef struct bt_sched_preempt {
    bool is_on;
    uint32_t tokens_per_block;
    uint32_t ahead_tokens;
    bt_list_t running; /**< queue of bt_sched_kv_demand_t.turn */
    uint32_t n_running;
    bool lacks; /**< what bt_sched_preempt_next() said last */
} bt_sched_preempt_t;

typedef enum bt_sched_preempt_step {
    BT_SCHED_ENOUGH, /**< nobody lacks blocks */
    BT_SCHED_GROW,   /**< give *who_p so many spans more */
    BT_SCHED_PAUSE,  /**< take *who_p from the engine, then ask again */
    BT_SCHED_AWAIT,  /**< those on their way out bring some back */
    BT_SCHED_SHORT,  /**< nobody is left to make room: until others end */
} bt_sched_preempt_step_t;

/** @param [in] is_on  false: guaranteed_no_evict; every sequence begins with
 *                     all that it may need, and nobody is here */
void bt_sched_preempt_init(bt_sched_preempt_t *pause, bool is_on,
                           uint32_t tokens_per_block, uint32_t ahead_tokens);

/** Spans that a sequence takes when it begins, for the first time or again. */
uint32_t bt_sched_preempt_begins_with(const bt_sched_preempt_t *pause,
                                      const bt_sched_kv_demand_t *grower);

/** It runs now, or is on its way out. @param leaves  of the second */
void bt_sched_preempt_in(bt_sched_preempt_t *pause,
                         bt_sched_kv_demand_t *grower, bool leaves);
/** It does not any more. Harmless when it did not. */
void bt_sched_preempt_out(bt_sched_preempt_t *pause,
                          bt_sched_kv_demand_t *grower);

/**
 * What is to be done next. O(those that run).
 *
 * @param [in]  free_spans  That can be had now.
 * @param [out] who_p       GROW, PAUSE.
 * @param [out] n_spans_p   GROW.
 */
bt_sched_preempt_step_t bt_sched_preempt_next(bt_sched_preempt_t *pause,
                                              uint32_t free_spans,
                                              bt_sched_kv_demand_t **who_p,
                                              uint32_t *n_spans_p);

/** Does somebody that runs lack blocks? Then nobody begins. */
static inline bool bt_sched_preempt_lacks(const bt_sched_preempt_t *pause)
{
    return pause->lacks;
}

/** Does the first of them, with nobody left to make room for it? Then it waits
 *  for those who have not come to run. */
bool bt_sched_preempt_is_stuck(const bt_sched_preempt_t *pause);

/** Spans that who begins leaves to those that run. */
uint32_t bt_sched_preempt_spare(const bt_sched_preempt_t *pause);

static inline bt_sched_kv_demand_t *bt_sched_kv_demand_of(bt_sched_turn_t *turn)
{
    return BT_CONTAINER_OF(turn, bt_sched_kv_demand_t, turn);
}

#endif
