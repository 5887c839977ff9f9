/* SPDX-License-Identifier: Apache-2.0 */
/* The lives of a generation, an attempt and a leg against their drawings in
 * gen_life.h: each pair of a state and an input stands below, read off the
 * drawings by hand. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "router/core/gen_life.h"

/* ---- what is the same for all three ---- */

/* A machine and its matrix. A cell is the state that comes of the row's state
 * and the column's input, as the letter of its row; `.` is refused. */
typedef struct machine {
    const char *letters; /* of the states, in order of the enum */
    const char *inputs;  /* one letter each, for messages */
    const char *const *rows;
    unsigned n_of_peers; /* inputs that others can cause come first */
    bt_status_t (*next)(int state, int input, int *next_p);
    const char *starts; /* letters */
    const char *ends;   /* without an edge away */
} machine_t;

static unsigned index_of(const machine_t *m, char letter)
{
    const char *at = strchr(m->letters, letter);

    assert_non_null(at);
    return (unsigned)(at - m->letters);
}

static void assert_is_drawn(const machine_t *m)
{
    const unsigned n_states = (unsigned)strlen(m->letters);
    const unsigned n_inputs = (unsigned)strlen(m->inputs);

    for (unsigned s = 0; s < n_states; s++) {
        assert_int_equal(strlen(m->rows[s]), n_inputs);
        for (unsigned i = 0; i < n_inputs; i++) {
            const char cell = m->rows[s][i];
            int next = -1;
            const bt_status_t status = m->next((int)s, (int)i, &next);
            const bt_status_t refused =
                (i < m->n_of_peers) ? BT_ERR_STALE : BT_ERR_INVALID_PARAM;
            const bool is_edge = cell != '.';

            if ((status != (is_edge ? BT_OK : refused)) ||
                (next != (is_edge ? (int)index_of(m, cell) : -1))) {
                fail_msg("%c on %c: %s, state %d; drawn is %c", m->letters[s],
                         m->inputs[i], bt_status_str(status), next, cell);
            }
        }
    }
}

/* Every state is reached from a start, and from every state an end is. */
static void assert_has_no_dead_end(const machine_t *m)
{
    const unsigned n = (unsigned)strlen(m->letters);
    bool reached[16] = {false}, ends[16] = {false};

    assert_true(n <= BT_ARRAY_LEN(reached));
    for (const char *c = m->starts; *c != '\0'; c++) {
        reached[index_of(m, *c)] = true;
    }
    for (const char *c = m->ends; *c != '\0'; c++) {
        ends[index_of(m, *c)] = true;
        assert_int_equal(strspn(m->rows[index_of(m, *c)], "."),
                         strlen(m->inputs));
    }
    for (unsigned round = 0; round < n; round++) {
        for (unsigned s = 0; s < n; s++) {
            for (const char *c = m->rows[s]; *c != '\0'; c++) {
                if (*c != '.') {
                    reached[index_of(m, *c)] |= reached[s];
                    ends[s] |= ends[index_of(m, *c)];
                }
            }
        }
    }
    for (unsigned s = 0; s < n; s++) {
        assert_true(reached[s]);
        assert_true(ends[s] || (m->ends[0] == '\0'));
    }
}

/* ---- a generation ---- */

static bt_status_t gen_next(int state, int input, int *next_p)
{
    bt_gen_state_t next;
    const bt_status_t status =
        bt_gen_next((bt_gen_state_t)state, (bt_gen_input_t)input, &next);

    if (status == BT_OK) {
        *next_p = (int)next;
    }
    return status;
}

/* New, Waiting, Running, Ended, Settled, recorDed × Submit, seNt, Lost, End,
 * ledGer, Record. */
static const char *const gen_rows[] = {
    /*  SNLEGR */
    "W.....", /* N */
    ".R.E..", /* W */
    "..WE..", /* R */
    "....S.", /* E */
    ".....D", /* S */
    "......", /* D */
};

static const machine_t gen_machine = {
    .letters = "NWRESD",
    .inputs = "SNLEGR",
    .rows = gen_rows,
    .next = gen_next,
    .starts = "N",
    .ends = "D",
};

static void generation_transitions_match_the_drawing(void **state)
{
    (void)state;
    assert_int_equal(strlen(gen_machine.letters), BT_GEN_N_STATES);
    assert_int_equal(strlen(gen_machine.inputs), BT_GEN_N_INPUTS);
    assert_is_drawn(&gen_machine);
    assert_has_no_dead_end(&gen_machine);
}

static void client_waits_in_live_states_only(void **state)
{
    (void)state;
    assert_false(bt_gen_state_is_live(BT_GEN_IS_NEW));
    assert_true(bt_gen_state_is_live(BT_GEN_IS_WAITING));
    assert_true(bt_gen_state_is_live(BT_GEN_IS_RUNNING));
    assert_false(bt_gen_state_is_live(BT_GEN_IS_ENDED));
    assert_false(bt_gen_state_is_live(BT_GEN_IS_SETTLED));
    assert_false(bt_gen_state_is_live(BT_GEN_IS_RECORDED));
}

/* ---- an attempt ---- */

static bt_status_t attempt_next(int state, int input, int *next_p)
{
    bt_attempt_state_t next;
    const bt_status_t status = bt_attempt_next(
        (bt_attempt_state_t)state, (bt_attempt_input_t)input, &next);

    if (status == BT_OK) {
        *next_p = (int)next;
    }
    return status;
}

/* Over, Sent, Transfer, Joined, Decode, Withdrawn, withdrawn with token (V),
 * loCal, one token (1), Lost × Token, Joined, Withdrew, prefill Ended, Prefill
 * lost, Decode left, send pair (2), local (c), one token (1), Close. */
static const char *const attempt_rows[] = {
    /*TJWEPD2c1C */
    "......SC1.", /* O */
    "TJWLLL...O", /* S */
    "TDVTLL...O", /* T */
    "D..LLL...O", /* J */
    "D..DDL...O", /* D */
    "V..LLW...O", /* W */
    "V..LLV...O", /* V */
    "D....L...O", /* C */
    "1..LL....O", /* 1 */
    ".........O", /* L */
};

static const machine_t attempt_machine = {
    .letters = "OSTJDWVC1L",
    .inputs = "TJWEPD2c1C",
    .rows = attempt_rows,
    .n_of_peers = 6,
    .next = attempt_next,
    .starts = "O",
    .ends = "",
};

static void attempt_transitions_match_the_drawing(void **state)
{
    (void)state;
    assert_int_equal(strlen(attempt_machine.letters), BT_ATTEMPT_N_STATES);
    assert_int_equal(strlen(attempt_machine.inputs), BT_ATTEMPT_N_INPUTS);
    assert_is_drawn(&attempt_machine);
    assert_has_no_dead_end(&attempt_machine);
}

static void attempt_states_have_phase_names(void **state)
{
    static const char *const names[BT_ATTEMPT_N_STATES] = {
        "over",    "prefill",     "KV transfer", "decode",  "decode",
        "prefill", "KV transfer", "prefill",     "prefill", "lost",
    };

    (void)state;
    for (int s = 0; s < BT_ATTEMPT_N_STATES; s++) {
        assert_string_equal(bt_attempt_state_name((bt_attempt_state_t)s),
                            names[s]);
    }
}

/* ---- a leg ---- */

static bt_status_t leg_next(int state, int input, int *next_p)
{
    bt_leg_state_t next;
    const bt_status_t status =
        bt_leg_next((bt_leg_state_t)state, (bt_leg_input_t)input, &next);

    if (status == BT_OK) {
        *next_p = (int)next;
    }
    return status;
}

/* Computing, Sampled, computeD, clOsed × Token, Prefilled, Close. */
static const char *const leg_rows[] = {
    /*  TPC */
    "SDO", /* C */
    "SDO", /* S */
    "D.O", /* D */
    "...", /* O */
};

static const machine_t leg_machine = {
    .letters = "CSDO",
    .inputs = "TPC",
    .rows = leg_rows,
    .n_of_peers = 2,
    .next = leg_next,
    .starts = "CD",
    .ends = "O",
};

static void leg_transitions_match_the_drawing(void **state)
{
    (void)state;
    assert_int_equal(strlen(leg_machine.letters), BT_LEG_N_STATES);
    assert_int_equal(strlen(leg_machine.inputs), BT_LEG_N_INPUTS);
    assert_is_drawn(&leg_machine);
    assert_has_no_dead_end(&leg_machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(generation_transitions_match_the_drawing),
        BT_TEST(client_waits_in_live_states_only),
        BT_TEST(attempt_transitions_match_the_drawing),
        BT_TEST(attempt_states_have_phase_names),
        BT_TEST(leg_transitions_match_the_drawing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
