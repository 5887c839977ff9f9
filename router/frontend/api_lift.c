/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/api_lift.h"

#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"

#define KEY       "\"prompt\""
#define KEY_BYTES (sizeof(KEY) - 1)
#define MARK      "\"" BT_API_LIFT_MARK "\""
#define ESCAPE    "\\ufdd0"
#define MAX_ID    INT32_MAX

typedef struct text {
    const char *at, *end;
} text_t;

static void skip_space(text_t *t)
{
    while ((t->at < t->end) && ((*t->at == ' ') || (*t->at == '\n') ||
                                (*t->at == '\r') || (*t->at == '\t'))) {
        t->at++;
    }
}

static bool skip_char(text_t *t, char c)
{
    skip_space(t);
    if ((t->at == t->end) || (*t->at != c)) {
        return false;
    }
    t->at++;
    return true;
}

/* From behind its first quote to behind its last. */
static bool skip_string(text_t *t)
{
    while (t->at < t->end) {
        const char c = *t->at++;

        if (c == '"') {
            return true;
        }
        if ((c == '\\') && (t->at < t->end)) {
            t->at++;
        }
    }
    return false;
}

static bool has_mark(const char *text, size_t bytes)
{
    const char *at = text;
    const char *const end = text + bytes;

    if (memmem(text, bytes, BT_API_LIFT_MARK, sizeof(BT_API_LIFT_MARK) - 1) !=
        NULL) {
        return true;
    }
    while ((at = memchr(at, '\\', (size_t)(end - at))) != NULL) {
        if (((size_t)(end - at) >= sizeof(ESCAPE) - 1) &&
            (strncasecmp(at, ESCAPE, sizeof(ESCAPE) - 1) == 0)) {
            return true;
        }
        at++;
    }
    return false;
}

/* A plain number: no sign, fraction, exponent, or zero before others. */
static bool read_id(text_t *t, uint32_t *id_p)
{
    const char *const first = t->at;
    uint64_t id = 0;

    while ((t->at < t->end) && (*t->at >= '0') && (*t->at <= '9')) {
        id = 10 * id + (uint64_t)(*t->at++ - '0');
        if (id > MAX_ID) {
            return false;
        }
    }
    *id_p = (uint32_t)id;
    return (t->at > first) && ((*first != '0') || (t->at == first + 1));
}

/* The list behind its bracket; @a ids NULL: only look.
 * @return how many there are; 0: it is something else, or there is none */
static size_t read_ids(text_t *t, uint32_t *ids)
{
    size_t n = 0;
    uint32_t id;

    do {
        skip_space(t);
        if (!read_id(t, &id)) {
            return 0;
        }
        if (ids != NULL) {
            ids[n] = id;
        }
        n++;
    } while (skip_char(t, ','));
    return skip_char(t, ']') ? n : 0;
}

/* The one list of numbers that is the value of a key "prompt" of the outermost
 * object: from its bracket to behind the other one. */
static bool find_list(const char *text, size_t bytes, text_t *list_p,
                      size_t *n_p)
{
    text_t t = {text, text + bytes};
    uint32_t depth = 1;
    bool found = false;

    if (!skip_char(&t, '{')) {
        return false;
    }
    while (t.at < t.end) {
        const char *const from = t.at;
        const char c = *t.at++;

        if ((c == '{') || (c == '[')) {
            depth++;
        } else if ((c == '}') || (c == ']')) {
            depth--;
        } else if (c == '"') {
            if (!skip_string(&t)) {
                return false;
            }
            if ((depth != 1) || ((size_t)(t.at - from) != KEY_BYTES) ||
                (memcmp(from, KEY, KEY_BYTES) != 0) || !skip_char(&t, ':')) {
                continue;
            }
            if (found) {
                return false; /* which one counts is the parser's to say */
            }
            skip_space(&t);
            list_p->at = t.at;
            if (!skip_char(&t, '[') || ((*n_p = read_ids(&t, NULL)) == 0)) {
                return false;
            }
            list_p->end = t.at;
            found = true;
        }
    }
    return found;
}

bool bt_api_lift(const char *text, size_t bytes, bt_api_lift_t *lift_p)
{
    bt_api_lift_t lift;
    text_t list;

    if (!find_list(text, bytes, &list, &lift.n_ids) || has_mark(text, bytes)) {
        return false;
    }
    bt_strbuf_init(&lift.text, bytes + sizeof(MARK));
    lift.ids = bt_calloc(lift.n_ids, sizeof(*lift.ids));
    bt_strbuf_append(&lift.text, text, (size_t)(list.at - text));
    bt_strbuf_puts(&lift.text, MARK);
    bt_strbuf_append(&lift.text, list.end, (size_t)(text + bytes - list.end));
    if ((lift.ids == NULL) || (bt_strbuf_status(&lift.text) != BT_OK)) {
        bt_api_lift_fini(&lift);
        return false;
    }
    list.at++; /* its bracket */
    (void)read_ids(&list, lift.ids);
    *lift_p = lift;
    return true;
}

void bt_api_lift_fini(bt_api_lift_t *lift)
{
    bt_strbuf_fini(&lift->text);
    bt_free(lift->ids);
    lift->ids = NULL;
}
