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

/* All but the mac. @return its bytes */
static size_t put(const rpc_keys_t *keys, rpc_kind_t kind,
                  const rpc_intro_t *intro, uint8_t out[RPC_MAX_INTRO])
{
    const size_t name_bytes = strnlen(intro->name, RPC_MAX_NAME - 1);
    cursor_t c = {out};

    put_bytes(&c, RPC_MAGIC, RPC_MAGIC_BYTES);
    put_number(&c, kind, 4); /* its one byte, and three zeros */
    put_number(&c, RPC_INTRO_FIXED, 4);
    put_number(&c, intro->range.oldest, 4);
    put_number(&c, intro->range.newest, 4);
    put_bytes(&c, keys->id, RPC_KEY_ID_BYTES);
    put_number(&c, intro->incarnation, 8);
    put_bytes(&c, intro->nonce, RPC_NONCE_BYTES);
    put_number(&c, name_bytes, 4);
    put_bytes(&c, intro->name, name_bytes);
    return (size_t)(c.at - out);
}

size_t bt_rpc_join_put(const rpc_keys_t *keys, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO])
{
    const size_t n = put(keys, RPC_JOIN, intro, out);
    const bt_key_part_t said = {out, n};

    bt_key_derive(keys->join, NULL, &said, 1, out + n);
    return n + MAC_BYTES;
}

size_t bt_rpc_open_put(const rpc_keys_t *keys, const void *join,
                       size_t join_bytes, const rpc_intro_t *intro,
                       uint8_t out[RPC_MAX_INTRO])
{
    const size_t n = put(keys, RPC_OPEN, intro, out);
    const bt_key_part_t said[] = {{join, join_bytes}, {out, n}};

    bt_key_derive(keys->open, NULL, said, 2, out + n);
    return n + MAC_BYTES;
}

const uint8_t *bt_rpc_intro_key_id(const void *data, size_t bytes)
{
    const uint8_t *p = data;

    return (bytes < RPC_INTRO_HEADER + RPC_INTRO_FIXED)
               ? NULL
               : p + RPC_INTRO_HEADER + 8; /* behind the range */
}

bool bt_rpc_is_ipc(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0;
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
    const uint8_t *p = data + RPC_INTRO_HEADER;
    size_t rest;
    size_t fixed;
    size_t n;

    if ((bytes < RPC_INTRO_HEADER + RPC_INTRO_FIXED + MAC_BYTES) ||
        (bytes > RPC_MAX_INTRO) ||
        (memcmp(data, RPC_MAGIC, RPC_MAGIC_BYTES) != 0) ||
        (data[KIND_AT] != kind) ||
        (memcmp(data + KIND_AT + 1, zeros, sizeof(zeros)) != 0)) {
        return false;
    }
    fixed = (size_t)bt_rpc_get_le(data + FIXED_AT, 4);
    rest = bytes - RPC_INTRO_HEADER - MAC_BYTES;
    if ((fixed < RPC_INTRO_FIXED) || (fixed > rest)) {
        return false;
    }
    memset(intro, 0, sizeof(*intro));
    intro->range.oldest = (uint32_t)get_number(&p, 4);
    intro->range.newest = (uint32_t)get_number(&p, 4);
    *id_p = p;
    p += RPC_KEY_ID_BYTES;
    intro->incarnation = get_number(&p, 8);
    memcpy(intro->nonce, p, RPC_NONCE_BYTES);
    p += RPC_NONCE_BYTES;
    n = (size_t)get_number(&p, 4);
    p = data + RPC_INTRO_HEADER + fixed;
    if ((n != rest - fixed) || !is_name(p, n)) {
        return false;
    }
    memcpy(intro->name, p, n);
    return true;
}

/* Checks a frame whose mac covers these parts; the last is the frame without
 * its mac. */
static bt_status_t check(rpc_kind_t kind, const rpc_keys_t *keys,
                         const uint8_t key[BT_KEY_BYTES],
                         const bt_key_part_t *parts, size_t n,
                         rpc_intro_t *intro_p)
{
    const uint8_t *data = parts[n - 1].data;
    const size_t bytes = parts[n - 1].bytes;
    uint8_t mac[MAC_BYTES];
    const uint8_t *id;
    rpc_intro_t intro;

    if (!get(kind, data, bytes + MAC_BYTES, &intro, &id)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *intro_p = intro;
    bt_key_derive(key, NULL, parts, n, mac);
    return ((memcmp(id, keys->id, RPC_KEY_ID_BYTES) == 0) &&
            bt_key_equal(mac, data + bytes, sizeof(mac)))
               ? BT_OK
               : BT_ERR_UNAUTHORIZED;
}

bt_status_t bt_rpc_join_check(const rpc_keys_t *keys, const void *data,
                              size_t bytes, rpc_intro_t *intro_p)
{
    const bt_key_part_t said = {data, bytes - MAC_BYTES};

    return (bytes <= MAC_BYTES)
               ? BT_ERR_BAD_MESSAGE
               : check(RPC_JOIN, keys, keys->join, &said, 1, intro_p);
}

bt_status_t bt_rpc_open_check(const rpc_keys_t *keys, const void *join,
                              size_t join_bytes, const void *data, size_t bytes,
                              rpc_intro_t *intro_p)
{
    const bt_key_part_t said[] = {{join, join_bytes},
                                  {data, bytes - MAC_BYTES}};

    return (bytes <= MAC_BYTES)
               ? BT_ERR_BAD_MESSAGE
               : check(RPC_OPEN, keys, keys->open, said, 2, intro_p);
}
