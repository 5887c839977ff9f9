/* SPDX-License-Identifier: Apache-2.0 */
/* Who begins when is decided by common/sched; this carries it out. */
#include "common/base/log.h"
#include "worker/job.h"

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
    w->ops->drop(w, job);
}

/* @return false when it has to wait, and all others with it */
static bool admit(bt_worker_t *w, bt_job_t *job)
{
    bt_sched_verdict_t verdict;

    bt_job_hold_known(w, job); /* what others hold, it need not take */
    verdict =
        bt_sched_admit_judge(&w->admit, &job->claim,
                             job->claim.n_blocks - job->n_reused * w->groups.n,
                             bt_job_free_blocks(w));
    if ((verdict == BT_SCHED_BEGIN) && (bt_job_take_blocks(w, job) == BT_OK)) {
        w->ops->begin(w, job);
        return true;
    }
    bt_job_drop_known(w, job);
    if (verdict == BT_SCHED_DROP) {
        drop(w);
        return true;
    }
    return false;
}

void bt_worker_admit(bt_worker_t *w)
{
    bt_sched_claim_t *claim;

    do {
        claim = bt_sched_admit_next(&w->admit, free_seats(w));
    } while ((claim != NULL) && admit(w, job_of(claim)));
}
