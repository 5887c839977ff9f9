/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_stored.h
 *
 * Stored responses of OpenAI's API: objects of a store (router/store/store.h).
 *
 *     object of kind BT_STORE_RESPONSE, id "resp_…"
 *       label  id of the response that it continues, or nothing
 *       bytes  n u64 │ input items, a list as JSON, n bytes │ response as JSON
 *
 * A conversation is a chain of responses, each of which has its own items only:
 *
 *     resp_c ─▶ resp_b ─▶ resp_a      history: input and output of a, b, c
 *
 * A response is found in the space of its tenant only. Where a chain has lost a
 * response, because it was deleted, evicted or has expired, no response after
 * it can be continued.
 *
 * Threads: the store's thread, except those marked "any thread", which access
 *          files and may block.
 * Source:  OpenAI's API reference, "Responses".
 */
#ifndef BT_ROUTER_API_API_STORED_H
#define BT_ROUTER_API_API_STORED_H

#include "common/base/json.h"
#include "common/base/text.h"
#include "router/api/api.h"
#include "router/store/store.h"

#define BT_API_MAX_CHAIN         256u /**< responses of one conversation */
#define BT_API_MAX_HISTORY_BYTES ((uint64_t)64 << 20) /**< all their bytes */
#define BT_API_STORED_HEAD_BYTES 8u                   /**< before the items */

/* ---- a conversation ---- */

/** Responses of a conversation. Zeroed: none. */
typedef struct bt_api_history {
    const bt_store_t *store;
    bt_stored_t *responses[BT_API_MAX_CHAIN]; /**< references; newest first */
    struct bt_api_stored *texts; /**< owned: one of each; NULL: not read yet */
    uint32_t n;
    uint64_t bytes; /**< bytes of all responses */
} bt_api_history_t;

/** Finds a response and all that it continues.
 *  @param [out] history_p  bt_api_history_fini() is due in any case
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_TOO_LARGE  error_p is filled: 400 */
BT_MUST_CHECK bt_status_t bt_api_history_find(const bt_store_t *store,
                                              const char *space, const char *id,
                                              bt_api_history_t *history_p,
                                              bt_api_error_t *error_p);
/** Finds them in the folders of all routers, instead; any thread. Parameters
 *  and results are those of bt_api_history_find().
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY  error_p is filled: 503 */
BT_MUST_CHECK bt_status_t bt_api_history_look_up(
    bt_store_t *store, const char *space, const char *id, uint64_t now_us,
    bt_api_history_t *history_p, bt_api_error_t *error_p);
void bt_api_history_fini(bt_api_history_t *history);
/** Reads the responses that were found; any thread.
 *  @retval others  error_p is filled */
BT_MUST_CHECK bt_status_t bt_api_history_read(bt_api_history_t *history,
                                              bt_api_error_t *error_p);
/** Writes the items of a conversation that was read, the oldest first, as a
 *  list of JSON, and frees what was read; any thread, accesses no files.
 *  @param [out] items  initialized by the caller
 *  @retval others  error_p is filled */
BT_MUST_CHECK bt_status_t bt_api_history_put_items(bt_api_history_t *history,
                                                   bt_strbuf_t *items,
                                                   bt_api_error_t *error_p);

/* ---- one response ---- */

/** Fills the error of a response that is not there: 404. */
void bt_api_stored_missing(const char *id, bt_api_error_t *error_p);

/** Reserves space. The oldest responses make room: those of the tenant if its
 *  space is full; if the store is full, those of the tenant that uses the most,
 *  at least as much as this one would, else its own.
 *  @param [in] bytes  of the items and the response
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_api_stored_reserve(bt_store_t *store,
                                                const char *space,
                                                const char *id, uint64_t bytes,
                                                uint64_t now_us,
                                                bt_store_put_t **put_p);
/** Writes and commits; any thread.
 *  @param [in] previous  NULL: none */
BT_MUST_CHECK bt_status_t bt_api_stored_write(bt_store_put_t *put,
                                              const char *previous,
                                              const char *items,
                                              const bt_strbuf_t *response);

/** Parts of a stored response. */
typedef struct bt_api_stored {
    bt_strbuf_t text; /**< owned; the others point into it */
    const char *items, *response;
    size_t items_bytes, response_bytes;
} bt_api_stored_t;

/** Reads a response, to which the caller has a reference; any thread.
 *  @retval BT_ERR_NOT_FOUND (removed), BT_ERR_CORRUPT, BT_ERR_IO,
 *      BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_api_stored_read(const bt_store_t *store,
                                             const bt_stored_t *object,
                                             bt_api_stored_t *stored_p);
void bt_api_stored_fini(bt_api_stored_t *stored);

/** Page of a list of input items. */
typedef struct bt_api_items_page {
    uint32_t limit;
    bool is_ascending;
    char after[BT_API_MAX_NAME_BYTES]; /**< id of the item before; "": from the
                                            beginning */
} bt_api_items_page_t;

/** Writes a page of the input items of a response, each with an id; any thread,
 *  accesses no files.
 *  An item keeps its own id, unless an item before it has the same.
 *  @retval BT_ERR_NOT_FOUND  no item has the id page->after
 *  @retval BT_ERR_CORRUPT, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_api_stored_put_items(const bt_api_stored_t *stored, const char *id,
                        const bt_api_items_page_t *page, bt_strbuf_t *out);

#endif
