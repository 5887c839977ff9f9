/* SPDX-License-Identifier: Apache-2.0 */
/** @file engine.h
 *
 * Compute thread of a worker: in-flight batching over one model.
 *
 *     owner thread                       compute thread
 *     submit(seq) ── ring ──▶ running list → plan → forward → sample
 *     cancel(seq) (a flag)          │
 *     next(report) ◀── ring ── events of one iteration
 *     recycle(report) ── ring ──▶
 *
 * A sequence belongs to the engine from submit() until the owner reads its LEFT
 * item in a report; its KV blocks are only accessed in between. The compute
 * thread takes no lock and allocates no memory while it has work, and makes no
 * system call but to sleep for core donation (core_donation.c) and simulated
 * latency (simulated_latency.c). It sleeps on its ring when it has no work.
 *
 * Sequences with one prompt and different samples (the choices of a request)
 * can be submitted as a group, whose prompt is computed once:
 *
 *     leader    ─ chunk ─ chunk ─ last chunk ┬ token #1 ─ continues, or leaves
 *     followers   (CHUNK items as well)      ├ token #1 ─ continues, or leaves
 *                                            └ token #1 ─ continues, or leaves
 *
 * The first sequence of a group computes; all the others draw token #1 from the
 * same row of logits in the same iteration, and from then on each is an
 * independent sequence. To its owner every sequence looks as if it had been
 * computed alone: each has its own CHUNK, TOKEN and LEFT items, layer progress,
 * times and seat.
 *
 * Speculative decoding: a sequence can draw several tokens in one iteration
 * when its drafter proposes tokens (drafts). Drafts are computed as if they
 * were known; at each position a token is drawn from the model's logits, as
 * always. As long as the drawn token equals the draft, the next position counts
 * as well. Everything computed behind the first wrong draft is rolled back. So
 * the tokens are those of single steps, whatever the drafter proposes (I1).
 *
 * A sequence may be submitted with blocks for only a part of the positions that
 * it may compute (bt_seq_set_room()). Its chunks end there, and it sits out the
 * iterations for which it has no blocks, until its owner has added more; a
 * compute thread that has nothing else sleeps.
 *
 * Layer groups with an attention window (kv_groups.h): once n tokens of a
 * sequence are computed, the engine reads nothing before
 * bt_kv_group_first_span(n). When the owner has seen a CHUNK of n or a TOKEN
 * drawn behind them, the blocks before that span are the owner's again. Their
 * entries in the block table stay as they are.
 *
 * A sequence that left can be submitted again with the tokens that it has by
 * then, with all, some or none of its KV: it draws what it would have drawn
 * (I1), and its token indices continue.
 *
 * Mid-step join: a sequence with one token left to compute, as when its KV
 * came from another worker, need not wait for the next iteration. It may join
 * the running iteration between two layers (passes.c).
 *
 * Layer-boundary preemption: a prompt that is ordered before everything in the
 * running iteration need not wait either. Between two layers a chunk of it may
 * be computed through all layers, while the running iteration waits
 * (passes.c). So a short prompt waits for one layer of a long one's
 * chunk.
 *
 * Overlapped scheduling: on a device an iteration may begin while the previous
 * one is still running, with input tokens that are not known yet (passes.c). A
 * sequence whose last token is drawn by the previous iteration has its LEFT in
 * the report of the next.
 *
 * Source: Y. Leviathan et al., "Fast Inference from Transformers via
 *         Speculative Decoding", ICML 2023; here the draw at a position has one
 *         outcome (seed, position), so a draft is right when it equals that.
 */
#ifndef BT_INFERENCE_ENGINE_ENGINE_H
#define BT_INFERENCE_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_block_pool.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_pipeline.h"
#include "common/sched/sched_queue.h"
#include "common/wire/request.h"
#include "inference/model/model.h"
#include "kernels/kernels.h"

/** Most drafts in one iteration, over all sequences. */
#define BT_ENGINE_MAX_DRAFTS 16
/** Most rows of logits in one iteration beside one per sequence. */
#define BT_ENGINE_EXTRA_ROWS 32

/**
 * Logits of positions and log probabilities of the tokens that follow them,
 * whether those are known or drawn. The row of a position is filled when the
 * position is computed: rows up to n_computed - 1 of a sequence's last CHUNK
 * item, and the rows that its TOKEN items were drawn from. Positions that are
 * not computed, because their KV existed at submit, have no row.
 *
 * Values are those of the model, before logits processors, penalties and bans.
 * All arrays are the owner's; NULL: not wanted.
 */
typedef struct bt_seq_rows {
    uint32_t from;        /**< first position */
    uint32_t n;           /**< number of positions */
    float *logits;        /**< (n, n_vocab) */
    double *logprobs;     /**< n: log probability of the token behind each
                               position */
    uint32_t n_top;       /**< number of top candidates, at most n_vocab */
    uint32_t *top_ids;    /**< (n, n_top), best first */
    double *top_logprobs; /**< (n, n_top) */
    /** First position to fill: earlier ones are already filled and are not
     *  written again, when a sequence is submitted again. */
    uint32_t done;
} bt_seq_rows_t;

/** Source of draft tokens for speculative decoding. */
typedef struct bt_drafter {
    /** Proposes drafts. Runs on the compute thread: no allocation, lock or
     *  system call.
     *  @param [out] drafts  @a max ids; ignored from the first id on that is
     *          not in the vocabulary
     *  @return number of drafts, 0 to max */
    uint32_t (*propose)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts);
    void *ctx; /**< owner's context */
} bt_drafter_t;

/** One sequence. All arrays are the owner's and outlive the engine's use. */
typedef struct bt_seq {
    /** Scheduler state. The owner sets priority, since_us, deadline_us,
     *  n_tokens and n_computed before submit; the engine sets its slack. */
    bt_sched_seq_t sched;
    void *user;             /**< owner's pointer */
    uint32_t *tokens;       /**< capacity: n_tokens + max_new ids */
    uint32_t n_prompt;      /**< tokens of the client's prompt, for penalties */
    uint32_t max_new;       /**< tokens still to draw, at least 1 */
    uint32_t first_index;   /**< index of the first token drawn here */
    const uint32_t *blocks; /**< block table: a block in every group for each
                                 span, for every position computed here or
                                 for the positions of room */
    atomic_uint room;       /**< positions that have blocks
                                 (bt_seq_set_room()); 0: all */
    /** Block copies of a fork whose source already has its KV, one per layer
     *  group; done before the first iteration. The source blocks must stay held
     *  until the first item of this sequence. Not for a group of sequences. */
    bt_kv_copy_t copy[BT_KV_MAX_GROUPS];
    bool leave_after_first; /**< prefill worker: the sequence leaves after
                                 one token */
    bool tell_layers;       /**< publish layer progress for bt_seq_layers() */
    /** Target in us of the mean time between its tokens, beyond which no cores
     *  are donated (sched_pipeline.h); 0: the engine's target, for each
     *  iteration. */
    uint64_t itl_us;
    /** Time (bt_now_us()) of the token after which the mean for itl_us is
     *  measured; 0: the first token that is drawn here. */
    uint64_t paced_us;
    bool clear_tail; /**< zero the slots behind n_tokens in the last block
                          before any of it is computed, because the block is
                          sent to another worker */
    bt_sampling_t sampling;
    const bt_logits_processor_t *processors; /**< n_processors of them */
    uint32_t n_processors;
    bt_drafter_t drafter; /**< propose may be NULL */
    /** Logits and log probabilities to store; NULL: none. In a group each
     *  sequence has its own rows, from the prompt's last position on; rows of
     *  the prompt itself are only for a sequence alone. */
    const bt_seq_rows_t *rows;
    atomic_bool cancel; /**< set through bt_engine_cancel() */
    /** State of bt_seq_has_begun(); also set for followers when their leader
     *  begins. */
    atomic_bool has_begun;
    /** Number of layers whose KV is stored for all n_tokens; 0 before
     *  submit. */
    atomic_uint n_layers;
    bt_list_t followers; /**< engine's: sequences that this one computes for */
    uint64_t late_ns;    /**< engine's: when it joined its first iteration
                              mid-step; 0: it began with it */
    uint32_t n_unpaced;  /**< engine's: tokens drawn here until paced_us */
    /* The engine's: number of passes in flight that contain the sequence; which
     * of the ids of the pass in flight its last token will be, UINT32_MAX: the
     * token is known; and whether the sequence has left, but waits for a pass
     * that still computes it in vain. */
    uint32_t n_under_way;
    uint32_t from_id;
    bool is_gone;
    bt_finish_t gone_finish;
    /* Written by the engine, read by the owner after LEFT. */
    uint32_t n_drawn;
    uint32_t n_iterations;
    uint32_t n_chunks;
    uint64_t first_start_ns; /**< start of its first iteration, or when it
                                  joined that one */
    uint64_t context_ns;     /**< time of iterations with a chunk of it */
    uint64_t generation_ns;
} bt_seq_t;

typedef enum bt_report_kind {
    BT_REPORT_CHUNK, /**< n_computed of its tokens have KV now */
    BT_REPORT_TOKEN, /**< a token was drawn */
    BT_REPORT_LEFT,  /**< the engine has released the sequence */
} bt_report_kind_t;

typedef struct bt_report_item {
    bt_report_kind_t kind;
    bt_seq_t *seq;
    uint32_t n_computed; /**< CHUNK */
    uint32_t token;      /**< TOKEN */
    uint32_t index;      /**< TOKEN: 0 = token #1 of the request */
    bt_finish_t finish;  /**< TOKEN, LEFT: NONE when it left unfinished */
} bt_report_item_t;

/** Events of one iteration, or of the pass of one sequence that preempted an
 *  iteration at a layer boundary; that iteration's own report comes later.
 *  Items of one sequence are in the order CHUNK, TOKEN, LEFT; a sequence has
 *  several TOKENs only where drafts were right, so all sequences together have
 *  at most max_seqs + BT_ENGINE_MAX_DRAFTS. */
typedef struct bt_report {
    uint64_t iteration;
    uint64_t start_ns, end_ns;
    uint64_t inside_ns; /**< time within it of preempting passes, which have
                             their own reports */
    uint32_t n_seqs, n_context_seqs, n_generation_seqs;
    uint32_t n_context_tokens;
    bt_sched_step_t work; /**< amount of work done in work_ns */
    uint64_t work_ns;     /**< from start_ns until tokens were drawn, without
                               preempting passes */
    bool ahead;           /**< began while the previous pass was still
                               running */
    uint64_t yielded_ns;  /**< time slept before it to donate cores */
    bt_status_t status;   /**< not OK: the device failed; all items are LEFT */
    uint32_t n_items;
    bt_report_item_t *items;
} bt_report_t;

/** Minimum duration of a forward pass, enforced by waits between its layers and
 *  at its end, so that a small model can stand in for a large one. All zero: no
 *  minimum. */
typedef struct bt_engine_rehearsal {
    uint32_t pass_us;
    uint32_t row_us; /**< added for each row */
} bt_engine_rehearsal_t;

typedef struct bt_engine_config {
    bt_model_t *model; /**< borrowed; the compute thread is its only user */
    bt_kv_view_t kv;
    /** Groups of the model's layers (bt_forward_t.groups); borrowed. NULL: one
     *  group. */
    const bt_kv_groups_t *groups;
    uint32_t max_seqs;     /**< most sequences submitted at a time */
    uint32_t token_budget; /**< most prefill tokens of an iteration */
    bool tunes_chunks;     /**< choose the chunk size automatically
                                (sched_chunk.h) */
    uint32_t itl_us;       /**< ITL target for chunk sizes (sched_chunk.h);
                                0: a default */
    bt_sched_order_t order;
    /** Hooks for borrowing cores between the workers of a host
     *  (sched_pipeline.h). want_cores publishes until when (bt_now_ns())
     *  this worker wants the cores of others, 0: no longer; cores_wanted
     *  returns until when others want the cores of this one. Both run on the
     *  compute thread: no lock, no system call. NULL: no borrowing. */
    void (*want_cores)(void *ctx, uint64_t until_ns);
    uint64_t (*cores_wanted)(void *ctx);
    void *cores_ctx; /**< owner's context */
    bool own_cores;  /**< no other thread computes on the compute thread's
                          core */
    bool late_join;  /**< sequences with one token to compute may join a
                          running iteration (sched_pipeline.h) */
    bt_engine_rehearsal_t rehearsal;
    /** Overlapped scheduling: whether an iteration on a device may begin while
     *  the previous one is running (sched_pipeline.h). Ignored on other back
     *  ends. */
    bt_sched_overlap_mode_t ahead;
} bt_engine_config_t;

typedef struct bt_engine bt_engine_t;

/** Returns the most rows of one iteration, for bt_model_config_t. */
uint32_t bt_engine_max_rows(uint32_t max_seqs, uint32_t token_budget,
                            uint32_t tokens_per_block);

/** Returns the most rows of logits of one iteration, for bt_model_config_t. */
uint32_t bt_engine_max_logit_rows(uint32_t max_seqs);

/** Starts the compute thread.
 *  @retval BT_ERR_INVALID_PARAM  token_budget below tokens_per_block
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_engine_create(const bt_engine_config_t *config,
                                           bt_engine_t **engine_p);
/** Asks the compute thread to end after its current iteration, and waits for
 *  it.
 *  @return false: it has not ended within @a timeout_ms, so that nothing that
 *          it uses may be freed; ask again, or end the process */
bool bt_engine_stop(bt_engine_t *engine, uint32_t timeout_ms);
/** Stops the engine after the current iteration and joins its thread, however
 *  long that takes. Sequences still submitted go back to the owner without
 *  LEFT. NULL is allowed. */
void bt_engine_destroy(bt_engine_t *engine);

/** Submits one sequence.
 *  @retval BT_ERR_BUSY  max_seqs are submitted already */
BT_MUST_CHECK bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq);

/**
 * Submits sequences that begin with the same tokens and draw independently; the
 * first one that is not canceled computes for all, in its own turn. Either all
 * are submitted or none.
 *
 * All must agree in n_tokens, the tokens, and n_computed, which is a whole
 * number of blocks. Each has its own tokens array, turn and sampling.
 *
 * Blocks: up to n_tokens, whole blocks are shared by all tables. The partial
 * last block is each sequence's own, or shared by sequences that leave after
 * the first token (nothing is written behind the prompt then). bt_kv_fork()
 * makes such tables, and the engine does its copy. Every sequence holds its
 * table until its own LEFT, and any of them may become the one that computes:
 * when the computing sequence is canceled, it leaves at once and the next one
 * continues from the complete blocks, in its own table.
 *
 * A group takes n seats, although one sequence computes until the prompt ends,
 * and the items of n sequences in a report.
 *
 * @param [in] seqs  n of them, at least 1; the array is the caller's again
 *         afterwards.
 * @retval BT_ERR_BUSY  fewer than n seats are free
 */
BT_MUST_CHECK bt_status_t bt_engine_submit_group(bt_engine_t *engine,
                                                 bt_seq_t *const *seqs,
                                                 uint32_t n);

/**
 * Declares that the sequence has blocks for all positions before this one.
 * Owner thread, at any time: before submit a value that may cover only some of
 * the uncomputed positions; afterwards only larger ones, once the new blocks
 * are in its table.
 *
 * @param [in] n_positions  a whole number of blocks; 0: for all that it may
 *         compute
 */
static inline void bt_seq_set_room(bt_seq_t *seq, uint32_t n_positions)
{
    atomic_store_explicit(&seq->room, n_positions, memory_order_release);
}

/** Makes the engine look again, after bt_seq_set_room() or after canceling a
 *  sequence that may sit out. A system call only where the compute thread
 *  sleeps. */
void bt_engine_wake(bt_engine_t *engine);

/** Cancels the sequence before the next iteration that is planned; LEFT
 *  (CANCELED) follows, unless it had already finished. The others of its group
 *  continue. Never blocks. Where the sequence may sit out, call
 *  bt_engine_wake() afterwards. */
void bt_engine_cancel(bt_seq_t *seq);

/** Returns the progress of the last chunk of a sequence with tell_layers while
 *  it is computed: the number of layers, from 0, in which KV of all its tokens
 *  is stored. May stay 0 until the CHUNK item comes. Owner thread. */
static inline uint32_t bt_seq_layers(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->n_layers, memory_order_acquire);
}

/** True when an iteration has included a part of the sequence, or of the one
 *  that computes for it, since it was submitted. Until then the sequence
 *  waits in the engine's queue. Owner thread; the answer may be slightly out
 *  of date. */
static inline bool bt_seq_has_begun(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->has_begun, memory_order_relaxed);
}

/**
 * Takes back the last @a n tokens that were drawn, while the owner has the
 * sequence: submitted again, it draws them anew. Its blocks from
 * bt_kv_blocks_for(n_computed, tokens_per_block) on no longer have valid
 * content. The last known token is computed again, so it must not lie in a
 * shared block, and all positions that it attends to must still exist, in
 * groups with a window too.
 *
 * @param [in] n  at most n_drawn; at least one token remains
 */
static inline void bt_seq_roll_back(bt_seq_t *seq, uint32_t n)
{
    seq->sched.n_tokens -= n;
    seq->n_drawn -= n;
    if (seq->sched.n_computed >= seq->sched.n_tokens) {
        seq->sched.n_computed = seq->sched.n_tokens - 1;
    }
}

/** Returns a descriptor that is readable when a report may be there (after
 *  bt_engine_sleep_prepare()). */
int bt_engine_fd(const bt_engine_t *engine);
/** Prepares the owner's sleep on the descriptor.
 *  @return true when the owner may sleep on it */
bool bt_engine_sleep_prepare(bt_engine_t *engine);
void bt_engine_sleep_done(bt_engine_t *engine);

/** Returns the next report, or NULL. Give it back with bt_engine_recycle(). */
bt_report_t *bt_engine_next(bt_engine_t *engine);
void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report);

/** Reads the progress counter for a health check: it changes with each
 *  operation of a layer (bt_forward_t.progress) and around each step of the
 *  compute thread. Any thread.
 *  @return whether the engine has work; without, the counter does not change */
bool bt_engine_progress(const bt_engine_t *engine, uint64_t *marks_p);

#endif
