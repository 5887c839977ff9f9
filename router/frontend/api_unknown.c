/* SPDX-License-Identifier: Apache-2.0 */
/* Unknown fields of a body. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/frontend/api_priv.h"

#define SEPARATOR  ", "
#define MORE       "..."
#define NAME_BYTES 96 /* reported name with its path */

uint32_t bt_api_dialect_bit(bt_api_dialect_t dialect)
{
    switch (dialect) {
    case BT_API_GENERATE:
        return BT_API_G;
    case BT_API_COMPLETIONS:
        return BT_API_C;
    case BT_API_TOKENIZE:
        return BT_API_T;
    case BT_API_DETOKENIZE:
        return BT_API_D;
    case BT_API_RESPONSES:
        return BT_API_R;
    default:
        return BT_API_H;
    }
}

/* The name is sanitized because it becomes part of a header line. */
static size_t clean(const char *name, size_t bytes, char out[NAME_BYTES + 1])
{
    size_t n = 0;

    for (; (n < bytes) && (n < NAME_BYTES); n++) {
        const char c = name[n];

        out[n] = ((c > ' ') && (c <= '~') && (c != ',')) ? c : '?';
    }
    out[n] = '\0';
    return n;
}

/* True when it ends with "...": no space is left. */
static bool is_full(const char *ignored, size_t len)
{
    const size_t n = strlen(MORE);

    return (len >= n) && (strcmp(ignored + len - n, MORE) == 0);
}

void bt_api_note_unknown(bt_api_request_t *request, const char *name,
                         size_t bytes)
{
    char *const ignored = request->ignored;
    const size_t len = strlen(ignored);
    const char *separator = (len > 0) ? SEPARATOR : "";
    const size_t room = sizeof(request->ignored) - len;
    const size_t reserve = strlen(SEPARATOR) + strlen(MORE) + 1;
    char text[NAME_BYTES + 1];
    const size_t n = clean(name, bytes, text);

    if (is_full(ignored, len) || (n == 0)) {
        return;
    }
    snprintf(ignored + len, room, "%s%s", separator,
             (strlen(separator) + n + reserve <= room) ? text : MORE);
}

void bt_api_note_at(bt_api_request_t *request, const char *path,
                    const bt_json_node_t *key)
{
    char name[2 * NAME_BYTES];
    size_t n = strlen(path);

    memcpy(name, path, n);
    for (uint32_t i = 0; (i < key->len) && (n < sizeof(name)); i++) {
        name[n++] = key->text[i];
    }
    bt_api_note_unknown(request, name, n);
}

void bt_api_note_members(bt_api_parse_t *parse, const char *path,
                         const bt_json_node_t *object, const char *const *known)
{
    const uint32_t n = bt_json_size(object, BT_JSON_OBJECT);
    const bt_json_node_t *key = (n > 0) ? bt_json_first(object) : NULL;
    char place[NAME_BYTES];

    snprintf(place, sizeof(place), "%s.", path);
    for (uint32_t i = 0; i < n; i++) {
        bool is_known = (key + 1)->kind == BT_JSON_NULL;

        for (size_t k = 0; (known[k] != NULL) && !is_known; k++) {
            is_known = bt_json_is(key, known[k]);
        }
        if (!is_known) {
            bt_api_note_at(parse->request, place, key);
        }
        key = bt_json_next(parse->doc, key + 1);
    }
}

/* Reports messages[2].x as input[1].x, if that is its item. */
static void note_message(bt_api_request_t *request, const char *place, size_t n)
{
    const uint16_t *places = request->messages.places;
    char name[2 * NAME_BYTES];
    char *rest;
    unsigned long at;

    if (places == NULL) {
        bt_api_note_unknown(request, place, n);
        return;
    }
    at = strtoul(place + strlen("messages["), &rest, 10);
    if ((at < request->messages.n) && (places[at] != UINT16_MAX)) {
        snprintf(name, sizeof(name), "input[%u%.*s", (unsigned)places[at],
                 (int)((size_t)(place + n - rest) % sizeof(name)), rest);
    } else {
        snprintf(name, sizeof(name), "instructions");
    }
    bt_api_note_unknown(request, name, strlen(name));
}

void bt_api_note_unused(bt_api_request_t *request, const char *places)
{
    static const char messages[] = "messages[";
    const char *end;

    for (const char *at = places; *at != '\0'; at = end + 1) {
        end = strchr(at, '\n');
        if (end == NULL) {
            return; /* cut off */
        }
        if (strncmp(at, messages, strlen(messages)) == 0) {
            note_message(request, at, (size_t)(end - at));
        } else {
            bt_api_note_unknown(request, at, (size_t)(end - at));
        }
    }
}

static void name_one(uint32_t dialect, const char *name, size_t n,
                     bt_strbuf_t *out)
{
    static const char parameters[] = "parameters.";
    const size_t skipped = (strncmp(name, parameters, strlen(parameters)) == 0)
                               ? strlen(parameters)
                               : 0;
    const char *near =
        bt_api_nearest_field(dialect, name + skipped, n - skipped);

    bt_strbuf_append(out, name, n);
    if (near != NULL) {
        bt_strbuf_printf(out, " (did you mean %s?)", near);
    }
}

bool bt_api_refuse_ignored(const bt_api_request_t *request,
                           bt_api_error_t *error_p)
{
    const uint32_t dialect = bt_api_dialect_bit(request->dialect);
    const char *at = request->ignored;
    bt_strbuf_t names;

    if (*at == '\0') {
        return false;
    }
    bt_strbuf_init(&names, 64 * BT_API_IGNORED_BYTES);
    while (*at != '\0') {
        const char *end = strstr(at, SEPARATOR);
        const size_t n = (end != NULL) ? (size_t)(end - at) : strlen(at);

        name_one(dialect, at, n, &names);
        at += n;
        if (end != NULL) {
            bt_strbuf_puts(&names, SEPARATOR);
            at += strlen(SEPARATOR);
        }
    }
    bt_api_error_set(error_p, 400, NULL, "not known here: %s",
                     (bt_strbuf_status(&names) == BT_OK) ? names.data
                                                         : request->ignored);
    bt_strbuf_fini(&names);
    return true;
}
