/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_overlap.h
 *
 * When a step is worth preparing while the device is at the one before:
 *
 *     one by one   device   │ step 1 │       │ step 2 │
 *                  host              │ draw, │
 *                                    │ plan  │
 *     ahead        device   │ step 1 │ step 2 │ step 3 │
 *                  host     │ plan 2 │ draw 1, plan 3 │ …
 *
 * The device then never waits for the host. But whoever comes meanwhile waits
 * for one step more, and a sequence that turns out to have ended is computed
 * once in vain: so it is done where the host's part is no small part of a step.
 *
 * Threads: pure.
 * Source:  the overlapped schedulers of SGLang (2024) and TensorRT-LLM (2025),
 *          which do it always.
 */
#ifndef BT_COMMON_SCHED_AHEAD_H
#define BT_COMMON_SCHED_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bt_sched_overlap_mode {
    BT_SCHED_OVERLAP_AUTO, /**< where it is worth it */
    BT_SCHED_OVERLAP_ON,   /**< wherever it can be */
    BT_SCHED_OVERLAP_OFF,
} bt_sched_overlap_mode_t;

/** A step is begun ahead where the host's part is at least this share. */
#define BT_SCHED_OVERLAP_SHARE 64u

/** All zero at first. */
typedef struct bt_sched_overlap {
    uint64_t host_ns; /**< mean of late, from the end of one step until the next
                           one that was planned after it is begun */
    uint64_t step_ns; /**< what the last one took; 0: not known */
} bt_sched_overlap_t;

/** A step began so long after the one before had ended, with nothing to wait
 *  for in between. */
void bt_sched_overlap_learn_host(bt_sched_overlap_t *ahead, uint64_t host_ns);
bool bt_sched_overlap_pays(const bt_sched_overlap_t *ahead,
                           bt_sched_overlap_mode_t mode);

#endif
