/* SPDX-License-Identifier: Apache-2.0 */
/* LoRA adapters that workers load while they run. Each worker is ordered to
 * load each of them, also when it joins; one that lacks any of those that are
 * offered to clients gets no request that has an adapter. One that was dropped
 * is ordered on while requests have it: they wait for workers, or run again. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "router/core/core_priv.h"

/* What a worker has said of an adapter. */
typedef struct answer {
    bt_list_t link;
    uint64_t instance;
    bt_status_t status;
    char text[BT_WIRE_MAX_TEXT];
} answer_t;

struct bt_core_adapter {
    bt_list_t link;
    bt_msg_adapter_t order;
    bool is_wanted; /* no: it goes with its last request */
    bool is_offered;
    uint32_t n_requests;
    bt_list_t answers;
    uint8_t *content; /* owned, order.bytes; NULL: it is at the path */
};

typedef bt_core_adapter_t adapter_t;

static adapter_t *find(const bt_core_t *core, bt_hash128_t digest)
{
    BT_LIST_FOR_EACH_ENTRY(adapter_t, at, &core->adapters, link) {
        if (bt_hash128_equal(at->order.adapter, digest)) {
            return at;
        }
    }
    return NULL;
}

static answer_t *answer_of(const adapter_t *at, const bt_instance_t *worker)
{
    BT_LIST_FOR_EACH_ENTRY(answer_t, answer, &at->answers, link) {
        if (answer->instance == worker->hello.instance) {
            return answer;
        }
    }
    return NULL;
}

static void free_answer(answer_t *answer)
{
    if (answer != NULL) {
        bt_list_remove(&answer->link);
        bt_free(answer);
    }
}

static void free_answers(adapter_t *at)
{
    while (!bt_list_empty(&at->answers)) {
        free_answer(BT_CONTAINER_OF(at->answers.next, answer_t, link));
    }
}

/* @return false: the worker cannot get what the order is of */
static bool takes(const bt_instance_t *worker, const adapter_t *at)
{
    const uint32_t flags =
        BT_HELLO_ADAPTER_UPDATES |
        ((at->content != NULL) ? BT_HELLO_ADAPTER_CONTENT : 0);

    return (worker->hello.flags & flags) == flags;
}

static void order(const bt_core_t *core, bt_instance_t *worker,
                  const adapter_t *at, uint32_t loads)
{
    bt_msg_t msg = {.type = BT_MSG_ADAPTER, .u.adapter = at->order};

    if (!takes(worker, at) || bt_instance_is_asleep(worker)) {
        return;
    }
    msg.u.adapter.loads = loads;
    core->ops.send(core->ops.send_ctx, worker, &msg);
}

/* A refusal of one that was dropped counts for its last requests alone. */
static void settle(const bt_core_t *core, bt_instance_t *worker)
{
    bool lacks = false;

    BT_LIST_FOR_EACH_ENTRY(const adapter_t, at, &core->adapters, link) {
        const answer_t *const answer = answer_of(at, worker);

        lacks = lacks || (at->is_offered &&
                          ((answer == NULL) ||
                           ((answer->status != BT_OK) && at->is_wanted)));
    }
    bt_table_lacks_adapters(worker, lacks);
}

/* @return the adapter, a new one if there is none; NULL: no memory */
static adapter_t *find_or_add(bt_core_t *core, bt_hash128_t digest)
{
    adapter_t *at = find(core, digest);

    if (at == NULL) {
        at = bt_calloc(1, sizeof(*at));
        if (at == NULL) {
            return NULL;
        }
        at->order.adapter = digest;
        bt_list_init(&at->answers);
        bt_list_push_back(&core->adapters, &at->link);
    }
    return at;
}

static void order_all(const bt_core_t *core, adapter_t *at)
{
    at->is_wanted = true;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        answer_t *const answer = answer_of(at, worker);

        if ((answer != NULL) && (answer->status == BT_OK)) {
            continue;
        }
        free_answer(answer); /* a refusal of before is no answer to this */
        order(core, worker, at, 1);
    }
}

bt_status_t bt_core_adapter_load(bt_core_t *core, bt_hash128_t digest,
                                 const char *name, const char *path)
{
    adapter_t *const at = find_or_add(core, digest);

    if (at == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(at->order.name, sizeof(at->order.name), "%s", name);
    snprintf(at->order.path, sizeof(at->order.path), "%s", path);
    order_all(core, at);
    return BT_OK;
}

bt_status_t bt_core_adapter_give(bt_core_t *core, bt_hash128_t digest,
                                 const char *name, uint8_t *content,
                                 size_t bytes)
{
    adapter_t *const at = find_or_add(core, digest);

    if (at == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(at->order.name, sizeof(at->order.name), "%s", name);
    bt_free(at->content); /* equal */
    at->content = content;
    at->order.bytes = bytes;
    order_all(core, at);
    return BT_OK;
}

void bt_core_adapter_want(const bt_core_t *core, bt_instance_t *worker,
                          const bt_msg_adapter_want_t *want)
{
    const adapter_t *const at = find(core, want->adapter);
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_PART};
    bt_msg_adapter_part_t *const part = &msg.u.adapter_part;
    uint64_t left;

    if ((at == NULL) || (at->content == NULL) ||
        (want->offset >= at->order.bytes)) {
        return; /* dropped meanwhile: that order comes behind this */
    }
    left = at->order.bytes - want->offset;
    part->adapter = want->adapter;
    part->offset = want->offset;
    part->data = at->content + want->offset;
    part->data_bytes =
        (left < BT_WIRE_ADAPTER_PART) ? (uint32_t)left : BT_WIRE_ADAPTER_PART;
    core->ops.send(core->ops.send_ctx, worker, &msg);
}

bt_status_t bt_core_adapter_look(const bt_core_t *core, bt_hash128_t digest,
                                 char *why, size_t why_bytes)
{
    const adapter_t *const at = find(core, digest);
    uint32_t n = 0;
    bool waits = false;

    if (at == NULL) {
        snprintf(why, why_bytes, "it was dropped meanwhile");
        return BT_ERR_NOT_FOUND;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &core->table.workers,
                           link) {
        const answer_t *const answer = answer_of(at, worker);

        if (bt_instance_is_asleep(worker)) {
            continue;
        }
        if (!takes(worker, at)) {
            snprintf(why, why_bytes,
                     "worker %s loads no adapters: it was started without "
                     "%s, or is of an older version",
                     worker->hello.name,
                     (at->content != NULL) ? "--lora-cache-host-memory"
                                           : "--lora-dir");
            return BT_ERR_UNSUPPORTED;
        }
        if ((answer != NULL) && (answer->status != BT_OK)) {
            snprintf(why, why_bytes, "worker %s: %s", worker->hello.name,
                     answer->text);
            return answer->status;
        }
        waits = waits || (answer == NULL);
        n++;
    }
    if (n == 0) {
        snprintf(why, why_bytes, "no worker is here that could load it");
        return BT_ERR_PEER_LOST;
    }
    return waits ? BT_ERR_BUSY : BT_OK;
}

void bt_core_adapter_offer(bt_core_t *core, bt_hash128_t digest)
{
    adapter_t *const at = find(core, digest);

    if (at == NULL) {
        return;
    }
    at->is_offered = true;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        settle(core, worker);
    }
}

/* Forgets an adapter that is neither wanted nor of any request. */
static void leave(bt_core_t *core, adapter_t *at)
{
    if (at->is_wanted || (at->n_requests > 0)) {
        return;
    }
    bt_list_remove(&at->link);
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        order(core, worker, at, 0);
        settle(core, worker);
    }
    free_answers(at);
    bt_free(at->content);
    bt_free(at);
}

void bt_core_adapter_drop(bt_core_t *core, bt_hash128_t digest)
{
    adapter_t *const at = find(core, digest);

    if (at == NULL) {
        return;
    }
    at->is_wanted = false;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        settle(core, worker);
    }
    leave(core, at);
}

bool bt_core_adapter_is_used(const bt_core_t *core, bt_hash128_t digest)
{
    const adapter_t *const at = find(core, digest);

    return (at != NULL) && (at->n_requests > 0);
}

bt_core_adapter_t *bt_core_adapter_ref(const bt_core_t *core,
                                       bt_hash128_t digest)
{
    adapter_t *const at = find(core, digest);

    if (at != NULL) {
        at->n_requests++;
    }
    return at;
}

void bt_core_adapter_unref(bt_core_t *core, bt_core_adapter_t *adapter)
{
    if (adapter != NULL) {
        BT_ASSERT(adapter->n_requests > 0);
        adapter->n_requests--;
        leave(core, adapter);
    }
}

void bt_core_adapters_joined(const bt_core_t *core, bt_instance_t *worker)
{
    BT_LIST_FOR_EACH_ENTRY(const adapter_t, at, &core->adapters, link) {
        order(core, worker, at, 1);
    }
    settle(core, worker);
}

void bt_core_adapters_left(const bt_core_t *core, const bt_instance_t *worker)
{
    BT_LIST_FOR_EACH_ENTRY(const adapter_t, at, &core->adapters, link) {
        free_answer(answer_of(at, worker));
    }
}

void bt_core_adapter_ready(bt_core_t *core, bt_instance_t *worker,
                           const bt_msg_adapter_ready_t *ready)
{
    adapter_t *const at = find(core, ready->adapter);
    answer_t *answer = (at != NULL) ? answer_of(at, worker) : NULL;

    if (at == NULL) {
        return; /* dropped meanwhile */
    }
    if (answer == NULL) {
        answer = bt_calloc(1, sizeof(*answer));
        if (answer == NULL) {
            return; /* as if it had not said anything */
        }
        answer->instance = worker->hello.instance;
        bt_list_push_back(&at->answers, &answer->link);
    }
    answer->status = ready->status;
    memcpy(answer->text, ready->text, sizeof(answer->text));
    if ((ready->status != BT_OK) && at->is_offered) {
        BT_LOG_WARN("worker %s gets no requests with adapters: it cannot load "
                    "%s: %s",
                    worker->hello.name, at->order.name, ready->text);
    }
    settle(core, worker);
}

void bt_core_adapters_free(bt_core_t *core)
{
    while (!bt_list_empty(&core->adapters)) {
        adapter_t *const at =
            BT_CONTAINER_OF(core->adapters.next, adapter_t, link);

        bt_list_remove(&at->link);
        free_answers(at);
        bt_free(at->content);
        bt_free(at);
    }
}
