/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/tokenizer/merge.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)
#define FIRST_IDS      64u

/* Words up to here are looked for in the cache before they are cut. */
#define SHORT_WORD_BYTES 15u

/* One call of bt_tokenize(). */
typedef struct encoder {
    const bt_tokenizer_t *tok;
    bt_token_vec_t *out;
    size_t max_tokens;
    bt_word_cache_t *cache; /* ours for this call, or NULL */
    uint64_t n_table;       /* as in it */
    uint64_t n_hits;
    uint64_t n_merged;
    bt_merge_work_t work;
    uint32_t syms[BT_MERGE_SHORT];
} encoder_t;

/* Room for n more ids, if so many are allowed. */
static bt_status_t make_room(encoder_t *enc, size_t n)
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

static bt_status_t push_all(encoder_t *enc, const uint32_t *ids, size_t n)
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

static inline bt_status_t push(encoder_t *enc, uint32_t id)
{
    bt_token_vec_t *out = enc->out;

    if ((out->n < out->cap) && (out->n < enc->max_tokens)) {
        out->ids[out->n++] = id;
        return BT_OK;
    }
    return push_all(enc, &id, 1);
}

/* Symbols beyond this cannot end up as few enough tokens, whatever merges: a
 * word that is far too long is refused before memory and time go into it. */
static bool too_many(const encoder_t *enc, size_t n_symbols)
{
    const size_t room =
        (enc->max_tokens > enc->out->n) ? enc->max_tokens - enc->out->n : 0;

    return n_symbols / enc->tok->max_token_bytes > room;
}

/* @param [out] ids_p  The tokens, until the next word. */
static bt_status_t merge_word(encoder_t *enc, const uint8_t *word, size_t bytes,
                              const uint32_t **ids_p, size_t *n_p)
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
static bt_status_t bpe_unknown(encoder_t *enc, const uint8_t *p, size_t bytes)
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
    return push_all(enc, ids, n);
}

/* A word, or a part of one, that is merged by itself.
 * @param [in] readable  Bytes that can be read at p. */
static bt_status_t bpe_part(encoder_t *enc, const uint8_t *p, size_t bytes,
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
        return push(enc, id);
    }
    if ((enc->cache != NULL) && (bytes <= BT_WORD_CACHE_BYTES)) {
        const bt_word_entry_t *entry = bt_word_cache_get(enc->cache, p, bytes);

        if (entry != NULL) {
            enc->n_hits++;
            return push_all(enc, entry->ids, entry->n);
        }
    }
    return bpe_unknown(enc, p, bytes);
}

/* A word in parts. What is short may come again and is remembered whole; the
 * parts of long ones may come again in others. */
static bt_status_t bpe_parts(encoder_t *enc, const uint8_t *word, size_t bytes,
                             size_t readable)
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

static bool hopeless(const encoder_t *enc, const uint8_t *word, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        n += (enc->tok->byte_ids[word[i]] != BT_TOKEN_NONE);
    }
    return too_many(enc, n);
}

/* A word that the table does not know.
 * @param [in] readable  At least BT_WORD_SLACK. */
static bt_status_t bpe_rare_word(encoder_t *enc, const uint8_t *word,
                                 size_t bytes, size_t readable)
{
    const bt_tokenizer_t *tok = enc->tok;
    uint32_t id;

    /* First: what the cache holds is what merging gives. */
    if (tok->ignore_merges && (bytes > BT_WORD_TABLE_BYTES) &&
        long_token(tok, word, bytes, &id) && tok->is_word[id]) {
        enc->n_table++;
        return push(enc, id);
    }
    if ((enc->cache != NULL) && (bytes <= SHORT_WORD_BYTES)) {
        const bt_word_entry_t *entry =
            bt_word_cache_get(enc->cache, word, bytes);

        if (entry != NULL) {
            enc->n_hits++;
            return push_all(enc, entry->ids, entry->n);
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

static inline bt_status_t bpe_word(encoder_t *enc, const uint8_t *word,
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
    return push(enc, id);
}

static bt_status_t bpe_text(encoder_t *enc, const uint8_t *text, size_t bytes)
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

/* A character that is no piece: its bytes as byte tokens, or the unknown
 * token, one for a run of such characters. */
static bt_status_t push_bare_char(encoder_t *enc, uint32_t cp, bool *in_unknown)
{
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = BT_OK;
    uint8_t bytes[4];
    const unsigned n = bt_utf8_encode(cp, bytes);
    bool have_all = true;

    for (unsigned i = 0; i < n; i++) {
        have_all = have_all && (tok->byte_ids[bytes[i]] != BT_TOKEN_NONE);
    }
    for (unsigned i = 0; have_all && (status == BT_OK) && (i < n); i++) {
        status = push(enc, tok->byte_ids[bytes[i]]);
    }
    if (!have_all && !*in_unknown) {
        status = push(enc, tok->unk);
    }
    *in_unknown = !have_all;
    return status;
}

/* Merge the n symbols of a part of the text and append what they become. */
static bt_status_t spm_part(encoder_t *enc, size_t n, bool *in_unknown)
{
    bt_status_t status = bt_merge(&enc->work, &enc->tok->pairs, n, &n);

    for (size_t i = 0; (status == BT_OK) && (i < n); i++) {
        const uint32_t sym = enc->work.syms[i];

        if ((sym & BT_TOK_BARE_CHAR) != 0) {
            status = push_bare_char(enc, sym & ~BT_TOK_BARE_CHAR, in_unknown);
        } else {
            *in_unknown = false;
            status = push(enc, sym);
        }
    }
    return status;
}

/* SentencePiece has no words: it merges the whole text at once. Here it is cut
 * where no piece reaches across, mostly before spaces. Pieces are kept with
 * plain spaces for U+2581, so here it becomes a space too. */
static bt_status_t spm_parts(encoder_t *enc, const uint8_t *text, size_t bytes)
{
    static const uint8_t space[] = " ";
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = BT_OK;
    bool in_unknown = false;
    uint8_t before = ' ';
    size_t n = 0;
    size_t at = 0;

    if (tok->add_space_prefix) {
        enc->work.syms[n++] = bt_tok_char_symbol(tok, space, 1, ' ');
    }
    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *p = text + at;
        uint32_t cp;
        unsigned len = bt_utf8_decode(p, &cp);

        at += len;
        if (cp == 0x2581) {
            p = space;
            len = 1;
            cp = ' ';
        }
        if ((n > 0) && !bt_joins_get(tok->joins, before, p[0])) {
            status = spm_part(enc, n, &in_unknown);
            n = 0;
        }
        if (status == BT_OK) {
            status = bt_merge_reserve(&enc->work, n + 1);
        }
        if (status == BT_OK) {
            enc->work.syms[n++] = bt_tok_char_symbol(tok, p, len, cp);
            before = p[len - 1];
        }
    }
    return (status == BT_OK) ? spm_part(enc, n, &in_unknown) : status;
}

static bt_status_t spm_text(encoder_t *enc, const uint8_t *text, size_t bytes)
{
    size_t n_chars = enc->tok->add_space_prefix ? 1 : 0;
    bt_status_t status;

    if (bytes == 0) {
        return BT_OK;
    }
    for (size_t i = 0; i < bytes; i++) {
        n_chars += ((text[i] & 0xC0) != 0x80);
    }
    if (too_many(enc, n_chars)) {
        return BT_ERR_TOO_LARGE;
    }
    status = bt_merge_reserve(&enc->work, 1);
    return (status == BT_OK) ? spm_parts(enc, text, bytes) : status;
}

static bt_status_t encode(encoder_t *enc, const uint8_t *text, size_t bytes,
                          unsigned flags, bt_special_quotes_t *quotes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bool with_control = (flags & BT_TOK_PARSE_SPECIAL) != 0;
    const bool add = (flags & BT_TOK_ADD_BOS) != 0;
    bt_special_match_t match =
        bt_special_find(&tok->special, text, bytes, with_control, quotes);
    const bool has_bos =
        (match.at == 0) && (match.bytes > 0) && (match.id == tok->bos);
    bt_status_t status = BT_OK;

    if (add && tok->add_bos && !has_bos) {
        status = push(enc, tok->bos);
    }
    while ((status == BT_OK) && (bytes > 0)) {
        status = tok->is_spm ? spm_text(enc, text, match.at)
                             : bpe_text(enc, text, match.at);
        if ((status == BT_OK) && (match.bytes > 0)) {
            status = push(enc, match.id);
        }
        text += match.at + match.bytes;
        bytes -= match.at + match.bytes;
        if (quotes != NULL) {
            quotes->base += match.at + match.bytes;
        }
        match =
            bt_special_find(&tok->special, text, bytes, with_control, quotes);
    }
    if ((status == BT_OK) && add && tok->add_eos) {
        status = push(enc, tok->eos);
    }
    return status;
}

static bt_status_t tokenize(const bt_tokenizer_t *tok, const char *text,
                            size_t bytes, unsigned flags,
                            bt_special_quotes_t *quotes, size_t max_tokens,
                            bt_token_vec_t *out)
{
    const size_t n_before = out->n;
    encoder_t enc = {.tok = tok, .out = out, .max_tokens = max_tokens};
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
