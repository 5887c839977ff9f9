/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of tenants: who gets in, and what a call costs its tenant. */
#include "router/frontend/priority.h"
#include "tests/unit/router/request_fixture.h"

#include "common/base/status.h"
#include "router/core/core_priv.h"

/* printf %s first-key | b2sum -l 256; the same of second-key */
#define FIRST "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc"
#define SECOND \
    "b403ac760ffbe9c42139816644770e85e55a2b13822d72508807979399f87ca8"
#define ASK "{\"prompt\":\"Hi\",\"max_tokens\":6,\"priority\":-9}"

static char keys_path[] = "/tmp/baton-test-keys-XXXXXX";

static void open_with(world_t *w, const char *limits)
{
    FILE *file = fopen(keys_path, "w");

    assert_non_null(file);
    fprintf(file,
            "tenant a %s\ntenant b admin\nkey a blake2b:" FIRST
            "\nkey b blake2b:" SECOND "\n",
            limits);
    assert_int_equal(fclose(file), 0);
    api_keys = keys_path;
    start(w, true);
}

static void ask(world_t *w, bt_exchange_t *ex, const char *key,
                const char *path, const char *body)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_POST;
    ex->path = path;
    ex->body = body;
    ex->api_key = key;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
}

static bt_tenant_t *tenant_of(world_t *w, const char *name)
{
    for (uint32_t i = 0; i < w->front.tenants.file.n_tenants; i++) {
        if (strcmp(w->front.tenants.of_file[i]->name, name) == 0) {
            return w->front.tenants.of_file[i];
        }
    }
    fail_msg("no tenant %s", name);
    return NULL;
}

static uint64_t left(world_t *w, const char *name)
{
    return bt_sched_bucket_left(&tenant_of(w, name)->bucket, bt_now_us());
}

static void routes_need_key_unless_table_allows_anybody(void **state)
{
    static const char *const open[] = {"/v2/health/live", "/v2/health/ready",
                                       "/health", "/ping"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_with(w, "");
    for (size_t i = 0; i < BT_ARRAY_LEN(open); i++) {
        get(w, &ex, open[i]);
        assert_int_equal(ex.status, 200);
    }
    get(w, &ex, "/v1/models");
    assert_int_equal(ex.status, 401);
    assert_non_null(
        strstr(ex.headers, "WWW-Authenticate: Bearer realm=\"baton\"\n"));
    has(&ex, "\"code\":\"invalid_api_key\"");
    ask(w, &ex, "wrong", COMPLETIONS, ASK);
    assert_int_equal(ex.status, 401);
    ask(w, &ex, "first-key", "/v2/logging", "{}");
    assert_int_equal(ex.status, 403);
    ask(w, &ex, "second-key", "/v2/logging", "{}");
    assert_int_equal(ex.status, 200);
    assert_int_equal(metric(w, "\nbaton_requests_unauthorized_total "), 2);
    stop(w);
}

static void cluster_routes_need_admin_key(void **state)
{
    static const char *const paths[] = {"/v2/cluster", "/v2/cluster/events",
                                        "/v2/cluster/requests",
                                        "/v2/cluster/requests/1"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_with(w, "");
    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        get(w, &ex, paths[i]);
        assert_int_equal(ex.status, 401);
        ask(w, &ex, "first-key", paths[i], "");
        assert_int_equal(ex.status, 403);
    }
    ask(w, &ex, "second-key", "/v2/cluster/requests", "");
    assert_int_equal(ex.status, 405); /* it may read, not post */
    assert_int_equal(w->door.watchers.n, 0);
    stop(w);
}

#define DEFAULT_LEVEL (BT_SCHED_TOP_LEVEL - (BT_PRIORITY_DEFAULT - 1))

static uint32_t priority_of(world_t *w, unsigned i)
{
    const bt_gen_t *gen = bt_gen_find(w->core, request(w, i)->key.id);

    assert_non_null(gen);
    return gen->turn.priority;
}

static void tenants_have_own_cache_namespace_and_priority(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex[2];

    (void)state;
    open_with(w, "priority=4");
    w->config.client_priority = true;
    ask(w, &ex[0], "first-key", COMPLETIONS, ASK);
    ask(w, &ex[1], "second-key", COMPLETIONS, ASK);
    assert_int_equal(priority_of(w, 0), DEFAULT_LEVEL + 4); /* not 9 */
    assert_int_equal(priority_of(w, 1), DEFAULT_LEVEL + 9);
    /* No client's counts where others' requests are: the second has had less.
     */
    assert_int_equal(request(w, 0)->priority, 0);
    assert_int_equal(request(w, 1)->priority, BT_SCHED_TOP_LEVEL);
    assert_false(bt_hash128_equal(request(w, 0)->space, request(w, 1)->space));
    assert_true((request(w, 0)->space.lo | request(w, 0)->space.hi) != 0);
    answer(w, 0, "abcdef", BT_FINISH_LENGTH);
    answer(w, 1, "abcdef", BT_FINISH_LENGTH);
    assert_int_equal(ex[0].status, 200);
    assert_int_equal(ex[1].status, 200);
    stop(w);
}

/* One of 8 slots is kept for tenants that have no more than one. */
static void flooding_tenant_leaves_queue_slots_to_others(void **state)
{
    bt_exchange_t ex[8], refused, other, last;
    world_t *w = &world;

    (void)state;
    open_with(w, "");
    for (size_t i = 0; i < 7; i++) {
        ask(w, &ex[i], "first-key", COMPLETIONS, ASK);
    }
    ask(w, &refused, "first-key", COMPLETIONS, ASK);
    assert_int_equal(refused.status, 429);
    has(&refused, "7 requests are in flight of 8, and the rest is for others");
    ask(w, &other, "second-key", COMPLETIONS, ASK);
    assert_int_equal(tenant_of(w, "b")->n_under_way, 1);
    ask(w, &last, "second-key", COMPLETIONS, ASK);
    assert_int_equal(last.status, 429);
    has(&last, "8 requests are in flight and the limit is 8");
    for (unsigned i = 0; i < 8; i++) {
        answer(w, i, "abcdef", BT_FINISH_LENGTH);
    }
    assert_int_equal(ex[6].status, 200);
    assert_int_equal(other.status, 200);
    stop(w);
}

/* By hand: a bucket of 30. "Hi" has 2 tokens, so a call of 6 takes 8, and one
 * that stops after 3 gives 3 back. */
static void unused_token_budget_is_refunded(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex, other;

    (void)state;
    open_with(w, "tokens-per-second=1 burst-tokens=30 requests=2");
    ask(w, &ex, "first-key", COMPLETIONS, ASK);
    assert_int_equal(left(w, "a"), 22);
    assert_int_equal(tenant_of(w, "a")->n_under_way, 1);
    answer(w, 0, "abc", BT_FINISH_STOP);
    assert_int_equal(ex.status, 200);
    assert_non_null(strstr(ex.headers, "x-ratelimit-remaining-tokens: 25\n"));
    assert_int_equal(left(w, "a"), 25);
    assert_int_equal(tenant_of(w, "a")->n_under_way, 0);

    /* Two answers of one prompt: 2 + 12. The third that runs is too many. */
    ask(w, &ex, "first-key", COMPLETIONS,
        "{\"prompt\":\"Hi\",\"max_tokens\":6,\"n\":2}");
    assert_int_equal(left(w, "a"), 11);
    ask(w, &other, "first-key", COMPLETIONS, ASK);
    assert_int_equal(other.status, 429);
    has(&other, "\"type\":\"requests\"");
    has(&other, "\"code\":\"rate_limit_exceeded\"");
    assert_non_null(strstr(other.headers, "Retry-After: "));
    /* Its client leaves: what was not generated comes back, but the prompt. */
    bt_door_gone(&w->door, &ex);
    assert_int_equal(left(w, "a"), 23);
    assert_int_equal(tenant_of(w, "a")->n_under_way, 0);

    ask(w, &other, "first-key", COMPLETIONS,
        "{\"prompt\":\"Hi\",\"max_tokens\":25}");
    assert_int_equal(other.status, 429);
    has(&other, "\"type\":\"tokens\"");
    assert_non_null(strstr(other.headers, "Retry-After: 4\n"));
    assert_int_equal(left(w, "a"), 23);
    assert_int_equal(
        metric(w,
               "baton_tenant_refused_total{tenant=\"a\",reason=\"tokens\"} "),
        1);
    assert_int_equal(metric(w, "baton_tenant_requests_total{tenant=\"a\"} "),
                     3);
    assert_int_equal(
        metric(w, "baton_tenant_generation_tokens_total{tenant=\"a\"} "), 3);
    assert_int_equal(
        metric(w, "baton_tenant_requests_in_flight{tenant=\"a\"} "), 0);
    stop(w);
}

/* What it asked for is refused after it was counted, or never was: nothing of
 * it stays counted. */
static void refused_request_takes_no_token_budget(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_with(w, "tokens-per-second=1 burst-tokens=30");
    ask(w, &ex, "first-key", COMPLETIONS, "{\"prompt\":\"Hi\",\"n\":-1}");
    assert_int_equal(ex.status, 400);
    ask(w, &ex, "first-key", COMPLETIONS,
        "{\"prompt\":\"Hi\",\"max_tokens\":2,\"model\":\"none\"}");
    assert_int_equal(ex.status, 404);
    ask(w, &ex, "first-key", COMPLETIONS,
        "{\"prompt\":\"Hi\",\"max_tokens\":2,\"n\":9}"); /* max_queue is 8 */
    assert_int_equal(ex.status, 429);
    assert_int_equal(left(w, "a"), 30);
    assert_int_equal(tenant_of(w, "a")->n_under_way, 0);
    assert_int_equal(
        metric(w,
               "baton_tenant_refused_total{tenant=\"a\",reason=\"server\"} "),
        1);
    for (int n = 1; n < 60; n++) { /* wherever memory is short */
        bt_alloc_fail_at(n);
        ask(w, &ex, "first-key", COMPLETIONS,
            "{\"prompt\":\"Hi\",\"max_tokens\":2}");
        bt_alloc_fail_at(0);
        if (ex.n_ends == 0) {
            bt_door_gone(&w->door, &ex);
        }
        assert_int_equal(tenant_of(w, "a")->n_under_way, 0);
        bt_sched_bucket_init(&tenant_of(w, "a")->bucket, 1, 30, bt_now_us());
        w->n_sent = 0;
    }
    stop(w);
}

/* A token of a prompt takes 2 ms, an iteration of one sequence 9. */
static void measured(world_t *w)
{
    bt_msg_t stats = {.type = BT_MSG_STATS};

    stats.u.stats.max_requests = 4;
    stats.u.stats.rates.prefill_token_ns = 2000000;
    assert_int_equal(bt_core_message(w->core, w->p, &stats, bt_now_us()),
                     BT_OK);
    stats.u.stats.rates =
        (bt_sched_rates_t){.decode_step_ns = 8000000, .decode_seq_ns = 1000000};
    assert_int_equal(bt_core_message(w->core, w->d, &stats, bt_now_us()),
                     BT_OK);
}

/* "Hello, you" has 10 tokens: 20 ms. */
#define LONG_ASK "{\"prompt\":\"Hello, you\",\"max_tokens\":6"

static void tenant_slo_applies_to_requests_without_targets(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex[3];

    (void)state;
    open_with(w, "ttft-target-ms=19 itl-target-ms=30");
    measured(w);
    ask(w, &ex[0], "first-key", COMPLETIONS, LONG_ASK "}");
    assert_int_equal(ex[0].status, 429);
    has(&ex[0], "would be 20 ms, more than the target of 19 ms");
    has(&ex[0], "\"param\":\"ttft_target_ms\"");
    /* Its own is what counts, and the other is its tenant's yet. */
    ask(w, &ex[0], "first-key", COMPLETIONS,
        LONG_ASK ",\"ttft_target_ms\":20}");
    assert_int_equal(ex[0].n_ends, 0);
    assert_int_equal(bt_gen_find(w->core, request(w, 0)->key.id)->target.itl_ms,
                     30);
    bt_door_gone(&w->door, &ex[0]);
    ended(w, 0);
    ask(w, &ex[1], "first-key", COMPLETIONS,
        LONG_ASK ",\"ttft_target_ms\":20,\"itl_target_ms\":8}");
    assert_int_equal(ex[1].status, 429);
    has(&ex[1], "\"param\":\"itl_target_ms\"");
    /* The other tenant has none. */
    ask(w, &ex[2], "second-key", COMPLETIONS, LONG_ASK "}");
    assert_int_equal(ex[2].n_ends, 0);
    assert_int_equal(bt_gen_find(w->core, request(w, 1)->key.id)->target.itl_ms,
                     0);
    answer(w, 1, "abcdef", BT_FINISH_LENGTH);
    assert_int_equal(ex[2].status, 200);
    stop(w);
}

static int begin(void **state)
{
    const int fd = mkstemp(keys_path);

    if (fd >= 0) {
        close(fd);
    }
    return (fd < 0) ? -1 : make_models(state);
}

static int finish(void **state)
{
    return unlink(keys_path) | remove_models(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(routes_need_key_unless_table_allows_anybody),
        BT_TEST(cluster_routes_need_admin_key),
        BT_TEST(tenants_have_own_cache_namespace_and_priority),
        BT_TEST(flooding_tenant_leaves_queue_slots_to_others),
        BT_TEST(unused_token_budget_is_refunded),
        BT_TEST(refused_request_takes_no_token_budget),
        BT_TEST(tenant_slo_applies_to_requests_without_targets),
    };

    return cmocka_run_group_tests(tests, begin, finish);
}
