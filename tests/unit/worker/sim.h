/* SPDX-License-Identifier: Apache-2.0 */
/** @file sim.h
 *
 * Prefill and decode workers with their routers in one process, for tests of
 * every order of events:
 *
 *     real                         here, in place of the real one
 *     worker, both roles    clock (1 ms a round)
 *     common/kv, sched, wire       control (queues of encoded messages)
 *     kvtransfer, scripted         engine (no thread: iterations by request)
 *                                  routers (books on every request)
 *
 * Each iteration is the plan of common/sched, as at the real engine. The engine
 * here writes into the slot of position p a hash over tokens 0 .. p, checks the
 * slots of all earlier positions before each step, and draws the next token
 * from that hash. So a sequence that runs on blocks that are not its own, or
 * not filled, stops the test, and the expected tokens of every request are
 * known (I1, I2).
 *
 *     sim_world.c   workers and their lives     sim_router.c  the routers
 *     sim_link.c    link.h                    sim_engine.c  engine.h, clock.h
 */
#ifndef BT_TESTS_UNIT_WORKER_SIM_H
#define BT_TESTS_UNIT_WORKER_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/link/link.h"
#include "common/wire/wire.h"
#include "inference/engine/engine.h"
#include "tests/support/kvt_mem.h"
#include "tests/support/testsupport.h"
#include "worker/worker.h"

#define SIM_T          4u /* tokens per block */
#define SIM_LAYERS     4u
#define SIM_LAYER_SLOT 16u /* bytes of one token in one layer */
#define SIM_SLOT_BYTES (SIM_LAYERS * SIM_LAYER_SLOT)
#define SIM_VOCAB      97u
#define SIM_END_ID     5u
#define SIM_CONTEXT    96u
#define SIM_MAX_SEQS   4u
#define SIM_MAX_NODES  4u
#define SIM_ROUTERS    2u
#define SIM_MAX_REQS   512u
#define SIM_BUDGET     8u /* tokens of one iteration, as bt_sched_plan() has it */

typedef struct sim_event {
    bt_list_t link;
    bt_link_event_type_t type;
    bt_link_t *link_link;
    size_t bytes;
    uint8_t *data;
} sim_event_t;

struct bt_control {
    bt_list_t events;
    sim_event_t *given; /* freed at the next call, as the contract says */
};

typedef struct sim_node sim_node_t;

struct bt_link {
    sim_node_t *node;
    uint32_t router;
    void *user;
    uint32_t n_drains; /* DRAIN messages that came on it */
    bool open;
    bool full; /* bt_link_queued() says so */
    bool asked_for_room;
    uint32_t n_pieces; /* of logits that came on it */
};

typedef struct sim_report {
    bt_list_t link;
    bt_report_t report;
    bt_report_item_t items[3 * SIM_MAX_SEQS];
} sim_report_t;

struct bt_engine {
    bt_list_t inbox;   /* of bt_seq_t.sched, until the next iteration */
    bt_list_t running; /* the same, ordered */
    bt_sched_item_t plan[SIM_MAX_SEQS]; /* of the iteration under way */
    uint32_t n_planned;
    sim_report_t *next; /* its report; NULL between two iterations */
    uint32_t n_inside;
    uint64_t iteration;
    bool broken; /* the next iteration fails */
    bool busy;   /* for bt_engine_progress(), as marks */
    uint64_t marks;
    uint32_t n_sat_out; /* iterations, of sequences without room */
    uint32_t n_halves;  /* rounds since layers of this one were shown */
    bt_list_t reports;
    sim_node_t *node;
};

struct sim_node {
    bt_worker_t w;
    bt_config_t config;
    struct bt_control control;
    struct bt_engine engine;
    bt_link_t *links[SIM_ROUTERS]; /* NULL: down */
    int signal_pipe[2];
    uint32_t roles_ever; /* that it had, or may have by an order */
    bool orders_prompts; /* by w.order; else as they come */
    bool dead;
    bool stopped;
    bool over;            /* its loop has ended */
    bt_msg_stats_t stats; /* that it sent last */
    char closed_why[256]; /* the reason it gave last for closing a link */
    int code;
};

typedef struct sim_leg {
    bt_link_t *link; /* NULL: not sent, or its link went down */
    uint32_t n_failed, n_ended;
    bt_status_t status;
} sim_leg_t;

/* One attempt of one request, as its router knows it. */
typedef struct sim_req {
    uint32_t router, p, d; /* nodes; p == d: local */
    bt_req_key_t key;
    uint32_t n_tokens, max_new;
    uint64_t seed;  /* of its draws */
    uint64_t group; /* as bt_msg_request_t has it */
    uint32_t group_size;
    uint32_t want[SIM_CONTEXT]; /* prompt and the only right answer */
    uint32_t n_want;            /* with the end id, if it comes */
    uint32_t n_got;             /* in any order: indexes seen, a bit each */
    uint64_t got_bits[2];
    uint32_t n_prefilled, n_joined;
    bool finished;
    bt_wants_t wants;
    uint32_t n_told;   /* tokens of the prompt with their log-probs, from 1 */
    uint32_t n_scores; /* tokens of the answer with theirs */
    uint32_t context_floats[SIM_CONTEXT]; /* of each row of logits, so far */
    uint32_t output_floats[SIM_CONTEXT];
    bool hold_grant; /* keep the grant back in `grant` */
    uint8_t *grant;
    size_t grant_bytes;
    sim_leg_t legs[2]; /* 0 prefill, 1 decode */
} sim_req_t;

/** The one world of a test. */
extern struct sim {
    uint64_t now_ns;
    bool lend_prompts; /* followers come without tokens */
    bt_wants_t wants;  /* of the next requests */
    uint32_t n_groups; /* of layers, layer i in group i % n_groups */
    uint32_t window;   /* tokens that all groups but the first see, or the only
                          one; 0: all */
    bt_kvt_mem_net_t *net;
    sim_node_t nodes[SIM_MAX_NODES];
    uint32_t n_nodes;
    sim_req_t reqs[SIM_MAX_REQS];
    uint32_t n_reqs;
    bt_wire_decoder_t *decoder; /* of the routers */
    bt_strbuf_t out;
    sim_node_t *fail_node; /* in its turn the fail_nth allocation fails */
    int fail_nth;
    uint32_t n_fenced;
    int32_t fenced_pid;
    bool ends_are_deaths; /* a process that is over or fenced is gone */
    bool cut_losses; /* a failed leg cancels the other, as the router does */
} sim;

/* ---- sim_engine.c ---- */

/** What everybody with this seed draws after these tokens. */
uint32_t sim_draw(const uint32_t *tokens, uint32_t n, uint64_t seed);
/** What the model here says of these tokens: a logit of each id. */
float sim_logit(const uint32_t *tokens, uint32_t n, uint32_t id);
/** ...and log-probs, of no distribution. */
double sim_logprob(const uint32_t *tokens, uint32_t n, uint32_t id);
/** Half an iteration: the first layers of last chunks are there.
 *  @return false when nobody waits for them, or they have been shown */
bool sim_half_iterate(sim_node_t *node);
/** One iteration; its report waits until the worker asks for it. */
void sim_iterate(sim_node_t *node);

/* ---- sim_link.c ---- */

/** An event for the worker's end of @a link; the bytes are copied. */
void sim_queue(bt_link_t *link, bt_link_event_type_t type, const void *data,
               size_t bytes);
/** Both ends know that the link is over. */
void sim_link_over(bt_link_t *link, const char *reason);
void sim_link_close(sim_node_t *node);

/* ---- sim_router.c: all but checks are messages, seen in the next round ----
 */

/** The router and this worker find each other, unless they have already. */
void sim_link_up(uint32_t router, uint32_t node);
/** The same of a router that speaks other versions of the protocol. */
void sim_link_up_speaking(uint32_t router, uint32_t node,
                          bt_wire_range_t range);
void sim_router_send(uint32_t router, uint32_t node, const bt_msg_t *msg);
/** Be of these roles from now on. */
void sim_role(uint32_t router, uint32_t node, uint32_t roles);
/** The same of its duty alone. */
void sim_duty(uint32_t router, uint32_t node, uint32_t duty);
/** What a router tells of decode worker @a d; valid until the next call. */
void sim_make_peer(uint32_t d, bt_msg_peer_t *peer);
/** Tell worker @a p of decode worker @a d / that it cannot be seen. */
void sim_peer(uint32_t router, uint32_t p, uint32_t d);
void sim_peer_gone(uint32_t router, uint32_t p, uint32_t d);

/** The only right answer to a prompt that the test has changed. */
void sim_want(sim_req_t *req);
/** A request with a prompt of its own; p == d: local. Nothing is sent yet. */
sim_req_t *sim_req_new(uint32_t router, uint32_t p, uint32_t d,
                       uint32_t n_tokens, uint32_t max_new);
/** Leg @a k as a message. */
void sim_make_leg(const sim_req_t *req, uint32_t k, uint32_t kind,
                  uint32_t deadline_ms, uint32_t priority, bt_msg_t *msg);
void sim_send_leg(sim_req_t *req, uint32_t k, uint32_t kind,
                  uint32_t deadline_ms, uint32_t priority);
/** A new request, sent. */
sim_req_t *sim_request(uint32_t router, uint32_t p, uint32_t d,
                       uint32_t n_tokens, uint32_t max_new);
/** The same; its answer has max_new tokens, no end id comes before. */
sim_req_t *sim_request_of(uint32_t router, uint32_t p, uint32_t d,
                          uint32_t n_tokens, uint32_t max_new);
/** Choices of one prompt, n of them, each with a seed of its own; nothing is
 *  sent yet. @return the first; the others follow it */
sim_req_t *sim_group_new(uint32_t router, uint32_t p, uint32_t d, uint32_t n,
                         uint32_t n_tokens, uint32_t max_new);
/** The same; all their answers have max_new tokens, and both legs of all are
 *  sent. */
sim_req_t *sim_group_of(uint32_t router, uint32_t p, uint32_t d, uint32_t n,
                        uint32_t n_tokens, uint32_t max_new);
/** Pass on the grant that was held back. */
void sim_pass_grant(const sim_req_t *req);
void sim_cancel_leg(const sim_req_t *req, uint32_t k);
void sim_cancel(const sim_req_t *req);
/** Every token came, once, in the right order, and nobody failed. */
void sim_check_answered(const sim_req_t *req);

/* ---- sim_world.c ---- */

/** Blocks that a sequence could have now: free, or only remembered. */
uint32_t sim_n_free(const sim_node_t *node);

/** Node 0 prefills, nodes 1 .. n_decode decode; all know each other. */
void sim_open(uint32_t n_decode, uint32_t p_blocks, uint32_t d_blocks,
              bt_kvt_path_t path);
/** Worlds that are opened from now on are of models with a window. */
void sim_set_window(uint32_t tokens);
/** The same of a model whose layers are in groups. */
void sim_open_groups(uint32_t n_groups, uint32_t n_decode, uint32_t p_blocks,
                     uint32_t d_blocks, bt_kvt_path_t path);
/** Nodes with these roles (bits of bt_role_t). */
void sim_open_roles(uint32_t n, const uint32_t *roles, uint32_t n_blocks,
                    bt_kvt_path_t path);
/** The same, of a model whose layers are in groups. */
void sim_open_mixed(uint32_t n_groups, uint32_t n, const uint32_t *roles,
                    uint32_t n_blocks, bt_kvt_path_t path);
/** From now on prompts, and those that wait to generate, are in this order at
 *  all nodes. */
void sim_order_prompts(bt_sched_order_t order);
/** Has, or had, it this role? */
bool sim_is(uint32_t n, bt_role_t role);
/** Every worker lets sequences grow and pauses some (worker/worker_priv.h). */
void sim_let_grow(void);
/** Every worker has static batches (sched_admit.h). */
void sim_batch_statically(void);
void sim_close(void);

/** One look around of one worker. */
void sim_turn(sim_node_t *node);
/** A millisecond: every worker looks around, then every engine iterates. */
void sim_round(void);
void sim_rounds(uint32_t n);
/** Until no living worker has a job; fails after 5 s of virtual time (I3). */
void sim_settle(void);

/** SIGTERM. */
void sim_terminate(sim_node_t *node);
/** As SIGSTOP and SIGCONT. */
void sim_stop(uint32_t n, bool stopped);
/** As SIGKILL: the neighbours on the data plane learn it, the routers see the
 *  link break. */
void sim_kill(uint32_t n);

/** Nothing is held by anybody; after sim_settle(). */
void sim_check_empty(void);

/** From here on until sim_expected(), lines of warning or error are meant to
 *  be logged: at least one. */
void sim_expect_failures(void);
void sim_expected(void);

#endif
