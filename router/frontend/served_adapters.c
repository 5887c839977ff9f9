/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/served_adapters.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/repository/repository.h"
#include "inference/adapter/adapter.h"

#define WHY_BYTES 512

static bt_status_t check_name(const bt_registry_t *registry, const char *name)
{
    if ((bt_registry_named(registry, name) == NULL) && !bt_repo_is_name(name)) {
        return BT_OK;
    }
    BT_LOG_ERROR("adapter %s: a model has this name", name);
    return BT_ERR_EXISTS;
}

static bt_status_t open_one(bt_served_t *served,
                            const bt_config_adapter_t *named)
{
    bt_served_adapter_t *const at = &served->adapters[served->n_adapters];
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES] = "";
    struct stat info;
    bt_status_t status =
        bt_adapter_open(named->path, served->gguf, why, sizeof(why), &adapter);

    if (status != BT_OK) {
        BT_LOG_ERROR("adapter %s (%s): %s", named->name, named->path, why);
        return status;
    }
    at->digest = adapter->digest;
    bt_adapter_free(adapter);
    memcpy(at->name, named->name, sizeof(at->name));
    at->created =
        (stat(named->path, &info) == 0) ? info.st_mtim.tv_sec : served->created;
    at->path = bt_strdup(named->path);
    if (at->path == NULL) {
        BT_LOG_ERROR("out of memory for adapters");
        return BT_ERR_NO_MEMORY;
    }
    served->n_adapters++;
    return BT_OK;
}

bt_status_t bt_served_adapters_open(bt_registry_t *registry,
                                    const bt_config_t *config)
{
    bt_served_t *const served = bt_registry_find(registry, NULL);
    const char *rest = config->lora;
    bt_config_adapter_t named;
    bt_status_t status = BT_OK;
    uint32_t n = 0;

    while (bt_config_adapter_next(&rest, &named) == BT_OK) {
        n++;
    }
    if ((n == 0) || (served == NULL)) {
        return BT_OK;
    }
    served->adapters = bt_calloc(n, sizeof(*served->adapters));
    if (served->adapters == NULL) {
        BT_LOG_ERROR("out of memory for adapters");
        return BT_ERR_NO_MEMORY;
    }
    rest = config->lora;
    while ((status == BT_OK) &&
           (bt_config_adapter_next(&rest, &named) == BT_OK)) {
        status = check_name(registry, named.name);
        if (status == BT_OK) {
            status = open_one(served, &named);
        }
    }
    return status;
}

void bt_served_adapters_free(bt_served_t *served)
{
    for (uint32_t i = 0; i < served->n_adapters; i++) {
        bt_free(served->adapters[i].path);
    }
    bt_free(served->adapters);
}

const bt_served_adapter_t *bt_served_adapter_find(const bt_registry_t *registry,
                                                  const char *name,
                                                  bt_served_t **served_p)
{
    if (name == NULL) {
        return NULL;
    }
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        for (uint32_t i = 0; i < served->n_adapters; i++) {
            if (strcmp(served->adapters[i].name, name) == 0) {
                *served_p = served;
                return &served->adapters[i];
            }
        }
    }
    return NULL;
}
