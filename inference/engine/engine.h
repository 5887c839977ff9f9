/* SPDX-License-Identifier: Apache-2.0 */
/** @file engine.h
 *
 * The compute thread of a worker: in-flight batching over one model.
 *
 *     owner thread                       compute thread
 *     submit(seq) ── ring ──▶ running list → plan → forward → sample
 *     cancel(seq) (a flag)          │
 *     next(report) ◀── ring ── what happened in one iteration
 *     recycle(report) ── ring ──▶
 *
 * A sequence belongs to the engine from submit() until its LEFT item is seen
 * in a report; its K/V blocks are only touched in between. The compute thread
 * makes no system call and takes no lock or memory while it has work; it
 * sleeps on its ring when it has none.
 *
 * Sequences with one prompt and different draws (the choices of a request) can
 * be submitted as a group, and its prompt is computed once:
 *
 *     leader    ─ chunk ─ chunk ─ last chunk ┬ token #1 ─ goes on, or leaves
 *     followers   (CHUNK items as well)      ├ token #1 ─ goes on, or leaves
 *                                            └ token #1 ─ goes on, or leaves
 *
 * The first of a group computes; all the others draw token #1 from the same row
 * of logits in the same iteration, and from then on each is a sequence like any
 * other. To its owner every one of them looks as if it had been computed alone:
 * each has its CHUNK, TOKEN and LEFT items, its layers, its times and its seat.
 *
 * A sequence can draw several tokens in one iteration, when guesses at what
 * follows (drafts) come from its drafter. They are computed as if they were
 * known; at each position a token is drawn from the model's logits, as always,
 * and as long as it is the draft the next one counts as well. What was computed
 * behind the first wrong one is rolled back. So the tokens are those of single
 * steps, whatever the drafter says (I1).
 *
 * A sequence may be submitted with blocks for a part of what it may compute
 * (bt_seq_set_room()). Its chunks end there, and it sits out the iterations for
 * which it has none, until its owner has given it more; a thread that has
 * nothing else sleeps.
 *
 * Of groups of layers with a window (kv_groups.h) it reads, of n tokens that
 * are computed, nothing before bt_kv_group_first_span(n): once the owner has
 * seen a CHUNK of n or a TOKEN drawn behind them, those blocks are the owner's
 * again. Their entries in the table stay as they are.
 *
 * A sequence that left can be submitted again with the tokens that it has by
 * then, with all or some of its K and V or none: it draws what it would have
 * drawn (I1), and its indices go on.
 *
 * A sequence of which one token is left to compute, as it is where its KV came
 * from elsewhere, need not wait for the next iteration: between two layers it
 * may come into the one under way (late.c).
 *
 * Nor need a prompt that comes to stand before all that is computed: between
 * two layers a chunk of it may be computed through all layers, while the
 * iteration under way waits (inside.c). So a short prompt waits for a layer of
 * a long one's chunk.
 *
 * On a device an iteration may begin while the one before is under way, with
 * tokens that nobody knows yet (ahead.c). A sequence whose last token that one
 * draws has its LEFT in the report of the next.
 *
 * Source: Y. Leviathan et al., "Fast Inference from Transformers via
 *         Speculative Decoding", ICML 2023; here the draw at a position has one
 *         outcome (seed, position), so a draft is right when it is that.
 */
#ifndef BT_INFERENCE_ENGINE_ENGINE_H
#define BT_INFERENCE_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_fork.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_order.h"
#include "common/sched/sched_overlap.h"
#include "common/sched/sched_plan.h"
#include "common/wire/request.h"
#include "inference/model/model.h"
#include "inference/model/processor.h"
#include "kernels/kernels.h"

/** Drafts that one iteration can hold, of all sequences together. */
#define BT_ENGINE_MAX_DRAFTS 16
/** Rows of logits that one iteration can have beside one for each sequence. */
#define BT_ENGINE_EXTRA_ROWS 32

/**
 * Logits of positions, and what they say of the token that follows: known, or
 * drawn from them. The row of a position is there when the position is
 * computed: rows up to n_computed - 1 of a sequence's last CHUNK item, and
 * those that its TOKEN items were drawn from. Of positions that are not
 * computed, because their K and V were there at submit, there are none.
 *
 * As the model left them: before processors, penalties and bans. All arrays are
 * the owner's; NULL: not wanted.
 */
typedef struct bt_seq_rows {
    uint32_t from;        /**< first position */
    uint32_t n;           /**< positions */
    float *logits;        /**< (n, n_vocab) */
    double *logprobs;     /**< n: of the token behind each position */
    uint32_t n_top;       /**< at most n_vocab */
    uint32_t *top_ids;    /**< (n, n_top), best first */
    double *top_logprobs; /**< (n, n_top) */
    /** Positions before this one are filled and are not written again: of a
     *  sequence that is submitted again. */
    uint32_t done;
} bt_seq_rows_t;

/** Guesses at what follows. */
typedef struct bt_drafter {
    /** Compute thread: no allocation, lock or system call.
     *  @param [out] drafts  @a max ids; those from the first that is not in the
     *                       vocabulary on do not count
     *  @return how many, 0 to max */
    uint32_t (*propose)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                        uint32_t max, uint32_t *drafts);
    void *ctx; /**< the owner's */
} bt_drafter_t;

/** One sequence. All arrays are the owner's and outlive the engine's use. */
typedef struct bt_seq {
    /** Set before submit: priority, since_us, deadline_us, n_tokens and
     *  n_computed. Its slack is the engine's to set. */
    bt_sched_seq_t sched;
    void *user;             /**< the owner's */
    uint32_t *tokens;       /**< room for n_tokens + max_new ids */
    uint32_t n_prompt;      /**< the client's prompt, for penalties */
    uint32_t max_new;       /**< tokens still to draw, at least 1 */
    uint32_t first_index;   /**< index of the first token drawn here */
    const uint32_t *blocks; /**< enough for every position computed here, or
                                 for those of room: of each span a block in
                                 every group */
    atomic_uint room;       /**< bt_seq_set_room(); 0: for all */
    /** A fork of a sequence that has its K and V already: this comes before its
     *  first iteration, in each group of layers. What is copied must stay held
     *  until the first item of this sequence. Not in a group of sequences. */
    bt_kv_copy_t copy[BT_KV_MAX_GROUPS];
    bool leave_after_first; /**< prefill worker: out after one token */
    bool tell_layers;       /**< for bt_seq_layers() */
    /** Target of the mean time between its tokens, for which it gives no more
     *  of its time away (sched_core_donation.h); 0: the engine's, of each
     * iteration. */
    uint64_t itl_us;
    /** When the token was drawn after which that mean counts, by bt_now_us();
     *  0: the first that is drawn here. */
    uint64_t paced_us;
    bool clear_tail; /**< the places behind n_tokens in the last block are
                          zeroed, before anything of it is computed: the
                          block goes to somebody else */
    bt_sampling_t sampling;
    const bt_logits_processor_t *processors; /**< n_processors */
    uint32_t n_processors;
    bt_drafter_t drafter; /**< propose may be NULL */
    /** NULL: none are wanted. In a group each has its own from the prompt's
     *  last position on; rows of the prompt are for a sequence alone. */
    const bt_seq_rows_t *rows;
    atomic_bool cancel; /**< set through bt_engine_cancel() */
    /** bt_seq_has_begun(); of those that another one computes for, too. */
    atomic_bool has_begun;
    /** Layers whose K and V are there for all n_tokens; 0 before submit. */
    atomic_uint n_layers;
    bt_list_t followers; /**< the engine's: those that it computes for */
    uint64_t late_ns;    /**< the engine's: when it came into an iteration that
                              was under way, its first; 0: at its begin */
    uint32_t n_unpaced;  /**< the engine's: drawn here until paced_us */
    /* The engine's: passes under way that have it; which id of the one under
     * way its last token will be, UINT32_MAX: it is known; and whether it has
     * left, and waits for a pass that computes it in vain. */
    uint32_t n_under_way;
    uint32_t from_id;
    bool is_gone;
    bt_finish_t gone_finish;
    /* Written by the engine, read by the owner after LEFT. */
    uint32_t n_drawn;
    uint32_t n_iterations;
    uint32_t n_chunks;
    uint64_t first_start_ns; /**< start of its first iteration, or when it
                                  came into it */
    uint64_t context_ns;     /**< iterations with a chunk of it */
    uint64_t generation_ns;
} bt_seq_t;

typedef enum bt_report_kind {
    BT_REPORT_CHUNK, /**< n_computed of its tokens have K and V now */
    BT_REPORT_TOKEN, /**< a token was drawn */
    BT_REPORT_LEFT,  /**< the engine has let go of the sequence */
} bt_report_kind_t;

typedef struct bt_report_item {
    bt_report_kind_t kind;
    bt_seq_t *seq;
    uint32_t n_computed; /**< CHUNK */
    uint32_t token;      /**< TOKEN */
    uint32_t index;      /**< TOKEN: 0 = token #1 of the request */
    bt_finish_t finish;  /**< TOKEN, LEFT: NONE when it left unfinished */
} bt_report_item_t;

/** One iteration, or the pass of one sequence inside an iteration, whose own
 *  report comes later. Items of one sequence are in the order CHUNK, TOKEN,
 * LEFT; it has several TOKENs only where drafts were right, so that all have at
 * most max_seqs + BT_ENGINE_MAX_DRAFTS. */
typedef struct bt_report {
    uint64_t iteration;
    uint64_t start_ns, end_ns;
    uint64_t inside_ns; /**< of these, passes that are reported by themselves */
    uint32_t n_seqs, n_context_seqs, n_generation_seqs;
    uint32_t n_context_tokens;
    bt_sched_step_t work; /**< what took work_ns */
    uint64_t work_ns;     /**< from start_ns until tokens were drawn, without
                               what was computed inside */
    bool ahead;           /**< it began while another one was under way */
    uint64_t yielded_ns;  /**< slept before it, for who wanted the cores */
    bt_status_t status;   /**< not OK: the device failed; all items are LEFT */
    uint32_t n_items;
    bt_report_item_t *items;
} bt_report_t;

/** So long takes a forward pass at least, by waiting between its layers and at
 *  its end: a small model then stands for a large one. All zero: it takes what
 *  it takes. */
typedef struct bt_engine_rehearsal {
    uint32_t pass_us;
    uint32_t row_us; /**< more for each row */
} bt_engine_rehearsal_t;

typedef struct bt_engine_config {
    bt_model_t *model; /**< borrowed; the compute thread is its only user */
    bt_kv_view_t kv;
    /** Of the model's layers (bt_forward_t.groups); borrowed. NULL: one. */
    const bt_kv_groups_t *groups;
    uint32_t max_seqs;     /**< most sequences submitted at a time */
    uint32_t token_budget; /**< most context tokens of an iteration */
    bool tunes_chunks;     /**< as many as are right (sched_chunk.h) */
    uint32_t itl_us;       /**< sched_chunk.h; 0: a default */
    bt_sched_order_t order;
    /** Of cores that workers of a host lend each other (sched_core_donation.h):
     * say until when (bt_now_ns()) those of others are wanted, 0: not any more;
     *  and until when others want ours. Compute thread: no lock, no system
     *  call. NULL: there are none. */
    void (*want_cores)(void *ctx, uint64_t until_ns);
    uint64_t (*cores_wanted)(void *ctx);
    void *cores_ctx; /**< the owner's */
    bool own_cores;  /**< nobody else computes on the compute thread's core */
    bool late_join;  /**< sequences with one token to compute may come into an
                          iteration that is under way (sched_midstep_join.h) */
    bt_engine_rehearsal_t rehearsal;
    /** Whether an iteration on a device may begin while it is at the one before
     *  (sched_overlap.h). Elsewhere it says nothing. */
    bt_sched_overlap_mode_t ahead;
} bt_engine_config_t;

typedef struct bt_engine bt_engine_t;

/** Rows that one iteration can have at most: what bt_model_config needs. */
uint32_t bt_engine_max_rows(uint32_t max_seqs, uint32_t token_budget,
                            uint32_t tokens_per_block);

/** The same for rows of logits. */
uint32_t bt_engine_max_logit_rows(uint32_t max_seqs);

/** Starts the compute thread.
 *  @retval BT_ERR_INVALID_PARAM  token_budget below tokens_per_block
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_engine_create(const bt_engine_config_t *config,
                                           bt_engine_t **engine_p);
/** Ask the compute thread to end after its current iteration, and wait for it.
 *  @return false: it has not within @a timeout_ms, so that nothing may be freed
 *          that it uses; ask again, or end the process */
bool bt_engine_stop(bt_engine_t *engine, uint32_t timeout_ms);
/** Stops after the current iteration and joins, however long that takes.
 * Sequences inside go back to the owner without LEFT. NULL is allowed. */
void bt_engine_destroy(bt_engine_t *engine);

/** @retval BT_ERR_BUSY  max_seqs are inside already. */
BT_MUST_CHECK bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq);

/**
 * Submit sequences that begin with the same tokens and draw on their own; the
 * first of them that is not canceled computes for all, at its own turn. All or
 * none goes in.
 *
 * The same in all: n_tokens, the tokens, and n_computed, which is a whole
 * number of blocks. Each has its own tokens array, turn and sampling.
 *
 * Blocks: up to n_tokens, whole blocks are the same in all tables, and the
 * partial last one is each sequence's own, or the same in those that leave
 * after the first token (nobody writes behind the prompt then). So
 * bt_kv_fork() makes them, and its copy is the engine's to do. Every sequence
 * holds its table until its own LEFT, and any of them may come to compute: when
 * the one that does is canceled, it leaves at once and the next one goes on
 * from the blocks that are complete, in its own table.
 *
 * Costs n seats, of which one computes until the prompt ends, and the items of
 * n sequences in a report.
 *
 * @param [in] seqs  n of them, at least 1; the array is the caller's again
 *                   afterwards.
 * @retval BT_ERR_BUSY  there are fewer than n seats
 */
BT_MUST_CHECK bt_status_t bt_engine_submit_group(bt_engine_t *engine,
                                                 bt_seq_t *const *seqs,
                                                 uint32_t n);

/**
 * The sequence has blocks for the positions before this one. Owner thread, at
 * any time: before submit for some that are not computed, afterwards only more,
 * when the new ones are in its table.
 *
 * @param [in] n_positions  a whole number of blocks; 0: for all that it may
 *                          compute
 */
static inline void bt_seq_set_room(bt_seq_t *seq, uint32_t n_positions)
{
    atomic_store_explicit(&seq->room, n_positions, memory_order_release);
}

/** Rooms have grown, or a sequence that may sit out was canceled: look. A
 * system call only where the compute thread sleeps. */
void bt_engine_wake(bt_engine_t *engine);

/** Let the sequence leave before the next iteration that is planned; LEFT
 *  (CANCELED) follows, unless it had already finished. The others of its group
 * go on. Never blocks. Where it may sit out, bt_engine_wake() afterwards. */
void bt_engine_cancel(bt_seq_t *seq);

/** How far the last chunk of a sequence with tell_layers has got, while it is
 *  computed: K and V of all its tokens are there in so many layers, from 0.
 *  May stay 0 until the CHUNK item comes. Owner thread. */
static inline uint32_t bt_seq_layers(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->n_layers, memory_order_acquire);
}

/** Has an iteration had a part of the sequence, or of who computes for it,
 *  since it was submitted? Until then it stands in the engine's queue. Owner
 *  thread; the answer is of a moment ago. */
static inline bool bt_seq_has_begun(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->has_begun, memory_order_relaxed);
}

/**
 * Take back the last @a n tokens that were drawn, while the owner has the
 * sequence: submitted again, it draws from where they were drawn. Of its blocks
 * those from bt_kv_blocks_for(n_computed, tokens_per_block) on have no content
 * that counts any more. The last known token is computed again, so it must not
 * lie in a block that others share, and what it sees must be there still, of
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

/** Readable when a report may be there (after bt_engine_sleep_prepare). */
int bt_engine_fd(const bt_engine_t *engine);
/** @return true when the owner may sleep on the descriptor. */
bool bt_engine_sleep_prepare(bt_engine_t *engine);
void bt_engine_sleep_done(bt_engine_t *engine);

/** @return a report, or NULL. Give it back with bt_engine_recycle(). */
bt_report_t *bt_engine_next(bt_engine_t *engine);
void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report);

/** For a health check: a number that changes whenever the compute thread gets
 *  on, with each operation of a layer (bt_forward_t.progress) and around each
 *  step. Any thread.
 *  @return whether it has work: without, nothing changes */
bool bt_engine_progress(const bt_engine_t *engine, uint64_t *marks_p);

#endif
