/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/json_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/task.h"
#include "common/base/text.h"

#define FIRST_NODES   64u
#define DOUBLED_NODES (1u << 16) /* lists up to here double */
#define NUMBER_BYTES  64         /* of a number's text in a file, at most */
#define FEW_KEYS      8u /* compared one with the other, beyond by a table */
#define POLL_BYTES    ((size_t)1 << 16) /* of text between two polls */

struct bt_json_doc {
    bt_json_node_t *nodes;
    uint32_t n;
    uint32_t cap;
    char *decoded; /* strings that had escapes; NULL: there was none */
    size_t n_decoded;
    size_t half_at; /* bt_json_doc_half() */
};

typedef struct parse {
    const char *text;
    size_t bytes;
    size_t at;
    bt_json_doc_t *doc;
    uint32_t open[BT_JSON_DOC_DEPTH]; /* containers around this position */
    uint32_t depth;
    uint32_t member;     /* the root's last key; 0: none yet */
    uint32_t max_values; /* of a client's text; 0: it is a file's */
    uint32_t n_values;
    uint64_t seed; /* of keys' hashes; no client knows it */
    bt_json_fault_t *fault;
} parse_t;

/* Clients' texts are parsed as JSON defines it, within cost bounds; files'
 * texts must also be unambiguous. */
static bool is_client(const parse_t *p)
{
    return p->max_values > 0;
}

/* At most 60 bytes, printable. */
static void show_key(const bt_json_node_t *key, char shown[64])
{
    const int n = (key->len > 60) ? 60 : (int)key->len;

    for (int i = 0; i < n; i++) {
        shown[i] = ((key->text[i] >= ' ') && (key->text[i] <= '~'))
                       ? key->text[i]
                       : '?';
    }
    shown[n] = '\0';
}

static bt_status_t fault(const parse_t *p, bt_status_t status, const char *what)
{
    snprintf(p->fault->what, sizeof(p->fault->what), "%s", what);
    p->fault->at = p->at;
    p->fault->member[0] = '\0';
    if (p->member > 0) {
        show_key(&p->doc->nodes[p->member], p->fault->member);
    }
    return status;
}

static bt_status_t bad(const parse_t *p, const char *what)
{
    return fault(p, BT_ERR_BAD_FILE, what);
}

static bt_status_t no_memory(const parse_t *p)
{
    return fault(p, BT_ERR_NO_MEMORY, "out of memory for its JSON");
}

static void skip_space(parse_t *p)
{
    while ((p->at < p->bytes) &&
           ((p->text[p->at] == ' ') || (p->text[p->at] == '\n') ||
            (p->text[p->at] == '\t') || (p->text[p->at] == '\r'))) {
        p->at++;
    }
}

/* Long lists grow by a quarter: a request's account counts what is allocated.
 */
static uint32_t grown(uint32_t cap)
{
    if (cap == 0) {
        return FIRST_NODES;
    }
    return cap + ((cap < DOUBLED_NODES) ? cap : cap / 4);
}

static bt_status_t add_node(parse_t *p, bt_json_kind_t kind, const char *text,
                            size_t len)
{
    bt_json_doc_t *const doc = p->doc;

    if (doc->n == doc->cap) {
        const uint32_t cap = grown(doc->cap);
        bt_json_node_t *const nodes =
            bt_realloc_array(doc->nodes, cap, sizeof(*nodes));

        if (nodes == NULL) {
            return no_memory(p);
        }
        doc->nodes = nodes;
        doc->cap = cap;
    }
    doc->nodes[doc->n] = (bt_json_node_t){.text = text,
                                          .len = (uint32_t)len,
                                          .next = doc->n + 1,
                                          .kind = (uint8_t)kind};
    doc->n++;
    return BT_OK;
}

/* ---- strings ---- */

static bool hex4(const parse_t *p, size_t at, uint32_t *value_p)
{
    uint32_t value = 0;

    if (p->bytes - at < 4) {
        return false;
    }
    for (size_t i = 0; i < 4; i++) {
        const int digit = bt_hex_digit(p->text[at + i]);

        if (digit < 0) {
            return false;
        }
        value = value * 16 + (uint32_t)digit;
    }
    *value_p = value;
    return true;
}

/* \uXXXX, of a pair both; at is behind the 'u'. */
static bt_status_t decode_unicode(parse_t *p, char *out, size_t *n_p)
{
    uint8_t utf8[4];
    uint32_t cp;
    uint32_t low;
    unsigned n;

    if (!hex4(p, p->at, &cp)) {
        return bad(p, "a \\u without four hexadecimal digits");
    }
    p->at += 4;
    if ((cp >= 0xD800) && (cp < 0xDC00) && (p->bytes - p->at >= 6) &&
        (p->text[p->at] == '\\') && (p->text[p->at + 1] == 'u') &&
        hex4(p, p->at + 2, &low) && (low >= 0xDC00) && (low < 0xE000)) {
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
        p->at += 6;
    }
    if ((cp >= 0xD800) && (cp < 0xE000)) {
        if (!is_client(p)) {
            return bad(p, "half of a surrogate pair");
        }
        cp = 0xFFFD; /* as USVString of WHATWG's Web IDL has it */
        if (p->doc->half_at == SIZE_MAX) {
            p->doc->half_at = p->at - 6;
        }
    }
    n = bt_utf8_encode(cp, utf8);
    memcpy(out + *n_p, utf8, n);
    *n_p += n;
    return BT_OK;
}

/* at is behind the backslash. No escape is shorter than its character. */
static bt_status_t decode_escape(parse_t *p, char *out, size_t *n_p)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    const char c = (p->at < p->bytes) ? p->text[p->at] : '\0';
    const char *const found = (c != '\0') ? strchr(from, c) : NULL;

    if (found != NULL) {
        out[(*n_p)++] = to[found - from];
        p->at++;
        return BT_OK;
    }
    if (c != 'u') {
        return bad(p, "an escape that JSON does not have");
    }
    p->at++;
    return decode_unicode(p, out, n_p);
}

/* Does one of these eight bytes end a run of plain text: a quote, a backslash,
 * a control character? */
static bool has_end(uint64_t word)
{
    const uint64_t ones = UINT64_MAX / 255;
    const uint64_t high = ones << 7;
    const uint64_t quote = word ^ (ones * '"');
    const uint64_t backslash = word ^ (ones * '\\');

    return ((((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) |
             ((backslash - ones) & ~backslash)) &
            high) != 0;
}

/* at moves behind the plain text of a string, to its terminator or to the
 * end of the text. */
static bt_status_t skip_plain(parse_t *p)
{
    size_t poll_at = p->at + POLL_BYTES;
    uint64_t word;

    while (p->bytes - p->at >= sizeof(word)) {
        if ((p->at >= poll_at) && bt_task_poll()) {
            return no_memory(p); /* canceled: the error is not reported */
        }
        poll_at = (p->at >= poll_at) ? p->at + POLL_BYTES : poll_at;
        memcpy(&word, p->text + p->at, sizeof(word));
        if (has_end(word)) {
            break;
        }
        p->at += sizeof(word);
    }
    while ((p->at < p->bytes) && (p->text[p->at] != '"') &&
           (p->text[p->at] != '\\')) {
        if ((uint8_t)p->text[p->at] < 0x20) {
            return bad(p, "a control character in a string");
        }
        p->at++;
    }
    return BT_OK;
}

/* The string from start, with escapes from at on. */
static bt_status_t decode_string(parse_t *p, size_t start)
{
    bt_json_doc_t *const doc = p->doc;
    bt_status_t status = BT_OK;
    char *out;
    unsigned steps = 0;
    size_t n = p->at - start;

    if (doc->decoded == NULL) {
        doc->decoded = bt_calloc(p->bytes, 1);
        if (doc->decoded == NULL) {
            return no_memory(p);
        }
    }
    out = doc->decoded + doc->n_decoded;
    memcpy(out, p->text + start, n);
    while ((status == BT_OK) && (p->at < p->bytes) && (p->text[p->at] != '"')) {
        if (p->text[p->at] == '\\') {
            p->at++;
            status = decode_escape(p, out, &n);
            if (bt_task_poll_every(&steps)) {
                status = no_memory(p); /* canceled: the error is not reported */
            }
        } else {
            const size_t from = p->at;

            status = skip_plain(p);
            memcpy(out + n, p->text + from, p->at - from);
            n += p->at - from;
        }
    }
    if (status != BT_OK) {
        return status;
    }
    if (p->at == p->bytes) {
        return bad(p, "a string without an end");
    }
    p->at++;
    doc->n_decoded += n;
    return add_node(p, BT_JSON_STRING, out, n);
}

/* at is behind the opening quote. */
static bt_status_t parse_string(parse_t *p)
{
    const size_t start = p->at;
    const bt_status_t status = skip_plain(p);

    if (status != BT_OK) {
        return status;
    }
    if (p->at == p->bytes) {
        return bad(p, "a string without an end");
    }
    if (p->text[p->at] == '\\') {
        return decode_string(p, start);
    }
    p->at++;
    return add_node(p, BT_JSON_STRING, p->text + start, p->at - 1 - start);
}

/* ---- numbers and words ---- */

static bool is_digit(const parse_t *p, size_t at)
{
    return (at < p->bytes) && (p->text[at] >= '0') && (p->text[at] <= '9');
}

static size_t digits_end(const parse_t *p, size_t at)
{
    while (is_digit(p, at)) {
        at++;
    }
    return at;
}

static bool char_is(const parse_t *p, size_t at, char c)
{
    return (at < p->bytes) && (p->text[at] == c);
}

static bt_status_t parse_number(parse_t *p)
{
    const size_t start = p->at;
    size_t at = start + (char_is(p, start, '-') ? 1 : 0);

    if (!is_digit(p, at)) {
        return bad(p, "what is no value");
    }
    at = char_is(p, at, '0') ? at + 1 : digits_end(p, at);
    if (char_is(p, at, '.')) {
        if (!is_digit(p, at + 1)) {
            return bad(p, "a number without digits behind its point");
        }
        at = digits_end(p, at + 1);
    }
    if (char_is(p, at, 'e') || char_is(p, at, 'E')) {
        at++;
        at += (char_is(p, at, '+') || char_is(p, at, '-')) ? 1 : 0;
        if (!is_digit(p, at)) {
            return bad(p, "a number without digits in its exponent");
        }
        at = digits_end(p, at);
    }
    /* A long one is read where it lies: something ends it there. */
    if ((at - start > NUMBER_BYTES) && (!is_client(p) || (at == p->bytes))) {
        return bad(p, "a number of absurdly many digits");
    }
    p->at = at;
    return add_node(p, BT_JSON_NUMBER, p->text + start, at - start);
}

static bt_status_t parse_word(parse_t *p)
{
    static const struct {
        const char *word;
        bt_json_kind_t kind;
    } words[] = {{"null", BT_JSON_NULL},
                 {"true", BT_JSON_TRUE},
                 {"false", BT_JSON_FALSE}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t n = strlen(words[i].word);

        if ((p->bytes - p->at >= n) &&
            (memcmp(p->text + p->at, words[i].word, n) == 0)) {
            p->at += n;
            return add_node(p, words[i].kind, NULL, 0);
        }
    }
    return parse_number(p);
}

/* ---- objects ---- */

static bool same_text(const bt_json_node_t *a, const bt_json_node_t *b)
{
    return (a->len == b->len) &&
           ((a->len == 0) || (memcmp(a->text, b->text, a->len) == 0));
}

/* An earlier and a later key that are equal. */
static bt_status_t twice(const parse_t *p, bt_json_node_t *earlier)
{
    char shown[64];
    char what[BT_JSON_FAULT_BYTES];

    if (is_client(p)) {
        earlier->n = 1; /* bt_json_counts() */
        return BT_OK;
    }
    show_key(earlier, shown);
    snprintf(what, sizeof(what), "the key \"%s\" stands twice in one object",
             shown);
    return bad(p, what);
}

static bt_status_t check_few(const parse_t *p, uint32_t object)
{
    bt_json_node_t *const nodes = p->doc->nodes;
    bt_status_t status = BT_OK;
    uint32_t a = object + 1;

    for (uint32_t i = 0; i < nodes[object].n; i++) {
        uint32_t b = nodes[a + 1].next;

        for (uint32_t k = i + 1; k < nodes[object].n; k++) {
            if (same_text(&nodes[a], &nodes[b])) {
                status = twice(p, &nodes[a]);
                if (status != BT_OK) {
                    return status;
                }
            }
            b = nodes[b + 1].next;
        }
        a = nodes[a + 1].next;
    }
    return BT_OK;
}

static bt_status_t check_many(const parse_t *p, uint32_t object)
{
    bt_json_node_t *const nodes = p->doc->nodes;
    bt_status_t status = BT_OK;
    size_t cap = 4 * (size_t)FEW_KEYS;
    uint32_t *table;
    uint32_t key = object + 1;

    while (cap < 2 * (size_t)nodes[object].n) {
        cap *= 2;
    }
    table = bt_calloc(cap, sizeof(*table)); /* 0, the root, is never a key */
    if (table == NULL) {
        return no_memory(p);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < nodes[object].n); i++) {
        size_t slot =
            (size_t)bt_hash64(nodes[key].text, nodes[key].len, p->seed);

        for (slot &= cap - 1; table[slot] != 0; slot = (slot + 1) & (cap - 1)) {
            if (same_text(&nodes[table[slot]], &nodes[key])) {
                status = twice(p, &nodes[table[slot]]);
                break;
            }
        }
        table[slot] = key;
        key = nodes[key + 1].next;
    }
    bt_free(table);
    return status;
}

/* ---- the whole ---- */

static bt_status_t open_container(parse_t *p, bt_json_kind_t kind)
{
    if (p->depth == BT_JSON_DOC_DEPTH) {
        return fault(p, is_client(p) ? BT_ERR_TOO_LARGE : BT_ERR_BAD_FILE,
                     "arrays and objects nested too deeply");
    }
    p->open[p->depth++] = p->doc->n;
    return add_node(p, kind, p->text + p->at++, 0);
}

static bt_status_t close_container(parse_t *p)
{
    const uint32_t index = p->open[--p->depth];
    bt_json_node_t *const node = &p->doc->nodes[index];

    p->at++;
    node->next = p->doc->n;
    node->len = (uint32_t)(p->text + p->at - node->text);
    if (node->kind != BT_JSON_OBJECT) {
        return BT_OK;
    }
    return (node->n <= FEW_KEYS) ? check_few(p, index) : check_many(p, index);
}

static bt_json_node_t *around(const parse_t *p)
{
    return (p->depth == 0) ? NULL : &p->doc->nodes[p->open[p->depth - 1]];
}

static bt_status_t parse_value(parse_t *p)
{
    skip_space(p);
    if (p->at == p->bytes) {
        return bad(p, "the end where a value is due");
    }
    if (is_client(p) && (p->n_values++ == p->max_values)) {
        return fault(p, BT_ERR_TOO_LARGE, "too many values");
    }
    switch (p->text[p->at]) {
    case '{':
        return open_container(p, BT_JSON_OBJECT);
    case '[':
        return open_container(p, BT_JSON_ARRAY);
    case '"':
        p->at++;
        return parse_string(p);
    default:
        return parse_word(p);
    }
}

static bt_status_t parse_key(parse_t *p)
{
    bt_status_t status;

    skip_space(p);
    if (!char_is(p, p->at, '"')) {
        return bad(p, "no key where one is due");
    }
    p->at++;
    status = parse_string(p);
    if (status != BT_OK) {
        return status;
    }
    if (p->depth == 1) {
        p->member = p->doc->n - 1;
    }
    skip_space(p);
    if (!char_is(p, p->at, ':')) {
        return bad(p, "no colon behind a key");
    }
    p->at++;
    return BT_OK;
}

/* A value is complete, or a container was opened: parses up to the next. */
static bt_status_t between(parse_t *p, bool opened)
{
    bt_json_node_t *node = around(p);
    bool first = opened;

    while (node != NULL) {
        const bool object = node->kind == BT_JSON_OBJECT;
        bt_status_t status;

        skip_space(p);
        if (char_is(p, p->at, object ? '}' : ']')) {
            status = close_container(p);
            if (status != BT_OK) {
                return status;
            }
            node = around(p);
            first = false;
            continue;
        }
        if (!first) {
            if (!char_is(p, p->at, ',')) {
                return bad(p, "neither a comma nor an end behind a value");
            }
            p->at++;
        }
        node->n++;
        return object ? parse_key(p) : BT_OK;
    }
    return BT_OK;
}

static bt_status_t parse_all(parse_t *p)
{
    bt_status_t status;
    unsigned steps = 0;

    do {
        uint32_t depth = p->depth;

        if (bt_task_poll_every(&steps)) {
            return no_memory(p); /* canceled: the error is not reported */
        }
        status = parse_value(p);
        if (status == BT_OK) {
            status = between(p, p->depth > depth);
        }
    } while ((status == BT_OK) && (p->depth > 0));
    if (status != BT_OK) {
        return status;
    }
    skip_space(p);
    return (p->at == p->bytes) ? BT_OK : bad(p, "more behind the value");
}

static bool is_continuation(const parse_t *p, size_t at)
{
    return (at < p->bytes) && ((p->text[at] & 0xC0) == 0x80);
}

/* Is all of the text UTF-8? On failure at is where it is not, else 0. */
static bt_status_t check_utf8(parse_t *p)
{
    const uint8_t *const text = (const uint8_t *)p->text;
    size_t end = 0;
    int n;

    for (p->at = 0; p->at < p->bytes; p->at = end) {
        end = (p->bytes - p->at < POLL_BYTES) ? p->bytes : p->at + POLL_BYTES;
        for (int i = 0; (i < 3) && is_continuation(p, end); i++) {
            end++; /* a character is checked whole */
        }
        if (!bt_utf8_valid(text + p->at, end - p->at)) {
            while ((n = bt_utf8_scan(text + p->at, p->bytes - p->at)) > 0) {
                p->at += (size_t)n;
            }
            return bad(p, "it is not UTF-8");
        }
        if ((end < p->bytes) && bt_task_poll()) {
            return no_memory(p); /* canceled: the error is not reported */
        }
    }
    p->at = 0;
    return BT_OK;
}

static bt_status_t parse_doc(parse_t *p, bt_json_doc_t **doc_p)
{
    bt_status_t status;

    if (p->bytes > BT_JSON_DOC_BYTES) {
        return bad(p, "too many bytes of JSON");
    }
    status = check_utf8(p);
    if (status != BT_OK) {
        return status;
    }
    p->doc = bt_calloc(1, sizeof(*p->doc));
    if (p->doc == NULL) {
        return no_memory(p);
    }
    p->doc->half_at = SIZE_MAX;
    p->seed = (uint64_t)(uintptr_t)p->doc;
    status = parse_all(p);
    if (status != BT_OK) {
        bt_json_doc_free(p->doc);
        return status;
    }
    *doc_p = p->doc;
    return BT_OK;
}

bt_status_t bt_json_doc_parse(const char *text, size_t bytes, char *why,
                              size_t why_bytes, bt_json_doc_t **doc_p)
{
    bt_json_fault_t found;
    parse_t p = {.text = text, .bytes = bytes, .fault = &found};
    const bt_status_t status = parse_doc(&p, doc_p);

    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s at byte %zu", found.what, found.at);
    }
    return status;
}

bt_status_t bt_json_doc_parse_client(const char *text, size_t bytes,
                                     uint32_t max_values,
                                     bt_json_fault_t *fault_p,
                                     bt_json_doc_t **doc_p)
{
    parse_t p = {.text = text,
                 .bytes = bytes,
                 .max_values = max_values,
                 .fault = fault_p};

    return parse_doc(&p, doc_p);
}

void bt_json_doc_free(bt_json_doc_t *doc)
{
    if (doc != NULL) {
        bt_free(doc->decoded);
        bt_free(doc->nodes);
        bt_free(doc);
    }
}

size_t bt_json_doc_half(const bt_json_doc_t *doc)
{
    return doc->half_at;
}

const bt_json_node_t *bt_json_doc_root(const bt_json_doc_t *doc)
{
    return doc->nodes;
}

const bt_json_node_t *bt_json_next(const bt_json_doc_t *doc,
                                   const bt_json_node_t *node)
{
    return &doc->nodes[node->next];
}

const bt_json_node_t *bt_json_get(const bt_json_doc_t *doc,
                                  const bt_json_node_t *node, const char *key)
{
    const bt_json_node_t *at;

    if (!bt_json_is_kind(node, BT_JSON_OBJECT)) {
        return NULL;
    }
    at = bt_json_first(node);
    for (uint32_t i = 0; i < node->n; i++) {
        if (bt_json_counts(at) && bt_json_is(at, key)) {
            return at + 1;
        }
        at = bt_json_next(doc, at + 1);
    }
    return NULL;
}

bool bt_json_is(const bt_json_node_t *node, const char *text)
{
    const size_t n = strlen(text);

    return (node != NULL) && (node->kind == BT_JSON_STRING) &&
           (node->len == n) && ((n == 0) || (memcmp(node->text, text, n) == 0));
}

bool bt_json_as_double(const bt_json_node_t *node, double *value_p)
{
    char text[NUMBER_BYTES + 1];
    double value;

    if (!bt_json_is_kind(node, BT_JSON_NUMBER)) {
        return false;
    }
    if (node->len <= NUMBER_BYTES) {
        memcpy(text, node->text, node->len);
        text[node->len] = '\0';
        value = strtod(text, NULL);
    } else {
        value = strtod(node->text, NULL); /* its terminator is no part of a
                                             number */
    }
    if (!isfinite(value)) {
        return false;
    }
    *value_p = value;
    return true;
}

bool bt_json_is_fraction(const bt_json_node_t *number)
{
    for (uint32_t i = 0; i < number->len; i++) {
        if (strchr(".eE", number->text[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Number as its digits, "12.50e3": 1250 with the point moved by 1. */
typedef struct decimal {
    const char *text; /* behind the sign */
    size_t n;         /* digits, and the point */
    size_t n_digits;
    int64_t shift; /* powers of ten by which the digits are multiplied */
    bool negative;
} decimal_t;

#define MAX_EXPONENT 1000000000 /* no body has so many digits */

static decimal_t decimal_of(const bt_json_node_t *value)
{
    decimal_t d = {.text = value->text, .negative = value->text[0] == '-'};
    const char *const end = value->text + value->len;
    bool fraction = false;
    int64_t exponent = 0;
    bool down;

    d.text += d.negative ? 1 : 0;
    for (; (d.text + d.n < end) && ((d.text[d.n] | 0x20) != 'e'); d.n++) {
        if (d.text[d.n] == '.') {
            fraction = true;
        } else {
            d.n_digits++;
            d.shift -= fraction ? 1 : 0;
        }
    }
    if (d.text + d.n < end) {
        const char *at = d.text + d.n + 1;

        down = *at == '-';
        at += ((*at == '-') || (*at == '+')) ? 1 : 0;
        for (; (at < end) && (exponent < MAX_EXPONENT); at++) {
            exponent = 10 * exponent + (*at - '0');
        }
        d.shift += down ? -exponent : exponent;
    }
    return d;
}

bool bt_json_as_whole(const bt_json_node_t *node, bt_json_whole_t *whole_p)
{
    bt_json_whole_t whole = {.fits = true};
    int64_t seen = 0;
    decimal_t d;
    int64_t n_whole;

    if (!bt_json_is_kind(node, BT_JSON_NUMBER)) {
        return false;
    }
    d = decimal_of(node);
    n_whole = (int64_t)d.n_digits + ((d.shift < 0) ? d.shift : 0);
    for (size_t i = 0; i < d.n; i++) {
        const uint64_t digit = (uint64_t)(d.text[i] - '0');

        if (d.text[i] == '.') {
            continue;
        }
        if (seen++ >= n_whole) {
            if (digit != 0) {
                return false;
            }
            continue;
        }
        whole.fits =
            whole.fits && (whole.magnitude <= (UINT64_MAX - digit) / 10);
        whole.magnitude = whole.magnitude * 10 + digit;
    }
    for (int64_t i = 0; (i < d.shift) && (whole.magnitude != 0); i++) {
        whole.fits = whole.fits && (whole.magnitude <= UINT64_MAX / 10);
        whole.magnitude *= 10; /* of 64 factors none is left modulo 2^64 */
    }
    whole.negative = d.negative;
    *whole_p = whole;
    return true;
}

bool bt_json_as_u64(const bt_json_node_t *node, uint64_t *value_p)
{
    bt_json_whole_t whole;

    if (!bt_json_as_whole(node, &whole) || !whole.fits ||
        (whole.negative && (whole.magnitude != 0))) {
        return false;
    }
    *value_p = whole.magnitude;
    return true;
}

bool bt_json_as_i64(const bt_json_node_t *node, int64_t *value_p)
{
    bt_json_whole_t whole;

    if (!bt_json_as_whole(node, &whole) || !whole.fits ||
        (whole.magnitude > INT64_MAX)) {
        return false;
    }
    *value_p =
        whole.negative ? -(int64_t)whole.magnitude : (int64_t)whole.magnitude;
    return true;
}
