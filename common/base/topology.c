/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/topology.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

/* Parses cores of "0-3,8"; invalid parts are skipped. */
static void read_list(FILE *file, cpu_set_t *set)
{
    unsigned long first;
    unsigned long last;

    while (fscanf(file, "%9lu", &first) == 1) {
        int c = fgetc(file);

        last = first;
        if (c == '-') {
            if (fscanf(file, "%9lu", &last) != 1) {
                return;
            }
            c = fgetc(file);
        }
        for (; (first <= last) && (first < CPU_SETSIZE); first++) {
            CPU_SET(first, set);
        }
        if (c != ',') {
            return;
        }
    }
}

/* @return false: there is no such file */
static bool read_file(const char *path, cpu_set_t *set)
{
    FILE *file = fopen(path, "r");

    CPU_ZERO(set);
    if (file == NULL) {
        return false;
    }
    read_list(file, set);
    fclose(file);
    return true;
}

void bt_topology_read(const char *dir, bt_topology_t *topology)
{
    memset(topology, 0, sizeof(*topology));
    for (uint32_t node = 0; node < BT_TOPOLOGY_NODES; node++) {
        char path[PATH_MAX];
        cpu_set_t set;

        snprintf(path, sizeof(path), "%s/node%u/cpulist", dir, node);
        if (!read_file(path, &set)) { /* numbers may have gaps */
            continue;
        }
        for (size_t core = 0; core < CPU_SETSIZE; core++) {
            if (CPU_ISSET(core, &set)) {
                topology->node[core] = (uint8_t)node;
            }
        }
    }
}

void bt_topology_read_threads(const char *dir, bt_topology_t *topology)
{
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        char path[PATH_MAX];
        cpu_set_t set;
        size_t first = 0;

        topology->first[core] = 0;
        snprintf(path, sizeof(path), "%s/cpu%zu/topology/thread_siblings_list",
                 dir, core);
        if (!read_file(path, &set) || !CPU_ISSET(core, &set)) {
            continue;
        }
        while (!CPU_ISSET(first, &set)) { /* it ends at core itself */
            first++;
        }
        topology->first[core] = (uint16_t)(first + 1);
    }
}

uint32_t bt_topology_physical(const bt_topology_t *topology, uint32_t core)
{
    return (topology->first[core] > 0) ? topology->first[core] - 1u : core;
}

uint32_t bt_topology_node_of(const bt_topology_t *topology,
                             const uint32_t *cores, uint32_t n)
{
    uint32_t node = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t own =
            (cores[i] < CPU_SETSIZE) ? topology->node[cores[i]] : 0;

        if ((i > 0) && (own != node)) {
            return 0;
        }
        node = own;
    }
    return node;
}

void bt_topology_stay_near(const bt_topology_t *topology, const uint32_t *cores,
                           uint32_t n)
{
    bool is_near[BT_TOPOLOGY_NODES] = {false};
    cpu_set_t set;

    if ((n == 0) || (sched_getaffinity(0, sizeof(set), &set) != 0)) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (cores[i] < CPU_SETSIZE) {
            is_near[topology->node[cores[i]]] = true;
        }
    }
    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        if (!is_near[topology->node[core]]) {
            CPU_CLR(core, &set);
        }
    }
    if ((CPU_COUNT(&set) > 0) &&
        (sched_setaffinity(0, sizeof(set), &set) != 0)) {
        BT_LOG_WARN("cannot bind memory to the NUMA nodes of the cores: %m");
    }
}
