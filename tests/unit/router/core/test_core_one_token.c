/* SPDX-License-Identifier: Apache-2.0 */
/* One token is asked for, or is all that is missing: the prefill worker's
 * token #1 is the answer, and no decode worker hears of it. */
#include "tests/unit/router/core/core_fixture.h"

static void one_token_request_goes_to_a_prefill_worker_alone(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    const sent_t *s;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_pair(w, &p, &d);
    submit(w, &c, "The", 1, NULL);
    key = key_at(w, p);
    s = last(w, p, BT_MSG_REQUEST);
    assert_int_equal(s->msg.u.request.kind, BT_REQUEST_PREFILL);
    assert_int_equal(s->msg.u.request.max_new, 1);
    /* A worker of any build refuses a request that names no other. */
    assert_int_equal(s->msg.u.request.peer, p->hello.instance);
    assert_string_equal(s->tokens, "The");
    assert_int_equal(p->sched.prefill_tokens, 3);

    tokens(w, p, key, 0, "a", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "a");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    prefilled(w, p, key);
    assert_int_equal(w->n_ledgers, 1);
    assert_true(w->ledger.ok);
    assert_int_equal(w->ledger.n_transfers, 0);
    ended(w, p, key);
    assert_int_equal(w->n_records, 1);
    assert_string_equal(w->attempts[0].prefill, "prefill-0");
    assert_string_equal(w->attempts[0].decode, "");
    assert_string_equal(w->attempts[0].cause, "one token");
    assert_string_equal(w->attempts[0].prefill_why, "only one");
    assert_null(w->attempts[0].decode_why);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    end_world(w);
}

/* Whatever the worker thinks of the token: it is the last. */
static void one_token_request_ends_with_its_token(void **state)
{
    static const bt_finish_t finishes[] = {BT_FINISH_NONE, BT_FINISH_STOP};

    (void)state;
    for (unsigned i = 0; i < BT_ARRAY_LEN(finishes); i++) {
        world_t *w = &world;
        bt_instance_t *p;
        bt_req_key_t key;
        client_t c;

        start(w, 10);
        p = join(w, "prefill-0", BT_ROLE_PREFILL);
        submit(w, &c, "The", 1, NULL);
        key = key_at(w, p);
        grant(w, p, key); /* nobody is there to get it */
        joined(w, p, key, 1);
        tokens(w, p, key, 1, "b", BT_FINISH_NONE); /* not asked for */
        assert_int_equal(c.n_ends, 0);
        tokens(w, p, key, 0, "a", finishes[i]);
        assert_int_equal(c.n_ends, 1);
        assert_int_equal(c.n_output, 1);
        tokens(w, p, key, 1, "b", BT_FINISH_NONE);
        assert_int_equal(count(w, p, BT_MSG_CANCEL),
                         (finishes[i] == BT_FINISH_NONE) ? 1 : 0);
        ended(w, p, key);
        end_world(w);
    }
}

static void one_token_request_needs_no_decode_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    submit(w, &c, "The", 1, NULL);
    assert_int_equal(n_waiting(w), 1);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(n_waiting(w), 0);
    key = key_at(w, p);
    tokens(w, p, key, 0, "a", BT_FINISH_STOP);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_STOP);
    ended(w, p, key);
    end_world(w);
}

static void lost_prefill_worker_is_replaced_by_another(void **state)
{
    world_t *w = &world;
    bt_instance_t *p0, *p1;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p0 = join(w, "prefill-0", BT_ROLE_PREFILL);
    p1 = join(w, "prefill-1", BT_ROLE_PREFILL);
    submit(w, &c, "The", 1, NULL);
    assert_int_equal(key_at(w, p0).attempt, 1);
    bt_core_worker_down(w->core, p0, "killed", w->now);
    bt_test_expect_log_lines(1);
    key = key_at(w, p1);
    assert_int_equal(key.attempt, 2);
    failed(w, p1, key, BT_ERR_DEVICE, "context phase: broken");
    ended(w, p1, key);
    key = key_at(w, p1); /* nobody else is there */
    assert_int_equal(key.attempt, 3);
    tokens(w, p1, key, 0, "a", BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    ended(w, p1, key);
    end_world(w);
}

/* Two of three tokens are there when the decode worker is lost. */
static void retry_of_one_token_request_uses_no_decode_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    const sent_t *s;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 3, NULL);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    joined(w, d, key, 1);
    tokens(w, d, key, 1, "b", BT_FINISH_NONE);
    ended(w, p, key);
    bt_core_worker_down(w->core, d, "killed", w->now);
    bt_test_expect_log_lines(1);
    s = last(w, p, BT_MSG_REQUEST);
    key = key_at(w, p);
    assert_int_equal(key.attempt, 2);
    assert_string_equal(s->tokens, "Theab");
    assert_int_equal(s->msg.u.request.max_new, 1);
    assert_int_equal(s->msg.u.request.peer, p->hello.instance);
    tokens(w, p, key, 2, "c", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 1);
    ended(w, p, key);
    end_world(w);
}

/* Who needs a decode worker waits for one; who needs none does not wait for
 * them. */
static void one_token_request_does_not_queue_behind_pairs(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t pair, one;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    submit(w, &pair, "A", 8, NULL);
    submit(w, &one, "B", 1, NULL);
    assert_int_equal(n_waiting(w), 1);
    assert_string_equal(last(w, p, BT_MSG_REQUEST)->tokens, "B");
    tokens(w, p, key_at(w, p), 0, "b", BT_FINISH_LENGTH);
    assert_int_equal(one.n_ends, 1);
    ended(w, p, key_at(w, p));
    d = join(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(n_waiting(w), 0);
    assert_string_equal(last(w, d, BT_MSG_REQUEST)->tokens, "A");
    bt_core_cancel(w->core, pair.gen, w->now);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    end_world(w);
}

static void client_leaving_frees_the_one_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    start_pair(w, &p, &d);
    submit(w, &c, "The", 1, NULL);
    bt_core_cancel(w->core, c.gen, w->now);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);
    ended(w, p, key_at(w, p));
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(one_token_request_goes_to_a_prefill_worker_alone),
        BT_TEST(one_token_request_ends_with_its_token),
        BT_TEST(one_token_request_needs_no_decode_worker),
        BT_TEST(lost_prefill_worker_is_replaced_by_another),
        BT_TEST(retry_of_one_token_request_uses_no_decode_worker),
        BT_TEST(one_token_request_does_not_queue_behind_pairs),
        BT_TEST(client_leaving_frees_the_one_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
