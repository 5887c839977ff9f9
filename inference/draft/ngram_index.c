/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/ngram_index.h"

#include <string.h>

#include "common/base/alloc.h"

/* A chain has other n-grams of the same hash as well. */
#define MOST_STEPS (4 * BT_NGRAM_CANDIDATES)

static uint32_t hash_of(const bt_ngram_chains_t *chains, const uint32_t *end)
{
    uint32_t hash = 0;

    for (uint32_t i = 1; i <= chains->n_gram; i++) {
        hash = (hash ^ end[-(int64_t)i]) * 0x9e3779b1u; /* Knuth's, odd */
        hash ^= hash >> 15;
    }
    return hash & chains->mask;
}

static bt_status_t init_chains(bt_ngram_chains_t *chains, uint32_t n_gram,
                               uint32_t max_tokens)
{
    uint32_t n_heads = 64;

    while (n_heads < max_tokens / 2) {
        n_heads *= 2;
    }
    *chains = (bt_ngram_chains_t){
        .heads = bt_calloc(n_heads, sizeof(*chains->heads)),
        .prev = bt_calloc((size_t)max_tokens + 1, sizeof(*chains->prev)),
        .mask = n_heads - 1,
        .n_gram = n_gram,
    };
    return ((chains->heads != NULL) && (chains->prev != NULL))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

bt_status_t bt_ngram_index_init(bt_ngram_index_t *index, uint32_t max_tokens)
{
    bt_ngram_index_t new = {.max_tokens = max_tokens};
    bt_status_t status = init_chains(&new.chains[0], BT_NGRAM_LONG, max_tokens);

    if (status == BT_OK) {
        status = init_chains(&new.chains[1], BT_NGRAM_SHORT, max_tokens);
    }
    if (status != BT_OK) {
        bt_ngram_index_fini(&new);
        return status;
    }
    *index = new;
    return BT_OK;
}

void bt_ngram_index_fini(bt_ngram_index_t *index)
{
    for (unsigned i = 0; i < 2; i++) {
        bt_free(index->chains[i].heads);
        bt_free(index->chains[i].prev);
    }
    memset(index, 0, sizeof(*index));
}

void bt_ngram_index_append(bt_ngram_index_t *index, const uint32_t *tokens,
                           uint32_t n_tokens, uint32_t most)
{
    uint32_t end =
        (n_tokens < index->max_tokens) ? n_tokens : index->max_tokens;

    if ((end > index->n_tokens) && (end - index->n_tokens > most)) {
        end = index->n_tokens + most;
    }
    for (unsigned i = 0; i < 2; i++) {
        const bt_ngram_chains_t *chains = &index->chains[i];

        for (uint32_t e = index->n_tokens + 1; e <= end; e++) {
            if (e >= chains->n_gram) {
                uint32_t *head = &chains->heads[hash_of(chains, &tokens[e])];

                chains->prev[e] = *head;
                *head = e;
            }
        }
    }
    index->n_tokens = (end > index->n_tokens) ? end : index->n_tokens;
}

/* Tokens that are equal before both ends. */
static uint32_t n_equal(const uint32_t *text, uint32_t end,
                        const uint32_t *tokens, uint32_t n_tokens)
{
    uint32_t most = (end < n_tokens) ? end : n_tokens;
    uint32_t n = 0;

    most = (most < BT_NGRAM_MAX_MATCH) ? most : BT_NGRAM_MAX_MATCH;
    while ((n < most) && (text[end - 1 - n] == tokens[n_tokens - 1 - n])) {
        n++;
    }
    return n;
}

static bt_ngram_match_t find_in(const bt_ngram_chains_t *chains,
                                const uint32_t *text, const uint32_t *tokens,
                                uint32_t n_tokens)
{
    bt_ngram_match_t best = {0};
    uint32_t n_found = 0;
    uint32_t end;

    if (n_tokens < chains->n_gram) {
        return best;
    }
    end = chains->heads[hash_of(chains, &tokens[n_tokens])];
    for (uint32_t i = 0;
         (end != 0) && (i < MOST_STEPS) && (n_found < BT_NGRAM_CANDIDATES) &&
         (best.n_matched < BT_NGRAM_MAX_MATCH);
         i++) {
        /* The sequence's own end is no earlier occurrence, nor is what lies
         * behind it, after tokens were taken back. */
        const uint32_t n = ((text == tokens) && (end >= n_tokens))
                               ? 0
                               : n_equal(text, end, tokens, n_tokens);

        n_found += (n >= chains->n_gram) ? 1 : 0;
        if ((n >= chains->n_gram) && (n > best.n_matched)) {
            best = (bt_ngram_match_t){.end = end, .n_matched = n};
        }
        end = chains->prev[end];
    }
    return best;
}

bt_ngram_match_t bt_ngram_index_find(const bt_ngram_index_t *index,
                                     const uint32_t *text,
                                     const uint32_t *tokens, uint32_t n_tokens)
{
    bt_ngram_match_t match = find_in(&index->chains[0], text, tokens, n_tokens);

    if (match.n_matched == 0) {
        match = find_in(&index->chains[1], text, tokens, n_tokens);
    }
    return match;
}
