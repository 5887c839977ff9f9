/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "inference/engine/engine_priv.h"
#include "inference/model/logits.h"

/* Masks of sequences with a grammar: which tokens may come next. Where an
 * answer is in its grammar follows from its tokens alone, so draws, drafts, and
 * answers that are computed again all see equal masks.
 *
 * Where a grammar leaves no choice, it drafts the next tokens. The model may
 * cut equal text into other tokens, and draws each of them itself. */

/* Most bytes of drafts. */
#define FORCED_BYTES 128u

/* Moves a cursor behind the first n_tokens of a sequence.
 * @return false: no text of the grammar begins so, or a limit is reached */
static bool move(const bt_seq_t *seq, bt_matcher_cursor_t *cursor,
                 uint32_t n_tokens)
{
    return (n_tokens >= seq->n_prompt) &&
           bt_matcher_move(seq->grammar.matcher, cursor,
                           seq->tokens + seq->n_prompt,
                           n_tokens - seq->n_prompt);
}

static void set(uint64_t *mask, uint32_t id, bool has, uint32_t *n_p)
{
    const uint64_t bit = 1ull << (id % 64);
    const bool had = (mask[id / 64] & bit) != 0;

    mask[id / 64] = has ? mask[id / 64] | bit : mask[id / 64] & ~bit;
    *n_p += (has && !had) ? 1 : 0;
    *n_p -= (had && !has) ? 1 : 0;
}

/* Lets the request's end ids end an answer, in place of the model's. An end id
 * that is text may also stand in an answer that is not whole, and cuts it as a
 * stop word does. */
static void set_end_ids(const bt_seq_t *seq, uint64_t *mask, bool accepts,
                        uint32_t *n_p)
{
    const bt_token_trie_t *const trie = seq->grammar.trie;

    for (uint32_t i = 0; i < trie->n_end_ids; i++) {
        set(mask, trie->end_ids[i], false, n_p);
    }
    for (uint32_t i = 0; accepts && (i < seq->sampling.n_end_ids); i++) {
        if (seq->sampling.end_ids[i] < trie->n_vocab) {
            set(mask, seq->sampling.end_ids[i], true, n_p);
        }
    }
}

/* Returns the tokens of the grammar behind the first n_tokens; where the text
 * must be whole, those behind which it can be, with a token for each byte. */
static const uint64_t *next_tokens(bt_seq_t *seq, bt_matcher_cursor_t *cursor,
                                   uint32_t n_tokens, uint32_t *n_p)
{
    const uint32_t n_answer = n_tokens - seq->n_prompt;
    const uint32_t most = seq->grammar.max_tokens;

    if (most == 0) {
        return bt_matcher_mask(seq->grammar.matcher, cursor, n_p);
    }
    return bt_matcher_mask_within(
        seq->grammar.matcher, cursor,
        (n_answer + 1 < most) ? most - n_answer - 1 : 0, n_p);
}

/* Makes the mask of the token behind the first n_tokens.
 * @return number of its tokens; 0: the grammar cannot be followed */
static uint32_t make_mask(bt_seq_t *seq, bt_matcher_cursor_t *cursor,
                          uint32_t n_tokens, uint64_t *mask)
{
    bt_matcher_t *const matcher = seq->grammar.matcher;
    const uint64_t *words = NULL;
    uint32_t n = 0;
    bool accepts;

    if (!move(seq, cursor, n_tokens)) {
        return 0;
    }
    accepts = bt_matcher_accepts(matcher, cursor->state);
    words = next_tokens(seq, cursor, n_tokens, &n);
    if (words != NULL) {
        memcpy(mask, words, seq->grammar.trie->n_words * sizeof(*mask));
    } else if (accepts && (seq->grammar.trie->n_end_ids == 0)) {
        memset(mask, 0, seq->grammar.trie->n_words * sizeof(*mask));
    } else {
        return 0;
    }
    set_end_ids(seq, mask, accepts, &n);
    return n;
}

uint32_t bt_seq_mask(bt_seq_t *seq, uint32_t n_tokens, uint64_t *mask)
{
    const uint64_t start_ns = bt_now_ns();
    const bt_matcher_stats_t *const stats =
        bt_matcher_stats(seq->grammar.matcher);
    const uint64_t hits = stats->mask_hits;
    bt_matcher_cursor_t cursor = seq->grammar.cursor;
    const uint32_t n = make_mask(seq, &cursor, n_tokens, mask);

    if (n_tokens + seq->sched.n_drafts <= seq->sched.n_tokens) {
        seq->grammar.cursor = cursor; /* else behind drafts */
    }
    if (n_tokens > seq->grammar.n_counted) {
        seq->grammar.n_counted = n_tokens;
        seq->grammar.counts.n_masks++;
        seq->grammar.counts.n_hits += (stats->mask_hits > hits) ? 1 : 0;
    }
    seq->grammar.counts.ns += bt_now_ns() - start_ns;
    return n;
}

/* True when a draw reads no logits but those of the mask: penalties and biases
 * change each logit by itself, and what follows sees only the mask's. */
static bool draws_from_mask(const bt_seq_t *seq, uint32_t position)
{
    return bt_seq_has_grammar(seq) && (position + 1 >= seq->n_prompt) &&
           bt_list_empty(&seq->followers) && (seq->beams == NULL) &&
           !bt_engine_wants_row(seq, position) &&
           ((seq->n_processors == 0) ||
            ((seq->n_processors == 1) &&
             (bt_logit_biases_of(&seq->processors[0]) != NULL)));
}

bool bt_engine_list_ids(bt_engine_t *engine, bt_seq_t *seq, uint32_t position)
{
    bt_pass_t *const pass = engine->pass;
    uint64_t *const mask = bt_sampler_mask(engine->sampler);
    uint32_t *at;
    uint32_t n;

    if ((pass->first_ids == NULL) || !draws_from_mask(seq, position)) {
        return false;
    }
    n = bt_seq_mask(seq, position + 1, mask);
    if ((n == 0) || (n > BT_MODEL_MAX_IDS)) {
        return false;
    }
    at = &pass->first_ids[pass->n_logit_rows];
    at[1] = at[0];
    if (n > 1) {
        at[1] += bt_token_mask_list(mask, 64 * seq->grammar.trie->n_words,
                                    BT_MODEL_MAX_IDS, &pass->ids[at[1]]);
    }
    return true;
}

static bool ends_model(const bt_token_trie_t *trie, uint32_t id)
{
    bool ends = false;

    for (uint32_t i = 0; i < trie->n_end_ids; i++) {
        ends = ends || (trie->end_ids[i] == id);
    }
    return ends;
}

uint32_t bt_engine_allowed_drafts(bt_seq_t *seq, uint32_t n)
{
    const uint32_t n_known = seq->sched.n_tokens;
    bt_matcher_cursor_t cursor = seq->grammar.cursor;
    uint32_t i = 0;

    if ((seq->grammar.matcher == NULL) || (n == 0)) {
        return n;
    }
    if (!move(seq, &cursor, n_known)) {
        return 0;
    }
    seq->grammar.cursor = cursor;
    while (i < n) {
        const uint32_t id = seq->tokens[n_known + i];
        const bool ends = bt_engine_is_end_id(&seq->sampling, id);

        if (ends && bt_matcher_accepts(seq->grammar.matcher, cursor.state)) {
            return i + 1;
        }
        if (ends_model(seq->grammar.trie, id) ||
            !move(seq, &cursor, n_known + i + 1)) {
            return i;
        }
        i++;
        if (ends) {
            return i;
        }
    }
    return n;
}

/* Bytes that every continuation begins with. */
typedef struct forced {
    uint8_t bytes[FORCED_BYTES];
    size_t n;
    size_t at; /* behind the drafts so far */
} forced_t;

/* Finds the longest token that the forced bytes begin with.
 * @param [out] match_p  written on success
 * @return its id; no_token: none */
static uint32_t longest_token(const bt_token_trie_t *trie, forced_t *f,
                              uint8_t *match_p)
{
    const bt_trie_part_t *const part = &trie->all;
    const uint8_t *const bytes = &f->bytes[f->at];
    const size_t n = f->n - f->at;
    uint32_t id = trie->no_token;
    uint32_t node = part->first[bytes[0]];
    uint32_t end = part->first[bytes[0] + 1];
    uint32_t n_tokens = 0; /* that the bytes begin with */
    size_t n_bytes = 0;    /* of the longest */
    size_t depth = 0;

    while ((depth < n) && (node < end)) {
        const bt_trie_node_t *const at = &part->nodes[node];

        if (at->byte != bytes[depth]) {
            node += at->skip;
            continue;
        }
        depth++;
        if (at->token > trie->no_token) { /* of several take the first */
            const uint32_t alias = at->token - trie->no_token - 1;

            id = trie->alias_ids[trie->alias_first[alias]];
            n_tokens += 2;
            n_bytes = depth;
        } else if (at->token < trie->no_token) {
            id = at->token;
            n_tokens++;
            n_bytes = depth;
        }
        end = node + at->skip;
        node++;
    }
    if (id != trie->no_token) {
        if ((depth == n) && (node < end)) {
            *match_p = BT_SCHED_DRAFT_LONGER;
        } else if (n_tokens == 1) {
            *match_p = BT_SCHED_DRAFT_ONLY;
        }
        f->at += n_bytes;
    }
    return id;
}

/* Returns the token that alone may come where no byte leads on: an end id, or a
 * token that the grammar takes by its id.
 * @return no_token: there are several, or none */
static uint32_t only_token(const bt_seq_t *seq, bt_matcher_cursor_t *cursor)
{
    const bt_token_trie_t *const trie = seq->grammar.trie;
    const bool ends = bt_matcher_accepts(seq->grammar.matcher, cursor->state);
    const uint64_t *words;
    uint32_t n = 0;

    if (bt_matcher_reads_bytes(seq->grammar.matcher, cursor->state)) {
        return trie->no_token;
    }
    words = bt_matcher_mask(seq->grammar.matcher, cursor, &n);
    if (ends) {
        return ((n == trie->n_end_ids) && (seq->sampling.n_end_ids == 1) &&
                (seq->sampling.end_ids[0] < trie->n_vocab))
                   ? seq->sampling.end_ids[0]
                   : trie->no_token;
    }
    for (uint32_t i = 0; (words != NULL) && (n == 1) && (i < trie->n_words);
         i++) {
        if (words[i] != 0) {
            return i * 64 + (uint32_t)__builtin_ctzll(words[i]);
        }
    }
    return trie->no_token;
}

uint32_t bt_engine_draft_by_grammar(bt_seq_t *seq, uint32_t max,
                                    uint8_t *matches)
{
    const bt_token_trie_t *const trie = seq->grammar.trie;
    bt_matcher_t *const matcher = seq->grammar.matcher;
    const uint32_t n_known = seq->sched.n_tokens;
    bt_matcher_cursor_t cursor = seq->grammar.cursor;
    forced_t forced = {.n = 0};
    bool is_whole = false;
    uint32_t i = 0;

    if (!move(seq, &cursor, n_known)) {
        return 0;
    }
    seq->grammar.cursor = cursor;
    while ((i < max) && !is_whole) {
        uint8_t match = (i == 0) ? BT_SCHED_DRAFT_FIRST : BT_SCHED_DRAFT_INNER;
        uint32_t id;

        if (forced.at == forced.n) {
            forced.at = 0;
            forced.n = bt_matcher_forced(matcher, cursor.state, forced.bytes,
                                         FORCED_BYTES);
        }
        if (forced.n > 0) {
            id = longest_token(trie, &forced, &match);
        } else {
            id = only_token(seq, &cursor);
            match = BT_SCHED_DRAFT_ONLY;
        }
        if (id == trie->no_token) {
            break;
        }
        is_whole = bt_engine_is_end_id(&seq->sampling, id);
        seq->tokens[n_known + i] = id;
        if (!is_whole && !move(seq, &cursor, n_known + i + 1)) {
            break;
        }
        if (!is_whole && (match == BT_SCHED_DRAFT_LONGER) &&
            !bt_matcher_reads_bytes(matcher, cursor.state)) {
            match = BT_SCHED_DRAFT_INNER; /* nothing can make it longer */
        }
        matches[i++] = match;
    }
    return i;
}
