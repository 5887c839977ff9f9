/* SPDX-License-Identifier: Apache-2.0 */
#include "router/net/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/crypt/key.h"

/* Limit of handshake bytes per step: a hello may have up to 128 KiB, with each
 * byte in a record of its own. */
#define HANDSHAKE_STEP_BYTES ((size_t)16 * 1024)
/* Limit of non-data bytes per read: a whole buffer of OpenSSL, so that no data
 * record takes two reads. */
#define READ_STEP_BYTES   ((size_t)20 * 1024)
#define MAX_KEY_BYTES     ((size_t)64 * 1024)
#define SUMMARY_BYTES     192
#define MAX_CHAIN         8
#define MAX_CHAIN_BYTES   (64L * 1024)
#define TICKETS           1 /* a session of 1.3 gets two by default */
#define SESSIONS_OF_BATON "baton"

struct bt_tls {
    bt_tls_files_t files;
    SSL_CTX *ctx;       /* owned; each session holds it as well */
    BIO_METHOD *socket; /* owned */
    char summary[SUMMARY_BYTES];
};

struct bt_tls_session {
    SSL *ssl;
    int fd;
    size_t may_read; /* bytes that this step may still read */
    bool is_dry;     /* last call got no more from the socket */
    const char *protocol;
    const char *trouble; /* static; NULL: none, or none with a name */
};

/* ---- files ---- */

/* Returns and clears OpenSSL's last error. */
static const char *reason(void)
{
    const unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);

    ERR_clear_error();
    return (text != NULL) ? text : "it cannot be read";
}

/* Refuses a key with a passphrase, which would prompt the user who starts the
 * router. */
static int no_passphrase(char *out, int bytes, int writes, void *ctx)
{
    (void)out;
    (void)bytes;
    (void)writes;
    *(bool *)ctx = true;
    return -1;
}

static bt_status_t parse_key(SSL_CTX *ctx, const char *path, const char *text,
                             size_t n, char why[BT_TLS_WHY_BYTES])
{
    bool is_encrypted = false;
    BIO *bio = BIO_new_mem_buf(text, (int)n);
    EVP_PKEY *key = NULL;
    bt_status_t status = BT_OK;

    if (bio == NULL) {
        snprintf(why, BT_TLS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &is_encrypted);
    if (key == NULL) {
        status = BT_ERR_BAD_FILE;
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: %s", path,
                 is_encrypted ? "it has a passphrase, which nobody is there "
                                "to type"
                              : reason());
    } else if (SSL_CTX_use_PrivateKey(ctx, key) != 1) {
        /* The certificate is there already, so this compares them. */
        status = BT_ERR_MISMATCH;
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: %s", path, reason());
    }
    ERR_clear_error();
    EVP_PKEY_free(key);
    BIO_free(bio);
    return status;
}

static bt_status_t status_of_open(int error_number)
{
    return (error_number == ENOENT)   ? BT_ERR_NOT_FOUND
           : (error_number == EACCES) ? BT_ERR_UNAUTHORIZED
                                      : BT_ERR_IO;
}

static bt_status_t load_key(SSL_CTX *ctx, const char *path,
                            char why[BT_TLS_WHY_BYTES])
{
    BT_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char cause[BT_KEY_WHY_BYTES];
    bt_status_t status;
    char *text = NULL;
    size_t n = 0;

    if (fd < 0) {
        status = status_of_open(errno);
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: %m", path);
        return status;
    }
    status = bt_key_check_file(fd, cause);
    if (status != BT_OK) {
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: %s", path, cause);
        return status;
    }
    text = bt_calloc(1, MAX_KEY_BYTES + 1);
    if (text == NULL) {
        snprintf(why, BT_TLS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_read_file(fd, text, MAX_KEY_BYTES, &n);
    if (status != BT_OK) {
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: %m", path);
    } else if (n > MAX_KEY_BYTES) {
        snprintf(why, BT_TLS_WHY_BYTES, "key %s: it is over %zu bytes", path,
                 MAX_KEY_BYTES);
        status = BT_ERR_BAD_FILE;
    } else {
        status = parse_key(ctx, path, text, n, why);
    }
    OPENSSL_cleanse(text, MAX_KEY_BYTES + 1);
    bt_free(text);
    return status;
}

static bt_status_t check_readable(const char *what, const char *path,
                                  char why[BT_TLS_WHY_BYTES])
{
    if (access(path, R_OK) == 0) {
        return BT_OK;
    }
    const bt_status_t status = status_of_open(errno);

    snprintf(why, BT_TLS_WHY_BYTES, "%s %s: %m", what, path);
    return status;
}

static bt_status_t load_cert(SSL_CTX *ctx, const char *path,
                             char why[BT_TLS_WHY_BYTES])
{
    const bt_status_t status = check_readable("certificate", path, why);

    if (status != BT_OK) {
        return status;
    }
    if (SSL_CTX_use_certificate_chain_file(ctx, path) != 1) {
        snprintf(why, BT_TLS_WHY_BYTES, "certificate %s: %s", path, reason());
        return BT_ERR_BAD_FILE;
    }
    return BT_OK;
}

static bt_status_t load_client_ca(SSL_CTX *ctx, const char *path,
                                  char why[BT_TLS_WHY_BYTES])
{
    const bt_status_t status = check_readable("client CA", path, why);
    STACK_OF(X509_NAME) * names;

    if (status != BT_OK) {
        return status;
    }
    names = SSL_load_client_CA_file(path);
    if ((names == NULL) || (SSL_CTX_load_verify_file(ctx, path) != 1)) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        snprintf(why, BT_TLS_WHY_BYTES, "client CA %s: %s", path, reason());
        return BT_ERR_BAD_FILE;
    }
    SSL_CTX_set_client_CA_list(ctx, names); /* takes them over */
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       NULL);
    return BT_OK;
}

/* ---- the socket below ---- */

/* OpenSSL's own uses read() and write(): they cost more, and raise SIGPIPE. */
static int socket_write(BIO *bio, const char *data, int bytes)
{
    const bt_tls_session_t *session = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    do {
        n = send(session->fd, data, (size_t)bytes, MSG_NOSIGNAL);
    } while ((n < 0) && (errno == EINTR));
    if ((n < 0) && ((errno == EAGAIN) || (errno == EWOULDBLOCK))) {
        BIO_set_retry_write(bio);
    }
    return (int)n;
}

static int socket_read(BIO *bio, char *data, int bytes)
{
    bt_tls_session_t *session = BIO_get_data(bio);
    const size_t most =
        ((size_t)bytes < session->may_read) ? (size_t)bytes : session->may_read;
    ssize_t n;

    BIO_clear_retry_flags(bio);
    if (most == 0) { /* loop finds the rest in its next turn */
        session->is_dry = true;
        BIO_set_retry_read(bio);
        return -1;
    }
    do {
        n = recv(session->fd, data, most, 0);
    } while ((n < 0) && (errno == EINTR));
    session->may_read -= (n > 0) ? (size_t)n : 0;
    if (n == 0) {
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    } else if ((n < 0) && ((errno == EAGAIN) || (errno == EWOULDBLOCK))) {
        session->is_dry = true;
        BIO_set_retry_read(bio);
    }
    return (int)n;
}

static long socket_ctrl(BIO *bio, int what, long number, void *at)
{
    (void)number;
    (void)at;
    switch (what) {
    case BIO_CTRL_FLUSH: /* nothing is buffered */
        return 1;
    case BIO_CTRL_EOF:
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default:
        return 0;
    }
}

static BIO_METHOD *make_socket(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "stream");

    if ((method == NULL) || (BIO_meth_set_write(method, socket_write) != 1) ||
        (BIO_meth_set_read(method, socket_read) != 1) ||
        (BIO_meth_set_ctrl(method, socket_ctrl) != 1)) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

/* ---- settings ---- */

static int choose_protocol(SSL *ssl, const unsigned char **out_p,
                           unsigned char *out_bytes_p, const unsigned char *in,
                           unsigned in_bytes, void *ctx)
{
    const bt_tls_session_t *session = SSL_get_app_data(ssl);
    const size_t wanted = strlen(session->protocol);

    (void)ctx;
    for (unsigned at = 0; at < in_bytes; at += 1u + in[at]) {
        if ((in[at] == wanted) && (in_bytes - at > wanted) &&
            (memcmp(in + at + 1, session->protocol, wanted) == 0)) {
            *out_p = in + at + 1;
            *out_bytes_p = in[at];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *make_ctx(void)
{
    static const unsigned char id[] = SESSIONS_OF_BATON;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (ctx == NULL) {
        return NULL;
    }
    if ((SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) ||
        (SSL_CTX_set_session_id_context(ctx, id, sizeof(id) - 1) != 1)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    /* An end without close_notify counts as a FIN: bodies have explicit
     * lengths. */
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION |
                                       SSL_OP_NO_RENEGOTIATION |
                                       SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS |
                                    SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    /* Otherwise one call would continue as long as a peer sends non-data
     * records. */
    (void)SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    /* Clients keep their sessions as tickets; the server stores none. */
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_cert_list(ctx, MAX_CHAIN_BYTES);
    SSL_CTX_set_verify_depth(ctx, MAX_CHAIN);
    /* A record's head and body with one system call. */
    SSL_CTX_set_read_ahead(ctx, 1);
    (void)SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_num_tickets(ctx, TICKETS);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return ctx;
}

static void summarize(bt_tls_t *tls)
{
    const X509 *cert = SSL_CTX_get0_certificate(tls->ctx);
    char name[96] = "";
    char until[40] = "";
    struct tm tm;

    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName,
                                    name, sizeof(name));
    for (char *at = name; *at != '\0'; at++) {
        if (((unsigned char)*at < ' ') || ((unsigned char)*at > '~')) {
            *at = '?';
        }
    }
    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) == 1) {
        snprintf(until, sizeof(until), "%04d-%02d-%02d %02d:%02d:%02d UTC",
                 tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
                 tm.tm_min, tm.tm_sec);
    }
    snprintf(tls->summary, sizeof(tls->summary),
             "certificate of \"%s\" until %s%s", name, until,
             (tls->files.client_ca[0] != '\0') ? ", clients need certificates"
                                               : "");
    ERR_clear_error();
}

bt_status_t bt_tls_reload(bt_tls_t *tls, char why[BT_TLS_WHY_BYTES])
{
    SSL_CTX *ctx = make_ctx();
    bt_status_t status;

    if (ctx == NULL) {
        ERR_clear_error();
        snprintf(why, BT_TLS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    if (((status = load_cert(ctx, tls->files.cert, why)) != BT_OK) ||
        ((status = load_key(ctx, tls->files.key, why)) != BT_OK) ||
        ((tls->files.client_ca[0] != '\0') &&
         ((status = load_client_ca(ctx, tls->files.client_ca, why)) !=
          BT_OK))) {
        SSL_CTX_free(ctx);
        return status;
    }
    SSL_CTX_free(tls->ctx);
    tls->ctx = ctx;
    summarize(tls);
    return BT_OK;
}

bt_status_t bt_tls_create(const bt_tls_files_t *files, bt_tls_t **tls_p,
                          char why[BT_TLS_WHY_BYTES])
{
    bt_tls_t *tls = bt_calloc(1, sizeof(*tls));
    bt_status_t status;

    if (tls == NULL) {
        snprintf(why, BT_TLS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    tls->files = *files;
    if (tls->files.client_ca == NULL) {
        tls->files.client_ca = "";
    }
    tls->socket = make_socket();
    if (tls->socket == NULL) {
        ERR_clear_error();
        bt_free(tls);
        snprintf(why, BT_TLS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_tls_reload(tls, why);
    if (status != BT_OK) {
        bt_tls_destroy(tls);
        return status;
    }
    *tls_p = tls;
    return BT_OK;
}

void bt_tls_destroy(bt_tls_t *tls)
{
    if (tls != NULL) {
        SSL_CTX_free(tls->ctx);
        BIO_meth_free(tls->socket);
        bt_free(tls);
    }
}

const char *bt_tls_summary(const bt_tls_t *tls)
{
    return tls->summary;
}

bool bt_tls_has_expired(const bt_tls_t *tls)
{
    const X509 *cert = SSL_CTX_get0_certificate(tls->ctx);

    return X509_cmp_current_time(X509_get0_notAfter(cert)) < 0;
}

/* ---- one stream ---- */

static bool put_on_socket(bt_tls_session_t *session, const BIO_METHOD *method)
{
    BIO *bio = BIO_new(method);

    if (bio == NULL) {
        return false;
    }
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    SSL_set_bio(session->ssl, bio, bio); /* takes it over */
    return true;
}

bt_tls_session_t *bt_tls_begin(bt_tls_t *tls, int fd, const char *protocol)
{
    bt_tls_session_t *session = bt_calloc(1, sizeof(*session));

    if (session == NULL) {
        return NULL;
    }
    session->fd = fd;
    session->protocol = protocol;
    session->ssl = SSL_new(tls->ctx);
    if ((session->ssl == NULL) || !put_on_socket(session, tls->socket) ||
        (SSL_set_app_data(session->ssl, session) != 1)) {
        ERR_clear_error();
        bt_tls_end(session);
        return NULL;
    }
    SSL_set_accept_state(session->ssl);
    return session;
}

/* Maps the first error of a call to a step. */
static bt_tls_step_t step_of_error(bt_tls_session_t *session)
{
    const unsigned long error = ERR_peek_error();

    session->trouble = ERR_reason_error_string(error);
    return (ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST) ? BT_TLS_IS_HTTP
                                                         : BT_TLS_FAILED;
}

/* Maps @a rc of a call to a step; errors of other sessions were cleared before
 * the call. */
static bt_tls_step_t step_of(bt_tls_session_t *session, int rc)
{
    bt_tls_step_t step = BT_TLS_FAILED;

    switch (SSL_get_error(session->ssl, rc)) {
    case SSL_ERROR_NONE:
        return BT_TLS_DONE;
    case SSL_ERROR_WANT_READ:
        return BT_TLS_WANTS_READ;
    case SSL_ERROR_WANT_WRITE:
        return BT_TLS_WANTS_WRITE;
    case SSL_ERROR_SSL:
        step = step_of_error(session);
        break;
    default:
        break;
    }
    ERR_clear_error();
    return step;
}

bt_tls_step_t bt_tls_handshake(bt_tls_session_t *session)
{
    ERR_clear_error();
    session->may_read = HANDSHAKE_STEP_BYTES;
    return step_of(session, SSL_do_handshake(session->ssl));
}

const char *bt_tls_trouble(const bt_tls_session_t *session)
{
    return (session->trouble != NULL) ? session->trouble
                                      : "the connection ended";
}

static bt_tls_step_t read_once(bt_tls_session_t *session, void *data,
                               size_t most, size_t *n_p)
{
    int rc;

    ERR_clear_error();
    session->is_dry = false;
    rc = SSL_read_ex(session->ssl, data, most, n_p);
    if ((rc != 1) &&
        (SSL_get_error(session->ssl, rc) == SSL_ERROR_ZERO_RETURN)) {
        *n_p = 0;
        return BT_TLS_DONE;
    }
    return step_of(session, rc);
}

/* After a message of a handshake, such as a KeyUpdate, OpenSSL asks for the
 * socket although it has more: from 3.2 on what it read ahead lies where
 * neither SSL_pending() nor SSL_has_pending() counts it. Each call takes a
 * record at least, so this ends. */
bt_tls_step_t bt_tls_read(bt_tls_session_t *session, void *data, size_t most,
                          size_t *n_p)
{
    bt_tls_step_t step;

    session->may_read = READ_STEP_BYTES;
    do {
        step = read_once(session, data, most, n_p);
    } while ((step == BT_TLS_WANTS_READ) && !session->is_dry);
    return step;
}

bt_tls_step_t bt_tls_write(bt_tls_session_t *session, const void *data,
                           size_t bytes, size_t *n_p)
{
    ERR_clear_error();
    return step_of(session, SSL_write_ex(session->ssl, data, bytes, n_p));
}

bt_tls_step_t bt_tls_shutdown(bt_tls_session_t *session)
{
    int rc;

    if (SSL_in_init(session->ssl)) {
        return BT_TLS_FAILED; /* no session to end yet */
    }
    ERR_clear_error();
    rc = SSL_shutdown(session->ssl);
    return (rc >= 0) ? BT_TLS_DONE : step_of(session, rc);
}

void bt_tls_end(bt_tls_session_t *session)
{
    if (session != NULL) {
        SSL_free(session->ssl);
        bt_free(session);
    }
}
