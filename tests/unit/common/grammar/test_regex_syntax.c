/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/regex_syntax.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/grammar/compile.h"
#include "common/grammar/grammar.h"
#include "tests/support/testsupport.h"

/* ---- refusals ---- */

/* A pattern that is refused, the byte that is named, and what is said. */
typedef struct refusal {
    const char *pattern;
    bt_status_t status;
    size_t at;
    const char *what;
} refusal_t;

static const refusal_t refusals[] = {
    {"\\bword", BT_ERR_UNSUPPORTED, 0, "word boundaries"},
    {"a\\Bb", BT_ERR_UNSUPPORTED, 1, "word boundaries"},
    {"ab(?=c)", BT_ERR_UNSUPPORTED, 2, "look-ahead"},
    {"(?!c)a", BT_ERR_UNSUPPORTED, 0, "look-ahead"},
    {"(?<=c)a", BT_ERR_UNSUPPORTED, 0, "look-behind"},
    {"(?<!c)a", BT_ERR_UNSUPPORTED, 0, "look-behind"},
    {"(a)\\1", BT_ERR_UNSUPPORTED, 3, "back references"},
    {"(?<n>a)\\k<n>", BT_ERR_UNSUPPORTED, 7, "back references"},
    {"(?P<n>a)(?P=n)", BT_ERR_UNSUPPORTED, 8, "back references"},
    {"(?>a)", BT_ERR_UNSUPPORTED, 0, "atomic"},
    {"a*+", BT_ERR_UNSUPPORTED, 2, "possessive"},
    {"a++", BT_ERR_UNSUPPORTED, 2, "possessive"},
    {"a?+", BT_ERR_UNSUPPORTED, 2, "possessive"},
    {"a{2}+", BT_ERR_UNSUPPORTED, 4, "possessive"},
    {"(?i)a", BT_ERR_UNSUPPORTED, 0, "flags"},
    {"(?i:a)", BT_ERR_UNSUPPORTED, 0, "flags"},
    {"(?-s)a", BT_ERR_UNSUPPORTED, 0, "flags"},
    {"(?#x)a", BT_ERR_UNSUPPORTED, 0, "comments"},
    {"(a)(?1)", BT_ERR_UNSUPPORTED, 3, "recursion"},
    {"(?R)", BT_ERR_UNSUPPORTED, 0, "recursion"},
    {"(a)(?(1)b)", BT_ERR_UNSUPPORTED, 3, "conditions"},
    {"(?|a)", BT_ERR_UNSUPPORTED, 0, "branch resets"},
    {"(*FAIL)", BT_ERR_UNSUPPORTED, 0, "verbs"},
    {"a\\Z", BT_ERR_UNSUPPORTED, 1, "\\Z means different things"},
    {"\\Ga", BT_ERR_UNSUPPORTED, 0, "\\G"},
    {"\\Qa\\E", BT_ERR_UNSUPPORTED, 0, "\\Q and \\E"},
    {"\\R", BT_ERR_UNSUPPORTED, 0, "this escape"},
    {"\\01", BT_ERR_UNSUPPORTED, 0, "octal"},
    {"[\\1]", BT_ERR_UNSUPPORTED, 1, "octal"},
    {"a{,3}", BT_ERR_UNSUPPORTED, 1, "{,n} means different things"},
    {"[[:alpha:]]", BT_ERR_UNSUPPORTED, 1, "[:alpha:]"},
    {"\\p{Emoji}", BT_ERR_UNSUPPORTED, 0, "\"Emoji\""},
    {"x\\p{Script_Extensions=Greek}", BT_ERR_UNSUPPORTED, 1,
     "\"Script_Extensions=Greek\""},
    {"\\i", BT_ERR_INVALID_PARAM, 0, "no meaning"},
    {"\\a", BT_ERR_INVALID_PARAM, 0, "no meaning"},
    {"a\\", BT_ERR_INVALID_PARAM, 1, "nothing follows"},
    {"[a\\", BT_ERR_INVALID_PARAM, 2, "nothing follows"},
    {"\\x4", BT_ERR_INVALID_PARAM, 0, "hexadecimal"},
    {"\\u{110000}", BT_ERR_INVALID_PARAM, 0, "hexadecimal"},
    {"\\u{}", BT_ERR_INVALID_PARAM, 0, "hexadecimal"},
    {"\\u{41", BT_ERR_INVALID_PARAM, 0, "hexadecimal"},
    {"\\U00110000", BT_ERR_INVALID_PARAM, 0, "hexadecimal"},
    {"\\c1", BT_ERR_INVALID_PARAM, 0, "no letter"},
    {"\\p{L", BT_ERR_INVALID_PARAM, 0, "no }"},
    {"\\p1", BT_ERR_INVALID_PARAM, 0, "no property"},
    {"(a", BT_ERR_INVALID_PARAM, 0, "( has no )"},
    {"b(", BT_ERR_INVALID_PARAM, 1, "( has no )"},
    {"a)b", BT_ERR_INVALID_PARAM, 1, ") has no ("},
    {"a[b", BT_ERR_INVALID_PARAM, 1, "[ has no ]"},
    {"[", BT_ERR_INVALID_PARAM, 0, "[ has no ]"},
    {"[a-", BT_ERR_INVALID_PARAM, 0, "[ has no ]"},
    {"[z-a]", BT_ERR_INVALID_PARAM, 1, "out of order"},
    {"[]a]", BT_ERR_INVALID_PARAM, 3, "[] and [^]"},
    {"[^]a]", BT_ERR_INVALID_PARAM, 4, "[] and [^]"},
    {"*a", BT_ERR_INVALID_PARAM, 0, "nothing to repeat"},
    {"a|+", BT_ERR_INVALID_PARAM, 2, "nothing to repeat"},
    {"(?)", BT_ERR_INVALID_PARAM, 0, "no known sign"},
    {"{2}", BT_ERR_INVALID_PARAM, 0, "nothing to repeat"},
    {"^*", BT_ERR_INVALID_PARAM, 1, "nothing to repeat"},
    {"a$?", BT_ERR_INVALID_PARAM, 2, "nothing to repeat"},
    {"a**", BT_ERR_INVALID_PARAM, 2, "follows a quantifier"},
    {"x{1000}{1000}", BT_ERR_INVALID_PARAM, 7, "follows a quantifier"},
    {"a{3,2}", BT_ERR_INVALID_PARAM, 1, "out of order"},
    {"(?<1a>b)", BT_ERR_INVALID_PARAM, 0, "name"},
    {"(?<a", BT_ERR_INVALID_PARAM, 0, "name"},
    {"a{4294967295}", BT_ERR_TOO_LARGE, 1, "4294967294"},
    {"a{99999999999999999999999}", BT_ERR_TOO_LARGE, 1, "4294967294"},
};

static void what_is_not_held_is_refused_by_name_and_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(refusals); i++) {
        const refusal_t *r = &refusals[i];
        bt_grammar_compiler_t c;
        char place[32];

        bt_grammar_compiler_init(&c);
        assert_null(
            bt_regex_dfa(&c, r->pattern, strlen(r->pattern), BT_REGEX_WHOLE));
        snprintf(place, sizeof(place), "byte %zu:", r->at);
        if ((c.status != r->status) || (strstr(c.why, place) == NULL) ||
            (strstr(c.why, r->what) == NULL)) {
            fail_msg("%s: %s: %s", r->pattern, bt_status_str(c.status), c.why);
        }
        bt_grammar_compiler_fini(&c);
    }
}

/* ---- hand-worked ---- */

static const bt_dfa_t *compile(bt_grammar_compiler_t *c, const char *pattern,
                               bt_regex_match_t match)
{
    const bt_dfa_t *dfa;

    bt_grammar_compiler_init(c);
    dfa = bt_regex_dfa(c, pattern, strlen(pattern), match);
    if (dfa == NULL) {
        fail_msg("%s: %s", pattern, c->why);
    }
    return dfa;
}

static void equal_patterns_are_equal_automata(void **state)
{
    static const char *const pairs[][2] = {
        {"((a*)*)*", "a*"},
        {"(a|a)*", "a*"},
        {"(a*)+", "a*"},
        {"a{0,2}", "|a|aa"},
        {"a{2,}", "aa+"},
        {"a{2,3}?", "aaa?"},
        {"(?:a|b)(?<n>c)(?P<m>d)", "[ab]cd"},
        {"[]", "[^\\0-\\u{10FFFF}]"},
        {"[^]", "[\\s\\S]"},
        {"[^\\S]", "\\s"},
        {"[^\\W_]", "[0-9A-Za-z]"},
        {"a{", "a\\{"},
        {"a{x}", "a\\{x\\}"},
        {"a{1", "a\\{1"},
        {"}]", "\\}\\]"},
        {"[\\w-.]", "[0-9A-Za-z_.\\-]"},
        {"[a-\\d]", "[0-9a\\-]"},
        {"[+--]", "[+,\\-]"},
        {"[-a]", "[a-]"},
        {"\\cA\\0\\t", "\\x01\\x00\\u0009"},
        {"\\ud83d\\ude00", "\\u{1F600}"},
        {"\\U0001F600", "\\u{1f600}"},
        {"\\x{41}", "A"},
        {"[\\b]", "\\x08"},
        {"\\Aab\\z", "^ab$"},
        {"a^b", "[]"},
        {"a$b", "[]"},
        {"(^)*a($)*", "a"},
        {"(^|x)a", "x?a"},
        {"^^a$$", "a"},
        {"$^", ""},
        {"(?:^a|b$)", "a|b"},
        {"a\\/b\\-c\\\"\\<", "a/b-c\"<"},
        {"[^\\ud800-\\udfff]", "[^]"},
        {"a{0}b", "b"},
        {"(^b){0}a", "a"},
        {"\\pL", "\\p{L}"},
        {"[\\p{L}--\\d]", "[\\p{L}\\-\\d]"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(pairs); i++) {
        bt_grammar_compiler_t a, b;

        if (!bt_dfa_equal(compile(&a, pairs[i][0], BT_REGEX_WHOLE),
                          compile(&b, pairs[i][1], BT_REGEX_WHOLE))) {
            fail_msg("%s, %s", pairs[i][0], pairs[i][1]);
        }
        bt_grammar_compiler_fini(&a);
        bt_grammar_compiler_fini(&b);
    }
}

/* A search is the whole match of the pattern between any texts. */
static void search_is_a_match_between_any_texts(void **state)
{
    static const char *const pairs[][2] = {
        {"ab", "[^]*ab[^]*"},
        {"^ab", "ab[^]*"},
        {"ab$", "[^]*ab"},
        {"^ab$", "ab"},
        {"^a|b$", "a[^]*|[^]*b"},
        {"", "[^]*"},
        {"^", "[^]*"},
        {"$", "[^]*"},
        {"^$", ""},
        {"$^", ""},
        {"a^b", "[]"},
        {"(^|,)a($|,)", "(a|[^]*,a)(,[^]*)?"},
        {"(^a|b)(c$|d)", "(a|[^]*b)(c|d[^]*)"},
        {"x*(^|y)z", "[^]*yz[^]*|z[^]*"},
        {"(a|$)*b", "[^]*b[^]*"},
        {"a(^)?b", "[^]*ab[^]*"},
        {"(^b)*c", "[^]*c[^]*"},
        {"(^(^a|b$)$)", "a|b"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(pairs); i++) {
        bt_grammar_compiler_t a, b;

        if (!bt_dfa_equal(compile(&a, pairs[i][0], BT_REGEX_SEARCH),
                          compile(&b, pairs[i][1], BT_REGEX_WHOLE))) {
            fail_msg("%s, %s", pairs[i][0], pairs[i][1]);
        }
        bt_grammar_compiler_fini(&a);
        bt_grammar_compiler_fini(&b);
    }
}

static void texts_are_valid_utf8(void **state)
{
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa = compile(&c, "", BT_REGEX_SEARCH);

    (void)state;
    assert_true(bt_dfa_equal(dfa, bt_dfa_any_text(&c)));
    bt_grammar_compiler_fini(&c);
    dfa = compile(&c, "[\\ud800-\\udfff]", BT_REGEX_WHOLE);
    assert_true(bt_dfa_is_empty(dfa));
    bt_grammar_compiler_fini(&c);
}

/* ---- programs ---- */

enum { MAX_DEPTH = 6, MAX_STACKS = 64 };

/* A stack of frames, the top one last. */
typedef struct stack {
    struct {
        uint32_t state, count;
    } frames[MAX_DEPTH];
    uint32_t depth;
} stack_t;

typedef struct stacks {
    stack_t list[MAX_STACKS];
    uint32_t n;
} stacks_t;

static void add_stack(stacks_t *stacks, stack_t stack)
{
    for (uint32_t i = stack.depth; i < MAX_DEPTH; i++) {
        stack.frames[i].state = stack.frames[i].count = 0;
    }
    for (uint32_t i = 0; i < stacks->n; i++) {
        if (memcmp(&stacks->list[i], &stack, sizeof(stack)) == 0) {
            return;
        }
    }
    if (stacks->n == MAX_STACKS) {
        fail_msg("more than %d stacks", MAX_STACKS);
    }
    stacks->list[stacks->n++] = stack;
}

/* True when the top frame may end its rule. */
static bool may_end(const bt_grammar_t *g, const stack_t *stack)
{
    const uint32_t state = stack->frames[stack->depth - 1].state;
    const uint32_t count = stack->frames[stack->depth - 1].count;
    const bt_grammar_rule_t *rule = &g->rules[g->states[state].rule];

    return g->states[state].accepts && (count >= rule->min) &&
           (count <= rule->max);
}

/* Moves the top frame of a stack along an edge. False: it may not count. */
static bool take_edge(const bt_grammar_t *g, stack_t *stack,
                      const bt_grammar_edge_t *edge)
{
    uint32_t *state = &stack->frames[stack->depth - 1].state;
    uint32_t *count = &stack->frames[stack->depth - 1].count;

    if (edge->counts && (*count == g->rules[g->states[*state].rule].max)) {
        return false;
    }
    *count += edge->counts;
    *state = edge->to;
    return true;
}

/* Adds the stacks that calls and ends of rules lead to. */
static void add_calls_and_ends(const bt_grammar_t *g, stacks_t *stacks)
{
    for (uint32_t i = 0; i < stacks->n; i++) {
        const stack_t stack = stacks->list[i];
        const bt_grammar_state_t *state =
            &g->states[stack.frames[stack.depth - 1].state];

        for (uint32_t e = state->n_byte_edges; e < state->n_edges; e++) {
            const bt_grammar_edge_t *edge = &g->edges[state->first_edge + e];
            stack_t called = stack;

            assert_int_equal(edge->kind, BT_GRAMMAR_CALLS);
            assert_true(stack.depth < MAX_DEPTH);
            if (take_edge(g, &called, edge)) {
                called.frames[called.depth].state = g->rules[edge->arg].start;
                called.frames[called.depth++].count = 0;
                add_stack(stacks, called);
            }
        }
        if ((stack.depth > 1) && may_end(g, &stack)) {
            stack_t ended = stack;

            ended.depth--;
            add_stack(stacks, ended);
        }
    }
}

/* Whether a program has a text.
 * @param [out] n_p  Most stacks at a time. */
static bool program_has(const bt_grammar_t *g, const char *text, size_t n,
                        uint32_t *n_p)
{
    static stacks_t now, next;

    now.n = 0;
    add_stack(&now, (stack_t){.depth = 1, .frames = {{g->rules[0].start, 0}}});
    add_calls_and_ends(g, &now);
    for (size_t at = 0; at < n; at++) {
        next.n = 0;
        for (uint32_t i = 0; i < now.n; i++) {
            stack_t stack = now.list[i];
            const bt_grammar_edge_t *edge = bt_grammar_read(
                g, stack.frames[stack.depth - 1].state, (uint8_t)text[at]);

            if ((edge != NULL) && take_edge(g, &stack, edge)) {
                add_stack(&next, stack);
            }
        }
        add_calls_and_ends(g, &next);
        now = next;
        *n_p = (now.n > *n_p) ? now.n : *n_p;
    }
    for (uint32_t i = 0; i < now.n; i++) {
        if ((now.list[i].depth == 1) && may_end(g, &now.list[i])) {
            return true;
        }
    }
    return false;
}

/* Pattern that becomes a program of up to some bytes, and texts: parts of
 * "letters and how often", as "a 3 bc 2" for aaabcbc. */
typedef struct program_case {
    const char *pattern;
    size_t max_bytes;
    const char *texts[7], *others[7];
} program_case_t;

static const program_case_t program_cases[] = {
    {"abc|d*", 60, {"abc 1", "", "d 40"}, {"abc 2", "a 1", "d 1 a 1"}},
    {"[a-z]{1,100000}",
     60,
     {"a 1", "qz 25000", "a 100000"},
     {"", "A 1", "a 100001", "a 3 1 1"}},
    {"[a-z]{1000}", 60, {"a 1000"}, {"", "a 999", "a 1001", "a 500"}},
    {"[a-z]{700,}",
     60,
     {"a 700", "a 701", "a 5000"},
     {"", "a 699", "a 700 9 1"}},
    {"'[^'\\\\]{0,5000}'",
     120,
     {"' 2", "' 1 x 5000 ' 1", "' 1 \xC3\xA9 5000 ' 1"},
     {"' 1", "' 1 x 5001 ' 1", "' 1 \xC3\xA9 5001 ' 1", "' 1 \xC3 1 ' 1"}},
    {"\\p{L}{1,64}",
     6000,
     {"a 1", "\xC3\xA9 64", "\xE4\xB8\xAD 63 a 1"},
     {"", "a 65", "1 1", "\xE4\xB8\xAD 65", "\xE4\xB8 1"}},
    {"(a{1,300},)*b{0,300}c?",
     150,
     {"", "a 300 , 1", "a 1 , 1 a 300 , 1 b 300 c 1", "c 1", "b 300"},
     {"a 1", "a 301 , 1", "b 301", "b 1 a 1", "a 5 , 2", "c 2"}},
    {"(x[0-9]{2}){200,300}",
     150,
     {"x12 200", "x12 300", "x12 250"},
     {"", "x12 199", "x12 301", "x12 200 x1 1", "x1 250"}},
    {"[a-c]{400}|[d-f]{1,400}|gh",
     150,
     {"a 400", "d 1", "f 400", "gh 1"},
     {"", "a 399", "f 401", "g 1", "d 1 a 1"}},
    /* One text has several counts: the whole is one automaton. */
    {"[a-z]{1,300}[a-z]{1,300}!",
     20000,
     {"a 2 ! 1", "z 300 a 1 ! 1", "z 300 a 300 ! 1"},
     {"a 1 ! 1", "a 2", "a 601 ! 1", "a 600 ! 2"}},
    {"(a|ab){1,200}(c|bc){0,200}",
     20000,
     {"a 200", "ab 200 bc 200", "a 1 bc 1", "ab 1"},
     {"", "ab 201", "c 1", "a 1 bc 201", "a 200 b 2"}},
    {"(^|x)[a-z]{0,299}$",
     20000,
     {"", "a 299", "x 1 a 299"},
     {"a 300", "x 1 a 300", "A 1"}},
};

/* Writes a text by its description. @return bytes */
static size_t write_text(const char *description, char *text, size_t cap)
{
    char part[16];
    size_t n = 0;
    int count, used;

    while (sscanf(description, "%15s %d%n", part, &count, &used) == 2) {
        for (int i = 0; i < count; i++) {
            assert_true(n + strlen(part) < cap);
            memcpy(text + n, part, strlen(part));
            n += strlen(part);
        }
        description += used;
    }
    return n;
}

static void programs_have_their_texts_and_no_others(void **state)
{
    static char text[200000];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(program_cases); i++) {
        const program_case_t *p = &program_cases[i];
        const bt_grammar_source_t source = {.kind = BT_GRAMMAR_REGEX,
                                            .text = p->pattern,
                                            .bytes = strlen(p->pattern)};
        char why[BT_GRAMMAR_WHY_BYTES] = "";
        const char *fault = "";
        bt_grammar_t *g = NULL;
        uint8_t *program = NULL;
        size_t bytes = 0;
        uint32_t n_stacks = 0;

        if (bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)) !=
            BT_OK) {
            fail_msg("%s: %s", p->pattern, why);
        }
        if (bytes > p->max_bytes) {
            fail_msg("%s: %zu bytes", p->pattern, bytes);
        }
        assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
        for (size_t j = 0; j < BT_ARRAY_LEN(p->texts); j++) {
            const char *in = p->texts[j], *out = p->others[j];

            if ((in != NULL) &&
                !program_has(g, text, write_text(in, text, sizeof(text)),
                             &n_stacks)) {
                fail_msg("%s: \"%s\" is missing", p->pattern, in);
            }
            if ((out != NULL) &&
                program_has(g, text, write_text(out, text, sizeof(text)),
                            &n_stacks)) {
                fail_msg("%s: \"%s\" is too much", p->pattern, out);
            }
        }
        /* A frame for the repetition, one for its caller, and those that calls
         * and ends lead to. */
        assert_true(n_stacks <= 8);
        bt_grammar_free(g);
        bt_free(program);
    }
}

static void pattern_without_a_text_is_refused(void **state)
{
    static const char *const patterns[] = {"[]", "a^b", "a$b{0,1000}[]"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(patterns); i++) {
        const bt_grammar_source_t source = {.kind = BT_GRAMMAR_REGEX,
                                            .text = patterns[i],
                                            .bytes = strlen(patterns[i])};
        char why[BT_GRAMMAR_WHY_BYTES] = "";
        uint8_t *program = NULL;
        size_t bytes = 0;

        assert_int_equal(
            bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)),
            BT_ERR_INVALID_PARAM);
        assert_non_null(strstr(why, "no text"));
    }
}

static void anchor_within_large_repetitions_is_refused(void **state)
{
    static const char pattern[] = "([a-z]{1,50000}(^|,)x){1,100}";
    const bt_grammar_source_t source = {.kind = BT_GRAMMAR_REGEX,
                                        .text = pattern,
                                        .bytes = sizeof(pattern) - 1};
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    uint8_t *program = NULL;
    size_t bytes = 0;

    (void)state;
    assert_int_equal(
        bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)),
        BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "^ and $ inside"));
}

/* ---- abuse ---- */

static void assert_too_large(const char *pattern, size_t n)
{
    bt_grammar_compiler_t c;

    bt_grammar_compiler_init(&c);
    assert_null(bt_regex_dfa(&c, pattern, n, BT_REGEX_WHOLE));
    assert_int_equal(c.status, BT_ERR_TOO_LARGE);
    bt_grammar_compiler_fini(&c);
}

static void hostile_patterns_are_too_large(void **state)
{
    static char parentheses[60000];
    static const char *const patterns[] = {
        "(a|b)*a(a|b){20}",
        "(x{1000}){1000}",
        "(((x{90}){90}){90}){90}",
        "x{4000000000}",
        "((x{0,1000}y){0,1000})*",
        "(\\p{L}{1,300}\\p{Lu}){1,300}",
        "([a-z]*[0-9]){1,50000}",
        ".*a.{25}",
        "(((x{9999}){9999}){9999}){0}(x{99999}){99999}",
    };

    (void)state;
    memset(parentheses, '(', sizeof(parentheses));
    assert_too_large(parentheses, sizeof(parentheses));
    assert_too_large(parentheses, BT_GRAMMAR_REGEX_BYTES);
    for (size_t i = 0; i < BT_ARRAY_LEN(patterns); i++) {
        assert_too_large(patterns[i], strlen(patterns[i]));
    }
}

static void nesting_up_to_the_limit_is_held(void **state)
{
    char pattern[603];
    bt_grammar_compiler_t c;

    (void)state;
    memset(pattern, '(', 200);
    pattern[200] = 'a';
    for (size_t i = 0; i < 200; i++) {
        memcpy(pattern + 201 + 2 * i, ")*", 2);
    }
    pattern[601] = '\0';
    assert_true(bt_dfa_accepts(compile(&c, pattern, BT_REGEX_SEARCH), "aa", 2));
    bt_grammar_compiler_fini(&c);
}

static void pattern_that_is_not_utf8_is_invalid(void **state)
{
    bt_grammar_compiler_t c;

    (void)state;
    bt_grammar_compiler_init(&c);
    assert_null(bt_regex_dfa(&c, "a\xff", 2, BT_REGEX_WHOLE));
    assert_int_equal(c.status, BT_ERR_INVALID_PARAM);
    bt_grammar_compiler_fini(&c);
}

static void every_failed_allocation_is_told(void **state)
{
    static const char pattern[] = "^(\\p{Lu}[a-z]{1,20}|x(^|,)y)+$|.{3}";
    int n = 1;
    bool failed = true;

    (void)state;
    while (failed) {
        bt_grammar_compiler_t c;
        const bt_dfa_t *dfa;

        bt_grammar_compiler_init(&c);
        bt_alloc_fail_at(n++);
        dfa = bt_regex_dfa(&c, pattern, sizeof(pattern) - 1, BT_REGEX_SEARCH);
        failed = bt_alloc_fail_at(0) == 0;
        assert_int_equal(c.status, failed ? BT_ERR_NO_MEMORY : BT_OK);
        assert_true((dfa == NULL) == failed);
        bt_grammar_compiler_fini(&c);
    }
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(what_is_not_held_is_refused_by_name_and_place),
        BT_TEST(equal_patterns_are_equal_automata),
        BT_TEST(search_is_a_match_between_any_texts),
        BT_TEST(texts_are_valid_utf8),
        BT_TEST(programs_have_their_texts_and_no_others),
        BT_TEST(pattern_without_a_text_is_refused),
        BT_TEST(anchor_within_large_repetitions_is_refused),
        BT_TEST(hostile_patterns_are_too_large),
        BT_TEST(nesting_up_to_the_limit_is_held),
        BT_TEST(pattern_that_is_not_utf8_is_invalid),
        BT_TEST(every_failed_allocation_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
