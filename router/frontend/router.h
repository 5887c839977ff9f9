/* SPDX-License-Identifier: Apache-2.0 */
/** @file router.h
 *
 * What the parts of the router's process share: the served model, the core,
 * the metrics and the clients' calls.
 *
 *     loop.c ── exchange ──▶ routes.c ──▶ client.c ──▶ core ──▶ workers
 *                                            ▲           │
 *                                            └── text ───┘
 *
 * Threads: everything on the event loop's thread.
 */
#ifndef BT_ROUTER_FRONTEND_ROUTER_H
#define BT_ROUTER_FRONTEND_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/strbuf.h"
#include "common/config/config.h"
#include "router/core/core.h"
#include "router/frontend/api.h"
#include "router/frontend/served.h"
#include "router/http/http.h"
#include "router/observe/metrics.h"
#include "router/observe/trace.h"

#define BT_ANSWER_LIMIT (64u << 20) /**< bytes of one answer */

typedef struct bt_router {
    const bt_config_t *config;
    const bt_served_t *served;
    bt_core_t *core;
    bt_router_metrics_t *metrics;
    bt_model_metrics_t *model_metrics; /**< of the served model */
    bt_http_t *http, *metrics_http;
    bt_trace_t *trace; /**< NULL: not asked for */
    bool draining;     /**< no new requests */
    uint64_t id_start; /**< random: makes ids of answers unique */
    uint64_t n_calls;
    bt_strbuf_t out; /**< scratch for one answer or event */
} bt_router_t;

/* routes.c */

/** Handler of the main port. */
void bt_routes_main(void *router, bt_exchange_t *ex);
/** Handler of the metrics port. */
void bt_routes_metrics(void *router, bt_exchange_t *ex);
/** Body of an error that the HTTP server finds itself. */
void bt_routes_format_error(void *router, const char *path, int status,
                            const char *message, bt_strbuf_t *out);
/** Answer with an error in a dialect's form. */
void bt_respond_error(bt_router_t *router, bt_exchange_t *ex,
                      bt_api_dialect_t dialect, const bt_api_error_t *error);

/* client.c */

/**
 * One call that generates text. Answers or streams, now or later.
 *
 * @param [in] model   from the path (generate), or NULL: the body names it.
 * @param [in] stream  generate: whether it was generate_stream. The path alone
 *                     decides: some clients send "stream": true to generate
 *                     and expect one object. OpenAI: ignored, the body says.
 */
void bt_client_call(bt_router_t *router, bt_exchange_t *ex,
                    bt_api_dialect_t dialect, const char *model, bool stream);
/** Longest sequence, prompt and output, that model and workers take now. */
uint32_t bt_router_context_tokens(const bt_router_t *router);
/** The client of @a ex left. */
void bt_client_gone(void *router, bt_exchange_t *ex);

/** For bt_core_ops_t; the user pointer is a choice of a call. */
void bt_client_on_text(void *router, void *choice, const char *text,
                       size_t bytes, uint32_t n_output);
void bt_client_on_end(void *router, void *choice, const bt_gen_end_t *end);

#endif
