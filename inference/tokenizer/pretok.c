/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/pretok.h"

#include <stdbool.h>
#include <string.h>

#include "inference/tokenizer/unicode.h"

#define LONG_S 0x17Fu /* folds to s, so (?i:'s) matches it */

#define ONES  0x0101010101010101u
#define HIGHS 0x8080808080808080u

/* bt_unicode_class_t of each. */
static const uint8_t ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0,
};

/* One decoded character at p[at]; len is 0 at the end of the text. */
typedef struct chr {
    uint32_t cp;
    unsigned len;
    bt_unicode_class_t cls;
} chr_t;

static inline chr_t chr_at(const uint8_t *p, size_t at, size_t end)
{
    chr_t c = {0, 0, BT_UNICODE_OTHER};

    if (at >= end) {
        return c;
    }
    if (p[at] < 0x80) {
        c.cp = p[at];
        c.len = 1;
        c.cls = (bt_unicode_class_t)ascii_class[p[at]];
        return c;
    }
    c.len = bt_utf8_decode(p + at, &c.cp);
    c.cls = bt_unicode_class(c.cp);
    return c;
}

/* The top bit of each byte that is no ASCII letter. */
static inline uint64_t not_letters(uint64_t word)
{
    const uint64_t low = (word | ONES * 0x20) & ~HIGHS;
    const uint64_t from_a = low + ONES * (0x80 - 'a');
    const uint64_t past_z = low + ONES * (0x80 - 'z' - 1);

    return (~from_a | past_z | word) & HIGHS;
}

/* End of the run of ASCII letters at at, eight at a time. */
static inline size_t ascii_letters_end(const uint8_t *p, size_t at, size_t end)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, p + at, sizeof(word));
        word = not_letters(word);
        if (word != 0) {
            return at + (size_t)__builtin_ctzll(word) / 8;
        }
        at += sizeof(word);
    }
#endif
    while ((at < end) && (p[at] < 0x80) &&
           (ascii_class[p[at]] == BT_UNICODE_LETTER)) {
        at++;
    }
    return at;
}

static bool is_newline(chr_t c)
{
    return (c.len > 0) && ((c.cp == '\r') || (c.cp == '\n'));
}

/* End of the run of characters of one class that starts at at. */
static inline size_t run_end(const uint8_t *p, size_t at, size_t end,
                             bt_unicode_class_t cls)
{
    chr_t c;

    if (cls == BT_UNICODE_LETTER) {
        at = ascii_letters_end(p, at, end);
    }
    c = chr_at(p, at, end);
    while ((c.len > 0) && (c.cls == cls)) {
        at += c.len;
        c = chr_at(p, at, end);
    }
    return at;
}

static uint8_t lower(uint8_t byte)
{
    return ((byte >= 'A') && (byte <= 'Z')) ? (uint8_t)(byte | 0x20) : byte;
}

/* Bytes of 's 't 'm 'd 're 've 'll at the start, or 0. */
static size_t contraction(const uint8_t *p, size_t end, bool any_case)
{
    uint8_t a;
    uint8_t b = 0;

    if ((end < 2) || (p[0] != '\'')) {
        return 0;
    }
    a = any_case ? lower(p[1]) : p[1];
    if ((a == 's') || (a == 't') || (a == 'm') || (a == 'd')) {
        return 2;
    }
    if (end < 3) {
        return 0;
    }
    b = any_case ? lower(p[2]) : p[2];
    if (((a == 'r') && (b == 'e')) || ((a == 'v') && (b == 'e')) ||
        ((a == 'l') && (b == 'l'))) {
        return 3;
    }
    if (any_case && (p[1] >= 0x80)) {
        const chr_t c = chr_at(p, 1, end);

        return (c.cp == LONG_S) ? 1 + (size_t)c.len : 0;
    }
    return 0;
}

/* \s+(?!\S)|\s+ for a text that starts with white space: all of the run at the
 * end of the text; else all but its last character, which then may begin the
 * next word; a single one is a word by itself. */
static size_t spaces(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t last = 0;
    chr_t c = chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        last = at;
        at += c.len;
        c = chr_at(p, at, end);
    }
    return ((at == end) || (last == 0)) ? at : last;
}

static inline size_t next_gpt2(const uint8_t *p, size_t end)
{
    const size_t n = contraction(p, end, false);
    const size_t start = (p[0] == ' ') ? 1 : 0;
    chr_t c;

    if (n > 0) {
        return n;
    }
    c = chr_at(p, start, end);
    if ((c.len == 0) || (c.cls == BT_UNICODE_SPACE)) {
        return spaces(p, end);
    }
    return run_end(p, start + c.len, end, c.cls);
}

/* The cuts around numbers come first: for what stands before one, the text
 * ends there. Only white space looks ahead, so only there it matters. */
static inline size_t next_smollm(const uint8_t *p, size_t end)
{
    const chr_t first = chr_at(p, 0, end);
    size_t run;

    if (first.cls == BT_UNICODE_NUMBER) {
        return first.len;
    }
    if (first.cls != BT_UNICODE_SPACE) {
        return next_gpt2(p, end);
    }
    if (first.cp == ' ') { /* one space and a word: what most text is made of */
        const chr_t second = chr_at(p, 1, end);

        if ((second.len > 0) && (second.cls <= BT_UNICODE_LETTER)) {
            return run_end(p, 1 + second.len, end, second.cls);
        }
    }
    run = run_end(p, 0, end, BT_UNICODE_SPACE);
    if (chr_at(p, run, end).cls == BT_UNICODE_NUMBER) {
        return run;
    }
    return spaces(p, end);
}

/* \s*[\r\n]+ : up to the last line break of the run, or 0. */
static size_t line_breaks(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t found = 0;
    chr_t c = chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        at += c.len;
        if (is_newline(c)) {
            found = at;
        }
        c = chr_at(p, at, end);
    }
    return found;
}

static size_t numbers(const uint8_t *p, size_t end, unsigned most)
{
    size_t at = 0;
    chr_t c = chr_at(p, 0, end);

    while ((most > 0) && (c.len > 0) && (c.cls == BT_UNICODE_NUMBER)) {
        at += c.len;
        most--;
        c = chr_at(p, at, end);
    }
    return at;
}

static size_t next_llama3(const uint8_t *p, size_t end, unsigned digits)
{
    const chr_t first = chr_at(p, 0, end);
    const chr_t second = chr_at(p, first.len, end);
    size_t n = contraction(p, end, true);

    if (n > 0) {
        return n;
    }
    if (first.cls == BT_UNICODE_LETTER) {
        return run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if (first.cls == BT_UNICODE_NUMBER) {
        return numbers(p, end, digits);
    }
    if (!is_newline(first) && (second.len > 0) &&
        (second.cls == BT_UNICODE_LETTER)) {
        return run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if ((first.cls == BT_UNICODE_OTHER) ||
        ((first.cp == ' ') && (second.len > 0) &&
         (second.cls == BT_UNICODE_OTHER))) {
        n = run_end(p, first.len, end, BT_UNICODE_OTHER);
        while ((n < end) && ((p[n] == '\r') || (p[n] == '\n'))) {
            n++;
        }
        return n;
    }
    n = line_breaks(p, end);
    return (n > 0) ? n : spaces(p, end);
}

size_t bt_pretok_next(bt_pretok_t pretok, const uint8_t *text, size_t bytes)
{
    switch (pretok) {
    case BT_PRETOK_SMOLLM:
        return next_smollm(text, bytes);
    case BT_PRETOK_LLAMA_BPE:
        return next_llama3(text, bytes, 3);
    case BT_PRETOK_QWEN2:
        return next_llama3(text, bytes, 1);
    case BT_PRETOK_GPT2:
    default:
        return next_gpt2(text, bytes);
    }
}
