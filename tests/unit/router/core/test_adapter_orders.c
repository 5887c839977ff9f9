/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters that workers load on order: who is told, and who gets requests that
 * have one. */
#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/unit/router/core/core_fixture.h"

#define FLAGS (BT_HELLO_ADAPTERS | BT_HELLO_ADAPTER_UPDATES)

static const bt_hash128_t sql = {7, 8};
static char why[256];

/* Orders of an adapter to a worker since the last call. */
static uint32_t orders_to(world_t *w, const bt_instance_t *to, uint32_t loads)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        n +=
            ((w->sent[i].to == to) && (w->sent[i].msg.type == BT_MSG_ADAPTER) &&
             (w->sent[i].msg.u.adapter.loads == loads))
                ? 1
                : 0;
    }
    return n;
}

static void says(world_t *w, bt_instance_t *from, bt_status_t status,
                 const char *text)
{
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_READY};

    msg.u.adapter_ready.adapter = sql;
    msg.u.adapter_ready.status = status;
    snprintf(msg.u.adapter_ready.text, sizeof(msg.u.adapter_ready.text), "%s",
             text);
    assert_int_equal(bt_core_message(w->core, from, &msg, w->now), BT_OK);
}

static bt_status_t look(const world_t *w)
{
    return bt_core_adapter_look(w->core, sql, why, sizeof(why));
}

static bool is_able(const bt_instance_t *worker)
{
    return (worker->sched.roles & BT_SCHED_ADAPTERS) != 0;
}

static void adapter_is_there_when_all_workers_have_loaded_it(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *late;

    (void)state;
    start(w, 8);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, FLAGS);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    assert_int_equal(orders_to(w, p, 1), 1);
    assert_int_equal(orders_to(w, d, 1), 1);
    assert_int_equal(look(w), BT_ERR_BUSY);
    says(w, p, BT_OK, "");
    assert_int_equal(look(w), BT_ERR_BUSY);
    says(w, d, BT_OK, "");
    assert_int_equal(look(w), BT_OK);
    bt_core_adapter_offer(w->core, sql);
    assert_true(is_able(p) && is_able(d));
    /* One that joins later is told, and waits until it has it. */
    late = join_flags(w, "decode-1", BT_ROLE_DECODE, FLAGS);
    assert_int_equal(orders_to(w, late, 1), 1);
    assert_false(is_able(late));
    says(w, late, BT_OK, "");
    assert_true(is_able(late));
    /* One that cannot load it serves the model alone. */
    bt_test_expect_log_lines(1);
    says(w, late, BT_ERR_NO_MEMORY, "it takes 7 KiB");
    assert_false(is_able(late));
    bt_core_adapter_drop(w->core, sql);
    assert_int_equal(orders_to(w, p, 0), 1);
    assert_true(is_able(late));
    says(w, late, BT_OK, ""); /* of one that is gone */
    bt_core_destroy(w->core);
}

static void worker_that_cannot_load_an_adapter_is_named(void **state)
{
    world_t *w = &world;
    bt_instance_t *p;

    (void)state;
    start(w, 8);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    assert_int_equal(look(w), BT_ERR_PEER_LOST);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    says(w, p, BT_ERR_MISMATCH, "another model");
    assert_int_equal(look(w), BT_ERR_MISMATCH);
    assert_string_equal(why, "worker prefill-0: another model");
    says(w, p, BT_OK, "");
    (void)join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_ADAPTERS);
    assert_int_equal(look(w), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "worker decode-0 loads no adapters"));
    bt_core_destroy(w->core);
}

static void refusal_of_before_is_no_answer_to_the_next_order(void **state)
{
    world_t *w = &world;
    bt_instance_t *p;

    (void)state;
    start(w, 8);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    says(w, p, BT_OK, "");
    bt_core_adapter_offer(w->core, sql);
    bt_test_expect_log_lines(1);
    says(w, p, BT_ERR_NO_MEMORY, "it takes 7 KiB");
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql2", "/l/sql"),
                     BT_OK);
    assert_int_equal(orders_to(w, p, 1), 2);
    assert_int_equal(look(w), BT_ERR_BUSY);
    assert_false(is_able(p));
    says(w, p, BT_OK, "");
    assert_int_equal(look(w), BT_OK);
    assert_true(is_able(p));
    bt_core_destroy(w->core);
}

static void adapter_that_was_dropped_is_not_found(void **state)
{
    world_t *w = &world;

    (void)state;
    start(w, 8);
    (void)join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    assert_int_equal(look(w), BT_ERR_NOT_FOUND);
    assert_string_equal(why, "it was dropped meanwhile");
    bt_core_adapter_offer(w->core, sql);
    bt_core_adapter_drop(w->core, sql);
    bt_core_destroy(w->core);
}

static void adapter_is_dropped_when_its_last_request_ends(void **state)
{
    world_t *w = &world;
    bt_core_adapter_t *held[3];
    bt_instance_t *p, *late;

    (void)state;
    start(w, 8);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    assert_null(bt_core_adapter_ref(w->core, sql));
    bt_core_adapter_unref(w->core, NULL);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    says(w, p, BT_OK, "");
    bt_core_adapter_offer(w->core, sql);
    held[0] = bt_core_adapter_ref(w->core, sql);
    held[1] = bt_core_adapter_ref(w->core, sql);
    bt_core_adapter_drop(w->core, sql);
    bt_core_adapter_unref(w->core, held[0]);
    assert_int_equal(orders_to(w, p, 0), 0);
    /* A request may run again at a worker that comes later. */
    late = join_flags(w, "decode-0", BT_ROLE_DECODE, FLAGS);
    assert_int_equal(orders_to(w, late, 1), 1);
    assert_false(is_able(late));
    says(w, late, BT_OK, "");
    assert_true(is_able(late));
    bt_core_adapter_unref(w->core, held[1]);
    assert_int_equal(orders_to(w, p, 0), 1);
    assert_int_equal(orders_to(w, late, 0), 1);
    assert_int_equal(look(w), BT_ERR_NOT_FOUND);
    /* One that is loaded again meanwhile stays. */
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    held[2] = bt_core_adapter_ref(w->core, sql);
    bt_core_adapter_drop(w->core, sql);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "chat", "/l/chat"),
                     BT_OK);
    bt_core_adapter_unref(w->core, held[2]);
    assert_int_equal(orders_to(w, p, 0), 1);
    bt_core_destroy(w->core);
}

/* One that cannot load what only a last request has serves the others. */
static void dropped_adapter_that_a_worker_refuses_blocks_no_others(void **state)
{
    world_t *w = &world;
    bt_core_adapter_t *held;
    bt_instance_t *p, *late;

    (void)state;
    start(w, 8);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/sql"),
                     BT_OK);
    says(w, p, BT_OK, "");
    bt_core_adapter_offer(w->core, sql);
    held = bt_core_adapter_ref(w->core, sql);
    late = join_flags(w, "decode-0", BT_ROLE_DECODE, FLAGS);
    bt_test_expect_log_lines(1);
    says(w, late, BT_ERR_NOT_FOUND, "no such file");
    assert_false(is_able(late));
    bt_core_adapter_drop(w->core, sql);
    assert_true(is_able(late));
    bt_core_adapter_unref(w->core, held);
    bt_core_destroy(w->core);
}

static void workers_that_join_later_read_the_newest_path(void **state)
{
    world_t *w = &world;
    bt_instance_t *late;

    (void)state;
    start(w, 8);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "sql", "/l/v1"), BT_OK);
    assert_int_equal(bt_core_adapter_load(w->core, sql, "chat", "/l/v2"),
                     BT_OK);
    late = join_flags(w, "prefill-0", BT_ROLE_PREFILL, FLAGS);
    assert_int_equal(orders_to(w, late, 1), 1);
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if (w->sent[i].msg.type == BT_MSG_ADAPTER) {
            assert_string_equal(w->sent[i].msg.u.adapter.path, "/l/v2");
        }
    }
    bt_core_destroy(w->core);
}

/* @return bytes of the last part that was sent; 0: none was */
static uint32_t part_for(world_t *w, bt_instance_t *from, uint64_t offset,
                         bt_msg_adapter_part_t *part_p)
{
    const uint32_t n_sent = w->n_sent;
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_WANT};

    msg.u.adapter_want.adapter = sql;
    msg.u.adapter_want.offset = offset;
    assert_int_equal(bt_core_message(w->core, from, &msg, w->now), BT_OK);
    if (w->n_sent == n_sent) {
        return 0;
    }
    assert_int_equal(w->sent[n_sent].msg.type, BT_MSG_ADAPTER_PART);
    *part_p = w->sent[n_sent].msg.u.adapter_part;
    return part_p->data_bytes;
}

static void content_is_sent_to_workers_that_ask(void **state)
{
    const size_t bytes = BT_WIRE_ADAPTER_PART + 7;
    world_t *w = &world;
    bt_msg_adapter_part_t part;
    bt_instance_t *p, *old;
    uint8_t *content = bt_calloc(1, bytes);

    (void)state;
    assert_non_null(content);
    content[bytes - 1] = 9;
    start(w, 8);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL,
                   FLAGS | BT_HELLO_ADAPTER_CONTENT);
    assert_int_equal(part_for(w, p, 0, &part), 0); /* not yet */
    assert_int_equal(
        bt_core_adapter_give(w->core, sql, "task 7", content, bytes), BT_OK);
    assert_int_equal(orders_to(w, p, 1), 1);
    assert_int_equal(w->sent[w->n_sent - 1].msg.u.adapter.bytes, bytes);
    assert_int_equal(part_for(w, p, 0, &part), BT_WIRE_ADAPTER_PART);
    assert_int_equal(part.data[0], 0);
    assert_int_equal(part_for(w, p, bytes - 7, &part), 7);
    assert_int_equal(part.offset, bytes - 7);
    assert_int_equal(part.data[6], 9);
    assert_int_equal(part_for(w, p, bytes, &part), 0);
    assert_int_equal(part_for(w, p, UINT64_MAX, &part), 0);
    says(w, p, BT_OK, "");
    assert_int_equal(look(w), BT_OK);
    /* A worker that takes none is not ordered, and named. */
    old = join_flags(w, "decode-0", BT_ROLE_DECODE, FLAGS);
    assert_int_equal(orders_to(w, old, 1), 0);
    assert_int_equal(look(w), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "without --lora-cache-host-memory"));
    assert_false(bt_core_adapter_is_used(w->core, sql));
    bt_core_adapter_unref(w->core, bt_core_adapter_ref(w->core, sql));
    bt_core_adapter_drop(w->core, sql);
    assert_int_equal(part_for(w, p, 0, &part), 0);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapter_is_there_when_all_workers_have_loaded_it),
        BT_TEST(worker_that_cannot_load_an_adapter_is_named),
        BT_TEST(refusal_of_before_is_no_answer_to_the_next_order),
        BT_TEST(adapter_that_was_dropped_is_not_found),
        BT_TEST(adapter_is_dropped_when_its_last_request_ends),
        BT_TEST(dropped_adapter_that_a_worker_refuses_blocks_no_others),
        BT_TEST(workers_that_join_later_read_the_newest_path),
        BT_TEST(content_is_sent_to_workers_that_ask),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
