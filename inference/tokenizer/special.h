/* SPDX-License-Identifier: Apache-2.0 */
/** @file special.h
 *
 * Finds the tokens that are matched as text before anything else: user-defined
 * ones always, control and unknown ones when the caller asks. A trie over
 * bytes; the leftmost match wins, of those at one place the longest.
 *
 * Threads: any number of readers once filled.
 */
#ifndef BT_INFERENCE_TOKENIZER_SPECIAL_H
#define BT_INFERENCE_TOKENIZER_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/tokenizer.h"

/** What more belongs to a match, as the Hugging Face library has it. */
typedef enum bt_special_rule_bits {
    BT_SPECIAL_LSTRIP = 1, /**< white space before it */
    BT_SPECIAL_RSTRIP = 2, /**< and behind it */
    /** None where a letter, digit or the like (\w) stands beside it. */
    BT_SPECIAL_SINGLE_WORD = 4,
} bt_special_rule_bits_t;

typedef struct bt_special_node {
    uint32_t id;     /**< token that ends here, or UINT32_MAX */
    bool is_control; /**< only when asked for */
    uint8_t rules;   /**< bt_special_rule_bits_t */
} bt_special_node_t;

/** The bytes that tokens begin with. */
typedef struct bt_special_starts {
    bool has[256];
    uint32_t n;   /**< of them */
    uint8_t last; /**< the only one, if n is 1 */
} bt_special_starts_t;

typedef struct bt_special {
    bt_pair_table_t edges;    /**< (node, byte) → merged = child */
    bt_special_node_t *nodes; /**< owned; 0 is the root */
    uint32_t n_nodes;
    uint32_t cap;
    bt_special_starts_t text;    /**< of user-defined tokens */
    bt_special_starts_t control; /**< of these and control tokens */
} bt_special_t;

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_special_init(bt_special_t *special);
void bt_special_fini(bt_special_t *special);

/** Of equal texts the first id stays. An empty text is left out.
 *  @param [in] rules  bt_special_rule_bits_t
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_special_add(bt_special_t *special,
                                         const uint8_t *text, size_t bytes,
                                         uint32_t id, bool is_control,
                                         unsigned rules);

/** Bytes of a text, in rising order, where what looks like a control token is
 *  text. */
typedef struct bt_special_quotes {
    const bt_quote_t *list;
    size_t n;
} bt_special_quotes_t;

/** One text, from its first match to its last. */
typedef struct bt_special_scan {
    const uint8_t *text; /**< valid UTF-8 */
    size_t bytes;
    bool with_control;
    bt_special_quotes_t quotes; /**< loses those that were passed */

    size_t at;    /**< where the search goes on */
    size_t taken; /**< end of the last match with what its rules added */
    size_t space, space_end; /**< the last run of white space looked at */
    uint64_t n_steps;        /**< bytes of white space looked at */
} bt_special_scan_t;

/** text[begin … end - 1], with what its rules add. As in the Hugging Face
 *  library a token of white space is found in what the one before it took, so
 *  begin may be before the scan's taken of before: then no text is between. */
typedef struct bt_special_match {
    size_t begin, end;
    uint32_t id;
} bt_special_match_t;

/** @param [in] quotes  NULL: none; must stay while the scan is used */
void bt_special_start(bt_special_scan_t *scan, const uint8_t *text,
                      size_t bytes, bool with_control,
                      const bt_special_quotes_t *quotes);

/** The next match. Cost: bytes of the text before it, times the length of
 *  the longest token where the text is made of beginnings of tokens; white
 *  space is looked at once.
 *  @param [out] match_p  written if there is one */
bool bt_special_next(const bt_special_t *special, bt_special_scan_t *scan,
                     bt_special_match_t *match_p);

#endif
