/* SPDX-License-Identifier: Apache-2.0 */
/* What a cgroup leaves, from files as the kernel writes them (its
 * documentation, admin-guide/cgroup-v2.rst). */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/free_memory.h"
#include "worker/memory.h"

#define MIB (UINT64_C(1) << 20)

static const char *const names[] = {"memory.max", "memory.current",
                                    "memory.stat"};

static uint64_t left_with(const char *max, const char *current,
                          const char *stat)
{
    const char *const texts[] = {max, current, stat};
    char dir[] = "/tmp/baton-test-memory-XXXXXX";
    char path[64];
    uint64_t left;

    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        if (texts[i] == NULL) {
            continue;
        }
        file = fopen(path, "we");
        assert_non_null(file);
        assert_true(fputs(texts[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    left = bt_memory_cgroup_left(dir);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(dir), 0);
    return left;
}

static void a_cgroup_without_a_limit_leaves_everything(void **state)
{
    (void)state;
    assert_true(left_with("max\n", "1000\n", "") == UINT64_MAX);
    assert_true(left_with("5000\n", NULL, "") == UINT64_MAX);
    assert_true(bt_memory_cgroup_left("/nowhere") == UINT64_MAX);
}

static void the_pages_of_files_count_as_free(void **state)
{
    (void)state;
    assert_int_equal(left_with("5000\n", "1000\n", NULL), 4000);
    assert_int_equal(left_with("5000\n", "3000\n",
                               "anon 500\nfile 2500\nfile_mapped 900\n"
                               "inactive_anon 1\nactive_anon 2\n"
                               "inactive_file 700\nactive_file 1300\n"),
                     4000);
    assert_int_equal(left_with("5000\n", "6000\n", "inactive_file 700\n"), 0);
    assert_int_equal(left_with("5000\n", "600\n", "active_file 700\n"), 5000);
}

static uint64_t pool_of(uint64_t available, uint64_t model_bytes)
{
    const bt_memory_room_t room = {.available_bytes = available,
                                   .model_bytes = model_bytes};

    return bt_memory_pool(&room);
}

static void a_quarter_of_the_rest_is_the_pool(void **state)
{
    (void)state;
    assert_int_equal(pool_of(1000, 200), 200);
    assert_int_equal(pool_of(100, 200), 0);
    assert_int_equal(pool_of(UINT64_C(1) << 40, 0), 1 << 30);
    assert_true(bt_memory_available() > 0);
}

/* A host of 64 MiB with a model that takes 10 of it, and a device of 16 GiB
 * that it takes 4 of. */
static const bt_memory_room_t with_device = {
    .available_bytes = 64 * MIB,
    .model_bytes = 10 * MIB,
    .own_memory = true,
    .device_available_bytes = 16384 * MIB,
    .device_model_bytes = 4096 * MIB,
};

static void a_device_has_room_of_its_own(void **state)
{
    bt_memory_room_t room = with_device;
    char why[256] = "";

    (void)state;
    assert_int_equal(bt_memory_pool(&room), 3072 * MIB); /* 12 GiB / 4 */
    assert_int_equal(bt_memory_check(&room, 12288 * MIB, why, sizeof(why)),
                     BT_OK);
    assert_int_equal(bt_memory_check(&room, 12289 * MIB, why, sizeof(why)),
                     BT_ERR_NO_MEMORY);
    assert_string_equal(
        why, "not enough device memory: the model takes 4096 MiB and the KV "
             "pool 12289 MiB, 16384 MiB are available, 2 MiB are missing");
    room.device_later_bytes = 2048 * MIB;
    assert_int_equal(bt_memory_pool(&room), 2560 * MIB); /* 10 GiB / 4 */
    assert_int_equal(bt_memory_check(&room, 10240 * MIB, why, sizeof(why)),
                     BT_OK);
    assert_int_equal(bt_memory_check(&room, 10241 * MIB, why, sizeof(why)),
                     BT_ERR_NO_MEMORY);
    assert_string_equal(
        why,
        "not enough device memory: the model takes 4096 MiB, libraries and "
        "graphs 2048 MiB and the KV pool 10241 MiB, 16384 MiB are "
        "available, 2 MiB are missing");
    /* What it needs of the host must be there as well. */
    room.model_bytes = 65 * MIB;
    assert_int_equal(bt_memory_check(&room, MIB, why, sizeof(why)),
                     BT_ERR_NO_MEMORY);
    assert_string_equal(
        why, "not enough memory: the model takes 65 MiB and the KV pool 0 MiB, "
             "64 MiB are available, 2 MiB are missing");
}

static void without_a_device_the_host_holds_the_pool_too(void **state)
{
    const bt_memory_room_t room = {.available_bytes = 64 * MIB,
                                   .model_bytes = 10 * MIB};
    char why[256] = "";

    (void)state;
    assert_int_equal(bt_memory_check(&room, 54 * MIB, why, sizeof(why)), BT_OK);
    assert_string_equal(why, "");
    assert_int_equal(bt_memory_check(&room, 55 * MIB, why, sizeof(why)),
                     BT_ERR_NO_MEMORY);
    assert_string_equal(
        why,
        "not enough memory: the model takes 10 MiB and the KV pool 55 MiB, "
        "64 MiB are available, 2 MiB are missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_cgroup_without_a_limit_leaves_everything),
        BT_TEST(the_pages_of_files_count_as_free),
        BT_TEST(a_quarter_of_the_rest_is_the_pool),
        BT_TEST(a_device_has_room_of_its_own),
        BT_TEST(without_a_device_the_host_holds_the_pool_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
