/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/tokenizer_priv.h"

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_TYPES  "tokenizer.ggml.token_type"

static bt_status_t read_types(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint64_t n_types = 0;
    const bt_status_t status =
        bt_gguf_array_len(load->gguf, KEY_TYPES, &n_types);

    memset(tok->types, BT_TOKEN_NORMAL, tok->arena.n);
    if (status == BT_ERR_NOT_FOUND) {
        return BT_OK;
    }
    if ((status != BT_OK) || (n_types != tok->arena.n)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s does not fit the %u tokens", KEY_TYPES,
                           tok->arena.n);
    }
    for (uint32_t i = 0; i < tok->arena.n; i++) {
        int64_t type = 0;

        if (bt_gguf_array_i64(load->gguf, KEY_TYPES, i, &type) != BT_OK ||
            (type < BT_TOKEN_NORMAL) || (type > BT_TOKEN_BYTE)) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "%s of token %u is not 1 to 6", KEY_TYPES, i);
        }
        tok->types[i] = (uint8_t)type;
    }
    return BT_OK;
}

/* "<0x0A>" → 10, or -1. */
static int byte_token(const bt_gguf_str_t *text)
{
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    int value = 0;

    if ((text->len != 6) || (memcmp(text->data, "<0x", 3) != 0) ||
        (text->data[5] != '>')) {
        return -1;
    }
    for (int i = 3; i < 5; i++) {
        const char *digit = memchr(digits, text->data[i], sizeof(digits) - 1);

        if (digit == NULL) {
            return -1;
        }
        value = value * 16 + (int)((digit - digits) % 16);
    }
    return value;
}

size_t bt_tok_plain_text(const bt_tokenizer_t *tok, const uint8_t *text,
                         size_t bytes, uint8_t *out)
{
    size_t n = 0;
    size_t at = 0;

    while (at < bytes) {
        if (tok->marks_spaces && (bytes - at >= BT_TOK_MARK_BYTES) &&
            (memcmp(text + at, BT_TOK_MARK, BT_TOK_MARK_BYTES) == 0)) {
            out[n++] = ' ';
            at += BT_TOK_MARK_BYTES;
        } else {
            out[n++] = text[at++];
        }
    }
    return n;
}

/*
 * Decodes the token's text; the result is no longer than the text.
 * @return bytes, or -1 for a byte token that names no byte
 */
static int64_t text_of(const bt_tokenizer_t *tok, uint8_t type,
                       const bt_gguf_str_t *text, uint8_t *out)
{
    if (type == BT_TOKEN_BYTE) {
        const int byte = byte_token(text);

        if (byte < 0) {
            return -1;
        }
        out[0] = (uint8_t)byte;
        return 1;
    }
    if (tok->is_spm && !bt_token_is_special(type)) {
        return (int64_t)bt_tok_plain_text(tok, (const uint8_t *)text->data,
                                          text->len, out);
    }
    if (!tok->is_spm && (type == BT_TOKEN_NORMAL || type == BT_TOKEN_UNUSED)) {
        return (int64_t)bt_bytelevel_decode((const uint8_t *)text->data,
                                            text->len, out);
    }
    memcpy(out, text->data, text->len);
    return (int64_t)text->len;
}

static bt_status_t measure(const bt_tok_load_t *load, uint32_t n,
                           uint64_t *bytes_p)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        bt_gguf_str_t text;

        if (bt_gguf_array_str(load->gguf, KEY_TOKENS, i, &text) != BT_OK) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "%s does not hold strings", KEY_TOKENS);
        }
        if (text.len > BT_TOK_MAX_TOKEN_BYTES) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "token %u has %zu bytes (at most %u)", i,
                               text.len, BT_TOK_MAX_TOKEN_BYTES);
        }
        bytes += text.len;
    }
    if (bytes >= UINT32_MAX) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "the texts of all tokens exceed 4 GiB");
    }
    *bytes_p = bytes;
    return BT_OK;
}

static bt_status_t fill_arena(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint32_t at = 0;

    for (uint32_t i = 0; i < tok->arena.n; i++) {
        bt_gguf_str_t text;
        int64_t n;

        if (bt_gguf_array_str(load->gguf, KEY_TOKENS, i, &text) != BT_OK) {
            return BT_ERR_BAD_FILE;
        }
        n = text_of(tok, tok->types[i], &text, tok->arena.bytes + at);
        if (n < 0) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "byte token %u is not like <0x0A>", i);
        }
        tok->arena.offsets[i] = at;
        at += (uint32_t)n;
    }
    tok->arena.offsets[tok->arena.n] = at;
    return BT_OK;
}

static bt_status_t load_texts(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint64_t n = 0;
    uint64_t n_used = 0;
    uint64_t bytes = 0;
    bt_status_t status = bt_gguf_array_len(load->gguf, KEY_TOKENS, &n);

    if ((status != BT_OK) || (n == 0) || (n > BT_TOK_MAX_VOCAB)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s is not a list of 1 to %u tokens", KEY_TOKENS,
                           BT_TOK_MAX_VOCAB);
    }
    status = measure(load, (uint32_t)n, &bytes);
    if (status != BT_OK) {
        return status;
    }
    status = bt_gguf_n_vocab(load->gguf, &n_used);
    if (status != BT_OK) {
        return status;
    }
    tok->arena.n = (uint32_t)n;
    tok->n_vocab = (uint32_t)n_used;
    tok->arena.offsets = bt_calloc(n + 1, sizeof(*tok->arena.offsets));
    tok->arena.bytes = bt_calloc(bytes + 1, 1);
    tok->types = bt_calloc(n, 1);
    if ((tok->arena.offsets == NULL) || (tok->arena.bytes == NULL) ||
        (tok->types == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    status = read_types(load);
    if (status != BT_OK) {
        return status;
    }
    return fill_arena(load);
}

static bt_status_t read_special_ids(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    const struct {
        const char *key;
        uint32_t *id_p;
        bool ends;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &tok->bos, false},
        {"tokenizer.ggml.unknown_token_id", &tok->unk, false},
        {"tokenizer.ggml.eos_token_id", &tok->eos, true},
        {"tokenizer.ggml.eot_token_id", NULL, true},
        {"tokenizer.ggml.eom_token_id", NULL, true},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        uint32_t id = BT_TOKEN_NONE; /* some files write "none" so, too */
        const bt_status_t status = bt_gguf_get_u32(load->gguf, ids[i].key, &id);

        if ((status != BT_ERR_NOT_FOUND) &&
            ((status != BT_OK) ||
             ((id >= tok->arena.n) && (id != BT_TOKEN_NONE)))) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "%s is not one of the %u tokens", ids[i].key,
                               tok->arena.n);
        }
        if (ids[i].id_p != NULL) {
            *ids[i].id_p = id;
        }
        if (ids[i].ends && (id != BT_TOKEN_NONE)) {
            tok->end_ids[tok->n_end_ids++] = id;
        }
    }
    for (uint32_t i = 0; (tok->unk == BT_TOKEN_NONE) && (i < tok->arena.n);
         i++) {
        if (tok->types[i] == BT_TOKEN_UNKNOWN) {
            tok->unk = i;
        }
    }
    return BT_OK;
}

/* Without token types, only the tokens that the file names are known to be
 * special. */
static void mark_named_tokens(bt_tokenizer_t *tok, const bt_gguf_t *gguf)
{
    uint64_t n_types;

    if (bt_gguf_array_len(gguf, KEY_TYPES, &n_types) == BT_OK) {
        return;
    }
    for (uint32_t i = 0; i < tok->n_end_ids; i++) {
        tok->types[tok->end_ids[i]] = BT_TOKEN_CONTROL;
    }
    if (tok->bos != BT_TOKEN_NONE) {
        tok->types[tok->bos] = BT_TOKEN_CONTROL;
    }
    if (tok->unk != BT_TOKEN_NONE) {
        tok->types[tok->unk] = BT_TOKEN_UNKNOWN;
    }
}

/* Two rounds, so that of equal texts a normal token wins. */
static void index_texts(bt_tokenizer_t *tok)
{
    static const uint8_t rounds[] = {BT_TOKEN_NORMAL, BT_TOKEN_USER_DEFINED};

    tok->max_token_bytes = 1;
    for (size_t r = 0; r < BT_ARRAY_LEN(rounds); r++) {
        for (uint32_t i = 0; i < tok->arena.n; i++) {
            const uint32_t len =
                tok->arena.offsets[i + 1] - tok->arena.offsets[i];

            if ((tok->types[i] != rounds[r]) || (len == 0)) {
                continue;
            }
            bt_text_table_put(&tok->texts, i);
            if (len > tok->max_token_bytes) {
                tok->max_token_bytes = len;
            }
        }
    }
}

static void index_bytes(bt_tokenizer_t *tok)
{
    for (uint32_t b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;

        tok->byte_ids[b] = BT_TOKEN_NONE;
        if (!tok->is_spm &&
            !bt_text_table_get(&tok->texts, &byte, 1, &tok->byte_ids[b])) {
            tok->byte_ids[b] = BT_TOKEN_NONE;
        }
    }
    for (uint32_t i = 0; i < tok->arena.n; i++) {
        const uint8_t byte = tok->arena.bytes[tok->arena.offsets[i]];

        if ((tok->types[i] == BT_TOKEN_BYTE) &&
            (tok->byte_ids[byte] == BT_TOKEN_NONE)) {
            tok->byte_ids[byte] = i;
        }
    }
}

static void index_ascii(bt_tokenizer_t *tok)
{
    for (uint32_t c = 0; c < BT_ARRAY_LEN(tok->ascii_symbols); c++) {
        const uint8_t byte = (uint8_t)c;

        if (!bt_text_table_get(&tok->texts, &byte, 1, &tok->ascii_symbols[c])) {
            tok->ascii_symbols[c] = BT_TOK_BARE_CHAR | c;
        }
    }
}

bt_status_t bt_tok_load_vocab(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_status_t status = load_texts(load);

    if (status != BT_OK) {
        return status;
    }
    status = read_special_ids(load);
    if (status != BT_OK) {
        return status;
    }
    mark_named_tokens(tok, load->gguf);
    status = bt_text_table_init(&tok->texts, &tok->arena);
    if (status != BT_OK) {
        return status;
    }
    index_texts(tok);
    index_bytes(tok);
    index_ascii(tok);
    return BT_OK;
}

#define MAX_CACHE_WORDS 4096u /* 256 KiB: part of a core's own cache */

/* Whether merging the bytes of a token gives that token alone. */
static bt_status_t merges_to_itself(const bt_tokenizer_t *tok,
                                    bt_merge_work_t *work, uint32_t id,
                                    bool *whole_p)
{
    size_t bytes;
    const uint8_t *text = bt_text_arena_get(&tok->arena, id, &bytes);
    size_t n = 0;
    bt_status_t status = bt_merge_reserve(work, bytes);

    if (status != BT_OK) {
        return status;
    }
    n = bt_tok_byte_symbols(tok, text, bytes, work->syms);
    status = bt_merge(work, &tok->pairs, n, &n);
    if (status == BT_OK) {
        *whole_p = (n == 1) && (work->syms[0] == id);
    }
    return status;
}

static bt_status_t find_whole(bt_tokenizer_t *tok, uint64_t *n_short_p)
{
    bt_merge_work_t work = {0};
    bt_status_t status = BT_OK;
    uint64_t n_short = 0;

    for (uint32_t i = 0; (status == BT_OK) && (i < tok->arena.n); i++) {
        size_t bytes;

        (void)bt_text_arena_get(&tok->arena, i, &bytes);
        if ((bytes == 0) || !bt_text_table_finds(&tok->texts, i)) {
            continue; /* a special token, or the double of another */
        }
        status = merges_to_itself(tok, &work, i, &tok->whole[i]);
        tok->is_word[i] = tok->whole[i] || tok->ignore_merges;
        n_short += tok->is_word[i] && (bytes <= BT_WORD_TABLE_BYTES);
    }
    bt_merge_fini(&work);
    *n_short_p = n_short;
    return status;
}

/* A byte without a token is left out, and what stood around it are neighbours
 * then: no cut beside it. */
static void find_joins(const bt_tokenizer_t *tok, bt_joins_t *joins)
{
    for (uint64_t i = 0; i <= tok->pairs.mask; i++) {
        const bt_pair_slot_t *slot = &tok->pairs.slots[i];
        const uint8_t *text = tok->arena.bytes;

        if (slot->rank == BT_NO_RANK) {
            continue;
        }
        for (uint32_t k = tok->arena.offsets[slot->merged] + 1;
             k < tok->arena.offsets[slot->merged + 1]; k++) {
            bt_joins_put(joins, text[k - 1], text[k]);
        }
    }
    for (uint32_t b = 0; !tok->is_spm && (b < 256); b++) {
        for (uint32_t x = 0; (tok->byte_ids[b] == BT_TOKEN_NONE) && (x < 256);
             x++) {
            bt_joins_put(joins, (uint8_t)b, (uint8_t)x);
            bt_joins_put(joins, (uint8_t)x, (uint8_t)b);
        }
    }
}

bt_status_t bt_tok_index_words(bt_tokenizer_t *tok)
{
    uint64_t n_short;
    bt_status_t status;

    bt_tok_free_words(tok);
    tok->joins = bt_calloc(1, sizeof(*tok->joins));
    if (tok->joins == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    find_joins(tok, tok->joins);
    if (tok->is_spm) {
        return BT_OK;
    }
    tok->whole = bt_calloc(tok->arena.n, sizeof(*tok->whole));
    tok->is_word = bt_calloc(tok->arena.n, sizeof(*tok->is_word));
    tok->pool = bt_calloc(1, sizeof(*tok->pool));
    if ((tok->whole == NULL) || (tok->is_word == NULL) || (tok->pool == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    status = find_whole(tok, &n_short);
    if (status == BT_OK) {
        status = bt_word_table_init(&tok->words, n_short);
    }
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < tok->arena.n; i++) {
        size_t bytes;
        const uint8_t *text = bt_text_arena_get(&tok->arena, i, &bytes);

        if (tok->is_word[i] && (bytes <= BT_WORD_TABLE_BYTES)) {
            bt_word_table_put(&tok->words, text, bytes, i);
        }
    }
    return bt_word_pool_init(tok->pool, (tok->arena.n < MAX_CACHE_WORDS)
                                            ? tok->arena.n
                                            : MAX_CACHE_WORDS);
}

void bt_tok_free_words(bt_tokenizer_t *tok)
{
    if (tok->pool != NULL) {
        bt_word_pool_fini(tok->pool);
    }
    bt_free(tok->pool);
    bt_word_table_fini(&tok->words);
    bt_free(tok->whole);
    bt_free(tok->is_word);
    bt_free(tok->joins);
    tok->joins = NULL;
    tok->pool = NULL;
    tok->whole = NULL;
    tok->is_word = NULL;
}
