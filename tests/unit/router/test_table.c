/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/core/table.h"

static const bt_hash128_t our_model = {.lo = 1, .hi = 0xabc};

static bt_msg_hello_t hello_of(const char *name, bt_role_t role)
{
    static const uint8_t kvt[] = {1, 2, 3};
    static uint64_t instance = 100;
    bt_msg_hello_t hello = {
        .protocol = BT_WIRE_PROTOCOL,
        .role = (uint32_t)role,
        .instance = instance++,
        .model = our_model,
        .profile = "cpu-tp1",
        .tokens_per_block = 16,
        .layout = {.lo = 5, .hi = 6},
        .context_tokens = 8192,
        .max_batch = 8,
        .n_blocks = 100,
        .kvt = kvt,
        .kvt_bytes = sizeof(kvt),
    };

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    return hello;
}

static bt_instance_t *join(bt_table_t *table, const bt_msg_hello_t *hello)
{
    char why[BT_TABLE_WHY_BYTES];
    bt_instance_t *worker = NULL;

    assert_int_equal(bt_table_check(table, hello, why), BT_OK);
    assert_int_equal(bt_table_add(table, hello, &worker), BT_OK);
    return worker;
}

static bt_instance_t *join_new(bt_table_t *table, const char *name,
                               bt_role_t role)
{
    const bt_msg_hello_t hello = hello_of(name, role);

    return join(table, &hello);
}

static bool take(bt_table_t *table, bt_pick_t *pick_p)
{
    const bool here = bt_table_pick(table, NULL, pick_p);

    if (here) {
        bt_table_take(table, pick_p);
    }
    return here;
}

static void
the_prefill_worker_with_fewest_outstanding_tokens_is_picked(void **state)
{
    bt_table_t table;
    bt_instance_t *p0, *p1, *d0;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    assert_false(take(&table, &pick));
    p0 = join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    p1 = join_new(&table, "prefill-1", BT_ROLE_PREFILL);
    assert_false(take(&table, &pick)); /* nobody decodes */
    assert_false(bt_table_ready(&table));
    d0 = join_new(&table, "decode-0", BT_ROLE_DECODE);
    assert_true(bt_table_ready(&table));

    p0->prefill_tokens = 500;
    p1->prefill_tokens = 499;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p1);
    assert_ptr_equal(pick.decode, d0);

    /* Equal: the one that was picked longest ago. */
    p0->prefill_tokens = 499;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p1);
    bt_table_fini(&table);
}

static void
the_emptiest_decode_worker_is_picked_by_seats_or_blocks(void **state)
{
    bt_table_t table;
    bt_instance_t *d0, *d1;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    d0 = join_new(&table, "decode-0", BT_ROLE_DECODE);
    d1 = join_new(&table, "decode-1", BT_ROLE_DECODE);

    d0->seats = 3; /* 3 of 8 */
    d1->seats = 2; /* 2 of 8, but 50 of 100 blocks */
    d1->blocks = 50;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.decode, d0);

    /* Another router filled d0, as d0 says itself. */
    d0->stats.active_requests = 7;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.decode, d1);
    bt_table_fini(&table);
}

static void
a_suspect_worker_is_taken_only_where_there_is_no_healthy_one(void **state)
{
    bt_table_t table;
    bt_instance_t *p0, *p1, *d0;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    p0 = join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    p1 = join_new(&table, "prefill-1", BT_ROLE_PREFILL);
    d0 = join_new(&table, "decode-0", BT_ROLE_DECODE);

    p0->state = BT_INSTANCE_SUSPECT;
    p1->prefill_tokens = 1000000;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p1);
    assert_true(bt_table_ready(&table));

    p1->state = BT_INSTANCE_DRAINING; /* never */
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    assert_false(bt_table_ready(&table));

    d0->state = BT_INSTANCE_DRAINING;
    assert_false(take(&table, &pick));
    bt_table_fini(&table);
}

static void
without_a_healthy_prefill_worker_a_local_one_does_both_phases(void **state)
{
    bt_msg_hello_t hello = hello_of("decode-0", BT_ROLE_DECODE);
    bt_table_t table;
    bt_instance_t *d0, *p0;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    hello.flags = BT_HELLO_LOCAL_PREFILL;
    d0 = join(&table, &hello);
    assert_true(bt_table_ready(&table));
    assert_true(take(&table, &pick));
    assert_null(pick.prefill);
    assert_ptr_equal(pick.decode, d0);

    p0 = join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);

    p0->state = BT_INSTANCE_SUSPECT;
    assert_true(take(&table, &pick));
    assert_null(pick.prefill);
    bt_table_fini(&table);
}

/* One prompt token here for four there, and none below 1,024. */
static void a_local_worker_takes_a_share_of_a_long_queue(void **state)
{
    bt_msg_hello_t hello = hello_of("decode-0", BT_ROLE_DECODE);
    bt_table_t table;
    bt_instance_t *d0, *p0, *p1;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    hello.flags = BT_HELLO_LOCAL_PREFILL;
    d0 = join(&table, &hello);
    p0 = join_new(&table, "prefill-0", BT_ROLE_PREFILL);

    p0->prefill_tokens = 1023;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    p0->prefill_tokens = 1024;
    assert_true(take(&table, &pick));
    assert_null(pick.prefill);
    assert_ptr_equal(pick.decode, d0);

    d0->prefill_tokens = 256;
    p0->prefill_tokens = 1024 + 4 * 256 - 1;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    p0->prefill_tokens++;
    assert_true(take(&table, &pick));
    assert_null(pick.prefill);

    /* Others are free, or the decode worker does not answer. */
    p1 = join_new(&table, "prefill-1", BT_ROLE_PREFILL);
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p1);
    p1->prefill_tokens = 1u << 20;
    d0->state = BT_INSTANCE_SUSPECT;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    bt_table_fini(&table);
}

static void a_queue_is_not_shared_with_others(void **state)
{
    bt_table_t table;
    bt_instance_t *p0;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    (void)join_new(&table, "decode-0", BT_ROLE_DECODE);
    p0 = join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    p0->prefill_tokens = 1u << 20;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p0);
    bt_table_fini(&table);
}

static void refused(const bt_table_t *table, const bt_msg_hello_t *hello,
                    const char *part)
{
    char why[BT_TABLE_WHY_BYTES] = "";

    assert_int_equal(bt_table_check(table, hello, why), BT_ERR_MISMATCH);
    assert_non_null(strstr(why, hello->name));
    if (strstr(why, part) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", part, why);
    }
}

static void a_worker_that_differs_is_refused_by_name(void **state)
{
    bt_table_t table;
    bt_msg_hello_t hello;

    (void)state;
    bt_table_init(&table, our_model);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.model.hi = 0x123;
    refused(&table, &hello,
            "decode-1 runs another model (hash 0000000000000123 not "
            "0000000000000abc)");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.protocol = 9;
    hello.protocol_min = 7;
    refused(&table, &hello,
            "decode-1 speaks protocol 7 to 9, this router speaks 2");
    hello.protocol = hello.protocol_min = 1;
    refused(&table, &hello, "decode-1 speaks protocol 1, this router speaks 2");
    hello = hello_of("router-7", BT_ROLE_ROUTER);
    refused(&table, &hello, "no worker");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.max_batch = 0;
    refused(&table, &hello, "0 seats");

    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    snprintf(hello.profile, sizeof(hello.profile), "cpu-tp2");
    refused(&table, &hello,
            "numeric profile cpu-tp2, but prefill-0 has cpu-tp1");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.kv_type = 2;
    refused(&table, &hello, "--kv-type");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.tokens_per_block = 32;
    refused(&table, &hello, "32 tokens per block, but prefill-0 has 16");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.layout.lo++;
    refused(&table, &hello, "KV block layout");
    bt_table_fini(&table);
}

/* One that still speaks our protocol besides its newer ones. */
static void a_newer_worker_that_speaks_our_protocol_too_may_join(void **state)
{
    bt_msg_hello_t hello = hello_of("decode-1", BT_ROLE_DECODE);
    bt_table_t table;

    (void)state;
    bt_table_init(&table, our_model);
    hello.protocol = 9;
    hello.protocol_min = BT_WIRE_PROTOCOL;
    (void)join(&table, &hello);
    bt_table_fini(&table);
}

static void the_smallest_context_of_the_workers_counts(void **state)
{
    bt_msg_hello_t hello = hello_of("decode-0", BT_ROLE_DECODE);
    bt_table_t table;

    (void)state;
    bt_table_init(&table, our_model);
    assert_int_equal(bt_table_context_tokens(&table), UINT32_MAX);
    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    hello.context_tokens = 4096;
    (void)join(&table, &hello);
    /* 100 blocks of 16 tokens hold less. */
    assert_int_equal(bt_table_context_tokens(&table), 1600);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.context_tokens = 512;
    (void)join(&table, &hello);
    assert_int_equal(bt_table_context_tokens(&table), 512);
    bt_table_fini(&table);
}

static void no_more_fits_than_the_blocks_of_a_decode_worker(void **state)
{
    bt_msg_hello_t hello = hello_of("prefill-0", BT_ROLE_PREFILL);
    bt_table_t table;

    (void)state;
    bt_table_init(&table, our_model);
    hello.n_blocks = 10; /* holds prompts only */
    (void)join(&table, &hello);
    assert_int_equal(bt_table_context_tokens(&table), 8192);
    hello = hello_of("decode-0", BT_ROLE_DECODE);
    hello.n_blocks = 512;
    (void)join(&table, &hello);
    assert_int_equal(bt_table_context_tokens(&table), 8192);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.n_blocks = UINT32_MAX; /* times 16 is more than 32 bits */
    (void)join(&table, &hello);
    assert_int_equal(bt_table_context_tokens(&table), 8192);
    hello = hello_of("decode-2", BT_ROLE_DECODE);
    hello.n_blocks = 511;
    (void)join(&table, &hello);
    assert_int_equal(bt_table_context_tokens(&table), 8176);
    bt_table_fini(&table);
}

static void a_failed_allocation_adds_nobody(void **state)
{
    const bt_msg_hello_t hello = hello_of("decode-0", BT_ROLE_DECODE);
    bt_instance_t *worker = NULL;
    bt_table_t table;

    (void)state;
    bt_table_init(&table, our_model);
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_table_add(&table, &hello, &worker),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(worker);
    }
    assert_null(bt_table_find(&table, hello.instance));
    bt_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(the_prefill_worker_with_fewest_outstanding_tokens_is_picked),
        BT_TEST(the_emptiest_decode_worker_is_picked_by_seats_or_blocks),
        BT_TEST(a_suspect_worker_is_taken_only_where_there_is_no_healthy_one),
        BT_TEST(without_a_healthy_prefill_worker_a_local_one_does_both_phases),
        BT_TEST(a_local_worker_takes_a_share_of_a_long_queue),
        BT_TEST(a_queue_is_not_shared_with_others),
        BT_TEST(a_worker_that_differs_is_refused_by_name),
        BT_TEST(a_newer_worker_that_speaks_our_protocol_too_may_join),
        BT_TEST(the_smallest_context_of_the_workers_counts),
        BT_TEST(no_more_fits_than_the_blocks_of_a_decode_worker),
        BT_TEST(a_failed_allocation_adds_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
