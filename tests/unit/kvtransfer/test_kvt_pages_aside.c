/* SPDX-License-Identifier: Apache-2.0 */
/* Who verifies keeps off the processors on which senders copy. */
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/each_kind.h"

static cpu_set_t set_of(const int *cpus, size_t n)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (size_t i = 0; i < n; i++) {
        CPU_SET((size_t)cpus[i], &set);
    }
    return set;
}

#define SET(...)                       \
    set_of((const int[]){__VA_ARGS__}, \
           sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static bool is_same(cpu_set_t a, cpu_set_t b)
{
    return CPU_EQUAL(&a, &b);
}

static cpu_set_t allowed_now(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return set;
}

static void verifying_thread_moves_to_cores_without_writers(void **state)
{
    bt_kvt_writer_t writers[2];
    const cpu_set_t allowed = SET(1, 2, 5), all_taken = SET(2, 5),
                    elsewhere = SET(1, 7);
    bt_kvt_aside_t aside;
    cpu_set_t set;

    (void)state;
    bt_kvt_aside_init(&aside);
    assert_false(bt_kvt_aside_choose(&aside, &allowed, &set)); /* no writer */
    for (uint32_t i = 0; i < 2; i++) {
        bt_kvt_writer_init(&writers[i]);
        bt_list_push_back(&aside.writers, &writers[i].link);
    }
    writers[0].cpu = 3; /* of those, from 1 on: processor 2 */
    writers[1].cpu = 1;
    assert_true(bt_kvt_aside_choose(&aside, &allowed, &set));
    assert_true(is_same(set, SET(1, 5)));
    writers[1].cpu = 6;
    assert_true(bt_kvt_aside_choose(&aside, &allowed, &set));
    assert_true(is_same(set, SET(1)));
    assert_false(bt_kvt_aside_choose(&aside, &all_taken, &set));
    assert_false(bt_kvt_aside_choose(&aside, &elsewhere, &set));
}

/* On a machine, or in a cpuset, of one processor there is no elsewhere. */
static void verifying_thread_returns_to_its_cores(void **state)
{
    const cpu_set_t before = allowed_now();
    bt_kvt_writer_t writer, other;
    bt_kvt_aside_t aside;
    cpu_set_t set;

    (void)state;
    bt_kvt_aside_init(&aside);
    bt_kvt_writer_init(&writer);
    bt_kvt_writer_init(&other);
    for (int round = 0; round < 3; round++) {
        const uint32_t here = bt_kvt_aside_here();

        assert_int_not_equal(here, 0);
        bt_kvt_aside_note(&aside, &writer, here);
        set = allowed_now();
        if (CPU_COUNT(&before) > 1) {
            assert_false(CPU_ISSET(here - 1, &set));
            assert_int_equal(CPU_COUNT(&set), CPU_COUNT(&before) - 1);
            assert_int_not_equal(bt_kvt_aside_here(), here);
        } else {
            assert_true(is_same(set, before));
        }
        /* One on each: then anywhere is as good. */
        if (CPU_COUNT(&before) == 2) {
            bt_kvt_aside_note(&aside, &other, bt_kvt_aside_here());
            assert_true(is_same(allowed_now(), before));
            bt_kvt_aside_note(&aside, &other, 0);
        }
        bt_kvt_aside_note(&aside, &writer, 0);
        bt_kvt_aside_note(&aside, &writer, 0);
        assert_true(is_same(allowed_now(), before));
        assert_true(bt_list_empty(&aside.writers));
    }
}

static void invalid_core_numbers_change_nothing(void **state)
{
    static const uint32_t cpus[] = {0, CPU_SETSIZE + 1, UINT32_MAX};
    const cpu_set_t before = allowed_now();
    bt_kvt_writer_t writer;
    bt_kvt_aside_t aside;

    (void)state;
    bt_kvt_aside_init(&aside);
    bt_kvt_writer_init(&writer);
    for (size_t i = 0; i < BT_ARRAY_LEN(cpus); i++) {
        bt_kvt_aside_note(&aside, &writer, cpus[i]);
        assert_true(bt_list_empty(&aside.writers));
    }
    assert_true(is_same(allowed_now(), before));
}

/* Sender and receiver are one thread here, so it is in its own way as soon as
 * the sender has said where it copies. */
static void it_lasts_as_long_as_the_copying(const pair_kind_t *kind)
{
    const bool direct = strcmp(kind->peer_path, "shm") == 0;
    const cpu_set_t before = allowed_now();
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 32 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, 16 * MIB, 0, 1);
    prep(&pair, t);
    post(t, 0, 8 * MIB);
    if (direct) {
        PAIR_UNTIL(&pair, t->region->writer.cpu != 0);
        assert_true((CPU_COUNT(&before) == 1) ||
                    !is_same(allowed_now(), before));
    }
    post(t, 8 * MIB, 8 * MIB);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    assert_true(is_same(allowed_now(), before));

    /* One that is given up in the middle. */
    t = pair_region(&pair, 2, PAIR_SENDER, 0, 16 * MIB, 0, 1);
    prep(&pair, t);
    post(t, 0, 8 * MIB);
    if (direct) {
        PAIR_UNTIL(&pair, t->region->writer.cpu != 0);
    }
    bt_kvt_cancel(t->xfer);
    PAIR_UNTIL(&pair, over(t));
    assert_true(is_same(allowed_now(), before));
    pair_close(&pair);
    assert_true(is_same(allowed_now(), before));
}
EACH_KIND(it_lasts_as_long_as_the_copying)

static void records_carry_the_core_of_the_sender(void **state)
{
    static const bt_kvt_record_t record = {8, 16, 0xabcdef};
    const uint8_t key[BT_KEY_BYTES] = {1};
    bt_kvt_msg_t msg = {.type = BT_KVT_MSG_PART,
                        .direct = true,
                        .from = 11,
                        .nonce = 5,
                        .lease = {.id = 77, .generation = 1, .grant = 3},
                        .n_records = 1,
                        .records = &record};
    bt_kvt_msg_t again;
    uint8_t buf[256];
    size_t n = 0, n_without = 0;

    (void)state;
    assert_int_equal(bt_kvt_msg_encode(&msg, key, buf, sizeof(buf), &n_without),
                     BT_OK);
    assert_int_equal(bt_kvt_msg_decode(buf, n_without, &again), BT_OK);
    assert_int_equal(again.cpu, 0);
    msg.cpu = 258;
    assert_int_equal(bt_kvt_msg_encode(&msg, key, buf, sizeof(buf), &n), BT_OK);
    assert_int_equal(n, n_without + 4);
    assert_int_equal(bt_kvt_msg_decode(buf, n, &again), BT_OK);
    assert_int_equal(again.cpu, 258);
    assert_int_equal(bt_kvt_record_get(&again, 0).hash, 0xabcdef);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(verifying_thread_moves_to_cores_without_writers),
        BT_TEST(verifying_thread_returns_to_its_cores),
        BT_TEST(invalid_core_numbers_change_nothing),
        BT_TEST(records_carry_the_core_of_the_sender),
        TEST_EACH(it_lasts_as_long_as_the_copying),
    };

    bt_log_init("test_kvt_pages_aside", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
