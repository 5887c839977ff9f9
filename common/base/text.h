/* SPDX-License-Identifier: Apache-2.0 */
/** @file text.h
 *
 * Text: growing byte strings, UTF-8, text that is safe to print on a terminal,
 * and the nearest of several words.
 */
#ifndef BT_COMMON_BASE_TEXT_H
#define BT_COMMON_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/status.h"

/*
 * Byte string that grows up to a fixed limit. Errors stick: after one, appends
 * do nothing and bt_strbuf_status() returns it, so a writer of many pieces
 * checks once. `data` is always zero-terminated once non-NULL.
 */

/** Growing byte string. */
typedef struct bt_strbuf {
    char *data;   /**< owned; NULL while empty */
    size_t len;   /**< bytes, without the zero at the end */
    size_t cap;   /**< bytes allocated */
    size_t limit; /**< largest len allowed */
    bt_status_t status;
} bt_strbuf_t;

/** Initialises an empty buffer. Allocates nothing. */
void bt_strbuf_init(bt_strbuf_t *buf, size_t limit_bytes);
void bt_strbuf_fini(bt_strbuf_t *buf);
/** Initialises a buffer in memory of the caller, which never allocates and
 *  needs no bt_strbuf_fini(): for code that must not allocate. */
void bt_strbuf_init_fixed(bt_strbuf_t *buf, char *memory, size_t bytes);

/** Clears content and error; keeps the memory. */
void bt_strbuf_reset(bt_strbuf_t *buf);

/** Allocates memory for @a n bytes in all, exactly; nothing if there is
 *  enough. For callers that know the size: appending doubles. */
void bt_strbuf_reserve(bt_strbuf_t *buf, size_t n);
/** Implements bt_strbuf_append() when the memory is full, or after an error. */
void bt_strbuf_append_slowly(bt_strbuf_t *buf, const void *data, size_t n);
/** Appends @a n bytes. Inline while the memory suffices: JSON is written in
 *  very small pieces. */
static inline void bt_strbuf_append(bt_strbuf_t *buf, const void *data,
                                    size_t n)
{
    if ((n == 0) || (buf->status != BT_OK) || (n >= buf->cap - buf->len) ||
        (n > buf->limit - buf->len)) {
        bt_strbuf_append_slowly(buf, data, n);
        return;
    }
    memcpy(buf->data + buf->len, data, n);
    buf->len += n;
    buf->data[buf->len] = '\0';
}
void bt_strbuf_puts(bt_strbuf_t *buf, const char *text);
/** Appends the digits of a number; quicker than bt_strbuf_printf(). */
void bt_strbuf_put_u64(bt_strbuf_t *buf, uint64_t value);
void bt_strbuf_printf(bt_strbuf_t *buf, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** Drops the first @a n bytes (at most all). */
void bt_strbuf_consume(bt_strbuf_t *buf, size_t n);

/**
 * Returns the buffer's status.
 *
 * @retval BT_OK
 * @retval BT_ERR_TOO_LARGE  The limit was reached; the content is incomplete.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_strbuf_status(const bt_strbuf_t *buf);

/** Writes the content to standard output, and frees it. @return false: it is
 *  incomplete, or could not be written */
bool bt_strbuf_print(bt_strbuf_t *buf);

/** Returns the value of a hexadecimal digit. @return -1: not a digit */
static inline int bt_hex_digit(char c)
{
    const char lower = (char)(c | 0x20);

    return ((c >= '0') && (c <= '9'))           ? c - '0'
           : ((lower >= 'a') && (lower <= 'f')) ? lower - 'a' + 10
                                                : -1;
}

static inline bool bt_ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text);
    const size_t n_end = strlen(end);

    return (n >= n_end) && (strcmp(text + n - n_end, end) == 0);
}

/** Reads a whole number of decimal digits alone, without sign or space.
 *  @return false: it is none, empty, or beyond 2^64 - 1 */
bool bt_parse_u64(const char *text, uint64_t *value_p);

/*
 * UTF-8, checked and unchecked.
 *
 * Source: The Unicode Standard 15, table 3-7, and section 3.9 on U+FFFD.
 */

/** True when all of @a text is well-formed UTF-8 (no overlong forms,
 *  surrogates, or anything past U+10FFFF). */
bool bt_utf8_valid(const uint8_t *text, size_t bytes);

/**
 * Classifies the beginning of @a bytes.
 *
 * @return  > 0  length of a whole character
 *            0  the beginning of a character, which needs more bytes
 *          < 0  minus the length of the longest ill-formed part (for which one
 *               U+FFFD stands), at least 1
 */
int bt_utf8_scan(const uint8_t *text, size_t bytes);

/** Encodes @a cp (a Unicode scalar value). @return bytes written, 1 to 4 */
unsigned bt_utf8_encode(uint32_t cp, uint8_t out[4]);

/**
 * Decodes one character of text that is known to be valid.
 * @return its length, 1 to 4
 */
static inline unsigned bt_utf8_decode(const uint8_t *p, uint32_t *cp)
{
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xE0) {
        *cp = (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
        return 2;
    }
    if (p[0] < 0xF0) {
        *cp = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
        return 3;
    }
    *cp = (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 |
          (p[3] & 0x3Fu);
    return 4;
}

/*
 * Sanitises text of a file for a terminal.
 */

#define BT_PRINTABLE_CHARS 72

/** Sanitised text. */
typedef struct bt_printable {
    char text[BT_PRINTABLE_CHARS + 4];
} bt_printable_t;

/** Returns the beginning of @a text, with ? for everything but printable
 *  ASCII. */
static inline bt_printable_t bt_printable(const char *text, size_t len)
{
    const size_t n = (len > BT_PRINTABLE_CHARS) ? BT_PRINTABLE_CHARS : len;
    bt_printable_t out = {.text = ""};

    for (size_t i = 0; i < n; i++) {
        out.text[i] = ((text[i] >= ' ') && (text[i] <= '~')) ? text[i] : '?';
    }
    if (n < len) {
        memcpy(&out.text[n], "...", 4);
    }
    return out;
}

/*
 * Fuzzy matching of misspelled names: options, request fields.
 *
 * Threads: pure functions.
 */

/** Returns the edit distance of a word to a name that it may mean; swapping two
 *  neighbours counts once.
 *  @return SIZE_MAX: more than a third of the name differs, or one of the two
 *          has more than 64 bytes */
size_t bt_fuzzy_distance(const char *word, size_t n_word, const char *name,
                         size_t n_name);
/**
 * Finds the nearest of @a n names to a word of @a n_word bytes.
 * @return NULL: none is near enough
 */
const char *bt_fuzzy_match(const char *word, size_t n_word,
                           const char *const *names, size_t n);

#endif
