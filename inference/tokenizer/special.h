/* SPDX-License-Identifier: Apache-2.0 */
/** @file special.h
 *
 * Matcher of tokens that are found as text before any other step: user-defined
 * ones always, control and unknown ones on request. A trie over bytes; the
 * leftmost match wins, at one position the longest.
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

/** Rules that extend or restrict a match, as in the Hugging Face library. */
typedef enum bt_special_rule_bits {
    BT_SPECIAL_LSTRIP = 1, /**< include white space before the match */
    BT_SPECIAL_RSTRIP = 2, /**< include white space behind the match */
    /** No match next to a letter, digit or the like (\w). */
    BT_SPECIAL_SINGLE_WORD = 4,
} bt_special_rule_bits_t;

typedef struct bt_special_node {
    uint32_t id;     /**< token that ends here, or UINT32_MAX */
    bool is_control; /**< only matched on request */
    uint8_t rules;   /**< bt_special_rule_bits_t */
} bt_special_node_t;

/** First bytes of tokens. */
typedef struct bt_special_starts {
    bool has[256];
    uint32_t n;   /**< number of such bytes */
    uint8_t last; /**< the only one, if n is 1 */
} bt_special_starts_t;

typedef struct bt_special {
    bt_pair_table_t edges;    /**< (node, byte) → merged = child */
    bt_special_node_t *nodes; /**< owned; 0 is the root */
    uint32_t n_nodes;
    size_t cap;
    bt_special_starts_t text;    /**< first bytes of user-defined tokens */
    bt_special_starts_t control; /**< first bytes of user-defined and control
                                      tokens */
} bt_special_t;

/** Initializes an empty matcher. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_special_init(bt_special_t *special);
void bt_special_fini(bt_special_t *special);

/** Adds a token. Of equal texts the first id stays. An empty text is ignored.
 *  @param [in] rules  bt_special_rule_bits_t
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_special_add(bt_special_t *special,
                                         const uint8_t *text, size_t bytes,
                                         uint32_t id, bool is_control,
                                         unsigned rules);

/** Scan of one text, from its first match to its last. */
typedef struct bt_special_scan {
    const uint8_t *text; /**< valid UTF-8 */
    size_t bytes;
    bool with_control;
    const bt_quote_t *quotes; /**< quotes that are not passed yet: a control
                                   token spelled there is plain text */
    size_t n_quotes;

    size_t at;    /**< position where the search continues */
    size_t taken; /**< end of the last match, extended by its rules */
    size_t space, space_end; /**< last run of white space read */
    uint64_t n_steps;        /**< bytes of white space read */
} bt_special_scan_t;

/** Match at text[begin … end - 1], extended by its rules. As in the Hugging
 *  Face library, a token of white space is found within the extension of the
 *  previous match, so begin may be before the scan's previous `taken`: then no
 *  text is between. */
typedef struct bt_special_match {
    size_t begin, end;
    uint32_t id;
} bt_special_match_t;

/** Starts a scan.
 *  @param [in] quotes  NULL: none; must outlive the scan */
void bt_special_start(bt_special_scan_t *scan, const uint8_t *text,
                      size_t bytes, bool with_control,
                      const bt_quotes_t *quotes);

/** Finds the next match. Cost: bytes of the text before the match, times the
 *  length of the longest token where the text consists of prefixes of tokens;
 *  white space is read once.
 *  @param [out] match_p  written if there is one */
bool bt_special_next(const bt_special_t *special, bt_special_scan_t *scan,
                     bt_special_match_t *match_p);

#endif
