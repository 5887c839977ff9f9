/* SPDX-License-Identifier: Apache-2.0 */
/** @file cores.h  Allocates disjoint sets of cores to workers. Pure, but for
 *  bt_cores_allowed(). */
#ifndef BT_LAUNCHER_CORES_H
#define BT_LAUNCHER_CORES_H

#include <sched.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/base/topology.h"

typedef struct bt_cores {
    cpu_set_t free;
    cpu_set_t in_use; /**< physical cores with a thread in use */
    bt_topology_t topology;
} bt_cores_t;

/** Reads the cores that this process may use. */
void bt_cores_allowed(cpu_set_t *allowed);

/** Returns the number of free cores. */
uint32_t bt_cores_count(const bt_cores_t *cores);

/** Returns the number of free physical cores; threads of a core count once. */
uint32_t bt_cores_count_physical(const bt_cores_t *cores);

/** Takes @a n cores (there are as many), from one NUMA node where one has
 *  enough, and appends them as "0-3,8". Takes one thread of each physical core,
 *  and others only when no physical core is entirely free. */
void bt_cores_take(bt_cores_t *cores, uint32_t n, bt_strbuf_t *out);

/** Adds the cores of a list that bt_cores_take() wrote. */
void bt_cores_read(const char *list, cpu_set_t *set);

/** Appends the cores of @a others that are not in @a own, as "0-3,8": cores
 *  near to @a own (on the same NUMA node) first. */
void bt_cores_write_others(const bt_topology_t *topology, const cpu_set_t *own,
                           const cpu_set_t *others, bt_strbuf_t *out);

#endif
