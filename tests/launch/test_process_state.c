/* SPDX-License-Identifier: Apache-2.0 */
/* States and restart policy of a process. */
#include "tests/support/testsupport.h"

#include <errno.h>
#include <stdio.h>

#include "common/base/status.h"
#include "launcher/process_state.h"

static void pauses_double_from_half_a_second_to_thirty(void **state)
{
    static const uint32_t want_ms[] = {500,  1000,  2000,  4000,
                                       8000, 16000, 30000, 30000};
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    for (size_t i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
        assert_true(bt_restart_exited(&restart, 1000, false, &pause_ms));
        assert_int_equal(pause_ms, want_ms[i]);
    }
}

static void a_minute_of_health_makes_pauses_short_again(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 1000);
    assert_true(bt_restart_exited(&restart, 2000, false, &pause_ms));
    assert_true(bt_restart_exited(&restart, 3000, false, &pause_ms));
    assert_int_equal(pause_ms, 1000);

    bt_restart_ready(&restart, 10000);
    assert_true(bt_restart_exited(&restart, 69999, false, &pause_ms));
    assert_int_equal(pause_ms, 2000);

    bt_restart_ready(&restart, 70000);
    assert_true(bt_restart_exited(&restart, 130000, false, &pause_ms));
    assert_int_equal(pause_ms, 0);
    assert_true(bt_restart_exited(&restart, 131000, false, &pause_ms));
    assert_int_equal(pause_ms, 500);
    /* A long life without being ready is no health. */
    assert_true(bt_restart_exited(&restart, 999999, false, &pause_ms));
    assert_int_equal(pause_ms, 1000);
}

static void the_fifth_early_end_is_the_last(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    for (int i = 0; i < 4; i++) {
        assert_true(bt_restart_exited(&restart, 0, false, &pause_ms));
    }
    pause_ms = 77;
    assert_false(bt_restart_exited(&restart, 0, false, &pause_ms));
    assert_int_equal(pause_ms, 77);

    /* Once ready, never given up. */
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    for (int i = 0; i < 20; i++) {
        assert_true(bt_restart_exited(&restart, 0, false, &pause_ms));
    }
}

static void a_final_exit_status_is_not_retried(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 77;

    (void)state;
    bt_restart_init(&restart);
    assert_false(bt_restart_exited(&restart, 0, true, &pause_ms));
    assert_int_equal(pause_ms, 77);

    /* What was there once may come back. */
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    assert_true(bt_restart_exited(&restart, 0, true, &pause_ms));
    assert_int_equal(pause_ms, 500);
}

static void exit_codes_say_whether_a_retry_can_help(void **state)
{
    static const struct {
        bt_status_t status;
        int code;
    } starts[] = {
        {BT_OK, 0},
        {BT_ERR_CANCELED, 0},
        {BT_ERR_INVALID_PARAM, 2},
        {BT_ERR_NO_MEMORY, 78},
        {BT_ERR_UNSUPPORTED, 78},
        {BT_ERR_NO_DEVICE, 78},
        {BT_ERR_NOT_FOUND, 78},
        {BT_ERR_UNAUTHORIZED, 78},
        {BT_ERR_BAD_FILE, 78},
        {BT_ERR_IO, 1},
        {BT_ERR_TIMED_OUT, 1},
        {BT_ERR_BUSY, 1},
        {BT_ERR_INTERNAL, 1},
    };
    static const int final[] = {2, 78, 126, 127};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(starts); i++) {
        assert_int_equal(bt_exit_of_start(starts[i].status), starts[i].code);
    }
    for (int code = 0; code < 256; code++) {
        bool is_final = false;

        for (size_t i = 0; i < BT_ARRAY_LEN(final); i++) {
            is_final = is_final || (code == final[i]);
        }
        assert_int_equal(bt_exit_is_final(code), is_final);
    }
    /* An address in use, by bind(). */
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EADDRINUSE)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EADDRNOTAVAIL)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EACCES)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(ENOBUFS)), 1);
}

/* Every state with every event, by the drawing in process_state.h; what is not
 * listed changes nothing. */
static void process_states_have_the_arrows_of_the_drawing_only(void **state)
{
    static const struct {
        bt_process_state_t from;
        bt_process_state_event_t event;
        bt_process_state_t to;
    } arrows[] = {
        {BT_PROCESS_STOPPED, BT_PROCESS_EVENT_START, BT_PROCESS_STARTING},
        {BT_PROCESS_STOPPED, BT_PROCESS_EVENT_RESTART, BT_PROCESS_STARTING},
        {BT_PROCESS_STOPPED, BT_PROCESS_EVENT_HOLD, BT_PROCESS_WAITING},
        {BT_PROCESS_STARTING, BT_PROCESS_EVENT_STOP, BT_PROCESS_STOPPING},
        {BT_PROCESS_STARTING, BT_PROCESS_EVENT_RESTART, BT_PROCESS_CHANGING},
        {BT_PROCESS_STARTING, BT_PROCESS_EVENT_READY, BT_PROCESS_READY},
        {BT_PROCESS_STARTING, BT_PROCESS_EVENT_ENDED, BT_PROCESS_WAITING},
        {BT_PROCESS_STARTING, BT_PROCESS_EVENT_GAVE_UP, BT_PROCESS_STOPPED},
        {BT_PROCESS_READY, BT_PROCESS_EVENT_STOP, BT_PROCESS_STOPPING},
        {BT_PROCESS_READY, BT_PROCESS_EVENT_RESTART, BT_PROCESS_CHANGING},
        {BT_PROCESS_READY, BT_PROCESS_EVENT_ENDED, BT_PROCESS_WAITING},
        {BT_PROCESS_STOPPING, BT_PROCESS_EVENT_START, BT_PROCESS_CHANGING},
        {BT_PROCESS_STOPPING, BT_PROCESS_EVENT_RESTART, BT_PROCESS_CHANGING},
        {BT_PROCESS_STOPPING, BT_PROCESS_EVENT_ENDED, BT_PROCESS_STOPPED},
        {BT_PROCESS_CHANGING, BT_PROCESS_EVENT_STOP, BT_PROCESS_STOPPING},
        {BT_PROCESS_CHANGING, BT_PROCESS_EVENT_ENDED, BT_PROCESS_STARTING},
        {BT_PROCESS_WAITING, BT_PROCESS_EVENT_START, BT_PROCESS_STARTING},
        {BT_PROCESS_WAITING, BT_PROCESS_EVENT_RESTART, BT_PROCESS_STARTING},
        {BT_PROCESS_WAITING, BT_PROCESS_EVENT_PAUSE_OVER, BT_PROCESS_STARTING},
        {BT_PROCESS_WAITING, BT_PROCESS_EVENT_STOP, BT_PROCESS_STOPPED},
    };
    const size_t n_arrows = sizeof(arrows) / sizeof(arrows[0]);

    (void)state;
    for (unsigned from = 0; from < BT_PROCESS_STATES; from++) {
        for (unsigned event = 0; event < BT_PROCESS_EVENTS; event++) {
            bt_process_state_t want = (bt_process_state_t)from;

            for (size_t i = 0; i < n_arrows; i++) {
                if ((arrows[i].from == from) && (arrows[i].event == event)) {
                    want = arrows[i].to;
                }
            }
            assert_int_equal(
                bt_process_state_after((bt_process_state_t)from,
                                       (bt_process_state_event_t)event),
                want);
        }
    }
    assert_false(bt_process_state_runs(BT_PROCESS_STOPPED));
    assert_false(bt_process_state_runs(BT_PROCESS_WAITING));
    assert_true(bt_process_state_runs(BT_PROCESS_STARTING));
    assert_true(bt_process_state_runs(BT_PROCESS_READY));
    assert_true(bt_process_state_runs(BT_PROCESS_STOPPING));
    assert_true(bt_process_state_runs(BT_PROCESS_CHANGING));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pauses_double_from_half_a_second_to_thirty),
        BT_TEST(a_minute_of_health_makes_pauses_short_again),
        BT_TEST(the_fifth_early_end_is_the_last),
        BT_TEST(a_final_exit_status_is_not_retried),
        BT_TEST(exit_codes_say_whether_a_retry_can_help),
        BT_TEST(process_states_have_the_arrows_of_the_drawing_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
