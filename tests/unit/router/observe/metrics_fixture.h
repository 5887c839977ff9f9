/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics_fixture.h  A router's metrics, with a day's events. */
#ifndef BT_TESTS_UNIT_ROUTER_METRICS_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_METRICS_FIXTURE_H

#include "tests/support/testsupport.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "router/observe/metrics.h"

/* One model with one view, as a router with one model has it. */
typedef struct world {
    bt_router_metrics_t *m;
    bt_model_metrics_t *mm;
    bt_msg_hello_t hellos[4];
    bt_msg_stats_t stats[4];
    bt_metrics_worker_t workers[4];
    bt_metrics_view_t view;
} world_t;

static const bt_metrics_process_t process = {
    .unix_s = 1700074049,
    .cells =
        {
            [BT_PC_CONNECTIONS] = 3,
            [BT_PC_CPU_S] = 1.5,
            [BT_PC_RESIDENT] = 4096,
            [BT_PC_VIRTUAL] = (double)NAN,
            [BT_PC_OPEN_FDS] = 7,
            [BT_PC_MAX_FDS] = 1024,
            [BT_PC_LOG_DROPPED] = 5,
            [BT_PC_CPU_USE] = (double)NAN,
            [BT_PC_CPU_TOTAL_BYTES] = (double)NAN,
            [BT_PC_CPU_USED_BYTES] = (double)NAN,
        },
};

static inline void begin(world_t *w)
{
    memset(w, 0, sizeof(*w));
    assert_int_equal(bt_router_metrics_create(&w->m), BT_OK);
    assert_int_equal(bt_router_metrics_model(w->m, "tiny", &w->mm), BT_OK);
    w->view.model = w->mm;
    w->view.workers = w->workers;
}

static inline bt_metrics_worker_t *add_worker(world_t *w, bt_role_t role,
                                              const char *name)
{
    const uint32_t i = w->view.n_workers++;

    w->hellos[i].role = role;
    w->hellos[i].tokens_per_block = 64;
    w->hellos[i].instance = 0x10 + i;
    snprintf(w->hellos[i].name, sizeof(w->hellos[i].name), "%s", name);
    w->workers[i].hello = &w->hellos[i];
    w->workers[i].stats = &w->stats[i];
    return &w->workers[i];
}

static inline void render_views(const bt_router_metrics_t *m,
                                const bt_metrics_view_t *views,
                                uint32_t n_views, bt_strbuf_t *out)
{
    bt_metrics_snapshot_t *snapshot;

    assert_int_equal(bt_metrics_snapshot_create(m, views, n_views, &snapshot),
                     BT_OK);
    bt_metrics_snapshot_render(snapshot, &process, out);
    bt_metrics_snapshot_destroy(snapshot);
}

static inline void render(world_t *w, bt_strbuf_t *out)
{
    bt_strbuf_init(out, 1u << 20);
    render_views(w->m, &w->view, 1, out);
    assert_int_equal(bt_strbuf_status(out), BT_OK);
}

/* The same day for every test that compares whole lines. */
static inline void play(world_t *w)
{
    static const bt_msg_stats_t nothing;
    static const bt_msg_stats_t prefill = {
        /* of an older version */
        .active_requests = 3,     .max_requests = 64,
        .scheduled_requests = 1,  .context_requests = 1,
        .waiting_requests = 1,    .blocks_max = 100,
        .blocks_free = 90,        .blocks_used = 10,
        .iteration_counter = 30,  .total_context_tokens = 384,
        .memory_cpu_bytes = 1000,
    };
    static const bt_msg_stats_t decode = {
        .active_requests = 6,
        .max_requests = 512,
        .scheduled_requests = 4,
        .generation_requests = 4,
        .waiting_requests = 1,
        .blocks_max = 100,
        .blocks_free = 85,
        .blocks_used = 15,
        .iteration_counter = 100,
        .memory_cpu_bytes = 2000,
        .memory_gpu_bytes = 1610236,
        .leases = 2,
        .quarantined_blocks = 9,
        .open_fds = 31,
        .kv_bytes_received = 4096,
        .tokens_generated = 77,
        .prompt_tokens = 5,
        .tokens_reused = 48,
        .process_cpu_ms = 2500,
        .resident_bytes = 8192,
        .start_unix_s = 1700000000,
        .blocks_cached = 3,
        .kv_bytes_staged = 65536,
        .kv_bytes_shared = 131072,
        .kv_stage_waits = 21,
        .kv_foreign_pieces = 6,
        .log_lines_dropped = 8,
        .pauses = 14,
        .resumes = 13,
        .tokens_recomputed = 1200,
        .rates = {.prefill_step_ns = 4000000,
                  .prefill_token_ns = 500000,
                  .prefill_kilopair_ns = 2000,
                  .prefill_error = 31},
        .lent_pieces = 900,
        .lent_us = 1500000,
        .lent_again = 4,
        .yielded_us = 2250000,
        .overlapped_iterations = 77,
        .waiting_for_kv_requests = 2,
        .blocks_windowed = 5,
        .blocks_slid = 420,
    };
    const bt_ledger_t ledger = {.parse_us = 10,
                                .tokenize_us = 20,
                                .queue_us = 30,
                                .prefill_queue_us = 40,
                                .total_us = 1000,
                                .n_attempts = 1,
                                .n_cached = 32,
                                .ok = true};
    bt_msg_joined_t transfer = {.grant_wait_us = 300,
                                .transfer_us = 1500,
                                .transfer_bytes = 10,
                                .n_descriptors = 4,
                                .handover_us = 400};
    bt_model_metrics_t *mm = w->mm;

    (void)add_worker(w, BT_ROLE_PREFILL, "p-0");
    add_worker(w, BT_ROLE_DECODE, "d-0")->state = 1;
    w->stats[0] = prefill;
    w->stats[1] = decode;
    bt_router_metrics_stats(mm, &nothing, &prefill);
    bt_router_metrics_stats(mm, &nothing, &decode);
    bt_router_metrics_stats(mm, &decode, &decode); /* nothing new */
    bt_router_metrics_prompt(mm, 48);
    bt_router_metrics_transfer(mm, &transfer, true);
    transfer.transfer_us = 2500;
    bt_router_metrics_transfer(mm, &transfer, false); /* its re-run */
    bt_router_metrics_time(mm, BT_TIME_FIRST_TOKEN, 30000);
    bt_router_metrics_time(mm, BT_TIME_NEXT_TOKEN, 2600);
    bt_router_metrics_time(mm, BT_TIME_NEXT_TOKEN, 100); /* on a bound */
    bt_router_metrics_time(mm, BT_TIME_QUEUE, 61000000);
    bt_router_metrics_time(mm, BT_TIME_JOIN_WAIT, 700);
    bt_router_metrics_time(mm, BT_TIME_TAIL, 900);
    bt_router_metrics_time(mm, BT_TIME_REQUEST, 2000000);
    for (int i = 0; i < BT_N_LOSSES; i++) { /* each another number */
        for (int n = 0; n <= i; n++) {
            bt_router_metrics_loss(mm, (bt_gen_loss_t)i);
        }
    }
    bt_router_metrics_add(w->m, BT_PC_TRACE_LOST, 3);
    bt_router_metrics_add(w->m, BT_PC_ACCESS_LOST, 4);
    bt_router_metrics_tick(w->m, 0);
    bt_router_metrics_tick(w->m, 30000);
    bt_router_metrics_end(mm, 48, 1500);
    bt_router_metrics_request(mm, true);
    bt_router_metrics_request(mm, false);
    bt_router_metrics_output(mm, 11);
    bt_router_metrics_ledger(mm, &ledger);
}

#endif
