/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sched/sched_chunk.h"

#include "common/base/status.h"

#define WASTE_PART 40.0 /* the fixed cost is one of this many parts */
#define WASTE_MOST 10.0 /* or of this many, at least */
#define HALF_EACH  32u

/* Down to whole blocks, and into the range. */
static uint32_t to_range(const bt_sched_chunk_t *chunk, double tokens)
{
    const uint32_t most = chunk->max_tokens;
    uint32_t n = (tokens < most) ? (tokens > 0 ? (uint32_t)tokens : 0) : most;

    n -= n % chunk->tokens_per_block;
    if (n < chunk->tokens_per_block) {
        n = chunk->tokens_per_block;
    }
    return (n < most) ? n : most;
}

void bt_sched_chunk_init(bt_sched_chunk_t *chunk, bool is_fixed,
                         uint32_t max_tokens, uint32_t tokens_per_block,
                         uint32_t itl_us)
{
    BT_ASSERT((max_tokens >= tokens_per_block) && (itl_us > 0));
    *chunk = (bt_sched_chunk_t){
        .is_fixed = is_fixed,
        .max_tokens = max_tokens,
        .tokens_per_block = tokens_per_block,
        .itl_us = itl_us,
    };
    chunk->alone.tokens =
        is_fixed ? max_tokens : to_range(chunk, BT_SCHED_CHUNK_FIRST);
    chunk->beside.tokens = to_range(chunk, tokens_per_block);
}

static double max_double(double a, double b)
{
    return (a > b) ? a : b;
}

/* Best size when no sequence generates. */
static uint32_t want_alone(const bt_sched_chunk_t *chunk,
                           const bt_sched_cost_t *cost, uint32_t position,
                           double token_us)
{
    const double fixed_us = bt_sched_cost_fixed_us(cost, position);
    const double thrifty = (WASTE_PART - 1) * fixed_us / token_us;
    const double wasteful = (WASTE_MOST - 1) * fixed_us / token_us;
    const double quick = (BT_SCHED_CHUNK_QUICK_US - fixed_us) / token_us;
    const double slow = (BT_SCHED_CHUNK_SLOW_US - fixed_us) / token_us;
    double tokens = (slow < thrifty) ? slow : thrifty;

    tokens = max_double(tokens, max_double(wasteful, quick));
    tokens = max_double(
        tokens, (slow < BT_SCHED_CHUNK_FEW) ? slow : BT_SCHED_CHUNK_FEW);
    return to_range(chunk, max_double(tokens, BT_SCHED_CHUNK_LEAST));
}

/* Best size beside generating sequences. */
static uint32_t want_beside(const bt_sched_chunk_t *chunk,
                            const bt_sched_cost_t *cost,
                            const bt_sched_step_t *step, uint32_t position,
                            double token_us)
{
    const double most_us =
        max_double(chunk->itl_us, 2 * bt_sched_cost_step_us(cost, step));
    /* The line of iterations with chunks, at none. */
    bt_sched_step_t least = *step;
    double empty_us;

    least.n_tokens = 1;
    least.reads += position;
    empty_us = bt_sched_cost_step_us(cost, &least);
    return to_range(chunk, 1 + (most_us - empty_us) / token_us);
}

static void settle(bt_sched_chunk_size_t *size, uint32_t want,
                   bool less_at_once, bool more_at_once)
{
    const bool less = want < size->tokens - size->tokens / 5;
    const bool more = want > size->tokens + size->tokens / 4;

    if (more) {
        size->n_votes = (size->n_votes > 0) ? size->n_votes + 1 : 1;
    } else if (less) {
        size->n_votes = (size->n_votes < 0) ? size->n_votes - 1 : -1;
    } else {
        size->n_votes = 0;
    }
    if ((size->n_votes >= BT_SCHED_CHUNK_VOTES) ||
        (size->n_votes <= -BT_SCHED_CHUNK_VOTES) || (less && less_at_once) ||
        (more && more_at_once)) {
        size->tokens = want;
        size->n_votes = 0;
    }
}

uint32_t bt_sched_chunk_tokens(bt_sched_chunk_t *chunk,
                               const bt_sched_cost_t *cost,
                               const bt_sched_step_t *step, uint32_t position)
{
    /* A token that costs nothing is one that was not measured. */
    const double token_us =
        max_double(bt_sched_cost_token_us(cost, position), 0.01);
    const bool is_young = chunk->n_alone < BT_SCHED_CHUNK_YOUNG;

    if (chunk->is_fixed) {
        return chunk->max_tokens;
    }
    if (step->n_seqs > 0) {
        settle(&chunk->beside,
               want_beside(chunk, cost, step, position, token_us), true, false);
        return chunk->beside.tokens;
    }
    settle(&chunk->alone, want_alone(chunk, cost, position, token_us), is_young,
           is_young);
    chunk->n_alone++;
    return (chunk->n_alone % HALF_EACH == 0)
               ? to_range(chunk, chunk->alone.tokens / 2.0)
               : chunk->alone.tokens;
}
