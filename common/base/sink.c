/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/sink.h"
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
#define JOIN_MS    200        /* for a thread that was told to end */

typedef enum way {
    WAY_WRITE, /* waits for no reader */
    WAY_SEND,  /* neither, if it is told so */
    WAY_WAIT,  /* the thread alone */
} way_t;

/* Where lines go. */
typedef struct target {
    way_t way;
    int fd;
    bool is_owned;
    bool is_file;
} target_t;

struct bt_sink {
    bt_sink_options_t options;
    int wake_fd; /* readable: the thread looks what is new */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, quiet; /* for the thread; for who waits for it */
    /* Under the lock. Others than the thread write to `to` while it has
     * nothing; it alone changes it. */
    target_t to;
    target_t next;  /* of bt_sink_reopen(); fd -1: none */
    size_t to_next; /* what is in `in` from here on is for `next` */
    char *in;
    size_t in_len;
    size_t left; /* the thread's bytes that are not out */
    uint64_t n_dropped;
    uint64_t n_untold; /* of them: after what is in `in` */
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

/* ---- who adds ---- */

/* With the lock. */
static void wake(bt_sink_t *sink)
{
    sink->starting = true;
    pthread_cond_signal(&sink->work);
}

/* The same, also where it waits for a descriptor. */
static void wake_anyway(bt_sink_t *sink)
{
    static const uint64_t one = 1;

    wake(sink);
    (void)!write(sink->wake_fd, &one, sizeof(one));
}

/* With the lock, while nothing waits. @return bytes that are done with */
static size_t put_at_once(bt_sink_t *sink, const char *lines, size_t bytes)
{
    const ssize_t n = put(&sink->to, lines, bytes);

    if (n > 0) {
        sink->in_line = lines[n - 1] != '\n';
        return (size_t)n;
    }
    if (is_later(errno) || (sink->options.retry_ms > 0)) {
        return 0;
    }
    /* A full disk, a terminal that is gone: nowhere is left to say it. */
    sink->n_dropped += count_lines(lines, bytes);
    return bytes;
}

void bt_sink_add(bt_sink_t *sink, const char *lines, size_t bytes)
{
    const size_t room = sink->options.room;
    size_t done = 0;

    pthread_mutex_lock(&sink->lock);
    if (bytes > room) {
        sink->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    if (!sink->options.by_thread && (sink->to.way != WAY_WAIT) && !sink->busy &&
        (sink->in_len == 0) && (sink->next.fd < 0)) {
        done = put_at_once(sink, lines, bytes);
        if (done == bytes) {
            goto out;
        }
    }
    /* After the first that found no room none does until the thread has taken
     * what is there, so that all that are lost here stood in one place. */
    if ((sink->n_untold > 0) || (bytes - done > room - sink->in_len)) {
        sink->n_untold += count_lines(lines, bytes);
        sink->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    memcpy(sink->in + sink->in_len, lines + done, bytes - done);
    sink->in_len += bytes - done;
    if (!sink->options.by_thread || (sink->in_len > room / 2)) {
        wake(sink);
    }
out:
    pthread_mutex_unlock(&sink->lock);
}

void bt_sink_start(bt_sink_t *sink)
{
    pthread_mutex_lock(&sink->lock);
    if (sink->in_len > 0) {
        wake(sink);
    }
    pthread_mutex_unlock(&sink->lock);
}

void bt_sink_reopen(bt_sink_t *sink, int fd)
{
    pthread_mutex_lock(&sink->lock);
    target_end(&sink->next); /* of a call just before */
    sink->next = target_of(fd, true);
    sink->to_next = sink->in_len;
    wake_anyway(sink);
    pthread_mutex_unlock(&sink->lock);
}

uint64_t bt_sink_dropped(bt_sink_t *sink)
{
    uint64_t n;

    pthread_mutex_lock(&sink->lock);
    n = sink->n_dropped;
    pthread_mutex_unlock(&sink->lock);
    return n;
}

int bt_sink_fault(bt_sink_t *sink)
{
    int fault;

    pthread_mutex_lock(&sink->lock);
    fault = sink->fault;
    pthread_mutex_unlock(&sink->lock);
    return fault;
}

size_t bt_sink_waiting(bt_sink_t *sink)
{
    size_t n;

    pthread_mutex_lock(&sink->lock);
    n = sink->in_len + sink->left;
    pthread_mutex_unlock(&sink->lock);
    return n;
}

/* ---- the thread ---- */

/* Without the lock. Until there may be room, or something is new.
 * @param again  there was said to be room, and there was none: no spinning */
static void wait_for_room(bt_sink_t *sink, int fault, bool again)
{
    struct pollfd fds[] = {
        {.fd = sink->wake_fd, .events = POLLIN},
        {.fd = sink->to.fd, .events = POLLOUT},
    };
    uint64_t count;

    if (!is_later(fault)) {
        (void)poll(fds, 1, (int)sink->options.retry_ms);
    } else if (again) {
        (void)poll(fds, 1, AGAIN_MS);
    } else {
        (void)poll(fds, 2, -1);
    }
    (void)!read(sink->wake_fd, &count, sizeof(count)); /* it never waits */
}

/* As many whole lines as a pipe takes without mixing them with others'. */
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
static void switch_to_next(bt_sink_t *sink)
{
    if (sink->next.fd >= 0) {
        target_end(&sink->to);
        sink->to = sink->next;
        sink->next.fd = -1;
        sink->in_line = false;
        sink->fault = 0;
    }
}

/* With the lock. What the target does not take now waits, is dropped, or goes
 * to the next one. @return bytes that are dropped */
static size_t after_fault(bt_sink_t *sink, int fault, const char *data,
                          size_t n)
{
    const bool is_lost = !is_later(fault) && (sink->options.retry_ms == 0);
    const char *end;
    size_t skip = 0;

    if (is_lost) {
        skip = n;
    } else if (sink->next.fd >= 0) {
        /* The rest of a line whose beginning lies in the old one. */
        end = sink->in_line ? memchr(data, '\n', n) : NULL;
        skip = (end != NULL) ? (size_t)(end + 1 - data) : 0;
        switch_to_next(sink);
    }
    sink->n_dropped += count_lines(data, skip);
    return skip;
}

/* With the lock, which is let go while the target takes something. */
static void put_all(bt_sink_t *sink, const char *data, size_t n)
{
    bool waited = false;
    size_t skip;

    while (n > 0) {
        const target_t to = sink->to;
        ssize_t done;
        int fault;

        if (sink->ending) { /* who borrowed us the descriptor has it back */
            sink->n_dropped += count_lines(data, n);
            break;
        }
        sink->left = n;
        pthread_mutex_unlock(&sink->lock);
        done = put(&to, data, piece_of(&to, data, n));
        fault = (done < 0) ? errno : EIO;
        pthread_mutex_lock(&sink->lock);
        if (done > 0) {
            data += done;
            n -= (size_t)done;
            sink->in_line = data[-1] != '\n';
            sink->fault = 0;
            waited = false;
            continue;
        }
        sink->fault = fault;
        skip = after_fault(sink, fault, data, n);
        data += skip;
        n -= skip;
        if ((n > 0) && (sink->fault != 0)) { /* it is the same target */
            pthread_mutex_unlock(&sink->lock);
            wait_for_room(sink, fault, waited);
            pthread_mutex_lock(&sink->lock);
            waited = true;
        }
    }
    sink->left = 0;
}

/* With the lock, which is let go meanwhile. */
static void put_what_waits(bt_sink_t *sink)
{
    const uint64_t n_untold = sink->n_untold;
    const bool is_next = sink->next.fd >= 0;
    const size_t n = sink->in_len;
    const size_t n_before = is_next ? sink->to_next : n;
    char *const data = sink->in;
    char line[TELL_BYTES];

    sink->in = sink->out;
    sink->out = data;
    sink->in_len = 0;
    sink->to_next = 0;
    sink->n_untold = 0;
    sink->busy = true;
    put_all(sink, data, n_before);
    if (is_next) {
        switch_to_next(sink);
        put_all(sink, data + n_before, n - n_before);
    }
    if ((n_untold > 0) && (sink->options.tell != NULL)) {
        put_all(sink, line, sink->options.tell(n_untold, line, sizeof(line)));
    }
    sink->busy = false;
}

static void sink_free(bt_sink_t *sink)
{
    target_end(&sink->to);
    target_end(&sink->next);
    if (sink->wake_fd >= 0) {
        close(sink->wake_fd);
    }
    pthread_cond_destroy(&sink->quiet);
    pthread_cond_destroy(&sink->work);
    pthread_mutex_destroy(&sink->lock);
    bt_free(sink->in);
    bt_free(sink->out);
    bt_free(sink);
}

static void *run(void *arg)
{
    bt_sink_t *const sink = arg;
    bool abandoned;

    pthread_mutex_lock(&sink->lock);
    for (;;) {
        if (sink->starting) {
            sink->starting = false;
            put_what_waits(sink);
        } else if (sink->ending) {
            break;
        } else {
            pthread_cond_broadcast(&sink->quiet);
            pthread_cond_wait(&sink->work, &sink->lock);
        }
    }
    sink->ended = true;
    abandoned = sink->abandoned;
    pthread_cond_broadcast(&sink->quiet);
    pthread_mutex_unlock(&sink->lock);
    if (abandoned) {
        sink_free(sink);
    }
    return NULL;
}

/* ---- birth and end ---- */

static bool is_quiet(const bt_sink_t *sink)
{
    return !sink->busy && !sink->starting;
}

static bool has_ended(const bt_sink_t *sink)
{
    return sink->ended;
}

/* With the lock. */
static bool wait_until(bt_sink_t *sink, bool (*holds)(const bt_sink_t *),
                       uint32_t timeout_ms)
{
    struct timespec when;

    bt_thread_deadline(timeout_ms, &when);
    while (!holds(sink) &&
           (pthread_cond_timedwait(&sink->quiet, &sink->lock, &when) == 0)) {
    }
    return holds(sink);
}

bool bt_sink_flush(bt_sink_t *sink, uint32_t timeout_ms)
{
    bool is_out;

    pthread_mutex_lock(&sink->lock);
    if (sink->busy || (sink->in_len > 0)) {
        wake_anyway(sink);
    }
    is_out = wait_until(sink, is_quiet, timeout_ms);
    pthread_mutex_unlock(&sink->lock);
    return is_out;
}

void bt_sink_close(bt_sink_t *sink, uint32_t timeout_ms)
{
    bool ended;

    if (sink == NULL) {
        return;
    }
    (void)bt_sink_flush(sink, timeout_ms);
    pthread_mutex_lock(&sink->lock);
    sink->ending = true;
    sink->in_len = 0;
    sink->to_next = 0;
    wake_anyway(sink);
    ended = wait_until(sink, has_ended, JOIN_MS);
    if (!ended) {
        sink->abandoned = true;
        pthread_detach(sink->thread);
    }
    pthread_mutex_unlock(&sink->lock); /* from here on it may be gone */
    if (ended) {
        pthread_join(sink->thread, NULL);
        sink_free(sink);
    }
}

static bt_status_t start_thread(bt_sink_t *sink)
{
    return (bt_thread_start(&sink->thread, run, sink) == 0) ? BT_OK : BT_ERR_IO;
}

bt_status_t bt_sink_open(const bt_sink_options_t *options, bt_sink_t **sink_p)
{
    bt_sink_t *sink = bt_calloc(1, sizeof(*sink));
    bt_status_t status = BT_ERR_NO_MEMORY;
    pthread_condattr_t attr;

    if (sink == NULL) {
        if (options->owns_fd) {
            close(options->fd);
        }
        return status;
    }
    sink->options = *options;
    sink->to = (target_t){.fd = options->fd, .is_owned = options->owns_fd};
    sink->next.fd = -1;
    pthread_mutex_init(&sink->lock, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sink->work, NULL);
    pthread_cond_init(&sink->quiet, &attr);
    pthread_condattr_destroy(&attr);
    sink->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sink->in = bt_calloc(options->room, 1);
    sink->out = bt_calloc(options->room, 1);
    if ((sink->in == NULL) || (sink->out == NULL)) {
        goto err_sink;
    }
    status = BT_ERR_IO;
    if (sink->wake_fd < 0) {
        goto err_sink;
    }
    sink->to = target_of(options->fd, options->owns_fd);
    status = start_thread(sink);
    if (status != BT_OK) {
        goto err_sink;
    }
    *sink_p = sink;
    return BT_OK;

err_sink:
    sink_free(sink);
    return status;
}
