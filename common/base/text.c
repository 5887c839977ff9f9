/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

#define FIRST_CAP_BYTES 256
#define FUZZY_MAX_BYTES 64 /* longest name that is compared */

void bt_strbuf_init(bt_strbuf_t *buf, size_t limit_bytes)
{
    memset(buf, 0, sizeof(*buf));
    buf->limit = limit_bytes;
}

void bt_strbuf_fini(bt_strbuf_t *buf)
{
    bt_free(buf->data);
    bt_strbuf_init(buf, buf->limit);
}

void bt_strbuf_init_fixed(bt_strbuf_t *buf, char *memory, size_t bytes)
{
    bt_strbuf_init(buf, bytes - 1);
    buf->data = memory;
    buf->cap = bytes;
    memory[0] = '\0';
}

void bt_strbuf_reset(bt_strbuf_t *buf)
{
    buf->len = 0;
    buf->status = BT_OK;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

static int set_cap(bt_strbuf_t *buf, size_t cap)
{
    char *data = bt_realloc_array(buf->data, cap, 1);

    if (data == NULL) {
        buf->status = BT_ERR_NO_MEMORY;
        return -1;
    }
    if (buf->data == NULL) {
        data[0] = '\0';
    }
    buf->data = data;
    buf->cap = cap;
    return 0;
}

void bt_strbuf_reserve(bt_strbuf_t *buf, size_t n)
{
    if ((buf->status != BT_OK) || (n < buf->cap)) {
        return;
    }
    if (n > buf->limit) {
        buf->status = BT_ERR_TOO_LARGE;
        return;
    }
    (void)set_cap(buf, n + 1); /* the error sticks */
}

/* Ensures memory for n more bytes and the zero byte, or returns the sticky
 * error. */
static int reserve(bt_strbuf_t *buf, size_t n)
{
    size_t cap = (buf->cap == 0) ? FIRST_CAP_BYTES : buf->cap;

    if (buf->status != BT_OK) {
        return -1;
    }
    if (n > buf->limit - buf->len) {
        buf->status = BT_ERR_TOO_LARGE;
        return -1;
    }
    if (buf->len + n < buf->cap) {
        return 0;
    }
    while (cap <= buf->len + n) {
        cap *= 2;
    }
    return set_cap(buf, cap);
}

void bt_strbuf_append_slowly(bt_strbuf_t *buf, const void *data, size_t n)
{
    if (reserve(buf, n) != 0) {
        return;
    }
    if (n > 0) {
        memcpy(buf->data + buf->len, data, n);
    }
    buf->len += n;
    buf->data[buf->len] = '\0';
}

void bt_strbuf_puts(bt_strbuf_t *buf, const char *text)
{
    bt_strbuf_append(buf, text, strlen(text));
}

void bt_strbuf_put_u64(bt_strbuf_t *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    bt_strbuf_append(buf, digits + at, sizeof(digits) - at);
}

void bt_strbuf_printf(bt_strbuf_t *buf, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if ((n < 0) || (reserve(buf, (size_t)n) != 0)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, args);
    va_end(args);
    buf->len += (size_t)n;
}

void bt_strbuf_consume(bt_strbuf_t *buf, size_t n)
{
    if (n >= buf->len) {
        n = buf->len;
    }
    if (n == 0) {
        return;
    }
    memmove(buf->data, buf->data + n, buf->len - n + 1);
    buf->len -= n;
}

bt_status_t bt_strbuf_status(const bt_strbuf_t *buf)
{
    return buf->status;
}

#define ASCII_WORD 0x8080808080808080u

bool bt_strbuf_print(bt_strbuf_t *buf)
{
    const bool done =
        (buf->status == BT_OK) &&
        ((buf->data == NULL) || (fputs(buf->data, stdout) >= 0)) &&
        (fflush(stdout) == 0);

    bt_strbuf_fini(buf);
    return done;
}

bool bt_parse_u64(const char *text, uint64_t *value_p)
{
    uint64_t value = 0;

    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if ((*text < '0') || (*text > '9') ||
            __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return false;
        }
    }
    *value_p = value;
    return true;
}

int bt_utf8_scan(const uint8_t *text, size_t bytes)
{
    uint8_t low = 0x80; /* range of the second byte */
    uint8_t high = 0xBF;
    int len;

    if (bytes == 0) {
        return 0;
    }
    if (text[0] < 0x80) {
        return 1;
    }
    if ((text[0] < 0xC2) || (text[0] > 0xF4)) {
        return -1;
    }
    if (text[0] < 0xE0) {
        len = 2;
    } else if (text[0] < 0xF0) {
        len = 3;
        low = (text[0] == 0xE0) ? 0xA0 : low;   /* overlong */
        high = (text[0] == 0xED) ? 0x9F : high; /* surrogates */
    } else {
        len = 4;
        low = (text[0] == 0xF0) ? 0x90 : low;   /* overlong */
        high = (text[0] == 0xF4) ? 0x8F : high; /* past U+10FFFF */
    }
    for (int i = 1; i < len; i++) {
        if ((size_t)i == bytes) {
            return 0;
        }
        if ((text[i] < low) || (text[i] > high)) {
            return -i;
        }
        low = 0x80;
        high = 0xBF;
    }
    return len;
}

bool bt_utf8_valid(const uint8_t *text, size_t bytes)
{
    size_t i = 0;

    while (i < bytes) {
        uint64_t word;
        int len;

        if (bytes - i >= sizeof(word)) {
            memcpy(&word, text + i, sizeof(word));
            if ((word & ASCII_WORD) == 0) {
                i += sizeof(word);
                continue;
            }
        }
        len = bt_utf8_scan(text + i, bytes - i);
        if (len <= 0) {
            return false;
        }
        i += (size_t)len;
    }
    return true;
}

unsigned bt_utf8_encode(uint32_t cp, uint8_t out[4])
{
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xC0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xE0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (cp & 0x3F));
    return 4;
}

/* Edit distance where swapping two neighbours counts once.
 * Source: Damerau 1964, restricted form; rows i-2, i-1 and i are kept. */
static size_t edit_distance(const char *a, size_t n_a, const char *b,
                            size_t n_b)
{
    size_t rows[3][FUZZY_MAX_BYTES + 1];
    size_t *before = rows[0];
    size_t *above = rows[1];
    size_t *row = rows[2];

    for (size_t j = 0; j <= n_b; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        size_t *const oldest = before;

        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);

            best = (above[j] + 1 < best) ? above[j] + 1 : best;
            best = (row[j - 1] + 1 < best) ? row[j - 1] + 1 : best;
            if ((i > 1) && (j > 1) && (a[i - 1] == b[j - 2]) &&
                (a[i - 2] == b[j - 1]) && (before[j - 2] + 1 < best)) {
                best = before[j - 2] + 1;
            }
            row[j] = best;
        }
        before = above;
        above = row;
        row = oldest;
    }
    return above[n_b];
}

size_t bt_fuzzy_distance(const char *word, size_t n_word, const char *name,
                         size_t n_name)
{
    size_t distance;

    if ((n_word > FUZZY_MAX_BYTES) || (n_name > FUZZY_MAX_BYTES)) {
        return SIZE_MAX;
    }
    distance = edit_distance(word, n_word, name, n_name);
    return (distance <= (n_name + 2) / 3) ? distance : SIZE_MAX;
}

const char *bt_fuzzy_match(const char *word, size_t n_word,
                           const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < n; i++) {
        const size_t distance =
            bt_fuzzy_distance(word, n_word, names[i], strlen(names[i]));

        if (distance < least) {
            best = names[i];
            least = distance;
        }
    }
    return best;
}
