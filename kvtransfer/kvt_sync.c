/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_sync.h"

#include <string.h>

#include "common/base/alloc.h"

#define TICKET 0u /* nothing else uses the copier */

static size_t part_of(size_t bytes)
{
    return (bytes < BT_KVT_MAX_RECORD_BYTES) ? bytes : BT_KVT_MAX_RECORD_BYTES;
}

static bt_status_t sync_read(void *user, void *host, const void *device,
                             size_t bytes)
{
    const bt_kvt_t *kvt = user;
    const bt_copier_t *copier = kvt->config.device.copier;
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);
         at += part_of(bytes - at)) {
        const size_t n = part_of(bytes - at);

        status = copier->to_host(copier->user, kvt->pinned,
                                 (const uint8_t *)device + at, n, TICKET);
        status = (status == BT_OK) ? bt_copier_wait(copier, TICKET) : status;
        if ((status == BT_OK) && (host != kvt->pinned)) {
            memcpy((uint8_t *)host + at, kvt->pinned, n);
        }
    }
    return status;
}

static bt_status_t sync_write(void *user, void *device, const void *host,
                              size_t bytes)
{
    const bt_kvt_t *kvt = user;
    const bt_copier_t *copier = kvt->config.device.copier;
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);
         at += part_of(bytes - at)) {
        const size_t n = part_of(bytes - at);

        memcpy(kvt->pinned, (const uint8_t *)host + at, n);
        status = copier->to_device(copier->user, (uint8_t *)device + at,
                                   kvt->pinned, n, TICKET);
        status = (status == BT_OK) ? bt_copier_wait(copier, TICKET) : status;
    }
    return status;
}

bt_status_t bt_kvt_sync_open(bt_kvt_t *kvt)
{
    bt_kvt_device_t *device = &kvt->config.device;
    bt_status_t status;

    if (device->read != NULL) {
        kvt->bounce = bt_calloc(1, BT_KVT_MAX_RECORD_BYTES);
        return (kvt->bounce == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
    }
    status = device->copier->host_alloc(device->copier->user,
                                        BT_KVT_MAX_RECORD_BYTES, &kvt->pinned);
    if (status == BT_OK) {
        kvt->bounce = kvt->pinned; /* buffer for a record to be hashed */
        device->read = sync_read;
        device->write = sync_write;
        device->user = kvt;
    }
    return status;
}

void bt_kvt_sync_close(bt_kvt_t *kvt)
{
    const bt_copier_t *copier = kvt->config.device.copier;

    if (kvt->pinned != NULL) {
        copier->host_free(copier->user, kvt->pinned);
    } else {
        bt_free(kvt->bounce);
    }
    kvt->pinned = kvt->bounce = NULL;
}
