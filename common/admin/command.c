/* SPDX-License-Identifier: Apache-2.0 */
#include "common/admin/admin.h"

#include <stdio.h>
#include <string.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "common/base/text.h"

#define LIST_BYTES   256
#define MOST_WORKERS 256 /* of a model and role, as --prefill and --decode */

/* Operands of a verb. */
typedef enum operands {
    OPERANDS_NONE,
    OPERANDS_NAME,      /* NAME */
    OPERANDS_MODEL,     /* MODEL */
    OPERANDS_LOAD,      /* MODEL[=PATH] [prefill=N] [decode=N] */
    OPERANDS_NAME_ROLE, /* NAME prefill|decode|both */
} operands_t;

/* In the order of bt_admin_verb_t. */
static const struct {
    const char *word;
    operands_t operands;
} verbs[] = {
    {"status", OPERANDS_NONE},     {"watch", OPERANDS_NONE},
    {"start", OPERANDS_NAME},      {"stop", OPERANDS_NAME},
    {"drain", OPERANDS_NAME},      {"restart", OPERANDS_NAME},
    {"load-model", OPERANDS_LOAD}, {"unload-model", OPERANDS_MODEL},
    {"role", OPERANDS_NAME_ROLE},
};

static const bt_admin_command_t empty = {.prefill = BT_ADMIN_UNSET,
                                         .decode = BT_ADMIN_UNSET};

const char *bt_admin_verb_name(bt_admin_verb_t verb)
{
    return ((size_t)verb < BT_ARRAY_LEN(verbs)) ? verbs[verb].word : "unknown";
}

static const char *operands_text(operands_t operands)
{
    switch (operands) {
    case OPERANDS_NONE:
        return "";
    case OPERANDS_NAME:
        return " NAME";
    case OPERANDS_MODEL:
        return " MODEL";
    case OPERANDS_LOAD:
        return " MODEL[=PATH] [prefill=N] [decode=N]";
    case OPERANDS_NAME_ROLE:
        return " NAME prefill|decode|both";
    }
    return "";
}

/* "no command 'restat' (did you mean restart?); there are: status, restart" */
static void print_unknown(const char *what, const char *word,
                          const char *const *names, size_t n_names, char *why,
                          size_t why_bytes)
{
    const char *const near = bt_fuzzy_match(word, strlen(word), names, n_names);
    char list[LIST_BYTES] = "";
    size_t n = 0;

    for (size_t i = 0; (i < n_names) && (n < sizeof(list)); i++) {
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s",
                              (i == 0) ? "" : ", ", names[i]);
    }
    snprintf(why, why_bytes, "no %s '%s'%s%s%s; there are: %s", what, word,
             (near != NULL) ? " (did you mean " : "",
             (near != NULL) ? near : "", (near != NULL) ? "?)" : "", list);
}

/* @return whether there is such a verb. */
static bool find_verb(const char *word, bt_admin_verb_t *verb_p, char *why,
                      size_t why_bytes)
{
    const char *names[BT_ARRAY_LEN(verbs)];

    for (size_t i = 0; i < BT_ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].word, word) == 0) {
            *verb_p = (bt_admin_verb_t)i;
            return true;
        }
        names[i] = verbs[i].word;
    }
    print_unknown("command", word, names, BT_ARRAY_LEN(names), why, why_bytes);
    return false;
}

/* ---- parts of a command; each @return false: why was written ---- */

static bool set_count(const char *text, const bt_json_whole_t *number,
                      uint32_t *out_p, char *why, size_t why_bytes)
{
    if ((number == NULL) || number->negative || !number->fits ||
        (number->magnitude > MOST_WORKERS)) {
        snprintf(why, why_bytes, "'%s': not a whole number from 0 to %d", text,
                 MOST_WORKERS);
        return false;
    }
    *out_p = (uint32_t)number->magnitude;
    return true;
}

static bool set_role(const char *word, bt_admin_role_t *role_p, char *why,
                     size_t why_bytes)
{
    const char *names[BT_ADMIN_ROLE_BOTH];

    for (uint32_t i = BT_ADMIN_ROLE_PREFILL; i <= BT_ADMIN_ROLE_BOTH; i++) {
        names[i - 1] = bt_admin_role_name(i);
        if (strcmp(word, names[i - 1]) == 0) {
            *role_p = (bt_admin_role_t)i;
            return true;
        }
    }
    print_unknown("role", word, names, BT_ARRAY_LEN(names), why, why_bytes);
    return false;
}

static bool set_name(const char *text, size_t n, bt_admin_command_t *command,
                     char *why, size_t why_bytes)
{
    if ((n == 0) || (n >= sizeof(command->name)) ||
        !bt_utf8_valid((const uint8_t *)text, n)) {
        snprintf(why, why_bytes, "'%.*s' is not a name", BT_ADMIN_NAME_BYTES,
                 text);
        return false;
    }
    memcpy(command->name, text, n);
    command->name[n] = '\0';
    return true;
}

static bool set_path(const char *text, bt_admin_command_t *command, char *why,
                     size_t why_bytes)
{
    const size_t n = strlen(text);

    if ((n == 0) || (n >= sizeof(command->path)) ||
        !bt_utf8_valid((const uint8_t *)text, n)) {
        snprintf(why, why_bytes,
                 "%s has no path, or one that is too long or not UTF-8",
                 command->name);
        return false;
    }
    memcpy(command->path, text, n + 1);
    return true;
}

static void print_misplaced(const char *word, bt_admin_verb_t verb, char *why,
                            size_t why_bytes)
{
    static const char *const keys[] = {"prefill", "decode"};
    const char *near = NULL;

    if (verb == BT_ADMIN_VERB_LOAD) {
        near =
            bt_fuzzy_match(word, strcspn(word, "="), keys, BT_ARRAY_LEN(keys));
    }
    snprintf(why, why_bytes, "'%s' does not belong to %s%s%s%s%s", word,
             bt_admin_verb_name(verb), operands_text(verbs[verb].operands),
             (near != NULL) ? "; did you mean " : "",
             (near != NULL) ? near : "", (near != NULL) ? "=N?" : "");
}

static uint32_t operands_of(bt_admin_verb_t verb)
{
    const operands_t operands = verbs[verb].operands;

    return (operands == OPERANDS_NONE)        ? 0
           : (operands == OPERANDS_NAME_ROLE) ? 2
                                              : 1;
}

static void print_usage(bt_admin_verb_t verb, char *why, size_t why_bytes)
{
    snprintf(why, why_bytes, "usage: %s%s", bt_admin_verb_name(verb),
             operands_text(verbs[verb].operands));
}

/* ---- words ---- */

/* `NAME`, or `MODEL=PATH` */
static bool take_name(const char *word, bt_admin_command_t *command, char *why,
                      size_t why_bytes)
{
    const size_t n = (command->verb == BT_ADMIN_VERB_LOAD) ? strcspn(word, "=")
                                                           : strlen(word);

    return set_name(word, n, command, why, why_bytes) &&
           ((word[n] == '\0') ||
            set_path(word + n + 1, command, why, why_bytes));
}

/* `key=N`. @return whether the word is that, with *out_p set, or an error in
 * why. */
static bool take_count(const char *word, const char *key, uint32_t *out_p,
                       char *why, size_t why_bytes)
{
    const size_t n = strlen(key);
    const char *const digits = word + n + 1;
    bt_json_whole_t number = {.fits = true};

    if ((strncmp(word, key, n) != 0) || (word[n] != '=')) {
        return false;
    }
    for (const char *c = digits; *c != '\0'; c++) {
        if ((*c < '0') || (*c > '9') || (c - digits > 8)) {
            number.fits = false;
        } else {
            number.magnitude = number.magnitude * 10 + (uint64_t)(*c - '0');
        }
    }
    (void)set_count(word, (*digits != '\0') ? &number : NULL, out_p, why,
                    why_bytes);
    return true;
}

/* One word behind the operands. */
static bool take_more(const char *word, bt_admin_command_t *command, char *why,
                      size_t why_bytes)
{
    why[0] = '\0';
    if (strcmp(word, "wait=yes") == 0) {
        command->wait = true;
    } else if ((command->verb != BT_ADMIN_VERB_LOAD) ||
               (!take_count(word, "prefill", &command->prefill, why,
                            why_bytes) &&
                !take_count(word, "decode", &command->decode, why,
                            why_bytes))) {
        print_misplaced(word, command->verb, why, why_bytes);
    }
    return why[0] == '\0';
}

bt_status_t bt_admin_command_from_words(uint32_t n_words,
                                        const char *const *words,
                                        bt_admin_command_t *command_p,
                                        char *why, size_t why_bytes)
{
    bt_admin_command_t command = empty;
    uint32_t n_operands;
    uint32_t at = 1;

    BT_ASSERT(why_bytes > 0);
    if (n_words == 0) {
        snprintf(why, why_bytes, "no command");
        return BT_ERR_INVALID_PARAM;
    }
    if (!find_verb(words[0], &command.verb, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    n_operands = operands_of(command.verb);
    if (n_words < 1 + n_operands) {
        print_usage(command.verb, why, why_bytes);
        return BT_ERR_INVALID_PARAM;
    }
    if ((n_operands > 0) && !take_name(words[at++], &command, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((n_operands > 1) &&
        !set_role(words[at++], &command.role, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    for (; at < n_words; at++) {
        if (!take_more(words[at], &command, why, why_bytes)) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    command.wait = command.wait || (command.verb == BT_ADMIN_VERB_DRAIN);
    *command_p = command;
    return BT_OK;
}

/* ---- JSON ---- */

/* Copies a string to @a out, which is "" for what is none, or does not fit. */
static void copy_string(const bt_json_node_t *value, char *out, size_t bytes)
{
    const bool fits = bt_json_is_kind(value, BT_JSON_STRING) &&
                      (value->len < bytes) &&
                      (memchr(value->text, '\0', value->len) == NULL);

    if (fits) {
        memcpy(out, value->text, value->len);
    }
    out[fits ? value->len : 0] = '\0';
}

static bool take_number(const char *key, const bt_json_node_t *value,
                        uint32_t *out_p, char *why, size_t why_bytes)
{
    bt_json_whole_t number;

    return set_count(key, bt_json_as_whole(value, &number) ? &number : NULL,
                     out_p, why, why_bytes);
}

/* Takes one member, other than the command itself. */
static bool take_member(const char *key, const bt_json_node_t *value,
                        bt_admin_command_t *command, char *why,
                        size_t why_bytes)
{
    const bool loads = command->verb == BT_ADMIN_VERB_LOAD;
    char text[BT_ADMIN_PATH_BYTES];

    copy_string(value, text, sizeof(text));
    if ((strcmp(key, "wait") == 0) && bt_json_is_bool(value)) {
        command->wait = bt_json_is_kind(value, BT_JSON_TRUE);
        return true;
    }
    if ((strcmp(key, "name") == 0) && (operands_of(command->verb) > 0)) {
        return set_name(text, strlen(text), command, why, why_bytes);
    }
    if ((strcmp(key, "role") == 0) && (operands_of(command->verb) > 1)) {
        return set_role(text, &command->role, why, why_bytes);
    }
    if (loads && (strcmp(key, "path") == 0)) {
        return set_path(text, command, why, why_bytes);
    }
    if (loads && (strcmp(key, "prefill") == 0)) {
        return take_number(key, value, &command->prefill, why, why_bytes);
    }
    if (loads && (strcmp(key, "decode") == 0)) {
        return take_number(key, value, &command->decode, why, why_bytes);
    }
    print_misplaced(key, command->verb, why, why_bytes);
    return false;
}

static bool read_command(const bt_json_doc_t *doc, bt_admin_command_t *command,
                         char *why, size_t why_bytes)
{
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const uint32_t n = bt_json_size(root, BT_JSON_OBJECT);
    const bt_json_node_t *node = (n > 0) ? bt_json_first(root) : NULL;
    char word[BT_ADMIN_NAME_BYTES];

    if (!bt_json_is_kind(bt_json_get(doc, root, "command"), BT_JSON_STRING)) {
        snprintf(why, why_bytes, "not an object with a \"command\"");
        return false;
    }
    copy_string(bt_json_get(doc, root, "command"), word, sizeof(word));
    if (!find_verb(word, &command->verb, why, why_bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        const bt_json_node_t *const value = node + 1;

        copy_string(node, word, sizeof(word));
        if (!bt_json_is(node, "command") &&
            !take_member(word, value, command, why, why_bytes)) {
            return false;
        }
        node = bt_json_next(doc, value);
    }
    if (((operands_of(command->verb) > 0) && (command->name[0] == '\0')) ||
        ((operands_of(command->verb) > 1) &&
         (command->role == BT_ADMIN_ROLE_NONE))) {
        print_usage(command->verb, why, why_bytes);
        return false;
    }
    command->wait = command->wait || (command->verb == BT_ADMIN_VERB_DRAIN);
    return true;
}

bt_status_t bt_admin_command_read(const char *line, size_t n,
                                  bt_admin_command_t *command_p, char *why,
                                  size_t why_bytes)
{
    bt_admin_command_t command = empty;
    bt_json_doc_t *doc = NULL;
    char fault[BT_JSON_FAULT_BYTES];
    bt_status_t status;
    bool is_read;

    BT_ASSERT(why_bytes > 0);
    status = bt_json_doc_parse(line, n, fault, sizeof(fault), &doc);
    if (status == BT_ERR_NO_MEMORY) {
        snprintf(why, why_bytes, "out of memory");
        return status;
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "not JSON: %s", fault);
        return BT_ERR_INVALID_PARAM;
    }
    is_read = read_command(doc, &command, why, why_bytes);
    bt_json_doc_free(doc);
    if (!is_read) {
        return BT_ERR_INVALID_PARAM;
    }
    *command_p = command;
    return BT_OK;
}

void bt_admin_command_write(const bt_admin_command_t *command, bt_strbuf_t *out)
{
    const bool loads = command->verb == BT_ADMIN_VERB_LOAD;
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "command", bt_admin_verb_name(command->verb));
    if (command->name[0] != '\0') {
        bt_json_str(&json, "name", command->name);
    }
    if (command->path[0] != '\0') {
        bt_json_str(&json, "path", command->path);
    }
    if (command->verb == BT_ADMIN_VERB_ROLE) {
        bt_json_str(&json, "role", bt_admin_role_name(command->role));
    }
    if (loads && (command->prefill != BT_ADMIN_UNSET)) {
        bt_json_u64(&json, "prefill", command->prefill);
    }
    if (loads && (command->decode != BT_ADMIN_UNSET)) {
        bt_json_u64(&json, "decode", command->decode);
    }
    if (command->wait) {
        bt_json_bool(&json, "wait", true);
    }
    bt_json_end_object(&json);
    bt_strbuf_puts(out, "\n");
}
