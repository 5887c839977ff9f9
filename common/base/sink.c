/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"

#define TELL_BYTES 1024
#define RETRY_MS   20  /* where poll() says "now" and a write "not yet" */
#define JOIN_MS    200 /* for a thread that was told to end */

typedef enum way {
    WAY_WRITE, /* never waits */
    WAY_SEND,  /* neither, if it is told so */
    WAY_WAIT,  /* the thread alone */
} way_t;

struct bt_sink {
    way_t way;
    int fd;      /* borrowed, or own_fd */
    int own_fd;  /* -1: none */
    int wake_fd; /* readable: the thread gives up */
    size_t room;
    bt_sink_tell_fn tell;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, quiet; /* for the thread; for who waits for it */
    /* Under the lock. */
    char *in;
    size_t in_len;
    uint64_t n_dropped;
    uint64_t n_untold; /* of them: after what is in `in` */
    bool busy;         /* the thread has something */
    bool ending, ended, abandoned;
    /* The thread's while it is busy. */
    char *out;
    size_t out_len;
};

static uint64_t count_lines(const char *data, size_t n)
{
    uint64_t lines = 0;

    for (size_t i = 0; i < n; i++) {
        lines += (data[i] == '\n') ? 1 : 0;
    }
    return lines;
}

/* One attempt. @return bytes, or -1 with errno: EAGAIN: not now */
static ssize_t put(const bt_sink_t *sink, const char *data, size_t n)
{
    ssize_t done;

    do {
        done = (sink->way == WAY_SEND)
                   ? send(sink->fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : write(sink->fd, data, n);
    } while ((done < 0) && (errno == EINTR));
    return done;
}

static bool is_later(int error)
{
    return (error == EAGAIN) || (error == EWOULDBLOCK);
}

/* ---- who adds ---- */

/* With the lock, while nothing waits. @return bytes that are done with */
static size_t put_at_once(bt_sink_t *sink, const char *lines, size_t bytes)
{
    const ssize_t n = put(sink, lines, bytes);

    if (n >= 0) {
        return (size_t)n;
    }
    if (is_later(errno)) {
        return 0;
    }
    /* A full disk, a terminal that is gone: nowhere is left to say it. */
    sink->n_dropped += count_lines(lines, bytes);
    return bytes;
}

void bt_sink_add(bt_sink_t *sink, const char *lines, size_t bytes)
{
    size_t done = 0;

    pthread_mutex_lock(&sink->lock);
    if (bytes > sink->room) {
        sink->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    if (!sink->busy && (sink->in_len == 0) && (sink->way != WAY_WAIT)) {
        done = put_at_once(sink, lines, bytes);
        if (done == bytes) {
            goto out;
        }
    }
    /* After the first that found no room none does until the thread has taken
     * what is there, so that all that are lost here stood in one place. */
    if ((sink->n_untold > 0) || (bytes - done > sink->room - sink->in_len)) {
        sink->n_untold += count_lines(lines, bytes);
        sink->n_dropped += count_lines(lines, bytes);
        goto out;
    }
    memcpy(sink->in + sink->in_len, lines + done, bytes - done);
    sink->in_len += bytes - done;
    pthread_cond_signal(&sink->work);
out:
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

/* ---- the thread ---- */

/* @param [in] again  there was said to be room, and there was none: no spinning
 * @return false: give up */
static bool wait_for_room(const bt_sink_t *sink, bool again)
{
    struct pollfd fds[] = {
        {.fd = sink->wake_fd, .events = POLLIN},
        {.fd = sink->fd, .events = POLLOUT},
    };

    return (poll(fds, again ? 1 : 2, again ? RETRY_MS : -1) >= 0) &&
           (fds[0].revents == 0);
}

/* As many whole lines as a pipe takes without mixing them with others'. */
static size_t piece_of(const char *data, size_t n)
{
    const char *end;

    if (n <= PIPE_BUF) {
        return n;
    }
    end = memrchr(data, '\n', PIPE_BUF);
    if (end == NULL) {
        end = memchr(data, '\n', n);
    }
    return (end != NULL) ? (size_t)(end + 1 - data) : n;
}

/* @return lines that are lost */
static uint64_t put_all(const bt_sink_t *sink, const char *data, size_t n)
{
    bool waited = false;

    while (n > 0) {
        const ssize_t done = put(sink, data, piece_of(data, n));

        if (done > 0) {
            data += done;
            n -= (size_t)done;
        } else if ((done == 0) || !is_later(errno) ||
                   !wait_for_room(sink, waited)) {
            break;
        }
        waited = done <= 0;
    }
    return count_lines(data, n);
}

/* With the lock, which is let go meanwhile. */
static void put_what_waits(bt_sink_t *sink)
{
    const uint64_t n_untold = sink->n_untold;
    char *const in = sink->in;
    char line[TELL_BYTES];
    uint64_t n_lost;

    sink->in = sink->out;
    sink->out = in;
    sink->out_len = sink->in_len;
    sink->in_len = 0;
    sink->n_untold = 0;
    sink->busy = true;
    pthread_mutex_unlock(&sink->lock);
    n_lost = put_all(sink, sink->out, sink->out_len);
    if ((n_untold > 0) && (sink->tell != NULL)) {
        (void)put_all(sink, line, sink->tell(n_untold, line, sizeof(line)));
    }
    pthread_mutex_lock(&sink->lock);
    sink->busy = false;
    sink->n_dropped += n_lost;
}

static void sink_free(bt_sink_t *sink)
{
    if (sink->own_fd >= 0) {
        close(sink->own_fd);
    }
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
        if (sink->in_len > 0) {
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

static void deadline_after(uint32_t timeout_ms, struct timespec *when)
{
    clock_gettime(CLOCK_MONOTONIC, when);
    when->tv_sec += timeout_ms / 1000;
    when->tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (when->tv_nsec >= 1000000000) {
        when->tv_sec++;
        when->tv_nsec -= 1000000000;
    }
}

static bool is_quiet(const bt_sink_t *sink)
{
    return !sink->busy && (sink->in_len == 0);
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

    deadline_after(timeout_ms, &when);
    while (!holds(sink) &&
           (pthread_cond_timedwait(&sink->quiet, &sink->lock, &when) == 0)) {
    }
    return holds(sink);
}

bool bt_sink_flush(bt_sink_t *sink, uint32_t timeout_ms)
{
    bool is_out;

    pthread_mutex_lock(&sink->lock);
    is_out = wait_until(sink, is_quiet, timeout_ms);
    pthread_mutex_unlock(&sink->lock);
    return is_out;
}

void bt_sink_close(bt_sink_t *sink, uint32_t timeout_ms)
{
    static const uint64_t one = 1;
    bool ended;

    if (sink == NULL) {
        return;
    }
    (void)bt_sink_flush(sink, timeout_ms);
    pthread_mutex_lock(&sink->lock);
    sink->ending = true;
    sink->in_len = 0;
    pthread_cond_signal(&sink->work);
    (void)!write(sink->wake_fd, &one, sizeof(one));
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

static void find_way(bt_sink_t *sink)
{
    char path[64];
    struct stat info;

    sink->way = WAY_WAIT;
    if (fstat(sink->fd, &info) != 0) {
        return;
    }
    if (S_ISREG(info.st_mode)) {
        sink->way = WAY_WRITE;
    } else if (S_ISSOCK(info.st_mode)) {
        sink->way = WAY_SEND;
    } else {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", sink->fd);
        sink->own_fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (sink->own_fd >= 0) {
            sink->fd = sink->own_fd;
            sink->way = WAY_WRITE;
        }
    }
}

static bt_status_t start_thread(bt_sink_t *sink)
{
    sigset_t all, before;
    int error;

    /* Signals are for the other threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&sink->thread, NULL, run, sink);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return (error == 0) ? BT_OK : BT_ERR_IO;
}

bt_status_t bt_sink_open(int fd, size_t room, bt_sink_tell_fn tell,
                         bt_sink_t **sink_p)
{
    bt_sink_t *sink = bt_calloc(1, sizeof(*sink));
    bt_status_t status = BT_ERR_NO_MEMORY;
    pthread_condattr_t attr;

    if (sink == NULL) {
        return status;
    }
    sink->fd = fd;
    sink->own_fd = -1;
    sink->room = room;
    sink->tell = tell;
    pthread_mutex_init(&sink->lock, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sink->work, NULL);
    pthread_cond_init(&sink->quiet, &attr);
    pthread_condattr_destroy(&attr);
    sink->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sink->in = bt_calloc(room, 1);
    sink->out = bt_calloc(room, 1);
    if ((sink->in == NULL) || (sink->out == NULL)) {
        goto err_sink;
    }
    find_way(sink);
    status = (sink->wake_fd >= 0) ? start_thread(sink) : BT_ERR_IO;
    if (status != BT_OK) {
        goto err_sink;
    }
    *sink_p = sink;
    return BT_OK;

err_sink:
    sink_free(sink);
    return status;
}
