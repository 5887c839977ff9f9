/* SPDX-License-Identifier: Apache-2.0 */
#include "common/crypt/key.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(BT_HAVE_MUNGE)
#include <munge.h>
#endif

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status.h"

#define MIN_FILE_BYTES 16u
#define MAX_FILE_BYTES 4096u

/* libsodium wants to choose its fastest code and open its random source once;
 * further calls return at once. */
static void start(void)
{
    BT_ASSERT_ALWAYS(sodium_init() >= 0);
}

/* True when other users have a permission in @a forbidden (S_IRWXG …). */
static bt_status_t check_file(int fd, mode_t forbidden,
                              char why[BT_KEY_WHY_BYTES])
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        snprintf(why, BT_KEY_WHY_BYTES, "%m");
        return BT_ERR_IO;
    }
    if (!S_ISREG(st.st_mode)) {
        snprintf(why, BT_KEY_WHY_BYTES, "it is not a file");
        return BT_ERR_IO;
    }
    if ((st.st_mode & forbidden) != 0) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "its mode is %04o, which lets others at it: chmod 600",
                 (unsigned)(st.st_mode & 07777u));
        return BT_ERR_UNAUTHORIZED;
    }
    if ((st.st_uid != geteuid()) && (st.st_uid != 0)) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "it belongs to user %u, and this is user %u",
                 (unsigned)st.st_uid, (unsigned)geteuid());
        return BT_ERR_UNAUTHORIZED;
    }
    return BT_OK;
}

bt_status_t bt_key_check_file(int fd, char why[BT_KEY_WHY_BYTES])
{
    return check_file(fd, S_IRWXG | S_IRWXO, why);
}

#define PREFIX "MUNGE:"

/* A credential is text created by munged, and munged of another machine
 * decodes it for the users for whom it was created: a secret that only one
 * user's processes can read. Source: munge(3), munge_ctx(3), of MUNGE 0.5. */
static bool is_credential(const void *text, size_t bytes)
{
    return (bytes >= sizeof(PREFIX) - 1) &&
           (memcmp(text, PREFIX, sizeof(PREFIX) - 1) == 0);
}

#if defined(BT_HAVE_MUNGE)
/* Errors after which munged has still decoded the credential. */
static bool is_opened(munge_err_t err)
{
    return (err == EMUNGE_SUCCESS) || (err == EMUNGE_CRED_EXPIRED) ||
           (err == EMUNGE_CRED_REWOUND) || (err == EMUNGE_CRED_REPLAYED);
}

static bt_status_t refused(munge_ctx_t ctx, munge_err_t err,
                           char why[BT_KEY_WHY_BYTES])
{
    const char *text = munge_ctx_strerror(ctx);

    snprintf(why, BT_KEY_WHY_BYTES, "munged: %s",
             (text != NULL) ? text : munge_strerror(err));
    switch (err) {
    case EMUNGE_SOCKET:
    case EMUNGE_TIMEOUT:
    case EMUNGE_NO_MEMORY:
    case EMUNGE_SNAFU:
        return BT_ERR_IO;
    case EMUNGE_CRED_UNAUTHORIZED:
        return BT_ERR_UNAUTHORIZED;
    default:
        return BT_ERR_BAD_FILE;
    }
}

/* Any other creator would know the cluster's key, and so would any other
 * user who may decode it. */
static bt_status_t is_ours(munge_ctx_t ctx, uid_t from,
                           char why[BT_KEY_WHY_BYTES])
{
    uid_t only = (uid_t)MUNGE_UID_ANY;

    if (from != geteuid()) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "user %u made this credential, and this is user %u",
                 (unsigned)from, (unsigned)geteuid());
        return BT_ERR_UNAUTHORIZED;
    }
    if ((munge_ctx_get(ctx, MUNGE_OPT_UID_RESTRICTION, &only) !=
         EMUNGE_SUCCESS) ||
        (only != geteuid())) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "this credential is not for user %u alone: make it with munge "
                 "--restrict-uid=%u",
                 (unsigned)geteuid(), (unsigned)geteuid());
        return BT_ERR_UNAUTHORIZED;
    }
    return BT_OK;
}

/* Decodes a credential that this user created for this user only. Its age and
 * earlier decodings do not matter: it is read whenever a process starts, not a
 * one-time ticket.
 * @param [in]  socket  munged's; NULL or "": libmunge's default
 * @param [out] data    its payload, @a cap bytes at most
 * @param [out] why     the cause of a failure; nothing of the payload */
static bt_status_t open_credential(const char *credential, const char *socket,
                                   void *data, size_t cap, size_t *bytes_p,
                                   char why[BT_KEY_WHY_BYTES])
{
    munge_ctx_t ctx = munge_ctx_create();
    uid_t from = (uid_t)MUNGE_UID_ANY;
    gid_t gid;
    void *payload = NULL;
    int n = 0;
    munge_err_t err = EMUNGE_SUCCESS;
    bt_status_t status;

    if (ctx == NULL) {
        snprintf(why, BT_KEY_WHY_BYTES, "no memory");
        return BT_ERR_NO_MEMORY;
    }
    if ((socket != NULL) && (socket[0] != '\0')) {
        err = munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
    }
    if (err == EMUNGE_SUCCESS) {
        err = munge_decode(credential, ctx, &payload, &n, &from, &gid);
    }
    status = is_opened(err) ? is_ours(ctx, from, why) : refused(ctx, err, why);
    if ((status == BT_OK) && ((n < 0) || ((size_t)n > cap))) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 "%d bytes are in the credential, and at most %zu are taken", n,
                 cap);
        status = BT_ERR_BAD_FILE;
    }
    if (status == BT_OK) {
        if (n > 0) {
            memcpy(data, payload, (size_t)n);
        }
        *bytes_p = (size_t)n;
    }
    if (payload != NULL) {
        explicit_bzero(payload, (n > 0) ? (size_t)n : 0);
        free(payload);
    }
    munge_ctx_destroy(ctx);
    return status;
}
#else
static bt_status_t open_credential(const char *credential, const char *socket,
                                   void *data, size_t cap, size_t *bytes_p,
                                   char why[BT_KEY_WHY_BYTES])
{
    (void)credential;
    (void)socket;
    (void)data;
    (void)cap;
    (void)bytes_p;
    snprintf(why, BT_KEY_WHY_BYTES,
             "it is a MUNGE credential, and this build has no libmunge");
    return BT_ERR_UNSUPPORTED;
}
#endif

/* Reads the content of the file, or of the credential in it. */
static bt_status_t read_secret(int fd, const char *munge_socket,
                               uint8_t data[MAX_FILE_BYTES + 1], size_t *n_p,
                               char why[BT_KEY_WHY_BYTES])
{
    size_t n = 0;
    bt_status_t status = check_file(fd, S_IWGRP | S_IWOTH, why);

    if (status != BT_OK) {
        return status;
    }
    status = bt_read_file(fd, data, MAX_FILE_BYTES, &n);
    if (status != BT_OK) {
        snprintf(why, BT_KEY_WHY_BYTES, "%m");
        return status;
    }
    if ((n > MAX_FILE_BYTES) || !is_credential(data, n)) {
        *n_p = n;
        return bt_key_check_file(fd, why);
    }
    data[n] = '\0';
    return open_credential((const char *)data, munge_socket, data,
                           MAX_FILE_BYTES, n_p, why);
}

bt_status_t bt_key_read(const char *path, const char *munge_socket,
                        uint8_t key[BT_KEY_BYTES], char why[BT_KEY_WHY_BYTES])
{
    BT_CLEANUP(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    uint8_t data[MAX_FILE_BYTES + 1];
    bt_status_t status;
    size_t n = 0;

    if (fd < 0) {
        const int err = errno;

        snprintf(why, BT_KEY_WHY_BYTES, "%m");
        return (err == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    status = read_secret(fd, munge_socket, data, &n, why);
    if (status != BT_OK) {
        goto out;
    }
    /* `echo KEY > file` and `printf KEY > file` are the same key */
    while ((n > 0) && ((data[n - 1] == '\n') || (data[n - 1] == '\r'))) {
        n--;
    }
    if ((n < MIN_FILE_BYTES) || (n > MAX_FILE_BYTES)) {
        snprintf(why, BT_KEY_WHY_BYTES,
                 (n < MIN_FILE_BYTES)
                     ? "it has %zu bytes, and at least %u are needed"
                     : "it has %zu bytes or more, and at most %u are taken",
                 n, (n < MIN_FILE_BYTES) ? MIN_FILE_BYTES : MAX_FILE_BYTES);
        status = BT_ERR_BAD_FILE;
        goto out;
    }
    start();
    (void)crypto_generichash(key, BT_KEY_BYTES, data, n, NULL, 0);

out:
    sodium_memzero(data, sizeof(data));
    return status;
}

bt_status_t bt_key_load(const char *path, const char *munge_socket,
                        uint8_t key[BT_KEY_BYTES])
{
    char why[BT_KEY_WHY_BYTES];
    bt_status_t status;

    if (path[0] == '\0') {
        return BT_OK;
    }
    status = bt_key_read(path, munge_socket, key, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("cluster key %s: %s", path, why);
    }
    return status;
}

bt_status_t bt_key_check(const char *path, const char *munge_socket)
{
    uint8_t key[BT_KEY_BYTES];
    const bt_status_t status = bt_key_load(path, munge_socket, key);

    sodium_memzero(key, sizeof(key));
    return status;
}

void bt_key_proof(const uint8_t *key, size_t key_bytes, const void *data,
                  size_t bytes, uint8_t proof[BT_PROOF_BYTES])
{
    uint8_t hashed[BT_KEY_BYTES];

    start();
    if ((key_bytes < crypto_generichash_KEYBYTES_MIN) ||
        (key_bytes > crypto_generichash_KEYBYTES_MAX)) {
        (void)crypto_generichash(hashed, sizeof(hashed), key, key_bytes, NULL,
                                 0);
        key = hashed;
        key_bytes = sizeof(hashed);
    }
    BT_ASSERT_ALWAYS(crypto_generichash(proof, BT_PROOF_BYTES, data, bytes, key,
                                        key_bytes) == 0);
    sodium_memzero(hashed, sizeof(hashed));
}

static void hash_keyed(const uint8_t key[BT_KEY_BYTES], const char *domain,
                       const bt_key_part_t *parts, size_t n_parts, uint8_t *out,
                       size_t out_bytes)
{
    uint8_t text[BT_DOMAIN_BYTES] = {0};
    crypto_generichash_state state;

    start();
    BT_ASSERT_ALWAYS(
        crypto_generichash_init(&state, key, BT_KEY_BYTES, out_bytes) == 0);
    if (domain != NULL) {
        BT_ASSERT_ALWAYS(strlen(domain) <= sizeof(text));
        memcpy(text, domain, strlen(domain));
        (void)crypto_generichash_update(&state, text, sizeof(text));
    }
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].bytes > 0) {
            (void)crypto_generichash_update(&state, parts[i].data,
                                            parts[i].bytes);
        }
    }
    (void)crypto_generichash_final(&state, out, out_bytes);
    sodium_memzero(&state, sizeof(state));
}

void bt_key_derive(const uint8_t key[BT_KEY_BYTES], const char *domain,
                   const bt_key_part_t *parts, size_t n_parts,
                   uint8_t out[BT_KEY_BYTES])
{
    hash_keyed(key, domain, parts, n_parts, out, BT_KEY_BYTES);
}

void bt_key_tag(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *parts,
                size_t n_parts, uint8_t tag[BT_TAG_BYTES])
{
    hash_keyed(key, NULL, parts, n_parts, tag, BT_TAG_BYTES);
}

void bt_key_hash(bt_key_hash_kind_t kind, const void *data, size_t bytes,
                 uint8_t hash[BT_KEY_BYTES])
{
    _Static_assert(BT_KEY_BYTES == crypto_hash_sha256_BYTES, "of one length");
    start();
    if (kind == BT_KEY_HASH_SHA256) {
        (void)crypto_hash_sha256(hash, data, bytes);
    } else {
        (void)crypto_generichash(hash, BT_KEY_BYTES, data, bytes, NULL, 0);
    }
}

int bt_key_equal(const void *a, const void *b, size_t bytes)
{
    return sodium_memcmp(a, b, bytes) == 0;
}

void bt_key_random_hex(size_t bytes, char *text)
{
    static const char digits[] = "0123456789abcdef";

    bt_key_random(text + bytes, bytes);
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)text[bytes + i];

        text[2 * i] = digits[byte >> 4]; /* never beyond byte i */
        text[2 * i + 1] = digits[byte & 15];
    }
    text[2 * bytes] = '\0';
}

void bt_key_random(void *data, size_t bytes)
{
    start();
    randombytes_buf(data, bytes);
}

void bt_key_wipe(void *data, size_t bytes)
{
    sodium_memzero(data, bytes);
}

/* ---- data that is kept ---- */

_Static_assert(BT_KEY_BYTES == crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
               "a key is the cipher's");
_Static_assert(BT_SEAL_NONCE_BYTES ==
                   crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
               "a nonce is the cipher's");
_Static_assert(BT_SEAL_TAG_BYTES == crypto_aead_xchacha20poly1305_ietf_ABYTES,
               "a tag is the cipher's");

void bt_key_seal(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *bound,
                 void *data, size_t bytes, uint8_t nonce[BT_SEAL_NONCE_BYTES],
                 uint8_t tag[BT_SEAL_TAG_BYTES])
{
    bt_key_random(nonce, BT_SEAL_NONCE_BYTES);
    /* Fails for data beyond 2^64 bytes only. */
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt_detached(
        data, tag, NULL, data, bytes, bound->data, bound->bytes, NULL, nonce,
        key);
}

bt_status_t bt_key_unseal(const uint8_t key[BT_KEY_BYTES],
                          const bt_key_part_t *bound, void *data, size_t bytes,
                          const uint8_t nonce[BT_SEAL_NONCE_BYTES],
                          const uint8_t tag[BT_SEAL_TAG_BYTES])
{
    start();
    return (crypto_aead_xchacha20poly1305_ietf_decrypt_detached(
                data, NULL, data, bytes, tag, bound->data, bound->bytes, nonce,
                key) == 0)
               ? BT_OK
               : BT_ERR_CORRUPT;
}
