/* SPDX-License-Identifier: Apache-2.0 */
#include "common/repository/pbtxt.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

typedef struct reader {
    const char *at, *end;
    uint32_t line;
    bt_pbtxt_t tree;
    uint32_t cap;
    size_t arena_used;
    char *why;
    size_t why_bytes;
} reader_t;

/* Open message: its fields are linked one after another. */
typedef struct scope {
    uint32_t owner; /* BT_PBTXT_NONE: the outermost */
    uint32_t last;
} scope_t;

__attribute__((format(printf, 3, 4))) static bt_status_t
refuse(reader_t *r, bt_status_t status, const char *fmt, ...)
{
    va_list args;
    const int n =
        snprintf(r->why, r->why_bytes, "line %u: ", (unsigned)r->line);

    if ((n > 0) && ((size_t)n < r->why_bytes)) {
        va_start(args, fmt);
        vsnprintf(r->why + n, r->why_bytes - (size_t)n, fmt, args);
        va_end(args);
    }
    return status;
}

/* ---- bytes ---- */

static bool is_letter(char c)
{
    return ((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
           (c == '_');
}

static bool is_digit(char c)
{
    return (c >= '0') && (c <= '9');
}

/* Character of a name, a number or an enumerator. */
static bool is_word(char c)
{
    return is_letter(c) || is_digit(c) || (c == '.') || (c == '+') ||
           (c == '-');
}

static char peek(const reader_t *r)
{
    return (r->at < r->end) ? *r->at : '\0';
}

static void skip_space(reader_t *r)
{
    while (r->at < r->end) {
        const char c = *r->at;

        if (c == '#') {
            while ((r->at < r->end) && (*r->at != '\n')) {
                r->at++;
            }
        } else if (c == '\n') {
            r->line++;
            r->at++;
        } else if ((c == ' ') || (c == '\t') || (c == '\r') || (c == '\v') ||
                   (c == '\f')) {
            r->at++;
        } else {
            return;
        }
    }
}

/* Is it the next thing? Then it is taken. */
static bool take(reader_t *r, char c)
{
    skip_space(r);
    if ((r->at < r->end) && (*r->at == c)) {
        r->at++;
        return true;
    }
    return false;
}

/* The arena has twice the file's bytes: every text has a byte at least, and one
 * for the zero behind it. */
static void put(reader_t *r, char c)
{
    r->tree.arena[r->arena_used++] = c;
}

/* ---- strings ---- */

static int hex_of(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    if ((c >= 'a') && (c <= 'f')) {
        return c - 'a' + 10;
    }
    return ((c >= 'A') && (c <= 'F')) ? c - 'A' + 10 : -1;
}

static bt_status_t take_number_escape(reader_t *r, bool hex)
{
    const unsigned base = hex ? 16 : 8;
    const int most = hex ? 2 : 3;
    unsigned value = 0;
    int n = 0;

    while ((n < most) && (hex_of(peek(r)) >= 0) &&
           ((unsigned)hex_of(peek(r)) < base)) {
        value = value * base + (unsigned)hex_of(peek(r));
        r->at++;
        n++;
    }
    if ((n == 0) || (value > 255)) {
        return refuse(r, BT_ERR_BAD_FILE, "an escape without a byte's value");
    }
    put(r, (char)value);
    return BT_OK;
}

/* After the backslash. */
static bt_status_t take_escape(reader_t *r)
{
    static const char names[] = "abfnrtv\\'\"?";
    static const char values[] = "\a\b\f\n\r\t\v\\'\"?";
    const char c = peek(r);
    const char *found = (c != '\0') ? strchr(names, c) : NULL;

    if (found != NULL) {
        put(r, values[found - names]);
        r->at++;
        return BT_OK;
    }
    if ((c == 'x') || (c == 'X')) {
        r->at++;
        return take_number_escape(r, true);
    }
    if ((c >= '0') && (c <= '7')) {
        return take_number_escape(r, false);
    }
    return refuse(r, BT_ERR_BAD_FILE, "an unknown escape in a string");
}

/* One quoted piece; several beside each other are one string. */
static bt_status_t take_quoted(reader_t *r)
{
    const char quote = *r->at++;
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (r->at < r->end) && (*r->at != quote)) {
        const char c = *r->at++;

        if (c == '\n') {
            return refuse(r, BT_ERR_BAD_FILE, "a string without its end");
        }
        if (c == '\\') {
            status = take_escape(r);
        } else {
            put(r, c);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    if (r->at >= r->end) {
        return refuse(r, BT_ERR_BAD_FILE, "a string without its end");
    }
    r->at++;
    return BT_OK;
}

/* ---- fields ---- */

static bt_status_t add(reader_t *r, scope_t *scope, const char *name,
                       uint32_t *index_p)
{
    bt_pbtxt_t *tree = &r->tree;
    bt_pbtxt_field_t *field;

    if (tree->n >= BT_PBTXT_MAX_FIELDS) {
        return refuse(r, BT_ERR_TOO_LARGE, "more than %u fields",
                      BT_PBTXT_MAX_FIELDS);
    }
    if (tree->n == r->cap) {
        const uint32_t cap = (r->cap == 0) ? 64 : 2 * r->cap;
        bt_pbtxt_field_t *grown;

        grown = bt_realloc_array(tree->fields, cap, sizeof(*grown));
        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        tree->fields = grown;
        r->cap = cap;
    }
    field = &tree->fields[tree->n];
    *field = (bt_pbtxt_field_t){.name = name,
                                .text = "",
                                .line = r->line,
                                .first = BT_PBTXT_NONE,
                                .next = BT_PBTXT_NONE};
    if (scope->last != BT_PBTXT_NONE) {
        tree->fields[scope->last].next = tree->n;
    } else if (scope->owner != BT_PBTXT_NONE) {
        tree->fields[scope->owner].first = tree->n;
    } else {
        tree->first = tree->n;
    }
    scope->last = tree->n;
    *index_p = tree->n++;
    return BT_OK;
}

static bt_status_t take_fields(reader_t *r, uint32_t owner, char closing,
                               int depth);

static bt_status_t take_string(reader_t *r, bt_pbtxt_field_t *field)
{
    const size_t begin = r->arena_used;
    bt_status_t status;

    do {
        status = take_quoted(r);
        skip_space(r);
    } while ((status == BT_OK) && ((peek(r) == '"') || (peek(r) == '\'')));
    field->kind = BT_PBTXT_STRING;
    field->text = r->tree.arena + begin;
    field->bytes = r->arena_used - begin;
    put(r, '\0');
    field->unfilled = strstr(field->text, "${") != NULL;
    return status;
}

/* A number, a word, or a placeholder that fill_template has not filled. */
static bt_status_t take_word(reader_t *r, bt_pbtxt_field_t *field)
{
    const size_t begin = r->arena_used;

    field->kind = BT_PBTXT_WORD;
    field->text = r->tree.arena + begin;
    while (is_word(peek(r)) || (peek(r) == '$')) {
        if (*r->at == '$') {
            const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));

            if ((r->end - r->at < 2) || (r->at[1] != '{') || (close == NULL)) {
                return refuse(r, BT_ERR_BAD_FILE, "a '$' without {name}");
            }
            while (r->at < close) {
                if ((r->at[0] == '\n') || (r->at[0] == '\0')) {
                    return refuse(r, BT_ERR_BAD_FILE, "a '$' without {name}");
                }
                put(r, *r->at++);
            }
            field->unfilled = true;
        }
        put(r, *r->at++);
    }
    field->bytes = r->arena_used - begin;
    put(r, '\0');
    if (field->bytes == 0) {
        return refuse(r, BT_ERR_BAD_FILE, "%s has no value", field->name);
    }
    return BT_OK;
}

static bt_status_t take_value(reader_t *r, scope_t *scope, const char *name,
                              int depth)
{
    uint32_t index = 0;
    bt_status_t status;

    skip_space(r);
    status = add(r, scope, name, &index);
    if (status != BT_OK) {
        return status;
    }
    switch (peek(r)) {
    case '{':
    case '<':
        if (depth == BT_PBTXT_MAX_DEPTH) {
            return refuse(r, BT_ERR_TOO_LARGE, "more than %d messages deep",
                          BT_PBTXT_MAX_DEPTH);
        }
        return take_fields(r, index, (*r->at++ == '{') ? '}' : '>', depth + 1);
    case '"':
    case '\'':
        return take_string(r, &r->tree.fields[index]);
    default:
        return take_word(r, &r->tree.fields[index]);
    }
}

static bt_status_t take_list(reader_t *r, scope_t *scope, const char *name,
                             int depth)
{
    bt_status_t status;

    if (take(r, ']')) {
        return BT_OK;
    }
    do {
        status = take_value(r, scope, name, depth);
    } while ((status == BT_OK) && take(r, ','));
    if (status != BT_OK) {
        return status;
    }
    return take(r, ']')
               ? BT_OK
               : refuse(r, BT_ERR_BAD_FILE,
                        "the list of %s goes on with neither ',' nor ']'",
                        name);
}

static bt_status_t take_name(reader_t *r, const char **name_p)
{
    const char *name = r->tree.arena + r->arena_used;

    if (!is_letter(peek(r))) {
        return refuse(r, BT_ERR_BAD_FILE, "here should be a field's name");
    }
    while (is_letter(peek(r)) || is_digit(peek(r))) {
        put(r, *r->at++);
    }
    put(r, '\0');
    *name_p = name;
    return BT_OK;
}

/* @param closing  '\0': to the end of the file */
static bt_status_t take_fields(reader_t *r, uint32_t owner, char closing,
                               int depth)
{
    scope_t scope = {.owner = owner, .last = BT_PBTXT_NONE};

    for (;;) {
        const char *name = "";
        bt_status_t status;
        bool colon;

        skip_space(r);
        if (r->at >= r->end) {
            return (closing == '\0')
                       ? BT_OK
                       : refuse(r, BT_ERR_BAD_FILE,
                                "the file ends before a '%c'", closing);
        }
        if ((closing != '\0') && take(r, closing)) {
            return BT_OK;
        }
        status = take_name(r, &name);
        if (status != BT_OK) {
            return status;
        }
        colon = take(r, ':');
        skip_space(r);
        if (!colon && (peek(r) != '{') && (peek(r) != '<') &&
            (peek(r) != '[')) {
            return refuse(r, BT_ERR_BAD_FILE, "%s has no ':'", name);
        }
        status = take(r, '[') ? take_list(r, &scope, name, depth)
                              : take_value(r, &scope, name, depth);
        if (status != BT_OK) {
            return status;
        }
        if (!take(r, ',')) {
            (void)take(r, ';');
        }
    }
}

bt_status_t bt_pbtxt_read(const char *text, size_t n, bt_pbtxt_t *tree_p,
                          char *why, size_t why_bytes)
{
    reader_t r = {.at = text,
                  .end = text + n,
                  .line = 1,
                  .tree = {.first = BT_PBTXT_NONE},
                  .why = why,
                  .why_bytes = why_bytes};
    bt_status_t status;

    if (n > BT_PBTXT_MAX_BYTES) {
        return refuse(&r, BT_ERR_TOO_LARGE, "more than %u bytes",
                      BT_PBTXT_MAX_BYTES);
    }
    r.tree.arena = bt_calloc(2 * n + 2, 1);
    if (r.tree.arena == NULL) {
        return refuse(&r, BT_ERR_NO_MEMORY, "out of memory");
    }
    status = take_fields(&r, BT_PBTXT_NONE, '\0', 0);
    if (status == BT_ERR_NO_MEMORY) {
        (void)refuse(&r, status, "out of memory");
    }
    if (status != BT_OK) {
        bt_pbtxt_fini(&r.tree);
        return status;
    }
    *tree_p = r.tree;
    return BT_OK;
}

void bt_pbtxt_fini(bt_pbtxt_t *tree)
{
    bt_free(tree->fields);
    bt_free(tree->arena);
    *tree = (bt_pbtxt_t){.first = BT_PBTXT_NONE};
}

const bt_pbtxt_field_t *bt_pbtxt_find(const bt_pbtxt_t *tree, uint32_t first,
                                      const char *name)
{
    BT_PBTXT_FOR_EACH(field, tree, first)
    {
        if (strcmp(field->name, name) == 0) {
            return field;
        }
    }
    return NULL;
}
