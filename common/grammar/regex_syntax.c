/* SPDX-License-Identifier: Apache-2.0 */
/* Automata and expressions of parsed patterns. */
#include "common/grammar/regex_syntax.h"

#include "common/grammar/regex_syntax_priv.h"

#define NO_LIMIT BT_REPEAT_NO_LIMIT

/* Symbols that stand for ^ and $ until their places are checked. */
#define BEGIN_MARK 256u
#define END_MARK   257u

/* Most states of a pattern that is written out, before they are minimized. */
#define MAX_STATES 100000u
/* Most states with which a pattern that has large repetitions is an automaton,
 * where a counter would be ambiguous. */
#define MAX_COUNTED_STATES 8192u

/* ---- parts ---- */

static void add_pattern(bt_nfa_t *nfa, bt_grammar_compiler_t *c,
                        bt_pattern_t *pattern, uint32_t from, uint32_t to);

/* Returns the automaton of one character of a set. */
static const bt_dfa_t *dfa_of_set(bt_grammar_compiler_t *c,
                                  const bt_code_set_t *set)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t start = bt_nfa_state(nfa), end = bt_nfa_state(nfa);

    for (uint32_t i = 0; i < set->n; i++) {
        bt_nfa_code_points(nfa, start, set->ranges[i].lo, set->ranges[i].hi,
                           end);
    }
    return bt_nfa_to_dfa(nfa, start, end);
}

static void add_set(bt_nfa_t *nfa, bt_grammar_compiler_t *c,
                    bt_pattern_t *pattern, uint32_t from, uint32_t to)
{
    const bt_code_set_t *set = &pattern->set;
    const bool is_short =
        (set->n == 0) || (set->ranges[set->n - 1].hi < 0x80) ||
        ((set->n == 1) && (set->ranges[0].lo == set->ranges[0].hi));

    if (is_short) {
        for (uint32_t i = 0; i < set->n; i++) {
            bt_nfa_code_points(nfa, from, set->ranges[i].lo, set->ranges[i].hi,
                               to);
        }
        return;
    }
    if (pattern->dfa == NULL) {
        pattern->dfa = dfa_of_set(c, set);
    }
    if (pattern->dfa != NULL) {
        bt_nfa_include(nfa, from, pattern->dfa, to);
    }
}

static void add_repeat(bt_nfa_t *nfa, bt_grammar_compiler_t *c,
                       bt_pattern_t *pattern, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; (i < pattern->min) && bt_grammar_ok(c); i++) {
        const uint32_t next = bt_nfa_state(nfa);

        add_pattern(nfa, c, pattern->first, from, next);
        from = next;
    }
    if (pattern->max == NO_LIMIT) {
        const uint32_t loop = bt_nfa_state(nfa);

        bt_nfa_epsilon(nfa, from, loop);
        add_pattern(nfa, c, pattern->first, loop, loop);
        bt_nfa_epsilon(nfa, loop, to);
        return;
    }
    for (uint32_t i = pattern->min; (i < pattern->max) && bt_grammar_ok(c);
         i++) {
        const uint32_t next = bt_nfa_state(nfa);

        bt_nfa_epsilon(nfa, from, to);
        add_pattern(nfa, c, pattern->first, from, next);
        from = next;
    }
    bt_nfa_epsilon(nfa, from, to);
}

/* Adds the texts of a pattern between two states. Recursion: the parser's
 * limit of parentheses. */
static void add_pattern(bt_nfa_t *nfa, bt_grammar_compiler_t *c,
                        bt_pattern_t *pattern, uint32_t from, uint32_t to)
{
    if (!bt_grammar_ok(c)) {
        return;
    }
    switch (pattern->kind) {
    case BT_PATTERN_SET:
        add_set(nfa, c, pattern, from, to);
        break;
    case BT_PATTERN_BEGIN:
        bt_nfa_edge(nfa, from, BEGIN_MARK, BEGIN_MARK, to);
        break;
    case BT_PATTERN_END:
        bt_nfa_edge(nfa, from, END_MARK, END_MARK, to);
        break;
    case BT_PATTERN_SEQ:
        for (bt_pattern_t *part = pattern->first; part != NULL;
             part = part->next) {
            const uint32_t next = bt_nfa_state(nfa);

            add_pattern(nfa, c, part, from, next);
            from = next;
        }
        bt_nfa_epsilon(nfa, from, to);
        break;
    case BT_PATTERN_ALT:
        for (bt_pattern_t *part = pattern->first; part != NULL;
             part = part->next) {
            add_pattern(nfa, c, part, from, to);
        }
        break;
    case BT_PATTERN_REPEAT:
        add_repeat(nfa, c, pattern, from, to);
        break;
    }
}

/* ---- ends of the text ---- */

/* Takes the ^ that a branch begins with and the $ it ends with off it. */
static void strip_anchors(bt_pattern_t *branch)
{
    bt_pattern_t *last = NULL;

    if ((branch->kind == BT_PATTERN_BEGIN) ||
        (branch->kind == BT_PATTERN_END)) {
        branch->at_begin = branch->kind == BT_PATTERN_BEGIN;
        branch->at_end = !branch->at_begin;
        branch->kind = BT_PATTERN_SEQ;
        branch->has_anchor = false;
    }
    if (branch->kind != BT_PATTERN_SEQ) {
        return;
    }
    while ((branch->first != NULL) &&
           (branch->first->kind == BT_PATTERN_BEGIN)) {
        branch->first = branch->first->next;
        branch->at_begin = true;
    }
    branch->has_anchor = false;
    for (bt_pattern_t *part = branch->first; part != NULL; part = part->next) {
        last = (part->kind == BT_PATTERN_END) ? last : part;
    }
    if (last == NULL) {
        branch->at_end = branch->at_end || (branch->first != NULL);
        branch->first = NULL;
    } else {
        branch->at_end = last->next != NULL;
        last->next = NULL;
    }
    for (bt_pattern_t *part = branch->first; part != NULL; part = part->next) {
        branch->has_anchor = branch->has_anchor || part->has_anchor;
    }
}

/* Reads a pattern, and takes the anchors off the ends of its branches. NULL:
 * the compilation has failed. */
static bt_pattern_t *parse(bt_grammar_compiler_t *c, const char *pattern,
                           size_t n, unsigned flags)
{
    bt_pattern_t *root = bt_pattern_parse(c, pattern, n, flags);

    if (root == NULL) {
        return NULL;
    }
    if (root->kind != BT_PATTERN_ALT) {
        strip_anchors(root);
        return root;
    }
    root->has_anchor = false;
    for (bt_pattern_t *part = root->first; part != NULL; part = part->next) {
        strip_anchors(part);
        root->has_anchor = root->has_anchor || part->has_anchor;
    }
    return root;
}

/* Returns the automaton of the symbols that a text with marks may have: marks
 * of the beginning before the first byte, marks of the end behind the last one,
 * and both in any order where there is no byte. */
static const bt_dfa_t *dfa_of_marks(bt_grammar_compiler_t *c)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t begin = bt_nfa_state(nfa), bytes = bt_nfa_state(nfa);
    const uint32_t behind = bt_nfa_state(nfa), empty = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, begin, BEGIN_MARK, BEGIN_MARK, begin);
    bt_nfa_edge(nfa, begin, 0, 255, bytes);
    bt_nfa_edge(nfa, bytes, 0, 255, bytes);
    bt_nfa_edge(nfa, bytes, END_MARK, END_MARK, behind);
    bt_nfa_edge(nfa, behind, END_MARK, END_MARK, behind);
    bt_nfa_epsilon(nfa, begin, empty);
    bt_nfa_edge(nfa, empty, BEGIN_MARK, END_MARK, empty);
    bt_nfa_epsilon(nfa, bytes, end);
    bt_nfa_epsilon(nfa, behind, end);
    bt_nfa_epsilon(nfa, empty, end);
    return bt_nfa_to_dfa(nfa, begin, end);
}

/* Returns the texts of an automaton whose marks are at their places, without
 * the marks. */
static const bt_dfa_t *without_marks(bt_grammar_compiler_t *c,
                                     const bt_dfa_t *marked)
{
    const bt_dfa_t *dfa =
        bt_dfa_combine(c, BT_DFA_AND, marked, dfa_of_marks(c));
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t end = bt_nfa_state(nfa);

    if ((dfa == NULL) || (nfa == NULL)) {
        return NULL;
    }
    if (bt_dfa_is_empty(dfa)) {
        return dfa;
    }
    for (uint32_t s = 0; s < dfa->n_states; s++) {
        bt_nfa_state(nfa); /* s + 1 */
    }
    for (uint32_t s = 0; (s < dfa->n_states) && bt_grammar_ok(c); s++) {
        for (uint32_t e = dfa->first[s]; e < dfa->first[s + 1]; e++) {
            const bt_dfa_edge_t *edge = &dfa->edges[e];

            if (edge->lo < BEGIN_MARK) {
                bt_nfa_edge(nfa, s + 1, edge->lo,
                            (edge->hi < BEGIN_MARK) ? edge->hi : BEGIN_MARK - 1,
                            edge->to + 1);
            }
            if (edge->hi >= BEGIN_MARK) {
                bt_nfa_epsilon(nfa, s + 1, edge->to + 1);
            }
        }
        if (dfa->accepts[s]) {
            bt_nfa_epsilon(nfa, s + 1, end);
        }
    }
    return bt_nfa_to_dfa(nfa, 1, end);
}

/* Returns a new state in which any text is read. */
static uint32_t any_text(bt_nfa_t *nfa)
{
    const uint32_t state = bt_nfa_state(nfa);

    bt_nfa_code_points(nfa, state, 0, BT_CODE_POINT_MAX, state);
    return state;
}

/* Returns the automaton of the texts that match. */
static const bt_dfa_t *dfa_of(bt_grammar_compiler_t *c, bt_pattern_t *root,
                              bt_regex_match_t match)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t start = bt_nfa_state(nfa), end = bt_nfa_state(nfa);
    uint32_t before = start, behind = end;
    const bool is_alt = root->kind == BT_PATTERN_ALT;
    const bt_dfa_t *dfa;

    if (root->size > MAX_STATES) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE,
                        "the regex repeats too much: written out it has over "
                        "%u states",
                        MAX_STATES);
        return NULL;
    }
    if (match == BT_REGEX_SEARCH) {
        before = any_text(nfa);
        behind = any_text(nfa);
        bt_nfa_epsilon(nfa, start, before);
        bt_nfa_epsilon(nfa, behind, end);
    }
    for (bt_pattern_t *part = is_alt ? root->first : root; part != NULL;
         part = is_alt ? part->next : NULL) {
        add_pattern(nfa, c, part, part->at_begin ? start : before,
                    part->at_end ? end : behind);
    }
    dfa = bt_nfa_to_dfa(nfa, start, end);
    return (root->has_anchor && (dfa != NULL)) ? without_marks(c, dfa) : dfa;
}

const bt_dfa_t *bt_regex_dfa(bt_grammar_compiler_t *c, const char *pattern,
                             size_t n, bt_regex_match_t match)
{
    bt_pattern_t *root = parse(c, pattern, n, 0);

    return (root != NULL) ? dfa_of(c, root, match) : NULL;
}

/* ---- large repetitions ---- */

/* Adds the characters that texts of a pattern begin with. True: it has the
 * empty text. */
static bool add_first(bt_grammar_compiler_t *c, bt_code_set_t *set,
                      const bt_pattern_t *pattern)
{
    bool is_empty;

    switch (pattern->kind) {
    case BT_PATTERN_SET:
        bt_code_set_add_all(c, set, &pattern->set);
        return false;
    case BT_PATTERN_SEQ:
        for (const bt_pattern_t *part = pattern->first; part != NULL;
             part = part->next) {
            if (!add_first(c, set, part)) {
                return false;
            }
        }
        return true;
    case BT_PATTERN_ALT:
        is_empty = false;
        for (const bt_pattern_t *part = pattern->first; part != NULL;
             part = part->next) {
            is_empty = add_first(c, set, part) || is_empty;
        }
        return is_empty;
    case BT_PATTERN_REPEAT:
        return (pattern->max == 0) || add_first(c, set, pattern->first) ||
               (pattern->min == 0);
    case BT_PATTERN_BEGIN:
    case BT_PATTERN_END:
    default:
        return true;
    }
}

static bool reads_one_way(bt_grammar_compiler_t *c, const bt_pattern_t *pattern,
                          const bt_code_set_t *next);

/* Reads one way: no two alternatives begin alike. */
static bool alternatives_differ(bt_grammar_compiler_t *c,
                                const bt_pattern_t *pattern)
{
    bt_code_set_t firsts = {0};

    for (const bt_pattern_t *part = pattern->first; part != NULL;
         part = part->next) {
        bt_code_set_t first = {0};

        add_first(c, &first, part);
        bt_code_set_normalize(c, &first);
        if (bt_code_set_intersects(&first, &firsts)) {
            return false;
        }
        bt_code_set_add_all(c, &firsts, &first);
        bt_code_set_normalize(c, &firsts);
    }
    return true;
}

/* Reads one way: the next character tells another round from the end. */
static bool rounds_are_certain(bt_grammar_compiler_t *c,
                               const bt_pattern_t *pattern,
                               const bt_code_set_t *next)
{
    bt_code_set_t follows = {0};

    if (pattern->max == 0) {
        return true;
    }
    add_first(c, &follows, pattern->first);
    bt_code_set_normalize(c, &follows);
    if ((pattern->min != pattern->max) &&
        bt_code_set_intersects(&follows, next)) {
        return false;
    }
    bt_code_set_add_all(c, &follows, next);
    bt_code_set_normalize(c, &follows);
    return reads_one_way(c, pattern->first, &follows);
}

/* True when at each place of a text, its next character says which part of the
 * pattern reads it. Then there is one count of each repetition, and a counter
 * is as good as an automaton. False says nothing.
 * @param [in] next  Characters that may follow the pattern. */
static bool reads_one_way(bt_grammar_compiler_t *c, const bt_pattern_t *pattern,
                          const bt_code_set_t *next)
{
    if (pattern->kind == BT_PATTERN_REPEAT) {
        return rounds_are_certain(c, pattern, next);
    }
    if ((pattern->kind == BT_PATTERN_ALT) && !alternatives_differ(c, pattern)) {
        return false;
    }
    for (const bt_pattern_t *part = pattern->first; part != NULL;
         part = part->next) {
        const bt_pattern_t *other =
            (pattern->kind == BT_PATTERN_SEQ) ? part->next : NULL;
        bt_code_set_t follows = {0};

        while ((other != NULL) && add_first(c, &follows, other)) {
            other = other->next;
        }
        if (other == NULL) {
            bt_code_set_add_all(c, &follows, next);
        }
        bt_code_set_normalize(c, &follows);
        if (!bt_grammar_ok(c) || !reads_one_way(c, part, &follows)) {
            return false;
        }
    }
    return true;
}

static void forget_sets(bt_pattern_t *pattern)
{
    pattern->dfa = NULL;
    for (bt_pattern_t *part = pattern->first; part != NULL; part = part->next) {
        forget_sets(part);
    }
}

/* Returns the automaton of a pattern with large repetitions, NULL where it
 * takes over half of the budget or too many states, or where the compilation
 * has failed. */
static const bt_dfa_t *try_dfa(bt_grammar_compiler_t *c, bt_pattern_t *root)
{
    const uint64_t kept = c->fuel / 2;
    bt_grammar_compiler_t scratch;
    const bt_dfa_t *dfa;

    if (root->size > MAX_STATES) {
        return NULL;
    }
    bt_grammar_scratch_init(&scratch, c);
    scratch.fuel -= kept;
    dfa = dfa_of(&scratch, root, BT_REGEX_WHOLE);
    forget_sets(root); /* they are in the scratch compiler */
    if ((dfa != NULL) && (dfa->n_states <= MAX_COUNTED_STATES)) {
        dfa = bt_dfa_copy(c, dfa);
    } else {
        dfa = NULL;
    }
    scratch.fuel += kept;
    if (scratch.status == BT_ERR_TOO_LARGE) {
        scratch.status = BT_OK;
    }
    bt_grammar_scratch_fini(&scratch, c);
    return dfa;
}

/* ---- expressions ---- */

/* Returns an expression of the parts from `part` on that have no large
 * repetition: of a sequence those up to the next one that has, of alternatives
 * all.
 * @param [out] next_p  Part behind them. */
static const bt_expr_t *expr_of_small(bt_grammar_builder_t *b,
                                      bt_grammar_compiler_t *c,
                                      bt_pattern_kind_t kind,
                                      bt_pattern_t *part, bt_pattern_t **next_p)
{
    bt_nfa_t *nfa = bt_nfa_create(c);
    const uint32_t start = bt_nfa_state(nfa);
    uint32_t end = (kind == BT_PATTERN_ALT) ? bt_nfa_state(nfa) : start;

    for (; (part != NULL) && bt_grammar_ok(c); part = part->next) {
        if (kind == BT_PATTERN_ALT) {
            if (!part->is_large) {
                add_pattern(nfa, c, part, start, end);
            }
        } else if (part->is_large) {
            break;
        } else {
            const uint32_t from = end;

            end = bt_nfa_state(nfa);
            add_pattern(nfa, c, part, from, end);
        }
    }
    *next_p = part;
    return bt_expr_dfa(b, bt_nfa_to_dfa(nfa, start, end));
}

/* Returns an expression in which large repetitions are counted. Recursion: the
 * parser's limit of parentheses. */
static const bt_expr_t *expr_of(bt_grammar_builder_t *b,
                                bt_grammar_compiler_t *c, bt_pattern_t *pattern)
{
    const bt_expr_t **parts;
    uint32_t n = 0, n_parts = 1;
    bool has_small = false;
    bt_pattern_t *next;

    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    if (!pattern->is_large) {
        pattern->next = NULL;
        return expr_of_small(b, c, BT_PATTERN_SEQ, pattern, &next);
    }
    if (pattern->kind == BT_PATTERN_REPEAT) {
        return bt_expr_repeat(b, expr_of(b, c, pattern->first), pattern->min,
                              pattern->max);
    }
    for (bt_pattern_t *part = pattern->first; part != NULL; part = part->next) {
        n_parts++;
        has_small = has_small || !part->is_large;
    }
    parts = bt_grammar_alloc(c, n_parts, sizeof(*parts));
    if (parts == NULL) {
        return NULL;
    }
    if ((pattern->kind == BT_PATTERN_ALT) && has_small) {
        parts[n++] = expr_of_small(b, c, BT_PATTERN_ALT, pattern->first, &next);
    }
    for (bt_pattern_t *part = pattern->first; part != NULL; part = next) {
        next = part->next;
        if (part->is_large) {
            parts[n++] = expr_of(b, c, part);
        } else if (pattern->kind == BT_PATTERN_SEQ) {
            parts[n++] = expr_of_small(b, c, BT_PATTERN_SEQ, part, &next);
        }
    }
    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    return (pattern->kind == BT_PATTERN_ALT) ? bt_expr_alt(b, parts, n)
                                             : bt_expr_seq(b, parts, n);
}

const bt_expr_t *bt_regex_expr(bt_grammar_builder_t *b,
                               bt_grammar_compiler_t *c, const char *pattern,
                               size_t n)
{
    return bt_regex_expr_flags(b, c, pattern, n, 0);
}

const bt_expr_t *bt_regex_expr_flags(bt_grammar_builder_t *b,
                                     bt_grammar_compiler_t *c,
                                     const char *pattern, size_t n,
                                     unsigned flags)
{
    const bt_code_set_t nothing = {0};
    bt_pattern_t *root = parse(c, pattern, n, flags);
    const bt_dfa_t *dfa;

    if (root == NULL) {
        return NULL;
    }
    if (!root->is_large) {
        return bt_expr_dfa(b, dfa_of(c, root, BT_REGEX_WHOLE));
    }
    if (root->has_anchor || !reads_one_way(c, root, &nothing)) {
        dfa = try_dfa(c, root);
        if (dfa != NULL) {
            return bt_expr_dfa(b, dfa);
        }
    }
    if (root->has_anchor) {
        bt_grammar_fail(c, BT_ERR_UNSUPPORTED,
                        "^ and $ inside of a regex with large repetitions are "
                        "not supported, only at its ends");
    }
    return expr_of(b, c, root);
}
