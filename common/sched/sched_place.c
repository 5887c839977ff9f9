/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_place.h"

#include <stddef.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

bt_status_t bt_sched_links_add(bt_sched_links_t *links, uint32_t number)
{
    const uint32_t word = number / 64;

    if (bt_sched_links_has(links, number)) {
        return BT_OK;
    }
    if (word >= links->n_words) {
        uint64_t *grown =
            bt_realloc_array(links->words, word + 1, sizeof(*grown));

        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        memset(grown + links->n_words, 0,
               (word + 1 - links->n_words) * sizeof(*grown));
        links->words = grown;
        links->n_words = word + 1;
    }
    links->words[word] |= UINT64_C(1) << (number % 64);
    links->n++;
    return BT_OK;
}

void bt_sched_links_remove(bt_sched_links_t *links, uint32_t number)
{
    if (bt_sched_links_has(links, number)) {
        links->words[number / 64] &= ~(UINT64_C(1) << (number % 64));
        links->n--;
    }
}

uint32_t bt_sched_links_free(const bt_sched_links_t *links)
{
    for (uint32_t i = 0; i < links->n_words; i++) {
        if (links->words[i] != UINT64_MAX) {
            return i * 64 + (uint32_t)__builtin_ctzll(~links->words[i]);
        }
    }
    return links->n_words * 64;
}

void bt_sched_links_fini(bt_sched_links_t *links)
{
    bt_free(links->words);
    *links = (bt_sched_links_t){0};
}

#define SHARE_ONE 65536u /* a load share of 1 in fixed point */

/* Outstanding prompt tokens of the best prefill worker from which on another
 * one takes prompts too, and how many more for each that it has. */
#define LOCAL_FROM_TOKENS 1024u
#define LOCAL_SHARE       4u

typedef struct choice {
    bt_sched_worker_t *worker; /* NULL: none takes requests */
    bool is_avoided;
    bool is_full;
    uint64_t load;
    bt_sched_why_t why;
} choice_t;

const char *bt_sched_cause_name(bt_sched_cause_t cause)
{
    static const char *const names[BT_SCHED_N_CAUSES] = {
        [BT_SCHED_BY_PHASES] = "pair",
        [BT_SCHED_ONE_TOKEN] = "one token",
        [BT_SCHED_NO_PREFILL] = "no prefill worker",
        [BT_SCHED_RELIEF] = "prompts queue up",
        [BT_SCHED_BEST_TWICE] = "best in both roles",
        [BT_SCHED_BOTH_TWICE] = "two of both roles",
        [BT_SCHED_WEIGHED_SO] = "costs less",
    };

    BT_ASSERT(cause < BT_SCHED_N_CAUSES);
    return names[cause];
}

const char *bt_sched_why_name(bt_sched_why_t why)
{
    static const char *const names[BT_SCHED_N_WHYS] = {
        [BT_SCHED_ONLY_ONE] = "only one",   [BT_SCHED_BY_HEALTH] = "health",
        [BT_SCHED_BY_AVOIDING] = "trouble", [BT_SCHED_BY_LOAD] = "load",
        [BT_SCHED_BY_TURN] = "turn",
    };

    BT_ASSERT(why < BT_SCHED_N_WHYS);
    return names[why];
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return (a > b) ? a : b;
}

/* How full the worker is in this role; smaller is better. */
static uint64_t load_of(const bt_sched_worker_t *worker, uint32_t role)
{
    const uint64_t seats = max_u64(worker->seats, worker->reported_seats);
    const uint64_t blocks = max_u64(worker->blocks, worker->reported_blocks);

    if (role == BT_SCHED_PREFILL) {
        /* One more request costs about as much as a token where there are
         * none outstanding, so that idle workers take turns. */
        return worker->prefill_us + worker->prefill_tokens +
               worker->reported_waiting;
    }
    return max_u64(seats * SHARE_ONE / worker->max_seats,
                   blocks * SHARE_ONE / worker->n_blocks);
}

static bool is_avoided(const bt_sched_request_t *request,
                       const bt_sched_worker_t *worker)
{
    for (uint32_t i = 0; i < request->n_avoid; i++) {
        if (request->avoid[i] == worker->id) {
            return true;
        }
    }
    return false;
}

static bool is_full(const bt_sched_worker_t *worker)
{
    const uint64_t seats = worker->max_seats;

    return worker->is_behind ||
           (worker->seats >= (worker->holds_target
                                  ? seats + seats / 8
                                  : 2 * seats + BT_SCHED_AHEAD));
}

/* True when @a a is better than @a b; @a why_p is the reason. */
static bool better(const choice_t *a, const choice_t *b, bt_sched_why_t *why_p)
{
    if (a->worker->health != b->worker->health) {
        *why_p = BT_SCHED_BY_HEALTH;
        return a->worker->health == BT_SCHED_UP;
    }
    if (a->is_full != b->is_full) {
        *why_p = BT_SCHED_BY_LOAD;
        return b->is_full;
    }
    if (a->is_avoided != b->is_avoided) {
        *why_p = BT_SCHED_BY_AVOIDING;
        return !a->is_avoided;
    }
    if (a->load != b->load) {
        *why_p = BT_SCHED_BY_LOAD;
        return a->load < b->load;
    }
    *why_p = BT_SCHED_BY_TURN;
    return a->worker->last_taken < b->worker->last_taken;
}

/* The best ones, for each part that a request has. */
typedef struct choices {
    choice_t prefill, decode;
    choice_t local; /* by its load as a decode worker */
} choices_t;

static void consider(choice_t *best, const choice_t *next)
{
    bt_sched_why_t why;

    if (best->worker == NULL) {
        *best = *next;
    } else if (better(next, best, &why)) {
        *best = *next;
        best->why = why; /* the replaced one was the best before */
    } else if (why > best->why) {
        best->why = why; /* the closest competitor decides the reason */
    }
}

/* @return false: it is none for this request. */
static bool is_choice(bt_sched_worker_t *worker,
                      const bt_sched_request_t *request, choice_t *next_p)
{
    if ((worker->health == BT_SCHED_DRAINING) ||
        ((request->capabilities & ~worker->roles & ~BT_SCHED_BEAMS) != 0)) {
        return false;
    }
    *next_p = (choice_t){.worker = worker,
                         .is_avoided = is_avoided(request, worker),
                         .is_full = is_full(worker),
                         .why = BT_SCHED_ONLY_ONE};
    return true;
}

/* True when the worker may generate the request. */
static bool may_generate(const bt_sched_worker_t *worker,
                         const bt_sched_request_t *request)
{
    return ((worker->roles & BT_SCHED_DECODE) != 0) &&
           ((request->capabilities & ~worker->roles) == 0);
}

/* One pass: with very many workers, reading each is what takes time. */
static choices_t best_of(const bt_list_t *workers,
                         const bt_sched_request_t *request)
{
    choices_t best = {.prefill = {.why = BT_SCHED_ONLY_ONE}};
    choice_t next;

    BT_LIST_FOR_EACH_ENTRY(bt_sched_worker_t, worker, workers, link) {
        if (!is_choice(worker, request, &next)) {
            continue;
        }
        if ((worker->roles & BT_SCHED_PREFILL) != 0) {
            next.load = load_of(worker, BT_SCHED_PREFILL);
            consider(&best.prefill, &next);
        }
        if (may_generate(worker, request)) {
            next.load = load_of(worker, BT_SCHED_DECODE);
            consider(&best.decode, &next);
            if ((worker->roles & BT_SCHED_LOCAL) != 0) {
                consider(&best.local, &next);
            }
        }
    }
    return best;
}

static bool healthy(const bt_sched_worker_t *worker)
{
    return (worker != NULL) && (worker->health == BT_SCHED_UP);
}

static bool takes(const bt_sched_worker_t *worker)
{
    return healthy(worker) && !is_full(worker);
}

bool bt_sched_placement_takes(const bt_sched_placement_t *placement)
{
    return ((placement->prefill == NULL) || takes(placement->prefill)) &&
           ((placement->decode == NULL) || takes(placement->decode));
}

bool bt_sched_placement_is_healthy(const bt_sched_placement_t *placement)
{
    return ((placement->prefill == NULL) || healthy(placement->prefill)) &&
           ((placement->decode == NULL) || healthy(placement->decode));
}

static bool is_both(const bt_sched_worker_t *worker)
{
    const uint32_t both = BT_SCHED_PREFILL | BT_SCHED_DECODE;

    return (worker->roles & both) == both;
}

/* ---- pairs with a KV link ---- */

typedef struct pair {
    choice_t prefill, decode; /* NULL workers: none */
} pair_t;

static bool is_pair(const pair_t *pair)
{
    return (pair->prefill.worker != NULL) && (pair->decode.worker != NULL);
}

/* The best worker of a role among those that are linked with @a other. */
static choice_t best_linked(const bt_list_t *workers,
                            const bt_sched_request_t *request, uint32_t role,
                            const bt_sched_worker_t *other)
{
    choice_t best = {.worker = NULL};
    choice_t next;

    BT_LIST_FOR_EACH_ENTRY(bt_sched_worker_t, worker, workers, link) {
        const bool linked = (role == BT_SCHED_PREFILL)
                                ? bt_sched_reaches(worker, other)
                                : bt_sched_reaches(other, worker);

        if (linked && (worker != other) && ((worker->roles & role) != 0) &&
            ((role == BT_SCHED_PREFILL) || may_generate(worker, request)) &&
            is_choice(worker, request, &next)) {
            next.load = load_of(worker, role);
            consider(&best, &next);
        }
    }
    return best;
}

/* Smaller is better. */
static uint32_t trouble_of(const pair_t *pair)
{
    const bool is_avoided = pair->prefill.is_avoided || pair->decode.is_avoided;

    if (!is_pair(pair)) {
        return 4;
    }
    if (!takes(pair->prefill.worker) || !takes(pair->decode.worker)) {
        return is_avoided ? 3 : 2;
    }
    return is_avoided ? 1 : 0;
}

static void keep_better(pair_t *best, const pair_t *next)
{
    if (trouble_of(next) < trouble_of(best)) {
        *best = *next;
    }
}

/* Finds in all pairs the best prefill worker that reaches one that takes it. */
static pair_t best_of_pairs(const bt_list_t *workers,
                            const bt_sched_request_t *request)
{
    pair_t best = {.prefill = {.worker = NULL}};
    bt_sched_why_t why;

    BT_LIST_FOR_EACH_ENTRY(bt_sched_worker_t, worker, workers, link) {
        pair_t next;

        if (((worker->roles & BT_SCHED_PREFILL) == 0) ||
            (worker->tells_links && (worker->links.n == 0)) ||
            !is_choice(worker, request, &next.prefill)) {
            continue;
        }
        next.prefill.load = load_of(worker, BT_SCHED_PREFILL);
        next.decode = best_linked(workers, request, BT_SCHED_DECODE, worker);
        if (is_pair(&next) && is_pair(&best) &&
            (trouble_of(&next) == trouble_of(&best))) {
            best = better(&next.prefill, &best.prefill, &why) ? next : best;
        } else {
            keep_better(&best, &next);
        }
    }
    return best;
}

/* Replaces the best two, which are not linked, by a linked pair. */
static void link_up(const bt_list_t *workers, const bt_sched_request_t *request,
                    choices_t *best)
{
    const bool both_take =
        takes(best->prefill.worker) && takes(best->decode.worker);
    pair_t pair = {.prefill = best_linked(workers, request, BT_SCHED_PREFILL,
                                          best->decode.worker),
                   .decode = best->decode};
    const pair_t other = {.prefill = best->prefill,
                          .decode =
                              best_linked(workers, request, BT_SCHED_DECODE,
                                          best->prefill.worker)};

    keep_better(&pair, &other);
    /* Where one of the best two takes nothing, neither does any pair. */
    if (!is_pair(&pair) || (both_take && (trouble_of(&pair) >= 2))) {
        const pair_t any = best_of_pairs(workers, request);

        keep_better(&pair, &any);
    }
    if (is_pair(&pair)) {
        best->prefill = pair.prefill;
        best->decode = pair.decode;
    } else {
        best->prefill.worker = NULL;
    }
}

/* Would KV have to travel between the best two, and cannot? */
static bool is_cut(const choices_t *best)
{
    const bt_sched_worker_t *prefill = best->prefill.worker;
    const bt_sched_worker_t *decode = best->decode.worker;

    return (prefill != NULL) && (decode != NULL) && (prefill != decode) &&
           !(is_both(prefill) && is_both(decode)) &&
           !bt_sched_reaches(prefill, decode);
}

static bool is_weighed(const bt_sched_worker_t *worker)
{
    return (worker->roles & BT_SCHED_WEIGHED) != 0;
}

/* True when a worker should do both phases, since prompts queue up. Its
 * batch waits for each chunk: it gets only a share of the queue, and none of
 * a short one. */
static bool relieves(const bt_sched_worker_t *local,
                     const bt_sched_worker_t *prefill)
{
    return !is_weighed(local) &&
           prefill->prefill_tokens >=
               LOCAL_FROM_TOKENS + LOCAL_SHARE * local->prefill_tokens;
}

static void place_local(choice_t local, bt_sched_cause_t cause,
                        bt_sched_placement_t *placement_p)
{
    *placement_p = (bt_sched_placement_t){
        .decode = local.worker, .decode_why = local.why, .cause = cause};
}

/* A prefill worker that is full is one to wait for, if that costs less. */
static bool is_worth_weighing(const choice_t *local, const choice_t *prefill)
{
    return takes(local->worker) && is_weighed(local->worker) &&
           !local->is_avoided && healthy(prefill->worker);
}

void bt_sched_place_weighed(bt_sched_placement_t *placement)
{
    const choice_t local = {.worker = placement->weighed,
                            .why = placement->weighed_why};

    BT_ASSERT(local.worker != NULL);
    place_local(local, BT_SCHED_WEIGHED_SO, placement);
}

bool bt_sched_place(const bt_list_t *workers, const bt_sched_request_t *request,
                    bt_sched_placement_t *placement_p)
{
    choices_t best = best_of(workers, request);
    choice_t prefill, decode, local;
    bt_sched_worker_t *weighed;
    bool weighs;

    BT_ASSERT(request->max_new > 0);
    if ((request->max_new > 1) && is_cut(&best)) {
        link_up(workers, request, &best);
    }
    prefill = best.prefill;
    decode = best.decode;
    local = best.local;
    weighs = is_worth_weighing(&local, &prefill);
    weighed = weighs ? local.worker : NULL;
    if (takes(prefill.worker)) {
        if (takes(local.worker) && relieves(local.worker, prefill.worker)) {
            place_local(local, BT_SCHED_RELIEF, placement_p);
            return true;
        }
    } else if ((takes(local.worker) && !weighs) ||
               ((prefill.worker == NULL) && (local.worker != NULL))) {
        place_local(local, BT_SCHED_NO_PREFILL, placement_p);
        return true;
    }
    if ((prefill.worker == NULL) ||
        ((decode.worker == NULL) && (request->max_new > 1))) {
        return false;
    }
    if (request->max_new == 1) {
        *placement_p = (bt_sched_placement_t){.prefill = prefill.worker,
                                              .prefill_why = prefill.why,
                                              .cause = BT_SCHED_ONE_TOKEN,
                                              .weighed = weighed,
                                              .weighed_why = local.why};
        return true;
    }
    if (prefill.worker == decode.worker) {
        place_local(decode, BT_SCHED_BEST_TWICE, placement_p);
        return true;
    }
    if (is_both(prefill.worker) && is_both(decode.worker)) {
        place_local(decode, BT_SCHED_BOTH_TWICE, placement_p);
        return true;
    }
    *placement_p = (bt_sched_placement_t){.prefill = prefill.worker,
                                          .prefill_why = prefill.why,
                                          .decode = decode.worker,
                                          .decode_why = decode.why,
                                          .cause = BT_SCHED_BY_PHASES,
                                          .weighed = weighed,
                                          .weighed_why = local.why};
    return true;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return (a < b) ? a : b;
}

/* Requests of this size, which share their prompt, that half of the worker's
 * blocks suffice for. */
static uint32_t fit_blocks(const bt_sched_worker_t *worker,
                           const bt_sched_request_t *request,
                           uint32_t tokens_per_block)
{
    const uint64_t n_tokens =
        (uint64_t)request->n_tokens + request->max_new - 1;
    const uint64_t n_blocks =
        (n_tokens + tokens_per_block - 1) / tokens_per_block;
    const uint64_t n_shared = request->n_tokens / tokens_per_block;
    const uint64_t half = worker->n_blocks / 2;

    if (half < n_blocks) {
        return 1;
    }
    if (n_blocks == n_shared) { /* only the last token is sampled */
        return BT_SCHED_MAX_FANOUT;
    }
    return (uint32_t)((half - n_shared) / (n_blocks - n_shared));
}

uint32_t bt_sched_fanout_size(const bt_sched_placement_t *placement,
                              const bt_sched_request_t *request, uint32_t n,
                              uint32_t tokens_per_block)
{
    const bt_sched_worker_t *both[] = {placement->prefill, placement->decode};
    uint32_t size = min_u32(n, BT_SCHED_MAX_FANOUT);

    for (uint32_t i = 0; i < 2; i++) {
        if (both[i] != NULL) {
            const uint32_t half = both[i]->max_seats / 2;

            size = min_u32(
                size, ((both[i]->roles & BT_SCHED_FANOUT) == 0) ? 1 : half);
        }
    }
    if (placement->decode != NULL) {
        size = min_u32(
            size, fit_blocks(placement->decode, request, tokens_per_block));
    }
    return (size > 0) ? size : 1;
}

void bt_sched_take(const bt_sched_placement_t *placement, uint64_t *n_taken_p)
{
    ++*n_taken_p;
    if (placement->decode != NULL) {
        placement->decode->last_taken = *n_taken_p;
    }
    if (placement->prefill != NULL) {
        placement->prefill->last_taken = *n_taken_p;
    }
}
