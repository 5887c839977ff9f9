/* SPDX-License-Identifier: Apache-2.0 */
/** @file group.h
 *
 * Jobs of one prompt (bt_msg_request_t.group): it is computed, sent and held
 * once.
 *
 *     REQUEST of the leader ──▶ collecting ── the last is here ──▶ on_request()
 *     REQUEST of a follower ────────┘         (or does not come)   of each
 *
 *     leader      queue ─▶ blocks, seats for all ─▶ begin() ─▶ its KV ─▶ …
 *     followers   (no queue of their own)             │
 *                                     engine group, or a fork of its blocks
 *
 * The leader's job carries what all need: the claim, the transfer or window,
 * the prompt's blocks. A follower is in leader->followers while it needs that;
 * the role says when it does no more (bt_group_leave()). Whoever of them ends
 * before leaves the others alone. When that is the leader it is *abandoned*: no
 * token of it goes out, and its job stays until no follower is left. What ends
 * the KV of the group (bt_worker_group_fail()) ends all.
 *
 * A follower whose leader is not here, or has begun, is refused with
 * BT_ERR_STALE; its router then runs it by itself.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_GROUP_H
#define BT_WORKER_GROUP_H

#include "worker/worker.h"

/** Are groups for this worker's model? Where a sequence keeps several groups of
 *  blocks, or a window of them (kv_groups.h), forks are not there yet. */
bool bt_group_is_possible(const bt_worker_t *w);

/** A request without tokens has its leader's, as long as that collects its
 *  group. Borrowed: to be used at once. */
void bt_group_lend_prompt(bt_worker_t *w, const bt_worker_link_t *from,
                          bt_msg_request_t *request);
/**
 * May the job of this request be made?
 * @param [out] why_p  On failure: static text for the router.
 * @retval BT_ERR_STALE     its leader is not here, or has begun
 * @retval BT_ERR_MISMATCH  it is not like its leader, or the group too large,
 *                          or there are none
 */
BT_MUST_CHECK bt_status_t bt_group_check(bt_worker_t *w,
                                         const bt_worker_link_t *from,
                                         const bt_msg_request_t *request,
                                         const char **why_p);
/** Its job is made: give it to the role, now or when its group is here. */
void bt_group_enter(bt_worker_t *w, bt_job_t *job,
                    const bt_msg_request_t *request);
/** It was refused: the others do not wait for it. */
void bt_group_miss(bt_worker_t *w, const bt_worker_link_t *from,
                   const bt_msg_request_t *request);
/** A grant came for it: the other worker has its group together, so who is
 *  missing here will not come. */
void bt_group_close(bt_worker_t *w, const bt_worker_link_t *from,
                    bt_req_key_t key);
/** Begin without those who have not come for a time: members are sent in one
 *  write. */
void bt_group_expire(bt_worker_t *w, uint64_t now_us);

/** Blocks for the job and for those who begin with it, all or none; what it
 *  knows is held (bt_job_hold_known()), and is not held any more on failure.
 *  @retval BT_ERR_NO_BLOCKS */
BT_MUST_CHECK bt_status_t bt_group_take_blocks(bt_worker_t *w, bt_job_t *job);

#endif
