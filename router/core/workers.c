/* SPDX-License-Identifier: Apache-2.0 */
/* Workers join, fall silent and leave. */
#include "router/core/core_priv.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "router/core/kv_links.h"

/* ---- peers: who may be named in a transfer ---- */

static void send_peer(bt_core_t *core, bt_instance_t *to,
                      const bt_instance_t *peer, uint32_t sends)
{
    bt_msg_t msg = {.type = BT_MSG_PEER};

    msg.u.peer.instance = peer->hello.instance;
    snprintf(msg.u.peer.name, sizeof(msg.u.peer.name), "%s", peer->hello.name);
    msg.u.peer.ranks = peer->hello.ranks;
    msg.u.peer.n_ranks = peer->hello.n_ranks;
    msg.u.peer.tp = peer->hello.tp;
    msg.u.peer.pp = peer->hello.pp;
    msg.u.peer.layout = peer->hello.layout;
    msg.u.peer.sends = sends;
    core->ops.send(core->ops.send_ctx, to, &msg);
}

/** Introduces a prefill and a decode worker to each other for KV transfers. The
 *  receiver is notified first, because it accepts known senders only. */
static void pair_up(bt_core_t *core, bt_instance_t *prefill,
                    bt_instance_t *decode)
{
    send_peer(core, decode, prefill, 1);
    send_peer(core, prefill, decode, 0);
}

static bool had_role(const bt_instance_t *worker, bt_role_t role)
{
    return (worker->roles_ever & (uint32_t)role) != 0;
}

/* Introduces a worker to its peers for roles that it has for the first time.
 * Introductions are permanent: transfers in progress when a role ends still
 * need them, and the role may come back. */
static void announce(bt_core_t *core, bt_instance_t *worker)
{
    const uint32_t fresh =
        bt_instance_is_asleep(worker) ? 0 : worker->roles & ~worker->roles_ever;

    worker->roles_ever |= fresh;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, other, &core->table.workers, link) {
        if (other == worker) {
            continue;
        }
        if (((fresh & BT_ROLE_PREFILL) != 0) &&
            had_role(other, BT_ROLE_DECODE)) {
            pair_up(core, worker, other);
        }
        if (((fresh & BT_ROLE_DECODE) != 0) &&
            had_role(other, BT_ROLE_PREFILL)) {
            pair_up(core, other, worker);
        }
    }
}

static void announce_peer_gone(bt_core_t *core, uint64_t instance)
{
    bt_msg_t msg = {.type = BT_MSG_PEER_GONE};

    msg.u.peer_gone.instance = instance;
    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, other, &core->table.workers, link) {
        if (had_role(other, BT_ROLE_PREFILL)) {
            core->ops.send(core->ops.send_ctx, other, &msg);
        }
    }
}

/* ---- up, suspect, down ---- */

bt_status_t bt_core_worker_up(bt_core_t *core, const bt_msg_hello_t *hello,
                              void *link_user, uint64_t now_us,
                              char why[BT_TABLE_WHY_BYTES],
                              bt_instance_t **worker_p)
{
    bt_instance_t *worker;
    bt_status_t status = bt_table_check(&core->table, hello, why);

    if (status != BT_OK) {
        /* Workers with requests serve clients, and stay. */
        return (bt_profile_quorum_refused(&core->quorum, &core->table, hello,
                                          now_us) &&
                (bt_core_n_legs(core) == 0))
                   ? BT_ERR_STALE
                   : status;
    }
    if (!bt_core_weights_fit(core, hello, why)) {
        return BT_ERR_MISMATCH;
    }
    if (bt_table_find(&core->table, hello->instance) != NULL) {
        snprintf(why, BT_TABLE_WHY_BYTES, "%s is linked already", hello->name);
        return BT_ERR_EXISTS;
    }
    status = bt_table_add(&core->table, hello, &worker);
    if (status != BT_OK) {
        snprintf(why, BT_TABLE_WHY_BYTES, "out of memory for %s", hello->name);
        return status;
    }
    worker->link_user = link_user;
    BT_LOG_INFO("worker %s joined: %s, Baton %s, protocol %u, %u seats, "
                "%u blocks of %u tokens, context %u%s",
                hello->name, bt_role_name(hello->role),
                (hello->version_text[0] != '\0') ? hello->version_text
                                                 : "without a version",
                bt_wire_common(bt_wire_range_ours(), bt_wire_range_of(hello)),
                hello->max_batch, hello->n_blocks, hello->tokens_per_block,
                hello->context_tokens,
                ((worker->sched.roles & BT_SCHED_LOCAL) != 0)
                    ? ", prefills itself where needed"
                    : "");
    core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_JOINED,
                        bt_role_name(worker->roles));
    announce(core, worker);
    bt_core_sleep_joined(core, worker, now_us);
    bt_core_weights_joined(core, worker, now_us);
    bt_core_adapters_joined(core, worker);
    bt_kv_links_settle(&core->table);
    bt_gen_dispatch_waiting(core, now_us);
    *worker_p = worker;
    return BT_OK;
}

/* ---- KV links ---- */

void bt_core_kv_link(bt_core_t *core, bt_instance_t *prefill,
                     const bt_msg_kv_link_t *report, uint64_t now_us)
{
    const bt_instance_t *decode = bt_table_find(&core->table, report->instance);
    char text[BT_CUT_TEXT];
    bt_cut_t cut = {.prefill = prefill, .decode = decode};

    if ((decode == NULL) || (decode == prefill)) { /* it has left meanwhile */
        return;
    }
    switch (bt_kv_link_report(&core->table, prefill, decode, report)) {
    case BT_KV_LINK_SAME:
    case BT_KV_LINK_IS_UNUSED:
        return;
    case BT_KV_LINK_IS_CUT:
        memcpy(cut.at, report->at, sizeof(cut.at));
        memcpy(cut.why, report->why, sizeof(cut.why));
        bt_cut_print(&cut, text);
        if ((decode->sched.health == BT_SCHED_UP) &&
            (prefill->sched.health == BT_SCHED_UP)) {
            BT_LOG_WARN("%s; no request is placed on both", text);
        } else { /* one of them is leaving */
            BT_LOG_INFO("%s", text);
        }
        return;
    case BT_KV_LINK_IS_USED:
        break;
    }
    BT_LOG_INFO("KV of %s reaches %s", prefill->hello.name, decode->hello.name);
    bt_kv_links_settle(&core->table);
    bt_gen_dispatch_waiting(core, now_us);
}

/* ---- roles ---- */

uint64_t bt_core_prompt_us(const bt_core_t *core, const bt_instance_t *worker,
                           uint32_t n_tokens)
{
    uint64_t us = 0;

    if (worker != NULL) {
        us = bt_sched_rates_prompt_us(&worker->stats.rates, n_tokens,
                                      BT_SCHED_RATES_CHUNK);
    }
    if (us == 0) {
        us = bt_sched_rates_prompt_us(&core->rates, n_tokens,
                                      BT_SCHED_RATES_CHUNK);
    }
    return (us != 0) ? us
                     : bt_sched_cost_prompt_us(&core->cost, 0, n_tokens,
                                               BT_SCHED_RATES_CHUNK);
}

/* Returns the health of a worker that does not drain. */
static bt_sched_health_t health_of(const bt_instance_t *worker)
{
    return (worker->is_silent || worker->is_still) ? BT_SCHED_SUSPECT
                                                   : BT_SCHED_UP;
}

/* Updates the health from the worker's state; @a why is logged on a change. */
static void update_health(bt_core_t *core, bt_instance_t *worker,
                          const char *why, uint64_t now_us)
{
    const bt_sched_health_t health = health_of(worker);

    if ((worker->sched.health == BT_SCHED_DRAINING) ||
        (worker->sched.health == health)) {
        return;
    }
    worker->sched.health = health;
    if (health == BT_SCHED_SUSPECT) {
        BT_LOG_WARN("worker %s %s; new requests avoid it", worker->hello.name,
                    why);
        core->ops.on_worker(
            core->ops.ctx, worker,
            worker->is_starved ? BT_WORKER_STARVED : BT_WORKER_SILENT, why);
        return;
    }
    BT_LOG_INFO("worker %s %s again", worker->hello.name, why);
    core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_BACK, why);
    bt_gen_dispatch_waiting(core, now_us);
}

static void update_progress(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us)
{
    const bool is_still = (core->config.still_ms > 0) &&
                          (worker->stats.still_ms >= core->config.still_ms);

    if (is_still != worker->is_still) {
        worker->is_still = is_still;
        update_health(core, worker, is_still ? "does not get on" : "gets on",
                      now_us);
    }
}

void bt_core_worker_drains(const bt_core_t *core, bt_instance_t *worker)
{
    if (worker->sched.health != BT_SCHED_DRAINING) {
        worker->sched.health = BT_SCHED_DRAINING;
        core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_DRAINING,
                            "takes nothing new");
    }
}

static bool is_drained(const bt_instance_t *worker)
{
    return (worker->sched.health == BT_SCHED_DRAINING) && worker->has_stats &&
           (worker->stats.active_requests == 0);
}

/* Applies a worker's duty, whichever router ordered it. @return true: it takes
 * requests again */
static bool apply_duty(const bt_core_t *core, bt_instance_t *worker,
                       uint32_t duty)
{
    const bool drains = worker->sched.health == BT_SCHED_DRAINING;

    if ((duty == BT_ADMIN_STATE_ON) && drains && !worker->is_stale &&
        !worker->is_away) {
        BT_LOG_INFO("worker %s is in service again", worker->hello.name);
        worker->sched.health = health_of(worker);
        core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_ON,
                            "takes requests again");
        return true;
    }
    if (duty > BT_ADMIN_STATE_ON) {
        bt_core_worker_drains(core, worker);
    }
    return false;
}

void bt_core_worker_stats(bt_core_t *core, bt_instance_t *worker,
                          const bt_msg_stats_t *stats, uint64_t now_us)
{
    const uint32_t before = worker->roles;
    const bool was_drained = is_drained(worker);
    bool changed;

    if (bt_sched_rates_prompt_us(&stats->rates, 1, 1) > 0) {
        if (bt_sched_rates_prompt_us(&core->rates, 1, 1) == 0) {
            bt_sched_probe_back(&core->probe, now_us); /* measured just now */
        }
        core->rates = stats->rates;
    }
    bt_sched_token_cost_learn(&core->price, &stats->rates, worker->sched.seats);
    changed = bt_table_report(worker, stats);
    update_progress(core, worker, now_us);
    bt_core_limit_seats(core, worker, now_us);
    bt_core_count_others(worker);
    bt_core_sleep_stats(core, worker, stats->duty);
    if (apply_duty(core, worker, stats->duty) && !changed) {
        bt_gen_dispatch_waiting(core, now_us);
    }
    if (!was_drained && is_drained(worker)) {
        core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_DRAINED,
                            "has nothing left");
    }
    if (changed) {
        BT_LOG_INFO("worker %s is %s now, was %s", worker->hello.name,
                    bt_role_name(worker->roles), bt_role_name(before));
        core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_ROLE,
                            bt_role_name(worker->roles));
        announce(core, worker);
        bt_gen_dispatch_waiting(core, now_us);
    }
}

void bt_core_order_role(bt_core_t *core, const char *name, uint32_t roles)
{
    const bt_msg_t msg = {.type = BT_MSG_ROLE, .u.role = {.roles = roles}};

    BT_LIST_FOR_EACH_ENTRY(bt_instance_t, worker, &core->table.workers, link) {
        if (strcmp(worker->hello.name, name) != 0) {
            continue;
        }
        worker->is_launched = true;
        /* An older build reports no roles, and would not understand the order.
         */
        if ((worker->stats.roles != 0) && (worker->roles != roles)) {
            core->ops.send(core->ops.send_ctx, worker, &msg);
        }
    }
}

bt_status_t bt_core_order_worker(bt_core_t *core, bt_instance_t *worker,
                                 uint32_t roles, bt_admin_state_t duty)
{
    const bt_msg_t msg = {
        .type = BT_MSG_ROLE,
        .u.role = {.roles = roles, .duty = (uint32_t)duty},
    };

    if (((roles != 0) && (worker->stats.roles == 0)) ||
        ((duty != BT_ADMIN_STATE_AS_IT_IS) &&
         (worker->stats.duty == BT_ADMIN_STATE_AS_IT_IS))) {
        return BT_ERR_UNSUPPORTED;
    }
    BT_LOG_INFO("worker %s: requested role %s, state %s", worker->hello.name,
                (roles != 0) ? bt_role_name(roles) : "unchanged",
                (duty != BT_ADMIN_STATE_AS_IT_IS) ? bt_duty_name(duty)
                                                  : "unchanged");
    core->ops.send(core->ops.send_ctx, worker, &msg);
    return BT_OK;
}

/* Silence was reported already; a new cause may not have been. */
static void update_silence(bt_core_t *core, bt_instance_t *worker,
                           bool is_starved, const char *why, uint64_t now_us)
{
    const bool is_news = (worker->sched.health == BT_SCHED_SUSPECT) &&
                         worker->is_silent &&
                         (worker->is_starved != is_starved);

    worker->is_silent = true;
    worker->is_starved = is_starved;
    if (is_news) {
        BT_LOG_INFO("worker %s %s", worker->hello.name, why);
        core->ops.on_worker(core->ops.ctx, worker,
                            is_starved ? BT_WORKER_STARVED : BT_WORKER_SILENT,
                            why);
    }
    update_health(core, worker, why, now_us);
}

void bt_core_worker_suspect(bt_core_t *core, bt_instance_t *worker,
                            bool suspect, uint64_t now_us)
{
    if (suspect) {
        update_silence(core, worker, false, "is silent", now_us);
        return;
    }
    worker->is_silent = worker->is_starved = false;
    update_health(core, worker, "speaks", now_us);
}

void bt_core_worker_starved(bt_core_t *core, bt_instance_t *worker,
                            uint64_t now_us)
{
    update_silence(core, worker, true, "is starved: it waits for a core",
                   now_us);
}

void bt_core_worker_down(bt_core_t *core, bt_instance_t *worker,
                         const char *reason, uint64_t now_us)
{
    const bool drained = (worker->sched.health == BT_SCHED_DRAINING) &&
                         (worker->sched.seats == 0);
    const bool is_decode = had_role(worker, BT_ROLE_DECODE);
    const uint64_t instance = worker->hello.instance;

    if (drained) {
        BT_LOG_INFO("worker %s left: %s", worker->hello.name, reason);
    } else {
        BT_LOG_WARN("worker %s lost with %u requests: %s", worker->hello.name,
                    worker->sched.seats, reason);
        core->lost_us = now_us;
        core->expected_us = now_us; /* who started it may start it again */
    }
    worker->sched.health = BT_SCHED_DRAINING; /* never picked again */
    bt_core_adapters_left(core, worker);
    core->ops.on_worker(core->ops.ctx, worker, BT_WORKER_LOST, reason);
    while (!bt_list_empty(&worker->legs)) {
        bt_leg_t *leg = BT_CONTAINER_OF(worker->legs.next, bt_leg_t, link);
        bt_gen_t *gen = leg->gen;
        const char *phase = bt_gen_phase_name(gen);
        const bool lost = bt_leg_release(leg, false);

        (void)bt_leg_move(core, leg, BT_LEG_ON_CLOSE);
        if (!lost) {
            bt_gen_settle(core, gen);
            continue;
        }
        snprintf(gen->trouble, sizeof(gen->trouble),
                 "%s worker %s was lost in phase %s (%s)",
                 bt_leg_part_name(leg), worker->hello.name, phase, reason);
        core->ops.on_loss(core->ops.ctx, BT_LOSS_WORKER);
        bt_gen_rerun(core, gen, leg, now_us);
    }
    bt_core_sleep_left(core, worker, now_us);
    bt_table_remove(&core->table, worker);
    bt_kv_links_settle(&core->table);
    if (is_decode) {
        announce_peer_gone(core, instance);
    }
    bt_gen_dispatch_waiting(core, now_us);
}

void bt_core_worker_behind(bt_core_t *core, bt_instance_t *worker, bool behind,
                           uint64_t now_us)
{
    worker->sched.is_behind = behind;
    if (!behind) {
        bt_gen_dispatch_waiting(core, now_us);
    }
}
