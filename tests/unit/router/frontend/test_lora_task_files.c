/* SPDX-License-Identifier: Apache-2.0 */
/* Folder of LoRA tasks that routers share: first one wins, the oldest goes, and
 * what is not whole is not there. */
#include "router/frontend/lora_task_files.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define HEAD 48u /* bytes before the content */

static char dir[128];

static void start(void)
{
    snprintf(dir, sizeof(dir), "%s", bt_hf_folder_make());
    assert_int_equal(bt_lora_files_open(dir), BT_OK);
}

static bt_status_t write_task(uint64_t id, uint64_t hash, uint64_t limit)
{
    uint8_t content[100] = {(uint8_t)id};
    const bt_lora_file_t file = {.hash = {hash, 2},
                                 .digest = {3, hash},
                                 .content = content,
                                 .bytes = sizeof(content)};

    return bt_lora_file_write(dir, (bt_hash128_t){id, 7}, &file, limit);
}

static bt_status_t read_task(uint64_t id, bt_lora_file_t *file_p)
{
    return bt_lora_file_read(dir, (bt_hash128_t){id, 7}, NULL, file_p);
}

static bool is_there(uint64_t id)
{
    bt_lora_file_t file;

    if (read_task(id, &file) != BT_OK) {
        return false;
    }
    bt_free(file.content);
    return true;
}

static void path_of(uint64_t id, char path[256])
{
    snprintf(path, 256, "%s/0000000000000007%016lx.lora", dir,
             (unsigned long)id);
}

static void set_time(uint64_t id, long seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    char path[256];

    path_of(id, path);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void second_writer_is_told_and_reads_the_first(void **state)
{
    bt_lora_file_t file = {.bytes = 0};
    const bt_hash128_t known = {11, 2};
    char path[256];
    struct stat st;

    (void)state;
    start();
    assert_int_equal(read_task(1, &file), BT_ERR_NOT_FOUND);
    assert_int_equal(write_task(1, 11, 10000), BT_OK);
    assert_int_equal(write_task(1, 12, 10000), BT_ERR_EXISTS);
    assert_int_equal(read_task(1, &file), BT_OK);
    assert_int_equal(file.hash.lo, 11);
    assert_int_equal(file.digest.hi, 11);
    assert_int_equal(file.bytes, 100);
    assert_int_equal(file.content[0], 1);
    bt_free(file.content);
    /* Content that the reader has is not read. */
    assert_int_equal(
        bt_lora_file_read(dir, (bt_hash128_t){1, 7}, &known, &file), BT_OK);
    assert_null(file.content);
    path_of(1, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    bt_hf_folder_remove(dir);
}

static void oldest_files_make_way(void **state)
{
    const uint64_t limit = 3 * (100 + HEAD);

    (void)state;
    start();
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(write_task(id, id, limit), BT_OK);
        set_time(id, (long)(100 * id));
    }
    assert_true(is_there(1)); /* used now: 2 is the oldest */
    assert_int_equal(write_task(4, 4, limit), BT_OK);
    assert_false(is_there(2));
    assert_true(is_there(1) && is_there(3) && is_there(4));
    bt_hf_folder_remove(dir);
}

static void file_that_is_not_whole_is_not_there(void **state)
{
    bt_lora_file_t file;
    char path[256];

    (void)state;
    start();
    for (long n = 0; n < (long)(HEAD + 100); n += 7) {
        path_of(1, path);
        (void)unlink(path);
        assert_int_equal(write_task(1, 1, 10000), BT_OK);
        assert_int_equal(truncate(path, n), 0);
        assert_int_equal(read_task(1, &file), BT_ERR_NOT_FOUND);
    }
    /* Neither is a link to a file elsewhere. */
    (void)unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(read_task(1, &file), BT_ERR_IO);
    bt_hf_folder_remove(dir);
}

/* A router that is killed while it writes leaves a file of another name. */
static void half_of_a_file_is_removed_when_its_writer_must_be_dead(void **state)
{
    static const char *const names[] = {
        "0000000000000007000000000000000b.lora.aB3xYz",
        "0000000000000007000000000000000c.lora.aB3xYz", /* of this moment */
        "notes.lora.txt"};
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char path[3][256];

    (void)state;
    start();
    for (uint32_t i = 0; i < 3; i++) {
        int fd;

        snprintf(path[i], sizeof(path[i]), "%s/%s", dir, names[i]);
        fd = open(path[i], O_WRONLY | O_CREAT | O_EXCL, 0600);
        assert_true(fd >= 0);
        close(fd);
        if (i != 1) {
            assert_int_equal(utimensat(AT_FDCWD, path[i], long_ago, 0), 0);
        }
    }
    assert_int_equal(write_task(1, 1, 10000), BT_OK);
    assert_int_not_equal(access(path[0], F_OK), 0);
    assert_int_equal(access(path[1], F_OK), 0);
    assert_int_equal(access(path[2], F_OK), 0);
    bt_hf_folder_remove(dir);
}

static void folder_that_others_may_open_is_refused(void **state)
{
    (void)state;
    start();
    assert_int_equal(chmod(dir, 0750), 0);
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_lora_files_open(dir), BT_ERR_UNAUTHORIZED);
    assert_int_equal(bt_lora_files_open("/nowhere/at/all"), BT_ERR_IO);
    bt_hf_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(second_writer_is_told_and_reads_the_first),
        BT_TEST(oldest_files_make_way),
        BT_TEST(file_that_is_not_whole_is_not_there),
        BT_TEST(half_of_a_file_is_removed_when_its_writer_must_be_dead),
        BT_TEST(folder_that_others_may_open_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
