/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/engine/beams_priv.h"
#include "inference/engine/engine_priv.h"
#include "inference/model/logits.h"

/* ---- blocks ---- */

/* Takes a free block for this span of a beam. There is one: own blocks are as
 * many as all beams can hold without sharing any. */
static void take_block(bt_beams_t *beams, bt_beam_seat_t *seat, uint32_t span)
{
    uint32_t number;

    BT_ASSERT_ALWAYS(beams->n_free > 0);
    number = beams->free[--beams->n_free];
    beams->n_refs[number] = 1;
    seat->numbers[span] = number;
    seat->blocks[span] = beams->own[number];
}

static void return_blocks(bt_beams_t *beams, const bt_beam_seat_t *seat,
                          uint32_t end)
{
    for (uint32_t span = beams->n_shared; span < end; span++) {
        const uint32_t number = seat->numbers[span];

        if (--beams->n_refs[number] == 0) {
            beams->free[beams->n_free++] = number;
        }
    }
}

static void share_block(bt_beams_t *beams, const bt_beam_seat_t *from,
                        bt_beam_seat_t *to, uint32_t span)
{
    to->numbers[span] = from->numbers[span];
    to->blocks[span] = from->blocks[span];
    beams->n_refs[to->numbers[span]]++;
}

/* Makes one beam from the prompt. Its last, partly filled block is the first of
 * the own ones. */
static void begin(bt_beams_t *beams, const bt_seq_t *seq)
{
    const uint32_t width = beams->config.params.width;
    bt_beam_seat_t *first = &beams->seats[0];

    bt_sched_beams_init(&beams->search, &beams->config.params,
                        beams->config.max_new);
    beams->own = seq->blocks + beams->n_shared;
    beams->n_free = 0;
    for (uint32_t i = beams->n_own; i > 0; i--) {
        beams->free[beams->n_free++] = i - 1;
    }
    memset(beams->n_refs, 0, beams->n_own * sizeof(*beams->n_refs));
    for (uint32_t i = 0; i < width; i++) {
        beams->seat_of[i] = i;
        memcpy(beams->seats[i].blocks, seq->blocks,
               beams->n_shared * sizeof(*seq->blocks));
    }
    if (beams->config.n_tokens % beams->config.tokens_per_block != 0) {
        take_block(beams, first, beams->n_shared);
    }
    beams->has_begun = true;
}

/* ---- candidates ---- */

/* True where penalties, biases or bans change the log-probs of a row. */
static bool is_changed(const bt_seq_t *seq)
{
    const bt_sampling_t *sampling = &seq->sampling;

    return bt_sampler_penalizes(sampling) || (sampling->n_bad_words > 0) ||
           (seq->n_processors > 0) || bt_sampling_has_processors(sampling) ||
           (seq->beams->search.length < sampling->min_tokens);
}

/* Makes the log-probs of a row in engine->row, as changed for this beam. */
static void change_row(bt_engine_t *engine, const bt_seq_t *seq,
                       const uint32_t *tokens, const float *logits, double sum)
{
    const uint32_t n = seq->sched.n_tokens;
    const bt_history_t history = {
        .tokens = tokens, .n = n, .n_prompt = seq->n_prompt};

    for (uint32_t i = 0; i < engine->n_vocab; i++) {
        engine->row[i] = (float)((double)logits[i] - sum);
    }
    for (uint32_t i = 0; i < seq->n_processors; i++) {
        seq->processors[i].apply(seq->processors[i].ctx, tokens, n, engine->row,
                                 engine->n_vocab);
    }
    bt_sampler_change(engine->sampler, &seq->sampling, engine->row, &history,
                      NULL);
}

/* Appends the best candidates of a beam. @return number of all so far */
static uint32_t add_candidates(bt_engine_t *engine, const bt_seq_t *seq,
                               uint32_t beam, const float *logits, uint32_t n)
{
    bt_beams_t *beams = seq->beams;
    const double sum = bt_logprob_sum(logits, engine->n_vocab);
    const bool changed = is_changed(seq);
    uint32_t n_best;

    if (!isfinite(sum)) {
        return n;
    }
    if (changed) {
        change_row(engine, seq, beams->seats[beams->seat_of[beam]].tokens,
                   logits, sum);
    }
    n_best = bt_select_first(changed ? engine->row : logits, engine->n_vocab,
                             bt_beams_needs(beams), beams->list);
    for (uint32_t i = 0; i < n_best; i++) {
        const bt_candidate_t best = beams->list[i];
        const double logprob = (double)logits[best.id] - sum;

        beams->candidates[n++] = (bt_sched_beam_candidate_t){
            .sum = beams->search.sums[beam] +
                   (changed ? (double)best.logit : logprob),
            .logprob = logprob,
            .beam = beam,
            .id = best.id,
            .ends = bt_engine_is_end_id(&seq->sampling, best.id),
        };
    }
    return n;
}

/* ---- a step ---- */

/* Stores the answers of a step, before its beams move. */
static void store_answers(bt_beams_t *beams, const bt_sched_beam_step_t *step)
{
    const uint32_t length = beams->search.length; /* of these answers */

    for (uint32_t i = 0; i < step->n_kept; i++) {
        const bt_sched_beam_candidate_t *c = &beams->candidates[step->kept[i]];
        const bt_beam_seat_t *seat = &beams->seats[beams->seat_of[c->beam]];
        const size_t at = (size_t)step->slots[i] * beams->config.max_new;
        uint32_t *ids = beams->answer_ids + at;
        double *logprobs = beams->answer_logprobs + at;

        memcpy(ids, seat->tokens + beams->config.n_tokens,
               (length - 1) * sizeof(*ids));
        memcpy(logprobs, seat->logprobs, (length - 1) * sizeof(*logprobs));
        ids[length - 1] = c->id;
        logprobs[length - 1] = c->logprob;
    }
}

/* Makes a second beam of one whose n_computed tokens have KV. */
static void fork_seat(bt_engine_t *engine, bt_beams_t *beams,
                      const bt_beam_seat_t *from, bt_beam_seat_t *to,
                      uint32_t n_computed)
{
    const uint32_t per_block = beams->config.tokens_per_block;
    const uint32_t n_prompt = beams->config.n_tokens;
    const uint32_t n_old = beams->search.length - 1;
    const uint32_t n_whole = n_computed / per_block;

    memcpy(to->tokens + n_prompt, from->tokens + n_prompt,
           n_old * sizeof(*to->tokens));
    memcpy(to->logprobs, from->logprobs, n_old * sizeof(*to->logprobs));
    for (uint32_t span = beams->n_shared; span < n_whole; span++) {
        share_block(beams, from, to, span);
    }
    if (n_computed % per_block != 0) {
        take_block(beams, to, n_whole);
        bt_model_copy_block(engine->config.model, &engine->config.kv,
                            from->blocks[n_whole], to->blocks[n_whole]);
    }
}

/* Moves the beams to those of the next step. The first one that continues a
 * beam takes over its seat; seats that nobody continues are free for the
 * others. */
static void move_beams(bt_engine_t *engine, bt_beams_t *beams,
                       uint32_t n_before, uint32_t n_computed,
                       const bt_sched_beam_step_t *step)
{
    const uint32_t width = beams->config.params.width;
    const uint32_t n_spans =
        bt_kv_blocks_for(n_computed, beams->config.tokens_per_block);
    bool is_continued[BT_SCHED_MAX_BEAMS] = {false};
    uint32_t spare[BT_SCHED_MAX_BEAMS];
    uint32_t n_spare = 0;
    bool is_taken[BT_SCHED_MAX_BEAMS] = {false};

    for (uint32_t i = 0; i < step->n_next; i++) {
        is_continued[beams->candidates[step->next[i]].beam] = true;
    }
    for (uint32_t i = width; i > 0; i--) {
        if ((i - 1 < n_before) && is_continued[i - 1]) {
            continue;
        }
        spare[n_spare++] = beams->seat_of[i - 1];
        if (i - 1 < n_before) {
            return_blocks(beams, &beams->seats[beams->seat_of[i - 1]], n_spans);
        }
    }
    for (uint32_t i = 0; i < step->n_next; i++) {
        const uint32_t from = beams->candidates[step->next[i]].beam;
        const uint32_t seat = beams->seat_of[from];

        if (!is_taken[from]) {
            is_taken[from] = true;
            beams->moved_to[i] = seat;
        } else {
            beams->moved_to[i] = spare[--n_spare];
            fork_seat(engine, beams, &beams->seats[seat],
                      &beams->seats[beams->moved_to[i]], n_computed);
        }
    }
    for (uint32_t i = step->n_next; i < width; i++) {
        beams->moved_to[i] = spare[--n_spare];
    }
    memcpy(beams->seat_of, beams->moved_to, width * sizeof(*beams->seat_of));
}

/* Appends its token to each beam, and the block that this token needs. */
static void append_tokens(bt_beams_t *beams, uint32_t n_computed,
                          const bt_sched_beam_step_t *step)
{
    const uint32_t per_block = beams->config.tokens_per_block;

    for (uint32_t i = 0; i < step->n_next; i++) {
        const bt_sched_beam_candidate_t *c = &beams->candidates[step->next[i]];
        bt_beam_seat_t *seat = &beams->seats[beams->seat_of[i]];

        seat->tokens[n_computed] = c->id;
        seat->logprobs[beams->search.length - 1] = c->logprob;
        if (n_computed % per_block == 0) {
            take_block(beams, seat, n_computed / per_block);
        }
    }
}

/* ---- for the engine ---- */

uint32_t bt_engine_n_beams(const bt_seq_t *seq)
{
    return seq->beams->has_begun ? seq->beams->search.n : 1;
}

bool bt_engine_has_beams(const bt_seq_t *seq)
{
    return (seq->beams != NULL) && seq->beams->has_begun;
}

const uint32_t *bt_engine_beam_blocks(const bt_seq_t *seq, uint32_t beam)
{
    return seq->beams->seats[seq->beams->seat_of[beam]].blocks;
}

uint32_t bt_engine_beam_token(const bt_seq_t *seq, uint32_t beam)
{
    return seq->beams->seats[seq->beams->seat_of[beam]]
        .tokens[seq->sched.n_computed];
}

void bt_engine_forget_beams(bt_seq_t *seq)
{
    const uint32_t n_tokens = seq->beams->config.n_tokens;

    seq->beams->has_begun = false;
    seq->sched.n_tokens = n_tokens;
    if (seq->sched.n_computed > n_tokens) {
        seq->sched.n_computed = n_tokens;
    }
}

float *bt_engine_step_beams(bt_engine_t *engine, bt_report_t *report,
                            bt_seq_t *seq, float *logits)
{
    bt_beams_t *beams = seq->beams;
    const uint32_t n_computed = seq->sched.n_computed;
    bt_sched_beam_step_t step;
    uint32_t n = 0;
    uint32_t n_before;

    if (!beams->has_begun) {
        begin(beams, seq);
        seq->n_drawn = 0;
    }
    n_before = beams->search.n;
    for (uint32_t beam = 0; beam < n_before; beam++) {
        n = add_candidates(engine, seq, beam, logits, n);
        logits += engine->n_vocab;
    }
    bt_sched_beams_step(&beams->search, beams->candidates, n, &step);
    store_answers(beams, &step);
    seq->n_drawn++;
    bt_engine_pace(seq);
    if (step.goes_on) {
        move_beams(engine, beams, n_before, n_computed, &step);
        append_tokens(beams, n_computed, &step);
        seq->sched.n_tokens++;
    } else {
        bt_engine_leave(report, seq,
                        (beams->search.n_answers == 0)  ? BT_FINISH_ERROR
                        : beams->search.answers[0].ends ? BT_FINISH_STOP
                                                        : BT_FINISH_LENGTH);
    }
    return logits;
}
