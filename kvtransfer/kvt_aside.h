/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_aside.h
 *
 * Keeps the thread that verifies off the processors on which senders of this
 * host copy.
 *
 * Who is woken by a message starts, as a rule, beside who sent it, and where
 * the cores were busy until now the system does not even look for an idle one
 * (SIS_UTIL, Linux 6.0). A sender and the verifier that it wakes every few
 * hundred microseconds then take turns on one core: a hand-over of 64 MiB from
 * two ranks took 12.5 ms and not 7, with a core idle. So a PART says where its
 * sender copies on, and the verifier goes elsewhere, as long as there is an
 * elsewhere among the processors that it may use. Afterwards those are what
 * they were.
 */
#ifndef BT_KVTRANSFER_KVT_ASIDE_H
#define BT_KVTRANSFER_KVT_ASIDE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

/** Of a thread. */
typedef struct bt_kvt_aside {
    bt_list_t writers; /**< bt_kvt_writer.link */
    cpu_set_t before;  /**< while away: what the thread was allowed */
    cpu_set_t now;     /**< while away: what it allows itself */
    bool away;
} bt_kvt_aside_t;

/** A sender that copies; of a window. */
typedef struct bt_kvt_writer {
    bt_list_t link;
    uint32_t cpu; /**< from 1 on */
} bt_kvt_writer_t;

void bt_kvt_aside_init(bt_kvt_aside_t *aside);
void bt_kvt_writer_init(bt_kvt_writer_t *writer);

/** @return the calling thread's processor, from 1 on; 0: unknown */
uint32_t bt_kvt_aside_here(void);

/** @a writer goes on copying on processor @a cpu, or (0, or one that is not to
 *  be told apart) nothing is known of it. Only by the thread that verifies. */
void bt_kvt_aside_note(bt_kvt_aside_t *aside, bt_kvt_writer_t *writer,
                       uint32_t cpu);

/** What of @a allowed no writer is on; pure.
 *  @return false: nothing, or no writer is on any of it */
bool bt_kvt_aside_choose(const bt_kvt_aside_t *aside, const cpu_set_t *allowed,
                         cpu_set_t *set_p);

#endif
