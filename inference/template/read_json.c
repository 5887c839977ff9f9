/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "inference/template/print.h"

/* Depth is bounded by the run's. */
typedef struct reader {
    bt_tmpl_run_t *run;
    const char *at, *end;
} reader_t;

static bool wrong(reader_t *r, const char *what)
{
    bt_tmpl_run_fail(r->run, BT_ERR_INVALID_PARAM, "not valid JSON: %s", what);
    return false;
}

static void skip_space(reader_t *r)
{
    while ((r->at < r->end) && (memchr(" \t\r\n", *r->at, 4) != NULL)) {
        r->at++;
    }
}

static bool take(reader_t *r, char c)
{
    skip_space(r);
    if ((r->at == r->end) || (*r->at != c)) {
        return false;
    }
    r->at++;
    return true;
}

static bool read_word(reader_t *r, const char *word)
{
    const size_t n = strlen(word);

    if (((size_t)(r->end - r->at) < n) || (memcmp(r->at, word, n) != 0)) {
        return wrong(r, "an unknown word");
    }
    r->at += n;
    return true;
}

static bool hex4(reader_t *r, uint32_t *unit_p)
{
    uint32_t unit = 0;

    if (r->end - r->at < 4) {
        return wrong(r, "half an escape");
    }
    for (int i = 0; i < 4; i++) {
        const char c = *r->at++;
        const uint32_t digit =
            ((c >= '0') && (c <= '9'))   ? (uint32_t)(c - '0')
            : ((c >= 'a') && (c <= 'f')) ? (uint32_t)(c - 'a') + 10
            : ((c >= 'A') && (c <= 'F')) ? (uint32_t)(c - 'A') + 10
                                         : 16;

        if (digit == 16) {
            return wrong(r, "half an escape");
        }
        unit = unit << 4 | digit;
    }
    *unit_p = unit;
    return true;
}

static bool read_unicode(reader_t *r, bt_tmpl_build_t *build)
{
    uint32_t cp;
    uint32_t low;

    if (!hex4(r, &cp)) {
        return false;
    }
    if ((cp >= 0xD800) && (cp <= 0xDBFF) && (r->end - r->at >= 6) &&
        (r->at[0] == '\\') && (r->at[1] == 'u')) {
        const char *const from = r->at;

        r->at += 2;
        if (!hex4(r, &low)) {
            return false;
        }
        if ((low >= 0xDC00) && (low <= 0xDFFF)) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        } else {
            r->at = from;
        }
    }
    if ((cp >= 0xD800) && (cp <= 0xDFFF)) {
        cp = 0xFFFD; /* half of a pair has no form in UTF-8 */
    }
    bt_tmpl_build_char(build, cp, true);
    return true;
}

static bool read_escape(reader_t *r, bt_tmpl_build_t *build)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char *found;
    char c;

    if (r->at == r->end) {
        return wrong(r, "half an escape");
    }
    c = *r->at++;
    if (c == 'u') {
        return read_unicode(r, build);
    }
    found = (c != '\0') ? strchr(from, c) : NULL;
    if (found == NULL) {
        return wrong(r, "an unknown escape");
    }
    bt_tmpl_build_bytes(build, &to[found - from], 1, true);
    return true;
}

static bool read_text(reader_t *r, bt_tmpl_value_t *value_p)
{
    bt_tmpl_build_t build;
    const bt_tmpl_text_t *text;

    bt_tmpl_build_init(&build, r->run);
    r->at++;
    for (;;) {
        const char *from = r->at;

        while ((r->at < r->end) && (*r->at != '"') && (*r->at != '\\') &&
               ((uint8_t)*r->at >= 0x20)) {
            r->at++;
        }
        bt_tmpl_build_bytes(&build, from, (size_t)(r->at - from), true);
        if ((r->at == r->end) || ((uint8_t)*r->at < 0x20)) {
            return wrong(r, "a string does not end");
        }
        if (*r->at++ == '"') {
            break;
        }
        if (!read_escape(r, &build)) {
            return false;
        }
    }
    text = bt_tmpl_build_end(&build);
    if (text == NULL) {
        return false;
    }
    *value_p = bt_tmpl_v_text(text);
    return true;
}

static size_t digits(reader_t *r)
{
    const char *from = r->at;

    while ((r->at < r->end) && (*r->at >= '0') && (*r->at <= '9')) {
        r->at++;
    }
    return (size_t)(r->at - from);
}

/* As Python's json has it: an integer has any size, a float may be infinite. */
static bool make_number(reader_t *r, const char *from, bool whole,
                        bt_tmpl_value_t *value_p)
{
    const bt_tmpl_text_t *big;
    const size_t n = (size_t)(r->at - from);
    char *copy = bt_tmpl_run_take(r->run, n + 1, 1);

    if (copy == NULL) {
        return false;
    }
    memcpy(copy, from, n);
    errno = 0;
    *value_p = whole ? bt_tmpl_v_int(strtoll(copy, NULL, 10))
                     : bt_tmpl_v_float(strtod(copy, NULL));
    if (whole && (errno == ERANGE)) {
        big = bt_tmpl_text_make(r->run, from, n, true);
        if (big == NULL) {
            return false;
        }
        *value_p = bt_tmpl_v_big_int(big);
    }
    value_p->quoted = true;
    return true;
}

static bool read_number(reader_t *r, bt_tmpl_value_t *value_p)
{
    const char *from = r->at;
    bool whole = true;

    if (*r->at == '-') {
        r->at++;
    }
    if ((r->at < r->end) && (*r->at == '0')) {
        r->at++;
    } else if (digits(r) == 0) {
        return wrong(r, "an unknown word");
    }
    if ((r->at < r->end) && (*r->at == '.')) {
        r->at++;
        whole = false;
        if (digits(r) == 0) {
            return wrong(r, "a number does not end");
        }
    }
    if ((r->at < r->end) && ((*r->at == 'e') || (*r->at == 'E'))) {
        r->at++;
        whole = false;
        if ((r->at < r->end) && ((*r->at == '+') || (*r->at == '-'))) {
            r->at++;
        }
        if (digits(r) == 0) {
            return wrong(r, "a number does not end");
        }
    }
    return make_number(r, from, whole, value_p);
}

static bool read_value(reader_t *r, bt_tmpl_value_t *value_p);

static bool read_list(reader_t *r, bt_tmpl_value_t *value_p)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(r->run, 0);

    if (seq == NULL) {
        return false;
    }
    seq->quoted = true;
    r->at++;
    if (!take(r, ']')) {
        do {
            bt_tmpl_value_t item;

            if (!read_value(r, &item) || !bt_tmpl_seq_add(r->run, seq, item)) {
                return false;
            }
        } while (take(r, ','));
        if (!take(r, ']')) {
            return wrong(r, "an array does not end");
        }
    }
    *value_p = bt_tmpl_v_seq(BT_SEQ_LIST, seq);
    return true;
}

static bool read_object(reader_t *r, bt_tmpl_value_t *value_p)
{
    bt_tmpl_dict_t *dict = bt_tmpl_dict_make(r->run);

    if (dict == NULL) {
        return false;
    }
    dict->quoted = true;
    r->at++;
    if (!take(r, '}')) {
        do {
            bt_tmpl_value_t key;
            bt_tmpl_value_t value;

            skip_space(r);
            if ((r->at == r->end) || (*r->at != '"')) {
                return wrong(r, "a key is no string");
            }
            if (!read_text(r, &key)) {
                return false;
            }
            if (!take(r, ':')) {
                return wrong(r, "a key has no value");
            }
            if (!read_value(r, &value) ||
                !bt_tmpl_dict_put(r->run, dict, key, value)) {
                return false;
            }
        } while (take(r, ','));
        if (!take(r, '}')) {
            return wrong(r, "an object does not end");
        }
    }
    *value_p = bt_tmpl_v_dict(dict);
    return true;
}

static bool read_one(reader_t *r, bt_tmpl_value_t *value_p)
{
    skip_space(r);
    if (r->at == r->end) {
        return wrong(r, "it ends too early");
    }
    switch (*r->at) {
    case '{':
        return read_object(r, value_p);
    case '[':
        return read_list(r, value_p);
    case '"':
        return read_text(r, value_p);
    case 't':
        *value_p = bt_tmpl_v_bool(true);
        value_p->quoted = true;
        return read_word(r, "true");
    case 'f':
        *value_p = bt_tmpl_v_bool(false);
        value_p->quoted = true;
        return read_word(r, "false");
    case 'n':
        *value_p = bt_tmpl_v_none();
        value_p->quoted = true;
        return read_word(r, "null");
    default:
        return read_number(r, value_p);
    }
}

static bool read_value(reader_t *r, bt_tmpl_value_t *value_p)
{
    bool read;

    if (!bt_tmpl_run_step(r->run, 1) || !bt_tmpl_run_enter(r->run)) {
        return false;
    }
    read = read_one(r, value_p);
    bt_tmpl_run_leave(r->run);
    return read;
}

bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p)
{
    reader_t r = {.run = run, .at = json, .end = json + bytes};

    if (!bt_utf8_valid((const uint8_t *)json, bytes)) {
        return wrong(&r, "it is not UTF-8");
    }
    if (!read_value(&r, value_p)) {
        return false;
    }
    skip_space(&r);
    return (r.at == r.end) || wrong(&r, "something stands behind it");
}
