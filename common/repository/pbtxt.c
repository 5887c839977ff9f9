/* SPDX-License-Identifier: Apache-2.0 */
#include "common/repository/pbtxt.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"

typedef struct reader {
    const char *at, *end;
    uint32_t line;
    bt_pbtxt_t tree;
    uint32_t cap;
    size_t arena_used;
    bt_status_t status; /* of the first error, which ends the reading */
    char *why;
    size_t why_bytes;
} reader_t;

/* Open message: its fields are linked one after another. */
typedef struct scope {
    uint32_t owner; /* BT_PBTXT_NONE: the outermost */
    uint32_t last;
} scope_t;

/* Records the first error. */
__attribute__((format(printf, 3, 4))) static void
refuse(reader_t *r, bt_status_t status, const char *fmt, ...)
{
    va_list args;
    int n;

    if (r->status != BT_OK) {
        return;
    }
    r->status = status;
    n = snprintf(r->why, r->why_bytes, "line %u: ", (unsigned)r->line);
    if ((n > 0) && ((size_t)n < r->why_bytes)) {
        va_start(args, fmt);
        vsnprintf(r->why + n, r->why_bytes - (size_t)n, fmt, args);
        va_end(args);
    }
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

static void take_number_escape(reader_t *r, bool hex)
{
    const unsigned base = hex ? 16 : 8;
    const int most = hex ? 2 : 3;
    unsigned value = 0;
    int n = 0;

    while ((n < most) && (bt_hex_digit(peek(r)) >= 0) &&
           ((unsigned)bt_hex_digit(peek(r)) < base)) {
        value = value * base + (unsigned)bt_hex_digit(peek(r));
        r->at++;
        n++;
    }
    if ((n == 0) || (value > 255)) {
        refuse(r, BT_ERR_BAD_FILE, "an escape without a byte's value");
    }
    put(r, (char)value);
}

/* After the backslash. */
static void take_escape(reader_t *r)
{
    static const char names[] = "abfnrtv\\'\"?";
    static const char values[] = "\a\b\f\n\r\t\v\\'\"?";
    const char c = peek(r);
    const char *found = (c != '\0') ? strchr(names, c) : NULL;

    if (found != NULL) {
        put(r, values[found - names]);
        r->at++;
    } else if ((c == 'x') || (c == 'X')) {
        r->at++;
        take_number_escape(r, true);
    } else if ((c >= '0') && (c <= '7')) {
        take_number_escape(r, false);
    } else {
        refuse(r, BT_ERR_BAD_FILE, "an unknown escape in a string");
    }
}

/* One quoted piece; several beside each other are one string. */
static void take_quoted(reader_t *r)
{
    const char quote = *r->at++;

    while ((r->status == BT_OK) && (r->at < r->end) && (*r->at != quote)) {
        const char c = *r->at++;

        if (c == '\n') {
            refuse(r, BT_ERR_BAD_FILE, "a string without its end");
        } else if (c == '\\') {
            take_escape(r);
        } else {
            put(r, c);
        }
    }
    if (r->at < r->end) {
        r->at++;
    } else {
        refuse(r, BT_ERR_BAD_FILE, "a string without its end");
    }
}

/* ---- fields ---- */

/* @return the index of a new field; BT_PBTXT_NONE: an error */
static uint32_t add(reader_t *r, scope_t *scope, const char *name)
{
    bt_pbtxt_t *tree = &r->tree;
    bt_pbtxt_field_t *field;

    if (tree->n >= BT_PBTXT_MAX_FIELDS) {
        refuse(r, BT_ERR_TOO_LARGE, "more than %u fields", BT_PBTXT_MAX_FIELDS);
        return BT_PBTXT_NONE;
    }
    if (!bt_array_grow(&tree->fields, &r->cap, tree->n + 1,
                       sizeof(*tree->fields))) {
        refuse(r, BT_ERR_NO_MEMORY, "out of memory");
        return BT_PBTXT_NONE;
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
    return tree->n++;
}

static void take_fields(reader_t *r, uint32_t owner, char closing, int depth);

static void take_string(reader_t *r, bt_pbtxt_field_t *field)
{
    const size_t begin = r->arena_used;

    do {
        take_quoted(r);
        skip_space(r);
    } while ((r->status == BT_OK) && ((peek(r) == '"') || (peek(r) == '\'')));
    field->kind = BT_PBTXT_STRING;
    field->text = r->tree.arena + begin;
    field->bytes = r->arena_used - begin;
    put(r, '\0');
    field->unfilled = strstr(field->text, "${") != NULL;
}

/* A number, a word, or a placeholder that fill_template has not filled. */
static void take_word(reader_t *r, bt_pbtxt_field_t *field)
{
    const size_t begin = r->arena_used;

    field->kind = BT_PBTXT_WORD;
    field->text = r->tree.arena + begin;
    while (is_word(peek(r)) || (peek(r) == '$')) {
        if (*r->at == '$') {
            const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));

            if ((r->end - r->at < 2) || (r->at[1] != '{') || (close == NULL)) {
                refuse(r, BT_ERR_BAD_FILE, "a '$' without {name}");
                return;
            }
            while (r->at < close) {
                if ((r->at[0] == '\n') || (r->at[0] == '\0')) {
                    refuse(r, BT_ERR_BAD_FILE, "a '$' without {name}");
                    return;
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
        refuse(r, BT_ERR_BAD_FILE, "%s has no value", field->name);
    }
}

static void take_value(reader_t *r, scope_t *scope, const char *name, int depth)
{
    uint32_t index;

    skip_space(r);
    index = add(r, scope, name);
    if (index == BT_PBTXT_NONE) {
        return;
    }
    switch (peek(r)) {
    case '{':
    case '<':
        if (depth == BT_PBTXT_MAX_DEPTH) {
            refuse(r, BT_ERR_TOO_LARGE, "more than %d messages deep",
                   BT_PBTXT_MAX_DEPTH);
            break;
        }
        take_fields(r, index, (*r->at++ == '{') ? '}' : '>', depth + 1);
        break;
    case '"':
    case '\'':
        take_string(r, &r->tree.fields[index]);
        break;
    default:
        take_word(r, &r->tree.fields[index]);
        break;
    }
}

static void take_list(reader_t *r, scope_t *scope, const char *name, int depth)
{
    if (take(r, ']')) {
        return;
    }
    do {
        take_value(r, scope, name, depth);
    } while ((r->status == BT_OK) && take(r, ','));
    if (!take(r, ']')) {
        refuse(r, BT_ERR_BAD_FILE,
               "the list of %s goes on with neither ',' nor ']'", name);
    }
}

static const char *take_name(reader_t *r)
{
    const char *name = r->tree.arena + r->arena_used;

    if (!is_letter(peek(r))) {
        refuse(r, BT_ERR_BAD_FILE, "here should be a field's name");
    }
    while (is_letter(peek(r)) || is_digit(peek(r))) {
        put(r, *r->at++);
    }
    put(r, '\0');
    return name;
}

/* @param closing  '\0': to the end of the file */
static void take_fields(reader_t *r, uint32_t owner, char closing, int depth)
{
    scope_t scope = {.owner = owner, .last = BT_PBTXT_NONE};

    while (r->status == BT_OK) {
        const char *name;
        bool colon;

        skip_space(r);
        if ((r->at >= r->end) && (closing != '\0')) {
            refuse(r, BT_ERR_BAD_FILE, "the file ends before a '%c'", closing);
        }
        if ((r->at >= r->end) || ((closing != '\0') && take(r, closing))) {
            return;
        }
        name = take_name(r);
        colon = take(r, ':');
        skip_space(r);
        if (!colon && (peek(r) != '{') && (peek(r) != '<') &&
            (peek(r) != '[')) {
            refuse(r, BT_ERR_BAD_FILE, "%s has no ':'", name);
        }
        if (r->status != BT_OK) {
            return;
        }
        if (take(r, '[')) {
            take_list(r, &scope, name, depth);
        } else {
            take_value(r, &scope, name, depth);
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

    if (n > BT_PBTXT_MAX_BYTES) {
        refuse(&r, BT_ERR_TOO_LARGE, "more than %u bytes", BT_PBTXT_MAX_BYTES);
        return r.status;
    }
    r.tree.arena = bt_calloc(2 * n + 2, 1);
    if (r.tree.arena == NULL) {
        refuse(&r, BT_ERR_NO_MEMORY, "out of memory");
        return r.status;
    }
    take_fields(&r, BT_PBTXT_NONE, '\0', 0);
    if (r.status == BT_OK) {
        *tree_p = r.tree;
    } else {
        bt_pbtxt_fini(&r.tree);
    }
    return r.status;
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
