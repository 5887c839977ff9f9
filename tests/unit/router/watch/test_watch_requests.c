/* SPDX-License-Identifier: Apache-2.0 */
/* What live views read of requests that are over, and the page of the cluster,
 * from the route to the last byte. */
#include "common/base/json_doc.h"
#include "tests/unit/router/request_fixture.h"

#define PATIENCE_MS 60000

static int begin(void **state)
{
    (void)state;
    start(&world, true);
    return 0;
}

static int end(void **state)
{
    (void)state;
    stop(&world);
    return 0;
}

static void ask(bt_exchange_t *ex, const char *path, const char *query)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_GET;
    ex->path = path;
    ex->query = query;
    ex->door = &world.door;
    bt_door_request(&world.door, ex);
}

static void complete(uint32_t n, const char *text)
{
    static bt_exchange_t client;

    post(&world, &client, "/v1/completions",
         "{\"prompt\":\"zqzqzq\",\"max_tokens\":3}");
    answer(&world, n, text, BT_FINISH_LENGTH);
    assert_int_equal(client.status, 200);
}

/* A number of a document, in thousandths. */
static uint64_t us_of(const bt_json_doc_t *doc, const bt_json_node_t *node,
                      const char *key)
{
    double ms = -1;

    assert_true(bt_json_as_double(bt_json_get(doc, node, key), &ms));
    return (uint64_t)(ms * 1000 + 0.5);
}

static void ended_request_is_listed_and_its_phases_add_up(void **state)
{
    static bt_exchange_t list, one;
    const bt_json_node_t *phases, *phase;
    char why[256];
    bt_json_doc_t *doc = NULL;
    uint64_t at_us = 0;

    (void)state;
    complete(0, "xyz");
    ask(&list, "/v2/cluster/requests", "");
    assert_int_equal(list.status, 200);
    has(&list, "{\"kept\":1,\"requests\":[{\"id\":\"1\",\"answer_id\":\"cmpl-");
    has(&list, "\"model\":\"tiny\",\"tenant\":\"default\",\"chat\":false,"
               "\"stream\":false,");
    has(&list,
        "\"prompt_tokens\":6,\"reused_tokens\":0,\"output_tokens\":3,"
        "\"draft_tokens\":0,\"accepted_tokens\":0,\"finish\":\"length\",\"http_status\":null,\"trouble\":null,"
        "\"attempts\":1,\"prefill\":\"prefill-0\","
        "\"decode\":\"decode-0\"}]}");
    ask(&one, "/v2/cluster/requests/1", "");
    assert_int_equal(one.status, 200);
    assert_int_equal(
        bt_json_doc_parse(one.out, one.out_bytes, why, sizeof(why), &doc),
        BT_OK);
    phases = bt_json_get(doc, bt_json_doc_root(doc), "phases");
    assert_true(phases->n > 1);
    phase = bt_json_first(phases);
    for (uint32_t i = 0; i < phases->n; i++) {
        assert_int_equal(us_of(doc, phase, "start_ms"), at_us);
        at_us += us_of(doc, phase, "length_ms");
        phase = bt_json_next(doc, phase);
    }
    assert_int_equal(us_of(doc, bt_json_doc_root(doc), "duration_ms"), at_us);
    bt_json_doc_free(doc);
    has(&one, "\"tries\":[{\"number\":1,");
    has(&one, "\"prefill\":{\"worker\":\"prefill-0\",\"why\":\"only one\","
              "\"of_workers\":1,\"ahead_requests\":0,\"ahead_tokens\":0,"
              "\"ahead_ms\":0,\"held_tokens\":0},"
              "\"decode\":{\"worker\":\"decode-0\",\"why\":\"only one\","
              "\"of_workers\":1,\"seats_used\":0,\"seats\":4,"
              "\"blocks_used\":0,\"blocks\":100,\"held_tokens\":0},"
              "\"ended\":null}]}");
    assert_null(strstr(one.out, "zqz"));
    assert_null(strstr(one.out, "xyz"));
}

static void texts_are_exposed_where_enabled(void **state)
{
    static bt_exchange_t one;

    (void)state;
    complete(0, "abc");
    ask(&one, "/v2/cluster/requests/1", "");
    has(&one, "\"prompt_text\":null,\"answer_text\":null,");
    world.config.expose_request_text = true;
    complete(1, "abc");
    ask(&one, "/v2/cluster/requests/2", "");
    has(&one, "\"prompt_text\":\"zqzqzq\",\"answer_text\":\"abc\",");
    /* The list stays without them. */
    ask(&one, "/v2/cluster/requests", "");
    assert_null(strstr(one.out, "zqz"));
}

static void invalid_filters_are_refused_by_name(void **state)
{
    static const struct {
        const char *query, *why;
    } wrong[] = {
        {"slow=1", "slow: there is no such filter"},
        {"slow_ms=", "slow_ms: milliseconds"},
        {"slow_ms=-1", "slow_ms: milliseconds"},
        {"slow_ms=1.5", "slow_ms: milliseconds"},
        {"slow_ms=86400001", "slow_ms: milliseconds"},
        {"failed=yes", "failed: 0 or 1"},
        {"missed=", "missed: 0 or 1"},
        {"limit=0", "limit: a number from 1 to 256"},
        {"limit=257", "limit: a number from 1 to 256"},
        {"before=x", "before: the id of a request"},
        {"before=99999999999999999999", "before: the id of a request"},
        {"model=%zz", "malformed"},
    };
    static bt_exchange_t ex;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        ask(&ex, "/v2/cluster/requests", wrong[i].query);
        assert_int_equal(ex.status, 400);
        has(&ex, wrong[i].why);
    }
}

static void filters_reach_the_list(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    complete(0, "abc");
    complete(1, "abc");
    ask(&ex, "/v2/cluster/requests", "limit=1&model=tiny&failed=0");
    has(&ex, "\"id\":\"2\"");
    assert_null(strstr(ex.out, "\"id\":\"1\""));
    ask(&ex, "/v2/cluster/requests", "before=2");
    has(&ex, "\"id\":\"1\"");
    assert_null(strstr(ex.out, "\"id\":\"2\""));
    ask(&ex, "/v2/cluster/requests", "model=other");
    has(&ex, "{\"kept\":2,\"requests\":[]}");
    ask(&ex, "/v2/cluster/requests", "failed=1");
    has(&ex, "\"requests\":[]}");
}

static void unknown_request_is_not_found(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    ask(&ex, "/v2/cluster/requests/1", "");
    assert_int_equal(ex.status, 404);
    has(&ex, "request 1 is not among the latest that ended");
}

static void retry_is_explained_in_its_try_and_as_an_event(void **state)
{
    static bt_exchange_t client, one;
    const bt_instance_t *lost = world.d;

    (void)state;
    post(&world, &client, "/v1/completions",
         "{\"prompt\":\"abc\",\"max_tokens\":3}");
    tokens(&world, world.p, 0, 0, "x", BT_FINISH_NONE);
    bt_core_worker_down(world.core, world.d, "it was killed", bt_now_us());
    assert_ptr_not_equal(lost, NULL);
    bt_frontend_end_all(&world.front, "the end", bt_now_us());
    {
        const bt_msg_t msg = {.type = BT_MSG_ENDED,
                              .u.ended = {.key = world.sent[0].key}};

        assert_int_equal(
            bt_core_message(world.core, world.p, &msg, bt_now_us()), BT_OK);
    }
    ask(&one, "/v2/cluster/requests/1", "");
    assert_int_equal(one.status, 200);
    has(&one, "\"finish\":\"error\",\"http_status\":503,");
    has(&one, "\"ended\":\"decode worker decode-0 was lost in phase ");
    /* Joined, ready, lost, not ready: seven. */
    assert_int_equal(world.front.watch->events.n_ever, 8);
    assert_int_equal(bt_events_at(&world.front.watch->events, 8)->kind,
                     BT_EVENT_REQUEST_RERUN);
    assert_int_equal(bt_events_at(&world.front.watch->events, 8)->request, 1);
}

/* As the event loop does. */
static void step_until_answered(const bt_exchange_t *ex)
{
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

    while (ex->n_ends == 0) {
        struct pollfd fd = {.fd = bt_pool_fd(world.front.pool),
                            .events = POLLIN};

        if (!bt_pool_next(world.front.pool)) {
            assert_true(bt_now_ms() < end_ms);
            assert_int_not_equal(poll(&fd, 1, PATIENCE_MS), 0);
        }
    }
}

static void page_has_current_state_and_history(void **state)
{
    static bt_exchange_t ex;
    char why[256] = "";
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root;

    (void)state;
    complete(0, "abc");
    bt_history_tick(world.front.watch->history,
                    world.front.watch->history->end_us, 1700000000000);
    ask(&ex, "/v2/cluster", "");
    step_until_answered(&ex);
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "application/json");
    assert_int_equal(
        bt_json_doc_parse(ex.out, ex.out_bytes, why, sizeof(why), &doc), BT_OK);
    root = bt_json_doc_root(doc);
    assert_int_equal(bt_json_get(doc, root, "workers")->n, 2);
    assert_int_equal(bt_json_get(doc, root, "events")->n, 4);
    assert_true(bt_json_is(
        bt_json_get(doc, bt_json_get(doc, root, "router"), "state"), "ready"));
    bt_json_doc_free(doc);
    has(&ex, "\"history\":{\"step_ms\":5000,\"unix_ms\":[1700000000000],");
    has(&ex, "\"model\":\"tiny\",\"begun\":[1],\"ended\":[1],");
    has(&ex, "\"in_tokens\":[6],\"out_tokens\":[3],");
    has(&ex, "\"expected\":null,\"launched\":false,\"restarts\":null,");
}

static void missing_workers_are_listed(void **state)
{
    static bt_exchange_t ex;
    static bt_admin_process_t processes[] = {
        {.name = "prefill-0",
         .model = "tiny",
         .program = BT_ADMIN_PROGRAM_PREFILL,
         .role = BT_ADMIN_ROLE_PREFILL,
         .state = BT_ADMIN_PROCESS_READY,
         .restarts = 2},
        {.name = "decode-7",
         .model = "tiny",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .role = BT_ADMIN_ROLE_DECODE,
         .state = BT_ADMIN_PROCESS_WAITING,
         .why = "it ended",
         .restarts = 5},
        {.name = "decode-8",
         .model = "tiny",
         .program = BT_ADMIN_PROGRAM_DECODE,
         .role = BT_ADMIN_ROLE_DECODE,
         .state = BT_ADMIN_PROCESS_STOPPED},
    };
    static bt_admin_model_t models[] = {
        {.name = "tiny", .path = "/m", .decode = 2, .loaded = true}};
    const bt_admin_document_t launcher = {.has_launcher = true,
                                          .models = models,
                                          .n_models = 1,
                                          .processes = processes,
                                          .n_processes = 3};

    (void)state;
    world.front.members.launcher = &launcher;
    ask(&ex, "/v2/cluster", "");
    step_until_answered(&ex);
    has(&ex, "\"expected\":true,\"launched\":false,\"restarts\":2,");
    has(&ex, "\"expected\":false,\"launched\":false,\"restarts\":null,");
    has(&ex, "{\"name\":\"decode-7\",\"id\":null,\"model\":\"tiny\","
             "\"role\":\"decode\",\"state\":\"missing\",\"expected\":true,"
             "\"launched\":true,\"restarts\":5,\"process\":\"waiting\","
             "\"since_ms\":0,\"why\":\"it ended\"}");
    assert_null(strstr(ex.out, "\"name\":\"decode-8\",\"id\""));
    has(&ex,
        "{\"name\":\"decode-8\",\"program\":\"decode\",\"role\":\"decode\",");
    has(&ex, "{\"name\":\"tiny\",\"loaded\":true,\"path\":\"/m\",\"prefill\":0,"
             "\"decode\":2,\"both\":0,\"ready\":true,");
    world.front.members.launcher = NULL;
}

static void page_without_memory_answers_an_error(void **state)
{
    static bt_exchange_t ex;

    (void)state;
    for (int n = 2; n < 6; n++) { /* 1 is the visit's */
        bt_alloc_fail_at(n);
        ask(&ex, "/v2/cluster", "");
        bt_alloc_fail_at(0);
        step_until_answered(&ex);
        assert_int_equal(ex.status, 503);
        has(&ex, "out of memory");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
        TEST(ended_request_is_listed_and_its_phases_add_up),
        TEST(texts_are_exposed_where_enabled),
        TEST(invalid_filters_are_refused_by_name),
        TEST(filters_reach_the_list),
        TEST(unknown_request_is_not_found),
        TEST(retry_is_explained_in_its_try_and_as_an_event),
        TEST(page_has_current_state_and_history),
        TEST(missing_workers_are_listed),
        TEST(page_without_memory_answers_an_error),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
