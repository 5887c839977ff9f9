/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of bytes that two processes share, and a side of it that lies. */
#include "tests/support/testsupport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/link/shm_segment.h"

typedef struct pair {
    bt_shm_ring_memory_t *memory;
    bt_shm_ring_t writer, reader;
} pair_t;

static void pair_open(pair_t *p)
{
    p->memory = aligned_alloc(64, sizeof(*p->memory));
    assert_non_null(p->memory);
    memset(p->memory, 0, sizeof(*p->memory));
    bt_shm_ring_init(&p->writer, p->memory);
    bt_shm_ring_init(&p->reader, p->memory);
}

static size_t put(pair_t *p, const void *data, size_t bytes)
{
    size_t n = 12345;

    assert_int_equal(bt_shm_ring_write(&p->writer, data, bytes, &n), BT_OK);
    return n;
}

static size_t get(pair_t *p, void *out, size_t bytes)
{
    size_t n = 12345;

    assert_int_equal(bt_shm_ring_read(&p->reader, out, bytes, &n), BT_OK);
    return n;
}

static void bytes_come_in_order_across_the_end_of_the_ring(void **state)
{
    static uint8_t in[70000], out[70000];
    uint32_t sent = 0, seen = 0;
    pair_t p;

    (void)state;
    pair_open(&p);
    for (int round = 0; round < 50; round++) {
        size_t n;

        for (size_t i = 0; i < sizeof(in); i++) {
            in[i] = (uint8_t)((sent + i) * 131);
        }
        n = put(&p, in, sizeof(in) - (size_t)round * 7);
        sent += (uint32_t)n;
        n = get(&p, out, sizeof(out) - (size_t)round * 13);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(out[i], (uint8_t)((seen + i) * 131));
        }
        seen += (uint32_t)n;
        assert_true(sent - seen <= BT_SHM_RING_BYTES);
    }
    assert_true(seen > 10 * BT_SHM_RING_BYTES);
    free(p.memory);
}

static void a_full_ring_takes_what_fits_and_no_more(void **state)
{
    uint8_t *bytes = calloc(1, BT_SHM_RING_BYTES + 1);
    pair_t p;

    (void)state;
    pair_open(&p);
    assert_int_equal(get(&p, bytes, 10), 0);
    assert_int_equal(put(&p, bytes, BT_SHM_RING_BYTES + 1), BT_SHM_RING_BYTES);
    assert_int_equal(put(&p, bytes, 1), 0);
    assert_true(bt_shm_ring_wait(&p.writer)); /* it has to wait */
    assert_int_equal(get(&p, bytes, 3), 3);
    assert_true(bt_shm_ring_wakes_writer(&p.reader));
    assert_false(bt_shm_ring_wakes_writer(&p.reader)); /* once */
    assert_false(bt_shm_ring_wait(&p.writer));         /* there is room */
    assert_int_equal(put(&p, bytes, 10), 3);
    free(bytes);
    free(p.memory);
}

static void who_sleeps_is_woken_once_and_nobody_sleeps_over_bytes(void **state)
{
    uint8_t byte = 7;
    pair_t p;

    (void)state;
    pair_open(&p);
    assert_false(bt_shm_ring_any(&p.reader));
    assert_int_equal(put(&p, &byte, 1), 1);
    assert_false(bt_shm_ring_wakes_reader(&p.writer)); /* it is awake */
    assert_true(bt_shm_ring_any(&p.reader));
    assert_false(bt_shm_ring_sleep(&p.reader)); /* it must not */
    assert_int_equal(get(&p, &byte, 1), 1);
    assert_true(bt_shm_ring_sleep(&p.reader));
    assert_int_equal(put(&p, &byte, 1), 1);
    assert_true(bt_shm_ring_wakes_reader(&p.writer));
    assert_false(bt_shm_ring_wakes_reader(&p.writer));
    free(p.memory);
}

/* Positions that no honest side could have. */
static void a_side_that_lies_is_refused(void **state)
{
    static const uint64_t lies[] = {BT_SHM_RING_BYTES + 101, UINT64_MAX,
                                    UINT64_MAX / 2, 99 /* going back */};
    /* One that goes back only gives itself less room. */
    static const uint64_t tails[] = {101, UINT64_MAX / 2,
                                     UINT64_C(100) - BT_SHM_RING_BYTES - 1,
                                     UINT64_C(100) + BT_SHM_RING_BYTES};
    uint8_t bytes[100] = {0};
    size_t n = 12345;

    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        pair_t p;

        pair_open(&p);
        assert_int_equal(put(&p, bytes, sizeof(bytes)), sizeof(bytes));
        assert_int_equal(get(&p, bytes, sizeof(bytes)), sizeof(bytes));
        atomic_store(&p.memory->head, lies[i]);
        assert_true(bt_shm_ring_any(&p.reader)); /* so the lie is found */
        assert_int_equal(bt_shm_ring_read(&p.reader, bytes, sizeof(bytes), &n),
                         BT_ERR_BAD_MESSAGE);
        assert_int_equal(n, 12345);
        free(p.memory);

        pair_open(&p);
        assert_int_equal(put(&p, bytes, sizeof(bytes)), sizeof(bytes));
        atomic_store(&p.memory->tail, tails[i]);
        assert_int_equal(bt_shm_ring_write(&p.writer, bytes, sizeof(bytes), &n),
                         BT_ERR_BAD_MESSAGE);
        assert_int_equal(n, 12345);
        free(p.memory);
    }
}

#define MANY 400000u

static void *write_many(void *arg)
{
    pair_t *p = arg;
    uint32_t next = 0;

    while (next < MANY) {
        uint32_t some[64];
        uint32_t k = 1 + next % 64;
        size_t done = 0;

        k = (k < MANY - next) ? k : MANY - next;
        for (uint32_t i = 0; i < k; i++) {
            some[i] = next + i;
        }
        while (done < k * sizeof(uint32_t)) {
            done += put(p, (const uint8_t *)some + done,
                        k * sizeof(uint32_t) - done);
        }
        next += k;
    }
    return NULL;
}

static void two_threads_agree_on_every_byte(void **state)
{
    pthread_t thread;
    uint32_t next = 0;
    pair_t p;

    (void)state;
    pair_open(&p);
    assert_int_equal(pthread_create(&thread, NULL, write_many, &p), 0);
    while (next < MANY) {
        uint32_t value;
        size_t n = 0;

        while (n < sizeof(value)) { /* a number may come in two parts */
            n += get(&p, (uint8_t *)&value + n, sizeof(value) - n);
        }
        if (value != next) {
            assert_int_equal(value, next);
        }
        next++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    free(p.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(bytes_come_in_order_across_the_end_of_the_ring),
        BT_TEST(a_full_ring_takes_what_fits_and_no_more),
        BT_TEST(who_sleeps_is_woken_once_and_nobody_sleeps_over_bytes),
        BT_TEST(a_side_that_lies_is_refused),
        BT_TEST(two_threads_agree_on_every_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
