/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker_priv.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/fanout.h"

static bt_job_t *job_of(bt_sched_kv_demand_t *grower)
{
    return BT_CONTAINER_OF(grower, bt_job_t, grower);
}

static bt_job_t *job_of_claim(bt_sched_claim_t *claim)
{
    return BT_CONTAINER_OF(claim, bt_job_t, claim);
}

static bool preempt_is_wanted(const bt_config_t *config)
{
    return strcmp(config->scheduler_policy, "max_utilization") == 0;
}

bt_status_t bt_preempt_open(bt_worker_t *w)
{
    const char *policy = w->config->scheduler_policy;
    const bool is_on = preempt_is_wanted(w->config);

    if (!is_on && (strcmp(policy, "guaranteed_no_evict") != 0)) {
        BT_LOG_ERROR("scheduler-policy %s is unknown", policy);
        return BT_ERR_INVALID_PARAM;
    }
    for (uint32_t g = 0; is_on && (g < w->groups.n); g++) {
        if (w->groups.group[g].kind != BT_KV_PAGED) {
            BT_LOG_ERROR("--scheduler-policy max_utilization: this model keeps "
                         "a state that does not grow by blocks; "
                         "guaranteed_no_evict runs it");
            return BT_ERR_UNSUPPORTED;
        }
    }
    bt_sched_preempt_init(&w->preemption.sched, is_on, w->tokens_per_block,
                          BT_SCHED_PREEMPT_AHEAD_TOKENS);
    return BT_OK;
}

void bt_preempt_in(bt_worker_t *w, bt_job_t *job, bool leaves)
{
    if (w->preemption.sched.is_on) {
        bt_sched_preempt_in(&w->preemption.sched, &job->grower, leaves);
    }
}

void bt_preempt_out(bt_worker_t *w, bt_job_t *job)
{
    bt_sched_preempt_out(&w->preemption.sched, &job->grower);
}

void bt_preempt_on_token(bt_job_t *job, uint32_t index)
{
    job->grower.n_known = job->seq.n_prompt + index + 1;
}

void bt_preempt_park(bt_worker_t *w, bt_job_t *job)
{
    bt_seq_t *seq = &job->seq;

    BT_ASSERT_ALWAYS(!job->in_engine && job->has_blocks);
    BT_LOG_DEBUG("request %" PRIu64 ": paused with %u tokens", job->key.id,
                 seq->sched.n_tokens);
    bt_worker_job_remember(w, job, seq->sched.n_computed);
    bt_worker_job_return_blocks(w, job);
    job->n_computed = seq->sched.n_computed;
    job->grower.n_known = seq->sched.n_tokens;
    job->grower.n_pauses++;
    job->paused_at_us = bt_now_us();
    w->preemption.n_pauses++;
    w->preemption.n_paused++;
    /* The job keeps its turn by arrival time, before all later ones: it
     * computes nothing of its prompt for the first time, and needs no other
     * worker. */
    job->claim.turn.slack_us = 0;
    job->claim.want = BT_SCHED_BOTH_PHASES;
    bt_logprob_output_keep(job);
    bt_job_claim_blocks(w, job);
}

void bt_preempt_resume(bt_worker_t *w, bt_job_t *job)
{
    const uint32_t n_known = job->n_reused * w->tokens_per_block;
    bt_seq_t *seq = &job->seq;

    seq->sched.n_computed = n_known;
    seq->copy[0] = (bt_kv_copy_t){0, 0};
    atomic_store_explicit(&seq->cancel, false, memory_order_relaxed);
    job->paused_us += bt_now_us() - job->paused_at_us;
    w->preemption.n_resumes++;
    if (job->n_computed > n_known) {
        w->preemption.tokens_recomputed += job->n_computed - n_known;
    }
}

/* Windowed blocks are held from the beginning: a sequence grows in whole groups
 * only. */
static uint32_t free_spans(const bt_worker_t *w)
{
    return (w->n_whole == 0) ? UINT32_MAX : bt_job_free_blocks(w) / w->n_whole;
}

/* Drops complete KV that waits for a grant. @return false: there is none */
static bool drop_waiting(bt_worker_t *w)
{
    bt_sched_claim_t *claim = bt_sched_admit_victim(&w->admit);
    bt_job_t *job;

    if (claim == NULL) {
        return false;
    }
    job = job_of_claim(claim);
    BT_LOG_DEBUG("request %" PRIu64 ": waiting KV dropped", job->key.id);
    job->ops->drop(w, job);
    return true;
}

/* Gives blocks to running jobs that lack some. For that, drops complete KV that
 * waits for a grant, or preempts other jobs.
 * @return true: no running job lacks blocks; false: one still does, so no
 *         waiting job may begin */
static bool serve_growers(bt_worker_t *w)
{
    bt_sched_kv_demand_t *who = NULL;
    uint32_t n_spans = 0;
    bool has_grown = false;
    bool goes_on = true;
    bool enough = false;

    while (goes_on) {
        switch (bt_sched_preempt_next(&w->preemption.sched, free_spans(w), &who,
                                      &n_spans)) {
        case BT_SCHED_ENOUGH:
            enough = true;
            goes_on = false;
            break;
        case BT_SCHED_GROW:
            goes_on = bt_job_grow(w, job_of(who), n_spans) == BT_OK;
            has_grown = has_grown || goes_on;
            break;
        case BT_SCHED_PAUSE:
            if (!drop_waiting(w)) {
                job_of(who)->ops->pause(w, job_of(who));
            }
            break;
        case BT_SCHED_AWAIT:
            goes_on = false;
            break;
        case BT_SCHED_SHORT:
            goes_on = drop_waiting(w);
            break;
        }
    }
    if (has_grown) {
        bt_engine_wake(w->engine);
    }
    return enough;
}

void bt_window_eviction_open(bt_worker_t *w)
{
    w->n_whole = bt_kv_groups_n_whole(&w->groups);
    w->window_tokens = 0;
    for (uint32_t g = 0; g < w->groups.n; g++) {
        const uint32_t window = w->groups.group[g].window_tokens;

        w->window_tokens =
            (window > w->window_tokens) ? window : w->window_tokens;
    }
}

/* The current iteration, and the next one. */
static uint32_t ahead_of(const bt_worker_t *w, bool computes_chunks)
{
    return 2 * (computes_chunks ? bt_worker_most_chunk(w)
                                : w->preemption.sched.ahead_tokens);
}

bt_kv_reach_t bt_window_eviction_reach(const bt_worker_t *w,
                                       const bt_job_t *job, uint32_t n_spans)
{
    return (bt_kv_reach_t){
        .n_spans = n_spans,
        .n_most = job->grower.n_most,
        .ahead_tokens = ahead_of(w, job->claim.want != BT_SCHED_LEASE),
    };
}

/* A preempted job computes chunks when it resumes. */
static uint32_t most_ahead(const bt_worker_t *w, bt_sched_want_t want)
{
    return ahead_of(w, (want != BT_SCHED_LEASE) || w->preemption.sched.is_on);
}

uint64_t bt_window_eviction_most_blocks(const bt_worker_t *w,
                                        bt_sched_want_t want, uint32_t n_most)
{
    const bt_kv_reach_t reach = {
        .n_spans = n_most,
        .n_most = n_most,
        .ahead_tokens = most_ahead(w, want),
    };

    return bt_kv_reach_blocks(&w->groups, &reach);
}

void bt_window_eviction_tell(const bt_worker_t *w, bt_msg_hello_t *hello)
{
    const bool may_compute = ((w->roles & BT_ROLE_PREFILL) != 0) ||
                             (strcmp(w->config->local_prefill, "off") != 0) ||
                             preempt_is_wanted(w->config);
    const uint32_t ahead = ahead_of(w, may_compute);

    hello->span_blocks = w->n_whole;
    hello->window_blocks = w->groups.n - w->n_whole;
    hello->window_spans = 0;
    for (uint32_t g = 0; g < w->groups.n; g++) {
        const bt_kv_group_t *group = &w->groups.group[g];
        const uint32_t n = bt_kv_group_is_windowed(group)
                               ? bt_kv_group_most_spans(group, ahead)
                               : 0;

        hello->window_spans =
            (n > hello->window_spans) ? n : hello->window_spans;
    }
}

/* Offers the prompt's blocks: tokens before n are computed. */
static void offer(bt_worker_t *w, bt_job_t *job, uint32_t n)
{
    const uint32_t n_tokens = (n < job->n_tokens) ? n : job->n_tokens;

    if (n_tokens / w->tokens_per_block > job->n_offered) {
        bt_worker_job_remember(w, job, n_tokens);
        job->n_offered = n_tokens / w->tokens_per_block;
    }
}

static void slide(bt_worker_t *w, bt_job_t *job, uint32_t n, bool is_chunk)
{
    bt_kv_reach_t reach = bt_window_eviction_reach(w, job, job->grower.n_held);
    bt_status_t status;

    if (!job->has_blocks || !bt_kv_hold_passes(&w->groups, &job->hold, n)) {
        return;
    }
    offer(w, job, n);
    w->stats.n_blocks_slid +=
        bt_kv_hold_pass(&w->groups, w->pool, &job->hold, job->block_ids, n);
    if (!is_chunk) { /* from now on it needs less */
        reach.ahead_tokens = ahead_of(w, false);
    }
    status = bt_job_reach(w, job, &reach);
    BT_ASSERT(status == BT_OK); /* it evicted as many (kv_block_pool.h) */
    if (status != BT_OK) {
        bt_worker_job_fail(w, job, BT_ERR_NO_BLOCKS, "compute",
                           "there is no block for what its window slides to");
        return;
    }
    bt_engine_wake(w->engine); /* it may have waited for blocks */
}

void bt_window_eviction_on_item(bt_worker_t *w, bt_job_t *job,
                                const bt_report_item_t *item)
{
    if (w->n_whole == w->groups.n) { /* no windowed layers */
        return;
    }
    switch (item->kind) {
    case BT_REPORT_CHUNK:
        slide(w, job, item->n_computed, true);
        break;
    case BT_REPORT_TOKEN: /* all before it are computed */
        slide(w, job, job->seq.n_prompt + item->index, false);
        break;
    case BT_REPORT_LEFT:
        break;
    }
}

/* Carries out admission; common/sched decides which job begins when. */

static uint32_t free_seats(const bt_worker_t *w)
{
    const uint32_t taken = w->n_in_engine + w->admit.leased_seats;

    return (taken < w->max_seqs) ? w->max_seqs - taken : 0;
}

/* Blocks that a claim may take. Generating jobs keep one each to grow; a
 * prefill ends by itself and returns all that it took. */
static uint32_t free_blocks_for(const bt_worker_t *w, const bt_job_t *job)
{
    const uint32_t n_spare =
        (job->claim.want == BT_SCHED_CONTEXT)
            ? 0
            : bt_sched_preempt_spare(&w->preemption.sched) * w->n_whole;
    const uint32_t n_free = bt_job_free_blocks(w);

    return (n_free > n_spare) ? n_free - n_spare : 0;
}

/* Blocks of the claim beyond the reused ones it holds, and blocks it is short
 * of already: found blocks may be shared with others, which need as many. */
static uint32_t blocks_to_take(const bt_worker_t *w, const bt_job_t *job)
{
    return job->claim.n_blocks - bt_kv_hold_blocks(&w->groups, &job->hold) +
           job->claim.more_blocks + bt_kv_pool_n_overdrawn(w->pool);
}

/* @return false when the job has to wait, and all others with it */
static bool admit(bt_worker_t *w, bt_job_t *job)
{
    bt_sched_verdict_t verdict;

    bt_job_hold_known(w, job); /* shared blocks need not be taken */
    verdict =
        bt_sched_admit_judge(&w->admit, &job->claim, blocks_to_take(w, job),
                             free_blocks_for(w, job));
    if ((verdict == BT_SCHED_BEGIN) &&
        (bt_fanout_take_blocks(w, job) == BT_OK)) {
        job->ops->begin(w, job);
        return true;
    }
    bt_job_drop_known(w, job);
    return (verdict == BT_SCHED_DROP) && drop_waiting(w);
}

/* Of two workers that wait for each other one gives in first: instances are
 * random. */
static uint64_t patience_ms(const bt_worker_t *w)
{
    return w->config->dead_ms + w->instance % w->config->dead_ms;
}

static void take_back(bt_worker_t *w)
{
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if ((w->ops[i]->take_back != NULL) && w->ops[i]->take_back(w)) {
            return;
        }
    }
}

/* Where leases leave the first job too few blocks, two workers might wait for
 * each other: after a time one lease is taken back. Its request runs again. */
static void unstick(bt_worker_t *w)
{
    const uint64_t now_ms = bt_now_ms();

    if (!bt_sched_admit_is_stuck(&w->admit) &&
        !bt_sched_preempt_is_stuck(&w->preemption.sched)) {
        w->preemption.stuck_since_ms = 0;
    } else if (w->preemption.stuck_since_ms == 0) {
        w->preemption.stuck_since_ms = now_ms;
    } else if (now_ms - w->preemption.stuck_since_ms >= patience_ms(w)) {
        w->preemption.stuck_since_ms = now_ms;
        take_back(w);
    }
}

void bt_worker_admit(bt_worker_t *w)
{
    bt_sched_claim_t *claim = NULL;

    do {
        if (!serve_growers(w)) {
            break;
        }
        claim = bt_sched_admit_next(&w->admit, free_seats(w));
    } while ((claim != NULL) && admit(w, job_of_claim(claim)));
    unstick(w);
}
