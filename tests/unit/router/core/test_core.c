/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/core_priv.h"
#include "tests/unit/router/core/core_fixture.h"

/* ---- tests ---- */

static void request_is_sent_to_both_workers_and_its_text_returned(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    const sent_t *s;
    bt_req_key_t key;
    client_t c;

    (void)state;
    (void)begin(w, &p, &d, &c, 20, NULL);

    s = last(w, p, BT_MSG_REQUEST);
    assert_int_equal(s->msg.u.request.kind, BT_REQUEST_PREFILL);
    assert_int_equal(s->msg.u.request.peer, d->hello.instance);
    assert_int_equal(s->msg.u.request.max_new, 20);
    assert_int_equal(s->msg.u.request.deadline_ms, DEADLINE_MS);
    assert_string_equal(s->tokens, "The");
    s = last(w, d, BT_MSG_REQUEST);
    assert_int_equal(s->msg.u.request.kind, BT_REQUEST_GENERATE);
    assert_int_equal(s->msg.u.request.peer, p->hello.instance);
    key = s->msg.u.request.key;
    assert_int_equal(key_at(w, p).id, key.id);
    assert_int_equal(p->sched.prefill_tokens, 3);
    assert_int_equal(d->sched.blocks, 2); /* 23 tokens in blocks of 16 */

    grant(w, d, key);
    assert_int_equal(count(w, p, BT_MSG_GRANT), 1);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_int_equal(p->sched.prefill_tokens, 0);
    prefilled(w, p, key);
    joined(w, d, key, 1234);
    ended(w, p, key);
    tokens(w, d, key, 1, "bc", BT_FINISH_NONE);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 0);
    tokens(w, d, key, 3, "dX", BT_FINISH_STOP); /* X is the end id */
    assert_string_equal(c.text, "abcd");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_STOP);
    assert_int_equal(c.n_output, 5);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(bt_core_n_legs(w->core), 1);
    ended(w, d, key);
    assert_all_back(w);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);

    /* The clock moved 1 ms with each message: token #1 at 2 ms, token #2 at
     * 6 ms, the end at 7 ms. */
    assert_int_equal(w->ledger.ttft_us, 30 + 2 * MS);
    assert_int_equal(w->ledger.prefill_queue_us, 100);
    assert_int_equal(w->ledger.prefill_us, 300);
    assert_int_equal(w->ledger.first_token_us, 2 * MS - 400);
    assert_int_equal(w->ledger.handover_us, 4 * MS);
    assert_int_equal(w->ledger.decode_us, 1 * MS);
    assert_int_equal(w->ledger.total_us, 30 + 7 * MS);
    assert_int_equal(w->transfer_us, 1234);
    assert_int_equal(w->n_first_transfers, 1);
    assert_true(w->ledger.ok);
    bt_core_destroy(w->core);
}

static void
tokens_are_ordered_and_duplicate_or_foreign_ones_dropped(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key, foreign;
    client_t c;

    (void)state;
    (void)begin(w, &p, &d, &c, 8, NULL);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    key = foreign = key_at(w, d);
    foreign.attempt++;

    joined(w, d, key, 1);
    tokens(w, d, key, 2, "c", BT_FINISH_NONE);
    tokens(w, d, key, 2, "c", BT_FINISH_NONE);
    tokens(w, d, key, 1, "b", BT_FINISH_NONE);
    tokens(w, d, foreign, 0, "Z", BT_FINISH_NONE);
    tokens(w, d2, key, 0, "Y", BT_FINISH_NONE); /* not its request */
    tokens(w, d, key, 99, "!", BT_FINISH_NONE); /* beyond max_new */
    assert_string_equal(c.text, "");
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_string_equal(c.text, "abc");
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    tokens(w, d, key, 3, "defgh", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abcdefgh");
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    tokens(w, d, key, 8, "i", BT_FINISH_NONE);
    assert_int_equal(c.n_ends, 1);
    ended(w, d, key);
    ended(w, p, key);
    ended(w, p, key);
    end_world(w);
}

static void stop_word_across_tokens_ends_text_before_it(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 30, "STOP");
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    joined(w, d, key, 1);
    tokens(w, d, key, 1, "bST", BT_FINISH_NONE);
    assert_string_equal(c.text, "ab"); /* held back */
    tokens(w, d, key, 4, "ST", BT_FINISH_NONE);
    assert_string_equal(c.text, "abST"); /* it was none */
    tokens(w, d, key, 6, "OPxyz", BT_FINISH_NONE);
    assert_string_equal(c.text, "abST");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_STOP);
    assert_int_equal(c.n_output, 8);
    assert_int_equal(last(w, p, BT_MSG_CANCEL)->msg.u.cancel.finish,
                     BT_FINISH_STOP);
    assert_int_equal(last(w, d, BT_MSG_CANCEL)->msg.u.cancel.finish,
                     BT_FINISH_STOP);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);

    /* Held text comes out when the text ends without the stop word. */
    submit(w, &c, "The", 4, "STOP");
    key = key_at(w, d);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    tokens(w, d, key, 1, "STO", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "aSTO");
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    ended(w, p, key);
    ended(w, d, key);
    end_world(w);
}

static void request_ending_with_token_1_withdraws_its_grant(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
    tokens(w, p, key, 0, "a", BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    assert_string_equal(c.text, "a");
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    assert_int_equal(w->n_ledgers, 0); /* P's part is still to come */
    prefilled(w, p, key);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->ledger.prefill_queue_us, 100);
    ended(w, d, key);
    ended(w, p, key);
    assert_all_back(w);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_first_transfers, 0);
    bt_core_destroy(w->core);
}

static void client_leaving_in_any_phase_frees_both_workers(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase <= 3; phase++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        bt_req_key_t key;
        client_t c;

        key = begin_in(w, &p, &d, &c, phase);
        bt_core_cancel(w->core, c.gen, w->now);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
        if (phase > 0) {
            assert_int_equal(last(w, p, BT_MSG_CANCEL)->msg.u.cancel.finish,
                             BT_FINISH_CANCELED);
            assert_int_equal(last(w, d, BT_MSG_CANCEL)->msg.u.cancel.finish,
                             BT_FINISH_CANCELED);
            tokens(w, d, key, 2, "c", BT_FINISH_NONE); /* under way */
            ended(w, d, key);
            ended(w, p, key);
        }
        assert_all_back(w);
        assert_int_equal(c.n_ends, 0);
        assert_int_equal(w->n_ledgers, 1);
        assert_false(w->ledger.ok);
        bt_core_destroy(w->core);
    }
}

static void client_may_cancel_inside_on_text(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
    tokens(w, d, key, 1, "bcd", BT_FINISH_NONE);
    c.cancel_on_text = true;
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_string_equal(c.text, "a");
    assert_int_equal(c.n_ends, 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
    ended(w, p, key);
    ended(w, d, key);
    end_world(w);
}

static void missing_worker_or_progress_fails_in_bounded_time(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    submit(w, &c, "The", 8, NULL);
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_string_equal(c.message,
                        "no prefill and decode worker came within 3000 ms");

    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    w->now += DEADLINE_MS * MS - 1;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 0);
    w->now += 1;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 504);
    assert_string_equal(c.message, "the request's deadline of 60000 ms passed "
                                   "in phase prefill, worker prefill-0");
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
    ended(w, p, key);
    ended(w, d, key);
    end_world(w);
}

static void waiting_requests_start_when_a_pair_joins(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b;

    (void)state;
    start(w, 10);
    submit(w, &a, "A", 8, NULL);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(n_waiting(w), 2);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(n_waiting(w), 2);
    w->now += 7 * MS;
    d = join(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 2);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);
    /* P hears of D before it is asked to send there. */
    assert_int_equal(count(w, p, BT_MSG_PEER), 1);
    for (uint32_t i = 0; w->sent[i].msg.type != BT_MSG_PEER; i++) {
        assert_int_not_equal(w->sent[i].msg.type, BT_MSG_REQUEST);
    }
    bt_core_end_all(w->core, "the server is stopping", w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(b.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    assert_non_null(strstr(a.message, "the server is stopping"));
    bt_core_destroy(w->core);
}

static void submit_with_processors(world_t *w, client_t *c)
{
    bt_gen_spec_t spec = {.prompt = prompt_of("The"),
                          .max_new = 8,
                          .sampling = bt_sampling_default()};

    spec.sampling.processors.no_repeat_ngram_size = 2;
    memset(c, 0, sizeof(*c));
    assert_int_equal(submit_one(w->core, &spec, c, w->now, &c->gen), BT_OK);
    bt_prompt_unref(spec.prompt);
}

static void
request_with_processors_goes_only_to_workers_that_know_them(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b, c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_PROCESSORS);
    submit_with_processors(w, &a);
    assert_int_equal(n_waiting(w), 1);
    submit(w, &b, "The", 8, NULL); /* is not held up */
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 1);
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(b.n_ends, 0);
    assert_int_equal(a.http_status, 503);
    assert_string_equal(a.message,
                        "no workers that support the request's logits "
                        "processors came within 3000 ms: those that are there "
                        "are of an older version");
    submit_with_processors(w, &c);
    assert_int_equal(n_waiting(w), 1);
    p = join_flags(w, "prefill-1", BT_ROLE_PREFILL, BT_HELLO_PROCESSORS);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 1);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);
    bt_core_end_all(w->core, "the server is stopping", w->now);
    bt_core_destroy(w->core);
}

static void submit_with_grammar(world_t *w, client_t *c)
{
    bt_gen_spec_t spec = {.prompt = prompt_of("The"),
                          .max_new = 8,
                          .sampling = bt_sampling_default()};

    spec.prompt->grammar = bt_memdup("BTG", 3);
    assert_non_null(spec.prompt->grammar);
    spec.prompt->grammar_bytes = 3;
    memset(c, 0, sizeof(*c));
    assert_int_equal(submit_one(w->core, &spec, c, w->now, &c->gen), BT_OK);
    bt_prompt_unref(spec.prompt);
}

static void assert_has_grammar(world_t *w, bt_instance_t *worker)
{
    const bt_msg_request_t *request =
        &last(w, worker, BT_MSG_REQUEST)->msg.u.request;

    assert_int_equal(request->grammar_bytes, 3);
    assert_memory_equal(request->grammar, "BTG", 3);
}

static void
request_with_a_grammar_goes_only_to_workers_that_know_it(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *other;
    client_t a, b;

    (void)state;
    start(w, 10);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, BT_HELLO_GRAMMARS);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_PROCESSORS);
    submit_with_grammar(w, &a);
    assert_int_equal(n_waiting(w), 1);
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    assert_string_equal(a.message,
                        "no workers that support the request's structured "
                        "output came within 3000 ms: those that are there are "
                        "of an older version");
    submit_with_grammar(w, &b);
    assert_int_equal(n_waiting(w), 1);
    other = join_flags(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_GRAMMARS);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    assert_has_grammar(w, p);
    assert_has_grammar(w, other);

    d = join_flags(w, "decode-2", BT_ROLE_DECODE, BT_HELLO_GRAMMARS);
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, other, "gone", w->now); /* a re-run */
    w->now += BT_CORE_HOLD_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 2);
    assert_has_grammar(w, p);
    assert_has_grammar(w, d);
    bt_core_end_all(w->core, "the server is stopping", w->now);
    bt_core_destroy(w->core);
}

static void submit_with_table(world_t *w, client_t *c)
{
    static const float row[2] = {1.5f, 2.5f};
    const bt_table_rows_t rows = {(const uint8_t *)row, 8, BT_TABLE_F32, 1};
    bt_gen_spec_t spec = {.prompt = prompt_of("The"),
                          .max_new = 8,
                          .sampling = bt_sampling_default()};

    assert_int_equal(bt_prompt_table_create(&rows, &spec.prompt->table), BT_OK);
    spec.sampling.processors.no_repeat_ngram_size = 3;
    memset(c, 0, sizeof(*c));
    assert_int_equal(submit_one(w->core, &spec, c, w->now, &c->gen), BT_OK);
    bt_prompt_unref(spec.prompt);
}

static void
request_with_a_prompt_table_goes_to_workers_that_compute_it(void **state)
{
    const uint32_t flags = BT_HELLO_TABLES | BT_HELLO_PROCESSORS;
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t a, b;

    (void)state;
    start(w, 10);
    p = join_flags(w, "prefill-0", BT_ROLE_PREFILL, flags);
    (void)join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_PROCESSORS);
    submit_with_table(w, &a);
    assert_int_equal(n_waiting(w), 1);
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    assert_string_equal(
        a.message,
        "no workers that support the request's prompt table and logits "
        "processors came within 3000 ms: those that are there have their model "
        "on a device, or are of an older version");
    submit_with_table(w, &b);
    d = join_flags(w, "decode-1", BT_ROLE_DECODE, flags);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(last(w, p, BT_MSG_REQUEST)->msg.u.request.table.bytes, 8);
    assert_int_equal(last(w, d, BT_MSG_REQUEST)->msg.u.request.table.bytes, 8);
    bt_core_end_all(w->core, "the server is stopping", w->now);
    bt_core_destroy(w->core);
}

/* Of either kind, and one of a priority that they do not have. */
static void waiting_requests_start_by_priority_then_age(void **state)
{
    static const char *const order[] = {"D", "C", "A", "B", "E"};
    world_t *w = &world;
    bt_instance_t *p;
    client_t c[5];
    uint32_t n = 0;

    (void)state;
    start(w, 10);
    submit_with(w, &c[0], "A", 8, NULL, 1);
    w->now += 5 * MS;
    submit_with(w, &c[1], "B", 1, NULL, 1);
    submit_with(w, &c[2], "C", 1, NULL, 2);
    submit_with(w, &c[3], "D", 8, NULL, 7);
    submit_with(w, &c[4], "E", 8, NULL, 0);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(n_waiting(w), 5);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(n_waiting(w), 0);
    for (uint32_t i = 0; i < w->n_sent; i++) {
        if ((w->sent[i].to == p) && (w->sent[i].msg.type == BT_MSG_REQUEST)) {
            assert_string_equal(w->sent[i].tokens, order[n++]);
        }
    }
    assert_int_equal(n, 5);
    bt_core_end_all(w->core, "the server is stopping", w->now);
    bt_core_destroy(w->core);
}

static void full_router_answers_busy(void **state)
{
    const bt_gen_spec_t spec = {.prompt = prompt_of("x"), .max_new = 1};
    world_t *w = &world;
    bt_gen_t *gen = NULL;
    client_t a, b;

    (void)state;
    start(w, 2);
    submit(w, &a, "A", 8, NULL);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(submit_one(w->core, &spec, NULL, w->now, &gen),
                     BT_ERR_BUSY);
    bt_prompt_unref(spec.prompt);
    bt_core_cancel(w->core, a.gen, w->now);
    submit(w, &a, "A", 8, NULL);
    bt_core_destroy(w->core);
}

static void prefill_workers_are_told_present_decode_workers(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *p2, *d;
    uint64_t gone;

    (void)state;
    start(w, 10);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.instance,
                     d->hello.instance);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.n_ranks, 1);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.tp, 1);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.pp, 1);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.layout.hi, 4);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.ranks[0].kvt_bytes, 2);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.ranks[0].block_bytes,
                     4096);
    assert_string_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.name, "decode-0");
    (void)join(w, "decode-1", BT_ROLE_DECODE);
    assert_int_equal(count(w, p, BT_MSG_PEER), 2);
    p2 = join(w, "prefill-1", BT_ROLE_PREFILL);
    assert_int_equal(count(w, p2, BT_MSG_PEER), 2);

    gone = d->hello.instance;
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(last(w, p, BT_MSG_PEER_GONE)->msg.u.peer_gone.instance,
                     gone);
    assert_int_equal(count(w, p2, BT_MSG_PEER_GONE), 1);
    bt_core_destroy(w->core);
}

static void local_worker_serves_alone(void **state)
{
    world_t *w = &world;
    bt_instance_t *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    submit(w, &c, "The", 3, NULL);
    assert_int_equal(last(w, d, BT_MSG_REQUEST)->msg.u.request.kind,
                     BT_REQUEST_LOCAL);
    key = key_at(w, d);
    assert_int_equal(d->sched.prefill_tokens, 3);
    tokens(w, d, key, 0, "abc", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 1);
    prefilled(w, d, key);
    ended(w, d, key);
    assert_all_back(w);
    assert_int_equal(w->n_first_transfers, 0);
    bt_core_destroy(w->core);
}

static void failed_allocation_starts_nothing(void **state)
{
    const char *const stops[] = {"x"};
    const bt_bad_word_t bad = {.n = 1, .ids = {5}};
    bt_gen_spec_t spec = {.prompt = prompt_of("x"),
                          .max_new = 1,
                          .sampling = bt_sampling_default(),
                          .stops = stops,
                          .n_stops = 1};
    world_t *w = &world;
    bt_gen_t *gen = NULL;

    (void)state;
    start(w, 2);
    spec.sampling.n_bad_words = 1;
    spec.sampling.bad_words = &bad;
    for (int i = 0; i <= 3; i++) {
        /* The room for re-runs is made once. */
        bt_alloc_fail_at((i == 0) ? 1 : i + (w->core->cap_joined == 0));
        assert_int_equal(submit_one(w->core, &spec, NULL, w->now, &gen),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
    }
    assert_int_equal(atomic_load(&spec.prompt->n_refs), 1);
    assert_int_equal(submit_one(w->core, &spec, NULL, w->now, &gen), BT_OK);
    bt_prompt_unref(spec.prompt);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(request_is_sent_to_both_workers_and_its_text_returned),
        BT_TEST(tokens_are_ordered_and_duplicate_or_foreign_ones_dropped),
        BT_TEST(stop_word_across_tokens_ends_text_before_it),
        BT_TEST(request_ending_with_token_1_withdraws_its_grant),
        BT_TEST(client_leaving_in_any_phase_frees_both_workers),
        BT_TEST(client_may_cancel_inside_on_text),
        BT_TEST(missing_worker_or_progress_fails_in_bounded_time),
        BT_TEST(request_with_processors_goes_only_to_workers_that_know_them),
        BT_TEST(request_with_a_grammar_goes_only_to_workers_that_know_it),
        BT_TEST(request_with_a_prompt_table_goes_to_workers_that_compute_it),
        BT_TEST(waiting_requests_start_when_a_pair_joins),
        BT_TEST(waiting_requests_start_by_priority_then_age),
        BT_TEST(full_router_answers_busy),
        BT_TEST(prefill_workers_are_told_present_decode_workers),
        BT_TEST(local_worker_serves_alone),
        BT_TEST(failed_allocation_starts_nothing),
    };

    /* Thousands of re-runs are worth a line in life only. */
    bt_log_init("test_core", BT_LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
