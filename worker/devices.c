/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/devices.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/topology.h"
#include "inference/model/shard.h"

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
