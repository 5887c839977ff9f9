/* SPDX-License-Identifier: Apache-2.0 */
/** @file grpc.h
 *
 * A server of gRPC calls on the router's event loop: connections (conn.c) and
 * calls (gcall.c), between the sockets of router/net and the methods that
 * somebody hands in. It knows no message.
 *
 *     bt_stream ─ bytes ─▶ bt_gconn ─▶ h2.h ─ streams ─▶ bt_gcall ─▶ method
 *         ▲                                                │ send, end
 *         └──────────── bytes ◀── h2.h ◀───────────────────┘
 *
 * A *call* is one stream. Its method is told of each message in turn, and of
 * the end of the client's half; it answers with any number of messages and one
 * code.
 *
 *     on_message … on_half_close        bt_gcall_send() … bt_gcall_end()
 *         └── the client left, its deadline passed, it reads too slowly:
 *             on_gone(), then nobody may touch the call any more
 *
 * A unary method is told of its one message when the client has said all.
 *
 * What a stranger can take is bounded, beside what h2.h and net.h bound: bytes
 * of a message (max_message_bytes; RESOURCE_EXHAUSTED before it is read), room
 * for it beside others (UNAVAILABLE), time for its body, unread bytes of an
 * answer (client_buffer_bytes, and its largest message beside them: the stream
 * is reset), and time to take an answer
 * that is whole. Messages are handed over a few in a turn of the loop; until
 * they all are, nothing more is read.
 *
 * Threads: all on the event loop's thread.
 */
#ifndef BT_ROUTER_GRPC_GRPC_H
#define BT_ROUTER_GRPC_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "router/grpc/framing.h"
#include "router/net/net.h"

#define BT_GRPC_MAX_STREAMS 1024 /**< of a connection at once */
#define BT_GCALL_MEMO_BYTES 136

typedef struct bt_grpc bt_grpc_t;
typedef struct bt_gcall bt_gcall_t;

typedef struct bt_grpc_config {
    bt_net_config_t net;
    uint64_t max_message_bytes;
    uint32_t header_timeout_ms, body_timeout_ms, idle_timeout_ms;
    uint32_t client_buffer_bytes;
} bt_grpc_config_t;

/** One message of a client, as it travelled. */
typedef struct bt_gmessage {
    bt_strbuf_t body; /**< owned */
    bool compressed;  /**< with gzip */
    size_t charged;   /**< of the net, until bt_gmessage_fini() */
} bt_gmessage_t;

typedef struct bt_gmethod {
    const char *path;   /**< "/package.Service/Method" */
    bool takes_many;    /**< messages; else exactly one */
    uint32_t max_bytes; /**< of a message; 0: max_message_bytes */
    /** The message becomes the method's: bt_gmessage_fini(). */
    void (*on_message)(bt_gcall_t *call, bt_gmessage_t *message);
    /** May be NULL for one that is unary. */
    void (*on_half_close)(bt_gcall_t *call);
    /** May be NULL. The call ends now, without bt_gcall_end(). */
    void (*on_gone)(bt_gcall_t *call);
    /** Who may call it, for on_admit(), whose meaning it has. */
    int access;
} bt_gmethod_t;

/** A field of a call's head by its name in lower case; NULL: it has none. */
typedef const char *(*bt_grpc_field_fn)(const void *head, const char *name);

typedef struct bt_grpc_handlers {
    /** The methods; static. */
    const bt_gmethod_t *methods;
    size_t n_methods;
    void *ctx; /**< bt_gcall_ctx() */
    /** May be NULL. May a client call? @param authority, origin  as it says,
     *  or NULL @return NULL, or why not (PERMISSION_DENIED) */
    const char *(*on_check)(void *ctx, const char *authority,
                            const char *origin);
    /** May be NULL. May who calls call this method, on_check() being past?
     *  @param client        its connection
     *  @param [out] code_p  otherwise the call's
     *  @return NULL, or why not; static */
    const char *(*on_admit)(void *ctx, const bt_gmethod_t *method,
                            const bt_stream_t *client, bt_grpc_field_fn field,
                            const void *head, bt_grpc_code_t *code_p);
    /** May be NULL. A call begins. */
    void (*on_begin)(void *ctx, bt_gcall_t *call);
    /** May be NULL: on_end() is called. A call is refused before it begins.
     *  @param given     what the client says in the field @a id_field, or NULL
     *  @param [out] id  what the answer says there */
    void (*on_refused)(void *ctx, const char *given, bt_grpc_code_t code,
                       char id[BT_GCALL_MEMO_BYTES]);
    const char *id_field; /**< with on_refused */
    /** May be NULL. A call had its last word.
     *  @param path  NULL: of no method */
    void (*on_end)(void *ctx, bt_gcall_t *call, const char *path,
                   bt_grpc_code_t code);
    /** As of bt_net_handlers_t. */
    void (*on_turn)(void *ctx);
    void (*on_gather)(void *ctx);
} bt_grpc_handlers_t;

/** @a config and @a handlers are copied.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_grpc_create(struct event_base *base,
                                         const bt_grpc_config_t *config,
                                         const bt_grpc_handlers_t *handlers,
                                         bt_grpc_t **grpc_p);
/** Its sockets. */
bt_net_t *bt_grpc_net(const bt_grpc_t *grpc);
/** Every call is told on_gone(). NULL is allowed. */
void bt_grpc_destroy(bt_grpc_t *grpc);

/* ---- for methods ---- */

void *bt_gcall_ctx(const bt_gcall_t *call);
bt_grpc_t *bt_gcall_grpc(const bt_gcall_t *call);
void bt_gcall_set_user(bt_gcall_t *call, void *user);
void *bt_gcall_user(const bt_gcall_t *call);
/** A field of the client's metadata, name in lower case; NULL: absent. */
const char *bt_gcall_field(const bt_gcall_t *call, const char *name);
/** Equal for calls of one address, and of one connection. */
void bt_gcall_ids(const bt_gcall_t *call, uint64_t *address_p,
                  uint64_t *connection_p);
/** Numeric address of the client. */
void bt_gcall_peer(const bt_gcall_t *call, char out[BT_NET_PEER_BYTES]);
/** One more field of the answer's head, before it begins; of both static
 *  duration or as long as the call. At most two. */
void bt_gcall_add_field(bt_gcall_t *call, const char *name, const char *value);
/** BT_GCALL_MEMO_BYTES for whoever handed the methods in, zeroed at first, as
 *  long as the call. */
char *bt_gcall_memo(bt_gcall_t *call);
/** When it began, as of bt_now_us(). */
uint64_t bt_gcall_start_us(const bt_gcall_t *call);
/** Milliseconds until the client's deadline; 0: it has none. */
uint32_t bt_gcall_timeout_ms(const bt_gcall_t *call);

/** One message, compressed where the client did so itself.
 *  @return false: the call is over, on_gone() was called */
bool bt_gcall_send(bt_gcall_t *call, const void *data, size_t bytes);
/** The last word. @param [in] message  of an error; NULL: none */
void bt_gcall_end(bt_gcall_t *call, bt_grpc_code_t code, const char *message);

/** Memory of a message that is not needed any more. */
void bt_gmessage_fini(bt_grpc_t *grpc, bt_gmessage_t *message);

#endif
