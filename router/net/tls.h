/* SPDX-License-Identifier: Apache-2.0 */
/** @file tls.h
 *
 * TLS for the streams of a net: 1.2 and 1.3, by OpenSSL. Only tls.c includes
 * OpenSSL's headers.
 *
 *     files ─▶ bt_tls_t (certificate, key, CA) ◀── SIGHUP: bt_tls_reload()
 *                 └─▶ session of each stream, which keeps the files it began
 *                     with
 *
 * A session works on the stream's own socket, not on libevent's: sockets, their
 * events and all limits are the net's, with TLS and without.
 *
 * Threads: a bt_tls_t and its sessions belong to one thread.
 * Source:  RFC 8446, RFC 5246, RFC 7301 (ALPN), RFC 6066 (names of servers).
 */
#ifndef BT_ROUTER_NET_TLS_H
#define BT_ROUTER_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct bt_tls bt_tls_t;
typedef struct bt_tls_session bt_tls_session_t;

/** Paths of PEM files; borrowed for as long as the bt_tls_t lives. */
typedef struct bt_tls_files {
    /** The server's certificate, and its chain up to the root. */
    const char *cert;
    const char *key; /**< without a passphrase; protected like a cluster key */
    const char *client_ca; /**< clients must present a certificate of one of
                              these CAs; NULL or "": not required */
} bt_tls_files_t;

#define BT_TLS_WHY_BYTES 384

/** Creates a TLS context from files.
 *  @param [out] why  after a failure: the file and the cause; never anything of
 *    the key
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED (permissions of the
 *    key), BT_ERR_BAD_FILE, BT_ERR_MISMATCH (the key is not the certificate's),
 *    BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tls_create(const bt_tls_files_t *files,
                                        bt_tls_t **tls_p,
                                        char why[BT_TLS_WHY_BYTES]);
/** Reloads the files, for sessions that begin from now on. A failure changes
 *  nothing. @retval  as of bt_tls_create() */
BT_MUST_CHECK bt_status_t bt_tls_reload(bt_tls_t *tls,
                                        char why[BT_TLS_WHY_BYTES]);
/** Frees the context; all sessions must have ended. NULL is allowed. */
void bt_tls_destroy(bt_tls_t *tls);
/** Returns subject and expiry of the certificate, for the log. */
const char *bt_tls_summary(const bt_tls_t *tls);
/** True when the certificate has expired. */
bool bt_tls_has_expired(const bt_tls_t *tls);

/* ---- one stream ---- */

/** Memory of a session during the handshake, and after it when idle: the net
 *  charges this (tests/unit/router/net/test_tls.c measures it). */
#define BT_TLS_HANDSHAKE_BYTES ((size_t)64 * 1024)
#define BT_TLS_IDLE_BYTES      ((size_t)32 * 1024)

/** Result of a step: what the session waits for. */
typedef enum bt_tls_step {
    BT_TLS_DONE,
    BT_TLS_WANTS_READ,  /**< call again when the socket has more */
    BT_TLS_WANTS_WRITE, /**< call again when the socket accepts more */
    BT_TLS_FAILED,
    BT_TLS_IS_HTTP, /**< failed: the peer speaks HTTP without TLS */
} bt_tls_step_t;

/** Begins the server's side, on a non-blocking socket.
 *  @param [in] protocol  the only supported one, such as "h2"; static. A client
 *    that offers only others is refused, one without ALPN is accepted.
 *  @return NULL: no memory */
bt_tls_session_t *bt_tls_begin(bt_tls_t *tls, int fd, const char *protocol);
bt_tls_step_t bt_tls_handshake(bt_tls_session_t *session);
/** Returns why the last step failed: a phrase, static. */
const char *bt_tls_trouble(const bt_tls_session_t *session);
/** Reads the data of one record; records without data are skipped, a limited
 *  number per call. After BT_TLS_WANTS_READ all remaining input is in the
 *  socket, which signals it.
 *  @param [out] n_p  0 with BT_TLS_DONE: the peer sends no more */
bt_tls_step_t bt_tls_read(bt_tls_session_t *session, void *data, size_t most,
                          size_t *n_p);
/** Writes data. After BT_TLS_WANTS_WRITE the next call must pass these bytes
 *  again, or more. */
bt_tls_step_t bt_tls_write(bt_tls_session_t *session, const void *data,
                           size_t bytes, size_t *n_p);
/** Notifies the peer that no more will be sent. */
bt_tls_step_t bt_tls_shutdown(bt_tls_session_t *session);
/** Ends a session. NULL is allowed. */
void bt_tls_end(bt_tls_session_t *session);

#endif
