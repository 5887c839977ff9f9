/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/process.h"

#include <signal.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

typedef struct signal_at {
    uint64_t ms;
    bool from_parent;
    bt_stop_t means;
} signal_at_t;

static void assert_means(const signal_at_t *signals, size_t n)
{
    bt_stop_requests_t wishes = {0};

    for (size_t i = 0; i < n; i++) {
        assert_int_equal(
            bt_stop_request(&wishes, signals[i].ms, signals[i].from_parent),
            signals[i].means);
    }
}

static void stop_signals_within_a_second_count_once(void **state)
{
    /* timeout(1) sends one to the process and one to its group. */
    const signal_at_t twice[] = {{5000, false, BT_STOP_BEGIN},
                                 {5000, false, BT_STOP_SAME},
                                 {5999, false, BT_STOP_SAME},
                                 {6000, false, BT_STOP_NOW}};

    (void)state;
    assert_means(twice, 4);
}

static void signal_forwarded_by_the_launcher_does_not_count_again(void **state)
{
    /* systemd stops the whole group; the launcher comes to us late. */
    const signal_at_t late[] = {{5000, false, BT_STOP_BEGIN},
                                {9000, true, BT_STOP_SAME},
                                {9500, true, BT_STOP_NOW}};
    const signal_at_t first[] = {{5000, true, BT_STOP_BEGIN},
                                 {5500, false, BT_STOP_SAME},
                                 {9000, true, BT_STOP_NOW}};

    (void)state;
    assert_means(late, 3);
    assert_means(first, 3);
}

static void signals_come_by_descriptor_with_their_sender(void **state)
{
    bool from_parent = true;
    int fd;

    (void)state;
    bt_stop_block();
    fd = bt_stop_open();
    assert_true(fd >= 0);
    assert_int_equal(bt_stop_next(fd, &from_parent), 0);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    assert_int_equal(bt_stop_next(fd, &from_parent), SIGINT);
    assert_false(from_parent); /* we sent it ourselves */
    assert_int_equal(bt_stop_next(fd, &from_parent), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stop_signals_within_a_second_count_once),
        BT_TEST(signal_forwarded_by_the_launcher_does_not_count_again),
        BT_TEST(signals_come_by_descriptor_with_their_sender),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
