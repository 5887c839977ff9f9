/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_lane.h
 *
 * Private to common/rpc: one direction of the memory that the two ends of a
 * link share, a ring of bytes. The other side is another process, and whatever
 * stands in the memory is its word: what we need to know of our own position
 * is kept outside, each number of theirs is read once and checked, and bytes
 * are copied before anybody looks at them.
 *
 *     writer                              reader
 *     bytes, then head ──▶  [ ring ]  ──▶ bytes, then tail
 *     ring? ◀── "it sleeps"               bt_lane_sleep()
 *     bt_lane_blocked() ── "it waits" ──▶ ring?
 *
 * A side that is about to sleep says so in the memory and looks once more;
 * the other one rings the bell (rpc_shm.h) only where that is said, so a busy
 * lane costs no system call. A writer that dies leaves head where it was:
 * bytes behind it are nobody's.
 *
 * Source of the protocol: docs/WIRE.md, "Shared memory". Pure functions.
 * Threads: one writer, one reader.
 */
#ifndef BT_COMMON_RPC_RPC_LANE_H
#define BT_COMMON_RPC_RPC_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_LANE_BYTES (128u << 10) /**< of the ring; a power of two */

/** As it lies in the memory; each number on a cache line of its own. Positions
 *  count bytes since the beginning. */
typedef struct bt_lane_memory {
    _Alignas(64) _Atomic uint64_t head; /**< the writer's */
    _Alignas(64) _Atomic uint64_t tail; /**< the reader's */
    _Alignas(64) _Atomic uint32_t reader_sleeps;
    _Alignas(64) _Atomic uint32_t writer_waits;
    _Alignas(64) uint8_t ring[BT_LANE_BYTES];
} bt_lane_memory_t;

/** One side's view. */
typedef struct bt_lane {
    bt_lane_memory_t *memory;
    uint64_t at; /**< our position */
} bt_lane_t;

/** Both sides begin with memory of zeros. */
void bt_lane_init(bt_lane_t *lane, bt_lane_memory_t *memory);

/** @param [out] n_p  bytes that were taken, the first of them
 *  @retval BT_ERR_BAD_MESSAGE  The reader's position is nonsense. */
BT_MUST_CHECK bt_status_t bt_lane_write(bt_lane_t *lane, const void *data,
                                        size_t bytes, size_t *n_p);
/** @param [out] n_p  bytes that are in @a out now; 0: there are none
 *  @retval BT_ERR_BAD_MESSAGE  The writer's position is nonsense. */
BT_MUST_CHECK bt_status_t bt_lane_read(bt_lane_t *lane, void *out, size_t bytes,
                                       size_t *n_p);
/** Is there something to read, or nonsense that bt_lane_read() will tell? */
bool bt_lane_any(const bt_lane_t *lane);

/** The reader is about to sleep. @return false: something came, it must not */
bool bt_lane_sleep(bt_lane_t *lane);
/** The writer could not write all. @return false: there is room by now */
bool bt_lane_wait(bt_lane_t *lane);
/** After writing. @return true: the reader sleeps, ring its bell */
bool bt_lane_wakes_reader(bt_lane_t *lane);
/** After reading. @return true: the writer waits, ring its bell */
bool bt_lane_wakes_writer(bt_lane_t *lane);

#endif
