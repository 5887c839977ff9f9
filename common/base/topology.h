/* SPDX-License-Identifier: Apache-2.0 */
/** @file topology.h
 *
 * Hardware of this machine: NUMA nodes, SMT siblings and GPUs.
 */
#ifndef BT_COMMON_BASE_TOPOLOGY_H
#define BT_COMMON_BASE_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

#include "common/base/text.h"

/*
 * NUMA nodes and SMT siblings of this machine's cores. A thread that computes
 * far from its data waits longer for all of it; two threads on hardware threads
 * of one physical core take about as long as one thread for both.
 */

/** Directory in which Linux lists the nodes. */
#define BT_TOPOLOGY_DIR   "/sys/devices/system/node"
#define BT_TOPOLOGY_CPUS  "/sys/devices/system/cpu"
#define BT_TOPOLOGY_NODES 256u

/** Nodes and SMT siblings of all cores. */
typedef struct bt_topology {
    uint8_t node[CPU_SETSIZE]; /**< node of each core; 0 if unknown */
    /** First core of each core's physical core, plus 1; 0: unknown, the core
     *  counts as a physical one. Read with bt_topology_physical(). */
    uint16_t first[CPU_SETSIZE];
} bt_topology_t;

/**
 * Reads the nodes. Never fails: a machine without the files has one node.
 * @param [in] dir  With node0/cpulist, node1/cpulist, ...: lists as "0-3,8".
 */
void bt_topology_read(const char *dir, bt_topology_t *topology);

/**
 * Reads which cores are hardware threads of one physical core. Never fails:
 * without the files each core counts as a physical one.
 * @param [in] dir  With cpu0/topology/thread_siblings_list, ...: lists as
 *                  "0,64"
 */
void bt_topology_read_threads(const char *dir, bt_topology_t *topology);

/** Returns the first core of the physical core of @a core, which is less
 *  than CPU_SETSIZE. */
uint32_t bt_topology_physical(const bt_topology_t *topology, uint32_t core);

/** Returns the node of all of @a cores (n); 0 if there are none or they are
 *  on several nodes. */
uint32_t bt_topology_node_of(const bt_topology_t *topology,
                             const uint32_t *cores, uint32_t n);

/** Restricts the calling thread, and threads that it creates, to allowed
 *  cores of the nodes of @a cores (n), so that memory which it touches first
 *  is on those nodes. Without cores, or when the system refuses, nothing
 *  changes. */
void bt_topology_stay_near(const bt_topology_t *topology, const uint32_t *cores,
                           uint32_t n);

/*
 * GPUs of this machine: the launcher assigns them to its workers, and a worker
 * to its ranks. Names are those of CUDA_VISIBLE_DEVICES: numbers, "GPU-…", or
 * "MIG-…" for a part of one; only CUDA interprets them.
 *
 * Source: NVIDIA, "CUDA C++ Programming Guide", Environment Variables; "MIG
 *          User Guide", Device Enumeration.
 */

/** Directory in which Linux has a file for each GPU: nvidia0, nvidia1 … */
#define BT_DEVICES_DIR "/dev"

/** List of GPUs. */
typedef struct bt_devices {
    bt_strbuf_t names; /**< owned; each with its zero */
    uint32_t n;
} bt_devices_t;

/**
 * Lists the GPUs.
 *
 * @param [in] asked    The operator's list; "": none.
 * @param [in] visible  CUDA_VISIBLE_DEVICES, or NULL; used if @a asked is
 *                      empty. As in CUDA, entries count up to the first invalid
 *                      one.
 * @param [in] dir      Directory whose GPUs are counted if neither is given.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_devices_find(const char *asked,
                                          const char *visible, const char *dir,
                                          bt_devices_t *devices_p);
void bt_devices_fini(bt_devices_t *devices);

/** Appends @a n names (the list is not empty), from number @a first on,
 *  comma-separated, wrapping around at the end of the list. */
void bt_devices_deal(const bt_devices_t *devices, uint32_t first, uint32_t n,
                     bt_strbuf_t *out);

#endif
