/* SPDX-License-Identifier: Apache-2.0 */
/* What a cgroup leaves, from files as the kernel writes them (its
 * documentation, admin-guide/cgroup-v2.rst). */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/memory.h"

static const char *const names[] = {"memory.max", "memory.current",
                                    "memory.stat"};

static uint64_t left_with(const char *max, const char *current,
                          const char *stat)
{
    const char *const texts[] = {max, current, stat};
    char dir[] = "/tmp/baton-test-memory-XXXXXX";
    char path[64];
    uint64_t left;

    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        if (texts[i] == NULL) {
            continue;
        }
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    left = bt_memory_cgroup_left(dir);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    return left;
}

static void a_cgroup_without_a_limit_leaves_everything(void **state)
{
    (void)state;
    assert_true(left_with("max\n", "1000\n", "") == UINT64_MAX);
    assert_true(left_with("5000\n", NULL, "") == UINT64_MAX);
    assert_true(bt_memory_cgroup_left("/nowhere") == UINT64_MAX);
}

static void the_pages_of_files_count_as_free(void **state)
{
    (void)state;
    assert_int_equal(left_with("5000\n", "1000\n", NULL), 4000);
    assert_int_equal(left_with("5000\n", "3000\n",
                               "anon 500\nfile 2500\nfile_mapped 900\n"
                               "inactive_anon 1\nactive_anon 2\n"
                               "inactive_file 700\nactive_file 1300\n"),
                     4000);
    assert_int_equal(left_with("5000\n", "6000\n", "inactive_file 700\n"), 0);
    assert_int_equal(left_with("5000\n", "600\n", "active_file 700\n"), 5000);
}

static void a_quarter_of_the_rest_is_the_pool(void **state)
{
    (void)state;
    assert_int_equal(bt_memory_default_pool(1000, 200), 200);
    assert_int_equal(bt_memory_default_pool(100, 200), 0);
    assert_int_equal(bt_memory_default_pool(UINT64_C(1) << 40, 0), 1 << 30);
    assert_true(bt_memory_available() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_cgroup_without_a_limit_leaves_everything),
        BT_TEST(the_pages_of_files_count_as_free),
        BT_TEST(a_quarter_of_the_rest_is_the_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
