/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_sp.h
 *
 * Private to common/rpc: the wire format of nng's sockets. Each side sends a
 * greeting of 8 bytes, 0 'S' 'P' 0 protocol[2] 0 0; then messages follow, each
 * after its length in 8 bytes, big endian, and over ipc a 1 before that.
 *
 * Source: nanomsg RFCs sp-protocol-ids, sp-tcp-mapping-01, sp-ipc-mapping.
 */
#ifndef BT_COMMON_RPC_RPC_SP_H
#define BT_COMMON_RPC_RPC_SP_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define RPC_SP_GREETING_BYTES 8
#define RPC_SP_MAX_HEAD_BYTES 9

typedef enum rpc_sp_protocol {
    RPC_SP_PAIR0 = 0x10,
    RPC_SP_PUB0 = 0x20,
    RPC_SP_SUB0 = 0x21,
} rpc_sp_protocol_t;

/** True for ipc urls; urls are ipc://PATH or tcp://HOST:PORT. */
static inline bool bt_rpc_sp_is_ipc(const char *url)
{
    return strncmp(url, "ipc://", 6) == 0;
}

static inline void bt_rpc_sp_greeting(rpc_sp_protocol_t protocol,
                                      uint8_t to[RPC_SP_GREETING_BYTES])
{
    const uint8_t greeting[] = {0, 'S', 'P', 0, 0, (uint8_t)protocol, 0, 0};

    memcpy(to, greeting, RPC_SP_GREETING_BYTES);
}

/** True when the received bytes begin with this greeting, or with as much of
 *  it as was received. */
static inline bool bt_rpc_sp_greets(rpc_sp_protocol_t protocol,
                                    const uint8_t *bytes, size_t n)
{
    uint8_t greeting[RPC_SP_GREETING_BYTES];

    bt_rpc_sp_greeting(protocol, greeting);
    return memcmp(bytes, greeting,
                  (n < sizeof(greeting)) ? n : sizeof(greeting)) == 0;
}

/** Returns the bytes before each message. */
static inline size_t bt_rpc_sp_head_bytes(bool ipc)
{
    return (ipc ? 1 : 0) + sizeof(uint64_t);
}

/** Writes the head of a message. @return bt_rpc_sp_head_bytes() */
static inline size_t bt_rpc_sp_put_head(bool ipc, uint64_t bytes,
                                        uint8_t to[RPC_SP_MAX_HEAD_BYTES])
{
    const uint64_t length = htobe64(bytes);

    to[0] = 1;
    memcpy(to + (ipc ? 1 : 0), &length, sizeof(length));
    return bt_rpc_sp_head_bytes(ipc);
}

/** Reads the head of a message. @return false: no nng socket sends this */
static inline bool bt_rpc_sp_get_head(bool ipc, const uint8_t *head,
                                      uint64_t *bytes_p)
{
    uint64_t length;

    if (ipc && (head[0] != 1)) {
        return false;
    }
    memcpy(&length, head + (ipc ? 1 : 0), sizeof(length));
    *bytes_p = be64toh(length);
    return true;
}

#endif
