/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_intro.h"

#include <string.h>

#define KIND_AT   4
#define FIXED_AT  8
#define MIN_URL   7 /* ipc:// and a letter */
#define MAC_BYTES BT_PROOF_BYTES

typedef struct cursor {
    uint8_t *at;
} cursor_t;

static void put_number(cursor_t *c, uint64_t value, size_t bytes)
{
    bt_rpc_put_le(c->at, value, bytes);
    c->at += bytes;
}

static void put_bytes(cursor_t *c, const void *data, size_t bytes)
{
    memcpy(c->at, data, bytes);
    c->at += bytes;
}

static uint64_t get_number(const uint8_t **at_io, size_t bytes)
{
    const uint64_t value = bt_rpc_get_le(*at_io, bytes);

    *at_io += bytes;
    return value;
}

static size_t put(const rpc_keys_t *keys, rpc_kind_t kind,
                  const rpc_intro_t *intro, uint8_t out[RPC_MAX_INTRO])
{
    const bool announce = kind == RPC_ANNOUNCE;
    const size_t name_bytes = strnlen(intro->name, RPC_MAX_NAME - 1);
    cursor_t c = {out};

    put_bytes(&c, RPC_MAGIC, RPC_MAGIC_BYTES);
    put_number(&c, kind, 4); /* its one byte, and three zeros */
    put_number(&c, announce ? RPC_ANNOUNCE_FIXED : RPC_OPEN_FIXED, 4);
    put_number(&c, intro->range.oldest, 4);
    put_number(&c, intro->range.newest, 4);
    put_bytes(&c, keys->id, RPC_KEY_ID_BYTES);
    put_number(&c, intro->incarnation, 8);
    if (announce) {
        put_number(&c, intro->count, 8);
    }
    put_bytes(&c, intro->nonce, RPC_NONCE_BYTES);
    put_number(&c, name_bytes, 4);
    put_bytes(&c, intro->name, name_bytes);
    if (announce) {
        put_bytes(&c, intro->url, strnlen(intro->url, RPC_MAX_URL - 1));
    }
    return (size_t)(c.at - out);
}

size_t bt_rpc_announce_put(const rpc_keys_t *keys, const rpc_intro_t *intro,
                           uint8_t out[RPC_MAX_INTRO])
{
    const size_t n = put(keys, RPC_ANNOUNCE, intro, out);
    const bt_key_part_t said = {out, n};

    bt_key_derive(keys->announce, NULL, &said, 1, out + n);
    return n + MAC_BYTES;
}

size_t bt_rpc_open_put(const rpc_keys_t *keys, const void *announce,
                       size_t announce_bytes, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO])
{
    const size_t n = put(keys, RPC_OPEN, intro, out);
    const bt_key_part_t said[] = {{announce, announce_bytes}, {out, n}};

    bt_key_derive(keys->open, NULL, said, 2, out + n);
    return n + MAC_BYTES;
}

const uint8_t *bt_rpc_intro_key_id(const void *data, size_t bytes)
{
    const uint8_t *p = data;

    return (bytes < RPC_INTRO_HEADER + RPC_OPEN_FIXED)
               ? NULL
               : p + RPC_INTRO_HEADER + 8; /* behind the range */
}

/* A folder of sockets may be called anything, hosts are plain ASCII. */
bool bt_rpc_is_url(const uint8_t *text, size_t n)
{
    bool is_path;

    if ((n < MIN_URL) || (n >= RPC_MAX_URL)) {
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
    if (n >= RPC_MAX_NAME) {
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
static bool get(rpc_kind_t kind, const uint8_t *data, size_t bytes,
                rpc_intro_t *intro, const uint8_t **id_p)
{
    static const uint8_t zeros[FIXED_AT - KIND_AT - 1];
    const bool announce = kind == RPC_ANNOUNCE;
    const size_t known = announce ? RPC_ANNOUNCE_FIXED : RPC_OPEN_FIXED;
    const uint8_t *p = data + RPC_INTRO_HEADER;
    size_t rest;
    size_t fixed;
    size_t n;

    if ((bytes < RPC_INTRO_HEADER + known + MAC_BYTES) ||
        (bytes > RPC_MAX_INTRO) ||
        (memcmp(data, RPC_MAGIC, RPC_MAGIC_BYTES) != 0) ||
        (data[KIND_AT] != kind) ||
        (memcmp(data + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return false;
    }
    fixed = (size_t)bt_rpc_get_le(data + FIXED_AT, 4);
    rest = bytes - RPC_INTRO_HEADER - MAC_BYTES;
    if ((fixed < known) || (fixed > rest)) {
        return false;
    }
    memset(intro, 0, sizeof(*intro));
    intro->range.oldest = (uint32_t)get_number(&p, 4);
    intro->range.newest = (uint32_t)get_number(&p, 4);
    *id_p = p;
    p += RPC_KEY_ID_BYTES;
    intro->incarnation = get_number(&p, 8);
    intro->count = announce ? get_number(&p, 8) : 0;
    memcpy(intro->nonce, p, RPC_NONCE_BYTES);
    p += RPC_NONCE_BYTES;
    n = (size_t)get_number(&p, 4);
    p = data + RPC_INTRO_HEADER + fixed;
    rest -= fixed;
    if ((n > rest) || !is_name(p, n) ||
        (announce ? !bt_rpc_is_url(p + n, rest - n) : (rest != n))) {
        return false;
    }
    memcpy(intro->name, p, n);
    if (announce) {
        memcpy(intro->url, p + n, rest - n);
    }
    return true;
}

bt_status_t bt_rpc_announce_check(const rpc_keys_t *keys, const void *data,
                                  size_t bytes, rpc_intro_t *intro_p)
{
    const uint8_t *p = data;
    uint8_t mac[MAC_BYTES];
    const uint8_t *id;
    rpc_intro_t intro;
    bt_key_part_t said;

    if (!get(RPC_ANNOUNCE, p, bytes, &intro, &id)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *intro_p = intro;
    said = (bt_key_part_t){p, bytes - MAC_BYTES};
    bt_key_derive(keys->announce, NULL, &said, 1, mac);
    return ((memcmp(id, keys->id, RPC_KEY_ID_BYTES) == 0) &&
            bt_key_equal(mac, p + said.bytes, sizeof(mac)))
               ? BT_OK
               : BT_ERR_UNAUTHORIZED;
}

bt_status_t bt_rpc_open_check(const rpc_keys_t *keys, const void *announce,
                              size_t announce_bytes, const void *data,
                              size_t bytes, rpc_intro_t *intro_p)
{
    const uint8_t *p = data;
    uint8_t mac[MAC_BYTES];
    const uint8_t *id;
    rpc_intro_t intro;
    bt_key_part_t said[2];

    if (!get(RPC_OPEN, p, bytes, &intro, &id)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *intro_p = intro;
    said[0] = (bt_key_part_t){announce, announce_bytes};
    said[1] = (bt_key_part_t){p, bytes - MAC_BYTES};
    bt_key_derive(keys->open, NULL, said, 2, mac);
    return ((memcmp(id, keys->id, RPC_KEY_ID_BYTES) == 0) &&
            bt_key_equal(mac, p + said[1].bytes, sizeof(mac)))
               ? BT_OK
               : BT_ERR_UNAUTHORIZED;
}
