/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/prompt_rows.h"

#include <string.h>

#include "common/base/alloc.h"
#include "kernels/half.h"

const char *bt_prompt_rows_refusal(const bt_model_t *model,
                                   const bt_msg_request_t *msg)
{
    if (!bt_model_takes_rows(model)) {
        return "this worker computes no prompt tables: its model is on a "
               "device";
    }
    if (bt_table_width(&msg->table) != bt_model_hparams(model)->dim) {
        return "the rows of the prompt table are not as wide as the model";
    }
    if (!bt_table_is_finite(&msg->table)) {
        return "the prompt table has a number that is not finite";
    }
    if ((msg->wants.what & BT_WANT_PROMPT_LOGPROBS) != 0) {
        return "log-probs of a prompt with rows of a table are not computed";
    }
    return NULL;
}

bt_status_t bt_prompt_rows_copy(const bt_table_rows_t *table, float **rows_p)
{
    const uint32_t size = bt_table_type_bytes(table->type);
    const size_t n = table->bytes / size;
    float *rows = bt_calloc(n, sizeof(*rows));

    if (rows == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if (table->type == BT_TABLE_F32) {
        memcpy(rows, table->data, table->bytes);
    }
    for (size_t i = 0; (i < n) && (table->type != BT_TABLE_F32); i++) {
        uint16_t bits;

        memcpy(&bits, table->data + i * size, sizeof(bits));
        rows[i] = (table->type == BT_TABLE_F16) ? bt_f16_to_f32(bits)
                                                : bt_bf16_to_f32(bits);
    }
    *rows_p = rows;
    return BT_OK;
}
