/* SPDX-License-Identifier: Apache-2.0 */
/* An object's file that is altered, cut, renamed or put together is not read.
 */
#include "tests/unit/router/store/store_fixture.h"

#include "router/store/store_priv.h"

static void path_of(const folder_t *f, const char *id, char path[200])
{
    snprintf(path, 200, "%s/%s", f->path, id);
}

static size_t load(const char *path, uint8_t *data, size_t cap)
{
    const int fd = open(path, O_RDONLY);
    ssize_t n;

    assert_true(fd >= 0);
    n = read(fd, data, cap);
    close(fd);
    assert_true((n > 0) && ((size_t)n < cap));
    return (size_t)n;
}

static void save(const char *path, const uint8_t *data, size_t n)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, n), (ssize_t)n);
    close(fd);
}

static void any_bit_counts(folder_t *f, const bt_stored_t *object)
{
    static uint8_t data[3 * 65536], altered[3 * 65536];
    char path[200];
    size_t n, got;

    path_of(f, object->id, path);
    n = load(path, data, sizeof(data));
    for (size_t i = 0; i < n; i += (i < 400) ? 1 : 997) {
        memcpy(altered, data, n);
        altered[i] ^= (uint8_t)(1u << (i % 8));
        save(path, altered, n);
        assert_int_equal(read_bytes(f, object, &got), BT_ERR_CORRUPT);
    }
    for (size_t cut = 1; cut < n; cut += (cut < 400) ? 1 : 997) {
        save(path, data, n - cut);
        assert_int_equal(read_bytes(f, object, &got), BT_ERR_CORRUPT);
    }
    memcpy(altered, data, n);
    memset(altered + n, 0, 70);
    save(path, altered, n + 70);
    assert_int_equal(read_bytes(f, object, &got), BT_ERR_CORRUPT);
    save(path, data, n);
    assert_int_equal(read_bytes(f, object, &got), BT_OK);
    assert_int_equal(got, object->bytes);
}

static void altered_file_is_not_read(void **state)
{
    folder_t f;

    (void)state;
    for (int sealed = 0; sealed < 2; sealed++) {
        folder_init(&f);
        if (sealed == 1) {
            folder_write(f.key, "a key of more than sixteen bytes");
            f.config.key_path = f.key;
        }
        folder_open(&f);
        any_bit_counts(&f, put_bytes(&f, "tenant", 70000));
        any_bit_counts(&f, put_bytes(&f, "", 0));
        folder_fini(&f);
    }
}

/* One tenant's file under another's name. */
static void file_is_bound_to_its_id(void **state)
{
    const bt_stored_t *a, *b;
    char from[200], to[200], id[BT_STORE_ID_BYTES];
    folder_t f;
    size_t n;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    a = put_bytes(&f, "a", 100);
    b = put_bytes(&f, "b", 100);
    memcpy(id, b->id, sizeof(id));
    path_of(&f, a->id, from);
    path_of(&f, b->id, to);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(read_bytes(&f, b, &n), BT_ERR_CORRUPT);
    folder_close(&f);
    bt_test_expect_log_lines(1);
    folder_open(&f);
    assert_null(bt_store_find(f.store, BT_STORE_FILE, "a", id));
    assert_null(bt_store_find(f.store, BT_STORE_FILE, "b", id));
    folder_fini(&f);
}

/* Chunks that change places, or a whole one that is taken out. */
static void chunks_are_bound_to_their_places(void **state)
{
    static uint8_t data[4 * 70000], altered[4 * 70000];
    const size_t whole = BT_STORE_CHUNK_BYTES + BT_STORE_FRAME_BYTES;
    const bt_stored_t *object;
    char path[200];
    folder_t f;
    size_t n, got, head;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    object = put_bytes(&f, "", 3 * BT_STORE_CHUNK_BYTES);
    head = (size_t)object->head_bytes;
    path_of(&f, object->id, path);
    n = load(path, data, sizeof(data));
    assert_int_equal(n, head + 3 * whole);
    memcpy(altered, data, n);
    memcpy(altered + head, data + head + whole, whole);
    memcpy(altered + head + whole, data + head, whole);
    save(path, altered, n);
    assert_int_equal(read_bytes(&f, object, &got), BT_ERR_CORRUPT);
    memcpy(altered, data, n);
    memcpy(altered + head + whole, data + head + 2 * whole, whole);
    save(path, altered, n - whole);
    assert_int_equal(read_bytes(&f, object, &got), BT_ERR_CORRUPT);
    folder_fini(&f);
}

static void ids_have_one_form(void **state)
{
    static const char *const bad[] = {
        "",
        "file-",
        "file-00112233445566778899aabbccddeef",
        "file-00112233445566778899aabbccddeeff0",
        "file-00112233445566778899aabbccddeefF",
        "file-00112233445566778899aabbccddee/f",
        "../file-00112233445566778899aabbccddee",
        "00112233445566778899aabbccddeeff",
    };
    char id[BT_STORE_ID_BYTES];
    bt_store_kind_t kind = BT_STORE_N_KINDS;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        assert_false(bt_store_id_kind(bad[i], &kind));
    }
    bt_store_id_make(BT_STORE_FILE, id);
    assert_int_equal(strlen(id), 37);
    assert_true(bt_store_id_kind(id, &kind));
    assert_int_equal(kind, BT_STORE_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(altered_file_is_not_read),
        BT_TEST(file_is_bound_to_its_id),
        BT_TEST(chunks_are_bound_to_their_places),
        BT_TEST(ids_have_one_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
