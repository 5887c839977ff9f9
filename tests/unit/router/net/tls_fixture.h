/* SPDX-License-Identifier: Apache-2.0 */
/** @file tls_fixture.h
 *
 * Certificates made on the spot, and clients that speak TLS to the server of
 * http_fixture.h. OpenSSL's memory is counted, the server's and the clients'
 * apart, and can be made to fail.
 */
#ifndef BT_TESTS_UNIT_ROUTER_TLS_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_TLS_FIXTURE_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include "tests/unit/router/http/http_fixture.h"
#include "tests/unit/router/identity.h"

/* ---- OpenSSL's memory ---- */

enum { SERVER, CLIENT };
typedef union block {
    struct {
        size_t bytes;
        int owner;
    } of;
    max_align_t align;
} block_t;

static size_t ssl_bytes[2];
static int ssl_owner = SERVER;
static long ssl_fail_in; /* of the server's; 0: none fails */

static void *ssl_malloc(size_t bytes, const char *file, int line)
{
    block_t *block;

    (void)file;
    (void)line;
    if ((ssl_owner == SERVER) && (ssl_fail_in > 0) && (--ssl_fail_in == 0)) {
        return NULL;
    }
    block = malloc(sizeof(*block) + bytes);
    if (block == NULL) {
        return NULL;
    }
    block->of.bytes = bytes;
    block->of.owner = ssl_owner;
    ssl_bytes[ssl_owner] += bytes;
    return block + 1;
}

static void ssl_free(void *at, const char *file, int line)
{
    (void)file;
    (void)line;
    if (at != NULL) {
        block_t *block = (block_t *)at - 1;

        ssl_bytes[block->of.owner] -= block->of.bytes;
        free(block);
    }
}

static void *ssl_realloc(void *at, size_t bytes, const char *file, int line)
{
    void *next = ssl_malloc(bytes, file, line);

    if ((next != NULL) && (at != NULL)) {
        const size_t had = ((block_t *)at - 1)->of.bytes;

        memcpy(next, at, (had < bytes) ? had : bytes);
        ssl_free(at, file, line);
    }
    return next;
}

/* Before anything of OpenSSL is called. */
static inline void tls_begin_tests(void)
{
    assert_int_equal(
        CRYPTO_set_mem_functions(ssl_malloc, ssl_realloc, ssl_free), 1);
    signal(SIGPIPE, SIG_IGN); /* as the router does */
}

/* ---- files of them ---- */

static char tls_dir[64] = "";
static char cert_path[128], key_path[128], ca_path[128];
static const bt_tls_files_t tls_files = {.cert = cert_path, .key = key_path};
static const bt_tls_files_t tls_files_with_ca = {
    .cert = cert_path, .key = key_path, .client_ca = ca_path};

static inline void write_pair(const identity_t *id)
{
    write_cert(cert_path, id);
    write_key(key_path, id, NULL);
}

static inline void make_tls_dir(void)
{
    snprintf(tls_dir, sizeof(tls_dir), "/tmp/baton-tls-XXXXXX");
    assert_non_null(mkdtemp(tls_dir));
    snprintf(cert_path, sizeof(cert_path), "%s/cert", tls_dir);
    snprintf(key_path, sizeof(key_path), "%s/key", tls_dir);
    snprintf(ca_path, sizeof(ca_path), "%s/ca", tls_dir);
}

static inline void remove_tls_dir(void)
{
    (void)unlink(cert_path);
    (void)unlink(key_path);
    (void)unlink(ca_path);
    assert_int_equal(rmdir(tls_dir), 0);
}

/* ---- clients ---- */

typedef struct tls_client {
    client_t c; /* its socket, and what came decrypted */
    SSL_CTX *ctx;
    SSL *ssl;
    bool shaken;
    bool ended; /* the server said that it sends no more */
} tls_client_t;

static inline SSL_CTX *client_ctx(void)
{
    SSL_CTX *ctx;

    ssl_owner = CLIENT;
    ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(ctx);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    ssl_owner = SERVER;
    return ctx;
}

/* On a connection of its own; CTX becomes its own. */
static inline void tls_connect(fixture_t *f, tls_client_t *t, SSL_CTX *ctx)
{
    memset(t, 0, sizeof(*t));
    client_open(f, &t->c);
    assert_int_equal(fcntl(t->c.fd, F_SETFL, O_NONBLOCK), 0);
    ssl_owner = CLIENT;
    t->ctx = ctx;
    t->ssl = SSL_new(ctx);
    assert_non_null(t->ssl);
    assert_int_equal(SSL_set_fd(t->ssl, t->c.fd), 1);
    SSL_set_connect_state(t->ssl);
    ssl_owner = SERVER;
}

static inline void note_result(tls_client_t *t, int rc)
{
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_NONE:
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        break;
    case SSL_ERROR_ZERO_RETURN:
        t->ended = true;
        t->c.eof = true;
        break;
    default:
        t->c.eof = true;
        break;
    }
}

/* Shake hands, then read what there is. */
static inline void tls_step(tls_client_t *t)
{
    char data[16384];
    size_t n;
    int rc = 1;

    ssl_owner = CLIENT;
    ERR_clear_error();
    if (!t->shaken && !t->c.eof) {
        rc = SSL_do_handshake(t->ssl);
        t->shaken = (rc == 1);
        note_result(t, rc);
    }
    while (t->shaken && !t->c.eof) {
        ERR_clear_error();
        rc = SSL_read_ex(t->ssl, data, sizeof(data), &n);
        if (rc != 1) {
            note_result(t, rc);
            break;
        }
        bt_strbuf_append(&t->c.got, data, n);
    }
    ssl_owner = SERVER;
}

static inline bool tls_shaken(tls_client_t *t)
{
    tls_step(t);
    return t->shaken;
}

static inline bool tls_eof(tls_client_t *t)
{
    tls_step(t);
    return t->c.eof;
}

static inline bool tls_has(tls_client_t *t, const char *text)
{
    tls_step(t);
    return (t->c.got.data != NULL) && (strstr(t->c.got.data, text) != NULL);
}

static inline void tls_open(fixture_t *f, tls_client_t *t)
{
    tls_connect(f, t, client_ctx());
    WAIT_FOR(f, tls_shaken(t));
}

static inline void tls_send(fixture_t *f, tls_client_t *t, const void *data,
                            size_t bytes)
{
    const uint64_t until_ms = bt_now_ms() + PATIENCE_MS;
    const char *at = data;

    while (bytes > 0) {
        size_t n = 0;
        int rc;

        assert_true(bt_now_ms() < until_ms);
        ssl_owner = CLIENT;
        ERR_clear_error();
        rc = SSL_write_ex(t->ssl, at, bytes, &n);
        if (rc == 1) {
            at += n;
            bytes -= n;
        } else {
            note_result(t, rc);
            assert_false(t->c.eof);
        }
        ssl_owner = SERVER;
        if (rc != 1) {
            event_base_loop(f->base, EVLOOP_NONBLOCK);
        }
    }
}

static inline void tls_puts(fixture_t *f, tls_client_t *t, const char *text)
{
    tls_send(f, t, text, strlen(text));
}

static inline void tls_forget(tls_client_t *t)
{
    ssl_owner = CLIENT;
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    ssl_owner = SERVER;
}

/* Without a word, as a process that ends. */
static inline void tls_close(tls_client_t *t)
{
    tls_forget(t);
    client_close(&t->c);
}

/* What it has got so far is forgotten. */
static inline void tls_next(tls_client_t *t)
{
    bt_strbuf_reset(&t->c.got);
}

/* ---- servers ---- */

static inline bt_tls_t *tls_make(const bt_tls_files_t *files)
{
    char why[BT_TLS_WHY_BYTES] = "";
    bt_tls_t *tls = NULL;

    if (bt_tls_create(files, &tls, why) != BT_OK) {
        fail_msg("%s", why);
    }
    return tls;
}

static inline void tls_start(fixture_t *f, bt_tls_t *tls,
                             const bt_http_config_t *config)
{
    bt_http_config_t with = *config;

    with.tls = tls;
    start(f, &with);
}

/* In a folder of its own, until remove_tls_dir(). */
static inline bt_tls_t *tls_make_with_dir(void)
{
    identity_t id;

    make_tls_dir();
    id = identity_make("unit", NULL, false, 2);
    write_pair(&id);
    identity_free(&id);
    return tls_make(&tls_files);
}

/* ---- requests ---- */

static inline void expect_echo(fixture_t *f, tls_client_t *t)
{
    tls_next(t);
    tls_puts(f, t, POST_5 "hello");
    WAIT_FOR(f, tls_has(t, NL NL "hello"));
}

#endif
