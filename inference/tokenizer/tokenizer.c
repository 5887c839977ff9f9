/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/tokenizer_priv.h"

/* What can only be said once everything is loaded. */
static bt_status_t check_whole(bt_tokenizer_t *tok, char *why, size_t why_bytes)
{
    bool all_bytes = true;

    if ((tok->add_bos && (tok->bos == BT_TOKEN_NONE)) ||
        (tok->add_eos && (tok->eos == BT_TOKEN_NONE))) {
        snprintf(why, why_bytes,
                 "the tokenizer is to add a %s token that the file does not "
                 "name",
                 (tok->add_bos && (tok->bos == BT_TOKEN_NONE)) ? "BOS" : "EOS");
        return BT_ERR_BAD_FILE;
    }
    for (size_t i = 0; i < 256; i++) {
        all_bytes = all_bytes && (tok->byte_ids[i] != BT_TOKEN_NONE);
    }
    tok->has_all_bytes = all_bytes;
    /* By merges such a character gives nothing, as by the library. */
    if (tok->is_spm && (tok->model != BT_TOK_BY_MERGES) && !all_bytes &&
        (tok->unk == BT_TOKEN_NONE)) {
        snprintf(why, why_bytes,
                 "the vocabulary has neither all byte tokens "
                 "nor an unknown token");
        return BT_ERR_BAD_FILE;
    }
    return BT_OK;
}

static bt_status_t load_all(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                            char *why, size_t why_bytes)
{
    bt_status_t status = bt_tok_configure(tok, gguf, why, why_bytes);

    if (status != BT_OK) {
        return status;
    }
    status = bt_tok_load_vocab(tok, gguf, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    status = bt_tok_load_added(tok, gguf, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    switch (tok->model) {
    case BT_TOK_BY_MERGES:
        status = bt_tok_load_merges(tok, gguf, why, why_bytes);
        break;
    case BT_TOK_BY_SCORES:
        status = bt_tok_load_scores(tok, gguf, why, why_bytes);
        break;
    case BT_TOK_UNIGRAM:
        status = bt_tok_load_unigram(tok, gguf, why, why_bytes);
        break;
    }
    if (status != BT_OK) {
        return status;
    }
    status = check_whole(tok, why, why_bytes);
    return (status == BT_OK) ? bt_tok_index_words(tok) : status;
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
    status = load_all(tok, gguf, why, why_bytes);
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
    if (begin == end) {
        return BT_OK;
    }
    if (quotes->n == quotes->cap) {
        const size_t cap = (quotes->cap == 0) ? 16 : 2 * quotes->cap;
        bt_quote_t *list =
            bt_realloc_array(quotes->list, cap, sizeof(*quotes->list));

        if (list == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        quotes->list = list;
        quotes->cap = cap;
    }
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
