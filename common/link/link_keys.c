/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/link_keys.h"

#include <string.h>

#include "common/base/status.h"

static void under(const uint8_t *key, size_t key_bytes, const char *text,
                  uint8_t out[BT_KEY_BYTES])
{
    char domain[BT_DOMAIN_BYTES] = "";

    memcpy(domain, text, strnlen(text, sizeof(domain)));
    bt_key_proof(key, key_bytes, domain, sizeof(domain), out);
}

void bt_link_keys_make(const uint8_t *key, size_t key_bytes, link_keys_t *keys)
{
    uint8_t id[BT_KEY_BYTES];

    under(key, key_bytes, "baton 4 key id", id);
    memcpy(keys->id, id, sizeof(keys->id));
    under(key, key_bytes, "baton 4 join", keys->join);
    under(key, key_bytes, "baton 4 open", keys->open);
    under(key, key_bytes, "baton 4 session", keys->session);
}

bool bt_link_keyring_turn(link_keyring_t *keyring, const uint8_t *key,
                          size_t key_bytes, uint64_t now_ms)
{
    link_keys_t fresh;
    bool is_new;

    bt_link_keys_make(key, key_bytes, &fresh);
    is_new = memcmp(fresh.id, keyring->now.id, sizeof(fresh.id)) != 0;
    if (is_new) {
        keyring->before = keyring->now;
        keyring->before_until_ms = now_ms + LINK_KEY_GRACE_MS;
        keyring->now = fresh;
    }
    bt_key_wipe(&fresh, sizeof(fresh));
    return is_new;
}

void bt_link_keyring_expire(link_keyring_t *keyring, uint64_t now_ms)
{
    if ((keyring->before_until_ms != 0) &&
        (now_ms >= keyring->before_until_ms)) {
        keyring->before_until_ms = 0;
        bt_key_wipe(&keyring->before, sizeof(keyring->before));
    }
}

const link_keys_t *bt_link_keyring_find(const link_keyring_t *keyring,
                                        const uint8_t id[LINK_KEY_ID_BYTES])
{
    return ((id != NULL) && (keyring->before_until_ms != 0) &&
            (memcmp(id, keyring->before.id, LINK_KEY_ID_BYTES) == 0))
               ? &keyring->before
               : &keyring->now;
}

void bt_link_session_make(const link_keys_t *keys, const void *join,
                          size_t join_bytes, const void *open,
                          size_t open_bytes, link_session_t *session)
{
    const bt_key_part_t opening[] = {{join, join_bytes}, {open, open_bytes}};
    uint8_t s[BT_KEY_BYTES];

    bt_key_derive(keys->session, NULL, opening, BT_ARRAY_LEN(opening), s);
    bt_key_derive(s, "baton 4 r to w", NULL, 0, session->to_worker);
    bt_key_derive(s, "baton 4 w to r", NULL, 0, session->to_router);
    bt_key_wipe(s, sizeof(s));
}
