/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/wire/wire.h"

/* Blobs are placed after their list. */
static const uint8_t *put(uint8_t **end, const uint8_t *blob, uint32_t bytes)
{
    uint8_t *at = *end;

    if (bytes > 0) {
        memcpy(at, blob, bytes);
    }
    *end += bytes;
    return at;
}

bt_status_t bt_wire_ranks_copy(const bt_wire_rank_t *ranks, uint32_t n,
                               bt_wire_rank_t **copy_p)
{
    size_t bytes = n * sizeof(*ranks);
    bt_wire_rank_t *copy = NULL;

    for (uint32_t i = 0; i < n; i++) {
        bytes += ranks[i].kvt_bytes;
    }
    if (n > 0) {
        uint8_t *end;

        copy = bt_calloc(1, bytes);
        if (copy == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        end = (uint8_t *)(copy + n);
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = ranks[i];
            copy[i].kvt = put(&end, ranks[i].kvt, ranks[i].kvt_bytes);
        }
    }
    *copy_p = copy;
    return BT_OK;
}

bt_status_t bt_wire_regions_copy(const bt_wire_region_t *regions, uint32_t n,
                                 bt_wire_region_t **copy_p)
{
    size_t bytes = n * sizeof(*regions);
    bt_wire_region_t *copy = NULL;

    for (uint32_t i = 0; i < n; i++) {
        bytes += regions[i].blob_bytes;
    }
    if (n > 0) {
        uint8_t *end;

        copy = bt_calloc(1, bytes);
        if (copy == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        end = (uint8_t *)(copy + n);
        for (uint32_t i = 0; i < n; i++) {
            copy[i] = regions[i];
            copy[i].blob = put(&end, regions[i].blob, regions[i].blob_bytes);
        }
    }
    *copy_p = copy;
    return BT_OK;
}
