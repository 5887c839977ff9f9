/* SPDX-License-Identifier: Apache-2.0 */
/** @file vocab.h  Vocabularies of tests, and matchers of them. */
#ifndef BT_TESTS_UNIT_INFERENCE_MATCHER_VOCAB_H
#define BT_TESTS_UNIT_INFERENCE_MATCHER_VOCAB_H

#include "inference/matcher/matcher.h"
#include "inference/matcher/token_trie.h"

#define VOCAB_MAX_TOKENS 1024u
#define VOCAB_MAX_BYTES  600u

typedef struct vocab {
    uint32_t n;
    uint16_t lens[VOCAB_MAX_TOKENS];
    uint8_t bytes[VOCAB_MAX_TOKENS][VOCAB_MAX_BYTES];
} vocab_t;

/** Returns an empty vocabulary, for bt_free(). */
vocab_t *vocab_create(void);
/** Adds a token. @return id */
uint32_t vocab_add(vocab_t *vocab, const void *bytes, size_t n);
/** Adds a token for each byte. */
void vocab_add_bytes(vocab_t *vocab);
/** Adds tokens of up to @a max_pieces pieces that are drawn of some texts. */
void vocab_add_random(vocab_t *vocab, uint64_t *rng, const char *const *pieces,
                      uint32_t n_pieces, uint32_t max_pieces, uint32_t n);
/** Builds the trie; the last token is the end id, where @a ends. */
bt_token_trie_t *vocab_trie(vocab_t *vocab, bool ends);

/** Returns a matcher with 4 MiB. */
bt_matcher_t *matcher_of(const bt_grammar_t *grammar,
                         const bt_token_trie_t *trie);

static inline bool mask_has(const uint64_t *mask, uint32_t id)
{
    return (mask[id / 64] >> (id % 64) & 1) != 0;
}

#endif
