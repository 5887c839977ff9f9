/* SPDX-License-Identifier: Apache-2.0 */
/** @file exchange.h
 *
 * One request to an OTLP receiver and its answer, within a deadline. The
 * connection is reused if the receiver keeps it open, and uses TLS if the link
 * is configured with TLS.
 *
 * Threads: one, which may block here; host names are resolved here, too.
 */
#ifndef BT_ROUTER_OTLP_EXCHANGE_H
#define BT_ROUTER_OTLP_EXCHANGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/config/otlp_url.h"
#include "router/net/tls.h"
#include "router/otlp/answer.h"

#define BT_OTLP_TROUBLE_BYTES 160

/** Deadline of an exchange: the earlier of try_end_ms and *end_ms. */
typedef struct bt_otlp_until {
    uint64_t try_end_ms;
    const _Atomic uint64_t *end_ms; /**< for all exchanges; 0: none yet */
    int wake_fd;                    /**< readable: end_ms has changed */
} bt_otlp_until_t;

/** Connection to a receiver; zero-initialise with fd -1. */
typedef struct bt_otlp_link {
    bt_tls_t *tls; /**< client context, borrowed; NULL: plain HTTP */
    bt_tls_session_t *session; /**< owned; NULL without TLS */
    int fd;
    char *data; /**< owned; BT_OTLP_ANSWER_BYTES for answers */
    size_t n;   /**< bytes received of an answer */
    char trouble[BT_OTLP_TROUBLE_BYTES]; /**< reason for a failure */
} bt_otlp_link_t;

typedef struct bt_otlp_request {
    const char *head, *body; /**< borrowed */
    size_t head_bytes, body_bytes;
} bt_otlp_request_t;

/**
 * Sends a request and receives the answer.
 *
 * @param [out] answer  points into the link; a truncated answer counts by its
 *                      status
 * @retval BT_OK
 * @retval BT_ERR_IO  No answer; link->trouble has the reason.
 */
BT_MUST_CHECK bt_status_t bt_otlp_exchange(bt_otlp_link_t *link,
                                           const bt_otlp_url_t *url,
                                           const bt_otlp_request_t *request,
                                           const bt_otlp_until_t *until,
                                           bt_otlp_answer_t *answer);
void bt_otlp_link_close(bt_otlp_link_t *link);

#endif
