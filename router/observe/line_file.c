/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/line_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/strbuf.h"

#define BUFFER_BYTES (16u << 20) /* of lines that the file does not take */
#define RETRY_MS     1000u

struct bt_line_file {
    int fd;
    bool is_socket;
    char *path; /* owned */
    const char *what, *option;
    bt_strbuf_t lines;
    bool in_line;    /* the first of them is written in part */
    uint64_t n_lost; /* not told yet */
    bool failing;
    uint64_t retry_ms;
};

static int open_path(const char *path)
{
    /* Not blocking: a pipe's reader may be slow, or not there. */
    return open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
        0640);
}

/* O_NONBLOCK belongs to what a descriptor leads to, and other processes may
 * have standard output in common with us: a pipe or terminal is opened anew. A
 * file is not, because its offset is common too; it never blocks. A socket
 * cannot be, but each send() can say that it does not wait. */
static int open_standard_output(bool *is_socket_p)
{
    struct stat info;

    if (fstat(STDOUT_FILENO, &info) != 0) {
        return -1;
    }
    *is_socket_p = S_ISSOCK(info.st_mode);
    if (S_ISREG(info.st_mode) || *is_socket_p) {
        return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    }
    return open("/proc/self/fd/1",
                O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

static bool is_standard_output(const bt_line_file_t *file)
{
    return strcmp(file->path, "-") == 0;
}

static void file_free(bt_line_file_t *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    bt_strbuf_fini(&file->lines);
    bt_free(file->path);
    bt_free(file);
}

bt_status_t bt_line_file_open(const char *path, const char *what,
                              const char *option, bt_line_file_t **file_p)
{
    bt_line_file_t *file = bt_calloc(1, sizeof(*file));

    if (file == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    file->fd = -1;
    file->what = what;
    file->option = option;
    bt_strbuf_init(&file->lines, BUFFER_BYTES);
    file->path = bt_strdup(path);
    if (file->path == NULL) {
        file_free(file);
        return BT_ERR_NO_MEMORY;
    }
    file->fd = is_standard_output(file) ? open_standard_output(&file->is_socket)
                                        : open_path(path);
    if (file->fd < 0) {
        BT_LOG_ERROR("cannot open the %s file %s %s: %m", what, option, path);
        file_free(file);
        return BT_ERR_IO;
    }
    *file_p = file;
    return BT_OK;
}

void bt_line_file_lose(bt_line_file_t *file)
{
    file->n_lost++;
}

void bt_line_file_add(bt_line_file_t *file, const char *line, size_t bytes)
{
    bt_strbuf_append(&file->lines, line, bytes);
    /* Whole lines or none: a failed append leaves what was there. */
    if (bt_strbuf_status(&file->lines) != BT_OK) {
        file->lines.status = BT_OK;
        file->n_lost++;
    }
}

/* @return false when the file takes nothing now. */
static bool write_lines(bt_line_file_t *file)
{
    bt_strbuf_t *lines = &file->lines;
    size_t done = 0;

    while (done < lines->len) {
        const char *data = lines->data + done;
        const size_t left = lines->len - done;
        const ssize_t n = file->is_socket ? send(file->fd, data, left,
                                                 MSG_DONTWAIT | MSG_NOSIGNAL)
                                          : write(file->fd, data, left);

        if (n > 0) {
            done += (size_t)n;
        } else if ((n == 0) || (errno != EINTR)) {
            break;
        }
    }
    if (done > 0) {
        file->in_line = lines->data[done - 1] != '\n';
    }
    bt_strbuf_consume(lines, done);
    return lines->len == 0;
}

uint64_t bt_line_file_flush(bt_line_file_t *file, uint64_t now_ms)
{
    const uint64_t n_lost = file->n_lost;

    file->n_lost = 0;
    if ((file->lines.len > 0) && (now_ms >= file->retry_ms)) {
        if (write_lines(file)) {
            if (file->failing) {
                BT_LOG_INFO("%s file %s: written again", file->what,
                            file->path);
            }
            file->failing = false;
            file->retry_ms = 0;
        } else {
            if (!file->failing) {
                BT_LOG_WARN("%s file %s: %m; lines are kept for now",
                            file->what, file->path);
            }
            file->failing = true;
            file->retry_ms = now_ms + RETRY_MS;
        }
    }
    if (n_lost > 0) {
        BT_LOG_WARN("%s file %s: %" PRIu64 " lines are lost", file->what,
                    file->path, n_lost);
    }
    return n_lost;
}

/* The rest of a line whose beginning lies in the old file. */
static void drop_rest_of_line(bt_line_file_t *file)
{
    const char *end =
        file->in_line ? memchr(file->lines.data, '\n', file->lines.len) : NULL;

    if (end != NULL) {
        bt_strbuf_consume(&file->lines, (size_t)(end + 1 - file->lines.data));
        file->n_lost++;
    }
    file->in_line = false;
}

void bt_line_file_reopen(bt_line_file_t *file)
{
    int fd;

    if (is_standard_output(file)) {
        return;
    }
    (void)write_lines(file); /* what it does not take goes to the new one */
    fd = open_path(file->path);
    if (fd < 0) {
        BT_LOG_WARN("cannot open the %s file %s %s again: %m; the old one "
                    "goes on",
                    file->what, file->option, file->path);
        return;
    }
    close(file->fd);
    file->fd = fd;
    drop_rest_of_line(file);
    file->retry_ms = 0;
    BT_LOG_INFO("%s file %s: opened again", file->what, file->path);
}

void bt_line_file_close(bt_line_file_t *file)
{
    if (file == NULL) {
        return;
    }
    if (!write_lines(file)) {
        BT_LOG_WARN("%s file %s: %m; the last %zu bytes are lost", file->what,
                    file->path, file->lines.len);
    }
    file_free(file);
}
