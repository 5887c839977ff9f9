/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: those of theirs that wait, and what they may have ahead of others at
 * the workers. There nobody's turn can change any more, so with several tenants
 * in force
 *
 *     prompts that are not computed    AHEAD_TOKENS for each prefill worker:
 *                                      its iteration and the next one
 *     generations                      the seats, and AHEAD_SEATS for each
 *                                      decode worker
 *
 * are sent, each tenant's share of what is ahead by its weight among those that
 * wait. More is not needed to keep workers busy: the router hears of each
 * prompt that is done, and sends the next. */
#include "router/core/core_priv.h"

#include "common/base/alloc.h"
#include "common/base/assert.h"

#define AHEAD_TOKENS 1024u
#define AHEAD_SEATS  4u
#define MANY_FLOWS   2048u

/* ---- birth and end ---- */

static bool is_flow(bt_list_t *link, const void *id)
{
    return BT_CONTAINER_OF(link, bt_core_flow_t, by_id)->id ==
           *(const uint64_t *)id;
}

static void flow_free(bt_core_t *core, bt_core_flow_t *flow)
{
    bt_list_remove(&flow->by_id);
    bt_free(flow);
    core->n_flows--;
}

/* Those that have nothing here and owe nothing; of too many also those that owe
 * something. */
static void sweep(bt_core_t *core)
{
    const bool all = core->n_flows >= MANY_FLOWS;
    bt_list_t *head, *pos, *tmp;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            bt_core_flow_t *flow = BT_CONTAINER_OF(pos, bt_core_flow_t, by_id);

            if ((flow->n_gens == 0) &&
                (all || bt_sched_fair_is_even(&core->fair, &flow->fair))) {
                flow_free(core, flow);
            }
        }
    }
}

static bt_core_flow_t *flow_new(bt_core_t *core, uint64_t id)
{
    bt_core_flow_t *flow = bt_calloc(1, sizeof(*flow));

    if (flow == NULL) {
        return NULL;
    }
    flow->id = id;
    bt_sched_flow_init(&flow->fair, 1);
    for (unsigned i = 0; i < BT_NEED_N; i++) {
        bt_list_init(&flow->waiting[i]);
    }
    bt_hmap_insert(&core->flows, id, &flow->by_id); /* ids are counted up */
    core->n_flows++;
    return flow;
}

bt_status_t bt_flow_hold(bt_core_t *core, const bt_gen_tenant_t *tenant,
                         bt_core_flow_t **flow_p)
{
    bt_list_t *link =
        bt_hmap_find(&core->flows, tenant->id, is_flow, &tenant->id);
    bt_core_flow_t *flow;

    if (link == NULL) {
        sweep(core);
        flow = flow_new(core, tenant->id);
        if (flow == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    } else {
        flow = BT_CONTAINER_OF(link, bt_core_flow_t, by_id);
    }
    bt_sched_fair_set_weight(&core->fair, &flow->fair, tenant->weight);
    flow->kv_percent = ((tenant->kv_percent == 0) || (tenant->kv_percent > 100))
                           ? 100
                           : tenant->kv_percent;
    flow->n_gens++;
    core->n_gens++;
    *flow_p = flow;
    return BT_OK;
}

void bt_flow_drop(bt_core_t *core, bt_core_flow_t *flow)
{
    flow->n_gens--;
    if (--core->n_gens == 0) { /* nobody owes anything to nobody */
        bt_flow_free_all(core);
        bt_sched_fair_init(&core->fair);
    }
}

void bt_flow_free_all(bt_core_t *core)
{
    bt_list_t *head, *pos, *tmp;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            flow_free(core, BT_CONTAINER_OF(pos, bt_core_flow_t, by_id));
        }
    }
}

/* ---- who waits ---- */

void bt_flow_wait(bt_core_t *core, bt_gen_t *gen, bt_need_t need)
{
    bt_core_flow_t *flow = gen->flow;

    bt_sched_queue_insert(&flow->waiting[need], &gen->turn);
    if (flow->n_waiting++ == 0) {
        bt_sched_fair_wait(&core->fair, &flow->fair);
    }
}

void bt_flow_rest(bt_core_t *core, bt_gen_t *gen)
{
    bt_core_flow_t *flow = gen->flow;

    bt_list_remove(&gen->turn.link);
    if (--flow->n_waiting == 0) {
        bt_sched_fair_rest(&core->fair, &flow->fair);
    }
}

/* ---- work ---- */

static uint64_t work_of(const bt_core_t *core, uint64_t n_prompt,
                        uint64_t n_new)
{
    const bt_sched_price_t *price = (core->config.price != NULL)
                                        ? core->config.price
                                        : &bt_sched_price_tokens;

    return price->work(price->ctx, n_prompt, n_new);
}

/* A re-run is nobody's fault but the workers'. */
void bt_flow_charge(bt_core_t *core, bt_gen_t *gen, bool leads)
{
    if (gen->charged > 0) {
        return;
    }
    gen->charged = work_of(core, leads ? gen->prompt->n : 0, gen->max_new);
    gen->charged += (gen->charged == 0) ? 1 : 0;
    gen->shares_prompt = !leads;
    bt_sched_fair_charge(&core->fair, &gen->flow->fair, gen->charged);
}

void bt_flow_settle(bt_core_t *core, bt_gen_t *gen)
{
    const uint32_t n_cached = gen->ledger.n_cached;
    const uint32_t n_prompt =
        (gen->shares_prompt || (n_cached > gen->prompt->n))
            ? 0
            : gen->prompt->n - n_cached;
    const uint64_t done = work_of(core, n_prompt, gen->n_output);

    if (gen->charged > done) {
        bt_sched_fair_refund(&core->fair, &gen->flow->fair,
                             gen->charged - done);
    }
}

/* ---- limits ---- */

void bt_flow_room_read(const bt_core_t *core, bt_flow_room_t *room_p)
{
    const bt_list_t *workers = &core->table.workers;

    *room_p = (bt_flow_room_t){.tokens_per_block = 1};
    for (bt_list_t *at = workers->next; at != workers; at = at->next) {
        const bt_instance_t *worker = BT_CONTAINER_OF(at, bt_instance_t, link);
        const bt_sched_worker_t *sched = &worker->sched;

        if (sched->health != BT_SCHED_UP) {
            continue;
        }
        if ((sched->roles & (BT_SCHED_PREFILL | BT_SCHED_LOCAL)) != 0) {
            room_p->n_prefill++;
        }
        if ((sched->roles & BT_SCHED_DECODE) != 0) {
            room_p->n_decode++;
            room_p->seats += sched->max_seats;
            room_p->blocks += sched->n_blocks;
            room_p->tokens_per_block = worker->hello.tokens_per_block;
        }
    }
}

static uint64_t blocks_of(const bt_gen_t *gen, uint32_t tokens_per_block)
{
    const uint64_t n = (uint64_t)gen->prompt->n + gen->max_new;

    return (n + tokens_per_block - 1) / tokens_per_block;
}

bool bt_flow_is_limited(const bt_core_t *core, const bt_gen_t *gen,
                        const bt_flow_room_t *room)
{
    const bt_core_flow_t *flow = gen->flow;
    uint64_t seats;

    if (!core->config.has_tenants) {
        return false;
    }
    /* Who has nothing is never kept from having something. */
    if ((flow->prefill_tokens > 0) &&
        (flow->prefill_tokens >=
         bt_sched_fair_share(&core->fair, &flow->fair,
                             room->n_prefill * AHEAD_TOKENS))) {
        return true;
    }
    if (flow->seats == 0) {
        return false;
    }
    seats = room->seats + bt_sched_fair_share(&core->fair, &flow->fair,
                                              room->n_decode * AHEAD_SEATS);
    if (flow->seats >= seats) {
        return true;
    }
    return (flow->kv_percent < 100) &&
           ((flow->blocks + blocks_of(gen, room->tokens_per_block)) * 100 >
            room->blocks * flow->kv_percent);
}
