/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of the workers: which are in force, and what requests are of. */
#include "tests/unit/router/core/core_fixture.h"

static const bt_wire_weights_t step_1 = {5, "step-1", "/w/1"};
static const bt_hash128_t model_1 = {11, 12};

static bt_status_t try_join(world_t *w, const char *name, bt_role_t role,
                            const bt_wire_weights_t *weights,
                            bt_hash128_t model, bt_instance_t **worker_p)
{
    static const uint8_t kvt[] = {9, 9};
    static const bt_wire_rank_t rank = {
        .block_bytes = 4096, .kvt = kvt, .kvt_bytes = sizeof(kvt)};
    bt_msg_hello_t hello = {
        .protocol = BT_WIRE_PROTOCOL,
        .role = (uint32_t)role,
        .instance = w->next_instance++,
        .model = model,
        .tokens_per_block = 16,
        .context_tokens = 100,
        .max_batch = 4,
        .n_blocks = 10,
        .flags = BT_HELLO_WEIGHTS,
        .ranks = &rank,
        .n_ranks = 1,
        .tp = 1,
        .pp = 1,
        .layout = {.lo = 3, .hi = 4},
    };
    char why[BT_TABLE_WHY_BYTES] = "";
    bt_status_t status;

    if (weights != NULL) {
        hello.weights = *weights;
        hello.base = (bt_hash128_t){.lo = 1, .hi = 2};
    }
    snprintf(hello.name, sizeof(hello.name), "%s", name);
    status = bt_core_worker_up(w->core, &hello, w, w->now, why, worker_p);
    assert_true((status == BT_OK) || (strstr(why, name) != NULL));
    return status;
}

static bt_instance_t *join_with(world_t *w, const char *name, bt_role_t role,
                                const bt_wire_weights_t *weights)
{
    bt_instance_t *worker = NULL;

    assert_int_equal(
        try_join(w, name, role, weights,
                 (weights != NULL) ? model_1 : (bt_hash128_t){.lo = 1, .hi = 2},
                 &worker),
        BT_OK);
    return worker;
}

static const bt_msg_weights_t *ordered(const world_t *w,
                                       const bt_instance_t *worker)
{
    const sent_t *s = last(w, worker, BT_MSG_WEIGHTS);

    assert_non_null(s);
    return &s->msg.u.weights;
}

static void workers_of_other_weights_get_no_new_requests(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *p2, *d2;
    bt_msg_t stats = {
        .type = BT_MSG_STATS,
        .u.stats = {.roles = BT_ROLE_DECODE, .duty = BT_ADMIN_STATE_ON}};
    bt_req_key_t key;
    client_t before, after;

    (void)state;
    start(w, 10);
    p = join_with(w, "prefill-0", BT_ROLE_PREFILL, NULL);
    d = join_with(w, "decode-0", BT_ROLE_DECODE, NULL);
    assert_string_equal(bt_core_weights(w->core)->version, "default");
    submit(w, &before, "The", 8, NULL);
    key = key_at(w, d);
    assert_string_equal(bt_core_weights_of(before.gen)->version, "default");

    bt_core_set_weights(w->core, &step_1, model_1, w->now);
    assert_int_equal(ordered(w, p)->loads, 1);
    assert_int_equal(ordered(w, d)->weights.update, 5);
    assert_string_equal(ordered(w, d)->weights.path, "/w/1");
    submit(w, &after, "B", 8, NULL);
    say(w, d, &stats); /* what it says of its duty changes nothing */
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);

    /* Those of the new weights get it; the earlier one goes on where it is. */
    p2 = join_with(w, "prefill-1", BT_ROLE_PREFILL, &step_1);
    assert_int_equal(count(w, p2, BT_MSG_REQUEST), 0);
    d2 = join_with(w, "decode-1", BT_ROLE_DECODE, &step_1);
    assert_int_equal(count(w, p2, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d2, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, p2, BT_MSG_WEIGHTS), 0);
    assert_string_equal(bt_core_weights_of(after.gen)->version, "step-1");
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    joined(w, d, key, 1);
    tokens(w, d, key, 1, "yz", BT_FINISH_STOP);
    assert_string_equal(before.text, "xy"); /* "z" is an end id */

    /* One that comes with those of before is told. */
    d = join_with(w, "decode-2", BT_ROLE_DECODE, NULL);
    assert_int_equal(ordered(w, d)->weights.update, 5);
    bt_core_destroy(w->core);
}

static void tokens_of_two_weights_are_never_joined(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c, fresh;

    (void)state;
    start(w, 10);
    p = join_with(w, "prefill-0", BT_ROLE_PREFILL, NULL);
    d = join_with(w, "decode-0", BT_ROLE_DECODE, NULL);
    submit(w, &c, "The", 8, NULL);
    submit(w, &fresh, "A", 8, NULL);
    key = last(w, p, BT_MSG_REQUEST)->msg.u.request.key;
    key.id--; /* of the first */
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    joined(w, d, key, 1);
    tokens(w, d, key, 1, "y", BT_FINISH_NONE);

    /* Another router had them replaced: the first such worker says so. */
    d2 = join_with(w, "decode-1", BT_ROLE_DECODE, &step_1);
    assert_int_equal(bt_core_weights(w->core)->update, 5);
    assert_int_equal(ordered(w, d)->weights.update, 5);
    assert_int_equal(count(w, d2, BT_MSG_WEIGHTS), 0);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_non_null(strstr(c.message, "decode-0 was lost"));
    assert_non_null(
        strstr(c.message, "weights default were replaced by step-1"));

    /* One without a token begins again with the new ones. */
    assert_int_equal(fresh.n_ends, 0);
    (void)join_with(w, "prefill-1", BT_ROLE_PREFILL, &step_1);
    assert_string_equal(bt_core_weights_of(fresh.gen)->version, "step-1");
    bt_core_destroy(w->core);
}

static void waiting_retry_of_other_weights_ends_with_them(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join_with(w, "prefill-0", BT_ROLE_PREFILL, NULL);
    d = join_with(w, "decode-0", BT_ROLE_DECODE, NULL);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(c.n_ends, 0);
    bt_core_set_weights(w->core, &step_1, model_1, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    bt_core_destroy(w->core);
}

static void one_number_stands_for_one_model(void **state)
{
    world_t *w = &world;
    bt_instance_t *worker = NULL;

    (void)state;
    start(w, 10);
    (void)join_with(w, "decode-0", BT_ROLE_DECODE, &step_1);
    assert_int_equal(try_join(w, "decode-1", BT_ROLE_DECODE, &step_1,
                              (bt_hash128_t){.lo = 77}, &worker),
                     BT_ERR_MISMATCH);
    bt_core_destroy(w->core);
}

static void worker_that_cannot_replace_weights_is_left_out(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;

    (void)state;
    start(w, 10);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    bt_test_expect_log_lines(1);
    bt_core_set_weights(w->core, &step_1, model_1, w->now);
    assert_int_equal(count(w, d, BT_MSG_WEIGHTS), 0);
    assert_true(d->is_stale);
    bt_core_destroy(w->core);
}

static void says(world_t *w, bt_instance_t *worker, bt_status_t status,
                 const char *text)
{
    bt_msg_t msg = {.type = BT_MSG_WEIGHTS_CHECKED,
                    .u.weights_checked = {.update = 5, .status = status}};

    snprintf(msg.u.weights_checked.text, sizeof(msg.u.weights_checked.text),
             "%s", text);
    say(w, worker, &msg);
}

static void worker_that_refuses_to_load_them_is_asked_again(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;

    (void)state;
    start(w, 10);
    d = join_with(w, "decode-0", BT_ROLE_DECODE, NULL);
    says(w, d, BT_ERR_NOT_FOUND, "of a look, before they are in force");
    bt_core_set_weights(w->core, &step_1, model_1, w->now);
    assert_int_equal(count(w, d, BT_MSG_WEIGHTS), 1);
    assert_int_equal(d->refused_us, 0);
    bt_test_expect_log_lines(1); /* for both */
    says(w, d, BT_ERR_NOT_FOUND, "No such file or directory");
    says(w, d, BT_ERR_NOT_FOUND, "No such file or directory");
    assert_int_not_equal(d->refused_us, 0);
    w->now += 9999 * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, d, BT_MSG_WEIGHTS), 1);
    w->now += 1 * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, d, BT_MSG_WEIGHTS), 2);
    assert_int_equal(ordered(w, d)->loads, 1);
    w->now += 1 * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, d, BT_MSG_WEIGHTS), 2);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(workers_of_other_weights_get_no_new_requests),
        BT_TEST(tokens_of_two_weights_are_never_joined),
        BT_TEST(waiting_retry_of_other_weights_ends_with_them),
        BT_TEST(one_number_stands_for_one_model),
        BT_TEST(worker_that_cannot_replace_weights_is_left_out),
        BT_TEST(worker_that_refuses_to_load_them_is_asked_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
