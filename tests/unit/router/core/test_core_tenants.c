/* SPDX-License-Identifier: Apache-2.0 */
/* Tenants: whose turn it is among them, and how little of one stands before the
 * others at the workers. Workers have 4 seats and 10 blocks of 16 tokens. */
#include "tests/unit/router/core/core_checks.h"
#include "tests/unit/router/core/core_fixture.h"

#define N_CLIENTS 64u
#define SEATS     (4 + 4) /* of one tenant at a decode worker, and ahead */
#define PAST_MS   (WAIT_MS + 100)

static client_t clients[N_CLIENTS];
static uint32_t n_clients;

static const bt_gen_tenant_t first = {.id = 1, .weight = 1};
static const bt_gen_tenant_t second = {.id = 2, .weight = 1};

static void open_world(world_t *w)
{
    has_tenants = true;
    n_clients = 0;
    start(w, N_CLIENTS);
}

static void close_world(world_t *w)
{
    assert_consistent(w->core);
    bt_core_end_all(w->core, "the test is over", w->now);
    assert_consistent(w->core);
    bt_core_destroy(w->core);
}

/* n requests of a tenant. */
static void ask(world_t *w, const bt_gen_tenant_t *tenant, unsigned n,
                const char *text, uint32_t max_new, uint32_t priority)
{
    for (unsigned i = 0; i < n; i++) {
        client_t *c = &clients[n_clients++];
        const bt_gen_spec_t spec = {
            .prompt = prompt_of(text),
            .max_new = max_new,
            .sampling = bt_sampling_default(),
            .priority = priority,
            .tenant = *tenant,
        };

        memset(c, 0, sizeof(*c));
        assert_int_equal(submit_one(w->core, &spec, c, w->now, &c->gen), BT_OK);
        bt_prompt_unref(spec.prompt);
    }
    assert_consistent(w->core);
}

/* First letters of the prompts that it was sent, in order. */
static const char *order(const world_t *w, const bt_instance_t *to)
{
    static char letters[MAX_SENT];
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        if ((w->sent[i].to == to) && (w->sent[i].msg.type == BT_MSG_REQUEST)) {
            letters[n++] = w->sent[i].tokens[0];
        }
    }
    letters[n] = '\0';
    return letters;
}

static bt_req_key_t key_of(const world_t *w, const bt_instance_t *to,
                           unsigned n)
{
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const sent_t *s = &w->sent[i];

        if ((s->to == to) && (s->msg.type == BT_MSG_REQUEST) && (n-- == 0)) {
            return s->msg.u.request.key;
        }
    }
    fail_msg("no such request");
    return (bt_req_key_t){0};
}

/* A whole request, at both workers. */
static void serve(world_t *w, bt_instance_t *p, bt_instance_t *d, unsigned n)
{
    const bt_req_key_t key = key_of(w, d, n);

    tokens(w, p, key, 0, "x", BT_FINISH_STOP);
    ended(w, p, key);
    ended(w, d, key);
    assert_consistent(w->core);
}

static void flooding_tenant_leaves_seats_for_the_next(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 30, "a", 8, 0);
    assert_string_equal(order(w, d), "aaaaaaaa"); /* SEATS */
    assert_int_equal(n_waiting(w), 30 - SEATS);
    /* It has all seats; another one is sent at once all the same. */
    ask(w, &second, 2, "b", 8, 0);
    assert_string_equal(order(w, d), "aaaaaaaabb");
    /* However long it takes, what waits is not told that nobody is there. */
    for (unsigned ms = 0; ms < PAST_MS; ms += 50) {
        w->now += 50 * MS;
        bt_core_tick(w->core, w->now);
    }
    assert_int_equal(n_waiting(w), 30 - SEATS);
    serve(w, p, d, 0);
    assert_string_equal(order(w, d), "aaaaaaaabba");
    close_world(w);
}

/* What is sent while the worker takes nothing goes when it does, by the
 * weights. By hand, times of b and a (weight 2), which rise by 9 and 4.5: 0 0,
 * 9 0, 9 4.5, 9 9, 18 9, 18 13.5, 18 18 …, then b is alone. */
static void waiting_tenants_share_by_weight(void **state)
{
    const bt_gen_tenant_t heavy = {.id = 5, .weight = 2};
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    bt_core_worker_behind(w->core, p, true, w->now);
    ask(w, &second, 6, "b", 8, 0);
    ask(w, &heavy, 6, "a", 8, 0);
    assert_string_equal(order(w, d), "");
    bt_core_worker_behind(w->core, p, false, w->now);
    assert_string_equal(order(w, d), "baabaabaabbb");
    close_world(w);
}

static void priority_counts_within_a_tenant_only(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    bt_core_worker_behind(w->core, p, true, w->now);
    ask(w, &first, 2, "a", 8, 0);
    ask(w, &second, 2, "b", 8, 0);
    ask(w, &second, 1, "B", 8, 24);
    bt_core_worker_behind(w->core, p, false, w->now);
    assert_string_equal(order(w, d), "aBabb");
    close_world(w);
}

/* Nothing is measured: 100 ms are what a token and an iteration are guessed to
 * take, a millisecond each. 60 tokens each: two of them are 100 ms and more. */
static void prompts_sent_ahead_are_bounded_per_worker(void **state)
{
    static const char prompt[] =
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    world_t *w = &world;
    bt_instance_t *p;

    (void)state;
    assert_int_equal(sizeof(prompt) - 1, 60);
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    (void)join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 30, prompt, 1, 0);
    assert_string_equal(order(w, p), "aa");
    ask(w, &second, 1, "b", 1, 0);
    assert_string_equal(order(w, p), "aab");
    /* The next goes as soon as one is computed, before it has ended. */
    prefilled(w, p, key_of(w, p, 0));
    assert_string_equal(order(w, p), "aaba");
    tokens(w, p, key_of(w, p, 1), 0, "x", BT_FINISH_LENGTH);
    assert_string_equal(order(w, p), "aabaa");
    close_world(w);
}

/* Of the 10 blocks 5, and a request takes one. */
static void kv_share_of_a_tenant_is_enforced(void **state)
{
    const bt_gen_tenant_t half = {.id = 9, .weight = 1, .kv_percent = 50};
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &half, 7, "a", 8, 0);
    assert_string_equal(order(w, d), "aaaaa");
    ask(w, &first, 1, "b", 8, 0);
    assert_string_equal(order(w, d), "aaaaab");
    serve(w, p, d, 0);
    assert_string_equal(order(w, d), "aaaaaba");
    close_world(w);
    /* One that is larger than the share goes when nothing else of it is. */
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &half, 2, "a", 95, 0);
    assert_string_equal(order(w, d), "a");
    serve(w, p, d, 0);
    assert_string_equal(order(w, d), "aa");
    close_world(w);
}

/* All of its room was asked for, and little used: what was not is given back,
 * so it is not behind who asks for what it needs. */
static void unused_output_is_refunded(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 1, "a", 95, 0);
    ask(w, &second, 1, "b", 8, 0);
    bt_core_worker_behind(w->core, p, true, w->now);
    ask(w, &first, 2, "a", 8, 0);
    ask(w, &second, 2, "b", 8, 0);
    serve(w, p, d, 0); /* 1 + 1 of 96: times are 2 and 9, not 96 and 9 */
    bt_core_worker_behind(w->core, p, false, w->now);
    /* Its next are thought to be as short: 2 9, 4 9, 6 9. */
    assert_string_equal(order(w, d), "abaabb");
    close_world(w);
}

/* Its first answer was one token of 95: the next one, of 95, was thought to be
 * as short, and costs what it was. */
static void longer_output_is_charged_at_the_end(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 1, "a", 95, 0);
    ask(w, &second, 1, "b", 8, 0); /* 9, and never done */
    serve(w, p, d, 0);             /* 1 + 1 */
    ask(w, &first, 1, "a", 95, 0); /* 1 + 2 with it */
    key = key_of(w, d, 2);
    tokens(w, p, key, 0, "x", BT_FINISH_NONE);
    for (uint32_t i = 1; i < 20; i++) {
        tokens(w, d, key, i, "x", (i == 19) ? BT_FINISH_STOP : BT_FINISH_NONE);
    }
    ended(w, p, key);
    ended(w, d, key);
    bt_core_worker_behind(w->core, p, true, w->now);
    ask(w, &first, 1, "a", 8, 0);
    ask(w, &second, 1, "b", 8, 0);
    bt_core_worker_behind(w->core, p, false, w->now);
    assert_string_equal(order(w, d), "ababa"); /* 2 + 21 against 9 */
    close_world(w);
}

static uint32_t level_of(const world_t *w, const bt_instance_t *to, unsigned n)
{
    for (uint32_t i = 0; i < w->n_sent; i++) {
        const sent_t *s = &w->sent[i];

        if ((s->to == to) && (s->msg.type == BT_MSG_REQUEST) && (n-- == 0)) {
            return s->msg.u.request.priority;
        }
    }
    fail_msg("no such request");
    return 0;
}

/* A client's priority is not told to workers, where it would take from others.
 * Who has had less goes first there, as long as it has. */
static void tenant_with_less_work_gets_the_top_level(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 2, "aaa", 8, BT_SCHED_TOP_LEVEL); /* 11 each: 22 */
    ask(w, &second, 3, "b", 8, 0); /* from 0, that of the oldest: 9, 18, 27 */
    ask(w, &second, 1, "b", 8, BT_SCHED_TOP_LEVEL);
    ask(w, &first, 1, "a", 8, 0); /* 22 against 36 */
    assert_string_equal(order(w, p), "aabbbba");
    for (unsigned i = 0; i < 7; i++) {
        const bool less = ((i >= 2) && (i <= 4)) || (i == 6);

        assert_int_equal(level_of(w, p, i), less ? BT_SCHED_TOP_LEVEL : 0);
        assert_int_equal(level_of(w, d, i), less ? BT_SCHED_TOP_LEVEL : 0);
    }
    close_world(w);
}

static void retry_is_not_charged_twice(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    ask(w, &first, 1, "a", 8, 0);
    ask(w, &second, 1, "b", 8, 0);
    bt_core_worker_behind(w->core, p, true, w->now);
    failed(w, d, key_of(w, d, 0), BT_ERR_PEER_LOST, "none");
    ask(w, &second, 1, "b", 8, 0);
    ask(w, &first, 1, "A", 8, 0);
    assert_consistent(w->core);
    w->now += BT_CORE_HOLD_MS * MS;
    bt_core_worker_behind(w->core, p, false, w->now);
    bt_core_tick(w->core, w->now);
    /* Both had 9: a first, again, at no cost, so A before the second b. */
    assert_string_equal(order(w, d), "abaAb");
    close_world(w);
}

static void idle_tenants_are_freed(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    uint32_t n = 0;
    bt_list_t *head, *pos, *tmp;

    (void)state;
    open_world(w);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    for (unsigned i = 0; i < 50; i++) {
        const bt_gen_tenant_t tenant = {.id = 100 + i, .weight = 1};

        ask(w, &tenant, 1, "a", 8, 0);
        serve(w, p, d, i);
    }
    BT_HMAP_FOR_EACH_BUCKET(head, &w->core->flows)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            n++;
        }
    }
    assert_in_range(n, 0, 3);
    assert_all_back(w);
    close_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(flooding_tenant_leaves_seats_for_the_next),
        BT_TEST(waiting_tenants_share_by_weight),
        BT_TEST(priority_counts_within_a_tenant_only),
        BT_TEST(prompts_sent_ahead_are_bounded_per_worker),
        BT_TEST(kv_share_of_a_tenant_is_enforced),
        BT_TEST(unused_output_is_refunded),
        BT_TEST(longer_output_is_charged_at_the_end),
        BT_TEST(tenant_with_less_work_gets_the_top_level),
        BT_TEST(retry_is_not_charged_twice),
        BT_TEST(idle_tenants_are_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
