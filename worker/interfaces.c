/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/interfaces.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/log.h"

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
