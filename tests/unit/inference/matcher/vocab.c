/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/inference/matcher/vocab.h"

#include <string.h>

#include "common/base/alloc.h"
#include "tests/support/draw.h"

vocab_t *vocab_create(void)
{
    vocab_t *vocab = bt_calloc(1, sizeof(*vocab));

    BT_ASSERT_ALWAYS(vocab != NULL);
    return vocab;
}

uint32_t vocab_add(vocab_t *vocab, const void *bytes, size_t n)
{
    BT_ASSERT_ALWAYS((vocab->n < VOCAB_MAX_TOKENS) && (n <= VOCAB_MAX_BYTES));
    if (n > 0) {
        memcpy(vocab->bytes[vocab->n], bytes, n);
    }
    vocab->lens[vocab->n] = (uint16_t)n;
    return vocab->n++;
}

void vocab_add_bytes(vocab_t *vocab)
{
    for (uint32_t b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;

        (void)vocab_add(vocab, &byte, 1);
    }
}

void vocab_add_random(vocab_t *vocab, uint64_t *rng, const char *const *pieces,
                      uint32_t n_pieces, uint32_t max_pieces, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t n_drawn = 1 + (uint32_t)draw_below(rng, max_pieces);
        uint8_t bytes[VOCAB_MAX_BYTES];
        size_t size = 0;

        for (uint32_t k = 0; k < n_drawn; k++) {
            const char *piece = pieces[draw_below(rng, n_pieces)];

            memcpy(&bytes[size], piece, strlen(piece));
            size += strlen(piece);
        }
        (void)vocab_add(vocab, bytes, size);
    }
}

static const uint8_t *bytes_of(void *ctx, uint32_t id, size_t *n_p)
{
    const vocab_t *vocab = ctx;

    *n_p = vocab->lens[id];
    return vocab->bytes[id];
}

bt_token_trie_t *vocab_trie(vocab_t *vocab, bool ends)
{
    const uint32_t end_id = vocab->n - 1;
    bt_token_trie_t *trie = NULL;

    BT_ASSERT_ALWAYS(bt_token_trie_create(vocab->n, bytes_of, vocab, &end_id,
                                          ends ? 1 : 0, &trie) == BT_OK);
    return trie;
}

bt_matcher_t *matcher_of(const bt_grammar_t *grammar,
                         const bt_token_trie_t *trie)
{
    const bt_matcher_config_t config = {
        .grammar = grammar, .trie = trie, .max_bytes = 4u << 20};
    bt_matcher_t *matcher = NULL;

    BT_ASSERT_ALWAYS(bt_matcher_create(&config, &matcher) == BT_OK);
    return matcher;
}
