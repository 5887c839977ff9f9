/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/builder.h"

#include <string.h>

#include "common/grammar/bounds.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

#define LETTERS    2u /* a, b */
#define MOST_BYTES 7u
#define MAX_RULES  4u
#define MAX_NODES  64u

static uint64_t rng = 88172645463325252u;

static uint32_t below(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

/* ---- expressions, also as a plain tree ---- */

typedef enum what { LIT, RANGE, SEQ, ALT, REP, REF, TEXT, NONE } what_t;

typedef struct node {
    what_t what;
    char text[4];
    uint32_t min, max;
    uint32_t a, b; /* parts, or rule */
    const bt_expr_t *x;
    const bt_dfa_t *dfa;
} node_t;

typedef struct tree {
    bt_grammar_builder_t *b;
    node_t nodes[MAX_NODES];
    uint32_t n;
    uint32_t rules[MAX_RULES]; /* their nodes */
    uint32_t n_rules;
} tree_t;

static uint32_t add(tree_t *t, node_t node)
{
    t->nodes[t->n] = node;
    return t->n++;
}

static uint32_t random_node(tree_t *t, bt_grammar_compiler_t *c, uint32_t depth)
{
    node_t node = {0};
    const uint32_t kind = (depth == 0) ? below(3) : below(12);

    if ((t->n > 0) && (below(8) == 0)) {
        return below(t->n); /* used once more */
    }
    if (t->n > MAX_NODES - 12) {
        node.what = LIT;
        node.text[0] = 'a';
        node.x = bt_expr_literal(t->b, "a", 1);
    } else if (kind < 2) {
        const uint32_t n = below(4);

        node.what = LIT;
        for (uint32_t i = 0; i < n; i++) {
            node.text[i] = (char)('a' + below(LETTERS));
        }
        node.x = bt_expr_literal(t->b, node.text, n);
    } else if (kind == 2) {
        node.what = (below(8) == 0) ? NONE : RANGE;
        node.x = (node.what == NONE) ? bt_expr_nothing(t->b)
                                     : bt_expr_bytes(t->b, 'a', 'b');
    } else if (kind < 8) {
        const bt_expr_t *parts[2];

        node.what = (kind < 5) ? SEQ : ALT;
        node.a = random_node(t, c, depth - 1);
        node.b = random_node(t, c, depth - 1);
        parts[0] = t->nodes[node.a].x;
        parts[1] = t->nodes[node.b].x;
        node.x = (node.what == SEQ) ? bt_expr_seq(t->b, parts, 2)
                                    : bt_expr_alt(t->b, parts, 2);
    } else if (kind < 10) {
        node.what = REP;
        node.a = random_node(t, c, depth - 1);
        node.min = below(4);
        node.max = (below(2) == 0) ? BT_REPEAT_NO_LIMIT : node.min + below(3);
        node.max = (below(3) == 0) ? node.min + 1000 : node.max;
        node.x = bt_expr_repeat(t->b, t->nodes[node.a].x, node.min, node.max);
    } else if (kind == 10) {
        const bt_expr_t *ref;

        node.what = REF;
        node.a = below(t->n_rules);
        ref = bt_expr_rule(t->b, node.a);
        node.x = ref;
    } else {
        bt_nfa_t *nfa = bt_nfa_create(c);
        const uint32_t s = bt_nfa_state(nfa);
        const uint32_t e = bt_nfa_state(nfa);

        /* a*b*, or (ab)*: lengths with gaps */
        node.what = TEXT;
        node.b = below(2);
        bt_nfa_edge(nfa, s, 'a', 'a', (node.b == 0) ? s : e);
        if (node.b == 0) {
            bt_nfa_epsilon(nfa, s, e);
        }
        bt_nfa_edge(nfa, e, 'b', 'b', (node.b == 0) ? e : s);
        node.dfa = bt_nfa_to_dfa(nfa, s, (node.b == 0) ? e : s);
        node.min = below(4);
        node.max = node.min + below(3);
        node.max = (below(2) == 0) ? 40 + below(40) : node.max;
        node.x = bt_expr_text(t->b, node.dfa, node.min, node.max, false);
    }
    return add(t, node);
}

static void random_tree(tree_t *t, bt_grammar_compiler_t *c)
{
    memset(t, 0, sizeof(*t));
    t->b = bt_builder_create(c);
    t->n_rules = 1 + below(MAX_RULES);
    for (uint32_t r = 0; r < t->n_rules; r++) {
        assert_int_equal(bt_builder_rule(t->b, "r"), r);
    }
    for (uint32_t r = 0; r < t->n_rules; r++) {
        t->rules[r] = random_node(t, c, 3);
        bt_builder_define(t->b, r, t->nodes[t->rules[r]].x);
    }
}

/* ---- what the tree says: ends of a node's texts, as bits ---- */

typedef struct meaning {
    const tree_t *t;
    const char *text;
    uint32_t n;
    uint32_t ends[MAX_RULES][MOST_BYTES + 1];
} meaning_t;

static uint32_t ends_of(const meaning_t *m, uint32_t node, uint32_t at);

static uint32_t ends_of_all(const meaning_t *m, uint32_t node, uint32_t starts)
{
    uint32_t ends = 0;

    for (uint32_t at = 0; at <= m->n; at++) {
        if ((starts >> at & 1) != 0) {
            ends |= ends_of(m, node, at);
        }
    }
    return ends;
}

static uint32_t ends_of(const meaning_t *m, uint32_t node, uint32_t at)
{
    const node_t *const x = &m->t->nodes[node];
    const size_t n = strlen(x->text);
    uint32_t set = 1u << at;
    uint32_t ends = 0;

    switch (x->what) {
    case LIT:
        return ((m->n - at >= n) && (memcmp(m->text + at, x->text, n) == 0))
                   ? 1u << (at + n)
                   : 0;
    case RANGE:
        return (at < m->n) ? 1u << (at + 1) : 0;
    case SEQ:
        return ends_of_all(m, x->b, ends_of(m, x->a, at));
    case ALT:
        return ends_of(m, x->a, at) | ends_of(m, x->b, at);
    case REF:
        return m->ends[x->a][at];
    case REP:
        for (uint32_t k = 0; (k <= x->max) && (k <= x->min + m->n + 2); k++) {
            ends |= (k >= x->min) ? set : 0;
            set = ends_of_all(m, x->a, set);
        }
        return ends;
    case TEXT:
        for (uint32_t k = 0; at + k <= m->n; k++) {
            if ((k >= x->min) && (k <= x->max) &&
                bt_dfa_accepts(x->dfa, m->text + at, k)) {
                ends |= 1u << (at + k);
            }
        }
        return ends;
    case NONE:
        break;
    }
    return 0;
}

static bool tree_has(const tree_t *t, const char *text, uint32_t n)
{
    meaning_t m = {.t = t, .text = text, .n = n};
    bool changed = true;

    while (changed) {
        changed = false;
        for (uint32_t r = 0; r < t->n_rules; r++) {
            for (uint32_t at = 0; at <= n; at++) {
                const uint32_t ends = ends_of(&m, t->rules[r], at);

                changed = changed || (ends != m.ends[r][at]);
                m.ends[r][at] = ends;
            }
        }
    }
    return (m.ends[0][0] >> n & 1) != 0;
}

static bool text_of(uint32_t index, char *text, uint32_t *n_p)
{
    uint32_t n = 0;
    uint32_t of_length = 1;

    while (index >= of_length) {
        index -= of_length;
        of_length *= LETTERS;
        if (++n > MOST_BYTES) {
            return false;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        text[i] = (char)('a' + index % LETTERS);
        index /= LETTERS;
    }
    *n_p = n;
    return true;
}

static bt_grammar_t *loaded(const uint8_t *program, size_t bytes)
{
    const char *why = "";
    bt_grammar_t *g = NULL;

    if (bt_grammar_load(program, bytes, &why, &g) != BT_OK) {
        print_message("not loaded: %s\n", why);
    }
    assert_non_null(g);
    return g;
}

static void random_grammars_have_the_texts_of_their_expressions(void **state)
{
    const uint32_t n_rounds = bt_test_rounds(1500);
    uint32_t n_compiled = 0;
    uint32_t n_left = 0;

    (void)state;
    for (uint32_t round = 0; round < n_rounds; round++) {
        bt_grammar_compiler_t c;
        tree_t t;
        const uint8_t *program;
        size_t bytes;
        bt_status_t status;
        char text[MOST_BYTES + 1] = {0};
        uint32_t n;

        bt_grammar_compiler_init(&c);
        random_tree(&t, &c);
        status = bt_builder_finish(t.b, 0, &program, &bytes);
        if (status == BT_OK) {
            bt_grammar_t *g = loaded(program, bytes);
            bt_grammar_bounds_t *bounds;

            n_compiled++;
            for (uint32_t i = 0; text_of(i, text, &n); i++) {
                if (grammar_has_text(g, text, n) != tree_has(&t, text, n)) {
                    fail_msg("round %u: \"%.*s\": %d in the program", round,
                             (int)n, text, grammar_has_text(g, text, n));
                }
            }
            assert_int_equal(bt_grammar_bounds_create(g, &bounds), BT_OK);
            bt_grammar_bounds_destroy(bounds);
            bt_grammar_free(g);
        } else if (status == BT_ERR_INVALID_PARAM) { /* no text */
            for (uint32_t i = 0; text_of(i, text, &n); i++) {
                assert_false(tree_has(&t, text, n));
            }
        } else {
            assert_int_equal(status, BT_ERR_UNSUPPORTED);
            n_left++;
        }
        bt_grammar_compiler_fini(&c);
    }
    assert_true(n_compiled > n_rounds * 2 / 3);
    assert_in_range(n_left, 1, n_rounds / 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(random_grammars_have_the_texts_of_their_expressions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
