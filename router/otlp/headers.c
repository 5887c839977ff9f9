/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/headers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/crypt/key.h"

static bt_status_t complain(char *why, unsigned line, const char *what)
{
    snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "line %u: %s", line, what);
    return BT_ERR_BAD_FILE;
}

/* A token of RFC 9110. */
static bool is_name(const char *text, size_t n)
{
    static const char also[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];

        if (!(((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
              ((c >= '0') && (c <= '9')) ||
              ((c != '\0') && (strchr(also, c) != NULL)))) {
            return false;
        }
    }
    return n > 0;
}

static bool is_value(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (((text[i] < ' ') && (text[i] != '\t')) || (text[i] == 0x7f)) {
            return false; /* char may be signed: no byte above 0x7f */
        }
    }
    return true;
}

/* Headers that the request sets itself. */
static bool is_ours(const char *name, size_t n)
{
    static const char *const names[] = {
        "Host",       "Content-Length",    "Content-Type", "Content-Encoding",
        "Connection", "Transfer-Encoding", "Expect",       "Upgrade",
        "TE",         "Trailer",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if ((strlen(names[i]) == n) && (strncasecmp(names[i], name, n) == 0)) {
            return true;
        }
    }
    return false;
}

static bt_status_t take_line(const char *text, size_t n, unsigned line,
                             bt_strbuf_t *out, char *why)
{
    const char *colon, *value;

    while ((n > 0) && (strchr(" \t\r", text[n - 1]) != NULL)) {
        n--;
    }
    if ((n == 0) || (text[0] == '#')) {
        return BT_OK;
    }
    colon = memchr(text, ':', n);
    if ((colon == NULL) || !is_name(text, (size_t)(colon - text))) {
        return complain(why, line, "it is no `Name: value`");
    }
    if (is_ours(text, (size_t)(colon - text))) {
        return complain(why, line, "this header is set by the request itself");
    }
    value = colon + 1;
    while ((value < text + n) && ((*value == ' ') || (*value == '\t'))) {
        value++;
    }
    if (!is_value(value, (size_t)(text + n - value))) {
        return complain(why, line, "its value has bytes that no header has");
    }
    bt_strbuf_append(out, text, (size_t)(colon - text));
    bt_strbuf_puts(out, (value < text + n) ? ": " : ";");
    bt_strbuf_append(out, value, (size_t)(text + n - value));
    bt_strbuf_append(out, "", 1);
    return BT_OK;
}

bt_status_t bt_otlp_headers_parse(const char *text, size_t bytes,
                                  bt_strbuf_t *out,
                                  char why[BT_OTLP_HEADERS_WHY_BYTES])
{
    const size_t before = out->len;
    bt_status_t status = BT_OK;
    unsigned line = 0;
    size_t at = 0;

    while ((at < bytes) && (status == BT_OK)) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t n = (end != NULL) ? (size_t)(end - text) - at : bytes - at;

        status = take_line(text + at, n, ++line, out, why);
        at += n + 1;
    }
    if (status == BT_OK) {
        status = bt_strbuf_status(out);
        if (status != BT_OK) {
            snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "%s",
                     bt_status_str(status));
        }
    }
    if ((status != BT_OK) && (out->data != NULL)) {
        out->len = before;
        out->data[before] = '\0';
    }
    return status;
}

static bt_status_t read_open_file(int fd, bt_strbuf_t *out, char *why)
{
    char cause[BT_KEY_WHY_BYTES];
    char *text = NULL;
    bt_status_t status = bt_key_check_file(fd, cause);
    size_t n = 0;

    if (status != BT_OK) {
        snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "%s", cause);
        return status;
    }
    text = bt_calloc(BT_OTLP_HEADERS_BYTES + 1, 1);
    if (text == NULL) {
        snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    status = bt_read_file(fd, text, BT_OTLP_HEADERS_BYTES, &n);
    if (status != BT_OK) {
        snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "%m");
    } else if (n > BT_OTLP_HEADERS_BYTES) {
        snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "it has more than %zu bytes",
                 BT_OTLP_HEADERS_BYTES);
        status = BT_ERR_BAD_FILE;
    } else {
        status = bt_otlp_headers_parse(text, n, out, why);
    }
    bt_key_wipe(text, BT_OTLP_HEADERS_BYTES + 1);
    bt_free(text);
    return status;
}

bt_status_t bt_otlp_headers_read(const char *path, bt_strbuf_t *out,
                                 char why[BT_OTLP_HEADERS_WHY_BYTES])
{
    /* Opening a pipe would block. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    bt_status_t status;

    if (fd < 0) {
        status = (errno == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
        snprintf(why, BT_OTLP_HEADERS_WHY_BYTES, "%m");
        return status;
    }
    status = read_open_file(fd, out, why);
    close(fd);
    return status;
}

bt_status_t bt_otlp_headers_load(const char *path, const char *then,
                                 bt_strbuf_t *out)
{
    char why[BT_OTLP_HEADERS_WHY_BYTES];
    bt_status_t status = BT_OK;

    if (path[0] != '\0') {
        status = bt_otlp_headers_read(path, out, why);
        if (status != BT_OK) {
            BT_LOG_ERROR("--otlp-headers-file %s: %s%s", path, why, then);
        }
    }
    return status;
}

void bt_otlp_headers_fini(bt_strbuf_t *headers)
{
    if (headers->data != NULL) {
        bt_key_wipe(headers->data, headers->cap);
    }
    bt_strbuf_fini(headers);
}
