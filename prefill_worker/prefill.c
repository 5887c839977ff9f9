/* SPDX-License-Identifier: Apache-2.0 */
#include "prefill_worker/prefill.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "common/sched/sched_queue.h"

/* No arrow: no arrow leads to QUEUED, so its zero can mean that. */
#define NONE BT_PREFILL_QUEUED

/* The arrows of the header's diagram. */
static const bt_prefill_phase_t after[BT_PREFILL_PHASES][BT_PREFILL_EVENTS] = {
    [BT_PREFILL_QUEUED][BT_PREFILL_GRANT] = BT_PREFILL_GRANTED,
    [BT_PREFILL_QUEUED][BT_PREFILL_START] = BT_PREFILL_COMPUTING,
    [BT_PREFILL_QUEUED][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_GRANTED][BT_PREFILL_START] = BT_PREFILL_STREAMING,
    [BT_PREFILL_GRANTED][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_COMPUTING][BT_PREFILL_GRANT] = BT_PREFILL_STREAMING,
    [BT_PREFILL_COMPUTING][BT_PREFILL_COMPUTED] = BT_PREFILL_WAITING,
    [BT_PREFILL_COMPUTING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_STREAMING][BT_PREFILL_COMPUTED] = BT_PREFILL_SENDING,
    [BT_PREFILL_STREAMING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_WAITING][BT_PREFILL_GRANT] = BT_PREFILL_SENDING,
    [BT_PREFILL_WAITING][BT_PREFILL_DROP] = BT_PREFILL_DROPPED,
    [BT_PREFILL_WAITING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_SENDING][BT_PREFILL_SENT] = BT_PREFILL_ENDED,
    [BT_PREFILL_SENDING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_DROPPED][BT_PREFILL_GRANT] = BT_PREFILL_RESUMING,
    [BT_PREFILL_DROPPED][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_RESUMING][BT_PREFILL_START] = BT_PREFILL_STREAMING,
    [BT_PREFILL_RESUMING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_FOLLOWING][BT_PREFILL_START] = BT_PREFILL_DRAWING,
    [BT_PREFILL_FOLLOWING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_DRAWING][BT_PREFILL_COMPUTED] = BT_PREFILL_SHARING,
    [BT_PREFILL_DRAWING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_SHARING][BT_PREFILL_SENT] = BT_PREFILL_ENDED,
    [BT_PREFILL_SHARING][BT_PREFILL_ABORT] = BT_PREFILL_ENDING,
    [BT_PREFILL_ENDING][BT_PREFILL_FREE] = BT_PREFILL_ENDED,
};

bool bt_prefill_phase_after(bt_prefill_phase_t phase, bt_prefill_event_t event,
                            bt_prefill_phase_t *next_p)
{
    if (after[phase][event] == NONE) {
        return false;
    }
    *next_p = after[phase][event];
    return true;
}

unsigned bt_prefill_phase_facts(bt_prefill_phase_t phase)
{
    static const unsigned facts[BT_PREFILL_PHASES] = {
        [BT_PREFILL_QUEUED] = 0,
        [BT_PREFILL_GRANTED] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_COMPUTING] = BT_PREFILL_HAS_BLOCKS | BT_PREFILL_IN_ENGINE |
                                 BT_PREFILL_IS_WAITING_KV,
        [BT_PREFILL_STREAMING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS |
                                 BT_PREFILL_IN_ENGINE,
        [BT_PREFILL_WAITING] = BT_PREFILL_HAS_BLOCKS | BT_PREFILL_IS_WAITING_KV,
        [BT_PREFILL_SENDING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS,
        [BT_PREFILL_DROPPED] = BT_PREFILL_IS_PAUSED,
        [BT_PREFILL_RESUMING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_IS_PAUSED,
        [BT_PREFILL_FOLLOWING] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_DRAWING] = BT_PREFILL_IS_GRANTED | BT_PREFILL_HAS_BLOCKS |
                               BT_PREFILL_IN_ENGINE,
        [BT_PREFILL_SHARING] = BT_PREFILL_IS_GRANTED,
        [BT_PREFILL_ENDING] = BT_PREFILL_IS_OVER,
        [BT_PREFILL_ENDED] = BT_PREFILL_IS_OVER,
    };

    return facts[phase];
}

static bt_prefill_job_t *job_of(bt_job_t *job)
{
    return (bt_prefill_job_t *)job;
}

static uint32_t spans_needed(const bt_worker_t *w, const bt_job_t *job)
{
    return bt_kv_blocks_for(job->n_tokens, w->tokens_per_block);
}

/* The option accepts no other text. */
static bt_prefill_overlap_t overlap_of(const char *text)
{
    return (strcmp(text, "none") == 0)     ? BT_OVERLAP_NONE
           : (strcmp(text, "chunks") == 0) ? BT_OVERLAP_CHUNKS
                                           : BT_OVERLAP_LAYERS;
}

static bt_status_t open_role(bt_worker_t *w)
{
    bt_prefill_t *state = bt_calloc(1, sizeof(*state));

    if (state == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    state->overlap = overlap_of(w->config->kv_overlap);
    state->split = bt_prefill_split_default;
    bt_list_init(&state->streaming);
    bt_list_init(&state->peers);
    w->prefill = state;
    return BT_OK;
}

static void close_role(bt_worker_t *w)
{
    bt_prefill_t *state = w->prefill;

    if (state == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_prefill_peer_t, peer, &state->peers, link) {
        bt_prefill_peer_forget(w, peer);
    }
    bt_free(state);
    w->prefill = NULL;
}

/* ---- phases ---- */

/* True when token #1 is the whole answer: no decode worker gets the KV, and no
 * grant comes. */
static bool is_alone(const bt_prefill_job_t *pj)
{
    return pj->job.max_new == 1;
}

static void leave(bt_worker_t *w, bt_prefill_job_t *pj)
{
    const unsigned facts = bt_prefill_phase_facts(pj->phase);
    bt_prefill_t *state = w->prefill;

    bt_list_remove(&pj->job.claim.turn.link);
    if (((facts & BT_PREFILL_IS_WAITING_KV) != 0) && !is_alone(pj)) {
        bt_sched_admit_free_waiting(&w->admit, &pj->job.claim);
    }
    if ((facts & BT_PREFILL_IS_PAUSED) != 0) {
        state->n_paused--;
    }
}

/* Cancels the job's transfer and its computation. */
static void let_go(bt_worker_t *w, bt_prefill_job_t *pj)
{
    pj->job.ending = true;
    if (pj->job.in_engine) {
        bt_engine_cancel(&pj->job.seq);
    }
    if (pj->xfer != NULL) {
        bt_transfer_out_cancel(pj->xfer);
    }
    if (!pj->job.in_engine && (pj->xfer == NULL)) {
        bt_prefill_move(w, pj, BT_PREFILL_FREE);
    }
}

/* Asserts that the common job agrees with the phase. */
static void check_facts(const bt_job_t *job, unsigned facts)
{
    if ((facts & BT_PREFILL_IS_OVER) == 0) {
        BT_ASSERT(job->has_blocks == ((facts & BT_PREFILL_HAS_BLOCKS) != 0));
        BT_ASSERT(job->in_engine == ((facts & BT_PREFILL_IN_ENGINE) != 0));
        BT_ASSERT(!job->ending);
    }
    (void)job;
}

/* KV bytes not posted yet. */
static uint64_t bytes_left(const bt_worker_t *w, const bt_prefill_job_t *pj)
{
    const bt_kv_groups_t *groups = &w->own_groups;
    const uint32_t n_spans = pj->job.grower.n_most;
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < groups->n; g++) {
        const uint32_t needed =
            bt_kv_group_first_span(&groups->group[g], pj->job.n_tokens);
        const uint32_t first =
            (needed > pj->spans_posted) ? needed : pj->spans_posted;

        bytes += (uint64_t)(n_spans - ((first < n_spans) ? first : n_spans)) *
                 (groups->block_bytes[g] -
                  bt_kv_group_bytes_of(groups, g, pj->layers_posted));
    }
    return bytes;
}

/* The job may be freed afterwards. */
static void enter(bt_worker_t *w, bt_prefill_job_t *pj,
                  bt_prefill_phase_t phase)
{
    const unsigned facts = bt_prefill_phase_facts(phase);
    bt_prefill_t *state = w->prefill;

    pj->phase = phase;
    if (((facts & BT_PREFILL_IS_WAITING_KV) != 0) && !is_alone(pj)) {
        bt_sched_admit_hold_waiting(&w->admit, &pj->job.claim);
    }
    if ((facts & BT_PREFILL_IS_PAUSED) != 0) {
        state->n_paused++;
        bt_worker_job_return_blocks(w, &pj->job);
    }
    if (phase == BT_PREFILL_SHARING) { /* its leader holds them */
        bt_worker_job_return_blocks(w, &pj->job);
    }
    check_facts(&pj->job, facts);
    /* Nothing is left to compute while it waits for its grant: of these jobs
     * the last to come is dropped, not the longest. */
    pj->job.claim.turn.slack_us =
        (phase == BT_PREFILL_WAITING) ? 0 : pj->job.slack_us;
    switch (phase) {
    case BT_PREFILL_QUEUED:
        bt_sched_queue_insert(is_alone(pj) ? &w->admit.granted
                                           : &w->admit.ungranted,
                              &pj->job.claim.turn);
        break;
    case BT_PREFILL_GRANTED:
    case BT_PREFILL_RESUMING:
        bt_sched_queue_insert(&w->admit.granted, &pj->job.claim.turn);
        break;
    case BT_PREFILL_STREAMING:
        bt_list_push_back(&state->streaming, &pj->job.claim.turn.link);
        break;
    case BT_PREFILL_WAITING:
        bt_sched_queue_insert(&w->admit.waiting, &pj->job.claim.turn);
        break;
    case BT_PREFILL_SENDING:
        pj->tail_bytes = bytes_left(w, pj);
        pj->sending_us = bt_now_us();
        bt_prefill_push(w, pj);
        break;
    case BT_PREFILL_COMPUTING:
    case BT_PREFILL_DROPPED: /* the grant requeues it */
    case BT_PREFILL_FOLLOWING:
    case BT_PREFILL_DRAWING:
    case BT_PREFILL_SHARING:
        break;
    case BT_PREFILL_ENDING:
        let_go(w, pj);
        break;
    case BT_PREFILL_ENDED:
        bt_worker_job_end(w, &pj->job);
        break;
    }
}

void bt_prefill_move(bt_worker_t *w, bt_prefill_job_t *pj,
                     bt_prefill_event_t event)
{
    bt_prefill_phase_t next = pj->phase;
    const bool is_legal = bt_prefill_phase_after(pj->phase, event, &next);

    BT_ASSERT(is_legal);
    if (is_legal) {
        leave(w, pj);
        enter(w, pj, next);
    }
}

/* ---- requests, grants, cancels ---- */

static void on_request(bt_worker_t *w, bt_job_t *job)
{
    job->seq.leave_after_first = true;
    enter(w, job_of(job),
          (job->leader == NULL) ? BT_PREFILL_QUEUED : BT_PREFILL_FOLLOWING);
}

static bt_status_t check_grant(const bt_worker_t *w, const bt_job_t *job,
                               const bt_msg_grant_t *grant, const char **why_p)
{
    if (grant->instance != job->peer) {
        *why_p = "the grant comes from another decode worker";
        return BT_ERR_MISMATCH;
    }
    if ((grant->n_cached >= job->n_tokens) ||
        (grant->n_cached % w->tokens_per_block != 0)) {
        *why_p = "the grant leaves no whole block to send";
        return BT_ERR_MISMATCH;
    }
    if (grant->n_regions == 0) {
        *why_p = "the grant is empty";
        return BT_ERR_BAD_MESSAGE;
    }
    return BT_OK;
}

static void on_grant(bt_worker_t *w, bt_worker_link_t *from,
                     const bt_msg_grant_t *grant)
{
    bt_job_t *job = bt_worker_job_find(w, from, grant->key);
    const char *why = "no memory for the grant";
    bt_prefill_phase_t next;
    bt_prefill_job_t *pj;
    bt_status_t status;

    if ((job == NULL) || job->ending) {
        return; /* canceled meanwhile, as it is at the decode worker */
    }
    if (job->ops != &bt_prefill_ops) {
        BT_LOG_WARN("request %" PRIu64
                    ": GRANT for a locally decoded request ignored",
                    job->key.id);
        return;
    }
    pj = job_of(job);
    if (is_alone(pj)) {
        return; /* an older router asked a decode worker anyway */
    }
    if (!bt_prefill_phase_after(pj->phase, BT_PREFILL_GRANT, &next)) {
        BT_LOG_WARN("request %" PRIu64 " received a second GRANT", job->key.id);
        return;
    }
    status = check_grant(w, job, grant, &why);
    if (status == BT_OK) {
        status =
            bt_wire_regions_copy(grant->regions, grant->n_regions, &pj->grant);
    }
    if (status != BT_OK) {
        bt_worker_fanout_fail(w, job, status, "transfer", why);
        return;
    }
    pj->n_regions = grant->n_regions;
    pj->spans_cached = grant->n_cached / w->tokens_per_block;
    pj->spans_posted = pj->spans_cached;
    bt_prefill_move(w, pj, BT_PREFILL_GRANT);
    if (next == BT_PREFILL_STREAMING) {
        bt_prefill_push(w, pj); /* chunks that are finished by now */
    }
}

static void on_abort(bt_worker_t *w, bt_job_t *job)
{
    bt_prefill_move(w, job_of(job), BT_PREFILL_ABORT);
}

/* ---- what is computed when ---- */

/* Starts from the first token without KV, also when it is recomputed. */
static void lay_seq(const bt_worker_t *w, bt_job_t *job, uint32_t n_reused)
{
    job->seq.sched.n_tokens = job->n_tokens;
    job->seq.sched.n_computed = n_reused * w->tokens_per_block;
    job->seq.n_drawn = 0;
    atomic_store_explicit(&job->seq.n_layers, 0, memory_order_relaxed);
}

/* Followers that begin with it; all have sampled when it is recomputed. */
static void begin_followers(bt_worker_t *w, bt_job_t *job,
                            void (*what)(bt_worker_t *, bt_job_t *, bt_job_t *))
{
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &job->followers, in_fanout) {
        if (job_of(follower)->phase == BT_PREFILL_FOLLOWING) {
            what(w, job, follower);
        }
    }
}

static void lay_follower(bt_worker_t *w, bt_job_t *leader, bt_job_t *follower)
{
    lay_seq(w, follower, leader->n_reused);
}

static void start_follower(bt_worker_t *w, bt_job_t *leader, bt_job_t *follower)
{
    (void)leader;
    bt_prefill_move(w, job_of(follower), BT_PREFILL_START);
}

static void begin(bt_worker_t *w, bt_job_t *job)
{
    bt_prefill_job_t *pj = job_of(job);
    bt_status_t status;

    lay_seq(w, job, job->n_reused);
    job->seq.tell_layers = true;
    job->seq.clear_tail = true; /* transferred to another worker */
    pj->n_computed = job->seq.sched.n_computed;
    begin_followers(w, job, lay_follower);
    status = bt_worker_fanout_submit(w, job);
    if (status != BT_OK) { /* cannot happen: seats are counted */
        bt_worker_fanout_fail(w, job, status, "waiting",
                              "no seat in the batch");
        return;
    }
    begin_followers(w, job, start_follower);
    bt_prefill_move(w, pj, BT_PREFILL_START);
}

/* The KV of the prompt is recomputed when its grant comes. */
static void drop(bt_worker_t *w, bt_job_t *job)
{
    bt_prefill_move(w, job_of(job), BT_PREFILL_DROP);
}

static void advance(bt_worker_t *w)
{
    bt_prefill_reconnect(w);
    bt_prefill_stream(w);
}

/* ---- what the engine says ---- */

/* All that sample from the prompt have done so: its KV may be evicted. */
static void check_all_drawn(bt_worker_t *w, bt_prefill_job_t *lead)
{
    if (lead->job.in_engine) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, follower, &lead->job.followers,
                           in_fanout) {
        if (follower->in_engine) {
            return;
        }
    }
    lead->complete_us = bt_now_us();
    bt_prefill_move(w, lead, BT_PREFILL_COMPUTED);
}

/* A follower has sampled. With the last one that needs the KV the leader is
 * over. */
static void on_drawn(bt_worker_t *w, bt_prefill_job_t *pj)
{
    bt_job_t *lead = (pj->job.leader != NULL) ? pj->job.leader : &pj->job;
    const bool is_over = pj->finish != BT_FINISH_NONE; /* with token #1 */
    const bool is_last =
        (lead == &pj->job)
            ? bt_list_empty(&lead->followers)
            : lead->abandoned && (lead->followers.next == lead->followers.prev);

    if (lead == &pj->job) {
        bt_worker_job_remember(w, lead, lead->n_tokens);
    } else {
        bt_prefill_move(w, pj, BT_PREFILL_COMPUTED);
    }
    if (is_over) { /* it may be freed afterwards */
        bt_worker_job_abort(w, &pj->job);
    }
    if (!is_over || !is_last) {
        check_all_drawn(w, job_of(lead));
    }
}

static void on_left(bt_worker_t *w, bt_prefill_job_t *pj, bt_finish_t finish)
{
    bt_job_t *job = &pj->job;

    if (pj->phase == BT_PREFILL_ENDING) {
        if (pj->xfer == NULL) {
            bt_prefill_move(w, pj, BT_PREFILL_FREE);
        }
        return;
    }
    if (job->seq.grammar.has_failed) { /* that of all of its fan-out */
        bt_worker_fanout_fail(w, (job->leader != NULL) ? job->leader : job,
                              BT_ERR_AMBIGUOUS, "context phase",
                              BT_JOB_GRAMMAR_FAILED);
        return;
    }
    if (finish == BT_FINISH_ERROR) { /* its KV cannot be trusted (I2) */
        bt_worker_fanout_fail(w, (job->leader != NULL) ? job->leader : job,
                              BT_ERR_DEVICE, "context phase",
                              "the device failed");
        return;
    }
    on_drawn(w, pj);
}

static void on_report_item(bt_worker_t *w, const bt_report_item_t *item)
{
    bt_prefill_job_t *pj = job_of(bt_worker_job_of_seq(item->seq));

    switch (item->kind) {
    case BT_REPORT_CHUNK:
        pj->n_computed = item->n_computed;
        if (pj->phase == BT_PREFILL_STREAMING) {
            bt_prefill_push(w, pj);
        }
        break;
    case BT_REPORT_TOKEN:
        pj->token = item->token;
        pj->finish = item->finish;
        /* Not again after its KV was dropped. */
        if (!pj->token_sent && !pj->job.ending && !pj->job.abandoned) {
            bt_worker_send_prefilled(w, &pj->job);
            bt_worker_send_token(w, &pj->job, item->index, item->token,
                                 item->finish);
            pj->token_sent = true;
        }
        break;
    case BT_REPORT_LEFT:
        pj->job.seq.rows = NULL; /* not again when its KV was dropped */
        on_left(w, pj, item->finish);
        break;
    }
}

static void job_fini(bt_job_t *job)
{
    bt_free(job_of(job)->grant);
}

static bt_job_wait_t waits_for(const bt_job_t *job)
{
    const bt_prefill_job_t *pj = (const bt_prefill_job_t *)job;

    switch (pj->phase) {
    case BT_PREFILL_QUEUED:
    case BT_PREFILL_GRANTED:
    case BT_PREFILL_RESUMING:
    case BT_PREFILL_FOLLOWING:
        return BT_JOB_WAITS_TURN;
    case BT_PREFILL_COMPUTING:
    case BT_PREFILL_STREAMING:
    case BT_PREFILL_DRAWING:
        return bt_seq_has_begun(&job->seq) ? BT_JOB_WAITS_NOT
                                           : BT_JOB_WAITS_TURN;
    case BT_PREFILL_WAITING: /* in the decode worker's queue */
    case BT_PREFILL_DROPPED:
    case BT_PREFILL_SENDING:
    case BT_PREFILL_SHARING:
    case BT_PREFILL_ENDING:
    case BT_PREFILL_ENDED:
        break;
    }
    return BT_JOB_WAITS_NOT;
}

static void fill_stats(const bt_worker_t *w, bt_msg_stats_t *stats)
{
    const bt_prefill_t *state = w->prefill;

    stats->paused_requests += state->n_paused;
    stats->leases += state->n_xfers;
}

const bt_worker_ops_t bt_prefill_ops = {
    .kinds = 1u << BT_REQUEST_PREFILL,
    .events = 1u << BT_TRANSFER_OUT_DONE | 1u << BT_TRANSFER_PEER_LOST |
              1u << BT_TRANSFER_PEER_UP,
    .job_bytes = sizeof(bt_prefill_job_t),
    .spans_needed = spans_needed,
    .open = open_role,
    .close = close_role,
    .on_request = on_request,
    .begin = begin,
    .drop = drop,
    .on_abort = on_abort,
    .on_grant = on_grant,
    .on_peer = bt_prefill_on_peer,
    .on_peer_gone = bt_prefill_on_peer_gone,
    .on_router_gone = bt_prefill_on_router_gone,
    .on_report_item = on_report_item,
    .on_transfer = bt_prefill_on_transfer,
    .advance = advance,
    .waits_for = waits_for,
    .fill_stats = fill_stats,
    .job_fini = job_fini,
};
