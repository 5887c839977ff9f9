/* SPDX-License-Identifier: Apache-2.0 */
/** @file client.h
 *
 * HTTP client of the OTLP exporter, by libcurl. Sends one request at a time to
 * one URL and reuses the connection. Only client.c includes libcurl's header.
 *
 * Proxies of the environment, redirects, cookies and .netrc are not used. Over
 * https:// the receiver's certificate is verified against the authorities that
 * this system trusts, or those of SSL_CERT_FILE and SSL_CERT_DIR; TLS 1.2 is
 * the lowest version. Host names are resolved by a thread of libcurl.
 *
 * Threads: one calls all functions and may block in them, except for
 *          bt_otlp_client_wake(), which any thread may call.
 * Source:  OTLP 1.x, "OTLP/HTTP Response" and "Failures";
 *          ExportTraceServiceResponse and google.control.Status in JSON.
 */
#ifndef BT_ROUTER_OTLP_CLIENT_H
#define BT_ROUTER_OTLP_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

/** Largest header and largest body of a response; the rest is not read. */
#define BT_OTLP_RESPONSE_BYTES ((size_t)64 << 10)
#define BT_OTLP_ERROR_BYTES    256

typedef struct bt_otlp_client bt_otlp_client_t;

typedef struct bt_otlp_request {
    const char *body; /**< JSON, compressed by gzip; borrowed */
    size_t body_bytes;
    uint32_t try_ms; /**< timeout of the request and its response */
    /** Time at which the request ends in any case, such as at shutdown; 0:
     *  none yet. bt_otlp_client_wake() announces a change. */
    const _Atomic uint64_t *end_ms;
} bt_otlp_request_t;

typedef struct bt_otlp_response {
    int http_status;
    uint64_t retry_after_ms; /**< from Retry-After; 0: none */
    const char *body;        /**< owned by the client, until the next request */
    size_t body_bytes;
} bt_otlp_response_t;

/**
 * Creates a client; no connection is made.
 *
 * @param [in]  url    an OTLP base URL; /v1/traces is appended to its path
 *                     unless the path ends with it
 * @param [out] error  the reason for a failure
 * @retval BT_ERR_INVALID_PARAM  the URL
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t
bt_otlp_client_create(const char *url, bt_otlp_client_t **client_p,
                      char error[BT_OTLP_ERROR_BYTES]);
/** Closes the connection. NULL is allowed. */
void bt_otlp_client_destroy(bt_otlp_client_t *client);
/** Returns `HOST[:PORT]` of the URL, for logs. */
const char *bt_otlp_client_host(const bt_otlp_client_t *client);
/** Returns the path of the URL, for logs. */
const char *bt_otlp_client_path(const bt_otlp_client_t *client);

/** Sets further headers of all requests from now on; called before the first
 *  request.
 *  @param [in] headers  of bt_otlp_headers_parse(); copied
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_otlp_client_set_headers(bt_otlp_client_t *client,
                                                     const char *headers,
                                                     size_t bytes);
/**
 * Sends a request and receives the response.
 *
 * @param [out] response  if the connection ends after the header, the status
 *                        counts and the body is what was received
 * @param [out] error     the reason for a failure, printable
 * @retval BT_ERR_IO         no response in time, or none of HTTP
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_otlp_client_post(bt_otlp_client_t *client,
                                              const bt_otlp_request_t *request,
                                              bt_otlp_response_t *response,
                                              char error[BT_OTLP_ERROR_BYTES]);
/** Waits for bt_otlp_client_wake(), for @a ms at most. */
void bt_otlp_client_wait(bt_otlp_client_t *client, uint64_t ms);
/** Ends the current or the next bt_otlp_client_wait() early, and makes
 *  bt_otlp_client_post() read the time at which it ends. */
void bt_otlp_client_wake(bt_otlp_client_t *client);

/* ---- the meaning of a response; pure functions ---- */

typedef enum bt_otlp_verdict {
    BT_OTLP_ACCEPTED,
    BT_OTLP_REJECTED, /**< a retry would be rejected, too */
    BT_OTLP_RETRY,    /**< a retry may succeed */
} bt_otlp_verdict_t;

/** Classifies a response by its HTTP status. */
bt_otlp_verdict_t bt_otlp_judge(int http_status);

/** Result of parsing a JSON body. */
typedef struct bt_otlp_result {
    uint64_t n_rejected; /**< rejected spans, from partialSuccess */
    bool is_partial;     /**< partialSuccess has rejected spans or a message */
    bt_printable_t message; /**< from partialSuccess or an error; or "" */
} bt_otlp_result_t;

/** Parses the JSON body of a response; a body of another form gives an empty
 *  result. */
void bt_otlp_parse_body(const char *body, size_t bytes,
                        bt_otlp_result_t *result);

/** Exponential backoff: each delay is twice the previous one. */
typedef struct bt_otlp_backoff {
    uint32_t first_ms, max_ms;
} bt_otlp_backoff_t;

/** Returns the delay before the next try.
 *  @param n_failed        failed tries so far, above 0
 *  @param retry_after_ms  lower bound, of the receiver; 0: none
 *  @param random          jitter, for senders that failed together: the delay
 *                         is between half of itself and all of it */
uint64_t bt_otlp_backoff_ms(const bt_otlp_backoff_t *backoff, uint32_t n_failed,
                            uint64_t retry_after_ms, uint32_t random);

#endif
