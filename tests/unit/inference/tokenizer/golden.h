/* SPDX-License-Identifier: Apache-2.0 */
/** @file golden.h
 *
 * Reads what tests/golden/make_tokenizer_golden.py wrote (its text says what
 * each file holds), and compares a tokenizer with it.
 */
#ifndef BT_TESTS_UNIT_TOKENIZER_GOLDEN_H
#define BT_TESTS_UNIT_TOKENIZER_GOLDEN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/golden_file.h"
#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define GOLDEN_MAX_IDS 1024
#define GOLDEN_STEP    3 /* SMALL_STEP of the script */

/* A file's lines, each cut off at its newline. */
typedef struct golden_lines {
    char *data;
    char **lines;
    size_t *bytes; /* of a line; for the corpus: after golden_unescape() */
    size_t n;
} golden_lines_t;

static inline void golden_read(const char *name, golden_lines_t *out)
{
    size_t bytes;
    size_t at = 0;

    memset(out, 0, sizeof(*out));
    out->data = bt_golden_read(name, &bytes);
    for (size_t i = 0; i < bytes; i++) {
        out->n += (out->data[i] == '\n');
    }
    assert_true(out->n > 0);
    out->lines = bt_calloc(out->n, sizeof(*out->lines));
    out->bytes = bt_calloc(out->n, sizeof(*out->bytes));
    assert_non_null(out->lines);
    assert_non_null(out->bytes);
    for (size_t i = 0; i < out->n; i++) {
        char *end = memchr(out->data + at, '\n', bytes - at);

        assert_non_null(end);
        out->lines[i] = out->data + at;
        out->bytes[i] = (size_t)(end - out->lines[i]);
        *end = '\0';
        at += out->bytes[i] + 1;
    }
}

static inline void golden_free(golden_lines_t *lines)
{
    bt_free(lines->data);
    bt_free(lines->lines);
    bt_free(lines->bytes);
}

/* In place; @return the new length. */
static inline size_t golden_unescape(char *text, size_t bytes)
{
    static const char names[] = "nrt0\\";
    static const char chars[] = "\n\r\t\0\\";
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\') {
            const char *name = memchr(names, text[++i], sizeof(names) - 1);

            assert_non_null(name);
            text[n++] = chars[name - names];
        } else {
            text[n++] = text[i];
        }
    }
    text[n] = '\0';
    return n;
}

static inline void golden_read_corpus(golden_lines_t *corpus)
{
    golden_read("golden/tok_corpus.txt", corpus);
    for (size_t i = 0; i < corpus->n; i++) {
        corpus->bytes[i] = golden_unescape(corpus->lines[i], corpus->bytes[i]);
    }
}

/* Ids in base 36 until the end of the text or a tab. */
static inline size_t golden_ids(const char *text, uint32_t *ids)
{
    size_t n = 0;

    while ((*text != '\0') && (*text != '\t')) {
        char *end;

        assert_true(n < GOLDEN_MAX_IDS);
        ids[n++] = (uint32_t)strtoul(text, &end, 36);
        assert_true(end != text);
        text = (*end == ' ') ? end + 1 : end;
    }
    return n;
}

/* Line i of a section: its own, or that of the section before. */
static inline size_t golden_expected(const golden_lines_t *file,
                                     size_t section_at, size_t per_section,
                                     size_t i, uint32_t *ids)
{
    size_t at = section_at + 1 + i;

    while (strcmp(file->lines[at], "~") == 0) {
        at -= per_section + 1;
    }
    return golden_ids(file->lines[at], ids);
}

static inline size_t golden_section(const golden_lines_t *file,
                                    const char *name)
{
    for (size_t i = 0; i < file->n; i++) {
        if ((strncmp(file->lines[i], "= ", 2) == 0) &&
            (strcmp(file->lines[i] + 2, name) == 0)) {
            return i;
        }
    }
    fail_msg("no section %s", name);
    return 0;
}

static inline void golden_load(const char *name, bt_gguf_t **gguf_p,
                               bt_tokenizer_t **tok_p)
{
    char why[256];

    if ((bt_gguf_open(name, why, sizeof(why), gguf_p) != BT_OK) ||
        (bt_tokenizer_load(*gguf_p, why, sizeof(why), tok_p) != BT_OK)) {
        fail_msg("%s: %s", name, why);
    }
}

/* The same vocabulary with another pre-tokenizer. */
static inline void golden_use(bt_tokenizer_t *tok, bt_pretok_t pretok,
                              bool ignore_merges)
{
    tok->pretok = pretok;
    tok->ignore_merges = ignore_merges;
    assert_int_equal(bt_tok_index_words(tok), BT_OK);
}

/* Every line of the section; prints the first lines that differ. */
static inline void golden_compare(const bt_tokenizer_t *tok,
                                  const golden_lines_t *corpus, size_t step,
                                  const golden_lines_t *file,
                                  const char *section, unsigned flags)
{
    const size_t section_at = golden_section(file, section);
    const size_t n_lines = (corpus->n + step - 1) / step;
    static uint32_t want[GOLDEN_MAX_IDS];
    bt_token_vec_t got = {0};
    size_t n_bad = 0;

    for (size_t i = 0; i < n_lines; i++) {
        const size_t n_want =
            golden_expected(file, section_at, n_lines, i, want);

        got.n = 0;
        assert_int_equal(bt_tokenize(tok, corpus->lines[i * step],
                                     corpus->bytes[i * step], flags,
                                     GOLDEN_MAX_IDS, &got),
                         BT_OK);
        if ((got.n != n_want) ||
            ((n_want > 0) &&
             (memcmp(got.ids, want, n_want * sizeof(want[0])) != 0))) {
            n_bad++;
            if (n_bad <= 5) {
                print_error("%s, line %zu: %zu ids, expected %zu\n", section,
                            i * step + 1, got.n, n_want);
            }
        }
    }
    bt_free(got.ids);
    assert_int_equal(n_bad, 0);
}

/* The text without the bytes that have no token; @return whether any had
 * none. */
static inline bool golden_drops_bytes(const bt_tokenizer_t *tok,
                                      const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (tok->byte_ids[(uint8_t)text[i]] == BT_TOKEN_NONE) {
            return true;
        }
    }
    return false;
}

/* Push one by one: what comes out each time is whole characters, and all of it
 * is the text that went in. @return lines that could be compared */
static inline size_t golden_round_trip(const bt_tokenizer_t *tok,
                                       const golden_lines_t *corpus)
{
    bt_token_vec_t ids = {0};
    bt_strbuf_t out;
    size_t n_compared = 0;

    bt_strbuf_init(&out, 1u << 20);
    for (size_t i = 0; i < corpus->n; i++) {
        bt_detok_t detok;

        if (golden_drops_bytes(tok, corpus->lines[i], corpus->bytes[i])) {
            continue;
        }
        ids.n = 0;
        bt_strbuf_reset(&out);
        assert_int_equal(bt_tokenize(tok, corpus->lines[i], corpus->bytes[i], 0,
                                     GOLDEN_MAX_IDS, &ids),
                         BT_OK);
        bt_detok_init(&detok, tok);
        for (size_t k = 0; k < ids.n; k++) {
            const size_t before = out.len;

            bt_detok_push(&detok, ids.ids[k], &out);
            assert_true((out.len == before) ||
                        bt_utf8_valid((const uint8_t *)out.data + before,
                                      out.len - before));
        }
        bt_detok_finish(&detok, &out);
        assert_int_equal(out.len, corpus->bytes[i]);
        if (out.len > 0) {
            assert_memory_equal(out.data, corpus->lines[i], out.len);
        }
        n_compared++;
    }
    bt_free(ids.ids);
    bt_strbuf_fini(&out);
    return n_compared;
}

#endif
