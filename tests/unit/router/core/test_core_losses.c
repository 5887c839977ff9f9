/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that are lost or fail, and one long random run. */
#include "router/core/core_priv.h"
#include "tests/unit/router/core/core_fixture.h"

/* A worker is lost in some phase while a second pair is there: the text goes
 * on from the token after the last one. */
static void lose_one(unsigned phase, bool lose_decode)
{
    static const char *const so_far[] = {"", "", "a", "ab"};
    world_t *w = &world;
    bt_instance_t *p, *d, *p2, *d2;
    const sent_t *s;
    bt_req_key_t old, key;
    char expected[16];
    client_t c;
    uint32_t n;

    (void)begin(w, &p, &d, &c, 8, NULL);
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
        end_world(w);
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

static void text_continues_after_a_lost_prefill_worker(void **state)
{
    (void)state;
    bt_test_expect_log_lines(3); /* each loss is a warning */
    for (unsigned phase = 1; phase <= 3; phase++) {
        lose_one(phase, false);
    }
}

static void text_continues_after_a_lost_decode_worker(void **state)
{
    (void)state;
    bt_test_expect_log_lines(3); /* each loss is a warning */
    for (unsigned phase = 1; phase <= 3; phase++) {
        lose_one(phase, true);
    }
}

static void prefill_worker_lost_before_its_token_is_replaced(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
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
    end_world(w);
}

static void decode_worker_may_finish_before_token_1_arrives(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 4, NULL);
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
    end_world(w);
}

static void withdrawn_transfer_is_judged_by_its_sender(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_pair(w, &p, &d);
    /* Token #1 is the last one: no KV is sent, and the decode worker may tell
     * first. */
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    failed(w, d, key, BT_ERR_CANCELED, "transfer: canceled");
    ended(w, d, key);
    assert_int_equal(c.n_ends, 0);
    assert_int_equal(key_at(w, d).attempt, key.attempt); /* no re-run */
    tokens(w, p, key, 0, "a", BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.finish, BT_FINISH_LENGTH);
    assert_string_equal(c.text, "a");
    ended(w, p, key);
    assert_all_back(w);

    /* It ends without a last token: run again. */
    for (unsigned with_token = 0; with_token < 2; with_token++) {
        submit(w, &c, "The", 8, NULL);
        key = key_at(w, d);
        if (with_token == 1) {
            tokens(w, p, key, 0, "a", BT_FINISH_NONE);
        }
        failed(w, d, key, BT_ERR_CANCELED, "transfer: canceled");
        ended(w, d, key);
        ended(w, p, key);
        assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
        key = key_at(w, d);
        /* What was taken back once is not forgiven in the next attempt. */
        ended(w, d, key);
        assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
        ended(w, p, key);
        bt_core_cancel(w->core, c.gen, w->now);
        ended(w, d, key_at(w, d));
        ended(w, p, key_at(w, p));
        assert_all_back(w);
    }

    /* Nobody is left to judge: run again. */
    submit(w, &c, "The", 8, NULL);
    key = key_at(w, d);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    ended(w, p, key);
    failed(w, d, key, BT_ERR_CANCELED, "transfer: canceled");
    assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
    ended(w, d, key);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, d, key_at(w, d));
    ended(w, p, key_at(w, p));
    end_world(w);
}

static void error_without_workers_names_phase_and_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    (void)begin(w, &p, &d, &c, 8, NULL);
    (void)drive(w, p, d, 3);
    bt_test_expect_log_lines(2);
    bt_core_worker_down(w->core, d, "silent for 2500 ms", w->now);
    bt_core_worker_down(w->core, p, "killed", w->now);
    w->now += (WAIT_MS - 1) * MS;
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
        "2500 ms), and no other workers came within 3000 ms");
    end_world(w);
}

static void third_lost_attempt_is_the_last(void **state)
{
    world_t *w = &world;
    bt_instance_t *p;
    client_t c;

    (void)state;
    start(w, 10);
    p = join(w, "prefill-0", BT_ROLE_PREFILL);
    bt_test_expect_log_lines(3);
    for (unsigned i = 1; i <= 3; i++) {
        char name[16];
        bt_instance_t *d;

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
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 3); /* one of each attempt */
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        const bt_req_key_t key = {.id = key_at(w, p).id, .attempt = attempt};

        ended(w, p, key);
    }
    end_world(w);
}

static void failure_is_retried_unless_it_would_repeat(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    key = begin(w, &p, &d, &c, 8, NULL);
    failed(w, d, key, BT_ERR_CORRUPT, "checksum of extent 3");
    assert_int_equal(count(w, p, BT_MSG_CANCEL), 1);
    assert_int_equal(count(w, d, BT_MSG_CANCEL), 0); /* it ends by itself */
    assert_int_equal(key_at(w, d).attempt, key.attempt + 1);
    ended(w, d, key);
    ended(w, p, key);
    key = key_at(w, d);
    /* More than the worker has in all: waiting or a rerun would not help. */
    failed(w, d, key, BT_ERR_NO_BLOCKS, "needs 11 of 10 blocks");
    assert_int_equal(c.n_ends, 1);
    assert_int_equal(c.http_status, 400);
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

static bt_instance_t *any_worker(world_t *w, soak_t *s)
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
            return BT_CONTAINER_OF(pos, bt_instance_t, link);
        }
    }
    return NULL;
}

/* What a worker was sent ends there sooner or later. */
static void end_oldest(world_t *w, bt_instance_t *worker)
{
    const bt_leg_t *leg;

    if (!bt_list_empty(&worker->legs)) {
        leg = BT_CONTAINER_OF(worker->legs.next, bt_leg_t, link);
        ended(w, worker,
              (bt_req_key_t){.id = leg->gen->id, .attempt = leg->attempt});
    }
}

/* The true text of a request: its token i is the letter after i in the
 * alphabet, wherever it is generated. */
static void soak_worker_event(world_t *w, soak_t *s)
{
    bt_instance_t *worker = any_worker(w, s);
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
        end_oldest(w, worker);
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
    bt_instance_t *worker = any_worker(w, s);
    uint32_t n = 0;

    for (bt_list_t *pos = bt_core_table(w->core)->workers.next;
         pos != &bt_core_table(w->core)->workers; pos = pos->next) {
        n++;
    }
    if ((worker != NULL) && (draw(s, 2) == 0)) {
        /* As a drained one, so that the soak does not warn. */
        worker->sched.health = BT_SCHED_DRAINING;
        if (worker->sched.seats == 0) {
            bt_core_worker_down(w->core, worker, "left", w->now);
        } else {
            worker->sched.health = BT_SCHED_UP;
        }
    } else if (n < 5) {
        (void)join(w, "w",
                   (draw(s, 2) == 0) ? BT_ROLE_PREFILL : BT_ROLE_DECODE);
    }
}

static void each_request_ends_once_in_a_long_random_run(void **state)
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
        bt_instance_t *worker =
            BT_CONTAINER_OF(workers->next, bt_instance_t, link);

        n_losses += (worker->sched.seats > 0) ? 1 : 0;
        worker->sched.health = BT_SCHED_DRAINING;
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
        BT_TEST(text_continues_after_a_lost_prefill_worker),
        BT_TEST(text_continues_after_a_lost_decode_worker),
        BT_TEST(prefill_worker_lost_before_its_token_is_replaced),
        BT_TEST(decode_worker_may_finish_before_token_1_arrives),
        BT_TEST(withdrawn_transfer_is_judged_by_its_sender),
        BT_TEST(error_without_workers_names_phase_and_worker),
        BT_TEST(third_lost_attempt_is_the_last),
        BT_TEST(failure_is_retried_unless_it_would_repeat),
        BT_TEST(each_request_ends_once_in_a_long_random_run),
    };

    /* Thousands of re-runs are worth a line in life only. */
    bt_log_init("test_core", BT_LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
