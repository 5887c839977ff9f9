/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_queue.h
 *
 * Order of every queue: at the router, at a worker and in an iteration. Entries
 * are sorted by the time at which each is due:
 *
 *     arrival + slack + priority levels below the top level
 *
 *     slack     how much later requests may overtake it under its scheduling
 *               order, at most BT_SCHED_SLACK_MS: none for
 *               first come, first served
 *     priority  a level is a head start of BT_SCHED_LEVEL_MS, and at most
 *               BT_SCHED_TOP_LEVEL levels count
 *
 * So a waiting entry rises against later ones, and none is overtaken by one
 * that arrived more than four minutes after it (two for slack, two for
 * priority), whatever their kinds: BT_SCHED_MAX_WAIT_MS. All age at one rate:
 * the order of two never changes while they wait, a queue is a sorted list, and
 * no clock is read. Slack may only shrink, for what is being computed.
 *
 * Threads: none of these functions lock; one thread owns a queue.
 * Source:  A. Silberschatz, J. Peterson, P. Galvin, "Operating System
 *          Concepts", section on scheduling (ageing against starvation).
 */
#ifndef BT_COMMON_SCHED_SCHED_QUEUE_H
#define BT_COMMON_SCHED_SCHED_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"

#define BT_SCHED_LEVEL_MS  5000u
#define BT_SCHED_TOP_LEVEL 24u
#define BT_SCHED_SLACK_MS  120000u
/** Longest lead: an entry that arrived later by more than this overtakes
 *  none. */
#define BT_SCHED_MAX_WAIT_MS \
    (BT_SCHED_SLACK_MS + BT_SCHED_LEVEL_MS * BT_SCHED_TOP_LEVEL)

/** Queue entry; embedded in whatever waits. */
typedef struct bt_sched_turn {
    bt_list_t link;    /**< in a queue, or in none */
    uint32_t priority; /**< levels; higher is sooner */
    uint64_t since_us; /**< arrival, by the owner's clock */
    uint64_t slack_us; /**< counts up to BT_SCHED_SLACK_MS */
} bt_sched_turn_t;

/** Initialises an entry in no queue, without slack. */
static inline void bt_sched_turn_init(bt_sched_turn_t *turn, uint32_t priority,
                                      uint64_t since_us)
{
    bt_list_init(&turn->link);
    turn->priority = priority;
    turn->since_us = since_us;
    turn->slack_us = 0;
}

/** True when @a a goes before @a b. A strict order: of two equal entries
 *  neither does. */
bool bt_sched_turn_before(const bt_sched_turn_t *a, const bt_sched_turn_t *b);

/** Inserts an entry behind equal ones. Searches from the back: O(entries
 *  that it overtakes). */
void bt_sched_queue_insert(bt_list_t *queue, bt_sched_turn_t *turn);

/** Changes an entry's slack, and moves the entry if it is queued and has to
 *  move. */
void bt_sched_queue_set_slack(bt_list_t *queue, bt_sched_turn_t *turn,
                              uint64_t slack_us);

static inline bt_sched_turn_t *bt_sched_turn_of(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, bt_sched_turn_t, link);
}

/** Return the first or the last entry of a queue, NULL when it is empty. */
static inline bt_sched_turn_t *bt_sched_queue_first(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->next);
}

static inline bt_sched_turn_t *bt_sched_queue_last(const bt_list_t *queue)
{
    return bt_list_empty(queue) ? NULL : bt_sched_turn_of(queue->prev);
}

/*
 * Scheduling policy: the order in which prompts are computed and sequences
 * begin to generate, as the slack of each.
 *
 *     fcfs      none: first come, first served
 *     srpt      shortest remaining first, with ageing: BT_SCHED_STRETCH times
 *               the request's compute time, and at most 32 times that for
 *               the remaining part; so for its last 32nd it moves up, and one
 *               that is nearly complete is not stopped for another
 *     deadline  earliest deadline first: the time from arrival to the
 *               deadline of the whole answer (a request's own timeout, or
 *               --request-timeout-ms); a request without a deadline, or with
 *               one further off than the maximum slack, has the maximum
 *
 *     length    shortest answer first, with ageing: BT_SCHED_STRETCH times the
 *               longest time that all of it takes here. For generation:
 *               requests of similar lengths are adjacent, so static batches
 *               (sched_admit.h) consist of such
 *
 * The bound of srpt: a later request overtakes a prompt of compute time t only
 * if it arrives in the first BT_SCHED_STRETCH x t after that prompt. Everything
 * that arrives afterwards waits. So however many shorter prompts arrive, a
 * prompt waits for what was queued before it, what arrives in that time, and
 * itself: if its worker is always busy with shorter ones, it completes after at
 * most BT_SCHED_STRETCH + 1 times t plus the others' queue by then. The bound
 * of length holds up to the begin: BT_SCHED_STRETCH times t after its arrival
 * no new request overtakes it.
 *
 * The times are predictions (sched_cost.h). A wrong one makes an order worse
 * and changes no token (I1).
 *
 * Threads: pure.
 * Source:  L. Schrage, "A Proof of the Optimality of the Shortest Remaining
 *          Processing Time Discipline", Operations Research 16, 1968;
 *          M. Dertouzos, "Control Robotics: the Procedural Control of Physical
 *          Processes", 1974 (earliest deadline first).
 */

typedef enum bt_sched_order {
    BT_SCHED_SRPT, /**< the default */
    BT_SCHED_FCFS,
    BT_SCHED_DEADLINE,
    BT_SCHED_LENGTH,
    BT_SCHED_N_ORDERS,
} bt_sched_order_t;

/** Stretch: how many times its own length a prompt or an answer lets others
 *  overtake it. */
#define BT_SCHED_STRETCH 4u

/** Request properties that an order uses. */
typedef struct bt_sched_work {
    uint64_t since_us;    /**< arrival */
    uint64_t deadline_us; /**< by the clock of since_us; UINT64_MAX: none */
    uint64_t whole_us;    /**< to compute all of it */
    uint64_t left_us;     /**< to compute the remaining part */
    uint64_t answer_us;   /**< for all work of the request at a worker:
                               length */
} bt_sched_work_t;

/** Returns a request's slack under an order. @return at most
 *  BT_SCHED_SLACK_MS. */
uint64_t bt_sched_slack_us(bt_sched_order_t order, const bt_sched_work_t *work);

/**
 * Finds an order by name.
 * @return false: no order has this name
 */
bool bt_sched_order_find(const char *name, bt_sched_order_t *order_p);

/*
 * In-flight batching with chunked prefill: which tokens of which sequences run
 * in the next iteration. Pure: state in, plan out.
 *
 * One iteration is a ragged batch under a token budget:
 *
 *   1. every sequence with one token left to compute gets it, with the draft
 *      tokens behind it: generating sequences, and prompts whose rest was
 *      found in a cache;
 *   2. the rest of the budget, but never less than a block, goes to sequences
 *      with more to compute, as chunks, in their order. So a
 *      shorter prompt, or one of a higher priority, also goes before one that
 *      is half computed. A chunk that is not a prompt's last ends on a block
 *      boundary of absolute positions, so that whole blocks become ready to
 *      send. Where no chunk fits, nothing further back overtakes. Behind a
 *      prompt of the top level that completes in this iteration none of level 0
 *      begins: the first token comes with the iteration's end.
 *
 * A sequence that joins is in the next plan; one that leaves is no longer in
 * the list. There is no padding.
 *
 * Threads: none of these functions lock; one thread owns the lists.
 * Source:  Yu et al., "Orca", OSDI 2022 (iteration-level scheduling);
 *          Agrawal et al., "Sarathi-Serve", OSDI 2024 (chunked prefill).
 */

/** Scheduler's part of a sequence; embedded in the engine's object. */
typedef struct bt_sched_seq {
    bt_sched_turn_t turn; /**< in the engine's running queue */
    uint32_t n_tokens;    /**< known token ids: prompt and generated */
    uint32_t n_computed;  /**< tokens with K and V in the cache */
    uint32_t n_drafts;    /**< draft tokens at the end of n_tokens */
    /** Positions, rows_from .. rows_end - 1, whose rows of logits are wanted
     *  in addition to those sampled from. */
    uint32_t rows_from, rows_end;
    /** Positions for which blocks are held; 0: for all that the sequence may
     *  compute. Nothing beyond them is planned. A whole number of blocks if
     *  below n_tokens of a sequence with chunks to compute. */
    uint32_t kv_limit;
    /* Inputs of the slack, set by the worker that computes
     * it. */
    uint64_t deadline_us; /**< by the clock of turn.since_us; 0: none */
    uint64_t whole_us;    /**< compute time of its chunks, on arrival */
} bt_sched_seq_t;

/** True when a sequence has chunks to compute. Otherwise it generates: one
 *  token, and drafts. */
static inline bool bt_sched_seq_has_chunks(const bt_sched_seq_t *seq)
{
    return seq->n_tokens - seq->n_computed > 1 + seq->n_drafts;
}

/** True when a sequence has blocks to proceed: for all known tokens, or for
 *  a chunk of them. Otherwise it is skipped. */
static inline bool bt_sched_seq_may_run(const bt_sched_seq_t *seq)
{
    return (seq->kv_limit == 0) || (seq->n_tokens <= seq->kv_limit) ||
           (bt_sched_seq_has_chunks(seq) && (seq->n_computed < seq->kv_limit));
}

/** Part of one sequence in the next iteration. */
typedef struct bt_sched_item {
    bt_sched_seq_t *seq;
    uint32_t n_new;  /**< tokens to compute: n_computed .. n_computed+n_new-1 */
    bool last_chunk; /**< afterwards all known tokens are computed: sample */
} bt_sched_item_t;

/**
 * Plans one iteration.
 *
 * @param [in]  running           Queue of bt_sched_seq_t.turn.
 * @param [in]  token_budget      Tokens of all chunks and generation steps; at
 *                                least tokens_per_block. Generation steps are
 *                                never held back, and beside many of them one
 *                                block of chunks is planned: so the plan may
 *                                exceed the budget.
 * @param [in]  tokens_per_block
 * @param [in]  max_items         Capacity of @a items.
 * @param [out] items             Generation steps first, then chunks.
 * @param [out] n_context_p       Number of prompt tokens among the tokens.
 * @return the number of items; 0 only if no sequence has blocks to proceed.
 */
uint32_t bt_sched_plan(const bt_list_t *running, uint32_t token_budget,
                       uint32_t tokens_per_block, uint32_t max_items,
                       bt_sched_item_t *items, uint32_t *n_context_p);

/**
 * Plans a chunk for layer-boundary preemption: a pass of its own inside an
 * iteration in flight, whose sequences wait for it. The chunk is of the first
 * sequence with chunks that is now in order before all sequences of the
 * iteration. So a short prompt waits for a layer of a long one's chunk, not for
 * the chunk:
 *
 *     long    ██ layer 0 ██ layer 1 ██┊        wait        ┊██ layer 2 ██ ...
 *     short           arrives         ┊ layers 0..L, token ┊
 *
 * No sequence enters an iteration that has generating sequences: their clients
 * would wait, too.
 *
 * @param [in]  under_way     Plan of that iteration, of n_under_way items;
 *     n_computed is as it was when the iteration began.
 * @param [in]  token_budget  Most tokens of the chunk.
 * @param [out] item_p
 * @return whether there is one
 * Source: the preemptive shortest job first of the operating systems; between
 *         layers as Orca's iterations are between tokens.
 */
bool bt_sched_plan_preempting(const bt_list_t *running,
                              const bt_sched_item_t *under_way,
                              uint32_t n_under_way, uint32_t token_budget,
                              uint32_t tokens_per_block,
                              bt_sched_item_t *item_p);

/**
 * Cuts the chunks of a plan so that the rows of logits that sequences want fit
 * max_rows. Rows to sample from, one for each item and each draft, are not
 * counted. What is cut off comes in a later plan; chunks that are cut may end
 * inside a block. As long as max_rows is not 0, some sequence makes progress.
 *
 * @param [in,out] items        Of bt_sched_plan(), n_items of them.
 * @param [in]     max_rows     Capacity in rows.
 * @param [in,out] n_context_p  Of bt_sched_plan().
 * @return number of items left
 */
uint32_t bt_sched_limit_rows(bt_sched_item_t *items, uint32_t n_items,
                             uint32_t max_rows, uint32_t *n_context_p);

#endif
