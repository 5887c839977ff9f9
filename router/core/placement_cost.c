/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether a prompt is computed at the decode worker (sched_slo.h),
 * from the work in progress at both workers and their cached prefixes. */
#include "router/core/core_priv.h"

/* ---- what workers have ---- */

static bool keeps_prompts(const bt_instance_t *worker)
{
    return (worker->hello.flags & BT_HELLO_KEEPS_PROMPTS) != 0;
}

/* Key of a worker's life, and of the current generation of estimates. */
static uint64_t estimate_key(const bt_instance_t *worker)
{
    const uint64_t of[] = {worker->hello.instance, worker->n_forgot};

    return bt_hash64(of, sizeof(of), 0);
}

static uint32_t held_at(const bt_core_t *core, const bt_instance_t *worker,
                        const bt_gen_t *gen, const uint32_t *tokens)
{
    if (!keeps_prompts(worker)) {
        return 0;
    }
    /* The last token is always computed: the answer begins there. */
    return bt_sched_prefix_estimate_find(
        &core->held, estimate_key(worker), gen->space, tokens,
        bt_gen_n_tokens(gen) - 1, worker->hello.tokens_per_block);
}

void bt_core_held_was(bt_leg_t *leg, uint32_t n_cached)
{
    if (n_cached < leg->n_held) {
        leg->worker->n_forgot++;
    }
}

static bool has_weighed(const bt_core_t *core)
{
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &core->table.workers,
                           link) {
        if ((worker->sched.roles & BT_SCHED_WEIGHED) != 0) {
            return true;
        }
    }
    return false;
}

void bt_core_held_now(bt_core_t *core, const bt_leg_t *leg)
{
    const bt_gen_t *gen = leg->gen;

    if (keeps_prompts(leg->worker) && has_weighed(core)) {
        bt_sched_prefix_estimate_add(&core->held, estimate_key(leg->worker),
                                     gen->space, gen->prompt->tokens,
                                     gen->prompt->n,
                                     leg->worker->hello.tokens_per_block);
    }
}

/* ---- who generates there ---- */

typedef struct batch {
    uint32_t n;
    bool is_promised; /* one of them has an ITL target */
} batch_t;

static batch_t batch_of(const bt_instance_t *worker)
{
    batch_t batch = {0};

    BT_LIST_FOR_EACH_ENTRY(const bt_leg_t, leg, &worker->legs, link) {
        const bt_attempt_state_t state = leg->gen->attempt.state;

        if ((leg->part != BT_PART_PREFILL) && bt_leg_is_current(leg) &&
            ((state == BT_ATTEMPT_IS_JOINED) ||
             (state == BT_ATTEMPT_IS_DECODE))) {
            batch.n++;
            batch.is_promised =
                batch.is_promised || (leg->gen->target.itl_ms > 0);
        }
    }
    return batch;
}

void bt_core_count_others(bt_instance_t *worker)
{
    const uint32_t ours = batch_of(worker).n;
    const uint32_t all = worker->stats.generation_requests;
    const uint32_t most = worker->hello.max_batch;

    worker->n_others = (all > ours) ? all - ours : 0;
    worker->n_others = (worker->n_others < most) ? worker->n_others : most;
}

/* ---- the two ways ---- */

static bt_sched_site_t site_of(const bt_core_t *core,
                               const bt_instance_t *worker, const bt_gen_t *gen,
                               const uint32_t *tokens)
{
    const bt_sched_rates_t *own = &worker->stats.rates;

    return (bt_sched_site_t){
        .rates = (bt_sched_rates_prompt_us(own, 1, 1) > 0) ? *own : core->rates,
        .ahead_us = bt_core_ahead_at(worker, &gen->turn).us,
        .n_held = held_at(core, worker, gen, tokens),
    };
}

/* Returns the bytes of the blocks for @a n_tokens, in the pools of all ranks.
 */
static uint64_t kv_bytes(const bt_instance_t *worker, uint32_t n_tokens)
{
    const bt_msg_hello_t *hello = &worker->hello;
    const bt_kv_need_t need = bt_kv_need_of(hello);
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < hello->n_ranks; i++) {
        bytes += hello->ranks[i].block_bytes;
    }
    return bt_kv_need_blocks(&need, n_tokens) * bytes;
}

/* Starts the clocks of workers that have no weighed prompts yet. */
static void note_first_weighed(bt_instance_t *p, bt_instance_t *d,
                               uint64_t now_us)
{
    p->away_at_us = (p->away_at_us != 0) ? p->away_at_us : now_us;
    d->here_at_us = (d->here_at_us != 0) ? d->here_at_us : now_us;
}

void bt_core_weigh(const bt_core_t *core, const bt_gen_t *gen,
                   const uint32_t *tokens, uint64_t now_us, bt_pick_t *pick,
                   bt_core_held_t *held_p)
{
    bt_instance_t *p = pick->prefill, *d = pick->weighed;
    const batch_t batch = batch_of(d);
    bt_sched_disagg_t local = {
        .n_tokens = bt_gen_n_tokens(gen),
        .chunk_tokens = BT_SCHED_RATES_CHUNK,
        .away = site_of(core, p, gen, tokens),
        .here = site_of(core, d, gen, tokens),
        .transfer_rates = p->stats.rates,
        .batch_rates = d->stats.rates,
        .n_running = batch.n + d->n_others,
        .n_before = bt_core_ahead_at(d, &gen->turn).n,
        .is_promised = batch.is_promised,
        .is_static = (d->hello.flags & BT_HELLO_STATIC_BATCHES) != 0,
        .context_tokens = bt_core_mean_context(core),
    };
    bt_sched_disagg_times_t ways;
    bt_core_held_t held = {.prefill = local.away.n_held};

    if (pick->decode != NULL) {
        held.decode = (pick->decode == d)
                          ? local.here.n_held
                          : held_at(core, pick->decode, gen, tokens);
        local.transfer_bytes =
            kv_bytes(pick->decode, local.n_tokens - held.decode);
    }
    ways = bt_sched_disagg_forecast(&local);
    note_first_weighed(p, d, now_us);
    if (bt_sched_disagg_is_local(&ways, p->away_at_us, d->here_at_us)) {
        bt_table_pick_weighed(pick);
        held.decode = local.here.n_held;
        held.prefill = 0;
        d->here_at_us = now_us;
    } else {
        p->away_at_us = now_us;
    }
    *held_p = held;
}
