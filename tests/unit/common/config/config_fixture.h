/* SPDX-License-Identifier: Apache-2.0 */
/** @file config_fixture.h
 *
 * Options loaded from a line of words, and what was printed meanwhile. For one
 * test program each.
 */
#ifndef BT_TESTS_UNIT_CONFIG_CONFIG_FIXTURE_H
#define BT_TESTS_UNIT_CONFIG_CONFIG_FIXTURE_H

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "common/config/config_options.h"

#define OUTPUT_BYTES 65536
#define MAX_ARGS     20

/* What the last load printed: standard output, then standard error. */
static char printed[OUTPUT_BYTES];
static char complaint[OUTPUT_BYTES];

static inline int redirect(FILE *stream, int fd, int *saved_p)
{
    const int file = memfd_create("output", 0);

    fflush(stream);
    *saved_p = dup(fd);
    dup2(file, fd);
    return file;
}

static inline void restore(FILE *stream, int fd, int file, int saved, char *out)
{
    ssize_t n;

    fflush(stream);
    n = pread(file, out, OUTPUT_BYTES - 1, 0);
    out[(n > 0) ? n : 0] = '\0';
    dup2(saved, fd);
    close(saved);
    close(file);
}

/* Load with the words of @a line as arguments. */
static inline bt_status_t load(unsigned program, const char *line,
                               const bt_config_t **config_p,
                               bt_config_store_t **store_p)
{
    char words[1024];
    char *argv[MAX_ARGS] = {words};
    char *next = words;
    int argc = 0;
    int saved_out;
    int saved_err;
    int file_out;
    int file_err;
    bt_status_t status;

    snprintf(words, sizeof(words), "program%s%s", (*line == '\0') ? "" : " ",
             line);
    while ((next != NULL) && (argc < MAX_ARGS - 1)) {
        argv[argc++] = strsep(&next, " ");
    }
    file_out = redirect(stdout, STDOUT_FILENO, &saved_out);
    file_err = redirect(stderr, STDERR_FILENO, &saved_err);
    status = bt_config_load(program, false, argc, argv, config_p, store_p);
    restore(stdout, STDOUT_FILENO, file_out, saved_out, printed);
    restore(stderr, STDERR_FILENO, file_err, saved_err, complaint);
    return status;
}

static inline void assert_refused(unsigned program, const char *line,
                                  const char *why)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;

    assert_int_equal(load(program, line, &config, &store),
                     BT_ERR_INVALID_PARAM);
    assert_null(store);
    assert_null(config);
    assert_string_equal(complaint, why);
}

/* A file with that content; @a path gets its name. */
static inline void write_file(const char *content, char *path, size_t bytes)
{
    FILE *file;

    snprintf(path, bytes, "/tmp/baton-config-XXXXXX");
    file = fdopen(mkstemp(path), "w");
    assert_non_null(file);
    fputs(content, file);
    fclose(file);
}

#endif
