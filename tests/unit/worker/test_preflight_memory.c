/* SPDX-License-Identifier: Apache-2.0 */
/* What a model and its pool may take of the memory that is there. */
#include "tests/support/testsupport.h"

#include "worker/preflight.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t pool_of(uint64_t available, uint64_t model_bytes)
{
    const bt_memory_budget_t room = {.available_bytes = available,
                                     .model_bytes = model_bytes};

    return bt_memory_pool(&room);
}

static void default_kv_pool_is_a_quarter_of_free_memory(void **state)
{
    (void)state;
    assert_int_equal(pool_of(1000, 200), 200);
    assert_int_equal(pool_of(100, 200), 0);
    assert_int_equal(pool_of(UINT64_C(1) << 40, 0), 1 << 30);
}

/* A host of 64 MiB with a model that takes 10 of it, and a device of 16 GiB
 * that it takes 4 of. */
static const bt_memory_budget_t with_device = {
    .available_bytes = 64 * MIB,
    .model_bytes = 10 * MIB,
    .own_memory = true,
    .device_available_bytes = 16384 * MIB,
    .device_model_bytes = 4096 * MIB,
};

static void kv_pool_of_a_device_is_sized_by_device_memory(void **state)
{
    bt_memory_budget_t room = with_device;
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

static void kv_pool_without_a_device_is_in_host_memory(void **state)
{
    const bt_memory_budget_t room = {.available_bytes = 64 * MIB,
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

static void memory_error_names_the_cgroup_limit(void **state)
{
    const bt_memory_budget_t room = {.available_bytes = 64 * MIB,
                                     .limit_bytes = 900 * MIB,
                                     .limit_by = "/sys/fs/cgroup/memory.max",
                                     .model_bytes = 10 * MIB};
    char why[256] = "";

    (void)state;
    assert_int_equal(bt_memory_check(&room, 55 * MIB, why, sizeof(why)),
                     BT_ERR_NO_MEMORY);
    assert_string_equal(
        why,
        "not enough memory: the model takes 10 MiB and the KV pool 55 MiB, "
        "64 MiB are available, 2 MiB are missing; the cgroup has 900 MiB "
        "(/sys/fs/cgroup/memory.max)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(default_kv_pool_is_a_quarter_of_free_memory),
        BT_TEST(kv_pool_of_a_device_is_sized_by_device_memory),
        BT_TEST(kv_pool_without_a_device_is_in_host_memory),
        BT_TEST(memory_error_names_the_cgroup_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
