/* SPDX-License-Identifier: Apache-2.0 */
/* Every state of a generation that messages lead to × everything that a
 * worker, a client or the clock may do then. */
#include "tests/unit/router/core/core_checks.h"

/* ---- one request in some state ---- */

typedef struct scene {
    world_t *w;
    bt_instance_t *p, *d; /* have it; p is NULL when it is local */
    bt_instance_t *p2, *d2;
    bt_req_key_t key;
    client_t c;
} scene_t;

/* The states by one letter each, as the columns' results. */
static char letter_of(const scene_t *s)
{
    const bt_gen_t *gen = bt_gen_find(s->w->core, s->key.id);

    if ((gen == NULL) || !bt_gen_state_is_live(gen->state)) {
        return 'X';
    }
    if (gen->attempt.number > 1) { /* run again, at the other pair */
        assert_int_equal(gen->attempt.number, 2);
        assert_true((gen->attempt.state == BT_ATTEMPT_IS_SENT) ||
                    (gen->attempt.state == BT_ATTEMPT_IS_ONE_TOKEN));
        return 'R';
    }
    return "OSTJDWVC1L"[gen->attempt.state];
}

/* From a new request to the state of a row. */
static void enter(scene_t *s, char row)
{
    world_t *w = &world;

    memset(s, 0, sizeof(*s));
    s->w = w;
    start(w, 10);
    if ((row == 'C') || (row == 'L') || (row == 'N')) {
        s->d =
            join_flags(w, "decode-0", BT_ROLE_DECODE, BT_HELLO_LOCAL_PREFILL);
    } else {
        s->p = join(w, "prefill-0", BT_ROLE_PREFILL);
        s->d = join(w, "decode-0", BT_ROLE_DECODE);
    }
    submit(w, &s->c, "The", (row == '1') ? 1 : 8, NULL);
    s->key = key_at(w, (row == '1') ? s->p : s->d);
    s->p2 = join(w, "prefill-1", BT_ROLE_PREFILL);
    s->d2 = join(w, "decode-1", BT_ROLE_DECODE);
    if ((row == 'T') || (row == 'D') || (row == 'V') || (row == 'M')) {
        tokens(w, s->p, s->key, 0, "a", BT_FINISH_NONE);
    }
    if ((row == 'J') || (row == 'D') || (row == 'K') || (row == 'M')) {
        joined(w, s->d, s->key, 5);
    }
    if ((row == 'W') || (row == 'V')) {
        failed(w, s->d, s->key, BT_ERR_CANCELED, "transfer: canceled");
    }
    if (row == 'K') { /* joined, and its last token is here before the first */
        tokens(w, s->d, s->key, 1, "bc", BT_FINISH_STOP);
    }
    if (row == 'M') {
        tokens(w, s->d, s->key, 2, "c", BT_FINISH_STOP);
    }
    if (row == 'N') {
        tokens(w, s->d, s->key, 1, "b", BT_FINISH_STOP);
    }
    if (row == 'L') {
        tokens(w, s->d, s->key, 0, "a", BT_FINISH_NONE);
    }
    assert_consistent(w->core);
}

static void event(scene_t *s, char what)
{
    bt_instance_t *first = (s->p != NULL) ? s->p : s->d;
    const uint32_t next = (uint32_t)strlen(s->c.text);
    world_t *w = s->w;

    switch (what) {
    case 't': /* the next token */
        tokens(w, first, s->key, next, "a", BT_FINISH_NONE);
        break;
    case 'l': /* ...which is the last */
        tokens(w, first, s->key, next, "a", BT_FINISH_STOP);
        break;
    case 'i': /* a worker that gives up says so in place of a token */
        tokens(w, s->d, s->key, next, "!", BT_FINISH_ERROR);
        break;
    case 'h':
        tokens(w, s->p, s->key, next, "!", BT_FINISH_ERROR);
        break;
    case 'j':
        joined(w, s->d, s->key, 5);
        break;
    case 'w':
        failed(w, s->d, s->key, BT_ERR_CANCELED, "transfer: canceled");
        break;
    case 'f':
        failed(w, s->d, s->key, BT_ERR_CORRUPT, "checksum");
        break;
    case 'e':
        ended(w, s->d, s->key);
        break;
    case 'x':
        lose(w, s->d);
        s->d = NULL;
        break;
    case 'F':
        failed(w, s->p, s->key, BT_ERR_DEVICE, "device");
        break;
    case 'E':
        ended(w, s->p, s->key);
        break;
    case 'P':
        lose(w, s->p);
        s->p = NULL;
        break;
    case 'c':
        bt_core_cancel(w->core, s->c.gen, w->now);
        break;
    case 'm': /* its time is up */
        w->now += DEADLINE_MS * MS;
        bt_core_tick(w->core, w->now);
        break;
    default:
        fail();
    }
}

/* All workers answer; then nothing is held by anybody. */
static void leave(scene_t *s)
{
    bt_instance_t *const all[] = {s->p, s->d, s->p2, s->d2};
    world_t *w = s->w;

    if (letter_of(s) != 'X') {
        bt_core_cancel(w->core, s->c.gen, w->now);
    }
    assert_consistent(w->core);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        const bt_req_key_t key = {.id = s->key.id, .attempt = attempt};

        for (unsigned i = 0; i < BT_ARRAY_LEN(all); i++) {
            if (all[i] != NULL) {
                ended(w, all[i], key);
            }
        }
    }
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_records, 1);
    end_world(w);
}

/* ---- the matrix ---- */

/* Rows: Sent, Transfer, Joined, Decode, Withdrawn, withdrawn with token (V),
 * loCal, Local with a token, one token (1); K is J when the decode worker's
 * last token is here already, M and N are D and C when it is, but not the one
 * before. Results: the same, Run again, or X: ended. What the router is told at
 * a wrong time changes nothing. */
static const char columns[] = "tl jw feix FEhP cm";
static const struct {
    char row;
    const char *cells; /* ' ' does not apply */
} matrix[] = {
    /*      tl jw feix FEhP cm */
    {'S', "TX JW RRRR RRRR XX"},
    {'T', "TX DV RRRR RTRR XX"}, /* P ends when its transfer is complete */
    {'J', "DX JR RRRR RRRR XX"}, /* token #1 is missing */
    {'D', "DX DR RRRR DDDD XX"}, /* P's part is over */
    {'W', "VX WW WWWW RRRR XX"}, /* P's word decides */
    {'V', "VX VV VVVV RRRR XX"},
    {'C', "DX CR RRRR      XX"},
    {'L', "DX DR RRRR      XX"},
    {'M', "XX DR RRRR DDDD XX"}, /* nobody else has the token between */
    {'N', "XX CR RRRR      XX"},
    {'1', "XX 11 1111 RRRR XX"}, /* D has no part in it */
    {'K', "XX JJ JJJJ RRRR XX"}, /* D's part is over */
};

static void every_event_in_every_state_follows_the_drawing(void **state)
{
    (void)state;
    n_lost = 0;
    for (unsigned i = 0; i < BT_ARRAY_LEN(matrix); i++) {
        assert_int_equal(strlen(matrix[i].cells), strlen(columns));
        for (unsigned k = 0; columns[k] != '\0'; k++) {
            scene_t s;
            char got;

            if (matrix[i].cells[k] == ' ') {
                continue;
            }
            enter(&s, matrix[i].row);
            event(&s, columns[k]);
            got = letter_of(&s);
            if (got != matrix[i].cells[k]) {
                fail_msg("event %c in state %c led to %c, not to %c",
                         columns[k], matrix[i].row, got, matrix[i].cells[k]);
            }
            assert_int_equal(count(&world, s.p2, BT_MSG_REQUEST),
                             (got == 'R') ? 1 : 0);
            assert_int_equal(s.c.n_ends,
                             ((got == 'X') && (columns[k] != 'c')) ? 1 : 0);
            assert_consistent(world.core);
            leave(&s);
        }
    }
}

static void every_event_after_the_end_changes_nothing(void **state)
{
    (void)state;
    n_lost = 0;
    for (unsigned i = 0; i < BT_ARRAY_LEN(matrix); i++) {
        for (unsigned k = 0; columns[k] != '\0'; k++) {
            scene_t s;
            unsigned n_ends;

            if ((matrix[i].cells[k] == ' ') || (columns[k] == 'c')) {
                continue;
            }
            enter(&s, matrix[i].row);
            event(&s, ((i + k) % 2 == 0) ? 'c' : 'm');
            n_ends = s.c.n_ends;
            event(&s, columns[k]);
            assert_int_equal(letter_of(&s), 'X');
            assert_int_equal(s.c.n_ends, n_ends);
            assert_int_equal(count(&world, s.p2, BT_MSG_REQUEST), 0);
            assert_consistent(world.core);
            leave(&s);
        }
    }
}

/* ---- the end of a generation, and legs ---- */

static bt_gen_state_t state_of(const scene_t *s)
{
    const bt_gen_t *gen = bt_gen_find(s->w->core, s->key.id);

    assert_non_null(gen);
    return gen->state;
}

static void ended_generation_is_settled_recorded_and_freed(void **state)
{
    world_t *w = &world;
    scene_t s;

    (void)state;
    enter(&s, 'S');
    bt_core_cancel(w->core, s.c.gen, w->now);
    assert_int_equal(state_of(&s), BT_GEN_IS_ENDED);
    assert_int_equal(w->n_ledgers, 0); /* PREFILLED is due */
    ended(w, s.d, s.key);
    assert_int_equal(state_of(&s), BT_GEN_IS_ENDED);
    prefilled(w, s.p, s.key);
    assert_int_equal(state_of(&s), BT_GEN_IS_SETTLED);
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_records, 0);
    ended(w, s.p, s.key);
    assert_null(bt_gen_find(w->core, s.key.id));
    assert_int_equal(w->n_ledgers, 1);
    assert_int_equal(w->n_records, 1);
    end_world(w);

    /* The process ends before the workers answer. */
    for (unsigned settled = 0; settled < 2; settled++) {
        enter(&s, 'S');
        bt_core_cancel(w->core, s.c.gen, w->now);
        if (settled == 1) {
            prefilled(w, s.p, s.key);
        }
        assert_int_equal(state_of(&s),
                         (settled == 1) ? BT_GEN_IS_SETTLED : BT_GEN_IS_ENDED);
        bt_core_record_rest(w->core);
        assert_int_equal(state_of(&s), BT_GEN_IS_RECORDED);
        assert_int_equal(w->n_records, 1);
        prefilled(w, s.p, s.key);
        ended(w, s.p, s.key);
        ended(w, s.d, s.key);
        assert_int_equal(w->n_ledgers, settled);
        assert_int_equal(w->n_records, 1);
        end_world(w);
    }
}

static void lost_prefill_worker_owes_no_prefilled_message(void **state)
{
    world_t *w = &world;
    scene_t s;

    (void)state;
    n_lost = 0;
    enter(&s, 'D');
    event(&s, 'P');
    bt_core_cancel(w->core, s.c.gen, w->now);
    assert_int_equal(state_of(&s), BT_GEN_IS_SETTLED);
    leave(&s);
}

static void prefilled_counts_once_and_from_the_prefilling_worker(void **state)
{
    world_t *w = &world;
    scene_t s;

    (void)state;
    enter(&s, 'S');
    assert_int_equal(s.p->sched.prefill_tokens, 3);
    prefilled(w, s.d, s.key);
    assert_int_equal(s.p->sched.prefill_tokens, 3);
    assert_int_equal(w->n_times[BT_TIME_QUEUE], 0);
    for (unsigned i = 0; i < 3; i++) {
        prefilled(w, s.p, s.key);
        assert_int_equal(s.p->sched.prefill_tokens, 0);
        assert_int_equal(w->n_times[BT_TIME_QUEUE], 1);
    }
    joined(w, s.p, s.key, 5); /* no KV goes to a prefill worker */
    assert_int_equal(w->n_first_transfers, 0);
    assert_int_equal(letter_of(&s), 'S');
    leave(&s);
}

static void token_marks_its_prompt_as_computed(void **state)
{
    world_t *w = &world;
    scene_t s;

    (void)state;
    enter(&s, 'S');
    event(&s, 'l'); /* the end, but PREFILLED is due */
    assert_int_equal(s.p->sched.prefill_tokens, 0);
    assert_int_equal(s.c.n_ends, 1);
    assert_int_equal(state_of(&s), BT_GEN_IS_ENDED);
    prefilled(w, s.p, s.key);
    assert_int_equal(state_of(&s), BT_GEN_IS_SETTLED);
    leave(&s);
}

static void successful_record_has_no_trouble(void **state)
{
    world_t *w = &world;
    scene_t s;

    (void)state;
    enter(&s, 'W');
    event(&s, 'l');
    assert_int_equal(s.c.finish, BT_FINISH_STOP);
    leave(&s);
    assert_string_equal(w->trouble, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_event_in_every_state_follows_the_drawing),
        BT_TEST(every_event_after_the_end_changes_nothing),
        BT_TEST(ended_generation_is_settled_recorded_and_freed),
        BT_TEST(lost_prefill_worker_owes_no_prefilled_message),
        BT_TEST(prefilled_counts_once_and_from_the_prefilling_worker),
        BT_TEST(token_marks_its_prompt_as_computed),
        BT_TEST(successful_record_has_no_trouble),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
