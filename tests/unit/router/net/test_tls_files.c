/* SPDX-License-Identifier: Apache-2.0 */
/* Whom the server says it is, and whom it lets in. */
#include "tests/unit/router/net/tls_fixture.h"

static identity_t ca, alice, mallory;

/* Common name of the certificate that the server showed. */
static const char *shown_to(const tls_client_t *t)
{
    static char name[64];

    ssl_owner = CLIENT;
    assert_true(X509_NAME_get_text_by_NID(
                    X509_get_subject_name(SSL_get0_peer_certificate(t->ssl)),
                    NID_commonName, name, sizeof(name)) > 0);
    ssl_owner = SERVER;
    return name;
}

static bt_status_t refusal(const bt_tls_files_t *files,
                           char why[BT_TLS_WHY_BYTES])
{
    bt_tls_t *tls = NULL;
    const bt_status_t status = bt_tls_create(files, &tls, why);

    assert_null(tls);
    return status;
}

static void refused_files_are_named_with_the_cause(void **state)
{
    const bt_tls_files_t with_ca = tls_files_with_ca;
    char why[BT_TLS_WHY_BYTES] = "";
    FILE *file;

    (void)state;
    write_pair(&alice);
    assert_int_equal(unlink(cert_path), 0);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_NOT_FOUND);
    assert_non_null(strstr(why, "certificate /tmp/baton-tls-"));
    assert_non_null(strstr(why, "/cert: No such file or directory"));

    file = open_new(cert_path, 0644);
    assert_true(fputs("no certificate\n", file) > 0);
    fclose(file);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "/cert: "));

    write_cert(cert_path, &alice);
    assert_int_equal(chmod(key_path, 0640), 0);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_UNAUTHORIZED);
    assert_non_null(strstr(why, "/key: its mode is 0640"));
    assert_int_equal(unlink(key_path), 0);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_NOT_FOUND);
    assert_non_null(strstr(why, "/key: No such file"));
    write_key(key_path, &mallory, NULL);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_MISMATCH);
    assert_non_null(strstr(why, "/key: key values mismatch"));
    write_key(key_path, &alice, "secret");
    assert_int_equal(refusal(&tls_files, why), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "it has a passphrase"));
    file = open_new(key_path, 0600);
    for (int i = 0; i < 70000; i++) {
        assert_int_equal(fputc('k', file), 'k');
    }
    fclose(file);
    assert_int_equal(refusal(&tls_files, why), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "it is over 65536 bytes"));

    write_key(key_path, &alice, NULL);
    (void)unlink(ca_path);
    assert_int_equal(refusal(&with_ca, why), BT_ERR_NOT_FOUND);
    assert_non_null(strstr(why, "client CA /tmp/baton-tls-"));
    file = open_new(ca_path, 0644);
    fclose(file);
    assert_int_equal(refusal(&with_ca, why), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "/ca: "));
}

static void loading_survives_every_failed_allocation(void **state)
{
    char why[BT_TLS_WHY_BYTES] = "";
    bt_tls_t *tls = NULL;
    bt_status_t status;
    size_t before;
    long nth = 0;

    (void)state;
    write_pair(&alice);
    write_cert(ca_path, &ca);
    bt_tls_destroy(tls_make(&tls_files_with_ca));
    before = ssl_bytes[SERVER];
    do {
        ssl_fail_in = ++nth;
        status = bt_tls_create(&tls_files_with_ca, &tls, why);
        if (status != BT_OK) {
            ssl_fail_in = 0;
            assert_null(tls);
            assert_true(strlen(why) > 0);
        } else if (ssl_fail_in == 0) { /* it did without */
            bt_tls_destroy(tls);
            tls = NULL;
            status = BT_INPROGRESS;
        }
        assert_true(nth < 20000);
        nth += nth / 50; /* the first ones one by one */
    } while (status != BT_OK);
    ssl_fail_in = 0;
    bt_tls_destroy(tls);
    /* Some 100 failures: OpenSSL keeps the texts of its errors, and that is
     * all. One context that is forgotten is more. */
    assert_in_range(ssl_bytes[SERVER], before, before + 4096);
}

static void certificate_is_summarised_for_the_log(void **state)
{
    identity_t old = identity_make("o\tld\xc3\xa9", NULL, false, 1);
    bt_tls_t *tls;

    (void)state;
    write_pair(&alice);
    tls = tls_make(&tls_files);
    assert_non_null(
        strstr(bt_tls_summary(tls), "certificate of \"alice\" until 2"));
    assert_false(bt_tls_has_expired(tls));
    bt_tls_destroy(tls);

    write_pair(&old); /* it ended a moment ago */
    write_cert(ca_path, &ca);
    tls = tls_make(&tls_files_with_ca);
    assert_non_null(strstr(bt_tls_summary(tls), ", clients need certificates"));
    assert_non_null(strstr(bt_tls_summary(tls), "certificate of \"o?ld"));
    assert_true(bt_tls_has_expired(tls));
    bt_tls_destroy(tls);
    identity_free(&old);
}

static void
reloaded_files_apply_to_new_sessions_and_broken_ones_to_none(void **state)
{
    char why[BT_TLS_WHY_BYTES] = "";
    tls_client_t before;
    tls_client_t after;
    bt_tls_t *tls;
    fixture_t f;

    (void)state;
    write_pair(&alice);
    tls = tls_make(&tls_files);
    tls_start(&f, tls, &normal);
    tls_open(&f, &before);
    assert_string_equal(shown_to(&before), "alice");

    write_cert(cert_path, &mallory); /* half of a new pair */
    assert_int_equal(bt_tls_reload(tls, why), BT_ERR_MISMATCH);
    assert_non_null(strstr(why, "key values mismatch"));
    assert_non_null(strstr(bt_tls_summary(tls), "alice"));
    tls_open(&f, &after);
    assert_string_equal(shown_to(&after), "alice");
    tls_close(&after);

    write_key(key_path, &mallory, NULL);
    assert_int_equal(bt_tls_reload(tls, why), BT_OK);
    assert_non_null(strstr(bt_tls_summary(tls), "mallory"));
    tls_open(&f, &after);
    assert_string_equal(shown_to(&after), "mallory");
    expect_echo(&f, &after);
    expect_echo(&f, &before); /* goes on */
    tls_close(&after);
    tls_close(&before);
    stop(&f);
    bt_tls_destroy(tls);
}

/* @return whether the server served a client that has this certificate. */
static bool is_served(fixture_t *f, const identity_t *who, int version)
{
    SSL_CTX *ctx = client_ctx();
    tls_client_t t;
    bool served;

    ssl_owner = CLIENT;
    SSL_CTX_set_max_proto_version(ctx, version);
    if (who != NULL) {
        assert_int_equal(SSL_CTX_use_certificate(ctx, who->cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(ctx, who->key), 1);
    }
    ssl_owner = SERVER;
    tls_connect(f, &t, ctx);
    WAIT_FOR(f, tls_shaken(&t) || t.c.eof);
    if (!t.c.eof) { /* in 1.3 it learns later that it is refused */
        ssl_owner = CLIENT;
        (void)SSL_write(t.ssl, POST_5 "hello", (int)strlen(POST_5) + 5);
        ssl_owner = SERVER;
        WAIT_FOR(f, tls_has(&t, NL NL "hello") || t.c.eof);
    }
    served = !t.c.eof;
    tls_close(&t);
    WAIT_FOR(f, bt_net_n_connections(bt_http_net(f->http)) == 0);
    return served;
}

static void client_ca_requires_client_certificates(void **state)
{
    const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    identity_t guest = identity_make("guest", &ca, false, 2);
    identity_t late = identity_make("late", &ca, false, 1);
    identity_t forged = identity_make("guest", &mallory, false, 2);
    char why[BT_TLS_WHY_BYTES] = "";
    bt_tls_t *tls;
    fixture_t f;

    (void)state;
    write_pair(&alice);
    write_cert(ca_path, &ca);
    tls = tls_make(&tls_files_with_ca);
    tls_start(&f, tls, &normal);
    for (size_t i = 0; i < BT_ARRAY_LEN(versions); i++) {
        assert_true(is_served(&f, &guest, versions[i]));
        assert_false(is_served(&f, NULL, versions[i]));
        assert_false(is_served(&f, &mallory, versions[i]));
        assert_false(is_served(&f, &forged, versions[i]));
        assert_false(is_served(&f, &late, versions[i]));
    }
    assert_int_equal(f.n_requests, 2);

    write_cert(ca_path, &mallory); /* another one says who is let in */
    assert_int_equal(bt_tls_reload(tls, why), BT_OK);
    assert_false(is_served(&f, &guest, TLS1_3_VERSION));
    assert_true(is_served(&f, &forged, TLS1_3_VERSION));
    stop(&f);
    bt_tls_destroy(tls);
    identity_free(&guest);
    identity_free(&late);
    identity_free(&forged);
}

static void session_is_resumed_by_ticket(void **state)
{
    SSL_SESSION *session;
    tls_client_t t;
    bt_tls_t *tls;
    SSL_CTX *ctx;
    fixture_t f;

    (void)state;
    write_pair(&alice);
    tls = tls_make(&tls_files);
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    expect_echo(&f, &t); /* the ticket came with it */
    assert_false(SSL_session_reused(t.ssl));
    ssl_owner = CLIENT;
    session = SSL_get1_session(t.ssl);
    assert_int_equal(SSL_shutdown(t.ssl), 0); /* else it forgets it */
    ctx = t.ctx;
    assert_int_equal(SSL_CTX_up_ref(ctx), 1);
    ssl_owner = SERVER;
    tls_close(&t);

    tls_connect(&f, &t, ctx);
    assert_int_equal(SSL_set_session(t.ssl, session), 1);
    WAIT_FOR(&f, tls_shaken(&t));
    assert_true(SSL_session_reused(t.ssl));
    expect_echo(&f, &t);
    tls_close(&t);
    SSL_SESSION_free(session);
    stop(&f);
    bt_tls_destroy(tls);
}

/* RFC 7301, 3.2: of several the one that the door speaks, of none of them a
 * fatal alert. */
static void alpn_offers_only_the_ports_protocol(void **state)
{
    static const struct {
        const char *offered;
        bool refused;
        const char *chosen;
    } cases[] = {
        {"\x08http/1.1", false, "http/1.1"},
        {"\x02h2\x08http/1.1", false, "http/1.1"},
        {"\x02h2", true, ""},
        {"\x08http/1.0", true, ""},
        {"\x07http/1.", true, ""},
        {"", false, ""},
    };
    bt_tls_t *tls;
    fixture_t f;

    (void)state;
    write_pair(&alice);
    tls = tls_make(&tls_files);
    tls_start(&f, tls, &normal);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const unsigned char *chosen = NULL;
        SSL_CTX *ctx = client_ctx();
        unsigned n = 0;
        tls_client_t t;

        ssl_owner = CLIENT;
        if (cases[i].offered[0] != '\0') {
            assert_int_equal(SSL_CTX_set_alpn_protos(
                                 ctx, (const unsigned char *)cases[i].offered,
                                 (unsigned)strlen(cases[i].offered)),
                             0);
        }
        ssl_owner = SERVER;
        tls_connect(&f, &t, ctx);
        WAIT_FOR(&f, tls_shaken(&t) || t.c.eof);
        assert_int_equal(t.c.eof, cases[i].refused);
        SSL_get0_alpn_selected(t.ssl, &chosen, &n);
        assert_int_equal(n, strlen(cases[i].chosen));
        if (n > 0) {
            assert_memory_equal(chosen, cases[i].chosen, n);
        }
        tls_close(&t);
    }
    stop(&f);
    bt_tls_destroy(tls);
}

static void old_versions_and_renegotiation_are_refused(void **state)
{
    bt_tls_t *tls;
    SSL_CTX *ctx;
    tls_client_t t;
    fixture_t f;

    (void)state;
    write_pair(&alice);
    tls = tls_make(&tls_files);
    tls_start(&f, tls, &normal);
    assert_false(is_served(&f, NULL, TLS1_1_VERSION));
    assert_true(is_served(&f, NULL, TLS1_2_VERSION));
    assert_true(is_served(&f, NULL, TLS1_3_VERSION));

    ctx = client_ctx();
    ssl_owner = CLIENT;
    SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
    ssl_owner = SERVER;
    tls_connect(&f, &t, ctx);
    WAIT_FOR(&f, tls_shaken(&t));
    expect_echo(&f, &t);
    ssl_owner = CLIENT;
    assert_int_equal(SSL_renegotiate(t.ssl), 1);
    t.shaken = false;
    ssl_owner = SERVER;
    WAIT_FOR(&f, tls_shaken(&t) || t.c.eof);
    assert_false(t.shaken);
    tls_close(&t);
    stop(&f);
    bt_tls_destroy(tls);
}

static int make_identities(void **state)
{
    (void)state;
    make_tls_dir();
    ca = identity_make("ca", NULL, false, 2);
    alice = identity_make("alice", NULL, false, 2);
    mallory = identity_make("mallory", NULL, false, 2);
    return 0;
}

static int drop_identities(void **state)
{
    (void)state;
    identity_free(&ca);
    identity_free(&alice);
    identity_free(&mallory);
    remove_tls_dir();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(refused_files_are_named_with_the_cause),
        BT_TEST(loading_survives_every_failed_allocation),
        BT_TEST(certificate_is_summarised_for_the_log),
        BT_TEST(reloaded_files_apply_to_new_sessions_and_broken_ones_to_none),
        BT_TEST(client_ca_requires_client_certificates),
        BT_TEST(session_is_resumed_by_ticket),
        BT_TEST(alpn_offers_only_the_ports_protocol),
        BT_TEST(old_versions_and_renegotiation_are_refused),
    };

    tls_begin_tests();
    return cmocka_run_group_tests(tests, make_identities, drop_identities);
}
