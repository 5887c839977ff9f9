/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/distance.h"

#include <string.h>

#include "common/grammar/arcs.h"

#define MAX_WORK  (1u << 22) /* arcs followed */
#define MAX_BYTES (1u << 30) /* of a way that is kept */

/* Arcs that ways follow. */
typedef enum arcs { ALL_ARCS, WITHOUT_COUNTS, FROZEN_WITHOUT_COUNTS } arcs_t;

typedef struct entry {
    uint64_t key;
    uint32_t state;
} entry_t;

typedef struct builder {
    const bt_grammar_t *grammar;
    const bt_grammar_bounds_t *bounds;
    bt_grammar_distances_t *d;
    bt_grammar_arcs_t graph;
    bt_way_t *callees; /* by rule: the way of a call */
    bool *is_dirty;    /* by rule */
    /* Ways through many counts take each as the most expensive one, so calls
     * that are found later are left out of them: a rule that calls itself would
     * become more expensive for ever. */
    uint32_t *found;  /* by rule: when the way of its call was found; 0: not */
    uint32_t *frozen; /* by rule: when its ways through counts were; 0: not */
    uint32_t n_found;
    bool counts_first; /* ways with fewest counts, not fewest bytes */
    uint32_t n_exact;
    uint64_t work;
    /* by state: ways that are found, of the rule at hand */
    bt_way_t *ways;
    bool *done;
    entry_t *heap; /* smallest key first */
    uint32_t n_heap;
} builder_t;

static const bt_way_t no_way = {.bytes = BT_DISTANCE_NONE};

static uint64_t key_of(const builder_t *b, const bt_way_t *way)
{
    const uint64_t bytes = way->bytes;
    const uint64_t counts = way->counts;

    return b->counts_first ? counts << 32 | bytes : bytes << 32 | counts;
}

static void push(builder_t *b, uint64_t key, uint32_t state)
{
    uint32_t i = b->n_heap++;

    for (; (i > 0) && (b->heap[(i - 1) / 2].key > key); i = (i - 1) / 2) {
        b->heap[i] = b->heap[(i - 1) / 2];
    }
    b->heap[i] = (entry_t){.key = key, .state = state};
}

static entry_t pop(builder_t *b)
{
    const entry_t top = b->heap[0];
    const entry_t last = b->heap[--b->n_heap];
    uint32_t i = 0;

    for (uint32_t child; (child = 2 * i + 1) < b->n_heap; i = child) {
        if ((child + 1 < b->n_heap) &&
            (b->heap[child + 1].key < b->heap[child].key)) {
            child++;
        }
        if (b->heap[child].key >= last.key) {
            break;
        }
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return top;
}

/* The way along an arc and a way from there. */
static bt_way_t along(const builder_t *b, const bt_grammar_arc_t *arc,
                      const bt_way_t *way)
{
    bt_way_t sum = {.bytes = 1, .counts = arc->counts ? 1 : 0};

    if (arc->callee != BT_GRAMMAR_NONE) {
        const bt_way_t *callee = &b->callees[arc->callee];

        sum.bytes = callee->bytes;
        sum.height = callee->height + (arc->is_tail ? 0 : 1);
    }
    if ((sum.bytes == BT_DISTANCE_NONE) || (way->bytes == BT_DISTANCE_NONE) ||
        (sum.bytes + way->bytes > MAX_BYTES)) {
        return no_way;
    }
    sum.bytes += way->bytes;
    sum.counts += way->counts;
    sum.height = (way->height > sum.height) ? way->height : sum.height;
    return sum;
}

/* Keeps a way of a state that is better than what it has. */
static void offer(builder_t *b, uint32_t state, bt_way_t way)
{
    if ((way.bytes != BT_DISTANCE_NONE) && !b->done[state] &&
        ((b->ways[state].bytes == BT_DISTANCE_NONE) ||
         (key_of(b, &way) < key_of(b, &b->ways[state])))) {
        b->ways[state] = way;
        push(b, key_of(b, &way), state);
    }
}

static const uint32_t *members_of(const builder_t *b, uint32_t rule,
                                  uint32_t *n_p)
{
    const uint32_t first = b->graph.members.first[rule];

    *n_p = b->graph.members.first[rule + 1] - first;
    return &b->graph.members.items[first];
}

static void begin_ways(builder_t *b, uint32_t rule)
{
    uint32_t n;
    const uint32_t *members = members_of(b, rule, &n);

    b->n_heap = 0;
    for (uint32_t i = 0; i < n; i++) {
        b->ways[members[i]] = no_way;
        b->done[members[i]] = false;
    }
}

/* True for an arc of ways through many counts. */
static bool is_frozen_in(const builder_t *b, const bt_grammar_arc_t *arc)
{
    const uint32_t frozen = b->frozen[b->grammar->states[arc->from].rule];

    return (arc->callee == BT_GRAMMAR_NONE) ||
           ((b->found[arc->callee] > 0) &&
            ((frozen == 0) || (b->found[arc->callee] <= frozen)));
}

/* Goes on backwards from the ways that were offered, the best first (E. W.
 * Dijkstra, 1959). */
static void find_ways(builder_t *b, arcs_t arcs)
{
    while (b->n_heap > 0) {
        const uint32_t to = pop(b).state;

        if (b->done[to]) {
            continue;
        }
        b->done[to] = true;
        for (uint32_t k = b->graph.in.first[to]; k < b->graph.in.first[to + 1];
             k++) {
            const bt_grammar_arc_t *arc = &b->graph.arcs[b->graph.in.items[k]];

            b->work++;
            if ((arcs == ALL_ARCS) ||
                (!arc->counts &&
                 ((arcs == WITHOUT_COUNTS) || is_frozen_in(b, arc)))) {
                offer(b, arc->from, along(b, arc, &b->ways[to]));
            }
        }
    }
}

/* Ways to the ends of a rule, by bytes or by counts. */
static void find_ends(builder_t *b, uint32_t rule, bool counts_first,
                      arcs_t arcs, bt_way_t *ways)
{
    const bt_way_t none = {0};
    uint32_t n;
    const uint32_t *members = members_of(b, rule, &n);

    b->counts_first = counts_first;
    begin_ways(b, rule);
    for (uint32_t i = 0; i < n; i++) {
        if (b->grammar->states[members[i]].accepts) {
            offer(b, members[i], none);
        }
    }
    find_ways(b, arcs);
    for (uint32_t i = 0; i < n; i++) {
        ways[members[i]] = b->ways[members[i]];
    }
}

/* True for such an arc that counts and leads to where counts have no end, and
 * no more than exact ways have are needed. */
static bool is_to_count(const builder_t *b, const bt_grammar_arc_t *arc)
{
    const bt_count_range_t to = b->bounds->states[arc->to].counts;
    const uint32_t rule = b->grammar->states[arc->from].rule;

    return arc->counts && (to.most == BT_GRAMMAR_NO_LIMIT) &&
           (to.least < b->d->rules[rule].n_exact) && is_frozen_in(b, arc);
}

/* Ways with one counting edge, and then those of @a rest, by member; NULL: to
 * the state behind the edge (is_to_count()). */
static void find_counts(builder_t *b, uint32_t rule, const bt_way_t *rest,
                        bt_way_t *ways)
{
    const bt_way_t none = {0};
    uint32_t n;
    const uint32_t *members = members_of(b, rule, &n);

    b->counts_first = false;
    begin_ways(b, rule);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = b->graph.out_first[members[i]];
             k < b->graph.out_first[members[i] + 1]; k++) {
            const bt_grammar_arc_t *arc = &b->graph.arcs[k];
            const uint32_t to = b->bounds->states[arc->to].at;

            b->work++;
            if ((rest != NULL) && arc->counts) {
                offer(b, members[i], along(b, arc, &rest[to]));
            } else if ((rest == NULL) && is_to_count(b, arc)) {
                offer(b, members[i], along(b, arc, &none));
            }
        }
    }
    find_ways(b, (rest != NULL) ? WITHOUT_COUNTS : FROZEN_WITHOUT_COUNTS);
    for (uint32_t i = 0; i < n; i++) {
        ways[i] = b->ways[members[i]];
    }
}

static void take_longer(bt_way_t *most, const bt_way_t *way)
{
    most->bytes = (way->bytes > most->bytes) ? way->bytes : most->bytes;
    most->height = (way->height > most->height) ? way->height : most->height;
}

/* Finds the longest ways to one count more, and to the end from behind it,
 * among states that ways to a count lead to. Where one of these has no such
 * way, the rule has none. */
static void find_longest(builder_t *b, uint32_t rule)
{
    bt_rule_ways_t *ways = &b->d->rules[rule];
    const bt_way_t *last =
        &ways->exact[(size_t)(ways->n_exact - 1) * ways->n_members];
    bool complete = true;
    bool any = false;
    uint32_t n;
    const uint32_t *members = members_of(b, rule, &n);

    ways->most_count = ways->most_exact = (bt_way_t){0};
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = b->graph.out_first[members[i]];
             k < b->graph.out_first[members[i] + 1]; k++) {
            const bt_grammar_arc_t *arc = &b->graph.arcs[k];

            if (is_to_count(b, arc)) {
                any = true;
                const uint32_t to = b->bounds->states[arc->to].at;

                complete = complete &&
                           (ways->count[to].bytes != BT_DISTANCE_NONE) &&
                           (last[to].bytes != BT_DISTANCE_NONE);
                take_longer(&ways->most_count, &ways->count[to]);
                take_longer(&ways->most_exact, &last[to]);
            }
        }
        ways->most_count.height =
            (ways->count[i].height > ways->most_count.height)
                ? ways->count[i].height
                : ways->most_count.height;
    }
    for (uint32_t i = 0; !complete && (i < n); i++) {
        ways->count[i] = no_way;
    }
    if (any && complete && (b->frozen[rule] == 0)) {
        b->frozen[rule] = ++b->n_found;
    }
}

static void find_rule(builder_t *b, uint32_t rule)
{
    const bt_grammar_rule_t *r = &b->grammar->rules[rule];
    bt_rule_ways_t *ways = &b->d->rules[rule];

    find_ends(b, rule, false, ALL_ARCS, b->d->shortest);
    if ((r->min == 0) && (r->max == BT_GRAMMAR_NO_LIMIT)) {
        return;
    }
    if (ways->n_exact > 0) {
        uint32_t n;
        const uint32_t *members = members_of(b, rule, &n);

        /* Without a max, more counts are as good. */
        find_ends(b, rule, false,
                  (r->max == BT_GRAMMAR_NO_LIMIT) ? ALL_ARCS : WITHOUT_COUNTS,
                  b->d->fewest);
        for (uint32_t i = 0; i < n; i++) {
            ways->exact[i] = b->d->fewest[members[i]];
        }
        for (uint32_t c = 1; c < ways->n_exact; c++) {
            find_counts(b, rule, &ways->exact[(size_t)(c - 1) * n],
                        &ways->exact[(size_t)c * n]);
        }
        find_counts(b, rule, NULL, ways->count);
        find_longest(b, rule);
    }
    find_ends(b, rule, true, ALL_ARCS, b->d->fewest);
}

static bool fits(const bt_grammar_rule_t *rule, const bt_way_t *way,
                 uint32_t count, uint32_t height)
{
    return (way->bytes != BT_DISTANCE_NONE) && (way->height <= height) &&
           ((uint64_t)count + way->counts >= rule->min) &&
           ((rule->max == BT_GRAMMAR_NO_LIMIT) ||
            ((uint64_t)count + way->counts <= rule->max));
}

/* The way with @a left counts, which are more than exact ways have: one after
 * the other, each taken as the longest. */
static bt_way_t long_way(const bt_rule_ways_t *ways, uint32_t at, uint32_t left)
{
    const bt_way_t *count = &ways->count[at];
    bt_way_t way = {.counts = left};
    uint64_t bytes;

    if (count->bytes == BT_DISTANCE_NONE) {
        return no_way;
    }
    bytes = count->bytes +
            (uint64_t)(left - ways->n_exact) * ways->most_count.bytes +
            ways->most_exact.bytes;
    if (bytes > MAX_BYTES) {
        return no_way;
    }
    way.bytes = (uint32_t)bytes;
    way.height = ways->most_count.height;
    take_longer(&way, &(bt_way_t){.height = ways->most_exact.height});
    return way;
}

static bt_way_t way_of(const bt_grammar_distances_t *d, uint32_t state,
                       uint32_t count, uint32_t height)
{
    const uint32_t r = d->grammar->states[state].rule;
    const bt_grammar_rule_t *rule = &d->grammar->rules[r];
    const bt_rule_ways_t *ways = &d->rules[r];
    const uint32_t at = d->bounds->states[state].at;
    bt_way_t best = no_way;

    if (fits(rule, &d->shortest[state], count, height)) {
        return d->shortest[state];
    }
    if (fits(rule, &d->fewest[state], count, height)) {
        best = d->fewest[state];
    }
    if (rule->min > count) {
        const uint32_t left = rule->min - count;
        const bt_way_t way =
            (left < ways->n_exact)
                ? ways->exact[(size_t)left * ways->n_members + at]
                : long_way(ways, at, left);

        if ((way.bytes < best.bytes) && (way.height <= height)) {
            best = way;
        }
    }
    return best;
}

uint32_t bt_grammar_distance(const bt_grammar_distances_t *d, uint32_t state,
                             uint32_t count, uint32_t height)
{
    return way_of(d, state, count, height).bytes;
}

/* Computes rules until the ways of their calls stay the same. */
static bt_status_t find_all(builder_t *b)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t r = b->grammar->n_rules; r > 0; r--) {
            const uint32_t rule = r - 1;
            bt_way_t way;

            if (!b->is_dirty[rule]) {
                continue;
            }
            b->is_dirty[rule] = false;
            changed = true;
            b->work++;
            find_rule(b, rule);
            if (b->work > MAX_WORK) {
                return BT_ERR_TOO_LARGE;
            }
            way = way_of(b->d, b->grammar->rules[rule].start, 0, UINT32_MAX);
            if ((way.bytes == b->callees[rule].bytes) &&
                (way.height == b->callees[rule].height)) {
                continue;
            }
            b->callees[rule] = way;
            if ((way.bytes != BT_DISTANCE_NONE) && (b->found[rule] == 0)) {
                b->found[rule] = ++b->n_found;
            }
            for (uint32_t k = b->graph.calls.first[rule];
                 k < b->graph.calls.first[rule + 1]; k++) {
                const bt_grammar_arc_t *arc =
                    &b->graph.arcs[b->graph.calls.items[k]];

                b->is_dirty[b->grammar->states[arc->from].rule] = true;
            }
        }
    }
    return BT_OK;
}

/* Tables of a rule with a min. */
static bool alloc_rule(builder_t *b, uint32_t rule)
{
    const uint32_t min = b->grammar->rules[rule].min;
    bt_rule_ways_t *ways = &b->d->rules[rule];
    uint32_t most;

    (void)members_of(b, rule, &ways->n_members);
    if ((min == 0) || (ways->n_members == 0)) {
        return true;
    }
    most = b->n_exact / ways->n_members;
    most = (most < 4) ? 4 : most;
    ways->n_exact = (min < most) ? min + 1 : most;
    ways->exact =
        bt_arena_alloc(&b->d->arena, (size_t)ways->n_exact * ways->n_members *
                                         sizeof(bt_way_t));
    ways->count = bt_arena_alloc(&b->d->arena,
                                 (size_t)ways->n_members * sizeof(bt_way_t));
    return (ways->exact != NULL) && (ways->count != NULL);
}

static bt_status_t build(builder_t *b)
{
    const size_t n_states = b->grammar->n_states;
    const size_t n_rules = b->grammar->n_rules;
    const bt_status_t status = bt_grammar_arcs_init(&b->graph, b->grammar);

    if (status != BT_OK) {
        return status;
    }
    b->callees = bt_calloc(n_rules, sizeof(bt_way_t));
    b->is_dirty = bt_calloc(n_rules, sizeof(bool));
    b->found = bt_calloc(n_rules, sizeof(uint32_t));
    b->frozen = bt_calloc(n_rules, sizeof(uint32_t));
    b->ways = bt_calloc(n_states, sizeof(bt_way_t));
    b->done = bt_calloc(n_states, sizeof(bool));
    /* Each arc offers once, and so does each state that accepts. */
    b->heap =
        bt_calloc((size_t)b->graph.n_arcs * 2 + n_states + 1, sizeof(entry_t));
    if ((b->callees == NULL) || (b->is_dirty == NULL) || (b->found == NULL) ||
        (b->frozen == NULL) || (b->ways == NULL) || (b->done == NULL) ||
        (b->heap == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; r < n_rules; r++) {
        b->callees[r] = no_way;
        b->is_dirty[r] = true;
        if (!alloc_rule(b, r)) {
            return BT_ERR_NO_MEMORY;
        }
    }
    for (uint32_t s = 0; s < n_states; s++) {
        b->d->shortest[s] = b->d->fewest[s] = no_way;
    }
    return find_all(b);
}

bt_status_t bt_grammar_distances_create(const bt_grammar_bounds_t *bounds,
                                        uint32_t n_exact,
                                        bt_grammar_distances_t **distances_p)
{
    bt_grammar_distances_t *d = bt_calloc(1, sizeof(*d));
    builder_t b = {.grammar = bounds->grammar,
                   .bounds = bounds,
                   .d = d,
                   .n_exact = n_exact};
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (d == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    d->grammar = bounds->grammar;
    d->bounds = bounds;
    d->shortest = bt_calloc(d->grammar->n_states, sizeof(bt_way_t));
    d->fewest = bt_calloc(d->grammar->n_states, sizeof(bt_way_t));
    d->rules = bt_calloc(d->grammar->n_rules, sizeof(bt_rule_ways_t));
    if ((d->shortest == NULL) || (d->fewest == NULL) || (d->rules == NULL)) {
        goto err_destroy;
    }
    status = build(&b);
    bt_grammar_arcs_fini(&b.graph);
    bt_free(b.callees);
    bt_free(b.is_dirty);
    bt_free(b.found);
    bt_free(b.frozen);
    bt_free(b.ways);
    bt_free(b.done);
    bt_free(b.heap);
    if (status != BT_OK) {
        goto err_destroy;
    }
    *distances_p = d;
    return BT_OK;

err_destroy:
    bt_grammar_distances_destroy(d);
    return status;
}

void bt_grammar_distances_destroy(bt_grammar_distances_t *d)
{
    if (d == NULL) {
        return;
    }
    bt_arena_fini(&d->arena);
    bt_free(d->shortest);
    bt_free(d->fewest);
    bt_free(d->rules);
    bt_free(d);
}

bt_status_t bt_grammar_shortest(const uint8_t *program, size_t bytes,
                                uint32_t *n_p)
{
    bt_grammar_distances_t *distances = NULL;
    bt_grammar_bounds_t *bounds = NULL;
    bt_grammar_t *grammar = NULL;
    const char *why;
    uint32_t n = BT_DISTANCE_NONE;
    bt_status_t status = bt_grammar_load(program, bytes, &why, &grammar);

    if (status == BT_OK) {
        status = bt_grammar_bounds_create(grammar, &bounds);
    }
    if (status == BT_OK) {
        status =
            bt_grammar_distances_create(bounds, BT_DISTANCE_EXACT, &distances);
    }
    if (status == BT_OK) {
        n = bt_grammar_distance(distances, grammar->rules[0].start, 0,
                                BT_GRAMMAR_MAX_DEPTH - 1);
        status = (n == BT_DISTANCE_NONE) ? BT_ERR_TOO_LARGE : BT_OK;
    }
    bt_grammar_distances_destroy(distances);
    bt_grammar_bounds_destroy(bounds);
    bt_grammar_free(grammar);
    if (status == BT_OK) {
        *n_p = n;
    }
    return status;
}
