/* SPDX-License-Identifier: Apache-2.0 */
/** @file identity.h
 *
 * Certificates and keys, made on the spot.
 */
#ifndef BT_TESTS_UNIT_ROUTER_IDENTITY_H
#define BT_TESTS_UNIT_ROUTER_IDENTITY_H

#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct identity {
    X509 *cert;
    EVP_PKEY *key;
} identity_t;

static inline void add_extension(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

    assert_non_null(extension);
    assert_int_equal(X509_add_ext(cert, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* Signed by ISSUER, or by itself (NULL); over DAYS from yesterday on. */
static inline identity_t
identity_make(const char *name, const identity_t *issuer, bool rsa, int days)
{
    static long serial = 1;
    identity_t id = {.cert = X509_new(),
                     .key = rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256")};
    X509_NAME *subject;

    assert_non_null(id.cert);
    assert_non_null(id.key);
    subject = X509_get_subject_name(id.cert);
    assert_int_equal(X509_set_version(id.cert, 2), 1);
    assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(id.cert), serial++),
                     1);
    assert_non_null(X509_gmtime_adj(X509_getm_notBefore(id.cert), -86400));
    assert_non_null(
        X509_gmtime_adj(X509_getm_notAfter(id.cert), 86400L * (days - 1)));
    assert_int_equal(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                                (const unsigned char *)name, -1,
                                                -1, 0),
                     1);
    assert_int_equal(X509_set_issuer_name(
                         id.cert, (issuer == NULL)
                                      ? subject
                                      : X509_get_subject_name(issuer->cert)),
                     1);
    assert_int_equal(X509_set_pubkey(id.cert, id.key), 1);
    add_extension(id.cert, NID_basic_constraints,
                  (issuer == NULL) ? "critical,CA:TRUE" : "CA:FALSE");
    assert_true(X509_sign(id.cert, (issuer == NULL) ? id.key : issuer->key,
                          EVP_sha256()) > 0);
    return id;
}

static inline void identity_free(identity_t *id)
{
    X509_free(id->cert);
    EVP_PKEY_free(id->key);
}

static inline FILE *open_new(const char *path, mode_t mode)
{
    FILE *file;
    int fd;

    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, mode), 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    return file;
}

static inline void write_cert(const char *path, const identity_t *id)
{
    FILE *file = open_new(path, 0644);

    assert_int_equal(PEM_write_X509(file, id->cert), 1);
    fclose(file);
}

static inline void write_key(const char *path, const identity_t *id,
                             const char *passphrase)
{
    FILE *file = open_new(path, 0600);

    assert_int_equal(
        PEM_write_PrivateKey(
            file, id->key, (passphrase == NULL) ? NULL : EVP_aes_128_cbc(),
            (const unsigned char *)passphrase,
            (passphrase == NULL) ? 0 : (int)strlen(passphrase), NULL, NULL),
        1);
    fclose(file);
}

#endif
