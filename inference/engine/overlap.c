/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlapped scheduling on a device: a pass begins while the previous one is
 * running (sched_overlap.h). The second pass is planned as if the first were
 * finished: its sequences are *put ahead*, advanced by the first pass's tokens,
 * and where it draws, by a token that is not known yet; the device inserts that
 * (bt_forward_t.from_ids). When the first is finished they are taken back to
 * the known state, and it is completed like any other.
 *
 * A sequence that then turns out to have ended is computed once more in the
 * second pass, and keeps its blocks until that is finished: only then it has
 * LEFT. A sequence that surely ends with the first pass, or is canceled, is not
 * in the second.
 */
#include "common/base/clock.h"
#include "inference/engine/engine_priv.h"

static bool ends_with(const bt_sched_item_t *item)
{
    const bt_seq_t *seq = bt_engine_seq_of(item->seq);

    return item->last_chunk &&
           (seq->leave_after_first || (seq->n_drawn + 1 == seq->max_new));
}

static bool group_is_canceled(const bt_seq_t *seq)
{
    const bt_list_t *head = &seq->followers;
    bool canceled = bt_engine_is_canceled(seq);

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        canceled = canceled || bt_engine_is_canceled(bt_engine_seq_at(pos));
    }
    return canceled;
}

/* True when the position behind the next token can be planned before that token
 * is known. Not with a drafter, nor where a draw depends on previous tokens.
 * Followers begin with that token. */
static bool needs_no_token(const bt_sched_item_t *item)
{
    const bt_seq_t *seq = bt_engine_seq_of(item->seq);

    return !item->last_chunk ||
           (bt_list_empty(&seq->followers) &&
            (ends_with(item) || ((seq->drafter.propose == NULL) &&
                                 !bt_sampling_reads_tokens(&seq->sampling))));
}

/* True when the results of the pass are only ids, which the device has. */
static bool can_be_followed(const bt_inflight_pass_t *flight)
{
    const bt_pass_t *pass = &flight->pass;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        if ((pass->plan[i].seq->n_drafts > 0) ||
            !needs_no_token(&pass->plan[i])) {
            return false;
        }
    }
    return bt_model_is_followed(&flight->fwd);
}

/* Advances the sequences of a pass to their state after it. Those that do not
 * continue are set aside until it ends. */
static void put_ahead(bt_inflight_pass_t *flight)
{
    bt_pass_t *pass = &flight->pass;
    uint32_t row = 0;

    for (uint32_t i = 0; i < pass->n_planned; i++) {
        const bt_sched_item_t *item = &pass->plan[i];
        bt_seq_t *seq = bt_engine_seq_of(item->seq);

        seq->sched.n_computed += item->n_new;
        if (item->last_chunk) {
            seq->from_id = row++;
            seq->tokens[seq->sched.n_tokens++] = 0; /* any valid id */
        }
        if (!seq->is_gone && (ends_with(item) || group_is_canceled(seq))) {
            bt_list_remove(&seq->sched.turn.link);
            bt_list_push_back(&flight->seqs, &seq->sched.turn.link);
        }
    }
    flight->is_ahead = true;
}

/* @return false: there is nothing to compute */
static bool begin(bt_engine_t *engine, bt_status_t *status_p)
{
    bt_inflight_pass_t *flight = bt_engine_flight(engine, engine->n_flights);

    flight->pass.n_planned =
        bt_engine_plan(engine, &flight->pass, &flight->n_context_tokens);
    if (flight->pass.n_planned == 0) {
        return false;
    }
    flight->is_behind = engine->n_flights > 0;
    *status_p = bt_engine_take_off(engine);
    if (engine->landed_ns != 0) {
        bt_sched_overlap_learn_host(&engine->ahead,
                                    bt_now_ns() - engine->landed_ns);
        engine->landed_ns = 0;
    }
    return true;
}

/* Completes the oldest pass. Its time begins where that of the previous one
 * ended. */
static void land(bt_engine_t *engine, bt_report_t *report)
{
    bt_inflight_pass_t *flight = bt_engine_flight(engine, 0);
    bt_pass_t *pass = &flight->pass;

    report->ahead = flight->is_behind;
    if (pass->start_ns < engine->ended_ns) {
        pass->start_ns = engine->ended_ns;
    }
    bt_engine_land(engine, report);
    engine->ended_ns = engine->landed_ns = report->end_ns;
    engine->ahead.step_ns = report->end_ns - report->start_ns;
}

void bt_engine_run_ahead(bt_engine_t *engine, bt_report_t *report)
{
    bt_status_t status = BT_OK;
    bt_inflight_pass_t *first;

    if ((engine->n_flights == 0) && !begin(engine, &status)) {
        return;
    }
    first = bt_engine_flight(engine, 0);
    if ((status == BT_OK) &&
        bt_sched_overlap_pays(&engine->ahead, engine->config.ahead) &&
        can_be_followed(first)) {
        bt_engine_take_changes(engine, report);
        put_ahead(first);
        (void)begin(engine, &status);
    }
    if (status == BT_OK) {
        land(engine, report);
        status = report->status;
    }
    if (status != BT_OK) {
        bt_engine_crash(engine, report, status);
    }
}
