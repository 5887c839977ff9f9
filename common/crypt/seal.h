/* SPDX-License-Identifier: Apache-2.0 */
/** @file seal.h
 *
 * Authenticated encryption of data that is kept: XChaCha20-Poly1305. A nonce of
 * 24 random bytes is drawn for each piece, so that one key seals any number of
 * pieces, also those of a process that was killed and continues.
 *
 *     plain, bound ──▶ seal ──▶ nonce, sealed, tag ──▶ unseal ──▶ plain
 *
 * Threads: any; nothing here is shared.
 * Source:  RFC 8439 (ChaCha20 and Poly1305), draft-irtf-cfrg-xchacha-03.
 */
#ifndef BT_COMMON_CRYPT_SEAL_H
#define BT_COMMON_CRYPT_SEAL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"

#define BT_SEAL_NONCE_BYTES 24
#define BT_SEAL_TAG_BYTES   16

/** Encrypts @a bytes in place.
 *  @param [in]  bound  data that is not stored with the piece, but must be
 *                      equal where it is unsealed: its name and position
 *  @param [out] nonce  drawn; stored with the piece, as the tag is */
void bt_seal(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *bound,
             void *data, size_t bytes, uint8_t nonce[BT_SEAL_NONCE_BYTES],
             uint8_t tag[BT_SEAL_TAG_BYTES]);
/** Decrypts @a bytes in place.
 *  @retval BT_ERR_CORRUPT  another key, bound data, or altered bytes: the data
 *    is not to be used */
BT_MUST_CHECK bt_status_t bt_unseal(const uint8_t key[BT_KEY_BYTES],
                                    const bt_key_part_t *bound, void *data,
                                    size_t bytes,
                                    const uint8_t nonce[BT_SEAL_NONCE_BYTES],
                                    const uint8_t tag[BT_SEAL_TAG_BYTES]);

#endif
