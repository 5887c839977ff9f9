/* SPDX-License-Identifier: Apache-2.0 */
#include "common/crypt/seal.h"

#include <sodium.h>

_Static_assert(BT_KEY_BYTES == crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
               "a key is the cipher's");
_Static_assert(BT_SEAL_NONCE_BYTES ==
                   crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
               "a nonce is the cipher's");
_Static_assert(BT_SEAL_TAG_BYTES == crypto_aead_xchacha20poly1305_ietf_ABYTES,
               "a tag is the cipher's");

void bt_seal(const uint8_t key[BT_KEY_BYTES], const bt_key_part_t *bound,
             void *data, size_t bytes, uint8_t nonce[BT_SEAL_NONCE_BYTES],
             uint8_t tag[BT_SEAL_TAG_BYTES])
{
    bt_key_random(nonce, BT_SEAL_NONCE_BYTES); /* also prepares the library */
    /* Fails for data beyond 2^64 bytes only. */
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt_detached(
        data, tag, NULL, data, bytes, bound->data, bound->bytes, NULL, nonce,
        key);
}

bt_status_t bt_unseal(const uint8_t key[BT_KEY_BYTES],
                      const bt_key_part_t *bound, void *data, size_t bytes,
                      const uint8_t nonce[BT_SEAL_NONCE_BYTES],
                      const uint8_t tag[BT_SEAL_TAG_BYTES])
{
    BT_ASSERT_ALWAYS(sodium_init() >= 0);
    return (crypto_aead_xchacha20poly1305_ietf_decrypt_detached(
                data, NULL, data, bytes, tag, bound->data, bound->bytes, nonce,
                key) == 0)
               ? BT_OK
               : BT_ERR_CORRUPT;
}
