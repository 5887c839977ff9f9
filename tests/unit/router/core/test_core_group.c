/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of one prompt that are submitted together: one placement, one
 * prompt to compute, and lives of their own from then on. */
#include <malloc.h>

#include "tests/unit/router/core/core_checks.h"

#define N 3u

static bt_instance_t *join_group_worker(world_t *w, const char *name,
                                        bt_role_t role, uint32_t flags,
                                        uint32_t max_batch)
{
    bt_instance_t *worker = join_flags(w, name, role, flags | BT_HELLO_FANOUT);

    worker->sched.max_seats = max_batch;
    worker->sched.n_blocks = 100;
    return worker;
}

static void start_group_pair(world_t *w, bt_instance_t **p_p,
                             bt_instance_t **d_p)
{
    start(w, 20);
    *p_p = join_group_worker(w, "prefill-0", BT_ROLE_PREFILL, 0, 16);
    *d_p = join_group_worker(w, "decode-0", BT_ROLE_DECODE, 0, 16);
}

/* 20 tokens: a block of 16 and 4 more. */
static void submit_group(world_t *w, client_t *clients, uint32_t n,
                         uint32_t max_new)
{
    bt_prompt_t *prompt = prompt_of("twenty letters long.");
    bt_gen_spec_t specs[16];
    void *users[16];
    bt_gen_t *gens[16];

    memset(clients, 0, n * sizeof(*clients));
    for (uint32_t i = 0; i < n; i++) {
        specs[i] = (bt_gen_spec_t){.prompt = prompt,
                                   .max_new = max_new,
                                   .sampling = bt_sampling_default(),
                                   .parse_us = 10,
                                   .tokenize_us = 20};
        specs[i].sampling.seed = 70 + i;
        users[i] = &clients[i];
    }
    assert_int_equal(bt_core_submit(w->core, specs, users, n, w->now, gens),
                     BT_OK);
    bt_prompt_unref(prompt);
    for (uint32_t i = 0; i < n; i++) {
        clients[i].gen = gens[i];
    }
    assert_consistent(w->core);
}

/* REQUEST number @a i to a worker. */
static const bt_msg_request_t *request_at(const world_t *w,
                                          const bt_instance_t *to, uint32_t i)
{
    for (uint32_t k = 0; k < w->n_sent; k++) {
        if ((w->sent[k].to == to) && (w->sent[k].msg.type == BT_MSG_REQUEST) &&
            (i-- == 0)) {
            return &w->sent[k].msg.u.request;
        }
    }
    fail();
    return NULL;
}

static bt_req_key_t key_of(const world_t *w, const bt_instance_t *to,
                           uint32_t i)
{
    return request_at(w, to, i)->key;
}

/* The whole life of number @a i after the grant: "ab". */
static void answer(world_t *w, bt_instance_t *p, bt_instance_t *d,
                   client_t *client, bt_req_key_t key)
{
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    prefilled(w, p, key);
    joined(w, d, key, 5);
    ended(w, p, key);
    tokens(w, d, key, 1, "b", BT_FINISH_LENGTH);
    ended(w, d, key);
    assert_int_equal(client->n_ends, 1);
    assert_string_equal(client->text, "ab");
}

static void choices_of_one_prompt_go_to_one_pair_as_a_fanout(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[N];

    (void)state;
    start_group_pair(w, &p, &d);
    (void)join_group_worker(w, "prefill-1", BT_ROLE_PREFILL, 0, 16);
    (void)join_group_worker(w, "decode-1", BT_ROLE_DECODE, 0, 16);
    submit_group(w, clients, N, 4);
    for (uint32_t i = 0; i < N; i++) {
        const bt_msg_request_t *at_p = request_at(w, p, i);
        const bt_msg_request_t *at_d = request_at(w, d, i);

        assert_int_equal(at_p->fanout, key_of(w, p, 0).id);
        assert_int_equal(at_p->fanout_size, N);
        assert_int_equal(at_d->fanout, at_p->fanout);
        assert_int_equal(at_d->fanout_size, N);
        assert_int_equal(at_p->key.id, at_d->key.id);
        assert_int_equal(at_p->sampling.seed, 70 + i);
    }
    /* The prompt counts once, and so does the block that is whole in it. */
    assert_int_equal(p->sched.prefill_tokens, 20);
    assert_int_equal(p->sched.seats, N);
    assert_int_equal(d->sched.blocks, 2 + (N - 1) * 1);
    grant(w, d, key_of(w, d, 0));
    assert_int_equal(count(w, p, BT_MSG_GRANT), 1);
    for (uint32_t i = N; i > 0; i--) {
        answer(w, p, d, &clients[i - 1], key_of(w, p, i - 1));
        assert_consistent(w->core);
    }
    end_world(w);
}

static void single_choice_is_no_fanout(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t client;

    (void)state;
    start_group_pair(w, &p, &d);
    submit_group(w, &client, 1, 2);
    assert_int_equal(request_at(w, p, 0)->fanout, 0);
    assert_int_equal(request_at(w, p, 0)->fanout_size, 0);
    grant(w, d, key_of(w, d, 0));
    answer(w, p, d, &client, key_of(w, p, 0));
    end_world(w);
}

/* Either may be of a build that knows no groups. */
static void workers_without_fanout_support_get_single_requests(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        client_t clients[N];

        start_group_pair(w, &p, &d);
        ((k == 0) ? p : d)->sched.roles &= ~BT_SCHED_FANOUT;
        submit_group(w, clients, N, 2);
        assert_int_equal(p->sched.prefill_tokens, N * 20);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(request_at(w, p, i)->fanout, 0);
            grant(w, d, key_of(w, d, i));
            answer(w, p, d, &clients[i], key_of(w, p, i));
        }
        assert_int_equal(count(w, p, BT_MSG_GRANT), N);
        end_world(w);
    }
}

/* Half of 8 seats: seven are four and three. */
static void choices_above_the_limit_become_several_fanouts(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[7];

    (void)state;
    start(w, 20);
    p = join_group_worker(w, "prefill-0", BT_ROLE_PREFILL, 0, 16);
    d = join_group_worker(w, "decode-0", BT_ROLE_DECODE, 0, 8);
    submit_group(w, clients, 7, 2);
    for (uint32_t i = 0; i < 7; i++) {
        const bt_msg_request_t *m = request_at(w, d, i);

        assert_int_equal(m->fanout_size, (i < 4) ? 4 : 3);
        assert_int_equal(m->fanout, key_of(w, d, (i < 4) ? 0 : 4).id);
    }
    for (uint32_t i = 0; i < 7; i++) {
        answer(w, p, d, &clients[i], key_of(w, d, i));
    }
    end_world(w);
}

/* The first of them was given up before workers came, and one in the middle.
 * Workers of the fixture have 4 seats: of three one goes by itself. */
static void choices_still_waiting_are_sent_together(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[5], other;

    (void)state;
    start(w, 20);
    submit_group(w, clients, 5, 2);
    submit(w, &other, "other", 2, NULL);
    assert_int_equal(n_waiting(w), 6);
    bt_core_cancel(w->core, clients[0].gen, w->now);
    bt_core_cancel(w->core, clients[2].gen, w->now);
    p = join_group_worker(w, "prefill-0", BT_ROLE_PREFILL, 0, 16);
    d = join_group_worker(w, "decode-0", BT_ROLE_DECODE, 0, 16);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 4);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(request_at(w, d, i)->fanout, key_of(w, d, 0).id);
        assert_int_equal(request_at(w, d, i)->fanout_size, 2);
    }
    assert_int_equal(request_at(w, d, 2)->fanout, 0);
    assert_int_equal(request_at(w, d, 3)->fanout, 0);
    answer(w, p, d, &clients[1], key_of(w, d, 0));
    answer(w, p, d, &clients[3], key_of(w, d, 1));
    answer(w, p, d, &clients[4], key_of(w, d, 2));
    answer(w, p, d, &other, key_of(w, d, 3));
    end_world(w);
}

/* The workers keep the leader's job for the others, so its grant must reach the
 * prefill worker although nobody waits for its answer. */
static void grant_of_an_ended_leader_is_still_forwarded(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        client_t clients[N];
        bt_req_key_t key;

        start_group_pair(w, &p, &d);
        submit_group(w, clients, N, 2);
        key = key_of(w, p, 0);
        if (k == 0) {
            bt_core_cancel(w->core, clients[0].gen, w->now);
            assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
        } else { /* over with its first token */
            tokens(w, p, key, 0, "a", BT_FINISH_STOP);
            assert_int_equal(clients[0].n_ends, 1);
        }
        assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
        grant(w, d, key);
        assert_int_equal(count(w, p, BT_MSG_GRANT), 1);
        for (uint32_t i = 1; i < N; i++) {
            answer(w, p, d, &clients[i], key_of(w, p, i));
        }
        ended(w, p, key);
        ended(w, d, key);
        end_world(w);
    }
}

/* Each from its own tokens on, and as no group. */
static void retry_is_for_each_choice_alone(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d1;
    client_t clients[N];

    (void)state;
    start_group_pair(w, &p, &d);
    submit_group(w, clients, N, 3);
    grant(w, d, key_of(w, d, 0));
    for (uint32_t i = 0; i < N; i++) {
        tokens(w, p, key_of(w, p, i), 0, "a", BT_FINISH_NONE);
    }
    tokens(w, d, key_of(w, d, 1), 1, "b", BT_FINISH_NONE);
    d1 = join_group_worker(w, "decode-1", BT_ROLE_DECODE, 0, 16);
    bt_core_worker_down(w->core, d, "killed", w->now);
    bt_test_expect_log_lines(1);
    for (uint32_t i = 0; i < 2; i++) {
        const bt_msg_request_t *m = request_at(w, d1, i);

        assert_int_equal(m->fanout, 0);
        assert_int_equal(m->key.attempt, 2);
    }
    /* Of the one that has two of its three tokens nothing is to be decoded. */
    assert_int_equal(count(w, d1, BT_MSG_REQUEST), 2);
    assert_consistent(w->core);
    bt_core_end_all(w->core, "enough", w->now);
    for (uint32_t i = 0; i < N; i++) {
        ended(w, p, key_of(w, p, i));
        ended(w, p, key_of(w, p, N + i));
    }
    for (uint32_t i = 0; i < 2; i++) {
        ended(w, d1, key_of(w, d1, i));
    }
    end_world(w);
}

/* A worker that has no room for all refuses them so. */
static void refused_fanout_runs_as_single_requests(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[N];

    (void)state;
    start_group_pair(w, &p, &d);
    submit_group(w, clients, N, 2);
    for (uint32_t i = 0; i < N; i++) {
        const bt_req_key_t key = key_of(w, d, i);

        failed(w, d, key, BT_ERR_BUSY, "waiting: too large");
        ended(w, d, key);
        ended(w, p, key);
        assert_consistent(w->core);
    }
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(request_at(w, d, N + i)->fanout, 0);
        assert_int_equal(key_of(w, d, N + i).attempt, 2);
        answer(w, p, d, &clients[i], key_of(w, d, N + i));
    }
    end_world(w);
}

static void local_and_one_token_fanouts_use_one_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[N];

    (void)state;
    start(w, 20);
    d = join_group_worker(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL,
                          16);
    submit_group(w, clients, N, 2);
    assert_int_equal(request_at(w, d, N - 1)->kind, BT_REQUEST_LOCAL);
    assert_int_equal(request_at(w, d, N - 1)->fanout_size, N);
    assert_int_equal(d->sched.prefill_tokens, 20);
    for (uint32_t i = 0; i < N; i++) {
        tokens(w, d, key_of(w, d, i), 0, "ab", BT_FINISH_LENGTH);
        ended(w, d, key_of(w, d, i));
    }
    end_world(w);

    start_group_pair(w, &p, &d);
    submit_group(w, clients, N, 1);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 0);
    assert_int_equal(request_at(w, p, N - 1)->fanout_size, N);
    for (uint32_t i = 0; i < N; i++) {
        tokens(w, p, key_of(w, p, i), 0, "a", BT_FINISH_LENGTH);
        ended(w, p, key_of(w, p, i));
        assert_int_equal(clients[i].n_ends, 1);
    }
    end_world(w);
}

static void submit_accepts_all_choices_or_none(void **state)
{
    const bt_gen_spec_t spec = {.prompt = prompt_of("x"),
                                .max_new = 2,
                                .sampling = bt_sampling_default()};
    const bt_gen_spec_t specs[] = {spec, spec, spec};
    client_t clients[N] = {{0}};
    void *users[] = {&clients[0], &clients[1], &clients[2]};
    world_t *w = &world;
    bt_gen_t *gens[N];

    (void)state;
    start(w, 2);
    assert_int_equal(bt_core_submit(w->core, specs, users, N, w->now, gens),
                     BT_ERR_BUSY);
    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    bt_core_destroy(w->core);
    start(w, 20);
    for (int i = 0; i <= (int)N; i++) { /* room for re-runs, and one for each */
        bt_alloc_fail_at((i == 0) ? 1 : i + (w->core->cap_joined == 0));
        assert_int_equal(bt_core_submit(w->core, specs, users, N, w->now, gens),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
    }
    assert_int_equal(atomic_load(&spec.prompt->n_refs), 1);
    bt_prompt_unref(spec.prompt);
    end_world(w);
}

#define N_MANY 64
#define LONG   100000u /* tokens: 400 KB */

static size_t memory_in_use(void)
{
    const struct mallinfo2 use = mallinfo2();

    return use.uordblks + use.hblkhd;
}

static bt_instance_t *join_large_worker(world_t *w, const char *name,
                                        bt_role_t role)
{
    bt_instance_t *worker = join_group_worker(w, name, role, 0, N_MANY);

    worker->hello.context_tokens = 2 * LONG;
    worker->sched.n_blocks = 2 * LONG;
    return worker;
}

static void fanout_prompt_is_sent_once(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t clients[N];

    (void)state;
    start(w, 20);
    p = join_group_worker(w, "prefill-0", BT_ROLE_PREFILL, 0, 16);
    d = join_group_worker(w, "decode-0", BT_ROLE_DECODE, 0, 16);
    submit_group(w, clients, N, 3);
    for (uint32_t i = 0; i < N; i++) {
        const bt_msg_request_t *m = request_at(w, p, i);

        assert_int_equal(m->n_prompt, 20);
        assert_int_equal(m->n_tokens, (i > 0) ? 0 : 20);
        m = request_at(w, d, i);
        assert_int_equal(m->n_tokens, (i > 0) ? 0 : 20);
    }
    bt_core_end_all(w->core, "enough", w->now);
    for (uint32_t i = 0; i < N; i++) {
        ended(w, p, key_of(w, p, i));
        ended(w, d, key_of(w, d, i));
    }
    end_world(w);
}

/* While they wait, run and run again. Their answers differ, and each goes on
 * from its own. */
static void fanout_prompt_blocks_are_counted_once(void **state)
{
    static client_t clients[N_MANY];
    static bt_gen_spec_t specs[N_MANY];
    size_t before = memory_in_use(); /* less that of the core itself */
    size_t without_core;
    uint32_t *ids = bt_calloc(LONG, sizeof(*ids));
    bt_prompt_t *prompt = NULL;
    void *users[N_MANY];
    bt_gen_t *gens[N_MANY];
    bt_instance_t *p, *d, *d1;
    world_t *w = &world;
    uint32_t n;

    (void)state;
    assert_non_null(ids);
    ids[LONG - 1] = 'x';
    assert_int_equal(bt_prompt_create(ids, LONG, &prompt), BT_OK);
    memset(clients, 0, sizeof(clients));
    for (uint32_t i = 0; i < N_MANY; i++) {
        specs[i] = (bt_gen_spec_t){
            .prompt = prompt, .max_new = 8, .sampling = bt_sampling_default()};
        specs[i].sampling.seed = i;
        users[i] = &clients[i];
    }
    without_core = memory_in_use();
    start(w, N_MANY);
    before += memory_in_use() - without_core;
    assert_int_equal(
        bt_core_submit(w->core, specs, users, N_MANY, w->now, gens), BT_OK);
    assert_int_equal(atomic_load(&prompt->n_refs), 1 + N_MANY);
    bt_prompt_unref(prompt); /* the call's */
    print_message("%u choices of %u tokens take %zu KB\n", N_MANY, LONG,
                  (memory_in_use() - before) / 1000);
    /* It, the room for one re-run, and their own: some 3 KB each. */
    assert_in_range(memory_in_use() - before, 0, 3 * LONG * sizeof(*ids));

    p = join_large_worker(w, "prefill-0", BT_ROLE_PREFILL);
    d = join_large_worker(w, "decode-0", BT_ROLE_DECODE);
    bt_core_tick(w->core, w->now);
    assert_true(count(w, p, BT_MSG_REQUEST) > 1);
    assert_ptr_equal(request_at(w, p, 0)->tokens, prompt->tokens);
    assert_ptr_equal(request_at(w, d, 0)->tokens, prompt->tokens);
    tokens(w, p, key_of(w, p, 0), 0, "a", BT_FINISH_NONE);
    tokens(w, p, key_of(w, p, 1), 0, "b", BT_FINISH_NONE);
    for (uint32_t i = 2; i < N_MANY; i++) {
        bt_core_cancel(w->core, gens[i], w->now);
    }
    d1 = join_large_worker(w, "decode-1", BT_ROLE_DECODE);
    n = count(w, p, BT_MSG_REQUEST);
    bt_core_worker_down(w->core, d, "killed", w->now);
    bt_test_expect_log_lines(1);
    bt_core_tick(w->core, w->now); /* one in a turn: they are long */
    assert_int_equal(count(w, d1, BT_MSG_REQUEST), 2);
    for (uint32_t i = 0; i < 2; i++) {
        const bt_msg_request_t *m = request_at(w, p, n + i);

        assert_int_equal(m->n_prompt, LONG);
        assert_int_equal(m->n_tokens, LONG + 1);
        /* It was read at once, as a link does: the fixture kept the first. */
        assert_ptr_equal(m->tokens, w->core->joined);
    }
    assert_int_equal(w->core->joined[LONG - 1], 'x');
    assert_int_equal(w->core->joined[LONG], 'b'); /* the last one sent */
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(choices_of_one_prompt_go_to_one_pair_as_a_fanout),
        BT_TEST(single_choice_is_no_fanout),
        BT_TEST(workers_without_fanout_support_get_single_requests),
        BT_TEST(choices_above_the_limit_become_several_fanouts),
        BT_TEST(choices_still_waiting_are_sent_together),
        BT_TEST(grant_of_an_ended_leader_is_still_forwarded),
        BT_TEST(retry_is_for_each_choice_alone),
        BT_TEST(refused_fanout_runs_as_single_requests),
        BT_TEST(local_and_one_token_fanouts_use_one_worker),
        BT_TEST(submit_accepts_all_choices_or_none),
        BT_TEST(fanout_prompt_is_sent_once),
        BT_TEST(fanout_prompt_blocks_are_counted_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
