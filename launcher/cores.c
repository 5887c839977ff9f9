/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cores.h"

#include <unistd.h>

#include <stdbool.h>
#include <stdlib.h>

void bt_cores_allowed(cpu_set_t *allowed)
{
    CPU_ZERO(allowed);
    if (sched_getaffinity(0, sizeof(*allowed), allowed) != 0) {
        /* The kernel has more cores than the set holds: count on those in the
         * set. */
        const long online = sysconf(_SC_NPROCESSORS_ONLN);

        for (size_t i = 0; (i < CPU_SETSIZE) && ((long)i < online); i++) {
            CPU_SET(i, allowed);
        }
    }
}

uint32_t bt_cores_count(const bt_cores_t *cores)
{
    return (uint32_t)CPU_COUNT(&cores->free);
}

/* One thread of each physical core that is entirely free as far as we know. A
 * core with a thread in use elsewhere counts as shared. */
static void whole_cores(const bt_cores_t *cores, cpu_set_t *set)
{
    cpu_set_t seen;

    CPU_ZERO(&seen);
    CPU_ZERO(set);
    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        const uint32_t physical = bt_topology_physical(&cores->topology, core);

        if (CPU_ISSET(core, &cores->free) && !CPU_ISSET(physical, &seen) &&
            !CPU_ISSET(physical, &cores->in_use)) {
            CPU_SET(physical, &seen);
            CPU_SET(core, set);
        }
    }
}

uint32_t bt_cores_count_physical(const bt_cores_t *cores)
{
    cpu_set_t whole;

    whole_cores(cores, &whole);
    return (uint32_t)CPU_COUNT(&whole);
}

/* As "0-3,8". */
static void write_cores(const cpu_set_t *set, bt_strbuf_t *out)
{
    const char *separator = "";

    for (size_t first = 0; first < CPU_SETSIZE; first++) {
        size_t last = first;

        if (!CPU_ISSET(first, set)) {
            continue;
        }
        while ((last + 1 < CPU_SETSIZE) && CPU_ISSET(last + 1, set)) {
            last++;
        }
        if (last == first) {
            bt_strbuf_printf(out, "%s%zu", separator, first);
        } else {
            bt_strbuf_printf(out, "%s%zu-%zu", separator, first, last);
        }
        separator = ",";
        first = last;
    }
}

/* The NUMA node that n cores of a set fit into most tightly; if there is none,
 * the one with the most of them, so that the worker spans few nodes. */
static uint32_t best_node(const bt_topology_t *topology, const cpu_set_t *set,
                          uint32_t n)
{
    uint32_t n_free[BT_TOPOLOGY_NODES] = {0};
    uint32_t best = 0;

    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, set)) {
            n_free[topology->node[core]]++;
        }
    }
    for (uint32_t node = 1; node < BT_TOPOLOGY_NODES; node++) {
        const bool fits = (n_free[node] >= n);

        if ((n_free[best] >= n) ? (fits && (n_free[node] < n_free[best]))
                                : (n_free[node] > n_free[best])) {
            best = node;
        }
    }
    return best;
}

void bt_cores_take(bt_cores_t *cores, uint32_t n, bt_strbuf_t *out)
{
    cpu_set_t taken;

    CPU_ZERO(&taken);
    while ((n > 0) && (CPU_COUNT(&cores->free) > 0)) {
        cpu_set_t set;
        uint32_t node;

        whole_cores(cores, &set);
        if (CPU_COUNT(&set) == 0) {
            set = cores->free;
        }
        node = best_node(&cores->topology, &set, n);
        for (uint32_t core = 0; (core < CPU_SETSIZE) && (n > 0); core++) {
            if (CPU_ISSET(core, &set) && (cores->topology.node[core] == node)) {
                CPU_CLR(core, &cores->free);
                CPU_SET(bt_topology_physical(&cores->topology, core),
                        &cores->in_use);
                CPU_SET(core, &taken);
                n--;
            }
        }
    }
    write_cores(&taken, out);
}

void bt_cores_read(const char *list, cpu_set_t *set)
{
    while (*list != '\0') {
        char *end = NULL;
        const size_t first = strtoul(list, &end, 10);
        const size_t last = (*end == '-') ? strtoul(end + 1, &end, 10) : first;

        for (size_t core = first; core <= last; core++) {
            CPU_SET(core, set); /* checks its bounds */
        }
        list = (*end == ',') ? end + 1 : end;
    }
}

void bt_cores_write_others(const bt_topology_t *topology, const cpu_set_t *own,
                           const cpu_set_t *others, bt_strbuf_t *out)
{
    bool is_near[BT_TOPOLOGY_NODES] = {false};
    cpu_set_t near;
    cpu_set_t far;

    CPU_ZERO(&near);
    CPU_ZERO(&far);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, own)) {
            is_near[topology->node[core]] = true;
        }
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, others) && !CPU_ISSET(core, own)) {
            CPU_SET(core, is_near[topology->node[core]] ? &near : &far);
        }
    }
    write_cores(&near, out);
    if ((CPU_COUNT(&near) > 0) && (CPU_COUNT(&far) > 0)) {
        bt_strbuf_puts(out, ",");
    }
    write_cores(&far, out);
}
