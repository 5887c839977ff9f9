/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/draft/ngram_corpus.h"

#include <string.h>

#include "common/base/alloc.h"
#include "inference/draft/ngram_index.h"

#define LEAST_BYTES  4096u
#define TOKEN_BYTES  16u        /* token, link, and half to one of a head */
#define BETWEEN      UINT32_MAX /* ends an answer: no token has this id */
#define LAST_ORDINAL (UINT32_MAX - (1u << 26)) /* then it begins again */

/* Tokens have ordinals from 1 on, which only rise: token o is in slot o modulo
 * the size, as long as no later one took it. A link is the ordinal behind the
 * occurrence before; 0: there is none. */
struct bt_ngram_corpus {
    uint32_t *tokens; /* [size] */
    uint32_t *prev;   /* [size], of the n-gram that ends before an ordinal */
    uint32_t *heads;  /* [mask + 1] */
    uint32_t size;    /* a power of two */
    uint32_t mask;
    uint32_t next; /* ordinal of the next token */
};

bt_status_t bt_ngram_corpus_create(size_t bytes, bt_ngram_corpus_t **corpus_p)
{
    bt_ngram_corpus_t *corpus;
    uint32_t size = 1;

    if (bytes < LEAST_BYTES) {
        return BT_ERR_INVALID_PARAM;
    }
    while ((size < (1u << 25)) && (2 * (size_t)size * TOKEN_BYTES <= bytes)) {
        size *= 2;
    }
    corpus = bt_calloc(1, sizeof(*corpus));
    if (corpus == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    corpus->tokens = bt_calloc(size, sizeof(*corpus->tokens));
    corpus->prev = bt_calloc(size, sizeof(*corpus->prev));
    corpus->heads = bt_calloc(size, sizeof(*corpus->heads));
    if ((corpus->tokens == NULL) || (corpus->prev == NULL) ||
        (corpus->heads == NULL)) {
        bt_ngram_corpus_destroy(corpus);
        return BT_ERR_NO_MEMORY;
    }
    corpus->size = size;
    corpus->mask = size - 1;
    corpus->next = 1;
    *corpus_p = corpus;
    return BT_OK;
}

void bt_ngram_corpus_destroy(bt_ngram_corpus_t *corpus)
{
    if (corpus != NULL) {
        bt_free(corpus->tokens);
        bt_free(corpus->prev);
        bt_free(corpus->heads);
        bt_free(corpus);
    }
}

static uint32_t token_at(const bt_ngram_corpus_t *corpus, uint32_t ordinal)
{
    return corpus->tokens[ordinal & corpus->mask];
}

/* True while the n-gram before the ordinal is still there. */
static bool is_kept(const bt_ngram_corpus_t *corpus, uint32_t ordinal)
{
    return (ordinal > BT_NGRAM_CORPUS_GRAM) &&
           (corpus->next - (ordinal - BT_NGRAM_CORPUS_GRAM) <= corpus->size);
}

static uint32_t hash_of(const bt_ngram_corpus_t *corpus,
                        const uint32_t gram[BT_NGRAM_CORPUS_GRAM])
{
    uint32_t hash = 0;

    for (uint32_t i = 0; i < BT_NGRAM_CORPUS_GRAM; i++) {
        hash = (hash ^ gram[i]) * 0x9e3779b1u;
        hash ^= hash >> 15;
    }
    return hash & corpus->mask;
}

static void append(bt_ngram_corpus_t *corpus, uint32_t token)
{
    corpus->tokens[corpus->next & corpus->mask] = token;
    corpus->next++;
}

void bt_ngram_corpus_add(bt_ngram_corpus_t *corpus, const uint32_t *tokens,
                         uint32_t n)
{
    const uint32_t most = corpus->size - 1;

    if (n > most) {
        tokens += n - most;
        n = most;
    }
    if (corpus->next > LAST_ORDINAL) {
        memset(corpus->heads, 0, corpus->size * sizeof(*corpus->heads));
        corpus->next = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        append(corpus, tokens[i]);
        if (i + 1 >= BT_NGRAM_CORPUS_GRAM) {
            uint32_t *head = &corpus->heads[hash_of(
                corpus, &tokens[i + 1 - BT_NGRAM_CORPUS_GRAM])];

            corpus->prev[corpus->next & corpus->mask] = *head;
            *head = corpus->next;
        }
    }
    append(corpus, BETWEEN);
}

/* Tokens that are equal before both ends. */
static uint32_t n_equal(const bt_ngram_corpus_t *corpus, uint32_t end,
                        const uint32_t *tokens, uint32_t n_tokens)
{
    uint32_t n = 0;

    while ((n < BT_NGRAM_MAX_MATCH) && (n < n_tokens) && (n + 1 < end) &&
           (corpus->next - (end - 1 - n) <= corpus->size) &&
           (token_at(corpus, end - 1 - n) == tokens[n_tokens - 1 - n])) {
        n++;
    }
    return n;
}

uint32_t bt_ngram_corpus_find(const bt_ngram_corpus_t *corpus,
                              const uint32_t *tokens, uint32_t n_tokens,
                              uint32_t least, uint32_t max, uint32_t *drafts,
                              uint32_t *n_p)
{
    bt_ngram_match_t best = {.n_matched = least};
    uint32_t n = 0;
    uint32_t end;

    if ((n_tokens < BT_NGRAM_CORPUS_GRAM) || (max == 0)) {
        return 0;
    }
    best.n_matched =
        (least < BT_NGRAM_CORPUS_GRAM - 1) ? BT_NGRAM_CORPUS_GRAM - 1 : least;
    end =
        corpus
            ->heads[hash_of(corpus, &tokens[n_tokens - BT_NGRAM_CORPUS_GRAM])];
    for (uint32_t i = 0; is_kept(corpus, end) && (i < BT_NGRAM_CANDIDATES);
         i++) {
        const uint32_t matched = n_equal(corpus, end, tokens, n_tokens);

        if (matched > best.n_matched) {
            best = (bt_ngram_match_t){.end = end, .n_matched = matched};
        }
        end = corpus->prev[end & corpus->mask];
    }
    if (best.end == 0) {
        return 0;
    }
    while ((n < max) && (token_at(corpus, best.end + n) != BETWEEN)) {
        drafts[n] = token_at(corpus, best.end + n);
        n++;
    }
    if (n == 0) {
        return 0;
    }
    *n_p = n;
    return best.n_matched;
}
