/* SPDX-License-Identifier: Apache-2.0 */
/* KV moves between instances that split one model in different ways: every rank
 * is a process of its own with its own pool (reshard_rank.h), and each
 * destination checks every byte of its pool. Each group of processes serves one
 * pair of splits after the other, in the same memory. */
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/unit/kvtransfer/reshard_rank.h"

#define MAX_SPLITS 6u

static const bt_kv_split_t splits[MAX_SPLITS] = {{1, 1}, {2, 1}, {4, 1},
                                                 {1, 2}, {2, 2}, {4, 2}};

/* 5 layers are 2 and 3. */
static const bt_kv_shape_t eight_heads = {.n_layers = 5,
                                          .n_kv_heads = 8,
                                          .tokens_per_block = 16,
                                          .head_dim = 24,
                                          .elem_bytes = 2};
static const bt_kv_shape_t eight_heads_int8 = {.n_layers = 5,
                                               .n_kv_heads = 8,
                                               .tokens_per_block = 16,
                                               .head_dim = 24,
                                               .elem_bytes = 1,
                                               .scale_bytes = 4};
/* Over 2 ranks: 1 and 2. */
static const bt_kv_shape_t three_heads = {.n_layers = 3,
                                          .n_kv_heads = 3,
                                          .tokens_per_block = 16,
                                          .head_dim = 24,
                                          .elem_bytes = 2};

typedef struct proc {
    child_t child; /* pid 0: none */
    uint64_t instance;
    uint8_t *blob; /* of a destination; owned */
    size_t blob_bytes;
    report_t report;
} proc_t;

/** Processes that are the ranks of both instances. */
typedef struct group {
    const char *path;
    uint32_t n_sources, n_destinations;
    proc_t sources[MAX_RANKS];
    proc_t destinations[MAX_RANKS];
    unsigned n_started;
    uint32_t seed; /* a new one for each sequence */
    /* What is given to whom: of the sequence under way. */
    grant_t grants[MAX_RANKS][MAX_RANKS]; /* [source][destination] */
    bool granted[MAX_RANKS][MAX_RANKS];
} group_t;

/** A sequence that moves from one split to another. */
typedef struct run {
    const bt_kv_shape_t *whole;
    bt_kv_split_t from, to;
    wrong_t wrong; /* of rank wrong_rank, source or destination */
    uint32_t wrong_rank;
    bool half, by_layers;
    /* What came out: of all regions. */
    uint32_t n_regions, n_extents, n_posts, n_records;
    uint64_t bytes;
} run_t;

static uint32_t n_ranks(const bt_kv_split_t *split)
{
    return split->tp * split->pp;
}

/* ---- processes ---- */

static void proc_start(group_t *group, proc_t *proc, const char *role)
{
    proc->instance = FIRST_RANK + group->n_started;
    proc->child = child_start(role, group->path, group->n_started);
    group->n_started++;
}

/** Its export says that it is ready. */
static void proc_ready(proc_t *proc)
{
    bt_free(proc->blob);
    proc->blob = bt_calloc(1, BT_KVT_MAX_EXPORT);
    assert_non_null(proc->blob);
    proc->blob_bytes = get(proc->child.from, proc->blob, BT_KVT_MAX_EXPORT);
}

static void order_put(const proc_t *proc, const order_t *order)
{
    put(proc->child.to, order, sizeof(*order));
}

static void report_get(proc_t *proc)
{
    assert_int_equal(get(proc->child.from, &proc->report, sizeof(proc->report)),
                     sizeof(proc->report));
}

static void introduce(const proc_t *source, const proc_t *destination,
                      uint32_t rank)
{
    const order_t order = {.type = ORDER_PEER, .rank = rank};

    order_put(source, &order);
    put(source->child.to, destination->blob, destination->blob_bytes);
}

static void group_open(group_t *group, const char *path, uint32_t n_sources,
                       uint32_t n_destinations)
{
    memset(group, 0, sizeof(*group));
    group->path = path;
    group->n_sources = n_sources;
    group->n_destinations = n_destinations;
    for (uint32_t i = 0; i < n_sources; i++) {
        proc_start(group, &group->sources[i], "source");
    }
    for (uint32_t i = 0; i < n_destinations; i++) {
        proc_start(group, &group->destinations[i], "destination");
    }
    for (uint32_t i = 0; i < n_destinations; i++) {
        proc_ready(&group->destinations[i]);
    }
    for (uint32_t i = 0; i < n_sources; i++) {
        proc_ready(&group->sources[i]);
        for (uint32_t d = 0; d < n_destinations; d++) {
            introduce(&group->sources[i], &group->destinations[d], d);
        }
    }
}

/** Start another in the place of one that was killed. */
static void source_replace(group_t *group, uint32_t rank)
{
    proc_start(group, &group->sources[rank], "source");
    proc_ready(&group->sources[rank]);
    for (uint32_t d = 0; d < group->n_destinations; d++) {
        introduce(&group->sources[rank], &group->destinations[d], d);
    }
}

static void destination_replace(group_t *group, uint32_t rank)
{
    proc_start(group, &group->destinations[rank], "destination");
    proc_ready(&group->destinations[rank]);
    for (uint32_t s = 0; s < group->n_sources; s++) {
        introduce(&group->sources[s], &group->destinations[rank], rank);
    }
}

/** With a sanitizer it has looked for what was left. */
static void proc_quit(proc_t *proc)
{
    const order_t order = {.type = ORDER_QUIT};
    int status = 0;

    order_put(proc, &order);
    assert_int_equal(waitpid(proc->child.pid, &status, 0), proc->child.pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0)) {
        fail_msg("a rank ended with status %#x", (unsigned)status);
    }
    close(proc->child.to);
    close(proc->child.from);
    bt_free(proc->blob);
}

static void group_close(group_t *group)
{
    for (uint32_t i = 0; i < group->n_sources; i++) {
        proc_quit(&group->sources[i]);
    }
    for (uint32_t i = 0; i < group->n_destinations; i++) {
        proc_quit(&group->destinations[i]);
    }
}

/* ---- a sequence ---- */

static order_t order_of(const group_t *group, const run_t *run,
                        order_type_t type, uint32_t rank)
{
    const bool at_source =
        (run->wrong == WRONG_SWAPPED_MOVES) || (run->wrong == WRONG_TOKEN);
    order_t order = {.type = type,
                     .seed = group->seed,
                     .whole = *run->whole,
                     .from = run->from,
                     .to = run->to,
                     .rank = rank,
                     .half = run->half,
                     .by_layers = run->by_layers};

    if ((at_source == (type == ORDER_SEND)) && (rank == run->wrong_rank)) {
        order.wrong = run->wrong;
    }
    for (uint32_t s = 0; s < group->n_sources; s++) {
        order.instances[s] = group->sources[s].instance;
    }
    return order;
}

static void regions_order(group_t *group, run_t *run)
{
    memset(group->granted, 0, sizeof(group->granted));
    for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
        const order_t order = order_of(group, run, ORDER_OPEN, d);

        order_put(&group->destinations[d], &order);
    }
    for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
        const int from = group->destinations[d].child.from;
        uint32_t n = 0;

        assert_int_equal(get(from, &n, sizeof(n)), sizeof(n));
        run->n_regions += n;
        for (; n > 0; n--) {
            grant_t grant;
            uint32_t s;

            rank_grant_get(from, &grant);
            s = grant.rank;
            assert_true(s < n_ranks(&run->from));
            assert_false(group->granted[s][d]);
            run->n_extents += grant.n_extents;
            grant.rank = d;
            group->granted[s][d] = true;
            group->grants[s][d] = grant;
        }
    }
}

static void sending_order(group_t *group, const run_t *run)
{
    for (uint32_t s = 0; s < n_ranks(&run->from); s++) {
        order_t order = order_of(group, run, ORDER_SEND, s);

        for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
            order.n_grants += group->granted[s][d];
        }
        order_put(&group->sources[s], &order);
        for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
            if (group->granted[s][d]) {
                put(group->sources[s].child.to, &group->grants[s][d],
                    sizeof(grant_t));
            }
        }
    }
}

static void run_begin(group_t *group, run_t *run)
{
    assert_true(n_ranks(&run->from) <= group->n_sources);
    assert_true(n_ranks(&run->to) <= group->n_destinations);
    group->seed++;
    regions_order(group, run);
    sending_order(group, run);
}

/** @a lost: rank of the other side that died, or -1. */
static void report_check(const report_t *report, int lost)
{
    for (uint32_t i = 0; i < report->n; i++) {
        const outcome_t *outcome = &report->outcomes[i];
        const bt_status_t want =
            ((int)outcome->rank == lost) ? BT_ERR_PEER_LOST : BT_OK;

        if (outcome->status != want) {
            fail_msg("with rank %u: %s, not %s", outcome->rank,
                     bt_status_str(outcome->status), bt_status_str(want));
        }
    }
    assert_int_equal(report->counters.regions_open, 0);
    assert_int_equal(report->counters.regions_quarantined, 0);
    assert_int_equal(report->counters.xfers_open, 0);
    assert_int_equal(report->counters.checksum_failures, 0);
}

/** All ranks but the dead (-1: none) have ended as they must. */
static void run_end(group_t *group, run_t *run, int dead_source,
                    int dead_destination)
{
    for (uint32_t s = 0; s < n_ranks(&run->from); s++) {
        report_t *report = &group->sources[s].report;

        if ((int)s == dead_source) {
            continue;
        }
        report_get(&group->sources[s]);
        report_check(report, dead_destination);
        for (uint32_t i = 0; i < report->n; i++) {
            run->n_posts += report->outcomes[i].n_ranges;
        }
    }
    for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
        report_t *report = &group->destinations[d].report;

        if ((int)d == dead_destination) {
            continue;
        }
        report_get(&group->destinations[d]);
        report_check(report, dead_source);
        for (uint32_t i = 0; i < report->n; i++) {
            if (report->outcomes[i].status == BT_OK) {
                run->bytes += report->outcomes[i].bytes;
                run->n_records += report->outcomes[i].n_records;
            }
        }
    }
}

static void no_byte_is_wrong(const group_t *group, const run_t *run)
{
    for (uint32_t d = 0; d < n_ranks(&run->to); d++) {
        const uint64_t n = group->destinations[d].report.n_wrong;

        if (n > 0) {
            fail_msg("%ux%u to %ux%u: %llu bytes wrong in rank %u",
                     run->from.tp, run->from.pp, run->to.tp, run->to.pp,
                     (unsigned long long)n, d);
        }
    }
}

/** All of @a run, with every byte in its place and none moved twice. */
static void run_whole(group_t *group, run_t *run)
{
    const bt_kv_shape_t *w = run->whole;

    run_begin(group, run);
    run_end(group, run, -1, -1);
    no_byte_is_wrong(group, run);
    assert_int_equal(run->bytes,
                     (uint64_t)N_BLOCKS * w->n_layers * 2 * w->n_kv_heads *
                         w->tokens_per_block *
                         (w->head_dim * w->elem_bytes + w->scale_bytes));
}

/* ---- all pairs ---- */

typedef struct table {
    const char *name;
    const bt_kv_shape_t *whole;
    bool by_layers;
    bool is_shm;
    uint32_t n_pairs;
    uint32_t n_pieces[MAX_SPLITS][MAX_SPLITS]; /* 0: not tried */
    uint64_t bytes;
} table_t;

static void table_print(const table_t *table, const char *path)
{
    printf("%s, %s: %u pairs of splits, every byte right, %llu bytes in all; "
           "pieces for %u blocks, from (down) to (across), tp x pp:\n     ",
           table->name, path, table->n_pairs, (unsigned long long)table->bytes,
           N_BLOCKS);
    for (uint32_t b = 0; b < MAX_SPLITS; b++) {
        printf("  %ux%u", splits[b].tp, splits[b].pp);
    }
    for (uint32_t a = 0; a < MAX_SPLITS; a++) {
        printf("\n  %ux%u", splits[a].tp, splits[a].pp);
        for (uint32_t b = 0; b < MAX_SPLITS; b++) {
            if (table->n_pieces[a][b] > 0) {
                printf("%5u", table->n_pieces[a][b]);
            } else {
                printf("    -");
            }
        }
    }
    printf("\n");
}

static void pair_move(group_t *group, table_t *table, uint32_t a, uint32_t b)
{
    run_t run = {.whole = table->whole,
                 .from = splits[a],
                 .to = splits[b],
                 .by_layers = table->by_layers};

    run_whole(group, &run);
    table->is_shm = strcmp(group->path, "shm") == 0;
    table->n_pieces[a][b] = run.n_records;
    table->n_pairs++;
    table->bytes += run.bytes;
}

static void all_pairs_move(group_t *group, table_t *table)
{
    for (uint32_t a = 0; a < MAX_SPLITS; a++) {
        for (uint32_t b = 0; b < MAX_SPLITS; b++) {
            if ((splits[a].tp <= table->whole->n_kv_heads) &&
                (splits[b].tp <= table->whole->n_kv_heads)) {
                pair_move(group, table, a, b);
            }
        }
    }
    table_print(table, group->path);
}

static uint32_t pieces_of(const table_t *table, uint32_t from_tp,
                          uint32_t from_pp, uint32_t to_tp, uint32_t to_pp)
{
    for (uint32_t a = 0; a < MAX_SPLITS; a++) {
        for (uint32_t b = 0; b < MAX_SPLITS; b++) {
            if ((splits[a].tp == from_tp) && (splits[a].pp == from_pp) &&
                (splits[b].tp == to_tp) && (splits[b].pp == to_pp)) {
                return table->n_pieces[a][b];
            }
        }
    }
    fail_msg("no such pair");
    return 0;
}

/* In shared memory several that were posted by then are one record. */
static void are(const table_t *t, uint32_t n_pieces, uint32_t by_hand)
{
    if (t->is_shm) {
        assert_in_range(n_pieces, 1, by_hand);
    } else {
        assert_int_equal(n_pieces, by_hand);
    }
}

/* By hand, for 5 blocks, of which only the second and third are neighbours in
 * both pools.
 *
 * Equal splits: whole blocks, 4 pieces (those two are one) for each rank.
 *
 * A row is k or v of one layer; the model has 10. Where heads are split more
 * finely on one end, a finer rank's row is a piece of the other's row: one
 * piece for each of the finer ranks, each of its rows and each block. Layers do
 * not change that, whoever has them: of 4 slices each has 10 rows in all, so 4
 * x 10 x 5 = 200, and of 2 slices 2 x 10 x 5 = 100.
 *
 * Where only layers are split, each stage's part of a block is one piece, of 2
 * stages 2 x 5 = 10 for each of the slices; none are neighbours, as each block
 * has another stage's layers before or behind them on one end. */
static void pieces_are_as_many_as_worked_by_hand(const table_t *t)
{
    are(t, pieces_of(t, 1, 1, 1, 1), 4);
    are(t, pieces_of(t, 2, 2, 2, 2), 4 * 4);
    are(t, pieces_of(t, 4, 2, 4, 2), 8 * 4);
    are(t, pieces_of(t, 4, 2, 1, 1), 200);
    are(t, pieces_of(t, 1, 1, 4, 2), 200);
    are(t, pieces_of(t, 4, 1, 2, 2), 200);
    are(t, pieces_of(t, 2, 1, 1, 2), 100);
    are(t, pieces_of(t, 1, 1, 1, 2), 10);
    are(t, pieces_of(t, 4, 2, 4, 1), 4 * 10);
}

static void every_pair_of_splits(const char *path)
{
    table_t eight = {.name = "8 heads", .whole = &eight_heads};
    table_t int8 = {.name = "8 heads, int8 with scales",
                    .whole = &eight_heads_int8};
    table_t three = {.name = "3 heads", .whole = &three_heads};
    table_t layers = {.name = "8 heads, int8 with scales, layer by layer",
                      .whole = &eight_heads_int8,
                      .by_layers = true};
    group_t group;

    group_open(&group, path, MAX_RANKS, MAX_RANKS);
    all_pairs_move(&group, &eight);
    all_pairs_move(&group, &int8);
    all_pairs_move(&group, &three);
    all_pairs_move(&group, &layers);
    group_close(&group);
    assert_int_equal(eight.n_pairs, 36);
    assert_int_equal(int8.n_pairs, 36);
    assert_int_equal(three.n_pairs, 16);
    pieces_are_as_many_as_worked_by_hand(&eight);
    /* Scales lie behind all elements, so they are pieces of their own, as many
     * again; but not between equal ranks. */
    are(&int8, pieces_of(&int8, 1, 1, 1, 1), 4);
    are(&int8, pieces_of(&int8, 4, 2, 1, 1), 2 * 200);
    are(&int8, pieces_of(&int8, 1, 1, 1, 2), 2 * 10);
    /* Layer by layer, each layer of a block is a piece. Its scales go with the
     * last layer, in one piece with that between equal ranks: 5 x 5. To 1x2,
     * stage 0 gets 2 layers and their scales, stage 1 gets 3 and theirs, which
     * at the source lie behind those of stage 0. Finer slices: each row was a
     * piece before. */
    are(&layers, pieces_of(&layers, 1, 1, 1, 1), 25);
    are(&layers, pieces_of(&layers, 1, 1, 1, 2), 5 * (2 + 1 + 3 + 1));
    are(&layers, pieces_of(&layers, 4, 2, 1, 1), 2 * 200);
    /* 6 rows, and 2 slices: 2 x 6 x 5. */
    are(&three, pieces_of(&three, 2, 1, 1, 1), 60);
    are(&three, pieces_of(&three, 1, 1, 2, 2), 60);
}

static void every_pair_of_splits_moves_the_right_bytes_shm(void **state)
{
    (void)state;
    every_pair_of_splits("shm");
}

static void every_pair_of_splits_moves_the_right_bytes_network(void **state)
{
    (void)state;
    every_pair_of_splits("network");
}

/* ---- what goes wrong ---- */

/* Each destination's block has heads of two sources; rank 1 has something for
 * two destinations, 0 and 2, and so has destination 2 from sources 0 and 1. */
static const run_t four_to_two_by_two = {
    .whole = &eight_heads, .from = {4, 1}, .to = {2, 2}};

/* The transport cannot know: its checksums are right. */
static void wrong_reshard_plan_fails_verification(void **state)
{
    static const struct {
        wrong_t wrong;
        uint32_t rank;
        bool harmed[4]; /* destination */
    } cases[] = {{WRONG_SWAPPED_MOVES, 1, {true, false, true, false}},
                 {WRONG_TOKEN, 1, {true, false, true, false}},
                 {WRONG_SWAPPED_EXTENTS, 3, {false, false, false, true}},
                 {WRONG_BLOCK, 0, {true, false, false, false}}};
    run_t run = four_to_two_by_two;
    group_t group;

    (void)state;
    group_open(&group, "shm", 4, 4);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        run = four_to_two_by_two;
        run.wrong = cases[i].wrong;
        run.wrong_rank = cases[i].rank;
        run_begin(&group, &run);
        run_end(&group, &run, -1, -1);
        for (uint32_t d = 0; d < 4; d++) {
            assert_int_equal(group.destinations[d].report.n_wrong > 0,
                             cases[i].harmed[d]);
        }
    }
    run = four_to_two_by_two;
    run_whole(&group, &run);
    group_close(&group);
}

static void state_get(proc_t *proc)
{
    const order_t order = {.type = ORDER_STATE};

    order_put(proc, &order);
    report_get(proc);
}

/** What the dead rank had here is closed and unmapped. */
static void nothing_of_the_dead_is_kept(proc_t *proc, const report_t *before)
{
    const uint64_t start_ms = bt_now_ms();

    do {
        state_get(proc);
        if (bt_now_ms() - start_ms > LIMIT_MS) {
            fail_msg("%u descriptors and %u maps, before %u and %u",
                     proc->report.n_fds, proc->report.n_maps, before->n_fds,
                     before->n_maps);
        }
    } while ((proc->report.n_fds > before->n_fds) ||
             (proc->report.n_maps > before->n_maps));
}

/** What each rank holds once a whole run opens nothing any more: connections
 *  are accepted, and doubled ones closed, after the first bytes have come. */
static void settle(group_t *group, report_t *sources, report_t *destinations)
{
    const uint64_t start_ms = bt_now_ms();
    uint32_t n_same = 0;

    memset(sources, 0, 4 * sizeof(*sources));
    memset(destinations, 0, 4 * sizeof(*destinations));
    while (n_same < 8) {
        run_t run = four_to_two_by_two;

        run_whole(group, &run);
        n_same = 0;
        for (uint32_t i = 0; i < 4; i++) {
            state_get(&group->sources[i]);
            n_same += group->sources[i].report.n_fds == sources[i].n_fds;
            sources[i] = group->sources[i].report;
            state_get(&group->destinations[i]);
            n_same +=
                group->destinations[i].report.n_fds == destinations[i].n_fds;
            destinations[i] = group->destinations[i].report;
        }
        assert_true(bt_now_ms() - start_ms < LIMIT_MS);
    }
}

/** Half of everything is on its way when rank @a source (or -1) or rank
 *  @a destination (or -1) is killed. */
static void kill_in_the_middle(group_t *group, int source, int destination)
{
    const order_t go_on = {.type = ORDER_GO_ON};
    report_t sources[MAX_RANKS], destinations[MAX_RANKS];
    run_t run = four_to_two_by_two;
    uint32_t n_lost = 0;
    uint64_t killed_ms, took_ms;

    settle(group, sources, destinations);
    run.half = true;
    run_begin(group, &run);
    for (uint32_t s = 0; s < 4; s++) {
        report_get(&group->sources[s]);
        for (uint32_t i = 0; i < group->sources[s].report.n; i++) {
            assert_int_equal(group->sources[s].report.outcomes[i].status,
                             BT_INPROGRESS);
        }
    }
    child_end((source >= 0) ? &group->sources[source].child
                            : &group->destinations[destination].child);
    killed_ms = bt_now_ms();
    for (int s = 0; s < 4; s++) {
        if (s != source) {
            order_put(&group->sources[s], &go_on);
        }
    }
    run_end(group, &run, source, destination);
    took_ms = bt_now_ms() - killed_ms;
    printf(
        "%s: a %s killed in the middle: all others had ended %llu ms later\n",
        group->path, (source >= 0) ? "source" : "destination",
        (unsigned long long)took_ms);
    assert_true(took_ms < LONG_MS / 2); /* not for its silence */
    for (int i = 0; i < 4; i++) {
        proc_t *both[] = {&group->sources[i], &group->destinations[i]};
        const report_t *before[] = {&sources[i], &destinations[i]};

        if (i != destination) {
            assert_int_equal(both[1]->report.n_wrong, 0);
        }
        for (int k = 0; k < 2; k++) {
            if (i == ((k == 0) ? source : destination)) {
                continue;
            }
            for (uint32_t n = 0; n < both[k]->report.n; n++) {
                n_lost +=
                    both[k]->report.outcomes[n].status == BT_ERR_PEER_LOST;
            }
            nothing_of_the_dead_is_kept(both[k], before[k]);
        }
    }
    assert_int_equal(n_lost, 2);
}

static void deaths_in_the_middle(const char *path)
{
    run_t run = four_to_two_by_two;
    group_t group;

    group_open(&group, path, 4, 4);
    kill_in_the_middle(&group, 1, -1);
    source_replace(&group, 1);
    kill_in_the_middle(&group, -1, 2); /* begins with a whole run */
    destination_replace(&group, 2);
    run_whole(&group, &run);
    group_close(&group);
}

static void dead_rank_ends_only_its_own_regions_shm(void **state)
{
    (void)state;
    deaths_in_the_middle("shm");
}

static void dead_rank_ends_only_its_own_regions_network(void **state)
{
    (void)state;
    deaths_in_the_middle("network");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_pair_of_splits_moves_the_right_bytes_shm),
        BT_TEST(every_pair_of_splits_moves_the_right_bytes_network),
        BT_TEST(wrong_reshard_plan_fails_verification),
        BT_TEST(dead_rank_ends_only_its_own_regions_shm),
        BT_TEST(dead_rank_ends_only_its_own_regions_network),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 4) {
        return rank_main(argv);
    }
    bt_log_init("test_kvt_reshard_process", BT_LOG_LEVEL_WARN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
