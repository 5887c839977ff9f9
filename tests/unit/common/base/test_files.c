/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of processes that were killed at any moment, and others. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files.h"
#include "tests/support/testsupport.h"

static char parent[] = "/tmp/bt-own-XXXXXX";

static const char *path_of(const char *name)
{
    static char path[2][BT_OWN_DIR_BYTES + 32];
    static unsigned n;

    n ^= 1;
    snprintf(path[n], sizeof(path[n]), "%s/%s", parent, name);
    return path[n];
}

static bool is_there(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

static void touch(const char *name)
{
    const int fd = open(path_of(name), O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static void directory_of_a_running_process_is_kept_and_locked(void **state)
{
    bt_own_dir_t dir;
    struct stat info;

    (void)state;
    assert_int_equal(bt_own_dir_create(parent, &dir), BT_OK);
    bt_own_dir_remove_dead(parent);
    assert_int_equal(stat(dir.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    bt_own_dir_remove(&dir);
    assert_false(is_there(dir.path));
}

static void directory_of_a_killed_process_is_removed(void **state)
{
    bt_own_dir_t dir = {.path = ""};
    int ends[2];
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    pid = fork();
    if (pid == 0) {
        if (bt_own_dir_create(parent, &dir) == BT_OK) {
            (void)!write(ends[1], dir.path, sizeof(dir.path));
        }
        pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], dir.path, sizeof(dir.path)),
                     sizeof(dir.path));
    bt_own_dir_remove_dead(parent);
    assert_true(is_there(dir.path));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    bt_own_dir_remove_dead(parent);
    assert_false(is_there(dir.path));
    close(ends[0]);
    close(ends[1]);
}

/* Killed right after mkdir(), and before its lock had its name. */
static void incomplete_directories_are_removed(void **state)
{
    int lock;

    (void)state;
    assert_int_equal(mkdir(path_of("baton-aaaaaa"), 01700), 0);
    assert_int_equal(mkdir(path_of("baton-bbbbbb"), 01700), 0);
    touch("baton-bbbbbb/lock.new");
    assert_int_equal(mkdir(path_of("baton-cccccc"), 01700), 0);
    touch("baton-cccccc/lock.new");
    lock = open(path_of("baton-cccccc/lock.new"), O_RDWR);
    assert_int_equal(flock(lock, LOCK_EX), 0); /* it lives, and goes on */
    bt_own_dir_remove_dead(parent);
    assert_false(is_there(path_of("baton-aaaaaa")));
    assert_false(is_there(path_of("baton-bbbbbb")));
    assert_true(is_there(path_of("baton-cccccc/lock.new")));
    close(lock);
    bt_own_dir_remove_dead(parent);
    assert_false(is_there(path_of("baton-cccccc")));
}

static void foreign_directories_are_kept(void **state)
{
    (void)state;
    assert_int_equal(mkdir(path_of("baton-aaaaaa"), 0700), 0); /* empty */
    assert_int_equal(mkdir(path_of("baton-bbbbbb"), 01700), 0);
    touch("baton-bbbbbb/notes");
    assert_int_equal(mkdir(path_of("baton-cccccc"), 0700), 0);
    touch("baton-cccccc/lock"); /* which says nothing */
    assert_int_equal(mkdir(path_of("baton-long-name"), 01700), 0);
    assert_int_equal(symlink("/tmp", path_of("baton-dddddd")), 0);
    bt_own_dir_remove_dead(parent);
    assert_int_equal(unlink(path_of("baton-bbbbbb/notes")), 0);
    assert_int_equal(unlink(path_of("baton-cccccc/lock")), 0);
    assert_int_equal(unlink(path_of("baton-dddddd")), 0);
    assert_int_equal(rmdir(path_of("baton-aaaaaa")), 0);
    assert_int_equal(rmdir(path_of("baton-bbbbbb")), 0);
    assert_int_equal(rmdir(path_of("baton-cccccc")), 0);
    assert_int_equal(rmdir(path_of("baton-long-name")), 0);
}

static void own_dir_path_over_the_limit_is_refused(void **state)
{
    char long_parent[BT_OWN_DIR_BYTES];
    bt_own_dir_t dir;

    (void)state;
    memset(long_parent, 'a', sizeof(long_parent) - 1);
    long_parent[sizeof(long_parent) - 1] = '\0';
    assert_int_equal(bt_own_dir_create(long_parent, &dir), BT_ERR_TOO_LARGE);
    assert_int_equal(bt_own_dir_create("/tmp/none/there", &dir), BT_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(directory_of_a_running_process_is_kept_and_locked),
        BT_TEST(directory_of_a_killed_process_is_removed),
        BT_TEST(incomplete_directories_are_removed),
        BT_TEST(foreign_directories_are_kept),
        BT_TEST(own_dir_path_over_the_limit_is_refused),
    };
    int failed;

    if (mkdtemp(parent) == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(parent);
    return failed;
}
