/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the exporter: headers, responses, backoff, queue. Expected values
 * are worked by hand from OTLP 1.x and RFC 9110. */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/otlp/client.h"
#include "router/otlp/headers.h"
#include "router/otlp/queue.h"

/* ---- headers ---- */

static void headers_are_parsed_for_libcurl(void **state)
{
    static const char file[] = "# of the collector\n\n"
                               "Authorization:   Bearer a:b \t\r\n"
                               "x-scope-orgid:baton\nx-empty: \n";
    static const char parsed[] = "Authorization: Bearer a:b\0"
                                 "x-scope-orgid: baton\0x-empty;\0";
    char why[BT_OTLP_HEADERS_WHY_BYTES] = "";
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    assert_int_equal(bt_otlp_headers_parse(file, strlen(file), &out, why),
                     BT_OK);
    assert_int_equal(out.len, sizeof(parsed) - 1);
    assert_memory_equal(out.data, parsed, out.len);
    bt_strbuf_fini(&out);
}

static void header_that_would_be_another_is_refused(void **state)
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

static void headers_file_readable_by_others_is_refused(void **state)
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
    assert_string_equal(out.data, "A: b");
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

/* ---- responses ---- */

static void rejected_spans_are_read_from_the_json(void **state)
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
        bt_otlp_result_t result;

        bt_otlp_parse_body(cases[i].body, strlen(cases[i].body), &result);
        if ((result.n_rejected != cases[i].n) ||
            (result.is_partial != cases[i].is_partial) ||
            (strcmp(result.message.text, cases[i].message) != 0)) {
            fail_msg("%s: %s", cases[i].body, result.message.text);
        }
    }
}

/* ---- waits ---- */

static void only_specified_statuses_are_retried(void **state)
{
    static const int retried[] = {429, 502, 503, 504};
    static const int rejected[] = {301, 400, 401, 403, 404, 413, 415, 500, 501};

    (void)state;
    assert_int_equal(bt_otlp_judge(200), BT_OTLP_ACCEPTED);
    assert_int_equal(bt_otlp_judge(202), BT_OTLP_ACCEPTED);
    for (size_t i = 0; i < BT_ARRAY_LEN(retried); i++) {
        assert_int_equal(bt_otlp_judge(retried[i]), BT_OTLP_RETRY);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(rejected); i++) {
        assert_int_equal(bt_otlp_judge(rejected[i]), BT_OTLP_REJECTED);
    }
}

static void backoff_doubles_up_to_a_bound_with_jitter(void **state)
{
    static const bt_otlp_backoff_t backoff = {.first_ms = 1000,
                                              .max_ms = 30000};
    static const uint64_t all_ms[] = {1000,  2000,  4000, 8000,
                                      16000, 30000, 30000};

    (void)state;
    for (uint32_t i = 0; i < 7; i++) {
        uint64_t least = UINT64_MAX, most = 0;

        for (uint32_t random = 0; random < 40000; random += 7) {
            const uint64_t ms = bt_otlp_backoff_ms(&backoff, i + 1, 0, random);

            least = (ms < least) ? ms : least;
            most = (ms > most) ? ms : most;
        }
        assert_true(least == all_ms[i] / 2);
        assert_true((most <= all_ms[i]) && (most >= all_ms[i] - 7));
    }
    /* Retry-After is a lower bound. */
    assert_int_equal(bt_otlp_backoff_ms(&backoff, 1, 90000, 5), 90000);
    assert_int_equal(bt_otlp_backoff_ms(&backoff, 6, 1, 0), 15000);
    assert_int_equal(bt_otlp_backoff_ms(&backoff, UINT32_MAX, 0, 0), 15000);
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

static void queue_keeps_order_across_the_wrap(void **state)
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
        BT_TEST(headers_are_parsed_for_libcurl),
        BT_TEST(header_that_would_be_another_is_refused),
        BT_TEST(headers_file_readable_by_others_is_refused),
        BT_TEST(rejected_spans_are_read_from_the_json),
        BT_TEST(only_specified_statuses_are_retried),
        BT_TEST(backoff_doubles_up_to_a_bound_with_jitter),
        BT_TEST(queue_keeps_order_across_the_wrap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
