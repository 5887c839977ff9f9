/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_worker/decode.h"

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "common/sched/sched_queue.h"
#include "worker/worker_priv.h"

/* No arrow: no arrow leads to QUEUED, so its zero can mean that. */
#define NONE BT_DECODE_QUEUED

/* The arrows of the header's diagram. */
static const bt_decode_phase_t after[BT_DECODE_PHASES][BT_DECODE_EVENTS] = {
    [BT_DECODE_QUEUED][BT_DECODE_OPEN] = BT_DECODE_LEASED,
    [BT_DECODE_QUEUED][BT_DECODE_RUN] = BT_DECODE_RUNNING,
    [BT_DECODE_QUEUED][BT_DECODE_ABORT] = BT_DECODE_ENDING,
    [BT_DECODE_LEASED][BT_DECODE_PROVEN] = BT_DECODE_JOINING,
    [BT_DECODE_LEASED][BT_DECODE_ABORT] = BT_DECODE_QUARANTINED,
    [BT_DECODE_JOINING][BT_DECODE_RUN] = BT_DECODE_RUNNING,
    [BT_DECODE_JOINING][BT_DECODE_ABORT] = BT_DECODE_ENDING,
    [BT_DECODE_FOLLOWING][BT_DECODE_OPEN] = BT_DECODE_SHARING,
    [BT_DECODE_FOLLOWING][BT_DECODE_RUN] = BT_DECODE_RUNNING,
    [BT_DECODE_FOLLOWING][BT_DECODE_ABORT] = BT_DECODE_ENDING,
    [BT_DECODE_SHARING][BT_DECODE_RUN] = BT_DECODE_RUNNING,
    [BT_DECODE_SHARING][BT_DECODE_ABORT] = BT_DECODE_ENDING,
    [BT_DECODE_RUNNING][BT_DECODE_LEFT] = BT_DECODE_ENDING,
    [BT_DECODE_RUNNING][BT_DECODE_PAUSE] = BT_DECODE_PAUSING,
    [BT_DECODE_RUNNING][BT_DECODE_ABORT] = BT_DECODE_STOPPING,
    [BT_DECODE_PAUSING][BT_DECODE_LEFT] = BT_DECODE_ENDING,
    [BT_DECODE_PAUSING][BT_DECODE_PARK] = BT_DECODE_PAUSED,
    [BT_DECODE_PAUSING][BT_DECODE_ABORT] = BT_DECODE_STOPPING,
    [BT_DECODE_PAUSED][BT_DECODE_RUN] = BT_DECODE_RUNNING,
    [BT_DECODE_PAUSED][BT_DECODE_ABORT] = BT_DECODE_ENDING,
    [BT_DECODE_STOPPING][BT_DECODE_LEFT] = BT_DECODE_ENDING,
    [BT_DECODE_QUARANTINED][BT_DECODE_FREE] = BT_DECODE_ENDED,
    [BT_DECODE_ENDING][BT_DECODE_FREE] = BT_DECODE_ENDED,
};

bool bt_decode_phase_after(bt_decode_phase_t phase, bt_decode_event_t event,
                           bt_decode_phase_t *next_p)
{
    if (after[phase][event] == NONE) {
        return false;
    }
    *next_p = after[phase][event];
    return true;
}

unsigned bt_decode_phase_facts(bt_decode_phase_t phase)
{
    static const unsigned facts[BT_DECODE_PHASES] = {
        [BT_DECODE_QUEUED] = 0,
        [BT_DECODE_LEASED] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_JOINING] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_FOLLOWING] = 0,
        [BT_DECODE_SHARING] = BT_DECODE_HAS_BLOCKS,
        [BT_DECODE_RUNNING] =
            BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS | BT_DECODE_IN_ENGINE,
        [BT_DECODE_PAUSING] =
            BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS | BT_DECODE_IN_ENGINE,
        [BT_DECODE_PAUSED] = 0,
        [BT_DECODE_STOPPING] = BT_DECODE_HAS_SEAT | BT_DECODE_HAS_BLOCKS |
                               BT_DECODE_IN_ENGINE | BT_DECODE_IS_OVER,
        [BT_DECODE_QUARANTINED] =
            BT_DECODE_HAS_BLOCKS | BT_DECODE_IS_QUARANTINED | BT_DECODE_IS_OVER,
        [BT_DECODE_ENDING] = BT_DECODE_IS_OVER,
        [BT_DECODE_ENDED] = BT_DECODE_IS_OVER,
    };

    return facts[phase];
}

/* The job's part in the batch. A follower takes part through its leader until
 * it runs. */
static bt_sched_part_t part_of(bt_decode_phase_t phase)
{
    static const bt_sched_part_t parts[BT_DECODE_PHASES] = {
        [BT_DECODE_QUEUED] = BT_SCHED_OUTSIDE,
        [BT_DECODE_LEASED] = BT_SCHED_COMING,
        [BT_DECODE_JOINING] = BT_SCHED_READY,
        [BT_DECODE_FOLLOWING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_SHARING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_RUNNING] = BT_SCHED_INSIDE,
        [BT_DECODE_PAUSING] = BT_SCHED_INSIDE,
        [BT_DECODE_PAUSED] = BT_SCHED_PAUSED,
        [BT_DECODE_STOPPING] = BT_SCHED_INSIDE,
        [BT_DECODE_QUARANTINED] = BT_SCHED_OUTSIDE,
        [BT_DECODE_ENDING] = BT_SCHED_OUTSIDE,
        [BT_DECODE_ENDED] = BT_SCHED_OUTSIDE,
    };

    return parts[phase];
}

static bt_decode_job_t *job_of(bt_job_t *job)
{
    return (bt_decode_job_t *)job;
}

/* Spans for every position that will ever be computed here. The last sampled
 * token is never fed back, so it needs no block. Models that search with beams
 * have one block in each span. */
static uint32_t spans_needed(const bt_worker_t *w, const bt_job_t *job)
{
    if (job->beam_params.width > 0) {
        return (uint32_t)bt_beams_n_blocks(job->beam_params.width,
                                           job->n_tokens, job->max_new,
                                           w->tokens_per_block);
    }
    return bt_kv_blocks_for((uint64_t)job->n_tokens + job->max_new - 1,
                            w->tokens_per_block);
}

static void close_role(bt_worker_t *w)
{
    bt_free(w->decode);
    w->decode = NULL;
}

static bt_status_t open_role(bt_worker_t *w)
{
    bt_decode_t *state = bt_calloc(1, sizeof(*state));

    if (state == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&state->leased);
    bt_list_init(&state->ready);
    w->decode = state;
    return BT_OK;
}

/* ---- phases ---- */

/* A seat that the engine does not count yet. */
static bool is_leased(unsigned facts)
{
    return (facts & (BT_DECODE_HAS_SEAT | BT_DECODE_IN_ENGINE)) ==
           BT_DECODE_HAS_SEAT;
}

static void leave(bt_worker_t *w, bt_decode_job_t *dj)
{
    const unsigned facts = bt_decode_phase_facts(dj->phase);
    bt_decode_t *state = w->decode;

    bt_list_remove(&dj->job.claim.turn.link);
    bt_preempt_out(w, &dj->job);
    w->preemption.n_paused -= (dj->phase == BT_DECODE_PAUSED);
    if (is_leased(facts)) {
        bt_sched_admit_free_lease(&w->admit, &dj->job.claim);
    }
    if ((facts & BT_DECODE_IS_QUARANTINED) != 0) {
        state->quarantined_blocks -= dj->job.claim.n_blocks;
    }
}

/* Asserts that the common job agrees with the phase. */
static void check_facts(const bt_job_t *job, unsigned facts)
{
    BT_ASSERT(job->in_engine == ((facts & BT_DECODE_IN_ENGINE) != 0));
    if ((facts & BT_DECODE_IS_OVER) == 0) {
        BT_ASSERT(job->has_blocks == ((facts & BT_DECODE_HAS_BLOCKS) != 0));
        BT_ASSERT(!job->ending);
    }
    (void)job;
    (void)facts;
}

/* The job may be freed afterwards. */
static void enter(bt_worker_t *w, bt_decode_job_t *dj, bt_decode_phase_t phase)
{
    const unsigned facts = bt_decode_phase_facts(phase);
    bt_decode_t *state = w->decode;

    dj->phase = phase;
    if (is_leased(facts)) {
        bt_sched_admit_hold_lease(&w->admit, &dj->job.claim);
    }
    if ((facts & BT_DECODE_IS_QUARANTINED) != 0) {
        state->quarantined_blocks += dj->job.claim.n_blocks;
    }
    if (phase == BT_DECODE_PAUSED) {
        bt_preempt_park(w, &dj->job);
    }
    bt_sched_batch_move(&w->admit.batch, &dj->job.claim.part, part_of(phase));
    check_facts(&dj->job, facts);
    switch (phase) {
    case BT_DECODE_QUEUED:
    case BT_DECODE_PAUSED:
        bt_sched_queue_insert(&w->admit.leases, &dj->job.claim.turn);
        break;
    case BT_DECODE_LEASED:
        state->n_leases++;
        bt_list_push_back(&state->leased, &dj->job.claim.turn.link);
        break;
    case BT_DECODE_JOINING:
        bt_list_push_back(&state->ready, &dj->job.claim.turn.link);
        bt_transfer_in_close(dj->region); /* IN_CLOSED follows */
        break;
    case BT_DECODE_QUARANTINED:
        bt_transfer_in_close(dj->region);
        break;
    case BT_DECODE_FOLLOWING:
    case BT_DECODE_SHARING:
        break;
    case BT_DECODE_RUNNING:
        bt_preempt_in(w, &dj->job, false);
        break;
    case BT_DECODE_PAUSING:
    case BT_DECODE_STOPPING:
        bt_preempt_in(w, &dj->job, true);
        bt_engine_cancel(&dj->job.seq);
        bt_engine_wake(w->engine);
        break;
    case BT_DECODE_ENDING:
        dj->job.ending = true;
        if (dj->region == NULL) {
            bt_decode_move(w, dj, BT_DECODE_FREE);
        }
        break;
    case BT_DECODE_ENDED:
        bt_worker_job_end(w, &dj->job);
        break;
    }
}

void bt_decode_move(bt_worker_t *w, bt_decode_job_t *dj,
                    bt_decode_event_t event)
{
    bt_decode_phase_t next = dj->phase;
    const bool is_legal = bt_decode_phase_after(dj->phase, event, &next);

    BT_ASSERT(is_legal);
    if (is_legal) {
        leave(w, dj);
        enter(w, dj, next);
    }
}

/* ---- requests, cancels ---- */

static void on_request(bt_worker_t *w, bt_job_t *job)
{
    enter(w, job_of(job),
          (job->leader == NULL) ? BT_DECODE_QUEUED : BT_DECODE_FOLLOWING);
}

static void on_abort(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_job_t *dj = job_of(job);
    /* Jobs failed by the device have left the engine already. */
    const bool has_left = ((dj->phase == BT_DECODE_RUNNING) ||
                           (dj->phase == BT_DECODE_PAUSING)) &&
                          !job->in_engine;

    bt_decode_move(w, dj, has_left ? BT_DECODE_LEFT : BT_DECODE_ABORT);
}

static void pause_one(bt_worker_t *w, bt_job_t *job)
{
    bt_decode_move(w, job_of(job), BT_DECODE_PAUSE);
}

static bool awaits_kv(const bt_decode_job_t *dj)
{
    return (dj->phase == BT_DECODE_QUEUED) || (dj->phase == BT_DECODE_LEASED) ||
           (dj->phase == BT_DECODE_FOLLOWING) ||
           ((dj->phase == BT_DECODE_SHARING) &&
            (job_of(dj->job.leader)->phase == BT_DECODE_LEASED));
}

static void on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance)
{
    /* A sender is lost: its unfinished transfers will not complete. */
    BT_LIST_FOR_EACH_ENTRY(bt_decode_job_t, dj, &w->jobs, job.link) {
        if ((dj->job.ops == &bt_decode_ops) && (dj->job.from == from) &&
            (dj->job.peer == instance) &&
            (dj->job.kind == BT_REQUEST_GENERATE) && awaits_kv(dj)) {
            bt_worker_job_fail(w, &dj->job, BT_ERR_PEER_LOST, "transfer",
                               "the prefill worker is gone");
        }
    }
}

/* Caches prompt and answer for a later turn of the conversation. The last
 * sampled token has no K and V yet, nor have tokens that a resumed job has not
 * recomputed. */
static void remember(bt_worker_t *w, const bt_decode_job_t *dj,
                     bt_finish_t finish)
{
    if ((finish != BT_FINISH_NONE) && (finish != BT_FINISH_ERROR) &&
        (dj->job.seq.n_drawn > 0)) {
        bt_worker_job_remember(w, &dj->job, dj->job.seq.sched.n_computed);
    }
}

static void on_report_item(bt_worker_t *w, const bt_report_item_t *item)
{
    bt_decode_job_t *dj = job_of(bt_worker_job_of_seq(item->seq));
    const bool has_paused = (dj->phase == BT_DECODE_PAUSING) &&
                            (item->finish == BT_FINISH_CANCELED);

    bt_worker_job_copied(w, &dj->job);
    switch (item->kind) {
    case BT_REPORT_CHUNK:
        if (!dj->job.ending && (dj->job.seq.beams != NULL) &&
            (dj->job.kind == BT_REQUEST_LOCAL) &&
            (item->n_computed == dj->job.n_tokens)) {
            bt_worker_send_prefilled(w, &dj->job);
        }
        break;
    case BT_REPORT_TOKEN:
        bt_preempt_on_token(&dj->job, item->index);
        if (!dj->job.ending) {
            if ((dj->job.kind == BT_REQUEST_LOCAL) &&
                (item->index == dj->job.seq.first_index)) {
                bt_worker_send_prefilled(w, &dj->job);
            }
            bt_worker_send_token(w, &dj->job, item->index, item->token,
                                 item->finish);
        }
        break;
    case BT_REPORT_LEFT:
        if (!dj->job.ending && (dj->job.seq.beams != NULL) &&
            ((item->finish == BT_FINISH_STOP) ||
             (item->finish == BT_FINISH_LENGTH))) {
            bt_worker_send_beams(w, &dj->job);
        }
        if (!dj->job.ending && dj->job.seq.grammar.has_failed) {
            bt_worker_job_fail(w, &dj->job, BT_ERR_AMBIGUOUS, "decode",
                               BT_JOB_GRAMMAR_FAILED);
            break;
        }
        if (!dj->job.ending && (item->finish == BT_FINISH_ERROR)) {
            bt_worker_job_fail(w, &dj->job, BT_ERR_DEVICE, "decode",
                               "the device failed");
            break;
        }
        if (has_paused) {
            bt_decode_move(w, dj, BT_DECODE_PARK);
            break;
        }
        remember(w, dj, item->finish);
        bt_decode_move(w, dj, BT_DECODE_LEFT);
        break;
    }
}

static bool take_back(bt_worker_t *w)
{
    bt_decode_t *state = w->decode;

    if (bt_list_empty(&state->leased)) {
        return false;
    }
    bt_worker_job_fail(
        w, BT_CONTAINER_OF(state->leased.prev, bt_job_t, claim.turn.link),
        BT_ERR_BUSY, "grant",
        "others here want its blocks, and its KV has not come");
    return true;
}

static bt_job_wait_t waits_for(const bt_job_t *job)
{
    const bt_decode_job_t *dj = (const bt_decode_job_t *)job;
    const bt_decode_job_t *lead = (const bt_decode_job_t *)job->leader;

    switch (dj->phase) {
    case BT_DECODE_QUEUED:
    case BT_DECODE_FOLLOWING:
    case BT_DECODE_JOINING:
    case BT_DECODE_PAUSED:
        return BT_JOB_WAITS_TURN;
    case BT_DECODE_LEASED:
        return BT_JOB_WAITS_KV;
    case BT_DECODE_SHARING:
        return ((lead != NULL) && (lead->phase == BT_DECODE_LEASED))
                   ? BT_JOB_WAITS_KV
                   : BT_JOB_WAITS_TURN;
    case BT_DECODE_RUNNING: /* a local prefill may still wait */
        return ((job->kind == BT_REQUEST_LOCAL) && !bt_seq_has_begun(&job->seq))
                   ? BT_JOB_WAITS_TURN
                   : BT_JOB_WAITS_NOT;
    case BT_DECODE_PAUSING:
    case BT_DECODE_STOPPING:
    case BT_DECODE_QUARANTINED:
    case BT_DECODE_ENDING:
    case BT_DECODE_ENDED:
        break;
    }
    return BT_JOB_WAITS_NOT;
}

static void fill_stats(const bt_worker_t *w, bt_msg_stats_t *stats)
{
    const bt_decode_t *state = w->decode;

    stats->leases += state->n_leases;
    stats->paused_requests += w->preemption.n_paused;
    stats->quarantined_blocks += state->quarantined_blocks;
}

const bt_worker_ops_t bt_decode_ops = {
    .kinds = 1u << BT_REQUEST_GENERATE | 1u << BT_REQUEST_LOCAL,
    .events = 1u << BT_TRANSFER_OPENED | 1u << BT_TRANSFER_IN_DONE |
              1u << BT_TRANSFER_IN_FAILED | 1u << BT_TRANSFER_IN_CLOSED |
              1u << BT_TRANSFER_STUCK,
    .job_bytes = sizeof(bt_decode_job_t),
    .spans_needed = spans_needed,
    .open = open_role,
    .close = close_role,
    .on_request = on_request,
    .begin = bt_decode_begin,
    .take_back = take_back,
    .on_abort = on_abort,
    .pause = pause_one,
    .on_peer_gone = on_peer_gone,
    .on_report_item = on_report_item,
    .on_transfer = bt_decode_on_transfer,
    .advance = bt_decode_advance,
    .waits_for = waits_for,
    .fill_stats = fill_stats,
};
