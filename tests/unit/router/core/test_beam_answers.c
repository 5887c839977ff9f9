/* SPDX-License-Identifier: Apache-2.0 */
/* A generation with beams: what is sent to whom, what is counted there, and
 * which answers its client gets. */
#include "tests/unit/router/core/core_checks.h"

#define N_PROMPT 20u /* a block of 16 tokens and 4 more */
#define WIDTH    4u
#define RETURNED 3u

static bt_gen_spec_t spec_of(uint32_t max_new)
{
    return (bt_gen_spec_t){
        .prompt = prompt_of("twenty letters long."),
        .max_new = max_new,
        .sampling = bt_sampling_default(),
        .beams = {.width = WIDTH,
                  .n_returned = RETURNED,
                  .length_penalty = 0.5f,
                  .early_stopping = BT_SCHED_BEAM_STOP_NEVER},
        .wants = {.what = BT_WANT_LOGPROBS},
        .parse_us = 10,
        .tokenize_us = 20,
    };
}

static bt_status_t submit_beams(world_t *w, client_t *c, uint32_t max_new)
{
    bt_gen_spec_t spec = spec_of(max_new);
    bt_status_t status;

    spec.sampling.end_ids[spec.sampling.n_end_ids++] = 'z';
    memset(c, 0, sizeof(*c));
    status = submit_one(w->core, &spec, c, w->now, &c->gen);
    bt_prompt_unref(spec.prompt);
    return status;
}

static bt_instance_t *join_beams(world_t *w, const char *name, bt_role_t role,
                                 uint32_t flags)
{
    bt_instance_t *worker = join_flags(w, name, role, flags);

    worker->sched.max_seats = 16;
    worker->sched.n_blocks = 100;
    return worker;
}

/* The last REQUEST to a worker; NULL: none. */
static const bt_msg_request_t *request_to(const world_t *w,
                                          const bt_instance_t *to)
{
    for (uint32_t i = w->n_sent; i > 0; i--) {
        if ((w->sent[i - 1].to == to) &&
            (w->sent[i - 1].msg.type == BT_MSG_REQUEST)) {
            return &w->sent[i - 1].msg.u.request;
        }
    }
    return NULL;
}

static void say_beam(world_t *w, bt_instance_t *from, bt_req_key_t key,
                     uint32_t index, const char *text, bt_finish_t finish)
{
    const uint32_t n = (uint32_t)strlen(text);
    double logprobs[16];
    uint32_t ids[16];
    bt_msg_t msg = {.type = BT_MSG_BEAM};

    for (uint32_t i = 0; i < n; i++) {
        ids[i] = (uint32_t)text[i];
        logprobs[i] = -(double)(index + 1) - i;
    }
    msg.u.beam =
        (bt_msg_beam_t){.key = key,
                        .index = index,
                        .n = RETURNED,
                        .finish = finish,
                        .ids = ids,
                        .n_ids = n,
                        .logprobs = (const uint8_t *)logprobs,
                        .logprobs_bytes = n * (uint32_t)sizeof(double)};
    say(w, from, &msg);
}

/* Answers of the client, in order: kept by the callback below. */
static char texts[RETURNED][512];
static uint32_t n_ids[RETURNED];
static double last_logprobs[RETURNED];
static bt_finish_t finishes[RETURNED];
static uint32_t n_answers;

static void keep_end(void *ctx, void *user, const bt_gen_end_t *end)
{
    n_answers = 1 + end->n_others;
    snprintf(texts[0], sizeof(texts[0]), "%s%.*s", ((client_t *)user)->text,
             (int)end->text_bytes, end->text);
    n_ids[0] = end->n_output;
    finishes[0] = end->finish;
    if (end->rows != NULL) {
        last_logprobs[0] = end->rows->scores.logprobs[end->n_output - 1];
    }
    for (uint32_t i = 0; i < end->n_others; i++) {
        const bt_gen_beam_t *beam = &end->others[i];

        snprintf(texts[i + 1], sizeof(texts[0]), "%.*s", (int)beam->text_bytes,
                 beam->text);
        n_ids[i + 1] = beam->n;
        finishes[i + 1] = beam->finish;
        last_logprobs[i + 1] = beam->rows->scores.logprobs[beam->n - 1];
    }
    w_end(ctx, user, end);
}

static void start_beams(world_t *w)
{
    start(w, 10);
    w->core->ops.on_end = keep_end;
    n_answers = 0;
}

static void tell_beams(world_t *w, bt_instance_t *from, bt_req_key_t key)
{
    say_beam(w, from, key, 2, "cz", BT_FINISH_STOP);
    say_beam(w, from, key, 1, "bbbbb", BT_FINISH_LENGTH);
    say_beam(w, from, key, 0, "aaz", BT_FINISH_STOP);
}

static void assert_beams(const client_t *c)
{
    assert_int_equal(c->n_ends, 1);
    assert_int_equal(n_answers, RETURNED);
    assert_string_equal(texts[0], "aa");
    assert_string_equal(texts[1], "bbbbb");
    assert_string_equal(texts[2], "c"); /* an end id is no text */
    assert_int_equal(n_ids[0], 3);
    assert_int_equal(n_ids[2], 2);
    assert_int_equal(finishes[1], BT_FINISH_LENGTH);
    assert_int_equal(finishes[2], BT_FINISH_STOP);
    assert_true(last_logprobs[0] == -3.0);
    assert_true(last_logprobs[1] == -6.0);
    assert_true(last_logprobs[2] == -4.0);
}

/* Blocks: of 20 tokens and 5 new ones 2, of which each of the other 3 beams has
 * 1 of its own. */
static void pair_searches_at_the_decode_worker(void **state)
{
    world_t *w = &world;
    const bt_msg_request_t *to_p, *to_d;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    start_beams(w);
    p = join_beams(w, "prefill-0", BT_ROLE_PREFILL, 0);
    d = join_beams(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_BEAMS);
    assert_int_equal(submit_beams(w, &c, 5), BT_OK);
    to_p = request_to(w, p);
    to_d = request_to(w, d);
    assert_int_equal(to_p->beams.width, 0);
    assert_int_equal(to_p->sampling.n_end_ids, 0);
    assert_int_equal(to_p->wants.what, 0);
    assert_int_equal(to_d->beams.width, WIDTH);
    assert_int_equal(to_d->beams.n_returned, RETURNED);
    assert_true(to_d->beams.length_penalty == 0.5f);
    assert_int_equal(to_d->sampling.n_end_ids, 1);
    assert_int_equal(p->sched.seats, 1);
    assert_int_equal(d->sched.seats, WIDTH);
    assert_int_equal(d->sched.blocks, 2 + (WIDTH - 1));

    tokens(w, p, to_p->key, 0, "q", BT_FINISH_NONE); /* does not count */
    prefilled(w, p, to_p->key);
    ended(w, p, to_p->key);
    joined(w, d, to_d->key, 70);
    assert_int_equal(c.n_output, 0);
    tell_beams(w, d, to_d->key);
    assert_beams(&c);
    ended(w, d, to_d->key);
    assert_int_equal(d->sched.seats, 0);
    assert_int_equal(d->sched.blocks, 0);
    assert_int_equal(bt_core_n_legs(w->core), 0);
    bt_gen_rows_unref(c.rows);
    bt_core_destroy(w->core);
}

/* One token is drawn from the decode worker's row as well. */
static void one_token_needs_the_decode_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c;

    (void)state;
    start_beams(w);
    p = join_beams(w, "prefill-0", BT_ROLE_PREFILL, 0);
    d = join_beams(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_BEAMS);
    assert_int_equal(submit_beams(w, &c, 1), BT_OK);
    assert_int_equal(request_to(w, p)->max_new, 2);
    assert_int_equal(request_to(w, d)->max_new, 1);
    bt_core_cancel(w->core, c.gen, w->now);
    bt_core_destroy(w->core);
}

/* The answers of a lost attempt count, since those of the next are equal. */
static void lost_worker_is_replaced_by_one_that_searches(void **state)
{
    world_t *w = &world;
    bt_instance_t *first, *older, *second;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_beams(w);
    first = join_beams(w, "decode-0", BT_ROLE_DECODE,
                       BT_HELLO_LOCAL_PREFILL | BT_HELLO_BEAMS);
    older = join_beams(w, "decode-1", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    assert_int_equal(submit_beams(w, &c, 5), BT_OK);
    key = request_to(w, first)->key;
    say_beam(w, first, key, 2, "cz", BT_FINISH_STOP);
    n_lost = 0;
    lose(w, first);
    assert_null(request_to(w, older));
    second = join_beams(w, "decode-2", BT_ROLE_DECODE,
                        BT_HELLO_LOCAL_PREFILL | BT_HELLO_BEAMS);
    assert_non_null(request_to(w, second));
    assert_int_equal(request_to(w, second)->n_tokens, N_PROMPT);
    tell_beams(w, second, request_to(w, second)->key);
    assert_beams(&c);
    assert_null(request_to(w, older));
    bt_gen_rows_unref(c.rows);
    bt_core_destroy(w->core);
}

static void workers_without_beams_refuse_the_request(void **state)
{
    world_t *w = &world;
    client_t c;

    (void)state;
    start_beams(w);
    (void)join_beams(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    assert_int_equal(submit_beams(w, &c, 5), BT_ERR_UNSUPPORTED);
    bt_core_destroy(w->core);
}

/* What no worker sends: too few answers, too many tokens, unknown ids, no
 * log-probs, answers of a request without beams. */
static void answers_that_do_not_fit_fail_the_request(void **state)
{
    world_t *w = &world;

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        bt_instance_t *d;
        bt_req_key_t key;
        client_t c;

        start_beams(w);
        d = join_beams(w, "decode-0", BT_ROLE_DECODE,
                       BT_HELLO_LOCAL_PREFILL | BT_HELLO_BEAMS);
        assert_int_equal(submit_beams(w, &c, 5), BT_OK);
        key = request_to(w, d)->key;
        if (i == 0) {
            say_beam(w, d, key, 0, "aaz", BT_FINISH_STOP);
        } else if (i == 1) {
            say_beam(w, d, key, 2, "ccccccz", BT_FINISH_STOP);
        } else if (i == 2) {
            say_beam(w, d, key, 3, "cz", BT_FINISH_STOP);
        } else if (i == 3) {
            say_beam(w, d, key, 2, "cz", BT_FINISH_ERROR);
        } else {
            uint32_t id = (i == 4) ? VOCAB : 'c';
            const double logprob = -1.0;
            const bt_msg_t msg = {
                .type = BT_MSG_BEAM,
                .u.beam = {.key = key,
                           .index = 2,
                           .n = RETURNED,
                           .finish = BT_FINISH_LENGTH,
                           .ids = &id,
                           .n_ids = 1,
                           .logprobs = (const uint8_t *)&logprob,
                           .logprobs_bytes = (i == 4) ? 8 : 7}};

            say(w, d, &msg);
        }
        assert_int_equal(c.n_ends, 1);
        assert_int_equal(c.finish, BT_FINISH_ERROR);
        assert_int_equal(c.http_status, 500);
        bt_core_destroy(w->core);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pair_searches_at_the_decode_worker),
        BT_TEST(one_token_needs_the_decode_worker),
        BT_TEST(lost_worker_is_replaced_by_one_that_searches),
        BT_TEST(workers_without_beams_refuse_the_request),
        BT_TEST(answers_that_do_not_fit_fail_the_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
