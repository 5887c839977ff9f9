/* SPDX-License-Identifier: Apache-2.0 */
/** @file ranks_priv.h  Between ranks.c (orders, sums, rows between stages),
 *  ranks_results.c (what a call comes to) and ranks_follow.c (who does what
 *  rank 0 says) only.
 */
#ifndef BT_INFERENCE_MODEL_RANKS_PRIV_H
#define BT_INFERENCE_MODEL_RANKS_PRIV_H

#include "inference/model/rank_tables.h"
#include "inference/model/ranks.h"
#include "inference/model/sampler.h"
#include "inference/model/select.h"

typedef enum bt_rank_kind {
    BT_RANK_STEP = 1,
    BT_RANK_LATE,
    BT_RANK_GO_ON,
    BT_RANK_RESULTS, /* of the oldest step; to the first of several stages */
    BT_RANK_COPY,
    BT_RANK_CLEAR,
    BT_RANK_END,
} bt_rank_kind_t;

#define BT_RANK_STEP_WORDS 5 /* that a step begins with */

typedef struct bt_rank_order {
    uint32_t kind;
    uint32_t n_words; /* that follow in another message */
    uint32_t a, b;
} bt_rank_order_t;

/** What a follower's call is made of. */
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
    uint32_t rank; /* of the instance */
    bool may_talk; /* between two layers */
    uint32_t stage_size, n_stages;
    uint32_t stage;
    bt_status_t status;
    uint32_t *words; /* of an order */
    size_t max_words;
    /* Of one call, as the model was loaded for. */
    uint32_t max_rows, max_seqs, max_logit_rows;
    size_t max_blocks;
    uint32_t micro_rows;
    bt_ragged_seq_t *micro_seqs; /* of a micro-batch; NULL: one stage */
    uint32_t *micro_logit_rows;
    size_t result_bytes; /* of one rank */
    uint32_t *tokens;    /* rows of the embedding */
    uint8_t *send;       /* results of a call */
    uint8_t *recv;
    /* Of the first of several stages, what comes of the calls that were
     * started: a ring of max_started, each of result_bytes. */
    uint8_t *arrivals;
    size_t *arrival_bytes;
    uint32_t first_started, n_started, max_started;
    bt_candidate_t *candidates; /* BT_SAMPLER_MAX_NEEDS */
    bt_rank_order_t next;       /* kind 0: not known yet */
    /* Of who follows; the second one is made inside the first. */
    bt_rank_call_t *calls;
    uint32_t depth;
};

static inline uint32_t bt_rank_needs(const bt_forward_t *fwd, uint32_t i)
{
    return (fwd->needs == NULL) ? 0 : fwd->needs[i];
}

/* ranks.c; all are nothing once something has failed (bt_ranks_status()). */

void bt_ranks_sum_over(bt_ranks_t *ranks, const bt_collectives_t *coll,
                       float *x, size_t n);
/** What rank 0 of these ranks has, to the others. NULL: it is alone. */
void bt_ranks_share(bt_ranks_t *ranks, const bt_collectives_t *coll, void *data,
                    size_t bytes);
/** To the next stage; the last one's is the first. */
void bt_ranks_send_on(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      const void *data, size_t bytes);
/** From the stage before. */
void bt_ranks_receive(bt_ranks_t *ranks, const bt_collectives_t *coll,
                      void *data, size_t bytes);
/** Who sends to this one; to the first stage the last one. */
uint32_t bt_ranks_before(const bt_ranks_t *ranks, const bt_collectives_t *coll);
/** To the next stage, ahead of the rows that it is for; its words are in
 *  ranks->words. */
void bt_ranks_pass_order(bt_ranks_t *ranks, bt_rank_order_t *order);
/** Rank 0: to all that it is for. */
void bt_ranks_tell(bt_ranks_t *ranks, const bt_rank_order_t *order);

/* ranks_follow.c */

/** @retval BT_ERR_NO_MEMORY  bt_rank_call_fini() it, then too */
BT_MUST_CHECK bt_status_t bt_rank_call_init(bt_rank_call_t *call,
                                            const bt_ranks_t *ranks);
void bt_rank_call_fini(bt_rank_call_t *call);

#endif
