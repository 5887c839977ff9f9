/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/wire/wire.h"

#include "common/base/status.h"

bt_wire_range_t bt_wire_range_ours(void)
{
    const bt_wire_range_t ours = {.oldest = BT_WIRE_PROTOCOL_MIN,
                                  .newest = BT_WIRE_PROTOCOL};

    return ours;
}

bt_wire_range_t bt_wire_range_of(const bt_msg_hello_t *hello)
{
    const bt_wire_range_t theirs = {.oldest = hello->protocol_min,
                                    .newest = hello->protocol};

    return theirs;
}

uint32_t bt_wire_common(bt_wire_range_t mine, bt_wire_range_t theirs)
{
    const uint32_t newest =
        (mine.newest < theirs.newest) ? mine.newest : theirs.newest;

    return ((newest >= mine.oldest) && (newest >= theirs.oldest)) ? newest : 0;
}

void bt_wire_range_print(bt_wire_range_t range, char out[BT_WIRE_RANGE_BYTES])
{
    if (range.oldest == range.newest) {
        snprintf(out, BT_WIRE_RANGE_BYTES, "%u", range.newest);
    } else {
        snprintf(out, BT_WIRE_RANGE_BYTES, "%u to %u", range.oldest,
                 range.newest);
    }
}

const char *bt_role_name(uint32_t roles)
{
    static const char *const names[] = {"router", "prefill", "decode", "both"};

    return (roles < BT_ARRAY_LEN(names)) ? names[roles] : "unknown";
}

bool bt_role_named(const char *name, uint32_t *roles_p)
{
    for (uint32_t roles = BT_ROLE_PREFILL; roles <= BT_ROLES_BOTH; roles++) {
        if (strcmp(name, bt_role_name(roles)) == 0) {
            *roles_p = roles;
            return true;
        }
    }
    return false;
}

const char *bt_duty_name(uint32_t duty)
{
    static const char *const names[] = {"on", "on", "off", "end"};

    return (duty < BT_ARRAY_LEN(names)) ? names[duty] : "unknown";
}
