/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/router/store/store_fixture.h"

#define RECORDS 6

/* Records of one and of several chunks. */
static const size_t sizes[RECORDS] = {1, 100, 65536, 65537, 200000, 7};

static bt_stored_t *make_object(folder_t *f)
{
    bt_store_put_t *put;

    assert_int_equal(
        bt_store_put_begin(f->store, BT_STORE_BATCH, "a", 2, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_put_write(put, "{}", 2), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    return bt_store_put_end(put);
}

static void append(bt_store_journal_t *j, size_t i)
{
    uint8_t *data = malloc(sizes[i]);

    assert_non_null(data);
    memset(data, (int)('a' + i), sizes[i]);
    assert_int_equal(bt_store_journal_append(j, data, sizes[i]), BT_OK);
    free(data);
}

/* Reads all records, which are the first ones of `sizes`. @return how many */
static size_t read_all(bt_store_journal_t *j)
{
    const void *data;
    size_t bytes, n = 0;

    for (;;) {
        assert_int_equal(bt_store_journal_next(j, &data, &bytes), BT_OK);
        if (bytes == 0) {
            return n;
        }
        assert_true(n < RECORDS);
        assert_int_equal(bytes, sizes[n]);
        for (size_t i = 0; i < bytes; i++) {
            assert_int_equal(((const char *)data)[i], 'a' + (int)n);
        }
        n++;
    }
}

static bt_store_journal_t *open_journal(const folder_t *f,
                                        const bt_stored_t *object)
{
    bt_store_journal_t *j = NULL;

    assert_int_equal(bt_store_journal_open(f->store, object, &j), BT_OK);
    return j;
}

static void path_of(const folder_t *f, const bt_stored_t *object,
                    char path[200])
{
    snprintf(path, 200, "%s/%s.journal", f->path, object->id);
}

static void records_come_back_in_order(void **state)
{
    for (int sealed = 0; sealed < 2; sealed++) {
        char id[BT_STORE_ID_BYTES];
        bt_store_journal_t *j;
        bt_stored_t *object;
        folder_t f;

        (void)state;
        folder_init(&f);
        if (sealed == 1) {
            folder_write(f.key, "a key of more than sixteen bytes");
            f.config.key_path = f.key;
        }
        folder_open(&f);
        object = make_object(&f);
        memcpy(id, object->id, sizeof(id));
        j = open_journal(&f, object);
        assert_int_equal(read_all(j), 0);
        for (size_t i = 0; i < RECORDS; i++) {
            append(j, i);
            if (i == 2) { /* another process goes on */
                assert_int_equal(bt_store_journal_sync(j), BT_OK);
                bt_store_journal_close(j);
                folder_reopen(&f);
                object = bt_store_find(f.store, BT_STORE_BATCH, "a", id);
                assert_non_null(object);
                j = open_journal(&f, object);
                assert_int_equal(read_all(j), 3);
            }
        }
        bt_store_journal_rewind(j);
        assert_int_equal(read_all(j), RECORDS);
        bt_store_journal_close(j);
        folder_fini(&f);
    }
}

/* A kill may cut the file anywhere: whole records are read, and the next is
 * appended behind them. */
static void torn_record_is_cut_off(void **state)
{
    unsigned long n_cut = 0;
    static uint8_t data[400000];
    bt_store_journal_t *j;
    bt_stored_t *object;
    char path[200];
    folder_t f;
    ssize_t n;
    int fd;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = make_object(&f);
    path_of(&f, object, path);
    j = open_journal(&f, object);
    assert_int_equal(read_all(j), 0);
    for (size_t i = 0; i < 4; i++) {
        append(j, i);
    }
    bt_store_journal_close(j);
    fd = open(path, O_RDONLY);
    n = read(fd, data, sizeof(data));
    close(fd);
    assert_true(n > 131174);
    for (ssize_t cut = n - 1; cut >= 0; cut -= (cut > 600) ? 1999 : 1) {
        struct stat info;
        size_t whole;
        off_t was;

        fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, data, (size_t)cut), cut);
        if (cut % 2 == 0) { /* as a file system may have it */
            assert_int_equal(ftruncate(fd, cut + 33), 0);
        }
        close(fd);
        if ((cut < 16) && (cut % 2 == 0)) {
            assert_int_equal(truncate(path, cut), 0); /* the header is torn */
        }
        j = open_journal(&f, object);
        assert_int_equal(stat(path, &info), 0);
        was = info.st_size;
        whole = read_all(j);
        assert_int_equal(stat(path, &info), 0);
        n_cut += info.st_size < was;
        assert_true(whole < 4);
        append(j, whole);
        bt_store_journal_rewind(j);
        assert_int_equal(read_all(j), whole + 1);
        bt_store_journal_close(j);
    }
    assert_true(n_cut > 0);
    bt_test_expect_log_lines(n_cut);
    folder_fini(&f);
}

static void records_are_replaced_by_one(void **state)
{
    bt_store_journal_t *j;
    bt_stored_t *object;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = make_object(&f);
    j = open_journal(&f, object);
    assert_int_equal(read_all(j), 0);
    append(j, 0);
    append(j, 1);
    assert_int_equal(bt_store_journal_replace(j, "a", 1), BT_OK);
    j = open_journal(&f, object);
    assert_int_equal(read_all(j), 1);
    append(j, 1);
    bt_store_journal_rewind(j);
    assert_int_equal(read_all(j), 2);
    bt_store_journal_close(j);
    assert_int_equal(folder_count(&f), 2);
    folder_fini(&f);
}

static void journal_goes_with_its_object(void **state)
{
    bt_store_journal_t *j;
    bt_stored_t *object;
    char path[256], orphan[200];
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = bt_stored_ref(make_object(&f));
    j = open_journal(&f, object);
    bt_store_journal_close(j);
    path_of(&f, object, path);
    assert_int_equal(access(path, F_OK), 0);
    bt_store_remove(f.store, object);
    assert_int_equal(bt_store_unlink(f.store, object), BT_OK);
    bt_stored_unref(object);
    assert_int_equal(folder_count(&f), 0);

    snprintf(orphan, sizeof(orphan),
             "%s/batch_00112233445566778899aabbccddeeff.journal", f.path);
    folder_write(orphan, "x");
    snprintf(path, sizeof(path), "%s.part", orphan);
    folder_write(path, "x");
    folder_reopen(&f);
    assert_int_equal(folder_count(&f), 0);
    folder_fini(&f);
}

static void journal_is_charged_to_its_space(void **state)
{
    bt_stored_t *object;
    bt_store_put_t *put;
    folder_t f;

    (void)state;
    folder_init(&f);
    f.config.space_bytes = 2 * (uint64_t)BT_STORE_OBJECT_BYTES + 1000;
    folder_open(&f);
    object = make_object(&f);
    assert_int_equal(bt_store_charge_journal(f.store, object, 999 + 4096),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(bt_store_charge_journal(f.store, object, 900), BT_OK);
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 99, START_US, &put),
        BT_ERR_TOO_LARGE);
    assert_int_equal(bt_store_charge_journal(f.store, object, 800), BT_OK);
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 99, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_charge_journal(f.store, object, 900),
                     BT_ERR_TOO_LARGE);
    assert_null(bt_store_put_end(put));
    bt_store_release_journal(f.store, object);
    assert_int_equal(
        bt_store_put_begin(f.store, BT_STORE_FILE, "a", 998, START_US, &put),
        BT_OK);
    assert_null(bt_store_put_end(put));
    bt_store_remove(f.store, object);
    assert_null(bt_store_list(f.store, "a"));
    folder_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(records_come_back_in_order),
        BT_TEST(torn_record_is_cut_off),
        BT_TEST(records_are_replaced_by_one),
        BT_TEST(journal_goes_with_its_object),
        BT_TEST(journal_is_charged_to_its_space),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
