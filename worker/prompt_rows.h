/* SPDX-License-Identifier: Apache-2.0 */
/** @file prompt_rows.h
 *
 * Rows of the prompt table of a request, as the engine reads them: 32-bit
 * floats, whatever type the client sent.
 *
 * Threads: the worker's main thread.
 */
#ifndef BT_WORKER_PROMPT_ROWS_H
#define BT_WORKER_PROMPT_ROWS_H

#include "common/wire/wire.h"
#include "inference/model/model.h"

/** Checks the table of a request, which has one.
 *  @return why the model cannot compute it, a phrase; NULL: it can */
const char *bt_prompt_rows_refusal(const bt_model_t *model,
                                   const bt_msg_request_t *msg);

/** Converts the rows of a table.
 *  @param [in]  table   with a width
 *  @param [out] rows_p  n rows; freed with bt_free()
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_prompt_rows_copy(const bt_table_rows_t *table,
                                              float **rows_p);

#endif
