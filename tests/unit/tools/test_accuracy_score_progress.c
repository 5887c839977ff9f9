/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/accuracy_score.h"

#define WINDOW 512u

static char dir[64];

static const bt_hash128_t a = {.hi = 1, .lo = 2};
static const bt_hash128_t b = {.hi = 3, .lo = 4};
static const bt_hash128_t text = {.hi = 5, .lo = 6};
static const bt_accuracy_t sums = {.n = 2 * (WINDOW - 1),
                                   .nll = {1.0 / 3.0, 2.5e3},
                                   .kl = 0.1,
                                   .kl_max = 1e-300,
                                   .kl_squares = 1.0 / 7.0,
                                   .lost_squares = 77.7,
                                   .same_top = 1000};

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test_progress.XXXXXX");
    return ((mkdtemp(dir) == NULL) || (setenv("XDG_CACHE_HOME", dir, 1) != 0))
               ? 1
               : 0;
}

static int remove_dir(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/baton", dir);
    return ((rmdir(path) != 0) || (rmdir(dir) != 0)) ? 1 : 0;
}

static void sums_come_back_bit_for_bit(void **state)
{
    const bt_progress_t p = bt_progress_of(a, b, text, WINDOW);
    bt_accuracy_t found = {0};

    (void)state;
    assert_int_equal(bt_progress_read(&p, 5000, WINDOW, &found), 0);
    bt_progress_write(&p, 2 * WINDOW, &sums);
    assert_int_equal(bt_progress_read(&p, 5000, WINDOW, &found), 2 * WINDOW);
    assert_int_equal(found.n, sums.n);
    assert_int_equal(found.same_top, sums.same_top);
    assert_true((found.nll[0] == sums.nll[0]) && (found.nll[1] == sums.nll[1]));
    assert_true((found.kl == sums.kl) && (found.kl_max == sums.kl_max));
    assert_true((found.kl_squares == sums.kl_squares) &&
                (found.lost_squares == sums.lost_squares));
    bt_progress_remove(&p);
    assert_int_equal(bt_progress_read(&p, 5000, WINDOW, &found), 0);
}

static void other_models_texts_and_windows_are_other_runs(void **state)
{
    const bt_progress_t p = bt_progress_of(a, b, text, WINDOW);
    const bt_progress_t others[] = {bt_progress_of(b, a, text, WINDOW),
                                    bt_progress_of(a, b, a, WINDOW),
                                    bt_progress_of(a, b, text, WINDOW / 2)};
    bt_accuracy_t found = {0};

    (void)state;
    bt_progress_write(&p, 2 * WINDOW, &sums);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(bt_progress_read(&others[i], 5000, WINDOW, &found), 0);
    }
    bt_progress_remove(&p);
}

/* A file of the run's name, with this before and behind its key. */
static void put(const bt_progress_t *p, const char *before, const char *behind)
{
    FILE *const file = fopen(p->path, "w");

    assert_non_null(file);
    assert_true(fprintf(file, "%s%s%s", before, p->key, behind) > 0);
    assert_int_equal(fclose(file), 0);
}

#define MAGIC "baton-accuracy 1 "

static void what_is_no_progress_is_not_gone_on_with(void **state)
{
    static const struct {
        const char *before;
        const char *behind;
    } lines[] = {
        /* more of the same than positions; another number of positions */
        {MAGIC, " 512 511 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 512\n"},
        {MAGIC, " 512 510 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 500\n"},
        /* inside a window; behind the text */
        {MAGIC, " 500 499 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, " 5120 5110 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, " 512 511 nan 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, " 512 511 0x1p3 -0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, " 512 511 0x1p3 0x1p3 inf 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, "0 512 511 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {"baton-accuracy 2 ",
         " 512 511 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n"},
        {MAGIC, " 512 511 0x1p3\n"},
        {"", ""},
    };
    const bt_progress_t p = bt_progress_of(a, b, text, WINDOW);
    bt_accuracy_t found = {.n = 77};

    (void)state;
    put(&p, MAGIC, " 512 511 0x1p3 0x1p3 0x1p3 0x1p3 0x1p4 0x1p4 400\n");
    assert_int_equal(bt_progress_read(&p, 5000, WINDOW, &found), WINDOW);
    found.n = 77;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        put(&p, lines[i].before, lines[i].behind);
        if (bt_progress_read(&p, 5000, WINDOW, &found) != 0) {
            fail_msg("taken: %s%s", lines[i].before, lines[i].behind);
        }
    }
    assert_int_equal(found.n, 77);
    bt_progress_remove(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sums_come_back_bit_for_bit),
        BT_TEST(other_models_texts_and_windows_are_other_runs),
        BT_TEST(what_is_no_progress_is_not_gone_on_with),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
