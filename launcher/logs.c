/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/logs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

/* ---- log files ---- */

#define PATH_BYTES   4096
#define NUMBER_BYTES 16 /* for ".1" and so on */

static int open_path(const char *path)
{
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
}

static uint64_t size_of(int fd)
{
    struct stat info;

    return (fstat(fd, &info) == 0) ? (uint64_t)info.st_size : 0;
}

bt_status_t bt_log_file_open(bt_log_file_t *file, const bt_log_dir_t *dir,
                             const char *name)
{
    char path[PATH_BYTES];

    *file = (bt_log_file_t){.dir = dir, .fd = -1};
    if (dir->path[0] == '\0') {
        return BT_OK;
    }
    if ((size_t)snprintf(path, sizeof(path), "%s/%s.log", dir->path, name) >=
        sizeof(path)) {
        BT_LOG_ERROR("the path of --log-dir is too long");
        return BT_ERR_IO;
    }
    file->path = bt_strdup(path);
    if (file->path == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    file->fd = open_path(path);
    if (file->fd < 0) {
        BT_LOG_ERROR("cannot write %s: %m", path);
        bt_log_file_close(file);
        return BT_ERR_IO;
    }
    file->n_bytes = size_of(file->fd);
    return BT_OK;
}

void bt_log_file_close(bt_log_file_t *file)
{
    if (file->path == NULL) {
        return;
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    bt_free(file->path);
    file->path = NULL;
    file->fd = -1;
}

static void open_anew(bt_log_file_t *file)
{
    const int fd = open_path(file->path);

    if (fd < 0) {
        BT_LOG_WARN("cannot reopen %s: %m; the old file stays open",
                    file->path);
        return;
    }
    close(file->fd);
    file->fd = fd;
    file->n_bytes = size_of(fd);
    file->is_torn = file->is_torn && (file->n_bytes > 0);
}

/* The k-th rotated file; 0: the file itself. */
static const char *name_aside(const bt_log_file_t *file, uint32_t k,
                              char name[PATH_BYTES + NUMBER_BYTES])
{
    if (k == 0) {
        return file->path;
    }
    snprintf(name, PATH_BYTES + NUMBER_BYTES, "%s.%u", file->path, k);
    return name;
}

static void rotate(bt_log_file_t *file)
{
    char from[PATH_BYTES + NUMBER_BYTES];
    char to[PATH_BYTES + NUMBER_BYTES];

    /* First of all: messages logged here may be written to this file, and a
     * failure is retried after as many bytes. */
    file->n_bytes = 0;
    for (uint32_t k = file->dir->n_keep; k > 0; k--) {
        if ((rename(name_aside(file, k - 1, from), name_aside(file, k, to)) !=
             0) &&
            (errno != ENOENT)) {
            BT_LOG_WARN("cannot rotate %s: %m; logging continues",
                        name_aside(file, k - 1, from));
            return;
        }
    }
    open_anew(file);
}

void bt_log_file_reopen(bt_log_file_t *file)
{
    if (file->path != NULL) {
        open_anew(file);
    }
}

static uint64_t count_lines(const char *lines, size_t n)
{
    uint64_t n_lines = 0;

    for (size_t i = 0; i < n; i++) {
        n_lines += (lines[i] == '\n') ? 1 : 0;
    }
    return n_lines;
}

/* @return bytes of @a data written; fewer than @a n: see errno */
static size_t append(bt_log_file_t *file, const char *data, size_t n)
{
    size_t done = 0;

    while (done < n) {
        const ssize_t some = write(file->fd, data + done, n - done);

        if (some > 0) {
            done += (size_t)some;
        } else if (some == 0) {
            errno = EIO;
            break;
        } else if (errno != EINTR) {
            break;
        }
    }
    file->n_bytes += done;
    if (done > 0) {
        file->is_torn = data[done - 1] != '\n';
    }
    return done;
}

/* Writes how many lines are missing. @return false: that does not fit either */
static bool tell_dropped(bt_log_file_t *file)
{
    char text[128], line[256];
    size_t n;

    snprintf(text, sizeof(text), "%" PRIu64 " log lines were dropped here: %s",
             file->n_dropped, strerror(file->why));
    n = bt_log_line(BT_LOG_LEVEL_WARN, text, line, sizeof(line));
    if ((file->is_torn && (append(file, "\n", 1) < 1)) ||
        (append(file, line, n) < n)) {
        return false;
    }
    file->n_dropped = 0;
    return true;
}

void bt_log_file_write(bt_log_file_t *file, const char *lines, size_t n)
{
    bool is_first;
    size_t done = 0;

    if (file->path == NULL) {
        return;
    }
    if ((file->dir->max_bytes > 0) && (file->n_bytes > 0) &&
        (file->n_bytes + n > file->dir->max_bytes)) {
        rotate(file);
    }
    if ((file->n_dropped == 0) || tell_dropped(file)) {
        done = append(file, lines, n);
    }
    if (done == n) {
        return;
    }
    /* Counted before it is logged, which may come back to this file. */
    is_first = file->n_dropped == 0;
    file->n_dropped += count_lines(lines + done, n - done);
    if (is_first) { /* a full disk stops no service */
        file->why = errno;
        BT_LOG_WARN("cannot write %s: %m; lines are dropped", file->path);
    }
}

/* ---- a child's output, line by line ---- */

void bt_output_init(bt_output_t *output, bt_log_file_t *file)
{
    output->file = file;
    output->len = 0;
}

static void put(const bt_output_t *output, const char *lines, size_t n)
{
    if (output->file->path != NULL) {
        bt_log_file_write(output->file, lines, n);
    } else {
        bt_log_pass_on(lines, n);
    }
}

/* Keeps bytes of a line; there is always space for its end. */
static size_t keep(bt_output_t *output, const char *data, size_t n)
{
    const size_t left = sizeof(output->line) - 1 - output->len;
    const size_t take = (n < left) ? n : left;

    memcpy(output->line + output->len, data, take);
    output->len += take;
    return take;
}

void bt_output_finish(bt_output_t *output)
{
    if (output->len > 0) {
        output->line[output->len++] = '\n';
        put(output, output->line, output->len);
        output->len = 0;
    }
}

void bt_output_add(bt_output_t *output, const char *data, size_t n)
{
    while (n > 0) {
        const char *const end = memchr(data, '\n', n);
        const char *const last = memrchr(data, '\n', n);
        size_t done;

        if ((output->len == 0) && (last != NULL)) {
            done = (size_t)(last + 1 - data); /* whole lines, at once */
            put(output, data, done);
        } else {
            done = keep(output, data, (end != NULL) ? (size_t)(end - data) : n);
            if ((end != NULL) && (data + done == end)) {
                done++;
                output->line[output->len++] = '\n';
                put(output, output->line, output->len);
                output->len = 0;
            } else if (output->len == sizeof(output->line) - 1) {
                bt_output_finish(output);
            }
        }
        data += done;
        n -= done;
    }
}

/* ---- the last lines ---- */

void bt_stderr_tail_reset(bt_stderr_tail_t *tail)
{
    tail->n_lines = 0;
    tail->next = 0;
    tail->len = 0;
}

static void end_line(bt_stderr_tail_t *tail)
{
    tail->lines[tail->next][tail->len] = '\0';
    tail->len = 0;
    tail->next = (tail->next + 1) % BT_STDERR_TAIL_LINES;
    /* The slot being written is the oldest line's: at most one less is held
     * while a line is open, and all of them are between two lines. */
    if (tail->n_lines < BT_STDERR_TAIL_LINES) {
        tail->n_lines++;
    }
}

void bt_stderr_tail_add(bt_stderr_tail_t *tail, const char *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n') {
            end_line(tail);
        } else if (tail->len + 1 < BT_STDERR_TAIL_BYTES) {
            if ((tail->len == 0) && (tail->n_lines == BT_STDERR_TAIL_LINES)) {
                tail->n_lines--;
            }
            tail->lines[tail->next][tail->len++] = data[i];
        }
    }
}

void bt_stderr_tail_finish(bt_stderr_tail_t *tail)
{
    if (tail->len > 0) {
        end_line(tail);
    }
}

const char *bt_stderr_tail_line(const bt_stderr_tail_t *tail, uint32_t i)
{
    uint32_t oldest;

    if (i >= tail->n_lines) {
        return NULL;
    }
    oldest = (tail->next + BT_STDERR_TAIL_LINES - tail->n_lines) %
             BT_STDERR_TAIL_LINES;
    return tail->lines[(oldest + i) % BT_STDERR_TAIL_LINES];
}

/* The text of a line "TIME error NAME: TEXT", or NULL. */
static const char *text_of_line(const char *line)
{
    const char *const level = strstr(line, " error ");
    const char *const colon = (level == NULL) ? NULL : strstr(level, ": ");

    return (colon == NULL) ? NULL : colon + strlen(": ");
}

/* The text of a line in JSON, as log.c writes it. Characters escaped by number
 * (control characters) stay as they are. */
static bool copy_json_text(const char *line, char *out)
{
    static const char key[] = "\"message\":\"";
    const char *at = strstr(line, key);

    if ((strstr(line, "\"level\":\"error\"") == NULL) || (at == NULL)) {
        return false;
    }
    for (at += sizeof(key) - 1; (*at != '\0') && (*at != '"'); at++) {
        if ((*at == '\\') && ((at[1] == '"') || (at[1] == '\\'))) {
            at++;
        }
        *out++ = *at; /* never longer than the line */
    }
    *out = '\0';
    return true;
}

void bt_stderr_tail_cause(const bt_stderr_tail_t *tail,
                          char cause[BT_STDERR_TAIL_BYTES])
{
    const char *last = "";
    const char *line;

    cause[0] = '\0';
    for (uint32_t i = 0; (line = bt_stderr_tail_line(tail, i)) != NULL; i++) {
        const char *const text = text_of_line(line);

        if (text != NULL) {
            snprintf(cause, BT_STDERR_TAIL_BYTES, "%s", text);
        } else if (!copy_json_text(line, cause) && (line[0] != '\0')) {
            last = line;
        }
    }
    if (cause[0] == '\0') {
        snprintf(cause, BT_STDERR_TAIL_BYTES, "%s", last);
    }
}
