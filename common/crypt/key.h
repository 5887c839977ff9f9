/* SPDX-License-Identifier: Apache-2.0 */
/** @file key.h
 *
 * Cluster key: reading it, and its use by control links and the KV plane:
 * proofs, derived keys, message tags. All of it is BLAKE2b (RFC 7693), keyed.
 * Also hashes of clients' API keys, and authenticated encryption of data that
 * is kept: XChaCha20-Poly1305 (RFC 8439, draft-irtf-cfrg-xchacha-03). A nonce
 * of 24 random bytes is drawn for each piece, so that one key seals any number
 * of pieces, also those of a process that was killed and continues:
 *
 *     plain, bound ──▶ seal ──▶ nonce, sealed, tag ──▶ unseal ──▶ plain
 *
 * The only includer of sodium.h is key.c.
 *
 * Threads: any; nothing here is shared.
 */
#ifndef BT_COMMON_CRYPT_KEY_H
#define BT_COMMON_CRYPT_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_KEY_BYTES        32
#define BT_PROOF_BYTES      32
#define BT_TAG_BYTES        16
#define BT_KEY_WHY_BYTES    160
#define BT_SEAL_NONCE_BYTES 24
#define BT_SEAL_TAG_BYTES   16
/** Size of a domain: its text, padded with zeros. */
#define BT_DOMAIN_BYTES 16

/** Part of the hashed data; borrowed. */
typedef struct bt_key_part {
    const void *data; /**< NULL with 0 bytes */
    size_t bytes;
} bt_key_part_t;

/**
 * Reads a key file: 16 to 4096 bytes of text or binary without trailing line
 * ends, hashed to BT_KEY_BYTES. Refused when others can read, write or own it.
 * Alternatively a MUNGE credential that contains these bytes, which
 * others may read.
 * @param [in] munge_socket  munged's; NULL or "": its default
 * @param [out] why  after a failure: the cause, a phrase with the mode, the
 *                   owner or the length; never anything of the key
 * @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED (permissions),
 *     BT_ERR_BAD_FILE (too short or too long), BT_ERR_UNSUPPORTED (no MUNGE
 *     here)
 */
BT_MUST_CHECK bt_status_t bt_key_read(const char *path,
                                      const char *munge_socket,
                                      uint8_t key[BT_KEY_BYTES],
                                      char why[BT_KEY_WHY_BYTES]);

/**
 * Reads a key file as bt_key_read() does, at the start of a program: failures
 * are logged.
 * @param [in]  path  "": no key, which is no error
 * @param [out] key   not written if there is none
 */
BT_MUST_CHECK bt_status_t bt_key_load(const char *path,
                                      const char *munge_socket,
                                      uint8_t key[BT_KEY_BYTES]);
/** Checks whether bt_key_load() would succeed. Failures are logged. */
BT_MUST_CHECK bt_status_t bt_key_check(const char *path,
                                       const char *munge_socket);

/**
 * Checks that a file may hold a secret. Refused when others can read, write or
 * own it.
 * @param [out] why  after a failure: the cause, a phrase
 * @retval BT_ERR_IO, BT_ERR_UNAUTHORIZED
 */
BT_MUST_CHECK bt_status_t bt_key_check_file(int fd, char why[BT_KEY_WHY_BYTES]);

/** Computes a proof: keyed hash of @a data (BLAKE2b-256, RFC 7693; a key
 *  outside 16 to 64 bytes is hashed first). Compare with bt_key_equal()
 *  only. */
void bt_key_proof(const uint8_t *key, size_t key_bytes, const void *data,
                  size_t bytes, uint8_t proof[BT_PROOF_BYTES]);
/** Derives a key or a proof: BLAKE2b-256 under @a key of @a domain (its text
 *  padded to BT_DOMAIN_BYTES; NULL = none) and the concatenated parts. @a
 *  out may be @a key. */
void bt_key_derive(const uint8_t key[BT_KEY_BYTES], const char *domain,
                   const bt_key_part_t *parts, size_t n_parts,
                   uint8_t out[BT_KEY_BYTES]);
/** Computes the tag of a message: BLAKE2b-128 under @a key of the parts. The
 *  length is in the hash, so that a tag is no prefix of a key. */
void bt_key_tag(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *parts,
                size_t n_parts, uint8_t tag[BT_TAG_BYTES]);
/** Hash by which a client's API key is stored. */
typedef enum bt_key_hash_kind {
    BT_KEY_HASH_BLAKE2B, /**< BLAKE2b-256 (RFC 7693), as `b2sum -l 256` */
    BT_KEY_HASH_SHA256,  /**< FIPS 180-4, as `sha256sum` */
    BT_KEY_N_HASHES,
} bt_key_hash_kind_t;
/** Computes the plain hash of a random and long key; a short key could be
 *  found from it by brute force. */
void bt_key_hash(bt_key_hash_kind_t kind, const void *data, size_t bytes,
                 uint8_t hash[BT_KEY_BYTES]);
/** Compares in constant time; 1 when equal. */
int bt_key_equal(const void *a, const void *b, size_t bytes);
/** Fills memory with cryptographic randomness. */
void bt_key_random(void *data, size_t bytes);
/** Writes random bytes as lower-case hexadecimal digits, and a zero byte. */
void bt_key_random_hex(size_t bytes, char *text);
/** Overwrites a secret that is no longer needed. */
void bt_key_wipe(void *data, size_t bytes);

/** Encrypts @a bytes in place.
 *  @param [in]  bound  data that is not stored with the piece, but must be
 *                      equal where it is unsealed: its name and position
 *  @param [out] nonce  drawn; stored with the piece, as the tag is */
void bt_key_seal(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *bound,
                 void *data, size_t bytes, uint8_t nonce[BT_SEAL_NONCE_BYTES],
                 uint8_t tag[BT_SEAL_TAG_BYTES]);
/** Decrypts @a bytes in place.
 *  @retval BT_ERR_CORRUPT  another key, bound data, or altered bytes: the data
 *    is not to be used */
BT_MUST_CHECK bt_status_t bt_key_unseal(
    const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *bound, void *data,
    size_t bytes, const uint8_t nonce[BT_SEAL_NONCE_BYTES],
    const uint8_t tag[BT_SEAL_TAG_BYTES]);

#endif
