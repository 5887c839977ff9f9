/* SPDX-License-Identifier: Apache-2.0 */
/** @file token_trie.h
 *
 * The bytes of a vocabulary's tokens as a trie, and what masks of tokens
 * (matcher.h) need to know of them.
 *
 *     "a" 5, "ab" 7, "b" 6    ─▶   a(5) b(7) │ b(6)      nodes depth first;
 *                                   `skip` leads behind a node's subtree
 *
 * Special tokens are never text and are left out, end ids too. Tokens with the
 * same bytes share a node.
 *
 * Plain tokens are whole characters that nearly every string of a grammar may
 * have: all but quote, backslash, controls, U+007F, U+2028 and U+2029. Masks of
 * open strings are the plain tokens of up to n characters, and a walk of the
 * others.
 *
 * Threads: immutable; one for all grammars of a model.
 */
#ifndef BT_INFERENCE_MATCHER_TOKEN_TRIE_H
#define BT_INFERENCE_MATCHER_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define BT_TRIE_MAX_PLAIN 32u       /**< characters that masks distinguish */
#define BT_TRIE_MAX_BYTES 255u      /**< longest token in a trie */
#define BT_TRIE_MAX_VOCAB 0x800000u /**< tokens */

typedef struct bt_trie_node {
    uint32_t skip : 24; /**< nodes of the subtree with this one */
    uint32_t byte : 8;
    uint32_t token : 24; /**< id of the token that ends here; no_token: none;
                              no_token + 1 + i: alias i, several tokens */
    uint32_t depth : 8;  /**< bytes before this one */
} bt_trie_node_t;

/** Trie of some tokens. */
typedef struct bt_trie_part {
    bt_trie_node_t *nodes;
    uint32_t n_nodes;
    uint32_t first[257]; /**< nodes of tokens that begin with byte b are
                              first[b] to first[b + 1] - 1 */
} bt_trie_part_t;

typedef struct bt_plain_token {
    uint32_t id;
    uint32_t n_chars;
} bt_plain_token_t;

typedef struct bt_token_trie {
    uint32_t n_vocab;
    uint32_t n_words;   /**< 64-bit words of a mask */
    uint32_t no_token;  /**< 64 * n_words: a bit behind the mask */
    uint32_t max_bytes; /**< longest token */
    uint32_t n_end_ids;
    uint32_t *end_ids; /**< end the answer */
    bt_trie_part_t all;
    bt_trie_part_t others; /**< tokens that are not plain */
    uint32_t *alias_first; /**< n_aliases + 1: tokens with the same bytes are
                                alias_ids[alias_first[i]] … */
    uint32_t *alias_ids;
    uint32_t n_aliases;
    uint32_t *long_ids; /**< tokens over BT_TRIE_MAX_BYTES, in neither trie */
    uint32_t n_long;
    uint64_t *plain;   /**< [BT_TRIE_MAX_PLAIN + 1][n_words]: plain tokens of up
                            to i characters; of the last one any number */
    uint32_t *n_plain; /**< tokens of each of them */
    uint32_t max_plain;           /**< most characters of a plain token */
    bt_plain_token_t *plain_long; /**< plain tokens of BT_TRIE_MAX_PLAIN
                                       characters or more, ascending by them */
    uint32_t n_plain_long;
    uint32_t *offsets; /**< n_vocab + 1; bytes of a token in `bytes` */
    uint8_t *bytes;
} bt_token_trie_t;

/** Gives the bytes of a token.
 *  @param [out] n_p  0: special, or not in the vocabulary
 *  @return borrowed until the next call */
typedef const uint8_t *(*bt_token_bytes_fn_t)(void *ctx, uint32_t id,
                                              size_t *n_p);

/** Builds the trie.
 *  @retval BT_ERR_INVALID_PARAM  no tokens, or an end id is none of them
 *  @retval BT_ERR_TOO_LARGE      over BT_TRIE_MAX_VOCAB, over 2^24 bytes of
 *                                text, or a token over 64 KiB
 *  @retval BT_ERR_NO_MEMORY
 *  Cost: O(bytes * log(n_vocab)) */
BT_MUST_CHECK bt_status_t bt_token_trie_create(
    uint32_t n_vocab, bt_token_bytes_fn_t bytes_of, void *ctx,
    const uint32_t *end_ids, uint32_t n_end_ids, bt_token_trie_t **trie_p);
void bt_token_trie_destroy(bt_token_trie_t *trie); /**< NULL is allowed. */

/** Returns the bytes of a token; an end id, a special token, and an id that is
 *  none have none. */
static inline const uint8_t *bt_token_trie_bytes(const bt_token_trie_t *trie,
                                                 uint32_t id, size_t *n_p)
{
    if (id >= trie->n_vocab) {
        *n_p = 0;
        return trie->bytes;
    }
    *n_p = trie->offsets[id + 1] - trie->offsets[id];
    return &trie->bytes[trie->offsets[id]];
}

/** True when a token ends the answer. */
bool bt_token_trie_is_end(const bt_token_trie_t *trie, uint32_t id);

/** Returns the characters of a plain text; 0: not plain, or empty. */
uint32_t bt_plain_chars(const uint8_t *bytes, size_t n);

#endif
