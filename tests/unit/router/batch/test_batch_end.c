/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a batch's results, on a disk that fails. */
#include "tests/unit/router/batch/batch_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "common/base/log.h"

/* Calls of the system that are to fail: the n-th from now. */
enum { FSYNC, FDATASYNC, WRITE, RENAMEAT, UNLINKAT, N_CALLS };
static _Atomic int fails_at[N_CALLS];

static bool fails(int what)
{
    if ((fails_at[what] > 0) && (--fails_at[what] == 0)) {
        errno = (what == WRITE) ? ENOSPC : EIO;
        return true;
    }
    return false;
}

int fsync(int fd)
{
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fails(FDATASYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return fails(RENAMEAT)
               ? -1
               : (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int unlinkat(int fd, const char *path, int flags)
{
    return fails(UNLINKAT) ? -1 : (int)syscall(SYS_unlinkat, fd, path, flags);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    struct stat info;

    if ((fd > STDERR_FILENO) && (fstat(fd, &info) == 0) &&
        S_ISREG(info.st_mode) && fails(WRITE)) {
        return -1;
    }
    return (ssize_t)syscall(SYS_write, fd, data, bytes);
}

static unsigned count_files(void)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static void is_complete(world_t *w)
{
    bt_exchange_t ex;

    shows(w, "\"status\":\"completed\"");
    shows(w, "\"request_counts\":{\"total\":2,\"completed\":1,\"failed\":1}");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    has(&ex, "\"custom_id\":\"a\"");
    read_file(w, true, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    has(&ex, "\"custom_id\":\"b\"");
    call(w, &ex, BT_HTTP_GET, "/v1/files", "");
    assert_int_equal(times(ex.out, "\"id\":\"file-"), 3); /* and the input */
    /* Lock, batch, journal, three files; parts leave with a tick. */
    bt_store_tick(w->front.store, w->front.pool, bt_unix_us());
    drain_pool(w);
    assert_int_equal(count_files(), 6);
}

/* Fails one call of the system, and then one allocation of the next try.
 * @return false: there was no such call */
static bool fail_once(int what, int nth)
{
    world_t *w = &world;
    bool has_failed;
    bt_batch_t *b;

    open_world(w, 8);
    begin(w, LINE("a", "") LINE("b", ",\"temperature\":-1"));
    b = batch(w);
    fails_at[what] = nth;
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    has_failed = fails_at[what] == 0;
    fails_at[what] = 0;
    if (!bt_batch_has_ended(b)) {
        assert_true(b->wait_until_us > bt_now_us()); /* not at once */
        b->wait_until_us = 0;
        bt_alloc_fail_at(1);
        bt_batches_tick(w->door.batches, bt_now_us());
        bt_alloc_fail_at(0);
    }
    for (int i = 0; (i < 4) && !bt_batch_has_ended(b); i++) {
        settle(w);
        b->wait_until_us = 0;
    }
    is_complete(w);
    close_world(w);
    reopen(w, 8);
    is_complete(w);
    close_world(w);
    remove_folder();
    return has_failed;
}

static void failure_of_the_disk_is_tried_again(void **state)
{
    const unsigned long before = bt_log_count(BT_LOG_LEVEL_WARN);

    (void)state;
    for (int what = 0; what < N_CALLS; what++) {
        int nth = 1;

        while (fail_once(what, nth)) {
            nth++;
        }
        /* Nothing is removed unless a try fails. */
        assert_true((what == UNLINKAT) || (nth > 1));
    }
    /* How many depends on where each failed. */
    bt_test_expect_log_lines(bt_log_count(BT_LOG_LEVEL_WARN) - before);
}

/* Of a file that an earlier try has committed, too. */
static void file_of_an_earlier_try_is_removed(void **state)
{
    world_t *w = &world;
    bt_batch_t *b;

    (void)state;
    open_world(w, 8);
    begin(w, LINE("a", "") LINE("b", ",\"temperature\":-1"));
    b = batch(w);
    bt_test_expect_log_lines(3);
    fails_at[RENAMEAT] = 3; /* output, errors, journal */
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    assert_int_equal(fails_at[RENAMEAT], 0);
    assert_int_equal(b->status, BT_BATCH_FINALIZING);
    assert_int_equal(count_files(), 6);
    fails_at[UNLINKAT] = 2; /* of the two, the second one stays */
    for (int i = 0; i < 2; i++) {
        b->wait_until_us = 0;
        bt_alloc_fail_at((i == 0) ? 1 : 0);
        bt_batches_tick(w->door.batches, bt_now_us());
        bt_alloc_fail_at(0);
        settle(w);
        assert_int_equal(b->status, BT_BATCH_FINALIZING);
    }
    assert_int_equal(fails_at[UNLINKAT], 0);
    b->wait_until_us = 0;
    settle(w);
    is_complete(w);
    close_world(w);
    remove_folder();
}

/* Each allocation with which the end is begun. */
static void end_is_begun_again_without_memory(void **state)
{
    world_t *w = &world;
    unsigned n_begun = 0;
    int nth = 0;
    bool is_over = false;

    (void)state;
    while (!is_over) {
        bt_batch_t *b;

        open_world(w, 8);
        begin(w, LINE("a", "") LINE("b", ",\"temperature\":-1"));
        b = batch(w);
        answer(w, 0, "Yes.", BT_FINISH_STOP);
        while (b->status != BT_BATCH_FINALIZING) {
            bt_turn_finish(&w->front.turn);
            drain_pool(w);
        }
        hold_files(w);
        bt_alloc_fail_at(++nth);
        bt_batches_tick(w->door.batches, bt_now_us());
        is_over = bt_alloc_fail_at(0) > 0;
        n_begun += b->has_job;
        assert_true(b->has_job || !is_over);
        release_files();
        b->wait_until_us = 0;
        settle(w);
        is_complete(w);
        close_world(w);
        reopen(w, 8);
        is_complete(w);
        close_world(w);
        remove_folder();
    }
    assert_true(nth > 3);
    /* The last one, and those for which the order of the files' thread had no
     * memory for a tenant, an address or a batch: they go without it. */
    assert_in_range(n_begun, 1, 5);
    bt_test_expect_log_lines((unsigned long)nth - n_begun);
}

/* Flips a bit of the journal, at the record of a line. */
static void damage(const char *part)
{
    static char data[1 << 20];
    const char *at = NULL;
    char path[160];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/%s.journal", folder, batch_id);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    n = read(fd, data, sizeof(data));
    assert_true(n > 0);
    for (ssize_t i = 0; i + (ssize_t)strlen(part) <= n; i++) {
        if (memcmp(data + i, part, strlen(part)) == 0) {
            at = data + i;
        }
    }
    assert_non_null(at);
    assert_int_equal(pwrite(fd, "#", 1, at - data), 1);
    assert_int_equal(close(fd), 0);
}

static void batch_that_has_lost_results_fails(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    bt_batch_t *b;

    (void)state;
    open_world(w, 8);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    b = batch(w);
    for (uint32_t i = 0; i < 2; i++) {
        answer(w, i, "Yes.", BT_FINISH_STOP);
        settle(w);
    }
    assert_int_equal(b->n_ok, 2);
    bt_test_expect_log_lines(2);
    damage("\"custom_id\":\"b\"");
    answer(w, 2, "Yes.", BT_FINISH_STOP);
    for (int i = 0; i < 2; i++) {
        settle(w);
        b->wait_until_us = 0;
    }
    settle(w);
    shows(w, "\"status\":\"failed\"");
    shows(w, "\"code\":\"results_lost\"");
    shows(w, "\"request_counts\":{\"total\":3,\"completed\":1,\"failed\":0}");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    has(&ex, "\"custom_id\":\"a\"");
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(failure_of_the_disk_is_tried_again),
        BT_TEST(file_of_an_earlier_try_is_removed),
        BT_TEST(end_is_begun_again_without_memory),
        BT_TEST(batch_that_has_lost_results_fails),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
