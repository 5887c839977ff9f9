/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/link/link_priv.h"

#define MS_PER_S  1000
#define NS_PER_MS 1000000

/* Wait on the condition until a time of bt_now_ms(). @return false at that
 * time. */
static bool wait_until(bt_control_t *control, uint64_t end_ms)
{
    const struct timespec end = {.tv_sec = (time_t)(end_ms / MS_PER_S),
                                 .tv_nsec =
                                     (long)(end_ms % MS_PER_S) * NS_PER_MS};

    return pthread_cond_timedwait(&control->reap, &control->mutex, &end) !=
           ETIMEDOUT;
}

static void *run_reaper(void *arg)
{
    bt_control_t *control = arg;

    pthread_mutex_lock(&control->mutex);
    for (;;) {
        bt_link_t *link;

        if (bt_list_empty(&control->retired)) {
            if (control->stopping) {
                break;
            }
            pthread_cond_wait(&control->reap, &control->mutex);
            continue;
        }
        link = BT_CONTAINER_OF(control->retired.next, bt_link_t, in_all);
        bt_list_remove(&link->in_all);
        pthread_mutex_unlock(&control->mutex);
        bt_link_free(link);
        pthread_mutex_lock(&control->mutex);
        control->n_retired--;
    }
    control->reaped = true;
    pthread_cond_broadcast(&control->reap);
    pthread_mutex_unlock(&control->mutex);
    return NULL;
}

bt_status_t bt_link_reaper_start(bt_control_t *control)
{
    pthread_condattr_t attr;
    int rv;

    if (pthread_condattr_init(&attr) != 0) {
        return BT_ERR_NO_MEMORY;
    }
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* bt_now_ms() */
    rv = pthread_cond_init(&control->reap, &attr);
    pthread_condattr_destroy(&attr);
    if (rv != 0) {
        return BT_ERR_NO_MEMORY;
    }
    rv = pthread_create(&control->reaper, NULL, run_reaper, control);
    if (rv != 0) {
        BT_LOG_ERROR("control links: no thread");
        pthread_cond_destroy(&control->reap);
        return BT_ERR_IO;
    }
    return BT_OK;
}

void bt_link_retire(bt_link_t *link)
{
    bt_control_t *control = link->control;

    bt_link_shm_close(link);
    bt_list_remove(&link->in_dirty);
    bt_list_remove(&link->in_all);
    pthread_mutex_lock(&control->mutex);
    link->gone = true;
    bt_list_remove(&link->in_ready);
    bt_list_push_back(&control->retired, &link->in_all);
    control->n_retired++;
    pthread_cond_signal(&control->reap);
    pthread_mutex_unlock(&control->mutex);
}

bool bt_link_reaper_stop(bt_control_t *control)
{
    const uint64_t end_ms = bt_now_ms() + LINK_REAP_MS;
    bool reaped;

    pthread_mutex_lock(&control->mutex);
    control->stopping = true;
    pthread_cond_broadcast(&control->reap);
    while (!control->reaped && wait_until(control, end_ms)) {
    }
    reaped = control->reaped;
    pthread_mutex_unlock(&control->mutex);
    if (!reaped) {
        BT_LOG_WARN("a control link does not close; its memory and descriptor "
                    "are left behind");
        (void)pthread_detach(control->reaper);
        return false;
    }
    (void)pthread_join(control->reaper, NULL);
    pthread_cond_destroy(&control->reap);
    return true;
}
