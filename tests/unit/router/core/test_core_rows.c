/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probs and logits of a generation: each value once, however links, losses
 * and re-runs bring it, and tokens in order with what belongs to them. */
#include <math.h>

#include "tests/unit/router/core/core_fixture.h"

#define N_PROMPT     3u /* "The" */
#define ALL_LOGPROBS (BT_WANT_LOGPROBS | BT_WANT_PROMPT_LOGPROBS)

static void start_rows(world_t *w, bt_instance_t **p_p, bt_instance_t **d_p)
{
    start(w, 10);
    *p_p = join(w, "prefill-0", BT_ROLE_PREFILL);
    *d_p = join(w, "decode-0", BT_ROLE_DECODE);
}

static bt_status_t try_wanting(world_t *w, client_t *c, uint32_t what,
                               uint32_t n_top, uint32_t max_new)
{
    const bt_gen_spec_t spec = {
        .prompt = prompt_of("The"),
        .max_new = max_new,
        .sampling = bt_sampling_default(),
        .wants = {.what = what, .n_top = n_top},
        .parse_us = 10,
        .tokenize_us = 20,
    };
    bt_status_t status;

    memset(c, 0, sizeof(*c));
    status = submit_one(w->core, &spec, c, w->now, &c->gen);
    bt_prompt_unref(spec.prompt);
    return status;
}

static void submit_wanting(world_t *w, client_t *c, uint32_t what,
                           uint32_t n_top, uint32_t max_new)
{
    assert_int_equal(try_wanting(w, c, what, n_top, max_new), BT_OK);
}

/* What the model says of token @a index of the answer: -1/8, -2/8 … */
static bt_score_t score_of(uint32_t index, uint32_t n_top)
{
    bt_score_t score = {.logprob = -(double)(index + 1) / 8, .n_top = n_top};

    for (uint32_t k = 0; k < n_top; k++) {
        score.top_ids[k] = 'm' + k;
        score.top_logprobs[k] = -(double)(index + 1) / 16 - k;
    }
    return score;
}

/* As tokens(), with their log-probs. */
static void scored(world_t *w, bt_instance_t *from, bt_req_key_t key,
                   uint32_t index, const char *text, uint32_t n_top,
                   bt_finish_t finish)
{
    bt_token_score_t scores[8];
    bt_token_t list[8];
    const uint32_t n = (uint32_t)strlen(text);
    const bt_msg_t msg = {
        .type = BT_MSG_TOKENS,
        .u.tokens = {.n = n, .tokens = list, .n_scores = n, .scores = scores}};

    for (uint32_t i = 0; i < n; i++) {
        list[i] = (bt_token_t){
            .key = key,
            .index = index + i,
            .id = (uint32_t)text[i],
            .finish = (uint32_t)((i + 1 == n) ? finish : BT_FINISH_NONE)};
        scores[i].token = i;
        scores[i].score = score_of(index + i, n_top);
    }
    say(w, from, &msg);
}

static void say_rows(world_t *w, bt_instance_t *from, bt_req_key_t key,
                     bt_rows_kind_t kind, uint32_t at, uint32_t n_top,
                     uint32_t offset, const void *data, uint32_t bytes)
{
    const bt_msg_t msg = {.type = BT_MSG_ROWS,
                          .u.rows = {.key = key,
                                     .kind = (uint32_t)kind,
                                     .from = at,
                                     .n_top = n_top,
                                     .offset = offset,
                                     .data = data,
                                     .data_bytes = bytes}};

    say(w, from, &msg);
}

/* Of n tokens of the prompt, from @a at on: -100 - at. */
static void say_prompt(world_t *w, bt_instance_t *from, bt_req_key_t key,
                       uint32_t at, uint32_t n)
{
    uint8_t bytes[8 * BT_SCORE_BYTES(1)];

    for (uint32_t i = 0; i < n; i++) {
        bt_score_t score = {.logprob = -100.0 - at - i, .n_top = 1};

        score.top_ids[0] = 'p' + at + i;
        score.top_logprobs[0] = -1.5;
        bt_score_put(&score, bytes + i * BT_SCORE_BYTES(1));
    }
    say_rows(w, from, key, BT_ROWS_PROMPT_LOGPROBS, at, 1, 0, bytes,
             n * BT_SCORE_BYTES(1));
}

/* Ids from offset to end of a row of logits: id i of row r is 1000 r + i. */
static void say_logits(world_t *w, bt_instance_t *from, bt_req_key_t key,
                       bt_rows_kind_t kind, uint32_t row, uint32_t offset,
                       uint32_t end)
{
    float floats[VOCAB];

    for (uint32_t i = offset; i < end; i++) {
        floats[i - offset] = (float)(1000 * row + i);
    }
    say_rows(w, from, key, kind, row, 0, offset, floats,
             (end - offset) * (uint32_t)sizeof(float));
}

static void check_logits(const float *logits, uint32_t n_rows)
{
    assert_non_null(logits);
    for (uint32_t i = 0; i < n_rows * VOCAB; i++) {
        assert_true(logits[i] == (float)(1000 * (i / VOCAB) + i % VOCAB));
    }
}

static void check_scores(const bt_gen_rows_t *rows, const char *text,
                         uint32_t n_top)
{
    const uint32_t n = (uint32_t)strlen(text);
    const bt_scores_t *s = &rows->scores;

    assert_int_equal(rows->n_output, n);
    assert_int_equal(s->n, rows->n_front + n);
    assert_int_equal(s->n_top, n_top);
    for (uint32_t i = 0; i < n; i++) {
        const bt_score_t want = score_of(i, n_top);
        const uint32_t at = rows->n_front + i;

        assert_int_equal(s->ids[at], text[i]);
        assert_true(s->logprobs[at] == want.logprob);
        for (uint32_t k = 0; k < n_top; k++) {
            assert_int_equal(s->top_ids[at * n_top + k], want.top_ids[k]);
            assert_true(s->top_logprobs[at * n_top + k] ==
                        want.top_logprobs[k]);
        }
    }
}

static void check_prompt(const bt_gen_rows_t *rows)
{
    const bt_scores_t *s = &rows->scores;

    assert_int_equal(rows->n_front, N_PROMPT);
    assert_true(isnan(s->logprobs[0]));
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        assert_int_equal(s->ids[i], "The"[i]);
        if (i > 0) {
            assert_true(s->logprobs[i] == -100.0 - i);
            assert_int_equal(s->top_ids[i], 'p' + i);
        }
    }
}

static void log_probs_arrive_with_their_tokens(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, BT_WANT_LOGPROBS, 2, 4);
    key = key_at(w, d);
    assert_int_equal(last(w, p, BT_MSG_REQUEST)->msg.u.request.wants.what,
                     BT_WANT_LOGPROBS);
    assert_int_equal(last(w, d, BT_MSG_REQUEST)->msg.u.request.wants.n_top, 2);
    grant(w, d, key);
    joined(w, d, key, 5);
    scored(w, d, key, 1, "bc", 2, BT_FINISH_NONE); /* ahead of #1 */
    assert_int_equal(c.n_scored, 0);
    scored(w, p, key, 0, "a", 2, BT_FINISH_NONE);
    assert_int_equal(c.n_scored, 3);
    scored(w, d, key, 1, "b", 2, BT_FINISH_NONE); /* again */
    assert_int_equal(c.n_scored, 3);
    scored(w, d, key, 3, "d", 2, BT_FINISH_LENGTH);
    assert_string_equal(c.text, "abcd");
    assert_int_equal(c.n_ends, 1);
    check_scores(c.rows, "abcd", 2);
    assert_int_equal(c.rows->n_front, 0);
    prefilled(w, p, key);
    ended(w, p, key);
    ended(w, d, key);
    check_scores(c.rows, "abcd", 2); /* the generation is gone */
    bt_gen_rows_unref(c.rows);
    end_world(w);
}

static void prompt_log_probs_come_first_and_once(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, ALL_LOGPROBS, 1, 1);
    key = key_at(w, p);
    say_prompt(w, p, key, 1, 1);
    say_prompt(w, p, key, 1, 2); /* more, and a duplicate */
    scored(w, p, key, 0, "a", 1, BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    check_prompt(c.rows);
    check_scores(c.rows, "a", 1);
    bt_gen_rows_unref(c.rows);
    prefilled(w, p, key);
    ended(w, p, key);
    end_world(w);
}

/* A first attempt told a part; the second one is asked for the rest. */
static void retry_continues_rows_of_the_first_attempt(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    const bt_msg_request_t *r;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, ALL_LOGPROBS | BT_WANT_LOGITS, 1, 4);
    key = key_at(w, d);
    grant(w, d, key);
    say_prompt(w, p, key, 1, 2);
    scored(w, p, key, 0, "a", 1, BT_FINISH_NONE);
    assert_int_equal(c.n_scored, 0); /* its logits are not here */
    say_logits(w, p, key, BT_ROWS_LOGITS, 0, 0, VOCAB);
    assert_int_equal(c.n_scored, N_PROMPT + 1);
    prefilled(w, p, key);
    ended(w, p, key);
    joined(w, d, key, 5);
    scored(w, d, key, 1, "b", 1, BT_FINISH_NONE);
    say_logits(w, d, key, BT_ROWS_LOGITS, 1, 0, 7); /* and no more of it */
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);

    key = key_at(w, d2);
    r = &last(w, d2, BT_MSG_REQUEST)->msg.u.request;
    assert_int_equal(key.attempt, 2);
    assert_int_equal(r->n_tokens, N_PROMPT + 1);
    assert_int_equal(r->wants.what, BT_WANT_LOGPROBS | BT_WANT_LOGITS);
    grant(w, d2, key);
    scored(w, p, key, 1, "b", 1, BT_FINISH_NONE);
    say_logits(w, p, key, BT_ROWS_LOGITS, 1, 0, 3); /* is here */
    say_logits(w, p, key, BT_ROWS_LOGITS, 1, 3, VOCAB);
    assert_int_equal(c.n_scored, N_PROMPT + 2);
    joined(w, d2, key, 5);
    say_logits(w, d2, key, BT_ROWS_LOGITS, 2, 0, VOCAB);
    scored(w, d2, key, 2, "c", 1, BT_FINISH_STOP);
    assert_int_equal(c.n_ends, 1);
    check_prompt(c.rows);
    check_scores(c.rows, "abc", 1);
    check_logits(c.rows->generation_logits, 3);
    bt_gen_rows_unref(c.rows);
    prefilled(w, p, key);
    ended(w, p, key);
    ended(w, d2, key);
    end_world(w);
}

/* Tokens overtake logits; the client hears of each when all of it is here. */
static void token_waits_for_its_logits_and_those_of_the_prompt(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, BT_WANT_LOGITS | BT_WANT_PROMPT_LOGITS, 0, 3);
    key = key_at(w, d);
    grant(w, d, key);
    tokens(w, p, key, 0, "a", BT_FINISH_NONE);
    joined(w, d, key, 5);
    tokens(w, d, key, 1, "bc", BT_FINISH_LENGTH);
    assert_string_equal(c.text, "");
    say_logits(w, d, key, BT_ROWS_LOGITS, 1, 0, VOCAB);
    say_logits(w, d, key, BT_ROWS_LOGITS, 2, 0, 100);
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        say_logits(w, p, key, BT_ROWS_PROMPT_LOGITS, i, 0, 64);
        say_logits(w, p, key, BT_ROWS_PROMPT_LOGITS, i, 64, VOCAB);
    }
    assert_string_equal(c.text, "");
    say_logits(w, p, key, BT_ROWS_LOGITS, 0, 0, VOCAB);
    assert_string_equal(c.text, "ab");
    prefilled(w, p, key);
    ended(w, p, key);
    assert_int_equal(c.n_ends, 0);
    say_logits(w, d, key, BT_ROWS_LOGITS, 2, 100, VOCAB);
    assert_string_equal(c.text, "abc");
    assert_int_equal(c.n_ends, 1);
    check_logits(c.rows->context_logits, N_PROMPT);
    check_logits(c.rows->generation_logits, 3);
    bt_gen_rows_unref(c.rows);
    ended(w, d, key);
    end_world(w);
}

/* The last token is here, but not what belongs to it: the worker is needed. */
static void worker_lost_with_the_last_logits_is_retried(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d, *d2;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, BT_WANT_LOGITS, 0, 2);
    key = key_at(w, d);
    grant(w, d, key);
    joined(w, d, key, 5);
    tokens(w, d, key, 1, "b", BT_FINISH_LENGTH); /* before #1 */
    bt_test_expect_log_lines(1);
    bt_core_worker_down(w->core, d, "killed", w->now);
    d2 = join(w, "decode-1", BT_ROLE_DECODE);
    ended(w, p, key);
    key = key_at(w, d2);
    assert_int_equal(key.attempt, 2);
    bt_core_cancel(w->core, c.gen, w->now);
    ended(w, p, key);
    ended(w, d2, key);
    end_world(w);
}

/* What a broken worker may send: the request fails, by its name. */
static void malformed_rows_fail_the_request(void **state)
{
    static const struct {
        bt_rows_kind_t kind;
        uint32_t from, n_top, offset, bytes;
    } cases[] = {
        {BT_ROWS_PROMPT_LOGPROBS, 2, 1, 0, BT_SCORE_BYTES(1)}, /* a gap */
        {BT_ROWS_PROMPT_LOGPROBS, 1, 1, 0, 3 * BT_SCORE_BYTES(1)},
        {BT_ROWS_PROMPT_LOGPROBS, 1, 2, 0, BT_SCORE_BYTES(2)},
        {BT_ROWS_PROMPT_LOGPROBS, 1, 1, 0, BT_SCORE_BYTES(1) - 1},
        {BT_ROWS_PROMPT_LOGITS, N_PROMPT, 0, 0, 4},
        {BT_ROWS_PROMPT_LOGITS, 0, 0, 1, 4},
        {BT_ROWS_PROMPT_LOGITS, 0, 0, 0, 4 * VOCAB + 4},
        {BT_ROWS_PROMPT_LOGITS, 0, 0, UINT32_MAX, 4},
        {BT_ROWS_LOGITS, 0, 0, 0, 4}, /* not asked for */
    };
    static const uint8_t zeros[4 * VOCAB + 4];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        bt_req_key_t key;
        client_t c;

        start_rows(w, &p, &d);
        submit_wanting(w, &c, ALL_LOGPROBS | BT_WANT_PROMPT_LOGITS, 1, 1);
        key = key_at(w, p);
        say_rows(w, p, key, cases[i].kind, cases[i].from, cases[i].n_top,
                 cases[i].offset, zeros, cases[i].bytes);
        assert_int_equal(c.n_ends, 1);
        assert_int_equal(c.http_status, 500);
        assert_string_equal(c.message, "worker prefill-0 sent log-probs or "
                                       "logits that do not fit");
        ended(w, p, key);
        end_world(w);
    }
}

static void token_without_log_prob_fails_the_request(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit_wanting(w, &c, BT_WANT_LOGPROBS, 1, 1);
    key = key_at(w, p);
    tokens(w, p, key, 0, "a", BT_FINISH_LENGTH);
    assert_int_equal(c.http_status, 500);
    ended(w, p, key);
    submit_wanting(w, &c, BT_WANT_LOGPROBS, 1, 1);
    key = key_at(w, p);
    scored(w, p, key, 0, "a", 2, BT_FINISH_LENGTH); /* more than asked for */
    assert_int_equal(c.http_status, 500);
    ended(w, p, key);
    end_world(w);
}

/* A newer worker's kind, and what nobody asked for. */
static void unknown_or_unrequested_rows_are_ignored(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    bt_req_key_t key;
    client_t c;

    (void)state;
    start_rows(w, &p, &d);
    submit(w, &c, "The", 1, NULL);
    key = key_at(w, p);
    say_logits(w, p, key, BT_ROWS_LOGITS, 0, 0, VOCAB);
    scored(w, p, key, 0, "a", 3, BT_FINISH_LENGTH);
    assert_string_equal(c.text, "a");
    assert_null(c.rows);
    prefilled(w, p, key);
    ended(w, p, key);
    submit_wanting(w, &c, BT_WANT_LOGPROBS, 0, 1);
    key = key_at(w, p);
    say_logits(w, p, key, (bt_rows_kind_t)77, 9, 9, VOCAB);
    assert_int_equal(c.n_ends, 0);
    scored(w, p, key, 0, "a", 0, BT_FINISH_LENGTH);
    assert_int_equal(c.n_ends, 1);
    check_scores(c.rows, "a", 0);
    bt_gen_rows_unref(c.rows);
    prefilled(w, p, key);
    ended(w, p, key);
    end_world(w);
}

/* 64 rows of logits are all that there may be at a time, those of an answer
 * that is still being written included. */
static void logits_in_flight_are_bounded(void **state)
{
    world_t *w = &world;
    bt_gen_rows_t *rows;
    client_t a, b, c;

    (void)state;
    start(w, 10);
    assert_int_equal(try_wanting(w, &a, BT_WANT_LOGITS, 0, 65),
                     BT_ERR_TOO_LARGE);
    submit_wanting(w, &a, BT_WANT_LOGITS, 0, 40);
    assert_int_equal(try_wanting(w, &b, BT_WANT_LOGITS, 0, 25),
                     BT_ERR_TOO_LARGE);
    submit_wanting(w, &b, BT_WANT_LOGPROBS, 0, 25); /* takes none */
    submit_wanting(w, &c, BT_WANT_LOGITS, 0, 24);
    rows = bt_gen_rows_ref(bt_core_rows(a.gen));
    bt_core_cancel(w->core, a.gen, w->now);
    assert_int_equal(try_wanting(w, &a, BT_WANT_LOGITS, 0, 25),
                     BT_ERR_TOO_LARGE);
    bt_gen_rows_unref(rows);
    submit_wanting(w, &a, BT_WANT_PROMPT_LOGITS | BT_WANT_LOGITS, 0, 37);
    bt_core_end_all(w->core, "over", w->now);
    end_world(w);
}

static void short_memory_starts_no_generation(void **state)
{
    world_t *w = &world;
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_prompt_t *prompt;
    client_t c;
    int nth = 0;

    (void)state;
    start(w, 10);
    prompt = prompt_of("The");
    memset(&c, 0, sizeof(c));
    while (status != BT_OK) {
        const bt_gen_spec_t spec = {
            .prompt = prompt,
            .max_new = 2,
            .sampling = bt_sampling_default(),
            .wants = {.what =
                          ALL_LOGPROBS | BT_WANT_LOGITS | BT_WANT_PROMPT_LOGITS,
                      .n_top = 2},
        };

        bt_alloc_fail_at(++nth);
        status = submit_one(w->core, &spec, &c, w->now, &c.gen);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    }
    /* The generation, its room; rows, logits twice with counts, four arrays. */
    assert_true(nth > 10);
    bt_prompt_unref(prompt);
    bt_core_end_all(w->core, "over", w->now);
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(log_probs_arrive_with_their_tokens),
        BT_TEST(prompt_log_probs_come_first_and_once),
        BT_TEST(retry_continues_rows_of_the_first_attempt),
        BT_TEST(token_waits_for_its_logits_and_those_of_the_prompt),
        BT_TEST(worker_lost_with_the_last_logits_is_retried),
        BT_TEST(malformed_rows_fail_the_request),
        BT_TEST(token_without_log_prob_fails_the_request),
        BT_TEST(unknown_or_unrequested_rows_are_ignored),
        BT_TEST(logits_in_flight_are_bounded),
        BT_TEST(short_memory_starts_no_generation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
