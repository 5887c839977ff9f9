/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/watching.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define LOOK_US       500000u
#define TEXT_BYTES    2048u /* of a prompt or an answer */
#define LONGEST_TOKEN (1u << 20)

static uint64_t unix_ms(void)
{
    return (uint64_t)bt_walltime_ms();
}

bt_status_t bt_watching_open(bt_frontend_t *front)
{
    const bt_status_t status =
        bt_watch_create((uint32_t)(front->id_start >> 32), bt_now_us(),
                        unix_ms(), &front->watch);

    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the event publisher: %s",
                     bt_status_str(status));
    }
    return status;
}

/* Adds an event about a model, or about none: "". printf style. */
__attribute__((format(printf, 4, 5))) static void
add_event(bt_frontend_t *front, bt_event_t event, const char *model,
          const char *fmt, ...)
{
    va_list args;

    event.unix_ms = unix_ms();
    snprintf(event.model, sizeof(event.model), "%s", model);
    va_start(args, fmt);
    vsnprintf(event.text, sizeof(event.text), fmt, args);
    va_end(args);
    bt_events_add(&front->watch->events, &event);
}

/* ---- who is ready ---- */

static void look_at_model(bt_served_t *served)
{
    const bool ready = bt_served_ready(served);

    if (ready != served->was_ready) {
        served->was_ready = ready;
        add_event(served->front,
                  (bt_event_t){.kind = ready ? BT_EVENT_MODEL_READY
                                             : BT_EVENT_MODEL_NOT_READY},
                  served->name, "model %.63s is %s", served->name,
                  ready ? "ready" : "not ready");
    }
}

static void look_at_router(bt_frontend_t *front)
{
    const bool ready = bt_frontend_ready(front);

    if (front->leaving && !front->was_leaving) {
        front->was_leaving = true;
        add_event(front, (bt_event_t){.kind = BT_EVENT_ROUTER_LEAVING}, "",
                  "the router is stopping");
    }
    if (ready != front->was_ready) {
        front->was_ready = ready;
        add_event(front,
                  (bt_event_t){.kind = ready ? BT_EVENT_ROUTER_READY
                                             : BT_EVENT_ROUTER_NOT_READY},
                  "", "the router is %s", ready ? "ready" : "not ready");
    }
}

/* ---- events of a core ---- */

/* Returns the beginning of the text of these tokens, as spelled. NULL without
 * memory. */
static char *beginning_of(const bt_tokenizer_t *tok, const uint32_t *ids,
                          uint32_t n)
{
    bt_detok_t detok;
    bt_strbuf_t text;
    char *copy = NULL;

    bt_strbuf_init(&text, TEXT_BYTES + LONGEST_TOKEN);
    bt_detok_init(&detok, tok);
    detok.shows_special = true;
    for (uint32_t i = 0; (i < n) && (i < TEXT_BYTES) && (text.len < TEXT_BYTES);
         i++) {
        bt_detok_push(&detok, ids[i], &text);
    }
    bt_detok_finish(&detok, &text);
    if (bt_strbuf_status(&text) == BT_OK) {
        copy = bt_strdup((text.len > 0) ? text.data : "");
    }
    bt_strbuf_fini(&text);
    return copy;
}

void bt_watching_record(bt_served_t *served, const bt_gen_record_t *record)
{
    bt_recent_requests_texts_t texts = {0};

    if (served->front->config->expose_request_text) {
        texts.prompt =
            beginning_of(served->tok, record->prompt, record->ledger->n_prompt);
        texts.answer =
            beginning_of(served->tok, record->output, record->ledger->n_output);
    }
    bt_recent_requests_add(&served->front->watch->past, served->name, record,
                           bt_unix_minus_monotonic_ns(), texts);
}

void bt_watching_rerun(void *ctx, const bt_gen_origin_t *origin,
                       const char *why)
{
    const bt_served_t *served = ctx;

    bt_series_rerun(served->series);
    add_event(
        served->front,
        (bt_event_t){.kind = BT_EVENT_REQUEST_RERUN, .request = origin->number},
        served->name, "runs again: %.200s", why);
}

void bt_watching_handover(void *ctx, const bt_gen_origin_t *origin,
                          const bt_gen_attempt_t *attempt,
                          bt_handover_phase_t phase,
                          const bt_msg_joined_t *joined)
{
    const bt_served_t *served = ctx;
    bt_handover_t one = {
        .phase = phase, .unix_ms = unix_ms(), .request = origin->number};

    snprintf(one.model, sizeof(one.model), "%s", served->name);
    snprintf(one.from, sizeof(one.from), "%s", attempt->prefill);
    snprintf(one.to, sizeof(one.to), "%s", attempt->decode);
    if (joined != NULL) {
        one.bytes = joined->transfer_bytes;
        one.length_us = joined->transfer_us;
    }
    bt_kv_transfer_log_add(&served->front->watch->handovers, &one);
}

/* Readiness may change at once, also when a worker comes back quickly. */
void bt_watching_worker(void *ctx, const bt_instance_t *worker,
                        bt_worker_event_t news, const char *text)
{
    static const struct {
        bt_event_kind_t kind;
        const char *words;
    } what[] = {
        [BT_WORKER_JOINED] = {BT_EVENT_WORKER_JOINED, "joined, "},
        [BT_WORKER_LOST] = {BT_EVENT_WORKER_LOST, "is gone: "},
        [BT_WORKER_SILENT] = {BT_EVENT_WORKER_SILENT, ""},
        [BT_WORKER_STARVED] = {BT_EVENT_WORKER_STARVED, ""},
        [BT_WORKER_BACK] = {BT_EVENT_WORKER_BACK, "is back: "},
        [BT_WORKER_DRAINING] = {BT_EVENT_WORKER_DRAINING, ""},
        [BT_WORKER_DRAINED] = {BT_EVENT_WORKER_DRAINED, ""},
        [BT_WORKER_ON] = {BT_EVENT_WORKER_ON, ""},
        [BT_WORKER_ROLE] = {BT_EVENT_WORKER_ROLE, "is now "},
    };
    bt_served_t *served = ctx;
    bt_event_t event = {.kind = what[news].kind};

    snprintf(event.worker, sizeof(event.worker), "%s", worker->hello.name);
    add_event(served->front, event, served->name, "worker %.63s %s%.150s",
              worker->hello.name, what[news].words, text);
    look_at_model(served);
    look_at_router(served->front);
}

/* ---- events of others ---- */

void bt_watching_refused(bt_frontend_t *front, bt_served_t *served,
                         int http_status)
{
    bt_router_metrics_refused(
        front->metrics, (served != NULL) ? served->metrics : NULL, http_status);
    bt_series_refused((served != NULL) ? served->series
                                       : &front->watch->history->all);
}

void bt_watching_loaded(bt_served_t *served)
{
    add_event(served->front,
              (bt_event_t){.kind = served->unloaded ? BT_EVENT_MODEL_UNLOADED
                                                    : BT_EVENT_MODEL_LOADED},
              served->name, "model %.63s is %s", served->name,
              served->unloaded ? "unloaded" : "loaded");
}

/* ---- what is polled ---- */

static void look_at_levels(bt_frontend_t *front)
{
    uint32_t waiting = 0, running = 0;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        const uint32_t n_waiting = bt_core_n_waiting(served->core);
        const uint32_t n_running = bt_core_n_in_flight(served->core);

        bt_series_levels(served->series, n_waiting, n_running);
        waiting += n_waiting;
        running += n_running;
    }
    bt_series_levels(&front->watch->history->all, waiting, running);
}

void bt_watching_tick(bt_frontend_t *front, uint64_t now_us)
{
    if ((now_us >= front->look_us) || (front->leaving && !front->was_leaving)) {
        front->look_us = now_us + LOOK_US;
        BT_REGISTRY_FOR_EACH(served, &front->models)
        {
            look_at_model(served);
        }
        look_at_router(front);
        look_at_levels(front);
    }
    bt_history_tick(front->watch->history, now_us, unix_ms());
}
