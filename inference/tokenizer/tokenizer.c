/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/tokenizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

bt_status_t bt_tok_fail(const bt_tok_load_t *load, bt_status_t status,
                        const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(load->why, load->why_bytes, format, args);
    va_end(args);
    return status;
}

/* Checks what is known only once everything is loaded. */
static bt_status_t check_whole(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    bool all_bytes = true;

    if ((tok->add_bos && (tok->bos == BT_TOKEN_NONE)) ||
        (tok->add_eos && (tok->eos == BT_TOKEN_NONE))) {
        return bt_tok_fail(
            load, BT_ERR_BAD_FILE,
            "the tokenizer is to add a %s token that the file does not "
            "name",
            (tok->add_bos && (tok->bos == BT_TOKEN_NONE)) ? "BOS" : "EOS");
    }
    for (size_t i = 0; i < 256; i++) {
        all_bytes = all_bytes && (tok->byte_ids[i] != BT_TOKEN_NONE);
    }
    tok->has_all_bytes = all_bytes;
    /* By merges such a character gives nothing, as by the library. */
    if (tok->is_spm && (tok->model != BT_TOK_BY_MERGES) && !all_bytes &&
        (tok->unk == BT_TOKEN_NONE)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "the vocabulary has neither all byte tokens "
                           "nor an unknown token");
    }
    return BT_OK;
}

static bt_status_t load_model(const bt_tok_load_t *load)
{
    switch (load->tok->model) {
    case BT_TOK_BY_SCORES:
        return bt_tok_load_scores(load);
    case BT_TOK_UNIGRAM:
        return bt_tok_load_unigram(load);
    default:
        return bt_tok_load_merges(load);
    }
}

static bt_status_t load_all(const bt_tok_load_t *load)
{
    static bt_status_t (*const steps[])(const bt_tok_load_t *load) = {
        bt_tok_configure, bt_tok_load_vocab, bt_tok_load_added,
        load_model,       check_whole,
    };
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(steps)); i++) {
        status = steps[i](load);
    }
    return (status == BT_OK) ? bt_tok_index_words(load->tok) : status;
}

bt_status_t bt_tokenizer_load(const bt_gguf_t *gguf, char *why,
                              size_t why_bytes, bt_tokenizer_t **tok_p)
{
    bt_tokenizer_t *tok = bt_calloc(1, sizeof(*tok));
    bt_status_t status = BT_ERR_NO_MEMORY;

    snprintf(why, why_bytes, "out of memory for the tokenizer");
    if (tok == NULL) {
        goto err;
    }
    tok->bos = tok->eos = tok->unk = BT_TOKEN_NONE;
    status = load_all(&(bt_tok_load_t){tok, gguf, why, why_bytes});
    if (status != BT_OK) {
        goto err_tok;
    }
    snprintf(why, why_bytes, "%s", "");
    *tok_p = tok;
    return BT_OK;

err_tok:
    bt_tokenizer_destroy(tok);
err:
    return status;
}

void bt_tokenizer_destroy(bt_tokenizer_t *tok)
{
    if (tok == NULL) {
        return;
    }
    bt_tok_free_words(tok);
    bt_trie_fini(&tok->trie);
    bt_free(tok->scores);
    bt_splits_destroy(tok->splits);
    bt_splits_destroy(tok->outer);
    bt_normal_fini(&tok->normal);
    bt_special_fini(&tok->special);
    bt_special_fini(&tok->special_normal);
    bt_pair_table_fini(&tok->pairs);
    bt_text_table_fini(&tok->texts);
    bt_free(tok->types);
    bt_free(tok->arena.offsets);
    bt_free(tok->arena.bytes);
    bt_free(tok);
}

uint32_t bt_tokenizer_n_vocab(const bt_tokenizer_t *tok)
{
    return tok->n_vocab;
}

uint32_t bt_tokenizer_end_ids(const bt_tokenizer_t *tok, uint32_t *ids,
                              uint32_t cap)
{
    const uint32_t n = (tok->n_end_ids < cap) ? tok->n_end_ids : cap;

    memcpy(ids, tok->end_ids, n * sizeof(*ids));
    return n;
}

/* ---- quotes ---- */

bt_status_t bt_quotes_add(bt_quotes_t *quotes, size_t begin, size_t end)
{
    bt_quote_t *list;

    if (begin == end) {
        return BT_OK;
    }
    list = bt_array_reserve(quotes->list, &quotes->cap, quotes->n + 1,
                            sizeof(*list));
    if (list == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    quotes->list = list;
    quotes->list[quotes->n++] = (bt_quote_t){begin, end};
    return BT_OK;
}

void bt_quotes_cut(bt_quotes_t *quotes, size_t end)
{
    while ((quotes->n > 0) && (quotes->list[quotes->n - 1].begin >= end)) {
        quotes->n--;
    }
    if ((quotes->n > 0) && (quotes->list[quotes->n - 1].end > end)) {
        quotes->list[quotes->n - 1].end = end;
    }
}

void bt_quotes_fini(bt_quotes_t *quotes)
{
    bt_free(quotes->list);
    *quotes = (bt_quotes_t){0};
}

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

void bt_detok_init(bt_detok_t *detok, const bt_tokenizer_t *tok)
{
    memset(detok, 0, sizeof(*detok));
    detok->tok = tok;
    detok->at_start = tok->first_space != BT_TOK_SPACE_KEPT;
}

/* With bytes pending: take one more, and emit what is decided by it. */
static void push_byte(bt_detok_t *detok, uint8_t byte, bt_strbuf_t *out)
{
    BT_ASSERT(detok->n_pending < sizeof(detok->pending));
    detok->pending[detok->n_pending++] = byte;
    while (detok->n_pending > 0) {
        const int len = bt_utf8_scan(detok->pending, detok->n_pending);
        uint8_t used;

        if (len == 0) {
            return;
        }
        used = (uint8_t)((len > 0) ? len : -len);
        if ((len < 0) && detok->tok->is_spm) {
            used = 1; /* as SentencePiece and the library's ByteFallback */
        }
        if (len > 0) {
            bt_strbuf_append(out, detok->pending, used);
        } else {
            bt_strbuf_puts(out, replacement);
        }
        detok->n_pending = (uint8_t)(detok->n_pending - used);
        memmove(detok->pending, detok->pending + used, detok->n_pending);
    }
}

static void push_bytes(bt_detok_t *detok, const uint8_t *bytes, size_t n,
                       bt_strbuf_t *out)
{
    size_t whole = 0; /* characters not yet emitted: bytes[from .. whole-1] */
    size_t from = 0;

    while (whole < n) {
        int len = 0;

        if (detok->n_pending == 0) {
            len = bt_utf8_scan(bytes + whole, n - whole);
        }
        if (len > 0) {
            whole += (size_t)len;
            continue;
        }
        bt_strbuf_append(out, bytes + from, whole - from);
        push_byte(detok, bytes[whole], out);
        whole++;
        from = whole;
    }
    bt_strbuf_append(out, bytes + from, whole - from);
}

static void push_all_but_spaces(bt_detok_t *detok, const uint8_t *bytes,
                                size_t n, bt_strbuf_t *out)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != ' ') {
            push_bytes(detok, bytes + i, 1, out);
        }
    }
}

const uint8_t *bt_token_bytes(const bt_tokenizer_t *tok, uint32_t id,
                              size_t *n_p, bool *is_special_p)
{
    *n_p = 0;
    *is_special_p = false;
    if (id >= tok->arena.n) {
        return NULL;
    }
    *is_special_p = bt_token_is_special(tok->types[id]);
    return bt_text_arena_get(&tok->arena, id, n_p);
}

uint32_t bt_tokenizer_bos(const bt_tokenizer_t *tok)
{
    return tok->bos;
}

/* ---- sets of special tokens ---- */

static bool is_space(uint8_t c)
{
    return (c == ' ') || ((c >= '\t') && (c <= '\r'));
}

static bool is_one_of(const uint8_t *bytes, size_t n, const char *const *texts,
                      uint32_t n_texts)
{
    while ((n > 0) && is_space(bytes[n - 1])) {
        n--;
    }
    while ((n > 0) && is_space(bytes[0])) {
        bytes++;
        n--;
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        if ((n == strlen(texts[i])) && (memcmp(bytes, texts[i], n) == 0)) {
            return n > 0;
        }
    }
    return false;
}

bt_status_t bt_tokenizer_find_special(const bt_tokenizer_t *tok,
                                      const char *const *texts,
                                      uint32_t n_texts, bt_token_set_t *set_p)
{
    bt_token_set_t set = {0};
    size_t cap = 0;
    uint32_t *ids;

    for (uint32_t id = 0; id < tok->arena.n; id++) {
        bool is_special = false;
        size_t n = 0;
        const uint8_t *bytes = bt_token_bytes(tok, id, &n, &is_special);

        if (!is_special || !is_one_of(bytes, n, texts, n_texts)) {
            continue;
        }
        ids = bt_array_reserve(set.ids, &cap, set.n + 1, sizeof(*ids));
        if (ids == NULL) {
            bt_token_set_fini(&set);
            return BT_ERR_NO_MEMORY;
        }
        set.ids = ids;
        set.ids[set.n++] = id;
    }
    *set_p = set;
    return BT_OK;
}

void bt_token_set_fini(bt_token_set_t *set)
{
    bt_free(set->ids);
    *set = (bt_token_set_t){0};
}

/* Searches one by one: few tokens are shown. */
static bool has_id(const bt_token_set_t *set, uint32_t id)
{
    for (uint32_t i = 0; (set != NULL) && (i < set->n); i++) {
        if (set->ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* ---- detokenizing ---- */

void bt_detok_push(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out)
{
    const bt_tokenizer_t *tok = detok->tok;
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes = bt_token_bytes(tok, id, &n, &is_special);

    if ((bytes == NULL) ||
        (is_special && !detok->shows_special && !has_id(detok->shown, id))) {
        return;
    }
    if (is_special) { /* no part of a character */
        bt_detok_finish(detok, out);
    }
    if (detok->at_start && (n > 0)) {
        detok->at_start = false;
        if (tok->first_space == BT_TOK_SPACE_ALL_DROPPED) {
            push_all_but_spaces(detok, bytes, n, out);
            return;
        }
        if (bytes[0] == ' ') {
            bytes++;
            n--;
        }
    }
    push_bytes(detok, bytes, n, out);
}

void bt_detok_finish(bt_detok_t *detok, bt_strbuf_t *out)
{
    /* The pending bytes begin one character, so one U+FFFD stands for all of
     * them, or one for each byte token. */
    const int n = detok->tok->is_spm ? detok->n_pending : detok->n_pending > 0;

    for (int i = 0; i < n; i++) {
        bt_strbuf_puts(out, replacement);
    }
    detok->n_pending = 0;
}

/* The byte alphabet of GPT-2: bytes that print stand for themselves (as the
 * Latin-1 character), the others follow from U+0100 in their order:
 * 0 … 32, 127 … 160, 173. */
static int byte_of(uint32_t cp)
{
    if (((cp >= 33) && (cp <= 126)) || ((cp >= 161) && (cp <= 172)) ||
        ((cp >= 174) && (cp <= 255))) {
        return (int)cp;
    }
    if ((cp >= 256) && (cp <= 288)) {
        return (int)cp - 256;
    }
    if ((cp >= 289) && (cp <= 322)) {
        return (int)cp - 289 + 127;
    }
    return (cp == 323) ? 173 : -1;
}

uint32_t bt_bytelevel_char(uint8_t byte)
{
    if (byte <= 32) {
        return 256u + byte;
    }
    if ((byte >= 127) && (byte <= 160)) {
        return 289u + byte - 127u;
    }
    return (byte == 173) ? 323u : byte;
}

size_t bt_bytelevel_decode(const uint8_t *text, size_t bytes, uint8_t *out)
{
    size_t n = 0;
    size_t at = 0;

    while (at < bytes) {
        uint32_t cp = 0;
        const int len = bt_utf8_scan(text + at, bytes - at);
        int byte;

        if (len > 0) {
            bt_utf8_decode(text + at, &cp);
        }
        byte = (len > 0) ? byte_of(cp) : -1;
        if (byte < 0) {
            memcpy(out, text, bytes);
            return bytes;
        }
        out[n++] = (uint8_t)byte;
        at += (size_t)len;
    }
    return n;
}
