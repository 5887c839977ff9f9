/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/router/store/store_fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#define COST(bytes) ((bytes) + BT_STORE_OBJECT_BYTES)

static bt_status_t begin(folder_t *f, const char *space, uint64_t bytes,
                         bt_store_put_t **put_p)
{
    return bt_store_put_begin(f->store, BT_STORE_FILE, space, bytes, START_US,
                              put_p);
}

static void space_and_store_have_limits(void **state)
{
    bt_store_put_t *puts[3], *put;
    bt_stored_t *object;
    folder_t f;

    (void)state;
    folder_init(&f);
    f.config.space_bytes = COST(1000);
    f.config.limit_bytes = COST(1000) + COST(500);
    folder_open(&f);
    assert_int_equal(begin(&f, "a", 1001, &put), BT_ERR_TOO_LARGE);
    assert_int_equal(begin(&f, "a", UINT64_MAX, &put), BT_ERR_TOO_LARGE);
    assert_null(bt_store_list(f.store, "a"));
    assert_int_equal(begin(&f, "a", 1000, &puts[0]), BT_OK);
    assert_int_equal(begin(&f, "a", 0, &put), BT_ERR_TOO_LARGE);
    assert_int_equal(begin(&f, "b", 501, &put), BT_ERR_BUSY);
    assert_int_equal(begin(&f, "b", 500, &puts[1]), BT_OK);
    assert_int_equal(begin(&f, "c", 0, &put), BT_ERR_BUSY);

    /* What is not used, or not committed, is given back. */
    assert_null(bt_store_put_end(puts[1]));
    assert_int_equal(bt_store_put_write(puts[0], "12345", 5), BT_OK);
    assert_int_equal(bt_store_put_commit(puts[0]), BT_OK);
    object = bt_store_put_end(puts[0]);
    assert_non_null(object);
    assert_int_equal(begin(&f, "b", 1000, &puts[1]), BT_OK);
    assert_int_equal(begin(&f, "c", 0, &put), BT_ERR_BUSY);
    assert_null(bt_store_put_end(puts[1]));
    bt_store_remove(f.store, object);
    assert_int_equal(begin(&f, "a", 1000, &puts[2]), BT_OK);
    assert_null(bt_store_put_end(puts[2]));

    /* A limit that was lowered below what there is. */
    assert_int_equal(begin(&f, "a", 1000, &put), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    assert_non_null(bt_store_put_end(put));
    f.config.limit_bytes = 10;
    folder_reopen(&f);
    assert_int_equal(begin(&f, "b", 0, &put), BT_ERR_BUSY);
    folder_fini(&f);
}

/* Begins puts of empty objects until one is refused. */
static bt_status_t fill(folder_t *f, const char *space, bt_store_put_t **puts,
                        uint32_t *n_p)
{
    bt_status_t status;

    while ((status = begin(f, space, 0, &puts[*n_p])) == BT_OK) {
        *n_p += 1;
    }
    return status;
}

/* A space takes a part of what is free, committed or not; without other spaces
 * it takes all. */
static void space_leaves_objects_to_others(void **state)
{
    bt_store_put_t *puts[64], *put;
    uint32_t n = 0, before;
    folder_t f;

    (void)state;
    folder_init(&f);
    f.config.limit_objects = 64;
    f.config.has_spaces = true;
    folder_open(&f);
    /* 3 * 16 < 61, and 4 * 16 > 60 */
    assert_int_equal(fill(&f, "a", puts, &n), BT_ERR_OVERFLOW);
    assert_int_equal(n, 4);
    assert_int_equal(bt_store_put_commit(puts[--n]), BT_OK);
    assert_non_null(bt_store_put_end(puts[n]));
    assert_int_equal(begin(&f, "a", 0, &put), BT_ERR_OVERFLOW);
    for (int i = 0; i < 24; i++) {
        char space[] = {(char)('b' + i), '\0'};

        before = n;
        assert_int_equal(fill(&f, space, puts, &n), BT_ERR_OVERFLOW);
        assert_true(n > before);
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_null(bt_store_put_end(puts[i]));
    }
    f.config.has_spaces = false;
    folder_reopen(&f);
    n = 0;
    assert_int_equal(fill(&f, "a", puts, &n), BT_ERR_BUSY);
    assert_int_equal(n, 63); /* and the one that is there */
    for (uint32_t i = 0; i < n; i++) {
        assert_null(bt_store_put_end(puts[i]));
    }
    folder_fini(&f);
}

static void put_takes_no_more_than_it_reserved(void **state)
{
    bt_pool_t *pool = NULL;
    bt_store_put_t *put;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(begin(&f, "a", 10, &put), BT_OK);
    assert_int_equal(bt_store_put_write(put, "12345", 5), BT_OK);
    assert_int_equal(bt_store_put_write(put, "123456", 6), BT_ERR_TOO_LARGE);
    assert_int_equal(bt_store_put_write(put, "12345", 5), BT_OK);
    assert_int_equal(bt_store_put_write(put, "1", 1), BT_ERR_TOO_LARGE);
    assert_int_equal(folder_count(&f), 1); /* the part … */
    assert_null(bt_store_put_end(put));
    assert_null(bt_store_list(f.store, "a"));
    assert_int_equal(folder_count(&f), 1); /* … which the pool removes */
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    bt_store_tick(f.store, pool, START_US);
    wait_for_pool(pool);
    assert_int_equal(folder_count(&f), 0);
    bt_pool_destroy(pool);
    /* Or the end of the store. */
    assert_int_equal(begin(&f, "a", 10, &put), BT_OK);
    assert_int_equal(bt_store_put_write(put, "12345", 5), BT_OK);
    assert_null(bt_store_put_end(put));
    folder_close(&f);
    assert_int_equal(folder_count(&f), 0);
    folder_fini(&f);
}

static void label_has_a_limit(void **state)
{
    char label[BT_STORE_LABEL_BYTES + 1];
    bt_store_put_t *put;
    bt_stored_t *object;
    folder_t f;

    (void)state;
    memset(label, 'x', sizeof(label));
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(begin(&f, "a", 10, &put), BT_OK);
    assert_int_equal(bt_store_put_describe(put, label, sizeof(label), 0),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(
        bt_store_put_describe(put, label, sizeof(label) - 1, TTL_S + 1), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    object = bt_store_put_end(put);
    assert_int_equal(object->label_bytes, BT_STORE_LABEL_BYTES);
    /* No object lives longer than the store says. */
    assert_int_equal(object->expires_s, START_US / 1000000 + TTL_S);
    folder_reopen(&f);
    assert_non_null(bt_store_list(f.store, "a"));
    folder_fini(&f);
}

/* From any chunk on, on disk and in memory. */
static void parts_of_an_object_are_read(void **state)
{
    static const size_t sizes[] = {0, 1, 65536, 200000};
    folder_t f;

    (void)state;
    for (size_t i = 0; i < 2 * BT_ARRAY_LEN(sizes); i++) {
        const size_t n = sizes[i / 2];
        const bt_stored_t *object;

        folder_init(&f);
        f.config.path = (i % 2 == 0) ? f.path : "";
        folder_open(&f);
        object = put_bytes(&f, "a", n);
        for (size_t at = 0; at <= n; at += BT_STORE_CHUNK_BYTES) {
            static const uint64_t mosts[] = {1, 65536, 65537, 131072,
                                             UINT64_MAX};

            for (size_t k = 0; k < BT_ARRAY_LEN(mosts); k++) {
                const uint64_t chunks =
                    (mosts[k] > n)
                        ? n
                        : (mosts[k] + 65535) / 65536 * UINT64_C(65536);
                const uint64_t want = (chunks < n - at) ? chunks : n - at;
                bt_strbuf_t out;

                bt_strbuf_init(&out, 1u << 20);
                assert_int_equal(
                    bt_store_read(f.store, object, at, mosts[k], &out), BT_OK);
                assert_int_equal(out.len, want);
                for (size_t j = 0; j < out.len; j++) {
                    assert_int_equal((uint8_t)out.data[j], (at + j) % 251);
                }
                bt_strbuf_fini(&out);
            }
        }
        folder_fini(&f);
    }
}

/* A clock that was a year ahead once moves the order of objects, not their
 * life. */
static void life_is_from_the_clock_of_the_put(void **state)
{
    const uint64_t start_s = START_US / 1000000, year_s = 365 * 86400;
    bt_store_put_t *put;
    bt_stored_t *ahead, *object;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    assert_int_equal(bt_store_put_begin(f.store, BT_STORE_FILE, "a", 0,
                                        START_US + year_s * 1000000, &put),
                     BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    ahead = bt_store_put_end(put);
    assert_int_equal(ahead->expires_s, start_s + year_s + TTL_S);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t life_s = (i == 0) ? 0 : TTL_S / 2;

        assert_int_equal(begin(&f, "a", 0, &put), BT_OK);
        assert_int_equal(bt_store_put_describe(put, "", 0, life_s), BT_OK);
        assert_int_equal(bt_store_put_commit(put), BT_OK);
        object = bt_store_put_end(put);
        assert_true(object->created_us > ahead->created_us);
        assert_int_equal(object->expires_s,
                         start_s + ((i == 0) ? TTL_S : TTL_S / 2));
    }
    folder_fini(&f);
}

/* A disk that is full, as a limit of a file's size. */
static void write_that_fails_leaves_no_file(void **state)
{
    const struct rlimit few = {70000, RLIM_INFINITY};
    struct rlimit before;
    uint8_t data[3 * 65536] = {0};
    bt_store_put_t *put;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (int i = 0; i < 2; i++) {
        const size_t n = (i == 0) ? sizeof(data) : 65536 + 10;

        assert_int_equal(begin(&f, "a", n, &put), BT_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
        if (i == 0) { /* while it is written, or at its end */
            assert_int_equal(bt_store_put_write(put, data, n), BT_ERR_IO);
            assert_int_equal(folder_count(&f),
                             0); /* by the thread that wrote */
            assert_int_equal(bt_store_put_write(put, data, 1), BT_ERR_IO);
        } else {
            assert_int_equal(bt_store_put_write(put, data, 10), BT_OK);
            assert_int_equal(bt_store_put_write(put, data, n - 10), BT_OK);
            assert_int_equal(bt_store_put_write(put, data, 0), BT_OK);
            f.config.limit_bytes = 1; /* unused here */
            assert_int_equal(
                setrlimit(RLIMIT_FSIZE,
                          &(const struct rlimit){10, RLIM_INFINITY}),
                0);
            assert_int_equal(bt_store_put_commit(put), BT_ERR_IO);
            assert_int_equal(errno, EFBIG);
        }
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_null(bt_store_put_end(put));
        assert_int_equal(folder_count(&f), 0);
        assert_null(bt_store_list(f.store, "a"));
    }
    folder_fini(&f);
}

static void allocation_that_fails_leaves_nothing(void **state)
{
    bool is_over = false;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    for (int nth = 1; !is_over; nth++) {
        bt_store_put_t *put = NULL;
        bt_status_t status;

        (void)bt_alloc_fail_at(nth);
        status = begin(&f, "a", 10, &put);
        if (status == BT_OK) {
            status = bt_store_put_describe(put, "l", 1, 0);
            if (status == BT_OK) {
                status = bt_store_put_commit(put);
            }
        }
        is_over = bt_alloc_fail_at(0) > 0;
        assert_int_equal(status, is_over ? BT_OK : BT_ERR_NO_MEMORY);
        if (put != NULL) {
            assert_int_equal(bt_store_put_end(put) != NULL, is_over);
        }
        assert_int_equal(bt_store_list(f.store, "a") != NULL, is_over);
        assert_true(nth < 20);
    }
    assert_int_equal(folder_count(&f), 1);
    folder_fini(&f);
}

static void objects_of_one_moment_have_an_order(void **state)
{
    const bt_stored_t *a, *b;
    folder_t f;

    (void)state;
    folder_init(&f);
    folder_open(&f);
    a = put_bytes(&f, "a", 1);
    b = put_bytes(&f, "a", 1);
    assert_true(b->created_us > a->created_us);
    assert_string_not_equal(a->id, b->id);
    folder_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(space_and_store_have_limits),
        BT_TEST(space_leaves_objects_to_others),
        BT_TEST(put_takes_no_more_than_it_reserved),
        BT_TEST(label_has_a_limit),
        BT_TEST(parts_of_an_object_are_read),
        BT_TEST(life_is_from_the_clock_of_the_put),
        BT_TEST(write_that_fails_leaves_no_file),
        BT_TEST(allocation_that_fails_leaves_nothing),
        BT_TEST(objects_of_one_moment_have_an_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
