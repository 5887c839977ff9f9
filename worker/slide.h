/* SPDX-License-Identifier: Apache-2.0 */
/** @file slide.h
 *
 * Jobs of a model in which layers see only a window: how far their blocks
 * reach, and how they slide (common/kv/kv_hold.h).
 *
 *     CHUNK of n, TOKEN behind n ─▶ what lies before first_span(n) is offered
 *                                   to the prefix index, and let go of
 *                                ─▶ as many blocks ahead, more room
 *
 * What is offered is the prompt's: a later prompt finds a beginning as long as
 * the index has the window behind it, and so wherever two prompts part. Of an
 * answer the last window is remembered, when it ends, as of other models all.
 *
 * A context phase has two chunks ahead: one that is computed while this thread
 * sees that the one before is. Who generates has a few tokens.
 *
 * Blocks that another worker may still write to are not let go of: until the
 * window of its hand-over is closed (kvt.h) a job does not slide.
 *
 * What a worker sends is the tail of each window (kv_route.h), and what it lets
 * go of lies before that: the two never meet.
 *
 * Threads: the control thread. The compute thread reads the table up to the
 * room that it was told of, and of windows nothing that was let go of
 * (engine.h).
 */
#ifndef BT_WORKER_SLIDE_H
#define BT_WORKER_SLIDE_H

#include "common/kv/kv_hold.h"
#include "worker/worker.h"

/** After w->groups, tokens_per_block and the configuration are known. */
void bt_slide_open(bt_worker_t *w);

/** How far a job reaches with so many spans in whole groups. */
bt_kv_reach_t bt_slide_reach(const bt_worker_t *w, const bt_job_t *job,
                             uint32_t n_spans);

/** Blocks that a job of @a n_most spans may ever come to hold at a time. */
uint64_t bt_slide_most_blocks(const bt_worker_t *w, bt_sched_want_t want,
                              uint32_t n_most);

/** What its owner says of a sequence in the engine. */
void bt_slide_on_item(bt_worker_t *w, bt_job_t *job,
                      const bt_report_item_t *item);

/** Nobody else writes to the job's blocks any more (bt_job_t.is_open). */
void bt_slide_on_closed(bt_worker_t *w, bt_job_t *job);

#endif
