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
    static const bt_wire_rank_t rank = {.kvt = kvt, .kvt_bytes = sizeof(kvt)};
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
        .ranks = &rank,
        .n_ranks = 1,
        .tp = 1,
        .pp = 1,
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

/* Two tokens are asked for. */
static bool take(bt_table_t *table, bt_pick_t *pick_p)
{
    const bt_sched_request_t request = {.n_tokens = 1, .max_new = 2};
    const bool here = bt_table_pick(table, &request, pick_p);

    if (here) {
        bt_sched_take(&pick_p->placement, &table->n_taken);
    }
    return here;
}

static void hello_sets_the_tasks_of_a_worker(void **state)
{
    bt_msg_hello_t hello = hello_of("decode-0", BT_ROLE_DECODE);
    bt_table_t table;
    bt_instance_t *p, *d;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    assert_false(take(&table, &pick));
    p = join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(p->sched.roles, BT_SCHED_PREFILL);
    assert_int_equal(p->sched.id, p->hello.instance);
    assert_false(take(&table, &pick)); /* nobody decodes */
    assert_false(bt_table_ready(&table));
    d = join(&table, &hello);
    assert_int_equal(d->sched.roles, BT_SCHED_DECODE);
    assert_int_equal(d->sched.max_seats, 8);
    assert_int_equal(d->sched.n_blocks, 100);
    assert_true(bt_table_ready(&table));
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.prefill, p);
    assert_ptr_equal(pick.decode, d);
    assert_int_equal(p->sched.last_taken, 1);
    assert_int_equal(d->sched.last_taken, 1);

    p->sched.health = BT_SCHED_SUSPECT;
    assert_false(bt_table_ready(&table));
    bt_table_remove(&table, p);
    assert_false(take(&table, &pick)); /* no candidate any more */

    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.flags = BT_HELLO_LOCAL_PREFILL;
    d = join(&table, &hello);
    assert_int_equal(d->sched.roles, BT_SCHED_DECODE | BT_SCHED_LOCAL);
    assert_true(take(&table, &pick));
    assert_null(pick.prefill);
    assert_ptr_equal(pick.decode, d);
    bt_table_fini(&table);
}

/* Another router filled d0, as d0 says itself. */
static void stats_update_the_worker(void **state)
{
    const bt_msg_stats_t full = {
        .active_requests = 7, .blocks_used = 30, .waiting_requests = 2};
    bt_table_t table;
    bt_instance_t *d0, *d1;
    bt_pick_t pick;

    (void)state;
    bt_table_init(&table, our_model);
    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    d0 = join_new(&table, "decode-0", BT_ROLE_DECODE);
    d1 = join_new(&table, "decode-1", BT_ROLE_DECODE);
    d1->sched.seats = 6;
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.decode, d0);
    bt_table_report(d0, &full);
    assert_true(d0->has_stats);
    assert_int_equal(d0->stats.active_requests, 7);
    assert_int_equal(d0->sched.reported_blocks, 30);
    assert_int_equal(d0->sched.reported_waiting, 2);
    assert_true(take(&table, &pick));
    assert_ptr_equal(pick.decode, d1);
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

static void differing_worker_is_refused_by_name(void **state)
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
            "decode-1 speaks protocol 7 to 9, this router speaks 4");
    hello.protocol = hello.protocol_min = 1;
    refused(&table, &hello, "decode-1 speaks protocol 1, this router speaks 4");
    hello = hello_of("router-7", BT_ROLE_ROUTER);
    refused(&table, &hello, "no worker");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.max_batch = 0;
    refused(&table, &hello, "0 seats");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.sleep_order = UINT64_MAX / 2 + 1;
    refused(&table, &hello, "no larger number would be left");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.weights.update = UINT64_MAX;
    hello.base = hello.model;
    refused(&table, &hello, "no larger number would be left");

    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    snprintf(hello.profile, sizeof(hello.profile), "cpu-tp2");
    refused(&table, &hello,
            "numeric profile cpu-tp2, but prefill-0 has cpu-tp1 "
            "(--allow-mixed-numerics)");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.kv_type = 2;
    refused(&table, &hello, "--kv-dtype");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.tokens_per_block = 32;
    refused(&table, &hello, "32 tokens per block, but prefill-0 has 16");
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    hello.layout.lo++;
    refused(&table, &hello, "KV block layout");
    bt_table_fini(&table);
}

/* But for what makes another model of it. */
static void profiles_mix_where_allowed(void **state)
{
    bt_table_t table;
    bt_msg_hello_t hello;

    (void)state;
    bt_table_init(&table, our_model);
    table.mixes_profiles = true;
    (void)join_new(&table, "prefill-0", BT_ROLE_PREFILL);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    snprintf(hello.profile, sizeof(hello.profile), "gpu-tensor/sum2");
    (void)join(&table, &hello);
    hello = hello_of("decode-2", BT_ROLE_DECODE);
    snprintf(hello.profile, sizeof(hello.profile), "cpu-tp1 for long ones");
    refused(&table, &hello,
            "numeric profile cpu-tp1 for long ones, but prefill-0 has cpu-tp1");
    hello = hello_of("decode-2", BT_ROLE_DECODE);
    hello.kv_type = 2;
    refused(&table, &hello, "--kv-dtype");
    bt_table_fini(&table);

    bt_table_init(&table, our_model);
    table.mixes_profiles = true;
    hello = hello_of("prefill-0", BT_ROLE_PREFILL);
    snprintf(hello.profile, sizeof(hello.profile), "cpu-tp1 for long ones");
    (void)join(&table, &hello);
    hello = hello_of("decode-1", BT_ROLE_DECODE);
    snprintf(hello.profile, sizeof(hello.profile), "gpu-tensor for long ones");
    (void)join(&table, &hello);
    bt_table_fini(&table);
}

/* Of a list of ranks its peers must make something, whoever came first. */
/* One that still speaks our protocol besides its newer ones. */
static void newer_worker_with_common_protocol_may_join(void **state)
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

static void context_is_the_smallest_of_all_workers(void **state)
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

static void context_is_limited_by_decode_workers_blocks(void **state)
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

static void failed_allocation_adds_no_worker(void **state)
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
        BT_TEST(hello_sets_the_tasks_of_a_worker),
        BT_TEST(stats_update_the_worker),
        BT_TEST(differing_worker_is_refused_by_name),
        BT_TEST(profiles_mix_where_allowed),
        BT_TEST(newer_worker_with_common_protocol_may_join),
        BT_TEST(context_is_the_smallest_of_all_workers),
        BT_TEST(context_is_limited_by_decode_workers_blocks),
        BT_TEST(failed_allocation_adds_no_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
