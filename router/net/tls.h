/* SPDX-License-Identifier: Apache-2.0 */
/** @file tls.h
 *
 * TLS for the streams of a net: 1.2 and 1.3, by OpenSSL. The only includer of
 * its headers is tls.c.
 *
 *     files ─▶ bt_tls_t (certificate, key, CA) ◀── SIGHUP: bt_tls_reload()
 *                 └─▶ session of each stream, which keeps what it began with
 *     authorities that this system trusts ─▶ bt_tls_t of a client ─▶ sessions
 *
 * A session works on the stream's own socket, not on libevent's: sockets,
 * their events and all limits are the net's, with TLS and without.
 *
 * Threads: a bt_tls_t and its sessions are of one.
 * Source: RFC 8446, RFC 5246, RFC 7301 (ALPN), RFC 6066 (names of servers).
 */
#ifndef BT_ROUTER_NET_TLS_H
#define BT_ROUTER_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

typedef struct bt_tls bt_tls_t;
typedef struct bt_tls_session bt_tls_session_t;

/** Paths, of PEM files; borrowed for as long as the bt_tls_t lives. */
typedef struct bt_tls_files {
    const char *cert;      /**< the server's, and those up to its root */
    const char *key;       /**< without a passphrase; kept like a cluster key */
    const char *client_ca; /**< clients must show a certificate of one of these;
                                NULL or "": they need none */
} bt_tls_files_t;

#define BT_TLS_WHY_BYTES 384

/** @param [out] why  after a failure: the file and the cause; never anything
 *                    of the key
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED (permissions of the
 *          key), BT_ERR_BAD_FILE, BT_ERR_MISMATCH (the key is not the
 *          certificate's), BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_tls_create(const bt_tls_files_t *files,
                                        bt_tls_t **tls_p,
                                        char why[BT_TLS_WHY_BYTES]);
/** Read the files anew, for sessions that begin from now on. After a failure
 *  nothing has changed. @retval as of bt_tls_create() */
BT_MUST_CHECK bt_status_t bt_tls_reload(bt_tls_t *tls,
                                        char why[BT_TLS_WHY_BYTES]);
/** All sessions have ended. NULL is allowed. */
void bt_tls_destroy(bt_tls_t *tls);
/** Of whom the certificate is, and until when: for the log. */
const char *bt_tls_summary(const bt_tls_t *tls);
/** Is the certificate's time over? */
bool bt_tls_has_expired(const bt_tls_t *tls);

/** For connections that we begin: who answers is held against the authorities
 *  that OpenSSL finds on this system, or in the file that SSL_CERT_FILE names
 *  and the folder of SSL_CERT_DIR. They are read here.
 *  @return NULL: no memory */
bt_tls_t *bt_tls_create_client(void);

/* ---- one stream ---- */

/** Memory of a session while it shakes hands, and after, with nothing under
 *  way: what the net charges for it (tests/unit/router/test_tls.c measures). */
#define BT_TLS_HANDSHAKE_BYTES ((size_t)64 * 1024)
#define BT_TLS_IDLE_BYTES      ((size_t)32 * 1024)

/** What a session does next. */
typedef enum bt_tls_step {
    BT_TLS_DONE,
    BT_TLS_WANTS_READ,  /**< when the socket has more */
    BT_TLS_WANTS_WRITE, /**< when the socket takes more */
    BT_TLS_FAILED,
    BT_TLS_IS_HTTP, /**< failed: the peer speaks HTTP without TLS */
} bt_tls_step_t;

/** The server's side, on a socket that does not block.
 *  @param [in] protocol  the only one that the door speaks, such as "h2";
 *                        static. A client that names others is refused, one
 *                        that names none (no ALPN) is taken.
 *  @return NULL: no memory */
bt_tls_session_t *bt_tls_begin(bt_tls_t *tls, int fd, const char *protocol);
/** The client's side of HTTP/1.1. The handshake fails, before anything is sent
 *  or read, where the certificate is not of @a host, not of an authority that
 *  is trusted, or its time is not now; bt_tls_trouble() says which.
 *  @param [in] tls   of bt_tls_create_client()
 *  @param [in] host  a name or an address, without [ ]
 *  @return NULL: no memory */
bt_tls_session_t *bt_tls_begin_client(bt_tls_t *tls, int fd, const char *host);
bt_tls_step_t bt_tls_handshake(bt_tls_session_t *session);
/** Why the last step failed: a phrase, static. */
const char *bt_tls_trouble(const bt_tls_session_t *session);
/** Data of one record; what is none is skipped, a limited amount in one call.
 *  With BT_TLS_WANTS_READ all that is left is in the socket, which tells of it.
 *  @param [out] n_p  0 with BT_TLS_DONE: the peer sends no more */
bt_tls_step_t bt_tls_read(bt_tls_session_t *session, void *data, size_t most,
                          size_t *n_p);
/** After BT_TLS_WANTS_WRITE the next call has the same bytes, or more. */
bt_tls_step_t bt_tls_write(bt_tls_session_t *session, const void *data,
                           size_t bytes, size_t *n_p);
/** Say that no more will be sent. */
bt_tls_step_t bt_tls_shutdown(bt_tls_session_t *session);
/** NULL is allowed. */
void bt_tls_end(bt_tls_session_t *session);

#endif
