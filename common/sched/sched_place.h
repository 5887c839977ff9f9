/* SPDX-License-Identifier: Apache-2.0 */
/** @file sched_place.h
 *
 * Set of small numbers: those of the decode workers that a prefill worker's KV
 * is proven to reach. One bit each, so that all pairs of 1,000 workers take 32
 * KiB.
 *
 * Threads: one thread owns a set.
 */
#ifndef BT_COMMON_SCHED_SCHED_PLACE_H
#define BT_COMMON_SCHED_SCHED_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/hash.h"
#include "common/base/status.h"

/** Bit set. All zero: empty. */
typedef struct bt_sched_links {
    uint64_t *words; /**< owned */
    uint32_t n_words;
    uint32_t n; /**< numbers in the set */
} bt_sched_links_t;

/**
 * Adds a number.
 * @retval BT_ERR_NO_MEMORY  The set is unchanged.
 */
BT_MUST_CHECK bt_status_t bt_sched_links_add(bt_sched_links_t *links,
                                             uint32_t number);
void bt_sched_links_remove(bt_sched_links_t *links, uint32_t number);

static inline bool bt_sched_links_has(const bt_sched_links_t *links,
                                      uint32_t number)
{
    const uint32_t word = number / 64;

    return (word < links->n_words) &&
           (((links->words[word] >> (number % 64)) & 1u) != 0);
}

/** Returns the smallest number that is not in the set. */
uint32_t bt_sched_links_free(const bt_sched_links_t *links);
/** Empties the set and frees its memory. */
void bt_sched_links_fini(bt_sched_links_t *links);

/*
 * Placement: which workers take a request, and why. Pure: a request and plain
 * numbers of each worker in, a placement with its reasons out; equal numbers
 * give equal placements.
 *
 *     pair           prefill at one worker, generation at another
 *     prefill alone  one token is asked for, and the prefill samples it: no
 *                    grant, no KV transfer
 *     local          one worker does both phases
 *
 * Chosen are the prefill worker whose outstanding prompts take the shortest
 * time (plus a microsecond for each token) and the decode worker with the
 * smallest share of seats or blocks in use; a full worker only if all are full,
 * a suspect one only if none is healthy, a draining one never; among equals,
 * the least recently chosen.
 *
 * A pair needs a KV link: the prefill worker reports which decode workers it
 * reaches (bt_sched_reaches()). If the best two have none, the best prefill
 * worker that reaches that decode worker is taken, or the best decode worker
 * that is reached; if no link exists at all, the request is placed as if there
 * were no prefill worker.
 *
 * A healthy worker with BT_SCHED_LOCAL does both phases if no prefill worker is
 * healthy and not full, or if the best prefill worker is far behind: it has at
 * least four outstanding prompt tokens for each of the local worker's own, plus
 * 1,024. A worker with BT_SCHED_WEIGHED does both if no prefill worker is
 * healthy; otherwise the placement names it beside the pair, for the owner to
 * compare the two ways (sched_slo.h), which takes more than is known here. A
 * worker that is the best one in both roles does both phases, too; and if the
 * best ones are two workers with both roles each, the best decode worker does
 * both: no KV has to be transferred, and no two workers hold blocks for each
 * other (I4).
 *
 * The load of a worker is the larger of two views: requests that this router
 * has sent and not seen ended, and what the worker itself reported (other
 * routers send to it too).
 *
 * Threads: one thread owns the workers.
 */

/** Roles and capabilities of a worker, as a bit set. */
#define BT_SCHED_PREFILL 1u  /**< prefill; its KV goes to another worker */
#define BT_SCHED_DECODE  2u  /**< generation, with KV from another worker */
#define BT_SCHED_LOCAL   4u  /**< both phases of one request */
#define BT_SCHED_FANOUT  8u  /**< fanouts of one prompt, computed once */
#define BT_SCHED_WEIGHED 32u /**< LOCAL only if that costs less */
/** Logits processors (bt_processor_options_t). */
#define BT_SCHED_PROCESSORS 64u
#define BT_SCHED_BEAMS      128u  /**< beam search, in what generates */
#define BT_SCHED_GRAMMARS   256u  /**< answers restricted to a grammar */
#define BT_SCHED_TABLES     512u  /**< prompts with rows of a prompt table */
#define BT_SCHED_ADAPTERS   1024u /**< sequences with LoRA adapters */
/** Capabilities that a request may need: bt_sched_request_t.capabilities. */
#define BT_SCHED_CAPABILITIES                                   \
    (BT_SCHED_PROCESSORS | BT_SCHED_BEAMS | BT_SCHED_GRAMMARS | \
     BT_SCHED_TABLES | BT_SCHED_ADAPTERS)
/** Returns a set of capabilities as an index; 0: none. */
#define BT_SCHED_CAPABILITY_SET(capabilities) \
    ((capabilities) / BT_SCHED_PROCESSORS)
/** Number of sets of capabilities. */
#define BT_SCHED_N_CAPABILITY_SETS \
    (BT_SCHED_CAPABILITY_SET(BT_SCHED_CAPABILITIES) + 1)

/**
 * Requests sent ahead to a worker, in addition to as many as it has seats. With
 * these the worker can begin one whenever another ends; the rest waits at the
 * router, where its order can still change, where it is not lost with a worker,
 * and where it fills no link. A worker that has all of these, or is behind, is
 * *full*.
 */
#define BT_SCHED_AHEAD 16u

/** Most requests of a fanout. */
#define BT_SCHED_MAX_FANOUT 128u

typedef enum bt_sched_health {
    BT_SCHED_UP,
    BT_SCHED_SUSPECT,  /**< silent, or its work makes no progress */
    BT_SCHED_DRAINING, /**< accepts nothing new */
    BT_SCHED_N_HEALTHS,
} bt_sched_health_t;

/** Scheduler's part of a worker; embedded in the owner's object. */
typedef struct bt_sched_worker {
    bt_list_t link; /**< in the owner's list of candidates */
    uint64_t id;    /**< identifies the worker in bt_sched_request_t.avoid */
    uint32_t roles; /**< BT_SCHED_* */
    bt_sched_health_t health;
    uint32_t max_seats, n_blocks; /**< capacity, at least 1 of each */
    /** Set by the owner while too much is queued on the way to the worker. */
    bool is_behind;
    /** Set when max_seats is the number that keeps an inter-token latency
     *  target (sched_slo.h): requests beyond an eighth more are not sent. */
    bool holds_target;
    /* Sent from here and not seen ended. */
    uint32_t seats;          /**< requests */
    uint64_t prefill_tokens; /**< prompt tokens not computed yet */
    uint64_t prefill_us;     /**< time that those take there (sched_cost.h) */
    uint64_t blocks;         /**< KV blocks that those requests may take */
    /* Last report of the worker; 0 before the first. */
    uint64_t reported_seats, reported_blocks, reported_waiting;
    uint64_t last_taken; /**< number of the bt_sched_take() that chose it
                              last */
    /* KV links; the owner keeps them. */
    uint32_t number;        /**< unique among workers */
    bool tells_links;       /**< else its KV reaches every decode worker */
    bt_sched_links_t links; /**< numbers of the decode workers that it
                                 reaches */
} bt_sched_worker_t;

/** True when KV can be transferred from one to the other, as far as is
 *  proven. */
static inline bool bt_sched_reaches(const bt_sched_worker_t *prefill,
                                    const bt_sched_worker_t *decode)
{
    return !prefill->tells_links ||
           bt_sched_links_has(&prefill->links, decode->number);
}

/** Request properties that a placement policy may use. The policy of this
 *  file uses max_new and avoid; workers do not report yet which
 *  prompt prefixes they have cached. */
typedef struct bt_sched_request {
    uint32_t n_tokens;     /**< to compute: prompt, and earlier output */
    uint32_t max_new;      /**< to generate, at least 1 */
    uint32_t priority;     /**< priority levels, see sched_queue.h */
    uint64_t deadline_us;  /**< by the owner's clock */
    bt_hash128_t space;    /**< block namespace: tenant, adapter, salt */
    uint32_t capabilities; /**< bits that its workers must have: BT_SCHED_BEAMS
                             the one that generates, others both */
    const uint64_t *avoid; /**< workers where it failed: last resort */
    uint32_t n_avoid; /**< number of those; chosen only if the others of that
                         role are suspect or absent */
} bt_sched_request_t;

/** Reason for the kind of a placement. */
typedef enum bt_sched_cause {
    BT_SCHED_BY_PHASES,  /**< a pair: one worker for each phase */
    BT_SCHED_ONE_TOKEN,  /**< prefill alone */
    BT_SCHED_NO_PREFILL, /**< local: no prefill worker is healthy, or none
                              reaches a decode worker */
    BT_SCHED_RELIEF,     /**< local: prompts queue up */
    BT_SCHED_BEST_TWICE, /**< local: the best worker in both roles */
    BT_SCHED_BOTH_TWICE, /**< local: the best two workers both have both
                              roles */
    BT_SCHED_WEIGHED_SO, /**< local: it costs less */
    BT_SCHED_N_CAUSES,
} bt_sched_cause_t;

/** Reason why a worker was chosen over the next best one of its role. */
typedef enum bt_sched_why {
    BT_SCHED_ONLY_ONE,
    BT_SCHED_BY_HEALTH,
    BT_SCHED_BY_AVOIDING, /**< the other one is to be avoided */
    BT_SCHED_BY_LOAD,
    BT_SCHED_BY_TURN, /**< equal, and least recently chosen */
    BT_SCHED_N_WHYS,
} bt_sched_why_t;

/** Workers chosen for a request. */
typedef struct bt_sched_placement {
    bt_sched_worker_t *prefill; /**< NULL: local */
    bt_sched_worker_t *decode;  /**< NULL: prefill alone */
    bt_sched_cause_t cause;
    bt_sched_why_t prefill_why, decode_why; /**< for workers that are not
                                                 NULL */
    /** Worker that could do both phases instead, if that costs less; NULL:
     *  none. */
    bt_sched_worker_t *weighed;
    bt_sched_why_t weighed_why;
} bt_sched_placement_t;

/**
 * Chooses workers for one request. O(workers x avoid); if links are missing
 * O(prefill workers x decode workers) at worst.
 *
 * @param [in] workers  List of bt_sched_worker_t.link.
 * @return false when not all workers that it needs are present.
 */
bool bt_sched_place(const bt_list_t *workers, const bt_sched_request_t *request,
                    bt_sched_placement_t *placement_p);

/**
 * Returns how many of @a n requests with one prompt are placed as one fanout,
 * so that their prompt is computed, sent and held once: at most half of the
 * seats, or half of the blocks of the decode worker. A fanout begins as a
 * whole, so a larger one would wait until a worker is nearly empty; the
 * remaining requests are the next fanout.
 *
 * @return 1 to n; 1 also if a worker takes no fanouts.
 */
uint32_t bt_sched_fanout_size(const bt_sched_placement_t *placement,
                              const bt_sched_request_t *request, uint32_t n,
                              uint32_t tokens_per_block);

/** True when no worker of the placement is suspect or draining. */
bool bt_sched_placement_is_healthy(const bt_sched_placement_t *placement);
/** True when no worker of the placement is suspect, draining or full;
 *  otherwise send the request later. */
bool bt_sched_placement_takes(const bt_sched_placement_t *placement);

/** Changes a placement to both phases at its weighed worker. */
void bt_sched_place_weighed(bt_sched_placement_t *placement);

/**
 * Records that the request is sent, so that other workers are next among
 * equals.
 * @param [in,out] n_taken_p  placements so far, the owner's count
 */
void bt_sched_take(const bt_sched_placement_t *placement, uint64_t *n_taken_p);

/** Return a reason in a word or two, for logs and traces. */
const char *bt_sched_cause_name(bt_sched_cause_t cause);
const char *bt_sched_why_name(bt_sched_why_t why);

#endif
