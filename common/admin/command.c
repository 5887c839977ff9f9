/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/admin/admin_priv.h"
#include "common/base/assert.h"
#include "common/base/fuzzy_match.h"

#define LIST_BYTES   256
#define MOST_WORKERS 256 /* of a model and role, as --prefill and --decode */

/* What stands behind a verb. */
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

/* "no order 'restat' (did you mean restart?); there are: status, restart" */
static void say_unknown(const char *what, const char *word,
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
    say_unknown("order", word, names, BT_ARRAY_LEN(names), why, why_bytes);
    return false;
}

/* `key=N`. @return whether the word is that, with *out_p set, or an error in
 * why. */
static bool take_count(const char *word, const char *key, uint32_t *out_p,
                       char *why, size_t why_bytes)
{
    const size_t n = strlen(key);
    uint64_t number;

    if ((strncmp(word, key, n) != 0) || (word[n] != '=')) {
        return false;
    }
    if ((bt_admin_number(word + n + 1, &number) != BT_OK) ||
        (number > MOST_WORKERS)) {
        snprintf(why, why_bytes, "'%s': not a whole number from 0 to %d", word,
                 MOST_WORKERS);
    } else {
        *out_p = (uint32_t)number;
    }
    return true;
}

static bool take_role(const char *word, bt_admin_role_t *role_p, char *why,
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
    say_unknown("role", word, names, BT_ARRAY_LEN(names), why, why_bytes);
    return false;
}

/* The first operand. */
static bool take_name(const char *word, bt_admin_command_t *request, char *why,
                      size_t why_bytes)
{
    const bool has_path = (request->verb == BT_ADMIN_VERB_LOAD);
    const size_t n = has_path ? strcspn(word, "=") : strlen(word);

    if ((n == 0) || (n >= sizeof(request->name))) {
        snprintf(why, why_bytes, "'%.*s' is not a name", BT_ADMIN_NAME_BYTES,
                 word);
        return false;
    }
    memcpy(request->name, word, n);
    request->name[n] = '\0';
    if (word[n] == '\0') {
        return true;
    }
    if ((word[n + 1] == '\0') ||
        !bt_admin_copy(word + n + 1, request->path, sizeof(request->path))) {
        snprintf(why, why_bytes, "%s has no path or one that is too long",
                 request->name);
        return false;
    }
    return true;
}

static void say_misplaced(const char *word, bt_admin_verb_t verb, char *why,
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

/* One word behind the name. */
static bool take_more(const char *word, bt_admin_command_t *request, char *why,
                      size_t why_bytes)
{
    why[0] = '\0';
    if (strcmp(word, "wait=yes") == 0) {
        request->wait = true;
    } else if ((request->verb != BT_ADMIN_VERB_LOAD) ||
               (!take_count(word, "prefill", &request->prefill, why,
                            why_bytes) &&
                !take_count(word, "decode", &request->decode, why,
                            why_bytes))) {
        say_misplaced(word, request->verb, why, why_bytes);
    }
    return why[0] == '\0';
}

bt_status_t bt_admin_command_from_words(uint32_t n_words,
                                        const char *const *words,
                                        bt_admin_command_t *request_p,
                                        char *why, size_t why_bytes)
{
    bt_admin_command_t request;
    uint32_t n_operands;
    operands_t operands;
    uint32_t at = 1;

    BT_ASSERT(why_bytes > 0);
    memset(&request, 0, sizeof(request));
    request.prefill = BT_ADMIN_UNSET;
    request.decode = BT_ADMIN_UNSET;
    if (n_words == 0) {
        snprintf(why, why_bytes, "no order");
        return BT_ERR_INVALID_PARAM;
    }
    if (!find_verb(words[0], &request.verb, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    operands = verbs[request.verb].operands;
    n_operands = (operands == OPERANDS_NONE)        ? 0
                 : (operands == OPERANDS_NAME_ROLE) ? 2
                                                    : 1;
    if (n_words < 1 + n_operands) {
        snprintf(why, why_bytes, "it is: %s%s", words[0],
                 operands_text(operands));
        return BT_ERR_INVALID_PARAM;
    }
    if ((n_operands > 0) && !take_name(words[at++], &request, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((n_operands > 1) &&
        !take_role(words[at++], &request.role, why, why_bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    for (; at < n_words; at++) {
        if (!take_more(words[at], &request, why, why_bytes)) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    request.wait = request.wait || (request.verb == BT_ADMIN_VERB_DRAIN);
    *request_p = request;
    return BT_OK;
}

bt_status_t bt_admin_command_read(const char *line, size_t n,
                                  bt_admin_command_t *request_p, char *why,
                                  size_t why_bytes)
{
    bt_admin_words_t words;

    if (bt_admin_split(line, n, &words) != BT_OK) {
        snprintf(why, why_bytes, "not a line of words");
        return BT_ERR_INVALID_PARAM;
    }
    return bt_admin_command_from_words(words.n_words, words.words, request_p,
                                       why, why_bytes);
}

void bt_admin_command_write(const bt_admin_command_t *request, bt_strbuf_t *out)
{
    const bool loads = request->verb == BT_ADMIN_VERB_LOAD;

    bt_strbuf_puts(out, bt_admin_verb_name(request->verb));
    if (request->name[0] != '\0') {
        bt_strbuf_puts(out, " ");
        bt_admin_encode(request->name, false, out);
    }
    if (request->path[0] != '\0') {
        bt_strbuf_puts(out, "=");
        bt_admin_encode(request->path, false, out);
    }
    if (request->verb == BT_ADMIN_VERB_ROLE) {
        bt_strbuf_printf(out, " %s", bt_admin_role_name(request->role));
    }
    if (loads && (request->prefill != BT_ADMIN_UNSET)) {
        bt_strbuf_printf(out, " prefill=%u", request->prefill);
    }
    if (loads && (request->decode != BT_ADMIN_UNSET)) {
        bt_strbuf_printf(out, " decode=%u", request->decode);
    }
    if (request->wait && (request->verb != BT_ADMIN_VERB_DRAIN)) {
        bt_strbuf_puts(out, " wait=yes");
    }
    bt_strbuf_puts(out, "\n");
}
