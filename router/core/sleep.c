/* SPDX-License-Identifier: Apache-2.0 */
/* Sleep of a model's workers: whether they are to sleep, and which are not as
 * ordered. While they sleep the core holds. */
#include <inttypes.h>

#include "common/base/log.h"
#include "router/core/core_priv.h"

/* Between orders to a worker that could not be woken: its file may come back,
 * or memory become free. */
#define RETRY_US 10000000u

const bt_core_sleep_t *bt_core_sleep(const bt_core_t *core)
{
    return &core->sleep;
}

bool bt_core_sleep_is_obeyed(const bt_core_t *core, const bt_instance_t *worker)
{
    return (bt_instance_is_asleep(worker) == core->sleep.is_asleep) &&
           (worker->told == 0);
}

static void order(const bt_core_t *core, bt_instance_t *worker)
{
    const bt_msg_t msg = {
        .type = BT_MSG_SLEEP,
        .u.sleep = {.order = core->sleep.order,
                    .sleeps = core->sleep.is_asleep ? 1 : 0},
    };

    worker->told = core->sleep.order;
    core->ops.send(core->ops.send_ctx, worker, &msg);
}

/* Compares a worker with what is in force, and has it follow. */
static void follow(const bt_core_t *core, bt_instance_t *worker,
                   uint64_t now_us)
{
    const bool is_asleep = bt_instance_is_asleep(worker);

    worker->failed_us = 0;
    worker->is_away = is_asleep || core->sleep.is_asleep || (worker->told != 0);
    if (worker->is_away) {
        bt_core_worker_drains(core, worker);
    }
    if (bt_core_sleep_is_obeyed(core, worker)) {
        return;
    }
    if ((worker->hello.flags & BT_HELLO_SLEEPS) == 0) {
        BT_LOG_WARN("worker %s cannot sleep and keeps its memory",
                    worker->hello.name);
        return;
    }
    if (is_asleep && (worker->hello.sleep_order == core->sleep.order)) {
        BT_LOG_WARN("worker %s could not be woken; its log has the reason",
                    worker->hello.name);
        worker->failed_us = now_us;
        return;
    }
    BT_LOG_INFO("worker %s is to %s", worker->hello.name,
                core->sleep.is_asleep ? "sleep" : "wake");
    order(core, worker);
}

void bt_core_set_sleep(bt_core_t *core, uint64_t number, uint64_t now_us)
{
    const bool is_asleep = bt_sleep_order_sleeps(number);

    BT_ASSERT(number > core->sleep.order);
    BT_LOG_INFO("the workers are to %s", is_asleep ? "sleep" : "wake");
    core->sleep.order = number;
    core->sleep.is_asleep = is_asleep;
    core->sleep.since_us = now_us;
    core->sleep.n_told = core->sleep.n_between;
    if (is_asleep) {
        bt_core_hold(core, BT_CORE_HOLD_SLEEP);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        core->sleep.n_told++;
        follow(core, worker, now_us);
    }
    core->expected_us = now_us; /* they come back */
    if (!is_asleep) {
        bt_core_release(core, BT_CORE_HOLD_SLEEP, now_us);
    }
}

void bt_core_sleep_stats(const bt_core_t *core, bt_instance_t *worker,
                         uint32_t duty)
{
    const bool is_asleep = bt_instance_is_asleep(worker);

    if ((worker->told == 0) || (is_asleep != core->sleep.is_asleep) ||
        (!is_asleep && (duty != BT_ADMIN_STATE_ON))) {
        return; /* it is to become another instance */
    }
    BT_LOG_INFO("worker %s stays as it is", worker->hello.name);
    worker->told = 0;
    worker->is_away = is_asleep;
}

/* Workers are expected once, whatever instance they come back as. */
static void expect_joined(bt_core_t *core)
{
    bt_core_sleep_t *const sleep = &core->sleep;
    uint32_t n;

    sleep->n_between -= (sleep->n_between > 0) ? 1 : 0;
    n = sleep->n_between;
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &core->table.workers,
                           link) {
        (void)worker;
        n++;
    }
    sleep->n_told = (n > sleep->n_told) ? n : sleep->n_told;
}

void bt_core_sleep_left(bt_core_t *core, const bt_instance_t *worker,
                        uint64_t now_us)
{
    if (worker->told != 0) {
        core->sleep.n_between++;
        core->sleep.left_us = now_us;
    }
}

void bt_core_sleep_joined(bt_core_t *core, bt_instance_t *worker,
                          uint64_t now_us)
{
    const uint64_t number = worker->hello.sleep_order;

    expect_joined(core);
    if ((number > core->sleep.order) &&
        (bt_sleep_order_sleeps(number) || core->sleep.is_asleep)) {
        bt_core_set_sleep(core, number, now_us); /* another router's */
        return;
    }
    if (number > core->sleep.order) {
        core->sleep.order = number; /* they are awake, and were before */
    }
    follow(core, worker, now_us);
}

/* It goes, whether it can be woken now or not, and comes back as another
 * instance. */
static void order_again(const bt_core_t *core, bt_instance_t *worker)
{
    if (worker->failed_us != 0) {
        worker->failed_us = 0;
        order(core, worker);
    }
}

/* True while workers are on their way back from a sleep. */
static bool are_expected(const bt_core_t *core, uint64_t now_us)
{
    bool any = core->sleep.n_between > 0;

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &core->table.workers,
                           link) {
        any = any || (worker->told != 0);
    }
    return any && (now_us - core->sleep.since_us < BT_SLEEP_WAKE_US);
}

void bt_core_sleep_tick(bt_core_t *core, uint64_t now_us)
{
    if (now_us - core->sleep.left_us >= BT_SLEEP_WAKE_US) {
        core->sleep.n_between = 0; /* what has not come back is lost */
    }
    if (core->sleep.is_asleep || are_expected(core, now_us)) {
        core->expected_us = now_us; /* what waits does so for its workers */
    }
    if (core->sleep.is_asleep) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        if (now_us - worker->failed_us >= RETRY_US) {
            order_again(core, worker);
        }
    }
}

/* ---- prefix caches ---- */

bool bt_core_reset_cache(const bt_core_t *core, bt_instance_t *worker,
                         uint64_t number)
{
    const bt_msg_t msg = {.type = BT_MSG_CACHE_RESET,
                          .u.cache_reset = {.number = number}};

    worker->asked_reset = number;
    if (bt_instance_is_asleep(worker)) {
        worker->emptied =
            (bt_msg_cache_is_empty_t){.number = number}; /* it has none */
        return true;
    }
    if ((worker->hello.flags & BT_HELLO_CACHE_RESET) == 0) {
        return false;
    }
    core->ops.send(core->ops.send_ctx, worker, &msg);
    return true;
}

void bt_core_cache_is_empty(bt_instance_t *worker,
                            const bt_msg_cache_is_empty_t *msg)
{
    worker->emptied = *msg;
    worker->n_forgot++; /* estimates of what it has are void */
}
