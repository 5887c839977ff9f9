/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/link_handshake_frames.h"

#include <string.h>

#include "common/base/status.h"

#define KIND_AT   4
#define FIXED_AT  8
#define MIN_URL   7 /* ipc:// and a letter */
#define MAC_BYTES BT_PROOF_BYTES

typedef struct cursor {
    uint8_t *at;
} cursor_t;

static void put_number(cursor_t *c, uint64_t value, size_t bytes)
{
    bt_link_put_le(c->at, value, bytes);
    c->at += bytes;
}

static void put_bytes(cursor_t *c, const void *data, size_t bytes)
{
    memcpy(c->at, data, bytes);
    c->at += bytes;
}

static uint64_t get_number(const uint8_t **at_io, size_t bytes)
{
    const uint64_t value = bt_link_get_le(*at_io, bytes);

    *at_io += bytes;
    return value;
}

/* All but the mac. @return its bytes */
static size_t put(const link_keys_t *keys, link_kind_t kind,
                  const link_intro_t *intro, uint8_t out[LINK_MAX_INTRO])
{
    const size_t name_bytes = strnlen(intro->name, LINK_MAX_NAME - 1);
    cursor_t c = {out};

    put_bytes(&c, LINK_MAGIC, LINK_MAGIC_BYTES);
    put_number(&c, kind, 4); /* its one byte, and three zeros */
    put_number(&c, LINK_INTRO_FIXED, 4);
    put_number(&c, intro->range.oldest, 4);
    put_number(&c, intro->range.newest, 4);
    put_bytes(&c, keys->id, LINK_KEY_ID_BYTES);
    put_number(&c, intro->incarnation, 8);
    put_bytes(&c, intro->nonce, LINK_NONCE_BYTES);
    put_number(&c, name_bytes, 4);
    put_bytes(&c, intro->name, name_bytes);
    return (size_t)(c.at - out);
}

size_t bt_link_join_put(const link_keys_t *keys, const link_intro_t *intro,
                        uint8_t out[LINK_MAX_INTRO])
{
    const size_t n = put(keys, LINK_FRAME_JOIN, intro, out);
    const bt_key_part_t said = {out, n};

    bt_key_derive(keys->join, NULL, &said, 1, out + n);
    return n + MAC_BYTES;
}

size_t bt_link_open_put(const link_keys_t *keys, const void *join,
                        size_t join_bytes, const link_intro_t *intro,
                        uint8_t out[LINK_MAX_INTRO])
{
    const size_t n = put(keys, LINK_FRAME_OPEN, intro, out);
    const bt_key_part_t said[] = {{join, join_bytes}, {out, n}};

    bt_key_derive(keys->open, NULL, said, 2, out + n);
    return n + MAC_BYTES;
}

const uint8_t *bt_link_intro_key_id(const void *data, size_t bytes)
{
    const uint8_t *p = data;

    return (bytes < LINK_HANDSHAKE_HEADER_BYTES + LINK_INTRO_FIXED)
               ? NULL
               : p + LINK_HANDSHAKE_HEADER_BYTES + 8; /* behind the range */
}

bool bt_control_is_ipc(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0;
}

/* A folder of sockets may be called anything, hosts are plain ASCII. */
bool bt_control_is_url(const uint8_t *text, size_t n)
{
    bool is_path;

    if ((n < MIN_URL) || (n >= LINK_MAX_URL)) {
        return false;
    }
    is_path = memcmp(text, "ipc://", 6) == 0;
    if (!is_path && (memcmp(text, "tcp://", 6) != 0)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((text[i] < ' ') || (text[i] == 0x7f) ||
            (!is_path && ((text[i] == ' ') || (text[i] > 0x7f)))) {
            return false;
        }
    }
    return true;
}

static bool is_name(const uint8_t *text, size_t n)
{
    if (n >= LINK_MAX_NAME) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if ((text[i] < ' ') || (text[i] == 0x7f)) {
            return false;
        }
    }
    return true;
}

/* All but the mac. *id_p is in data. */
static bool get(link_kind_t kind, const uint8_t *data, size_t bytes,
                link_intro_t *intro, const uint8_t **id_p)
{
    static const uint8_t zeros[FIXED_AT - KIND_AT - 1];
    const uint8_t *p = data + LINK_HANDSHAKE_HEADER_BYTES;
    size_t rest;
    size_t fixed;
    size_t n;

    if ((bytes < LINK_HANDSHAKE_HEADER_BYTES + LINK_INTRO_FIXED + MAC_BYTES) ||
        (bytes > LINK_MAX_INTRO) ||
        (memcmp(data, LINK_MAGIC, LINK_MAGIC_BYTES) != 0) ||
        (data[KIND_AT] != kind) ||
        (memcmp(data + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return false;
    }
    fixed = (size_t)bt_link_get_le(data + FIXED_AT, 4);
    rest = bytes - LINK_HANDSHAKE_HEADER_BYTES - MAC_BYTES;
    if ((fixed < LINK_INTRO_FIXED) || (fixed > rest)) {
        return false;
    }
    memset(intro, 0, sizeof(*intro));
    intro->range.oldest = (uint32_t)get_number(&p, 4);
    intro->range.newest = (uint32_t)get_number(&p, 4);
    *id_p = p;
    p += LINK_KEY_ID_BYTES;
    intro->incarnation = get_number(&p, 8);
    memcpy(intro->nonce, p, LINK_NONCE_BYTES);
    p += LINK_NONCE_BYTES;
    n = (size_t)get_number(&p, 4);
    p = data + LINK_HANDSHAKE_HEADER_BYTES + fixed;
    if ((n != rest - fixed) || !is_name(p, n)) {
        return false;
    }
    memcpy(intro->name, p, n);
    return true;
}

/* Checks a frame whose mac covers these parts; the last is the frame without
 * its mac. */
static bt_status_t check(link_kind_t kind, const link_keys_t *keys,
                         const uint8_t key[BT_KEY_BYTES],
                         const bt_key_part_t *parts, size_t n,
                         link_intro_t *intro_p)
{
    const uint8_t *data = parts[n - 1].data;
    const size_t bytes = parts[n - 1].bytes;
    uint8_t mac[MAC_BYTES];
    const uint8_t *id;
    link_intro_t intro;

    if (!get(kind, data, bytes + MAC_BYTES, &intro, &id)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *intro_p = intro;
    bt_key_derive(key, NULL, parts, n, mac);
    return ((memcmp(id, keys->id, LINK_KEY_ID_BYTES) == 0) &&
            bt_key_equal(mac, data + bytes, sizeof(mac)))
               ? BT_OK
               : BT_ERR_UNAUTHORIZED;
}

bt_status_t bt_link_join_check(const link_keys_t *keys, const void *data,
                               size_t bytes, link_intro_t *intro_p)
{
    const bt_key_part_t said = {data, bytes - MAC_BYTES};

    return (bytes <= MAC_BYTES)
               ? BT_ERR_BAD_MESSAGE
               : check(LINK_FRAME_JOIN, keys, keys->join, &said, 1, intro_p);
}

bt_status_t bt_link_open_check(const link_keys_t *keys, const void *join,
                               size_t join_bytes, const void *data,
                               size_t bytes, link_intro_t *intro_p)
{
    const bt_key_part_t said[] = {{join, join_bytes},
                                  {data, bytes - MAC_BYTES}};

    return (bytes <= MAC_BYTES)
               ? BT_ERR_BAD_MESSAGE
               : check(LINK_FRAME_OPEN, keys, keys->open, said, 2, intro_p);
}

/* ---- keys ---- */

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
