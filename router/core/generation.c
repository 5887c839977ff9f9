/* SPDX-License-Identifier: Apache-2.0 */
/* A generation: creation, tokens in order, end. */
#include "router/core/core_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

void bt_gen_free(bt_core_t *core, bt_gen_t *gen)
{
    bt_gen_free_beams(gen);
    bt_gen_rows_unref(gen->rows);
    bt_stops_fini(&gen->stops);
    for (uint32_t i = 0; i < BT_GEN_MAX_ATTEMPTS; i++) {
        bt_free(gen->attempts[i].ended);
    }
    bt_free(gen->early);
    bt_free(gen->stop_ids);
    bt_free(gen->runs);
    bt_free(gen->logit_biases);
    bt_free(gen->bad_words);
    bt_free(gen->output);
    bt_prompt_unref(gen->prompt);
    if (gen->flow != NULL) {
        bt_flow_unref(core, gen->flow);
    }
    bt_free(gen);
}

static const char *attempt_phase_name(const bt_gen_t *gen)
{
    const bt_attempt_t *a = &gen->attempt;
    bt_attempt_state_t state =
        (a->state == BT_ATTEMPT_IS_LOST) ? a->lost_in : a->state;

    if ((state == BT_ATTEMPT_IS_LOCAL) && (gen->n_output > a->from)) {
        state = BT_ATTEMPT_IS_DECODE; /* by the same worker */
    }
    return bt_attempt_state_name(state);
}

const char *bt_gen_phase_name(const bt_gen_t *gen)
{
    switch (gen->state) {
    case BT_GEN_IS_NEW:
    case BT_GEN_IS_WAITING:
        return "waiting for workers";
    case BT_GEN_IS_RUNNING:
        return attempt_phase_name(gen);
    case BT_GEN_IS_ENDED:
    case BT_GEN_IS_SETTLED:
    case BT_GEN_IS_RECORDED:
    case BT_GEN_N_STATES:
        break;
    }
    return "ended";
}

/* ---- birth ---- */

/* Copies everything borrowed by the spec, except the prompt. */
static bt_status_t gen_copy(bt_gen_t *gen, const bt_gen_spec_t *spec)
{
    gen->prompt = bt_prompt_ref(spec->prompt);
    gen->space = spec->space;
    gen->adapter = spec->adapter;
    gen->sampling = spec->sampling;
    gen->sampling.bad_words = NULL;
    if (spec->sampling.n_bad_words > 0) {
        gen->bad_words =
            bt_memdup(spec->sampling.bad_words,
                      spec->sampling.n_bad_words * sizeof(bt_bad_word_t));
        if (gen->bad_words == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        gen->sampling.bad_words = gen->bad_words;
    }
    gen->sampling.logit_biases = NULL;
    if (spec->sampling.n_logit_biases > 0) {
        gen->logit_biases =
            bt_memdup(spec->sampling.logit_biases,
                      spec->sampling.n_logit_biases * sizeof(bt_logit_bias_t));
        if (gen->logit_biases == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        gen->sampling.logit_biases = gen->logit_biases;
    }
    if (spec->n_stop_ids > 0) {
        gen->stop_ids =
            bt_memdup(spec->stop_ids, spec->n_stop_ids * sizeof(bt_bad_word_t));
        if (gen->stop_ids == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        gen->n_stop_ids = spec->n_stop_ids;
    }
    gen->max_drafts = spec->max_drafts;
    gen->repetition = spec->repetition;
    if (gen->repetition.max_pattern > 0) {
        gen->runs = bt_calloc(gen->repetition.max_pattern, sizeof(*gen->runs));
        if (gen->runs == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    gen->every_token = spec->every_token;
    gen->keeps_stop = spec->keeps_stop;
    return bt_stops_init(&gen->stops, spec->stops, spec->n_stops);
}

uint32_t bt_core_n_cached(const bt_gen_t *gen)
{
    return gen->ledger.n_cached;
}

uint32_t bt_core_n_kept(const bt_gen_t *gen)
{
    return gen->ledger.n_kept;
}

bt_gen_rows_t *bt_core_rows(const bt_gen_t *gen)
{
    return gen->rows;
}

/* Creates the rows for requested log-probs and logits. */
static bt_status_t make_rows(bt_core_t *core, bt_gen_t *gen,
                             const bt_gen_spec_t *spec)
{
    const bt_wants_t *wants = &spec->wants;
    const uint32_t n_vocab = core->config.n_vocab;
    const uint64_t bytes = bt_gen_rows_logits_bytes(wants, spec->prompt->n,
                                                    spec->max_new, n_vocab);
    const uint64_t held =
        atomic_load_explicit(&core->logits_bytes, memory_order_relaxed);
    bt_status_t status;

    if (wants->what == 0) {
        return BT_OK;
    }
    if ((bytes > core->config.max_logits_bytes) ||
        (held > core->config.max_logits_bytes - bytes)) {
        return BT_ERR_TOO_LARGE;
    }
    status = bt_gen_rows_create(wants, spec->prompt, spec->max_new, n_vocab,
                                &gen->rows);
    if (status == BT_OK) {
        bt_gen_rows_hold(gen->rows, &core->logits_bytes, bytes);
    }
    return status;
}

/* Creates a generation that is not linked anywhere yet. */
static bt_status_t gen_new(bt_core_t *core, const bt_gen_spec_t *spec,
                           void *user, uint64_t now_us, bt_gen_t **gen_p)
{
    uint32_t timeout_ms = core->config.request_timeout_ms;
    bt_gen_t *gen = bt_calloc(1, sizeof(*gen));
    bt_status_t status;

    BT_ASSERT((spec->prompt->n > 0) && (spec->max_new > 0));
    if (gen == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = gen_copy(gen, spec);
    if ((status == BT_OK) && (spec->beams.width > 0)) {
        status = bt_gen_make_beams(core, gen, &spec->beams);
    }
    if (status == BT_OK) {
        status = make_rows(core, gen, spec);
    }
    if (status == BT_OK) {
        status = bt_flow_ref(core, &spec->tenant, &gen->flow);
    }
    if (status != BT_OK) {
        bt_gen_free(core, gen);
        return status;
    }
    if ((spec->timeout_ms != 0) && (spec->timeout_ms < timeout_ms)) {
        timeout_ms = spec->timeout_ms;
    }
    gen->user = user;
    gen->max_new = spec->max_new;
    gen->target = bt_sched_slo_or(spec->target, core->config.target);
    gen->forecast_first_us = core->forecast_first_us;
    gen->forecast_between_us = core->forecast_between_us;
    gen->ledger.ttft_target_us = (uint64_t)gen->target.ttft_ms * 1000;
    gen->ledger.itl_target_us = (uint64_t)gen->target.itl_ms * 1000;
    bt_sched_turn_init(&gen->turn, spec->priority, now_us);
    gen->arrived_us = now_us - spec->held_us;
    gen->ledger.queue_us = spec->held_us;
    gen->deadline_us = now_us + (uint64_t)timeout_ms * 1000;
    gen->ledger.parse_us = spec->parse_us;
    gen->ledger.tokenize_us = spec->tokenize_us;
    gen->ledger.n_of_request = spec->n_of_request;
    gen->origin = spec->origin;
    *gen_p = gen;
    return BT_OK;
}

/* Reserves space for the tokens of any retry, which cannot be refused later. */
static bt_status_t reserve_tokens(bt_core_t *core, const bt_gen_spec_t *spec)
{
    uint32_t most = spec->max_new;

    return !__builtin_add_overflow(most, spec->prompt->n, &most) &&
                   bt_array_grow(&core->joined, &core->cap_joined, most,
                                 sizeof(*core->joined))
               ? BT_OK
               : BT_ERR_NO_MEMORY;
}

bt_status_t bt_core_submit(bt_core_t *core, const bt_gen_spec_t *specs,
                           void *const *users, uint32_t n, uint64_t now_us,
                           bt_gen_t **gens_p)
{
    bt_status_t status;
    uint32_t n_made = 0;

    if ((n > core->config.max_queue) ||
        (core->n_live > core->config.max_queue - n)) {
        return BT_ERR_BUSY;
    }
    status = bt_core_judge(
        core, &specs[0], (specs->beams.width > 0) ? n * specs->beams.width : n,
        now_us);
    if (status == BT_OK) {
        status = reserve_tokens(core, &specs[0]);
    }
    while ((n_made < n) && (status == BT_OK)) {
        status = gen_new(core, &specs[n_made], users[n_made], now_us,
                         &gens_p[n_made]);
        n_made += (status == BT_OK) ? 1 : 0;
    }
    if (status != BT_OK) {
        while (n_made > 0) {
            bt_gen_free(core, gens_p[--n_made]);
        }
        return status;
    }
    if (core->judged_probe) {
        gens_p[0]->is_probe = gens_p[0]->was_probe = true;
        bt_sched_probe_sent(&core->probe);
    }
    for (uint32_t i = 0; i < n; i++) {
        bt_gen_t *gen = gens_p[i];

        gen->id = core->next_id++;
        /* Data requested for a prompt is computed for each generation
         * separately. */
        gen->fanout =
            ((n > 1) && ((specs[i].wants.what & BT_WANT_ANY_OF_PROMPT) == 0))
                ? gens_p[0]->id
                : 0;
        core->ops.detok_init(&gen->detok, core->config.tok);
        gen->detok.shows_special = specs[i].shows_special;
        if (gen->prompt->grammar_bytes > 0) {
            gen->detok.at_start = false; /* a first space is of the grammar */
        }
        gen->detok.shown = specs[i].shown;
        gen->stops.keeps = specs[i].keeps_stop;
        gen->is_held = bt_core_holds(core);
        core->n_held += gen->is_held ? 1 : 0;
        bt_hmap_insert(&core->gens_by_id, gen->id, &gen->by_id);
        bt_gen_move(core, gen, BT_GEN_ON_SUBMIT, now_us);
    }
    /* Waiting generations, except any on hold, are in the order of priority and
     * age. */
    bt_gen_dispatch_waiting(core, now_us);
    return BT_OK;
}

/* ---- end ---- */

/* Ends a generation for its client. */
static void end_for_client(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                           uint64_t now_us)
{
    gen->finish = why;
    bt_gen_move(core, gen, BT_GEN_ON_END, now_us);
}

static void tell_end(bt_core_t *core, bt_gen_t *gen, bt_gen_end_t *end)
{
    if (gen->first_token_at_us != 0) {
        end->first_token_us = gen->ledger.parse_us + gen->ledger.tokenize_us +
                              gen->first_token_at_us - gen->arrived_us;
    }
    end->attempt = (gen->attempt.number > 0)
                       ? &gen->attempts[gen->attempt.number - 1]
                       : NULL;
    core->ops.on_end(core->ops.ctx, gen->user, end);
    bt_gen_settle(core, gen);
}

static bt_gen_perf_t perf_of(const bt_gen_t *gen)
{
    const bt_attempt_t *a = &gen->attempt;
    const bt_leg_t *leg = (a->decode != NULL) ? a->decode : a->prefill;
    const uint32_t each = ((leg != NULL) && (leg->worker != NULL))
                              ? leg->worker->hello.tokens_per_block
                              : 0;

    return (bt_gen_perf_t){
        .arrival_us = gen->arrived_us,
        .first_scheduled_us = gen->attempts[0].at_us,
        .first_token_us = gen->first_token_at_us,
        .last_token_us = gen->last_token_at_us,
        .n_prompt = gen->prompt->n,
        .n_output = gen->n_output,
        .n_blocks =
            (each > 0) ? (gen->prompt->n + gen->n_output + each - 1) / each : 0,
        .n_reused_blocks = (each > 0) ? gen->ledger.n_cached / each : 0,
        .n_drafted = gen->n_drafted,
        .n_accepted = gen->n_accepted,
    };
}

/* Ends a generation successfully. */
static void finish(bt_core_t *core, bt_gen_t *gen, bt_finish_t why,
                   bool by_end_id, uint64_t now_us)
{
    bt_gen_end_t end = {
        .finish = why,
        .text = (core->text.len > 0) ? core->text.data : "",
        .text_bytes = core->text.len,
        .prompt = gen->prompt,
        .n_prompt = gen->prompt->n,
        .n_output = gen->n_output,
        .ids = gen->output,
        .by_end_id = by_end_id,
        .stop_word = gen->stops.met,
        .n_cached = gen->ledger.n_cached,
        .n_kept = gen->ledger.n_kept,
        .weights = gen->weights,
        .rows = gen->rows,
        .others = gen->beams.others,
        .n_others =
            bt_gen_has_beams(gen) ? gen->beams.params.n_returned - 1 : 0,
        .http_status = 200,
        .perf = perf_of(gen),
    };

    gen->ledger.ok = true;
    bt_core_note_lengths(core, gen, now_us);
    if (!bt_gen_has_beams(gen)) { /* whose tokens all come at the end */
        bt_core_note_promise(core, gen, now_us);
    }
    end_for_client(core, gen, why, now_us);
    core->ops.on_time(core->ops.ctx, BT_TIME_REQUEST, gen->ledger.total_us);
    tell_end(core, gen, &end);
}

void bt_gen_fail(bt_core_t *core, bt_gen_t *gen, int http_status,
                 uint64_t now_us, const char *fmt, ...)
{
    char message[sizeof(gen->trouble)]; /* often built from gen->trouble */
    bt_gen_end_t end = {
        .finish = BT_FINISH_ERROR,
        .text = "",
        .n_prompt = gen->prompt->n,
        .n_output = gen->n_output,
        .weights = gen->weights,
        .http_status = http_status,
        .message = message,
        .is_ambiguous = gen->is_ambiguous,
        .is_exhausted = gen->is_exhausted,
    };
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    BT_LOG_INFO("request %" PRIu64 " failed: %s", gen->id, message);
    memcpy(gen->trouble, message, sizeof(gen->trouble));
    gen->http_status = http_status;
    end_for_client(core, gen, BT_FINISH_ERROR, now_us);
    bt_gen_cancel_legs(core, gen, BT_FINISH_ERROR, NULL);
    tell_end(core, gen, &end);
}

void bt_core_cancel(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    if (!bt_gen_state_is_live(gen->state)) {
        return; /* from inside on_end() */
    }
    gen->ledger.canceled = true;
    end_for_client(core, gen, BT_FINISH_CANCELED, now_us);
    bt_gen_cancel_legs(core, gen, BT_FINISH_CANCELED, NULL);
    bt_gen_settle(core, gen);
}

void bt_core_end_all(bt_core_t *core, const char *why, uint64_t now_us)
{
    while (!bt_list_empty(&core->live)) {
        bt_gen_t *gen = BT_CONTAINER_OF(core->live.next, bt_gen_t, live_link);

        bt_gen_fail(core, gen, 503, now_us, "%s (request was in phase %s)", why,
                    bt_gen_phase_name(gen));
    }
}

/* ---- tokens ---- */

/* Stores the token that n_output counts already. */
static bt_status_t append_id(bt_gen_t *gen, uint32_t id)
{
    if (!bt_array_grow(&gen->output, &gen->cap_output, gen->n_output,
                       sizeof(*gen->output))) {
        return BT_ERR_NO_MEMORY;
    }
    gen->output[gen->n_output - 1] = id;
    return BT_OK;
}

/* Converts one more token to text, in core->text.
 * @return true when a stop word was met. */
static bool make_text(bt_core_t *core, bt_gen_t *gen, const bt_token_t *token,
                      bool last)
{
    bool stopped;

    bt_strbuf_reset(&core->raw);
    bt_strbuf_reset(&core->text);
    if ((token->finish != BT_FINISH_STOP) || gen->keeps_stop) {
        core->ops.detok_push(&gen->detok, token->id, &core->raw);
    }
    if (last) {
        core->ops.detok_finish(&gen->detok, &core->raw);
    }
    stopped =
        bt_stops_push(&gen->stops, (core->raw.len > 0) ? core->raw.data : "",
                      core->raw.len, &core->text);
    if (!stopped && last) {
        bt_stops_finish(&gen->stops, &core->text);
    }
    return stopped;
}

void bt_core_end_text(const bt_core_t *core, bt_gen_t *gen, bt_strbuf_t *out)
{
    bt_strbuf_t raw;

    bt_strbuf_init(&raw, SIZE_MAX / 4);
    core->ops.detok_finish(&gen->detok, &raw);
    if (!bt_stops_push(&gen->stops, (raw.len > 0) ? raw.data : "", raw.len,
                       out)) {
        bt_stops_finish(&gen->stops, out);
    }
    if (bt_strbuf_status(&raw) != BT_OK) {
        out->status = bt_strbuf_status(&raw);
    }
    bt_strbuf_fini(&raw);
}

/* True when the output ends with one of the stop sequences. */
static bool meets_stop_ids(const bt_gen_t *gen)
{
    for (uint32_t i = 0; i < gen->n_stop_ids; i++) {
        const bt_bad_word_t *stop = &gen->stop_ids[i];

        if ((stop->n > 0) && (stop->n <= gen->n_output) &&
            (memcmp(stop->ids, gen->output + gen->n_output - stop->n,
                    stop->n * sizeof(*stop->ids)) == 0)) {
            return true;
        }
    }
    return false;
}

/* Updates the runs for the last token.
 * @return whether the output ends with a pattern as often as is forbidden */
static bool is_repeating(bt_gen_t *gen)
{
    const bt_repetition_t *const r = &gen->repetition;
    const uint32_t last = gen->n_output - 1;
    bool found = false;

    for (uint32_t n = 1; n <= r->max_pattern; n++) {
        const bool equal =
            (n <= last) && (gen->output[last] == gen->output[last - n]);

        gen->runs[n - 1] = equal ? gen->runs[n - 1] + 1 : 0;
        found |= (n >= r->min_pattern) &&
                 (gen->runs[n - 1] >= (uint64_t)n * (r->min_count - 1));
    }
    return found;
}

const uint32_t *bt_core_output(const bt_gen_t *gen, uint32_t *n_p)
{
    *n_p = gen->n_output;
    return gen->output;
}

/* True when the KV is not at the decode worker, although token #1 is here. */
static bool ends_with_prefill(const bt_gen_t *gen)
{
    return (gen->attempt.state == BT_ATTEMPT_IS_TRANSFER) ||
           (gen->attempt.state == BT_ATTEMPT_IS_WITHDRAWN_TOKEN);
}

/* Returns why the output ends behind its last token, by its tokens alone;
 * BT_FINISH_NONE: it does not. */
static bt_finish_t end_by_tokens(bt_gen_t *gen, bool is_last)
{
    if (meets_stop_ids(gen)) {
        return BT_FINISH_STOP;
    }
    return (!is_last && is_repeating(gen)) ? BT_FINISH_REPETITION
                                           : BT_FINISH_NONE;
}

/* Processes the next token in order. */
static void take(bt_core_t *core, bt_gen_t *gen, const bt_token_t *token,
                 uint64_t now_us)
{
    const bool full = gen->n_output + 1 == gen->max_new;
    const bool is_last = full || (token->finish != BT_FINISH_NONE);
    bt_finish_t why = (bt_finish_t)token->finish;
    bt_finish_t here; /* why it ends by its output */
    bool kept;

    if (!bt_gen_has_beams(gen) || (gen->n_output == 0)) {
        bt_gen_note_token(core, gen, now_us);
    }
    (void)bt_attempt_move(gen, BT_ATTEMPT_ON_TOKEN);
    if (gen->rows != NULL) {
        bt_gen_rows_append(gen->rows, gen->n_output, token->id);
    }
    gen->n_output++;
    kept = append_id(gen, token->id) == BT_OK;
    here = kept ? end_by_tokens(gen, is_last) : BT_FINISH_NONE;
    if (make_text(core, gen, token, is_last || (here != BT_FINISH_NONE))) {
        here = BT_FINISH_STOP;
    }
    if (!kept || (bt_strbuf_status(&core->raw) != BT_OK) ||
        (bt_strbuf_status(&core->text) != BT_OK)) {
        bt_gen_fail(core, gen, 503, now_us,
                    "out of memory for the text of this request");
        return;
    }
    if (!is_last && (here == BT_FINISH_NONE)) {
        if ((core->text.len > 0) || gen->every_token) {
            core->ops.on_text(core->ops.ctx, gen->user,
                              (core->text.len > 0) ? core->text.data : "",
                              core->text.len, gen->n_output);
        }
        return;
    }
    if ((here != BT_FINISH_NONE) || (why == BT_FINISH_NONE)) {
        why = (here != BT_FINISH_NONE) ? here : BT_FINISH_LENGTH;
        bt_gen_cancel_legs(core, gen, why, NULL);
    } else if (ends_with_prefill(gen)) {
        /* It ended with the prefill worker's token: the grant is withdrawn. */
        bt_gen_cancel_legs(core, gen, why, gen->attempt.prefill);
    }
    finish(core, gen, why, token->finish == BT_FINISH_STOP, now_us);
}

static bt_status_t keep_early(bt_gen_t *gen, const bt_token_t *token)
{
    for (uint32_t i = 0; i < gen->n_early; i++) {
        if (gen->early[i].index == token->index) {
            return BT_OK;
        }
    }
    if (!bt_array_grow(&gen->early, &gen->cap_early, gen->n_early + 1,
                       sizeof(*gen->early))) {
        return BT_ERR_NO_MEMORY;
    }
    gen->early[gen->n_early++] = *token;
    return BT_OK;
}

/* True when all data that is delivered with the token has arrived. */
static bool is_ready(const bt_gen_t *gen, uint32_t index)
{
    return (gen->rows == NULL) || bt_gen_rows_ready(gen->rows, index);
}

static bool next_early(bt_gen_t *gen, bt_token_t *token_p)
{
    if ((gen->n_early == 0) || !is_ready(gen, gen->n_output)) {
        return false;
    }
    for (uint32_t i = 0; i < gen->n_early; i++) {
        if (gen->early[i].index == gen->n_output) {
            *token_p = gen->early[i];
            gen->early[i] = gen->early[--gen->n_early];
            return true;
        }
    }
    return false;
}

void bt_gen_take_early(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    bt_token_t next;

    while (bt_gen_state_is_live(gen->state) && next_early(gen, &next)) {
        take(core, gen, &next, now_us);
    }
}

void bt_gen_token(bt_core_t *core, bt_gen_t *gen, const bt_token_t *token,
                  uint64_t now_us)
{
    bt_token_t next = *token;

    if (token->index < gen->n_output) {
        return; /* a duplicate */
    }
    if ((token->index > gen->n_output) ||
        !((token->index < gen->max_new) && is_ready(gen, token->index))) {
        /* Links are not ordered relative to each other: the decode worker's
         * tokens may arrive before the prefill worker's token #1. And logits
         * arrive after their tokens. */
        if ((token->index < gen->max_new) &&
            (keep_early(gen, token) != BT_OK)) {
            bt_gen_fail(core, gen, 503, now_us,
                        "out of memory for the text of this request");
        }
        return;
    }
    /* The leg that delivered the token is open, so the generation exists
     * whatever its client does in on_text(). */
    BT_ASSERT(gen->n_open_legs > 0);
    take(core, gen, &next, now_us);
    bt_gen_take_early(core, gen, now_us);
}
