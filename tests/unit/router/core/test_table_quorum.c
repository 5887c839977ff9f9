/* SPDX-License-Identifier: Apache-2.0 */
/* Which kind of workers is the right one, by hand. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "router/core/table.h"

#define S 1000000u

static const bt_hash128_t our_model = {.lo = 1, .hi = 2};
static const bt_wire_rank_t rank = {
    .block_bytes = 64, .kvt = (const uint8_t *)"x", .kvt_bytes = 1};
static bt_profile_quorum_t quorum;
static bt_table_t table;

static bt_msg_hello_t hello_of(uint64_t instance, bt_role_t role,
                               uint32_t tokens_per_block)
{
    bt_msg_hello_t hello = {.protocol = BT_WIRE_PROTOCOL,
                            .protocol_min = BT_WIRE_PROTOCOL_MIN,
                            .role = role,
                            .instance = instance,
                            .model = our_model,
                            .profile = "cpu",
                            .tokens_per_block = tokens_per_block,
                            .context_tokens = 64,
                            .max_batch = 4,
                            .n_blocks = 16,
                            .ranks = &rank,
                            .n_ranks = 1,
                            .tp = 1,
                            .pp = 1};

    snprintf(hello.name, sizeof(hello.name), "w%u", (unsigned)instance);
    return hello;
}

static void start_with(bt_msg_hello_t hello)
{
    bt_instance_t *worker = NULL;

    memset(&quorum, 0, sizeof(quorum));
    bt_table_init(&table, our_model);
    assert_int_equal(bt_table_add(&table, &hello, &worker), BT_OK);
}

static bool come(uint64_t instance, bt_role_t role, uint32_t tokens_per_block,
                 uint64_t now_us)
{
    const bt_msg_hello_t hello = hello_of(instance, role, tokens_per_block);

    return bt_profile_quorum_refused(&quorum, &table, &hello, now_us);
}

static void workers_that_can_serve_replace_a_wrong_first_one(void **state)
{
    (void)state;
    start_with(hello_of(1, BT_ROLE_PREFILL, 32));
    assert_false(come(2, BT_ROLE_DECODE, 16, 1 * S));
    assert_false(come(2, BT_ROLE_DECODE, 16, 60 * S)); /* alone it is nothing */
    assert_false(come(3, BT_ROLE_PREFILL, 64, 60 * S)); /* of another kind */
    assert_false(come(4, BT_ROLE_PREFILL, 16, 61 * S));
    assert_false(come(2, BT_ROLE_DECODE, 16, 66 * S));
    assert_false(come(4, BT_ROLE_PREFILL, 16, 71 * S - 1));
    assert_true(come(2, BT_ROLE_DECODE, 16, 71 * S));
    bt_table_fini(&table);
}

static void refused_worker_not_seen_again_is_forgotten(void **state)
{
    (void)state;
    start_with(hello_of(1, BT_ROLE_PREFILL, 32));
    assert_false(come(2, BT_ROLE_DECODE, 16, 1 * S));
    assert_false(come(4, BT_ROLE_PREFILL, 16, 2 * S));
    assert_false(come(2, BT_ROLE_DECODE, 16, 20 * S)); /* 4 is gone */
    bt_table_fini(&table);
}

static void serving_workers_are_not_replaced(void **state)
{
    const bt_msg_hello_t second = hello_of(5, BT_ROLE_DECODE, 32);
    bt_msg_hello_t first = hello_of(1, BT_ROLE_PREFILL, 32);
    bt_instance_t *worker = NULL;

    (void)state;
    start_with(first);
    assert_int_equal(bt_table_add(&table, &second, &worker), BT_OK);
    for (uint32_t i = 1; i < 30; i++) {
        assert_false(come(2, BT_ROLE_DECODE, 16, i * S));
        assert_false(come(4, BT_ROLE_PREFILL, 16, i * S));
    }
    /* One is started again, which takes less than the wait. */
    bt_table_remove(&table, worker);
    assert_false(come(2, BT_ROLE_DECODE, 16, 30 * S));
    assert_false(come(4, BT_ROLE_PREFILL, 16, 39 * S));
    assert_int_equal(bt_table_add(&table, &second, &worker), BT_OK);
    assert_false(come(2, BT_ROLE_DECODE, 16, 39 * S));
    bt_table_remove(&table, worker);
    assert_false(come(4, BT_ROLE_PREFILL, 16, 41 * S));
    assert_false(come(2, BT_ROLE_DECODE, 16, 50 * S));
    assert_true(come(4, BT_ROLE_PREFILL, 16, 51 * S));
    bt_table_fini(&table);
}

/* Another model, other protocols: no cluster of ours in any number. */
static void workers_of_other_models_do_not_count(void **state)
{
    bt_msg_hello_t p = hello_of(2, BT_ROLE_PREFILL, 16);
    bt_msg_hello_t d = hello_of(3, BT_ROLE_DECODE, 16);

    (void)state;
    start_with(hello_of(1, BT_ROLE_PREFILL, 32));
    p.model.lo = d.model.lo = 9;
    for (uint32_t i = 1; i < 30; i++) {
        assert_false(bt_profile_quorum_refused(&quorum, &table, &p, i * S));
        assert_false(bt_profile_quorum_refused(&quorum, &table, &d, i * S));
    }
    assert_int_equal(quorum.n, 0);
    /* More than there is room for: the latest are known. */
    for (uint32_t i = 0; i < 3 * BT_QUORUM_MAX_REFUSED; i++) {
        assert_false(come(100 + i, BT_ROLE_DECODE, 16, 40 * S + i));
    }
    assert_int_equal(quorum.n, BT_QUORUM_MAX_REFUSED);
    bt_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(workers_that_can_serve_replace_a_wrong_first_one),
        BT_TEST(refused_worker_not_seen_again_is_forgotten),
        BT_TEST(serving_workers_are_not_replaced),
        BT_TEST(workers_of_other_models_do_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
