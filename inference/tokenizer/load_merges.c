/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define KEY_MERGES "tokenizer.ggml.merges"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_EXACT  "baton.tokenizer.scores"

/* Decodes a part of a merge to the arena's form. */
static size_t token_text(const bt_tokenizer_t *tok, const uint8_t *text,
                         size_t bytes, uint8_t *out)
{
    return tok->is_spm ? bt_tok_plain_text(tok, text, bytes, out)
                       : bt_bytelevel_decode(text, bytes, out);
}

/* Parses "left right" to the three ids. */
static bool parse_merge(const bt_tokenizer_t *tok, const bt_gguf_str_t *text,
                        uint32_t *left_p, uint32_t *right_p, uint32_t *merged_p)
{
    const uint8_t *bytes = (const uint8_t *)text->data;
    uint8_t buf[2 * BT_TOK_MAX_TOKEN_BYTES];
    const uint8_t *space;
    size_t n_text;
    size_t n_left;
    size_t n_right;

    if ((text->len < 3) || (text->len > sizeof(buf))) {
        return false;
    }
    space = memchr(bytes + 1, ' ', text->len - 1);
    if (space == NULL) {
        return false;
    }
    n_text = (size_t)(space - bytes);
    n_left = token_text(tok, bytes, n_text, buf);
    n_right = token_text(tok, space + 1, text->len - n_text - 1, buf + n_left);
    return bt_text_table_get(&tok->texts, buf, n_left, left_p) &&
           bt_text_table_get(&tok->texts, buf + n_left, n_right, right_p) &&
           bt_text_table_get(&tok->texts, buf, n_left + n_right, merged_p);
}

/* Orders merges without a list, as tiktoken does: of all pairs that make a
 * token, the one whose token has the lower id comes first. */
static bt_status_t merges_by_id(bt_tokenizer_t *tok)
{
    bt_status_t status = bt_pair_table_init(&tok->pairs, tok->arena.n);

    for (uint32_t id = 0; (status == BT_OK) && (id < tok->arena.n); id++) {
        const uint8_t *p = tok->arena.bytes + tok->arena.offsets[id];
        const size_t n = tok->arena.offsets[id + 1] - tok->arena.offsets[id];
        uint32_t winner;
        uint32_t left;
        uint32_t right;

        if ((tok->types[id] != BT_TOKEN_NORMAL) ||
            !bt_text_table_get(&tok->texts, p, n, &winner) || (winner != id)) {
            continue;
        }
        for (size_t at = 1; (status == BT_OK) && (at < n); at++) {
            if (bt_text_table_get(&tok->texts, p, at, &left) &&
                bt_text_table_get(&tok->texts, p + at, n - at, &right)) {
                status = bt_pair_table_put(&tok->pairs, left, right, id, id);
            }
        }
    }
    return status;
}

bt_status_t bt_tok_load_merges(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes)
{
    uint64_t n = 0;
    bt_status_t status = bt_gguf_array_len(gguf, KEY_MERGES, &n);

    if ((status == BT_ERR_NOT_FOUND) && tok->by_id) {
        return merges_by_id(tok);
    }
    if ((status != BT_OK) || (n >= BT_NO_RANK)) {
        snprintf(why, why_bytes, "%s is not a list of merges", KEY_MERGES);
        return BT_ERR_BAD_FILE;
    }
    status = bt_pair_table_init(&tok->pairs, n);
    for (uint32_t rank = 0; (status == BT_OK) && (rank < n); rank++) {
        bt_gguf_str_t text;
        uint32_t left;
        uint32_t right;
        uint32_t merged;

        if ((bt_gguf_array_str(gguf, KEY_MERGES, rank, &text) != BT_OK) ||
            !parse_merge(tok, &text, &left, &right, &merged)) {
            snprintf(why, why_bytes,
                     "merge %u of %s does not join two tokens to a third", rank,
                     KEY_MERGES);
            return BT_ERR_BAD_FILE;
        }
        status = bt_pair_table_put(&tok->pairs, left, right, rank, merged);
    }
    return status;
}

typedef struct scored {
    double score;
    uint32_t id;
} scored_t;

/* Best score first; qsort() needs no stability, equal scores share a rank. */
static int compare_scored(const void *a, const void *b)
{
    const scored_t *x = a;
    const scored_t *y = b;

    return (x->score < y->score) - (x->score > y->score);
}

bt_status_t bt_tok_read_scores(const bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                               double *scores, char *why, size_t why_bytes)
{
    const char *const key =
        bt_gguf_has(gguf, KEY_EXACT) ? KEY_EXACT : KEY_SCORES;
    uint64_t n = 0;

    if ((bt_gguf_array_len(gguf, key, &n) != BT_OK) || (n != tok->arena.n)) {
        snprintf(why, why_bytes, "%s does not fit the %u tokens", key,
                 tok->arena.n);
        return BT_ERR_BAD_FILE;
    }
    for (uint32_t i = 0; i < n; i++) {
        if ((bt_gguf_array_f64(gguf, key, i, &scores[i]) != BT_OK) ||
            isnan(scores[i])) {
            snprintf(why, why_bytes, "%s of token %u is not a number", key, i);
            return BT_ERR_BAD_FILE;
        }
    }
    return BT_OK;
}

uint32_t bt_tok_char_symbol(const bt_tokenizer_t *tok, const uint8_t *p,
                            unsigned len, uint32_t cp)
{
    uint32_t id;

    if (len == 1) {
        return tok->ascii_symbols[cp];
    }
    return bt_text_table_get(&tok->texts, p, len, &id) ? id
                                                       : BT_TOK_BARE_CHAR | cp;
}

/* Returns the symbol of a part of a piece, if merging can produce it. */
static bool part_symbol(const bt_tokenizer_t *tok, const uint8_t *p, size_t n,
                        uint32_t *symbol_p)
{
    uint32_t cp;
    const unsigned first = bt_utf8_decode(p, &cp);

    if (first == n) {
        *symbol_p = bt_tok_char_symbol(tok, p, first, cp);
        return true;
    }
    return bt_text_table_get(&tok->texts, p, n, symbol_p);
}

/* Adds every way to make the piece from two parts with the piece's own rank. */
static bt_status_t add_piece(bt_tokenizer_t *tok, uint32_t id, uint32_t rank)
{
    const uint8_t *p = tok->arena.bytes + tok->arena.offsets[id];
    const size_t n = tok->arena.offsets[id + 1] - tok->arena.offsets[id];
    bt_status_t status = BT_OK;
    uint32_t left;
    uint32_t right;
    uint32_t cp;

    for (size_t at = bt_utf8_decode(p, &cp); (status == BT_OK) && (at < n);
         at += bt_utf8_decode(p + at, &cp)) {
        if (part_symbol(tok, p, at, &left) &&
            part_symbol(tok, p + at, n - at, &right)) {
            status = bt_pair_table_put(&tok->pairs, left, right, rank, id);
        }
    }
    return status;
}

static bt_status_t add_pieces(bt_tokenizer_t *tok, const scored_t *list,
                              char *why, size_t why_bytes)
{
    bt_status_t status = BT_OK;
    uint32_t rank = 0;

    for (uint32_t i = 0; (status == BT_OK) && (i < tok->arena.n); i++) {
        const uint32_t id = list[i].id;
        const uint32_t start = tok->arena.offsets[id];
        const size_t n = tok->arena.offsets[id + 1] - start;
        uint32_t winner;

        if ((i > 0) && (list[i].score < list[i - 1].score)) {
            rank++;
        }
        if (!bt_text_table_get(&tok->texts, tok->arena.bytes + start, n,
                               &winner) ||
            (winner != id)) {
            continue; /* a special token, or the double of another */
        }
        if (!bt_utf8_valid(tok->arena.bytes + start, n)) {
            snprintf(why, why_bytes, "token %u is not UTF-8", id);
            return BT_ERR_BAD_FILE;
        }
        status = add_piece(tok, id, rank);
    }
    return status;
}

bt_status_t bt_tok_load_scores(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes)
{
    scored_t *list = bt_calloc(tok->arena.n, sizeof(*list));
    double *scores = bt_calloc(tok->arena.n, sizeof(*scores));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if ((list == NULL) || (scores == NULL)) {
        goto out;
    }
    status = bt_tok_read_scores(tok, gguf, scores, why, why_bytes);
    if (status != BT_OK) {
        goto out;
    }
    for (uint32_t i = 0; i < tok->arena.n; i++) {
        list[i] = (scored_t){scores[i], i};
    }
    qsort(list, tok->arena.n, sizeof(*list), compare_scored);
    status = bt_pair_table_init(&tok->pairs, tok->arena.n);
    if (status != BT_OK) {
        goto out;
    }
    status = add_pieces(tok, list, why, why_bytes);
out:
    bt_free(scores);
    bt_free(list);
    return status;
}
