/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/config/config_options.h"

#define FILE_MAX_BYTES (1u << 20)
#define WHERE_BYTES    512
#define SPACE          " \t\r"

static bt_status_t read_whole(bt_config_store_t *store, const char *path,
                              char **text_p)
{
    BT_CLEANUP(close) const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text;
    size_t n = 0;

    if (fd < 0) {
        bt_config_complain(store, "cannot open %s: %m", path);
        return BT_ERR_INVALID_PARAM;
    }
    text = bt_calloc(FILE_MAX_BYTES + 1, 1);
    if (text == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (;;) {
        const ssize_t got = read(fd, text + n, FILE_MAX_BYTES + 1 - n);

        if ((got < 0) && (errno == EINTR)) {
            continue;
        }
        if (got < 0) {
            bt_config_complain(store, "cannot read %s: %m", path);
            goto err_text;
        }
        n += (size_t)got;
        if (n > FILE_MAX_BYTES) {
            bt_config_complain(store, "%s is longer than %u bytes", path,
                               FILE_MAX_BYTES);
            goto err_text;
        }
        if (got == 0) {
            break;
        }
    }
    if (memchr(text, '\0', n) != NULL) {
        bt_config_complain(store, "%s is not a text file", path);
        goto err_text;
    }
    *text_p = text;
    return BT_OK;

err_text:
    bt_free(text);
    return BT_ERR_INVALID_PARAM;
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

static bt_status_t take_line(bt_config_store_t *store, const char *place,
                             char *line, unsigned *first_lines,
                             unsigned line_number)
{
    char *const equals = strchr(line, '=');
    const bt_option_t *option;
    const char *key;
    size_t i;
    char where[WHERE_BYTES + 64];

    if (equals == NULL) {
        bt_config_complain(store, "%s: '%s' is not `key = value`", place, line);
        return BT_ERR_INVALID_PARAM;
    }
    *equals = '\0';
    key = trim(line);
    option = bt_config_option_find(key, strlen(key));
    if (option == NULL) {
        const bt_option_t *near = bt_config_synonym_of(key, strlen(key));

        if (near == NULL) {
            near = bt_config_option_closest(key, strlen(key), ~0u);
        }
        bt_config_complain(store, "%s: unknown key '%s'%s%s", place, key,
                           (near == NULL) ? "" : "; did you mean ",
                           (near == NULL) ? "" : near->name);
        return BT_ERR_INVALID_PARAM;
    }
    i = (size_t)(option - bt_config_options);
    if ((first_lines[i] != 0) && (option->type != BT_OPTION_MODELS)) {
        bt_config_complain(store, "%s: '%s' was given already in line %u",
                           place, key, first_lines[i]);
        return BT_ERR_INVALID_PARAM;
    }
    first_lines[i] = line_number;
    snprintf(where, sizeof(where), "%s: %s", place, key);
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
        char place[WHERE_BYTES];

        line = trim(line);
        if (line[0] != '\0') {
            snprintf(place, sizeof(place), "%s:%u", path, number);
            status = bt_config_go_on(
                store, take_line(store, place, line, first_lines, number));
        }
    }
    return status;
}
