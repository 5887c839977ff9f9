/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_shm.h
 *
 * Private to common/rpc: memory and bells that two processes of one host
 * share, and how one gives them to the other. Linux only.
 *
 *     giver                                     taker
 *     bt_shm_give_open() ── name, by the link ──▶
 *                        ◀──── connect ─────── bt_shm_take_open()
 *     bt_shm_give()      ── descriptors ──────▶ bt_shm_take()
 *                        ◀── secret, by the link
 *
 * The name is of the host's list of abstract sockets, that of its network
 * namespace: from elsewhere nobody finds it. One process is let in, of the same
 * user. That it was the one at the other end of the link is proven by the
 * secret, which stands in the memory alone. The memory's size is sealed, so no
 * touch of it can fail.
 *
 * Threads: none of its own.
 */
#ifndef BT_COMMON_RPC_RPC_SHM_H
#define BT_COMMON_RPC_RPC_SHM_H

#include "common/base/status.h"
#include "common/rpc/rpc_lane.h"

#define BT_SHM_NAME_BYTES   16u /**< most of an abstract socket's name */
#define BT_SHM_SECRET_BYTES 16u

typedef struct bt_shm_memory {
    uint8_t secret[BT_SHM_SECRET_BYTES];
    bt_lane_memory_t lanes[2]; /**< 0: from the giver, 1: to it */
} bt_shm_memory_t;

typedef struct bt_shm {
    bt_shm_memory_t *memory; /**< NULL: not there */
    int fd;                  /**< of the memory; giver: until it is given */
    int bells[2];            /**< eventfds: 0 wakes the giver, 1 the taker */
} bt_shm_t;

/** Nothing yet; bt_shm_close() is allowed. */
void bt_shm_init(bt_shm_t *shm);
/** Unmaps and closes. */
void bt_shm_close(bt_shm_t *shm);

/** Make memory, bells and a socket that one process may come to.
 *  @param [out] name, bytes_p  what it is to be told
 *  @param [out] socket_p       readable: bt_shm_give()
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY  nothing was made */
BT_MUST_CHECK bt_status_t bt_shm_give_open(bt_shm_t *shm,
                                           uint8_t name[BT_SHM_NAME_BYTES],
                                           size_t *bytes_p, int *socket_p);
/** To whoever came to @a socket.
 *  @retval BT_ERR_IO            it went again, or nobody is there
 *  @retval BT_ERR_UNAUTHORIZED  another user, who got nothing */
BT_MUST_CHECK bt_status_t bt_shm_give(bt_shm_t *shm, int socket);

/** @param [out] socket_p  readable: bt_shm_take()
 *  @retval BT_ERR_INVALID_PARAM, BT_ERR_IO  not on this host */
BT_MUST_CHECK bt_status_t bt_shm_take_open(const uint8_t *name, size_t bytes,
                                           int *socket_p);
/** @retval BT_ERR_IO           nothing came
 *  @retval BT_ERR_BAD_MESSAGE  what came is no such memory */
BT_MUST_CHECK bt_status_t bt_shm_take(bt_shm_t *shm, int socket);

void bt_shm_ring(int bell);

#endif
