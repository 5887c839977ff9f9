/* SPDX-License-Identifier: Apache-2.0 */
/** @file exchange.h
 *
 * One request to an OTLP receiver and its answer, within a deadline. The
 * connection is kept for the next one where the receiver keeps it, and over TLS
 * where the link has it.
 *
 * Threads: one, which may wait here; names are asked for here, too.
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

/** Until when: the earlier of both. */
typedef struct bt_otlp_until {
    uint64_t try_end_ms;
    const _Atomic uint64_t *end_ms; /**< of everything; 0: not yet */
    int wake_fd;                    /**< readable: end_ms has changed */
} bt_otlp_until_t;

/** A connection; zero-initialise with fd -1. */
typedef struct bt_otlp_link {
    bt_tls_t *tls; /**< borrowed, of a client; NULL: HTTP without it */
    bt_tls_session_t *session; /**< owned; NULL without TLS */
    int fd;
    char *data; /**< owned: BT_OTLP_ANSWER_BYTES for answers... */
    size_t n;   /**< ...and how much has come of one */
    char trouble[BT_OTLP_TROUBLE_BYTES]; /**< why there was no answer */
} bt_otlp_link_t;

typedef struct bt_otlp_request {
    const char *head, *body; /**< borrowed */
    size_t head_bytes, body_bytes;
} bt_otlp_request_t;

/**
 * @param [out] answer  points into the link; of one that is cut the status
 *                      counts
 * @retval BT_OK
 * @retval BT_ERR_IO  There was none; link->trouble says why.
 */
BT_MUST_CHECK bt_status_t bt_otlp_exchange(bt_otlp_link_t *link,
                                           const bt_otlp_url_t *url,
                                           const bt_otlp_request_t *request,
                                           const bt_otlp_until_t *until,
                                           bt_otlp_answer_t *answer);
void bt_otlp_link_close(bt_otlp_link_t *link);

#endif
