/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of packed weights: built once, found again, never believed when
 * it is not what it should be, never needed. */
#include "tests/unit/inference/packed/packed_fixture.h"

static void packed_file_is_reused_at_the_next_start(void **state)
{
    world_t *const w = make_world();
    struct stat first;
    struct stat second;

    (void)state;
    assert_true(open_and_compare(w));
    assert_int_equal(stat(the_file(w), &first), 0);
    assert_int_equal(first.st_mode & 07777, 0400);
    for (int i = 0; i < 3; i++) {
        open_model(w); /* as another process would */
        assert_false(open_and_compare(w));
    }
    assert_int_equal(w->n_built, 1);
    assert_int_equal(stat(the_file(w), &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);
    assert_int_equal(first.st_mtim.tv_nsec, second.st_mtim.tv_nsec);
    bt_packed_store_close(NULL);
    free_world(w);
}

static void each_layout_and_profile_has_its_own_packed_file(void **state)
{
    world_t *const w = make_world();
    char name[NAME_MAX + 1];

    (void)state;
    assert_true(open_and_compare(w));
    w->config.pack_version = 2;
    assert_true(open_and_compare(w));
    w->config.profile = "test2";
    assert_true(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 3);
    w->config.pack_version = 1;
    w->config.profile = "test";
    assert_false(open_and_compare(w));
    free_world(w);
}

/* A number of processes at once, each told to begin by the same end of file. */
static void exactly_one_of_many_processes_builds(void **state)
{
    enum { N = 8 };
    world_t *const w = make_world();
    pid_t pids[N];
    int gate[2];
    int n_built = 0;

    (void)state;
    assert_int_equal(pipe(gate), 0);
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            char byte;

            close(gate[1]);
            (void)!read(gate[0], &byte, 1);
            end_child(w, open_and_compare(w) ? 10 : 20);
        }
    }
    close(gate[0]);
    close(gate[1]);
    for (int i = 0; i < N; i++) {
        int wait_status = 0;

        assert_int_equal(waitpid(pids[i], &wait_status, 0), pids[i]);
        assert_true(WIFEXITED(wait_status));
        assert_true((WEXITSTATUS(wait_status) == 10) ||
                    (WEXITSTATUS(wait_status) == 20));
        n_built += (WEXITSTATUS(wait_status) == 10);
    }
    assert_int_equal(n_built, 1);
    assert_false(open_and_compare(w));
    (void)the_file(w); /* and nothing beside it */
    free_world(w);
}

/* SIGKILL at each of the builder's steps: what it leaves is overwritten, or it
 * is whole already. */
static void killed_builder_leaves_no_broken_file(void **state)
{
    world_t *const w = make_world();
    int step = 0;
    int n_found = 0;
    int wait_status = 0;

    (void)state;
    do {
        pid_t pid;

        w->kill_at = ++step;
        w->n_steps = 0;
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            end_child(w, open_and_compare(w) ? 10 : 20);
        }
        assert_int_equal(waitpid(pid, &wait_status, 0), pid);
        w->kill_at = 0;
        n_found += !open_and_compare(w);
        assert_int_equal(unlink(the_file(w)), 0);
    } while (WIFSIGNALED(wait_status));
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 10);
    /* Begin, two chunks, table, data, sync, name; then it lived. */
    assert_int_equal(step, 8);
    assert_int_equal(n_found, 2);
    free_world(w);
}

static void put_byte(const char *path, off_t at)
{
    int fd;
    uint8_t byte = 0;

    assert_int_equal(chmod(path, 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x04;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void altered_packed_file_is_rebuilt(void **state)
{
    world_t *const w = make_world();
    struct stat st;
    unsigned long n = 0;

    (void)state;
    assert_true(open_and_compare(w));
    assert_int_equal(stat(the_file(w), &st), 0);
    for (off_t at = 0; at < st.st_size; at += 500009, n++) {
        put_byte(the_file(w), at);
        assert_true(open_and_compare(w));
        assert_false(open_and_compare(w));
    }
    put_byte(the_file(w), st.st_size - 1);
    assert_true(open_and_compare(w));
    n++;
    bt_test_expect_log_lines(n);
    free_world(w);
}

static void truncated_or_grown_packed_file_is_rebuilt(void **state)
{
    world_t *const w = make_world();
    struct stat st;

    (void)state;
    assert_true(open_and_compare(w));
    assert_int_equal(stat(the_file(w), &st), 0);
    {
        const off_t sizes[] = {
            0, 1, 4095, 4096, st.st_size - 1, st.st_size / 2, st.st_size + 1};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            assert_int_equal(truncate(the_file(w), sizes[i]), 0);
            assert_true(open_and_compare(w));
        }
    }
    bt_test_expect_log_lines(7);
    assert_false(open_and_compare(w));
    free_world(w);
}

/* Ours by name only. */
static void foreign_packed_file_is_rebuilt(void **state)
{
    world_t *const w = make_world();
    char first[PATH_MAX + NAME_MAX + 32];
    char kept[PATH_MAX + 16];

    (void)state;
    snprintf(kept, sizeof(kept), "%s/kept", w->root);
    assert_true(open_and_compare(w));
    assert_int_equal(rename(the_file(w), kept), 0);
    w->config.pack_version = 2;
    assert_true(open_and_compare(w));
    snprintf(first, sizeof(first), "%s", the_file(w));

    /* A good file of another layout. */
    assert_int_equal(rename(kept, first), 0);
    assert_true(open_and_compare(w));
    /* One that others may write. */
    assert_int_equal(chmod(first, 0422), 0);
    assert_true(open_and_compare(w));
    /* A link, whatever is behind it. */
    assert_int_equal(rename(first, kept), 0);
    assert_int_equal(symlink(kept, first), 0);
    assert_true(open_and_compare(w));
    /* One that lacks a matrix which is asked for now. */
    w->n_pieces = N_PIECES + 1;
    {
        bt_packed_store_t *store = NULL;

        assert_int_equal(bt_packed_store_open(&w->config, &store),
                         BT_ERR_MISMATCH);
        assert_null(store);
    }
    bt_test_expect_log_lines(5); /* the last time also that it gave up */
    free_world(w);
}

static void wait_until_trusted(const world_t *w)
{
    const uint64_t start = bt_now_ms();
    struct timespec now;
    bt_gguf_stamp_t stamp;

    /* Times of files younger than 100 ms are not relied on. */
    do {
        assert_int_equal(bt_gguf_stamp(w->gguf, &stamp), BT_OK);
        assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
        assert_true(bt_now_ms() - start < LIMIT_MS);
        sched_yield();
    } while (now.tv_sec * 1000000000 + now.tv_nsec - stamp.ctime_ns <
             100000000);
}

static void changed_model_is_packed_again(void **state)
{
    world_t *const w = make_world();
    const bt_hash128_t before = bt_gguf_identity(w->gguf);
    bt_hash128_t after;

    (void)state;
    for (int old = 0; old < 2; old++) {
        if (old == 1) {
            wait_until_trusted(w);
        }
        assert_int_equal(open_and_compare(w), old == 0);
        if (old == 1) {
            /* Build again with times that count. */
            assert_int_equal(unlink(the_file(w)), 0);
            assert_true(open_and_compare(w));
        }
        spoil_model(w);
        open_model(w);
        after = bt_gguf_identity(w->gguf);
        assert_int_equal(before.lo, after.lo); /* so the name is the same */
        if (old == 0) {
            assert_true(open_and_compare(w));
            write_model(w); /* back to the beginning */
            open_model(w);
            assert_true(open_and_compare(w));
        } else {
            assert_true(open_and_compare(w));
        }
        assert_false(open_and_compare(w));
    }
    bt_test_expect_log_lines(3);
    free_world(w);
}

static void copy_of_a_model_shares_its_packed_file(void **state)
{
    world_t *const w = make_world();

    (void)state;
    wait_until_trusted(w);
    assert_true(open_and_compare(w));
    assert_int_equal(unlink(w->model), 0);
    write_model(w);
    open_model(w);
    assert_false(open_and_compare(w));
    free_world(w);
}

/* Open must fail, with one line, and leave no file behind. */
static void expect_refusal(world_t *w, bt_status_t wanted)
{
    char name[NAME_MAX + 1];
    bt_packed_store_t *store = NULL;

    assert_int_equal(bt_packed_store_open(&w->config, &store), wanted);
    assert_null(store);
    assert_true(list(w->dir, name) <= 0);
}

static void model_changed_while_packing_is_not_kept(void **state)
{
    world_t *const w = make_world();

    (void)state;
    wait_until_trusted(w);
    w->spoil = true;
    expect_refusal(w, BT_ERR_IO);
    bt_test_expect_log_lines(1);
    free_world(w);
}

static void missing_packed_folder_falls_back_to_private_weights(void **state)
{
    world_t *const w = make_world();
    char dir[PATH_MAX + 64];

    (void)state;
    snprintf(dir, sizeof(dir), "%s/below/a/file", w->model);
    w->config.dir = dir;
    expect_refusal(w, BT_ERR_IO);
    w->config.dir = "/proc/baton/weights";
    expect_refusal(w, BT_ERR_IO);
    assert_int_equal(w->n_built, 0);
    bt_test_expect_log_lines(2);
    free_world(w);
}

static void packed_file_respects_the_file_size_limit(void **state)
{
    world_t *const w = make_world();
    int wait_status = 0;
    const pid_t pid = fork();

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit limit = {1 << 20, 1 << 20};

        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        expect_refusal(w, BT_ERR_IO);
        w->config.expect_bytes = 0; /* found while writing */
        expect_refusal(w, BT_ERR_IO);
        end_child(w, w->n_built == 1 ? 30 : 1);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 30);
    free_world(w);
}

/* In a mount namespace of its own: tmpfs of 2 MiB, then read-only.
 * @return 30, or 40 where this user may not */
static int without_room(world_t *w)
{
    const int flags =
        (geteuid() == 0) ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;

    if ((unshare(flags) != 0) ||
        (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0) ||
        (bt_packed_dir_make(w->dir) != 0) ||
        (mount("none", w->dir, "tmpfs", 0, "size=2m") != 0)) {
        return 40;
    }
    expect_refusal(w, BT_ERR_IO);
    w->config.expect_bytes = 0; /* found while writing */
    expect_refusal(w, BT_ERR_IO);
    if (mount("none", w->dir, "tmpfs", MS_REMOUNT, "size=20m") != 0) {
        return 40;
    }
    assert_true(open_and_compare(w));
    if (mount("none", w->dir, "tmpfs", MS_REMOUNT | MS_RDONLY, "") != 0) {
        return 40;
    }
    assert_false(open_and_compare(w)); /* what is there is used */
    w->config.pack_version = 2;
    {
        bt_packed_store_t *store = NULL;

        assert_int_equal(bt_packed_store_open(&w->config, &store), BT_ERR_IO);
    }
    return 30;
}

static void full_or_read_only_folder_falls_back_to_private_weights(void **state)
{
    world_t *const w = make_world();
    int wait_status = 0;
    const pid_t pid = fork();
    int code;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        end_child(w, without_room(w));
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    free_world(w);
    assert_true(WIFEXITED(wait_status));
    code = WEXITSTATUS(wait_status);
    if (code == 40) {
        skip();
    }
    assert_int_equal(code, 30);
}

/* Somebody holds the lock and does nothing. */
static void stalled_builder_is_not_waited_for(void **state)
{
    world_t *const w = make_world();
    bt_packed_store_t *store = NULL;
    char path[PATH_MAX + NAME_MAX + 64];
    int fd;

    (void)state;
    assert_true(open_and_compare(w));
    snprintf(path, sizeof(path), "%s.new", the_file(w));
    assert_int_equal(unlink(the_file(w)), 0);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    w->config.stuck_ms = 50;
    assert_int_equal(bt_packed_store_open(&w->config, &store),
                     BT_ERR_TIMED_OUT);
    assert_null(store);
    close(fd);
    assert_true(open_and_compare(w)); /* the rest is taken over */
    bt_test_expect_log_lines(1);
    free_world(w);
}

/* Does a process put a file's pages in order here? */
static bool has_large_pages(void)
{
    char text[64] = "[never]";
    const int fd = open("/sys/kernel/mm/transparent_hugepage/enabled",
                        O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        assert_true(read(fd, text, sizeof(text) - 1) > 0);
        close(fd);
    }
    return strstr(text, "[never]") == NULL;
}

/* Whoever does so holds its lock; this one was stopped meanwhile, for ever. */
static void complete_packed_file_is_used_while_locked(void **state)
{
    world_t *const w = make_world();
    int fd;

    (void)state;
    assert_true(open_and_compare(w));
    fd = open(the_file(w), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    w->config.stuck_ms = 50;
    assert_false(open_and_compare(w));
    bt_test_expect_log_lines(has_large_pages() ? 1 : 0);
    close(fd);
    free_world(w);
}

static void set_age(const char *path, time_t age_s)
{
    const struct timespec times[2] = {{.tv_sec = time(NULL) - age_s},
                                      {.tv_sec = time(NULL) - age_s}};

    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void unused_packed_files_are_removed(void **state)
{
    world_t *const w = make_world();
    char first[PATH_MAX + NAME_MAX + 32];
    char other[PATH_MAX + 64];
    char name[NAME_MAX + 1];
    struct stat st;
    int fd;

    (void)state;
    assert_true(open_and_compare(w));
    snprintf(first, sizeof(first), "%s", the_file(w));
    snprintf(other, sizeof(other), "%s/notes.txt", w->dir);
    fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    set_age(other, 40 * 86400);

    /* Used today, however old: it stays. */
    set_age(first, 40 * 86400);
    assert_false(open_and_compare(w));
    assert_int_equal(stat(first, &st), 0);
    assert_true(st.st_mtim.tv_sec > time(NULL) - 86400);
    w->config.pack_version = 2;
    assert_true(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 3);

    set_age(first, 29 * 86400);
    w->config.pack_version = 3;
    assert_true(open_and_compare(w));
    assert_int_equal(list(w->dir, name), 4);
    set_age(first, 31 * 86400);
    w->config.pack_version = 4;
    assert_true(open_and_compare(w));
    assert_int_equal(access(first, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    free_world(w);
}

static void packed_open_survives_every_failed_allocation(void **state)
{
    world_t *const w = make_world();
    bt_packed_store_t *store = NULL;
    bt_status_t status;
    unsigned long n_failed = 0;
    int nth = 0;

    (void)state;
    do {
        char name[NAME_MAX + 1];

        clear(w->dir);
        bt_alloc_fail_at(++nth);
        status = bt_packed_store_open(&w->config, &store);
        bt_alloc_fail_at(0);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(store);
            n_failed++;
            /* Nothing half-written; a whole file may have got its name. */
            if (list(w->dir, name) > 0) {
                assert_null(strstr(name, ".new"));
            }
        }
    } while (status != BT_OK);
    assert_true(n_failed >= 5);
    bt_packed_store_close(store);
    bt_test_expect_log_lines(n_failed);
    free_world(w);
}

static void packed_folder_is_that_of_the_option(void **state)
{
    char dir[32];

    (void)state;
    assert_int_equal(bt_packed_dir("off", dir, sizeof(dir)), BT_OK);
    assert_string_equal(dir, "");
    assert_int_equal(bt_packed_dir("some/where", dir, sizeof(dir)), BT_OK);
    assert_string_equal(dir, "some/where");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/c", 1), 0);
    assert_int_equal(setenv("HOME", "/h", 1), 0);
    assert_int_equal(bt_packed_dir("auto", dir, sizeof(dir)), BT_OK);
    assert_string_equal(dir, "/c/baton/weights");
    assert_int_equal(setenv("XDG_CACHE_HOME", "not/absolute", 1), 0);
    assert_int_equal(bt_packed_dir("auto", dir, sizeof(dir)), BT_OK);
    assert_string_equal(dir, "/h/.cache/baton/weights");
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(bt_packed_dir("auto", dir, 10), BT_ERR_TOO_LARGE);
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(bt_packed_dir("auto", dir, sizeof(dir)), BT_ERR_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(packed_file_is_reused_at_the_next_start),
        BT_TEST(each_layout_and_profile_has_its_own_packed_file),
        BT_TEST(exactly_one_of_many_processes_builds),
        BT_TEST(killed_builder_leaves_no_broken_file),
        BT_TEST(altered_packed_file_is_rebuilt),
        BT_TEST(truncated_or_grown_packed_file_is_rebuilt),
        BT_TEST(foreign_packed_file_is_rebuilt),
        BT_TEST(changed_model_is_packed_again),
        BT_TEST(copy_of_a_model_shares_its_packed_file),
        BT_TEST(model_changed_while_packing_is_not_kept),
        BT_TEST(missing_packed_folder_falls_back_to_private_weights),
        BT_TEST(packed_file_respects_the_file_size_limit),
        BT_TEST(full_or_read_only_folder_falls_back_to_private_weights),
        BT_TEST(stalled_builder_is_not_waited_for),
        BT_TEST(complete_packed_file_is_used_while_locked),
        BT_TEST(unused_packed_files_are_removed),
        BT_TEST(packed_open_survives_every_failed_allocation),
        BT_TEST(packed_folder_is_that_of_the_option),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
