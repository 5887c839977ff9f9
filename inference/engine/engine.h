/* SPDX-License-Identifier: Apache-2.0 */
/** @file engine.h
 *
 * Engine: the compute thread of a worker. Runs one model with in-flight
 * batching: sequences join and leave the batch at every iteration.
 *
 *     owner thread                       compute thread
 *     submit(seq) ── ring ──▶ running list → plan → forward → sample
 *     cancel(seq) (a flag)          │
 *     next(report) ◀── ring ── events of one iteration
 *     recycle(report) ── ring ──▶
 *
 * Ownership: a sequence belongs to the engine from bt_engine_submit() until the
 * owner reads its LEFT item in a report. The engine accesses its KV blocks only
 * in between.
 *
 * Fan-out: sequences that share a prompt and sample independently (the choices
 * of a request) can be submitted together. The prompt is computed once:
 *
 *     leader    ─ chunk ─ chunk ─ last chunk ┬ token #1 ─ continues, or leaves
 *     followers   (CHUNK items as well)      ├ token #1 ─ continues, or leaves
 *                                            └ token #1 ─ continues, or leaves
 *
 * The first sequence, the leader, computes the prompt. All sequences draw token
 * #1 from one row of logits in one iteration, and are independent from then on.
 * To the owner, each sequence looks as if it had been computed alone: each has
 * its own CHUNK, TOKEN and LEFT items, layer progress, times and seat.
 *
 * Speculative decoding: a sequence can draw several tokens in one iteration if
 * its drafter proposes tokens (drafts). The model computes the drafts as if
 * they were known tokens. At each position a token is drawn from the model's
 * logits, as without drafts. While the drawn token equals the draft, the next
 * position counts too; everything after the first wrong draft is discarded. So
 * the tokens are those of single steps, whatever the drafter proposes
 * (invariant I1).
 *
 * Grammar: a sequence may have one that its answer follows. Where an answer is
 * in its grammar follows from its tokens, so this needs no state that would
 * move with a sequence. A grammar that cannot be followed ends its sequence
 * alone, with ERROR.
 *
 * Beam search: a sequence may be searched for its best answers instead of
 * drawing tokens. It is one sequence to its owner, in the plan and in reports,
 * and a row for each beam in the iteration (beams.h).
 *
 * Growing block tables: a sequence may be submitted with blocks for only some
 * of its positions (bt_seq_set_kv_limit()). Its chunks end there. It sits out
 * the iterations for which it has no blocks, until its owner adds more. If
 * every sequence sits out, the compute thread sleeps.
 *
 * Attention windows: once n tokens of a sequence are computed, a layer group
 * with a window (kv_groups.h) is not read before bt_kv_group_first_span(n). The
 * owner may release the older blocks as soon as it has read a CHUNK item of n
 * tokens, or a TOKEN item drawn after them. Their entries in the block table
 * must stay as they are.
 *
 * Submitting again: a sequence that has left can be submitted again, with all
 * tokens it has by then and all, some or none of its KV. It draws the tokens
 * that it would have drawn (I1), and its token indices continue.
 *
 * Mid-step join: a sequence with one token left to compute, for instance
 * because its KV came from another worker, may join the running iteration
 * between two layers (passes.c, sched_pipeline.h).
 *
 * Layer-boundary preemption: a prompt that is ordered before everything in the
 * running iteration need not wait for its end. Between two layers the iteration
 * may wait while a chunk of that prompt is computed through all layers
 * (passes.c). So a short prompt waits only for one layer of a long one's chunk.
 *
 * Overlapped scheduling: on a device, an iteration may begin while the previous
 * one still runs, with input tokens that are not known yet (passes.c). A
 * sequence that ends with a token of the previous iteration then has its LEFT
 * item in the report of the next one.
 *
 * Threads: one owner thread makes all calls, unless a function says otherwise.
 *          The compute thread takes no lock and allocates no memory while it
 *          has work. Its only system calls then are the sleeps of core donation
 *          (core_donation.c) and simulated latency (passes.c).
 *          Without work it sleeps on its ring.
 * Source: Y. Leviathan et al., "Fast Inference from Transformers via
 *         Speculative Decoding", ICML 2023; here the draw at a position has one
 *         outcome (seed, position), so a draft is right when it equals that.
 */
#ifndef BT_INFERENCE_ENGINE_ENGINE_H
#define BT_INFERENCE_ENGINE_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/kv/kv_block_pool.h"
#include "common/sched/sched_cost.h"
#include "common/sched/sched_draft.h"
#include "common/sched/sched_pipeline.h"
#include "common/sched/sched_queue.h"
#include "common/wire/prompt_table.h"
#include "common/wire/request.h"
#include "inference/engine/beams.h"
#include "inference/matcher/matcher.h"
#include "inference/model/model.h"
#include "inference/model/sampler.h"
#include "kernels/kernels.h"

/** Most drafts in one iteration, over all sequences: on the CPU, where more
 * rows cost more time, and on a device. */
#define BT_ENGINE_CPU_DRAFTS    16u
#define BT_ENGINE_DEVICE_DRAFTS 128u
/** Most drafts of one sequence in one iteration. */
#define BT_ENGINE_SEQ_DRAFTS 16u
/** Rows of logits that requests can ask for in one iteration. Drafts that are
 *  not made leave more. */
#define BT_ENGINE_EXTRA_ROWS 16u
/** Most rows of one sequence in a round of a draft model; one with more to
 *  compute lags (bt_batch_drafter_t). */
#define BT_ENGINE_ROUND_ROWS 8u

/**
 * Logits and log probabilities that a sequence stores, by position. The row of
 * a position has the logits that the token after it is drawn from, and the log
 * probability of that token, whether the token was known or drawn.
 *
 * The engine fills a row when it computes the position. After a CHUNK item the
 * rows up to n_computed - 1 are filled, after a TOKEN item also the row that
 * the token was drawn from. Positions whose KV existed at submit are not
 * computed and have no row.
 *
 * Values are the model's, before logits processors, penalties and bans. All
 * arrays are the owner's; NULL: not wanted.
 */
typedef struct bt_seq_rows {
    uint32_t from;        /**< first position */
    uint32_t n;           /**< number of positions */
    float *logits;        /**< (n, n_vocab) */
    double *logprobs;     /**< [n] log probability of the token after each
                               position */
    uint32_t n_top;       /**< number of top candidates, at most n_vocab */
    uint32_t *top_ids;    /**< (n, n_top), best first */
    double *top_logprobs; /**< (n, n_top) */
    /** First position to fill. Rows before it were filled when the sequence was
     *  submitted before, and are not written again. */
    uint32_t done;
} bt_seq_rows_t;

/** Proposal of a drafter. */
typedef struct bt_draft {
    uint32_t n;               /**< number of drafts */
    bt_draft_source_t source; /**< where they come from */
    uint32_t n_matched; /**< tokens before the first draft that equal those
                             before its origin */
} bt_draft_t;

/** Source of draft tokens for speculative decoding. */
typedef struct bt_drafter {
    /** Proposes drafts. Called on the compute thread: no allocation, lock or
     *  system call is allowed.
     *  @param [out] drafts  [max] token ids; ids from the first one on that is
     *          not in the vocabulary are ignored
     *  @return the proposal; its n is at most max */
    bt_draft_t (*propose)(void *ctx, const uint32_t *tokens, uint32_t n_tokens,
                          uint32_t max, uint32_t *drafts);
    void *ctx; /**< argument of the functions; the owner's */
    /** Called on the compute thread when the sequence has ended by an end id or
     *  its length, with all its tokens; as propose(). NULL: nothing to do. */
    void (*ended)(void *ctx, const uint32_t *tokens, uint32_t n_tokens);
} bt_drafter_t;

/** Masks of tokens that a sequence needed, and their time. */
typedef struct bt_mask_counts {
    uint64_t n_masks; /**< masks that draws asked for, of drafts too */
    uint64_t n_hits;  /**< found in the matcher's table */
    uint64_t ns;      /**< time for all */
} bt_mask_counts_t;

/** Grammar that a sequence's answer follows, from behind the client's prompt
 *  on. All zeros: none. */
typedef struct bt_seq_grammar {
    /** May be that of several sequences; only the compute thread uses it while
     *  one of them is submitted. */
    bt_matcher_t *matcher;
    const bt_token_trie_t *trie; /**< the matcher's */
    bt_matcher_cursor_t cursor;  /**< private to the engine */
    uint32_t n_counted;          /**< private: tokens before the last mask in
                                      counts */
    uint32_t max_tokens; /**< the text is whole within so many tokens behind the
                              prompt, and the matcher knows distances; 0: it may
                              be cut */
    /** Written by the engine; the owner reads them after LEFT. */
    bt_mask_counts_t counts;
    bool has_failed; /**< LEFT with ERROR is for the grammar, which could not
                          be followed; neither device nor KV is at fault */
} bt_seq_grammar_t;

struct bt_seq;

/** Next draft of one sequence, by a draft model. */
typedef struct bt_next_draft {
    struct bt_seq *seq;
    uint32_t n_drafts; /**< drafts behind its known tokens so far, right ones as
                            far as is known */
    uint32_t n_rows;   /**< rows that the draft takes, at least 1: tokens whose
                            K and V are not computed yet; result of draft():
                            rows that were computed */
    uint32_t id;       /**< result: the draft; UINT32_MAX: none can be made */
    float probability; /**< result: of the draft, as the model sees it */
} bt_next_draft_t;

/**
 * Source of drafts that computes many sequences at a time: a draft model.
 *
 * A draft model may have a KV cache of its own, which lacks K and V of tokens:
 * of a prompt, of tokens that were drawn without it, and of the last draft. A
 * few rows are computed together with the next draft. A sequence that lacks
 * more than BT_ENGINE_ROUND_ROWS *lags*: it has no drafts by the model until it
 * has caught up, in iterations that have time for that (sched_catch_up.h).
 *
 * All functions are called on the compute thread between iterations: no
 * allocation, lock or system call is allowed. After a failure no drafts are
 * made by this drafter any more.
 */
typedef struct bt_batch_drafter {
    /** Draws the next draft of each sequence, for token n_tokens + n_drafts.
     *  May write KV of the target from the last known token on, which the
     *  iteration computes anew before it reads it.
     *  @param [in,out] next  [n], 1 <= n <= max_seqs
     *  @retval BT_OK
     *  @return a failure */
    bt_status_t (*draft)(void *ctx, bt_next_draft_t *next, uint32_t n);
    /** Sets n_rows of all sequences that may be drafted for in this iteration,
     *  before the first draft: 0 where none can be made. NULL: it is 1, there
     *  is no KV cache of its own. */
    void (*count_rows)(void *ctx, bt_next_draft_t *next, uint32_t n);
    /** Computes K and V of known tokens of a sequence that lags, but the last.
     *  NULL: none ever lags.
     *  @param [in]  max_rows  most tokens, at least 1
     *  @param [out] n_rows_p  tokens; 0: there is no room for the sequence
     *  @retval BT_OK
     *  @return a failure */
    bt_status_t (*catch_up)(void *ctx, struct bt_seq *seq, uint32_t max_rows,
                            uint32_t *n_rows_p);
    void *ctx;               /**< the owner's */
    uint32_t max_seqs;       /**< most sequences of a call of draft() */
    uint32_t context_tokens; /**< most positions of a sequence that it computes;
                                  0: all */
    float read_share; /**< time for reading K and V of a sequence, relative to
                           the target's */
    /** Tells a drafter that reads hidden states of the target what an iteration
     *  left of positions pos … pos + n - 1 of a sequence: for each, side by
     *  side, what `taps` names. The tokens of all of them and of position pos +
     *  n are known. Not told of all positions. NULL: it reads none, and `taps`
     *  is not used. */
    void (*computed)(void *ctx, struct bt_seq *seq, uint32_t pos, uint32_t n,
                     const float *hidden);
    bt_taps_t taps; /**< without hidden; only where bt_model_taps() */
} bt_batch_drafter_t;

/** One sequence. The owner fills the fields before bt_engine_submit(), unless a
 *  comment says otherwise. All arrays are the owner's and stay valid until it
 *  has read the LEFT item. */
typedef struct bt_seq {
    /** Scheduler state. The owner sets priority, since_us, deadline_us,
     *  n_tokens and n_computed before submit; the engine sets the slack. */
    bt_sched_seq_t sched;
    void *user;       /**< pointer for the owner */
    uint32_t *tokens; /**< capacity: n_tokens + max_new ids */
    /** Rows of a prompt table (prompt_table.h): n_table_rows times the model's
     *  width; ids from BT_TABLE_TOKEN on are their numbers. Only where
     *  bt_model_takes_rows(), and without drafts of a model. */
    const float *table;
    uint32_t n_table_rows;
    uint32_t n_prompt;      /**< tokens of the client's prompt, for penalties */
    uint32_t max_new;       /**< most tokens to draw from now on, at least 1 */
    uint32_t first_index;   /**< index in the answer of the first token drawn
                                 here */
    const uint32_t *blocks; /**< block table: one id per group for each span,
                                 for all positions computed here, or for the
                                 positions of `kv_limit` */
    atomic_uint kv_limit;   /**< positions that have blocks, set by
                                 bt_seq_set_kv_limit(); 0: all */
    /** Block copies of a fork whose origin has its KV already, one per layer
     *  group. The engine makes them before the first iteration of the sequence.
     *  The source blocks must stay held until the first item of the sequence in
     *  a report. Not allowed in a fan-out. */
    bt_kv_copy_t copy[BT_KV_MAX_GROUPS];
    bool leave_after_first; /**< true at a prefill worker: the sequence leaves
                                 after one token */
    bool tell_layers;       /**< publish layer progress for bt_seq_layers() */
    /** Target in us for the mean time between tokens; cores are donated only
     *  within it (sched_pipeline.h). 0: the engine's target, for each
     *  iteration. */
    uint64_t itl_us;
    /** Time (bt_now_us()) of the token from which the mean for itl_us is
     *  measured. 0: the engine sets it at the first token drawn here. */
    uint64_t paced_us;
    bool clear_tail; /**< zero the last block before it is computed, if
                          n_tokens fill it only in part: the block is sent to
                          another worker, which must not get older data */
    bt_sampling_t sampling;
    const bt_logits_processor_t *processors; /**< n_processors of them */
    uint32_t n_processors;
    bt_seq_grammar_t grammar; /**< not with beams */
    bt_drafter_t drafter;     /**< propose == NULL: no drafts */
    const bt_lora_t *lora; /**< adapter; NULL: none. It outlives the sequence */
    bt_hash128_t space;  /**< cache namespace (kv_prefix.h): what a draft model
                              computed is of use in the same one only */
    bool model_drafts;   /**< the engine's draft model drafts for it, too */
    bool grammar_drafts; /**< so does its grammar, where it leaves no choice */
    uint32_t max_drafts; /**< most drafts of one iteration, where it has a
                              drafter; 0: no bound of its own */
    /** Beam search (beams.h): the sequence takes `width` seats, computes a row
     *  for each beam, and has no TOKEN items; its answers are there when it
     *  leaves with STOP or LENGTH. Its table has bt_beams_n_blocks() blocks,
     *  and it is submitted alone, without rows and drafter. NULL: none. */
    bt_beams_t *beams;
    /** Logits and log probabilities to store; NULL: none. In a fan-out each
     *  sequence has its own, from the last position of the prompt on; rows of
     *  earlier positions are only possible for a sequence alone. */
    const bt_seq_rows_t *rows;
    atomic_bool cancel; /**< set through bt_engine_cancel() */
    /** Read it with bt_seq_has_begun(). Set for followers too when their leader
     *  begins. */
    atomic_bool has_begun;
    /** Number of layers whose KV is stored for all n_tokens; read it with
     *  bt_seq_layers(). The owner sets 0 before submit. */
    atomic_uint n_layers;
    /* Private to the engine. */
    bt_list_t followers; /**< sequences that this one computes the prompt for */
    /** Proposal behind the known tokens, in `tokens`; the first sched.n_drafts
     *  of it are verified by the next iteration. */
    bt_draft_t draft;
    uint8_t matches[BT_ENGINE_SEQ_DRAFTS]; /**< match length of each draft of a
                                                model or a grammar
                                                (sched_draft.h) */
    /** Proposal of `drafter` where another one took its place: it is compared
     *  with what is drawn. */
    bt_draft_t aside;
    uint32_t aside_ids[BT_ENGINE_SEQ_DRAFTS];
    bt_sched_acceptance_seq_t acceptance;       /**< acceptance of its drafts */
    bt_sched_acceptance_seq_t model_acceptance; /**< acceptance of the
                                                      draft model */
    bt_sched_acceptance_seq_t grammar_acceptance; /**< acceptance of its
                                                       grammar's drafts */
    bool wants_drafts;  /**< drafts are expected to pay: its next token is
                           awaited on a device */
    uint64_t late_ns;   /**< when it joined its first iteration mid-step; 0: it
                             was in that iteration from the begin */
    uint32_t n_unpaced; /**< tokens drawn here up to paced_us */
    uint32_t n_under_way; /**< passes in flight that contain the sequence */
    uint32_t from_id; /**< which of the ids drawn by the pass in flight its last
                           token will be; UINT32_MAX: the token is known */
    bool is_gone; /**< ended, but a pass in flight still computes it in vain;
                       LEFT follows that pass */
    bt_finish_t gone_finish; /**< finish of that LEFT */
    /* Written by the engine; the owner reads them after LEFT. */
    uint32_t n_drawn;        /**< tokens drawn here */
    uint32_t n_iterations;   /**< iterations that included the sequence */
    uint32_t n_chunks;       /**< iterations with a prefill chunk of it */
    uint32_t n_drafted;      /**< drafts that were verified */
    uint32_t n_accepted;     /**< drafts that were right */
    uint64_t first_start_ns; /**< when its first iteration began, or when it
                                  joined that iteration */
    uint64_t context_ns;     /**< time of iterations with a chunk of it */
    uint64_t generation_ns;  /**< time of its other iterations */
} bt_seq_t;

/** Kind of a report item. */
typedef enum bt_report_kind {
    BT_REPORT_CHUNK, /**< KV is stored for the first n_computed tokens */
    BT_REPORT_TOKEN, /**< a token was drawn */
    BT_REPORT_LEFT,  /**< the sequence belongs to the owner again */
} bt_report_kind_t;

/** Event of one sequence in a report. */
typedef struct bt_report_item {
    bt_report_kind_t kind;
    bt_seq_t *seq;
    uint32_t n_computed; /**< CHUNK: tokens that have KV */
    uint32_t token;      /**< TOKEN: id */
    uint32_t index;      /**< TOKEN: 0 = token #1 of the answer */
    bt_finish_t finish;  /**< TOKEN, LEFT: reason; NONE in a LEFT: the sequence
                              left unfinished */
} bt_report_item_t;

/** Length of the counts by position in bt_draft_counts_t. */
#define BT_DRAFT_POSITIONS BT_ENGINE_SEQ_DRAFTS

/** Drafts of one iteration. */
typedef struct bt_draft_counts {
    uint32_t n_steps; /**< sequences that had drafts verified */
    uint32_t n_drafted[BT_DRAFT_N_SOURCES];
    uint32_t n_accepted[BT_DRAFT_N_SOURCES];
    uint32_t n_accepted_at[BT_DRAFT_POSITIONS]; /**< by position, from 0 */
} bt_draft_counts_t;

/** Events of one iteration. A pass that preempted an iteration at a layer
 *  boundary has a report of its own, which comes before that of the iteration.
 *  Items of one sequence are in the order CHUNK, TOKEN, LEFT. A sequence has
 *  several TOKEN items only if drafts were right, so a report has at most
 *  max_seqs + max_drafts of them. */
typedef struct bt_report {
    uint64_t iteration; /**< number of the iteration */
    uint64_t start_ns, end_ns;
    uint64_t preempting_ns; /**< part of this time that preempting passes took,
                             which have their own reports */
    uint64_t drafting_ns;   /**< time of a draft model, before start_ns */
    uint32_t n_seqs, n_context_seqs, n_generation_seqs;
    uint32_t n_context_tokens; /**< prefill tokens */
    bt_sched_step_t work;      /**< amount of work done in work_ns */
    bt_draft_counts_t drafts;  /**< drafts verified */
    uint64_t work_ns;    /**< from start_ns until the tokens were drawn, without
                              preempting passes */
    bool overlapped;     /**< overlapped: began while the previous pass was
                         still running */
    uint64_t yielded_ns; /**< sleep before the iteration to donate cores */
    bt_status_t status;  /**< not BT_OK: the device failed; all items are LEFT
                          */
    uint32_t n_items;
    bt_report_item_t *items; /**< [n_items] */
} bt_report_t;

/** Simulated latency: a minimum duration of each forward pass, kept by waits
 *  between layers and at the end, so that a small model can stand in for a
 *  large one. All zero: no minimum. */
typedef struct bt_engine_min_latency {
    uint32_t pass_us; /**< for a pass */
    uint32_t row_us;  /**< added for each row (token) of the pass */
} bt_engine_min_latency_t;

/** Configuration of an engine; copied by bt_engine_create(). */
typedef struct bt_engine_config {
    bt_model_t *model; /**< borrowed; only the compute thread uses it */
    bt_kv_view_t kv;   /**< KV pool */
    /** Layer groups of the model (bt_forward_t.groups); borrowed. NULL: one
     *  group. */
    const bt_kv_groups_t *groups;
    uint32_t max_seqs;     /**< seats: most sequences submitted at a time, at
                                least 1 */
    uint32_t token_budget; /**< most prefill tokens of an iteration, at least
                                tokens_per_block */
    uint32_t max_drafts;   /**< most drafts of an iteration */
    uint32_t fixed_drafts; /**< verify this many drafts of each sequence, as far
                                as max_drafts reaches, whatever that costs;
                                0: those that are expected to pay */
    /** Draft model; draft == NULL: none. Not where a model has several pipeline
     *  stages. */
    bt_batch_drafter_t batch_drafter;
    bool tunes_chunks;      /**< choose the chunk size automatically
                                 (sched_chunk.h) */
    uint32_t itl_us;        /**< ITL target in us for chunk sizes
                                 (sched_chunk.h) and core donation; 0: a default
                                 */
    bt_sched_order_t order; /**< order of waiting prompts */
    /** Hooks for core donation between the workers of a host
     *  (sched_pipeline.h). want_cores() publishes until when (bt_now_ns()) this
     *  worker wants the cores of others; 0: no longer. cores_wanted() returns
     *  until when others want the cores of this worker. Both run on the compute
     *  thread: no lock, no system call. NULL: no donation. */
    void (*want_cores)(void *ctx, uint64_t until_ns);
    uint64_t (*cores_wanted)(void *ctx);
    void *cores_ctx; /**< argument of both hooks; the owner's */
    bool own_cores;  /**< no other thread computes on the compute thread's
                          core */
    bool late_join;  /**< mid-step join: sequences with one token to compute may
                          join a running iteration (sched_pipeline.h) */
    bt_engine_min_latency_t min_latency; /**< simulated latency */
    /** Overlapped scheduling: whether an iteration on a device may begin while
     *  the previous one still runs (sched_pipeline.h). Ignored by back ends
     *  that are not devices. */
    bt_sched_overlap_mode_t overlap;
} bt_engine_config_t;

typedef struct bt_engine bt_engine_t;

/** Returns the most rows (tokens) of one iteration, for bt_model_config_t. */
uint32_t bt_engine_max_rows(uint32_t max_seqs, uint32_t token_budget,
                            uint32_t tokens_per_block, uint32_t max_drafts);

/** Returns the most rows of logits of one iteration, for bt_model_config_t. */
uint32_t bt_engine_max_logit_rows(uint32_t max_seqs, uint32_t max_drafts);

/**
 * Draws the token behind the first @a n_tokens of a sequence from its row of
 * logits, with its processors, grammar, sampling parameters and seed.
 * @param [in,out] logits  [n_vocab]; overwritten with what was drawn from
 * @return BT_NO_TOKEN: the grammar cannot be followed
 */
uint32_t bt_seq_draw(bt_seq_t *seq, bt_sampler_t *sampler, uint32_t n_tokens,
                     float *logits, uint32_t n_vocab);

/** Starts the compute thread.
 *  @param [out] engine_p  Owned by the caller; free with bt_engine_destroy().
 *  @retval BT_OK
 *  @retval BT_ERR_INVALID_PARAM  max_seqs is 0, or token_budget is below
 *                                tokens_per_block
 *  @retval BT_ERR_UNSUPPORTED  a draft model and several pipeline stages, or a
 *                              drafter that reads hidden states where there
 *                              are none
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_IO  no thread or descriptor could be made */
BT_MUST_CHECK bt_status_t bt_engine_create(const bt_engine_config_t *config,
                                           bt_engine_t **engine_p);
/** Asks the compute thread to end after its current iteration, and waits for
 *  its end for at most @a timeout_ms.
 *  @return false: the thread has not ended, so nothing that it uses may be
 *          freed; call again, or end the process */
bool bt_engine_stop(bt_engine_t *engine, uint32_t timeout_ms);
/** Stops the engine after the current iteration, waits for its thread however
 *  long that takes, and frees it. Sequences still submitted belong to the owner
 *  again, without a LEFT item. NULL is allowed. */
void bt_engine_destroy(bt_engine_t *engine);

/** Submits one sequence, which belongs to the engine until its LEFT item.
 *  @retval BT_OK
 *  @retval BT_ERR_BUSY  no seat is free: max_seqs sequences are submitted */
BT_MUST_CHECK bt_status_t bt_engine_submit(bt_engine_t *engine, bt_seq_t *seq);

/**
 * Submits a fan-out: sequences with one prompt that draw independently. All are
 * submitted, or none. The first sequence that is not canceled is the leader and
 * computes the prompt for all, in its own turn.
 *
 * The sequences are equal in tokens, n_tokens and n_computed, which is a whole
 * number of blocks. Each has its own array of tokens, turn and sampling.
 *
 * Blocks: all block tables share the full blocks of the first n_tokens. Each
 * sequence has its own partly filled last block, unless the sequences leave
 * after the first token: then they may share it, because nothing is written
 * after the prompt. bt_kv_fork() makes such tables, and the engine copies the
 * last block. Every sequence holds the blocks of its table until its own LEFT,
 * because each may become the leader: a canceled leader leaves at once, and the
 * next sequence continues after the last full block, in its own table.
 *
 * A fan-out takes n seats from the begin, and n items of each kind in a report.
 *
 * @param [in] seqs  [n] sequences, n at least 1; the array itself is the
 *         caller's again afterwards.
 * @retval BT_OK
 * @retval BT_ERR_BUSY  fewer than n seats are free; nothing was submitted
 */
BT_MUST_CHECK bt_status_t bt_engine_submit_fanout(bt_engine_t *engine,
                                                  bt_seq_t *const *seqs,
                                                  uint32_t n);

/**
 * Tells the engine that a sequence has blocks for the positions before
 * @a n_positions. Called by the owner thread at any time: before submit with a
 * value that may cover only some of the positions to compute; afterwards only
 * with larger values, once the new block ids are in the table. Call
 * bt_engine_wake() then.
 *
 * @param [in] n_positions  a whole number of blocks; 0: blocks for every
 *         position that may be computed
 */
static inline void bt_seq_set_kv_limit(bt_seq_t *seq, uint32_t n_positions)
{
    atomic_store_explicit(&seq->kv_limit, n_positions, memory_order_release);
}

/** Wakes the compute thread, which then looks at its sequences again. Call
 *  after bt_seq_set_kv_limit(), and after canceling a sequence that may sit
 * out. Makes a system call only if the compute thread sleeps. */
void bt_engine_wake(bt_engine_t *engine);

/** Cancels a sequence: the next iteration that is planned is without it. LEFT
 *  (CANCELED) follows, unless the sequence had already finished. Others of its
 *  fan-out continue. Never blocks. If the sequence may sit out, call
 *  bt_engine_wake() afterwards. */
void bt_engine_cancel(bt_seq_t *seq);

/** Returns in how many layers, from layer 0 on, the KV of all tokens of a
 *  sequence is stored, while its last chunk is computed. Needs tell_layers. May
 *  return 0 until the CHUNK item comes. Called by the owner thread. */
static inline uint32_t bt_seq_layers(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->n_layers, memory_order_acquire);
}

/** True when an iteration has included a part of the sequence, or of its
 *  leader, since it was submitted. False: the sequence waits in the engine's
 *  queue. Called by the owner thread; the answer may be slightly out of date.
 */
static inline bool bt_seq_has_begun(const bt_seq_t *seq)
{
    return atomic_load_explicit(&seq->has_begun, memory_order_relaxed);
}

/**
 * Removes the last @a n drawn tokens of a sequence that the owner has. After
 * the next submit, the engine draws them anew.
 *
 * Blocks from bt_kv_blocks_for(n_computed, tokens_per_block) on have no valid
 * content afterwards. The last remaining token is computed again: it must not
 * lie in a shared block, and the KV of all positions that it attends to must
 * still exist, in groups with a window too.
 *
 * @param [in] n  at most n_drawn; at least one token must remain
 */
static inline void bt_seq_roll_back(bt_seq_t *seq, uint32_t n)
{
    seq->sched.n_tokens -= n;
    seq->n_drawn -= n;
    if (seq->sched.n_computed >= seq->sched.n_tokens) {
        seq->sched.n_computed = seq->sched.n_tokens - 1;
    }
}

/** Returns a descriptor to poll: readable when a report may have come, after
 *  bt_engine_sleep_prepare() has returned true. */
int bt_engine_fd(const bt_engine_t *engine);
/** Prepares for a sleep on bt_engine_fd().
 *  @return true: sleep, then call bt_engine_sleep_done(); false: do not sleep,
 *          a report is there */
bool bt_engine_sleep_prepare(bt_engine_t *engine);
/** Ends a sleep on bt_engine_fd(). */
void bt_engine_sleep_done(bt_engine_t *engine);

/** Returns the next report, or NULL if there is none. Borrowed: return it with
 *  bt_engine_recycle(). */
bt_report_t *bt_engine_next(bt_engine_t *engine);
/** Returns a report to the engine, for another iteration. */
void bt_engine_recycle(bt_engine_t *engine, bt_report_t *report);

/** Reads the progress counter, for a watchdog. The counter changes with each
 *  operation of a layer (bt_forward_t.progress) and around each step of the
 *  compute thread. Any thread may call this.
 *  @return true: the engine has work; false: it has none, and the counter does
 *          not change */
bool bt_engine_progress(const bt_engine_t *engine, uint64_t *marks_p);

#endif
