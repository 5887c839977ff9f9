/* SPDX-License-Identifier: Apache-2.0 */
/** @file matcher.h
 *
 * Follows answers through a grammar (common/grammar/grammar.h) and says which
 * tokens may come next.
 *
 *     state ── bytes of a token ──▶ state          one number each
 *       └── mask: a bit for each token that can be continued to a text of the
 *           grammar; end ids where the text is whole
 *
 * A state is a set of stacks of frames. Sets, stacks and steps from set to set
 * are kept in tables, so a byte costs a look-up once it was seen. A state is a
 * value: an answer is undone, forked or run again by keeping or replaying
 * numbers. All answers with one grammar share its matcher.
 *
 * Where the tables are full they are emptied, and the epoch grows: states of
 * earlier epochs are void, and their owners replay their tokens. What a state
 * answers depends on its tokens alone, never on what the tables have.
 *
 * Masks are exact: a token is in the mask when the answer with its bytes is the
 * beginning of a text of the grammar. Bounds of counts matter to a mask only
 * within the longest token's bytes, so states that differ further away share
 * theirs, and the steps of tokens.
 *
 * A set has at most BT_MATCHER_MAX_SET stacks; a grammar that needs more is
 * ambiguous beyond what can be followed, and the state fails
 * (BT_MATCHER_FAILED): its request ends with an error, never with wrong text.
 * A mask fails where that happens behind one of its tokens. A state with more
 * edges than a byte may cost fails alike.
 *
 * Threads: one, the compute thread. No allocation after create: the memory is
 * reserved, and becomes resident as it is used.
 */
#ifndef BT_INFERENCE_MATCHER_MATCHER_H
#define BT_INFERENCE_MATCHER_MATCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/grammar/grammar.h"
#include "inference/matcher/token_trie.h"

#define BT_MATCHER_MIN_BYTES (1u << 20) /**< least bytes of tables */
#define BT_MATCHER_MAX_SET   BT_GRAMMAR_MAX_WAYS
#define BT_MATCHER_DEAD      0u /**< state: no text of the grammar begins so */
#define BT_MATCHER_FAILED    1u /**< state: over a limit */

typedef struct bt_matcher bt_matcher_t;

typedef struct bt_matcher_config {
    const bt_grammar_t *grammar; /**< borrowed, outlives the matcher */
    const bt_token_trie_t *trie; /**< borrowed, outlives the matcher */
    size_t max_bytes;            /**< memory of all tables */
    uint32_t max_mask_steps; /**< bytes looked at for one mask, each as often as
                                  its state has frames, and edges of all states
                                  on the way, each four times, whether they were
                                  seen before or not; beyond it the mask fails.
                                  0: no limit */
} bt_matcher_config_t;

typedef struct bt_matcher_stats {
    uint64_t masks;     /**< asked for */
    uint64_t mask_hits; /**< found in the table */
    uint64_t steps;     /**< bytes looked at, as max_mask_steps counts them */
    uint64_t resets;    /**< epochs that ended */
} bt_matcher_stats_t;

/** Position in an answer. */
typedef struct bt_matcher_cursor {
    uint32_t epoch;
    uint32_t state;
    uint32_t n_tokens; /**< tokens of the answer up to here */
} bt_matcher_cursor_t;

/** @retval BT_ERR_INVALID_PARAM  max_bytes is too small
 *  @retval BT_ERR_UNSUPPORTED    a rule counts with gaps (bounds.h)
 *  @retval BT_ERR_TOO_LARGE      over a limit of bounds.h
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_matcher_create(const bt_matcher_config_t *config,
                                            bt_matcher_t **matcher_p);
void bt_matcher_destroy(bt_matcher_t *matcher); /**< NULL is allowed. */

/** Returns the cursor of an empty answer. */
bt_matcher_cursor_t bt_matcher_begin(bt_matcher_t *matcher);

/**
 * Moves a cursor to the end of an answer. Only tokens behind n_tokens of the
 * cursor are read; where the cursor is of an earlier epoch or longer than the
 * answer, all are.
 *
 * @param [in] tokens  Whole answer, n tokens. An end id moves nowhere; a token
 *         that the grammar takes by its id is read so, and by its bytes.
 * @return false: the state is BT_MATCHER_DEAD or BT_MATCHER_FAILED
 */
bool bt_matcher_move(bt_matcher_t *matcher, bt_matcher_cursor_t *cursor,
                     const uint32_t *tokens, uint32_t n);

/** Returns the state behind some bytes. Where bt_matcher_epoch() has changed
 *  after it, all other states are void. */
uint32_t bt_matcher_read(bt_matcher_t *matcher, uint32_t state,
                         const uint8_t *bytes, size_t n);
/** True when the answer may end here. */
bool bt_matcher_accepts(bt_matcher_t *matcher, uint32_t state);
/** Returns the epoch of the states that are valid. */
uint32_t bt_matcher_epoch(const bt_matcher_t *matcher);

/**
 * Returns the mask of a cursor's next token: trie->n_words words, bit id % 64
 * of word id / 64.
 *
 * @param [in,out] cursor  Of this epoch: bt_matcher_move() comes before.
 * @param [out]    n_p     Tokens of the mask, at least 1.
 * @return valid until the next call of a function of this matcher; NULL: the
 *         state has failed or is dead, or the vocabulary has no token for any
 *         continuation
 */
const uint64_t *bt_matcher_mask(bt_matcher_t *matcher,
                                bt_matcher_cursor_t *cursor, uint32_t *n_p);

/**
 * Makes bt_matcher_min_bytes() and bt_matcher_mask_within() possible.
 * Allocates; a second call does nothing.
 *
 * @retval BT_ERR_TOO_LARGE  Over a limit of distance.h.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_matcher_know_distances(bt_matcher_t *matcher);

/** Returns the bytes from a state to the end of a text (distance.h): while it
 *  is above 0, some byte, or token by its id, leads to a state with fewer.
 *  @return BT_DISTANCE_NONE: not known */
uint32_t bt_matcher_min_bytes(bt_matcher_t *matcher, uint32_t state);

/**
 * Returns the mask of a cursor's next token, of only those tokens behind which
 * the text can end within so many tokens more, one for each byte. An answer
 * whose state is no further than it has tokens left, and which has a token for
 * each byte, keeps at least one.
 *
 * @param [in] n_left  Tokens that may follow the next one; the end id is none.
 * @return as bt_matcher_mask()
 */
const uint64_t *bt_matcher_mask_within(bt_matcher_t *matcher,
                                       bt_matcher_cursor_t *cursor,
                                       uint32_t n_left, uint32_t *n_p);

/** Writes the bytes that every continuation begins with, up to @a cap; fewer
 *  where the tables are full.
 *  @return their number; 0 where the answer may end */
size_t bt_matcher_forced(bt_matcher_t *matcher, uint32_t state, uint8_t *bytes,
                         size_t cap);

/** True when some byte leads on from a state; false too where the tables are
 *  full. */
bool bt_matcher_reads_bytes(bt_matcher_t *matcher, uint32_t state);

const bt_matcher_stats_t *bt_matcher_stats(const bt_matcher_t *matcher);

#endif
