/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of Lark's grammars that are terminals, and what reading them takes. */
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/grammar/code_set.h"
#include "common/grammar/lark_priv.h"
#include "common/grammar/regex_syntax.h"

void lark_fail(lark_parser_t *p, const char *what)
{
    bt_grammar_fail(p->c, BT_ERR_INVALID_PARAM, "line %u: %s", p->line, what);
}

void lark_refuse(lark_parser_t *p, const char *what)
{
    bt_grammar_fail(p->c, BT_ERR_UNSUPPORTED, "line %u: %s not supported",
                    p->line, what);
}

/* Puts the line before the sentence of another reader's failure. */
void lark_add_line(lark_parser_t *p, uint32_t line)
{
    char prefix[32];
    const int n = snprintf(prefix, sizeof(prefix), "line %u: ", line);
    const size_t have = strlen(p->c->why);

    if (!bt_grammar_ok(p->c) && (have + (size_t)n < sizeof(p->c->why))) {
        memmove(p->c->why + n, p->c->why, have + 1);
        memcpy(p->c->why, prefix, (size_t)n);
    }
}

bool lark_looking_at(const lark_parser_t *p, const char *text)
{
    const size_t n = strlen(text);

    return bt_grammar_ok(p->c) && (n <= p->n - p->at) &&
           (memcmp(p->text + p->at, text, n) == 0);
}

bool lark_take(lark_parser_t *p, const char *text)
{
    if (!lark_looking_at(p, text)) {
        return false;
    }
    p->at += strlen(text);
    return true;
}

/* ---- white space and comments ---- */

/* Skips a backslash at the end of a line with the line's end. */
static bool skip_continuation(lark_parser_t *p)
{
    size_t n = 1;

    if (lark_peek(p, 0) != '\\') {
        return false;
    }
    while ((lark_peek(p, n) == ' ') || (lark_peek(p, n) == '\r')) {
        n++;
    }
    if (lark_peek(p, n) != '\n') {
        return false;
    }
    p->at += n + 1;
    p->line++;
    return true;
}

/* Skips white space and comments. */
void lark_skip_space(lark_parser_t *p, bool lines)
{
    for (;;) {
        const char byte = lark_peek(p, 0);

        if ((byte == '#') || ((byte == '/') && (lark_peek(p, 1) == '/'))) {
            while ((p->at < p->n) && (p->text[p->at] != '\n')) {
                p->at++;
            }
        } else if ((byte == ' ') || (byte == '\t') || (byte == '\r')) {
            p->at++;
        } else if (lines && (byte == '\n')) {
            p->at++;
            p->line++;
        } else if (!skip_continuation(p)) {
            return;
        }
    }
}

/* ---- names and numbers ---- */

bool lark_is_terminal(const bt_rule_name_t *name)
{
    const char *text = name->text;

    while (*text == '_') {
        text++;
    }
    return lark_is_upper(*text);
}

/* Reads a name. @return its index; BT_RULE_NAMES_NONE: failed */
uint32_t lark_read_name(lark_parser_t *p)
{
    const size_t start = p->at;
    bool has_lower = false, has_upper = false;
    uint32_t n = 0, first = 0;

    while ((n <= LARK_MAX_NAME) && lark_is_name_byte(lark_peek(p, n))) {
        has_lower = has_lower || lark_is_lower(lark_peek(p, n));
        has_upper = has_upper || lark_is_upper(lark_peek(p, n));
        n++;
    }
    while (lark_peek(p, first) == '_') {
        first++;
    }
    if ((n == 0) || (first == n) || lark_is_digit(lark_peek(p, first))) {
        lark_fail(p, "the name of a rule or terminal is expected");
    } else if (n > LARK_MAX_NAME) {
        lark_fail(p, "a name is too long");
    } else if (has_lower && has_upper) {
        lark_fail(p,
                  "a name has lower-case letters, for a rule, and upper-case "
                  "ones, for a terminal");
    }
    if (!bt_grammar_ok(p->c)) {
        return BT_RULE_NAMES_NONE;
    }
    p->at += n;
    return bt_rule_names_get(&p->names, p->b, p->c, p->text + start, n,
                             p->line);
}

uint32_t lark_read_number(lark_parser_t *p)
{
    uint64_t number = 0;

    if (!lark_is_digit(lark_peek(p, 0))) {
        lark_fail(p, "a number is expected");
    }
    while (lark_is_digit(lark_peek(p, 0))) {
        number = number * 10 + (uint64_t)(lark_peek(p, 0) - '0');
        p->at++;
        if (number >= BT_REPEAT_NO_LIMIT) {
            lark_fail(p, "a number is too large");
            return 0;
        }
    }
    return (uint32_t)number;
}

/* ---- strings ---- */

static uint32_t read_hex(lark_parser_t *p, uint32_t n)
{
    uint32_t value = 0;

    for (uint32_t i = 0; i < n; i++) {
        const int digit = bt_hex_digit(lark_peek(p, 0));

        if (digit < 0) {
            lark_fail(p, "an escape has too few hexadecimal digits");
            return 0;
        }
        value = value << 4 | (uint32_t)digit;
        p->at++;
    }
    if ((value > BT_CODE_POINT_MAX) ||
        ((value >= 0xD800) && (value <= 0xDFFF))) {
        lark_fail(p, "an escape is no character of Unicode");
        return 0;
    }
    return value;
}

/* Reads behind a backslash. What Lark and llguidance read differently, such as
 * \b and \d, is refused. */
static uint32_t read_escape(lark_parser_t *p)
{
    const char byte = lark_peek(p, 0);

    p->at++;
    switch (byte) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'f':
        return '\f';
    case 'x':
        return read_hex(p, 2);
    case 'u':
        return read_hex(p, 4);
    case 'U':
        return read_hex(p, 8);
    case '\\':
    case '"':
        return (uint8_t)byte;
    default:
        lark_refuse(p, "this escape of a string is");
        return 0;
    }
}

static uint32_t read_char(lark_parser_t *p)
{
    uint32_t cp = 0;
    int n;

    if (lark_take(p, "\\")) {
        return read_escape(p);
    }
    n = bt_utf8_scan((const uint8_t *)p->text + p->at, p->n - p->at);
    if (n <= 0) {
        lark_fail(p, "the text is not UTF-8");
        return 0;
    }
    (void)bt_utf8_decode((const uint8_t *)p->text + p->at, &cp);
    p->at += (size_t)n;
    return cp;
}

typedef struct string {
    uint8_t *bytes;
    uint32_t n, cap;
    bool ignores_case;
} string_t;

/* Reads a string with the i behind it. */
static bool read_string(lark_parser_t *p, string_t *string)
{
    *string = (string_t){0};
    p->at++;
    while (lark_peek(p, 0) != '"') {
        uint32_t cp;

        if ((p->at >= p->n) || (lark_peek(p, 0) == '\n')) {
            lark_fail(p, "a string has no end");
            return false;
        }
        cp = read_char(p);
        if (!bt_grammar_grow(p->c, &string->bytes, &string->cap, string->n + 4,
                             1)) {
            return false;
        }
        string->n += bt_utf8_encode(cp, string->bytes + string->n);
    }
    p->at++;
    if ((lark_peek(p, 0) == 'i') && !lark_is_name_byte(lark_peek(p, 1))) {
        p->at++;
        string->ignores_case = true;
    } else if (lark_is_name_byte(lark_peek(p, 0))) {
        lark_fail(p, "a string has a flag other than i behind it");
    }
    return bt_grammar_ok(p->c);
}

static const bt_expr_t *without_case(lark_parser_t *p, const string_t *string)
{
    bt_nfa_t *nfa = bt_nfa_create(p->c);
    const uint32_t start = bt_nfa_state(nfa);
    uint32_t from = start;

    for (uint32_t i = 0; (i < string->n) && bt_grammar_ok(p->c); i++) {
        const uint8_t byte = string->bytes[i];
        const uint32_t to = bt_nfa_state(nfa);

        if (byte >= 0x80) {
            lark_refuse(p,
                        "a character beyond ASCII in a string with flag i is");
            return NULL;
        }
        bt_nfa_edge(nfa, from, byte, byte, to);
        if (lark_is_lower((char)byte) || lark_is_upper((char)byte)) {
            bt_nfa_edge(nfa, from, byte ^ 0x20, byte ^ 0x20, to);
        }
        from = to;
    }
    return bt_expr_dfa(p->b, bt_nfa_to_dfa(nfa, start, from));
}

/* Reads a string as one end of a range. */
static uint32_t end_of_range(lark_parser_t *p, const string_t *string)
{
    uint32_t cp = 0;

    if ((string->n == 0) || string->ignores_case ||
        (bt_utf8_scan(string->bytes, string->n) != (int)string->n)) {
        lark_fail(p,
                  "a range of characters has an end that is not one character");
        return 0;
    }
    (void)bt_utf8_decode(string->bytes, &cp);
    return cp;
}

static const bt_expr_t *read_range(lark_parser_t *p, const string_t *first)
{
    bt_nfa_t *nfa = bt_nfa_create(p->c);
    const uint32_t from = bt_nfa_state(nfa), to = bt_nfa_state(nfa);
    const uint32_t lo = end_of_range(p, first);
    string_t last;
    uint32_t hi;

    lark_skip_space(p, false);
    if (lark_peek(p, 0) != '"') {
        lark_fail(p, "a range of characters has no end");
    }
    if (!bt_grammar_ok(p->c) || !read_string(p, &last)) {
        return NULL;
    }
    hi = end_of_range(p, &last);
    if (lo > hi) {
        lark_fail(p, "a range of characters is the wrong way round");
    }
    bt_nfa_code_points(nfa, from, lo, hi, to);
    return bt_expr_dfa(p->b, bt_nfa_to_dfa(nfa, from, to));
}

/* Reads a string or a range of characters. */
const bt_expr_t *lark_read_literal(lark_parser_t *p)
{
    string_t string;
    size_t at;

    if (!read_string(p, &string)) {
        return NULL;
    }
    at = p->at;
    lark_skip_space(p, false);
    if (lark_take(p, "..")) {
        return read_range(p, &string);
    }
    p->at = at;
    return string.ignores_case ? without_case(p, &string)
                               : bt_expr_literal(p->b, string.bytes, string.n);
}

/* ---- regular expressions ---- */

/* True when flag x would change how an expression is read. */
static bool has_verbose(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr(" \t\n\r\f\v#", text[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static unsigned read_flags(lark_parser_t *p, const char *pattern, size_t n)
{
    unsigned flags = BT_REGEX_LARK;

    for (; lark_is_name_byte(lark_peek(p, 0)); p->at++) {
        switch (lark_peek(p, 0)) {
        case 'i':
            flags |= BT_REGEX_IGNORE_CASE;
            break;
        case 's':
            flags |= BT_REGEX_DOT_ALL;
            break;
        case 'm': /* of ^ and $, which are refused */
        case 'u': /* always */
            break;
        case 'x':
            if (has_verbose(pattern, n)) {
                lark_refuse(
                    p, "white space or # in a regular expression with flag "
                       "x is");
            }
            break;
        case 'l':
            lark_refuse(p, "flag l of a regular expression is");
            break;
        default:
            lark_fail(p, "a regular expression has a flag that is not known");
            break;
        }
    }
    return flags;
}

const bt_expr_t *lark_read_regex(lark_parser_t *p)
{
    const char *const pattern = p->text + p->at + 1;
    const bt_expr_t *x;
    unsigned flags;
    size_t n = 0;

    p->at++;
    while (lark_peek(p, 0) != '/') {
        const size_t step = (lark_peek(p, 0) == '\\') ? 2 : 1;

        if ((p->at >= p->n) || (lark_peek(p, step - 1) == '\n')) {
            lark_fail(p, "a regular expression has no / at its end");
            return NULL;
        }
        p->at += step;
        n += step;
    }
    p->at++;
    flags = read_flags(p, pattern, n);
    if (!bt_grammar_ok(p->c)) {
        return NULL;
    }
    x = bt_regex_expr_flags(p->b, p->c, pattern, n, flags);
    lark_add_line(p, p->line);
    return x;
}
