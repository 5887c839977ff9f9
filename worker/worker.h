/* SPDX-License-Identifier: Apache-2.0 */
/** @file worker.h
 *
 * A worker: start-up, the control loop, jobs, and the handlers of both roles.
 *
 *     control thread (this module)         compute thread (inference/engine)
 *     poll: rpc, kvt, reports, signals
 *       ├─ REQUEST, GRANT, CANCEL, PEER → callbacks of the role that the
 *       ├─ kvt events                   → message, event or job belongs to
 *       ├─ reports ◀─────────────────── iterations
 *       └─ heartbeat: STATS to every router
 *
 * The control thread owns the block pool, all jobs, every link and the
 * transfers; it never computes, so cancels are seen at once and blocks come
 * back after the current iteration. It is also the one thread that drives UCX.
 *
 * A *job* is one (request, attempt) of one router. It ends exactly once, with
 * ENDED to its router after every block, seat and lease is back. It belongs to
 * a role by the kind of its request, from its first moment to its last.
 *
 * The *roles* of a worker are what routers give it. They may change at any
 * time (ROLE), and no job cares: every process has the handlers of both roles,
 * and takes what comes.
 */
#ifndef BT_WORKER_WORKER_H
#define BT_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/heartbeat.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "common/base/status.h"
#include "common/base/stop_signals.h"
#include "common/base/strbuf.h"
#include "common/config/config.h"
#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"
#include "common/kv/kv_hold.h"
#include "common/kv/kv_prefix.h"
#include "common/kv/kv_reshard.h"
#include "common/rpc/rpc.h"
#include "common/sched/sched_admit.h"
#include "common/sched/sched_chunk.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_order.h"
#include "common/sched/sched_preempt.h"
#include "common/wire/wire.h"
#include "inference/engine/engine.h"
#include "kvtransfer/kvt.h"
#include "worker/alone.h"
#include "worker/board.h"
#include "worker/joined.h"
#include "worker/membership.h"
#include "worker/plane.h"
#include "worker/stuck.h"

#define BT_WORKER_TROUBLE_BYTES 448

#define BT_WORKER_JOB_BUCKETS 4096
#define BT_WORKER_HANDLERS    2 /**< of prefill and of decode */

typedef struct bt_worker bt_worker_t;
typedef struct bt_worker_ops bt_worker_ops_t;

/** A router that we talk to; the user pointer of its rpc link. */
typedef struct bt_worker_link {
    bt_rpc_link_t *rpc;
    uint32_t bit;             /**< its own among the links of this worker */
    uint32_t n_tokens;        /**< of this iteration, not yet posted */
    bt_token_t *tokens;       /**< max_seqs of them */
    uint32_t n_scores;        /**< of those tokens */
    bt_token_score_t *scores; /**< max_seqs of them */
    bool reads_duty;          /**< BT_HELLO_DUTY */
    bool reads_kv_links;      /**< BT_HELLO_KV_LINKS */
} bt_worker_link_t;

/** Common part of a job; the first member of the role's own struct. */
typedef struct bt_job {
    bt_list_t link;         /**< in bt_worker_t.jobs */
    bt_list_t by_key;       /**< in bt_worker_t.jobs_by_key */
    bt_sched_claim_t claim; /**< order and blocks that it needs here */
    bt_worker_link_t *from; /**< NULL: its router is gone, tell nobody */
    bt_req_key_t key;
    const bt_worker_ops_t *ops; /**< of its role */
    uint32_t kind;              /**< bt_request_kind_t */
    uint64_t peer;              /**< instance of the other worker */
    uint32_t n_tokens;          /**< token ids that came with the request */
    uint32_t max_new;
    /** When the engine got it last; bt_msg_ended_t.transfer_tail_us. */
    uint64_t submitted_us, tail_us;
    uint64_t deadline_us; /**< UINT64_MAX = none */
    uint64_t slack_us;    /**< of claim.turn while it is to begin here
                               (sched_order.h) */
    /** What it has, holds and may need, in spans of tokens_per_block with a
     *  block of each group; those that it begins with make claim.n_blocks. In
     *  its queue while it generates and may grow (pause.h). */
    bt_sched_kv_demand_t grower;
    uint32_t n_reused; /**< leading spans, found in the prefix index */
    /* Of one that was paused (pause.h). */
    uint32_t n_computed; /**< of its tokens, when it left */
    uint64_t paused_at_us, paused_us;
    uint32_t n_begin; /**< spans of whole groups that it begins with */
    uint32_t
        n_offered;   /**< spans that the prefix index was told of (slide.h) */
    bool has_blocks; /**< those of hold, and then all of its reach (slide.h) */
    bool in_engine;
    bool ending;         /**< done, canceled or failed: only clean-up is left */
    uint32_t *block_ids; /**< its table (kv_groups.h) */
    bt_kv_hold_t hold;   /**< which of them it holds */
    /** Of a fork of its leader's blocks; `from` is held, too, until
     *  bt_worker_job_copied(). */
    bt_kv_copy_t copy;
    /* Its group (group.h). */
    struct bt_job *leader; /**< NULL: it is one itself */
    bt_list_t followers;   /**< bt_job_t.in_group of those that need it */
    bt_list_t in_group;
    uint32_t n_missing; /**< members that have not come */
    bool abandoned;     /**< over but for its followers, in any phase */
    bt_bad_word_t *bad_words;
    bt_logit_bias_t *logit_biases;
    bt_logits_processor_t bias_processor;
    bt_hash128_t space;       /**< in the prefix index */
    struct bt_job_rows *rows; /**< rows.h; NULL: none are wanted */
    bt_seq_t seq;
} bt_job_t;

/** What a job waits for, of what this worker and others have to do for it. */
typedef enum bt_job_wait {
    BT_JOB_WAITS_NOT,  /**< it is computed or sent, or it ends */
    BT_JOB_WAITS_TURN, /**< for a seat, blocks, or its first chunk, here */
    BT_JOB_WAITS_KV, /**< for its KV, which another worker computes or sends */
} bt_job_wait_t;

/** The handlers of a role. Every callback runs on the control thread. Those
 *  about a job are called for jobs of the role only; the others in every
 *  worker, whatever its roles are. */
struct bt_worker_ops {
    uint32_t kinds;   /**< a bit for each bt_request_kind_t that is its own */
    uint32_t events;  /**< a bit for each bt_plane_event_type_t, the same */
    size_t job_bytes; /**< of the role's job struct */
    /** Spans of tokens_per_block that a job needs blocks for here; one that
     *  needs more than there are is refused. */
    uint32_t (*spans_needed)(const bt_worker_t *w, const bt_job_t *job);
    bt_status_t (*open)(bt_worker_t *w);
    /** Also after an open that failed or never came. */
    void (*close)(bt_worker_t *w);
    /** Put the job's claim into a queue of w->admit; not that of one with a
     *  leader, which begins with it. */
    void (*on_request)(bt_worker_t *w, bt_job_t *job);
    /** Its turn has come, it has its blocks and a seat is free: take it out of
     *  the queue and begin, or fail it; its followers with it. */
    void (*begin)(bt_worker_t *w, bt_job_t *job);
    /** Others need the blocks of its complete KV, which waits for a grant:
     *  give them up. NULL: the role has none. */
    void (*drop)(bt_worker_t *w, bt_job_t *job);
    /** Fail the youngest of those whose blocks wait for another worker, where
     *  another one may wait for them. @return false: there is none. NULL: the
     *  role has none, ever. */
    bool (*take_back)(bt_worker_t *w);
    /** Begin the clean-up; the job ends with bt_worker_job_end(), now or
     *  later. Called once per job at most, and when it has no followers. */
    void (*on_abort)(bt_worker_t *w, bt_job_t *job);
    /** May be NULL. */
    void (*on_grant)(bt_worker_t *w, bt_worker_link_t *from,
                     const bt_msg_grant_t *grant);
    /** Others that generate need the blocks of one that does, too: take it from
     *  the engine; it comes back by bt_pause_park(). NULL: not of this
     *  role. */
    void (*pause)(bt_worker_t *w, bt_job_t *job);
    /** What one router sees of the other workers; another router may see it
     *  otherwise. May be NULL. */
    void (*on_peer)(bt_worker_t *w, bt_worker_link_t *from,
                    const bt_msg_peer_t *peer);
    void (*on_peer_gone)(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance);
    /** After its jobs were aborted. May be NULL. */
    void (*on_router_gone)(bt_worker_t *w, const bt_worker_link_t *from);
    void (*on_report_item)(bt_worker_t *w, const bt_report_item_t *item);
    void (*on_plane)(bt_worker_t *w, const bt_plane_event_t *event);
    /** After any of the above, when all have begun that may. May be NULL. */
    void (*advance)(bt_worker_t *w);
    bt_job_wait_t (*waits_for)(const bt_job_t *job);
    /** Add its own to what is there. */
    void (*fill_stats)(const bt_worker_t *w, bt_msg_stats_t *stats);
    /** Free what the role's part of a job owns. May be NULL. */
    void (*job_fini)(bt_job_t *job);
};

struct bt_worker {
    const bt_worker_ops_t *const *ops; /**< BT_WORKER_HANDLERS of them */
    const bt_config_t *config;
    bt_role_t program_role; /**< of the name that it was started under */
    uint32_t roles; /**< BT_ROLE_PREFILL | BT_ROLE_DECODE: what it is given */
    struct bt_prefill *prefill; /**< state of the handlers, theirs alone */
    struct bt_decode *decode;
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];

    bt_backend_t *backend;
    bt_model_t *model;
    size_t model_bytes;
    size_t device_bytes; /**< of a back end's own memory, without the pool */
    size_t pinned_bytes; /**< of the host's, for copies to and from that */
    uint32_t context_tokens; /**< longest sequence, prompt and output */
    bool long_context;       /**< bt_hparams_long_context() */
    uint32_t tokens_per_block;
    bt_kv_groups_t groups;     /**< of the model's layers */
    bt_kv_groups_t own_groups; /**< the same, of this rank's heads */
    uint32_t n_whole;          /**< of them, that keep all (slide.h) */
    uint32_t
        window_tokens; /**< of the widest of the others; 0: there is none */
    bt_hash128_t kv_layout; /**< their identity */
    bt_kv_split_t split;    /**< of the model over our ranks; this is rank 0 */
    bt_list_t senders;      /**< senders.h */
    uint32_t n_senders;
    size_t block_bytes; /**< of the pool: a page of the groups */
    uint32_t n_layers;  /**< of the model */
    size_t layer_bytes; /**< that a layer leaves in a span; on average */
    uint32_t n_blocks;
    bt_kvt_t *kvt;
    bt_lanes_t *lanes;  /**< of this rank */
    bt_plane_t *plane;  /**< of all */
    uint8_t *kv_base;   /**< of the back end, or shared memory of kvt's: an
                             address, not to be read or written by */
    void *kv_memory;    /**< the back end's buffer; NULL: kvt's */
    bt_copier_t copier; /**< of that one */
    bt_kv_pool_t *pool;
    bt_kv_prefix_t *prefix;   /**< NULL: the option says no */
    uint32_t n_blocks_reused; /**< found in it so far */
    uint64_t n_blocks_slid;   /**< let go of by windows so far */
    uint32_t *acquired;       /**< scratch, n_blocks ids */
    bt_board_t *board;        /* NULL: no cores are lent here */
    bt_engine_t *engine;
    uint32_t max_seqs;
    bt_sched_order_t order;        /**< of prompts */
    bt_sched_order_t decode_order; /**< of those that wait to generate */
    bt_sched_cost_t cost;     /**< what iterations and transfers took here */
    bt_sched_admit_t admit;   /**< who waits, and who begins when */
    bt_sched_preempt_t pause; /**< who grows, and who makes room for it */
    uint64_t n_pauses, n_resumes, tokens_recomputed; /**< since its start */
    uint64_t n_steps_ahead;                          /**< the same */
    uint64_t yielded_ns;                             /**< the same */
    uint32_t n_paused;                               /**< now */
    uint32_t n_kind[BT_WORKER_HANDLERS];             /**< jobs of each of ops */
    uint64_t stuck_since_ms; /**< the first waits for leases; 0: it does not */

    bt_rpc_t *rpc;
    bt_wire_decoder_t *decoder;
    bt_strbuf_t out; /**< scratch of bt_worker_send() */

    bt_list_t jobs;
    bt_list_t rows;        /**< bt_job_rows_t.link */
    uint8_t *rows_piece;   /**< scratch; NULL until one is needed */
    bt_hmap_t jobs_by_key; /**< bt_job_t.by_key, by (router, key) */
    bt_list_t job_buckets[BT_WORKER_JOB_BUCKETS];
    uint32_t n_jobs;
    uint32_t n_in_engine;

    /* of the last iteration, for STATS */
    uint64_t iteration;
    uint32_t n_scheduled, n_context_seqs, n_generation_seqs, n_context_tokens;
    /* since its start, for STATS */
    uint64_t tokens_generated, prompt_tokens, tokens_reused;
    uint64_t start_unix_s;

    bt_worker_link_t *links[16]; /**< routers */
    uint32_t n_links;
    bt_stop_requests_t wishes;
    bool draining; /**< to its end, by a signal or when it is to leave */
    bool off_duty; /**< duty.h */
    bool leaves;   /**< off duty, and it ends when nothing is left */
    bool failed;   /**< the device is broken: stop */
    bool hung;     /**< the compute thread is: stop, and do not join it */
    bt_stuck_t stuck;
    bt_alone_t alone;
    bt_joined_t joined;
    /** A decode worker that its KV does not reach, in words; "": none. */
    char kv_trouble[BT_WORKER_TROUBLE_BYTES];
    uint32_t poll_ms; /**< 0, or set by advance(): turn again after so long */
    uint64_t drain_deadline_ms;
    uint64_t next_stats_ms;
    bool pool_is_cold;           /**< idle moments have something to do */
    bt_membership_t *membership; /**< NULL: no --join-dir */
    int hangup_fd;               /**< hangup.h; -1: none */
    bt_heartbeat_t beat;         /**< of the control thread, to the launcher */
    int ready_fd;                /**< of who started it; -1: nobody asks */
};

/** Prompt tokens that an iteration computes at most. Where layers have a
 *  window, two chunks are held beside it: unless the user says otherwise they
 *  are together no longer than the window, or 512 tokens. */
static inline uint32_t bt_worker_most_chunk(const bt_worker_t *w)
{
    const uint32_t half = w->window_tokens / 2;
    uint32_t most = BT_SCHED_CHUNK_MOST;

    if (w->config->chunk_tokens != 0) {
        return w->config->chunk_tokens;
    }
    if ((w->window_tokens != 0) && (half < most)) {
        most = (half > 256) ? half : 256;
        most = (w->tokens_per_block > most) ? w->tokens_per_block : most;
    }
    return most;
}

/** --batching-strategy V1 */
static inline bool bt_worker_has_static_batches(const bt_config_t *config)
{
    return strcmp(config->batching_strategy, "V1") == 0;
}

/** main() of a worker.
 *  @param [in] role  Of the program's name: what it is unless --role says
 *                    otherwise.
 *  @param [in] ops   Of both roles.
 *  @return the exit code. */
int bt_worker_main(bt_role_t role,
                   const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS],
                   int argc, char **argv);

/** Encode and queue a message, after the tokens added before it; a link that
 *  cannot take it is closed. @a to may be NULL (router gone): nothing
 *  happens. */
void bt_worker_send(bt_worker_t *w, bt_worker_link_t *to, const bt_msg_t *msg);
/** PREFILLED of a job whose first token is drawn: to be sent before it, for
 * what it says is told with the first token. */
void bt_worker_send_prefilled(bt_worker_t *w, const bt_job_t *job);
/** Add a token to the message of this iteration. */
void bt_worker_send_token(bt_worker_t *w, const bt_job_t *job, uint32_t index,
                          uint32_t id, bt_finish_t finish);

/** @return NULL when (link, key) is not known. */
bt_job_t *bt_worker_job_find(bt_worker_t *w, const bt_worker_link_t *from,
                             bt_req_key_t key);
bt_job_t *bt_worker_job_of_seq(bt_seq_t *seq);

/** Remember the job's blocks for others that begin with the same tokens.
 *  @param [in] n_tokens  so many of seq.tokens have their K and V */
void bt_worker_job_remember(bt_worker_t *w, const bt_job_t *job,
                            uint32_t n_tokens);
void bt_worker_job_return_blocks(bt_worker_t *w, bt_job_t *job);

/** The copy that its fork needed is made: job->seq has had an item. Harmless
 *  when repeated, or when none was due. */
void bt_worker_job_copied(bt_worker_t *w, bt_job_t *job);

/** Hand job->seq to the engine. @retval BT_ERR_BUSY  no seat */
BT_MUST_CHECK bt_status_t bt_worker_job_submit(bt_worker_t *w, bt_job_t *job);
/** The same as one group of the engine with those of its followers that have
 *  their blocks. @retval BT_ERR_BUSY  no seats: nothing was done */
BT_MUST_CHECK bt_status_t bt_worker_group_submit(bt_worker_t *w,
                                                 bt_job_t *leader);
/** The job needs nothing of its leader any more. Harmless without one. */
void bt_group_leave(bt_worker_t *w, bt_job_t *job);

/** Tell the router that the job failed (once), then on_abort(). @a phase names
 *  where: "waiting", "compute", "grant", "context phase", "transfer" or
 *  "decode". */
void bt_worker_job_fail(bt_worker_t *w, bt_job_t *job, bt_status_t status,
                        const char *phase, const char *text);
/** Fail a leader and all its followers: they lose the KV that they share, or
 *  never get it. */
void bt_worker_group_fail(bt_worker_t *w, bt_job_t *leader, bt_status_t status,
                          const char *phase, const char *text);
/** It is over, and its router knows: let the role clean up, if it is not
 *  needed by followers. Harmless when repeated. */
void bt_worker_job_abort(bt_worker_t *w, bt_job_t *job);
/** Return blocks, send ENDED, free; where logits are left to send, the last two
 *  later (rows.h). The job must be out of engine and kvt. */
void bt_worker_job_end(bt_worker_t *w, bt_job_t *job);

#endif
