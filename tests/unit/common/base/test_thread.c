/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

/* sched_setattr(2): the first 48 bytes are the oldest form. */
typedef struct attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attr_t;

static uint64_t slice_ns(void)
{
    attr_t attr = {.size = sizeof(attr)};

    assert_int_equal(syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0), 0);
    return attr.runtime;
}

static void *slice_of_thread(void *slice_p)
{
    *(uint64_t *)slice_p = slice_ns();
    bt_thread_works_long(false);
    return NULL;
}

/* Kernels before 6.12 show 0 always. */
static void brief_thread_gets_a_short_time_slice(void **state)
{
    const uint64_t usual = slice_ns();
    uint64_t inherited = 0;
    pthread_t thread;

    (void)state;
    bt_thread_works_briefly();
    if ((usual == 0) && (slice_ns() == 0)) {
        skip();
    }
    assert_int_equal(slice_ns(), 100000);
    assert_int_equal(pthread_create(&thread, NULL, slice_of_thread, &inherited),
                     0);
    pthread_join(thread, NULL);
    assert_int_equal(inherited, 100000);
    assert_int_equal(slice_ns(), 100000); /* the other's is its own */
    bt_thread_works_in_bursts();
    assert_int_equal(slice_ns(), 2000000);
    bt_thread_works_long(true);
    assert_int_equal(slice_ns(), 100000000);
    bt_thread_works_long(false);
    assert_int_equal(slice_ns(), usual);
}

static void *lowered(void *added_p)
{
    const id_t id = (id_t)gettid();
    const int usual = getpriority(PRIO_PROCESS, id);

    bt_thread_lower_priority(0);
    assert_int_equal(getpriority(PRIO_PROCESS, id), usual);
    bt_thread_lower_priority(3);
    *(int *)added_p = getpriority(PRIO_PROCESS, id) - usual;
    bt_thread_lower_priority(UINT32_MAX);
    assert_int_equal(getpriority(PRIO_PROCESS, id), 19);
    return NULL;
}

static void thread_nice_is_added_to_the_current_value(void **state)
{
    const int usual = getpriority(PRIO_PROCESS, (id_t)gettid());
    pthread_t thread;
    int added = 0;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, lowered, &added), 0);
    pthread_join(thread, NULL);
    assert_int_equal(added, (usual + 3 <= 19) ? 3 : 19 - usual);
    assert_int_equal(getpriority(PRIO_PROCESS, (id_t)gettid()), usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(brief_thread_gets_a_short_time_slice),
        BT_TEST(thread_nice_is_added_to_the_current_value),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
