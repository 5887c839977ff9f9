/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/preflight.h"

#include <inttypes.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/base/topology.h"
#include "common/cluster/cluster.h"
#include "inference/model/shard.h"
#include "kernels/kernels.h"
#include "kvtransfer/kvt.h"
#include "worker/start.h"

#define DEFAULT_POOL_BYTES (1024ull << 20)

uint64_t bt_memory_pool(const bt_memory_budget_t *budget)
{
    const uint64_t all = budget->own_memory ? budget->device_available_bytes
                                            : budget->available_bytes;
    const uint64_t model = budget->own_memory ? budget->device_model_bytes +
                                                    budget->device_later_bytes
                                              : budget->model_bytes;
    const uint64_t left = (all > model) ? all - model : 0;
    const uint64_t share =
        (budget->percent > 0) ? left / 100 * budget->percent : left / 4;
    uint64_t most = left / 4;

    if (budget->own_memory) {
        return share;
    }
    most = (most < DEFAULT_POOL_BYTES) ? most : DEFAULT_POOL_BYTES;
    return (share < most) ? share : most;
}

static bt_status_t check_memory(const char *kind, uint64_t available,
                                uint64_t model, uint64_t later, uint64_t pool,
                                char *why, size_t why_bytes)
{
    const uint64_t all = model + later + pool;
    char kept[64] = "";

    if (all <= available) {
        return BT_OK;
    }
    if (later > 0) {
        snprintf(kept, sizeof(kept), ", libraries and graphs %" PRIu64 " MiB",
                 (later >> 20));
    }
    snprintf(why, why_bytes,
             "not enough %smemory: the model takes %" PRIu64
             " MiB%s and the KV pool "
             "%" PRIu64 " MiB, %" PRIu64 " MiB are available, %" PRIu64
             " MiB are missing",
             kind, (model >> 20), kept, (pool >> 20), (available >> 20),
             (((all - available) >> 20) + 1));
    return BT_ERR_NO_MEMORY;
}

static void add_limit(const bt_memory_budget_t *budget, char *why,
                      size_t why_bytes)
{
    const size_t n = strlen(why);

    if ((budget->limit_by != NULL) && (budget->limit_by[0] != '\0')) {
        snprintf(why + n, why_bytes - n,
                 "; the cgroup has %" PRIu64 " MiB (%s)",
                 (budget->limit_bytes >> 20), budget->limit_by);
    }
}

bt_status_t bt_memory_check(const bt_memory_budget_t *budget,
                            uint64_t pool_bytes, char *why, size_t why_bytes)
{
    const uint64_t here = budget->own_memory ? 0 : pool_bytes;
    bt_status_t status =
        check_memory("", budget->available_bytes, budget->model_bytes, 0, here,
                     why, why_bytes);

    if (status != BT_OK) {
        add_limit(budget, why, why_bytes);
    }
    if ((status == BT_OK) && budget->own_memory) {
        status =
            check_memory("device ", budget->device_available_bytes,
                         budget->device_model_bytes, budget->device_later_bytes,
                         pool_bytes, why, why_bytes);
    }
    return status;
}

bt_status_t bt_worker_use_devices(const char *list, uint32_t rank,
                                  uint32_t size)
{
    bt_devices_t devices;
    bt_strbuf_t own;
    bt_status_t status;
    bt_share_t share;

    if (list[0] == '\0') {
        return BT_OK;
    }
    status = bt_devices_find(list, NULL, BT_DEVICES_DIR, &devices);
    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_init(&own, strlen(list) + 1);
    if (devices.n < size) {
        BT_LOG_ERROR("devices \"%s\" are %u, for %u ranks", list, devices.n,
                     size);
        status = BT_ERR_INVALID_PARAM;
        goto out;
    }
    share = bt_share_of(devices.n, 1, rank, size);
    bt_devices_deal(&devices, share.first, share.n, &own);
    status = bt_strbuf_status(&own);
    if ((status == BT_OK) &&
        (setenv("CUDA_VISIBLE_DEVICES", own.data, 1) != 0)) {
        status = BT_ERR_NO_MEMORY;
    }

out:
    bt_strbuf_fini(&own);
    bt_devices_fini(&devices);
    return status;
}

/* Finds name i of the list. @return its length; 0: it is empty */
static size_t name_at(const char *list, uint32_t i, const char **at_p)
{
    const char *at = list;

    for (; i > 0; i--) {
        at = strchr(at, ',') + 1; /* there are enough */
    }
    *at_p = at;
    return strcspn(at, ",");
}

static uint32_t count(const char *list)
{
    uint32_t n = 1;

    for (const char *at = list; *at != '\0'; at++) {
        n += *at == ',';
    }
    return n;
}

bt_status_t bt_interface_of(const char *list, uint32_t rank,
                            char name[BT_INTERFACE_BYTES], uint32_t *n_p)
{
    const uint32_t n = count(list);
    const char *at;
    size_t length;

    for (uint32_t i = 0; i < n; i++) {
        length = name_at(list, i, &at);
        if ((length == 0) || (length >= BT_INTERFACE_BYTES)) {
            BT_LOG_ERROR("--kv-net-devices %s: name %u of the list is %s", list,
                         i + 1, (length == 0) ? "empty" : "too long");
            return BT_ERR_INVALID_PARAM;
        }
    }
    length = name_at(list, rank % n, &at);
    memcpy(name, at, length);
    name[length] = '\0';
    if (n_p != NULL) {
        *n_p = n;
    }
    return BT_OK;
}

#define PLAN_BYTES 4096

static void print_plan(const bt_start_t *s)
{
    const bt_model_memory_t *const memory = &s->memory;
    bt_strbuf_t out;
    bt_json_t json;

    bt_strbuf_init(&out, PLAN_BYTES);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    bt_json_u64(&json, "weight_bytes", memory->weight_bytes);
    bt_json_bool(&json, "weights_shared",
                 (s->weight_dir[0] != '\0') && !memory->own_memory);
    bt_json_u64(&json, "own_bytes", memory->private_bytes + memory->load_bytes);
    bt_json_u64(&json, "pool_bytes", memory->own_memory ? 0 : s->pool_bytes);
    bt_json_u64(&json, "ranks", s->team.size);
    bt_json_end_object(&json);
    if (bt_strbuf_status(&out) == BT_OK) {
        puts(out.data);
    }
    bt_strbuf_fini(&out);
}

static bt_status_t check_interface(const char *interface)
{
    struct if_nameindex *all;
    bt_strbuf_t others;

    /* An RDMA device has another form of name, DEVICE:PORT; UCX knows it. */
    if ((strchr(interface, ':') != NULL) || (if_nametoindex(interface) != 0)) {
        return BT_OK;
    }
    bt_strbuf_init(&others, PLAN_BYTES);
    all = if_nameindex();
    for (size_t i = 0; (all != NULL) && (all[i].if_index != 0); i++) {
        if (strcmp(all[i].if_name, "lo") != 0) {
            bt_strbuf_printf(&others, "%s%s",
                             (others.len == 0) ? "; there is " : ", ",
                             all[i].if_name);
        }
    }
    if (all != NULL) { /* the check takes none */
        if_freenameindex(all);
    }
    BT_LOG_ERROR("--kv-net-devices %s: there is no such interface%s", interface,
                 (others.data != NULL) ? others.data : "");
    bt_strbuf_fini(&others);
    return BT_ERR_INVALID_PARAM;
}

/* Checks every interface of the list, whether a rank takes it or not. */
static bt_status_t check_device(const bt_config_t *config)
{
    char interface[BT_INTERFACE_BYTES];
    bt_status_t status = BT_OK;
    uint32_t n = 1;

    for (uint32_t i = 0; i < n; i++) {
        bt_status_t step =
            bt_interface_of(config->kv_net_devices, i, interface, &n);

        if (step != BT_OK) {
            return step;
        }
        step = check_interface(interface);
        status = (status == BT_OK) ? step : status;
    }
    return status;
}

/* The steps of a start that allocate nothing. */
static bt_status_t check_model(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status;

    if ((status = bt_start_file_open(w, s)) != BT_OK ||
        (status = bt_start_options_check(w, s)) != BT_OK ||
        (status = bt_start_cores_settle(w, s)) != BT_OK ||
        (status = bt_start_draft_open(w, s)) != BT_OK) {
        return status;
    }
    status = bt_start_memory_look(w, s);
    if ((status == BT_OK) || (s->pool_bytes > 0)) {
        print_plan(s);
    }
    return status;
}

int bt_worker_check(bt_worker_t *w, unsigned program, int argc, char **argv)
{
    bt_start_t *s = bt_calloc(1, sizeof(*s));
    bt_collectives_t ranks = {.rank = 0}; /* only the number is read */
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_status_t step;

    (void)bt_log_format("json");
    if ((s == NULL) || (w == NULL)) {
        BT_LOG_ERROR("out of memory");
        goto end;
    }
    status = bt_config_load(program, true, argc, argv, &w->config, &s->store);
    if (status != BT_OK) {
        bt_free(s);
        return (status == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
    }
    status = bt_config_log_findings(s->store);
    s->team.tp = w->config->tp;
    s->team.size = w->config->tp * w->config->pp;
    if (s->team.size > 1) {
        ranks.size = s->team.size;
        s->team.coll = s->team.stage = &ranks;
    }
    snprintf(w->name, sizeof(w->name), "%s",
             (w->config->name[0] != '\0') ? w->config->name
                                          : bt_role_name(w->program_role));
    step = bt_key_check(w->config->cluster_key_file, w->config->munge_socket);
    status = (status == BT_OK) ? step : status;
    step = check_device(w->config);
    status = (status == BT_OK) ? step : status;
    if (s->team.size > BT_TEAM_MAX) {
        BT_LOG_ERROR("%u ranks: an instance has %u at most", s->team.size,
                     BT_TEAM_MAX);
        step = BT_ERR_INVALID_PARAM;
    } else {
        step = check_model(w, s);
    }
    status = (status == BT_OK) ? step : status;

end:
    if (s != NULL) {
        bt_start_draft_close(s);
        bt_gguf_close(s->gguf);
        if (w != NULL) {
            bt_kv_groups_fini(&w->groups);
            bt_kv_groups_fini(&w->own_groups);
        }
        bt_config_destroy(s->store);
    }
    bt_free(s);
    return (status == BT_OK) ? BT_EXIT_OK : bt_exit_of_start(status);
}

#define OUT_BYTES  4096
#define POOL_BYTES ((size_t)1 << 20)
#define NAME_BYTES 64
/* As in the options; no peer comes meanwhile. */
#define KEEP_MS       250
#define DEAD_MS       2500
#define QUARANTINE_MS 10000
#define LIBRARY_BYTES 256

/* Finds the name of the CPU back end, or "" (logged). */
static void find_backend(char name[NAME_BYTES])
{
    char why[256] = "";
    const bt_backend_config_t config = {
        .n_threads = 1, .max_rows = 1, .why = why, .why_bytes = sizeof(why)};
    bt_backend_t *backend = NULL;
    const bt_status_t status = bt_backend_open("cpu", &config, &backend);

    name[0] = '\0';
    if (status != BT_OK) {
        BT_LOG_ERROR("back end cpu: %s",
                     (why[0] != '\0') ? why : bt_status_str(status));
        return;
    }
    snprintf(name, NAME_BYTES, "%s", backend->caps->name);
    bt_backend_close(backend);
}

static bool can_transfer(const char *net_device, bt_kvt_path_t path)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = path,
                                    .net_device = net_device,
                                    .pool_bytes = POOL_BYTES,
                                    .instance = 1,
                                    .keepalive_ms = KEEP_MS,
                                    .dead_ms = DEAD_MS,
                                    .quarantine_ms = QUARANTINE_MS};
    bt_kvt_t *kvt = NULL;
    const bt_status_t status = bt_kvt_open(&config, &kvt);

    if (status == BT_ERR_BUSY) { /* not logged: a start would wait for it */
        BT_LOG_ERROR("network device %s has no link", net_device);
    }
    bt_kvt_close(kvt);
    return status == BT_OK;
}

int bt_worker_probe(const char *net_device)
{
    char library[LIBRARY_BYTES];
    char name[NAME_BYTES];
    bt_strbuf_t out;
    bt_json_t json;
    bool done;

    (void)bt_log_format("json");
    bt_strbuf_init(&out, OUT_BYTES);
    bt_json_init(&json, &out);
    bt_json_object(&json, NULL);
    find_backend(name);
    bt_json_str(&json, "cpu", (name[0] != '\0') ? name : NULL);
    bt_cluster_library(library, sizeof(library));
    bt_json_str(&json, "mpi", library);
    bt_json_str(&json, "ucx", bt_kvt_ucx_version());
    bt_json_str(&json, "net_device", net_device);
    bt_json_bool(&json, "kv_network",
                 can_transfer(net_device, BT_KVT_PATH_NETWORK));
    bt_json_bool(&json, "kv_shm", can_transfer(net_device, BT_KVT_PATH_SHM));
    bt_json_end_object(&json);
    done = (bt_strbuf_status(&out) == BT_OK) && (puts(out.data) >= 0);
    bt_strbuf_fini(&out);
    return done ? BT_EXIT_OK : BT_EXIT_FAILURE;
}
