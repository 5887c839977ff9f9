/* SPDX-License-Identifier: Apache-2.0 */
/* Two stores in one shared folder: each finds, reads and unlinks the objects of
 * both, and leaves alone what the other one is doing. */
#include "tests/unit/router/store/store_fixture.h"

#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define START_S (START_US / 1000000)

/* Folder that another store removes before the next lock is taken; NULL: none
 */
static const char *removed_path;

int flock(int fd, int operation)
{
    if (removed_path != NULL) {
        char path[200];

        snprintf(path, sizeof(path), "%.190s/lock", removed_path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(removed_path), 0);
        removed_path = NULL;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

/* Stores a and b, in the folder of a. */
typedef struct pair {
    folder_t a, b;
} pair_t;

static void pair_init(pair_t *p)
{
    folder_init(&p->a);
    folder_init(&p->b);
    p->a.config.own_name = "a";
    p->b.config.own_name = "b";
    p->b.config.path = p->a.path;
    folder_open(&p->a);
    folder_open(&p->b);
}

static void pair_fini(pair_t *p)
{
    folder_fini(&p->b);
    folder_fini(&p->a);
}

static bt_status_t look_up_at(folder_t *f, const char *space, const char *id,
                              uint64_t now_us, bt_stored_t **object_p)
{
    return bt_store_look_up(f->store, BT_STORE_FILE, space, id, now_us,
                            object_p);
}

static bt_status_t look_up(folder_t *f, const char *space, const char *id,
                           bt_stored_t **object_p)
{
    return look_up_at(f, space, id, START_US, object_p);
}

static void path_of(const pair_t *p, const char *store, const char *name,
                    char path[200])
{
    snprintf(path, 200, "%s/%.8s/%.100s", p->a.path, store, name);
}

static bool is_there(const pair_t *p, const char *store, const char *name)
{
    char path[200];

    path_of(p, store, name, path);
    return access(path, F_OK) == 0;
}

static void objects_are_found_from_each_store(void **state)
{
    static const size_t sizes[] = {0, 5, 65536, 200000};
    bt_stored_t *object, *found = NULL;
    pair_t p;
    size_t n;

    (void)state;
    pair_init(&p);
    assert_true(bt_store_is_shared(p.a.store));
    assert_false(bt_store_is_in_memory(p.a.store));
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        object = put_bytes(&p.a, "space", sizes[i]);
        for (int k = 0; k < 2; k++) {
            folder_t *const f = (k == 0) ? &p.a : &p.b;

            assert_int_equal(look_up(f, "space", object->id, &found), BT_OK);
            assert_string_equal(found->holder, "a");
            assert_string_equal(found->id, object->id);
            assert_int_equal(found->created_us, object->created_us);
            assert_int_equal(found->bytes, sizes[i]);
            assert_int_equal(found->label_bytes, 5);
            assert_memory_equal(found->label, "label", 5);
            assert_int_equal(read_bytes(f, found, &n), BT_OK);
            assert_int_equal(n, sizes[i]);
            bt_stored_unref(found);
        }
        assert_null(
            bt_store_find(p.b.store, BT_STORE_FILE, "space", object->id));
    }
    pair_fini(&p);
}

static void others_are_not_found(void **state)
{
    static const char *const ids[] = {
        "",
        "lock",
        "..",
        "../a/lock",
        "file-",
        "resp_",
        "file-0123456789abcdef0123456789abcde",
        "file-0123456789abcdef0123456789abcdef0",
        "file-0123456789abcdef0123456789abcdef",
        "file-0123456789abcdef/123456789abcdef",
    };
    bt_stored_t *object, *found = NULL;
    char id[BT_STORE_ID_BYTES];
    pair_t p;

    (void)state;
    pair_init(&p);
    object = put_bytes(&p.a, "space", 5);
    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        assert_int_equal(look_up(&p.b, "space", ids[i], &found),
                         BT_ERR_NOT_FOUND);
    }
    /* Another space, another kind, another case, its last second. */
    assert_int_equal(look_up(&p.b, "spac", object->id, &found),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(look_up(&p.b, "", object->id, &found), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_store_look_up(p.b.store, BT_STORE_RESPONSE, "space",
                                      object->id, START_US, &found),
                     BT_ERR_NOT_FOUND);
    snprintf(id, sizeof(id), "%s", object->id);
    id[0] = 'F';
    assert_int_equal(look_up(&p.b, "space", id, &found), BT_ERR_NOT_FOUND);
    assert_int_equal(look_up_at(&p.b, "space", object->id,
                                (START_S + TTL_S) * 1000000, &found),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(look_up_at(&p.b, "space", object->id,
                                (START_S + TTL_S) * 1000000 - 1, &found),
                     BT_OK);
    bt_stored_unref(found);
    pair_fini(&p);
}

static void object_unlinked_from_another_store_is_gone(void **state)
{
    bt_stored_t *object, *found = NULL, *again = NULL;
    pair_t p;
    size_t n;

    (void)state;
    pair_init(&p);
    object = put_bytes(&p.a, "space", 5);
    assert_int_equal(look_up(&p.b, "space", object->id, &found), BT_OK);
    assert_int_equal(bt_store_unlink(p.b.store, found), BT_OK);
    assert_int_equal(bt_store_unlink(p.b.store, found), BT_OK);
    assert_false(is_there(&p, "a", object->id));
    assert_int_equal(look_up(&p.a, "space", object->id, &again),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(read_bytes(&p.a, object, &n), BT_ERR_NOT_FOUND);
    assert_int_equal(read_bytes(&p.b, found, &n), BT_ERR_NOT_FOUND);
    /* It counts until it expires, or makes room. */
    assert_int_equal(bt_store_used(p.a.store, "space"),
                     5 + BT_STORE_OBJECT_BYTES);
    bt_stored_unref(found);
    pair_fini(&p);
}

static void store_leaves_alone_what_another_one_writes(void **state)
{
    bt_stored_t *found = NULL;
    bt_store_put_t *put;
    char id[BT_STORE_ID_BYTES];
    pair_t p;

    (void)state;
    pair_init(&p);
    assert_int_equal(
        bt_store_put_begin(p.a.store, BT_STORE_FILE, "s", 5, START_US, &put),
        BT_OK);
    snprintf(id, sizeof(id), "%s", bt_store_put_id(put));
    assert_int_equal(bt_store_put_describe(put, "", 0, 0), BT_OK);
    assert_int_equal(bt_store_put_write(put, "12", 2), BT_OK);
    folder_reopen(&p.b);
    assert_int_equal(look_up(&p.b, "s", id, &found), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_store_put_write(put, "345", 3), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    assert_non_null(bt_store_put_end(put));
    assert_int_equal(look_up(&p.b, "s", id, &found), BT_OK);
    assert_int_equal(found->bytes, 5);
    bt_stored_unref(found);
    /* Each has its own limits. */
    assert_int_equal(bt_store_used(p.b.store, "s"), 0);
    pair_fini(&p);
}

static void own_folder_has_one_store(void **state)
{
    static const char *const names[] = {"", ".", "..", ".a", "a/b", "/a"};
    bt_store_t *store = NULL;
    char long_name[300];
    pair_t p;

    (void)state;
    pair_init(&p);
    bt_test_expect_log_lines(2 + BT_ARRAY_LEN(names));
    p.b.config.own_name = "a";
    assert_int_equal(bt_store_open(&p.b.config, START_US, &store), BT_ERR_BUSY);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        p.b.config.own_name = names[i];
        assert_int_equal(bt_store_open(&p.b.config, START_US, &store),
                         BT_ERR_INVALID_PARAM);
    }
    memset(long_name, 'a', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = '\0';
    p.b.config.own_name = long_name;
    assert_int_equal(bt_store_open(&p.b.config, START_US, &store),
                     BT_ERR_INVALID_PARAM);
    assert_null(store);
    pair_fini(&p);
}

static void objects_of_another_key_are_not_found(void **state)
{
    bt_stored_t *object, *found = NULL;
    char path[200], command[300];
    pair_t p;

    (void)state;
    pair_init(&p);
    object = put_bytes(&p.a, "space", 5);
    folder_close(&p.b);
    folder_write(p.b.key, "a key of more than sixteen bytes");
    p.b.config.key_path = p.b.key;
    folder_open(&p.b);
    bt_test_expect_log_lines(1); /* once for all */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(look_up(&p.b, "space", object->id, &found),
                         BT_ERR_NOT_FOUND);
    }
    /* A folder that others may access, or that is elsewhere, is no store's. */
    path_of(&p, "a", "", path);
    assert_int_equal(chmod(path, 0750), 0);
    assert_int_equal(look_up(&p.a, "space", object->id, &found),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(look_up(&p.a, "space", object->id, &found), BT_OK);
    bt_stored_unref(found);
    snprintf(command, sizeof(command), "mv %s/a %s/x && ln -s ../x %s/a",
             p.a.path, p.a.parent, p.a.path);
    assert_int_equal(system(command), 0);
    assert_int_equal(look_up(&p.a, "space", object->id, &found),
                     BT_ERR_NOT_FOUND);
    pair_fini(&p);
}

/* What a store has left that does not run any more. */
static void expired_objects_of_others_are_removed(void **state)
{
    static const struct timeval old[2] = {{START_S - 86400, 0},
                                          {START_S - 86400, 0}};
    static const struct timeval young[2] = {{START_S + 3600 - 86399, 0},
                                            {START_S + 3600 - 86399, 0}};
    char first[BT_STORE_ID_BYTES], second[BT_STORE_ID_BYTES], path[200];
    const char *const part = "file-0123456789abcdef0123456789abcdef.part";
    const char *const newer = "file-1123456789abcdef0123456789abcdef.part";
    bt_pool_t *pool = NULL;
    bt_store_put_t *put;
    pair_t p;

    (void)state;
    pair_init(&p);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    snprintf(first, sizeof(first), "%s", put_bytes(&p.a, "s", 5)->id);
    assert_int_equal(
        bt_store_put_begin(p.a.store, BT_STORE_FILE, "s", 5, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_put_describe(put, "", 0, TTL_S / 2), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    snprintf(second, sizeof(second), "%s", bt_store_put_end(put)->id);
    folder_close(&p.a);
    path_of(&p, "a", part, path);
    folder_write(path, "torn");
    assert_int_equal(utimes(path, old), 0);
    path_of(&p, "a", newer, path);
    folder_write(path, "torn");
    assert_int_equal(utimes(path, young), 0);
    path_of(&p, "a", "notes", path);
    folder_write(path, "of others");

    /* Not before a life is over that is shorter than an hour, then those that
     * have expired. */
    bt_store_tick(p.b.store, pool, START_US);
    wait_for_pool(pool);
    bt_store_tick(p.b.store, pool, (START_S + TTL_S - 1) * 1000000);
    wait_for_pool(pool);
    assert_true(is_there(&p, "a", first) && is_there(&p, "a", second));
    assert_true(is_there(&p, "a", part));
    bt_store_tick(p.b.store, pool, (START_S + 3600) * 1000000);
    wait_for_pool(pool);
    assert_false(is_there(&p, "a", first) || is_there(&p, "a", second));
    assert_false(is_there(&p, "a", part));
    assert_true(is_there(&p, "a", newer) && is_there(&p, "a", "notes"));
    assert_true(is_there(&p, "a", "lock") && is_there(&p, "a", "notes"));
    bt_pool_destroy(pool);
    pair_fini(&p);
}

/* Its own clock tells when they are over: it may be behind, or be wrong. */
static void objects_of_a_running_store_are_its_own(void **state)
{
    char id[BT_STORE_ID_BYTES];
    bt_pool_t *pool = NULL;
    pair_t p;

    (void)state;
    pair_init(&p);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    snprintf(id, sizeof(id), "%s", put_bytes(&p.a, "s", 5)->id);
    bt_store_tick(p.b.store, pool, (START_S + 3600) * 1000000);
    wait_for_pool(pool);
    assert_true(is_there(&p, "a", id));
    folder_close(&p.a);
    bt_store_tick(p.b.store, pool, (START_S + 7200) * 1000000);
    wait_for_pool(pool);
    assert_false(is_there(&p, "a", id));
    bt_pool_destroy(pool);
    pair_fini(&p);
}

/* The folder of a store that is gone goes, too, once nothing is left in it. */
static void empty_folders_are_removed(void **state)
{
    char path[200];
    bt_pool_t *pool = NULL;
    pair_t p;

    (void)state;
    pair_init(&p);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    (void)put_bytes(&p.a, "s", 5);
    bt_store_tick(p.b.store, pool, (START_S + 3600) * 1000000);
    wait_for_pool(pool);
    assert_true(is_there(&p, "a", "")); /* it runs */
    folder_close(&p.a);
    bt_store_tick(p.b.store, pool, (START_S + 7200) * 1000000);
    wait_for_pool(pool);
    assert_false(is_there(&p, "a", ""));
    assert_true(is_there(&p, "b", "lock"));
    folder_open(&p.a);
    assert_true(is_there(&p, "a", "lock"));
    folder_close(&p.a);
    /* In between the store begins to run. */
    path_of(&p, "a", "", path);
    removed_path = path;
    folder_open(&p.a);
    assert_null(removed_path);
    assert_true(is_there(&p, "a", "lock"));
    assert_true(is_there(&p, "a", put_bytes(&p.a, "s", 5)->id));
    bt_pool_destroy(pool);
    pair_fini(&p);
}

/* Between two slices the thread is free for others. */
static void sweep_is_done_in_slices(void **state)
{
    static const struct timeval old[2] = {{START_S - 86400, 0},
                                          {START_S - 86400, 0}};
    const unsigned n_parts = 700;
    char name[64], path[200];
    bt_pool_t *pool = NULL;
    unsigned n_jobs = 0;
    pair_t p;

    (void)state;
    pair_init(&p);
    assert_int_equal(bt_pool_create(2, &pool), BT_OK);
    folder_close(&p.a);
    for (unsigned i = 0; i < n_parts; i++) {
        snprintf(name, sizeof(name), "file-%032x.part", i);
        path_of(&p, "a", name, path);
        folder_write(path, "torn");
        assert_int_equal(utimes(path, old), 0);
    }
    bt_store_tick(p.b.store, pool, (START_S + 3600) * 1000000);
    while (bt_pool_n_jobs(pool) > 0) {
        struct pollfd at = {.fd = bt_pool_fd(pool), .events = POLLIN};

        (void)poll(&at, 1, -1);
        n_jobs += bt_pool_next(pool);
    }
    assert_in_range(n_jobs, 3, 4);
    for (unsigned i = 0; i < n_parts; i++) {
        snprintf(name, sizeof(name), "file-%032x.part", i);
        assert_false(is_there(&p, "a", name));
    }
    bt_pool_destroy(pool);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(objects_are_found_from_each_store),
        BT_TEST(others_are_not_found),
        BT_TEST(object_unlinked_from_another_store_is_gone),
        BT_TEST(store_leaves_alone_what_another_one_writes),
        BT_TEST(own_folder_has_one_store),
        BT_TEST(objects_of_another_key_are_not_found),
        BT_TEST(expired_objects_of_others_are_removed),
        BT_TEST(objects_of_a_running_store_are_its_own),
        BT_TEST(empty_folders_are_removed),
        BT_TEST(sweep_is_done_in_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
