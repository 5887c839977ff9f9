/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of shared memory that clients register: bounds, keys that name
 * something else, objects that shrink. Expected values are worked by hand. */
#include "tests/support/shm_object.h"

#include "common/base/alloc.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "router/frontend/regions.h"

#define HELD_MOST 1000u

static bt_regions_t *regions;
static bt_api_error_t error;

static int open_regions(void **state)
{
    (void)state;
    return (bt_regions_create(HELD_MOST, &regions) == BT_OK)
               ? bt_test_setup(state)
               : -1;
}

static int close_regions(void **state)
{
    bt_regions_destroy(regions);
    return bt_test_teardown(state);
}

#define REGIONS_TEST(fn) \
    cmocka_unit_test_setup_teardown(fn, open_regions, close_regions)

static bt_status_t add(const char *name, const char *key, uint64_t offset,
                       uint64_t bytes)
{
    error = (bt_api_error_t){0};
    return bt_regions_register(regions, name, key, offset, bytes, &error);
}

static void is_refused(bt_status_t got, bt_status_t status, const char *part)
{
    if ((got != status) || (strstr(error.message, part) == NULL)) {
        fail_msg("%d, not %d \"%s\": %s", (int)got, (int)status, part,
                 error.message);
    }
}

static void region_is_read_and_written_at_offsets(void **state)
{
    shm_object_t o;
    bt_region_t *region;
    char text[8] = "";

    (void)state;
    shm_make(&o, "plain", 100);
    shm_put(&o, 10 + 3, "hello", 5);
    assert_int_equal(add("r", o.key, 10, 90), BT_OK);
    region = bt_regions_find(regions, "r");
    assert_non_null(region);
    assert_int_equal(bt_region_read(region, 3, text, 5, &error), BT_OK);
    assert_string_equal(text, "hello");
    assert_int_equal(bt_region_write(region, 85, "world", 5, &error), BT_OK);
    shm_get(&o, 95, text, 5);
    assert_string_equal(text, "world");
    assert_int_equal(bt_region_read(region, 90, text, 0, &error), BT_OK);
    assert_int_equal(shm_size(&o), 100);
    bt_region_unref(region);
    /* The slash in front is shm_open(3)'s, and may be left out. */
    assert_int_equal(add("s", o.key + 1, 0, 100), BT_OK);
    shm_remove(&o);
}

static void access_outside_region_is_refused(void **state)
{
    static const struct {
        uint64_t offset, bytes;
    } wrong[] = {{0, 11},         {10, 1},
                 {11, 0},         {5, 6},
                 {UINT64_MAX, 1}, {1, UINT64_MAX},
                 {UINT64_MAX, 2}, {UINT64_MAX, UINT64_MAX}};
    shm_object_t o;
    bt_region_t *region;
    char byte = 'x';

    (void)state;
    shm_make(&o, "uses", 100);
    assert_int_equal(add("r", o.key, 20, 10), BT_OK);
    region = bt_regions_find(regions, "r");
    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        is_refused(
            bt_region_check(region, wrong[i].offset, wrong[i].bytes, &error),
            BT_ERR_INVALID_PARAM, "shared memory region 'r'");
    }
    is_refused(bt_region_read(region, 10, &byte, 1, &error),
               BT_ERR_INVALID_PARAM, "region 'r'");
    is_refused(bt_region_write(region, 10, &byte, 1, &error),
               BT_ERR_INVALID_PARAM, "region 'r'");
    assert_int_equal(bt_region_check(region, 10, 0, &error), BT_OK);
    assert_int_equal(bt_region_check(region, 0, 10, &error), BT_OK);
    bt_region_unref(region);
    shm_remove(&o);
}

static void region_beyond_shm_object_is_refused(void **state)
{
    static const struct {
        uint64_t offset, bytes;
    } wrong[] = {{0, 101},
                 {100, 1},
                 {101, 1},
                 {UINT64_MAX, 1},
                 {99, UINT64_MAX / 2},
                 {UINT64_MAX, UINT64_MAX / 2}};
    shm_object_t o;

    (void)state;
    shm_make(&o, "bounds", 100);
    for (size_t i = 0; i < BT_ARRAY_LEN(wrong); i++) {
        assert_int_not_equal(add("r", o.key, wrong[i].offset, wrong[i].bytes),
                             BT_OK);
        assert_non_null(strstr(error.message, "region 'r'"));
    }
    is_refused(add("r", o.key, 99, 2), BT_ERR_INVALID_PARAM,
               "2 bytes from 99 on are more than the 100 of key");
    is_refused(add("r", o.key, 0, 0), BT_ERR_INVALID_PARAM, "byte_size is 0");
    assert_int_equal(bt_regions_count(regions), 0);
    assert_int_equal(add("r", o.key, 99, 1), BT_OK);
    shm_remove(&o);
}

static void
an_object_that_shrinks_is_an_error_and_is_not_made_longer(void **state)
{
    shm_object_t o;
    bt_region_t *region;
    char buffer[60];

    (void)state;
    shm_make(&o, "shrinks", 100);
    assert_int_equal(add("r", o.key, 40, 60), BT_OK);
    region = bt_regions_find(regions, "r");
    memset(buffer, 'a', sizeof(buffer));
    shm_resize(&o, 70);
    is_refused(bt_region_read(region, 0, buffer, 60, &error),
               BT_ERR_INVALID_PARAM,
               "'r' is shorter than when it was registered");
    is_refused(bt_region_write(region, 0, buffer, 60, &error),
               BT_ERR_INVALID_PARAM,
               "'r' is shorter than when it was registered");
    is_refused(bt_region_write(region, 31, buffer, 1, &error),
               BT_ERR_INVALID_PARAM, "shorter");
    assert_int_equal(shm_size(&o), 70);
    /* The rest of the region may be used. */
    assert_int_equal(bt_region_write(region, 0, buffer, 30, &error), BT_OK);
    assert_int_equal(bt_region_read(region, 29, buffer, 1, &error), BT_OK);
    shm_resize(&o, 0);
    is_refused(bt_region_read(region, 0, buffer, 1, &error),
               BT_ERR_INVALID_PARAM, "shorter");
    bt_region_unref(region);
    shm_remove(&o);
}

static void key_with_path_or_server_prefix_is_refused(void **state)
{
    static const char *const none[] = {"",
                                       "/",
                                       ".",
                                       "..",
                                       "/.",
                                       "/..",
                                       "a/b",
                                       "//a",
                                       "/a/",
                                       "/../x",
                                       "../x",
                                       "/dev/shm/x",
                                       "/proc/self/fd/0"};
    static const char *const ours[] = {"ucx_shm_posix_5", "/ucx_shm_posix_5",
                                       "/vader_segment.host.0.1.2",
                                       "/baton-link"};
    char longest[BT_REGION_KEY_BYTES + 1];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(none); i++) {
        is_refused(add("r", none[i], 0, 1), BT_ERR_INVALID_PARAM,
                   "'r': its key is a name");
    }
    memset(longest, 'k', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    is_refused(add("r", longest, 0, 1), BT_ERR_INVALID_PARAM,
               "its key is a name of at most 255 bytes");
    longest[sizeof(longest) - 2] = '\0';
    is_refused(add("r", longest, 0, 1), BT_ERR_INVALID_PARAM,
               "there is no such object");
    for (size_t i = 0; i < BT_ARRAY_LEN(ours); i++) {
        shm_object_t o = {.key = ""};

        /* The object exists, and is refused all the same. */
        snprintf(o.path, sizeof(o.path), "/dev/shm/%s-%d",
                 ours[i] + ((ours[i][0] == '/') ? 1 : 0), (int)getpid());
        o.fd = open(o.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(o.fd >= 0);
        shm_resize(&o, 10);
        is_refused(add("r", o.path + strlen("/dev/shm"), 0, 1),
                   BT_ERR_INVALID_PARAM, "the server's own shared memory");
        close(o.fd);
        unlink(o.path);
    }
    assert_int_equal(bt_regions_count(regions), 0);
}

static void links_pipes_and_folders_are_refused(void **state)
{
    shm_object_t o;
    shm_object_t other;
    const uint32_t fds = bt_count_open_fds();

    (void)state;
    shm_make(&o, "target", 100);
    shm_name(&other, "other");
    assert_int_equal(symlink(o.path, other.path), 0);
    is_refused(add("r", other.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it is a symbolic link");
    unlink(other.path);
    assert_int_equal(symlink("/etc/passwd", other.path), 0);
    is_refused(add("r", other.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it is a symbolic link");
    unlink(other.path);
    assert_int_equal(link(o.path, other.path), 0);
    is_refused(add("r", other.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it has more names than this");
    is_refused(add("r", o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it has more names than this");
    unlink(other.path);
    /* Nobody writes to it: opening it does not wait for who does. */
    assert_int_equal(mkfifo(other.path, 0600), 0);
    is_refused(add("r", other.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it is no shared memory object");
    unlink(other.path);
    assert_int_equal(mkdir(other.path, 0700), 0);
    is_refused(add("r", other.key, 0, 1), BT_ERR_INVALID_PARAM,
               "unable to open key");
    rmdir(other.path);
    assert_int_equal(add("r", o.key, 0, 1), BT_OK);
    bt_regions_unregister(regions, NULL);
    shm_remove(&o);
    is_refused(add("r", o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "there is no such object");
    assert_int_equal(bt_count_open_fds(), fds);
}

static void shm_object_of_other_user_is_refused(void **state)
{
    shm_object_t o;

    (void)state;
    if (geteuid() != 0) {
        skip(); /* nobody else can give a file away */
    }
    shm_make(&o, "foreign", 100);
    assert_int_equal(fchown(o.fd, 65534, (gid_t)-1), 0);
    is_refused(add("r", o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "it belongs to another user than the server's");
    assert_int_equal(fchown(o.fd, 0, (gid_t)-1), 0);
    assert_int_equal(add("r", o.key, 0, 1), BT_OK);
    shm_remove(&o);
}

static void region_names_are_limited_and_unique(void **state)
{
    char longest[BT_REGION_NAME_BYTES + 1];
    shm_object_t o;

    (void)state;
    shm_make(&o, "names", 100);
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    is_refused(add(longest, o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "from 1 to 127 bytes");
    is_refused(add("", o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "from 1 to 127 bytes");
    longest[sizeof(longest) - 2] = '\0';
    assert_int_equal(add(longest, o.key, 0, 1), BT_OK);
    is_refused(add(longest, o.key, 0, 1), BT_ERR_INVALID_PARAM,
               "is registered already");
    assert_int_equal(bt_regions_count(regions), 1);
    shm_remove(&o);
}

static void region_count_and_bytes_are_limited(void **state)
{
    shm_object_t o;
    char name[16];

    (void)state;
    shm_make(&o, "many", 100);
    for (unsigned i = 0; i < BT_REGIONS_MAX; i++) {
        snprintf(name, sizeof(name), "r%u", i);
        assert_int_equal(add(name, o.key, 0, 100), BT_OK);
    }
    is_refused(add("more", o.key, 0, 1), BT_ERR_BUSY,
               "'more': at most 256 regions and 1099511627776 bytes");
    bt_regions_unregister(regions, "r7");
    assert_int_equal(add("more", o.key, 0, 1), BT_OK);
    bt_regions_unregister(regions, NULL);
    /* 2^40 bytes that are not there: the file has holes. */
    shm_resize(&o, (off_t)1 << 41);
    is_refused(add("r", o.key, 0, (UINT64_C(1) << 40) + 1), BT_ERR_BUSY,
               "at most 256 regions");
    assert_int_equal(add("r", o.key, 0, (UINT64_C(1) << 40) - 1), BT_OK);
    is_refused(add("s", o.key, 0, 2), BT_ERR_BUSY, "at most 256 regions");
    assert_int_equal(add("s", o.key, 0, 1), BT_OK);
    bt_regions_unregister(regions, "r");
    assert_int_equal(add("t", o.key, 5, 1u << 20), BT_OK);
    shm_remove(&o);
}

static void regions_are_listed_in_order_and_unregistered(void **state)
{
    shm_object_t o;

    (void)state;
    shm_make(&o, "order", 100);
    assert_int_equal(add("a", o.key, 0, 100), BT_OK);
    assert_int_equal(add("b", o.key + 1, 8, 16), BT_OK);
    assert_int_equal(add("c", o.key, 1, 2), BT_OK);
    bt_regions_unregister(regions, "nobody");
    bt_regions_unregister(regions, "a");
    assert_int_equal(bt_regions_count(regions), 2);
    assert_string_equal(bt_regions_at(regions, 0)->name, "b");
    assert_string_equal(bt_regions_at(regions, 0)->key, o.key + 1);
    assert_int_equal(bt_regions_at(regions, 0)->offset, 8);
    assert_int_equal(bt_regions_at(regions, 0)->bytes, 16);
    assert_string_equal(bt_regions_at(regions, 1)->name, "c");
    assert_null(bt_regions_find(regions, "a"));
    bt_regions_unregister(regions, NULL);
    assert_int_equal(bt_regions_count(regions), 0);
    shm_remove(&o);
}

static void reference_outlives_unregistration(void **state)
{
    const uint32_t fds = bt_count_open_fds();
    bt_regions_t *mine;
    bt_region_t *region;
    shm_object_t o;
    char text[4] = "";

    (void)state;
    shm_make(&o, "refs", 100);
    shm_put(&o, 0, "abc", 3);
    assert_int_equal(bt_regions_create(0, &mine), BT_OK);
    assert_int_equal(bt_regions_register(mine, "r", o.key, 0, 100, &error),
                     BT_OK);
    region = bt_regions_find(mine, "r");
    bt_regions_unregister(mine, "r");
    assert_null(bt_regions_find(mine, "r"));
    /* The name may mean something else by now. */
    assert_int_equal(bt_regions_register(mine, "r", o.key, 50, 1, &error),
                     BT_OK);
    bt_regions_destroy(mine);
    shm_remove(&o);
    assert_int_equal(bt_region_read(region, 0, text, 3, &error), BT_OK);
    assert_string_equal(text, "abc");
    bt_region_unref(region);
    assert_int_equal(bt_count_open_fds(), fds);
}

static void held_bytes_are_limited(void **state)
{
    (void)state;
    assert_false(bt_regions_hold(regions, HELD_MOST + 1));
    assert_false(bt_regions_hold(regions, UINT64_MAX));
    assert_true(bt_regions_hold(regions, HELD_MOST - 1));
    assert_false(bt_regions_hold(regions, 2));
    assert_true(bt_regions_hold(regions, 1));
    assert_false(bt_regions_hold(regions, 1));
    bt_regions_give_back(regions, 10);
    assert_true(bt_regions_hold(regions, 10));
    bt_regions_give_back(regions, HELD_MOST);
}

static void failed_allocation_registers_nothing(void **state)
{
    const uint32_t fds = bt_count_open_fds();
    bt_regions_t *none = NULL;
    shm_object_t o;

    (void)state;
    bt_alloc_fail_at(1);
    assert_int_equal(bt_regions_create(1, &none), BT_ERR_NO_MEMORY);
    assert_null(none);
    shm_make(&o, "alloc", 100);
    bt_alloc_fail_at(1);
    is_refused(add("r", o.key, 0, 1), BT_ERR_NO_MEMORY, "out of memory");
    assert_int_equal(error.http_status, 503);
    bt_alloc_fail_at(0);
    assert_int_equal(bt_regions_count(regions), 0);
    shm_remove(&o);
    assert_int_equal(bt_count_open_fds(), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REGIONS_TEST(region_is_read_and_written_at_offsets),
        REGIONS_TEST(access_outside_region_is_refused),
        REGIONS_TEST(region_beyond_shm_object_is_refused),
        REGIONS_TEST(an_object_that_shrinks_is_an_error_and_is_not_made_longer),
        REGIONS_TEST(key_with_path_or_server_prefix_is_refused),
        REGIONS_TEST(links_pipes_and_folders_are_refused),
        REGIONS_TEST(shm_object_of_other_user_is_refused),
        REGIONS_TEST(region_names_are_limited_and_unique),
        REGIONS_TEST(region_count_and_bytes_are_limited),
        REGIONS_TEST(regions_are_listed_in_order_and_unregistered),
        REGIONS_TEST(reference_outlives_unregistration),
        REGIONS_TEST(held_bytes_are_limited),
        REGIONS_TEST(failed_allocation_registers_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
