/* SPDX-License-Identifier: Apache-2.0 */
/* Packed weights that are removed with their last user. */
#include "tests/unit/inference/packed/packed_fixture.h"

static void temporary_packed_file_is_removed_at_the_end(void **state)
{
    world_t *const w = make_world();
    bt_packed_store_t *first = NULL, *second = NULL;
    char name[NAME_MAX + 1] = "";
    size_t bytes = 0;

    (void)state;
    w->config.is_temporary = true;
    assert_int_equal(bt_packed_store_open(&w->config, &first), BT_OK);
    assert_int_equal(bt_packed_store_open(&w->config, &second), BT_OK);
    assert_int_equal(list(w->dir, name), 1);
    bt_packed_store_close(first);
    assert_int_equal(list(w->dir, name), 0);
    name_of(1, name); /* the other one has it still */
    assert_non_null(
        bt_packed_find(bt_packed_store_file(second), name, 2, 1, 3, &bytes));
    assert_int_equal(count_all(w->dir), 1);
    bt_packed_store_close(second);
    assert_int_equal(count_all(w->dir), 0);
    assert_true(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 0);
    free_world(w);
}

/* A process that has a temporary file open, and waits to be killed. */
static pid_t temporary_user(world_t *w)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bt_packed_store_t *store = NULL;

        w->config.is_temporary = true;
        if ((bt_packed_store_open(&w->config, &store) == BT_OK) &&
            (write(ready[1], "x", 1) == 1)) {
            for (;;) {
                pause();
            }
        }
        end_child(w, 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void kill_user(pid_t pid)
{
    int wait_status = 0;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status));
}

static void temporary_file_of_killed_processes_is_removed(void **state)
{
    world_t *const w = make_world();
    const pid_t first = temporary_user(w);
    const pid_t second = temporary_user(w);
    const char *profile = w->config.profile;
    char name[NAME_MAX + 1] = "";

    (void)state;
    assert_int_equal(list(w->dir, name), 1);
    kill_user(first);
    w->config.profile = "test2";
    assert_true(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 2); /* the other one has it */
    kill_user(second);
    assert_false(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 1);
    assert_int_equal(count_all(w->dir), 1);

    /* One that is the file of a process that is to keep it stays. */
    w->config.profile = profile;
    kill_user(temporary_user(w));
    assert_true(open_and_compare(w)); /* it was removed before */
    {
        const pid_t third = temporary_user(w);

        assert_false(open_and_compare(w));
        kill_user(third);
    }
    assert_false(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 2);
    assert_int_equal(count_all(w->dir), 2);
    free_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(temporary_packed_file_is_removed_at_the_end),
        BT_TEST(temporary_file_of_killed_processes_is_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
