/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/topology.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

/* Cores of "0-3,8" belong to @a node; what is no such list is left out. */
static void read_list(FILE *file, uint8_t node, bt_topology_t *topology)
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
            topology->node[first] = node;
        }
        if (c != ',') {
            return;
        }
    }
}

void bt_topology_read(const char *dir, bt_topology_t *topology)
{
    memset(topology, 0, sizeof(*topology));
    for (uint32_t node = 0; node < BT_TOPOLOGY_NODES; node++) {
        char path[PATH_MAX];
        FILE *file;

        snprintf(path, sizeof(path), "%s/node%u/cpulist", dir, node);
        file = fopen(path, "r");
        if (file != NULL) { /* numbers may have gaps */
            read_list(file, (uint8_t)node, topology);
            fclose(file);
        }
    }
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
        BT_LOG_WARN("cannot stay on the memory nodes of the cores: %m");
    }
}
