/* SPDX-License-Identifier: Apache-2.0 */
/* The core as a whole: creation and end, generations by id, deadlines. */
#include "router/core/core_priv.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "router/core/kv_links.h"

#define TOKEN_TEXT_LIMIT (1u << 20) /* bytes of one token's text */
#define MAX_BUCKETS      (1u << 16)

bt_status_t bt_core_create(const bt_core_config_t *config,
                           const bt_core_ops_t *ops, bt_core_t **core_p)
{
    uint32_t n_buckets = 64;
    bt_core_t *core;

    if ((config->request_timeout_ms == 0) || (config->max_queue == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    core = bt_calloc(1, sizeof(*core));
    if (core == NULL) {
        goto err;
    }
    while ((n_buckets < config->max_queue) && (n_buckets < MAX_BUCKETS)) {
        n_buckets *= 2;
    }
    core->gen_buckets = bt_calloc(n_buckets, sizeof(*core->gen_buckets));
    if (core->gen_buckets == NULL) {
        goto err_core;
    }
    bt_hmap_init(&core->gens_by_id, core->gen_buckets, n_buckets);
    core->config = *config;
    core->ops = *ops;
    core->next_id = 1;
    bt_table_init(&core->table, config->model);
    core->table.mixes_profiles = config->mixes_profiles;
    snprintf(core->weights.version, sizeof(core->weights.version), "default");
    bt_sched_cost_init(&core->cost);
    bt_sched_token_cost_init(&core->price);
    bt_list_init(&core->live);
    bt_list_init(&core->adapters);
    bt_hmap_init(&core->flows, core->flow_buckets, BT_CORE_FLOW_BUCKETS);
    bt_sched_fair_init(&core->fair);
    bt_core_init_margins(core);
    bt_strbuf_init(&core->raw, TOKEN_TEXT_LIMIT);
    bt_strbuf_init(&core->text, TOKEN_TEXT_LIMIT);

    *core_p = core;
    return BT_OK;

err_core:
    bt_free(core);
err:
    return BT_ERR_NO_MEMORY;
}

void bt_core_destroy(bt_core_t *core)
{
    bt_list_t *head;

    if (core == NULL) {
        return;
    }
    BT_HMAP_FOR_EACH_BUCKET(head, &core->gens_by_id)
    {
        BT_LIST_FOR_EACH_ENTRY(bt_gen_t, gen, head, by_id) {
            for (uint32_t k = 0; k < gen->n_legs; k++) {
                if (gen->legs[k].worker != NULL) {
                    (void)bt_leg_move(core, &gen->legs[k], BT_LEG_ON_CLOSE);
                }
            }
            bt_gen_free(core, gen);
        }
    }
    bt_flow_free_all(core);
    bt_core_adapters_free(core);
    bt_table_fini(&core->table);
    bt_free(core->joined);
    bt_strbuf_fini(&core->raw);
    bt_strbuf_fini(&core->text);
    bt_free(core->gen_buckets);
    bt_free(core);
}

uint32_t bt_core_n_in_flight(const bt_core_t *core)
{
    return core->n_live;
}

uint32_t bt_core_n_waiting(const bt_core_t *core)
{
    return core->n_waiting;
}

uint32_t bt_core_n_legs(const bt_core_t *core)
{
    return core->n_legs;
}

bt_table_t *bt_core_table(bt_core_t *core)
{
    return &core->table;
}

static bool is_gen(bt_list_t *link, const void *id)
{
    return BT_CONTAINER_OF(link, bt_gen_t, by_id)->id == *(const uint64_t *)id;
}

/* Ids are sequential, so an id is its own hash. */
bt_gen_t *bt_gen_find(bt_core_t *core, uint64_t id)
{
    bt_list_t *link = bt_hmap_find(&core->gens_by_id, id, is_gen, &id);

    return (link == NULL) ? NULL : BT_CONTAINER_OF(link, bt_gen_t, by_id);
}

/* ---- time ---- */

/* The worker that a running generation depends on now, for error texts. */
static const char *worker_name(const bt_gen_t *gen)
{
    const bt_attempt_t *a = &gen->attempt;
    const bt_attempt_state_t state =
        (a->state == BT_ATTEMPT_IS_LOST) ? a->lost_in : a->state;
    const bt_leg_t *leg = a->decode;

    if ((state == BT_ATTEMPT_IS_SENT) || (state == BT_ATTEMPT_IS_WITHDRAWN) ||
        (state == BT_ATTEMPT_IS_ONE_TOKEN)) {
        leg = a->prefill;
    }
    return ((leg != NULL) && (leg->worker != NULL)) ? leg->worker->hello.name
                                                    : "none";
}

void bt_gen_fail_for_deadline(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    gen->is_exhausted = gen->attempt.number > 0;
    bt_gen_fail(core, gen, 504, now_us,
                "the request's deadline of %" PRIu64
                " ms passed in phase %s, worker %s",
                (gen->deadline_us - gen->arrived_us) / 1000,
                bt_gen_phase_name(gen), worker_name(gen));
}

/* Returns which workers have no working KV link, and why, if that prevents
 * serving. Addresses are not shown to clients. */
static const char *cut_text(const bt_core_t *core, char text[BT_CUT_TEXT])
{
    const bt_cut_t *cut = bt_kv_links_first_cut(&core->table);

    text[0] = '\0';
    if ((cut != NULL) && !bt_table_ready(&core->table)) {
        snprintf(text, BT_CUT_TEXT, "; %s cannot reach %s: %s",
                 cut->prefill->hello.name, cut->decode->hello.name, cut->why);
    }
    return text;
}

/* When workers that are able to run this generation were last there. */
static uint64_t able_us(const bt_core_t *core, const bt_gen_t *gen)
{
    return core->able_us[BT_SCHED_CAPABILITY_SET(bt_gen_capabilities(gen))];
}

/* True when there are workers, and none of them for this generation. */
static bool lacks_able_workers(const bt_core_t *core, const bt_gen_t *gen)
{
    return (bt_gen_capabilities(gen) != 0) &&
           (able_us(core, gen) != core->tick_us);
}

#define NEEDS_TEXT 112

/* Writes what not every worker can do, for error texts: "a", "a and b", "a, b
 * and c". @return text */
static const char *special_needs(const bt_gen_t *gen, char text[NEEDS_TEXT])
{
    static const struct {
        uint32_t capability;
        const char *name;
    } needs[] = {
        {BT_SCHED_ADAPTERS, "LoRA adapter"},
        {BT_SCHED_TABLES, "prompt table"},
        {BT_SCHED_GRAMMARS, "structured output"},
        {BT_SCHED_BEAMS, "beam search"},
        {BT_SCHED_PROCESSORS, "logits processors"},
    };
    uint32_t left = bt_gen_capabilities(gen);
    bt_strbuf_t out;

    text[0] = '\0';
    bt_strbuf_init_fixed(&out, text, NEEDS_TEXT);
    for (size_t i = 0; i < BT_ARRAY_LEN(needs); i++) {
        if ((left & needs[i].capability) == 0) {
            continue;
        }
        left &= ~needs[i].capability;
        bt_strbuf_printf(&out, "%s%s",
                         (out.len == 0) ? ""
                         : (left == 0)  ? " and "
                                        : ", ",
                         needs[i].name);
    }
    BT_ASSERT(left == 0); /* each capability has a name */
    return text;
}

static void fail_for_no_workers(bt_core_t *core, bt_gen_t *gen,
                                uint32_t wait_ms, uint64_t now_us)
{
    char cut[BT_CUT_TEXT];
    char needs[NEEDS_TEXT];

    if (lacks_able_workers(core, gen)) {
        bt_gen_fail(core, gen, 503, now_us,
                    "no workers that support the request's %s came within %u "
                    "ms: those that are there %s",
                    special_needs(gen, needs), wait_ms,
                    (gen->prompt->table != NULL)
                        ? "have their model on a device, or are of an older "
                          "version"
                    : bt_gen_has_adapter(gen)
                        ? "have no adapters (--lora), or are of an older "
                          "version"
                        : "are of an older version");
    } else if (gen->attempt.number > 0) {
        bt_gen_fail(core, gen, 503, now_us,
                    "%s, and no other workers came within %u ms%s",
                    gen->trouble, wait_ms, cut_text(core, cut));
    } else {
        bt_gen_fail(core, gen, 503, now_us,
                    "no prefill and decode worker came within %u ms%s", wait_ms,
                    cut_text(core, cut));
    }
}

/* @return true when the generation was ended (and may be gone). */
static bool out_of_time(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    const uint32_t wait_ms = core->config.worker_wait_ms;
    uint64_t since = gen->waiting_since_us;
    uint64_t expected_us;

    if (now_us >= gen->deadline_us) {
        if (gen->state == BT_GEN_IS_RUNNING) {
            core->ops.on_loss(core->ops.ctx, bt_gen_loss_of_deadline(gen));
        }
        bt_gen_fail_for_deadline(core, gen, now_us);
        return true;
    }
    if ((gen->state != BT_GEN_IS_WAITING) || gen->is_held) {
        return false;
    }
    expected_us =
        lacks_able_workers(core, gen) ? able_us(core, gen) : core->expected_us;
    since = (since < expected_us) ? expected_us : since;
    if ((now_us - since >= (uint64_t)wait_ms * 1000)) {
        fail_for_no_workers(core, gen, wait_ms, now_us);
        return true;
    }
    return false;
}

void bt_core_expect_worker(bt_core_t *core, uint64_t now_us)
{
    core->expected_us = now_us;
}

uint64_t bt_core_lost_us(const bt_core_t *core)
{
    return core->lost_us;
}

/* A silent worker speaks again, or is declared lost soon; its pairs may be cut
 * meanwhile. */
static bool any_is_silent(bt_table_t *table)
{
    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &table->workers, link) {
        if (worker->is_silent) {
            return true;
        }
    }
    return false;
}

void bt_core_tick(bt_core_t *core, uint64_t now_us)
{
    bt_list_t *pos = core->live.next;

    if (any_is_silent(&core->table)) {
        core->expected_us = now_us;
    }
    core->tick_us = now_us;
    bt_core_weights_tick(core, now_us);
    bt_core_sleep_tick(core, now_us);
    for (uint32_t i = 0; i < BT_SCHED_N_CAPABILITY_SETS; i++) {
        if (bt_core_has_workers(core, i * BT_SCHED_PROCESSORS) ||
            !bt_table_ready(&core->table)) {
            core->able_us[i] = now_us;
        }
    }
    while (pos != &core->live) {
        bt_gen_t *gen = BT_CONTAINER_OF(pos, bt_gen_t, live_link);

        /* When one ends, its client may cancel others, so begin again; the
         * oldest, which expire first, are at the front. */
        pos = out_of_time(core, gen, now_us) ? core->live.next : pos->next;
    }
    bt_gen_dispatch_waiting(core, now_us);
}
