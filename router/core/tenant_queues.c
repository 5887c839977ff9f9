/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: their waiting generations, and how much work of each may be sent
 * ahead to the workers. Workers do not know tenants: they order requests by
 * level and arrival. So with several tenants in force at most
 *
 *     prompts that are not computed    AHEAD_US of each prefill worker's time
 *     generations                      the seats, and AHEAD_SEATS for each
 *                                      decode worker
 *
 * are sent ahead, shared among the waiting tenants by their weights. More is
 * not needed to keep workers busy: the router is notified of each finished
 * prompt, and sends the next. And
 *
 * - a tenant that has had less, by its weight, than another with prompts at a
 *   worker is sent there with the top level, so before all of those but the
 *   current iteration; all others with level 0. A client's priority only orders
 *   the waiting requests of its own tenant, and takes nothing from others.
 * - the last eighth of the seats is reserved for tenants that have less than an
 *   eighth.
 *
 * A flow that begins to wait is placed beside the oldest prompt at a worker,
 * not behind all that were sent (bt_sched_fair_wait_since()). */
#include "router/core/core_priv.h"

#include "common/base/alloc.h"

/* At least ten times the delay until the next one arrives. Larger work is sent
 * alone. */
#define AHEAD_US     100000u
#define AHEAD_SEATS  4u
#define KEPT_SEATS   8u        /* one of this many is reserved */
#define OUTPUT_SHARE 0.1       /* weight of the newest in a flow's mean */
#define OUTPUT_HALF  30000000u /* us: half-life of the mean */
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

/* Frees flows that have no generations and owe nothing; above MANY_FLOWS also
 * those that owe something. */
static void sweep(bt_core_t *core)
{
    const bool all = core->n_flows >= MANY_FLOWS;
    bt_list_t *head;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_core_flow_t, flow, head, by_id) {
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
    bt_hmap_insert(&core->flows, id, &flow->by_id); /* ids are sequential */
    core->n_flows++;
    return flow;
}

bt_status_t bt_flow_ref(bt_core_t *core, const bt_gen_tenant_t *tenant,
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

void bt_flow_unref(bt_core_t *core, bt_core_flow_t *flow)
{
    flow->n_gens--;
    if (--core->n_gens == 0) { /* nothing is owed any more */
        bt_flow_free_all(core);
        bt_sched_fair_init(&core->fair);
    }
}

void bt_flow_free_all(bt_core_t *core)
{
    bt_list_t *head;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_core_flow_t, flow, head, by_id) {
            flow_free(core, flow);
        }
    }
}

/* ---- who waits ---- */

/* True when the prompt of a leg is still to be computed. */
static bool is_computing(const bt_leg_t *leg)
{
    return (leg->state == BT_LEG_IS_COMPUTING) && (leg->prefill_tokens > 0);
}

static uint64_t oldest_tag(const bt_core_t *core)
{
    const bt_list_t *workers = &core->table.workers;
    uint64_t oldest = UINT64_MAX;

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers, link) {
        BT_LIST_FOR_EACH_ENTRY(const bt_leg_t, leg, &worker->legs, link) {
            if (is_computing(leg) && (leg->gen->tag < oldest)) {
                oldest = leg->gen->tag;
            }
        }
    }
    return oldest;
}

uint32_t bt_flow_level(const bt_core_t *core, const bt_gen_t *gen,
                       const bt_instance_t *worker)
{
    if (!core->config.has_tenants) {
        return gen->turn.priority;
    }
    BT_LIST_FOR_EACH_ENTRY(const bt_leg_t, leg, &worker->legs, link) {
        if (is_computing(leg) && (leg->gen->flow != gen->flow) &&
            (gen->flow->fair.time < leg->gen->flow->fair.time)) {
            return BT_SCHED_TOP_LEVEL;
        }
    }
    return 0;
}

void bt_flow_enqueue(bt_core_t *core, bt_gen_t *gen, bt_worker_need_t need)
{
    bt_core_flow_t *flow = gen->flow;

    bt_sched_queue_insert(&flow->waiting[need], &gen->turn);
    if (flow->n_waiting++ == 0) {
        bt_sched_fair_wait_since(&core->fair, &flow->fair,
                                 core->config.has_tenants ? oldest_tag(core)
                                                          : UINT64_MAX);
    }
}

void bt_flow_dequeue(bt_core_t *core, bt_gen_t *gen)
{
    bt_core_flow_t *flow = gen->flow;

    bt_list_remove(&gen->turn.link);
    if (--flow->n_waiting == 0) {
        bt_sched_fair_rest(&core->fair, &flow->fair);
    }
}

/* ---- work ---- */

static bt_sched_charge_t piece_of(const bt_gen_t *gen, uint32_t n_cached,
                                  uint32_t n_new)
{
    return (bt_sched_charge_t){
        .n_cached = n_cached,
        .n_prompt = gen->shares_prompt ? 0 : gen->prompt->n,
        .n_context = gen->prompt->n,
        .n_new = n_new * bt_gen_seats(gen),
    };
}

/* Returns the expected number of output tokens, from earlier answers. */
static uint32_t expected_output(const bt_core_t *core, const bt_gen_t *gen)
{
    const double mean = (gen->flow->mean_output > 0) ? gen->flow->mean_output
                                                     : core->mean_output;

    return ((mean > 0) && (mean < (double)gen->max_new)) ? (uint32_t)(mean + 1)
                                                         : gen->max_new;
}

/* A retry is not charged: the workers caused it. */
void bt_flow_charge(bt_core_t *core, bt_gen_t *gen, bool leads)
{
    bt_sched_charge_t piece;

    if (gen->charged > 0) {
        return;
    }
    gen->shares_prompt = !leads;
    gen->expected_new = expected_output(core, gen);
    gen->tag = gen->flow->fair.time;
    piece = piece_of(gen, 0, gen->expected_new);
    gen->charged = bt_sched_token_cost_of(&core->price, &piece);
    bt_sched_fair_charge(&core->fair, &gen->flow->fair, gen->charged);
}

void bt_flow_settle(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    const bt_sched_charge_t expected = piece_of(gen, 0, gen->expected_new);
    const bt_sched_charge_t was =
        piece_of(gen, gen->ledger.n_cached, gen->n_output);
    bt_core_flow_t *flow = gen->flow;
    uint64_t done;

    if (gen->charged == 0) { /* it was never sent */
        return;
    }
    done = bt_sched_token_cost_settled(&core->price, gen->charged, &expected,
                                       &was);
    if (gen->charged > done) {
        bt_sched_fair_refund(&core->fair, &flow->fair, gen->charged - done);
    } else {
        bt_sched_fair_add(&core->fair, &flow->fair, done - gen->charged);
    }
    if (gen->n_output > 0) {
        const double share = bt_sched_age_share(
            OUTPUT_SHARE, bt_sched_age_us(flow->ended_at_us, now_us),
            OUTPUT_HALF);

        flow->mean_output += ((flow->mean_output > 0) ? share : 1) *
                             ((double)gen->n_output - flow->mean_output);
        flow->ended_at_us = now_us;
    }
}

/* ---- limits ---- */

void bt_flow_capacity_read(const bt_core_t *core,
                           bt_flow_capacity_t *capacity_p)
{
    const bt_list_t *workers = &core->table.workers;

    *capacity_p =
        (bt_flow_capacity_t){.need = {.tokens_per_block = 1, .span_blocks = 1}};
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, workers, link) {
        const bt_sched_worker_t *sched = &worker->sched;

        if (sched->health != BT_SCHED_UP) {
            continue;
        }
        if ((sched->roles & (BT_SCHED_PREFILL | BT_SCHED_LOCAL)) != 0) {
            capacity_p->n_prefill++;
        }
        if ((sched->roles & BT_SCHED_DECODE) != 0) {
            capacity_p->n_decode++;
            capacity_p->seats += sched->max_seats;
            capacity_p->blocks += sched->n_blocks;
            capacity_p->need = bt_kv_need_of(&worker->hello);
        }
    }
}

/* Counts for any worker: all workers of a model store KV alike. */
static uint64_t blocks_of(const bt_gen_t *gen,
                          const bt_flow_capacity_t *capacity)
{
    return bt_gen_blocks(gen, &capacity->need);
}

bool bt_flow_is_limited(const bt_core_t *core, const bt_gen_t *gen,
                        const bt_flow_capacity_t *capacity)
{
    const bt_core_flow_t *flow = gen->flow;
    uint64_t seats, kept;

    if (!core->config.has_tenants) {
        return false;
    }
    /* A flow with nothing in progress is never limited. */
    if ((flow->prefill_us > 0) &&
        (flow->prefill_us >=
         bt_sched_fair_share(&core->fair, &flow->fair,
                             capacity->n_prefill * AHEAD_US))) {
        return true;
    }
    if (flow->seats == 0) {
        return false;
    }
    kept = capacity->seats / KEPT_SEATS;
    if ((kept > 0) && (flow->seats > kept) &&
        (core->n_seats + kept >=
         capacity->seats + capacity->n_decode * AHEAD_SEATS)) {
        return true;
    }
    seats =
        capacity->seats + bt_sched_fair_share(&core->fair, &flow->fair,
                                              capacity->n_decode * AHEAD_SEATS);
    if (flow->seats >= seats) {
        return true;
    }
    return (flow->kv_percent < 100) &&
           ((flow->blocks + blocks_of(gen, capacity)) * 100 >
            capacity->blocks * flow->kv_percent);
}
