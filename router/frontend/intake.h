/* SPDX-License-Identifier: Apache-2.0 */
/** @file intake.h
 *
 * Turns a JSON body into tokenized prompts: parsing, model lookup, chat
 * template, tokenizing, all checks. Long work runs on the frontend's pool, so
 * that no client's body blocks the event loop; short work is done at once.
 *
 *     begin ─▶ parse ─▶ model, space in the queue ─▶ tokenize ─▶ told(user)
 *                │              │                       │          ▲
 *                └── refused ───┴───────────────────────┴──────────┘
 *              (pool)        (event loop)             (pool)
 *
 * Meanwhile the intake holds slots in the queue (max_queue), which bounds the
 * pool's work.
 *
 * Threads: everything on the event loop's thread, except the pool's jobs, which
 * access the intake and the immutable parts of a model.
 */
#ifndef BT_ROUTER_FRONTEND_INTAKE_H
#define BT_ROUTER_FRONTEND_INTAKE_H

#include "router/frontend/frontend.h"
#include "router/frontend/prepare.h"
#include "router/frontend/work.h"

/** Bodies up to this size are handled on the event loop: that takes some 100
 *  us, less than waking a thread. */
#define BT_INTAKE_INLINE_BYTES 2048u
/** Templates and tokenizing that take longer move to the pool. */
#define BT_INTAKE_INLINE_US 1000u

/** Progress of a client's request whose sequences may belong to several calls:
 *  the request is counted once, when all have succeeded or the first has
 *  failed. */
typedef struct bt_call_tally {
    uint32_t n, n_ok; /**< sequences */
    bool failed;
} bt_call_tally_t;

/** Properties of a call except its body. Borrowed, except ctx, which must stay
 *  until body_freed() was called, which is from inside. */
typedef struct bt_call_source {
    bt_api_dialect_t dialect;
    const char *model; /**< from the path, or NULL: the body names it */
    /** generate: true for generate_stream. Only the path decides: some clients
     *  send "stream": true to generate and expect one object. OpenAI: ignored,
     *  the body decides. */
    bool stream;
    const char *traceparent; /**< W3C Trace Context, or NULL */
    bt_tenant_t *tenant;     /**< tenant of the call; NULL: no particular one */
    bt_work_client_t client; /**< client within the tenant */
    /** Parsed request in place of a JSON body; taken over (and left zeroed).
     *  NULL: the body is JSON. Its own `stream` counts. */
    bt_api_request_t *request;
    uint64_t parse_us; /**< time in us spent to make `request` */
    /** Shared tally of a request whose other sequences belong to other calls
     *  (its n is set); must stay as long as the reply. NULL: the call is the
     *  whole request. */
    bt_call_tally_t *tally;
    /** Called when the frontend's budget counts the body from here on; NULL:
     *  the body is not counted yet. */
    void (*body_freed)(void *ctx, size_t bytes);
    void *ctx;
    size_t body_bytes; /**< argument of body_freed() */
    /** Memory account of the request that contains this one; borrowed. NULL: an
     *  own account. */
    bt_account_t *account;
} bt_call_source_t;

typedef struct bt_intake {
    bt_work_t work;
    bt_frontend_t *front;
    bt_api_dialect_t dialect;
    bool stream;           /**< as in the source */
    bt_account_t *account; /**< a reference; NULL: too small to be counted */
    char *path_model;      /**< owned, or NULL */
    char *traceparent;     /**< owned, or NULL */
    bt_tenant_t *tenant;   /**< a reference */
    bt_work_client_t client;
    bt_strbuf_t body;   /**< owned; empty once it is parsed */
    bool parsed_before; /**< no body: source had a request */
    bool is_inline;
    bool posted; /**< job at the pool is not done */
    bt_pool_lane_t lane;
    size_t text_bytes; /**< bytes to parse or tokenize */
    uint32_t n_places; /**< queue slots held */
    void (*told)(void *user);
    void *user; /**< NULL: the caller has left */
    uint64_t start_us, step_us;

    /* Results. */
    bt_status_t status;   /**< result of the last step */
    bt_api_error_t error; /**< valid unless the status is BT_OK */
    bt_served_t *served;  /**< NULL: not found yet */
    const char *model;    /**< model name from the client */
    uint32_t context_tokens;
    bt_api_request_t request;
    bt_prepared_t prepared;
    uint32_t priority;              /**< scheduler's level (priority.h) */
    uint64_t parse_us, tokenize_us; /**< including the wait for the pool */
} bt_intake_t;

/**
 * Begins an intake.
 *
 * @param [in,out] body  Taken over in any case, and left empty. NULL is allowed
 *   with a request.
 * @param [in] told  Called once, perhaps from inside: the intake is complete or
 *   refused. Not after bt_intake_leave().
 * @param [out] intake_p  Written before told() is called; bt_intake_free() it
 *   after told(), or bt_intake_leave() it before.
 * @retval BT_OK
 * @retval BT_ERR_NO_MEMORY  told() is not called; body_freed() is, as always.
 */
BT_MUST_CHECK bt_status_t bt_intake_begin(bt_frontend_t *front,
                                          const bt_call_source_t *source,
                                          bt_strbuf_t *body,
                                          void (*told)(void *user), void *user,
                                          bt_intake_t **intake_p);
/** Abandons an intake: its job at the pool is canceled, and the intake frees
 *  itself when the pool is done. */
void bt_intake_leave(bt_intake_t *intake);
/** Frees an intake; call after told(). */
void bt_intake_free(bt_intake_t *intake);

#endif
