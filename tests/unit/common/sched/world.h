/* SPDX-License-Identifier: Apache-2.0 */
/** @file world.h
 *
 * One world of all policies, in numbers: tenants, a router, workers with blocks
 * of the real pool, under a clock of its own. Whatever decides is common/sched:
 *
 *     tenants' queues ── sched_fair, sched_queue ──▶ whose turn
 *       sched_place ──▶ legs, after a while
 *         sched_admit, sched_pause, kv_block_pool ──▶ blocks, a seat, a pause
 *           sched_chunk, sched_plan, sched_order, sched_cost ──▶ a step
 *
 *     world.c          tenants, router, messages: what is under way
 *     world_worker.c   a worker: as worker/preempt.c, worker/preempt.c and an
 *                      engine do it
 *     world_check.c    what must be true after every event
 *
 * A leg that its request has left goes on to hold its blocks for as long as its
 * step or a write to them may last, as in a worker.
 */
#ifndef BT_TESTS_UNIT_SCHED_WORLD_H
#define BT_TESTS_UNIT_SCHED_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/kv/kv_block_pool.h"
#include "common/sched/sched_admit.h"
#include "common/sched/sched_chunk.h"
#include "common/sched/sched_fair.h"
#include "common/sched/sched_place.h"
#include "common/sched/sched_preempt.h"
#include "common/sched/sched_queue.h"

#define W_T         8u  /* tokens per block */
#define W_NODES     4u  /* at most */
#define W_BLOCKS    44u /* of a worker, at most */
#define W_SEATS     12u /* the same */
#define W_LONGEST   16u /* blocks of the longest request */
#define W_TENANTS   4u
#define W_REQS      96u
#define W_LEGS      320u /* those included that hold what nobody waits for */
#define W_PREFIX    2u   /* blocks that prompts of a tenant may begin with */
#define W_ATTEMPTS  4u
#define W_WINDOW    10000u /* tokens over which shares are kept */
#define W_MARKS     32u
#define W_MARK_EACH 400u /* tokens */

typedef enum w_phase {
    W_NONE,
    W_AWAY, /* on its way to the worker */
    W_QUEUED,
    W_RUNS,       /* in the engine */
    W_LEAVES,     /* the same, to be paused */
    W_STOPS,      /* the same, of a request that is over */
    W_WAITING,    /* complete KV, no grant */
    W_DROPPED,    /* the same, given up */
    W_SENDING,    /* KV on its way */
    W_LEASED,     /* blocks for KV that comes */
    W_QUARANTINE, /* somebody may still read or write its blocks */
} w_phase_t;

struct w_req;

typedef struct w_node {
    bt_sched_worker_t sched; /* the router's view */
    bt_sched_admit_t admit;
    bt_sched_preempt_t pause;
    bt_sched_cost_t cost;
    bt_sched_chunk_t chunk;
    bt_kv_pool_t *pool;
    bt_list_t running; /* bt_sched_seq_t.turn */
    bool alive;
    uint32_t n_inside; /* in the engine */
    uint64_t stuck_since_us;
    /* The step under way. */
    bool steps;
    bt_sched_item_t items[W_SEATS];
    uint32_t n_items;
    bt_sched_step_t step;
    uint64_t step_from_us, step_until_us;
    uint32_t rate; /* percent of its time that a step takes, by lent cores */
} w_node_t;

typedef struct w_leg {
    bt_sched_claim_t claim;
    bt_sched_kv_demand_t grower; /* n_held: blocks, of contexts too */
    bt_sched_seq_t seq;
    w_phase_t phase;
    w_node_t *node;
    struct w_req *req; /* NULL: it has left */
    uint32_t tenant;
    bool granted, has_token, has_prefix, is_paused;
    uint32_t n_prefix;       /* blocks that it shares */
    uint64_t whole_us;       /* of its prompt, when it came */
    uint64_t prefill_tokens; /* still counted by the router */
    uint32_t counted_blocks; /* the same */
    uint32_t ids[W_LONGEST + 1];
} w_leg_t;

typedef struct w_req {
    bool live, is_queued, grant_away;
    bt_sched_turn_t turn;
    uint32_t tenant, n_prompt, max_new, n_answer, n_out, n_attempts;
    bool has_prefix;
    uint64_t deadline_us, charged, bound_us;
    w_leg_t *context, *decode;
} w_req_t;

typedef struct w_tenant {
    bt_sched_flow_t flow;
    bt_list_t queue;
    uint32_t n_queued, n_inside, max_inside; /* requests at workers */
    bool is_limited;
    uint64_t had; /* tokens, what was given back taken off */
} w_tenant_t;

/* What each had so far, every W_MARK_EACH tokens since the set changed. */
typedef struct w_mark {
    uint64_t had[W_TENANTS], all;
} w_mark_t;

typedef struct world {
    w_node_t nodes[W_NODES];
    uint32_t n_nodes;
    bt_list_t workers;
    bt_sched_fair_t fair;
    w_tenant_t tenants[W_TENANTS];
    w_req_t reqs[W_REQS];
    w_leg_t legs[W_LEGS];
    uint32_t n_live;
    bt_sched_order_t order;
    bool pauses; /* max_utilization */
    bool floods; /* all tenants always have something waiting */
    uint64_t n_taken, now_us, rng;
    w_mark_t marks[W_MARKS];
    uint32_t n_marks;
    uint64_t n_came, n_over;
    /* Over all lives, by kind. */
    uint64_t n_events, n_done, n_failed, n_canceled, n_deaths, n_pauses,
        n_resumes, n_roles, n_lent, n_torn, n_drops, n_reruns, n_shared,
        n_windows, n_passed_over, n_steps, n_taken_back, n_sat_out, n_inside;
} world_t;

extern world_t w;

uint32_t w_below(uint32_t n);
static inline uint32_t w_blocks_for(uint32_t n_tokens)
{
    return (n_tokens + W_T - 1) / W_T;
}
/** What the order and the level of this one let pass, worked from the words of
 *  sched_queue.h and not from its code. */
uint64_t w_slack_most(bt_sched_order_t order, uint64_t whole_us,
                      uint64_t since_us, uint64_t deadline_us);

/* ---- world.c ---- */
void w_open(uint32_t seed);
void w_arrive(uint32_t tenant);
void w_cancel(w_req_t *req);
void w_die(w_node_t *node);
void w_join(w_node_t *node);
void w_roles(w_node_t *node, uint32_t roles);
/** One message arrives. @return false: none is under way */
bool w_deliver(void);
void w_dispatch(void);
/** The request has its last token, or the attempt is lost. */
void w_finish(w_req_t *req);
void w_rerun(w_req_t *req);

/* ---- world_worker.c ---- */
void w_node_open(w_node_t *node);
/** All that it holds comes back; then it has no pool. */
void w_node_close(w_node_t *node);
void w_leg_queue(w_leg_t *leg);
void w_leg_grant(w_leg_t *leg);
/** Its KV is there. */
void w_leg_join(w_leg_t *leg);
/** Its request leaves it. */
void w_leg_leave(w_leg_t *leg);
/** It holds nothing any more. */
void w_leg_free(w_leg_t *leg);
/** Who may begins, and a step where none is under way. */
void w_node_tick(w_node_t *node);
void w_node_end_step(w_node_t *node);
/** A step takes so many percent of its time from now on. */
void w_node_lend(w_node_t *node, uint32_t rate);

/* ---- world_check.c ---- */
void w_check(void);
void w_check_empty(void);
/** @a chosen goes before this one, both wait: it may. */
void w_check_passed(const bt_sched_turn_t *chosen, const bt_sched_turn_t *left,
                    uint64_t slack_us);
void w_check_plan(const w_node_t *node, uint32_t budget, uint32_t n_context);
/** Of what is computed inside a step. */
void w_check_inside(const w_node_t *node, const bt_sched_item_t *item);
/** Who waits is another set: shares are counted anew. */
void w_shares_restart(void);
/** A tenant had so much more. */
void w_shares_mark(void);

#endif
