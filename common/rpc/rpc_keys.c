/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_keys.h"

#include <string.h>

#include "common/base/assert.h"

static void under(const uint8_t *key, size_t key_bytes, const char *text,
                  uint8_t out[BT_KEY_BYTES])
{
    char domain[BT_DOMAIN_BYTES] = "";

    memcpy(domain, text, strnlen(text, sizeof(domain)));
    bt_key_proof(key, key_bytes, domain, sizeof(domain), out);
}

void bt_rpc_keys_make(const uint8_t *key, size_t key_bytes, rpc_keys_t *keys)
{
    uint8_t id[BT_KEY_BYTES];

    under(key, key_bytes, "baton 3 key id", id);
    memcpy(keys->id, id, sizeof(keys->id));
    under(key, key_bytes, "baton 3 announc", keys->announce);
    under(key, key_bytes, "baton 3 open", keys->open);
    under(key, key_bytes, "baton 3 session", keys->session);
    under(key, key_bytes, "baton rpc key 1", keys->old);
}

void bt_rpc_session_make(const rpc_keys_t *keys, const void *announce,
                         size_t announce_bytes, const void *open,
                         size_t open_bytes, rpc_session_t *session)
{
    const bt_key_part_t opening[] = {{announce, announce_bytes},
                                     {open, open_bytes}};
    uint8_t s[BT_KEY_BYTES];

    bt_key_derive(keys->session, NULL, opening, BT_ARRAY_LEN(opening), s);
    bt_key_derive(s, "baton 3 r to w", NULL, 0, session->to_worker);
    bt_key_derive(s, "baton 3 w to r", NULL, 0, session->to_router);
    bt_key_wipe(s, sizeof(s));
}
