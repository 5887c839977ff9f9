/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/containers.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"

/* head and tail only grow; slot = index & mask. Each on its own cache line,
 * to avoid false sharing between the two threads. */
struct bt_ring {
    void **slots;
    uint32_t mask;
    int fd;
    _Alignas(64) _Atomic uint32_t head; /* consumer writes */
    _Alignas(64) _Atomic uint32_t tail; /* producer writes */
    _Alignas(64) _Atomic uint32_t sleeping;
};

bt_status_t bt_ring_create(uint32_t n_slots, bt_ring_t **ring_p)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_ring_t *ring;

    if ((n_slots < 2) || ((n_slots & (n_slots - 1)) != 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    ring = bt_calloc_aligned(1, sizeof(*ring));
    if (ring == NULL) {
        goto err;
    }
    ring->slots = bt_calloc(n_slots, sizeof(*ring->slots));
    if (ring->slots == NULL) {
        goto err_ring;
    }
    ring->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ring->fd < 0) {
        status = BT_ERR_IO;
        goto err_slots;
    }
    ring->mask = n_slots - 1;
    *ring_p = ring;
    return BT_OK;

err_slots:
    bt_free(ring->slots);
err_ring:
    bt_free(ring);
err:
    return status;
}

void bt_ring_destroy(bt_ring_t *ring)
{
    if (ring == NULL) {
        return;
    }
    close(ring->fd);
    bt_free(ring->slots);
    bt_free(ring);
}

bt_status_t bt_ring_push(bt_ring_t *ring, void *item)
{
    const uint32_t tail =
        atomic_load_explicit(&ring->tail, memory_order_relaxed);
    const uint32_t head =
        atomic_load_explicit(&ring->head, memory_order_acquire);

    if (tail - head > ring->mask) {
        return BT_ERR_BUSY;
    }
    ring->slots[tail & ring->mask] = item;
    /* Sequentially consistent, against the consumer's store to sleeping and
     * load of tail: one of the two sees the other. */
    atomic_store(&ring->tail, tail + 1);
    if (atomic_load(&ring->sleeping) != 0) {
        const uint64_t one = 1;

        /* Fails only when the counter is full, and then it is readable. */
        (void)!write(ring->fd, &one, sizeof(one));
    }
    return BT_OK;
}

void *bt_ring_pop(bt_ring_t *ring)
{
    const uint32_t head =
        atomic_load_explicit(&ring->head, memory_order_relaxed);
    void *item;

    if (atomic_load_explicit(&ring->tail, memory_order_acquire) == head) {
        return NULL;
    }
    item = ring->slots[head & ring->mask];
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
    return item;
}

bool bt_ring_sleep_prepare(bt_ring_t *ring)
{
    atomic_store(&ring->sleeping, 1);
    return atomic_load(&ring->tail) ==
           atomic_load_explicit(&ring->head, memory_order_relaxed);
}

void bt_ring_sleep_done(bt_ring_t *ring)
{
    uint64_t count;

    atomic_store(&ring->sleeping, 0);
    (void)!read(ring->fd, &count, sizeof(count));
}

static void wait_for(bt_ring_t *ring, const struct timespec *timeout)
{
    if (bt_ring_sleep_prepare(ring)) {
        struct pollfd pfd = {.fd = ring->fd, .events = POLLIN};

        (void)ppoll(&pfd, 1, timeout, NULL); /* a signal wakes as well */
    }
    bt_ring_sleep_done(ring);
}

void bt_ring_wait(bt_ring_t *ring, int timeout_ms)
{
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000,
                                     .tv_nsec = timeout_ms % 1000 * 1000000L};

    wait_for(ring, (timeout_ms < 0) ? NULL : &timeout);
}

void bt_ring_wait_us(bt_ring_t *ring, uint64_t timeout_us)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_us / 1000000),
                                     .tv_nsec =
                                         (long)(timeout_us % 1000000) * 1000};

    wait_for(ring, &timeout);
}

int bt_ring_fd(const bt_ring_t *ring)
{
    return ring->fd;
}
