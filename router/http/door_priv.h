/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_priv.h
 *
 * Shared by door.c, door_reply.c, door_infer.c, answer.c, routes.c and scrape.c
 * only.
 *
 * A *visit* is one exchange in progress, from its route to the end of its
 * answer, which is recorded in the metrics and in the access log.
 */
#ifndef BT_ROUTER_HTTP_DOOR_PRIV_H
#define BT_ROUTER_HTTP_DOOR_PRIV_H

#include "router/frontend/call.h"
#include "router/http/admit.h"
#include "router/http/answer.h"
#include "router/http/door.h"
#include "router/triton/infer_call.h"
#include "router/triton/model_control.h"

#define BT_DOOR_MAX_MODELS 256 /**< entries of one list */
#define BT_JSON_TYPE       "application/json"

typedef struct bt_unpack bt_unpack_t;
typedef struct bt_infer_answer bt_infer_answer_t;

/** Action for a body once it is complete. Borrowed. */
typedef struct bt_visit_how {
    /** Begins the action. @param [in,out] body  taken over
     *  @param body_bytes  bytes that the server counts as held for the body
     */
    void (*begin)(bt_visit_t *visit, const struct bt_visit_how *how,
                  bt_strbuf_t *body, size_t body_bytes);
    const char *model, *version; /**< from the path, or NULL */
    bool stream;
} bt_visit_how_t;

struct bt_visit {
    bt_reply_t reply;       /**< first: a call knows only this */
    bt_infer_reply_t infer; /**< reply for a call of tensors */
    bt_door_t *door;
    bt_exchange_t *ex;
    const char *route; /**< pattern of the path; static */
    bt_api_dialect_t dialect;
    bt_tenant_t *tenant; /**< a reference; NULL: not determined */
    bool began;          /**< head of a stream was sent */
    uint32_t sequence;   /**< number of a response's next event */
    uint64_t start_us;
    /** Event stream: time of the last write, and the keep-alive comment; NULL:
     *  none. Linked in door->streams then. */
    uint64_t written_us;
    const char *comment;
    bt_list_t stream;
    bt_list_t waits;            /**< link in bt_pooled_page_t, or unlinked */
    bt_watcher_t *watcher;      /**< reader of the cluster's events; or NULL */
    bt_answer_t *writing;       /**< answer at the pool; or NULL */
    bt_unpack_t *unpacking;     /**< body at the pool; or NULL */
    bt_infer_answer_t *packing; /**< tensor answer at the pool; or NULL */
    bt_model_control_t *order;  /**< admin command in progress; or NULL */
    /** Client address for the access log; unused without one. */
    char client[BT_HTTP_CLIENT_BYTES];
    char id[BT_REQUEST_ID_BYTES]; /**< X-Request-Id of the answer */
};

/* ---- door_reply.c ---- */

/** Creates the visit of an exchange; @a route must be static. @return NULL:
 *  answered already because memory is short. */
bt_visit_t *bt_visit_begin(bt_door_t *door, bt_exchange_t *ex,
                           const char *route, bt_api_dialect_t dialect);
/** Answers in one piece. The visit is over. */
void bt_visit_respond(bt_visit_t *visit, int status, const char *type,
                      const void *body, size_t bytes);
/** Answers with a long body, which need not be copied and is empty afterwards;
 *  otherwise as bt_visit_respond(). The visit is over. */
void bt_visit_respond_take(bt_visit_t *visit, int status, const char *type,
                           bt_strbuf_t *body);
/** Answers with an error in the dialect's form. The visit is over. */
void bt_visit_fail(bt_visit_t *visit, const bt_api_error_t *error);
/** Answers that memory is short for encoding. The visit is over. */
void bt_visit_fail_for_memory(bt_visit_t *visit);
/** Answers that the result is longer than BT_ANSWER_LIMIT. The visit is over.
 */
void bt_visit_fail_for_length(bt_visit_t *visit);
/** Sends the head of an event stream. */
void bt_visit_begin_stream(bt_visit_t *visit);
/** Sends the last bytes of a stream. The visit is over. */
void bt_visit_end_stream(bt_visit_t *visit, const bt_strbuf_t *last);
/** Writes a comment into each event stream that has been silent for
 *  --sse-keepalive-s. */
void bt_door_keep_alive(bt_door_t *door, uint64_t now_us);
/** Begins a call from the exchange's body; the visit is its reply.
 *  @param [in] model  from the path, or NULL */
void bt_visit_call(bt_visit_t *visit, const char *model, bool stream);

/** Releases the memory of a body; @a door is a bt_door_t. */
void bt_door_body_freed(void *door, size_t bytes);
/** Handlers of bt_http_handlers_t; @a door is a bt_door_t. */
void bt_door_gone(void *door, bt_exchange_t *ex);
void bt_door_turn(void *door);
void bt_door_format_error(void *door, const char *path, int status,
                          const char *message, bt_strbuf_t *out);

/* ---- door_unpack.c ---- */

/** Starts the action with the exchange's body; a compressed body is
 *  decompressed first, so that the action starts later. */
void bt_visit_take_body(bt_visit_t *visit, const bt_visit_how_t *how);
/** Returns the client whose work this is at the pool, beside the tenant. */
bt_work_client_t bt_visit_client(const bt_visit_t *visit);
/** Abandons decompression because the client left. */
void bt_unpack_leave(bt_unpack_t *unpack);
/** Decompresses a short body at once, if it is compressed.
 *  @param [in,out] body  decompressed afterwards; owned
 *  @retval BT_ERR_TOO_LARGE  it is more than BT_UNPACK_SHORT_BYTES
 *  @retval BT_ERR_CORRUPT    the body does not match its Content-Encoding
 *  @retval BT_ERR_NO_MEMORY */
#define BT_UNPACK_SHORT_BYTES ((size_t)64 << 10)
BT_MUST_CHECK bt_status_t bt_unpack_short(const bt_exchange_t *ex,
                                          bt_strbuf_t *body);

/* ---- door_infer.c ---- */

/** Begins a tensor call from the exchange's body; the visit is its reply.
 *  @param [in] version  from the path, or NULL */
void bt_visit_infer(bt_visit_t *visit, const char *model, const char *version);
/** Abandons a tensor call because the client left; does nothing without one. */
void bt_visit_infer_gone(bt_visit_t *visit);

/* ---- routes.c ---- */

/** Handlers of the main and of the metrics port; @a door is a bt_door_t. */
void bt_door_request(void *door, bt_exchange_t *ex);
void bt_door_metrics_request(void *door, bt_exchange_t *ex);
/** Returns the dialect for errors on this path; NULL = unknown. */
bt_api_dialect_t bt_door_dialect_of(const char *path);

#endif
