/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that asks for large pages, with a kernel that the test plays: it
 * answers when it is let. */
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/clock.h"
#include "kvtransfer/kvt_pages.h"
#include "tests/support/testsupport.h"

#define PAGE        BT_KVT_PAGE_BYTES
#define DEADLINE_MS 60000

static sem_t let;           /* one call for each post */
static _Atomic size_t came; /* calls that have begun */
static _Atomic size_t left; /* calls that have ended */
static _Atomic uint64_t last_bytes;

/* As bt_kvt_pages_ready(), without any more than asked for. */
static void slow_kernel(bt_kvt_pages_t *pages, uint64_t bytes)
{
    atomic_store(&last_bytes, bytes);
    atomic_fetch_add(&came, 1);
    while (sem_wait(&let) != 0) {
    }
    pages->n_asked = (size_t)((bytes + PAGE - 1) / PAGE);
    atomic_fetch_add(&left, 1);
}

static void refusing_kernel(bt_kvt_pages_t *pages, uint64_t bytes)
{
    (void)bytes;
    *pages = (bt_kvt_pages_t){0};
    atomic_fetch_add(&left, 1);
}

static void wait_for(const _Atomic size_t *count, size_t n)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;

    while (atomic_load(count) < n) {
        assert_true(bt_now_ms() < deadline_ms);
        nanosleep(&pause, NULL);
    }
}

static void let_calls(int n)
{
    for (int i = 0; i < n; i++) {
        sem_post(&let);
    }
}

static bt_kvt_warmer_t *started(size_t n, bt_kvt_warm_t warm)
{
    static uint8_t memory[1]; /* nobody looks at it */
    const bt_kvt_pages_t pages = {.base = memory, .n = n};
    bt_kvt_warmer_t *warmer = NULL;

    sem_init(&let, 0, 0);
    atomic_store(&came, 0);
    atomic_store(&left, 0);
    assert_int_equal(bt_kvt_warmer_start(&pages, warm, &warmer), BT_OK);
    return warmer;
}

/* The owner would stand here for ever if any of its calls waited. */
static void warmer_never_blocks_the_owner(void **state)
{
    bt_kvt_warmer_t *warmer = started(8, slow_kernel);

    (void)state;
    bt_kvt_warmer_use(warmer, 1);
    wait_for(&came, 1);
    for (uint64_t i = 1; i <= 3; i++) {
        bt_kvt_warmer_use(warmer, i * PAGE);
        assert_true(bt_kvt_warmer_more(warmer));
    }
    assert_int_equal(atomic_load(&left), 0);
    let_calls(3); /* pages 1, 2 and 3, and no more */
    wait_for(&left, 3);
    assert_int_equal(atomic_load(&last_bytes), 3 * PAGE);
    bt_kvt_warmer_stop(warmer);
    assert_int_equal(atomic_load(&came), 3);
}

static void warmer_prepares_pages_one_by_one_when_idle(void **state)
{
    const struct timespec pause = {.tv_nsec = 100000};
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;
    bt_kvt_warmer_t *warmer = started(5, slow_kernel);

    (void)state;
    for (size_t n = 1; n <= 5; n++) {
        while (atomic_load(&came) < n) {
            assert_true(bt_kvt_warmer_more(warmer));
            assert_true(bt_now_ms() < deadline_ms);
            nanosleep(&pause, NULL);
        }
        assert_true(bt_kvt_warmer_more(warmer)); /* one is under way */
        let_calls(1);
        wait_for(&left, n);
        assert_int_equal(atomic_load(&last_bytes), n * PAGE);
    }
    while (bt_kvt_warmer_more(warmer)) {
        assert_true(bt_now_ms() < deadline_ms);
    }
    bt_kvt_warmer_stop(warmer);
    assert_int_equal(atomic_load(&came), 5);
}

static void warmer_stops_after_the_kernel_refuses(void **state)
{
    const uint64_t deadline_ms = bt_now_ms() + DEADLINE_MS;
    bt_kvt_warmer_t *warmer = started(100, refusing_kernel);

    (void)state;
    while (bt_kvt_warmer_more(warmer)) {
        assert_true(bt_now_ms() < deadline_ms);
    }
    bt_kvt_warmer_use(warmer, 100 * PAGE);
    assert_false(bt_kvt_warmer_more(warmer));
    bt_kvt_warmer_stop(warmer);
    assert_int_equal(atomic_load(&left), 1);
}

static void fast_kernel(bt_kvt_pages_t *pages, uint64_t bytes)
{
    (void)bytes;
    pages->n_asked++;
    atomic_fetch_add(&came, 1);
}

/* It would take weeks. */
static void warmer_stop_does_not_wait_for_remaining_pages(void **state)
{
    const uint64_t n = 1ull << 42;
    bt_kvt_warmer_t *warmer = started(n, fast_kernel);

    (void)state;
    bt_kvt_warmer_use(warmer, n * PAGE);
    wait_for(&came, 1);
    bt_kvt_warmer_stop(warmer);
}

static void warmer_without_pages_ends_at_once(void **state)
{
    bt_kvt_warmer_t *warmer = started(0, slow_kernel);

    (void)state;
    assert_false(bt_kvt_warmer_more(warmer));
    bt_kvt_warmer_use(warmer, PAGE);
    bt_kvt_warmer_stop(warmer);
    bt_kvt_warmer_stop(NULL);
    assert_int_equal(atomic_load(&came), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(warmer_never_blocks_the_owner),
        BT_TEST(warmer_prepares_pages_one_by_one_when_idle),
        BT_TEST(warmer_stops_after_the_kernel_refuses),
        BT_TEST(warmer_stop_does_not_wait_for_remaining_pages),
        BT_TEST(warmer_without_pages_ends_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
