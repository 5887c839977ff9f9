/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_overlap.h
 *
 * Overlapped scheduling: decides whether the host prepares a step while the
 * device still computes the one before:
 *
 *     one by one   device   │ step 1 │       │ step 2 │
 *                  host              │ draw, │
 *                                    │ plan  │
 *     overlapped   device   │ step 1 │ step 2 │ step 3 │
 *                  host     │ plan 2 │ draw 1, plan 3 │ …
 *
 * The device then never waits for the host. But a request that arrives
 * meanwhile waits for one more step, and a sequence that turns out to have
 * ended is computed once in vain: so steps overlap only if the host's part of a
 * step is large enough.
 *
 * Threads: pure.
 * Source:  the overlapped schedulers of SGLang (2024) and TensorRT-LLM (2025),
 *          which do it always.
 */
#ifndef BT_COMMON_SCHED_OVERLAP_H
#define BT_COMMON_SCHED_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bt_sched_overlap_mode {
    BT_SCHED_OVERLAP_AUTO, /**< where it pays */
    BT_SCHED_OVERLAP_ON,   /**< wherever possible */
    BT_SCHED_OVERLAP_OFF,
} bt_sched_overlap_mode_t;

/** Reciprocal of the smallest host share of a step for which steps overlap. */
#define BT_SCHED_OVERLAP_SHARE 64u

/** Measured times. All zero at first. */
typedef struct bt_sched_overlap {
    uint64_t host_ns; /**< recent mean, from the end of one step until the
                           next step, planned after it, begins */
    uint64_t step_ns; /**< duration of the last step; 0: not known */
} bt_sched_overlap_t;

/** Learns the host time: how long after the end of a step the next one
 *  began, with nothing to wait for in between. */
void bt_sched_overlap_learn_host(bt_sched_overlap_t *ahead, uint64_t host_ns);
/** True when the next step should be prepared while the device is busy. */
bool bt_sched_overlap_pays(const bt_sched_overlap_t *ahead,
                           bt_sched_overlap_mode_t mode);

#endif
