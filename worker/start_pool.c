/* SPDX-License-Identifier: Apache-2.0 */
/* The KV pool of a worker, in memory that KV transfers reach. */
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "worker/interfaces.h"
#include "worker/loop.h"
#include "worker/start.h"

#define LINK_WAIT_MS 250

static bt_kvt_path_t path_of(const char *transport)
{
    if (strcmp(transport, "shm") == 0) {
        return BT_KVT_PATH_SHM;
    }
    return (strcmp(transport, "network") == 0) ? BT_KVT_PATH_NETWORK
                                               : BT_KVT_PATH_AUTO;
}

/* A worker may be restarted while the network cable is still out.
 * @return false when it is to stop instead */
static bool wait_for_link(const char *interface, bool *said_p)
{
    const struct timespec pause = {.tv_nsec = LINK_WAIT_MS * 1000000L};
    sigset_t set;

    if (!*said_p) {
        *said_p = true;
        BT_LOG_WARN("interface %s has no link: waiting for it", interface);
    }
    bt_stop_signals(&set);
    return sigtimedwait(&set, NULL, &pause) < 0;
}

/* A back end with memory of its own has the pool there and provides the copies;
 * else the pool is kvt's shared memory, which both access. */
static bt_status_t choose_memory(bt_worker_t *w, bt_kvt_config_t *config)
{
    const bt_kernels_ops_t *ops = w->backend->ops;
    const char *what = "KV pool";
    bt_status_t status;

    if (ops->copier_open == NULL) {
        return BT_OK;
    }
    status = ops->buffer_alloc(
        w->backend, config->pool_bytes + BT_KVT_PROBE_BYTES, &w->kv_memory);
    if (status == BT_OK) {
        what = "copies to and from its KV pool";
        status = ops->copier_open(w->backend, 2 * BT_KVT_STAGE_SLOTS + 1,
                                  &w->copier);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("back end %s: no %s: %s", w->backend->caps->name, what,
                     bt_status_str(status));
        return status;
    }
    /* For the network only, UCX may access the pool itself if it can; else
     * slots are used. A pool that devices of this host write into is staged. */
    config->memory = (config->path == BT_KVT_PATH_NETWORK)
                         ? BT_KVT_MEMORY_DEVICE
                         : BT_KVT_MEMORY_STAGED;
    config->device.pool = w->kv_memory;
    config->device.spare_bytes = BT_KVT_PROBE_BYTES;
    config->device.copier = &w->copier;
    config->device.n_slots = BT_KVT_STAGE_SLOTS;
    BT_LOG_INFO("KV blocks are in the memory of %s", w->backend->caps->name);
    return BT_OK;
}

/* Opens the KV transfers of this rank, and of the instance. */
static bt_status_t open_transfers(bt_worker_t *w, const bt_start_t *s)
{
    const bt_rank_transfer_config_t own = {.kvt = w->kvt,
                                           .groups = &w->groups,
                                           .own = &w->own_groups,
                                           .split = w->split,
                                           .rank = s->team.rank,
                                           .base = w->kv_base};
    bt_transfer_config_t all = {.links = s->team.links,
                                .n_others = s->team.size - 1,
                                .heartbeat_ms = w->config->heartbeat_ms,
                                .dead_ms = w->config->dead_ms,
                                .on_event = bt_worker_on_transfer,
                                .ctx = w};
    bt_status_t status = bt_rank_transfer_open(&own, &w->rank_transfers);

    all.own_rank = w->rank_transfers;
    if ((status == BT_OK) && (s->team.rank == 0)) {
        status = bt_transfer_open(&all, &w->transfers);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("out of memory for hand-overs");
    }
    return status;
}

bt_status_t bt_start_pool_open(bt_worker_t *w, const bt_start_t *s)
{
    char interface[BT_INTERFACE_BYTES];
    bt_kvt_config_t config = {
        .transport = &bt_kvt_transport_ucx,
        .path = path_of(w->config->kv_transport),
        .net_device = interface,
        .pool_bytes = (size_t)w->n_blocks * w->block_bytes,
        .instance = w->instance,
        .keepalive_ms = w->config->heartbeat_ms,
        .dead_ms = w->config->dead_ms,
        .tells_starved = true,
        .quarantine_ms = w->config->quarantine_ms,
    };
    bool said = false;
    bt_status_t status = bt_interface_of(w->config->kv_net_devices,
                                         s->team.rank, interface, NULL);

    if (status == BT_OK) {
        status = bt_config_split_ports(w->config->kv_port_range,
                                       &config.first_port, &config.last_port);
    }
    if (status == BT_OK) {
        status = choose_memory(w, &config);
    }
    if (status != BT_OK) {
        return status;
    }
    bt_kvt_plane_key(s->key, config.key);
    do {
        status = bt_kvt_open(&config, &w->kvt);
        if ((status == BT_ERR_BUSY) && !wait_for_link(interface, &said)) {
            BT_LOG_INFO("stopped while waiting for a link");
            bt_key_wipe(config.key, sizeof(config.key));
            return BT_ERR_CANCELED;
        }
    } while (status == BT_ERR_BUSY);
    bt_key_wipe(config.key, sizeof(config.key));
    if (status != BT_OK) {
        BT_LOG_ERROR("KV transfer cannot start on interface %s: %s", interface,
                     bt_status_str(status));
        return status;
    }
    w->kv_base = bt_kvt_pool(w->kvt);
    status = open_transfers(w, s);
    if (status != BT_OK) {
        return status;
    }
    w->pool_is_cold = w->kv_memory == NULL;
    if (s->team.rank > 0) {
        return BT_OK; /* rank 0 decides on blocks */
    }
    status = bt_kv_pool_create(w->n_blocks, &w->pool);
    if ((status == BT_OK) && (strcmp(w->config->prefix_cache, "on") == 0)) {
        uint64_t seed;

        bt_key_random(&seed, sizeof(seed));
        status = bt_kv_prefix_create(w->pool, w->n_blocks, &w->groups, seed,
                                     &w->prefix);
    }
    if (status == BT_OK) {
        w->acquired = bt_calloc(w->n_blocks, sizeof(*w->acquired));
        status = (w->acquired == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the table of %u KV blocks: %s", w->n_blocks,
                     bt_status_str(status));
    }
    return status;
}

void bt_start_pool_close(bt_worker_t *w)
{
    bt_transfer_close(w->transfers);
    bt_kvt_close(w->kvt);
    bt_rank_transfer_close(w->rank_transfers);
    if (w->copier.user != NULL) {
        w->backend->ops->copier_close(&w->copier);
    }
    if (w->kv_memory != NULL) {
        w->backend->ops->buffer_free(w->backend, w->kv_memory);
    }
    bt_kv_prefix_destroy(w->prefix);
    bt_kv_pool_destroy(w->pool);
    bt_free(w->acquired);
}
