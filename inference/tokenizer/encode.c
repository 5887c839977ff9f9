/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/unicode.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)

/* Words up to this length are looked up in the cache before they are split. */
#define SHORT_WORD_BYTES 15u
/* Bytes of a long word between two polls of the task. */
#define POLL_BYTES ((size_t)1 << 14)

bt_status_t bt_encode_push_all(bt_encoder_t *enc, const uint32_t *ids, size_t n)
{
    bt_token_vec_t *out = enc->out;
    uint32_t *all;

    if ((out->n > enc->max_tokens) || (n > enc->max_tokens - out->n)) {
        return BT_ERR_TOO_LARGE;
    }
    all = bt_array_reserve(out->ids, &out->cap, out->n + n, sizeof(*all));
    if (all == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->ids = all;
    for (size_t i = 0; i < n; i++) {
        all[out->n++] = ids[i];
    }
    return BT_OK;
}

bool bt_encode_too_many(const bt_encoder_t *enc, size_t n_symbols)
{
    const size_t left =
        (enc->max_tokens > enc->out->n) ? enc->max_tokens - enc->out->n : 0;

    return n_symbols / enc->tok->max_token_bytes > left;
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
    for (size_t at = 0; at < bytes; at += POLL_BYTES) {
        const size_t some = (bytes - at < POLL_BYTES) ? bytes - at : POLL_BYTES;

        if ((at > 0) && bt_task_poll()) {
            return BT_ERR_CANCELED;
        }
        n += bt_tok_byte_symbols(tok, word + at, some, enc->work.syms + n);
    }
    *ids_p = enc->work.syms;
    return bt_merge(&enc->work, &tok->pairs, n, n_p);
}

/* Returns the first position from n on that no merge crosses, or bytes. */
static inline size_t cut_from(const bt_tokenizer_t *tok, const uint8_t *p,
                              size_t n, size_t bytes)
{
    while ((n < bytes) && bt_joins_get(tok->joins, p[n - 1], p[n])) {
        n++;
    }
    return n;
}

/* ... which is far from n. */
static __attribute__((noinline)) size_t
far_cut(const bt_tokenizer_t *tok, const uint8_t *p, size_t n, size_t bytes)
{
    size_t end = n;

    while ((n == end) && (n < bytes)) {
        (void)bt_task_poll(); /* the caller cancels */
        end = (bytes - n < POLL_BYTES) ? bytes : n + POLL_BYTES;
        n = cut_from(tok, p, n, end);
    }
    return n;
}

/* Returns the bytes up to the first position that no merge crosses. */
static size_t first_cut(const bt_tokenizer_t *tok, const uint8_t *p,
                        size_t bytes)
{
    const size_t near = (bytes < POLL_BYTES) ? bytes : POLL_BYTES;
    const size_t n = cut_from(tok, p, 1, near);

    return ((n == near) && (n < bytes)) ? far_cut(tok, p, n, bytes) : n;
}

/* True when some token has this text, whether or not merging gives it. */
static bool long_token(const bt_tokenizer_t *tok, const uint8_t *p,
                       size_t bytes, uint32_t *id_p)
{
    return (bytes <= tok->max_token_bytes) &&
           bt_text_table_get(&tok->texts, p, bytes, id_p);
}

/* Encodes a word, or a part of one, that is in neither the table nor the
 * cache. */
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

/* Finds a word of up to most bytes in the cache, if the call has one. */
static inline const bt_word_entry_t *cached(bt_encoder_t *enc, const uint8_t *p,
                                            size_t bytes, size_t most)
{
    const bt_word_entry_t *entry = NULL;

    if ((enc->cache != NULL) && (bytes <= most)) {
        entry = bt_word_cache_get(enc->cache, p, bytes);
        enc->n_hits += (entry != NULL);
    }
    return entry;
}

/*
 * Encodes a word, or a part of one, that is merged separately.
 * @param [in] readable  Bytes that can be read at p.
 */
static bt_status_t bpe_part(bt_encoder_t *enc, const uint8_t *p, size_t bytes,
                            size_t readable)
{
    const bt_tokenizer_t *tok = enc->tok;
    uint8_t buf[BT_WORD_SLACK] = {0};
    const bt_word_entry_t *entry;
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
    entry = cached(enc, p, bytes, BT_WORD_CACHE_BYTES);
    return (entry != NULL) ? bt_encode_push_all(enc, entry->ids, entry->n)
                           : bpe_unknown(enc, p, bytes);
}

/* Encodes a word in parts. A short word may recur and is cached whole; the
 * parts of long ones may recur in other words. */
static bt_status_t bpe_parts(bt_encoder_t *enc, const uint8_t *word,
                             size_t bytes, size_t readable)
{
    const size_t before = enc->out->n;
    bt_status_t status = BT_OK;
    unsigned steps = 0;
    size_t n_ids;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        const size_t n = first_cut(enc->tok, word + at, bytes - at);

        status = bt_task_poll_every(&steps)
                     ? BT_ERR_CANCELED
                     : bpe_part(enc, word + at, n, readable - at);
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

static __attribute__((noinline)) bool
has_too_many_bytes(const bt_encoder_t *enc, const uint8_t *word, size_t bytes)
{
    size_t n = 0;
    unsigned steps = 0;

    for (size_t i = 0; i < bytes; i++) {
        n += (enc->tok->byte_ids[word[i]] != BT_TOKEN_NONE);
        (void)bt_task_poll_every(&steps);
    }
    return bt_encode_too_many(enc, n);
}

/*
 * Encodes a word that is not in the table.
 * @param [in] readable  At least BT_WORD_SLACK.
 */
static bt_status_t bpe_rare_word(bt_encoder_t *enc, const uint8_t *word,
                                 size_t bytes, size_t readable)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bt_word_entry_t *entry;
    uint32_t id;

    /* Checked first, because the cache holds results of merging. */
    if (tok->ignore_merges && (bytes > BT_WORD_TABLE_BYTES) &&
        long_token(tok, word, bytes, &id) && tok->is_word[id]) {
        enc->n_table++;
        return bt_encode_push(enc, id);
    }
    entry = cached(enc, word, bytes, SHORT_WORD_BYTES);
    if (entry != NULL) {
        return bt_encode_push_all(enc, entry->ids, entry->n);
    }
    if ((bytes > BT_MERGE_SHORT) && has_too_many_bytes(enc, word, bytes)) {
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

/* Copies a word near the end of the text, where reads would pass it. */
static __attribute__((noinline)) bt_status_t
last_word(bt_encoder_t *enc, const uint8_t *word, size_t bytes)
{
    uint8_t copy[2 * BT_WORD_SLACK] = {0};

    memcpy(copy, word, bytes);
    return bpe_word(enc, copy, bytes, sizeof(copy));
}

/* Encodes words found by a hand-written scanner. */
static bt_status_t scanned_words(bt_encoder_t *enc, const uint8_t *text,
                                 size_t bytes)
{
    const bt_pretok_t pretok = enc->tok->pretok;
    bt_status_t status = BT_OK;
    unsigned steps = 0;
    size_t at = 0;
    size_t n;

    for (; (status == BT_OK) && (bytes - at >= BT_WORD_SLACK); at += n) {
        n = bt_pretok_next(pretok, text + at, bytes - at);
        status = bt_task_poll_every(&steps)
                     ? BT_ERR_CANCELED
                     : bpe_word(enc, text + at, n, bytes - at);
    }
    for (; (status == BT_OK) && (at < bytes); at += n) {
        n = bt_pretok_next(pretok, text + at, bytes - at);
        status = last_word(enc, text + at, n);
    }
    return status;
}

/* Encodes words found by the steps of a pre-tokenizer. */
static bt_status_t split_words(bt_encoder_t *enc, const uint8_t *text,
                               size_t bytes)
{
    bt_splits_scan_t scan;
    bt_status_t status = BT_OK;
    unsigned steps = 0;
    size_t from;
    size_t to;

    bt_splits_start(&scan, enc->tok->splits, text, bytes);
    while ((status == BT_OK) && bt_splits_next(&scan, &from, &to)) {
        status = bt_task_poll_every(&steps) ? BT_ERR_CANCELED
                 : (bytes - from >= BT_WORD_SLACK)
                     ? bpe_word(enc, text + from, to - from, bytes - from)
                     : last_word(enc, text + from, to - from);
    }
    return status;
}

/* ---- pieces ---- */

static bt_status_t encode_piece(bt_encoder_t *enc, const uint8_t *text,
                                size_t bytes)
{
    if (enc->tok->is_spm) {
        return bt_encode_pieces(enc, text, bytes);
    }
    return (enc->tok->pretok == BT_PRETOK_SPLITS)
               ? split_words(enc, text, bytes)
               : scanned_words(enc, text, bytes);
}

/* Where spaces are marked, a space and its mark are equivalent. */
static bool has_prefix(const bt_tokenizer_t *tok, const uint8_t *text,
                       size_t bytes)
{
    const bt_tok_prefix_t *const prefix = &tok->prefix;
    const bool starts =
        (bytes >= prefix->n) && (memcmp(text, prefix->bytes, prefix->n) == 0);

    return starts ||
           (tok->marks_spaces && (prefix->n == BT_TOK_MARK_BYTES) &&
            (memcmp(prefix->bytes, BT_TOK_MARK, BT_TOK_MARK_BYTES) == 0) &&
            (bytes > 0) && (text[0] == ' '));
}

/*
 * Encodes a piece of the outer splits.
 * @param [in] first  the whole text begins with it
 */
static bt_status_t encode_prefixed(bt_encoder_t *enc, const uint8_t *text,
                                   size_t bytes, bool first)
{
    const bt_tok_prefix_t *const prefix = &enc->tok->prefix;
    struct bt_normal_text *const out = &enc->prefixed;
    bt_status_t status;

    if ((bytes == 0) || !prefix->is_on || (prefix->first_only && !first) ||
        has_prefix(enc->tok, text, bytes)) {
        return encode_piece(enc, text, bytes);
    }
    out->n = 0;
    status = bt_normal_put(out, prefix->bytes, prefix->n);
    if (status == BT_OK) {
        status = bt_normal_put(out, text, bytes);
    }
    return (status == BT_OK) ? encode_piece(enc, out->bytes, out->n) : status;
}

static bt_status_t encode_pieces(bt_encoder_t *enc, const uint8_t *text,
                                 size_t bytes, bool first)
{
    bt_splits_scan_t scan;
    bt_status_t status = BT_OK;
    size_t from;
    size_t to;

    if (enc->tok->outer == NULL) {
        return encode_prefixed(enc, text, bytes, first);
    }
    bt_splits_start(&scan, enc->tok->outer, text, bytes);
    while ((status == BT_OK) && bt_splits_next(&scan, &from, &to)) {
        status =
            encode_prefixed(enc, text + from, to - from, first && (from == 0));
    }
    return status;
}

/* ---- added tokens ---- */

/* Converts marked bytes to quotes. */
static bt_status_t make_quotes(bt_quotes_t *quotes, const uint8_t *marks,
                               size_t bytes)
{
    bt_status_t status = BT_OK;
    size_t at = 0;

    quotes->n = 0;
    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *const found = memchr(marks + at, 1, bytes - at);
        const size_t begin = (found == NULL) ? bytes : (size_t)(found - marks);

        at = begin;
        while ((at < bytes) && (marks[at] == 1)) {
            at++;
        }
        status = bt_quotes_add(quotes, begin, at);
    }
    return status;
}

/* Encodes normalized text: tokens matched only there, and the text between. */
static bt_status_t encode_normal(bt_encoder_t *enc, const uint8_t *text,
                                 size_t bytes, const uint8_t *marks,
                                 bool with_control, bool first)
{
    const bt_tokenizer_t *const tok = enc->tok;
    bt_special_scan_t scan;
    bt_special_match_t match;
    bt_status_t status = BT_OK;
    size_t done = 0;

    if (tok->special_normal.n_nodes <= 1) {
        return encode_pieces(enc, text, bytes, first);
    }
    if (marks != NULL) {
        status = make_quotes(&enc->quotes, marks, bytes);
    }
    bt_special_start(&scan, text, bytes, with_control,
                     (marks == NULL) ? NULL : &enc->quotes);
    while ((status == BT_OK) &&
           bt_special_next(&tok->special_normal, &scan, &match)) {
        if (done < match.begin) {
            status = encode_pieces(enc, text + done, match.begin - done,
                                   first && (done == 0));
        }
        /* No second BOS. */
        if ((status == BT_OK) &&
            !(first && (match.begin == 0) && enc->bos_is_last &&
              (match.id == tok->bos))) {
            status = bt_encode_push(enc, match.id);
        }
        enc->bos_is_last = false;
        done = match.end;
    }
    return (status == BT_OK) ? encode_pieces(enc, text + done, bytes - done,
                                             first && (done == 0))
                             : status;
}

/* Encodes the text between two tokens that are matched as spelled: text[from …
 * to - 1]. */
static bt_status_t encode_text(bt_encoder_t *enc, const uint8_t *text,
                               size_t from, size_t to, bool with_control)
{
    const uint8_t *marks = (enc->marks == NULL) ? NULL : enc->marks + from;
    size_t bytes = to - from;
    bt_status_t status;

    if (bytes == 0) {
        return BT_OK;
    }
    status = bt_normalize(&enc->tok->normal, &enc->normal, text + from, bytes,
                          &text, &bytes, &marks);
    return (status == BT_OK)
               ? encode_normal(enc, text, bytes, marks, with_control, from == 0)
               : status;
}

static bt_status_t encode(bt_encoder_t *enc, const uint8_t *text, size_t bytes,
                          unsigned flags, const bt_quotes_t *quotes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bool with_control = (flags & BT_TOK_PARSE_SPECIAL) != 0;
    const bool add = (flags & BT_TOK_ADD_BOS) != 0;
    bt_special_scan_t scan;
    bt_special_match_t match;
    bt_status_t status = BT_OK;
    size_t done = 0;
    bool any;

    bt_special_start(&scan, text, bytes, with_control, quotes);
    any = bt_special_next(&tok->special, &scan, &match);
    if (add && tok->add_bos &&
        !(any && (match.begin == 0) && (match.id == tok->bos))) {
        status = bt_encode_push(enc, tok->bos);
        enc->bos_is_last = true;
    }
    while ((status == BT_OK) && any) {
        if (done < match.begin) {
            status = encode_text(enc, text, done, match.begin, with_control);
        }
        if (status == BT_OK) {
            status = bt_encode_push(enc, match.id);
        }
        done = match.end;
        any = bt_special_next(&tok->special, &scan, &match);
    }
    if (status == BT_OK) {
        status = encode_text(enc, text, done, bytes, with_control);
    }
    if ((status == BT_OK) && add && tok->add_eos) {
        status = bt_encode_push(enc, tok->eos);
    }
    return status;
}

/* ---- calls ---- */

/* Converts quotes to marks, which pass through the normalizers. */
static bt_status_t mark_quoted(const bt_quotes_t *quotes, size_t bytes,
                               uint8_t **marks_p)
{
    uint8_t *const marks = bt_calloc((bytes == 0) ? 1 : bytes, 1);

    if (marks == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < quotes->n; i++) {
        const bt_quote_t *const quote = &quotes->list[i];
        const size_t end = (quote->end < bytes) ? quote->end : bytes;

        if (quote->begin < end) {
            memset(marks + quote->begin, 1, end - quote->begin);
        }
    }
    *marks_p = marks;
    return BT_OK;
}

static void fini(bt_encoder_t *enc)
{
    bt_merge_fini(&enc->work);
    bt_normal_work_fini(&enc->normal);
    bt_quotes_fini(&enc->quotes);
    bt_free(enc->prefixed.bytes);
    bt_free(enc->view);
    bt_free(enc->paths);
}

static bt_status_t tokenize(const bt_tokenizer_t *tok, const char *text,
                            size_t bytes, unsigned flags,
                            const bt_quotes_t *quotes, size_t max_tokens,
                            bt_token_vec_t *out)
{
    const size_t n_before = out->n;
    bt_encoder_t enc = {.tok = tok, .out = out, .max_tokens = max_tokens};
    uint8_t *marks = NULL;
    bt_status_t status = BT_OK;

    if (bytes > MAX_TEXT_BYTES) {
        return BT_ERR_TOO_LARGE;
    }
    if (!bt_utf8_valid((const uint8_t *)text, bytes)) {
        return BT_ERR_INVALID_PARAM;
    }
    if ((quotes != NULL) && (tok->special_normal.n_nodes > 1)) {
        status = mark_quoted(quotes, bytes, &marks);
        enc.marks = marks;
    }
    if (status != BT_OK) {
        return status;
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
    fini(&enc);
    bt_free(marks);
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
    return tokenize(tok, text, bytes, BT_TOK_PARSE_SPECIAL, quotes, max_tokens,
                    out);
}
