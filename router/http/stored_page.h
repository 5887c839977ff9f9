/* SPDX-License-Identifier: Apache-2.0 */
/** @file stored_page.h
 *
 * Lists of what the store keeps for a client, cut into pages as OpenAI does:
 * `after` and `limit`, `first_id`, `last_id` and `has_more`.
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_HTTP_STORED_PAGE_H
#define BT_ROUTER_HTTP_STORED_PAGE_H

#include "common/base/json.h"
#include "router/http/door_priv.h"
#include "router/store/store.h"

/** One kind of object as a list. */
typedef struct bt_stored_list {
    bt_store_kind_t kind;
    const char *what;    /**< name for errors: "no such WHAT" */
    const char *names;   /**< parameters, for errors */
    uint64_t most_limit; /**< largest `limit` */
    uint64_t most_page;  /**< objects of one answer, whatever `limit` says */
    bool has_order;      /**< `order` may be given */
    bool has_purpose;    /**< `purpose` may be given: labels begin with it */
    /** Writes an object. */
    void (*write)(const bt_stored_t *object, bt_json_t *json);
} bt_stored_list_t;

#define BT_STORED_PURPOSE_BYTES 32

/** Reads the parameter `limit`, from 1 to @a most.
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled */
BT_MUST_CHECK bt_status_t bt_page_limit_read(const char *value, uint64_t most,
                                             uint64_t *limit_p,
                                             bt_api_error_t *error_p);
/** Reads the parameter `order`, asc or desc.
 *  @retval BT_ERR_INVALID_PARAM  error_p is filled */
BT_MUST_CHECK bt_status_t bt_page_order_read(const char *value,
                                             bool *is_ascending_p,
                                             bt_api_error_t *error_p);

/** Page that a request asks for. */
typedef struct bt_stored_page {
    bt_stored_t *after; /**< borrowed; NULL: from the beginning */
    uint64_t limit;
    bool is_ascending;
    char purpose[BT_STORED_PURPOSE_BYTES];
} bt_stored_page_t;

/**
 * Reads the query of a request.
 * @param [in,out] page  the defaults, and what was asked for
 * @retval BT_ERR_INVALID_PARAM, BT_ERR_NOT_FOUND  error_p is filled
 */
BT_MUST_CHECK bt_status_t bt_stored_page_read(const bt_http_request_t *r,
                                              const bt_stored_list_t *list,
                                              bt_stored_page_t *page,
                                              bt_api_error_t *error_p);
/** Writes the page of a request's tenant. */
void bt_stored_page_write(const bt_http_request_t *r,
                          const bt_stored_list_t *list,
                          const bt_stored_page_t *page, bt_json_t *json);

#endif
