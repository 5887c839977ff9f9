/* SPDX-License-Identifier: Apache-2.0 */
/* How long a process waits for a core. */
#include "common/base/process.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/testsupport.h"

#define MS          UINT64_C(1000000) /* ns */
#define PATIENCE_MS 60000u
#define LOOK_MS     20

/* ---- one thread between two looks ---- */

static void runnable_thread_that_does_not_run_counts_as_waiting(void **state)
{
    const bt_core_wait_thread_t before = {
        .state = 'R', .ran_ns = 50 * MS, .waited_ns = 7 * MS, .n_turns = 4};
    bt_core_wait_thread_t after = before;

    (void)state;
    /* The kernel books its wait when it is over. */
    assert_int_equal(bt_core_wait_of(&before, &after, 900), 900);
    after.ran_ns += 40 * MS; /* the rest of its turn */
    assert_int_equal(bt_core_wait_of(&before, &after, 900), 860);
    after.ran_ns = before.ran_ns + 1000 * MS; /* clocks differ a little */
    assert_int_equal(bt_core_wait_of(&before, &after, 900), 0);
}

static void finished_wait_equals_the_kernels_schedstat(void **state)
{
    const bt_core_wait_thread_t before = {
        .state = 'R', .ran_ns = 50 * MS, .waited_ns = 7 * MS, .n_turns = 4};
    bt_core_wait_thread_t after = before;

    (void)state;
    after.n_turns = 6;
    after.ran_ns += 10 * MS;
    after.waited_ns += 300 * MS;
    assert_int_equal(bt_core_wait_of(&before, &after, 900), 300);
    after.state = 'S';
    assert_int_equal(bt_core_wait_of(&before, &after, 900), 300);
    /* Most of it was before the first look. */
    assert_int_equal(bt_core_wait_of(&before, &after, 100), 100);
}

static void stopped_blocked_or_idle_class_threads_are_not_starved(void **state)
{
    bt_core_wait_thread_t thread = {
        .state = 'T', .ran_ns = 50 * MS, .waited_ns = 7 * MS, .n_turns = 4};
    bt_core_wait_thread_t woken = thread;

    (void)state;
    assert_int_equal(bt_core_wait_of(&thread, &thread, 900), 0);
    thread.state = 'D';
    assert_int_equal(bt_core_wait_of(&thread, &thread, 900), 0);
    woken.state = 'R'; /* it may have woken just now */
    assert_int_equal(bt_core_wait_of(&thread, &woken, 900), 0);
    thread.state = 'R';
    thread.is_background = true;
    assert_int_equal(bt_core_wait_of(&thread, &thread, 900), 0);
}

/* ---- processes ---- */

static pid_t spin(int core, bool idle_class)
{
    const struct sched_param none = {0};
    const pid_t pid = fork();
    cpu_set_t cores;

    if (pid != 0) {
        assert_true(pid > 0);
        return pid;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    CPU_ZERO(&cores);
    CPU_SET((size_t)core, &cores);
    if ((sched_setaffinity(0, sizeof(cores), &cores) != 0) ||
        (idle_class && (sched_setscheduler(0, SCHED_IDLE, &none) != 0))) {
        _exit(1);
    }
    for (;;) {
    }
}

static void end(pid_t pid)
{
    int status;

    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void pause_ms(uint64_t ms)
{
    const struct timespec time = {.tv_nsec = (long)(ms * MS)};

    (void)nanosleep(&time, NULL);
}

/* Beside a busy one of the usual class one of the idle class gets a core for
 * three thousandths of the time. */
static void process_without_a_core_counts_as_waiting_until_stopped(void **state)
{
    const int core = sched_getcpu();
    bt_core_wait_t wait = {0};
    const uint64_t start_ms = bt_now_ms();
    uint64_t waited_ms = 0;
    uint64_t n_still = 0;
    pid_t hog, starved;

    (void)state;
    hog = spin(core, false);
    starved = spin(core, true);
    assert_int_equal(bt_core_wait_look(&wait, starved, start_ms), 0);
    while (waited_ms < 200) {
        assert_true(bt_now_ms() - start_ms < PATIENCE_MS);
        pause_ms(LOOK_MS);
        waited_ms += bt_core_wait_look(&wait, starved, bt_now_ms());
    }
    assert_true(waited_ms <= bt_now_ms() - start_ms);

    assert_int_equal(kill(starved, SIGSTOP), 0);
    while (n_still < 5) { /* the first look may be of before */
        assert_true(bt_now_ms() - start_ms < PATIENCE_MS);
        pause_ms(LOOK_MS);
        n_still = (bt_core_wait_look(&wait, starved, bt_now_ms()) == 0)
                      ? n_still + 1
                      : 0;
    }
    end(starved);
    end(hog);
    assert_int_equal(bt_core_wait_look(&wait, starved, bt_now_ms()), 0);
}

static void own_process_is_never_starved(void **state)
{
    bt_core_wait_t wait = {0};

    (void)state;
    assert_int_equal(bt_core_wait_look(&wait, getpid(), bt_now_ms()), 0);
    assert_int_equal(wait.threads[0].tid, getpid());
    assert_int_equal(wait.threads[0].state, 'R');
    assert_false(wait.threads[0].is_background);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(runnable_thread_that_does_not_run_counts_as_waiting),
        BT_TEST(finished_wait_equals_the_kernels_schedstat),
        BT_TEST(stopped_blocked_or_idle_class_threads_are_not_starved),
        BT_TEST(process_without_a_core_counts_as_waiting_until_stopped),
        BT_TEST(own_process_is_never_starved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
