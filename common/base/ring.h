/* SPDX-License-Identifier: Apache-2.0 */
/** @file ring.h
 *
 * Bounded lock-free queue of pointers from one producer thread to one consumer
 * thread, with a file descriptor that wakes a sleeping consumer.
 *
 *     producer: push ── tail →  [ | | |x|x|x| | ]  → head ── consumer: pop
 *
 * A consumer that wants to sleep calls bt_ring_sleep_prepare(); if that returns
 * "empty", it may wait for bt_ring_fd() to become readable. A producer makes a
 * system call only when the consumer has announced that it sleeps.
 */
#ifndef BT_COMMON_BASE_RING_H
#define BT_COMMON_BASE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_ring bt_ring_t;

/**
 * Creates an empty ring.
 * @param [in]  n_slots  Power of two, at least 2.
 * @retval BT_ERR_INVALID_PARAM  n_slots is not a power of two.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO  No event descriptor is left.
 */
BT_MUST_CHECK bt_status_t bt_ring_create(uint32_t n_slots, bt_ring_t **ring_p);

/** Frees the ring. Remaining elements stay the owner's. NULL is allowed. */
void bt_ring_destroy(bt_ring_t *ring);

/** Producer: appends an item. @retval BT_ERR_BUSY  Full; nothing was taken. */
BT_MUST_CHECK bt_status_t bt_ring_push(bt_ring_t *ring, void *item);

/** Consumer: takes the oldest item. @return NULL when empty. */
void *bt_ring_pop(bt_ring_t *ring);

/** Consumer: turns wake-ups on. @return true when the ring is empty and
 *  wake-ups are on. */
bool bt_ring_sleep_prepare(bt_ring_t *ring);

/** Consumer, after waking: turns wake-ups off and drains the descriptor. */
void bt_ring_sleep_done(bt_ring_t *ring);

/** Consumer: blocks until the ring is not empty, or @a timeout_ms passed (-1
 *  = no limit). For threads that wait for nothing else. */
void bt_ring_wait(bt_ring_t *ring, int timeout_ms);
/** Consumer: blocks until the ring is not empty, or @a timeout_us passed. */
void bt_ring_wait_us(bt_ring_t *ring, uint64_t timeout_us);

int bt_ring_fd(const bt_ring_t *ring);

#endif
