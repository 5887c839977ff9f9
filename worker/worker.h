/* SPDX-License-Identifier: Apache-2.0 */
/** @file worker.h
 *
 * Worker: start-up, the control loop, jobs, and the handlers of both roles.
 *
 *     control thread (this module)         compute thread (inference/engine)
 *     poll: control, kvt, reports, signals
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
 * ENDED to its router after every block, seat and lease is returned. The kind
 * of its request decides which role it belongs to, for its whole life.
 *
 * The *roles* of a worker decide which requests routers send it. They may
 * change at any time (ROLE) without effect on existing jobs: every process has
 * the handlers of both roles, and accepts any request.
 */
#ifndef BT_WORKER_WORKER_H
#define BT_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/containers.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/kv/kv_block_pool.h"
#include "common/kv/kv_groups.h"
#include "common/kv/kv_prefix.h"
#include "common/kv/kv_route.h"
#include "common/link/link.h"
#include "common/sched/sched_admit.h"
#include "common/sched/sched_chunk.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_preempt.h"
#include "common/sched/sched_queue.h"
#include "common/wire/wire.h"
#include "inference/draft/head_drafter.h"
#include "inference/draft/model_drafter.h"
#include "inference/draft/ngram_drafter.h"
#include "inference/engine/engine.h"
#include "kvtransfer/kvt.h"
#include "worker/adapters.h"
#include "worker/cores.h"
#include "worker/grammars.h"
#include "worker/routers.h"
#include "worker/sleep.h"
#include "worker/transfer.h"
#include "worker/weights.h"

#define BT_WORKER_TROUBLE_BYTES 448

#define BT_WORKER_JOB_BUCKETS 4096
#define BT_WORKER_HANDLERS    2 /**< handlers: prefill and decode */

typedef struct bt_worker bt_worker_t;
typedef struct bt_worker_ops bt_worker_ops_t;

/** Link to a router; the user pointer of the control link. */
typedef struct bt_worker_link {
    bt_link_t *control;
    uint32_t bit;      /**< bit of this link, unique among the worker's links */
    uint32_t n_tokens; /**< entries of tokens; tokens of this iteration, not yet
                          sent */
    bt_token_t *tokens;       /**< max_seqs entries */
    uint32_t n_scores;        /**< entries of scores: log-probs of tokens */
    bt_token_score_t *scores; /**< max_seqs entries */
    uint32_t n_drafts;        /**< numbers in drafts */
    uint32_t *drafts;         /**< 3 max_seqs numbers: bt_msg_tokens_t.drafts */
} bt_worker_link_t;

/** Common part of a job; the first member of the role's own struct. */
typedef struct bt_job {
    bt_list_t link;         /**< in bt_worker_t.jobs */
    bt_list_t by_key;       /**< in bt_worker_t.jobs_by_key */
    bt_sched_claim_t claim; /**< turn in the queue, and blocks needed here */
    bt_worker_link_t *from; /**< NULL: the router is gone, send nothing */
    bt_req_key_t key;
    const bt_worker_ops_t *ops; /**< handlers of the job's role */
    uint32_t kind;              /**< bt_request_kind_t */
    uint64_t peer;              /**< instance of the other worker */
    uint32_t n_tokens;          /**< token ids that came with the request */
    uint32_t max_new;
    /** Time of the last submission to the engine;
     *  bt_msg_ended_t.transfer_tail_us. */
    uint64_t submitted_us, tail_us;
    uint64_t deadline_us; /**< UINT64_MAX = none */
    uint64_t slack_us;    /**< slack of claim.turn while the job waits to begin
                             here (sched_queue.h) */
    /** Spans that the job has, holds and may need: tokens_per_block tokens with
     *  one block per group. The spans it begins with make claim.n_blocks.
     *  Queued while the job generates and may grow (worker_priv.h). */
    bt_sched_kv_demand_t grower;
    uint32_t n_reused;    /**< leading spans found in the prefix cache */
    uint32_t cache_epoch; /**< that of the worker when it looked there, or when
                               the job came, whose KV another worker computes */
    /* Of a preempted job (worker_priv.h). */
    uint32_t n_computed; /**< tokens with KV when the job left the engine */
    uint64_t paused_at_us, paused_us;
    uint32_t n_begin; /**< spans of whole groups that the job begins with */
    uint32_t
        n_offered;   /**< spans offered to the prefix cache (worker_priv.h) */
    bool has_blocks; /**< holds all blocks of its reach (worker_priv.h), not
                        just the reused ones */
    bool in_engine;
    bool ending;         /**< done, canceled or failed: only clean-up is left */
    uint32_t *block_ids; /**< block table of the sequence (kv_groups.h) */
    bt_kv_hold_t hold;   /**< which blocks of the table the job holds */
    /** Block copy due in a fork of the leader's blocks; `from` is held as well,
     *  until bt_worker_job_copied(). */
    bt_kv_copy_t copy;
    /* Fan-out of the job (fanout.h). */
    struct bt_job *leader; /**< NULL: the job is a leader */
    bt_list_t followers;   /**< followers that need it: bt_job_t.in_fanout */
    bt_list_t in_fanout;
    uint32_t n_missing; /**< members that have not arrived */
    bool abandoned;     /**< over, but kept for its followers, in any phase */
    bt_bad_word_t *bad_words;
    bt_logit_bias_t *logit_biases;
    uint32_t *processor_ids; /**< bt_processor_options_t.ids */
    bt_logits_processor_t bias_processor;
    struct bt_job_rows *rows; /**< worker_priv.h; NULL: none are wanted */
    uint32_t *draft_ids; /**< [n_draft_ids] expected tokens of the answer */
    uint32_t n_draft_ids;
    bt_ngram_drafter_t *drafter; /**< NULL: the job has no drafts */
    /** Beam search (inference/engine/beams.h): the job holds `width` seats, and
     *  blocks for all its beams. width 0: none. */
    bt_sched_beam_params_t beam_params;
    bool tells_logprobs;          /**< log-probs of its answers are wanted */
    bt_job_grammar_t *grammar;    /**< NULL: none */
    float *table;                 /**< bt_seq_t.table; NULL: none */
    bt_worker_adapter_t *adapter; /**< counted in its n_jobs; NULL: none */
    bt_seq_t seq;
} bt_job_t;

/** Returns the seats that a job takes: one, or one for each of its beams. */
static inline uint32_t bt_job_seats(const bt_job_t *job)
{
    return (job->beam_params.width > 0) ? job->beam_params.width : 1;
}

/** State a job waits for, because of work left to this worker or to others. */
typedef enum bt_job_wait {
    BT_JOB_WAITS_NOT,  /**< nothing: being computed or sent, or ending */
    BT_JOB_WAITS_TURN, /**< a seat, blocks, or its first chunk, here */
    BT_JOB_WAITS_KV,   /**< KV that another worker computes or sends */
} bt_job_wait_t;

/** Handlers of a role. Every callback runs on the control thread. Callbacks
 *  about a job are called for jobs of the role only; the others in every
 *  worker, whatever its roles are. */
struct bt_worker_ops {
    uint32_t kinds;   /**< bit per bt_request_kind_t of the role */
    uint32_t events;  /**< bit per bt_transfer_event_type_t of the role */
    size_t job_bytes; /**< size of the role's job struct */
    /** Returns the spans of tokens_per_block that a job needs blocks for here;
     *  a job that needs more than there are is refused. */
    uint32_t (*spans_needed)(const bt_worker_t *w, const bt_job_t *job);
    bt_status_t (*open)(bt_worker_t *w);
    /** Called also if open failed or was not called. */
    void (*close)(bt_worker_t *w);
    /** Puts the job's claim into a queue of w->admit; a follower is not queued
     *  and begins with its leader. */
    void (*on_request)(bt_worker_t *w, bt_job_t *job);
    /** Begins a job, or fails it; its followers with it. Its turn has come, it
     *  has blocks and a seat is free: the callback takes it out of the queue.
     */
    void (*begin)(bt_worker_t *w, bt_job_t *job);
    /** Gives up complete KV that waits for a grant, because others need the
     *  blocks. NULL: the role has no such KV. */
    void (*drop)(bt_worker_t *w, bt_job_t *job);
    /** Fails the youngest job whose blocks wait for another worker, if another
     *  worker may wait for these blocks. @return false: there is none. NULL:
     *  the role never has any. */
    bool (*take_back)(bt_worker_t *w);
    /** Begins the clean-up; the job ends with bt_worker_job_end(), now or
     *  later. Called once per job at most, and only without followers. */
    void (*on_abort)(bt_worker_t *w, bt_job_t *job);
    /** Handles a GRANT; called in every role. May be NULL. */
    void (*on_grant)(bt_worker_t *w, bt_worker_link_t *from,
                     const bt_msg_grant_t *grant);
    /** Takes a generating job out of the engine, because other generating jobs
     *  need its blocks; bt_preempt_park() requeues it. NULL: the role has no
     * such jobs. */
    void (*pause)(bt_worker_t *w, bt_job_t *job);
    /** Called when a router reports another worker; each router reports its own
     *  view. May be NULL. */
    void (*on_peer)(bt_worker_t *w, bt_worker_link_t *from,
                    const bt_msg_peer_t *peer);
    void (*on_peer_gone)(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance);
    /** Called after the router's jobs were aborted. May be NULL. */
    void (*on_router_gone)(bt_worker_t *w, const bt_worker_link_t *from);
    void (*on_report_item)(bt_worker_t *w, const bt_report_item_t *item);
    void (*on_transfer)(bt_worker_t *w, const bt_transfer_event_t *event);
    /** Called after any of the callbacks above, when all jobs that may begin
     *  have. May be NULL. */
    void (*advance)(bt_worker_t *w);
    bt_job_wait_t (*waits_for)(const bt_job_t *job);
    /** Adds the role's counts to @a stats. */
    void (*fill_stats)(const bt_worker_t *w, bt_msg_stats_t *stats);
    /** Frees what the role's part of a job owns. May be NULL. */
    void (*job_fini)(bt_job_t *job);
};

struct bt_worker {
    const bt_worker_ops_t *const *ops; /**< BT_WORKER_HANDLERS entries */
    const bt_config_t *config;
    bt_role_t program_role; /**< role of the program's name */
    uint32_t roles; /**< BT_ROLE_PREFILL | BT_ROLE_DECODE: current roles */
    struct bt_prefill *prefill; /**< private state of the role's handlers */
    struct bt_decode *decode;
    uint64_t instance;
    char name[BT_WIRE_MAX_NAME];
    bt_worker_weights_t weights;
    bt_worker_sleep_t sleep;

    bt_backend_t *backend;
    bt_model_t *model;
    bt_model_t *draft_model;         /**< NULL: none */
    bt_model_drafter_t *drafter;     /**< with draft_model; NULL for a head */
    bt_head_drafter_t *head_drafter; /**< with draft_model, if it is a head */
    uint64_t draft_kv_bytes;         /**< blocks of their own cache */
    size_t model_bytes;              /**< memory of both */
    size_t device_bytes;     /**< device memory used, without the pool */
    size_t pinned_bytes;     /**< pinned host memory, for copies to and from the
                                device */
    uint32_t context_tokens; /**< longest sequence, prompt and output */
    bool long_context;       /**< bt_hparams_long_context() */
    uint32_t tokens_per_block;
    bt_kv_groups_t groups;     /**< layer groups of the model */
    bt_kv_groups_t own_groups; /**< layer groups of this rank's heads */
    uint32_t n_whole;          /**< groups without a window (worker_priv.h) */
    uint32_t window_tokens; /**< widest attention window of the other groups; 0:
                               there is none */
    bt_hash128_t kv_layout; /**< identity of the groups' layout */
    bt_kv_split_t split;    /**< split of the model; this is rank 0 */
    struct {                /* fanout.h */
        bt_list_t senders;
        uint32_t n_senders;
    } sharding;
    size_t block_bytes; /**< size of a pool block: a page of the groups */
    uint32_t n_layers;  /**< layers of the model */
    size_t layer_bytes; /**< KV bytes of one layer in a span; on average */
    uint32_t n_blocks;
    bt_kvt_t *kvt;
    bt_rank_transfer_t *rank_transfers;   /**< KV transfers of this rank */
    bt_transfer_coordinator_t *transfers; /**< KV transfers of all ranks */
    uint8_t *kv_base; /**< in the back end's memory, or shared memory of kvt's;
                         in the first case an address that the host must not
                         read or write */
    void *kv_memory;  /**< the back end's buffer; NULL: kvt's */
    bt_ngram_corpus_t *corpus; /**< the compute thread's; NULL: none */
    bt_worker_adapters_t adapters;
    bt_grammars_t *grammars; /**< NULL: the worker restricts no answers */
    bt_copier_t copier;      /**< copies to and from kv_memory */
    bt_kv_pool_t *pool;
    bt_kv_prefix_t *prefix;  /**< NULL: disabled by option */
    uint32_t cache_epoch;    /**< number of times that it was emptied by order;
                                  blocks of jobs before do not enter it */
    uint32_t *acquired;      /**< scratch, n_blocks ids */
    bt_core_demand_t *board; /* NULL: no cores are borrowed or lent here */
    bt_engine_t *engine;
    uint32_t max_seqs;
    bt_sched_order_t order;        /**< order of prompts */
    bt_sched_order_t decode_order; /**< order of jobs that wait to generate */
    bt_sched_cost_t cost;   /**< measured cost of iterations and transfers */
    bt_sched_admit_t admit; /**< which jobs wait, and which begins next */
    struct {                /* preempt.c */
        bt_sched_preempt_t sched; /**< which jobs grow, or are preempted */
        uint64_t n_pauses, n_resumes, tokens_recomputed; /**< totals */
        uint32_t n_paused;       /**< preempted jobs now */
        uint64_t stuck_since_ms; /**< since when admission is blocked by leases;
                                    0: it is not */
    } preemption;
    uint32_t n_kind[BT_WORKER_HANDLERS]; /**< jobs of each of ops */

    bt_control_t *control;
    bt_wire_decoder_t *decoder;
    bt_strbuf_t out; /**< scratch of bt_worker_send() */

    bt_list_t jobs;
    struct {            /* logprob_output.c */
        bt_list_t rows; /**< bt_job_rows_t.link */
        uint8_t *piece; /**< scratch; NULL until needed */
    } row_output;
    bt_hmap_t jobs_by_key; /**< bt_job_t.by_key, by (router, key) */
    bt_list_t job_buckets[BT_WORKER_JOB_BUCKETS];
    uint32_t n_jobs;
    uint32_t n_in_engine;

    struct { /* for STATS */
        /* of the last iteration */
        uint64_t iteration;
        uint32_t n_scheduled, n_context_seqs, n_generation_seqs,
            n_context_tokens;
        /* totals since the start */
        uint64_t tokens_generated, prompt_tokens, tokens_reused;
        uint32_t n_blocks_reused; /**< blocks found in the prefix cache */
        uint64_t n_blocks_slid;   /**< blocks evicted from attention windows */
        uint64_t n_overlapped;    /**< overlapped iterations */
        /** Drafts, as in bt_msg_stats_t. */
        uint64_t draft_steps;
        uint64_t drafted[BT_DRAFT_N_SOURCES], accepted[BT_DRAFT_N_SOURCES];
        uint64_t accepted_at[BT_DRAFT_POSITIONS];
        bt_mask_counts_t masks; /**< masks of sequences that have left */
        uint64_t yielded_ns;    /**< time of donated cores */
        uint64_t start_unix_s;
        uint64_t next_ms; /**< when STATS are due */
    } stats;

    bt_worker_link_t *links[16]; /**< links to routers */
    uint32_t n_links;
    bt_stop_requests_t wishes;
    bool draining; /**< shutting down, by a signal or because it leaves */
    struct {       /* admin.h */
        bool off_duty;
        bool leaves;   /**< off duty, and ends when no job is left */
        int hangup_fd; /**< -1: none */
    } admin;
    bool failed; /**< the device is broken: stop */
    bool hung;   /**< the compute thread hangs: stop, and do not join it */
    bt_compute_watchdog_t stuck;
    bt_no_router_warning_t alone;
    bt_link_status_t joined;
    /** Why KV cannot reach a decode worker, as text; "": no problem. */
    char kv_trouble[BT_WORKER_TROUBLE_BYTES];
    uint32_t poll_ms; /**< next poll timeout if set by advance(); 0: default */
    uint64_t drain_deadline_ms;
    bool pool_is_cold;           /**< pages are left to touch when idle */
    bt_membership_t *membership; /**< NULL: no --join-dir */
    bt_heartbeat_t beat;         /**< heartbeat of the control thread */
    int ready_fd; /**< readiness descriptor of the parent process; -1: none */
};

/** Returns the most drafts that an iteration verifies: more on a device, where
 * a row costs next to nothing. @return 0: there is no speculative decoding */
static inline uint32_t bt_worker_max_drafts(const bt_worker_t *w)
{
    if (strcmp(w->config->draft, "off") == 0) {
        return 0;
    }
    return (strcmp(w->config->backend, "cpu") == 0) ? BT_ENGINE_CPU_DRAFTS
                                                    : BT_ENGINE_DEVICE_DRAFTS;
}

/** Returns the most prompt tokens that an iteration computes. With windowed
 *  layers, two chunks are held beside the window: by default both together are
 *  no longer than the window, or 512 tokens. */
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

/** True for --batching-strategy V1. */
static inline bool bt_worker_has_static_batches(const bt_config_t *config)
{
    return strcmp(config->batching_strategy, "V1") == 0;
}

/** Runs a worker: its main().
 *  @param [in] role  Role of the program name, unless --role says otherwise.
 *  @param [in] ops   Handlers of both roles.
 *  @return the exit code. */
int bt_worker_main(bt_role_t role,
                   const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS],
                   int argc, char **argv);

/** Encodes and queues a message, after the tokens added before it; a link that
 *  cannot take it is closed. @a to may be NULL (router gone): nothing happens.
 */
void bt_worker_send(bt_worker_t *w, bt_worker_link_t *to, const bt_msg_t *msg);
/** Sends PREFILLED of a job whose first token is sampled. Call before sending
 *  that token: the router reports the contents with the first token. */
void bt_worker_send_prefilled(bt_worker_t *w, const bt_job_t *job);
/** Sends the answers of a job with beams, whose search is over. */
void bt_worker_send_beams(bt_worker_t *w, const bt_job_t *job);
/** Adds a token to the message of this iteration. */
void bt_worker_send_token(bt_worker_t *w, const bt_job_t *job, uint32_t index,
                          uint32_t id, bt_finish_t finish);

/** Finds a job. @return NULL when (link, key) is not known. */
bt_job_t *bt_worker_job_find(bt_worker_t *w, const bt_worker_link_t *from,
                             bt_req_key_t key);
bt_job_t *bt_worker_job_of_seq(bt_seq_t *seq);
/** Gives a job that generates a drafter, when it is submitted to the engine:
 * not before, since many may wait. Without memory it has no drafts. */
void bt_worker_job_draft(bt_worker_t *w, bt_job_t *job);

/** Adds the job's blocks to the prefix cache.
 *  @param [in] n_tokens  this many of seq.tokens have their K and V */
void bt_worker_job_remember(bt_worker_t *w, const bt_job_t *job,
                            uint32_t n_tokens);
void bt_worker_job_return_blocks(bt_worker_t *w, bt_job_t *job);

/** Releases the source of the fork's copy once the copy is made: job->seq has
 *  had an item. Harmless when repeated, or when no copy was due. */
void bt_worker_job_copied(bt_worker_t *w, bt_job_t *job);

/** Submits job->seq to the engine. @retval BT_ERR_BUSY  no seat */
BT_MUST_CHECK bt_status_t bt_worker_job_submit(bt_worker_t *w, bt_job_t *job);
/** Submits a leader and those of its followers that have blocks as one fan-out
 *  of the engine. @retval BT_ERR_BUSY no seats: nothing was done */
BT_MUST_CHECK bt_status_t bt_worker_fanout_submit(bt_worker_t *w,
                                                  bt_job_t *leader);
/** Detaches a job that no longer needs its leader. Harmless without one. */
void bt_fanout_leave(bt_worker_t *w, bt_job_t *job);

/** Reports to the router that the job failed (once), then calls on_abort().
 *  @a phase names where: "waiting", "compute", "grant", "context phase",
 *  "transfer" or "decode". */
void bt_worker_job_fail(bt_worker_t *w, bt_job_t *job, bt_status_t status,
                        const char *phase, const char *text);
/** Fails a leader and all its followers: they lose the KV that they share, or
 *  never get it. */
void bt_worker_fanout_fail(bt_worker_t *w, bt_job_t *leader, bt_status_t status,
                           const char *phase, const char *text);
/** Lets the role clean up a job that is over and reported to its router, unless
 *  followers need it. Harmless when repeated. */
void bt_worker_job_abort(bt_worker_t *w, bt_job_t *job);
/** Returns blocks, sends ENDED and frees the job; if logits are left to send,
 *  sends ENDED and frees it later (worker_priv.h). The job must be out of
 * engine and kvt. */
void bt_worker_job_end(bt_worker_t *w, bt_job_t *job);

#endif
