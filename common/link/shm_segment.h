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

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

/*
 * Byte ring: one direction of the shared memory of a link. The other side is
 * another process, so the memory's content is untrusted: our own position is
 * kept outside, each number of the other side is read once and checked, and
 * bytes are copied before they are parsed.
 *
 *     writer                              reader
 *     bytes, then head ──▶  [ ring ]  ──▶ bytes, then tail
 *     ring? ◀── "it sleeps"               bt_shm_ring_sleep()
 *     bt_shm_ring_wait()    ── "it waits" ──▶ ring?
 *
 * A side that is about to sleep sets a flag in the memory and checks once more;
 * the other one rings the bell only if the flag is set, so a
 * busy ring costs no system call. A writer that dies leaves head unchanged:
 * bytes behind it are ignored.
 *
 * Source: docs/WIRE.md, "Shared memory".
 *
 * Threads: one writer, one reader.
 */

#define BT_SHM_RING_BYTES                              \
    (128u << 10) /**< size of the ring; a power of two \
                  */

/** Layout in the memory; each number on its own cache line. Positions count
 *  bytes since the beginning. */
typedef struct bt_shm_ring_memory {
    _Alignas(64) _Atomic uint64_t head; /**< set by the writer */
    _Alignas(64) _Atomic uint64_t tail; /**< set by the reader */
    _Alignas(64) _Atomic uint32_t reader_sleeps;
    _Alignas(64) _Atomic uint32_t writer_waits;
    _Alignas(64) uint8_t ring[BT_SHM_RING_BYTES];
} bt_shm_ring_memory_t;

/** One side's view of a ring. */
typedef struct bt_shm_ring {
    bt_shm_ring_memory_t *memory;
    uint64_t at; /**< this side's position */
} bt_shm_ring_t;

/** Initialises one side. The memory must be all zero at first. */
void bt_shm_ring_init(bt_shm_ring_t *ring, bt_shm_ring_memory_t *memory);

/**
 * Writes bytes.
 * @param [out] n_p  number of leading bytes written
 * @retval BT_ERR_BAD_MESSAGE  The reader's position is invalid.
 */
BT_MUST_CHECK bt_status_t bt_shm_ring_write(bt_shm_ring_t *ring,
                                            const void *data, size_t bytes,
                                            size_t *n_p);
/**
 * Reads bytes.
 * @param [out] n_p  bytes read into @a out; 0: none available
 * @retval BT_ERR_BAD_MESSAGE  The writer's position is invalid.
 */
BT_MUST_CHECK bt_status_t bt_shm_ring_read(bt_shm_ring_t *ring, void *out,
                                           size_t bytes, size_t *n_p);
/** True when there is something to read, or an invalid position that
 *  bt_shm_ring_read() will report. */
bool bt_shm_ring_any(const bt_shm_ring_t *ring);

/** Sets the reader's sleep flag. @return false: bytes arrived, it must not
 *  sleep */
bool bt_shm_ring_sleep(bt_shm_ring_t *ring);
/** Sets the writer's wait flag, when it could not write all. @return false:
 *  there is space by now */
bool bt_shm_ring_wait(bt_shm_ring_t *ring);
/** Call after writing. @return true: the reader sleeps, ring its bell */
bool bt_shm_ring_wakes_reader(bt_shm_ring_t *ring);
/** Call after reading. @return true: the writer waits, ring its bell */
bool bt_shm_ring_wakes_writer(bt_shm_ring_t *ring);

/* ---- the segment ---- */

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
