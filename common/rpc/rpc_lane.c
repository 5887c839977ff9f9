/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_lane.h"

#include <string.h>

#define MASK ((uint64_t)BT_LANE_BYTES - 1)

_Static_assert((BT_LANE_BYTES & (BT_LANE_BYTES - 1)) == 0, "power of two");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "shared between processes");

void bt_lane_init(bt_lane_t *lane, bt_lane_memory_t *memory)
{
    *lane = (bt_lane_t){.memory = memory};
}

static size_t least(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

bt_status_t bt_lane_write(bt_lane_t *lane, const void *data, size_t bytes,
                          size_t *n_p)
{
    bt_lane_memory_t *m = lane->memory;
    const uint64_t used =
        lane->at - atomic_load_explicit(&m->tail, memory_order_acquire);
    const size_t at = (size_t)(lane->at & MASK);
    size_t first;
    size_t n;

    if (used > BT_LANE_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)(BT_LANE_BYTES - used));
    first = least(n, BT_LANE_BYTES - at);
    if (n > 0) {
        memcpy(m->ring + at, data, first);
        memcpy(m->ring, (const uint8_t *)data + first, n - first);
        lane->at += n;
        atomic_store_explicit(&m->head, lane->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_lane_read(bt_lane_t *lane, void *out, size_t bytes, size_t *n_p)
{
    bt_lane_memory_t *m = lane->memory;
    const uint64_t there =
        atomic_load_explicit(&m->head, memory_order_acquire) - lane->at;
    const size_t at = (size_t)(lane->at & MASK);
    size_t first;
    size_t n;

    if (there > BT_LANE_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)there);
    first = least(n, BT_LANE_BYTES - at);
    if (n > 0) {
        memcpy(out, m->ring + at, first);
        memcpy((uint8_t *)out + first, m->ring, n - first);
        lane->at += n;
        atomic_store_explicit(&m->tail, lane->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bool bt_lane_any(const bt_lane_t *lane)
{
    return atomic_load_explicit(&lane->memory->head, memory_order_acquire) !=
           lane->at;
}

/* Each side stores one value and then loads another: without a total order
 * of all four, flag and bytes could pass each other, and neither side would
 * ring. */
bool bt_lane_sleep(bt_lane_t *lane)
{
    bt_lane_memory_t *m = lane->memory;

    atomic_store_explicit(&m->reader_sleeps, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (!bt_lane_any(lane)) {
        return true;
    }
    atomic_store_explicit(&m->reader_sleeps, 0, memory_order_relaxed);
    return false;
}

bool bt_lane_wait(bt_lane_t *lane)
{
    bt_lane_memory_t *m = lane->memory;

    atomic_store_explicit(&m->writer_waits, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (lane->at - atomic_load_explicit(&m->tail, memory_order_acquire) ==
        BT_LANE_BYTES) {
        return true;
    }
    atomic_store_explicit(&m->writer_waits, 0, memory_order_relaxed);
    return false;
}

static bool wakes(_Atomic uint32_t *wish)
{
    atomic_thread_fence(memory_order_seq_cst);
    return (atomic_load_explicit(wish, memory_order_relaxed) != 0) &&
           (atomic_exchange_explicit(wish, 0, memory_order_seq_cst) != 0);
}

bool bt_lane_wakes_reader(bt_lane_t *lane)
{
    return wakes(&lane->memory->reader_sleeps);
}

bool bt_lane_wakes_writer(bt_lane_t *lane)
{
    return wakes(&lane->memory->writer_waits);
}
