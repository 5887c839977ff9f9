/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes texts whose tokens are texts: merged from characters, or chosen by
 * Unigram. */
#include "common/base/task.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/unicode.h"

/* True when each byte of a character has a token. */
static bool has_bytes(const bt_tokenizer_t *tok, const uint8_t *bytes,
                      unsigned n)
{
    bool have_all = true;

    for (unsigned i = 0; i < n; i++) {
        have_all = have_all && (tok->byte_ids[bytes[i]] != BT_TOKEN_NONE);
    }
    return have_all;
}

bt_status_t bt_encode_bare_char(bt_encoder_t *enc, uint32_t cp)
{
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = BT_OK;
    uint8_t bytes[4];
    const unsigned n = bt_utf8_encode(cp, bytes);
    const bool have_all = has_bytes(tok, bytes, n);

    for (unsigned i = 0; have_all && (status == BT_OK) && (i < n); i++) {
        status = bt_encode_push(enc, tok->byte_ids[bytes[i]]);
    }
    if (!have_all && (tok->unk != BT_TOKEN_NONE) &&
        !(enc->in_unknown && tok->fuses)) {
        status = bt_encode_push(enc, tok->unk);
    }
    enc->in_unknown = !have_all;
    return status;
}

/* Merges the n symbols of a part of the text and appends the tokens. */
static bt_status_t merge_part(bt_encoder_t *enc, size_t n)
{
    bt_status_t status = bt_merge(&enc->work, &enc->tok->pairs, n, &n);

    for (size_t i = 0; (status == BT_OK) && (i < n); i++) {
        const uint32_t sym = enc->work.syms[i];

        if ((sym & BT_TOK_BARE_CHAR) != 0) {
            status = bt_encode_bare_char(enc, sym & ~BT_TOK_BARE_CHAR);
        } else {
            enc->in_unknown = false;
            status = bt_encode_push(enc, sym);
        }
    }
    return status;
}

/* SentencePiece has no words: it merges the whole text at once. Here the text
 * is split where no piece crosses, mostly before spaces. Pieces are stored with
 * plain spaces for U+2581, so it becomes a space here, too. */
static bt_status_t merge_text(bt_encoder_t *enc, const uint8_t *text,
                              size_t bytes, bool prefixed)
{
    static const uint8_t space[] = " ";
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = bt_merge_reserve(&enc->work, 1);
    uint8_t before = ' ';
    unsigned steps = 0;
    size_t n = 0;
    size_t at = 0;

    if ((status == BT_OK) && prefixed) {
        enc->work.syms[n++] = bt_tok_char_symbol(tok, space, 1, ' ');
    }
    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *p = text + at;
        uint32_t symbol;
        uint32_t cp;
        unsigned len = bt_utf8_decode(p, &cp);

        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        at += len;
        if (tok->marks_spaces && (cp == 0x2581)) {
            p = space;
            len = 1;
            cp = ' ';
        }
        symbol = bt_tok_char_symbol(tok, p, len, cp);
        if (((symbol & BT_TOK_BARE_CHAR) != 0) && (tok->unk == BT_TOKEN_NONE) &&
            !has_bytes(tok, p, len)) {
            continue; /* gives nothing: what is around it are neighbours */
        }
        if ((n > 0) && !bt_joins_get(tok->joins, before, p[0])) {
            status = merge_part(enc, n);
            n = 0;
        }
        if (status == BT_OK) {
            status = bt_merge_reserve(&enc->work, n + 1);
        }
        if (status == BT_OK) {
            enc->work.syms[n++] = symbol;
            before = p[len - 1];
        }
    }
    return (status == BT_OK) ? merge_part(enc, n) : status;
}

/* With ignore_merges a piece that is a token as a whole is that token. */
static bool whole_token(const bt_tokenizer_t *tok, const uint8_t *text,
                        size_t bytes, uint32_t *id_p)
{
    uint8_t plain[BT_TOK_MAX_TOKEN_BYTES];

    return tok->ignore_merges && (bytes <= sizeof(plain)) &&
           bt_text_table_get(&tok->texts, plain,
                             bt_tok_plain_text(tok, text, bytes, plain), id_p);
}

static bt_status_t piece_text(bt_encoder_t *enc, const uint8_t *text,
                              size_t bytes, bool prefixed)
{
    size_t n_chars = prefixed ? 1 : 0;
    uint32_t id;

    enc->in_unknown = false;
    if (!prefixed && whole_token(enc->tok, text, bytes, &id)) {
        return bt_encode_push(enc, id);
    }
    for (size_t i = 0; i < bytes; i++) {
        n_chars += ((text[i] & 0xC0) != 0x80);
    }
    /* Any number of unknown characters in a row is one token. */
    if (enc->tok->has_all_bytes && bt_encode_too_many(enc, n_chars)) {
        return BT_ERR_TOO_LARGE;
    }
    return (enc->tok->model == BT_TOK_UNIGRAM)
               ? bt_encode_unigram(enc, text, bytes, prefixed)
               : merge_text(enc, text, bytes, prefixed);
}

bt_status_t bt_encode_pieces(bt_encoder_t *enc, const uint8_t *text,
                             size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    bool prefixed = tok->add_space_prefix;
    unsigned steps = 0;
    bt_splits_scan_t scan;
    bt_status_t status = BT_OK;
    size_t from;
    size_t to;

    if (bytes == 0) {
        return BT_OK;
    }
    if (tok->splits == NULL) {
        return piece_text(enc, text, bytes, prefixed);
    }
    bt_splits_start(&scan, tok->splits, text, bytes);
    while ((status == BT_OK) && bt_splits_next(&scan, &from, &to)) {
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        status = piece_text(enc, text + from, to - from, prefixed);
        prefixed = false;
    }
    return status;
}
