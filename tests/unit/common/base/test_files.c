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

/* Through a pipe that takes and gives little at a time. */
static void all_bytes_are_written_to_a_pipe_that_is_read_slowly(void **state)
{
    static uint8_t out[300000];
    static uint8_t in[sizeof(out)];
    size_t n = 0;
    int ends[2];
    int status;
    pid_t child;

    (void)state;
    for (size_t i = 0; i < sizeof(out); i++) {
        out[i] = (uint8_t)(i * 31 + (i >> 8));
    }
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        _exit((bt_write_all(ends[1], out, sizeof(out)) == BT_OK) ? 0 : 1);
    }
    close(ends[1]);
    while (n < sizeof(in)) {
        const size_t left = sizeof(in) - n;
        const ssize_t got = read(ends[0], in + n, (left < 777) ? left : 777);

        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0));
    assert_memory_equal(in, out, sizeof(out));
    close(ends[0]);
    assert_int_equal(bt_write_all(-1, out, 1), BT_ERR_IO);
}

static void bytes_at_an_offset_are_read_or_the_file_is_cut(void **state)
{
    char got[6] = {0};
    int fd;

    (void)state;
    touch("numbers");
    fd = open(path_of("numbers"), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(bt_write_all(fd, "0123456789", 10), BT_OK);
    assert_int_equal(bt_pread_all(fd, 4, got, 5), BT_OK);
    assert_string_equal(got, "45678");
    assert_int_equal(bt_pread_all(fd, 4, got, 6), BT_OK);
    assert_int_equal(bt_pread_all(fd, 5, got, 6), BT_ERR_CORRUPT);
    assert_int_equal(bt_pread_all(fd, 20, got, 0), BT_OK);
    close(fd);
    assert_int_equal(bt_pread_all(fd, 0, got, 1), BT_ERR_IO);
    assert_int_equal(unlink(path_of("numbers")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(directory_of_a_running_process_is_kept_and_locked),
        BT_TEST(directory_of_a_killed_process_is_removed),
        BT_TEST(incomplete_directories_are_removed),
        BT_TEST(foreign_directories_are_kept),
        BT_TEST(all_bytes_are_written_to_a_pipe_that_is_read_slowly),
        BT_TEST(bytes_at_an_offset_are_read_or_the_file_is_cut),
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
