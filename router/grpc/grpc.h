/* SPDX-License-Identifier: Apache-2.0 */
/** @file grpc.h
 *
 * A gRPC server on the router's event loop: connections (conn.c) and calls
 * (gcall.c), between the sockets of router/net and the registered methods.
 * Independent of message types.
 *
 *     bt_stream ─ bytes ─▶ bt_gconn ─▶ h2.h ─ streams ─▶ bt_gcall ─▶ method
 *         ▲                                                │ send, end
 *         └──────────── bytes ◀── h2.h ◀───────────────────┘
 *
 * A *call* is one stream. Its method receives each message in turn, and the
 * client's half-close; it answers with any number of messages and one status
 * code.
 *
 *     on_message … on_half_close        bt_gcall_send() … bt_gcall_end()
 *         └── the client left, its deadline passed, or it reads too slowly:
 *             on_gone(), then the call must not be used any more
 *
 * A unary method receives its single message after the client's half-close.
 *
 * Limits on what a client can use, besides those of h2.h and net.h: bytes of a
 * message (max_message_bytes; RESOURCE_EXHAUSTED before the message is read),
 * memory for it next to other messages (UNAVAILABLE), time for its body,
 * unread bytes of an answer (client_buffer_bytes, plus the largest message of
 * the answer: the stream is reset), and time to read a complete answer. A few
 * messages are delivered per turn of the loop; nothing more is read until all
 * are delivered.
 *
 * Threads: all on the event loop's thread.
 */
#ifndef BT_ROUTER_GRPC_GRPC_H
#define BT_ROUTER_GRPC_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/grpc/framing.h"
#include "router/net/net.h"

#define BT_GRPC_MAX_STREAMS 1024 /**< per connection, at once */
#define BT_GCALL_MEMO_BYTES 136
/** Error text where a client's message exceeds the memory that is left. */
#define BT_GRPC_NO_MEMORY_NOW                                      \
    "the server has no memory for this message now (http-memory, " \
    "router-memory), try again later"

typedef struct bt_grpc bt_grpc_t;
typedef struct bt_gcall bt_gcall_t;

typedef struct bt_grpc_config {
    bt_net_config_t net;
    uint64_t max_message_bytes;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms;
    uint32_t client_buffer_bytes;
} bt_grpc_config_t;

/** One message of a client, as transferred. */
typedef struct bt_gmessage {
    bt_strbuf_t body; /**< owned */
    bool compressed;  /**< with gzip */
    size_t charged;   /**< bytes charged to the net until bt_gmessage_fini() */
} bt_gmessage_t;

typedef struct bt_gmethod {
    const char *path;   /**< "/package.Service/Method" */
    bool takes_many;    /**< any number of messages; else exactly one */
    uint32_t max_bytes; /**< largest message; 0: max_message_bytes */
    /** Receives a message and owns it: bt_gmessage_fini(). */
    void (*on_message)(bt_gcall_t *call, bt_gmessage_t *message);
    /** Reports the client's half-close. May be NULL for a unary method. */
    void (*on_half_close)(bt_gcall_t *call);
    /** Reports that the call ends now, without bt_gcall_end(). May be NULL. */
    void (*on_gone)(bt_gcall_t *call);
    /** Access level of the method; interpreted by on_admit() only. */
    int access;
    /** Type of the request, and the function that answers it; interpreted by
     *  on_message() only. */
    const void *request_type;
    void (*answer)(bt_gcall_t *call, void *request);
} bt_gmethod_t;

/** Returns a header field of a call by its lower-case name; NULL: absent. */
typedef const char *(*bt_grpc_field_fn)(const void *head, const char *name);

typedef struct bt_grpc_handlers {
    /** Methods; static. */
    const bt_gmethod_t *methods;
    size_t n_methods;
    void *ctx; /**< value of bt_gcall_ctx() */
    /** Checks whether a client may call at all.
     *  @param authority, origin  as the client sent them, or NULL
     *  @return NULL, or the reason for a refusal (PERMISSION_DENIED) */
    const char *(*on_check)(void *ctx, const char *authority,
                            const char *origin);
    /** Checks whether a client may call this method, after on_check().
     *  @param client        connection of the client
     *  @param [out] code_p  status code of a refusal
     *  @return NULL, or the reason for a refusal; static */
    const char *(*on_admit)(void *ctx, const bt_gmethod_t *method,
                            const bt_stream_t *client, bt_grpc_field_fn field,
                            const void *head, bt_grpc_code_t *code_p);
    /** Reports that a call begins. */
    void (*on_begin)(void *ctx, bt_gcall_t *call);
    /** Reports a call that is refused before it begins.
     *  @param given     the client's value of the field @a id_field, or NULL
     *  @param [out] id  value of that field in the answer */
    void (*on_refused)(void *ctx, const char *given, bt_grpc_code_t code,
                       char id[BT_GCALL_MEMO_BYTES]);
    const char *id_field; /**< used with on_refused */
    /** Reports that a call has ended. */
    void (*on_end)(void *ctx, bt_gcall_t *call, bt_grpc_code_t code);
    /** See bt_net_handlers_t. */
    void (*on_turn)(void *ctx);
    void (*on_gather)(void *ctx);
} bt_grpc_handlers_t;

/** Creates a server. @a config and @a handlers are copied.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_grpc_create(struct event_base *base,
                                         const bt_grpc_config_t *config,
                                         const bt_grpc_handlers_t *handlers,
                                         bt_grpc_t **grpc_p);
/** Returns the server's sockets. */
bt_net_t *bt_grpc_net(const bt_grpc_t *grpc);
/** Destroys a server; on_gone() is called for every open call. NULL is
 *  allowed. */
void bt_grpc_destroy(bt_grpc_t *grpc);

/* ---- for methods ---- */

void *bt_gcall_ctx(const bt_gcall_t *call);
const bt_gmethod_t *bt_gcall_method(const bt_gcall_t *call);
bt_grpc_t *bt_gcall_grpc(const bt_gcall_t *call);
void bt_gcall_set_user(bt_gcall_t *call, void *user);
void *bt_gcall_user(const bt_gcall_t *call);
/** Returns a field of the client's metadata, by its lower-case name; NULL:
 *  absent. */
const char *bt_gcall_field(const bt_gcall_t *call, const char *name);
/** Returns ids that are equal for calls of one client address, and of one
 *  connection. */
void bt_gcall_ids(const bt_gcall_t *call, uint64_t *address_p,
                  uint64_t *connection_p);
/** Returns the client's numeric address. */
void bt_gcall_peer(const bt_gcall_t *call, char out[BT_NET_PEER_BYTES]);
/** Adds a field to the answer's header, before the answer begins. Name and
 *  value must be static or live as long as the call. At most two fields. */
void bt_gcall_add_field(bt_gcall_t *call, const char *name, const char *value);
/** Returns BT_GCALL_MEMO_BYTES of memory for the owner of the methods, zeroed
 *  at first, valid as long as the call. */
char *bt_gcall_memo(bt_gcall_t *call);
/** Returns the start time of a call, from bt_now_us(). */
uint64_t bt_gcall_start_us(const bt_gcall_t *call);

/** Sends one message, compressed if the client compressed its own.
 *  @return false: the call is over, on_gone() was called */
bool bt_gcall_send(bt_gcall_t *call, const void *data, size_t bytes);
/** Ends a call.
 *  @param [in] message  error text; NULL: none */
void bt_gcall_end(bt_gcall_t *call, bt_grpc_code_t code, const char *message);

/** Frees the memory of a message. */
void bt_gmessage_fini(bt_grpc_t *grpc, bt_gmessage_t *message);

#endif
