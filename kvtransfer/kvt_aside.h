/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_aside.h
 *
 * Keeps the verifying thread off the processors on which senders of this host
 * copy.
 *
 * The kernel usually starts a woken thread near the one that woke it, and
 * where the cores were busy until now it does not even look for an idle one
 * (SIS_UTIL, Linux 6.0). A sender and the verifier that it wakes every few
 * hundred microseconds then take turns on one core: a transfer of 64 MiB from
 * two ranks took 12.5 ms instead of 7, with a core idle. So a PART names the
 * processor of its sender, and the verifier avoids that one, as long as its
 * affinity mask has others. Afterwards the mask is restored.
 */
#ifndef BT_KVTRANSFER_KVT_ASIDE_H
#define BT_KVTRANSFER_KVT_ASIDE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"

/** Affinity state of the verifying thread. */
typedef struct bt_kvt_aside {
    bt_list_t writers; /**< bt_kvt_writer.link */
    cpu_set_t before;  /**< while away: original affinity mask */
    cpu_set_t now;     /**< while away: current affinity mask */
    bool away;
} bt_kvt_aside_t;

/** Sender that is copying into a window. */
typedef struct bt_kvt_writer {
    bt_list_t link;
    uint32_t cpu; /**< processor, from 1 on */
} bt_kvt_writer_t;

void bt_kvt_aside_init(bt_kvt_aside_t *aside);
void bt_kvt_writer_init(bt_kvt_writer_t *writer);

/** Returns the processor of the calling thread, from 1 on; 0: unknown. */
uint32_t bt_kvt_aside_here(void);

/** Records the processor @a cpu on which @a writer goes on copying; 0, or one
 *  out of range: unknown. Only by the verifying thread. */
void bt_kvt_aside_note(bt_kvt_aside_t *aside, bt_kvt_writer_t *writer,
                       uint32_t cpu);

/** Returns the processors of @a allowed without a writer; pure.
 *  @return false: there is none, or no writer is on any of them */
bool bt_kvt_aside_choose(const bt_kvt_aside_t *aside, const cpu_set_t *allowed,
                         cpu_set_t *set_p);

#endif
