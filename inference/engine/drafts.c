/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/status.h"
#include "inference/engine/engine_priv.h"

/* Speculative decoding: what drafters propose, how much of it is verified
 * (common/sched/sched_draft.h), and what is learned from it. */

/* Returns how many drafts have space: drafts and their KV end before the last
 * token that may still be drawn, and with the last block. */
static uint32_t n_space(const bt_seq_t *seq)
{
    const uint32_t n_left = seq->max_new - seq->n_drawn - 1;
    uint32_t n_free;

    if (seq->sched.kv_limit == 0) {
        return n_left;
    }
    if (seq->sched.n_tokens > seq->sched.kv_limit) {
        return 0;
    }
    n_free = seq->sched.kv_limit - seq->sched.n_tokens;
    return (n_free < n_left) ? n_free : n_left;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return (a < b) ? a : b;
}

bool bt_engine_generates(const bt_seq_t *seq)
{
    return (seq->sched.n_tokens - seq->sched.n_computed == 1) &&
           (seq->sched.n_computed >= seq->n_prompt) &&
           !seq->leave_after_first && bt_sched_seq_may_run(&seq->sched);
}

uint32_t bt_engine_most_drafts(const bt_engine_t *engine, const bt_seq_t *seq)
{
    const uint32_t max = min_u32(min_u32(n_space(seq), BT_ENGINE_SEQ_DRAFTS),
                                 engine->config.max_drafts);

    return (seq->max_drafts != 0) ? min_u32(max, seq->max_drafts) : max;
}

/* Asks the sequence's drafter. */
static void propose_own(const bt_engine_t *engine, bt_seq_t *seq, uint32_t max)
{
    const uint32_t n = seq->sched.n_tokens;
    uint32_t n_valid = 0;

    seq->draft = seq->drafter.propose(seq->drafter.ctx, seq->tokens, n, max,
                                      &seq->tokens[n]);
    BT_ASSERT_ALWAYS((seq->draft.n <= max) &&
                     (seq->draft.source < BT_DRAFT_N_SOURCES));
    while ((n_valid < seq->draft.n) &&
           (seq->tokens[n + n_valid] < engine->n_vocab)) {
        n_valid++;
    }
    seq->draft.n = bt_engine_allowed_drafts(seq, n_valid);
}

/* True where each draft of a source has a match length of its own. */
static bool has_matches(bt_draft_source_t source)
{
    return (source == BT_DRAFT_MODEL) || (source == BT_DRAFT_GRAMMAR);
}

/* What the sequence has seen of a source. */
static bt_sched_acceptance_seq_t *acceptance_of(bt_seq_t *seq,
                                                bt_draft_source_t source)
{
    switch (source) {
    case BT_DRAFT_MODEL:
        return &seq->model_acceptance;
    case BT_DRAFT_GRAMMAR:
        return &seq->grammar_acceptance;
    default:
        return &seq->acceptance;
    }
}

static bt_sched_draft_offer_t offer_of(bt_seq_t *seq)
{
    const bt_draft_source_t source = seq->draft.source;

    return (bt_sched_draft_offer_t){
        .n = seq->draft.n,
        .n_matched = seq->draft.n_matched,
        .matches = has_matches(source) ? seq->matches : NULL,
        .source = source,
        .seq = acceptance_of(seq, source)};
}

/* Drafts by the grammar, where more of them are expected to be right than of
 * the drafter's, which are then kept aside. */
static void propose_by_grammar(const bt_engine_t *engine, bt_seq_t *seq,
                               uint32_t max)
{
    uint32_t *const drafts = &seq->tokens[seq->sched.n_tokens];
    bt_sched_draft_offer_t own = offer_of(seq);
    bt_sched_draft_offer_t offer;

    seq->aside = seq->draft;
    memcpy(seq->aside_ids, drafts, own.n * sizeof(*drafts));
    seq->draft = (bt_draft_t){.source = BT_DRAFT_GRAMMAR};
    seq->draft.n = bt_engine_draft_by_grammar(seq, max, seq->matches);
    offer = offer_of(seq);
    if ((offer.n == 0) ||
        ((own.n > 0) &&
         (bt_sched_draft_expected(&engine->acceptance, &own) >=
          bt_sched_draft_expected(&engine->acceptance, &offer)))) {
        seq->draft = seq->aside;
        seq->aside.n = 0;
        memcpy(drafts, seq->aside_ids, own.n * sizeof(*drafts));
    }
}

/* Stores a proposal behind the known tokens. */
static void propose(const bt_engine_t *engine, bt_seq_t *seq)
{
    const uint32_t max = bt_engine_most_drafts(engine, seq);

    seq->draft = seq->aside = (bt_draft_t){0};
    if (max == 0) {
        return;
    }
    if (seq->drafter.propose != NULL) {
        propose_own(engine, seq, max);
    }
    if (seq->grammar_drafts && bt_seq_has_grammar(seq)) {
        propose_by_grammar(engine, seq, max);
    }
}

/* Describes the iteration that the running sequences are in next, at most
 * n_most of those that generate. */
static bt_sched_draft_step_t step_of(const bt_engine_t *engine, uint32_t n_most)
{
    bt_sched_draft_step_t step = {.max_drafts = engine->config.max_drafts};
    bt_sched_step_t work = {0};

    BT_LIST_FOR_EACH_ENTRY(const bt_seq_t, seq, &engine->running,
                           sched.turn.link) {
        if (!bt_sched_seq_may_run(&seq->sched)) {
            continue;
        }
        if (bt_sched_seq_has_chunks(&seq->sched)) {
            step.has_chunks = true;
            continue;
        }
        if (work.n_seqs == n_most) {
            continue;
        }
        work.n_seqs++;
        work.reads += seq->sched.n_tokens;
        if ((seq->itl_us > 0) &&
            ((step.most_us <= 0) || ((double)seq->itl_us < step.most_us))) {
            step.most_us = (double)seq->itl_us;
        }
    }
    step.n_seqs = work.n_seqs;
    step.read_us = bt_sched_cost_reads_us(
        &engine->cost,
        (double)work.reads / ((work.n_seqs > 0) ? work.n_seqs : 1));
    step.read_us *= (double)engine->config.batch_drafter.read_share;
    if (step.has_chunks) {
        work.n_tokens = engine->chunk.alone.tokens;
        step.fixed_us = bt_sched_cost_step_us(&engine->cost, &work);
        step.row_us = bt_sched_cost_token_us(&engine->cost, 0);
    } else {
        step.fixed_us =
            bt_sched_cost_reads_us(&engine->cost, (double)work.reads);
        step.row_us = bt_sched_cost_row_us(&engine->cost);
    }
    return step;
}

/* Takes a fixed number of each offer. @return drafts taken of all */
static uint32_t take_fixed(const bt_engine_config_t *config,
                           bt_sched_draft_offer_t *offers, uint32_t n)
{
    uint32_t n_taken = 0;

    for (uint32_t i = 0; i < n; i++) {
        offers[i].n_taken = min_u32(min_u32(offers[i].n, config->fixed_drafts),
                                    config->max_drafts - n_taken);
        n_taken += offers[i].n_taken;
    }
    return n_taken;
}

static uint32_t take(const bt_engine_t *engine,
                     const bt_sched_draft_step_t *step,
                     bt_sched_draft_offer_t *offers, uint32_t n)
{
    return (engine->config.fixed_drafts > 0)
               ? take_fixed(&engine->config, offers, n)
               : bt_sched_draft_take(&engine->row_times, &engine->acceptance,
                                     step, offers, n);
}

/* Asks the drafters of the first n_most sequences that generate. */
static void propose_all(bt_engine_t *engine, uint32_t n_most)
{
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        seq->draft.n = seq->aside.n = 0;
        if (!bt_sched_seq_may_run(&seq->sched) ||
            bt_sched_seq_has_chunks(&seq->sched) || (n == n_most)) {
            continue;
        }
        n++;
        if ((seq->from_id == UINT32_MAX) && bt_engine_generates(seq)) {
            propose(engine, seq);
        }
    }
}

static uint32_t take_offers(bt_engine_t *engine,
                            const bt_sched_draft_step_t *step, uint32_t *n_p)
{
    bt_sched_draft_offer_t *offers = engine->offers;
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        if (seq->draft.n > 0) {
            offers[n++] = offer_of(seq);
        }
    }
    *n_p = n;
    return (n > 0) ? take(engine, step, offers, n) : 0;
}

uint32_t bt_engine_add_drafts(bt_engine_t *engine, uint32_t n_most)
{
    bt_sched_draft_step_t step;
    uint32_t n_taken;
    uint32_t n;

    if (engine->config.max_drafts == 0) {
        return 0;
    }
    propose_all(engine, n_most);
    step = step_of(engine, n_most);
    n_taken = take_offers(engine, &step, &n);
    if (bt_engine_run_rounds(engine, &step, engine->offers, n)) {
        n_taken = take_offers(engine, &step, &n);
    }
    n = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        if (seq->draft.n > 0) {
            seq->sched.n_drafts = engine->offers[n++].n_taken;
            seq->sched.n_tokens += seq->sched.n_drafts;
        }
    }
    return n_taken;
}

void bt_engine_drop_drafts(bt_seq_t *seq)
{
    seq->sched.n_tokens -= seq->sched.n_drafts;
    seq->sched.n_drafts = 0;
    seq->draft.n = seq->aside.n = 0;
}

/* Compares what was proposed for position i behind the known tokens with the
 * token that was drawn there. */
static void learn(bt_engine_t *engine, bt_seq_t *seq, uint32_t i,
                  uint32_t draft, uint32_t drawn)
{
    const bt_draft_source_t source = seq->draft.source;

    if (i < seq->draft.n) {
        bt_sched_acceptance_learn(
            &engine->acceptance, acceptance_of(seq, source), source,
            has_matches(source) ? seq->matches[i] : seq->draft.n_matched + i,
            draft == drawn);
    }
    if (i < seq->aside.n) {
        bt_sched_acceptance_learn(&engine->acceptance, &seq->acceptance,
                                  seq->aside.source, seq->aside.n_matched + i,
                                  seq->aside_ids[i] == drawn);
        if (seq->aside_ids[i] != drawn) {
            seq->aside.n = 0;
        }
    }
}

static void count_accepted(bt_report_t *report, bt_seq_t *seq, uint32_t i)
{
    seq->n_accepted++;
    report->drafts.n_accepted[seq->draft.source]++;
    report->drafts.n_accepted_at[i]++;
}

/* Where passes overlap on a device, a pass is planned before the last token of
 * its sequences is known, and no draft is proposed then. When that token is,
 * the drafter is asked what comes behind it, only to learn from it. */
static void propose_to_learn(const bt_engine_t *engine, bt_seq_t *seq)
{
    const bool is_drawn = (seq->sched.n_computed == seq->sched.n_tokens) &&
                          (seq->sched.n_tokens > seq->n_prompt) &&
                          !seq->leave_after_first;

    if (bt_model_chains(engine->config.model) && (seq->draft.n == 0) &&
        is_drawn) {
        propose(engine, seq);
    }
}

/* True when the rest of a proposal of which the first draft was right would be
 * verified: then it is worth waiting for the next token. */
static bool would_take(const bt_engine_t *engine, bt_seq_t *seq)
{
    bt_sched_draft_offer_t offer = offer_of(seq);
    bt_sched_draft_step_t step;

    if (!bt_model_chains(engine->config.model) || (offer.n < 2)) {
        return false;
    }
    offer.n--;
    offer.n_matched++;
    offer.matches += (offer.matches != NULL) ? 1 : 0;
    step = step_of(engine, UINT32_MAX);
    return take(engine, &step, &offer, 1) > 0;
}

/* A draft behind the verified ones teaches as well: the token that is drawn
 * there is known. */
void bt_engine_draw_drafts(bt_engine_t *engine, bt_report_t *report,
                           bt_seq_t *seq, float *logits)
{
    const uint32_t n_drafts = seq->sched.n_drafts;
    const uint32_t n_known = seq->sched.n_tokens - n_drafts;
    bool right = true;

    if (n_drafts > 0) {
        seq->n_drafted += n_drafts;
        report->drafts.n_steps++;
        report->drafts.n_drafted[seq->draft.source] += n_drafts;
    } else {
        propose_to_learn(engine, seq);
    }
    seq->sched.n_drafts = 0;
    seq->sched.n_tokens = n_known;
    for (uint32_t i = 0; (i <= n_drafts) && right && bt_engine_goes_on(seq);
         i++) {
        const uint32_t draft = seq->tokens[n_known + i];

        seq->sched.n_computed = n_known + i;
        bt_engine_draw(engine, report, seq, 0,
                       logits + (size_t)i * engine->n_vocab);
        if (seq->grammar.has_failed) {
            break;
        }
        right = seq->tokens[n_known + i] == draft;
        learn(engine, seq, i, draft, seq->tokens[n_known + i]);
        if ((i < n_drafts) && right) {
            count_accepted(report, seq, i);
        }
    }
    seq->sched.n_computed = seq->sched.n_tokens - 1;
    seq->grammar.n_counted = seq->sched.n_tokens - 1;
    bt_engine_tell_computed(engine, seq, n_known - 1, logits);
    if (n_drafts == 0) {
        seq->wants_drafts = right && would_take(engine, seq);
    }
    seq->draft.n = seq->aside.n = 0;
}
