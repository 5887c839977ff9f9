/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_mem.h
 *
 * A network of several bt_kvt_t within one process and one thread:
 * every message, network piece and direct copy is a *step*, counted from 1,
 * and any step can be made to go wrong.
 *
 *     bt_kvt_mem_net_create(&net);
 *     config.transport = &bt_kvt_transport_mem;
 *     config.transport_arg = net;
 *     bt_kvt_open() × n
 *     bt_kvt_mem_net_fault(net, 7, BT_KVT_MEM_LOSE);
 *     … progress of all in turn …
 *     bt_kvt_close() × n; bt_kvt_mem_net_destroy(net);
 *
 * Rounds are counted per bt_kvt_t, by its calls of progress.
 */
#ifndef BT_TESTS_SUPPORT_KVT_MEM_H
#define BT_TESTS_SUPPORT_KVT_MEM_H

#include <stdbool.h>
#include <stdint.h>

#include "kvtransfer/kvt.h"

typedef struct bt_kvt_mem_net bt_kvt_mem_net_t;

extern const bt_kvt_transport_t bt_kvt_transport_mem;

typedef enum bt_kvt_mem_fault {
    BT_KVT_MEM_NONE,
    BT_KVT_MEM_LOSE,      /**< never arrives (a copy: not made) */
    BT_KVT_MEM_DUPLICATE, /**< arrives twice */
    BT_KVT_MEM_REORDER,   /**< arrives after the one behind it */
    BT_KVT_MEM_DELAY,     /**< it and all behind it: 50 rounds later */
    BT_KVT_MEM_CORRUPT,   /**< one byte altered */
    BT_KVT_MEM_KILL_FROM, /**< its sender dies at this step */
    BT_KVT_MEM_KILL_TO,   /**< its receiver dies at this step */
    BT_KVT_MEM_CUT,       /**< nothing passes from now on, in silence */
    BT_KVT_MEM_N_FAULTS
} bt_kvt_mem_fault_t;

BT_MUST_CHECK bt_status_t bt_kvt_mem_net_create(bt_kvt_mem_net_t **net_p);
/** After all of its bt_kvt_t are closed. NULL is allowed. */
void bt_kvt_mem_net_destroy(bt_kvt_mem_net_t *net);

/** Let @a fault happen at @a step (from 1), once. */
void bt_kvt_mem_net_fault(bt_kvt_mem_net_t *net, uint32_t step,
                          bt_kvt_mem_fault_t fault);
/** After BT_KVT_MEM_CUT: what is sent from now on passes again. */
void bt_kvt_mem_net_heal(bt_kvt_mem_net_t *net);
/** May a bt_kvt_t that is opened from now on have its pool in a device, as with
 *  a UCX that knows such memory? At first; else it is staged where it can. */
void bt_kvt_mem_net_takes_devices(bt_kvt_mem_net_t *net, bool takes);
/** Steps so far. */
uint32_t bt_kvt_mem_net_steps(const bt_kvt_mem_net_t *net);

/** As SIGKILL: it does nothing any more, the others are told, as a pidfd would:
 *  also of links to it that were lost before. Close it as usual. */
void bt_kvt_mem_net_kill(bt_kvt_mem_net_t *net, uint64_t instance);
/** As SIGSTOP and SIGCONT: its progress does nothing meanwhile. */
void bt_kvt_mem_net_stop(bt_kvt_mem_net_t *net, uint64_t instance,
                         bool stopped);
/** @return true when that one was killed (by a fault). */
bool bt_kvt_mem_net_is_dead(const bt_kvt_mem_net_t *net, uint64_t instance);

#endif
