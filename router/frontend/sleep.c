/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/sleep.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/frontend/frontend.h"

static bt_list_t *workers_of(const bt_served_t *served)
{
    return &bt_core_table(served->core)->workers;
}

void bt_router_sleep_init(bt_router_sleep_t *sleep)
{
    *sleep = (bt_router_sleep_t){.is_ending = false};
    bt_list_init(&sleep->waiters);
}

bool bt_router_sleep_is_begun(const bt_frontend_t *front)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (bt_core_sleep(served->core)->is_asleep) {
            return true;
        }
    }
    return front->sleep.is_ending;
}

/* Returns a number of this kind that is larger than those of all routers
 * before, if their clocks are right. */
static uint64_t next_number(bt_frontend_t *front, bool sleeps)
{
    const uint64_t now_unix_us = (uint64_t)bt_walltime_ms() * 1000;
    uint64_t last = front->sleep.last;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        const uint64_t order = bt_core_sleep(served->core)->order;

        last = (order > last) ? order : last;
    }
    front->sleep.last = (now_unix_us > last) ? now_unix_us : last + 1;
    if (bt_sleep_order_sleeps(front->sleep.last) != sleeps) {
        front->sleep.last++;
    }
    return front->sleep.last;
}

static void wait_for(bt_frontend_t *front, bt_router_sleep_waiter_t *waiter,
                     bt_sleep_wish_t wish, uint64_t now_us)
{
    waiter->wish = wish;
    waiter->since_us = now_us;
    bt_list_push_back(&front->sleep.waiters, &waiter->link);
}

/* A waiter may be freed by being told. */
static void tell(bt_router_sleep_waiter_t *waiter,
                 const bt_sleep_result_t *result)
{
    bt_list_remove(&waiter->link);
    waiter->done(waiter->ctx, result);
}

/* ---- sleep ---- */

static bt_status_t check(const bt_served_t *served, bt_api_error_t *error_p)
{
    if (served->weight_update != NULL) {
        bt_api_error_set(error_p, 409, NULL,
                         "weights of model %s are being replaced: try again "
                         "later",
                         served->name);
        return BT_ERR_BUSY;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers_of(served),
                           link) {
        if ((worker->hello.flags & BT_HELLO_SLEEPS) == 0) {
            bt_api_error_set(error_p, 409, NULL,
                             "worker %s cannot sleep: it has several ranks, is "
                             "of one mpirun with the router, or of an older "
                             "version",
                             worker->hello.name);
            return BT_ERR_UNSUPPORTED;
        }
    }
    return BT_OK;
}

bt_status_t bt_router_sleep_begin(bt_frontend_t *front, bool aborts,
                                  bt_router_sleep_waiter_t *waiter,
                                  uint64_t now_us, bt_api_error_t *error_p)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        const bt_status_t status = check(served, error_p);

        if (status != BT_OK) {
            return status;
        }
    }
    if (!bt_router_sleep_is_begun(front)) {
        BT_LOG_INFO("to sleep by an admin command%s",
                    aborts ? ", requests in flight are aborted" : "");
    }
    front->sleep.is_ending = true;
    wait_for(front, waiter, BT_SLEEP_WISH_SLEEP, now_us);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_core_hold(served->core, BT_CORE_HOLD_SLEEP);
        if (aborts) {
            bt_core_end_begun(served->core, "aborted by POST /sleep", now_us);
        }
    }
    return BT_OK;
}

static void wait_for_requests(bt_frontend_t *front, uint64_t now_us)
{
    uint64_t number;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        /* Where another router's order is in force already, generations of
         * before it that wait for workers end after the sleep. */
        if (!bt_core_sleep(served->core)->is_asleep &&
            (bt_core_n_begun(served->core) > 0)) {
            return;
        }
    }
    front->sleep.is_ending = false;
    number = next_number(front, true);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (!bt_core_sleep(served->core)->is_asleep) {
            bt_core_set_sleep(served->core, number, now_us);
        }
    }
}

void bt_router_sleep_add(const bt_frontend_t *front, bt_core_t *core)
{
    if (front->sleep.is_ending) {
        bt_core_hold(core, BT_CORE_HOLD_SLEEP);
    }
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        const bt_core_sleep_t *order = bt_core_sleep(served->core);

        if (order->is_asleep) {
            bt_core_set_sleep(core, order->order, order->since_us);
            return;
        }
    }
}

/* ---- wake ---- */

static void refuse_sleepers(bt_frontend_t *front)
{
    bt_sleep_result_t result = {0};

    bt_api_error_set(&result.error, 409, NULL,
                     "woken before all workers slept");
    BT_LIST_FOR_EACH_ENTRY(bt_router_sleep_waiter_t, waiter,
                           &front->sleep.waiters, link) {
        if (waiter->wish == BT_SLEEP_WISH_SLEEP) {
            tell(waiter, &result);
        }
    }
}

void bt_router_sleep_end(bt_frontend_t *front, bt_router_sleep_waiter_t *waiter,
                         uint64_t now_us)
{
    const bool was_begun = bt_router_sleep_is_begun(front);
    uint64_t number;

    wait_for(front, waiter, BT_SLEEP_WISH_WAKE, now_us);
    if (was_begun) {
        BT_LOG_INFO("woken by an admin command");
        front->sleep.is_ending = false;
        refuse_sleepers(front);
    }
    /* Where nothing is known to sleep, it is for workers that are not linked
     * yet: those of before a restart of this process. */
    number = next_number(front, false);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        bt_core_set_sleep(served->core, number, now_us);
        bt_core_release(served->core, BT_CORE_HOLD_SLEEP, now_us);
    }
}

/* ---- those who wait ---- */

/* Workers of all models beside what is in force. */
typedef struct count {
    uint32_t n_told, n_as_ordered, n_present;
    const bt_instance_t *fails;   /* to wake; NULL: none */
    const bt_instance_t *refuses; /* the weights in force; NULL: none */
    bool is_ready;                /* each model has workers that serve */
    bool some_serve;              /* as is_ready, but for models without any */
    bool is_asleep, is_awake;     /* is in force for all models */
    uint64_t since_us;            /* when the last order came */
} count_t;

static count_t count(const bt_frontend_t *front)
{
    count_t c = {.is_ready = true, .is_asleep = true, .is_awake = true};
    uint32_t n_ready = 0, n_with_workers = 0;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        const bt_core_sleep_t *order = bt_core_sleep(served->core);
        const bool is_ready = bt_table_ready(bt_core_table(served->core));

        n_ready += is_ready ? 1 : 0;
        n_with_workers += (is_ready || (order->n_told > 0)) ? 1 : 0;
        c.n_told += order->n_told;
        c.since_us =
            (order->since_us > c.since_us) ? order->since_us : c.since_us;
        c.is_ready = c.is_ready && is_ready;
        c.is_asleep = c.is_asleep && order->is_asleep;
        c.is_awake = c.is_awake && !order->is_asleep;
        BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers_of(served),
                               link) {
            c.n_present++;
            c.n_as_ordered +=
                bt_core_sleep_is_obeyed(served->core, worker) ? 1 : 0;
            if (worker->failed_us != 0) {
                c.fails = worker;
            }
            if (worker->refused_us != 0) {
                c.refuses = worker;
            }
        }
    }
    c.some_serve = (n_ready > 0) && (n_ready == n_with_workers);
    return c;
}

static void fill(const count_t *c, bt_sleep_result_t *result)
{
    result->n_workers = c->n_as_ordered;
    result->n_missing =
        (c->n_as_ordered < c->n_told) ? c->n_told - c->n_as_ordered : 0;
}

/* @return true: they sleep, or the error is set */
static bool is_asleep(const bt_frontend_t *front, uint64_t now_us,
                      bt_sleep_result_t *result)
{
    const count_t c = count(front);

    if (front->sleep.is_ending) {
        return false;
    }
    if (!c.is_asleep) {
        bt_api_error_set(&result->error, 409, NULL,
                         "woken before all workers slept, by another router");
        return true;
    }
    fill(&c, result);
    return (c.n_as_ordered == c.n_present) &&
           ((c.n_present >= c.n_told) ||
            (now_us - c.since_us > BT_SLEEP_MISSING_US));
}

/* @return true: they serve, or the error is set */
static bool is_awake(const bt_frontend_t *front, uint64_t now_us,
                     bt_sleep_result_t *result)
{
    const count_t c = count(front);
    const uint64_t waited_us = now_us - c.since_us;

    if (!c.is_awake || front->sleep.is_ending) {
        bt_api_error_set(&result->error, 409, NULL,
                         "put to sleep before all workers were awake");
        return true;
    }
    fill(&c, result);
    if ((c.fails != NULL) &&
        ((c.n_present >= c.n_told) || (waited_us > BT_SLEEP_MISSING_US))) {
        bt_api_error_set(&result->error, 503, NULL,
                         "%u of %u workers are awake: worker %s could not be "
                         "woken, and is told again every 10 s; its log has the "
                         "reason",
                         c.n_as_ordered, c.n_told, c.fails->hello.name);
        return true;
    }
    if (!c.is_ready && (c.refuses != NULL) && (c.n_as_ordered >= c.n_told)) {
        bt_api_error_set(&result->error, 503, NULL,
                         "%u of %u workers are awake, and too few serve: "
                         "worker %s cannot load the weights in force; replace "
                         "them",
                         c.n_as_ordered, c.n_told, c.refuses->hello.name);
        return true;
    }
    if ((c.is_ready && (c.n_as_ordered >= c.n_told)) ||
        (c.some_serve && (waited_us > BT_SLEEP_MISSING_US))) {
        return true;
    }
    if (waited_us > BT_SLEEP_WAKE_US) {
        bt_api_error_set(&result->error, 503, NULL,
                         "no workers have come back");
        return true;
    }
    return false;
}

/* @return true: the caches are empty, or the error is set */
static bool is_reset(const bt_frontend_t *front,
                     const bt_router_sleep_waiter_t *waiter, uint64_t now_us,
                     bt_sleep_result_t *result)
{
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers_of(served),
                               link) {
            if (worker->asked_reset < waiter->number) {
                continue; /* it came later, with an empty one */
            }
            if (worker->emptied.number >= waiter->number) {
                result->n_workers++;
                result->n_blocks += worker->emptied.n_blocks;
            } else if (now_us - waiter->since_us > BT_CACHE_RESET_US) {
                bt_api_error_set(&result->error, 504, NULL,
                                 "worker %s has not answered in time",
                                 worker->hello.name);
                return true;
            } else {
                return false;
            }
        }
    }
    return true;
}

static bool is_over(const bt_frontend_t *front,
                    const bt_router_sleep_waiter_t *waiter, uint64_t now_us,
                    bt_sleep_result_t *result)
{
    switch (waiter->wish) {
    case BT_SLEEP_WISH_SLEEP:
        return is_asleep(front, now_us, result);
    case BT_SLEEP_WISH_WAKE:
        return is_awake(front, now_us, result);
    case BT_SLEEP_WISH_RESET:
        break;
    }
    return is_reset(front, waiter, now_us, result);
}

bt_status_t bt_router_cache_reset(bt_frontend_t *front,
                                  bt_router_sleep_waiter_t *waiter,
                                  uint64_t now_us, bt_api_error_t *error_p)
{
    waiter->number = next_number(front, false);
    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, workers_of(served),
                               link) {
            if (!bt_core_reset_cache(served->core, worker, waiter->number)) {
                bt_api_error_set(error_p, 409, NULL,
                                 "worker %s cannot empty its prefix cache: it "
                                 "is of an older version",
                                 worker->hello.name);
                return BT_ERR_UNSUPPORTED;
            }
        }
    }
    wait_for(front, waiter, BT_SLEEP_WISH_RESET, now_us);
    return BT_OK;
}

void bt_router_sleep_tick(bt_frontend_t *front, uint64_t now_us)
{
    if (front->sleep.is_ending) {
        wait_for_requests(front, now_us);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_router_sleep_waiter_t, waiter,
                           &front->sleep.waiters, link) {
        bt_sleep_result_t result = {0};

        if (is_over(front, waiter, now_us, &result)) {
            tell(waiter, &result);
        }
    }
}

void bt_router_sleep_forget(bt_router_sleep_waiter_t *waiter)
{
    bt_list_remove(&waiter->link);
}
