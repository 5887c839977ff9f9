/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/ebnf.h"

#include "common/base/text.h"
#include "common/grammar/code_set.h"
#include "common/grammar/rule_names.h"

#define MAX_NESTING 200u /* of parentheses */
#define MAX_NAME    256u

typedef struct parser {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c;
    const char *text;
    size_t n, at;
    uint32_t line;
    uint32_t depth;
    bt_rule_names_t names;
} parser_t;

static void fail(parser_t *p, const char *what)
{
    bt_grammar_fail(p->c, BT_ERR_INVALID_PARAM, "line %u: %s", p->line, what);
}

static void refuse(parser_t *p, const char *what)
{
    bt_grammar_fail(p->c, BT_ERR_UNSUPPORTED, "line %u: %s not supported",
                    p->line, what);
}

/* Returns the byte `ahead` of the place; 0: the end, or a failure. */
static char peek(const parser_t *p, size_t ahead)
{
    return (bt_grammar_ok(p->c) && (p->at + ahead < p->n))
               ? p->text[p->at + ahead]
               : '\0';
}

static void skip_space(parser_t *p)
{
    for (;;) {
        const char byte = peek(p, 0);

        if (byte == '#') {
            while ((peek(p, 0) != '\n') && (peek(p, 0) != '\0')) {
                p->at++;
            }
        } else if ((byte == ' ') || (byte == '\t') || (byte == '\r') ||
                   (byte == '\n')) {
            p->line += (byte == '\n') ? 1 : 0;
            p->at++;
        } else {
            return;
        }
    }
}

/* ---- names ---- */

static bool is_name_byte(char byte)
{
    return ((byte >= 'a') && (byte <= 'z')) ||
           ((byte >= 'A') && (byte <= 'Z')) ||
           ((byte >= '0') && (byte <= '9')) || (byte == '-') || (byte == '_');
}

/* Returns the bytes of a name that begins here. */
static uint32_t name_length(const parser_t *p)
{
    uint32_t n = 0;

    while ((n <= MAX_NAME) && is_name_byte(peek(p, n))) {
        n++;
    }
    return n;
}

/* True when `name ::=` stands here: the next rule. */
static bool is_definition(const parser_t *p)
{
    size_t at = name_length(p);

    if (at == 0) {
        return false;
    }
    while ((peek(p, at) == ' ') || (peek(p, at) == '\t')) {
        at++;
    }
    return (peek(p, at) == ':') && (peek(p, at + 1) == ':') &&
           (peek(p, at + 2) == '=');
}

/* Reads a name. @return its index; BT_RULE_NAMES_NONE: failed */
static uint32_t read_name(parser_t *p)
{
    const uint32_t n = name_length(p);
    const size_t at = p->at;

    if ((n == 0) || (n > MAX_NAME)) {
        fail(p, (n == 0) ? "a name is expected" : "a name is too long");
        return BT_RULE_NAMES_NONE;
    }
    p->at += n;
    return bt_rule_names_get(&p->names, p->b, p->c, p->text + at, n, p->line);
}

/* ---- characters ---- */

static uint32_t read_hex(parser_t *p, uint32_t n)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < n; i++) {
        const int digit = bt_hex_digit(peek(p, 0));

        if (digit < 0) {
            fail(p, "an escape has too few hexadecimal digits");
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        p->at++;
    }
    if ((value > BT_CODE_POINT_MAX) ||
        ((value >= 0xD800) && (value <= 0xDFFF))) {
        fail(p, "an escape is no character of Unicode");
        return 0;
    }
    return value;
}

static uint32_t read_escape(parser_t *p)
{
    const char byte = peek(p, 0);

    p->at++;
    switch (byte) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'x':
        return read_hex(p, 2);
    case 'u':
        return read_hex(p, 4);
    case 'U':
        return read_hex(p, 8);
    case '\\':
    case '"':
    case '\'':
    case '[':
    case ']':
    case '-':
    case '^':
    case '/':
        return (uint8_t)byte;
    default:
        fail(p, "an escape is not known");
        return 0;
    }
}

/* Reads one character of a literal or class, perhaps an escape. */
static uint32_t read_char(parser_t *p)
{
    uint32_t cp = 0;
    int n;

    if (peek(p, 0) == '\\') {
        p->at++;
        return read_escape(p);
    }
    p->line += (peek(p, 0) == '\n') ? 1 : 0;
    n = bt_utf8_scan((const uint8_t *)p->text + p->at, p->n - p->at);
    if (n <= 0) {
        fail(p, "the text is not UTF-8");
        return 0;
    }
    (void)bt_utf8_decode((const uint8_t *)p->text + p->at, &cp);
    p->at += (size_t)n;
    return cp;
}

/* Returns an expression of one character of a class. */
static const bt_expr_t *read_class(parser_t *p)
{
    bt_nfa_t *nfa = bt_nfa_create(p->c);
    const uint32_t from = bt_nfa_state(nfa);
    const uint32_t to = bt_nfa_state(nfa);
    const bool is_negated = peek(p, 1) == '^';
    const bt_dfa_t *dfa;

    p->at += is_negated ? 2 : 1;
    while ((peek(p, 0) != ']') && bt_grammar_ok(p->c)) {
        uint32_t lo;
        uint32_t hi;

        if (p->at >= p->n) {
            fail(p, "a class has no end");
            return NULL;
        }
        lo = hi = read_char(p);
        if ((peek(p, 0) == '-') && (peek(p, 1) != ']')) {
            p->at++;
            hi = read_char(p);
        }
        if (lo > hi) {
            fail(p, "a range of characters is the wrong way round");
        }
        bt_nfa_code_points(nfa, from, lo, hi, to);
    }
    p->at++;
    dfa = bt_nfa_to_dfa(nfa, from, to);
    if (is_negated) {
        bt_nfa_t *all = bt_nfa_create(p->c);
        const uint32_t begin = bt_nfa_state(all);
        const uint32_t end = bt_nfa_state(all);

        bt_nfa_code_points(all, begin, 0, BT_CODE_POINT_MAX, end);
        dfa = bt_dfa_combine(p->c, BT_DFA_MINUS, bt_nfa_to_dfa(all, begin, end),
                             dfa);
    }
    return bt_expr_dfa(p->b, dfa);
}

static const bt_expr_t *any_char(parser_t *p)
{
    bt_nfa_t *nfa = bt_nfa_create(p->c);
    const uint32_t from = bt_nfa_state(nfa);
    const uint32_t to = bt_nfa_state(nfa);

    bt_nfa_code_points(nfa, from, 0, BT_CODE_POINT_MAX, to);
    return bt_expr_dfa(p->b, bt_nfa_to_dfa(nfa, from, to));
}

static const bt_expr_t *read_literal(parser_t *p)
{
    uint8_t *bytes = NULL;
    uint32_t cap = 0;
    uint32_t n = 0;

    p->at++;
    while (peek(p, 0) != '"') {
        uint32_t cp;

        if (p->at >= p->n) {
            fail(p, "a literal has no end");
        }
        cp = read_char(p);
        if (!bt_grammar_ok(p->c) ||
            !bt_grammar_grow(p->c, &bytes, &cap, n + 4, 1)) {
            return NULL;
        }
        n += bt_utf8_encode(cp, bytes + n);
    }
    p->at++;
    return bt_expr_literal(p->b, bytes, n);
}

static uint32_t read_number(parser_t *p)
{
    uint64_t number = 0;

    while ((peek(p, 0) >= '0') && (peek(p, 0) <= '9')) {
        number = number * 10 + (uint64_t)(peek(p, 0) - '0');
        p->at++;
        if (number >= BT_REPEAT_NO_LIMIT) {
            fail(p, "a number is too large");
            return 0;
        }
    }
    return (uint32_t)number;
}

/* Reads <[id]>. */
static const bt_expr_t *read_token(parser_t *p)
{
    uint32_t id;

    if (peek(p, 1) != '[') {
        refuse(p, "a token by its text is");
        return NULL;
    }
    p->at += 2;
    if ((peek(p, 0) < '0') || (peek(p, 0) > '9')) {
        fail(p, "a token id is expected");
        return NULL;
    }
    id = read_number(p);
    if ((peek(p, 0) != ']') || (peek(p, 1) != '>')) {
        fail(p, "a token has no end");
        return NULL;
    }
    p->at += 2;
    return bt_expr_token(p->b, id);
}

/* ---- expressions ---- */

static const bt_expr_t *read_alternatives(parser_t *p);

static const bt_expr_t *read_parens(parser_t *p)
{
    const bt_expr_t *x;

    p->at++;
    if (peek(p, 0) == '?') {
        refuse(p, "look-ahead is");
        return NULL;
    }
    if (++p->depth > MAX_NESTING) {
        bt_grammar_fail(p->c, BT_ERR_TOO_LARGE,
                        "line %u: parentheses are nested deeper than %u",
                        p->line, MAX_NESTING);
        return NULL;
    }
    x = read_alternatives(p);
    p->depth--;
    if (peek(p, 0) != ')') {
        fail(p, "a parenthesis has no end");
        return NULL;
    }
    p->at++;
    return x;
}

static const bt_expr_t *read_item(parser_t *p)
{
    uint32_t name;

    switch (peek(p, 0)) {
    case '"':
        return read_literal(p);
    case '[':
        return read_class(p);
    case '(':
        return read_parens(p);
    case '<':
        return read_token(p);
    case '!':
        refuse(p, "a negated token is");
        return NULL;
    case '.':
        p->at++;
        return any_char(p);
    default:
        name = read_name(p);
        return (name == BT_RULE_NAMES_NONE)
                   ? NULL
                   : bt_expr_rule(p->b, p->names.list[name].rule);
    }
}

/* Reads the bounds in braces. */
static void read_bounds(parser_t *p, uint32_t *min_p, uint32_t *max_p)
{
    p->at++;
    skip_space(p);
    if (peek(p, 0) == ',') {
        *min_p = 0;
    } else if ((peek(p, 0) >= '0') && (peek(p, 0) <= '9')) {
        *min_p = read_number(p);
    } else {
        fail(p, "a number of repetitions is expected");
    }
    *max_p = *min_p;
    skip_space(p);
    if (peek(p, 0) == ',') {
        p->at++;
        skip_space(p);
        *max_p = (peek(p, 0) == '}') ? BT_REPEAT_NO_LIMIT : read_number(p);
        skip_space(p);
    }
    if (peek(p, 0) != '}') {
        fail(p, "a repetition has no end");
    } else if (*min_p > *max_p) {
        fail(p, "a repetition has its least number above its most");
    }
    p->at++;
}

static const bt_expr_t *read_repeated(parser_t *p)
{
    const bt_expr_t *x = read_item(p);

    for (;;) {
        uint32_t min = 0;
        uint32_t max = BT_REPEAT_NO_LIMIT;

        skip_space(p);
        switch (peek(p, 0)) {
        case '*':
            p->at++;
            break;
        case '+':
            p->at++;
            min = 1;
            break;
        case '?':
            p->at++;
            max = 1;
            break;
        case '{':
            read_bounds(p, &min, &max);
            break;
        default:
            return x;
        }
        x = bt_expr_repeat(p->b, x, min, max);
        if (x == NULL) {
            return NULL;
        }
    }
}

/* A list of expressions that grows. */
typedef struct list {
    const bt_expr_t **items;
    uint32_t n, cap;
} list_t;

static bool add(parser_t *p, list_t *list, const bt_expr_t *x)
{
    if ((x == NULL) || !bt_grammar_grow(p->c, &list->items, &list->cap,
                                        list->n + 1, sizeof(*list->items))) {
        return false;
    }
    list->items[list->n++] = x;
    return true;
}

/* Reads up to `|`, `)`, the next rule or the end. */
static const bt_expr_t *read_sequence(parser_t *p)
{
    list_t list = {0};

    for (;;) {
        skip_space(p);
        if ((p->at >= p->n) || (peek(p, 0) == '|') || (peek(p, 0) == ')') ||
            is_definition(p)) {
            return bt_expr_seq(p->b, list.items, list.n);
        }
        if (!bt_grammar_ok(p->c) || !add(p, &list, read_repeated(p))) {
            return NULL;
        }
    }
}

static const bt_expr_t *read_alternatives(parser_t *p)
{
    list_t list = {0};

    if (!add(p, &list, read_sequence(p))) {
        return NULL;
    }
    while (peek(p, 0) == '|') {
        p->at++;
        if (!add(p, &list, read_sequence(p))) {
            return NULL;
        }
    }
    return (list.n == 1) ? list.items[0]
                         : bt_expr_alt(p->b, list.items, list.n);
}

static void read_rule(parser_t *p)
{
    const uint32_t name = read_name(p);
    const bt_expr_t *x;

    if (name == BT_RULE_NAMES_NONE) {
        return;
    }
    skip_space(p);
    if ((peek(p, 0) != ':') || (peek(p, 1) != ':') || (peek(p, 2) != '=')) {
        fail(p, "::= is expected");
        return;
    }
    p->at += 3;
    if (p->names.list[name].is_defined) {
        bt_grammar_fail(p->c, BT_ERR_INVALID_PARAM,
                        "line %u: rule %s is defined twice", p->line,
                        p->names.list[name].text);
        return;
    }
    p->names.list[name].is_defined = true;
    x = read_alternatives(p);
    if (peek(p, 0) == ')') {
        fail(p, "a parenthesis has no beginning");
    }
    bt_builder_define(p->b, p->names.list[name].rule, x);
}

const bt_expr_t *bt_ebnf_expr(bt_grammar_builder_t *b, bt_grammar_compiler_t *c,
                              const char *text, size_t n)
{
    parser_t p = {.b = b, .c = c, .text = text, .n = n, .line = 1};

    skip_space(&p);
    while ((p.at < n) && bt_grammar_ok(c)) {
        read_rule(&p);
        skip_space(&p);
    }
    return bt_rule_names_root(&p.names, b, c, "root");
}
