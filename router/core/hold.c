/* SPDX-License-Identifier: Apache-2.0 */
/* Holding back: generations that are submitted meanwhile wait, those that were
 * submitted before run to their ends, retries included. */
#include "router/core/core_priv.h"

void bt_core_hold(bt_core_t *core, uint32_t why)
{
    core->holds |= why;
}

void bt_core_release(bt_core_t *core, uint32_t why, uint64_t now_us)
{
    if (core->holds == 0) {
        return;
    }
    core->holds &= ~why;
    if (core->holds != 0) {
        return;
    }
    core->n_held = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_gen_t, gen, &core->live, live_link) {
        gen->is_held = false;
    }
    core->expected_us = now_us; /* they begin to wait for workers now */
    bt_gen_dispatch_waiting(core, now_us);
}

bool bt_core_holds(const bt_core_t *core)
{
    return core->holds != 0;
}

uint32_t bt_core_n_held(const bt_core_t *core)
{
    return core->n_held;
}

uint32_t bt_core_n_begun(const bt_core_t *core)
{
    return core->n_live - core->n_held;
}

/* When one ends, its client may cancel others, so the list is read from its
 * beginning again. */
static bt_gen_t *first_begun(const bt_core_t *core)
{
    BT_LIST_FOR_EACH_ENTRY(bt_gen_t, gen, &core->live, live_link) {
        if (!gen->is_held) {
            return gen;
        }
    }
    return NULL;
}

void bt_core_end_begun(bt_core_t *core, const char *why, uint64_t now_us)
{
    bt_gen_t *gen;

    while ((gen = first_begun(core)) != NULL) {
        bt_gen_fail(core, gen, 503, now_us, "%s (request was in phase %s)", why,
                    bt_gen_phase_name(gen));
    }
}
