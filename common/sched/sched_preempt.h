/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_preempt.h
 *
 * Decides which generating sequence gets more KV blocks, and which is preempted
 * when there are none: MAX_UTILIZATION. Pure: counts in, one decision out; the
 * worker carries the decision out, reports the result, and asks again.
 *
 *     running, in order       A ── B ── C ── D
 *     lacks blocks                 B
 *     free blocks?            GROW B
 *     else, D is leaving      AWAIT
 *     else                    PAUSE D, the last one: its blocks are released,
 *                             and it begins again, in its order, where it was
 *
 * A sequence begins with blocks for its known tokens and some ahead; it never
 * has to hold all that it may ever need (GUARANTEED_NO_EVICT). A sequence with
 * less than that ahead lacks blocks. One that has none left at all is skipped:
 * its worker computes the others meanwhile.
 *
 * All sequences make progress. The order is that of every queue
 * (sched_queue.h): it is strict, and the order of two never changes. Let F be
 * the first running sequence. F grows first, by any free blocks. If those are
 * too few, all other running sequences are preempted before F has to wait for
 * anything else; nothing begins while one lacks blocks
 * (bt_sched_preempt_t.lacks); and F itself is never preempted, since only
 * sequences behind another are preempted for it. The remaining blocks are held
 * by requests that do not run yet: they end by themselves or are dropped
 * (sched_admit.h). A sequence all of whose blocks fit the pool therefore ends
 * once it is F, after at most its token limit. A preempted one keeps its
 * position in the order, where no later one of its rank overtakes it; only
 * finitely many are before it, as ageing lets no request overtake that arrived
 * more than BT_SCHED_MAX_WAIT_MS later. So it is F in the end: no deadlock, no
 * livelock.
 *
 * Against thrashing: a sequence that begins leaves one span free for each
 * running one (bt_sched_preempt_spare()), and one that begins again takes twice
 * as much ahead as the time before. So a sequence is preempted at most about
 * log2 of its full need times, while it holds less than that need, and
 * recomputes at most that many times its own tokens.
 *
 * A span is tokens_per_block tokens, with a block in each group of layers.
 *
 * Threads: one thread owns it.
 * Source:  W. Kwon et al., "Efficient Memory Management for Large Language
 *          Model Serving with PagedAttention", SOSP 2023, section 4.5
 *          (preemption, all blocks or none, recomputation).
 */
#ifndef BT_COMMON_SCHED_PREEMPT_H
#define BT_COMMON_SCHED_PREEMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_queue.h"

/** Tokens for which a sequence holds blocks ahead of the one it samples:
 *  many iterations, and one of BT_ENGINE_MAX_DRAFTS drafts. */
#define BT_SCHED_PREEMPT_AHEAD_TOKENS 20u

/** Block demand of a sequence that grows; embedded in the worker's object. */
typedef struct bt_sched_kv_demand {
    bt_sched_turn_t turn; /**< in bt_sched_preempt_t.running, or in none */
    uint32_t n_known;     /**< known tokens, as far as the owner knows */
    uint32_t n_most;      /**< spans for all that it may ever compute */
    uint32_t n_held;      /**< spans that it holds */
    uint32_t n_pauses;
    bool leaves; /**< spans are being released */
} bt_sched_kv_demand_t;

/** Preemption state of one worker. */
typedef struct bt_sched_preempt {
    bool is_on;
    uint32_t tokens_per_block;
    uint32_t ahead_tokens;
    bt_list_t running; /**< queue of bt_sched_kv_demand_t.turn */
    uint32_t n_running;
    bool lacks; /**< last result of bt_sched_preempt_next() */
} bt_sched_preempt_t;

typedef enum bt_sched_preempt_step {
    BT_SCHED_ENOUGH, /**< no sequence lacks blocks */
    BT_SCHED_GROW,   /**< give *who_p *n_spans_p more spans */
    BT_SCHED_PAUSE,  /**< preempt *who_p, then ask again */
    BT_SCHED_AWAIT,  /**< sequences on their way out will release some */
    BT_SCHED_SHORT,  /**< nothing is left to preempt: wait until others end */
} bt_sched_preempt_step_t;

/**
 * Initialises the state without sequences.
 * @param [in] is_on  false: guaranteed_no_evict; every sequence begins with all
 *     that it may need, and none is added here
 */
void bt_sched_preempt_init(bt_sched_preempt_t *pause, bool is_on,
                           uint32_t tokens_per_block, uint32_t ahead_tokens);

/** Returns the spans that a sequence takes when it begins, for the first
 *  time or again. */
uint32_t bt_sched_preempt_begins_with(const bt_sched_preempt_t *pause,
                                      const bt_sched_kv_demand_t *grower);

/**
 * Adds a sequence.
 * @param [in] leaves  false: it runs now; true: it is on its way out
 */
void bt_sched_preempt_in(bt_sched_preempt_t *pause,
                         bt_sched_kv_demand_t *grower, bool leaves);
/** Removes a sequence. Harmless when it was not added. */
void bt_sched_preempt_out(bt_sched_preempt_t *pause,
                          bt_sched_kv_demand_t *grower);

/**
 * Returns the next step. O(running sequences).
 *
 * @param [in]  free_spans  Available now.
 * @param [out] who_p       GROW, PAUSE.
 * @param [out] n_spans_p   GROW.
 */
bt_sched_preempt_step_t bt_sched_preempt_next(bt_sched_preempt_t *pause,
                                              uint32_t free_spans,
                                              bt_sched_kv_demand_t **who_p,
                                              uint32_t *n_spans_p);

/** True when the only running sequence lacks blocks and nothing is left to
 *  preempt for it. Then it waits for requests that do not run yet. */
bool bt_sched_preempt_is_stuck(const bt_sched_preempt_t *pause);

/** Returns the spans that a beginning sequence leaves to running ones. */
uint32_t bt_sched_preempt_spare(const bt_sched_preempt_t *pause);

static inline bt_sched_kv_demand_t *bt_sched_kv_demand_of(bt_sched_turn_t *turn)
{
    return BT_CONTAINER_OF(turn, bt_sched_kv_demand_t, turn);
}

#endif
