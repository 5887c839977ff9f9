/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_priv.h  Shared by door.c, door_reply.c, door_infer.c, answer.c,
 * routes.c and scrape.c only.
 *
 * A *visit* is one exchange on its way through the door, from its route to the
 * last word, which is noted in the metrics and in the access log.
 */
#ifndef BT_ROUTER_HTTP_DOOR_PRIV_H
#define BT_ROUTER_HTTP_DOOR_PRIV_H

#include "router/frontend/call.h"
#include "router/http/admit.h"
#include "router/http/answer.h"
#include "router/http/door.h"
#include "router/triton/infer_call.h"
#include "router/triton/order.h"

#define BT_DOOR_MAX_MODELS 256 /**< of one list */
#define BT_JSON_TYPE       "application/json"

typedef struct bt_unpack bt_unpack_t;
typedef struct bt_infer_answer bt_infer_answer_t;

/** What is to be done with a body once it is there. Borrowed. */
typedef struct bt_visit_how {
    /** @param [in,out] body  taken over
     *  @param body_bytes  that the server counts as held for it */
    void (*begin)(bt_visit_t *visit, const struct bt_visit_how *how,
                  bt_strbuf_t *body, size_t body_bytes);
    const char *model, *version; /**< from the path, or NULL */
    bool stream;
} bt_visit_how_t;

struct bt_visit {
    bt_reply_t reply;       /**< first: a call knows only this */
    bt_infer_reply_t infer; /**< the same of a call of tensors */
    bt_door_t *door;
    bt_exchange_t *ex;
    const char *route; /**< pattern of its path; static */
    bt_api_dialect_t dialect;
    bt_tenant_t *tenant; /**< a reference; NULL: nobody asked who it is */
    bool began;          /**< the head of a stream went out */
    uint32_t sequence;   /**< of the next event of a response */
    uint64_t start_us;
    /** Its answer in events: when some of it was written last, and what is
     *  written when it is silent; NULL: nothing. In door->streams then. */
    uint64_t written_us;
    const char *comment;
    bt_list_t stream;
    bt_list_t waits;            /**< in bt_pooled_page_t, or by itself */
    bt_watcher_t *watcher;      /**< it reads the cluster's events; or NULL */
    bt_answer_t *writing;       /**< its answer, at the pool; or NULL */
    bt_unpack_t *unpacking;     /**< its body, at the pool; or NULL */
    bt_infer_answer_t *packing; /**< its answer of tensors; the same */
    bt_order_t *order;          /**< that it waits for; or NULL */
    /** For the access log; of no use without one. */
    char client[BT_HTTP_CLIENT_BYTES];
    char id[BT_REQUEST_ID_BYTES]; /**< X-Request-Id of the answer */
};

/* ---- door_reply.c ---- */

/** The exchange enters; @a route must be static. @return NULL: it was answered
 *  because memory is short. */
bt_visit_t *bt_visit_begin(bt_door_t *door, bt_exchange_t *ex,
                           const char *route, bt_api_dialect_t dialect);
/** Answer in one piece. The visit is over. */
void bt_visit_respond(bt_visit_t *visit, int status, const char *type,
                      const void *body, size_t bytes);
/** bt_visit_respond() with a long body, which need not be copied; it is empty
 *  afterwards. The visit is over. */
void bt_visit_respond_take(bt_visit_t *visit, int status, const char *type,
                           bt_strbuf_t *body);
/** Answer with an error in the dialect's form. The visit is over. */
void bt_visit_fail(bt_visit_t *visit, const bt_api_error_t *error);
/** Answer that it cannot be put into bytes. The visit is over. */
void bt_visit_fail_for_memory(bt_visit_t *visit);
/** An answer is longer than BT_ANSWER_LIMIT. */
void bt_visit_fail_for_length(bt_visit_t *visit);
/** The head of a stream of events goes out. */
void bt_visit_begin_stream(bt_visit_t *visit);
/** The last of one. The visit is over. */
void bt_visit_end_stream(bt_visit_t *visit, const bt_strbuf_t *last);
/** Write a comment into each answer in events that has been silent for
 *  --sse-keepalive-s. */
void bt_door_keep_alive(bt_door_t *door, uint64_t now_us);
/** Begin a call from the exchange's body; the visit is its reply.
 *  @param [in] model  from the path, or NULL */
void bt_visit_call(bt_visit_t *visit, const char *model, bool stream);

/** The memory of a body is free again; @a door is a bt_door_t. */
void bt_door_body_freed(void *door, size_t bytes);
/** Handlers of bt_http_handlers_t; @a door is a bt_door_t. */
void bt_door_gone(void *door, bt_exchange_t *ex);
void bt_door_turn(void *door);
void bt_door_format_error(void *door, const char *path, int status,
                          const char *message, bt_strbuf_t *out);

/* ---- door_unpack.c ---- */

/** Begin with the exchange's body, unpacked where it is packed: then later. */
void bt_visit_take_body(bt_visit_t *visit, const bt_visit_how_t *how);
/** Whose work it is at the pool, beside the tenant. */
bt_work_client_t bt_visit_client(const bt_visit_t *visit);
/** The client left while its body is unpacked. */
void bt_unpack_leave(bt_unpack_t *unpack);
/** Unpack a short body here and now, if it is packed.
 *  @param [in,out] body  what it is afterwards; owned
 *  @retval BT_ERR_TOO_LARGE  it is more than BT_UNPACK_SHORT_BYTES
 *  @retval BT_ERR_CORRUPT    it is not what its Content-Encoding says
 *  @retval BT_ERR_NO_MEMORY */
#define BT_UNPACK_SHORT_BYTES ((size_t)64 << 10)
BT_MUST_CHECK bt_status_t bt_unpack_short(const bt_exchange_t *ex,
                                          bt_strbuf_t *body);

/* ---- door_infer.c ---- */

/** Begin a call of tensors from the exchange's body; the visit is its reply.
 *  @param [in] version  from the path, or NULL */
void bt_visit_infer(bt_visit_t *visit, const char *model, const char *version);
/** The client left; nothing where there is no such call. */
void bt_visit_infer_gone(bt_visit_t *visit);

/* ---- routes.c ---- */

/** Handlers of the main and of the metrics port; @a door is a bt_door_t. */
void bt_door_request(void *door, bt_exchange_t *ex);
void bt_door_metrics_request(void *door, bt_exchange_t *ex);
/** The dialect that an error on this path is told in; NULL = unknown. */
bt_api_dialect_t bt_door_dialect_of(const char *path);

#endif
