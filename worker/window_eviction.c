/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/window_eviction.h"

#include <string.h>

#include "common/base/status.h"
#include "worker/job.h"
#include "worker/preempt.h"

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
    return 2 *
           (computes_chunks ? bt_worker_most_chunk(w) : w->pause.ahead_tokens);
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
    return ahead_of(w, (want != BT_SCHED_LEASE) || w->pause.is_on);
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
                             bt_preempt_is_wanted(w->config);
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
    w->n_blocks_slid +=
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
