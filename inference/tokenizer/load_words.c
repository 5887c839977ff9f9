/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/tokenizer/merge.h"
#include "inference/tokenizer/tokenizer_priv.h"

#define MAX_CACHE_WORDS 4096u /* 256 KiB: part of a core's own cache */

/* Whether merging the bytes of a token gives that token alone. */
static bt_status_t comes_back(const bt_tokenizer_t *tok, bt_merge_work_t *work,
                              uint32_t id, bool *whole_p)
{
    const uint8_t *text = tok->arena.bytes + tok->arena.offsets[id];
    const size_t bytes = tok->arena.offsets[id + 1] - tok->arena.offsets[id];
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
        const uint32_t start = tok->arena.offsets[i];
        const size_t bytes = tok->arena.offsets[i + 1] - start;
        uint32_t winner;

        if ((bytes == 0) ||
            !bt_text_table_get(&tok->texts, tok->arena.bytes + start, bytes,
                               &winner) ||
            (winner != i)) {
            continue; /* a special token, or the double of another */
        }
        status = comes_back(tok, &work, i, &tok->whole[i]);
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
        const uint32_t start = tok->arena.offsets[i];
        const size_t bytes = tok->arena.offsets[i + 1] - start;

        if (tok->is_word[i] && (bytes <= BT_WORD_TABLE_BYTES)) {
            bt_word_table_put(&tok->words, tok->arena.bytes + start, bytes, i);
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
