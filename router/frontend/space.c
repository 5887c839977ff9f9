/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/space.h"

#include <string.h>

#include "common/crypt/key.h"

_Static_assert(BT_SPACE_KEY_BYTES == BT_PROOF_BYTES, "a key is a proof");

void bt_space_key(const uint8_t *cluster_key, size_t key_bytes,
                  uint8_t key[BT_SPACE_KEY_BYTES])
{
    static const char purpose[] = "baton kv spaces 1";

    bt_key_proof(cluster_key, key_bytes, purpose, sizeof(purpose), key);
}

bt_hash128_t bt_space_of_salt(const uint8_t key[BT_SPACE_KEY_BYTES],
                              const char *salt)
{
    uint8_t proof[BT_PROOF_BYTES];
    bt_hash128_t space;

    bt_key_proof(key, BT_SPACE_KEY_BYTES, salt, strlen(salt), proof);
    memcpy(&space.lo, proof, sizeof(space.lo));
    memcpy(&space.hi, proof + sizeof(space.lo), sizeof(space.hi));
    if ((space.lo == 0) && (space.hi == 0)) {
        space.lo = 1;
    }
    return space;
}
