/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a finished generation as JSON. */

#include "common/base/status.h"
#include "router/observe/record.h"
#include "router/watch/recent_requests.h"
#include "router/watch/watch.h"

bool bt_recent_requests_missed(const bt_recent_request_t *one)
{
    const bt_slo_attainment_t a = bt_slo_attainment_of(&one->ledger);

    return (a.has_ttft && !a.met_ttft) || (a.has_itl && !a.met_itl);
}

static const bt_gen_attempt_t *last_try(const bt_recent_request_t *one)
{
    return (one->n_tries > 0) ? &one->tries[one->n_tries - 1] : NULL;
}

static void write_times(const bt_ledger_t *l, bt_json_t *json)
{
    const uint64_t between_us = l->handover_us + l->decode_us;

    bt_write_ms(json, "duration_ms", l->total_us);
    bt_write_some_ms(json, "first_token_ms", l->ttft_us);
    bt_write_some_ms(json, "mean_gap_ms",
                     (l->n_output > 1) ? between_us / (l->n_output - 1) : 0);
    bt_write_some_ms(json, "max_gap_ms", l->max_gap_us);
    bt_write_some_ms(json, "ttft_target_ms", l->ttft_target_us);
    bt_write_some_ms(json, "itl_target_ms", l->itl_target_us);
}

void bt_recent_requests_write_fields(const bt_recent_request_t *one,
                                     bt_json_t *json)
{
    const bt_gen_attempt_t *last = last_try(one);
    const bt_gen_origin_t *o = &one->origin;
    char trace[BT_TRACE_ID_TEXT_BYTES];

    bt_trace_id_print(o->trace_id, trace);
    bt_write_id(json, "id", o->number);
    bt_write_some_text(json, "answer_id", o->answer_id);
    bt_write_some_text(json, "request_id", o->request_id);
    bt_write_some_text(json, "trace_id", trace);
    bt_json_u64(json, "choice", o->choice);
    bt_json_str(json, "model", one->model);
    bt_write_some_text(json, "tenant", o->tenant);
    bt_json_bool(json, "chat", o->chat);
    bt_json_bool(json, "stream", o->stream);
    bt_json_u64(json, "begin_unix_ms", one->begin_unix_ms);
    write_times(&one->ledger, json);
    bt_json_bool(json, "missed", bt_recent_requests_missed(one));
    bt_json_u64(json, "prompt_tokens", one->ledger.n_prompt);
    bt_json_u64(json, "reused_tokens", one->ledger.n_cached);
    bt_json_u64(json, "output_tokens", one->ledger.n_output);
    bt_json_u64(json, "draft_tokens", one->ledger.n_drafted);
    bt_json_u64(json, "accepted_tokens", one->ledger.n_accepted);
    bt_json_str(json, "finish", bt_finish_name(one->finish));
    if (one->http_status != 0) {
        bt_json_i64(json, "http_status", one->http_status);
    } else {
        bt_json_null(json, "http_status");
    }
    bt_write_some_text(json, "trouble", one->trouble);
    bt_json_u64(json, "attempts", one->n_tries);
    bt_write_some_text(json, "prefill", (last != NULL) ? last->prefill : NULL);
    bt_write_some_text(json, "decode", (last != NULL) ? last->decode : NULL);
}

/* ---- phases ---- */

static const char *site_name(bt_phase_site_t at)
{
    static const char *const names[] = {
        [BT_AT_ROUTER] = "router",
        [BT_AT_PREFILL] = "prefill",
        [BT_AT_DECODE] = "decode",
    };

    return names[at];
}

/* Takes at most the time that is left. */
static uint64_t cut(uint64_t us, uint64_t *left_us)
{
    const uint64_t taken = (us < *left_us) ? us : *left_us;

    *left_us -= taken;
    return taken;
}

static void add(bt_waterfall_t *w, const char *name, bt_phase_site_t at,
                uint64_t us, uint64_t *at_us)
{
    if (us == 0) {
        return;
    }
    BT_ASSERT(w->n < BT_WATERFALL_PHASES);
    w->phases[w->n++] = (bt_phase_t){
        .name = name, .at = at, .start_us = *at_us, .length_us = us};
    *at_us += us;
}

void bt_waterfall_of(const bt_ledger_t *l, bt_waterfall_t *waterfall_p)
{
    uint64_t left_us = l->handover_us;
    const uint64_t grant_us = cut(l->grant_wait_us, &left_us);
    const uint64_t tail_us = cut(l->transfer_tail_us, &left_us);
    const uint64_t join_us = cut(l->join_wait_us, &left_us);
    bt_waterfall_t w = {0};
    uint64_t at_us = 0;

    add(&w, "parse", BT_AT_ROUTER, l->parse_us, &at_us);
    add(&w, "tokenize", BT_AT_ROUTER, l->tokenize_us, &at_us);
    add(&w, "queue", BT_AT_ROUTER, l->queue_us, &at_us);
    add(&w, "prefill_queue", BT_AT_PREFILL, l->prefill_queue_us, &at_us);
    add(&w, "prefill", BT_AT_PREFILL, l->prefill_us, &at_us);
    if (l->prefill_us > 0) {
        w.phases[w.n - 1].n_chunks = l->n_chunks;
    }
    add(&w, (l->ttft_us > 0) ? "first_token" : "rest", BT_AT_ROUTER,
        l->first_token_us, &at_us);
    add(&w, "grant_wait", BT_AT_PREFILL, grant_us, &at_us);
    add(&w, "kv_transfer", BT_AT_PREFILL, tail_us, &at_us);
    add(&w, "join_wait", BT_AT_DECODE, join_us, &at_us);
    add(&w, (l->n_output > 1) ? "second_token" : "rest", BT_AT_DECODE, left_us,
        &at_us);
    add(&w, "decode", BT_AT_DECODE, l->decode_us, &at_us);
    *waterfall_p = w;
}

/* An aggregated attempt has only the decode worker. */
static const char *worker_at(const bt_gen_attempt_t *try, bt_phase_site_t at)
{
    if ((try == NULL) || (at == BT_AT_ROUTER)) {
        return "";
    }
    if ((at == BT_AT_PREFILL) && (try->prefill[0] != '\0')) {
        return try->prefill;
    }
    return (try->decode[0] != '\0') ? try->decode : try->prefill;
}

static void write_phases(const bt_recent_request_t *one, bt_json_t *json)
{
    bt_waterfall_t w;

    bt_waterfall_of(&one->ledger, &w);
    bt_json_array(json, "phases");
    for (uint32_t i = 0; i < w.n; i++) {
        const bt_phase_t *s = &w.phases[i];
        const char *worker = worker_at(last_try(one), s->at);

        bt_json_object(json, NULL);
        bt_json_str(json, "name", s->name);
        bt_json_str(json, "at", site_name(s->at));
        if (worker[0] != '\0') {
            bt_json_str(json, "worker", worker);
        }
        bt_write_ms(json, "start_ms", s->start_us);
        bt_write_ms(json, "length_ms", s->length_us);
        if (s->n_chunks > 0) {
            bt_json_u64(json, "chunks", s->n_chunks);
        }
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

static void begin_overlapped(const char *name, bt_phase_site_t at, uint64_t us,
                             bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", name);
    bt_json_str(json, "at", site_name(at));
    bt_write_ms(json, "length_ms", us);
}

static void write_overlapped(const bt_ledger_t *l, bt_json_t *json)
{
    bt_json_array(json, "overlapped");
    if (l->n_transfers > 0) {
        begin_overlapped("kv_transfer_data", BT_AT_PREFILL, l->transfer_us,
                         json);
        bt_json_u64(json, "bytes", l->transfer_bytes);
        bt_json_u64(json, "pieces", l->transfer_pieces);
        bt_json_end_object(json);
        begin_overlapped("decode_queue", BT_AT_DECODE, l->decode_queue_us,
                         json);
        bt_json_end_object(json);
        begin_overlapped("kv_verify", BT_AT_DECODE, l->kv_verify_us, json);
        bt_json_end_object(json);
    }
    if (l->n_pauses > 0) {
        begin_overlapped("paused", BT_AT_DECODE, l->paused_us, json);
        bt_json_u64(json, "times", l->n_pauses);
        bt_json_end_object(json);
    }
    bt_json_end_array(json);
}

static void write_try(const bt_recent_request_t *one, uint32_t i,
                      bt_json_t *json)
{
    const bt_gen_attempt_t *try = &one->tries[i];
    const bt_gen_knew_t *knew = &try->knew;
    const uint64_t at_us =
        (try->at_us > one->begin_us) ? try->at_us - one->begin_us : 0;

    bt_json_object(json, NULL);
    bt_json_u64(json, "number", i + 1);
    bt_write_ms(json, "start_ms", at_us);
    bt_json_str(json, "cause", try->cause);
    if (try->prefill[0] != '\0') {
        bt_json_object(json, "prefill");
        bt_json_str(json, "worker", try->prefill);
        bt_json_str(json, "why", try->prefill_why);
        bt_json_u64(json, "of_workers", knew->n_prefill);
        bt_json_u64(json, "ahead_requests", knew->ahead_requests);
        bt_json_u64(json, "ahead_tokens", knew->ahead_tokens);
        bt_write_ms(json, "ahead_ms", knew->ahead_us);
        bt_json_u64(json, "held_tokens", knew->prefill_held_tokens);
        bt_json_end_object(json);
    }
    if (try->decode[0] != '\0') {
        bt_json_object(json, "decode");
        bt_json_str(json, "worker", try->decode);
        bt_json_str(json, "why", try->decode_why);
        bt_json_u64(json, "of_workers", knew->n_decode);
        bt_json_u64(json, "seats_used", knew->seats_used);
        bt_json_u64(json, "seats", knew->seats);
        bt_json_u64(json, "blocks_used", knew->blocks_used);
        bt_json_u64(json, "blocks", knew->blocks);
        bt_json_u64(json, "held_tokens", knew->decode_held_tokens);
        bt_json_end_object(json);
    }
    bt_write_some_text(json, "ended", one->ended[i]);
    bt_json_end_object(json);
}

void bt_recent_requests_write_one(const bt_recent_request_t *one,
                                  bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_recent_requests_write_fields(one, json);
    bt_json_str(json, "prompt_text", one->prompt);
    bt_json_str(json, "answer_text", one->answer);
    write_phases(one, json);
    write_overlapped(&one->ledger, json);
    bt_json_array(json, "tries");
    for (uint32_t i = 0; i < one->n_tries; i++) {
        write_try(one, i, json);
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
}
