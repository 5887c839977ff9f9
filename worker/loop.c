/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker_priv.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "worker/admin.h"
#include "worker/fanout.h"
#include "worker/instance_ranks.h"

#define POLL_MS           20         /* bounds timers, not latency */
#define OWN_FDS           5u         /* descriptors to wait for */
#define WARM_MS           1          /* idle before the pool is warmed */
#define STEP_MS           2000       /* at the end, for the current step */
#define COPY_BUDGET_BYTES (4u << 20) /* between two looks at the inboxes */

static void post(bt_worker_t *w, const bt_worker_link_t *to,
                 const bt_msg_t *msg)
{
    bt_status_t status;

    bt_strbuf_reset(&w->out);
    bt_wire_encode(msg, &w->out);
    status = bt_strbuf_status(&w->out);
    if (status == BT_OK) {
        status = bt_link_post(to->control, w->out.data, w->out.len);
    }
    if (status != BT_OK) {
        /* A router that misses a message would wait for ever: close the link,
         * and it will run its requests elsewhere. */
        BT_LOG_WARN("cannot send message type %d: %s", (int)msg->type,
                    bt_status_str(status));
        bt_link_close(to->control, "message could not be sent");
    }
}

static void flush_tokens(bt_worker_t *w, bt_worker_link_t *link)
{
    bt_msg_t msg = {.type = BT_MSG_TOKENS};

    if (link->n_tokens == 0) {
        return;
    }
    msg.u.tokens.n = link->n_tokens;
    msg.u.tokens.tokens = link->tokens;
    msg.u.tokens.n_scores = link->n_scores;
    msg.u.tokens.scores = link->scores;
    msg.u.tokens.n_drafts = link->n_drafts;
    msg.u.tokens.drafts = link->drafts;
    link->n_tokens = 0;
    link->n_scores = 0;
    link->n_drafts = 0;
    post(w, link, &msg);
}

void bt_worker_send(bt_worker_t *w, bt_worker_link_t *to, const bt_msg_t *msg)
{
    if (to == NULL) {
        return;
    }
    flush_tokens(w, to); /* an end must not overtake its tokens */
    post(w, to, msg);
}

void bt_worker_send_token(bt_worker_t *w, const bt_job_t *job, uint32_t index,
                          uint32_t id, bt_finish_t finish)
{
    bt_worker_link_t *link = job->from;

    if (link == NULL) {
        return;
    }
    if (link->n_tokens == w->max_seqs) {
        flush_tokens(w, link);
    }
    if ((job->rows != NULL) &&
        bt_logprob_output_score(job, index,
                                &link->scores[link->n_scores].score)) {
        link->scores[link->n_scores++].token = link->n_tokens;
    }
    if (job->seq.n_drafted > 0) {
        uint32_t *const drafts = &link->drafts[link->n_drafts];

        drafts[0] = link->n_tokens;
        drafts[1] = job->seq.n_drafted;
        drafts[2] = job->seq.n_accepted;
        link->n_drafts += 3;
    }
    link->tokens[link->n_tokens++] = (bt_token_t){
        .key = job->key,
        .index = index,
        .id = id,
        .finish = (uint32_t)finish,
    };
}

void bt_worker_send_prefilled(bt_worker_t *w, const bt_job_t *job)
{
    const bt_seq_t *seq = &job->seq;
    const uint64_t first_us = seq->first_start_ns / 1000;
    bt_msg_t msg = {.type = BT_MSG_PREFILLED};

    msg.u.prefilled.key = job->key;
    msg.u.prefilled.queue_us = (first_us > job->claim.turn.since_us)
                                   ? first_us - job->claim.turn.since_us
                                   : 0;
    msg.u.prefilled.compute_us = seq->context_ns / 1000;
    msg.u.prefilled.n_chunks = seq->n_chunks;
    msg.u.prefilled.n_cached = job->n_reused * w->tokens_per_block;
    bt_worker_send(w, job->from, &msg);
}

void bt_worker_send_beams(bt_worker_t *w, const bt_job_t *job)
{
    const bt_beams_t *beams = job->seq.beams;
    uint32_t n = bt_beams_n_answers(beams);

    n = (n < job->beam_params.n_returned) ? n : job->beam_params.n_returned;
    for (uint32_t i = n; i > 0; i--) {
        const bt_beams_answer_t answer = bt_beams_answer(beams, i - 1);
        bt_msg_t msg = {.type = BT_MSG_BEAM};

        msg.u.beam.key = job->key;
        msg.u.beam.index = i - 1;
        msg.u.beam.n = n;
        msg.u.beam.finish = answer.ends ? BT_FINISH_STOP : BT_FINISH_LENGTH;
        msg.u.beam.ids = answer.ids;
        msg.u.beam.n_ids = answer.n;
        if (job->tells_logprobs) {
            msg.u.beam.logprobs = (const uint8_t *)answer.logprobs;
            msg.u.beam.logprobs_bytes = answer.n * (uint32_t)sizeof(double);
        }
        bt_worker_send(w, job->from, &msg);
        w->stats.tokens_generated += answer.n;
    }
}

void bt_worker_refuse(bt_worker_t *w, bt_worker_link_t *from, bt_req_key_t key,
                      bt_status_t status, const char *why)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED};

    msg.u.failed.key = key;
    msg.u.failed.status = status;
    strncpy(msg.u.failed.text, why, sizeof(msg.u.failed.text) - 1);
    bt_worker_send(w, from, &msg);
    msg = (bt_msg_t){.type = BT_MSG_ENDED};
    msg.u.ended.key = key;
    bt_worker_send(w, from, &msg);
}

static void on_request(bt_worker_t *w, bt_worker_link_t *from,
                       bt_msg_request_t *request)
{
    const char *why = NULL;
    bt_job_t *job = NULL;
    bt_status_t status;

    if (bt_admin_state_is_draining(w)) {
        bt_worker_refuse(w, from, request->key, BT_ERR_BUSY,
                         "the worker is draining");
        bt_fanout_miss(w, from, request);
        return;
    }
    bt_fanout_lend_prompt(w, from, request);
    status = bt_fanout_check(w, from, request, &why);
    if (status == BT_OK) {
        status = bt_job_create(w, from, request, &job, &why);
    }
    if (status == BT_ERR_EXISTS) {
        /* ENDED could not be assigned to one of the two. */
        BT_LOG_ERROR("router sent request %" PRIu64 " attempt %u twice",
                     request->key.id, request->key.attempt);
        bt_link_close(from->control, why);
        return;
    }
    if (status != BT_OK) {
        BT_LOG_WARN("request %" PRIu64 " attempt %u refused: %s",
                    request->key.id, request->key.attempt, why);
        bt_worker_refuse(w, from, request->key, status, why);
        bt_fanout_miss(w, from, request);
        return;
    }
    bt_fanout_enter(w, job, request);
}

/* The client no longer wants it. */
static void give_up(bt_worker_t *w, bt_job_t *job)
{
    if (bt_logprob_output_is_parked(job)) {
        bt_worker_job_end(w, job);
    } else {
        bt_worker_job_abort(w, job);
    }
}

static void on_cancel(bt_worker_t *w, bt_worker_link_t *from,
                      const bt_msg_cancel_t *cancel)
{
    bt_job_t *job = bt_worker_job_find(w, from, cancel->key);

    /* It may have ended while the cancel was on its way. */
    if (job != NULL) {
        bt_logprob_output_drop(job);
        give_up(w, job);
    }
}

static void on_grant(bt_worker_t *w, bt_worker_link_t *from,
                     const bt_msg_grant_t *grant)
{
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if (w->ops[i]->on_grant != NULL) {
            w->ops[i]->on_grant(w, from, grant);
        }
    }
}

/** Allows the ranks of a peer to connect from now on. */
static void admit(bt_worker_t *w, const bt_msg_peer_t *peer)
{
    for (uint32_t i = 0; i < peer->n_ranks; i++) {
        const bt_status_t status =
            bt_kvt_admit(w->kvt, peer->ranks[i].kvt, peer->ranks[i].kvt_bytes);

        if (status != BT_OK) {
            BT_LOG_ERROR("cannot receive KV from %s: %s", peer->name,
                         bt_status_str(status));
        }
    }
    bt_transfer_admit(w->transfers, peer->ranks, peer->n_ranks);
    if (bt_peer_sharding_add(w, peer->instance,
                             (bt_kv_split_t){.tp = peer->tp, .pp = peer->pp}) !=
        BT_OK) {
        BT_LOG_ERROR("out of memory for another prefill worker");
    }
}

static void on_peer(bt_worker_t *w, bt_worker_link_t *from,
                    const bt_msg_peer_t *peer)
{
    if (peer->sends) {
        admit(w, peer);
        return;
    }
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if (w->ops[i]->on_peer != NULL) {
            w->ops[i]->on_peer(w, from, peer);
        }
    }
}

static void on_peer_gone(bt_worker_t *w, const bt_worker_link_t *from,
                         uint64_t instance)
{
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        w->ops[i]->on_peer_gone(w, from, instance);
    }
}

void bt_worker_set_roles(bt_worker_t *w, uint32_t roles)
{
    char line[32];

    BT_ASSERT((roles != 0) && ((roles & ~BT_ROLES_BOTH) == 0));
    w->roles = roles;
    bt_jobs_reserve(w);
    w->stats.next_ms = 0;
    snprintf(line, sizeof(line), "role %s\n", bt_role_name(roles));
    bt_ready_fd_say(&w->ready_fd, line);
}

static void on_message(bt_worker_t *w, bt_worker_link_t *from, const void *data,
                       size_t bytes)
{
    bt_msg_t msg;
    const bt_status_t status = bt_wire_decode(w->decoder, data, bytes, &msg);

    if (status == BT_ERR_UNSUPPORTED) { /* a newer router's */
        const bt_wire_skip_t skipped = bt_wire_skipped(w->decoder);

        if (skipped.say) {
            BT_LOG_WARN(
                "router sends messages of type %u, unknown to this worker: skipped, %" PRIu64
                " so far",
                skipped.type, skipped.n);
        }
        return;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("router sent a message that cannot be read: %s",
                     bt_status_str(status));
        bt_link_close(from->control, "message could not be read");
        return;
    }
    switch (msg.type) {
    case BT_MSG_REQUEST:
        on_request(w, from, &msg.u.request);
        break;
    case BT_MSG_CANCEL:
        on_cancel(w, from, &msg.u.cancel);
        break;
    case BT_MSG_GRANT:
        bt_fanout_close(w, from, msg.u.grant.key);
        on_grant(w, from, &msg.u.grant);
        break;
    case BT_MSG_PEER:
        on_peer(w, from, &msg.u.peer);
        break;
    case BT_MSG_PEER_GONE:
        on_peer_gone(w, from, msg.u.peer_gone.instance);
        break;
    case BT_MSG_ROLE:
        bt_admin_state_on_role(w, &msg.u.role);
        break;
    case BT_MSG_WEIGHTS:
        bt_weights_on_order(w, from, &msg.u.weights);
        break;
    case BT_MSG_SLEEP:
        bt_sleep_on_order(w, &msg.u.sleep);
        break;
    case BT_MSG_CACHE_RESET:
        bt_admin_cache_reset(w, from, &msg.u.cache_reset);
        break;
    case BT_MSG_ADAPTER:
        bt_adapters_on_order(w, from, &msg.u.adapter);
        break;
    case BT_MSG_ADAPTER_PART:
        bt_adapters_on_part(w, from, &msg.u.adapter_part);
        break;
    case BT_MSG_HELLO:
    case BT_MSG_TOKENS:
    case BT_MSG_PREFILLED:
    case BT_MSG_JOINED:
    case BT_MSG_FAILED:
    case BT_MSG_ENDED:
    case BT_MSG_STATS:
    case BT_MSG_DRAIN:
    case BT_MSG_ROWS:
    case BT_MSG_KV_LINK:
    case BT_MSG_BEAM:
    case BT_MSG_WEIGHTS_CHECKED:
    case BT_MSG_CACHE_IS_EMPTY:
    case BT_MSG_ADAPTER_READY:
    case BT_MSG_ADAPTER_WANT:
        BT_LOG_WARN("router sent message type %d to a worker", (int)msg.type);
        break;
    }
}

static void link_free(bt_worker_link_t *link)
{
    bt_free(link->scores);
    bt_free(link->drafts);
    bt_free(link->tokens);
    bt_free(link);
}

static uint32_t free_bit(const bt_worker_t *w)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < w->n_links; i++) {
        used |= w->links[i]->bit;
    }
    return ~used & (used + 1); /* the lowest */
}

bool bt_worker_check_router(bt_worker_t *w, const bt_link_event_t *event)
{
    const bt_wire_range_t ours = bt_wire_range_ours();
    char theirs_text[BT_WIRE_RANGE_BYTES];
    char ours_text[BT_WIRE_RANGE_BYTES];
    bt_wire_range_t theirs;
    char why[256];
    bt_status_t status;
    bt_msg_t msg;

    status = bt_wire_decode(w->decoder, event->data, event->bytes, &msg);
    if ((status == BT_OK) && (msg.type != BT_MSG_HELLO)) {
        status = BT_ERR_BAD_MESSAGE;
    }
    if (status != BT_OK) {
        BT_LOG_WARN("router refused: its hello is invalid: %s",
                    bt_status_str(status));
        bt_link_close(event->link, "the router's hello cannot be read");
        return false;
    }
    theirs = bt_wire_range_of(&msg.u.hello);
    if (bt_wire_common(ours, theirs) != 0) {
        BT_LOG_INFO("router %s joined: protocol %u", msg.u.hello.name,
                    bt_wire_common(ours, theirs));
        return true;
    }
    bt_wire_range_print(theirs, theirs_text);
    bt_wire_range_print(ours, ours_text);
    snprintf(why, sizeof(why), "router %s speaks protocol %s, %s speaks %s",
             msg.u.hello.name, theirs_text, w->name, ours_text);
    BT_LOG_WARN("router refused: %s", why);
    bt_link_close(event->link, why);
    return false;
}

static void on_link_up(bt_worker_t *w, const bt_link_event_t *event)
{
    const bt_msg_t drain = {.type = BT_MSG_DRAIN};
    bt_link_t *control = event->link;
    bt_worker_link_t *link;

    if (!bt_worker_check_router(w, event)) {
        return;
    }
    if (w->n_links == BT_ARRAY_LEN(w->links)) {
        bt_link_close(control, "this worker has too many routers");
        return;
    }
    link = bt_calloc(1, sizeof(*link));
    if (link == NULL) {
        goto err;
    }
    link->control = control;
    link->tokens = bt_calloc(w->max_seqs, sizeof(*link->tokens));
    link->scores = bt_calloc(w->max_seqs, sizeof(*link->scores));
    link->drafts = bt_calloc((size_t)3 * w->max_seqs, sizeof(*link->drafts));
    if ((link->tokens == NULL) || (link->scores == NULL) ||
        (link->drafts == NULL)) {
        goto err_link;
    }
    link->bit = free_bit(w);
    bt_link_set_user(control, link);
    w->links[w->n_links++] = link;
    w->stats.next_ms = 0; /* the router needs them at once */
    if (bt_admin_state_is_draining(w)) {
        bt_worker_send(w, link, &drain);
    }
    return;

err_link:
    link_free(link);
err:
    bt_link_close(control, "out of memory");
}

/* The answers of this router's requests have no reader left (I3). */
static void on_link_down(bt_worker_t *w, bt_worker_link_t *link,
                         const bt_link_event_t *event)
{
    BT_LOG_INFO("router left: %.*s", (int)event->bytes,
                (const char *)event->data);
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, job, &w->jobs, link) {
        if (job->from == link) {
            job->from = NULL;
            give_up(w, job);
        }
    }
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if (w->ops[i]->on_router_gone != NULL) {
            w->ops[i]->on_router_gone(w, link);
        }
    }
    bt_weights_router_gone(w, link);
    bt_adapters_router_gone(w, link);
    for (uint32_t i = 0; i < w->n_links; i++) {
        if (w->links[i] == link) {
            w->links[i] = w->links[--w->n_links];
            break;
        }
    }
    link_free(link);
}

static void take_control(bt_worker_t *w)
{
    bt_link_event_t event;

    while (bt_control_next(w->control, bt_now_ms(), &event)) {
        bt_worker_link_t *link = bt_link_user(event.link);

        switch (event.type) {
        case BT_LINK_UP:
            on_link_up(w, &event);
            break;
        case BT_LINK_DOWN:
            if (link != NULL) {
                on_link_down(w, link, &event);
            }
            break;
        case BT_LINK_MESSAGE:
            if (link != NULL) {
                on_message(w, link, event.data, event.bytes);
            }
            break;
        case BT_LINK_SUSPECT:
            BT_LOG_INFO("router is silent");
            break;
        case BT_LINK_STARVED:
            BT_LOG_INFO("router is starved: it waits for a core");
            break;
        case BT_LINK_HEALTHY:
            BT_LOG_INFO("router responds again");
            break;
        case BT_LINK_WRITABLE:
            break; /* bt_logprob_output_send() looks at each turn */
        }
    }
}

static void count_drafts(bt_worker_t *w, const bt_draft_counts_t *drafts)
{
    _Static_assert(((unsigned)BT_DRAFT_N_SOURCES == BT_WIRE_DRAFT_SOURCES) &&
                       (BT_DRAFT_POSITIONS == BT_WIRE_DRAFT_POSITIONS),
                   "sources and positions have a field each");
    w->stats.draft_steps += drafts->n_steps;
    for (unsigned i = 0; i < BT_DRAFT_N_SOURCES; i++) {
        w->stats.drafted[i] += drafts->n_drafted[i];
        w->stats.accepted[i] += drafts->n_accepted[i];
    }
    for (unsigned i = 0; i < BT_DRAFT_POSITIONS; i++) {
        w->stats.accepted_at[i] += drafts->n_accepted_at[i];
    }
}

/* The sequence may be submitted again. */
static void count_masks(bt_worker_t *w, bt_mask_counts_t *counts)
{
    w->stats.masks.n_masks += counts->n_masks;
    w->stats.masks.n_hits += counts->n_hits;
    w->stats.masks.ns += counts->ns;
    *counts = (bt_mask_counts_t){0};
}

static void take_reports(bt_worker_t *w)
{
    bt_report_t *report;

    while ((report = bt_engine_next(w->engine)) != NULL) {
        if (report->iteration != 0) {
            w->stats.iteration = report->iteration;
            w->stats.n_scheduled = report->n_seqs;
            w->stats.n_context_seqs = report->n_context_seqs;
            w->stats.n_generation_seqs = report->n_generation_seqs;
            w->stats.n_context_tokens = report->n_context_tokens;
            w->stats.prompt_tokens += report->n_context_tokens;
            bt_sched_cost_learn(&w->cost, &report->work, report->work_ns);
        }
        w->stats.yielded_ns += report->yielded_ns;
        w->stats.n_overlapped += report->overlapped ? 1 : 0;
        count_drafts(w, &report->drafts);
        w->failed = w->failed || (report->status != BT_OK);
        for (uint32_t i = 0; i < report->n_items; i++) {
            const bt_report_item_t *item = &report->items[i];
            bt_job_t *job = bt_worker_job_of_seq(item->seq);

            if (item->kind == BT_REPORT_LEFT) {
                job->in_engine = false;
                w->n_in_engine -= bt_job_seats(job);
                count_masks(w, &job->seq.grammar.counts);
            }
            w->stats.tokens_generated += (item->kind == BT_REPORT_TOKEN);
            if (job->rows != NULL) {
                bt_logprob_output_on_item(w, job, item);
            }
            bt_window_eviction_on_item(w, job, item);
            job->ops->on_report_item(w, item);
        }
        for (uint32_t i = 0; i < w->n_links; i++) {
            flush_tokens(w, w->links[i]);
        }
        bt_engine_recycle(w->engine, report);
    }
}

/* Totals since this worker started. */
static void fill_totals(const bt_worker_t *w, bt_msg_stats_t *stats)
{
    const bt_process_use_t use = bt_process_use();

    stats->tokens_generated = w->stats.tokens_generated;
    stats->prompt_tokens = w->stats.prompt_tokens;
    stats->tokens_reused = w->stats.tokens_reused;
    stats->process_cpu_ms = use.cpu_ms;
    stats->resident_bytes = use.resident_bytes;
    stats->start_unix_s = w->stats.start_unix_s;
    if ((w->backend != NULL) && (w->backend->ops->lent_stats != NULL)) {
        bt_lent_stats_t lent;

        w->backend->ops->lent_stats(w->backend, &lent);
        stats->lent_pieces = lent.pieces;
        stats->lent_us = lent.busy_ns / 1000;
        stats->lent_again = lent.again;
    }
}

static void fill_waiting(bt_worker_t *w, bt_msg_stats_t *stats)
{
    BT_LIST_FOR_EACH_ENTRY(bt_job_t, job, &w->jobs, link) {
        switch (job->ops->waits_for(job)) {
        case BT_JOB_WAITS_NOT:
            break;
        case BT_JOB_WAITS_TURN:
            stats->waiting_requests++;
            break;
        case BT_JOB_WAITS_KV:
            stats->waiting_for_kv_requests++;
            break;
        }
    }
}

static void send_stats(bt_worker_t *w)
{
    bt_msg_t msg = {.type = BT_MSG_STATS};
    bt_msg_stats_t *stats = &msg.u.stats;
    bt_kvt_counters_t kvt;

    bt_kvt_counters(w->kvt, &kvt);
    stats->active_requests = w->n_jobs;
    stats->max_requests = w->max_seqs;
    stats->blocks_max = w->n_blocks;
    stats->blocks_cached = bt_kv_pool_n_idle(w->pool);
    stats->blocks_free = bt_kv_pool_n_free(w->pool) + stats->blocks_cached;
    stats->blocks_reused = w->stats.n_blocks_reused;
    stats->blocks_windowed = bt_kv_pool_n_windowed(w->pool);
    stats->blocks_slid = w->stats.n_blocks_slid;
    stats->still_ms = w->stuck.still_ms;
    stats->blocks_used = stats->blocks_max - stats->blocks_free;
    stats->tokens_per_block = w->tokens_per_block;
    if (w->n_in_engine > 0) { /* idle workers schedule nothing */
        stats->scheduled_requests = w->stats.n_scheduled;
        stats->context_requests = w->stats.n_context_seqs;
        stats->generation_requests = w->stats.n_generation_seqs;
        stats->total_context_tokens = w->stats.n_context_tokens;
    }
    stats->iteration_counter = w->stats.iteration;
    stats->memory_cpu_bytes = w->model_bytes + w->draft_kv_bytes;
    if (w->kv_memory == NULL) {
        stats->memory_cpu_bytes += (uint64_t)w->n_blocks * w->block_bytes;
    } else {
        stats->memory_gpu_bytes =
            w->device_bytes + (uint64_t)w->n_blocks * w->block_bytes;
        stats->memory_pinned_bytes = w->pinned_bytes;
        stats->memory_cpu_bytes -= w->pinned_bytes;
    }
    stats->kv_bytes_sent = kvt.bytes_sent;
    stats->kv_bytes_received = kvt.bytes_received;
    stats->kv_stale_discarded = kvt.stale_discarded;
    stats->kv_checksum_failures = kvt.checksum_failures;
    stats->kv_bytes_staged = kvt.bytes_staged;
    stats->kv_bytes_shared = kvt.bytes_shared;
    stats->kv_stage_waits = kvt.stage_waits;
    stats->kv_foreign_pieces = kvt.foreign_pieces;
    stats->log_lines_dropped = bt_log_dropped();
    stats->open_fds = bt_count_open_fds();
    stats->roles = w->roles;
    stats->duty = bt_admin_state_of(w);
    stats->rates = bt_sched_cost_rates(&w->cost);
    stats->pauses = w->preemption.n_pauses;
    stats->resumes = w->preemption.n_resumes;
    stats->tokens_recomputed = w->preemption.tokens_recomputed;
    stats->yielded_us = w->stats.yielded_ns / 1000;
    stats->overlapped_iterations = w->stats.n_overlapped;
    stats->draft_steps = w->stats.draft_steps;
    memcpy(stats->drafted, w->stats.drafted, sizeof(stats->drafted));
    memcpy(stats->accepted, w->stats.accepted, sizeof(stats->accepted));
    memcpy(stats->accepted_at, w->stats.accepted_at,
           sizeof(stats->accepted_at));
    stats->grammar_masks = w->stats.masks.n_masks;
    stats->grammar_mask_hits = w->stats.masks.n_hits;
    stats->grammar_mask_us = w->stats.masks.ns / 1000;
    stats->grammars_loaded =
        (w->grammars != NULL) ? bt_grammars_n_loaded(w->grammars) : 0;
    fill_totals(w, stats);
    fill_waiting(w, stats);
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        w->ops[i]->fill_stats(w, stats);
    }
    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_worker_send(w, w->links[i], &msg);
    }
}

static void check_deadlines(bt_worker_t *w)
{
    const uint64_t now_us = bt_now_us();

    BT_LIST_FOR_EACH_ENTRY(bt_job_t, job, &w->jobs, link) {
        if (!job->ending && (now_us > job->deadline_us)) {
            bt_worker_job_fail(w, job, BT_ERR_TIMED_OUT,
                               job->in_engine ? "compute" : "waiting",
                               "the request's deadline passed");
        }
    }
}

/* A compute thread without progress serves no requests: exit, so that the
 * launcher restarts the worker (health is progress). */
static void check_progress(bt_worker_t *w, uint64_t now_ms)
{
    uint64_t marks = 0;
    const bool busy = bt_engine_progress(w->engine, &marks);

    if (!w->hung && bt_compute_watchdog_check(&w->stuck, busy, marks, now_ms,
                                              w->config->compute_watchdog_ms)) {
        w->hung = true;
        BT_LOG_ERROR("the compute thread made no progress for %u ms",
                     w->config->compute_watchdog_ms);
    }
}

void bt_worker_check_routers(bt_worker_t *w, uint64_t now_ms)
{
    const char *join = w->config->join;
    const uint64_t alone_s =
        bt_no_router_warning_check(&w->alone, w->n_links > 0, now_ms);

    if ((alone_s > 0) && !w->draining) {
        BT_LOG_WARN("no router has answered for %" PRIu64
                    " s at %s: this worker serves no router",
                    alone_s,
                    (join[0] != '\0') ? join
                    : (w->config->join_dir[0] != '\0')
                        ? w->config->join_dir
                        : "the address that came "
                          "by MPI");
    }
}

static void begin_drain(bt_worker_t *w)
{
    w->draining = true;
    w->drain_deadline_ms = bt_now_ms() + w->config->drain_ms;
    BT_LOG_INFO("draining, %u requests left", w->n_jobs);
    bt_admin_state_send(w);
}

static void tick(bt_worker_t *w)
{
    const uint64_t now_ms = bt_now_ms();

    bt_heartbeat_tick(&w->beat, now_ms);
    bt_log_tick();
    bt_control_tick(w->control, now_ms);
    if (now_ms >= w->stats.next_ms) {
        w->stats.next_ms = now_ms + w->config->heartbeat_ms;
        send_stats(w);
        bt_fanout_expire(w, bt_now_us());
        check_deadlines(w);
        bt_worker_check_routers(w, now_ms);
        bt_link_status_send(w, now_ms);
    }
    bt_membership_tick(w);
    check_progress(w, now_ms);
    if (bt_admin_state_is_drained(w)) {
        begin_drain(w);
    }
}

static void take_signals(bt_worker_t *w, int signal_fd)
{
    bool from_parent = false;

    while (bt_stop_next(signal_fd, &from_parent) != 0) {
        switch (bt_stop_request(&w->wishes, bt_now_ms(), from_parent)) {
        case BT_STOP_BEGIN:
            begin_drain(w);
            break;
        case BT_STOP_SAME:
            break;
        case BT_STOP_NOW:
            w->drain_deadline_ms = 0;
            break;
        }
    }
}

/* Sleep until something happens, unless something already has. */
static void wait_for_work(bt_worker_t *w, int signal_fd, bool busy)
{
    struct pollfd fds[OWN_FDS + BT_TEAM_MAX] = {
        {.fd = bt_control_fd(w->control), .events = POLLIN},
        {.fd = bt_kvt_fd(w->kvt), .events = POLLIN},
        {.fd = bt_engine_fd(w->engine), .events = POLLIN},
        {.fd = signal_fd, .events = POLLIN},
        {.fd = w->admin.hangup_fd, .events = POLLIN},
    };
    const uint32_t n_ranks = bt_transfer_n_links(w->transfers);
    const bool warming = w->pool_is_cold && (w->n_jobs == 0) && !w->draining;
    int timeout_ms = (w->poll_ms != 0) ? (int)w->poll_ms : POLL_MS;

    if (warming) {
        timeout_ms = WARM_MS;
    }
    if (busy || (bt_kvt_arm(w->kvt) != BT_OK) ||
        !bt_engine_sleep_prepare(w->engine)) {
        timeout_ms = 0;
    }
    for (uint32_t i = 0; i < n_ranks; i++) {
        fds[OWN_FDS + i] = (struct pollfd){
            .fd = bt_transfer_link_fd(w->transfers, i), .events = POLLIN};
    }
    if ((poll(fds, OWN_FDS + n_ranks, timeout_ms) == 0) && warming &&
        (timeout_ms != 0)) {
        w->pool_is_cold = bt_kvt_pool_warm(w->kvt);
    }
    bt_engine_sleep_done(w->engine);
}

static void take_kvt(bt_worker_t *w, bool *busy_p)
{
    bt_kvt_event_t event;

    *busy_p = bt_kvt_progress(w->kvt, bt_now_ms(), COPY_BUDGET_BYTES);
    while (bt_kvt_poll(w->kvt, &event)) {
        bt_transfer_take_kvt(w->transfers, &event);
    }
}

void bt_worker_on_transfer(void *ctx, const bt_transfer_event_t *event)
{
    bt_worker_t *w = ctx;

    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if (((w->ops[i]->events >> event->type) & 1u) != 0) {
            w->ops[i]->on_transfer(w, event);
        }
    }
}

static void take_ranks(bt_worker_t *w)
{
    if (!bt_transfer_take_ranks(w->transfers)) {
        /* Its compute thread may wait in an all-reduce that never ends; routers
         * with a request here see the worker gone, and run it elsewhere. */
        BT_LOG_ERROR("lost a rank of this instance: exiting");
        bt_log_flush();
        _exit(BT_EXIT_FAILURE);
    }
}

bool bt_worker_turn(bt_worker_t *w, int signal_fd, bool *busy_p, int *code_p)
{
    take_signals(w, signal_fd);
    bt_sighup_take(w);
    take_control(w);
    take_reports(w);
    take_kvt(w, busy_p);
    take_ranks(w);
    bt_weights_step(w);
    bt_adapters_step(w);
    bt_worker_admit(w);
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if (w->ops[i]->advance != NULL) {
            w->ops[i]->advance(w);
        }
    }
    bt_logprob_output_send(w);
    tick(w);
    bt_control_flush(w->control);
    if (w->failed || w->hung) {
        *code_p = BT_EXIT_STUCK;
        return false;
    }
    *code_p = 0;
    if ((w->weights.are_due || w->sleep.is_due) && !w->draining &&
        (w->n_jobs == 0)) {
        return false; /* start.c starts it again */
    }
    return !w->draining ||
           ((w->n_jobs > 0) && (bt_now_ms() < w->drain_deadline_ms));
}

int bt_worker_loop(bt_worker_t *w, int signal_fd)
{
    bool busy = false;
    int code = 0;

    while (bt_worker_turn(w, signal_fd, &busy, &code)) {
        wait_for_work(w, signal_fd, busy);
    }
    if ((code == 0) && (w->n_jobs > 0)) {
        BT_LOG_WARN("stopped with %u requests unfinished", w->n_jobs);
    }
    /* A step that does not end may not keep the process alive. */
    if (w->hung || !bt_engine_stop(w->engine, STEP_MS)) {
        BT_LOG_WARN("exiting during an iteration of the compute thread");
        bt_log_flush();
        _exit(code);
    }
    return code;
}
