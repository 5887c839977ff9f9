/* SPDX-License-Identifier: Apache-2.0 */
/* Parses calls in JSON form. */
#include <string.h>

#include "common/base/text.h"
#include "router/text/tools_priv.h"

static size_t spaces(const char *text, size_t n)
{
    size_t at = 0;

    while ((at < n) && bt_json_is_space(text[at])) {
        at++;
    }
    return at;
}

/* ---- how it begins ---- */

typedef struct cursor {
    const char *at;
    size_t n;
    bool ran_out;
} cursor_t;

static void skip_spaces(cursor_t *c)
{
    const size_t n = spaces(c->at, c->n);

    c->at += n;
    c->n -= n;
}

static bool expect(cursor_t *c, const char *word)
{
    const size_t want = strlen(word);
    const size_t n = (c->n < want) ? c->n : want;

    if (memcmp(c->at, word, n) != 0) {
        return false;
    }
    c->at += n;
    c->n -= n;
    c->ran_out = n < want;
    return !c->ran_out;
}

/* Matches a token after optional white space. */
static bool expect_token(cursor_t *c, const char *word)
{
    skip_spaces(c);
    return expect(c, word);
}

/* Reads a name up to @a end, which is excluded. */
static bool take_name(cursor_t *c, char end, bt_tools_slice_t *name_p)
{
    size_t n = 0;

    while ((n < c->n) && (n <= BT_TOOLS_MAX_NAME_BYTES) && (c->at[n] != end) &&
           bt_tool_name_is_valid(&c->at[n], 1)) {
        n++;
    }
    c->ran_out = (n == c->n) && (n <= BT_TOOLS_MAX_NAME_BYTES);
    if ((n == c->n) || (c->at[n] != end) || !bt_tool_name_is_valid(c->at, n)) {
        return false;
    }
    *name_p = (bt_tools_slice_t){c->at, n};
    c->at += n;
    c->n -= n;
    return true;
}

/* Matches either key for arguments. */
static bool take_key(cursor_t *c)
{
    cursor_t other = *c;

    if (expect_token(c, "\"arguments\"")) {
        return true;
    }
    if (!c->ran_out) {
        *c = other;
        return expect_token(c, "\"parameters\"");
    }
    return false;
}

/* A start is matched again for each piece, so its length is bounded. */
#define MAX_HEAD_BYTES 1024u

static bt_tools_match_t verdict(const cursor_t *c, size_t n, bool ok)
{
    if (ok) {
        return BT_TOOLS_YES;
    }
    return (c->ran_out && (n <= MAX_HEAD_BYTES)) ? BT_TOOLS_MAYBE : BT_TOOLS_NO;
}

bt_tools_match_t bt_tools_head(const char *text, size_t n,
                               bt_tools_slice_t *name_p, size_t *args_p)
{
    cursor_t c = {.at = text, .n = n};
    bt_tools_slice_t name = {0};
    const bool ok = expect_token(&c, "{") && expect_token(&c, "\"name\"") &&
                    expect_token(&c, ":") && expect_token(&c, "\"") &&
                    take_name(&c, '"', &name) && expect(&c, "\"") &&
                    expect_token(&c, ",") && take_key(&c) &&
                    expect_token(&c, ":") && expect_token(&c, "{");

    if (ok) {
        *name_p = name;
        *args_p = n - c.n - 1;
    }
    return verdict(&c, n, ok);
}

/* Reads f[ARGS], perhaps with [CALL_ID]… between the two. */
static bool take_bare_name(cursor_t *c, bt_tools_slice_t *name_p)
{
    static const char id_mark[] = "[CALL_ID]";
    bt_tools_slice_t id;
    bool ok = take_name(c, '[', name_p);

    if (ok && (c->n > 1) && (c->at[1] == id_mark[1])) {
        ok = expect(c, id_mark) && take_name(c, '[', &id);
    }
    return ok && expect(c, "[ARGS]");
}

bt_tools_match_t bt_tools_bare_head(const char *text, size_t n,
                                    bt_tools_slice_t *name_p, size_t *args_p)
{
    cursor_t c = {.at = text, .n = n};
    bt_tools_slice_t name = {0};
    const bool ok = take_bare_name(&c, &name) && expect_token(&c, "{");

    if (ok) {
        *name_p = name;
        *args_p = n - c.n - 1;
    }
    return verdict(&c, n, ok);
}

/* ---- a whole one ---- */

/* A value, possibly truncated. */
typedef struct value {
    bt_tools_slice_t text; /* a string includes its quotes */
    bool is_whole;
} value_t;

static value_t read_string(const char *text, size_t n)
{
    size_t at = 1;

    while ((at < n) && (text[at] != '"')) {
        at += (text[at] == '\\') ? 2 : 1;
    }
    return (at < n) ? (value_t){{text, at + 1}, true}
                    : (value_t){{text, n}, false};
}

/* Reads an object or a list. */
static value_t read_nested(const char *text, size_t n)
{
    bt_json_scan_result_t result = BT_JSON_SCAN_MORE;
    bt_json_scan_t scan;
    size_t at = 0;

    bt_json_scan_init(&scan);
    while ((at < n) && (result == BT_JSON_SCAN_MORE)) {
        result = bt_json_scan_push(&scan, text[at++]);
    }
    return (value_t){{text, at}, result == BT_JSON_SCAN_DONE};
}

static value_t read_value(const char *text, size_t n)
{
    size_t at = 0;

    if (text[0] == '"') {
        return read_string(text, n);
    }
    if ((text[0] == '{') || (text[0] == '[')) {
        return read_nested(text, n);
    }
    while ((at < n) && (strchr(",}] \t\r\n", text[at]) == NULL)) {
        at++;
    }
    return (value_t){{text, at}, at < n};
}

/* Reads one member; `at` moves behind it. @return false: there are no more */
static bool next_member(const char *text, size_t n, size_t *at_p,
                        bt_tools_slice_t *key_p, value_t *value_p)
{
    size_t at = *at_p;
    value_t key;

    at += spaces(text + at, n - at);
    if ((at < n) && (text[at] == ',')) {
        at++;
        at += spaces(text + at, n - at);
    }
    if ((at >= n) || (text[at] != '"')) {
        return false;
    }
    key = read_string(text + at, n - at);
    at += key.text.n;
    at += spaces(text + at, n - at) + 1; /* the colon */
    if (!key.is_whole || (at >= n)) {
        return false;
    }
    at += spaces(text + at, n - at);
    if (at >= n) {
        return false;
    }
    *key_p = key.text;
    *value_p = read_value(text + at, n - at);
    *at_p = at + value_p->text.n;
    return true;
}

static bool is_word(bt_tools_slice_t key, const char *word)
{
    return (key.n == strlen(word)) && (memcmp(key.at, word, key.n) == 0);
}

static unsigned hex_of(const char *text)
{
    unsigned value = 0;

    for (int i = 0; i < 4; i++) {
        value = value * 16 + (unsigned)bt_hex_digit(text[i]);
    }
    return value;
}

/* Decodes \uXXXX, possibly a surrogate pair. @return bytes read; 0: unpaired */
static size_t unescape_hex(const char *text, size_t n, bt_strbuf_t *out)
{
    unsigned cp = hex_of(text + 2);
    uint8_t bytes[4];
    size_t used = 6;

    if ((cp >= 0xd800) && (cp < 0xe000)) {
        unsigned low = 0;

        if ((n < 12) || (text[6] != '\\') || (text[7] != 'u')) {
            return 0;
        }
        low = hex_of(text + 8);
        if ((cp >= 0xdc00) || (low < 0xdc00) || (low >= 0xe000)) {
            return 0;
        }
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        used = 12;
    }
    bt_strbuf_append(out, bytes, bt_utf8_encode(cp, bytes));
    return used;
}

/* Decodes a string. A truncated one may end within an escape. */
static bool unescape(const value_t *string, bt_strbuf_t *out)
{
    static const char from[] = "bfnrt";
    static const char to[] = "\b\f\n\r\t";
    const char *text = string->text.at;
    const size_t end = string->text.n - (string->is_whole ? 1 : 0);
    size_t at = 1;

    while (at < end) {
        const char *c = text + at;
        size_t used = 1;

        if (*c != '\\') {
            bt_strbuf_append(out, c, 1);
        } else if ((end - at < 2) || ((c[1] == 'u') && (end - at < 6))) {
            used = 0;
        } else if (c[1] == 'u') {
            used = unescape_hex(c, end - at, out);
        } else {
            const char *known = strchr(from, c[1]);

            bt_strbuf_append(out, (known != NULL) ? &to[known - from] : c + 1,
                             1);
            used = 2;
        }
        if (used == 0) {
            return !string->is_whole;
        }
        at += used;
    }
    return true;
}

static bool is_object(const char *text, size_t n)
{
    value_t value;

    if ((n == 0) || (text[0] != '{')) {
        return false;
    }
    value = read_nested(text, n);
    return value.is_whole && (value.text.n == n);
}

/* True for null, and for a string that is empty or "null": no arguments. */
static bool is_nothing(bt_tools_slice_t value)
{
    while ((value.n > 0) && bt_tools_is_space(value.at[0])) {
        value.at++;
        value.n--;
    }
    while ((value.n > 0) && bt_tools_is_space(value.at[value.n - 1])) {
        value.n--;
    }
    return (value.n == 0) || is_word(value, "null");
}

/* Reads null or an empty string; see is_nothing(). */
static bool take_nothing(cursor_t *c)
{
    value_t string;

    skip_spaces(c);
    if ((c->n == 0) || (*c->at != '"')) {
        return expect(c, "null");
    }
    string = read_string(c->at, c->n);
    c->at += string.text.n;
    c->n -= string.text.n;
    c->ran_out = !string.is_whole;
    return string.is_whole && is_nothing((bt_tools_slice_t){string.text.at + 1,
                                                            string.text.n - 2});
}

bt_tools_match_t bt_tools_bare_nothing(const char *text, size_t n,
                                       bt_tools_slice_t *name_p, size_t *end_p)
{
    cursor_t c = {.at = text, .n = n};
    bt_tools_slice_t name = {0};
    const bool ok = take_bare_name(&c, &name) && take_nothing(&c);

    if (ok) {
        *name_p = name;
        *end_p = n - c.n;
    }
    return verdict(&c, n, ok);
}

/* Takes the received part of truncated arguments: an object as written, or in
 * a string. Empty for null. */
static bool take_cut_arguments(const value_t *value,
                               bt_tools_slice_t *arguments_p,
                               bt_strbuf_t *decoded)
{
    if (value->text.at[0] == '{') {
        *arguments_p = value->text;
        return true;
    }
    *arguments_p = (bt_tools_slice_t){"", 0};
    if (value->text.at[0] == 'n') {
        return true;
    }
    if ((value->text.at[0] != '"') || !unescape(value, decoded) ||
        (bt_strbuf_status(decoded) != BT_OK)) {
        return false;
    }
    if ((decoded->len > 0) && (decoded->data[0] == '{')) {
        *arguments_p = (bt_tools_slice_t){decoded->data, decoded->len};
        return true;
    }
    return (decoded->len == 0) ||
           (strncmp("null", decoded->data, decoded->len) == 0);
}

/* Takes an object, or a string with an object. */
static bool take_arguments(const value_t *value, bt_tools_slice_t *arguments_p,
                           bt_strbuf_t *decoded)
{
    bt_strbuf_reset(decoded);
    if (!value->is_whole) {
        return take_cut_arguments(value, arguments_p, decoded);
    }
    if (value->text.at[0] == '{') {
        *arguments_p = value->text;
        return true;
    }
    if (is_nothing(value->text)) {
        *arguments_p = (bt_tools_slice_t){"{}", 2};
        return true;
    }
    if ((value->text.at[0] != '"') || !unescape(value, decoded) ||
        (bt_strbuf_status(decoded) != BT_OK)) {
        return false;
    }
    if (is_nothing((bt_tools_slice_t){decoded->data, decoded->len})) {
        *arguments_p = (bt_tools_slice_t){"{}", 2};
        return true;
    }
    if (!is_object(decoded->data, decoded->len)) {
        return false;
    }
    *arguments_p = (bt_tools_slice_t){decoded->data, decoded->len};
    return true;
}

bt_tools_match_t bt_tools_of_object(const char *text, size_t n, bool is_cut,
                                    bt_tools_slice_t *name_p,
                                    bt_tools_slice_t *arguments_p,
                                    bt_strbuf_t *decoded)
{
    bt_tools_slice_t name = {0};
    bt_tools_slice_t arguments = {0};
    bool has_arguments = false;
    bt_tools_slice_t key;
    value_t value;
    size_t at = 1;

    while (next_member(text, n, &at, &key, &value)) {
        if ((name.n == 0) && is_word(key, "\"function\"") &&
            (value.text.at[0] == '{')) {
            text = value.text.at; /* the call is inside */
            n = value.text.n;
            at = 1;
        } else if ((name.n == 0) && is_word(key, "\"name\"") &&
                   (value.text.at[0] == '"')) {
            if (!value.is_whole) {
                return ((value.text.n == 1) ||
                        bt_tool_name_is_valid(value.text.at + 1,
                                              value.text.n - 1))
                           ? BT_TOOLS_MAYBE
                           : BT_TOOLS_NO;
            }
            name = (bt_tools_slice_t){value.text.at + 1, value.text.n - 2};
        } else if (!has_arguments && (is_word(key, "\"arguments\"") ||
                                      is_word(key, "\"parameters\""))) {
            if (!take_arguments(&value, &arguments, decoded)) {
                return BT_TOOLS_NO;
            }
            has_arguments = true;
        }
    }
    if (is_cut && (name.n == 0)) {
        return BT_TOOLS_MAYBE;
    }
    if (!bt_tool_name_is_valid(name.at, name.n)) {
        return BT_TOOLS_NO;
    }
    *name_p = name;
    *arguments_p = has_arguments ? arguments
                   : is_cut      ? (bt_tools_slice_t){"", 0}
                                 : (bt_tools_slice_t){"{}", 2};
    return BT_TOOLS_YES;
}
