/* SPDX-License-Identifier: Apache-2.0 */
/** @file shm_segment.h
 *
 * Private to common/link: memory and doorbells shared by two processes of one
 * host, and how one passes them to the other. Linux only.
 *
 *     giver                                     taker
 *     bt_shm_give_open() ── name, by the link ──▶
 *                        ◀──── connect ─────── bt_shm_take_open()
 *     bt_shm_give()      ── descriptors ──────▶ bt_shm_take()
 *                        ◀── secret, by the link
 *
 * The name is an abstract socket of the host's network namespace: unreachable
 * from elsewhere. One process is accepted, of this user. The secret, which is
 * only in the memory, proves that it was the one at the other end of the link.
 * The memory's size is sealed, so no access to it can fail.
 *
 * Threads: none of its own.
 */
#ifndef BT_COMMON_LINK_SHM_SEGMENT_H
#define BT_COMMON_LINK_SHM_SEGMENT_H

#include "common/base/status.h"
#include "common/link/shm_ring.h"

#define BT_SHM_NAME_BYTES   16u /**< longest name of an abstract socket */
#define BT_SHM_SECRET_BYTES 16u

/** Layout of the shared memory. */
typedef struct bt_shm_memory {
    uint8_t secret[BT_SHM_SECRET_BYTES];
    bt_shm_ring_memory_t rings[2]; /**< 0: from the giver, 1: to the giver */
} bt_shm_memory_t;

/** One side's view. */
typedef struct bt_shm {
    bt_shm_memory_t *memory; /**< NULL: none */
    int fd;       /**< descriptor of the memory; giver: until it is given */
    int bells[2]; /**< eventfds: 0 wakes the giver, 1 the taker */
} bt_shm_t;

/** Initialises an empty view; bt_shm_close() is allowed. */
void bt_shm_init(bt_shm_t *shm);
/** Unmaps and closes everything. */
void bt_shm_close(bt_shm_t *shm);

/**
 * Creates memory, bells and a socket that accepts one process.
 * @param [out] name, bytes_p  to be sent to the taker
 * @param [out] socket_p       readable: bt_shm_give()
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY  nothing was created
 */
BT_MUST_CHECK bt_status_t bt_shm_give_open(bt_shm_t *shm,
                                           uint8_t name[BT_SHM_NAME_BYTES],
                                           size_t *bytes_p, int *socket_p);
/**
 * Passes the descriptors to the process that connected to @a socket.
 * @retval BT_ERR_IO            it has disconnected, or none is there
 * @retval BT_ERR_UNAUTHORIZED  another user, which got nothing
 */
BT_MUST_CHECK bt_status_t bt_shm_give(bt_shm_t *shm, int socket);

/**
 * Connects to the giver.
 * @param [out] socket_p  readable: bt_shm_take()
 * @retval BT_ERR_INVALID_PARAM, BT_ERR_IO  not on this host
 */
BT_MUST_CHECK bt_status_t bt_shm_take_open(const uint8_t *name, size_t bytes,
                                           int *socket_p);
/**
 * Receives and maps the memory.
 * @retval BT_ERR_IO           nothing was received
 * @retval BT_ERR_BAD_MESSAGE  what was received is no such memory
 */
BT_MUST_CHECK bt_status_t bt_shm_take(bt_shm_t *shm, int socket);

void bt_shm_ring(int bell);

#endif
