/* SPDX-License-Identifier: Apache-2.0 */
/* The KV pool of a worker, in memory that the transfers reach. */
#include <string.h>
#include <time.h>

#include "common/base/log.h"
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

/* A worker may be started again while the cable that killed it is still out.
 * @return false when it is to stop instead */
static bool wait_for_link(const bt_worker_t *w, bool *said_p)
{
    const struct timespec pause = {.tv_nsec = LINK_WAIT_MS * 1000000L};
    sigset_t set;

    if (!*said_p) {
        *said_p = true;
        BT_LOG_WARN("interface %s has no link: waiting for it",
                    w->config->net_device);
    }
    bt_start_stop_signals(&set);
    return sigtimedwait(&set, NULL, &pause) < 0;
}

bt_status_t bt_start_pool_open(bt_worker_t *w)
{
    const bt_kvt_config_t config = {
        .transport = &bt_kvt_transport_ucx,
        .path = path_of(w->config->transport),
        .net_device = w->config->net_device,
        .pool_bytes = (size_t)w->n_blocks * w->block_bytes,
        .instance = w->instance,
        .keepalive_ms = w->config->heartbeat_ms,
        .dead_ms = w->config->dead_ms,
        .quarantine_ms = w->config->quarantine_ms,
    };
    bool said = false;
    bt_status_t status;

    do {
        status = bt_kvt_open(&config, &w->kvt);
        if ((status == BT_ERR_BUSY) && !wait_for_link(w, &said)) {
            BT_LOG_INFO("told to stop while waiting for a link");
            return BT_ERR_CANCELED;
        }
    } while (status == BT_ERR_BUSY);
    if (status != BT_OK) {
        BT_LOG_ERROR("KV transfer cannot start on interface %s: %s",
                     w->config->net_device, bt_status_str(status));
        return status;
    }
    w->kv_base = bt_kvt_pool(w->kvt);
    w->pool_is_cold = true;
    status = bt_kv_pool_create(w->n_blocks, &w->pool);
    if ((status == BT_OK) && (strcmp(w->config->prefix_cache, "on") == 0)) {
        uint64_t seed;

        bt_key_random(&seed, sizeof(seed));
        status = bt_kv_prefix_create(w->pool, w->n_blocks, w->tokens_per_block,
                                     seed, &w->prefix);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("no table of %u KV blocks: %s", w->n_blocks,
                     bt_status_str(status));
    }
    return status;
}
