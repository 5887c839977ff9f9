/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inference/template/exec.h"

#define NUMBER_BYTES 48

/* repr() of a float: the fewest digits that give it again, an exponent below
 * 1e-4 and from 1e16 on, always a point or an exponent. */
static void float_text(double f, char out[NUMBER_BYTES], bool json)
{
    char digits[32];
    int exponent;
    size_t n;
    char *p = out;

    if (isnan(f) || isinf(f)) {
        const char *inf = json ? "Infinity" : "inf";

        snprintf(out, NUMBER_BYTES, "%s%s", (!isnan(f) && (f < 0)) ? "-" : "",
                 isnan(f) ? (json ? "NaN" : "nan") : inf);
        return;
    }
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(digits, sizeof(digits), "%.*e", precision, fabs(f));
        if (strtod(digits, NULL) == fabs(f)) {
            break;
        }
    }
    exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    *strchr(digits, 'e') = '\0';
    if (digits[1] == '.') { /* d.ddd becomes dddd */
        memmove(digits + 1, digits + 2, strlen(digits + 2) + 1);
    }
    n = strlen(digits);
    if (signbit(f)) {
        *p++ = '-';
    }
    if ((exponent < -4) || (exponent >= 16)) {
        snprintf(p, NUMBER_BYTES - 1, "%c%s%se%c%02d", digits[0],
                 (n > 1) ? "." : "", digits + 1, (exponent < 0) ? '-' : '+',
                 abs(exponent));
    } else if (exponent < 0) {
        snprintf(p, NUMBER_BYTES - 1, "0.%.*s%s", -exponent - 1, "000", digits);
    } else {
        for (int i = 0; i <= exponent; i++) {
            *p++ = ((size_t)i < n) ? digits[i] : '0';
        }
        snprintf(p, NUMBER_BYTES - 18, ".%s",
                 (n > (size_t)exponent + 1) ? digits + exponent + 1 : "0");
    }
}

static void put_number(bt_tmpl_build_t *out, bt_tmpl_value_t value, bool json)
{
    char text[NUMBER_BYTES];

    if (value.kind == BT_V_BIG_INT) {
        bt_tmpl_build_text(out, value.u.text);
        return;
    }
    if (value.kind == BT_V_FLOAT) {
        float_text(value.u.f, text, json);
    } else {
        snprintf(text, sizeof(text), "%" PRId64, value.u.i);
    }
    bt_tmpl_build_bytes(out, text, strlen(text), value.quoted);
}

static const char *constant_of(bt_tmpl_value_t value, bool json)
{
    if (value.kind == BT_V_NONE) {
        return json ? "null" : "None";
    }
    return value.u.truth ? (json ? "true" : "True")
                         : (json ? "false" : "False");
}

static void put_constant(bt_tmpl_build_t *out, bt_tmpl_value_t value, bool json)
{
    const char *text = constant_of(value, json);

    bt_tmpl_build_bytes(out, text, strlen(text), value.quoted);
}

/* ---- repr() ---- */

/* Python shows as they are what it thinks printable; of the rest only control
 * characters and odd spaces matter here. */
static bool shown_as_is(uint32_t cp)
{
    if ((cp < 0x20) || ((cp >= 0x7F) && (cp <= 0xA0)) || (cp == 0xAD)) {
        return false;
    }
    return (cp < 0x80) ||
           (!bt_tmpl_cp_is_space(cp) && !((cp >= 0x200B) && (cp <= 0x200F)) &&
            !((cp >= 0x202A) && (cp <= 0x202E)) &&
            !((cp >= 0x2060) && (cp <= 0x206F)) && (cp != 0xFEFF) &&
            !((cp >= 0xE000) && (cp <= 0xF8FF)) && (cp < 0xE0000));
}

static void put_escaped(bt_tmpl_build_t *out, uint32_t cp, bool quoted)
{
    char text[16];

    switch (cp) {
    case '\n':
        snprintf(text, sizeof(text), "\\n");
        break;
    case '\r':
        snprintf(text, sizeof(text), "\\r");
        break;
    case '\t':
        snprintf(text, sizeof(text), "\\t");
        break;
    default:
        snprintf(text, sizeof(text),
                 (cp < 0x100)     ? "\\x%02x"
                 : (cp < 0x10000) ? "\\u%04x"
                                  : "\\U%08x",
                 cp);
    }
    bt_tmpl_build_bytes(out, text, strlen(text), quoted);
}

static void repr_text(bt_tmpl_build_t *out, const bt_tmpl_text_t *text)
{
    const bool single = memchr(text->data, '\'', text->len) != NULL;
    const bool twice = memchr(text->data, '"', text->len) != NULL;
    const uint32_t mark = (single && !twice) ? '"' : '\'';
    uint32_t from = 0;
    uint32_t at = 0;

    bt_tmpl_build_char(out, mark, false);
    while (at < text->len) {
        uint32_t cp;
        const uint32_t n = bt_tmpl_text_decode(text, at, &cp);
        const bool quoted = bt_tmpl_text_quoted_in(text, at, at + n);

        if ((cp == mark) || (cp == '\\') || !shown_as_is(cp)) {
            bt_tmpl_build_slice(out, text, from, at);
            if ((cp == mark) || (cp == '\\')) {
                bt_tmpl_build_char(out, '\\', quoted);
                bt_tmpl_build_char(out, cp, quoted);
            } else {
                put_escaped(out, cp, quoted);
            }
            from = at + n;
        }
        at += n;
    }
    bt_tmpl_build_slice(out, text, from, at);
    bt_tmpl_build_char(out, mark, false);
}

static void print_repr(bt_tmpl_build_t *out, bt_tmpl_value_t value);

static void repr_seq(bt_tmpl_build_t *out, bt_tmpl_value_t value)
{
    static const char *const open[] = {[BT_SEQ_LIST] = "[",
                                       [BT_SEQ_TUPLE] = "(",
                                       [BT_SEQ_KEYS] = "dict_keys([",
                                       [BT_SEQ_VALUES] = "dict_values([",
                                       [BT_SEQ_ITEMS] = "dict_items(["};
    static const char *const close[] = {[BT_SEQ_LIST] = "]",
                                        [BT_SEQ_TUPLE] = ")",
                                        [BT_SEQ_KEYS] = "])",
                                        [BT_SEQ_VALUES] = "])",
                                        [BT_SEQ_ITEMS] = "])"};
    const bt_tmpl_seq_t *seq = value.u.seq;

    if ((value.sub == BT_SEQ_ITERATOR) || (value.sub == BT_SEQ_RANGE)) {
        bt_tmpl_run_fail(out->run, BT_ERR_UNSUPPORTED, "%s cannot be printed",
                         bt_tmpl_v_kind_name(value));
        return;
    }
    bt_tmpl_build_puts(out, open[value.sub]);
    for (uint32_t i = 0; (i < seq->n) && bt_tmpl_run_step(out->run, 1); i++) {
        bt_tmpl_build_puts(out, (i > 0) ? ", " : "");
        print_repr(out, seq->items[i]);
    }
    if ((value.sub == BT_SEQ_TUPLE) && (seq->n == 1)) {
        bt_tmpl_build_puts(out, ",");
    }
    bt_tmpl_build_puts(out, close[value.sub]);
}

static void repr_dict(bt_tmpl_build_t *out, const bt_tmpl_dict_t *dict)
{
    bt_tmpl_build_puts(out, "{");
    for (uint32_t i = 0; (i < dict->n) && bt_tmpl_run_step(out->run, 1); i++) {
        bt_tmpl_build_puts(out, (i > 0) ? ", " : "");
        print_repr(out, dict->entries[i].key);
        bt_tmpl_build_puts(out, ": ");
        print_repr(out, bt_tmpl_entry_use(dict, i));
    }
    bt_tmpl_build_puts(out, "}");
}

static void print_repr(bt_tmpl_build_t *out, bt_tmpl_value_t value)
{
    const uint32_t from = out->len;

    if (!bt_tmpl_run_enter(out->run)) {
        return;
    }
    switch ((bt_tmpl_kind_t)value.kind) {
    case BT_V_UNDEFINED:
        bt_tmpl_build_puts(out, "Undefined");
        break;
    case BT_V_NONE:
    case BT_V_BOOL:
        put_constant(out, value, false);
        break;
    case BT_V_INT:
    case BT_V_BIG_INT:
    case BT_V_FLOAT:
        put_number(out, value, false);
        break;
    case BT_V_TEXT:
        repr_text(out, value.u.text);
        break;
    case BT_V_SEQ:
        repr_seq(out, value);
        break;
    case BT_V_DICT:
        repr_dict(out, value.u.dict);
        break;
    case BT_V_NAMESPACE:
        bt_tmpl_build_puts(out, "<Namespace ");
        repr_dict(out, value.u.dict);
        bt_tmpl_build_puts(out, ">");
        break;
    case BT_V_MACRO:
        bt_tmpl_build_puts(out, "<Macro ");
        repr_text(out, bt_tmpl_macro_name(value.u.macro));
        bt_tmpl_build_puts(out, ">");
        break;
    default: /* Python would show an address */
        bt_tmpl_run_fail(out->run, BT_ERR_UNSUPPORTED, "%s cannot be printed",
                         bt_tmpl_v_kind_name(value));
    }
    if ((value.kind != BT_V_TEXT) && bt_tmpl_v_quoted(value)) {
        bt_tmpl_build_quote_from(out, from);
    }
    bt_tmpl_run_leave(out->run);
}

void bt_tmpl_print_str(bt_tmpl_build_t *out, bt_tmpl_value_t value)
{
    const bt_tmpl_text_t *text = bt_tmpl_v_as_text(value);

    if (text != NULL) {
        bt_tmpl_build_text(out, text);
    } else if (value.kind != BT_V_UNDEFINED) {
        print_repr(out, value);
    } else if (value.sub == BT_UNDEF_UNSAFE) {
        bt_tmpl_v_fail_undefined(out->run, value);
    }
}

const bt_tmpl_text_t *bt_tmpl_v_str(bt_tmpl_run_t *run, bt_tmpl_value_t value)
{
    bt_tmpl_build_t build;

    if (bt_tmpl_v_as_text(value) != NULL) {
        return bt_tmpl_v_as_text(value);
    }
    bt_tmpl_build_init(&build, run);
    bt_tmpl_print_str(&build, value);
    return bt_tmpl_build_end(&build);
}

/* ---- json.dumps() ---- */

static const char *short_escape(uint32_t cp)
{
    switch (cp) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    case '\f':
        return "\\f";
    case '\b':
        return "\\b";
    default:
        return NULL;
    }
}

static void put_json_escape(bt_tmpl_build_t *out, uint32_t cp, bool quoted)
{
    char text[16];

    if (short_escape(cp) != NULL) {
        snprintf(text, sizeof(text), "%s", short_escape(cp));
    } else if (cp < 0x10000) {
        snprintf(text, sizeof(text), "\\u%04x", cp);
    } else {
        snprintf(text, sizeof(text), "\\u%04x\\u%04x",
                 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + (cp & 0x3FF));
    }
    bt_tmpl_build_bytes(out, text, strlen(text), quoted);
}

static void json_text(bt_tmpl_build_t *out, const bt_tmpl_text_t *text,
                      bool ascii)
{
    uint32_t from = 0;
    uint32_t at = 0;

    bt_tmpl_build_puts(out, "\"");
    while (at < text->len) {
        uint32_t cp;
        const uint32_t n = bt_tmpl_text_decode(text, at, &cp);

        if ((cp < 0x20) || (cp == '"') || (cp == '\\') ||
            (ascii && (cp > 0x7E))) {
            bt_tmpl_build_slice(out, text, from, at);
            put_json_escape(out, cp, bt_tmpl_text_quoted_in(text, at, at + n));
            from = at + n;
        }
        at += n;
    }
    bt_tmpl_build_slice(out, text, from, at);
    bt_tmpl_build_puts(out, "\"");
}

static void new_line(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                     uint32_t level)
{
    if (style->indent == NULL) {
        return;
    }
    bt_tmpl_build_puts(out, "\n");
    for (uint32_t i = 0; (i < level) && bt_tmpl_run_ok(out->run); i++) {
        bt_tmpl_build_text(out, style->indent);
    }
}

static void json_value(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                       bt_tmpl_value_t value, uint32_t level);

static void json_key(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                     bt_tmpl_value_t key)
{
    if (key.kind == BT_V_TEXT) {
        json_text(out, key.u.text, style->ascii);
        return;
    }
    bt_tmpl_build_puts(out, "\"");
    json_value(out, style, key, 0);
    bt_tmpl_build_puts(out, "\"");
}

static void json_dict(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                      const bt_tmpl_dict_t *dict, uint32_t level)
{
    uint32_t *order;

    if (dict->n == 0) {
        bt_tmpl_build_puts(out, "{}");
        return;
    }
    order = bt_tmpl_run_take(out->run, dict->n, sizeof(*order));
    for (uint32_t i = 0; (i < dict->n) && bt_tmpl_run_ok(out->run); i++) {
        uint32_t at = i;

        while (style->sorted && (at > 0) && bt_tmpl_run_step(out->run, 1) &&
               (bt_tmpl_v_compare(out->run, dict->entries[order[at - 1]].key,
                                  dict->entries[i].key, "<") > 0)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    bt_tmpl_build_puts(out, "{");
    for (uint32_t i = 0; (i < dict->n) && bt_tmpl_run_step(out->run, 1); i++) {
        const bt_tmpl_entry_t *entry = &dict->entries[order[i]];

        bt_tmpl_build_text(out, (i > 0) ? style->item : &bt_tmpl_text_empty);
        new_line(out, style, level + 1);
        json_key(out, style, entry->key);
        bt_tmpl_build_text(out, style->key);
        json_value(out, style, bt_tmpl_entry_use(dict, order[i]), level + 1);
    }
    new_line(out, style, level);
    bt_tmpl_build_puts(out, "}");
}

static void json_seq(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                     const bt_tmpl_seq_t *seq, uint32_t level)
{
    if (seq->n == 0) {
        bt_tmpl_build_puts(out, "[]");
        return;
    }
    bt_tmpl_build_puts(out, "[");
    for (uint32_t i = 0; (i < seq->n) && bt_tmpl_run_step(out->run, 1); i++) {
        bt_tmpl_build_text(out, (i > 0) ? style->item : &bt_tmpl_text_empty);
        new_line(out, style, level + 1);
        json_value(out, style, seq->items[i], level + 1);
    }
    new_line(out, style, level);
    bt_tmpl_build_puts(out, "]");
}

static void json_value(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                       bt_tmpl_value_t value, uint32_t level)
{
    const uint32_t from = out->len;

    if (!bt_tmpl_run_enter(out->run)) {
        return;
    }
    if (value.kind == BT_V_TEXT) {
        json_text(out, value.u.text, style->ascii);
    } else if ((value.kind == BT_V_INT) || (value.kind == BT_V_BIG_INT) ||
               (value.kind == BT_V_FLOAT)) {
        put_number(out, value, true);
    } else if ((value.kind == BT_V_NONE) || (value.kind == BT_V_BOOL)) {
        put_constant(out, value, true);
    } else if (value.kind == BT_V_DICT) {
        json_dict(out, style, value.u.dict, level);
    } else if ((value.kind == BT_V_SEQ) && (value.sub <= BT_SEQ_TUPLE)) {
        json_seq(out, style, value.u.seq, level);
    } else {
        bt_tmpl_run_fail(out->run, BT_ERR_INVALID_PARAM,
                         "tojson: %s cannot be written as JSON",
                         bt_tmpl_v_kind_name(value));
    }
    if ((value.kind != BT_V_TEXT) && bt_tmpl_v_quoted(value)) {
        bt_tmpl_build_quote_from(out, from);
    }
    bt_tmpl_run_leave(out->run);
}

void bt_tmpl_print_json(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                        bt_tmpl_value_t value)
{
    json_value(out, style, value, 0);
}
