/* SPDX-License-Identifier: Apache-2.0 */
/* Prompt tables of a request's rows: common/wire/prompt_table.h. */
#include <inttypes.h>

#include "common/base/alloc.h"
#include "router/triton/tensors_to_requests_priv.h"

static const char table_name[] = "prompt_embedding_table";
static const char size_name[] = "prompt_vocab_size";
static const char extra_name[] = "prompt_table_extra_ids";

/* Finds the type of a table's elements. @return false: there is none */
static bool table_type(bt_dtype_t dtype, uint32_t *type_p)
{
    switch (dtype) {
    case BT_DTYPE_FP32:
        *type_p = BT_TABLE_F32;
        return true;
    case BT_DTYPE_FP16:
        *type_p = BT_TABLE_F16;
        return true;
    case BT_DTYPE_BF16:
        *type_p = BT_TABLE_BF16;
        return true;
    default:
        return false;
    }
}

/* Copies the rows before it looks at them: those of shared memory may change.
 */
static bt_status_t copy_rows(bt_lower_t *l, const bt_slice_t *s,
                             const bt_table_rows_t *rows)
{
    bt_prompt_table_t *table = NULL;

    if (bt_prompt_table_create(rows, &table) != BT_OK) {
        return bt_api_error_no_memory(l->error);
    }
    if (!bt_table_is_finite(&table->rows)) {
        bt_prompt_table_unref(table);
        return bt_lower_refuse(l, s->name, "has a number that is not finite");
    }
    l->row->table.rows = table;
    return BT_OK;
}

bt_status_t bt_lower_take_table(bt_lower_t *l, const bt_slice_t *s)
{
    const uint64_t n = (s->n_dims < 2) ? 0 : s->dims[s->n_dims - 2];
    const uint64_t width = (s->n_dims < 2) ? 0 : s->dims[s->n_dims - 1];
    const uint64_t size = bt_dtype_bytes(s->tensor->dtype);
    bt_table_rows_t rows = {0};

    if (s->n == 0) {
        return BT_OK;
    }
    if (!table_type(s->tensor->dtype, &rows.type)) {
        return bt_lower_refuse(l, s->name, "must be FP16, BF16 or FP32, got %s",
                               bt_dtype_name(s->tensor->dtype));
    }
    if ((n == 0) || (width == 0) || (s->n / n != width) || (s->n % n != 0)) {
        return bt_lower_refuse(l, s->name,
                               "must have the shape [rows, width of the "
                               "model's embeddings] for each row of the batch");
    }
    if ((s->n > BT_TABLE_MAX_BYTES / size) || (n > BT_TABLE_MAX_ROWS)) {
        return bt_lower_refuse(
            l, s->name, "has %" PRIu64 " bytes; a table may have up to %u",
            s->n * size, BT_TABLE_MAX_BYTES);
    }
    rows.data = (const uint8_t *)s->tensor->data + s->from * size;
    rows.bytes = (uint32_t)(s->n * size);
    rows.n = (uint32_t)n;
    return copy_rows(l, s, &rows);
}

bt_status_t bt_lower_take_table_size(bt_lower_t *l, const bt_slice_t *s)
{
    int64_t size = 0;
    const bt_status_t status = bt_lower_integer(l, s, 0, INT32_MAX, &size);

    l->row->table.vocab_size = (uint32_t)size;
    return status;
}

bt_status_t bt_lower_take_extra_ids(bt_lower_t *l, const bt_slice_t *s)
{
    bt_api_table_t *table = &l->row->table;

    if ((s->n == 0) || (s->n > BT_WIRE_MAX_TOKENS)) {
        return (s->n == 0)
                   ? BT_OK
                   : bt_lower_refuse(l, s->name, "has more than %u values",
                                     BT_WIRE_MAX_TOKENS);
    }
    table->extra_ids = bt_calloc((size_t)s->n, sizeof(*table->extra_ids));
    if (table->extra_ids == NULL) {
        return bt_api_error_no_memory(l->error);
    }
    for (uint64_t i = 0; i < s->n; i++) {
        if (bt_tensor_u64(s->tensor, s->from + i, &table->extra_ids[i]) !=
            BT_OK) {
            return bt_lower_refuse(l, s->name, "must be an integer, got %s",
                                   bt_dtype_name(s->tensor->dtype));
        }
    }
    table->n_extra_ids = (uint32_t)s->n;
    return BT_OK;
}

/* Extra ids are of the ids of the prompt, without its padding. */
static bt_status_t check_extra_ids(bt_lower_t *l)
{
    bt_api_table_t *table = &l->row->table;
    const size_t n_ids = l->row->prompts[0].n_ids;
    bool any = false;

    for (uint32_t i = 0; i < table->n_extra_ids; i++) {
        any = any || (table->extra_ids[i] != 0);
    }
    if (any && (table->rows == NULL)) {
        return bt_lower_refuse(l, extra_name,
                               "is of no use without prompt_embedding_table");
    }
    if ((table->n_extra_ids > 0) && (table->n_extra_ids < n_ids)) {
        return bt_lower_refuse(
            l, extra_name, "has %u ids a row, fewer than the %zu of input_ids",
            table->n_extra_ids, n_ids);
    }
    if (table->n_extra_ids > n_ids) {
        table->n_extra_ids = (uint32_t)n_ids;
    }
    return BT_OK;
}

/* Drops a table of zeros whose size is not given: as Triton's clients say that
 * there is none. */
static void drop_nothing(bt_api_table_t *table)
{
    const bt_table_rows_t *rows;

    if ((table->rows == NULL) || (table->vocab_size > 0)) {
        return;
    }
    rows = &table->rows->rows;
    for (uint32_t i = 0; i < rows->bytes; i++) {
        if (rows->data[i] != 0) {
            return;
        }
    }
    bt_prompt_table_unref(table->rows);
    table->rows = NULL;
}

bt_status_t bt_lower_check_table(bt_lower_t *l)
{
    const bt_api_table_t *table = &l->row->table;

    drop_nothing(&l->row->table);
    if ((table->rows == NULL) && (table->vocab_size > 0)) {
        return bt_lower_refuse(l, size_name,
                               "needs the input 'prompt_embedding_table'");
    }
    if (table->rows == NULL) {
        return check_extra_ids(l);
    }
    if (l->spec->role != BT_ROLE_IDS) {
        return bt_lower_refuse(l, table_name,
                               "needs ids of its rows in the prompt, which "
                               "only input_ids of model tensorrt_llm can have");
    }
    if (table->vocab_size == 0) {
        return bt_lower_refuse(l, table_name,
                               "needs the input 'prompt_vocab_size'");
    }
    if (table->vocab_size != table->rows->rows.n) {
        return bt_lower_refuse(l, size_name,
                               "is %u, but prompt_embedding_table has %u rows",
                               table->vocab_size, table->rows->rows.n);
    }
    return check_extra_ids(l);
}
