/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/tokenizer/regex.h"
#include "inference/tokenizer/unicode.h"

#define MAX_NESTING 16u   /* of groups and of sets */
#define MAX_REPEAT  1000u /* {n} */
#define LAST_CODE   0x10FFFFu
#define LONG_S      0x17Fu  /* folds to s */
#define KELVIN      0x212Au /* folds to k */

typedef struct parser {
    bt_rx_t *rx;
    const char *pattern;
    const uint8_t *p; /* what is left; ends with 0 */
    bool any_case;
    uint32_t depth;
    bt_status_t status; /* the first error, which sticks */
} parser_t;

static uint32_t parse_alternatives(parser_t *ps);
static void parse_set(parser_t *ps);

__attribute__((format(printf, 3, 4))) static void
fail(parser_t *ps, bt_status_t status, const char *format, ...)
{
    va_list args;
    int n;

    if (ps->status != BT_OK) {
        return;
    }
    ps->status = status;
    n = snprintf(ps->rx->why, ps->rx->why_bytes,
                 "pattern \"%.80s\": ", ps->pattern);
    if ((n < 0) || ((size_t)n >= ps->rx->why_bytes)) {
        return;
    }
    va_start(args, format);
    vsnprintf(ps->rx->why + n, ps->rx->why_bytes - (size_t)n, format, args);
    va_end(args);
}

static bool take(parser_t *ps, const char *word)
{
    const size_t n = strlen(word);

    if (strncmp((const char *)ps->p, word, n) != 0) {
        return false;
    }
    ps->p += n;
    return true;
}

/* ---- trees and sets ---- */

static uint32_t node(parser_t *ps, bt_rx_node_kind_t kind, uint32_t a,
                     uint32_t b)
{
    bt_rx_t *rx = ps->rx;

    if (rx->n_nodes == BT_RX_MAX_NODES) {
        fail(ps, BT_ERR_TOO_LARGE, "more than %u parts", BT_RX_MAX_NODES);
        return 0;
    }
    rx->nodes[rx->n_nodes] = (bt_rx_node_t){kind, a, b, 0, 0};
    return rx->n_nodes++;
}

static void op(parser_t *ps, bt_rx_op_kind_t kind, uint32_t a, uint32_t b)
{
    bt_rx_t *rx = ps->rx;

    if (rx->n_ops == BT_RX_MAX_OPS) {
        fail(ps, BT_ERR_TOO_LARGE, "more than %u ranges", BT_RX_MAX_OPS);
        return;
    }
    rx->ops[rx->n_ops++] = (bt_rx_op_t){kind, a, b};
}

/* The set of the operators from first on; one that was there before if it is
 * written the same. */
static uint32_t end_set(parser_t *ps, uint32_t first)
{
    bt_rx_t *rx = ps->rx;
    const uint32_t n = rx->n_ops - first;

    for (uint32_t i = 0; i < rx->n_sets; i++) {
        if ((rx->sets[i].n == n) &&
            (memcmp(rx->ops + rx->sets[i].first, rx->ops + first,
                    n * sizeof(*rx->ops)) == 0)) {
            rx->n_ops = first;
            return i;
        }
    }
    if (rx->n_sets == BT_RX_MAX_SETS) {
        fail(ps, BT_ERR_TOO_LARGE, "more than %u sets of characters",
             BT_RX_MAX_SETS);
        return 0;
    }
    rx->sets[rx->n_sets] = (bt_rx_set_t){first, n};
    return rx->n_sets++;
}

/* The part of from … to that lies in first … last, moved by shift. */
static void op_shifted(parser_t *ps, uint32_t from, uint32_t to, uint32_t first,
                       uint32_t last, int shift)
{
    from = (from > first) ? from : first;
    to = (to < last) ? to : last;
    if (from <= to) {
        op(ps, BT_RX_RANGE, (uint32_t)((int)from + shift),
           (uint32_t)((int)to + shift));
        op(ps, BT_RX_OR, 0, 0);
    }
}

static bool in_range(uint32_t cp, uint32_t from, uint32_t to)
{
    return (cp >= from) && (cp <= to);
}

/* With (?i) also the other case of what is ASCII; of other letters only one
 * that stands for itself alone is taken. */
static void op_range(parser_t *ps, uint32_t from, uint32_t to)
{
    static const struct {
        uint32_t letter, other;
    } folds[] = {{'s', LONG_S}, {'S', LONG_S}, {'k', KELVIN}, {'K', KELVIN}};

    op(ps, BT_RX_RANGE, from, to);
    if (!ps->any_case) {
        return;
    }
    if (to >= 0x80) {
        fail(ps, BT_ERR_UNSUPPORTED,
             "(?i) is not supported for other letters than ASCII");
    }
    op_shifted(ps, from, to, 'a', 'z', 'A' - 'a');
    op_shifted(ps, from, to, 'A', 'Z', 'a' - 'A');
    for (size_t i = 0; i < BT_ARRAY_LEN(folds); i++) {
        if (in_range(folds[i].letter, from, to)) {
            op(ps, BT_RX_RANGE, folds[i].other, folds[i].other);
            op(ps, BT_RX_OR, 0, 0);
        }
    }
}

/* ---- escapes ---- */

/* By bt_unicode_category_t. */
static const char categories[][3] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
    "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cs",
};

static const struct {
    const char *name;
    uint32_t bit;
} properties[] = {
    {"Han", BT_UNICODE_IS_HAN},
    /* No names of Oniguruma's: what steps of the library take, Punctuation,
     * StripAccents and Whitespace. */
    {"library_punctuation", BT_UNICODE_IS_PUNCTUATION},
    {"library_accent", BT_UNICODE_IS_ACCENT},
    {"library_word", BT_UNICODE_IS_BESIDE},
};

/* Finds what a name means: Lu is a category, L all whose names begin so.
 * @return bits of the kind; 0: no such name */
static uint32_t find_property(const uint8_t *name, size_t n,
                              bt_rx_op_kind_t *kind_p)
{
    uint32_t bits = 0;

    *kind_p = BT_RX_CATEGORIES;
    for (size_t i = 0; i < BT_ARRAY_LEN(categories); i++) {
        if (((n == 1) || (n == 2)) && (memcmp(categories[i], name, n) == 0)) {
            bits |= 1u << i;
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(properties); i++) {
        if ((strlen(properties[i].name) == n) &&
            (memcmp(properties[i].name, name, n) == 0)) {
            *kind_p = BT_RX_PROPERTY;
            bits = properties[i].bit;
        }
    }
    return bits;
}

/* {Lu} or {^Lu} behind \p or \P */
static void parse_property(parser_t *ps, bool negated)
{
    const uint8_t *end = (const uint8_t *)strchr((const char *)ps->p, '}');
    bt_rx_op_kind_t kind;
    uint32_t bits;

    if (!take(ps, "{") || (end == NULL)) {
        fail(ps, BT_ERR_BAD_FILE, "\\p without {…}");
        return;
    }
    if (take(ps, "^")) {
        negated = !negated;
    }
    bits = find_property(ps->p, (size_t)(end - ps->p), &kind);
    if (bits == 0) {
        fail(ps, BT_ERR_UNSUPPORTED, "\\p{%.*s} is not supported",
             (int)((end - ps->p < 32) ? end - ps->p : 32), (const char *)ps->p);
        return;
    }
    op(ps, kind, bits, 0);
    if (negated) {
        op(ps, BT_RX_NOT, 0, 0);
    }
    ps->p = end + 1;
}

/* Hexadecimal digits, 1 to most of them. */
static uint32_t parse_hex(parser_t *ps, unsigned most)
{
    uint32_t value = 0;
    unsigned n = 0;

    for (; (n < most) && (bt_hex_digit((char)*ps->p) >= 0); n++) {
        value = value * 16 + (uint32_t)bt_hex_digit((char)*ps->p);
        ps->p++;
    }
    if ((n == 0) || (value > LAST_CODE) || in_range(value, 0xD800, 0xDFFF)) {
        fail(ps, BT_ERR_BAD_FILE, "a number of no character");
        return 0;
    }
    return value;
}

/* Parses an escape that is a class of characters. @return whether there is one
 */
static bool parse_class_escape(parser_t *ps)
{
    const uint8_t letter = (ps->p[0] == '\\') ? ps->p[1] : '\0';

    switch (letter) {
    case 's':
    case 'S':
        op(ps, BT_RX_PROPERTY, BT_UNICODE_IS_SPACE, 0);
        break;
    case 'w':
    case 'W':
        op(ps, BT_RX_PROPERTY, BT_UNICODE_IS_WORD, 0);
        break;
    case 'd':
    case 'D':
        op(ps, BT_RX_CATEGORIES, 1u << BT_UNICODE_ND, 0);
        break;
    case 'p':
    case 'P':
        ps->p += 2;
        parse_property(ps, letter == 'P');
        return true;
    default:
        return false;
    }
    ps->p += 2;
    if (letter < 'a') {
        op(ps, BT_RX_NOT, 0, 0);
    }
    return true;
}

/* Parses a character, escaped or not. */
static uint32_t parse_char(parser_t *ps)
{
    static const char names[] = "nrtfv0ae";
    static const uint8_t values[] = {'\n', '\r', '\t', '\f', '\v', 0, 7, 27};
    uint32_t cp = 0;
    const char *name;

    if (*ps->p != '\\') {
        ps->p += bt_utf8_decode(ps->p, &cp);
        return cp;
    }
    ps->p++;
    if (take(ps, "x{") || take(ps, "u{")) {
        cp = parse_hex(ps, 6);
        if (!take(ps, "}")) {
            fail(ps, BT_ERR_BAD_FILE, "\\x{ or \\u{ without }");
        }
        return cp;
    }
    if (take(ps, "x")) {
        return parse_hex(ps, 2);
    }
    if (take(ps, "u")) {
        return parse_hex(ps, 4);
    }
    name = (*ps->p == '\0') ? NULL : strchr(names, *ps->p);
    if (name != NULL) {
        ps->p++;
        return values[name - names];
    }
    if ((*ps->p == '\0') || in_range(*ps->p | 0x20, 'a', 'z') ||
        in_range(*ps->p, '0', '9')) {
        fail(ps, BT_ERR_UNSUPPORTED, "\\%c is not supported",
             (*ps->p == '\0') ? ' ' : *ps->p);
        return 0;
    }
    ps->p += bt_utf8_decode(ps->p, &cp);
    return cp;
}

/* ---- [sets] ---- */

/* One character, range, class or inner set; one operand more. */
static void parse_set_item(parser_t *ps)
{
    uint32_t from;
    uint32_t to;

    if (*ps->p == '[') {
        if (ps->p[1] == ':') {
            fail(ps, BT_ERR_UNSUPPORTED, "[:…:] is not supported");
            return;
        }
        parse_set(ps);
        return;
    }
    if (parse_class_escape(ps)) {
        return;
    }
    from = parse_char(ps);
    to = from;
    if ((ps->p[0] == '-') && (ps->p[1] != ']') && (ps->p[1] != '\0')) {
        ps->p++;
        to = parse_char(ps);
    }
    if (from > to) {
        fail(ps, BT_ERR_BAD_FILE, "a range that ends before it begins");
        return;
    }
    op_range(ps, from, to);
}

/* [ … && … ], at its bracket; one operand more. */
static void parse_set(parser_t *ps)
{
    bool negated;
    bool first = true;    /* a ] here is a character */
    bool anded = false;   /* something stands before the last && */
    bool started = false; /* something behind it */

    ps->p++;
    negated = take(ps, "^");
    if (++ps->depth > MAX_NESTING) {
        fail(ps, BT_ERR_TOO_LARGE, "deeper than %u", MAX_NESTING);
    }
    while ((ps->status == BT_OK) && ((*ps->p != ']') || first)) {
        first = false;
        if (*ps->p == '\0') {
            fail(ps, BT_ERR_BAD_FILE, "[ without ]");
        } else if (take(ps, "&&")) {
            if (!started) {
                op(ps, BT_RX_NOTHING, 0, 0);
            }
            if (anded) {
                op(ps, BT_RX_AND, 0, 0);
            }
            anded = true;
            started = false;
        } else {
            parse_set_item(ps);
            if (started) {
                op(ps, BT_RX_OR, 0, 0);
            }
            started = true;
        }
    }
    if (!started) {
        op(ps, BT_RX_NOTHING, 0, 0);
    }
    if (anded) {
        op(ps, BT_RX_AND, 0, 0);
    }
    if (negated) {
        op(ps, BT_RX_NOT, 0, 0);
    }
    ps->depth--;
    if (ps->status == BT_OK) {
        ps->p++;
    }
}

/* ---- atoms ---- */

static uint32_t parse_one_char(parser_t *ps)
{
    const uint32_t first = ps->rx->n_ops;

    if (*ps->p == '[') {
        parse_set(ps);
    } else if (take(ps, ".")) {
        op(ps, BT_RX_RANGE, '\n', '\n');
        op(ps, BT_RX_NOT, 0, 0);
    } else if (!parse_class_escape(ps)) {
        const uint32_t cp = parse_char(ps);

        op_range(ps, cp, cp);
    }
    return end_set(ps, first);
}

/* Behind "(": what there is of (? … ) */
static uint32_t parse_group(parser_t *ps)
{
    const bool before = ps->any_case;
    uint32_t kind = BT_RX_EMPTY;
    uint32_t inner;

    if (take(ps, "?=")) {
        kind = BT_RX_NEXT_IS;
    } else if (take(ps, "?!")) {
        kind = BT_RX_NEXT_NOT;
    } else if (take(ps, "?i:")) {
        ps->any_case = true;
    } else if (take(ps, "?i)")) { /* for what is left of the group around */
        ps->any_case = true;
        return parse_alternatives(ps);
    } else if (!take(ps, "?:") && (*ps->p == '?')) {
        fail(ps, BT_ERR_UNSUPPORTED, "(%.3s is not supported",
             (const char *)ps->p);
        return 0;
    }
    if (++ps->depth > MAX_NESTING) {
        fail(ps, BT_ERR_TOO_LARGE, "deeper than %u", MAX_NESTING);
        return 0;
    }
    inner = parse_alternatives(ps);
    ps->depth--;
    ps->any_case = before;
    if (!take(ps, ")")) {
        fail(ps, BT_ERR_BAD_FILE, "( without )");
    }
    if ((kind == BT_RX_EMPTY) || (ps->status != BT_OK)) {
        return inner;
    }
    if (ps->rx->nodes[inner].kind != BT_RX_SET) {
        fail(ps, BT_ERR_UNSUPPORTED,
             "looking ahead at other than one character is not supported");
    }
    return node(ps, (bt_rx_node_kind_t)kind, ps->rx->nodes[inner].a, 0);
}

static uint32_t parse_atom(parser_t *ps)
{
    if (take(ps, "(")) {
        return parse_group(ps);
    }
    if (take(ps, "$")) {
        const uint32_t first = ps->rx->n_ops;

        op(ps, BT_RX_RANGE, '\n', '\n');
        return node(ps, BT_RX_LINE_END, end_set(ps, first), 0);
    }
    if (take(ps, "\\z")) {
        return node(ps, BT_RX_TEXT_END, 0, 0);
    }
    if ((*ps->p == '^') || (*ps->p == '*') || (*ps->p == '+') ||
        (*ps->p == '?')) {
        fail(ps, BT_ERR_UNSUPPORTED, "%c is not supported here", *ps->p);
        return 0;
    }
    return node(ps, BT_RX_SET, parse_one_char(ps), 0);
}

/* ---- quantifiers ---- */

static bool parse_number(parser_t *ps, uint32_t *value_p)
{
    uint32_t value = 0;
    bool any = false;

    while (in_range(*ps->p, '0', '9')) {
        value = value * 10 + (uint32_t)(*ps->p++ - '0');
        any = true;
        if (value > MAX_REPEAT) {
            fail(ps, BT_ERR_TOO_LARGE, "more than %u repeats", MAX_REPEAT);
            return false;
        }
    }
    if (any) {
        *value_p = value;
    }
    return any;
}

/* {n} {n,} {,m} {n,m}: else the brace is a character.
 * @return whether it was one of these */
static bool parse_counts(parser_t *ps, uint32_t *min_p, uint32_t *max_p)
{
    const uint8_t *start = ps->p;
    uint32_t min = 0;
    uint32_t max = BT_RX_NONE;
    bool any;

    if (!take(ps, "{")) {
        return false;
    }
    any = parse_number(ps, &min);
    max = any ? min : max;
    if (take(ps, ",")) {
        max = BT_RX_NONE;
        any = parse_number(ps, &max) || any;
    }
    if (!any || !take(ps, "}")) {
        ps->p = start;
        return false;
    }
    if (min > max) {
        fail(ps, BT_ERR_BAD_FILE, "{%u,%u}", min, max);
    }
    *min_p = min;
    *max_p = max;
    return true;
}

static uint32_t parse_repeats(parser_t *ps)
{
    uint32_t atom = parse_atom(ps);

    while (ps->status == BT_OK) {
        uint32_t min = 0;
        uint32_t max = BT_RX_NONE;
        bool counted = false;
        bt_rx_node_kind_t kind = BT_RX_REPEAT;

        if (take(ps, "?")) {
            max = 1;
        } else if (take(ps, "+")) {
            min = 1;
        } else if (!take(ps, "*")) {
            counted = parse_counts(ps, &min, &max);
            if (!counted) {
                break;
            }
        }
        if (*ps->p == '?') {
            fail(ps, BT_ERR_UNSUPPORTED, "lazy quantifiers are not supported");
        } else if (!counted && take(ps, "+")) {
            kind = BT_RX_POSSESSIVE;
        }
        atom = node(ps, kind, atom, 0);
        ps->rx->nodes[atom].min = min;
        ps->rx->nodes[atom].max = max;
    }
    return atom;
}

static uint32_t parse_sequence(parser_t *ps)
{
    uint32_t all = node(ps, BT_RX_EMPTY, 0, 0);

    while ((ps->status == BT_OK) && (*ps->p != '\0') && (*ps->p != '|') &&
           (*ps->p != ')')) {
        const uint32_t next = parse_repeats(ps);

        all = (ps->rx->nodes[all].kind == BT_RX_EMPTY)
                  ? next
                  : node(ps, BT_RX_CAT, all, next);
    }
    return all;
}

static uint32_t parse_alternatives(parser_t *ps)
{
    uint32_t all = parse_sequence(ps);

    while ((ps->status == BT_OK) && take(ps, "|")) {
        const uint32_t next = parse_sequence(ps);

        all = node(ps, BT_RX_ALT, all, next);
    }
    return all;
}

bt_status_t bt_rx_parse(bt_rx_t *rx, const char *pattern, uint32_t *root_p)
{
    parser_t ps = {.rx = rx,
                   .pattern = pattern,
                   .p = (const uint8_t *)pattern,
                   .status = BT_OK};
    uint32_t root;

    if (strlen(pattern) > BT_REGEX_MAX_BYTES) {
        fail(&ps, BT_ERR_TOO_LARGE, "longer than %u bytes", BT_REGEX_MAX_BYTES);
        return ps.status;
    }
    if (!bt_utf8_valid((const uint8_t *)pattern, strlen(pattern))) {
        fail(&ps, BT_ERR_BAD_FILE, "not UTF-8");
        return ps.status;
    }
    root = parse_alternatives(&ps);
    if ((ps.status == BT_OK) && (*ps.p != '\0')) {
        fail(&ps, BT_ERR_BAD_FILE, ") without (");
    }
    if (ps.status == BT_OK) {
        *root_p = root;
    }
    return ps.status;
}
