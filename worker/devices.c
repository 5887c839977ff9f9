/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/devices.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/strbuf.h"
#include "inference/model/shard.h"

/* Name i of a list with commas. @return its length; 0: there is none */
static size_t device_name(const char *list, uint32_t i, const char **name_p)
{
    for (; i > 0; i--) {
        list = strchrnul(list, ',');
        if (*list == '\0') {
            return 0;
        }
        list++;
    }
    *name_p = list;
    return strcspn(list, ",");
}

bt_status_t bt_worker_use_devices(const char *list, uint32_t rank,
                                  uint32_t size)
{
    const char *name = NULL;
    bt_strbuf_t own;
    bt_status_t status;
    bt_share_t share;
    uint32_t n = 0;

    if (list[0] == '\0') {
        return BT_OK;
    }
    while (device_name(list, n, &name) > 0) {
        n++;
    }
    share = bt_share_of(n, 1, rank, size);
    if (n < size) {
        BT_LOG_ERROR("devices \"%s\" are %u, for %u ranks", list, n, size);
        return BT_ERR_INVALID_PARAM;
    }
    bt_strbuf_init(&own, strlen(list) + 1);
    for (uint32_t i = share.first; i < share.first + share.n; i++) {
        const size_t len = device_name(list, i, &name);

        bt_strbuf_puts(&own, (i == share.first) ? "" : ",");
        bt_strbuf_append(&own, name, len);
    }
    status = bt_strbuf_status(&own);
    if ((status == BT_OK) &&
        (setenv("CUDA_VISIBLE_DEVICES", own.data, 1) != 0)) {
        status = BT_ERR_NO_MEMORY;
    }
    bt_strbuf_fini(&own);
    return status;
}
