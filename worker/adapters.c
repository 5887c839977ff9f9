/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/adapters.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "inference/adapter/adapter.h"
#include "inference/adapter/adapter_tensors.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define WHY_BYTES 512

uint32_t bt_adapters_max_rank(const bt_config_t *config)
{
    bt_config_adapter_t adapter;
    const char *rest = config->lora;

    return ((bt_config_adapter_next(&rest, &adapter) == BT_OK) ||
            bt_adapters_are_loaded_later(config))
               ? config->max_lora_rank
               : 0;
}

bool bt_adapters_are_loaded_later(const bt_config_t *config)
{
    return ((config->lora_dir != NULL) && (config->lora_dir[0] != '\0')) ||
           bt_adapters_are_sent(config);
}

bool bt_adapters_are_sent(const bt_config_t *config)
{
    return config->lora_cache_host_bytes > 0;
}

/* @return bytes as packed; 0: it cannot be read, which its load reports
 * @param [out] read_p  bytes of its matrices while it is read; NULL: not wanted
 */
static uint64_t packed_bytes(const char *path, const bt_hf_modules_t *sizes,
                             uint64_t *read_p)
{
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES];
    uint64_t bytes = 0;

    if (bt_adapter_open_sizes(path, sizes, why, sizeof(why), &adapter) ==
        BT_OK) {
        bytes = bt_lora_bytes_of(adapter);
    }
    if (read_p != NULL) {
        *read_p = (adapter != NULL) ? adapter->bytes : 0;
    }
    bt_adapter_free(adapter);
    return bytes;
}

uint64_t bt_adapters_estimate(const bt_config_t *config, const bt_gguf_t *gguf)
{
    const char *rest = config->lora;
    bt_config_adapter_t named;
    bt_hf_modules_t sizes;
    char why[WHY_BYTES];
    uint64_t most = 0;
    uint64_t bytes = 0;

    if ((bt_adapters_max_rank(config) == 0) ||
        (bt_hf_modules_read(gguf, why, sizeof(why), &sizes) != BT_OK)) {
        return 0; /* bt_adapters_open() reports it */
    }
    while (bt_config_adapter_next(&rest, &named) == BT_OK) {
        uint64_t n;

        bytes += packed_bytes(named.path, &sizes, &n);
        most = (n > most) ? n : most;
    }
    return bytes + most +
           (bt_adapters_are_loaded_later(config) ? config->lora_memory_bytes
                                                 : 0);
}

/* Reads an adapter and packs it for the model; in any thread. */
static bt_status_t read_one(bt_model_t *model, const bt_hf_modules_t *sizes,
                            const char *path, char *why, size_t why_bytes,
                            bt_hash128_t *digest_p, bt_lora_t **lora_p)
{
    bt_adapter_t *adapter = NULL;
    bt_status_t status =
        bt_adapter_open_for(path, sizes, why, why_bytes, &adapter);

    if (status == BT_OK) {
        *digest_p = adapter->digest;
        status = bt_lora_load(model, adapter, why, why_bytes, lora_p);
    }
    bt_adapter_free(adapter);
    return status;
}

/* @return NULL: no memory */
static bt_worker_adapter_t *add(bt_worker_t *w, const char *name,
                                bt_hash128_t digest, bt_lora_t *lora)
{
    bt_worker_adapter_t *const at = bt_calloc(1, sizeof(*at));

    if (at == NULL) {
        return NULL;
    }
    snprintf(at->name, sizeof(at->name), "%s", name);
    at->digest = digest;
    at->lora = lora;
    bt_list_push_back(&w->adapters.list, &at->link);
    w->adapters.n++;
    BT_LOG_INFO("adapter %s takes %zu KiB", name, bt_lora_bytes(lora) >> 10);
    return at;
}

static void drop(bt_worker_t *w, bt_worker_adapter_t *at)
{
    bt_list_remove(&at->link);
    w->adapters.n--;
    bt_lora_free(w->model, at->lora);
    bt_free(at);
}

/* Moves an adapter to where the model computes. */
static bt_status_t copy_in(bt_worker_t *w, bt_lora_t *lora, char *why,
                           size_t why_bytes)
{
    const bt_status_t status = bt_lora_copy_in(w->model, lora);

    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s",
                 (status == BT_ERR_NO_MEMORY) ? "out of memory of the device"
                                              : bt_status_str(status));
    }
    return status;
}

static bt_status_t open_one(bt_worker_t *w, const bt_config_adapter_t *named)
{
    bt_worker_adapter_t *at;
    bt_lora_t *lora = NULL;
    bt_hash128_t digest;
    char why[WHY_BYTES] = "";
    bt_status_t status = read_one(w->model, &w->adapters.model, named->path,
                                  why, sizeof(why), &digest, &lora);

    if (status == BT_OK) {
        status = copy_in(w, lora, why, sizeof(why));
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("adapter %s (%s): %s", named->name, named->path, why);
        bt_lora_free(w->model, lora);
        return status;
    }
    at = bt_adapters_find(w, digest);
    if (at != NULL) { /* the same by another name */
        bt_lora_free(w->model, lora);
        return BT_OK;
    }
    at = add(w, named->name, digest, lora);
    if (at == NULL) {
        BT_LOG_ERROR("out of memory for adapters");
        bt_lora_free(w->model, lora);
        return BT_ERR_NO_MEMORY;
    }
    at->is_named = true;
    return BT_OK;
}

bt_status_t bt_adapters_open(bt_worker_t *w, const bt_start_t *s)
{
    const char *rest = w->config->lora;
    bt_config_adapter_t named;
    char why[WHY_BYTES] = "";
    bt_status_t status = BT_OK;

    if (bt_adapters_max_rank(w->config) == 0) {
        return BT_OK;
    }
    status = bt_hf_modules_read(s->gguf, why, sizeof(why), &w->adapters.model);
    if (status != BT_OK) {
        BT_LOG_ERROR("LoRA adapters: %s", why);
        return status;
    }
    bt_list_init(&w->adapters.list);
    bt_list_init(&w->adapters.loads);
    w->adapters.is_open = true;
    while ((status == BT_OK) &&
           (bt_config_adapter_next(&rest, &named) == BT_OK)) {
        status = open_one(w, &named);
    }
    return status;
}

bt_worker_adapter_t *bt_adapters_find(const bt_worker_t *w, bt_hash128_t digest)
{
    if (!w->adapters.is_open) {
        return NULL;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_worker_adapter_t, at, &w->adapters.list, link) {
        if (bt_hash128_equal(at->digest, digest)) {
            return at;
        }
    }
    return NULL;
}

/* ---- orders of routers ---- */

struct bt_adapter_load {
    bt_list_t link;
    bt_msg_adapter_t order;
    bt_worker_link_t *from; /* NULL: nobody wants it any more */
    pthread_t thread;
    bool is_begun;
    atomic_bool is_over;
    bt_model_t *model;
    bt_hf_modules_t sizes;
    const char *folder;
    uint64_t left_bytes; /* of --lora-memory */
    uint8_t *content; /* owned, order.bytes, of which the first `got` are here;
                         NULL: it is at the path, or was not begun */
    uint64_t got;
    /* Results. */
    bt_hash128_t digest;
    bt_lora_t *lora;
    bt_status_t status;
    char why[WHY_BYTES];
};

static void tell(bt_worker_t *w, bt_worker_link_t *to, bt_hash128_t digest,
                 bt_status_t status, const char *why)
{
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_READY};

    msg.u.adapter_ready.adapter = digest;
    msg.u.adapter_ready.status = status;
    snprintf(msg.u.adapter_ready.text, sizeof(msg.u.adapter_ready.text), "%.*s",
             (int)sizeof(msg.u.adapter_ready.text) - 1, why);
    bt_worker_send(w, to, &msg);
}

static void claim(bt_worker_adapter_t *at, const bt_worker_link_t *router)
{
    if (router == NULL) {
        return; /* the next sweep frees it, unless another router wants it */
    }
    for (uint32_t i = 0; i < at->n_routers; i++) {
        if (at->routers[i] == router) {
            return;
        }
    }
    if (at->n_routers < BT_ARRAY_LEN(at->routers)) {
        at->routers[at->n_routers++] = router;
    }
}

static void release(bt_worker_adapter_t *at, const bt_worker_link_t *router)
{
    for (uint32_t i = 0; i < at->n_routers; i++) {
        if (at->routers[i] == router) {
            at->routers[i] = at->routers[--at->n_routers];
            return;
        }
    }
}

static bt_status_t check_bytes(bt_adapter_load_t *load, uint64_t bytes)
{
    if (bytes <= load->left_bytes) {
        return BT_OK;
    }
    snprintf(load->why, sizeof(load->why),
             "it takes %" PRIu64 " KiB, and %" PRIu64
             " KiB of --lora-memory are left",
             bytes >> 10, load->left_bytes >> 10);
    return BT_ERR_NO_MEMORY;
}

/* Reads the files, unless their headers say that they are too large. */
static bt_status_t load_files(bt_adapter_load_t *load)
{
    char path[BT_WIRE_MAX_PATH];
    bt_status_t status =
        bt_config_resolve("--lora-dir", load->folder, load->order.path, path,
                          sizeof(path), load->why, sizeof(load->why));

    if (status == BT_OK) {
        status = check_bytes(load, packed_bytes(path, &load->sizes, NULL));
    }
    return (status == BT_OK)
               ? read_one(load->model, &load->sizes, path, load->why,
                          sizeof(load->why), &load->digest, &load->lora)
               : status;
}

static bt_status_t load_content(bt_adapter_load_t *load)
{
    bt_adapter_t *adapter = NULL;
    bt_status_t status =
        bt_adapter_unpack(load->content, load->order.bytes, &load->sizes,
                          load->why, sizeof(load->why), &adapter);

    if (status == BT_OK) {
        load->digest = adapter->digest;
        status = check_bytes(load, bt_lora_bytes_of(adapter));
    }
    if (status == BT_OK) {
        status = bt_lora_load(load->model, adapter, load->why,
                              sizeof(load->why), &load->lora);
    }
    bt_adapter_free(adapter);
    return status;
}

static void *run_load(void *arg)
{
    bt_adapter_load_t *const load = arg;

    load->status =
        (load->content != NULL) ? load_content(load) : load_files(load);
    if ((load->status == BT_OK) &&
        !bt_hash128_equal(load->digest, load->order.adapter)) {
        load->status = BT_ERR_MISMATCH;
        snprintf(load->why, sizeof(load->why), "%s",
                 (load->content != NULL)
                     ? "its content is not what the router said"
                     : "the files there are others than the router's");
    }
    atomic_store(&load->is_over, true);
    return NULL;
}

static bt_adapter_load_t *first_load(const bt_worker_t *w)
{
    return (!w->adapters.is_open || bt_list_empty(&w->adapters.loads))
               ? NULL
               : BT_CONTAINER_OF(w->adapters.loads.next, bt_adapter_load_t,
                                 link);
}

/* Ends the first order. */
static void end_load(bt_worker_t *w, bt_adapter_load_t *load)
{
    bt_list_remove(&load->link);
    bt_lora_free(w->model, load->lora);
    bt_free(load->content);
    bt_free(load);
}

/* Frees an adapter that nobody has. @return whether there was one */
static bool sweep(bt_worker_t *w)
{
    BT_LIST_FOR_EACH_ENTRY(bt_worker_adapter_t, at, &w->adapters.list, link) {
        if (!at->is_named && (at->n_routers == 0) && (at->n_jobs == 0)) {
            BT_LOG_INFO("adapter %s is dropped", at->name);
            w->adapters.bytes -= bt_lora_bytes(at->lora);
            drop(w, at);
            return true;
        }
    }
    return false;
}

static void take_load(bt_worker_t *w, bt_adapter_load_t *load)
{
    const size_t bytes = (load->lora != NULL) ? bt_lora_bytes(load->lora) : 0;
    bt_worker_adapter_t *at = NULL;

    if (load->status == BT_OK) {
        load->status = copy_in(w, load->lora, load->why, sizeof(load->why));
    }
    if (load->status == BT_OK) {
        at = add(w, load->order.name, load->digest, load->lora);
        load->status = (at != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    }
    if (at != NULL) {
        load->lora = NULL;
        w->adapters.bytes += bytes;
        claim(at, load->from);
    } else {
        BT_LOG_WARN("adapter %s (%s) is refused: %s", load->order.name,
                    load->order.path, load->why);
    }
    tell(w, load->from, load->order.adapter, load->status, load->why);
}

static void refuse_load(bt_worker_t *w, bt_adapter_load_t *load,
                        bt_status_t status, const char *why)
{
    tell(w, load->from, load->order.adapter, status, why);
    end_load(w, load);
}

static void begin_thread(bt_worker_t *w, bt_adapter_load_t *load)
{
    if (pthread_create(&load->thread, NULL, run_load, load) != 0) {
        refuse_load(w, load, BT_ERR_NO_MEMORY, "no thread can be started");
        return;
    }
    load->is_begun = true;
}

static void ask_for_part(bt_worker_t *w, const bt_adapter_load_t *load)
{
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_WANT};

    msg.u.adapter_want.adapter = load->order.adapter;
    msg.u.adapter_want.offset = load->got;
    bt_worker_send(w, load->from, &msg);
}

/* Makes room for the content, and asks for its first part. The content is about
 * as large as what is made of it. */
static void begin_content(bt_worker_t *w, bt_adapter_load_t *load)
{
    bt_status_t status = check_bytes(load, load->order.bytes);

    if (status == BT_OK) {
        load->content = bt_calloc(1, load->order.bytes);
        status = (load->content != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
    }
    if (status == BT_OK) {
        ask_for_part(w, load);
    } else {
        refuse_load(w, load, status,
                    (load->why[0] != '\0') ? load->why : "out of memory");
    }
}

/* Begins the first order, unless its adapter has come meanwhile. */
static void begin_load(bt_worker_t *w, bt_adapter_load_t *load)
{
    bt_worker_adapter_t *const at = bt_adapters_find(w, load->order.adapter);

    if (at != NULL) {
        claim(at, load->from);
        tell(w, load->from, at->digest, BT_OK, "");
        end_load(w, load);
        return;
    }
    while (sweep(w)) {
        /* What nobody has makes room. */
    }
    load->left_bytes = (w->config->lora_memory_bytes > w->adapters.bytes)
                           ? w->config->lora_memory_bytes - w->adapters.bytes
                           : 0;
    load->model = w->model;
    load->sizes = w->adapters.model;
    load->folder = w->config->lora_dir;
    if (load->order.bytes > 0) {
        begin_content(w, load);
    } else {
        begin_thread(w, load);
    }
}

void bt_adapters_on_part(bt_worker_t *w, bt_worker_link_t *from,
                         const bt_msg_adapter_part_t *part)
{
    bt_adapter_load_t *const load = first_load(w);

    if ((load == NULL) || (load->from != from) || (load->content == NULL) ||
        load->is_begun ||
        !bt_hash128_equal(load->order.adapter, part->adapter) ||
        (part->offset != load->got)) {
        return; /* of an order that was taken back */
    }
    if ((part->data_bytes == 0) ||
        (part->data_bytes > load->order.bytes - load->got)) {
        refuse_load(w, load, BT_ERR_BAD_MESSAGE,
                    "the router sent another part than was asked for");
        return;
    }
    memcpy(load->content + load->got, part->data, part->data_bytes);
    load->got += part->data_bytes;
    if (load->got < load->order.bytes) {
        ask_for_part(w, load);
    } else {
        begin_thread(w, load);
    }
}

/* Takes a router's orders back: all, or those of one adapter. One that is being
 * read ends by itself. */
static void take_back(bt_worker_t *w, const bt_worker_link_t *from,
                      const bt_hash128_t *digest)
{
    BT_LIST_FOR_EACH_ENTRY(bt_adapter_load_t, load, &w->adapters.loads, link) {
        if ((load->from != from) ||
            ((digest != NULL) &&
             !bt_hash128_equal(load->order.adapter, *digest))) {
            continue;
        }
        load->from = NULL;
        if (!load->is_begun) {
            end_load(w, load);
        }
    }
}

void bt_adapters_on_order(bt_worker_t *w, bt_worker_link_t *from,
                          const bt_msg_adapter_t *order)
{
    bt_worker_adapter_t *const at = bt_adapters_find(w, order->adapter);
    bt_adapter_load_t *load;

    if (order->loads == 0) {
        if (at != NULL) {
            release(at, from);
        }
        if (w->adapters.is_open) {
            take_back(w, from, &order->adapter);
        }
        return;
    }
    if (at != NULL) {
        claim(at, from);
        tell(w, from, order->adapter, BT_OK, "");
        return;
    }
    if (!w->adapters.is_open || !bt_adapters_are_loaded_later(w->config)) {
        tell(w, from, order->adapter, BT_ERR_UNSUPPORTED,
             "this worker loads no adapters (--lora-dir)");
        return;
    }
    if ((order->bytes > 0) && !bt_adapters_are_sent(w->config)) {
        tell(w, from, order->adapter, BT_ERR_UNSUPPORTED,
             "this worker takes no adapters from routers "
             "(--lora-cache-host-memory)");
        return;
    }
    load = bt_calloc(1, sizeof(*load));
    if (load == NULL) {
        tell(w, from, order->adapter, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    load->order = *order;
    load->from = from;
    bt_list_push_back(&w->adapters.loads, &load->link);
}

void bt_adapters_step(bt_worker_t *w)
{
    bt_adapter_load_t *const load = first_load(w);

    if (!w->adapters.is_open) {
        return;
    }
    if (load == NULL) {
        (void)sweep(w); /* the next one in the next turn */
    } else if (!load->is_begun && (load->content == NULL)) {
        begin_load(w, load);
    } else if (load->is_begun && atomic_load(&load->is_over)) {
        (void)pthread_join(load->thread, NULL);
        take_load(w, load);
        end_load(w, load);
    }
}

void bt_adapters_router_gone(bt_worker_t *w, const bt_worker_link_t *from)
{
    if (!w->adapters.is_open) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_worker_adapter_t, at, &w->adapters.list, link) {
        release(at, from);
    }
    take_back(w, from, NULL);
}

void bt_adapters_close(bt_worker_t *w)
{
    bt_adapter_load_t *load;

    while ((load = first_load(w)) != NULL) {
        if (load->is_begun) {
            (void)pthread_join(load->thread, NULL);
        }
        end_load(w, load);
    }
    while (w->adapters.is_open && !bt_list_empty(&w->adapters.list)) {
        drop(w,
             BT_CONTAINER_OF(w->adapters.list.next, bt_worker_adapter_t, link));
    }
    w->adapters = (bt_worker_adapters_t){.is_open = false};
}
