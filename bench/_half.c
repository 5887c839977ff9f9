/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_half.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

void bt_half_die(bt_status_t status, const char *fmt, ...)
{
    const int error = errno; /* for %m */
    va_list args;

    va_start(args, fmt);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    errno = error;
    vfprintf(stderr, fmt, args);
    if (status != BT_OK) {
        fprintf(stderr, ": %s", bt_status_str(status));
    }
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void bt_half_must(bt_status_t status, const char *what)
{
    if (status != BT_OK) {
        bt_half_die(status, "%s", what);
    }
}

void *bt_half_zeros(size_t n, size_t bytes)
{
    void *ptr = bt_calloc(n, bytes);

    if (ptr == NULL) {
        bt_half_die(BT_ERR_NO_MEMORY, "%zu x %zu bytes", n, bytes);
    }
    return ptr;
}

uint32_t bt_half_number(const char *text, uint32_t min, uint32_t max)
{
    char *end = NULL;
    unsigned long long value;

    errno = 0;
    value = (text == NULL) ? 0 : strtoull(text, &end, 10);
    if ((text == NULL) || (errno != 0) || (end == text) || (*end != '\0') ||
        (value < min) || (value > max)) {
        bt_half_die(BT_OK, "%s is not a number from %u to %u",
                    (text == NULL) ? "nothing" : text, min, max);
    }
    return (uint32_t)value;
}

uint32_t bt_half_command(const char *words[BT_HALF_MAX_WORDS])
{
    static char line[4096];
    uint32_t n = 0;
    char *rest = line;
    char *word;

    fflush(stdout);
    if (fgets(line, sizeof(line), stdin) == NULL) {
        return 0;
    }
    while ((word = strsep(&rest, " \n")) != NULL) {
        if (*word == '\0') {
            continue;
        }
        if (n == BT_HALF_MAX_WORDS) {
            bt_half_die(BT_OK, "too many words in a command");
        }
        words[n++] = word;
    }
    if (n == 0) {
        bt_half_die(BT_OK, "empty command");
    }
    for (uint32_t i = n; i < BT_HALF_MAX_WORDS; i++) {
        words[i] = NULL;
    }
    return n;
}

uint32_t bt_half_random(uint64_t *state, uint32_t n)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ (z >> 31)) >> 32) * n >> 32);
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a;
    const uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

void bt_half_sort(uint64_t *values, size_t n)
{
    qsort(values, n, sizeof(*values), by_size);
}
