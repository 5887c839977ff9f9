/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/router/store/store_fixture.h"

#include <sys/resource.h>

static void objects_are_there_after_reopening(void **state)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 131072, 300000};
    char ids[7][BT_STORE_ID_BYTES];
    bt_list_t *list;
    folder_t f;
    size_t n;
    unsigned at = 0;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    for (size_t i = 0; i < 7; i++) {
        const bt_stored_t *object = put_bytes(&f, "tenant", sizes[i]);

        memcpy(ids[i], object->id, sizeof(ids[i]));
        assert_int_equal(strncmp(object->id, "file-", 5), 0);
    }
    folder_reopen(&f);
    list = bt_store_list(f.store, "tenant");
    assert_non_null(list);
    for (bt_list_t *pos = list->next; pos != list; pos = pos->next) {
        const bt_stored_t *object = BT_CONTAINER_OF(pos, bt_stored_t, link);

        assert_string_equal(object->id, ids[at]);
        assert_int_equal(object->bytes, sizes[at]);
        assert_int_equal(object->expires_s, START_US / 1000000 + TTL_S);
        assert_int_equal(object->label_bytes, 5);
        assert_memory_equal(object->label, "label", 5);
        assert_int_equal(read_bytes(&f, object, &n), BT_OK);
        assert_int_equal(n, sizes[at]);
        at++;
    }
    assert_int_equal(at, 7);
    folder_fini(&f);
}

static void object_is_found_by_its_space_only(void **state)
{
    const bt_stored_t *a, *b;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            a = put_bytes(&f, "a", 3);
            b = put_bytes(&f, "", 3);
        } else {
            char ids[2][BT_STORE_ID_BYTES];

            memcpy(ids[0], a->id, sizeof(ids[0]));
            memcpy(ids[1], b->id, sizeof(ids[1]));
            folder_reopen(&f);
            a = bt_store_find(f.store, BT_STORE_FILE, "a", ids[0]);
            b = bt_store_find(f.store, BT_STORE_FILE, "", ids[1]);
            assert_non_null(a);
            assert_non_null(b);
        }
        assert_ptr_equal(bt_store_find(f.store, BT_STORE_FILE, "a", a->id), a);
        assert_null(bt_store_find(f.store, BT_STORE_FILE, "", a->id));
        assert_null(bt_store_find(f.store, BT_STORE_FILE, "b", a->id));
        assert_null(bt_store_find(f.store, BT_STORE_FILE, "a", b->id));
        assert_null(bt_store_find(f.store, BT_STORE_FILE, "a", "file-"));
        assert_null(bt_store_list(f.store, "b"));
    }
    folder_fini(&f);
}

static void folder_and_files_are_closed_to_others(void **state)
{
    const bt_stored_t *object;
    struct stat info;
    char path[160];
    folder_t f;

    (void)state;
    folder_init(&f);
    umask(0);
    folder_open(&f);
    object = put_bytes(&f, "", 10);
    assert_int_equal(stat(f.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    snprintf(path, sizeof(path), "%s/%s", f.path, object->id);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    folder_close(&f);

    assert_int_equal(chmod(f.path, 0750), 0);
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_store_check(&f.config), BT_ERR_UNAUTHORIZED);
    assert_int_equal(bt_store_open(&f.config, START_US, &f.store),
                     BT_ERR_UNAUTHORIZED);
    assert_int_equal(chmod(f.path, 0700), 0);
    assert_int_equal(bt_store_check(&f.config), BT_OK);
    folder_fini(&f);
}

static void folder_is_for_one_process(void **state)
{
    bt_store_t *other = NULL;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_store_open(&f.config, START_US, &other), BT_ERR_BUSY);
    assert_null(other);
    folder_fini(&f);
}

static void path_that_is_no_folder_is_refused(void **state)
{
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_write(f.path, "x");
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_store_check(&f.config), BT_ERR_BAD_FILE);
    assert_int_equal(bt_store_open(&f.config, START_US, &f.store),
                     BT_ERR_BAD_FILE);
    folder_fini(&f);
}

/* Half-written files go, others' files stay, and damaged ones are not found. */
static void scan_takes_whole_objects_only(void **state)
{
    const char *const id = "file-00112233445566778899aabbccddeeff";
    const bt_stored_t *object;
    char path[200], part[200], good[BT_STORE_ID_BYTES];
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = put_bytes(&f, "", 10);
    memcpy(good, object->id, sizeof(good));
    folder_close(&f);
    snprintf(part, sizeof(part), "%s/%s.part", f.path, id);
    folder_write(part, "half");
    snprintf(path, sizeof(path), "%s/notes.txt", f.path);
    folder_write(path, "mine");
    snprintf(path, sizeof(path), "%s/%s", f.path, id);
    folder_write(path, "not an object");
    snprintf(path, sizeof(path), "%s/file-00112233445566778899aabbccddeef0",
             f.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(path, sizeof(path), "%s/file-00112233445566778899aabbccddeef1",
             f.path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof(path), "%s/file-00112233445566778899aabbccddeef2",
             f.path);
    assert_int_equal(mkdir(path, 0700), 0);

    bt_test_expect_log_lines(4);
    folder_open(&f);
    assert_int_equal(access(part, F_OK), -1);
    assert_int_equal(folder_count(&f), 6);
    assert_non_null(bt_store_find(f.store, BT_STORE_FILE, "", good));
    assert_null(bt_store_find(f.store, BT_STORE_FILE, "", id));
    folder_fini(&f);
}

static void removed_object_is_gone(void **state)
{
    bt_stored_t *object;
    folder_t f;
    size_t n;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = bt_stored_ref(put_bytes(&f, "a", 100));
    assert_int_equal(bt_store_use(f.store).n_objects[BT_STORE_FILE], 1);
    assert_int_equal(bt_store_use(f.store).n_objects[BT_STORE_BATCH], 0);
    assert_int_equal(bt_store_use(f.store).bytes, 100 + BT_STORE_OBJECT_BYTES);
    assert_int_equal(bt_store_use(f.store).limit_bytes, f.config.limit_bytes);
    bt_store_remove(f.store, object);
    assert_int_equal(bt_store_use(f.store).n_objects[BT_STORE_FILE], 0);
    assert_int_equal(bt_store_use(f.store).bytes, 0);
    assert_null(bt_store_find(f.store, BT_STORE_FILE, "a", object->id));
    assert_null(bt_store_list(f.store, "a"));
    assert_int_equal(bt_store_unlink(f.store, object), BT_OK);
    assert_int_equal(bt_store_unlink(f.store, object), BT_OK); /* again */
    assert_int_equal(folder_count(&f), 0);
    assert_int_equal(read_bytes(&f, object, &n), BT_ERR_NOT_FOUND);
    bt_stored_unref(object);
    folder_fini(&f);
}

static void expired_objects_leave_by_the_pool(void **state)
{
    const uint64_t start_s = START_US / 1000000;
    char short_id[BT_STORE_ID_BYTES];
    bt_store_put_t *put;
    bt_pool_t *pool;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    (void)put_bytes(&f, "a", 5);
    (void)put_bytes(&f, "b", 5);
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 5, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_put_describe(put, "", 0, TTL_S / 2), BT_OK);
    assert_int_equal(bt_store_put_write(put, "12345", 5), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    memcpy(short_id, bt_store_put_end(put)->id, sizeof(short_id));

    bt_store_tick(f.store, pool, (start_s + TTL_S / 2 - 1) * 1000000);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 3);
    bt_store_tick(f.store, pool, (start_s + TTL_S / 2) * 1000000);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 2);
    assert_null(bt_store_find(f.store, BT_STORE_FILE, "a", short_id));
    assert_non_null(bt_store_list(f.store, "a"));

    folder_reopen(&f); /* the times are those of the files */
    bt_store_tick(f.store, pool, (start_s + TTL_S) * 1000000);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 0);
    assert_null(bt_store_list(f.store, "a"));
    assert_null(bt_store_list(f.store, "b"));
    bt_pool_destroy(pool);
    folder_fini(&f);
}

static void evicted_object_leaves_by_the_pool(void **state)
{
    bt_pool_t *pool = NULL;
    bt_stored_t *first, *second, *kept;
    folder_t f;
    size_t n;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    first = put_bytes(&f, "a", 5);
    second = put_bytes(&f, "a", 6);
    (void)put_bytes(&f, "b", 5);
    assert_ptr_equal(bt_store_oldest(f.store, "a"), first);
    assert_null(bt_store_oldest(f.store, "c"));
    assert_int_equal(bt_store_used(f.store, "a"),
                     11 + 2 * BT_STORE_OBJECT_BYTES);
    assert_int_equal(bt_store_used(f.store, "c"), 0);
    assert_ptr_equal(bt_store_oldest_of_largest(f.store, 8203), first);
    assert_null(bt_store_oldest_of_largest(f.store, 8204));
    kept = bt_stored_ref(first);
    bt_store_evict(f.store, first);
    assert_ptr_equal(bt_store_oldest(f.store, "a"), second);
    assert_int_equal(folder_count(&f), 3);
    assert_int_equal(read_bytes(&f, kept, &n), BT_OK); /* until the tick */
    bt_store_tick(f.store, pool, START_US);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 2);
    assert_int_equal(read_bytes(&f, kept, &n), BT_ERR_NOT_FOUND);
    bt_stored_unref(kept);
    bt_store_evict(f.store, second); /* without a tick */
    assert_int_equal(bt_store_use(f.store).n_evicted, 2);
    assert_int_equal(bt_store_use(f.store).n_objects[BT_STORE_FILE], 1);
    folder_reopen(&f);
    assert_int_equal(folder_count(&f), 1);
    bt_pool_destroy(pool);
    folder_fini(&f);
}

/* Puts an empty object, for which the oldest one is evicted if needed. */
static bt_stored_t *put_evicting(folder_t *f)
{
    bt_store_put_t *put = NULL;
    bt_status_t status =
        bt_store_put_begin(f->store, BT_STORE_FILE, "a", 0, START_US, &put);

    if (status == BT_ERR_BUSY) {
        bt_store_evict(f->store, bt_store_oldest(f->store, "a"));
        status =
            bt_store_put_begin(f->store, BT_STORE_FILE, "a", 0, START_US, &put);
    }
    assert_int_equal(status, BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    return bt_store_put_end(put);
}

/* A process may be killed at any time, and finds as many as there may be. */
static void disk_has_no_more_objects_than_the_limit(void **state)
{
    bt_pool_t *pool = NULL;
    bt_store_put_t *put = NULL;
    folder_t f;

    (void)state;
    folder_init(&f);
    f.config.limit_objects = 4;
    folder_open(&f);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    for (unsigned i = 1; i <= 8; i++) {
        assert_non_null(put_evicting(&f));
        assert_int_equal(folder_count(&f), (i < 4) ? i : 4);
    }
    /* A put that never began leaves it to the next tick, or put. */
    bt_store_evict(f.store, bt_store_oldest(f.store, "a"));
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 0, START_US, &put),
        BT_OK);
    assert_null(bt_store_put_end(put));
    assert_int_equal(folder_count(&f), 4);
    assert_non_null(put_evicting(&f));
    assert_int_equal(folder_count(&f), 4);
    /* What the pool removes counts until it has. */
    bt_store_evict(f.store, bt_store_oldest(f.store, "a"));
    bt_store_tick(f.store, pool, START_US);
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 0, START_US, &put),
        BT_ERR_BUSY);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 3);
    assert_non_null(put_evicting(&f));
    bt_pool_destroy(pool);
    folder_fini(&f);
}

static void oldest_of_too_many_objects_are_evicted_at_the_start(void **state)
{
    char ids[5][BT_STORE_ID_BYTES];
    bt_pool_t *pool = NULL;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    for (size_t i = 0; i < 5; i++) {
        memcpy(ids[i], put_bytes(&f, (i % 2 == 0) ? "a" : "b", i)->id,
               sizeof(ids[i]));
    }
    f.config.limit_objects = 3;
    bt_test_expect_log_lines(1);
    folder_reopen(&f);
    assert_int_equal(bt_store_use(f.store).n_objects[BT_STORE_FILE], 3);
    assert_int_equal(bt_store_use(f.store).n_evicted, 2);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(bt_store_find(f.store, BT_STORE_FILE,
                                       (i % 2 == 0) ? "a" : "b",
                                       ids[i]) != NULL,
                         i >= 2);
    }
    bt_store_tick(f.store, pool, START_US);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 3);
    bt_pool_destroy(pool);
    folder_fini(&f);
}

static void store_in_memory_is_the_same_without_files(void **state)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 200000};
    const uint64_t start_s = START_US / 1000000;
    bt_pool_t *pool = NULL;
    bt_stored_t *object;
    bt_store_put_t *put;
    folder_t f;
    size_t n;

    (void)state;
    folder_init(&f);
    f.config.path = "";
    folder_open(&f);
    assert_true(bt_store_is_in_memory(f.store));
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        object = put_bytes(&f, "a", sizes[i]);
        assert_int_equal(object->bytes, sizes[i]);
        assert_int_equal(read_bytes(&f, object, &n), BT_OK);
        assert_int_equal(n, sizes[i]);
    }
    /* One that is removed can be read by who has a reference. */
    object = bt_stored_ref(bt_store_oldest(f.store, "a"));
    bt_store_remove(f.store, object);
    assert_int_equal(bt_store_unlink(f.store, object), BT_OK);
    assert_int_equal(read_bytes(&f, object, &n), BT_OK);
    bt_stored_unref(object);
    /* A put that is not committed leaves nothing. */
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "b", 5, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_put_write(put, "12345", 5), BT_OK);
    assert_int_equal(bt_store_put_write(put, "6", 1), BT_ERR_TOO_LARGE);
    assert_null(bt_store_put_end(put));
    assert_null(bt_store_list(f.store, "b"));
    bt_store_evict(f.store, bt_store_oldest(f.store, "a"));
    bt_store_tick(f.store, pool, (start_s + TTL_S - 1) * 1000000);
    assert_non_null(bt_store_list(f.store, "a"));
    bt_store_tick(f.store, pool, (start_s + TTL_S) * 1000000);
    assert_null(bt_store_list(f.store, "a"));
    assert_true(bt_store_takes(f.store, (5 << 20) - 4096));
    assert_false(bt_store_takes(f.store, (5 << 20) - 4095));
    bt_pool_destroy(pool);
    folder_fini(&f);
}

static void sealed_objects_need_their_key(void **state)
{
    char id[BT_STORE_ID_BYTES], path[200], raw[4096];
    const bt_stored_t *object;
    bt_store_put_t *put;
    folder_t f;
    ssize_t n;
    int fd;

    (void)state;
    folder_init(&f);
    folder_write(f.key, "a key of more than sixteen bytes");
    f.config.key_path = f.key;
    folder_open(&f);
    assert_int_equal(bt_store_put_begin(f.store, BT_STORE_FILE, "the-tenant",
                                        100, START_US, &put),
                     BT_OK);
    assert_int_equal(bt_store_put_describe(put, "the-label", 9, 0), BT_OK);
    assert_int_equal(bt_store_put_write(put, "the-secret", 10), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    memcpy(id, bt_store_put_end(put)->id, sizeof(id));
    folder_reopen(&f);
    object = bt_store_find(f.store, BT_STORE_FILE, "the-tenant", id);
    assert_non_null(object);
    assert_memory_equal(object->label, "the-label", 9);

    snprintf(path, sizeof(path), "%s/%s", f.path, id);
    fd = open(path, O_RDONLY);
    n = read(fd, raw, sizeof(raw));
    close(fd);
    assert_true(n > 100);
    assert_null(memmem(raw, (size_t)n, "the-secret", 10));
    assert_null(memmem(raw, (size_t)n, "the-tenant", 10));
    assert_null(memmem(raw, (size_t)n, "the-label", 9));

    folder_close(&f);
    folder_write(f.key, "another key of more than sixteen bytes");
    bt_test_expect_log_lines(2);
    folder_open(&f);
    assert_null(bt_store_list(f.store, "the-tenant"));
    folder_close(&f);
    f.config.key_path = "";
    folder_open(&f);
    assert_null(bt_store_list(f.store, "the-tenant"));
    assert_int_equal(folder_count(&f), 1); /* left alone */
    folder_fini(&f);
}

static void key_file_that_others_read_is_refused(void **state)
{
    folder_t f;

    (void)state;
    folder_init(&f);
    f.config.key_path = f.key;
    bt_test_expect_log_lines(3);
    assert_int_equal(bt_store_check(&f.config), BT_ERR_NOT_FOUND);
    folder_write(f.key, "a key of more than sixteen bytes");
    assert_int_equal(chmod(f.key, 0644), 0);
    assert_int_equal(bt_store_check(&f.config), BT_ERR_UNAUTHORIZED);
    assert_int_equal(bt_store_open(&f.config, START_US, &f.store),
                     BT_ERR_UNAUTHORIZED);
    folder_fini(&f);
}

static void allocation_that_fails_while_opening_is_reported(void **state)
{
    folder_t f;
    bool is_over = false;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    (void)put_bytes(&f, "a", 10);
    (void)put_bytes(&f, "b", 10);
    folder_close(&f);
    for (int nth = 1; !is_over; nth++) {
        bt_status_t status;

        (void)bt_alloc_fail_at(nth);
        status = bt_store_open(&f.config, START_US, &f.store);
        is_over = bt_alloc_fail_at(0) > 0;
        if (is_over) {
            assert_int_equal(status, BT_OK);
            assert_non_null(bt_store_list(f.store, "a"));
        } else {
            bt_test_expect_log_lines((unsigned long)nth);
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_null(f.store);
        }
        assert_true(nth < 100);
    }
    folder_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(objects_are_there_after_reopening),
        BT_TEST(object_is_found_by_its_space_only),
        BT_TEST(folder_and_files_are_closed_to_others),
        BT_TEST(folder_is_for_one_process),
        BT_TEST(path_that_is_no_folder_is_refused),
        BT_TEST(scan_takes_whole_objects_only),
        BT_TEST(removed_object_is_gone),
        BT_TEST(expired_objects_leave_by_the_pool),
        BT_TEST(evicted_object_leaves_by_the_pool),
        BT_TEST(disk_has_no_more_objects_than_the_limit),
        BT_TEST(oldest_of_too_many_objects_are_evicted_at_the_start),
        BT_TEST(store_in_memory_is_the_same_without_files),
        BT_TEST(sealed_objects_need_their_key),
        BT_TEST(key_file_that_others_read_is_refused),
        BT_TEST(allocation_that_fails_while_opening_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
