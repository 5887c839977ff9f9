/* SPDX-License-Identifier: Apache-2.0 */
/* Workers, their lives, and what must be true when all is over. */
#include "tests/unit/worker/sim.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"
#include "worker/fanout.h"
#include "worker/worker_priv.h"

struct sim sim;
static unsigned long lines_before;
static uint32_t next_window;

void sim_set_window(uint32_t tokens)
{
    next_window = tokens;
}

static unsigned long lines_now(void)
{
    return bt_log_count(BT_LOG_LEVEL_WARN) + bt_log_count(BT_LOG_LEVEL_ERROR);
}

void sim_expect_failures(void)
{
    lines_before = lines_now();
}

void sim_expected(void)
{
    assert_true(lines_now() > lines_before);
    bt_test_expect_log_lines(lines_now() - lines_before);
}

/* In place of fence.c: processes here are only numbers, from 1000 on. */
void bt_decode_fence(int32_t pid)
{
    sim.n_fenced++;
    sim.fenced_pid = pid;
    if (sim.ends_are_deaths) {
        assert_in_range(pid, 1000, 1000 + sim.n_nodes - 1);
        bt_kvt_mem_net_kill(sim.net, sim.nodes[pid - 1000].w.instance);
    }
}

/* As many layers in each group, so that a page has room for one of them. */
static void sim_groups(bt_kv_groups_t *groups)
{
    bt_kv_group_t list[BT_KV_MAX_GROUPS] = {0};
    uint8_t group_of[SIM_LAYERS];

    for (uint32_t g = 0; g < sim.n_groups; g++) {
        list[g].shape = (bt_kv_shape_t){.n_layers = SIM_LAYERS / sim.n_groups,
                                        .n_kv_heads = 2,
                                        .tokens_per_block = SIM_T,
                                        .head_dim = 2,
                                        .elem_bytes = 2};
        if ((g > 0) || (sim.n_groups == 1)) {
            list[g].window_tokens = sim.window;
        }
    }
    for (uint32_t i = 0; i < SIM_LAYERS; i++) {
        group_of[i] = (uint8_t)(i % sim.n_groups);
    }
    assert_int_equal(
        bt_kv_groups_init(list, sim.n_groups, group_of, SIM_LAYERS, groups),
        BT_OK);
}

/* As in worker/main/main.c. */
static const bt_worker_ops_t *const sim_ops[BT_WORKER_HANDLERS] = {
    &bt_decode_ops, &bt_prefill_ops};

/* One rank. */
static void sim_transfers_open(bt_worker_t *w)
{
    const bt_rank_transfer_config_t own = {.kvt = w->kvt,
                                           .groups = &w->groups,
                                           .own = &w->own_groups,
                                           .split = w->split,
                                           .base = w->kv_base};
    bt_transfer_config_t all = {.on_event = bt_worker_on_transfer, .ctx = w};

    assert_int_equal(bt_rank_transfer_open(&own, &w->rank_transfers), BT_OK);
    all.own_rank = w->rank_transfers;
    assert_int_equal(bt_transfer_open(&all, &w->transfers), BT_OK);
}

static void sim_node_open(uint32_t roles, uint32_t n_blocks, bt_kvt_path_t path)
{
    sim_node_t *node = &sim.nodes[sim.n_nodes++];
    bt_worker_t *w = &node->w;
    const bt_kvt_config_t kvt = {
        .transport = &bt_kvt_transport_mem,
        .path = path,
        .net_device = "lo",
        .pool_bytes = (size_t)n_blocks * SIM_T * SIM_SLOT_BYTES / sim.n_groups,
        .instance = 100 + sim.n_nodes,
        .keepalive_ms = 20,
        .dead_ms = 100,
        .quarantine_ms = 200,
        .transport_arg = sim.net,
    };

    node->config.heartbeat_ms = 10;
    node->config.dead_ms = kvt.dead_ms;
    node->config.max_ungranted_kv_percent = 50;
    node->config.drain_ms = 500;
    node->config.compute_watchdog_ms = 120000;
    node->config.kv_overlap = "layers";
    node->config.draft = "ngram";
    node->config.backend = "cpu";
    node->config.max_logits_bytes = SIM_CONTEXT * SIM_VOCAB * sizeof(float);
    node->config.local_prefill = "on";
    w->ops = sim_ops;
    w->ready_fd = -1;
    w->admin.hangup_fd = -1;
    w->config = &node->config;
    w->instance = kvt.instance;
    w->context_tokens = SIM_CONTEXT;
    w->tokens_per_block = SIM_T;
    sim_groups(&w->groups);
    sim_groups(&w->own_groups);
    if (sim.window != 0) { /* so that two chunks leave some out of a window */
        node->config.chunk_tokens = SIM_BUDGET;
    }
    bt_window_eviction_open(w);
    w->block_bytes = w->groups.page_bytes;
    w->kv_layout = bt_kv_groups_identity(&w->groups, 1, 3);
    w->split = (bt_kv_split_t){.tp = 1, .pp = 1};
    bt_peer_sharding_init(w);
    w->n_layers = SIM_LAYERS;
    w->layer_bytes = bt_kv_groups_layer_bytes(&w->groups);
    assert_int_equal(w->layer_bytes, SIM_T * SIM_LAYER_SLOT);
    w->acquired = bt_calloc(n_blocks, sizeof(*w->acquired));
    assert_non_null(w->acquired);
    w->n_blocks = n_blocks;
    w->max_seqs = SIM_MAX_SEQS;
    bt_sched_admit_init(&w->admit, n_blocks, SIM_MAX_SEQS,
                        node->config.max_ungranted_kv_percent);
    bt_sched_preempt_init(&w->preemption.sched, false, SIM_T, SIM_T);
    bt_jobs_init(w);
    bt_strbuf_init(&w->out, BT_LINK_MAX_MESSAGE);
    assert_int_equal(bt_kvt_open(&kvt, &w->kvt), BT_OK);
    w->kv_base = bt_kvt_pool(w->kvt);
    sim_transfers_open(w);
    assert_int_equal(bt_kv_pool_create(n_blocks, &w->pool), BT_OK);
    assert_int_equal(bt_kv_prefix_create(w->pool, n_blocks, &w->groups,
                                         kvt.instance, &w->prefix),
                     BT_OK);
    assert_int_equal(bt_wire_decoder_create(&w->decoder), BT_OK);
    bt_list_init(&node->control.events);
    bt_list_init(&node->engine.inbox);
    bt_list_init(&node->engine.running);
    bt_list_init(&node->engine.reports);
    node->engine.node = node;
    w->control = &node->control;
    w->engine = &node->engine;
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        assert_int_equal(w->ops[i]->open(w), BT_OK);
    }
    /* Blocks of this world are small. */
    w->prefill->split = (bt_prefill_split_t){
        .max_groups = 3, .min_piece_bytes = 1, .min_chunk_bytes = 1};
    bt_worker_set_roles(w, roles);
    node->roles_ever = roles;
    assert_int_equal(pipe2(node->signal_pipe, O_NONBLOCK | O_CLOEXEC), 0);
}

void sim_order_prompts(bt_sched_order_t order)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        sim.nodes[i].orders_prompts = true;
        sim.nodes[i].w.order = order;
        sim.nodes[i].w.decode_order = order;
        bt_sched_cost_init(&sim.nodes[i].w.cost);
    }
}

void sim_batch_statically(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        bt_sched_batch_init(&sim.nodes[i].w.admit.batch, true);
    }
}

void sim_let_grow(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        bt_sched_preempt_init(&sim.nodes[i].w.preemption.sched, true, SIM_T,
                              SIM_T);
    }
}

bool sim_is(uint32_t n, bt_role_t role)
{
    return (sim.nodes[n].roles_ever & (uint32_t)role) != 0;
}

static void sim_begin(uint32_t n_groups)
{
    memset(&sim, 0, sizeof(sim));
    sim.n_groups = n_groups;
    sim.window = next_window;
    sim.now_ns = 1000000000u;
    assert_int_equal(bt_kvt_mem_net_create(&sim.net), BT_OK);
    assert_int_equal(bt_wire_decoder_create(&sim.decoder), BT_OK);
    bt_strbuf_init(&sim.out, BT_LINK_MAX_MESSAGE);
}

static void sim_introduce(void)
{
    for (uint32_t r = 0; r < SIM_ROUTERS; r++) {
        for (uint32_t i = 0; i < sim.n_nodes; i++) {
            sim_link_up(r, i);
        }
        for (uint32_t p = 0; p < sim.n_nodes; p++) {
            for (uint32_t d = 0; d < sim.n_nodes; d++) {
                if ((p != d) && sim_is(p, BT_ROLE_PREFILL) &&
                    sim_is(d, BT_ROLE_DECODE)) {
                    sim_peer(r, p, d);
                }
            }
        }
    }
}

void sim_open_groups(uint32_t n_groups, uint32_t n_decode, uint32_t p_blocks,
                     uint32_t d_blocks, bt_kvt_path_t path)
{
    sim_begin(n_groups);
    sim_node_open(BT_ROLE_PREFILL, p_blocks, path);
    for (uint32_t i = 0; i < n_decode; i++) {
        sim_node_open(BT_ROLE_DECODE, d_blocks, path);
    }
    sim_introduce();
}

void sim_open(uint32_t n_decode, uint32_t p_blocks, uint32_t d_blocks,
              bt_kvt_path_t path)
{
    sim_open_groups(1, n_decode, p_blocks, d_blocks, path);
}

void sim_open_roles(uint32_t n, const uint32_t *roles, uint32_t n_blocks,
                    bt_kvt_path_t path)
{
    sim_open_mixed(1, n, roles, n_blocks, path);
}

void sim_open_mixed(uint32_t n_groups, uint32_t n, const uint32_t *roles,
                    uint32_t n_blocks, bt_kvt_path_t path)
{
    sim_begin(n_groups);
    for (uint32_t i = 0; i < n; i++) {
        sim_node_open(roles[i], n_blocks, path);
    }
    sim_introduce();
}

void sim_turn(sim_node_t *node)
{
    bool busy = false;

    if (node->dead || node->stopped || node->over) {
        return;
    }
    if (node == sim.fail_node) {
        bt_alloc_fail_at(sim.fail_nth);
    }
    node->over =
        !bt_worker_turn(&node->w, node->signal_pipe[0], &busy, &node->code);
    bt_alloc_fail_at(0);
}

/* A process is gone: its links break, the routers tell who may send to it. */
static void sim_bury(uint32_t n)
{
    sim_node_t *node = &sim.nodes[n];

    node->dead = true;
    for (uint32_t r = 0; r < SIM_ROUTERS; r++) {
        if (node->links[r] != NULL) {
            bt_link_close(node->links[r], "killed");
        }
        for (uint32_t p = 0; p < sim.n_nodes; p++) {
            if ((p != n) && sim_is(p, BT_ROLE_PREFILL) &&
                sim_is(n, BT_ROLE_DECODE)) {
                sim_peer_gone(r, p, n);
            }
        }
    }
}

void sim_round(void)
{
    sim.now_ns += 1000000u;
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        sim_node_t *node = &sim.nodes[i];

        if (!node->dead && bt_kvt_mem_net_is_dead(sim.net, node->w.instance)) {
            sim_bury(i);
        }
        sim_turn(node);
        if (!node->dead && !node->stopped && !node->over) {
            if (!sim_half_iterate(node)) {
                sim_iterate(node);
            }
        }
        if (sim.ends_are_deaths && node->over && !node->dead) {
            sim_kill(i);
        }
    }
}

void sim_rounds(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        sim_round();
    }
}

static bool sim_idle(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        if (!sim.nodes[i].dead && (sim.nodes[i].w.n_jobs > 0)) {
            return false;
        }
    }
    return true;
}

static void sim_say_left(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        const bt_worker_t *w = &sim.nodes[i].w;
        bt_list_t *pos;
        bt_list_t *tmp;

        if (sim.nodes[i].dead) {
            continue;
        }
        BT_LIST_FOR_EACH(pos, tmp, &w->jobs)
        {
            const bt_job_t *job = BT_CONTAINER_OF(pos, bt_job_t, link);

            print_error("node %u: request %llu kind %u: blocks %d engine %d "
                        "ending %d\n",
                        i, (unsigned long long)job->key.id, job->kind,
                        job->has_blocks, job->in_engine, job->ending);
        }
    }
}

void sim_settle(void)
{
    sim_rounds(2); /* what was just sent arrives */
    for (uint32_t i = 0; (i < 5000) && !sim_idle(); i++) {
        sim_round();
    }
    sim_say_left();
    assert_true(sim_idle());
    sim_rounds(2);
}

void sim_terminate(sim_node_t *node)
{
    const struct signalfd_siginfo info = {.ssi_signo = SIGTERM};

    assert_int_equal(write(node->signal_pipe[1], &info, sizeof(info)),
                     sizeof(info));
}

void sim_stop(uint32_t n, bool stopped)
{
    sim_node_t *node = &sim.nodes[n];

    node->stopped = stopped;
    bt_kvt_mem_net_stop(sim.net, node->w.instance, stopped);
}

void sim_kill(uint32_t n)
{
    sim_node_t *node = &sim.nodes[n];

    bt_kvt_mem_net_kill(sim.net, node->w.instance);
    sim_bury(n);
}

static void sim_forget_reports(sim_node_t *node)
{
    bt_report_t *report;

    while ((report = bt_engine_next(&node->engine)) != NULL) {
        bt_engine_recycle(&node->engine, report);
    }
    bt_free(node->engine.next);
}

uint32_t sim_n_free(const sim_node_t *node)
{
    return bt_kv_pool_n_free(node->w.pool) + bt_kv_pool_n_idle(node->w.pool);
}

/* As close_all() of start.c does it. */
static void sim_node_close(sim_node_t *node)
{
    bt_worker_t *w = &node->w;

    sim_forget_reports(node);
    bt_jobs_end_all(w);
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        w->ops[i]->close(w);
    }
    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_free(w->links[i]->drafts);
        bt_free(w->links[i]->scores);
        bt_free(w->links[i]->tokens);
        bt_free(w->links[i]);
    }
    sim_link_close(node);
    bt_transfer_close(w->transfers);
    bt_kvt_close(w->kvt);
    bt_rank_transfer_close(w->rank_transfers);
    bt_peer_sharding_fini(w);
    assert_int_equal(sim_n_free(node), w->n_blocks);
    bt_kv_prefix_destroy(w->prefix);
    bt_kv_pool_destroy(w->pool);
    bt_free(w->acquired);
    bt_kv_groups_fini(&w->groups);
    bt_kv_groups_fini(&w->own_groups);
    bt_wire_decoder_destroy(w->decoder);
    bt_strbuf_fini(&w->out);
    close(node->signal_pipe[0]);
    close(node->signal_pipe[1]);
}

void sim_close(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        sim_node_close(&sim.nodes[i]);
    }
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        bt_free(sim.reqs[i].grant);
    }
    bt_kvt_mem_net_destroy(sim.net);
    bt_wire_decoder_destroy(sim.decoder);
    bt_strbuf_fini(&sim.out);
}

void sim_check_empty(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        const bt_worker_t *w = &sim.nodes[i].w;

        if (sim.nodes[i].dead) {
            continue;
        }
        assert_int_equal(w->n_jobs, 0);
        assert_int_equal(w->n_in_engine, 0);
        assert_int_equal(sim_n_free(&sim.nodes[i]), w->n_blocks);
        assert_int_equal(bt_kv_pool_n_set_aside(w->pool), 0);
        assert_int_equal(w->admit.waiting_blocks, 0);
        assert_int_equal(w->admit.leased_blocks, 0);
        assert_int_equal(w->admit.leased_seats, 0);
        assert_true(bt_list_empty(&w->admit.granted));
        assert_true(bt_list_empty(&w->admit.ungranted));
        assert_true(bt_list_empty(&w->admit.leases));
        assert_true(bt_list_empty(&w->admit.waiting));
        assert_int_equal(w->prefill->n_paused, 0);
        assert_int_equal(w->prefill->n_xfers, 0);
        assert_true(bt_list_empty(&w->prefill->streaming));
        assert_int_equal(w->decode->n_leases, 0);
        assert_int_equal(w->decode->quarantined_blocks, 0);
        assert_true(bt_list_empty(&w->decode->leased));
    }
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            if (sim.reqs[i].legs[k].link != NULL) {
                assert_int_equal(sim.reqs[i].legs[k].n_ended, 1);
            }
        }
    }
}
