/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Arrays and objects as graphs: nodes are what has been written so far. */

#define MAX_NODES    20000u
#define MAX_UNIQUE   64u /* values of which a list has each at most once */
#define FREE_UNIQUE  8u  /* of those that may come in any order */
#define MAX_DISTINCT 16u /* elements that are compared with one another */
#define MAX_CONTAINS 4u

typedef struct graph {
    schema_t *s;
    bt_expr_way_t *ways;
    uint32_t n_ways, cap_ways;
    uint32_t n_nodes;
} graph_t;

#define START   0u
#define END     1u
#define NOWHERE UINT32_MAX

static uint32_t new_node(graph_t *g)
{
    if (g->n_nodes == MAX_NODES) {
        bt_grammar_fail(g->s->c, BT_ERR_TOO_LARGE,
                        "bounds of members or elements have more than %u "
                        "combinations",
                        MAX_NODES);
        return END;
    }
    return g->n_nodes++;
}

static void way(graph_t *g, uint32_t from, const bt_expr_t *x, uint32_t to)
{
    if (bt_grammar_grow(g->s->c, &g->ways, &g->cap_ways, g->n_ways + 1,
                        sizeof(*g->ways))) {
        g->ways[g->n_ways++] = (bt_expr_way_t){from, to, x};
    }
}

static const bt_expr_t *graph_expr(graph_t *g)
{
    return bt_grammar_ok(g->s->c)
               ? bt_expr_graph(g->s->b, g->n_nodes, g->ways, g->n_ways)
               : NULL;
}

static const bt_expr_t *two(schema_t *s, const bt_expr_t *a, const bt_expr_t *b)
{
    const bt_expr_t *const parts[] = {a, b};

    return bt_expr_seq(s->b, parts, 2);
}

static const bt_expr_t *sign(schema_t *s, const char *text)
{
    return bt_expr_literal(s->b, text, strlen(text));
}

/* Returns a sign with white space behind it. */
static const bt_expr_t *sign_space(schema_t *s, const char *text)
{
    return two(s, sign(s, text), s->space);
}

static const bt_expr_t *space_sign(schema_t *s, const char *text)
{
    return two(s, s->space, sign(s, text));
}

static uint32_t minus(uint32_t a, uint32_t b)
{
    if (a == SCHEMA_NO_LIMIT) {
        return a;
    }
    return (a > b) ? a - b : 0;
}

/* ---- arrays ---- */

/* `[`, the first elements, each by its own schema, the others, `]`. */
static const bt_expr_t *plain_array(schema_t *s, const schema_array_t *x)
{
    graph_t g = {.s = s, .n_nodes = 2};
    const uint32_t last = (x->n_prefix > 0) ? x->n_prefix : 1;
    const bt_expr_t *const comma = sign_space(s, ",");
    uint32_t at = new_node(&g);

    way(&g, START, sign_space(s, "["), at);
    if (x->min == 0) {
        way(&g, at, sign(s, "]"), END);
    }
    for (uint32_t i = 0; (i < last) && (i < x->max) && bt_grammar_ok(s->c);
         i++) {
        const uint32_t item = (i == 0) ? at : new_node(&g);
        const uint32_t next = new_node(&g);

        if (i > 0) {
            way(&g, at, comma, item);
        }
        way(&g, item, schema_value(s, schema_element(x, i)), next);
        if (i + 1 >= x->min) {
            way(&g, next, space_sign(s, "]"), END);
        }
        at = next;
    }
    if ((x->max > last) && !x->rest->is_nothing) {
        const uint32_t end = new_node(&g);
        const uint32_t min = minus(x->min, last);

        way(&g, at,
            bt_expr_repeat(s->b, two(s, comma, schema_value(s, x->rest)),
                           (min > 0) ? min : 1, minus(x->max, last)),
            end);
        way(&g, end, space_sign(s, "]"), END);
    }
    return graph_expr(&g);
}

/* ---- uniqueItems ---- */

/* Texts of an automaton, as expressions. */
typedef struct texts {
    schema_t *s;
    const bt_dfa_t *dfa;
    bool is_string;
    const bt_expr_t **items;
    uint32_t n;
    char text[1024];
} texts_t;

/* Adds all texts from a state on; the automaton has few, so it has no cycles.
 */
static void add_texts(texts_t *t, uint32_t state, uint32_t n)
{
    schema_t *const s = t->s;

    if ((n == sizeof(t->text)) || (t->n == MAX_UNIQUE) ||
        !bt_grammar_spend(s->c, 1)) {
        t->n = MAX_UNIQUE + 1;
        return;
    }
    if (t->dfa->accepts[state]) {
        t->items[t->n++] = t->is_string ? schema_quoted(s, t->text, n)
                                        : bt_expr_literal(s->b, t->text, n);
    }
    for (uint32_t e = t->dfa->first[state];
         (e < t->dfa->first[state + 1]) && (t->n <= MAX_UNIQUE); e++) {
        const bt_dfa_edge_t *const edge = &t->dfa->edges[e];

        for (uint32_t byte = edge->lo;
             (byte <= edge->hi) && (t->n <= MAX_UNIQUE); byte++) {
            t->text[n] = (char)byte;
            add_texts(t, edge->to, n + 1);
        }
    }
}

/* Lists the values of a set.
 * @return their number; above MAX_UNIQUE: too many, or some are lists or
 *     objects */
static uint32_t list_values(schema_t *s, const schema_set_t *x,
                            const bt_expr_t **items)
{
    texts_t *t = bt_grammar_alloc(s->c, 1, sizeof(*t));

    if ((t == NULL) || (x == NULL)) {
        return MAX_UNIQUE + 1;
    }
    for (uint32_t type = 0; type < SCHEMA_N_TYPES; type++) {
        if ((x->refused[type] != NULL) ||
            ((type >= SCHEMA_ARRAYS) &&
             (x->lists[SCHEMA_LIST_OF(type)].n > 0))) {
            return MAX_UNIQUE + 1;
        }
    }
    *t = (texts_t){.s = s, .dfa = x->numbers, .items = items};
    if (x->has_null) {
        items[t->n++] = sign(s, "null");
    }
    if (x->has_false) {
        items[t->n++] = sign(s, "false");
    }
    if (x->has_true) {
        items[t->n++] = sign(s, "true");
    }
    if (schema_count_texts(s, x->numbers, MAX_UNIQUE) >= MAX_UNIQUE) {
        return MAX_UNIQUE + 1;
    }
    if (!schema_dfa_is_empty(x->numbers)) {
        add_texts(t, 0, 0);
    }
    t->is_string = true;
    for (uint32_t i = 0; (i < x->strings.n) && (t->n <= MAX_UNIQUE); i++) {
        t->dfa = x->strings.items[i].dfa;
        if ((t->dfa == NULL) || (x->strings.n > 1) ||
            (x->strings.items[i].min > 0) ||
            (x->strings.items[i].max != SCHEMA_NO_LIMIT) ||
            (schema_count_texts(s, t->dfa, MAX_UNIQUE) >= MAX_UNIQUE)) {
            return MAX_UNIQUE + 1;
        }
        add_texts(t, 0, 0);
    }
    return t->n;
}

/* Each value at most once, in any order: nodes are sets of values. */
static const bt_expr_t *free_order(schema_t *s, const schema_array_t *x,
                                   const bt_expr_t *const *items, uint32_t n)
{
    graph_t g = {.s = s, .n_nodes = 2 + (2u << n)};
    const bt_expr_t *const comma = sign_space(s, ",");

    way(&g, START, sign_space(s, "["), 2);
    for (uint32_t set = 0; (set < 1u << n) && bt_grammar_ok(s->c); set++) {
        const uint32_t count = (uint32_t)__builtin_popcount(set);
        const uint32_t here = 2 + 2 * set;
        const uint32_t item = (set == 0) ? here : here + 1;

        if (count >= x->min) {
            way(&g, here, (set == 0) ? sign(s, "]") : space_sign(s, "]"), END);
        }
        if (count >= x->max) {
            continue;
        }
        if (set != 0) {
            way(&g, here, comma, item);
        }
        for (uint32_t i = 0; i < n; i++) {
            if ((set >> i & 1) == 0) {
                way(&g, item, items[i], 2 + 2 * (set | 1u << i));
            }
        }
    }
    return graph_expr(&g);
}

/* Each value at most once, in the order of the list: nodes are the next value
 * that may come, and how many have come. */
static const bt_expr_t *fixed_order(schema_t *s, const schema_array_t *x,
                                    const bt_expr_t *const *items, uint32_t n)
{
    const uint32_t last = (x->max < n) ? x->max : n;
    graph_t g = {.s = s, .n_nodes = 2 + 2 * (n + 1) * (last + 1)};
    const bt_expr_t *const comma = sign_space(s, ",");

    way(&g, START, sign_space(s, "["), 2);
    for (uint32_t k = 0; k <= last; k++) {
        for (uint32_t i = 0; (i <= n) && bt_grammar_ok(s->c); i++) {
            const uint32_t here = 2 + 2 * (k * (n + 1) + i);
            const uint32_t item = (k == 0) ? here : here + 1;

            if ((k >= x->min) && ((k > 0) || (i == 0))) {
                way(&g, here, (k == 0) ? sign(s, "]") : space_sign(s, "]"),
                    END);
            }
            if ((k == last) || (i == n)) {
                continue;
            }
            if (k > 0) {
                way(&g, here, comma, item);
            }
            way(&g, item, NULL, item + 2);
            way(&g, item, items[i], 2 + 2 * ((k + 1) * (n + 1) + i + 1));
        }
    }
    return graph_expr(&g);
}

/* True where no two elements can be equal, as none satisfies the schemas of
 * both. */
static bool are_distinct(schema_t *s, const schema_array_t *x)
{
    uint32_t n = x->max;

    if ((n > x->n_prefix) && schema_is_empty(s, x->rest)) {
        n = x->n_prefix;
    }
    if (n > MAX_DISTINCT) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = i + 1; k < n; k++) {
            if (!schema_is_empty(s, schema_term_and(s, schema_element(x, i),
                                                    schema_element(x, k)))) {
                return false;
            }
        }
    }
    return bt_grammar_ok(s->c);
}

static const bt_expr_t *unique_array(schema_t *s, const schema_array_t *x)
{
    const bt_expr_t **items =
        bt_grammar_alloc(s->c, MAX_UNIQUE + 2, sizeof(*items));
    uint32_t n = MAX_UNIQUE + 1;

    if (items == NULL) {
        return NULL;
    }
    if ((x->n_contains == 0) && (x->n_prefix == 0)) {
        n = list_values(s, schema_term_set(s, x->rest), items);
    }
    if (n > MAX_UNIQUE) {
        schema_fail(s, BT_ERR_UNSUPPORTED, x->unique,
                    "different elements are supported of up to %u given "
                    "values",
                    MAX_UNIQUE);
        return NULL;
    }
    return (n <= FREE_UNIQUE) ? free_order(s, x, items, n)
                              : fixed_order(s, x, items, n);
}

/* ---- contains ---- */

/* Elements are counted for each `contains`; nodes are the index and the
 * counts. */
typedef struct counter {
    graph_t g;
    const schema_array_t *x;
    uint32_t n_indexes;              /* the last one stands for all above */
    uint32_t n_counts[MAX_CONTAINS]; /* the last one may, too */
    uint32_t n_tallies;
    uint32_t *nodes; /* by tally: behind an element; + n_tallies: a comma */
} counter_t;

/* Numbers of a tally. */
typedef struct tally {
    uint32_t index;
    uint32_t counts[MAX_CONTAINS];
} tally_t;

static uint32_t tally_number(const counter_t *c, const tally_t *tally)
{
    uint32_t n = tally->index;

    for (uint32_t i = 0; i < c->x->n_contains; i++) {
        n = n * c->n_counts[i] + tally->counts[i];
    }
    return n;
}

static tally_t tally_of(const counter_t *c, uint32_t n)
{
    tally_t tally = {0};

    for (uint32_t i = c->x->n_contains; i-- > 0;) {
        tally.counts[i] = n % c->n_counts[i];
        n /= c->n_counts[i];
    }
    tally.index = n;
    return tally;
}

/* Returns the element that satisfies this set of `contains`, and none else
 * that counts up to a maximum.
 * @param [out] next_p  where it leads
 * @return NULL: no such element is needed, or allowed */
static schema_term_t *counted_element(counter_t *c, const tally_t *at,
                                      uint32_t set, tally_t *next_p)
{
    schema_t *const s = c->g.s;
    schema_term_t *term = schema_element(c->x, at->index);

    *next_p = *at;
    for (uint32_t i = 0; i < c->x->n_contains; i++) {
        const schema_contains_t *const of = &c->x->contains[i];
        const bool has_max = of->max != SCHEMA_NO_LIMIT;

        if ((set >> i & 1) != 0) {
            if ((at->index < of->from) ||
                (at->counts[i] + 1 == c->n_counts[i])) {
                return NULL;
            }
            next_p->counts[i]++;
            term = schema_term_and(s, term, of->term);
        } else if (has_max && (at->index >= of->from)) {
            term = schema_term_and(s, term, schema_term_not_one(s, of->term));
        }
    }
    if (at->index + 1 < c->n_indexes) {
        next_p->index++;
    }
    return ((term == NULL) || schema_is_empty(s, term)) ? NULL : term;
}

static void add_tally(counter_t *c, uint32_t number)
{
    schema_t *const s = c->g.s;
    const tally_t at = tally_of(c, number);
    const uint32_t here = c->nodes[number];
    uint32_t item = here;
    bool is_complete = at.index >= c->x->min;

    for (uint32_t i = 0; i < c->x->n_contains; i++) {
        is_complete = is_complete && (at.counts[i] >= c->x->contains[i].min);
    }
    if (is_complete) {
        way(&c->g, here, (number == 0) ? sign(s, "]") : space_sign(s, "]"),
            END);
    }
    if (at.index >= c->x->max) {
        return;
    }
    if (number > 0) {
        item = new_node(&c->g);
        way(&c->g, here, sign_space(s, ","), item);
    }
    for (uint32_t set = 0;
         (set < 1u << c->x->n_contains) && bt_grammar_ok(s->c); set++) {
        tally_t next;
        schema_term_t *const term = counted_element(c, &at, set, &next);
        const uint32_t to = tally_number(c, &next);

        if (term == NULL) {
            continue;
        }
        if (c->nodes[to] == 0) {
            c->nodes[to] = new_node(&c->g);
        }
        way(&c->g, item, schema_value(s, term), c->nodes[to]);
    }
}

/* Prepares the numbers of tallies. @return false: they are too many */
static bool init_counter(counter_t *c)
{
    const schema_array_t *const x = c->x;
    uint64_t n_tallies;

    c->n_indexes = (x->n_prefix > x->min) ? x->n_prefix : x->min;
    for (uint32_t i = 0; i < x->n_contains; i++) {
        const schema_contains_t *const of = &x->contains[i];

        c->n_indexes = (of->from > c->n_indexes) ? of->from : c->n_indexes;
    }
    c->n_indexes = (c->n_indexes > 0) ? c->n_indexes : 1; /* 0: no element */
    c->n_indexes = (x->max != SCHEMA_NO_LIMIT) ? x->max : c->n_indexes;
    if (c->n_indexes >= MAX_NODES) {
        return false;
    }
    n_tallies = ++c->n_indexes;
    for (uint32_t i = 0; i < x->n_contains; i++) {
        const schema_contains_t *const of = &x->contains[i];
        const uint32_t most = (of->max != SCHEMA_NO_LIMIT) ? of->max : of->min;

        if (most >= MAX_NODES) {
            return false;
        }
        c->n_counts[i] = most + 1;
        n_tallies *= c->n_counts[i];
        if (n_tallies > MAX_NODES) {
            return false;
        }
    }
    c->n_tallies = (uint32_t)n_tallies;
    return true;
}

static const bt_expr_t *counted_array(schema_t *s, const schema_array_t *x)
{
    counter_t c = {.g = {.s = s, .n_nodes = 2}, .x = x};

    if ((x->n_contains > MAX_CONTAINS) || !init_counter(&c)) {
        schema_fail(s, BT_ERR_UNSUPPORTED, x->contains[0].at,
                    "elements to be counted have more than %u combinations",
                    MAX_NODES);
        return NULL;
    }
    c.nodes = bt_grammar_alloc(s->c, c.n_tallies, sizeof(*c.nodes));
    if (c.nodes == NULL) {
        return NULL;
    }
    c.nodes[0] = new_node(&c.g);
    way(&c.g, START, sign_space(s, "["), c.nodes[0]);
    /* Tallies lead to later ones, and those of the last index to their own. */
    for (uint32_t i = 0; (i < c.n_tallies) && bt_grammar_ok(s->c); i++) {
        if (c.nodes[i] != 0) {
            add_tally(&c, i);
        }
    }
    return graph_expr(&c.g);
}

const bt_expr_t *schema_array_expr(schema_t *s, const schema_array_t *x)
{
    schema_array_t plain = *x;

    if (!bt_grammar_ok(s->c)) {
        return NULL;
    }
    if ((x->unique != NULL) && (x->max > 1)) {
        if (!are_distinct(s, x)) {
            return unique_array(s, x);
        }
        plain.unique = NULL;
    }
    return (x->n_contains > 0) ? counted_array(s, &plain)
                               : plain_array(s, &plain);
}

/* ---- objects ---- */

typedef struct members {
    graph_t g;
    const schema_object_t *x;
    bool has_max;
    uint32_t n_counts;     /* numbers of members that are told apart */
    uint32_t *after, *key; /* nodes, by the number of members: behind one, and
                              where one must come */
    const bt_expr_t *comma;
    const bt_expr_t *other; /* member that is not in `members`; NULL: none */
    const bt_expr_t *special[SCHEMA_MAX_SOME]; /* those that there must be */
    uint32_t n_special;
    uint32_t end; /* behind the last member */
} members_t;

static const bt_expr_t *member_expr(schema_t *s, const bt_expr_t *name,
                                    schema_term_t *term)
{
    const bt_expr_t *const parts[] = {name, sign_space(s, ":"),
                                      schema_value(s, term)};

    return bt_expr_seq(s->b, parts, 3);
}

/* Returns an expression of members that are not in `members`.
 * @param [in] some  NULL: all of them
 * @return NULL: there are none, or failed */
static const bt_expr_t *other_member(schema_t *s, const schema_object_t *x,
                                     const schema_names_t *some)
{
    const bt_expr_t **parts =
        bt_grammar_alloc(s->c, (size_t)x->n_classes + 1, sizeof(*parts));
    uint32_t n = 0;

    for (uint32_t i = 0; (i < x->n_classes) && bt_grammar_ok(s->c); i++) {
        const bt_dfa_t *names = schema_other_names(s, x, x->classes[i].names);
        schema_term_t *term = x->classes[i].term;

        if (some != NULL) {
            term = schema_term_and(s, term, some->term);
            names = (names != NULL) ? names : schema_any_text(s);
            if (some->names != NULL) {
                names = bt_dfa_combine(s->c, BT_DFA_AND, names, some->names);
            }
        }
        names = (names != NULL) ? names : schema_any_text(s);
        if (bt_grammar_ok(s->c) && !schema_dfa_is_empty(names) &&
            !schema_is_empty(s, term)) {
            parts[n++] = member_expr(
                s,
                schema_strings_expr(
                    s, schema_strings_of(s, names, 0, SCHEMA_NO_LIMIT)),
                term);
        }
    }
    return (n > 0) ? bt_expr_alt(s->b, parts, n) : NULL;
}

static uint32_t *node_at(members_t *m, uint32_t *nodes, uint32_t count)
{
    if (nodes[count] == NOWHERE) {
        nodes[count] = new_node(&m->g);
    }
    return &nodes[count];
}

/* Moves all nodes over a member: it is written, or left out. */
static void add_member(members_t *m, const schema_member_t *member)
{
    schema_t *const s = m->g.s;
    const size_t bytes = m->n_counts * sizeof(uint32_t);
    uint32_t *after = bt_grammar_alloc(s->c, m->n_counts, sizeof(*after));
    uint32_t *key = bt_grammar_alloc(s->c, m->n_counts, sizeof(*key));
    const bt_expr_t *own = NULL;

    if ((after == NULL) || (key == NULL)) {
        return;
    }
    memset(after, 0xFF, bytes);
    memset(key, 0xFF, bytes);
    if (!schema_is_empty(s, member->term)) {
        own = member_expr(s, schema_quoted(s, member->name, member->len),
                          member->term);
    }
    for (uint32_t k = 0; (k < m->n_counts) && bt_grammar_ok(s->c); k++) {
        const bool is_last = k + 1 == m->n_counts;

        if (m->after[k] != NOWHERE) {
            way(&m->g, m->after[k], m->comma, *node_at(m, m->key, k));
            if (!member->is_required) {
                way(&m->g, m->after[k], NULL, *node_at(m, after, k));
            }
        }
        if (m->key[k] == NOWHERE) {
            continue;
        }
        if (!member->is_required) {
            way(&m->g, m->key[k], NULL, *node_at(m, key, k));
        }
        if ((own != NULL) && !(is_last && m->has_max)) {
            way(&m->g, m->key[k], own, *node_at(m, after, is_last ? k : k + 1));
        }
    }
    m->after = after;
    m->key = key;
}

/* Adds members behind those of `members`. Names may repeat among them, so that
 * no more than one of them is sure to be a further member; of equal names the
 * last one counts, so the special one comes last. */
static void add_others(members_t *m, uint32_t k)
{
    schema_t *const s = m->g.s;
    const uint32_t need = minus(m->x->min, k);
    const uint32_t most = m->has_max ? m->x->max - k : BT_REPEAT_NO_LIMIT;
    const uint32_t n = (m->n_special > 0) ? m->n_special : 1;

    if (m->after[k] != NOWHERE) {
        way(&m->g, m->after[k], m->comma, *node_at(m, m->key, k));
        if ((need == 0) && (m->n_special == 0)) {
            way(&m->g, m->after[k], NULL, m->end);
        }
    }
    if ((m->key[k] == NOWHERE) || (most < n) || (need > n)) {
        return;
    }
    if (m->n_special > 0) {
        uint32_t at = new_node(&m->g);

        way(&m->g, m->key[k],
            (m->other == NULL)
                ? NULL
                : bt_expr_repeat(s->b, two(s, m->other, m->comma), 0,
                                 minus(most, n)),
            at);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t next = (i + 1 < n) ? new_node(&m->g) : m->end;

            way(&m->g, at,
                (i > 0) ? two(s, m->comma, m->special[i]) : m->special[i],
                next);
            at = next;
        }
    } else if (m->other != NULL) {
        const uint32_t more = new_node(&m->g);

        way(&m->g, m->key[k], m->other, more);
        way(&m->g, more,
            bt_expr_repeat(s->b, two(s, m->comma, m->other), 0, minus(most, 1)),
            m->end);
    }
}

static bool has_required(const schema_object_t *x)
{
    for (uint32_t i = 0; i < x->n_members; i++) {
        if (x->members[i].is_required) {
            return true;
        }
    }
    return false;
}

/* Finds how far members have to be counted. */
static void init_counts(members_t *m)
{
    const schema_object_t *const x = m->x;
    const uint32_t n = x->n_members;
    uint32_t bound;

    m->has_max = (x->max != SCHEMA_NO_LIMIT) &&
                 ((m->other != NULL) || (m->n_special > 0) || (x->max < n));
    bound = m->has_max ? x->max : x->min;
    m->n_counts = ((bound < n) ? bound : n) + 1;
    if (!m->has_max && (m->n_counts == 1) && (n > 0)) {
        m->n_counts = 2; /* none, and some */
    }
    if (m->has_max && (x->max >= n)) {
        m->n_counts = n + 2; /* none can be the last */
    }
}

/* Merges members that there must be: one may be what several ask for. Those
 * that are left have different names.
 * @return their number; UINT32_MAX: names may be equal */
static uint32_t merge_some(schema_t *s, const schema_object_t *x,
                           schema_names_t *some)
{
    uint32_t n = 0;

    for (uint32_t i = 0; (i < x->n_some) && bt_grammar_ok(s->c); i++) {
        schema_names_t one = x->some[i];

        one.names = (one.names != NULL) ? one.names : schema_any_text(s);
        for (uint32_t k = 0; k < n; k++) {
            const bt_dfa_t *const both =
                bt_dfa_combine(s->c, BT_DFA_AND, one.names, some[k].names);
            schema_term_t *const term =
                schema_term_and(s, one.term, some[k].term);

            if (schema_dfa_is_empty(both)) {
                continue;
            }
            if (schema_is_empty(s, term)) {
                return UINT32_MAX;
            }
            some[k].names = both;
            some[k].term = term;
            one.term = NULL;
            break;
        }
        if (one.term != NULL) {
            some[n++] = one;
        }
    }
    return n;
}

/* Makes the members that there must be. @return false: there is none */
static bool add_special(members_t *m)
{
    schema_t *const s = m->g.s;
    schema_names_t some[SCHEMA_MAX_SOME];

    m->n_special = merge_some(s, m->x, some);
    if (m->n_special == UINT32_MAX) {
        schema_fail(s, BT_ERR_UNSUPPORTED, m->x->some[0].at,
                    "several members that must differ from others are not "
                    "supported");
        return false;
    }
    for (uint32_t i = 0; (i < m->n_special) && bt_grammar_ok(s->c); i++) {
        m->special[i] = other_member(s, m->x, &some[i]);
        if (m->special[i] == NULL) {
            return false;
        }
    }
    return true;
}

static const bt_expr_t *object_graph(schema_t *s, const schema_object_t *x)
{
    members_t m = {.g = {.s = s, .n_nodes = 2}, .x = x};
    uint32_t n_possible = 0;
    uint32_t body;

    m.comma = sign_space(s, ",");
    m.other = other_member(s, x, NULL);
    if (!add_special(&m)) {
        return bt_expr_nothing(s->b);
    }
    for (uint32_t i = 0; i < x->n_members; i++) {
        n_possible += schema_is_empty(s, x->members[i].term) ? 0 : 1;
    }
    if (x->min > n_possible + 1ull) {
        schema_fail(s, BT_ERR_UNSUPPORTED, x->min_at,
                    "above the number of properties and 1 this is not "
                    "supported");
        return NULL;
    }
    init_counts(&m);
    m.after = bt_grammar_alloc(s->c, m.n_counts, sizeof(*m.after));
    m.key = bt_grammar_alloc(s->c, m.n_counts, sizeof(*m.key));
    if ((m.after == NULL) || (m.key == NULL)) {
        return NULL;
    }
    memset(m.after, 0xFF, m.n_counts * sizeof(*m.after));
    memset(m.key, 0xFF, m.n_counts * sizeof(*m.key));
    m.end = new_node(&m.g);
    body = new_node(&m.g);
    m.key[0] = body;
    way(&m.g, START, sign_space(s, "{"), body);
    if ((x->min == 0) && (x->n_some == 0) && !has_required(x)) {
        way(&m.g, START, two(s, sign_space(s, "{"), sign(s, "}")), END);
    }
    for (uint32_t i = 0; (i < x->n_members) && bt_grammar_ok(s->c); i++) {
        add_member(&m, &x->members[i]);
    }
    for (uint32_t k = 0; (k < m.n_counts) && bt_grammar_ok(s->c); k++) {
        add_others(&m, k);
    }
    way(&m.g, m.end, space_sign(s, "}"), END);
    return graph_expr(&m.g);
}

const bt_expr_t *schema_object_expr(schema_t *s, const schema_object_t *x)
{
    schema_list_t list = {0};
    const bt_expr_t **parts;
    uint32_t n = 0;

    if (!bt_grammar_ok(s->c)) {
        return NULL;
    }
    schema_object_expand(s, x, &list);
    parts = bt_grammar_alloc(s->c, (size_t)list.n + 1, sizeof(*parts));
    for (uint32_t i = 0; (i < list.n) && bt_grammar_ok(s->c); i++) {
        if (!schema_object_is_empty(s, list.items[i])) {
            parts[n++] = object_graph(s, list.items[i]);
        }
    }
    return bt_grammar_ok(s->c) ? bt_expr_alt(s->b, parts, n) : NULL;
}
