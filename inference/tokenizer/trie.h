/* SPDX-License-Identifier: Apache-2.0 */
/** @file trie.h
 *
 * Trie over the bytes of token texts: the children of a node are adjacent, in
 * the order of their bytes.
 *
 * Threads: any number of readers once made.
 */
#ifndef BT_INFERENCE_TOKENIZER_TRIE_H
#define BT_INFERENCE_TOKENIZER_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/tables.h"

#define BT_TRIE_NONE UINT32_MAX

typedef struct bt_trie_node {
    uint32_t id;    /**< id of the token that ends here, or BT_TRIE_NONE */
    uint32_t first; /**< index of the first child */
    uint16_t n;     /**< number of children */
    uint8_t byte;   /**< byte that leads here */
} bt_trie_node_t;

typedef struct bt_trie {
    bt_trie_node_t *nodes; /**< owned; 0 is the root */
    uint32_t n;
} bt_trie_t;

typedef struct bt_trie_text {
    const uint8_t *text;
    uint32_t bytes; /**< not 0 */
    uint32_t id;
} bt_trie_text_t;

/** Builds a trie.
 *  @param [in,out] list  different texts; is sorted
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_trie_init(bt_trie_t *trie, bt_trie_text_t *list,
                                       uint32_t n);
void bt_trie_fini(bt_trie_t *trie);

/** Finds a child by its byte. @return a child, or BT_TRIE_NONE */
static inline uint32_t bt_trie_child(const bt_trie_t *trie, uint32_t node,
                                     uint8_t byte)
{
    uint32_t low = trie->nodes[node].first;
    uint32_t n = trie->nodes[node].n;

    while (n > 1) {
        const uint32_t half = n / 2;

        if (trie->nodes[low + half].byte <= byte) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return ((n == 1) && (trie->nodes[low].byte == byte)) ? low : BT_TRIE_NONE;
}

#endif
