/* SPDX-License-Identifier: Apache-2.0 */
/** @file key.h  The cluster key: reading it, and what control links and the KV
 *  plane make of it: proofs, keys under it, tags of messages. All of it is
 *  BLAKE2b (RFC 7693), keyed. Besides, hashes of clients' keys. The only
 *  includer of sodium.h is key.c.
 *
 *  Threads: any; nothing here is shared. */
#ifndef BT_COMMON_CRYPT_KEY_H
#define BT_COMMON_CRYPT_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_KEY_BYTES     32
#define BT_PROOF_BYTES   32
#define BT_TAG_BYTES     16
#define BT_KEY_WHY_BYTES 160
/** A domain is its text, filled up with zeros. */
#define BT_DOMAIN_BYTES 16

/** A part of what is hashed; borrowed. */
typedef struct bt_key_part {
    const void *data; /**< NULL with 0 bytes */
    size_t bytes;
} bt_key_part_t;

/** Read a key file: 16 to 4096 bytes of text or binary without the line ends
 *  after them, hashed to BT_KEY_BYTES. Refused when others can read or write it
 *  or own it. Or it is a MUNGE credential with these bytes in it (munge.h),
 *  which others may read.
 *  @param [in] munge_socket  munged's; NULL or "": its own
 *  @param [out] why  after a failure: the cause, a phrase with the mode, the
 *                    owner or the length; never anything of the key
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED (permissions),
 *          BT_ERR_BAD_FILE (too short or too long), BT_ERR_UNSUPPORTED (no
 *          MUNGE here) */
BT_MUST_CHECK bt_status_t bt_key_read(const char *path,
                                      const char *munge_socket,
                                      uint8_t key[BT_KEY_BYTES],
                                      char why[BT_KEY_WHY_BYTES]);

/** The same at a start: what it fails on is logged.
 *  @param [in]  path  "": there is none, which is no error
 *  @param [out] key   not written where there is none */
BT_MUST_CHECK bt_status_t bt_key_load(const char *path,
                                      const char *munge_socket,
                                      uint8_t key[BT_KEY_BYTES]);
/** Would bt_key_load() find one, or none? It is logged why not. */
BT_MUST_CHECK bt_status_t bt_key_check(const char *path,
                                       const char *munge_socket);

/** May what is in this file be a secret? Refused when others can read or write
 *  it or own it. @param [out] why  after a failure: the cause, a phrase
 *  @retval BT_ERR_IO, BT_ERR_UNAUTHORIZED */
BT_MUST_CHECK bt_status_t bt_key_check_file(int fd, char why[BT_KEY_WHY_BYTES]);

/** proof = keyed hash of @a data (BLAKE2b-256, RFC 7693; a key outside 16 to 64
 *  bytes is hashed first). Compare with bt_key_equal() only. */
void bt_key_proof(const uint8_t *key, size_t key_bytes, const void *data,
                  size_t bytes, uint8_t proof[BT_PROOF_BYTES]);
/** out = BLAKE2b-256 under @a key of @a domain (its text filled up to
 *  BT_DOMAIN_BYTES; NULL = none) and the parts, one behind the other. A key
 *  under @a key, or a proof. @a out may be @a key. */
void bt_key_derive(const uint8_t key[BT_KEY_BYTES], const char *domain,
                   const bt_key_part_t *parts, size_t n_parts,
                   uint8_t out[BT_KEY_BYTES]);
/** tag = BLAKE2b-128 under @a key of the parts: of a message. The length is in
 *  the hash, so that a tag is no beginning of a key. */
void bt_key_tag(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *parts,
                size_t n_parts, uint8_t tag[BT_TAG_BYTES]);
/** How what a client's key was made into is written down. */
typedef enum bt_key_hash_kind {
    BT_KEY_HASH_BLAKE2B, /**< BLAKE2b-256 (RFC 7693), as `b2sum -l 256` */
    BT_KEY_HASH_SHA256,  /**< FIPS 180-4, as `sha256sum` */
    BT_KEY_N_HASHES,
} bt_key_hash_kind_t;
/** The plain hash of a key that is random and long: what is short can be found
 *  from it by trying. */
void bt_key_hash(bt_key_hash_kind_t kind, const void *data, size_t bytes,
                 uint8_t hash[BT_KEY_BYTES]);
/** Constant time; 1 when equal. */
int bt_key_equal(const void *a, const void *b, size_t bytes);
/** Cryptographic randomness. */
void bt_key_random(void *data, size_t bytes);
/** Overwrite a secret that is no longer needed. */
void bt_key_wipe(void *data, size_t bytes);

#endif
