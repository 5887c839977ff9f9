/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/append_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/async_writer.h"
#include "common/base/log.h"

#define QUEUE_BYTES (8u << 20) /* of lines, and as many in the writer */
#define RETRY_MS    1000u
#define CLOSE_MS    500u

struct bt_append_log {
    bt_async_writer_t *writer;
    char *path; /* owned */
    const char *what, *option;
    uint64_t n_lost;    /* lines that could not be made, not yet reported */
    uint64_t n_dropped; /* lines dropped by the writer, reported */
    bool failing;       /* a failure was logged */
    uint64_t behind_ms; /* since when the reader is behind; 0: it is not */
};

static int open_path(const char *path)
{
    /* Non-blocking: a pipe's reader may be slow or absent. */
    return open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
        0640);
}

static bool is_standard_output(const bt_append_log_t *file)
{
    return strcmp(file->path, "-") == 0;
}

static bt_status_t open_sink(bt_append_log_t *file)
{
    bt_async_writer_options_t options = {.fd = STDOUT_FILENO,
                                         .by_thread = true,
                                         .capacity = QUEUE_BYTES,
                                         .retry_ms = RETRY_MS};

    if (is_standard_output(file)) {
        if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
            options.fd = -1;
        }
    } else {
        options.fd = open_path(file->path);
        options.owns_fd = true;
    }
    if (options.fd < 0) {
        BT_LOG_ERROR("cannot open the %s file %s %s: %m", file->what,
                     file->option, file->path);
        return BT_ERR_IO;
    }
    return bt_async_writer_open(&options, &file->writer);
}

bt_status_t bt_append_log_open(const char *path, const char *what,
                               const char *option, bt_append_log_t **file_p)
{
    bt_append_log_t *file = bt_calloc(1, sizeof(*file));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (file == NULL) {
        return status;
    }
    file->what = what;
    file->option = option;
    file->path = bt_strdup(path);
    if (file->path == NULL) {
        goto err_file;
    }
    status = open_sink(file);
    if (status != BT_OK) {
        goto err_file;
    }
    *file_p = file;
    return BT_OK;

err_file:
    bt_free(file->path);
    bt_free(file);
    return status;
}

void bt_append_log_add(bt_append_log_t *file, const bt_strbuf_t *line)
{
    if (bt_strbuf_status(line) == BT_OK) {
        bt_async_writer_add(file->writer, line->data, line->len);
    } else {
        file->n_lost++;
    }
}

/* A reader may be behind briefly; any other error is logged at once. */
static bool is_failing(bt_append_log_t *file, int fault, uint64_t now_ms)
{
    if ((fault != EAGAIN) && (fault != EWOULDBLOCK)) {
        file->behind_ms = 0;
        return fault != 0;
    }
    if (file->behind_ms == 0) {
        file->behind_ms = now_ms;
    }
    return now_ms - file->behind_ms >= RETRY_MS;
}

static void say_state(bt_append_log_t *file, int fault, uint64_t now_ms)
{
    const bool failing = is_failing(file, fault, now_ms);

    if (failing && !file->failing) {
        errno = fault;
        BT_LOG_WARN("%s file %s: %m; lines are buffered", file->what,
                    file->path);
    } else if (file->failing && (fault == 0)) {
        BT_LOG_INFO("%s file %s: written again", file->what, file->path);
    } else {
        return;
    }
    file->failing = failing;
}

uint64_t bt_append_log_flush(bt_append_log_t *file, uint64_t now_ms)
{
    const bt_async_writer_state_t state = bt_async_writer_state(file->writer);
    const uint64_t n_lost = file->n_lost + state.n_dropped - file->n_dropped;

    file->n_lost = 0;
    file->n_dropped = state.n_dropped;
    bt_async_writer_start(file->writer);
    say_state(file, state.fault, now_ms);
    if (n_lost > 0) {
        BT_LOG_WARN("%s file %s: %" PRIu64 " lines are lost", file->what,
                    file->path, n_lost);
    }
    return n_lost;
}

void bt_append_log_reopen(bt_append_log_t *file)
{
    int fd;

    if (is_standard_output(file)) {
        return;
    }
    fd = open_path(file->path);
    if (fd < 0) {
        BT_LOG_WARN(
            "cannot reopen the %s file %s %s: %m; the old file stays open",
            file->what, file->option, file->path);
        return;
    }
    bt_async_writer_reopen(file->writer, fd);
    BT_LOG_INFO("%s file %s: opened again", file->what, file->path);
}

void bt_append_log_close(bt_append_log_t *file)
{
    if (file == NULL) {
        return;
    }
    if (!bt_async_writer_flush(file->writer, CLOSE_MS)) {
        const bt_async_writer_state_t state =
            bt_async_writer_state(file->writer);

        errno = state.fault;
        BT_LOG_WARN("%s file %s: %m; the last %zu bytes are lost", file->what,
                    file->path, state.n_waiting);
    }
    bt_async_writer_close(file->writer, 0);
    bt_free(file->path);
    bt_free(file);
}
