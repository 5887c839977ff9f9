/* SPDX-License-Identifier: Apache-2.0 */
/** @file hand_grammar.h  Grammars that a test makes state by state, or at
 *  random. */
#ifndef BT_TESTS_SUPPORT_HAND_GRAMMAR_H
#define BT_TESTS_SUPPORT_HAND_GRAMMAR_H

#include "common/grammar/grammar.h"

#define HAND_MAX_RULES  64u
#define HAND_MAX_STATES 4096u
#define HAND_MAX_EDGES  8192u

typedef struct hand_grammar {
    bt_grammar_t grammar; /**< finished */
    bt_grammar_rule_t rules[HAND_MAX_RULES];
    bt_grammar_state_t states[HAND_MAX_STATES];
    bt_grammar_edge_t edges[HAND_MAX_EDGES];
    uint32_t from[HAND_MAX_EDGES]; /**< states of edges that are added */
    bt_grammar_edge_t added[HAND_MAX_EDGES];
} hand_grammar_t;

/** Returns an empty grammar, for bt_free(). */
hand_grammar_t *hand_grammar(void);
/** Adds a rule; the first state that is added to it is its start. */
uint32_t hand_rule(hand_grammar_t *h, uint32_t min, uint32_t max);
uint32_t hand_state(hand_grammar_t *h, uint32_t rule, bool accepts);
void hand_otherwise(hand_grammar_t *h, uint32_t state, uint32_t otherwise);
void hand_bytes(hand_grammar_t *h, uint32_t from, int lo, int hi, uint32_t to,
                bool counts);
void hand_call(hand_grammar_t *h, uint32_t from, uint32_t rule, uint32_t to,
               bool counts);
void hand_token(hand_grammar_t *h, uint32_t from, uint32_t id, uint32_t to);
void hand_tokens(hand_grammar_t *h, uint32_t from, uint32_t first,
                 uint32_t last, uint32_t to);
/** Adds states and edges that read a text. */
void hand_text(hand_grammar_t *h, uint32_t from, const char *text, uint32_t to);
/** Adds edges that read one character of UTF-8 but quote, backslash and
 *  controls. */
void hand_char(hand_grammar_t *h, uint32_t from, uint32_t to, bool counts);
/** Sorts the edges; rules with only BT_GRAMMAR_NO_LIMIT and 0 count nothing. */
const bt_grammar_t *hand_finish(hand_grammar_t *h);

typedef struct hand_random {
    uint32_t n_rules;     /**< at most */
    uint32_t n_states;    /**< of a rule, at most */
    uint32_t n_letters;   /**< of "abcdef…" */
    uint32_t max_count;   /**< of bounds, at most; 0: none */
    uint32_t n_token_ids; /**< ids of edges that take a token; 0: none */
} hand_random_t;

/** Returns a finished grammar that is drawn at random: without left recursion,
 *  and no rule but the root has the empty text. Rules may have no text at all,
 *  and counts may have gaps. */
hand_grammar_t *hand_random(uint64_t *rng, const hand_random_t *options);

#endif
