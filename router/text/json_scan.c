/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/json_scan.h"

#include <string.h>

#include "common/base/text.h"

typedef enum state {
    VALUE,         /* a value must begin */
    FIRST_VALUE,   /* a value, or the end of the array */
    FIRST_KEY,     /* a key, or the end of the object */
    KEY,           /* a key must begin */
    IN_KEY,        /* within a key */
    COLON,         /* after a key */
    BEHIND,        /* after a value: a comma, or the end */
    IN_STRING,     /* within a string value */
    ESCAPE,        /* after a backslash in a value; in a key: KEY_ESCAPE */
    KEY_ESCAPE,    /* */
    HEX,           /* hex digits of an escape */
    KEY_HEX,       /* */
    WORD,          /* true, false, null */
    MINUS,         /* a digit must come */
    ZERO,          /* no digit may come */
    DIGITS,        /* of the integer part */
    POINT,         /* a digit must come */
    FRACTION,      /* digits */
    EXPONENT,      /* a sign or a digit must come */
    EXPONENT_SIGN, /* a digit must come */
    EXPONENT_DIGITS,
} state_t;

bool bt_json_is_space(char c)
{
    return (c == ' ') || (c == '\t') || (c == '\n') || (c == '\r');
}

static bool is_digit(char c)
{
    return (c >= '0') && (c <= '9');
}

void bt_json_scan_init(bt_json_scan_t *scan)
{
    memset(scan, 0, sizeof(*scan));
    scan->state = VALUE;
}

static bool in_object(const bt_json_scan_t *scan)
{
    return ((scan->objects >> (scan->depth - 1)) & 1) != 0;
}

static bt_json_scan_result_t go(bt_json_scan_t *scan, state_t state)
{
    scan->state = (uint8_t)state;
    return BT_JSON_SCAN_MORE;
}

static bt_json_scan_result_t open_level(bt_json_scan_t *scan, bool object)
{
    const uint64_t bit = (uint64_t)1 << (scan->depth % 64);

    if (scan->depth == BT_JSON_SCAN_MAX_DEPTH) {
        return BT_JSON_SCAN_BAD;
    }
    scan->objects = object ? scan->objects | bit : scan->objects & ~bit;
    scan->depth++;
    return go(scan, object ? FIRST_KEY : FIRST_VALUE);
}

static bt_json_scan_result_t close_level(bt_json_scan_t *scan, char c)
{
    if (c != (in_object(scan) ? '}' : ']')) {
        return BT_JSON_SCAN_BAD;
    }
    scan->depth--;
    (void)go(scan, BEHIND);
    return (scan->depth == 0) ? BT_JSON_SCAN_DONE : BT_JSON_SCAN_MORE;
}

static bt_json_scan_result_t word(bt_json_scan_t *scan, const char *rest)
{
    scan->word = rest;
    return go(scan, WORD);
}

static bt_json_scan_result_t begin_value(bt_json_scan_t *scan, char c)
{
    if ((c == '{') || (c == '[')) {
        return open_level(scan, c == '{');
    }
    if (scan->depth == 0) {
        return BT_JSON_SCAN_BAD;
    }
    switch (c) {
    case '"':
        return go(scan, IN_STRING);
    case 't':
        return word(scan, &"true"[1]);
    case 'f':
        return word(scan, &"false"[1]);
    case 'n':
        return word(scan, &"null"[1]);
    case '-':
        return go(scan, MINUS);
    case '0':
        return go(scan, ZERO);
    default:
        return is_digit(c) ? go(scan, DIGITS) : BT_JSON_SCAN_BAD;
    }
}

static bt_json_scan_result_t behind(bt_json_scan_t *scan, char c)
{
    if (bt_json_is_space(c)) {
        return go(scan, BEHIND);
    }
    if (c == ',') {
        return go(scan, in_object(scan) ? KEY : VALUE);
    }
    return close_level(scan, c);
}

static bt_json_scan_result_t in_string(bt_json_scan_t *scan, char c,
                                       bool is_key)
{
    if (c == '"') {
        return go(scan, is_key ? COLON : BEHIND);
    }
    if (c == '\\') {
        return go(scan, is_key ? KEY_ESCAPE : ESCAPE);
    }
    return ((unsigned char)c < 0x20) ? BT_JSON_SCAN_BAD : BT_JSON_SCAN_MORE;
}

static bt_json_scan_result_t escape(bt_json_scan_t *scan, char c, bool is_key)
{
    if (c == 'u') {
        scan->n_hex = 4;
        return go(scan, is_key ? KEY_HEX : HEX);
    }
    if ((c == '\0') || (strchr("\"\\/bfnrt", c) == NULL)) {
        return BT_JSON_SCAN_BAD;
    }
    return go(scan, is_key ? IN_KEY : IN_STRING);
}

static bt_json_scan_result_t hex(bt_json_scan_t *scan, char c, bool is_key)
{
    if (bt_hex_digit(c) < 0) {
        return BT_JSON_SCAN_BAD;
    }
    if (--scan->n_hex > 0) {
        return BT_JSON_SCAN_MORE;
    }
    return go(scan, is_key ? IN_KEY : IN_STRING);
}

/* Processes a byte of a number, or the byte after its end. */
static bt_json_scan_result_t in_number(bt_json_scan_t *scan, char c)
{
    const state_t state = (state_t)scan->state;
    const bool digit = is_digit(c);
    const bool exponent = (c == 'e') || (c == 'E');

    switch (state) {
    case MINUS:
        return digit ? go(scan, (c == '0') ? ZERO : DIGITS) : BT_JSON_SCAN_BAD;
    case POINT:
        return digit ? go(scan, FRACTION) : BT_JSON_SCAN_BAD;
    case EXPONENT:
        if ((c == '+') || (c == '-')) {
            return go(scan, EXPONENT_SIGN);
        }
        return digit ? go(scan, EXPONENT_DIGITS) : BT_JSON_SCAN_BAD;
    case EXPONENT_SIGN:
        return digit ? go(scan, EXPONENT_DIGITS) : BT_JSON_SCAN_BAD;
    case DIGITS:
    case FRACTION:
    case EXPONENT_DIGITS:
        if (digit) {
            return BT_JSON_SCAN_MORE;
        }
        break;
    default: /* ZERO */
        break;
    }
    if ((c == '.') && ((state == ZERO) || (state == DIGITS))) {
        return go(scan, POINT);
    }
    if (exponent && (state != EXPONENT_DIGITS)) {
        return go(scan, EXPONENT);
    }
    return behind(scan, c);
}

static bt_json_scan_result_t in_word(bt_json_scan_t *scan, char c)
{
    if (*scan->word != c) {
        return BT_JSON_SCAN_BAD;
    }
    scan->word++;
    return (*scan->word == '\0') ? go(scan, BEHIND) : BT_JSON_SCAN_MORE;
}

bt_json_scan_result_t bt_json_scan_push(bt_json_scan_t *scan, char c)
{
    const state_t state = (state_t)scan->state;

    switch (state) {
    case IN_KEY:
    case IN_STRING:
        return in_string(scan, c, state == IN_KEY);
    case KEY_ESCAPE:
    case ESCAPE:
        return escape(scan, c, state == KEY_ESCAPE);
    case KEY_HEX:
    case HEX:
        return hex(scan, c, state == KEY_HEX);
    case WORD:
        return in_word(scan, c);
    case BEHIND:
        return behind(scan, c);
    case VALUE:
    case FIRST_VALUE:
    case FIRST_KEY:
    case KEY:
    case COLON:
        break;
    default:
        return in_number(scan, c);
    }
    if (bt_json_is_space(c)) {
        return BT_JSON_SCAN_MORE;
    }
    switch (state) {
    case FIRST_VALUE:
        return (c == ']') ? close_level(scan, c) : begin_value(scan, c);
    case FIRST_KEY:
        if (c == '}') {
            return close_level(scan, c);
        }
        return (c == '"') ? go(scan, IN_KEY) : BT_JSON_SCAN_BAD;
    case KEY:
        return (c == '"') ? go(scan, IN_KEY) : BT_JSON_SCAN_BAD;
    case COLON:
        return (c == ':') ? go(scan, VALUE) : BT_JSON_SCAN_BAD;
    default:
        return begin_value(scan, c);
    }
}
