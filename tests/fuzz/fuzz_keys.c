/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --api-keys: whatever stands in it, what was read keeps the
 * promises of keys_file.h, and a refusal has a cause of one line. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "router/tenants/keys_file.h"

static void check(const bt_keys_file_t *file)
{
    BT_ASSERT_ALWAYS((file->n_keys > 0) && (file->n_keys <= BT_KEYS_MAX_KEYS));
    BT_ASSERT_ALWAYS(file->n_tenants <= BT_KEYS_MAX_TENANTS);
    for (uint32_t i = 0; i < file->n_tenants; i++) {
        const bt_keys_tenant_t *tenant = &file->tenants[i];
        const bt_tenant_limits_t *limits = &tenant->limits;

        BT_ASSERT_ALWAYS(
            bt_tenant_name_is_valid(tenant->name, strlen(tenant->name)));
        BT_ASSERT_ALWAYS((limits->weight >= 1) &&
                         (limits->weight <= BT_TENANT_MAX_WEIGHT));
        BT_ASSERT_ALWAYS((limits->rate == 0) == (limits->burst == 0));
        BT_ASSERT_ALWAYS((limits->kv_percent >= 1) &&
                         (limits->kv_percent <= 100));
    }
    for (uint32_t i = 0; i < file->n_keys; i++) {
        BT_ASSERT_ALWAYS(file->keys[i].tenant < file->n_tenants);
        BT_ASSERT_ALWAYS((i == 0) ||
                         (memcmp(file->keys[i - 1].hash, file->keys[i].hash,
                                 BT_KEY_BYTES) < 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[BT_KEYS_WHY_BYTES] = "";
    bt_keys_file_t file = {0};

    if (bt_keys_file_parse((const char *)data, size, &file, why) == BT_OK) {
        check(&file);
        (void)bt_keys_file_find(&file, (const char *)data, size);
    } else {
        BT_ASSERT_ALWAYS((why[0] != '\0') && (strlen(why) < sizeof(why)) &&
                         (strpbrk(why, "\r\n") == NULL));
        BT_ASSERT_ALWAYS((file.tenants == NULL) && (file.keys == NULL));
    }
    bt_keys_file_fini(&file);
    return 0;
}
