/* SPDX-License-Identifier: Apache-2.0 */
/** @file reshard_rank.h
 *
 * A rank of an instance, as a process: the source of a sequence's KV or its
 * destination. Made-up KV (tests/unit/common/kv/made_up.h). The test orders:
 *
 *     test ── OPEN ──▶ destination ranks: a region for each source rank
 *          ◀─ grants ─
 *          ── SEND, grants ──▶ source ranks: post along the plan, finish
 *          ◀─ report ─ all, when their regions or transfers have ended
 *
 * Orders and answers go through the pipes of process.h, as the structures lie
 * in memory: both ends are one program.
 */
#ifndef BT_TESTS_UNIT_KVTRANSFER_RESHARD_RANK_H
#define BT_TESTS_UNIT_KVTRANSFER_RESHARD_RANK_H

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt.h"
#include "tests/unit/common/kv/made_up.h"
#include "tests/unit/kvtransfer/fds.h"
#include "tests/unit/kvtransfer/process.h"

#define MAX_RANKS   8u
#define N_BLOCKS    5u /* of a sequence */
#define POOL_BLOCKS 10u
#define POOL_BYTES  (1u << 20)
#define MAX_EXTENTS 128u
#define BUDGET      (1u << 20)
#define SRC_CANARY  0x5au
#define DST_CANARY  0xa5u
#define LONG_MS     20000u /* must not end a test on a busy machine */
#define FIRST_RANK  100u   /* instance of the first process */

/* Where the blocks of a sequence lie. Neighbours at the source are 2 3 4, at
 * the destination 1 2 3; on both sides at once only the second block and the
 * third. */
static const uint32_t src_ids[N_BLOCKS] = {9, 2, 3, 4, 0};
static const uint32_t dst_ids[N_BLOCKS] = {1, 2, 3, 7, 6};

typedef enum order_type {
    ORDER_PEER,  /* source: + export blob of destination `rank` */
    ORDER_OPEN,  /* destination; answer: n, grants; later a report */
    ORDER_SEND,  /* source: + grants; later a report (half: one, then) */
    ORDER_GO_ON, /* source: the other half */
    ORDER_STATE, /* answer: a report */
    ORDER_QUIT,
} order_type_t;

/** What a rank does wrong on purpose. */
typedef enum wrong {
    WRONG_NOTHING,
    WRONG_SWAPPED_MOVES,   /* source: two moves read each other's bytes */
    WRONG_TOKEN,           /* source: a move begins a token late */
    WRONG_SWAPPED_EXTENTS, /* destination */
    WRONG_BLOCK,           /* destination: a block that was not given */
} wrong_t;

typedef struct order {
    order_type_t type;
    uint32_t seed; /* of the KV; region ids follow from it */
    bt_kv_shape_t whole;
    bt_kv_split_t from, to;
    uint32_t rank;
    wrong_t wrong;
    bool half;
    bool by_layers; /* source: a layer of all blocks after the other */
    uint32_t n_grants;
    uint64_t instances[MAX_RANKS]; /* of the sources */
} order_t;

typedef struct grant {
    uint32_t rank; /* the other one */
    uint32_t n_extents;
    uint64_t desc_bytes;
    uint8_t desc[BT_KVT_DESC_BYTES(MAX_EXTENTS)];
} grant_t;

typedef struct outcome {
    uint32_t rank;      /* the other one */
    uint32_t n_ranges;  /* extents, or posts */
    uint32_t n_records; /* that the receiver checked */
    uint64_t bytes;
    bt_status_t status;
} outcome_t;

typedef struct report {
    uint32_t n;
    outcome_t outcomes[MAX_RANKS];
    uint64_t n_wrong; /* destination: bytes of the pool, canaries included */
    bt_kvt_counters_t counters;
    uint32_t n_fds, n_maps;
} report_t;

/** One region or transfer of a rank. */
typedef struct end {
    outcome_t outcome;
    bt_kvt_region_t *region;
    bt_kvt_xfer_t *xfer;
    bool over; /* the handle is gone */
    bt_kv_reshard_t plan;
    bt_kv_walk_t walk;   /* source: what is left to post */
    bt_kv_piece_t piece; /* the rest of a piece */
    uint64_t posted;     /* bytes */
    bt_kvt_extent_t extents[MAX_EXTENTS];
} end_t;

typedef enum rank_state { RANK_IDLE, RANK_HALF, RANK_RUNS } rank_state_t;

typedef struct rank {
    bt_kvt_t *kvt;
    uint8_t *pool;
    bool sends;
    bt_kvt_peer_t *peers[MAX_RANKS]; /* source: the destinations */
    rank_state_t state;
    order_t order;
    bt_kv_part_t part;
    uint64_t block_bytes;
    end_t ends[MAX_RANKS];
    uint32_t n_ends;
    uint64_t sent_before; /* the counter */
} rank_t;

#define RANK_MUST(cond)                      \
    do {                                     \
        if (!(cond)) {                       \
            die("not so in a rank: " #cond); \
        }                                    \
    } while (0)

__attribute__((unused)) static void rank_grant_get(int fd, grant_t *grant)
{
    if (get(fd, grant, sizeof(*grant)) != sizeof(*grant)) {
        die("half a grant");
    }
}

static bool rank_is_over(const rank_t *rank)
{
    for (uint32_t i = 0; i < rank->n_ends; i++) {
        if (!rank->ends[i].over) {
            return false;
        }
    }
    return true;
}

/** Begin an order: whose KV, and nothing left of the last. */
static void rank_begin(rank_t *rank, const order_t *order)
{
    RANK_MUST(rank->state == RANK_IDLE);
    for (uint32_t i = 0; i < rank->n_ends; i++) {
        bt_kv_reshard_fini(&rank->ends[i].plan);
    }
    memset(rank->ends, 0, sizeof(rank->ends));
    rank->n_ends = 0;
    rank->order = *order;
    RANK_MUST(bt_kv_part_of(&order->whole,
                            rank->sends ? &order->from : &order->to,
                            order->rank, &rank->part) == BT_OK);
    rank->block_bytes = made_up_block(&order->whole, &rank->part, 0, 0, NULL);
    RANK_MUST(rank->block_bytes * POOL_BLOCKS <= POOL_BYTES);
}

/** An end for rank @a other, unless the two have nothing in common. */
static end_t *rank_end_add(rank_t *rank, uint32_t other)
{
    const order_t *order = &rank->order;
    end_t *end = &rank->ends[rank->n_ends];
    bt_kv_part_t part;

    RANK_MUST(rank->n_ends < MAX_RANKS);
    RANK_MUST(bt_kv_part_of(&order->whole,
                            rank->sends ? &order->to : &order->from, other,
                            &part) == BT_OK);
    RANK_MUST(bt_kv_reshard_plan(
                  &order->whole, rank->sends ? &rank->part : &part,
                  rank->sends ? &part : &rank->part, &end->plan) == BT_OK);
    if (end->plan.n_moves == 0) {
        return NULL;
    }
    rank->n_ends++;
    end->outcome.rank = other;
    end->outcome.status = BT_INPROGRESS;
    return end;
}

static void pool_lay(const rank_t *rank, const uint32_t *ids, uint8_t canary,
                     uint8_t *pool)
{
    memset(pool, canary, POOL_BYTES);
    for (uint32_t b = 0; b < N_BLOCKS; b++) {
        (void)made_up_block(&rank->order.whole, &rank->part, rank->order.seed,
                            b, pool + ids[b] * rank->block_bytes);
    }
}

/* ---- the destination ---- */

static void region_open(rank_t *rank, uint32_t source, end_t *end)
{
    const wrong_t wrong = rank->order.wrong;
    uint32_t ids[N_BLOCKS];
    grant_t grant = {.rank = rank->order.rank};
    bt_kv_walk_t walk =
        bt_kv_walk_begin(&end->plan, BT_KV_DST, ids, 0, N_BLOCKS);
    bt_kv_piece_t piece;
    size_t desc_bytes = 0;
    uint32_t n = 0;

    memcpy(ids, dst_ids, sizeof(ids));
    if (wrong == WRONG_BLOCK) {
        ids[N_BLOCKS - 1] = 0;
    }
    while (bt_kv_walk_next(&walk, &piece)) {
        RANK_MUST(n < MAX_EXTENTS);
        end->extents[n++] =
            (bt_kvt_extent_t){.offset = piece.pool, .bytes = piece.bytes};
    }
    if (wrong == WRONG_SWAPPED_EXTENTS) {
        const bt_kvt_extent_t first = end->extents[0];

        RANK_MUST(n >= 2);
        end->extents[0] = end->extents[1];
        end->extents[1] = first;
    }
    end->outcome.n_ranges = n;
    RANK_MUST(bt_kvt_region_open(
                  rank->kvt, (uint64_t)rank->order.seed * MAX_RANKS + source, 1,
                  rank->order.instances[source], end->extents, n, end,
                  grant.desc, sizeof(grant.desc), &desc_bytes,
                  &end->region) == BT_OK);
    grant.n_extents = n;
    grant.desc_bytes = desc_bytes;
    grant.rank = source;
    put(CHILD_OUT, &grant, sizeof(grant));
}

static void regions_open(rank_t *rank)
{
    const uint32_t n_sources = rank->order.from.tp * rank->order.from.pp;
    end_t *ends[MAX_RANKS];

    memset(rank->pool, DST_CANARY, POOL_BYTES);
    for (uint32_t s = 0; s < n_sources; s++) {
        ends[s] = rank_end_add(rank, s);
    }
    put(CHILD_OUT, &rank->n_ends, sizeof(rank->n_ends));
    for (uint32_t s = 0; s < n_sources; s++) {
        if (ends[s] != NULL) {
            region_open(rank, s, ends[s]);
        }
    }
}

/** Bytes of the pool that are not what they must be. What a region that failed
 *  has left in its own extents may be anything. */
static uint64_t pool_wrong(const rank_t *rank)
{
    uint8_t *want = bt_calloc(1, POOL_BYTES);
    uint64_t n = 0;

    RANK_MUST(want != NULL);
    pool_lay(rank, dst_ids, DST_CANARY, want);
    for (uint32_t i = 0; i < rank->n_ends; i++) {
        const end_t *end = &rank->ends[i];

        for (uint32_t e = 0;
             (end->outcome.status != BT_OK) && (e < end->outcome.n_ranges);
             e++) {
            memcpy(want + end->extents[e].offset,
                   rank->pool + end->extents[e].offset, end->extents[e].bytes);
        }
    }
    for (uint64_t i = 0; i < POOL_BYTES; i++) {
        n += rank->pool[i] != want[i];
    }
    bt_free(want);
    return n;
}

/* ---- the source ---- */

/** Post along the plan until @a limit bytes of the region. */
static void post_until(rank_t *rank, end_t *end, uint64_t limit)
{
    while (!end->over && (end->posted < limit)) {
        bt_kv_piece_t *piece = &end->piece;
        uint64_t bytes;

        if ((piece->bytes == 0) && !bt_kv_walk_next(&end->walk, piece)) {
            return;
        }
        bytes = limit - end->posted;
        bytes = (piece->bytes < bytes) ? piece->bytes : bytes;
        /* Refused once the transfer has ended: the event tells. */
        (void)!bt_kvt_post(end->xfer, rank->pool + piece->pool, piece->region,
                           bytes);
        piece->pool += bytes;
        piece->region += bytes;
        piece->bytes -= bytes;
        end->posted += bytes;
        end->outcome.n_ranges++;
    }
}

/** As a source does that sends what it has computed; scales in the end. */
static void layers_post(rank_t *rank, end_t *end)
{
    const uint64_t layer_bytes =
        made_up_layer_bytes(&rank->order.whole, &rank->part);

    for (uint32_t l = 0; l < rank->part.n_layers; l++) {
        const bool last = (l + 1 == rank->part.n_layers);

        end->walk =
            bt_kv_walk_begin(&end->plan, BT_KV_SRC, src_ids, 0, N_BLOCKS);
        bt_kv_walk_clip(&end->walk, l * layer_bytes,
                        last ? rank->block_bytes : (l + 1) * layer_bytes);
        post_until(rank, end, UINT64_MAX);
    }
}

static void plan_break(const rank_t *rank, bt_kv_reshard_t *plan)
{
    const bt_kv_shape_t *whole = &rank->order.whole;
    const uint64_t first = plan->moves[0].src;

    if (rank->order.wrong == WRONG_SWAPPED_MOVES) {
        RANK_MUST((plan->n_moves >= 2) &&
                  (plan->moves[0].bytes == plan->moves[1].bytes));
        plan->moves[0].src = plan->moves[1].src;
        plan->moves[1].src = first;
    } else if (rank->order.wrong == WRONG_TOKEN) {
        plan->moves[0].src += (uint64_t)whole->head_dim * whole->elem_bytes;
    }
}

static void transfer_begin(rank_t *rank, const grant_t *grant)
{
    end_t *end = rank_end_add(rank, grant->rank);

    RANK_MUST(end != NULL);
    plan_break(rank, &end->plan);
    end->walk = bt_kv_walk_begin(&end->plan, BT_KV_SRC, src_ids, 0, N_BLOCKS);
    RANK_MUST(rank->peers[grant->rank] != NULL);
    RANK_MUST(bt_kvt_prep(rank->peers[grant->rank], grant->desc,
                          grant->desc_bytes, end, &end->xfer) == BT_OK);
    RANK_MUST(bt_kvt_xfer_region_bytes(end->xfer) ==
              N_BLOCKS * end->plan.bytes);
    if (rank->order.by_layers) {
        layers_post(rank, end);
    } else {
        post_until(rank, end,
                   N_BLOCKS * end->plan.bytes / (rank->order.half ? 2 : 1));
    }
}

static void transfers_finish(rank_t *rank)
{
    for (uint32_t i = 0; i < rank->n_ends; i++) {
        end_t *end = &rank->ends[i];

        post_until(rank, end, UINT64_MAX);
        if (!end->over) {
            (void)!bt_kvt_finish(end->xfer, NULL, 0); /* as with posts */
        }
    }
    rank->state = RANK_RUNS;
}

static void transfers_begin(rank_t *rank)
{
    bt_kvt_counters_t counters;
    grant_t grant;

    bt_kvt_counters(rank->kvt, &counters);
    rank->sent_before = counters.bytes_sent;
    pool_lay(rank, src_ids, SRC_CANARY, rank->pool);
    for (uint32_t i = 0; i < rank->order.n_grants; i++) {
        rank_grant_get(CHILD_IN, &grant);
        transfer_begin(rank, &grant);
    }
    if (rank->order.half) {
        rank->state = RANK_HALF;
    } else {
        transfers_finish(rank);
    }
}

/** All that was posted is on its way. */
static bool half_is_sent(const rank_t *rank)
{
    bt_kvt_counters_t counters;
    uint64_t posted = 0;

    for (uint32_t i = 0; i < rank->n_ends; i++) {
        posted += rank->ends[i].posted;
    }
    bt_kvt_counters(rank->kvt, &counters);
    return counters.bytes_sent - rank->sent_before == posted;
}

/* ---- both ---- */

static void rank_report(const rank_t *rank)
{
    report_t report = {.n = rank->n_ends};

    for (uint32_t i = 0; i < rank->n_ends; i++) {
        report.outcomes[i] = rank->ends[i].outcome;
    }
    report.n_wrong = rank->sends ? 0 : pool_wrong(rank);
    report.n_fds = n_open_fds();
    report.n_maps = n_shared_maps();
    bt_kvt_counters(rank->kvt, &report.counters);
    put(CHILD_OUT, &report, sizeof(report));
}

static void rank_order(rank_t *rank)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    order_t order;
    size_t bytes;

    RANK_MUST(get(CHILD_IN, &order, sizeof(order)) == sizeof(order));
    switch (order.type) {
    case ORDER_PEER:
        bytes = get(CHILD_IN, blob, sizeof(blob));
        bt_kvt_peer_release(rank->peers[order.rank]);
        RANK_MUST(bt_kvt_import(rank->kvt, blob, bytes,
                                &rank->peers[order.rank],
                                &rank->peers[order.rank]) == BT_OK);
        break;
    case ORDER_OPEN:
        rank_begin(rank, &order);
        regions_open(rank);
        rank->state = RANK_RUNS;
        break;
    case ORDER_SEND:
        rank_begin(rank, &order);
        transfers_begin(rank);
        break;
    case ORDER_GO_ON:
        transfers_finish(rank);
        break;
    case ORDER_STATE:
        rank_report(rank);
        break;
    case ORDER_QUIT:
        bt_kvt_close(rank->kvt);
        rank->kvt = NULL;
        break;
    }
}

static void rank_event(const bt_kvt_event_t *event)
{
    end_t *end = event->user;
    bt_kvt_peer_t **peer_p = event->user;

    switch (event->type) {
    case BT_KVT_REGION_DONE:
    case BT_KVT_REGION_FAILED:
        end->outcome.status = event->status;
        end->outcome.bytes = event->bytes;
        end->outcome.n_records = event->n_descriptors;
        bt_kvt_region_close(event->region);
        break;
    case BT_KVT_REGION_CLOSED:
        end->over = true;
        break;
    case BT_KVT_XFER_DONE:
        end->outcome.status = event->status;
        end->outcome.bytes = event->bytes;
        end->outcome.n_records = event->n_descriptors;
        end->over = true;
        bt_kvt_release(event->xfer);
        break;
    case BT_KVT_PEER_LOST:
        bt_kvt_peer_release(event->peer);
        *peer_p = NULL;
        break;
    case BT_KVT_PEER_UP:
        break;
    case BT_KVT_QUARANTINE_STUCK:
        die("a quarantine is stuck");
    }
}

/** @return true when there is more to do at once */
static bool rank_progress(rank_t *rank)
{
    const bool more = bt_kvt_progress(rank->kvt, bt_now_ms(), BUDGET);
    bt_kvt_event_t event;

    while (bt_kvt_poll(rank->kvt, &event)) {
        rank_event(&event);
    }
    if ((rank->state == RANK_HALF) && half_is_sent(rank)) {
        rank_report(rank);
        rank->state = RANK_IDLE;
    }
    if ((rank->state == RANK_RUNS) && rank_is_over(rank)) {
        rank_report(rank);
        rank->state = RANK_IDLE;
    }
    return more;
}

static void rank_wait(const rank_t *rank)
{
    struct pollfd fds[2] = {{.fd = CHILD_IN, .events = POLLIN},
                            {.fd = bt_kvt_fd(rank->kvt), .events = POLLIN}};

    if (bt_kvt_arm(rank->kvt) == BT_OK) {
        (void)poll(fds, 2, 50); /* timers */
    }
}

/** The program of a rank, with the arguments of child_start(). */
__attribute__((unused)) static int rank_main(char **argv)
{
    static rank_t rank;
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const bt_kvt_config_t config = {
        .transport = &bt_kvt_transport_ucx,
        .path = (strcmp(argv[2], "shm") == 0) ? BT_KVT_PATH_SHM
                                              : BT_KVT_PATH_NETWORK,
        .pool_bytes = POOL_BYTES,
        .instance = FIRST_RANK + strtoull(argv[3], NULL, 10),
        .keepalive_ms = 500,
        .dead_ms = LONG_MS,
        .quarantine_ms = LONG_MS};
    size_t bytes = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bt_log_init("rank", BT_LOG_LEVEL_WARN);
    RANK_MUST(bt_kvt_open(&config, &rank.kvt) == BT_OK);
    rank.pool = bt_kvt_pool(rank.kvt);
    rank.sends = (strcmp(argv[1], "source") == 0);
    RANK_MUST(bt_kvt_export(rank.kvt, blob, sizeof(blob), &bytes) == BT_OK);
    put(CHILD_OUT, blob, bytes);
    while (rank.kvt != NULL) {
        const bool more = rank_progress(&rank);

        if (readable(CHILD_IN, 0)) {
            rank_order(&rank);
        } else if (!more) {
            rank_wait(&rank);
        }
    }
    for (uint32_t i = 0; i < rank.n_ends; i++) {
        bt_kv_reshard_fini(&rank.ends[i].plan);
    }
    return 0;
}

#endif
