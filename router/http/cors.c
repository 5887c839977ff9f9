/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/cors.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SEPARATORS ", \t"
#define LOWER      "abcdefghijklmnopqrstuvwxyz"
#define DIGITS     "0123456789"
#define TOKEN      LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "!#$%&'*+-.^_`|~"

/* Returns the bytes of the list's next entry, 0 at its end. */
static size_t next_entry(const char **at_p)
{
    *at_p += strspn(*at_p, SEPARATORS);
    return strcspn(*at_p, SEPARATORS);
}

static bool is_star(const char *entry, size_t n)
{
    return (n == 1) && (*entry == '*');
}

bool bt_cors_allows(const char *origins, const char *origin)
{
    const char *at = origins;

    if ((origin == NULL) || (*origin == '\0')) {
        return false;
    }
    for (size_t n = next_entry(&at); n > 0; at += n, n = next_entry(&at)) {
        if (is_star(at, n) ||
            ((strlen(origin) == n) && (strncasecmp(at, origin, n) == 0))) {
            return true;
        }
    }
    return false;
}

/* True for "8080", or for nothing after the name. */
static bool is_port(const char *text)
{
    const size_t n = strspn(text + 1, DIGITS);

    return (*text == '\0') ||
           ((*text == ':') && (n > 0) && (n <= 5) && (text[1 + n] == '\0'));
}

/* True for "scheme://name", "scheme://name:8080", "scheme://[::1]:8080". */
static bool is_origin(const char *text)
{
    const char *const sep = strstr(text, "://");
    const char *name;
    size_t n;

    if ((sep == NULL) || (sep == text) ||
        (strspn(text, LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ" DIGITS "+-.") !=
         (size_t)(sep - text))) {
        return false;
    }
    name = sep + 3;
    if (*name == '[') {
        n = strspn(name + 1, DIGITS "abcdefABCDEF:.");
        return (n > 0) && (name[1 + n] == ']') && is_port(name + n + 2);
    }
    n = strspn(name, TOKEN);
    return (n > 0) && (memchr(name, '*', n) == NULL) && is_port(name + n);
}

bool bt_cors_are_valid(const char *origins, char bad[BT_CORS_ORIGIN_BYTES])
{
    const char *at = origins;

    for (size_t n = next_entry(&at); n > 0; at += n, n = next_entry(&at)) {
        char entry[BT_CORS_ORIGIN_BYTES];

        snprintf(bad, BT_CORS_ORIGIN_BYTES, "%.*s", (int)((n < 200) ? n : 200),
                 at);
        if (n >= sizeof(entry)) {
            return false;
        }
        memcpy(entry, at, n);
        entry[n] = '\0';
        if (!is_star(entry, n) && !is_origin(entry)) {
            return false;
        }
    }
    return true;
}

void bt_cors_add_headers(const char *origins, const bt_http1_head_t *head,
                         bt_strbuf_t *out)
{
    const char *origin;

    if (*origins == '\0') {
        return;
    }
    origin = bt_http1_find(head, "Origin");
    if (!bt_cors_allows(origins, "*")) {
        /* An answer cached for one page must not be used for another. */
        bt_strbuf_puts(out, "Vary: Origin\r\n");
    }
    if (!bt_cors_allows(origins, origin)) {
        return;
    }
    bt_strbuf_printf(out, "Access-Control-Allow-Origin: %s\r\n",
                     bt_cors_allows(origins, "*") ? "*" : origin);
    bt_strbuf_puts(
        out, "Access-Control-Expose-Headers: X-Request-Id, Retry-After, "
             "Inference-Header-Content-Length, X-Baton-Ignored-Fields, "
             "x-ratelimit-limit-requests, x-ratelimit-limit-tokens, "
             "x-ratelimit-remaining-requests, x-ratelimit-remaining-tokens, "
             "x-ratelimit-reset-requests, x-ratelimit-reset-tokens\r\n");
}

/* True for header names that may be copied into an answer. */
static bool are_names(const char *text)
{
    const size_t n = strlen(text);

    return (n > 0) && (n <= BT_CORS_HEADERS_BYTES) &&
           (strspn(text, TOKEN SEPARATORS) == n);
}

bool bt_cors_preflight(const char *origins, const bt_http1_head_t *head,
                       bt_strbuf_t *out)
{
    const char *const names =
        bt_http1_find(head, "Access-Control-Request-Headers");
    const char *const network =
        bt_http1_find(head, "Access-Control-Request-Private-Network");

    if ((strcmp(head->method, "OPTIONS") != 0) ||
        !bt_cors_allows(origins, bt_http1_find(head, "Origin")) ||
        (bt_http1_find(head, "Access-Control-Request-Method") == NULL)) {
        return false;
    }
    bt_strbuf_puts(out,
                   "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\n");
    if ((names != NULL) && are_names(names)) {
        bt_strbuf_printf(out, "Access-Control-Allow-Headers: %s\r\n", names);
    }
    if ((network != NULL) && (strcasecmp(network, "true") == 0)) {
        /* Allows a page of the Internet to use a server on this machine. */
        bt_strbuf_puts(out, "Access-Control-Allow-Private-Network: true\r\n");
    }
    bt_strbuf_puts(out, "Access-Control-Max-Age: 600\r\n");
    return true;
}
