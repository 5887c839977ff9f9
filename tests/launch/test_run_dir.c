/* SPDX-License-Identifier: Apache-2.0 */
/* The run directory. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/status.h"
#include "launcher/run_dir.h"

static void the_run_directory_is_private_and_leaves_nothing(void **state)
{
    bt_run_dir_t dir;
    bt_run_dir_t other;
    struct stat info;
    char keys[2][80] = {"", ""};
    char path[128];
    FILE *file;

    (void)state;
    assert_int_equal(bt_run_dir_create(&dir), BT_OK);
    assert_int_equal(bt_run_dir_create(&other), BT_OK);
    assert_int_equal(stat(dir.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    assert_int_equal(stat(dir.key_file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);

    file = fopen(dir.key_file, "r");
    assert_non_null(fgets(keys[0], sizeof(keys[0]), file));
    fclose(file);
    file = fopen(other.key_file, "r");
    assert_non_null(fgets(keys[1], sizeof(keys[1]), file));
    fclose(file);
    assert_int_equal(strspn(keys[0], "0123456789abcdef"), 64);
    assert_string_not_equal(keys[0], keys[1]);

    /* What a killed process leaves behind. */
    snprintf(path, sizeof(path), "%s/baton-a1b2c3", dir.path);
    assert_int_equal(mkdir(path, 0700), 0);
    bt_run_dir_remove(&dir);
    assert_int_equal(stat(dir.path, &info), -1);
    assert_int_equal(stat(other.key_file, &info), 0);
    bt_run_dir_remove(&other);
    assert_int_equal(stat(other.path, &info), -1);
}

/* A file, a folder with one, a link: none of them was made by a launcher. */
static void foreign_files_stay_in_a_run_directory(void **state)
{
    static const char *const names[] = {"notes", "baton-backup/notes",
                                        "baton-a1b2c3"};
    bt_run_dir_t dir;
    struct stat info;
    char path[128];

    (void)state;
    bt_test_expect_log_lines(BT_ARRAY_LEN(names));
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        char *slash;

        assert_int_equal(bt_run_dir_create(&dir), BT_OK);
        snprintf(path, sizeof(path), "%s/%s", dir.path, names[i]);
        slash = strrchr(path, '/');
        if (i == 1) {
            *slash = '\0';
            assert_int_equal(mkdir(path, 0700), 0);
            *slash = '/';
        }
        if (i == 2) {
            assert_int_equal(symlink("/tmp", path), 0);
        } else {
            fclose(fopen(path, "w"));
        }
        bt_run_dir_remove(&dir);
        assert_int_equal(lstat(path, &info), 0);
        assert_int_equal(stat(dir.key_file, &info), -1);
        assert_int_equal(unlink(path), 0);
        if (i == 1) {
            *slash = '\0';
            assert_int_equal(rmdir(path), 0);
        }
        assert_int_equal(rmdir(dir.path), 0);
    }
}

/* How often each of two directories was listed, and how many others were. */
typedef struct listed {
    const char *paths[2];
    int n[2], n_others;
} listed_t;

static void on_run_dir(void *arg, const char *path)
{
    listed_t *const listed = arg;

    for (size_t i = 0; i < 2; i++) {
        if (strcmp(path, listed->paths[i]) == 0) {
            listed->n[i]++;
            return;
        }
    }
    listed->n_others += (strstr(path, "/tmp/baton-test-") == path);
}

static void run_directories_are_found_where_they_are_made(void **state)
{
    char parent[] = "/tmp/baton-test-XXXXXX";
    bt_run_dir_t dirs[2];
    listed_t listed = {.paths = {dirs[0].path, dirs[1].path}};
    char link[64];
    char file[64];

    (void)state;
    assert_non_null(mkdtemp(parent));
    setenv("TMPDIR", parent, 1);
    setenv("XDG_RUNTIME_DIR", parent, 1);
    assert_int_equal(bt_run_dir_create(&dirs[0]), BT_OK);
    assert_int_equal(bt_run_dir_create(&dirs[1]), BT_OK);
    /* Neither a link nor a file with such a name is one. */
    snprintf(link, sizeof(link), "%s/baton-a1b2c3", parent);
    assert_int_equal(symlink(dirs[0].path, link), 0);
    snprintf(file, sizeof(file), "%s/baton-d4e5f6", parent);
    fclose(fopen(file, "w"));
    bt_run_dir_each(on_run_dir, &listed);
    assert_int_equal(listed.n[0], 1);
    assert_int_equal(listed.n[1], 1);
    assert_int_equal(listed.n_others, 0);

    unlink(link);
    unlink(file);
    bt_run_dir_remove(&dirs[0]);
    bt_run_dir_remove(&dirs[1]);
    assert_int_equal(rmdir(parent), 0);
    unsetenv("TMPDIR");
    unsetenv("XDG_RUNTIME_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(run_directories_are_found_where_they_are_made),
        BT_TEST(the_run_directory_is_private_and_leaves_nothing),
        BT_TEST(foreign_files_stay_in_a_run_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
