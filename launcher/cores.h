/* SPDX-License-Identifier: Apache-2.0 */
/** @file cores.h  Cores that nobody has yet, so that workers get disjoint ones.
 *  Pure, but for bt_cores_allowed(). */
#ifndef BT_LAUNCHER_CORES_H
#define BT_LAUNCHER_CORES_H

#include <sched.h>
#include <stdint.h>

#include "common/base/strbuf.h"
#include "common/base/topology.h"

typedef struct bt_cores {
    cpu_set_t free;
    cpu_set_t in_use; /**< physical cores of which some thread was taken */
    bt_topology_t topology;
} bt_cores_t;

/** Those that this process may use. */
void bt_cores_allowed(cpu_set_t *allowed);

/** How many are left. */
uint32_t bt_cores_count(const bt_cores_t *cores);

/** How many of those are physical ones: threads of one core count once. */
uint32_t bt_cores_count_physical(const bt_cores_t *cores);

/** Take @a n (there are as many), of one memory node where one has enough, and
 *  append them as "0-3,8". Of each physical core one is taken, and others of
 *  its threads only where there are no more physical cores that nobody has. */
void bt_cores_take(bt_cores_t *cores, uint32_t n, bt_strbuf_t *out);

/** Add the cores of a list that bt_cores_take() wrote. */
void bt_cores_read(const char *list, cpu_set_t *set);

/** Append the cores of @a others that are none of @a own, as "0-3,8": those
 *  near to one of these (of the same memory node) first. */
void bt_cores_write_others(const bt_topology_t *topology, const cpu_set_t *own,
                           const cpu_set_t *others, bt_strbuf_t *out);

#endif
