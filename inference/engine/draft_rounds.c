/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "inference/engine/engine_priv.h"

/* Speculative decoding with a draft model or a head: rounds in which it drafts
 * for many sequences at a time, and what it computes of them before. */

/* State of the rounds of one iteration. */
struct bt_drafting {
    bt_sched_chain_t *chains; /* [max_seqs] */
    bt_seq_t **seqs;          /* [max_seqs] of the chains */
    bt_sched_lag_t *lags;     /* [max_seqs] of the chains */
    bt_next_draft_t *next;    /* [max_seqs] of a round */
    uint32_t *chain_of;       /* [max_seqs] chain of each of next */
    const bt_sched_draft_offer_t **beside; /* [max_seqs] offers that are kept */
    uint32_t n_beside;
    uint32_t n;      /* chains */
    uint32_t n_next; /* sequences that were looked at */
    bt_taps_t taps;  /* hidden: that the drafter reads; NULL: none */
};

static uint32_t taps_width(const bt_engine_t *engine)
{
    const bt_taps_t *taps = &engine->config.batch_drafter.taps;

    return (taps->n + (taps->normed ? 1 : 0)) *
           bt_model_hparams(engine->config.model)->dim;
}

static bt_status_t alloc_taps(bt_engine_t *engine)
{
    const bt_engine_config_t *config = &engine->config;
    bt_taps_t *taps = &engine->drafting->taps;

    if (config->batch_drafter.computed == NULL) {
        return BT_OK;
    }
    *taps = config->batch_drafter.taps;
    taps->hidden = bt_calloc(
        bt_engine_max_logit_rows(config->max_seqs, config->max_drafts),
        taps_width(engine) * sizeof(float));
    return (taps->hidden != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

const bt_taps_t *bt_engine_taps(const bt_engine_t *engine)
{
    const struct bt_drafting *d = engine->drafting;

    return ((d != NULL) && (d->taps.hidden != NULL) &&
            (engine->config.batch_drafter.draft != NULL))
               ? &d->taps
               : NULL;
}

bt_status_t bt_engine_alloc_rounds(bt_engine_t *engine)
{
    const uint32_t n = engine->config.max_seqs;
    struct bt_drafting *d;

    if (engine->config.batch_drafter.draft == NULL) {
        return BT_OK;
    }
    d = engine->drafting = bt_calloc(1, sizeof(*d));
    if (d == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    d->chains = bt_calloc(n, sizeof(*d->chains));
    d->seqs = bt_calloc(n, sizeof(bt_seq_t *));
    d->lags = bt_calloc(n, sizeof(*d->lags));
    d->next = bt_calloc(n, sizeof(*d->next));
    d->chain_of = bt_calloc(n, sizeof(*d->chain_of));
    d->beside = bt_calloc(n, sizeof(const bt_sched_draft_offer_t *));
    return ((d->chains != NULL) && (d->seqs != NULL) && (d->lags != NULL) &&
            (d->next != NULL) && (d->chain_of != NULL) && (d->beside != NULL))
               ? alloc_taps(engine)
               : BT_ERR_NO_MEMORY;
}

void bt_engine_free_rounds(bt_engine_t *engine)
{
    struct bt_drafting *d = engine->drafting;

    if (d != NULL) {
        bt_free(d->chains);
        bt_free(d->seqs);
        bt_free(d->lags);
        bt_free(d->next);
        bt_free(d->chain_of);
        bt_free(d->beside);
        bt_free(d->taps.hidden);
        bt_free(d);
    }
}

/* True where the model's next draft is more likely right than the proposal that
 * the sequence has. */
static bool is_better(const bt_engine_t *engine,
                      const bt_sched_draft_offer_t *offer, float acceptance)
{
    return (offer == NULL) || (offer->n_taken == 0) ||
           (engine->config.fixed_drafts > 0) ||
           (bt_sched_acceptance_of(
                &engine->acceptance, offer->seq, offer->source,
                (offer->matches != NULL) ? offer->matches[0]
                                         : offer->n_matched) < acceptance);
}

/* Asks the drafter which rows all sequences lack that it may draft for, also
 * those that have better drafts in this iteration. */
static void look_at_rows(bt_engine_t *engine)
{
    const bt_batch_drafter_t *drafter = &engine->config.batch_drafter;
    struct bt_drafting *d = engine->drafting;

    d->n_next = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        if (seq->model_drafts && bt_engine_generates(seq)) {
            d->next[d->n_next++] = (bt_next_draft_t){.seq = seq, .n_rows = 1};
        }
    }
    if ((drafter->count_rows != NULL) && (d->n_next > 0)) {
        drafter->count_rows(drafter->ctx, d->next, d->n_next);
    }
}

static void add_chain(struct bt_drafting *d, bt_seq_t *seq, uint32_t most,
                      float acceptance, uint32_t n_rows)
{
    const bool lags = n_rows > BT_ENGINE_ROUND_ROWS;

    d->seqs[d->n] = seq;
    d->lags[d->n] = (bt_sched_lag_t){.n_missing = lags ? n_rows - 1 : 0,
                                     .n_left = seq->max_new - seq->n_drawn};
    d->chains[d->n++] =
        (bt_sched_chain_t){.most = most,
                           .acceptance = acceptance,
                           .survival = 1,
                           .lags = lags,
                           .n_more_rows = lags ? 0 : n_rows - 1};
}

/* Returns the most drafts of a sequence: a draft takes a row of the position
 * before it. */
static uint32_t most_of(const bt_engine_t *engine, const bt_seq_t *seq,
                        uint32_t most_known)
{
    const uint32_t context = engine->config.batch_drafter.context_tokens;
    const uint32_t n_tokens = seq->sched.n_tokens;
    uint32_t most = bt_engine_most_drafts(engine, seq);

    most = (most < most_known) ? most : most_known;
    return ((context > 0) && (n_tokens + most > context + 1))
               ? context + 1 - n_tokens
               : most;
}

/* Finds the sequences that the model would draft for.
 * @return what the others have */
static bt_sched_beside_t find_chains(bt_engine_t *engine,
                                     const bt_sched_draft_step_t *step,
                                     const bt_sched_draft_offer_t *offers)
{
    struct bt_drafting *d = engine->drafting;
    const uint32_t most_seqs = engine->config.batch_drafter.max_seqs;
    const uint32_t most_known =
        (engine->config.fixed_drafts > 0)
            ? UINT32_MAX
            : bt_sched_acceptance_most(&engine->acceptance);
    uint32_t n_lagging = 0; /* that keep their offers */
    uint32_t k = 0;

    look_at_rows(engine);
    d->n = d->n_beside = 0;
    BT_LIST_FOR_EACH_ENTRY(bt_seq_t, seq, &engine->running, sched.turn.link) {
        const bool is_next = (k < d->n_next) && (d->next[k].seq == seq);
        const uint32_t n_rows = is_next ? d->next[k++].n_rows : 0;
        const bt_sched_draft_offer_t *offer =
            (seq->draft.n > 0) ? offers++ : NULL;
        const float acceptance = bt_sched_acceptance_model(
            &engine->acceptance, &seq->model_acceptance);
        uint32_t most = 0;

        if ((n_rows > 0) && (d->n < most_seqs) &&
            is_better(engine, offer, acceptance)) {
            most = most_of(engine, seq, most_known);
        }
        if (most > 0) {
            add_chain(d, seq, most, acceptance, n_rows);
        }
        if ((most > 0) && d->chains[d->n - 1].lags && (offer != NULL)) {
            d->chains[d->n - 1].expected = (double)offer->expected;
        }
        if ((offer != NULL) && ((most == 0) || d->chains[d->n - 1].lags)) {
            d->beside[d->n_beside++] = offer;
            n_lagging += (most > 0) ? 1 : 0;
        }
    }
    return bt_sched_beside_of(d->beside, d->n_beside,
                              step->n_seqs - d->n + n_lagging);
}

/* Keeps the proposal of the sequence's own drafter apart, if it is not already.
 */
static void set_aside(bt_seq_t *seq)
{
    if (seq->draft.source != BT_DRAFT_GRAMMAR) {
        seq->aside = seq->draft;
        memcpy(seq->aside_ids, &seq->tokens[seq->sched.n_tokens],
               seq->draft.n * sizeof(*seq->aside_ids));
    }
    seq->draft = (bt_draft_t){.source = BT_DRAFT_MODEL};
}

/* Appends a draft to a chain, which ends behind an end id, and before an id
 * that is not of the vocabulary. */
static void append(const bt_engine_t *engine, bt_sched_chain_t *chain,
                   bt_seq_t *seq, const bt_next_draft_t *next)
{
    if (next->id >= engine->n_vocab) {
        chain->most = chain->n;
        return;
    }
    if (chain->n == 0) {
        set_aside(seq);
    }
    seq->tokens[seq->sched.n_tokens + chain->n] = next->id;
    seq->matches[chain->n] = bt_sched_draft_match(next->probability);
    chain->survival *=
        bt_sched_acceptance_of(&engine->acceptance, &seq->model_acceptance,
                               BT_DRAFT_MODEL, seq->matches[chain->n]);
    chain->expected += (double)chain->survival;
    seq->draft.n = ++chain->n;
    if (bt_engine_is_end_id(&seq->sampling, next->id)) {
        chain->most = chain->n;
    }
}

/* Returns the time of work that began then, on this worker's cores. */
static double spent_us(const bt_engine_t *engine, uint64_t start_ns,
                       uint64_t lent_ns)
{
    return (double)(bt_now_ns() - start_ns +
                    bt_model_lent_ns(engine->config.model) - lent_ns) /
           1000;
}

/* Computes the next draft of all chains that go on. */
static bt_status_t run_round(bt_engine_t *engine, bool is_trial, double read_us)
{
    const bt_batch_drafter_t *drafter = &engine->config.batch_drafter;
    struct bt_drafting *d = engine->drafting;
    const uint64_t lent_ns = bt_model_lent_ns(engine->config.model);
    const uint64_t start_ns = bt_now_ns();
    bt_status_t status;
    uint32_t n_computed = 0;
    uint32_t n_rows = 0;
    uint32_t n = 0;
    double us;

    for (uint32_t i = 0; i < d->n; i++) {
        if (!d->chains[i].ended) {
            d->chain_of[n] = i;
            d->next[n] =
                (bt_next_draft_t){.seq = d->seqs[i],
                                  .n_drafts = d->chains[i].n,
                                  .n_rows = 1 + d->chains[i].n_more_rows};
            n++;
        }
    }
    status = drafter->draft(drafter->ctx, d->next, n);
    bt_engine_mark(engine);
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t i = d->chain_of[k];

        n_rows += d->next[k].n_rows;
        n_computed += (d->next[k].n_rows > 0) ? 1 : 0;
        d->chains[i].n_more_rows = 0;
        append(engine, &d->chains[i], d->seqs[i], &d->next[k]);
    }
    us = spent_us(engine, start_ns, lent_ns);
    if (n_rows > 0) {
        /* The time of reading K and V is an estimate, which may be too high. */
        bt_sched_rounds_learn(&engine->rounds, n_rows,
                              fmax(us - read_us * n_computed, us / 4),
                              is_trial);
    }
    return BT_OK;
}

static bt_sched_catch_up_plan_t plan_catch_up(bt_engine_t *engine,
                                              const bt_sched_draft_step_t *step,
                                              const bt_sched_beside_t *beside,
                                              double drafts_us)
{
    const bt_sched_catch_up_step_t at = {
        .alone_us = bt_sched_draft_us(&engine->row_times, step, NULL, 0),
        .drafts_us = drafts_us,
        .most_us = step->most_us,
        .n_seqs = step->n_seqs,
        .others_wait = step->has_chunks || (beside->least <= 1)};

    if (engine->config.fixed_drafts > 0) {
        return (bt_sched_catch_up_plan_t){.n_rows = BT_SCHED_CATCH_UP_ROWS};
    }
    return bt_sched_catch_up_plan(&engine->catch_up, &engine->rounds, &at,
                                  engine->drafting->lags, engine->drafting->n);
}

/* Computes K and V that sequences lack, for drafts in later iterations, beside
 * drafts that are taken and add so much time. */
static bt_status_t catch_up(bt_engine_t *engine, bt_sched_draft_step_t *step,
                            const bt_sched_beside_t *beside, double drafts_us)
{
    const bt_batch_drafter_t *drafter = &engine->config.batch_drafter;
    struct bt_drafting *d = engine->drafting;
    const uint64_t start_ns = bt_now_ns();
    const bt_sched_catch_up_plan_t plan =
        plan_catch_up(engine, step, beside, drafts_us);
    uint32_t n_left = plan.n_rows;
    bt_status_t status = BT_OK;
    uint32_t i;

    for (i = 0; i < d->n; i++) {
        d->chains[i].left_out =
            d->chains[i].lags && (d->lags[i].n_missing == 0);
    }

    while ((status == BT_OK) && (n_left > 0) &&
           (i = bt_sched_catch_up_next(&plan, d->lags, d->n), i < d->n)) {
        const uint64_t lent_ns = bt_model_lent_ns(engine->config.model);
        const uint64_t call_ns = bt_now_ns();
        uint32_t n = 0;

        status = drafter->catch_up(drafter->ctx, d->seqs[i], n_left, &n);
        bt_engine_mark(engine);
        d->lags[i].n_missing = 0;
        d->chains[i].left_out = n == 0;
        if (status == BT_OK) {
            bt_sched_catch_up_learn(&engine->catch_up, n,
                                    spent_us(engine, call_ns, lent_ns));
            n_left = (plan.is_one && (n > 0)) ? 0 : n_left - n;
        }
    }
    step->spent_us = (double)(bt_now_ns() - start_ns) / 1000;
    return status;
}

/* A fixed number of drafts, as far as it reaches. */
static uint32_t go_on_fixed(bt_engine_t *engine)
{
    struct bt_drafting *d = engine->drafting;
    uint32_t n_drafts = 0;
    uint32_t n_on = 0;

    for (uint32_t i = 0; i < d->n; i++) {
        n_drafts += d->chains[i].n;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        bt_sched_chain_t *chain = &d->chains[i];

        chain->ended = chain->lags || (chain->n == chain->most) ||
                       (chain->n == engine->config.fixed_drafts) ||
                       (n_drafts + n_on == engine->config.max_drafts);
        n_on += chain->ended ? 0 : 1;
    }
    return n_on;
}

static uint32_t go_on(bt_engine_t *engine, const bt_sched_draft_step_t *step,
                      const bt_sched_beside_t *beside, double goodput)
{
    return (engine->config.fixed_drafts > 0)
               ? go_on_fixed(engine)
               : bt_sched_rounds_go_on(
                     &engine->row_times, &engine->rounds, step, beside, goodput,
                     engine->drafting->chains, engine->drafting->n);
}

/* Runs the rounds that were begun. */
static bt_status_t go_through_rounds(bt_engine_t *engine,
                                     const bt_sched_draft_step_t *step,
                                     bt_sched_beside_t *beside, double goodput)
{
    const uint64_t start_ns = bt_now_ns();
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (go_on(engine, step, beside, goodput) > 0)) {
        status = run_round(engine, goodput < 0, step->read_us);
        beside->spent_us = (double)(bt_now_ns() - start_ns) / 1000;
    }
    return status;
}

/* Decides whether rounds begin, as bt_sched_rounds_begin() does. While a pass
 * is in flight on a device they cannot: then no other pass overlaps it, and
 * they begin behind it. */
static double begin_rounds(bt_engine_t *engine,
                           const bt_sched_draft_step_t *step,
                           const bt_sched_beside_t *beside)
{
    const double postponed = engine->postponed_rounds;
    double goodput = 1; /* of a fixed number of drafts */

    if (engine->config.fixed_drafts == 0) {
        goodput = bt_sched_rounds_begin(&engine->row_times, &engine->rounds,
                                        step, beside, engine->drafting->chains,
                                        engine->drafting->n);
    }
    if (engine->n_inflight > 0) {
        engine->postponed_rounds = (postponed != 0) ? postponed : goodput;
        return 0;
    }
    engine->postponed_rounds = 0;
    return ((goodput == 0) && (postponed == BT_SCHED_ROUNDS_TRIAL)) ? postponed
                                                                    : goodput;
}

bool bt_engine_run_rounds(bt_engine_t *engine, bt_sched_draft_step_t *step,
                          const bt_sched_draft_offer_t *offers, uint32_t n)
{
    const uint64_t start_ns = bt_now_ns();
    bt_status_t status;
    bt_sched_beside_t beside;
    double drafts_us;
    double goodput;

    if (engine->config.batch_drafter.draft == NULL) {
        return false;
    }
    beside = find_chains(engine, step, offers);
    if (engine->drafting->n == 0) {
        engine->postponed_rounds = 0;
        return false;
    }
    if (engine->config.fixed_drafts == 0) {
        beside.goodput =
            bt_sched_draft_goodput(&engine->row_times, step, offers, n);
    }
    goodput = begin_rounds(engine, step, &beside);
    if (engine->n_inflight > 0) {
        return false;
    }
    drafts_us = bt_sched_draft_us(&engine->row_times, step, offers, n) -
                bt_sched_draft_us(&engine->row_times, step, NULL, 0);
    status = catch_up(engine, step, &beside, drafts_us);
    if ((status == BT_OK) && (goodput != 0)) {
        status = go_through_rounds(engine, step, &beside, goodput);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("the draft model fails, and drafts no more: %s",
                     bt_status_str(status));
        engine->config.batch_drafter.draft = NULL;
    }
    step->spent_us = (double)(bt_now_ns() - start_ns) / 1000;
    return goodput != 0;
}

void bt_engine_tell_computed(bt_engine_t *engine, bt_seq_t *seq, uint32_t pos,
                             const float *logits)
{
    const bt_batch_drafter_t *drafter = &engine->config.batch_drafter;
    const bt_taps_t *taps = bt_engine_taps(engine);
    const size_t row =
        (size_t)(logits - engine->pass->logits) / engine->n_vocab;

    if ((taps != NULL) && (engine->pass == &engine->whole) &&
        seq->model_drafts && bt_engine_goes_on(seq)) {
        drafter->computed(drafter->ctx, seq, pos, seq->sched.n_tokens - 1 - pos,
                          taps->hidden + row * taps_width(engine));
    }
}
