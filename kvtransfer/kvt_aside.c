/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_aside.h"

void bt_kvt_aside_init(bt_kvt_aside_t *aside)
{
    *aside = (bt_kvt_aside_t){.away = false};
    bt_list_init(&aside->writers);
}

void bt_kvt_writer_init(bt_kvt_writer_t *writer)
{
    bt_list_init(&writer->link);
    writer->cpu = 0;
}

uint32_t bt_kvt_aside_here(void)
{
    const int cpu = sched_getcpu();

    return (cpu < 0) ? 0 : (uint32_t)cpu + 1;
}

bool bt_kvt_aside_choose(const bt_kvt_aside_t *aside, const cpu_set_t *allowed,
                         cpu_set_t *set_p)
{
    cpu_set_t set = *allowed;

    for (bt_list_t *pos = aside->writers.next; pos != &aside->writers;
         pos = pos->next) {
        const bt_kvt_writer_t *writer =
            BT_CONTAINER_OF(pos, bt_kvt_writer_t, link);

        CPU_CLR(writer->cpu - 1, &set);
    }
    if ((CPU_COUNT(&set) == 0) || CPU_EQUAL(&set, allowed)) {
        return false;
    }
    *set_p = set;
    return true;
}

static void come_back(bt_kvt_aside_t *aside)
{
    if (aside->away) {
        /* Fails if these were taken from the process meanwhile: then the kernel
         * has chosen others. */
        (void)sched_setaffinity(0, sizeof(aside->before), &aside->before);
        aside->away = false;
    }
}

static void step_aside(bt_kvt_aside_t *aside)
{
    cpu_set_t set;

    if (!aside->away &&
        (sched_getaffinity(0, sizeof(aside->before), &aside->before) != 0)) {
        return;
    }
    if (!bt_kvt_aside_choose(aside, &aside->before, &set)) {
        come_back(aside);
        return;
    }
    if ((!aside->away || !CPU_EQUAL(&set, &aside->now)) &&
        (sched_setaffinity(0, sizeof(set), &set) == 0)) {
        aside->now = set;
        aside->away = true;
    }
}

/* Once away, the thread stays away until the writers are done; otherwise only
 * where it would matter. */
static bool is_in_the_way(const bt_kvt_aside_t *aside)
{
    const uint32_t here = bt_kvt_aside_here();

    for (bt_list_t *pos = aside->writers.next; pos != &aside->writers;
         pos = pos->next) {
        if (BT_CONTAINER_OF(pos, bt_kvt_writer_t, link)->cpu == here) {
            return true;
        }
    }
    return false;
}

void bt_kvt_aside_note(bt_kvt_aside_t *aside, bt_kvt_writer_t *writer,
                       uint32_t cpu)
{
    if (cpu > CPU_SETSIZE) {
        cpu = 0;
    }
    if ((cpu == 0) && (writer->cpu == 0)) {
        return; /* as for all that copy only briefly */
    }
    writer->cpu = cpu;
    if (cpu == 0) {
        bt_list_remove(&writer->link);
    } else if (bt_list_empty(&writer->link)) {
        bt_list_push_back(&aside->writers, &writer->link);
    }
    if (bt_list_empty(&aside->writers)) {
        come_back(aside);
    } else if (aside->away || is_in_the_way(aside)) {
        step_aside(aside);
    }
}
