/* SPDX-License-Identifier: Apache-2.0 */
/** @file shm_ring.h
 *
 * Private to common/link: one direction of the shared memory of a link, a byte
 * ring. The other side is another process, so the memory's content is
 * untrusted: our own position is kept outside, each number of the other side is
 * read once and checked, and bytes are copied before they are parsed.
 *
 *     writer                              reader
 *     bytes, then head ──▶  [ ring ]  ──▶ bytes, then tail
 *     ring? ◀── "it sleeps"               bt_shm_ring_sleep()
 *     bt_shm_ring_wait()    ── "it waits" ──▶ ring?
 *
 * A side that is about to sleep sets a flag in the memory and checks once more;
 * the other one rings the bell (shm_segment.h) only if the flag is set, so a
 * busy ring costs no system call. A writer that dies leaves head unchanged:
 * bytes behind it are ignored.
 *
 * Source: docs/WIRE.md, "Shared memory". Pure functions.
 *
 * Threads: one writer, one reader.
 */
#ifndef BT_COMMON_LINK_SHM_RING_H
#define BT_COMMON_LINK_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

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

#endif
