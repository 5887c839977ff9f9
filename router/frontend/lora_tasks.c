/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/lora_tasks.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "inference/adapter/adapter_tensors.h"
#include "router/frontend/adapter_loads.h"
#include "router/frontend/frontend.h"
#include "router/frontend/lora_task_files.h"
#include "router/frontend/space.h"

#define WHY_BYTES 512

typedef enum task_state {
    TASK_READING,
    TASK_LOADING,
    TASK_READY,
} task_state_t;

typedef struct task {
    bt_list_t link; /* least recently used first */
    bt_served_t *served;
    uint64_t id;
    char tenant[BT_TENANT_NAME_BYTES]; /* "": of those without a name */
    bool is_prefetched;                /* for all tenants, and never evicted */
    task_state_t state;
    bt_hash128_t hash; /* of the tensors */
    bt_hash128_t digest;
    uint64_t bytes; /* of the tensors, then of what the workers get */
    uint64_t since_us;
    uint64_t n_looks; /* bt_lora_tasks.n_looks when it was looked at last */
    bt_list_t waiters;
    bt_adapter_metrics_t *metrics; /* once it is READY; or NULL */
    /* Reading. */
    bt_pool_job_t job;
    bt_hf_modules_t model;
    uint32_t max_rank;
    bt_adapter_tensors_t *tensors; /* owned; NULL: the id alone */
    bool is_busy;                  /* the job is at the pool */
    uint8_t *content;              /* owned, until the core has it */
    size_t content_bytes;
    bt_hash128_t read_hash, read_digest; /* of what was read */
    bt_status_t status;
    /* With --lora-task-dir. */
    bool is_shared;
    bool has_known;             /* the adapter of `hash` is here */
    bt_adapter_tensors_t *sent; /* owned: came with the id of a task that is
                                   here, in case it has no file; or NULL */
    bt_hash128_t key;           /* of its file */
    char why[WHY_BYTES];
} task_t;

struct bt_lora_tasks {
    bt_list_t list;
    uint64_t bytes;
    uint64_t n_looks; /* ticks */
};

/* ---- the pool ---- */

static void read_tensors(task_t *task)
{
    bt_adapter_t *adapter = NULL;

    task->status =
        bt_adapter_open_tensors(task->tensors, &task->model, task->max_rank,
                                task->why, sizeof(task->why), &adapter);
    if (task->status != BT_OK) {
        return;
    }
    task->read_hash = task->tensors->hash;
    task->read_digest = adapter->digest;
    task->content_bytes = bt_adapter_packed_bytes(adapter);
    task->content = bt_calloc(1, task->content_bytes);
    if (task->content != NULL) {
        bt_adapter_pack(adapter, task->content);
    } else {
        task->status = BT_ERR_NO_MEMORY;
    }
    bt_adapter_free(adapter);
}

/* Takes the task's file. With tensors it must be of these. */
static bt_status_t read_file(task_t *task)
{
    const bt_hash128_t *const known = task->has_known ? &task->hash : NULL;
    bt_lora_file_t file = {.bytes = 0};
    const bt_status_t status = bt_lora_file_read(
        task->served->front->config->lora_task_dir, task->key, known, &file);

    if (status != BT_OK) {
        return status;
    }
    if ((task->tensors != NULL) &&
        !bt_hash128_equal(task->tensors->hash, file.hash)) {
        bt_free(file.content);
        return BT_ERR_EXISTS;
    }
    bt_free(task->content);
    task->content = file.content; /* NULL: it is known */
    task->content_bytes = file.bytes;
    task->read_hash = file.hash;
    task->read_digest = file.digest;
    return BT_OK;
}

static bt_status_t write_tensors(task_t *task)
{
    const bt_config_t *const config = task->served->front->config;
    bt_lora_file_t file;

    read_tensors(task);
    if (task->status != BT_OK) {
        return task->status;
    }
    if (task->content_bytes > config->lora_cache_host_bytes) {
        return BT_OK; /* refused later */
    }
    file = (bt_lora_file_t){.hash = task->read_hash,
                            .digest = task->read_digest,
                            .content = task->content,
                            .bytes = task->content_bytes};
    return bt_lora_file_write(config->lora_task_dir, task->key, &file,
                              config->lora_cache_host_bytes);
}

/* Compares the task with its file, which another router may have written, or
 * writes it. */
static void meet_file(task_t *task)
{
    bt_status_t status = read_file(task);

    if ((status == BT_ERR_NOT_FOUND) && (task->tensors != NULL)) {
        status = write_tensors(task);
        if (status == BT_ERR_EXISTS) { /* another one was first */
            status = read_file(task);
        }
    }
    task->status = status;
}

static void run(bt_pool_job_t *job)
{
    task_t *const task = BT_CONTAINER_OF(job, task_t, job);

    if (task->is_shared) {
        meet_file(task);
    } else {
        read_tensors(task);
    }
}

/* ---- the cache ---- */

/* True when other routers are to know the tasks. */
static bool is_shared(const bt_served_t *served)
{
    const char *const dir = served->front->config->lora_task_dir;

    return (dir != NULL) && (dir[0] != '\0');
}

static void name_of(const task_t *task, char *out, size_t bytes)
{
    snprintf(out, bytes, "LoRA task %" PRIu64 "%s%s", task->id,
             (task->tenant[0] != '\0') ? " of " : "", task->tenant);
}

uint32_t bt_lora_tasks_count(const bt_served_t *served)
{
    uint32_t n = 0;

    if (served->lora_tasks == NULL) {
        return 0;
    }
    BT_LIST_FOR_EACH_ENTRY(const task_t, task, &served->lora_tasks->list,
                           link) {
        n += (task->state == TASK_READY) ? 1 : 0;
    }
    return n;
}

bool bt_lora_tasks_have(const bt_served_t *served, bt_hash128_t digest)
{
    if (served->lora_tasks == NULL) {
        return false;
    }
    BT_LIST_FOR_EACH_ENTRY(const task_t, task, &served->lora_tasks->list,
                           link) {
        if ((task->state != TASK_READING) &&
            bt_hash128_equal(task->digest, digest)) {
            return true;
        }
    }
    return false;
}

static task_t *find(const bt_served_t *served, const char *tenant, uint64_t id)
{
    BT_LIST_FOR_EACH_ENTRY(task_t, task, &served->lora_tasks->list, link) {
        if ((task->id == id) &&
            (task->is_prefetched || (strcmp(task->tenant, tenant) == 0))) {
            return task;
        }
    }
    return NULL;
}

static void free_task(task_t *task)
{
    bt_list_remove(&task->link);
    bt_free(task->tensors);
    bt_free(task->sent);
    bt_free(task->content);
    bt_free(task);
}

/* Removes a task; its adapter goes with the last request that has it. */
static void forget(task_t *task)
{
    bt_served_t *const served = task->served;
    const bt_hash128_t digest = task->digest;
    const bool is_ordered = task->state != TASK_READING;

    served->lora_tasks->bytes -= task->bytes;
    free_task(task);
    if (is_ordered) {
        bt_adapter_drop_unused(served, digest);
    }
}

static bool is_evictable(const task_t *task)
{
    return (task->state == TASK_READY) && !task->is_prefetched &&
           !task->is_busy &&
           !bt_core_adapter_is_used(task->served->core, task->digest);
}

/* @return false: all of them are in use */
static bool evict_oldest(bt_served_t *served)
{
    BT_LIST_FOR_EACH_ENTRY(task_t, task, &served->lora_tasks->list, link) {
        if (is_evictable(task)) {
            char name[BT_WIRE_MAX_MODEL];

            name_of(task, name, sizeof(name));
            BT_LOG_INFO("%s is evicted", name);
            forget(task);
            return true;
        }
    }
    return false;
}

/* Evicts tasks until @a bytes more fit. @return false: they do not */
static bool evict_for(bt_served_t *served, uint64_t bytes)
{
    const uint64_t limit = served->front->config->lora_cache_host_bytes;

    while ((bytes > limit) || (served->lora_tasks->bytes > limit - bytes)) {
        if ((bytes > limit) || !evict_oldest(served)) {
            return false;
        }
    }
    return true;
}

static bt_status_t refuse_size(const bt_served_t *served, uint64_t bytes,
                               bt_api_error_t *error)
{
    const uint64_t limit = served->front->config->lora_cache_host_bytes;

    if (bytes > limit) {
        bt_api_error_set(error, 400, "lora_weights",
                         "the LoRA adapter takes %" PRIu64 " bytes, and the "
                         "cache has %" PRIu64 " (--lora-cache-host-memory)",
                         bytes, limit);
        return BT_ERR_TOO_LARGE;
    }
    bt_api_error_set(error, 503, "lora_weights",
                     "Cache is full. There are no done tasks to evict");
    return BT_ERR_NO_MEMORY;
}

/* ---- ends ---- */

/* Tells those who wait. @param error  NULL: the adapter is there */
static void tell(task_t *task, const bt_api_error_t *error)
{
    while (!bt_list_empty(&task->waiters)) {
        bt_lora_waiter_t *const waiter =
            BT_CONTAINER_OF(task->waiters.next, bt_lora_waiter_t, link);

        bt_list_remove(&waiter->link);
        waiter->metrics = task->metrics;
        waiter->done(waiter, task->digest, error);
    }
}

static void fail(task_t *task, const bt_api_error_t *error)
{
    char name[BT_WIRE_MAX_MODEL];

    name_of(task, name, sizeof(name));
    bt_router_metrics_adapter_load(task->served->metrics, false);
    BT_LOG_WARN("%s: %s", name, error->message);
    tell(task, error);
    forget(task);
}

/* Gives the workers what was read. */
static bt_status_t give(task_t *task, bt_api_error_t *error)
{
    bt_served_t *const served = task->served;
    char name[BT_WIRE_MAX_MODEL];

    bt_free(task->tensors);
    task->tensors = NULL;
    if (task->status != BT_OK) {
        bt_api_error_set(error, (task->status == BT_ERR_NO_MEMORY) ? 503 : 400,
                         "lora_weights", "%.400s",
                         (task->why[0] != '\0') ? task->why : "out of memory");
        return task->status;
    }
    task->hash = task->read_hash;
    task->digest = task->read_digest;
    served->lora_tasks->bytes -= task->bytes;
    task->bytes = 0;
    if (!evict_for(served, task->content_bytes)) {
        return refuse_size(served, task->content_bytes, error);
    }
    task->bytes = task->content_bytes;
    served->lora_tasks->bytes += task->bytes;
    name_of(task, name, sizeof(name));
    if (bt_core_adapter_give(served->core, task->digest, name, task->content,
                             task->content_bytes) != BT_OK) {
        return bt_api_error_no_memory(error);
    }
    task->content = NULL; /* the core's */
    task->state = TASK_LOADING;
    task->since_us = bt_now_us();
    return BT_OK;
}

static void set_not_found(uint64_t id, bt_api_error_t *error)
{
    bt_api_error_set(error, 400, "lora_task_id",
                     "LoRA task %" PRIu64 " not found in cache. Please send "
                     "LoRA weights with request",
                     id);
}

static void set_taken(const task_t *task, const char *what,
                      bt_api_error_t *error)
{
    bt_api_error_set(error, 409, "lora_weights",
                     "LoRA task %" PRIu64 " is %s with other weights: send "
                     "these with another lora_task_id",
                     task->id, what);
}

/* Ends what was asked of a file without an adapter. @return false: there is one
 */
static bool end_without_file(task_t *task)
{
    bt_api_error_t error = {0};

    if (task->status == BT_ERR_NOT_FOUND) {
        set_not_found(task->id, &error);
    } else if (task->status == BT_ERR_EXISTS) {
        set_taken(task, "known", &error);
    } else if (task->status == BT_ERR_IO) {
        BT_LOG_WARN("LoRA task %" PRIu64 ": --lora-task-dir cannot be used",
                    task->id);
        bt_api_error_set(&error, 503, NULL,
                         "LoRA task %" PRIu64 " cannot be "
                         "looked up",
                         task->id);
    } else {
        return false;
    }
    tell(task, &error);
    forget(task);
    return true;
}

/* Takes what the file has: the adapter that is here, or another one. */
static bool take_file(task_t *task)
{
    const bt_hash128_t before = task->digest;

    if (task->state == TASK_READING) {
        return true;
    }
    if ((task->content == NULL) ||
        bt_hash128_equal(task->read_digest, before)) {
        task->hash = task->read_hash;
        bt_free(task->tensors);
        task->tensors = NULL;
        bt_free(task->content);
        task->content = NULL;
        if (task->state == TASK_READY) {
            tell(task, NULL);
        }
        return false;
    }
    task->state = TASK_READING;
    bt_adapter_drop_unused(task->served, before);
    return true;
}

static void post(task_t *task)
{
    task->is_busy = true;
    bt_pool_post(task->served->front->pool, &task->job, BT_POOL_FILES);
}

static void read_done(bt_pool_job_t *job)
{
    task_t *const task = BT_CONTAINER_OF(job, task_t, job);
    bt_api_error_t error = {0};

    task->is_busy = false;
    if (!job->ran) {
        task->status = BT_ERR_NO_MEMORY;
    }
    if ((task->status == BT_ERR_NOT_FOUND) && (task->sent != NULL)) {
        task->tensors = task->sent; /* another router has evicted it */
        task->sent = NULL;
        post(task);
        return;
    }
    bt_free(task->sent);
    task->sent = NULL;
    if (task->is_shared && (end_without_file(task) ||
                            ((task->status == BT_OK) && !take_file(task)))) {
        return;
    }
    if (give(task, &error) != BT_OK) {
        fail(task, &error);
    }
}

/* ---- beginnings ---- */

/* Adds a task, which is to be read. */
static bt_status_t add(bt_served_t *served, const char *tenant,
                       bt_api_lora_t *lora, task_t **task_p,
                       bt_api_error_t *error)
{
    const uint64_t bytes =
        (lora->tensors != NULL) ? lora->tensors->weights_bytes : 0;
    task_t *task;
    char why[WHY_BYTES] = "";

    if (!evict_for(served, bytes)) {
        return refuse_size(served, bytes, error);
    }
    task = bt_calloc(1, sizeof(*task));
    if (task == NULL) {
        return bt_api_error_no_memory(error);
    }
    if (bt_hf_modules_read(served->gguf, why, sizeof(why), &task->model) !=
        BT_OK) {
        bt_api_error_set(error, 400, "lora_weights", "%.400s", why);
        bt_free(task);
        return BT_ERR_UNSUPPORTED;
    }
    task->served = served;
    task->id = lora->task_id;
    snprintf(task->tenant, sizeof(task->tenant), "%s", tenant);
    if (lora->tensors != NULL) {
        task->hash = lora->tensors->hash;
    }
    task->bytes = bytes;
    task->max_rank = served->front->config->max_lora_rank;
    bt_list_init(&task->waiters);
    task->tensors = lora->tensors;
    lora->tensors = NULL;
    task->job.run = run;
    task->job.done = read_done;
    bt_list_push_back(&served->lora_tasks->list, &task->link);
    served->lora_tasks->bytes += bytes;
    *task_p = task;
    return BT_OK;
}

/* @return BT_ERR_NOT_FOUND: the task was evicted, since its tensors are others
 */
static bt_status_t check_same(task_t *task, const bt_api_lora_t *lora,
                              bt_api_error_t *error)
{
    if ((lora->tensors == NULL) ||
        bt_hash128_equal(lora->tensors->hash, task->hash)) {
        return BT_OK;
    }
    if (is_evictable(task)) {
        forget(task);
        return BT_ERR_NOT_FOUND;
    }
    set_taken(task, task->is_prefetched ? "of --lora-prefetch-dir" : "in use",
              error);
    return BT_ERR_EXISTS;
}

static bt_status_t open_cache(bt_served_t *served, bt_api_error_t *error)
{
    if (served->front->config->lora_cache_host_bytes == 0) {
        bt_api_error_set(error, 400, "lora_task_id",
                         "input 'lora_task_id' is not taken: this server was "
                         "started without --lora-cache-host-memory");
        return BT_ERR_UNSUPPORTED;
    }
    if (served->lora_tasks == NULL) {
        served->lora_tasks = bt_calloc(1, sizeof(*served->lora_tasks));
        if (served->lora_tasks == NULL) {
            return bt_api_error_no_memory(error);
        }
        bt_list_init(&served->lora_tasks->list);
    }
    return BT_OK;
}

/* Key of a task's file: of the tenant, the id, and the model. */
static bt_hash128_t key_of(const bt_served_t *served, const char *owner,
                           uint64_t id)
{
    const uint8_t *const key = served->front->space_key;
    char text[24];

    snprintf(text, sizeof(text), "%" PRIu64, id);
    return bt_space_of_adapter(key, bt_space_of_tenant(key, owner, text),
                               served->identity);
}

/* Looks at the task's file before each use: other routers may have written it,
 * or removed it. */
static bt_status_t find_shared(bt_served_t *served, const char *owner,
                               bt_api_lora_t *lora, bt_lora_waiter_t *waiter,
                               bt_api_error_t *error)
{
    task_t *task = find(served, owner, lora->task_id);
    bt_status_t status = BT_OK;

    if ((task != NULL) && task->is_busy && (lora->tensors != NULL) &&
        !bt_hash128_equal(lora->tensors->hash, task->hash)) {
        bt_api_error_set(error, 503, "lora_weights",
                         "LoRA task %" PRIu64 " is being looked up: send it "
                         "again",
                         task->id);
        return BT_ERR_NO_MEMORY;
    }
    if (task != NULL) {
        status = check_same(task, lora, error);
        task = (status == BT_OK) ? task : NULL;
    }
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    if (task == NULL) {
        status = add(served, owner, lora, &task, error);
    }
    if (status != BT_OK) {
        return status;
    }
    if (lora->tensors != NULL) { /* of a task that is here */
        bt_free(task->sent);
        task->sent = lora->tensors;
        lora->tensors = NULL;
    }
    task->is_shared = true;
    task->key = key_of(served, owner, lora->task_id);
    bt_list_remove(&task->link);
    bt_list_push_back(&served->lora_tasks->list, &task->link);
    bt_list_push_back(&task->waiters, &waiter->link);
    if (!task->is_busy) {
        task->has_known = task->state != TASK_READING;
        post(task);
    }
    return BT_ERR_BUSY;
}

bt_status_t bt_lora_task_find(bt_served_t *served, const bt_tenant_t *tenant,
                              bt_api_lora_t *lora, bt_lora_waiter_t *waiter,
                              bt_hash128_t *digest_p, bt_api_error_t *error_p)
{
    const char *const owner = tenant->is_named ? tenant->name : "";
    task_t *task;
    bt_status_t status = open_cache(served, error_p);

    if (status != BT_OK) {
        return status;
    }
    task = find(served, owner, lora->task_id);
    if (is_shared(served) && ((task == NULL) || !task->is_prefetched)) {
        return find_shared(served, owner, lora, waiter, error_p);
    }
    status =
        (task != NULL) ? check_same(task, lora, error_p) : BT_ERR_NOT_FOUND;
    if ((status == BT_ERR_NOT_FOUND) && (lora->tensors == NULL)) {
        set_not_found(lora->task_id, error_p);
        return BT_ERR_NOT_FOUND;
    }
    if (status == BT_ERR_NOT_FOUND) {
        status = add(served, owner, lora, &task, error_p);
        if (status == BT_OK) {
            post(task);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    bt_list_remove(&task->link);
    bt_list_push_back(&served->lora_tasks->list, &task->link);
    if (task->state != TASK_READY) {
        bt_list_push_back(&task->waiters, &waiter->link);
        return BT_ERR_BUSY;
    }
    waiter->metrics = task->metrics;
    *digest_p = task->digest;
    return BT_OK;
}

/* ---- what is due ---- */

static void become_ready(task_t *task)
{
    bt_model_metrics_t *const metrics = task->served->metrics;
    char name[BT_WIRE_MAX_MODEL];

    name_of(task, name, sizeof(name));
    task->state = TASK_READY;
    task->metrics =
        bt_router_metrics_adapter(metrics, name, !task->is_prefetched);
    bt_router_metrics_adapter_load(metrics, true);
    tell(task, NULL);
}

static void look(task_t *task, uint64_t now_us)
{
    bt_served_t *const served = task->served;
    char why[WHY_BYTES] = "";
    bt_api_error_t error = {0};
    bt_status_t status =
        bt_core_adapter_look(served->core, task->digest, why, sizeof(why));

    if (status == BT_OK) {
        bt_core_adapter_offer(served->core, task->digest);
        become_ready(task);
        return;
    }
    if ((status == BT_ERR_BUSY) &&
        (now_us < task->since_us + BT_ADAPTER_LOAD_US)) {
        return;
    }
    if ((status == BT_ERR_NO_MEMORY) && evict_oldest(served)) {
        char name[BT_WIRE_MAX_MODEL];

        name_of(task, name, sizeof(name));
        status = bt_core_adapter_load(served->core, task->digest, name, "");
        if (status == BT_OK) {
            return;
        }
    }
    if (status == BT_ERR_BUSY) {
        snprintf(why, sizeof(why), "not all workers have loaded it in time");
    }
    bt_api_error_set(
        &error,
        (status == BT_ERR_BUSY)                                          ? 504
        : ((status == BT_ERR_PEER_LOST) || (status == BT_ERR_NO_MEMORY)) ? 503
                                                                         : 400,
        "lora_weights", "%.400s", why);
    if (task->is_prefetched &&
        ((status == BT_ERR_BUSY) || (status == BT_ERR_PEER_LOST))) {
        tell(task, &error); /* it is there when workers come */
        task->since_us = now_us;
    } else {
        fail(task, &error);
    }
}

void bt_lora_tasks_tick(bt_served_t *served, uint64_t now_us)
{
    bt_lora_tasks_t *const tasks = served->lora_tasks;
    bt_list_t *at;

    if (tasks == NULL) {
        return;
    }
    tasks->n_looks++;
    at = tasks->list.next;
    while (at != &tasks->list) {
        task_t *const task = BT_CONTAINER_OF(at, task_t, link);

        at = at->next;
        if ((task->state == TASK_LOADING) && !task->is_busy &&
            (task->n_looks != tasks->n_looks)) {
            task->n_looks = tasks->n_looks;
            look(task, now_us);
            at = tasks->list.next; /* it may have forgotten any */
        }
    }
}

/* ---- --lora-prefetch-dir ---- */

/* @return false: the name is not that of a task */
static bool read_id(const char *name, uint64_t *id_p)
{
    char *end;

    errno = 0;
    *id_p = strtoull(name, &end, 10);
    return (*name >= '0') && (*name <= '9') && (*end == '\0') && (errno == 0);
}

static bt_status_t prefetch(bt_served_t *served, const char *name)
{
    bt_api_lora_t lora = {.has_task = true};
    bt_api_error_t error = {0};
    char path[BT_CONFIG_PATH_BYTES];
    char why[WHY_BYTES] = "its name is not a lora_task_id";
    task_t *task = NULL;
    bt_status_t status = BT_ERR_INVALID_PARAM;

    snprintf(path, sizeof(path), "%s/%s",
             served->front->config->lora_prefetch_dir, name);
    if (read_id(name, &lora.task_id)) {
        status = bt_adapter_tensors_read(path, why, sizeof(why), &lora.tensors);
    }
    if (status == BT_OK) {
        status = add(served, "", &lora, &task, &error);
        bt_free(lora.tensors);
    }
    if (status == BT_OK) {
        task->is_prefetched = true;
        read_tensors(task);
        status = give(task, &error);
        if (status != BT_OK) {
            forget(task);
        }
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("--lora-prefetch-dir: %s: %s", path,
                     (error.http_status != 0) ? error.message : why);
    }
    return status;
}

bt_status_t bt_lora_tasks_open(bt_served_t *served)
{
    const char *const dir = served->front->config->lora_prefetch_dir;
    bt_api_error_t error = {0};
    DIR *folder;
    const struct dirent *entry;
    bt_status_t status;

    if (is_shared(served)) {
        status = bt_lora_files_open(served->front->config->lora_task_dir);
        if (status != BT_OK) {
            return status;
        }
    }
    if ((dir == NULL) || (dir[0] == '\0')) {
        return BT_OK;
    }
    status = open_cache(served, &error);
    folder = (status == BT_OK) ? opendir(dir) : NULL;
    if (folder == NULL) {
        BT_LOG_ERROR("--lora-prefetch-dir: %s cannot be read", dir);
        return (status == BT_OK) ? BT_ERR_NOT_FOUND : status;
    }
    while ((status == BT_OK) && ((entry = readdir(folder)) != NULL)) {
        if (entry->d_name[0] != '.') {
            status = prefetch(served, entry->d_name);
        }
    }
    closedir(folder);
    return status;
}

void bt_lora_tasks_drop(bt_served_t *served)
{
    bt_api_error_t error = {0};

    if (served->lora_tasks == NULL) {
        return;
    }
    bt_api_error_set(&error, 503, NULL, "the server stops");
    while (!bt_list_empty(&served->lora_tasks->list)) {
        task_t *const task =
            BT_CONTAINER_OF(served->lora_tasks->list.next, task_t, link);

        tell(task, &error);
        free_task(task);
    }
    bt_free(served->lora_tasks);
    served->lora_tasks = NULL;
}
