/* SPDX-License-Identifier: Apache-2.0 */
/** @file intake.h
 *
 * From a JSON body to prompts of tokens: parsing, the model, the chat template,
 * tokenizing, every check. What takes long is done on the frontend's pool, so
 * that no client's body holds up the event loop; what is small is done at once.
 *
 *     begin ─▶ parse ─▶ model, room in the queue ─▶ tokenize ─▶ told(user)
 *                │              │                      │          ▲
 *                └── refused ───┴──────────────────────┴──────────┘
 *              (pool)        (event loop)            (pool)
 *
 * Meanwhile the intake holds places in the queue (max_queue), which is what
 * bounds the pool's work.
 *
 * Threads: everything on the event loop's thread, but for what the pool runs,
 * which touches the intake and the parts of a model that never change.
 */
#ifndef BT_ROUTER_FRONTEND_INTAKE_H
#define BT_ROUTER_FRONTEND_INTAKE_H

#include "router/frontend/frontend.h"
#include "router/frontend/prepare.h"
#include "router/frontend/work.h"

/** Bodies up to here are looked at on the event loop: that takes some 100 us,
 *  and they are answered sooner than a thread wakes up. */
#define BT_INTAKE_INLINE_BYTES 2048u
/** Templates and tokens that take longer there are the pool's after all. */
#define BT_INTAKE_INLINE_US 1000u

/** How far a client's request has come whose sequences may belong to several
 *  calls: it counts once, when all have ended well or the first did not. */
typedef struct bt_call_tally {
    uint32_t n, n_ok; /**< sequences */
    bool failed;
} bt_call_tally_t;

/** What the door knows of a call beside its body. Borrowed, but for ctx, which
 *  must stay until body_freed() was called, which is from inside. */
typedef struct bt_call_source {
    bt_api_dialect_t dialect;
    const char *model; /**< from the path, or NULL: the body names it */
    /** generate: whether it was generate_stream. The path alone decides: some
     *  clients send "stream": true to generate and expect one object. OpenAI:
     *  ignored, the body says. */
    bool stream;
    const char *traceparent; /**< W3C Trace Context, or NULL */
    bt_tenant_t *tenant;     /**< whose it is; NULL: nobody's in particular */
    bt_work_client_t client; /**< and of which of the tenant's clients */
    /** What a body was made into already; taken over (and left zeroed). NULL:
     *  the body is JSON. Its own `stream` counts. */
    bt_api_request_t *request;
    uint64_t parse_us; /**< what making it took */
    /** Of a request whose other sequences are other calls' (its n is set); must
     *  stay as long as the reply. NULL: the call is all of the request. */
    bt_call_tally_t *tally;
    /** The body is counted in the frontend's budget from here on; NULL: nobody
     *  counts it yet. */
    void (*body_freed)(void *ctx, size_t bytes);
    void *ctx;
    size_t body_bytes; /**< what it is told */
    /** Of the request that this one is a part of; borrowed. NULL: its own. */
    bt_account_t *account;
} bt_call_source_t;

typedef struct bt_intake {
    bt_work_t work;
    bt_frontend_t *front;
    bt_api_dialect_t dialect;
    bool stream;           /**< of the source */
    bt_account_t *account; /**< a reference; NULL: too small to be counted */
    char *path_model;      /**< owned, or NULL */
    char *traceparent;     /**< owned, or NULL */
    bt_tenant_t *tenant;   /**< a reference */
    bt_work_client_t client;
    bt_strbuf_t body;   /**< owned; empty once it is parsed */
    bool parsed_before; /**< there is no body */
    bool is_inline;
    bool posted; /**< at the pool: its job is not done */
    bt_pool_lane_t lane;
    size_t text_bytes; /**< to be parsed or tokenized */
    uint32_t n_places; /**< of the queue, held by this */
    void (*told)(void *user);
    void *user; /**< NULL: nobody waits for it any more */
    uint64_t start_us, step_us;

    /* What comes out. */
    bt_status_t status;   /**< of the last step */
    bt_api_error_t error; /**< unless the status is BT_OK */
    bt_served_t *served;  /**< NULL: not found yet */
    const char *model;    /**< as the client named it */
    uint32_t context_tokens;
    bt_api_request_t request;
    bt_prepared_t prepared;
    uint32_t priority;              /**< the scheduler's level (priority.h) */
    uint64_t parse_us, tokenize_us; /**< waiting for the pool included */
} bt_intake_t;

/**
 * Begin.
 *
 * @param [in,out] body  Taken over in any case, and left empty. NULL is allowed
 *                   with a request.
 * @param [in] told  Called once, perhaps from inside: the intake is complete or
 *                   refused. Not after bt_intake_leave().
 * @param [out] intake_p  Written before told() is called; bt_intake_free() it
 *                   after told(), or bt_intake_leave() it before.
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY  told() is not called; body_freed() is, as always.
 */
BT_MUST_CHECK bt_status_t bt_intake_begin(bt_frontend_t *front,
                                          const bt_call_source_t *source,
                                          bt_strbuf_t *body,
                                          void (*told)(void *user), void *user,
                                          bt_intake_t **intake_p);
/** Nobody waits for it any more: what the pool has of it is canceled, and it
 *  frees itself when the pool is done. */
void bt_intake_leave(bt_intake_t *intake);
/** After told(). */
void bt_intake_free(bt_intake_t *intake);

#endif
