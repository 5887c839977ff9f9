/* SPDX-License-Identifier: Apache-2.0 */
/** @file ranks_priv.h
 *
 * Shared by ranks.c (orders, sums, rows between stages), ranks_results.c
 * (results of a call) and ranks_follow.c (ranks that execute orders of rank 0)
 * only.
 */
#ifndef BT_INFERENCE_MODEL_RANKS_PRIV_H
#define BT_INFERENCE_MODEL_RANKS_PRIV_H

#include "inference/model/logits.h"
#include "inference/model/ranks.h"
#include "inference/model/sampler.h"

typedef enum bt_rank_kind {
    BT_RANK_STEP = 1,
    BT_RANK_LATE,
    BT_RANK_GO_ON,
    BT_RANK_RESULTS, /* of the oldest step; sent in the first of several
                        stages */
    BT_RANK_COPY,
    BT_RANK_CLEAR,
    BT_RANK_DRAFT, /* the next order is one of the draft model */
    BT_RANK_END,
} bt_rank_kind_t;

#define BT_RANK_STEP_WORDS 5 /* words before the arrays of a step */

typedef struct bt_rank_order {
    uint32_t kind;
    uint32_t n_words; /* words that follow in another message */
    uint32_t a, b;
} bt_rank_order_t;

/** Arrays of a follower's call. */
typedef struct bt_rank_call {
    bt_forward_t fwd;
    bt_ragged_seq_t *seqs;
    uint32_t *tokens;
    uint32_t *logit_rows;
    uint32_t *needs;
    uint32_t *best_ids;
    uint32_t *blocks;
    size_t n_blocks;
} bt_rank_call_t;

struct bt_ranks {
    bt_rank_tables_t tables;
    uint32_t rank; /* rank within the instance */
    bool may_talk; /* messages between two layers are in use */
    uint32_t stage_size, n_stages;
    uint32_t stage;
    bt_status_t status;
    uint32_t *words; /* words of an order */
    size_t max_words;
    /* Limits of one call, as the model was loaded for. */
    uint32_t max_rows, max_seqs, max_logit_rows;
    size_t max_blocks;
    uint32_t micro_rows;
    bt_ragged_seq_t *micro_seqs; /* scratch of a microbatch; NULL: one stage */
    uint32_t *micro_logit_rows;
    size_t result_bytes; /* most bytes of one rank's results */
    uint32_t *tokens;    /* rows of the embedding */
    uint8_t *send;       /* results of a call */
    uint8_t *recv;
    /* Results of started calls, in the first of several stages: a ring of
     * max_started, each of result_bytes. */
    uint8_t *arrivals;
    size_t *arrival_bytes;
    uint32_t first_started, n_started, max_started;
    bt_candidate_t *candidates; /* BT_SAMPLER_MAX_NEEDS */
    bt_rank_order_t next;       /* order read in advance; kind 0: none */
    /* Calls of a follower; the second one is made inside the first. */
    bt_rank_call_t *calls;
    uint32_t depth;
};

static inline uint32_t bt_rank_needs(const bt_forward_t *fwd, uint32_t i)
{
    return (fwd->needs == NULL) ? 0 : fwd->needs[i];
}

/* ranks.c; no-ops once an operation has failed (bt_ranks_status()). */

void bt_ranks_sum_over(bt_ranks_t *ranks, const bt_collectives_t *coll,
                       float *x, size_t n);
/** Broadcasts the data of rank 0 of these ranks to the others. NULL: this rank
 *  is alone. */
void bt_ranks_share(bt_ranks_t *ranks, const bt_collectives_t *coll, void *data,
                    size_t bytes);
/** Sends data to the next stage; the last one sends to the first. */
void bt_ranks_send_on(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      const void *data, size_t bytes);
/** Receives data from the previous stage. */
void bt_ranks_receive(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      void *data, size_t bytes);
/** Returns the rank that sends to this one; for the first stage a rank of the
 *  last one. */
uint32_t bt_ranks_before(const bt_ranks_t *ranks, const bt_collectives_t *coll);
/** Sends an order to the next stage, ahead of the rows that it belongs to; its
 *  words are in ranks->words. */
void bt_ranks_pass_order(bt_ranks_t *ranks, bt_rank_order_t *order);
/** Sends an order from rank 0 to all ranks that it concerns. */
void bt_ranks_tell(bt_ranks_t *ranks, const bt_rank_order_t *order);

/* ranks_follow.c */

/** Allocates the arrays of a follower's call.
 *  @retval BT_ERR_NO_MEMORY  bt_rank_call_fini() it, then too */
BT_MUST_CHECK bt_status_t bt_rank_call_init(bt_rank_call_t *call,
                                            const bt_ranks_t *ranks);
void bt_rank_call_fini(bt_rank_call_t *call);

#endif
