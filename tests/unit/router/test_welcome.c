/* SPDX-License-Identifier: Apache-2.0 */
/* The path / : a page for people, JSON for programs. */
#include "common/base/assert.h"
#include "tests/unit/router/call_fixture.h"

static void visit(world_t *w, bt_exchange_t *ex, const char *accept,
                  const char *host)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_GET;
    ex->path = "/";
    ex->body = "";
    ex->accept = accept;
    ex->host = host;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    assert_int_equal(ex->n_ends, 1);
}

static void programs_get_json(void **state)
{
    static const char *const accepts[] = {NULL, "*/*", "application/json",
                                          "text/html;q=0.5, application/json"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(accepts); i++) {
        visit(w, &ex, accepts[i], "a.test:8000");
        assert_int_equal(ex.status, 200);
        assert_string_equal(ex.type, "application/json");
        assert_non_null(strstr(ex.headers, "Vary: Accept\n"));
        assert_int_equal(
            strncmp(ex.out, "{\"name\":\"baton\",\"version\":\"", 27), 0);
        has(&ex, ",\"ready\":true,\"models\":[{\"id\":\"tiny\",\"ready\":true}]"
                 ",\"routes\":{\"openai\":\"/v1\",\"triton\":\"/v2\","
                 "\"metrics\":\"/metrics\",\"health\":\"/health\"}}");
    }
    stop(w);
}

static void people_get_a_page_that_nobody_writes_into(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    visit(w, &ex, "text/html,application/xhtml+xml,*/*;q=0.8", "a.test:8000");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "text/html; charset=utf-8");
    assert_non_null(strstr(ex.headers, "Vary: Accept\n"));
    assert_non_null(strstr(ex.headers, "X-Content-Type-Options: nosniff\n"));
    assert_non_null(strstr(ex.headers, "Content-Security-Policy: default-src "
                                       "'none';"));
    has(&ex, "<li><b>tiny</b>\n");
    has(&ex, "<code>http://a.test:8000/v1</code>");
    has(&ex, "\"model\": \"tiny\"");
    visit(w, &ex, "text/html", "<script>alert('1')</script>&\"");
    assert_null(strstr(ex.out, "<script"));
    has(&ex, "http://&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;"
             "&quot;/v1");
    stop(w);
}

static void a_model_without_workers_is_told_as_such(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, false);
    w->door.secure = true;
    snprintf(w->door.http_at, sizeof(w->door.http_at), "127.0.0.1:1");
    visit(w, &ex, "*/*", NULL);
    has(&ex, "\"ready\":false,\"models\":[{\"id\":\"tiny\",\"ready\":false}]");
    visit(w, &ex, "text/html", NULL);
    has(&ex, "<b>tiny</b> (waits for its workers)\n");
    has(&ex, "<code>https://127.0.0.1:1/v1</code>");
    stop(w);
}

static void only_the_root_is_the_root(void **state)
{
    static const char *const others[] = {"*", "//", "/x", "/index.html"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        send_to(w, &ex, BT_HTTP_GET, others[i], "");
        assert_int_equal(ex.status, 404);
    }
    send_to(w, &ex, BT_HTTP_POST, "/", "{}");
    assert_int_equal(ex.status, 405);
    assert_non_null(strstr(ex.headers, "Allow: GET, HEAD\n"));
    stop(w);
}

static void a_failed_allocation_is_an_answer_and_leaks_nothing(void **state)
{
    static const char *const accepts[] = {"*/*", "text/html"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(accepts); i++) {
        int nth = 0;

        start(w, true);
        do {
            bt_strbuf_fini(&w->door.out);
            bt_strbuf_init(&w->door.out, BT_ANSWER_LIMIT);
            bt_alloc_fail_at(++nth);
            visit(w, &ex, accepts[i], "h");
            assert_true((ex.status == 200) || (ex.status == 503));
            assert_true(nth < 100);
        } while (ex.status != 200);
        bt_alloc_fail_at(0);
        assert_true(nth > 1);
        stop(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(programs_get_json),
        BT_TEST(people_get_a_page_that_nobody_writes_into),
        BT_TEST(a_model_without_workers_is_told_as_such),
        BT_TEST(only_the_root_is_the_root),
        BT_TEST(a_failed_allocation_is_an_answer_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
