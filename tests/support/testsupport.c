/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static unsigned long lines_before;
static unsigned long lines_expected;

static unsigned long lines_now(void)
{
    return bt_log_count(BT_LOG_LEVEL_ERROR) + bt_log_count(BT_LOG_LEVEL_WARN);
}

int bt_test_setup(void **state)
{
    (void)state;
    lines_before = lines_now();
    lines_expected = 0;
    return 0;
}

int bt_test_teardown(void **state)
{
    const unsigned long logged = lines_now() - lines_before;

    (void)state;
    if (logged != lines_expected) {
        print_error("%lu warnings or errors logged, %lu expected\n", logged,
                    lines_expected);
        return -1;
    }
    return 0;
}

void bt_test_expect_log_lines(unsigned long n)
{
    lines_expected = n;
}

uint32_t bt_test_stride(uint32_t n)
{
#ifdef __SANITIZE_ADDRESS__
    return (getenv("BATON_TEST_LONG") == NULL) ? n : 1;
#else
    (void)n;
    return 1;
#endif
}

uint32_t bt_test_rounds(uint32_t n)
{
    return (getenv("BATON_TEST_LONG") == NULL) ? n / 8 : n;
}

const char *bt_test_path(const char *relative)
{
    static char path[4096];
    const char *dir = getenv("BATON_TESTS_DIR");

    snprintf(path, sizeof(path), "%s/%s", (dir == NULL) ? "tests" : dir,
             relative);
    return path;
}

size_t bt_test_read_hex(const char *relative, const char *name, uint8_t *out,
                        size_t cap)
{
    FILE *in = fopen(bt_test_path(relative), "r");
    const size_t n_name = strlen(name);
    char line[2048];
    size_t n = 0;

    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        unsigned byte;

        if ((strncmp(line, name, n_name) != 0) || (line[n_name] != ' ')) {
            continue;
        }
        for (const char *at = line + n_name + 1; sscanf(at, "%2x", &byte) == 1;
             at += 2) {
            assert_true(n < cap);
            out[n++] = (uint8_t)byte;
        }
    }
    fclose(in);
    assert_true(n > 0);
    return n;
}
