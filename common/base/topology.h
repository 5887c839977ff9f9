/* SPDX-License-Identifier: Apache-2.0 */
/** @file topology.h
 *
 * Which cores of this machine share a memory (NUMA node): a thread that
 * computes far from its data waits longer for all of it. And which of what
 * Linux counts as cores are hardware threads of one physical core (SMT): two
 * threads that compute there take about as long as one for all of it.
 */
#ifndef BT_COMMON_BASE_TOPOLOGY_H
#define BT_COMMON_BASE_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

/** Where Linux tells it. */
#define BT_TOPOLOGY_DIR   "/sys/devices/system/node"
#define BT_TOPOLOGY_CPUS  "/sys/devices/system/cpu"
#define BT_TOPOLOGY_NODES 256u

typedef struct bt_topology {
    uint8_t node[CPU_SETSIZE]; /**< of each core; 0 where nobody says */
    /** Of each core the first of its physical core, plus 1; 0: nobody says, it
     *  is one by itself. bt_topology_physical() */
    uint16_t first[CPU_SETSIZE];
} bt_topology_t;

/** Never fails: a machine that does not tell has one node.
 *  @param [in] dir  With node0/cpulist, node1/cpulist, ...: lists as "0-3,8".
 */
void bt_topology_read(const char *dir, bt_topology_t *topology);

/** Read, too, which cores are threads of one. Never fails likewise.
 *  @param [in] dir  With cpu0/topology/thread_siblings_list, ...: lists as
 *                   "0,64" */
void bt_topology_read_threads(const char *dir, bt_topology_t *topology);

/** The core that stands for the physical one of @a core, which is less than
 *  CPU_SETSIZE: the first of its threads. */
uint32_t bt_topology_physical(const bt_topology_t *topology, uint32_t core);

/** The node that all of @a cores (n) are on; 0 where there are none or they are
 *  on several. */
uint32_t bt_topology_node_of(const bt_topology_t *topology,
                             const uint32_t *cores, uint32_t n);

/** Keep the calling thread, and those that it starts, to allowed cores of the
 *  nodes that @a cores (n) are on, so that memory which it touches first lies
 *  there. Without cores, or when the system refuses, nothing changes. */
void bt_topology_stay_near(const bt_topology_t *topology, const uint32_t *cores,
                           uint32_t n);

#endif
