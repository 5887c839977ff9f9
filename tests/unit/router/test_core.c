/* SPDX-License-Identifier: Apache-2.0 */
/* The core with scripted workers and clients: a token's id is the character
 * that it stands for, so every expected text is written by hand. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "router/core/core.h"

#define MAX_SENT    4096
#define MS          1000u /* µs */
#define VOCAB       128
#define WAIT_MS     3000
#define RERUN_MS    1500
#define DEADLINE_MS 60000

typedef struct sent {
    bt_worker_t *to;
    bt_msg_t msg;
    char tokens[64]; /* of a REQUEST, as text */
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
} client_t;

typedef struct world {
    bt_core_t *core;
    uint64_t now;
    sent_t sent[MAX_SENT];
    uint32_t n_sent;
    unsigned n_ledgers, n_first_transfers;
    uint64_t transfer_us;
    bt_ledger_t ledger;
    uint64_t next_instance;
} world_t;

static world_t world; /* one test at a time */

static void w_send(void *ctx, bt_worker_t *worker, const bt_msg_t *msg)
{
    world_t *w = ctx;
    sent_t *s = &w->sent[w->n_sent++];

    assert_true(w->n_sent < MAX_SENT);
    s->to = worker;
    s->msg = *msg;
    if (msg->type == BT_MSG_REQUEST) {
        for (uint32_t i = 0; i < msg->u.request.n_tokens; i++) {
            s->tokens[i] = (char)msg->u.request.tokens[i];
        }
        s->tokens[msg->u.request.n_tokens] = '\0';
    }
}

static void w_text(void *ctx, void *user, const char *text, size_t bytes,
                   uint32_t n_output)
{
    world_t *w = ctx;
    client_t *c = user;

    assert_int_equal(c->n_ends, 0);
    assert_true(bytes > 0);
    strncat(c->text, text, bytes);
    c->n_output = n_output;
    if (c->cancel_on_text) {
        bt_core_cancel(w->core, c->gen, w->now);
        c->gen = NULL;
    }
}

static void w_end(void *ctx, void *user, const bt_gen_end_t *end)
{
    client_t *c = user;

    (void)ctx;
    c->n_ends++;
    c->gen = NULL;
    strncat(c->text, end->text, end->text_bytes);
    c->finish = end->finish;
    c->http_status = end->http_status;
    c->n_output = end->n_output;
    if (end->message != NULL) {
        snprintf(c->message, sizeof(c->message), "%s", end->message);
    }
}

static void w_ledger(void *ctx, const bt_ledger_t *ledger)
{
    world_t *w = ctx;

    w->n_ledgers++;
    w->ledger = *ledger;
    assert_int_equal(ledger->parse_us + ledger->tokenize_us + ledger->wait_us +
                         ledger->prefill_queue_us + ledger->prefill_compute_us +
                         ledger->first_rest_us + ledger->handover_us +
                         ledger->decode_us,
                     ledger->total_us);
}

static void w_transfer(void *ctx, uint64_t transfer_us, uint64_t bytes,
                       bool first)
{
    world_t *w = ctx;

    (void)bytes;
    w->transfer_us += transfer_us;
    w->n_first_transfers += first ? 1 : 0;
}

static void fake_init(bt_detok_t *detok, const bt_tokenizer_t *tok)
{
    detok->tok = tok;
    detok->n_pending = 0;
}

static void fake_push(bt_detok_t *detok, uint32_t id, bt_strbuf_t *out)
{
    const char c = (char)id;

    (void)detok;
    bt_strbuf_append(out, &c, 1);
}

static void fake_finish(bt_detok_t *detok, bt_strbuf_t *out)
{
    (void)detok;
    (void)out;
}

static void start(world_t *w, uint32_t max_queue)
{
    const bt_core_config_t config = {
        .model = {.lo = 1, .hi = 2},
        .n_vocab = VOCAB,
        .max_queue = max_queue,
        .worker_wait_ms = WAIT_MS,
        .rerun_wait_ms = RERUN_MS,
        .request_timeout_ms = DEADLINE_MS,
    };
    const bt_core_ops_t ops = {
        .send = w_send,
        .on_text = w_text,
        .on_end = w_end,
        .on_ledger = w_ledger,
        .on_transfer = w_transfer,
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

static bt_worker_t *join_flags(world_t *w, const char *name, bt_role_t role,
                               uint32_t flags)
{
    static const uint8_t kvt[] = {9, 9};
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
        .kvt = kvt,
        .kvt_bytes = sizeof(kvt),
    };
    char why[BT_TABLE_WHY_BYTES];
    bt_worker_t *worker = NULL;

    snprintf(hello.name, sizeof(hello.name), "%s", name);
    assert_int_equal(
        bt_core_worker_up(w->core, &hello, w, w->now, why, &worker), BT_OK);
    assert_ptr_equal(worker->link_user, w);
    return worker;
}

static bt_worker_t *join(world_t *w, const char *name, bt_role_t role)
{
    return join_flags(w, name, role, 0);
}

static void submit(world_t *w, client_t *c, const char *prompt,
                   uint32_t max_new, const char *stop)
{
    uint32_t ids[64];
    const bt_gen_spec_t spec = {
        .tokens = ids,
        .n_prompt = (uint32_t)strlen(prompt),
        .max_new = max_new,
        .sampling = bt_sampling_default(),
        .stops = &stop,
        .n_stops = (stop != NULL) ? 1 : 0,
        .parse_us = 10,
        .tokenize_us = 20,
    };

    for (uint32_t i = 0; i < spec.n_prompt; i++) {
        ids[i] = (uint32_t)prompt[i];
    }
    memset(c, 0, sizeof(*c));
    assert_int_equal(bt_core_submit(w->core, &spec, c, w->now, &c->gen), BT_OK);
}

/* The latest message of a type to a worker, or NULL. */
static const sent_t *last(const world_t *w, const bt_worker_t *to,
                          bt_msg_type_t type)
{
    for (uint32_t i = w->n_sent; i > 0; i--) {
        if ((w->sent[i - 1].to == to) && (w->sent[i - 1].msg.type == type)) {
            return &w->sent[i - 1];
        }
    }
    return NULL;
}

static unsigned count(const world_t *w, const bt_worker_t *to,
                      bt_msg_type_t type)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_sent; i++) {
        n += ((w->sent[i].to == to) && (w->sent[i].msg.type == type)) ? 1 : 0;
    }
    return n;
}

static void say(world_t *w, bt_worker_t *from, const bt_msg_t *msg)
{
    w->now += 1 * MS;
    assert_int_equal(bt_core_message(w->core, from, msg, w->now), BT_OK);
}

/* The characters of @a text as tokens from index @a index on; the last one
 * carries @a finish. */
static void tokens(world_t *w, bt_worker_t *from, bt_req_key_t key,
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

static void grant(world_t *w, bt_worker_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {
        .type = BT_MSG_GRANT,
        .u.grant = {.key = key, .instance = from->hello.instance},
    };

    say(w, from, &msg);
}

static void prefilled(world_t *w, bt_worker_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {
        .type = BT_MSG_PREFILLED,
        .u.prefilled = {.key = key, .queue_us = 100, .compute_us = 300},
    };

    say(w, from, &msg);
}

static void joined(world_t *w, bt_worker_t *from, bt_req_key_t key,
                   uint64_t transfer_us)
{
    const bt_msg_t msg = {
        .type = BT_MSG_JOINED,
        .u.joined = {.key = key, .transfer_us = transfer_us},
    };

    say(w, from, &msg);
}

static void ended(world_t *w, bt_worker_t *from, bt_req_key_t key)
{
    const bt_msg_t msg = {.type = BT_MSG_ENDED, .u.ended = {.key = key}};

    say(w, from, &msg);
}

static void failed(world_t *w, bt_worker_t *from, bt_req_key_t key,
                   bt_status_t status, const char *text)
{
    bt_msg_t msg = {.type = BT_MSG_FAILED,
                    .u.failed = {.key = key, .status = status}};

    snprintf(msg.u.failed.text, sizeof(msg.u.failed.text), "%s", text);
    say(w, from, &msg);
}

static void assert_all_back(const world_t *w)
{
    bt_list_t *head = &bt_core_table(w->core)->workers;

    assert_int_equal(bt_core_n_in_flight(w->core), 0);
    assert_int_equal(bt_core_n_waiting(w->core), 0);
    assert_int_equal(bt_core_n_legs(w->core), 0);
    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        const bt_worker_t *worker = BT_CONTAINER_OF(pos, bt_worker_t, link);

        assert_int_equal(worker->seats, 0);
        assert_int_equal(worker->blocks, 0);
        assert_int_equal(worker->prefill_tokens, 0);
    }
}

static bt_req_key_t key_at(const world_t *w, const bt_worker_t *worker)
{
    const sent_t *s = last(w, worker, BT_MSG_REQUEST);

    assert_non_null(s);
    return s->msg.u.request.key;
}

/* ---- tests ---- */

static void a_request_goes_to_both_workers_and_its_text_comes_back(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    const sent_t *s;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 20, NULL);

    s = last(w, p, BT_MSG_REQUEST);
    assert_int_equal(s->msg.u.request.kind, BT_REQUEST_PREFILL);
    assert_int_equal(s->msg.u.request.peer, d->hello.instance);
    assert_int_equal(s->msg.u.request.max_new, 20);
    assert_int_equal(s->msg.u.request.deadline_ms, DEADLINE_MS);
    assert_string_equal(s->tokens, "The");
    s = last(w, d, BT_MSG_REQUEST);
    assert_int_equal(s->msg.u.request.kind, BT_REQUEST_GENERATE);
    assert_int_equal(s->msg.u.request.peer, p->hello.instance);
    key = s->msg.u.request.key;
    assert_int_equal(key_at(w, p).id, key.id);
    assert_int_equal(p->prefill_tokens, 3);
    assert_int_equal(d->blocks, 2); /* 23 tokens in blocks of 16 */

    grant(w, d, key);
    assert_int_equal(count(w, p, BT_MSG_GRANT), 1);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_int_equal(p->prefill_tokens, 0);
    prefilled(w, p, key);
    joined(w, d, key, 1234);
    ended(w, p, key);
    tokens(w, d, key, 1, "bc", BT_FINISH_NONE);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 0);
    tokens(w, d, key, 3, "dX", BT_FINISH_STOP); /* X is the end id */
    assert_string_equal(c.text, "abcd");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_STOP);
    assert_int_equal(c.n_output, 5);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(bt_core_n_legs(w->core), 1);
    ended(w, d, key);
    assert_all_back(w);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0);

    /* The clock moved 1 ms with each message: token #1 at 2 ms, token #2 at
     * 6 ms, the end at 7 ms. */
    assert_int_equal(w->ledger.first_token_us, 30 + 2 * MS);
    assert_int_equal(w->ledger.prefill_queue_us, 100);
    assert_int_equal(w->ledger.prefill_compute_us, 300);
    assert_int_equal(w->ledger.first_rest_us, 2 * MS - 400);
    assert_int_equal(w->ledger.handover_us, 4 * MS);
    assert_int_equal(w->ledger.decode_us, 1 * MS);
    assert_int_equal(w->ledger.total_us, 30 + 7 * MS);
    assert_int_equal(w->transfer_us, 1234);
    assert_int_equal(w->n_first_transfers, 1);
    assert_true(w->ledger.ok);
    bt_core_destroy(w->core);
}

static void
tokens_are_ordered_and_duplicates_and_strangers_dropped(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d, *d2;
    bt_req_key_t key, foreign;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    key = foreign = key_at(w, d);
    foreign.attempt++;

    joined(w, d, key, 1);
    tokens(w, d, key, 2, "c", BT_FINISH_NONE);
    tokens(w, d, key, 2, "c", BT_FINISH_NONE);
    tokens(w, d, key, 1, "b", BT_FINISH_NONE);
    tokens(w, d, foreign, 0, "Z", BT_FINISH_NONE);
    tokens(w, d2, key, 0, "Y", BT_FINISH_NONE); /* not its request */
    tokens(w, d, key, 99, "!", BT_FINISH_NONE); /* beyond max_new */
    assert_string_equal(c.text, "");
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_string_equal(c.text, "abc");
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    tokens(w, d, key, 3, "defgh", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abcdefgh");
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    tokens(w, d, key, 8, "i", BT_FINISH_NONE);
    assert_int_equal(c.n_ends, 1);
    ended(w, d, key);
    ended(w, p, key);
    ended(w, p, key);
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void a_stop_word_across_tokens_ends_the_text_before_it(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 30, "STOP");
    key = key_at(w, d);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    joined(w, d, key, 1);
    tokens(w, d, key, 1, "bST", BT_FINISH_NONE);
    assert_string_equal(c.text, "ab"); /* held back */
    tokens(w, d, key, 4, "ST", BT_FINISH_NONE);
    assert_string_equal(c.text, "abST"); /* it was none */
    tokens(w, d, key, 6, "OPxyz", BT_FINISH_NONE);
    assert_string_equal(c.text, "abST");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_STOP);
    assert_int_equal(c.n_output, 8);
    assert_int_equal(last(w, p, BT_MSG_CANCEL)->msg.u.cancel.finish,
                     BT_FINISH_STOP);
    assert_int_equal(last(w, d, BT_MSG_CANCEL)->msg.u.cancel.finish,
                     BT_FINISH_STOP);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);

    /* Held text comes out when the text ends without the stop word. */
    submit(w, &c, "The", 4, "STOP");
    key = key_at(w, d);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    tokens(w, d, key, 1, "STO", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "aSTO");
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void a_request_that_ends_with_token_1_withdraws_its_grant(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 1, NULL);
    key = key_at(w, d);
    tokens(w, p, key, 0, "a", BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    assert_string_equal(c.text, "a");
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 0);
    assert_int_equal(w->n_ledgers, 0); /* P's part is still to come */
    prefilled(w, p, key);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->ledger.prefill_queue_us, 100);
    ended(w, d, key);
    ended(w, p, key);
    assert_all_back(w);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_first_transfers, 0);
    bt_core_destroy(w->core);
}

/* Drives a request to a phase: 0 waiting, 1 prefill, 2 token #1, 3 decode. */
static bt_req_key_t drive(world_t *w, bt_worker_t *p, bt_worker_t *d,
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

static void a_client_that_leaves_in_any_phase_frees_both_workers(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase <= 3; phase++) {
        world_t *w = &world;
        bt_worker_t *p = NULL, *d = NULL;
        bt_req_key_t key;
        client_t c;

        start(w, 10);
        if (phase > 0) {
            p = join(w, "prefill-0", BT_ROLE_PREFILL);
            d = join(w, "decode-0", BT_ROLE_DECODE);
        }
        submit(w, &c, "The", 8, NULL);
        key = drive(w, p, d, phase);
        bt_core_cancel(w->core, c.gen, w->now);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
        if (phase > 0) {
            assert_int_equal(last(w, p, BT_MSG_CANCEL)->msg.u.cancel.finish,
                             BT_FINISH_CANCELED);
            assert_int_equal(last(w, d, BT_MSG_CANCEL)->msg.u.cancel.finish,
                             BT_FINISH_CANCELED);
            tokens(w, d, key, 2, "c", BT_FINISH_NONE); /* under way */
            ended(w, d, key);
            ended(w, p, key);
        }
        assert_all_back(w);
        assert_int_equal(c.n_ends, 0);
        assert_int_equal(w->n_ledgers, 1);
        assert_false(w->ledger.ok);
        bt_core_destroy(w->core);
    }
}

static void a_client_may_leave_while_it_is_being_written_to(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    tokens(w, d, key, 1, "bcd", BT_FINISH_NONE);
    c.cancel_on_text = true;
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_string_equal(c.text, "a");
    assert_int_equal(c.n_ends, 0);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);
    bt_core_destroy(w->core);
}

/* A worker is lost in some phase while a second pair is there: the text goes
 * on from the token after the last one. */
static void lose_one(unsigned phase, bool lose_decode)
{
    static const char *const so_far[] = {"", "", "a", "ab"};
    world_t *w = &world;
    bt_worker_t *p, *d, *p2, *d2;
    const sent_t *s;
    bt_req_key_t old, key;
    char expected[16];
    client_t c;
    uint32_t n;

    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    old = drive(w, p, d, phase);
    assert_string_equal(c.text, so_far[phase]);
    n = (uint32_t)strlen(c.text);
    p2 = join(w, "prefill-1", BT_ROLE_PREFILL);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);

    bt_core_worker_down(w->core, lose_decode ? d : p, "link cut", w->now);
    if ((phase == 3) && !lose_decode) {
        /* The KV is over already: nothing changes. */
        assert_null(last(w, d2, BT_MSG_REQUEST));
        tokens(w, d, old, 2, "cdefgh", BT_FINISH_LENGTH);
        assert_string_equal(c.text, "abcdefgh");
        ended(w, d, old);
        assert_all_back(w);
        bt_core_destroy(w->core);
        return;
    }
    assert_int_equal(count(w, lose_decode ? p : d, BT_MSG_CANCEL), 1);
    s = last(w, lose_decode ? d2 : p2, BT_MSG_REQUEST);
    assert_non_null(s);
    key = s->msg.u.request.key;
    assert_int_equal(key.id, old.id);
    assert_int_equal(key.attempt, old.attempt + 1);
    snprintf(expected, sizeof(expected), "The%s", so_far[phase]);
    assert_string_equal(s->tokens, expected);
    assert_int_equal(s->msg.u.request.n_prompt, 3);
    assert_int_equal(s->msg.u.request.max_new, 8 - n);

    /* The survivor of the first pair still answers for the first attempt. */
    tokens(w, lose_decode ? p : d, old, 1, "!", BT_FINISH_NONE);
    ended(w, lose_decode ? p : d, old);
    p = (last(w, p2, BT_MSG_REQUEST) != NULL) ? p2 : p;
    d = (last(w, d2, BT_MSG_REQUEST) != NULL) ? d2 : d;
    tokens(w, p, key, n, &"abcdefgh"[n], BT_FINISH_NONE);
    joined(w, d, key, 5);
    assert_string_equal(c.text, "abcdefgh");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    assert_int_equal(w->n_first_transfers, 1);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);
    assert_int_equal(w->ledger.n_attempts, 2);
    bt_core_destroy(w->core);
}

static void the_text_goes_on_when_a_prefill_worker_is_lost(void **state)
{
    (void)state;
    bt_test_expect_log_lines(3); /* each loss is a warning */
    for (unsigned phase = 1; phase <= 3; phase++) {
        lose_one(phase, false);
    }
}

static void the_text_goes_on_when_a_decode_worker_is_lost(void **state)
{
    (void)state;
    bt_test_expect_log_lines(3); /* each loss is a warning */
    for (unsigned phase = 1; phase <= 3; phase++) {
        lose_one(phase, true);
    }
}

static void
a_prefill_worker_lost_before_its_token_arrives_is_replaced(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    joined(w, d, key, 5);
    tokens(w, d, key, 1, "b", BT_FINISH_NONE); /* token #1 is not here yet */
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, p, "killed", w->now);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 1);
    p = join(w, "prefill-1", BT_ROLE_PREFILL);
    assert_int_equal(key_at(w, p).attempt, key.attempt + 1);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, d, key);
    ended(w, d, key_at(w, d));
    ended(w, p, key_at(w, p));
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void a_decode_worker_may_be_done_before_token_1_arrives(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 4, NULL);
    key = key_at(w, d);
    joined(w, d, key, 5);
    tokens(w, d, key, 1, "bcd", BT_FINISH_LENGTH);
    ended(w, d, key);
    assert_int_equal(c.n_ends, 0);
    assert_int_equal(key_at(w, d).attempt, key.attempt); /* no re-run */
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_string_equal(c.text, "abcd");
    assert_int_equal(c.n_ends, 1);
    ended(w, p, key);
    assert_all_back(w);

    /* If token #1 never comes, all of it is run again. */
    submit(w, &c, "The", 4, NULL);
    key = key_at(w, d);
    joined(w, d, key, 5);
    tokens(w, d, key, 1, "bcd", BT_FINISH_LENGTH);
    ended(w, d, key);
    ended(w, p, key);
    assert_int_equal(key_at(w, p).attempt, key.attempt + 1);
    key = key_at(w, p);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    assert_int_equal(c.n_ends, 0); /* the old "bcd" is forgotten */
    tokens(w, d, key, 1, "bcd", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abcd");
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void
when_all_workers_are_gone_the_client_gets_phase_and_worker(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    (void)drive(w, p, d, 3);
    bt_test_expect_log_lines(2);
    bt_core_worker_down(w->core, d, "silent for 2500 ms", w->now);
    bt_core_worker_down(w->core, p, "killed", w->now);
    w->now += (RERUN_MS - 1) * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 0);
    w->now += 1 * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_ERROR);
    assert_int_equal(c.http_status, 503);
    assert_string_equal(
        c.message,
        "decode worker decode-0 was lost in phase decode (silent for "
        "2500 ms), and no other workers came within 1500 ms");
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void a_third_lost_attempt_is_the_last(void **state)
{
    world_t *w = &world;
    bt_worker_t *p;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    bt_test_expect_log_lines(3);
    for (unsigned i = 1; i <= 3; i++) {
        char name[16];
        bt_worker_t *d;

        snprintf(name, sizeof(name), "decode-%u", i);
        if (i == 1) {
            submit(w, &c, "The", 8, NULL);
        }
        d = join(w, name, BT_ROLE_DECODE);
        assert_int_equal(key_at(w, d).attempt, i);
        bt_core_worker_down(w->core, d, "killed", w->now);
    }
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_non_null(strstr(c.message, "decode-3 was lost in phase prefill"));
    assert_non_null(strstr(c.message, "attempt 3 of 3"));
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        const bt_req_key_t key = {.id = key_at(w, p).id, .attempt = attempt};

        ended(w, p, key);
    }
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void no_worker_and_no_progress_end_in_bounded_time(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    submit(w, &c, "The", 8, NULL);
    w->now += WAIT_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_string_equal(c.message,
                        "no prefill and decode worker came within 3000 ms");

    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    w->now += DEADLINE_MS * MS - 1;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 0);
    w->now += 1;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 504);
    assert_string_equal(c.message, "the request's deadline of 60000 ms passed "
                                   "in phase prefill, worker prefill-0");
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
    ended(w, p, key);
    ended(w, d, key);
    assert_all_back(w);
    bt_core_destroy(w->core);
}

static void what_waits_starts_when_a_pair_comes(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    client_t a, b;

    (void)state;
    start(w, 10);
    submit(w, &a, "A", 8, NULL);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(bt_core_n_waiting(w->core), 2);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(bt_core_n_waiting(w->core), 2);
    w->now += 7 * MS;
    d = join(w, "decode-0", BT_ROLE_DECODE);
    assert_int_equal(bt_core_n_waiting(w->core), 0);
    assert_int_equal(count(w, p, BT_MSG_REQUEST), 2);
    assert_int_equal(count(w, d, BT_MSG_REQUEST), 2);
    /* P hears of D before it is asked to send there. */
    assert_int_equal(count(w, p, BT_MSG_PEER), 1);
    for (uint32_t i = 0; w->sent[i].msg.type != BT_MSG_PEER; i++) {
        assert_int_not_equal(w->sent[i].msg.type, BT_MSG_REQUEST);
    }
    bt_core_end_all(w->core, "the server is stopping", w->now);
    assert_int_equal(a.n_ends, 1);
    assert_int_equal(b.n_ends, 1);
    assert_int_equal(a.http_status, 503);
    assert_non_null(strstr(a.message, "the server is stopping"));
    bt_core_destroy(w->core);
}

static void a_full_router_says_busy(void **state)
{
    const uint32_t id = 'x';
    const bt_gen_spec_t spec = {.tokens = &id, .n_prompt = 1, .max_new = 1};
    world_t *w = &world;
    bt_gen_t *gen = NULL;
    client_t a, b;

    (void)state;
    start(w, 2);
    submit(w, &a, "A", 8, NULL);
    submit(w, &b, "B", 8, NULL);
    assert_int_equal(bt_core_submit(w->core, &spec, NULL, w->now, &gen),
                     BT_ERR_BUSY);
    bt_core_cancel(w->core, a.gen, w->now);
    submit(w, &a, "A", 8, NULL);
    bt_core_destroy(w->core);
}

static void a_failure_is_run_again_unless_it_would_repeat(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    failed(w, d, key, BT_ERR_CORRUPT, "checksum of extent 3");
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0); /* it ends by itself */
    assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
    ended(w, d, key);
    ended(w, p, key);
    key = key_at(w, d);
    failed(w, d, key, BT_ERR_NO_BLOCKS, "needs 11 of 10 blocks");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 503);
    assert_string_equal(c.message, "decode worker decode-0 failed in phase "
                                   "prefill: needs 11 of 10 blocks");
    ended(w, d, key);
    ended(w, p, key);
    assert_all_back(w);

    /* A worker that lets go without a last token. */
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    ended(w, d, key);
    assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
    ended(w, p, key);
    key = key_at(w, p);
    ended(w, p, key);
    assert_int_equal(key_at(w, p).attempt, key.attempt + 1);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, d, key);
    ended(w, p, key_at(w, p));
    ended(w, d, key_at(w, d));
    assert_all_back(w);

    /* An id outside of the vocabulary never becomes text. */
    submit(w, &c, "The", 8, NULL);
    {
        const bt_token_t bad = {.key = key_at(w, p), .id = VOCAB};
        const bt_msg_t msg = {.type = BT_MSG_TOKENS,
                              .u.tokens = {.n = 1, .tokens = &bad}};

        say(w, p, &msg);
    }
    assert_int_equal(c.http_status, 500);
    bt_core_destroy(w->core);
}

static void prefill_workers_know_the_decode_workers_of_now(void **state)
{
    world_t *w = &world;
    bt_worker_t *p, *p2, *d;
    uint64_t gone;

    (void)state;
    start(w, 10);
    d = join(w, "decode-0", BT_ROLE_DECODE);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.instance,
                     d->hello.instance);
    assert_int_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.kvt_bytes, 2);
    assert_string_equal(last(w, p, BT_MSG_PEER)->msg.u.peer.name, "decode-0");
    (void)join(w, "decode-1", BT_ROLE_DECODE);
    assert_int_equal(count(w, p, BT_MSG_PEER), 2);
    p2 = join(w, "prefill-1", BT_ROLE_PREFILL);
    assert_int_equal(count(w, p2, BT_MSG_PEER), 2);

    gone = d->hello.instance;
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    assert_int_equal(last(w, p, BT_MSG_PEER_GONE)->msg.u.peer_gone.instance,
                     gone);
    assert_int_equal(count(w, p2, BT_MSG_PEER_GONE), 1);
    bt_core_destroy(w->core);
}

static void a_local_worker_serves_alone(void **state)
{
    world_t *w = &world;
    bt_worker_t *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start(w, 10);
    d = join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    submit(w, &c, "The", 3, NULL);
    assert_int_equal(last(w, d, BT_MSG_REQUEST)->msg.u.request.kind,
                     BT_REQUEST_LOCAL);
    key = key_at(w, d);
    assert_int_equal(d->prefill_tokens, 3);
    tokens(w, d, key, 0, "abc", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 1);
    prefilled(w, d, key);
    ended(w, d, key);
    assert_all_back(w);
    assert_int_equal(w->n_first_transfers, 0);
    bt_core_destroy(w->core);
}

static void a_failed_allocation_starts_nothing(void **state)
{
    const char *const stops[] = {"x"};
    const bt_bad_word_t bad = {.n = 1, .ids = {5}};
    const uint32_t id = 'x';
    bt_gen_spec_t spec = {.tokens = &id,
                          .n_prompt = 1,
                          .max_new = 1,
                          .sampling = bt_sampling_default(),
                          .stops = stops,
                          .n_stops = 1};
    world_t *w = &world;
    bt_gen_t *gen = NULL;

    (void)state;
    start(w, 2);
    spec.sampling.n_bad_words = 1;
    spec.sampling.bad_words = &bad;
    for (int nth = 1; nth <= 4; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_core_submit(w->core, &spec, NULL, w->now, &gen),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_int_equal(bt_core_n_in_flight(w->core), 0);
    }
    assert_int_equal(bt_core_submit(w->core, &spec, NULL, w->now, &gen), BT_OK);
    bt_core_destroy(w->core);
}

/* ---- a long random run ---- */

#define SOAK_CLIENTS 12
#define SOAK_STEPS   60000

typedef struct soak {
    uint64_t rng;
    client_t clients[SOAK_CLIENTS];
    bool open[SOAK_CLIENTS];
    unsigned n_submitted, n_canceled, n_good, n_errors;
} soak_t;

static uint32_t draw(soak_t *s, uint32_t n)
{
    s->rng = s->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->rng >> 33) % n;
}

static bt_worker_t *any_worker(world_t *w, soak_t *s)
{
    bt_list_t *head = &bt_core_table(w->core)->workers;
    uint32_t n = 0;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        n++;
    }
    if (n == 0) {
        return NULL;
    }
    n = draw(s, n);
    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        if (n-- == 0) {
            return BT_CONTAINER_OF(pos, bt_worker_t, link);
        }
    }
    return NULL;
}

/* The true text of a request: its token i is the letter after i in the
 * alphabet, wherever it is generated. */
static void soak_worker_event(world_t *w, soak_t *s)
{
    bt_worker_t *worker = any_worker(w, s);
    const bt_req_key_t key = {
        .id = s->n_submitted + 1 - draw(s, 14),
        .attempt = 1 + draw(s, 3),
    };
    const uint32_t index = draw(s, 6);
    const char letter[2] = {(char)('a' + index), '\0'};

    if (worker == NULL) {
        return;
    }
    switch (draw(s, 30)) {
    case 0:
        ended(w, worker, key);
        break;
    case 1:
        failed(w, worker, key,
               (draw(s, 4) == 0) ? BT_ERR_TOO_LARGE : BT_ERR_PEER_LOST, "x");
        break;
    case 2:
        joined(w, worker, key, 1);
        break;
    case 3:
        grant(w, worker, key);
        break;
    case 4:
        prefilled(w, worker, key);
        break;
    default:
        tokens(w, worker, key, index, letter,
               (index == 5) ? BT_FINISH_LENGTH : BT_FINISH_NONE);
        break;
    }
}

static void soak_client_event(world_t *w, soak_t *s)
{
    const uint32_t i = draw(s, SOAK_CLIENTS);
    client_t *c = &s->clients[i];

    if (s->open[i] && (c->n_ends == 1)) {
        if (c->finish == BT_FINISH_ERROR) {
            s->n_errors++;
            assert_memory_equal(c->text, "abcdef", strlen(c->text));
        } else {
            s->n_good++;
            assert_string_equal(c->text, "abcdef");
        }
        s->open[i] = false;
    } else if (s->open[i] && (draw(s, 60) == 0)) {
        assert_int_equal(c->n_ends, 0);
        bt_core_cancel(w->core, c->gen, w->now);
        s->open[i] = false;
        s->n_canceled++;
    } else if (!s->open[i] && (bt_core_n_in_flight(w->core) < 8)) {
        submit(w, c, "The", 6, NULL);
        s->open[i] = true;
        s->n_submitted++;
    }
}

static void soak_membership(world_t *w, soak_t *s)
{
    bt_worker_t *worker = any_worker(w, s);
    uint32_t n = 0;

    for (bt_list_t *pos = bt_core_table(w->core)->workers.next;
         pos != &bt_core_table(w->core)->workers; pos = pos->next) {
        n++;
    }
    if ((worker != NULL) && (draw(s, 2) == 0)) {
        /* As a drained one, so that the soak does not warn. */
        worker->state = BT_WORKER_DRAINING;
        if (worker->seats == 0) {
            bt_core_worker_down(w->core, worker, "left", w->now);
        } else {
            worker->state = BT_WORKER_UP;
        }
    } else if (n < 5) {
        (void)join(w, "w",
                   (draw(s, 2) == 0) ? BT_ROLE_PREFILL : BT_ROLE_DECODE);
    }
}

static void every_request_ends_exactly_once_in_a_long_random_run(void **state)
{
    world_t *w = &world;
    static soak_t s;
    unsigned n_losses = 0;
    bt_list_t *workers;

    (void)state;
    memset(&s, 0, sizeof(s));
    s.rng = 42;
    start(w, 8);
    for (unsigned step = 0; step < SOAK_STEPS; step++) {
        w->n_sent = 0;
        w->now += draw(&s, 3) * MS;
        switch (draw(&s, 40)) {
        case 0:
            soak_membership(w, &s);
            break;
        case 1:
        case 2:
            bt_core_tick(w->core, w->now);
            break;
        case 3:
        case 4:
        case 5:
        case 6:
            soak_client_event(w, &s);
            break;
        default:
            soak_worker_event(w, &s);
            break;
        }
    }
    w->n_sent = 0;
    w->now += 2 * DEADLINE_MS * MS;
    bt_core_tick(w->core, w->now);
    for (uint32_t i = 0; i < SOAK_CLIENTS; i++) {
        if (s.open[i]) {
            assert_int_equal(s.clients[i].n_ends, 1);
        }
    }
    workers = &bt_core_table(w->core)->workers;
    while (!bt_list_empty(workers)) {
        bt_worker_t *worker = BT_CONTAINER_OF(workers->next, bt_worker_t, link);

        n_losses += (worker->seats > 0) ? 1 : 0;
        worker->state = BT_WORKER_DRAINING;
        bt_core_worker_down(w->core, worker, "left", w->now);
    }
    bt_test_expect_log_lines(n_losses);
    assert_all_back(w);
    assert_int_equal(w->n_ledgers, s.n_submitted);
    /* The run must have met every kind of end. */
    assert_true(s.n_good > 10);
    assert_true(s.n_errors > 10);
    assert_true(s.n_canceled > 10);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_request_goes_to_both_workers_and_its_text_comes_back),
        BT_TEST(tokens_are_ordered_and_duplicates_and_strangers_dropped),
        BT_TEST(a_stop_word_across_tokens_ends_the_text_before_it),
        BT_TEST(a_request_that_ends_with_token_1_withdraws_its_grant),
        BT_TEST(a_client_that_leaves_in_any_phase_frees_both_workers),
        BT_TEST(a_client_may_leave_while_it_is_being_written_to),
        BT_TEST(the_text_goes_on_when_a_prefill_worker_is_lost),
        BT_TEST(the_text_goes_on_when_a_decode_worker_is_lost),
        BT_TEST(a_prefill_worker_lost_before_its_token_arrives_is_replaced),
        BT_TEST(a_decode_worker_may_be_done_before_token_1_arrives),
        BT_TEST(when_all_workers_are_gone_the_client_gets_phase_and_worker),
        BT_TEST(a_third_lost_attempt_is_the_last),
        BT_TEST(no_worker_and_no_progress_end_in_bounded_time),
        BT_TEST(what_waits_starts_when_a_pair_comes),
        BT_TEST(a_full_router_says_busy),
        BT_TEST(a_failure_is_run_again_unless_it_would_repeat),
        BT_TEST(prefill_workers_know_the_decode_workers_of_now),
        BT_TEST(a_local_worker_serves_alone),
        BT_TEST(a_failed_allocation_starts_nothing),
        BT_TEST(every_request_ends_exactly_once_in_a_long_random_run),
    };

    /* Its thousands of re-runs are worth a line in life only. */
    bt_log_init("test_core", BT_LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
