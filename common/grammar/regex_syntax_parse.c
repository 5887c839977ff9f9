/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of patterns. Where dialects read a pattern differently it is refused,
 * or read as ECMA-262 does with flag u; where ECMA-262 has an error and the
 * others agree, it is read as they do. */
#include <stdio.h>
#include <string.h>

#include "common/base/text.h"
#include "common/grammar/regex_syntax.h"
#include "common/grammar/regex_syntax_priv.h"

#define MAX_NESTING 200u
#define NO_LIMIT    BT_REPEAT_NO_LIMIT
#define MAX_SIZE    ((uint64_t)1 << 40) /* of a pattern, where it is cut off */
#define END         (-1)

typedef struct parser {
    bt_grammar_compiler_t *c;
    const uint8_t *text;
    size_t n, at;
    uint32_t nesting;
    unsigned flags;       /* bt_regex_flags_t */
    bool in_negated;      /* inside of [^ */
    bool saw_empty_class; /* [] or [^], of which Python reads the ] as a
                             character of the class */
} parser_t;

/* ---- characters and failures ---- */

/* Returns the byte some bytes ahead, or END. */
static int byte_at(const parser_t *p, size_t ahead)
{
    return (ahead < p->n - p->at) ? p->text[p->at + ahead] : END;
}

static bool looking_at(const parser_t *p, const char *text)
{
    const size_t n = strlen(text);

    return (n <= p->n - p->at) && (memcmp(p->text + p->at, text, n) == 0);
}

static bool take(parser_t *p, const char *text)
{
    if (!looking_at(p, text)) {
        return false;
    }
    p->at += strlen(text);
    return true;
}

static void fail_at(parser_t *p, size_t at, bt_status_t status,
                    const char *what)
{
    bt_grammar_fail(p->c, status, "regex, byte %zu: %s", at, what);
}

static void invalid(parser_t *p, size_t at, const char *what)
{
    fail_at(p, at, BT_ERR_INVALID_PARAM, what);
}

static void unsupported(parser_t *p, size_t at, const char *what)
{
    fail_at(p, at, BT_ERR_UNSUPPORTED, what);
}

static uint32_t take_code_point(parser_t *p)
{
    uint32_t code_point;

    p->at += bt_utf8_decode(p->text + p->at, &code_point);
    return code_point;
}

static bool is_digit(int byte)
{
    return (byte >= '0') && (byte <= '9');
}

static bool is_letter(int byte)
{
    return ((byte >= 'a') && (byte <= 'z')) || ((byte >= 'A') && (byte <= 'Z'));
}

/* ---- tree ---- */

static bt_pattern_t *new_pattern(parser_t *p, bt_pattern_kind_t kind)
{
    bt_pattern_t *pattern = bt_grammar_spend(p->c, 1)
                                ? bt_grammar_alloc(p->c, 1, sizeof(*pattern))
                                : NULL;

    if (pattern != NULL) {
        pattern->kind = kind;
        pattern->size = 1;
        pattern->has_anchor =
            (kind == BT_PATTERN_BEGIN) || (kind == BT_PATTERN_END);
    }
    return pattern;
}

/* Appends a part; nothing where one of both is NULL. */
static void add_part(bt_pattern_t *pattern, bt_pattern_t *part)
{
    if ((pattern == NULL) || (part == NULL)) {
        return;
    }
    if (pattern->last == NULL) {
        pattern->first = part;
    } else {
        pattern->last->next = part;
    }
    pattern->last = part;
    pattern->size += part->size;
    pattern->size = (pattern->size < MAX_SIZE) ? pattern->size : MAX_SIZE;
    pattern->has_anchor = pattern->has_anchor || part->has_anchor;
    pattern->is_large = pattern->is_large || part->is_large;
}

static bt_pattern_t *new_repeat(parser_t *p, bt_pattern_t *part, uint32_t min,
                                uint32_t max)
{
    bt_pattern_t *repeat = new_pattern(p, BT_PATTERN_REPEAT);
    const uint64_t copies = (max == NO_LIMIT) ? (uint64_t)min + 1 : max;
    const uint32_t bound = (max == NO_LIMIT) ? min : max;

    if ((repeat == NULL) || (part == NULL)) {
        return NULL;
    }
    add_part(repeat, part);
    repeat->min = min;
    repeat->max = max;
    repeat->size = (copies == 0)                      ? 1
                   : (part->size > MAX_SIZE / copies) ? MAX_SIZE
                                                      : part->size * copies;
    if (copies == 0) {
        repeat->has_anchor = repeat->is_large = false;
    } else if ((bound > 1) && (repeat->size > BT_PATTERN_LARGE)) {
        repeat->is_large = true;
    }
    return repeat;
}

static bt_pattern_t *new_set(parser_t *p, const bt_code_set_t *set)
{
    bt_pattern_t *pattern = new_pattern(p, BT_PATTERN_SET);

    if (pattern != NULL) {
        pattern->set = *set;
        /* A range beyond ASCII takes states of its own. */
        for (uint32_t i = 0; i < set->n; i++) {
            pattern->size += set->ranges[i].hi >= 0x80;
        }
    }
    return pattern;
}

/* ---- escapes ---- */

/* ECMA-262's WhiteSpace and LineTerminator. */
static const bt_code_range_t white_space[] = {
    {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
    {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
static const bt_code_range_t word[] = {
    {'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const bt_code_range_t digit[] = {{'0', '9'}};
static const bt_code_range_t line_terminator[] = {
    {'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

static void add_ranges(parser_t *p, bt_code_set_t *set,
                       const bt_code_range_t *ranges, size_t n, bool negated)
{
    bt_code_set_t part = {0};

    for (size_t i = 0; i < n; i++) {
        bt_code_set_add(p->c, &part, ranges[i].lo, ranges[i].hi);
    }
    if (negated) {
        bt_code_set_negate(p->c, &part);
    }
    bt_code_set_add_all(p->c, set, &part);
}

/* Adds \d, \w or \s as Lark's readers have them: what is in the set of each of
 * them, or, in a negated class, what is in that of one of them. */
static void add_common_set(parser_t *p, bt_code_set_t *set, int letter,
                           bool negated)
{
    bt_code_set_t part = {0};

    bt_code_set_add_escape(p->c, &part, letter, negated != p->in_negated);
    if (negated) {
        bt_code_set_negate(p->c, &part);
    }
    bt_code_set_add_all(p->c, set, &part);
}

/* Reads \p{…}, \P{…}, \pL or \PL behind the p. */
static void take_property(parser_t *p, size_t start, bool negated,
                          bt_code_set_t *set)
{
    bt_code_set_t part = {0};
    size_t begin = p->at, n = 1;

    if (take(p, "{")) {
        begin = p->at;
        while ((byte_at(p, 0) != '}') && (byte_at(p, 0) != END)) {
            p->at++;
        }
        n = p->at - begin;
        if (!take(p, "}")) {
            invalid(p, start, "\\p{ has no }");
            return;
        }
    } else if (is_letter(byte_at(p, 0))) {
        p->at++;
    } else {
        invalid(p, start, "\\p has no property");
        return;
    }
    if (!bt_code_set_add_property(p->c, &part, (const char *)p->text + begin,
                                  n)) {
        bt_grammar_fail(p->c, BT_ERR_UNSUPPORTED,
                        "regex, byte %zu: property \"%s\" is not supported",
                        start,
                        bt_printable((const char *)p->text + begin, n).text);
        return;
    }
    if (negated) {
        bt_code_set_negate(p->c, &part);
    }
    bt_code_set_add_all(p->c, set, &part);
}

/* Reads a set escape, such as \d, behind the backslash. False: it is none. */
static bool take_set_escape(parser_t *p, size_t start, bt_code_set_t *set)
{
    const int letter = byte_at(p, 0);
    const bool negated = (letter >= 'A') && (letter <= 'Z');

    if (((p->flags & BT_REGEX_LARK) != 0) && (letter != END) &&
        (strchr("dDwWsS", letter) != NULL)) {
        add_common_set(p, set, letter | 0x20, negated);
        p->at++;
        return true;
    }
    switch (letter) {
    case 'd':
    case 'D':
        add_ranges(p, set, digit, BT_ARRAY_LEN(digit), negated);
        break;
    case 'w':
    case 'W':
        add_ranges(p, set, word, BT_ARRAY_LEN(word), negated);
        break;
    case 's':
    case 'S':
        add_ranges(p, set, white_space, BT_ARRAY_LEN(white_space), negated);
        break;
    case 'p':
    case 'P':
        p->at++;
        if ((p->flags & BT_REGEX_IGNORE_CASE) != 0) {
            unsupported(p, start, "a property beside flag i is not supported");
        }
        take_property(p, start, negated, set);
        return true;
    default:
        return false;
    }
    p->at++;
    return true;
}

/* Reads n hexadecimal digits. False: they are not there. */
static bool take_hex(parser_t *p, size_t n, uint32_t *value_p)
{
    uint32_t value = 0;

    for (size_t i = 0; i < n; i++) {
        const int byte = byte_at(p, i);
        const int hex = (byte == END) ? -1 : bt_hex_digit((char)byte);

        if (hex < 0) {
            return false;
        }
        value = value << 4 | (uint32_t)hex;
    }
    p->at += n;
    *value_p = value;
    return true;
}

/* Reads hexadecimal digits up to }, behind {. False: they are not there, or
 * are no code point. */
static bool take_braced_hex(parser_t *p, uint32_t *value_p)
{
    uint32_t value = 0;
    size_t n = 0;

    while (byte_at(p, 0) != '}') {
        uint32_t hex;

        if (!take_hex(p, 1, &hex)) {
            return false;
        }
        value = value << 4 | hex;
        n++;
        if (value > BT_CODE_POINT_MAX) {
            return false;
        }
    }
    p->at++;
    *value_p = value;
    return n > 0;
}

/* Reads \x41, \x{41}, \u0041, \u{41}, \ud83d\ude00 or \U00000041, behind the
 * letter. */
static uint32_t take_hex_escape(parser_t *p, size_t start, int letter)
{
    const size_t n_digits = (letter == 'x') ? 2 : (letter == 'u') ? 4 : 8;
    uint32_t value = 0, low = 0;

    if ((letter != 'U') && take(p, "{")) {
        if (!take_braced_hex(p, &value)) {
            invalid(p, start, "the escape has no code point in hexadecimal");
        }
        return value;
    }
    if (!take_hex(p, n_digits, &value) || (value > BT_CODE_POINT_MAX)) {
        invalid(p, start, "the escape has no code point in hexadecimal");
        return 0;
    }
    if ((letter == 'u') && (value >= 0xD800) && (value <= 0xDBFF)) {
        const size_t behind = p->at;

        if (take(p, "\\u") && take_hex(p, 4, &low) && (low >= 0xDC00) &&
            (low <= 0xDFFF)) {
            return 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        }
        p->at = behind;
    }
    return value;
}

/* Says why an escape of a letter or a digit is none of a character. */
static void refuse_escape(parser_t *p, size_t start, int letter, bool in_class)
{
    static const struct {
        char letters[8];
        const char *what;
    } reasons[] = {
        {"bB", "word boundaries are not supported"},
        {"k", "back references are not supported"},
        {"Z", "\\Z means different things; write $ for the end of the text"},
        {"G", "\\G is not supported"},
        {"QE", "quoting by \\Q and \\E is not supported"},
        {"K", "\\K is not supported"},
        {"XRhHVN", "this escape is not supported; write a class"},
    };

    if (is_digit(letter)) {
        if (in_class || (letter == '0')) {
            unsupported(p, start,
                        "octal escapes are not supported; write \\x00");
        } else {
            unsupported(p, start, "back references are not supported");
        }
        return;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        if (!in_class && (strchr(reasons[i].letters, letter) != NULL)) {
            unsupported(p, start, reasons[i].what);
            return;
        }
    }
    invalid(p, start, "this letter has no meaning behind a backslash");
}

/* Reads an escape of one character, behind the backslash. */
static uint32_t take_escape(parser_t *p, size_t start, bool in_class)
{
    /* Control characters and the letters for them. */
    static const char letters[] = "tnvfr";
    static const uint8_t controls[] = {'\t', '\n', '\v', '\f', '\r'};
    const int letter = byte_at(p, 0);
    const char *found;

    if (letter == END) {
        invalid(p, start, "nothing follows the backslash");
        return 0;
    }
    if (!is_letter(letter) && !is_digit(letter)) {
        return take_code_point(p); /* itself */
    }
    p->at++;
    found = strchr(letters, letter);
    if (found != NULL) {
        return controls[found - letters];
    }
    if ((letter == 'x') || (letter == 'u') || (letter == 'U')) {
        return take_hex_escape(p, start, letter);
    }
    if ((letter == 'b') && in_class) {
        return '\b';
    }
    if ((letter == '0') && !is_digit(byte_at(p, 0))) {
        return 0;
    }
    if (letter == 'c') {
        const int control = byte_at(p, 0);

        if (!is_letter(control)) {
            invalid(p, start, "\\c has no letter");
            return 0;
        }
        p->at++;
        return (uint32_t)control % 32;
    }
    refuse_escape(p, start, letter, in_class);
    return 0;
}

/* Adds characters that a pattern has, with flag i in both cases: of ASCII
 * letters alone, since readers differ in what else is one. Of a negated class
 * the others go, too. */
static void add_characters(parser_t *p, bt_code_set_t *set, uint32_t lo,
                           uint32_t hi)
{
    static const bt_code_range_t others[] = {
        {'i', 0x130}, {'i', 0x131}, {'k', 0x212A}, {'s', 0x17F}};

    bt_code_set_add(p->c, set, lo, hi);
    if ((p->flags & BT_REGEX_IGNORE_CASE) == 0) {
        return;
    }
    if (hi >= 0x80) {
        unsupported(p, p->at,
                    "a character beyond ASCII beside flag i is not supported");
    }
    for (uint32_t x = lo; (x <= hi) && bt_grammar_ok(p->c); x++) {
        if (!is_letter((int)x)) {
            continue;
        }
        bt_code_set_add(p->c, set, x ^ 0x20, x ^ 0x20);
        for (size_t i = 0; p->in_negated && (i < BT_ARRAY_LEN(others)); i++) {
            if ((x | 0x20) == others[i].lo) {
                bt_code_set_add(p->c, set, others[i].hi, others[i].hi);
            }
        }
    }
}

/* ---- classes ---- */

/* Reads one part of a class. @return false: a set, which was added */
static bool take_class_atom(parser_t *p, bt_code_set_t *set,
                            uint32_t *code_point_p)
{
    const size_t start = p->at;

    if ((byte_at(p, 0) == '[') &&
        ((byte_at(p, 1) == ':') || (byte_at(p, 1) == '=') ||
         (byte_at(p, 1) == '.'))) {
        const uint8_t mark[] = {(uint8_t)byte_at(p, 1), ']'};

        if (memmem(p->text + p->at + 2, p->n - p->at - 2, mark, sizeof(mark)) !=
            NULL) {
            unsupported(p, start, "classes as [:alpha:] are not supported");
        }
    }
    if (!take(p, "\\")) {
        *code_point_p = take_code_point(p);
        return true;
    }
    if (take_set_escape(p, start, set)) {
        return false;
    }
    *code_point_p = take_escape(p, start, true);
    return true;
}

/* Reads a class behind its [. */
static bt_pattern_t *parse_class(parser_t *p)
{
    const size_t start = p->at - 1;
    const bool negated = take(p, "^");
    bt_code_set_t set = {0};

    p->in_negated = negated;
    p->saw_empty_class = p->saw_empty_class || (byte_at(p, 0) == ']');
    while (bt_grammar_ok(p->c) && (byte_at(p, 0) != ']')) {
        const size_t at = p->at;
        uint32_t lo = 0, hi = 0;
        bool lo_is_one, hi_is_one;

        if (byte_at(p, 0) == END) {
            invalid(p, start, "[ has no ]");
            return NULL;
        }
        lo_is_one = take_class_atom(p, &set, &lo);
        if ((byte_at(p, 0) != '-') || (byte_at(p, 1) == ']') ||
            (byte_at(p, 1) == END)) {
            if (lo_is_one) {
                add_characters(p, &set, lo, lo);
            }
            continue;
        }
        p->at++;
        hi_is_one = take_class_atom(p, &set, &hi);
        if (lo_is_one && hi_is_one) {
            if (lo > hi) {
                invalid(p, at, "the range of the class is out of order");
            }
            add_characters(p, &set, lo, hi);
            continue;
        }
        /* A set is no end of a range: the - is a character. */
        bt_code_set_add(p->c, &set, '-', '-');
        if (lo_is_one || hi_is_one) {
            const uint32_t one = lo_is_one ? lo : hi;

            add_characters(p, &set, one, one);
        }
    }
    if (!bt_grammar_ok(p->c)) {
        return NULL;
    }
    p->at++;
    p->in_negated = false;
    if (negated) {
        bt_code_set_negate(p->c, &set);
    } else {
        bt_code_set_normalize(p->c, &set);
    }
    return new_set(p, &set);
}

/* ---- parts ---- */

static bt_pattern_t *parse_alternatives(parser_t *p);

/* Refuses what stands behind (? and is no plain parenthesis. */
static void refuse_parenthesis(parser_t *p, size_t start)
{
    static const struct {
        const char *begin, *what;
    } reasons[] = {
        {"=", "look-ahead is not supported"},
        {"!", "look-ahead is not supported"},
        {"<=", "look-behind is not supported"},
        {"<!", "look-behind is not supported"},
        {">", "atomic parentheses are not supported"},
        {"P=", "back references are not supported"},
        {"P>", "recursion is not supported"},
        {"R", "recursion is not supported"},
        {"&", "recursion is not supported"},
        {"#", "comments are not supported"},
        {"(", "conditions are not supported"},
        {"|", "branch resets are not supported"},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(reasons); i++) {
        if (looking_at(p, reasons[i].begin)) {
            unsupported(p, start, reasons[i].what);
            return;
        }
    }
    if (is_digit(byte_at(p, 0)) ||
        (((byte_at(p, 0) == '+') || (byte_at(p, 0) == '-')) &&
         is_digit(byte_at(p, 1)))) {
        unsupported(p, start, "recursion is not supported");
    } else if (is_letter(byte_at(p, 0)) || (byte_at(p, 0) == '-') ||
               (byte_at(p, 0) == '^')) {
        unsupported(p, start,
                    "flags in the pattern, as (?i), are not supported");
    } else {
        invalid(p, start, "(? is followed by no known sign");
    }
}

/* Reads the name behind < and its >. */
static void take_name(parser_t *p, size_t start)
{
    const size_t begin = p->at;

    while (is_letter(byte_at(p, 0)) || is_digit(byte_at(p, 0)) ||
           (byte_at(p, 0) == '_') || (byte_at(p, 0) == '$') ||
           (byte_at(p, 0) >= 0x80)) {
        p->at++;
    }
    if ((p->at == begin) || is_digit(p->text[begin]) || !take(p, ">")) {
        invalid(p, start, "the name of the parentheses is malformed");
    }
}

/* Reads behind a (. */
static bt_pattern_t *parse_parenthesis(parser_t *p)
{
    const size_t start = p->at - 1;
    bt_pattern_t *pattern;

    if (take(p, "?") && !take(p, ":")) {
        if (take(p, "P<")) {
            take_name(p, start);
        } else if ((byte_at(p, 0) == '<') && (byte_at(p, 1) != '=') &&
                   (byte_at(p, 1) != '!')) {
            p->at++;
            take_name(p, start);
        } else {
            refuse_parenthesis(p, start);
        }
    } else if (looking_at(p, "*") && is_letter(byte_at(p, 1))) {
        unsupported(p, start, "verbs, as (*FAIL), are not supported");
    }
    if (++p->nesting > MAX_NESTING) {
        bt_grammar_fail(p->c, BT_ERR_TOO_LARGE,
                        "regex, byte %zu: more than %u parentheses in one "
                        "another",
                        start, MAX_NESTING);
    }
    if (!bt_grammar_ok(p->c)) {
        return NULL;
    }
    pattern = parse_alternatives(p);
    p->nesting--;
    if (bt_grammar_ok(p->c) && !take(p, ")")) {
        invalid(p, start, "( has no )");
    }
    return pattern;
}

static bt_pattern_t *parse_one(parser_t *p, uint32_t code_point)
{
    bt_code_set_t set = {0};

    add_characters(p, &set, code_point, code_point);
    bt_code_set_normalize(p->c, &set);
    return new_set(p, &set);
}

/* ^, $, \A and \z. */
static bt_pattern_t *parse_anchor(parser_t *p, size_t start,
                                  bt_pattern_kind_t kind)
{
    if ((p->flags & BT_REGEX_LARK) != 0) {
        unsupported(p, start, "^ and $ in a terminal are not supported");
    }
    return new_pattern(p, kind);
}

/* `.`: any character, or any that ends no line. */
static bt_pattern_t *parse_dot(parser_t *p)
{
    bt_code_set_t set = {0};

    if ((p->flags & BT_REGEX_DOT_ALL) != 0) {
        bt_code_set_add(p->c, &set, 0, BT_CODE_POINT_MAX);
    } else {
        const bool is_lark = (p->flags & BT_REGEX_LARK) != 0;

        add_ranges(p, &set, line_terminator,
                   is_lark ? 1 : BT_ARRAY_LEN(line_terminator), true);
    }
    bt_code_set_normalize(p->c, &set);
    return new_set(p, &set);
}

static bt_pattern_t *parse_escape(parser_t *p, size_t start)
{
    bt_code_set_t set = {0};

    if (take(p, "A")) {
        return parse_anchor(p, start, BT_PATTERN_BEGIN);
    }
    if (take(p, "z")) {
        return parse_anchor(p, start, BT_PATTERN_END);
    }
    if (take_set_escape(p, start, &set)) {
        bt_code_set_normalize(p->c, &set);
        return new_set(p, &set);
    }
    return parse_one(p, take_escape(p, start, false));
}

static bt_pattern_t *parse_atom(parser_t *p)
{
    const size_t start = p->at;

    switch (byte_at(p, 0)) {
    case '(':
        p->at++;
        return parse_parenthesis(p);
    case '[':
        p->at++;
        return parse_class(p);
    case '\\':
        p->at++;
        return parse_escape(p, start);
    case '^':
        p->at++;
        return parse_anchor(p, start, BT_PATTERN_BEGIN);
    case '$':
        p->at++;
        return parse_anchor(p, start, BT_PATTERN_END);
    case '.':
        p->at++;
        return parse_dot(p);
    case ']':
        if (p->saw_empty_class) {
            invalid(p, start,
                    "] has no [; [] and [^] end at their first ]: write \\]");
            return NULL;
        }
        break;
    default:
        break;
    }
    return parse_one(p, take_code_point(p));
}

/* ---- quantifiers ---- */

/* Reads a number of decimal digits. */
static uint32_t take_count(parser_t *p, size_t start)
{
    uint64_t count = 0;

    while (is_digit(byte_at(p, 0))) {
        count = count * 10 + (uint32_t)(byte_at(p, 0) - '0');
        if (count >= NO_LIMIT) {
            fail_at(p, start, BT_ERR_TOO_LARGE,
                    "the count is above 4294967294");
            return 0;
        }
        p->at++;
    }
    return (uint32_t)count;
}

/* Length of a counted quantifier that begins here; 0: the { is a character. */
static size_t count_length(const parser_t *p)
{
    size_t n = 1, n_low, n_high = 0;

    if (byte_at(p, 0) != '{') {
        return 0;
    }
    while (is_digit(byte_at(p, n))) {
        n++;
    }
    n_low = n - 1;
    if (byte_at(p, n) == ',') {
        n++;
        while (is_digit(byte_at(p, n))) {
            n++;
            n_high++;
        }
    }
    return (((n_low > 0) || (n_high > 0)) && (byte_at(p, n) == '}')) ? n + 1
                                                                     : 0;
}

static bool at_quantifier(const parser_t *p)
{
    const int byte = byte_at(p, 0);

    return (byte == '*') || (byte == '+') || (byte == '?') ||
           (count_length(p) > 0);
}

static void take_bounds(parser_t *p, uint32_t *min_p, uint32_t *max_p)
{
    const size_t start = p->at;

    *min_p = looking_at(p, "+") ? 1 : 0;
    *max_p = looking_at(p, "?") ? 1 : NO_LIMIT;
    p->at++;
    if (p->text[start] != '{') {
        return;
    }
    if (looking_at(p, ",")) {
        unsupported(p, start,
                    "{,n} means different things; write {0,n} for up to n");
        return;
    }
    *min_p = *max_p = take_count(p, start);
    if (take(p, ",")) {
        *max_p = looking_at(p, "}") ? NO_LIMIT : take_count(p, start);
    }
    p->at++; /* } */
    if (*min_p > *max_p) {
        invalid(p, start, "the counts are out of order");
    }
}

/* Reads an atom with its quantifier. */
static bt_pattern_t *parse_item(parser_t *p)
{
    bt_pattern_t *atom = NULL;
    uint32_t min, max;

    if (at_quantifier(p)) {
        invalid(p, p->at, "there is nothing to repeat");
        return NULL;
    }
    atom = parse_atom(p);
    if ((atom == NULL) || !at_quantifier(p)) {
        return atom;
    }
    if (((atom->kind == BT_PATTERN_BEGIN) || (atom->kind == BT_PATTERN_END)) &&
        (p->text[p->at - 1] != ')')) {
        invalid(p, p->at, "there is nothing to repeat");
        return NULL;
    }
    take_bounds(p, &min, &max);
    if (take(p, "?") && ((p->flags & BT_REGEX_LARK) != 0)) {
        unsupported(p, p->at,
                    "lazy quantifiers, as *?, are not supported: "
                    "write what does not occur");
    } /* else lazy: the texts are the same */
    if (looking_at(p, "+")) {
        unsupported(p, p->at, "possessive quantifiers are not supported");
    } else if (bt_grammar_ok(p->c) && at_quantifier(p)) {
        invalid(p, p->at, "a quantifier follows a quantifier");
    }
    return bt_grammar_ok(p->c) ? new_repeat(p, atom, min, max) : NULL;
}

/* ---- sequences ---- */

static bt_pattern_t *parse_sequence(parser_t *p)
{
    bt_pattern_t *sequence = new_pattern(p, BT_PATTERN_SEQ);

    while (bt_grammar_ok(p->c) && (p->at < p->n) && (byte_at(p, 0) != '|') &&
           (byte_at(p, 0) != ')')) {
        add_part(sequence, parse_item(p));
    }
    /* One part stands for itself. */
    return (sequence != NULL) && (sequence->first != NULL) &&
                   (sequence->first == sequence->last)
               ? sequence->first
               : sequence;
}

static bt_pattern_t *parse_alternatives(parser_t *p)
{
    bt_pattern_t *first = parse_sequence(p);
    bt_pattern_t *alternatives;

    if (!bt_grammar_ok(p->c) || !looking_at(p, "|")) {
        return first;
    }
    alternatives = new_pattern(p, BT_PATTERN_ALT);
    add_part(alternatives, first);
    while (bt_grammar_ok(p->c) && take(p, "|")) {
        add_part(alternatives, parse_sequence(p));
    }
    return alternatives;
}

bt_pattern_t *bt_pattern_parse(bt_grammar_compiler_t *c, const char *pattern,
                               size_t n, unsigned flags)
{
    parser_t p = {
        .c = c, .text = (const uint8_t *)pattern, .n = n, .flags = flags};
    bt_pattern_t *root;

    if (n > BT_GRAMMAR_REGEX_BYTES) {
        bt_grammar_fail(c, BT_ERR_TOO_LARGE, "the regex has %zu bytes, over %u",
                        n, BT_GRAMMAR_REGEX_BYTES);
    } else if (!bt_utf8_valid(p.text, n)) {
        bt_grammar_fail(c, BT_ERR_INVALID_PARAM, "the regex is not UTF-8");
    }
    if (!bt_grammar_ok(c)) {
        return NULL;
    }
    root = parse_alternatives(&p);
    if (bt_grammar_ok(c) && (p.at < n)) {
        invalid(&p, p.at, ") has no (");
    }
    return bt_grammar_ok(c) ? root : NULL;
}
