/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config_options.h"

#define FILE_MAX_BYTES (1u << 20)
#define WHERE_BYTES    512
#define SPACE          " \t\r"

static bt_status_t read_whole(bt_config_store_t *store, const char *path,
                              char **text_p)
{
    BT_CLEANUP(close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
    bt_status_t status;
    char *text;
    size_t n = 0;

    if (fd < 0) {
        return bt_config_complain(store, "cannot open %s: %m", path);
    }
    text = bt_calloc(FILE_MAX_BYTES + 1, 1);
    if (text == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if (bt_read_file(fd, text, FILE_MAX_BYTES, &n) != BT_OK) {
        status = bt_config_complain(store, "cannot read %s: %m", path);
    } else if (n > FILE_MAX_BYTES) {
        status = bt_config_complain(store, "%s is longer than %u bytes", path,
                                    FILE_MAX_BYTES);
    } else if (memchr(text, '\0', n) != NULL) {
        status = bt_config_complain(store, "%s is not a text file", path);
    } else {
        *text_p = text;
        return BT_OK;
    }
    bt_free(text);
    return status;
}

/* Removes a comment (a # at the start or after a space, so that a path may
 * contain one) and the spaces at both ends. @return the start of the rest. */
static char *trim(char *line)
{
    size_t n;

    for (char *hash = strchr(line, '#'); hash != NULL;
         hash = strchr(hash + 1, '#')) {
        if ((hash == line) || (strchr(SPACE, hash[-1]) != NULL)) {
            *hash = '\0';
            break;
        }
    }
    line += strspn(line, SPACE);
    n = strlen(line);
    while ((n > 0) && (strchr(SPACE, line[n - 1]) != NULL)) {
        n--;
    }
    line[n] = '\0';
    return line;
}

static bt_status_t take_line(bt_config_store_t *store, const char *position,
                             char *line, unsigned *first_lines,
                             unsigned line_number)
{
    char *const equals = strchr(line, '=');
    const bt_option_t *option;
    const char *key;
    size_t i;
    char where[WHERE_BYTES + 64];

    if (equals == NULL) {
        return bt_config_complain(store, "%s: '%s' is not `key = value`",
                                  position, line);
    }
    *equals = '\0';
    key = trim(line);
    option = bt_config_option_find(key, strlen(key));
    if (option == NULL) {
        const bt_option_t *near = bt_config_synonym_of(key, strlen(key));

        if (near == NULL) {
            near = bt_config_option_closest(key, strlen(key), ~0u);
        }
        return bt_config_complain(store, "%s: unknown key '%s'%s%s", position,
                                  key, (near == NULL) ? "" : "; did you mean ",
                                  (near == NULL) ? "" : near->name);
    }
    i = (size_t)(option - bt_config_options);
    if ((first_lines[i] != 0) && (option->type != BT_OPTION_MODELS) &&
        (option->type != BT_OPTION_ADAPTERS)) {
        return bt_config_complain(store,
                                  "%s: '%s' was given already in line %u",
                                  position, key, first_lines[i]);
    }
    first_lines[i] = line_number;
    snprintf(where, sizeof(where), "%s: %s", position, key);
    return bt_config_store_set(store, option, trim(equals + 1), BT_CONFIG_FILE,
                               where);
}

bt_status_t bt_config_file_read(bt_config_store_t *store, const char *path)
{
    unsigned first_lines[BT_CONFIG_N_OPTIONS] = {0};
    BT_CLEANUP(free) char *text = NULL;
    bt_status_t status = read_whole(store, path, &text);
    char *next = text;

    for (unsigned number = 1; (status == BT_OK) && (next != NULL); number++) {
        char *line = strsep(&next, "\n");
        char position[WHERE_BYTES];

        line = trim(line);
        if (line[0] != '\0') {
            snprintf(position, sizeof(position), "%s:%u", path, number);
            status = bt_config_go_on(
                store, take_line(store, position, line, first_lines, number));
        }
    }
    return status;
}

/* Variables of the environment that look like ours and are not: misspelt
 * options, and options of other servers. */

#define NAME_BYTES 64

static const char prefix[] = "BATON_";

/* Others that people set: of client commands, plugins and the launcher. */
static const char *const others[] = {"CONFIG",   "URL",         "API_KEY",
                                     "CACERT",   "ASK_HISTORY", "PLUGIN_DIR",
                                     "CPU_TIER", "LIBEXEC",     "CUDA_GRAPHS",
                                     "READY_FD", "BEAT_FD",     "READY_JOINED"};

/* Variables of tests, benchmarks and the build; a trailing _ matches any
 * suffix. */
static const char *const of_tests[] = {
    "BUILD", "BUILD_ASAN", "TEST_",         "TESTS_DIR",      "SIMT_",
    "TRAP_", "CHAOS_",     "DOCTOR_",       "LONG",           "SEED",
    "SOAK_", "TINY_MODEL", "FETCH_PAUSE_S", "KEEP_LOGS",      "OPENAPI",
    "TEAM",  "GPU_RUN",    "CACHE_DIR",     "CLIENTS_PYTHON", "LM_EVAL_PYTHON"};

static bool is_in(const char *const *names, size_t n_names, const char *name,
                  size_t n)
{
    for (size_t i = 0; i < n_names; i++) {
        const size_t n_known = strlen(names[i]);
        const bool begins =
            (n >= n_known) && (memcmp(names[i], name, n_known) == 0);

        if (begins && ((n == n_known) || (names[i][n_known - 1] == '_'))) {
            return true;
        }
    }
    return false;
}

/* Variables that Kubernetes and Docker's links set for services whose names
 * begin with baton: [NAME_]SERVICE_HOST, [NAME_]SERVICE_PORT[_PORTNAME], and
 * NAME_PORT, NAME_PORT_8000_TCP and more whose values begin with tcp:// or
 * the like, or are parts of it. */
static bool is_of_service(const char *name, size_t n)
{
    static const char *const marks[] = {"SERVICE_HOST", "SERVICE_PORT",
                                        "PORT_"};
    const char *const value = name + n + (name[n] == '=');

    if ((n >= 4) && (memcmp(name + n - 4, "PORT", 4) == 0) &&
        (strstr(value, "://") != NULL)) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        if ((i > 0) && (name[i - 1] != '_')) {
            continue;
        }
        for (size_t k = 0; k < BT_ARRAY_LEN(marks); k++) {
            const size_t n_mark = strlen(marks[k]);

            if ((n - i >= n_mark) &&
                (memcmp(name + i, marks[k], n_mark) == 0)) {
                return true;
            }
        }
    }
    return false;
}

/* Name of the variable that was probably meant, with its prefix. @return
 * false: none is near enough */
static bool find_meant(const char *name, size_t n, char *out, size_t bytes)
{
    char dashed[NAME_BYTES];
    const bt_option_t *option;
    const char *other;
    size_t n_option;

    if (n >= sizeof(dashed)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        dashed[i] =
            (name[i] == '_') ? '-' : (char)tolower((unsigned char)name[i]);
    }
    option = bt_config_synonym_of(dashed, n);
    if (option == NULL) {
        option = bt_config_option_closest(dashed, n, ~0u);
        other = bt_fuzzy_match(name, n, others, BT_ARRAY_LEN(others));
        n_option = (option == NULL) ? 0 : strlen(option->name);
        if ((other != NULL) &&
            ((option == NULL) ||
             (bt_fuzzy_distance(name, n, other, strlen(other)) <
              bt_fuzzy_distance(dashed, n, option->name, n_option)))) {
            BT_ASSERT(sizeof(prefix) + strlen(other) <= bytes);
            memcpy(out, prefix, sizeof(prefix) - 1);
            memcpy(out + sizeof(prefix) - 1, other, strlen(other) + 1);
            return true;
        }
    }
    if (option == NULL) {
        return false;
    }
    if (option->type == BT_OPTION_PORT) { /* no variable has it */
        option = bt_config_option_find("http", strlen("http"));
    }
    bt_config_option_env(option, out, bytes);
    return true;
}

static bool is_option(const char *name, size_t n)
{
    char meant[NAME_BYTES];

    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        bt_config_option_env(&bt_config_options[i], meant, sizeof(meant));
        if ((bt_config_options[i].type != BT_OPTION_PORT) &&
            (strlen(meant) == n + sizeof(prefix) - 1) &&
            (memcmp(meant + sizeof(prefix) - 1, name, n) == 0)) {
            return true;
        }
    }
    return false;
}

void bt_config_note_variables(const bt_config_store_t *store)
{
    /* A child of a launcher has its environment, and the launcher noted
     * this. */
    if (getenv("BATON_READY_FD") != NULL) {
        return;
    }
    for (char *const *entry = environ; *entry != NULL; entry++) {
        const char *const name = *entry + sizeof(prefix) - 1;
        char meant[NAME_BYTES];
        bool is_meant;
        size_t n;

        if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0) {
            continue;
        }
        n = strcspn(name, "=");
        if (is_option(name, n) ||
            is_in(others, BT_ARRAY_LEN(others), name, n) ||
            is_in(of_tests, BT_ARRAY_LEN(of_tests), name, n) ||
            is_of_service(name, n)) {
            continue;
        }
        is_meant = find_meant(name, n, meant, sizeof(meant));
        bt_config_note(store,
                       "BATON_%.*s is not an option and has no effect%s%s%s",
                       (n > NAME_BYTES) ? NAME_BYTES : (int)n, name,
                       is_meant ? "; did you mean " : "", is_meant ? meant : "",
                       is_meant ? "?" : "");
    }
}
