/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a list of calls in Python syntax, with literals as arguments. */
#include <ctype.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/text/tools_priv.h"

#define MAX_DEPTH      32
#define MAX_WORD_BYTES 64

/* Remaining text. */
typedef struct rest {
    const char *text;
    size_t n;
} rest_t;

typedef struct reader {
    rest_t *at;
    bt_strbuf_t *content; /* records a failed allocation */
    bt_json_t json;
    unsigned depth;
    bool is_cut; /* a truncated value counts as far as received */
} reader_t;

static bool value(reader_t *r, const char *key);

static void skip_spaces(rest_t *at)
{
    while ((at->n > 0) && bt_tools_is_space(*at->text)) {
        at->text++;
        at->n--;
    }
}

static bool skip(reader_t *r, char c)
{
    skip_spaces(r->at);
    if ((r->at->n == 0) || (*r->at->text != c)) {
        return false;
    }
    r->at->text++;
    r->at->n--;
    return true;
}

static bool is_word(char c)
{
    return (isalnum((unsigned char)c) != 0) || (c == '_') || (c == '.') ||
           (c == '-') || (c == '+');
}

/* Reads a name, number or keyword. @return its bytes; 0: none */
static size_t word(reader_t *r, char out[MAX_WORD_BYTES + 1])
{
    size_t n = 0;

    skip_spaces(r->at);
    while ((n < r->at->n) && (n < MAX_WORD_BYTES) && is_word(r->at->text[n])) {
        out[n] = r->at->text[n];
        n++;
    }
    out[n] = '\0';
    r->at->text += n;
    r->at->n -= n;
    return ((r->at->n > 0) && is_word(*r->at->text)) ? 0 : n;
}

/* Only single-character escapes are valid literals here. */
static bool unescape(char c, bt_strbuf_t *out)
{
    static const char from[] = "ntr\\'\"";
    static const char to[] = "\n\t\r\\'\"";
    const char *at = (c != '\0') ? strchr(from, c) : NULL;

    if (at == NULL) {
        return false;
    }
    bt_strbuf_append(out, &to[at - from], 1);
    return true;
}

static bool read_text(reader_t *r, bt_strbuf_t *out)
{
    rest_t *at = r->at;
    const char quote = *at->text;

    at->text++;
    at->n--;
    while ((at->n > 0) && (*at->text != quote)) {
        if (*at->text == '\\') {
            if (at->n == 1) { /* truncated escape */
                at->n = 0;
                return false;
            }
            if (!unescape(at->text[1], out)) {
                return false;
            }
            at->text += 2;
            at->n -= 2;
        } else {
            bt_strbuf_append(out, at->text, 1);
            at->text++;
            at->n--;
        }
    }
    return skip(r, quote);
}

/* Reads a string; a failed allocation is recorded. */
static bool text_in(reader_t *r, bt_strbuf_t *out)
{
    const bool ok = read_text(r, out);

    if (bt_strbuf_status(out) != BT_OK) {
        r->content->status = bt_strbuf_status(out);
        return false;
    }
    return ok;
}

/* Reopens a string that was written, to append to it. */
static void drop_quote(bt_strbuf_t *out)
{
    if (bt_strbuf_status(out) == BT_OK) {
        out->data[--out->len] = '\0';
    }
}

static bool text_value(reader_t *r, const char *key)
{
    bt_strbuf_t text;
    bool ok;

    bt_strbuf_init(&text, SIZE_MAX / 4);
    ok = text_in(r, &text);
    if (ok || (r->is_cut && (r->at->n == 0))) {
        bt_json_strn(&r->json, key, (text.len > 0) ? text.data : "", text.len);
        if (!ok) {
            drop_quote(r->json.out);
        }
    }
    bt_strbuf_fini(&text);
    return ok;
}

/* Checks for JSON's number syntax: no leading zero or plus, digits around the
 * point. */
static bool is_number(const char *text)
{
    const char *at = text + (*text == '-');

    if ((*at == '0') && (isdigit((unsigned char)at[1]) != 0)) {
        return false;
    }
    if (isdigit((unsigned char)*at) == 0) {
        return false;
    }
    at += strspn(at, "0123456789");
    if (*at == '.') {
        const size_t n = strspn(++at, "0123456789");

        if (n == 0) {
            return false;
        }
        at += n;
    }
    if ((*at == 'e') || (*at == 'E')) {
        size_t n;

        at++;
        at += (*at == '-') || (*at == '+');
        n = strspn(at, "0123456789");
        if (n == 0) {
            return false;
        }
        at += n;
    }
    return *at == '\0';
}

static bool word_value(reader_t *r, const char *key)
{
    static const char *const words[][2] = {
        {"True", "true"},   {"true", "true"}, {"False", "false"},
        {"false", "false"}, {"None", "null"}, {"null", "null"}};
    char text[MAX_WORD_BYTES + 1];

    if (word(r, text) == 0) {
        return false;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        if (strcmp(text, words[i][0]) == 0) {
            bt_json_raw(&r->json, key, words[i][1]);
            return true;
        }
    }
    if (!is_number(text)) {
        return false;
    }
    bt_json_raw(&r->json, key, text);
    return true;
}

/* Reads items with commas between them, up to @a end, which is included. */
static bool items(reader_t *r, char end, bool (*item)(reader_t *r))
{
    if (skip(r, end)) {
        return true;
    }
    do {
        if (!item(r)) {
            return false;
        }
    } while (skip(r, ','));
    return skip(r, end);
}

static bool element(reader_t *r)
{
    return value(r, NULL);
}

static bool list_value(reader_t *r, const char *key)
{
    bt_json_array(&r->json, key);
    if (!items(r, ']', element)) {
        return false;
    }
    bt_json_end_array(&r->json);
    return true;
}

static bool entry(reader_t *r)
{
    bt_strbuf_t key;
    bool ok;

    skip_spaces(r->at);
    if ((r->at->n == 0) || (strchr("'\"", *r->at->text) == NULL)) {
        return false;
    }
    bt_strbuf_init(&key, SIZE_MAX / 4);
    ok = text_in(r, &key) && skip(r, ':');
    if (ok) {
        bt_json_key(&r->json, (key.len > 0) ? key.data : "", key.len);
        ok = value(r, NULL);
    }
    bt_strbuf_fini(&key);
    return ok;
}

static bool dict_value(reader_t *r, const char *key)
{
    bt_json_object(&r->json, key);
    if (!items(r, '}', entry)) {
        return false;
    }
    bt_json_end_object(&r->json);
    return true;
}

static bool value(reader_t *r, const char *key)
{
    bool ok = false;

    skip_spaces(r->at);
    if ((r->at->n == 0) || (r->depth == MAX_DEPTH)) {
        return false;
    }
    r->depth++;
    switch (*r->at->text) {
    case '\'':
    case '"':
        ok = text_value(r, key);
        break;
    case '[':
        ok = skip(r, '[') && list_value(r, key);
        break;
    case '{':
        ok = skip(r, '{') && dict_value(r, key);
        break;
    default:
        ok = word_value(r, key);
        break;
    }
    r->depth--;
    return ok;
}

/* a=1 */
static bool argument(reader_t *r)
{
    char name[MAX_WORD_BYTES + 1];

    return (word(r, name) > 0) && skip(r, '=') && value(r, name);
}

static bool arguments(reader_t *r)
{
    bt_json_object(&r->json, NULL);
    if (!items(r, ')', argument)) {
        return false;
    }
    bt_json_end_object(&r->json);
    return true;
}

/* @retval BT_TOOLS_MAYBE  the text ends before its arguments begin */
static bt_tools_match_t call(bt_tools_t *tools, rest_t *at, bool is_cut,
                             bt_strbuf_t *content)
{
    reader_t r = {.at = at, .content = content, .is_cut = is_cut};
    char name[MAX_WORD_BYTES + 1];
    const size_t n_name = word(&r, name);
    bool is_begun;
    bt_strbuf_t out;
    bool ok;

    bt_strbuf_init(&out, SIZE_MAX / 4);
    bt_json_init(&r.json, &out);
    is_begun =
        (n_name > 0) && (isdigit((unsigned char)name[0]) == 0) && skip(&r, '(');
    ok = is_begun && arguments(&r);
    if (bt_strbuf_status(&out) == BT_ERR_NO_MEMORY) {
        content->status = BT_ERR_NO_MEMORY;
    }
    if (!ok && is_begun && is_cut && (at->n == 0)) {
        tools->is_cut = ok = true;
        if (out.len == 1) { /* an empty object so far */
            bt_strbuf_reset(&out);
        }
    }
    if (!ok) {
        bt_strbuf_fini(&out);
        return (is_cut && (at->n == 0)) ? BT_TOOLS_MAYBE : BT_TOOLS_NO;
    }
    ok =
        (bt_strbuf_status(&out) == BT_OK) &&
        bt_tools_add(tools, (bt_tools_slice_t){name, n_name},
                     (bt_tools_slice_t){(out.len > 0) ? out.data : "", out.len},
                     content);
    bt_strbuf_fini(&out);
    return ok ? BT_TOOLS_YES : BT_TOOLS_NO;
}

bt_tools_match_t bt_tools_of_python(bt_tools_t *tools, const char *text,
                                    size_t n, bool is_cut, bt_strbuf_t *content)
{
    const uint32_t n_before = tools->n_calls;
    rest_t at = {.text = text, .n = n};
    reader_t r = {.at = &at, .content = content};
    bt_tools_match_t match = BT_TOOLS_YES;

    (void)skip(&r, '[');
    do {
        match = call(tools, &at, is_cut, content);
    } while ((match == BT_TOOLS_YES) && skip(&r, ','));
    if ((match == BT_TOOLS_YES) && !skip(&r, ']')) {
        match = (is_cut && (at.n == 0)) ? BT_TOOLS_MAYBE : BT_TOOLS_NO;
    }
    if (match == BT_TOOLS_NO) {
        tools->is_cut = false;
        bt_tools_forget(tools, n_before);
    }
    return match;
}
