/* SPDX-License-Identifier: Apache-2.0 */
/* What --otlp-traces-endpoint is made of: URL, headers, answers, waits, queue.
 * Expected values are worked by hand from OTLP 1.x and RFC 9110 and 9112. */
#include "tests/support/testsupport.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/config/otlp_url.h"
#include "router/otlp/answer.h"
#include "router/otlp/headers.h"
#include "router/otlp/queue.h"
#include "router/otlp/retry.h"

/* ---- the URL ---- */

static void a_url_is_taken_apart_and_v1_traces_is_added_to_a_base(void **state)
{
    static const struct {
        const char *url, *host, *port, *authority, *path;
    } cases[] = {
        {"http://localhost:4318", "localhost", "4318", "localhost:4318",
         "/v1/traces"},
        {"http://localhost:4318/", "localhost", "4318", "localhost:4318",
         "/v1/traces"},
        {"http://c.example/v1/traces", "c.example", "80", "c.example",
         "/v1/traces"},
        {"HTTP://c.example/a/b/", "c.example", "80", "c.example",
         "/a/b/v1/traces"},
        {"http://c:1/a/v1/traces/", "c", "1", "c:1", "/a/v1/traces"},
        {"http://[::1]:4318/x", "::1", "4318", "[::1]:4318", "/x/v1/traces"},
        {"http://[fd00::7]", "fd00::7", "80", "[fd00::7]", "/v1/traces"},
        {"https://c.example", "c.example", "443", "c.example", "/v1/traces"},
        {"HTTPS://c:4318/x", "c", "4318", "c:4318", "/x/v1/traces"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_otlp_url_t url;
        const char *why = "";

        assert_int_equal(bt_otlp_url_read(cases[i].url, &url, &why), BT_OK);
        assert_int_equal(url.is_tls, tolower(cases[i].url[4]) == 's');
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.port, cases[i].port);
        assert_string_equal(url.authority, cases[i].authority);
        assert_string_equal(url.path, cases[i].path);
    }
}

static void what_is_no_such_url_is_refused_with_a_reason(void **state)
{
    static const struct {
        const char *url, *word;
    } cases[] = {
        {"ftp://c.example", "does not begin with http:// or https://"},
        {"https:c.example", "does not begin with"},
        {"", "http://"},
        {"localhost:4318", "http://"},
        {"grpc://localhost:4317", "http://"},
        {"http://", "no host"},
        {"http://:4318", "no host"},
        {"http://a b", "no host"},
        {"http://a\r\nX: y", "no host"},
        {"http://user:secret@c.example", "--otlp-headers-file"},
        {"http://c.example:", "no port"},
        {"http://c.example:0", "no port"},
        {"http://c.example:65536", "no port"},
        {"http://c.example:12x", "no port"},
        {"http://[::1", "']'"},
        {"http://[::1]x", "more behind its host"},
        {"http://c.example/?a=b", "'?'"},
        {"http://c.example#x", "'?'"},
        {"http://c.example/a\r\nX: y", "path"},
    };
    char text[700] = "http://c.example/";

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_otlp_url_t url;
        const char *why = "";

        if ((bt_otlp_url_read(cases[i].url, &url, &why) == BT_OK) ||
            (strstr(why, cases[i].word) == NULL)) {
            fail_msg("%s: %s", cases[i].url, why);
        }
    }
    memset(text + strlen(text), 'a', 600);
    for (size_t i = 0; i < 2; i++) {
        bt_otlp_url_t url;
        const char *why = "";

        assert_int_not_equal(bt_otlp_url_read(text, &url, &why), BT_OK);
        memset(text + strlen("http://"), 'a', 600); /* of the host */
    }
}

/* ---- headers ---- */

static void headers_are_written_as_a_request_has_them(void **state)
{
    static const char file[] = "# of the collector\n\n"
                               "Authorization:   Bearer a:b \t\r\n"
                               "x-scope-orgid:baton";
    char why[BT_OTLP_HEADERS_WHY_BYTES] = "";
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(bt_otlp_headers_parse(file, strlen(file), &out, why),
                     BT_OK);
    assert_string_equal(out.data, "Authorization: Bearer a:b\r\n"
                                  "x-scope-orgid: baton\r\n");
    bt_strbuf_fini(&out);
}

static void a_header_that_would_be_something_else_is_refused(void **state)
{
    static const char *const files[] = {
        "Bearer abc",        ": x",        "A b: c",
        "Content-Length: 7", "host: x",    "transfer-encoding: chunked",
        "A: b\x01",          "A: b\rX: y", "# fine\nX",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char why[BT_OTLP_HEADERS_WHY_BYTES] = "";
        bt_strbuf_t out;

        bt_strbuf_init(&out, 4096);
        if ((bt_otlp_headers_parse(files[i], strlen(files[i]), &out, why) !=
             BT_ERR_BAD_FILE) ||
            (strstr(why, (i == 8) ? "line 2: " : "line 1: ") == NULL) ||
            (strstr(why, "abc") != NULL)) {
            fail_msg("%zu: %s", i, why);
        }
        assert_int_equal(out.len, 0);
        bt_strbuf_fini(&out);
    }
}

static void a_file_that_others_may_read_is_no_place_for_a_secret(void **state)
{
    char path[] = "/tmp/baton-headers-XXXXXX";
    const int fd = mkstemp(path);
    char why[BT_OTLP_HEADERS_WHY_BYTES] = "";
    bt_strbuf_t out;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "A: b\n", 5), 5);
    bt_strbuf_init(&out, 4096);
    assert_int_equal(bt_otlp_headers_read(path, &out, why), BT_OK);
    assert_string_equal(out.data, "A: b\r\n");
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(bt_otlp_headers_read(path, &out, why),
                     BT_ERR_UNAUTHORIZED);
    assert_non_null(strstr(why, "0644"));
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(ftruncate(fd, 20000), 0);
    assert_int_equal(bt_otlp_headers_read(path, &out, why), BT_ERR_BAD_FILE);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(bt_otlp_headers_read(path, &out, why), BT_ERR_NOT_FOUND);
    bt_strbuf_fini(&out);
    close(fd);
}

/* ---- answers ---- */

typedef struct answer_case {
    const char *data;
    bt_otlp_reading_t reading, at_end;
    int http_status;
    bool keeps;
    const char *body;
} answer_case_t;

#define OK     "HTTP/1.1 200 OK\r\n"
#define LENGTH "Content-Length: "
#define CHUNKS "Transfer-Encoding: chunked\r\n\r\n"

static const answer_case_t answers[] = {
    {"", BT_OTLP_MORE, BT_OTLP_MORE, 0, false, NULL},
    {"HTT", BT_OTLP_MORE, BT_OTLP_MORE, 0, false, NULL},
    {OK, BT_OTLP_MORE, BT_OTLP_MORE, 0, false, NULL},
    {OK LENGTH "2\r\n\r\n{}", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200, true, "{}"},
    {OK LENGTH "2\r\n\r\n{", BT_OTLP_MORE, BT_OTLP_MORE, 200, true, NULL},
    {OK "content-length:2\r\nCONNECTION: Close\r\n\r\n{}", BT_OTLP_WHOLE,
     BT_OTLP_WHOLE, 200, false, "{}"},
    {"HTTP/1.0 200 OK\r\n" LENGTH "0\r\n\r\n", BT_OTLP_WHOLE, BT_OTLP_WHOLE,
     200, false, ""},
    {"HTTP/1.1 100 Continue\r\n\r\n" OK LENGTH "1\r\n\r\n7", BT_OTLP_WHOLE,
     BT_OTLP_WHOLE, 200, true, "7"},
    {OK CHUNKS "2\r\n{}\r\n0\r\n\r\n", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200, true,
     "{}"},
    {OK CHUNKS "1;x=y\r\n{\r\n1\r\n}\r\n0\r\nT: x\r\n\r\n", BT_OTLP_WHOLE,
     BT_OTLP_WHOLE, 200, true, "{}"},
    {OK CHUNKS "A\r\n{\r\n", BT_OTLP_MORE, BT_OTLP_MORE, 200, true, NULL},
    {OK CHUNKS "zz\r\n{\r\n", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200, false, ""},
    {OK CHUNKS "fffffffff\r\n{", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200, false, ""},
    {OK LENGTH "x\r\n\r\n{}", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200, false, ""},
    {OK LENGTH "1\r\n" LENGTH "2\r\n\r\n{}", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 200,
     false, ""},
    {OK "\r\nall of it", BT_OTLP_MORE, BT_OTLP_WHOLE, 200, false, "all of it"},
    {"HTTP/1.1 204 No Content\r\n\r\n", BT_OTLP_WHOLE, BT_OTLP_WHOLE, 204, true,
     ""},
    {"HTTP/2 200\r\n\r\n", BT_OTLP_GARBAGE, BT_OTLP_GARBAGE, 0, false, NULL},
    {"SSH-2.0-x\r\n", BT_OTLP_GARBAGE, BT_OTLP_GARBAGE, 0, false, NULL},
    {"HTTP/1.1 20x OK\r\n\r\n", BT_OTLP_GARBAGE, BT_OTLP_GARBAGE, 0, false,
     NULL},
    {"HTTP/1.1 999 x\r\n\r\n", BT_OTLP_GARBAGE, BT_OTLP_GARBAGE, 0, false,
     NULL},
};

static void check_answer(const answer_case_t *c, bool ended)
{
    const bt_otlp_reading_t want = ended ? c->at_end : c->reading;
    bt_otlp_answer_t answer;
    char data[512];

    snprintf(data, sizeof(data), "%s", c->data);
    if ((bt_otlp_answer_read(data, strlen(data), ended, &answer) != want) ||
        (answer.http_status != c->http_status)) {
        fail_msg("%s", c->data);
    }
    if (want == BT_OTLP_WHOLE) {
        assert_int_equal(answer.keeps, c->keeps);
        assert_int_equal(answer.body_bytes, strlen(c->body));
        assert_memory_equal(answer.body, c->body, answer.body_bytes);
    }
}

static void an_answer_is_read_as_http_1_has_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        check_answer(&answers[i], false);
        check_answer(&answers[i], true);
    }
}

static void an_answer_is_not_whole_before_its_last_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        const size_t n = strlen(answers[i].data);

        if ((answers[i].reading != BT_OTLP_WHOLE) || !answers[i].keeps) {
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            bt_otlp_answer_t answer;
            char data[512];

            memcpy(data, answers[i].data, k);
            assert_int_equal(bt_otlp_answer_read(data, k, false, &answer),
                             BT_OTLP_MORE);
        }
    }
}

static void tell(const char *body, bt_otlp_told_t *told)
{
    const bt_otlp_answer_t answer = {
        .http_status = 200, .body = body, .body_bytes = strlen(body)};

    bt_otlp_answer_tell(&answer, told);
}

static void what_was_rejected_is_read_from_the_json(void **state)
{
    static const struct {
        const char *body, *message;
        uint64_t n;
        bool is_partial;
    } cases[] = {
        {"{}", "", 0, false},
        {"{\"partialSuccess\":{}}", "", 0, false},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"3\",\"errorMessage\":\"no\"}"
         "}",
         "no", 3, true},
        {"{\"partialSuccess\":{\"rejectedSpans\":4}}", "", 4, true},
        {"{\"partialSuccess\":{\"rejectedSpans\":0,\"errorMessage\":\"slow\"}}",
         "slow", 0, true},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"-1\"}}", "", 0, false},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"1x\"}}", "", 0, false},
        {"{\"code\":3,\"message\":\"bad\\nspan\"}", "bad?span", 0, false},
        {"<html>", "", 0, false},
        {"[1]", "", 0, false},
        {"", "", 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_otlp_told_t told;

        tell(cases[i].body, &told);
        if ((told.n_rejected != cases[i].n) ||
            (told.is_partial != cases[i].is_partial) ||
            (strcmp(told.message.text, cases[i].message) != 0)) {
            fail_msg("%s: %s", cases[i].body, told.message.text);
        }
    }
}

/* ---- waits ---- */

static void only_what_the_specification_names_is_tried_again(void **state)
{
    static const int again[] = {0, 429, 502, 503, 504};
    static const int refused[] = {301, 400, 401, 403, 404, 413, 415, 500, 501};

    (void)state;
    assert_int_equal(bt_otlp_judge(200), BT_OTLP_TAKEN);
    assert_int_equal(bt_otlp_judge(202), BT_OTLP_TAKEN);
    for (size_t i = 0; i < sizeof(again) / sizeof(again[0]); i++) {
        assert_int_equal(bt_otlp_judge(again[i]), BT_OTLP_AGAIN);
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(bt_otlp_judge(refused[i]), BT_OTLP_REFUSED);
    }
}

static void retry_after_is_seconds_or_a_date(void **state)
{
    (void)state;
    assert_int_equal(bt_otlp_retry_after_ms("7", 0), 7000);
    assert_int_equal(bt_otlp_retry_after_ms("0", 0), 0);
    assert_int_equal(bt_otlp_retry_after_ms("99999999999999999999", 0),
                     86400000);
    /* 784111777 is the example of RFC 9110, 5.6.7. */
    assert_int_equal(
        bt_otlp_retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 - 60),
        60000);
    assert_int_equal(
        bt_otlp_retry_after_ms("Sun, 06 Nov 1994 08:49:37 GMT", 784111777 + 60),
        0);
    assert_int_equal(bt_otlp_retry_after_ms("soon", 0), 0);
    assert_int_equal(bt_otlp_retry_after_ms("-3", 0), 0);
    assert_int_equal(bt_otlp_retry_after_ms("", 0), 0);
}

static void waits_double_up_to_a_bound_and_are_spread(void **state)
{
    static const bt_otlp_waits_t waits = {.first_ms = 1000, .most_ms = 30000};
    static const uint64_t all_ms[] = {1000,  2000,  4000, 8000,
                                      16000, 30000, 30000};

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        uint64_t least = UINT64_MAX, most = 0;

        for (uint32_t random = 0; random < 40000; random += 7) {
            const uint64_t ms = bt_otlp_wait_ms(&waits, i + 1, 0, random);

            least = (ms < least) ? ms : least;
            most = (ms > most) ? ms : most;
        }
        assert_true(least == all_ms[i] / 2);
        assert_true((most <= all_ms[i]) && (most >= all_ms[i] - 7));
    }
    /* What was asked for is kept to; less than the own wait changes nothing. */
    assert_int_equal(bt_otlp_wait_ms(&waits, 1, 90000, 5), 90000);
    assert_int_equal(bt_otlp_wait_ms(&waits, 6, 1, 0), 15000);
    assert_int_equal(bt_otlp_wait_ms(&waits, UINT32_MAX, 0, 0), 15000);
}

/* ---- the queue ---- */

static void take(bt_otlp_queue_t *queue, size_t most, const char *want,
                 uint64_t n_spans)
{
    bt_otlp_piece_t piece;
    bt_strbuf_t out;

    bt_strbuf_init(&out, 4096);
    bt_otlp_queue_peek(queue, most, &piece);
    bt_otlp_queue_copy(queue, queue->from, &piece, &out);
    assert_int_equal(out.len, piece.text_bytes);
    assert_int_equal(piece.n_spans, n_spans);
    assert_string_equal((out.data != NULL) ? out.data : "", want);
    bt_otlp_queue_drop(queue, &piece);
    bt_strbuf_fini(&out);
}

static void a_queue_gives_items_in_order_wherever_they_wrap(void **state)
{
    bt_otlp_queue_t queue = {0};

    (void)state;
    /* An item of 3 bytes takes 11, so each time it lies elsewhere. */
    assert_int_equal(bt_otlp_queue_init(&queue, 40), BT_OK);
    for (unsigned i = 0; i < 100; i++) {
        char a[8], b[8], c[8], all[32];

        snprintf(a, sizeof(a), "a%02u", i);
        snprintf(b, sizeof(b), "b%02u", i);
        snprintf(c, sizeof(c), "c%02u", i);
        assert_true(bt_otlp_queue_add(&queue, a, 3, 1));
        assert_true(bt_otlp_queue_add(&queue, b, 3, 2));
        assert_true(bt_otlp_queue_add(&queue, c, 3, 4));
        assert_false(bt_otlp_queue_add(&queue, "xyz", 3, 1));
        assert_int_equal(queue.n_spans, 7);
        take(&queue, 6, a, 1); /* two and the comma are 7 */
        snprintf(all, sizeof(all), "%s,%s", b, c);
        take(&queue, 7, all, 6);
        take(&queue, 7, "", 0);
        assert_true((queue.used == 0) && (queue.n_spans == 0));
    }
    /* One that is larger than a batch goes alone. */
    assert_true(bt_otlp_queue_add(&queue, "0123456789", 10, 3));
    assert_true(bt_otlp_queue_add(&queue, "1", 1, 1));
    take(&queue, 4, "0123456789", 3);
    take(&queue, 4, "1", 1);
    bt_otlp_queue_fini(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_url_is_taken_apart_and_v1_traces_is_added_to_a_base),
        BT_TEST(what_is_no_such_url_is_refused_with_a_reason),
        BT_TEST(headers_are_written_as_a_request_has_them),
        BT_TEST(a_header_that_would_be_something_else_is_refused),
        BT_TEST(a_file_that_others_may_read_is_no_place_for_a_secret),
        BT_TEST(an_answer_is_read_as_http_1_has_it),
        BT_TEST(an_answer_is_not_whole_before_its_last_byte),
        BT_TEST(what_was_rejected_is_read_from_the_json),
        BT_TEST(only_what_the_specification_names_is_tried_again),
        BT_TEST(retry_after_is_seconds_or_a_date),
        BT_TEST(waits_double_up_to_a_bound_and_are_spread),
        BT_TEST(a_queue_gives_items_in_order_wherever_they_wrap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
