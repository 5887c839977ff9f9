/* SPDX-License-Identifier: Apache-2.0 */
/** @file random_grammars.h  Grammars that are drawn at random, and vocabularies
 *  of what they read. */
#ifndef BT_TESTS_UNIT_INFERENCE_MATCHER_RANDOM_GRAMMARS_H
#define BT_TESTS_UNIT_INFERENCE_MATCHER_RANDOM_GRAMMARS_H

#include "tests/support/hand_grammar.h"
#include "tests/unit/inference/matcher/vocab.h"

/** Any grammar of letters; some have counts, and tokens by their ids. The i-th
 *  of a series.
 *  @param [out] n_letters_p  Letters that it reads. */
hand_grammar_t *draw_letters(uint64_t *rng, uint32_t i, uint32_t *n_letters_p);
/** Rules that need a certain number of frames: each calls the next one, and the
 *  last one is a letter, or any rule between two letters. Bounds make some
 * calls needed. */
hand_grammar_t *draw_nested(uint64_t *rng);
/** Strings between quotes, commas and letters. */
hand_grammar_t *draw_strings(uint64_t *rng);

/** Tokens of letters, two special tokens, and the end id. */
vocab_t *letter_vocab(uint64_t *rng, uint32_t n_letters);
/** Tokens of plain text, quotes, escapes and parts of characters, and the end
 *  id. */
vocab_t *string_vocab(uint64_t *rng);

#endif
