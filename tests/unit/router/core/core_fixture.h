/* SPDX-License-Identifier: Apache-2.0 */
/** @file core_fixture.h  The core with scripted workers and clients, for
 *  test_core*.c: a token's id is the character that it stands for, so every
 *  expected text is written by hand. */
#ifndef BT_TESTS_UNIT_ROUTER_CORE_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_CORE_FIXTURE_H

#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "router/core/core.h"

#define MAX_SENT    4096
#define MS          1000u /* µs */
#define VOCAB       128
#define WAIT_MS     3000
#define DEADLINE_MS 60000
#define STILL_MS    3000

typedef struct sent {
    bt_instance_t *to;
    bt_msg_t msg;
    char tokens[64]; /* the first of a REQUEST, as text */
} sent_t;

typedef struct client {
    bt_gen_t *gen;
    char text[256];
    unsigned n_ends;
    bt_finish_t finish;
    int http_status;
    uint32_t n_output;
    char message[512];
    bool cancel_on_text;
    bt_gen_rows_t *rows; /* a reference, once it has ended; the test's */
    uint32_t n_scored;   /* that were certain at the last text */
} client_t;

typedef struct world {
    bt_core_t *core;
    uint64_t now;
    sent_t sent[MAX_SENT];
    uint32_t n_sent;
    unsigned n_ledgers, n_first_transfers;
    uint64_t transfer_us;
    bt_ledger_t ledger;
    unsigned n_records;
    bt_gen_record_t record; /* its pointers are stale */
    bt_ledger_t final;
    bt_gen_origin_t origin;
    bt_gen_attempt_t attempts[BT_GEN_MAX_ATTEMPTS];
    char trouble[512];
    uint64_t recorded_transfer_us;
    unsigned n_times[BT_N_TIMES];
    uint64_t times_us[BT_N_TIMES];
    uint32_t n_losses[BT_N_LOSSES];
    uint32_t n_sent_so[BT_SCHED_N_CAUSES];
    uint64_t next_instance;
} world_t;

static world_t world; /* one test at a time */
static bool has_tenants;
static bt_gen_tenant_t next_tenant; /* whose what is submitted is */

static inline void w_send(void *ctx, bt_instance_t *worker, const bt_msg_t *msg)
{
    world_t *w = ctx;
    sent_t *s = &w->sent[w->n_sent++];

    assert_true(w->n_sent < MAX_SENT);
    s->to = worker;
    s->msg = *msg;
    if (msg->type == BT_MSG_REQUEST) {
        uint32_t n = msg->u.request.n_tokens;

        n = (n < sizeof(s->tokens)) ? n : sizeof(s->tokens) - 1;
        for (uint32_t i = 0; i < n; i++) {
            s->tokens[i] = (char)msg->u.request.tokens[i];
        }
        s->tokens[n] = '\0';
    }
}

static inline void w_text(void *ctx, void *user, const char *text, size_t bytes,
                          uint32_t n_output)
{
    world_t *w = ctx;
    client_t *c = user;

    assert_int_equal(c->n_ends, 0);
    assert_true(bytes > 0);
    strncat(c->text, text, bytes);
    c->n_output = n_output;
    if ((c->gen != NULL) && (bt_core_rows(c->gen) != NULL)) {
        c->n_scored = bt_core_rows(c->gen)->scores.n;
    }
    if (c->cancel_on_text) {
        bt_core_cancel(w->core, c->gen, w->now);
        c->gen = NULL;
    }
}

static inline void w_end(void *ctx, void *user, const bt_gen_end_t *end)
{
    client_t *c = user;

    (void)ctx;
    c->n_ends++;
    c->gen = NULL;
    strncat(c->text, end->text, end->text_bytes);
    c->finish = end->finish;
    c->http_status = end->http_status;
    c->n_output = end->n_output;
    c->rows = (end->rows != NULL) ? bt_gen_rows_ref(end->rows) : NULL;
    if (end->message != NULL) {
        snprintf(c->message, sizeof(c->message), "%s", end->message);
    }
}

static inline void w_ledger(void *ctx, const bt_ledger_t *ledger)
{
    world_t *w = ctx;

    w->n_ledgers++;
    w->ledger = *ledger;
    assert_int_equal(ledger->parse_us + ledger->tokenize_us + ledger->queue_us +
                         ledger->prefill_queue_us + ledger->prefill_us +
                         ledger->first_token_us + ledger->handover_us +
                         ledger->decode_us,
                     ledger->total_us);
}

static inline void w_transfer(void *ctx, const bt_msg_joined_t *m, bool first)
{
    world_t *w = ctx;

    w->transfer_us += m->transfer_us;
    w->n_first_transfers += first ? 1 : 0;
}

static inline void w_record(void *ctx, const bt_gen_record_t *record)
{
    world_t *w = ctx;

    w->n_records++;
    w->record = *record;
    w->final = *record->ledger;
    w->origin = *record->origin;
    snprintf(w->trouble, sizeof(w->trouble), "%s", record->trouble);
    memcpy(w->attempts, record->attempts, sizeof(w->attempts));
    w->recorded_transfer_us += record->ledger->transfer_us;
}

static inline void w_time(void *ctx, bt_gen_time_kind_t which, uint64_t us)
{
    world_t *w = ctx;

    w->n_times[which]++;
    w->times_us[which] += us;
}

static inline void w_sent(void *ctx, bt_sched_cause_t cause)
{
    world_t *w = ctx;

    w->n_sent_so[cause]++;
}

static inline void w_loss(void *ctx, bt_gen_loss_t loss)
{
    world_t *w = ctx;

    w->n_losses[loss]++;
}

static inline void w_placed(void *ctx, void *user)
{
    (void)ctx;
    (void)user;
}

static inline void w_rerun(void *ctx, const bt_gen_origin_t *origin,
                           const char *why)
{
    (void)ctx;
    (void)origin;
    (void)why;
}

static inline void w_handover(void *ctx, const bt_gen_origin_t *origin,
                              const bt_gen_attempt_t *attempt,
                              bt_handover_phase_t phase,
                              const bt_msg_joined_t *joined)
{
    (void)ctx;
    (void)origin;
    (void)attempt;
    (void)phase;
    (void)joined;
}

static inline void w_worker(void *ctx, const bt_instance_t *worker,
                            bt_worker_event_t news, const char *text)
{
    (void)ctx;
    (void)worker;
    (void)news;
    (void)text;
}

static inline void fake_init(bt_detok_t *detok, const bt_tokenizer_t *tok)
{
    detok->tok = tok;
    detok->n_pending = 0;
}

static inline void fake_push(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out)
{
    const char c = (char)id;

    (void)detok;
    bt_strbuf_append(out, &c, 1);
}

static inline void fake_finish(bt_detok_t *detok, bt_strbuf_t *out)
{
    (void)detok;
    (void)out;
}

static bt_sched_slo_t core_target; /* of the next start */

static inline void start_in_order(world_t *w, uint32_t max_queue,
                                  bt_sched_order_t order)
{
    const bt_core_config_t config = {
        .model = {.lo = 1, .hi = 2},
        .n_vocab = VOCAB,
        .max_queue = max_queue,
        .order = order,
        .target = core_target,
        .max_logits_bytes = 64 * VOCAB * sizeof(float),
        .worker_wait_ms = WAIT_MS,
        .request_timeout_ms = DEADLINE_MS,
        .still_ms = STILL_MS,
        .has_tenants = has_tenants,
    };
    const bt_core_ops_t ops = {
        .send = w_send,
        .send_ctx = w,
        .on_text = w_text,
        .on_end = w_end,
        .on_ledger = w_ledger,
        .on_record = w_record,
        .on_transfer = w_transfer,
        .on_time = w_time,
        .on_sent = w_sent,
        .on_loss = w_loss,
        .on_placed = w_placed,
        .on_rerun = w_rerun,
        .on_handover = w_handover,
        .on_worker = w_worker,
        .detok_init = fake_init,
        .detok_push = fake_push,
        .detok_finish = fake_finish,
        .ctx = w,
    };

    memset(w, 0, sizeof(*w));
    w->now = 1000 * MS;
    w->next_instance = 7;
    assert_int_equal(bt_core_create(&config, &ops, &w->core), BT_OK);
}

static inline bt_status_t submit_one(bt_core_t *core, const bt_gen_spec_t *spec,
                                     void *user, uint64_t now_us,
                                     bt_gen_t **gen_p)
{
    bt_gen_t *gen = NULL;
    const bt_status_t status =
        bt_core_submit(core, spec, &user, 1, now_us, &gen);

    if (status == BT_OK) {
        *gen_p = gen;
    }
    return status;
}

static inline void start(world_t *w, uint32_t max_queue)
{
    start_in_order(w, max_queue, BT_SCHED_FCFS);
}

static inline uint32_t n_waiting(const world_t *w)
{
    bt_metrics_view_t view = {0};

    assert_int_equal(bt_core_view(w->core, &view), BT_OK);
    bt_core_view_fini(&view);
    return view.n_waiting;
}

static inline bt_instance_t *join_flags(world_t *w, const char *name,
                                        bt_role_t role, uint32_t flags)
{
    static const uint8_t kvt[] = {9, 9};
    static const bt_wire_rank_t rank = {
        .block_bytes = 4096, .kvt = kvt, .kvt_bytes = sizeof(kvt)};
    bt_msg_hello_t hello = {
        .protocol = BT_WIRE_PROTOCOL,
        .role = (uint32_t)role,
        .instance = w->next_instance++,
        .model = {.lo = 1, .hi = 2},
        .tokens_per_block = 16,
        .context_tokens = 100,
        .max_batch = 4,
        .n_blocks = 10,
        .flags = flags,
        .ranks = &rank,
        .n_ranks = 1,
        .tp = 1,
        .pp = 1,
        .layout = {.lo = 3, .hi = 4},
    };
    const uint32_t n_before = w->n_sent;
    char why[BT_TABLE_WHY_BYTES];
    bt_instance_t *worker = NULL;

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, w, w->now, why, &worker), BT_OK);
    /* One that is gone may have lain in the same memory. */
    for (uint32_t i = 0; i < n_before; i++) {
        w->sent[i].to = (w->sent[i].to == worker) ? NULL : w->sent[i].to;
    }
    assert_ptr_equal(worker->link_user, w);
    return worker;
}

static inline bt_instance_t *join(world_t *w, const char *name, bt_role_t role)
{
    return join_flags(w, name, role, 0);
}

/* One reference, the caller's; in memory that no test makes fail. */
static inline bt_prompt_t *prompt_of(const char *letters)
{
    const uint32_t n = (uint32_t)strlen(letters);
    uint32_t *ids = bt_calloc(n, sizeof(*ids));
    bt_prompt_t *prompt = NULL;

    assert_non_null(ids);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (uint32_t)letters[i];
    }
    assert_int_equal(bt_prompt_create(ids, n, &prompt), BT_OK);
    return prompt;
}

static inline void submit_with(world_t *w, client_t *c, const char *prompt,
                               uint32_t max_new, const char *stop,
                               uint32_t priority)
{
    const bt_gen_spec_t spec = {
        .prompt = prompt_of(prompt),
        .max_new = max_new,
        .sampling = bt_sampling_default(),
        .stops = &stop,
        .n_stops = (stop != NULL) ? 1 : 0,
        .tenant = next_tenant,
        .priority = priority,
        .parse_us = 10,
        .tokenize_us = 20,
    };

    memset(c, 0, sizeof(*c));
    assert_int_equal(submit_one(w->core, &spec, c, w->now, &c->gen), BT_OK);
    bt_prompt_unref(spec.prompt);
}

static inline void submit(world_t *w, client_t *c, const char *prompt,
                          uint32_t max_new, const char *stop)
{
    submit_with(w, c, prompt, max_new, stop, 0);
}

/* The latest message of a type to a worker, or NULL. */
static inline const sent_t *last(const world_t *w, const bt_instance_t *to,
                                 bt_msg_type_t type)
{
    for (uint32_t i = w->n_sent; i > 0; i--) {
        if ((w->sent[i - 1].to == to) && (w->sent[i - 1].msg.type == type)) {
            return &w->sent[i - 1];
        }
    }
    return NULL;
}

static inline unsigned count(const world_t *w, const bt_instance_t *to,
                             bt_msg_type_t type)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        n += ((w->sent[i].to == to) && (w->sent[i].msg.type == type)) ? 1 : 0;
    }
    return n;
}

static inline void say(world_t *w, bt_instance_t *from, const bt_msg_t *msg)
{
    w->now += 1 * MS;
    assert_int_equal(bt_core_message(w->core, from, msg, w->now), BT_OK);
}

/* The characters of @a text as tokens from index @a index on; the last one
 * carries @a finish. */
static inline void tokens(world_t *w, bt_instance_t *from, bt_req_key_t key,
                          uint32_t index, const char *text, bt_finish_t finish)
{
    bt_token_t list[64];
    const uint32_t n = (uint32_t)strlen(text);
    const bt_msg_t msg = {.type = BT_MSG_TOKENS,
                          .u.tokens = {.n = n, .tokens = list}};

    for (uint32_t i = 0; i < n; i++) {
        list[i].key = key;
        list[i].index = index + i;
        list[i].id = (uint32_t)text[i];
        list[i].finish = (uint32_t)((i + 1 == n) ? finish : BT_FINISH_NONE);
    }
    say(w, from, &msg);
}

static inline void grant(world_t *w, bt_instance_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {
        .type = BT_MSG_GRANT,
        .u.grant = {.key = key, .instance = from->hello.instance},
    };

    say(w, from, &msg);
}

static inline void prefilled(world_t *w, bt_instance_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {
        .type = BT_MSG_PREFILLED,
        .u.prefilled = {.key = key, .queue_us = 100, .compute_us = 300},
    };

    say(w, from, &msg);
}

static inline void joined(world_t *w, bt_instance_t *from, bt_req_key_t key,
                          uint64_t transfer_us)
{
    const bt_msg_t msg = {
        .type = BT_MSG_JOINED,
        .u.joined = {.key = key,
                     .transfer_us = transfer_us,
                     .n_descriptors = 1},
    };

    say(w, from, &msg);
}

static inline void ended(world_t *w, bt_instance_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {.type = BT_MSG_ENDED, .u.ended = {.key = key}};

    say(w, from, &msg);
}

static inline void failed(world_t *w, bt_instance_t *from, bt_req_key_t key,
                          bt_status_t status, const char *text)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED,
                    .u.failed = {.key = key, .status = status}};

    snprintf(msg.u.failed.text, sizeof(msg.u.failed.text), "%s", text);
    say(w, from, &msg);
}

static inline void assert_all_back(const world_t *w)
{
    bt_list_t *head = &bt_core_table(w->core)->workers;

    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(n_waiting(w), 0);
    assert_int_equal(bt_core_n_legs(w->core), 0);
    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_instance_t *worker = BT_CONTAINER_OF(pos, bt_instance_t, link);

        assert_int_equal(worker->sched.seats, 0);
        assert_int_equal(worker->sched.blocks, 0);
        assert_int_equal(worker->sched.prefill_tokens, 0);
    }
}

/* The end of a test: nothing is held by anybody. */
static inline void end_world(const world_t *w)
{
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static inline bt_req_key_t key_at(const world_t *w, const bt_instance_t *worker)
{
    const sent_t *s = last(w, worker, BT_MSG_REQUEST);

    assert_non_null(s);
    return s->msg.u.request.key;
}

/* A router with a worker of each role, "prefill-0" and "decode-0". */
static inline void start_pair(world_t *w, bt_instance_t **p_p,
                              bt_instance_t **d_p)
{
    start(w, 10);
    *p_p = join(w, "prefill-0", BT_ROLE_PREFILL);
    *d_p = join(w, "decode-0", BT_ROLE_DECODE);
}

/* ...and a request with the prompt "The" that both have. */
static inline bt_req_key_t begin(world_t *w, bt_instance_t **p_p,
                                 bt_instance_t **d_p, client_t *c,
                                 uint32_t max_new, const char *stop)
{
    start_pair(w, p_p, d_p);
    submit(w, c, "The", max_new, stop);
    return key_at(w, *d_p);
}

/* Drives a request to a phase: 0 waiting, 1 prefill, 2 token #1, 3 decode. */
static inline bt_req_key_t drive(world_t *w, bt_instance_t *p, bt_instance_t *d,
                                 unsigned phase)
{
    bt_req_key_t key = {0};

    if (phase >= 1) {
        key = key_at(w, d);
        grant(w, d, key);
    }
    if (phase >= 2) {
        tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    }
    if (phase >= 3) {
        joined(w, d, key, 5);
        tokens(w, d, key, 1, "b", BT_FINISH_NONE);
    }
    return key;
}

/* begin() and drive(); in phase 0 there are no workers, *p_p and *d_p are NULL.
 */
static inline bt_req_key_t begin_in(world_t *w, bt_instance_t **p_p,
                                    bt_instance_t **d_p, client_t *c,
                                    unsigned phase)
{
    if (phase > 0) {
        (void)begin(w, p_p, d_p, c, 8, NULL);
    } else {
        *p_p = NULL;
        *d_p = NULL;
        start(w, 10);
        submit(w, c, "The", 8, NULL);
    }
    return drive(w, *p_p, *d_p, phase);
}

#endif
