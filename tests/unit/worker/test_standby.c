/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/start.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

static void standby_assignment_is_a_name_and_a_role(void **state)
{
    static const char *const wrong[] = {"",          "decode-0",
                                        " decode",   "decode-0 router",
                                        "d decode ", "decode-0 none"};
    char name[BT_WIRE_MAX_NAME];
    char text[BT_WIRE_MAX_NAME + 16];
    uint32_t roles = 0;

    (void)state;
    assert_int_equal(
        bt_standby_read_assignment("m.decode-0 both", name, &roles), BT_OK);
    assert_string_equal(name, "m.decode-0");
    assert_int_equal(roles, BT_ROLES_BOTH);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(bt_standby_read_assignment(wrong[i], name, &roles),
                         BT_ERR_BAD_MESSAGE);
    }
    memset(text, 'n', BT_WIRE_MAX_NAME);
    memcpy(text + BT_WIRE_MAX_NAME, " decode", sizeof(" decode"));
    assert_int_equal(bt_standby_read_assignment(text, name, &roles),
                     BT_ERR_BAD_MESSAGE);
    assert_int_equal(bt_standby_read_assignment(text + 1, name, &roles), BT_OK);
    assert_int_equal(strlen(name), BT_WIRE_MAX_NAME - 1);
}

static bt_status_t told(const char *words, bool is_over)
{
    static bt_worker_t w;
    bt_config_t config = {.model = "m"};
    int place[2];
    int signals[2];
    bt_status_t status;

    assert_int_equal(pipe(place), 0);
    assert_int_equal(pipe(signals), 0);
    assert_int_equal(write(place[1], words, strlen(words)), strlen(words));
    if (is_over) {
        close(place[1]);
    }
    config.assignment_fd = (uint32_t)place[0];
    w = (bt_worker_t){.config = &config, .ready_fd = -1};
    status = bt_worker_stand_by(&w, NULL, signals[0]);
    if (status == BT_OK) {
        assert_string_equal(w.name, "decode-0");
        assert_int_equal(w.roles, BT_ROLE_DECODE);
    }
    if (!is_over) {
        close(place[1]);
    }
    assert_int_equal(fcntl(place[0], F_GETFD), -1);
    close(signals[0]);
    close(signals[1]);
    return status;
}

static void standby_waits_for_its_assignment(void **state)
{
    (void)state;
    bt_test_expect_log_lines(1);
    assert_int_equal(told("decode-0 decode\n", false), BT_OK);
    assert_int_equal(told("decode-0 dec", true), BT_ERR_CANCELED);
    assert_int_equal(told("what\n", false), BT_ERR_BAD_MESSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(standby_assignment_is_a_name_and_a_role),
        BT_TEST(standby_waits_for_its_assignment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
