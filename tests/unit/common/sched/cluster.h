/* SPDX-License-Identifier: Apache-2.0 */
/** @file cluster.h
 *
 * A cluster of numbers: workers and requests without messages, memory or a
 * model, whose every decision is common/sched's.
 *
 *     router's queue ── bt_sched_place() ──▶ legs, after a while
 *       leg ── bt_sched_admit_*() ──▶ blocks and a seat, a grant after a while
 *         running ── bt_sched_plan() ──▶ tokens; KV arrives after a while
 *
 * A round is 100 ms: what is under way arrives, every worker lets begin whoever
 * may and computes one iteration. After each step what must hold is checked:
 * no more blocks and seats in use than there are, shares kept, plans as they
 * promise, placements of workers that may be asked.
 */
#ifndef BT_TESTS_UNIT_SCHED_CLUSTER_H
#define BT_TESTS_UNIT_SCHED_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/sched/sched_admit.h"
#include "common/sched/sched_place.h"
#include "common/sched/sched_queue.h"

#define C_T        16u  /* tokens per block */
#define C_NODES    6u   /* at most */
#define C_REQS     160u /* at most, at a time */
#define C_SEATS    24u  /* at most */
#define C_ROUND_US 100000u
#define C_LONGEST  20u /* blocks of the longest prompt */

typedef enum c_phase {
    C_NONE,
    C_AWAY, /* the request is on its way to the worker */
    C_QUEUED,
    C_RUNNING,
    C_WAITING, /* complete KV, no grant */
    C_DROPPED, /* the same, given up */
    C_SENDING,
    C_LEASED,
} c_phase_t;

struct c_req;

typedef struct c_node {
    bt_sched_worker_t sched; /* the router's view */
    bt_sched_admit_t admit;
    bt_list_t running; /* bt_sched_seq_t.turn */
    bool alive;
    uint32_t budget; /* of a plan */
    uint32_t n_running, used_blocks;
    uint32_t n_contexts, n_leases; /* legs of each kind that are here */
    uint32_t quarantined[8];       /* blocks, by the round they come back */
} c_node_t;

typedef struct c_leg {
    bt_sched_claim_t claim;
    bt_sched_seq_t seq;
    c_phase_t phase;
    c_node_t *node;
    struct c_req *req;
    bool granted, has_token; /* token #1 of this attempt was drawn */
    uint64_t prefill_tokens; /* still counted at the worker */
    uint32_t due;            /* round: AWAY, SENDING */
} c_leg_t;

typedef struct c_req {
    bool live, is_queued; /* at the router */
    bt_sched_turn_t turn;
    uint32_t n_prompt, max_new, n_out, n_attempts;
    uint64_t deadline_us;
    uint32_t grant_due; /* round; 0 = none is under way */
    c_leg_t context, decode;
} c_req_t;

typedef struct cluster {
    c_node_t nodes[C_NODES];
    uint32_t n_nodes;
    bt_list_t workers; /* bt_sched_worker_t */
    bt_list_t queue;   /* of the router */
    /** Any two workers make a pair, as of routers that saw other roles: what
     *  workers promise must not rest on placement. */
    bool is_wild;
    bt_sched_order_t order; /**< of prompts, everywhere */
    uint64_t n_taken;
    c_req_t reqs[C_REQS];
    uint32_t n_live, round;
    uint64_t rng;
    uint64_t n_events; /* of any kind */
    uint64_t digest;   /* of all of them */
    uint64_t n_done, n_failed, n_drops, n_reruns, n_locals, n_ones;
} cluster_t;

/** 0 .. n - 1. */
uint32_t c_below(cluster_t *c, uint32_t n);
bool c_chance(cluster_t *c, uint32_t percent);

/** Workers without requests. @param roles  BT_SCHED_* of each */
void c_open(cluster_t *c, uint64_t seed, uint32_t n_nodes,
            const uint32_t *roles);
/** A request comes. @return NULL when there is no room for it. */
c_req_t *c_arrive(cluster_t *c, uint32_t priority, uint32_t n_prompt,
                  uint32_t max_new);
/** It is over, whatever was under way. */
void c_end(cluster_t *c, c_req_t *req);
/** A worker dies, with all that it had; its requests run again. */
void c_die(cluster_t *c, c_node_t *node);
/** It is back, empty. */
void c_join(cluster_t *c, c_node_t *node);
void c_change_roles(cluster_t *c, c_node_t *node, uint32_t roles);
void c_step(cluster_t *c);
/** Nothing is held by anybody. */
void c_check_empty(const cluster_t *c);

#endif
