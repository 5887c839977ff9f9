/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/async_writer.h"
#include "common/base/clock.h"

#define DEADLINE_MS 60000
#define ROOM        8192u
#define LINE_BYTES  12u /* of "line 00042.\n" */
#define TEXT_BYTES  (2u << 20)

/* What was read. */
static char text[TEXT_BYTES];
static size_t len;

static size_t tell(uint64_t n, char *line, size_t cap)
{
    return (size_t)snprintf(line, cap, "%llu dropped\n", (unsigned long long)n);
}

static void add_line(bt_async_writer_t *writer, unsigned i)
{
    char line[32];

    snprintf(line, sizeof(line), "line %05u.\n", i);
    bt_async_writer_add(writer, line, LINE_BYTES);
}

static bt_status_t open_sink(int fd, size_t room, bt_async_writer_t **writer_p)
{
    const bt_async_writer_options_t options = {
        .fd = fd, .capacity = room, .tell = tell};

    return bt_async_writer_open(&options, writer_p);
}

static void forget(void)
{
    memset(text, 0, sizeof(text));
    len = 0;
}

/* Go on reading until @a end is there. */
static void read_until(int fd, const char *end)
{
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;

    while (strstr(text, end) == NULL) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        ssize_t n;

        assert_true(bt_now_ms() < deadline_ms);
        if (poll(&ready, 1, 100) > 0) {
            n = read(fd, text + len, sizeof(text) - 1 - len);
            assert_true(n > 0);
            len += (size_t)n;
        }
    }
}

/* Read what there is until all that was added is out. */
static void read_all(bt_async_writer_t *writer, int fd)
{
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;

    while (!bt_async_writer_flush(writer, 1)) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        assert_true(bt_now_ms() < deadline_ms);
        if (poll(&ready, 1, 1) > 0) {
            len += (size_t)read(fd, text + len, sizeof(text) - 1 - len);
        }
    }
}

/* With nobody who reads: until what leads there is full, the thread waits, and
 * lines are dropped. @return how many were added */
static unsigned fill(bt_async_writer_t *writer)
{
    unsigned n = 0;

    do {
        for (unsigned i = 0; i < 500; i++) {
            add_line(writer, n++); /* comes back */
        }
    } while (bt_async_writer_flush(writer, 20) ||
             (bt_async_writer_state(writer).n_dropped == 0));
    return n;
}

/* Each line in order, or counted where it was dropped; then one more. */
static void assert_told(unsigned n_lines, uint64_t n_dropped)
{
    const char *at = text;
    unsigned i = 0;
    uint64_t told = 0;

    while (i < n_lines) {
        if (strncmp(at, "line ", 5) == 0) {
            assert_int_equal(strtoul(at + 5, NULL, 10), i);
            i++;
        } else {
            const unsigned long n = strtoul(at, NULL, 10);

            assert_true(n > 0);
            told += n;
            i += (unsigned)n;
        }
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(i, n_lines);
    assert_int_equal(told, n_dropped);
    assert_string_equal(at, "line 99999.\n");
}

/* Nobody reads while lines are added; then somebody does.
 * @param ends  read, written */
static void assert_never_waits(bt_async_writer_t *writer, const int ends[2])
{
    const unsigned n = fill(writer);

    forget();
    assert_int_equal(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    read_all(writer, ends[0]);
    add_line(writer, 99999);
    read_until(ends[0], "line 99999.\n");
    assert_true(bt_async_writer_state(writer).n_dropped > 0);
    assert_told(n, bt_async_writer_state(writer).n_dropped);
}

static void stopped_reader_loses_lines_and_gets_their_count(void **state)
{
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    assert_never_waits(writer, ends);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[0]);
    close(ends[1]);
}

static void full_socket_does_not_block_the_writer(void **state)
{
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    assert_never_waits(writer, ends);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[0]);
    close(ends[1]);
}

/* Ctrl-S, then Ctrl-Q. */
static void stopped_terminal_does_not_block_the_writer(void **state)
{
    const int reader = posix_openpt(O_RDWR | O_NOCTTY);
    struct termios raw;
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    assert_true(reader >= 0);
    assert_int_equal(grantpt(reader), 0);
    assert_int_equal(unlockpt(reader), 0);
    ends[0] = reader;
    ends[1] = open(ptsname(reader), O_RDWR | O_NOCTTY);
    assert_true(ends[1] >= 0);
    assert_int_equal(tcgetattr(ends[1], &raw), 0);
    cfmakeraw(&raw);
    assert_int_equal(tcsetattr(ends[1], TCSANOW, &raw), 0);
    assert_int_equal(tcflow(ends[1], TCOOFF), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    (void)fill(writer);
    assert_int_equal(read(ends[0], text, sizeof(text)), -1);
    assert_int_equal(tcflow(ends[1], TCOON), 0);
    forget();
    read_until(ends[0], " dropped\n");
    assert_memory_equal(text, "line 00000.\nline 00001.\n", 2 * LINE_BYTES);
    read_all(writer, ends[0]);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[0]);
    close(ends[1]);
}

/* As where it is another user's: room for one descriptor more. */
static bt_async_writer_t *open_that_cannot_open_anew(int fd)
{
    struct rlimit before, now;
    const int next = dup(fd);
    bt_async_writer_t *writer = NULL;

    assert_true(next >= 0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    now = before;
    now.rlim_cur = (rlim_t)next + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(open_sink(fd, ROOM, &writer), BT_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    return writer;
}

static void pipe_that_cannot_be_reopened_is_written_by_the_thread(void **state)
{
    bt_async_writer_t *writer;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    writer = open_that_cannot_open_anew(ends[1]);
    assert_never_waits(writer, ends);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[0]);
    close(ends[1]);
}

static void close_waits_no_longer_than_its_limit(void **state)
{
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    (void)fill(writer);
    bt_async_writer_close(writer, 1); /* comes back */
    writer = open_that_cannot_open_anew(ends[1]);
    (void)fill(writer);
    bt_async_writer_close(writer, 1); /* with its thread in write() */
    forget();
    read_until(ends[0], "line 00000.\n");
    close(ends[0]); /* and this ends that */
    close(ends[1]);
}

static void line_is_written_at_once_while_a_reader_reads(void **state)
{
    bt_async_writer_t *writer = NULL;
    char got[64] = "";
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    for (unsigned i = 0; i < 100; i++) {
        add_line(writer, i);
        assert_int_equal(read(ends[0], got, sizeof(got)), LINE_BYTES);
    }
    assert_string_equal(got, "line 00099.\n");
    bt_async_writer_close(writer, 0);
    close(ends[0]);
    close(ends[1]);
}

static void vanished_reader_loses_lines_only(void **state)
{
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    add_line(writer, 1);
    close(ends[0]);
    add_line(writer, 2);
    add_line(writer, 3);
    assert_int_equal(bt_async_writer_state(writer).n_dropped, 2);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[1]);
}

/* While others write to the same pipe: whole lines of at most PIPE_BUF. */
static void queued_lines_are_not_mixed_with_other_writers(void **state)
{
    bt_async_writer_t *a = NULL, *b = NULL;
    const char *at;
    unsigned n_a = 0, n_b = 0;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(open_sink(ends[1], 1u << 20, &a), BT_OK);
    assert_int_equal(open_sink(ends[1], 1u << 20, &b), BT_OK);
    for (unsigned i = 0; i < 20000; i++) {
        add_line(a, i);
        add_line(b, 50000 + i);
    }
    forget();
    read_until(ends[0], "line 69999.\n");
    read_until(ends[0], "line 19999.\n");
    bt_async_writer_close(a, DEADLINE_MS);
    bt_async_writer_close(b, DEADLINE_MS);
    close(ends[1]);
    for (at = text; *at != '\0'; at += LINE_BYTES) {
        const unsigned long i = strtoul(at + 5, NULL, 10);

        assert_memory_equal(at, "line ", 5);
        assert_memory_equal(at + 10, ".\n", 2);
        if (i < 50000) {
            assert_int_equal(i, n_a++);
        } else {
            assert_int_equal(i, 50000 + n_b++);
        }
    }
    assert_int_equal(n_a, 20000);
    assert_int_equal(n_b, 20000);
    close(ends[0]);
}

static void line_over_the_buffer_size_is_dropped(void **state)
{
    static char huge[ROOM + 1];
    bt_async_writer_t *writer = NULL;
    int ends[2];

    (void)state;
    memset(huge, 'x', sizeof(huge));
    huge[ROOM] = '\n';
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    bt_async_writer_add(writer, huge, sizeof(huge));
    assert_int_equal(bt_async_writer_state(writer).n_dropped, 1);
    assert_int_equal(read(ends[0], huge, 1), -1);
    bt_async_writer_close(writer, 0);
    close(ends[0]);
    close(ends[1]);
}

typedef struct adder {
    bt_async_writer_t *writer;
    pthread_t thread;
    unsigned first;
} adder_t;

static void *add_many(void *arg)
{
    adder_t *const adder = arg;

    for (unsigned i = 0; i < 10000; i++) {
        add_line(adder->writer, adder->first + i);
    }
    return NULL;
}

static void concurrent_writers_lose_only_counted_lines(void **state)
{
    bt_async_writer_t *writer = NULL;
    adder_t adders[4];
    unsigned long n_lines = 0, n_told = 0;
    int ends[2];

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(open_sink(ends[1], ROOM, &writer), BT_OK);
    for (unsigned i = 0; i < 4; i++) {
        adders[i] = (adder_t){.writer = writer, .first = 10000 * i};
        assert_int_equal(
            pthread_create(&adders[i].thread, NULL, add_many, &adders[i]), 0);
    }
    forget();
    read_until(ends[0], "line "); /* beside them */
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(adders[i].thread, NULL);
    }
    read_all(writer, ends[0]);
    add_line(writer, 99999);
    read_until(ends[0], "line 99999.\n");
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        if (strncmp(at, "line ", 5) == 0) {
            n_lines++;
        } else {
            n_told += strtoul(at, NULL, 10);
        }
    }
    assert_int_equal(n_lines + n_told, 40001);
    assert_int_equal(bt_async_writer_state(writer).n_dropped, n_told);
    bt_async_writer_close(writer, DEADLINE_MS);
    close(ends[0]);
    close(ends[1]);
}

static void failed_allocation_opens_no_writer(void **state)
{
    bt_async_writer_t *writer = NULL;

    (void)state;
    for (int nth = 1; nth <= 3; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(open_sink(STDERR_FILENO, ROOM, &writer),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(writer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stopped_reader_loses_lines_and_gets_their_count),
        BT_TEST(full_socket_does_not_block_the_writer),
        BT_TEST(stopped_terminal_does_not_block_the_writer),
        BT_TEST(pipe_that_cannot_be_reopened_is_written_by_the_thread),
        BT_TEST(close_waits_no_longer_than_its_limit),
        BT_TEST(line_is_written_at_once_while_a_reader_reads),
        BT_TEST(vanished_reader_loses_lines_only),
        BT_TEST(queued_lines_are_not_mixed_with_other_writers),
        BT_TEST(line_over_the_buffer_size_is_dropped),
        BT_TEST(concurrent_writers_lose_only_counted_lines),
        BT_TEST(failed_allocation_opens_no_writer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
