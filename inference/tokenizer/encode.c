/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/merge.h"
#include "inference/tokenizer/unicode.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)
#define FIRST_IDS      64u

/* Words up to here are looked for in the cache before they are cut. */
#define SHORT_WORD_BYTES 15u

/* Room for n more ids, if so many are allowed. */
static bt_status_t make_room(bt_encoder_t *enc, size_t n)
{
    bt_token_vec_t *out = enc->out;
    size_t cap = (out->cap == 0) ? FIRST_IDS : out->cap;
    uint32_t *ids;

    if ((out->n > enc->max_tokens) || (n > enc->max_tokens - out->n)) {
        return BT_ERR_TOO_LARGE;
    }
    if (n <= out->cap - out->n) {
        return BT_OK;
    }
    while (cap - out->n < n) {
        cap *= 2;
    }
    ids = bt_realloc_array(out->ids, cap, sizeof(*ids));
    if (ids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->ids = ids;
    out->cap = cap;
    return BT_OK;
}

bt_status_t bt_encode_push_all(bt_encoder_t *enc, const uint32_t *ids, size_t n)
{
    const bt_status_t status = make_room(enc, n);

    if (status != BT_OK) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        enc->out->ids[enc->out->n++] = ids[i];
    }
    return BT_OK;
}

bool bt_encode_too_many(const bt_encoder_t *enc, size_t n_symbols)
{
    const size_t room =
        (enc->max_tokens > enc->out->n) ? enc->max_tokens - enc->out->n : 0;

    return n_symbols / enc->tok->max_token_bytes > room;
}

/* @param [out] ids_p  The tokens, until the next word. */
static bt_status_t merge_word(bt_encoder_t *enc, const uint8_t *word,
                              size_t bytes, const uint32_t **ids_p, size_t *n_p)
{
    const bt_tokenizer_t *tok = enc->tok;
    size_t n = 0;
    bt_status_t status;

    if (bytes <= BT_MERGE_SHORT) {
        n = bt_tok_byte_symbols(tok, word, bytes, enc->syms);
        *n_p = bt_merge_short(&tok->pairs, enc->syms, n);
        *ids_p = enc->syms;
        return BT_OK;
    }
    status = bt_merge_reserve(&enc->work, bytes);
    if (status != BT_OK) {
        return status;
    }
    n = bt_tok_byte_symbols(tok, word, bytes, enc->work.syms);
    *ids_p = enc->work.syms;
    return bt_merge(&enc->work, &tok->pairs, n, n_p);
}

/* Bytes up to the first place that no merge crosses. */
static size_t first_cut(const bt_tokenizer_t *tok, const uint8_t *p,
                        size_t bytes)
{
    size_t n = 1;

    while ((n < bytes) && bt_joins_get(tok->joins, p[n - 1], p[n])) {
        n++;
    }
    return n;
}

/* Whether some token has this text, whatever it takes to become it. */
static bool long_token(const bt_tokenizer_t *tok, const uint8_t *p,
                       size_t bytes, uint32_t *id_p)
{
    return (bytes <= tok->max_token_bytes) &&
           bt_text_table_get(&tok->texts, p, bytes, id_p);
}

/* A word, or a part of one, that neither the table nor the cache knows. */
static bt_status_t bpe_unknown(bt_encoder_t *enc, const uint8_t *p,
                               size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const uint32_t *ids = NULL;
    size_t n = 0;
    uint32_t id;
    bt_status_t status = BT_OK;

    if ((bytes > BT_WORD_TABLE_BYTES) && long_token(tok, p, bytes, &id) &&
        tok->whole[id]) {
        enc->n_table++;
        ids = &id;
        n = 1;
    } else {
        enc->n_merged++;
        status = merge_word(enc, p, bytes, &ids, &n);
    }
    if (status != BT_OK) {
        return status;
    }
    if ((enc->cache != NULL) && (bytes <= BT_WORD_CACHE_BYTES) &&
        (n <= BT_WORD_CACHE_IDS)) {
        bt_word_cache_put(enc->cache, p, bytes, ids, n);
    }
    return bt_encode_push_all(enc, ids, n);
}

/* A word, or a part of one, that is merged by itself.
 * @param [in] readable  Bytes that can be read at p. */
static bt_status_t bpe_part(bt_encoder_t *enc, const uint8_t *p, size_t bytes,
                            size_t readable)
{
    const bt_tokenizer_t *tok = enc->tok;
    uint8_t buf[BT_WORD_SLACK] = {0};
    uint32_t id = UINT32_MAX;

    if ((readable < BT_WORD_SLACK) && (bytes <= BT_WORD_CACHE_BYTES)) {
        memcpy(buf, p, bytes);
        p = buf;
    }
    if (bytes <= BT_WORD_TABLE_BYTES) {
        id = bt_word_table_get(&tok->words, p, bytes);
    }
    if ((id != UINT32_MAX) && tok->whole[id]) {
        enc->n_table++;
        return bt_encode_push(enc, id);
    }
    if ((enc->cache != NULL) && (bytes <= BT_WORD_CACHE_BYTES)) {
        const bt_word_entry_t *entry = bt_word_cache_get(enc->cache, p, bytes);

        if (entry != NULL) {
            enc->n_hits++;
            return bt_encode_push_all(enc, entry->ids, entry->n);
        }
    }
    return bpe_unknown(enc, p, bytes);
}

/* A word in parts. What is short may come again and is remembered whole; the
 * parts of long ones may come again in others. */
static bt_status_t bpe_parts(bt_encoder_t *enc, const uint8_t *word,
                             size_t bytes, size_t readable)
{
    const size_t before = enc->out->n;
    bt_status_t status = BT_OK;
    size_t n_ids;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        const size_t n = first_cut(enc->tok, word + at, bytes - at);

        status = bpe_part(enc, word + at, n, readable - at);
        at += n;
    }
    n_ids = enc->out->n - before;
    if ((status == BT_OK) && (enc->cache != NULL) &&
        (bytes <= SHORT_WORD_BYTES) && (n_ids <= BT_WORD_CACHE_IDS)) {
        bt_word_cache_put(enc->cache, word, bytes, enc->out->ids + before,
                          n_ids);
    }
    return status;
}

static bool hopeless(const bt_encoder_t *enc, const uint8_t *word, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        n += (enc->tok->byte_ids[word[i]] != BT_TOKEN_NONE);
    }
    return bt_encode_too_many(enc, n);
}

/* A word that the table does not know.
 * @param [in] readable  At least BT_WORD_SLACK. */
static bt_status_t bpe_rare_word(bt_encoder_t *enc, const uint8_t *word,
                                 size_t bytes, size_t readable)
{
    const bt_tokenizer_t *tok = enc->tok;
    uint32_t id;

    /* First: what the cache holds is what merging gives. */
    if (tok->ignore_merges && (bytes > BT_WORD_TABLE_BYTES) &&
        long_token(tok, word, bytes, &id) && tok->is_word[id]) {
        enc->n_table++;
        return bt_encode_push(enc, id);
    }
    if ((enc->cache != NULL) && (bytes <= SHORT_WORD_BYTES)) {
        const bt_word_entry_t *entry =
            bt_word_cache_get(enc->cache, word, bytes);

        if (entry != NULL) {
            enc->n_hits++;
            return bt_encode_push_all(enc, entry->ids, entry->n);
        }
    }
    if ((bytes > BT_MERGE_SHORT) && hopeless(enc, word, bytes)) {
        return BT_ERR_TOO_LARGE;
    }
    if (first_cut(tok, word, bytes) < bytes) {
        return bpe_parts(enc, word, bytes, readable);
    }
    return (bytes <= SHORT_WORD_BYTES) ? bpe_unknown(enc, word, bytes)
                                       : bpe_part(enc, word, bytes, readable);
}

static inline bt_status_t bpe_word(bt_encoder_t *enc, const uint8_t *word,
                                   size_t bytes, size_t readable)
{
    uint32_t id = UINT32_MAX;

    if (bytes <= BT_WORD_TABLE_BYTES) {
        id = bt_word_table_get(&enc->tok->words, word, bytes);
    }
    if (id == UINT32_MAX) {
        return bpe_rare_word(enc, word, bytes, readable);
    }
    enc->n_table++;
    return bt_encode_push(enc, id);
}

/* Words as a scanner of its own finds them. */
static bt_status_t scanned_words(bt_encoder_t *enc, const uint8_t *text,
                                 size_t bytes)
{
    const bt_pretok_t pretok = enc->tok->pretok;
    uint8_t tail[2 * BT_WORD_SLACK] = {0};
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((status == BT_OK) && (bytes - at >= BT_WORD_SLACK)) {
        const size_t n = bt_pretok_next(pretok, text + at, bytes - at);

        status = bpe_word(enc, text + at, n, bytes - at);
        at += n;
    }
    /* The last words lie so near the end that it would be read past. */
    while ((status == BT_OK) && (at < bytes)) {
        const size_t n = bt_pretok_next(pretok, text + at, bytes - at);

        memcpy(tail, text + at, n);
        status = bpe_word(enc, tail, n, sizeof(tail));
        at += n;
    }
    return status;
}

/* Words as the steps of a pre-tokenizer leave them. */
static bt_status_t split_words(bt_encoder_t *enc, const uint8_t *text,
                               size_t bytes)
{
    bt_splits_scan_t scan;
    bt_status_t status = BT_OK;
    size_t from;
    size_t to;

    bt_splits_start(&scan, enc->tok->splits, text, bytes);
    while ((status == BT_OK) && bt_splits_next(&scan, &from, &to)) {
        if (bytes - from >= BT_WORD_SLACK) {
            status = bpe_word(enc, text + from, to - from, bytes - from);
        } else {
            uint8_t tail[2 * BT_WORD_SLACK] = {0};

            memcpy(tail, text + from, to - from);
            status = bpe_word(enc, tail, to - from, sizeof(tail));
        }
    }
    return status;
}

/* What stands between two special tokens. */
static bt_status_t encode_text(bt_encoder_t *enc, const uint8_t *text,
                               size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status =
        bt_normalize(&tok->normal, &enc->normal, text, bytes, &text, &bytes);

    if (status != BT_OK) {
        return status;
    }
    if (tok->is_spm) {
        return bt_encode_pieces(enc, text, bytes);
    }
    return (tok->pretok == BT_PRETOK_SPLITS) ? split_words(enc, text, bytes)
                                             : scanned_words(enc, text, bytes);
}

static bt_status_t encode(bt_encoder_t *enc, const uint8_t *text, size_t bytes,
                          unsigned flags, bt_special_quotes_t *quotes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bool with_control = (flags & BT_TOK_PARSE_SPECIAL) != 0;
    const bool add = (flags & BT_TOK_ADD_BOS) != 0;
    const uint8_t *const start = text;
    bt_special_match_t match =
        bt_special_find(&tok->special, text, 0, bytes, with_control, quotes);
    const bool has_bos =
        (match.at == 0) && (match.bytes > 0) && (match.id == tok->bos);
    bt_status_t status = BT_OK;

    if (add && tok->add_bos && !has_bos) {
        status = bt_encode_push(enc, tok->bos);
    }
    while ((status == BT_OK) && (bytes > 0)) {
        status = encode_text(enc, text, match.at);
        if ((status == BT_OK) && (match.bytes > 0)) {
            status = bt_encode_push(enc, match.id);
        }
        text += match.at + match.bytes;
        bytes -= match.at + match.bytes;
        if (quotes != NULL) {
            quotes->base += match.at + match.bytes;
        }
        match = bt_special_find(&tok->special, text, (size_t)(text - start),
                                bytes, with_control, quotes);
    }
    if ((status == BT_OK) && add && tok->add_eos) {
        status = bt_encode_push(enc, tok->eos);
    }
    return status;
}

static bt_status_t tokenize(const bt_tokenizer_t *tok, const char *text,
                            size_t bytes, unsigned flags,
                            bt_special_quotes_t *quotes, size_t max_tokens,
                            bt_token_vec_t *out)
{
    const size_t n_before = out->n;
    bt_encoder_t enc = {.tok = tok, .out = out, .max_tokens = max_tokens};
    bt_status_t status;

    if (bytes > MAX_TEXT_BYTES) {
        return BT_ERR_TOO_LARGE;
    }
    if (!bt_utf8_valid((const uint8_t *)text, bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (!tok->is_spm) {
        enc.cache = bt_word_pool_take(tok->pool);
    }
    status = encode(&enc, (const uint8_t *)text, bytes, flags, quotes);
    if (enc.cache != NULL) {
        enc.cache->n_table += enc.n_table;
        enc.cache->n_hits += enc.n_hits;
        enc.cache->n_merged += enc.n_merged;
        enc.cache->n_steps += enc.work.n_steps;
        bt_word_pool_give(tok->pool, enc.cache);
    }
    bt_merge_fini(&enc.work);
    bt_normal_work_fini(&enc.normal);
    bt_free(enc.view.bytes);
    bt_free(enc.places);
    if (status != BT_OK) {
        out->n = n_before;
    }
    return status;
}

bt_status_t bt_tokenize(const bt_tokenizer_t *tok, const char *text,
                        size_t bytes, unsigned flags, size_t max_tokens,
                        bt_token_vec_t *out)
{
    return tokenize(tok, text, bytes, flags, NULL, max_tokens, out);
}

bt_status_t bt_tokenize_quoting(const bt_tokenizer_t *tok, const char *text,
                                size_t bytes, const bt_quotes_t *quotes,
                                size_t max_tokens, bt_token_vec_t *out)
{
    bt_special_quotes_t left = {.list = quotes->list, .n = quotes->n};

    return tokenize(tok, text, bytes, BT_TOK_PARSE_SPECIAL, &left, max_tokens,
                    out);
}
