/* SPDX-License-Identifier: Apache-2.0 */
/* Files of packed weights. The sums keep most alterations out, so each input is
 * also looked at with sums made to fit: then only the checks of offsets do. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/packed/packed.h"

static volatile uint64_t sink;

static void touch(const uint8_t *data, size_t n)
{
    sink += data[0];
    sink += data[n - 1];
}

static void look(const uint8_t *data, size_t size)
{
    char why[200];
    char name[BT_PACKED_MAX_NAME + 1];
    bt_packed_file_t file;
    size_t bytes = 0;

    memset(why, 'x', sizeof(why));
    if (bt_packed_check(data, size, why, sizeof(why), &file) != BT_OK) {
        BT_ASSERT_ALWAYS((strnlen(why, sizeof(why)) > 0) &&
                         (strnlen(why, sizeof(why)) < sizeof(why)));
        return;
    }
    for (uint32_t i = 0; (i < file.head->n_pieces) && (i < 1000); i++) {
        const bt_packed_entry_t *const e = &file.entries[i];
        const uint8_t *found;

        BT_ASSERT_ALWAYS((e->name_len > 0) && (e->name_len < sizeof(name)));
        memcpy(name, file.names + e->name_at, e->name_len);
        name[e->name_len] = '\0';
        touch(file.base + e->at, (size_t)e->bytes);
        found = bt_packed_find(&file, name, e->type, e->n_out, e->n_in, &bytes);
        /* A zero inside of a name hides it. */
        BT_ASSERT_ALWAYS((found != NULL) || (strlen(name) != e->name_len));
        if (found != NULL) {
            touch(found, bytes);
        }
    }
    sink += bt_packed_verify(&file, 2) == BT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_packed_head_t *head;
    uint8_t *copy;

    look(data, size);
    if (size < BT_PACKED_DATA_AT) {
        return 0;
    }
    copy = malloc(size);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, size);
    head = (void *)copy;
    head->magic = BT_PACKED_MAGIC;
    head->format = BT_PACKED_FORMAT;
    if (head->table_at <= size) {
        head->table_bytes = size - head->table_at;
        head->table_sum =
            bt_hash128(copy + head->table_at, (size_t)head->table_bytes, 0);
    }
    head->head_sum = bt_packed_head_sum(copy);
    look(copy, size);
    free(copy);
    return 0;
}
