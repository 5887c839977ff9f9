/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_place.h
 *
 * Which workers take a request, and why these. Pure: what a request asks for
 * and plain numbers of each worker in, a placement with its reasons out; the
 * same numbers give the same placement.
 *
 *     pair           context phase at one worker, generation at another
 *     prefill alone  one token is asked for, and the context phase draws it:
 *                    no grant, no KV on the way
 *     local          one worker does both phases
 *
 * The prefill worker whose outstanding prompts take the shortest time (a token
 * counts as a microsecond more), the decode worker with the smallest share of
 * seats or blocks in use; a full worker only where all are, a suspect one only
 * where there is no healthy one, a draining one never; the one that was taken
 * longest ago among equals.
 *
 * A pair is one whose KV can travel: the prefill worker says which decode
 * workers it reaches (bt_sched_reaches()). Where the best two are none, the
 * best one that reaches that decode worker is taken, or the best decode worker
 * that is reached; where nobody reaches anybody, it is as if no prefill worker
 * were here.
 *
 * A healthy worker with BT_SCHED_LOCAL does both phases where no prefill worker
 * is healthy and not full, and where that one is far behind: for each
 * outstanding prompt token of its own there are four, and 1,024 more, at the
 * best prefill worker. One with BT_SCHED_WEIGHED does where no prefill worker
 * is healthy; else the placement names it beside the pair, for the owner to
 * weigh the two ways (sched_disagg.h), which takes more than is known here. A
 * worker that is the best one in both roles does both
 * phases, too; and where the best ones are two, each of both roles, the one for
 * generation does: no KV has to travel, and no two workers hold blocks for each
 * other (I4).
 *
 * The load of a worker is the larger of two views: what this router has sent
 * and not seen ended, and what the worker itself reported (other routers send
 * to it too).
 *
 * Threads: one thread owns the workers.
 */
#ifndef BT_COMMON_SCHED_PLACE_H
#define BT_COMMON_SCHED_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/sched/sched_links.h"

/** What a worker may be asked for: a set. */
#define BT_SCHED_PREFILL 1u  /**< context phase; its KV goes elsewhere */
#define BT_SCHED_DECODE  2u  /**< generation, with KV that comes */
#define BT_SCHED_LOCAL   4u  /**< both phases of one request */
#define BT_SCHED_GROUPS  8u  /**< requests with one prompt, computed once */
#define BT_SCHED_ROWS    16u /**< log-probs and logits of requests */
#define BT_SCHED_WEIGHED 32u /**< LOCAL only where that costs less */

/** What a worker is sent ahead: as many requests as it has seats, and so many
 *  more. With these it has something to begin whenever something ends; the
 *  rest waits where its order can still change, where it is lost with nobody,
 *  and where it fills no link. One that has them, or is behind, is *full*. */
#define BT_SCHED_AHEAD 16u

/** Most requests of a group. */
#define BT_SCHED_MAX_GROUP 128u

typedef enum bt_sched_health {
    BT_SCHED_UP,
    BT_SCHED_SUSPECT,  /**< silent, or its work does not move */
    BT_SCHED_DRAINING, /**< takes nothing new */
    BT_SCHED_N_HEALTHS,
} bt_sched_health_t;

/** The scheduler's part of a worker; embedded in the owner's. */
typedef struct bt_sched_worker {
    bt_list_t link; /**< in the owner's list of candidates */
    uint64_t id;    /**< bt_sched_request_t.avoid names it so */
    uint32_t roles; /**< BT_SCHED_* */
    bt_sched_health_t health;
    uint32_t max_seats, n_blocks; /**< what it has, at least 1 of each */
    /** More is on its way to it than there should be; the owner keeps it. */
    bool is_behind;
    /** Its seats are those that keep a target between tokens (sched_slo.h):
     *  more than an eighth beyond them is not sent. */
    bool holds_target;
    /* Sent from here and not seen ended. */
    uint32_t seats;          /**< requests */
    uint64_t prefill_tokens; /**< prompt tokens not computed yet */
    uint64_t prefill_us;     /**< that they will take there (sched_cost.h) */
    uint64_t blocks;         /**< KV blocks that those requests may take */
    /* What it reported last; 0 before it did. */
    uint64_t reported_seats, reported_blocks, reported_waiting;
    uint64_t last_taken; /**< bt_sched_take()'s number of it */
    /* KV links; the owner keeps them. */
    uint32_t number;        /**< no other worker's */
    bool tells_links;       /**< else its KV reaches every decode worker */
    bt_sched_links_t links; /**< numbers of those that it reaches */
} bt_sched_worker_t;

/** Can KV go from one to the other, as far as is proven? */
static inline bool bt_sched_reaches(const bt_sched_worker_t *prefill,
                                    const bt_sched_worker_t *decode)
{
    return !prefill->tells_links ||
           bt_sched_links_has(&prefill->links, decode->number);
}

/** What a request asks for: all that a policy may go by. The one above goes by
 *  max_new and avoid; which beginning of the prompt a worker has cached, no
 *  worker tells a router yet. */
typedef struct bt_sched_request {
    uint32_t n_tokens;     /**< to compute: prompt, and output of before */
    uint32_t max_new;      /**< to generate, at least 1 */
    uint32_t priority;     /**< levels, see sched_queue.h */
    uint64_t deadline_us;  /**< by the owner's clock */
    bt_hash128_t space;    /**< of its blocks: tenant, adapter, salt */
    const uint64_t *avoid; /**< workers that it has had trouble with: only */
    uint32_t needs;        /**< BT_SCHED_ROWS or 0: of each worker it goes to */
    uint32_t n_avoid;      /**< where all others of that role are suspect or
                                none is here */
} bt_sched_request_t;

/** Why this way. */
typedef enum bt_sched_cause {
    BT_SCHED_BY_PHASES,  /**< a pair: one worker for each phase */
    BT_SCHED_ONE_TOKEN,  /**< prefill alone */
    BT_SCHED_NO_PREFILL, /**< local: no prefill worker is healthy, or none
                              reaches a decode worker */
    BT_SCHED_RELIEF,     /**< local: prompts queue up */
    BT_SCHED_BEST_TWICE, /**< local: it is the best one in both roles */
    BT_SCHED_BOTH_TWICE, /**< local: the best ones have both roles, each */
    BT_SCHED_WEIGHED_SO, /**< local: it costs less */
    BT_SCHED_N_CAUSES,
} bt_sched_cause_t;

/** What told a chosen worker from the next best one of its role. */
typedef enum bt_sched_why {
    BT_SCHED_ONLY_ONE,
    BT_SCHED_BY_HEALTH,
    BT_SCHED_BY_AVOIDING, /**< the other one is to be avoided */
    BT_SCHED_BY_LOAD,
    BT_SCHED_BY_TURN, /**< equal, and taken longest ago */
    BT_SCHED_N_WHYS,
} bt_sched_why_t;

typedef struct bt_sched_placement {
    bt_sched_worker_t *prefill; /**< NULL: local */
    bt_sched_worker_t *decode;  /**< NULL: prefill alone */
    bt_sched_cause_t cause;
    bt_sched_why_t prefill_why, decode_why; /**< of those that are not NULL */
    /** It could do both phases instead, if that costs less; NULL: none. */
    bt_sched_worker_t *weighed;
    bt_sched_why_t weighed_why;
} bt_sched_placement_t;

/**
 * Choose workers for one request. O(workers x avoid); where links are missing
 * O(prefill workers x decode workers) at worst.
 *
 * @param [in] workers  List of bt_sched_worker_t.link.
 * @return false when not all whom it needs are here.
 */
bool bt_sched_place(const bt_list_t *workers, const bt_sched_request_t *request,
                    bt_sched_placement_t *placement_p);

/**
 * How many of @a n requests that ask for the same go there as one group, so
 * that their prompt is computed, sent and held once: no more than take half of
 * the seats, or of the blocks where they generate. A group begins as one, so a
 * larger one would wait until a worker is nearly empty; the others are the next
 * group.
 *
 * @return 1 to n; 1 also where a worker takes no groups.
 */
uint32_t bt_sched_group_size(const bt_sched_placement_t *placement,
                             const bt_sched_request_t *request, uint32_t n,
                             uint32_t tokens_per_block);

/** @return false when a worker of it is suspect. */
bool bt_sched_placement_is_healthy(const bt_sched_placement_t *placement);
/** @return false when a worker of it is suspect or full: send it later. */
bool bt_sched_placement_takes(const bt_sched_placement_t *placement);

/** Both phases at the worker that it names for that. */
void bt_sched_place_weighed(bt_sched_placement_t *placement);

/** The request goes there, so others are next where all are equal.
 *  @param [in,out] n_taken_p  placements so far, the owner's count */
void bt_sched_take(const bt_sched_placement_t *placement, uint64_t *n_taken_p);

/** In a word or two, for logs and traces. */
const char *bt_sched_cause_name(bt_sched_cause_t cause);
const char *bt_sched_why_name(bt_sched_why_t why);

#endif
