/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/prompt_table.h"

#include <string.h>

#include "common/base/alloc.h"

/* Bytes of an element, and the bits of its exponent: all are set in what is not
 * finite (IEEE 754, section 3.4). */
static const struct {
    uint32_t bytes;
    uint32_t exponent;
} types[BT_TABLE_N_TYPES] = {
    [BT_TABLE_F32] = {4, 0x7f800000u},
    [BT_TABLE_F16] = {2, 0x7c00u},
    [BT_TABLE_BF16] = {2, 0x7f80u},
};

uint32_t bt_table_type_bytes(uint32_t type)
{
    return (type < BT_TABLE_N_TYPES) ? types[type].bytes : 0;
}

uint32_t bt_table_width(const bt_table_rows_t *rows)
{
    const uint64_t row_unit =
        (uint64_t)rows->n * bt_table_type_bytes(rows->type);

    if ((row_unit == 0) || (rows->bytes > BT_TABLE_MAX_BYTES) ||
        (rows->n > BT_TABLE_MAX_ROWS) || (rows->bytes % row_unit != 0)) {
        return 0;
    }
    return (uint32_t)(rows->bytes / row_unit);
}

/* The host is little-endian: checked by the build. */
bool bt_table_is_finite(const bt_table_rows_t *rows)
{
    const uint32_t size = types[rows->type].bytes;
    const uint32_t exponent = types[rows->type].exponent;

    for (uint32_t at = 0; at < rows->bytes; at += size) {
        uint32_t bits = 0;

        memcpy(&bits, rows->data + at, size);
        if ((bits & exponent) == exponent) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_prompt_table_create(const bt_table_rows_t *rows,
                                   bt_prompt_table_t **table_p)
{
    bt_prompt_table_t *table =
        bt_calloc(1, sizeof(*table) + (size_t)rows->bytes);

    if (table == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    atomic_init(&table->n_refs, 1);
    table->rows = *rows;
    table->rows.data = table->data;
    memcpy(table->data, rows->data, rows->bytes);
    *table_p = table;
    return BT_OK;
}

bt_prompt_table_t *bt_prompt_table_ref(bt_prompt_table_t *table)
{
    if (table != NULL) {
        atomic_fetch_add_explicit(&table->n_refs, 1, memory_order_relaxed);
    }
    return table;
}

void bt_prompt_table_unref(bt_prompt_table_t *table)
{
    /* Reads by other owners happen before the free. */
    if ((table != NULL) &&
        (atomic_fetch_sub_explicit(&table->n_refs, 1, memory_order_acq_rel) ==
         1)) {
        bt_free(table);
    }
}
