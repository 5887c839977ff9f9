/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a model's workers: which are in force, and which worker still has
 * others. A generation is of the weights that its first attempt had. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "router/core/core_priv.h"

/* Between orders to a worker that refuses them: its file may come, or memory
 * become free. */
#define RETRY_US 10000000u

const bt_wire_weights_t *bt_core_weights(const bt_core_t *core)
{
    return &core->weights;
}

bool bt_core_weights_fit(const bt_core_t *core, const bt_msg_hello_t *hello,
                         char why[BT_TABLE_WHY_BYTES])
{
    if ((hello->weights.update == 0) ||
        (hello->weights.update != core->weights.update) ||
        bt_hash128_equal(hello->model, core->weights_model)) {
        return true;
    }
    snprintf(
        why, BT_TABLE_WHY_BYTES,
        "%s has other weights at %.200s than other workers (hash %016" PRIx64
        " not %016" PRIx64 ")",
        hello->name, hello->weights.path, hello->model.hi,
        core->weights_model.hi);
    return false;
}

static void order_load(const bt_core_t *core, bt_instance_t *worker)
{
    const bt_msg_t msg = {
        .type = BT_MSG_WEIGHTS,
        .u.weights = {.weights = core->weights, .loads = 1},
    };

    core->ops.send(core->ops.send_ctx, worker, &msg);
}

/* Excludes a worker with earlier weights from placement, and has it load those
 * in force. */
static void replace_at(const bt_core_t *core, bt_instance_t *worker)
{
    if (worker->hello.weights.update == core->weights.update) {
        return;
    }
    worker->is_stale = true;
    worker->refused_us = 0;
    bt_core_worker_drains(core, worker);
    if (bt_instance_is_asleep(worker)) {
        return; /* it is ordered to when it has woken */
    }
    if ((worker->hello.flags & BT_HELLO_WEIGHTS) == 0) {
        BT_LOG_WARN("worker %s replaces no weights and gets no requests: "
                    "weights %s are in force",
                    worker->hello.name, core->weights.version);
        return;
    }
    BT_LOG_INFO("worker %s is to load weights %s", worker->hello.name,
                core->weights.version);
    order_load(core, worker);
}

void bt_core_weights_checked(const bt_core_t *core, bt_instance_t *worker,
                             const bt_msg_weights_checked_t *checked,
                             uint64_t now_us)
{
    const bool is_new = (worker->refused_us == 0) ||
                        (strcmp(worker->checked.text, checked->text) != 0);

    worker->checked = *checked;
    if (!worker->is_stale || (checked->status == BT_OK) ||
        (checked->update != core->weights.update)) {
        return;
    }
    worker->refused_us = now_us;
    if (is_new) {
        BT_LOG_WARN("worker %s gets no requests: it cannot load weights %s, "
                    "which are in force: %s",
                    worker->hello.name, core->weights.version, checked->text);
    }
}

void bt_core_weights_tick(bt_core_t *core, uint64_t now_us)
{
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        if ((worker->refused_us != 0) &&
            (now_us - worker->refused_us >= RETRY_US)) {
            worker->refused_us = now_us;
            order_load(core, worker);
        }
    }
}

/* A retry would mix tokens of two weights. */
static bool is_of_other_weights(const bt_core_t *core, const bt_gen_t *gen)
{
    return (gen->attempt.number > 0) &&
           (gen->weights.update != core->weights.update) &&
           ((gen->n_output > 0) || (gen->rows != NULL));
}

bool bt_gen_fails_for_weights(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    char before[sizeof(gen->trouble)];

    if (!is_of_other_weights(core, gen)) {
        return false;
    }
    memcpy(before, gen->trouble, sizeof(before));
    bt_gen_fail(core, gen, 503, now_us,
                "%.300s, and weights %s were replaced by %s meanwhile", before,
                gen->weights.version, core->weights.version);
    return true;
}

static bt_gen_t *first_that_fails(const bt_core_t *core)
{
    BT_LIST_FOR_EACH_ENTRY(bt_gen_t, gen, &core->live, live_link) {
        if ((gen->state == BT_GEN_IS_WAITING) &&
            is_of_other_weights(core, gen)) {
            return gen;
        }
    }
    return NULL;
}

void bt_core_set_weights(bt_core_t *core, const bt_wire_weights_t *weights,
                         bt_hash128_t model, uint64_t now_us)
{
    bt_gen_t *gen;

    BT_ASSERT(weights->update > core->weights.update);
    BT_LOG_INFO("weights %s, of %s, are in force", weights->version,
                weights->path);
    core->weights = *weights;
    if (weights->version[0] == '\0') { /* a peer's */
        snprintf(core->weights.version, sizeof(core->weights.version),
                 "%" PRIu64, weights->update);
    }
    core->weights_model = model;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        replace_at(core, worker);
    }
    core->expected_us = now_us; /* they come back */
    while ((gen = first_that_fails(core)) != NULL) {
        (void)bt_gen_fails_for_weights(core, gen, now_us);
    }
}

void bt_core_weights_joined(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us)
{
    const bt_msg_hello_t *hello = &worker->hello;

    if (hello->weights.update > core->weights.update) {
        /* Another router had them replaced. */
        bt_core_set_weights(core, &hello->weights, hello->model, now_us);
    } else {
        replace_at(core, worker);
    }
}

void bt_gen_bind_weights(const bt_core_t *core, bt_gen_t *gen)
{
    if ((gen->n_output == 0) || (gen->attempt.number == 0)) {
        gen->weights.update = core->weights.update;
        memcpy(gen->weights.version, core->weights.version,
               sizeof(gen->weights.version));
    }
}

const bt_gen_weights_t *bt_core_weights_of(const bt_gen_t *gen)
{
    return &gen->weights;
}

void bt_core_check_weights(const bt_core_t *core, bt_instance_t *worker,
                           const bt_wire_weights_t *weights)
{
    const bt_msg_t msg = {.type = BT_MSG_WEIGHTS,
                          .u.weights = {.weights = *weights}};

    worker->asked_update = weights->update;
    core->ops.send(core->ops.send_ctx, worker, &msg);
}
