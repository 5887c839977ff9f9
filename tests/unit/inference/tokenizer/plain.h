/* SPDX-License-Identifier: Apache-2.0 */
/** @file plain.h
 *
 * Tokenizing as it is defined, one character and one merge at a time, without
 * tables of words, caches, cuts or heaps: what the product's short ways are
 * compared with. Shares with the product only the classes of characters and the
 * tables of pairs and texts, which have tests of their own.
 */
#ifndef BT_TESTS_UNIT_TOKENIZER_PLAIN_H
#define BT_TESTS_UNIT_TOKENIZER_PLAIN_H

#include <string.h>

#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define PLAIN_MAX 8192u /* bytes of a text, and tokens */

typedef struct plain_ids {
    uint32_t ids[PLAIN_MAX];
    size_t n;
} plain_ids_t;

/* ----------------------------------------------------------------- UTF-8 */

/* By the definition: decode, and see whether the shortest form is the same. */
static inline bool plain_utf8_valid(const uint8_t *p, size_t bytes)
{
    size_t at = 0;

    while (at < bytes) {
        const unsigned len = (p[at] < 0x80)             ? 1
                             : ((p[at] & 0xE0) == 0xC0) ? 2
                             : ((p[at] & 0xF0) == 0xE0) ? 3
                             : ((p[at] & 0xF8) == 0xF0) ? 4
                                                        : 0;
        uint8_t again[4];
        uint32_t cp = 0;

        if ((len == 0) || (len > bytes - at)) {
            return false;
        }
        cp = (len == 1) ? p[at] : p[at] & (0x7Fu >> len);
        for (unsigned i = 1; i < len; i++) {
            if ((p[at + i] & 0xC0) != 0x80) {
                return false;
            }
            cp = cp << 6 | (p[at + i] & 0x3Fu);
        }
        if ((cp > 0x10FFFF) || ((cp >= 0xD800) && (cp <= 0xDFFF)) ||
            (bt_utf8_encode(cp, again) != len) ||
            (memcmp(again, p + at, len) != 0)) {
            return false;
        }
        at += len;
    }
    return true;
}

/* ----------------------------------------------------------------- words */

#define PLAIN_LONG_S 0x17Fu /* folds to s, so (?i:'s) matches it */

/* One decoded character at p[at]; len is 0 at the end of the text. */
typedef struct plain_chr {
    uint32_t cp;
    unsigned len;
    bt_unicode_class_t cls;
} plain_chr_t;

static inline plain_chr_t plain_chr_at(const uint8_t *p, size_t at, size_t end)
{
    plain_chr_t c = {0, 0, BT_UNICODE_OTHER};

    if (at < end) {
        c.len = bt_utf8_decode(p + at, &c.cp);
        c.cls = bt_unicode_class(c.cp);
    }
    return c;
}

static inline bool plain_is_newline(plain_chr_t c)
{
    return (c.len > 0) && ((c.cp == '\r') || (c.cp == '\n'));
}

/* End of the run of characters of one class that starts at at. */
static inline size_t plain_run_end(const uint8_t *p, size_t at, size_t end,
                                   bt_unicode_class_t cls)
{
    plain_chr_t c = plain_chr_at(p, at, end);

    while ((c.len > 0) && (c.cls == cls)) {
        at += c.len;
        c = plain_chr_at(p, at, end);
    }
    return at;
}

static inline uint8_t plain_lower(uint8_t byte)
{
    return ((byte >= 'A') && (byte <= 'Z')) ? (uint8_t)(byte | 0x20) : byte;
}

/* Bytes of 's 't 'm 'd 're 've 'll at the start, or 0. */
static inline size_t plain_contraction(const uint8_t *p, size_t end,
                                       bool any_case)
{
    uint8_t a;
    uint8_t b = 0;

    if ((end < 2) || (p[0] != '\'')) {
        return 0;
    }
    a = any_case ? plain_lower(p[1]) : p[1];
    if ((a == 's') || (a == 't') || (a == 'm') || (a == 'd')) {
        return 2;
    }
    if (end < 3) {
        return 0;
    }
    b = any_case ? plain_lower(p[2]) : p[2];
    if (((a == 'r') && (b == 'e')) || ((a == 'v') && (b == 'e')) ||
        ((a == 'l') && (b == 'l'))) {
        return 3;
    }
    if (any_case && (p[1] >= 0x80)) {
        const plain_chr_t c = plain_chr_at(p, 1, end);

        return (c.cp == PLAIN_LONG_S) ? 1 + (size_t)c.len : 0;
    }
    return 0;
}

/* \s+(?!\S)|\s+ for a text that starts with white space: all of the run at the
 * end of the text; else all but its last character, which then may begin the
 * next word; a single one is a word by itself. */
static inline size_t plain_spaces(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t last = 0;
    plain_chr_t c = plain_chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        last = at;
        at += c.len;
        c = plain_chr_at(p, at, end);
    }
    return ((at == end) || (last == 0)) ? at : last;
}

static inline size_t plain_next_gpt2(const uint8_t *p, size_t end)
{
    const size_t n = plain_contraction(p, end, false);
    const size_t start = (p[0] == ' ') ? 1 : 0;
    const plain_chr_t c = plain_chr_at(p, start, end);

    if (n > 0) {
        return n;
    }
    if ((c.len == 0) || (c.cls == BT_UNICODE_SPACE)) {
        return plain_spaces(p, end);
    }
    return plain_run_end(p, start + c.len, end, c.cls);
}

/* The cuts around plain_numbers come first: for what stands before one, the
 * text ends there. Only white space looks ahead, so only there it matters. */
static inline size_t plain_next_smollm(const uint8_t *p, size_t end)
{
    const plain_chr_t first = plain_chr_at(p, 0, end);
    size_t run;

    if (first.cls == BT_UNICODE_NUMBER) {
        return first.len;
    }
    if (first.cls != BT_UNICODE_SPACE) {
        return plain_next_gpt2(p, end);
    }
    run = plain_run_end(p, 0, end, BT_UNICODE_SPACE);
    if (plain_chr_at(p, run, end).cls == BT_UNICODE_NUMBER) {
        return run;
    }
    return plain_next_gpt2(p, end);
}

/* \s*[\r\n]+ : up to the last line break of the run, or 0. */
static inline size_t plain_line_breaks(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t found = 0;
    plain_chr_t c = plain_chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        at += c.len;
        if (plain_is_newline(c)) {
            found = at;
        }
        c = plain_chr_at(p, at, end);
    }
    return found;
}

static inline size_t plain_numbers(const uint8_t *p, size_t end, unsigned most)
{
    size_t at = 0;
    plain_chr_t c = plain_chr_at(p, 0, end);

    while ((most > 0) && (c.len > 0) && (c.cls == BT_UNICODE_NUMBER)) {
        at += c.len;
        most--;
        c = plain_chr_at(p, at, end);
    }
    return at;
}

static inline size_t plain_next_llama3(const uint8_t *p, size_t end,
                                       unsigned digits)
{
    const plain_chr_t first = plain_chr_at(p, 0, end);
    const plain_chr_t second = plain_chr_at(p, first.len, end);
    size_t n = plain_contraction(p, end, true);

    if (n > 0) {
        return n;
    }
    if (first.cls == BT_UNICODE_LETTER) {
        return plain_run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if (first.cls == BT_UNICODE_NUMBER) {
        return plain_numbers(p, end, digits);
    }
    if (!plain_is_newline(first) && (second.len > 0) &&
        (second.cls == BT_UNICODE_LETTER)) {
        return plain_run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if ((first.cls == BT_UNICODE_OTHER) ||
        ((first.cp == ' ') && (second.len > 0) &&
         (second.cls == BT_UNICODE_OTHER))) {
        n = plain_run_end(p, first.len, end, BT_UNICODE_OTHER);
        while ((n < end) && ((p[n] == '\r') || (p[n] == '\n'))) {
            n++;
        }
        return n;
    }
    n = plain_line_breaks(p, end);
    return (n > 0) ? n : plain_spaces(p, end);
}

static inline size_t plain_next(bt_pretok_t pretok, const uint8_t *text,
                                size_t bytes)
{
    switch (pretok) {
    case BT_PRETOK_SMOLLM:
        return plain_next_smollm(text, bytes);
    case BT_PRETOK_LLAMA_BPE:
        return plain_next_llama3(text, bytes, 3);
    case BT_PRETOK_QWEN2:
        return plain_next_llama3(text, bytes, 1);
    case BT_PRETOK_GPT2:
    default:
        return plain_next_gpt2(text, bytes);
    }
}

/* --------------------------------------------------------------- merging */

static inline size_t plain_merge(const bt_pair_table_t *pairs, uint32_t *syms,
                                 size_t n)
{
    for (;;) {
        const bt_pair_slot_t *best = NULL;
        size_t at = 0;

        for (size_t i = 0; i + 1 < n; i++) {
            const bt_pair_slot_t *slot =
                bt_pair_table_get(pairs, syms[i], syms[i + 1]);

            if ((slot->rank != BT_NO_RANK) &&
                ((best == NULL) || (slot->rank < best->rank))) {
                best = slot;
                at = i;
            }
        }
        if (best == NULL) {
            return n;
        }
        syms[at] = best->merged;
        memmove(syms + at + 1, syms + at + 2, (n - at - 2) * sizeof(*syms));
        n--;
    }
}

static inline void plain_bpe(const bt_tokenizer_t *tok, const uint8_t *text,
                             size_t bytes, plain_ids_t *out)
{
    size_t at = 0;

    while (at < bytes) {
        const size_t len = plain_next(tok->pretok, text + at, bytes - at);
        uint32_t *syms = out->ids + out->n;
        size_t n = 0;
        uint32_t id;

        if (tok->ignore_merges &&
            bt_text_table_get(&tok->texts, text + at, len, &id)) {
            syms[n++] = id;
        } else {
            for (size_t i = at; i < at + len; i++) {
                if (tok->byte_ids[text[i]] != BT_TOKEN_NONE) {
                    syms[n++] = tok->byte_ids[text[i]];
                }
            }
            n = plain_merge(&tok->pairs, syms, n);
        }
        out->n += n;
        at += len;
    }
}

static inline void plain_spm(const bt_tokenizer_t *tok, const uint8_t *text,
                             size_t bytes, plain_ids_t *out)
{
    static uint32_t syms[PLAIN_MAX + 1];
    bool in_unknown = false;
    size_t n = 0;
    size_t at = 0;

    if ((bytes > 0) && tok->add_space_prefix) {
        syms[n++] = bt_tok_char_symbol(tok, (const uint8_t *)" ", 1, ' ');
    }
    while (at < bytes) {
        uint32_t cp;
        const unsigned len = bt_utf8_decode(text + at, &cp);

        syms[n++] = (cp == 0x2581)
                        ? bt_tok_char_symbol(tok, (const uint8_t *)" ", 1, ' ')
                        : bt_tok_char_symbol(tok, text + at, len, cp);
        at += len;
    }
    n = plain_merge(&tok->pairs, syms, n);
    for (size_t i = 0; i < n; i++) {
        const bool bare = (syms[i] & BT_TOK_BARE_CHAR) != 0;
        uint8_t utf8[4];
        const unsigned len =
            bare ? bt_utf8_encode(syms[i] & ~BT_TOK_BARE_CHAR, utf8) : 0;
        bool have_all = true;

        for (unsigned k = 0; k < len; k++) {
            have_all = have_all && (tok->byte_ids[utf8[k]] != BT_TOKEN_NONE);
        }
        if (!bare) {
            out->ids[out->n++] = syms[i];
        } else if (have_all) {
            for (unsigned k = 0; k < len; k++) {
                out->ids[out->n++] = tok->byte_ids[utf8[k]];
            }
        } else if (!in_unknown) {
            out->ids[out->n++] = tok->unk;
        }
        in_unknown = !have_all;
    }
}

/* ---------------------------------------------------------- special tokens */

/* The longest token that is matched as text at the start, or BT_TOKEN_NONE. */
static inline uint32_t plain_special(const bt_tokenizer_t *tok,
                                     const uint8_t *text, size_t bytes,
                                     bool with_control)
{
    uint32_t best = BT_TOKEN_NONE;
    uint32_t best_len = 0;

    for (uint32_t i = 0; i < tok->arena.n; i++) {
        const uint32_t start = tok->arena.offsets[i];
        const uint32_t len = tok->arena.offsets[i + 1] - start;
        const bool control = bt_token_is_special(tok->types[i]);

        if ((tok->types[i] != BT_TOKEN_USER_DEFINED) &&
            (!control || !with_control)) {
            continue;
        }
        if ((len > best_len) && (len <= bytes) &&
            (memcmp(tok->arena.bytes + start, text, len) == 0)) {
            best = i;
            best_len = len;
        }
    }
    return best;
}

/* bt_tokenize() without BOS and EOS, of a valid text. */
static inline void plain_tokenize(const bt_tokenizer_t *tok,
                                  const uint8_t *text, size_t bytes,
                                  bool with_control, plain_ids_t *out)
{
    size_t from = 0;
    size_t at = 0;

    out->n = 0;
    while (from < bytes) {
        uint32_t id = BT_TOKEN_NONE;

        for (at = from; at < bytes; at++) {
            id = plain_special(tok, text + at, bytes - at, with_control);
            if (id != BT_TOKEN_NONE) {
                break;
            }
        }
        if (tok->is_spm) {
            plain_spm(tok, text + from, at - from, out);
        } else {
            plain_bpe(tok, text + from, at - from, out);
        }
        from = at;
        if (id != BT_TOKEN_NONE) {
            out->ids[out->n++] = id;
            from += tok->arena.offsets[id + 1] - tok->arena.offsets[id];
        }
    }
}

#endif
