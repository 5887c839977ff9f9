/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to sleep and to wake: what a worker makes of them. */
#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"
#include "worker/admin.h"
#include "worker/worker.h"

static bt_worker_t w;
static const bt_config_t config = {.model = "m.gguf"};

static void start(void)
{
    w = (bt_worker_t){.config = &config, .ready_fd = -1, .instance = 7};
    w.roles = BT_ROLE_DECODE;
    w.sleep.is_possible = true;
}

static void order(uint64_t number, uint32_t sleeps)
{
    const bt_msg_sleep_t msg = {.order = number, .sleeps = sleeps};

    bt_sleep_on_order(&w, &msg);
}

static void largest_number_counts(void **state)
{
    (void)state;
    start();
    assert_false(bt_admin_state_is_draining(&w));
    order(5, 1);
    assert_true(w.sleep.is_due);
    assert_true(bt_admin_state_is_draining(&w));
    assert_int_equal(bt_admin_state_of(&w), BT_ADMIN_STATE_OFF);
    order(5, 1);
    order(4, 0); /* an earlier one */
    assert_true(w.sleep.is_due);
    order(6, 0); /* before it has begun */
    assert_false(w.sleep.is_due);
    assert_false(bt_admin_state_is_draining(&w));
    assert_int_equal(w.sleep.order, 6);
    order(5, 1);
    assert_false(w.sleep.is_due);

    order(8, 1);
    bt_sleep_go(&w.sleep);
    assert_true(w.sleep.is_asleep);
    assert_int_equal(w.sleep.order, 8);
    assert_int_equal(bt_admin_state_of(&w), BT_ADMIN_STATE_OFF);
    order(9, 1); /* twice */
    assert_false(w.sleep.is_due);
    order(10, 0);
    assert_true(w.sleep.is_due);
    bt_sleep_go(&w.sleep);
    assert_false(w.sleep.is_asleep);
    assert_true(w.sleep.is_waking);
    bt_sleep_go(&w.sleep); /* without an order */
    assert_true(w.sleep.is_waking);
}

static void worker_that_cannot_sleep_ignores_it(void **state)
{
    (void)state;
    start();
    w.sleep.is_possible = false;
    order(5, 1);
    assert_false(w.sleep.is_due);
    assert_false(bt_admin_state_is_draining(&w));
}

static void worker_that_cannot_be_woken_sleeps_and_is_told_again(void **state)
{
    (void)state;
    start();
    assert_false(bt_sleep_failed(&w, BT_ERR_NO_MEMORY)); /* it starts */
    order(5, 1);
    bt_sleep_go(&w.sleep);
    assert_false(bt_sleep_failed(&w, BT_ERR_NO_MEMORY)); /* it sleeps */
    order(6, 0);
    bt_sleep_go(&w.sleep);
    assert_false(bt_sleep_failed(&w, BT_ERR_CANCELED)); /* stopped */
    bt_test_expect_log_lines(1);
    assert_true(bt_sleep_failed(&w, BT_ERR_NO_MEMORY));
    bt_sleep_go(&w.sleep);
    assert_true(w.sleep.is_asleep);
    assert_int_equal(w.sleep.order, 6);
    order(6, 1); /* not the one in force */
    assert_false(w.sleep.is_due);
    order(6, 0);
    assert_true(w.sleep.is_due);
}

static void wake_with(bt_hash128_t model, bt_hash128_t base)
{
    start();
    w.weights.now = (bt_wire_weights_t){4, "step-4", "/w/4"};
    w.weights.base = base;
    w.sleep.hello.weights = w.weights.now;
    w.sleep.hello.model = model;
    order(5, 1);
    bt_sleep_go(&w.sleep);
    order(6, 0);
    bt_sleep_go(&w.sleep);
}

/* The file of a step may be removed when the next one is there. */
static void worker_wakes_with_those_of_its_model_for_lost_weights(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    const char *path = "/tmp/baton-test-sleep-lost.gguf";
    bt_gguf_t *gguf = NULL;
    char why[256];

    (void)state;
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    wake_with((bt_hash128_t){1, 2}, bt_gguf_identity(gguf));
    bt_test_expect_log_lines(3);
    assert_true(bt_sleep_failed(&w, BT_ERR_NOT_FOUND));
    assert_false(w.sleep.is_due); /* to start with the model of --model */
    assert_true(w.weights.are_due);
    assert_int_equal(w.weights.next.update, 0);
    assert_int_equal(w.weights.failed_update, 4);
    w.weights.now = w.weights.next; /* as the start does */
    w.weights.are_due = false;
    bt_sleep_go(&w.sleep);
    assert_true(w.sleep.is_waking);
    assert_int_equal(bt_sleep_opened(&w, gguf), BT_OK);
    assert_true(bt_sleep_failed(&w, BT_ERR_NOT_FOUND)); /* nor that */
    assert_true(w.sleep.is_due);
    assert_false(w.weights.are_due);

    wake_with((bt_hash128_t){1, 2}, bt_gguf_identity(gguf));
    assert_true(
        bt_sleep_failed(&w, BT_ERR_NO_MEMORY)); /* it may be free later */
    assert_true(w.sleep.is_due);
    assert_false(w.weights.are_due);
    bt_gguf_close(gguf);
    assert_int_equal(remove(path), 0);
}

static void other_file_does_not_wake_it(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    const char *path = "/tmp/baton-test-sleep-orders.gguf";
    bt_gguf_t *gguf = NULL;
    char why[256];

    (void)state;
    start();
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_sleep_opened(&w, gguf), BT_OK); /* it starts */
    w.sleep.is_waking = true;
    w.sleep.hello.model = bt_gguf_identity(gguf);
    assert_int_equal(bt_sleep_opened(&w, gguf), BT_OK);
    w.sleep.hello.model.lo++;
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_sleep_opened(&w, gguf), BT_ERR_MISMATCH);
    bt_gguf_close(gguf);
    assert_int_equal(remove(path), 0);
}

static void hello_of_a_sleeper_is_that_of_before_with_its_number(void **state)
{
    bt_wire_decoder_t *decoder;
    bt_strbuf_t out;
    bt_msg_t msg;

    (void)state;
    start();
    w.sleep.hello = (bt_msg_hello_t){.protocol = BT_WIRE_PROTOCOL,
                                     .protocol_min = BT_WIRE_PROTOCOL_MIN,
                                     .role = BT_ROLE_PREFILL,
                                     .instance = 3,
                                     .name = "decode-0",
                                     .model = {1, 2},
                                     .n_blocks = 5,
                                     .flags = BT_HELLO_SLEEPS,
                                     .weights = {4, "step-4", "/w/4"},
                                     .tp = 1,
                                     .pp = 1};
    w.sleep.order = 9;
    assert_int_equal(bt_wire_decoder_create(&decoder), BT_OK);
    bt_strbuf_init(&out, 1 << 16);
    assert_int_equal(bt_sleep_hello(&w, &out), BT_OK);
    assert_int_equal(bt_wire_decode(decoder, out.data, out.len, &msg), BT_OK);
    assert_int_equal(msg.u.hello.flags, BT_HELLO_SLEEPS | BT_HELLO_ASLEEP);
    assert_int_equal(msg.u.hello.instance, 7);
    assert_int_equal(msg.u.hello.role, BT_ROLE_DECODE);
    assert_int_equal(msg.u.hello.sleep_order, 9);
    assert_int_equal(msg.u.hello.n_blocks, 5);
    assert_int_equal(msg.u.hello.model.hi, 2);
    assert_int_equal(msg.u.hello.weights.update, 4);
    assert_int_equal(msg.u.hello.n_ranks, 1);
    assert_int_equal(msg.u.hello.ranks[0].kvt_bytes, 1);
    bt_strbuf_fini(&out);
    bt_wire_decoder_destroy(decoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(largest_number_counts),
        BT_TEST(worker_that_cannot_sleep_ignores_it),
        BT_TEST(worker_that_cannot_be_woken_sleeps_and_is_told_again),
        BT_TEST(worker_wakes_with_those_of_its_model_for_lost_weights),
        BT_TEST(other_file_does_not_wake_it),
        BT_TEST(hello_of_a_sleeper_is_that_of_before_with_its_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
