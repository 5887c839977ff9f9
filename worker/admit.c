/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out admission; common/sched decides which job begins when. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/fanout.h"
#include "worker/job.h"
#include "worker/preempt.h"

static bt_job_t *job_of(bt_sched_claim_t *claim)
{
    return BT_CONTAINER_OF(claim, bt_job_t, claim);
}

static uint32_t free_seats(const bt_worker_t *w)
{
    const uint32_t taken = w->n_in_engine + w->admit.leased_seats;

    return (taken < w->max_seqs) ? w->max_seqs - taken : 0;
}

static void drop(bt_worker_t *w)
{
    bt_job_t *job = job_of(bt_sched_admit_victim(&w->admit));

    BT_LOG_DEBUG("request %llu: waiting KV dropped",
                 (unsigned long long)job->key.id);
    job->ops->drop(w, job);
}

/* Blocks that a claim may take. Generating jobs keep one each to grow; a
 * prefill ends by itself and returns all that it took. */
static uint32_t free_blocks_for(const bt_worker_t *w, const bt_job_t *job)
{
    const uint32_t n_spare =
        (job->claim.want == BT_SCHED_CONTEXT)
            ? 0
            : bt_sched_preempt_spare(&w->pause) * w->n_whole;
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
    if (verdict == BT_SCHED_DROP) {
        drop(w);
        return true;
    }
    return false;
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
        !bt_sched_preempt_is_stuck(&w->pause)) {
        w->stuck_since_ms = 0;
    } else if (w->stuck_since_ms == 0) {
        w->stuck_since_ms = now_ms;
    } else if (now_ms - w->stuck_since_ms >= patience_ms(w)) {
        w->stuck_since_ms = now_ms;
        take_back(w);
    }
}

void bt_worker_admit(bt_worker_t *w)
{
    bt_sched_claim_t *claim = NULL;

    do {
        if (!bt_preempt_serve(w)) {
            break;
        }
        claim = bt_sched_admit_next(&w->admit, free_seats(w));
    } while ((claim != NULL) && admit(w, job_of(claim)));
    unstick(w);
}
