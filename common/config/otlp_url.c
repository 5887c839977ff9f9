/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/otlp_url.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SIGNAL "/v1/traces"

static bt_status_t refuse(const char **why_p, const char *why)
{
    *why_p = why;
    return BT_ERR_INVALID_PARAM;
}

/* Characters that may be in the first line of a request unescaped. */
static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((text[i] <= ' ') || (text[i] > '~') || (text[i] == '"') ||
            (text[i] == '\\')) {
            return false;
        }
    }
    return true;
}

static bt_status_t read_port(const char *text, size_t n, bt_otlp_url_t *url,
                             const char **why_p)
{
    if ((n == 0) || (n > 5) || (strspn(text, "0123456789") < n) ||
        (strtoul(text, NULL, 10) == 0) || (strtoul(text, NULL, 10) > 65535)) {
        return refuse(why_p, "it has no port from 1 to 65535 behind ':'");
    }
    memcpy(url->port, text, n);
    url->port[n] = '\0';
    return BT_OK;
}

static bt_status_t read_authority(const char *text, size_t n,
                                  bt_otlp_url_t *url, const char **why_p)
{
    const bool bracketed = (n > 0) && (text[0] == '[');
    const char *const close = bracketed ? memchr(text, ']', n) : NULL;
    const char *const end = text + n;
    const char *start = text, *stop;

    if (memchr(text, '@', n) != NULL) {
        return refuse(why_p, "it has a name or password, which everybody "
                             "could see: use --otlp-headers-file");
    }
    if (bracketed && (close == NULL)) {
        return refuse(why_p, "it has a '[' without a ']'");
    }
    if (bracketed) {
        start++;
        stop = close;
    } else {
        stop = memchr(text, ':', n);
        stop = (stop != NULL) ? stop : end;
    }
    if ((stop == start) || ((size_t)(stop - start) >= sizeof(url->host)) ||
        !is_plain(text, n)) {
        return refuse(why_p, "it has no host, or one that cannot be");
    }
    memcpy(url->host, start, (size_t)(stop - start));
    url->host[stop - start] = '\0';
    memcpy(url->authority, text, n);
    url->authority[n] = '\0';
    stop += bracketed ? 1 : 0;
    if (stop == end) {
        snprintf(url->port, sizeof(url->port), url->is_tls ? "443" : "80");
        return BT_OK;
    }
    if (*stop != ':') {
        return refuse(why_p, "it has more behind its host than a port");
    }
    return read_port(stop + 1, (size_t)(end - stop) - 1, url, why_p);
}

static bt_status_t read_path(const char *text, bt_otlp_url_t *url,
                             const char **why_p)
{
    static const char signal[] = SIGNAL;
    size_t n = strlen(text);
    const char *more = signal;

    if (strpbrk(text, "?#") != NULL) {
        return refuse(why_p, "it has '?' or '#', and is a path alone");
    }
    while ((n > 0) && (text[n - 1] == '/')) {
        n--;
    }
    if ((n >= sizeof(signal) - 1) &&
        (memcmp(text + n - (sizeof(signal) - 1), signal, sizeof(signal) - 1) ==
         0)) {
        more = "";
    }
    if (!is_plain(text, n) || (n + sizeof(signal) > sizeof(url->path))) {
        return refuse(why_p, "its path is too long, or has what no path has");
    }
    snprintf(url->path, sizeof(url->path), "%.*s%s", (int)n, text, more);
    return BT_OK;
}

bt_status_t bt_otlp_url_read(const char *text, bt_otlp_url_t *url_p,
                             const char **why_p)
{
    bt_otlp_url_t url = {.is_tls = strncasecmp(text, "https://", 8) == 0};
    bt_status_t status;
    size_t n;

    if (!url.is_tls && (strncasecmp(text, "http://", 7) != 0)) {
        return refuse(why_p, "it does not begin with http:// or https://");
    }
    text += url.is_tls ? 8 : 7;
    n = strcspn(text, "/?#");
    if (n >= BT_OTLP_HOST_BYTES) {
        return refuse(why_p, "it has no host, or one that cannot be");
    }
    status = read_authority(text, n, &url, why_p);
    if (status == BT_OK) {
        status = read_path(text + n, &url, why_p);
    }
    if (status != BT_OK) {
        return status;
    }
    *url_p = url;
    return BT_OK;
}
