/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/fanout.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/containers.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/sched/sched_place.h"
#include "worker/worker_priv.h"

static bool is_fanned_out(const bt_msg_request_t *request)
{
    return (request->fanout != 0) && (request->fanout_size > 1);
}

static bool is_leader(const bt_msg_request_t *request)
{
    return request->key.id == request->fanout;
}

/* The leader of this follower while it collects its fanout, or NULL. */
static bt_job_t *leader_of(bt_worker_t *w, const bt_worker_link_t *from,
                           const bt_msg_request_t *request)
{
    const bt_req_key_t key = {.id = request->fanout,
                              .attempt = request->key.attempt};
    bt_job_t *job = bt_worker_job_find(w, from, key);

    return ((job != NULL) && (job->n_missing > 0)) ? job : NULL;
}

static bool is_like(const bt_job_t *leader, const bt_msg_request_t *request)
{
    return (leader->kind == request->kind) && (leader->peer == request->peer) &&
           (leader->n_tokens == request->n_tokens) &&
           (leader->max_new == request->max_new) &&
           bt_hash128_equal(leader->seq.space, request->space) &&
           (memcmp(leader->seq.tokens, request->tokens,
                   request->n_tokens * sizeof(*request->tokens)) == 0);
}

bool bt_fanout_is_possible(const bt_worker_t *w)
{
    return (w->groups.n == 1) && (w->groups.group[0].kind == BT_KV_PAGED) &&
           (w->groups.group[0].window_tokens == 0);
}

void bt_fanout_lend_prompt(bt_worker_t *w, const bt_worker_link_t *from,
                           bt_msg_request_t *request)
{
    const bt_job_t *leader;

    if (!is_fanned_out(request) || (request->n_tokens > 0)) {
        return;
    }
    leader = leader_of(w, from, request);
    if (leader != NULL) {
        request->tokens = leader->seq.tokens;
        request->n_tokens = leader->n_tokens;
        request->draft_ids = leader->draft_ids;
        request->n_draft_ids = leader->n_draft_ids;
    }
}

bt_status_t bt_fanout_check(bt_worker_t *w, const bt_worker_link_t *from,
                            const bt_msg_request_t *request, const char **why_p)
{
    const bt_job_t *leader;

    if (!is_fanned_out(request)) {
        return BT_OK;
    }
    if (!bt_fanout_is_possible(w)) {
        *why_p = "this model cannot share a prompt among choices (fan-out)";
        return BT_ERR_MISMATCH;
    }
    if (request->fanout_size > BT_SCHED_MAX_FANOUT) {
        *why_p = "its fan-out is larger than the most";
        return BT_ERR_MISMATCH;
    }
    if ((request->wants.what & BT_WANT_ANY_OF_PROMPT) != 0) {
        *why_p = "outputs of the prompt are not computed for a fan-out";
        return BT_ERR_MISMATCH;
    }
    if (is_leader(request)) {
        return BT_OK;
    }
    leader = leader_of(w, from, request);
    if (leader == NULL) {
        *why_p = "the leader of its fan-out is not here, or has begun";
        return BT_ERR_STALE;
    }
    if (!is_like(leader, request)) {
        *why_p = "it differs from the leader of its fan-out";
        return BT_ERR_MISMATCH;
    }
    return BT_OK;
}

/* Blocks of the follower alone. A prefill writes none after the prompt: there
 * all members share the leader's. */
static uint32_t own_blocks(const bt_worker_t *w, const bt_job_t *job)
{
    return (job->claim.want == BT_SCHED_CONTEXT)
               ? 0
               : bt_kv_fork_n_new(job->n_tokens, w->tokens_per_block,
                                  job->claim.n_blocks);
}

/* All members that will come have come. */
static void begin(bt_worker_t *w, bt_job_t *leader)
{
    leader->n_missing = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &leader->followers, in_fanout) {
        leader->claim.more_seats++;
        leader->claim.more_blocks += own_blocks(w, follower);
    }
    if (!bt_sched_admit_fits(&w->admit, &leader->claim)) {
        /* Alone each does: the router runs them so. */
        bt_worker_fanout_fail(w, leader, BT_ERR_BUSY, "waiting",
                              "the fan-out is too large for this worker");
        return;
    }
    leader->ops->on_request(w, leader);
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &leader->followers, in_fanout) {
        follower->ops->on_request(w, follower);
    }
}

static void one_less(bt_worker_t *w, bt_job_t *leader)
{
    leader->n_missing--;
    if (leader->n_missing == 0) {
        begin(w, leader);
    }
}

void bt_fanout_enter(bt_worker_t *w, bt_job_t *job,
                     const bt_msg_request_t *request)
{
    bt_job_t *leader;

    if (!is_fanned_out(request)) {
        job->ops->on_request(w, job);
        return;
    }
    if (is_leader(request)) {
        job->n_missing = request->fanout_size - 1;
        return;
    }
    leader = leader_of(w, job->from, request);
    BT_ASSERT_ALWAYS(leader != NULL); /* bt_fanout_check() */
    job->leader = leader;
    bt_list_push_back(&leader->followers, &job->in_fanout);
    one_less(w, leader);
}

void bt_fanout_miss(bt_worker_t *w, const bt_worker_link_t *from,
                    const bt_msg_request_t *request)
{
    bt_job_t *leader;

    if (!is_fanned_out(request) || is_leader(request)) {
        return;
    }
    leader = leader_of(w, from, request);
    if (leader != NULL) {
        one_less(w, leader);
    }
}

void bt_fanout_close(bt_worker_t *w, const bt_worker_link_t *from,
                     bt_req_key_t key)
{
    bt_job_t *job = bt_worker_job_find(w, from, key);

    if ((job != NULL) && (job->n_missing > 0)) {
        begin(w, job);
    }
}

void bt_fanout_expire(bt_worker_t *w, uint64_t now_us)
{
    const uint64_t wait_us = (uint64_t)w->config->dead_ms * 1000;
    bt_list_t *pos = w->jobs.next;

    while (pos != &w->jobs) {
        bt_job_t *job = BT_CONTAINER_OF(pos, bt_job_t, link);

        pos = pos->next;
        if ((job->n_missing > 0) &&
            (now_us > job->claim.turn.since_us + wait_us)) {
            BT_LOG_WARN("request %" PRIu64
                        ": %u of its sequences did not arrive",
                        job->key.id, job->n_missing);
            begin(w, job);
            pos = w->jobs.next; /* others may have ended with it */
        }
    }
}

void bt_fanout_leave(bt_worker_t *w, bt_job_t *job)
{
    bt_job_t *leader = job->leader;

    if (leader == NULL) {
        return;
    }
    bt_list_remove(&job->in_fanout);
    job->leader = NULL;
    if (leader->claim.more_seats > 0) {
        bt_sched_admit_shrink(&w->admit, &leader->claim, own_blocks(w, job));
    }
}

bt_status_t bt_fanout_take_blocks(bt_worker_t *w, bt_job_t *job)
{
    bt_status_t status = bt_job_take_blocks(w, job);

    if ((status != BT_OK) || (job->claim.more_seats == 0) ||
        bt_list_empty(&job->followers)) {
        return status;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &job->followers, in_fanout) {
        if (status == BT_OK) {
            status = bt_job_share_blocks(w, follower);
        }
    }
    if (status != BT_OK) {
        BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &job->followers, in_fanout) {
            bt_worker_job_return_blocks(w, follower);
        }
        bt_worker_job_return_blocks(w, job);
        job->n_reused = 0;
    }
    return status;
}

bt_status_t bt_worker_fanout_submit(bt_worker_t *w, bt_job_t *leader)
{
    const uint64_t now_us = bt_now_us();
    bt_job_t *jobs[BT_SCHED_MAX_FANOUT];
    bt_seq_t *seqs[BT_SCHED_MAX_FANOUT];
    bt_status_t status;
    uint32_t n = 0;

    /* Only its followers need what an abandoned leader would generate. */
    if (!leader->abandoned || (leader->claim.want == BT_SCHED_CONTEXT)) {
        jobs[n++] = leader;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &leader->followers, in_fanout) {
        if (follower->has_blocks) {
            jobs[n++] = follower;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        BT_ASSERT_ALWAYS(jobs[i]->has_blocks && !jobs[i]->in_engine);
        bt_worker_job_draft(w, jobs[i]);
        seqs[i] = &jobs[i]->seq;
    }
    status = bt_engine_submit_fanout(w->engine, seqs, n);
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        jobs[i]->submitted_us = now_us;
        jobs[i]->in_engine = true;
        w->n_in_engine += bt_job_seats(jobs[i]);
    }
    leader->claim.more_blocks = 0; /* each has its own now */
    leader->claim.more_seats = bt_job_seats(leader) - 1;
    return status;
}

void bt_worker_fanout_fail(bt_worker_t *w, bt_job_t *leader, bt_status_t status,
                           const char *phase, const char *text)
{
    const bool abandoned = leader->abandoned;
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(bt_job_t, each, &leader->followers, in_fanout) {
        n++;
    }
    for (; n > 0; n--) { /* an abandoned leader ends with its last follower */
        bt_worker_job_fail(
            w, BT_CONTAINER_OF(leader->followers.next, bt_job_t, in_fanout),
            status, phase, text);
    }
    if (!abandoned) {
        bt_worker_job_fail(w, leader, status, phase, text);
    }
}

#define MAX_SENDERS 1024u /* then the oldest is dropped */

typedef struct sender {
    bt_list_t link;
    uint64_t instance;
    bt_kv_split_t split;
} sender_t;

void bt_peer_sharding_init(bt_worker_t *w)
{
    bt_list_init(&w->sharding.senders);
    w->sharding.n_senders = 0;
}

static void drop_oldest(bt_worker_t *w)
{
    sender_t *sender =
        BT_CONTAINER_OF(w->sharding.senders.next, sender_t, link);

    bt_list_remove(&sender->link);
    bt_free(sender);
    w->sharding.n_senders--;
}

void bt_peer_sharding_fini(bt_worker_t *w)
{
    while (w->sharding.n_senders > 0) {
        drop_oldest(w);
    }
}

static sender_t *find(const bt_worker_t *w, uint64_t instance)
{
    BT_LIST_FOR_EACH_ENTRY(sender_t, sender, &w->sharding.senders, link) {
        if (sender->instance == instance) {
            return sender;
        }
    }
    return NULL;
}

bt_status_t bt_peer_sharding_add(bt_worker_t *w, uint64_t instance,
                                 bt_kv_split_t split)
{
    sender_t *sender = find(w, instance);

    if (sender == NULL) {
        sender = bt_calloc(1, sizeof(*sender));
        if (sender == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        sender->instance = instance;
        bt_list_push_back(&w->sharding.senders, &sender->link);
        w->sharding.n_senders++;
    }
    sender->split = split;
    if (w->sharding.n_senders > MAX_SENDERS) {
        drop_oldest(w);
    }
    return BT_OK;
}

bt_kv_split_t bt_peer_sharding_split(const bt_worker_t *w, uint64_t instance)
{
    const sender_t *sender = find(w, instance);

    return (sender != NULL) ? sender->split : (bt_kv_split_t){.tp = 1, .pp = 1};
}
