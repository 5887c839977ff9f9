/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "router/observe/access_log.h"
#include "router/observe/ids.h"

#define DEADLINE_MS 60000

static char dir[64];
static char path[128], moved[128];

static int set_up(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/baton-access-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/access.log", dir);
    snprintf(moved, sizeof(moved), "%s/access.log.1", dir);
    return bt_test_setup(state);
}

static int tear_down(void **state)
{
    (void)unlink(path);
    (void)rmdir(path);
    (void)unlink(moved);
    return (rmdir(dir) != 0) ? -1 : bt_test_teardown(state);
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

static void read_file(const char *name, char *out, size_t bytes)
{
    FILE *f = fopen(name, "r");
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
        read_file(path, out, bytes);
    } while (count_lines(out) < n_lines);
}

/* Of the example of W3C's Trace Context. */
static const uint8_t trace_id[16] = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3,
                                     0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d,
                                     0x0e, 0x0e, 0x47, 0x36};

static const bt_access_t completion = {
    .unix_ms = 1700074049007,
    .id = "my-id",
    .client = "127.0.0.1",
    .method = "POST",
    .route = "/v1/completions",
    .path = "/v1/completions",
    .status = 200,
    .model = "tiny",
    .generated = true,
    .n_prompt = 12,
    .n_output = 34,
    .first_us = 31250,
    .total_us = 410007,
    .prefill = "prefill-0",
    .decode = "decode-1",
    .finish = "length",
    .tenant = "shop",
    .answer_id = "cmpl-1",
    .trace_id = trace_id,
};

static const bt_access_t stranger = {
    .unix_ms = 1700074049007,
    .id = "f00d",
    .method = "GET",
    .route = "other",
    .path = "/a \"b\\\n\xff=\x01",
    .status = 404,
    .client = "",
    .total_us = 90,
};

/* By hand; the time is that of test_log.c, the escapes RFC 8259's. */
static void assert_lines(bool json, const char *want)
{
    bt_access_log_t *log = NULL;
    char text[4096];

    assert_int_equal(bt_access_log_open(path, json, &log), BT_OK);
    bt_access_log_add(log, &completion);
    bt_access_log_add(log, &stranger);
    assert_int_equal(bt_access_log_flush(log, 1), 0);
    await_file(text, sizeof(text), 2);
    assert_string_equal(text, want);
    bt_access_log_close(log);
}

static void text_line_has_every_field_in_its_column(void **state)
{
    (void)state;
    assert_lines(
        false,
        "time=2023-11-15T18:47:29.007+00:00 id=my-id client=127.0.0.1 "
        "method=POST route=/v1/completions path=/v1/completions status=200 "
        "model=tiny prompt=12 output=34 ttft_ms=31.250 total_ms=410.007 "
        "prefill=prefill-0 decode=decode-1 finish=length tenant=shop "
        "answer=cmpl-1 trace=4bf92f3577b34da6a3ce929d0e0e4736\n"
        "time=2023-11-15T18:47:29.007+00:00 id=f00d client=- method=GET "
        "route=other path=\"/a \\\"b\\\\\\n\xef\xbf\xbd=\\u0001\" status=404 "
        "model=- prompt=- output=- ttft_ms=- total_ms=0.090 prefill=- "
        "decode=- finish=- tenant=- answer=- trace=-\n");
}

static void json_line_omits_unknown_fields(void **state)
{
    (void)state;
    assert_lines(
        true,
        "{\"time\":\"2023-11-15T18:47:29.007+00:00\",\"id\":\"my-id\","
        "\"client\":\"127.0.0.1\",\"method\":\"POST\",\"route\":"
        "\"/v1/completions\",\"path\":\"/v1/completions\",\"status\":200,"
        "\"model\":\"tiny\",\"prompt\":12,\"output\":34,\"ttft_ms\":31.25,"
        "\"total_ms\":410.007,\"prefill\":\"prefill-0\",\"decode\":"
        "\"decode-1\",\"finish\":\"length\",\"tenant\":\"shop\","
        "\"answer\":\"cmpl-1\",\"trace\":"
        "\"4bf92f3577b34da6a3ce929d0e0e4736\"}\n"
        "{\"time\":\"2023-11-15T18:47:29.007+00:00\",\"id\":\"f00d\","
        "\"method\":\"GET\",\"route\":\"other\",\"path\":"
        "\"/a \\\"b\\\\\\n\xef\xbf\xbd=\\u0001\",\"status\":404,"
        "\"total_ms\":0.09}\n");
}

static void moved_file_is_reopened(void **state)
{
    bt_access_log_t *log = NULL;
    char text[4096];

    (void)state;
    assert_int_equal(bt_access_log_open(path, false, &log), BT_OK);
    bt_access_log_add(log, &completion);
    assert_int_equal(rename(path, moved), 0);
    bt_access_log_reopen(log);
    bt_access_log_add(log, &stranger);
    bt_access_log_close(log);
    read_file(moved, text, sizeof(text));
    assert_non_null(strstr(text, "id=my-id"));
    assert_int_equal(count_lines(text), 1);
    read_file(path, text, sizeof(text));
    assert_non_null(strstr(text, "id=f00d"));
    assert_int_equal(count_lines(text), 1);
}

static void failed_reopen_keeps_the_old_file(void **state)
{
    bt_access_log_t *log = NULL;
    char text[4096];

    (void)state;
    assert_int_equal(bt_access_log_open(path, false, &log), BT_OK);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    bt_test_expect_log_lines(1);
    bt_access_log_reopen(log);
    bt_access_log_add(log, &completion);
    bt_access_log_close(log);
    read_file(moved, text, sizeof(text));
    assert_int_equal(count_lines(text), 1);
}

/* Until the log says that its file takes nothing. */
static void await_warning(bt_access_log_t *log)
{
    const unsigned long before = bt_log_count(BT_LOG_LEVEL_WARN);
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;
    uint64_t now_ms = 1;

    while (bt_log_count(BT_LOG_LEVEL_WARN) == before) {
        assert_true(bt_now_ms() < deadline_ms);
        assert_int_equal(bt_access_log_flush(log, now_ms), 0);
        (void)poll(NULL, 0, 1);
        now_ms += 100;
    }
}

/* A pipe takes 64 KiB while nobody reads, which no number of these lines
 * fills: one is cut. Shorter ones than PIPE_BUF it takes whole. */
static void begun_line_stays_in_its_file(void **state)
{
    enum { N = 100 };

    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;
    bt_access_log_t *log = NULL;
    bt_access_t long_one = completion;
    static char text[1u << 20], longer[5001];
    uint64_t n_lost = 0;
    ssize_t n;
    unsigned n_piped;
    int fd;

    (void)state;
    memset(longer, 'x', sizeof(longer) - 1);
    long_one.path = longer;
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(bt_access_log_open(path, false, &log), BT_OK);
    for (unsigned i = 0; i < N; i++) {
        bt_access_log_add(log, &long_one);
    }
    bt_test_expect_log_lines(2); /* it takes no more; one is lost */
    await_warning(log);
    assert_int_equal(rename(path, moved), 0);
    bt_access_log_reopen(log);
    while (n_lost == 0) {
        assert_true(bt_now_ms() < deadline_ms);
        (void)poll(NULL, 0, 1);
        n_lost = bt_access_log_flush(log, 10000);
    }
    assert_int_equal(n_lost, 1);
    bt_access_log_close(log);
    n = read(fd, text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    close(fd);
    n_piped = count_lines(text);
    assert_int_not_equal(text[strlen(text) - 1], '\n');
    read_file(path, text, sizeof(text));
    assert_memory_equal(text, "time=", 5);
    assert_int_equal(count_lines(text) + n_piped + 1, N);
}

/* @param ends  the first becomes standard output, the second is read */
static void assert_standard_output_never_waits(const int ends[2])
{
    enum { N = 6000 }; /* more than a pipe or socket takes */

    const int saved = dup(STDOUT_FILENO);
    bt_access_log_t *log = NULL;
    char text[4096];
    int flags;

    fflush(stdout);
    assert_int_equal(dup2(ends[0], STDOUT_FILENO), STDOUT_FILENO);
    assert_int_equal(bt_access_log_open("-", false, &log), BT_OK);
    for (unsigned i = 0; i < N; i++) {
        bt_access_log_add(log, &completion);
    }
    await_warning(log); /* its calls come back */
    flags = fcntl(STDOUT_FILENO, F_GETFL);
    bt_access_log_reopen(log); /* nothing to open again */
    bt_access_log_close(log);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(flags & O_NONBLOCK, 0); /* it is not ours alone */
    assert_true(read(ends[1], text, sizeof(text)) > 1000);
    assert_memory_equal(text, "time=2023-11-15T18:47:29.007+00:00 id=my-id",
                        43);
    close(ends[0]);
    close(ends[1]);
}

static void standard_output_never_blocks(void **state)
{
    int ends[2], pair[2];

    (void)state;
    bt_test_expect_log_lines(4); /* each: kept for now; lost at the end */
    assert_int_equal(pipe(ends), 0);
    pair[0] = ends[1];
    pair[1] = ends[0];
    assert_standard_output_never_waits(pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_standard_output_never_waits(pair);
}

/* Room for one descriptor more: standard output cannot be opened anew, as where
 * it is a pipe of another user's, and who writes waits, as for a disk that
 * hangs. */
static bt_status_t open_where_writing_waits(bt_access_log_t **log_p)
{
    struct rlimit before, now;
    const int next = dup(STDOUT_FILENO);
    bt_status_t status;

    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)next + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    status = bt_access_log_open("-", false, log_p);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    return status;
}

static void hanging_write_blocks_its_thread_only(void **state)
{
    enum { N = 6000 }; /* more than a pipe takes */

    const int saved = dup(STDOUT_FILENO);
    bt_access_log_t *log = NULL;
    bt_status_t status;
    char text[4096];
    ssize_t n = 0;
    int ends[2];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    status = open_where_writing_waits(&log);
    for (unsigned i = 0; (status == BT_OK) && (i < N); i++) {
        bt_access_log_add(log, &completion);
        (void)bt_access_log_flush(log, i); /* comes back */
    }
    if (status == BT_OK) {
        n = read(ends[0], text, sizeof(text) - 1); /* it is at it */
        bt_test_expect_log_lines(1);
        bt_access_log_close(log); /* the last bytes are lost */
    }
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends[1]);
    close(ends[0]); /* the thread that was left behind ends */
    assert_int_equal(status, BT_OK);
    assert_true(n > 0);
    assert_memory_equal(text, "time=2023-11-15T18:47:29.007+00:00 id=my-id",
                        43);
}

static void standard_output_file_keeps_its_content(void **state)
{
    const int saved = dup(STDOUT_FILENO);
    bt_access_log_t *log = NULL;
    char text[4096];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600); /* not O_APPEND */

    (void)state;
    fflush(stdout);
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    assert_int_equal(write(STDOUT_FILENO, "before\n", 7), 7);
    assert_int_equal(bt_access_log_open("-", false, &log), BT_OK);
    bt_access_log_add(log, &completion);
    bt_access_log_close(log);
    assert_int_equal(write(STDOUT_FILENO, "after\n", 6), 6);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(fd);
    read_file(path, text, sizeof(text));
    assert_memory_equal(text, "before\ntime=", 12);
    assert_string_equal(text + strlen(text) - 7, "\nafter\n");
}

static void failed_allocation_opens_nothing(void **state)
{
    bt_access_log_t *log = NULL;

    (void)state;
    for (int nth = 1; nth <= 3; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_access_log_open(path, false, &log),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(log);
    }
    bt_test_expect_log_lines(1);
    assert_int_equal(bt_access_log_open(dir, false, &log), BT_ERR_IO);
    assert_null(log);
}

static void valid_client_request_id_is_kept(void **state)
{
    char longest[BT_REQUEST_ID_MAX + 2];
    const char *const good[] = {"a", "0af7-65:1/x=\"y\"~!", longest};
    const char *const bad[] = {NULL,     "",     "a b",     "tab\t",
                               "line\n", "\x7f", "\xc3\xa4"};
    char id[BT_REQUEST_ID_BYTES], other[BT_REQUEST_ID_BYTES];
    bt_ids_t ids;

    (void)state;
    assert_int_equal(bt_ids_init(&ids), BT_OK);
    memset(longest, 'x', sizeof(longest));
    longest[BT_REQUEST_ID_MAX] = '\0';
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        bt_request_id(&ids, good[i], id);
        assert_string_equal(id, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bt_request_id(&ids, bad[i], id);
        assert_int_equal(strspn(id, "0123456789abcdef"), 32);
        assert_int_equal(strlen(id), 32);
        bt_request_id(&ids, bad[i], other);
        assert_string_not_equal(id, other);
    }
    longest[BT_REQUEST_ID_MAX] = 'x';
    longest[BT_REQUEST_ID_MAX + 1] = '\0'; /* one too many */
    bt_request_id(&ids, longest, id);
    assert_int_equal(strlen(id), 32);
}

#define DIR_TEST(fn)                     \
    {                                    \
#fn, fn, set_up, tear_down, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIR_TEST(text_line_has_every_field_in_its_column),
        DIR_TEST(json_line_omits_unknown_fields),
        DIR_TEST(moved_file_is_reopened),
        DIR_TEST(failed_reopen_keeps_the_old_file),
        DIR_TEST(begun_line_stays_in_its_file),
        DIR_TEST(standard_output_never_blocks),
        DIR_TEST(hanging_write_blocks_its_thread_only),
        DIR_TEST(standard_output_file_keeps_its_content),
        DIR_TEST(failed_allocation_opens_nothing),
        DIR_TEST(valid_client_request_id_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
