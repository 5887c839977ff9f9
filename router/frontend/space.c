/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/space.h"

#include <string.h>

#include "common/base/status.h"
#include "common/crypt/key.h"

_Static_assert(BT_SPACE_KEY_BYTES == BT_PROOF_BYTES, "a key is a proof");

void bt_space_key(const uint8_t *cluster_key, size_t key_bytes,
                  uint8_t key[BT_SPACE_KEY_BYTES])
{
    static const char purpose[] = "baton kv spaces 1";

    bt_key_proof(cluster_key, key_bytes, purpose, sizeof(purpose), key);
}

static bt_hash128_t space_of(const uint8_t *bytes)
{
    bt_hash128_t space;

    memcpy(&space.lo, bytes, sizeof(space.lo));
    memcpy(&space.hi, bytes + sizeof(space.lo), sizeof(space.hi));
    if ((space.lo == 0) && (space.hi == 0)) {
        space.lo = 1;
    }
    return space;
}

bt_hash128_t bt_space_of_tenant(const uint8_t key[BT_SPACE_KEY_BYTES],
                                const char *tenant, const char *salt)
{
    /* Zero bytes separate name and salt, which contain none; the domain
     * separates this hash from that of a salt alone. */
    const bt_key_part_t parts[] = {
        {.data = tenant, .bytes = strlen(tenant) + 1},
        {.data = (salt != NULL) ? salt : "",
         .bytes = (salt != NULL) ? strlen(salt) + 1 : 0},
    };
    uint8_t out[BT_KEY_BYTES];

    _Static_assert(BT_SPACE_KEY_BYTES == BT_KEY_BYTES, "it is a key");
    bt_key_derive(key, "baton kv tenant", parts, BT_ARRAY_LEN(parts), out);
    return space_of(out);
}

bt_hash128_t bt_space_of_salt(const uint8_t key[BT_SPACE_KEY_BYTES],
                              const char *salt)
{
    uint8_t proof[BT_PROOF_BYTES];

    bt_key_proof(key, BT_SPACE_KEY_BYTES, salt, strlen(salt), proof);
    return space_of(proof);
}

bt_hash128_t bt_space_of_table(const uint8_t key[BT_SPACE_KEY_BYTES],
                               bt_hash128_t space, const bt_table_rows_t *rows,
                               const uint64_t *extra_ids, uint32_t n_extra)
{
    /* The rows' sizes end what has a length of its own. */
    const uint64_t sizes[] = {space.lo, space.hi,    rows->type,
                              rows->n,  rows->bytes, n_extra};
    const bt_key_part_t parts[] = {
        {.data = sizes, .bytes = sizeof(sizes)},
        {.data = extra_ids, .bytes = n_extra * sizeof(*extra_ids)},
        {.data = rows->data, .bytes = rows->bytes},
    };
    uint8_t out[BT_KEY_BYTES];

    bt_key_derive(key, "baton kv table", parts, BT_ARRAY_LEN(parts), out);
    return space_of(out);
}

bt_hash128_t bt_space_of_adapter(const uint8_t key[BT_SPACE_KEY_BYTES],
                                 bt_hash128_t space, bt_hash128_t adapter)
{
    const uint64_t words[] = {space.lo, space.hi, adapter.lo, adapter.hi};
    const bt_key_part_t part = {.data = words, .bytes = sizeof(words)};
    uint8_t out[BT_KEY_BYTES];

    bt_key_derive(key, "baton kv adapter", &part, 1, out);
    return space_of(out);
}
