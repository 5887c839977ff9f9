/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/async_writer.h"
#include "common/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"

#define TELL_BYTES 1024
#define AGAIN_MS   20 /* where poll() says "now" and a write "not yet" */
#define FILE_BYTES (1u << 20) /* at once */
#define JOIN_MS    200        /* grace period of a thread that must end */

typedef enum way {
    WAY_WRITE, /* waits for no reader */
    WAY_SEND,  /* non-blocking with MSG_DONTWAIT */
    WAY_WAIT,  /* the thread alone */
} way_t;

/* Target of lines. */
typedef struct target {
    way_t way;
    int fd;
    bool is_owned;
    bool is_file;
} target_t;

struct bt_async_writer {
    bt_async_writer_options_t options;
    int wake_fd; /* readable: the thread checks for changes */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, quiet; /* for the thread; for callers that wait for
                                   it */
    /* Under the lock. Others than the thread write to `to` while it has
     * nothing; it alone changes it. */
    target_t to;
    target_t next;  /* of bt_async_writer_reopen(); fd -1: none */
    size_t to_next; /* offset in `in` from which lines are for `next` */
    char *in;
    size_t in_len;
    size_t left; /* the thread's bytes that are not out */
    uint64_t n_dropped;
    uint64_t n_untold; /* unreported drops, after what is in `in` */
    int fault;
    bool in_line; /* the target has the beginning of a line */
    bool busy;    /* the thread has something */
    bool starting, ending, ended, abandoned;
    /* The thread's. */
    char *out;
};

static uint64_t count_lines(const char *data, size_t n)
{
    uint64_t lines = 0;

    for (size_t i = 0; i < n; i++) {
        lines += (data[i] == '\n') ? 1 : 0;
    }
    return lines;
}

static bool is_later(int error)
{
    return (error == EAGAIN) || (error == EWOULDBLOCK);
}

/* ---- where lines go ---- */

static target_t target_of(int fd, bool is_owned)
{
    target_t to = {.way = WAY_WAIT, .fd = fd, .is_owned = is_owned};
    const int flags = fcntl(fd, F_GETFL);
    struct stat info;
    char path[64];
    int own;

    if ((flags < 0) || (fstat(fd, &info) != 0)) {
        return to;
    }
    to.is_file = S_ISREG(info.st_mode);
    if (to.is_file || ((flags & O_NONBLOCK) != 0)) {
        to.way = WAY_WRITE;
    } else if (S_ISSOCK(info.st_mode)) {
        to.way = WAY_SEND;
    } else {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        own = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (own >= 0) {
            if (is_owned) {
                close(fd);
            }
            to = (target_t){.way = WAY_WRITE, .fd = own, .is_owned = true};
        }
    }
    return to;
}

static void target_end(target_t *to)
{
    if (to->is_owned && (to->fd >= 0)) {
        close(to->fd);
    }
    to->fd = -1;
}

/* One attempt. @return bytes, or -1 with errno */
static ssize_t put(const target_t *to, const char *data, size_t n)
{
    ssize_t done;

    do {
        done = (to->way == WAY_SEND)
                   ? send(to->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : write(to->fd, data, n);
    } while ((done < 0) && (errno == EINTR));
    return done;
}

/* ---- adding lines ---- */

/* With the lock. */
static void wake(bt_async_writer_t *writer)
{
    writer->starting = true;
    pthread_cond_signal(&writer->work);
}

/* Wakes the thread, also where it waits for a descriptor. */
static void wake_anyway(bt_async_writer_t *writer)
{
    static const uint64_t one = 1;

    wake(writer);
    (void)!write(writer->wake_fd, &one, sizeof(one));
}

/* With the lock, while nothing waits. @return bytes that are done with */
static size_t put_at_once(bt_async_writer_t *writer, const char *lines,
                          size_t bytes)
{
    const ssize_t n = put(&writer->to, lines, bytes);

    if (n > 0) {
        writer->in_line = lines[n - 1] != '\n';
        return (size_t)n;
    }
    if (is_later(errno) || (writer->options.retry_ms > 0)) {
        return 0;
    }
    /* A full disk, a terminal that is gone: nowhere is left to say it. */
    writer->n_dropped += count_lines(lines, bytes);
    return bytes;
}

void bt_async_writer_add(bt_async_writer_t *writer, const char *lines,
                         size_t bytes)
{
    const size_t capacity = writer->options.capacity;
    size_t done = 0;

    pthread_mutex_lock(&writer->lock);
    if (bytes > capacity) {
        writer->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    if (!writer->options.by_thread && (writer->to.way != WAY_WAIT) &&
        !writer->busy && (writer->in_len == 0) && (writer->next.fd < 0)) {
        done = put_at_once(writer, lines, bytes);
        if (done == bytes) {
            goto out;
        }
    }
    /* After the first line without space all are dropped until the thread
     * has taken what is queued, so that all dropped lines are in one place. */
    if ((writer->n_untold > 0) || (bytes - done > capacity - writer->in_len)) {
        writer->n_untold += count_lines(lines, bytes);
        writer->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    memcpy(writer->in + writer->in_len, lines + done, bytes - done);
    writer->in_len += bytes - done;
    if (!writer->options.by_thread || (writer->in_len > capacity / 2)) {
        wake(writer);
    }
out:
    pthread_mutex_unlock(&writer->lock);
}

void bt_async_writer_start(bt_async_writer_t *writer)
{
    pthread_mutex_lock(&writer->lock);
    if (writer->in_len > 0) {
        wake(writer);
    }
    pthread_mutex_unlock(&writer->lock);
}

void bt_async_writer_reopen(bt_async_writer_t *writer, int fd)
{
    pthread_mutex_lock(&writer->lock);
    target_end(&writer->next); /* of a call just before */
    writer->next = target_of(fd, true);
    writer->to_next = writer->in_len;
    wake_anyway(writer);
    pthread_mutex_unlock(&writer->lock);
}

bt_async_writer_state_t bt_async_writer_state(bt_async_writer_t *writer)
{
    bt_async_writer_state_t state;

    pthread_mutex_lock(&writer->lock);
    state =
        (bt_async_writer_state_t){.n_dropped = writer->n_dropped,
                                  .n_waiting = writer->in_len + writer->left,
                                  .fault = writer->fault};
    pthread_mutex_unlock(&writer->lock);
    return state;
}

/* ---- the thread ---- */

/* Waits, without the lock, until the target may accept bytes, or something
 * changed. @param again poll() reported space, and there was none: do not
 * spin */
static void wait_writable(bt_async_writer_t *writer, int fault, bool again)
{
    struct pollfd fds[] = {
        {.fd = writer->wake_fd, .events = POLLIN},
        {.fd = writer->to.fd, .events = POLLOUT},
    };
    uint64_t count;

    if (!is_later(fault)) {
        (void)poll(fds, 1, (int)writer->options.retry_ms);
    } else if (again) {
        (void)poll(fds, 1, AGAIN_MS);
    } else {
        (void)poll(fds, 2, -1);
    }
    (void)!read(writer->wake_fd, &count, sizeof(count)); /* it never waits */
}

/* As many whole lines as a pipe accepts atomically. */
static size_t piece_of(const target_t *to, const char *data, size_t n)
{
    const char *end;

    if (to->is_file) {
        return (n < FILE_BYTES) ? n : FILE_BYTES;
    }
    if ((data == NULL) || (n <= PIPE_BUF)) { /* gcc's sanitizers doubt it */
        return n;
    }
    end = memrchr(data, '\n', PIPE_BUF);
    if (end == NULL) {
        end = memchr(data, '\n', n);
    }
    return (end != NULL) ? (size_t)(end + 1 - data) : n;
}

/* With the lock. */
static void switch_to_next(bt_async_writer_t *writer)
{
    if (writer->next.fd >= 0) {
        target_end(&writer->to);
        writer->to = writer->next;
        writer->next.fd = -1;
        writer->in_line = false;
        writer->fault = 0;
    }
}

/* With the lock. Bytes that the target rejects now stay queued, are dropped,
 * or go to the next target. @return bytes that are dropped */
static size_t after_fault(bt_async_writer_t *writer, int fault,
                          const char *data, size_t n)
{
    const bool is_lost = !is_later(fault) && (writer->options.retry_ms == 0);
    const char *end;
    size_t skip = 0;

    if (is_lost) {
        skip = n;
    } else if (writer->next.fd >= 0) {
        /* The rest of a line whose beginning went to the old target. */
        end = writer->in_line ? memchr(data, '\n', n) : NULL;
        skip = (end != NULL) ? (size_t)(end + 1 - data) : 0;
        switch_to_next(writer);
    }
    writer->n_dropped += count_lines(data, skip);
    return skip;
}

/* With the lock, which is released during writes. */
static void put_all(bt_async_writer_t *writer, const char *data, size_t n)
{
    bool waited = false;
    size_t skip;

    while (n > 0) {
        const target_t to = writer->to;
        ssize_t done;
        int fault;

        if (writer->ending) { /* a borrowed descriptor is the owner's again */
            writer->n_dropped += count_lines(data, n);
            break;
        }
        writer->left = n;
        pthread_mutex_unlock(&writer->lock);
        done = put(&to, data, piece_of(&to, data, n));
        fault = (done < 0) ? errno : EIO;
        pthread_mutex_lock(&writer->lock);
        if (done > 0) {
            data += done;
            n -= (size_t)done;
            writer->in_line = data[-1] != '\n';
            writer->fault = 0;
            waited = false;
            continue;
        }
        writer->fault = fault;
        skip = after_fault(writer, fault, data, n);
        data += skip;
        n -= skip;
        if ((n > 0) && (writer->fault != 0)) { /* the target is unchanged */
            pthread_mutex_unlock(&writer->lock);
            wait_writable(writer, fault, waited);
            pthread_mutex_lock(&writer->lock);
            waited = true;
        }
    }
    writer->left = 0;
}

/* With the lock, which is released meanwhile. */
static void put_what_waits(bt_async_writer_t *writer)
{
    const uint64_t n_untold = writer->n_untold;
    const bool is_next = writer->next.fd >= 0;
    const size_t n = writer->in_len;
    const size_t n_before = is_next ? writer->to_next : n;
    char *const data = writer->in;
    char line[TELL_BYTES];

    writer->in = writer->out;
    writer->out = data;
    writer->in_len = 0;
    writer->to_next = 0;
    writer->n_untold = 0;
    writer->busy = true;
    put_all(writer, data, n_before);
    if (is_next) {
        switch_to_next(writer);
        put_all(writer, data + n_before, n - n_before);
    }
    if ((n_untold > 0) && (writer->options.tell != NULL)) {
        put_all(writer, line,
                writer->options.tell(n_untold, line, sizeof(line)));
    }
    writer->busy = false;
}

static void writer_free(bt_async_writer_t *writer)
{
    target_end(&writer->to);
    target_end(&writer->next);
    if (writer->wake_fd >= 0) {
        close(writer->wake_fd);
    }
    pthread_cond_destroy(&writer->quiet);
    pthread_cond_destroy(&writer->work);
    pthread_mutex_destroy(&writer->lock);
    bt_free(writer->in);
    bt_free(writer->out);
    bt_free(writer);
}

static void *run(void *arg)
{
    bt_async_writer_t *const writer = arg;
    bool abandoned;

    pthread_mutex_lock(&writer->lock);
    for (;;) {
        if (writer->starting) {
            writer->starting = false;
            put_what_waits(writer);
        } else if (writer->ending) {
            break;
        } else {
            pthread_cond_broadcast(&writer->quiet);
            pthread_cond_wait(&writer->work, &writer->lock);
        }
    }
    writer->ended = true;
    abandoned = writer->abandoned;
    pthread_cond_broadcast(&writer->quiet);
    pthread_mutex_unlock(&writer->lock);
    if (abandoned) {
        writer_free(writer);
    }
    return NULL;
}

/* ---- birth and end ---- */

static bool is_quiet(const bt_async_writer_t *writer)
{
    return !writer->busy && !writer->starting;
}

static bool has_ended(const bt_async_writer_t *writer)
{
    return writer->ended;
}

/* With the lock. */
static bool wait_until(bt_async_writer_t *writer,
                       bool (*holds)(const bt_async_writer_t *),
                       uint32_t timeout_ms)
{
    struct timespec when;

    bt_thread_deadline(timeout_ms, &when);
    while (!holds(writer) && (pthread_cond_timedwait(
                                  &writer->quiet, &writer->lock, &when) == 0)) {
    }
    return holds(writer);
}

bool bt_async_writer_flush(bt_async_writer_t *writer, uint32_t timeout_ms)
{
    bool is_out;

    pthread_mutex_lock(&writer->lock);
    if (writer->busy || (writer->in_len > 0)) {
        wake_anyway(writer);
    }
    is_out = wait_until(writer, is_quiet, timeout_ms);
    pthread_mutex_unlock(&writer->lock);
    return is_out;
}

void bt_async_writer_close(bt_async_writer_t *writer, uint32_t timeout_ms)
{
    bool ended;

    if (writer == NULL) {
        return;
    }
    (void)bt_async_writer_flush(writer, timeout_ms);
    pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    writer->in_len = 0;
    writer->to_next = 0;
    wake_anyway(writer);
    ended = wait_until(writer, has_ended, JOIN_MS);
    if (!ended) {
        writer->abandoned = true;
        pthread_detach(writer->thread);
    }
    pthread_mutex_unlock(&writer->lock); /* from here on it may be gone */
    if (ended) {
        pthread_join(writer->thread, NULL);
        writer_free(writer);
    }
}

static bt_status_t start_thread(bt_async_writer_t *writer)
{
    return (bt_thread_start(&writer->thread, run, writer) == 0) ? BT_OK
                                                                : BT_ERR_IO;
}

bt_status_t bt_async_writer_open(const bt_async_writer_options_t *options,
                                 bt_async_writer_t **writer_p)
{
    bt_async_writer_t *writer = bt_calloc(1, sizeof(*writer));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (writer == NULL) {
        if (options->owns_fd) {
            close(options->fd);
        }
        return status;
    }
    writer->options = *options;
    writer->to = (target_t){.fd = options->fd, .is_owned = options->owns_fd};
    writer->next.fd = -1;
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->work, NULL);
    bt_thread_cond_init(&writer->quiet);
    writer->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    writer->in = bt_calloc(options->capacity, 1);
    writer->out = bt_calloc(options->capacity, 1);
    if ((writer->in == NULL) || (writer->out == NULL)) {
        goto err_sink;
    }
    status = BT_ERR_IO;
    if (writer->wake_fd < 0) {
        goto err_sink;
    }
    writer->to = target_of(options->fd, options->owns_fd);
    status = start_thread(writer);
    if (status != BT_OK) {
        goto err_sink;
    }
    *writer_p = writer;
    return BT_OK;

err_sink:
    writer_free(writer);
    return status;
}
