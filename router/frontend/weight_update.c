/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/weight_update.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/frontend/frontend.h"

typedef enum state {
    CHECKING, /* workers look at them */
    ENDING,   /* requests of before run to their ends */
    LOADING,  /* workers load them */
} state_t;

struct bt_weight_update {
    state_t state;
    uint64_t since_us; /* of the state */
    bt_wire_weights_t weights;
    bt_hash128_t model; /* of the first that has checked */
    char first[BT_WIRE_MAX_NAME];
    bool aborts;
    uint32_t n_told; /* workers that were there at the beginning of LOADING */
    bt_weight_done_t *done; /* NULL: nobody waits */
    void *ctx;
};

static bt_list_t *workers_of(const bt_served_t *served)
{
    return &bt_core_table(served->core)->workers;
}

bt_status_t bt_weight_update_begin(bt_served_t *served, const char *path,
                                   const char *version, bool aborts,
                                   bt_weight_done_t *done, void *ctx,
                                   uint64_t now_us, bt_api_error_t *error_p)
{
    const uint64_t in_force = bt_core_weights(served->core)->update;
    const uint64_t last =
        (in_force > served->last_update) ? in_force : served->last_update;
    const uint64_t now_unix_us = (uint64_t)bt_walltime_ms() * 1000;
    bt_weight_update_t *update;

    if (served->weight_update != NULL) {
        bt_api_error_set(error_p, 409, NULL,
                         "weights %s are being loaded: try again later",
                         served->weight_update->weights.version);
        return BT_ERR_BUSY;
    }
    if (bt_router_sleep_is_begun(served->front)) {
        bt_api_error_set(error_p, 409, NULL,
                         "the workers sleep: wake them by POST /wake_up first");
        return BT_ERR_BUSY;
    }
    if (last == UINT64_MAX) {
        bt_api_error_set(error_p, 409, NULL,
                         "weights %s have the largest number there is",
                         bt_core_weights(served->core)->version);
        return BT_ERR_BUSY;
    }
    update = bt_calloc(1, sizeof(*update));
    if (update == NULL) {
        bt_api_error_set(error_p, 503, NULL,
                         "out of memory for this command, try again later");
        return BT_ERR_NO_MEMORY;
    }
    update->since_us = now_us;
    update->aborts = aborts;
    update->done = done;
    update->ctx = ctx;
    /* Larger than those of all routers before, if their clocks are right. */
    update->weights.update = (now_unix_us > last) ? now_unix_us : last + 1;
    served->last_update = update->weights.update;
    snprintf(update->weights.version, sizeof(update->weights.version), "%s",
             version);
    snprintf(update->weights.path, sizeof(update->weights.path), "%s", path);
    served->weight_update = update;
    BT_LOG_INFO("weights %s at %s are being checked", version, path);
    return BT_OK;
}

static void finish(bt_served_t *served, bt_weight_result_t *result,
                   uint64_t now_us)
{
    bt_weight_update_t *update = served->weight_update;

    served->weight_update = NULL;
    bt_core_release(served->core, BT_CORE_HOLD_WEIGHTS, now_us);
    result->version = update->weights.version;
    if (result->error.http_status != 0) {
        BT_LOG_WARN("weights %s: %s", update->weights.version,
                    result->error.message);
    }
    if (update->done != NULL) {
        update->done(update->ctx, result);
    }
    bt_free(update);
}

static void go_to(bt_weight_update_t *update, state_t state, uint64_t now_us)
{
    update->state = state;
    update->since_us = now_us;
}

/* True for a worker that takes no orders but to wake, which it cannot: it loads
 * the weights in force when it has woken. */
static bool is_missing(const bt_instance_t *worker)
{
    return bt_instance_is_asleep(worker) && (worker->failed_us != 0);
}

/* Looks at what one worker says of the weights.
 * @return false: they cannot be loaded, and the error is set */
static bool look(bt_served_t *served, bt_instance_t *worker, bool *waits_p,
                 bt_api_error_t *error)
{
    bt_weight_update_t *update = served->weight_update;
    const bt_msg_weights_checked_t *checked = &worker->checked;
    const char *name = worker->hello.name;

    if ((worker->hello.flags & BT_HELLO_WEIGHTS) == 0) {
        bt_api_error_set(error, 409, NULL,
                         "worker %s replaces no weights: it was started "
                         "without --allow-weight-updates, has several ranks, "
                         "or is of an older version",
                         name);
        return false;
    }
    if (is_missing(worker)) {
        return true;
    }
    if (worker->asked_update != update->weights.update) {
        bt_core_check_weights(served->core, worker, &update->weights);
    }
    if (checked->update != update->weights.update) {
        *waits_p = true;
        return true;
    }
    if (checked->status != BT_OK) {
        bt_api_error_set(error, 400, "model_path", "worker %s: %.200s: %.400s",
                         name, update->weights.path, checked->text);
        return false;
    }
    if (update->first[0] == '\0') {
        update->model = checked->model;
        memcpy(update->first, name, sizeof(update->first));
    } else if (!bt_hash128_equal(update->model, checked->model)) {
        bt_api_error_set(error, 409, "model_path",
                         "workers %s and %s have different files at %.200s",
                         update->first, name, update->weights.path);
        return false;
    }
    return true;
}

static void check(bt_served_t *served, bt_weight_result_t *result,
                  uint64_t now_us)
{
    bt_weight_update_t *update = served->weight_update;
    bool waits = false;

    update->first[0] = '\0';
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, workers_of(served), link) {
        if (!look(served, worker, &waits, &result->error)) {
            return;
        }
    }
    if (!waits && (update->first[0] == '\0')) {
        bt_api_error_set(&result->error, 503, NULL,
                         "no worker is here that could check the weights");
        return;
    }
    if (!waits) {
        go_to(update, ENDING, now_us);
        bt_core_hold(served->core, BT_CORE_HOLD_WEIGHTS);
        if (update->aborts) {
            bt_core_end_begun(served->core,
                              "aborted by POST /update_weights_from_disk",
                              now_us);
        }
    } else if (now_us - update->since_us > BT_WEIGHT_CHECK_US) {
        bt_api_error_set(&result->error, 504, NULL,
                         "not all workers have checked the weights in time");
    }
}

static void wait_for_requests(bt_served_t *served, uint64_t now_us)
{
    bt_weight_update_t *update = served->weight_update;

    if (bt_core_n_begun(served->core) > 0) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers_of(served),
                           link) {
        (void)worker;
        update->n_told++;
    }
    go_to(update, LOADING, now_us);
    bt_core_set_weights(served->core, &update->weights, update->model, now_us);
    bt_core_release(served->core, BT_CORE_HOLD_WEIGHTS, now_us);
}

/* @return true: it is over */
static bool wait_for_workers(bt_served_t *served, bt_weight_result_t *result,
                             uint64_t now_us)
{
    const bt_weight_update_t *update = served->weight_update;
    const uint64_t waited_us = now_us - update->since_us;
    const bt_instance_t *refuses = NULL;
    uint32_t n = 0, n_refuse = 0, n_missing = 0;

    bt_core_expect_worker(served->core, now_us);
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers_of(served),
                           link) {
        n += (worker->hello.weights.update >= update->weights.update) ? 1 : 0;
        n_missing += is_missing(worker) ? 1 : 0;
        if (worker->refused_us != 0) {
            refuses = worker;
            n_refuse++;
        }
    }
    if ((n + n_refuse + n_missing >= update->n_told) ||
        (bt_table_ready(bt_core_table(served->core)) &&
         (waited_us > BT_WEIGHT_MISSING_US))) {
        if (refuses != NULL) {
            bt_api_error_set(&result->error, 503, NULL,
                             "weights %s are in force, and %u of %u workers "
                             "have them: worker %s: %.400s",
                             bt_core_weights(served->core)->version, n,
                             update->n_told, refuses->hello.name,
                             refuses->checked.text);
            return true;
        }
        result->n_workers = n;
        result->n_missing = (n < update->n_told) ? update->n_told - n : 0;
        return true;
    }
    if (waited_us > BT_WEIGHT_LOAD_US) {
        bt_api_error_set(&result->error, 503, NULL,
                         "no workers have come back with weights %s, which are "
                         "in force",
                         update->weights.version);
        return true;
    }
    return false;
}

void bt_weight_update_tick(bt_served_t *served, uint64_t now_us)
{
    const bt_weight_update_t *update = served->weight_update;
    bt_weight_result_t result = {0};
    bool is_over = false;

    if (update == NULL) {
        return;
    }
    if ((update->state != LOADING) &&
        (bt_core_weights(served->core)->update > update->weights.update)) {
        bt_api_error_set(&result.error, 409, NULL,
                         "weights %s, which another router ordered, are in "
                         "force",
                         bt_core_weights(served->core)->version);
    } else {
        switch (update->state) {
        case CHECKING:
            check(served, &result, now_us);
            break;
        case ENDING:
            wait_for_requests(served, now_us);
            break;
        case LOADING:
            is_over = wait_for_workers(served, &result, now_us);
            break;
        }
    }
    if (is_over || (result.error.http_status != 0)) {
        finish(served, &result, now_us);
    }
}

void bt_weight_update_leave(bt_served_t *served, const void *ctx)
{
    bt_weight_update_t *update = served->weight_update;

    if ((update != NULL) && (update->ctx == ctx)) {
        update->done = NULL;
        update->ctx = NULL;
    }
}

void bt_weight_update_drop(bt_served_t *served)
{
    bt_free(served->weight_update);
    served->weight_update = NULL;
}
