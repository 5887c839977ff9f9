/* SPDX-License-Identifier: Apache-2.0 */
/** @file prompt_table.h
 *
 * Prompt table: rows of a model's width that a client gives in place of
 * embeddings of tokens (prompt tuning; TensorRT-LLM's prompt_embedding_table).
 *
 *     client's ids    12   7   V   V+1   V+1   9     V: vocabulary's size
 *     token ids here  12   7   T   T+1   T+1   9     T: BT_TABLE_TOKEN
 *     embeddings     W12  W7  E0   E1    E1   W9     W: model's, E: table's
 *
 * A row stands where the embedding stands once it is scaled: learned positions
 * and norms come behind it, for rows as for tokens. Its id only numbers it: the
 * content of a table is in the cache namespace of its request
 * (router/frontend/space.h), so that equal ids of different tables share no KV.
 *
 * Threads: pure functions; references may be dropped on any thread.
 * Source:  TensorRT-LLM, "Prompt tuning": ids from vocab_size on are rows.
 */
#ifndef BT_COMMON_WIRE_PROMPT_TABLE_H
#define BT_COMMON_WIRE_PROMPT_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/** Token id of row 0; those of vocabularies are below. */
#define BT_TABLE_TOKEN 0x80000000u
/** Most bytes of a table: with 2^20 token ids it fits one message. */
#define BT_TABLE_MAX_BYTES (7u << 20)
#define BT_TABLE_MAX_ROWS  (1u << 20)

/** Type of a table's elements, little-endian. */
typedef enum bt_table_type {
    BT_TABLE_F32 = 0,
    BT_TABLE_F16 = 1,
    BT_TABLE_BF16 = 2,
    BT_TABLE_N_TYPES,
} bt_table_type_t;

/** Rows of a table, one behind the other. No bytes: no table. */
typedef struct bt_table_rows {
    const uint8_t *data; /**< borrowed, of any alignment */
    uint32_t bytes;
    uint32_t type; /**< bt_table_type_t */
    uint32_t n;    /**< number of rows, at least 1 */
} bt_table_rows_t;

/** True for the id of a row, whatever the table. */
static inline bool bt_is_table_token(uint32_t id)
{
    return id >= BT_TABLE_TOKEN;
}

/** Returns the bytes of an element; 0 for an unknown type. */
uint32_t bt_table_type_bytes(uint32_t type);
/** Returns how many ids are of rows; 0: there is no table. */
static inline uint32_t bt_table_n_rows(const bt_table_rows_t *rows)
{
    return (rows->bytes > 0) ? rows->n : 0;
}

/** Returns the elements of a row; 0: the fields do not fit together, or there
 *  is no table. */
uint32_t bt_table_width(const bt_table_rows_t *rows);
/** True when no element is infinite or NaN.
 *  @param [in] rows  with a width */
bool bt_table_is_finite(const bt_table_rows_t *rows);

/** Table that a request and all that is computed from it share. Immutable. */
typedef struct bt_prompt_table {
    atomic_uint n_refs;
    bt_table_rows_t rows; /**< data is the table's own */
    uint8_t data[];
} bt_prompt_table_t;

/** Copies rows into a table with one reference, the caller's.
 *  @param [in] rows  with a width
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_prompt_table_create(const bt_table_rows_t *rows,
                                                 bt_prompt_table_t **table_p);
/** Adds a reference. NULL is allowed. @return @a table */
bt_prompt_table_t *bt_prompt_table_ref(bt_prompt_table_t *table);
/** Drops a reference; the last one frees the table. NULL is allowed. */
void bt_prompt_table_unref(bt_prompt_table_t *table);

#endif
