/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

#define MS_PER_S  1000
#define NS_PER_MS 1000000

/* Wait on the condition until a time of bt_now_ms(). @return false at that
 * time. */
static bool wait_until(bt_rpc_t *rpc, uint64_t end_ms)
{
    const struct timespec end = {.tv_sec = (time_t)(end_ms / MS_PER_S),
                                 .tv_nsec =
                                     (long)(end_ms % MS_PER_S) * NS_PER_MS};

    return pthread_cond_timedwait(&rpc->reap, &rpc->mutex, &end) != ETIMEDOUT;
}

static void *run_reaper(void *arg)
{
    bt_rpc_t *rpc = arg;

    pthread_mutex_lock(&rpc->mutex);
    for (;;) {
        bt_rpc_link_t *link;

        if (bt_list_empty(&rpc->retired)) {
            if (rpc->stopping) {
                break;
            }
            pthread_cond_wait(&rpc->reap, &rpc->mutex);
            continue;
        }
        link = BT_CONTAINER_OF(rpc->retired.next, bt_rpc_link_t, in_all);
        bt_list_remove(&link->in_all);
        pthread_mutex_unlock(&rpc->mutex);
        bt_rpc_link_free(link);
        pthread_mutex_lock(&rpc->mutex);
        rpc->n_retired--;
    }
    rpc->reaped = true;
    pthread_cond_broadcast(&rpc->reap);
    pthread_mutex_unlock(&rpc->mutex);
    return NULL;
}

bt_status_t bt_rpc_reaper_start(bt_rpc_t *rpc)
{
    pthread_condattr_t attr;
    int rv;

    if (pthread_condattr_init(&attr) != 0) {
        return BT_ERR_NO_MEMORY;
    }
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* bt_now_ms() */
    rv = pthread_cond_init(&rpc->reap, &attr);
    pthread_condattr_destroy(&attr);
    if (rv != 0) {
        return BT_ERR_NO_MEMORY;
    }
    rv = pthread_create(&rpc->reaper, NULL, run_reaper, rpc);
    if (rv != 0) {
        BT_LOG_ERROR("control links: no thread");
        pthread_cond_destroy(&rpc->reap);
        return BT_ERR_IO;
    }
    return BT_OK;
}

void bt_rpc_link_retire(bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;

    bt_rpc_lanes_close(link);
    bt_list_remove(&link->in_dirty);
    bt_list_remove(&link->in_all);
    pthread_mutex_lock(&rpc->mutex);
    link->gone = true;
    bt_list_remove(&link->in_ready);
    bt_list_push_back(&rpc->retired, &link->in_all);
    rpc->n_retired++;
    pthread_cond_signal(&rpc->reap);
    pthread_mutex_unlock(&rpc->mutex);
}

bool bt_rpc_reaper_stop(bt_rpc_t *rpc)
{
    const uint64_t end_ms = bt_now_ms() + RPC_REAP_MS;
    bool reaped;

    pthread_mutex_lock(&rpc->mutex);
    rpc->stopping = true;
    pthread_cond_broadcast(&rpc->reap);
    while (!rpc->reaped && wait_until(rpc, end_ms)) {
    }
    reaped = rpc->reaped;
    pthread_mutex_unlock(&rpc->mutex);
    if (!reaped) {
        BT_LOG_WARN("a control link does not close; its memory and descriptor "
                    "are left behind");
        (void)pthread_detach(rpc->reaper);
        return false;
    }
    (void)pthread_join(rpc->reaper, NULL);
    pthread_cond_destroy(&rpc->reap);
    return true;
}
