/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/http1.h"

#include <string.h>
#include <strings.h>

#include "common/base/status.h"
#include "common/base/text.h"

static bt_status_t fail(bt_http1_fault_t *fault_p, int http_status,
                        const char *why)
{
    fault_p->http_status = http_status;
    fault_p->why = why;
    return BT_ERR_INVALID_PARAM;
}

size_t bt_http1_head_end(const char *data, size_t bytes, size_t *seen_p)
{
    size_t at = *seen_p;

    while (at < bytes) {
        const char *lf = memchr(data + at, '\n', bytes - at);

        if (lf == NULL) {
            break;
        }
        at = (size_t)(lf - data) + 1;
        /* An empty line: the one before ended with a line feed too. */
        if ((at >= 2) && (data[at - 2] == '\n')) {
            return at;
        }
        if ((at >= 3) && (data[at - 2] == '\r') && (data[at - 3] == '\n')) {
            return at;
        }
    }
    *seen_p = bytes;
    return 0;
}

/* RFC 9110, 5.6.2 */
static bool is_token_char(char c)
{
    if (((c >= 'a') && (c <= 'z')) || ((c >= 'A') && (c <= 'Z')) ||
        ((c >= '0') && (c <= '9'))) {
        return true;
    }
    return (c != '\0') && (strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* "http://host/path" to "/path"; others unchanged. */
static char *skip_authority(char *target)
{
    char *at;

    if (strncasecmp(target, "http://", 7) == 0) {
        at = target + 7;
    } else if (strncasecmp(target, "https://", 8) == 0) {
        at = target + 8;
    } else {
        return target;
    }
    return at + strcspn(at, "/?#");
}

static bt_status_t decode_path(char *target, const char **path_p,
                               const char **query_p, bt_http1_fault_t *fault_p)
{
    char *const start = skip_authority(target);
    char *out = start;
    char *query;

    target[strcspn(target, "#")] = '\0';
    query = start + strcspn(start, "?");
    *query_p = "";
    if (*query != '\0') {
        *query = '\0';
        *query_p = query + 1;
    }
    if (*start == '\0') {
        *path_p = "/";
        return (start == target)
                   ? fail(fault_p, 400, "the request target is empty")
                   : BT_OK;
    }
    if ((*start != '/') && (strcmp(start, "*") != 0)) {
        return fail(fault_p, 400, "the request target is not a path");
    }
    for (const char *in = start; *in != '\0'; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        const int high = bt_hex_digit(in[1]);
        const int low = (high < 0) ? -1 : bt_hex_digit(in[2]);

        if ((low < 0) || ((high == 0) && (low == 0))) {
            return fail(fault_p, 400,
                        "the request target has a bad percent escape");
        }
        *out++ = (char)((high << 4) | low);
        in += 2;
    }
    *out = '\0';
    *path_p = start;
    return BT_OK;
}

static bt_status_t parse_request_line(char *line, bt_http1_head_t *head,
                                      bt_http1_fault_t *fault_p)
{
    char *target = strchr(line, ' ');
    char *version = strrchr(line, ' ');

    if ((target == NULL) || (target == version) || (target == line)) {
        return fail(fault_p, 400, "the request line is malformed");
    }
    *target++ = '\0';
    *version++ = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if (!is_token_char(*c)) {
            return fail(fault_p, 400, "the method is malformed");
        }
    }
    for (const char *c = target; *c != '\0'; c++) {
        if (((unsigned char)*c <= ' ') || (*c == 0x7f)) {
            return fail(fault_p, 400,
                        "the request target has a space or control character");
        }
    }
    if ((strncmp(version, "HTTP/", 5) != 0) || (version[5] < '0') ||
        (version[5] > '9') || (version[6] != '.') || (version[7] < '0') ||
        (version[7] > '9') || (version[8] != '\0')) {
        return fail(fault_p, 400, "the HTTP version is malformed");
    }
    if (version[5] != '1') {
        return fail(fault_p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    head->minor = version[7] - '0';
    head->method = line;
    return decode_path(target, &head->path, &head->query, fault_p);
}

static bt_status_t parse_header_line(char *line, bt_http1_head_t *head,
                                     bt_http1_fault_t *fault_p)
{
    char *colon = line;
    char *value;
    size_t n;

    while (is_token_char(*colon)) {
        colon++;
    }
    if ((colon == line) || (*colon != ':')) {
        return fail(fault_p, 400, "a header line is malformed");
    }
    *colon = '\0';
    value = colon + 1 + strspn(colon + 1, " \t");
    n = strlen(value);
    while ((n > 0) && ((value[n - 1] == ' ') || (value[n - 1] == '\t'))) {
        n--;
    }
    value[n] = '\0';
    for (const char *c = value; *c != '\0'; c++) {
        if ((((unsigned char)*c < ' ') && (*c != '\t')) || (*c == 0x7f)) {
            return fail(fault_p, 400, "a header has a control character");
        }
    }
    if (head->n_headers == BT_HTTP1_MAX_HEADERS) {
        return fail(fault_p, 431, "more than 100 header lines");
    }
    head->headers[head->n_headers].name = line;
    head->headers[head->n_headers].value = value;
    head->n_headers++;
    return BT_OK;
}

static bool is_list_gap(char c)
{
    return (c == ',') || (c == ' ') || (c == '\t') || (c == '\0');
}

/* Does a comma-separated list hold this word? */
static bool list_has(const char *list, const char *word)
{
    const size_t n_word = strlen(word);
    const char *start = list;

    /* Not strcspn(): it sets up a table for each of what may be 32,000. */
    for (;; list++) {
        if (!is_list_gap(*list)) {
            continue;
        }
        if (((size_t)(list - start) == n_word) &&
            (strncasecmp(start, word, n_word) == 0)) {
            return true;
        }
        if (*list == '\0') {
            return false;
        }
        start = list + 1;
    }
}

/* Two lengths that agree are one (RFC 9110, 8.6). */
static bt_status_t take_length(bt_http1_head_t *head, const char *value,
                               uint32_t *n_lengths_p, bt_http1_fault_t *fault_p)
{
    uint64_t length = 0;

    if (!bt_parse_u64(value, &length) ||
        ((*n_lengths_p > 0) && (length != head->length))) {
        return fail(fault_p, 400, "Content-Length is malformed");
    }
    head->length = length;
    (*n_lengths_p)++;
    return BT_OK;
}

static bt_status_t take_coding(bt_http1_head_t *head, const char *value,
                               bt_http1_fault_t *fault_p)
{
    if ((strcasecmp(value, "chunked") != 0) || head->chunked) {
        return fail(fault_p, 501, "the only transfer coding known is chunked");
    }
    head->chunked = true;
    return BT_OK;
}

static void take_connection(bt_http1_head_t *head, const char *value)
{
    if (list_has(value, "close")) {
        head->keep_alive = false;
    } else if ((head->minor == 0) && list_has(value, "keep-alive")) {
        head->keep_alive = true;
    }
}

static bt_status_t take_expect(bt_http1_head_t *head, const char *value,
                               bt_http1_fault_t *fault_p)
{
    if (head->minor == 0) {
        return BT_OK; /* RFC 9110, 10.1.1: to be ignored */
    }
    if (strcasecmp(value, "100-continue") != 0) {
        return fail(fault_p, 417, "this Expect is not known");
    }
    head->expect_continue = true;
    return BT_OK;
}

/* Supported codings of a body; several codings of one body are not supported.
 */
static bool is_known_coding(const char *value)
{
    return (strcasecmp(value, "identity") == 0) ||
           (strcasecmp(value, "gzip") == 0) ||
           (strcasecmp(value, "x-gzip") == 0) ||
           (strcasecmp(value, "deflate") == 0);
}

static bool has_body(const bt_http1_head_t *head)
{
    return head->chunked || (head->length > 0);
}

static bt_status_t interpret(bt_http1_head_t *head, bt_http1_fault_t *fault_p)
{
    uint32_t n_lengths = 0;
    uint32_t n_hosts = 0;
    uint32_t n_codings = 0;
    bool coded = false;
    bt_status_t status = BT_OK;

    head->keep_alive = (head->minor >= 1);
    for (uint32_t i = 0; (i < head->n_headers) && (status == BT_OK); i++) {
        const char *name = head->headers[i].name;
        const char *value = head->headers[i].value;

        if (strcasecmp(name, "Content-Length") == 0) {
            status = take_length(head, value, &n_lengths, fault_p);
        } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
            status = take_coding(head, value, fault_p);
        } else if (strcasecmp(name, "Host") == 0) {
            n_hosts++;
        } else if (strcasecmp(name, "Connection") == 0) {
            take_connection(head, value);
        } else if (strcasecmp(name, "Expect") == 0) {
            status = take_expect(head, value, fault_p);
        } else if (strcasecmp(name, "Content-Encoding") == 0) {
            n_codings++;
            coded = coded || !is_known_coding(value);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    if (head->chunked && ((n_lengths > 0) || (head->minor == 0))) {
        return fail(fault_p, 400,
                    "Transfer-Encoding beside Content-Length or in HTTP/1.0");
    }
    if ((coded || (n_codings > 1)) && has_body(head)) {
        return fail(fault_p, 415,
                    "Content-Encoding may be gzip, deflate or identity, one of "
                    "them");
    }
    if ((n_hosts > 1) || ((n_hosts == 0) && (head->minor >= 1))) {
        return fail(fault_p, 400, "one Host header is needed");
    }
    return BT_OK;
}

bt_status_t bt_http1_parse_head(char *text, size_t bytes,
                                bt_http1_head_t *head_p,
                                bt_http1_fault_t *fault_p)
{
    char *line = text;
    char *const end = text + bytes;
    bt_http1_head_t head;
    bt_status_t status;

    memset(&head, 0, sizeof(head));
    if (memchr(text, '\0', bytes) != NULL) {
        return fail(fault_p, 400, "the head has a zero byte");
    }
    while (line < end) {
        char *lf = memchr(line, '\n', (size_t)(end - line));

        if ((lf == NULL) || (lf == line) || (lf[-1] != '\r')) {
            return fail(fault_p, 400, "a line does not end with CR LF");
        }
        if (lf - 1 == line) {
            break; /* the empty line */
        }
        lf[-1] = '\0';
        status = (line == text) ? parse_request_line(line, &head, fault_p)
                                : parse_header_line(line, &head, fault_p);
        if (status != BT_OK) {
            return status;
        }
        line = lf + 1;
    }
    if (head.method == NULL) {
        return fail(fault_p, 400, "the request line is malformed");
    }
    status = interpret(&head, fault_p);
    if (status == BT_OK) {
        *head_p = head;
    }
    return status;
}

const char *bt_http1_find(const bt_http1_head_t *head, const char *name)
{
    for (uint32_t i = 0; i < head->n_headers; i++) {
        if (strcasecmp(head->headers[i].name, name) == 0) {
            return head->headers[i].value;
        }
    }
    return NULL;
}

enum chunked_state {
    SIZE_FIRST, /* the first digit */
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* first byte of a line */
    TRAILER,
    TRAILER_LF, /* of a non-empty line */
    END_LF,
    DONE,
};

/* Handles a byte of a line with a chunk's size. */
static bt_status_t size_byte(bt_http1_chunked_t *d, char c)
{
    const int digit = bt_hex_digit(c);

    if (digit >= 0) {
        if (__builtin_mul_overflow(d->left, (uint64_t)16, &d->left)) {
            return BT_ERR_BAD_MESSAGE;
        }
        d->left += (uint64_t)digit;
        d->state = SIZE;
        return BT_OK;
    }
    if (d->state == SIZE_FIRST) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (c == '\r') {
        d->state = SIZE_LF;
        return BT_OK;
    }
    d->state = EXTENSION;
    return ((c == ';') || (c == ' ') || (c == '\t')) ? BT_OK
                                                     : BT_ERR_BAD_MESSAGE;
}

/* Handles a state with exactly one valid byte. */
static bt_status_t only(bt_http1_chunked_t *d, char c, char wanted, int next)
{
    d->state = next;
    return (c == wanted) ? BT_OK : BT_ERR_BAD_MESSAGE;
}

/* Skips a byte of ignored text, up to its CR. */
static bt_status_t skip_byte(bt_http1_chunked_t *d, char c, int next)
{
    if (c == '\r') {
        d->state = next;
    }
    return (c == '\n') ? BT_ERR_BAD_MESSAGE : BT_OK;
}

/* Handles one byte that is not body data. */
static bt_status_t chunked_byte(bt_http1_chunked_t *d, char c)
{
    switch (d->state) {
    case SIZE_FIRST:
        d->left = 0;
        d->line_bytes = 0;
        return size_byte(d, c);
    case SIZE:
        return size_byte(d, c);
    case EXTENSION:
        return skip_byte(d, c, SIZE_LF);
    case SIZE_LF:
        d->line_bytes = 0;
        return only(d, c, '\n', (d->left > 0) ? DATA : TRAILER_FIRST);
    case DATA_CR:
        return only(d, c, '\r', DATA_LF);
    case DATA_LF:
        return only(d, c, '\n', SIZE_FIRST);
    case TRAILER_FIRST:
        d->state = TRAILER;
        return skip_byte(d, c, END_LF);
    case TRAILER:
        return skip_byte(d, c, TRAILER_LF);
    case TRAILER_LF:
        return only(d, c, '\n', TRAILER_FIRST);
    case END_LF:
        return only(d, c, '\n', DONE);
    default:
        return BT_ERR_BAD_MESSAGE;
    }
}

bt_status_t bt_http1_chunked_feed(bt_http1_chunked_t *decoder, const char *data,
                                  size_t bytes, size_t *used_p,
                                  const char **body_p, size_t *body_bytes_p,
                                  bool *done_p)
{
    bt_http1_chunked_t *const d = decoder;
    size_t at = 0;

    while ((at < bytes) && (d->state != DATA) && (d->state != DONE)) {
        const uint32_t limit = (d->state >= TRAILER_FIRST)
                                   ? BT_HTTP1_MAX_TRAILER_BYTES
                                   : BT_HTTP1_MAX_LINE_BYTES;
        const bt_status_t status = chunked_byte(d, data[at++]);

        if (status != BT_OK) {
            return status;
        }
        if (++d->line_bytes > limit) {
            return BT_ERR_TOO_LARGE;
        }
    }

    *body_p = data + at;
    *body_bytes_p = 0;
    if ((d->state == DATA) && (at < bytes)) {
        const size_t rest = bytes - at;
        const size_t n = (d->left < rest) ? (size_t)d->left : rest;

        *body_bytes_p = n;
        d->left -= n;
        at += n;
        if (d->left == 0) {
            d->state = DATA_CR;
        }
    }
    *used_p = at;
    *done_p = (d->state == DONE);
    return BT_OK;
}
