/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/parser.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"

#define MAX_BRACES   200u
#define NUMBER_BYTES 400u

typedef struct lexer {
    bt_tmpl_run_t *run;
    const char *text; /* lines end with \n alone */
    size_t n;
    size_t at;
    uint32_t line;
    bool line_starts; /* what was read last ended a line */
    bt_tmpl_tokens_t tokens;
    char braces[MAX_BRACES]; /* that are open in this tag */
    uint32_t n_braces;
} lexer_t;

static bool wrong(lexer_t *l, const char *what)
{
    l->run->line = l->line;
    return bt_tmpl_run_fail(l->run, BT_ERR_UNSUPPORTED, "%s", what);
}

static bool add(lexer_t *l, bt_tmpl_token_kind_t kind,
                const bt_tmpl_text_t *text)
{
    bt_tmpl_tokens_t *tokens = &l->tokens;

    bt_tmpl_token_t *list = bt_tmpl_run_grow(l->run, tokens->list, tokens->n,
                                             &tokens->cap, 256, sizeof(*list));

    if (list == NULL) {
        return false;
    }
    tokens->list = list;
    tokens->list[tokens->n++] =
        (bt_tmpl_token_t){.kind = (uint8_t)kind, .line = l->line, .text = text};
    return true;
}

static bool add_text(lexer_t *l, bt_tmpl_token_kind_t kind, const char *data,
                     size_t n)
{
    bt_tmpl_text_t *text = bt_tmpl_run_take(l->run, 1, sizeof(*text));

    if (text == NULL) {
        return false;
    }
    text->data = data; /* the lexer's copy lives as long as the run */
    text->len = (uint32_t)n;
    return add(l, kind, text);
}

static char peek(const lexer_t *l, size_t ahead)
{
    return (l->at + ahead < l->n) ? l->text[l->at + ahead] : '\0';
}

static bool sees(const lexer_t *l, size_t at, const char *what)
{
    const size_t n = strlen(what);

    return (at + n <= l->n) && (memcmp(l->text + at, what, n) == 0);
}

static size_t space_len(const lexer_t *l, size_t at)
{
    uint32_t cp;
    unsigned n;

    if (at >= l->n) {
        return 0;
    }
    n = bt_utf8_decode((const uint8_t *)l->text + at, &cp);
    return bt_tmpl_cp_is_space(cp) ? n : 0;
}

static size_t after_spaces(const lexer_t *l, size_t at)
{
    size_t n;

    while ((n = space_len(l, at)) > 0) {
        at += n;
    }
    return at;
}

/* Go on, counting lines. */
static void go_to(lexer_t *l, size_t at)
{
    for (size_t i = l->at; i < at; i++) {
        l->line += l->text[i] == '\n';
    }
    l->line_starts = (at > l->at) ? l->text[at - 1] == '\n' : l->line_starts;
    l->at = at;
}

/* ---- between the tags ---- */

static size_t without_spaces(const char *data, size_t n)
{
    const bt_tmpl_text_t text = {.data = data, .len = (uint32_t)n};
    uint32_t len = (uint32_t)n;

    while (len > 0) {
        uint32_t cp;
        const uint32_t last = bt_tmpl_text_before(&text, len, &cp);

        if (!bt_tmpl_cp_is_space(cp)) {
            break;
        }
        len -= last;
    }
    return len;
}

/* The data before a tag whose sign is `sign`, 0 for none. */
static bool add_data(lexer_t *l, size_t from, size_t to, char sign,
                     bool is_variable)
{
    const char *data = l->text + from;
    size_t n = to - from;

    if (sign == '-') {
        n = without_spaces(data, n);
    } else if ((sign != '+') && !is_variable) {
        size_t line = n;

        while ((line > 0) && (data[line - 1] != '\n')) {
            line--;
        }
        /* Nothing but white space before the tag on its line. */
        if (((line > 0) || l->line_starts) &&
            (without_spaces(data + line, n - line) == 0)) {
            n = line;
        }
    }
    return (n == 0) || add_text(l, BT_T_DATA, data, n);
}

static char sign_at(const lexer_t *l, size_t at)
{
    const char c = (at < l->n) ? l->text[at] : '\0';

    return ((c == '-') || (c == '+')) ? c : '\0';
}

/* Behind an end that stands at `end`: "%}" and its like. sign: what is before
 * it. */
static size_t behind_end(const lexer_t *l, size_t end, char sign, bool trims)
{
    end += 2;
    if (sign == '-') {
        return after_spaces(l, end);
    }
    return (trims && (sign == '\0') && (end < l->n) && (l->text[end] == '\n'))
               ? end + 1
               : end;
}

/* l->at: the first tag at or behind it, or the end. */
static size_t find_tag(const lexer_t *l)
{
    for (size_t at = l->at; at + 1 < l->n; at++) {
        const char *brace = memchr(l->text + at, '{', l->n - 1 - at);

        if (brace == NULL) {
            break;
        }
        at = (size_t)(brace - l->text);
        if ((brace[1] == '%') || (brace[1] == '{') || (brace[1] == '#')) {
            return at;
        }
    }
    return l->n;
}

/* "{%- raw %}": @return where what it protects begins, or 0. */
static size_t raw_begin(const lexer_t *l, size_t tag)
{
    size_t at = tag + 2;

    at += (sign_at(l, at) != '\0') ? 1 : 0;
    at = after_spaces(l, at);
    if (!sees(l, at, "raw")) {
        return 0;
    }
    at = after_spaces(l, at + 3);
    if (sees(l, at, "-%}")) {
        return behind_end(l, at + 1, '-', false);
    }
    return sees(l, at, "%}") ? at + 2 : 0;
}

static bool lex_raw(lexer_t *l, size_t begin)
{
    go_to(l, begin);
    for (size_t at = begin; at + 1 < l->n; at++) {
        size_t end;
        char sign;

        if (!sees(l, at, "{%")) {
            continue;
        }
        sign = sign_at(l, at + 2);
        end = after_spaces(l, at + 2 + ((sign != '\0') ? 1 : 0));
        if (!sees(l, end, "endraw")) {
            continue;
        }
        end = after_spaces(l, end + 6);
        if (!sees(l, end + ((sign_at(l, end) != '\0') ? 1 : 0), "%}")) {
            continue;
        }
        if (!add_data(l, begin, at, sign, false)) {
            return false;
        }
        sign = sign_at(l, end);
        go_to(l, behind_end(l, end + ((sign != '\0') ? 1 : 0), sign, true));
        return true;
    }
    return wrong(l, "a raw block does not end");
}

static bool lex_comment(lexer_t *l)
{
    const size_t begin = l->at;
    const char *end = memmem(l->text + begin, l->n - begin, "#}", 2);
    size_t at;
    char sign = '\0';

    if (end == NULL) {
        return wrong(l, "a comment does not end");
    }
    at = (size_t)(end - l->text);
    if (at > begin) {
        sign = sign_at(l, at - 1);
    }
    go_to(l, behind_end(l, at, sign, true));
    return true;
}

/* ---- inside the tags ---- */

static bool is_name_char(char c, bool first)
{
    return ((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
           (c == '_') || ((uint8_t)c >= 0x80) ||
           (!first && (c >= '0') && (c <= '9'));
}

static int digit_of(char c)
{
    return ((c >= '0') && (c <= '9'))   ? c - '0'
           : ((c >= 'a') && (c <= 'f')) ? c - 'a' + 10
           : ((c >= 'A') && (c <= 'F')) ? c - 'A' + 10
                                        : 99;
}

static size_t digits_at(const lexer_t *l, size_t at, int base)
{
    const size_t from = at;

    while ((at < l->n) &&
           ((digit_of(l->text[at]) < base) ||
            ((l->text[at] == '_') && (at > from) && (at + 1 < l->n) &&
             (digit_of(l->text[at + 1]) < base)))) {
        at++;
    }
    return at - from;
}

/* Where a float that begins here ends, or 0: it is none. */
static size_t float_end(const lexer_t *l)
{
    size_t at = l->at + digits_at(l, l->at, 10);
    bool found = false;

    if ((l->at > 0) && (l->text[l->at - 1] == '.')) {
        return 0;
    }
    if ((at < l->n) && (l->text[at] == '.') && (digits_at(l, at + 1, 10) > 0)) {
        at += 1 + digits_at(l, at + 1, 10);
        found = true;
    }
    if ((at < l->n) && ((l->text[at] == 'e') || (l->text[at] == 'E'))) {
        const size_t sign = (sign_at(l, at + 1) != '\0') ? 1 : 0;
        const size_t n = digits_at(l, at + 1 + sign, 10);

        if (n > 0) {
            at += 1 + sign + n;
            found = true;
        }
    }
    return found ? at : 0;
}

/* "0x1F" and its like: @return the base; *from_p: where its digits begin. */
static int base_of(const lexer_t *l, size_t *from_p)
{
    const char kind = (char)(peek(l, 1) | 0x20);
    const int base = (peek(l, 0) != '0') ? 10
                     : (kind == 'x')     ? 16
                     : (kind == 'o')     ? 8
                     : (kind == 'b')     ? 2
                                         : 10;

    *from_p = l->at + ((base == 10) ? 0 : 2);
    return base;
}

/* 0 and 00 are numbers, 012 is none. */
static bool begins_with_zero(const lexer_t *l, size_t end)
{
    for (size_t i = l->at; (peek(l, 0) == '0') && (i < end); i++) {
        if ((l->text[i] != '0') && (l->text[i] != '_')) {
            return true;
        }
    }
    return false;
}

static bool lex_number(lexer_t *l)
{
    char copy[NUMBER_BYTES];
    size_t end = float_end(l);
    const bool is_float = end > 0;
    size_t from = l->at;
    size_t n = 0;
    int base = 10;
    bt_tmpl_token_t *token;

    if (!is_float) {
        base = base_of(l, &from);
        end = from + digits_at(l, from, base);
        if ((base == 10) && begins_with_zero(l, end)) {
            return wrong(l, "a number begins with zero");
        }
    }
    for (size_t i = from; (i < end) && (n + 1 < sizeof(copy)); i++) {
        if (l->text[i] != '_') {
            copy[n++] = l->text[i];
        }
    }
    copy[n] = '\0';
    if (!add(l, is_float ? BT_T_FLOAT : BT_T_INT, NULL)) {
        return false;
    }
    token = &l->tokens.list[l->tokens.n - 1];
    errno = 0;
    if (is_float) {
        token->u.f = strtod(copy, NULL);
    } else {
        token->u.i = strtoll(copy, NULL, base);
        if ((errno == ERANGE) || (n == 0)) {
            return wrong(l, "a number of over 64 bits");
        }
    }
    go_to(l, end);
    return true;
}

/* \x41, \u0041, \U00000041 or \101: @return bytes taken, 0: no such escape. */
static size_t code_escape(const char *p, size_t n, uint32_t *cp_p)
{
    const size_t want = (p[0] == 'x')   ? 2
                        : (p[0] == 'u') ? 4
                        : (p[0] == 'U') ? 8
                                        : 0;
    uint32_t cp = 0;
    size_t used = 0;

    if (want > 0) {
        for (used = 1; (used <= want) && (used < n); used++) {
            const int digit = digit_of(p[used]);

            if (digit >= 16) {
                return 0;
            }
            cp = cp << 4 | (uint32_t)digit;
        }
        used = (used == want + 1) ? used : 0;
    } else {
        while ((used < 3) && (used < n) && (digit_of(p[used]) < 8)) {
            cp = cp << 3 | (uint32_t)digit_of(p[used]);
            used++;
        }
    }
    if ((cp > 0x10FFFF) || ((cp >= 0xD800) && (cp <= 0xDFFF))) {
        return 0;
    }
    *cp_p = cp;
    return used;
}

/* One escape of a string at p, behind its backslash. @return bytes taken */
static size_t put_escape(lexer_t *l, bt_tmpl_build_t *out, const char *p,
                         size_t n)
{
    static const char from[] = "\\'\"abfnrtv";
    static const char to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *simple = (p[0] != '\0') ? strchr(from, p[0]) : NULL;
    uint32_t cp;
    size_t used;

    if (simple != NULL) {
        bt_tmpl_build_bytes(out, &to[simple - from], 1, false);
        return 1;
    }
    if (p[0] == '\n') {
        return 1;
    }
    used = code_escape(p, n, &cp);
    if (used > 0) {
        bt_tmpl_build_char(out, cp, false);
        return used;
    }
    if (strchr("xuUN", p[0]) != NULL) {
        (void)wrong(l, "a string has an escape that is not known");
    }
    bt_tmpl_build_bytes(out, "\\", 1, false);
    return 0;
}

static bool lex_string(lexer_t *l)
{
    const char quote = l->text[l->at];
    bt_tmpl_build_t out;
    size_t at = l->at + 1;
    const bt_tmpl_text_t *text;

    bt_tmpl_build_init(&out, l->run);
    while ((at < l->n) && (l->text[at] != quote)) {
        if ((l->text[at] == '\\') && (at + 1 < l->n)) {
            at++;
            at += put_escape(l, &out, l->text + at, l->n - at);
            continue;
        }
        bt_tmpl_build_bytes(&out, l->text + at, 1, false);
        at++;
    }
    if (at >= l->n) {
        return wrong(l, "a string does not end");
    }
    text = bt_tmpl_build_end(&out);
    if ((text == NULL) || !add(l, BT_T_STRING, text)) {
        return false;
    }
    go_to(l, at + 1);
    return true;
}

static bool check_brace(lexer_t *l, char c)
{
    if (strchr("([{", c) != NULL) {
        if (l->n_braces == MAX_BRACES) {
            return wrong(l, "too many brackets within each other");
        }
        l->braces[l->n_braces++] = (c == '(') ? ')' : (c == '[') ? ']' : '}';
    } else if (strchr(")]}", c) != NULL) {
        if ((l->n_braces == 0) || (l->braces[--l->n_braces] != c)) {
            return wrong(l, "a bracket closes that was not opened");
        }
    }
    return true;
}

static bool add_op(lexer_t *l, uint8_t op, size_t n)
{
    if (!add(l, BT_T_OP, NULL)) {
        return false;
    }
    l->tokens.list[l->tokens.n - 1].op = op;
    go_to(l, l->at + n);
    return true;
}

static bool lex_operator(lexer_t *l)
{
    static const struct {
        char text[3];
        uint8_t op;
    } twos[] = {{"==", BT_OP_EQ}, {"!=", BT_OP_NE},       {"<=", BT_OP_LE},
                {">=", BT_OP_GE}, {"//", BT_OP_FLOORDIV}, {"**", BT_OP_POW}};
    const char c = l->text[l->at];

    for (size_t i = 0; i < BT_ARRAY_LEN(twos); i++) {
        if (sees(l, l->at, twos[i].text)) {
            return add_op(l, twos[i].op, 2);
        }
    }
    if ((c == '\0') || (strchr("+-*/%~<>=.:|,()[]{}", c) == NULL)) {
        return wrong(l, "a character that no expression has");
    }
    return check_brace(l, c) && add_op(l, (uint8_t)c, 1);
}

static bool lex_name(lexer_t *l)
{
    size_t end = l->at;

    while ((end < l->n) && is_name_char(l->text[end], false)) {
        end++;
    }
    if (!add_text(l, BT_T_NAME, l->text + l->at, end - l->at)) {
        return false;
    }
    go_to(l, end);
    return true;
}

/* Is the end of the tag here? Then behind it. */
static bool at_end(lexer_t *l, const char *end, bool trims, bool *found_p)
{
    const char sign = sign_at(l, l->at);
    const size_t at = l->at + ((sign != '\0') ? 1 : 0);

    *found_p = (l->n_braces == 0) && sees(l, at, end) &&
               ((sign != '+') || trims); /* a variable has no "+}}" */
    if (!*found_p) {
        return true;
    }
    if (!add(l, trims ? BT_T_BLOCK_END : BT_T_VAR_END, NULL)) {
        return false;
    }
    go_to(l, behind_end(l, at, sign, trims));
    return true;
}

static bool lex_tag(lexer_t *l, bool is_variable)
{
    const char *end = is_variable ? "}}" : "%}";
    bool found = false;

    l->n_braces = 0;
    while (bt_tmpl_run_step(l->run, 1)) {
        char c;
        bool fine;

        go_to(l, after_spaces(l, l->at));
        if (!at_end(l, end, !is_variable, &found)) {
            return false;
        }
        if (found) {
            return true;
        }
        if (l->at >= l->n) {
            return wrong(l, "a tag does not end");
        }
        c = l->text[l->at];
        if ((c >= '0') && (c <= '9')) {
            fine = lex_number(l);
        } else if (is_name_char(c, true)) {
            fine = lex_name(l);
        } else if ((c == '\'') || (c == '"')) {
            fine = lex_string(l);
        } else {
            fine = lex_operator(l);
        }
        if (!fine) {
            return false;
        }
    }
    return false;
}

static bool lex_all(lexer_t *l)
{
    while ((l->at < l->n) && bt_tmpl_run_step(l->run, 1)) {
        const size_t tag = find_tag(l);
        const char kind = (tag < l->n) ? l->text[tag + 1] : '\0';
        const char sign = (tag < l->n) ? sign_at(l, tag + 2) : '+';
        const size_t raw = (kind == '%') ? raw_begin(l, tag) : 0;

        if (!add_data(l, l->at, tag, sign, kind == '{')) {
            return false;
        }
        if (kind == '\0') {
            go_to(l, tag);
            break;
        }
        if (raw > 0) {
            if (!lex_raw(l, raw)) {
                return false;
            }
            continue;
        }
        go_to(l, tag + 2 + ((sign != '\0') ? 1 : 0));
        if (kind == '#') {
            if (!lex_comment(l)) {
                return false;
            }
            continue;
        }
        if (!add(l, (kind == '{') ? BT_T_VAR_BEGIN : BT_T_BLOCK_BEGIN, NULL) ||
            !lex_tag(l, kind == '{')) {
            return false;
        }
    }
    return add(l, BT_T_END, NULL);
}

bool bt_tmpl_lex(bt_tmpl_run_t *run, const char *source, size_t bytes,
                 bt_tmpl_tokens_t *tokens_p)
{
    lexer_t l = {.run = run, .line = 1, .line_starts = true};
    char *copy = bt_tmpl_run_take(run, bytes + 1, 1);

    if (copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r') {
            copy[l.n++] = '\n';
            i += ((i + 1 < bytes) && (source[i + 1] == '\n')) ? 1 : 0;
        } else {
            copy[l.n++] = source[i];
        }
    }
    if ((l.n > 0) && (copy[l.n - 1] == '\n')) {
        l.n--;
    }
    l.text = copy;
    if (!lex_all(&l) || !bt_tmpl_run_ok(run)) {
        return false;
    }
    *tokens_p = l.tokens;
    return true;
}
