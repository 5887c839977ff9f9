/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/admin/admin_priv.h"

/* True when the byte needs no encoding in a word. */
static bool is_plain(char c)
{
    return (c > ' ') && (c <= '~') && (c != '%');
}

void bt_admin_encode(const char *text, bool keep_spaces, bt_strbuf_t *out)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;

        if (is_plain(*text) || (keep_spaces && (*text == ' '))) {
            bt_strbuf_append(out, text, 1);
        } else {
            const char code[3] = {'%', digits[c >> 4], digits[c & 15]};

            bt_strbuf_append(out, code, sizeof(code));
        }
    }
}

/* @return its value, or 16. */
static unsigned hex_digit(char c)
{
    if ((c >= '0') && (c <= '9')) {
        return (unsigned)(c - '0');
    }
    return ((c >= 'A') && (c <= 'F')) ? (unsigned)(c - 'A') + 10 : 16;
}

bt_status_t bt_admin_decode(const char *text, size_t n, char *out, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        char c = text[i];

        if (c == '%') {
            const unsigned high = (i + 2 < n) ? hex_digit(text[i + 1]) : 16;
            const unsigned low = (i + 2 < n) ? hex_digit(text[i + 2]) : 16;

            /* No zero byte: a record's text would end at it. */
            if ((high > 15) || (low > 15) || (high + low == 0)) {
                return BT_ERR_BAD_MESSAGE;
            }
            c = (char)(unsigned char)(high << 4 | low);
            i += 2;
        } else if (!is_plain(c) && (c != ' ')) {
            return BT_ERR_BAD_MESSAGE;
        }
        if (used + 1 >= bytes) {
            return BT_ERR_BAD_MESSAGE;
        }
        out[used++] = c;
    }
    if (used >= bytes) {
        return BT_ERR_BAD_MESSAGE;
    }
    out[used] = '\0';
    return BT_OK;
}

bt_status_t bt_admin_split(const char *line, size_t n, bt_admin_words_t *words)
{
    char *out = words->text;

    words->n_words = 0;
    if (n >= sizeof(words->text)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (size_t at = 0;; at++) {
        const char *const space = memchr(line + at, ' ', n - at);
        const size_t n_word =
            (space == NULL) ? n - at : (size_t)(space - line) - at;

        /* A decoded word with its zero is no longer than the word and its
         * space, so all of them fit. */
        if ((n_word == 0) || (words->n_words == BT_ADMIN_WORDS) ||
            (bt_admin_decode(line + at, n_word, out, n_word + 1) != BT_OK)) {
            return BT_ERR_BAD_MESSAGE;
        }
        words->words[words->n_words++] = out;
        out += strlen(out) + 1;
        at += n_word;
        if (at >= n) {
            return BT_OK;
        }
    }
}

bt_status_t bt_admin_number(const char *text, uint64_t *out_p)
{
    uint64_t number = 0;
    const char *c = text;

    for (; (*c >= '0') && (*c <= '9'); c++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number)) {
            return BT_ERR_BAD_MESSAGE;
        }
    }
    if ((c == text) || (*c != '\0')) {
        return BT_ERR_BAD_MESSAGE;
    }
    *out_p = number;
    return BT_OK;
}

bool bt_admin_copy(const char *text, char *out, size_t bytes)
{
    const size_t n = strlen(text);

    if (n >= bytes) {
        return false;
    }
    memcpy(out, text, n + 1);
    return true;
}
