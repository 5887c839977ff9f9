/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/topology.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
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
    BT_CLEANUP(fclose) FILE *const file = fopen(path, "r");

    CPU_ZERO(set);
    if (file == NULL) {
        return false;
    }
    read_list(file, set);
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

#define NAMES_BYTES 65536

static void add(bt_devices_t *devices, const char *name, size_t len)
{
    bt_strbuf_append(&devices->names, name, len);
    bt_strbuf_append(&devices->names, "", 1);
    devices->n++;
}

/* "-1", an invalid entry, hides itself and all entries after it. */
static bool is_device(const char *name, size_t len)
{
    return (len > 0) && (name[0] != '-');
}

static void read_names(const char *list, bt_devices_t *devices)
{
    for (;;) {
        const char *const end = strchrnul(list, ',');
        const size_t before = strspn(list, " ");
        size_t len = (size_t)(end - list);

        len = (before < len) ? len - before : 0;
        while ((len > 0) && (list[before + len - 1] == ' ')) {
            len--;
        }
        if (!is_device(list + before, len)) {
            return;
        }
        add(devices, list + before, len);
        if (*end == '\0') {
            return;
        }
        list = end + 1;
    }
}

static bool is_gpu_file(const char *name)
{
    static const char stem[] = "nvidia";
    const char *const number = name + sizeof(stem) - 1;

    return (strncmp(name, stem, sizeof(stem) - 1) == 0) &&
           (number[0] != '\0') &&
           (number[strspn(number, "0123456789")] == '\0');
}

/* CUDA numbers devices from 0, whatever their files are called. */
static void count_files(const char *path, bt_devices_t *devices)
{
    BT_CLEANUP(closedir) DIR *const dir = opendir(path);
    const struct dirent *entry;
    char number[16];

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (is_gpu_file(entry->d_name)) {
            snprintf(number, sizeof(number), "%u", devices->n);
            add(devices, number, strlen(number));
        }
    }
}

bt_status_t bt_devices_find(const char *asked, const char *visible,
                            const char *dir, bt_devices_t *devices_p)
{
    bt_devices_t devices = {0};
    bt_status_t status;

    bt_strbuf_init(&devices.names, NAMES_BYTES);
    if (asked[0] != '\0') {
        read_names(asked, &devices);
    } else if (visible != NULL) {
        read_names(visible, &devices);
    } else {
        count_files(dir, &devices);
    }
    status = bt_strbuf_status(&devices.names);
    if (status != BT_OK) {
        bt_devices_fini(&devices);
        return status;
    }
    *devices_p = devices;
    return BT_OK;
}

void bt_devices_fini(bt_devices_t *devices)
{
    bt_strbuf_fini(&devices->names);
    devices->n = 0;
}

static const char *name_of(const bt_devices_t *devices, uint32_t i)
{
    const char *name = devices->names.data;

    for (; i > 0; i--) {
        name += strlen(name) + 1;
    }
    return name;
}

void bt_devices_deal(const bt_devices_t *devices, uint32_t first, uint32_t n,
                     bt_strbuf_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_puts(out, (i == 0) ? "" : ",");
        bt_strbuf_puts(out, name_of(devices, (first + i) % devices->n));
    }
}
