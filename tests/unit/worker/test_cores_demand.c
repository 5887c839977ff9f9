/* SPDX-License-Identifier: Apache-2.0 */
/* Cores 0 and 1 are one worker's, 2 and 3 another's, 4 is a third one's. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "worker/cores.h"

static const uint32_t first[] = {0, 1};
static const uint32_t second[] = {2, 3};
static const uint32_t third[] = {4};

static char dir[] = "/tmp/baton-test-board-XXXXXX";
static char path[sizeof(dir) + 8];

static int make_dir(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/cores", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static bt_core_demand_t *open_one(const uint32_t *own, uint32_t n_own,
                                  const uint32_t *lent, uint32_t n_lent)
{
    bt_core_demand_t *board = NULL;

    assert_int_equal(bt_core_demand_open(dir, own, n_own, lent, n_lent, &board),
                     BT_OK);
    return board;
}

static void core_owner_reads_until_when_a_core_is_requested(void **state)
{
    bt_core_demand_t *a = open_one(first, 2, second, 2);
    bt_core_demand_t *b = open_one(second, 2, first, 2);

    (void)state;
    assert_int_equal(bt_core_demand_wanted(a), 0);
    bt_core_demand_want(a, 1000);
    assert_int_equal(bt_core_demand_wanted(b), 1000);
    assert_int_equal(bt_core_demand_wanted(a),
                     0); /* its own it does not want */
    bt_core_demand_want(a, 2000);
    assert_int_equal(bt_core_demand_wanted(b), 2000);
    bt_core_demand_want(a, 0);
    assert_int_equal(bt_core_demand_wanted(b), 0);
    bt_core_demand_close(a);
    bt_core_demand_close(b);
}

/* Only who wrote a word takes it back, and who closes takes back its own. */
static void latest_core_request_counts(void **state)
{
    bt_core_demand_t *a = open_one(first, 2, second, 2);
    bt_core_demand_t *b = open_one(second, 2, first, 2);
    bt_core_demand_t *c = open_one(third, 1, second, 1); /* core 2 alone */

    (void)state;
    bt_core_demand_want(a, 1000);
    bt_core_demand_want(c, 3000);
    assert_int_equal(bt_core_demand_wanted(b), 3000);
    bt_core_demand_want(a, 2000); /* earlier than what is there */
    assert_int_equal(bt_core_demand_wanted(b), 3000);
    bt_core_demand_want(a, 0);
    assert_int_equal(bt_core_demand_wanted(b), 3000);
    bt_core_demand_close(c);
    assert_int_equal(bt_core_demand_wanted(b), 0);
    bt_core_demand_close(b);
    bt_core_demand_close(a);
}

static void core_demand_file_of_another_user_is_refused(void **state)
{
    bt_core_demand_t *board = NULL;
    char elsewhere[sizeof(path) + 2];

    (void)state;
    unlink(path);
    snprintf(elsewhere, sizeof(elsewhere), "%s.x", path);
    assert_int_equal(symlink(elsewhere, path), 0);
    assert_int_equal(bt_core_demand_open(dir, first, 2, second, 2, &board),
                     BT_ERR_IO);
    assert_null(board);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(
        bt_core_demand_open("/nowhere/at/all", first, 2, second, 2, &board),
        BT_ERR_IO);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_core_demand_open(dir, first, 2, second, 2, &board),
                     BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    bt_core_demand_close(NULL);
}

static void core_demand_file_is_private(void **state)
{
    bt_core_demand_t *a = open_one(first, 2, second, 2);
    struct stat st;

    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    bt_core_demand_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(core_owner_reads_until_when_a_core_is_requested),
        BT_TEST(latest_core_request_counts),
        BT_TEST(core_demand_file_of_another_user_is_refused),
        BT_TEST(core_demand_file_is_private),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
