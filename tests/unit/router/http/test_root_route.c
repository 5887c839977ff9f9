/* SPDX-License-Identifier: Apache-2.0 */
/* The path / : the page for people, JSON for programs; and the page's files. */
#include "common/base/status.h"
#include "router/page/page.h"
#include "tests/unit/router/request_fixture.h"

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

static void root_answers_json_to_programs(void **state)
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

static const bt_page_file_t *file_of(const char *name)
{
    const bt_page_file_t *const file = bt_page_find(name);

    BT_ASSERT_ALWAYS(file != NULL);
    return file;
}

static void root_answers_page_to_browsers_read_only(void **state)
{
    const bt_page_file_t *const index = file_of(BT_PAGE_INDEX);
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    visit(w, &ex, "text/html,application/xhtml+xml,*/*;q=0.8", "a.test:8000");
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "text/html; charset=utf-8");
    assert_non_null(strstr(ex.headers, "Vary: Accept, Accept-Encoding\n"));
    assert_non_null(strstr(ex.headers, "Cache-Control: no-cache\n"));
    assert_non_null(strstr(ex.headers, "X-Content-Type-Options: nosniff\n"));
    assert_non_null(strstr(ex.headers, "Referrer-Policy: no-referrer\n"));
    assert_int_equal(ex.out_bytes, index->plain_bytes);
    assert_memory_equal(ex.out, index->plain, index->plain_bytes);
    /* Whatever they say of themselves, it is the same. */
    visit(w, &ex, "text/html", "<script>alert('1')</script>&\"");
    assert_int_equal(ex.out_bytes, index->plain_bytes);
    assert_memory_equal(ex.out, index->plain, index->plain_bytes);
    stop(w);
}

/* Nothing in HTML runs, and nothing comes from or goes to anybody else. */
static void page_policy_allows_own_files_only(void **state)
{
    static const char *const says[] = {"default-src 'none'",
                                       "script-src 'self'",
                                       "style-src 'self'",
                                       "img-src 'self'",
                                       "connect-src 'self'",
                                       "base-uri 'none'",
                                       "form-action 'none'",
                                       "frame-ancestors 'none'",
                                       "require-trusted-types-for 'script'",
                                       "trusted-types 'none'"};
    world_t *w = &world;
    bt_exchange_t ex;
    const char *policy;

    (void)state;
    start(w, true);
    visit(w, &ex, "text/html", "h");
    policy = strstr(ex.headers, "Content-Security-Policy: ");
    assert_non_null(policy);
    for (size_t i = 0; i < BT_ARRAY_LEN(says); i++) {
        assert_non_null(strstr(policy, says[i]));
    }
    assert_null(strstr(policy, "unsafe"));
    assert_null(strstr(policy, "*"));
    assert_null(strstr(policy, "http"));
    assert_null(strstr(policy, "data:"));
    stop(w);
}

static void ask_file(world_t *w, bt_exchange_t *ex, const char *path,
                     const char *accepted, const char *known)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_GET;
    ex->path = path;
    ex->body = "";
    ex->accepted = accepted;
    ex->known = known;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    assert_int_equal(ex->n_ends, 1);
}

static void page_files_are_compressed_if_accepted(void **state)
{
    const bt_page_file_t *const file = file_of("page.js");
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    ask_file(w, &ex, "/page/page.js", NULL, NULL);
    assert_int_equal(ex.status, 200);
    assert_string_equal(ex.type, "text/javascript; charset=utf-8");
    assert_null(strstr(ex.headers, "Content-Encoding"));
    assert_non_null(strstr(ex.headers, file->tag));
    assert_non_null(strstr(ex.headers, "Vary: Accept-Encoding\n"));
    assert_memory_equal(ex.out, file->plain, file->plain_bytes);
    ask_file(w, &ex, "/page/page.js", "deflate, gzip;q=0.5", NULL);
    assert_non_null(strstr(ex.headers, "Content-Encoding: gzip\n"));
    assert_non_null(strstr(ex.headers, file->tag_packed));
    assert_int_equal(ex.out_bytes, file->packed_bytes);
    assert_memory_equal(ex.out, file->packed, file->packed_bytes);
    ask_file(w, &ex, "/page/page.js", "gzip;q=0, br", NULL);
    assert_int_equal(ex.out_bytes, file->plain_bytes);
    stop(w);
}

static void known_etag_gets_304(void **state)
{
    const bt_page_file_t *const file = file_of("page.js");
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    ask_file(w, &ex, "/page/page.js", "gzip", file->tag_packed);
    assert_int_equal(ex.status, 304);
    assert_int_equal(ex.out_bytes, 0);
    assert_non_null(strstr(ex.headers, file->tag_packed));
    /* Unpacked it is another one. */
    ask_file(w, &ex, "/page/page.js", NULL, file->tag_packed);
    assert_int_equal(ex.status, 200);
    ask_file(w, &ex, "/page/page.js", NULL, file->tag);
    assert_int_equal(ex.status, 304);
    stop(w);
}

static void unknown_page_file_gets_404(void **state)
{
    static const char *const others[] = {
        "/page/nothing.js", "/page/",           "/page",
        "/page/index.html", "/page/../page.js", "/page/sub/page.js",
        "/page/PAGE.JS"};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(others); i++) {
        ask_file(w, &ex, others[i], NULL, NULL);
        assert_int_equal(ex.status, 404);
        assert_string_equal(ex.type, "application/json");
    }
    send_to(w, &ex, BT_HTTP_POST, "/page/page.js", "{}");
    assert_int_equal(ex.status, 405);
    stop(w);
}

static void root_json_reports_model_without_workers(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    start(w, false);
    visit(w, &ex, "*/*", NULL);
    has(&ex, "\"ready\":false,\"models\":[{\"id\":\"tiny\",\"ready\":false}]");
    stop(w);
}

static void other_paths_are_not_root(void **state)
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

static void failed_allocation_answers_error_and_leaks_nothing(void **state)
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
        BT_TEST(root_answers_json_to_programs),
        BT_TEST(root_answers_page_to_browsers_read_only),
        BT_TEST(page_policy_allows_own_files_only),
        BT_TEST(page_files_are_compressed_if_accepted),
        BT_TEST(known_etag_gets_304),
        BT_TEST(unknown_page_file_gets_404),
        BT_TEST(root_json_reports_model_without_workers),
        BT_TEST(other_paths_are_not_root),
        BT_TEST(failed_allocation_answers_error_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
