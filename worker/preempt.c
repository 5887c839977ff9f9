/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/preempt.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "worker/job.h"
#include "worker/logprob_output.h"

static bt_job_t *job_of(bt_sched_kv_demand_t *grower)
{
    return BT_CONTAINER_OF(grower, bt_job_t, grower);
}

bool bt_preempt_is_wanted(const bt_config_t *config)
{
    return strcmp(config->scheduler_policy, "max_utilization") == 0;
}

bt_status_t bt_preempt_open(bt_worker_t *w)
{
    const char *policy = w->config->scheduler_policy;
    const bool is_on = bt_preempt_is_wanted(w->config);

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
    bt_sched_preempt_init(&w->pause, is_on, w->tokens_per_block,
                          BT_SCHED_PREEMPT_AHEAD_TOKENS);
    return BT_OK;
}

void bt_preempt_in(bt_worker_t *w, bt_job_t *job, bool leaves)
{
    if (w->pause.is_on) {
        bt_sched_preempt_in(&w->pause, &job->grower, leaves);
    }
}

void bt_preempt_out(bt_worker_t *w, bt_job_t *job)
{
    bt_sched_preempt_out(&w->pause, &job->grower);
}

void bt_preempt_on_token(bt_job_t *job, uint32_t index)
{
    job->grower.n_known = job->seq.n_prompt + index + 1;
}

void bt_preempt_park(bt_worker_t *w, bt_job_t *job)
{
    bt_seq_t *seq = &job->seq;

    BT_ASSERT_ALWAYS(!job->in_engine && job->has_blocks);
    BT_LOG_DEBUG("request %llu: paused with %u tokens",
                 (unsigned long long)job->key.id, seq->sched.n_tokens);
    bt_worker_job_remember(w, job, seq->sched.n_computed);
    bt_worker_job_return_blocks(w, job);
    job->n_computed = seq->sched.n_computed;
    job->grower.n_known = seq->sched.n_tokens;
    job->grower.n_pauses++;
    job->paused_at_us = bt_now_us();
    w->n_pauses++;
    w->n_paused++;
    /* It keeps its place by arrival time, before all later ones: nothing of its
     * prompt is computed for the first time. It depends on no other worker. */
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
    w->n_resumes++;
    if (job->n_computed > n_known) {
        w->tokens_recomputed += job->n_computed - n_known;
    }
}

/* Windowed blocks are held from the beginning: a sequence grows in whole groups
 * only. */
static uint32_t free_spans(const bt_worker_t *w)
{
    return (w->n_whole == 0) ? UINT32_MAX : bt_job_free_blocks(w) / w->n_whole;
}

/* Complete KV that waits for a grant is dropped first, as for jobs that begin.
 */
static bool drop_waiting(bt_worker_t *w)
{
    bt_sched_claim_t *claim = bt_sched_admit_victim(&w->admit);
    bt_job_t *job;

    if (claim == NULL) {
        return false;
    }
    job = BT_CONTAINER_OF(claim, bt_job_t, claim);
    job->ops->drop(w, job);
    return true;
}

bool bt_preempt_serve(bt_worker_t *w)
{
    bt_sched_kv_demand_t *who = NULL;
    uint32_t n_spans = 0;
    bool has_grown = false;
    bool goes_on = true;
    bool enough = false;

    while (goes_on) {
        switch (
            bt_sched_preempt_next(&w->pause, free_spans(w), &who, &n_spans)) {
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
