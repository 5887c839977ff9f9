/* SPDX-License-Identifier: Apache-2.0 */
#include "common/link/shm_ring.h"

#include <string.h>

#define MASK ((uint64_t)BT_SHM_RING_BYTES - 1)

_Static_assert((BT_SHM_RING_BYTES & (BT_SHM_RING_BYTES - 1)) == 0,
               "power of two");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "shared between processes");

void bt_shm_ring_init(bt_shm_ring_t *ring, bt_shm_ring_memory_t *memory)
{
    *ring = (bt_shm_ring_t){.memory = memory};
}

static size_t least(size_t a, size_t b)
{
    return (a < b) ? a : b;
}

bt_status_t bt_shm_ring_write(bt_shm_ring_t *ring, const void *data,
                              size_t bytes, size_t *n_p)
{
    bt_shm_ring_memory_t *m = ring->memory;
    const uint64_t used =
        ring->at - atomic_load_explicit(&m->tail, memory_order_acquire);
    const size_t at = (size_t)(ring->at & MASK);
    size_t first;
    size_t n;

    if (used > BT_SHM_RING_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)(BT_SHM_RING_BYTES - used));
    first = least(n, BT_SHM_RING_BYTES - at);
    if (n > 0) {
        memcpy(m->ring + at, data, first);
        memcpy(m->ring, (const uint8_t *)data + first, n - first);
        ring->at += n;
        atomic_store_explicit(&m->head, ring->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_shm_ring_read(bt_shm_ring_t *ring, void *out, size_t bytes,
                             size_t *n_p)
{
    bt_shm_ring_memory_t *m = ring->memory;
    const uint64_t there =
        atomic_load_explicit(&m->head, memory_order_acquire) - ring->at;
    const size_t at = (size_t)(ring->at & MASK);
    size_t first;
    size_t n;

    if (there > BT_SHM_RING_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = least(bytes, (size_t)there);
    first = least(n, BT_SHM_RING_BYTES - at);
    if (n > 0) {
        memcpy(out, m->ring + at, first);
        memcpy((uint8_t *)out + first, m->ring, n - first);
        ring->at += n;
        atomic_store_explicit(&m->tail, ring->at, memory_order_release);
    }
    *n_p = n;
    return BT_OK;
}

bool bt_shm_ring_any(const bt_shm_ring_t *ring)
{
    return atomic_load_explicit(&ring->memory->head, memory_order_acquire) !=
           ring->at;
}

/* Each side stores one value and then loads another: without a total order
 * of all four, flag and bytes could pass each other, and neither side would
 * ring. */
bool bt_shm_ring_sleep(bt_shm_ring_t *ring)
{
    bt_shm_ring_memory_t *m = ring->memory;

    atomic_store_explicit(&m->reader_sleeps, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (!bt_shm_ring_any(ring)) {
        return true;
    }
    atomic_store_explicit(&m->reader_sleeps, 0, memory_order_relaxed);
    return false;
}

bool bt_shm_ring_wait(bt_shm_ring_t *ring)
{
    bt_shm_ring_memory_t *m = ring->memory;

    atomic_store_explicit(&m->writer_waits, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    if (ring->at - atomic_load_explicit(&m->tail, memory_order_acquire) ==
        BT_SHM_RING_BYTES) {
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

bool bt_shm_ring_wakes_reader(bt_shm_ring_t *ring)
{
    return wakes(&ring->memory->reader_sleeps);
}

bool bt_shm_ring_wakes_writer(bt_shm_ring_t *ring)
{
    return wakes(&ring->memory->writer_waits);
}
