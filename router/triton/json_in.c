/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/json_in.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"

#define NUMBER_BYTES 64 /* longer numbers are parsed in place */
#define BOM          "\xEF\xBB\xBF"

void bt_json_in_init(bt_json_in_t *in, const char *text, size_t bytes)
{
    const size_t n = sizeof(BOM) - 1;
    const bool marked = (bytes >= n) && (memcmp(text, BOM, n) == 0);

    *in = (bt_json_in_t){.text = text, .at = marked ? n : 0, .bytes = bytes};
}

static void fail(bt_json_in_t *in, const char *why)
{
    if (in->why == NULL) {
        in->why = why;
    }
}

/* Returns the current byte; 0 at the end. */
static char look(const bt_json_in_t *in)
{
    return (in->at < in->bytes) ? in->text[in->at] : '\0';
}

static void skip_blanks(bt_json_in_t *in)
{
    while (in->at < in->bytes) {
        const char c = in->text[in->at];

        if ((c != ' ') && (c != '\t') && (c != '\n') && (c != '\r')) {
            return;
        }
        in->at++;
    }
}

bt_json_in_kind_t bt_json_in_peek(bt_json_in_t *in)
{
    if (in->why != NULL) {
        return BT_JSON_IN_NONE;
    }
    skip_blanks(in);
    switch (look(in)) {
    case '{':
        return BT_JSON_IN_OBJECT;
    case '[':
        return BT_JSON_IN_ARRAY;
    case '"':
        return BT_JSON_IN_STRING;
    case 't':
    case 'f':
        return BT_JSON_IN_BOOL;
    case 'n':
        return BT_JSON_IN_NULL;
    case '-':
        return BT_JSON_IN_NUMBER;
    default:
        break;
    }
    if ((look(in) >= '0') && (look(in) <= '9')) {
        return BT_JSON_IN_NUMBER;
    }
    fail(in, (in->at == in->bytes) ? "the text ends too soon"
                                   : "a value is expected");
    return BT_JSON_IN_NONE;
}

/* ---- structure ---- */

void bt_json_in_enter(bt_json_in_t *in, bt_json_in_kind_t kind)
{
    if (bt_json_in_peek(in) != kind) {
        fail(in, (kind == BT_JSON_IN_OBJECT) ? "an object is expected"
                                             : "an array is expected");
        return;
    }
    if (++in->depth > BT_JSON_IN_MAX_DEPTH) {
        fail(in, "it is nested too deep");
        return;
    }
    in->at++;
}

/* True when another member follows. */
static bool another(bt_json_in_t *in, bool *first, char end)
{
    if (in->why != NULL) {
        return false;
    }
    skip_blanks(in);
    if (look(in) == end) {
        in->at++;
        in->depth--;
        return false;
    }
    if (!*first) {
        if (look(in) != ',') {
            fail(in, (in->at == in->bytes) ? "the text ends too soon"
                                           : "a comma is expected");
            return false;
        }
        in->at++;
    }
    *first = false;
    return true;
}

bool bt_json_in_next(bt_json_in_t *in, bool *first)
{
    return another(in, first, ']');
}

bool bt_json_in_key(bt_json_in_t *in, bool *first, bt_strbuf_t *key)
{
    if (!another(in, first, '}')) {
        return false;
    }
    skip_blanks(in);
    bt_strbuf_reset(key);
    if (look(in) != '"') {
        fail(in, "a key is expected");
        return false;
    }
    bt_json_in_string(in, key);
    skip_blanks(in);
    if (look(in) != ':') {
        fail(in, "a colon is expected");
        return false;
    }
    in->at++;
    return in->why == NULL;
}

/* ---- strings ---- */

static int hex_of(char c)
{
    if ((c >= '0') && (c <= '9')) {
        return c - '0';
    }
    if ((c >= 'a') && (c <= 'f')) {
        return c - 'a' + 10;
    }
    return ((c >= 'A') && (c <= 'F')) ? c - 'A' + 10 : -1;
}

/* Reads the four digits after "\u"; above 0xFFFF: invalid. */
static uint32_t unit_at(const bt_json_in_t *in, size_t at)
{
    uint32_t unit = 0;

    if (in->bytes - at < 4) {
        return UINT32_MAX;
    }
    for (size_t i = 0; i < 4; i++) {
        const int digit = hex_of(in->text[at + i]);

        if (digit < 0) {
            return UINT32_MAX;
        }
        unit = unit * 16 + (uint32_t)digit;
    }
    return unit;
}

static void put_character(bt_strbuf_t *out, uint32_t c)
{
    uint8_t bytes[4];

    bt_strbuf_append(out, bytes, bt_utf8_encode(c, bytes));
}

/* Reads an escape from its 'u' on. */
static void take_unicode(bt_json_in_t *in, bt_strbuf_t *out)
{
    uint32_t c = unit_at(in, in->at + 1);
    uint32_t low;

    if (c > 0xFFFF) {
        fail(in, "\\u needs four digits");
        return;
    }
    in->at += 5;
    if ((c >= 0xD800) && (c < 0xDC00) && (in->bytes - in->at >= 6) &&
        (in->text[in->at] == '\\') && (in->text[in->at + 1] == 'u')) {
        low = unit_at(in, in->at + 2);
        if ((low >= 0xDC00) && (low < 0xE000)) {
            c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
            in->at += 6;
        }
    }
    /* An unpaired surrogate cannot be encoded in UTF-8. */
    put_character(out, ((c >= 0xD800) && (c < 0xE000)) ? 0xFFFD : c);
}

/* Reads an escape after its backslash. */
static void take_escape(bt_json_in_t *in, bt_strbuf_t *out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char c = look(in);
    const char *found = (c != '\0') ? strchr(from, c) : NULL;

    if (c == 'u') {
        take_unicode(in, out);
    } else if (found != NULL) {
        bt_strbuf_append(out, &to[found - from], 1);
        in->at++;
    } else {
        fail(in, "an escape that JSON does not have");
    }
}

/* Number of following bytes that are not escaped. */
static size_t plain_bytes(bt_json_in_t *in)
{
    size_t at = in->at;

    while (at < in->bytes) {
        const unsigned char c = (unsigned char)in->text[at];

        if ((c == '"') || (c == '\\') || (c < 0x20)) {
            break;
        }
        if (c < 0x80) {
            at++;
        } else {
            const int n =
                bt_utf8_scan((const uint8_t *)in->text + at, in->bytes - at);

            if (n <= 0) {
                fail(in, "a string is not valid UTF-8");
                break;
            }
            at += (size_t)n;
        }
    }
    return at - in->at;
}

void bt_json_in_string(bt_json_in_t *in, bt_strbuf_t *out)
{
    if (bt_json_in_peek(in) != BT_JSON_IN_STRING) {
        fail(in, "a string is expected");
        return;
    }
    in->at++;
    while (in->why == NULL) {
        const size_t n = plain_bytes(in);

        bt_strbuf_append(out, in->text + in->at, n);
        in->at += n;
        if (in->at == in->bytes) {
            fail(in, "a string does not end");
        } else if (in->text[in->at] == '"') {
            in->at++;
            return;
        } else if (in->text[in->at] == '\\') {
            in->at++;
            take_escape(in, out);
        } else {
            fail(in, "a string holds a control character");
        }
    }
}

/* ---- numbers and words ---- */

static size_t take_digits(bt_json_in_t *in)
{
    const size_t from = in->at;

    while ((look(in) >= '0') && (look(in) <= '9')) {
        in->at++;
    }
    return in->at - from;
}

/* Reads the integer part's digits. @return false: more than 64 bits */
static bool magnitude_of(const char *digits, size_t n, uint64_t *magnitude_p)
{
    uint64_t magnitude = 0;

    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(magnitude, 10, &magnitude) ||
            __builtin_add_overflow(magnitude, (uint64_t)(digits[i] - '0'),
                                   &magnitude)) {
            return false;
        }
    }
    *magnitude_p = magnitude;
    return true;
}

void bt_json_in_number(bt_json_in_t *in, bt_json_number_t *number)
{
    char copy[NUMBER_BYTES];
    size_t from;
    size_t digits;
    size_t n;
    bool whole = true;

    *number = (bt_json_number_t){0};
    if (bt_json_in_peek(in) != BT_JSON_IN_NUMBER) {
        fail(in, "a number is expected");
        return;
    }
    from = in->at;
    number->negative = look(in) == '-';
    in->at += number->negative ? 1 : 0;
    digits = in->at;
    n = take_digits(in);
    if ((n == 0) || ((n > 1) && (in->text[digits] == '0'))) {
        fail(in, "a number is malformed");
        return;
    }
    if (look(in) == '.') {
        whole = false;
        in->at++;
        if (take_digits(in) == 0) {
            fail(in, "a number is malformed");
            return;
        }
    }
    if ((look(in) == 'e') || (look(in) == 'E')) {
        whole = false;
        in->at++;
        in->at += ((look(in) == '+') || (look(in) == '-')) ? 1 : 0;
        if (take_digits(in) == 0) {
            fail(in, "a number is malformed");
            return;
        }
    }
    number->text = in->text + from;
    number->bytes = in->at - from;
    number->is_integer =
        whole && magnitude_of(in->text + digits, n, &number->magnitude);
    if (number->is_integer && (number->magnitude < (UINT64_C(1) << 53))) {
        number->real = (double)number->magnitude;
        number->real = number->negative ? -number->real : number->real;
        return;
    }
    if (number->bytes < sizeof(copy)) {
        memcpy(copy, number->text, number->bytes);
        copy[number->bytes] = '\0';
        number->real = strtod(copy, NULL);
    } else if (in->at < in->bytes) {
        number->real = strtod(number->text, NULL); /* a terminator follows */
    } else {
        fail(in, "the text ends too soon");
    }
}

static bool take_word(bt_json_in_t *in, const char *word)
{
    const size_t n = strlen(word);

    if ((in->bytes - in->at < n) || (memcmp(in->text + in->at, word, n) != 0)) {
        return false;
    }
    in->at += n;
    return true;
}

bool bt_json_in_bool(bt_json_in_t *in)
{
    if (bt_json_in_peek(in) != BT_JSON_IN_BOOL) {
        fail(in, "true or false is expected");
        return false;
    }
    if (take_word(in, "true")) {
        return true;
    }
    if (!take_word(in, "false")) {
        fail(in, "a value is expected");
    }
    return false;
}

/* ---- whole values ---- */

/* Skipped strings are checked too. */
static void skip_string(bt_json_in_t *in, bt_strbuf_t *scratch)
{
    bt_strbuf_reset(scratch);
    bt_json_in_string(in, scratch);
    bt_strbuf_reset(scratch); /* longer than the scratch is no error */
}

static void skip_plain(bt_json_in_t *in, bt_strbuf_t *scratch)
{
    bt_json_number_t number;

    switch (bt_json_in_peek(in)) {
    case BT_JSON_IN_STRING:
        skip_string(in, scratch);
        break;
    case BT_JSON_IN_NUMBER:
        bt_json_in_number(in, &number);
        break;
    case BT_JSON_IN_BOOL:
        (void)bt_json_in_bool(in);
        break;
    default:
        if (!take_word(in, "null")) {
            fail(in, "a value is expected");
        }
        break;
    }
}

void bt_json_in_skip(bt_json_in_t *in)
{
    char memory[16];
    bt_strbuf_t scratch;
    bool is_object[BT_JSON_IN_MAX_DEPTH + 1];
    bool first[BT_JSON_IN_MAX_DEPTH + 1];
    size_t n = 0; /* depth of open containers */

    bt_strbuf_init_fixed(&scratch, memory, sizeof(memory));
    do {
        const bt_json_in_kind_t kind = bt_json_in_peek(in);

        if ((kind == BT_JSON_IN_OBJECT) || (kind == BT_JSON_IN_ARRAY)) {
            bt_json_in_enter(in, kind);
            if (in->why != NULL) {
                return;
            }
            is_object[n] = kind == BT_JSON_IN_OBJECT;
            first[n++] = true;
        } else {
            skip_plain(in, &scratch);
        }
        /* Moves to the next value, leaving containers that end before. */
        while (n > 0) {
            const bool more = is_object[n - 1]
                                  ? bt_json_in_key(in, &first[n - 1], &scratch)
                                  : bt_json_in_next(in, &first[n - 1]);

            if (more) {
                break;
            }
            n--;
        }
    } while ((n > 0) && (in->why == NULL));
}

void bt_json_in_end(bt_json_in_t *in)
{
    if (in->why != NULL) {
        return;
    }
    skip_blanks(in);
    if (in->at != in->bytes) {
        fail(in, "there is more behind the value");
    }
}
