/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/tokenizer/merge.h"
#include "common/tokenizer/tokenizer_priv.h"
#include "common/tokenizer/unicode.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)
#define FIRST_IDS      64u

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

/* The symbols of a word; bytes without a token are left out, as by the
 * reference. @param [out] syms  bytes of them have room. @return how many */
static size_t bytes_to_symbols(const bt_tokenizer_t *tok, const uint8_t *word,
                               size_t bytes, uint32_t *syms)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) {
        syms[n] = tok->byte_ids[word[i]];
        n += (syms[n] != BT_TOKEN_NONE);
    }
    return n;
}

/* @param [out] ids_p  The tokens, until the next word. */
static bt_status_t merge_word(encoder_t *enc, const uint8_t *word, size_t bytes,
                              const uint32_t **ids_p, size_t *n_p)
{
    const bt_tokenizer_t *tok = enc->tok;
    size_t n = 0;
    bt_status_t status;

    if (bytes <= BT_MERGE_SHORT) {
        n = bytes_to_symbols(tok, word, bytes, enc->syms);
        *n_p = bt_merge_short(&tok->pairs, enc->syms, n);
        *ids_p = enc->syms;
        return BT_OK;
    }
    for (size_t i = 0; i < bytes; i++) {
        n += (tok->byte_ids[word[i]] != BT_TOKEN_NONE);
    }
    if (too_many(enc, n)) {
        return BT_ERR_TOO_LARGE;
    }
    status = bt_merge_reserve(&enc->work, bytes);
    if (status != BT_OK) {
        return status;
    }
    n = bytes_to_symbols(tok, word, bytes, enc->work.syms);
    *ids_p = enc->work.syms;
    return bt_merge(&enc->work, &tok->pairs, n, n_p);
}

/* A word that the table does not know. */
static bt_status_t bpe_rare_word(encoder_t *enc, const uint8_t *word,
                                 size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bool cached = (enc->cache != NULL) && (bytes <= BT_WORD_CACHE_BYTES);
    const uint32_t *ids = NULL;
    size_t n = 0;
    uint32_t id;
    bt_status_t status;

    if (cached) {
        const bt_word_entry_t *entry =
            bt_word_cache_get(enc->cache, word, bytes);

        if (entry != NULL) {
            enc->n_hits++;
            return push_all(enc, entry->ids, entry->n);
        }
    }
    if ((bytes > BT_WORD_TABLE_BYTES) && (bytes <= tok->max_token_bytes) &&
        bt_text_table_get(&tok->texts, word, bytes, &id) && tok->whole[id]) {
        enc->n_table++;
        return push(enc, id);
    }
    enc->n_merged++;
    status = merge_word(enc, word, bytes, &ids, &n);
    if (status != BT_OK) {
        return status;
    }
    if (cached && (n <= BT_WORD_CACHE_IDS)) {
        bt_word_cache_put(enc->cache, word, bytes, ids, n);
    }
    return push_all(enc, ids, n);
}

/* A word so near the end that less than BT_WORD_SLACK bytes can be read. */
static bt_status_t bpe_last_words(encoder_t *enc, const uint8_t *word,
                                  size_t bytes)
{
    uint8_t buf[BT_WORD_SLACK] = {0};
    uint32_t id = UINT32_MAX;

    memcpy(buf, word, bytes);
    if (bytes <= BT_WORD_TABLE_BYTES) {
        id = bt_word_table_get(&enc->tok->words, buf, bytes);
    }
    if (id != UINT32_MAX) {
        enc->n_table++;
        return push(enc, id);
    }
    return bpe_rare_word(enc, buf, bytes);
}

static bt_status_t bpe_text(encoder_t *enc, const uint8_t *text, size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *word = text + at;
        const size_t n = bt_pretok_next(tok->pretok, word, bytes - at);
        uint32_t id = UINT32_MAX;

        if (bytes - at < BT_WORD_SLACK) {
            status = bpe_last_words(enc, word, n);
        } else {
            if (n <= BT_WORD_TABLE_BYTES) {
                id = bt_word_table_get(&tok->words, word, n);
            }
            if (id != UINT32_MAX) {
                enc->n_table++;
                status = push(enc, id);
            } else {
                status = bpe_rare_word(enc, word, n);
            }
        }
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

static bt_status_t push_pieces(encoder_t *enc, size_t n)
{
    bt_status_t status = BT_OK;
    bool in_unknown = false;

    for (size_t i = 0; (status == BT_OK) && (i < n); i++) {
        const uint32_t sym = enc->work.syms[i];

        if ((sym & BT_TOK_BARE_CHAR) != 0) {
            status = push_bare_char(enc, sym & ~BT_TOK_BARE_CHAR, &in_unknown);
        } else {
            in_unknown = false;
            status = push(enc, sym);
        }
    }
    return status;
}

/* SentencePiece has no words: the whole text is merged at once. Pieces are
 * kept with plain spaces for U+2581, so here it becomes a space too. */
static bt_status_t spm_text(encoder_t *enc, const uint8_t *text, size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    const uint8_t space = ' ';
    size_t n_chars = tok->add_space_prefix ? 1 : 0;
    size_t n = 0;
    size_t at = 0;
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
    status = bt_merge_reserve(&enc->work, n_chars);
    if (status != BT_OK) {
        return status;
    }
    if (tok->add_space_prefix) {
        enc->work.syms[n++] = bt_tok_char_symbol(tok, &space, 1, ' ');
    }
    while (at < bytes) {
        uint32_t cp;
        const unsigned len = bt_utf8_decode(text + at, &cp);

        enc->work.syms[n++] = (cp == 0x2581)
                                  ? bt_tok_char_symbol(tok, &space, 1, ' ')
                                  : bt_tok_char_symbol(tok, text + at, len, cp);
        at += len;
    }
    status = bt_merge(&enc->work, &tok->pairs, n, &n);
    return (status == BT_OK) ? push_pieces(enc, n) : status;
}

static bt_status_t encode(encoder_t *enc, const uint8_t *text, size_t bytes,
                          unsigned flags)
{
    const bt_tokenizer_t *tok = enc->tok;
    const bool with_control = (flags & BT_TOK_PARSE_SPECIAL) != 0;
    const bool add = (flags & BT_TOK_ADD_BOS) != 0;
    bt_special_match_t match =
        bt_special_find(&tok->special, text, bytes, with_control);
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
        match = bt_special_find(&tok->special, text, bytes, with_control);
    }
    if ((status == BT_OK) && add && tok->add_eos) {
        status = push(enc, tok->eos);
    }
    return status;
}

bt_status_t bt_tokenize(const bt_tokenizer_t *tok, const char *text,
                        size_t bytes, unsigned flags, size_t max_tokens,
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
    status = encode(&enc, (const uint8_t *)text, bytes, flags);
    if (enc.cache != NULL) {
        enc.cache->n_table += enc.n_table;
        enc.cache->n_hits += enc.n_hits;
        enc.cache->n_merged += enc.n_merged;
        bt_word_pool_give(tok->pool, enc.cache);
    }
    bt_merge_fini(&enc.work);
    if (status != BT_OK) {
        out->n = n_before;
    }
    return status;
}
