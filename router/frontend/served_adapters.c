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

bt_status_t bt_served_adapter_add(bt_served_t *served,
                                  const bt_served_adapter_t *adapter,
                                  const char *path)
{
    const uint32_t n = served->n_adapters;
    bt_served_adapter_t *const list = bt_calloc(n + 1, sizeof(*list));
    char *const copy = bt_strdup(path);

    if ((list == NULL) || (copy == NULL)) {
        bt_free(list);
        bt_free(copy);
        return BT_ERR_NO_MEMORY;
    }
    if (n > 0) {
        memcpy(list, served->adapters, n * sizeof(*list));
    }
    list[n] = *adapter;
    list[n].path = copy;
    list[n].metrics =
        bt_router_metrics_adapter(served->metrics, adapter->name, false);
    bt_free(served->adapters);
    served->adapters = list;
    served->n_adapters++;
    return BT_OK;
}

bt_hash128_t bt_served_adapter_remove(bt_served_t *served, const char *name)
{
    bt_hash128_t digest = {0, 0};
    uint32_t i = 0;

    while ((i < served->n_adapters) &&
           (strcmp(served->adapters[i].name, name) != 0)) {
        i++;
    }
    if (i == served->n_adapters) {
        return digest;
    }
    digest = served->adapters[i].digest;
    bt_free(served->adapters[i].path);
    served->n_adapters--;
    memmove(&served->adapters[i], &served->adapters[i + 1],
            (served->n_adapters - i) * sizeof(*served->adapters));
    for (i = 0; i < served->n_adapters; i++) {
        if (bt_hash128_equal(served->adapters[i].digest, digest)) {
            return (bt_hash128_t){0, 0};
        }
    }
    return digest;
}

static bt_status_t open_one(bt_served_t *served,
                            const bt_config_adapter_t *named)
{
    bt_served_adapter_t at = {.created = served->created};
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES] = "";
    struct stat info;
    bt_status_t status =
        bt_adapter_open(named->path, served->gguf, why, sizeof(why), &adapter);

    if (status != BT_OK) {
        BT_LOG_ERROR("adapter %s (%s): %s", named->name, named->path, why);
        return status;
    }
    at.digest = adapter->digest;
    bt_adapter_free(adapter);
    memcpy(at.name, named->name, sizeof(at.name));
    if (stat(named->path, &info) == 0) {
        at.created = info.st_mtim.tv_sec;
    }
    status = bt_served_adapter_add(served, &at, named->path);
    if (status != BT_OK) {
        BT_LOG_ERROR("out of memory for adapters");
    }
    return status;
}

bt_status_t bt_served_adapters_open(bt_registry_t *registry,
                                    const bt_config_t *config)
{
    bt_served_t *const served = bt_registry_find(registry, NULL);
    const char *rest = config->lora;
    bt_config_adapter_t named;
    bt_status_t status = BT_OK;

    while ((served != NULL) && (status == BT_OK) &&
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

bool bt_served_adapter_is_for(const bt_served_adapter_t *adapter,
                              const bt_tenant_t *tenant)
{
    return (adapter->tenant[0] == '\0') || (tenant == NULL) ||
           (tenant->is_named && (strcmp(adapter->tenant, tenant->name) == 0));
}

static bool find_exactly(const bt_registry_t *registry, const char *name,
                         const bt_tenant_t *tenant, bt_served_entry_t *entry_p)
{
    bt_served_t *const model = bt_registry_find(registry, name);

    if ((model != NULL) || (name == NULL)) {
        *entry_p = (bt_served_entry_t){.served = model};
        return model != NULL;
    }
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        for (uint32_t i = 0; i < served->n_adapters; i++) {
            const bt_served_adapter_t *const at = &served->adapters[i];

            if ((strcmp(at->name, name) == 0) &&
                bt_served_adapter_is_for(at, tenant)) {
                *entry_p = (bt_served_entry_t){served, at};
                return true;
            }
        }
    }
    return false;
}

bool bt_served_find(const bt_registry_t *registry, const char *name,
                    const bt_tenant_t *tenant, bool is_tagged,
                    bt_served_entry_t *entry_p)
{
    static const char tag[] = ":latest";
    const size_t n_tag = sizeof(tag) - 1;
    const size_t n = (name != NULL) ? strlen(name) : 0;
    bt_served_entry_t entry = {.served = NULL};
    char bare[BT_CONFIG_MODEL_NAME_BYTES];
    bool found = find_exactly(registry, name, tenant, &entry);

    if (!found && is_tagged && (n > n_tag) && (n - n_tag < sizeof(bare)) &&
        (strcmp(name + n - n_tag, tag) == 0)) {
        memcpy(bare, name, n - n_tag);
        bare[n - n_tag] = '\0';
        found = find_exactly(registry, bare, tenant, &entry);
    }
    if (found) {
        *entry_p = entry;
    }
    return found;
}

bt_status_t bt_served_list(const bt_registry_t *registry,
                           const bt_tenant_t *tenant,
                           bt_served_entry_t **list_p, size_t *n_p)
{
    bt_served_entry_t *list;
    size_t n = 0;

    BT_REGISTRY_FOR_EACH(served, registry)
    {
        n += (size_t)1 + served->n_adapters;
    }
    list = bt_calloc(n + 1, sizeof(*list));
    if (list == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    n = 0;
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        list[n++] = (bt_served_entry_t){.served = served};
        for (uint32_t i = 0; i < served->n_adapters; i++) {
            const bt_served_adapter_t *const at = &served->adapters[i];

            if (bt_served_adapter_is_for(at, tenant)) {
                list[n++] = (bt_served_entry_t){served, at};
            }
        }
    }
    *list_p = list;
    *n_p = n;
    return BT_OK;
}

const char *bt_served_entry_name(const bt_served_entry_t *entry)
{
    return (entry->adapter != NULL) ? entry->adapter->name
                                    : entry->served->name;
}
