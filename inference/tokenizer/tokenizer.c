/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/tokenizer/tokenizer_priv.h"

#define KEY_MODEL "tokenizer.ggml.model"
#define KEY_PRE   "tokenizer.ggml.pre"

/* Names that files give to the pre-tokenizers we have. Those of llama-bpe also
 * take a word that is in the vocabulary as it is, and begin with BOS. */
static const struct {
    const char *name;
    bt_pretok_t pretok;
} pretoks[] = {
    {"smollm", BT_PRETOK_SMOLLM},
    {"starcoder", BT_PRETOK_SMOLLM},
    {"refact", BT_PRETOK_SMOLLM},
    {"command-r", BT_PRETOK_SMOLLM},
    {"gpt-2", BT_PRETOK_GPT2},
    {"phi-2", BT_PRETOK_GPT2},
    {"llama-bpe", BT_PRETOK_LLAMA_BPE},
    {"llama3", BT_PRETOK_LLAMA_BPE},
    {"llama-v3", BT_PRETOK_LLAMA_BPE},
    {"qwen2", BT_PRETOK_QWEN2},
    {"deepseek-r1-qwen", BT_PRETOK_QWEN2},
};

static bool str_is(const bt_gguf_str_t *text, const char *word)
{
    return (text->len == strlen(word)) &&
           (memcmp(text->data, word, text->len) == 0);
}

/* Names come from the file: shown in full only when short. */
static int shown(const bt_gguf_str_t *text)
{
    return (text->len < 64) ? (int)text->len : 64;
}

static bt_status_t choose_pretok(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                                 char *why, size_t why_bytes)
{
    bt_gguf_str_t name;

    if (bt_gguf_get_str(gguf, KEY_PRE, &name) != BT_OK) {
        snprintf(why, why_bytes,
                 "the file does not name its pre-tokenizer (%s)", KEY_PRE);
        return BT_ERR_UNSUPPORTED;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(pretoks); i++) {
        if (str_is(&name, pretoks[i].name)) {
            tok->pretok = pretoks[i].pretok;
            tok->ignore_merges = (tok->pretok == BT_PRETOK_LLAMA_BPE);
            tok->add_bos = tok->ignore_merges;
            return BT_OK;
        }
    }
    snprintf(why, why_bytes, "pre-tokenizer \"%.*s\" (%s) is not supported",
             shown(&name), name.data, KEY_PRE);
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t choose_model(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                                char *why, size_t why_bytes)
{
    bt_gguf_str_t model;

    if (bt_gguf_get_str(gguf, KEY_MODEL, &model) != BT_OK) {
        snprintf(why, why_bytes, "the file has no tokenizer (%s)", KEY_MODEL);
        return BT_ERR_BAD_FILE;
    }
    if (str_is(&model, "gpt2")) {
        return choose_pretok(tok, gguf, why, why_bytes);
    }
    if (str_is(&model, "llama")) {
        tok->is_spm = true;
        tok->add_bos = true;
        tok->add_space_prefix = true;
        return BT_OK;
    }
    snprintf(why, why_bytes, "tokenizer \"%.*s\" (%s) is not supported",
             shown(&model), model.data, KEY_MODEL);
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t read_flags(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                              char *why, size_t why_bytes)
{
    bool no_use = false; /* byte-level BPE adds no space */
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {"tokenizer.ggml.add_bos_token", &tok->add_bos},
        {"tokenizer.ggml.add_eos_token", &tok->add_eos},
        {"tokenizer.ggml.add_space_prefix",
         tok->is_spm ? &tok->add_space_prefix : &no_use},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(flags); i++) {
        const bt_status_t status =
            bt_gguf_get_bool(gguf, flags[i].key, flags[i].flag);

        if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
            snprintf(why, why_bytes, "%s is not true or false", flags[i].key);
            return BT_ERR_BAD_FILE;
        }
    }
    if (no_use) {
        snprintf(why, why_bytes,
                 "%s is set, which byte-level BPE does not support",
                 flags[2].key);
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

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
    if (tok->is_spm && !all_bytes && (tok->unk == BT_TOKEN_NONE)) {
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
    bt_status_t status = choose_model(tok, gguf, why, why_bytes);

    if (status != BT_OK) {
        return status;
    }
    status = read_flags(tok, gguf, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    status = bt_tok_load_vocab(tok, gguf, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    status = tok->is_spm ? bt_tok_load_scores(tok, gguf, why, why_bytes)
                         : bt_tok_load_merges(tok, gguf, why, why_bytes);
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
    bt_special_fini(&tok->special);
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
