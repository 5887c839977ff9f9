/* SPDX-License-Identifier: Apache-2.0 */
/** @file window_eviction.h
 *
 * Jobs of a model with sliding-window attention: how many blocks they hold,
 * and how the blocks follow the window (common/kv/kv_block_pool.h).
 *
 *     CHUNK of n, TOKEN at n ─▶ blocks before first_span(n) are offered to the
 *                               prefix cache, and evicted
 *                            ─▶ as many blocks are taken ahead
 *
 * Only prompt blocks are offered: a later prompt finds a prefix as long as the
 * cache has the window before it, so at any point where two prompts part. Of
 * an output the last window is cached when the job ends; of other models, the
 * whole output.
 *
 * A prefill has two chunks ahead: one chunk is computed while the control
 * thread handles the report of the previous one. A generating sequence has a
 * few tokens ahead.
 *
 * No peer writes to the blocks of a job in the engine: a sender gave up its
 * right with the manifest (kvt_life.h). So blocks may be evicted at any time.
 *
 * A worker sends the tail of each window (kv_route.h), and evicts what lies
 * before it: the two never overlap.
 *
 * Threads: the control thread. The compute thread reads the table up to the
 * limit last set for the sequence, and never the evicted part of a window
 * (engine.h).
 */
#ifndef BT_WORKER_WINDOW_EVICTION_H
#define BT_WORKER_WINDOW_EVICTION_H

#include "common/kv/kv_block_pool.h"
#include "worker/worker.h"

/** Sets the window parameters of @a w. Call when w->groups, tokens_per_block
 *  and the configuration are known. */
void bt_window_eviction_open(bt_worker_t *w);

/** Returns the reach of a job that holds @a n_spans spans in whole groups. */
bt_kv_reach_t bt_window_eviction_reach(const bt_worker_t *w,
                                       const bt_job_t *job, uint32_t n_spans);

/** Returns the most blocks that a job of @a n_most spans can hold at a time. */
uint64_t bt_window_eviction_most_blocks(const bt_worker_t *w,
                                        bt_sched_want_t want, uint32_t n_most);

/** Fills the block counts of a HELLO: the most that a sequence of any length
 *  can hold. */
void bt_window_eviction_tell(const bt_worker_t *w, bt_msg_hello_t *hello);

/** Moves the windows of a job after a report of the engine about its sequence.
 */
void bt_window_eviction_on_item(bt_worker_t *w, bt_job_t *job,
                                const bt_report_item_t *item);

#endif
