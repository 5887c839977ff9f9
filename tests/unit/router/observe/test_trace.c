/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of --trace-file. The expected one is written by hand from
 * OTLP 1.3's JSON encoding and the semantic conventions for generative AI. */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "router/observe/trace.h"

#define PARENT "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

#define DEADLINE_MS 60000

static char dir[64];
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/baton-trace-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/trace.jsonl", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static bt_status_t open_trace(const char *file, const char *instance,
                              bt_trace_t **trace_p)
{
    const bt_trace_options_t options = {
        .path = file, .url = "", .headers = "", .instance = instance};

    return bt_trace_open(&options, trace_p);
}

static unsigned count_lines(const char *text)
{
    unsigned n = 0;

    for (const char *at = strchr(text, '\n'); at != NULL;
         at = strchr(at + 1, '\n')) {
        n++;
    }
    return n;
}

static void read_file(char *out, size_t bytes)
{
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(out, 1, bytes - 1, f);
    out[n] = '\0';
    fclose(f);
}

/* The thread writes when it likes. */
static void await_file(char *out, size_t bytes, unsigned n_lines)
{
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;

    do {
        assert_true(bt_now_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
        read_file(out, bytes);
    } while (count_lines(out) < n_lines);
}

/* Every span id is random: the first (the whole span's) becomes R…, others S…,
 * also where they are somebody's parent. */
static void mask_ids(char *line)
{
    static const char own[] = "\"spanId\":\"";
    char root[17] = "";

    for (char *at = strstr(line, own); at != NULL; at = strstr(at + 1, own)) {
        char *id = at + strlen(own);

        if (root[0] == '\0') {
            memcpy(root, id, 16);
        } else {
            assert_memory_not_equal(id, root, 16);
            memset(id, 'S', 16);
        }
    }
    for (char *at = strstr(line, root); at != NULL; at = strstr(line, root)) {
        memset(at, 'R', 16);
    }
}

#define TEXT(key, value) \
    "{\"key\":\"" key "\",\"value\":{\"stringValue\":\"" value "\"}},"
#define INT(key, value) \
    "{\"key\":\"" key "\",\"value\":{\"intValue\":\"" value "\"}},"
#define DOUBLE(key, value) \
    "{\"key\":\"" key "\",\"value\":{\"doubleValue\":" value "}},"
#define TRACE_ID "\"traceId\":\"4bf92f3577b34da6a3ce929d0e0e4736\","
#define PART(name, from, to)                                          \
    ",{" TRACE_ID "\"spanId\":\"SSSSSSSSSSSSSSSS\",\"parentSpanId\":" \
    "\"RRRRRRRRRRRRRRRR\",\"name\":\"baton." name                     \
    "\",\"kind\":1,\"startTimeUnixNano\":\"" from                     \
    "\",\"endTimeUnixNano\":\"" to "\",\"status\":{}}"

/* The core's clock stood at 5 s, or 1,700,000,000 s of Unix time, when the
 * request was parsed and tokenized; so parsing began 30 µs before that. */
/* clang-format off */
static const char want[] =
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":["
    TEXT("service.name", "baton-router")
    "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"VERSION\"}},"
    "{\"key\":\"service.instance.id\",\"value\":{\"stringValue\":\"r0\"}}"
    "]},\"scopeSpans\":[{\"scope\":{\"name\":\"baton-router\"},\"spans\":["
    "{" TRACE_ID "\"spanId\":\"RRRRRRRRRRRRRRRR\","
    "\"parentSpanId\":\"00f067aa0ba902b7\",\"name\":\"chat\",\"kind\":2,"
    "\"startTimeUnixNano\":\"1699999999999970000\","
    "\"endTimeUnixNano\":\"1700000000000970000\",\"attributes\":["
    TEXT("gen_ai.operation.name", "chat")
    TEXT("gen_ai.provider.name", "baton")
    TEXT("gen_ai.request.model", "a \\\"b\\\"")
    TEXT("gen_ai.response.id", "chatcmpl-1")
    INT("gen_ai.request.max_tokens", "16")
    DOUBLE("gen_ai.request.temperature", "0.5")
    DOUBLE("gen_ai.request.top_p", "1")
    INT("gen_ai.request.top_k", "7")
    DOUBLE("gen_ai.request.frequency_penalty", "0")
    DOUBLE("gen_ai.request.presence_penalty", "-0.25")
    INT("gen_ai.usage.input_tokens", "9")
    INT("gen_ai.usage.output_tokens", "4")
    "{\"key\":\"gen_ai.response.finish_reasons\",\"value\":{\"arrayValue\":"
    "{\"values\":[{\"stringValue\":\"error\"}]}}},"
    DOUBLE("gen_ai.server.time_to_first_token", "0.0006")
    TEXT("error.type", "503")
    TEXT("baton.request_id", "mine-1")
    TEXT("baton.tenant", "shop")
    "{\"key\":\"baton.stream\",\"value\":{\"boolValue\":true}},"
    INT("baton.choice", "2")
    INT("baton.attempts", "1")
    INT("baton.total_us", "1000")
    INT("baton.max_gap_us", "21")
    INT("baton.prefill.chunks", "22")
    INT("baton.prefill.cached_tokens", "23")
    INT("baton.decode.queue_us", "24")
    INT("baton.decode.batch_us", "25")
    INT("baton.decode.pauses", "2")
    INT("baton.decode.paused_us", "34")
    INT("baton.decode.draft_tokens", "35")
    INT("baton.decode.accepted_tokens", "36")
    INT("baton.kv.transfers", "26")
    INT("baton.kv.bytes", "27")
    INT("baton.kv.descriptors", "28")
    INT("baton.kv.grant_wait_us", "29")
    INT("baton.kv.transfer_us", "30")
    INT("baton.kv.tail_us", "31")
    INT("baton.kv.verify_us", "32")
    INT("baton.kv.join_wait_us", "33")
    TEXT("baton.worker.decode", "decode-1")
    "{\"key\":\"baton.worker.prefill\",\"value\":{\"stringValue\":"
    "\"prefill-3\"}}],"
    "\"events\":[{\"timeUnixNano\":\"1700000000000040000\","
    "\"name\":\"baton.attempt\",\"attributes\":["
    TEXT("baton.worker.prefill", "prefill-3")
    "{\"key\":\"baton.worker.decode\",\"value\":{\"stringValue\":"
    "\"decode-1\"}}]},"
    "{\"timeUnixNano\":\"1700000000000570000\","
    "\"name\":\"baton.first_token\"}],"
    "\"status\":{\"code\":2,\"message\":\"line\\nend \xEF\xBF\xBD\"}}"
    PART("parse", "1699999999999970000", "1699999999999980000")
    PART("tokenize", "1699999999999980000", "1700000000000000000")
    PART("queue", "1700000000000000000", "1700000000000040000")
    PART("prefill", "1700000000000040000", "1700000000000540000")
    PART("first_token", "1700000000000540000", "1700000000000570000")
    PART("handover", "1700000000000570000", "1700000000000670000")
    PART("decode", "1700000000000670000", "1700000000000970000")
    "]}]}]}\n";
/* clang-format on */

static const bt_ledger_t ledger = {
    .parse_us = 10,
    .tokenize_us = 20,
    .queue_us = 40,
    .prefill_queue_us = 0, /* no time, no span */
    .prefill_us = 500,
    .first_token_us = 30,
    .handover_us = 100,
    .decode_us = 300,
    .decode_queue_us = 24,
    .grant_wait_us = 29,
    .transfer_us = 30,
    .transfer_bytes = 27,
    .transfer_pieces = 28,
    .transfer_tail_us = 31,
    .kv_verify_us = 32,
    .join_wait_us = 33,
    .worker_decode_us = 25,
    .n_pauses = 2,
    .paused_us = 34,
    .n_drafted = 35,
    .n_accepted = 36,
    .n_transfers = 26,
    .n_chunks = 22,
    .n_cached = 23,
    .max_gap_us = 21,
    .ttft_us = 600,
    .total_us = 1000,
    .n_prompt = 9,
    .n_output = 4,
    .n_attempts = 1,
};
static const bt_gen_attempt_t attempt = {
    .at_us = 5000040,
    .prefill = "prefill-3",
    .decode = "decode-1",
};
static const bt_sampling_t sampling = {.temperature = 0.5f,
                                       .top_k = 7,
                                       .top_p = 1.0f,
                                       .repetition_penalty = 1.0f,
                                       .presence_penalty = -0.25f};

#define UNIX_MINUS_CORE_NS (INT64_C(1699999995) * 1000000000)

static bt_gen_record_t make_record(const bt_gen_origin_t *origin)
{
    const bt_gen_record_t record = {
        .ledger = &ledger,
        .origin = origin,
        .sampling = &sampling,
        .max_new = 16,
        .arrived_us = 5000000,
        .finish = BT_FINISH_ERROR,
        .http_status = 503,
        .trouble = "line\nend \xff",
        .n_attempts = 1,
        .attempts = &attempt,
    };

    return record;
}

static void trace_line_has_the_expected_text(void **state)
{
    bt_gen_origin_t origin = {.chat = true,
                              .stream = true,
                              .choice = 2,
                              .answer_id = "chatcmpl-1",
                              .tenant = "shop",
                              .request_id = "mine-1"};
    const bt_gen_record_t record = make_record(&origin);
    bt_trace_t *trace = NULL;
    char expected[8192];
    char line[8192];
    const char *at = strstr(want, "VERSION");

    (void)state;
    assert_true(bt_trace_parse_parent(PARENT, &origin));
    assert_int_equal(open_trace(path, "r0", &trace), BT_OK);
    bt_trace_add(trace, "a \"b\"", &record, UNIX_MINUS_CORE_NS);
    assert_int_equal(bt_trace_flush(trace, 1), 0);
    await_file(line, sizeof(line), 1);
    mask_ids(line);
    snprintf(expected, sizeof(expected), "%.*s%s%s", (int)(at - want), want,
             bt_config_version(), at + strlen("VERSION"));
    assert_string_equal(line, expected);
    bt_trace_close(trace);
}

static void
what_is_left_is_written_at_the_end_behind_what_was_there(void **state)
{
    const bt_gen_origin_t origin = {0};
    bt_gen_record_t record = make_record(&origin);
    char text[32768];

    (void)state;
    for (unsigned life = 1; life <= 2; life++) {
        bt_trace_t *trace = NULL;

        assert_int_equal(open_trace(path, "", &trace), BT_OK);
        record.finish = BT_FINISH_CANCELED;
        record.trouble = "";
        bt_trace_add(trace, "m", &record, 0);
        record.finish = BT_FINISH_STOP;
        bt_trace_add(trace, "m", &record, 0);
        bt_trace_close(trace);
        read_file(text, sizeof(text));
        assert_int_equal(count_lines(text), 2 * life);
    }
    assert_null(strstr(text, "service.instance.id"));
    assert_null(strstr(text, "\"traceId\":\"000000000000000000"));
    assert_non_null(strstr(text, "\"status\":{\"code\":1}"));
}

static void trace_ids_differ_and_are_never_zero(void **state)
{
    static const uint8_t zero[16];
    bt_trace_t *trace = NULL;
    uint8_t ids[100][16];

    (void)state;
    assert_int_equal(open_trace(path, "", &trace), BT_OK);
    for (unsigned i = 0; i < 100; i++) {
        bt_trace_new_id(trace, ids[i]);
        assert_memory_not_equal(ids[i], zero, 16);
        for (unsigned k = 0; k < i; k++) {
            assert_memory_not_equal(ids[i], ids[k], 16);
        }
    }
    bt_trace_close(trace);
}

static void only_a_valid_traceparent_counts(void **state)
{
    static const struct {
        const char *header;
        bool good;
    } cases[] = {
        {PARENT, true},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true},
        /* a later version may say more */
        {"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", true},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", false},
        {"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        {"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false},
        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", false},
        {"00+4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736+00f067aa0ba902b7-01", false},
        {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7+01", false},
        {"zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false},
        {"", false},
    };
    static const bt_gen_origin_t none;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_gen_origin_t origin = none;
        const bool good = bt_trace_parse_parent(cases[i].header, &origin);

        if (good != cases[i].good) {
            fail_msg("%s", cases[i].header);
        }
        if (good) {
            assert_int_equal(origin.trace_id[0], 0x4b);
            assert_int_equal(origin.trace_id[15], 0x36);
            assert_int_equal(origin.parent_id[7], 0xb7);
        } else {
            assert_memory_equal(&origin, &none, sizeof(none));
        }
    }
}

/* A pipe takes 64 KiB while nobody reads, then nothing: as a full disk. */
static void
lines_wait_while_nothing_is_taken_and_are_lost_past_a_limit(void **state)
{
    enum { N = 6000 }; /* of 4 KiB: more than 16 MiB */

    const unsigned long n_warnings = bt_log_count(BT_LOG_LEVEL_WARN);
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;

    const bt_gen_origin_t origin = {0};
    const bt_gen_record_t record = make_record(&origin);
    bt_trace_t *trace = NULL;
    unsigned n_read = 0;
    uint64_t n_lost;
    uint64_t now_ms = 1000;
    char text[4096];
    int fd;

    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(open_trace(path, "", &trace), BT_OK);
    for (unsigned i = 0; i < N; i++) {
        bt_trace_add(trace, "m", &record, 0);
    }
    bt_test_expect_log_lines(2); /* so many are lost; it takes no more */
    n_lost = bt_trace_flush(trace, now_ms);
    assert_true((n_lost > 0) && (n_lost < N));
    while (bt_log_count(BT_LOG_LEVEL_WARN) - n_warnings < 2) {
        assert_true(bt_now_ms() < deadline_ms);
        (void)poll(NULL, 0, 1); /* until the thread finds the pipe full */
        now_ms += 100;
        assert_int_equal(bt_trace_flush(trace, now_ms), 0);
    }
    while (n_read + n_lost < N) {
        const ssize_t n = read(fd, text, sizeof(text) - 1);

        assert_true(bt_now_ms() < deadline_ms);
        if (n > 0) {
            text[n] = '\0';
            n_read += count_lines(text);
        } else { /* the pipe is empty: the next part */
            (void)poll(NULL, 0, 1);
            assert_int_equal(bt_trace_flush(trace, now_ms), 0);
        }
    }
    assert_int_equal(n_read + n_lost, N);
    bt_trace_close(trace);
    assert_true(read(fd, text, sizeof(text)) <= 0);
    close(fd);
}

static void unwritable_path_is_an_error(void **state)
{
    bt_trace_t *trace = NULL;

    (void)state;
    bt_test_expect_log_lines(3);
    assert_int_equal(open_trace(dir, "", &trace), BT_ERR_IO);
    assert_int_equal(open_trace("/nowhere/at/all", "", &trace), BT_ERR_IO);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(open_trace(path, "", &trace), BT_ERR_IO);
    assert_null(trace);
}

static void failed_allocation_opens_nothing_and_loses_a_line(void **state)
{
    const bt_gen_origin_t origin = {0};
    const bt_gen_record_t record = make_record(&origin);
    bt_trace_t *trace = NULL;
    char text[32768];
    int n = 1;

    (void)state;
    for (;; n++) {
        bt_alloc_fail_at(n);
        if (open_trace(path, "r", &trace) == BT_OK) {
            break;
        }
        assert_null(trace);
        assert_true(n < 100);
    }
    assert_true(n > 4);
    bt_alloc_fail_at(0);
    bt_test_expect_log_lines(1);
    bt_alloc_fail_at(1); /* of the line that is made; later ones have it */
    bt_trace_add(trace, "m", &record, 0);
    bt_alloc_fail_at(0);
    bt_trace_add(trace, "m", &record, 0);
    bt_trace_add(trace, "m", &record, 0);
    assert_int_equal(bt_trace_flush(trace, 1), 1);
    await_file(text, sizeof(text), 2);
    assert_int_equal(count_lines(text), 2);
    bt_trace_close(trace);
}

#define DIR_TEST(fn)                           \
    {                                          \
#fn, fn, dir_setup, dir_teardown, NULL \
    }

static int dir_setup(void **state)
{
    return (make_dir(state) != 0) ? -1 : bt_test_setup(state);
}

static int dir_teardown(void **state)
{
    const int code = remove_dir(state);
    const int logged = bt_test_teardown(state);

    return (code != 0) ? code : logged;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIR_TEST(trace_line_has_the_expected_text),
        DIR_TEST(what_is_left_is_written_at_the_end_behind_what_was_there),
        DIR_TEST(trace_ids_differ_and_are_never_zero),
        DIR_TEST(only_a_valid_traceparent_counts),
        DIR_TEST(lines_wait_while_nothing_is_taken_and_are_lost_past_a_limit),
        DIR_TEST(unwritable_path_is_an_error),
        DIR_TEST(failed_allocation_opens_nothing_and_loses_a_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
