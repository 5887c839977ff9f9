/* SPDX-License-Identifier: Apache-2.0 */
/** @file fanout.h
 *
 * Fanouts: jobs that share one prompt (bt_msg_request_t.fanout), such as the
 * choices of a request. The prompt is computed, sent and held once. The job
 * whose id is the fanout's number is the leader, the others are followers.
 *
 *     REQUEST of the leader ──▶ collecting ── all have come ───▶ on_request()
 *     REQUEST of a follower ────────┘         (or time out)      of each
 *
 *     leader      queue ─▶ blocks, seats for all ─▶ begin() ─▶ KV ─▶ …
 *     followers   (no queue of their own)             │
 *                                     engine fanout, or a fork of its blocks
 *
 * The leader's job holds the shared state: the claim in the queue, the KV
 * transfer or receive region, and the blocks of the prompt. A follower is in
 * leader->followers as long as it needs that state; its role calls
 * bt_fanout_leave() when it does not any more.
 *
 *     a follower ends early    no effect on the other members
 *     the leader ends early    the leader is *abandoned*: none of its tokens is
 *                              sent, and its job stays until no follower needs
 *                              it
 *     the fanout's KV fails     all members fail: bt_worker_fanout_fail()
 *
 * A follower whose leader is not here, or has begun, is refused with
 * BT_ERR_STALE. The router then runs that request alone.
 *
 * The second part of this header is about the splits of sending instances.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_FANOUT_H
#define BT_WORKER_FANOUT_H

#include "worker/worker.h"

/** True when this worker's model supports fanouts: it has one layer group, with
 *  full attention. Forks of sequences with several groups, a window or a state
 *  (kv_groups.h) are not implemented here. */
bool bt_fanout_is_possible(const bt_worker_t *w);

/** Sets the tokens of a follower's request that came without tokens to those of
 *  its leader, while the leader collects its fanout. The tokens are borrowed
 *  from the leader: use them at once. Other requests stay as they are. */
void bt_fanout_lend_prompt(bt_worker_t *w, const bt_worker_link_t *from,
                           bt_msg_request_t *request);
/**
 * Checks whether a job may be created for a request. Requests without a fanout
 * pass.
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_OK
 * @retval BT_ERR_STALE     the leader is not here, or has begun
 * @retval BT_ERR_MISMATCH  the request differs from its leader's in kind, peer,
 *                          tokens, max_new or cache namespace; the fanout is
 * too large; the model does not support fanouts; or log-probs or logits of the
 * prompt are wanted, which are not computed for fanouts
 */
BT_MUST_CHECK bt_status_t bt_fanout_check(bt_worker_t *w,
                                          const bt_worker_link_t *from,
                                          const bt_msg_request_t *request,
                                          const char **why_p);
/** Passes a new job to its role with on_request(): at once without a fanout,
 *  otherwise when its fanout is complete. The request has passed
 *  bt_fanout_check(). */
void bt_fanout_enter(bt_worker_t *w, bt_job_t *job,
                     const bt_msg_request_t *request);
/** Records that the request of a follower was refused, so that its fanout does
 *  not wait for it. Does nothing for other requests. */
void bt_fanout_miss(bt_worker_t *w, const bt_worker_link_t *from,
                    const bt_msg_request_t *request);
/** Begins the fanout of this leader without its missing members. Called when a
 *  GRANT comes for it: the fanout is complete at the other worker, so a member
 *  that is missing here will not come. */
void bt_fanout_close(bt_worker_t *w, const bt_worker_link_t *from,
                     bt_req_key_t key);
/** Begins the fanouts that have waited for members longer than --dead-ms. A
 *  router sends all members in one write, so after such a gap the missing ones
 *  will not come. Logs a warning. */
void bt_fanout_expire(bt_worker_t *w, uint64_t now_us);

/** Takes blocks for a job and for the followers that begin with it, all or
 *  none. The job already holds its cached prefix (bt_job_hold_known()); it may
 *  or may not hold it after a failure, so call bt_job_drop_known() then.
 *  @retval BT_OK
 *  @retval BT_ERR_NO_BLOCKS  Too few blocks are free. */
BT_MUST_CHECK bt_status_t bt_fanout_take_blocks(bt_worker_t *w, bt_job_t *job);

/*
 * Splits of sending instances: how each instance that may send KV to this one
 * divides its model over ranks (tp, pp). Routers report a split (PEER with
 * `sends`) before they name the instance in a REQUEST. An instance that was not
 * reported counts as one rank.
 *
 * Threads: the control thread.
 */

/** Initialises an empty list of splits. */
void bt_peer_sharding_init(bt_worker_t *w);
/** Frees the list of splits. */
void bt_peer_sharding_fini(bt_worker_t *w);

/** Adds or updates the split of an instance. The list has at most 1024
 *  instances; then the oldest one is dropped.
 *  @retval BT_OK
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_peer_sharding_add(bt_worker_t *w,
                                               uint64_t instance,
                                               bt_kv_split_t split);
/** Returns the split of an instance; tp 1 and pp 1 if it was not reported. */
bt_kv_split_t bt_peer_sharding_split(const bt_worker_t *w, uint64_t instance);

#endif
