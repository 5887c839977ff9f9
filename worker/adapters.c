/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/adapters.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "inference/adapter/adapter.h"
#include "worker/start.h"
#include "worker/worker_priv.h"

#define WHY_BYTES 512

uint32_t bt_adapters_max_rank(const bt_config_t *config)
{
    bt_config_adapter_t adapter;
    const char *rest = config->lora;

    return (bt_config_adapter_next(&rest, &adapter) == BT_OK)
               ? config->max_lora_rank
               : 0;
}

/* A folder's tensors are in one file. */
static uint64_t file_bytes(const char *path)
{
    char name[BT_CONFIG_PATH_BYTES + 32];
    struct stat st;

    if (stat(path, &st) != 0) {
        return 0; /* reported when it is opened */
    }
    if (S_ISDIR(st.st_mode)) {
        snprintf(name, sizeof(name), "%s/adapter_model.safetensors", path);
        if (stat(name, &st) != 0) {
            return 0;
        }
    }
    return (uint64_t)st.st_size;
}

uint64_t bt_adapters_estimate(const bt_config_t *config)
{
    const char *rest = config->lora;
    bt_config_adapter_t named;
    uint64_t most = 0;
    uint64_t bytes = 0;

    while (bt_config_adapter_next(&rest, &named) == BT_OK) {
        const uint64_t n = file_bytes(named.path);

        most = (n > most) ? n : most;
        bytes += n;
    }
    /* Rows are padded, and one is being read. */
    return bytes + bytes / 4 + most;
}

static bt_status_t open_one(bt_worker_t *w, const bt_start_t *s,
                            const bt_config_adapter_t *named)
{
    bt_worker_adapter_t *const at = &w->adapters.list[w->adapters.n];
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES] = "";
    bt_status_t status =
        bt_adapter_open(named->path, s->gguf, why, sizeof(why), &adapter);

    if (status == BT_OK) {
        status = bt_lora_load(w->model, adapter, why, sizeof(why), &at->lora);
    }
    if (status == BT_OK) {
        memcpy(at->name, named->name, sizeof(at->name));
        at->digest = adapter->digest;
        w->adapters.n++;
        BT_LOG_INFO("adapter %s: %u matrices of rank %u at most, %zu KiB",
                    named->name, adapter->n_parts, adapter->max_rank,
                    bt_lora_bytes(at->lora) >> 10);
    } else {
        BT_LOG_ERROR("adapter %s (%s): %s", named->name, named->path, why);
    }
    bt_adapter_free(adapter);
    return status;
}

bt_status_t bt_adapters_open(bt_worker_t *w, const bt_start_t *s)
{
    const char *rest = w->config->lora;
    bt_config_adapter_t named;
    bt_status_t status = BT_OK;
    uint32_t n = 0;

    while (bt_config_adapter_next(&rest, &named) == BT_OK) {
        n++;
    }
    if (n == 0) {
        return BT_OK;
    }
    w->adapters.list = bt_calloc(n, sizeof(*w->adapters.list));
    if (w->adapters.list == NULL) {
        BT_LOG_ERROR("out of memory for adapters");
        return BT_ERR_NO_MEMORY;
    }
    rest = w->config->lora;
    while ((status == BT_OK) &&
           (bt_config_adapter_next(&rest, &named) == BT_OK)) {
        status = open_one(w, s, &named);
    }
    return status;
}

void bt_adapters_close(bt_worker_t *w)
{
    for (uint32_t i = 0; i < w->adapters.n; i++) {
        bt_lora_free(w->model, w->adapters.list[i].lora);
    }
    bt_free(w->adapters.list);
    w->adapters = (bt_worker_adapters_t){0};
}

const bt_lora_t *bt_adapters_find(const bt_worker_t *w, bt_hash128_t digest)
{
    for (uint32_t i = 0; i < w->adapters.n; i++) {
        if (bt_hash128_equal(w->adapters.list[i].digest, digest)) {
            return w->adapters.list[i].lora;
        }
    }
    return NULL;
}
