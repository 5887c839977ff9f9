/* SPDX-License-Identifier: Apache-2.0 */
/** @file door_priv.h
 *
 * Shared by the files of the HTTP door only.
 */
#ifndef BT_ROUTER_HTTP_DOOR_PRIV_H
#define BT_ROUTER_HTTP_DOOR_PRIV_H

#include "router/frontend/weight_update.h"
#include "router/http/admit.h"
#include "router/http/answer.h"
#include "router/http/door.h"
#include "router/request/request.h"
#include "router/store/store.h"
#include "router/triton/infer_request.h"
#include "router/triton/model_control.h"

#define BT_DOOR_MAX_MODELS 256 /**< entries of one list */
#define BT_JSON_TYPE       "application/json"

typedef struct bt_unpack bt_unpack_t;
typedef struct bt_response_save bt_response_save_t; /**< response_save.c */
typedef struct bt_download bt_download_t;           /**< file_download.c */

/** Begins what a request asks for once its body is complete.
 *  @param [in,out] body  taken over */
typedef void (*bt_http_begin_t)(bt_http_request_t *r, bt_strbuf_t *body);

/** Request over HTTP: an exchange, from its route to its line in the log. */
struct bt_http_request {
    bt_request_t base; /**< first; model and version are the path's */
    bt_door_t *door;
    bt_exchange_t *ex;
    const char *route;      /**< pattern of the path; static */
    const char *name;       /**< segment {name} of the path, or NULL */
    bt_served_t *served;    /**< model of the path, in its version; or NULL */
    bool began;             /**< head of a stream was sent */
    bt_api_events_t events; /**< position in a response's stream */
    bt_api_blocks_t blocks; /**< blocks of a streamed message */
    /** Event stream: time of the last write, and the keep-alive comment; NULL:
     *  none. Linked in door->streams then. */
    uint64_t written_us;
    const char *comment;
    bt_list_t stream;
    bt_list_t waits;             /**< link in bt_pooled_page_t, or unlinked */
    bt_watcher_t *watcher;       /**< reader of the cluster's events; or NULL */
    bt_model_control_t *control; /**< admin command in progress; or NULL */
    bt_router_pause_waiter_t pause; /**< with is_pausing */
    bt_router_sleep_waiter_t sleep; /**< with waits_for_sleep */
    bt_served_t
        *updating; /**< model whose weights this request replaces; or NULL */
    bt_served_t *adapting; /**< model for which this request loads an adapter;
                                or NULL */
    char adapter_name[BT_CONFIG_MODEL_NAME_BYTES]; /**< name of that adapter */
    bool is_pausing;      /**< waits until the router is paused */
    bool waits_for_sleep; /**< waits for what it asked of the workers (sleep.h)
                           */
    bt_http_begin_t begin;
    bt_unpack_t *unpack;        /**< body at the pool; or NULL */
    bt_answer_t *answer;        /**< answer at the pool; or NULL */
    bt_response_save_t *saving; /**< response that is being stored; or NULL */
    bt_download_t *download;    /**< file that is being sent; or NULL */
    bt_request_job_t *reading;  /**< stored response that is read; or NULL */
    /** Client address for the access log; unused without one. */
    char client[BT_HTTP_CLIENT_BYTES];
    char id[BT_REQUEST_ID_BYTES]; /**< X-Request-Id of the answer */
};

/** Returns the request of HTTP that a request is. */
static inline bt_http_request_t *bt_http_of(bt_request_t *request)
{
    return BT_CONTAINER_OF(request, bt_http_request_t, base);
}

/* ---- http_request.c ---- */

/** Creates the request of an exchange; @a route must be static. @return NULL:
 *  answered already because memory is short. */
bt_http_request_t *bt_http_request_begin(bt_door_t *door, bt_exchange_t *ex,
                                         const char *route,
                                         bt_api_dialect_t dialect);
/** Answers in one piece. The request is over. */
void bt_http_request_respond(bt_http_request_t *r, int status, const char *type,
                             const void *body, size_t bytes);
/** Answers with a long body, which need not be copied and is empty afterwards;
 *  otherwise as bt_http_request_respond(). The request is over. */
void bt_http_request_respond_take(bt_http_request_t *r, const char *type,
                                  bt_strbuf_t *body);
/** Begins an answer of @a bytes in all, which come in pieces:
 *  bt_exchange_send_piece(). @return false: the client is gone */
BT_MUST_CHECK bool bt_http_request_begin_pieces(bt_http_request_t *r,
                                                const char *type,
                                                uint64_t bytes);
/** Sends the last piece, which may be empty, and is afterwards. The request is
 *  over. */
void bt_http_request_end_pieces(bt_http_request_t *r, bt_strbuf_t *last);
/** Answers with an error in the dialect's form. The request is over. */
void bt_http_request_fail(bt_http_request_t *r, const bt_api_error_t *error);
/** Answers with an error of this status; printf style. The request is over. */
void bt_http_request_error(bt_http_request_t *r, int status, const char *param,
                           const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/** Answers that memory is short for encoding. The request is over. */
void bt_http_request_fail_for_memory(bt_http_request_t *r);
/** Answers that the result is longer than BT_ANSWER_LIMIT. The request is over.
 */
void bt_http_request_fail_for_length(bt_http_request_t *r);
/** Sends the head of a streamed answer, unless it was sent. */
void bt_http_request_begin_answer(bt_http_request_t *r);
/** Sends the head of an event stream. */
void bt_http_request_begin_stream(bt_http_request_t *r);
/** Sends the last bytes of a stream. The request is over. */
void bt_http_request_end_stream(bt_http_request_t *r, const bt_strbuf_t *last);
/** Writes a comment into each event stream that has been silent for
 *  --sse-keepalive-s. */
void bt_door_keep_alive(bt_door_t *door, uint64_t now_us);
/** Begins a request of the dialect from the exchange's body. */
void bt_http_request_generate(bt_http_request_t *r, bool stream);
/** Begins a request of tensors from the exchange's body: JSON, or raw after
 *  it. */
void bt_http_request_infer(bt_http_request_t *r);

/** Handlers of bt_http_handlers_t; @a door is a bt_door_t. */
void bt_door_gone(void *door, bt_exchange_t *ex);
void bt_door_sent(void *door, bt_exchange_t *ex);
void bt_door_turn(void *door);
void bt_door_format_error(void *door, const char *path, int status,
                          const char *message, bt_strbuf_t *out);

/* ---- response_save.c: a response is stored before its end is sent ---- */

/** Stores a whole response, then answers with it.
 *  @return false: no memory; nothing was done */
bool bt_response_save_begin(bt_http_request_t *r, bt_row_t *row,
                            const bt_api_choice_t *choice,
                            const bt_api_usage_t *usage);
/** Holds back the last events of a stream, in which r->events has the place of
 *  the response.
 *  @param [in,out] last  taken over on success
 *  @return false: there is no room to store it; nothing was done */
bool bt_response_save_hold(bt_http_request_t *r, const bt_row_t *row,
                           bt_strbuf_t *last);
/** Stores the response of a stream, then sends its last events. */
void bt_response_save_end(bt_http_request_t *r);
/** Frees what a request has held back. NULL is allowed. */
void bt_response_save_free(bt_response_save_t *save);

/* ---- door_unpack.c ---- */

/** Begins with the exchange's body; a compressed body is decompressed first, so
 *  that it begins later. */
void bt_http_request_take_body(bt_http_request_t *r, bt_http_begin_t begin);
/** Frees a body that is being decompressed. NULL is allowed. */
void bt_unpack_free(bt_unpack_t *unpack);
/** Decompresses a short body at once, if it is compressed.
 *  @param [in,out] body  decompressed afterwards; owned
 *  @retval BT_ERR_TOO_LARGE  it is more than BT_UNPACK_SHORT_BYTES
 *  @retval others            error_p is filled in any case */
#define BT_UNPACK_SHORT_BYTES ((size_t)64 << 10)
BT_MUST_CHECK bt_status_t bt_unpack_short(const bt_exchange_t *ex,
                                          bt_strbuf_t *body,
                                          bt_api_error_t *error_p);

/* ---- file_download.c ---- */

/** Sends an object of the store in pieces, of which one is in memory at a time:
 *  a slow client delays nobody. The request is over, now or later. */
void bt_download_begin(bt_http_request_t *r, bt_stored_t *object);
/** Reads the next piece of a download, whose last one was sent. */
void bt_download_go_on(bt_download_t *download);
/** Ends a download, whose client left. */
void bt_download_leave(bt_download_t *download);

/* ---- routes.c ---- */

/** Handlers of the main and of the metrics port; @a door is a bt_door_t. */
void bt_door_request(void *door, bt_exchange_t *ex);
void bt_door_metrics_request(void *door, bt_exchange_t *ex);
/** Returns the dialect for errors on this path; NULL = unknown. */
bt_api_dialect_t bt_door_dialect_of(const char *path);

#endif
