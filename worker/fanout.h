/* SPDX-License-Identifier: Apache-2.0 */
/** @file fanout.h
 *
 * Jobs that share one prompt (bt_msg_request_t.group): the prompt is computed,
 * sent and held once.
 *
 *     REQUEST of the leader ──▶ collecting ── all have come ───▶ on_request()
 *     REQUEST of a follower ────────┘         (or time out)      of each
 *
 *     leader      queue ─▶ blocks, seats for all ─▶ begin() ─▶ KV ─▶ …
 *     followers   (no queue of their own)             │
 *                                     engine group, or a fork of its blocks
 *
 * The leader's job carries the shared state: the claim, the transfer or
 * receive window, the prompt's blocks. A follower stays in leader->followers
 * while it needs that state; the role ends this with bt_fanout_leave(). A
 * member that ends early does not affect the others. A leader that ends early
 * is *abandoned*: none of its tokens is sent, and its job stays until no
 * follower is left. A failure of the group's KV (bt_worker_fanout_fail()) ends
 * all members.
 *
 * A follower whose leader is not here, or has begun, is refused with
 * BT_ERR_STALE; the router then runs that request alone.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_FANOUT_H
#define BT_WORKER_FANOUT_H

#include "worker/worker.h"

/** True when this worker's model supports groups. Forks are not implemented for
 *  sequences with several layer groups or with an attention window
 *  (kv_groups.h). */
bool bt_fanout_is_possible(const bt_worker_t *w);

/** Points a request without tokens to its leader's tokens, while the leader
 *  collects its group. Borrowed: to be used at once. */
void bt_fanout_lend_prompt(bt_worker_t *w, const bt_worker_link_t *from,
                           bt_msg_request_t *request);
/**
 * Checks whether the job of this request may be created.
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_ERR_STALE     the leader is not here, or has begun
 * @retval BT_ERR_MISMATCH  the request differs from its leader, the group is
 *                          too large, or groups are not supported
 */
BT_MUST_CHECK bt_status_t bt_fanout_check(bt_worker_t *w,
                                          const bt_worker_link_t *from,
                                          const bt_msg_request_t *request,
                                          const char **why_p);
/** Passes a new job to its role, now or when its group is complete. */
void bt_fanout_enter(bt_worker_t *w, bt_job_t *job,
                     const bt_msg_request_t *request);
/** Notes that a member was refused: the others do not wait for it. */
void bt_fanout_miss(bt_worker_t *w, const bt_worker_link_t *from,
                    const bt_msg_request_t *request);
/** Begins the group of a job for which a grant came: the other worker's group
 *  is complete, so a member missing here will not come. */
void bt_fanout_close(bt_worker_t *w, const bt_worker_link_t *from,
                     bt_req_key_t key);
/** Begins groups whose missing members have timed out. Members are sent in one
 *  write, so a long gap means that they will not come. */
void bt_fanout_expire(bt_worker_t *w, uint64_t now_us);

/** Takes blocks for the job and for the followers that begin with it, all or
 *  none. Known prefix blocks are held (bt_job_hold_known()), and released on
 *  failure.
 *  @retval BT_ERR_NO_BLOCKS */
BT_MUST_CHECK bt_status_t bt_fanout_take_blocks(bt_worker_t *w, bt_job_t *job);

/*
 * Splits of the instances that may send KV here: how each divides its model
 * over ranks, as the routers report it (PEER with `sends`) before they name
 * the instance in a REQUEST. An instance not reported counts as one rank, for
 * older routers.
 *
 * Threads: the control thread.
 */

void bt_peer_sharding_init(bt_worker_t *w);
void bt_peer_sharding_fini(bt_worker_t *w);

/** Adds or updates an instance's split. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_peer_sharding_add(bt_worker_t *w,
                                               uint64_t instance,
                                               bt_kv_split_t split);
bt_kv_split_t bt_peer_sharding_split(const bt_worker_t *w, uint64_t instance);

#endif
