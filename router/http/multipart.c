/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/text.h"

#define MAX_BOUNDARY 70 /* RFC 2046, 5.1.1 */
#define SPACES       " \t"

static bt_status_t bad(const char **why_p, const char *why)
{
    *why_p = why;
    return BT_ERR_BAD_MESSAGE;
}

/* ---- parameters of a header: ;NAME=VALUE ---- */

/* What a header's value has left to say. */
typedef struct params {
    const char *at;
} params_t;

static bool is_token(char c)
{
    return (c > ' ') && (c < 0x7f) &&
           (strchr("()<>@,;:\\\"/[]?={}", c) == NULL);
}

/* Reads a quoted value. A backslash escapes a quote or itself only: an old
 * browser's path has others. @return false: it does not end, or is too long */
static bool read_quoted(params_t *params, char *value, size_t size)
{
    const char *at = params->at + 1;
    size_t n = 0;

    while (*at != '"') {
        if ((*at == '\0') || (n + 1 >= size)) {
            return false;
        }
        if ((*at == '\\') && ((at[1] == '"') || (at[1] == '\\'))) {
            at++;
        }
        value[n++] = *at++;
    }
    value[n] = '\0';
    params->at = at + 1;
    return true;
}

static bool read_token(params_t *params, char *value, size_t size)
{
    size_t n = 0;

    while (is_token(params->at[n])) {
        n++;
    }
    if ((n == 0) || (n >= size)) {
        return false;
    }
    memcpy(value, params->at, n);
    value[n] = '\0';
    params->at += n;
    return true;
}

/* Reads the next parameter.
 * @retval BT_ERR_NOT_FOUND, BT_ERR_BAD_MESSAGE */
static bt_status_t next_param(params_t *params, char name[32], char *value,
                              size_t size)
{
    params->at += strspn(params->at, SPACES);
    if (*params->at == '\0') {
        return BT_ERR_NOT_FOUND;
    }
    if (*params->at != ';') {
        return BT_ERR_BAD_MESSAGE;
    }
    params->at++;
    params->at += strspn(params->at, SPACES);
    if (*params->at == '\0') {
        return BT_ERR_NOT_FOUND; /* a semicolon at the end */
    }
    if (!read_token(params, name, 32) || (*params->at != '=')) {
        return BT_ERR_BAD_MESSAGE;
    }
    params->at++;
    return ((*params->at == '"') ? read_quoted(params, value, size)
                                 : read_token(params, value, size))
               ? BT_OK
               : BT_ERR_BAD_MESSAGE;
}

/* Skips a value before its parameters. @return false: it is another one */
static bool begin_params(params_t *params, const char *text, const char *value)
{
    const size_t n = strlen(value);

    params->at = text + n;
    return (strncasecmp(text, value, n) == 0) &&
           ((text[n] == '\0') || (text[n] == ';') ||
            (strchr(SPACES, text[n]) != NULL));
}

/* ---- the boundary ---- */

/* RFC 2046, 5.1.1: bchars; a space may not be the last. */
static bool is_boundary(const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        const bool is_alnum = ((c >= '0') && (c <= '9')) ||
                              ((c >= 'a') && (c <= 'z')) ||
                              ((c >= 'A') && (c <= 'Z'));

        if (!is_alnum && (strchr("'()+_,-./:=? ", c) == NULL)) {
            return false;
        }
    }
    return (n > 0) && (n <= MAX_BOUNDARY) && (text[n - 1] != ' ');
}

static bt_status_t find_boundary(const char *content_type,
                                 char boundary[MAX_BOUNDARY + 1],
                                 const char **why_p)
{
    char name[32], value[128];
    params_t params;
    bt_status_t status;

    if ((content_type == NULL) ||
        !begin_params(&params, content_type, "multipart/form-data")) {
        *why_p = "Content-Type must be multipart/form-data";
        return BT_ERR_UNSUPPORTED;
    }
    boundary[0] = '\0';
    while ((status = next_param(&params, name, value, sizeof(value))) ==
           BT_OK) {
        if (strcasecmp(name, "boundary") != 0) {
            continue;
        }
        if ((boundary[0] != '\0') || !is_boundary(value)) {
            return bad(why_p, "the boundary in Content-Type is not one of 1 to "
                              "70 characters");
        }
        memcpy(boundary, value, strlen(value) + 1);
    }
    if ((status != BT_ERR_NOT_FOUND) || (boundary[0] == '\0')) {
        return bad(why_p, "Content-Type has no boundary");
    }
    return BT_OK;
}

/* Reads what follows a delimiter: the end of its line, or of the body.
 * @return false: neither */
static bool end_delimiter(bt_multipart_t *m)
{
    const size_t left = (size_t)(m->end - m->at);

    if ((left >= 2) && (memcmp(m->at, "\r\n", 2) == 0)) {
        m->at += 2;
        return true;
    }
    m->is_over = ((left == 2) && (memcmp(m->at, "--", 2) == 0)) ||
                 ((left == 4) && (memcmp(m->at, "--\r\n", 4) == 0));
    return m->is_over;
}

bt_status_t bt_multipart_init(bt_multipart_t *multipart,
                              const char *content_type, const char *body,
                              size_t bytes, const char **why_p)
{
    char boundary[MAX_BOUNDARY + 1] = "";
    bt_multipart_t m = {.at = body, .end = body + bytes};
    const bt_status_t status = find_boundary(content_type, boundary, why_p);
    size_t n;

    if (status != BT_OK) {
        return status;
    }
    snprintf(m.delimiter, sizeof(m.delimiter), "\r\n--%s", boundary);
    m.delimiter_bytes = strlen(m.delimiter);
    n = m.delimiter_bytes - 2;
    if ((bytes < n) || (memcmp(body, m.delimiter + 2, n) != 0)) {
        return bad(why_p, "the body does not begin with its boundary");
    }
    m.at += n;
    if (!end_delimiter(&m)) {
        return bad(why_p, "the first boundary is not a line");
    }
    *multipart = m;
    return BT_OK;
}

/* ---- a part ---- */

/* Stores the name and file name of Content-Disposition. */
static bt_status_t read_disposition(const char *text, bt_multipart_part_t *part,
                                    const char **why_p)
{
    char name[32], value[BT_MULTIPART_FILENAME_BYTES];
    bool has_name = false;
    params_t params;
    bt_status_t status;

    if (!begin_params(&params, text, "form-data")) {
        return bad(why_p, "Content-Disposition of a part is not form-data");
    }
    while ((status = next_param(&params, name, value, sizeof(value))) ==
           BT_OK) {
        if (strcasecmp(name, "name") == 0) {
            if (has_name || (strlen(value) >= sizeof(part->name))) {
                return bad(why_p, "a part's name is given twice, or too long");
            }
            memcpy(part->name, value, strlen(value) + 1);
            has_name = true;
        } else if (strcasecmp(name, "filename") == 0) {
            if (part->is_file) {
                return bad(why_p, "a part's filename is given twice");
            }
            memcpy(part->filename, value, strlen(value) + 1);
            part->is_file = true;
        } else {
            return bad(why_p, "Content-Disposition of a part has more than "
                              "name and filename");
        }
    }
    if ((status != BT_ERR_NOT_FOUND) || !has_name) {
        return bad(why_p, "Content-Disposition of a part has no name, or is "
                          "malformed");
    }
    return BT_OK;
}

/* Reads one header line, which ends with a zero. */
static bt_status_t read_header(char *line, bt_multipart_part_t *part,
                               bool *is_described_p, const char **why_p)
{
    char *colon = strchr(line, ':');
    char *value;
    size_t n;

    if ((colon == NULL) || (colon == line)) {
        return bad(why_p, "a header of a part has no name");
    }
    *colon = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if (!is_token(*c)) {
            return bad(why_p, "a header of a part has a malformed name");
        }
    }
    value = colon + 1 + strspn(colon + 1, SPACES);
    n = strlen(value);
    while ((n > 0) && (strchr(SPACES, value[n - 1]) != NULL)) {
        n--;
    }
    value[n] = '\0';
    if (strcasecmp(line, "Content-Disposition") == 0) {
        if (*is_described_p) {
            return bad(why_p, "Content-Disposition of a part is given twice");
        }
        *is_described_p = true;
        return read_disposition(value, part, why_p);
    }
    if ((strcasecmp(line, "Content-Transfer-Encoding") == 0) &&
        (strcasecmp(value, "binary") != 0) &&
        (strcasecmp(value, "8bit") != 0) && (strcasecmp(value, "7bit") != 0)) {
        return bad(why_p, "Content-Transfer-Encoding of a part is not binary, "
                          "8bit or 7bit");
    }
    return BT_OK; /* Content-Type and others say nothing here */
}

static bt_status_t read_head(bt_multipart_t *m, bt_multipart_part_t *part,
                             const char **why_p)
{
    char line[BT_MULTIPART_HEAD_BYTES];
    size_t left = sizeof(line);
    bool is_described = false;

    for (;;) {
        const size_t rest = (size_t)(m->end - m->at);
        const size_t most = (rest < left) ? rest : left;
        const char *end = memmem(m->at, most, "\r\n", 2);
        bt_status_t status;
        size_t n;

        if (end == NULL) {
            return bad(why_p, "the headers of a part do not end, or are over "
                              "4096 bytes");
        }
        n = (size_t)(end - m->at);
        left -= n + 2;
        if (n == 0) {
            m->at += 2;
            break;
        }
        memcpy(line, m->at, n);
        line[n] = '\0';
        m->at += n + 2;
        if ((memchr(line, '\0', n) != NULL) ||
            (memchr(line, '\r', n) != NULL) ||
            (memchr(line, '\n', n) != NULL)) {
            return bad(why_p, "a header of a part has a control character");
        }
        status = read_header(line, part, &is_described, why_p);
        if (status != BT_OK) {
            return status;
        }
    }
    return is_described ? BT_OK
                        : bad(why_p, "a part has no Content-Disposition");
}

bt_status_t bt_multipart_next(bt_multipart_t *multipart,
                              bt_multipart_part_t *part_p, const char **why_p)
{
    bt_multipart_t m = *multipart;
    bt_multipart_part_t part = {.is_file = false};
    const char *end;
    bt_status_t status;

    if (m.is_over) {
        return BT_ERR_NOT_FOUND;
    }
    status = read_head(&m, &part, why_p);
    if (status != BT_OK) {
        return status;
    }
    /* The line end before a delimiter belongs to it; that of the headers, too,
     * for a part that is empty. */
    m.at -= 2;
    end = memmem(m.at, (size_t)(m.end - m.at), m.delimiter, m.delimiter_bytes);
    if (end == NULL) {
        return bad(why_p, "the body ends within a part");
    }
    part.data = m.at + 2;
    if (end == m.at) {
        return bad(why_p, "a part has no line between its headers and its "
                          "boundary");
    }
    part.bytes = (size_t)(end - part.data);
    m.at = end + m.delimiter_bytes;
    if (!end_delimiter(&m)) {
        return bad(why_p, "a boundary is not a line");
    }
    if (!bt_utf8_valid((const uint8_t *)part.name, strlen(part.name)) ||
        !bt_utf8_valid((const uint8_t *)part.filename, strlen(part.filename))) {
        return bad(why_p, "a name is not UTF-8");
    }
    *multipart = m;
    *part_p = part;
    return BT_OK;
}
